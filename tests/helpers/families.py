"""Small random instances of the model families that whence finds the head of, and what is expected.

``python -m tests.helpers.families`` prints the table of docs/models.md.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from whence.model.extractor import find_head
from whence.model.heads import head_inputs, recording, terms, widths
from whence.model.inputs import run
from whence.model.modules import evaluating, unwrap

EFFICIENTNET_LITE0 = Path.home() / ".cache/whence/data/efficientnet-lite0/efficientnet-lite0-57934424.pth"


@dataclass(frozen=True)
class Family:
    """A model with a batch of its inputs, the library it needs, and the head's name."""

    name: str
    build: Callable[[], tuple[nn.Module, Any]]
    head: str
    needs: str | None = None

    def made(self) -> tuple[nn.Module, Any]:
        """Build the same instance each time, its normalisations moved from where they start."""
        torch.manual_seed(0)
        model, inputs = self.build()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and self.needs is None:
                module.running_mean.normal_()  # type: ignore[union-attr]
                module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        return model, inputs

    def missing(self) -> str | None:
        """Say why this family cannot be built here, if so."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        if self.needs == "efficientnet_lite_pytorch" and not EFFICIENTNET_LITE0.is_file():
            return f"the weights are not at {EFFICIENTNET_LITE0}"
        return None


IMAGES = torch.randn(10, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def conv(channels: int, out: int, stride: int = 1, groups: int = 1, kernel: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out)
    )


def mlp() -> tuple[nn.Module, Any]:
    layers = [nn.Flatten(), nn.Linear(3072, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 5)]
    return nn.Sequential(*layers), IMAGES


class Vgg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv(3, 8), nn.ReLU(True), nn.MaxPool2d(2), conv(8, 8), nn.ReLU(True), nn.AdaptiveAvgPool2d(2)
        )
        self.classifier = nn.Sequential(nn.Linear(32, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


class Residual(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.first, self.second = conv(channels, out, 2), conv(out, out)
        self.downsample = conv(channels, out, 2, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(12, 5)
        self.stem = conv(3, 6, 2)
        self.layers = nn.Sequential(Residual(6, 8), Residual(8, 12))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.adaptive_avg_pool2d(self.layers(F.relu(self.stem(x))), 1).flatten(1))


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 4)
        self.growth = nn.ModuleList(conv(8 + 4 * i, 4) for i in range(3))
        self.norm = nn.BatchNorm2d(20)
        self.classifier = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for grow in self.growth:
            x = torch.cat([x, grow(F.relu(x))], 1)
        x = F.relu(self.norm(x), inplace=True)
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class ChannelNorm(nn.LayerNorm):
    """Normalise over the channels of an image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class NextBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.expand, self.reduce = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).movedim(1, -1))
        return x + (self.scale * self.reduce(F.gelu(self.expand(y)))).movedim(-1, 1)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 4, 4), ChannelNorm(8), NextBlock(8), NextBlock(8))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(ChannelNorm(8), nn.Flatten(1), nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))


class MobileBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.expand = conv(channels, 3 * channels, kernel=1)
        self.depthwise = conv(3 * channels, 3 * channels, groups=3 * channels)
        # As many as there are classes, so that the squeeze has the shape of a head.
        self.squeeze, self.excite = nn.Conv2d(3 * channels, 5, 1), nn.Conv2d(5, 3 * channels, 1)
        self.project = conv(3 * channels, channels, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.depthwise(F.silu(self.expand(x))))
        gate = self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(y, 1))))
        return x + self.project(y * gate.sigmoid())


class EfficientNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv(3, 6, 4), nn.SiLU(True), MobileBlock(6), MobileBlock(6), conv(6, 12, kernel=1)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2, inplace=True), nn.Linear(12, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.avgpool(F.silu(self.features(x))), 1))


def all_convolutional() -> tuple[nn.Module, Any]:
    """A 1×1 convolution makes a map per class, whose average is the logit."""
    layers = [conv(3, 8, 4), nn.ReLU(), nn.Dropout(), nn.Conv2d(8, 5, 1), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten()), IMAGES


def pooled_first() -> tuple[nn.Module, Any]:
    layers = [conv(3, 8, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 5, 1), nn.Flatten()]
    return nn.Sequential(*layers), IMAGES


def waveform() -> tuple[nn.Module, Any]:
    layers = [nn.Conv1d(3, 8, 9, 4), nn.ReLU(), nn.Conv1d(8, 5, 1), nn.AdaptiveAvgPool1d(1)]
    return nn.Sequential(*layers, nn.Flatten()), IMAGES.flatten(2)


# Lengths 7, 3, 6, 1 … of token sequences, whose last tokens differ from the padding, 0.
LENGTHS = [7, 3, 6, 1, 5, 7, 2, 4, 6, 3]


def tokens(side: str = "right") -> dict[str, Tensor]:
    """Encode texts as a tokeniser does, padded on one side to 8 tokens."""
    generator = torch.Generator().manual_seed(2)
    ids, mask = torch.zeros(10, 8, dtype=torch.long), torch.zeros(10, 8, dtype=torch.long)
    for i, n in enumerate(LENGTHS):
        places = slice(0, n) if side == "right" else slice(8 - n, 8)
        ids[i, places] = torch.randint(1, 50, (n,), generator=generator)
        mask[i, places] = 1
    return {"input_ids": ids, "attention_mask": mask}


SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {"vocab_size": 50, "max_position_embeddings": 16, "num_labels": 5, "pad_token_id": 0}


