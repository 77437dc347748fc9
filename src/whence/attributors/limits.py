"""What a method asks for, declared beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a method asks for, and what it leaves out.

    Attributes
    ----------
    needs_checkpoints : whether ``fit`` must be given weights from the course of training
    needs_loss : whether it uses gradients or curvature of the training loss, which is taken to be the
        cross-entropy
    last_layer_only : whether it sees the model as features and a last linear layer, and so nothing of how
        the layers before were trained
    memory : what its memory grows with, in a phrase; N training samples, d features, K classes, P parameters
    cost : CPU-seconds of fitting and of explaining 200 tests, for 1,000 training samples and a small
        convolutional network, roughly: an evaluation plans with it
    own_class_only : whether, with features that are nowhere negative, only samples of the target class can
        score above 0
    new_layer : whether it puts a linear layer of its own, ``coef_``, in the place of the model's last one
    """

    needs_checkpoints: bool = False
    needs_loss: bool = False
    last_layer_only: bool = False
    memory: str = "what it keeps of each training sample"
    cost: float = 1.0
    own_class_only: bool = False
    new_layer: bool = False
