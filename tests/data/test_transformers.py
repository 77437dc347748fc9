"""Texts and images of the Hugging Face libraries, from raw samples to scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import whence
from tests.helpers.families import BERT, IMAGES, SMALL, TEXT, lora
from tests.helpers.families import transformer as build
from whence.data import as_training_set
from whence.errors import DataWarning, InvalidInputError, ModelError, SampleError
from whence.model.extractor import find_head
from whence.model.inputs import n_rows
from whence.model.modules import class_names
from whence.tasks import OneLogit

transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:transformers", "ignore::DeprecationWarning:datasets"
)

WORDS = ["the", "a", "cat", "dog", "bird", "sat", "ran", "flew", "on", "under", "mat", "tree", "red", "old"]
NAMES = ["world", "sport", "arts", "food", "law"]
LABELS = [i % 5 for i in range(23)]


def texts() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 8))) for _ in LABELS]


@pytest.fixture(scope="module")
def tokeniser() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )


def bert(**config: Any) -> Any:
    torch.manual_seed(0)
    model, _ = build("Bert", **SMALL, **{**TEXT, **config})()
    return model.eval()


def encode(tokeniser: Any) -> Any:
    return tokeniser(texts(), padding=True, return_tensors="pt")


def features_by_hand(model: Any, tokeniser: Any) -> torch.Tensor:
    """What goes into BERT's classifier, one text at a time and so without padding."""
    with torch.no_grad():
        rows = [model.bert(**tokeniser(text, return_tensors="pt")).pooler_output for text in texts()]
    return torch.cat(rows)


def raw() -> Any:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=NAMES)}
    )
    return datasets.Dataset.from_dict({"text": texts(), "label": LABELS}, features=features)


@pytest.mark.parametrize("form", ["texts", "dataset", "stream", "pairs", "loader", "function"])
def test_raw_texts_are_read_with_a_tokeniser(tokeniser: Any, form: str) -> None:
    model = bert()
    data = {
        "texts": (texts(), LABELS),
        "dataset": raw(),
        "stream": raw().to_iterable_dataset(),
        "pairs": list(zip(texts(), LABELS, strict=True)),
        "loader": DataLoader(raw(), batch_size=6, shuffle=True),
        "function": raw(),
    }[form]

    def function(batch: dict[str, list[str]]) -> Any:
        return tokeniser(batch["text"], padding=True, return_tensors="pt")

    bank = whence.features.extract(
        model,
        as_training_set(
            data, 6, **({"preprocess": function} if form == "function" else {"tokenizer": tokeniser})
        ),
        show_progress=False,
    )
    np.testing.assert_allclose(bank.features, features_by_hand(model, tokeniser), rtol=1e-4, atol=1e-5)
    assert bank.labels.tolist() == LABELS


@pytest.mark.parametrize("form", ["columns", "padded", "collated", "loader", "ragged"])
def test_encoded_texts_are_read_as_they_are(tokeniser: Any, form: str) -> None:
    model = bert()
    encoded = raw().map(lambda row: tokeniser(row["text"]))  # still holds the text, unpadded
    collate = transformers.DataCollatorWithPadding(tokeniser)
    ready = encoded.remove_columns("text")
    options: dict[str, Any] = {}
    data: Any
    if form == "columns":
        data = (encode(tokeniser), torch.tensor(LABELS))
    elif form == "padded":
        data = raw().map(lambda row: tokeniser(row["text"], padding="max_length"))
    elif form == "ragged":
        data, options = ready, {"tokenizer": tokeniser}
    elif form == "collated":
        data, options = ready, {"collate_fn": collate}
    else:
        data = DataLoader(ready, batch_size=6, collate_fn=collate)
    bank = whence.features.extract(model, as_training_set(data, 6, **options), show_progress=False)
    np.testing.assert_allclose(bank.features, features_by_hand(model, tokeniser), rtol=1e-4, atol=1e-5)
    assert bank.labels.tolist() == LABELS
    if form in ("collated", "loader"):
        with pytest.raises(InvalidInputError, match=r"'input_ids': lists of lengths .*collate_fn"):
            list(as_training_set(encoded, 6).batches())


def test_new_texts_are_explained_in_every_form(tokeniser: Any) -> None:
    model = bert(id2label=dict(enumerate(NAMES)))
    options: dict[str, Any] = {"C": 1e-2, "batch_size": 6, "show_progress": False}
    by_text = whence.DualDA(metric="raw", **options).fit(model, raw(), tokenizer=tokeniser)
    by_code = whence.DualDA(metric="raw", **options).fit(model, (encode(tokeniser), LABELS))
    assert by_text.class_names_ == by_code.class_names_ == tuple(NAMES)
    features = features_by_hand(model, tokeniser).double().numpy()
    sums = features @ by_text.coef_[:, :-1].T + by_text.coef_[:, -1]  # the surrogate's logits
    target = model(**encode(tokeniser)).logits.argmax(1)
    expected = sums[np.arange(len(target)), target]
    forms = [
        by_text.attribute(texts()),
        by_text.attribute({"text": texts()}),
        torch.cat([by_text.attribute(text) for text in texts()]),
        torch.cat([by_text.attribute(row) for row in raw()]),  # a mapping with its label
        by_text.attribute(raw()[:]),  # with its labels
        by_text.attribute([{"text": text} for text in texts()]),
        by_code.attribute(encode(tokeniser)),
        by_code.attribute(dict(encode(tokeniser))),
        by_code.attribute({name: part.tolist() for name, part in encode(tokeniser).items()}),
    ]
    for scores in forms:
        assert scores.shape == (23, 23)
        np.testing.assert_allclose(scores.sum(1), expected, rtol=1e-3, atol=1e-4)
    with pytest.raises(InvalidInputError, match=r"a list of str.*'tokenizer' for texts"):
        by_code.attribute(texts())
    with pytest.raises(InvalidInputError, match="Pass it as 'tokenizer'"):
        as_training_set(raw(), preprocess=tokeniser)


