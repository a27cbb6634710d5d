"""Excess risk on the instances that prove the lower bounds, against their rates.

    python benchmarks/lower_bounds.py [--seeds 5] [--instances WORD ...] [--solvers NAME ...]

An `Instance` is the family of tables with which a paper proves its lower bound, at one size. What
is measured is the worst excess risk over the members of the family, each the median over seeds:
over the strength of the signal, the number of coefficients, or how rare the far points are. A
single member would show nothing, as on the member of the proof the trivial model errs by no more
than the rate. The members go on to a signal of size 1, where the trivial model errs by the
diameter, so that its exponents are 0.

Printed are the exponents of n, d and the budget that are fitted to it, next to those of the rate
between the same sizes, or of the upper bound with its logarithms where the solver has one that is
worse; then the excess in units of the rate at either end of each axis. The budget is mu of Gaussian
DP at (epsilon, 1e-6), which has the logarithm of 1 / delta in it, with rho = mu^2 / 2; for pure DP
epsilon itself. A star: the solver has an upper bound, to which the tests hold it.

How the sizes were chosen. The rate, times the solver's constant, is well below the error of the
trivial model at a signal of 1. Columns have exactly the means of the law, since a drawn sample
would add 1 / sqrt(n). For linear losses d is about n mu^2 or more, so that the private term,
sqrt(d) / (n mu), is not far below the 1 / sqrt(n) by which a slice differs from the table. The
smooth loss has a range on either side of d = (n mu)^(2/3), where the minimum in its rate changes.
Descents make so many steps that more do not lower the error.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import hadamard

from sklearn_dpsco import PrivacyBudget
from sklearn_dpsco.data.rows import Rows, SolverData
from sklearn_dpsco.geometry import Geometry, L1Ball, L2Ball, LpBall
from sklearn_dpsco.losses import Absolute, Huber, Loss, Squared
from sklearn_dpsco.means import plan_mean
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.solvers import (
    FTRL,
    SCOF,
    Gradient,
    Localized,
    NoisyMD,
    NoisySFW,
    PhasedSGD,
    Proximal,
    Rounds,
    Selection,
    Solver,
    Spider,
    Tree,
)
from sklearn_dpsco.solvers.base import Problem
from sklearn_dpsco.solvers.heavy_tail.oracles import ORACLES

DELTA = 1e-6

# ----------------------------------------------------------------------------- instances


class Table(NamedTuple):
    """One member of a family: the data, and the excess risk of coefficients in scaled units."""

    X: np.ndarray
    y: np.ndarray
    excess: Callable[[np.ndarray], float]


@dataclass(frozen=True)
class Instance:
    """A family of tables at one size."""

    n: int
    d: int
    epsilon: float

    delta: ClassVar[float] = DELTA
    title: ClassVar[str]
    axes: ClassVar[dict[str, tuple[float, ...]]]  # sizes; the middle one of each is the centre
    claimed_by: ClassVar[frozenset[str]]  # solvers with an upper bound, `proved`
    claimed_axes: ClassVar[frozenset[str]] = frozenset({"n", "d", "epsilon"})
    clip: ClassVar[float] = 1.0

    @property
    def budget(self) -> PrivacyBudget:
        return PrivacyBudget(self.epsilon, self.delta)

    @property
    def mu(self) -> float:
        """The size of the budget in the rate."""
        return self.epsilon if self.budget.is_pure else self.budget.mu

    @property
    def rate(self) -> float:
        """Of the theorem, without its constant."""
        raise NotImplementedError

    def proved(self, solver: str) -> float:
        """The upper bound for a solver in `claimed_by`, with its logarithms; else the rate."""
        return self.rate

    @property
    def problem(self) -> Problem:
        raise NotImplementedError

    @property
    def members(self) -> Iterator[float]:
        """Signals from the rate on, and 1."""
        return steps_to_one(self.rate)

    def table(self, member: float, rng: np.random.Generator) -> Table:
        raise NotImplementedError

    @property
    def declared(self) -> dict[str, Any]:
        """What the solvers are told: the clip and the row norm cut off nothing."""
        return {"gradient_clip": self.clip, "data_norm": self.row_norm}

    @property
    def row_norm(self) -> float:
        return math.sqrt(self.d)

    @property
    def n_steps(self) -> int:
        """Of descents on all records."""
        return 200


def steps_to_one(start: float, factor: float = 2.0) -> Iterator[float]:
    """Four steps from `start`, as far as they are below 1 / 2, and 1."""
    yield from (start * factor**j for j in range(4) if start * factor**j < 0.5)
    yield 1.0


def signs_of_mean(bias: float, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of signs whose means are exactly bias, up to the sign and to 1 / n."""
    column = np.where(np.arange(n) < round(n * (1 + bias) / 2), 1.0, -1.0)
    return rng.permuted(np.tile(column[:, None], (1, d)), axis=0) * rng.choice([-1.0, 1.0], d)


