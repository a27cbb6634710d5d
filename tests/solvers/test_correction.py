"""What a model says in numbers: means, probabilities, coefficients of columns without records."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from audit_cases import CORRECTED
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, r2_score
from support import free_problem, problem, rest_is_slow, solver_data, stream

from sklearn_dpsco import DPLinearRegression, DPLogisticRegression
from sklearn_dpsco.audit import check_sensitivity, map_mechanisms, neighbours
from sklearn_dpsco.data.rows import Rows, SolverData
from sklearn_dpsco.exceptions import PrivacyLeakWarning
from sklearn_dpsco.mechanisms import Gaussian
from sklearn_dpsco.privacy.budget import PrivacyBudget
from sklearn_dpsco.solvers import Descent, statistics, unit_descent
from sklearn_dpsco.solvers.base import Frame
from sklearn_dpsco.solvers.unit_descent import Walk

COMMON = {"delta": 1e-6, "relation": "zero-out", "bounds_X": (-1, 1)}


def planned(n, d, task="regression", n_outputs=1, epsilon=1.0, relation="zero-out", **settings):
    fact = free_problem(n, d, task, n_outputs, settings.pop("fit_intercept", True))
    return Descent(**settings).plan(fact, PrivacyBudget(epsilon, 1e-6, relation))


def linear(n, d, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    z = X @ rng.standard_normal(d)
    return X, z / z.std(), rng


# ------------------------------------------------------------------------------- the plan


def test_corrections_are_made_where_they_pay():
    def of(*args, **kwargs):
        correction = planned(*args, **kwargs).correction
        return None if correction is None else "line" if correction.size else "whole"

    assert of(300, 5) is None
    assert of(3000, 20) == "line"
    assert of(50_000, 10) == "whole"
    assert of(50_000, 10, n_outputs=3) == "whole"
    assert of(3000, 20, n_outputs=3) is None
    # derivatives of two classes are bounded: slope and intercept are what clips bias
    assert of(1000, 20, "classification") == "line"
    assert of(10**6, 10, "classification") == "line"
    assert of(10**6, 10, "classification", 3) == "line"
    # and slopes alone
    assert of(1000, 20, "classification", fit_intercept=False) == "line"
    assert of(3000, 20, fit_intercept=False) is None
    # noise in many slopes, of which slope and intercept tell, costs more than a narrow clip
    assert of(1000, 100) == "line"
    assert of(1000, 10) is None
    assert of(20_000, 20, "classification", 3) == "line"
    assert of(1000, 20, "classification", 3) == "line"
    assert of(3000, 1500, "classification", 3) == "line"
    assert of(400, 20, "classification", 3) is None
    # a clip that many records exceed is not wide
    assert planned(400, 100).correction.n_above <= 200
    for n, d, epsilon in ((200, 1, 1.0), (500, 2, 0.5), (2000, 2, 1.0), (10**5, 30, 1.0)):
        plan = planned(n, d, epsilon=epsilon)
        assert plan.correction is None or plan.correction.n_above <= n / 8, (n, d, epsilon)
        assert plan.units.left > 0.15, (n, d, epsilon)


def test_sums_on_the_line_are_of_a_number_for_each_class():
    # (of rows of one feature fewer are added up at a time, so that the float error is smaller)
    n, k = 10**8, 1000
    plan = planned(n, 1, "classification", k)
    assert plan.correction.size is not None
    of_rows = statistics.mean_of_numbers(n, k, 1.0)
    assert of_rows > 1.002 * statistics.mean_of_numbers(n, 2, 1.0)
    assert plan.correction.step.sensitivity >= of_rows


def test_steps_are_counted():
    plan = planned(50_000, 10, max_iter=7)
    assert plan.max_iter == 7
    assert plan.n_steps == 7 + plan.correction.n_steps
    step = {r.name: r.count for r in plan.guarantee.releases}
    assert (step["mean gradient"], step["last gradient"]) == (7, plan.correction.n_steps)
    # a descent that others start from, of a large table
    assert planned(10**6, 10).max_iter < planned(10**6, 10, "classification").max_iter


def test_last_steps_have_the_part_of_the_budget_that_suits_them():
    def part(*args, **settings):
        amounts = [
            release.count * (release.mechanism.sensitivity / release.mechanism.scale) ** 2
            for release in planned(*args, **settings).guarantee.releases[-3::2]
        ]
        return amounts[1] / sum(amounts)

    # on all coefficients the more, the clearer they are
    assert 0.35 < part(1000, 7) < part(1300, 7) < part(10**5, 7) == pytest.approx(0.7)
    # and on slope and intercept of labels, which steps on slopes leave too noisy, the less
    assert part(1000, 7, "classification") == pytest.approx(0.2, rel=1e-6)
    assert 0.1 < part(5000, 7, "classification") < 0.2
    assert part(10**5, 7, "classification", 3) == pytest.approx(0.1, rel=1e-3)


# ------------------------------------------------------------------------- sensitivities


@rest_is_slow(
    ("task", "n_outputs", "d", "relation"),
    CORRECTED,
    [
        "regression-1-14-zero-out",
        "regression-1-2-zero-out",
        "classification-1-2-replace-one",
        "classification-4-30-zero-out",
    ],
)
def test_no_record_moves_a_correction_beyond_its_sensitivity(task, n_outputs, d, relation):
    epsilon = 70.0 if relation == "zero-out" else 120.0  # with which steps pay
    epsilon *= 4 if n_outputs == 4 else 1
    plan = planned(60, d, task, n_outputs, epsilon, relation, max_iter=2)
    assert plan.correction is not None
    # derivatives that reach the clip, whatever the residuals are
    if plan.correction.tail is not None:
        correction = dataclasses.replace(plan.correction, n_above=50)
        plan = dataclasses.replace(plan, correction=correction)
    n_pairs = 10 if d == 14 or n_outputs == 3 else 4  # few reach far into many columns
    found = check_sensitivity(plan, neighbours(plan.problem, relation, n_pairs))
    assert not found.violations, found
    assert found.ratios["correction.step"] > 0.3, found
    if task == "regression" and d == 2:  # the means of the targets with a clip, and without
        assert plan.units.target_mean.dimension == 2 * n_outputs
        assert found.ratios["units.target_mean"] > 0.3, found


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize(
    ("n_outputs", "class_weight"), [(1, None), (1, (0.25, 1.0)), (3, "balanced")]
)
def test_no_record_with_weight_moves_its_class_by_more(n_outputs, class_weight, relation):
    """Those that are declared of classes are not counted."""
    facts = {"n_outputs": n_outputs, "class_weight": class_weight, "has_weights": True}
    fact = free_problem(60, 2, "classification", **facts)
    plan = Descent(max_iter=2).plan(fact, PrivacyBudget(120.0, 1e-6, relation))
    assert plan.units.target_mean.dimension == max(2, n_outputs)
    found = check_sensitivity(plan, neighbours(fact, relation, 12))
    assert not found.violations, found
    assert found.ratios["units.target_mean"] > 0.6, found


@pytest.mark.parametrize("class_weight", [(0.1, 1.0), (1.0, 0.0), "balanced", None])
def test_weights_of_classes_are_divided_out_of_those_that_are_released(class_weight):
    """Else the frame, which multiplies them in, would have their squares."""
    n, facts = 4000, {"class_weight": class_weight, "has_weights": True}
    fact = free_problem(n, 2, "classification", **facts)
    y, own = np.where(np.arange(n) % 4 == 0, 1.0, -1.0), np.full(n, 0.5)
    of_classes = class_weight if isinstance(class_weight, tuple) else (1.0, 1.0)
    weights = own * np.where(y > 0, of_classes[1], of_classes[0])
    rows = Rows(np.zeros((n, 2)), True, np.where(weights > 0, 1.0, 0.0), weights)
    found = statistics.class_sum(SolverData(rows, y), fact)
    expected = [0.5 * 3000, 0.5 * 1000 * (of_classes[1] > 0)]
    np.testing.assert_allclose(found, expected)
    means, _ = statistics.weighted_mean(fact, found / n, 0.0)
    assert means == pytest.approx([-0.5] if of_classes[1] else [-1.0])


@pytest.mark.parametrize(("n_outputs", "d"), [(1, 2), (4, 30)])
def test_no_record_moves_slopes_without_intercept_by_more(n_outputs, d):
    facts = {"epsilon": 70.0 * n_outputs, "fit_intercept": False, "max_iter": 2}
    plan = planned(60, d, "classification", n_outputs, **facts)
    assert plan.correction.step.dimension == 1
    found = check_sensitivity(plan, neighbours(plan.problem, "zero-out", 4))
    assert not found.violations, found
    assert found.ratios["correction.step"] > 0.3, found


@rest_is_slow(
    ("task", "n_outputs", "d"),
    [("regression", 1, 14), ("classification", 4, 30)],
    ("regression-1-14",),
)
def test_a_replay_finds_predictions_that_are_not_weighed(monkeypatch, task, n_outputs, d):
    plan = planned(60, d, task, n_outputs, 70.0 * n_outputs, max_iter=2)
    assert plan.correction.size is not None
    on_line = statistics.on_line

    def not_weighed(sizes, unit, center):
        with monkeypatch.context() as patch:
            patch.setattr(statistics, "clipped_to", lambda bound, norms: np.ones(norms.size))
            return on_line(sizes, unit, center)

    monkeypatch.setattr(statistics, "on_line", not_weighed)
    found = check_sensitivity(plan, neighbours(plan.problem, "zero-out", 3))
    assert "correction.step" in found.violations, found


# ------------------------------------------------------------------------------ estimates


def test_the_noise_of_an_averaged_iterate_is_what_is_said():
    rng = np.random.default_rng(0)
    for steps in ((12, 9.0, 0.0), (16, 40.0, 0.7)):
        walk = Walk(Gaussian(1.0, 1.0, 1), 1.0, *steps)
        for curvature in (0.0, 0.3):
            iterates = []
            coef, direction = np.zeros(20_000), np.zeros(20_000)
            for _ in range(walk.n_steps):
                noisy = curvature * coef + rng.standard_normal(20_000)
                direction = walk.momentum * direction + noisy
                coef = coef - (1 - walk.momentum) * walk.length / walk.n_steps * direction
                iterates.append(coef)
            exact = np.mean(iterates[walk.n_steps // 2 :], axis=0).var()
            assert walk.kept_noise(curvature) == pytest.approx(exact, rel=0.05)


def skewed(law, z, rng):
    if law == "lognormal":
        return np.exp(0.5 * z + rng.standard_normal(z.size)).clip(0, 50), (0, 50)
    if law == "counts":
        return rng.poisson(np.exp((-1 + 0.6 * z).clip(-9, 4))).clip(0, 20), (0, 20)
    amounts = np.where(rng.random(z.size) < expit(-2 + 0.8 * z), rng.gamma(2, 2000, z.size), 0.0)
    return amounts.clip(0, 50_000), (0, 50_000)


@rest_is_slow("law", ["lognormal", "counts", "zeros"], ("zeros",))
def test_squared_loss_estimates_means_of_skewed_targets(law):
    errors, gaps = [], []
    for seed in range(4):
        X, z, rng = linear(20_000, 8, seed)
        y, bounds = skewed(law, z, rng)
        model = DPLinearRegression(bounds_y=bounds, random_state=seed, **COMMON).fit(X, y)
        found, best = model.predict(X), LinearRegression().fit(X, y).predict(X)
        errors.append(abs(found.mean() - y.mean()) / y.std())
        gaps.append(r2_score(y, best) - r2_score(y, found))
    assert np.median(errors) < 0.05, errors
    assert np.median(gaps) < 0.001, gaps
    assert max(gaps) < 0.03, gaps


@rest_is_slow(("n", "n_targets"), [(900, 1), (1000, 2)], ("1000-2",))
def test_levels_of_counts_are_kept_where_no_last_steps_follow(n, n_targets):
    biases = []
    for seed in range(9):
        X, z, rng = linear(n, 6, seed)
        y = skewed("counts", np.column_stack([z] * n_targets).squeeze(), rng)[0]
        model = DPLinearRegression(bounds_y=(0, 20), random_state=seed, epsilon=0.8, **COMMON)
        found = model.fit(X, y).predict(X)
        assert model.plan_.correction is None
        biases.append((found - y).mean(axis=0) / y.std(axis=0))
    # the median of such counts is .6 standard deviations below their mean
    assert np.abs(np.median(biases, axis=0)).max() < 0.2, biases


def test_heaped_targets_keep_their_slopes():
    """A narrow clip makes a regression one of medians, that are the heap nearly everywhere."""
    scores = []
    for seed in range(9):
        X, z, rng = linear(1200, 6, seed)
        y = np.where(rng.random(1200) < 0.5, 0.0, 5 * z + 5 * rng.standard_normal(1200))
        model = DPLinearRegression(bounds_y=(-60, 60), random_state=seed, epsilon=0.8, **COMMON)
        scores.append(model.fit(X, y).score(X, y) / LinearRegression().fit(X, y).score(X, y))
    assert np.median(scores) > 0.6, scores


def test_slopes_of_labels_without_intercept_are_as_steep_as_they_are():
    gained = []
    for seed in range(6):
        X, z, rng = linear(1500, 8, seed)
        y = (rng.random(1500) < expit(0.4 * z)).astype(int)
        facts = {"random_state": seed, "epsilon": 1.0, "fit_intercept": False, "classes": [0, 1]}
        raw = DPLogisticRegression(**facts, **COMMON).fit(X, y).decision_function(X)
        losses = [log_loss(y, expit(t * raw)) for t in (1.0, *np.geomspace(0.1, 10, 41))]
        gained.append(losses[0] - min(losses))
    assert np.mean(gained) < 0.02, gained


@pytest.mark.parametrize(("n_classes", "most"), [(2, 0.004), (5, 0.09)])
def test_slopes_of_clear_labels_grow(n_classes, most):
    """The loss is flat in large slopes, and steps of a fixed length end far below."""
    losses = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (20_000, 5))
        scores = 25 * X @ rng.normal(size=(5, n_classes))
        y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        facts = {"classes": range(n_classes), "random_state": seed, "epsilon": 3.0}
        found = DPLogisticRegression(**facts, **COMMON).fit(X, y).predict_proba(X)
        losses.append(log_loss(y, found) - log_loss(y, softmax(scores, axis=1)))
    assert np.median(losses) < most, losses


@pytest.mark.parametrize(
    ("n", "boundary", "epsilon", "most"), [(3000, 0.9, 3.0, 0.07), (1000, 0.7, 0.5, 0.22)]
)
def test_levels_of_clear_labels_grow_with_slopes(n, boundary, epsilon, most):
    """As the boundary stays; and if noise takes a part of the slopes back, so do levels."""
    losses = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.random((n, 5))
        y = (rng.random(n) < expit(150 * (X[:, 0] - boundary))).astype(int)
        facts = {"classes": [0, 1], "random_state": seed, "epsilon": epsilon, **COMMON}
        model = DPLogisticRegression(**{**facts, "bounds_X": (0, 1)}).fit(X, y)
        losses.append(log_loss(y, model.predict_proba(X)))
    assert max(losses) < most, losses


def test_many_labels_that_no_slopes_suit_have_the_means_of_those_that_suit_best():
    """Labels are clear on one side alone, and long units count all rows alike."""
    for seed in range(3):
        X = np.random.default_rng(seed).uniform(-1, 1, (30_000, 4))
        p = 0.01 + 0.8 * expit(20 * X[:, 0])
        y = (np.random.default_rng(seed + 100).random(30_000) < p).astype(int)
        best = LogisticRegression(C=1e6).fit(X, y).predict_proba(X)[:, 1]
        facts = {"epsilon": 10.0, "random_state": seed}
        assert excess_log_loss(X, y, y, X, best, **facts) < 7e-4


def test_classes_of_several_intervals_are_told_apart():
    """Mixed labels are few, at the ends of intervals: in longer units they tell little."""
    losses = []
    for seed in range(4):
        X, z, rng = linear(8000, 6, seed)
        z = 20 * z + rng.logistic(size=8000)
        y = np.searchsorted(np.quantile(z, [0.2, 0.4, 0.6, 0.8]), z)
        facts = {"classes": range(5), "random_state": seed, "epsilon": 1.0}
        found = DPLogisticRegression(**facts, **COMMON).fit(X, y).predict_proba(X)
        losses.append(log_loss(y, found))
    assert np.mean(losses) < 0.4, losses


def test_few_clear_labels_tell_how_clear_they_are():
    """Mixed ones are few and near 0: in units of all predictions their gradients are noise."""
    found = []
    for seed in range(8):
        X, z, rng = linear(5500, 5, seed)
        y = (rng.random(5500) < expit(20 * z)).astype(int)
        plain = LogisticRegression(max_iter=1000).fit(X[:1500], y[:1500])
        of_new = y[1500:], X[1500:], plain.predict_proba(X[1500:])[:, 1]
        facts = {"random_state": seed, "epsilon": 1.0}
        found.append(excess_log_loss(X[:1500], y[:1500], *of_new, **facts))
    assert np.mean(found) < -0.008, found


def test_targets_of_which_few_are_not_zero_keep_their_mean():
    """Also where the last steps have a clip that cuts all of those."""
    cases = (3000, 0.1, "zero-out", 0.8), (10_000, 0.02, "replace-one", 0.65)
    for n, share, relation, least in cases:
        ratios, settings = [], {**COMMON, "relation": relation}
        for seed in range(5):
            X, _, rng = linear(n, 4, seed)
            y = rng.binomial(1, share, n)
            model = DPLinearRegression(bounds_y=(0, 1), random_state=seed, **settings).fit(X, y)
            ratios.append(model.predict(X).mean() / share)
        assert least < np.median(ratios) < 1.3, ratios


def test_few_rows_of_which_most_are_zero_are_not_taken_for_others():
    """A centre at another of the thousand places within the bounds is off by many deviations."""
    levels, settings = [], {**COMMON, "relation": "replace-one", "epsilon": 0.5}
    for seed in range(60):
        X, _, rng = linear(300, 4, seed)
        y = np.where(rng.random(300) < 0.05, rng.uniform(0, 5, 300), 0.0)
        model = DPLinearRegression(bounds_y=(0, 50), random_state=seed, **settings).fit(X, y)
        levels.append(model.predict(X).mean())
    assert np.sqrt(np.mean(np.square(levels))) < 1.5, levels  # their deviation is .7


def test_slopes_of_skewed_targets_have_no_noise_in_all_directions():
    off = []
    for seed in range(4):
        X, z, rng = linear(20_000, 30, seed)
        y = np.exp(0.5 * z + rng.standard_normal(len(z))).clip(0, 50)
        model = DPLinearRegression(bounds_y=(0, 50), random_state=seed, **COMMON).fit(X, y)
        away = model.predict(X) - LinearRegression().fit(X, y).predict(X)
        off.append((away**2).mean() / y.var())
    assert np.mean(off) < 0.006  # .0033, and .0070 with the noise in all directions


@pytest.mark.filterwarnings("ignore:most values of the target may lie beyond")
@pytest.mark.parametrize(("n", "share", "most"), [(500, 0.6, 0.2), (2000, 0.9, 0.08)])
def test_targets_of_which_most_are_one_value_keep_their_mean(n, share, most):
    """Few spreads, in which means are cut, are far less than a standard deviation."""
    errors = []
    for seed in range(5):
        X, z, rng = linear(n, 5, seed)
        z += rng.logistic(size=n)
        y = np.where(z < np.quantile(z, share), 24.0, rng.uniform(0, 24, n))
        model = DPLinearRegression(bounds_y=(0, 24), random_state=seed, **COMMON).fit(X, y)
        errors.append(abs(model.predict(X).mean() - y.mean()) / y.std())
    assert np.median(errors) < most, errors


def test_slopes_of_targets_that_are_rarely_1_are_found():
    """They are fewer than can be counted, so that the clip was that of the residuals of zeros."""
    scores = []
    for seed in range(40):
        X, z, rng = linear(3000, 5, seed)
        y = (rng.uniform(size=3000) < expit(1.5 * z - 4.2)) * 1.0
        model = DPLinearRegression(epsilon=1.0, bounds_y=(0, 1), random_state=seed, **COMMON)
        scores.append(model.fit(X, y).score(X, y) / LinearRegression().fit(X, y).score(X, y))
    assert np.mean(scores) > 0.5


def test_wide_bounds_do_not_move_levels_by_the_noise_of_means():
    scores = []
    for seed in range(6):
        X, z, rng = linear(1000, 5, seed)
        y = z + rng.standard_normal(1000)
        model = DPLinearRegression(bounds_y=(-200, 200), random_state=seed, **COMMON)
        scores.append(model.fit(X, y).score(X, y))
    assert min(scores) > 0.4, scores


@pytest.mark.parametrize("epsilon", [2.0, 10.0])
def test_large_targets_that_are_fitted_keep_their_level(epsilon):
    """The released mean cuts those of a flag of few records, the last steps do not."""
    biases = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = np.column_stack([rng.random(4500) < 0.05, rng.uniform(-1, 1, (4500, 5))])
        y = 10 + X @ [60, 3, -2, 1, 0, 0] + 2 * rng.standard_normal(4500)
        model = DPLinearRegression(bounds_y=(0, 100), random_state=seed, epsilon=epsilon, **COMMON)
        biases.append((model.fit(X, y).predict(X).mean() - y.mean()) / y.std())
    assert np.abs(biases).max() < 0.05, biases


@rest_is_slow("intercept", [0.0, -3.0], ("-3.0",))
def test_logistic_loss_estimates_probabilities(intercept):
    for seed in range(3):
        X, z, rng = linear(8000, 8, seed)
        y = (rng.random(z.size) < expit(2 * z + intercept)).astype(int)
        model = DPLogisticRegression(classes=[0, 1], random_state=seed, **COMMON).fit(X, y)
        probability = model.predict_proba(X)[:, 1]
        refit = LogisticRegression(C=1e6).fit(model.decision_function(X)[:, None], y)
        best = refit.predict_proba(model.decision_function(X)[:, None])[:, 1]
        assert log_loss(y, probability) - log_loss(y, best) < 0.015
        assert refit.coef_[0, 0] == pytest.approx(1, abs=0.2)


def test_rare_ones_of_several_classes_are_as_many_as_they_are():
    """Where steps on all coefficients would be noise."""
    labels = np.arange(4)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (6000, 40))
        scores = X @ rng.standard_normal((40, 4)) + [1.0, 1.0, 0.0, -3.0]
        y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        model = DPLogisticRegression(epsilon=2.0, classes=list(labels), random_state=seed, **COMMON)
        found = model.fit(X, y).predict_proba(X).mean(axis=0)
        assert model.plan_.correction.size is not None
        np.testing.assert_allclose(found, (y[:, None] == labels).mean(axis=0), rtol=0.12)


def test_slopes_of_many_classes_are_as_steep_as_they_are():
    # the loss has a curvature of about one over their number
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (8000, 8))
    scores = X @ rng.standard_normal((8, 24))
    classes = (2 * scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    model = DPLogisticRegression(epsilon=10.0, classes=range(24), random_state=0, **COMMON)
    raw = model.fit(X, classes).decision_function(X)
    losses = [log_loss(classes, softmax(t * raw, axis=1)) for t in (1.0, 1.1)]
    assert losses[0] - losses[1] < 1e-3, losses


def test_long_rows_count_less_and_bias_nothing():
    """Columns with a mass at 0 and long tails."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((10_000, 6)) < 0.8, 0.0, np.exp(1.5 * rng.standard_normal((10_000, 6))))
    X = X.clip(0, 30)
    y = (X @ rng.standard_normal(6) / 5 + rng.standard_normal(10_000)).clip(-20, 20)
    best = LinearRegression().fit(X, y).score(X, y)
    model = DPLinearRegression(**COMMON | {"bounds_X": (0, 30)}, bounds_y=(-20, 20), random_state=0)
    assert model.fit(X, y).score(X, y) > best - 0.03


