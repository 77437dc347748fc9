"""Protocols: small TOML files that say what an evaluation compares, on what, and how."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from whence import attributors
from whence.errors import InvalidInputError
from whence.evaluate.scenes import datasets, encoder, networks
from whence.evaluate.scenes.networks import Recipe

RANDOM = "random"
"""Name of the method that knows nothing; it takes part in every table."""

_FRACTIONS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]

# The metrics, and the options of each with their defaults. All take sizes of their own besides.
METRICS: dict[str, dict[str, Any]] = {
    "lds": {"subsets": 50, "tuning": 20, "seeds": 3, "fraction": 0.5},
    "identical_class": {"k": 5},
    "identical_subclass": {"k": 5, "groups": 5},
    "mislabeling": {"share": 0.1},
    "shortcut": {
        "kind": "frame",
        "size": 3,  # pixels: the frame's width, or the box's side
        "word": "whence",
        "class": 0,
        "shares": [0.1, 0.2, 0.4],  # of the class; knowing the class alone scores as much
        "needed": 0.3,
        "maps": 20,  # fooled tests whose relevance is looked at, of DualDA
    },
    "keywords": {"share": 0.2, "pattern": "<{0}>", "needed": 0.3, "maps": 20},
    "sparsity": {},
    "faithfulness": {},
    "surrogate": {},
    "coreset": {"fractions": _FRACTIONS, "seeds": 2},
    "pruning": {"fractions": _FRACTIONS, "seeds": 2},
}
RETRAINING = ("coreset", "pruning")
"""Metrics that train models anew for every method."""
_SIZES = ("train", "test", "steps")


@dataclass(frozen=True)
class Method:
    """An attribution method with its options.

    Attributes
    ----------
    name : in the registry of methods, or "random"
    label : how tables call it
    options : of its constructor
    tune : values to choose from, by option; chosen by LDS on subsets that are not scored
    sweep : whether it is here only for the sweep over an option
    """

    name: str
    label: str
    options: dict[str, Any]
    tune: dict[str, list[Any]]
    sweep: bool = False

    @property
    def key(self) -> str:
        """What identifies it in results: the name with its options."""
        inside = [f"{name}={value}" for name, value in sorted(self.options.items())]
        inside += [f"{name}=tuned" for name in sorted(self.tune)]
        return f"{self.name}({', '.join(inside)})" if inside else self.name


@dataclass(frozen=True)
class Protocol:
    """A checked protocol.

    Attributes
    ----------
    name, title : of the protocol
    seed : of everything that is drawn
    threads : of torch and BLAS
    data : name of the data set
    train, test : samples to draw; None takes all
    held_out : further tests, on which retrained models are judged and that no attribution sees
    recipe : how models are trained
    train_with : ``module:name`` of a function of the user's that trains them, or None
    checkpoints : of a training, for methods that need them
    methods : random first, then as in the file, then those of the sweep
    metrics : options by name, with the sizes that differ from the protocol's
    sweep_option : name of the option that the sweep varies, or None
    sweep_retraining : options of coreset and pruning that methods of the sweep have instead of the others'
    """

    name: str
    title: str
    seed: int
    threads: int
    data: str
    train: int | None
    test: int | None
    held_out: int
    recipe: Recipe
    train_with: str | None
    checkpoints: int
    methods: tuple[Method, ...]
    metrics: dict[str, dict[str, Any]]
    sweep_option: str | None
    sweep_retraining: dict[str, Any] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Give all of it as plain values, for the metadata of results."""
        return dataclasses.asdict(self)

    def options(self, metric: str, method: Method) -> dict[str, Any]:
        """Give the options by which a metric measures a method."""
        fewer = self.sweep_retraining if method.sweep and metric in RETRAINING else {}
        return {**self.metrics[metric], **fewer}

    def only(self, wanted: list[str]) -> Protocol:
        """Keep the methods of these names, and random."""
        known = sorted({method.name for method in self.methods})
        for name in wanted:
            _one_of("methods", name, known)
        kept = tuple(method for method in self.methods if method.name in {*wanted, RANDOM})
        return dataclasses.replace(self, methods=kept)


def names() -> list[str]:
    """Names of the packaged protocols, sorted."""
    folder = files("whence.evaluate.suite").joinpath("protocols")
    return sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml"))


