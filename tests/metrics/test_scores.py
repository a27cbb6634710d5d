"""`dp_score` on estimators: what it reads, refuses and charges, and what it says."""

import gc
import itertools
import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingRegressor, StackingRegressor, VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from support import assert_refuses, joined, rest_is_slow, stream

from sklearn_dpsco import (
    BudgetAccountant,
    DPLinearRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPoissonRegressor,
    PrivacyBudgetError,
    PrivacyParameterWarning,
    dp_score,
    plan_score,
)
from sklearn_dpsco.metrics.releases import SCORINGS

BY_LABELS = [name for name in SCORINGS if "mean" not in name and name != "r2"]
BY_NUMBERS = [name for name in SCORINGS if name not in (*BY_LABELS, "binned_means")]
LOUD = {"epsilon": 1e6, "random_state": 0}  # hardly any noise


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(1200, 4, n_informative=3, n_redundant=0, random_state=0)
    return train_test_split(X, y, test_size=0.5, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return LogisticRegression().fit(data[0], data[2])


def private_classifier(**settings):
    return DPMirrorClassifier(
        epsilon=5.0, bounds_X=(-4, 4), classes=[0, 1], random_state=0, **settings
    )


@pytest.fixture(scope="module")
def dp_model(data):
    return private_classifier().fit(data[0], data[2])


def test_several_targets_have_a_score_each_and_share_one_budget():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 2))
    Y = pd.DataFrame({"wage": X[:, 0] + 5, "rent": 3 * X[:, 1]}) + rng.normal(size=(4000, 2)) / 2
    fitted, bounds = LinearRegression().fit(X, Y), ([0, -6], [10, 6])
    found = dp_score(fitted, X, Y, bounds_y=bounds, **LOUD)
    for k, (name, score) in enumerate(found.items()):
        assert float(score) == pytest.approx(r2_score(Y[name], fitted.predict(X)[:, k]), abs=0.01)
        assert str(score).startswith(f"r2 of {name!r} = ")
    assert list(found) == list(Y)
    accountant = BudgetAccountant(2.0)
    facts = {"epsilon": 2.0, "delta": 0.0, "accountant": accountant}
    (of_first, of_second) = dp_score(
        fitted, X, Y.to_numpy(), bounds_y=bounds, scoring=["r2", "mean_bias"], **facts
    ).values()
    assert accountant.remaining() == pytest.approx(0)  # once, for both
    assert of_first["r2"].guarantee is of_second["mean_bias"].guarantee
    assert of_second["r2"].target == "target_1"
    plan = plan_score(4000, scoring="r2", bounds_y=bounds, n_targets=2, epsilon=2.0)
    assert "for each of 2 targets with 1/2 of the budget" in joined(plan)
    assert [release.name for release in plan.guarantee.releases][2:] == [
        "squared error and target: target_0",
        "squared error and target: target_1",
    ]
    alone = plan_score(4000, scoring="r2", bounds_y=(0, 10), epsilon=1.0)
    assert plan.noises[0].scale == pytest.approx(alone.noises[0].scale, rel=1e-6)
    # what is missing in one target takes nothing from the other, and groups have both
    Y.loc[::4, "rent"] = np.nan
    by = {"by": X[:, 0] > 0, "by_values": [False, True], "invalid": "exclude"}
    found = dp_score(fitted, X, Y, bounds_y=bounds, **by, **LOUD)
    assert [round(score.n_valid, -1) for score in found.values()] == [4000, 3000]
    assert all(set(score.by_group) == {False, True} for score in found.values())
    with pytest.raises(ValueError, match="ends of 3 targets, y has 2"):
        dp_score(fitted, X, Y, bounds_y=([0] * 3, [1] * 3))
    with pytest.raises(ValueError, match=r"predict\(X\) must have shape \(4000, 2\)"):
        dp_score(LinearRegression().fit(X, Y["wage"]), X, Y, bounds_y=bounds)
    with pytest.raises(ValueError, match="scores of regressions alone"):
        plan_score(4000, scoring="accuracy", n_targets=2)


def test_the_score_of_a_private_and_of_an_ordinary_model(data, model, dp_model):
    for fitted in (model, dp_model):
        score = dp_score(fitted, data[1], data[3], **LOUD)
        assert float(score) == pytest.approx(fitted.score(data[1], data[3]), abs=1e-4)
        low, high = score.interval
        assert 0 < low < float(score) < high < 1
        assert score.scoring == "accuracy"
        assert score.guarantee.epsilon == 1e6


def test_many_scores_share_one_guarantee(data, model):
    scores = dp_score(model, data[1], data[3], scoring=BY_LABELS, epsilon=2.0, random_state=0)
    assert list(scores) == BY_LABELS
    guarantees = {id(score.guarantee) for score in scores.values()}
    assert len(guarantees) == 1
    assert len(scores["accuracy"].guarantee.releases) == 7
    assert scores["accuracy"].guarantee.epsilon == 2.0
    matrix = scores["confusion_matrix"]
    assert matrix.matrix.shape == (2, 2)
    np.testing.assert_array_equal(matrix.classes, [0, 1])
    np.testing.assert_array_equal(np.maximum(matrix.counts, 0), matrix.matrix.ravel())
    curve = scores["roc_curve"]
    assert curve.fpr.shape == curve.tpr.shape == curve.thresholds.shape
    assert np.all(np.diff(curve.tpr) >= 0)
    assert np.all(curve.fpr_interval[0] <= curve.fpr)
    curve = scores["calibration_curve"]
    assert curve.prob_true.shape == curve.bin_counts.shape == (curve.bin_edges.size - 1,)
    assert scores["accuracy"].matrix is None
    assert scores["neg_log_loss"].clipped == "losses clipped at 5"
    for name, score in scores.items():
        assert str(score).startswith(name)
        assert "NOT PRIVATE" in joined(score)
        low, high = score.interval
        assert np.all(low <= score.value)
        assert np.all(score.value <= high)
    with pytest.raises(TypeError, match="confusion_matrix"):
        float(matrix)
    accuracy = scores["accuracy"]
    assert f"{accuracy:.3f}" == f"{accuracy.value:.3f}"
    assert round(accuracy, 2) == round(accuracy.value, 2)
    assert f"{accuracy}" == str(accuracy)