@dataclass(frozen=True)
class Linear(Instance):
    """BGN21, Section 7: -<w, z> on the unit l_p ball, z of signs over d^(1/q)."""

    # as Huber's loss at a threshold of 1/2 with targets 1, where predictions are at most 1/2

    p: ClassVar[float]
    axes = {"n": (2048, 4096, 8192), "d": (16, 64, 256), "epsilon": (0.25, 0.5, 1.0)}
    claimed_by = frozenset({"noisy-md", "localized"})
    clip = 0.5

    @property
    def rate(self) -> float:
        return math.sqrt(self.d) / (self.n * self.mu)

    @property
    def n_steps(self) -> int:
        return round(4 / self.rate)  # the path to the boundary is as long as the signal is weak

    def proved(self, solver: str) -> float:
        """BGN21, Theorem 10; AFKT21, Theorems 12 and 13; BGM21, Theorem 5."""
        return self.rate + (0.0 if solver == "noisy-md" else 1 / math.sqrt(self.n))

    @property
    def geometry(self) -> Geometry:
        radius = 0.5 * self.d ** (1 / self.p - 1)
        return L2Ball(radius) if self.p == 2 else LpBall(radius, self.p)

    @property
    def problem(self) -> Problem:
        return Problem(self.n, self.d, Huber(0.5), self.geometry, fit_intercept=False)

    def table(self, member: float, rng: np.random.Generator) -> Table:
        X = signs_of_mean(member, self.n, self.d, rng)
        mean = X.mean(axis=0)
        best = self.geometry.extreme_point(-mean) @ mean
        return Table(X, np.ones(self.n), lambda coef: 2 * float(best - coef @ mean))


class Linear15(Linear):
    title = "BGN21 Sec. 7, linear, p = 1.5"
    p = 1.5


class Linear2(Linear):
    title = "BGN21 Sec. 7, linear, p = 2"
    p = 2.0
    claimed_by = Linear.claimed_by | {"phased"}


class AbsoluteErrors(Instance):
    """AFKT21, Theorem 10: |w - z|_1 on the l1 ball, z in {-1, 1}^d / d.

    Every coordinate is an output of its own, the one column is constant, and units are 1 / d.
    "localized" has a term sqrt(log d / n) besides, which is as large as the rate at these sizes.
    """

    title = "AFKT21 Thm. 10, absolute, l1"
    axes = {"n": (512, 1024, 2048), "d": (16, 32, 64), "epsilon": (0.5, 1.0, 2.0)}
    claimed_by = frozenset({"noisy-md"})

    @property
    def rate(self) -> float:
        return math.sqrt(self.d) / (self.n * self.mu)

    @property
    def n_steps(self) -> int:
        return round(12 / self.rate)

    def proved(self, solver: str) -> float:
        """AFKT21, Theorem 3."""
        return math.sqrt(math.log(self.d)) * self.rate

    @property
    def problem(self) -> Problem:
        return Problem(self.n, 1, Absolute().of_outputs(self.d), L1Ball(float(self.d)), False)

    @property
    def declared(self) -> dict[str, Any]:
        return {"gradient_clip": math.sqrt(self.d), "data_norm": 1.0}

    def table(self, member: float, rng: np.random.Generator) -> Table:
        y = signs_of_mean(member, self.n, self.d, rng)
        share = (1 + y.mean(axis=0)) / 2  # of 1
        best = 2 * np.minimum(share, 1 - share)

        def excess(coef: np.ndarray) -> float:
            w = coef.ravel()
            risk = share * np.abs(w - 1) + (1 - share) * np.abs(w + 1)
            return float(np.mean(risk - best))

        return Table(np.ones((self.n, 1)), y, excess)


