"""Observed against predicted means by bins: what is drawn, and that `dp_score` releases it."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpsco import (
    BudgetAccountant,
    CalibrationDisplay,
    DPGammaRegressor,
    DPLinearRegression,
    DPPoissonRegressor,
    dp_score,
)

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (12_000, 2))
MEAN = np.exp(X[:, 0] - 1)
y = rng.poisson(MEAN)
EDGES = [0.1, 0.2, 0.4, 0.6, 0.8, 1.2]
SURE = {"epsilon": 2.0, "confidence": 1 - 1e-8, "max_error": 8, "random_state": 0}


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
    frame = display.to_frame()
    return (frame["low"] <= frame["predicted"]) & (frame["predicted"] <= frame["high"])


def test_a_right_model_is_on_the_diagonal_and_a_wrong_one_is_not():
    right = CalibrationDisplay.from_estimator(Rates(), X, y, edges=EDGES, **SURE)
    assert has_diagonal(right).all()
    wrong = CalibrationDisplay.from_estimator(Rates(2.0), X, y, edges=EDGES, **SURE)
    is_on = has_diagonal(wrong)
    assert not is_on.iloc[0]
    assert not is_on.iloc[-1]
    frame = wrong.to_frame()
    is_below = frame["observed"] < frame["predicted"]
    assert is_below.iloc[-1]  # too much where much is predicted
    assert not is_below.iloc[0]


def test_the_release_is_that_of_scores_by_group_with_outer_bins_for_the_rest():
    display = CalibrationDisplay.from_estimator(Rates(), X, y, edges=EDGES, **SURE)
    bins = np.digitize(Rates().predict(X), EDGES[1:-1])
    given = {"scoring": "mean_bias", "by": bins, "by_values": range(5)}
    score = dp_score(Rates(), X, y, **given, **SURE)
    frame = display.to_frame()
    for k, of_bin in score.by_group.items():
        row = frame.loc[k]
        assert row["predicted"] - row["observed"] == pytest.approx(of_bin.value)
        ends = row["predicted"] - row["high"], row["predicted"] - row["low"]
        assert ends == pytest.approx(of_bin.interval)
        assert row["valid"] == of_bin.n_valid
        assert row["from"] < row["predicted"] < row["to"]


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
    np.testing.assert_allclose(display.edges, np.linspace(0, 1, 11))
    model.coef_ *= 3
    assert not has_diagonal(CalibrationDisplay.from_estimator(model, X, labels, **given)).all()
    assert display.ax_.get_ylabel() == "Observed share"


def test_frequencies_are_within_0_and_1_and_biases_are_not():
    labels = rng.random(400) < 0.5
    model = LogisticRegression().fit(X[:400], labels)  # no record in most bins
    display = CalibrationDisplay.from_estimator(model, X[:400], labels, epsilon=0.5, random_state=0)
    seen = display.to_frame()[["observed", "low", "high"]].T
    assert seen.min(axis=None) == 0
    assert seen.max(axis=None) == 1
    assert (seen.loc["low"] <= seen.loc["observed"]).all()
    assert (seen.loc["observed"] <= seen.loc["high"]).all()
    assert min(of.value for of in display.score.by_group.values()) < 0
    assert max(abs(of.value) for of in display.score.by_group.values()) > 0.9


def test_bins_without_records_have_no_point_and_axes_follow_the_bins():
    display = CalibrationDisplay.from_estimator(Rates(), X, y, edges=[0.1, 0.4, 1, 10, 20], **SURE)
    assert len(display.points_[0].get_xdata()) == 2
    assert display.ax_.get_xlim() == (0.1, 1)
    assert display.ax_.get_xscale() == display.ax_.get_yscale() == "log"
    np.testing.assert_array_equal(display.line_.get_xdata(), display.line_.get_ydata())
    even = CalibrationDisplay.from_estimator(Rates(), X, y, edges=[0, 0.4, 0.6, 1], **SURE)
    assert even.ax_.get_xscale() == "linear"
    assert list(even.points_[0].get_xdata()) == pytest.approx([0.2, 0.5, 0.8])
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
        np.testing.assert_allclose(display.edges, edges)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"edges": [0, 1]}, ValueError, "3 to 1001 rising"),
        ({"edges": [0, 2, 1]}, ValueError, "3 to 1001 rising"),
        ({"edges": [0, np.nan, 1]}, ValueError, "3 to 1001 rising"),
        ({"edges": "deciles"}, ValueError, "3 to 1001 rising"),
        ({"by": y}, TypeError, "sets by itself"),
        ({"max_error": -1}, ValueError, "max_error"),
        ({"exposure": np.ones(3)}, ValueError, "exposure must have shape"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_spent(settings, error, message):
    accountant = BudgetAccountant(5.0)
    given = {"edges": EDGES, "accountant": accountant, **settings}
    with pytest.raises(error, match=message):
        CalibrationDisplay.from_estimator(Rates(), X, y, **given)
    assert accountant.total_spent() == 0
    CalibrationDisplay.from_estimator(
        Rates(), X, y, edges=EDGES, epsilon=2.0, accountant=accountant
    )
    assert accountant.total_spent() == pytest.approx(2.0)
