"""Commands that make an explainer: ``fit`` from a model and data that are named, ``update`` from another."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whence import __version__
from whence.app.options import Fit, Saved, as_class, numbers
from whence.app.terminal import check_file, say, show_progress, write_out
from whence.core.cache import Cache
from whence.core.checks import check_choice
from whence.core.display import counted, in_words
from whence.core.naming import make_named
from whence.data import Corpus, TrainingSet
from whence.errors import InvalidInputError, UnsupportedError
from whence.explanation.trace import Bands
from whence.features import as_float32, taken
from whence.methods import Attributor, DualDA
from whence.model.layers import WORDS
from whence.project import NAMES, READING, SUFFIX, Configuration, Project
from whence.tasks import Task, Tokens


def command(wanted: Fit, given: Collection[str]) -> None:
    """Fit what the command line names, or what a configuration names, with which only names may be given.

    Options that are not among those ``given`` have their defaults.
    """
    check_file(wanted.out)  # before anything is imported: a mistake costs no time
    check_choice("features", wanted.features, ("copy", "bank"))
    names = {name: getattr(wanted, name) for name in NAMES}
    names["method"] = wanted.method if "method" in given else None
    if wanted.causal:
        if wanted.task not in (None, Tokens.name):
            raise InvalidInputError(f"--causal must come without --task. Got the task {wanted.task!r}.")
        names["task"] = Tokens.name
    if wanted.config is None:
        if wanted.model is None or wanted.data is None:
            missing = "--model" if wanted.model is None else "--data"
            raise InvalidInputError(
                f"{missing} must be given as module:name, or an earlier fit with --config."
            )
        reading = {name: getattr(wanted, name) for name in READING}
        reading["cache_dir"] = None if wanted.no_cache else str(wanted.cache_dir)
        configuration = Configuration(wanted.model, wanted.data, reading=reading, version=__version__)
        configuration = configuration.with_names(**names, layer=wanted.layer, device=wanted.device)
        options = _hyperparameters(configuration.attributor(), wanted, given)
        configuration = dataclasses.replace(configuration, options=options)
    else:
        known = {"out", "config", "trust", "engine", "address", "features", "causal", *names}
        extra = sorted(set(given) - known)
        if extra:
            raise InvalidInputError(
                f"--config must come without other options of the fit. Got {', '.join(extra)} too. "
                "Change them in the file."
            )
        configuration = Configuration.trusted(wanted.config, names, trust=wanted.trust)
    run(configuration, wanted.out, wanted.features)


def _hyperparameters(method: type[Attributor], wanted: Fit, given: Collection[str]) -> dict[str, Any]:
    """Return the hyper-parameters of a method: those on the command line, the others by its own defaults."""
    known = inspect.signature(method).parameters
    options = {name: getattr(wanted, name) for name in Fit.HYPERPARAMETERS}
    options |= {"C": _number(wanted.C), "layers": _layers(wanted.layers)}
    extra = [name for name in options if name in given and name not in known]
    if extra:
        raise InvalidInputError(f"'{extra[0]}' must be left out: {method.__name__} has no such option.")
    values = {
        name: value if name in given else known[name].default
        for name, value in options.items()
        if name in known
    }
    others = known.keys() - options.keys() - {"device"}
    for text in wanted.option or []:
        name, sign, value = text.partition("=")
        if not sign or name not in others:
            raise InvalidInputError(
                f"--option must be NAME=VALUE of {method.__name__}: {', '.join(sorted(others))}. "
                f"Got {text!r}."
            )
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def _number(text: str) -> float | str:
    """Read a number where there is one; the method refuses what it does not know."""
    try:
        return float(text)
    except ValueError:
        return text


def _layers(text: str) -> str | int | list[str]:
    """Read which layers: a word, a number, or names."""
    if text in WORDS:
        return text
    return int(text) if text.isdecimal() else [name.strip() for name in text.split(",")]


def run(configuration: Configuration, out: Path, features: str) -> None:
    """Fit a method, save it with its configuration, and print the facts; ``features`` as for ``save``."""
    save_options = {} if features == "copy" else {"features": features}
    if save_options:
        _check_bank(configuration)
    folder, task = out.resolve().parent, configuration.chosen_task()
    network = configuration.network(folder)
    several, form = "+" in configuration.data, dict[str, Any]()
    if several:  # read as one training set, which has the task and the preprocessing
        samples: Any = configuration.training(network, folder)
    else:
        samples = make_named("data", configuration.data, folder)
        form = {"task": task, "preprocess": configuration.load_preprocess()}
        form["tokenizer"] = configuration.load_tokenizer()
    if task is not None and task.of_documents:
        samples = samples.corpus if several else configuration.corpus(samples)
    if isinstance(samples, Corpus):
        form.pop("tokenizer", None)  # which it has
    tests = None if configuration.test is None else make_named("test", configuration.test, folder)
    attributor = configuration.attributor()(**configuration.options)
    attributor.show_progress = show_progress()
    held_out = None
    if tests is not None:
        with _about_test():
            held_out = configuration.samples(tests, network, attributor.batch_size)
    attributor.fit(network, samples, layer=configuration.layer, **form, **configuration.reading)
    for line in describe(attributor):
        say(line)
    # Before the test, whose samples may have faults of their own.
    _save(attributor, configuration, out, **save_options)
    if held_out is not None and (
        faithfulness := _faithfulness(out, configuration, attributor, tests, held_out)
    ):
        say(f"Faithfulness {faithfulness}")
    if next_command := _next(attributor, shlex.quote(str(out)), held_out is not None):
        say(f"Next         {next_command}")
    cache_dir = configuration.reading.get("cache_dir")
    if cache_dir is not None:
        entries = Cache(cache_dir).entries()
        size = in_words(sum(entry.bytes for entry in entries))
        say(f"Cache        {cache_dir}, {counted(len(entries), 'entry', 'entries')}, {size}")


def _check_bank(configuration: Configuration) -> None:
    """Raise where nothing could be saved that names a bank, before anything is computed."""
    method = configuration.attributor()
    if not (method.capabilities.dual or method.capabilities.effects):
        raise UnsupportedError(
            f"--features must be copy: {method.__name__} has no support vectors, as DualDA and Effects do."
        )
    if configuration.reading.get("cache_dir") is None:
        raise InvalidInputError("--features bank must come with a cache. Leave --no-cache out.")


def _save(attributor: Any, configuration: Configuration, out: Path, **options: Any) -> None:
    def save(path: Path) -> None:
        attributor.save(path, **options)
        configuration.write(path)

    write_out(out, save)
    say(f"Saved        {out}, {in_words(out.stat().st_size)}, and {out.name}{SUFFIX}")


def _faithfulness(
    out: Path, configuration: Configuration, attributor: Any, tests: Any, held_out: TrainingSet
) -> str:
    """Return how well the surrogate follows the model on held-out samples; empty without a surrogate."""
    can, task = attributor.capabilities, attributor.task_
    if task.of_documents:
        return _by_frequency(attributor.faithfulness_by_frequency(held_out.source)) if can.dual else ""
    if not (can.dual or can.effects):
        return ""
    started = time.perf_counter()
    with _about_test():
        model = attributor.fitted_.require_model().extractor.model
        samples = configuration.samples(tests, model, attributor.batch_size, task)
        bank = Project(out, configuration, attributor, samples).test_bank
    faith = attributor.faithfulness(features=taken(as_float32(bank.features), bank.valid))
    first, second = task.measures
    result = f"{first} {faith.agreement:.4f} with the model, {second} {faith.logit_cosine:.4f}"
    if faith.mcc is not None:
        result = f"{faith.agreement:.2%} agreement with the model, MCC {faith.mcc:.4f}"
    return f"{result}, on {counted(faith.n_tests, 'held-out sample')}, {time.perf_counter() - started:.1f} s"


def _by_frequency(bands: Bands) -> str:
    """Return how often the surrogate names the model's token, by how often that is in the corpus."""
    shares = [(band.agreement, band.name) for band in bands.bands if band.agreement is not None]
    parts = ", ".join(f"{share:.1%} for tokens that are in it {name} times" for share, name in shares)
    places = counted(bands.places, "place")
    return f"{bands.agreement:.2%} agreement with the model, on {places} of held-out documents: {parts}"