class Smooth(Instance):
    """AFKT21, Theorem 11: squared errors on the unit l1 ball, rows of signs.

    The share f of the rows is an orthogonal design, the others are 0, and the targets are
    <a, theta>, theta = +-1 / k in k coordinates: the risk is f |w - theta|^2 / 2.
    """

    clip = 2.0

    @property
    def problem(self) -> Problem:
        return Problem(self.n, self.d, Squared(), L1Ball(1.0), fit_intercept=False)

    def design(self, share: float, k: int, rng: np.random.Generator) -> Table:
        copies = max(1, round(share * self.n / self.d))
        X = np.zeros((self.n, self.d))
        X[: copies * self.d] = np.tile(hadamard(self.d), (copies, 1))
        theta = np.zeros(self.d)
        theta[rng.permutation(self.d)[:k]] = rng.choice([-1.0, 1.0], k) / k
        share = copies * self.d / self.n
        return Table(X, X @ theta, lambda coef: share * float(np.sum((coef - theta) ** 2)) / 2)


class SmoothWide(Smooth):
    title = "AFKT21 Thm. 11, d > (n mu)^(2/3)"
    axes = {"n": (1024, 4096, 16384), "d": (256, 512, 1024), "epsilon": (0.5, 1.0, 2.0)}
    claimed_by = frozenset({"selection", "tree"})

    @property
    def rate(self) -> float:
        return (self.n * self.mu) ** (-2 / 3)

    def proved(self, solver: str) -> float:
        """Talwar, Thakurta and Zhang (2015); for a single pass AFKT21, Theorem 7."""
        if solver in ("rounds", "tree"):
            log = math.log(2 * self.d)
            return math.sqrt(log / self.n) + (log * math.log(self.n) ** 2) ** (2 / 3) * self.rate
        return self.rate * (math.log(2 * self.d) ** (2 / 3) if solver == "selection" else 1.0)

    @property
    def members(self) -> Iterator[float]:
        """Numbers of coefficients up to (n mu)^(2/3), beyond which all of them are negligible."""
        return (2.0**j for j in range(int(math.log2(1 / self.rate)) + 2))

    def table(self, member: float, rng: np.random.Generator) -> Table:
        return self.design(1.0, int(member), rng)


class SingleRecords(Smooth):
    """The same loss, where n is so large that steps of one record learn something."""

    title = "BGN21 Thm. 4, smooth, single records"
    axes = {"n": (2**16, 2**18, 2**20), "d": (4, 8, 16), "epsilon": (4.0, 8.0, 16.0)}
    claimed_by = frozenset({"spider"})
    claimed_axes = frozenset({"n", "epsilon"})  # at these sizes d counts for more than its log

    @property
    def rate(self) -> float:
        return 1 / (math.sqrt(self.n) * self.mu)

    def proved(self, solver: str) -> float:
        log = math.log(2 * self.d)
        return self.rate * log * math.log(self.n / log) if solver == "spider" else self.rate

    @property
    def members(self) -> Iterator[float]:
        return (2.0**j for j in range(int(math.log2(self.d)) + 1))

    def table(self, member: float, rng: np.random.Generator) -> Table:
        return self.design(1.0, int(member), rng)


class SmoothNarrow(Smooth):
    title = "AFKT21 Thm. 11, d < (n mu)^(2/3)"
    axes = {"n": (4096, 16384, 65536), "d": (16, 32, 64), "epsilon": (1.0, 2.0, 4.0)}
    claimed_by = frozenset({"noisy-md"})

    @property
    def rate(self) -> float:
        return math.sqrt(self.d) / (self.n * self.mu)

    def proved(self, solver: str) -> float:
        """AFKT21, Theorem 3."""
        return math.sqrt(math.log(self.d)) * self.rate

    @property
    def members(self) -> Iterator[float]:
        """Shares of rows: the signal f / d of a coordinate meets noise of sqrt(d) / (n mu)."""
        return steps_to_one(self.rate * self.d)

    def table(self, member: float, rng: np.random.Generator) -> Table:
        return self.design(member, self.d, rng)


