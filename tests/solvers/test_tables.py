"""A user's loss in phased SGD: tables that keep steps non-expansive, whatever the loss returns."""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from support import (
    assert_refuses,
    l2_problem,
    quiet,
    rest_is_slow,
    scaled_table,
    solver_data,
    storage,
    stream,
)

from sklearn_dpsco import DPPhasedSGDClassifier, DPPhasedSGDRegressor
from sklearn_dpsco._kernels import derivatives
from sklearn_dpsco._kernels import sgd_steps as kernels
from sklearn_dpsco._kernels.arguments import Tables
from sklearn_dpsco.audit import check_sensitivity, neighbours, replay
from sklearn_dpsco.geometry import L2Ball, Unconstrained
from sklearn_dpsco.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Joint,
    Logistic,
    Loss,
    Multinomial,
    Quantile,
    Squared,
)
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers.learned_units import LearnedUnits
from sklearn_dpsco.solvers.phased_sgd import _CHUNK_TABLES, GRID, PhasedSGD, is_tabulated, tables


class Own(Loss):
    """A user's loss with any derivative, and any word about it."""

    def __init__(self, rule, task="regression", *, smoothness=math.inf, bound=1.0, constant=None):
        facts = {"rule": rule, "task": task, "bound": bound, "constant": constant, "calls": []}
        self.__dict__.update(facts, own_smoothness=smoothness)

    is_convex: ClassVar[bool] = True

    @property
    def smoothness(self):
        return self.own_smoothness

    def derivative(self, z, y):
        self.calls.append((z.copy(), y.copy()))
        return self.rule(z, y)

    def derivative_bound(self, prediction_bound, y_bound=1.0):
        return self.bound(prediction_bound) if callable(self.bound) else self.bound

    def best_constant(self, mean):
        return self.constant(mean) if self.constant else mean


def log_odds(mean):
    mean = min(0.98, max(-0.98, mean))
    return math.log1p(mean) - math.log1p(-mean)


# written as a user would, with the package's own loss
COPIES = {
    "absolute": (Own(lambda z, y: np.where(z > y, 1.0, -1.0)), Absolute()),
    "sign": (Own(lambda z, y: np.sign(z - y)), Absolute()),
    "quantile": (Own(lambda z, y: np.where(z > y, 0.2, -0.8), bound=0.8), Quantile(0.8)),
    "insensitive": (
        Own(lambda z, y: np.where(abs(z - y) > 0.2, np.sign(z - y), 0)), EpsilonInsensitive(0.2)
    ),
    "squared": (Own(lambda z, y: z - y, smoothness=1.0, bound=lambda z: z + 1), Squared()),
    "hinge": (
        Own(lambda z, y: np.where(y * z < 1, -y, 0), "classification", constant=np.sign), Hinge()
    ),
    "logistic": (
        Own(
            lambda z, y: -y / (1 + np.exp(y * z)), "classification", smoothness=0.25,
            bound=lambda z: 1 / (1 + math.exp(-z)), constant=log_odds,
        ),
        Logistic(),
    ),
}  # fmt: skip
every_copy = pytest.mark.parametrize("name", COPIES)

HOSTILE = {
    "decreasing": lambda z, y: y - z,
    "backwards": lambda z, y: -np.sign(z - y),
    "oscillating": lambda z, y: np.sin(1e4 * z) * 1e9,
    "not a number": lambda z, y: np.where(z > y, np.nan, np.inf),
    "huge": lambda z, y: (z - y) * 1e300,
    "bits": lambda z, y: (z.view(np.int64) % 7 - 3) * 0.2,
}


# ------------------------------------------------------------------------------ accuracy


@rest_is_slow("name", COPIES, ("quantile", "insensitive", "squared", "logistic"))
def test_a_copy_gives_the_model_of_the_packages_loss(name):
    own, known = COPIES[name]
    for kind, k in (("dense", 1), ("csr", 3)):
        X, y = scaled_table(1500, 4, task=known.task, density=0.6)
        if k == 3:
            y = np.stack((y, -y, np.roll(y, 1)), axis=1)
        data = solver_data(storage(X, kind), y)
        for settings in ({"max_iter": 1}, {"max_iter": 2, "learning_rate": 0.05}):
            results = []
            for loss in (own, known):
                whole = loss if k == 1 else Joint(loss, k)
                fact, solver = l2_problem(1500, 4, loss=whole), PhasedSGD(**settings)
                plan = solver.plan(fact, PrivacyBudget(1.0))
                results.append(quiet(plan, 1e-14).run(data, stream(3)))
            (found, wanted), case = results, (kind, k, settings)
            # the kinks of the insensitive loss lie between points of the grid
            close = 2e-2 if name == "insensitive" else 5e-3
            away = np.linalg.norm(found.coef - wanted.coef) / np.linalg.norm(wanted.coef)
            assert away < close, case
            np.testing.assert_allclose(found.intercept, wanted.intercept, atol=close)


