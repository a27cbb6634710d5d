"""The audit module itself: bounds where the truth is known, bad input, the replay's verdicts."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support import assert_refuses, half_is_enough, problem, solver_data

from sklearn_dpsco import (
    BudgetAccountant,
    DPLassoFW,
    DPLassoFWClassifier,
    Guarantee,
    PrivacyBudget,
)
from sklearn_dpsco.audit import (
    audit,
    audit_outcomes,
    audit_plan,
    check_sensitivity,
    map_mechanisms,
    mechanisms,
    neighbours,
)
from sklearn_dpsco.audit.neighbours import changed_record
from sklearn_dpsco.audit.runs import evidence, upper_bound
from sklearn_dpsco.data.rows import Rows, SolverData
from sklearn_dpsco.mechanisms import Gaussian, Laplace, Release, SelectVertex
from sklearn_dpsco.mechanisms.batch import BatchGaussian
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.randomness.subsets import RandomBatches
from sklearn_dpsco.solvers import Gradient, Selection
from sklearn_dpsco.solvers.base import Frame, Part, Plan, SolverResult

DELTA = 1e-6


# -------------------------------------------------------------------------- the bounds


def gaussian_outcomes(mu, n=10_000, seed=0):
    noise = np.random.default_rng(seed).standard_normal((2, n))
    return noise[0], noise[1] + mu


def test_gaussian_bound_where_the_truth_is_known():
    budget = PrivacyBudget(4.0, DELTA)
    for sign in (1, -1):
        result = audit_outcomes(*gaussian_outcomes(sign * budget.mu), epsilon=4.0, delta=DELTA)
        assert 0.75 * budget.mu <= result.gaussian_mu_lower_bound <= budget.mu
        assert 2.9 <= result.gaussian_epsilon_lower_bound <= 4.0
        assert 0 < result.epsilon_lower_bound <= 4.0
        assert not result.flagged
    # mu and epsilon belong together
    assert PrivacyBudget(result.gaussian_epsilon_lower_bound, DELTA).mu == pytest.approx(
        result.gaussian_mu_lower_bound
    )


def test_bound_without_assumptions_where_the_truth_is_known():
    # randomized response at epsilon = 1
    p = 1 / (1 + math.exp(-1))
    answers = np.random.default_rng(0).uniform(size=(2, 10_000)) < [[p], [1 - p]]
    result = audit_outcomes(*answers, epsilon=1.0)
    assert 0.7 <= result.epsilon_lower_bound <= 1.0
    assert math.isnan(result.gaussian_epsilon_lower_bound)
    # disjoint outcomes: no more than the number of trials can show
    found = audit_outcomes(np.zeros(10_000), np.ones(10_000), epsilon=1.0).epsilon_lower_bound
    assert 6 < found < math.log(5000)


def test_nothing_is_found_between_equals():
    result = audit_outcomes(*gaussian_outcomes(0.0), epsilon=1.0, delta=DELTA)
    assert result.epsilon_lower_bound < 0.05
    assert result.gaussian_mu_lower_bound < 0.05
    constant = np.ones((100, 3))
    result = audit_outcomes(constant, constant, epsilon=1.0, delta=DELTA)
    assert result.epsilon_lower_bound == result.gaussian_epsilon_lower_bound == 0


@half_is_enough
def test_false_alarms_are_as_rare_as_stated(cells):
    # at confidence 90 % and with the claim exactly true: at most 10 %, give or take 4 sigma
    n, mu = 100 if cells == "all" else 30, PrivacyBudget(1.0, 0.01).mu
    claim = {"epsilon": 1.0, "delta": 0.01, "confidence": 0.9}
    tables = [gaussian_outcomes(0.999 * mu, 200, seed) for seed in range(n)]
    results = [audit_outcomes(*t, **claim, gaussian=k % 2 == 0) for k, t in enumerate(tables)]
    limit = 0.1 + 4 * math.sqrt(0.1 * 0.9 / (n / 2))
    for by_which in (results[::2], results[1::2]):
        assert np.mean([r.flagged for r in by_which]) <= limit
    assert np.mean([r.gaussian_mu_lower_bound > mu for r in results]) <= limit


def test_the_bound_that_the_claim_is_of_decides():
    # mu of a Gaussian claim exceeded by half: only the bound for it can see so little
    first, second = gaussian_outcomes(1.5 * PrivacyBudget(4.0, DELTA).mu)
    decided = {
        gaussian: audit_outcomes(first, second, epsilon=4.0, delta=DELTA, gaussian=gaussian)
        for gaussian in (False, True)
    }
    assert [r.flagged for r in decided.values()] == [False, True]
    assert [r.decided_by for r in decided.values()] == ["assumption-free", "gaussian"]
    assert decided[False].epsilon_lower_bound == decided[True].epsilon_lower_bound < 4.0
    with pytest.raises(ValueError, match="gaussian"):
        audit_outcomes(first, second, epsilon=4.0, gaussian=True)


def test_vectors_are_projected_where_they_differ():
    # far larger noise elsewhere, and shared noise that a discriminant can subtract
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 8000, 4)) * [1, 1, 1000, 0]
    for outcomes in (first, second):
        outcomes[:, 0] += 5 * outcomes[:, 1]
    second[:, 0] += 1.0
    result = audit_outcomes(first, second, epsilon=8.0, delta=DELTA)
    assert 0.7 <= result.gaussian_mu_lower_bound <= 1.0
    assert result.scores.shape == result.neighbour_scores.shape == (6400,)


def test_bad_outcomes_are_refused():
    for changes, match in (
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({"outcomes": np.zeros(19)}, "n_trials"),
        ({"outcomes": np.full(30, np.nan)}, "finite"),
        ({"outcomes": np.zeros((30, 2, 2))}, "shape"),
    ):
        arguments = {"outcomes": np.zeros(30), "epsilon": 1.0} | changes
        arguments.setdefault("neighbour_outcomes", arguments["outcomes"])
        assert_refuses(audit_outcomes, match, **arguments)
    assert_refuses(audit_outcomes, "shape", np.zeros(30), np.zeros(31), epsilon=1.0)


def test_a_mean_whose_noise_forgets_the_batch_is_flagged():
    """A claim of (0.21, 1e-5) on a mean of clipped gradients.

    The sensitivity was divided by the size of the batch once more than the sum was.
    """
    batch, mu = 16, PrivacyBudget(0.21, 1e-5).mu

    def gradients(scale):
        rng = np.random.default_rng(batch)
        total = np.array([batch - 2.0, batch])  # one clipped gradient from -1 to 1
        return [t + scale * rng.standard_normal(5000) for t in total]

    right = audit_outcomes(*gradients(2 / mu), epsilon=0.21, delta=1e-5)
    assert not right.flagged
    assert right.gaussian_epsilon_lower_bound <= 0.21
    wrong = audit_outcomes(*gradients(2 / mu / batch), epsilon=0.21, delta=1e-5)
    assert wrong.flagged
    assert wrong.gaussian_epsilon_lower_bound > wrong.epsilon_lower_bound > 1


# ----------------------------------------------------------------------- whole estimators


def tables(n=20, d=2):
    X, y = np.zeros((n, d)), np.where(np.arange(n) % 2, 1.0, -1.0)
    X[:2, 0], y[:2] = 1.0, (1.0, -1.0)
    other = y.copy()
    other[0] = -1.0
    return (X, y), (X, other)


def lasso(**parameters):
    settings = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "epsilon": 4.0}
    return DPLassoFW(**settings | {"solver": Gradient(max_iter=1)} | parameters)


def test_estimators_are_audited():
    solver = Gradient(max_iter=1, gradient_clip=0.3, data_norm=1.0)
    model = lasso(solver=solver, fit_intercept=False, epsilon=20.0)
    result = audit(model, *tables(), 80, random_state=0)
    assert (result.epsilon, result.delta) == (20.0, 1e-6)
    assert not result.flagged
    assert 5 < result.gaussian_epsilon_lower_bound <= 20.0
    assert not hasattr(model, "coef_")
    # what it would be worth as a claim of 0.2
    low = audit(model, *tables(), 20, claim=(0.2, 1e-6), random_state=0)
    assert low.epsilon == 0.2
    assert result.decided_by == low.decided_by == "gaussian"
    scores = result.scores, result.neighbour_scores
    assert audit_outcomes(*scores, epsilon=0.2, delta=1e-6, gaussian=True).flagged
    pure = audit(lasso(delta=0, solver=Selection(max_iter=1)), *tables(), 20, random_state=0)
    assert pure.decided_by == "assumption-free"


class Noise(BaseEstimator):
    def __init__(self, epsilon=1.0, random_state=None):
        self.epsilon, self.random_state = epsilon, random_state

    def fit(self, X, y):
        self.coef_ = stream_from_random_state(self.random_state).normal(1)
        return self


class Sampled(Noise):
    """A mean over a random batch, whose trade-off curve is not that of Gaussian noise."""

    composition = "renyi"

    def fit(self, X, y):
        noise = BatchGaussian(1.0, 9.0, sampling=RandomBatches(20, 4, "fixed"))
        facts = 4.0, DELTA, "replace-one", self.composition
        self.guarantee_ = Guarantee(*facts, (Release("mean", noise),))
        return super().fit(X, y)


@pytest.mark.parametrize("composition", ["renyi", "pld"])
def test_random_batches_are_judged_without_assumptions(composition, monkeypatch):
    monkeypatch.setattr(Sampled, "composition", composition)
    assert audit(Sampled(4.0), *tables(), 20, claim=(4.0, DELTA)).decided_by == "assumption-free"


def test_seed_decides():
    model = Noise(random_state=3)
    first, same, other, fresh = (
        audit(model, *tables(), 20, random_state=seed) for seed in (0, 0, 1, None)
    )
    np.testing.assert_array_equal(first.scores, same.scores)
    # all fits have noise of their own, the seed of the estimator notwithstanding
    for result in (first, other, fresh):
        assert np.unique(result.scores).size > 1
    assert not np.array_equal(first.scores, other.scores)


def test_zero_out_claims_are_doubled_for_tables_that_differ_in_a_row():
    of_account = {"accountant": BudgetAccountant(1.0, relation="zero-out")}  # which is not charged
    for settings in ({"relation": "zero-out"}, of_account):
        result = audit(lasso(**settings), *tables(), 20, random_state=0)
        assert result.epsilon == 8.0
        assert result.delta == pytest.approx((1 + math.exp(4)) * 1e-6)
    assert of_account["accountant"].total_spent() == 0


@pytest.mark.filterwarnings("ignore:'standardscaler'")
def test_statistic_pipeline_sparse_data_and_classes():
    (X, y), (X2, y2) = tables()
    model = DPLassoFWClassifier(bounds_X=(-1, 1), classes=[-1, 1], solver=Gradient(max_iter=1))
    sparse_tables = (sparse.csr_matrix(X), y), (sparse.csr_matrix(X2), y2)
    result = audit(model, *sparse_tables, 20, random_state=0)
    assert result.scores.shape == (16,)
    settings = {"statistic": lambda fitted: fitted[-1].intercept_, "claim": (4.0, 1e-6)}
    pipe = make_pipeline(StandardScaler(), lasso())
    result = audit(pipe, (X, y), (X2, y2), 20, **settings)
    assert result.scores.shape == (20,)


def test_the_accountant_of_the_estimator_is_not_charged():
    accountant = BudgetAccountant(4.0, DELTA)
    audit(lasso(accountant=accountant), *tables(), 20)
    with accountant, pytest.raises(ValueError, match=r"audit outside of it"):
        audit(lasso(), *tables(), 20)
    assert accountant.ledger == ()


class NoFit(BaseEstimator):
    def __init__(self, epsilon=1.0):
        self.epsilon = epsilon

    def fit(self, X, y):
        raise AssertionError("must not be fitted")


class NoClaim(NoFit):
    def __init__(self):
        pass


def test_bad_input_is_refused_before_any_fit():
    data, neighbour = tables()
    good = {"estimator": NoFit(), "data": data, "neighbour": neighbour, "n_trials": 20}
    for changes, match in (
        ({"n_trials": 19}, "n_trials"),
        ({"n_trials": 30.0}, "n_trials"),
        ({"confidence": 0}, "confidence"),
        ({"statistic": "coef_"}, "statistic"),
        ({"verbose": -1}, "verbose"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": 0}, "no such parameter"),
        ({"claim": 1.0}, "claim"),
        ({"claim": (-1.0, 0.0)}, "epsilon"),
        ({"estimator": NoClaim()}, "no parameter epsilon"),
        ({"estimator": NoFit(epsilon="auto")}, "epsilon"),
        ({"estimator": object()}, "fit"),
        ({"data": np.zeros((20, 2))}, "pair"),
        ({"data": (np.zeros(20), np.zeros(20))}, "shape"),
        ({"data": (np.zeros((20, 2)), np.zeros(19))}, "shape"),
        ({"data": (np.zeros((19, 2)), np.zeros(19))}, "same shape"),
        ({"data": (np.ones((20, 2)), np.zeros(20))}, "one row"),
        ({"data": (sparse.csr_matrix(np.ones((20, 2))), np.zeros(20))}, "one row"),
    ):
        assert_refuses(audit, match, **good | changes)


def test_bad_outcomes_of_fits_are_refused():
    class NoCoef(NoFit):
        def fit(self, X, y):
            return self

    with pytest.raises(ValueError, match="give a statistic"):
        audit(NoCoef(), *tables(), 20)
    with pytest.raises(ValueError, match="one number"):
        audit(lasso(), *tables(), 20, statistic=lambda model: model.coef_)


# ---------------------------------------------------------- one release, by a tiny solver


@dataclass(frozen=True)
class MeanPlan(Plan):
    """Releases the mean target in disjoint parts, each once."""

    sums: Any

    def run(self, data, stream):
        scale = np.ones(data.y.size) if data.rows.scale is None else data.rows.scale
        parts = self.split(data.y * (scale > 0) / data.y.size, len(self.sums))
        total = sum(
            float(mechanism.release(np.array([part.sum()]), stream)[0])
            for part, mechanism in zip(parts, self.sums, strict=True)
        )
        return SolverResult(np.zeros(self.problem.n_features), total, 1)

    @staticmethod
    def split(values, n_parts):
        return np.array_split(values, n_parts)


def mean_plan(budget=None, n_batches=1, *, kind=Gaussian, of=MeanPlan):
    budget = PrivacyBudget(1.0) if budget is None else budget
    change = budget.record_factor / FACTS.n_samples
    sums = tuple(kind.calibrate(change, budget.allowance) for _ in range(n_batches))
    # parallel: each record is in one part, so only one release counts
    releases = [Release("sum", m, 1, f"part {i}") for i, m in enumerate(sums)]
    return of(FACTS, budget, "mean", 1, Guarantee.of(budget, releases), sums)


FACTS = problem(12, 2)


def flipped_target(n=12, d=2):
    """Neighbours whose first targets are at the two ends."""
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return tuple(solver_data(np.zeros((n, d)), np.append(end, y[1:])) for end in (1.0, -1.0))


def test_a_right_solver_passes_and_is_driven_to_its_sensitivity():
    for kind, delta in ((Gaussian, DELTA), (Laplace, 0.0)):
        for relation in ("replace-one", "zero-out"):
            plan = mean_plan(PrivacyBudget(1.0, delta, relation), 3, kind=kind)
            found = check_sensitivity(plan)
            assert not found.violations, (kind, relation)
            names = ["sums[0]", "sums[1]", "sums[2]"]
            assert list(found.ratios) == list(mechanisms(plan)) == names
            assert max(found.ratios.values()) == pytest.approx(1.0), (kind, relation)
    assert found == check_sensitivity(plan)


@pytest.mark.parametrize("where", ["intercept", "frame", "n_present"])
def test_what_goes_around_the_mechanisms_is_a_violation(where):
    class Leaky(MeanPlan):
        def run(self, data, stream):
            private = float(data.y.mean())
            of_frame = Frame(outer=Frame(target_center=private))
            leaks = {"frame": of_frame, "n_present": round(12 * private), "intercept": private}
            return dataclasses.replace(super().run(data, stream), **{where: leaks[where]})

    assert list(check_sensitivity(mean_plan(of=Leaky)).violations) == ["result"]


def test_a_release_more_often_than_it_counts_is_a_violation():
    class Twice(MeanPlan):
        def run(self, data, stream):
            super().run(data, stream)
            return super().run(data, stream)

    found = check_sensitivity(mean_plan(of=Twice))
    assert found.violations == {
        "sums[0]": "2 releases depend on one record, the guarantee counts 1"
    }


def test_groups_that_share_a_record_are_a_violation():
    class Overlapping(MeanPlan):
        @staticmethod
        def split(values, n_parts):
            return [values] * n_parts

    found = check_sensitivity(mean_plan(None, 2, of=Overlapping))
    assert found.violations == {"groups": "releases on disjoint records depend on one record"}


def test_a_number_of_releases_that_depends_on_the_data_is_a_violation():
    class Stops(MeanPlan):
        def run(self, data, stream):
            if data.y.mean() > 0:
                return SolverResult(np.zeros(2), 0.0, 1)
            return super().run(data, stream)

    found = check_sensitivity(mean_plan(of=Stops))
    assert found.ratios["sums[0]"] == math.inf
    assert "the number or the shape of the releases" in found.violations["sums[0]"]


@dataclass(frozen=True)
class ChoicesPlan(MeanPlan):
    """Selects twice by each of two mechanisms, in this order."""

    order: Any = (0, 0, 1, 1)

    def run(self, data, stream):
        mean = (data.y * data.rows.scales()).sum() / data.y.size
        for t, k in enumerate(self.order):
            self.sums[k].release(np.array([mean, 0.0]), stream.substream("choice", t))
        return SolverResult(np.zeros(self.problem.n_features), 0.0, 4)


@pytest.mark.parametrize("composition", ["gdp", "zcdp"])
def test_selections_that_take_turns_are_a_violation_in_gaussian_dp(composition):
    budget = PrivacyBudget(1.0, DELTA)
    whole = budget.mixed_allowance if composition == "gdp" else budget.allowance
    change = budget.record_factor / FACTS.n_samples
    noises = tuple(SelectVertex.calibrate(change, whole.share(part), 2) for part in (0.3, 0.7))
    releases = [Release(f"choice {k}", noise, 2) for k, noise in enumerate(noises)]
    guarantee = Guarantee.of(budget, releases, composition)
    for order in ((0, 0, 1, 1), (1, 1, 0, 0), (0, 1, 0, 1), (0, 1, 1, 0)):
        plan = ChoicesPlan(FACTS, budget, "choices", 4, guarantee, noises, order)
        takes_turns = order[0] != order[1]
        found = check_sensitivity(plan).violations
        assert ("sequence" in found) == (takes_turns and composition == "gdp"), order
        assert len(found) == ("sequence" in found)


def one_for_each(stream, t):
    return stream.substream("step", t)


@dataclass(frozen=True)
class StepsPlan(MeanPlan):
    """Releases the mean of X's rows `max_iter` times, unless the data `stop` it."""

    stop: Any = None
    substream: Any = one_for_each

    def run(self, data, stream):
        rows, weights = data.rows, data.rows.scales()
        n_steps = 1 if self.stop and self.stop(data) else self.max_iter
        for t in range(n_steps):
            mean = rows.weighted_sum(weights)[: self.problem.n_features] / rows.n_samples
            self.sums[0].release(mean, self.substream(stream, t))
        return SolverResult(np.zeros(self.problem.n_features), 0.0, 3)


