"""Protocols: TOML files that describe an evaluation: methods, data, training and metrics."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from whence import methods
from whence.errors import InvalidInputError
from whence.methods import Attributor, Effects, RandomAttributor
from whence_studies.scenes import sources as _sources  # noqa: F401 (registers them)
from whence_studies.scenes.datasets import SOURCES
from whence_studies.scenes.training import Recipe
from whence_studies.scenes.workshop import PAPER
from whence_studies.suite import metrics as _metrics  # noqa: F401 (registers them)
from whence_studies.suite.metric import CLEAN, METRICS, Metric, Output
from whence_studies.tables import Count, Table, ours, validated

RANDOM = RandomAttributor.name
"""Name of the random baseline, which is part of every table."""


class Data(Table):
    """The data set of a protocol.

    Attributes
    ----------
    name : name of the source, or ``module:name`` of a user's function
    train, test : numbers of samples; None takes all
    held_out : number of further tests for retrained models, which no attribution sees
    """

    name: Annotated[str, ours("data.name", SOURCES)]
    train: Count | None = None
    test: Count | None = None
    held_out: Count = 500


class Method(Table):
    """An attribution method with its options.

    Attributes
    ----------
    name : registered name, or ``module:Name`` of a user's class
    label : name in tables
    options : options of its constructor
    tune : values to choose from, by option, by LDS on subsets that are not scored
    by_output : options that depend on the output that LDS predicts, as in { log_prob = { … } }
    by_value : whether the importance of samples in coresets is their value for the tests' true classes
        (``audit.values``); the method is then only part of coresets and pruning
    sweep : whether it is only part of the sweep over an option
    """

    name: str
    label: str = ""
    options: dict[str, Any] = Field(default={})
    tune: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default={})
    by_output: dict[Output, dict[str, Any]] = Field(default={})
    by_value: bool = False
    sweep: bool = False

    @model_validator(mode="before")
    @classmethod
    def _labelled(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and isinstance(given.get("name"), str) and not given.get("label"):
            ours = PAPER.get(given["name"], {}).keys() <= given.get("options", {}).keys()
            name = methods.get(given["name"]).__name__
            return {**given, "label": name if ours else f"{name} (paper)"}
        return given

    @model_validator(mode="after")
    def _takes_its_options(self) -> Method:
        taken = list(inspect.signature(self.kind).parameters)
        for option in chain(self.options, self.tune, *self.by_output.values()):
            if option not in taken:
                raise InvalidInputError(
                    f"The keys of options of {self.name} must be among {', '.join(taken)}. Got {option!r}."
                )
        if self.by_value and not self.kind.capabilities.effects:
            raise InvalidInputError(
                f"'by_value' must be false for {self.name}, which does not predict values of samples. "
                f"Use a method of effects, such as {Effects.name}."
            )
        return self

    @property
    def kind(self) -> type[Attributor]:
        """The class of the method."""
        return methods.get(self.name)

    @property
    def competes(self) -> bool:
        """Whether it is compared with others: not by values, which see the true classes of the tests."""
        return not self.by_value

    @property
    def key(self) -> str:
        """Its identifier in results: the name with its options."""
        inside = [f"{name}={value}" for name, value in sorted(self.options.items())]
        inside += [f"{name}=tuned" for name in sorted(self.tune)]
        for output, options in sorted(self.by_output.items()):
            inside += [f"{output}: {name}={value}" for name, value in sorted(options.items())]
        inside += ["by value"] if self.by_value else []
        return f"{self.name}({', '.join(inside)})" if inside else self.name

    def for_output(self, output: Output) -> dict[str, Any]:
        """Return the options for an output that LDS predicts."""
        return self.by_output.get(output, {})


class Sweep(Table):
    """A sweep of one option of a method over many values.

    Attributes
    ----------
    method, option, values : the method, the option and its values
    metrics : metrics that measure the sweep; None for all
    fractions, seeds : fractions and seeds of coreset and pruning; None for those of all methods
    """

    method: str
    option: str
    values: list[float]
    metrics: list[str] | None = Field(default=None, min_length=1)
    fractions: list[float] | None = Field(default=None, min_length=1)
    seeds: Count | None = None

    def methods(self) -> list[Method]:
        """Return one method per value."""
        tables = (
            {"name": self.method, "label": f"{self.option} = {value:g}", "options": {self.option: value}}
            for value in self.values
        )
        return [validated(Method, {**table, "sweep": True}, "sweep") for table in tables]


class Protocol(Table):
    """A validated protocol, with the tables of its file.

    Attributes
    ----------
    name, title : name and title of the protocol
    seed : seed of all random draws
    threads : threads of torch and BLAS
    data : the data set and its sizes
    model : the network and its training
    sweep : a sweep over an option of a method, or None
    methods : the random method, then those of the file, then those of the sweep
    metrics : metrics by name, or by ``module:Name`` for a user's own
    """

    name: str = "unnamed"
    title: str = ""
    seed: int = 0
    threads: Count = 1
    data: Data
    model: Recipe
    sweep: Sweep | None = None
    methods: list[Method] = Field(default=[], validate_default=True)
    metrics: dict[str, SerializeAsAny[Metric]]

    @field_validator("sweep", mode="before")
    @classmethod
    def _none_is_no_sweep(cls, sweep: Any) -> Any:
        return sweep or None

    @field_validator("methods")
    @classmethod
    def _with_random_and_sweep(cls, methods: list[Method], info: ValidationInfo) -> list[Method]:
        """Put the random method first, and methods that are only part of the sweep last."""
        if all(method.name != RANDOM for method in methods):
            methods = [Method(name=RANDOM, label="Random"), *methods]
        sweep, there = info.data.get("sweep"), {method.key for method in methods}
        swept = [] if sweep is None else sweep.methods()
        methods = [*methods, *(method for method in swept if method.key not in there)]
        for what in ("key", "label"):
            seen = [getattr(method, what) for method in methods]
            twice = sorted({one for one in seen if seen.count(one) > 1})
            if twice:
                raise InvalidInputError(f"'methods' must differ. Got {twice[0]!r} more than once.")
        return methods

    @field_validator("metrics", mode="before")
    @classmethod
    def _found(cls, given: Any) -> Any:
        """Make the metrics; False leaves out one of the extended protocol."""
        if not isinstance(given, Mapping) or not given:
            raise InvalidInputError(f"A protocol must have a table [metrics]. Got {given!r}.")
        return {
            name: validated(METRICS.get(name, "metrics"), options, f"metrics.{name}")
            for name, options in given.items()
            if options is not False
        }

    @field_validator("metrics")
    @classmethod
    def _fit_methods(cls, metrics: dict[str, Metric], info: ValidationInfo) -> dict[str, Metric]:
        tuned = any(method.tune for method in info.data.get("methods", ()))
        if tuned and not any(metric.chooses for metric in metrics.values()):
            raise InvalidInputError("'tune' requires the metric lds with 'tuning' subsets.")
        sweep = info.data.get("sweep")
        if sweep is not None:
            unknown = [name for name in sweep.metrics or () if name not in metrics]
            if unknown:
                raise InvalidInputError(
                    f"'sweep.metrics' must be a list of some of {', '.join(metrics)}. Got {unknown[0]!r}."
                )
            for metric in metrics.values():
                metric.over(sweep)
        return metrics

    @model_validator(mode="after")
    def _values_where_they_count(self) -> Protocol:
        """Leave out methods by value if no metric orders samples."""
        ordering = any(metric.orders for metric in self.metrics.values())
        kept = [method for method in self.methods if ordering or not method.by_value]
        return self if len(kept) == len(self.methods) else self.model_copy(update={"methods": kept})

    def as_dict(self) -> dict[str, Any]:
        """Return the protocol as plain values, which ``parse`` reads, for the metadata of results."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def metric(self, name: str, method: Method) -> Metric:
        """Return the metric for a method; methods of the sweep have the sweep's options."""
        one = self.metrics[name]
        return one.over(self.sweep) if method.sweep and self.sweep else one

    def takes_part(self, metric: str, method: Method) -> bool:
        """Return whether a metric measures a method."""
        one, sweep = self.metrics[metric], self.sweep
        if method.by_value and not one.orders:
            return False
        if method.sweep and not (one.sweeps and metric in ((sweep and sweep.metrics) or self.metrics)):
            return False
        return one.applies(method)

    def scene(self, metric: str) -> SceneSpec:
        """Return the scene of a metric."""
        one, data = self.metrics[metric], self.data
        of = None if one.scene == CLEAN else metric
        steps = one.steps or self.model.steps
        return SceneSpec(one.scene, of, one.train or data.train, one.test or data.test, steps)

    def scenes(self) -> dict[SceneSpec, list[str]]:
        """Group metrics by scene; metrics that tune options come first."""
        by_scene: dict[SceneSpec, list[str]] = {}
        for metric in sorted(self.metrics, key=lambda name: not self.metrics[name].chooses):
            by_scene.setdefault(self.scene(metric), []).append(metric)
        return by_scene

    def only(self, wanted: list[str]) -> Protocol:
        """Return the protocol with the methods of these names, and the random one."""
        known = sorted({method.name for method in self.methods})
        for name in wanted:
            if name not in known:
                raise InvalidInputError(f"'methods' must be one of {', '.join(known)}. Got {name!r}.")
        kept = [method for method in self.methods if method.name in {*wanted, RANDOM}]
        return self.model_copy(update={"methods": kept})