@dataclass(frozen=True)
class Packing(Instance):
    """KLZ22, Section 6: a record is p^(-1/k) v with probability p, else 0; v in {0, 1}^d."""

    # v has d / 2 ones; the paper's v in {-1, 1}^d of l1 norm d / 2 does not exist

    k: ClassVar[int]
    axes = {"n": (1024, 4096, 16384), "d": (8, 32, 128), "epsilon": (0.5, 1.0, 2.0)}

    @property
    def far_share(self) -> float:
        """The p of the proof."""
        size = self.d if self.budget.is_pure else math.sqrt(2 * self.d)
        return size / (self.n * self.mu)

    @property
    def rate(self) -> float:
        return math.sqrt(self.d) * self.far_share ** (1 - 1 / self.k)

    @property
    def members(self) -> Iterator[float]:
        """Shares of far points, about the p of the proof."""
        return steps_to_one(self.far_share / 4, 4.0)

    def sample(self, member: float, rng: np.random.Generator) -> np.ndarray:
        n_far = max(1, round(self.n * member))
        X = np.zeros((self.n, self.d))
        far = rng.permutation(self.d)[: self.d // 2]
        X[np.ix_(rng.permutation(self.n)[:n_far], far)] = (self.n / n_far) ** (1 / self.k)
        return X


class Means(Packing):
    """KLZ22, Lemma 6.3: the l2 error of a private mean."""

    claimed_by = frozenset({"mean: median-of-means", "mean: coordinate-clipped"})

    def proved(self, solver: str) -> float:
        """Corollary 4.2; the number of buckets is a logarithm."""
        medians = math.log(20 * self.d) ** (1 - 1 / self.k) if "median" in solver else 1.0
        return self.rate * medians

    def table(self, member: float, rng: np.random.Generator) -> Table:
        X = self.sample(member, rng)
        mean = X.mean(axis=0)
        return Table(X, np.zeros(self.n), lambda coef: float(np.linalg.norm(coef - mean)))


class Means2(Means):
    title = "KLZ22 Lemma 6.3, k = 2"
    k = 2


class Means4(Means):
    title = "KLZ22 Lemma 6.3, k = 4"
    k = 4


class PureMeans2(Means2):
    title = "KLZ22 Lemma 6.3, k = 2, pure"
    delta = 0.0
    axes = {"n": (4096, 16384, 65536), "d": (8, 16, 32), "epsilon": (0.5, 1.0, 2.0)}


class PureMeans4(PureMeans2):
    title = "KLZ22 Lemma 6.3, k = 4, pure"
    k = 4


class StronglyConvex(Packing):
    """KLZ22, Theorem 6.1: |w - x|^2 / 2, every coordinate an output of its own."""

    axes = {"n": (4096, 8192, 16384), "d": (8, 16, 32), "epsilon": (1.0, 2.0, 4.0)}
    claimed_by = frozenset({"scof: median-of-means"})

    @property
    def rate(self) -> float:
        return super().rate ** 2

    def proved(self, solver: str) -> float:
        """Theorem 5.6."""
        medians = math.log(20 * self.d) ** (2 - 2 / self.k) if "median" in solver else 1.0
        return self.rate * medians

    @property
    def problem(self) -> Problem:
        ball = L2Ball(2 * math.sqrt(self.d))
        return Problem(self.n, 1, Squared().of_outputs(self.d), ball, fit_intercept=False)

    def table(self, member: float, rng: np.random.Generator) -> Table:
        X = self.sample(member, rng)
        mean = X.mean(axis=0)
        ones = np.ones((self.n, 1))
        return Table(ones, X, lambda coef: float(np.sum((coef.ravel() - mean) ** 2)) / 2)


class StronglyConvex2(StronglyConvex):
    title = "KLZ22 Thm. 6.1, k = 2"
    k = 2


class StronglyConvex4(StronglyConvex):
    title = "KLZ22 Thm. 6.1, k = 4"
    k = 4


class Convex(Packing):
    """KLZ22, Theorem 6.4: -<w, x> on the unit ball."""

    claimed_by = frozenset({"scof: clipped"})

    @property
    def problem(self) -> Problem:
        return Problem(self.n, self.d, Slope(), L2Ball(1.0), fit_intercept=False)

    def table(self, member: float, rng: np.random.Generator) -> Table:
        X = self.sample(member, rng)
        mean = X.mean(axis=0)
        best = float(np.linalg.norm(mean))
        return Table(X, np.ones(self.n), lambda coef: best - float(coef @ mean))


class Convex2(Convex):
    title = "KLZ22 Thm. 6.4, k = 2"
    k = 2


class Convex4(Convex):
    title = "KLZ22 Thm. 6.4, k = 4"
    k = 4


@dataclass(frozen=True)
class Slope(Loss):
    """l(z, y) = -z, for records without a bound."""

    task: ClassVar[str] = "regression"
    is_convex: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return 0.0

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -z

    def derivative(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -np.ones_like(z)

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return math.inf  # 1, with which the plan would not use the moments of the gradients

    def best_constant(self, mean: float) -> float:
        return 0.0


INSTANCES: tuple[type[Instance], ...] = (
    Linear15, Linear2, AbsoluteErrors, SmoothWide, SmoothNarrow, SingleRecords,
    Means2, Means4, PureMeans2, PureMeans4, StronglyConvex2, StronglyConvex4, Convex2, Convex4,
)  # fmt: skip

# ------------------------------------------------------------------------------- solvers

Run = Callable[[Table, int], np.ndarray]


def _descends(make: Callable[[Instance], Any]) -> Callable[[Instance], Run]:
    """Runs of the settings that `make` gives for an instance; `ValueError` if they are refused."""

    def runs(instance: Instance) -> Run:
        settings = make(instance)
        plan = settings.plan(instance.problem, instance.budget)

        def run(table: Table, seed: int) -> np.ndarray:
            data = SolverData(Rows(table.X, False), table.y)
            return plan.run(data, stream_from_random_state(seed)).coef

        return run

    return runs


def _of_bounded(kind: type[Solver], *, with_steps: bool = False) -> Callable[[Instance], Run]:
    """A solver that is told the clip and the row norm, and perhaps the number of steps."""

    def settings_for(instance: Instance) -> Any:
        if isinstance(instance, Packing):
            raise ValueError("needs bounds on the records")
        steps = {"max_iter": instance.n_steps} if with_steps else {}
        told, known = instance.declared | steps, kind().get_params()
        return kind(**{name: value for name, value in told.items() if name in known})

    return _descends(settings_for)


def _phased(instance: Instance) -> PhasedSGD:
    """One pass with the steps of BGM21, Algorithm 4; the defaults' are shorter, for many passes."""
    if not isinstance(instance, Linear):
        raise ValueError("needs an l2 ball")
    n_phases = 3
    share = min(1 / math.sqrt(instance.n), instance.mu / (2 * math.sqrt(instance.d)))
    step = instance.geometry.radius / (instance.clip * instance.row_norm) * share
    last = step / 4 ** (n_phases - 1)
    return PhasedSGD(max_iter=1, n_phases=n_phases, learning_rate=last, **instance.declared)


def _of_moments(oracle: str) -> Callable[[Instance], Run]:
    """Gradient descent on a private mean, in the units of the moment bound."""

    def settings_for(instance: Instance) -> SCOF:
        if not isinstance(instance, StronglyConvex | Convex):
            raise ValueError("needs an instance with moments of gradients")
        # few steps are enough for a strongly convex loss of condition 1; for a linear one the noise
        # of all of them moves the iterate by about the radius
        n_steps, step = 20, 0.5
        if isinstance(instance, Convex):
            n_steps, step = 100, 1 / (200 * instance.rate)
        solver = SCOF(oracle=oracle, moment_order=instance.k, max_iter=n_steps, learning_rate=step)
        names = ("scale_X", "center_X", "scale_y", "center_y")
        return solver.with_facts(**{f"private_{name}": False for name in names})

    return _descends(settings_for)


def _mean(oracle: str) -> Callable[[Instance], Run]:
    """A private mean of the sample, with the default threshold."""

    def runs(instance: Instance) -> Run:
        if not isinstance(instance, Means):
            raise ValueError("needs a sample")
        plan = plan_mean(
            instance.n, instance.d, oracle=oracle, epsilon=instance.epsilon,
            delta=instance.delta, moment_order=instance.k,
        )  # fmt: skip
        return lambda table, seed: plan.release(table.X, random_state=seed)

    return runs


SOLVERS: dict[str, Callable[[Instance], Run]] = {
    "noisy-md": _of_bounded(NoisyMD, with_steps=True),
    "localized": _of_bounded(Localized, with_steps=True),
    **{
        kind.form: _of_bounded(kind)
        for kind in (Proximal, NoisySFW, Selection, Gradient, Rounds, Tree, Spider)
    },
    "phased": _descends(_phased),
    "ftrl": _of_bounded(FTRL),
    **{f"mean: {oracle}": _mean(oracle) for oracle in ORACLES},
    **{f"scof: {oracle}": _of_moments(oracle) for oracle in ORACLES},
}

# --------------------------------------------------------------------------- measurement


def worst_excess(instance: Instance, runs: Callable[[Instance], Run], n_seeds: int) -> float:
    """The worst excess risk over the members of a family, each the median over seeds."""
    run = runs(instance)
    worst = 0.0
    for member in instance.members:
        found = []
        for seed in range(n_seeds):
            table = instance.table(member, np.random.default_rng(seed))
            found.append(table.excess(run(table, seed)))
        worst = max(worst, float(np.median(found)))
    return worst


@dataclass(frozen=True)
class Fit:
    """What was measured along one axis, and the rate there."""

    axis: str
    sizes: tuple[float, ...]  # of n, d or the budget
    excess: tuple[float, ...]
    rate: tuple[float, ...]
    proved: tuple[float, ...]

    @staticmethod
    def _slope(sizes: tuple[float, ...], values: tuple[float, ...]) -> float:
        return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-12)), 1)[0])

    @property
    def exponent(self) -> float:
        return self._slope(self.sizes, self.excess)

    @property
    def expected(self) -> float:
        """Of the rate, or of the upper bound if that is worse."""
        return max(self._slope(self.sizes, values) for values in (self.rate, self.proved))

    @property
    def ratios(self) -> tuple[float, float]:
        """Excess over rate at either end."""
        return self.excess[0] / self.rate[0], self.excess[-1] / self.rate[-1]


