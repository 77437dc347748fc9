"""Fit an explainer to a model and data that are named on the command line, and say what came out."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from whence.attributors.dualda import DualDA
from whence.data import as_training_set
from whence.errors import InvalidInputError
from whence.features import Cache, as_float32, extract
from whence.features.resources import in_words
from whence.model import class_names


def run(
    *,
    model: str,
    data: str,
    out: Path,
    test: str | None,
    preprocess: str | None,
    layer: str | None,
    device: str | None,
    options: dict[str, Any],
    reading: dict[str, Any],
    say: Callable[[str], None],
) -> None:
    """Fit DualDA and save it.

    Parameters
    ----------
    model, data, test
        ``module:name`` each, of a thing or of a function that makes it.
    preprocess
        ``module:name`` of what makes the model's inputs of a batch of inputs: a tokeniser or a function.
    out
        File to save to.
    layer, device
        The head's name, and where the model runs.
    options, reading
        Of ``DualDA`` itself, and of its ``fit``.
    say
        Receives one line of text for each fact.
    """
    _check_out(out)
    network = find("model", model)
    if not isinstance(network, nn.Module):
        raise InvalidInputError(
            f"'model' must name a torch module or a function that makes one. Got {type(network).__name__} "
            f"from {model!r}."
        )
    samples = find("data", data)
    tests = None if test is None else find("test", test)
    prepare = None if preprocess is None else named("preprocess", preprocess)
    if prepare is not None and not callable(prepare):
        raise InvalidInputError(
            f"'preprocess' must be a function of a batch of inputs. Got {type(prepare).__name__} from "
            f"{preprocess!r}."
        )
    explainer = DualDA(**options)
    held_out = None
    if tests is not None:
        with _about_test():
            held_out = as_training_set(
                tests, explainer.batch_size, names=class_names(network), preprocess=prepare
            )
    explainer.fit(_placed(network, device), samples, layer, preprocess=prepare, **reading)
    for line in describe(explainer):
        say(line)
    explainer.save(out)  # before the test, whose samples may have faults of their own
    say(f"Saved        {out}, {in_words(out.stat().st_size)}")
    if held_out is not None:
        started = time.perf_counter()
        with _about_test():
            bank = extract(network, held_out, layer=layer, show_progress=explainer.show_progress, **reading)
        faith = explainer.faithfulness_features(as_float32(bank.features))
        say(
            f"Faithfulness {faith.agreement:.2%} agreement with the model, MCC {faith.mcc:.4f}, on "
            f"{faith.n_tests:,} held-out samples, {time.perf_counter() - started:.1f} s"
        )
    if reading["cache_dir"] is not None:
        entries = Cache(reading["cache_dir"]).entries()
        size = in_words(sum(entry.bytes for entry in entries))
        say(f"Cache        {reading['cache_dir']}, {len(entries)} entries, {size}")


def find(argument: str, name: str) -> Any:
    """Import ``module:name`` and call it when it is a function."""
    thing = named(argument, name)
    # Only what is a recipe is called: a torch model can be called too, and is meant as it is.
    is_recipe = isinstance(thing, type | functools.partial) or inspect.isroutine(thing)
    return thing() if is_recipe else thing


def named(argument: str, name: str) -> Any:
    """Import ``module:name``, from the working folder too."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidInputError(f"'{argument}' must be given as module:name. Got {name!r}.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # the module is there, and something that it imports is not
        raise InvalidInputError(
            f"'{argument}' must name a module that can be imported from here or from the environment. "
            f"Got {name!r} ({error})."
        ) from error
    try:
        return getattr(found, attribute)
    except AttributeError as error:
        raise InvalidInputError(f"'{argument}': the module {module!r} has no {attribute!r}.") from error


def describe(explainer: DualDA) -> list[str]:
    """Say what a fit found, one line a fact."""
    fitted, seconds, origins = explainer._model, explainer.seconds_, explainer.origins_
    assert fitted is not None
    n, d = explainer.n_train_, explainer.coef_.shape[1] - int(explainer.bias)
    support = len(explainer.support_)
    skipped = explainer.skipped_.tolist()
    lines = [
        f"Head         {fitted.extractor.layer!r}, {d} features to {explainer.n_classes_} classes",
        f"Features     {n - len(skipped):,} rows × {d}, {origins['features']}, {seconds['features']:.1f} s",
    ]
    if skipped:
        shown = ", ".join(map(str, skipped[:10])) + (" …" if len(skipped) > 10 else "")
        lines.append(f"Skipped      {len(skipped):,} samples that could not be read: {shown}")
    why = "as given" if explainer.C_path_ is None else explainer.C_path_.reason
    lines += [
        f"C            {explainer.C_:.3g}, {why}",
        f"Solution     gap {explainer.gap_:.1e}, {origins['solution']}, {seconds['solution']:.1f} s",
        f"Support      {support:,} of {n:,} samples ({support / n:.1%})",
    ]
    return lines


@contextmanager
def _about_test() -> Iterator[None]:
    """Say of errors that they are about the test set: where they arise, every set is called 'data'."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"In the samples of 'test': {error}") from error


def _check_out(out: Path) -> None:
    """Refuse a place that cannot be written before any work is done."""
    if out.is_dir() or not out.parent.is_dir():
        what = "a folder" if out.is_dir() else f"in a folder that does not exist, '{out.parent}'"
        raise InvalidInputError(f"'out' must be a file in a folder that exists. Got '{out}', {what}.")


def _placed(model: nn.Module, device: str | None) -> nn.Module:
    if device is None:
        return model
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise InvalidInputError(
            f"'device' must be one that torch has here, such as cpu or cuda. Got {device!r} ({error})."
        ) from error
