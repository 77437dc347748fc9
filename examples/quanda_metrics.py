"""Methods of whence in quanda's metrics: python -m examples.quanda_metrics, in an environment with quanda.

quanda measures how early wrong labels come when samples are inspected by self-influence, for three methods.
"""

from __future__ import annotations

import whence
from examples.wrong_labels import case

METHODS = ("dualda", "representer", "graddot")


def main(n: int = 500) -> dict[str, float]:
    """Measure, print, and return the scores by method."""
    from quanda.metrics.downstream_eval import MislabelingDetectionMetric

    model, data, wrong = case(n)
    scores = {}
    for method in METHODS:
        metric = MislabelingDetectionMetric(
            model=model,
            train_dataset=data,
            mislabeling_indices=wrong,
            explainer_cls=whence.interop.QuandaExplainer,
            expl_kwargs={"method": method, "parameters": {"show_progress": False}},
        )
        scores[method] = float(metric.compute()["score"])
        print(f"{method:12} {scores[method]:.3f}")
    return scores


if __name__ == "__main__":
    main()
