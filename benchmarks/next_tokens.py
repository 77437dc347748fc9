"""A language model's features: SmolLM2's last states on BBC News, whose classes are the next tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from examples import bbc_news
from tqdm import tqdm

ROWS, WINDOW, BATCH = 50_000, 128, 4  # positions, tokens of an article, articles at a time
VOCABULARY = 49_152


def read(data: Path, cache: Path) -> tuple[Path, np.ndarray]:
    """Write the last states (50,000 × 576) at positions of some articles; returns their file and the labels.

    The class of a position is the token that follows it in the article. Articles come in an order that a seed
    gives, and are read once: what is found in ``cache`` stays.
    """
    states, labels = cache / "next-token-states.npy", cache / "next-token-labels.npy"
    if not labels.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _write(data, states, labels)
    return states, np.load(labels)


@torch.inference_mode()
def _write(data: Path, states: Path, labels: Path) -> None:
    from transformers import AutoTokenizer, LlamaModel

    folder = data / "smollm2"
    place = {"gguf_file": sorted(folder.glob("*.gguf"))[0].name}
    tokeniser = AutoTokenizer.from_pretrained(folder, **place)
    model = LlamaModel.from_pretrained(folder, dtype=torch.float32, **place).eval()
    texts, topics = bbc_news.read(data / "bbc-news" / "bbc-news.csv")
    (texts, _), _ = bbc_news.split(texts, topics, len(texts), 0)
    windows = (tokeniser(text).input_ids[: WINDOW + 1] for text in texts)
    whole = [tokens for tokens in windows if len(tokens) == WINDOW + 1]
    whole = whole[: -(-ROWS // WINDOW)]
    out = np.lib.format.open_memmap(states, "w+", np.float32, (ROWS, model.config.hidden_size))
    for start in tqdm(range(0, len(whole), BATCH)):
        found = model(torch.tensor(whole[start : start + BATCH])[:, :-1]).last_hidden_state.flatten(0, 1)
        part = out[start * WINDOW : (start + BATCH) * WINDOW]
        part[:] = found[: len(part)].numpy()
    out.flush()
    np.save(labels, np.array(whole)[:, 1:].ravel()[:ROWS])
