"""Estimates with a covariance: what is released, and whether intervals cover."""

import dataclasses
import itertools
import math
import pickle
import re
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from support import (
    Recorder,
    assert_refuses,
    free_problem,
    half_is_enough,
    joined,
    recomputed_epsilon,
    rest_is_slow,
)

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLRegressor,
    DPGammaRegressor,
    DPGridSearchCV,
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPoissonRegressor,
    DPScaler,
    PrivacyParameterWarning,
    PublicEncoder,
    coef_frame,
    predict_interval,
)
from sklearn_dpsco._kernels.products import shares_of_first
from sklearn_dpsco.audit import check_sensitivity, map_mechanisms, neighbours
from sklearn_dpsco.data.rows import Rows, SolverData, place_counts
from sklearn_dpsco.estimates import Estimates
from sklearn_dpsco.geometry import Geometry, L2Ball
from sklearn_dpsco.losses import Squared, Tweedie
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.solvers import Descent, NoisyMD, inference
from sklearn_dpsco.solvers.base import Frame, Problem

COMMON = {"delta": 1e-6, "relation": "zero-out", "inference": True}
PARTS = ("size", "hessian", "first", "moments", "last")
KINDS = ("regression", 1), ("regression", 2), ("classification", 1), ("classification", 3)


def planned(
    n, d, task="regression", n_outputs=1, epsilon=1.0, relation="zero-out", rows=1,
    may_be_empty=False, **settings
):  # fmt: skip
    asked = {"inference": True, "n_users": n // rows * (rows > 1), "may_be_empty": may_be_empty}
    facts = free_problem(n, d, task, n_outputs, **asked)
    budget = PrivacyBudget(epsilon, 1e-6, relation, rows_per_user=rows)
    return Descent(**settings).plan(facts, budget)


def harmed(plan, n_cut=40, n_large=10, n_beyond=20.0):
    """The plan with clips that records reach."""
    few = {"n_cut": n_cut, "n_large": n_large, "n_beyond": n_beyond}
    return dataclasses.replace(plan, inference=dataclasses.replace(plan.inference, **few))


def epsilon_in(message):
    return float(re.search(r"larger epsilon \(about ([.\d]+)\)", str(message))[1])


def table(n, d, seed, kind="normal"):
    """X, y, and the slopes of y on X in the population; the bounds are 6 and 30."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).clip(-6, 6)
    X[:, 1] = 0.6 * X[:, 0] + 0.8 * X[:, 1]
    w = np.linspace(1, -1, d)
    if kind == "normal":
        return X, X @ w + rng.normal(size=n) * (0.5 + np.abs(X[:, 0])), w
    if kind == "labels":
        return X, (rng.random(n) < expit(0.7 * X @ w - 1)).astype(int), 0.7 * w
    scores = np.column_stack((X @ w, -X @ w, np.zeros(n))) + rng.gumbel(size=(n, 3))
    return X, scores.argmax(axis=1), np.array([w, -w, 0 * w])


def fitted(X, y, n_classes=0, epsilon=3.0, seed=0, groups=None, sample_weight=None, **others):
    facts = {"epsilon": epsilon, "bounds_X": (-6, 6), "random_state": seed, **COMMON, **others}
    given = {"groups": groups, "sample_weight": sample_weight}
    if n_classes:
        return DPLogisticRegression(classes=list(range(n_classes)), **facts).fit(X, y, **given)
    return DPLinearRegression(**{"bounds_y": (-30, 30), **facts}).fit(X, y, **given)


# ------------------------------------------------------------------------------- the plan


@half_is_enough
def test_the_plan_names_every_release_and_spends_the_budget(cells):
    for task, k in KINDS if cells == "all" else KINDS[::3]:
        plan = planned(50_000, 5, task, k)
        assert plan.correction is None
        named = {release.name: release for release in plan.guarantee.releases}
        assert named["score sizes"].count == 5
        assert named["second derivatives"].count == (1 if task == "regression" else 2)
        assert {"first scores", "score moments", "last scores"} <= set(named)
        assert recomputed_epsilon(plan.guarantee) <= 1 + 1e-4
        assert recomputed_epsilon(plan.guarantee) > 0.99


def test_too_few_rows_are_refused_before_anything_is_spent():
    with pytest.raises(
        ValueError, match=r"needs about \d+ rows, better \d+, for 11 coefficients"
    ) as caught:
        planned(1000, 10)
    needed = int(str(caught.value).split("about ")[1].split()[0])
    planned(math.ceil(1.1 * needed), 10)
    planned(1000, 10, epsilon=epsilon_in(caught.value))  # that it names is enough
    with pytest.raises(ValueError, match="needs about"):
        planned(int(0.9 * needed), 10)
    with pytest.raises(ValueError, match=r"\), relation='zero-out' \(half as many"):
        planned(int(1.1 * needed), 10, relation="replace-one")
    # half is not, but with a larger epsilon
    with pytest.raises(ValueError, match=r"'zero-out' \(epsilon about [.\d]+, a") as caught:
        planned(1000, 10, relation="replace-one")
    larger = float(str(caught.value).split("(epsilon about ")[1].split(",")[0])
    assert larger < 0.6 * epsilon_in(caught.value)
    planned(1000, 10, epsilon=larger)
    encoder = PublicEncoder({"a": (0, 1), "b": ["u", "v"]}, missing="indicator")
    model = DPLinearRegression(bounds_X=encoder, bounds_y=(0, 1), inference=True)
    with pytest.raises(ValueError, match=r"n_samples=200\. .*missing='keep'.*indicators: 2 fewer"):
        model.plan(200, 5)
    with pytest.raises(ValueError, match=r"n_samples=200 .rows with gaps, if there are any"):
        model.set_params(nonfinite="zero").plan(200, 5)
    # also where what comes before takes nearly all there is
    model = DPLinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1), epsilon=0.5, inference=True)
    model.set_params(delta=1e-6, relation="zero-out")
    for n in (200, 230, 1700):
        with pytest.raises(ValueError, match=r"needs about 1900 rows, .* for 5 coefficients"):
            model.plan(n, 4, 3)


@pytest.mark.filterwarnings("ignore:n_samples")
@pytest.mark.parametrize("d", [1, 10])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_as_many_rows_are_refused_as_the_guide_says(task, d):
    said = int(re.search(r":math:`(\d+) r k\^{1.5} / \\mu`", joined(DPLinearRegression.__doc__))[1])
    needed = said * (d + 1) ** 1.5 / PrivacyBudget(1.0, 1e-6).mu
    planned(int(1.13 * needed), d, task)
    with pytest.raises(ValueError, match="needs about"):
        planned(int(0.87 * needed), d, task)


@pytest.mark.parametrize(("n", "share"), [(5000, 0.03), (20_000, 0.01), (50_000, 0.005)])
def test_no_more_rows_count_less_than_the_guide_says(n, share):
    assert planned(n, 5).inference.n_cut <= share * n


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_few_rows_warn_before_anything_is_spent(task):
    with pytest.raises(ValueError, match="needs about") as caught:
        planned(1000, 10, task)
    n = int(str(caught.value).split("about ")[1].split()[0])
    assert "PrivateMoments" not in str(caught.value) or n < 2 * 1000  # which need half as many
    with pytest.raises(ValueError, match="needs about") as caught:
        planned(int(0.9 * n), 10, task)
    assert "PrivateMoments (intervals from half" in str(caught.value)
    assert ("on probabilities" in str(caught.value)) == (task == "classification")
    n *= 1.4
    with pytest.warns(PrivacyParameterWarning, match="is too small to learn from how") as warned:
        planned(int(0.9 * n), 10, task)
    assert ("PrivateMoments" in str(warned[0].message)) == (task == "regression")
    said = int(re.search(r"from about (\d+) rows on", str(warned[0].message))[1])
    with pytest.warns(PrivacyParameterWarning, match="is too small to learn from how"):
        planned(int(0.85 * said), 10, task)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned(said, 10, task)
        planned(int(0.9 * n), 10, task, epsilon=epsilon_in(warned[0].message))
        accountant = BudgetAccountant(1.0, 1e-6, relation="zero-out")
        X, y, _w = table(800, 3, 0, "labels" if task == "classification" else "normal")
        with pytest.raises(PrivacyParameterWarning, match="intervals may be the whole"):
            fitted(X, y, 2 * (task == "classification"), 1.0, None, accountant=accountant)
    assert accountant.total_spent() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "noisy-md"}, "inference=True is for solver='descent', got 'noisy-md'"),
        ({"solver": NoisyMD()}, "inference=True is for solver='descent'"),
        ({"feasible_set": L2Ball(1.0)}, "no feasible set"),
        ({"loss": "welsch"}, "inference=True is for the squared and the logistic loss"),
    ],
)
def test_what_has_no_standard_errors_is_refused(settings, message):
    model = DPMirrorRegressor(bounds_X=(0, 1), bounds_y=(0, 1), **{**COMMON, **settings})
    with pytest.raises(ValueError, match=message):
        model.plan(50_000, 3)


def test_wide_tables_are_refused():
    model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1), **COMMON)
    with pytest.raises(ValueError, match="at most 1000 features"):
        model.set_params(delta=1e-9).plan(10**7, 1001)


def test_targets_that_are_multiples_of_each_other_have_the_same_errors():
    """Without noise, the covariance of their residuals is singular."""
    X, y, _ = table(300, 2, 0)
    alone = fitted(X, y, 0, math.inf).coef_std_
    both = fitted(X, np.column_stack((y, -y)), 0, math.inf).coef_std_
    np.testing.assert_allclose(both, np.vstack((alone, alone)), rtol=1e-4)


def test_without_inference_methods_say_how_to_ask():
    X, y, _ = table(500, 2, 0)
    model = fitted(X, y, inference=False)
    assert not hasattr(model, "coef_std_")
    for call in (
        model.conf_int,
        model.summary,
        lambda: model.wald_test("x0"),
        lambda: model.predict_interval(X),
        lambda: model.predict(X, return_std=True),
    ):
        with pytest.raises(ValueError, match="fit with inference=True"):
            call()
    again = model.set_params(inference=True, epsilon=30.0).fit(X, y)
    assert again.coef_std_.shape == (2,)
    assert not hasattr(again.set_params(inference=False).fit(X, y), "coef_std_")


def test_a_summary_says_against_whom_its_claim_does_not_hold():
    X, y, _ = table(500, 2, 0)
    told = "NOT PRIVATE: random_state was given", "but not of the last digits"
    for settings in ({"seed": 0}, {"seed": None, "precision": "float"}, {"seed": None}):
        model = fitted(X, y, epsilon=30.0, **settings)
        text, flags = str(model.summary()).replace("\n  ", " "), (settings["seed"] is not None,)
        assert f"500 rows, {model.guarantee_.claim}\n" in text
        assert [one in text for one in told] == [*flags, "precision" in settings]


# ------------------------------------------------------------------------- sensitivities


@rest_is_slow(
    ("task", "n_outputs", "relation"),
    [(*kind, relation) for kind in KINDS for relation in RELATIONS],
    ["regression-1-zero-out", "regression-2-replace-one", "classification-3-zero-out"],
)
def test_no_record_moves_a_release_beyond_its_sensitivity(task, n_outputs, relation):
    plan = harmed(planned(80, 2, task, n_outputs, 400.0, relation, max_iter=2))
    found = check_sensitivity(plan, neighbours(plan.problem, relation, 4))
    assert not found.violations, found
    for name in PARTS:
        assert found.ratios[f"inference.{name}"] > 0.3, found


@rest_is_slow(
    ("power", "epsilon", "n_first", "inferred"),
    [(*of, inferred) for of in ((1, 60.0, 0), (1.5, 2e4, 1)) for inferred in (False, True)],
    ("1-60.0-0-False", "1.5-20000.0-1-True"),
)
def test_rates_are_released_as_often_as_planned(power, epsilon, n_first, inferred):
    facts = Problem(80, 2, Tweedie(power), Geometry, inference=inferred, may_be_empty=True)
    plan = Descent(max_iter=2).plan(facts, PrivacyBudget(epsilon, 1e-6, "zero-out"))
    assert plan.inference.n_first == n_first
    found = check_sensitivity(harmed(plan), neighbours(facts, "zero-out", 4))
    assert not found.violations, found
    used = {"units.positive", "units.target_median", "units.target_mean", "step"}
    used |= {"inference.size", "inference.hessian", "inference.last"}
    used |= {"inference.first"} if n_first else set()
    for name in used:
        assert found.ratios[name] > 0.3, found


@pytest.mark.parametrize(("part", "task"), [("last", "regression"), ("hessian", "classification")])
def test_a_replay_finds_what_is_not_bounded(part, task, monkeypatch):
    plan = harmed(planned(80, 2, task, 1, 400.0, max_iter=2))
    monkeypatch.setattr(inference, "clipped_to", lambda bound, norms: np.ones(norms.size))
    found = check_sensitivity(plan, neighbours(plan.problem, "zero-out", 2))
    assert f"inference.{part}" in found.violations, found


def replayed_users(task, n_outputs=1, relation="zero-out", n_pairs=2):
    """A replay on tables that differ in all four rows of a user, who reaches the clips."""
    plan = planned(80, 2, task, n_outputs, 2000.0, relation, rows=4, max_iter=2)
    pairs = neighbours(plan.problem, relation, n_pairs, rows_per_user=4)
    return check_sensitivity(harmed(plan, 10, 2, 5.0), pairs)


@pytest.mark.filterwarnings("ignore:n_users=20 is too small")
@rest_is_slow(
    ("task", "n_outputs", "relation"),
    [(*kind, relation) for kind in KINDS for relation in RELATIONS],
    ["regression-1-replace-one", "regression-2-zero-out", "classification-3-zero-out"],
)
def test_no_user_moves_a_release_beyond_what_the_claim_counts(task, n_outputs, relation):
    found = replayed_users(task, n_outputs, relation, 4)
    assert not found.violations, found
    for name in PARTS:
        assert found.ratios[f"inference.{name}"] > 0.45, found


@pytest.mark.filterwarnings("ignore:n_users=20 is too small")
def test_a_replay_finds_users_that_are_not_clipped_as_a_whole(monkeypatch):
    of_users, each = inference._of_users, np.arange(80)

    def longest_row(numbers, of_each):
        # the norm of a user's largest row in the place of that of the sum
        alone = inference.Users(each, each, each, each + 1, each >= 0)
        rows = of_users(numbers._replace(users=alone), of_each).sizes
        sizes = np.maximum.reduceat(rows[numbers.users.order], numbers.users.starts)
        return of_users(numbers, of_each)._replace(sizes=sizes)

    def each_row_a_record(of_records):
        def changed(copy, *facts):
            numbers = copy.numbers._replace(users=None)
            return of_records(dataclasses.replace(copy, numbers=numbers), *facts)

        return changed

    with monkeypatch.context() as patch:
        patch.setattr(inference, "_of_users", longest_row)
        found = replayed_users("regression").violations
        assert {"inference.first", "inference.moments", "inference.last"} <= found.keys()
        assert "inference.hessian" not in found
    with monkeypatch.context() as patch:
        for name in ("scored", "curved"):
            patch.setattr(inference, name, each_row_a_record(getattr(inference, name)))
        found = replayed_users("classification").violations
        assert {f"inference.{part}" for part in PARTS[1:]} <= found.keys()
    monkeypatch.setattr(inference, "clipped_to", lambda bound, norms: np.ones(norms.size))
    assert "inference.last" in replayed_users("regression").violations


def test_noise_does_not_grow_with_the_rows_of_a_user():
    one, many = planned(50_000, 5), planned(50_000, 5, rows=10)
    assert many.step.scale < 1.2 * one.step.scale
    for part in PARTS:
        was, found = (getattr(plan.inference, part) for plan in (one, many))
        assert found.sensitivity == pytest.approx(was.sensitivity / 10, rel=1e-6)
        assert found.sensitivity >= was.sensitivity / 10
        assert found.scale / was.scale < 2.5  # a Hessian's share follows what a mean can tell
    assert many.inference.last.scale < 1.25 * one.inference.last.scale
    assert 0.99 < recomputed_epsilon(many.guarantee) <= 1 + 1e-4
    # as many users are needed as rows are elsewhere
    with pytest.raises(ValueError, match=r"needs about \d+ rows") as caught:
        planned(1000, 10)
    needed = int(str(caught.value).split("about ")[1].split()[0])
    planned(int(11.5 * needed), 10, rows=10)
    with pytest.raises(ValueError, match="needs about"):
        planned(int(9 * needed), 10, rows=10)
    with pytest.raises(ValueError, match="independent of each other"):
        many.expected_std()


def test_second_derivatives_of_classes_are_within_their_bound():
    # the Frobenius norm of diag(p) - p p^T is at most sqrt(s (1 - s)), s the sum of squares
    rng = np.random.default_rng(0)
    for k in (2, 3, 10):
        for power in (0.1, 1.0, 10.0):
            p = rng.dirichlet(np.full(k, 1 / power), 300)
            squares = (p**2).sum(axis=1)
            norms = [np.linalg.norm(np.diag(q) - np.outer(q, q)) for q in p]
            assert np.all(norms <= np.sqrt(squares * (1 - squares)) + 1e-12)
            assert np.all(np.sqrt(squares * (1 - squares)) <= 0.5)


# ------------------------------------------------------------------------------ estimates


def test_without_noise_it_is_the_sandwich_of_statsmodels():
    models = pytest.importorskip("statsmodels.api")
    for kind, n_classes, law in (("normal", 0, "OLS"), ("labels", 2, "Logit"), ("", 3, "MNLogit")):
        X, y, _ = table(2000, 3, 0, kind)
        found = fitted(X, y, n_classes, math.inf).summary()
        assert "may be missed" not in str(found)
        other = getattr(models, law)(y, np.column_stack((X, np.ones(len(X)))))
        options = {} if law == "OLS" else {"disp": 0, "tol": 1e-12}
        other = other.fit(cov_type="HC0", **options)
        if n_classes < 3:
            np.testing.assert_allclose(found.coef[0], other.params, rtol=1e-6)
            np.testing.assert_allclose(found.std[0], other.bse, rtol=1e-6)
            np.testing.assert_allclose(found.pvalues[0], other.pvalues, rtol=1e-4, atol=1e-12)
            np.testing.assert_allclose(found.conf_int(), other.conf_int(), rtol=1e-5)
            continue
        for k in (1, 2):  # against the first class
            apart = np.zeros((4, 3, 4))
            apart[:, k], apart[:, 0] = np.eye(4), -np.eye(4)
            apart = apart.reshape(4, -1)
            np.testing.assert_allclose(
                apart @ found.coef.ravel(), other.params[:, k - 1], rtol=1e-5, atol=1e-8
            )
            np.testing.assert_allclose(found.errors(apart)[0], other.bse[:, k - 1], rtol=1e-6)
        assert np.allclose(found.coef.sum(axis=0), 0)


def table_of_users(n_users, rows, seed, n_classes=0):
    """As `table`, with what is common to the rows of a user, in any order; and the users."""
    rng = np.random.default_rng(seed)
    X, y, w = table(n_users * rows, 3, seed)
    users = rng.permutation(np.repeat(np.arange(n_users), rows))
    X[:, 0] = rng.normal(size=n_users)[users]
    y = X @ w + rng.normal(size=n_users)[users] + rng.normal(size=len(X))
    return X, (y > 0.5).astype(int) if n_classes else y, w, users


def test_without_noise_it_is_the_sandwich_clustered_by_user():
    models = pytest.importorskip("statsmodels.api")
    for n_classes, law in ((0, "OLS"), (2, "Logit")):
        X, y, _, users = table_of_users(500, 4, 0, n_classes)
        users = np.where(users % 3, users, 3 * (users // 6))  # some have more rows
        model = fitted(X, y, n_classes, math.inf, max_rows_per_user=8, groups=users)
        found = model.summary()
        options = {} if law == "OLS" else {"disp": 0, "tol": 1e-12}
        options["cov_kwds"] = {"groups": users, "use_correction": False}
        other = getattr(models, law)(y, np.column_stack((X, np.ones(len(X)))))
        other = other.fit(cov_type="cluster", **options)
        np.testing.assert_allclose(found.coef[0], other.params, rtol=1e-6)
        np.testing.assert_allclose(found.std[0], other.bse, rtol=1e-6)
        assert f"2000 rows of {len(set(users))} users, at most 8 each, eps" in str(found)
        assert "users count less" in str(found)


def test_users_of_one_row_are_rows():
    X, y, _, _ = table_of_users(2000, 1, 0)
    rows, users = fitted(X, y, 0, math.inf), np.arange(len(X))
    # and what is left out of others is not there
    some = np.append(users, [5, 5, 7])
    double = fitted(
        np.vstack((X, X[:3])), np.append(y, [30, 30, 30]), 0, math.inf, max_rows_per_user=2,
        max_weight=1.0, sample_weight=np.append(np.ones(len(X)), np.zeros(3)), groups=some,
    )  # fmt: skip
    np.testing.assert_allclose(double.summary().coef, rows.summary().coef, rtol=1e-6)
    np.testing.assert_allclose(double.coef_cov_, rows.coef_cov_, rtol=1e-4, atol=1e-12)
    with pytest.raises(ValueError, match="max_rows_per_user=1: else the variance"):
        double.predict_interval(X[:2], of="record")
    for model in (rows, double):  # PrivateMoments refuses users
        model._estimates = dataclasses.replace(model._estimates, unknown=np.eye(4)[:, :1])
        assert ("PrivateMoments" in str(model.summary())) == (model is rows)


def test_a_users_first_rows_count_until_they_are_enough():
    values, shares = np.array([3.0, 1.0, 0.0, 2.0, 8.0, 2.0]), np.ones(6)
    users = np.array([1, 0, 2, 5, 3, 4]), np.array([0, 4]), np.array([4, 6])
    shares_of_first(values, *users, 5.0, shares)  # 1, 3, 0 and 2; 2 and 8
    np.testing.assert_allclose(shares, [1, 1, 1, 1, 0.375, 0.5])


def errors_of_users(n_tables, knows_users, epsilon):
    for seed in range(n_tables):
        X, y, w, users = table_of_users(800, 10, seed)
        settings = {"max_rows_per_user": 10, "groups": users} if knows_users else {}
        yield slope_errors(fitted(X, y, 0, epsilon, seed, **settings).summary(), w)


def test_standard_errors_of_users_are_those_of_repeated_tables():
    assert is_calibrated(list(errors_of_users(20, True, 3.0)))
    # those of rows leave out what the rows of a user have in common, which little noise shows
    errors = list(errors_of_users(16, False, 30.0))
    squares = sum(error[0] ** 2 / cov[0, 0] for error, cov in errors)
    assert squares > stats.chi2(len(errors)).isf(1e-7)


def hazards(seed, n_users=3000, periods=8):
    """Periods of persons up to an event, after which they are empty."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(n_users, 2)).clip(-6, 6), periods, axis=0)
    X = np.column_stack((X, np.tile(np.linspace(0, 1, periods), n_users)))
    w = np.array([0.8, -0.4, 0.5])
    y = (rng.random(len(X)) < expit(X @ w - 1.8)).astype(float)
    before = y.reshape(n_users, -1).cumsum(axis=1).ravel() - y
    return X, np.where(before > 0, np.nan, y), w, np.repeat(np.arange(n_users), periods)


def test_what_counts_less_of_a_person_does_not_depend_on_the_outcome(monkeypatch):
    X, y, w, users = hazards(0, 20_000)
    present = np.isfinite(y)
    rows = Rows(X / 6, True, present.astype(float))
    data = SolverData(dataclasses.replace(rows, users=users), np.where(y == 1, 1.0, -1.0))
    plan = planned(len(X), 3, "classification", epsilon=1000.0, rows=8, may_be_empty=True)
    # half of the persons have more than what counts
    few = dataclasses.replace(plan.inference, n_cut=10_000)
    plan = dataclasses.replace(plan, inference=few)

    def errors():
        found = plan.run(data, stream_from_random_state(0)).estimate.table
        return (found.coef.ravel() / [6, 6, 6, 1] - [*w, -1.8]) / (
            np.sqrt(np.diag(found.sampling + found.noise)) / [6, 6, 6, 1]
        )

    assert np.all(np.abs(errors()) < 5.5)

    bounds = []

    def all_rows_alike(copy, bound):
        factors = inference.clipped_to(bound, copy.numbers.sizes) ** 2 if not bounds else 1.0
        bounds.append(bound)
        numbers = copy.numbers._replace(weights=copy.numbers.weights * factors)
        return inference.curved(dataclasses.replace(copy, numbers=numbers))

    monkeypatch.setattr(inference, "_weighed", all_rows_alike)
    assert np.any(np.abs(errors()) > 5.5)


def test_rows_count_alike_in_last_scores_and_second_derivatives(monkeypatch):
    """Also where the first step makes a rare flag's rows more informative than they seemed."""
    rng, bounds, sizes = np.random.default_rng(0), [], []
    X = (rng.random((50_000, 1)) < 0.03) * 1.0
    y = rng.random(50_000) < expit(-X[:, 0] - 2)
    weighed, summed = inference._weighed, inference.score_and_moment_sum

    def bounded(copy, bound):
        bounds.append(bound)
        return weighed(copy, bound)

    def sized(copy, clip):
        numbers, p = copy.numbers, expit(copy.numbers.raw)
        sizes.append(np.max(numbers.norms * np.sqrt(numbers.weights * p * (1 - p))) / bounds[-1])
        return summed(copy, clip)

    monkeypatch.setattr(inference, "_weighed", bounded)
    monkeypatch.setattr(inference, "score_and_moment_sum", sized)
    for seed in range(8):
        fitted(X, y, 2, epsilon=1.0, seed=seed, bounds_X=(0, 1))
    assert np.max(sizes) < 1 + 1e-9


def fits(kind, n_classes, n=6000, epsilon=1.5, n_tables=80):
    """Estimates of independent tables, with the true slopes; but for few without ends."""
    found = []
    for seed in range(n_tables):
        X, y, w = table(n, 3, seed, kind)
        found.append((fitted(X, y, n_classes, epsilon, seed).summary(), w))
    found = [(estimates, w) for estimates, w in found if np.isfinite(estimates.std).all()]
    assert len(found) >= n_tables * 15 / 16
    return found


def slope_errors(found, w):
    """Errors of the three slopes, of classes of the second less the first, and their covariance."""
    functions = np.zeros((3, *found.coef.shape))
    functions[:, 0, :3] = np.eye(3)
    if len(found.coef) > 1:
        functions[:, 1, :3], w = -np.eye(3), w[0] - w[1]
    functions = functions.reshape(3, -1)
    return functions @ found.coef.ravel() - w, functions @ found.cov @ functions.T


def is_calibrated(errors):
    """Whether whitened errors have the mean square 1, up to one in 10^7 and a tenth."""
    squares = [error @ np.linalg.solve(cov, error) for error, cov in errors]
    law = stats.chi2(3 * len(squares))
    return law.ppf(1e-7) / 1.1 < sum(squares) < law.isf(1e-7) * 1.1


@pytest.mark.parametrize(("kind", "n_classes", "n_tables"), [("normal", 0, 50), ("labels", 2, 80)])
def test_standard_errors_are_those_of_repeated_tables(kind, n_classes, n_tables):
    errors = [slope_errors(*fit) for fit in fits(kind, n_classes, n_tables=n_tables)]
    assert is_calibrated(errors)
    assert not is_calibrated([(error, cov / 2) for error, cov in errors])
    inside = [np.abs(error) < 1.96 * np.sqrt(np.diag(cov)) for error, cov in errors]
    assert 0.89 < np.mean(inside) < 1.0


@pytest.mark.slow
def test_standard_errors_of_several_classes():
    assert is_calibrated([slope_errors(*fit) for fit in fits("", 3, 20_000)])


def test_noise_left_out_is_found():
    found = fits("normal", 0, 3000, 0.7, n_tables=25)
    assert np.median([one.std_noise[0, 0] / one.std_sampling[0, 0] for one, _ in found]) > 2
    quiet = [(dataclasses.replace(one, noise=0 * one.noise), w) for one, w in found]
    assert not is_calibrated([slope_errors(*fit) for fit in quiet])


@pytest.mark.parametrize("n", [60, 900])  # the same of far fewer rows
@pytest.mark.parametrize(("d", "task"), [(5, "regression"), (8, "classification")])
def test_the_number_of_rows_that_is_named_is_enough_and_hardly_more(n, d, task):
    with pytest.raises(ValueError, match="needs about") as caught:
        planned(n, d, task)
    named = int(re.search(r"needs about (\d+) rows", str(caught.value))[1])
    with pytest.warns(PrivacyParameterWarning) as told:
        planned(named, d, task)
    refused = int(0.9 * named)
    with pytest.raises(ValueError, match="needs about"):
        planned(refused, d, task)
    while named - refused > 1:  # to the fewest rows that are only warned of
        middle = (refused + named) // 2
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                planned(middle, d, task)
            named, told = middle, warned
        except ValueError:
            refused = middle
    assert ("PrivateMoments" in str(told[0].message)) == (task == "regression")


@pytest.mark.parametrize(("d", "epsilon"), [(3, 1.0), (5, 3.0)])
def test_the_number_of_users_that_is_named_is_enough(d, epsilon):
    """Some shares of the budget go by the number of users."""
    with pytest.raises(ValueError, match="needs about") as caught:
        planned(300, d, epsilon=epsilon, rows=5)
    needed, better = re.search(r"about (\d+) users, better (\d+)", str(caught.value)).groups()
    with pytest.raises(ValueError, match="needs about"):
        planned(5 * int(0.9 * int(needed)), d, epsilon=epsilon, rows=5)
    with pytest.warns(PrivacyParameterWarning, match="too small to learn"):
        planned(5 * int(needed), d, epsilon=epsilon, rows=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned(5 * int(better), d, epsilon=epsilon, rows=5)


def test_intervals_of_few_rows_allow_for_the_length_of_the_last_step():
    """Of labels, whose second derivatives change on its way: .83 of them held without that."""
    rng, held = np.random.default_rng(0), []
    for seed in range(70):
        X = rng.normal(size=(1000, 1)).clip(-5, 5)
        model = DPLogisticRegression(
            bounds_X=(-5, 5), classes=[False, True], inference=True, random_state=seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyParameterWarning)
            low, high = model.fit(X, rng.random(1000) < expit(X[:, 0])).conf_int()[0]
        if np.isfinite(high - low):
            held.append(low <= 1 <= high)
    assert len(held) > 46
    assert np.mean(held) > 0.91


def test_intervals_hold_where_events_are_few():
    """Fewer than ranks of scores can see, whose scores are most of what there is."""
    held = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(20_000, 5))
        true = np.array([2.0, -1.0, 0.0, 0.0, 0.0, -5.6])
        y = (rng.random(len(X)) < expit(X @ true[:5] + true[5])).astype(int)
        model = fitted(X, y, 2, 1.5, seed, bounds_X=(0, 1), relation="replace-one")
        assert y.sum() < 2 * model.plan_.inference.n_large
        low, high = np.asarray(model.conf_int()).T
        held.append((low <= true) & (true <= high))
    assert np.mean(held) > 0.88, np.mean(held, axis=0)


@pytest.mark.filterwarnings("ignore:of some columns the released numbers say nothing")
def test_odds_ratios_hold_where_a_rare_flag_has_few_events():
    # 47 of 1000 rows, which no rank of scores sees, and a descent that ends far off
    held = []
    for seed in range(7, 14):
        rng = np.random.default_rng(seed)
        X = (rng.random((20_000, 1)) < 0.05).astype(float)
        y = (rng.random(len(X)) < expit(-X[:, 0] - 2)).astype(int)
        model = fitted(X, y, 2, 1.0, seed, bounds_X=(0, 1))
        low, high = np.asarray(model.conf_int())[0]
        held.append(low <= -1 <= high)
    assert np.mean(held) > 0.8


@pytest.mark.filterwarnings("ignore:of some columns the released numbers say nothing")
@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 0.009), (math.inf, 1e-4)])
def test_a_flag_that_rules_a_label_out_hides_no_level(epsilon, most):
    """Its slope has no end, and no error of it makes the level of the other rows unknown."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(15_000, 8)).clip(-4, 4)
        X[:, 0] = rng.random(15_000) < 0.3
        p = np.where(X[:, 0], 0.0, expit(0.25 * X[:, 1:] @ rng.normal(size=7) + 2))
        y = (rng.random(15_000) < p).astype(int)
        bounds = [0] + [-4] * 7, [1] + [4] * 7
        found = fitted(X, y, 2, epsilon, seed, bounds_X=bounds).predict_proba(X)
        best = LogisticRegression(C=1e6, max_iter=1000).fit(X, y).predict_proba(X)
        assert log_loss(y, found) - log_loss(y, best) < most


def test_without_noise_steps_find_slopes_of_clear_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15_000, 8)).clip(-4, 4)
    y = (rng.random(15_000) < expit(30 * X @ rng.normal(size=8))).astype(int)
    best = LogisticRegression(C=np.inf, max_iter=3000, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(fitted(X, y, 2, math.inf).coef_, best.coef_, rtol=1e-3)


def test_rare_labels_with_many_strong_columns_are_not_far_from_the_last_step():
    """Their level is far below the log-odds of their frequency, from where steps fall short."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 20)).clip(-5, 5)
    y = (rng.random(len(X)) < expit(0.4 * X.sum(axis=1) - 4)).astype(int)
    found = fitted(X, y, 2, bounds_X=(-5, 5), relation="replace-one").summary()
    assert np.median(found.std_noise[0] / found.std_sampling[0]) < 2.5
    assert np.all(np.abs(found.coef[0, :20] - 0.4) < 5 * found.std[0, :20])


