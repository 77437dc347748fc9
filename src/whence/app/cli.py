"""The command line: one thin function a command."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn, TextIO

import typer

from whence import __version__
from whence.core.words import counted, plain, plain_line
from whence.errors import InvalidInputError, WhenceError

if TYPE_CHECKING:
    from whence.project import Project

_CACHE = Path("whence-cache")
_NAMED = "MODULE:NAME"

app = typer.Typer(
    name="whence",
    help="Which training samples a prediction of a neural network comes from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


_state = {"debug": False, "interrupted": False}


def _say(text: object, err: bool = False) -> None:
    """Print text, of which nothing acts in a terminal: it holds names of classes and files."""
    typer.echo(plain(str(text)), err=err)


def _show_version(wanted: bool) -> None:
    if wanted:
        _say(f"whence {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    _state["debug"] = debug


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figures and the page.", metavar="DIR")] = Path(
        "whence-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the training and of the explainer.", min=0)] = 0,
) -> None:
    """Train a small network on the embedded clothes photos, explain its predictions and write a report.

    whence demo --out whence-demo
    """
    from whence.app.demo import run  # only this command needs it

    page = run(out, seed=seed, show_progress=sys.stderr.isatty(), say=_say)
    _say(page.resolve())


@app.command()
def fit(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="File for the fitted explainer.", metavar="FILE")],
    model: Annotated[
        str | None, typer.Option(help="The trained classifier, or what makes it.", metavar=_NAMED)
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Its training set, or what makes it.", metavar=_NAMED)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Configuration of an earlier fit, to repeat it.", metavar="FILE")
    ] = None,
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
    trust: Annotated[
        bool, typer.Option("--trust", help="Import and run the code that the configuration names.")
    ] = False,
) -> None:
    """Fit an explainer to a trained classifier and its training set, and save it.

    whence fit --model clothes:model --data clothes:train --test clothes:test --out clothes.whence

    whence fit --config clothes.whence.json --trust --out again.whence
    """
    from whence.app.fit import run
    from whence.project import Configuration

    if config is not None:
        given = {name for name in context.params if _was_given(context, name)}
        extra = sorted(given - {"out", "config", "model", "data", "test", "preprocess", "trust"})
        if extra:
            raise InvalidInputError(
                f"--config must come without other options of the fit. Got {', '.join(extra)} too. "
                "Change them in the file."
            )
        names = {"model": model, "data": data, "test": test, "preprocess": preprocess}
        configuration = Configuration.trusted(config, names, trust=trust)
    elif model is None or data is None:
        missing = "--model" if model is None else "--data"
        raise InvalidInputError(f"{missing} must be given as module:name, or an earlier fit with --config.")
    else:
        configuration = Configuration(
            model=model,
            data=data,
            test=test,
            preprocess=preprocess,
            layer=layer,
            device=device,
            options={"C": _number(C), "tol": tol, "seed": seed, "batch_size": batch_size},
            reading={
                "cache_dir": None if no_cache else str(cache_dir),
                "dtype": dtype,
                "autocast": autocast,
                "num_workers": num_workers,
                "on_error": on_error,
            },
            version=__version__,
        )
    run(configuration, out, show_progress=sys.stderr.isatty(), say=_say)


def _open(explainer: Path, trust: bool, **names: str | None) -> Project:
    from whence.project import Project

    return Project.open(explainer, trust=trust, show_progress=sys.stderr.isatty(), **names)


_FILE = typer.Argument(help="The explainer that 'whence fit' wrote.", metavar="FILE")
_TESTS = typer.Option(help="Places of test samples, such as 0,4-7.", metavar="LIST")
_MODEL = typer.Option(help="The model, instead of the one the file names.", metavar=_NAMED)
_DATA = typer.Option(help="The training set, instead of the one the file names.", metavar=_NAMED)
_TEST = typer.Option(help="Other test samples than the fit's.", metavar=_NAMED)
_PREPROCESS = typer.Option(help="The preprocessing, instead of the one the file names.", metavar=_NAMED)
_TRUST = typer.Option("--trust", help="Import and run the code that the file beside FILE names.")
_JSON = typer.Option("--json", help="Print JSON.")


@app.command()
def info(
    explainer: Annotated[Path, _FILE],
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Say what a saved explainer is: the data it stands on, its C, its certificate.

    whence info clothes.whence
    """
    from whence.app.commands import facts

    found = facts(explainer)
    if as_json:
        _say(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            _say(f"{name:16} {value}")


@app.command()
def attribute(
    explainer: Annotated[Path, _FILE],
    tests: Annotated[str, _TESTS],
    k: Annotated[int, typer.Option("-k", help="Proponents and opponents to name.", min=1)] = 5,
    target: Annotated[
        str | None, typer.Option(help="Class to explain, by number or name; the model's if none.")
    ] = None,
    model: Annotated[str | None, _MODEL] = None,
    data: Annotated[str | None, _DATA] = None,
    test: Annotated[str | None, _TEST] = None,
    preprocess: Annotated[str | None, _PREPROCESS] = None,
    trust: Annotated[bool, _TRUST] = False,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Name the training samples that predictions come from, with their scores.

    whence attribute clothes.whence --trust --tests 0-9
    """
    from whence.app.commands import scores, scores_in_words

    project = _open(explainer, trust, model=model, data=data, test=test, preprocess=preprocess)
    found = scores(project, tests, k, target)
    _say(json.dumps(found, indent=2) if as_json else scores_in_words(found))


@app.command()
def explain(
    explainer: Annotated[Path, _FILE],
    tests: Annotated[str, _TESTS],
    out: Annotated[Path, typer.Option(help="Folder for the page, figures and data.", metavar="DIR")],
    k: Annotated[int, typer.Option("-k", help="Proponents and opponents to show.", min=1)] = 5,
    target: Annotated[
        str | None, typer.Option(help="Class to explain, by number or name; the model's if none.")
    ] = None,
    rules: Annotated[
        str | None, typer.Option(help="Rules of relevance, such as attn_lrp_cp.", metavar="NAME")
    ] = None,
    model: Annotated[str | None, _MODEL] = None,
    data: Annotated[str | None, _DATA] = None,
    test: Annotated[str | None, _TEST] = None,
    preprocess: Annotated[str | None, _PREPROCESS] = None,
    trust: Annotated[bool, _TRUST] = False,
) -> None:
    """Explain predictions by training samples and relevance maps: a page, a figure each, and JSON.

    whence explain clothes.whence --trust --tests 3,8 --out why
    """
    from whence.app.commands import write_explanations
    from whence.app.outputs import check_folder

    check_folder(out)  # before the explainer is read: a mistake costs no time
    project = _open(explainer, trust, model=model, data=data, test=test, preprocess=preprocess)
    _say(write_explanations(project, tests, out, k, target, rules).resolve())


@app.command()
def report(
    explainer: Annotated[Path, _FILE],
    tests: Annotated[str, _TESTS],
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")],
    k: Annotated[int, typer.Option("-k", help="Proponents and opponents to show.", min=1)] = 5,
    model: Annotated[str | None, _MODEL] = None,
    data: Annotated[str | None, _DATA] = None,
    test: Annotated[str | None, _TEST] = None,
    preprocess: Annotated[str | None, _PREPROCESS] = None,
    trust: Annotated[bool, _TRUST] = False,
) -> None:
    """Write one page with explanations and the audit, which opens from disk and can be mailed.

    whence report clothes.whence --trust --tests 0-19 --out report.html
    """
    from whence.app.commands import write_report
    from whence.app.outputs import check_file

    check_file(out)
    project = _open(explainer, trust, model=model, data=data, test=test, preprocess=preprocess)
    _say(write_report(project, tests, out, k).resolve())


@app.command()
def serve(
    explainer: Annotated[Path, _FILE],
    host: Annotated[str, typer.Option(help="Address to listen at; others need --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=1, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="What visitors must know, of 16 characters or more.", metavar="TEXT"),
    ] = None,
    model: Annotated[str | None, _MODEL] = None,
    data: Annotated[str | None, _DATA] = None,
    test: Annotated[str | None, _TEST] = None,
    preprocess: Annotated[str | None, _PREPROCESS] = None,
    trust: Annotated[bool, _TRUST] = False,
) -> None:
    """Show all test samples on a page of this machine, live.

    whence serve clothes.whence --trust
    """
    from whence.ui.explorer import Explorer
    from whence.ui.listening import listen
    from whence.ui.server import serve as run

    with listen(host, port, token) as listener:  # before the explainer is read: a mistake costs no time
        project = _open(explainer, trust, model=model, data=data, test=test, preprocess=preprocess)
        run(Explorer(project), listener, token, _say)


@app.command()
def audit(
    explainer: Annotated[Path, _FILE],
    view: Annotated[
        str, typer.Option(help="What to look at: labels, classes, coreset or shortcut.")
    ] = "labels",
    ranking: Annotated[
        str | None,
        typer.Option(help="Of labels: consensus, held_out, slack or self_influence.", metavar="NAME"),
    ] = None,
    n: Annotated[int, typer.Option("-n", help="Samples to list.", min=1)] = 100,
    share: Annotated[float, typer.Option(help="Of a coreset: part of the training set to keep.")] = 0.1,
    target: Annotated[
        str | None, typer.Option(help="Of a shortcut: the class, by number or name.", metavar="CLASS")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .csv, .parquet or .json.", metavar="FILE")
    ] = None,
    model: Annotated[str | None, _MODEL] = None,
    data: Annotated[str | None, _DATA] = None,
    test: Annotated[str | None, _TEST] = None,
    preprocess: Annotated[str | None, _PREPROCESS] = None,
    trust: Annotated[bool, _TRUST] = False,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Look through the training set: labels that may be wrong, classes, what to keep, shortcuts.

    whence audit clothes.whence --trust --out labels.csv

    whence audit clothes.whence --trust --view shortcut --target Bag
    """
    from whence.app.audit import check, run

    check(view, out)
    project = _open(explainer, trust, model=model, data=data, test=test, preprocess=preprocess)
    _say(
        run(
            project,
            view,
            ranking=ranking,
            n=n,
            share=share,
            target=target,
            out=out,
            as_json=as_json,
        )
    )


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _number(text: str) -> float | str:
    """Read a number where there is one; DualDA refuses what it does not know."""
    try:
        return float(text)
    except ValueError:
        return text


@app.command()
def evaluate(
    protocol: Annotated[
        str, typer.Option(help="Name of a packaged protocol or suite, or a TOML file.", metavar="NAME")
    ] = "quick",
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data sets; WHENCE_DATA by default.", metavar="DIR")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for results and page; a stopped run goes on there.", metavar="DIR")
    ] = Path("whence-evaluation"),
    methods: Annotated[
        str | None, typer.Option(help="Only these methods, as in dualda,trak.", metavar="NAMES")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would cost.")] = False,
) -> None:
    """Compare attribution methods by every metric, as a protocol says."""
    from whence.app.evaluate import evaluate as run
    from whence.app.outputs import check_folder

    if not dry_run:
        check_folder(out)
    pages = run(
        protocol,
        data,
        out,
        methods.split(",") if methods else None,
        dry_run=dry_run,
        show_progress=sys.stderr.isatty(),
        say=_say,
    )
    for page in pages:
        _say(page.resolve())


cache = typer.Typer(help="Show and clear what fits have kept.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(cache, name="cache")


@cache.command("ls")
def cache_ls(
    folder: Annotated[Path, typer.Argument(help="The cache.", metavar="DIR")] = _CACHE,
) -> None:
    """List the features and solutions in a cache, newest first."""
    from whence.core.cache import Cache
    from whence.core.resources import in_words

    entries = Cache(folder).entries()
    for entry in entries:
        state = "" if entry.complete else ", unfinished"
        age = _age(time.time() - entry.made)
        _say(f"{entry.name:25}  {in_words(entry.bytes):>8}  {age:>8}  {entry.title}{state}")
    total = in_words(sum(entry.bytes for entry in entries))
    _say(f"{counted(len(entries), 'entry', 'entries')}, {total} in {folder}")


@cache.command("rm")
def cache_rm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Entries, or how their names begin.", metavar="NAME")
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="The cache.", metavar="DIR")] = _CACHE,
    everything: Annotated[bool, typer.Option("--all", help="Remove every entry.")] = False,
) -> None:
    """Remove entries of a cache."""
    from whence.core.cache import Cache
    from whence.core.resources import in_words

    if everything == bool(names):
        raise InvalidInputError("Name the entries to remove, or pass --all. whence cache ls lists them.")
    where = Cache(folder)
    removed = where.remove([entry.name for entry in where.entries()] if everything else names or [])
    where.sweep()
    size = in_words(sum(entry.bytes for entry in removed))
    _say(f"Removed {counted(len(removed), 'entry', 'entries')}, {size}")


