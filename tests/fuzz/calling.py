"""Every public call, with its arguments derived from its signature and the rules of ``arguments``."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin

import numpy as np

import whence
import whence_studies as studies
from tests.fuzz import arguments as written
from tests.fuzz import kinds, projects, things, world
from tests.fuzz.arguments import Arg, corpus, linear, train
from tests.fuzz.public import public
from tests.fuzz.world import N
from tests.helpers import writers
from whence import audit, data, engine, relevance
from whence.core.cache import Cache
from whence.methods import Attributor, Ensemble, get
from whence.model.inputs import n_rows
from whence.relevance.presets import PRESETS

RULES = {**written.RULES, **projects.PROJECTS}


class Call(NamedTuple):
    """A public call.

    Attributes
    ----------
    name : dotted, as in ``public``
    function : returns what to call
    args : by name
    refuses : whether it is there to say no
    """

    name: str
    function: Callable[[], Callable[..., Any]]
    args: dict[str, Arg]
    refuses: bool = False

    def check(self, result: Any, args: dict[str, Any]) -> bool:
        """Whether a result is as documented."""
        method = self.name.rsplit(".", 1)[-1]
        check = CHECKS.get(self.name) or CHECKS.get(f"*.{method}")
        return check is None or check(result, args)

    @property
    def nan(self) -> bool:
        """Whether the documentation speaks of NaN in the result."""
        return self.name in NAN


METHOD_OF = {type(world.made(name)).__name__: name for name in (*world.METHODS, "ensemble")}


@functools.cache
def writer() -> whence.DualDA:
    return whence.DualDA(C=1.0, show_progress=False).fit(writers.taught(writers.llama()), corpus())


@functools.cache
def why() -> Any:
    return world.fitted_on_images().explain(world.images(2), 1)


def _typicality() -> Any:
    explainer = world.fitted("dualda")
    return explainer.explain(world.X(1), novelty=explainer.novelty(k=2))[0].typicality


def _retrained() -> Any:
    jobs = [((world.X(), world.y()), 0)]
    return studies.retrain(train, jobs, world.network(), world.folder() / "models", show_progress=False)[0]


def _dualda() -> Any:
    return world.fitted("dualda")


def _flipped() -> Any:
    return studies.pair_flipping(world.fitted_on_images(), world.images(1), steps=2, n_random=1)


def _bank() -> Any:
    return whence.features.extract(world.network(), (world.X(), world.y()), show_progress=False)


def _of_members() -> Ensemble:
    members = Ensemble(world.made("dualda"), show_progress=False)
    return members.fit([world.network(), world.network()], (world.X(), world.y()))


OBJECTS: dict[str, Callable[[], Any]] = {
    **{name: lambda method=method: world.fitted(method) for name, method in METHOD_OF.items()},
    "Ensemble.explain": _of_members,
    "DualDA.trace": writer,
    "DualDA.faithfulness_by_frequency": writer,
    "DualDA.update": lambda: world.made("dualda").fit(world.network(), (world.X(), world.y())),
    "Cache.remove": lambda: Cache(world.folder() / "cache"),
    "Concepts": lambda: relevance.Concepts.neurons(world.WIDTH),
    "Rules": lambda: PRESETS.get("epsilon"),
    "Pass": lambda: relevance.trace(world.extractor(), world.X(world.B)),
    "FeatureBank": _bank,
    "TrainingSet": lambda: data.as_training_set(list(zip(world.X(), world.y(), strict=True))),
    "NovelInputs": lambda: audit.novel_inputs(_dualda(), world.X(2), training=world.features()),
    "Duplicates": lambda: audit.duplicates(
        _dualda(), test_features=world.features(2), features=world.features()
    ),
    "ClassView": lambda: audit.class_view(_dualda()),
    "Coreset": lambda: audit.coreset(_dualda(), features=world.features(world.B)),
    "GroupAttribution": lambda: audit.group_attribution(_dualda(), world.X(2)),
    "Shortcuts": lambda: audit.shortcuts(_dualda(), target=0),
    "Values": lambda: audit.values(world.fitted("effects"), world.X(world.B), world.y(world.B)),
    "WrongLabels": lambda: audit.wrong_labels(_dualda(), features=world.features()),
    "Explanations": why,
    "Explanation": lambda: why()[0],
    "ConceptExplanation": lambda: world.fitted_on_images().explain_concepts(world.images(1), n=1, k=1)[0],
    "TreeNode": lambda: why()[0].tree,
    "Typicality": _typicality,
    "Corpus": corpus,
    "Trace": functools.cache(lambda: writer().trace("mira lives in", " tolm .")),
    "ExplainedPairs": lambda: studies.explain_pairs(world.fitted_on_images(), world.images(1)),
    "FlippingResult": _flipped,
    "Run": _retrained,
    "Network": lambda: studies.Network("own", linear),
    **projects.OBJECTS,
}
"""What methods are called of, by the class, or by the call where one needs another."""


def _within(manager: Any) -> Any:
    def entered(**given: Any) -> Any:
        with manager(**given):
            return engine.results(abs, [-1])

    return entered


def _listed(function: Any) -> Any:
    return lambda **given: list(function(**given))


def _marked(kind: Any) -> Any:
    return lambda **given: kind(**given)(world.images(1)[0], np.random.default_rng(0))


def _read(**given: Any) -> Any:
    training = data.as_training_set(**given)
    return [batch.labels for batch in training.batches()], training.take([0])


def _fit_bank(**given: Any) -> Any:
    bank = whence.features.FeatureBank.of(**given)
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    return explainer, explainer.attribute(features=world.features(2))


USED: dict[str, Callable[..., Any]] = {
    "Cache": lambda **given: Cache(**given).entries(),
    "explain": lambda **given: whence.explain(**given, C=0.1, show_progress=False),
    "FeatureBank.of": _fit_bank,
    "data.as_training_set": _read,
    "engine.run": _listed(engine.run),
    "engine.ordered": _listed(engine.ordered),
    "engine.using": _within(engine.using),
    "engine.limited": _within(engine.limited),
    "studies.fixed_steps": _listed(studies.fixed_steps),
    "studies.add_shortcut": lambda **given: studies.add_shortcut(**given)[0],
    "Frame": _marked(studies.Frame),
    "CentreBox": _marked(studies.CentreBox),
    "BoxAndFrame": _marked(studies.BoxAndFrame),
    "Word": lambda **given: studies.Word(**given)("a text", np.random.default_rng(0)),
    **projects.USED,
}
"""Calls whose result must be used, since what is wrong with an argument shows only then."""

_LOOK_AT_INPUTS = ("GradDot", "GradCos", "TracIn", "TRAK", "EKFAC", "RandomAttributor", "Ensemble")
_EXPLAIN = ("DualDA", "Effects", "Ensemble")
REFUSE = {
    *(f"{name}.save" for name in ("TracIn", "RandomAttributor", "EKFAC")),
    "DualDA.score",  # without labels
    "Effects.score",
}
NAN = {
    *projects.NAN,
    "data.as_training_set",
    "train_halves",  # as the user trains
    "features.as_float32",
    "studies.negative_ratio",
    "studies.sparsity_curve",
    # views and batches hold the user's own inputs, whatever they are
    *("studies.view", "studies.subset", "studies.flip_labels", "studies.group_labels", "studies.retrain"),
    *("studies.add_shortcut", "studies.add_keywords", "studies.fixed_steps", "studies.measure", "Run.model"),
    *("Frame", "CentreBox", "BoxAndFrame", "Word"),
}


def _tests(args: dict[str, Any]) -> int:
    given = args["x"] if "x" in args else args["features"]
    if getattr(given, "ndim", 0) % 2:  # one sample, as which explainers take what has its shape
        return 1
    return n_rows(given) if "x" in args else len(given)


def _each(result: Any, args: dict[str, Any]) -> bool:
    return not isinstance(args["items"], list) or len(result) == len(args["items"])


def _scored(result: Any, args: dict[str, Any]) -> bool:
    return tuple(result.shape) == (_tests(args), N)


def _ranked(result: Any, args: dict[str, Any]) -> bool:
    shape = (_tests(args), args.get("k", 5))
    return all(tuple(part.shape) == shape for side in result[:2] for part in side)


def _fitted(result: Any, args: dict[str, Any]) -> bool:
    explainer, scores, own = result
    return tuple(scores.shape) == (2, explainer.n_train_) and tuple(own.shape) == (explainer.n_train_,)


CHECKS: dict[str, Callable[[Any, dict[str, Any]], bool]] = {
    "*.attribute": _scored,
    "*.spread": _scored,
    "*.top_k": _ranked,
    "*.fit": _fitted,
    "*.self_influence": lambda result, args: tuple(result.shape) == (N,),
    "DualDA.explain": lambda result, args: len(result) == _tests(args),
    "Effects.explain": lambda result, args: len(result) == _tests(args),
    "*.collect": lambda result, args: len(result.collected.rows) == N,
    "audit.group_attribution": lambda result, args: result.mean.shape == (N,),
    "audit.values": lambda result, args: result.values.shape == (N,),
    "Corpus": lambda result, args: len(result) > 0,
    "Corpus.firsts": lambda result, args: len(result) == len(writers.TEXTS),
    "Corpus.more": lambda result, args: result.length == corpus().length,
    "Corpus.joined": lambda result, args: result.n_documents >= len(writers.TEXTS),
    "Corpus.hardest": lambda result, args: 0 < len(result) <= len(corpus()),
    "DualDA.trace": lambda result, args: len(result.tokens) > 0,
    "DualDA.faithfulness_by_frequency": lambda result, args: 0 <= result.agreement <= 1,
    "engine.run": _each,
    "engine.ordered": _each,
    "engine.results": _each,
    "engine.names": lambda result, args: "local" in result,
    **projects.CHECKS,
}


def _fit(name: str) -> Callable[..., Any]:
    """Make, fit and use an attributor: what is wrong with a parameter may show at any of the three."""
    method = METHOD_OF[name]
    kind = Ensemble if method == "ensemble" else get(method)
    known = set(inspect.signature(kind).parameters)

    def call(**given: Any) -> Any:
        made = {key: given.pop(key) for key in known if key in given}
        explainer = kind(**{**world.OPTIONS.get(method, {}), "show_progress": False, **made}).fit(**given)
        return explainer, explainer.attribute(world.X(2)), explainer.self_influence()

    return call


def _rule(name: str, parameter: str) -> Arg | None:
    """Find the rule of a parameter; KeyError where none is."""
    owner, _, method = name.rpartition(".")
    keys = (f"{name}.{parameter}", f"*.{method}.{parameter}", f"{owner}.*.{parameter}", parameter)
    return RULES[next(key for key in keys if key in RULES)] if any(key in RULES for key in keys) else _DERIVE


_DERIVE = Arg((), lambda: None)


def _derived(parameter: inspect.Parameter, homes: list[Any]) -> Arg | None:
    """Derive what can be wrong with an argument from its annotation; None where that says too little."""
    parts = [
        part.strip(" '\"") for part in re.split(r"\|(?![^\[]*\])", str(parameter.annotation).strip("'\""))
    ]
    none, first = "None" in parts, parts[0]
    needed = parameter.default is parameter.empty
    alias = next((vars(home)[first] for home in homes if first in vars(home)), None)
    if first.startswith("Literal["):
        words = re.findall(r"'([^']*)'|\"([^\"]*)\"", first)
        alias = Literal[tuple(a or b for a, b in words)]  # type: ignore[valid-type]
    kind = {
        "int": kinds.count(none=none),
        "float": kinds.number(none=none),
        "bool": kinds.may(kinds.FLAG, *(["none"] if none else [])),
        "str | PathLike[str]": things.PATH,
    }.get(first)
    if kind is None and get_origin(alias) is Literal:
        kind = kinds.choice([*get_args(alias), *([None] if none else [])])
    assert not needed, f"{parameter} needs a rule in tests/fuzz/arguments.py"
    return Arg(kind, lambda: parameter.default) if kind else None


def arguments(name: str, function: Any, homes: list[Any]) -> dict[str, Arg]:
    """The arguments of a call, from rules and from annotations."""
    args = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self" or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        arg = _rule(name, parameter.name)
        if arg is _DERIVE:
            arg = _derived(parameter, homes)
        if arg is not None:
            args[parameter.name] = arg
    return args


def _homes(thing: Any) -> list[Any]:
    """The modules in which a name of an annotation may be defined."""
    owners = inspect.getmro(thing) if inspect.isclass(thing) else (thing,)
    return [sys.modules[owner.__module__] for owner in owners if owner.__module__ in sys.modules]


def _function(name: str, thing: Any) -> Callable[[], Any]:
    """Return what finds the function to call."""
    if name in USED:
        return lambda: USED[name]
    if not inspect.isclass(thing) or "." not in name:
        return lambda: thing
    owner, method = name.split(".")
    if method == "collect":
        return lambda: world.made(METHOD_OF[owner]).collect
    if isinstance(inspect.getattr_static(thing, method), classmethod | staticmethod):
        return lambda: getattr(thing, method)
    make = OBJECTS.get(name) or OBJECTS[owner]
    return lambda: getattr(make(), method)


def _calls(name: str, thing: Any) -> Iterator[Call]:
    """The call, or the two of what takes inputs or their features."""
    owner, _, method = name.rpartition(".")
    of_class = inspect.isclass(thing) and method and owner
    target = getattr(thing, method) if of_class else thing
    homes = _homes(thing)
    if of_class and method == "fit" and issubclass(thing, Attributor):
        args = {**arguments(name, thing, homes), **arguments(name, target, homes)}
        for more in ("checkpoints", "learning_rates"):
            if rule := RULES.get(f"{name}.{more}"):
                args[more] = rule
        yield Call(name, lambda: _fit(owner), args)
        return
    args = arguments(name, target, homes)
    function = _function(name, thing)
    refuses = name in REFUSE or (method == "explain" and owner in METHOD_OF and owner not in _EXPLAIN)
    both = {"x", "features"} <= set(args) and inspect.signature(target).parameters["x"].default is None
    if not both or not (args["x"].needed and args["features"].needed):
        yield Call(name, function, args, refuses)
        return
    yield Call(name, function, {key: arg for key, arg in args.items() if key != "features"}, refuses)
    looks = owner in _LOOK_AT_INPUTS
    yield Call(name, function, {key: arg for key, arg in args.items() if key != "x"}, refuses or looks)


EVERY = tuple(call for name, thing in public().items() for call in _calls(name, thing))
