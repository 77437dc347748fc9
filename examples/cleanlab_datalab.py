"""Wrong labels in cleanlab's Datalab: python -m examples.cleanlab_datalab, with cleanlab[datalab] installed.

The same images are audited by cleanlab, from the features that the network sees, and by whence.
"""

from __future__ import annotations

from typing import Any

import whence
from examples.wrong_labels import case


def main(n: int = 500) -> Any:
    """Audit, print what each of the two flags, and return the Datalab."""
    from cleanlab import Datalab

    model, data, wrong = case(n)
    bank = whence.features.extract(model, data, show_progress=False)
    explainer = whence.DualDA(show_progress=False).fit(features=bank)
    lab = Datalab({"label": bank.labels}, label_name="label", verbosity=0)
    lab.find_issues(features=bank.features, issue_types={"label": {}})
    whence.interop.add_to_datalab(lab, whence.audit.wrong_labels(explainer, features=bank))
    for issue in ("label", "whence_label"):
        flagged = lab.get_issues(issue).query(f"is_{issue}_issue").index
        right = len(set(flagged) & set(wrong))
        print(f"{issue:12} flags {len(flagged)}, of which {right} of the {len(wrong)} wrong labels")
    return lab


if __name__ == "__main__":
    main()
