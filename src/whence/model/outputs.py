"""What a model returns: where its logits are, and what is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from torch import Tensor

from whence.errors import ModelError

_BOXES = {"boxes", "pred_boxes", "masks", "pred_masks", "bboxes"}  # in outputs of models that find objects
_SUPPORTED = (
    "What is supported: one class per sample, one logit, several labels per sample, and numbers, with "
    "outputs of shape (B, K) or (B,); see whence.tasks."
)


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
    found = [p for p in tensors if p.ndim == 2]
    # One output per sample may be without a dimension of its own.
    found = found or [p[:, None] for p in tensors if p.ndim == 1 and len(p) == n]
    if not found:
        _refuse(output, parts)
    return found


def _refuse(output: Any, parts: list[Any]) -> NoReturn:
    """Say what a model's output is that has no logits (B, K)."""
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
