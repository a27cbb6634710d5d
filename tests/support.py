"""What several test modules share: a second accountant, streams, small problems."""

import copy
import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
from dask.local import get_sync
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy import sparse
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq
from scipy.stats import binomtest, chi2, norm
from sklearn.metrics import log_loss

from sklearn_dpsco import DPLassoFW, Guarantee, PrivacyBudget, solvers
from sklearn_dpsco.audit import map_mechanisms
from sklearn_dpsco.data.pieces import Pieces
from sklearn_dpsco.data.rows import Rows, SolverData
from sklearn_dpsco.geometry import Geometry, L1Ball, L2Ball
from sklearn_dpsco.losses import Logistic, Squared
from sklearn_dpsco.mechanisms import Gaussian, Laplace, Release, SelectVertex
from sklearn_dpsco.privacy.budget import Allowance
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.solvers.base import Problem

# the default orders of the RDP accountant stop at 512, too coarse for small epsilon
ORDERS = [*(1 + np.geomspace(1e-3, 1, 150, endpoint=False)), *np.geomspace(2, 1e5, 1500)]

LOSSES = {"regression": Squared(), "classification": Logistic()}

# by the names of their algorithms
SOLVERS = {
    kind.form: kind
    for kind in map(vars(solvers).get, solvers.__all__)
    if getattr(kind, "form", "auto") != "auto" and kind is not solvers.UnboundedDescent
}
# what the automatic choice takes where all else drowns in noise
CONSTANT = solvers.FrankWolfe().with_facts(form="constant")


class Recorder(SelectVertex):
    """Keeps the scores that it gets, and selects the best."""

    def release(self, scores, stream):
        self.__dict__["scores"] = scores
        return int(np.argmax(scores))


def gaussian(epsilon, delta=1e-6, relation="replace-one", composition="gdp"):
    """A guarantee that spends the budget on one Gaussian release."""
    budget = PrivacyBudget(epsilon, delta, currency=composition)
    mechanism = Gaussian.calibrate(1.0, budget.gaussian_allowance)
    return Guarantee(epsilon, delta, relation, composition, (Release("x", mechanism),))


def pure(epsilon, kind=Laplace, count=1, delta=0.0):
    """A guarantee that spends the budget on releases which compose purely."""
    mechanism = kind.calibrate(1.0, Allowance("pure", epsilon), count)
    return Guarantee(epsilon, delta, "replace-one", "pure", (Release("x", mechanism, count),))


def recomputed_epsilon(guarantee):
    """Epsilon of the exported event by an accountant that is not ours.

    Exact to 1e-4 for "zcdp" and "gdp" and to 1e-5 for "pure" (the PLD accountant rounds the loss of
    each event up to a grid). For "adaptive-range" from below, to about 1e-3.
    """
    if guarantee.composition == "adaptive-range":
        *gaussians, selections = guarantee.dp_event.events
        mu = np.sqrt(sum(e.count / e.event.noise_multiplier**2 for e in gaussians))
        game = (selections.log_range, selections.count, mu)
        return brentq(
            lambda epsilon: np.log((lattice_delta(epsilon, *game) + 1e-99) / guarantee.delta),
            guarantee.epsilon * 0.9,
            guarantee.epsilon * 1.2,
            rtol=1e-7,
        )
    if guarantee.composition == "zcdp":
        accountant = RdpAccountant(ORDERS)
        return accountant.compose(guarantee.dp_event).get_epsilon(guarantee.delta)
    if guarantee.composition == "gdp":
        accountant = PLDAccountant(value_discretization_interval=guarantee.epsilon * 1e-3)
        return accountant.compose(in_one(guarantee.dp_event)).get_epsilon(guarantee.delta)
    events = guarantee.dp_event.events
    grid = guarantee.epsilon * 1e-5 / (len(events) + 2)
    # binary response is not defined under add-or-remove
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=grid)
    return accountant.compose(guarantee.dp_event).get_epsilon(0.0)


def in_one(event):
    """Gaussian releases as one: of a sum of their squared ratios of sensitivity to noise.

    The accountant composes them one by one on its grid, which takes most of its time and gives the
    same epsilon, as test_budget_and_guarantee.py states.
    """
    single = [getattr(one, "event", one) for one in event.events]
    assert all(type(one) is GaussianDpEvent for one in single), event
    counts = [getattr(one, "count", 1) for one in event.events]
    ratios = [count / one.noise_multiplier**2 for one, count in zip(single, counts, strict=True)]
    return GaussianDpEvent(1 / math.sqrt(sum(ratios)))


