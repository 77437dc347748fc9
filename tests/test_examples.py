"""The examples' reading and formatting, on files that are made up here. Nothing is trained."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import ablation, bbc_news, cifar10_resnet, diabetes, mnist_cnn, mnist_tasks, outliers, places
from safetensors.torch import save_file

from whence import DualDA
from whence.data import as_training_set
from whence.model.extractor import Extractor, find_head
from whence.tasks import ManyLabels, OneLogit, Regression

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
needs_gguf = pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="gguf is not installed")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHENCE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("WHENCE_WEIGHTS", str(tmp_path / "weights"))
    for name in ("cifar-10", "bbc-news", "minilm", "smollm2"):
        (tmp_path / "data" / name).mkdir(parents=True)
    return tmp_path / "data"


def write_articles(data: Path, n: int) -> list[tuple[str, str]]:
    rows = [(bbc_news.TOPICS[i % 5], f'Article {i}, with "quotes"\n\nand a second line') for i in range(n)]
    with (data / "bbc-news" / "bbc-news.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("label", "text"), *rows])
    return rows


def test_folders_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHENCE_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"There is no folder .*cifar-10\. Set WHENCE_DATA"):
        places.data_folder("cifar-10")
    monkeypatch.setenv("WHENCE_WEIGHTS", str(tmp_path / "weights"))
    with pytest.raises(SystemExit, match=r"Make them with: python -m examples.cifar10_resnet"):
        cifar10_resnet.build()
    assert places.weights("new").parent.is_dir()


def test_cifar_records_are_read_by_colour_and_row(data: Path) -> None:
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (4, 3, 32, 32)), [3, 0, 9, 1]
    file = data / "cifar-10" / "data_batch_1.bin"
    file.write_bytes(
        b"".join(bytes([k]) + bytes(x.ravel().tolist()) for k, x in zip(labels, pixels, strict=True))
    )
    images, read = cifar10_resnet.train().tensors
    assert read.tolist() == labels
    assert images.dtype == torch.float32
    red = (pixels[2, 0, 5, 7] / 255 - 0.491) / 0.247
    blue = (pixels[2, 2, 31, 0] / 255 - 0.447) / 0.262
    assert images[2, 0, 5, 7].item() == pytest.approx(red, abs=1e-5)
    assert images[2, 2, 31, 0].item() == pytest.approx(blue, abs=1e-5)
    assert len(cifar10_resnet.read(file, 2)) == 2
    assert as_training_set(cifar10_resnet.train()).class_names == cifar10_resnet.CLASSES
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SystemExit, match="It ends within one"):
        cifar10_resnet.train()


def test_mnist_files_are_read_in_their_order(data: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    (data / "mnist").mkdir()
    for part in ("train", "t10k"):
        images = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in pixels.shape) + pixels.tobytes()
        labels = b"\0\0\x08\x01" + (3).to_bytes(4, "big") + bytes([7, 0, 2])
        (data / "mnist" / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (data / "mnist" / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    images, labels = mnist_cnn.test().tensors
    assert images.shape == (3, 1, 28, 28)
    assert images[1, 0, 5, 9].item() == pytest.approx(pixels[1, 5, 9] / 255)
    assert labels.tolist() == [7, 0, 2]
    assert len(mnist_cnn.read("train", 2)) == 2
    assert as_training_set(mnist_cnn.train()).class_names == tuple("0123456789")
    with pytest.raises(SystemExit, match=r"Make them with: python -m examples.mnist_cnn"):
        mnist_cnn.build()


def test_the_diabetes_network_begins_at_the_mean_and_gives_a_number_per_patient() -> None:
    x, y = diabetes.train().tensors
    assert (len(x), len(diabetes.test())) == (350, 92)
    whole = torch.cat([x, diabetes.test().tensors[0]])
    torch.testing.assert_close(whole.std(0, correction=0), torch.ones(10), atol=1e-4, rtol=0)
    model = diabetes.fit(x, y, epochs=1)
    explainer = DualDA(metric="raw", C=0.1, show_progress=False).fit(model, (x, y))
    assert isinstance(explainer.task_, Regression)
    assert model(x).shape == (350,)
    assert explainer.task_.base[0] == pytest.approx(float(y.mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("question", "task", "label"),
    [("ink", Regression, 784.0), ("even", OneLogit, [0.0]), ("attributes", ManyLabels, [0.0, 1.0, 0.0, 1.0])],
)
def test_questions_about_digits_have_their_task(question: str, task: type, label: object) -> None:
    digits = mnist_cnn.Digits(torch.rand(40, 1, 28, 28), torch.arange(40) % 10)
    digits.tensors[0][7] = 1.0  # a seven that is all ink
    asked = mnist_tasks.asked(question, digits)
    assert asked.tensors[1][7].tolist() == label
    model = mnist_tasks.fit(question, asked, epochs=1)
    explainer = DualDA(metric="raw", C=1e-3, show_progress=False).fit(model, asked)
    assert type(explainer.task_) is task
    assert explainer.class_names_ == (mnist_tasks.QUESTIONS[question].names or None)
    assert mnist_tasks.measured(question, model, asked)


def test_clothes_among_digits_are_separated_by_neighbours_and_by_machines() -> None:
    torch.manual_seed(0)
    model = mnist_cnn.SmallCNN().eval()
    digits = mnist_cnn.Digits(torch.rand(60, 1, 28, 28), torch.arange(60) % 10)
    shown, typical = outliers.mixed(*digits[:20], -torch.rand(10, 1, 28, 28))
    assert typical.tolist() == [True] * 20 + [False] * 10
    assert shown.tensors[1][20:].tolist() == [0] * 10
    lines = outliers.compare(model, digits, shown, typical).splitlines()
    assert lines[0].startswith(
        "Neighbours: AUC 1.000; nothing like it was in the training set: 100.0% of clothes"
    )
    assert "of 60 training samples have a coefficient" in lines[1]
    assert 20 <= int(lines[2].split()[5].rstrip(",")) < 30


def test_the_ablation_keeps_its_training_samples_and_loses_what_was_erased(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = mnist_cnn.SmallCNN().eval()
    images, labels = torch.rand(60, 1, 28, 28), torch.arange(60) % 10
    images[:, :, :4] = images[:, :, 24:] = 0
    explainer = DualDA(metric="raw", C=0.1, show_progress=False).fit(model, (images, labels))
    variants = ablation.variants(images[0])
    whole, without_base, without_arc = variants.values()
    assert ablation.cut_row(images[0]) == 14  # in the middle of rows 4 … 23
    assert torch.equal(without_base + without_arc, whole)
    assert not without_base[:, 14:].any()

    indices = ablation.proponents(explainer, images[0])
    extractor = Extractor(model, "head")
    cases = {
        name: ablation.explain(explainer, extractor, image, images, indices)
        for name, image in variants.items()
    }
    (why,) = explainer.explain(images[:1], target=ablation.DIGIT, relative=False)
    assert [pair.index for pair in why.proponents] == indices
    for name, image in variants.items():
        dots = model.features(image[None]) @ model.features(images[indices]).T + explainer.constant_**2
        lam = torch.tensor([explainer.lam_[i, ablation.DIGIT] for i in indices])
        assert cases[name].scores == pytest.approx((lam * dots[0].detach()).numpy(), rel=1e-4)
    for j, pair in enumerate(why.proponents):
        assert cases["unchanged"].test_maps[j] == pytest.approx(pair.test_map[0], abs=1e-6)
        assert cases["unchanged"].train_maps[j] == pytest.approx(pair.train_map[0], abs=1e-6)
    shares = ablation.erased_share(cases["unchanged"], without_base[0].numpy())
    below = why.maps["test"][: len(indices), 0, 14:24].sum((1, 2))
    assert shares == pytest.approx(below / why.maps["test"][: len(indices)].sum((1, 2, 3)), rel=1e-3)
    ablation.draw(cases, list(map(str, indices))).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert len(ablation.table(cases, indices).splitlines()) == 2 + len(indices)


def test_the_saved_network_comes_back_with_its_head(data: Path) -> None:
    model = cifar10_resnet.ResNet8()
    save_file(model.state_dict(), places.weights(cifar10_resnet.WEIGHTS))
    built = cifar10_resnet.build()
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(built(x), model.eval()(x))
    assert find_head(built, x) == "fc"


def test_augmentation_mirrors_and_shifts() -> None:
    torch.manual_seed(0)
    image = torch.zeros(64, 3, 32, 32)
    image[:, :, 16, 10] = 1
    changed = cifar10_resnet.augmented(image)
    assert changed.shape == image.shape
    assert torch.equal(changed.sum((1, 2, 3)), image.sum((1, 2, 3)))
    columns = changed[:, 0].sum(1).argmax(1).unique()
    assert len(columns) == 2  # as it was, and mirrored
    assert (columns[1] - columns[0]).item() == 21 - 10


def test_articles_are_read_and_split_without_overlap(data: Path) -> None:
    rows = write_articles(data, 30)
    train, test = bbc_news.articles(20, 10)
    assert sorted(zip(train[1] + test[1], train[0] + test[0], strict=True)) == sorted(rows)
    assert bbc_news.articles(20, 10) == (train, test)
    with pytest.raises(SystemExit, match=r"25 \+ 10 articles were asked for. There are 30."):
        bbc_news.articles(25, 10)
    (data / "bbc-news" / "bbc-news.csv").write_text("topic,text\na,b\n")
    with pytest.raises(SystemExit, match="must have the columns label and text"):
        bbc_news.articles(1, 0)


@needs_transformers
def test_minilm_takes_texts_through_its_tokeniser(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import bbc_minilm
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "article", "and", "a", "second", "line"]
    (data / "minilm" / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(data / "minilm" / "vocab.txt")).save_pretrained(data / "minilm")
    config = BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=6, num_attention_heads=2, intermediate_size=8
    )
    BertForSequenceClassification(config).bert.save_pretrained(data / "minilm")
    bbc_minilm.tokeniser.cache_clear()

    write_articles(data, 30)
    monkeypatch.setattr(bbc_minilm, "N_TRAIN", 20)
    monkeypatch.setattr(bbc_minilm, "N_TEST", 10)
    model = bbc_minilm.untrained()
    trained = {name.rsplit(".", 2)[0] for name, p in model.named_parameters() if p.requires_grad}
    assert all(name.startswith(("bert.encoder.layer.5", "bert.pooler", "classifier")) for name in trained)
    model.save_pretrained(places.weights(bbc_minilm.WEIGHTS))
    built = bbc_minilm.build()
    assert tuple(built.config.id2label.values()) == bbc_news.TOPICS

    tokens = bbc_minilm.tokens(["a second line", "article " * 500])
    assert tokens["input_ids"].shape == (2, 128)
    assert tokens["attention_mask"].sum(1).tolist() == [5, 128]
    samples = as_training_set(bbc_minilm.train(), 8, names=bbc_news.TOPICS, preprocess=bbc_minilm.tokens)
    batch = next(iter(samples.batches()))
    assert find_head(built, batch.inputs) == "classifier"
    assert batch.labels.tolist() == [bbc_news.TOPICS.index(topic) for topic in bbc_minilm.train()[1][:8]]
    assert 0 <= bbc_minilm.accuracy(built, *bbc_minilm.test()) <= 1
    bbc_minilm.tokeniser.cache_clear()


@needs_transformers
@needs_gguf
def test_smollm2_finds_its_file_and_its_tokeniser(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import smollm2

    with pytest.raises(SystemExit, match="There is no GGUF file in"):
        smollm2.gguf_file()
    with pytest.raises(SystemExit, match=r"Make them with: python -m examples.smollm2"):
        smollm2.build()
    (data / "smollm2" / "model.gguf").write_bytes(b"")
    assert smollm2.gguf_file().name == "model.gguf"
