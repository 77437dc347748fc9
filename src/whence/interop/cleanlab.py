"""Labels that may be wrong, as issues of cleanlab's Datalab."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas
from cleanlab import IssueManager
from cleanlab.datalab.internal.issue_manager_factory import register

from whence.audit import WrongLabels
from whence.core.arrays import Doubles
from whence.core.checks import check_is
from whence.errors import InvalidInputError


@register
class WhenceLabelIssues(IssueManager):  # type: ignore[misc]
    """Labels that may be wrong by ``whence.audit.wrong_labels``."""

    issue_name: ClassVar[str] = "whence_label"
    description: ClassVar[str] = "Labels that whence's surrogates, solved without the sample, disagree with."

    def find_issues(self, wrong: WrongLabels | None = None, **_: Any) -> None:
        """Take the scores of all samples: near 0 where the label is most suspicious."""
        assert wrong is not None  # add_to_datalab has checked it; what is raised here, a Datalab only prints
        order = np.argsort(wrong.indices)
        scores = quality(wrong)[order]
        given, suggested = wrong.labels[order], wrong.suggested[order]
        self.issues = pandas.DataFrame(
            {f"is_{self.issue_name}_issue": given != suggested, self.issue_score_key: scores}
        )
        self.summary = self.make_summary(score=float((given == suggested).mean()))
        self.info = {"ranking": wrong.ranking, "suggested_label": suggested}


def quality(wrong: WrongLabels) -> Doubles:
    """Return scores in [0, 1], 0 for the most suspicious label: by ranks, which keep the order."""
    return np.arange(len(wrong)) / max(1, len(wrong) - 1)


def add_to_datalab(lab: Any, wrong: WrongLabels) -> None:
    """Add wrong labels to a Datalab, as issues of the type "whence_label" next to its own.

    A sample is flagged where the audit suggests another label than it has.

    Parameters
    ----------
    lab
        A ``cleanlab.Datalab`` of the training set, in its order.
    wrong
        What ``whence.audit.wrong_labels(explainer)`` returned, for all samples.
    """
    check_is("wrong", wrong, WrongLabels, "what whence.audit.wrong_labels returned")
    n = len(lab.labels)
    if sorted(wrong.indices.tolist()) != list(range(n)):
        raise InvalidInputError(
            f"'wrong' must list each of the {n:,} samples of the Datalab once. Got {len(wrong):,}. Leave "
            "'n' of wrong_labels out, and pass both the same samples."
        )
    lab.find_issues(issue_types={WhenceLabelIssues.issue_name: {"wrong": wrong}})
