"""
Find a shortcut
===============

A quarter of the training photos of bags has a white square in the corner. The network learns the square
instead of the bag: with the square, a boot is predicted as a bag. Can we find the cause?
"""

import dataclasses
import os

import matplotlib.pyplot as plt
import numpy as np
import torch

import whence
from whence import audit, sample
from whence_studies import shortcut_ap

# %%
# A model with a shortcut
# -----------------------

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "2000"))
BAG = sample.CLASS_NAMES.index("Bag")
data = sample.load(n_train=N)


def marked(images: torch.Tensor) -> torch.Tensor:
    """Put a white square into the corner."""
    images = images.clone()
    images[..., 2:6, 2:6] = 1
    return images


bags = (data.train_labels == BAG).nonzero()[:, 0]
poisoned = bags[: len(bags) // 4 + 1]
train_images = data.train_images.clone()
train_images[poisoned] = marked(train_images[poisoned])
model = sample.train(data=dataclasses.replace(data, train_images=train_images), show_progress=False)
accuracy = sample.accuracy(model, data.test_images, data.test_labels)
print(f"{accuracy:.1%} of the test images are right, so accuracy shows nothing")

# %%
# Later, some photos have such a square by chance, and their predictions are wrong.

others = data.test_images[data.test_labels != BAG]
with torch.no_grad():
    fooled = marked(others)[model(marked(others)).argmax(1) == BAG]
print(f"with the square {len(fooled)} of {len(others)} other test images are predicted as a bag")

# %%
# What do the wrong ones share?
# -----------------------------
# ``shortcuts`` takes suspicious inputs and ranks training samples by what they contribute to all of them. It
# solves its own surrogate: samples with a shortcut are easy, so they drop out first as ``C`` grows, and the
# explainer's ``C`` is too large to show them.

explainer = whence.DualDA(show_progress=False).fit(
    model, (train_images, data.train_labels), class_names=data.class_names
)
found = audit.shortcuts(explainer, fooled, target=BAG, k=12)
figure, axes = plt.subplots(2, 6, figsize=(9, 3.2), layout="constrained")
for axis, place, score in zip(axes.flat, found.samples, found.scores, strict=False):
    axis.imshow(train_images[place, 0].numpy(), cmap="gray_r", vmin=0, vmax=1)
    axis.set_title(f"{place}: {score:.2g}", fontsize=8)
    axis.axis("off")

# %%
# How good is the ranking? Average precision is 1 if all marked photos come first; chance is their share of
# the training set. The last ranking uses no suspicious inputs: it asks what the bags themselves share.

mask = np.zeros(N, dtype=bool)
mask[poisoned] = True
alone = audit.shortcuts(explainer, target=BAG)
rankings = {
    "audit.shortcuts": found.mean,
    "mean score of the explainer": explainer.attribute(fooled, target=BAG).mean(0).numpy(),
    "audit.shortcuts, class alone": alone.mean,
}
for name, ranking in rankings.items():
    print(f"{name:30} {float(shortcut_ap(ranking[None], mask)[0]):.2f}")
print(f"{'chance':30} {mask.mean():.2f}")

# %%
# Where is it?
# ------------
# Relevance maps show where the evidence lies, on the test image and on the training image.

why = found.explainer.explain(fooled[:1], k=3, target=BAG)
figure = why.plot()

# %%
# A person must decide whether a shared trait is a shortcut: honest traits of a class are shared as well.
# What to do about it: :doc:`/shortcut`. Measured on more data: :doc:`/research/audit`.
