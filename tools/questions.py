"""The page of questions: a call, a number and a runner-up for each, and a heat map, from published results.

``python -m tools.questions`` fills docs/which.md and draws its figure.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from tools.published import DATA, DOCS, JOINED, PUBLISHED, number, together

from whence.pages.style import BLUE, INK
from whence_studies.report.nine import paper_columns
from whence_studies.report.summary import ResultSummary
from whence_studies.suite import results

_WRONG = "mislabeling_30_memorised"
_MARGIN = 0.01  # scores that are less apart from the best are grey


class Question(NamedTuple):
    """A question with the first method and the runner-up.

    Attributes
    ----------
    text, call : the question, and what to call
    metric, quantity : of which scores; metrics by data set if they differ
    methods : labels of the first and of the runner-up
    """

    text: str
    call: str
    metric: dict[str, str] | str
    quantity: str
    methods: tuple[str, str]


QUESTIONS = (
    Question(
        "What is this prediction made of? (share of tests with the model's class)",
        '`DualDA(metric="raw").explain(x)`',
        "faithfulness",
        "agreement",
        ("DualDA C by rule", "Representer Points of outputs"),
    ),
    Question(
        "What would change without a sample? (LDS, log-probability)",
        "`Effects().attribute(x)`",
        "lds_log_prob",
        "score",
        ("Effects", "EK-FAC"),
    ),
    Question(
        "Which samples are of the same kind? (right subclass among five)",
        '`DualDA(metric="unit", C=1e-4)`',
        "identical_subclass",
        "score",
        ("DualDA unit length C=1e-4", "GradCos"),
    ),
    Question(
        "Does the network follow a mark? (average precision)",
        "`methods.GradCos()`",
        "shortcut",
        "score",
        ("GradCos", "DualDA unit length C=1e-4"),
    ),
    Question(
        "Which labels are wrong? (area, 30 % wrong, trained to the end)",
        "`audit.wrong_labels`, which ranks by such margins",
        {"mnist": _WRONG, "fashion": _WRONG, "cifar10": "mislabeling"},
        "by_margin",
        ("DualDA unit length C=1e-2", "Effects, last layer"),
    ),
)
SHOWN = {
    "DualDA C=1e-3": "DualDA (raw, C = 1e-3)",
    "Representer Points": "Representer Points",
    "EK-FAC": "EK-FAC",
    "GradCos": "GradCos",
    "Effects, last layer": "Effects, last layer",
}


def questions() -> str:
    """Make the table of questions, in Markdown."""
    head = ["question", "call", *DATA.values(), "CPU-s", "runner-up", *DATA.values(), "CPU-s"]
    rows = [head, ["---"] * len(head)]
    for question in QUESTIONS:
        first, second = question.methods
        rows.append(
            [question.text, question.call, *_values(question, first), second, *_values(question, second)]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _values(question: Question, label: str) -> list[str]:
    """Return the numbers of a method on all data sets, and its seconds on Fashion-MNIST."""
    texts = [_value(data, question, label) for data in DATA]
    summary = together("study-fashion-all")
    method = next((m for m in summary.methods if m.label == label), None)
    seconds = summary.seconds(method) if method else 0.0
    if question.metric == "lds_log_prob":  # of 10,000 images: its own protocol has their costs
        seconds = _lds_seconds(label)
    return [*texts, f"{seconds:.3g}"]


def _lds_seconds(label: str) -> float:
    summary = ResultSummary(results.read(PUBLISHED / "study-fashion-lds.parquet", single=False))
    return summary.seconds(next(m for m in summary.methods if m.label == label))


def _value(data: str, question: Question, label: str) -> str:
    summary = together(f"study-{data}-all")
    metric = question.metric if isinstance(question.metric, str) else question.metric[data]
    method = next(m for m in summary.methods if m.label == label)
    value = summary.results.value(metric, method.key, question.quantity)
    if value is None:  # who has no margin is judged by self-influence
        value = summary.results.value(metric, method.key)
    if value is None:
        return "–"
    networks = [v for _, v in summary.curve(metric, method.key, "model")]
    spread = f" ({number(min(networks))} to {number(max(networks))})" if len(networks) > 1 else ""
    return number(value) + spread


def heat() -> dict[tuple[str, str], dict[str, float]]:
    """Return the scores of the shown methods by data set and column of the paper, by label."""
    found = {}
    for name, title in JOINED.items():
        summary = together(name)
        keys = {m.label: m.key for m in summary.methods}
        for column in paper_columns(summary, "accuracy"):
            scores = {label: column.scores.get(keys[label]) for label in SHOWN}
            left_out = {label for label in SHOWN if keys[label].split("(")[0] in column.without}
            sign = 1 if column.rising else -1
            competing = {label: value for label, value in scores.items() if label not in left_out}
            found[title, column.title] = {k: sign * v for k, v in competing.items() if v is not None}
    return found


def draw_heat(path: Path) -> None:
    """Draw the heat map: dark is the best of a column, grey is within .01 of it, white is the worst."""
    scores = heat()
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    panels = figure.subplots(1, len(JOINED), sharey=True)
    for axis, title in zip(panels, JOINED.values(), strict=True):
        columns = [column for data, column in scores if data == title]
        for x, column in enumerate(columns):
            values = scores[title, column]
            best, worst = max(values.values()), min(values.values())
            level = sum(best - v < _MARGIN for v in values.values()) > 1
            for y, label in enumerate(SHOWN):
                value = values.get(label)
                if value is None:
                    axis.text(x, y, "–", ha="center", va="center", fontsize=8, color=INK)
                    continue
                share = 1.0 if best == worst else (value - worst) / (best - worst)
                tied = level and best - value < _MARGIN
                colour, strength = ("#9a9a9a", 0.55) if tied else (BLUE, 0.08 + 0.8 * share)
                axis.add_patch(_square(x, y, colour, strength))
                shade = "white" if not tied and share > 0.6 else INK
                axis.text(x, y, number(abs(value)), ha="center", va="center", fontsize=8, color=shade)
        axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(SHOWN) - 0.5, -0.5))
        axis.set_xticks(range(len(columns)), columns, rotation=40, ha="right", fontsize=9)
        axis.set_yticks(range(len(SHOWN)), list(SHOWN.values()), fontsize=9)
        axis.set_title(title, loc="left", fontsize=11)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    figure.savefig(path, dpi=130)


def _square(x: int, y: int, colour: str, strength: float) -> Rectangle:
    return Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour, alpha=strength, lw=0)


def main() -> None:
    """Fill the table of the page, and draw its figure."""
    page = DOCS / "which.md"
    text = page.read_text(encoding="utf-8")
    filled = re.sub(
        r"(<!-- table questions -->).*?(<!-- end -->)", rf"\1\n\n{questions()}\n\n\2", text, flags=re.S
    )
    page.write_text(filled, encoding="utf-8")
    draw_heat(DOCS / "images" / "questions.png")


if __name__ == "__main__":
    main()
