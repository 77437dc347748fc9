"""Classes: which output is explained, what a user's target may be, and what outputs are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import whence
from whence.errors import DataWarning, InvalidInputError
from whence.methods import Ensemble
from whence.svm import CrammerSinger
from whence.tasks import Classes

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
