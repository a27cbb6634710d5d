"""epsilon=inf: the same method without noise, and no claim. Nothing else is without noise."""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest
from dp_accounting.dp_event import NonPrivateDpEvent
from dp_accounting.pld import PLDAccountant
from registry import (
    STORAGES,
    Unreadable,
    build,
    each,
    each_form,
    each_form_of_all,
    entry,
    every_release,
    is_classifier,
    main_form,
    outcome,
    table,
    targets_of,
    ways_to_store,
)
from sklearn.pipeline import make_pipeline

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLassoFW,
    DPMirrorRegressor,
    DPScaler,
    Guarantee,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
    PrivateMoments,
    check_pipeline,
    dp_score,
    plan_score,
    private_bounds,
)
from sklearn_dpsco.audit import audit, audit_outcomes, audit_plan, map_mechanisms, neighbours
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.means import clipped_mean, plan_mean
from sklearn_dpsco.mechanisms import Gaussian, Release, SelectVertex
from sklearn_dpsco.metrics.releases import SCORINGS
from sklearn_dpsco.privacy.budget import LARGEST_EPSILON
from sklearn_dpsco.solvers import NoisyMD

INF = np.inf
SAYS = pytest.warns(PrivacyLeakWarning, match="epsilon=inf adds no noise")


def exactly_released(run):
    """Run it, and see that every release is the value itself, or the index of the largest."""
    seen = []

    def answer(mechanism, value, release):
        released = release()
        expected = np.argmax(value) if mechanism.selects else value
        assert np.array_equal(released, expected)
        seen.append(mechanism)
        return released

    with every_release(answer):
        run()
    return seen


def public_parts(plan):
    """A plan without its noise and its claim."""
    same = map_mechanisms(plan, lambda _, m: dataclasses.replace(m, scale=1.0))
    return repr(dataclasses.replace(same, budget=None, guarantee=None))


def facts(guarantee):
    """Of each release, without its noise."""
    return [(r.name, r.count, r.group, r.mechanism.sensitivity) for r in guarantee.releases]


# --------------------------------------------------------------------------- estimators


@each_form
def test_every_form_fits_without_noise_and_says_so_once(name, form):
    X, y = table(name)
    precisions = itertools.cycle(("exact", "float"))  # by turns: storages are read before the noise
    for (kind, more), precision in zip(ways_to_store(name, form), precisions, strict=False):
        model = build(name, form, **{"epsilon": INF, "precision": precision} | more)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            released = exactly_released(lambda m=model, k=kind: m.fit(STORAGES[k](X), y))
        assert [w.category for w in seen] == [PrivacyLeakWarning], (form, kind)
        assert seen[0].filename == __file__
        assert released
        assert all(r.mechanism.scale == 0 for r in model.guarantee_.releases)
        assert model.guarantee_.epsilon == INF
        assert model.coef_frame().columns.name is None  # and not "for predictions, not effects"
        assert np.isfinite(outcome(model)).all()


@each_form_of_all
def test_without_noise_the_plan_is_that_of_the_largest_epsilon(name, form):
    with SAYS:
        quiet = build(name, form, epsilon=INF).plan(60, 3)
    loud = build(name, form, epsilon=LARGEST_EPSILON).plan(60, 3)
    assert public_parts(quiet) == public_parts(loud)
    assert min(r.mechanism.scale for r in loud.guarantee.releases) > 0
    assert facts(loud.guarantee) == facts(quiet.guarantee)


@each_form
def test_an_empty_signal_is_fitted_without_noise(name, form):
    """Gradients of 0 and second moments of 0, which noise would hide."""
    X, y = table(name)
    y = y if is_classifier(name) else np.full(60, targets_of(name, 0))
    with SAYS:
        model = build(name, form, epsilon=INF).fit(0 * X, y)
    assert np.isfinite(outcome(model)).all()