def replayed(relation="replace-one", **settings):
    facts, budget = problem(12, 2, fit_intercept=False), PrivacyBudget(1.0, DELTA, relation)
    change = budget.record_factor * math.sqrt(facts.n_features) / facts.n_samples
    noise = Gaussian.calibrate(change, budget.allowance, 3, facts.n_features)
    guarantee = Guarantee.of(budget, [Release("mean", noise, 3)])
    return check_sensitivity(StepsPlan(facts, budget, "mean", 3, guarantee, (noise,), **settings))


def plain(data):
    X = data.rows.X
    return X.toarray() if sparse.issparse(X) else X


def test_stopping_on_rare_data_is_a_violation():
    rare = {
        "one label": lambda data: np.ptp(data.y) == 0,
        "no signal": lambda data: np.count_nonzero(np.any(plain(data), axis=1)) <= 1,
        "all alike": lambda data: np.all(plain(data) == plain(data)[0]),
        "a constant column": lambda data: np.any(np.ptp(plain(data), axis=0) == 0),
        "all tiny": lambda data: 0 < np.sort(np.abs(plain(data)).max(axis=1))[-2] < 1e-5,
        "all empty": lambda data: np.count_nonzero(data.rows.scales()) <= 1,
    }
    for k, (what, stop) in enumerate(rare.items()):
        found = replayed(("replace-one", "zero-out")[k % 2], stop=stop)
        assert "sequence" in found.violations, what
        assert "the guarantee counts 3" in found.violations["sums[0]"] or (
            found.ratios["sums[0]"] == math.inf
        )
    for relation in ("replace-one", "zero-out"):
        assert replayed(relation).passed


