"""The embedded part of Fashion-MNIST."""

from __future__ import annotations

from typing import Any

from whence import sample
from whence.core.registry import register
from whence_studies.scenes.datasets import Source


def _read() -> dict[str, Any]:
    found = sample.load()
    return {
        "train": (found.train_images, found.train_labels),
        "test": (found.test_images, found.test_labels),
        "class_names": found.class_names,
    }


register(Source("sample", _read))