def test_last_steps_leave_a_part_where_they_move_rows_of_one_column_by_far():
    plan = planned(10_000, 2, "classification")
    units = SimpleNamespace(
        problem=plan.problem,
        frame=Frame(center=np.array([0.0, 0.5])),
        unit=np.full(3, 2.0),
        transform=np.diag([3.0, 1.0, 1.0]),
    )

    def far(longest, step):
        return inference._far(units, longest, np.array(step))[0].max()

    # rows as long as 3 * 2 and 1.5 * 2
    assert far(10.0, [0.3, 0.6, 9.0]) == 0.0
    assert far(10.0, [0.5, 0.0, 9.0]) == pytest.approx(0.5)
    assert far(4.0, [0.0, -1.0, 0.0]) == pytest.approx(0.5)
    assert far(4.0, [-0.75, 0.0, 0.0]) == pytest.approx(0.5)
    assert far(10.0, [-5.0, 0.0, 0.0]) == 1.0


def test_what_steps_of_rates_leave_is_an_error_of_each_column_alone():
    """A group's rate is off by what its step is longer than the logarithm that it needs."""
    transform = np.array([[3.0, 1.0, 0.0], [0.5, 2.0, 0.0], [0.0, 0.0, 1.0]])
    center, unit, slopes = np.array([0.0, -0.5]), np.array([1.0, 0.5, 1.0]), np.array([0.8, 0.02])
    facts = SimpleNamespace(n_features=2, dimension=3, loss=Tweedie(1))
    units = SimpleNamespace(
        problem=facts, frame=Frame(center=center), unit=unit, transform=transform
    )
    to_plain = transform * unit
    step = np.linalg.solve(to_plain, np.append(slopes, 0.3))
    inverse = np.diag([2.0, 1.0, 0.5])
    left = to_plain @ inference._left(units, 100.0, step, inverse) @ to_plain.T
    moved = slopes * (1 + np.abs(center))
    errors = (moved - np.log1p(moved)) / (1 + np.abs(center))
    expected = np.diag(np.append(errors**2, 0.0))
    # rows that are 0 in all columns, as the inverse spreads what the step leaves there
    row = np.append(-center, 1.0) @ to_plain
    own = to_plain @ inverse @ row / (row @ inverse @ row)
    moved = center @ slopes
    expected += (moved - np.log1p(moved)) ** 2 * np.outer(own, own)
    np.testing.assert_allclose(left, inference._SURE * expected, atol=1e-12)


