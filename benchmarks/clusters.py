"""Fits on blocks elsewhere against fits in memory: ratios and memory, alone on the machine.

    python benchmarks/clusters.py --part cluster --rows 10000000   two workers and memory
    python benchmarks/clusters.py --part overhead                  of a step, on small blocks
    python benchmarks/clusters.py --part lazy --gigabytes 50       blocks that are made each time
    python benchmarks/clusters.py --part client                    memory of the client by rows

Needs the extra `dask`.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from sklearn_dpsco import (
    DPFTRLClassifier,
    DPLassoFWClassifier,
    DPMirrorClassifier,
    DPPhasedSGDClassifier,
    HeavyTailDPClassifier,
)
from sklearn_dpsco.data import pieces
from sklearn_dpsco.solvers import FTRL, NoisyMD, PhasedSGD

CLASSES = {"classes": [0, 1]}
BOUNDS = {"bounds_X": (-1, 1)}
MODELS: dict[str, Callable[[], Any]] = {
    "DPMirrorClassifier": lambda: DPMirrorClassifier(**CLASSES, **BOUNDS, random_state=0),
    "noisy-md, 50 steps": lambda: DPMirrorClassifier(
        **CLASSES, **BOUNDS, solver=NoisyMD(max_iter=50), random_state=0
    ),
    "DPLassoFWClassifier": lambda: DPLassoFWClassifier(**CLASSES, **BOUNDS, random_state=0),
    "HeavyTailDPClassifier": lambda: HeavyTailDPClassifier(**CLASSES, random_state=0),
    "DPPhasedSGDClassifier, in order": lambda: DPPhasedSGDClassifier(
        **CLASSES, **BOUNDS, solver=PhasedSGD(shuffle=False), random_state=0
    ),
    "DPFTRLClassifier, in order": lambda: DPFTRLClassifier(
        **CLASSES, **BOUNDS, solver=FTRL(shuffle=False), random_state=0
    ),
}


def table(n: int, d: int, n_blocks: int) -> tuple[Any, Any]:
    """Random X and labels with a linear signal, as lazy arrays."""
    X = da.random.default_rng(0).uniform(-1, 1, (n, d), chunks=(-(-n // n_blocks), d))
    return X, (X @ np.linspace(-1, 1, d) > 0).astype(np.int64)


@contextmanager
def cluster() -> Iterator[Client]:
    """Two workers of one thread each."""
    size = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0}
    with LocalCluster(**size, dashboard_address=":0") as found, Client(found) as client:
        yield client


def fitted(make: Callable[[], Any], X: Any, y: Any, repeats: int) -> tuple[float, Any]:
    """The median time of some fits after a first one, and a model."""
    seconds, model = [], make().fit(X[:1000], y[:1000])
    for _ in range(repeats):
        start = time.perf_counter()
        model = make().fit(X, y)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)), model


def against_memory(n: int, d: int, names: list[str], repeats: int) -> None:
    there = {}
    with cluster():
        X, y = (blocks.persist() for blocks in table(n, d, 20))
        wait([X, y])
        for name in names:
            there[name] = fitted(MODELS[name], X, y, repeats)
        X, y = X.compute(), y.compute()
    for name in names:
        seconds, model = fitted(MODELS[name], X, y, repeats)
        on_cluster, other = there[name]
        apart = np.abs(model.coef_ - other.coef_).max()
        ratio, times = on_cluster / seconds, f"{on_cluster:.2f} s / {seconds:.2f} s"
        print(f"{n} x {d}, {name}, {model.n_iter_} steps: cluster / memory {ratio:.2f} ({times})")
        print(f"    models apart {apart:.0e}")


def overhead(d: int) -> None:
    """What a step costs beside its sums: blocks of ten rows."""
    with cluster():
        X, y = (blocks.persist() for blocks in table(200, d, 20))
        wait([X, y])
        calls, compute = [], pieces.compute

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            found = compute(*arguments)
            calls.append(time.perf_counter() - start)
            return found

        pieces.compute = timed  # type: ignore[assignment]
        MODELS["noisy-md, 50 steps"]().fit(X, y)
        pieces.compute = compute
        late = np.array(calls[-50:]) * 1e3
        most = np.quantile(late, 0.9)
        print(f"d = {d}: a step takes {np.median(late):.1f} ms, nine of ten at most {most:.1f}")


def lazy(gigabytes: float, d: int) -> None:
    """One pass and a few steps over blocks that no memory holds, by threads of this process."""
    n = int(gigabytes * 2**30 / (8 * d))
    X, y = table(n, d, max(4, int(gigabytes * 16)))
    before = _peak()
    start = time.perf_counter()
    make = DPMirrorClassifier(**CLASSES, **BOUNDS, solver=NoisyMD(max_iter=3), random_state=0)
    model = make.fit(X, y)
    seconds = time.perf_counter() - start
    print(
        f"{gigabytes:g} GB, {n} x {d}, {X.numblocks[0]} blocks: {seconds:.0f} s, memory "
        f"{_peak() - before:.2f} GB more than before, correlation with the signal "
        f"{np.corrcoef(model.coef_[0], np.linspace(-1, 1, d))[0, 1]:.3f}"
    )


def client_memory(d: int) -> None:
    """Memory of this process, with workers of their own."""
    with cluster():
        for n in (10**5, 10**6, 10**7):
            before = _peak()
            X, y = (blocks.persist() for blocks in table(n, d, 20))
            wait([X, y])
            MODELS["noisy-md, 50 steps"]().fit(X, y)
            print(f"{n} x {d}: the client takes {_peak() - before:.2f} GB more")
            del X, y


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["cluster", "overhead", "lazy", "client"], required=True)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--gigabytes", type=float, default=50.0)
    parser.add_argument("--models", nargs="*", default=list(MODELS)[:2])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.part == "cluster":
        shape = arguments.rows, arguments.columns
        against_memory(*shape, arguments.models, arguments.repeats)
    elif arguments.part == "overhead":
        overhead(arguments.columns)
    elif arguments.part == "lazy":
        lazy(arguments.gigabytes, arguments.columns)
    else:
        client_memory(arguments.columns)
