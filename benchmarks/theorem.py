"""Theorem 3.1 of the paper: how often τ is the derivative of an output by a sample's weight.

The theorem says that down-weighting a training sample off the margin by ε changes output c of x by
ε τ_c(x, i). The samples on the margin answer, though, and take over a part. With V the directions of their
constraints and P the projection onto their span, the change of the weights is (I − P) u_i, with
u_i = λ_i ⊗ z_i, instead of u_i.

Run ``python -m benchmarks.theorem``: features of the embedded sample's network, one minute.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lstsq
from scipy.sparse import csr_array

from whence import sample
from whence.core.arrays import Doubles, Floats, Ints
from whence.features import FeatureBank, extract
from whence.methods import DualDA

_AT_BOUND = 1e-6  # of C
KAPPAS = 10.0, 100.0, 1_000.0, 10_000.0


class Derivatives(NamedTuple):
    """Changes of outputs per down-weighting, of the samples that the theorem is about.

    Attributes
    ----------
    samples : (M,) samples at their bound with one violated margin: off the margin, and with a score
    tau : (B, M) scores, the theorem's derivatives
    actual : (B, M) the derivatives
    n_margin : number of constraints by samples on the margin
    """

    samples: Ints
    tau: Doubles
    actual: Doubles
    n_margin: int


def derivatives(Z: Floats, lam: csr_array, C: float, tests: Floats, targets: Ints) -> Derivatives:
    """Compute τ and the derivative of tests' outputs for features (N, d), of which a bias is a column.

    Parameters
    ----------
    Z
        Training features (N, d).
    lam
        λ (N, K) of a solution with a small gap.
    C
        Its C.
    tests, targets
        Features (B, d), and the output of each.
    """
    rows = lam.toarray() / C
    Z, tests = Z.astype(np.float64), tests.astype(np.float64)
    support = np.flatnonzero(np.abs(rows).max(axis=1) > _AT_BOUND)
    own = rows.argmax(axis=1)
    P, F, bounded = [], [], []
    for i in support:
        against = np.flatnonzero(rows[i] < -_AT_BOUND)
        free = rows[i, own[i]] < 1 - _AT_BOUND
        if not free and len(against) == 1:
            bounded.append(i)
            continue
        first, others = (own[i], against) if free else (against[0], against[1:])
        for c in others:  # scores whose difference stays
            direction = np.zeros(rows.shape[1])
            direction[[first, c]] = 1, -1
            P.append(direction)
            F.append(Z[i])
    samples = np.array(bounded, dtype=np.int64)
    lam_of = C * rows[samples]  # (M, K)
    tau = lam_of.T[targets] * (tests @ Z[samples].T)
    if not P:
        return Derivatives(samples, tau, tau, 0)
    directions, vectors = np.array(P), np.array(F)
    gram = (directions @ directions.T) * (vectors @ vectors.T)
    pull = (directions @ lam_of.T) * (vectors @ Z[samples].T)  # Vᵀu_i, (m, M)
    taken = lstsq(gram, pull)[0]
    seen = directions.T[targets] * (tests @ vectors.T)  # (B, m)
    return Derivatives(samples, tau, tau - seen @ taken, len(P))


def main() -> None:
    """Print a table: by κ, how the theorem's derivatives compare with the derivatives."""
    data, model = sample.load(2_000, 200), sample.train()
    train = extract(model, (data.train_images, data.train_labels), show_progress=False)
    tests = extract(model, (data.test_images, data.test_labels), show_progress=False).features
    head = "| metric | κ | support vectors | of these off the margin | constraints on the margin "
    print(head + "| derivative / τ, median (quarters) | within 10 % | other sign | correlation |")
    print("|" + "---|" * 9)
    for metric in ("raw", "whitened"):
        for kappa in KAPPAS:
            print(row(train, tests, metric, kappa))


def row(train: FeatureBank, tests: Floats, metric: str, kappa: float) -> str:
    """Measure one metric and κ."""
    first = DualDA(C=1.0, metric=metric, tol=1e-1, show_progress=False).fit(features=train)
    C = kappa / first.kappa_
    surrogate = DualDA(C=C, metric=metric, tol=1e-9, show_progress=False).fit(features=train).surrogate_
    b = surrogate.constant
    Z = np.hstack([surrogate.metric.rows(train.features), np.full((len(train.features), 1), b)])
    X = np.hstack([surrogate.metric.rows(tests), np.full((len(tests), 1), b)])
    weights = surrogate.lam.T @ Z
    found = derivatives(Z, surrogate.lam, C, X, (X @ weights.T).argmax(axis=1))
    here = np.abs(found.tau) > 1e-12 * np.abs(found.tau).max()
    tau, actual = found.tau[here], found.actual[here]
    share = actual / tau
    low, middle, high = np.quantile(share, [0.25, 0.5, 0.75])
    near, other = (np.abs(share - 1) < 0.1).mean(), (share < 0).mean()
    return (
        f"| {metric} | {kappa:,.0f} | {len(surrogate.support):,} | {len(found.samples):,} "
        f"| {found.n_margin:,} | {middle:.2f} ({low:.2f} to {high:.2f}) | {near:.0%} | {other:.0%} "
        f"| {np.corrcoef(tau, actual)[0, 1]:.2f} |"
    )


if __name__ == "__main__":
    main()
