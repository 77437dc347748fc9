"""What ``whence fit`` does: fit an explainer to a model and data that are named, and say what came out."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whence import __version__
from whence.app.opening import Fit
from whence.app.outputs import check_file, write_out
from whence.app.telling import say, show_progress
from whence.attribution.surrogate_attributor import SurrogateAttributor
from whence.core.cache import Cache
from whence.core.checks import check_choice
from whence.core.display import counted, in_words
from whence.core.naming import make_named
from whence.data import Corpus
from whence.errors import InvalidInputError
from whence.explanation.trace import Bands
from whence.features import as_float32, extract, taken
from whence.methods import Attributor, DualDA, Ensemble
from whence.model.layers import WORDS
from whence.project import NAMES, READING, SUFFIX, Configuration
from whence.tasks import Task, Tokens


def command(wanted: Fit, given: Collection[str]) -> None:
    """Fit what the command line names, or what a configuration does, which leaves nothing but names to it.

    Parameters
    ----------
    wanted
        The options.
    given
        Which of them are on the command line; the others have their defaults.
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
        made = Configuration(wanted.model, wanted.data, reading=reading, version=__version__)
        made = made.with_names(**names, layer=wanted.layer, device=wanted.device)
        made = dataclasses.replace(made, options=_options(made.attributor(), wanted, given))
    else:
        known = {"out", "config", "trust", "engine", "address", "features", "causal", *names}
        extra = sorted(set(given) - known)
        if extra:
            raise InvalidInputError(
                f"--config must come without other options of the fit. Got {', '.join(extra)} too. "
                "Change them in the file."
            )
        made = Configuration.trusted(wanted.config, names, trust=wanted.trust)
    run(made, wanted.out, features=wanted.features, show_progress=show_progress(), say=say)


def _options(method: type[Attributor], wanted: Fit, given: Collection[str]) -> dict[str, Any]:
    """Return the options that a method has: those on the command line, the others by its own defaults."""
    known = inspect.signature(method).parameters
    options = {name: getattr(wanted, name) for name in ("C", "layers", "tol", "seed", "batch_size")}
    options |= {"C": _number(wanted.C), "layers": _layers(wanted.layers)}
    extra = [name for name in options if name in given and name not in known]
    if extra:
        raise InvalidInputError(f"'{extra[0]}' must be left out: {method.__name__} has no such option.")
    chosen = {
        name: options[name] if name in given else known[name].default for name in options if name in known
    }
    return chosen | _own_options(method, wanted.option or [], known.keys() - options.keys() - {"device"})


