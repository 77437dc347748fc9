"""The training samples of the explorer: to look at, to look for, and those whose labels may be wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from whence.audit import WrongLabels
from whence.core.arrays import Ints
from whence.data.items import split
from whence.errors import InvalidInputError
from whence.project import Project
from whence.ui import schema
from whence.ui.solved import Solved
from whence.ui.tested import samples_of

_NEIGHBOURS = 5  # shown of a sample in the audit queue
_PLACES = re.compile(r"\s*\d{1,9}(\s*[-–]\s*\d{1,9})?(\s*[,;\s]\s*\d{1,9}(\s*[-–]\s*\d{1,9})?)*\s*")


class Trained:
    """The training set that was fitted, sample by sample."""

    def __init__(self, project: Project, solved: Solved) -> None:
        self.project, self.solved = project, solved

    def samples(self, indices: Sequence[int]) -> list[Any]:
        """Training samples to look at, which must be those that were fitted."""
        explainer = self.project.explainer
        data, model = explainer.require_data(), explainer.require_model()
        for start in range(0, len(indices), explainer.batch_size):
            rows = list(indices[start : start + explainer.batch_size])
            found = model.read_batch(data.take(rows)).features
            explainer.surrogate_.check_training(found.float().cpu().numpy(), np.asarray(rows), "data")
        return samples_of(self.project, data, indices)

    def rows(self, wanted: schema.WantedTraining) -> schema.TrainingRows:
        """A page of the training samples that fit."""
        places = self.fitting(wanted.label, wanted.search)
        page = places[wanted.offset : wanted.offset + wanted.limit].tolist()
        labels, supports = self.project.explainer.labels_, set(self.project.explainer.support_.tolist())
        rows = [
            schema.TrainingRow(
                index=index, label=int(labels[index]), support=index in supports, sample=sample
            )
            for index, sample in zip(page, self.samples(page), strict=True)
        ]
        return schema.TrainingRows(total=len(places), rows=rows)

    def fitting(self, label: int | None, search: str) -> Ints:
        """Places of the training samples with a label that a search finds, ascending.

        The search is places such as ``3, 17, 40-60``, a part of a class's name, or of a text.
        """
        explainer = self.project.explainer
        fits, word = explainer.used_.copy(), search.strip().casefold()
        if label is not None:
            fits &= explainer.labels_ == label
        if word and _PLACES.fullmatch(word):
            fits &= _listed(word, len(fits))
        elif word:
            names = np.array([word in name.casefold() for name in explainer.task_.output_names])
            found = np.zeros(len(fits), bool)
            found[fits] = names[explainer.labels_[fits]]
            if not names.any():
                found |= self._saying(word, np.flatnonzero(fits))
            fits &= found
        return np.flatnonzero(fits)

    def _saying(self, word: str, places: Ints) -> Any:
        """Which training samples (N,), of some, are texts that hold a word."""
        data = self.project.explainer.require_data()
        found = np.zeros(len(data), bool)
        for place in places.tolist():
            text = _text(split(data[place])[0])
            if text is None:  # other samples are no texts either
                break
            found[place] = word in text.casefold()
        return found

    def suspects(self, offset: int, limit: int) -> schema.Suspects:
        """A page of the training samples whose labels may be wrong, the most suspicious first."""
        found = self.solved.wrong_labels.result()
        chosen = slice(offset, offset + limit)
        indices, near = found.indices[chosen].tolist(), found.neighbours[chosen]
        nearest = [row[row >= 0][:_NEIGHBOURS].tolist() for row in near]
        wanted = list(dict.fromkeys(chain(indices, *nearest)))
        samples = dict(zip(wanted, self.samples(wanted), strict=True))
        rows = [
            schema.Suspect(
                index=index,
                label=int(found.labels[j]),
                suggested=int(found.suggested[j]),
                score=float(found.scores[j]),
                disagreeing=int((found.neighbours[j] >= 0).sum()),
                sample=samples[index],
                neighbours=row,
                neighbour_labels=self.project.explainer.labels_[row].tolist(),
                neighbour_samples=[samples[i] for i in row],
            )
            for j, (index, row) in enumerate(zip(indices, nearest, strict=True), offset)
        ]
        ranking = found.ranking.replace("_", " ")
        return schema.Suspects(
            total=len(found),
            found=int(likely_wrong(found).sum()),
            ranking=ranking,
            looked_at=near.shape[1],
            rows=rows,
        )


def likely_wrong(found: WrongLabels) -> Any:
    """Which of a ranking (n,) are likelier wrong than right: the odds are above 1, and for another class."""
    return (found.scores > 0) & (found.suggested != found.labels)


def _listed(words: str, n: int) -> Any:
    """Which of n places a list such as ``3, 17, 40-60`` names."""
    fits = np.zeros(n, bool)
    for first, last in re.findall(r"(\d+)(?:\s*[-–]\s*(\d+))?", words):
        a, b = int(first), int(last or first)
        if b < a:
            raise InvalidInputError(f"'search' must name ranges that ascend. Got {first}-{last}.")
        fits[a : b + 1] = True
    return fits


def _text(inputs: Any) -> str | None:
    """The text of a sample's inputs as its user has them; None where they have none."""
    parts = inputs.values() if isinstance(inputs, dict) else [inputs]
    return "\n".join(part for part in parts if isinstance(part, str)) or None