def fits(kind: type[Instance], solver: str, n_seeds: int) -> list[Fit]:
    """The exponents of a solver on a family; `ValueError` if it does not apply."""
    centre = {axis: values[len(values) // 2] for axis, values in kind.axes.items()}
    known: dict[Instance, float] = {}
    out = []
    for axis, values in kind.axes.items():
        cases = [kind(**centre | {axis: value}) for value in values]
        for case in cases:
            if case not in known:
                known[case] = worst_excess(case, SOLVERS[solver], n_seeds)
        sizes = tuple(case.mu for case in cases) if axis == "epsilon" else values
        excess = tuple(known[case] for case in cases)
        rate = tuple(case.rate for case in cases)
        proved = tuple(case.proved(solver) for case in cases)
        out.append(Fit(axis, sizes, excess, rate, proved))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--instances", nargs="+", default=[""], help="words of their titles")
    parser.add_argument("--solvers", nargs="+", default=list(SOLVERS), choices=list(SOLVERS))
    arguments = parser.parse_args()
    for kind in INSTANCES:
        if not any(word in kind.title for word in arguments.instances):
            continue
        print(f"\n{kind.title}\n{'':22s}exponent of n, d, budget (of the rate)            ", end="")
        print("excess / rate at the ends of n, d, budget")
        refused = []
        for solver in arguments.solvers:
            try:
                found = fits(kind, solver, arguments.seeds)
            except ValueError:
                refused.append(solver)
                continue
            proved = "*" if solver in kind.claimed_by else " "
            exponents = "  ".join(f"{f.exponent:5.2f} ({f.expected:5.2f})" for f in found)
            ratios = "  ".join(f"{ratio:6.2f}" for f in found for ratio in f.ratios)
            print(f"{proved} {solver:24s}{exponents}   {ratios}", flush=True)
        print("  not for it:", ", ".join(refused) or "none")


if __name__ == "__main__":
    main()
