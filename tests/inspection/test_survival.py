"""Survival curves: products of hazards, intervals by the delta method, through pipelines."""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from support import joined

from sklearn_dpsco import (
    DPGridSearchCV,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
    PublicEncoder,
    person_periods,
    survival_curve,
)
from sklearn_dpsco.preprocessing.declared import columns_read

GRID = [0, 1, 2, 4]
LOW = [-1, -1, -1, -2]  # with a middle other than 0
SCHEMA = {"age": (0, 10), "drug": bool, "period": [1, 2, 3]}
ENCODER = PublicEncoder(SCHEMA, drop="first", extra="drop")


def people(n=6000):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 10, n), "drug": rng.random(n) < 0.5})
    table["time"] = rng.exponential(8 / np.exp(0.1 * table["age"] - 0.7 * table["drug"]))
    return table.assign(event=table["time"] < 3.5)


ROWS = person_periods(people(), "time", "event", periods=GRID)
NEW = person_periods(people(8).drop(columns=["time", "event"]), periods=GRID)


def classifier(**parameters):
    given = {"classes": [0, 1], "nonfinite": "zero", "relation": "zero-out", "random_state": 0}
    return DPLogisticRegression(**{"bounds_X": ENCODER, "epsilon": 8.0, **given, **parameters})


@pytest.fixture(scope="module")
def sure():
    """Fits with standard errors, to encoded frames, with and without an intercept."""
    ENCODER.set_output(transform="pandas")
    X = ENCODER.transform(ROWS)
    both = {"with": {}, "without": {"fit_intercept": False, "bounds_X": (LOW, 1)}}
    models = {
        name: classifier(inference=True, **more).fit(X, ROWS["event"])
        for name, more in both.items()
    }
    yield models, ENCODER.transform(NEW)
    ENCODER.set_output(transform="default")


def new_of(X):
    """The encoded rows, beside what says which they are."""
    return pd.concat((NEW[["person", "start", "stop"]], X, NEW[["period"]]), axis=1)


def test_products_of_hazards_through_a_pipeline():
    fit = {"dplogisticregression__groups": ROWS["person"]}
    model = make_pipeline(ENCODER, classifier(max_rows_per_user=3))
    model.fit(ROWS, ROWS["event"], **fit)
    sized = classifier(inference=True, max_rows_per_user=3).fit(
        ENCODER.transform(ROWS), ROWS["event"], groups=ROWS["person"]
    )
    shown = joined(sized.summary(exponentiate=True))
    assert (
        "odds ratios of 1 against 0 (in a period; farther from 1 than hazard ratios, which a"
        in shown
    )
    curve = survival_curve(model, NEW)
    hazards = model.predict_proba(NEW[list(SCHEMA)])[:, 1].reshape(8, 3)
    own = np.cumprod(1 - hazards, axis=1)
    np.testing.assert_allclose(curve.survival[:, 1:], own)
    assert curve.times.tolist() == GRID
    assert (curve.survival[:, 0] == 1).all()
    assert curve.names == list(range(8))
    assert curve.low is None
    assert curve.high is None
    by_drug = survival_curve(model, NEW, by="drug")
    drug = NEW["drug"][::3].to_numpy()
    for name, found in zip(by_drug.names, by_drug.survival, strict=True):
        np.testing.assert_allclose(found[1:], own[drug == name].mean(axis=0))
    whole = survival_curve(model, NEW, by=None)
    np.testing.assert_allclose(whole.survival[0, 1:], own.mean(axis=0))