def test_slopes_are_those_of_all_rows_where_effects_saturate():
    """The long rows of a skewed column have a gentler slope than the others."""
    steeper = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = np.exp(rng.standard_normal((30_000, 2)))
        y = np.log(X).sum(axis=1) + rng.standard_normal(30_000)
        settings = {"bounds_X": (0, 100), "bounds_y": (-12, 12), "random_state": seed}
        model = DPLinearRegression(epsilon=0.3, **COMMON | settings).fit(X, y)
        steeper.append(np.mean(model.coef_ / LinearRegression().fit(X, y).coef_))
    assert np.mean(steeper) < 1.23, steeper  # 1.38 where rows are cut as in second moments


@pytest.mark.parametrize(("spread", "gap"), [(2.0, 0.005), (3.0, 0.1)])
def test_rows_of_all_lengths_do_not_make_the_last_steps_overshoot(spread, gap):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = np.exp(spread * rng.standard_normal((20_000, 1))).clip(0, 1e5)
        y = X[:, 0] + X.std() * rng.standard_normal(20_000)
        settings = {"bounds_X": (0, 1e5), "bounds_y": (-3e5, 3e5), "random_state": seed}
        model = DPLinearRegression(epsilon=5.0, **COMMON | settings).fit(X, y)
        assert model.score(X, y) > LinearRegression().fit(X, y).score(X, y) - gap


