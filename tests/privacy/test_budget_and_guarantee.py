"""Budgets, their conversion, and the guarantee checked by a second accountant."""

import itertools
import math
import pickle
from decimal import Decimal, localcontext
from functools import cache, partial

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import UnsupportedEventError
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from support import (
    assert_refuses,
    cells_of,
    half_is_enough,
    problem,
    recomputed_epsilon,
    rest_is_slow,
    solver_of,
)

from sklearn_dpsco import BudgetAccountant, DPLassoFW
from sklearn_dpsco.means import plan_mean
from sklearn_dpsco.mechanisms import Gaussian, GeneralizedGaussian, Laplace, SelectVertex
from sklearn_dpsco.privacy.budget import (
    Allowance,
    PrivacyBudget,
    best_log_gap,
    mu_delta,
    zcdp_delta,
)
from sklearn_dpsco.privacy.guarantee import Guarantee, Release
from sklearn_dpsco.privacy.selections import selection_epsilon
from sklearn_dpsco.solvers import Gradient, NoisyMD, Selection

DELTA = 1e-6
RELATIONS = ("replace-one", "zero-out")


# ------------------------------------------------------------------------------ budgets


def test_rho_and_mu_have_the_check_values():
    # to the last digit that doc/privacy.rst prints
    for epsilon, rho in {
        0.1: 0.000321, 0.5: 0.006642, 1.0: 0.024356, 3.0: 0.18507, 8.0: 1.05236
    }.items():  # fmt: skip
        assert PrivacyBudget(epsilon, DELTA).rho == pytest.approx(rho, abs=6e-7, rel=3e-5)
    assert PrivacyBudget(1.0, DELTA).mu == pytest.approx(0.23670, abs=5e-6)


def test_conversions_land_on_the_private_side_and_close_to_the_limit():
    for case in itertools.product((0.01, 0.3, 1.0, 8.0, 50.0), (1e-12, 1e-6, 1e-3, 0.1)):
        epsilon, delta = case
        budget = PrivacyBudget(epsilon, delta)
        assert zcdp_delta(budget.rho, epsilon) <= delta, case
        assert zcdp_delta(budget.rho * (1 + 1e-6), epsilon) > delta, case

        def gaussian_delta(mu, epsilon=epsilon):
            left, right = norm.cdf(mu / 2 - epsilon / mu), norm.logcdf(-mu / 2 - epsilon / mu)
            return left - math.exp(epsilon + right)

        # the right side is a difference of nearly equal numbers, hence the factor
        assert gaussian_delta(budget.mu) <= delta * (1 + 1e-8), case
        assert gaussian_delta(budget.mu * (1 + 1e-6)) > delta, case
        # Gaussian noise costs no more when its exact law is used
        assert budget.mu >= math.sqrt(2 * budget.rho), case


def test_zcdp_delta_is_the_minimum_over_orders():
    for rho, epsilon in ((1e-4, 0.1), (0.02, 1.0), (1.0, 8.0), (0.5, 0.1)):

        def log_delta(log_gap, rho=rho, epsilon=epsilon):
            alpha = 1 + math.exp(log_gap)
            return (
                (alpha - 1) * (alpha * rho - epsilon)
                - math.log(alpha - 1)
                + alpha * math.log1p(-1 / alpha)
            )

        found = minimize_scalar(
            log_delta, bounds=(-8, 14), method="bounded", options={"xatol": 1e-10}
        )
        expected = pytest.approx(min(1.0, math.exp(found.fun)), rel=1e-6)
        assert zcdp_delta(rho, epsilon) == expected, (rho, epsilon)


def test_rho_and_mu_grow_with_epsilon_and_delta():
    for name in ("rho", "mu"):
        by_epsilon = [getattr(PrivacyBudget(e, 1e-6), name) for e in (0.01, 0.1, 1, 2, 10, 100)]
        by_delta = [getattr(PrivacyBudget(1.0, d), name) for d in (1e-15, 1e-9, 1e-3, 0.5, 0.99)]
        assert np.all(np.diff(by_epsilon) > 0)
        assert np.all(np.diff(by_delta) > 0)


