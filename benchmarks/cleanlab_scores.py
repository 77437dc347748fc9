"""Score labels by cleanlab and Datalab, in an environment of theirs: ``python cleanlab_scores.py IN OUT``.

IN is an .npz with ``labels`` (N,), ``features`` (N, d) and probabilities (N, K) ``crossed`` and ``inside``;
OUT gets one array (N,) per score, larger being more suspicious.
"""

from __future__ import annotations

import contextlib
import os
import sys

import numpy as np


def main(given: str, out: str) -> None:
    """Read, score, write."""
    from cleanlab import Datalab
    from cleanlab.rank import get_label_quality_scores

    with np.load(given) as arrays:
        labels, features = arrays["labels"], arrays["features"]
        sources = {"cross-validated": arrays["crossed"], "in-sample": arrays["inside"]}

    def datalab(**known: np.ndarray) -> np.ndarray:
        lab = Datalab({"label": labels}, label_name="label", verbosity=0)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            lab.find_issues(**known, issue_types={"label": {}})
        scores: np.ndarray = -lab.get_issues("label")["label_score"].to_numpy()
        return scores

    found = {
        f"cleanlab {method}, {source}": -get_label_quality_scores(labels, p, method=method)
        for source, p in sources.items()
        for method in ("self_confidence", "normalized_margin")
    }
    for source, p in sources.items():
        found[f"Datalab, {source}"] = datalab(pred_probs=p, features=features)
    found["Datalab, features only"] = datalab(features=features)
    np.savez(out, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
