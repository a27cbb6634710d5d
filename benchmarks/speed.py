"""Speed as ratios, each pair side by side in one run.

    python benchmarks/speed.py                       steps, storages, import, whole fits
    python benchmarks/speed.py --only steps storages those parts alone
    python benchmarks/speed.py --peer-python PYTHON  also against diffprivlib, run by the
                                                     given interpreter of an environment
                                                     with diffprivlib and scikit-learn 1.6

Medians of repeated, interleaved timings.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression, Ridge

from sklearn_dpsco import (
    DPFTRLClassifier,
    DPFTRLRegressor,
    DPLassoFW,
    DPLassoFWClassifier,
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPhasedSGDClassifier,
    DPPhasedSGDRegressor,
    HeavyTailDPClassifier,
    HeavyTailDPRegressor,
)
from sklearn_dpsco.data.rows import Rows, SolverData, Terms
from sklearn_dpsco.losses import Huber, Logistic, SmoothedHinge, Squared
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.solvers import NoisyMD

ESTIMATORS: tuple[Any, ...] = (
    DPFTRLClassifier, DPFTRLRegressor, DPLassoFW, DPLassoFWClassifier, DPMirrorClassifier,
    DPMirrorRegressor, DPPhasedSGDClassifier, DPPhasedSGDRegressor, HeavyTailDPClassifier,
    HeavyTailDPRegressor,
)  # fmt: skip


PAUSE = 0.06  # after a product the threads of BLAS wait in a loop, and take a core from others


def medians(
    functions: dict[str, Callable[[], Any]], repeats: int = 15, pause: float = 0.0, before: int = 0
) -> dict[str, float]:
    """Median seconds of each, measured in turn so that drift hits all alike.

    After a pause, and of calls one after another, as the steps of a fit are: so many before that
    are not measured, and as many that are.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            time.sleep(pause)
            for _ in range(before):
                function()
            start = time.perf_counter()
            for _ in range(max(1, before)):
                function()
            times[name].append((time.perf_counter() - start) / max(1, before))
    return {name: float(np.median(values)) for name, values in times.items()}


def report(label: str, ratio: float, limit: str) -> None:
    print(f"{label:66s} {ratio:7.2f}   (aim: {limit})")


def iteration(X: Any, label: str, limit: float) -> None:
    """One selection step and one gradient step against one X.T @ r."""
    n, d = X.shape
    rng = np.random.default_rng(0)
    y, r = rng.choice([-1.0, 1.0], n), rng.normal(size=n)
    rows = Rows(X, True)
    objective = y, Terms(0.1, Logistic(), 0.5)
    coef = rng.normal(size=d + 1) / d
    model = DPLassoFWClassifier(classes=[0, 1], bounds_X=(-1, 1), solver="selection")
    plan = model.plan(n, d)
    stream = stream_from_random_state(None)

    def select() -> None:
        gradient = rows.gradient_sum(coef, *objective) / n
        plan.step.release(plan.vertices.scores(gradient), stream)

    mirror = DPMirrorClassifier(classes=[0, 1], bounds_X=(-1, 1), feasible_set="l2").plan(n, d)
    noise, mirror_map = mirror.stages[0].noise, mirror.mirror_map

    def descend() -> None:
        gradient = noise.release(rows.gradient_sum(coef, *objective) / n, stream)
        mirror_map.step(coef, gradient, 0.01 / mirror_map.dual_norm(gradient))

    times = medians(
        {
            "one product": lambda: X.T @ r,
            "two products": lambda: (X @ coef[:d], X.T @ r),
            "selection": select,
            "gradient": lambda: rows.gradient_sum(coef, *objective) / n,
            "mirror descent": descend,
        }
    )
    report(f"{label}: selection step / X.T @ r", times["selection"] / times["one product"], limit)
    ratio = times["gradient"] / times["two products"]
    report(f"{label}: gradient step / (X @ w and X.T @ r)", ratio, "1.25")
    ratio = times["mirror descent"] / times["two products"]
    report(f"{label}: mirror descent step / (X @ w and X.T @ r)", ratio, "1.25")


