"""Classes: which output is explained, what a user's target may be, and what outputs are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import whence
from tests.helpers.lazy import Samples
from tests.helpers.nets import Network
from whence.errors import DataWarning, InvalidInputError, ModelError
from whence.methods import Ensemble
from whence.svm import CrammerSinger
from whence.tasks import Classes, ManyLabels, OneLogit, Regression, find_task

OUTPUTS = torch.tensor([[0.0, 2.0, 1.0], [3.0, -1.0, 2.0]])


def test_the_largest_output_is_explained_unless_a_target_is_given() -> None:
    task = Classes(3)
    assert task.choose_target(OUTPUTS, None).tolist() == [1, 0]
    assert task.choose_target(OUTPUTS, 2).tolist() == [2, 2]
    assert task.choose_target(OUTPUTS, np.array([0, 2], dtype=np.uint8)).tolist() == [0, 2]
    assert task.choose_target(OUTPUTS, [1, 2]).dtype == torch.int64


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, r"'truth' must lie in \[0, 3\), the model's classes. Got 3 for test 0"),
        ([0, -1], "Got -1 for test 1"),
        ([0, 1, 2], r"one of the model's classes, or one per test, shape \(2,\). Got \(3,\)"),
        ("shirt", "they have no names"),
        (0.5, "of dtype float64"),
    ],
)
def test_other_targets_are_refused(target: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Classes(3).check_target(target, 2, "truth")


def test_outputs_are_called_by_their_names_or_numbers() -> None:
    assert Classes(2).output_names == ("0", "1")
    assert Classes().with_outputs(2, ("cat", "dog")).output_names == ("cat", "dog")
    assert Classes().with_outputs(1, ("\udcff",)).names == ("?",)
    with pytest.warns(DataWarning, match="The data name 2 classes, cat, dog, and the model has 3"):
        assert Classes().with_outputs(3, ("cat", "dog")).names is None


def test_warnings_name_the_line_of_the_user() -> None:
    """However deep they arise: in the names, in the labels, in the choice of C, in an ensemble."""
    model, x, y = torch.nn.Linear(4, 3), torch.randn(40, 4), [0, 1] * 20

    class Named(torch.utils.data.TensorDataset):
        classes = ("cat", "dog")

    data = Named(x, torch.tensor(y))
    explainer = whence.DualDA(C=1e-3, show_progress=False)
    for fit in (explainer.fit, lambda *given: Ensemble([explainer]).fit(*given)):
        with pytest.warns(DataWarning) as found:
            fit(model, data)
        assert len(found) >= 2
        assert {one.filename for one in found} == {__file__}


def test_labels_are_checked_and_counted() -> None:
    labels, K = Classes().check_labels(np.array([2, 0, 1], np.uint8), 3, None)
    assert (labels.dtype, labels.tolist(), K) == (np.int64, [2, 0, 1], 3)
    assert Classes().check_labels([0, 1], 2, 5)[1] == 5
    for given, K, message in (
        ([0, 1, 2], 2, "'labels' must be below n_classes = 2. Got 2 at index 2"),
        ([0, -1, 2], None, "'labels' must not be negative. Got -1 at index 1"),
        ([0, 1], None, r"'labels' must have shape \(3,\), one label per row"),
        ([0.5, 1.0, 2.0], None, "Map class names to 0 … K−1 first"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Classes().check_labels(given, 3, K)


def test_the_multiclass_machine_stands_for_classes() -> None:
    problem = Classes().problem.make(np.eye(3), [0, 1, 2], 3, 1.0, False)
    assert isinstance(problem, CrammerSinger)


class Words(torch.utils.data.TensorDataset):
    """Samples whose labels are words, in an order of its own."""

    classes = ("dog", "cat", "cow")

    def __getitem__(self, index: int) -> tuple[torch.Tensor, str]:
        return self.tensors[0][index], self.classes[index % 3]


def test_words_mean_the_classes_that_they_were_fitted_as(tmp_path: Path) -> None:
    model, data = torch.nn.Linear(4, 3), Words(torch.randn(30, 4))
    with pytest.warns(DataWarning, match="calls class 0 'cat', the data 'dog'"):
        explainer = whence.DualDA(C=1e-3, show_progress=False).fit(
            model, data, class_names=["cat", "dog", "cow"], task=Classes
        )
    assert explainer.labels_[:3].tolist() == [1, 0, 2]
    explainer.save(tmp_path / "words.whence")
    with pytest.warns(DataWarning, match="calls class 0 'cat', the data 'dog'"):
        back = whence.load(tmp_path / "words.whence", model, data)
    assert back.explain(data.tensors[0][:1])[0].class_names == ("cat", "dog", "cow")


# Which task labels are for, and what is refused by its name


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (np.array(3), Classes()),  # no labels of samples, of which the classes say what is wrong
        (np.array([0, 1, 2]), Classes()),
        (np.array([0, 1, 1]), Classes()),  # one output makes one logit of it
        (["cat", "dog"], Classes()),
        (np.array([0.0, 1.0, 1.0]), OneLogit()),
        (np.array([[0.0], [1.0]]), OneLogit()),
        (np.array([True, False]), OneLogit()),
        ([torch.tensor(1.0), torch.tensor(0.0)], OneLogit()),
        (np.array([0.0, 2.0]), Regression()),
        (np.array([[0.3], [1.0]]), Regression()),
        (np.array([[0.3, 1.0], [1.0, 2.0]]), Regression()),
        (np.array([[1, 1, 0], [0, 0, 1]]), ManyLabels()),
        ([[0.0, 0.0], [1.0, 0.0]], ManyLabels()),
        ([torch.tensor([1, 1]), torch.tensor([0, 1])], ManyLabels()),
        ([[0], [1, 2]], Classes()),  # which says what is wrong
    ],
)
def test_labels_tell_their_task(labels: Any, task: Any) -> None:
    assert find_task(labels) == task


def test_one_label_of_several_may_be_classes() -> None:
    with pytest.raises(InvalidInputError, match=r"labels\.argmax\(1\); for many labels pass task"):
        find_task(np.eye(3))


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("K", "make", "task"),
    [
        (2, lambda n: torch.arange(n) % 2, Classes),
        (1, lambda n: torch.arange(n) % 2, OneLogit),
        (1, lambda n: (torch.arange(n) % 2).float(), OneLogit),
        (1, lambda n: torch.linspace(0, 3, n), Regression),
        (1, lambda n: torch.linspace(0, 3, n).tolist(), Regression),
        (2, lambda n: torch.rand(n, 2), Regression),
        (2, lambda n: torch.stack([torch.arange(n) % 2, torch.arange(n) % 3 // 2], 1), ManyLabels),
    ],
)
def test_samples_that_are_read_one_by_one_tell_it_too(K: int, make: Any, task: Any, wrapped: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, K))
    x = torch.randn(40, 3)
    data: Any = Samples(x, make(40))
    given = DataLoader(data, batch_size=16) if wrapped else data
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, given)
    assert type(explainer.task_) is task
    assert explainer.attribute(x[:2], target=0).shape == (2, 40)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda z: [{"boxes": z, "labels": z, "scores": z} for _ in z],
            "Detection is not supported: .* boxes",
        ),
        (
            lambda z: {"logits": z[:, None], "pred_boxes": z[:, None]},
            "Detection is not supported: .* pred_boxes",
        ),
        (
            lambda z: z[:, :, None, None].expand(-1, -1, 5, 5),
            r"Segmentation.* not supported: .*\(8, 4, 5, 5\)",
        ),
        (lambda z: {"out": z[:, :, None, None]}, r"Segmentation.* not supported: .*\(8, 4, 1, 1\)"),
        (lambda z: z[:, None, :], r"must return logits, shape \(B, K\), or one output per sample"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(make: Any, message: str) -> None:
    x = torch.randn(20, 3)
    model = Network(lambda self, x: make(self.layer(x)), layer=nn.Linear(3, 4))
    with pytest.raises(ModelError, match=message) as refusal:
        whence.DualDA(show_progress=False).fit(model, (x, torch.arange(20) % 4))
    if "not supported" in message:
        assert "What is supported: one class per sample, one logit, several labels" in str(refusal.value)
