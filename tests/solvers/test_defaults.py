"""Rules for defaults in simple cases, and what must hold of their numbers."""

import ast
import dataclasses
import math
import pathlib

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss
from support import problem

from sklearn_dpsco import DPMirrorClassifier, DPPhasedSGDClassifier, DPPhasedSGDRegressor
from sklearn_dpsco.privacy.budget import PrivacyBudget
from sklearn_dpsco.solvers import defaults
from sklearn_dpsco.solvers.phased_sgd import PhasedSGD

BUDGET = PrivacyBudget(1.0, 1e-6)
SETS = (
    defaults.FRANK_WOLFE,
    defaults.MIRROR_DESCENT,
    defaults.PHASED_SGD,
    defaults.FTRL,
    defaults.HEAVY_TAIL,
)


def test_every_set_is_frozen_and_holds_positive_numbers():
    for rules in (defaults.FIRST_RELEASES, *(s[task] for s in SETS for task in s)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            rules.radius = 1.0
        for field in dataclasses.fields(rules):
            value = getattr(rules, field.name)
            assert all(number > 0 for number in (value if type(value) is tuple else (value,)))
    for one in SETS:
        assert set(one) == {"regression", "classification"}


def test_every_number_that_is_read_is_there_and_every_number_is_read():
    """Names that a type checker does not see."""
    sets = {name: value for name, value in vars(defaults).items() if name.isupper()}
    one_of = {k: v["regression"] if isinstance(v, dict) else v for k, v in sets.items()}
    known = {
        name: {field.name for field in dataclasses.fields(rules)}
        for name, rules in one_of.items()
        if dataclasses.is_dataclass(rules)
    }
    limits = {field.name for field in dataclasses.fields(defaults.UNIT_DESCENT.plain)}
    everything, read = limits.union(*known.values()), set()
    for path in pathlib.Path(defaults.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
                owner = getattr(node.value, "id", getattr(node.value, "attr", ""))
                if owner in known or owner.lower() == "rules":
                    assert node.attr in known.get(owner, everything), (path.name, node.lineno)
    assert everything <= read


def test_shares_leave_something_for_the_descent():
    rules = defaults.FIRST_RELEASES
    assert rules.most_target_share + rules.means_share + rules.row_factor_share < 1
    for task in ("regression", "classification"):
        # a slice of its own is for the first releases alone
        assert sum(defaults.PHASED_SGD[task].first_shares) == pytest.approx(1.0)
        heavy = defaults.HEAVY_TAIL[task]
        others = heavy.target_share + heavy.intercept_share + heavy.row_norm_share
        assert defaults.MOST_SCALE_SHARE + others == pytest.approx(0.93)
        assert heavy.feature_share <= defaults.MOST_SCALE_SHARE


def test_the_row_bound_is_half_of_the_longest_row_in_the_box_and_at_least_one():
    for d, fit_intercept, expected in ((1, True, 1), (4, False, 1), (15, True, 2), (100, False, 5)):
        assert defaults.data_norm(problem(10, d, fit_intercept=fit_intercept)) == expected


def test_the_noise_of_a_gradient_is_that_of_the_budget():
    def noise(n, relation="replace-one", n_outputs=1):
        facts = problem(n, 3, n_outputs=n_outputs)
        return defaults.gradient_noise(facts, PrivacyBudget(1.0, 1e-6, relation), 1.5, 0.5)

    # mu = 1: the l2 sensitivity 2 B / n in each of four coordinates
    assert noise(100) == pytest.approx(2 * 1.5 / 100 * 2)
    assert noise(100, "zero-out") == pytest.approx(noise(100) / 2)
    assert noise(1000) == pytest.approx(noise(100) / 10)
    assert noise(100, n_outputs=4) == noise(100)  # of each output


def test_clips_grow_to_one_as_the_noise_falls():
    def clip(noise, **facts):
        return defaults.growing_clip(problem(10, 3, **facts), 0.1, noise, 0.02)

    assert clip(1.0) == clip(0.02) == 0.1
    assert clip(0.005) == pytest.approx(0.2)
    assert clip(1e-9) == 1.0
    # the norm of several derivatives, of the multinomial loss at most sqrt(2)
    assert clip(1e-9, n_outputs=4) == 2.0
    assert clip(1e-9, n_outputs=4, task="classification") == pytest.approx(2**0.5)


def test_the_share_of_the_target_brings_its_noise_to_what_is_aimed_at():
    rules = defaults.FIRST_RELEASES
    for budget in (BUDGET, PrivacyBudget(1.0, 0.0)):
        shares = [defaults.intercept_share(problem(n, 3), budget) for n in (2, 50, 10**6)]
        assert shares[0] == rules.most_target_share
        assert shares[-1] == rules.least_target_share
        assert shares == sorted(shares, reverse=True)
    facts, budget = problem(150, 3), BUDGET
    share = defaults.intercept_share(facts, budget)
    assert rules.least_target_share < share < rules.most_target_share
    noise = 2 / 150 / math.sqrt(2 * share * budget.rho)
    assert noise == pytest.approx(rules.target_noise)


def test_steps_are_as_many_as_are_affordable():
    rules = defaults.rule_set(fewest_steps=5, most_steps=50, affordable=1e4)
    for n, expected in ((1, 50), (100, 10), (10_000, 5)):
        assert defaults.affordable_steps(problem(n, 10), rules) == expected


@pytest.mark.parametrize(
    "model",
    [
        DPMirrorClassifier(feasible_set="l2"),
        DPMirrorClassifier(feasible_set="l1"),
        DPPhasedSGDClassifier(),
    ],
    ids=["l2", "l1", "phased"],
)
def test_features_that_say_little_of_labels_leave_the_probabilities_right(model):
    """Clips of .3 made slopes so steep that the log loss was .04 to .06 above the base rate's."""
    rng, n = np.random.default_rng(0), 5000
    model.set_params(epsilon=0.4, delta=1e-6, bounds_X=(-4, 4), classes=[0, 1])
    excess = []
    for seed in range(6):
        X = rng.normal(size=(n, 10)).clip(-4, 4)
        y = (rng.random(n) < expit(0.4 * X.sum(axis=1) / math.sqrt(10) - 0.2)).astype(int)
        model.set_params(random_state=seed).fit(X, y)
        excess.append(log_loss(y, model.predict_proba(X)) - log_loss(y, np.full(n, y.mean())))
    assert np.mean(excess) < 0.02


def test_a_declared_clip_is_that_of_a_kinked_loss_in_any_units():
    for units in ("bounds", "learned"):
        model = DPPhasedSGDRegressor(
            loss="absolute", units=units, bounds_X=(-1, 1), bounds_y=(-1, 1)
        )
        wide = model.plan(5000, 5).gradient_clip
        model.set_params(solver=PhasedSGD(gradient_clip=0.01))
        assert model.plan(5000, 5).gradient_clip < 0.2 * wide