def test_noise_sends_no_step_back_of_few_coefficients():
    found = []
    for seed in range(12):
        X, _, rng = linear(300, 1, seed)
        y = (0.8 * X[:, 0] + 0.1 * rng.standard_normal(300)).clip(-1, 1)
        facts = COMMON | {"relation": "replace-one", "bounds_y": (-1, 1), "random_state": seed}
        model = DPLinearRegression(fit_intercept=False, **facts)
        found.append(model.fit(X, y).coef_[0])
    assert np.percentile(found, 25) > 0.7, found


# noise of products with such a column made its coefficient as large as others, however many rows
@rest_is_slow(
    ("n", "epsilon", "largest"),
    [(20_000, 1.0, np.median), (60_000, 3.0, np.max)],
    ("20000",),
    lambda case: str(case[0]),
)
def test_columns_without_records_have_next_to_no_effect(n, epsilon, largest):
    sizes = []
    for seed in range(4):
        X, _, rng = linear(n, 8, seed)
        X[:, :2] = 0.0
        X[rng.permutation(n)[:5], 1] = 1.0
        z = X[:, 2:] @ np.arange(1, 7) / 3 + rng.standard_normal(n)
        common = {"epsilon": epsilon, "random_state": seed, **COMMON}
        common["bounds_X"] = [0, 0] + [-1] * 6, [1] * 8
        for model in (
            DPLinearRegression(bounds_y=(-10, 10), **common).fit(X, z.clip(-10, 10)),
            DPLogisticRegression(classes=[False, True], **common).fit(X, z > 0),
        ):
            widths = np.array([1, 1] + [2] * 6) * np.abs(np.ravel(model.coef_))
            sizes.append(widths[:2] / widths[2:].max())
    assert largest(sizes, axis=0).max() < 0.2, sizes