def test_extreme_epsilon_has_a_conversion():
    for epsilon in (1e-4, 200.0, 2000.0, 1e5):
        budget = PrivacyBudget(epsilon, DELTA)
        assert 0 < budget.rho < max(epsilon, 1e-4), epsilon
        assert zcdp_delta(budget.rho, epsilon) <= DELTA, epsilon
    # the least delta above 0, to which what is a little larger is rounded
    assert mu_delta(PrivacyBudget(1.0, 5e-324).mu, 1.0) == 0.0


def test_conversions_of_tiny_budgets_do_not_rest_on_small_differences():
    points, weights = np.polynomial.legendre.leggauss(400)
    for case in itertools.product((1e-12, 1e-8, 1e-5, 1e-3, 0.1), (1e-100, 1e-20, 1e-12, 1e-6)):
        epsilon, delta = case
        budget = PrivacyBudget(epsilon, delta)
        # the mean of (1 - exp(epsilon - loss))_+, an integral of positive numbers
        mu = budget.mu
        start = epsilon / mu - mu / 2
        reach = 40 / (1 + max(0.0, start))
        x, weight = reach * (points + 1) / 2, reach / 2 * weights
        gaussian = weight @ (norm.pdf(start + x) * -np.expm1(-mu * x))
        assert delta * (1 - 1e-3) < gaussian <= delta * (1 + 1e-10), case

        # the bound at one order, in fifty digits
        rho = budget.rho
        with localcontext() as context:
            context.prec = 50
            r, e = Decimal(rho), Decimal(epsilon)
            alpha = 1 + Decimal(math.exp(best_log_gap(rho, epsilon)))
            ratio = alpha * (1 - 1 / alpha).ln()
            log_delta = (alpha - 1) * (alpha * r - e) - (alpha - 1).ln() + ratio
            assert -1e-3 < log_delta - Decimal(delta).ln() <= Decimal("1e-12"), case


def test_pure_budget():
    budget = PrivacyBudget(0.7, 0.0)
    assert budget.is_pure
    assert budget.rho == budget.mu == 0
    assert budget.allowance == Allowance("pure", 0.7)
    assert budget.allowance.share(0.25) == Allowance("pure", 0.25 * 0.7)


def test_record_factor():
    assert PrivacyBudget(1.0, relation="replace-one").record_factor == 2
    assert PrivacyBudget(1.0, relation="zero-out").record_factor == 1


def test_bad_values_are_refused_by_name():
    bad = {
        "epsilon": (0, -1, math.nan, -math.inf, 2e9, "1", None, True),
        "delta": (-1e-9, 1, 2.0, math.nan, "0", None),
        "relation": ("replace_one", None, 1),
    }
    good = {"epsilon": 1.0, "delta": DELTA, "relation": "zero-out"}
    for name, values in bad.items():
        for value in values:
            given = good | {name: value}
            assert_refuses(PrivacyBudget, f"{name} must be", **given)
            assert_refuses(Guarantee, f"{name} must be", **given, composition="zcdp", releases=())


@pytest.mark.parametrize("real", [np.float16, np.float32])
def test_numbers_of_numpy_are_taken_for_what_they_are(real):
    # 100^2 is 16 in 8 bits, and a scale would be rounded to a few digits
    given = PrivacyBudget(real(0.3), real(1e-3), rows_per_user=np.int8(100))
    plain = PrivacyBudget(float(real(0.3)), float(real(1e-3)), rows_per_user=100)
    assert (given.rho, given.mu) == (plain.rho, plain.mu)
    assert given.part(real(0.3), "zcdp") == plain.part(float(real(0.3)), "zcdp")
    plan, same = (plan_mean(5000, 3, epsilon=e, delta=0) for e in (real(0.3), plain.epsilon))
    assert plan.noise.scale == same.noise.scale


# --------------------------------------------------------------------------- guarantees


