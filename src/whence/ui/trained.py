"""The training samples of the explorer: lists, search, and samples whose labels may be wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from whence.core.arrays import Ints
from whence.data.items import split
from whence.errors import InvalidInputError
from whence.project import Project
from whence.surrogate.identity import check_training
from whence.ui.requests import Answer, TrainingFilters, WantedTraining
from whence.ui.solved import Surrogates
from whence.ui.tested import samples_of

_NEIGHBOURS = 5  # shown per sample in the audit queue
_PLACES = re.compile(r"\s*\d{1,9}(\s*[-–]\s*\d{1,9})?(\s*[,;\s]\s*\d{1,9}(\s*[-–]\s*\d{1,9})?)*\s*")


class Trained:
    """The training set that the explainer was fitted on."""

    def __init__(self, project: Project, solved: Surrogates) -> None:
        self.project, self.solved = project, solved

    def samples(self, indices: Sequence[int]) -> list[Answer]:
        """Return training samples for lists, after a check that the explainer was fitted on them."""
        explainer = self.project.explainer
        data, model = explainer.fitted_.require_data(), explainer.fitted_.require_model()
        for start in range(0, len(indices), explainer.batch_size):
            rows = list(indices[start : start + explainer.batch_size])
            features = model.read_batch(data.take(rows)).features
            check_training(explainer.surrogate_, features.float().cpu().numpy(), np.asarray(rows), "data")
        return samples_of(self.project, data, indices)

    def rows(self, wanted: WantedTraining) -> Answer:
        """Return a page of the matching training samples."""
        places = self.fitting(wanted)
        page = places[wanted.offset : wanted.offset + wanted.limit].tolist()
        labels, supports = self.project.explainer.labels_, set(self.project.explainer.support_.tolist())
        rows = [
            {"index": index, "label": int(labels[index]), "support": index in supports, "sample": sample}
            for index, sample in zip(page, self.samples(page), strict=True)
        ]
        return {"total": len(places), "rows": rows}

    def fitting(self, wanted: TrainingFilters) -> Ints:
        """Return the indices of the training samples that match, ascending.

        The search is indices such as ``3, 17, 40-60``, part of a class's name, or part of a text.
        """
        explainer = self.project.explainer
        fits, word = explainer.used_.copy(), wanted.search.strip().casefold()
        if wanted.label is not None:
            fits &= explainer.labels_ == wanted.label
        if wanted.slice is not None:
            within = np.zeros(len(fits), bool)
            within[self.project.work.members(wanted.slice, "training")] = True
            fits &= within
        if word and _PLACES.fullmatch(word):
            fits &= _listed(word, len(fits))
        elif word:
            names = np.array([word in name.casefold() for name in explainer.task_.output_names])
            matches = np.zeros(len(fits), bool)
            matches[fits] = names[explainer.labels_[fits]]
            if not names.any():
                matches |= self._containing(word, np.flatnonzero(fits))
            fits &= matches
        return np.flatnonzero(fits)

    def _containing(self, word: str, places: Ints) -> Any:
        """Return a mask (N,) of the training samples at these places whose text contains a word."""
        data = self.project.explainer.fitted_.require_data()
        matches = np.zeros(len(data), bool)
        for place in places.tolist():
            text = _text(split(data[place])[0])
            if text is None:  # then no sample is a text
                break
            matches[place] = word in text.casefold()
        return matches

    def suspects(self, offset: int, limit: int) -> Answer:
        """Return a page of the training samples whose labels may be wrong, the most suspicious first.

        ``disagreeing`` of the ``n_neighbours`` nearest training samples have another label; the first of
        them are shown. ``likely_wrong`` of the listed labels are more likely wrong than right.
        """
        ranking = self.solved.wrong_labels.result()
        labels, page = self.project.explainer.labels_, range(len(ranking))[offset : offset + limit]
        nearest = {j: [int(i) for i in ranking.neighbours[j] if i >= 0] for j in page}
        shown = {j: nearest[j][:_NEIGHBOURS] for j in page}
        places = list(dict.fromkeys(chain(ranking.indices[page].tolist(), *shown.values())))
        samples = dict(zip(places, self.samples(places), strict=True))
        rows = [
            {
                "index": int(ranking.indices[j]),
                "label": int(ranking.labels[j]),
                "suggested": int(ranking.suggested[j]),
                "score": float(ranking.scores[j]),
                "disagreeing": len(nearest[j]),
                "sample": samples[int(ranking.indices[j])],
                "neighbours": shown[j],
                "neighbour_labels": labels[shown[j]].tolist(),
                "neighbour_samples": [samples[i] for i in shown[j]],
            }
            for j in page
        ]
        return {
            "total": len(ranking),
            "likely_wrong": int(ranking.likely.sum()),
            "threshold": float(ranking.scores[ranking.likely].min()) if ranking.likely.any() else None,
            "ranking": "log-odds" if ranking.ranking == "odds" else ranking.ranking.replace("_", " "),
            "n_neighbours": ranking.neighbours.shape[1],
            "rows": rows,
        }


def _listed(words: str, n: int) -> Any:
    """Return a mask (n,) of the indices in a list such as ``3, 17, 40-60``."""
    fits = np.zeros(n, bool)
    for first, last in re.findall(r"(\d+)(?:\s*[-–]\s*(\d+))?", words):
        a, b = int(first), int(last or first)
        if b < a:
            raise InvalidInputError(f"'search' must have ascending ranges. Got {first}-{last}.")
        fits[a : b + 1] = True
    return fits


def _text(inputs: Any) -> str | None:
    """Return the text of a sample's raw inputs; None if they have none."""
    parts = inputs.values() if isinstance(inputs, dict) else [inputs]
    return "\n".join(part for part in parts if isinstance(part, str)) or None
