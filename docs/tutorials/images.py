"""
Explain an image classifier
===========================

Which training images does a prediction come from, and which parts of them? We train a small network on photos
of clothes and explain two predictions: one that is certain and one that is wrong.
"""

import os

import whence
from whence import sample

# %%
# The model and its training set
# ------------------------------
# Photos of clothes come with whence. With your own model and data, skip this block: any trained PyTorch
# classifier with a linear last layer works, and any data set, loader or pair ``(X, y)``.

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "2000"))
data = sample.load(n_train=N)
model = sample.train(data=data, show_progress=False)
print(f"{sample.accuracy(model, data.test_images, data.test_labels):.1%} of the test images are right")

# %%
# Fit
# ---
# ``fit`` runs the model once over the training set, chooses ``C`` and solves one convex problem. The model is
# not changed.

explainer = whence.DualDA(show_progress=False).fit(
    model, (data.train_images, data.train_labels), class_names=data.class_names
)
print(explainer.C_path_)

# %%
# Two numbers show how far you can trust the result. The *gap* is a proof: how far the solution is from the
# optimum. The *agreement* is a measurement: how often surrogate and model predict the same class.

print(
    f"gap {explainer.gap_:.1e}, C = {explainer.C_:.2g}, {len(explainer.vectors_):,} support vectors of {N:,}"
)
print(explainer.faithfulness(data.test_images))

# %%
# Which training images?
# ----------------------
# ``attribute`` gives one score per training image. Positive supports the predicted class, negative
# contradicts it, and the scores sum to the surrogate's logit, exactly.

x = data.test_images[:1]
scores = explainer.attribute(x)
print(
    scores.shape,
    f"{float((scores != 0).float().mean()):.0%} of them are not 0, their sum is {float(scores.sum()):.4f}",
)

top = explainer.top_k(x, k=3)
for side in (top.proponents, top.opponents):
    for index, score in zip(side.indices[0].tolist(), side.scores[0].tolist(), strict=True):
        print(f"{score:+.3f}  image {index:4}, {data.class_names[data.train_labels[index]]}")

# %%
# Which parts of them?
# --------------------
# ``explain`` adds relevance maps on both images of every pair. The test image is in the middle. Training
# images on the right (blue) support its class, those on the left (orange) contradict it. Above each
# training image is its own map, below it the map of the pair on the test image.

why = explainer.explain(x, k=4, truth=data.test_labels[:1])
print(why[0].equation)
figure = why.plot()

# %%
# A wrong prediction
# ------------------
# The same for the first test image that the model gets wrong. Opponents that look like the test image are a
# sign of two classes that the model can hardly separate. The bar shows it too: both sides have almost the
# same length.

wrong = int((model(data.test_images).argmax(1) != data.test_labels).nonzero()[0, 0])
why = explainer.explain(data.test_images[wrong : wrong + 1], k=4, truth=data.test_labels[wrong : wrong + 1])
figure = why.plot()

# %%
# Save
# ----
# ``why.to_html("why.html")`` writes a page, ``why.to_dict()`` returns numbers, and
# ``explainer.save("clothes.whence")`` keeps the explainer for ``whence.load`` and ``whence serve``. How to
# read the figure line by line: :doc:`/reading`.
