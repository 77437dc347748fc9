"""The command line: the options and the help of every command, and which function does it.

Imports that take time are made by the command that needs them: help and mistakes are answered at once.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from whence import __version__
from whence.app import terminal
from whence.app.options import (
    CACHE,
    NAMED,
    Address,
    Effects,
    Engine,
    Explainer,
    Fit,
    Json,
    Over,
    Saved,
    Shown,
    SomeTests,
    Target,
    Tests,
    Text,
    check_only_one,
    check_unused,
    engine_at,
    flag,
    opt,
    with_options,
)
from whence.app.terminal import say, show_progress
from whence.errors import UnsupportedError

app = typer.Typer(
    name="whence",
    help="Which training samples a prediction of a neural network comes from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
cache = typer.Typer(
    help="List and clear cached features and solutions.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(cache, name="cache")


def main() -> None:
    """Run the command line."""
    terminal.run(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"whence {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, opt("Show the version and exit.", None, "--version", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, flag("--debug", "Show where an error comes from.")] = False,
) -> None:
    terminal.show_tracebacks(debug)


@app.command()
def demo(
    out: Annotated[Path, opt("Folder for the figures and the page.", "DIR")] = Path("whence-demo"),
    seed: Annotated[int, opt("Seed of the training and of the explainer.", min=0)] = 0,
) -> None:
    """Train a small network, explain it and write a report.

    The network classifies photos of clothes that come with the package.

    whence demo --out whence-demo
    """
    from whence.app.demo import run

    say(run(out, seed=seed, show_progress=show_progress(), say=say).resolve())


@app.command()
@with_options
def fit(wanted: Fit, context: typer.Context) -> None:
    """Fit an explainer to a model and its training set; save it.

    whence fit --model clothes:model --data clothes:train --test clothes:test --out clothes.whence

    whence fit --model clothes:model --data clothes:train --method effects --out clothes-effects.whence

    whence fit --causal --model tuned:model --data tuned:texts --tokenizer tuned:tokenizer --out tuned.whence

    whence fit --config clothes.whence.json --trust --out again.whence
    """
    from whence.app.fit import command

    sources = {name: context.get_parameter_source(name) for name in context.params}
    command(wanted, {name for name, source in sources.items() if source and source.name == "COMMANDLINE"})


@app.command()
@with_options
def update(
    saved: Saved,
    add: Annotated[Text, opt("Samples to add at the end, or a function that returns them.", NAMED)] = None,
    remove: Annotated[
        Text,
        opt("Training samples to remove, such as 0,4-7; for a language model documents.", "LIST"),
    ] = None,
    relabel: Annotated[
        list[str] | None,
        opt("New class of a training sample, by number or name; may be repeated.", "PLACE=CLASS"),
    ] = None,
    out: Annotated[Path | None, opt("File to write, instead of FILE itself.", "FILE")] = None,
) -> None:
    """Change the training set of a saved explainer.

    Only the features of what is added are computed. Samples keep their numbers: those that are removed
    score 0.

    whence update clothes.whence --trust --remove 17,40-42 --relabel 3=Bag --add clothes:more
    """
    from whence.app.fit import update

    update(saved, add, remove, relabel or [], out)


@app.command()
def info(explainer: Explainer, as_json: Json = False) -> None:
    """Describe a saved explainer: its data, C and duality gap.

    whence info clothes.whence
    """
    from whence.app.info import run

    run(explainer, as_json=as_json)


@app.command()
@with_options
def attribute(
    saved: Saved,
    tests: Tests,
    k: Annotated[int, opt("Proponents and opponents to name.", None, "-k", min=1)] = 5,
    target: Target = None,
    effects: Effects = False,
    as_json: Json = False,
) -> None:
    """List the strongest training samples of predictions.

    whence attribute clothes.whence --trust --tests 0-9

    whence attribute clothes.whence --trust --tests 0 --effects
    """
    from whence.app.explain import attribute

    attribute(saved, tests, k=k, target=target, effects=effects, as_json=as_json)


@app.command()
@with_options
def explain(
    saved: Saved,
    out: Annotated[Path, opt("Folder for the page, figures and data.", "DIR")],
    tests: SomeTests = None,
    prompt: Annotated[Text, opt("For a language model: a text to continue.", "TEXT")] = None,
    continuation: Annotated[
        Text, opt("The text that follows; default: the model generates it.", "TEXT")
    ] = None,
    max_new_tokens: Annotated[
        int | None, opt("How many tokens the model generates at most; default: 20.", min=1)
    ] = None,
    k: Shown = 5,
    target: Target = None,
    against: Over = None,
    rules: Annotated[Text, opt("Rules of relevance, such as attn_lrp_cp.", "NAME")] = None,
    effects: Effects = False,
) -> None:
    """Write explanations with relevance maps: page, figures, JSON.

    For a language model, show where an answer comes from: a page whose words can be clicked, and JSON.

    whence explain clothes.whence --trust --tests 3,8 --out why

    whence explain clothes.whence --trust --tests 3 --against runner-up --out why

    whence explain tuned.whence --trust --prompt "Mira lives in" --out why
    """
    from whence.app.explain import explain, trace

    check_only_one(tests=tests, prompt=prompt)
    if prompt is not None:
        check_unused("prompt", target=target, against=against, rules=rules, effects=effects)
        trace(saved, prompt, continuation, out, k=k, max_new_tokens=max_new_tokens or 20)
    else:
        assert tests is not None
        check_unused("tests", continuation=continuation, max_new_tokens=max_new_tokens)
        explain(saved, tests, out, k=k, target=target, against=against, rules=rules, effects=effects)


@app.command()
@with_options
def report(
    saved: Saved,
    tests: Tests,
    out: Annotated[Path, opt("The page to write.", "FILE")],
    k: Shown = 5,
    effects: Annotated[bool, flag("--effects", "Also what would change without each sample.")] = False,
) -> None:
    """Write explanations and the audit as one page to share.

    The page opens from disk and needs no server.

    whence report clothes.whence --trust --tests 0-19 --out report.html

    whence report clothes.whence --trust --tests 0-19 --effects --out report.html
    """
    from whence.app.explain import report

    report(saved, tests, out, k=k, effects=effects)


@app.command()
@with_options
def serve(
    saved: Saved,
    host: Annotated[str, opt("Address to listen at; others need --token.")] = "127.0.0.1",
    port: Annotated[int, opt("Port to listen at.", min=1, max=65535)] = 8000,
    token: Annotated[Text, opt("What visitors must know, at least 16 characters.", "TEXT")] = None,
    compare: Annotated[
        Path | None, opt("Another explainer of the same tests, shown side by side.", "FILE")
    ] = None,
) -> None:
    """Show tests in the explorer, a live page on this machine.

    Without tests it shows training samples. An explainer that Python saved needs --model and --data.

    whence serve clothes.whence --trust

    whence serve saved.whence --model clothes:model --data clothes:train

    whence serve clothes.whence --trust --compare corrected.whence
    """
    # Read when torch is imported. Threads that wait by spinning take the processor from those they wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from whence.app.explain import serve

    serve(saved, host, port, token, compare)


@app.command()
def view(
    scores: Annotated[
        Path,
        typer.Argument(
            help="Scores: .parquet, .safetensors, .npy or .pt, or a folder of kronfluence or bergson.",
            metavar="SCORES",
        ),
    ],
    data: Annotated[str, opt("The training set, or a function that returns it.", NAMED)],
    tests: Annotated[str, opt("The tests with their labels, or a function that returns them.", NAMED)],
    model: Annotated[Text, opt("The model, to show its predictions.", NAMED)] = None,
    predictions: Annotated[
        Text, opt("Its predicted classes or outputs: a .npy file, or module:name.", "FILE")
    ] = None,
    orientation: Annotated[
        Text, opt("Rows and columns, test-train or train-test; default: by their numbers.", "AXES")
    ] = None,
    preprocess: Annotated[Text, opt("Function that turns raw inputs into the model's.", NAMED)] = None,
    tokenizer: Annotated[Text, opt("Tokenizer of texts, and of tokens shown as text.", NAMED)] = None,
    host: Annotated[str, opt("Address to listen at; others need --token.")] = "127.0.0.1",
    port: Annotated[int, opt("Port to listen at.", min=1, max=65535)] = 8000,
    token: Annotated[Text, opt("What visitors must know, at least 16 characters.", "TEXT")] = None,
) -> None:
    """Show scores of another tool in the explorer.

    A list of tests, and the training samples with the strongest scores of each. No model is needed.

    whence view pairwise_scores.safetensors --data clothes:train --tests clothes:test

    whence view scores.pt --data clothes:train --tests clothes:test --model clothes:model
    """
    from whence.app.view import run

    names = {"model": model, "preprocess": preprocess, "tokenizer": tokenizer}
    run(scores, data, tests, predictions, orientation, names, host, port, token)


@app.command()
@with_options
def export(
    saved: Saved,
    out: Annotated[Path, opt("Folder to write to.", "DIR")],
    train: Annotated[
        Text, opt("Your train(data, seed), which returns a model; default: a plain loop.", NAMED)
    ] = None,
) -> None:
    """Write the corrected training set and a script that retrains.

    The changes are those of the change list that the explorer saves next to FILE.

    whence export clothes.whence --trust --out corrected

    whence export clothes.whence --trust --out corrected --train clothes:train_model
    """
    from whence.app.export import run

    run(saved, out, train)


@app.command()
@with_options
def audit(
    saved: Saved,
    view: Annotated[str, opt("Labels, duplicates, classes, coreset, shortcut or novelty.")] = "labels",
    ranking: Annotated[str, opt("For labels: odds, confidence, slack or self_influence.", "NAME")] = "odds",
    n: Annotated[int, opt("Samples to list.", None, "-n", min=1)] = 100,
    share: Annotated[float, opt("For a coreset: part of the training set to keep.")] = 0.1,
    target: Annotated[Text, opt("For a shortcut: the class, by number or name.", "CLASS")] = None,
    out: Annotated[Path | None, opt("File to write: .csv, .parquet or .json.", "FILE")] = None,
    as_json: Json = False,
) -> None:
    """Check training data: labels, duplicates, shortcuts, novelty.

    whence audit clothes.whence --trust --out labels.csv

    whence audit clothes.whence --trust --view shortcut --target Bag
    """
    from whence.app.audit import run

    run(saved, view, ranking=ranking, n=n, share=share, target=target, out=out, as_json=as_json)


@app.command()
def evaluate(
    protocol: Annotated[str, opt("A packaged protocol or suite, or a TOML file.", "NAME")] = "quick",
    data: Annotated[Path | None, opt("Folder with the data sets; default: WHENCE_DATA.", "DIR")] = None,
    out: Annotated[
        Path, opt("Folder for results and page; a run that was stopped resumes there.", "DIR")
    ] = Path("whence-evaluation"),
    methods: Annotated[Text, opt("Only these methods, such as dualda,trak.", "NAMES")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only print what it would cost.")] = False,
    engine: Engine = None,
    address: Address = None,
) -> None:
    """Compare attribution methods by the metrics of a protocol."""
    from whence.engine import using

    run = installed("evaluate")
    only = methods.split(",") if methods else None
    with using(engine_at(engine, address)):
        pages = run(protocol, data, out, only, dry_run=dry_run, show_progress=show_progress(), say=say)
    for page in pages:
        say(page.resolve())


@app.command()
def lds(
    bank: Annotated[
        Path,
        typer.Argument(
            help="A bank of retrained networks, or a folder of kronfluence's or dattri's.", metavar="BANK"
        ),
    ],
    scores: Annotated[
        list[Path],
        typer.Argument(
            help="Files of scores: .parquet, .safetensors or .npy, (test, train).", metavar="SCORES"
        ),
    ],
    level: Annotated[float, opt("Share of bootstrap draws in an interval.")] = 0.95,
    draws: Annotated[int, opt("Bootstrap draws of the subsets.", min=1)] = 1_000,
    seed: Annotated[int, opt("Seed of the bootstrap.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Judge scores by networks retrained on subsets of the data.

    Print the linear datamodelling score of each file, with its standard error and interval.

    whence lds truth.parquet effects.parquet trak.safetensors
    """
    from whence.app.lds import run

    run(bank, scores, level=level, draws=draws, seed=seed, as_json=as_json)


def installed(command: str) -> Any:
    """Return the function of a command that another package provides, by its entry point."""
    installs = list(entry_points(group="whence.commands", name=command))
    if not installs:
        raise UnsupportedError(
            f"'whence {command}' must have the package that provides it, which is not installed. Run: "
            "pip install --force-reinstall --no-deps whence"
        )
    return installs[0].load()


@cache.command("ls")
def cache_ls(folder: Annotated[Path, typer.Argument(help="The cache.", metavar="DIR")] = CACHE) -> None:
    """List the features and solutions in a cache, newest first."""
    from whence.app.info import list_cache

    list_cache(folder)


@cache.command("rm")
def cache_rm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Entries, or how their names begin.", metavar="NAME")
    ] = None,
    folder: Annotated[Path, opt("The cache.", "DIR", "--dir")] = CACHE,
    everything: Annotated[bool, flag("--all", "Remove every entry.")] = False,
) -> None:
    """Remove entries of a cache."""
    from whence.app.info import clear_cache

    clear_cache(folder, names or [], everything=everything)