def test_rates_of_a_reference_category_that_are_low_move_no_other_out_of_its_interval():
    """One step from twice the rate leaves a third of the way, in all others against it."""
    held = []
    for seed in (0, 4, 18, 22):
        rng = np.random.default_rng(seed)
        places = rng.choice(21, 20_000, p=[0.05, *[0.95 / 20] * 20])
        X, effects = np.eye(21)[places][:, 1:], 0.5 * rng.normal(size=21)
        effects[0] = -1.0
        y = rng.poisson(np.exp(effects[places])).clip(0, 30)
        logs = np.log([y[places == k].mean() for k in range(21)])
        model = DPPoissonRegressor(
            epsilon=3.0, bounds_X=(0, 1), bounds_y=(0, 30), random_state=seed, **COMMON
        )
        found = model.fit(X, y).summary()
        off = np.abs(found.coef[0, :20] - (logs[1:] - logs[0]))
        held.append(np.mean(off <= found.half_widths(np.eye(21))[:20]))
    assert min(held) > 0.97


def test_errors_of_known_size_are_covered_beside_noise_of_any_size():
    sizes = np.linspace(0, 20, 1000)  # in standard deviations of the noise
    half = stats.norm.ppf(0.975) * np.sqrt(1 + inference._SURE * sizes**2)
    assert (stats.norm.cdf(half - sizes) - stats.norm.cdf(-half - sizes)).min() > 0.936


def test_the_noise_of_a_step_of_labels_does_not_bend_it(monkeypatch):
    """What second derivatives change on the way of is the error, in their norm."""
    found, of_noise, bend = {}, inference._noise, inference._bend

    def noted(problem, bread, error, variance):
        found.update(bread=bread, error=error)
        return of_noise(problem, bread, error, variance)

    def bent(energy, balance):
        found.update(energy=energy)
        return bend(energy, balance)

    monkeypatch.setattr(inference, "_noise", noted)
    monkeypatch.setattr(inference, "_bend", bent)
    monkeypatch.setattr(inference.Bread, "careful", lambda bread, task: bread)
    X, y, _ = table(4000, 3, 0, "labels")
    fitted(X, y, 2, epsilon=1.5)
    error = found["error"]
    assert found["energy"] == pytest.approx(error @ np.linalg.solve(found["bread"].inverse, error))
    assert found["energy"] > 0


def test_errors_in_directions_that_noise_hides_are_about_as_large_as_effects(monkeypatch):
    found, in_plain_units = [], inference._in_plain_units

    def noted(units, table, *others):
        found.append(table)
        return in_plain_units(units, table, *others)

    monkeypatch.setattr(inference, "_in_plain_units", noted)
    monkeypatch.setattr(inference, "_left", lambda *facts: 0.0)
    monkeypatch.setattr(inference, "_short", lambda *facts: 0.0)
    rng, d = np.random.default_rng(2), 20
    X = rng.normal(size=(3000, d)).clip(-6, 6)
    y = (rng.random(3000) < expit(X.sum(axis=1) / 1.5 - 4)).astype(int)
    fitted(X, y, 2)
    hidden = found[0].unknown.T @ found[0].noise @ found[0].unknown
    assert len(hidden) > 0
    np.testing.assert_allclose(hidden, np.diag(np.diag(hidden)), atol=1e-9 * hidden.max())
    effects = (0.65 * np.linalg.norm(found[0].coef.ravel()[:d])) ** 2 / d
    # as columns seem to vary less there, by a part of what others do that is not far below 1
    larger = np.diag(hidden) / effects / (found[0].unknown ** 2).sum(axis=0)
    assert (larger >= 1 - 1e-9).all()
    assert larger.max() > 1.2
    assert (larger <= (1 + 1e-9) / 0.36).all()  # beyond, `unknown` is as much longer


def test_a_reference_category_that_noise_hides_moves_no_other_out_of_its_interval():
    """All categories against the reference vary little, and are off by as much more together."""
    held = []
    for seed in range(12, 24):
        rng = np.random.default_rng(seed)
        places = rng.choice(21, 6000, p=[0.02, *[0.98 / 20] * 20])
        X, effects = np.eye(21)[places][:, 1:], 0.5 * rng.normal(size=21)
        effects[0] = 3.0
        y = (effects[places] + rng.normal(size=6000)).clip(-6, 6)
        found = fitted(X, y, epsilon=2.0, seed=seed, bounds_X=(0, 1), bounds_y=(-6, 6)).summary()
        if found.unknown.shape[1] > 0:
            least_squares = np.linalg.lstsq(np.column_stack((X, np.ones(6000))), y, rcond=None)[0]
            off = np.abs(found.coef[0] - least_squares)
            held.append(np.mean(off <= found.half_widths(np.eye(21))))
    assert len(held) > 1
    assert min(held) > 0.9