def test_a_plan_that_overspends_has_no_guarantee():
    budget = PrivacyBudget(1.0, DELTA, "zero-out")
    share = budget.allowance.share(1 / 5)
    whole = Release("step", Gaussian.calibrate(1.0, share), 5)
    guarantee = Guarantee.of(budget, (whole,))
    assert guarantee == Guarantee(1.0, DELTA, "zero-out", "zcdp", (whole,))
    assert guarantee.spent == pytest.approx(budget.rho, rel=1e-9)
    beyond = (whole, Release("one more", Gaussian.calibrate(1.0, share.share(1e-3))))
    for releases in (beyond, (whole, whole), (Release("step", whole.mechanism, 6),)):
        with pytest.raises(AssertionError, match="spends more"):
            Guarantee.of(budget, releases)
    # an epsilon is the claim itself: there is no conversion whose rounding it has room for
    slightly = Release("vertex", SelectVertex(1 + 5e-13, 1.0, "exponential"))
    for pure in (Release("step", Laplace(1.0, 1 / 0.26), 4), slightly):
        with pytest.raises(AssertionError, match="spends more"):
            Guarantee(1.0, 0.0, "zero-out", "pure", (pure,))


def test_releases_that_no_cost_is_true_of_have_no_guarantee():
    good = Release("step", Gaussian(1e-3, 1.0))
    assert 0 < Guarantee.of(PrivacyBudget(1.0), (good,)).spent < 1e-6
    bad = (math.nan, math.inf, -math.inf, -1e-3)
    kinds = (Gaussian, Laplace, SelectVertex, partial(GeneralizedGaussian, q=2.0, exponent=2.0))
    for kind, composition in itertools.product(kinds, ("zcdp", "adaptive-range")):
        extra = {"dimension": 3} if isinstance(kind, partial) else {}
        wrong = [kind(value, 1.0, **extra) for value in bad]
        # of a negative scale the square costs nothing, and of 0 infinitely much
        wrong += [kind(1e-3, value, **extra) for value in (*bad, 0.0)]
        for mechanism in wrong:
            for releases in ((Release("wrong", mechanism),), (good, Release("wrong", mechanism))):
                with pytest.raises(AssertionError, match="the release 'wrong' needs a finite"):
                    Guarantee(1.0, DELTA, "zero-out", composition, releases)
    # a release that no record moves is fine
    Guarantee(1.0, DELTA, "zero-out", "zcdp", (Release("nothing", SelectVertex(0.0, 1.0)),))


@pytest.mark.parametrize("order", [0, 0.5, 1, -1, math.nan, math.inf, "2", True])
def test_the_order_of_a_filter_is_a_number_above_1(order):
    with pytest.raises(ValueError, match="order must be"):
        PrivacyBudget(1.0, currency="zcdp", order=order)
    assert PrivacyBudget(1.0, delta=0.0, order=1).order == 1  # of which nothing is a batch


def test_numbers_of_uses_are_whole_and_positive():
    mechanism = Gaussian(1e-3, 1.0)
    for bad in (0, -1, 0.5, math.nan, "2"):
        with pytest.raises(AssertionError, match="count of the release 'step' must be an integer"):
            Guarantee(1.0, DELTA, "zero-out", "zcdp", (Release("step", mechanism, bad),))
    releases = (Release("step", mechanism, np.int64(2)),)
    assert Guarantee(1.0, DELTA, "zero-out", "zcdp", releases).spent > 0


def test_a_guarantee_without_releases_is_free():
    assert Guarantee(1.0, 1e-6, "zero-out", "zcdp", ()).spent == 0


PLANNED = [
    ("selection", 1e-6), ("selection", 0.0), ("gradient", 1e-6), ("gradient", 1e-3),
    ("constant", 1e-6), ("constant", 0.0),
]  # fmt: skip


@rest_is_slow(
    ("form", "delta", "relation"),
    [(*case, relation) for case in PLANNED for relation in RELATIONS],
    ("selection-0.0-zero-out", "gradient-1e-06-replace-one", "constant-1e-06-zero-out"),
)
def test_second_accountant_confirms_the_plan(form, delta, relation):
    grid = itertools.product((0.1, 1.0, 8.0), ((30, 1), (20_000, 40)), ((1, True), (3, False)))
    for epsilon, (n, d), (n_outputs, fit_intercept) in grid:
        for max_iter in (1, 2, 8) if form == "selection" else (5,):
            if form == "constant" and not fit_intercept:
                continue
            facts = problem(n, d, fit_intercept=fit_intercept, n_outputs=n_outputs)
            budget = PrivacyBudget(epsilon, delta, relation)
            plan = solver_of(form, max_iter=max_iter).plan(facts, budget)
            guarantee = plan.guarantee
            claim = (guarantee.epsilon, guarantee.delta, guarantee.relation)
            assert claim == (epsilon, delta, relation)
            ratio = recomputed_epsilon(guarantee) / epsilon
            # the lower end: a plan that adds needless noise is a defect too
            assert 0.99 <= ratio <= 1 + 1e-4, (guarantee, ratio)


