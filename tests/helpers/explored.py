"""Small projects for the explorer, of pictures, texts and plain values, and ways to ask its interface."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.helpers.nets import train
from whence import DualDA
from whence.data import as_training_set
from whence.methods import Attributor
from whence.project import Configuration, Project

N, M, SIZE = 90, 30, 12
NAMES = ("bar", "dot", "frame")
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'></script><img src=x onerror=alert(1)>$&{{1234*1234}}",
    "=cmd()\u202e\x00<!--",
)
"""Names of classes that would act on a page, in a template or in a spreadsheet."""


def pictures(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bars, dots and frames at random places, with noise, in [0, 1]; a tenth has a wrong label."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    x = 0.2 * rng.random((n, 1, SIZE, SIZE))
    for image, label in zip(x[:, 0], y, strict=True):
        row, column = rng.integers(1, SIZE - 5, 2)
        if label == 0:
            image[row, 1:-1] = 1
        elif label == 1:
            image[row : row + 2, column : column + 2] = 1
        else:
            image[row : row + 5, column : column + 5] = 1
            image[row + 1 : row + 4, column + 1 : column + 4] = 0
    y = np.where(np.arange(n) % 10 == 7, (y + 1) % 3, y)
    return torch.from_numpy(x).float(), torch.from_numpy(y)


def network(seed: int = 0) -> nn.Module:
    """A small convolutional network, a little trained."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(150, 12), nn.ReLU(),
        nn.Linear(12, 3),
    )  # fmt: skip
    x, y = pictures(N, 0)
    train(model, x, y, 60, 1e-2)
    return model.eval()


def project(
    model: nn.Module, train: Any, test: Any, *, names: tuple[str, ...] = NAMES, path: str = "small.whence",
    preprocess: Any = None, tokenizer: Any = None,
) -> Project:  # fmt: skip
    """A project as ``whence serve`` opens it, without files."""
    explainer = DualDA(metric="raw", C=0.05, tol=1e-9, batch_size=64, show_progress=False)
    explainer.fit(model, train, class_names=names, preprocess=preprocess, tokenizer=tokenizer)
    form = {"preprocess": preprocess, "tokenizer": tokenizer}
    tests = as_training_set(test, 64, task=explainer.task_, names=names, **form)
    return Project(Path(path), Configuration(model="", data=""), explainer, tests)


def picture_project(**options: Any) -> Project:
    return project(network(), pictures(N, 0), pictures(M, 1), **options)


def method_project(method: Attributor, model: Any, path: str = "small.whence") -> Project:
    """Pictures by another method than DualDA, or by several models."""
    method.fit(model, pictures(N, 0), class_names=NAMES)
    tests = as_training_set(pictures(M, 1), 64, task=method.task_, names=NAMES)
    return Project(Path(path), Configuration(model="", data=""), method, tests)


def value_project() -> Project:
    """Five plain values per sample."""
    rng = np.random.default_rng(0)
    y = np.arange(N + M) % 3
    x = torch.from_numpy(np.eye(3, 5)[y] + 0.4 * rng.normal(size=(N + M, 5))).float()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    labels = torch.from_numpy(y)
    train(model, x[:N], labels[:N], 60, 1e-2)
    return project(model.eval(), (x[:N], labels[:N]), (x[N:], labels[N:]))


WORDS = [
    *("shares", "profit", "bank", "market"),
    *("goal", "match", "coach", "score"),
    *("vote", "party", "law", "minister"),
    *("the", "a", "of", "in", "on", "rose", "won", "said"),
]


def texts(n: int, seed: int) -> tuple[list[str], list[int]]:
    rng = np.random.default_rng(seed)
    labels = [i % 3 for i in range(n)]
    made = [
        " ".join([*rng.choice(WORDS[4 * y : 4 * y + 4], 4), *rng.choice(WORDS[12:], 5)][:: 1 if y else -1])
        for y in labels
    ]
    return made, labels


SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def tokenizer(words: Sequence[str] = WORDS) -> Any:
    """A tokeniser of transformers whose vocabulary is made here, of words and pieces such as ##bn."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words])}
    inner = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = Lowercase(), Whitespace()
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=32,
    )  # fmt: skip


def text_project(preprocess: Any = None) -> Project:
    """A tiny BERT; its inputs are made by its tokeniser, or by a function that is given that."""
    from transformers import BertConfig, BertForSequenceClassification

    spelling = tokenizer()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(spelling), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, num_labels=3,
        id2label=dict(enumerate(("business", "sport", "politics"))),
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    (words, labels), test = texts(N, 0), texts(M, 1)
    ready = spelling(words, padding=True, return_tensors="pt")
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(25):
        optimiser.zero_grad()
        model(**ready, labels=torch.tensor(labels)).loss.backward()
        optimiser.step()
    names = ("business", "sport", "politics")
    made = {"tokenizer": spelling} if preprocess is None else {"preprocess": preprocess(spelling)}
    return project(model.eval(), (words, labels), test, names=names, **made)


POST = {"x-whence": "1"}


def connect(explorer: Any, **options: Any) -> Any:
    """A client of an explorer's interface."""
    from fastapi.testclient import TestClient

    from whence.ui.server import create_app

    app = create_app(explorer, hosts=("127.0.0.1",), **options)
    return TestClient(app, base_url="http://127.0.0.1:8000", headers=POST, raise_server_exceptions=False)


def get(client: Any, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(client: Any, path: str, body: Any = None) -> Any:
    """The last line of an answer."""
    sent = {"content": b""} if body is None else {"json": body}
    answer = client.post(path, headers=POST, **sent)
    assert answer.status_code == 200, answer.text
    return json.loads(answer.text.splitlines()[-1])


def features(explorer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of the training and of the test pictures, by the network itself."""
    body = explorer.project.explainer.fitted_.require_model().extractor.model[:-1]
    with torch.no_grad():
        return body(pictures(N, 0)[0]).numpy(), body(pictures(M, 1)[0]).numpy()