def iterations(n: int) -> None:
    """Iterations on a dense and a sparse table."""
    iteration(np.random.default_rng(0).uniform(-1, 1, (n, 500)), f"dense {n} x 500", 1.25)
    X = sparse.random(n, 5000, density=0.005, random_state=0, format="csr")
    iteration(X, f"sparse {n} x 5000, 0.5 %", 1.5)


SHAPES = ((10_000, 16), (100_000, 16), (1_000_000, 16), (10_000, 60), (245_509, 59),
          (1_000_000, 60), (10_000, 500), (100_000, 500))  # fmt: skip


def steps() -> None:
    """Mean gradients of dense rows against the two products of a step in numpy, in float64."""
    for n, d in SHAPES:
        X = np.random.default_rng(0).uniform(-1, 1, (n, d))
        repeats = 9 if n * d < 3e6 else 3
        _single_steps(X, repeats)
        for k in (3, 10):
            _joint_steps(X, k, repeats)


def _single_steps(X: Any, repeats: int) -> None:
    n, d = X.shape
    rng = np.random.default_rng(1)
    w, r, signs = rng.normal(size=d) / d, rng.normal(size=n), rng.choice([-1.0, 1.0], n)
    coef = np.append(w, 0.1)
    functions: dict[str, Any] = {"numpy": lambda: (X @ w, X.T @ r)}
    tables = {"float64": Rows(X, True), "float32": Rows(X.astype(np.float32), True)}
    for loss, kind in product((Squared(), Huber(0.3), Logistic()), tables):
        y = signs if loss.task == "classification" else np.clip(r, -1, 1)
        objective = y, Terms(0.1, loss, 0.5)
        functions[f"{type(loss).__name__}, {kind}"] = lambda o=objective, k=kind: tables[
            k
        ].gradient_sum(coef, *o)
    plan = HeavyTailDPRegressor().plan(n, d)
    limits = plan.oracle.limits(tables["float64"], plan.steps[0].order)
    records = SolverData(tables["float64"], np.clip(r, -1, 1), limits)
    unclipped = Terms(0.1, Squared(), 1e90)
    functions["heavy tails, float64"] = lambda: plan.oracle.gradient_sums(
        records, 0, coef, unclipped
    )
    times = medians(functions, repeats, PAUSE, 3)
    plain = times.pop("numpy")
    for name, seconds in times.items():
        limit = "0.35" if "float32" in name else "0.7"
        report(f"{n} x {d}: step, {name} / (X @ w and X.T @ r)", seconds / plain, limit)


def _joint_steps(X: Any, k: int, repeats: int) -> None:
    n, d = X.shape
    rng = np.random.default_rng(1)
    W, R = rng.normal(size=(d, k)) / d, rng.normal(size=(n, k))
    Y = np.where(rng.integers(k, size=n)[:, None] == np.arange(k), 1.0, -1.0)
    coef = np.vstack((W, W[:1]))
    functions: dict[str, Any] = {"numpy": lambda: (X @ W, X.T @ R)}
    losses = {"multinomial": Logistic(), "one against rest": SmoothedHinge()}
    tables = {"float64": Rows(X, True), "float32": Rows(X.astype(np.float32), True)}
    for (name, loss), kind in product(losses.items(), tables):
        objective = Y, Terms(np.zeros(k), loss.of_outputs(k), 0.5)
        functions[f"{name}, {kind}"] = lambda o=objective, t=kind: tables[t].gradient_sum(coef, *o)
    times = medians(functions, repeats, PAUSE, 3)
    plain = times.pop("numpy")
    for name, seconds in times.items():
        report(f"{n} x {d}, K = {k}: step, {name} / (X @ W and X.T @ R)", seconds / plain, "1")


