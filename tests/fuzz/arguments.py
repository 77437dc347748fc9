"""The arguments of public calls that no signature gives, by parameter or by call and parameter.

The key of a rule is ``call.parameter``, ``*.method.parameter``, ``owner.*.parameter`` or ``parameter``; the
first of these that exists decides. A rule of ``None`` leaves the parameter out. What has no rule follows from
its annotation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import whence
import whence_studies as studies
from tests.fuzz import kinds, things, world
from tests.fuzz.kinds import JUNK, NONE, Kind, may, odd, without, wrong
from tests.fuzz.world import B, K, N
from tests.helpers import writers
from whence import relevance, svm
from whence.data import Corpus
from whence.methods import get
from whence.relevance.presets import PRESETS
from whence.tasks import Classes


class Arg(NamedTuple):
    """An argument: what can be wrong with it, how a right one is made, and whether it must be there."""

    kind: Kind
    make: Callable[[], Any]
    needed: bool = False


def need(kind: Kind, make: Callable[[], Any]) -> Arg:
    """An argument that must be there."""
    return Arg(kind, make, True)


def linear(inputs: Any, n_classes: int) -> nn.Module:
    """A network, as protocols want it."""
    return nn.Linear(inputs.shape[1], n_classes)


def train(dataset: Any, seed: int) -> nn.Module:
    """A training, as ``retrain`` wants it."""
    return world.network()


def one_of(names: Any) -> Kind:
    """Any of the registered names."""
    return tuple(kinds.Mutation(f"is_{name}", lambda v, name=name: name, False) for name in names)


@functools.cache
def corpus() -> Corpus:
    return Corpus(writers.TEXTS, writers.tokenizer())


def _names_of(kind: Kind, start: str = "") -> tuple[str, ...]:
    return tuple(each.name for each in kind if each.name.startswith(start))


TOLERANCE = without(kinds.number(0, 1), "tiny", "large")
FEW = without(kinds.count(), "large", "huge")
FEW_OR_NONE = without(kinds.count(none=True), "large", "huge")
TESTS = need(may(things.INPUTS, "no_batch"), lambda: world.X(B))
TWO_TARGETS = Arg(things.target(2), lambda: None)
ROWS = need(may(kinds.matrix(rows=False), "one_row"), lambda: world.features(B))
TRAINING = Arg(without(kinds.matrix(), "none"), world.features)
PART = Arg(kinds.number(0, 1, most=True), lambda: 0.5)
NEEDED_PART = PART._replace(needed=True)
INNER = without(kinds.number(0, 1), "tiny")
HEAD = (
    JUNK
    + wrong(
        weight_alone=lambda v: v[0],
        three=lambda v: (*v, v[1]),
        swapped=lambda v: (v[1], v[0]),
        narrow=lambda v: (v[0][:, :-1], v[1]),
        other_classes=lambda v: (v[0], v[1][:-1]),
        nan=lambda v: (v[0] * np.nan, v[1]),
        complex=lambda v: (v[0] + 0j, v[1]),
        texts=lambda v: (v[0].astype(str), v[1]),
        empty=lambda v: (),
    )
    + odd(no_bias=lambda v: (v[0], None), tensors=lambda v: tuple(map(torch.as_tensor, v)))
)
LABELS = need(may(kinds.labels(), "beyond"), lambda: world.y().numpy())
CHECKPOINTS = (
    NONE
    + JUNK
    + wrong(
        number=lambda v: 3,
        empty=lambda v: [],
        nones=lambda v: [None],
        no_file=lambda v: ["/no/such/file.pt"],
        other=lambda v: [nn.Linear(3, 2).state_dict()],
        nan=lambda v: [{name: tensor * np.nan for name, tensor in v[0].items()}],
        one=lambda v: v[0],
        texts=lambda v: [{"a": "b"}],
    )
    + odd(model=lambda v: [world.network()], several=lambda v: [*v, world.network()])
)
RULE = kinds.choice(["epsilon", "plus", "flat"])
LAYER_RULES = without(JUNK) + wrong(number=lambda v: 3, list=lambda v: ["0"])
PROBES = need(kinds.matrix(rows=False, columns=False), lambda: world.features(6))
MAPS = need(may(kinds.matrix(), "one_more_axis"), lambda: torch.as_tensor(world.features(B)))
MAKES = need(things.FUNCTION + NONE, lambda: linear)
WHERE = Arg(kinds.choice([None, "local"]), lambda: "local")
WORK = may(JUNK, "text", "mapping", "octets") + NONE + wrong(number=lambda v: 3)
VIEWED = may(
    things.DATA,
    "failing",
    "lying",
    "swapped",
    "labels_beyond",
    "labels_million",
    "labels_huge",
    *_names_of(things.DATA, "inputs_"),
)
TEXTS = tuple(
    each
    for each in VIEWED
    if each.name.startswith("labels_") or each in (*NONE, *JUNK) or each.name in ("three", "swapped", "nones")
)
IMAGES = need(VIEWED, lambda: (world.images(), world.y(8)))
DOCUMENTS = (
    without(JUNK, "text")
    + wrong(text=lambda v: "the cat", nothing=lambda v: [], numbers=lambda v: [1, 2], nones=lambda v: [None])
    + odd(tuple=tuple, named=lambda v: [{"text": one} for one in v], generator=lambda v: (one for one in v))
)
DOCUMENT = need(kinds.count(0, most=len(writers.TEXTS) - 1), lambda: 1)
PLACES = need(without(things.INDICES, "empty") + NONE, lambda: [2])
PROMPT = without(JUNK, "text") + wrong(number=lambda v: 3, texts=lambda v: ["the"])
WORD = without(JUNK, "text") + NONE
SCORES = need(kinds.matrix(rows=False, columns=False), world.scores)
FITTING = need(kinds.matrix(rows=True, columns=True), world.scores)
TRAIN_LABELS = need(kinds.labels(None, negative=False), lambda: world.y().numpy())
TEST_LABELS = need(kinds.labels(None, negative=False), lambda: np.array([0, 1, 2, 0]))
OUTPUTS = need(
    without(kinds.numbers(rows=False), "one_more_axis"),
    lambda: np.random.default_rng(2).standard_normal((2, 5, B)),
)
IMAGE_TESTS = need(without(may(things.INPUTS, "no_batch"), "list", "lists", "one"), lambda: world.images(2))
NO_EXPLAINER = NONE + JUNK + wrong(unfitted=lambda v: whence.DualDA(), model=lambda v: world.network())
OTHER = wrong(other=lambda v: world.fitted("graddot"))

RULES: dict[str, Arg | None] = {
    # everywhere
    "x": TESTS,
    "target": Arg(things.target(), lambda: None),
    "truth": Arg(things.target(), lambda: None),
    "features": ROWS,
    "show_progress": Arg(kinds.FLAG, lambda: False, True),
    "seed": Arg(kinds.SEED, lambda: 0),
    "k": Arg(kinds.count(), lambda: 2),
    "data": need(things.DATA, lambda: (world.X(), world.y())),
    "labels": LABELS,
    "model": need(things.MODEL, world.network),
    "layer": Arg(things.LAYER, lambda: None),
    "device": Arg(things.DEVICE, lambda: None),
    "dtype": Arg(kinds.choice(["float32", "float16"]), lambda: "float32"),
    "autocast": Arg(kinds.choice([None, "bfloat16", "float16"]), lambda: None),
    "num_workers": Arg(
        without(kinds.count(0), "large", "billion", "huge", "one", "numpy", "short"), lambda: 0
    ),  # of which more than none takes long to start
    "preprocess": Arg(things.FUNCTION, lambda: None),
    "collate_fn": Arg(things.FUNCTION, lambda: None),
    "class_names": Arg(things.NAMES, lambda: ["a", "b", "c"]),
    "task": Arg(JUNK, lambda: "classes"),
    "cache_dir": Arg(
        without(things.PATH, "none", "folder", "blank", "letters"), lambda: world.folder() / "cache"
    ),
    "n_threads": Arg(kinds.count(none=True), lambda: 1, True),
    "tol": Arg(TOLERANCE, lambda: 1e-4),
    "C": Arg(kinds.number(), lambda: 0.1),
    "ids": Arg(
        without(JUNK)
        + wrong(too_few=lambda v: v[:-1], too_many=lambda v: [*v, "z"], number=lambda v: 3)
        + odd(numbers=lambda v: list(range(N)), array=lambda v: np.arange(N)),
        lambda: [f"sample {i}" for i in range(N)],
    ),
    "remove": Arg(things.INDICES, lambda: [1, 2]),
    "relabel": Arg(things.RELABEL, lambda: {0: 1}),
    "*.effect_of.remove": need(things.INDICES, lambda: [1, 2]),
    "*.first_order.remove": need(things.INDICES, lambda: [1, 2]),
    "*.logit_changes.remove": need(things.INDICES, lambda: [1, 2]),
    "*.first_order.corrected": Arg(kinds.FLAG, lambda: False, True),
    "*.find_flips.limit": Arg(kinds.count(), lambda: 2),
    "training_features": TRAINING,
    "engine": WHERE,
    "threads": Arg(FEW_OR_NONE, lambda: 1),
    "indices": need(things.INDICES, lambda: [0, 2]),
    "method": Arg(
        without(JUNK, "kind", "function")
        + wrong(number=lambda v: 3, several=lambda v: ["epsilon"])
        + odd(kind=lambda v: int)  # a class, as those of captum are
        + one_of(PRESETS.names()),
        lambda: None,
    ),
    "share": PART,
    "fraction": Arg(INNER, lambda: 0.5),
    # what a method is made with, which its ``fit`` is called with here
    "projection": Arg(kinds.count(none=True) + odd(auto=lambda v: "auto"), lambda: 8),
    "memory": Arg(kinds.count(), lambda: 10**7),
    "loss": Arg(things.FUNCTION, lambda: None),
    "ridge": Arg(kinds.number(least=True), lambda: 1.0),
    "nu": Arg(kinds.number(0, 1), lambda: 0.2),
    "depth": Arg(FEW_OR_NONE, lambda: 10),
    "dimension": Arg(kinds.count(), lambda: 5),
    "projections": Arg(kinds.count(), lambda: 4),
    "*.fit.C": Arg(may(kinds.number(), "large") + odd(auto=lambda v: "auto"), lambda: 0.1),
    "HingeRP.fit.C": Arg(kinds.number(), lambda: 1e-2),
    "Representer.fit.tol": Arg(kinds.number(), lambda: 1e-6),
    "EKFAC.fit.labels": Arg(kinds.choice(["auto", "exact", "sampled"]), lambda: "auto"),
    "*.fit.features": None,
    "*.fit.data": need(may(things.DATA, "failing"), lambda: (world.X(), world.y())),
    "TracIn.fit.checkpoints": need(CHECKPOINTS, lambda: [world.network().state_dict()]),
    "TracIn.fit.learning_rates": Arg(
        may(kinds.number(least=True), "array")
        + wrong(too_many=lambda v: [1.0] * 5, negatives=lambda v: [-1.0]),
        lambda: 1.0,
    ),
    "TRAK.fit.checkpoints": Arg(without(CHECKPOINTS, "none"), lambda: [world.network().state_dict()]),
    "Ensemble.fit.layer": None,
    "Ensemble.fit.data": need(things.DATA, lambda: (world.X(), world.y())),
    "Ensemble.fit.members": need(
        without(JUNK)
        + wrong(
            nones=lambda v: [None, None],
            many=lambda v: [v(), v(), v()],
            number=lambda v: 3,
            empty=lambda v: [],
        )
        + odd(list=lambda v: [v(), v()], failing=lambda v: things.failing),
        lambda: lambda: world.made("graddot"),
    ),
    "Ensemble.fit.model": need(
        without(things.MODEL, "one output")
        + wrong(empty=lambda v: [], other=lambda v: [world.network(), nn.Linear(4, 5)], number=lambda v: 3),
        lambda: [world.network(), world.network()],
    ),
    # what a fitted method is asked
    "*.save.path": need(things.PATH, lambda: world.folder() / "again.whence"),
    "*.save.features": Arg(kinds.choice(["copy", "bank"]), lambda: "copy"),
    "*.collect.features": need(
        JUNK
        + wrong(
            array=lambda v: world.features(),
            without_model=lambda v: whence.features.FeatureBank.of(
                world.features(), world.y(), head=world.head()
            ),
        ),
        lambda: whence.features.extract(world.network(), (world.X(), world.y()), show_progress=False),
    ),
    "*.explain.index": None,
    "Ensemble.explain.truth": None,
    "Ensemble.explain.method": None,
    "*.explain_concepts.index": Arg(may(kinds.count(0, most=N - 1, none=True), "one"), lambda: None),
    "*.explain_concepts.concepts": Arg(
        JUNK
        + wrong(
            array=lambda v: np.eye(world.WIDTH),
            other=lambda v: relevance.Concepts.neurons(world.WIDTH + 1),
            number=lambda v: 3,
        ),
        lambda: relevance.Concepts.principal(world.features()),
    ),
    "*.novelty.k": Arg(without(kinds.count(1, most=N - 1), "large"), lambda: 3),
    "quantile": Arg(kinds.number(0, 1), lambda: 0.9),
    "DualDA.novelty.training": need(without(kinds.matrix(), "none"), world.features),
    "DualDA.stability.features": TRAINING,
    "DualDA.stability.halves": Arg(FEW, lambda: 2),
    "DualDA.update.add": Arg(may(things.DATA, "failing"), lambda: (world.X(4), world.y(4))),
    "DualDA.update.features": TRAINING,
    "DualDA.update.cache_dir": None,
    "DualDA.what_if.x": TESTS._replace(kind=may(TESTS.kind, "none")),
    "DualDA.what_if.features": ROWS._replace(kind=may(ROWS.kind, "none")),
    "DualDA.what_if.training_features": TRAINING,
    "train_halves.make": need(things.FUNCTION + NONE, lambda: world.network),
    "train_halves.train": need(without(things.FUNCTION, "too_few") + NONE, lambda: lambda model, half: None),
    "train_halves.data": need(may(things.DATA, *_names_of(things.DATA)), lambda: (world.X(), world.y())),
    "train_halves.n": Arg(FEW, lambda: 2),
    "train_halves.folder": None,
    "explain.train": need(things.DATA, lambda: (world.X(), world.y())),
    "*.save_scores.path": need(
        without(things.PATH, "letters"), lambda: world.folder() / "scores.safetensors"
    ),
    "*.save_scores.test_ids": None,
    "*.save_scores.train_ids": None,
    "DualDA.what_if.C": Arg(kinds.number(none=True), lambda: 0.05),
    "FeatureBank.of.features": need(kinds.matrix(), world.features),
    "FeatureBank.of.labels": LABELS._replace(kind=may(LABELS.kind, "fractions", "floats", "minus_zero")),
    "FeatureBank.of.head": Arg(HEAD, world.head),
    "FeatureBank.of.task": Arg(JUNK, lambda: Classes(K)),
    "BoxAndFrame.size": need(kinds.count(most=5), lambda: 2),  # less than images of 6 × 6
    "register.thing": need(JUNK, lambda: get("similarity")),
    "methods.get.name": need(kinds.choice(["dualda", "trak"]), lambda: "dualda"),
    "load.path": need(things.PATH, lambda: world.saved("dualda")),
    "load.model": need(without(things.MODEL, "None"), world.network),
    "load.data": Arg(may(things.DATA, *_names_of(things.DATA)), lambda: (world.X(), world.y())),
    "load.preprocess": Arg(may(things.FUNCTION, *_names_of(things.FUNCTION)), lambda: None),
    "load.collate_fn": None,
    "load.cache_dir": None,
    # the solver
    "svm.*.features": need(kinds.matrix(columns=False), world.features),
    "svm.solve.C": need(kinds.number(), lambda: 0.1),
    "svm.solve.callback": Arg(without(things.FUNCTION, "too_few"), lambda: None),
    "svm.solve.warm_start": Arg(
        JUNK
        + wrong(
            other=lambda v: v.lam[:3],
            dense=lambda v: v.lam.toarray(),
            nan=lambda v: v.lam * np.nan,
            complex=lambda v: v.lam * 1j,
        )
        + odd(lam=lambda v: v.lam, wild=lambda v: v.lam * -7),
        lambda: svm.solve(world.features(), world.y().numpy(), C=0.05, n_threads=1),
    ),
    "svm.solve_path.Cs": need(
        JUNK
        + NONE
        + wrong(
            number=lambda v: 0.1,
            negative=lambda v: [0.1, -1],
            nan=lambda v: [np.nan],
            texts=lambda v: ["a"],
            nested=lambda v: [[0.1]],
        )
        + odd(array=np.asarray, twice=lambda v: v + v),
        lambda: [0.1, 0.01],
    ),
    "svm.choose_C.head": Arg(HEAD, world.head),
    "svm.choose_C.max_samples": Arg(kinds.count(none=True), lambda: 100),
    "svm.choose_C.lengths": Arg(
        JUNK
        + wrong(
            number=lambda v: 2.0,
            short=lambda v: v[:-1],
            zeros=lambda v: v * 0,
            negative=lambda v: -v,
            nan=lambda v: kinds.put(v, np.nan),
            endless=lambda v: kinds.put(v, np.inf),
            nested=lambda v: v[:, None],
        ),
        lambda: np.ones(N),
    ),
    # relevance
    "extractor": need(NONE + JUNK + wrong(model=lambda v: world.network()), world.extractor),
    "relevance.*.inputs": TESTS,
    "relevance.*.relevance": MAPS,
    "relevance.*.rules": Arg(
        without(JUNK) + wrong(number=lambda v: 3, several=lambda v: ["epsilon"]) + one_of(PRESETS.names()),
        lambda: None,
    ),
    "Captum.method": need(things.FUNCTION, lambda: nn.Linear),
    "Rules.linear": Arg(RULE, lambda: "epsilon"),
    "Rules.convolution": Arg(RULE, lambda: "epsilon"),
    "Rules.first": Arg(kinds.choice(["epsilon", "plus", "flat", None]), lambda: None),
    "Rules.epsilon": Arg(kinds.number(least=True), lambda: 1e-6, True),
    "Rules.relative": None,
    "Rules.layers": Arg(LAYER_RULES, lambda: {"0": "flat"}),
    "Rules.operations": Arg(without(JUNK) + wrong(number=lambda v: 3), lambda: {"relu": "gradient"}),
    "Rules.with_layers.layers": need(LAYER_RULES + NONE, lambda: {"0": "flat"}),
    "Concepts.of.vectors": PROBES,
    "Concepts.of.names": Arg(
        without(things.NAMES, "too_few", "tuple", "array", "strange"), lambda: list("abcdef")
    ),
    "Concepts.neurons.n_features": need(without(kinds.count(), "large"), lambda: 4),
    "Concepts.principal.features": PROBES,
    "Concepts.probe.positive": PROBES,
    "Concepts.probe.negative": need(kinds.matrix(rows=False), lambda: -world.features(6)),
    "Concepts.scores.test": need(kinds.numbers(rows=True, columns=False), lambda: world.features(1)[0]),
    "Concepts.scores.train": need(kinds.matrix(), lambda: world.features(B)),
    "Concepts.scores.lam": need(kinds.numbers(columns=False), lambda: np.ones(B)),
    # data and caches; whether a label or an input suits, the model decides
    "data.as_training_set.data": need(
        may(
            things.DATA,
            "labels_beyond",
            "labels_million",
            "labels_huge",
            "labels_negative",
            "labels_very_negative",
            "labels_fractions",
            "labels_floats",
            "labels_minus_zero",
            "swapped",
            *_names_of(things.DATA, "inputs_"),
        ),
        lambda: (world.X(), world.y()),
    ),
    "data.as_training_set.names": Arg(without(things.NAMES, "too_few", "too_many"), lambda: ["a", "b", "c"]),
    "data.as_training_set.task": None,
    "features.extract.cache_dir": None,
    "features.extract.task": None,
    "features.as_float32.features": need(
        may(kinds.matrix(), *_names_of(kinds.matrix())), lambda: world.features().astype(np.float16)
    ),
    "Cache.folder": need(
        without(things.PATH, "no_folder", "folder", "long"), lambda: world.folder() / "cache"
    ),
    "Cache.remove.names": need(
        without(JUNK) + NONE + wrong(unknown=lambda v: ["bee"], numbers=lambda v: [3], number=lambda v: 3),
        lambda: [],
    ),
    # audits and explanations
    "explainer": need(NO_EXPLAINER + OTHER, lambda: world.fitted("dualda")),
    "features.project_2d.training": need(
        without(kinds.matrix(rows=False, columns=False), "none"), world.features
    ),
    "features.project_2d.tests": Arg(may(kinds.matrix(rows=False), "none"), lambda: world.features(B)),
    "features.project_2d.method": Arg(kinds.choice(["pca"]), lambda: "pca"),
    "audit.values.explainer": need(
        NONE + JUNK + wrong(other=lambda v: world.fitted("dualda")), lambda: world.fitted("effects")
    ),
    "audit.values.y": need(kinds.labels(), lambda: world.y(B).numpy()),
    "audit.duplicates.tests": Arg((), lambda: None),
    "audit.duplicates.test_features": Arg(may(kinds.matrix(rows=False), "none"), lambda: world.features(B)),
    "audit.duplicates.test_labels": Arg((), lambda: None),
    "audit.duplicates.features": TRAINING,
    "audit.duplicates.radius": Arg(kinds.number(0, 1), lambda: 0.3),
    "audit.novel_inputs.k": Arg(kinds.count(most=N - 1), lambda: 3),
    "audit.novel_inputs.training": TRAINING,
    "audit.novel_inputs.quantile": PART,
    "audit.shortcuts.x": Arg(may(without(things.INPUTS, "none"), "no_batch"), lambda: world.X(B)),
    "audit.shortcuts.features": TRAINING,
    "audit.shortcuts.target": need(things.target(whole=True), lambda: 1),
    "audit.wrong_labels.features": TRAINING,
    "audit.wrong_labels.ranking": Arg(kinds.choice([*whence.audit.RANKINGS]), lambda: "slack"),
    "*.to_csv.path": need(things.PATH, lambda: world.folder() / "a.csv"),
    "*.to_parquet.path": need(things.PATH, lambda: world.folder() / "a.parquet"),
    "*.to_html.path": Arg(without(things.PATH, "none"), lambda: world.folder() / "why.html"),
    "Trace.to_html.path": Arg(may(things.PATH, "none"), lambda: world.folder() / "t.html"),
    "Explanations.plot.test": Arg(may(kinds.count(0, most=1), "below"), lambda: 0),
    # corpora and traces
    "documents": PLACES,
    "document": DOCUMENT,
    "Corpus.documents": need(DOCUMENTS + NONE, lambda: list(writers.TEXTS)),
    "Corpus.tokenizer": need(JUNK + NONE, writers.tokenizer),
    "Corpus.position.index": need(kinds.count(0), lambda: 3),
    "Corpus.more.documents": need(DOCUMENTS + NONE, lambda: ["the cat sat on the rug ."]),
    "Corpus.joined.corpora": need(
        JUNK
        + NONE
        + wrong(
            nothing=lambda v: [],
            one=lambda v: v[0],
            texts=lambda v: ["the cat"],
            other=lambda v: [*v, Corpus(writers.TEXTS, writers.tokenizer(), length=5)],
        )
        + odd(tuple=tuple, alone=lambda v: v[:1]),
        lambda: [corpus(), corpus().more(["the cat sat on the rug ."])],
    ),
    "Corpus.hardest.losses": need(
        kinds.numbers(columns=False), lambda: np.arange(len(corpus()), dtype=np.float64)
    ),
    "Corpus.hardest.share": need(kinds.number(0.0, 1.0, most=True), lambda: 0.5),
    "DualDA.trace.prompt": need(PROMPT + NONE, lambda: "the cat sat"),
    "DualDA.trace.continuation": Arg(PROMPT, lambda: " on the mat ."),
    "DualDA.trace.max_new_tokens": Arg(FEW, lambda: 3),
    "DualDA.faithfulness_by_frequency.documents": Arg(DOCUMENTS, lambda: ["the cat sat on the rug ."]),
    "Trace.explain.token": need(without(kinds.count(0, most=1), "below"), lambda: 0),
    "Trace.without.features": None,
    # engines, and the parts that users add; a piece that fails where it runs is the user's own error
    "engine.*.function": need(without(things.FUNCTION, "too_few") + NONE, lambda: str),
    "engine.*.items": need(
        WORK + odd(nothing=lambda v: [], generator=lambda v: (each for each in v)), lambda: [1, 2, 3]
    ),
    "engine.using.engine": WHERE._replace(needed=True),
    "engine.limited.n": need(FEW_OR_NONE, lambda: 1),
    "Source.name": need((), lambda: "own"),
    "Source.read": MAKES,
    "Network.name": need((), lambda: "own"),
    "Network.make": MAKES,
    "Network.seconds": None,
    "Network.slower": None,
    "Network.build.inputs": need((), world.X),
    "Network.build.n_classes": need((), lambda: K),
    # evaluations
    "studies.*.data": need(VIEWED, lambda: (world.X(), world.y())),
    "studies.*.class_names": None,
    "studies.add_shortcut.data": IMAGES,
    "studies.add_keywords.data": need(TEXTS, world.texts),
    "studies.add_keywords.share": NEEDED_PART,
    "studies.add_keywords.pattern": Arg(
        WORD + wrong(broken=lambda v: "{", named=lambda v: "{a}"), lambda: "<{}>"
    ),
    "studies.subset.indices": need(things.INDICES + NONE, lambda: [0, 2]),
    "studies.flip_labels.share": NEEDED_PART,
    "confusion": Arg(without(kinds.matrix(), "none"), lambda: np.eye(3) + 0.1),
    "studies.group_labels.groups": need(kinds.labels(None, rows=False), lambda: np.array([0, 1, 0])),
    "studies.add_shortcut.shortcut": need(things.FUNCTION + NONE, studies.Frame),
    "studies.add_shortcut.of_class": Arg(may(kinds.count(0, most=2, none=True), "one"), lambda: None),
    "width": Arg(kinds.count(most=2), lambda: 1),
    "size": Arg(kinds.count(most=5), lambda: 2),
    "value": Arg(kinds.number(-np.inf), lambda: 1.0),
    "Word.word": need(WORD + odd(blank=lambda v: ""), lambda: "<a>"),
    "studies.fixed_steps.batch_size": need(without(kinds.count(), "huge"), lambda: 4),
    "studies.predict.model": need(
        may(things.MODEL, "one output", "lazy", "scripted", "quantised", "no linear", "three dimensions"),
        world.network,
    ),
    "studies.predict.data": need(
        may(things.DATA, *(f"labels_{each.name}" for each in kinds.labels())), lambda: (world.X(), world.y())
    ),
    "studies.measure.fit": need(things.FUNCTION + NONE, lambda: lambda: world.fitted("dualda")),
    "studies.retrain.train_fn": need(things.FUNCTION + NONE, lambda: train),
    "studies.retrain.jobs": need(
        without(JUNK)
        + NONE
        + wrong(
            empty=lambda v: [],
            numbers=lambda v: [3],
            no_seed=lambda v: [(v[0][0],)],
            text_seed=lambda v: [(v[0][0], "a")],
            negative_seed=lambda v: [(v[0][0], -1)],
            no_data=lambda v: [(None, 0)],
        ),
        lambda: [((world.X(), world.y()), 0)],
    ),
    "studies.retrain.model": need(
        without(things.MODEL, *(set(world.wrong_models()) - {"None", "text", "function", "class"})),
        world.network,
    ),
    "studies.retrain.cache_dir": need(
        without(things.PATH, "no_folder", "folder", "blank", "letters"), lambda: world.folder() / "models"
    ),
    "studies.retrain.config": Arg(
        without(JUNK, "mapping") + wrong(set=lambda v: {"a": {1}}, nan=lambda v: {"a": np.nan}),
        lambda: {"a": 1},
    ),
    # flips
    "studies.fixed_steps.steps": need(without(FEW, "billion"), lambda: 3),  # a generator
    "steps": need(FEW, lambda: 3),
    "baseline": Arg(
        without(JUNK)
        + NONE
        + wrong(
            nan=lambda v: np.nan,
            other=lambda v: np.zeros((2, 7)),
            complex=lambda v: 1j,
            texts=lambda v: ["a"],
        )
        + odd(
            number=lambda v: 0.5,
            blur=lambda v: "blur",
            array=lambda v: np.zeros((1, 6, 6)),
            truth=lambda v: True,
        ),
        lambda: "mean",
    ),
    "keep": Arg(without(JUNK) + wrong(number=lambda v: 3), lambda: ()),
    "n_random": Arg(FEW, lambda: 2),
    "methods": Arg(
        without(JUNK) + wrong(empty=lambda v: {}, list=lambda v: ["epsilon"], unknown=lambda v: {"a": "bee"}),
        lambda: {"XDA": None, "random": "random"},
    ),
    # metrics
    "scores": FITTING,
    "train_labels": TRAIN_LABELS,
    "studies.identical_class.target": TEST_LABELS,
    "subclass_test": TEST_LABELS,
    "subclass_train": TRAIN_LABELS,
    "self_influence": need(kinds.numbers(columns=False), lambda: world.scores()[0]),
    "flipped_mask": need(kinds.mask(), lambda: np.arange(N) % 4 == 0),
    "poisoned_mask": need(kinds.mask(), lambda: np.arange(N) % 4 == 0),
    "inside": need(kinds.mask(), lambda: np.arange(N) % 4 == 0),
    "before": TEST_LABELS,
    "after": TEST_LABELS,
    "true_labels": TEST_LABELS,
    "shortcut_class": need(may(kinds.count(0), "below", "negative"), lambda: 1),
    "studies.sparsified_faithfulness.bias": need(kinds.FLAG, lambda: True),
    "studies.shortcut_ap.scores": need(kinds.matrix(rows=False), world.scores),
    "studies.caught_pairs.scores": need(kinds.matrix(rows=False), world.scores),
    "studies.caught_pairs.poisoned_mask": need(kinds.mask(split=False), lambda: np.arange(N) % 4 == 0),
    "n_tests": need(kinds.count(), lambda: 2),
    "n_train": need(kinds.count(), lambda: 8),
    "m": need(kinds.count(), lambda: 3),
    "subsets_mask": need(kinds.mask(split=False), lambda: studies.random_subsets(N, 5)),
    "outputs": OUTPUTS,
    "studies.lds_reliability.outputs": need(
        without(kinds.numbers(rows=True, columns=False), "more_rows", "one_more_axis")
        + wrong(axes=lambda v: v[0]),
        OUTPUTS.make,
    ),
    "studies.compare_lds.scores": need(
        without(JUNK)
        + NONE
        + wrong(empty=lambda v: {}, array=lambda v: v["a"], nan=lambda v: {"a": v["a"] * np.nan}),
        lambda: {"a": world.scores(), "b": -world.scores()},
    ),
    "level": Arg(INNER, lambda: 0.9),
    "draws": Arg(without(kinds.count(), "large"), lambda: 20),
    "studies.specificity.target": TEST_LABELS,
    "studies.specificity.indices": None,
    "test_vectors": need(may(kinds.matrix(rows=False), "sparse"), lambda: world.features(B)),
    "train_vectors": need(may(kinds.matrix(), "sparse"), world.features),
    "studies.cancellation.scores": SCORES,
    "studies.coreset_order.scores": SCORES,
    "studies.negative_ratio.scores": SCORES,
    "studies.sparsity_curve.scores": SCORES,
    "order": need(kinds.labels(None, rows=False), lambda: np.random.default_rng(0).permutation(N)),
    "studies.coreset.fraction": need(INNER, lambda: 0.5),
    "studies.pruned.fraction": need(INNER, lambda: 0.5),
    "studies.*.labels": Arg(without(kinds.labels(None, negative=False), "none"), TRAIN_LABELS.make),
    "values": need(kinds.numbers(columns=False), lambda: np.array([1.0, 2.0])),
    "fractions": need(may(kinds.numbers(columns=False), "zeros"), lambda: np.array([0.1, 0.2])),
    "logits": need(kinds.matrix(columns=False), lambda: world.scores()[:, :K]),
    "studies.performance.true_labels": need(kinds.labels(K), TEST_LABELS.make),
    "coef": need(
        without(kinds.matrix(), "fewer_columns"),
        lambda: np.hstack([world.head()[0], world.head()[1][:, None]]),
    ),
    "head": need(HEAD, world.head),
    "Pass.maps.coefficients": need(
        may(kinds.matrix(), "one_more_axis"), lambda: torch.as_tensor(world.features(B))
    ),
    "coefficients": need(
        without(kinds.matrix(rows=False, columns=False), "sparse"),
        lambda: np.random.default_rng(4).standard_normal((N, K)),
    ),
    "counts": need(may(kinds.labels(N + 1), "same"), lambda: np.array([3, 2, 1])),
    "train_features": need(kinds.matrix(), world.features),
    "studies.group_classes.confusion": need(
        kinds.matrix(), lambda: np.array([[5, 1, 0], [1, 5, 1], [0, 2, 5]])
    ),
    "n_groups": need(kinds.count(most=3), lambda: 2),
    "studies.localisation.relevance": need(
        without(kinds.numbers(columns=False), "one_more_axis"), lambda: world.scores()[0]
    ),
    "studies.localisation.places": Arg(
        without(kinds.labels(None, negative=False), "none", "one_more_axis"), lambda: np.arange(N) // 2
    ),
    "shares": need(
        without(kinds.numbers(rows=False, columns=False), "single"), lambda: np.array([0.25, 0.5])
    ),
    **{
        f"studies.{name}.{parameter}": arg
        for name in ("explain_pairs", "pair_flipping")
        for parameter, arg in {
            "explainer": need(NO_EXPLAINER + OTHER, world.fitted_on_images),
            "x": IMAGE_TESTS,
            "target": TWO_TARGETS,
        }.items()
    },
}