@pytest.mark.slow
def test_estimators_take_a_users_loss():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 3))
    y = 0.3 * X[:, 0] + rng.uniform(-0.5, 0.5, 20_000)
    model = DPPhasedSGDRegressor(
        loss=COPIES["quantile"][0], bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0
    )
    assert np.mean(y < model.fit(X, y).predict(X)) == pytest.approx(0.8, abs=0.03)
    assert model.fit(X, np.stack((y, -y), axis=1)).coef_.shape == (2, 3)
    assert np.mean(-y < model.predict(X)[:, 1]) == pytest.approx(0.8, abs=0.05)
    label = np.array(["a", "b", "c"])[X.argmax(axis=1)]
    for classes in (["a", "b"], ["a", "b", "c"]):
        chosen = np.isin(label, classes)
        model = DPPhasedSGDClassifier(
            loss=COPIES["hinge"][0], bounds_X=(-1, 1), classes=classes, random_state=0
        )
        assert isinstance(model.plan(20_000, 3).first, LearnedUnits)
        model.fit(X[chosen], label[chosen])
        assert model.score(X[chosen], label[chosen]) > 0.8


# -------------------------------------------------------------------------------- tables


def value_at(table, z, target=0):
    slope = Tables(*table, math.inf, 0.0)
    return np.array([derivatives.derivative(slope, v, target) for v in z])


@every_copy
def test_a_table_is_the_envelope_within_the_resolution_of_the_grid(name):
    own, known = COPIES[name]
    z = np.linspace(-4, 4, 801)
    spacing = np.maximum(0.0021, 0.13 * (np.abs(z) + 1))  # at these distances from a target
    for beta, target in itertools.product((0.7, 5.0, 100.0), (-1.0, 1.0)):
        y = np.full_like(z, target)
        found = value_at(tables(own, np.array([target]), 50.0, beta), z)
        if name in ("squared", "logistic") and beta > 1:  # as smooth as that: as it is
            np.testing.assert_allclose(found, own.derivative(z, y), atol=2e-3)
        elif math.isinf(own.smoothness):
            # the one that is found by bisection, and the one in closed form
            for loss in (own, known):
                below, above = (
                    loss.envelope_derivative(z + side * spacing, y, beta) for side in (-1, 1)
                )
                case = (loss, beta, target)
                assert np.all(below - 1e-9 <= found), case
                assert np.all(found <= above + 1e-9), case
        near = np.abs(z - target) < 0.2  # a kink at the target stays where it is
        if name in ("sign", "hinge") and beta < 100:
            wanted = known.envelope_derivative(z, y, beta)
            np.testing.assert_allclose(found[near], wanted[near], atol=1e-9)


@pytest.mark.parametrize("name", [*COPIES, *HOSTILE])
def test_tables_are_monotone_and_no_steeper_than_beta(name):
    """For the very numbers in the table, in exact arithmetic."""
    own = COPIES[name][0] if name in COPIES else Own(HOSTILE[name])
    targets = np.random.default_rng(0).uniform(-1, 1, 2)
    for clip, beta in ((0.3, 1e-30), (0.3, 1.0), (1e9, 1 / 3), (2.0, 1e3), (1e-9, 1e20)):
        knots, values = tables(own, targets, clip, beta)
        assert np.abs(values).max() <= clip
        for u, t in zip(knots.tolist(), values.tolist(), strict=True):
            u, t = [Fraction(v) for v in u], [Fraction(v) for v in t]
            for j in range(len(t) - 1):
                assert t[j] <= t[j + 1]
                assert u[j] < u[j + 1]
                assert t[j + 1] - t[j] <= Fraction(beta) * (u[j + 1] - u[j])


def test_the_compiled_value_is_that_of_the_exact_function():
    rng = np.random.default_rng(0)
    worst = 0.0
    for clip, beta in ((0.3, 1.0), (3.0, 40.0)):
        own = Own(lambda z, y: np.tanh(z - y) * 3)
        (knots,), (values,) = table = tables(own, np.array([0.3]), clip, beta)
        for z in np.concatenate((rng.normal(size=300), 0.3 + 0.01 * rng.normal(size=300))):
            j = np.searchsorted(knots, z, side="right") - 1
            u, t = [Fraction(v) for v in knots[j : j + 2]], [Fraction(v) for v in values[j : j + 2]]
            exact = t[0] + (t[1] - t[0]) * (Fraction(z) - u[0]) / (u[1] - u[0])
            worst = max(worst, abs(float(Fraction(value_at(table, [z])[0]) - exact)) / clip)
        assert 0 < worst < 12 * 2.0**-53
        ends = value_at(table, [-math.inf, -1e9, 1e9, math.inf, math.nan])
        np.testing.assert_array_equal(ends, values[[0, 0, -1, -1, 0]])