def storages() -> None:
    """Whole default fits from each storage against those from C order."""
    for n, d in ((1_000_000, 20), (100_000, 200)):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (n, d))
        z = X @ rng.standard_normal(d) / np.sqrt(d)
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "X.npy", X)
            tables: dict[str, Any] = {
                "C order": X,
                "Fortran order": np.asfortranarray(X),
                "frame by columns": pd.DataFrame({f"x{j}": X[:, j].copy() for j in range(d)}),
                "memory map": np.load(Path(folder) / "X.npy", mmap_mode="r"),
                "float32": X.astype(np.float32),
                "float32, Fortran order": np.asfortranarray(X, dtype=np.float32),
            }
            for kind in ESTIMATORS:
                is_classifier = issubclass(kind, ClassifierMixin)
                y = (z > 0).astype(int) if is_classifier else np.clip(z, -1, 1)
                model = kind()
                declared = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "classes": [0, 1]}
                names = model.get_params().keys() & declared.keys()
                model.set_params(**{name: declared[name] for name in names})
                functions = {
                    name: lambda m=model, t=table, y=y: m.fit(t, y)
                    for name, table in tables.items()
                }
                times = medians(functions, 3)
                for name, seconds in times.items():
                    label = f"{kind.__name__}, {n} x {d}: {name} / C order"
                    report(label, seconds / times["C order"], "1.5")


def batches() -> None:
    """A minibatch step of mirror descent against the gradient of its records in numpy."""
    n, d = 100_000, 50
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (n, d)), rng.choice([-1.0, 1.0], n)
    for relation, size in product(("replace-one", "zero-out"), (1, 100, 10_000)):
        steps = {1: 5000, 100: 2000}.get(size, 50)
        model = DPMirrorRegressor(
            bounds_X=(-1, 1),
            bounds_y=(-1, 1),
            relation=relation,
            fit_intercept=False,
            solver=NoisyMD(batch_size=size, max_iter=steps),
        )
        plan, data = model.plan(n, d), SolverData(Rows(X, False), y)
        coef = rng.normal(size=d) / d

        def plain(size: int = size, steps: int = steps, coef: Any = coef) -> None:
            for _ in range(steps):
                rows = rng.integers(n, size=size)
                part = X[rows]
                part.T @ np.clip(part @ coef - y[rows], -1, 1) / size

        def ours(plan: Any = plan, data: Any = data) -> None:
            plan.run(data, stream_from_random_state(None))

        times = medians({"plain": plain, "ours": ours}, 5)
        label = f"{relation}, batch {size}: mirror descent / the gradients in numpy"
        report(label, times["ours"] / times["plain"], "< 3 at 1")


def defaults() -> None:
    """Whole default fits against those of scikit-learn without privacy."""
    rng = np.random.default_rng(0)
    for n, d in ((1000, 10), (100_000, 10), (100_000, 50), (300_000, 60), (20_000, 500)):
        X, w = rng.uniform(-1, 1, (n, d)), rng.standard_normal(d) / np.sqrt(d)
        y = np.clip(X @ w / 2 + 0.1 * rng.standard_normal(n), -1, 1)
        labels = (X @ w + 0.3 * rng.standard_normal(n) > 0).astype(int)
        classes = np.digitize(X @ w, np.linspace(-0.5, 0.5, 4))
        models = {
            "regressor": (DPLinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1)), y, Ridge()),
            "classifier": (
                DPLogisticRegression(bounds_X=(-1, 1), classes=[0, 1]),
                labels,
                LogisticRegression(),
            ),
            "five classes": (
                DPLogisticRegression(bounds_X=(-1, 1), classes=range(5)),
                classes,
                LogisticRegression(),
            ),
        }
        for name, (private, target, plain) in models.items():
            times = medians(
                {"ours": lambda m=private, t=target, X=X: m.fit(X, t),
                 "plain": lambda m=plain, t=target, X=X: m.fit(X, t)}, 7, PAUSE,
            )  # fmt: skip
            label = f"default {name}, {n} x {d} / {type(plain).__name__}"
            report(label, times["ours"] / times["plain"], "2.5" if name == "regressor" else "1")