def test_without_noise_the_model_is_that_of_least_squares():
    X, z, rng = linear(3000, 5, 0)
    y = skewed("lognormal", z, rng)[0]
    found = DPLinearRegression(epsilon=math.inf, bounds_X=(-1, 1), bounds_y=(0, 50), random_state=0)
    with pytest.warns(UserWarning, match="epsilon=inf"):
        found = found.fit(X, y).predict(X)
    best = LinearRegression().fit(X, y).predict(X)
    assert r2_score(y, best) - r2_score(y, found) < 1e-3


def test_the_same_correction_comes_from_all_storages():
    X, z, rng = linear(4000, 3, 0)
    y = np.clip(0.3 * z + 0.1 * rng.standard_normal(z.size), -1, 1)
    plan = planned(4000, 3, epsilon=4.0)
    assert plan.correction is not None
    plan = map_mechanisms(plan, lambda _, m: dataclasses.replace(m, precision="float"))
    first = plan.run(solver_data(X, y), stream())
    for stored in (np.asfortranarray(X), sparse.csr_array(X), sparse.csc_array(X)):
        found = plan.run(solver_data(stored, y), stream())
        np.testing.assert_allclose(first.coef, found.coef, rtol=1e-12)  # centres differ by as much


# --------------------------------------------------------------------- levels of probabilities


