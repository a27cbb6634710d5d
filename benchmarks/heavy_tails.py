"""Heavy tails: errors of the means, scores on real and synthetic tables, time of an oracle.

    python benchmarks/heavy_tails.py means      error against n, k, epsilon, and exponents
    python benchmarks/heavy_tails.py tables     test R2 or AUC beside badly bounded models
    python benchmarks/heavy_tails.py families   test R2 or AUC where noise hides scales, worst seeds
    python benchmarks/heavy_tails.py speed      time of one oracle call over X.T @ r

The real tables are the RAND health insurance experiment, visits and expenditures of about
20,000 person-years, from the files that `statsmodels` ships (not a dependency of the
package). Replace-one neighbours, delta = 1e-6 unless it says pure.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_dpsco import HeavyTailDPClassifier, HeavyTailDPRegressor
from sklearn_dpsco.data.rows import Rows
from sklearn_dpsco.estimators.lasso import DPLassoFW
from sklearn_dpsco.estimators.mirror import DPMirrorClassifier, DPMirrorRegressor
from sklearn_dpsco.means import plan_mean
from sklearn_dpsco.solvers import SCOF
from sklearn_dpsco.solvers.heavy_tail.oracles import ORACLES, make_oracle

ORACLE_NAMES = tuple(ORACLES)

# ------------------------------------------------------------------------------- means

Sampler = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def contaminated(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    far = rng.uniform(size=shape) < 0.02
    return rng.standard_normal(shape) * np.where(far, 20.0, 1.0)


SAMPLES: dict[str, Sampler] = {
    "t, 3 degrees": lambda rng, shape: rng.standard_t(3, shape),
    "t, 4 degrees": lambda rng, shape: rng.standard_t(4, shape),
    "t, 5 degrees": lambda rng, shape: rng.standard_t(5, shape),
    "Pareto 2.5": lambda rng, shape: rng.pareto(2.5, shape) - 1 / 1.5,
    "log-normal": lambda rng, shape: rng.lognormal(0, 1, shape) - np.exp(0.5),
    "contaminated": contaminated,
}
COLUMNS = 10
SIZES = (500, 1000, 2000, 4000, 8000, 16_000, 32_000)


def error(
    sample: Sampler, n: int, k: int, epsilon: float, repetitions: int, **settings: Any
) -> float:
    """Root mean square error of a coordinate of the mean, the k-th moment being known."""
    rng = np.random.default_rng(n)
    moment = np.mean(np.abs(sample(np.random.default_rng(0), (200_000, 1))) ** k)
    squares = []
    for seed in range(repetitions):
        plan = plan_mean(
            n, COLUMNS, epsilon=epsilon, moment_order=k, moment_bound=moment, precision="float",
            **settings,
        )  # fmt: skip
        squares.append(plan.release(sample(rng, (n, COLUMNS)), random_state=seed) ** 2)
    return float(np.sqrt(np.mean(squares)))


def as_published(n: int, k: int, epsilon: float, moment: float) -> dict[str, Any]:
    """KLZ22: tau = (sqrt(rho) n / sqrt(d))^(1/k) in units of the k-th moment, odd buckets."""
    rho = plan_mean(n, COLUMNS, epsilon=epsilon, oracle="clipped").budget.rho
    tau = (np.sqrt(rho) * n / np.sqrt(COLUMNS)) ** (1 / k) * moment ** (1 / k)
    buckets = int(4 * np.log(2 * COLUMNS / 0.1))
    return {"oracle": "median-of-means", "tau": tau, "n_buckets": min(n, buckets | 1)}


def means(repetitions: int) -> None:
    for epsilon in (0.3, 3.0):
        for name, sample in SAMPLES.items():
            # a t has moments below its degrees only; the empirical k-th is finite anyway
            orders = (2, 3, 4) if name in ("t, 5 degrees", "log-normal", "contaminated") else (2,)
            for k in orders:
                print(f"\n{name}, k = {k}, epsilon = {epsilon:g}: error by n = {SIZES}, exponent")
                moment = np.mean(np.abs(sample(np.random.default_rng(0), (200_000, 1))) ** k)
                rows: dict[str, Callable[[int], dict[str, Any]]] = {
                    oracle: (lambda n, oracle=oracle: {"oracle": oracle})  # type: ignore[misc]
                    for oracle in ORACLE_NAMES
                }
                rows["as published"] = lambda n, k=k, m=moment, e=epsilon: as_published(n, k, e, m)
                rows["bound 100, average"] = lambda n: {
                    "oracle": "coordinate-clipped",
                    "tau": 100 / 3,
                }
                for label, settings in rows.items():
                    errors = [
                        error(sample, n, k, epsilon, repetitions, **settings(n)) for n in SIZES
                    ]
                    slope = np.polyfit(np.log(SIZES), np.log(errors), 1)[0]
                    printed = " ".join(f"{e:8.4f}" for e in errors)
                    print(f"  {label:20s} {printed}   {slope:6.2f}", flush=True)
                print(f"  theorem, private term{'':57s} {-(k - 1) / k:6.2f}")


# ------------------------------------------------------------------------------- tables


def randhie() -> Iterator[tuple[str, np.ndarray, np.ndarray, str]]:
    """Visits from the nine columns of the packaged table; costs from the raw file."""
    import pandas as pd
    import statsmodels
    import statsmodels.api as sm

    data = sm.datasets.randhie.load_pandas().data
    X, y = data.drop(columns="mdvis").to_numpy(float), data["mdvis"].to_numpy(float)
    yield "visits", X, y, "reg"
    raw = pd.read_csv(Path(statsmodels.__file__).parent / "datasets/randhie/src/randhie.csv")
    about = ["coins", "year", "black", "income", "xage", "female", "educdec", "num", "mhi", "disea",
             "physlm", "hlthg", "hlthf", "hlthp"]  # fmt: skip
    person = raw[about].fillna(12.0).to_numpy(float)
    visits = raw[["mdvis", "notmdvis"]].to_numpy(float)
    outpatient = raw["outpdol"].to_numpy(float)
    yield "outpatient cost", np.hstack((person, visits)), outpatient, "reg"
    yield "drug cost", np.column_stack((person, outpatient)), raw["drugdol"].to_numpy(float), "reg"
    yield "any visit", person, np.where(raw["mdvis"] > 0, 1, 0), "clf"


def synthetic() -> Iterator[tuple[str, np.ndarray, np.ndarray, str]]:
    """Heavy-tailed features in units of their own, heavy-tailed noise."""
    rng = np.random.default_rng(0)
    n, d = 20_000, 10
    unit = 10.0 ** rng.integers(-3, 4, d)
    for name, draw in (
        ("t3 + t3 noise", lambda shape: rng.standard_t(3, shape)),
        ("log-normal + t3", lambda shape: rng.lognormal(0, 1, shape)),
    ):
        Z = draw((n, d))
        y = Z @ np.linspace(1, -0.5, d) + 2 * rng.standard_t(3, n)
        yield name, unit * (Z + 5), 1000 * y, "reg"


def models(X: np.ndarray, y: np.ndarray, task: str) -> dict[str, Callable[[float], Any]]:
    """What is compared. The bounds below are taken from the data, which no user may do."""
    low, high = X.min(axis=0), X.max(axis=0) + 1e-9
    half = (high - low) / 2

    def wider(factor: float) -> dict[str, Any]:
        middle = (low + high) / 2
        bounds = {"bounds_X": (middle - factor * half, middle + factor * half)}
        if task == "reg":
            centre, reach = (y.min() + y.max()) / 2, factor * np.ptp(y) / 2
            bounds["bounds_y"] = (centre - reach, centre + reach)
        return bounds

    public = {"scale_X": X.std(axis=0) + 1e-12, "center_X": X.mean(axis=0)}
    if task == "clf":
        labels: dict[str, Any] = {"classes": [0, 1]}
        heavy, mirror = HeavyTailDPClassifier, DPMirrorClassifier
        return {
            "no bounds": lambda e: heavy(epsilon=e, **labels),
            "no bounds, pure": lambda e: heavy(epsilon=e, delta=0, **labels),
            "right scales": lambda e: heavy(epsilon=e, **labels, **public),
            "mirror, min and max": lambda e: mirror(epsilon=e, **labels, **wider(1)),
            "mirror, 30 x wider": lambda e: mirror(epsilon=e, **labels, **wider(30)),
        }
    regressor = HeavyTailDPRegressor
    public |= {"scale_y": y.std(), "center_y": float(np.median(y))}
    rows: dict[str, Callable[[float], Any]] = {
        "no bounds": lambda e: regressor(epsilon=e),
        "no bounds, pure": lambda e: regressor(epsilon=e, delta=0),
        "right scales": lambda e: regressor(epsilon=e, **public),
    }
    for factor in (0.01, 0.1, 10.0, 100.0):
        wrong = public | {"scale_X": factor * public["scale_X"]}
        rows[f"scale_X x {factor:g}"] = lambda e, wrong=wrong: regressor(epsilon=e, **wrong)
    for oracle in ORACLE_NAMES[1:]:
        solver = SCOF(oracle=oracle)
        rows[oracle] = lambda e, solver=solver: regressor(epsilon=e, solver=solver)
    rows["slices"] = lambda e: regressor(epsilon=e, solver="scof-slices")
    rows["mirror, min and max"] = lambda e: DPMirrorRegressor(epsilon=e, **wider(1))
    rows["mirror, 30 x wider"] = lambda e: DPMirrorRegressor(epsilon=e, **wider(30))
    rows["lasso, 30 x wider"] = lambda e: DPLassoFW(epsilon=e, **wider(30))
    return rows


def score(model: Any, X: np.ndarray, y: np.ndarray, task: str) -> float:
    if task == "reg":
        return float(model.score(X, y))
    return float(roc_auc_score(y, model.predict_proba(X)[:, 1]))


def tables(repetitions: int) -> None:
    epsilons = (0.3, 1.0, 3.0)
    print("median test R2, or AUC for classes, at epsilon = 0.3, 1, 3")
    for name, X, y, task in (*randhie(), *synthetic()):
        print(f"\n{name}, {X.shape[0]} x {X.shape[1]}")
        rows = models(X, y, task)
        results: dict[tuple[str, float], list[float]] = {}
        plain = LinearRegression() if task == "reg" else LogisticRegression(max_iter=1000)
        not_private = make_pipeline(StandardScaler(), plain)
        for seed in range(repetitions):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = order[: 3 * len(y) // 4], order[3 * len(y) // 4 :]
            fixed = {"not private": not_private}
            if task == "reg":
                fixed["trivial"] = DummyRegressor()
            for label, model in fixed.items():
                fitted = model.fit(X[train], y[train])
                results.setdefault((label, 0), []).append(score(fitted, X[test], y[test], task))
            for label, make in rows.items():
                for epsilon in epsilons:
                    model = make(epsilon).set_params(random_state=seed)
                    value = score(model.fit(X[train], y[train]), X[test], y[test], task)
                    results.setdefault((label, epsilon), []).append(value)
        for label in rows:
            values = (f"{np.median(results[label, e]):8.3f}" for e in epsilons)
            print(f"  {label:20s} {' '.join(values)}", flush=True)
        for label in fixed:
            print(f"  {label:20s} {np.median(results[label, 0]):8.3f}")


# ------------------------------------------------------------------------------ families


def families(n: int, d: int, seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Small tables on which one scale for all columns is right, or wrong in different ways."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, d))
    dense, sparse = rng.standard_normal(d) / np.sqrt(d), np.zeros(d)
    sparse[:2] = 1.0, -1.0
    noise = 0.5 * rng.standard_normal(n)
    rotated = Z * np.linspace(1, 0.1, d) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    yield "normal", Z, Z @ dense + noise
    yield "rotated", rotated, rotated @ dense / 0.6 + noise
    skewed = rng.lognormal(0, 1, (n, d))
    yield "skewed, sparse", skewed, 100 * (skewed @ sparse) + 300 + 50 * noise
    flags = np.where(rng.uniform(size=(n, d)) < 0.02, 1.0, 0.0)
    flags[:, : d // 2] = Z[:, : d // 2]
    yield "rare flags", flags, flags @ dense * 2 + noise
    stuck = Z.copy()
    stuck[:, ::2] = np.where(rng.uniform(size=(n, d // 2)) < 0.98, 3.7, 50 * Z[:, ::2])
    yield "one value in 98 %", stuck, stuck @ dense / 7 + noise
    units = 10.0 ** np.linspace(-3, 3, d)
    yield "units", units * (Z + 5), Z @ dense + noise
    yield "rare target", Z, np.where(rng.uniform(size=n) < 0.01, 1.0, 0.0)
    yield "constant target", Z, np.full(n, 3.0)


def fading(repetitions: int) -> None:
    """Median score, and the largest prediction over the spread of the targets, over seeds."""
    epsilons = (0.1, 0.3, 1.0, 3.0)
    print("R2 at epsilon = 0.1, 0.3, 1, 3; AUC; largest prediction error over the spread + 1e-3")
    for n, d in ((400, 10), (2000, 30), (8000, 10)):
        cells: dict[str, list[np.ndarray]] = {}
        for seed in range(repetitions):
            settings: dict[str, Any] = {"relation": "zero-out", "random_state": seed}
            for name, X, y in families(2 * n, d, seed):
                labels, values = np.where(y > np.median(y), 1, 0), []
                is_class = 0 < labels.sum() < 2 * n
                for epsilon in epsilons:
                    model = HeavyTailDPRegressor(epsilon=epsilon, **settings).fit(X[:n], y[:n])
                    off = np.abs(model.predict(X[n:]) - np.median(y)).max() / (y.std() + 1e-3)
                    auc = 0.5
                    if is_class:
                        kind = HeavyTailDPClassifier(epsilon=epsilon, classes=[0, 1], **settings)
                        auc = score(kind.fit(X[:n], labels[:n]), X[n:], labels[n:], "clf")
                    values.append((float(model.score(X[n:], y[n:])), auc, float(off)))
                cells.setdefault(name, []).append(np.array(values))
        print(f"\n{n} x {d}")
        for name, found in cells.items():
            table = np.array(found)
            middle = [" ".join(f"{v:7.3f}" for v in np.median(table, 0)[:, k]) for k in (0, 1)]
            worst = " ".join(f"{v:8.3g}" for v in table[:, :, 2].max(axis=0))
            print(f"  {name:16s} {middle[0]}  {middle[1]}  {worst}", flush=True)


# -------------------------------------------------------------------------------- speed


def fastest(run: Callable[[], Any], repetitions: int) -> float:
    run()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def speed(repetitions: int) -> None:
    n, d = 200_000, 200
    rng = np.random.default_rng(0)
    X, r = rng.standard_t(3, (n, d)), rng.standard_normal(n)
    rows = Rows(X, True)
    print(f"one call of an oracle on {n} x {d}, over X.T @ r")
    for name in ORACLE_NAMES:
        oracle = make_oracle(
            name, 1.0, None, n_samples=n, dimension=d + 1, noise=1e-4, order=2, size=10.0,
            moments=(2.0, 1.0),
        )  # fmt: skip
        limits = oracle.limits(rows, 2)
        # taken in turns, since the machine's speed drifts
        ratios = [
            fastest(lambda: oracle.mean(rows, r, limits), 1)  # noqa: B023
            / fastest(lambda: X.T @ r, 1)
            for _ in range(repetitions)
        ]
        buckets = f", {oracle.n_buckets} buckets" if name == "median-of-means" else ""
        once = ""
        if name == "clipped":
            norms = fastest(lambda: oracle.limits(rows, 2), 2)  # noqa: B023
            once = f", row norms once per fit {norms / fastest(lambda: X.T @ r, 2):.2f}"
        print(f"  {name:20s} {np.median(ratios):5.2f}{buckets}{once}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("means", "tables", "families", "speed"))
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = {"means": means, "tables": tables, "families": fading, "speed": speed}
    parts[arguments.what](arguments.repetitions)


if __name__ == "__main__":
    main()