def test_values_far_out_do_not_reach_the_middle():
    """As where an honest loss overflows."""
    own = Own(lambda z, y: np.where(np.abs(z) > 50, np.nan, z - y))
    found = value_at(tables(own, np.zeros(1), 1.0, 10.0), [-100.0, -0.5, 0.0, 0.5, 100.0])
    np.testing.assert_allclose(found, [-1, -0.5, 0, 0.5, 1], atol=1e-9)


def test_kernels_do_the_same_in_plain_python():
    values = np.random.default_rng(0).normal(size=(4, GRID.size))
    found = []
    for function in (kernels.lay_knots, getattr(kernels.lay_knots, "py_func", kernels.lay_knots)):
        own, knots = values.copy(), np.empty_like(values)
        function(own, np.array([0.3, -1.0, 1.0, 0.0]), GRID, 2.0, knots)
        found.append((own, knots))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-15)


def test_calls_are_bounded_and_see_no_more_than_they_must():
    n, k = 900, 2
    X, y = scaled_table(n, 3)
    own = Own(lambda z, y: np.sign(z - y))
    fact = l2_problem(n, 3, loss=Joint(own, k))
    solver = PhasedSGD(max_iter=1, n_phases=1)
    plan = quiet(solver.plan(fact, PrivacyBudget(1.0)), 1e-14)
    own.calls.clear()
    plan.run(solver_data(X, np.stack((y, -y), axis=1)), stream())
    sizes = [z.size for z, _ in own.calls]
    assert sum(sizes) == n * k * GRID.size
    assert max(sizes) <= _CHUNK_TABLES / 16
    # of labels, of which there are two, nothing private at all
    label = Own(COPIES["hinge"][0].rule, "classification", constant=np.sign)
    plan = quiet(solver.plan(l2_problem(n, 3, loss=label), PrivacyBudget(1.0)), 1e-14)
    label.calls.clear()
    plan.run(solver_data(X, np.where(y > 0, 1.0, -1.0)), stream())
    (z, target) = label.calls[0]
    np.testing.assert_array_equal(z, np.concatenate((GRID - 1, GRID + 1)))
    np.testing.assert_array_equal(target, np.repeat([-1.0, 1.0], GRID.size))


# --------------------------------------------------------------------------- sensitivity


def replayed(loss, relation, *, n=24, k=1, **settings):
    fact = l2_problem(n, 3, loss=loss if k == 1 else Joint(loss, k), **settings)
    solver = PhasedSGD(max_iter=2, learning_rate=0.5, gradient_clip=0.4)
    plan = solver.plan(fact, PrivacyBudget(1.0, 1e-6, relation))
    pairs = neighbours(fact, relation, 4)
    return check_sensitivity(plan, pairs, random_state=0)


@rest_is_slow(
    ("name", "relation"),
    itertools.product(HOSTILE, RELATIONS),
    ("backwards-replace-one", "oscillating-zero-out", "not a number-replace-one"),
)
def test_hostile_losses_stay_within_the_sensitivity(name, relation, monkeypatch):
    monkeypatch.setattr(replay, "_ROUNDS", 1)  # tables of a loss that only falls move nothing
    smoothness = math.inf if relation == "replace-one" else 1e-300
    for task, k, feasible_set in (
        ("regression", 1, L2Ball),
        ("classification", 1, L2Ball),
        ("regression", 1, lambda _: Unconstrained()),
        ("classification", 3, L2Ball),
    ):
        loss = Own(HOSTILE[name], task, smoothness=smoothness)
        found = replayed(loss, relation, k=k, feasible_set=feasible_set)
        assert not found.violations, (task, smoothness, k, found.violations)


def test_without_the_tables_a_hostile_loss_would_break_it(monkeypatch):
    def as_they_are(values, targets, grid, beta, knots):
        knots[:] = targets[:, None] + grid

    monkeypatch.setattr(kernels, "lay_knots", as_they_are)
    for name in ("backwards", "oscillating"):
        found = replayed(Own(HOSTILE[name]), "replace-one", n=200)
        assert found.ratios["phases[0].noise"] > 1.2, name
        assert "phases[0].noise" in found.violations, name


def test_honest_losses_use_the_sensitivity_up():
    names = ("sign", "squared", "hinge", "logistic")
    for name, relation in zip(names, itertools.cycle(RELATIONS)):
        found = replayed(COPIES[name][0], relation)
        assert not found.violations, name
        assert found.ratios["phases[0].noise"] > 0.5, name