def test_first_steps_of_few_coefficients_of_labels_have_a_larger_share():
    """A long last step errs by more than its noise; of many, its noise is the larger part."""
    one, three, several = (
        planned(5000, d, "classification", epsilon=3.0).inference for d in (1, 3, 8)
    )
    ratios = [part.first.scale / part.last.scale for part in (one, three, several)]
    assert ratios[0] < 0.65 * ratios[1]
    assert ratios[1] == pytest.approx(ratios[2], rel=0.3)
    # and of one it is not more than that of the last ones, from the fewest rows on
    for n in (450, 1000, 3000):
        model = DPLogisticRegression(
            epsilon=1.0, bounds_X=(-6, 6), classes=[0, 1], fit_intercept=False, **COMMON
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyParameterWarning)
            alone = model.plan(n, 1).inference
        assert 1 < alone.first.scale / alone.last.scale < 1.6


def test_where_rows_are_scarce_second_derivatives_have_a_larger_share():
    shares = []
    for n in (4200, 6500):
        steps = planned(n, 20, "classification", epsilon=3.0).inference
        accuracy = steps.n_hessians / steps.hessian.scale**2
        shares.append(accuracy / (accuracy + 1 / steps.last.scale**2))
    assert shares[0] > 1.5 * shares[1]


def test_the_noise_of_a_step_of_rates_is_no_error_before_it(monkeypatch):
    """The noise in second derivatives times an error, and not times the noise in scores."""
    rng, called, of_noise = np.random.default_rng(0), [], inference._noise
    X = rng.uniform(-1, 1, size=(8000, 3))
    y = rng.poisson(np.exp(X @ [0.5, 0.2, -0.2]))

    def noted(problem, bread, error, variance):
        called.append((bread, error, variance))
        return of_noise(problem, bread, error, variance)

    def left(units, longest, step, inverse):
        called.append(step)
        return np.zeros((4, 4))

    monkeypatch.setattr(inference, "_noise", noted)
    monkeypatch.setattr(inference, "_left", left)
    monkeypatch.setattr(inference.Bread, "careful", lambda bread, task: bread)
    model = DPPoissonRegressor(epsilon=3.0, bounds_X=(-1, 1), bounds_y=(0, 20), **COMMON)
    shares = []
    for seed in range(4):
        model.set_params(random_state=seed).fit(X, y)
        (bread, error, variance), step = called[-2:]
        of_step = float(step @ step) - variance * float((bread.inverse**2).sum())
        assert float(error @ error) == pytest.approx(max(0.0, of_step), rel=1e-9)
        shares.append(float(error @ error) / float(step @ step))
    assert 0 < max(shares) < 1


def test_what_a_step_leaves_lies_along_effects_the_step_and_the_level():
    """Of normal rows, in the norm of the second derivatives."""
    plan, rng = planned(10_000, 10, "classification"), np.random.default_rng(0)
    Z = np.column_stack((rng.normal(size=(40_000, 10)), np.ones(40_000)))
    coef, off = np.linspace(-0.5, 0.5, 11), 0.15 * rng.normal(size=11)
    p, truth = expit(Z @ coef), expit(Z @ (coef - off))
    values, vectors = np.linalg.eigh((Z.T * (p * (1 - p))) @ Z / len(Z))
    root = vectors / np.sqrt(values)
    step = root @ root.T @ Z.T @ (p - truth) / len(Z)
    none = vectors[:, :0]
    bread = inference.Bread(np.eye(11), root @ root.T, root, none, none, 0.0)
    along = inference._bent(plan.problem, bread, coef, step)
    assert along.shape == (11, 3)
    error = np.linalg.solve(root, off - step)
    assert np.linalg.norm(error - along @ (along.T @ error)) < 0.1 * np.linalg.norm(error)


def test_a_rare_class_leaves_slopes_their_intervals():
    """Its level, which hardly shows, was taken for so unknown that all slopes were."""
    errors, stds = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(50_000, 10)).clip(-5, 5)
        slopes = np.array([0 * X[0], np.linspace(0.5, -0.5, 10), np.linspace(-0.4, 0.6, 10)])
        scores = X @ slopes.T + [0, -3.2, -4.2] + rng.gumbel(size=(len(X), 3))
        model = fitted(X, scores.argmax(axis=1), 3, 1.0, seed, bounds_X=(-5, 5))
        found = model.summary(base=0)
        errors.append(found.coef[:, :10] - slopes[1:])
        stds.append(found.std[:, :10])
    assert np.mean(np.abs(errors) < 2 * np.array(stds)) > 0.93
    assert np.median(stds) < 3 * np.std(errors)


def test_what_is_unknown_of_rare_classes_leaves_that_of_common_ones():
    """It was allowed for in each of many directions by itself."""
    n, stds, errors = 6000, [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, slopes = rng.normal(size=(n, 2)), np.array([[0, 0], [0.5, -0.3], [1, 0.5], [-1, 0.3]])
        y = (X @ slopes.T + [0, 0.2, -4, -4] + rng.gumbel(size=(n, 4))).argmax(axis=1)
        found = fitted(X, y, 4, 1.0, seed).summary(base=0)
        assert found.unknown.shape[1] > 2
        stds.append(found.std[0, :2])
        errors.append(found.coef[0, :2] - slopes[1])
    assert np.median(stds) < 3 * math.sqrt(4.6 / n)  # 2.2 times that without privacy
    assert np.mean(np.square(np.divide(errors, stds))) < 2


def test_columns_that_are_mostly_0_leave_others_their_intervals():
    # 3 % of the rows are far longer than others, and noise was in proportion to these
    n, slopes, ends = 10_000, np.linspace(0.5, 0.1, 5), []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 5)).clip(-4, 4)
        X[:, :2] = np.where(rng.random((n, 2)) < 0.03, rng.gamma(2, 1, (n, 2)).clip(0, 10), 0)
        low, high = np.array([0, 0, -4, -4, -4]), np.array([10, 10, 4, 4, 4])
        y = X @ slopes + rng.normal(size=n)
        model = fitted(X, y, seed=seed, bounds_X=(low, high), bounds_y=(-20, 20))
        found = np.asarray(model.conf_int())[:5]
        ends.append(np.isfinite(found).all(axis=1))
        assert np.mean((found[:, 0] <= slopes) & (slopes <= found[:, 1])) > 0.5
    assert np.mean(ends) > 0.9


def test_sizes_beyond_all_rows_are_hardly_ever_selected():
    """A hundred places, each about eight noises of the selection less likely than the right one."""
    steps = planned(10_000, 8, "classification").inference
    select = Recorder(2.0, steps.size.scale)
    steps = dataclasses.replace(steps, size=select)
    sizes = np.sqrt(np.random.default_rng(0).chisquare(8, 10_000)) / 6
    counts = place_counts(sizes, np.ones(10_000, dtype=bool), inference._SIZES)
    copy = SimpleNamespace(sum=lambda *_: counts)
    steps._sizes(copy, 10_000, (steps.n_large,), stream_from_random_state(0))
    law = softmax(select.scores / select.scale)
    assert law[1.2 * sizes.max() < inference._SIZES].sum() < 0.002


def test_sizes_of_scores_are_found_where_a_tenth_has_targets():
    for seed in (24, 27):
        rng = np.random.default_rng(60_000 + seed)
        X, slopes = rng.uniform(-1, 1, (8000, 6)), np.linspace(1, 0.2, 6)
        slopes *= 0.9 / slopes.sum()
        y = np.where(rng.random(8000) < 0.1, rng.gamma(0.7, (1 + X @ slopes) / 0.07), 0)
        facts = {"bounds_X": (-1, 1), "bounds_y": (0, 500), "relation": "replace-one"}
        found = fitted(X, y, 0, 1.0, seed, **facts).summary()
        assert np.all(np.abs(found.coef[0] - [*slopes, 1]) < 5 * found.std[0])


@pytest.mark.parametrize(
    ("model", "high"), [(DPLinearRegression, 1), (DPPoissonRegressor, 1), (DPPoissonRegressor, 50)]
)
def test_clips_are_not_far_beyond_the_scores_of_rare_events(model, high):
    """Most scores say nothing of their tail, which ends at 1."""
    n, p, found = 5000, 0.06, []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(n, 4)).clip(-5, 5), (rng.random(n) < p).astype(float)
        facts = {"bounds_X": (-5, 5), "bounds_y": (0, high), "random_state": seed}
        found.append(model(epsilon=1.0, **COMMON, **facts).fit(X, y).summary())
    usual = math.sqrt((p * (1 - p) if model is DPLinearRegression else 1 / p) / n)
    assert np.median([one.std[0, :4] for one in found]) < 4 * usual
    assert np.mean(np.square([one.tvalues[0, :4] for one in found])) < 2


def test_the_tail_of_scores_is_seen_by_two_selections(monkeypatch):
    """Both are noisy, and a power of what they tell makes the clip."""
    X, y, _ = table(4000, 2, 0)
    sizes, clips, found = [], [], inference.NewtonSteps._sizes
    monkeypatch.setattr(
        inference.NewtonSteps, "_sizes", lambda *facts: sizes.append(found(*facts)) or sizes[-1]
    )
    summed = inference.score_and_moment_sum
    monkeypatch.setattr(
        inference, "score_and_moment_sum", lambda *facts: clips.append(facts[1]) or summed(*facts)
    )
    for seed in range(20):
        model = fitted(X, y, 0, 1.0, seed)
        _, (first,), (usual, large) = sizes[-3:]
        steps = model.plan_.inference
        assert clips[-1] == steps.clip(usual, math.sqrt(first * large), len(X), 4.0)
    assert any(
        first != large for (first,), (_, large) in zip(sizes[1::3], sizes[2::3], strict=True)
    )


def test_scores_that_a_clip_cuts_are_told():
    def pvalue(seed, is_far):
        X, y, _ = table(5000, 2, seed)
        if is_far:  # some targets far out, all on one side
            y = y + 25 * (np.random.default_rng(seed).random(len(y)) < 0.02)
        note = fitted(X, y, 0, 1.0, seed).summary().notes[3]
        return float(note.split("p=")[1].split()[0])

    assert stats.kstest([pvalue(seed, False) for seed in range(25)], "uniform").pvalue > 1e-4
    assert np.mean([pvalue(seed, True) < 0.05 for seed in range(9)]) > 0.5  # .05 by chance
    X, _, _ = table(5000, 2, 0)
    # what is left after a step by strong effects on labels, or by rows through 0 of other lengths,
    # is no sign of a clip
    assert "smaller clip" not in str(fitted(X, (X[:, 0] > 0).astype(int), 2).summary())
    assert "smaller clip" not in str(fitted(X, X[:, 0], fit_intercept=False).summary())


def test_weights_of_rows_that_are_all_as_long_are_no_sign_of_a_clip():
    found, facts = [], {"bounds_X": (0, 1), "bounds_y": (0, 1000), "epsilon": 8.0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = (rng.random((5000, 7)) < 0.5).astype(float)
        y = 50 + X.sum(axis=1) + rng.normal(size=len(X))
        note = fitted(X, y, seed=seed, **facts).summary().notes[3]
        found.append(float(note.split("p=")[1].split()[0]))
    assert stats.kstest(found, "uniform").pvalue > 1e-4


@pytest.mark.filterwarnings(
    "ignore:of some columns:sklearn_dpsco.exceptions.PrivacyParameterWarning"
)
@pytest.mark.parametrize("effect", [-4.0, -10.0])
def test_a_group_of_hardly_any_events_may_have_fewer_than_a_step_tells(effect):
    # one step lowers log-odds by hardly more than 1, however rare a label is
    def interval(seed):
        rng = np.random.default_rng([seed, 7])
        X = rng.normal(size=(20_000, 3))
        X[:, 0] = rng.random(len(X)) < 0.05
        log_odds = effect * X[:, 0] + 0.3 * X[:, 1] - 2.2
        y = rng.random(len(X)) < 1 / (1 + np.exp(-log_odds))
        facts = {"bounds_X": ([0, -5, -5], [1, 5, 5]), "relation": "replace-one"}
        return fitted(X, y.astype(int), 2, 3.0, seed, **facts).conf_int()[0]

    ends = np.array([interval(seed) for seed in range(60)])
    assert np.sum((ends[:, 0] > effect) | (ends[:, 1] < effect)) <= 3, ends
    assert np.isfinite(ends).all(axis=1).sum() >= 3


def test_a_number_that_a_rare_label_goes_with_has_an_interval():
    """Rows where the label is likely tell most; about others, noise hid slope and level at once."""
    ends, slopes = [], np.array([-3.0, 0.5, 0.0])
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = np.column_stack((rng.uniform(-1, 1, 10_000), rng.normal(size=(10_000, 2)).clip(-5, 5)))
        y = (rng.random(len(X)) < expit(X @ slopes - 4.5)).astype(int)
        ends.append(fitted(X, y, 2, seed=seed, bounds_X=([-1, -5, -5], [1, 5, 5])).conf_int()[:3])
    widths = np.diff(ends)[..., 0]
    assert np.isfinite(widths).all()
    assert np.all(np.median(widths, axis=0) < [1.5, 0.4, 0.4])
    assert np.mean(np.abs(np.mean(ends, axis=2) - slopes) < widths / 2) >= 0.9


@pytest.mark.filterwarnings(
    "ignore:of some columns:sklearn_dpsco.exceptions.PrivacyParameterWarning"
)
@pytest.mark.parametrize(
    ("share", "effect", "seeds"),
    [
        # noise has made second derivatives of the group larger, and the step too short
        (0.3, -10.0, ((4, 7), (12, 7), (16, 7), (18, 7))),
        # the step leaves a part that is known but for noise
        (0.05, -4.0, ((10, 5), (13, 5), (14, 5), (34, 5), (41, 5), (44, 5))),
    ],
)
def test_what_a_step_leaves_of_a_group_is_in_its_interval(share, effect, seeds):
    """Of tables and noise that showed the defect."""
    held = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(50_000, 3))
        X[:, 0] = rng.random(len(X)) < share
        log_odds = effect * X[:, 0] + 0.3 * X[:, 1] - 1.0
        y = rng.random(len(X)) < 1 / (1 + np.exp(-log_odds))
        facts = {"bounds_X": ([0, -5, -5], [1, 5, 5]), "relation": "zero-out"}
        low, high = fitted(X, y.astype(int), 2, 3.0, seed[0], **facts).conf_int()[0]
        held.append(low < effect < high)
    assert np.mean(held) > 0.7, held