def test_second_opinion():
    facts = problem(1000, 10, n_outputs=3)
    for epsilon in (0.1, 8.0):
        for form, budget in (
            ("gradient", PrivacyBudget(epsilon)),  # gdp
            ("gradient", PrivacyBudget(epsilon, currency="zcdp")),
            ("gradient", PrivacyBudget(epsilon, 1e-40)),
            ("selection", PrivacyBudget(epsilon, 0.0)),
        ):
            guarantee = solver_of(form, max_iter=3).plan(facts, budget).guarantee
            assert guarantee.second_opinion() == pytest.approx(epsilon, rel=1e-3), guarantee
        plan = Selection(max_iter=9).plan(facts, PrivacyBudget(epsilon))
        with pytest.raises(UnsupportedEventError):
            plan.guarantee.second_opinion()


def test_the_accountant_composes_gaussian_releases_as_one():
    # which `recomputed_epsilon` makes use of
    for epsilon, n_outputs in ((0.1, 1), (8.0, 3)):
        plan = Gradient().plan(problem(300, 4, n_outputs=n_outputs), PrivacyBudget(epsilon))
        guarantee = plan.guarantee
        assert len(guarantee.dp_event.events) > 2
        accountant = PLDAccountant(value_discretization_interval=epsilon * 1e-4)
        apart = accountant.compose(guarantee.dp_event).get_epsilon(guarantee.delta)
        assert recomputed_epsilon(guarantee) == pytest.approx(apart, rel=1e-5)


def test_second_accountant_sees_an_event_that_is_too_cheap():
    # what the tests above rest on: events that claim 1 % more than the budget stand out
    rho, delta = PrivacyBudget(1.0, 1e-6).rho, 1e-6

    class Fake(Gaussian):
        def cost(self, composition, count=1):
            return 0.0

    releases = (Release("x", Fake(1.01, 1 / math.sqrt(2 * rho))),)
    assert recomputed_epsilon(Guarantee(1.0, delta, "zero-out", "zcdp", releases)) > 1.005


def test_selections_use_whichever_analysis_allows_least_noise():
    for fit_intercept, n_outputs in ((True, 1), (False, 3)):
        facts = problem(1000, 10, fit_intercept=fit_intercept, n_outputs=n_outputs)
        used = set()
        for max_iter, epsilon in cells_of("half", (1, 2, 3, 5, 8, 50), (0.1, 1.0, 8.0)):
            solver = Selection(max_iter=max_iter)
            plan = solver.plan(facts, PrivacyBudget(epsilon, DELTA))
            by_zcdp = solver.plan(facts, PrivacyBudget(epsilon, DELTA, currency="zcdp"))
            pure = solver.plan(facts, PrivacyBudget(epsilon, 0.0))
            assert by_zcdp.guarantee.composition == "zcdp"
            least = min(by_zcdp.step.scale, 0.9 * pure.step.scale)
            factor = 0.9 if plan.step.noise == "exponential" else 1.0
            assert plan.step.scale * factor <= least * (1 + 1e-12), (facts, max_iter, epsilon)
            used.add(plan.guarantee.composition)
        assert used == {"pure", "adaptive-range"}


