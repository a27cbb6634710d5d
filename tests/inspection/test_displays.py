"""Displays: the numbers that they draw, what they refuse, and that nothing needs matplotlib."""

import itertools
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import d2_tweedie_score, make_scorer
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from support import assert_refuses, joined

import sklearn_dpsco
from sklearn_dpsco import (
    BudgetAccountant,
    CalibrationDisplay,
    CoefficientDisplay,
    DPGridSearchCV,
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPoissonRegressor,
    DPScaler,
    LedgerDisplay,
    PlanDisplay,
    PowerDisplay,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyUtilityDisplay,
    PublicEncoder,
    TradeoffCurveDisplay,
    coef_frame,
    dp_score,
    rows_needed,
)
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.inspection import models
from sklearn_dpsco.means import plan_mean
from sklearn_dpsco.solvers import NoisyMD, PhasedSGD

X, y = make_regression(300, 3, n_informative=3, noise=1.0, random_state=0)
FEW_STEPS = NoisyMD(max_iter=40)
REGRESSOR = DPMirrorRegressor(bounds_X=(-4, 4), bounds_y=(-500, 500), solver=FEW_STEPS)
PUBLIC = {"data_is_public": True, "random_state": 0}
HALVES = [(np.arange(0, 300, 2), np.arange(1, 300, 2))] * 3  # the same split, three times


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def mixed_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(18, 98, 300), "edu": rng.choice(["hs", "ba"], 300)})
    return table, np.where(table["age"] + 20 * (table["edu"] == "ba") > 70, "yes", "no")


def encoded(**parameters):
    encoder = PublicEncoder({"age": (18, 98), "edu": ["hs", "ba"]})
    settings = {"bounds_X": encoder, "classes": ["no", "yes"], "solver": FEW_STEPS, **parameters}
    return make_pipeline(encoder, DPMirrorClassifier(**settings))


# --------------------------------------------------------------------------- utility


def test_utility_lies_between_trivial_and_non_private():
    epsilons = [0.01, 1e4]
    display = PrivacyUtilityDisplay.from_estimator(REGRESSOR, X, y, epsilons=epsilons, **PUBLIC)
    assert display.scores.shape == (2, 10)
    assert display.non_private_scores.shape == display.trivial_scores.shape == (10,)
    worst, best = np.median(display.scores, axis=1)
    assert worst < 0.5 < best
    assert best == pytest.approx(np.median(display.non_private_scores), abs=0.02)
    assert np.median(display.trivial_scores) == pytest.approx(0, abs=0.2)
    assert display.ax_.get_xscale() == "log"
    np.testing.assert_array_equal(display.line_.get_xdata(), epsilons)
    np.testing.assert_array_equal(display.line_.get_ydata(), [worst, best])
    level = display.non_private_line_.get_ydata()[0]
    assert level == np.median(display.non_private_scores)
    assert display.ax_.get_ylabel() == "Test R2"
    short = {"epsilons": [1.0], "cv": 2, **PUBLIC}
    twice = [PrivacyUtilityDisplay.from_estimator(REGRESSOR, X, y, **short) for _ in range(2)]
    np.testing.assert_array_equal(*(again.scores for again in twice))


def test_utility_has_fresh_noise_in_each_split():
    seeded = clone(REGRESSOR).set_params(random_state=0)
    for settings in (PUBLIC, {"data_is_public": True}):
        display = PrivacyUtilityDisplay.from_estimator(
            seeded, X, y, epsilons=[1.0, 1.0], cv=HALVES, **settings
        )
        assert np.unique(display.scores).size == 6
        assert np.unique(display.trivial_scores).size == 1
    assert seeded.random_state == 0
    assert not hasattr(seeded, "coef_")


