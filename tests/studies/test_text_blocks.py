"""The last block of a language model on cached states: it is the model's own, and trains as any network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.helpers.nets import train
from whence.errors import InvalidInputError
from whence.methods import DualDA, GradDot
from whence.metrics.localisation import localisation
from whence.model.extractor import Extractor, find_head
from whence_studies.scenes.texts import Backbone, LastBlock, TextClassifier, packed, states
from whence_studies.suite.localising import Marked, localise, marked_text

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")

TEXTS = [
    "shares fell sharply on monday",
    "goal",
    "the new phone has a camera and a very long name indeed",
    "voters go to the polls",
]
KINDS = ("minilm", "smollm2")


def _bert_folder(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(" ".join(TEXTS).split())]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=128,
    )  # fmt: skip
    _random(transformers.BertModel(config)).save_pretrained(folder)


def _llama_folder(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=300, initial_alphabet=alphabet, special_tokens=["<eos>"], show_progress=False
        ),
    )
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>").save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=made.get_vocab_size(), hidden_size=16, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=24, max_position_embeddings=128,
    )  # fmt: skip
    _random(transformers.LlamaModel(config)).save_pretrained(folder)


def _random(model: nn.Module) -> Any:
    """Move all weights, so that none is at a value that hides it."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module", params=KINDS)
def backbone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    {"minilm": _bert_folder, "smollm2": _llama_folder}[request.param](folder)
    return Backbone(folder, last=request.param == "smollm2")


@torch.no_grad()
def own_features(backbone: Backbone) -> Tensor:
    """Features (4, d) by the language model itself, one text at a time, so without any padding."""
    return torch.cat([backbone(**backbone.tokens([text])) for text in TEXTS])


def test_a_packed_model_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").touch()
    monkeypatch.setitem(sys.modules, "gguf", None)  # as if it were not installed
    with pytest.raises(InvalidInputError, match=r"GGUF file, which needs gguf\. Run: pip install gguf"):
        Backbone(tmp_path, last=True)


def test_states_have_a_row_a_token_whatever_the_batch(backbone: Backbone) -> None:
    together = states(backbone, TEXTS)
    assert [len(one) for one in together] == [backbone.tokens([t])["input_ids"].shape[1] for t in TEXTS]
    assert len({len(one) for one in together}) > 1
    for text, expected in zip(TEXTS, together, strict=True):
        assert expected.dtype == np.float32
        np.testing.assert_allclose(states(backbone, [text])[0], expected, rtol=0, atol=1e-5)


def test_packed_states_say_where_the_padding_is(backbone: Backbone) -> None:
    found = states(backbone, TEXTS)
    ready = packed(found)
    assert ready.shape == (4, max(map(len, found)), 17)
    for row, one in zip(ready, found, strict=True):
        n = len(one)
        assert torch.equal(row[:n, :-1], torch.from_numpy(one))
        assert torch.equal(row[:, -1], (torch.arange(len(row)) < n).float())
        assert not row[n:].any()


@pytest.mark.parametrize("bad", [[], [np.ones((0, 3), np.float32)], [np.ones(3, np.float32)]])
def test_packing_refuses_texts_without_tokens(bad: list[Any]) -> None:
    with pytest.raises(InvalidInputError, match="'states' must be one array"):
        packed(bad)


