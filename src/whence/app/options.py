"""Options that commands share, declared once: those of a fit, and those of an explainer that it saved."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from whence.app.terminal import show_progress
from whence.core.machine import BATCH_SIZE
from whence.errors import InvalidInputError

if TYPE_CHECKING:  # they take time to import
    from whence.project import Project
    from whence.tasks import Task

NAMED = "MODULE:NAME"
CACHE = Path("whence-cache")
_KNOWN = 1_000  # names that a message lists


def opt(help: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Declare an option by its help, what its value is called, and its names if they differ."""
    return typer.Option(*names, help=help, metavar=metavar, **more)


def flag(name: str, help: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(name, help=help)


Text = str | None
Tests = Annotated[str, opt("Test samples by number, such as 0,4-7.", "LIST")]
SomeTests = Annotated[Text, opt("Test samples by number, such as 0,4-7.", "LIST")]
Shown = Annotated[int, opt("Proponents and opponents to show.", None, "-k", min=1)]
Target = Annotated[Text, opt("Class or output to explain, by number or name; default: the predicted one.")]
Over = Annotated[Text, opt("Another class, or runner-up: show the evidence for the target over it.", "NAME")]
Explainer = Annotated[Path, typer.Argument(help="The explainer that 'whence fit' wrote.", metavar="FILE")]
Engine = Annotated[Text, opt("Where work runs: local, processes, processes:4, ray, or module:name.", "NAME")]
Address = Annotated[Text, opt("Cluster of --engine ray: auto, or host:port; default: this machine.")]
Effects = Annotated[
    bool, flag("--effects", "What would change without each sample, instead of its part of the logit.")
]
Json = Annotated[bool, flag("--json", "Print JSON.")]


@dataclass(frozen=True)
class Saved:
    """A saved explainer, and what the user names instead of what its configuration names."""

    explainer: Explainer
    model: Annotated[Text, opt("The model, instead of the one the file names.", NAMED)] = None
    data: Annotated[Text, opt("The training set, instead of the one the file names.", NAMED)] = None
    test: Annotated[Text, opt("Other test samples than those of the fit.", NAMED)] = None
    preprocess: Annotated[Text, opt("The preprocessing, instead of the one the file names.", NAMED)] = None
    tokenizer: Annotated[Text, opt("Tokenizer of texts, and of tokens shown as text.", NAMED)] = None
    method: Annotated[Text, opt("The method, instead of the one the file names.", NAMED)] = None
    task: Annotated[Text, opt("The task, instead of the one the file names.", NAMED)] = None
    trust: Annotated[
        bool, flag("--trust", "Import and run the code that the configuration next to FILE names.")
    ] = False
    engine: Engine = None
    address: Address = None

    def open(self, *, effects: bool = False) -> Project:
        """Read it with its model, data and tests, or with effects instead of its method.

        This takes time: check what can be checked before.
        """
        from whence.project import NAMES, Project

        names = {name: getattr(self, name) for name in NAMES}
        project = Project.open(self.explainer, trust=self.trust, show_progress=show_progress(), **names)
        return project.with_effects() if effects else project


@dataclass(frozen=True)
class Fit:
    """What to fit, and how: names of code, hyper-parameters of the method, and arguments of its ``fit``."""

    HYPERPARAMETERS: ClassVar = ("C", "layers", "tol", "seed", "batch_size")
    """Options that a method has or not, by its own fields."""

    out: Annotated[Path, opt("File for the fitted explainer.", "FILE")]
    model: Annotated[Text, opt("The trained model, or a function that returns it.", NAMED)] = None
    data: Annotated[Text, opt("Its training set, or a function that returns it.", NAMED)] = None
    config: Annotated[Path | None, opt("Configuration of an earlier fit, to repeat it.", "FILE")] = None
    test: Annotated[Text, opt("Held-out samples to measure faithfulness on.", NAMED)] = None
    preprocess: Annotated[Text, opt("Function that turns raw inputs into the model's.", NAMED)] = None
    tokenizer: Annotated[Text, opt("Tokenizer of texts, and of tokens shown as text.", NAMED)] = None
    method: Annotated[str, opt("The attribution method, or module:name of your own.", "NAME")] = "dualda"
    task: Annotated[
        Text,
        opt(
            "classes, one-logit, many-labels, regression, tokens, or module:name; default: by the labels.",
            "NAME",
        ),
    ] = None
    causal: Annotated[
        bool,
        flag(
            "--causal",
            "For a generative language model: data are documents or a Corpus, every token is a sample.",
        ),
    ] = False
    option: Annotated[
        list[str] | None,
        opt("Another hyper-parameter, such as output=log_prob; may be repeated.", "NAME=VALUE"),
    ] = None
    C: Annotated[str, opt('A number, or "auto" to choose it.', "C", "--C")] = "auto"
    tol: Annotated[float, opt("Relative duality gap to reach.")] = 1e-6
    seed: Annotated[int, opt("Seed of the choice of C and of the solver.", min=0)] = 0
    layer: Annotated[Text, opt("The last linear layer, if it is not found.", "NAME")] = None
    layers: Annotated[
        str,
        opt(
            "Layers whose inputs are the features: last, all, auto, tangent, a number, or names with commas.",
            "WHICH",
        ),
    ] = "last"
    batch_size: Annotated[int, opt("Samples per forward pass.", min=1)] = BATCH_SIZE
    device: Annotated[Text, opt("Where the model runs, such as cuda.", "DEVICE")] = None
    dtype: Annotated[str, opt("Type of the features: float32 or float16.")] = "float32"
    autocast: Annotated[Text, opt("Mixed precision: bfloat16 or float16.", "DTYPE")] = None
    num_workers: Annotated[int, opt("Processes that read samples.", min=0)] = 0
    on_error: Annotated[str, opt("For unreadable samples: raise or skip.")] = "raise"
    cache_dir: Annotated[Path, opt("Folder that keeps features and solutions.", "DIR")] = CACHE
    features: Annotated[
        str, opt("Features of the support vectors in FILE: copy, or bank to name the cache.", "WHERE")
    ] = "copy"
    cache_key: Annotated[
        Text, opt("Stands for the samples' inputs: reuse features without reading them again.", "WORD")
    ] = None
    no_cache: Annotated[bool, flag("--no-cache", "Keep nothing.")] = False
    trust: Annotated[bool, flag("--trust", "Import and run the code that the configuration names.")] = False
    engine: Engine = None
    address: Address = None


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the first parameter of a command, a ``Saved`` or a ``Fit``, by the options that make one."""
    first, *parameters = inspect.signature(command, eval_str=True).parameters.values()
    shared = inspect.signature(first.annotation, eval_str=True).parameters
    required, *others = shared.values()

    @functools.wraps(command)
    def run(**given: Any) -> None:
        from whence.engine import using

        options = first.annotation(**{name: given.pop(name) for name in shared})
        with using(engine_at(options.engine, options.address)):
            command(options, **given)

    run.__signature__ = inspect.Signature([required, *parameters, *others])  # type: ignore[attr-defined]
    return run


def engine_at(engine: str | None, address: str | None) -> str | None:
    """Return the name of an engine at the address of its cluster, or raise where it has none."""
    if address is None:
        return engine
    if engine != "ray":
        raise InvalidInputError(f"--address must come with --engine ray. Got the engine {engine or 'local'}.")
    return f"{engine}:{address}"


def check_only_one(**options: Any) -> None:
    """Raise unless exactly one of the options is given."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"{' or '.join(f'--{name}' for name in options)} must be given, and only one of them. Got "
            f"{' and '.join(given) or 'none'}."
        )


def check_unused(because: str, **options: Any) -> None:
    """Raise where an option is given that has no meaning together with another."""
    given = [name.replace("_", "-") for name, value in options.items() if value not in (None, False)]
    if given:
        raise InvalidInputError(f"--{given[0]} must be left out with --{because}, which does not use it.")


def numbers(text: str, argument: str) -> list[int]:
    """Read a list such as ``0,4-7``, or raise."""
    values: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            values += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise InvalidInputError(f"'{argument}' must be a list such as 0,4-7. Got {text!r}.") from None
    if not values:
        raise InvalidInputError(f"'{argument}' must name at least one sample. Got {text!r}.")
    return values


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