def test_utility_of_counts_is_the_explained_deviance_of_all_that_is_compared():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 2))
    y = rng.poisson(np.exp(X[:, 0]))
    model = DPPoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 30))
    given = {"epsilons": [1e3], "cv": 2, **PUBLIC}
    found = PrivacyUtilityDisplay.from_estimator(model, X, y, **given)
    assert found.ax_.get_ylabel() == "Test D2"
    scorer = make_scorer(d2_tweedie_score, power=1)
    named = PrivacyUtilityDisplay.from_estimator(model, X, y, scoring=scorer, **given)
    np.testing.assert_array_equal(found.scores, named.scores)
    np.testing.assert_array_equal(found.non_private_scores, named.non_private_scores)
    search = make_pipeline("passthrough", DPGridSearchCV(model, {"precision": ["float"]}))
    searched = PrivacyUtilityDisplay.from_estimator(search, X, y, **given)
    assert searched.ax_.get_ylabel() == "Test D2"
    np.testing.assert_array_equal(searched.trivial_scores, found.trivial_scores)
    best = d2_tweedie_score(y, np.exp(X[:, 0]), power=1)
    np.testing.assert_allclose(found.non_private_scores, best, atol=0.05)
    np.testing.assert_allclose(found.scores, found.non_private_scores[None], atol=0.02)
    np.testing.assert_allclose(found.trivial_scores, 0, atol=0.01)


def test_models_of_counts_are_refused_where_an_exposure_or_a_stand_in_is_needed():
    with_exposure = DPPoissonRegressor(bounds_X=(-4, 4), bounds_y=(0, 9), bounds_exposure=(0.1, 1))
    for made in (PrivacyUtilityDisplay.from_estimator, CoefficientDisplay.from_refits):
        assert_refuses(made, "fits without exposure", with_exposure, X, np.abs(y), **PUBLIC)
    counts = DPPoissonRegressor(bounds_X=(-4, 4), bounds_y=(0, 9))
    scores = {"score": 0.1, "score_without_privacy": 0.2}
    assert_refuses(rows_needed, "with a table that you simulate", counts, 3, **scores)


def test_utility_of_pipelines_searches_and_given_models():
    table, labels = mixed_table()
    short = {"epsilons": [100.0], "cv": 2, "scoring": "roc_auc", **PUBLIC}
    display = PrivacyUtilityDisplay.from_estimator(encoded(), table, labels, **short)
    assert np.all(display.scores > 0.9)
    assert np.all(display.non_private_scores > 0.9)
    np.testing.assert_allclose(display.trivial_scores, 0.5)
    assert display.ax_.get_ylabel() == "Test roc auc"
    search = DPGridSearchCV(encoded(), {"dpmirrorclassifier__feasible_set": [L2Ball(10.0)]})
    found = PrivacyUtilityDisplay.from_estimator(search, table, labels, **short, ax=display.ax_)
    assert found.scores.shape == (1, 2)
    np.testing.assert_array_equal(found.non_private_scores, display.non_private_scores)
    assert found.ax_ is display.ax_
    given = {"non_private": Ridge(), "trivial": None}
    cv = ShuffleSplit(2, random_state=0)
    found = PrivacyUtilityDisplay.from_estimator(
        REGRESSOR, X, y, epsilons=1.0, cv=cv, **given, **PUBLIC
    )
    assert found.trivial_line_ is None
    assert np.all(found.non_private_scores > 0.99)


def test_a_stand_in_of_a_schema(monkeypatch):
    monkeypatch.setattr(models.stand_ins, "N_NEW", 4000)  # rows on which fits are scored
    encoder = PublicEncoder({"age": (18, 98), "kind": ["a", "b"]})
    model = DPLinearRegression(bounds_X=encoder, bounds_y=(0, 1))
    given = {"score_without_privacy": 0.6, "n_splits": 2, "epsilons": [0.3, 10], "random_state": 0}
    display = PrivacyUtilityDisplay.from_schema(
        make_pipeline(encoder, model), encoder, [300, 3000], **given
    )
    names = ["300 rows", "3,000 rows", "without privacy", "trivial"]
    assert [line.get_label() for line in display.ax_.get_lines()] == names
    few, many = (line.get_ydata() for line in display.ax_.get_lines()[:2])
    assert few[0] < many[0] < many[1]  # more rows and a larger epsilon help
    np.testing.assert_allclose(display.non_private_scores, 0.6, atol=0.03)
    assert many[1] == pytest.approx(0.6, abs=0.03)
    np.testing.assert_array_equal(np.median(display.scores, axis=1), many)
    labels = DPLogisticRegression(bounds_X=(-1, 1), classes=[0, 1])
    told = {"prevalence": 0.1, "correlation": 0.0}
    given |= {"assumptions": told, "ax": display.ax_, "epsilons": [10]}
    of_classes = PrivacyUtilityDisplay.from_schema(
        labels, 3, 2000, **given | {"score_without_privacy": 0.8}
    )
    np.testing.assert_allclose(of_classes.non_private_scores, 0.8, atol=0.02)
    np.testing.assert_allclose(of_classes.trivial_scores, 0.5)
    assert of_classes.ax_ is display.ax_
    with pytest.raises(ValueError, match=r"a tuple .* list of categories"):
        PrivacyUtilityDisplay.from_schema(model, {"note": str}, 300, score_without_privacy=0.6)


