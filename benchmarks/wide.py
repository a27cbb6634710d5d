"""Full-batch Frank-Wolfe by selection on wide sparse tables: time and memory against peers.

    python benchmarks/wide.py                            both tables, all steps and budgets
    python benchmarks/wide.py --shape news20 --steps 1000 --epsilon 1
    python benchmarks/wide.py --shape rcv1 --part growth

The tables are synthetic, with the sizes of RCV1 and of News20: binary words, whose frequencies
follow a power law, and labels of a planted sparse linear model with noise. Rows are all ones and
zeros ("counts"), or divided by their norms ("norms"), as the public versions of the tables are.

Peers: the plain path of this package, which makes a pass over X at each step; the same method in a
few lines of scipy and numpy; and without privacy, scikit-learn's `Lasso` and `LogisticRegression`
with an l1 penalty. The slow ones are timed on `--slow-steps` steps and scaled up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy import sparse

SHAPES = {"rcv1": (20_242, 47_236, 74), "news20": (19_996, 1_355_191, 455)}
SPARSE_WALK = "sklearn_dpsco.solvers.sparse_walk._LEAST_FEATURES"


def table(n: int, d: int, per_row: int, *, norms: bool = False, seed: int = 0) -> Any:
    """CSR X with about `per_row` words in a row, and labels -1 and 1.

    Word j is in a row with a probability proportional to 1 / (j + 10), up to .9; the numbers of the
    columns are then shuffled. The labels are the signs of a sum over 50 of the 2000 most frequent
    words, with noise.
    """
    rng = np.random.default_rng(seed)
    weight = 1 / (np.arange(d) + 10.0)
    low, high = 0.0, 1e9  # of the factor, by bisection
    for _ in range(100):
        middle = (low + high) / 2
        is_large = np.minimum(middle * weight, 0.9).sum() > per_row
        low, high = (low, middle) if is_large else (middle, high)
    frequency = np.minimum(high * weight, 0.9)
    counts = rng.binomial(n, frequency)
    place = rng.permutation(d).astype(np.int32)
    columns = np.repeat(place, counts)
    rows = np.empty(columns.size, dtype=np.int32)
    start = 0
    for count in counts[counts > 0]:
        # without repetition where a word is in many rows, else repetitions are dropped below
        few = count < n // 50
        rows[start : start + count] = (
            rng.integers(n, size=count) if few else rng.permutation(n)[:count]
        )
        start += count
    X = sparse.csr_array((np.ones(columns.size), (rows, columns)), shape=(n, d))
    X.sum_duplicates()
    X.data[:] = 1.0
    coef = np.zeros(d)
    chosen = place[rng.choice(min(d, 2000), 50, replace=False)]
    coef[chosen] = rng.choice([-1.0, 1.0], 50)
    signal = X @ coef
    signal += 0.5 * signal.std() * rng.standard_normal(n)
    y = np.where(signal > np.median(signal), 1, -1)
    if norms:
        length = np.sqrt(np.maximum(1, np.diff(X.indptr)))
        X.data /= np.repeat(length, np.diff(X.indptr))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, y


def timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def model(epsilon: float, n_steps: int, **settings: Any) -> Any:
    from sklearn_dpsco import DPLassoFWClassifier
    from sklearn_dpsco.solvers import Selection

    return DPLassoFWClassifier(
        epsilon=epsilon, delta=1e-6, classes=[-1, 1], bounds_X=(-1, 1),
        solver=Selection(max_iter=n_steps), random_state=0, **settings,
    )  # fmt: skip


def plain(X: Any, y: Any, epsilon: float, n_steps: int) -> float:
    """Seconds of a fit by the plain path."""
    with mock.patch(SPARSE_WALK, 2**62):
        return timed(lambda: model(epsilon, n_steps).fit(X, y))


def by_scipy(X: Any, y: Any, plan: Any, n_steps: int) -> float:
    """Seconds of the same steps in scipy and numpy, with float noise."""
    n, d = X.shape
    rng, radius, scale = np.random.default_rng(0), plan.geometry.radius, plan.step.scale
    w = np.zeros(d)

    def run() -> None:
        nonlocal w
        for t in range(n_steps):
            r = np.clip(-y / (1 + np.exp(y * (X @ w))), -plan.gradient_clip, plan.gradient_clip)
            g = X.T @ r / n
            scores = radius * np.concatenate((-g, g)) + rng.gumbel(scale=scale, size=2 * d)
            best = int(np.argmax(scores))
            eta = 2 / (t + 12)
            w *= 1 - eta
            w[best % d] += eta * radius * (1 if best < d else -1)

    return timed(run)


def scaled(seconds: Callable[[int], float], n_steps: int, short: int) -> float:
    """Of `n_steps` steps, from runs of one and of `short`."""
    one, some = seconds(1), seconds(short)
    return one + (some - one) / (short - 1) * (n_steps - 1)


def product(X: Any, repeats: int = 7) -> float:
    """Median seconds of ``X.T @ r``."""
    r = np.random.default_rng(0).standard_normal(X.shape[0])
    return float(np.median([timed(lambda: X.T @ r) for _ in range(repeats)]))


def csr_bytes(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


def resident(field: str) -> int:
    """Bytes of memory of this process: "VmRSS" now, "VmHWM" at most so far."""
    # not `ru_maxrss`, which a process inherits from the one that started it
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status does not tell {field}")


def warm_up() -> None:
    """Compile, or read from the cache."""
    X, y = table(3000, 5000, 20)
    model(1.0, 200).fit(X, y)
    plain(X, y, 1.0, 20)


def compare(arguments: argparse.Namespace, epsilon: float, n_steps: int) -> None:
    X, y = table(*SHAPES[arguments.shape], norms=arguments.norms)
    warm_up()
    base = product(X)
    plan = model(epsilon, n_steps).plan(*X.shape)
    ours = model(epsilon, n_steps)
    total = timed(lambda: ours.fit(X, y))
    short = min(n_steps, arguments.slow_steps)
    of_plain = scaled(lambda steps: plain(X, y, epsilon, steps), n_steps, short)
    of_scipy = scaled(lambda steps: by_scipy(X, y, plan, steps), n_steps, short)
    accuracy = float(np.mean(ours.predict(X) == y))
    print(
        f"{arguments.shape} T={n_steps} epsilon={epsilon}: X.T @ r {1e3 * base:.2f} ms; "
        f"total {total:.2f} s, a step {1e3 * total / n_steps:.3f} ms = "
        f"{total / n_steps / base:.3f} products; plain {of_plain:.1f} s "
        f"({of_plain / total:.0f} x); scipy {of_scipy:.1f} s ({of_scipy / total:.0f} x); "
        f"training accuracy {accuracy:.3f}",
        flush=True,
    )


def memory(arguments: argparse.Namespace, epsilon: float, n_steps: int) -> None:
    """Peak of a fit in a process of its own, with X, over the size of X."""
    command = [sys.executable, __file__, "--part", "peak", "--shape", arguments.shape]
    command += ["--steps", str(n_steps), "--epsilon", str(epsilon)]
    command += ["--norms"] * arguments.norms
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(out.splitlines()[-1])
    print(
        f"{arguments.shape} T={n_steps} epsilon={epsilon}: peak {found['ratio']:.2f} x CSR",
        flush=True,
    )


def peak(arguments: argparse.Namespace, epsilon: float, n_steps: int) -> None:
    """What `memory` runs: X comes from a file, so that making it does not count."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "X.npz"
        make = (
            "import sys, numpy as np; from scipy import sparse; import wide;"
            f"X, y = wide.table(*wide.SHAPES[{arguments.shape!r}], norms={arguments.norms});"
            "sparse.save_npz(sys.argv[1], X, compressed=False); np.save(sys.argv[1] + '.y.npy', y)"
        )
        here = Path(__file__).parent
        subprocess.run([sys.executable, "-c", make, str(file)], check=True, cwd=here)
        warm_up()
        before = resident("VmRSS")
        parts = np.load(file)
        X = sparse.csr_array(
            (parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"])
        )
        y = np.load(f"{file}.y.npy")
        model(epsilon, n_steps).fit(X, y)
        after = resident("VmHWM")
    print(json.dumps({"ratio": (after - before) / csr_bytes(X)}))


def growth(arguments: argparse.Namespace, epsilon: float, n_steps: int) -> None:
    """Exponents of the time of a fit in d, at fixed nnz, and in nnz, at fixed d."""
    n, d, per_row = SHAPES[arguments.shape]
    warm_up()
    for name, shapes in {
        "d": [(n, d * k // 8, per_row) for k in (1, 2, 4, 8)],
        "nnz": [(n, d, max(2, per_row * k // 8)) for k in (1, 2, 4, 8)],
    }.items():
        sizes, seconds = [], []
        for shape in shapes:
            X, y = table(*shape, norms=arguments.norms)
            sizes.append(X.shape[1] if name == "d" else X.nnz)
            runs = [timed(lambda X=X, y=y: model(epsilon, n_steps).fit(X, y)) for _ in range(3)]
            seconds.append(min(runs))
        exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        shown = ", ".join(
            f"{size}: {second:.2f} s" for size, second in zip(sizes, seconds, strict=True)
        )
        print(
            f"{arguments.shape} T={n_steps}: exponent in {name} {exponent:.2f} ({shown})",
            flush=True,
        )


def not_private(arguments: argparse.Namespace, epsilon: float, n_steps: int) -> None:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso, LogisticRegression

    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = table(*SHAPES[arguments.shape], norms=arguments.norms)
    for estimator in (
        Lasso(alpha=1e-3, max_iter=100),
        LogisticRegression(solver="saga", l1_ratio=1.0, C=1.0, max_iter=20),
    ):
        print(
            f"{arguments.shape} {estimator}: {timed(lambda e=estimator: e.fit(X, y)):.1f} s",
            flush=True,
        )


PARTS = {
    "compare": compare, "memory": memory, "peak": peak, "growth": growth, "peers": not_private,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--steps", type=int, action="append")
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--norms", action="store_true")
    parser.add_argument("--slow-steps", type=int, default=40)
    arguments = parser.parse_args()
    for shape in arguments.shape or SHAPES:
        arguments.shape = shape
        for part in arguments.part or ["compare", "memory", "growth", "peers"]:
            alone = part in ("growth", "peers")  # once is enough
            for n_steps in (arguments.steps or [100, 1000, 4000])[: 1 if alone else None]:
                for epsilon in (arguments.epsilon or [0.1, 1.0])[: 1 if alone else None]:
                    PARTS[part](arguments, epsilon, n_steps)


if __name__ == "__main__":
    main()
