"""Ten pairs of one sample, twenty maps, against a plain forward and backward of a batch of twenty."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from examples.cifar10_resnet import ResNet8
from torch import Tensor, nn

from whence import DualDA
from whence.sample import SmallCNN

SAMPLES, PAIRS = 60, 10


class VGG(nn.Sequential):
    """VGG-11 with half the channels, for 64×64 images, ReLUs in place."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        n_in = 3
        for width in (32, "pool", 64, "pool", 128, 128, "pool", 256, 256, "pool", 256, 256, "pool"):
            if isinstance(width, str):
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(n_in, width, 3, padding=1), nn.ReLU(inplace=True)]
                n_in = width
        super().__init__(*layers, nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))


def bert() -> tuple[nn.Module, Any]:
    """A BERT of the size of MiniLM, with texts of 64 tokens."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    model = BertForSequenceClassification(BertConfig(vocab_size=1000, num_labels=10, **sizes))
    tokens = torch.randint(0, 1000, (SAMPLES, 64))
    return model, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def models() -> dict[str, tuple[nn.Module, Any]]:
    return {
        "small CNN, 28×28": (SmallCNN(), torch.rand(SAMPLES, 1, 28, 28)),
        "ResNet-8, 32×32": (ResNet8(), torch.randn(SAMPLES, 3, 32, 32)),
        "VGG-11 of half width, 64×64": (VGG(), torch.randn(SAMPLES, 3, 64, 64)),
        "BERT of MiniLM's size, 64 tokens": bert(),
    }


def plain(model: nn.Module, batch: Any, parameters: bool) -> Callable[[], object]:
    """A forward and backward of a batch: to the parameters as in training, or to the inputs alone."""
    model.eval()

    def run() -> None:
        model.zero_grad()
        if isinstance(batch, Tensor):
            logits = model(batch.detach().clone().requires_grad_())
        else:
            embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
            logits = model(inputs_embeds=embedded, attention_mask=batch["attention_mask"]).logits
        logits.sum().backward()

    for parameter in model.parameters():
        parameter.requires_grad_(parameters)
    return run


def ratios(calls: list[Callable[[], object]], rounds: int = 15) -> list[float]:
    """Time the calls in turns; return the ratio of each one's fastest round to the first one's."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for place, call in enumerate(calls):
            start = time.perf_counter()
            call()
            seconds[place].append(time.perf_counter() - start)
    return [min(times) / min(seconds[0]) for times in seconds]


def run() -> None:
    torch.manual_seed(0)
    print(
        f"\nExplanation with {PAIRS} pairs of one sample, {torch.get_num_threads()} threads, fastest of 15.\n"
    )
    print("| model | rules | to inputs alone | to inputs and parameters |\n|---|---|---|---|")
    for name, (model, inputs) in models().items():
        labels = torch.arange(SAMPLES) % 10
        data = (inputs, labels)
        explainer = DualDA(C=1e-3, show_progress=False).fit(model.eval(), data)
        one = {key: x[:1] for key, x in inputs.items()} if isinstance(inputs, dict) else inputs[:1]
        twenty = {key: x[:20] for key, x in inputs.items()} if isinstance(inputs, dict) else inputs[:20]
        cells = []
        for parameters in (False, True):
            backward = plain(model, twenty, parameters)
            cells.append(ratios([backward, functools.partial(explainer.explain, one, PAIRS // 2)])[1])
        why = explainer.explain(one, PAIRS // 2)[0]
        assert len(why.pairs) == PAIRS
        print(f"| {name} | {why.method} | {cells[0]:.2f}× | {cells[1]:.2f}× |", flush=True)
