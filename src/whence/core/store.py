"""Saved explainers: one safetensors file with a JSON manifest, and fingerprints of models. No pickle.

One file rather than a folder, because replacing a file is atomic on every system and a folder's is not, and
because a file can be copied or sent without losing a part. The manifest travels in the safetensors header.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from whence.core.checks import check_path
from whence.core.files import replacing
from whence.core.fingerprint import Digest
from whence.errors import MissingFileError, StoreError

FORMAT = 1
_WORDS = 1 << 12
Arrays = Mapping[str, npt.NDArray[Any]]


def write(path: str | os.PathLike[str], arrays: Arrays, manifest: Mapping[str, Any]) -> None:
    """Write arrays and a JSON-able manifest to one file, atomically.

    The file is written next to its place, flushed to disk and then moved there, so that a crash or a full
    disk, which is a StoreError, leaves what was there before.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(manifest, sort_keys=True, allow_nan=False)
    header = {"format": FORMAT, "checksum": _checksum(arrays, text), "manifest": text}
    # One entry: safetensors writes several in any order, and equal explainers should make equal files.
    contents = save(dict(arrays), metadata={"whence": json.dumps(header)})
    with replacing(path) as file:
        file.write(contents)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, atomically."""
    with replacing(path) as file:
        file.write(text.encode())


def read(path: str | os.PathLike[str]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read the result of ``write``, or raise StoreError."""
    path = check_path("path", path)
    if not os.path.isfile(path):
        raise MissingFileError(f"No saved explainer at {path}.")
    try:
        with safe_open(path, framework="np") as file:
            header = _header(path, file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (
        SafetensorError,
        TypeError,
        AttributeError,
    ) as error:  # the last for dtypes without a counterpart in numpy
        raise StoreError(
            f"{path} is truncated, altered, or no saved explainer ({error}). Save it again."
        ) from error
    text = header["manifest"]
    if _checksum(arrays, text) != header["checksum"]:
        raise StoreError(f"{path} was altered after it was saved: its checksum differs. Save it again.")
    return arrays, _manifest(path, text)


def fingerprint(model: nn.Module, layer: str) -> dict[str, str]:
    """Fingerprint a model by the dtype, shape and bytes of all parameters and buffers, and the layer's name.

    Returns one short line per tensor, to show where two fingerprints differ.
    """
    lines = {"layer": layer}
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if _is_dense(tensor):
            digest = hashlib.sha256(_bytes(tensor).cpu().numpy().data).hexdigest()[:32]
        else:
            digest = Digest().of(tensor)
        lines[f"tensor {name}"] = f"{_kind(tensor)} {digest}"
    return lines


def differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the differences of two fingerprints in words; empty if there are none."""
    lines = []
    for key in saved.keys() | now.keys():
        name = key.removeprefix("tensor ")
        if key not in now:
            lines.append(f"{name} is missing")
        elif key not in saved:
            lines.append(f"{name} is new")
        elif saved[key] != now[key]:
            lines.append(_difference(key, saved[key], now[key]))
    lines.sort()
    return lines if len(lines) <= 5 else [*lines[:5], f"and {len(lines) - 5} more"]


def _difference(key: str, was: str, now: str) -> str:
    """Return how one line of a fingerprint differs. Tensors, data and code are lines that end in a digest."""
    kind, _, name = key.partition(" ")
    before, after = was.rpartition("#")[0], now.rpartition("#")[0]
    if before and before == after:
        return f"the {key} differs"
    if kind not in ("tensor", "data", "code"):
        start = len(os.path.commonprefix([was, now]))  # noqa: RUF071, of letters
        return f"the {key} is {_excerpt(now, start)}, was {_excerpt(was, start)}"
    before, after = was.rsplit(" ", 1)[0], now.rsplit(" ", 1)[0]
    if before != after:
        return f"{name} is {after}, was {before}"
    return {
        "tensor": f"{name} has other values",
        "data": f"the {name} differ",
        "code": f"the code of {name} differs",
    }[kind]


def _excerpt(text: str, place: int) -> str:
    """Quote a text, and for a long one the part around a position."""
    if len(text) <= 80:
        return repr(text)
    start = max(0, place - 40)
    part = text[start : start + 80]
    return repr("…" * (start > 0) + part + "…" * (start + 80 < len(text)))


def glance(model: nn.Module) -> str:
    """Return a checksum of all bytes of a model's parameters and buffers, as fast as memory is read.

    Rows of 8-byte words are multiplied by coefficients that are random in every process, modulo 2⁶⁴, and
    the products of the rows are hashed: other bits or another order give the same by a coincidence of 2⁻⁶³
    only. It is good within one process, where a SHA-256 would take as long as several forward passes.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        digest.update(f"{name} {_kind(tensor)}\n".encode())
        if not _is_dense(tensor):
            digest.update(Digest().of(tensor).encode())
            continue
        raw = _bytes(tensor)
        if raw.data_ptr() % 8:
            raw = raw.clone()
        whole = raw.numel() // (8 * _WORDS) * (8 * _WORDS)
        if whole:
            rows = raw[:whole].view(torch.int64).view(-1, _WORDS)
            factors = _coefficients(rows.device)
            # Integers have no matrix product on most devices but the CPU.
            sums = rows @ factors if rows.device.type == "cpu" else (rows * factors).sum(1)
            digest.update(sums.cpu().numpy().data)
        digest.update(raw[whole:].cpu().numpy().data)
    return digest.hexdigest()


@functools.cache
def _coefficients(device: torch.device) -> torch.Tensor:
    """Return odd random numbers (words,) that nobody outside of this process knows."""
    factors = torch.frombuffer(bytearray(os.urandom(8 * _WORDS)), dtype=torch.int64) | 1
    return factors.to(device)


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_meta and not tensor.is_quantized


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _header(path: Path, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return checksum and manifest from the file's header, or raise."""
    try:
        header = json.loads(metadata["whence"])
        version, rest = header["format"], {key: str(header[key]) for key in ("checksum", "manifest")}
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(
            f"{path} is not a saved explainer, or was altered: its header has no manifest."
        ) from error
    if version != FORMAT:
        raise StoreError(
            f"{path} has format {version}, this version of whence reads format {FORMAT}. "
            "Update whence, or save the explainer again with this version."
        )
    return rest


def _manifest(path: Path, text: str) -> dict[str, Any]:
    """Parse a manifest, or raise: a JSON object with finite numbers."""
    try:
        values = json.loads(text, parse_constant=_refuse)
        if not isinstance(values, dict):
            raise ValueError(f"a manifest is no {type(values).__name__}")
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} has a manifest that cannot be read ({error}). Save it again.") from error
    return values


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}")


def _checksum(arrays: Arrays, manifest: str) -> str:
    """Return the SHA-256 of the manifest and of every array's name, dtype, shape and bytes."""
    digest = hashlib.sha256(f"{FORMAT}\n{manifest}\n".encode("utf-8", "surrogatepass"))
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
