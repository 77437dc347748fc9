"""
Find wrong labels, correct them, train again
============================================

Three labels in ten are wrong. We train on them without knowing, ask whence which labels to check, correct
those, and train again.
"""

import dataclasses
import os

import matplotlib.pyplot as plt
import numpy as np
import torch

import whence
from whence import audit, sample

# %%
# A training set with wrong labels
# --------------------------------
# Three tenths of the labels are replaced by another class at random. From here on we use ``labels`` only;
# ``data.train_labels`` is kept for the end.

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "2000"))
data = sample.load(n_train=N)
rng = np.random.default_rng(0)
flipped = rng.choice(N, 3 * N // 10, replace=False)
labels = data.train_labels.clone()
labels[flipped] = (labels[flipped] + torch.from_numpy(rng.integers(1, 10, len(flipped)))) % 10

model = sample.train(data=dataclasses.replace(data, train_labels=labels), epochs=10, show_progress=False)
before = sample.accuracy(model, data.test_images, data.test_labels)
print(f"accuracy on the test images: {before:.1%}")

# %%
# Rank
# ----
# The audit ranks the training samples, most suspicious first, and suggests a label for each.
# ``suspects.to_csv("labels.csv")`` writes the table; ``whence serve`` shows it as a page.

explainer = whence.DualDA(show_progress=False).fit(
    model, (data.train_images, labels), class_names=data.class_names
)
suspects = audit.wrong_labels(explainer, n=3 * N // 10)
print(suspects)

# %%
# Look
# ----
# The twelve most suspicious. Above each: its label, and the class that is suggested.

figure, axes = plt.subplots(2, 6, figsize=(9, 3.6), layout="constrained")
for axis, place, suggested in zip(axes.flat, suspects.indices, suspects.suggested, strict=False):
    axis.imshow(data.train_images[place, 0].numpy(), cmap="gray_r")
    axis.set_title(f"{data.class_names[labels[place]]}\n→ {data.class_names[suggested]}", fontsize=8)
    axis.axis("off")

# %%
# How many of the first ones are really wrong? Here we know the answer.

wrong = np.isin(suspects.indices, flipped)
for n in (20, 100, len(wrong)):
    print(f"of the first {min(n, len(wrong)):3} labels, {wrong[:n].mean():.0%} are wrong")

# %%
# Correct
# -------
# A person who checks the list keeps right labels and corrects wrong ones. We simulate this with the true
# labels, for the listed samples only.

fixed = labels.clone()
fixed[suspects.indices] = data.train_labels[suspects.indices]
for name, each in (("before", labels), ("after", fixed)):
    print(f"{name}: {int((each != data.train_labels).sum())} labels are wrong")

# %%
# Train again
# -----------
# Two seeds each, because training is random.


def accuracies(labels: torch.Tensor) -> list[float]:
    """Accuracy on the test images of networks that are trained on these labels."""
    trained = [
        sample.train(
            seed, data=dataclasses.replace(data, train_labels=labels), epochs=10, show_progress=False
        )
        for seed in (1, 2)
    ]
    return [sample.accuracy(each, data.test_images, data.test_labels) for each in trained]


for name, each in (
    ("as found", labels),
    ("corrected", fixed),
    ("all right", data.train_labels),
):
    print(f"labels {name:10}  " + "  ".join(f"{value:.1%}" for value in accuracies(each)))

# %%
# A network that has memorised its wrong labels hides them. What to do then, and a comparison with cleanlab:
# :doc:`/labels`. A fitted explainer follows corrected labels without a new fit,
# ``explainer.update(relabel={17: 3})``: :doc:`/changes`.