def test_what_is_asked_of_a_stand_in():
    given = {"score_without_privacy": 0.6, "n_splits": 2, "epsilons": [10], "random_state": 0}
    model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1))
    draw = PrivacyUtilityDisplay.from_schema
    own = {"scoring": "neg_mean_squared_error", "non_private": DummyRegressor(), "name": "mine"}
    display = draw(model, 2, [300, 600], **given, **own, data_is_public=True, color="red")
    assert display.score_name == "neg mean squared error"
    np.testing.assert_array_equal(display.non_private_scores, display.trivial_scores)
    names = ["mine", "mine", "without privacy", "trivial"]
    assert [line.get_label() for line in display.ax_.get_lines()] == names
    with pytest.raises(TypeError, match="cv is for from_estimator"):
        draw(model, 2, 300, **given, cv=3)
    with pytest.raises(ValueError, match="n_samples must be a number of rows"):
        draw(model, 2, [], **given)
    with pytest.raises(TypeError, match=r"^'r2' cannot be assumed for a score, but target, prev"):
        draw(model, 2, 300, **given, assumptions={"r2": 0.5})


def test_public_data_have_to_be_declared():
    settings = {"epsilons": [1.0], "cv": 2}
    with pytest.warns(PrivacyLeakWarning, match="un-noised scores.*public or synthetic") as caught:
        PrivacyUtilityDisplay.from_estimator(REGRESSOR, X, y, **settings)
    assert caught[0].filename == __file__
    with pytest.warns(PrivacyLeakWarning, match="public or synthetic"):
        CoefficientDisplay.from_refits(REGRESSOR, X, y, n_refits=2)
    with pytest.raises(ValueError, match="data_is_public must be True or False"):
        PrivacyUtilityDisplay.from_estimator(REGRESSOR, X, y, data_is_public="yes")


@pytest.mark.parametrize(
    "draw", [PrivacyUtilityDisplay.from_estimator, CoefficientDisplay.from_refits]
)
def test_no_accountant_is_charged(draw):
    accountant = BudgetAccountant(100.0)
    with accountant, pytest.raises(ValueError, match="an accountant would be charged"):
        draw(REGRESSOR, X, y, **PUBLIC)
    charged = DPMirrorRegressor(bounds_X=(-4, 4), bounds_y=(-500, 500), accountant=accountant)
    with pytest.raises(ValueError, match="an accountant would be charged"):
        draw(make_pipeline("passthrough", charged), X, y, **PUBLIC)
    assert accountant.ledger == ()
    with pytest.raises(ValueError, match="takes a private estimator or search"):
        draw(Ridge(), X, y, **PUBLIC)


def test_utility_needs_one_budget():
    model = make_pipeline(DPScaler(), DPMirrorRegressor(bounds_X=(-4, 4), bounds_y=(-500, 500)))
    with pytest.raises(ValueError, match=r"several steps have a budget.*DPGridSearchCV"):
        PrivacyUtilityDisplay.from_estimator(model, X, y, **PUBLIC)


# ---------------------------------------------------------------------------- ledgers


def bars_of(display):
    """Label, column, start and end of each bar, from the left and from below."""
    found = [
        (label, round(bar.get_center()[0]), bar.get_y(), bar.get_y() + bar.get_height())
        for label, bars in display.bars_.items()
        for bar in bars
    ]
    return sorted(found, key=lambda bar: bar[1:])


def names_of(display):
    return [label.get_text() for label in display.ax_.get_xticklabels()]


def test_ledgers_add_up():
    accountant, totals = BudgetAccountant(epsilon=3.0), []
    for label, epsilon in (("look", 0.5), ("final", 1.0), ("look", 0.5)):
        guarantee = REGRESSOR.set_params(epsilon=epsilon).plan(5000, 3).guarantee
        accountant.spend(guarantee, label=label)
        totals.append(accountant.total_spent())
    display = LedgerDisplay.from_accountant(accountant)
    assert [bar[:2] for bar in bars_of(display)] == [("look", 1), ("final", 2), ("look", 3)]
    np.testing.assert_allclose([bar[3] for bar in bars_of(display)], totals)
    np.testing.assert_allclose([bar[2] for bar in bars_of(display)], [0, *totals[:-1]])
    assert (names_of(display), display.ax_.get_xlabel()) == (["1", "2", "3"], "Charge")
    assert display.budget_line_.get_ydata()[0] == 3.0
    assert LedgerDisplay.from_accountant(BudgetAccountant(1.0)).bars_ == {}


