"""What DPScaler and private_bounds learn of invented columns, beside the truth.

    python benchmarks/scaler.py scales    learned over true spread, and distance of the centre
    python benchmarks/scaler.py bounds    share of the values that are cut off, and the width

A cell of the first table is the geometric mean of the ratios of the spreads, the factor by which
they scatter, and the median distance of the centres in true spreads, over columns and seeds. The
true spread is 1.48 median absolute deviations, or where that is 0 the standard deviation, or where
that is 0, too, the size of the column.
Of the second, the largest share beyond either released quantile, less 1 %, and the mean distance of
the two over that of the true quantiles (of constant columns the distance). "-": nothing is
released. Replace-one neighbours, delta = 1e-6.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np

from sklearn_dpsco import DPScaler, private_bounds

Sampler = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def _normal(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return (rng.standard_normal(size) + np.linspace(-1, 1, size[1])) * np.logspace(-2, 2, size[1])


FAMILIES: dict[str, Sampler] = {
    "normal": _normal,
    "lognormal": lambda rng, size: rng.lognormal(0, 1, size),
    "Student t": lambda rng, size: 5 + 10 * rng.standard_t(2, size),
    "counts": lambda rng, size: rng.poisson(0.3, size) * 1.0,
    "0/1": lambda rng, size: (rng.random(size) < 0.2) * 1.0,
    "constant": lambda rng, size: np.full(size, 7.0),
    "years": lambda rng, size: 2000 + 5 * rng.standard_normal(size),
}
CASES = [(n, epsilon) for n in (200, 2000, 50_000) for epsilon in (0.1, 1.0, 3.0)]


def truth(name: str, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres and spreads of the columns."""
    X = FAMILIES[name](np.random.default_rng(99), (50_000, d))
    center = np.median(X, axis=0)
    spread = 1.4826 * np.median(np.abs(X - center), axis=0)
    spread = np.where(spread > 0, spread, X.std(axis=0))
    return center, np.where(spread > 0, spread, np.abs(center))


def scales(name: str, d: int, n: int, epsilon: float) -> str:
    center, spread = truth(name, d)
    ratios, distances = [], []
    for seed in range(5):
        X = FAMILIES[name](np.random.default_rng(seed), (n, d))
        model = DPScaler(epsilon=epsilon, delta=1e-6, random_state=seed).fit(X)
        if model.plan_.search is None:
            return "-"
        ratios.append(np.log(model.scale_ / spread))
        distances.append(np.abs(model.center_ - center) / spread)
    factor, scatter = np.exp(np.mean(ratios)), np.exp(np.std(ratios))
    return f"{factor:.2g} x{scatter:.2g} {np.median(distances):.2g}"


def bounds(name: str, d: int, n: int, epsilon: float) -> str:
    cut, width = [], []
    for seed in range(5):
        X = FAMILIES[name](np.random.default_rng(seed), (n, d))
        try:
            found = private_bounds(X, epsilon=epsilon, delta=1e-6, random_state=seed)
        except ValueError:  # too few records
            return "-"
        low, high = found.low, found.high
        outside = np.maximum((low > X).mean(axis=0), (high < X).mean(axis=0))
        cut.append(max(0.0, outside.max() - 0.01))
        true = np.diff(np.quantile(X, [0.01, 0.99], axis=0), axis=0)
        width.append(np.mean((high - low) / np.where(true > 0, true, 1.0)))
    return f"{max(cut):.3f} {np.mean(width):.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("scales", "bounds"))
    measure = scales if parser.parse_args().what == "scales" else bounds
    warnings.simplefilter("ignore")  # too few records
    print("d   family     " + "".join(f"n={n} eps={eps:g}".rjust(20) for n, eps in CASES))
    for d in (1, 10, 60):
        for name in FAMILIES:
            cells = [measure(name, d, *case).rjust(20) for case in CASES]
            print(f"{d:<3d} {name:10s} " + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
