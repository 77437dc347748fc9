"""
Use a cluster
=============

The same work in several processes or on several machines, with the same bits. Here Ray starts on this machine
and ends with the script; on a cluster, only the address changes.
"""

import os
import time

import numpy as np

import whence
from whence import sample

N = int(os.environ.get("WHENCE_TUTORIAL_SAMPLES", "2000"))
data = sample.load(n_train=N)
model = sample.train(data=data, epochs=3, show_progress=False)
train_data = data.train_images, data.train_labels

# %%
# Here, and on Ray
# ----------------
# Work that starts inside the block runs there: features in ranges of samples, folds of audits, retrained
# models. ``whence.engine.Ray("auto")`` is the cluster that this machine is part of.


def fitted() -> whence.DualDA:
    """Fit and print how long it took."""
    start = time.perf_counter()
    explainer = whence.DualDA(C=1e-3, show_progress=False).fit(model, train_data)
    print(f"{time.perf_counter() - start:.1f} s, gap {explainer.gap_:.1e}")
    return explainer


here = fitted()
with whence.engine.using(whence.engine.Ray()):
    there = fitted()

# %%
# Starting Ray takes some seconds, so a small training set is not worth it. Results are the same to the bit:

x = data.test_images[:20]
print("the same scores:", np.array_equal(here.attribute(x), there.attribute(x)))

# %%
# One solution over shards
# ------------------------
# If features do not fit into one machine, a solution is divided: every shard keeps its rows. The
# certificate is that of the whole, and two solutions with a small gap name the same samples.

with whence.engine.using(whence.engine.Ray(n_shards=2)):
    divided = fitted()
same = (here.top_k(x).proponents.indices == divided.top_k(x).proponents.indices).float().mean()
print(f"two shards: {float(same):.0%} of the five strongest proponents are the same")

# %%
# From a shell it is ``whence fit … --engine ray --address auto``, or ``--engine processes:4`` on one
# machine. What runs where, and what happens if a machine is lost: :doc:`/scale`.