@rest_is_slow("k", (1, 3), ("3",))
def test_replays_in_learned_units(k, monkeypatch):
    monkeypatch.setattr(replay, "_ROUNDS", 1)  # not until each of the first releases has moved
    fact = dataclasses.replace(
        l2_problem(20, 2, loss=COPIES["hinge"][0].of_outputs(k)), feasible_set=L2Ball
    )
    plan = PhasedSGD().plan(fact, PrivacyBudget(300.0))
    assert isinstance(plan.first, LearnedUnits)
    found = check_sensitivity(plan, neighbours(fact, "replace-one", 4))
    assert not found.violations
    assert found.ratios["phases[0].noise"] > 0.4


def test_nothing_that_a_loss_says_of_itself_enters_the_sensitivity():
    class Numbered(Own):
        kernel_parameter = -1e300

    def one(loss, eta=0.1):
        solver = PhasedSGD(max_iter=1, n_phases=1, learning_rate=eta, gradient_clip=0.5)
        plan = solver.plan(l2_problem(50, 3, loss=loss), PrivacyBudget(1.0))
        (phase,) = plan.phases
        assert phase.learning_rate == eta
        assert phase.learning_rate * phase.beta * plan.data_norm**2 <= 2
        return phase.noise.sensitivity

    rule = HOSTILE["backwards"]
    for eta in (1e-3, 0.1, 1e4):  # no step is too long
        wanted = one(Own(rule), eta)
        for smoothness in (0.0, 1e-300, 1.0, 1e100):
            for kind in (Own, Numbered):
                loss = kind(rule, smoothness=smoothness)
                assert one(loss, eta) == pytest.approx(wanted, rel=1e-6)
                assert one(loss, eta) > 2 * eta * 0.5

    @dataclass(frozen=True)
    class OwnLogistic(Logistic):
        """The multinomial loss is the package's all the same."""

        kernel_parameter = -1e300

        @property
        def smoothness(self):
            return 1e-300

    several = Multinomial(OwnLogistic(), 3)
    assert not is_tabulated(several)
    assert is_tabulated(OwnLogistic())
    plans = [
        PhasedSGD().plan(l2_problem(50, 3, loss=loss), PrivacyBudget(1.0)).phases
        for loss in (several, Multinomial(Logistic(), 3))
    ]
    assert plans[0] == plans[1]


def test_constants_of_a_loss_stay_within_what_float_errors_are_counted_for():
    wild = Own(HOSTILE["backwards"], constant=lambda mean: 0.1 if abs(mean) == 1 else 1e200)
    X, y = scaled_table(40, 2)
    plan = quiet(
        PhasedSGD(max_iter=1).plan(l2_problem(40, 2, loss=wild), PrivacyBudget(1.0)), 1e-14
    )
    result = plan.run(solver_data(X, y), stream())
    assert abs(result.intercept) < 10


# ---------------------------------------------------------------------------- bad input


def test_what_is_refused():
    class Undeclared(Own):
        is_convex = False

    class Coupled(Joint):
        """Another sum than that of its outputs."""

    class Several(Own):
        n_outputs = 3

    budget, rule = PrivacyBudget(1.0), HOSTILE["huge"]
    for loss in (Undeclared(rule), Joint(Undeclared(rule), 2)):
        for call in (
            PhasedSGD().check,
            lambda *a: PhasedSGD().plan(l2_problem(20, 2, loss=a[0]), a[2]),
        ):
            assert_refuses(call, "must declare it by `is_convex = True`", loss, L2Ball, budget)
    model = DPPhasedSGDRegressor(loss=Undeclared(rule), bounds_X=(-1, 1), bounds_y=(-1, 1))
    assert_refuses(model.fit, "is_convex = True", np.zeros((9, 1)), np.zeros(9))
    for loss in (Coupled(Squared(), 2), Coupled(Squared(), 1), Several(rule)):
        assert_refuses(PhasedSGD().check, "a loss of one output, or", loss, L2Ball, budget)
    for bad in (math.nan, 0.0, -1.0):
        fact = l2_problem(20, 2, loss=Own(rule, bound=bad))
        assert_refuses(PhasedSGD().plan, "a positive Own.derivative_bound", fact, budget)
    fact = l2_problem(20, 2, loss=Own(rule, bound=math.inf))
    assert_refuses(PhasedSGD().plan, "gradient_clip must be a number", fact, budget)
    assert PhasedSGD(gradient_clip=0.5).plan(fact, budget).gradient_clip == 0.5


def test_tables_count_as_work():
    def passes(loss):
        return PhasedSGD().plan(l2_problem(20_000, 5, loss=loss), PrivacyBudget(1.0)).max_iter

    assert passes(Squared()) == passes(COPIES["hinge"][0]) == 40
    assert passes(COPIES["squared"][0]) == 25
