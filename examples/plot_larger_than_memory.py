"""
A table larger than the memory that it may take
===============================================

Sixty files of Parquet hold a table of 480 MB. It is fitted with less than 320 MB of memory beside
what Python and its libraries take: blocks of rows are read when their sums are needed, by Dask, and
let go. What is released, the noise and the guarantee are those of the table in memory.
"""

# %%
# The files, in which each block of rows would be one day, one shop or one shard. (The seed here
# and below is for a page that looks the same every time, and makes the fits *not* private.)

import resource
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

folder = Path(tempfile.mkdtemp())
features = [f"x{k}" for k in range(16)]
signal = np.linspace(-1, 1, 16)
for part in range(60):
    rng = np.random.default_rng(part)
    block = pd.DataFrame(rng.uniform(0, 10, (50_000, 16)), columns=features)
    odds = (block.to_numpy() - 5) @ signal / 3
    block["bought"] = odds + rng.logistic(size=50_000) > 0
    block.to_parquet(folder / f"part-{part:02}.parquet")
size = sum(path.stat().st_size for path in folder.iterdir())
print(f"{size / 1e6:.0f} MB in {len(list(folder.iterdir()))} files")

# %%
# Nothing is read yet: the frame knows where its rows are. `fit` takes it as it is.

import dask.dataframe as dd

from sklearn_dpsco import DPFTRLClassifier, DPMirrorClassifier, dp_score
from sklearn_dpsco.solvers import FTRL, Descent

table = dd.read_parquet(folder)


def peak():
    """The most memory that this process has taken so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def fitted(model):
    """The model of the whole table, and what it took."""
    start = time.perf_counter()
    model.fit(table[features], table["bought"])
    seconds = time.perf_counter() - start
    print(f"{type(model).__name__}: {seconds:.1f} s, {peak() - before:.0f} MB")
    assert peak() - before < 320
    return model


public = {"bounds_X": (0, 10), "classes": [False, True], "epsilon": 1.0, "random_state": 0}
first = table.partitions[0]  # a fit of one file, for libraries to be loaded and kernels compiled
DPMirrorClassifier(solver=Descent(max_iter=1), **public).fit(first[features], first["bought"])
before = peak()

# %%
# A pass over the files checks them before anything is spent. A model that follows the stream of
# the records then needs one more, and ``shuffle=False`` takes them as they lie:

stream = fitted(DPFTRLClassifier(solver=FTRL(shuffle=False), **public))

# %%
# The descent of `DPLogisticRegression` reads all records in each step, on all cores. Here it makes
# four steps, which `DPMirrorClassifier` lets one say:

descent = fitted(DPMirrorClassifier(solver=Descent(max_iter=4), **public))
print(descent.guarantee_)

# %%
# Predictions are made block by block, too, and are an array of Dask: computed when asked for.

print(descent.predict(table[features]))

# %%
# Scores of other records cost a budget of their own, and are as exact as their number allows.

held_out = pd.DataFrame(rng.uniform(0, 10, (50_000, 16)), columns=features)
odds = (held_out.to_numpy() - 5) @ signal / 3
truth = odds + rng.logistic(size=50_000) > 0
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for model, marker in ((stream, "x"), (descent, ".")):
    name = type(model).__name__
    print(name, dp_score(model, held_out, truth, epsilon=1.0))
    axes.plot(model.coef_[0], marker, label=name)
axes.plot(signal / 3, color="gray", zorder=0, label="the law that made the table")
axes.set(xlabel="column", ylabel="coefficient", title="3,000,000 records, epsilon = 1")
axes.legend()
plt.show()

# %%
# With a `distributed.Client`, the same lines run on the workers of a cluster; where the table fits
# into their memory, ``table = table.persist()`` makes every step as fast as a pass over it.
