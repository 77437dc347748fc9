"""A language model's features: SmolLM2's last states on BBC News, whose classes are the next tokens."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
import torch
from examples import bbc_news
from tqdm import tqdm

ROWS, WINDOW, BATCH = 50_000, 128, 4  # positions, tokens of an article, articles at a time
VOCABULARY = 49_152


def read(data: Path, cache: Path, rows: int = ROWS) -> tuple[Path, np.ndarray]:
    """Write the last states (rows × 576) at positions of articles; returns their file and the labels.

    The class of a position is the token that follows it in the article. Articles come in an order that a seed
    gives: the first windows of all, then their second ones, and so on. They are read once: what is found in
    ``cache`` stays, and more rows go on where fewer ended.
    """
    states, labels = (cache / f"next-token-{what}-{rows}.npy" for what in ("states", "labels"))
    if not labels.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _write(data, states, labels, rows)
    return states, np.load(labels)


@torch.inference_mode()
def _write(data: Path, states: Path, labels: Path, rows: int) -> None:
    from transformers import AutoTokenizer, LlamaModel

    folder = data / "smollm2"
    place = {"gguf_file": sorted(folder.glob("*.gguf"))[0].name}
    tokeniser = AutoTokenizer.from_pretrained(folder, **place)
    model = LlamaModel.from_pretrained(folder, dtype=torch.float32, **place).eval()
    windows = np.array(_windows(data, tokeniser, -(-rows // WINDOW)))
    out = np.lib.format.open_memmap(states, "w+", np.float32, (rows, model.config.hidden_size))
    done = _known(states, rows, out)
    for start in tqdm(range(done // WINDOW, len(windows), BATCH)):
        ids = torch.from_numpy(windows[start : start + BATCH, :-1])
        found = model(ids).last_hidden_state.flatten(0, 1)
        part = out[start * WINDOW : (start + BATCH) * WINDOW]
        part[:] = found[: len(part)].numpy()
    out.flush()
    np.save(labels, windows[:, 1:].ravel()[:rows])


def _windows(data: Path, tokeniser, n: int) -> list[list[int]]:
    """Return tokens of n windows, each with the one that follows it."""
    texts, topics = bbc_news.read(data / "bbc-news" / "bbc-news.csv")
    (texts, _), _ = bbc_news.split(texts, topics, len(texts), 0)
    tokens = [tokeniser(text).input_ids for text in texts]
    found: list[list[int]] = []
    for number in count():
        parts = (ids[number * WINDOW : (number + 1) * WINDOW + 1] for ids in tokens)
        found += [part for part in parts if len(part) == WINDOW + 1]
        if len(found) >= n:
            return found[:n]


def _known(states: Path, rows: int, out: np.ndarray) -> int:
    """Take over rows that were written for other numbers of them; returns how many, whole windows."""
    sizes = [int(path.stem.rpartition("-")[2]) for path in states.parent.glob("next-token-labels-*.npy")]
    most = max(sizes, default=0)
    whole = min(most, rows) // WINDOW * WINDOW
    if whole:
        out[:whole] = np.load(states.with_name(f"next-token-states-{most}.npy"), mmap_mode="r")[:whole]
    return whole