def _next(attributor: Attributor, out: str, has_tests: bool) -> str:
    """Return a command to go on with. The fit ran the code that the configuration names: trust it."""
    if attributor.capabilities.dual:
        if attributor.task_.of_documents:
            return f"whence explain {out} --trust --prompt TEXT --out why, or whence serve {out} --trust"
        if has_tests:
            return f"whence serve {out} --trust"
        return f"whence audit {out} --trust" if attributor.task_.has_classes else ""
    return f"whence attribute {out} --trust --tests 0" if has_tests else ""


def describe(attributor: Any) -> list[str]:
    """Return what a fit learned, one line per fact."""
    seconds, origins = attributor.seconds_, attributor.origins_
    task, can = attributor.task_, attributor.capabilities
    n, (n_outputs, d) = attributor.n_train_, attributor.head_.weight.shape
    extractor, skipped = attributor.fitted_.require_model().extractor, attributor.skipped_.tolist()
    layers = extractor.layers
    width = d if layers is None else layers.widths[-1]
    outputs = "one logit of two classes" if task.paired else counted(n_outputs, task.output, task.outputs)
    lines = [f"Head         {extractor.layer!r}, {width} features to {outputs}"]
    if layers is not None:
        parts = zip(layers.places, layers.widths, strict=True)
        lines.append("Layers       " + ", ".join(f"{name!r} {width:,}" for name, width in parts))
    lines.append(
        f"Features     {n - len(skipped):,} rows × {d}, {origins['features']}, {seconds['features']:.1f} s"
        + (
            ""
            if attributor.fitted_.surrogate is None
            else f"; read {attributor.surrogate_.metric.description}"
        )
    )
    if skipped:
        places = ", ".join(map(str, skipped[:10])) + (" …" if len(skipped) > 10 else "")
        lines.append(f"Skipped      {counted(len(skipped), 'sample')} that could not be read: {places}")
    solved = f"{origins['solution']}, {seconds['solution']:.1f} s"
    if can.members:
        kinds = ", ".join(sorted({type(member).__name__ for member in attributor.members_}))
        lines.append(f"Members      {len(attributor.members_)} of {kinds}; the head above is the first one's")
    if not (can.dual or can.effects):
        return [*lines, f"Method       {type(attributor).__name__}, {solved}"]
    given = "by the length of the features" if attributor.C == "auto" else "as given"
    why = given if attributor.C_path_ is None else attributor.C_path_.reason
    epsilon = getattr(task, "epsilon", None)
    tube = "" if epsilon is None else f", ε {epsilon:g} standard deviations"
    support, effect = len(attributor.support_), attributor.effect_
    lines += [
        f"C            {attributor.C_:.3g}{tube}, {why}",
        f"Solution     gap {attributor.gap_:.1e}, {solved}",
        f"Support      {support:,} of {counted(n, 'sample')} ({support / n:.1%})",
    ]
    if effect is not None:
        lines.append(f"Effects      {effect.description}, of {counted(len(attributor.scoring_), 'sample')}")
    if attributor.agreement_ is not None:
        share = f"{attributor.agreement_:.2%}"
        if task.label_kind == "number":
            share = f"{task.measures[0]} {attributor.agreement_:.4f}"
        lines.append(
            f"Agreement    {share} with the model, on training samples that had no part in choosing C"
        )
    return lines


