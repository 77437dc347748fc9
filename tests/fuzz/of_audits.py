"""The calls of audits and explanations, each with arguments that are right."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import whence
from tests.fuzz import kinds, things, world
from tests.fuzz.calling import K_ARG, TARGET, TESTS, Arg, Call, need
from tests.fuzz.world import B, N
from whence import audit

EXPLAINER = need(
    kinds.NONE
    + kinds.JUNK
    + kinds.wrong(
        other=lambda v: world.fitted("graddot"),
        unfitted=lambda v: whence.DualDA(),
        model=lambda v: world.network(),
    ),
    lambda: world.fitted("dualda"),
)
IDS = Arg(
    kinds.without(kinds.JUNK)
    + kinds.wrong(too_few=lambda v: v[:-1], too_many=lambda v: [*v, "z"], number=lambda v: 3)
    + kinds.odd(numbers=lambda v: list(range(N)), array=lambda v: np.arange(N)),
    lambda: [f"sample {i}" for i in range(N)],
)
TRAINING = Arg(kinds.without(kinds.matrix(), "none"), world.features)
PART = Arg(kinds.number(0, 1, most=True), lambda: 0.5)


@functools.cache
def wrong_labels() -> Any:
    return audit.wrong_labels(world.fitted("dualda"), features=world.features())


@functools.cache
def novel() -> Any:
    return audit.novel_inputs(world.fitted("dualda"), world.X(2), training=world.features())


@functools.cache
def kept() -> Any:
    return audit.coreset(world.fitted("dualda"), features=world.features(B))


@functools.cache
def worth() -> Any:
    return audit.values(world.fitted("effects"), world.X(B), world.y(B))


@functools.cache
def why() -> Any:
    return world.fitted_on_images().explain(world.images(2), 1)


@functools.cache
def concepts() -> Any:
    return world.fitted_on_images().explain_concepts(world.images(1), n=1, k=1)[0]


def _file(name: str) -> Arg:
    return need(things.PATH, lambda: world.folder() / name)


AUDIT = [
    Call(
        "audit.novel_inputs",
        lambda: audit.novel_inputs,
        {
            "explainer": EXPLAINER,
            "x": need(things.INPUTS, lambda: world.X(2)),
            "training": TRAINING,
            "k": Arg(kinds.count(most=N - 1), lambda: 3),
            "quantile": PART,
        },
    ),
    Call("NovelInputs.to_dict", lambda: novel().to_dict, {}),
    Call("audit.class_view", lambda: audit.class_view, {"explainer": EXPLAINER, "k": K_ARG}),
    Call(
        "audit.coreset",
        lambda: audit.coreset,
        {
            "explainer": EXPLAINER,
            "x": need(things.INPUTS, lambda: world.X(B)),
            "share": PART,
            "target": TARGET,
            "ids": IDS,
        },
    ),
    Call(
        "audit.group_attribution",
        lambda: audit.group_attribution,
        {
            "explainer": EXPLAINER,
            "x": TESTS,
            "target": TARGET,
        },
        lambda r, a: r.mean.shape == (N,),
    ),
    Call(
        "audit.group_attribution",
        lambda: audit.group_attribution,
        {
            "explainer": EXPLAINER,
            "features": need(kinds.matrix(rows=False), lambda: world.features(B)),
            "target": TARGET,
        },
        lambda r, a: r.mean.shape == (N,),
    ),
    Call(
        "audit.shared_evidence",
        lambda: audit.shared_evidence,
        {
            "explainer": EXPLAINER,
            "x": Arg(kinds.without(things.INPUTS, "none"), lambda: world.X(B)),
            "target": need(things.target(whole=True), lambda: 1),
            "features": TRAINING,
            "C": Arg(kinds.number(none=True), lambda: 0.01),
            "k": K_ARG,
            "n_directions": K_ARG,
        },
    ),
    Call(
        "audit.values",
        lambda: audit.values,
        {
            "explainer": need(
                kinds.NONE + kinds.JUNK + kinds.wrong(other=lambda v: world.fitted("dualda")),
                lambda: world.fitted("effects"),
            ),
            "x": TESTS,
            "y": need(kinds.labels(), lambda: world.y(B).numpy()),
            "ids": IDS,
        },
        lambda r, a: r.values.shape == (N,),
    ),
    Call(
        "audit.wrong_labels",
        lambda: audit.wrong_labels,
        {
            "explainer": EXPLAINER,
            "ranking": Arg(kinds.choice([*audit.RANKINGS]), lambda: "slack"),
            "features": TRAINING,
            "n": Arg(kinds.count(none=True), lambda: 4),
            "k": K_ARG,
            "ids": IDS,
        },
    ),
    Call(
        "GroupAttribution.top",
        lambda: audit.group_attribution(world.fitted("dualda"), world.X(2)).top,
        {"k": K_ARG},
    ),
    *(
        Call(f"{kind}.{name}", lambda make=make, name=name: getattr(make(), name), args)
        for kind, make in (("WrongLabels", wrong_labels), ("Coreset", kept), ("Values", worth))
        for name, args in (
            ("columns", {}),
            ("to_dict", {}),
            ("to_csv", {"path": _file("a.csv")}),
            ("to_parquet", {"path": _file("a.parquet")}),
        )
    ),
    Call("ClassView.to_dict", lambda: audit.class_view(world.fitted("dualda")).to_dict, {}),
    Call(
        "SharedEvidence.to_dict", lambda: audit.shared_evidence(world.fitted("dualda"), target=0).to_dict, {}
    ),
]

EXPLANATION = [
    Call(
        "Explanations.plot",
        lambda: why().plot,
        {"test": Arg(kinds.may(kinds.count(0, most=1), "below"), lambda: 0)},
    ),
    Call("Explanations.to_dict", lambda: why().to_dict, {}),
    Call(
        "Explanations.to_html",
        lambda: why().to_html,
        {
            "path": Arg(kinds.without(things.PATH, "none"), lambda: world.folder() / "why.html"),
        },
    ),
    Call("Explanation.plot", lambda: why()[0].plot, {}),
    Call("Explanation.to_dict", lambda: why()[0].to_dict, {}),
    Call("ConceptExplanation.plot", lambda: concepts().plot, {}),
    Call("ConceptExplanation.to_dict", lambda: concepts().to_dict, {}),
]

AUDITS = [*AUDIT, *EXPLANATION]
