"""Explanations made up by hand, of images, texts and plain values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from whence.explanation import Contribution, EffectOf, Explanation, Sample
from whence.tasks import Verdict

TEXT = ("[CLS]", " shares", " rose", " 12", "%", " on", " <b>Friday</b>", " after", " profit", "s", "[SEP]")


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sample(kind: str, seed: int) -> tuple[Sample, tuple[int, ...]]:
    """A sample of a kind, with the shape of its maps."""
    if kind == "text":
        return Sample(tokens=TEXT[: 11 - seed % 3]), (11 - seed % 3,)
    if kind == "values":
        return Sample(values=random((7,), seed)), (7,)
    shape = {"grey": (1, 6, 5), "colour": (3, 6, 5)}[kind]
    picture = np.random.default_rng(seed).random((6, 5, 3) if kind == "colour" else (6, 5))
    return Sample(image=picture.astype(np.float32)), shape


def pair(
    kind: str,
    index: int,
    label: int,
    score: float,
    share: float,
    test: tuple[int, ...],
    coefficient: bool = True,
) -> Contribution:
    shown, shape = sample(kind, index)
    return Contribution(
        index=index,
        label=label,
        label_text=str(label),
        differs=False,
        score=score,
        share=share,
        bias=score / 8,
        coefficient=score / 4 if coefficient else None,
        sample=shown,
        test_map=random(test, index),
        train_map=random(shape, index + 1),
    )


def explanation(kind: str = "grey", **changes: Any) -> Explanation:
    """Two proponents and an opponent; logit 3, 75 % and 50 % of the evidence shown."""
    shown, shape = sample(kind, 0)
    fields: dict[str, Any] = {
        "effect": None,
        "label_kind": "class",
        "sample": shown,
        "predicted": 0,
        "probability": 0.75,
        "surrogate_class": 0,
        "truth": 1,
        "target": 0,
        "against": None,
        "relative": False,
        "class_names": ("cat", "dog", "owl"),
        "scores": np.array([2.0, 1.0, -0.5, 1.0, -0.5]),
        "logit": 3.0,
        "base": 0.0,
        "bias": 0.25,
        "proponents": (pair(kind, 7, 0, 2.0, 0.5, shape), pair(kind, 2, 1, 1.0, 0.25, shape)),
        "opponents": (pair(kind, 5, 1, -0.5, 0.5, shape),),
        "logit_map": random(shape, 9),
        "method": "epsilon_plus_flat",
        "n_train": 12345,
        "n_support": 678,
        "gap": 3e-7,
    }
    return Explanation(**_with_names(fields | changes))


def _with_names(fields: dict[str, Any]) -> dict[str, Any]:
    """Put classes into words, as their task does; other tasks say theirs."""
    if fields["label_kind"] != "class":
        return fields
    names, truth = fields["class_names"], fields["truth"]
    said = Verdict(
        names[fields["predicted"]],
        fields["probability"],
        None if truth is None else names[truth],
        None if truth is None else truth == fields["predicted"],
        names[fields["surrogate_class"]],
        fields["surrogate_class"] == fields["predicted"],
    )
    sides = {
        side: tuple(
            replace(one, label_text=names[one.label], differs=one.label != fields["target"])
            for one in fields[side]
        )
        for side in ("proponents", "opponents")
    }
    return {**fields, **sides, "verdict": said}


def effects(kind: str = "grey", **changes: Any) -> Explanation:
    """Two samples that raise the output and one that lowers it; effects sum to 3, the logit is 7."""
    shape = sample(kind, 0)[1]
    fields: dict[str, Any] = {
        "effect": EffectOf("logit"),
        "logit": 7.0,
        "proponents": (pair(kind, 7, 0, 2.0, 0.5, shape, False), pair(kind, 2, 1, 1.0, 0.25, shape, False)),
        "opponents": (pair(kind, 5, 1, -0.5, 0.5, shape, False),),
    }
    return explanation(kind, **(fields | changes))