def test_randomness_that_is_used_twice_is_a_violation():
    for substream in (
        lambda stream, t: stream.substream("step"),
        lambda stream, t: stream.substream("step", t // 2),
    ):
        assert "used twice" in replayed(substream=substream).violations["streams"]
    # one stream that all steps read is as good as one for each
    assert replayed(substream=lambda stream, t: stream).passed


def test_randomness_that_is_not_of_the_run_is_a_violation():
    fixed = replayed(substream=lambda stream, t: stream_from_random_state(t))
    assert "stream of the run" in fixed.violations["sums[0]"]


def test_a_release_without_noise_is_a_violation(monkeypatch):
    monkeypatch.setattr(Gaussian, "with_noise", lambda self, value, stream: value.copy())
    assert replayed().violations == {"sums[0]": "is released without noise"}


def test_an_order_of_releases_that_depends_on_the_data_is_a_violation():
    class Swapped(MeanPlan):
        def run(self, data, stream):
            backwards = dataclasses.replace(self, sums=self.sums[::-1])
            return MeanPlan.run(backwards if np.ptp(data.y) == 0 else self, data, stream)

    found = check_sensitivity(mean_plan(None, 2, of=Swapped))
    assert "sequence" in found.violations


def test_reading_more_randomness_on_some_data_is_a_violation():
    def reading(data, stream):
        if data.y[0] > 0:
            stream.permutation(5)

    class Reads(MeanPlan):
        def run(self, data, stream):
            reading(data, stream)
            return super().run(data, stream)

    found = check_sensitivity(mean_plan(of=Reads), [flipped_target()])
    assert "streams" in found.violations


def test_what_no_record_moved_is_untested():
    class Blind(MeanPlan):
        def run(self, data, stream):
            data = dataclasses.replace(data, y=np.where(np.arange(data.y.size) < 6, data.y, 0.0))
            return super().run(data, stream)

    for kind, untested in ((MeanPlan, ()), (Blind, ("sums[1]",))):
        found = check_sensitivity(mean_plan(None, 2, of=kind), neighbours(FACTS, "replace-one", 8))
        assert not found.violations
        assert found.untested == untested
        assert found.passed == (not untested)


def test_tables_that_do_not_differ_in_one_record_are_refused():
    plan = mean_plan()
    first = flipped_target()[0]
    several = solver_data(np.zeros((12, 2)), -first.y)
    for other in (first, several):
        with pytest.raises(ValueError, match="differ in one record"):
            check_sensitivity(plan, [(first, other)])


def test_a_mechanism_that_is_not_in_the_plan_is_refused():
    plan = mean_plan()
    with pytest.raises(ValueError, match="in no field"):
        check_sensitivity(dataclasses.replace(plan, sums=()))


def test_a_mechanism_may_bring_its_own_metric():
    @dataclass(frozen=True)
    class Wide(Gaussian):
        def distance(self, difference):
            return 3 * np.abs(difference).max()

    found = check_sensitivity(mean_plan(kind=Wide))
    assert found.ratios["sums[0]"] == pytest.approx(3.0)
    assert "3 times" in found.violations["sums[0]"]


def test_one_sensitivity_of_a_whole_run_is_compared_with_all_its_releases():
    @dataclass(frozen=True)
    class Joint(Gaussian):
        is_joint = True

    class Twice(MeanPlan):
        def run(self, data, stream):
            for _ in range(2):
                self.sums[0].release(np.array([data.y.mean()]), stream)
            return SolverResult(np.zeros(2), 0.0, 1)

    # a record that enters both: the change of the two together is longer by sqrt(2)
    for kind, ratio in ((Gaussian, 1.0), (Joint, math.sqrt(2))):
        found = check_sensitivity(mean_plan(kind=kind, of=Twice))
        assert found.ratios["sums[0]"] == pytest.approx(ratio)


def test_data_of_another_shape_and_other_bad_input_are_refused():
    plan = mean_plan()
    other = flipped_target(13)
    with pytest.raises(ValueError, match="shape"):
        check_sensitivity(plan, [other])
    with pytest.raises(ValueError, match="shape"):
        audit_plan(plan, *other, 20)
    with pytest.raises(ValueError, match="SolverData"):
        check_sensitivity(plan, [tables()])
    with pytest.raises(ValueError, match="relation"):
        neighbours(FACTS, "add-or-remove")


def test_solver_and_estimator_agree():
    # the same law by both ways: the bounds differ by chance only
    plan = mean_plan(PrivacyBudget(20.0))
    pair = flipped_target()
    result = audit_plan(plan, *pair, 600, random_state=0)
    assert not result.flagged
    assert 10 < result.gaussian_epsilon_lower_bound <= 20
    first, again = (audit_plan(plan, *pair, 20, random_state=0).scores for _ in range(2))
    np.testing.assert_array_equal(first, again)


# ------------------------------------------------------------------- audits by releases


def ever_below(draws, alpha):
    """After how many draws the bound on their scale is below 1; None if it never is."""
    for k, energy in enumerate(np.cumsum(draws**2)):
        if evidence(0.0, k + 1, energy, alpha) >= 0:  # of a scale of 1
            return k + 1
    return None


def test_the_bound_on_the_noise_holds_at_all_times_together():
    rng = np.random.default_rng(0)
    stops = [ever_below(rng.standard_normal(100), 0.1) for _ in range(200)]
    assert np.mean([stop is not None for stop in stops]) <= 0.1 + 4 * math.sqrt(0.1 * 0.9 / 200)
    small = [ever_below(rng.standard_normal(300) / math.sqrt(2), 1e-4) for _ in range(20)]
    assert all(20 < stop < 300 for stop in small)
    assert 80 < np.median(small) < 150
    assert ever_below(np.zeros(3), 1e-4) == 2


def test_the_bound_on_the_noise_closes_in_on_its_scale():
    assert upper_bound(0, 0.0, 1e-4) == math.inf
    draws = 3.0 * np.random.default_rng(0).standard_normal(5000)
    assert 3.0 < upper_bound(5000, float(draws @ draws), 1e-4) < 3.3


def test_an_audit_by_releases_sees_through_what_the_result_hides():
    class Rounded(MeanPlan):
        def run(self, data, stream):
            result = super().run(data, stream)
            return dataclasses.replace(result, intercept=float(result.intercept > 0))

    budget = PrivacyBudget(4.0, DELTA)
    plan = mean_plan(budget, of=Rounded)
    by_releases = {"n_trials": 500, "statistic": "releases", "random_state": 0}
    found = audit_plan(plan, *flipped_target(), **by_releases)
    assert not found.flagged
    assert found.epsilon_lower_bound == 0.0
    assert 3.0 < found.gaussian_epsilon_lower_bound <= 4.0
    # log-likelihood ratios: normal, of mean -mu^2 / 2 and mu^2 / 2
    assert found.scores.mean() == pytest.approx(-(budget.mu**2) / 2, abs=0.15)
    assert found.neighbour_scores.mean() == pytest.approx(budget.mu**2 / 2, abs=0.15)
    again = audit_plan(plan, *flipped_target(), **by_releases | {"n_trials": 50})
    np.testing.assert_array_equal(found.scores[:50], again.scores)
    # far too small a noise, and none
    for factor in (20, 1e8):
        noise = dataclasses.replace(plan.sums[0], scale=plan.sums[0].scale / factor)
        less = dataclasses.replace(plan, sums=(noise,))
        found = audit_plan(less, *flipped_target(), **by_releases)
        assert found.flagged
        assert found.scores.size <= 5


def test_audits_by_releases_refuse_what_they_cannot_judge():
    class Stops(MeanPlan):
        def run(self, data, stream):
            fewer = dataclasses.replace(self, sums=self.sums[: 1 if data.y[0] > 0 else 2])
            return MeanPlan.run(fewer, data, stream)

    pure = mean_plan(PrivacyBudget(1.0, 0.0), kind=Laplace)
    with pytest.raises(ValueError, match="Gaussian throughout"):
        audit_plan(pure, *flipped_target(), 20, statistic="releases")
    plan = mean_plan(None, 2, of=Stops)
    with pytest.raises(ValueError, match="depends on the data"):
        audit_plan(plan, *flipped_target(), 20, statistic="releases")
    with pytest.raises(ValueError, match="statistic"):
        audit_plan(plan, *flipped_target(), 20, statistic="results")


def test_map_mechanisms_leaves_the_rest_alone():
    plan = Gradient(max_iter=3).plan(FACTS, PrivacyBudget(1.0))
    names = list(mechanisms(plan))
    assert names == ["first.target", "first.means", "first.row_factor", "step"]
    assert set(mechanisms(plan).values()) == {r.mechanism for r in plan.guarantee.releases}
    assert map_mechanisms(plan, lambda _, m: m) == plan
    changed = map_mechanisms(plan, lambda name, m: dataclasses.replace(m, scale=float(len(name))))
    assert [m.scale for m in mechanisms(changed).values()] == [len(name) for name in names]
    assert changed.guarantee is plan.guarantee


def test_mechanisms_are_found_in_parts_and_tuples_of_them_and_nowhere_else():
    @dataclass(frozen=True)
    class Stage(Part):
        noises: tuple
        other: Any = None

    @dataclass(frozen=True)
    class Box:
        noise: Any

    @dataclass(frozen=True)
    class StagedPlan:
        first: Stage
        stages: tuple
        boxed: Box

    a, b, c, d, e = (Gaussian(1.0, float(k + 1)) for k in range(5))
    plan = StagedPlan(Stage((a,), b), (Stage((c, d)), Stage((), 7)), Box(e))
    found = {"first.noises[0]": a, "first.other": b, "stages[0].noises[0]": c}
    assert mechanisms(plan) == found | {"stages[0].noises[1]": d}
    changed = map_mechanisms(plan, lambda _, m: dataclasses.replace(m, scale=9.0))
    assert {m.scale for m in mechanisms(changed).values()} == {9.0}
    assert changed.boxed == plan.boxed


def test_neighbours_differ_in_one_row():
    own = set()
    for relation in ("replace-one", "zero-out"):
        pairs, n_empty = neighbours(FACTS, relation, 12), 0
        assert {pair[0].rows.sample_weight is None for pair in pairs} == {True, False}
        assert {getattr(pair[0].rows.X, "format", "dense") for pair in pairs} == {"dense", "csr"}
        for first, second in pairs:
            X, X2 = (
                s.rows.X.toarray() if sparse.issparse(s.rows.X) else s.rows.X
                for s in (first, second)
            )
            differs = np.any(X != X2, axis=1) | (first.y != second.y)
            assert differs.sum() == 1
            i = np.flatnonzero(differs)[0]
            weights, weights2 = first.rows.scales(), second.rows.scales()
            assert (weights[i], weights2[i]) == (float(relation != "zero-out"), 1.0)
            np.testing.assert_array_equal(np.delete(weights, i), np.delete(weights2, i))
            n_empty += np.all(np.delete(weights, i) == 0)
            weights, weights2 = first.rows.sample_weights(), second.rows.sample_weights()
            np.testing.assert_array_equal(np.delete(weights, i), np.delete(weights2, i))
            own.add((float(weights[i]), float(weights2[i])))
        assert n_empty == 1  # one of the extreme tables
    assert {first == second for first, second in own} == {True, False}
    assert all(0 < weight <= 1 for pair in own for weight in pair)


def test_a_weight_alone_is_a_difference():
    X, y, weights = np.zeros((4, 2)), np.ones(4), np.array([1.0, 0.5, 1.0, 1.0])
    first, second = (SolverData(Rows(X, True, None, w), y) for w in (None, weights))
    assert changed_record((first, second)) == 1


def test_pairs_of_users_differ_in_all_rows_of_one():
    facts = problem(12, 2)
    for first, second in neighbours(facts, "zero-out", 6, rows_per_user=3):
        users = first.rows.users
        assert sorted(np.bincount(users)) == [3, 3, 3, 3]
        (mine,) = np.nonzero(first.rows.scales() != second.rows.scales())
        assert len(mine) == 3
        assert len(set(users[mine])) == 1
        assert changed_record((first, second)) == mine[0]
        X = first.rows.X.toarray() if sparse.issparse(first.rows.X) else first.rows.X
        assert len(np.unique(X[mine], axis=0)) == 1
        # of other users, or of none, these are three records
        for users in (None, np.arange(12)):
            for side in (first, second):
                side.rows.users = users
            with pytest.raises(ValueError, match="must differ in one record, got 3"):
                changed_record((first, second))
        first.rows.users = np.zeros(12, dtype=int)
        with pytest.raises(ValueError, match="must have the same users"):
            changed_record((first, second))


def test_outcomes_without_any_noise_are_told_apart():
    first, second = np.tile([1.0, 2.0, 3.0], (200, 1)), np.tile([1.0, 2.0, 3.5], (200, 1))
    assert audit_outcomes(first, second, epsilon=1.0).flagged
    assert not audit_outcomes(first, first.copy(), epsilon=1.0).flagged


# ------------------------------------------------------------------------------- users


def test_users_of_several_rows_are_audited():
    # a step on tables that differ in all four rows of a user
    facts = problem(20, 1, fit_intercept=False)
    solver = Gradient(max_iter=1, learning_rate=1.0, gradient_clip=0.3, data_norm=1.0)
    X, y = np.zeros((20, 1)), np.tile([1.0, -1.0], 10)
    X[:4], y[:4] = 1.0, 1.0
    other = y.copy()
    other[:4] = -1.0
    pair = solver_data(X, y, fit_intercept=False), solver_data(X, other, fit_intercept=False)

    of_row, of_user = (
        solver.plan(facts, PrivacyBudget(5.0, DELTA, rows_per_user=rows)) for rows in (1, 4)
    )
    for statistic in (None, "releases"):
        settings = {"n_trials": 400, "statistic": statistic, "random_state": 0}
        assert audit_plan(of_row, *pair, **settings).flagged
        found = audit_plan(of_user, *pair, **settings)
        assert not found.flagged
    assert 0.7 < found.gaussian_epsilon_lower_bound / 5 <= 1.0


def test_estimators_are_audited_on_users():
    X, y = np.zeros((20, 1)), np.tile([1.0, -1.0], 10)
    X[:3] = 1.0
    other = y.copy()
    other[:3] = -other[:3]
    model = lasso(max_rows_per_user=3)
    assert not audit(model, (X, y), (X, other), 20, random_state=0).flagged
    assert_refuses(audit, "at most one row", lasso(), (X, y), (X, other), 20, random_state=0)
    other[3] = -other[3]
    assert_refuses(audit, "at most 3 rows", model, (X, y), (X, other), 20, random_state=0)
