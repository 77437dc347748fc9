"""What methods share that put a support vector machine instead of the model's last layer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from whence.attribution.classifier import Training
from whence.attribution.pairs import PairAttributor
from whence.attribution.parameters import parameter
from whence.core import contents, store
from whence.core.arrays import Floats, Ints
from whence.core.checks import check_choice, check_flag, check_path
from whence.data import NewSamples, TrainingSet, as_new
from whence.errors import InvalidInputError
from whence.features import as_float32
from whence.features.place import BankPlace
from whence.model.bound import BoundModel
from whence.model.layers import Asked, check_layers
from whence.surrogate.agreement import agreement, warn_of_data, warn_of_low, without_part
from whence.surrogate.faithfulness import Faithfulness
from whence.surrogate.sketch import sketch
from whence.surrogate.solutions import SurrogateSolver
from whence.surrogate.surrogate import Surrogate
from whence.surrogate.vectors import Vectors
from whence.svm.inputs import check_C
from whence.svm.solve import check_options
from whence.tasks import Task


@dataclass(eq=False)
class SurrogateAttributor(PairAttributor):
    """A method that solves a surrogate of the model's last layer and makes its scores of that.

    ``DualDA`` describes the parameters and what a fit leaves.
    """

    _of_features = True
    normalise = False  # of methods that have no such parameter
    _manifest: ClassVar[str] = "DualDAManifest"

    C: float | Literal["auto"] = "auto"
    bias: bool = True
    tol: float = 1e-6
    seed: int = 0
    n_threads: int | None = None
    max_seconds: float | None = None
    device: str | torch.device | None = None
    layers: Asked | list[str] = parameter("last", check_layers)

    @property
    def vectors_(self) -> Tensor:  # type: ignore[override]
        """The support vectors' features (S, d), which are read into memory where they lie in a map."""
        self.check_fitted()
        return self.surrogate_.vectors

    def save(self, path: str | PathLike[str], *, features: Literal["copy", "bank"] = "copy") -> None:
        """Write the fitted explainer to one file, which ``whence.load`` reads.

        Parameters
        ----------
        path
            Of the file.
        features
            "copy" puts the support vectors' features into the file. "bank" names the bank in the cache that
            they lie in, by its fingerprint and checksum: a small file, which ``whence.load`` opens with the
            ``cache_dir`` of the fit. Attribution then reads rows from the bank as it needs them.
        """
        check_choice("features", features, ("copy", "bank"))
        if features == "copy":
            super().save(path)
            return
        self.check_fitted()
        bank = self.surrogate_.bank
        if bank is None:
            raise InvalidInputError(
                "'features' must be \"copy\" where there is no bank in a cache: this explainer was fitted "
                "without 'cache_dir', on arrays, or on a set that was put together or changed. Fit it with "
                "cache_dir, or save a copy."
            )
        arrays, facts = self._state(vectors=False)
        facts["bank"] = dataclasses.asdict(bank)
        store.write(check_path("path", path), *self._described(arrays, facts))

    @property
    def kappa_(self) -> float | None:
        """C·N·mean‖f‖², by which C compares across data sets and features; None without a bias."""
        self.check_fitted()
        return self.C_ * int(self.used_.sum()) * self.constant_**2 if self.constant_ else None

    @property
    def classes_(self) -> Ints:
        """The classes (K,) as ``predict`` names them, 0 … K−1; their names are in ``class_names_``."""
        self.check_fitted()
        self.task_.require_classes("An explainer whose classes are asked for")
        return np.arange(self.n_classes_)

    def predict(self, x: Any) -> Tensor:
        """Label inputs by the surrogate; where labels are classes, (B,)."""
        return self.predict_features(self._features(x))

    def predict_features(self, features: Any) -> Tensor:
        """Label features (B, d) by the surrogate; where labels are classes, (B,)."""
        return self.task_.predict(self._outputs(features))

    def decision_function(self, x: Any) -> Tensor:
        """Return the surrogate's outputs for inputs, as scikit-learn shapes them.

        They are logits (B, K), float64; of two classes (B,), how far the second is above the first.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.randn(30, 4), torch.arange(30) % 3
        >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(4, 3), x, y)
        >>> bool((explainer.decision_function(x).argmax(1) == explainer.predict(x)).all())
        True
        """
        outputs = self._outputs(self._features(x))
        two = self.task_.has_classes and outputs.shape[1] == 2
        return outputs[:, 1] - outputs[:, 0] if two else outputs

    def score(self, x: Any, y: Any = None) -> float:
        """Return how right the surrogate is on labelled inputs: the share of right labels, of numbers R².

        Parameters
        ----------
        x
            As for ``attribute``.
        y
            The true labels, of classes numbers or names; None takes those of a data set or ``DataLoader``.
        """
        found = as_new(x)
        if y is None and not isinstance(found, NewSamples):
            raise InvalidInputError("'y' must be the true labels. Got None; only a data set has its own.")
        labels = self.task_.encode(found.labels() if y is None else y)
        decided = self.predict(found).cpu().numpy()
        if labels.shape != decided.shape:
            raise InvalidInputError(
                f"'y' must be {self.task_.labels} for each of {len(decided)} inputs. Got shape "
                f"{labels.shape}."
            )
        return self.task_.score(decided, labels)

    def _features(self, x: Any) -> Tensor:
        return self.require_model().read(x, self.batch_size).features

    def _outputs(self, features: Any) -> Tensor:
        return self.surrogate_.logits(self.check_features(features))

    def faithfulness(self, x: Any) -> Faithfulness:
        """How well the surrogate stands for the model, by its own output for a batch of inputs."""
        found = self.require_model().read(x, self.batch_size)
        return self.surrogate_.faithfulness(self.check_features(found.features, "x"), found.logits)

    def faithfulness_features(self, features: Any) -> Faithfulness:
        """Compare the surrogate with the head on features (B, d), where there is no model to run."""
        return self.surrogate_.faithfulness(self.check_features(features))

    def take_data(self, data: TrainingSet) -> None:
        """Take the training set, after a look at some of its samples."""
        bound = self.require_model()
        self.surrogate_.check_data(data, bound)
        self.data_, bound.prepare = data, data.prepare

    def _surrogate(self, training: Training) -> Surrogate:
        """Solve the surrogate, or take it from the cache."""
        bank = training.bank
        features, place = as_float32(bank.features), self._place(bank.model)
        solution = self.solver(training.task).of_bank(bank, features, self.C, training.cache_dir)
        vectors = Vectors.of(features, solution.support, place, self.normalise)
        task, where = training.task.with_choice(solution.choice), BankPlace.of(bank)
        known = sketch(features, bank.labels)
        return Surrogate(task, solution, vectors, bank.labels, bank.head, known, where)

    def solver(self, task: Task) -> SurrogateSolver:
        """Return what solves the surrogate of a task."""
        return SurrogateSolver(task, self)

    def _take(self, surrogate: Surrogate) -> None:
        """Take over a surrogate."""
        solution = surrogate.solution
        self.task_ = surrogate.task
        self.origins_["solution"] = solution.note
        self.C_, self.C_path_, self.gap_ = solution.C, solution.choice, solution.gap
        self.surrogate_, self.lam_, self.coef_ = surrogate, surrogate.lam, surrogate.coef
        self.support_, self.constant_ = surrogate.support, surrogate.constant
        kept = surrogate.arrays(vectors=not surrogate.stored.mapped)
        self.cache_bytes_ = sum(array.nbytes for array in kept.values())

    def _with(self, surrogate: Surrogate, features: Floats, seconds: float) -> Self:
        """Return the same explainer with another surrogate, for features (N, d) of all training samples."""
        other = type(self)(**self.get_params(deep=False))
        known = self.task_, surrogate.labels, surrogate.head, self.model_, self.data_
        other._adopt(*known, {"solution": seconds})
        other.reading_ = self.reading_
        other._take(surrogate)
        other._measure(features, self._unseen[other.used_[self._unseen]])
        return other

    def _finish(self, training: Training) -> None:
        self._measure(training.bank.features)
        warn_of_data(self.task_, training.bank.features, self.labels_)
        if self.agreement_ is not None:
            warn_of_low(self.task_, self.agreement_, len(self._unseen))

    def _measure(self, features: Floats, unseen: Ints | None = None) -> None:
        """Measure agreement with the head on samples that had no part in choosing C, by their features."""
        given = self.C_path_ is None
        if unseen is None:
            unseen = without_part(self.task_, self.labels_, self.seed, given)
        self._unseen = unseen
        self.agreement_ = None
        if self.head_ is not None and len(self._unseen):
            some = np.asarray(features[unseen]), self.labels_[unseen]
            self.agreement_ = agreement(self.task_, self.coef_, self.head_, *some, self.normalise)

    def _facts(self) -> dict[str, Any]:
        found = {"C": self.C_, "agreement": self.agreement_, "gap": self.gap_}
        size = {"features": self.surrogate_.stored.shape[1], "support_vectors": len(self.support_)}
        return {**super()._facts(), **size, **found}

    def _like(self) -> Tensor:
        return self.surrogate_.stored.like

    def _logits(self, features: Tensor) -> Tensor:
        return self.surrogate_.model_logits(features)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.C, str) and self.C != "auto":
            raise InvalidInputError(f"'C' must be \"auto\" or a number above 0. Got {self.C!r}.")
        elif self.C != "auto":
            check_C(self.C)  # the solver would say so after the features are computed
        self.bias = check_flag("bias", self.bias)
        check_options(self.tol, self.max_seconds, self.n_threads, self.seed)

    def _state(self, vectors: bool = True) -> tuple[store.Arrays, dict[str, Any]]:
        return self.surrogate_.arrays(vectors), {
            "C": self.C_,
            "C_path": None if self.C_path_ is None else dataclasses.asdict(self.C_path_),
            "gap": self.gap_,
            "agreement": self.agreement_,
            "constant": self.constant_,
        }

    def _restore_surrogate(self, arrays: store.Arrays, manifest: Any, bound: BoundModel | None) -> Surrogate:
        """Return the surrogate of a saved file, and take over what all methods know after a fit."""
        surrogate = Surrogate.from_arrays(arrays, manifest, self._place(bound), self.normalise)
        shape = len(surrogate.coef), surrogate.stored.shape[1]
        if manifest.layers is not None and sum(manifest.layers.widths) != shape[1]:
            raise contents.refused(f"'layers' must have as many features as 'vectors', {shape[1]}")
        if bound is not None and bound.extractor.head().weight.shape != shape:
            raise contents.refused(f"'coef' must fit the layer {bound.extractor.layer!r}, and does not")
        if surrogate.bias != self.bias:
            raise contents.refused("'coef' must have a column for the bias where 'bias' is set, only there")
        self._adopt(surrogate.task, surrogate.labels, surrogate.head, bound, None, {})
        self._take(surrogate)
        self.agreement_ = manifest.agreement
        self._unseen = without_part(self.task_, self.labels_, self.seed, self.C_path_ is None)
        return surrogate
