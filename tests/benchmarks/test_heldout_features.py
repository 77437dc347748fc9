"""The study of the features of held-out surrogates: its tables, and that its conclusion follows from them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.relabel.render import DOCS

from benchmarks import heldout_features as study

KNOWN = json.loads((DOCS / "results" / "heldout_features.json").read_text(encoding="utf-8"))
PARTS = sorted({key.rsplit(", ", 2)[1] for key in KNOWN})


@pytest.mark.parametrize("part", PARTS)
def test_the_page_has_what_was_measured(part: str) -> None:
    page = (DOCS / "research" / "audit.md").read_text(encoding="utf-8")
    assert f"<!-- heldout {part} -->\n\n{study.table(KNOWN, part)}\n\n<!-- end -->" in page


def test_no_candidate_keeps_what_the_default_finds_in_every_case() -> None:
    precision: dict[str, dict[str, list[float]]] = {}
    for key, line in KNOWN.items():
        name, errors, part, _ = key.rsplit(", ", 3)
        if part == "choose" and errors != "none":
            for candidate in study.CANDIDATES:
                precision.setdefault(f"{name} {errors}", {}).setdefault(candidate, []).append(
                    line[candidate][0]
                )
    assert len(precision) == 12
    for candidate in study.CANDIDATES:
        losses = [np.mean(case[study.TODAY]) - np.mean(case[candidate]) for case in precision.values()]
        assert (max(losses) <= 0.005) == (candidate == study.TODAY)


def test_cases_of_the_two_parts_share_no_seed() -> None:
    chosen, judged = ({(case.name, case.seed) for case in study.cases(part)} for part in study.SEEDS)
    assert not chosen & judged
    assert {case.errors for case in study.cases("judge")} == {"random", "confusable"}
    assert all(set(row) <= set(study.DIGITS) - {digit} for digit, row in study.DIGITS.items())
