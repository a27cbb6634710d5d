"""Excess risk on the instances that prove the lower bounds, against their rates.

    python benchmarks/lower_bounds.py [--seeds 8]

Linear losses on an l_p ball (Bassily, Guzman and Nandi 2021, Section 7): records are sign
vectors z in {-1, 1}^d / d^(1/q), the loss of w is -<w, z>. The columns' means are just
what noise can hide, so that every private method must err by about
(p - 1) sqrt(d) / (n epsilon); mirror descent reaches sqrt(d) / (n epsilon), up to factors
of p and of the logarithm of 1 / delta.

The sum of absolute errors on the l1 ball (Asi, Feldman, Koren and Talwar 2021, Theorem
10): records z in {-1, 1}^d / d, the loss of w is |w - z|_1. Its minimizers lie in the cube
of half width 1 / d, on which it is linear; the rate is sqrt(d) / (n epsilon), over log d
for the lower bound.

For each instance: the median excess empirical risk in units of the rate, and the exponents
of n, d and epsilon fitted to it, which the theorem says are -1, 1/2 and -1. A rate that
exceeds the risk of doing nothing is of no interest; sizes are such that it does not.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sklearn_dpsco import PrivacyBudget
from sklearn_dpsco.data.rows import make_rows
from sklearn_dpsco.geometry import Geometry, L1Ball, LInfBall, LpBall
from sklearn_dpsco.losses import Loss
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.solvers.base import Problem, SolverData
from sklearn_dpsco.solvers.mirror_descent import MirrorDescent

DELTA = 1e-6
SIZES = {"n": (1000, 4000, 16000), "d": (16, 64, 256), "epsilon": (0.5, 2.0, 8.0)}
CENTRE = {"n": 4000, "d": 64, "epsilon": 2.0}


@dataclass(frozen=True)
class Linear(Loss):
    """l(z, y) = -z y."""

    task: ClassVar[str] = "regression"

    @property
    def smoothness(self) -> float:
        return 0.0

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -z * y

    def derivative(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -y

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return y_bound

    def best_constant(self, mean: float) -> float:
        return 0.0


def instance(name: str, d: int) -> tuple[Geometry, float]:
    """The set for rows of signs, and the size of a coordinate of a record."""
    if name == "absolute errors, l1":
        return LInfBall(1 / d), 1.0
    p = float(name.removeprefix("linear, p = "))
    return (L1Ball(1.0), 1.0) if p == 1 else (LpBall(1.0, p), d ** (1 / p - 1))


def rate(n: int, d: int, epsilon: float) -> float:
    """sqrt(d) / (n epsilon), with the constants of Gaussian DP for 1 / epsilon."""
    return math.sqrt(d) / (n * PrivacyBudget(epsilon, DELTA).mu)


def excess(name: str, solver: str, n: int, d: int, epsilon: float, seed: int) -> float:
    """Excess empirical risk of one fit on an instance whose means noise can just hide."""
    rng = np.random.default_rng(seed)
    # exactly as many of either sign as make the mean, which sampling would drown
    bias = min(1.0, rate(n, d, epsilon))
    column = np.where(np.arange(n) < round(n * (1 + bias) / 2), 1.0, -1.0)
    X = rng.permuted(np.tile(column[:, None], (1, d)), axis=0) * rng.choice([-1.0, 1.0], d)
    geometry, size = instance(name, d)
    problem = Problem(n, d, Linear(), geometry, fit_intercept=False)
    settings = MirrorDescent(solver, max_iter=50, gradient_clip=1.0, data_norm=math.sqrt(d))
    plan = settings.plan(problem, PrivacyBudget(epsilon, DELTA))
    data = SolverData(make_rows(X, False), np.ones(n))
    coef = settings.solve(data, plan, stream_from_random_state(seed)).coef
    mean = X.mean(axis=0)
    best = geometry.extreme_point(-mean) @ mean
    return size * float(best - coef @ mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--solvers", nargs="+", default=["noisy-md", "localized"])
    arguments = parser.parse_args()
    names = ("linear, p = 1", "linear, p = 1.5", "linear, p = 2", "absolute errors, l1")
    print(f"{'':32s}exponent of n, d, epsilon   excess / rate at the ends of n, d, epsilon")
    for name in names:
        for solver in arguments.solvers:
            exponents, ratios = [], []
            for varied, values in SIZES.items():
                errors, rates = [], []
                for value in values:
                    where = CENTRE | {varied: value}
                    found = [excess(name, solver, **where, seed=s) for s in range(arguments.seeds)]
                    errors.append(float(np.median(found)))
                    rates.append(rate(**where))
                axis = np.log([1 / PrivacyBudget(v, DELTA).mu for v in values])
                axis = -axis if varied == "epsilon" else np.log(values)
                exponents.append(np.polyfit(axis, np.log(np.maximum(errors, 1e-12)), 1)[0])
                ratios += [f"{errors[k] / rates[k]:.2f}" for k in (0, -1)]
            fitted = "  ".join(f"{e:6.2f}" for e in exponents)
            print(f"{name:20s} {solver:10s} {fitted}     {'  '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