def test_branches_of_a_ledger_stand_side_by_side():
    accountant = BudgetAccountant(epsilon=5.0)

    def spend(account, epsilon, label="model"):
        account.spend(REGRESSOR.set_params(epsilon=epsilon).plan(5000, 3).guarantee, label)

    spend(accountant, 0.5)
    group = accountant.parallel()
    north, south, third = group.branch("north"), group.branch(), group.branch("a rather long name")
    spend(north, 0.4)
    spend(south, 0.6)
    spend(third, 1.0)
    inner = south.parallel()
    for epsilon in (0.7, 0.3):
        spend(inner.branch(), epsilon, "inner")
    spend(accountant, 0.5)
    spend(south, 0.4, "score")  # after other charges, and in the column of its branch

    def alone(*epsilons):  # what these charges cost without the others
        other = BudgetAccountant(epsilon=5.0)
        for epsilon in epsilons:
            spend(other, epsilon)
        return other.total_spent()

    total = alone(0.5, 0.6, 0.7, 0.4)  # the costliest records, before the last charge
    display = LedgerDisplay.from_accountant(accountant)
    expected = [
        ("model", 1, 0.0, alone(0.5)),
        ("model", 2, alone(0.5), alone(0.5, 0.4)),
        ("model", 3, alone(0.5), alone(0.5, 0.6)),
        ("score", 3, alone(0.5, 0.6, 0.7), total),
        ("inner", 4, alone(0.5, 0.6), alone(0.5, 0.6, 0.7)),
        ("inner", 5, alone(0.5, 0.6), alone(0.5, 0.6, 0.3)),
        ("model", 6, alone(0.5), alone(0.5, 1.0)),
        ("model", 7, total, accountant.total_spent()),
    ]
    assert [bar[:2] for bar in bars_of(display)] == [bar[:2] for bar in expected]
    np.testing.assert_allclose(
        [bar[2:] for bar in bars_of(display)], [bar[2:] for bar in expected], rtol=1e-9
    )
    assert names_of(display) == [
        "1", "1 of 3 (north)", "2 of 3", "> 1 of 2", "> 2 of 2", "3 of 3 (a rat...", "7"
    ]  # fmt: skip
    assert display.ax_.get_xlabel() == "Charge, or branch"


def test_names_of_branches_are_not_cut():
    accountant = BudgetAccountant(epsilon=5.0)
    group = accountant.parallel()
    outer = group.branch("x > y")
    for account in (outer, group.branch("branch x"), outer.parallel().branch("> z")):
        account.spend(plan_mean(5000, 2, epsilon=0.1))
    display = LedgerDisplay.from_accountant(accountant)
    assert display.names == ["1 of 2 (x > y)", "> 1 of 1 (> z)", "2 of 2 (branch x)"]
    assert accountant.to_frame()["branch"][2] == "branch 1 of 2 (x > y) > branch 1 of 1 (> z)"


def test_a_narrow_ledger_keeps_its_names_apart():
    accountant = BudgetAccountant(epsilon=9.0)
    for _ in range(40):
        accountant.spend(REGRESSOR.set_params(epsilon=0.1).plan(5000, 3).guarantee, "model")
    figure, ax = plt.subplots(figsize=(3, 3), layout="constrained")
    display = LedgerDisplay.from_accountant(accountant, ax=ax)
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert 5 < len(boxes) < 40
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
    assert display.ax_.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1


def test_accountants_show_the_same_facts_as_text_and_html():
    accountant = BudgetAccountant(2.0, max_rows_per_user=3)
    html = accountant._repr_html_().replace(" class=number", "")
    for fact in repr(accountant).removeprefix("BudgetAccountant(").removesuffix(")").split(", "):
        key, value = fact.split("=")
        assert f"<td>{key}</td><td>{value.replace(chr(39), '&#x27;')}</td>" in html
    accountant._process = None  # as in a process that does not know it
    assert repr(accountant) == "BudgetAccountant(<of another process>)"
    assert "of another process" in accountant._repr_html_()
    with pytest.raises(PrivacyBudgetError):
        accountant.spans()


