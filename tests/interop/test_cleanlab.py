"""Wrong labels as issues of cleanlab's Datalab."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from whence.errors import InvalidInputError

cleanlab = pytest.importorskip(
    "cleanlab", reason="cleanlab is not installed: it needs an environment of its own"
)
pytest.importorskip("datasets", reason="datasets is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

N, WRONG = 90, [7, 33]


def test_scores_stand_beside_cleanlabs_own() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(N) % 3
    f = np.eye(3)[y] + 0.1 * rng.normal(size=(N, 3))
    y[WRONG] = (y[WRONG] + 1) % 3
    bank = whence.features.FeatureBank.of(f, y)
    e = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    lab = cleanlab.Datalab({"label": y}, label_name="label", verbosity=0)
    lab.find_issues(features=f, issue_types={"label": {}})
    found = whence.audit.wrong_labels(e, features=f)
    whence.interop.add_to_datalab(lab, found)
    issues = lab.get_issues("whence_label")
    assert np.flatnonzero(issues["is_whence_label_issue"]).tolist() == WRONG
    order = issues["whence_label_score"].sort_values(kind="stable").index
    assert order.tolist() == found.indices.tolist()
    # cleanlab itself, by other means, flags the same two.
    assert np.flatnonzero(lab.get_issues("label")["is_label_issue"]).tolist() == WRONG
    summary = lab.get_issue_summary("whence_label")
    assert summary["score"].item() == pytest.approx(1 - len(WRONG) / N)
    with pytest.raises(InvalidInputError, match=f"each of the {N} samples"):
        whence.interop.add_to_datalab(lab, whence.audit.wrong_labels(e, features=f, n=5))
