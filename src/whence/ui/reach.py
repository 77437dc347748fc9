"""How far the explorer reaches: what can be asked of a project's method, and what is said of the rest."""

from __future__ import annotations

from typing import Literal

from whence.explanation.wording import Question
from whence.methods import DualDA, Effects, Ensemble
from whence.project import Project

View = Literal["audit", "classes", "concepts", "whatif"]

_NEEDS: dict[View, str] = {
    "audit": "Labels are ranked by the surrogate of a DualDA.",
    "classes": "Classes are told by the coefficients of a DualDA.",
    "concepts": "Concepts are directions of the features of a DualDA.",
    "whatif": "What if solves the surrogate of a DualDA again.",
}
_MEMBER = "To ask that, save a member by itself, explainer.members_[0].save(path), and serve it."
_SINGLE = "To ask that, fit DualDA, whence fit --method dualda, and serve it."


def questions(project: Project) -> tuple[Question, ...]:
    """Return the questions that the training samples of a test can answer."""
    first = project.members[0]
    if isinstance(project.attributor, DualDA):
        return ("made of",) if project.attributor.task_.label_kind == "label" else ("made of", "would change")
    return ("made of",) if first.foretold_ is None else ("would change",)


def compares(project: Project) -> bool:
    """Whether tests can be compared with the training set: the members of an ensemble have no features."""
    return not isinstance(project.attributor, Ensemble)


def withheld(project: Project) -> dict[View, str]:
    """Say of each view that the method has nothing for why, and what to do."""
    if isinstance(project.attributor, DualDA):
        return {}
    return {view: f"{needs} {_told(project)}" for view, needs in _NEEDS.items()}


def _told(project: Project) -> str:
    if isinstance(project.attributor, Ensemble):
        return f"This is an ensemble of {len(project.members)} models, each with its own. {_MEMBER}"
    return f"This is {type(project.attributor).__name__}, which has another surrogate. {_SINGLE}"


def note(project: Project) -> str:
    """Say what is shown of predictions where that is not all; empty of a DualDA."""
    method = project.attributor
    if isinstance(method, Ensemble):
        return (
            f"An ensemble of {len(project.members)} models: scores and maps are means over them, ± is the "
            "standard deviation over them. Another C, what if, how usual a test is and how stable its "
            f"samples are can be asked of one model only. {_MEMBER}"
        )
    if isinstance(method, Effects):
        return (
            "Effects only: what training samples change by being there. What a logit is made of, another C "
            f"and what if are asked of a DualDA. {_SINGLE}"
        )
    return ""
