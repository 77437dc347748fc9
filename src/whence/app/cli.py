"""The command line: the options and the help of every command, and which function does it.

Imports that take time are made by the command that needs them: help and mistakes are answered at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence import __version__
from whence.app import ending
from whence.app.opening import (
    CACHE,
    NAMED,
    Address,
    Effects,
    Engine,
    Explainer,
    Fit,
    Json,
    Saved,
    Shown,
    SomeTests,
    Target,
    Tests,
    engine_at,
    none_of,
    one_of,
    with_options,
)
from whence.app.telling import say, show_progress

app = typer.Typer(
    name="whence",
    help="Which training samples a prediction of a neural network comes from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
cache = typer.Typer(help="Show and clear what fits have kept.", no_args_is_help=True, rich_markup_mode=None)


def main() -> None:
    """Run the command line."""
    ending.run(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"whence {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    ending.show_errors_whole(debug)


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
    from whence.app.demo import run

    say(run(out, seed=seed, show_progress=show_progress(), say=say).resolve())


@app.command()
@with_options
def fit(wanted: Fit, context: typer.Context) -> None:
    """Fit an explainer to a trained classifier and its training set, and save it.

    whence fit --model clothes:model --data clothes:train --test clothes:test --out clothes.whence

    whence fit --model clothes:model --data clothes:train --method effects --out clothes-effects.whence

    whence fit --causal --model tuned:model --data tuned:texts --tokenizer tuned:tokenizer --out tuned.whence

    whence fit --config clothes.whence.json --trust --out again.whence
    """
    from whence.app.fit import command

    command(wanted, _given(context))


def _given(context: typer.Context) -> set[str]:
    """Names of the options that are on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


@app.command()
@with_options
def update(
    saved: Saved,
    add: Annotated[
        str | None, typer.Option(help="Samples to add after the last, or what makes them.", metavar=NAMED)
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option(
            help="Places of training samples to leave out, such as 0,4-7; of a language model documents.",
            metavar="LIST",
        ),
    ] = None,
    relabel: Annotated[
        list[str] | None,
        typer.Option(
            help="Another class of a training sample, by number or name; may be repeated.",
            metavar="PLACE=CLASS",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write, instead of FILE itself.", metavar="FILE")
    ] = None,
) -> None:
    """Change the training set of a saved explainer, without computing what stays as it is.

    Samples keep their places: those left out score 0.

    whence update clothes.whence --trust --remove 17,40-42 --relabel 3=Bag --add clothes:more
    """
    from whence.app.update import run

    run(saved, add, remove, relabel or [], out)


@app.command()
def info(explainer: Explainer, as_json: Json = False) -> None:
    """Say what a saved explainer is: the data it stands on, its C, its certificate.

    whence info clothes.whence
    """
    from whence.app.info import run

    run(explainer, as_json=as_json)


@app.command()
@with_options
def attribute(
    saved: Saved,
    tests: Tests,
    k: Annotated[int, typer.Option("-k", help="Proponents and opponents to name.", min=1)] = 5,
    target: Target = None,
    effects: Effects = False,
    as_json: Json = False,
) -> None:
    """Name the training samples that predictions come from, with their scores.

    whence attribute clothes.whence --trust --tests 0-9

    whence attribute clothes.whence --trust --tests 0 --effects
    """
    from whence.app.attribute import run

    run(saved, tests, k=k, target=target, effects=effects, as_json=as_json)


@app.command()
@with_options
def explain(
    saved: Saved,
    out: Annotated[Path, typer.Option(help="Folder for the page, figures and data.", metavar="DIR")],
    tests: SomeTests = None,
    prompt: Annotated[
        str | None, typer.Option(help="Of a language model: a text to go on from.", metavar="TEXT")
    ] = None,
    continuation: Annotated[
        str | None, typer.Option(help="What follows it; the model writes it if none.", metavar="TEXT")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="The longest that the model writes, 20 if none.", min=1)
    ] = None,
    k: Shown = 5,
    target: Target = None,
    rules: Annotated[
        str | None, typer.Option(help="Rules of relevance, such as attn_lrp_cp.", metavar="NAME")
    ] = None,
    effects: Effects = False,
) -> None:
    """Explain predictions by training samples and relevance maps: a page, a figure each, and JSON.

    Of a language model, whence an answer comes: a page whose words can be clicked, and JSON.

    whence explain clothes.whence --trust --tests 3,8 --out why

    whence explain tuned.whence --trust --prompt "Mira lives in" --out why
    """
    from whence.app.explain import run, trace

    one_of(tests=tests, prompt=prompt)
    if prompt is not None:
        none_of("prompt", target=target, rules=rules, effects=effects)
        trace(saved, prompt, continuation, out, k=k, max_new_tokens=max_new_tokens or 20)
    else:
        assert tests is not None
        none_of("tests", continuation=continuation, max_new_tokens=max_new_tokens)
        run(saved, tests, out, k=k, target=target, rules=rules, effects=effects)


