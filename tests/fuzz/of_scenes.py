"""The calls of data sets, trainings and flips of an evaluation, each with arguments that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

import whence_studies as studies
from tests.fuzz import kinds, things, world
from tests.fuzz.calling import FUNCTIONS, K_ARG, SEED, SHOWN, TARGET, TESTS, Arg, Call, need
from tests.fuzz.of_audits import EXPLAINER, PART

ON_IMAGES = EXPLAINER._replace(make=world.fitted_on_images)
WITH_LABELS = ("labels_beyond", "labels_million", "labels_huge")
VIEWED = kinds.may(
    things.DATA,
    "failing",
    "lying",
    "swapped",
    *WITH_LABELS,
    *(each.name for each in things.DATA if each.name.startswith("inputs_")),
)
TEXTS = tuple(
    each
    for each in VIEWED
    if each.name.startswith("labels_")
    or each in (*kinds.NONE, *kinds.JUNK)
    or each.name in ("three", "swapped", "nones")
)
VIEW = need(VIEWED, lambda: (world.X(), world.y()))
IMAGES = need(VIEWED, lambda: (world.images(), world.y(8)))
VALUE = Arg(kinds.number(-np.inf), lambda: 1.0)


def train(dataset: Any, seed: int) -> nn.Module:
    """A training, as ``retrain`` wants it."""
    return world.network()


def _steps(**given: Any) -> Any:
    return list(studies.fixed_steps(**given))


def _marked(kind: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **given: kind(**given)(world.images(1)[0], np.random.default_rng(0))


VIEWS = [
    Call("studies.view", lambda: studies.view, {"data": VIEW, "show_progress": SHOWN}),
    Call(
        "studies.subset",
        lambda: studies.subset,
        {"data": VIEW, "indices": need(things.INDICES + kinds.NONE, lambda: [0, 2])},
    ),
    Call(
        "studies.flip_labels",
        lambda: studies.flip_labels,
        {
            "data": VIEW,
            "share": PART._replace(needed=True),
            "seed": SEED,
            "confusion": Arg(kinds.without(kinds.matrix(), "none"), lambda: np.eye(3) + 0.1),
        },
    ),
    Call(
        "studies.group_labels",
        lambda: studies.group_labels,
        {
            "data": VIEW,
            "groups": need(kinds.labels(None, rows=False), lambda: np.array([0, 1, 0])),
        },
    ),
    Call(
        "studies.add_shortcut",
        lambda: lambda **given: studies.add_shortcut(**given)[0],
        {
            "data": IMAGES,
            "share": PART,
            "seed": SEED,
            "shortcut": need(things.FUNCTION + kinds.NONE, studies.Frame),
            "of_class": Arg(kinds.may(kinds.count(0, most=2, none=True), "one"), lambda: None),
        },
    ),
    Call(
        "studies.add_keywords",
        lambda: studies.add_keywords,
        {
            "data": need(TEXTS, world.texts),
            "share": PART._replace(needed=True),
            "seed": SEED,
            "pattern": Arg(
                kinds.without(kinds.JUNK, "text")
                + kinds.NONE
                + kinds.wrong(broken=lambda v: "{", named=lambda v: "{a}"),
                lambda: "<{}>",
            ),
        },
    ),
    Call(
        "Frame",
        lambda: _marked(studies.Frame),
        {"width": Arg(kinds.count(most=2), lambda: 1), "value": VALUE},
    ),
    Call(
        "CentreBox",
        lambda: _marked(studies.CentreBox),
        {"size": Arg(kinds.count(most=5), lambda: 2), "value": VALUE},
    ),
    Call(
        "BoxAndFrame",
        lambda: _marked(studies.BoxAndFrame),
        {
            "size": Arg(kinds.count(most=5), lambda: 2),
            "width": Arg(kinds.count(most=2), lambda: 1),
            "value": VALUE,
        },
    ),
    Call(
        "Word",
        lambda: lambda **given: studies.Word(**given)("a text", np.random.default_rng(0)),
        {
            "word": need(
                kinds.without(kinds.JUNK, "text") + kinds.NONE + kinds.odd(blank=lambda v: ""), lambda: "<a>"
            ),
        },
    ),
    Call(
        "studies.fixed_steps",
        lambda: _steps,
        {
            "data": VIEW,
            "steps": need(kinds.without(kinds.count(), "large", "huge"), lambda: 2),
            "batch_size": need(kinds.without(kinds.count(), "huge"), lambda: 4),
            "seed": SEED,
            **FUNCTIONS,
        },
    ),
    Call(
        "studies.predict",
        lambda: studies.predict,
        {
            "model": need(
                kinds.may(
                    things.MODEL,
                    "one output",
                    "lazy",
                    "scripted",
                    "quantised",
                    "no linear",
                    "three dimensions",
                ),
                world.network,
            ),
            "data": need(
                kinds.may(things.DATA, *(f"labels_{each.name}" for each in kinds.labels())), VIEW.make
            ),
            "batch_size": Arg(kinds.count(), lambda: 5),
            **FUNCTIONS,
        },
    ),
    Call(
        "studies.measure",
        lambda: studies.measure,
        {
            "fit": need(things.FUNCTION + kinds.NONE, lambda: lambda: world.fitted("dualda")),
            "x": TESTS,
            "target": TARGET,
        },
    ),
    Call(
        "studies.retrain",
        lambda: studies.retrain,
        {
            "train_fn": need(things.FUNCTION + kinds.NONE, lambda: train),
            "jobs": need(
                kinds.without(kinds.JUNK)
                + kinds.NONE
                + kinds.wrong(
                    empty=lambda v: [],
                    numbers=lambda v: [3],
                    no_seed=lambda v: [(v[0][0],)],
                    text_seed=lambda v: [(v[0][0], "a")],
                    negative_seed=lambda v: [(v[0][0], -1)],
                    no_data=lambda v: [(None, 0)],
                ),
                lambda: [((world.X(), world.y()), 0)],
            ),
            "model": need(
                kinds.without(
                    things.MODEL,
                    *(
                        name
                        for name in world.wrong_models()
                        if name not in ("None", "text", "function", "class")
                    ),
                ),
                world.network,
            ),
            "cache_dir": need(
                kinds.without(things.PATH, "no_folder", "folder", "blank", "letters"),
                lambda: world.folder() / "models",
            ),
            "config": Arg(
                kinds.without(kinds.JUNK, "mapping")
                + kinds.wrong(set=lambda v: {"a": {1}}, nan=lambda v: {"a": np.nan}),
                lambda: {"a": 1},
            ),
            "engine": Arg(kinds.choice([None, "local"]), lambda: "local"),
            "threads": Arg(kinds.without(kinds.count(none=True), "large", "huge"), lambda: 1),
            "show_progress": SHOWN,
        },
    ),
    Call(
        "Run.model",
        lambda: (
            studies.retrain(
                train,
                [((world.X(), world.y()), 0)],
                world.network(),
                world.folder() / "models",
                show_progress=False,
            )[0].model
        ),
        {},
    ),
]

FLIP = {
    "side": Arg(kinds.choice(["test", "train"]), lambda: "test"),
    "steps": need(kinds.without(kinds.count(), "large", "huge"), lambda: 3),
    "patch": Arg(kinds.count(), lambda: 2),
    "baseline": Arg(
        kinds.without(kinds.JUNK)
        + kinds.NONE
        + kinds.wrong(
            nan=lambda v: np.nan,
            other=lambda v: np.zeros((2, 7)),
            complex=lambda v: 1j,
            texts=lambda v: ["a"],
        )
        + kinds.odd(
            number=lambda v: 0.5,
            blur=lambda v: "blur",
            array=lambda v: np.zeros((1, 6, 6)),
            truth=lambda v: True,
        ),
        lambda: "mean",
    ),
    "keep": Arg(kinds.without(kinds.JUNK) + kinds.wrong(number=lambda v: 3), lambda: ()),
    "n_random": Arg(kinds.without(kinds.count(), "large", "huge"), lambda: 2),
    "seed": SEED,
}
METHODS = Arg(
    kinds.without(kinds.JUNK)
    + kinds.wrong(empty=lambda v: {}, list=lambda v: ["epsilon"], unknown=lambda v: {"a": "bee"}),
    lambda: {"XDA": None, "random": "random"},
)
PAIRS = {
    "explainer": ON_IMAGES,
    "x": need(kinds.without(things.INPUTS, "list", "lists", "one"), lambda: world.images(2)),
    "k": K_ARG,
    "target": Arg(things.target(2), lambda: None),
    "methods": METHODS,
}
FLIPPING = [
    Call("studies.explain_pairs", lambda: studies.explain_pairs, PAIRS),
    Call("studies.pair_flipping", lambda: studies.pair_flipping, {**PAIRS, **FLIP}),
    Call(
        "ExplainedPairs.flip",
        lambda: studies.explain_pairs(world.fitted_on_images(), world.images(1)).flip,
        FLIP,
    ),
    Call(
        "FlippingResult.to_dict",
        lambda: studies.pair_flipping(world.fitted_on_images(), world.images(1), steps=2, n_random=1).to_dict,
        {},
    ),
]

# Views and batches hold the user's own inputs, whatever they are.
HOLDING = [call if call.name == "studies.predict" else call._replace(nan=True) for call in VIEWS]
SCENES = [*HOLDING, *FLIPPING]
