"""One sample and batches in every form that users have them, against the same values as a tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import whence
from whence import DualDA
from whence.data import as_training_set
from whence.errors import InvalidInputError

pd = pytest.importorskip("pandas")

N, COLUMNS = 40, ("age", "income", "height", "kids")


def table() -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(N, 3)), columns=COLUMNS[:3])
    frame["kids"] = rng.integers(0, 4, N)
    return frame, np.arange(N) % 2


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def fitted(*data: Any, **options: Any) -> DualDA:
    return DualDA(C=0.1, show_progress=False).fit(model(), *data, **options)


ONE: dict[str, Callable[[Any], Any]] = {
    "row": lambda frame: frame.iloc[3],
    "table of one row": lambda frame: frame.iloc[[3]],
    "row with its label": lambda frame: frame.assign(label=1).iloc[3],
    "row in another order": lambda frame: frame[list(COLUMNS[::-1])].iloc[3],
    "array": lambda frame: frame.to_numpy()[3],
    "tensor": lambda frame: torch.from_numpy(frame.to_numpy())[3],
    "list of numbers": lambda frame: frame.to_numpy()[3].tolist(),
    "sample with its label": lambda frame: (frame.to_numpy()[3], 1),
    "list of samples with labels": lambda frame: [(frame.to_numpy()[3], torch.tensor(0))],
}


@pytest.mark.parametrize("form", ONE)
def test_one_sample_of_a_table(form: str) -> None:
    frame, y = table()
    explainer = fitted(frame, y)
    expected = explainer.attribute(torch.from_numpy(frame.to_numpy()))[3:4]
    x = ONE[form](frame)
    torch.testing.assert_close(explainer.attribute(x), expected)
    torch.testing.assert_close(torch.from_numpy(explainer.explain(x, relative=False)[0].scores).sum(),
                               expected.sum().double(), rtol=1e-4, atol=1e-5)  # fmt: skip
    assert explainer.top_k(x, 2).proponents.indices.shape == (1, 2)


def reloaded(explainer: DualDA, folder: Path, *data: Any, **options: Any) -> Any:
    explainer.save(folder / "e.whence")
    return whence.load(folder / "e.whence", explainer.model_.extractor.model, data, **options)


def test_a_table_trains_as_its_array_does_and_keeps_its_names(tmp_path: Path) -> None:
    frame, y = table()
    X = frame.to_numpy()
    expected = fitted(X, y).attribute(X)
    for explainer in (
        fitted(frame, pd.Series(y)),
        fitted(frame.assign(target=y)),
        fitted(X, y, feature_names=COLUMNS),
        reloaded(fitted(X, y), tmp_path, X, y, feature_names=COLUMNS),
    ):
        torch.testing.assert_close(explainer.attribute(frame), expected)
        why = explainer.explain(frame.iloc[0])[0]
        assert why.sample.names == why.pairs[0].sample.names == COLUMNS
        page = explainer.explain(frame.iloc[0]).to_html()
        assert all(f"<dt>{name}</dt>" in page for name in COLUMNS)
        labels = {text.get_text() for text in why.plot().texts}
        assert set(COLUMNS) <= labels


def test_bad_tables_are_named() -> None:
    frame, y = table()
    with pytest.raises(
        InvalidInputError, match=r"a column of labels, one of label, .* Got the columns age, inc"
    ):
        fitted(frame)
    with pytest.raises(InvalidInputError, match=r"Missing: 'income', 'height', 'kids'. Got 'age'"):
        fitted(frame, y).attribute(frame[["age"]])
    with pytest.raises(
        InvalidInputError, match=r"one name per value of a sample. Got 2 for rows of 4 values"
    ):
        fitted(frame.to_numpy(), y, feature_names=["a", "b"])
    with pytest.raises(InvalidInputError, match="'feature_names' must be given where the samples are first"):
        as_training_set(as_training_set((frame.to_numpy(), y)), feature_names=COLUMNS)


class Mixed(nn.Module):
    """Reads a number and a token of each row."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(3, 4), nn.Linear(4, 2)

    def forward(self, age: Tensor, town: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(town) * age[:, None].float())
        return logits