@pytest.mark.parametrize(("n", "epsilon"), [(1000, 3.0), (10_000, 0.3)])
def test_probabilities_of_a_rare_class_do_no_harm(n, epsilon):
    """Steps on a number that few records tell of would carry it anywhere."""
    losses = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, 5)).clip(-4, 4)
        y = rng.permutation(np.arange(n) < n // 100) * 1
        facts = {"delta": 1e-6, "bounds_X": (-5, 5), "classes": [0, 1], "random_state": seed}
        model = DPLogisticRegression(epsilon=epsilon, **facts)
        losses.append(log_loss(y, model.fit(X, y).predict_proba(X)) / log_loss(y, y * 0 + 0.01))
    assert max(losses) < 1.1, losses


def test_rare_labels_are_as_many_as_they_are_with_inference():
    """Errors of slopes make probabilities of rare events larger on average."""
    ratios = []
    for seed in range(7):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((10_000, 5)).clip(-4, 4)
        y = (rng.random(len(X)) < expit(X @ [0.8, -0.5, 0.3, 0, 0] - 4.6)).astype(int)
        facts = {"bounds_X": (-4, 4), "classes": [0, 1], "epsilon": 1.0, "delta": 1e-6}
        model = DPLogisticRegression(inference=True, random_state=seed, **facts).fit(X, y)
        ratios.append(model.predict_proba(X)[:, 1].mean() / y.mean())
    assert 0.85 < np.median(ratios) < 1.12, ratios


def test_levels_are_those_of_normal_predictions():
    rng = np.random.default_rng(0)
    slopes = rng.standard_normal((3, 4))
    for (k, weights), spread in itertools.product(
        ((1, None), (1, (1.0, 0.2)), (4, None), (4, (1.0, 0.2, 0.4, 1.0))), (1.5, 200.0)
    ):
        fact = dataclasses.replace(
            problem(100, 3, task="classification", n_outputs=k), class_weight=weights
        )
        # of records without weights, whose probabilities a model without them has
        shift = np.zeros(max(2, k)) if weights is None else np.log(weights)
        frequencies = np.array([0.97, 0.03]) if k == 1 else np.array([0.6, 0.3, 0.09, 0.01])
        offset = np.log(frequencies) + shift
        offset = offset[1] - offset[0] if k == 1 else offset - offset.mean()
        units = SimpleNamespace(problem=fact, frame=Frame(offset))
        points = unit_descent._normal_points(units, slopes[:, :k], spread)
        found = unit_descent._levels(units, points) + offset
        full = np.append(0.0, found) if k == 1 else found
        mean = softmax(points + full - shift, axis=1).mean(axis=0)
        np.testing.assert_allclose(mean, frequencies, rtol=1e-9)
        found = np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean())
        assert found == pytest.approx(spread, rel=0.02)