@pytest.mark.parametrize("kind", ["gdp", "zcdp"])
def test_selections_of_a_fit_under_an_accountant_compose_as_it_does(kind):
    model = DPLassoFW(solver=Selection(max_iter=2), bounds_X=(-1, 1), bounds_y=(-1, 1))
    assert model.plan(500, 3).guarantee.composition == "pure"
    model.set_params(accountant=BudgetAccountant(1.0, 1e-6, composition=kind))
    assert model.plan(500, 3).guarantee.composition == kind
    # a guarantee by the other analysis can be charged, at its cost in this one
    best = Selection(max_iter=9).plan(problem(500, 3), PrivacyBudget(0.5, 1e-6))
    accountant = BudgetAccountant(1.0, 1e-6, composition=kind)
    accountant.spend(best)
    assert best.guarantee.composition == "adaptive-range"
    assert accountant.total_spent() > 0.5
    cost = sum(r.mechanism.cost(kind, r.count) for r in best.guarantee.releases)
    assert best.guarantee.cost(kind) == pytest.approx(cost)


def adaptive_range(log_range, *, count=8, gaussian=()):
    release = Release("vertex", SelectVertex(1.0, 1 / log_range), count)
    releases = (*gaussian, release)
    return Guarantee(1.0, 1e-6, "zero-out", "adaptive-range", releases)


def test_selections_that_overspend_have_no_guarantee():
    eta = selection_epsilon(1.0, 1e-6, 8)
    assert 0.99e-6 < adaptive_range(eta).spent <= 1e-6
    first = Release("mean target", Gaussian(1.0, 50.0))
    for changes in ({"count": 9}, {"gaussian": (first,)}):
        with pytest.raises(AssertionError, match="spends more"):
            adaptive_range(eta, **changes)
    with pytest.raises(AssertionError, match="spends more"):
        adaptive_range(eta * 1.001)
    # neither permute-and-flip nor Laplace noise has a bounded range
    for mechanism in (SelectVertex(1.0, 100.0, "exponential"), Laplace(1.0, 100.0)):
        releases = (Release("x", mechanism),)
        with pytest.raises(ValueError, match="no adaptive-range guarantee"):
            Guarantee(1.0, 1e-6, "zero-out", "adaptive-range", releases)
    apart = (Release("x", SelectVertex(1.0, 100.0), group="first half"),)
    with pytest.raises(ValueError, match="no adaptive-range guarantee"):
        Guarantee(1.0, 1e-6, "zero-out", "adaptive-range", apart)


def test_event_of_adaptive_selections_is_complete_and_refused():
    first = Release("mean target", Gaussian(1.0, 50.0), 2)
    event = adaptive_range(0.05, count=15, gaussian=(first,)).dp_event
    means, selections = event.events
    assert means == first.mechanism.dp_event("gdp", 2)
    assert (selections.log_range, selections.count) == (0.05, 15)
    assert pickle.loads(pickle.dumps(event)) == event
    for accountant in (RdpAccountant(), PLDAccountant()):
        assert not accountant.supports(event)
        with pytest.raises(UnsupportedEventError):
            accountant.compose(event)


# ------------------------------------------------------------------ the whole privacy curve


@cache
def guarantees():
    """One of each composition, by name."""
    facts = problem(1000, 10)
    solvers = {
        "gdp": (Gradient(max_iter=5), PrivacyBudget(1.0, DELTA)),
        "zcdp": (Selection(max_iter=5), PrivacyBudget(1.0, DELTA, currency="zcdp")),
        "adaptive-range": (Selection(max_iter=30), PrivacyBudget(1.0, DELTA)),
        "pure": (Selection(max_iter=5), PrivacyBudget(1.0, 0.0)),
        "pld": (NoisyMD(batch_size=50, max_iter=20), PrivacyBudget(1.0, DELTA)),
    }
    plans = {name: solver.plan(facts, budget) for name, (solver, budget) in solvers.items()}
    assert {name: plan.guarantee.composition for name, plan in plans.items()} == {
        name: name for name in plans
    }
    return {name: plan.guarantee for name, plan in plans.items()}