def test_without_noise_columns_that_are_the_same_have_no_ends():
    X = np.random.default_rng(0).standard_normal((2000, 3))
    X[:, 2] = X[:, 0]
    model = fitted(X, X[:, 0] + X[:, 1], 0, math.inf)
    assert np.isinf(model.coef_std_).tolist() == [True, False, True]
    np.testing.assert_allclose(model.coef_, [0.5, 1.0, 0.5], rtol=0.01)


def test_what_a_step_leaves_of_a_reference_category_is_in_all_intervals():
    """Of tables and noise that showed the defect."""
    held = []
    for seed in (29, 55, 121, 125, 132, 156):
        rng = np.random.default_rng(seed)
        places = rng.choice(5, 20_000, p=[0.03, *[0.97 / 4] * 4])
        y = rng.random(20_000) < expit(np.where(places > 0, -3.0, -4.0))
        X = np.eye(5)[places][:, 1:]
        ends = fitted(X, y.astype(int), 2, 3.0, seed, bounds_X=(0, 1)).conf_int()
        assert np.isfinite(ends).all()
        held.append(ends[-1, 0] < -4 < ends[-1, 1])
    assert np.mean(held) > 0.7, held


def test_the_reference_of_a_list_of_flags_is_a_group():
    shares = np.array([0.3, 0.6, 0.2])  # two of one list, and one by itself
    cov = np.diag(shares) - np.outer(shares, shares)
    cov[2, :2] = cov[:2, 2] = 0.0
    units = SimpleNamespace(
        problem=SimpleNamespace(n_features=3, from_zero=(True,)),
        frame=SimpleNamespace(center=shares + 0.1),
        shift=(0.1, None),
        transform=np.linalg.inv(np.linalg.cholesky(cov)).T,
        unit=np.ones(4),
        spread=1.0,
    )
    rows, alike, is_reference = inference._groups(units)
    found = rows[:, :3] @ np.linalg.inv(units.transform) + shares + 0.1
    reference, lone = [0, 0, 0.2], [0.3, 0.6, 0]
    ends = np.where(np.eye(3) > 0, 1.0, shares)
    np.testing.assert_allclose(found, [*ends, reference, reference, lone], atol=1e-12)
    np.testing.assert_allclose(alike, 1.0)
    assert is_reference.tolist() == [False, False, False, True, True, False]


def test_means_that_bend_in_a_skewed_column_are_told():
    def pvalue(seed, bends):
        X, noise = (np.random.default_rng([seed, k]).normal(size=(25_000, 2)) for k in (0, 1))
        logs = X[:, 0].copy()
        X[:, 0] = (np.exp(0.8 * logs) - np.exp(0.32)) / 1.28  # as incomes
        y = 0.5 * (logs if bends else X[:, 0]) + 0.3 * X[:, 1] + noise[:, 0]
        model = fitted(X, y, 0, 3.0, seed, bounds_X=([-2, -5], [20, 5]))
        note = next(note for note in model.summary().notes if "p=" in note)
        assert "long rows count less" in note
        return float(note.split("p=")[1].split()[0])

    assert np.mean([pvalue(seed, True) < 0.02 for seed in range(8)]) > 0.6
    assert np.mean([pvalue(seed, False) < 0.02 for seed in range(8)]) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n_classes"), [("normal", 0), ("labels", 2)])
def test_pvalues_are_uniform_under_the_null(kind, n_classes):
    found = []
    for seed in range(500):
        X, _, _ = table(2000, 3, seed)
        rng = np.random.default_rng(10_000 + seed)
        y = rng.random(2000) < 0.4 if n_classes else rng.normal(size=2000)
        found.append(fitted(X, y * 1.0, n_classes, 2.0, seed).summary().pvalues[0, 0])
    assert stats.kstest(found, "uniform").pvalue > 1e-4


def test_a_column_that_never_occurs_has_the_whole_line():
    X, y, _w = table(5000, 3, 0)
    X = np.column_stack((X, np.zeros(len(X))))
    for n_classes, target in ((0, y), (2, (y > 0).astype(int))):
        found = fitted(X, target, n_classes, 2.0).summary()
        assert np.isinf(found.std).tolist() == [[False, False, False, True, False]]
        assert found.conf_int()[3].tolist() == [-np.inf, np.inf]
        note = found.notes[-1]
        words = "rare columns", "go together", "take (age - 40) ** 2", "or are sums of others"
        assert all(some in note for some in (*words, "drop='first'", "a larger epsilon"))
        assert ("strong effects" in note) == ("on 0/1" in note) == (n_classes == 2)
        assert "of the coefficients of x3: noise" in note


def test_residuals_are_those_of_all_rows():
    """Slopes follow from rows that are far out, whose variance is another one here."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    far = (X**2).sum(axis=1)
    for sd, epsilons in ((far / 3, (np.inf,)), (2 / (1 + far), (np.inf, 3.0))):
        y, of_all = X.sum(axis=1) + sd * rng.normal(size=len(X)), math.sqrt(np.mean(sd**2))
        for epsilon in epsilons:
            given = {"bounds_X": (-20, 20), "bounds_y": (-50, 50), "epsilon": epsilon}
            found = fitted(X, y, **given).summary().residual_std
            assert found[0] == pytest.approx(of_all, rel=0.02 if math.isinf(epsilon) else 0.08)


def test_several_targets_have_their_own_errors():
    X, y, w = table(20_000, 3, 0)
    rng = np.random.default_rng(5)
    Y = np.column_stack((y, 4 * rng.normal(size=len(X)) + X[:, 2]))
    model = fitted(X, Y, bounds_y=([-30, -60], [30, 60]))
    assert model.coef_std_.shape == (2, 3)
    assert model.conf_int().shape == (2, 4, 2)
    assert model.coef_cov_.shape == (8, 8)
    found = model.summary()
    assert np.all(np.abs(found.coef[:, :3] - [w, [0, 0, 1]]) < 6 * model.coef_std_)
    np.testing.assert_allclose(found.residual_std[1], 4, rtol=0.1)
    mean, std = model.predict(X[:5], return_std=True)
    assert mean.shape == std.shape == (5, 2)
    assert model.predict_interval(X[:5]).shape == (5, 2, 2)


def test_weights_and_empty_records():
    X, y, _w = table(20_000, 3, 0)
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0], len(X))
    broken = X.copy()
    broken[::50, 0] = np.nan
    settings = {"nonfinite": "zero", "max_weight": 1.0, "sample_weight": weight}
    model = fitted(broken, y, 0, math.inf, **settings)
    kept = np.isfinite(broken).all(axis=1)
    Z = np.column_stack((X, np.ones(len(X))))[kept]
    v, r = weight[kept], y[kept]
    bread = np.linalg.inv((Z.T * v) @ Z)
    coef = bread @ Z.T @ (v * r)
    meat = (Z.T * (v * (Z @ coef - r)) ** 2) @ Z
    np.testing.assert_allclose(model.summary().coef[0], coef, rtol=1e-5)
    np.testing.assert_allclose(model.coef_cov_, bread @ meat @ bread, rtol=1e-4, atol=1e-9)


def test_the_model_that_predicts_best_loses_little():
    losses = {False: [], True: []}
    for asked in losses:
        for seed in range(5):
            X, y, _w = table(20_000, 5, seed)
            model = fitted(X, y, epsilon=1.0, seed=seed, inference=asked)
            losses[asked].append(model.score(X, y))
    assert np.median(losses[True]) > np.median(losses[False]) - 0.01


# ----------------------------------------------------------------------------- predictions


def test_intervals_of_predictions():
    X, y, _w = table(20_000, 3, 0)
    model = fitted(X, y)
    mean, std = model.predict(X[:10], return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X[:10]))
    found = model.summary()
    rows = np.column_stack((X[:10], np.ones(10)))
    np.testing.assert_allclose(std, np.sqrt(np.diag(rows @ model.coef_cov_ @ rows.T)))
    ends = model.predict_interval(X[:10])
    np.testing.assert_allclose(ends.mean(axis=1), rows @ found.coef[0])
    wide = model.predict_interval(X, of="record")
    inside = np.mean((wide[:, 0] < y) & (y < wide[:, 1]))
    assert 0.9 < inside < 0.99
    few = clone(model).set_params(bounds_y=(0, 2)).fit(X, y)
    wide = few.predict_interval(X, of="record")
    assert (wide.min(), wide.max()) == (0, 2)
    few.set_params(bounds_y=None)  # of the next fit
    np.testing.assert_array_equal(few.predict_interval(X, of="record"), wide)
    assert np.all(np.diff(model.predict_interval(X[:10], level=0.5)) < np.diff(ends))


def test_intervals_of_predictions_of_a_raw_table():
    pandas = pytest.importorskip("pandas")
    raw = pandas.DataFrame({"age": np.linspace(20, 80, 3000), "sex": ["f", "m"] * 1500})
    encoder = PublicEncoder({"age": (0, 100), "sex": ["f", "m"]}, drop="first")
    settings = {"bounds_X": encoder, "bounds_y": (0, 1), "epsilon": 8.0, "inference": True}
    pipe = make_pipeline(encoder, DPLinearRegression(**settings, random_state=0))
    pipe.fit(raw, np.linspace(0, 1, 3000))
    expected = pipe[-1].predict_interval(encoder.transform(raw[:4]), level=0.9, of="record")
    np.testing.assert_array_equal(predict_interval(pipe, raw[:4], level=0.9, of="record"), expected)
    with pytest.raises(ValueError, match=r"predict_interval\(pipeline, X\)"):
        pipe[-1].predict_interval(raw[:4])
    with pytest.raises(TypeError, match=r"has no alpha: say level=0\.95"):
        predict_interval(pipe, raw[:4], alpha=0.1)
    pipe = clone(pipe).set_params(dplinearregression__random_state=None)
    grid = {"dplinearregression__fit_intercept": [True]}
    search = DPGridSearchCV(pipe, grid, epsilon=8.0, random_state=0)
    search.fit(raw, np.linspace(0, 1, 3000))
    assert predict_interval(search, raw[:4]).shape == (4, 2)
    with pytest.raises(AttributeError, match=r"sklearn_dpsco\.predict_interval\(search, X\)"):
        _ = search.predict_interval
    streaming = DPFTRLRegressor(bounds_X=(0, 1), bounds_y=(0, 1)).fit(raw[["age"]], raw["age"])
    with pytest.raises(ValueError, match="DPFTRLRegressor has no intervals"):
        predict_interval(streaming, raw[["age"]])


def test_intervals_of_probabilities():
    X, y, w = table(20_000, 3, 0, "labels")
    model = fitted(X, y, 2)
    ends = model.predict_interval(X[:50])
    truth = expit(X[:50] @ w - 1)
    assert np.mean((ends[:, 0] < truth) & (truth < ends[:, 1])) > 0.7
    assert np.all((ends > 0) & (ends < 1))
    with pytest.raises(ValueError, match="labels have no interval"):
        model.predict_interval(X, of="record")
    X, y, w = table(20_000, 3, 0, "")
    model = fitted(X, y, 3)
    ends, p = model.predict_interval(X[:50]), model.predict_proba(X[:50])
    assert ends.shape == (50, 3, 2)
    assert np.mean((ends[..., 0] < p) & (p < ends[..., 1])) > 0.9
    far = model.predict_interval(1000 * X[:1])  # where one probability is 1
    assert np.all((far >= 0) & (far <= 1) & (far[..., :1] <= far[..., 1:]))


@pytest.mark.filterwarnings("ignore:of some columns")  # all categories, and an intercept
def test_summaries_name_what_encoders_made():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"age": rng.uniform(20, 80, 20_000), "sex": rng.choice(["f", "m"], 20_000)}
    )
    y = frame["age"] / 10 + (frame["sex"] == "m") + rng.normal(size=len(frame))
    encoder = PublicEncoder({"age": (0, 120), "sex": ["f", "m"]})
    model = DPMirrorRegressor(bounds_X=encoder, bounds_y=(0, 20), epsilon=3.0, **COMMON)
    model.set_params(random_state=0).fit(encoder.fit_transform(frame), y)
    found = model.summary(encoder)
    assert isinstance(found, Estimates)
    age = found.to_frame().iloc[0]
    assert abs(age["coef"] - 0.1) < 6 * age["std err"] < 0.05
    with pytest.raises(TypeError, match="two levels"):
        model.conf_int(0.9, level=0.8)
    lower, upper = model.conf_int(encoder, level=0.9).loc["age"]
    assert (lower + upper) / 2 == pytest.approx(age["coef"])
    assert upper - lower < age["0.975]"] - age["[0.025"]
    plain = clone(model).set_params(bounds_X=encoder.bounds_X)
    unnamed = plain.fit(encoder.transform(frame), y).conf_int()
    assert isinstance(unnamed, np.ndarray)
    columns = pandas.DataFrame(encoder.transform(frame), columns=["a", "f", "m"])
    named = model.fit(columns, y).conf_int()
    assert (named.columns.tolist(), named.index.tolist()[:2]) == (["lower", "upper"], ["a", "f"])
    np.testing.assert_allclose(named, unnamed)
    pandas.testing.assert_frame_equal(model.summary().conf_int(), named)
    units = {"units": "scaled"}
    in_units = model.conf_int(0.9, **units), model.summary(**units, level=0.9).conf_int()
    pandas.testing.assert_frame_equal(*in_units)
    other = model.conf_int(level=0.5).loc["a"]
    assert in_units[0].loc["a"].tolist() != pytest.approx(other.tolist())
    frame = model.coef_frame(encoder)
    np.testing.assert_allclose(found.predicting[0], frame["coef"].to_numpy(), rtol=1e-9)
    scaled = model.summary(units="scaled")
    np.testing.assert_allclose(
        scaled.predicting[0], model.coef_frame(units="scaled")["coef"].to_numpy(), rtol=1e-9
    )
    np.testing.assert_allclose(scaled.tvalues[0, :-1], model.summary().tvalues[0, :-1])


def encoded(inference=True, **settings):
    """A model with an encoder as bounds, fitted, and its table."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"age": rng.uniform(20, 80, 5000), "sex": rng.choice(["f", "m"], 5000)}
    )
    y = frame["age"] / 10 + (frame["sex"] == "m") + rng.normal(size=len(frame))
    encoder = PublicEncoder({"age": (10, 90), "sex": ["f", "m"]}, **settings)
    model = DPLinearRegression(bounds_X=encoder, bounds_y=(0, 20), epsilon=3.0, random_state=0)
    model.set_params(**{**COMMON, "inference": inference})
    return model.fit(encoder.transform(frame), y), frame


