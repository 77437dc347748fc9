"""What ``whence update`` does: change the training set of a saved explainer, and save it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from whence.app.fit import describe
from whence.app.opening import Saved, as_class, numbers
from whence.app.outputs import check_file, write_out
from whence.app.telling import say
from whence.core.naming import find
from whence.core.resources import in_words
from whence.errors import InvalidInputError
from whence.project import SUFFIX
from whence.tasks import Task


def run(saved: Saved, add: str | None, remove: str | None, relabel: Sequence[str], out: Path | None) -> None:
    """Change what the options name, and write the explainer and its configuration to ``out``, or in place."""
    out = saved.explainer if out is None else out
    check_file(out)
    project = saved.open()
    explainer, configuration = project.explainer, project.configuration
    labels = dict(_relabelled(text, explainer.task_) for text in relabel)
    places = [] if remove is None else numbers(remove, "remove")
    added = None
    if add is not None:
        network = explainer.require_model().extractor.model
        found = find("add", add, project.path.resolve().parent)
        added = project.bank_of(configuration.samples(found, network, explainer.batch_size, explainer.task_))
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


def _relabelled(text: str, task: Task) -> tuple[int, int]:
    """Read PLACE=CLASS, the class by its number or its name."""
    place, sign, label = text.partition("=")
    if not sign or not place.strip().isdecimal():
        raise InvalidInputError(f"--relabel must be PLACE=CLASS, such as 7=2. Got {text!r}.")
    found = as_class(label.strip(), task, "relabel")
    assert found is not None
    return int(place), found
