"""
Explain a text classifier
=========================

Which training texts does a prediction come from, and which words of them? The texts are on every machine
that has whence: first sentences of docstrings of numpy, torch and matplotlib. A tiny transformer learns to
predict which package a sentence is from. With your own model, skip to *Fit*.
"""

import importlib
import inspect
import os
import pkgutil

import matplotlib
import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import whence

# %%
# Texts and labels
# ----------------

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "2000"))
MODULES = {
    "numpy": [
        "numpy",
        "numpy.linalg",
        "numpy.ma",
        "numpy.fft",
        "numpy.char",
        "numpy.polynomial",
        "numpy.testing",
    ],
    "torch": [
        "torch",
        "torch.nn",
        "torch.nn.functional",
        "torch.linalg",
        "torch.optim",
        "torch.distributions",
    ],
    "matplotlib": [
        f"matplotlib.{m.name}" for m in pkgutil.iter_modules(matplotlib.__path__) if m.name.isalpha()
    ],
}


def sentences(package: str) -> list[str]:
    """First sentences of the docstrings of a package's classes, methods and functions."""
    texts = set()
    for name in MODULES[package]:
        if name.rpartition(".")[2] in ("tests", "testing", "pylab"):
            continue
        for thing in vars(importlib.import_module(name)).values():
            parts = [thing, *(vars(thing).values() if inspect.isclass(thing) else [])]
            for part in parts:
                if callable(part) and str(getattr(part, "__module__", "")).startswith(package):
                    text = " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split())
                    if 20 < len(text) < 160 and "(" not in text and "::" not in text:
                        texts.add(text)
    return sorted(texts)


# %%
# The same number from each package, in a fixed random order; a fifth is kept for testing.

texts = {package: sentences(package) for package in MODULES}
each = min(N // 3, *map(len, texts.values()))
rng = np.random.default_rng(0)
pairs = [(str(text), k) for k, part in enumerate(texts.values()) for text in rng.permutation(part)[:each]]
pairs = [pairs[i] for i in rng.permutation(len(pairs))]
train, test = pairs[len(pairs) // 5 :], pairs[: len(pairs) // 5]
print(f"{len(train)} sentences to learn, {len(test)} to test, {each} of each package")

# %%
# A tokenizer and a tiny transformer
# ----------------------------------
# A BERT of two layers is trained from scratch. This is the part that you already have.

wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
wordpiece.normalizer = normalizers.BertNormalizer()
wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
wordpiece.train_from_iterator(
    (text for text, _ in train), trainers.WordPieceTrainer(vocab_size=3000, special_tokens=SPECIAL)
)
wordpiece.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=wordpiece, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
)

torch.manual_seed(0)
config = BertConfig(
    vocab_size=len(tokenizer),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    id2label=dict(enumerate(MODULES)),
    label2id={name: k for k, name in enumerate(MODULES)},
)
model = BertForSequenceClassification(config)


def batch(part: list[tuple[str, int]]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return the model's inputs, padded to the longest text, and the labels."""
    encoded = tokenizer(
        [text for text, _ in part], padding=True, return_tensors="pt", return_token_type_ids=False
    )
    return dict(encoded), torch.tensor([label for _, label in part])


optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(6):
    for rows in torch.randperm(len(train)).split(32):
        inputs, labels = batch([train[i] for i in rows])
        loss = model(**inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()

with torch.no_grad():
    inputs, labels = batch(test)
    predicted = model(**inputs).logits.argmax(1)
print(f"{(predicted == labels).float().mean():.1%} of the test sentences are right")

# %%
# Fit
# ---
# Pass the texts unchanged, with the tokenizer. It prepares the inputs and shows tokens as words.

data = [text for text, _ in train], torch.tensor([label for _, label in train])
explainer = whence.DualDA(show_progress=False).fit(model, data, tokenizer=tokenizer)
print(
    f"C = {explainer.C_:.2g}, gap {explainer.gap_:.1e}, agreement with the model {explainer.agreement_:.1%}"
)

# %%
# Which sentences, and which words?
# ---------------------------------
# Blue words support the predicted package, orange words contradict it. Each training text is paired with the
# test text, so that the words below it show what *this pair* has in common.

asked = [text for text, _ in test][:1]
top = explainer.top_k(asked, k=3)
names = list(MODULES)
print(f"{asked[0]} Predicted: {names[int(top.target[0])]}, true: {names[test[0][1]]}")
for side in (top.proponents, top.opponents):
    for index, score in zip(side.indices[0].tolist(), side.scores[0].tolist(), strict=True):
        print(f"{score:+.2f}  {names[train[index][1]]:10}  {train[index][0]}")

why = explainer.explain(asked, k=3, truth=[test[0][1]])
figure = why.plot()

# %%
# A Hugging Face model that you load works in the same way: :doc:`/model_huggingface`. Examples on BBC News
# with MiniLM and with a language model of 135 million weights: :doc:`/research/examples`.
