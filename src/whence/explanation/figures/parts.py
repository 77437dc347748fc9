"""What the figures of images, texts and values have in common: the verdict, the balance, the legend."""

from __future__ import annotations

from typing import Any

from whence.core.display import number
from whence.explanation.evidence import Contribution
from whence.explanation.figures.canvas import Canvas, Line
from whence.explanation.record import Explanation
from whence.pages.style import BLUE, GREY, INK, ORANGE, PALE_BLUE, PALE_ORANGE, one_line, percent, signed

BOLD: dict[str, Any] = {"weight": "bold"}
QUIET: dict[str, Any] = {"color": GREY}


def verdict(why: Explanation) -> list[Line]:
    """Say what the model predicts, what is true, and what is explained."""
    outcome, words, name = why.verdict, why.words, one_line(why.class_names[why.target])
    lines: list[Line] = [(f"{words.predicted}: {one_line(outcome.predicted)}", BOLD)]
    if outcome.probability is not None and why.label_kind == "class":
        lines.append((f"with probability {percent(outcome.probability)}", QUIET))
    if outcome.truth is not None:
        mark = {True: ", right", False: ", wrong", None: ""}[outcome.right]
        lines.append(
            (f"{words.true}: {one_line(outcome.truth)}{mark}", BOLD if outcome.right is False else QUIET)
        )
    if why.label_kind == "label":
        lines += [(f"explained: {name}", BOLD), (f"probability {percent(outcome.probability or 0.0)}", QUIET)]
    elif (
        why.target != why.predicted
        or why.against is not None
        or (len(why.class_names) > 1 and why.label_kind == "number")
    ):
        lines.append((f"explained: {name}", BOLD))
    if why.against is not None:
        lines.append((f"over: {one_line(why.class_names[why.against])}", BOLD))
    if why.typicality is not None and why.typicality.novel:
        lines += [("⚠ unlike the", BOLD), ("training data", BOLD)]
    return lines


def caption(
    canvas: Canvas, why: Explanation, pair: Contribution, x: float, y: float, room: float, ha: str
) -> float:
    """Write what a training sample is and contributes, a class that is not the target marked.

    Return the y of the last line.
    """
    words, against = why.words, pair.score < 0
    mark, style = ("≠ ", "italic") if pair.differs else ("", "normal")
    canvas.text(x, y, mark + one_line(pair.label_text), room, ha=ha, style=style)
    strong: dict[str, Any] = {"weight": "bold", "color": ORANGE if against else BLUE}
    spread = "" if pair.spread is None else f" ± {number(pair.spread)}"
    canvas.text(x, y + 0.13, words.mark + signed(pair.score) + spread, ha=ha, **strong)
    lines = [f"{percent(pair.share)} of all {words.share[against]}", f"training sample {pair.index}"]
    lines += [pair.alike_words] if pair.alike else []
    for j, line in enumerate(lines):
        canvas.text(x, y + 0.24 + 0.095 * j, line, ha=ha, size=5, color=GREY)
    return y + 0.145 + 0.095 * len(lines)


def balance(canvas: Canvas, why: Explanation, left: float, zero: float, right: float, y: float) -> None:
    """Draw all evidence as one bar from against to for; the part of the shown samples in full colour."""
    room_against, room_for = zero - left, right - zero
    inches = min(
        room_for / why.evidence_for if why.evidence_for else float("inf"),
        room_against / -why.evidence_against if why.evidence_against else float("inf"),
    )
    words = why.words
    raising, lowering = words.everything
    sides = (
        (why.evidence_against, why.share_against, ORANGE, PALE_ORANGE, left, "left", lowering),
        (why.evidence_for, why.share_for, BLUE, PALE_BLUE, right, "right", raising),
    )
    for value, share, colour, pale, x, side, everything in sides:
        length = value * inches if value else 0.0
        canvas.rectangle(zero, y, length, 0.14, pale)
        canvas.rectangle(zero, y, share * length, 0.14, colour)
        canvas.text(x, y + 0.23, f"{everything}: {signed(value)}", color=colour, ha=side, size=6)
        canvas.text(x, y + 0.35, f"of it shown: {percent(share)}", color=colour, ha=side, size=6)
    canvas.rectangle(zero - 0.006, y - 0.04, 0.012, 0.22, INK)
    canvas.text(zero, y + 0.23, f"sum: {signed(why.total)}", ha="center", size=6, weight="bold")
    canvas.text(zero, y + 0.35, words.total, ha="center", size=6)
    canvas.text((left + right) / 2, y + 0.48, why.equation, right - left, ha="center", size=6, weight="bold")


