"""Order samples by cleanlab's defaults, in an environment of its own: ``python cleanlab_order.py IN OUT``.

IN is an .npz with ``labels`` (N,) and out-of-sample ``probabilities`` (N, K); OUT gets the ``order`` (N,).
"""

from __future__ import annotations

import sys

import numpy as np


def main(given: str, out: str) -> None:
    """Read, order, write: the issues that are found first, then all other samples, each by label quality."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    with np.load(given) as arrays:
        labels, probabilities = arrays["labels"], arrays["probabilities"]
    issues = find_label_issues(labels, probabilities, return_indices_ranked_by="self_confidence", n_jobs=1)
    others = np.argsort(get_label_quality_scores(labels, probabilities), kind="stable")
    np.savez(out, order=np.r_[issues, others[~np.isin(others, issues)]], issues=len(issues))


if __name__ == "__main__":
    main(*sys.argv[1:])
