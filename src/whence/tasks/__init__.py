"""What a model's outputs stand for: classes, one logit, many labels, numbers, tokens."""

from whence.tasks.choosing import as_task, find_task, restore_task, task_class
from whence.tasks.classes import Classes, OneLogit, Tokens, probabilities
from whence.tasks.many_labels import ManyLabels
from whence.tasks.regression import Regression
from whence.tasks.task import TASKS, LabelKind, Task, Verdict

__all__ = [
    "TASKS",
    "Classes",
    "LabelKind",
    "ManyLabels",
    "OneLogit",
    "Regression",
    "Task",
    "Tokens",
    "Verdict",
    "as_task",
    "find_task",
    "probabilities",
    "restore_task",
    "task_class",
]