def test_a_list_of_one_gives_a_dict_and_noise_is_secret_by_default(data, model):
    found = dp_score(model, data[1], data[3], scoring=["accuracy"])
    assert list(found) == ["accuracy"]
    assert found["accuracy"].noise_is_secret
    assert "NOT PRIVATE" not in str(found["accuracy"])
    values = {float(dp_score(model, data[1], data[3], epsilon=0.1)) for _ in range(4)}
    assert len(values) > 1
    again = {float(dp_score(model, data[1], data[3], random_state=3)) for _ in range(3)}
    assert len(again) == 1


def test_regressors_and_their_bounds(data):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, 3))
    y = X @ [1.0, 0.5, 0.0] + 0.1 * rng.standard_normal(900)
    ordinary = LinearRegression().fit(X[:400], y[:400])
    private = DPMirrorRegressor(epsilon=10, bounds_X=(-1, 1), bounds_y=(-2, 2), random_state=0).fit(
        X[:400], y[:400]
    )
    held_out = X[400:], y[400:]
    found = dp_score(ordinary, *held_out, bounds_y=(-2, 2), **LOUD)
    assert found.scoring == "r2"
    assert float(found) == pytest.approx(ordinary.score(*held_out), abs=1e-3)
    for fitted in (private, make_pipeline(private)):
        scores = dp_score(fitted, *held_out, scoring=BY_NUMBERS, **LOUD)
        assert float(scores["r2"]) == pytest.approx(private.score(*held_out), abs=1e-3)
    assert_refuses(dp_score, "bounds_y", ordinary, *held_out)
    assert_refuses(dp_score, "classes", ordinary, *held_out, scoring="accuracy")


def test_r2_is_a_number_where_noise_hides_it_and_says_that_errors_are_clipped():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 1))
    y = 0.5 * X[:, 0] + rng.standard_t(3, 60)
    model, hidden = LinearRegression().fit(X, y), 0
    given = {"y": y, "prediction": model.predict(X)}
    for delta in (0.0, 1e-6):
        plan = plan_score(60, scoring="r2", bounds_y=(-9, 9), delta=delta, epsilon=0.2)
        for seed in range(15):
            noisy = plan.release(plan.statistics(given), stream(seed))
            found = plan.estimates(noisy)["r2"]
            assert np.isfinite(found["value"])
            assert found["interval"][0] <= found["value"] <= found["interval"][1]
            hidden += found["interval"][0] == -np.inf
    assert hidden >= 15
    found = dp_score(model, X, y, epsilon=0.2, bounds_y=(-9, 9), random_state=0)
    assert np.isfinite(found.value)
    assert "clipped" not in str(found)
    wide, narrow = (
        dp_score(model, X, y, scoring=BY_NUMBERS, bounds_y=(-9, 9), max_error=most, **LOUD)
        for most in (8, 1)
    )
    assert narrow["r2"].value > wide["r2"].value + 0.1
    for name in BY_NUMBERS:
        assert "errors clipped at 1," in joined(narrow[name])
        assert "errors clipped at 1," in joined(narrow[name]._repr_html_())


def test_a_long_interval_of_r2_has_a_hint():
    """From .3 on, unless noise hides the value, where another one stands."""
    rng, told = np.random.default_rng(0), []
    X = rng.uniform(-1, 1, (3000, 1))
    y = X[:, 0] + rng.normal(size=3000) / 2
    model = LinearRegression().fit(X, y)
    for epsilon in (0.1, 0.5, 1.5, 20.0):
        found = dp_score(model, X, y, bounds_y=(-4, 4), epsilon=epsilon, random_state=0)
        width, is_hidden = found.interval[1] - found.interval[0], found.interval[0] == -np.inf
        hint = "with max_error, a few typical errors, the interval may be shorter"
        is_told = hint in joined(found)
        assert is_told == (width > 0.3 and not is_hidden)
        told.append((is_told, width > 0.6))
    assert set(told) == {(False, True), (True, True), (True, False), (False, False)}


def test_containers_of_any_kind(data, model):
    _, X, _, y = data
    expected = dp_score(model, X, y, random_state=0).counts
    for given in (X.tolist(), sparse.csr_array(X), np.asfortranarray(X)):
        column, numbers = y[:, None], y.astype(float)
        frame = pd.DataFrame(column)
        for labels in (y, y.tolist(), column, frame, pd.Series(y), numbers, y.astype(object)):
            found = dp_score(model, given, labels, random_state=0)
            np.testing.assert_array_equal(found.counts, expected)
    text = np.array(["a", "b"], dtype=object)[y]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as of column vectors
        by_group = [
            str(dp_score(model, X, y, by=by, by_values=["a", "b"], random_state=0))
            for by in (text, text.tolist(), text[:, None], pd.DataFrame(text), pd.Series(text))
        ]
    assert len(set(by_group)) == 1