@contextmanager
def _about_test() -> Iterator[None]:
    """Say of errors that they are about the test set: where they arise, every set is called 'data'."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"In the samples of 'test': {error}") from error


def update(
    saved: Saved, add: str | None, remove: str | None, relabel: Sequence[str], out: Path | None
) -> None:
    """Change what the options name, and write the explainer and its configuration to ``out``, or in place."""
    out = saved.explainer if out is None else out
    check_file(out)
    project = saved.open()
    explainer, configuration = project.explainer, project.configuration
    labels = dict(_read_label(text, explainer.task_) for text in relabel)
    places = [] if remove is None else _removed(explainer, numbers(remove, "remove"))
    added = None
    if add is not None:
        network = explainer.fitted_.require_model().extractor.model
        data = make_named("add", add, project.path.resolve().parent)
        options = network, explainer.batch_size, explainer.task_
        added = project.bank_of(configuration.added(explainer.fitted_.require_data(), data, *options))
        configuration = dataclasses.replace(configuration, data=f"{configuration.data}+{add}")
    explainer.update(add=added, remove=places, relabel=labels, features=project.train_bank)
    say(f"Changed      {explainer.history_[-1]}")
    for line in describe(explainer):
        say(line)
    _save(explainer, configuration, out)


def _removed(explainer: DualDA, named: list[int]) -> list[int]:
    """Return the samples to remove: those that are named; for a language model all places of documents."""
    corpus = explainer.fitted_.require_data().corpus
    if corpus is None:
        return named
    places = corpus.of_documents(named)
    left: list[int] = places[explainer.used_[places]].tolist()
    if not left:
        raise InvalidInputError(
            f"'remove' must name documents that are not left out already. Got {', '.join(map(str, named))}."
        )
    return left


def _read_label(text: str, task: Task) -> tuple[int, int]:
    """Read PLACE=CLASS, the class by its number or its name."""
    place, sign, label = text.partition("=")
    if not sign or not place.strip().isdecimal():
        raise InvalidInputError(f"--relabel must be PLACE=CLASS, such as 7=2. Got {text!r}.")
    number = as_class(label.strip(), task, "relabel")
    assert number is not None
    return int(place), number
