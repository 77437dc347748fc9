"""The figure of an explanation. Matplotlib is imported here, and only when a figure is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from whence.explanation.record import Contribution, Explanation
    from whence.explanation.samples import Picture

BLUE, ORANGE = "#0072B2", "#D55E00"  # told apart by readers with any common colour vision deficiency
PALE_BLUE, PALE_ORANGE = "#B9D7E8", "#F3CDB2"
INK, GREY = "#1A1A1A", "#5F5F5F"


def draw(explanation: Explanation) -> Figure:
    """Draw one explanation: the test sample, its proponents and opponents, the balance of all evidence."""
    return _Drawing(explanation).figure


def signed(score: float) -> str:
    """Write a score with its sign and three digits that count: +1.23, −0.0450."""
    return f"{score:+#.3g}".replace("-", "−").rstrip(".")


def percent(share: float) -> str:
    """Write a share for reading; only exact certainty reads 100 %, only nothing reads 0 %.

    The space before the sign does not break.
    """
    if 0 < share < 0.0005:
        return "<0.1\u00a0%"
    if 0.9995 <= share < 1:
        return ">99.9\u00a0%"
    return f"{100 * share:.1f}\u00a0%"


def _short(name: str, length: int = 18) -> str:
    name = " ".join(name.split())
    return name if len(name) <= length else name[: length - 1] + "…"


class _Drawing:
    """One figure of one explanation, laid out in inches from the top left corner."""

    LEFT, TOP, TILE, COLUMN, ROW = 2.12, 0.34, 0.86, 1.06, 1.6

    def __init__(self, explanation: Explanation) -> None:
        from matplotlib.figure import Figure

        why = self.why = explanation
        k = max(len(why.proponents), len(why.opponents), 3)
        self.width = self.LEFT + (k - 1) * self.COLUMN + self.TILE + 0.12
        self.height = self.TOP + 2 * self.ROW + 0.35
        self.figure = Figure(figsize=(self.width, self.height), dpi=200, facecolor="white")
        self._test_sample()
        self._row(self.TOP, why.proponents, BLUE, "▲ evidence for")
        self._row(self.TOP + self.ROW, why.opponents, ORANGE, "▼ evidence against")
        self._balance(self.TOP + 2 * self.ROW - 0.14)
        self._legend()

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        bottom = 1 - (y + height) / self.height
        return self.figure.add_axes((x / self.width, bottom, width / self.width, height / self.height))

    def _text(self, x: float, y: float, text: str, **style: Any) -> None:
        # A class name may hold a dollar sign, which is no mathematics.
        defaults: dict[str, Any] = {"size": 6.5, "color": INK, "va": "center", "parse_math": False}
        self.figure.text(x / self.width, 1 - y / self.height, text, **(defaults | style))

    def _image(self, x: float, y: float, size: float, image: Picture, colour: str) -> None:
        ax = self._axes(x, y, size, size)
        ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        ax.set(xticks=[], yticks=[])
        for spine in ax.spines.values():
            spine.set(color=colour, linewidth=1.5)

    def _test_sample(self) -> None:
        """Draw the test sample with what the model says, what is true, and what is explained."""
        why, names, x, size = self.why, self.why.class_names, 0.12, 1.62
        self._text(x, self.TOP - 0.14, "test sample", size=8, weight="bold")
        self._image(x, self.TOP, size, why.sample.image, INK)
        bold = {"weight": "bold"}
        lines: list[tuple[str, dict[str, Any]]] = [
            (f"predicted: {_short(names[why.predicted])}", bold),
            (f"with probability {percent(why.probability)}", {"color": GREY}),
        ]
        if why.truth is not None:
            right = why.truth == why.predicted
            verdict = f"true label: {_short(names[why.truth])} {'✓' if right else '✗'}"
            lines.append((verdict, {"color": GREY} if right else bold))
        if why.target != why.predicted:
            lines.append((f"explained: {_short(names[why.target])}", bold))
        for i, (text, style) in enumerate(lines):
            self._text(x, self.TOP + size + 0.17 + 0.17 * i, text, size=7.5, **style)

    def _row(self, y: float, samples: tuple[Contribution, ...], colour: str, heading: str) -> None:
        """Draw the samples of one sign, each with its score and its label, marked if not the target."""
        why = self.why
        title = f"{heading} “{_short(why.class_names[why.target], 28)}”"
        self._text(self.LEFT, y - 0.14, title, size=8, weight="bold", color=colour)
        if not samples:
            self._text(self.LEFT, y + 0.15, "none", color=GREY)
        for j, sample in enumerate(samples):
            x = self.LEFT + j * self.COLUMN
            self._image(x, y, self.TILE, sample.sample.image, colour)
            mark = "" if sample.label == why.target else "≠ "
            label = mark + _short(why.class_names[sample.label], 14)
            middle, below = x + self.TILE / 2, y + self.TILE
            self._text(middle, below + 0.11, label, ha="center", style="italic" if mark else "normal")
            score = f"τ = {signed(sample.score)}"
            self._text(middle, below + 0.25, score, ha="center", weight="bold", color=colour)
            self._text(middle, below + 0.375, f"training #{sample.index}", ha="center", size=5, color=GREY)

    def _balance(self, y: float) -> None:
        """Draw all evidence as one bar from against to for; the shown samples' part has the full colour."""
        why, right = self.why, self.width - 0.12
        ax = self._axes(self.LEFT, y, right - self.LEFT, 0.15)
        longest = max(why.evidence_for, -why.evidence_against) or 1.0
        for value, share, colour, pale in (
            (why.evidence_for, why.share_for, BLUE, PALE_BLUE),
            (why.evidence_against, why.share_against, ORANGE, PALE_ORANGE),
        ):
            ax.barh(0, value / longest, color=pale, height=1)
            ax.barh(0, share * value / longest, color=colour, height=1)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.set(xlim=(-1, 1), ylim=(-0.5, 0.5))
        ax.axis("off")
        against = f"all evidence against: {signed(why.evidence_against)}"
        in_favour = f"all evidence for: {signed(why.evidence_for)}"
        style: dict[str, Any] = {"size": 6}
        self._text(self.LEFT, y + 0.25, against, color=ORANGE, **style)
        self._text(self.LEFT, y + 0.37, f"of it shown: {percent(why.share_against)}", color=ORANGE, **style)
        self._text(right, y + 0.25, in_favour, color=BLUE, ha="right", **style)
        self._text(right, y + 0.37, f"of it shown: {percent(why.share_for)}", color=BLUE, ha="right", **style)
        middle = (self.LEFT + right) / 2
        self._text(middle, y + 0.25, f"sum: {signed(why.logit)}", ha="center", weight="bold", **style)
        self._text(middle, y + 0.37, "= surrogate logit", ha="center", **style)

    def _legend(self) -> None:
        why = self.why
        lines: tuple[tuple[str, dict[str, Any]], ...] = (
            ("scores τ", {"weight": "bold"}),
            ("▲ positive = evidence for the target class", {"color": BLUE}),
            ("▼ negative = evidence against it", {"color": ORANGE}),
            ("≠ label differs from the target", {"color": GREY, "style": "italic"}),
            (f"{why.n_support:,} of {why.n_train:,} training samples", {"color": GREY}),
            ("are support vectors, the rest score 0", {"color": GREY}),
            (f"relative duality gap {why.gap:.1e}", {"color": GREY}),
        )
        for i, (text, style) in enumerate(reversed(lines)):
            self._text(0.12, self.height - 0.16 - 0.14 * i, text, **({"size": 6} | style))