def skewed_labels(seed, slopes, level):
    """X of a normal and a log-normal column, and labels."""
    rng = np.random.default_rng(seed)
    X = np.column_stack((rng.normal(size=20_000), rng.lognormal(sigma=0.8, size=20_000)))
    X[:, 1] = np.minimum(X[:, 1], 20)
    return X, (X @ slopes + level + rng.logistic(size=len(X)) > 0).astype(int)


def test_long_rows_count_alike_whatever_the_weight_of_their_class():
    """By features alone: else the slope of a skewed column is too small, here by .027."""
    errors = []
    for seed in range(8):
        X, y = skewed_labels(seed, [0.5, 0.2], -2.5)
        model = DPLogisticRegression(classes=[0, 1], class_weight={0: 0.3, 1: 1.0}, epsilon=3.0)
        model.set_params(bounds_X=([-5, 0], [5, 20]), random_state=seed, **COMMON)
        errors.append(model.fit(X, y).conf_int()[1].mean() - 0.2)
    assert abs(np.mean(errors)) < 0.015


@pytest.mark.parametrize("inference", [True, False])
def test_probabilities_of_weights_that_go_with_a_column_are_those_of_the_weights(inference):
    """Frequencies of weights are not those at the centre of all rows."""
    ratios = []
    for seed in range(6):
        X, y = skewed_labels(seed, [0.5, 0.4], -1.0)
        weights = (X[:, 1] / 5).clip(0.02, 1)
        model = DPLogisticRegression(classes=[0, 1], epsilon=3.0, max_weight=1.0)
        model.set_params(bounds_X=([-5, 0], [5, 20]), random_state=seed, **COMMON)
        model.set_params(inference=inference).fit(X, y, sample_weight=weights)
        of_first = model.predict_proba(X)[:, 0]
        ratios.append(weights @ of_first / weights[y == 0].sum())
    assert abs(np.mean(ratios) - 1) < 0.02, ratios


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 3.0}])
def test_a_summary_says_that_classes_are_weighted(class_weight):
    rng = np.random.default_rng(0)
    X, facts = rng.uniform(0, 1, (3000, 1)), {"epsilon": 5.0, "bounds_X": (0, 1), **COMMON}
    facts |= {"random_state": 0, "classes": [0, 1]}
    model = DPLogisticRegression(**facts, class_weight=class_weight)
    text = joined(model.fit(X, (rng.random(3000) < 0.2).astype(int)).summary())
    says = "are those of a table in which classes have these weights" in text
    assert says == (class_weight is not None)


def test_a_model_takes_the_encoder_of_its_bounds():
    model, frame = encoded(drop="first")
    encoder, X = model.bounds_X, model.bounds_X.transform(frame)
    summary, frame = model.summary().to_frame(), model.coef_frame()
    intervals, test = model.conf_int(), model.wald_test(["age", "sex_m"])
    assert model.wald_test("sex") == model.wald_test("sex_m")
    assert summary.index.tolist() == ["age", "sex_m", "(intercept)"]
    assert summary.columns[-1] == "predicting"
    assert (
        "predicting: coef_, the model that predicts best; it has noise" in model.summary().notes[0]
    )
    assert "shrunk" not in str(model.summary())
    assert "count as the reference (sex: f): unknown='other'" in joined(model.summary())
    assert frame.index.tolist() == [("age", ""), ("sex", "m"), ("(intercept)", "")]
    assert summary["coef"]["age"] == pytest.approx(0.1, abs=0.01)  # of a year
    np.testing.assert_array_equal(summary, model.summary(encoder).to_frame())
    np.testing.assert_array_equal(frame, model.coef_frame(encoder))
    np.testing.assert_array_equal(intervals, summary[["[0.025", "0.975]"]])
    assert test == model.summary(encoder).wald_test(["age", "sex_m"])
    z = (summary["coef"]["age"] - 0.1) / summary["std err"]["age"]
    year = model.wald_test([[1, 0, 0]], value=0.1)  # a matrix is of the same units
    assert year.statistic == pytest.approx(z**2)
    # those of the columns of X
    np.testing.assert_allclose(model.coef_frame(units="scaled")["coef"].iloc[:-1], model.coef_)
    scaled = model.summary(units="scaled")
    np.testing.assert_allclose(scaled.std[0, :-1], model.coef_std_)
    functions, raw = model.linear_functions(X[:9])
    np.testing.assert_allclose(functions @ scaled.coef[0], raw[:, 0])
    np.testing.assert_allclose(
        np.diff(model.predict_interval(X[:9]))[:, 0] / 2, scaled.half_widths(functions)
    )

    # whatever becomes of the parameter, or of the encoder, after the fit
    def same(found):
        np.testing.assert_array_equal(found.summary().to_frame(), summary)
        np.testing.assert_array_equal(found.coef_frame(), frame)

    same(pickle.loads(pickle.dumps(model)))
    assert not hasattr(clone(model), "_encoder")
    encoder.set_params(schema={"age": (0, 1), "sex": ["f", "m"]})
    same(model)
    same(model.set_params(bounds_X=(-1, 1)))
    assert model.get_params()["bounds_X"] == (-1, 1)
    model.fit(X, X[:, 0])
    assert isinstance(model.conf_int(), np.ndarray)
    with pytest.raises(ValueError, match="no coefficient is called 'age'"):
        model.wald_test("age")


def test_effects_on_labels_say_of_what_and_against_what():
    pytest.importorskip("pandas")
    X, y, _ = table(3000, 2, 0, "labels")
    model = DPLogisticRegression(bounds_X=(-6, 6), classes=["ill", "well"], random_state=0)
    model.set_params(epsilon=3.0, **COMMON).fit(X, np.array(["ill", "well"])[y])
    ratios, other = model.summary(exponentiate=True), model.summary(base="well")
    what = "odds ratios of 'well' against 'ill'"
    assert f"exp(coef), interval and predicting: {what}; std" in joined(ratios)
    assert ratios.to_frame().columns.name == what
    assert "coef: log-odds of 'ill' against 'well' std err" in joined(other)
    assert other.to_frame().columns.name == "log-odds of 'ill' against 'well'"
    np.testing.assert_allclose(other.coef, -model.summary().coef)
    np.testing.assert_allclose(model.conf_int(base="well"), -model.conf_int()[:, ::-1])
    against = model.t_test("-10 * x0", exponentiate=True, base="well")
    ends = against.conf_int()[0]
    np.testing.assert_allclose(ends, model.conf_int(exponentiate=True)[0] ** 10)
    assert "odds ratios of 'ill' against 'well'" in joined(against)
    for base in ("x", ["ill"]):
        assert_refuses(model.summary, r"one of the classes \['ill', 'well'\]", base=base)
    X, y, _ = table(500, 2, 0)
    assert_refuses(fitted(X, y, epsilon=30.0).summary, r"one of the classes \[\]", base=1)


def test_several_classes_against_one_of_them():
    X, y, _ = table(5000, 2, 0, "")
    model = fitted(X, y, 3)
    mean, found = model.summary(), model.summary(base=1, exponentiate=True)
    assert "coef: log-odds of each class against the mean over the classes" in str(mean)
    assert "odds ratios of each class against 1;" in joined(found)
    assert found.outputs == (0, 2)
    np.testing.assert_allclose(found.coef, mean.coef[[0, 2]] - mean.coef[1])
    # of the second and the eighth of the nine coefficients, by their covariance
    for k, at in enumerate((1, 7)):
        variance = mean.cov[at, at] + mean.cov[4, 4] - 2 * mean.cov[at, 4]
        assert found.std[k, 1] == pytest.approx(math.sqrt(variance))
    effect = mean.t_test([np.eye(9)[1] - np.eye(9)[4]])
    np.testing.assert_allclose(effect.conf_int()[0], model.conf_int(base=1)[0, 1])
    # one parametrisation of what predicts
    np.testing.assert_allclose(mean.predicting[:, :2], model.coef_)
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(model.intercept_.sum(), 0, atol=1e-12)
    assert_refuses(model.summary, "in a summary with a base", exponentiate=True)


def test_a_scaler_beside_an_encoder_has_the_units_of_the_table():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(20, 80, 9000), "sex": rng.choice(["f", "m"], 9000)})
    y = 2 * table["age"] + 10 * (table["sex"] == "m") + rng.normal(0, 5, 9000)
    beside = ColumnTransformer(
        [
            ("encoder", PublicEncoder({"sex": ["f", "m"]}, drop="first"), ["sex"]),
            ("scaler", DPScaler(epsilon=3.0, random_state=0), ["age"]),
        ]
    )
    bounds = {"bounds_X": ([0, -8], [1, 8]), "bounds_y": (0, 300)}
    last = DPLinearRegression(epsilon=3.0, **bounds, inference=True, random_state=0)
    model = make_pipeline(beside, last).fit(table, y)
    found = model[-1].summary(model[0])
    names = ["encoder__sex_m", "scaler__age", "(intercept)"]
    assert found.to_frame().index.tolist() == names
    np.testing.assert_allclose(found.coef[0], [10, 2, 0], atol=2)
    assert found.coef[0, 1] == pytest.approx(2, abs=0.05)
    assert "columns are clipped to +-8 released scales" in joined(found)
    assert coef_frame(model)["coef"]["age", ""] == pytest.approx(2, abs=0.05)
    # further inside as well
    inner = ColumnTransformer(beside.transformers)
    model = make_pipeline(ColumnTransformer([("all", inner, ["age", "sex"])]), last).fit(table, y)
    found = model[-1].summary(model[0])
    assert found.coef[0, 1] == pytest.approx(2, abs=0.05)
    assert "columns are clipped to +-8 released scales" in joined(found)


@pytest.mark.parametrize(("weight", "bound", "clip"), [(4.0, 8, 2), (-4.0, 8, 2), (0.25, 4, 16)])
def test_the_note_on_clips_knows_the_weights_of_transformers(weight, bound, clip):
    X = np.random.default_rng(0).normal(size=(4000, 2))
    scaler = [("scaler", DPScaler(epsilon=3.0, random_state=0), [0, 1])]
    bounds = {"bounds_X": (-bound, bound), "bounds_y": (-8, 8)}
    last = DPLinearRegression(epsilon=3.0, **bounds, inference=True, random_state=0)
    step = ColumnTransformer(scaler, transformer_weights={"scaler": weight})
    model = make_pipeline(step, last).fit(X, X @ [1, 2])
    found = joined(model[-1].summary(model[0]))
    assert f"columns are clipped to +-{clip} released scales" in found


def test_scalers_of_parts_of_an_array_have_the_names_of_its_columns():
    X = np.random.default_rng(0).uniform(0, 9, (4000, 2))
    parts = [(name, DPScaler(epsilon=3.0, random_state=0), [k]) for k, name in enumerate("ab")]
    last = DPLinearRegression(epsilon=3.0, bounds_X=(-8, 8), bounds_y=(0, 30), random_state=0)
    model = make_pipeline(ColumnTransformer(parts), last).fit(X, X @ [1, 2])
    frame = model[-1].coef_frame(model[0])
    assert [source for source, _ in frame.index] == ["a__x0", "b__x1", "(intercept)"]
    np.testing.assert_allclose(frame["coef"].iloc[:2], [1, 2], atol=0.1)