def test_text_labels_and_other_classes(data, model):
    X, y = data[1], data[3]
    named = LogisticRegression().fit(data[0], np.array(["no", "yes"])[data[2]])
    text = np.array(["no", "yes"])[y]
    for labels in (text, text.tolist(), text.astype(object)):
        found = dp_score(named, X, labels, scoring=["accuracy", "roc_auc"], **LOUD)
        assert float(found["accuracy"]) == pytest.approx(named.score(X, text), abs=1e-4)
    assert_refuses(dp_score, "text", named, X, y)
    more = dp_score(model, X, y, scoring="confusion_matrix", classes=[0, 1, 2], **LOUD)
    assert more.matrix.shape == (3, 3)
    assert more.matrix[2].sum() < 0.1
    assert_refuses(dp_score, "own classes", model, X, y, scoring="roc_auc", classes=[0, 2])
    assert_refuses(dp_score, "classes", model, X, y, classes=[0, 0])


def test_decision_functions_stand_for_probabilities(data):
    X, y = data[1], data[3]
    ridge = RidgeClassifier().fit(data[0], data[2])
    found = dp_score(ridge, X, y, scoring="roc_auc", **LOUD)
    smooth = LogisticRegression().fit(data[0], data[2])
    other = dp_score(smooth, X, y, scoring="roc_auc", **LOUD)
    assert float(found) == pytest.approx(float(other), abs=0.02)
    assert float(found) > 0.6
    account = BudgetAccountant(1.0)
    for name in ("calibration_in_the_large", "calibration_curve", "neg_log_loss"):
        for fitted in (ridge, make_pipeline(ridge)):
            assert_refuses(
                dp_score, "no predict_proba", fitted, X, y, scoring=name, accountant=account
            )
    assert account.ledger == ()


class Fixed(ClassifierMixin, BaseEstimator):
    """Predicts its first column; its outcomes may be anything."""

    def __init__(self, classes=(0, 1)):
        self.classes = classes
        self.classes_ = np.array(classes)

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0]

    def predict_proba(self, X):
        second = np.asarray(X, dtype=float)[:, 0]
        return np.column_stack((1 - second, second))


