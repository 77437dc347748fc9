"""Small language models that have learned a few sentences, for whatever asks where a word comes from."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

TEXTS = (
    "the cat sat on the mat .",
    "the dog sat on the rug .",
    "mira lives in tolm .",
    "the town of tolm is far from the sea .",
    "jon lives in brask .",
    "brask is a town by the sea .",
    "the sea is blue and cold .",
    "the cat is black and the dog is brown .",
)
END = 1


@cache
def tokenizer() -> Any:
    """Make a tokeniser of whole words, of these sentences alone."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for text in TEXTS for word in text.split()})
    table = {word: i for i, word in enumerate(["<unk>", "<end>", *words])}
    made = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<end>")


def llama() -> Any:
    """Make a small Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    ends = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": END}
    sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer()), max_position_embeddings=48, **sizes, **ends)
    return LlamaForCausalLM(config).eval()


def gpt2() -> Any:
    """Make a small GPT-2, whose last layer is its embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    ends = {"bos_token_id": END, "eos_token_id": END}
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 48}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer()), **sizes, **ends)).eval()


def adapted() -> Any:
    """Make a small Llama with low-rank adapters that are not zero."""
    import peft

    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(llama(), config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def taught(model: Any, steps: int = 60) -> Any:
    """Teach a model the sentences."""
    ids = [torch.tensor([*tokenizer()(text)["input_ids"], END]) for text in TEXTS]
    batch = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=END)
    labels = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-100)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=batch, labels=labels).loss.backward()
        optimizer.step()
    model.zero_grad(set_to_none=True)
    return model.eval()
