"""
Catch a shortcut
================

A quarter of the training photos of bags has a white square in the corner. The network learns the square
instead of the bag: put it on a boot, and the boot is a bag. Can we see that from its predictions?
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
print(f"{accuracy:.1%} of the test images are right: nothing to see")

# %%
# In use, some photos have such a square by chance, and their predictions are wrong.

others = data.test_images[data.test_labels != BAG]
with torch.no_grad():
    fooled = marked(others)[model(marked(others)).argmax(1) == BAG]
print(f"with the square {len(fooled)} of {len(others)} other test images are called a bag")

# %%
# What do the wrong ones share?
# -------------------------------
# ``shared_evidence`` takes samples that somebody finds suspicious and ranks training samples by what they
# contribute to all of them together, at a low ``C``: samples with a shortcut are easy, so that they are the
# first to drop out as ``C`` grows.

explainer = whence.DualDA(show_progress=False).fit(
    model, (train_images, data.train_labels), class_names=data.class_names
)
shared = audit.shared_evidence(explainer, fooled, target=BAG, k=12)
figure, axes = plt.subplots(2, 6, figsize=(9, 3.2), layout="constrained")
for axis, place, score in zip(axes.flat, shared.samples, shared.scores, strict=False):
    axis.imshow(train_images[place, 0].numpy(), cmap="gray_r", vmin=0, vmax=1)
    axis.set_title(f"{place}: {score:.2g}", fontsize=8)
    axis.axis("off")

# %%
# How good is the ranking? Average precision, 1 if all marked photos came first; chance is their share of
# the training set.

mask = np.zeros(N, dtype=bool)
mask[poisoned] = True
chosen = explainer.attribute(fooled, target=BAG).mean(0)
print(f"shared evidence, low C   {float(shortcut_ap(shared.mean[None], mask)[0]):.2f}")
print(f"mean score, chosen C     {float(shortcut_ap(chosen[None], mask)[0]):.2f}")
print(f"chance                   {mask.mean():.2f}")

# %%
# Where is it?
# ------------
# Relevance maps say where the evidence lies, on the test image and on the training image. They are of the
# surrogate at that low C, which is a worse stand-in for the model: the warning says so.

low = whence.DualDA(C=shared.C, show_progress=False).fit(
    model, (train_images, data.train_labels), class_names=data.class_names
)
why = low.explain(fooled[:1], k=3, target=BAG)
figure = why.plot()

# %%
# A person must decide whether a shared trait is a shortcut: honest traits of a class are shared as well.
# Measured on more data, and when it misleads: :doc:`/audit`.