def legend(canvas: Canvas, why: Explanation, left: float, right: float, y: float) -> float:
    """Write the sign convention, what the maps are, and the checks; return the y below.

    They are in three columns, or below each other where these would be too narrow.
    """
    sums, words = why.sums, why.words
    blocks: list[list[Line]] = [
        [
            (f"{words.scores} and relevance", BOLD),
            (f"▲ blue, positive: {words.sign[0]}", {"color": BLUE}),
            (f"▼ orange, negative: {words.sign[1]}", {"color": ORANGE}),
            *([(f"≠ {words.other}", {"color": GREY, "style": "italic"})] if words.other else []),
        ],
        [
            (f"Maps by {one_line(why.method)}", BOLD),
            (f"of a pair: its {'score' if why.effect is None else 'effect'}, on either sample", QUIET),
            (f"of the {words.output}: {_made_of(why)}", QUIET),
            (f"arriving at the input: {signed(sums['logit_map'])}", QUIET),
        ],
        [
            ("Certificate", BOLD),
            *([] if why.effect is None else [(why.effect.description, QUIET)]),
            (f"{why.n_support:,} of {why.n_train:,} training samples", QUIET),
            (words.scored, QUIET),
            (f"relative duality gap {why.gap:.1e}", QUIET),
            *([] if why.logit_bound is None else [(f"optimal logit within {why.logit_bound:.1g}", QUIET)]),
            *_checks(why),
        ],
    ]
    # Drawn letters lie on whole pixels, which makes text up to some per cent wider than measured.
    widths = [
        1.04 * max(canvas.measure(text, 6, **_measured(style)) for text, style in block) for block in blocks
    ]
    gap = 0.2
    if sum(widths) + 2 * gap <= right - left:
        gap = min((right - left - sum(widths)) / 2, 1.2)
        places = [left, left + widths[0] + gap, left + widths[0] + widths[1] + 2 * gap]
        for x, block in zip(places, blocks, strict=True):
            canvas.lines(x, y, block, 0.125, size=6)
        return y + max(map(len, blocks)) * 0.125
    for block in blocks:
        canvas.lines(left, y, block, 0.125, size=6)
        y += 0.125 * len(block) + 0.06
    return y


def _made_of(why: Explanation) -> str:
    """Say what parts the output has, or where scores are relative their sum."""
    sums = why.sums
    if why.relative:
        return f"{signed(sums['features'])} of features, {signed(sums['bias'])} of no feature"
    base = f"base value {number(sums['base'])}, " if sums["base"] else ""
    return f"{base}{signed(sums['features'])} of features, {signed(sums['bias'])} of bias"


def _checks(why: Explanation) -> list[Line]:
    """Say whether the surrogate agrees with the model, and whether the test resembles the training data."""
    outcome, words, typicality = why.verdict, why.words, why.typicality
    other = one_line(outcome.surrogate)
    other = other if len(other) <= 16 else other[:15] + "…"
    ahead = f", {number(why.margin)} ahead" if why.margin is not None else ""
    mark, style = ("✓", QUIET) if outcome.agrees else ("⚠", BOLD)
    lines: list[Line] = [(f"{mark} the surrogate {words.says} “{other}”{ahead}", style)]
    if not outcome.agrees:
        lines.append(("    and the model does not", BOLD))
    if typicality is not None:
        mark, style = ("⚠ unlike", BOLD) if typicality.novel else ("✓ resembles", QUIET)
        lines += [
            (f"{mark} the training data: {typicality.compared}", style),
            (f"nearest: samples {', '.join(str(one.index) for one in typicality.neighbours)}", QUIET),
        ]
    return lines


def _measured(style: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in style.items() if key != "color"}
