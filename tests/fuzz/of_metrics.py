"""The metrics, each with arguments that are right."""

from __future__ import annotations

import numpy as np

import whence_studies as studies
from tests.fuzz import kinds, world
from tests.fuzz.calling import HEAD, K_ARG, SEED, Arg, Call, need
from tests.fuzz.world import B, K, N

INNER = kinds.without(kinds.number(0, 1), "tiny")
SCORES = need(kinds.matrix(rows=False, columns=False), world.scores)
FITTING = need(kinds.matrix(rows=True, columns=True), world.scores)
TRAIN_LABELS = need(kinds.labels(None, negative=False), lambda: world.y().numpy())
TEST_LABELS = need(kinds.labels(None, negative=False), lambda: np.array([0, 1, 2, 0]))
MARKED = need(kinds.mask(), lambda: np.arange(N) % 4 == 0)
SUBSETS = need(kinds.mask(split=False), lambda: studies.random_subsets(N, 5))
OUTPUTS = need(
    kinds.without(kinds.numbers(rows=False), "one_more_axis"),
    lambda: np.random.default_rng(2).standard_normal((2, 5, B)),
)
ORDER = need(kinds.labels(None, rows=False), lambda: np.random.default_rng(0).permutation(N))
CHOICE = {
    "order": ORDER,
    "fraction": need(INNER, lambda: 0.5),
    "labels": Arg(kinds.without(kinds.labels(None, negative=False), "none"), TRAIN_LABELS.make),
}
COEFFICIENTS = need(
    kinds.without(kinds.matrix(rows=False, columns=False), "sparse"),
    lambda: np.random.default_rng(4).standard_normal((N, K)),
)
COUNTS = need(kinds.may(kinds.labels(N + 1), "same"), lambda: np.array([3, 2, 1]))

WRONG = {
    "self_influence": need(kinds.numbers(columns=False), lambda: world.scores()[0]),
    "flipped_mask": MARKED,
}

ARGUMENTS = {
    "identical_class": {"scores": FITTING, "target": TEST_LABELS, "train_labels": TRAIN_LABELS, "k": K_ARG},
    "identical_subclass": {
        "scores": FITTING,
        "subclass_test": TEST_LABELS,
        "subclass_train": TRAIN_LABELS,
        "k": K_ARG,
    },
    "mislabeling_auc": WRONG,
    "mislabeling_curve": WRONG,
    "mislabeling_placements": WRONG,
    "fooled": {
        "before": TEST_LABELS,
        "after": TEST_LABELS,
        "true_labels": TEST_LABELS,
        "shortcut_class": need(kinds.may(kinds.count(0), "below", "negative"), lambda: 1),
    },
    "shortcut_ap": {"scores": FITTING._replace(kind=kinds.matrix(rows=False)), "poisoned_mask": MARKED},
    "random_scores": {
        "n_tests": need(kinds.count(), lambda: 2),
        "n_train": need(kinds.count(), lambda: 3),
        "seed": SEED,
    },
    "random_subsets": {
        "n_train": need(kinds.count(), lambda: 8),
        "m": need(kinds.count(), lambda: 3),
        "fraction": Arg(INNER, lambda: 0.5),
        "seed": SEED,
    },
    "lds": {"scores": FITTING, "subsets_mask": SUBSETS, "outputs": OUTPUTS},
    "lds_reliability": {
        "outputs": need(
            kinds.without(kinds.numbers(rows=True, columns=False), "more_rows", "one_more_axis")
            + kinds.wrong(axes=lambda v: v[0]),
            OUTPUTS.make,
        )
    },
    "compare_lds": {
        "scores": need(
            kinds.without(kinds.JUNK)
            + kinds.NONE
            + kinds.wrong(empty=lambda v: {}, array=lambda v: v["a"], nan=lambda v: {"a": v["a"] * np.nan}),
            lambda: {"a": world.scores(), "b": -world.scores()},
        ),
        "subsets_mask": SUBSETS,
        "outputs": OUTPUTS,
        "level": Arg(INNER, lambda: 0.9),
        "draws": Arg(kinds.without(kinds.count(), "large"), lambda: 20),
        "seed": SEED,
    },
    "coreset_order": {"scores": SCORES, "seed": SEED},
    "coreset": CHOICE,
    "pruned": CHOICE,
    "weighted_mean": {
        "values": need(kinds.numbers(columns=False), lambda: np.array([1.0, 2.0])),
        "fractions": need(kinds.may(kinds.numbers(columns=False), "zeros"), lambda: np.array([0.1, 0.2])),
    },
    "performance": {
        "logits": need(kinds.matrix(columns=False), lambda: world.scores()[:, :K]),
        "true_labels": need(kinds.labels(K), TEST_LABELS.make),
    },
    "surrogate_faithfulness": {
        "coef": need(
            kinds.without(kinds.matrix(), "fewer_columns"),
            lambda: np.hstack([world.head()[0], world.head()[1][:, None]]),
        ),
        "head": need(HEAD, world.head),
        "features": need(kinds.matrix(rows=False), lambda: world.features(B)),
    },
    "support_counts": {"coefficients": COEFFICIENTS},
    "sparsified": {"coefficients": COEFFICIENTS, "counts": COUNTS},
    "sparsified_faithfulness": {
        "coefficients": COEFFICIENTS,
        "counts": COUNTS,
        "train_features": need(kinds.matrix(), world.features),
        "head": need(HEAD, world.head),
        "features": need(kinds.matrix(rows=False), lambda: world.features(B)),
        "bias": need(kinds.FLAG, lambda: True),
    },
    "group_classes": {
        "confusion": need(kinds.matrix(), lambda: np.array([[5, 1, 0], [1, 5, 1], [0, 2, 5]])),
        "n_groups": need(kinds.count(most=3), lambda: 2),
        "seed": SEED,
    },
    "localisation": {
        "relevance": need(
            kinds.without(kinds.numbers(columns=False), "one_more_axis"), lambda: world.scores()[0]
        ),
        "inside": MARKED,
        "places": Arg(
            kinds.without(kinds.labels(None, negative=False), "none", "one_more_axis"),
            lambda: np.arange(N) // 2,
        ),
    },
    "caught_pairs": {
        "scores": FITTING._replace(kind=kinds.matrix(rows=False)),
        "poisoned_mask": need(kinds.mask(split=False), MARKED.make),
        "k": K_ARG,
        "pairs": K_ARG,
    },
    "sparsity_curve": {
        "scores": SCORES,
        "shares": need(
            kinds.without(kinds.numbers(rows=False, columns=False), "single"),
            lambda: np.array([0.25, 0.5]),
        ),
    },
}

METRICS = [
    Call(f"studies.{name}", lambda name=name: getattr(studies, name), args, nan=name == "sparsity_curve")
    for name, args in ARGUMENTS.items()
]