def test_levels_are_no_more_in_doubt_than_those_of_the_slopes_that_are_kept(monkeypatch):
    """Last steps that went far off, of which little is kept, moved the level as if all were."""
    off, descend = [], unit_descent._descend

    def far(units, start, *facts, **settings):
        found = descend(units, start, *facts, **settings)
        is_last = start.size == 2
        return (np.array([6 * start[0], start[1] - 2.0]), [], np.ones(2)) if is_last else found

    monkeypatch.setattr(unit_descent, "_descend", far)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 10)).clip(-4, 4)
    y = (rng.random(1500) < expit(0.6 * X[:, 0] + 0.4 * X[:, 1] + 2.3)).astype(int)
    model = DPLogisticRegression(epsilon=0.5, delta=1e-6, bounds_X=(-4, 4), classes=[0, 1])
    for seed in range(6):
        found = model.set_params(random_state=seed).fit(X, y).predict_proba(X)
        off.append(found[:, 1].mean() - y.mean())
    assert np.mean(np.abs(off)) < 0.045, off  # it was .054


def test_levels_of_records_with_weights_are_those_of_weighted_classes():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20_000, 3)).clip(-4, 4)
    y = (rng.random(len(X)) < 0.5) * 1
    facts = {"delta": 1e-6, "bounds_X": (-5, 5), "classes": [0, 1], "random_state": 0}
    model = DPLogisticRegression(epsilon=3, max_weight=1.0, **facts)
    model.fit(X, y, sample_weight=np.where(y, 0.2, 1.0))
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(1 / 6, abs=0.03)
    # and of a rare label, where steps tell little of it
    excess = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((5000, 5)).clip(-4, 4)
        y = (rng.random(5000) < expit(X @ [1.0, -0.7, 0.5, 0.0, 0.0] - 4.7)) * 1
        weights = rng.uniform(0.1, 1.0, 5000)
        facts |= {"epsilon": 0.5, "relation": "zero-out", "random_state": seed}
        model = DPLogisticRegression(max_weight=1.0, **facts).fit(X, y, sample_weight=weights)
        found = log_loss(y, model.predict_proba(X)[:, 1], sample_weight=weights)
        usual = np.full(5000, np.average(y, weights=weights))
        excess.append(found / log_loss(y, usual, sample_weight=weights) - 1)
    assert np.mean(excess) < 0.03, excess
    assert max(excess) < 0.2, excess


