"""What a model's outputs stand for. Classes are the first case; another one is a file beside it."""

from whence.tasks.classes import Classes
from whence.tasks.task import Task

__all__ = ["Classes", "Task"]