def test_rates_times_the_lengths_of_periods():
    """The piecewise exponential model: by hand, and beside the law that made the table."""
    table = people(20_000)
    table["time"] = table["time"].clip(upper=3.5)  # when they are last seen
    rows = person_periods(table, "time", "event", periods=GRID, exposure=True)
    model = make_pipeline(ENCODER, DPPoissonRegressor(
        epsilon=8.0, relation="zero-out", bounds_X=ENCODER, bounds_y=(0, 1),
        bounds_exposure=(0.02, 2), max_rows_per_user=3, nonfinite="zero", inference=True,
        random_state=0,
    ))  # fmt: skip
    facts = {"groups": rows["person"], "exposure": rows["exposure"]}
    facts = {f"dppoissonregressor__{name}": given for name, given in facts.items()}
    model.fit(rows, rows["event"], **facts)
    curve = survival_curve(model, NEW, by=None)
    last, X = model[-1], ENCODER.transform(NEW[list(SCHEMA)])
    shown = joined(last.summary(exponentiate=True))
    assert ": rate ratios (hazard ratios, if rows are those of person_periods); std" in shown
    raw = np.column_stack((X, np.ones(len(X)))) @ last.summary(units="scaled").coef[0]
    total = (np.exp(raw) * (NEW["stop"] - NEW["start"]).to_numpy()).reshape(-1, 3).cumsum(axis=1)
    np.testing.assert_allclose(curve.survival[0, 1:], np.exp(-total).mean(axis=0))
    new = people(8)
    rates = np.exp(0.1 * new["age"] - 0.7 * new["drug"]).to_numpy() / 8
    true = np.exp(-np.outer(rates, GRID)).mean(axis=0)
    np.testing.assert_allclose(curve.survival[0], true, atol=0.03)
    inside = (curve.low[0, 1:] <= true[1:]) & (true[1:] <= curve.high[0, 1:])
    assert inside.all()


@pytest.mark.parametrize("intercept", ["with", "without"])
def test_intervals_by_differences(sure, intercept):
    models, X = sure
    model = models[intercept]
    # of the columns of X
    found = model.summary(units="scaled" if intercept == "with" else "data")
    rows = np.column_stack((X, np.ones(len(X))))[:, : found.coef.size]

    def log_minus_log(coef, persons):
        survival = np.exp(-np.logaddexp(0, rows @ coef).reshape(-1, 3).cumsum(axis=1))
        return np.log(-np.log(survival[persons].mean(axis=0)))

    new = new_of(X)
    curve = survival_curve(model, new, by="drug", level=0.9)
    for k, drug in enumerate(curve.names):
        persons = new["drug"].to_numpy()[::3] == drug
        steps = 1e-5 * np.eye(found.coef.size)
        moved = [log_minus_log(found.coef[0] + s, persons) for s in (*steps, *-steps)]
        gradient = (np.array(moved[: len(steps)]) - moved[len(steps) :]) / 2e-5
        middle = log_minus_log(found.coef[0], persons)
        half = found.half_widths(gradient.T, 0.9)
        for ends, sign in ((curve.survival, 0), (curve.low, 1), (curve.high, -1)):
            np.testing.assert_allclose(ends[k, 1:], np.exp(-np.exp(middle + sign * half)), 1e-6)
    assert (curve.low[:, 1:] < curve.survival[:, 1:]).all()
    assert (curve.survival[:, 1:] < curve.high[:, 1:]).all()


def curve_with(model, new, **changes):
    """The mean curve with other standard errors."""
    known = model._estimates
    try:
        model._estimates = dataclasses.replace(known, **changes)
        return survival_curve(model, new, by=None)
    finally:
        model._estimates = known


def test_where_nothing_is_known_it_may_be_anything_that_falls(sure):
    model, new = sure[0]["with"], new_of(sure[1])
    middle = survival_curve(model, new, by=None).survival
    curve = curve_with(model, new, unknown=np.eye(5)[:, [3]])  # the third period
    np.testing.assert_array_equal(curve.survival, middle)
    assert curve.low[0, 3] == 0
    assert curve.high[0, 3] == curve.high[0, 2] < 1
    assert (curve.low[0, 1:3] > 0.3).all()


def test_a_period_of_which_little_is_known_lies_between_its_neighbours(sure):
    model, new = sure[0]["with"], new_of(sure[1])
    # the sums of the level and each later period are known, as where the first has few events
    apart = 2.0 * np.array([0, 0, -1, -1, 1])
    curve = curve_with(model, new, noise=model._estimates.noise + np.outer(apart, apart))
    assert (np.diff(curve.low) <= 0).all()
    assert (np.diff(curve.high) <= 0).all()
    assert curve.low[0, 1] == curve.low[0, 2] > 0.1