def members(protocol: str | Path) -> list[str]:
    """Give the protocols that a suite runs one after another; of a single protocol, itself.

    Examples
    --------
    >>> members("quick")
    ['quick']
    """
    tables = _read(protocol)
    if "protocols" not in tables:
        return [str(protocol)]
    _known("a suite", tables, ("name", "title", "protocols"))
    found = tables["protocols"]
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise InvalidInputError(f"'protocols' must be a list of protocols' names. Got {found!r}.")
    return found


def load(protocol: str | Path) -> Protocol:
    """Read and check a protocol: the name of a packaged one, or the path of a TOML file.

    Examples
    --------
    >>> load("quick").data
    'sample'
    """
    return parse(_read(protocol))


def _read(protocol: str | Path) -> dict[str, Any]:
    """Read a protocol's tables, upon those of the one that it extends."""
    if str(protocol) in names():
        text = (
            files("whence.evaluate.suite")
            .joinpath("protocols", f"{protocol}.toml")
            .read_text(encoding="utf-8")
        )
    elif Path(protocol).suffix == ".toml" and Path(protocol).is_file():
        text = Path(protocol).read_text(encoding="utf-8")
    else:
        raise InvalidInputError(
            f"'protocol' must be one of {', '.join(names())}, or the path of a TOML file. "
            f"Got {str(protocol)!r}."
        )
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"'protocol' must be valid TOML. {protocol} is not: {error}.") from None
    tables.setdefault("name", Path(protocol).stem)
    return _merged(_read(tables.pop("extends")), tables) if "extends" in tables else tables


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one set of tables over another: tables are merged, everything else is replaced."""
    both = dict(base)
    for key, value in over.items():
        inner = both.get(key)
        both[key] = _merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return both


def parse(tables: Mapping[str, Any]) -> Protocol:
    """Check a protocol's tables, or raise InvalidInputError naming what is known."""
    if "protocols" in tables:
        raise InvalidInputError(
            f"'protocol' must be a single one here. Got {tables['name']!r}, which runs {tables['protocols']}."
        )
    _known(
        "the protocol",
        tables,
        ("name", "title", "seed", "threads", "data", "model", "methods", "metrics", "sweep"),
    )
    data, model = _table(tables, "data"), dict(_table(tables, "model"))
    _known("data", data, ("name", "train", "test", "held_out"))
    _one_of_ours("data.name", data.get("name"), datasets.names())
    _one_of_ours("model.name", model.get("name"), sorted([*networks.names(), *encoder.names()]))
    checkpoints, train_with = model.pop("checkpoints", 5), model.pop("train", None)
    if train_with is not None:
        _one_of_ours("model.train", train_with, [])
    _known("model", model, [field.name for field in dataclasses.fields(Recipe)])
    if "steps" not in model:
        raise InvalidInputError("'model.steps' must be given: the number of gradient steps of a training.")
    wanted = _table(tables, "metrics")
    for name in wanted:
        _one_of("metrics", name, METRICS)
    # False leaves out a metric that the extended protocol has.
    metrics = {name: _metric(name, given) for name, given in wanted.items() if given is not False}
    methods = [Method(RANDOM, "Random", {}, {}), *(_method(given) for given in tables.get("methods", []))]
    sweep = tables.get("sweep", {})
    methods += _swept(sweep, methods) if sweep else []
    _check_unique(methods)
    if any(method.tune for method in methods) and not metrics.get("lds", {}).get("tuning"):
        raise InvalidInputError("'tune' needs the metric lds with 'tuning' subsets, by which it chooses.")
    for size in ("train", "test", "held_out"):
        _positive(f"data.{size}", data.get(size))
    return Protocol(
        name=str(tables.get("name", "unnamed")),
        title=str(tables.get("title", tables.get("name", "unnamed"))),
        seed=int(tables.get("seed", 0)),
        threads=int(tables.get("threads", 1)),
        data=data["name"],
        train=data.get("train"),
        test=data.get("test"),
        held_out=data.get("held_out", 500),
        recipe=Recipe(**model),
        train_with=train_with,
        checkpoints=checkpoints,
        methods=tuple(methods),
        metrics=metrics,
        sweep_option=sweep.get("option"),
        sweep_retraining=_fewer(sweep, metrics),
    )


