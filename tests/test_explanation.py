import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from whence import DualDA
from whence.errors import InvalidInputError
from whence.explanation import Contribution, Explanation, explain
from whence.explanation.figure import percent, signed
from whence.explanation.record import as_picture


def contribution(index, label, score, total):
    return Contribution(index, label, score, score / total, np.full((4, 4), 0.5, dtype=np.float32))


@pytest.fixture
def why():
    return Explanation(
        image=np.eye(4, dtype=np.float32),
        predicted=0,
        probability=0.75,
        truth=1,
        target=0,
        class_names=("cat", "dog"),
        evidence_for=4.0,
        evidence_against=-1.0,
        proponents=(contribution(7, 0, 2.0, 4.0), contribution(2, 1, 1.0, 4.0)),
        opponents=(contribution(5, 1, -0.5, -1.0),),
        n_train=10,
        n_support=6,
        gap=1e-6,
    )


def texts(figure):
    return [text.get_text() for text in figure.texts]


def test_sums_and_shares(why):
    assert why.logit == 3.0
    assert why.share_for == 0.75
    assert why.share_against == 0.5


def test_to_dict_is_json_and_complete(why):
    record = json.loads(json.dumps(why.to_dict()))
    assert record["proponents"][0] == {"index": 7, "label": 0, "class": "cat", "score": 2.0, "share": 0.5}
    assert record["logit"] == 3.0
    assert {field.name for field in dataclasses.fields(why)} - set(record) == {"image"}


def test_figure_says_what_was_found(why, tmp_path):
    figure = why.plot()
    found = " | ".join(texts(figure)).replace("\u00a0", " ")
    for expected in (
        "predicted: cat",
        "75.0 %",
        "true label: dog ✗",
        "▲ evidence for “cat”",
        "▼ evidence against “cat”",
        "≠ dog",
        "τ = +2.00",
        "τ = −0.500",
        "positive = evidence for the target class",
        "negative = evidence against it",
        "6 of 10 training samples",
        "gap 1.0e-06",
        "of it shown: 75.0 %",
    ):
        assert expected in found
    figure.savefig(tmp_path / "why.png")
    figure.savefig(tmp_path / "why.svg")
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")


def test_figure_of_an_explained_class_that_was_not_predicted(why):
    found = texts(dataclasses.replace(why, target=1, truth=None).plot())
    assert "explained: dog" in found
    assert not any(text.startswith("true label") for text in found)


def test_figure_without_opponents_and_without_any_evidence(why):
    assert "none" in texts(dataclasses.replace(why, opponents=()).plot())
    empty = dataclasses.replace(why, proponents=(), opponents=(), evidence_for=0.0, evidence_against=0.0)
    assert texts(empty.plot()).count("none") == 2


def test_hostile_class_names_are_drawn_as_they_are(why, tmp_path):
    names = ("$\\frac{1}{$ <b>", "two\nlines of a name that goes on and on and on")
    figure = dataclasses.replace(why, class_names=names, target=1).plot()
    figure.savefig(tmp_path / "hostile.png")
    assert "predicted: $\\frac{1}{$ <b>" in texts(figure)
    assert all(len(text) < 60 and "\n" not in text for text in texts(figure))


def test_plotting_touches_no_global_state():
    code = (
        "import sys, numpy as np; from whence.explanation import Explanation; "
        "assert 'matplotlib' not in sys.modules; "
        "Explanation(np.zeros((2, 2)), 0, 1.0, 0, 0, ('a', 'b'), 0.0, 0.0, (), (), 1, 1, 0.0).plot(); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_explain_agrees_with_the_scores():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(40, 1, 4, 4, generator=generator)
    labels = (images[:, 0, 0, 0] > 0.5).long()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 5), torch.nn.Linear(5, 2))
    explainer = DualDA(C=0.1, show_progress=False).fit(model, (images, labels))
    x, truth = images[:3], labels[:3]

    found = explain(
        explainer,
        model,
        x,
        train_images=images,
        train_labels=labels,
        class_names=("low", "high"),
        truth=truth,
        k=4,
    )

    scores = explainer.attribute(x)
    with torch.no_grad():
        probabilities = model(x).softmax(dim=1)
    assert len(found) == 3
    for b, why in enumerate(found):
        assert why.logit == pytest.approx(float(scores[b].sum()), abs=1e-5)
        assert why.predicted == why.target == int(probabilities[b].argmax())
        assert why.probability == pytest.approx(float(probabilities[b].max()))
        assert why.truth == int(labels[b])
        best = scores[b].clamp(min=0).topk(4)
        assert [s.score for s in why.proponents] == pytest.approx(best.values[best.values > 0].tolist())
        assert all(s.score < 0 for s in why.opponents)
        for sample in (*why.proponents, *why.opponents):
            assert sample.score == pytest.approx(float(scores[b, sample.index]))
            assert sample.label == int(labels[sample.index])
            assert np.array_equal(sample.image, images[sample.index, 0].numpy())
        assert why.n_train == 40
        assert why.n_support == len(explainer.support_)


def test_pictures():
    assert as_picture(torch.zeros(1, 2, 3)).shape == (2, 3)
    assert as_picture(torch.zeros(3, 2, 4)).shape == (2, 4, 3)
    with pytest.raises(InvalidInputError, match=r"values in \[-1, 0\]"):
        as_picture(torch.tensor([[[-1.0, 0.0]]]))
    with pytest.raises(InvalidInputError, match=r"shape \(2, 3\)"):
        as_picture(torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("value", "text"), [(1.234, "+1.23"), (-0.045, "−0.0450"), (123.4, "+123"), (0.0, "+0.00")]
)
def test_signed(value, text):
    assert signed(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0.0 %"),
        (1e-5, "<0.1 %"),
        (0.123, "12.3 %"),
        (0.9994, "99.9 %"),
        (0.99999, ">99.9 %"),
        (1.0, "100.0 %"),
    ],
)
def test_percent(share, text):
    assert percent(share) == text.replace(" ", "\u00a0")
