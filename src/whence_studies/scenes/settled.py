"""BatchNorm's statistics of a network in the middle of its training."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

_BATCH, _MOST = 256, 10_000  # samples read at a time, and in all


def settled(model: nn.Module, state: Mapping[str, Tensor], inputs: Tensor) -> dict[str, Tensor]:
    """Return weights from the course of training with the statistics that these very weights have on inputs.

    The statistics that BatchNorm keeps are running means over the last steps. Where weights change fast, they
    belong to other weights, and the network that is evaluated is another than the one that is trained.

    Parameters
    ----------
    model
        Of the same kind; it stays as it is.
    state
        Its weights and statistics at a checkpoint; given back as they are where nothing is normalised so.
    inputs
        The training set, (N, …); of a large one some samples are drawn.
    """
    network = copy.deepcopy(model)
    network.load_state_dict(state)
    with torch.random.fork_rng(devices=[]):  # dropout is at work as in training
        torch.manual_seed(0)
        # Drawn, since a batch of a set that is sorted by class would have the statistics of a class.
        rows = torch.randperm(len(inputs))[:_MOST]
        parts = torch.tensor_split(rows, math.ceil(len(rows) / _BATCH))
        update_bn((inputs[part] for part in parts), network, next(network.parameters()).device)
    return {name: tensor.detach() for name, tensor in network.state_dict().items()}