@each
def test_no_accountant_accepts_a_fit_without_noise(name):
    accountant = BudgetAccountant(epsilon=1e9, delta=0.5)
    model = build(name, main_form(name), epsilon=INF)
    data = Unreadable(), Unreadable()
    with pytest.raises(PrivacyBudgetError, match="epsilon=inf"):
        build(name, main_form(name), epsilon=INF, accountant=accountant).fit(*data)
    with accountant, pytest.raises(PrivacyBudgetError, match="epsilon=inf"):
        model.fit(*data)
    with SAYS:
        plan = model.plan(60, 3)
    with pytest.raises(PrivacyBudgetError, match="epsilon=inf"):
        accountant.spend(plan)
    assert accountant.ledger == ()
    assert accountant.total_spent() == 0


@each
def test_the_largest_finite_epsilon_still_has_noise(name):
    X, y = table(name)
    noisy = []

    def answer(mechanism, value, release):
        assert mechanism.scale > 0
        released = release()
        noisy.append(mechanism.selects or not np.array_equal(released, value))
        return released

    with every_release(answer):
        build(name, main_form(name), epsilon=LARGEST_EPSILON).fit(X, y)
    assert all(noisy)
    assert noisy


def test_pure_dp_is_without_noise_as_well():
    """As far as there is such a form: the method stays the same."""
    X, y = table("DPLassoFW")
    with SAYS:
        model = build("DPLassoFW", "pure", epsilon=INF).fit(X, y)
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (INF, 0)
    assert entry("DPMirrorRegressor").pure
    with pytest.raises(ValueError, match=entry("DPMirrorRegressor").pure):
        build("DPMirrorRegressor", epsilon=INF, delta=0).fit(X, y)


@pytest.mark.parametrize("horizon", [60, None])
def test_a_stream_says_so_once(horizon):
    X, y = table("DPFTRLRegressor")
    model = DPFTRLRegressor(epsilon=INF, bounds_X=(-1, 1), bounds_y=(-1, 1), horizon=horizon)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.partial_fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
    assert [w.category for w in seen] == [PrivacyLeakWarning]
    assert model.guarantee_.epsilon == INF


def test_a_step_without_noise_is_a_leak():
    """The claim of the model after it is not true of the pipeline."""
    model = build("DPMirrorRegressor", "noisy-md", random_state=None)
    pipe = make_pipeline(DPScaler(epsilon=INF, bounds_X=(-1, 1)), model)
    assert [found.step for found in check_pipeline(pipe)] == ["dpscaler"]
    assert check_pipeline(pipe.set_params(dpscaler__epsilon=1.0)).ok
    with SAYS:
        pipe.set_params(dpscaler__epsilon=INF).fit(*table("DPMirrorRegressor", n=500))


# ------------------------------------------------------------------------ what is claimed


def test_nothing_finite_is_claimed():
    with SAYS:
        guarantee = (
            DPMirrorRegressor(epsilon=INF, bounds_X=(-1, 1), bounds_y=(0, 1)).plan(500, 3).guarantee
        )
    empty = dataclasses.replace(guarantee, releases=())  # as before the first record of a stream
    for claim in (guarantee, empty):
        assert claim.epsilon == claim.spent == claim.cost("gdp") == claim.renyi(2.0) == INF
        assert claim.mu is None
        for kind in ("pure", "zcdp", "gdp"):
            assert not claim.composes_in(kind)
        for delta in (0, 1e-6, 0.999):
            assert claim.epsilon_at(delta) == INF
        for epsilon in (0, 1.0, 1e12):
            assert claim.delta_at(epsilon) == 1
        for alpha in (0, 0.3, 1):
            assert claim.trade_off(alpha) == 0
        assert claim.second_opinion() == INF
        assert isinstance(claim.dp_event, NonPrivateDpEvent)
        assert PLDAccountant().compose(claim.dp_event).get_epsilon(0.1) == INF
        assert str(claim).startswith("epsilon = inf: no noise, and nothing is private")
        assert claim.to_frame()["share"].isna().all() if len(claim.releases) else True


