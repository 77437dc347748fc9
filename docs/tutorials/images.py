"""
Explain an image classifier
===========================

Which training images does a prediction come from, and which parts of them? A small network looks at photos
of clothes; we ask it about one that it is sure of and one that it gets wrong.
"""

import os

import whence
from whence import sample

# %%
# The model and its training set
# ------------------------------
# Photos of clothes come with whence. With your own model and data, leave this block out: any trained
# PyTorch classifier that ends in a linear layer will do, and any data set, loader or pair ``(X, y)``.

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "2000"))
data = sample.load(n_train=N)
model = sample.train(data=data, show_progress=False)
print(f"{sample.accuracy(model, data.test_images, data.test_labels):.1%} of the test images are right")

# %%
# Fit
# ---
# ``fit`` runs the model once over the training set, chooses ``C`` by itself and solves one convex problem.
# The model stays unchanged.

explainer = whence.DualDA(show_progress=False).fit(
    model, (data.train_images, data.train_labels), class_names=data.class_names
)
print(explainer.C_path_)

# %%
# Two numbers say how far to trust what follows. The *gap* is a proof: how far the solution is from the best
# one. The *agreement* is a measurement: how often the surrogate that is taken apart names the same class as
# the model.

print(
    f"gap {explainer.gap_:.1e}, C = {explainer.C_:.2g}, {len(explainer.vectors_):,} support vectors of {N:,}"
)
print(explainer.faithfulness(data.test_images))

# %%
# Which training images?
# ----------------------
# ``attribute`` gives one score per training image. Positive is evidence *for* the predicted class, negative
# *against* it, and the scores sum to the surrogate's logit: nothing is left over.

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
# ``explain`` adds relevance maps on both images of every pair. In the middle is the test image; on the
# right (blue) what supports its class, on the left (orange) what contradicts it; above each training
# image its own map, below it what the pair sees in the test image.

why = explainer.explain(x, k=4, truth=data.test_labels[:1])
print(f"the surrogate's logit is {why[0].logit:.4f}, the sum of all scores")
figure = why.plot()

# %%
# A wrong prediction
# ------------------
# The same for the first test image that the model gets wrong. Opponents that look just like the test image
# are a sign of two classes that the model can hardly separate. The bar shows it too: both sides are
# almost of one length.

wrong = int((model(data.test_images).argmax(1) != data.test_labels).nonzero()[0, 0])
why = explainer.explain(data.test_images[wrong : wrong + 1], k=4, truth=data.test_labels[wrong : wrong + 1])
figure = why.plot()

# %%
# To keep
# -------
# ``why.to_html("why.html")`` writes a page with everything, ``why.to_dict()`` gives numbers, and
# ``explainer.save("clothes.whence")`` keeps the explainer for ``whence.load``, and for ``whence serve``,
# the page to browse in. How to read the figure line by line: :doc:`/explanations`.