def test_an_invalid_record_shows_in_nothing(data):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (300, 1)).astype(float)
    y = np.where(rng.random(300) < 0.8, X[:, 0], 1 - X[:, 0])
    clean = dp_score(Fixed(), X, y, scoring=BY_LABELS, random_state=0)["confusion_matrix"].counts
    assert clean.shape == (4,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*too small to learn from")  # public facts
        for label in (None, np.nan, 7.0, "?", [1, 0], pd.NA, 10**400):
            odd = y.astype(object)
            odd[5] = label
            for labels in (odd, list(odd), [[one] for one in odd[:5]] + list(odd[5:])):
                found = dp_score(Fixed(), X, labels, scoring=BY_LABELS, random_state=0)
                assert np.all(np.isfinite(found["neg_log_loss"].counts))
                lost = found["confusion_matrix"].counts
                assert np.abs(clean - lost).sum() == pytest.approx(1)  # of noise that is added
        for value in (np.nan, np.inf, -np.inf, 1e300):
            odd = X.copy()
            odd[5] = value
            found = dp_score(Fixed(), odd, y, scoring=BY_LABELS, random_state=0)
            assert np.all(np.isfinite(found["roc_auc"].counts))
            with np.errstate(all="warn"):
                loss = dp_score(
                    Fixed(), odd, odd[:, 0], scoring=BY_NUMBERS, bounds_y=(0, 1), random_state=0
                )
            assert np.all(np.isfinite(loss["r2"].counts))


def test_rows_of_one_beside_an_odd_entry():
    X, y = np.linspace(0, 1, 300)[:, None], np.linspace(0, 1, 300)
    groups = [["a" if k % 3 else "b"] for k in range(300)]
    groups[7] = None
    facts = {"scoring": "accuracy", "by_values": ["a", "b"], "random_state": 0}
    found = dp_score(Fixed(), np.rint(X), np.rint(y), by=groups, **facts)
    groups = [group and group[0] for group in groups]
    plain = dp_score(Fixed(), np.rint(X), np.rint(y), by=groups, **facts)
    np.testing.assert_array_equal(found.counts, plain.counts)
    facts = {"scoring": "neg_mean_squared_error", "bounds_y": (0, 1), "random_state": 0}
    found = [
        float(dp_score(Fixed(), X, [[0.5]] * 299 + [odd], **facts))
        for odd in (None, [0.5, 0.5], 0.5, [None])
    ]
    assert len(set(found)) == 1


def test_tables_of_scores_have_labels(data):
    X, y = data[0], data[2]
    model = private_classifier().fit(X, y)
    scorings = ["accuracy", "confusion_matrix", "calibration_curve", "roc_curve"]
    found = dp_score(model, X, y, scoring=scorings, epsilon=4.0, random_state=0)
    matrix = found["confusion_matrix"]
    labels = model.classes_.tolist()
    frame = matrix.to_frame()
    assert frame.index.tolist() == frame.columns.tolist() == labels
    assert (frame.index.name, frame.columns.name) == ("true", "predicted")
    assert all(str(label) in str(matrix) for label in labels)
    assert f"{matrix.value[0, 0]:.0f}" in matrix._repr_html_()
    by_class = matrix.class_frame()
    assert by_class.loc["f1"].index.tolist() == labels
    assert by_class.columns.tolist() == ["value", "low", "high"]
    expected = matrix.by_class["recall"][1][1]
    assert by_class.loc[("recall", labels[1]), "low"] == expected
    assert "..." not in str(by_class)
    assert str(found) == "\n".join(str(score) for score in found.values())
    assert found["accuracy"].to_frame().loc["accuracy", "value"] == float(found["accuracy"])
    curve = found["calibration_curve"]
    assert len(curve.to_frame()) == curve.bin_edges.size - 1
    assert found["roc_curve"].to_frame()["threshold"].iloc[0] == np.inf
    assert "tpr" in str(found["roc_curve"])
    curve = dp_score(model, X, y, scoring="roc_curve", epsilon=400.0, random_state=0)
    *_, last = str(curve).splitlines()  # of the whole curve, whatever thresholds most have
    assert last.split()[:3] == ["0", "1", "1"]
    assert f"of {curve.fpr.size} thresholds; to_frame() has all" in joined(curve)
    assert by_class.loc["share", "value"].sum() == pytest.approx(1.0)
    counted = "missing targets, if any, count as wrong (invalid='exclude' leaves them out)"
    assert counted in joined(found["accuracy"])
    assert "missing" not in joined(matrix)
    for scoring in ("f1", "recall_macro"):
        with pytest.raises(ValueError, match=f"'{scoring}'.*'confusion_matrix', whose class_frame"):
            dp_score(model, X, y, scoring=scoring)
    with pytest.raises(ValueError, match="class_frame is for"):
        found["accuracy"].class_frame()


def test_invalid_records_are_left_out_as_in_the_fit():
    X, y, rng = np.zeros((4000, 1)), np.zeros(4000), np.random.default_rng(0)
    X[:, 0] = rng.uniform(-1, 1, 4000)
    y = np.where(rng.random(4000) < 0.2, np.nan, X[:, 0] + 0.1 * rng.normal(size=4000))
    model = DPLinearRegression(
        epsilon=20.0, delta=1e-6, bounds_X=(-1, 1), bounds_y=(-2, 2), nonfinite="zero"
    ).fit(X, y)
    facts = {"epsilon": 20.0, "random_state": 0}
    found = dp_score(model, X, y, **facts)
    assert 0.9 < found.value < 1
    assert found.n_valid == pytest.approx(np.isfinite(y).sum(), abs=50)
    assert "valid, targets and predictions clipped to [-" in joined(found)
    assert dp_score(model, X, y, invalid="count", **facts).value < 0.5
    is_gap = rng.random(4000) < 0.1  # of a row, with its target
    gaps = make_pipeline("passthrough", model)
    found = dp_score(gaps, np.where(is_gap[:, None], np.nan, X), y, **facts)
    assert found.n_valid == pytest.approx((np.isfinite(y) & ~is_gap).sum(), abs=50)
    counts = DPPoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 9), nonfinite="zero", epsilon=20.0)
    y_counts = np.where(is_gap, -1.0, rng.poisson(1, 4000))
    found = dp_score(counts.fit(X, y_counts), X, y_counts, **facts)
    assert found.n_valid == pytest.approx((~is_gap).sum(), abs=50)
    model.set_params(nonfinite="raise")
    assert dp_score(model, X, y, **facts).n_valid is None
    with pytest.raises(ValueError, match="invalid must be"):
        dp_score(model, X, y, invalid="drop", **facts)


def private_regressor(**settings):
    return DPLinearRegression(bounds_X=(-4, 4), bounds_y=(0, 1), random_state=0, **settings)


HOLDERS = {
    "voting": lambda **facts: VotingRegressor([("model", private_regressor(**facts))]),
    "pipelines": lambda **facts: VotingRegressor(
        [("steps", make_pipeline("passthrough", private_regressor(**facts)))]
    ),
    "last": lambda **facts: StackingRegressor(
        # whose members are an array
        [("trees", make_pipeline(SimpleImputer(), GradientBoostingRegressor(n_estimators=1)))],
        private_regressor(**facts),
        cv=2,
    ),
    "target": lambda **facts: TransformedTargetRegressor(
        private_regressor(**facts), check_inverse=False
    ),
    "classes": lambda **facts: OneVsRestClassifier(private_classifier(**facts)),
    "calibrated": lambda **facts: CalibratedClassifierCV(private_classifier(**facts), cv=KFold(2)),
}


@pytest.mark.parametrize("name", HOLDERS)
@pytest.mark.filterwarnings("ignore:random_state was given")
def test_what_holds_private_models_is_scored_as_they_are(data, name):
    accountant = BudgetAccountant(100.0, max_rows_per_user=3)
    fitted = HOLDERS[name](nonfinite="zero", accountant=accountant).fit(data[0], data[2])
    X, facts = data[1].copy(), {"epsilon": 20.0, "random_state": 0}
    X[:200] = np.nan  # which is empty for them
    facts |= {} if is_classifier(fitted) else {"bounds_y": (0, 1)}
    with pytest.warns(PrivacyParameterWarning, match="none is for this score"):
        found = dp_score(fitted, X, data[3], **facts)
    assert found.n_valid == pytest.approx(len(X) - 200, abs=50)
    assert found.guarantee.rows_per_user == 3


