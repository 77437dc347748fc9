"""One forward pass of a model: what it gives, and where the logits are in the model's output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

from torch import Tensor

from whence.errors import InvalidInputError, ModelError
from whence.model.inputs import take

_BOXES = {"boxes", "pred_boxes", "masks", "pred_masks", "bboxes"}  # in outputs of models that find objects
_SUPPORTED = (
    "What is supported: one class per sample, one logit, several labels per sample, and numbers, with "
    "outputs of shape (B, K) or (B,); see whence.tasks."
)


class Graph(Protocol):
    """What brings relevance of a pass's features back to its inputs, any number of times."""

    def maps(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return the relevance of each input by its name, see ``Pass.maps``."""


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward pass of a model over a batch: everything that is computed of these inputs takes it.

    Attributes
    ----------
    inputs : as the model takes them, on its device; None where several batches were put together
    features : (B, d) inputs of the last linear layer, or of several
    logits : (B, K) the model's own output
    graph : brings relevance back; None where the pass was made without
    """

    inputs: Any
    features: Tensor
    logits: Tensor
    graph: Graph | None = None

    def __len__(self) -> int:
        """Return the number B of samples."""
        return len(self.features)

    def __getitem__(self, rows: slice) -> Pass:
        """Return the pass of some samples, without the graph."""
        inputs = None if self.inputs is None else take(self.inputs, rows)
        return replace(
            self, inputs=inputs, features=self.features[rows], logits=self.logits[rows], graph=None
        )

    def maps(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return the relevance of the inputs where that of the features is ``coefficients`` times them.

        Parameters
        ----------
        coefficients : (B, d) or (m, B, d)
            One per sample, or m per sample, all in one pass back.

        Returns
        -------
        Maps of each input's shape by its name, of tokens (B, T), with m in front where it was given; a single
        tensor's name is "input".
        """
        if self.graph is None:
            raise InvalidInputError(
                "Relevance needs a pass with a graph. Got one without; use whence.relevance.trace."
            )
        return self.graph.maps(coefficients)


def logits_in(output: Any, n: int | None = None) -> list[Tensor]:
    """List what may be the logits in a model's output: floating-point tensors (B, K), or (B,) as (B, 1).

    ``n`` is B, where it is known, without which (B,) could be the K outputs of one sample.
    """
    if isinstance(output, Mapping):
        parts = [output["logits"]] if "logits" in output else list(output.values())
    elif hasattr(output, "logits"):
        parts = [output.logits]
    else:
        parts = list(output) if isinstance(output, tuple | list) else [output]
    tensors = [p for p in parts if isinstance(p, Tensor) and p.is_floating_point()]
    matrices = [p for p in tensors if p.ndim == 2]
    # One output per sample may be without a dimension of its own.
    matrices = matrices or [p[:, None] for p in tensors if p.ndim == 1 and len(p) == n]
    if not matrices:
        _refuse(output, parts)
    return matrices


def _refuse(output: Any, parts: list[Any]) -> NoReturn:
    """Raise ModelError that names what a model returns that has no logits (B, K)."""
    several = [part for part in parts if isinstance(part, Mapping)] or [output]
    names = {name for part in several if isinstance(part, Mapping) for name in part}
    names |= _BOXES & set(dir(output))
    if names & _BOXES:
        raise ModelError(
            f"Detection is not supported: the model returns {', '.join(sorted(names & _BOXES))}. {_SUPPORTED}"
        )
    shapes = [tuple(part.shape) for part in parts if isinstance(part, Tensor)]
    if any(len(shape) in (4, 5) for shape in shapes):
        shape = next(shape for shape in shapes if len(shape) in (4, 5))
        raise ModelError(
            f"Segmentation, or another output per place, is not supported: the model returns shape {shape}. "
            f"{_SUPPORTED}"
        )
    got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
    raise ModelError(
        "The model must return logits, shape (B, K), or one output per sample, shape (B,), alone, as "
        f"output.logits, or in a tuple or dict. Got {got}. Is the input a batch?"
    )
