"""Observed against predicted means by bins: what is drawn, and that `dp_score` releases it."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support import assert_refuses

from sklearn_dpsco import (
    BudgetAccountant,
    CalibrationDisplay,
    DPGammaRegressor,
    DPLinearRegression,
    DPPoissonRegressor,
    dp_score,
    plan_score,
)

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (12_000, 2))
MEAN = np.exp(X[:, 0] - 1)
y = rng.poisson(MEAN)
EDGES = [0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.2]
SURE = {"epsilon": 2.0, "confidence": 1 - 1e-8, "max_error": 8, "random_state": 0}


SURE_OF_ALL = {"confidence": 1 - 1e-5}


class Rates(RegressorMixin, BaseEstimator):
    """Known means, `factor` times the logarithm of the true ones' slope."""

    bounds_y = (0, 20)

    def __init__(self, slope=1.0):
        self.slope = slope

    def predict(self, X):
        return np.exp(self.slope * X[:, 0] - 1)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def has_diagonal(display):
    frame = display.to_frame().dropna()
    return (frame["low"] <= frame["predicted"]) & (frame["predicted"] <= frame["high"])


def test_a_right_model_is_on_the_diagonal_and_a_wrong_one_is_not():
    right = CalibrationDisplay.from_estimator(Rates(), X, y, edges=EDGES, **SURE)
    assert has_diagonal(right).all()
    wrong = CalibrationDisplay.from_estimator(Rates(2.0), X, y, edges=EDGES, **SURE | SURE_OF_ALL)
    is_on = has_diagonal(wrong)
    assert not is_on.iloc[0]
    assert not is_on.iloc[-1]
    frame = wrong.to_frame()
    is_below = frame["observed"] < frame["predicted"]
    assert is_below.iloc[-1]  # too much where much is predicted
    assert not is_below.iloc[0]


def test_the_release_is_a_score_and_other_predictions_are_left_out():
    display = CalibrationDisplay.from_estimator(Rates(), X, y, edges=EDGES, **SURE)
    score = dp_score(Rates(), X, y, scoring="binned_means", n_bins=EDGES, **SURE)
    frame = display.to_frame()
    np.testing.assert_array_equal(frame[1:], score.to_frame()[1:])
    np.testing.assert_array_equal(frame["predicted"][1:], score.prob_pred[1:])
    assert frame.loc[0, ["predicted", "observed"]].isna().all()  # no record is there
    assert frame["valid"].sum() == pytest.approx(12_000, abs=40)
    part = CalibrationDisplay.from_estimator(Rates(), X, y, edges=EDGES[2:5], **SURE).to_frame()
    numbers = np.histogram(MEAN, EDGES[2:5])[0]
    np.testing.assert_allclose(part["valid"], numbers, atol=20)
    np.testing.assert_allclose(part["predicted"], frame["predicted"][2:4], atol=0.02)