def imports() -> None:
    """Seconds of import beyond scikit-learn's linear models, in fresh processes."""

    def seconds(code: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return float(np.median(times))

    ours = seconds("import sklearn.linear_model, sklearn_dpsco")
    extra = ours - seconds("import sklearn.linear_model")
    report("import beyond sklearn.linear_model, seconds", extra, "< 0.1")
    for kind, convert in (("dense", ""), ("CSR", "X = sparse.csr_matrix(X);")):
        code = (
            "import time, numpy as np; from scipy import sparse; import sklearn_dpsco as s;"
            "X = np.eye(200, 5);" + convert + "y = np.arange(200) / 200;"
            "m = s.DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1));"
            "a = time.perf_counter(); m.fit(X, y); print(time.perf_counter() - a)"
        )
        for _ in range(2):  # the second process finds the compiled kernels
            out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        report(f"first {kind} fit in a second process, seconds", float(out.stdout), "< 1")


def memory() -> None:
    """Peak of new memory during a fit, in copies of X."""
    X = np.random.default_rng(0).uniform(-1, 1, (100_000, 100))
    y = X[:, 0]
    for label, bounds, limit in (("X within (-1, 1)", (-1, 1), "0"), ("scaled X", (-2, 2), "1")):
        model = DPLassoFW(bounds_X=bounds, bounds_y=(-1, 1), units="bounds")
        model.fit(X[:1000], y[:1000])
        tracemalloc.start()
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        report(f"memory of a fit, copies of X ({label})", peak / X.nbytes, f"about {limit}")


PEER = """
import json, sys, time, warnings
import numpy as np
from diffprivlib.models import LogisticRegression
warnings.simplefilter("ignore")
with np.load(sys.argv[1]) as file:
    X, y = file["X"], file["y"]
norm = float(np.sqrt(X.shape[1]))
times, scores = [], []
for _ in range(7):
    start = time.perf_counter()
    model = LogisticRegression(epsilon=1.0, data_norm=norm).fit(X, y)
    times.append(time.perf_counter() - start)
    scores.append(model.score(X, y))
print(json.dumps([float(np.median(times)), float(np.median(scores))]))
"""


def peer_tasks() -> dict[str, tuple[Any, Any]]:
    """100,000 x 50 tables with every feature in [-1, 1]."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (100_000, 50))
    tasks = {"uniform": (X, (X @ rng.normal(size=50) + rng.logistic(size=100_000) > 0) * 1)}
    for informative in (2, 10, 25):
        X, y = make_classification(100_000, 50, n_informative=informative, random_state=0)
        tasks[f"make_classification, {informative} informative"] = (np.clip(X / 8, -1, 1), y)
    return tasks


def against_peer(python: str) -> None:
    """Whole fits of the default classifier and of diffprivlib's logistic regression."""
    for name, (X, y) in peer_tasks().items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "task.npz"
            np.savez(path, X=X, y=y)
            command = [python, "-c", PEER, str(path)]
            out = subprocess.run(command, check=True, capture_output=True)
        peer, peer_score = json.loads(out.stdout)
        model = DPLogisticRegression(epsilon=1.0, bounds_X=(-1, 1), classes=[0, 1])
        ours = medians({"fit": lambda m=model, X=X, y=y: m.fit(X, y)}, 7)["fit"]
        report(f"diffprivlib / ours, {name}", peer / ours, "> 5")
        print(f"    accuracy: diffprivlib {peer_score:.4f}, ours {model.score(X, y):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python")
    parser.add_argument("--rows", type=int, default=200_000)
    parts = {
        "iterations": lambda: iterations(arguments.rows), "steps": steps, "storages": storages,
        "batches": batches, "defaults": defaults, "imports": imports, "memory": memory,
    }  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=(*parts, "peer"), default=(*parts, "peer"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, part in parts.items():
        if name in arguments.only:
            part()
    if arguments.peer_python and "peer" in arguments.only:
        against_peer(arguments.peer_python)


if __name__ == "__main__":
    main()