def batch_game(epsilon, multiplier, probability, count, mu, law, *, roundup, width):
    """Delta of releases on random batches after a Gaussian one, by rounding every loss to a grid.

    Rounded up it is above the truth, rounded down below. The mass of each cell of the noise's
    value is exact. "fixed": the symmetric curve of doc/privacy, section 2.6.
    """
    edges = np.linspace(-8, 8 + 1 / multiplier, 200_001)
    loss = np.logaddexp(
        np.log1p(-probability), np.log(probability) + edges / multiplier - 0.5 / multiplier**2
    )
    without = np.diff(norm.cdf(edges))
    mixture = (1 - probability) * without + probability * np.diff(norm.cdf(edges - 1 / multiplier))
    middle = edges.searchsorted(0.5 / multiplier)
    above = np.arange(edges.size - 1) >= middle
    up, down = loss[1:], loss[:-1]
    if law == "fixed":  # the masses at l > 0 and -l, and the rest at 0
        parts = [
            (up[above], down[above], mixture[above]),
            (-down[above], -up[above], without[above]),
        ]
        rest = 1 - sum(p[2].sum() for p in parts)
        pairs = [[*parts, (np.zeros(1), np.zeros(1), np.array([rest]))]]
    else:  # the record in the first table or in the second
        pairs = [[(up, down, mixture)], [(-down, -up, without)]]
    largest = int(np.ceil(max(abs(loss[0]), abs(loss[-1])) / width)) + 1
    deltas = []
    for parts in pairs:
        law_of_loss = np.zeros(2 * largest + 1)
        for high, low, mass in parts:
            place = np.ceil(high / width) if roundup else np.floor(low / width)
            place = place.astype(int) + largest
            law_of_loss += np.bincount(place, mass, minlength=law_of_loss.size)
        size = next_fast_len(2 * largest * count + 1)
        whole = irfft(rfft(law_of_loss, size) ** count, size)
        total = (np.arange(size) - largest * count) * width
        near = np.abs(total) < 30
        deltas.append(whole[near] @ _after_gaussian(epsilon - total[near], mu))
    return max(deltas)


def _after_gaussian(epsilon, mu):
    if mu == 0:
        return np.maximum(0, -np.expm1(epsilon))
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def p_value(counts, law):
    """Of a chi-square test of how often each outcome was drawn, given their probabilities.

    Outcomes of fewer than 20 expected draws are taken together, in their order. Deep in the tail
    the test is too eager: below 1e-12 it is wrong less than once in 1e8.
    """
    if np.any(counts[law == 0]):
        return 0.0
    expected, cells = counts.sum() * law, [[0, 0.0]]
    for k in np.argsort(-expected, kind="stable"):
        if cells[-1][1] >= 20:
            cells.append([0, 0.0])
        cells[-1][0] += counts[k]
        cells[-1][1] += expected[k]
    found, due = np.array(cells).T
    if due.size <= 2:
        return binomtest(int(found[0]), int(found.sum()), min(1.0, due[0] / found.sum())).pvalue
    if due[-1] < 20:
        found, due = (np.append(x[:-2], x[-2:].sum()) for x in (found, due))
    return chi2.sf(((found - due) ** 2 / due).sum(), due.size - 1)


def rest_is_slow(names, cases, always, ids=str):
    """`pytest.mark.parametrize`, whose cases are marked slow but for those with an id in `always`.

    For grids whose cells run the same code. See CONTRIBUTING.md for what belongs in `always`.
    The ids of several values are by default joined by dashes.
    """
    always, marked = {*always}, {}
    for case in cases:
        values = case if isinstance(names, tuple) else (case,)
        key = ids(case) if ids is not str else "-".join(map(str, values))
        assert key not in marked, f"two cases are {key}"
        marked[key] = pytest.param(*values, marks=() if key in always else pytest.mark.slow)
    unknown = always - marked.keys()
    assert not unknown, f"no such cases: {unknown}"
    return pytest.mark.parametrize(names, list(marked.values()), ids=list(marked))


# for grids within a test whose cells run the same code: all of them are slow
half_is_enough = rest_is_slow("cells", ("half", "all"), ("half",))


def cells_of(cells, *factors):
    """All cells of a grid, or a half as on a chessboard, which has all values of each factor."""
    grid = itertools.product(*(enumerate(factor) for factor in factors))
    return [
        tuple(value for _, value in cell)
        for cell in grid
        if cells == "all" or sum(place for place, _ in cell) % 2 == 0
    ]


def joined(shown):
    """What is printed, as one line."""
    return " ".join(str(shown).split())


def assert_refuses(call, match, *arguments, **settings):
    """The call is a `ValueError` that says `match`; for loops over bad values."""
    said = None
    try:
        call(*arguments, **settings)
    except ValueError as error:
        said = str(error)
    case = f"{call.__qualname__} {arguments!r} {settings!r}"
    if said is None:
        pytest.fail(f"accepted: {case}")
    assert re.search(match, said), f"{case}: {said}"


def stream(seed=0):
    return stream_from_random_state(seed)


def problem(
    n, d, *, task="regression", radius=2.0, fit_intercept=True, n_outputs=1, loss=None,
    feasible_set=L1Ball,
):  # fmt: skip
    loss = (loss or LOSSES[task]).of_outputs(n_outputs)
    return Problem(n, d, loss, feasible_set(radius), fit_intercept)