def test_the_block_has_the_features_of_the_language_model(backbone: Backbone) -> None:
    block = LastBlock(backbone, 5).eval()
    expected = own_features(backbone)
    inputs = packed(states(backbone, TEXTS))
    assert find_head(block, inputs) == "head"
    found = Extractor(block, "head")(inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    wider = torch.cat([inputs, torch.zeros(4, 3, 17)], dim=1)
    torch.testing.assert_close(block(wider), block.head(expected), rtol=0, atol=1e-5)


def test_the_head_alone_is_random_and_all_can_be_trained(backbone: Backbone) -> None:
    def made(seed: int) -> LastBlock:
        torch.manual_seed(seed)
        return LastBlock(backbone, 5)

    first, again, other = (dict(made(seed).named_parameters()) for seed in (0, 0, 1))
    assert all(p.requires_grad for p in first.values())
    assert not any(p.requires_grad for p in backbone.parameters())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert {n for n in first if not torch.equal(first[n], other[n])} == {"head.weight", "head.bias"}
    block = made(0)
    loss = block(packed(states(backbone, TEXTS))).square().sum()
    loss.backward()
    # A key's bias shifts all scores of a query alike, which the softmax does not see.
    still = [n for n, p in block.named_parameters() if p.grad is None or not p.grad.abs().max() > 1e-5]
    assert all("key.bias" in name for name in still)


def test_training_does_not_depend_on_dropout(backbone: Backbone) -> None:
    block, inputs = LastBlock(backbone, 5), packed(states(backbone, TEXTS))
    assert torch.equal(block.train()(inputs), block.eval()(inputs))


def _trained(backbone: Backbone) -> LastBlock:
    torch.manual_seed(0)
    block, inputs = LastBlock(backbone, 4), packed(states(backbone, TEXTS))
    train(block, inputs, torch.arange(4), 10, 0.01, optimizer=torch.optim.AdamW)
    return block.eval()


def test_the_classifier_is_the_block_and_leaves_the_language_model_alone(backbone: Backbone) -> None:
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    features, modules = own_features(backbone), list(backbone.modules())
    block = _trained(backbone)
    whole = TextClassifier(backbone, block)
    inputs, tokens = packed(states(backbone, TEXTS)), backbone.tokens(TEXTS)
    with torch.no_grad():
        torch.testing.assert_close(whole(**tokens), block(inputs), rtol=0, atol=1e-5)
        # Training has moved the block, so that the check above is not one of the old weights.
        assert (Extractor(block, "head")(inputs) - features).abs().max() > 1e-2
    assert find_head(whole, tokens) == "head"
    after = backbone.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(a is b for a, b in zip(backbone.modules(), modules, strict=True))
    assert torch.equal(own_features(backbone), features)
    frozen = {p.data_ptr() for p in backbone.parameters()}
    shared = [p for p in whole.parameters() if p.data_ptr() in frozen]
    assert sum(p.numel() for p in shared) > sum(p.numel() for p in block.parameters())


def test_attributors_take_the_block_and_explain_the_classifier(backbone: Backbone) -> None:
    block = _trained(backbone)
    inputs, labels = packed(states(backbone, TEXTS)), torch.arange(4)
    exact = GradDot(projection=None, show_progress=False).fit(block, (inputs, labels))
    scores = exact.attribute(inputs[:2], target=[1, 2])

    def gradient(row: int, label: int) -> Tensor:
        loss = nn.functional.cross_entropy(block(inputs[row : row + 1]), torch.tensor([label]))
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(block.parameters()))])

    rows = [[gradient(t, c) @ gradient(i, i) for i in range(4)] for t, c in ((0, 1), (1, 2))]
    torch.testing.assert_close(scores, torch.tensor(rows).to(scores), rtol=1e-3, atol=1e-4)

    whole = TextClassifier(backbone, block)
    explainer = DualDA(C=0.1, show_progress=False).fit(
        whole, (TEXTS, labels.tolist()), preprocess=backbone.tokens
    )
    on_states = DualDA(C=0.1, show_progress=False).fit(block, (inputs, labels))
    torch.testing.assert_close(
        explainer.attribute(TEXTS, target=1), on_states.attribute(inputs, target=1), rtol=0, atol=1e-4
    )
    why = explainer.explain(TEXTS[2:3], k=1, relative=False)[0]
    assert why.method == "attn_lrp_cp"
    assert why.logit_map.shape == (len(states(backbone, TEXTS[2:3])[0]),)

    def marked(place: int) -> Marked:
        return marked_text(backbone, TEXTS[place], TEXTS[place].split()[0])

    assert marked(2).places is not None
    assert marked(2).inside.shape == why.logit_map.shape
    pair = why.proponents[0]
    both = marked(2), marked(pair.index)
    found = localise(on_states, Extractor(whole, "head"), *both, pair.index, why.target, "attn_lrp_cp")
    expected = [
        localisation(pair.test_map, *marked(2)[1:]),
        localisation(pair.train_map, *marked(pair.index)[1:]),
    ]
    np.testing.assert_allclose(found[:2], expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(found.on_test, pair.test_map, rtol=0, atol=1e-4)
    np.testing.assert_allclose(found.on_train, pair.train_map, rtol=0, atol=1e-4)
