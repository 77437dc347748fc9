"""Random calls, right and wrong, give sense or a typed error: no raw error, no hang, no nonsense taken."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from tests.fuzz.calling import CHECKS, EVERY, NAN, OBJECTS, REFUSE, RULES, USED
from tests.fuzz.public import public
from tests.fuzz.running import GOOD, HangError, limited, not_finite, run, run_right

CASES, SEED = 300, 2024


def test_every_public_call_is_fuzzed_and_the_tables_speak_of_no_other() -> None:
    fuzzed = {call.name for call in EVERY}
    assert set(public()) == fuzzed
    assert len(fuzzed) > 340
    named = {*OBJECTS, *USED, *REFUSE, *NAN, *CHECKS, *(key.rpartition(".")[0] for key in RULES)}
    known = fuzzed | {name.split(".")[0] for name in fuzzed} | {""}
    known |= {f"*.{name.split('.')[-1]}" for name in fuzzed} | {f"{name.split('.')[0]}.*" for name in fuzzed}
    assert named - known == set()


@pytest.mark.parametrize("part", range(10))
def test_every_call_has_right_arguments(part: int) -> None:
    outcomes = [run_right(call, whole=True) for call in EVERY[part::10]]
    assert not [str(outcome) for outcome in outcomes if outcome.word not in GOOD]


@pytest.mark.parametrize("part", range(10))
def test_random_calls_end_well(part: int) -> None:
    size = CASES // 10
    outcomes = {case: run(SEED, case) for case in range(part * size, (part + 1) * size)}
    bad = [
        f"{outcome}\n  again: make fuzz FUZZ_SEED={SEED} FUZZ_CASE={case}"
        for case, outcome in outcomes.items()
        if outcome.word not in GOOD
    ]
    assert not bad, "\n\n".join(bad)


def test_right_and_wrong_calls_are_both_among_them() -> None:
    words = Counter(run(SEED, case).word for case in range(60))
    assert min(words["right"], words["refused"]) >= 8


def test_a_case_is_the_same_again() -> None:
    first, second = run(SEED, 7), run(SEED, 7)
    assert first[:4] == second[:4]


def test_what_takes_too_long_is_a_hang() -> None:
    with pytest.raises(HangError), limited(0.05):
        sum(1 for _ in itertools.count())


@pytest.mark.parametrize(
    "value", [float("nan"), np.array([1.0, np.inf]), torch.tensor([np.nan]), {"a": [(-np.inf,)]}]
)
def test_what_is_not_finite_is_seen(value: object) -> None:
    assert not_finite(value)
    assert not not_finite([1, 2.0, "nan", np.array(["a"]), torch.tensor([1])])