class Line(RegressorMixin, BaseEstimator):
    """Means from `scale` on, up to a tenth more; `Chances` has them as probabilities."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def predict(self, X):
        return self.scale * (1 + 0.1 * X[:, 0])


class Chances(ClassifierMixin, BaseEstimator):
    classes_ = np.array([0, 1])

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def predict_proba(self, X):
        p = 0.02 * (1 + 0.1 * X[:, 0])
        return np.column_stack((1 - p, p))


@pytest.mark.parametrize(
    ("model", "scale", "draw", "given"),
    [
        (Chances(), 0.02, lambda rng, mean: (rng.random(mean.size) < mean).astype(int), {}),
        (Line(0.3), 0.3, lambda rng, mean: rng.poisson(mean),
         {"bounds_y": (0, 10), "max_error": 4, "edges": [0, 1, 2, 10]}),
        (Line(20), 20, lambda rng, mean: rng.normal(mean, 3),
         {"bounds_y": (0, 200), "max_error": 30}),
    ],
    ids=["rare class", "counts", "numbers"],
)  # fmt: skip
def test_means_are_true_where_predictions_are_at_one_end_of_their_bin(
    model, scale, draw, given, monkeypatch
):
    monkeypatch.setattr(CalibrationDisplay, "plot", lambda display, **_: display)  # takes longest
    hits, truth = 0, 1.05 * scale
    ends = given.get("bounds_y", (0, 1))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z = rng.uniform(0, 1, (6000, 1))
        target = draw(rng, scale * (1 + 0.1 * z[:, 0]))
        facts = {"epsilon": 2.0, "random_state": seed, **given}
        frame = CalibrationDisplay.from_estimator(model, z, target, **facts).to_frame()
        row = frame.loc[np.searchsorted(frame["to"], truth, "right")]
        assert row["predicted"] == pytest.approx(truth, rel=0.05)
        assert row["observed"] == pytest.approx(truth, rel=0.4)
        hits += row["low"] <= truth <= row["high"]
        assert ends[0] <= frame["low"].min() <= frame["high"].max() <= ends[1]
    assert 17 <= hits <= 20


def test_exposures_multiply_predictions():
    e = rng.uniform(0.1, 1, len(y))
    claims = rng.poisson(e * MEAN)
    given = {"exposure": e, "edges": [0.0, 0.1, 0.2, 0.5, 1.0], **SURE}
    assert has_diagonal(CalibrationDisplay.from_estimator(Rates(), X, claims, **given)).all()
    with_counts = CalibrationDisplay.from_estimator(Rates(), X, y, **given)
    assert not has_diagonal(with_counts).all()
    # bins are of the expected number, not of the rate
    valid = with_counts.to_frame()["valid"]
    numbers = np.histogram(e * MEAN, [0.0, 0.1, 0.2, 0.5, 9.0])[0]
    np.testing.assert_allclose(valid, numbers, atol=200)


def test_probabilities_are_compared_with_shares():
    labels = np.where(rng.random(len(y)) < 1 / (1 + np.exp(-3 * X[:, 0])), "yes", "no")
    model = LogisticRegression().fit(X, labels)
    given = {name: SURE[name] for name in ("epsilon", "confidence", "random_state")}
    display = CalibrationDisplay.from_estimator(model, X, labels, **given)
    assert has_diagonal(display).all()
    expected = [0, 0.005, 0.01, 0.02, 0.05, *np.arange(0.1, 0.95, 0.1), 0.95, 0.98, 0.99, 0.995, 1]
    np.testing.assert_allclose(display.score.bin_edges, expected)  # tenths, the outer ones in parts
    model.coef_ *= 3
    assert not has_diagonal(CalibrationDisplay.from_estimator(model, X, labels, **given)).all()
    assert display.ax_.get_xlabel() == "Predicted probability of 'yes'"
    assert display.ax_.get_ylabel() == "Observed share of 'yes'"
    assert str(display.score).startswith("calibration_curve of 'yes' (")
    large = dp_score(model, X, labels, scoring="calibration_in_the_large", **given)
    assert str(large).startswith("calibration_in_the_large of 'yes' = ")


def test_what_noise_hides_has_no_means_and_an_interval_of_most_that_is_possible():
    labels = np.random.default_rng(5).random(400) < 0.5
    model = LogisticRegression().fit(X[:400], labels)  # no record in most bins
    display = CalibrationDisplay.from_estimator(model, X[:400], labels, epsilon=0.5, random_state=0)
    frame = display.to_frame()
    hidden = frame[["predicted", "observed"]].isna()
    assert hidden.sum().between(1, 22).all()
    is_wide = frame["high"] - frame["low"] >= 0.5  # such as 1 in [.48, 1] of no record
    np.testing.assert_array_equal(hidden["observed"], is_wide)
    assert (frame.loc[is_wide, "low"] > 0).any()
    seen = frame[~hidden["observed"]]
    assert (seen["low"] <= seen["observed"]).all()
    assert (seen["observed"] <= seen["high"]).all()
    assert (seen["predicted"].between(seen["from"], seen["to"])).all()
    assert set(frame["valid"][frame["valid"] < 1e-3]) == {0.0}  # where noise is below 0


def test_bins_without_records_have_no_point_and_axes_follow_the_bins():
    display = CalibrationDisplay.from_estimator(Rates(), X, y, edges=[0.1, 0.4, 1, 10, 20], **SURE)
    assert len(display.points_[0].get_xdata()) == 2
    low, high = display.ax_.get_xlim()
    assert 0.05 < low < 0.1 < 1 < high < 2
    assert display.ax_.get_xscale() == display.ax_.get_yscale() == "log"
    np.testing.assert_array_equal(display.line_.get_xdata(), display.line_.get_ydata())
    even = CalibrationDisplay.from_estimator(Rates(), X, y, edges=[0, 0.4, 0.6, 1], **SURE)
    assert even.ax_.get_xscale() == "linear"
    assert list(even.points_[0].get_xdata()) == list(even.to_frame()["predicted"])
    assert even.ax_.get_ylim()[0] < min(0, even.to_frame()["low"].min())
    assert even.ax_.get_ylim()[1] > even.to_frame()["high"].max()
    again = even.plot(ax=display.ax_, fmt="s")
    assert again.ax_ is display.ax_


def test_default_edges_follow_from_public_facts():
    given = {"epsilon": 3.0, "bounds_X": (-1, 1)}
    small = slice(0, 2000)
    counts = DPPoissonRegressor(bounds_y=(0, 16), **given).fit(X[small], y[small])
    costs = DPGammaRegressor(bounds_y=(2, 16), **given).fit(X[small], 1.0 + y[small])
    line = make_pipeline(FunctionTransformer(), DPLinearRegression(bounds_y=(0, 5), **given))
    line.fit(X[small], y[small])
    for model, edges in (
        (counts, [0, *(16 / 2.0**k for k in range(11, -1, -1))]),
        (costs, [2, 4, 8, 16]),
        (line, np.arange(0, 5.1, 0.5)),
    ):
        display = CalibrationDisplay.from_estimator(model, X, y, **SURE)
        np.testing.assert_allclose(display.score.bin_edges, edges)
        score = dp_score(model, X, y, scoring="binned_means", **SURE)
        np.testing.assert_allclose(score.bin_edges, edges)


def test_rare_labels_are_seen_in_bins_of_small_probabilities():
    def edges(n, **facts):
        (query,) = plan_score(n, scoring="calibration_curve", **facts).queries
        return query.facts.edges

    # as far as noise leaves something to see there: 20 standard deviations, of which one is 4
    assert edges(100_000)[:8] == (0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
    assert edges(6000)[:5] == (0, 0.02, 0.05, 0.1, 0.2)
    assert edges(6000, n_groups=6) == edges(1000) == tuple(k / 10 for k in range(11))
    rare = rng.random(len(y)) < 0.002 + 0.03 * (X[:, 0] > 0)
    model = LogisticRegression().fit(X, rare)
    score = dp_score(model, X, rare, scoring="calibration_curve", random_state=0)
    told = score.interval[1] - score.interval[0] < score.prob_pred
    assert told.sum() >= 3


def test_what_is_wrong_is_said_before_anything_is_spent():
    accountant = BudgetAccountant(5.0)

    def draw(**given):
        given = {"edges": EDGES, "epsilon": 2.0, "accountant": accountant} | given
        CalibrationDisplay.from_estimator(Rates(), X, y, **given)

    for edges in ([1], [0, 2, 1], [0, np.nan, 1]):
        assert_refuses(draw, "2 to 10001 rising", edges=edges)
    assert_refuses(draw, "'auto', 'doubling' or 2 to 10001 rising", edges="deciles")
    assert_refuses(draw, "max_error", max_error=-1)
    assert_refuses(draw, "exposure must have shape", exposure=np.ones(3))
    for wrong, message in (({"by": y}, "sets by itself"), ({"n_bins": 5}, "itself: give edges")):
        with pytest.raises(TypeError, match=message):
            draw(**wrong)
    assert accountant.total_spent() == 0
    draw()
    assert accountant.total_spent() == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"ax": np.array([1.0])}, "ax must be an Axes"),
        ({"plot_kwargs": {"colour": "red"}}, "colour"),
        ({"plot_kwargs": {"color": "no such"}}, "no such"),
        ({"missing": "matplotlib.pyplot"}, "matplotlib"),
        ({"missing": "pandas"}, "pandas"),
    ],
)
def test_what_cannot_be_drawn_costs_nothing(given, error, monkeypatch):
    accountant, given = BudgetAccountant(epsilon=1.0), dict(given)
    if missing := given.pop("missing", None):
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises((AttributeError, ImportError, TypeError, ValueError), match=error):
        CalibrationDisplay.from_estimator(Rates(), X, y, accountant=accountant, **given)
    assert accountant.ledger == ()