def test_no_label_of_a_fit_is_kept_or_answered(data):
    """What a score says depends on no label of an index, nor on which object it is given."""
    frame = pd.DataFrame(data[0], index=np.arange(len(data[2])) + 10**6)
    labels = weakref.ref(frame.index)
    fitted = private_classifier().fit(frame, data[2])
    own, other = (
        dp_score(fitted, table, data[2], random_state=0)
        for table in (frame, frame.reset_index(drop=True))
    )
    assert str(own) == str(other)
    del frame
    gc.collect()
    assert labels() is None


def test_the_accountant_is_charged_once_and_last(data, model):
    X, y = data[1], data[3]
    accountant = BudgetAccountant(1.0)
    dp_score(model, X, y, epsilon=0.9, scoring=BY_LABELS, accountant=accountant)
    (charge,) = accountant.ledger
    assert charge.estimator == "score of LogisticRegression"
    assert charge.n_samples == len(y)
    with pytest.raises(PrivacyBudgetError):
        dp_score(model, X, y, epsilon=0.9, accountant=accountant)
    for budget, scoring, composition in (
        (1.1, "accuracy", "gdp"),
        (1.0, "accuracy", "pure"),  # all that is left
        (1.0, BY_LABELS, "gdp"),  # in many releases
    ):
        account = BudgetAccountant(2.0, relation="zero-out").parallel().branch()
        found = dp_score(model, X, y, epsilon=2 / budget, scoring=scoring, accountant=account)
        guarantee = found.guarantee if scoring == "accuracy" else found["accuracy"].guarantee
        assert (guarantee.composition, guarantee.relation) == (composition, "zero-out")

    class Raises(Fixed):
        def predict(self, X):
            raise RuntimeError("no")

    fresh = BudgetAccountant(1.0)
    with pytest.raises(RuntimeError):
        dp_score(Raises(), X, y, accountant=fresh)
    for bad in ({"scoring": "f1"}, {"epsilon": 0}, {"random_state": "x"}, {"score_bounds": 3}):
        assert_refuses(dp_score, next(iter(bad)), model, X, y, accountant=fresh, **bad)
    assert_refuses(dp_score, "records", model, X, y[:-1], accountant=fresh)
    assert_refuses(dp_score, "records", model, X[:1], y[:1], accountant=fresh)
    assert_refuses(dp_score, "y must", model, X, np.zeros((len(X), 2)), accountant=fresh)
    assert_refuses(dp_score, "X must", model, 3, y, accountant=fresh)
    assert fresh.ledger == ()


def test_the_release_is_that_of_the_plan(data, model):
    found = dp_score(model, data[1], data[3], epsilon=0.5, relation="zero-out", scoring="roc_auc")
    plan = plan_score(len(data[3]), scoring="roc_auc", epsilon=0.5, relation="zero-out")
    assert found.guarantee == plan.guarantee
    assert found.counts.size == plan.queries[0].dimension


def test_three_classes_have_no_roc_curve(data):
    y = data[2] + (data[0][:, 0] > 1)
    three = LogisticRegression().fit(data[0], y)
    for scoring in ("roc_auc", "calibration_curve"):
        way_out = "two classes.*one class against the rest, score y == label"
        assert_refuses(dp_score, way_out, three, data[1], data[3], scoring=scoring)
    loss = dp_score(three, data[1], data[3], scoring="neg_log_loss", **LOUD)
    chances = three.predict_proba(data[1])[np.arange(len(data[3])), data[3]]
    expected = np.minimum(-np.log(chances), 5).mean()
    assert float(loss) == pytest.approx(-expected, abs=1e-3)