def test_hazards_that_round_to_0_have_intervals(sure):
    model, new = sure[0]["with"], new_of(sure[1])
    coef = model._estimates.coef + 900 * np.array([0, 0, 1, 1, -1])  # of the first period
    curve = curve_with(model, new, coef=coef)
    assert curve.survival[0, 1] == curve.high[0, 1] == 1
    assert curve.low[0, 1] == curve.low[0, 2] > 0.1
    curve = curve_with(model, new, coef=coef * [1, 1, 0, 0, 1])  # of all periods
    np.testing.assert_array_equal(curve.low[0, 1:], 0)
    np.testing.assert_array_equal(curve.high, 1)


def test_frames_and_plots(sure):
    model, new = sure[0]["with"], new_of(sure[1])
    curve = survival_curve(model, new, by="drug", level=0.9)
    frame = curve.to_frame()
    again = survival_curve(model, pl.from_pandas(new), by="drug", level=0.9)
    pd.testing.assert_frame_equal(again.to_frame(), frame)
    assert str(curve) == frame.to_string(index=False)
    assert list(frame.columns) == ["drug", "time", "survival", "[0.05", "0.95]"]
    np.testing.assert_array_equal(frame["0.95]"], curve.high.ravel())
    assert frame["time"].tolist() == [*GRID, *GRID]
    _, ax = plt.subplots()
    assert curve.plot(ax=ax, color="red") is ax
    for k, line in enumerate(ax.lines):
        np.testing.assert_array_equal(line.get_ydata(), curve.survival[k])
    assert len(ax.lines) == len(ax.collections) == 2
    assert ax.lines[0].get_color() == "red"
    plt.close("all")


def test_a_search_is_opened():
    candidates = {"class_weight": [None, {0: 1, 1: 2}]}
    search = DPGridSearchCV(
        DPLogisticRegression(bounds_X=(0, 1), classes=[0, 1]), candidates, random_state=0
    )
    X, y = ROWS[["period"]] / 3, ROWS["event"].fillna(0)
    new = NEW.assign(period=NEW["period"] / 3)
    curve = survival_curve(search.fit(X, y), new, by=None)
    hazards = search.predict_proba(new[["period"]])[:3, 1]
    np.testing.assert_allclose(curve.survival[0, 1:], np.cumprod(1 - hazards))


def test_persons_without_a_label_have_a_curve_too(sure):
    new = new_of(sure[1]).assign(ward=np.repeat(["a", None, "b", None] * 2, 3))
    curve = survival_curve(sure[0]["with"], new, by="ward")
    whole = survival_curve(sure[0]["with"], new, by=None)
    assert curve.names[0] == "a"
    assert pd.isna(curve.names[1])
    np.testing.assert_allclose(np.array([2, 4, 2]) / 8 @ curve.survival, whole.survival[0])


def test_what_is_wrong_is_said(sure):
    model, new = sure[0]["with"], new_of(sure[1])
    for rows in (
        new[1:],
        new[:-1],
        new.sample(frac=1, random_state=0),
        new[:0],
        new[new["period"] > 1],
        new[new["period"] != 2],  # the third one would be taken for as long as both
    ):
        with pytest.raises(ValueError, match="in their order"):
            survival_curve(model, rows)
    with pytest.raises(ValueError, match=r"no column.*age"):
        survival_curve(model, new.drop(columns="age"))
    rows = new.drop(columns=["person", "period", "start", "stop"])
    with pytest.raises(ValueError, match=r"no column \['person', 'period', 'start', 'stop'\]$"):
        survival_curve(model, rows, by="person")
    with pytest.raises(ValueError, match="level"):
        survival_curve(model, new, level=1)
    with pytest.raises(ValueError, match=r"no column.*ward"):
        survival_curve(model, new, by="ward")
    numbers = new[["age"]].to_numpy()
    several = classifier(classes=[0, 1, 2], bounds_X=(0, 1)).fit(new[["age"]], [0, 1, 2] * 8)
    linear = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1)).fit(new[["age"]], [0, 1, 1] * 8)
    rates = DPPoissonRegressor(bounds_X=(0, 1), bounds_y=(0, 1)).fit(new[["age"]], [0, 1, 1] * 8)
    nameless = classifier(bounds_X=(0, 1)).fit(numbers, [0, 1, 1] * 8)
    for wrong, message in (
        (several, "two classes"),
        (linear, "log link"),
        (rates, r"time at risk: .*exposure=True.*declare bounds_exposure"),
        (nameless, "columns have names"),
        (DummyRegressor(), "survival_curve takes a model"),
    ):
        with pytest.raises(ValueError, match=message):
            survival_curve(wrong, new)


