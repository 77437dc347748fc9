"""The calls of attributors and what belongs to them, each with arguments that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import whence
from tests.fuzz import kinds, things, world
from tests.fuzz.calling import (
    FEATURES,
    HEAD,
    K_ARG,
    PAIR,
    TARGET,
    TEST_FEATURES,
    TESTS,
    Arg,
    Call,
    need,
    ranked,
    scored,
)
from tests.fuzz.world import K, N
from whence import relevance
from whence.methods import Ensemble, get
from whence.model.inputs import n_rows
from whence.relevance.presets import PRESETS
from whence.tasks import Classes

PARAMETERS: dict[str, dict[str, Arg]] = {
    "dualda": {
        "C": Arg(kinds.may(kinds.number(), "large") + kinds.odd(auto=lambda v: "auto"), lambda: 0.1),
        "bias": Arg(kinds.FLAG, lambda: True),
        "tol": Arg(kinds.without(kinds.number(0, 1), "tiny", "large"), lambda: 1e-4),
        "seed": Arg(kinds.SEED, lambda: 0),
        "n_threads": Arg(kinds.count(none=True), lambda: 1),
        "max_seconds": Arg(kinds.number(none=True), lambda: 5.0),
        "batch_size": Arg(kinds.count(), lambda: 8),
        "device": Arg(things.DEVICE, lambda: None),
    },
    "similarity": {
        "metric": Arg(kinds.choice(["dot", "cosine", "l2"]), lambda: "dot"),
        "space": Arg(kinds.choice(["features", "input"]), lambda: "features"),
        "batch_size": Arg(kinds.count(), lambda: 8),
    },
    "graddot": {
        "params": Arg(kinds.choice(["all", "last"]), lambda: "all"),
        "projection": Arg(kinds.count(none=True) + kinds.odd(auto=lambda v: "auto"), lambda: 8),
        "loss": Arg(things.FUNCTION, lambda: None),
        "seed": Arg(kinds.SEED, lambda: 0),
        "memory": Arg(kinds.count(), lambda: 10**7),
    },
    "trak": {
        "projection": Arg(kinds.count(none=True), lambda: 8),
        "ridge": Arg(kinds.number(least=True), lambda: 1.0),
    },
    "representer": {
        "l2": Arg(kinds.number(), lambda: 1e-2),
        "targets": Arg(kinds.choice(["labels", "outputs"]), lambda: "labels"),
        "bias": Arg(kinds.FLAG, lambda: True),
        "tol": Arg(kinds.number(), lambda: 1e-6),
    },
    "hingerp": {
        "C": Arg(kinds.number(), lambda: 1e-2),
        "tol": Arg(kinds.without(kinds.number(0, 1), "tiny", "large"), lambda: 1e-6),
        "bias": Arg(kinds.FLAG, lambda: True),
        "seed": Arg(kinds.SEED, lambda: 0),
    },
    "influence": {"damping": Arg(kinds.number(), lambda: 1e-2)},
    "lissa": {
        "damping": Arg(kinds.number(), lambda: 1e-2),
        "depth": Arg(kinds.without(kinds.count(none=True), "huge", "large"), lambda: 10),
        "curvature_batch": Arg(kinds.count(), lambda: 8),
        "params": Arg(kinds.choice(["all", "last"]), lambda: "last"),
    },
    "arnoldi": {
        "dimension": Arg(kinds.count(), lambda: 5),
        "projections": Arg(kinds.count(), lambda: 4),
        "n_samples": Arg(kinds.count(none=True), lambda: 10),
        "seed": Arg(kinds.SEED, lambda: 0),
    },
    "ekfac": {
        "damping": Arg(kinds.number(none=True), lambda: None),
        "labels": Arg(kinds.choice(["auto", "exact", "sampled"]), lambda: "auto"),
        "params": Arg(kinds.choice(["all", "last"]), lambda: "all"),
    },
    "one-class": {
        "nu": Arg(kinds.number(0, 1), lambda: 0.2),
        "by": Arg(kinds.choice(["class", "whole"]), lambda: "class"),
        "tol": Arg(kinds.without(kinds.number(0, 1), "tiny", "large"), lambda: 1e-4),
        "seed": Arg(kinds.SEED, lambda: 0),
    },
    "random": {"seed": Arg(kinds.SEED, lambda: 0), "batch_size": Arg(kinds.count(), lambda: 8)},
}
PARAMETERS["effects"] = {
    **PARAMETERS["dualda"],
    "output": Arg(kinds.choice(["logit", "margin", "log_prob"]), lambda: "logit"),
}
PARAMETERS["dualda"]["normalise"] = Arg(kinds.FLAG, lambda: False)
PARAMETERS["gradcos"] = PARAMETERS["graddot"]
PARAMETERS["tracin"] = {"params": PARAMETERS["graddot"]["params"]}

RATES = kinds.may(kinds.number(least=True), "array") + kinds.wrong(
    too_many=lambda v: [1.0] * 5, negatives=lambda v: [-1.0]
)
CHECKPOINTS = (
    kinds.NONE
    + kinds.JUNK
    + kinds.wrong(
        number=lambda v: 3,
        empty=lambda v: [],
        nones=lambda v: [None],
        no_file=lambda v: ["/no/such/file.pt"],
        other=lambda v: [torch.nn.Linear(3, 2).state_dict()],
        nan=lambda v: [{name: tensor * np.nan for name, tensor in v[0].items()}],
        one=lambda v: v[0],
        texts=lambda v: [{"a": "b"}],
    )
    + kinds.odd(model=lambda v: [world.network()], several=lambda v: [*v, world.network()])
)


def _name(method: str) -> str:
    return type(world.made(method)).__name__


def _fit(method: str) -> Callable[..., Any]:
    """Make, fit and use an attributor: what is wrong with a parameter may show at any of the three."""

    def call(**given: Any) -> Any:
        known = PARAMETERS[method]
        own = {name: given.pop(name) for name in known if name in given}
        kind = get(method)
        fitted = kind(**{**world.OPTIONS.get(method, {}), "show_progress": False, **own}).fit(**given)
        return fitted, fitted.attribute(world.X(2)), fitted.self_influence()

    return call


def _fits(result: Any, args: dict[str, Any]) -> bool:
    fitted, scores, own = result
    return tuple(scores.shape) == (2, fitted.n_train_) and tuple(own.shape) == (fitted.n_train_,)


def of_method(method: str) -> list[Call]:
    """The calls that every attributor has."""
    name = _name(method)
    fit = {
        **PARAMETERS[method],
        "model": need(things.MODEL, world.network),
        "data": PAIR,
        "layer": Arg(things.LAYER, lambda: None),
        "preprocess": Arg(things.FUNCTION, lambda: None),
        "collate_fn": Arg(things.FUNCTION, lambda: None),
    }
    fit |= {
        "dtype": Arg(kinds.choice(["float32", "float16"]), lambda: "float32"),
        "autocast": Arg(kinds.choice([None, "bfloat16", "float16"]), lambda: None),
        "on_error": Arg(kinds.choice(["raise", "skip"]), lambda: "raise"),
        "num_workers": Arg(
            kinds.without(kinds.count(0), "large", "huge", "one", "numpy", "short"), lambda: 0
        ),
        "class_names": Arg(things.NAMES, lambda: ["a", "b", "c"]),
        "task": Arg(kinds.JUNK, lambda: "classes"),
        "cache_dir": Arg(
            kinds.without(things.PATH, "none", "folder", "blank", "letters"),
            lambda: world.folder() / "cache",
        ),
    }
    fit["data"] = need(kinds.may(things.DATA, "failing"), PAIR.make)
    if method == "tracin":
        fit["checkpoints"] = need(CHECKPOINTS, lambda: [world.network().state_dict()])
        fit["learning_rates"] = Arg(RATES, lambda: 1.0)
    if method == "trak":
        fit["checkpoints"] = Arg(kinds.without(CHECKPOINTS, "none"), lambda: [world.network().state_dict()])
    return [Call(f"{name}.fit", lambda: _fit(method), fit, _fits), *used(method, name)]


def used(method: str, name: str) -> list[Call]:
    """The calls of a fitted attributor."""

    def of(attribute: str) -> Callable[[], Any]:
        return lambda: getattr(world.fitted(method), attribute)

    k = Arg(kinds.count(), lambda: 3)
    out = {"path": need(things.PATH, lambda: world.folder() / f"{method}-again.whence")}
    return [
        Call(f"{name}.attribute", of("attribute"), {"x": TESTS, "target": TARGET}, scored),
        Call(f"{name}.top_k", of("top_k"), {"x": TESTS, "k": k, "target": TARGET}, ranked),
        *(of_features(method, name, of) if method != "dualda" else ()),
        Call(f"{name}.self_influence", of("self_influence"), {}, lambda r, a: tuple(r.shape) == (N,)),
        *(
            ()
            if get(method).capabilities.explains
            else [Call(f"{name}.explain", of("explain"), {"x": TESTS}, refuses=True)]
        ),
        Call(f"{name}.save", of("save"), out, refuses=method in ("tracin", "random", "ekfac")),
    ]


LOOKING_AT_INPUTS = ("graddot", "gradcos", "tracin", "trak", "ekfac", "random", "ensemble")


def of_features(method: str, name: str, of: Callable[[str], Callable[[], Any]]) -> list[Call]:
    """The calls of those that take features; others say that they look at inputs."""
    tests, k = {"features": TEST_FEATURES, "target": TARGET}, {"k": Arg(kinds.count(), lambda: 3)}
    refuses = method in LOOKING_AT_INPUTS
    return [
        Call(f"{name}.attribute", of("attribute"), tests, refuses=refuses),
        Call(f"{name}.top_k", of("top_k"), {**tests, **k}, refuses=refuses),
    ]


def _of_members() -> Ensemble:
    made = Ensemble(world.made("dualda"), show_progress=False)
    return made.fit([world.network(), world.network()], (world.X(), world.y()))


def _typicality() -> Any:
    explainer = world.fitted("dualda")
    return explainer.explain(world.X(1), usualness=explainer.usualness(k=2))[0].typicality


def _one_class(name: str) -> Callable[[], Any]:
    return lambda: getattr(world.fitted("one-class"), name)


USUALNESS = {
    "k": Arg(kinds.without(kinds.count(1, most=N - 1), "large"), lambda: 3),
    "quantile": Arg(kinds.number(0, 1), lambda: 0.9),
}


def _dualda(name: str) -> Callable[[], Any]:
    return lambda: getattr(world.fitted("dualda"), name)


def _fit_arrays(**given: Any) -> Any:
    own = {name: given.pop(name) for name in PARAMETERS["dualda"] if name in given}
    bank = whence.features.FeatureBank.of(**given)
    explainer = whence.DualDA(**{"C": 0.1, **own}, show_progress=False).fit(features=bank)
    return explainer, explainer.attribute(features=world.features(2))


METHOD = (
    kinds.without(kinds.JUNK, "kind", "function")
    + kinds.wrong(number=lambda v: 3, several=lambda v: ["epsilon"], kind=lambda v: int)
    + tuple(kinds.Mutation(f"is_{name}", lambda v, name=name: name, False) for name in PRESETS.names())
)
CONCEPTS = kinds.JUNK + kinds.wrong(
    array=lambda v: np.eye(world.WIDTH),
    other=lambda v: relevance.Concepts.neurons(world.WIDTH + 1),
    number=lambda v: 3,
)
SPARSE = Arg(kinds.FLAG, lambda: False)

EXPLAINED = {
    "x": need(things.INPUTS, lambda: world.X(2)),
    "k": K_ARG,
    "target": Arg(things.target(2), lambda: None),
    "truth": Arg(things.target(2), lambda: None),
    "method": Arg(METHOD, lambda: None),
}

DUALDA = [
    Call("register", lambda: whence.register, {"thing": need(kinds.JUNK, lambda: get("similarity"))}),
    Call(
        "FeatureBank.of",
        lambda: _fit_arrays,
        {
            **PARAMETERS["dualda"],
            "features": FEATURES,
            "labels": need(kinds.may(kinds.labels(), "beyond"), lambda: world.y().numpy()),
            "head": Arg(HEAD, world.head),
            "task": Arg(kinds.JUNK, lambda: Classes(K)),
        },
    ),
    Call("DualDA.attribute", _dualda("attribute"), {"x": TESTS, "target": TARGET, "sparse": SPARSE}, scored),
    Call(
        "DualDA.attribute",
        _dualda("attribute"),
        {"features": TEST_FEATURES, "target": TARGET, "sparse": SPARSE},
        lambda r, a: r.shape[1] == N,
    ),
    Call(
        "DualDA.top_k",
        _dualda("top_k"),
        {"features": TEST_FEATURES, "k": Arg(kinds.count(), lambda: 3), "target": TARGET},
    ),
    Call("DualDA.predict", _dualda("predict"), {"x": TESTS}),
    Call("DualDA.decision_function", _dualda("decision_function"), {"x": TESTS}),
    Call("DualDA.score", _dualda("score"), {"x": TESTS}, refuses=True),  # without labels
    Call("DualDA.predict", _dualda("predict"), {"features": TEST_FEATURES}),
    Call("DualDA.faithfulness", _dualda("faithfulness"), {"x": TESTS}),
    Call("DualDA.faithfulness", _dualda("faithfulness"), {"features": TEST_FEATURES}),
    Call(
        "DualDA.explain",
        _dualda("explain"),
        EXPLAINED,
        lambda r, a: len(r) == n_rows(a["x"]),
    ),
    Call(
        "DualDA.explain_concepts",
        _dualda("explain_concepts"),
        {
            "x": need(things.INPUTS, lambda: world.X(2)),
            "concepts": Arg(CONCEPTS, lambda: relevance.Concepts.principal(world.features())),
            "index": Arg(kinds.may(kinds.count(0, most=N - 1, none=True), "one"), lambda: None),
            "n": K_ARG,
            "k": K_ARG,
            "target": Arg(things.target(2), lambda: None),
            "method": Arg(METHOD, lambda: None),
        },
    ),
    Call("DualDA.usualness", _dualda("usualness"), {**USUALNESS, "training": FEATURES}),
    Call(
        "DualDA.stability",
        _dualda("stability"),
        {
            "features": Arg(kinds.without(kinds.matrix(), "none"), world.features),
            "halves": Arg(kinds.without(kinds.count(), "large", "huge"), lambda: 2),
        },
    ),
    Call(
        "DualDA.update",
        lambda: world.made("dualda").fit(world.network(), (world.X(), world.y())).update,
        {
            "add": Arg(kinds.may(things.DATA, "failing"), lambda: (world.X(4), world.y(4))),
            "remove": Arg(things.INDICES, lambda: [1, 2]),
            "relabel": Arg(things.RELABEL, lambda: {0: 1}),
            "features": Arg(kinds.without(kinds.matrix(), "none"), world.features),
        },
    ),
    Call(
        "DualDA.what_if",
        _dualda("what_if"),
        {
            "features": FEATURES,
            "remove": Arg(things.INDICES, lambda: [1, 2]),
            "relabel": Arg(things.RELABEL, lambda: {0: 1}),
            "C": Arg(kinds.number(none=True), lambda: 0.05),
        },
    ),
]

GROUP = {
    "target": TARGET,
    "remove": Arg(things.INDICES, lambda: [1, 2]),
    "relabel": Arg(things.RELABEL, lambda: {0: 1}),
    "training_features": Arg(kinds.without(kinds.matrix(), "none"), world.features),
}


def _effects(name: str) -> Callable[[], Any]:
    return lambda: getattr(world.fitted("effects"), name)


EFFECTS = [
    Call("Effects.predict", _effects("predict"), {"x": TESTS}),
    Call("Effects.decision_function", _effects("decision_function"), {"x": TESTS}),
    Call("Effects.score", _effects("score"), {"x": TESTS}, refuses=True),
    Call("Effects.predict", _effects("predict"), {"features": TEST_FEATURES}),
    Call("Effects.faithfulness", _effects("faithfulness"), {"x": TESTS}),
    Call("Effects.faithfulness", _effects("faithfulness"), {"features": TEST_FEATURES}),
    Call("Effects.usualness", _effects("usualness"), USUALNESS),
    Call("Ensemble.explain", lambda: _of_members().explain, {"x": TESTS, "k": K_ARG}),
    Call("Typicality.to_dict", lambda: _typicality().to_dict, {}),
    Call("OneClass.typicality", _one_class("typicality"), {"x": TESTS, "target": TARGET}),
    Call("OneClass.typicality", _one_class("typicality"), {"features": TEST_FEATURES}),
    Call("Effects.explain", _effects("explain"), EXPLAINED, lambda r, a: len(r) == n_rows(a["x"])),
    Call("Effects.effect_of", _effects("effect_of"), {"x": TESTS, **GROUP}),
    Call("Effects.effect_of", _effects("effect_of"), {"features": TEST_FEATURES, **GROUP}),
    Call("Effects.first_order", _effects("first_order"), {"features": TEST_FEATURES, **GROUP}),
]

BANK = need(
    kinds.JUNK
    + kinds.wrong(
        array=lambda v: world.features(),
        without_model=lambda v: whence.features.FeatureBank.of(
            world.features(), world.y(), head=world.head()
        ),
    ),
    lambda: whence.features.extract(world.network(), (world.X(), world.y()), show_progress=False),
)

COLLECTED = [
    Call(
        f"{get(method).__name__}.collect",
        lambda method=method: world.made(method).collect,
        {"features": BANK},
        lambda r, a: len(r.collected.rows) == N,
    )
    for method in ("graddot", "gradcos", "trak")
]

LOADED = [
    Call(
        "load",
        lambda: whence.load,
        {
            "path": need(things.PATH, lambda: world.saved("dualda")),
            "model": need(kinds.without(things.MODEL, "None"), world.network),
            "data": Arg(kinds.may(things.DATA, *(each.name for each in things.DATA)), PAIR.make),
            "preprocess": Arg(
                kinds.may(things.FUNCTION, *(each.name for each in things.FUNCTION)), lambda: None
            ),
        },
    ),
    Call("methods.get", lambda: get, {"name": need(kinds.choice(["dualda", "trak"]), lambda: "dualda")}),
    Call("methods.names", lambda: whence.methods.names, {}),
    Call(
        "Ensemble.fit",
        lambda: lambda members, **rest: Ensemble(members).fit(**rest).attribute(world.X(2)),
        {
            "members": need(
                kinds.without(kinds.JUNK)
                + kinds.wrong(
                    nones=lambda v: [None, None],
                    many=lambda v: [v(), v(), v()],
                    number=lambda v: 3,
                    empty=lambda v: [],
                )
                + kinds.odd(list=lambda v: [v(), v()], failing=lambda v: things.failing),
                lambda: lambda: world.made("graddot"),
            ),
            "model": need(
                kinds.without(things.MODEL, "one output")
                + kinds.wrong(
                    empty=lambda v: [],
                    other=lambda v: [world.network(), torch.nn.Linear(4, 5)],
                    number=lambda v: 3,
                ),
                lambda: [world.network(), world.network()],
            ),
            "data": PAIR,
        },
    ),
    *used("ensemble", "Ensemble"),
    Call("Ensemble.spread", lambda: world.fitted("ensemble").spread, {"x": TESTS, "target": TARGET}, scored),
]

ATTRIBUTORS = [
    *(call for method in world.METHODS for call in of_method(method)),
    *DUALDA,
    *EFFECTS,
    *COLLECTED,
    *LOADED,
]