def test_coefficients_behind_a_scaler_are_of_the_tables_columns():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"dose": rng.uniform(90, 110, 5000), "age": rng.uniform(20, 80, 5000)})
    y = frame @ [2.0, 0.1] - 200 + rng.normal(size=5000)
    last = DPLinearRegression(epsilon=3.0, bounds_X=(-4, 4), bounds_y=(-60, 60), **COMMON)
    model = make_pipeline(DPScaler(relation="zero-out", delta=1e-6), last).fit(frame, y)
    found, predicting = last.summary(model[0]), coef_frame(model)["coef"]
    assert found.param_names == ["dose", "age", "(intercept)"]
    assert abs(found.coef[0] - [2.0, 0.1, -200]) / found.std[0] == pytest.approx([0, 0, 0], abs=5)
    assert found.std[0, 0] < 0.1
    by_hand = frame.to_numpy() @ predicting[:2] + predicting.iloc[2]
    np.testing.assert_allclose(by_hand, model.predict(frame))
    assert "summary(model[0]) of a pipeline `model`" in joined(last.summary())
    assert "summary(model[0])" not in str(found)
    by_hand = (
        last.summary(["a", "b"]),
        last.coef_frame(["a", "b"]),
        last.conf_int(("a", "b")),
    )
    assert all(
        list(f.index) == ["a", "b", "(intercept)"] for f in (by_hand[0].to_frame(), *by_hand[1:])
    )
    with pytest.raises(ValueError, match="encoder has 1 names, but the model has 2 features"):
        last.summary(["a"])
    # the model's bounds are narrower than the scaler's clip
    assert "columns are clipped to +-4 released scales" in joined(found)
    assert "released scales" not in joined(last.summary())


def test_products_of_encoded_columns_have_names_and_a_note_on_their_units():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"age": np.linspace(20, 80, 3000), "sex": ["f", "m"] * 1500})
    encoder = PublicEncoder({"age": (0, 100), "sex": ["f", "m"]}, drop="first")
    products = PolynomialFeatures(interaction_only=True, include_bias=False)
    settings = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "epsilon": 8.0, "inference": True}
    pipe = make_pipeline(encoder, products, DPLinearRegression(**settings, random_state=0))
    names = [*coef_frame(pipe.fit(X, np.linspace(0, 1, 3000))).index]
    assert names == ["age", "sex_m", "age sex_m", "(intercept)"]
    found = pipe[-1].summary(pipe[:-1])
    assert [*found.to_frame().index] == names
    assert "an encoder scaled its columns" in joined(found)
    assert "an encoder scaled" not in joined(pipe[-1].summary(names[:-1]))
    alone = make_pipeline(encoder, pipe[-1]).fit(X, np.linspace(0, 1, 3000))
    assert "an encoder scaled" not in joined(alone[-1].summary(alone[:-1]))  # in the table's units


def test_what_released_numbers_say_of_the_table():
    X, y, _ = table(5000, 2, 0)
    X[::2, 0] = np.nan
    shown = str(fitted(X, y, nonfinite="zero").summary())
    n = int(re.search(r"5000 rows, about (\d+) rows not empty, eps", shown)[1])
    assert abs(n - 2500) < 100
    assert "most rows empty" not in shown
    y[np.arange(5000) % 25 > 1] = np.nan
    notes = fitted(X, y, nonfinite="zero", seed=1).summary().notes
    assert re.search(r"nothing is known of .*sums of others.*, most rows empty", notes[-1])
    # weights that are mostly far below the largest
    X, y, _ = table(5000, 2, 0)
    rare = np.where(np.arange(5000) % 25 > 1, 0.01, 1.0)
    assert "max_weight far above" not in shown
    model = fitted(X, y, epsilon=1.0, sample_weight=rare, max_weight=1.0)
    assert ", max_weight far above most weights" in model.summary().notes[-1]
    # values in another unit than the bounds
    assert "may lie beyond" not in shown
    X, y, _ = table(5000, 2, 0)
    ends = {"bounds_X": ([-6, 0], [6, 5])}
    told = "most values of x1, the target may lie beyond an end of their bounds"
    with pytest.warns(PrivacyParameterWarning, match=told):  # also without standard errors
        fitted(X + np.array([0, 50]), y + 100, inference=False, **ends)
    with pytest.warns(PrivacyParameterWarning, match=told):
        shown = str(fitted(X + np.array([0, 50]), y + 100, **ends).summary())
    assert told in shown
    # flags that hardly ever are 0 or 1, and amounts far from their largest, are no sign of that
    X[:, 0], X[:, 1] = np.arange(5000) % 200 == 0, np.arange(5000) % 200 > 0
    shown = str(fitted(X, abs(y), bounds_X=(0, 1), bounds_y=(0, 1000)).summary())
    assert "may lie beyond" not in shown


def test_noise_in_the_means_of_columns_is_no_sign_of_their_bounds():
    X = np.random.default_rng(0).uniform(5, 9, (750, 50))
    facts = {"bounds_X": (0, 10), "classes": [False, True], "delta": 1e-6, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyParameterWarning)
        DPLogisticRegression(epsilon=1.0, **facts).fit(X, X[:, 0] + X[:, 1] > 14)


def test_a_note_names_rows_and_leaves_out_what_is_done():
    model = encoded()[0]
    note = model.summary().notes[-1]
    assert "of the coefficients of sex_f, sex_m, (intercept): noise" in note
    assert "drop='first'" in note
    encoder = PublicEncoder({"age": (10, 90), "sex": ["f", "m", "x"]}, drop="first")
    X = encoder.transform(encoded()[1])  # there is no x
    note = model.set_params(bounds_X=encoder).fit(X, X[:, 0]).summary().notes[-1]
    assert "of the coefficients of sex_x: noise" in note
    assert "rare columns, categories in another spelling, columns that" in note
    assert "drop" not in note
    note = model.set_params(bounds_X=(-1, 1)).fit(X, X[:, 0]).summary(encoder).notes[-1]
    assert "of the coefficients of sex_x: noise" in note
    assert "drop" not in note
    # without an intercept, categories of a list are no sums of others
    model.set_params(fit_intercept=False).fit(X, X[:, 0])
    assert "of the coefficients of x2: noise" in model.summary().notes[-1]
    assert "drop" not in model.summary().notes[-1]


def test_a_note_says_what_missing_numbers_count_as():
    def note(schema, **settings):
        encoder = PublicEncoder(schema, **settings)
        model.set_params(bounds_X=encoder).fit(X[:, : len(schema)], X[:, 0])
        found = [line for line in model.summary().notes if "middle of their bounds" in line]
        return found[0] if found else ""

    model = clone(encoded()[0])
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 5))
    two = {"age": (18, 100), "hours": (0, 80)}
    # whether there are gaps is private, here there are none
    assert note(two).startswith("missing numbers, if there are any, count as")
    assert "(age: 59, hours: 40), which biases coefficients only if many are" in note(two)
    # 0 is the middle of bounds on both sides of it
    assert "(age: 59)" in note(two, missing="zero")
    for missing in ("keep", {"age": 30.0, "hours": "middle"}, {"age": "zero"}):  # said by the user
        assert note(two, missing=missing) == ""
    assert note({"a": bool, "b": ["u", "v"]}, drop="first") == ""
    assert "(v0: 0.5, v1: 0.5, v2: 0.5 and 2 more)" in note({f"v{k}": (0, 1) for k in range(5)})


def test_names_and_units_without_pandas(monkeypatch):
    model = encoded()[0]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert str(model.summary()).splitlines()[-4].split()[0] == "age"
    assert model.wald_test("age").pvalue < 1e-9
    warns = pytest.warns(PrivacyParameterWarning)
    with warns, pytest.raises(ImportError, match="needs pandas"):
        model.conf_int()


def test_mirror_models_have_the_same():
    X, y, _ = table(3000, 3, 0)
    facts = {"bounds_X": (-6, 6), "epsilon": 3.0, "random_state": 0, **COMMON}
    one = DPMirrorRegressor(bounds_y=(-30, 30), **facts).fit(X, y)
    np.testing.assert_array_equal(one.coef_cov_, fitted(X, y).coef_cov_)
    X, y, _ = table(3000, 3, 0, "labels")
    one = DPMirrorClassifier(classes=[0, 1], **facts).fit(X, y)
    np.testing.assert_array_equal(one.coef_cov_, fitted(X, y, 2).coef_cov_)


# ----------------------------------------------------------------------- before the data


@pytest.mark.parametrize(("n_classes", "correlation"), [(0, 0.0), (0, 0.5), (2, 0.0)])
def test_expected_standard_errors_are_those_reported(n_classes, correlation):
    n, d, found = 20_000, 4, []
    cov = correlation + (1 - correlation) * np.eye(d)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.multivariate_normal(np.zeros(d), cov, n).clip(-6, 6)
        y = 0.5 * X[:, 0] + math.sqrt(0.75) * rng.normal(size=n)
        if n_classes:
            y = (rng.random(n) < 0.3).astype(int)
        model = fitted(X, y, n_classes, 1.0, seed)
        found.append(np.median(model.coef_std_))
    assumed = {"prevalence": 0.3} if n_classes else {"r2": 0.25}
    expected = model.plan_.expected_std(correlation=correlation, **assumed)
    assert 0.75 < expected / np.median(found) < 1.25