def test_periods_that_the_encoder_does_not_declare_are_refused():
    # each would count as the reference, the first period
    finer = person_periods(people(4).drop(columns=["time", "event"]), periods=[0, 1, 2, 3, 4, 5])
    for declared in (SCHEMA["period"], np.array(SCHEMA["period"])):
        encoder = PublicEncoder(SCHEMA | {"period": declared}, drop="first", extra="drop")
        model = make_pipeline(encoder, classifier()).fit(ROWS, ROWS["event"])
        with pytest.raises(ValueError, match=r"does not declare 4, 5$"):
            survival_curve(model, finer)


def test_encoders_in_a_column_transformer():
    parts = {name: PublicEncoder({name: declared}) for name, declared in SCHEMA.items()}
    beside = ColumnTransformer([(name, part, [name]) for name, part in parts.items()])
    model = make_pipeline(beside, classifier(bounds_X=beside)).fit(ROWS, ROWS["event"])
    one = PublicEncoder(SCHEMA, extra="drop")
    same = make_pipeline(one, classifier(bounds_X=one)).fit(ROWS, ROWS["event"])
    # new persons have no outcome, and the transformer does not read any
    found, expected = (survival_curve(of, NEW).survival for of in (model, same))
    np.testing.assert_allclose(found, expected, atol=0.02)
    finer = person_periods(people(4).drop(columns=["time", "event"]), periods=[0, 1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match=r"does not declare 4, 5$"):
        survival_curve(model, finer)
    with pytest.raises(ValueError, match=r"have no column \['age'\]"):
        survival_curve(model, NEW.drop(columns="age"))
    rule = {"epsilon": 50.0, "inference": True}
    model = make_pipeline(beside, classifier(bounds_X=beside, **rule)).fit(ROWS, ROWS["event"])
    assert "hazard ratios" in joined(model[-1].summary(exponentiate=True))


@pytest.mark.parametrize(
    "columns",
    [
        ["age", "sex"], pd.Index(["age", "sex"]), np.array(["age", "sex"]), ("age", "sex"),
        slice("age", "sex"), slice(1, 3), [1, 2], [-3, 2], [False, True, True, False],
        lambda table: ["age", "sex"],
    ],
)  # fmt: skip
def test_columns_that_a_transformer_reads(columns):
    table = pd.DataFrame({"event": [0], "age": [30], "sex": ["f"], "person": [1]})
    reads = ColumnTransformer([("no", "drop", [0]), ("these", "passthrough", columns)])
    assert columns_read(reads.fit(table), table.columns) == ["age", "sex"]
    one = ColumnTransformer([("one", CountVectorizer(), "sex"), ("none", "passthrough", [])])
    assert columns_read(one.fit(table.assign(sex="female")), table.columns) == ["sex"]


def test_rare_hazards_of_persons_of_many_periods_are_not_held_far_above_them():
    """Of 25,000 rows the noise of one person's 50 is ten times the events."""
    rng, n = np.random.default_rng(0), 500
    table = pd.DataFrame({"drug": rng.random(n) < 0.5})
    table["time"] = np.minimum(rng.exponential(500 * (1 + table["drug"])), 50)
    edges = list(range(51))
    rows = person_periods(table.assign(event=table["time"] < 50), "time", "event", periods=edges)
    encoder = PublicEncoder({"drug": bool}, drop="first", extra="drop")
    last = classifier(bounds_X=encoder, epsilon=1.0, max_rows_per_user=50)
    model = make_pipeline(encoder, last)
    model.fit(rows, rows["event"], dplogisticregression__groups=rows["person"])
    plan = model[-1].plan_
    assert plan.clips_users
    # half of the noise of a count of persons, over the rows
    assert plan.least_probability == pytest.approx(0.5 / (n * 50 * 50 * plan.budget.mu), rel=1e-6)
    new = person_periods(pd.DataFrame({"drug": [True, False]}), periods=edges)
    found = survival_curve(model, new, by="drug").survival[:, -1]
    assert np.all(found > 0.87)  # .95 and .90 are true
