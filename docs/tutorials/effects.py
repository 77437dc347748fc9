"""
What would change without a sample?
===================================

A score of ``DualDA`` shows what a prediction is *made of*. What would *change* without a training sample is
another question: a sample can hold a large part of a logit and still be replaceable. ``Effects`` predicts the
change; here we check the prediction by training again.
"""

import dataclasses
import os

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.stats import spearmanr

import whence
from whence import sample

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "600"))
MODELS = max(2, N // 40)  # that are trained again
data = sample.load(n_train=N, n_test=60)
model = sample.train(data=data, epochs=10, show_progress=False)
train_data = data.train_images, data.train_labels

# %%
# Two answers
# -----------
# Both are (test, train), and in both positive supports the predicted class.

made_of = whence.DualDA(show_progress=False).fit(model, train_data, class_names=data.class_names)
effects = whence.Effects(show_progress=False).fit(model, train_data, class_names=data.class_names)
tau, change = made_of.attribute(data.test_images), effects.attribute(data.test_images)
for name, scores in (("made of", tau), ("would change", change)):
    print(f"{name}: {float((scores == 0).float().mean()):.0%} of the scores are 0")

# %%
# A set of samples
# ----------------
# What would change for the first test image without the ten samples that matter most to it? ``effect_of``
# adds up the single effects, and re-solves the surrogate without all ten.

strongest = np.argsort(-np.asarray(change[0]))[:10]
print(effects.effect_of(data.test_images[:1], remove=strongest.tolist()))

# %%
# Is it right?
# ------------
# We train networks on random halves of the training set, and compare the logit of every test image with the
# sum of the scores of the half's samples. The rank correlation over halves is the LDS, the standard measure
# of data attribution.

rng = np.random.default_rng(0)
halves = [np.sort(rng.permutation(N)[: N // 2]) for _ in range(MODELS)]
target = model(data.test_images).argmax(1)


def logits_without(half: np.ndarray) -> np.ndarray:
    """Logits of the explained classes, of a network that was trained on half of the data."""
    part = dataclasses.replace(
        data, train_images=data.train_images[half], train_labels=data.train_labels[half]
    )
    trained = sample.train(1, data=part, epochs=10, show_progress=False)
    with torch.no_grad():
        return trained(data.test_images).gather(1, target[:, None])[:, 0].numpy()


truth = np.array([logits_without(half) for half in halves])


def lds(scores: np.ndarray) -> np.ndarray:
    """Rank correlation of predicted and true outputs over the halves, of each test."""
    predicted = np.array([scores[:, half].sum(1) for half in halves])
    return np.array([spearmanr(predicted[:, t], truth[:, t]).statistic for t in range(len(target))])


correlations = {"would change (Effects)": lds(np.asarray(change)), "made of (DualDA)": lds(np.asarray(tau))}
for name, values in correlations.items():
    print(f"{name:24} LDS {np.nanmean(values):.2f} ± {np.nanstd(values) / len(values) ** 0.5:.2f}")

# %%
# A few networks, each trained once, make a coarse measure. Over many, on five data sets and next to nine
# other methods: :doc:`/research/effects`.

figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
axis.boxplot(list(correlations.values()), tick_labels=list(correlations))
axis.axhline(0, color="grey", linewidth=1)
_ = axis.set_ylabel("rank correlation over halves,\none value per test image")

# %%
# Effects as an explanation
# -------------------------

why = effects.explain(data.test_images[:1], k=3, truth=data.test_labels[:1])
figure = why.plot()