def test_columns_of_several_kinds_reach_preprocess_by_name() -> None:
    towns = ["Bonn", "Rome", "Oslo"]
    frame = pd.DataFrame({"age": np.linspace(1, 9, N), "town": [towns[i % 3] for i in range(N)]})

    def prepare(batch: dict[str, Any]) -> dict[str, Tensor]:
        return {"age": batch["age"], "town": torch.tensor([towns.index(town) for town in batch["town"]])}

    explainer = DualDA(C=0.1, show_progress=False)
    explainer.fit(Mixed(), frame, np.arange(N) % 2, preprocess=prepare)
    scores = explainer.attribute(frame)
    assert scores.shape == (N, N)
    for one in (frame.iloc[5], {"age": 1 + 8 * 5 / (N - 1), "town": "Oslo"}, frame.iloc[[5]]):
        torch.testing.assert_close(explainer.attribute(one), scores[5:6])


def test_a_table_of_texts_goes_through_the_tokenizer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"])
    )
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"), model_max_length=6)
    torch.manual_seed(0)
    sizes = dict.fromkeys(("hidden_size", "intermediate_size"), 8)
    config = transformers.BertConfig(vocab_size=7, num_hidden_layers=1, num_attention_heads=2, **sizes)
    net = transformers.BertForSequenceClassification(config).eval()
    texts = ["good", "bad bad", "good good good", "bad"] * 5
    frame = pd.DataFrame({"review": texts, "label": [0, 1] * 10})
    explainer = DualDA(C=0.1, show_progress=False).fit(net, frame, tokenizer=tokenizer)
    expected = explainer.attribute(texts)
    for x in (frame, frame[["review"]], frame["review"]):
        torch.testing.assert_close(explainer.attribute(x), expected)
    for one in (texts[2], frame.iloc[2], {"review": texts[2]}):
        torch.testing.assert_close(explainer.attribute(one), expected[2:3], rtol=1e-4, atol=1e-5)
    why = explainer.explain(texts[2])[0]
    assert [token.strip() for token in why.sample.tokens or () if token] == ["good"] * 3
    chance = net(**tokenizer(texts[2], return_tensors="pt")).logits.softmax(1).max().item()
    assert why.probability == pytest.approx(chance, abs=1e-6)


def test_an_image_is_one_sample_by_the_shape_of_the_training_images() -> None:
    torch.manual_seed(0)
    images, y = torch.rand(30, 1, 6, 6), torch.arange(30) % 3
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    explainer = DualDA(C=0.1, show_progress=False).fit(net, TensorDataset(images, y))
    expected = explainer.attribute(images[:2])
    torch.testing.assert_close(explainer.attribute(images[1]), expected[1:])
    torch.testing.assert_close(explainer.attribute(TensorDataset(images, y)[1]), expected[1:])
    torch.testing.assert_close(explainer.attribute([images[0], images[1]]), expected)
    assert len(explainer.explain(images[0], target=2)) == 1
    group = whence.audit.group_attribution(explainer, images[0], target=1)
    assert group.n_tests == 1


def test_a_square_batch_follows_the_training_samples() -> None:
    torch.manual_seed(0)
    rows, y = torch.rand(30, 4), torch.arange(30) % 2
    explainer = DualDA(C=0.1, show_progress=False).fit(nn.Linear(4, 2), rows, y)
    assert explainer.attribute(rows[:4]).shape == (4, 30)  # (4, 4) is no sample here
    grids = torch.rand(30, 4, 4)
    explainer.fit(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), grids, y)
    assert explainer.attribute(grids[0]).shape == (1, 30)  # and here it is


def test_images_of_pil_go_through_preprocess() -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (20, 5, 5, 3), dtype=np.uint8)
    images = [Image.fromarray(one) for one in pixels]

    def prepare(batch: list[Image.Image]) -> Tensor:
        return torch.stack([torch.from_numpy(np.array(one)).permute(2, 0, 1) / 255 for one in batch])

    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(75, 2))
    explainer = DualDA(C=0.1, show_progress=False)
    explainer.fit(net, images, np.arange(20) % 2, preprocess=prepare)
    torch.testing.assert_close(explainer.attribute(images[3]), explainer.attribute(images)[3:4])
    assert explainer.explain(images[3])[0].sample.image is not None