def test_the_privacy_curve_goes_through_the_claim():
    for name, guarantee in guarantees().items():
        claim = guarantee.epsilon
        assert guarantee.delta_at(claim) <= guarantee.delta, name
        assert 0.97 * claim < guarantee.epsilon_at(guarantee.delta) <= claim, name
        deltas = [guarantee.delta_at(e) for e in (0.0, 0.2, 0.7, 1.0, 1.5, 3.0)]
        assert np.all(np.diff(deltas) <= 0), name
        assert deltas[0] < 1, name
        epsilons = [guarantee.epsilon_at(d) for d in (1e-10, 1e-6, 1e-3, 0.3)]
        assert np.all(np.diff(epsilons) <= 0), name
        for delta, epsilon in zip((1e-10, 1e-6, 1e-3, 0.3), epsilons, strict=True):
            if epsilon < math.inf:
                assert guarantee.delta_at(epsilon) <= delta, name
        assert (guarantee.epsilon_at(0.0) == math.inf) == (name != "pure"), name
        assert (guarantee.delta_at(1e6) == 0) == guarantee.composes_in("pure"), name
        assert pickle.loads(pickle.dumps(guarantee)) == guarantee, name
        assert_refuses(guarantee.delta_at, "epsilon must be", -1.0)
        assert_refuses(guarantee.epsilon_at, "delta must be", 1.0)


def test_trade_off_curves():
    for name, guarantee in guarantees().items():
        levels = np.array([0.0, 1e-3, 0.05, 0.3, 0.5, 0.9, 1.0])
        curve = np.array([guarantee.trade_off(a) for a in levels])
        assert np.all((curve >= 0) & (curve <= 1 - levels + 1e-12)), name
        assert np.all(np.diff(curve) <= 0), name
        for alpha, beta in zip(levels, curve, strict=True):  # the claim alone
            e, d = guarantee.epsilon, guarantee.delta
            assert beta >= 1 - d - math.exp(e) * alpha - 1e-12, name
            assert beta >= math.exp(-e) * (1 - d - alpha) - 1e-12, name
        assert (guarantee.mu is None) == (name == "pure"), name
        assert_refuses(guarantee.trade_off, "alpha must be", 1.5)
    # where e^epsilon is beyond all floats, and alpha as far below them
    far = Selection(max_iter=5).plan(problem(1000, 10), PrivacyBudget(2000.0, 0.0)).guarantee
    assert far.trade_off(1e-305) == pytest.approx(0.0, abs=1e-9)
    assert far.trade_off(0.0) == 1.0
    gaussian = guarantees()["gdp"]
    assert gaussian.mu == pytest.approx(PrivacyBudget(1.0, DELTA).mu, rel=1e-6)
    expected = norm.cdf(norm.ppf(0.7) - gaussian.mu)
    assert gaussian.trade_off(0.3) == pytest.approx(expected, rel=1e-9)
    # where 1 - alpha is rounded to 1
    weak = Gradient(max_iter=5).plan(problem(1000, 10), PrivacyBudget(60.0, 1e-6)).guarantee
    expected = norm.sf(norm.ppf(1e-18) + weak.mu)
    assert weak.trade_off(1e-18) == pytest.approx(expected, rel=1e-9)
    assert Guarantee(1.0, 1e-6, "zero-out", "zcdp", ()).trade_off(0.2) == 0.8


def test_frames_of_releases():
    for name, guarantee in guarantees().items():
        frame = guarantee.to_frame()
        assert list(frame["release"]) == [r.name for r in guarantee.releases], name
        assert frame["share"].sum() == pytest.approx(1.0), name
        assert frame["uses"].tolist() == [r.count for r in guarantee.releases], name


def test_second_opinion_of_many_pure_releases():
    for max_iter in (100, 3000):
        plan = Selection(max_iter=max_iter).plan(problem(1000, 10), PrivacyBudget(1.0, 0.0))
        assert plan.guarantee.second_opinion() == pytest.approx(1.0, rel=1e-3)


@half_is_enough
@pytest.mark.filterwarnings("error")
def test_plans_of_large_budgets(cells):
    few, grid = ((150.0, 1), (700.0, 7), (1e9, 1)), ((150.0, 700.0, 1e4, 1e9), (1, 7, 2000))
    for epsilon, max_iter in cells_of(cells, *grid) if cells == "all" else few:
        plan = Selection(max_iter=max_iter).plan(problem(2000, 3), PrivacyBudget(epsilon, 1e-6))
        assert 0 < plan.step.scale < math.inf
        assert plan.step.sensitivity / plan.step.scale >= epsilon / max_iter * 0.5
        assert 0 <= plan.guarantee.delta_at(epsilon / 2) <= 1