@pytest.mark.parametrize(("weight", "classes"), [(0.0, [0, 1]), (0.0, [0, 1, 2]), (1e-200, [0, 1])])
def test_weights_that_add_up_to_nothing_without_noise_are_no_error(weight, classes):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), np.resize(classes, 60)
    facts = {"bounds_X": (-1, 1), "classes": classes, "max_weight": 1.0}
    model = DPLogisticRegression(epsilon=math.inf, **facts)
    with pytest.warns(PrivacyLeakWarning):
        model.fit(X, y, sample_weight=np.full(60, weight))
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.intercept_))


def excess_log_loss(X, y, y_new, X_new, expected, **settings):
    """Log loss on new records less that of what is expected of them."""
    facts = COMMON | {"classes": [0, 1], **settings}
    found = DPLogisticRegression(**facts).fit(X, y).predict_proba(X_new)[:, 1]
    return log_loss(y_new, found) - log_loss(y_new, expected)


def test_noise_does_not_take_back_slopes_that_are_clear():
    """Of rare labels in a group of their own, whose last steps have little to hold a slope."""
    for seed in (0, 15, 20):  # where all had one probability, or nearly
        rng = np.random.default_rng(seed)
        y = (rng.random(14_000) < 0.02).astype(int)
        X = 0.4 * rng.normal(size=(14_000, 4))
        X[:, 0] += 3 * y
        facts = {"bounds_X": (-4, 4), "relation": "replace-one", "random_state": seed}
        of_new = y[6000:], X[6000:], np.full(8000, 0.02)
        assert excess_log_loss(X[:6000], y[:6000], *of_new, epsilon=1.0, **facts) < -0.02


def test_levels_are_found_where_scores_are_in_groups():
    """A tenth is far above: normal scores that are as large would have another level."""
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = 0.5 * rng.normal(size=(14_000, 6))
        is_high = np.random.default_rng(seed + 100).random(14_000) < 0.1
        X[:, 0] += 4 * is_high
        y = (rng.random(14_000) < expit(2 * (X[:, 0] - 1) - 2)).astype(int)
        plain = LogisticRegression(C=np.inf).fit(X[:6000], y[:6000])
        of_new = y[6000:], X[6000:], plain.predict_proba(X[6000:])[:, 1]
        facts = {"bounds_X": (-6, 6), "random_state": seed, "epsilon": 3.0}
        found.append(excess_log_loss(X[:6000], y[:6000], *of_new, **facts))
    assert np.mean(found) < 0.005, found


