"""Finding a planted shortcut: training images that carry a mark, from test images that the mark fools."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import torch
from examples import mnist_cnn
from sklearn.metrics import average_precision_score

from benchmarks.mislabelled import features_and_head
from whence import DualDA
from whence.audit import group_attribution, shared_evidence
from whence.features import FeatureBank

N, TESTS, CLASS, SHARE = 6_000, 1_000, 8, 0.3
KAPPAS = (1.0, 10.0, 100.0, 1e3, 1e4)


def marked(images: torch.Tensor) -> torch.Tensor:
    """Put a white square of 3×3 pixels into the corner of images."""
    images = images.clone()
    images[..., 1:4, 1:4] = 1.0
    return images


def case(seed: int, cache: Path) -> dict[str, np.ndarray]:
    """Train on images of which some eights are marked; features, labels, marks, and tests that are fooled."""
    stored = cache / "mislabelled" / f"shortcut-{seed}.npz"
    if not stored.exists():
        torch.set_num_threads(1)
        x, y = (part[seed * N : (seed + 1) * N] for part in mnist_cnn.read("train", (seed + 1) * N).tensors)
        eights = torch.nonzero(y == CLASS)[:, 0]
        rows = eights[torch.randperm(len(eights), generator=torch.Generator().manual_seed(seed))]
        rows = rows[: round(SHARE * len(eights))]
        x = x.clone()
        x[rows] = marked(x[rows])
        with open("/dev/null", "w") as nowhere, contextlib.redirect_stderr(nowhere):
            model = mnist_cnn.fit(x, y, epochs=6, seed=seed)
        features, head = features_and_head(model, "head", x)
        clean, truth = mnist_cnn.read("t10k", TESTS).tensors
        others = clean[truth != CLASS]
        tests, _ = features_and_head(model, "head", marked(others))
        with torch.inference_mode():
            fooled = (head(tests).argmax(1) == CLASS) & (model(others).argmax(1) != CLASS)
        stored.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            stored,
            features=features.numpy(),
            labels=y.numpy(),
            marks=np.isin(np.arange(N), rows.numpy()),
            tests=tests[fooled].numpy(),
            share=fooled.float().mean().numpy(),
            weight=head.weight.detach().numpy(),
            bias=head.bias.detach().numpy(),
        )
    with np.load(stored) as arrays:
        return dict(arrays)


def precision(seed: int, cache: Path) -> dict[str, float]:
    """Average precision of finding the marked images, by C; and the C that was chosen."""
    arrays = case(seed, cache)
    X, y, tests = arrays["features"], arrays["labels"], arrays["tests"]
    scale = float((X.astype(np.float64) ** 2).sum()) + len(X)
    explainer = DualDA(show_progress=False).fit(
        features=FeatureBank.of(X, y, head=(arrays["weight"], arrays["bias"]))
    )
    found = shared_evidence(explainer, test_features=tests, target=CLASS, features=X)
    values = {
        "tests fooled": float(arrays["share"]),
        "chosen κ": found.C * scale,
        "AP at the chosen κ": average_precision_score(arrays["marks"], found.mean),
        "κ of the explainer": explainer.C_ * scale,
    }
    group = group_attribution(explainer, features=tests, target=CLASS).mean
    values["AP at the explainer's κ"] = average_precision_score(arrays["marks"], group)
    for kappa in KAPPAS:
        given = shared_evidence(
            explainer, test_features=tests, target=CLASS, features=X, C=kappa / scale, n_directions=1
        )
        values[f"AP at κ = {kappa:g}"] = average_precision_score(arrays["marks"], given.mean)
    return values


def run(cache: Path) -> None:
    """Print one column per seed."""
    columns = [precision(seed, cache) for seed in range(3)]
    print(f"\nMNIST, {N:,} images, {SHARE:.0%} of the eights marked; marked others taken for eights.\n")
    print("| | " + " | ".join(f"seed {seed}" for seed in range(3)) + " |\n|---|---|---|---|")
    for key in columns[0]:
        print(f"| {key} | " + " | ".join(f"{values[key]:.3g}" for values in columns) + " |")
