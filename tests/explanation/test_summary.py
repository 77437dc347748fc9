"""An explanation in one sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.helpers.explained import effects, explanation, pair
from whence.explanation import Neighbour, Sample, Typicality
from whence.explanation.evidence import Reason, stability


def typicality(novel: bool) -> Typicality:
    sample = Sample(image=np.zeros((6, 5), dtype=np.float32))
    return Typicality(novel, 0.99, 0.95, 100, (Neighbour(3, "cat", 0.1, sample),))


def said(**changes: Any) -> str:
    return explanation(**changes).summary.sentence.replace("\u00a0", " ")


def test_the_evidence_for_and_against_and_how_far_to_trust_it() -> None:
    assert said() == (
        "“cat” (75.0 %), supported by training samples labelled cat and dog; contradicted by samples "
        "labelled dog, with 25.0 % of that weight; trust this explanation: the surrogate agrees with the "
        "model."
    )


def test_reasons_join_and_the_worst_of_them_decides() -> None:
    assert said(typicality=typicality(False)).endswith(
        "trust this explanation: the surrogate agrees with the model and the training set has similar "
        "samples."
    )
    assert said(typicality=typicality(True)).endswith(
        "take this explanation with care: nothing like this is in the training set, although the surrogate "
        "agrees with the model."
    )
    assert said(typicality=typicality(True), surrogate_class=2).endswith(
        "do not trust this explanation: the surrogate predicts “owl” and nothing like this is in the "
        "training set."
    )
    assert "take this explanation with care: the surrogate is not solved to convergence" in said(gap=0.1)


def test_a_contested_prediction_and_a_few_of_many_samples() -> None:
    contested = said(scores=np.array([2.0, 1.0, -0.5, -2.4]))
    assert "closely contested by samples labelled dog, with 96.7 % of that weight" in contested
    few = (pair("grey", 7, 0, 0.05, 0.0125, (1, 6, 5)),)
    assert "the samples shown hold only 1.2 % of its evidence" in said(proponents=few)


def test_without_samples_of_a_sign() -> None:
    assert "; nothing contradicts it; trust" in said(opponents=())
    assert "“cat” (75.0 %), supported by no training sample; contradicted by samples labelled dog" in said(
        proponents=()
    )


def test_of_effects_labels_and_numbers() -> None:
    assert effects().summary.claim == (
        "The logit of “cat” would be lower without training samples labelled cat and dog, and higher without "
        "training samples labelled dog"
    )
    assert effects(opponents=()).summary.claim.endswith(
        "would be lower without training samples labelled cat and dog"
    )
    verdict = explanation().verdict
    labels = explanation(label_kind="label", verdict=verdict)
    against = tuple(replace(one, differs=True) for one in labels.opponents)
    assert replace(labels, opponents=against).summary.claim.startswith(
        "“cat” (75.0\u00a0%), supported by training samples with it; contradicted by samples without it"
    )
    number = explanation(label_kind="number", verdict=verdict, class_names=("price",))
    assert number.summary.claim == (
        "“cat” is pulled up by training samples labelled 0 and 1, and down by training samples labelled 1"
    )


def test_names_of_any_length_are_short_and_on_one_line() -> None:
    sentence = said(class_names=("a\nb" * 500, "dog", "owl"))
    assert len(sentence) < 600
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("kept", "reason"), [([20, 18, 19], "yes"), ([20, 4, 3], "care"), ([14, 14], "yes"), ([], None)]
)
def test_how_stable_the_strongest_samples_are(kept: list[int], reason: str | None) -> None:
    found = stability(kept, 20)
    assert (found and found.trust) == reason
    assert found is None or isinstance(found, Reason)
