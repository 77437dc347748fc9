"""Options of a fit and of what it saved, and what commands do with them: open and read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whence.app.telling import show_progress
from whence.core.machine import BATCH_SIZE
from whence.errors import InvalidInputError

if TYPE_CHECKING:  # they take time to import
    from whence.project import Project
    from whence.tasks import Task

NAMED = "MODULE:NAME"
CACHE = Path("whence-cache")
_KNOWN = 1_000  # names that a message lists

_TESTS = typer.Option(help="Places of test samples, such as 0,4-7.", metavar="LIST")
Tests = Annotated[str, _TESTS]
SomeTests = Annotated[str | None, _TESTS]
Shown = Annotated[int, typer.Option("-k", help="Proponents and opponents to show.", min=1)]
Target = Annotated[
    str | None, typer.Option(help="Class or output to explain, by number or name; the model's if none.")
]
Explainer = Annotated[Path, typer.Argument(help="The explainer that 'whence fit' wrote.", metavar="FILE")]
Engine = Annotated[
    str | None,
    typer.Option(help="Where work runs: local, processes, processes:4, ray, or module:name.", metavar="NAME"),
]
Address = Annotated[
    str | None,
    typer.Option(help="Of the cluster for --engine ray: auto, or host:port; else this machine."),
]
Effects = Annotated[
    bool,
    typer.Option(
        "--effects", help="What would change without each sample, instead of what the logit is made of."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Saved:
    """A saved explainer, and what the user names instead of what its configuration does."""

    explainer: Explainer
    model: Annotated[
        str | None, typer.Option(help="The model, instead of the one the file names.", metavar=NAMED)
    ] = None
    data: Annotated[
        str | None, typer.Option(help="The training set, instead of the one the file names.", metavar=NAMED)
    ] = None
    test: Annotated[str | None, typer.Option(help="Other test samples than the fit's.", metavar=NAMED)] = None
    preprocess: Annotated[
        str | None, typer.Option(help="The preprocessing, instead of the one the file names.", metavar=NAMED)
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(help="The tokeniser that tokens are shown by, where it is not found.", metavar=NAMED),
    ] = None
    method: Annotated[
        str | None, typer.Option(help="The method, instead of the one the file names.", metavar=NAMED)
    ] = None
    task: Annotated[
        str | None, typer.Option(help="The task, instead of the one the file names.", metavar=NAMED)
    ] = None
    trust: Annotated[
        bool, typer.Option("--trust", help="Import and run the code that the file beside FILE names.")
    ] = False
    engine: Engine = None
    address: Address = None

    def open(self, *, effects: bool = False) -> Project:
        """Read it with its model, data and tests, which takes time: what can be checked is, before.

        With ``effects`` they are fitted and take the method's place.
        """
        from whence.project import NAMES, Project

        names = {name: getattr(self, name) for name in NAMES}
        project = Project.open(self.explainer, trust=self.trust, show_progress=show_progress(), **names)
        return project.with_effects() if effects else project


@dataclass(frozen=True)
class Fit:
    """What is to be fitted, and how."""

    out: Annotated[Path, typer.Option(help="File for the fitted explainer.", metavar="FILE")]
    model: Annotated[
        str | None, typer.Option(help="The trained classifier, or what makes it.", metavar=NAMED)
    ] = None
    data: Annotated[str | None, typer.Option(help="Its training set, or what makes it.", metavar=NAMED)] = (
        None
    )
    config: Annotated[
        Path | None, typer.Option(help="Configuration of an earlier fit, to repeat it.", metavar="FILE")
    ] = None
    test: Annotated[
        str | None, typer.Option(help="Held-out samples to measure faithfulness on.", metavar=NAMED)
    ] = None
    preprocess: Annotated[
        str | None, typer.Option(help="Function that makes the model's inputs of raw ones.", metavar=NAMED)
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Tokeniser that tokens are shown by, where --preprocess hides it.", metavar=NAMED),
    ] = None
    method: Annotated[
        str, typer.Option(help="The attribution method, or module:name of your own.", metavar="NAME")
    ] = "dualda"
    task: Annotated[
        str | None,
        typer.Option(
            help="classes, one-logit, many-labels, regression, tokens, or module:name; told by the labels if "
            "none.",
            metavar="NAME",
        ),
    ] = None
    causal: Annotated[
        bool,
        typer.Option(
            "--causal",
            help="The model writes: data are documents or a Corpus, and every token of them is a sample.",
        ),
    ] = False
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="One of the method's own, such as output=log_prob; may be repeated.", metavar="NAME=VALUE"
        ),
    ] = None
    C: Annotated[str, typer.Option("--C", help='A number, or "auto" to choose it.', metavar="C")] = "auto"
    tol: Annotated[float, typer.Option(help="Relative duality gap to reach.")] = 1e-6
    seed: Annotated[int, typer.Option(help="Of the choice of C and of the solver.", min=0)] = 0
    layer: Annotated[
        str | None, typer.Option(help="The last linear layer, where it is not found.", metavar="NAME")
    ] = None
    layers: Annotated[
        str,
        typer.Option(
            help="Layers whose inputs are features: last, all, auto, a number, or names with commas between.",
            metavar="WHICH",
        ),
    ] = "last"
    batch_size: Annotated[int, typer.Option(help="Samples per forward pass.", min=1)] = BATCH_SIZE
    device: Annotated[
        str | None, typer.Option(help="Where the model runs, such as cuda.", metavar="DEVICE")
    ] = None
    dtype: Annotated[str, typer.Option(help="Of the features: float32 or float16.")] = "float32"
    autocast: Annotated[
        str | None, typer.Option(help="Mixed precision: bfloat16 or float16.", metavar="DTYPE")
    ] = None
    num_workers: Annotated[int, typer.Option(help="Processes that read samples.", min=0)] = 0
    on_error: Annotated[str, typer.Option(help="For unreadable samples: raise or skip.")] = "raise"
    cache_dir: Annotated[
        Path, typer.Option(help="Folder that keeps features and solutions.", metavar="DIR")
    ] = CACHE
    features: Annotated[
        str,
        typer.Option(
            help="Of the support vectors, in FILE: copy, or bank to name the features in the cache.",
            metavar="WHERE",
        ),
    ] = "copy"
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing.")] = False
    trust: Annotated[
        bool, typer.Option("--trust", help="Import and run the code that the configuration names.")
    ] = False
    engine: Engine = None
    address: Address = None


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command, whose first parameter is a ``Saved`` or a ``Fit``, have the options that make one."""
    made, *own = inspect.signature(command, eval_str=True).parameters.values()
    shared = inspect.signature(made.annotation, eval_str=True).parameters
    first, *others = shared.values()

    @functools.wraps(command)
    def run(**given: Any) -> None:
        from whence.engine import using

        options = made.annotation(**{name: given.pop(name) for name in shared})
        with using(engine_at(options.engine, options.address)):
            command(options, **given)

    signature = inspect.Signature([first, *own, *others])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def engine_at(engine: str | None, address: str | None) -> str | None:
    """Return the name of an engine at the address of its cluster, or raise where it has none."""
    if address is None:
        return engine
    if engine != "ray":
        raise InvalidInputError(f"--address must come with --engine ray. Got the engine {engine or 'local'}.")
    return f"{engine}:{address}"