@pytest.mark.parametrize(
    ("epsilon", "composition", "scale"),
    [(1.0, "zcdp", 0.0), (1e9, "gdp", 0.0), (1.0, "none", 0.0), (INF, "zcdp", 0.0),
     (INF, "gdp", 1.0), (INF, "none", 1.0), (INF, "none", 1e-300), (INF, "none", np.nan)],
)  # fmt: skip
def test_noise_and_claim_go_together(epsilon, composition, scale):
    for mechanism in (Gaussian(1.0, scale), SelectVertex(1.0, scale)):
        with pytest.raises(AssertionError):
            Guarantee(epsilon, 1e-6, "replace-one", composition, (Release("x", mechanism),))


def test_a_budget_without_bound_has_no_size():
    for delta in (0, 1e-6):
        budget = PrivacyBudget(INF, delta)
        for name in (
            "rho",
            "mu",
            "allowance",
            "gaussian_allowance",
            "mixed_allowance",
            "best_order",
        ):
            with pytest.raises(ValueError, match="epsilon=inf claims nothing"):
                getattr(budget, name)
        for currency in ("pure", "zcdp", "gdp"):
            with pytest.raises(ValueError, match="epsilon=inf claims nothing"):
                budget.part(0.5, currency)
    with pytest.raises(ValueError, match="must be finite"):
        BudgetAccountant(epsilon=INF)
    with pytest.raises(ValueError, match="must be inf or a finite number in"):
        PrivacyBudget(-INF)


# ------------------------------------------------------------------------ everything else


def test_scaler_score_bounds_and_means_without_noise():
    X, y = table("DPMirrorClassifier", n=400)
    with SAYS as seen:
        scaler = DPScaler(epsilon=INF, random_state=0)
        assert exactly_released(lambda: scaler.fit(X))
    assert len(seen) == 1
    assert scaler.guarantee_.epsilon == INF
    with SAYS as seen:
        moments = PrivateMoments(epsilon=INF, bounds_X=(-1, 1), random_state=0)
        assert exactly_released(lambda: moments.fit(X))
    assert len(seen) == 1
    np.testing.assert_allclose(moments.mean_, X.mean(axis=0), atol=1e-6)
    model = build("DPMirrorClassifier", "learned-units").fit(*table("DPMirrorClassifier", seed=1))
    right = np.mean(model.predict(X) == y)
    with SAYS as seen:
        found = dp_score(model, X, y, epsilon=INF)
    assert len(seen) == 1
    assert found.value == pytest.approx(right, abs=1e-12)
    assert found.guarantee.epsilon == INF
    low, high = found.interval
    assert low < right < high  # that of the sample: the records still are few
    with SAYS as seen:
        bounds = private_bounds(X, epsilon=INF, within=(-2, 2))
    assert len(seen) == 1
    inside = (bounds.low <= X) & (bounds.high >= X)
    assert inside.mean(axis=0).min() >= 0.97
    assert bounds.guarantee.epsilon == INF
    with SAYS as seen:
        mean = clipped_mean(X, epsilon=INF, tau=10.0)
    assert len(seen) == 1
    assert mean == pytest.approx(X.mean(axis=0), abs=1e-12)
    with SAYS:
        assert plan_mean(400, 3, epsilon=INF).guarantee.epsilon == INF