# ------------------------------------------------------------------------------ plans


def test_plans_show_the_shares_of_their_releases():
    plan = REGRESSOR.plan(5000, 3)
    display = PlanDisplay.from_estimator(REGRESSOR, 5000, 3)
    frame = plan.guarantee.to_frame()
    assert display.names == list(frame["release"])
    np.testing.assert_array_equal(display.shares, frame["share"])
    assert display.shares.sum() == pytest.approx(1)
    np.testing.assert_array_equal([bar.get_width() for bar in display.bars_], display.shares)
    assert display.ax_.get_title() == plan.guarantee.claim
    few = PlanDisplay.from_plan(plan.guarantee, max_bars=2, color="black")
    assert len(few.bars_) == 2
    assert {bar.get_width() for bar in few.bars_} == set(np.sort(display.shares)[-2:])
    assert f"({len(frame) - 2} smaller ones left out)" in few.ax_.get_xlabel()
    stream = sklearn_dpsco.DPFTRLRegressor(bounds_X=(0, 1), bounds_y=(0, 1)).plan(500, 3)
    assert "prefix sums (epoch 0)" in PlanDisplay.from_plan(stream).names


def test_plans_of_searches_show_their_parts():
    search = DPGridSearchCV(
        encoded(), {"dpmirrorclassifier__feasible_set": [L2Ball(1.0), L2Ball(10.0)]}, epsilon=2.0
    )
    plan = search.plan(20000, 3)
    display = PlanDisplay.from_plan(plan)
    assert display.names == [name for name, _ in plan.guarantee.parts]
    assert display.shares.sum() == pytest.approx(1)
    for shown in (plan, REGRESSOR.plan(5000, 3)):
        overview = shown.overview()
        html = shown.to_html()
        assert "<td class=number>" in html  # on the right
        html = html.replace(" class=number", "")
        for row in overview.rows:
            assert f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" in html
            assert overview.layout.format(*row).rstrip() in str(shown).splitlines()
        promised, *lines = shown.guarantee.overview().lines
        assert overview.lines == (promised, overview.lines[1], *lines)
        assert overview.rows == shown.guarantee.overview().rows
        assert joined(shown).startswith(f"{promised} {overview.lines[1]} ")


@pytest.mark.parametrize(
    "plan",
    [
        DPScaler().plan(5000, 3),
        sklearn_dpsco.plan_private_bounds(5000, 3),
        sklearn_dpsco.plan_score(500, scoring=["accuracy", "roc_auc"]),
        plan_mean(1000, 2, epsilon=1.0, center=0, scale=1),
    ],
    ids=lambda plan: type(plan).__name__,
)
def test_plans_of_other_tools_are_tables(plan):
    promised, what, *lines = plan.overview().lines
    assert what.endswith(f" on {plan.n_samples} records")
    assert plan.guarantee.overview().lines == (promised, *lines)
    assert joined(plan) == joined(plan.guarantee).replace(promised, f"{promised} {what}")
    assert f"<div>{what}</div>" in plan._repr_html_()


def test_what_cannot_be_drawn_says_what_to_give():
    with pytest.raises(TypeError, match=r"which Pipeline has not.*model\[-1\]"):
        PlanDisplay.from_estimator(encoded(), 5000, 3)
    with pytest.raises(TypeError, match=r"got DPMirrorRegressor.*guarantee_"):
        TradeoffCurveDisplay.from_guarantee(REGRESSOR)


def test_long_plans_are_cut():
    model = sklearn_dpsco.DPPhasedSGDRegressor(
        bounds_X=(0, 1), bounds_y=(0, 1), solver=PhasedSGD(max_iter=1, n_phases=60)
    )
    guarantee = model.plan(5000, 3).guarantee
    assert len(guarantee.releases) > 60
    more = f"... and {len(guarantee.releases) - 40} more"
    assert str(guarantee).splitlines()[-1] == f"  {more}"
    assert f"<div>{more}</div>" in guarantee._repr_html_()
    assert guarantee._repr_html_().count("<tr>") == 41


# ------------------------------------------------------------------------- trade-offs


