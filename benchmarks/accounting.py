"""How much noise the plans waste: against a lower bound on what any accountant could allow.

For each plan of a grid of (epsilon, delta, n, d, batch, steps), the factor by which all its noise
could fall before a tight accountant finds the claim broken:

* Gaussian releases: the exact curve of Gaussian DP.
* Selections: the exact curve of the Gaussian noise that they tend to, eta sqrt(k) / 2, which no
  analysis of many of them beats; few of them cost more than that (shown apart, against the
  optimum on a grid eight times finer).
* Random batches: privacy loss distributions on a grid four times finer.
* Pure plans: the sum of epsilons, which is tight.

    python benchmarks/accounting.py
"""

from __future__ import annotations

import itertools
import math
import time
import warnings

from dp_accounting import dp_event as dp

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLRegressor,
    DPLassoFW,
    DPMirrorRegressor,
    DPPhasedSGDRegressor,
    HeavyTailDPClassifier,
    HeavyTailDPRegressor,
    PrivacyBudget,
)
from sklearn_dpsco.privacy import events, selections
from sklearn_dpsco.privacy.guarantee import selections_game
from sklearn_dpsco.solvers import NoisyMD, Selection

warnings.simplefilter("ignore")
BUDGETS = tuple(itertools.product((0.1, 1.0, 8.0), (1e-5, 1e-6, 1e-9)))
SIZES = ((1000, 10), (10**4, 60), (10**5, 500))


def gaussian_waste(guarantee) -> float:
    """Budget's mu over the least mu that the releases can have."""
    largest = PrivacyBudget(guarantee.epsilon, guarantee.delta).mu
    if all(release.mechanism.log_range is None for release in guarantee.releases):
        return largest / guarantee.mu - 1
    gaussian, selected = 0.0, 0.0
    for release in guarantee.releases:
        if release.mechanism.log_range is None:
            gaussian += release.cost("gdp")
        else:
            count = release.count
            selected += count * release.mechanism.log_range**2 / 4
    return largest / math.sqrt(2 * gaussian + selected) - 1


def selection_waste(guarantee) -> float:
    """The same for few selections, by the optimum with finer cells."""
    eta, count, mu = selections_game(guarantee.releases, guarantee.rows_per_user)
    cells, selections._cells = selections._cells, lambda _: 256
    selections._optimum.cache_clear()
    try:
        best = selections.selection_epsilon.__wrapped__(
            guarantee.epsilon, guarantee.delta, count, mu
        )
    finally:
        selections._cells = cells
        selections._optimum.cache_clear()
    return best / eta - 1


def batch_waste(guarantee) -> float:
    """By how much the batches' noise could fall."""
    *first, steps = guarantee.releases
    mechanism = steps.mechanism
    before = (events._RELATIVE, events._POINTS_PER_DEVIATION, events._MOST_POINTS)
    events._RELATIVE, events._POINTS_PER_DEVIATION, events._MOST_POINTS = 1.0, 32, 2**18
    events._known.clear()

    def delta(factor: float) -> float:
        noise = dp.GaussianDpEvent(mechanism.noise_multiplier / factor)
        sampling = mechanism.sampling
        if sampling.law == "fixed":
            event = dp.SampledWithoutReplacementDpEvent(
                sampling.n_samples, sampling.batch_size, noise
            )
        else:
            event = dp.PoissonSampledDpEvent(sampling.batch_size / sampling.n_samples, noise)
        parts = [release.dp_event("pld") for release in first]
        whole = events.composed([*parts, dp.SelfComposedDpEvent(event, steps.count)])
        return events.pld_delta(whole, guarantee.epsilon, guarantee.epsilon)

    low, high = 1.0, 2.0
    try:
        while high - low > 1e-4:
            middle = (low + high) / 2
            low, high = (middle, high) if delta(middle) <= guarantee.delta else (low, middle)
    finally:
        events._RELATIVE, events._POINTS_PER_DEVIATION, events._MOST_POINTS = before
        events._known.clear()
    return low - 1