@pytest.mark.parametrize("scoring", SCORINGS)
def test_every_score_without_noise(scoring):
    of_numbers = scoring.startswith(("r2", "neg_mean", "mean", "binned"))
    name = "DPMirrorRegressor" if of_numbers else "DPMirrorClassifier"
    X, y = table(name, n=400)
    model = build(name, "learned-units").fit(*table(name, seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for targets in (y, np.full_like(y, y[0])):  # also if all are alike
            with SAYS:
                found = dp_score(model, X, targets, epsilon=INF, scoring=scoring)
            low, high = found.interval
            assert np.all(low <= np.asarray(found.value))
            assert np.all(np.asarray(found.value) <= high)


def test_scores_and_bounds_are_refused_by_an_accountant():
    X, y = table("DPMirrorRegressor")
    accountant = BudgetAccountant(epsilon=1.0)
    model = build("DPMirrorRegressor", "noisy-md").fit(X, y)
    runs = (
        lambda: dp_score(model, X + 0.01, y, epsilon=INF, accountant=accountant),
        lambda: plan_score(60, epsilon=INF, accountant=accountant),
        lambda: private_bounds(Unreadable(), epsilon=INF, accountant=accountant),
        lambda: DPScaler(epsilon=INF, accountant=accountant).fit(Unreadable()),
        lambda: PrivateMoments(epsilon=INF, accountant=accountant).fit(Unreadable()),
        lambda: clipped_mean(X, epsilon=INF, accountant=accountant),
    )
    for run in runs:
        with pytest.raises(PrivacyBudgetError, match="epsilon=inf"):
            run()
    assert accountant.ledger == ()


def test_a_private_search_needs_a_finite_epsilon():
    model = build("DPMirrorRegressor", "noisy-md")
    search = DPGridSearchCV(model, {"feasible_set": [L2Ball(1.0), L2Ball(2.0)]}, epsilon=INF)
    with pytest.raises(
        ValueError, match=r"epsilon of DPGridSearchCV must be finite.*scikit-learn's"
    ):
        search.fit(Unreadable(), Unreadable())
    with pytest.raises(ValueError, match="must be finite"):
        search.plan(1000, 3)


def test_a_search_replaces_an_infinite_epsilon_and_shares_by_none():
    X, y = np.zeros((2000, 2)), np.zeros(2000)
    model = DPMirrorRegressor(epsilon=INF, bounds_X=(-1, 1), bounds_y=(-1, 1))
    with pytest.warns(PrivacyParameterWarning, match="epsilon=inf of the estimator is not used"):
        found = DPGridSearchCV(model, {"feasible_set": [L2Ball(1.0)]}, epsilon=4.0).fit(X, y)
    assert found.guarantee_.epsilon == 4.0
    assert not found.best_estimator_.guarantee_.is_void
    for delta in (0, 1e-6):
        last = DPLassoFW(bounds_X=(-4, 4), bounds_y=(-1, 1))
        pipe = make_pipeline(DPScaler(epsilon=INF), last)
        search = DPGridSearchCV(
            pipe, {"dplassofw__feasible_set": [L2Ball(1.0)]}, epsilon=4.0, delta=delta
        )
        with pytest.raises(ValueError, match="dpscaler__epsilon must be finite"):
            search.fit(X, y)


def test_an_audit_needs_a_claim():
    X, y = np.zeros((20, 1)), np.tile([1.0, -1.0], 10)
    X[:2], other = 1, y.copy()
    other[0] = -1
    model = DPMirrorRegressor(
        epsilon=INF, bounds_X=(-1, 1), bounds_y=(-1, 1), solver=NoisyMD(max_iter=2)
    )
    with pytest.raises(ValueError, match="claims nothing that an audit could refute"):
        audit(model, (X, y), (X, other), 20)
    with pytest.raises(ValueError, match="claims nothing that an audit could refute"):
        audit_outcomes(np.zeros(20), np.ones(20), epsilon=INF, delta=0)
    with SAYS:  # of another claim, it finds that there is no noise
        found = audit(model, (X, y), (X, other), 38, claim=(0.02, 1e-6), random_state=0)
    assert found.flagged
    with SAYS:
        plan = model.plan(20, 1)
    pair = neighbours(plan.problem, "replace-one")[0]
    with pytest.raises(ValueError, match="claims nothing that an audit could refute"):
        audit_plan(plan, *pair, 20)
