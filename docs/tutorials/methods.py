"""
Compare attribution methods on your own model
=============================================

Methods differ in what they find and in what they cost. All of them have the same calls here, so comparing
them takes a loop.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np
import torch

import whence
from whence import methods, sample
from whence_studies import identical_class, mislabeling_auc

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "1000"))
METHODS = [
    "dualda",
    "effects",
    "similarity",
    "representer",
    "influence",
    "graddot",
    "gradcos",
    "trak",
    "random",
]
print("all methods:", ", ".join(methods.names()))

# %%
# A model with some wrong labels
# ------------------------------
# A tenth of the labels is wrong, so there is something to find.

data = sample.load(n_train=N, n_test=100)
rng = np.random.default_rng(0)
flipped = np.zeros(N, dtype=bool)
flipped[rng.choice(N, N // 10, replace=False)] = True
labels = data.train_labels.clone()
labels[flipped] = (labels[flipped] + 1) % 10

torch.manual_seed(0)
model = sample.SmallCNN()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(8):
    for rows in torch.randperm(N).split(64):
        loss = torch.nn.functional.cross_entropy(model(data.train_images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()
print(f"{sample.accuracy(model, data.test_images, data.test_labels):.0%} of the test images are right")

# %%
# One loop
# --------
# Methods share one pass over the training set, a bank of features. For each we measure three things: do the
# five strongest proponents have the predicted class, does self-influence find wrong labels (area under the
# ROC curve, 0.5 is chance), and what does it cost?

bank = whence.features.extract(model, (data.train_images, labels), show_progress=False)
layered = whence.features.extract(
    model, (data.train_images, labels), layers="auto", show_progress=False
)  # for Effects
target = model(data.test_images).argmax(1)
rows = {}
for name in METHODS:
    start = time.process_time()
    method = methods.get(name)(show_progress=False).fit(features=layered if name == "effects" else bank)
    scores = method.attribute(data.test_images)
    seconds = time.process_time() - start
    same = identical_class(scores, target, labels).mean()
    # Effects solve one system per training sample for this, which takes minutes.
    area = mislabeling_auc(method.self_influence(), flipped) if name != "effects" else float("nan")
    rows[name] = np.asarray(scores)
    print(f"{name:12} same class {same:.2f}   wrong labels {area:.2f}   {seconds:6.2f} CPU-s")

# %%
# Do they agree?
# --------------
# How many of the ten strongest proponents of a test image does another method name too?

best = {name: np.argsort(-scores, axis=1)[:, :10] for name, scores in rows.items()}
overlap = np.array(
    [
        [np.mean([len(set(a) & set(b)) for a, b in zip(best[m], best[n], strict=True)]) / 10 for n in best]
        for m in best
    ]
)
figure, axis = plt.subplots(figsize=(5.5, 4.8), layout="constrained")
image = axis.imshow(overlap, vmin=0, vmax=1, cmap="cividis")
axis.set_xticks(range(len(best)), list(best), rotation=60, ha="right")
axis.set_yticks(range(len(best)), list(best))
_ = figure.colorbar(image, label="shared among the ten strongest")

# %%
# Methods that answer different questions name different samples; none is right for all. With retraining,
# several seeds, ties and a page of results, on your data and your network: :doc:`/compare`. Results on four
# data sets, also where ``DualDA`` is behind: :doc:`/research/results`.