def _own_options(method: type[Attributor], told: Collection[str], known: Collection[str]) -> dict[str, Any]:
    """Read NAME=VALUE of options that a method has of its own; values are JSON where they can be."""
    found = {}
    for text in told:
        name, sign, value = text.partition("=")
        if not sign or name not in known:
            raise InvalidInputError(
                f"--option must be NAME=VALUE of {method.__name__}: {', '.join(sorted(known))}. Got {text!r}."
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def run(
    configuration: Configuration,
    out: Path,
    *,
    features: str = "copy",
    show_progress: bool,
    say: Callable[[str], None],
) -> None:
    """Fit a method and save it, with its configuration beside it.

    Parameters
    ----------
    configuration
        What to fit, and how.
    out
        File to save to.
    features
        As for ``DualDA.save``.
    show_progress
        Whether long steps show their progress.
    say
        Receives one line of text for each fact.
    """
    kept = {} if features == "copy" else {"features": features}
    if kept:
        _check_bank(configuration)
    folder = out.resolve().parent
    network = configuration.network(folder)
    several = "+" in configuration.data
    samples = (
        configuration.training(network, folder) if several else make_named("data", configuration.data, folder)
    )
    if (task := configuration.chosen_task()) is not None and task.of_documents:
        samples = samples.corpus if several else configuration.corpus(samples)
    tests = None if configuration.test is None else make_named("test", configuration.test, folder)
    reading = configuration.reading
    form = {} if several else {"preprocess": configuration.prepare(), "tokenizer": configuration.spelling()}
    if isinstance(samples, Corpus):
        form.pop("tokenizer", None)  # which it has
    attributor = configuration.attributor()(**configuration.options)
    attributor.show_progress = show_progress
    held_out = None
    if tests is not None:
        with _about_test():
            held_out = configuration.samples(tests, network, attributor.batch_size)
    task = None if several else configuration.chosen_task()
    attributor.fit(network, samples, layer=configuration.layer, task=task, **form, **reading)
    for line in describe(attributor):
        say(line)

    # Before the test, whose samples may have faults of their own.
    def save(path: Path) -> None:
        attributor.save(path, **kept)
        configuration.write(path)

    write_out(out, save)
    say(f"Saved        {out}, {in_words(out.stat().st_size)}, and {out.name}{SUFFIX}")
    if held_out is not None and attributor.task_.of_documents:
        if isinstance(attributor, DualDA):
            say(f"Faithfulness {_by_frequency(attributor.faithfulness_by_frequency(held_out.source))}")
    elif held_out is not None and isinstance(attributor, SurrogateAttributor):
        started = time.perf_counter()
        with _about_test():
            held_out = configuration.samples(tests, network, attributor.batch_size, attributor.task_)
            bank = extract(
                attributor.require_model().extractor.model,
                held_out,
                layer=configuration.layer,
                layers=attributor.layers_,
                show_progress=show_progress,
                **reading,
            )
        faith = attributor.faithfulness_features(taken(as_float32(bank.features), bank.valid))
        first, second = attributor.task_.measures
        said = f"{first} {faith.agreement:.4f} with the model, {second} {faith.logit_cosine:.4f}"
        if faith.mcc is not None:
            said = f"{faith.agreement:.2%} agreement with the model, MCC {faith.mcc:.4f}"
        seen = f"{counted(faith.n_tests, 'held-out sample')}, {time.perf_counter() - started:.1f} s"
        say(f"Faithfulness {said}, on {seen}")
    # Its configuration names code, and this fit ran it: the one who reads this line may trust it.
    if isinstance(attributor, DualDA):
        if attributor.task_.of_documents:
            said = f"{shlex.quote(str(out))} --trust --prompt TEXT --out why"
            say(f"Next         whence explain {said}, or whence serve {shlex.quote(str(out))} --trust")
        elif held_out is not None:
            say(f"Next         whence serve {shlex.quote(str(out))} --trust")
        elif attributor.task_.has_classes:
            say(f"Next         whence audit {shlex.quote(str(out))} --trust")
    elif held_out is not None:
        say(f"Next         whence attribute {shlex.quote(str(out))} --trust --tests 0")
    cache_dir = reading.get("cache_dir")
    if cache_dir is not None:
        entries = Cache(cache_dir).entries()
        size = in_words(sum(entry.bytes for entry in entries))
        say(f"Cache        {cache_dir}, {counted(len(entries), 'entry', 'entries')}, {size}")


def _check_bank(configuration: Configuration) -> None:
    """Raise where nothing could be saved that names a bank, before anything is computed."""
    method = configuration.attributor()
    if not issubclass(method, SurrogateAttributor):
        raise InvalidInputError(
            f"--features must be copy: {method.__name__} has no support vectors, as DualDA and Effects do."
        )
    if configuration.reading.get("cache_dir") is None:
        raise InvalidInputError("--features bank must come with a cache. Leave --no-cache out.")


def describe(attributor: Attributor) -> list[str]:
    """Say what a fit found, one line per fact."""
    head, seconds, origins = attributor.head_, attributor.seconds_, attributor.origins_
    assert head is not None
    n, (n_classes, d) = attributor.n_train_, head.weight.shape
    extractor, skipped = attributor.require_model().extractor, attributor.skipped_.tolist()
    layers = extractor.layers
    own = d if layers is None else layers.widths[-1]
    task = attributor.task_
    lines = [f"Head         {extractor.layer!r}, {own} features to {_outputs(task, n_classes)}"]
    if layers is not None:
        parts = zip(layers.names, layers.widths, strict=True)
        lines.append("Layers       " + ", ".join(f"{name!r} {width:,}" for name, width in parts))
    lines += [
        f"Features     {n - len(skipped):,} rows × {d}, {origins['features']}, {seconds['features']:.1f} s"
        + (", read at unit length" if getattr(attributor, "normalise", False) else ""),
    ]
    if skipped:
        shown = ", ".join(map(str, skipped[:10])) + (" …" if len(skipped) > 10 else "")
        lines.append(f"Skipped      {counted(len(skipped), 'sample')} that could not be read: {shown}")
    solved = f"{origins['solution']}, {seconds['solution']:.1f} s"
    if isinstance(attributor, Ensemble):
        of = ", ".join(sorted({type(member).__name__ for member in attributor.members_}))
        lines.append(f"Members      {len(attributor.members_)} of {of}; the head above is the first one's")
    if not isinstance(attributor, SurrogateAttributor):
        return [*lines, f"Method       {type(attributor).__name__}, {solved}"]
    given = "by the length of the features" if attributor.C == "auto" else "as given"
    why = given if attributor.C_path_ is None else attributor.C_path_.reason
    support = len(attributor.support_)
    lines += [
        f"C            {attributor.C_:.3g}{_tube(task)}, {why}",
        f"Solution     gap {attributor.gap_:.1e}, {solved}",
        f"Support      {support:,} of {counted(n, 'sample')} ({support / n:.1%})",
    ]
    if attributor.foretold_ is not None:
        samples = counted(len(attributor.scoring_), "sample")
        lines.append(f"Effects      {attributor.foretold_.description}, of {samples}")
    if attributor.agreement_ is not None:
        share = f"{attributor.agreement_:.2%}"
        if task.label_kind == "number":
            share = f"{task.measures[0]} {attributor.agreement_:.4f}"
        lines.append(
            f"Agreement    {share} with the model, on training samples that had no part in choosing C"
        )
    return lines


def _outputs(task: Task, n: int) -> str:
    """Say what the head makes: classes, one logit of two, labels, or outputs."""
    return "one logit of two classes" if task.paired else counted(n, task.output, task.outputs)


def _by_frequency(bands: Bands) -> str:
    """Say how often the surrogate names the model's token, by how often that is in the corpus."""
    each = [(band.agreement, band.name) for band in bands.bands if band.agreement is not None]
    told = ", ".join(f"{share:.1%} for tokens that are in it {name} times" for share, name in each)
    places = counted(bands.places, "place")
    return f"{bands.agreement:.2%} agreement with the model, on {places} of held-out documents: {told}"


def _tube(task: Task) -> str:
    """Say how wide the tube is, of a task that has one."""
    epsilon = getattr(task, "epsilon", None)
    return "" if epsilon is None else f", ε {epsilon:g} standard deviations"


def _number(text: str) -> float | str:
    """Read a number where there is one; DualDA refuses what it does not know."""
    try:
        return float(text)
    except ValueError:
        return text


def _layers(text: str) -> str | int | list[str]:
    """Read which layers: a word, a number, or names."""
    if text in WORDS:
        return text
    return int(text) if text.isdecimal() else [name.strip() for name in text.split(",")]


@contextmanager
def _about_test() -> Iterator[None]:
    """Say of errors that they are about the test set: where they arise, every set is called 'data'."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"In the samples of 'test': {error}") from error
