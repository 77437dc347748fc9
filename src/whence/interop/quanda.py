"""Any attribution method as an explainer of quanda, for its metrics and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from quanda.explainers.base import Explainer
from torch import Tensor, nn

from whence.methods import get


class QuandaExplainer(Explainer):  # type: ignore[misc]
    """A method of whence that is fitted by its constructor, as quanda's metrics and benchmarks expect.

    **A positive score supports the target**, as in quanda.

    Parameters
    ----------
    model, train_dataset, task, checkpoints, checkpoints_load_func
        As for every explainer of quanda; the last of several checkpoints is explained.
    method
        The name of the method.
    parameters
        Its hyper-parameters by name.
    fit_options
        Other arguments of its ``fit``, such as ``cache_dir``.
    """

    accepted_tasks: ClassVar[list[str]] = ["image_classification", "text_classification"]

    def __init__(
        self,
        model: nn.Module,
        train_dataset: Any,
        task: str = "image_classification",
        checkpoints: str | list[str] | None = None,
        checkpoints_load_func: Callable[..., Any] | None = None,
        *,
        method: str = "dualda",
        parameters: Mapping[str, Any] | None = None,
        fit_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, train_dataset, task, checkpoints, checkpoints_load_func)
        if self.checkpoints:
            self.load_last_checkpoint()
        self.explainer = get(method, "method")(**(parameters or {}))
        self.explainer.fit(model, train_dataset, **(fit_options or {}))

    def explain(self, test_data: Any, targets: Any) -> Tensor:
        """Return scores (test, train) for the targets."""
        return self.explainer.attribute(test_data, torch.as_tensor(targets)).to(self.device)

    def self_influence(self, batch_size: int = 32) -> Tensor:
        """Return the score (train,) of each training sample for its own label at itself."""
        return self.explainer.self_influence().to(self.device)
