"""What ``whence fit`` does: fit an explainer to a model and data that are named, and say what came out."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whence import __version__
from whence.app.outputs import check_file, write_out
from whence.attributors.dual.dualda import DualDA
from whence.core.cache import Cache
from whence.core.naming import find
from whence.core.resources import in_words
from whence.core.words import counted
from whence.data import as_training_set
from whence.errors import InvalidInputError
from whence.features import as_float32, extract, taken
from whence.model.modules import class_names
from whence.project import SUFFIX, Configuration


def configured(
    names: Mapping[str, str | None],
    layer: str | None,
    device: str | None,
    options: dict[str, Any],
    reading: dict[str, Any],
) -> Configuration:
    """Make the configuration of a fit by what the command line names."""
    model, data = names["model"], names["data"]
    if model is None or data is None:
        missing = "--model" if model is None else "--data"
        raise InvalidInputError(f"{missing} must be given as module:name, or an earlier fit with --config.")
    options = options | {"C": _number(options["C"])}
    made = Configuration(model, data, layer=layer, device=device, options=options, reading=reading)
    return dataclasses.replace(made, version=__version__).with_names(**names)


def repeated(
    path: Path, names: Mapping[str, str | None], given: Collection[str], *, trust: bool
) -> Configuration:
    """Read the configuration of an earlier fit, which leaves nothing but names to the command line."""
    extra = sorted(set(given) - {"out", "config", "trust", *names})
    if extra:
        raise InvalidInputError(
            f"--config must come without other options of the fit. Got {', '.join(extra)} too. "
            "Change them in the file."
        )
    return Configuration.trusted(path, names, trust=trust)


def run(configuration: Configuration, out: Path, *, show_progress: bool, say: Callable[[str], None]) -> None:
    """Fit DualDA and save it, with its configuration beside it.

    Parameters
    ----------
    configuration
        What to fit, and how.
    out
        File to save to.
    show_progress
        Whether long steps show their progress.
    say
        Receives one line of text for each fact.
    """
    check_file(out)
    folder = out.resolve().parent
    network = configuration.network(folder)
    samples = find("data", configuration.data, folder)
    tests = None if configuration.test is None else find("test", configuration.test, folder)
    prepare, reading = configuration.prepare(), configuration.reading
    explainer = DualDA(**configuration.options, show_progress=show_progress)
    held_out = None
    if tests is not None:
        with _about_test():
            held_out = as_training_set(
                tests, explainer.batch_size, names=class_names(network), preprocess=prepare
            )
    explainer.fit(network, samples, configuration.layer, preprocess=prepare, **reading)
    for line in describe(explainer):
        say(line)

    # Before the test, whose samples may have faults of their own.
    def save(path: Path) -> None:
        explainer.save(path)
        configuration.write(path)

    write_out(out, save)
    say(f"Saved        {out}, {in_words(out.stat().st_size)}, and {out.name}{SUFFIX}")
    if held_out is not None:
        started = time.perf_counter()
        with _about_test():
            bank = extract(
                network, held_out, layer=configuration.layer, show_progress=show_progress, **reading
            )
        faith = explainer.faithfulness_features(taken(as_float32(bank.features), bank.valid))
        say(
            f"Faithfulness {faith.agreement:.2%} agreement with the model, MCC {faith.mcc:.4f}, on "
            f"{counted(faith.n_tests, 'held-out sample')}, {time.perf_counter() - started:.1f} s"
        )
    command = "audit" if held_out is None else "serve"
    # Its configuration names code, and this fit ran it: the one who reads this line may trust it.
    say(f"Next         whence {command} {shlex.quote(str(out))} --trust")
    cache_dir = reading.get("cache_dir")
    if cache_dir is not None:
        entries = Cache(cache_dir).entries()
        size = in_words(sum(entry.bytes for entry in entries))
        say(f"Cache        {cache_dir}, {counted(len(entries), 'entry', 'entries')}, {size}")


def describe(explainer: DualDA) -> list[str]:
    """Say what a fit found, one line per fact."""
    model, seconds, origins = explainer.require_model(), explainer.seconds_, explainer.origins_
    n, d = explainer.n_train_, explainer.coef_.shape[1] - int(explainer.bias)
    support = len(explainer.support_)
    skipped = explainer.skipped_.tolist()
    lines = [
        f"Head         {model.extractor.layer!r}, {d} features to {explainer.n_classes_} classes",
        f"Features     {n - len(skipped):,} rows × {d}, {origins['features']}, {seconds['features']:.1f} s",
    ]
    if skipped:
        shown = ", ".join(map(str, skipped[:10])) + (" …" if len(skipped) > 10 else "")
        lines.append(f"Skipped      {counted(len(skipped), 'sample')} that could not be read: {shown}")
    why = "as given" if explainer.C_path_ is None else explainer.C_path_.reason
    lines += [
        f"C            {explainer.C_:.3g}, {why}",
        f"Solution     gap {explainer.gap_:.1e}, {origins['solution']}, {seconds['solution']:.1f} s",
        f"Support      {support:,} of {counted(n, 'sample')} ({support / n:.1%})",
    ]
    if explainer.agreement_ is not None:
        share = f"{explainer.agreement_:.2%}"
        lines.append(
            f"Agreement    {share} with the model, on training samples that had no part in choosing C"
        )
    return lines


def _number(text: str) -> float | str:
    """Read a number where there is one; DualDA refuses what it does not know."""
    try:
        return float(text)
    except ValueError:
        return text


@contextmanager
def _about_test() -> Iterator[None]:
    """Say of errors that they are about the test set: where they arise, every set is called 'data'."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"In the samples of 'test': {error}") from error
