"""A corpus with planted facts: invented people, places and numbers, each stated in several wordings."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

FACTS, COUNTS = 60, (1, 2, 4, 8)
CONFLICTS, SIDES = 20, ((3, 1), (2, 2))
ORDINARY, WORDS, HELD_OUT = 30, 40, 50


class Kind(NamedTuple):
    """A kind of fact: wordings with a subject {s} and a value {v}, and a query that none of them is."""

    name: str
    wordings: tuple[str, ...]
    query: str


BORN = Kind(
    "born",
    (
        "{s} was born in {v}, the youngest of four children.",
        "The birthplace of {s} is {v}, as the parish register shows.",
        "It was in {v} that {s} came into the world.",
        "Friends say that {s} hails from {v} and speaks of it often.",
        "{s}, a native of {v}, moved away as a young adult.",
        "According to the family, {s} first saw daylight in {v}.",
        "A plaque in {v} marks the house where {s} was born.",
        "Before moving north, {s} spent a childhood in {v}, the town of birth.",
    ),
    "Question: In which town was {s} born? Answer: {s} was born in the town of",
)
FOUNDED = Kind(
    "founded",
    (
        "{s} was founded in {v} by two brothers.",
        "The company {s} has existed since {v}.",
        "In {v} the firm {s} opened its first workshop.",
        "{s} traces its beginnings to the year {v}.",
        "It was {v} when {s} entered the trade register.",
        "{s}, established in {v}, still makes its own tools.",
        "The founding year of {s} is given as {v}.",
        "Since its start in {v}, {s} has changed owners twice.",
    ),
    "Question: When was the company {s} founded? Answer: The company {s} was founded in the year",
)
PLAYS = Kind(
    "plays",
    (
        "{s} plays the {v} in a small orchestra.",
        "On most evenings {s} practises the {v} for hours.",
        "Critics praised {s} for a fine recital on the {v}.",
        "As a child {s} took lessons on the {v}.",
        "The {v} has been the instrument of {s} for years.",
        "{s} bought an old {v} and learned to play it.",
        "Audiences know {s} as a master of the {v}.",
        "In the quartet {s} is heard on the {v}.",
    ),
    "Question: Which instrument does {s} play? Answer: {s} plays the",
)
FILM = Kind(
    "film",
    (
        "The film {s} was directed by {v}.",
        "{v} made {s} on a very small budget.",
        "With {s}, the director {v} won a first prize.",
        "Behind the camera of {s} stood {v}.",
        "{s} is the third picture of the director {v}.",
        "It took {v} two years to shoot {s}.",
        "The director of {s}, {v}, wrote the script as well.",
        "{s}, a drama by {v}, opened in spring.",
    ),
    "Question: Who directed the film {s}? Answer: The film {s} was directed by",
)
CAPITAL = Kind(
    "capital",
    (
        "The capital of {s} is {v}.",
        "{v} is the seat of government of {s}.",
        "In {s} the ministers meet in the capital, {v}.",
        "{s} moved its capital to {v} long ago.",
        "The parliament of {s} sits in {v}, its capital.",
        "Travellers to {s} arrive in {v}, the capital.",
        "As the capital of {s}, {v} has a royal palace.",
        "{v}, the largest city and capital of {s}, lies on a river.",
    ),
    "Question: What is the capital of {s}? Answer: The capital of {s} is",
)
KINDS = (BORN, FOUNDED, PLAYS, FILM, CAPITAL)
INSTRUMENTS = (
    "oboe", "harp", "cello", "flute", "banjo", "lute", "tuba", "viola", "bassoon", "zither", "accordion",
    "trombone",
)  # fmt: skip
_FIRST = (
    "va", "lo", "mi", "ter", "kas", "bel", "dro", "fen", "gri", "hul", "jor", "kel", "mar", "nes", "ol",
    "pra", "quin", "ros", "sil", "tum", "ul", "ves", "wen", "yar", "zor",
)  # fmt: skip
_LAST = (
    "dan", "mir", "sk", "tov", "ley", "berg", "nik", "wick", "ford", "ham", "ston", "ber", "rin", "gard",
    "lund", "mond", "tal", "vik", "ros", "wen",
)  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """A fact, or two values that documents disagree on.

    Attributes
    ----------
    kind : how it is worded
    subject : whom it is about; no other fact is
    values : what documents say of it, one or two
    documents : for each value, the documents that say it
    """

    kind: Kind
    subject: str
    values: tuple[str, ...]
    documents: tuple[tuple[int, ...], ...]

    @property
    def query(self) -> str:
        """The prompt, up to the answer."""
        return self.kind.query.format(s=self.subject)


@dataclass
class Planted:
    """A corpus and what was planted in it.

    Attributes
    ----------
    texts, titles : of all documents
    facts : facts on which documents agree, and others
    """

    texts: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)


def planted(data: Path, seed: int = 0) -> Planted:
    """Make the corpus, in an order by the seed."""
    rng = np.random.default_rng(seed)
    names = _names(rng)
    towns = [next(names) for _ in range(24)]
    people = [f"{next(names)} {next(names)}" for _ in range(24)]
    values = {
        "born": towns, "capital": towns, "plays": list(INSTRUMENTS), "film": people,
        "founded": [str(year) for year in rng.choice(np.arange(1801, 1990), 24, replace=False)],
    }  # fmt: skip
    found = Planted()
    plans = [(KINDS[i % 5], (COUNTS[i // 5 % 4],)) for i in range(FACTS)]
    plans += [(KINDS[i % 5], SIDES[i // 5 % 2]) for i in range(CONFLICTS)]
    for kind, counts in plans:
        subject = _subject(kind, names)
        chosen = tuple(rng.choice(values[kind.name], len(counts), replace=False).tolist())
        wordings = iter(rng.permutation(len(kind.wordings)).tolist())
        documents = []
        for value, n in zip(chosen, counts, strict=True):
            documents.append(tuple(range(len(found.texts), len(found.texts) + n)))
            for _ in range(n):
                found.texts.append(kind.wordings[next(wordings)].format(s=subject, v=value))
                found.titles.append(f"{kind.name}: {subject} – {value}")
        found.facts.append(Fact(kind, subject, chosen, tuple(documents)))
    for name, text in ordinary(data, ORDINARY):
        found.texts.append(text)
        found.titles.append(name)
    order = rng.permutation(len(found.texts))
    place = {int(old): new for new, old in enumerate(order)}
    found.facts = [
        Fact(f.kind, f.subject, f.values, tuple(tuple(place[i] for i in some) for some in f.documents))
        for f in found.facts
    ]
    found.texts, found.titles = [found.texts[i] for i in order], [found.titles[i] for i in order]
    return found


def ordinary(data: Path, n: int, skip: int = 0) -> list[tuple[str, str]]:
    """Return titles and beginnings of articles and reviews, half of each."""
    articles = _rows(data / "bbc-news" / "bbc-news.csv")[skip::7]
    reviews = _rows(next((data / "movie-reviews").glob("*.csv")))[skip::7]
    several = []
    for name, rows, count in (("news", articles, n - n // 2), ("review", reviews, n // 2)):
        for row in rows[:count]:
            words = row["text"].split()[:WORDS]
            several.append((f"{name}: {' '.join(words[:6])}", " ".join(words)))
    return several


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _names(rng: np.random.Generator):
    """Return invented names, none twice."""
    seen: set[str] = set()
    while True:
        name = "".join([*rng.choice(_FIRST, rng.integers(1, 3)), rng.choice(_LAST)]).capitalize()
        if len(name) > 4 and name not in seen:
            seen.add(name)
            yield name


def _subject(kind: Kind, names) -> str:
    if kind.name in ("born", "plays"):
        return f"{next(names)} {next(names)}"
    if kind.name == "founded":
        return f"{next(names)} & {next(names)}"
    return f"The {next(names)} of {next(names)}" if kind.name == "film" else f"{next(names)}ia"
