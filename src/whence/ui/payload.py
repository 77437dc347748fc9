"""Explanations as the explorer's page takes them: plain types, pictures as PNG, maps as bytes."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import interpolate

from whence.explanation import ConceptExplanation, Explanation, Sample
from whence.pages.png import data_uri
from whence.pages.samples import Array
from whence.pages.style import drawn, scale

Json = dict[str, Any]

_POINTS = 60  # of a curve: more than that no eye can tell apart
_SMALL = 96  # pixels a side, and tokens, of samples in lists


def sample(shown: Sample) -> Json:
    """A sample: a picture, tokens, or values."""
    if shown.image is not None:
        height, width = shown.image.shape[:2]
        return {"kind": "image", "src": data_uri(shown.image), "width": width, "height": height}
    if shown.tokens is not None:
        return {"kind": "text", "tokens": list(shown.tokens)}
    assert shown.values is not None
    return {"kind": "values", "values": _rounded(shown.values)}


def small(shown: Sample) -> Json:
    """A sample for a list: a picture of at most 96 pixels a side, or the beginning of a text."""
    if shown.tokens is not None:
        return {"kind": "text", "tokens": list(shown.tokens[:_SMALL])}
    if shown.image is None or max(shown.image.shape[:2]) <= _SMALL:
        return sample(shown)
    height, width = shown.image.shape[:2]
    ratio = _SMALL / max(height, width)
    size = max(1, round(height * ratio)), max(1, round(width * ratio))
    planes = torch.from_numpy(np.ascontiguousarray(shown.image)).reshape(1, height, width, -1)
    less = interpolate(planes.permute(0, 3, 1, 2), size, mode="area")[0].permute(1, 2, 0).numpy()
    return sample(Sample(image=less.reshape(*size, *shown.image.shape[2:])))


def relevance(shown: Sample, found: Array) -> Json:
    """A map: of a picture a signed byte a pixel, 127 standing for ``most``; of others the values."""
    flat = drawn(shown, found)
    if shown.image is None:
        return {"values": _rounded(flat)}
    most = float(np.abs(flat).max(initial=0)) or 1.0
    steps = np.round(flat / most * 127).astype(np.int8)
    height, width = flat.shape
    return {
        "width": width,
        "height": height,
        "most": most,
        "data": base64.b64encode(steps.tobytes()).decode("ascii"),
    }


def explanation(why: Explanation, scores: npt.NDArray[np.floating[Any]]) -> Json:
    """Everything that the page shows of one prediction.

    Parameters
    ----------
    why
        The explanation.
    scores : (train,) or the nonzero ones
        All scores of the target, for the curves.
    """
    pairs = [
        {
            "index": pair.index,
            "label": pair.label,
            "score": pair.score,
            "share": pair.share,
            "coefficient": pair.coefficient,
            "sample": sample(pair.sample),
            "test_map": relevance(why.sample, pair.test_map),
            "train_map": relevance(pair.sample, pair.train_map),
        }
        for pair in why.pairs
    ]
    return {
        "sample": sample(why.sample),
        "logit_map": relevance(why.sample, why.logit_map),
        "full": {
            "logit": scale([drawn(why.sample, why.logit_map)]),
            "test": scale([drawn(why.sample, pair.test_map) for pair in why.pairs]),
            "train": scale([drawn(pair.sample, pair.train_map) for pair in why.pairs]),
        },
        "pairs": pairs,
        "predicted": why.predicted,
        "probability": why.probability,
        "surrogate_class": why.surrogate_class,
        "truth": why.truth,
        "target": why.target,
        "logit": why.logit,
        "bias": why.bias,
        "evidence_for": why.evidence_for,
        "evidence_against": why.evidence_against,
        "share_for": why.share_for,
        "share_against": why.share_against,
        "sums": why.sums,
        "method": why.method,
        "n_train": why.n_train,
        "n_support": why.n_support,
        "gap": why.gap,
        **curves(scores),
    }


def curves(scores: npt.NDArray[np.floating[Any]]) -> Json:
    """The waterfall and the sparsity curve of scores, each at a few points.

    ``waterfall`` is the running sum over samples from the strongest to the weakest, whatever their sign,
    which ends at the logit; ``sparsity`` the share of all absolute scores that the strongest n samples hold.
    """
    values = np.asarray(scores, dtype=np.float64)
    values = values[values != 0]
    order = np.argsort(-np.abs(values), kind="stable")
    running = np.concatenate([[0.0], np.cumsum(values[order])])
    held = np.concatenate([[0.0], np.cumsum(np.abs(values[order]))])
    n = len(values)
    counts = np.unique(np.round(np.geomspace(1, n, _POINTS)).astype(int)) if n else np.array([], dtype=int)
    counts = np.concatenate([[0], counts])
    total = held[-1] or 1.0
    return {
        "waterfall": [[int(c), float(running[c])] for c in counts],
        "sparsity": [[int(c), float(held[c] / total)] for c in counts],
    }


def concepts(why: ConceptExplanation) -> Json:
    """The concept strip of one pair."""
    train = scale([drawn(why.train, part.train_map) for part in why.parts])
    test = scale([drawn(why.test, part.test_map) for part in why.parts])
    return {
        "index": why.index,
        "score": why.score,
        "bias": why.bias,
        "is_basis": why.is_basis,
        "full": {"train": train, "test": test},
        "train": sample(why.train),
        "test": sample(why.test),
        "parts": [
            {
                "name": part.name,
                "score": part.score,
                "test_activation": part.test_activation,
                "train_activation": part.train_activation,
                "test_map": relevance(why.test, part.test_map),
                "train_map": relevance(why.train, part.train_map),
                "indices": list(part.indices),
                "samples": [small(shown) for shown in part.samples],
            }
            for part in why.parts
        ],
    }


def _rounded(values: Array) -> list[float]:
    return [float(f"{value:.5g}") for value in values.ravel().tolist()]