def test_expected_standard_errors_of_effects_that_a_rare_label_goes_with():
    """The level takes its part: without it they were told for half of what they are."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(20_000, 4)).clip(-6, 6)
        y = (rng.random(len(X)) < expit(1.5 * X[:, 0] - 3.85)).astype(int)
        model = fitted(X, y, 2, 3.0, seed)
        found.append(model.coef_std_.ravel()[0])
    expected = model.plan_.expected_std(prevalence=0.05, effect=1.5)
    assert 0.75 < expected / np.median(found) < 1.25
    assert model.plan_.expected_std(prevalence=0.95, effect=1.5) == pytest.approx(expected)
    assert model.plan_.expected_std(prevalence=1 - 1e-12, effect=50.0) > 1e9


def test_power():
    plan = planned(20_000, 4)
    std = plan.expected_std(r2=0.2)
    assert plan.power(0.0, r2=0.2) == pytest.approx(0.05, rel=1e-3)
    assert plan.power(1.96 * std, r2=0.2) == pytest.approx(0.5, abs=1e-3)
    assert plan.power(-4 * std, r2=0.2) == plan.power(4 * std, r2=0.2) > 0.97
    assert plan.power(2 * std, level=0.99, r2=0.2) < plan.power(2 * std, r2=0.2)
    assert math.hypot(*plan.expected_std(parts=True)) == plan.expected_std()
    for solver, of in ((Descent(), Geometry), (NoisyMD(), L2Ball(1.0))):
        with pytest.raises(ValueError, match="make it with inference=True"):
            solver.plan(Problem(100, 2, Squared(), of), PrivacyBudget(1.0)).power(0.1)
    for name in ("parts", "effects"):
        with pytest.raises(TypeError, match=f"power assumes r2, .*, not '{name}'"):
            plan.power(0.1, **{name: True})
    assert planned(3000, 5, "classification", epsilon=3.0).power(1e6) < 0.01
    with pytest.raises(ValueError, match="for regressions and for two classes"):
        planned(50_000, 4, "classification", 3).expected_std()
    of_labels = planned(50_000, 4, "classification")
    for of, name, value in (
        (plan, "r2", 1.0),
        (plan, "correlation", -0.1),
        (of_labels, "prevalence", 0.0),
    ):
        with pytest.raises(ValueError, match=f"{name} must be"):
            of.expected_std(**{name: value})
    for of, name in ((plan, "prevalence"), (plan, "effect"), (of_labels, "r2")):
        with pytest.raises(TypeError, match=f"{name} has no effect"):
            of.expected_std(**{name: 0.3})


def test_effects_on_labels_can_be_too_strong_to_be_seen():
    """Where probabilities are near 0 and 1, second derivatives are noise: as fits find it, too."""
    plan, d = planned(1000, 5, "classification", epsilon=3.0), 5
    powers = [plan.power(effect, prevalence=0.5) for effect in (0.0, 1.0, 2.0, 4.0)]
    assert plan.power(1.0, prevalence=None) == powers[1]
    assert powers[1] > 0.9 > 0.8 > powers[2] > 0.5 > powers[3]
    assert powers[0] == pytest.approx(0.05, abs=0.005)
    seen = {1.0: 0, 4.0: 0}
    for effect, seed in itertools.product(seen, range(5)):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1000, d)).clip(-6, 6)
        y = (rng.random(1000) < expit(effect * X[:, 0])).astype(int)
        seen[effect] += np.isfinite(fitted(X, y, 2, 3.0, seed).coef_std_[0, 0])
    assert seen[1.0] >= 4
    assert seen[4.0] == 0


def test_half_of_the_noise_is_seen_in_the_covariance():
    plan = planned(20_000, 4)
    quiet = map_mechanisms(
        plan,
        lambda name, old: (
            dataclasses.replace(old, scale=old.scale / 2) if name.endswith("last") else old
        ),
    )
    assert quiet.expected_std(parts=True)[1] < 0.7 * plan.expected_std(parts=True)[1]


def test_predictions_without_an_intercept_and_of_broken_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(0, 3, 5000), rng.uniform(-2, 5, 5000)))
    y = 20 + X @ [2.0, -1.0] + rng.normal(size=5000)
    facts = {"bounds_X": ([0, -2], [3, 5]), "bounds_y": (0, 60), "epsilon": math.inf, **COMMON}
    for fit_intercept in (True, False):
        model = DPLinearRegression(fit_intercept=fit_intercept, nonfinite="zero", **facts)
        model.fit(X, y)
        Z = X[:4].copy()
        Z[0, 0] = np.nan
        ends = model.predict_interval(Z)
        np.testing.assert_allclose(ends.mean(axis=1), model.predict(Z), rtol=1e-6)
        assert np.all(np.isfinite(model.predict(Z, return_std=True)[1]))
    # without an intercept, the row at which the model is fixed has no error, and a record has
    origin = np.zeros((1, 2))
    assert np.diff(model.predict_interval(origin)) == pytest.approx(0, abs=1e-9)
    assert np.diff(model.predict_interval(origin, of="record")) > 1


def test_weights_leave_no_interval_of_records():
    X, y, _ = table(5000, 3, 0)
    model = fitted(X, y, max_weight=1.0, sample_weight=np.ones(len(X)))
    assert np.isnan(model.summary().residual_std).all()
    with pytest.raises(ValueError, match="a fit without sample_weight"):
        model.predict_interval(X, of="record")


def test_targets_that_are_nearly_all_equal_are_fitted_without_noise():
    X, _, _ = table(5000, 2, 0)
    y = np.where(np.random.default_rng(1).random(5000) < 0.04, 1.0 + X[:, 0], 0.0)
    found = fitted(X, y, 0, math.inf).summary()
    Z = np.column_stack((X, np.ones(len(X))))
    np.testing.assert_allclose(found.coef[0], np.linalg.lstsq(Z, y)[0], rtol=1e-3, atol=1e-5)


def test_noise_does_not_make_variances_by_sampling_large():
    """Of second derivatives, and of moments, of which it spreads the eigenvalues."""
    n, d = 5000, 20
    ratios = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, d)).clip(-5, 5)
        y = X.sum(axis=1) / 5 + rng.normal(size=n)
        model = DPLinearRegression(
            epsilon=3.0, bounds_X=(-5, 5), bounds_y=(-20, 20), random_state=seed, **COMMON
        )
        ratios.append(n * np.mean(model.fit(X, y).summary().std_sampling[0, :d] ** 2))
    assert np.mean(ratios) == pytest.approx(1, abs=0.12)


def sampling_of(hessian, moments, scale=0.0, noise=1e9):
    """`NewtonSteps._of_sampling` of released second derivatives and moments, with their noise."""
    values, vectors = np.linalg.eigh(hessian)
    root, d = vectors / np.sqrt(values), len(hessian)
    none = np.empty((d, 0))
    bread = inference.Bread(np.eye(d), root @ root.T, root, none, none, scale)
    released = SimpleNamespace(release=lambda vector, _: vector, variance=noise**2)
    steps = SimpleNamespace(moments=released, rows_per_user=1)
    facts = SimpleNamespace(n_outputs=1, size=d, loss=Squared(), fit_intercept=False)
    units = SimpleNamespace(problem=facts, unit=np.ones(d))
    return inference.NewtonSteps._of_sampling(steps, units, bread, moments, 1.0, None)[0]


def test_the_inverse_of_noisy_second_derivatives_is_told_as_what_it_is_on_average():
    d, scale, rng, found = 20, 0.08, np.random.default_rng(0), []
    for _ in range(100):
        noise = rng.normal(size=(d, d)) * scale / math.sqrt(2)
        hessian = np.eye(d) + (noise + noise.T) / math.sqrt(2)
        found.append(np.trace(sampling_of(hessian, 3.0 * np.eye(d), scale, 10.0)) / (3 * d))
    assert np.mean(found) == pytest.approx(1, abs=0.05)  # 1.17 as it is


def test_a_variance_that_grows_along_a_column_shows_through_noise():
    """Four times the usual one, beside noise as large as that: else intervals miss."""
    found = sampling_of(np.eye(7), np.diag([4.0, *[0.5] * 6]), noise=1.0)
    assert 3 < found[0, 0] < 4


@pytest.mark.parametrize("below", [0.5, 3.0, 10.0])
def test_variances_are_above_0_where_noise_makes_moments_negative(below):
    noise = 0.1
    for d in (1, 2, 20):
        found = sampling_of(np.eye(d), -below * noise / math.sqrt(d) * np.eye(d), 0.0, noise)
        assert np.linalg.eigvalsh(found).min() > 0


@pytest.mark.parametrize("task", ["classification", "rates"])
def test_errors_are_larger_where_second_derivatives_are_hardly_clear(task):
    """Told from noise by chance they are too large; far above it nothing changes.

    Those of a regression are the same everywhere, and it stays as it is.
    """
    scale, none = 0.1, np.zeros((3, 0))
    values = scale * np.array([3.0, 6.0, 1e4])
    root = np.diag(values**-0.5)
    bread = inference.Bread(np.eye(3), root @ root.T, root, none, none, scale)
    times = np.diag(bread.careful(task).inverse) * values
    assert times[0] > 2.5
    assert 1.1 < times[1] < 1.3
    assert times[2] == pytest.approx(1, abs=1e-9)
    np.testing.assert_array_equal(bread.careful("regression").inverse, bread.inverse)


@pytest.mark.filterwarnings("ignore:of some columns the released numbers")
@pytest.mark.parametrize(
    ("share", "effect", "least"), [(0.03, 3.0, 0.65), (0.1, 3.0, 0.85), (0.03, 2.0, 0.85)]
)
def test_intervals_of_strong_effects_on_rare_labels_have_them(share, effect, least):
    """Their level goes down with steeper effects, and second derivatives hardly show that line.

    Those that have ends, by chance, held an effect of 3 on 3 % of the labels in one of ten.
    """
    rng, d, covered = np.random.default_rng(0), 5, []
    effects = np.r_[effect, np.full(d - 1, 0.3)]
    z = np.random.default_rng(1).normal(size=200_000)
    spread = math.sqrt(0.09 * (d - 1)) * np.random.default_rng(2).normal(size=z.size)
    level = brentq(lambda a: float(expit(a + effect * z + spread).mean()) - share, -30, 0)
    for (epsilon, relation), seed in itertools.product(
        [(1.0, "zero-out"), (3.0, "replace-one"), (8.0, "replace-one")], range(20)
    ):
        X = rng.normal(size=(10_000, d)).clip(-5, 5)
        y = (rng.random(10_000) < expit(X @ effects + level)).astype(int)
        model = DPLogisticRegression(
            epsilon=epsilon,
            relation=relation,
            bounds_X=(-5, 5),
            classes=[0, 1],
            inference=True,
            random_state=seed,
        ).fit(X, y)
        low, high = model.conf_int()[[0, d]].T
        has_ends = np.isfinite(high - low)
        true = np.array([effect, level])
        covered += list(((low <= true) & (true <= high))[has_ends])
    assert len(covered) >= 20
    assert np.mean(covered) > least


def test_intervals_of_labels_that_are_nearly_determined_have_the_effects():
    """Steps end far below them there, and second derivatives tell nothing of how far."""
    covered = []
    for epsilon, seed in itertools.product((3.0, 8.0), range(8)):
        rng = np.random.default_rng(100 + seed)
        X = np.sqrt(0.7) * rng.normal(size=(5000, 6)) + np.sqrt(0.3) * rng.normal(size=(5000, 1))
        y = (X[:, 0] - X[:, 1] + 0.1 * rng.logistic(size=5000) > 0).astype(int)
        settings = {"bounds_X": (-5, 5), "classes": [0, 1], "random_state": seed}
        model = DPLogisticRegression(epsilon=epsilon, inference=True, **settings)
        ends = model.fit(X, y).summary().conf_int()[:2]
        has_ends = np.isfinite(ends).all(axis=1)
        truth = np.array([10.0, -10.0])
        covered += ((ends[:, 0] <= truth) & (truth <= ends[:, 1]))[has_ends].tolist()
        assert abs(model.coef_[0, 0]) > 1  # the model that predicts is not shrunk by it
    assert len(covered) > 4
    assert np.mean(covered) > 0.8


def test_intervals_of_a_rare_label_as_a_number_hold():
    # its scores are many spreads of the targets long, which a prior of sizes must not exclude
    rng, held, slopes = np.random.default_rng(0), [], np.array([0.3, -0.3, 0.2, 0.0, 0.0])
    p = 1 / (1 + np.exp(3.05 - (X := rng.normal(size=(200_000, 5)).clip(-4, 4)) @ slopes))
    true = np.linalg.lstsq(np.column_stack((X, np.ones(len(X)))), p)[0][:5]
    for k in range(16):
        X = rng.normal(size=(5000, 5)).clip(-4, 4)
        y = (rng.random(5000) < 1 / (1 + np.exp(3.05 - X @ slopes))).astype(float)
        settings = {"epsilon": 1.0, "delta": 1e-6, "relation": "zero-out", "random_state": k}
        settings |= {"bounds_X": (-4, 4), "bounds_y": (0, 1), "inference": True}
        ends = DPLinearRegression(**settings).fit(X, y).conf_int()[:5]
        held.append((ends[:, 0] <= true) & (true <= ends[:, 1]))
    assert np.mean(held) > 0.87


def _warns(model, n):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.plan(n, 1)
    return len(found) > 0


@pytest.mark.parametrize("model", [DPLinearRegression, DPPoissonRegressor])
def test_from_where_no_fit_of_one_column_warns_its_intercept_has_ends(model):
    made = model(epsilon=3.0, bounds_X=(-4, 4), bounds_y=(0, 50), **COMMON)
    n = next(n for n in range(100, 1000, 5) if not _warns(made, n))
    unknown = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 1)).clip(-4, 4)
        made.set_params(random_state=seed).fit(X, rng.poisson(np.exp(1 + 0.4 * X[:, 0])))
        unknown += math.isinf(made.summary().to_frame()["std err"].iloc[-1])
    assert unknown <= 4


def test_of_counts_of_few_rows_the_mean_of_predictions_is_that_of_the_targets():
    ratios = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(350, 1)).clip(-4, 4)
        mean = np.exp(1 + X[:, 0])
        y = rng.poisson(mean)
        model = DPPoissonRegressor(
            epsilon=1.0, bounds_X=(-5, 5), bounds_y=(0, 1000), random_state=seed, **COMMON
        ).fit(X, y)
        ratios.append(model.predict(X).mean() / mean.mean())
    assert 0.85 < np.median(ratios) < 1.15


def test_the_mean_of_predictions_is_that_of_counts_whose_logarithm_bends():
    ratios = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = np.exp(rng.normal(9, 1, (10_000, 1))).clip(0, 1e5)
        y = rng.poisson(0.004 * X[:, 0])
        model = DPPoissonRegressor(
            epsilon=1.0, bounds_X=(0, 1e5), bounds_y=(0, 500), random_state=seed, **COMMON
        ).fit(X, y)
        ratios.append(model.predict(X).mean() / y.mean())
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(("scale", "most"), [(0.05, 0.3), (0.45, 0.56)])
def test_slopes_of_rates_that_noise_hides_are_shrunk(scale, most):
    """Neither as far as their energy is expected of noise, nor only where it is not above that."""
    d, rng = 8, np.random.default_rng(0)
    problem = Problem(1000, d, Tweedie(1.5), Geometry)
    root, errors = np.eye(d + 1), []
    units = SimpleNamespace(problem=problem, unit=np.ones(d + 1), trace=1.0, clip=1.0, tilt=0.0)
    units.near_mean = lambda coef, *_: coef
    for _ in range(400):
        truth = np.append(rng.normal(scale=math.sqrt(scale / d), size=d), 0.0)
        descent = np.append(truth[:d] + rng.normal(scale=0.3, size=d), 0.0)
        found = truth + rng.normal(scale=0.2, size=d + 1)
        best = inference._best(units, descent, found, root, 0.04 * np.eye(d + 1), 1.0)
        errors.append([((x - truth)[:d] ** 2).sum() for x in (best, found)])
    best, found = np.mean(errors, axis=0)
    assert best < most * found, best / found


def test_a_rare_category_of_rates_is_shrunk_as_much_as_its_noise_alone_asks_for():
    """Noise in a single direction is not what the factor of James and Stein is for."""
    d, noise = 8, np.array([1.0, *[1e-6] * 8])
    units = SimpleNamespace(
        problem=Problem(1000, d, Tweedie(1), Geometry), unit=np.ones(d + 1), trace=1.0, clip=1.0,
        tilt=0.0, near_mean=lambda coef, *_: coef,
    )  # fmt: skip
    found = 1.2 * np.eye(d + 1)[0]
    best = inference._best(units, 0.0 * found, found, np.eye(d + 1), np.diag(noise), 1.0)
    assert 0.1 < best[0] < 0.3


def test_slopes_of_rates_are_numbers_where_no_column_varies():
    """Of moments that are all noise below 0 the level has no unit, which noise may seem to tell."""
    unit, found = np.append(np.ones(2), 0.0), np.array([0.5, -0.2, 0.1])
    units = SimpleNamespace(
        problem=Problem(1000, 2, Tweedie(1), Geometry), unit=unit, trace=1.0, clip=1.0, tilt=0.0,
        near_mean=lambda coef, *_: coef,
    )  # fmt: skip
    best = inference._best(units, 0.0 * found, found, np.eye(3), 0.01 * np.eye(3), 1.0)
    assert np.all(np.isfinite(best))


def test_costs_of_rare_categories_have_as_good_second_derivatives_as_counts():
    """With half of the share these are noise along such columns, and slopes more so."""
    explained, n, d = [], 10_000, 10
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = (rng.random((2 * n, d)) < 10 ** rng.uniform(-2.5, -0.5, d)).astype(float)
        z = X @ rng.normal(size=d)
        mean = np.exp(0.7 + 0.1 * (z - z.mean()) / z.std())
        y = rng.gamma(2.0, mean / 2).clip(0.01, 100)
        model = DPGammaRegressor(
            epsilon=1.0,
            bounds_X=(0, 1),
            bounds_y=(0.01, 100),
            random_state=seed,
            **COMMON | {"inference": False},
        ).fit(X[:n], y[:n])
        constant, found, best = (
            np.mean(y[n:] / of - np.log(y[n:] / of))
            for of in (y[n:].mean(), model.predict(X[n:]), mean[n:])
        )
        explained.append((constant - found) / (constant - best))
    assert np.mean(explained) > 0.66, np.mean(explained)