def test_a_saved_explainer_keeps_the_names_and_takes_model_inputs(tokeniser: Any, tmp_path: Path) -> None:
    model = bert()
    fitted = whence.DualDA(metric="raw", C=1e-2, show_progress=False).fit(model, raw(), tokenizer=tokeniser)
    assert fitted.class_names_ == tuple(NAMES)  # the data's, since the model has none
    fitted.save(tmp_path / "news.whence")
    loaded = whence.load(tmp_path / "news.whence", model=torch.nn.DataParallel(model))
    assert loaded.class_names_ == fitted.class_names_
    assert torch.equal(loaded.attribute(encode(tokeniser)), fitted.attribute(texts()))


def test_names_come_from_the_model_or_the_data(tokeniser: Any) -> None:
    named = bert(id2label=dict(enumerate(reversed(NAMES))))
    assert class_names(named) == tuple(reversed(NAMES))
    assert class_names(torch.nn.DataParallel(named)) == tuple(reversed(NAMES))
    assert class_names(bert()) is None
    assert as_training_set(raw(), tokenizer=tokeniser).class_names == tuple(NAMES)
    with pytest.warns(DataWarning, match="model calls class 0 'law', the data 'world'"):
        as_training_set(raw(), tokenizer=tokeniser, names=class_names(named))
    data = [{"text": text, "label": NAMES[y]} for text, y in zip(texts(), LABELS, strict=True)]
    samples = as_training_set(data, tokenizer=tokeniser, names=class_names(named))
    assert [4 - int(y) for batch in samples.batches() for y in batch.labels] == LABELS


def test_adapted_models_tell_their_names() -> None:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    base = build("Bert", **SMALL, **TEXT, id2label=dict(enumerate(NAMES)))
    model, _ = lora(base, ["query"], "SEQ_CLS")()
    assert class_names(model) == tuple(NAMES)


def test_a_label_without_a_class_is_named(tokeniser: Any) -> None:
    labels = [*LABELS[:9], 7, *LABELS[10:]]
    with pytest.raises(InvalidInputError, match=r"Sample 9 .*\[0, 5\).* it is 7"):
        whence.DualDA(metric="raw", show_progress=False).fit(bert(), (texts(), labels), tokenizer=tokeniser)
    names = [*(NAMES[y] for y in LABELS[:9]), "music", *(NAMES[y] for y in LABELS[10:])]
    model = bert(id2label=dict(enumerate(NAMES)))
    with pytest.raises(SampleError, match=r"Sample 9 .*'music' is not a class of the model: world, sport"):
        whence.DualDA(metric="raw", show_progress=False).fit(model, (texts(), names), tokenizer=tokeniser)


def test_a_tokeniser_needs_one_column_of_text(tokeniser: Any) -> None:
    data = [{"premise": "a cat", "hypothesis": "a dog", "label": 0}]
    with pytest.raises(InvalidInputError, match=r"'data' must have one column of texts.*'premise'.*lambda"):
        list(as_training_set(data, tokenizer=tokeniser).batches())


def test_images_are_read_with_an_image_processor() -> None:
    Image = pytest.importorskip("PIL.Image")
    pixels = ((IMAGES * 40 + 128).clamp(0, 255)).to(torch.uint8).movedim(1, -1).numpy()
    images = [Image.fromarray(p) for p in pixels]

    class Processor(transformers.image_processing_utils.BaseImageProcessor):  # type: ignore[misc]
        """As small as they come; the library's own need packages that are not always there."""

        model_input_names: ClassVar = ["pixel_values"]

        def preprocess(self, images: Any, return_tensors: str | None = None, **_: Any) -> Any:
            assert return_tensors == "pt"
            stacked = np.stack([np.asarray(image, np.float32).transpose(2, 0, 1) / 255 for image in images])
            return transformers.BatchFeature({"pixel_values": stacked}, tensor_type=return_tensors)

    torch.manual_seed(0)
    model, _ = build("ViT", lambda: None, **SMALL, image_size=32, patch_size=8, num_labels=5)()
    data = datasets.Dataset.from_dict({"image": images, "label": LABELS[:10], "source": ["web"] * 10})
    data = data.cast_column("image", datasets.Image())
    e = whence.DualDA(metric="raw", C=1e-2, show_progress=False).fit(model, data, preprocess=Processor())
    with torch.no_grad():
        direct = model.eval()(torch.from_numpy(pixels).movedim(-1, 1).float() / 255).logits.argmax(1)
    assert e.top_k(images).target.tolist() == direct.tolist()
    assert torch.equal(e.attribute(images), e.attribute(data[:]))


