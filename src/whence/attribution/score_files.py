"""Scores as a file that other programs read: Parquet or safetensors, with their meaning as metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import safetensors.numpy
from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.core.checks import check_path
from whence.core.display import Columns
from whence.core.files import replacing, require_parquet, to_parquet
from whence.errors import InvalidInputError

_PARQUET, _SAFETENSORS = ".parquet", ".safetensors"


def check_score_path(path: Any) -> str:
    """Return the path of a file of scores, or raise where its suffix says no known form."""
    path = check_path("path", path)
    if path.suffix not in (_PARQUET, _SAFETENSORS):
        raise InvalidInputError(f"'path' must end in {_PARQUET} or {_SAFETENSORS}. Got {path.name!r}.")
    if path.suffix == _PARQUET:
        require_parquet()  # before scores are computed
    return str(path)


def write_scores(
    fitted: Fitted, path: str, scores: Tensor, targets: Tensor, test_ids: Any, train_ids: Any
) -> None:
    """Write scores (test, train) for targets (test,); ``Attributor.save_scores`` says what the file holds."""
    shape = tuple(scores.shape)
    tests, samples = _ids("test_ids", test_ids, shape[0]), _ids("train_ids", train_ids, shape[1])
    about = {
        "content": "attribution scores",
        "axes": ["test", "train"],
        "shape": list(shape),
        "sign": _sign(fitted),
        "method": fitted.method,
        "outputs": list(fitted.task.output_names),
        "model": _digest(fitted),
    }
    values, target = scores.detach().cpu().numpy(), targets.cpu().numpy().astype(np.int64)
    if path.endswith(_PARQUET):
        rows, columns = np.nonzero(values)
        table: Columns = {
            "test": [tests[i] for i in rows.tolist()],
            "target": target[rows].tolist(),
            "train": [samples[j] for j in columns.tolist()],
            "score": values[rows, columns].tolist(),
        }
        to_parquet(table, path, {**about, "zeros": "left out"})
        return
    about |= {"test_ids": tests, "train_ids": samples}
    text = {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
    data = safetensors.numpy.save({"scores": np.ascontiguousarray(values), "target": target}, text)
    with replacing(path) as file:
        file.write(data)


def _ids(name: str, ids: Sequence[Any] | None, n: int) -> list[Any]:
    """Return the user's names of samples as plain values, or their places where there are none."""
    if ids is None:
        return list(range(n))
    names = [one.item() if isinstance(one, np.generic) else one for one in ids]
    if len(names) != n or not (
        all(isinstance(one, str) for one in names) or all(type(one) is int for one in names)
    ):
        raise InvalidInputError(
            f"'{name}' must be {n} texts or {n} whole numbers, one per sample. Got {len(names)} values."
        )
    return names


def _sign(fitted: Fitted) -> str:
    """Say in words what a positive score means."""
    numeric = fitted.task.label_kind == "number"
    if fitted.effect is not None:
        return "positive: being in the training set raises the output of the target"
    return "positive raises the prediction" if numeric else "positive supports the target class"


def _digest(fitted: Fitted) -> str | None:
    """Return the SHA-256 of the model's fingerprint: its layer, and every weight; None without a model."""
    if fitted.model is None:
        return None
    lines = "\n".join(f"{name} {value}" for name, value in sorted(fitted.model.fingerprint.items()))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
