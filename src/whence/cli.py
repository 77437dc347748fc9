"""The command line: one thin function a command."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from whence import __version__
from whence.errors import InvalidInputError, WhenceError

_CACHE = Path("whence-cache")
_NAMED = "MODULE:NAME"

app = typer.Typer(
    name="whence",
    help="Which training samples a prediction of a neural network comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whence {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figures and the page.", metavar="DIR")] = Path(
        "whence-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the training and of the explainer.", min=0)] = 0,
) -> None:
    """Train a small network on the embedded clothes photos and explain three of its predictions."""
    from whence.demo import run  # only this command needs it

    page = run(out, seed=seed, show_progress=sys.stderr.isatty(), say=typer.echo)
    typer.echo(page.resolve())


@app.command()
def fit(
    model: Annotated[str, typer.Option(help="The trained classifier, or what makes it.", metavar=_NAMED)],
    data: Annotated[str, typer.Option(help="Its training set, or what makes it.", metavar=_NAMED)],
    out: Annotated[Path, typer.Option(help="File for the fitted explainer.", metavar="FILE")],
    test: Annotated[
        str | None, typer.Option(help="Held-out samples to measure faithfulness on.", metavar=_NAMED)
    ] = None,
    preprocess: Annotated[
        str | None,
        typer.Option(help="Function that makes the model's inputs of raw ones.", metavar=_NAMED),
    ] = None,
    C: Annotated[str, typer.Option("--C", help='A number, or "auto" to choose it.', metavar="C")] = "auto",
    tol: Annotated[float, typer.Option(help="Relative duality gap to reach.")] = 1e-6,
    seed: Annotated[int, typer.Option(help="Of the choice of C and of the solver.", min=0)] = 0,
    layer: Annotated[
        str | None, typer.Option(help="The last linear layer, where it is not found.", metavar="NAME")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples a forward pass.", min=1)] = 256,
    device: Annotated[
        str | None, typer.Option(help="Where the model runs, such as cuda.", metavar="DEVICE")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the features: float32 or float16.")] = "float32",
    autocast: Annotated[
        str | None, typer.Option(help="Mixed precision: bfloat16 or float16.", metavar="DTYPE")
    ] = None,
    num_workers: Annotated[int, typer.Option(help="Processes that read samples.", min=0)] = 0,
    on_error: Annotated[str, typer.Option(help="For unreadable samples: raise or skip.")] = "raise",
    cache_dir: Annotated[
        Path, typer.Option(help="Folder that keeps features and solutions.", metavar="DIR")
    ] = _CACHE,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing.")] = False,
) -> None:
    """Fit an explainer to a trained classifier and its training set, and save it."""
    from whence.fitting import run

    run(
        model=model,
        data=data,
        out=out,
        test=test,
        preprocess=preprocess,
        layer=layer,
        device=device,
        options={
            "C": _number(C),
            "tol": tol,
            "seed": seed,
            "batch_size": batch_size,
            "show_progress": sys.stderr.isatty(),
        },
        reading={
            "cache_dir": None if no_cache else cache_dir,
            "dtype": dtype,
            "autocast": autocast,
            "num_workers": num_workers,
            "on_error": on_error,
        },
        say=typer.echo,
    )


def _number(text: str) -> float | str:
    """Read a number where there is one; DualDA refuses what it does not know."""
    try:
        return float(text)
    except ValueError:
        return text


cache = typer.Typer(help="Show and clear what fits have kept.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(cache, name="cache")


@cache.command("ls")
def cache_ls(
    folder: Annotated[Path, typer.Argument(help="The cache.", metavar="DIR")] = _CACHE,
) -> None:
    """List the features and solutions in a cache, newest first."""
    from whence.features import Cache
    from whence.features.resources import in_words

    entries = Cache(folder).entries()
    for entry in entries:
        state = "" if entry.complete else ", unfinished"
        age = _age(time.time() - entry.made)
        typer.echo(f"{entry.name:25}  {in_words(entry.bytes):>8}  {age:>8}  {entry.title}{state}")
    total = in_words(sum(entry.bytes for entry in entries))
    typer.echo(f"{len(entries)} entries, {total} in {folder}")


@cache.command("rm")
def cache_rm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Entries, or how their names begin.", metavar="NAME")
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="The cache.", metavar="DIR")] = _CACHE,
    everything: Annotated[bool, typer.Option("--all", help="Remove every entry.")] = False,
) -> None:
    """Remove entries of a cache."""
    from whence.features import Cache
    from whence.features.resources import in_words

    if everything == bool(names):
        raise InvalidInputError("Name the entries to remove, or pass --all. whence cache ls lists them.")
    where = Cache(folder)
    removed = where.remove([entry.name for entry in where.entries()] if everything else names or [])
    where.sweep()
    typer.echo(f"Removed {len(removed)} entries, {in_words(sum(entry.bytes for entry in removed))}")


def _age(seconds: float) -> str:
    """Print an age by its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


class _Interrupted(BaseException):
    """Ctrl-C, for a command that should end: the solver answers KeyboardInterrupt with its best so far."""


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    raise _Interrupted


def main() -> None:
    """Run the command line. A user's mistake is one line and exit code 2, Ctrl-C is exit code 130."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app()
    except WhenceError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except _Interrupted:
        typer.echo("Interrupted.", err=True)
        sys.exit(130)
