"""The calls of the solver, of relevance, of data and features, each with arguments that are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.fuzz import kinds, things, world
from tests.fuzz.calling import (
    FUNCTIONS,
    HEAD,
    K_ARG,
    PAIR,
    SHOWN,
    TEST_FEATURES,
    TESTS,
    Arg,
    Call,
    need,
)
from tests.fuzz.world import B, K, N
from whence import data, features, relevance, svm
from whence.core.cache import Cache
from whence.relevance.presets import PRESETS

LENGTHS = kinds.JUNK + kinds.wrong(
    number=lambda v: 2.0,
    short=lambda v: v[:-1],
    zeros=lambda v: v * 0,
    negative=lambda v: -v,
    nan=lambda v: kinds.put(v, np.nan),
    endless=lambda v: kinds.put(v, np.inf),
    nested=lambda v: v[:, None],
)
SVM = [
    Call(
        f"svm.{name}",
        function,
        {
            "features": need(kinds.matrix(columns=False), world.features),
            "labels": need(kinds.may(kinds.labels(), "beyond"), lambda: world.y().numpy()),
            "n_classes": Arg(kinds.may(kinds.count(2, none=True), "one"), lambda: K),
            "bias": Arg(kinds.FLAG, lambda: True),
            "seed": Arg(kinds.SEED, lambda: 0),
            "n_threads": Arg(kinds.count(none=True), lambda: 1, True),
            **more,
        },
    )
    for name, function, more in (
        (
            "solve",
            lambda: svm.solve,
            {
                "C": need(kinds.number(), lambda: 0.1),
                "tol": Arg(kinds.without(kinds.number(0, 1), "tiny", "large"), lambda: 1e-4),
                "max_seconds": Arg(kinds.number(none=True), lambda: 5.0),
                "callback": Arg(kinds.without(things.FUNCTION, "too_few"), lambda: None),
                "warm_start": Arg(
                    kinds.JUNK
                    + kinds.wrong(
                        other=lambda v: v.lam[:3],
                        dense=lambda v: v.lam.toarray(),
                        nan=lambda v: v.lam * np.nan,
                        complex=lambda v: v.lam * 1j,
                    )
                    + kinds.odd(lam=lambda v: v.lam, wild=lambda v: v.lam * -7),
                    lambda: svm.solve(world.features(), world.y().numpy(), C=0.05, n_threads=1),
                ),
            },
        ),
        (
            "solve_path",
            lambda: svm.solve_path,
            {
                "Cs": need(
                    kinds.JUNK
                    + kinds.NONE
                    + kinds.wrong(
                        number=lambda v: 0.1,
                        negative=lambda v: [0.1, -1],
                        nan=lambda v: [np.nan],
                        texts=lambda v: ["a"],
                        nested=lambda v: [[0.1]],
                    )
                    + kinds.odd(array=np.asarray, twice=lambda v: v + v),
                    lambda: [0.1, 0.01],
                )
            },
        ),
        (
            "choose_C",
            lambda: svm.choose_C,
            {
                "head": Arg(HEAD, world.head),
                "lengths": Arg(LENGTHS, lambda: np.ones(N)),
                "max_samples": Arg(kinds.count(), lambda: 100),
                "show_progress": SHOWN,
            },
        ),
    )
]

EXTRACTOR = need(kinds.NONE + kinds.JUNK + kinds.wrong(model=lambda v: world.network()), world.extractor)
RULES = Arg(
    kinds.without(kinds.JUNK)
    + kinds.wrong(number=lambda v: 3, several=lambda v: ["epsilon"])
    + tuple(kinds.Mutation(f"is_{name}", lambda v, name=name: name, False) for name in PRESETS.names()),
    lambda: None,
)
RULE = kinds.choice(["epsilon", "plus", "flat"])
PROBES = need(kinds.matrix(rows=False, columns=False), lambda: world.features(6))

RELEVANCE = [
    Call(
        "relevance.lrp",
        lambda: relevance.lrp,
        {
            "extractor": EXTRACTOR,
            "inputs": TESTS,
            "rules": RULES,
            "relevance": need(
                kinds.may(kinds.matrix(), "one_more_axis"), lambda: torch.as_tensor(world.features(B))
            ),
        },
    ),
    Call(
        "relevance.trace", lambda: relevance.trace, {"extractor": EXTRACTOR, "inputs": TESTS, "rules": RULES}
    ),
    Call(
        "Pass.maps",
        lambda: relevance.trace(world.extractor(), world.X(B)).maps,
        {
            "coefficients": need(
                kinds.may(kinds.matrix(), "one_more_axis"), lambda: torch.as_tensor(world.features(B))
            ),
        },
    ),
    Call("Captum", lambda: relevance.Captum, {"method": need(things.FUNCTION, lambda: torch.nn.Linear)}),
    Call(
        "Rules",
        lambda: relevance.Rules,
        {
            "linear": Arg(RULE, lambda: "epsilon"),
            "convolution": Arg(RULE, lambda: "epsilon"),
            "first": Arg(kinds.choice(["epsilon", "plus", "flat", None]), lambda: None),
            "attention": Arg(kinds.FLAG, lambda: True),
            "epsilon": Arg(kinds.number(least=True), lambda: 1e-6, True),
            "layers": Arg(
                kinds.without(kinds.JUNK) + kinds.wrong(number=lambda v: 3, list=lambda v: ["0"]),
                lambda: {"0": "flat"},
            ),
            "operations": Arg(
                kinds.without(kinds.JUNK) + kinds.wrong(number=lambda v: 3), lambda: {"relu": "gradient"}
            ),
        },
    ),
    Call(
        "Rules.with_layers",
        lambda: PRESETS.get("epsilon").with_layers,
        {
            "layers": need(
                kinds.without(kinds.JUNK)
                + kinds.NONE
                + kinds.wrong(number=lambda v: 3, list=lambda v: ["0"]),
                lambda: {"0": "flat"},
            ),
        },
    ),
    Call(
        "Concepts.of",
        lambda: relevance.Concepts.of,
        {
            "vectors": PROBES,
            "names": Arg(
                kinds.without(things.NAMES, "too_few", "tuple", "array", "strange"), lambda: list("abcdef")
            ),
        },
    ),
    Call(
        "Concepts.neurons",
        lambda: relevance.Concepts.neurons,
        {"n_features": need(kinds.without(kinds.count(), "large"), lambda: 4)},
    ),
    Call("Concepts.principal", lambda: relevance.Concepts.principal, {"features": PROBES}),
    Call(
        "Concepts.probe",
        lambda: relevance.Concepts.probe,
        {
            "positive": PROBES,
            "negative": need(kinds.matrix(rows=False), lambda: -world.features(6)),
            "name": Arg(kinds.without(kinds.JUNK, "text") + kinds.NONE, lambda: "stripes"),
            "seed": Arg(kinds.SEED, lambda: 0),
        },
    ),
    *(
        Call(
            f"Concepts.{name}",
            lambda name=name: getattr(relevance.Concepts.neurons(world.WIDTH), name),
            {
                "features": TEST_FEATURES,
                **more,
            },
        )
        for name, more in (("activations", {}), ("top_samples", {"k": K_ARG}))
    ),
    Call(
        "Concepts.scores",
        lambda: relevance.Concepts.neurons(world.WIDTH).scores,
        {
            "test": need(kinds.numbers(rows=True, columns=False), lambda: world.features(1)[0]),
            "train": need(kinds.matrix(), lambda: world.features(B)),
            "lam": need(kinds.numbers(columns=False), lambda: np.ones(B)),
        },
    ),
]


def _read(**given: Any) -> Any:
    found = data.as_training_set(**given)
    return [batch.labels for batch in found.batches()], found.take([0])


def _arrays() -> Any:
    return data.as_training_set((world.X(), world.y()))


def _loaded() -> Any:
    return data.as_training_set(list(zip(world.X(), world.y(), strict=True)))


PLACES = {"indices": need(things.INDICES, lambda: [0, 2])}
# Whether a label or an input suits, the model decides.
READ = kinds.may(
    things.DATA,
    "labels_beyond",
    "labels_million",
    "labels_huge",
    "labels_negative",
    "labels_very_negative",
    "swapped",
    *(each.name for each in things.DATA if each.name.startswith("inputs_")),
)

DATA = [
    Call(
        "data.as_training_set",
        lambda: _read,
        {
            "data": need(READ, PAIR.make),
            "batch_size": Arg(kinds.count(), lambda: 5),
            "names": Arg(kinds.without(things.NAMES, "too_few", "too_many"), lambda: ["a", "b", "c"]),
            **FUNCTIONS,
        },
        nan=True,
    ),
    *(
        Call(f"TrainingSet.{method}", lambda make=make, method=method: getattr(make(), method), args)
        for make in (_arrays, _loaded)
        for method, args in (("take", PLACES), ("read", PLACES), ("known_labels", {}))
    ),
    Call(
        "features.extract",
        lambda: features.extract,
        {
            "model": need(things.MODEL, world.network),
            "data": PAIR,
            "layer": Arg(things.LAYER, lambda: None),
            "batch_size": Arg(kinds.count(), lambda: 5),
            "dtype": Arg(kinds.choice(["float32", "float16"]), lambda: "float32"),
            "device": Arg(things.DEVICE, lambda: None),
            "autocast": Arg(kinds.choice([None, "bfloat16", "float16"]), lambda: None),
            "on_error": Arg(kinds.choice(["raise"]), lambda: "raise"),
            "show_progress": SHOWN,
        },
    ),
    Call(
        "FeatureBank.verify",
        lambda: features.extract(world.network(), PAIR.make(), show_progress=False).verify,
        {},
    ),
    Call(
        "features.as_float32",
        lambda: features.as_float32,
        {
            "features": need(
                kinds.may(kinds.matrix(), *(each.name for each in kinds.matrix())),
                lambda: world.features().astype(np.float16),
            ),
        },
        nan=True,
    ),
    Call(
        "Cache",
        lambda: lambda **given: Cache(**given).entries(),
        {
            "folder": need(
                kinds.without(things.PATH, "no_folder", "folder", "long"), lambda: world.folder() / "cache"
            ),
        },
    ),
    Call(
        "Cache.remove",
        lambda: Cache(world.folder() / "cache").remove,
        {
            "names": need(
                kinds.without(kinds.JUNK)
                + kinds.NONE
                + kinds.wrong(unknown=lambda v: ["bee"], numbers=lambda v: [3], number=lambda v: 3),
                lambda: [],
            ),
        },
    ),
]

NUMERICS = [*SVM, *RELEVANCE, *DATA]