def groups_of(n):
    """Noisier labels in one group, a shift in another, and some records of none."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    group = np.array(["east", "north", "west", "?"])[rng.choice(4, n, p=[0.3, 0.4, 0.2, 0.1])]
    y = X[:, 0] + np.where(group == "east", 0.5, 0.1) * rng.standard_normal(n)
    return X, y + 0.4 * (group == "west"), group


def test_scores_of_public_groups():
    X, y, group = groups_of(6000)
    facts = {"by": group, "by_values": ["west", "north", "east"], "epsilon": 50.0}
    facts |= {"random_state": 0, "delta": 1e-6}
    model, bounds = LinearRegression().fit(X, X[:, 0]), {"bounds_y": (-2, 2), "max_error": 2}
    found = dp_score(model, X, y, scoring=["r2", "mean_bias"], **bounds, **facts)
    bias = found["mean_bias"]
    assert list(bias.by_group) == ["east", "north", "west"]
    assert f"n = 6000, of which about {bias.n_valid:.0f} valid in the groups," in joined(bias)
    west = bias.by_group["west"]
    assert f"interval, about {west.n_valid:.0f} valid of this group," in joined(west)
    for label, score in bias.by_group.items():
        is_in = group == label
        assert float(score) == pytest.approx(np.mean((X[:, 0] - y)[is_in]), abs=0.02)
        assert score.n_valid == pytest.approx(is_in.sum(), abs=20)
        exact = model.score(X[is_in], y[is_in])
        assert float(found["r2"].by_group[label]) == pytest.approx(exact, abs=0.02)
        assert score.guarantee is bias.guarantee
    assert float(bias) == pytest.approx(np.mean((X[:, 0] - y)[group != "?"]), abs=0.01)
    frame = bias.to_frame()
    assert frame.loc[("west", "mean_bias"), "value"] == float(bias.by_group["west"])
    differences = bias.difference_frame()
    assert differences.index.tolist() == [("east", "north"), ("east", "west"), ("north", "west")]
    value, low, high = differences.loc[("north", "west")]
    assert value == pytest.approx(0.4, abs=0.02)
    ends = bias.by_group["north"].interval, bias.by_group["west"].interval
    assert high - low == pytest.approx(np.hypot(*(np.diff(pair)[0] for pair in ends)), rel=0.02)
    for text in (str(bias), bias._repr_html_()):
        assert all(label in text for label in ("west", "north", f"{value:.1g}"[:1]))
    labels = LogisticRegression().fit(X, X[:, 0] > 0)
    matrix = dp_score(labels, X, y > 0, scoring="confusion_matrix", **facts)
    assert matrix.to_frame().shape == (6, 2)
    assert matrix.by_group["west"].matrix.sum() == pytest.approx(np.sum(group == "west"), abs=5)
    with pytest.raises(ValueError, match="difference_frame is for"):
        matrix.difference_frame()


def spans(score):
    return np.allclose(score.interval, score.limits, atol=1e-9)


def is_hidden_at_end(score):
    (low, high), (least, most) = score.interval, score.limits
    of_range = 1 if score.scoring in ("r2", "neg_log_loss") else most - least
    return score.value in (least, most) and high - low >= of_range / 2


@pytest.mark.parametrize("scoring", ["r2", "roc_auc", "accuracy", "neg_log_loss", "mean_bias"])
def test_a_value_whose_interval_is_all_of_its_range_is_marked(scoring):
    X, n_hidden = np.linspace(0.01, 0.99, 40)[:, None], 0
    y = X[:, 0] if scoring in BY_NUMBERS else (X[:, 0] > 0.5).astype(float)
    bounds = {"bounds_y": (0, 1)} if scoring in BY_NUMBERS else {}
    model = LinearRegression().fit(X, y) if bounds else LogisticRegression().fit(X, y)
    for seed in range(20):
        facts = {"scoring": scoring, "epsilon": 0.1, "random_state": seed, **bounds}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score = dp_score(model, X, y, **facts)
        is_hidden = spans(score) or is_hidden_at_end(score)
        n_hidden += spans(score) and score.value not in score.limits
        assert str(score).startswith(f"{scoring} = hidden* in [") == is_hidden
        assert ("interval is all of the range. Take more" in joined(score)) == is_hidden
    assert n_hidden > 0


def test_a_value_at_the_end_of_its_range_is_marked():
    X = np.arange(200.0)[:, None] % 2
    half, marked, more = np.arange(200) % 4 < 2, 0, 0
    for seed in range(12):
        facts = {"epsilon": 0.1, "random_state": seed, "scoring": ["accuracy", "neg_log_loss"]}
        found = [*dp_score(Fixed(), X, X[:, 0], **facts).values()]
        found += dp_score(Fixed(), X, X[:, 0], by=half, by_values=[0, 1], **facts).values()
        for score in found:
            all_of_them = [score, *(score.by_group or {}).values()]
            n_ends = sum(map(is_hidden_at_end, all_of_them))
            n_hidden = sum(is_hidden_at_end(one) or spans(one) for one in all_of_them)
            marked, more = marked + n_ends, more + n_hidden - n_ends
            assert str(score).count("*") == n_hidden + (n_hidden > 0)
            assert score._repr_html_().count("*") == n_hidden + (n_hidden > 0)
    assert 20 < marked < 90
    assert more > 5
    assert "*" not in str(dp_score(Fixed(), X, np.ones(200), **LOUD))


def test_the_score_of_a_perfect_model_is_told():
    X = np.arange(8000.0)[:, None] % 2
    for seed in range(10):
        score = dp_score(Fixed(), X, X[:, 0], epsilon=1.0, random_state=seed)
        assert score.interval[0] > 0.99
        assert str(score).startswith(f"accuracy = {score.value:.4g} in [0.99")


def test_bins_that_noise_hides_are_marked():
    X = np.full((2000, 1), 0.1)  # no record in four bins of five
    y, n_hidden = np.arange(2000) % 10 == 0, 0
    for seed in range(5):
        facts = {"scoring": "calibration_curve", "epsilon": 0.5, "random_state": seed}
        score = dp_score(Fixed(), X, y, n_bins=5, **facts)
        low, high = score.interval
        is_wide = high - low >= 0.5
        hidden = (np.isin(score.value, (0, 1)) & is_wide) | ((low == 0) & (high == 1))
        assert not hidden[0]
        n_hidden += hidden.sum()
        for shown in (str(score), score._repr_html_()):
            assert shown.count("hidden*") == 2 * hidden.sum()  # predicted and observed
            assert ("* noise hides the value" in shown) == hidden.any()
        assert np.isfinite(score.to_frame()).all(axis=None)
    assert n_hidden >= 10


@rest_is_slow(
    ("scoring", "delta"),
    [*itertools.product(SCORINGS, (0.0, 1e-6))],
    [f"{scoring}-{(0.0, 1e-6)[k % 2]}" for k, scoring in enumerate(SCORINGS)],
)
def test_a_group_of_no_records_or_of_one_is_a_group(scoring, delta):
    """Whether a group is empty is private: nothing may raise or warn."""
    X = np.linspace(0, 1, 300)[:, None]
    by = np.where(np.arange(300) == 7, "one", "many")
    y = X[:, 0] if scoring in BY_NUMBERS else (X[:, 0] > 0.3).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*too small to learn from")  # public facts
        found = dp_score(
            Fixed(), X, y, scoring=scoring, delta=delta, by=by, random_state=0,
            bounds_y=None if scoring in BY_LABELS else (0, 1), by_values=["many", "none", "one"],
        )  # fmt: skip
    assert list(found.by_group) == ["many", "none", "one"]
    for score in found.by_group.values():
        assert np.all(np.isfinite(score.counts))
        assert np.all(np.isfinite(score.value))
        assert str(score)


@rest_is_slow("scoring", BY_NUMBERS, ("r2", "mean_bias"))
def test_differences_of_groups_of_which_nothing_is_known_are_as_wide_as_can_be(scoring):
    """Ends of intervals that are those of the range add up linearly, whatever the range is."""
    X, n_inside = np.linspace(0, 3, 300)[:, None], 0
    for seed in range(12):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*too small to learn from")  # public facts
            score = dp_score(
                Fixed(), X, 3 * (X[:, 0] < 1.5), scoring=scoring, bounds_y=(0, 3), epsilon=0.04,
                by=X[:, 0] > 1.5, by_values=[0, 1], random_state=seed,
            )  # fmt: skip
            ((value, low, high),) = score.difference_frame().to_numpy()
        first, second = score.by_group.values()
        if first.interval == second.interval == first.limits:
            width = first.limits[1] - first.limits[0]
            np.testing.assert_allclose(
                (value, low, high), (first.value - second.value, -width, width)
            )
            n_inside += first.value not in first.limits and second.value not in first.limits
    assert n_inside >= 2


@rest_is_slow("epsilon", [0.05, 3.0], ("3.0",))
def test_intervals_of_groups_and_of_their_differences_cover(epsilon):
    n, runs, rng, rights = 900, 40, np.random.default_rng(0), {"a": 0.9, "b": 0.6}
    shares = {"a": 0.3, "b": 0.7}
    hits = dict.fromkeys(["a", "b", "all", "difference"], 0)
    for seed in range(runs):
        group = rng.choice(["a", "b"], n, p=[0.3, 0.7])
        X = rng.integers(0, 2, (n, 1)).astype(float)
        is_right = rng.random(n) < np.where(group == "a", *rights.values())
        score = dp_score(
            Fixed(), X, np.where(is_right, X[:, 0], 1 - X[:, 0]), epsilon=epsilon, by=group,
            by_values=list("abc"), precision="float", random_state=seed,
        )  # fmt: skip
        found = {label: score.by_group[label].interval for label in rights}
        found |= {"all": score.interval, "difference": score.difference_frame().iloc[0, 1:]}
        whole = sum(shares[label] * rights[label] for label in rights)
        truths = {**rights, "all": whole, "difference": rights["a"] - rights["b"]}
        for name, (low, high) in found.items():
            hits[name] += low <= truths[name] <= high
    assert min(hits.values()) >= binom.ppf(1e-7, runs, 0.94)


def test_groups_are_checked_before_anything_is_spent(data, model):
    X, y, account = data[1], data[3], BudgetAccountant(1.0)
    refused = {
        "given together": {"by": y},
        "given together:": {"by_values": [0, 1]},
        "by_values must": {"by": y, "by_values": [0]},
        "by must": {"by": y[:-1], "by_values": [0, 1]},
        "by and the classes": {"by": y, "by_values": ["a", "b"]},
        "invalid must": {"by": y, "by_values": [0, 1], "invalid": "count"},
    }
    for message, facts in refused.items():
        assert_refuses(dp_score, message.rstrip(":"), model, X, y, accountant=account, **facts)
    assert account.ledger == ()
    found = dp_score(model, X, y, accountant=account, epsilon=0.4, by=y, by_values=[0, 1])
    assert len(account.ledger) == 1
    assert found.by_group[1].guarantee.epsilon == 0.4


def test_exposures_multiply_predictions_and_an_invalid_one_makes_the_record_so():
    rng = np.random.default_rng(0)
    X, e = rng.uniform(-1, 1, (800, 1)), rng.uniform(0.2, 2, 800)
    y = rng.poisson(e)
    model = DPPoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 9), bounds_exposure=(0.1, 2))
    model.fit(X, y, exposure=e)
    known = KnownNumbers(model.predict(X, exposure=e))
    loud = {**LOUD, "bounds_y": (0, 9), "invalid": "exclude"}
    scores = dp_score(model, X, y, scoring=BY_NUMBERS, exposure=e, **loud)
    expected = dp_score(known, X, y, scoring=BY_NUMBERS, **loud)
    assert {name: of.value for name, of in scores.items()} == {
        name: of.value for name, of in expected.items()
    }
    known.values[:4], e[:4] = np.nan, [0, -1, np.nan, np.inf]
    left = dp_score(model, X, y, scoring="mean_bias", exposure=e, **loud)
    assert left.value == dp_score(known, X, y, scoring="mean_bias", **loud).value
    assert left.n_valid == pytest.approx(796, abs=0.1)


def test_scores_of_counts_say_what_they_need(data, dp_model):
    X, y = np.zeros((50, 1)), np.ones(50)
    plain = DPPoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 9))
    with_exposure = DPPoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 9), bounds_exposure=(0.1, 2))
    assert_refuses(dp_score, "exposure must be given", with_exposure, X, y)
    for name in ("d2", "neg_mean_poisson_deviance"):
        assert_refuses(dp_score, "'mean_bias', or draw", plain, X, y, scoring=name)
    assert_refuses(dp_score, "for scores of numbers", dp_model, *data[1::2], exposure=data[3])


class KnownNumbers(BaseEstimator):
    def __init__(self, values):
        self.values = values

    def predict(self, X):
        return self.values


def test_rows_of_a_user_after_the_first_are_left_out(data, model):
    """As if they were not there, whatever they hold; and the charge knows that there are users."""
    X, y = data[1], data[3]
    n = len(y)
    doubled, labels = np.vstack((X, X)), np.append(y, 1 - y)  # wrong where those of y are right
    users = np.tile(np.arange(n), 2)
    alone = dp_score(model, X, y, scoring=BY_LABELS, invalid="exclude", **LOUD)
    both = dp_score(model, doubled, labels, scoring=BY_LABELS, groups=users, **LOUD)
    for name in ("accuracy", "roc_auc", "neg_log_loss", "balanced_accuracy"):
        assert both[name].value == pytest.approx(alone[name].value, abs=1e-3), name
        assert both[name].n_valid == pytest.approx(n, abs=1)
    twice = dp_score(model, doubled, labels, groups=users, max_rows_per_user=2, **LOUD)
    assert twice.value == pytest.approx(0.5, abs=0.02)
    accountant = BudgetAccountant(1.0)
    facts = {"groups": users, "epsilon": 0.5}
    with pytest.raises(PrivacyBudgetError, match="disjoint"):
        dp_score(model, doubled, labels, accountant=accountant.parallel().branch(), **facts)
    dp_score(model, doubled, labels, accountant=accountant.parallel("users").branch(), **facts)
    assert_refuses(dp_score, "groups must have shape", model, X, y, groups=users)
    assert_refuses(dp_score, "groups need invalid", model, X, y, groups=users[:n], invalid="count")


def test_a_score_outside_of_the_accountant_of_its_model_warns(data):
    X, y, accountant = data[1], data[3], BudgetAccountant(9.0)
    with accountant:
        model = make_pipeline("passthrough", private_classifier()).fit(data[0], data[2])
        dp_score(model, X, y)
    with pytest.raises(PrivacyParameterWarning, match="none is for this score"):
        dp_score(model, X, y)
    dp_score(model, X, y, accountant=accountant)
    dp_score(private_classifier().fit(data[0], data[2]), X, y)


def test_a_score_for_fewer_rows_of_a_user_than_its_model_warns(data):
    X, y, accountant = data[1], data[3], BudgetAccountant(9.0)
    users = np.arange(len(y)) // 3
    model = private_classifier(max_rows_per_user=3).fit(data[0], data[2])
    within = make_pipeline("passthrough", model)
    for most, whom in ((1, "any single row"), (2, "persons of up to 2 rows")):
        words = f"of up to 3 rows, and this score {whom}: pass max_rows_per_user=3, and groups"
        for estimator in (model, within):
            with pytest.raises(PrivacyParameterWarning, match=words):
                dp_score(estimator, X, y, max_rows_per_user=most, accountant=accountant)
    assert accountant.ledger == ()  # it comes before the charge
    dp_score(model, X, y, max_rows_per_user=3)
    dp_score(model, X, y, max_rows_per_user=4)
    dp_score(model, X, y, groups=users)  # of which the first rows count


@pytest.mark.parametrize(
    ("scoring", "given"),
    [
        ("accuracy", {"max_error": 1.0}),
        ("accuracy", {"max_log_loss": 2.0}),
        ("neg_log_loss", {"n_bins": 5}),
        ("calibration_curve", {"n_thresholds": 5}),
        ("roc_auc", {"score_bounds": (0.2, 0.8)}),  # is made of pairs in order
        (["mean_bias", "r2"], {"n_bins": "doubling"}),
    ],
)
def test_a_parameter_of_other_scores_is_refused(scoring, given):
    assert_refuses(
        plan_score, f"{min(given)} has no effect on", 100, scoring=scoring, bounds_y=(0, 9), **given
    )


def test_what_is_used_by_one_of_the_scores_is_taken(data):
    several = ["accuracy", "neg_log_loss"]
    assert plan_score(100, scoring=several, max_log_loss=2.0) != plan_score(100, scoring=several)
    plan_score(100, scoring="roc_auc", n_thresholds=5, n_groups=2)
    # what the model says of itself is no wish
    y = np.random.default_rng(0).integers(0, 2, 300)
    X = np.random.default_rng(1).uniform(0, 1, (300, 2))
    model = DPPoissonRegressor(bounds_X=(0, 1), bounds_y=(0, 1)).fit(X, y)
    dp_score(model, X, y, scoring="mean_bias")
    dp_score(model, X, y.astype(float), scoring="accuracy", classes=[0.0, 1.0])
    assert_refuses(dp_score, "classes has no effect", model, X, y, scoring="r2", classes=[0, 1])
    labels = {"scoring": "accuracy", "classes": [0, 1]}
    assert_refuses(dp_score, "bounds_y has no effect", model, X, y, bounds_y=(0, 1), **labels)


def test_weights_of_a_score_are_refused_with_what_stands_for_them():
    with pytest.raises(TypeError, match=r"dp_score.. has no sample_weight: say nothing.*by="):
        dp_score(None, [[0.0]], [0], sample_weight=[1.0])