class SceneSpec(NamedTuple):
    """A scene of a protocol: its name, the metric that makes it, its sizes, and the training steps."""

    name: str
    of: str | None
    train: int | None
    test: int | None
    steps: int


class Together(Table):
    """Protocols of a suite with one joint page, on which methods are ranked over all of them."""

    title: str
    protocols: list[str] = Field(min_length=2)


class Suite(Table):
    """Protocols that are run one after another, and their joint pages."""

    name: str
    title: str = ""
    protocols: list[str] = Field(min_length=1)
    together: dict[str, Together] = Field(default={})

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for name, page in self.together.items():
            for one in page.protocols:
                if one not in self.protocols:
                    raise ValueError(
                        f"'together.{name}' must be of protocols of the suite, {', '.join(self.protocols)}. "
                        f"Got {one!r}."
                    )
        return self


def names() -> list[str]:
    """Return the names of the packaged protocols, sorted."""
    folder = files("whence_studies.suite").joinpath("protocols")
    return sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml"))


def suite(protocol: str | Path) -> Suite:
    """Read a suite; a single protocol is a suite of one.

    Examples
    --------
    >>> suite("quick").protocols
    ['quick']
    """
    tables = read(protocol)
    return validated(Suite, tables if "protocols" in tables else {"name": "", "protocols": [str(protocol)]})


