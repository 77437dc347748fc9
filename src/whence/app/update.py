"""What ``whence update`` does: change the training set of a saved explainer, and save it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from whence.app.fit import describe
from whence.app.opening import Saved, as_class, numbers
from whence.app.outputs import check_file, write_out
from whence.app.telling import say
from whence.core.display import in_words
from whence.core.naming import make_named
from whence.errors import InvalidInputError
from whence.methods import DualDA
from whence.project import SUFFIX
from whence.tasks import Task


def run(saved: Saved, add: str | None, remove: str | None, relabel: Sequence[str], out: Path | None) -> None:
    """Change what the options name, and write the explainer and its configuration to ``out``, or in place."""
    out = saved.explainer if out is None else out
    check_file(out)
    project = saved.open()
    explainer, configuration = project.explainer, project.configuration
    labels = dict(_relabelled(text, explainer.task_) for text in relabel)
    places = [] if remove is None else _removed(explainer, numbers(remove, "remove"))
    added = None
    if add is not None:
        network = explainer.require_model().extractor.model
        found = make_named("add", add, project.path.resolve().parent)
        options = network, explainer.batch_size, explainer.task_
        added = project.bank_of(configuration.added(explainer.require_data(), found, *options))
        configuration = dataclasses.replace(configuration, data=f"{configuration.data}+{add}")
    explainer.update(add=added, remove=places, relabel=labels, features=project.train_bank)
    say(f"Changed      {explainer.history_[-1]}")
    for line in describe(explainer):
        say(line)

    def save(path: Path) -> None:
        explainer.save(path)
        configuration.write(path)

    write_out(out, save)
    say(f"Saved        {out}, {in_words(out.stat().st_size)}, and {out.name}{SUFFIX}")


def _removed(explainer: DualDA, named: list[int]) -> list[int]:
    """Return the samples to leave out: those that are named; of a language model all places of documents."""
    corpus = explainer.require_data().corpus
    if corpus is None:
        return named
    places = corpus.of_documents(named)
    found: list[int] = places[explainer.used_[places]].tolist()
    if not found:
        raise InvalidInputError(
            f"'remove' must name documents that are not left out already. Got {', '.join(map(str, named))}."
        )
    return found


def _relabelled(text: str, task: Task) -> tuple[int, int]:
    """Read PLACE=CLASS, the class by its number or its name."""
    place, sign, label = text.partition("=")
    if not sign or not place.strip().isdecimal():
        raise InvalidInputError(f"--relabel must be PLACE=CLASS, such as 7=2. Got {text!r}.")
    found = as_class(label.strip(), task, "relabel")
    assert found is not None
    return int(place), found