def _metric(name: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"'metrics.{name}' must be a table of options. Got {given!r}.")
    _known(f"metrics.{name}", given, (*_SIZES, *METRICS[name]))
    for size in _SIZES:
        _positive(f"metrics.{name}.{size}", given.get(size))
    if name == "shortcut":
        _one_of("metrics.shortcut.kind", given.get("kind", "frame"), ("frame", "box", "word"))
    return {**METRICS[name], **given}


def _method(given: Mapping[str, Any]) -> Method:
    _known("methods", given, ("name", "label", "options", "tune"))
    _one_of("methods.name", given.get("name"), attributors.names())
    method = Method(
        given["name"],
        given.get("label", attributors.get(given["name"]).__name__),
        dict(given.get("options", {})),
        dict(given.get("tune", {})),
    )
    taken = inspect.signature(attributors.get(method.name)).parameters
    _known(f"options of {method.name}", {**method.options, **method.tune}, list(taken))
    for option, values in method.tune.items():
        if not isinstance(values, list) or not values:
            raise InvalidInputError(f"'tune.{option}' must be a list of values. Got {values!r}.")
    return method


def _swept(sweep: Mapping[str, Any], methods: list[Method]) -> list[Method]:
    """Make one method a value of the sweep; those that are compared anyway are not repeated."""
    _known("sweep", sweep, ("method", "option", "values", "fractions", "seeds"))
    given = [
        _method(
            {
                "name": sweep.get("method"),
                "label": f"{sweep['option']} = {v:g}",
                "options": {sweep["option"]: v},
            }
        )
        for v in sweep.get("values", [])
    ]
    there = {method.key for method in methods}
    return [dataclasses.replace(method, sweep=True) for method in given if method.key not in there]


def _fewer(sweep: Mapping[str, Any], metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give the fractions and seeds of the sweep, which must be among those that all methods have."""
    _positive("sweep.seeds", sweep.get("seeds"))
    for name in (name for name in RETRAINING if name in metrics):
        fractions, seeds = metrics[name]["fractions"], metrics[name]["seeds"]
        given = sweep.get("fractions", fractions)
        if not isinstance(given, list) or not given or not set(given) <= set(fractions):
            raise InvalidInputError(
                f"'sweep.fractions' must be a list of some of {fractions}, those of {name}. Got {given!r}."
            )
        if sweep.get("seeds", seeds) > seeds:
            raise InvalidInputError(
                f"'sweep.seeds' must be at most {seeds}, those of {name}. Got {sweep['seeds']!r}."
            )
    return {key: sweep[key] for key in ("fractions", "seeds") if key in sweep}


def _check_unique(methods: list[Method]) -> None:
    for what in ("key", "label"):
        seen = [getattr(method, what) for method in methods]
        twice = sorted({one for one in seen if seen.count(one) > 1})
        if twice:
            raise InvalidInputError(f"'methods' must differ. Got {twice[0]!r} more than once.")


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name)
    if not isinstance(table, Mapping) or not table:
        raise InvalidInputError(f"A protocol must have a table [{name}]. Got {table!r}.")
    return table


def _known(where: str, given: Mapping[str, Any], allowed: Any) -> None:
    for key in given:
        if key not in allowed:
            raise InvalidInputError(f"The keys of {where} must be among {', '.join(allowed)}. Got {key!r}.")


def _one_of(what: str, value: Any, allowed: Any) -> None:
    if value not in allowed:
        raise InvalidInputError(f"'{what}' must be one of {', '.join(allowed)}. Got {value!r}.")


def _one_of_ours(what: str, value: Any, allowed: Sequence[str]) -> None:
    """Accept a name that is known, or the ``module:name`` of something that is the user's own."""
    if value in allowed or (isinstance(value, str) and all(value.partition(":"))):
        return
    known = (
        f"one of {', '.join(allowed)}, or module:name of your own" if allowed else "module:name of your own"
    )
    raise InvalidInputError(f"'{what}' must be {known}. Got {value!r}.")


def _positive(what: str, value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InvalidInputError(f"'{what}' must be an integer of at least 1. Got {value!r}.")