def test_levels_that_are_off_beyond_any_doubt_stay_where_noise_is_small():
    """Else, as of a rare label, the loss is flat there, and steps may end anywhere."""

    def between(own, noise):
        facts = np.zeros(1), np.full(1, 0.01), np.full(1, own), np.full(1, noise)
        return float(unit_descent._between(*facts, is_surprise=True)[0])

    assert between(-2.0, 0.01) == pytest.approx(-2.0, abs=0.05)
    assert between(-0.2, 0.01) == pytest.approx(-0.1)
    assert between(-6.0, 3.0) == pytest.approx(-6.0 * 0.01 / 3.01)


@pytest.mark.parametrize(("n", "odds", "effect"), [(4000, 1.5, 2.0), (15_000, 2.0, 1.0)])
def test_a_flag_may_rule_a_label_out(n, odds, effect):
    """The loss is flat in its slope on one side alone, and the other rows tell the level."""
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 8)).clip(-4, 4)
        X[:, 0] = rng.random(n) < 0.3
        z = effect / 4 * X[:, 1:] @ rng.normal(size=7) + odds
        p = np.where(X[:, 0], 0.0, expit(z))
        y = (rng.random(n) < p).astype(int)
        facts = {"bounds_X": ([0] + [-4] * 7, [1] + [4] * 7), "random_state": seed}
        found.append(excess_log_loss(X, y, y, X, p, epsilon=3.0, **facts))
    assert max(found) < 0.006, found


@pytest.mark.parametrize(("shown", "epsilon"), [(0.64, 1.0), (0.9, 3.0)])
def test_labels_of_few_rows_that_are_far_from_all_others_are_not_certain(shown, epsilon):
    """A flag of 3 % nearly tells the label: its rows are most of a class, and far from all."""
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(4000, 8)).clip(-4, 4)
        X[:, 0] = rng.random(4000) < 0.03
        p = np.where(X[:, 0], shown, 0.001)
        y = (rng.random(4000) < p).astype(int)
        facts = {"bounds_X": ([0] + [-5] * 7, [1] + [5] * 7), "random_state": seed}
        found.append(excess_log_loss(X, y, y, X, p, epsilon=epsilon, **facts))
    assert np.mean(found) < 0.025, found


def test_long_rows_are_not_certain_of_rare_labels():
    """Effects of columns with long tails saturate: their longest rows are far from the model's."""
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = np.exp(1.5 * rng.normal(size=(4000, 5))).clip(0, 1000)
        z = np.log(X[:, 0]) + 0.5 * np.log(X[:, 1]) - 4
        y = (rng.random(4000) < expit(z)).astype(int)
        facts = {"bounds_X": (0, 1000), "random_state": seed, "epsilon": 1.0}
        of_new = y[3000:], X[3000:], np.full(1000, y[:3000].mean())
        found.append(excess_log_loss(X[:3000], y[:3000], *of_new, **facts))
    assert np.mean(found) < 0.007, found


@pytest.mark.parametrize(("n", "relation"), [(1500, "zero-out"), (1500, "replace-one")])
def test_released_means_do_not_count_weights(n, relation):
    """Levels of targets that go with the weights stay where the weighted rows are."""
    rng, offs = np.random.default_rng(0), []
    for seed in range(5):
        X = rng.uniform(-1, 1, (n, 5))
        y = 10 + X @ [2.0, -1.0, 1.0, 0.0, 0.0] + rng.standard_normal(n)
        weights = 1 - 0.95 * np.argsort(np.argsort(y)) / n
        settings = COMMON | {"relation": relation, "bounds_y": (0, 30), "random_state": seed}
        model = DPLinearRegression(max_weight=1.0, **settings).fit(X, y, sample_weight=weights)
        off = np.average(model.predict(X) - y, weights=weights)
        offs.append(off / math.sqrt(np.cov(y, aweights=weights)))
    assert np.sqrt(np.mean(np.square(offs))) < 0.08, offs


@pytest.mark.parametrize(("share", "clip"), [(0.03, 1.0), (0.5, 0.1)])
def test_a_clip_of_users_that_sees_no_rare_label_lets_a_row_count_in_full(monkeypatch, share, clip):
    found, of_all = [], unit_descent.Correction._clip
    monkeypatch.setattr(unit_descent, "_user_clip", lambda *others: 0.1)
    monkeypatch.setattr(
        unit_descent.Correction, "_clip", lambda *facts: found.append(of_all(*facts)) or found[-1]
    )
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (2000, 4)), (rng.random(2000) < share).astype(int)
    model = DPLogisticRegression(epsilon=1.0, classes=[0, 1], bounds_X=(-1, 1), random_state=0)
    model.set_params(relation="replace-one", max_rows_per_user=5)
    model.fit(np.repeat(X, 5, axis=0), np.repeat(y, 5), groups=np.repeat(np.arange(2000), 5))
    assert found == [clip]
