"""Which classes are taken for which: the rates of wrong labels, estimated from the labels themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.audit.heldout import likeliest, standard
from whence.core.arrays import Doubles, Floats, Ints

_RATE = 0.1  # of wrong labels, spread evenly, that the search begins with
_STEPS = 50
_ENOUGH = 1e-4  # change of every rate below which the search ends
_EVEN = 1.0  # samples per class that are put in as if their errors were spread evenly: no rate is 0


@dataclass(frozen=True, eq=False)
class Confusion:
    """Labels y of samples x as a class c, drawn from p(c | x), that is taken for y at a rate T_cy.

    Attributes
    ----------
    logs : (N, K) log p(c | x), of the class that a sample would have without errors; −∞ for classes that no
        sample is labelled with
    rates : (K, K) T, rows sum to 1; only of classes that samples are labelled with
    counts : (K, K) how many samples of class c are labelled y, by these odds
    labels : (N,) as they are given
    """

    logs: Doubles
    rates: Doubles
    counts: Doubles
    labels: Ints

    @property
    def joint(self) -> Doubles:
        """Give log p(c | x) T_{c,y} of every class for the label that is given, (N, K)."""
        with np.errstate(divide="ignore"):
            found: Doubles = self.logs + np.log(self.rates[:, self.labels].T)
        return found

    @property
    def concentration(self) -> float:
        """Tell how far errors gather in one other class: 1 where each class has its one, near 0 by chance.

        It is the share of errors that are a class's most frequent one, scaled so that 0 is what even errors
        have by chance: of n errors over k classes the most frequent is a share of about
        1/k + √(2 log k / (k n)). Few errors tell nothing and have 0. Where there are two classes, one other
        is the only one.
        """
        wrong = self.counts.copy()
        np.fill_diagonal(wrong, 0.0)
        others = int((self.counts.sum(axis=0) > 0).sum()) - 1
        if others < 2 or not wrong.any():
            return float(others == 1)
        n = wrong.sum(axis=1)
        chance = float((n / others + np.sqrt(2 * np.log(others) * n / others)).sum() / n.sum())
        return (
            max(0.0, (float(wrong.max(axis=1).sum() / n.sum()) - chance) / (1 - chance))
            if chance < 1
            else 0.0
        )


def confusion(scores: Floats, labels: Ints) -> Confusion:
    """Estimate what a sample's class would be without errors, and the rates of errors, from given labels.

    By expectation and maximisation of Σ_i log Σ_c p(c | x_i) T_{c,y_i}, where p = softmax(β s_i + b): with T
    come the odds of every sample's class, and with these T, β and b. Wrong labels that T accounts for no
    longer flatten p.

    Parameters
    ----------
    scores : (N, K) of a classifier that the labels have not been fitted by; its scale does not matter
    labels : (N,)

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.arange(600) % 3
    >>> labels = truth.copy()
    >>> labels[:120:3] = 1  # a fifth of class 0
    >>> scores = np.eye(3)[truth] + 0.2 * np.random.default_rng(0).normal(size=(600, 3))
    >>> confusion(scores, labels).rates.round(2)
    array([[0.8, 0.2, 0. ],
           [0. , 1. , 0. ],
           [0. , 0. , 1. ]])
    """
    seen, y = np.unique(labels, return_inverse=True)
    K = len(seen)
    S, given = standard(scores, seen), np.eye(K)[y]
    even = (1 - np.eye(K)) / max(K - 1, 1)
    T = (1 - _RATE) * np.eye(K) + _RATE * even
    logs, parameters = likeliest(S, given)
    for _ in range(_STEPS):
        odds = np.exp(logs) * T[:, y].T
        odds /= odds.sum(axis=1, keepdims=True)
        counts = odds.T @ given  # of class c and label y
        rate = 1 - counts.trace() / counts.sum()
        smooth = counts + _EVEN * ((1 - rate) * np.eye(K) + rate * even)
        before, T = T, smooth / smooth.sum(axis=1, keepdims=True)
        logs, parameters = likeliest(S, odds, parameters)
        if np.abs(T - before).max() < _ENOUGH:
            break
    everywhere, square = np.full(np.shape(scores), -np.inf), (np.shape(scores)[1],) * 2
    rates, found, places = np.zeros(square), np.zeros(square), np.ix_(seen, seen)
    everywhere[:, seen], rates[places], found[places] = logs, T, counts
    return Confusion(everywhere, rates, found, labels)
