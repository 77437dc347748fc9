"""DualDA: attribution by the dual coefficients of a support vector machine on the model's last features."""

from __future__ import annotations

from os import PathLike
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from tqdm.auto import tqdm

from whence.attributors.base import Attributor, TopK, check_target
from whence.attributors.expansion import Expansion
from whence.errors import InvalidInputError, NotFittedError
from whence.features import extract
from whence.model import Extractor, Head
from whence.svm import solve
from whence.svm.path import CChoice, choose_C


class DualDA(Attributor):
    name: ClassVar[str] = "dualda"

    def __init__(
        self,
        C: float | Literal["auto"] = "auto",
        bias: bool = True,
        tol: float = 1e-6,
        seed: int = 0,
        n_threads: int | None = None,
        max_seconds: float | None = None,
        batch_size: int = 256,
        device: str | torch.device | None = None,
        show_progress: bool = True,
    ) -> None:
        self.C = C
        self.bias = bias
        self.tol = tol
        self.seed = seed
        self.n_threads = n_threads
        self.max_seconds = max_seconds
        self.batch_size = batch_size
        self.device = device
        self.show_progress = show_progress

    def fit(self, model: nn.Module, data: Any, layer: str | None = None) -> Self:
        bank = extract(model, data, layer=layer, batch_size=self.batch_size, show_progress=self.show_progress)
        self._extractor: Extractor | None = bank.extractor
        head = bank.extractor.head()
        return self._fit(bank.features, bank.labels, head, len(head.weight))

    def fit_features(
        self,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        *,
        head: tuple[Any, Any] | None = None,
        n_classes: int | None = None,
    ) -> Self:
        self._extractor = None
        h = None if head is None else Head(np.asarray(head[0]), None if head[1] is None else np.asarray(head[1]))
        return self._fit(np.asarray(features), np.asarray(labels), h, n_classes)

    def _fit(self, features: Any, labels: Any, head: Head | None, n_classes: int | None) -> Self:
        if n_classes is None and head is not None:
            n_classes = len(head.weight)
        self.C_path_: CChoice | None = None
        C = self.C
        if C == "auto":
            self.C_path_ = choose_C(
                features, labels, head=head, n_classes=n_classes, bias=self.bias, seed=self.seed,
                n_threads=self.n_threads, show_progress=self.show_progress,
            )
            C = self.C_path_.C
        s = solve(
            features, labels, n_classes=n_classes, C=C, bias=self.bias, tol=self.tol,
            max_seconds=self.max_seconds, seed=self.seed, n_threads=self.n_threads,
        )
        self.head_ = head
        self.C_ = s.C
        self.gap_ = s.gap
        self.lam_ = s.lam
        self.coef_ = s.weight
        self.labels_ = np.asarray(labels, dtype=np.int64)
        self.n_train_, self.n_classes_ = s.lam.shape
        self.support_ = np.flatnonzero(np.diff(s.lam.indptr))
        self._expansion = Expansion(torch.as_tensor(features[self.support_], dtype=torch.float32), self.support_, s.lam, bias=self.bias)
        return self

    def _features(self, x: Any) -> Tensor:
        return torch.cat([self._extractor(part) for part in torch.as_tensor(x).split(self.batch_size)]).float().cpu()

    def _target(self, features: Tensor, target: Any) -> Tensor:
        if target is not None:
            return check_target(target, len(features), self.n_classes_)
        if self.head_ is None:
            return self.predict_features(features)
        logits = features @ torch.as_tensor(self.head_.weight).T
        if self.head_.bias is not None:
            logits = logits + torch.as_tensor(self.head_.bias)
        return logits.argmax(1)

    def attribute(self, x, target=None, *, sparse=False):
        return self.attribute_features(self._features(x), target, sparse=sparse)

    def attribute_features(self, features, target=None, *, sparse=False):
        f = torch.as_tensor(features, dtype=torch.float32)
        t = self._target(f, target)
        return self._expansion.sparse(f, t) if sparse else self._expansion.dense(f, t)

    def top_k(self, x, k=5, target=None):
        return self.top_k_features(self._features(x), k, target)

    def top_k_features(self, features, k=5, target=None):
        f = torch.as_tensor(features, dtype=torch.float32)
        t = self._target(f, target)
        return TopK(*self._expansion.top_k(f, t, k), t)

    def self_influence(self):
        raise NotImplementedError

    def save(self, path):
        raise NotImplementedError

    @classmethod
    def load(cls, path, model=None):
        raise NotImplementedError

    def predict(self, x):
        return self.predict_features(self._features(x))

    def predict_features(self, features):
        f = torch.as_tensor(features, dtype=torch.float32)
        W = torch.as_tensor(self.coef_, dtype=torch.float32)
        d = f.shape[1]
        s = f @ W[:, :d].T
        return (s + W[:, d] if self.bias else s).argmax(1)
