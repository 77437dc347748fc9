"""What a model's outputs stand for. Classes are the first case; another one is a file beside it."""

from whence.tasks.classes import Classes
from whence.tasks.task import Task, as_task, restored

__all__ = ["Classes", "Task", "as_task", "restored"]
