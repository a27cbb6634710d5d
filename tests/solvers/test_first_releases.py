"""What is released before a descent, without noise and with far too much, and the way back."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.special import expit, softmax
from support import LOSSES, problem, scaled_table, solver_data, stream

from sklearn_dpsco.audit import map_mechanisms
from sklearn_dpsco.data.rows import Rows, SolverData
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.losses import Huber
from sklearn_dpsco.mechanisms import Gaussian, Laplace
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import FTRL, MirrorDescent
from sklearn_dpsco.solvers.base import Frame
from sklearn_dpsco.solvers.defaults import FIRST_RELEASES
from sklearn_dpsco.solvers.first_releases import FirstReleases, plan_constant, plan_first
from sklearn_dpsco.solvers.statistics import constant_for_mean, faded, shrunk_vector

BUDGET = PrivacyBudget(1.0, 1e-6)
N, D = 200, 3


def facts(n=N, d=D, **others):
    return problem(n, d, **{"feasible_set": L2Ball} | others)


def planned(facts, *, budget=BUDGET, norm=1.0, **settings):
    allowance = budget.gaussian_allowance
    first = plan_first(facts, budget, allowance, norm, **{"may_shrink": True} | settings)
    return first, allowance


def with_noise(plan, scale):
    """The plan with that noise in everything that it releases."""
    return map_mechanisms(plan, lambda _, m: dataclasses.replace(m, scale=scale, precision="float"))


# ------------------------------------------------------------------ the way back to plain rows

FRAMES = {
    "intercept_unit": 0.25,
    "offset": 0.7,
    "center": np.array([0.3, -0.5, 0.1]),
    "scale": np.array([2.0, 0.5, 10.0]),
    "factor": 0.6,
    "target_center": -40.0,
    "target_scale": 8.0,
    "outer": Frame(
        center=np.array([0.1, 0.0, -0.2]), scale=np.array([0.5, 2.0, 0.1]), target_scale=3.0
    ),
}


def prediction(frame, X, w, fit_intercept):
    """Of plain targets, as the docstring of `Frame` says it."""
    if frame.outer is not None:
        outer, inner = frame.outer, dataclasses.replace(frame, outer=None)
        found = prediction(inner, (X - outer.center) / outer.scale, w, fit_intercept)
        return outer.target_center + outer.target_scale * found
    center = np.zeros(D) if frame.center is None else frame.center
    scale = np.ones(D) if frame.scale is None else frame.scale
    rows = (X - center) / scale
    if fit_intercept:
        rows = np.column_stack((rows, np.full(len(X), frame.intercept_unit)))
    return frame.target_center + frame.target_scale * (frame.offset + frame.factor * (rows @ w))


def test_predictions_in_a_frame_are_those_of_its_plain_model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, D))
    fields = {field.name for field in dataclasses.fields(Frame)}
    # for the descent alone, and a limit that no linear model has
    assert set(FRAMES) == fields - {"class_weight", "mean_weight", "reach"}
    for fit_intercept in (True, False):
        w = rng.normal(size=D + fit_intercept)
        case = facts(20, fit_intercept=fit_intercept)
        plain = Frame().result(w, case, 5)
        for fields in ({}, *({name: value} for name, value in FRAMES.items()), FRAMES):
            if not fit_intercept and {"center", "outer"} & set(fields):
                continue  # rows are centred only where an intercept makes up for it
            frame = Frame(**fields)
            result = frame.result(w, case, 5)
            expected = prediction(frame, X, w, fit_intercept)
            found = X @ result.coef + result.intercept
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=str(fields))
            is_plain = np.array_equal(found, X @ plain.coef + plain.intercept)
            changes = fields and (fit_intercept or set(fields) != {"intercept_unit"})
            assert is_plain == (not changes), fields
            assert result.n_iter == 5


def test_a_model_without_steps_counts_as_one_iteration():
    result = Frame(offset=0.25, target_scale=4.0).result(np.zeros(D + 1), facts(), 0)
    assert (result.n_iter, result.intercept) == (1, 1.0)
    assert not np.any(result.coef)


# -------------------------------------------------------------------------------- the plan


def test_the_releases_and_what_is_left_make_up_the_allowance():
    for relation in RELATIONS:
        budget = PrivacyBudget(1.0, 1e-6, relation)
        for n_outputs in (1, 3):
            for settings in ({}, {"may_shrink": False}, {"may_step": False},
                             {"shares": (0.3, 0.5, 0.1)}):  # fmt: skip
                first, allowance = planned(facts(n_outputs=n_outputs), budget=budget, **settings)
                spent = sum(release.cost(allowance.kind) for release in first.releases)
                assert 0 < first.left < 1
                whole = spent + allowance.share(first.left).amount
                assert whole == pytest.approx(allowance.amount, rel=1e-9), (relation, settings)


def test_what_is_not_wanted_is_not_released():
    def released(**settings):
        problem = facts(**{key: settings.pop(key) for key in ("fit_intercept",) if key in settings})
        first, _ = planned(problem, **settings)
        return [release.name for release in first.releases]

    every = ["target's centre", "feature means", "mean row factor"]
    assert released() == every
    assert released(may_step=False) == ["mean target", *every[1:]]
    assert released(may_shrink=False) == every[:2]
    assert released(norm=2.0) == every[:2]  # which no row in the box exceeds
    assert released(fit_intercept=False) == every[2:]
    assert released(fit_intercept=False, may_shrink=False) == []


def test_releases_on_a_slice_carry_its_name():
    first, _ = planned(facts(), group="first slice", shares=(0.3, 0.6, 0.1))
    assert {release.group for release in first.releases} == {"first slice"}
    assert first.left == pytest.approx(0.0, abs=1e-12)
    counts = [release.count for release in first.releases]
    assert counts == [first.target_steps, 1, 1] == [FIRST_RELEASES.location_steps, 1, 1]


def test_the_centre_of_the_targets_is_looked_for_where_their_mean_would_be_noise():
    pure = PrivacyBudget(1.0, 0.0)
    for case, budget, looked_for in (
        (facts(50), BUDGET, True),
        (facts(50_000), BUDGET, False),
        (facts(50, task="classification"), BUDGET, False),
        (facts(50, fit_intercept=False), BUDGET, False),
        (facts(50), pure, False),
    ):
        first = plan_constant(case, budget, budget.allowance)
        mechanism = first.target
        assert (first.target_steps > 0) == looked_for, case
        assert (mechanism is None) == (not case.fit_intercept), case
        mean = plan_constant(case, budget, budget.allowance, may_step=False).target
        if looked_for:  # by residuals that are clipped
            assert mechanism.sensitivity == FIRST_RELEASES.location_clip * mean.sensitivity
        else:
            assert mechanism == mean, case
    assert isinstance(plan_constant(facts(), pure, pure.allowance, may_step=False).target, Laplace)
    assert isinstance(
        plan_constant(facts(), BUDGET, BUDGET.allowance, may_step=False).target, Gaussian
    )


# --------------------------------------------------------------------------------- the run


def row_factors(X, fit_intercept):
    """What shortens the rows to a norm of 1."""
    return np.minimum(1.0, 1.0 / np.sqrt((X**2).sum(axis=1) + fit_intercept))


def test_without_noise_the_frame_holds_the_means():
    for task, fit_intercept in itertools.product(LOSSES, (True, False)):
        case = facts(task=task, fit_intercept=fit_intercept)
        first = with_noise(planned(case, may_step=False)[0], 1e-13)
        X, y = scaled_table(N, D, task=task)
        present = (np.arange(N) % 5 > 0).astype(float)
        data = solver_data(X, y, fit_intercept=fit_intercept, scale=present)
        start, frame = first.run(data, stream())
        rows = start.rows

        # a record that is not there counts as 0
        offset, center = 0.0, np.zeros(D)
        if fit_intercept:
            offset = LOSSES[task].best_constant((present * y).mean())
            center = present * row_factors(X, fit_intercept) @ X / N
            np.testing.assert_allclose(frame.center, center, atol=1e-10)
        else:
            assert frame.center is None
        assert frame.offset == pytest.approx(offset, abs=1e-10)
        # and its factor as the middle of their range
        least = 1 / math.sqrt(case.dimension)
        factors = row_factors(X - center, fit_intercept)
        scale = np.where(present > 0, factors, (least + 1) / 2)
        assert frame.factor == pytest.approx(scale.mean(), abs=1e-10)
        np.testing.assert_allclose(rows.scale, present * factors, atol=1e-10)
        # nothing of the targets' units
        assert (frame.scale, frame.target_center, frame.target_scale) == (None, 0.0, 1.0)


def test_without_a_bound_the_rows_stay_as_they_are():
    case = facts()
    first = plan_constant(case, BUDGET, BUDGET.allowance, may_step=False)
    data = solver_data(*scaled_table(N, D))
    start, frame = first.run(data, stream())
    assert start is data
    assert frame.offset != 0
    assert dataclasses.replace(frame, offset=0.0) == Frame()
    assert FirstReleases(case).run(data, stream())[1] == Frame()


def test_whatever_the_noise_the_frame_stays_within_what_is_public():
    data = solver_data(*scaled_table(N, D))
    for may_step in (True, False):
        for seed in range(20):
            first = with_noise(planned(facts(), may_step=may_step)[0], 100.0)
            start, frame = first.run(data, stream(seed))
            rows = start.rows
            assert abs(frame.offset) <= 1
            assert np.all(np.abs(frame.center) <= 1)
            assert 1 / math.sqrt(D + 1) - 1e-12 <= frame.factor <= 1
            longest = rows.norms() * rows.scale
            assert longest.max() <= 1.0


def test_small_tables_find_the_centre_of_narrow_targets():
    # where a mean in [-1, 1] would be noise; without noise it is Huber's centre
    rng = np.random.default_rng(0)
    y = 0.6 + 0.1 * rng.standard_normal(50)
    y[:5] = -1.0
    plan = MirrorDescent().plan(facts(50, 2), PrivacyBudget(0.5, 1e-6))
    assert plan.first.target_steps > 1
    assert "target's centre" in str(plan.guarantee)
    large = MirrorDescent().plan(facts(5000, 2), BUDGET)
    assert large.first.target_steps == 0
    stage = dataclasses.replace(plan.stages[0], learning_rate=0.0)
    plan = dataclasses.replace(with_noise(plan, 1e-13), stages=(stage,))
    result = plan.run(solver_data(np.zeros((50, 2)), y), stream())
    grid = np.linspace(-1, 1, 2001)
    values = [Huber(0.12).value(np.full(50, b), y).mean() for b in grid]
    assert result.intercept == pytest.approx(grid[np.argmin(values)], abs=0.02)


def test_noisy_means_are_shrunk_by_their_noise():
    def shrunk(mean, variance, **bound):
        return constant_for_mean(facts(), np.array([mean]), variance, 0.5, **bound).offset

    assert shrunk(0.3, 0.0) == 0.3
    assert shrunk(7.0, 0.0) == 1.0
    assert shrunk(-7.0, 1.25, bound=3.0) == pytest.approx(-3.0 / 6)
    assert shrunk(0.3, 0.25) == pytest.approx(0.15)  # as much noise as there is prior
    assert abs(shrunk(1.0, 1e9)) < 1e-9


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_rare_classes_are_as_rare_as_noise_and_the_records_tell(n_outputs):
    def frequency(p, noise, n=10**6, **weights):
        told = facts(n, 2, task="classification", n_outputs=n_outputs)
        told = dataclasses.replace(told, **weights)
        means = np.array([p, 0.3, 0.7 - p]) if n_outputs > 1 else np.array([2 * p - 1])
        variance = noise**2 if n_outputs > 1 else 4 * noise**2
        offset = constant_for_mean(told, means, variance).offset
        return softmax(offset)[0] if n_outputs > 1 else expit(offset)

    assert frequency(2e-4, 1e-6) == pytest.approx(2e-4, rel=1e-3)
    assert frequency(-1e-4, 5e-4) == pytest.approx(5e-4, rel=1e-3)
    assert frequency(0.0, 1e-9, n=1000) == pytest.approx(1e-3, rel=1e-2)
    # where noise is large, of a hundred records of two classes one
    assert 0.005 < frequency(-1.0, 0.02) < 0.011
    if n_outputs == 1:
        rarer = frequency(1e-3, 1e-6, class_weight=(0.25, 1.0))
        assert rarer == pytest.approx(4e-3, rel=0.01)


def test_centres_that_are_not_above_their_noise_become_the_middle():
    released = np.array([0.3, -0.3, 0.05, 0.0, 0.2])
    assert faded(released, 0.0) == pytest.approx(released)
    assert faded(released, 0.04) == pytest.approx([0.3 - 0.04 / 0.3, -0.3 + 0.04 / 0.3, 0, 0, 0])


def test_where_the_bounds_are_far_too_wide_a_constant_stays_near_their_middle():
    # 200 targets within a thousandth of the bounds, and a noise of about a tenth of them
    y = 0.001 * np.sin(np.arange(200.0))
    data = solver_data(np.zeros((200, 1)), y)
    facts, budget = problem(200, 1), PrivacyBudget(0.1, 1e-6)
    plan = plan_first(
        facts, budget, budget.gaussian_allowance, 1.0, may_shrink=True, may_step=False
    )
    offsets = [abs(plan.run(data, stream(seed))[1].offset) for seed in range(40)]
    assert np.median(offsets) == 0.0
    assert max(offsets) > 0.0
    v = np.array([3.0, 4.0])
    np.testing.assert_array_equal(shrunk_vector(v, 0.0), v)
    np.testing.assert_allclose(shrunk_vector(v, 6.25), v / 2)
    assert not np.any(shrunk_vector(v, 12.5))
    assert not np.any(shrunk_vector(v, 1e9))
    assert not np.any(shrunk_vector(np.zeros(2), 0.0))


# ----------------------------------------------------------------- the first part of a stream


def test_without_noise_the_first_records_of_a_stream_give_their_means():
    case = facts(1000)
    first = FTRL().plan(case, BUDGET).first
    n = first.n_records
    assert 0 < n < 1000
    X, y = scaled_table(n, D)
    present = (np.arange(n) % 5 > 0).astype(float)
    total = np.zeros(D + 1)
    for part in (slice(0, 10), slice(10, n)):
        rows = Rows(X[part], True, present[part])
        first.add(total, SolverData(rows, y[part]), Frame())
    silent = dataclasses.replace(first.noise, scale=1e-13, precision="float")
    frame = dataclasses.replace(first, noise=silent).run(total, Frame(), stream())
    factor = present * np.minimum(1.0, first.norm / np.sqrt((X**2).sum(axis=1) + 1))
    np.testing.assert_allclose(frame.center, factor @ X / n, atol=1e-10)
    assert frame.offset == pytest.approx((present * y).mean(), abs=1e-10)
    # the vector of each record is no longer than 1, and far from 0
    for i in range(n):
        one = np.zeros(D + 1)
        target = np.array([1.0 if i % 2 else -1.0])
        rows = Rows(np.full((1, D), target[0]), True)
        first.add(one, SolverData(rows, target), Frame())
        assert 0.8 < np.linalg.norm(one) < 1