def test_trade_off_curves():
    weak = REGRESSOR.set_params(epsilon=3.0).plan(5000, 3).guarantee
    strong = REGRESSOR.set_params(epsilon=0.3).plan(5000, 3).guarantee
    display = TradeoffCurveDisplay.from_guarantee(weak)
    alphas, betas = display.line_.get_data()
    assert (alphas[0], alphas[-1], betas[-1]) == (0, 1, 0)
    assert np.all(np.diff(alphas) > 0)
    assert betas[50] == weak.trade_off(float(alphas[50]))
    assert np.all(betas <= 1 - alphas)
    assert np.min(np.diff(betas) / np.diff(alphas)) < -5  # steep where false alarms are few
    other = TradeoffCurveDisplay.from_guarantee(
        strong, ax=display.ax_, plot_chance_level=False, name="strong", color="red"
    )
    assert np.all(other.missed_detections[1:-1] > betas[1:-1])
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["epsilon=3, delta=1e-06", "no information", "strong"]
    assert other.chance_level_ is None
    assert other.figure_ is display.figure_


# ----------------------------------------------------------------------- coefficients


def test_coefficients_are_those_of_the_frame():
    model = REGRESSOR.set_params(epsilon=1.0).fit(X, y)
    for units in ("scaled", "data"):
        display = CoefficientDisplay.from_estimator(model, units=units, max_features=2)
        frame = model.coef_frame(units=units).iloc[:-1] * (2 if units == "scaled" else 1)
        np.testing.assert_array_equal(display.coef, frame)
        assert display.std is None
        assert display.names == ["x0", "x1", "x2"]
        points = display.points_[0].lines[0].get_xdata()
        assert set(np.abs(points)) == set(np.sort(np.abs(frame["coef"]))[-2:])
    table, labels = mixed_table()
    pipeline = encoded().fit(table, labels)
    found = CoefficientDisplay.from_estimator(pipeline)
    assert found.names == ["age", "edu: hs", "edu: ba"]
    assert list(found.outputs) == ["yes"]
    search = GridSearchCV(encoded(), {"dpmirrorclassifier__epsilon": [1.0]}, cv=2)
    assert CoefficientDisplay.from_estimator(search.fit(table, labels)).names == found.names
    named = CoefficientDisplay.from_estimator(pipeline[-1], encoder=pipeline[0])
    np.testing.assert_array_equal(named.coef, found.coef)
    frame = pipeline[-1].coef_frame(pipeline[0])
    for fitted in (pipeline, search.set_params(estimator=pipeline)):
        assert coef_frame(fitted).index.tolist() == frame.index.tolist()
    pd.testing.assert_frame_equal(coef_frame(pipeline), frame)
    pd.testing.assert_frame_equal(
        coef_frame(model, units="scaled"), model.coef_frame(units="scaled")
    )
    with pytest.raises(ValueError, match="coef_frame takes a model of this package"):
        coef_frame(Ridge().fit(X, y))


def test_scaled_coefficients_are_for_the_whole_width_of_the_bounds():
    bounds_X = {"half": (0, 80), "whole": (16, 96), "centred": (-40, 40)}
    X = pd.DataFrame(np.random.default_rng(0).uniform(16, 40, (400, 3)), columns=list(bounds_X))
    for inference in (True, False):
        model = DPLinearRegression(
            epsilon=np.inf, bounds_X=bounds_X, bounds_y=(0, 120), inference=inference
        ).fit(X, X.sum(axis=1))
        display = CoefficientDisplay.from_estimator(model)
        np.testing.assert_allclose(display.coef[:, 0], 80.0, rtol=1e-4)


def test_a_forest_of_ratios():
    A = np.random.default_rng(0).uniform(0, 2, (4000, 3))
    labels, A = A.sum(axis=1) > 3, A[:, :2]
    given = {"epsilon": 8.0, "bounds_X": (0, 2), "random_state": 0}
    for inference in (True, False):
        model = DPLogisticRegression(classes=[False, True], inference=inference, **given)
        draw = CoefficientDisplay.from_estimator
        display = draw(model.fit(A, labels), exponentiate=True)
        points, _, bars = display.points_[0]
        if inference:
            summary = model.summary(exponentiate=True)
            assert "predicting: odds ratios of True against False;" in joined(summary)
            frame = summary.to_frame().iloc[:-1]
            ratios = frame["exp(coef)"]
            ends = [segment[:, 0] for segment in bars[0].get_segments()]
            np.testing.assert_allclose(ends, frame[["[0.025", "0.975]"]])
        else:
            ratios = np.exp(model.coef_[0])
            assert bars == ()
        np.testing.assert_allclose(points.get_xdata(), ratios)
        assert display.ax_.get_xscale() == "log"
        assert display.ax_.lines[-1].get_xdata() == [1, 1]
        assert display.ax_.get_xlabel() == "Ratio per unit of the feature"
    assert draw(model).ax_.get_xlabel() == "Coefficient for the width, or scale, of the feature"
    several = DPLogisticRegression(classes=[0, 1, 2], **given)
    linear = DPLinearRegression(bounds_y=(0, 1), **given)
    for model in (several, linear):
        model.set_params(inference=True).fit(A, labels)
        with pytest.raises(ValueError, match="is no ratio"):
            model.summary(exponentiate=True)
        with pytest.raises(ValueError, match="is no ratio"):
            draw(model, exponentiate=True)