def large_plans():
    """Seconds of the plans of very large data, and what they are for."""
    n, d = 10**12, 10**8
    for kind in (
        DPMirrorRegressor, DPPhasedSGDRegressor, DPFTRLRegressor, DPLassoFW, HeavyTailDPRegressor,
    ):  # fmt: skip
        yield kind.__name__, kind(), (n, d)
    for relation, records, size in itertools.product(
        ("replace-one", "zero-out"), (10**8, n), (1, 64, 10**6)
    ):
        solver = NoisyMD(batch_size=size)
        model = DPMirrorRegressor(relation=relation, solver=solver, delta=1e-9)
        yield f"batches of {size}, {relation}", model, (records, d)


WASTE = {"gdp": gaussian_waste, "adaptive-range": selection_waste, "pld": batch_waste}


def plans():
    """Name and plan, for every combination."""
    for (epsilon, delta), (n, d) in itertools.product(BUDGETS, SIZES):
        claim = {"epsilon": epsilon, "delta": delta}
        yield "mirror descent", DPMirrorRegressor(**claim), (n, d)
        yield "phased SGD", DPPhasedSGDRegressor(**claim), (n, d)
        yield "FTRL", DPFTRLRegressor(**claim), (n, d)
        yield "Frank-Wolfe, gradients", DPLassoFW(solver="gradient", **claim), (n, d)
        for steps in (5, 50, 128, 400, 5000):
            name = f"Frank-Wolfe, {steps} selections"
            yield name, DPLassoFW(solver=Selection(max_iter=steps), **claim), (n, d)
        yield "heavy tails, regression", HeavyTailDPRegressor(**claim), (n, d)
        yield "heavy tails, classes", HeavyTailDPClassifier(**claim), (n, d)
        for relation, size, steps in (
            ("replace-one", 100, 200),
            ("zero-out", 100, 200),
            ("replace-one", n // 10, 50),
            ("replace-one", n // 2, 20),
            ("zero-out", n // 10, 1000),
        ):
            solver = NoisyMD(batch_size=size, max_iter=steps)
            model = DPMirrorRegressor(relation=relation, solver=solver, **claim)
            yield f"batches, {relation}", model, (n, d)


def main() -> None:
    worst: dict[str, tuple[float, str, tuple]] = {}
    slowest = (0.0, "")
    for name, model, size in plans():
        start = time.perf_counter()
        guarantee = model.plan(*size).guarantee
        slowest = max(slowest, (time.perf_counter() - start, f"{name} {size} {model.epsilon}"))
        if guarantee.composition == "pure":
            continue
        waste = WASTE[guarantee.composition](guarantee)
        case = (waste, guarantee.composition, (model.epsilon, model.delta, *size))
        worst[name] = max(worst.get(name, case), case)
    print(f"{'plan':34s}{'composition':16s}{'waste':>8s}  at (epsilon, delta, n, d)")
    for name, (waste, composition, case) in worst.items():
        print(f"{name:34s}{composition:16s}{100 * waste:7.2f}%  {case}")
    print(f"slowest plan: {slowest[0]:.2f} s, {slowest[1]}")
    print("\nseconds of large plans:")
    for name, model, size in large_plans():
        start = time.perf_counter()
        model.plan(*size)
        print(f"  {name:34s}{size[0]:15d} x {size[1]}: {time.perf_counter() - start:6.2f}")
    print("\nnoise of batches under an accountant over that alone, (epsilon, batch, steps):")
    for epsilon, size, steps in itertools.product((0.1, 1.0, 4.0), (100, 1000), (200,)):
        solver = NoisyMD(batch_size=size, max_iter=steps)
        model = DPMirrorRegressor(epsilon=epsilon, solver=solver, delta=1e-6)
        alone = model.plan(10**4, 10).stages[0].noise.scale
        model.set_params(accountant=BudgetAccountant(epsilon, 1e-6))
        shared = model.plan(10**4, 10).stages[0].noise.scale
        print(f"  {epsilon:g}, {size}, {steps}: {shared / alone:.2f}")


if __name__ == "__main__":
    main()