def one_of(**options: Any) -> None:
    """Raise unless one of some options is given, and no other."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"{' or '.join(f'--{name}' for name in options)} must be given, and only one of them. Got "
            f"{' and '.join(given) or 'none'}."
        )


def none_of(beside: str, **options: Any) -> None:
    """Raise where an option is given that has no meaning beside another."""
    given = [name.replace("_", "-") for name, value in options.items() if value not in (None, False)]
    if given:
        raise InvalidInputError(f"--{given[0]} must be left out beside --{beside}, which has no use for it.")


def numbers(text: str, argument: str) -> list[int]:
    """Read a list such as ``0,4-7``, or raise."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            found += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise InvalidInputError(f"'{argument}' must be a list such as 0,4-7. Got {text!r}.") from None
    if not found:
        raise InvalidInputError(f"'{argument}' must name at least one sample. Got {text!r}.")
    return found


def places(text: str, project: Project) -> list[int]:
    """Read a list of test samples such as ``0,4-7``, or raise."""
    return project.check_tests(numbers(text, "tests"))


def as_class(text: str | None, task: Task, argument: str = "target") -> int | None:
    """Read a class by its number or its name, or raise."""
    if text is None:
        return None
    names = task.names or ()
    if text in names:
        return names.index(text)
    if text.isdigit() and int(text) < task.n_outputs:
        return int(text)
    known = ", ".join(names) if 0 < len(names) <= _KNOWN else f"0 … {task.n_outputs - 1}"
    raise InvalidInputError(f"'{argument}' must be one of the {task.outputs}: {known}. Got {text!r}.")