def l2_problem(n, d, **facts):
    return problem(n, d, **{"feasible_set": L2Ball} | facts)


def free_problem(
    n, d, task="regression", n_outputs=1, fit_intercept=True, *, feasible_set=Geometry, **others
):
    """With a set whose size, if it has one, is left to the plan."""
    loss = LOSSES[task].of_outputs(n_outputs)
    return Problem(n, d, loss, feasible_set, fit_intercept, **others)


def regressor(**parameters):
    """One of few steps, for charges."""
    few = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "epsilon": 0.1}
    return DPLassoFW(**few | {"solver": solvers.Gradient(max_iter=5)} | parameters)


def solver_of(form, **settings):
    """The solver of this name with those of the settings that it has, but for None."""
    if form == "constant":
        return CONSTANT
    own = SOLVERS[form]().get_params()
    return SOLVERS[form](**{k: v for k, v in settings.items() if k in own and v is not None})


def running(plan, run):
    """The plan, of which ``run(plan, data, stream)`` is called; its own is ``type(plan).run``."""
    changed, own = copy.copy(plan), type(plan)
    object.__setattr__(changed, "__class__", type(own.__name__, (own,), {"run": run}))
    return changed


def quiet(plan, factor=1e-9):
    """The plan with hardly any noise: so many times its own, as floats."""
    return map_mechanisms(
        plan, lambda _, m: dataclasses.replace(m, scale=m.scale * factor, precision="float")
    )


def above_frequencies(model, n, threshold):
    """Log losses of nine tables of n rows of two columns, less those of the frequencies.

    The first column tells of a label that is True above a threshold.
    """
    losses = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 2)).clip(-4, 4)
        y = rng.logistic(size=n) + X[:, 0] > threshold
        of_model = model.set_params(random_state=seed).fit(X, y).predict_proba(X)
        losses.append(log_loss(y, of_model) - log_loss(y, np.full(n, y.mean())))
    return losses


def without_noise(plan, **changes):
    """The plan with next to no noise, which leaves the method itself, and with other fields."""
    plan = map_mechanisms(plan, lambda _, m: dataclasses.replace(m, scale=1e-13, precision="float"))
    return dataclasses.replace(plan, **changes)


def solver_data(X, y, *, fit_intercept=True, scale=None):
    return SolverData(Rows(X, fit_intercept, scale), np.asarray(y, dtype=np.float64))


def in_pieces(data, cuts):
    """The same records in pieces from each cut to the next, as solvers get those of Dask."""
    parts = [data.part(slice(a, b)) for a, b in itertools.pairwise(cuts)]
    graph = {f"part {i}": part for i, part in enumerate(parts)}
    inputs = tuple((key,) for key in graph)
    groups = tuple((i,) for i in range(len(parts)))
    tasks = graph, groups, inputs, [_itself] * len(parts), True, get_sync
    return Pieces(*tasks, tuple(part.n_samples for part in parts), data.part(slice(0, 0)))


def _itself(piece):
    return piece


def scaled_table(n, d, *, task="regression", seed=0, density=1.0):
    """X in [-1, 1] and y in [-1, 1] or {-1, 1} with a linear signal."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < density)
    signal = X @ np.linspace(1, -0.5, d) + 0.3 + 0.1 * rng.standard_normal(n)
    y = np.clip(signal, -1, 1) if task == "regression" else np.where(signal > 0, 1.0, -1.0)
    return X, y


def storage(X, kind):
    """The same numbers as "dense", "fortran", "csr" or "csc"."""
    kinds = {
        "dense": np.ascontiguousarray,
        "fortran": np.asfortranarray,
        "csr": sparse.csr_array,
        "csc": sparse.csc_array,
    }
    return kinds[kind](X)


def lattice_delta(epsilon, eta, count, mu=0.0, *, points=32):
    """Delta that an adversary reaches who picks each t among `points` + 1 values.

    The privacy loss then lives on a lattice, so the game's value comes by plain backward
    induction, with every choice tried: a lower bound on the optimum, to second order in
    1 / points. A Gaussian release comes first (mu > 0), by the trapezoidal rule.
    """
    h = eta / points
    reach = 0 if mu == 0 else int((8 + 2 * mu) * mu / h) + 1
    edge = count * points + reach
    value = np.maximum(0.0, -np.expm1(epsilon + h * np.arange(-edge, edge + 1)))
    for _ in range(count):
        size = value.size - 2 * points
        best = np.zeros(size)
        for i in range(points + 1):
            up = np.expm1(i * h - eta) / np.expm1(-eta)
            after_up, after_down = points - i, 2 * points - i
            choice = up * value[after_up : after_up + size]
            choice += (1 - up) * value[after_down : after_down + size]
            np.maximum(best, choice, out=best)
        value = best
    if mu == 0:
        return float(value[0])
    loss = -h * np.arange(-reach, reach + 1)
    weight = np.exp(-(((loss - mu**2 / 2) / mu) ** 2) / 2)
    return float(value @ weight / weight.sum())
