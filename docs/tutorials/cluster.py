"""
Use a cluster
=============

The same work on several processes or machines, with the same bits. Here Ray begins on this machine and ends
with the script; on a cluster, the address is all that changes.
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
# Whatever begins inside the block runs there: features in ranges of samples, folds of audits, models that
# are trained again. ``whence.engine.Ray("auto")`` is the cluster that this machine is part of.


def fitted() -> whence.DualDA:
    """Fit, and say how long it took."""
    start = time.perf_counter()
    explainer = whence.DualDA(C=1e-3, show_progress=False).fit(model, train_data)
    print(f"{time.perf_counter() - start:.1f} s, gap {explainer.gap_:.1e}")
    return explainer


here = fitted()
with whence.engine.using(whence.engine.Ray()):
    there = fitted()

# %%
# Beginning Ray takes some seconds, so that a small training set is not worth it. What comes out is the same
# to the bit:

x = data.test_images[:20]
print("the same scores:", np.array_equal(here.attribute(x), there.attribute(x)))

# %%
# One solution over shards
# ------------------------
# Where features do not fit into one machine, a solution is divided: every shard keeps its rows. The
# certificate is that of the whole, and two solutions of a small gap name the same samples.

with whence.engine.using(whence.engine.Ray(n_shards=2)):
    divided = fitted()
same = (here.top_k(x).proponents.indices == divided.top_k(x).proponents.indices).float().mean()
print(f"two shards: {float(same):.0%} of the five strongest proponents are the same")

# %%
# From a shell it is ``whence fit … --engine ray --address auto``; processes of this machine alone are
# ``--engine processes:4``. What runs where, what happens when a machine is lost, and where it breaks:
# :doc:`/scale`.