@app.command()
@with_options
def report(
    saved: Saved,
    tests: Tests,
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")],
    k: Shown = 5,
    effects: Annotated[
        bool,
        typer.Option("--effects", help="Also what would change without each sample."),
    ] = False,
) -> None:
    """Write one page with explanations and the audit, which opens from disk and can be mailed.

    whence report clothes.whence --trust --tests 0-19 --out report.html

    whence report clothes.whence --trust --tests 0-19 --effects --out report.html
    """
    from whence.app.report import run

    run(saved, tests, out, k=k, effects=effects)


@app.command()
@with_options
def serve(
    saved: Saved,
    host: Annotated[str, typer.Option(help="Address to listen at; others need --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=1, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(help="What visitors must know, of 16 characters or more.", metavar="TEXT")
    ] = None,
) -> None:
    """Show all test samples on a page of this machine, live.

    whence serve clothes.whence --trust
    """
    from whence.app.serve import run

    run(saved, host, port, token)


@app.command()
@with_options
def audit(
    saved: Saved,
    view: Annotated[
        str, typer.Option(help="What to look at: labels, classes, coreset, shortcut or strange.")
    ] = "labels",
    ranking: Annotated[
        str,
        typer.Option(help="Of labels: odds, confidence, slack or self_influence.", metavar="NAME"),
    ] = "odds",
    n: Annotated[int, typer.Option("-n", help="Samples to list.", min=1)] = 100,
    share: Annotated[float, typer.Option(help="Of a coreset: part of the training set to keep.")] = 0.1,
    target: Annotated[
        str | None, typer.Option(help="Of a shortcut: the class, by number or name.", metavar="CLASS")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .csv, .parquet or .json.", metavar="FILE")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look through the training set: labels that may be wrong, classes, what to keep, shortcuts.

    whence audit clothes.whence --trust --out labels.csv

    whence audit clothes.whence --trust --view shortcut --target Bag
    """
    from whence.app.audit import run

    run(saved, view, ranking=ranking, n=n, share=share, target=target, out=out, as_json=as_json)


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
    engine: Engine = None,
    address: Address = None,
) -> None:
    """Compare attribution methods by every metric, as a protocol says."""
    from whence.engine import using
    from whence_studies.command import run

    only = methods.split(",") if methods else None
    with using(engine_at(engine, address)):
        pages = run(protocol, data, out, only, dry_run=dry_run, show_progress=show_progress(), say=say)
    for page in pages:
        say(page.resolve())


app.add_typer(cache, name="cache")


@cache.command("ls")
def cache_ls(
    folder: Annotated[Path, typer.Argument(help="The cache.", metavar="DIR")] = CACHE,
) -> None:
    """List the features and solutions in a cache, newest first."""
    from whence.app.cache import show

    show(folder)


@cache.command("rm")
def cache_rm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Entries, or how their names begin.", metavar="NAME")
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="The cache.", metavar="DIR")] = CACHE,
    everything: Annotated[bool, typer.Option("--all", help="Remove every entry.")] = False,
) -> None:
    """Remove entries of a cache."""
    from whence.app.cache import remove

    remove(folder, names or [], everything=everything)
