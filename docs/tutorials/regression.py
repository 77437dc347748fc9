"""
Explain a regression
====================

A network predicts the progression of diabetes in a year. Which patients of the training set raise the
prediction, and which lower it? The data come with scikit-learn.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from torch import nn

import whence

# %%
# Patients and a network
# ----------------------

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "350"))
measures, progression = load_diabetes(return_X_y=True)
order = np.random.default_rng(0).permutation(len(progression))
x = torch.from_numpy(measures[order]).float() * len(order) ** 0.5
y = torch.from_numpy(progression[order]).float()
train, test = (x[92 : 92 + N], y[92 : 92 + N]), (x[:92], y[:92])

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
mean, deviation = train[1].mean(), train[1].std()
with torch.no_grad():
    model[-1].weight *= deviation
    model[-1].bias.fill_(mean)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
for _ in range(30):
    for rows in torch.randperm(len(train[0])).split(32):
        loss = nn.functional.mse_loss(model(train[0][rows])[:, 0] / deviation, train[1][rows] / deviation)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    print(f"R² on {len(test[0])} other patients: {r2_score(test[1], model(test[0])[:, 0]):.2f}")

# %%
# Fit
# ---
# Floats as targets make it a regression. The surrogate is support vector regression; ``C`` and the width of
# its tube are chosen together, by how well it follows the model.

explainer = whence.DualDA(show_progress=False).fit(model, train)
print(explainer.task_, f"gap {explainer.gap_:.1e}, {len(explainer.vectors_)} support vectors")
print(explainer.faithfulness(test[0]))

# %%
# Up and down
# -----------
# Scores are in the units of the target. The mean plus their sum is the surrogate's prediction.

scores = explainer.attribute(test[0])
predicted = explainer.task_.base + np.asarray(scores.sum(1))
base = float(explainer.task_.base[0])
up, down = (float(scores[0][scores[0] * sign > 0].sum()) for sign in (1, -1))
print(f"mean {base:.0f}, raised by {up:.0f}, lowered by {-down:.0f}: {float(predicted[0]):.0f}")
with torch.no_grad():
    print(f"the model predicts {float(model(test[0][:1])):.0f}, a year later it was {float(test[1][0]):.0f}")

# %%
# The figure has one bar per measure, for the patient and for each training sample.

why = explainer.explain(test[0][:1], k=3, truth=test[1][:1])
figure = why.plot()

# %%
# How well the sums follow the model, over all patients who were not trained on:

figure, axis = plt.subplots(figsize=(4, 4), layout="constrained")
with torch.no_grad():
    axis.scatter(model(test[0])[:, 0], predicted, s=12)
axis.axline((base, base), slope=1, color="grey", linewidth=1)
axis.set_xlabel("the model's prediction")
_ = axis.set_ylabel("mean + sum of scores")

# %%
# Several outputs, many labels, and what is not supported: :doc:`/tasks`.
