"""The summary of an explanation: a claim, and checks with their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.helpers.explained import effects, explanation
from whence.explanation import Explanation, Neighbour, Sample, Typicality
from whence.explanation.evidence import stability


def typicality(novel: bool, **changes: Any) -> Typicality:
    sample = Sample(image=np.zeros((6, 5), dtype=np.float32))
    near = (Neighbour(3, "cat", 0.1, sample),)
    return replace(Typicality(novel, 0.996 if novel else 0.25, 0.99, 100, near), **changes)


def lines(why: Explanation) -> list[str]:
    return why.summary.text.replace("\u00a0", " ").split("\n")


def claim(**changes: Any) -> str:
    return lines(explanation(**changes))[0]


def test_the_evidence_and_both_checks() -> None:
    assert lines(explanation(margin=1.25, runner_up=1, typicality=typicality(False))) == [
        "“cat” (75.0 %), supported by training samples labelled cat and dog; most evidence against it is "
        "from samples labelled dog.",
        "✓ The surrogate predicts “cat” too, its logit 1.25 above “dog”.",
        "✓ The input resembles the training data: nearer to it than 75.0 % of 100 training samples, by "
        "features alone.",
    ]


def test_a_check_that_fails_says_so_and_one_that_was_not_made_too() -> None:
    spaces = ("features", "values", "direction", "statistics")
    novel = typicality(True, spaces=spaces, furthest="statistics")
    assert lines(explanation(margin=0.5, runner_up=1, surrogate_class=2, typicality=novel, gap=0.1))[1:] == [
        "⚠ The surrogate predicts “owl”, its logit 0.5 above “dog”; the model predicts “cat”, with "
        "probability 75.0 %. The evidence shown does not lead to the model’s prediction.",
        "⚠ The input is unlike the training data: further from it than 99.6 % of 100 training samples, "
        "most by its brightness, contrast and roughness.",
        "⚠ The surrogate is not solved to convergence: its duality gap is 1.0e-01.",
    ]
    assert lines(explanation())[2] == "– Whether the input resembles the training data is not measured."
    assert [check.passed for check in explanation().summary.checks] == [True, None]


def test_a_contested_prediction() -> None:
    about = "“cat” (75.0 %), closely contested by “owl”, supported by training samples"
    assert claim(margin=0.4, runner_up=2).startswith(about)
    assert "contested" not in claim(margin=0.6, runner_up=2)
    assert "contested" not in claim(margin=0.4, runner_up=2, surrogate_class=1)


def test_without_samples_of_a_sign() -> None:
    assert claim(opponents=()).endswith(
        "supported by training samples labelled cat and dog; nothing contradicts it."
    )
    assert claim(proponents=(), scores=np.array([-0.5])) == (
        "“cat” (75.0 %), supported by no training sample; most evidence against it is from samples labelled "
        "dog."
    )


def test_of_effects_labels_and_numbers() -> None:
    assert effects().summary.claim == (
        "The logit of “cat” would be lower without training samples labelled cat and dog, and higher without "
        "training samples labelled dog."
    )
    assert effects(opponents=()).summary.claim.endswith(
        "would be lower without training samples labelled cat and dog."
    )
    verdict = explanation().verdict
    labels = explanation(label_kind="label", verdict=verdict)
    against = tuple(replace(one, differs=True) for one in labels.opponents)
    assert replace(labels, opponents=against).summary.claim.startswith(
        "“cat” (75.0\u00a0%), supported by training samples with it; most evidence against it is from "
        "samples without it"
    )
    number = explanation(label_kind="number", verdict=verdict, class_names=("price",))
    assert number.summary.claim == (
        "“cat” is pulled up by training samples labelled 0 and 1, and down by training samples labelled 1."
    )


def test_names_of_any_length_are_short_and_on_one_line() -> None:
    text = explanation(class_names=("a\nb" * 500, "dog", "owl")).summary.text
    assert max(map(len, text.split("\n"))) < 600
    assert text.count("\n") == 2


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ([20, 18, 19], "stable: on average in the top 3 of 19.0 of 20"),
        ([14, 14], "stable: on average in the top 3 of 14.0 of 20"),
        ([20, 4, 3], "partly stable: on average in the top 3 of 9.0 of 20"),
        ([7, 5, 5], "unstable: on average in the top 3 of 5.7 of 20"),
    ],
)
def test_the_sentence_on_stability_has_the_mean_of_the_numbers(kept: list[int], words: str) -> None:
    found = stability(kept, 20, 3)
    assert found is not None
    assert f"strongest samples are {words} halves of the training set." in found.words
    assert f"{np.mean(kept):.1f} of 20" in found.words
    assert found.passed is bool(np.mean(kept) >= 6)
    assert stability([], 20, 3) is None