def transformer(name: str, inputs: Callable[[], Any] = tokens, teacher: str = "", **config: Any) -> Any:
    """Build a model of transformers with random weights, of which no logit is near another."""

    def build() -> tuple[nn.Module, Any]:
        import transformers

        kind = "ForImageClassification" if "image_size" in config else "ForSequenceClassification"
        model = getattr(transformers, name + kind + teacher)(getattr(transformers, f"{name}Config")(**config))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model, inputs()

    return build


GPT2 = {
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 16,
    "bos_token_id": 1,
    "eos_token_id": 1,
    **TEXT,
}
LLAMA = {**SMALL, **TEXT, "num_key_value_heads": 1}
BERT = transformer("Bert", **SMALL, **TEXT)


def lora(base: Callable[[], tuple[nn.Module, Any]], targets: list[str], task: str | None = None) -> Any:
    """Wrap a model in low-rank adapters that are not zero."""

    def build() -> tuple[nn.Module, Any]:
        import peft

        model, inputs = base()
        config = peft.LoraConfig(r=2, target_modules=targets, task_type=task, lora_dropout=0.1)
        wrapped = peft.get_peft_model(model, config)
        with torch.no_grad():
            for parameter in wrapped.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.3 * torch.randn_like(parameter))
        return wrapped, inputs

    return build


def parallel() -> tuple[nn.Module, Any]:
    return nn.DataParallel(ResNet()), IMAGES


def compiled() -> tuple[nn.Module, Any]:
    return torch.compile(ResNet(), backend="eager"), IMAGES  # type: ignore[return-value]


def efficientnet_lite0() -> tuple[nn.Module, Any]:
    """The published network with its published weights."""
    import efficientnet_lite_pytorch

    model = efficientnet_lite_pytorch.EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(EFFICIENTNET_LITE0, weights_only=True))
    images = torch.randn(3, 3, 96, 96, generator=torch.Generator().manual_seed(3))
    return model, images


VISION = {"image_size": 32, "num_labels": 5}


def pixels() -> dict[str, Tensor]:
    return {"pixel_values": IMAGES}


def left() -> dict[str, Tensor]:
    return tokens("left")


DISTIL = {"dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2, **TEXT}
SWIN = {"patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4, **VISION}
VIT = {**SMALL, **VISION, "patch_size": 8}
BOTH_HEADS = "0.5*cls_classifier + 0.5*distillation_classifier"
FAMILIES = [
    Family("Sequential", mlp, "4"),
    Family("VGG", lambda: (Vgg(), IMAGES), "classifier.3"),
    Family("ResNet", lambda: (ResNet(), IMAGES), "fc"),
    Family("DenseNet", lambda: (DenseNet(), IMAGES), "classifier"),
    Family("ConvNeXt", lambda: (ConvNeXt(), IMAGES), "classifier.2"),
    Family("EfficientNet", lambda: (EfficientNet(), IMAGES), "classifier.1"),
    Family("EfficientNet-lite0, published weights", efficientnet_lite0, "_fc", "efficientnet_lite_pytorch"),
    Family("1×1 convolution, then average", all_convolutional, "3"),
    Family("average, then 1×1 convolution", pooled_first, "3"),
    Family("1×1 convolution over time, then average", waveform, "2"),
    *(
        Family(name, build, head, "transformers")
        for name, build, head in (
            ("BERT", BERT, "classifier"),
            ("DistilBERT", transformer("DistilBert", **DISTIL), "classifier"),
            ("RoBERTa", transformer("Roberta", **SMALL, **TEXT), "classifier.out_proj"),
            ("ViT", transformer("ViT", pixels, **VIT), "classifier"),
            ("Swin", transformer("Swin", pixels, **SWIN), "classifier"),
            ("DeiT with a teacher", transformer("DeiT", pixels, "WithTeacher", **VIT), BOTH_HEADS),
            ("GPT-2", transformer("GPT2", **GPT2), "score"),
            ("GPT-2, padded on the left", transformer("GPT2", left, **GPT2), "score"),
            ("Llama", transformer("Llama", **LLAMA), "score"),
            ("Llama, padded on the left", transformer("Llama", left, **LLAMA), "score"),
            ("Qwen2", transformer("Qwen2", **LLAMA), "score"),
            ("Qwen3", transformer("Qwen3", **LLAMA, head_dim=8), "score"),
        )
    ),
    Family(
        "BERT with LoRA, head saved whole",
        lora(BERT, ["query", "value"], "SEQ_CLS"),
        "base_model.model.classifier",
        "peft",
    ),
    Family(
        "Llama with LoRA on the head too",
        lora(transformer("Llama", **LLAMA), ["q_proj", "score"]),
        "base_model.model.score",
        "peft",
    ),
    Family("ResNet in DataParallel", parallel, "fc"),
    Family("ResNet, compiled", compiled, "fc"),
]


def row(family: Family) -> str:
    """One line of the table in the documentation, from a run of the instance."""
    model, inputs = family.made()
    name = find_head(model, inputs)
    model = unwrap(model)
    layers = {part: model.get_submodule(part) for _, part in terms(name)}
    with evaluating(model), recording(layers) as calls:
        output = run(model, inputs)
        logits = output if isinstance(output, Tensor) else output.logits
        found = head_inputs(calls[0], logits)
    assert found is not None
    direct = calls[0].inputs.numel() == found.features.numel()
    places = (
        "the sample" if direct else "average over places" if found.size is not None else "last real token"
    )
    layer = next(iter(layers.values()))
    kind = type(layer).__name__ + (" (peft)" if type(layer).__module__.startswith("peft") else "")
    d, K = sum(widths(each)[0] for each in layers.values()), widths(layer)[1]
    return f"| {family.name} | `{name}` | {kind} | {d}→{K} | {places} |"


if __name__ == "__main__":
    for each in FAMILIES:
        print(each.missing() or row(each))
