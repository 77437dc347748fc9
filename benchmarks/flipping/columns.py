"""Results of a task: a column per way to measure, a row per method, with ranks and ties."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from whence_studies.comparison import standard_error, ties


class Column(NamedTuple):
    """Values (method, pair) of one way to measure, the test (pair,) of each, and whether low is good."""

    values: np.ndarray
    tests: np.ndarray
    low: bool

    @property
    def badness(self) -> np.ndarray:
        """Mean of each method, (method,), lower is better."""
        mean: np.ndarray = self.values.mean(1)
        return mean if self.low else -mean


class Task(NamedTuple):
    """A data set and a question, with its columns by name and what else is known."""

    name: str
    methods: tuple[str, ...]
    columns: dict[str, Column]
    facts: dict[str, Any]

    def ranks(self, methods: list[str]) -> np.ndarray:
        """Mean rank of each of some methods among them, (method,), 1 is best."""
        rows = [self.methods.index(method) for method in methods]
        return np.mean([rankdata(column.badness[rows]) for column in self.columns.values()], axis=0)

    def of_tests(self, begin: int, end: int) -> Task:
        """Return the results on some of the tests."""
        columns = {}
        for name, (values, tests, low) in self.columns.items():
            chosen = (tests >= begin) & (tests < end)
            columns[name] = Column(values[:, chosen], tests[chosen], low)
        return self._replace(columns=columns)

    def table(self) -> str:
        """Write means with their standard errors; the best of each column and its ties in bold."""
        facts = ", ".join(f"{key} {value:.3g}" for key, value in self.facts.items())
        lines = [
            f"**{self.name}** ({facts})\n",
            f"| method | {' | '.join(self.columns)} |",
            f"|---|{'---|' * len(self.columns)}",
        ]
        marks = {name: ties(column.values, column.tests) for name, column in self.columns.items()}
        for m, method in enumerate(self.methods):
            entries = []
            for name, column in self.columns.items():
                error = standard_error(column.values, column.tests)[m]
                text = f"{column.values[m].mean():.3f} ± {error:.3f}"
                best = int(np.argmin(column.badness))
                entries.append(f"**{text}**" if marks[name][m, best] else text)
            lines.append(f"| {method} | {' | '.join(entries)} |")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types that JSON takes."""
        columns = {
            name: {"values": column.values.tolist(), "tests": column.tests.tolist(), "low": column.low}
            for name, column in self.columns.items()
        }
        facts = {key: float(value) for key, value in self.facts.items()}
        return {"name": self.name, "methods": list(self.methods), "columns": columns, "facts": facts}

    def summary(self) -> dict[str, Any]:
        """Means and standard errors of each method by column, with what else is known."""
        found: dict[str, Any] = {"facts": self.facts, "columns": {}}
        for name, column in self.columns.items():
            errors = standard_error(column.values, column.tests)
            both = zip(column.values.mean(1).round(5), errors.round(5), strict=True)
            found["columns"][name] = dict(zip(self.methods, map(list, both), strict=True))
        return found

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Task:
        """Read what ``to_dict`` gave."""
        columns = {
            name: Column(np.array(one["values"]), np.array(one["tests"]), one["low"])
            for name, one in stored["columns"].items()
        }
        return cls(stored["name"], tuple(stored["methods"]), columns, stored["facts"])


def counted(task: Task, ours: str, other: str) -> tuple[int, int, int]:
    """Count columns where a method is better than another, worse, and tied with it."""
    a, b = task.methods.index(ours), task.methods.index(other)
    found = [0, 0, 0]
    for column in task.columns.values():
        tied = ties(column.values[[a, b]], column.tests)[0, 1]
        found[2 if tied else int(column.badness[a] > column.badness[b])] += 1
    return found[0], found[1], found[2]


def verdict(tasks: list[Task], ours: str, other: str) -> str:
    """Say where a method is better, worse and tied, and whether the protocol's rule is met."""
    counts = {task.name: counted(task, ours, other) for task in tasks}
    better, worse = (sum(each[i] for each in counts.values()) for i in (0, 1))
    met = better > worse and all(each[0] >= each[1] for each in counts.values())
    parts = [f"{name} {b} better, {w} worse, {t} tied" for name, (b, w, t) in counts.items()]
    return f"{'; '.join(parts)}. The rule is {'' if met else 'not '}met."