def test_a_model_without_pad_token_says_so(tokeniser: Any) -> None:
    """The library's own error comes through, and the model is left as it was."""
    torch.manual_seed(0)
    model, inputs = build(
        "GPT2", n_embd=16, n_layer=1, n_head=2, vocab_size=50, num_labels=5, bos_token_id=1, eos_token_id=1
    )()
    with pytest.raises(ModelError, match="no padding token"):
        find_head(model.train(), inputs)
    assert model.training
    assert torch.is_grad_enabled()


def test_a_single_logit_is_two_classes() -> None:
    torch.manual_seed(0)
    model, inputs = build("Bert", **SMALL, **{**TEXT, "num_labels": 1})()
    bank = whence.features.extract(model, (inputs, [0] * n_rows(inputs)), show_progress=False)
    assert bank.task == OneLogit(2)
    assert find_head(BERT()[0], inputs) == "classifier"


def by_hand(tokeniser: Any) -> torch.Tensor:
    """Scores of the first texts, of features that were computed without any of the objects under test."""
    features = features_by_hand(bert(), tokeniser)
    bank = whence.features.FeatureBank.of(features, LABELS, head=head_of(bert()))
    return (
        whence.DualDA(metric="raw", C=0.1, show_progress=False)
        .fit(features=bank)
        .attribute(features=features[:4], target=2)
    )


def head_of(model: Any) -> tuple[Any, Any]:
    return model.classifier.weight.detach().numpy(), model.classifier.bias.detach().numpy()


@pytest.fixture
def trainer(tokeniser: Any, tmp_path: Path) -> Any:
    encoded = raw().map(lambda row: tokeniser(row["text"]))  # with the text, which a Trainer leaves out
    arguments = transformers.TrainingArguments(tmp_path, report_to="none", use_cpu=True)
    return transformers.Trainer(bert(), arguments, train_dataset=encoded, processing_class=tokeniser)


def test_a_trainer_brings_its_model_its_training_set_and_its_collator(
    trainer: Any, tokeniser: Any, tmp_path: Path
) -> None:
    e = whence.DualDA(metric="raw", C=0.1, show_progress=False).fit(trainer, cache_dir=tmp_path / "cache")
    assert e.class_names_ == tuple(NAMES)
    assert e.labels_.tolist() == LABELS
    expected = by_hand(tokeniser)
    near = {"rtol": 1e-3, "atol": 1e-5}
    some = trainer.train_dataset.select(range(4))
    torch.testing.assert_close(e.attribute(some, "arts"), expected, **near)
    torch.testing.assert_close(e.attribute(list(some), 2), expected, **near)
    again = whence.DualDA(metric="raw", C=0.1, show_progress=False).fit(trainer, cache_dir=tmp_path / "cache")
    assert again.origins_["features"] == "reused"
    torch.testing.assert_close(e.attribute(texts()[0], 2), expected[:1], **near)  # by its tokenizer
    own = whence.DualDA(metric="raw", C=0.1, show_progress=False).fit(
        trainer, (texts(), LABELS), tokenizer=tokeniser
    )
    torch.testing.assert_close(own.attribute(texts()[:4], 2), expected, **near)
    e.save(tmp_path / "x.whence")
    back = whence.load(tmp_path / "x.whence", trainer)
    torch.testing.assert_close(back.attribute(encode(tokeniser), 2)[:4], expected, **near)


@pytest.mark.parametrize("form", ["texts", "apart", "dataset"])
def test_a_pipeline_brings_its_model_and_its_tokeniser(tokeniser: Any, form: str) -> None:
    pipe = transformers.pipeline("text-classification", model=bert(), tokenizer=tokeniser, device="cpu")
    e = whence.DualDA(metric="raw", C=0.1, show_progress=False)
    if form == "apart":
        e.fit(pipe, texts(), LABELS)
    else:
        e.fit(pipe, raw() if form == "dataset" else (texts(), LABELS))
    torch.testing.assert_close(e.attribute(texts()[:4], 2), by_hand(tokeniser), rtol=1e-3, atol=1e-5)
    assert e.explain(texts()[:1], 1)[0].sample.tokens is not None


def test_a_data_set_is_attributed_through_the_tokeniser(tokeniser: Any) -> None:
    e = whence.DualDA(metric="raw", C=0.1, show_progress=False).fit(bert(), raw(), tokenizer=tokeniser)
    expected = by_hand(tokeniser)
    for some in (
        raw().select(range(4)),
        DataLoader(raw().select(range(4)), 3),
        raw().remove_columns("label"),
    ):
        found = e.attribute(some, 2)[:4]
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert e.score(raw()) == e.score(texts(), [NAMES[label] for label in LABELS])
