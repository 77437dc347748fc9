"""What a model's outputs stand for: classes, one logit, many labels, numbers; another is a file beside."""

from whence.tasks.classes import Classes, OneLogit
from whence.tasks.finding import task_of_labels
from whence.tasks.many_labels import ManyLabels
from whence.tasks.regression import Regression
from whence.tasks.task import Task, as_task, kind, restored
from whence.tasks.tokens import Tokens
from whence.tasks.verdict import Speech, Verdict

__all__ = [
    "Classes",
    "ManyLabels",
    "OneLogit",
    "Regression",
    "Speech",
    "Task",
    "Tokens",
    "Verdict",
    "as_task",
    "kind",
    "restored",
    "task_of_labels",
]