def load(protocol: str | Path) -> Protocol:
    """Read and check a protocol: the name of a packaged one, or the path of a TOML file.

    Examples
    --------
    >>> load("quick").data.name
    'sample'
    """
    return parse(read(protocol))


def parse(tables: Mapping[str, Any]) -> Protocol:
    """Validate a protocol's tables, or raise InvalidInputError."""
    if "protocols" in tables:
        raise InvalidInputError(
            f"'protocol' must be a single protocol. Got the suite {tables['name']!r}: {tables['protocols']}."
        )
    given = {"title": tables.get("name", "unnamed"), **tables}
    return validated(Protocol, given)


def read(protocol: str | Path) -> dict[str, Any]:
    """Read a protocol's tables, merged with those of the protocol that it extends.

    Its ``further_methods`` are added to the methods of that protocol; its ``methods`` replace them.
    """
    packaged = files("whence_studies.suite").joinpath("protocols", f"{protocol}.toml")
    if str(protocol) in names():
        text = packaged.read_text(encoding="utf-8")
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
    if "extends" not in tables:
        return tables
    further = tables.pop("further_methods", [])
    merged = _merged(read(tables.pop("extends")), tables)
    return {**merged, "methods": [*merged.get("methods", []), *further]}


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sets of tables: tables are merged, other values are replaced."""
    both = dict(base)
    for key, value in over.items():
        inner = both.get(key)
        both[key] = _merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return both