def _age(seconds: float) -> str:
    """Print an age by its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


class _Interrupted(SystemExit):
    """Ctrl-C, for a command that should end: the solver answers KeyboardInterrupt with its best so far.

    An event loop lets SystemExit through wherever it arises, and holds others back in its callbacks.
    """


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    _state["interrupted"] = True
    raise _Interrupted(130)


def _leave(code: int) -> NoReturn:
    """End the process, whatever threads still compute: Python's own end aborts inside of torch's code."""
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning without the line of code that it arose from."""
    _say(f"Warning: {plain_line(str(message))}", err=True)


def _with_options(text: str) -> str:
    """Name options in a message as they are given here: on_error="skip" as --on-error skip."""
    options = {
        parameter.name: parameter.opts[-1]
        for command in typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
        for parameter in command.params
        if parameter.opts[-1].startswith("-")
    }
    text = re.sub(r'\b(\w+)="(\w+)"', lambda m: f"{options[m[1]]} {m[2]}" if m[1] in options else m[0], text)
    text = re.sub(r"^'(\w+)'(?= must)", lambda m: options.get(m[1], m[0]), text)
    return text.replace("cache_dir", "--cache-dir")


def main() -> None:
    """Run the command line.

    A user's mistake is one line and exit code 2, any other error one line and exit code 1, and Ctrl-C exit
    code 130. With --debug an error shows where it comes from. A warning is one line too.
    """
    signal.signal(signal.SIGINT, _interrupt)
    warnings.showwarning = _warn
    try:
        code = app(standalone_mode=False)
    except BaseException as error:
        _leave(_told(error))
    sys.exit(code)


def _told(error: BaseException) -> int:
    """Say what ended a command, and give its exit code."""
    if _state["interrupted"]:  # whatever an interrupt became on its way up
        _say("Interrupted.", err=True)
        return 130
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    if _state["debug"]:
        traceback.print_exception(error)
        return 1
    if hasattr(error, "show"):  # typer's own word on a command line that it does not understand
        told = io.StringIO()
        error.show(told)
        _say(told.getvalue().rstrip(), err=True)
        return 2
    mistake = isinstance(error, WhenceError)
    text = (
        _with_options(str(error))
        if mistake
        else f"{type(error).__name__}: {error} (whence --debug … shows where)"
    )
    _say(f"Error: {plain_line(text)}", err=True)
    return 2 if mistake else 1
