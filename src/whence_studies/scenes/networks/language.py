"""Networks on language models: a linear head on frozen features, or the last block trained with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.core.registry import register
from whence_studies.scenes.networks.base import Network, TextInputs
from whence_studies.scenes.texts import LastBlock, TextHead

if TYPE_CHECKING:
    from whence_studies.scenes.encoder import Encoder


def block(encoder: Encoder, n_classes: int) -> LastBlock:
    """Make a copy of the language model's last block, with a head."""
    return LastBlock(encoder.backbone, n_classes)


# A head costs next to nothing.
register(Network("minilm-head", TextHead, 2e-6, texts=TextInputs("minilm", seconds=0.03)))
register(Network("minilm-block", block, 1.2e-2, 45.0, TextInputs("minilm", states=True, seconds=0.03)))
register(Network("smollm2-head", TextHead, 2e-6, texts=TextInputs("smollm2", last=True, seconds=0.2)))
register(
    Network("smollm2-block", block, 2.2e-2, 110.0, TextInputs("smollm2", last=True, states=True, seconds=0.2))
)
