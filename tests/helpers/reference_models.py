"""Small models with relevance maps that other libraries computed for them, stored in tests/data/relevance.

``python -m benchmarks.references`` makes the files; its README says what each map is. Everything a test needs
is stored (weights, inputs, relevance at the features), so that no result hangs on a random generator.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

FOLDER = Path(__file__).parent.parent / "data" / "relevance"


class BasicBlock(nn.Module):
    """Residual block of two convolutions; its ReLU works in place and is used twice."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = BasicBlock(6, 6)
        self.layer2 = BasicBlock(6, 10, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(self.avgpool(x).flatten(1))


class EncoderBlock(nn.Module):
    """Transformer block with torch's own attention, normalisation first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class TorchViT(nn.Module):
    """Vision transformer of torch's own modules, with a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, 32))
        self.positions = nn.Parameter(torch.zeros(1, 17, 32))
        self.blocks = nn.Sequential(EncoderBlock(32, 4), EncoderBlock(32, 4))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def vgg() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 8, 3, 2, 1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(32, 12), nn.ReLU(), nn.Dropout()),
        nn.Linear(12, 4),
    )


def vgg_bn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True)),
        *(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(32, 12), nn.BatchNorm1d(12), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(12, 4),
    )


def convs() -> nn.Module:
    """Dilated, grouped, transposed, depthwise and pointwise convolutions; activations other than ReLU."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=2, dilation=2), nn.SiLU()),
        *(nn.Conv2d(6, 8, 3, padding=1, groups=2), nn.ReLU6()),
        *(nn.ConvTranspose2d(8, 6, 3, 2, 1, output_padding=1), nn.BatchNorm2d(6), nn.GELU()),
        *(nn.Conv2d(6, 6, 3, 2, 1, groups=6), nn.LeakyReLU(0.1)),
        *(nn.Conv2d(6, 8, 1, bias=False), nn.Hardswish()),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(8, 4, 3, padding=1), nn.ELU(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(64, 12), nn.Softplus()),
        nn.Linear(12, 4),
    )


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    return LlamaForSequenceClassification(
        LlamaConfig(
            **_sizes(),
            intermediate_size=64,
            num_key_value_heads=2,
            pad_token_id=0,
            max_position_embeddings=32,
            num_labels=4,
        )
    )


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    return GPT2ForSequenceClassification(
        GPT2Config(
            **_sizes(),
            n_inner=64,
            n_positions=16,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
            num_labels=4,
        )
    )


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(**_sizes(), intermediate_size=64, max_position_embeddings=16, num_labels=4)
    )


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = _sizes()
    del sizes["vocab_size"]
    return ViTForImageClassification(
        ViTConfig(**sizes, intermediate_size=64, image_size=16, patch_size=4, num_labels=4)
    )


def _sizes() -> dict[str, int]:
    return {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@dataclass(frozen=True)
class Spec:
    """How a model is built, its head's name, and the layer whose output holds a transformer's embeddings."""

    build: Callable[[], nn.Module]
    head: str
    embedding: str | None = None


SPECS = {
    "vgg": Spec(vgg, "12"),
    "vgg_bn": Spec(vgg_bn, "16"),
    "resnet": Spec(ResNet, "fc"),
    "convs": Spec(convs, "20"),
    "llama": Spec(llama, "score", "model.embed_tokens"),
    "gpt2": Spec(gpt2, "score", "transformer.wte"),
    "bert": Spec(bert, "classifier", "bert.embeddings.word_embeddings"),
    "vit_torch": Spec(TorchViT, "head", "patches"),
    "vit": Spec(vit, "classifier", "vit.embeddings.patch_embeddings"),
}


@dataclass(frozen=True)
class Reference:
    """A model in float64 and eval mode with what another library found for it.

    Attributes
    ----------
    layer
        Name of the head; its inputs are ``features`` (B, d).
    embedding
        Name of the layer at whose output a transformer's maps are; None where all maps are on pixels.
    inputs
        A tensor, or a mapping for models of transformers.
    relevance
        R (B, d) at the features, both signs, 0 where the feature is 0.
    maps
        By composite. On pixels without ``embedding`` and where the name ends in "_pixels"; else at that
        layer's output, for tokens (B, T, d), whose sum over d is one value per token.
    metadata
        Where the maps come from: library, versions, composites, epsilon, date, command.
    """

    name: str
    model: nn.Module
    layer: str
    embedding: str | None
    inputs: Any
    relevance: Tensor
    features: Tensor
    maps: dict[str, Tensor]
    metadata: dict[str, Any]


def load_reference(name: str, folder: Path = FOLDER) -> Reference:
    """Load a reference by name."""
    spec = SPECS[name]
    with safe_open(folder / f"{name}.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = json.loads((file.metadata() or {}).get("provenance", "{}"))
    model = spec.build().double().eval()
    model.load_state_dict(_part(tensors, "weights."))
    inputs = in_double(_part(tensors, "inputs."))
    return Reference(
        name=name,
        model=model,
        layer=spec.head,
        embedding=spec.embedding,
        inputs=inputs.get("x", inputs),
        relevance=tensors["relevance"],
        features=tensors["features"],
        maps=_part(tensors, "maps."),
        metadata=metadata,
    )


def in_double(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert what is not of whole numbers to float64."""
    return {key: value.double() if value.is_floating_point() else value for key, value in tensors.items()}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
