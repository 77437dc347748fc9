"""What an explanation says of itself: as data and as a figure."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.spatial
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.text import Text

from tests.helpers.colours import contrast, rgb
from tests.helpers.explained import TEXT, effects, explanation, pair, random
from whence.errors import InvalidInputError
from whence.explanation import EffectOf, Explanations, Sample
from whence.explanation.figures.canvas import Canvas
from whence.explanation.figures.text import lines, passages
from whence.pages.style import BLUE, INK, ORANGE, drawn, heat, marker, scale

KINDS = ["grey", "colour", "text", "values"]


def texts(figure: Figure) -> list[str]:
    """All that is written, tokens too, which are drawn as outlines."""
    found = [text.get_text() for text in figure.findobj(Text)]
    return [text for text in (*found, *(str(word.get_label()) for word in figure.findobj(PathPatch))) if text]


def said(figure: Figure) -> str:
    return " | ".join(texts(figure)).replace("\u00a0", " ")


def inside(figure: Figure) -> bool:
    """Whether all text lies on the sheet."""
    canvas: Any = figure.canvas
    canvas.draw()
    sheet = figure.bbox
    boxes = [text.get_window_extent() for text in figure.findobj(Text) if text.get_text()]
    return all(
        box.x0 >= -1 and box.y0 >= -1 and box.x1 <= sheet.x1 + 1 and box.y1 <= sheet.y1 + 1 for box in boxes
    )


def test_sums_and_shares() -> None:
    why = explanation()
    assert why.logit == 3.0
    assert why.share_for == 0.75
    assert why.share_against == 0.5
    sums = why.sums
    test_maps = np.stack([one.test_map.astype(np.float64) for one in why.pairs])
    assert sums["features"] == 2.75
    assert sums["shown"] == 2.5
    assert sums["shown_maps"] == pytest.approx(test_maps.sum(), rel=1e-5)
    assert sums["logit_map"] == pytest.approx(why.logit_map.sum(), rel=1e-5)
    distance = scipy.spatial.distance.cosine(test_maps.sum(0).ravel(), why.logit_map.ravel())
    assert sums["likeness"] == pytest.approx(1 - distance, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_to_dict_is_json_and_complete(kind: str) -> None:
    why = explanation(kind)
    record = json.loads(json.dumps(why.to_dict()))
    first = record["proponents"][0]
    assert first["index"] == 7
    assert first["class"] == "cat"
    assert first["test_map_sum"] == pytest.approx(float(why.proponents[0].test_map.sum()))
    assert record["logit"] == 3.0
    missing = {field.name for field in dataclasses.fields(why)} - set(record)
    assert missing == {"sample", "scores", "asked"} | (set() if kind == "text" else {"logit_map"})
    if kind == "text":
        assert record["tokens"] == list(TEXT)
        assert first["train_map"] == pytest.approx(why.proponents[0].train_map.tolist())
        assert len(first["tokens"]) == len(first["train_map"])
        assert len(first["test_map"]) == len(TEXT)


@pytest.mark.parametrize("kind", KINDS)
def test_figure_says_what_was_found(kind: str, tmp_path: Path) -> None:
    figure = explanation(kind).plot()
    for expected in (
        "predicted: cat",
        "75.0 %",
        "▼ evidence against “cat”",
        "τ = +2.00",
        "τ = −0.500",
        "orange, negative: evidence against it",
        "+2.75 of features, +0.250 of bias",
        "678 of 12,345 training samples",
        "gap 3.0e-07",
        "✓ the surrogate predicts “cat”",
    ):
        assert expected in said(figure)
    assert inside(figure)
    figure.savefig(tmp_path / "why.png")
    figure.savefig(tmp_path / "why.svg")
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("output", "name"), [("logit", "logit"), ("log_prob", "log-probability")])
def test_figure_of_effects_says_what_would_change(kind: str, output: str, name: str) -> None:
    why = effects(kind, effect=EffectOf(output))
    assert why.question == "would change"
    figure = why.plot()
    for expected in (
        f"▲ raises the {name} of “cat”",
        "+2.00",
        f"orange, negative: without the sample the {name} would be higher",
        "+6.75 of features, +0.250 of bias",
        "to first order, at the softmax surrogate of the whole training set",
        "all that raises: +4.00",
        "sum: +3.00",
    ):
        assert expected in said(figure)
    for wrong in ("evidence", "τ", "surrogate logit", "support vectors"):
        assert wrong not in said(figure)
    assert inside(figure)


@pytest.mark.parametrize("kind", KINDS)
def test_every_scale_is_stated(kind: str) -> None:
    why = explanation(kind)
    rows = {
        "logit": [why.logit_map],
        "test": [one.test_map for one in why.pairs],
        "train": [one.train_map for one in why.pairs],
    }
    for maps in rows.values():
        if kind in ("grey", "colour"):
            values = np.concatenate([relevance.sum(0).ravel() for relevance in maps])
            full = np.quantile(np.abs(values), 0.995)
        else:
            full = np.abs(np.concatenate(maps)).max()
        assert f"±{full:.3g}" in said(why.plot())


def test_images_are_ordered_away_from_the_test_sample() -> None:
    pairs = [pair("grey", i, 0, 5.0 - i, 0.1, (1, 6, 5)) for i in range(1, 4)]
    against = [pair("grey", 10 + i, 1, i - 5.0, 0.1, (1, 6, 5)) for i in range(1, 3)]
    figure = explanation(proponents=tuple(pairs), opponents=tuple(against)).plot()
    x = {text.get_text(): text.get_position()[0] for text in figure.texts}
    places = [x[f"training sample {i}"] for i in (12, 11)] + [x["test sample"]]
    places += [x[f"training sample {i}"] for i in (1, 2, 3)]
    assert places == sorted(places)


def test_maps_are_drawn_with_their_values() -> None:
    why = explanation("colour")
    figure = why.plot()
    shown = [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]
    assert len(shown) == 2 + 3 * 3
    full = scale(drawn(one.sample, one.train_map) for one in why.pairs)
    for one in why.pairs:
        assert any(
            np.array_equal(picture, one.sample.image) for picture in shown if picture.shape == (6, 5, 3)
        )
        expected = heat(one.train_map.sum(0), full, one.sample.image)
        assert any(np.array_equal(picture, expected) for picture in shown)


def test_values_are_bars_of_their_relevance() -> None:
    why = explanation("values")
    heights = [[bar.get_height() for bar in axes.patches] for axes in why.plot().axes]
    for expected in (why.sample.values, why.logit_map, why.pairs[0].train_map, why.pairs[2].test_map):
        assert any(len(bars) == 7 and np.allclose(bars, expected) for bars in heights)


def test_long_signals_share_bars_and_say_so() -> None:
    values = np.sin(np.arange(1000, dtype=np.float32))
    why = explanation(
        "values", sample=Sample(values=values), logit_map=random((1000,), 0), proponents=(), opponents=()
    )
    figure = why.plot()
    assert "a bar: 9 values" in said(figure)
    bars = [[bar.get_height() for bar in axes.patches] for axes in figure.axes]
    assert [len(heights) for heights in bars] == [112, 112]
    assert sum(bars[1]) == pytest.approx(float(why.logit_map.sum()), abs=1e-3)
    assert np.abs(bars[0]).max() == pytest.approx(np.abs(values).max())


def test_text_is_marked_by_relevance() -> None:
    relevance = np.zeros(len(TEXT), dtype=np.float32)
    relevance[1], relevance[8] = 2.0, -1.0
    why = explanation("text", logit_map=relevance, proponents=(), opponents=())
    figure = why.plot()
    assert [token.strip() for token in TEXT if token.strip() in texts(figure)] == [t.strip() for t in TEXT]
    colours = {patch.get_facecolor()[:3] for patch in figure.findobj(Rectangle)}
    for value in (2.0, -1.0):
        expected = marker(np.array([value], dtype=np.float32), 2.0)[0]
        assert any(np.allclose(colour, expected, atol=1e-6) for colour in colours)


def test_long_text_shows_the_relevant_passages_and_counts_the_rest() -> None:
    tokens = tuple(f" word{i}" for i in range(600))
    relevance = np.full(600, 1e-3, dtype=np.float32)
    relevance[[5, 300, 590]] = [1, -2, 3]
    why = explanation("text", sample=Sample(tokens=tokens), logit_map=relevance, proponents=(), opponents=())
    figure = why.plot()
    shown = set(texts(figure))
    assert {"word5", "word300", "word590", "word299", "…"} <= shown
    left_out = next(text for text in shown if text.endswith("tokens left out"))
    n = sum(text.startswith("word") for text in shown)
    assert left_out == f"… {600 - n} of 600 tokens left out"
    assert 20 < n < 400
    assert inside(figure)


def test_tokens_that_are_blank_or_of_no_known_script_are_drawn() -> None:
    tokens = ("", " ", "  ", "\n", "\t", "\u200b", " 漢", "\x00", " end")
    why = explanation(
        "text", sample=Sample(tokens=tokens), logit_map=random((9,), 0), proponents=(), opponents=()
    )
    assert {"↵", "␣", "end"} <= set(texts(why.plot()))
    html = Explanations([why]).to_html()
    assert html.count(">␣</span>") == 3  # a blank may be the most relevant token
    assert ">end</span>" in html


def test_passages_keep_words_whole_and_fit_the_room() -> None:
    tokens = [" a", "b", "c"] * 100
    relevance = np.zeros(300, dtype=np.float32)
    relevance[151] = 1
    shown = passages(tokens, relevance, np.ones(300, dtype=np.float32), 40, 1)
    assert any(151 in run for run in shown)
    assert sum(map(len, shown)) <= 40
    assert all(run.start % 3 == 0 and run.stop % 3 == 0 for run in shown)
    assert passages(tokens, relevance, np.ones(300, dtype=np.float32), 300, 1) == [range(300)]


def test_lines_are_no_wider_than_the_column() -> None:
    tokens = [" word", "piece"] * 20 + [" end", "less"] + ["ness"] * 30
    found = lines(tokens, [range(len(tokens))], 30, len)
    assert "".join(token.text for line in found for token in line) == "".join(tokens).replace(" ", "")
    assert all(token.x + token.width <= 30 for line in found for token in line)
    assert all(line[0].text in ("word", "end", "ness") for line in found)  # words begin lines unless too long
    for line in found:
        assert all(a.x + a.width <= b.x for a, b in itertools.pairwise(line))


def test_a_name_of_any_length_is_shortened_by_a_few_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = Canvas(5, 5)
    words = "incomprehensibilities of a class"
    for width in (0.1, 0.5, 1.0):
        longest = max(n for n in range(len(words)) if n == 0 or canvas.measure(words[:n] + "…") <= width)
        assert canvas.fit(words, width) == words[:longest].rstrip() + "…"
    measured: list[str] = []
    measure = Canvas.measure

    def counted(text: str, *style: Any) -> float:
        measured.append(text)
        return measure(text, *style)

    monkeypatch.setattr(Canvas, "measure", staticmethod(counted))
    for name in ("x" * 1000, "i" * 10**6):
        assert canvas.fit(name, 1.0).endswith("…")
    assert len(measured) < 40
    assert max(map(len, measured)) < 1000


def test_marked_text_can_be_read_and_images_vanish_where_nothing_is_relevant() -> None:
    ends = marker(np.array([-1, 1], dtype=np.float32), 1)
    assert all(contrast(end, rgb(INK)) >= 4.5 for end in ends)
    colours = heat(np.array([[-1, 0, 1]], dtype=np.float32), 1)[0]
    assert np.allclose(colours[0], rgb(ORANGE))
    assert np.allclose(colours[2], rgb(BLUE))
    assert colours[1].min() > 0.95


def test_figure_warns_where_surrogate_and_model_differ() -> None:
    assert "⚠ the surrogate predicts “owl”" in texts(explanation(surrogate_class=2).plot())


@pytest.mark.parametrize("kind", KINDS)
def test_figure_without_opponents_and_without_any_evidence(kind: str) -> None:
    assert "none" in texts(explanation(kind, opponents=()).plot())
    nothing = np.zeros_like(explanation(kind).logit_map)
    empty = explanation(kind, proponents=(), opponents=(), scores=np.zeros(0), bias=0.0, logit_map=nothing)
    figure = empty.plot()
    assert texts(figure).count("none") == 2
    assert "all 0" in texts(figure)
    assert inside(figure)


@pytest.mark.parametrize("k", [1, 10])
def test_figure_of_few_and_of_many_pairs(k: int) -> None:
    pairs = tuple(pair("grey", i, 0, 1.0 / (i + 1), 0.1, (1, 6, 5)) for i in range(k))
    figure = explanation(proponents=pairs, opponents=pairs[:1]).plot()
    assert sum(text.startswith("training sample ") for text in texts(figure)) == k + 1
    assert inside(figure)


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_are_drawn_as_they_are(kind: str, tmp_path: Path) -> None:
    names = ("$\\frac{1}{$ <b>", "two\nlines of a name that goes on and on and on", "\x00漢\u202e字\x07")
    figure = explanation(kind, class_names=names, target=1, truth=2, surrogate_class=1, method="$x").plot()
    figure.savefig(tmp_path / "hostile.png")
    assert any("$\\frac" in text for text in texts(figure))
    assert all("\n" not in text for text in texts(figure))
    assert inside(figure)


def test_plotting_touches_no_global_state() -> None:
    code = (
        "import sys; from tests.helpers.explained import explanation; "
        "whys = [explanation(kind) for kind in ('grey', 'text', 'values')]; "
        "assert 'matplotlib' not in sys.modules; "
        "import matplotlib; before = matplotlib.rcParams.copy(); "
        "[why.plot() for why in whys]; "
        "assert matplotlib.rcParams.copy() == before; "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_explanations_are_a_sequence() -> None:
    whys = Explanations([explanation(), explanation(target=1)])
    assert len(whys) == len(whys.maps) == len(whys.to_dict()) == 2
    assert len(whys[1:]) == 1
    assert whys[1:][0].target == 1
    assert "“dog”" in said(whys.plot(1))
    with pytest.raises(InvalidInputError, match=r"one of the 2 test samples. Got 2"):
        whys.plot(2)