def test_refits_tell_how_much_noise_moves_coefficients():
    found = {}
    for epsilon in (1.0, 10.0):
        model = clone(REGRESSOR).set_params(solver="auto", epsilon=epsilon, random_state=0)
        found[epsilon] = CoefficientDisplay.from_refits(model, X, y, n_refits=20, **PUBLIC)
    fits = [model.set_params(random_state=seed).fit(X, y).coef_ * 8 for seed in range(20)]
    assert found[10.0].std.shape == (3, 1)
    np.testing.assert_allclose(found[10.0].std[:, 0], np.std(fits, axis=0), rtol=0.8)
    np.testing.assert_allclose(found[10.0].coef[:, 0], np.mean(fits, axis=0), rtol=0.2)
    assert np.all(found[10.0].std < found[1.0].std)
    segments = found[1.0].points_[0].lines[2][0].get_segments()
    lengths = [segment[1, 0] - segment[0, 0] for segment in segments]
    np.testing.assert_allclose(lengths, 2 * found[1.0].std[:, 0])
    A, labels = make_classification(
        200, 4, n_informative=3, n_redundant=0, n_classes=3, random_state=0
    )
    several = DPMirrorClassifier(bounds_X=(-4, 4), classes=[0, 1, 2])
    display = CoefficientDisplay.from_refits(several, A, labels, n_refits=2, **PUBLIC)
    assert display.std.shape == (4, 3)
    assert len(display.points_) == 3
    with pytest.raises(ValueError, match="n_refits must be an integer >= 2"):
        CoefficientDisplay.from_refits(several, A, labels, n_refits=1, **PUBLIC)


# ------------------------------------------------------------------------- matplotlib


def test_all_follow_the_conventions():
    given = {"scoring": "binned_means", "bounds_y": (-500, 500)}
    displays = [
        CalibrationDisplay(score=dp_score(DummyRegressor().fit(X, y), X, y, **given)),
        PrivacyUtilityDisplay(epsilons=[1, 2], scores=[[0.1, 0.2], [0.3, 0.4]]),
        LedgerDisplay(totals=[0.5, 1.0], labels=["a", "b"], epsilon=1.0),
        PlanDisplay(names=["a", "b"], shares=[0.5, 0.5]),
        PowerDisplay(values=[1, 2], std=[0.5, 0.3], std_sampling=[0.2, 0.2]),
        TradeoffCurveDisplay(false_alarms=[0, 1], missed_detections=[1, 0]),
        CoefficientDisplay(names=["a", "b"], coef=[[1.0], [2.0]]),
    ]
    public = {name for name in sklearn_dpsco.__all__ if name.endswith("Display")}
    assert {type(display).__name__ for display in displays} == public
    for display in displays:
        assert display.plot() is display
        first = display.ax_
        assert display.figure_ is first.figure
        ax = plt.subplots()[1]
        assert display.plot(ax=ax).ax_ is ax
        assert display.plot().ax_ not in (ax, first)
        plt.close("all")


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    display = PlanDisplay(names=["a"], shares=[1.0])
    with pytest.raises(ImportError, match=r"PlanDisplay.plot .*: pip install matplotlib$"):
        display.plot()


def test_a_trivial_model_is_what_it_says():
    given = {"trivial": DummyRegressor(strategy="constant", constant=1e3), "non_private": None}
    display = PrivacyUtilityDisplay.from_estimator(
        REGRESSOR, X, y, epsilons=[1.0], cv=2, **given, **PUBLIC
    )
    assert np.all(display.trivial_scores < -1)
    assert display.non_private_scores is None
