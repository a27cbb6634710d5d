"""Weights of records and of classes, for every estimator and form."""

import numpy as np
import pandas as pd
import pytest
from registry import (
    STORAGES,
    build,
    changes,
    descending_forms,
    each,
    entry,
    forms,
    is_classifier,
    nothing_is_released,
    outcome,
    statistics,
    table,
)
from test_audits import replay

from sklearn_dpsco import BudgetAccountant
from sklearn_dpsco.estimators import _base
from sklearn_dpsco.privacy.budget import RELATIONS

SCALES = (0.25, 0.5, 1.0, 1.0)


def tables(name):
    """Pairs (parameters, X, y): one output, and several."""
    yield {}, *table(name)
    X, y = table(name, classes=("a", "b", "c"))
    if is_classifier(name):
        yield {"classes": ["a", "b", "c"]}, X, y
    else:
        yield {}, X, np.column_stack((y, -0.5 * y))


def cases(name):
    """All forms, on dense and CSR data, for one output and for several."""
    for number, (settings, X, y) in enumerate(tables(name)):
        for k, form in enumerate(forms(name)):
            kind = "csr" if (k + number) % 2 else "C"
            further = entry(name).sparse if kind == "csr" else {}
            case = f"{form} {kind} {np.shape(y)}"
            yield case, form, STORAGES[kind](X), y, settings | further


def fitted(name, form, X, y, sample_weight=None, **settings):
    # (an epsilon by which no centre is below its noise)
    model = build(name, form, **{"epsilon": 50.0} | settings)
    return outcome(model.fit(X, y, sample_weight=sample_weight))


# ------------------------------------------------------------------------- weights of records


@each
def test_weights_of_one_change_no_bit(name):
    for k, (case, form, X, y, settings) in enumerate(cases(name)):
        settings["nonfinite"] = ("raise", "zero")[k // 2 % 2]
        without = fitted(name, form, X, y, **settings)
        weighted = fitted(name, form, X, y, np.ones(len(y)), **settings)
        np.testing.assert_array_equal(weighted, without, err_msg=case)


@each
def test_only_the_ratio_to_the_largest_weight_counts(name):
    weights = np.random.default_rng(0).choice(SCALES, 60)
    for case, form, X, y, settings in cases(name):
        found = fitted(name, form, X, y, weights, **settings)
        scaled = fitted(name, form, X, y, 64 * weights, max_weight=64.0, **settings)
        np.testing.assert_array_equal(scaled, found, err_msg=case)
        larger = np.where(weights == 1, 7.5, weights)
        clipped = fitted(name, form, X, y, larger, **settings)
        np.testing.assert_array_equal(clipped, found, err_msg=case)
        without = fitted(name, form, X, y, **settings)
        # (few noisy selections may all be the same ones)
        assert form in entry(name).by_selection or np.any(found != without), case


@each
def test_records_of_weight_zero_are_empty(name):
    weights = np.random.default_rng(0).choice([*SCALES, 0.0, 0.0], 60)
    for case, form, X, y, settings in cases(name):
        found = fitted(name, form, X, y, weights, **settings)
        other_X, other_weights = X.copy(), weights.copy()
        other_X = other_X.toarray() if not isinstance(X, np.ndarray) else other_X
        other_X[weights == 0], other_weights[weights == 0] = np.nan, 1.0
        other_X = other_X if isinstance(X, np.ndarray) else STORAGES["csr"](other_X)
        settings["nonfinite"] = "zero"
        empty = fitted(name, form, other_X, y, other_weights, **settings)
        np.testing.assert_array_equal(found, empty, err_msg=case)


BAD_WEIGHTS = (-1.0, np.nan, np.inf, -np.inf, None, "heavy", 1j, object())


@each
def test_invalid_weights(name):
    X, y = table(name)
    good = [1.0, 0.5] * 30
    for bad in BAD_WEIGHTS:
        weights = [bad, *good[1:]]
        accountant = BudgetAccountant(100.0)
        for method in ("fit", "partial_fit"):
            model = build(name, accountant=accountant)
            if hasattr(model, method):
                with nothing_is_released(), pytest.raises(ValueError, match="sample_weight") as e:
                    getattr(model, method)(X, y, sample_weight=weights)
                assert "0.5" not in str(e.value)
        assert accountant.ledger == ()
        invalid = fitted(name, None, X, y, weights, nonfinite="zero")
        other_X = X.copy()
        other_X[0] = np.nan
        empty = fitted(name, None, other_X, y, good, nonfinite="zero")
        np.testing.assert_array_equal(invalid, empty)


@each
def test_weights_of_another_shape_or_type(name):
    X, y = table(name)
    accountant = BudgetAccountant(1.0)
    for nonfinite in ("raise", "zero"):
        for bad, match in (
            (1.0, "must have the shape"),
            (np.ones((60, 1)), "must have the shape"),
            (pd.DataFrame({"w": np.ones(60)}), "must have the shape"),
            (np.ones(59), "inconsistent numbers of samples"),
            (np.array(["1"] * 60), "sample_weight must hold numbers"),
            (np.ones(60) + 1j, "sample_weight must hold numbers"),
        ):
            with pytest.raises(ValueError, match=match):
                build(name, nonfinite=nonfinite, accountant=accountant).fit(X, y, sample_weight=bad)
    assert accountant.ledger == ()
    weights = np.random.default_rng(0).choice(SCALES, 60)
    expected = fitted(name, None, X, y, weights)
    for same in (list(weights), pd.Series(weights), weights.astype(np.float32)):
        np.testing.assert_array_equal(fitted(name, None, X, y, same), expected)
    halves = fitted(name, None, X, y, (weights > 0.5).astype(float))
    for same in (weights > 0.5, (weights > 0.5).astype(int)):
        np.testing.assert_array_equal(fitted(name, None, X, y, same), halves)


@pytest.mark.parametrize("name", ["DPFTRLRegressor", "DPFTRLClassifier"])
def test_weights_of_a_stream(name):
    X, y = table(name)
    weights = np.random.default_rng(0).choice([*SCALES, 0.0], 60)
    settings = {"horizon": 60, "epsilon": 50.0}
    whole = build(name, **settings).partial_fit(X, y, sample_weight=weights)
    chunked = build(name, **settings)
    for part in (slice(0, 7), slice(7, 31), slice(31, 60)):
        chunked.partial_fit(X[part], y[part], sample_weight=weights[part])
    np.testing.assert_array_equal(outcome(chunked), outcome(whole))
    without = build(name, **settings).partial_fit(X, y)
    assert np.any(outcome(without) != outcome(whole))
    ones = build(name, **settings).partial_fit(X[:30], y[:30])
    ones.partial_fit(X[30:], y[30:], sample_weight=np.ones(30))
    np.testing.assert_array_equal(outcome(ones), outcome(without))
    model = build(name, **settings).partial_fit(X[:9], y[:9], sample_weight=weights[:9])
    before = model._stream.run
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[9:], y[9:], sample_weight=-weights[9:] - 1)
    assert model._stream.run is before


# ---------------------------------------------------------------------------------- privacy


@each
def test_a_record_of_any_weight_moves_a_release_by_its_sensitivity(name):
    X, y = table(name)
    rng = np.random.default_rng(1)
    for form in forms(name):
        model = build(name, form, max_weight=0.5)
        weights = rng.choice([*SCALES, 0.0, 9.0], 60)
        other_X, other_y, other_weights = X.copy(), y.copy(), weights.copy()
        y = y.copy()
        y[3], other_y[3] = ("no", "yes") if is_classifier(name) else (-1.0, 1.0)
        other_X[3], weights[3], other_weights[3] = rng.choice([-1.0, 1.0], 3), 1e9, 0.5
        first, second = (
            statistics(model, *data)
            for data in ((X, y, None, weights), (other_X, other_y, None, other_weights))
        )
        assert 0 < max(changes(first, second).values()) <= 1 + 1e-9, form


@each
def test_replays_flag_weights_that_are_not_clipped(name, monkeypatch):
    def unclipped(sample_weight, largest, *, strict):
        return np.asarray(sample_weight, dtype=np.float64) * 5 / largest

    monkeypatch.setattr(_base, "as_weights", unclipped)
    for k, form in enumerate(descending_forms(name)):
        # (where coordinates are clipped after they are weighted, no weight does harm)
        is_clipped = form in ("guesses", "buckets")
        found = replay(name, form, RELATIONS[k % 2], max_weight=2.0)
        assert found.passed == is_clipped, form
        assert is_clipped or any("sensitivity" in said for said in found.violations.values()), form


# -------------------------------------------------------------------------------- solutions


def two_clusters(name, n=2000):
    """One column of -1 and 1, where the targets of both clusters are high for half of the records.

    Without weights the model is 0; high targets weigh 4 times as much at 1, and low ones at -1.
    """
    x, high = np.repeat([1.0, -1.0], n // 2), np.arange(n) % 2 == 0
    weights = np.where(high == (x > 0), 4.0, 1.0)
    y = np.where(high, "yes", "no") if is_classifier(name) else np.where(high, 0.5, -0.5)
    order = np.random.default_rng(0).permutation(n)
    return x[order, None], y[order], weights[order]


SOLVERS = {
    "DPLassoFW": ("auto", "gradient", "selection", "rounds", "tree"),
    "DPMirrorRegressor": ("auto", "noisy-md", "localized", "proximal", "noisy-sfw"),
    "HeavyTailDPRegressor": ("scof", "scof-slices"),
}


@each
def test_models_are_weighted_ones_where_there_is_hardly_noise(name):
    X, y, weights = two_clusters(name)
    solution = np.log(4) if is_classifier(name) else 0.3
    regressor = name.replace("DPLassoFWClassifier", "DPLassoFW").replace("Classifier", "Regressor")
    for solver in SOLVERS.get(regressor, (None,)):
        settings = {} if solver is None else {"solver": solver}
        model = build(name, epsilon=1e6, max_weight=4.0, **settings)
        plain = np.ravel(model.fit(X, y).coef_)[0]
        found = np.ravel(model.fit(X, y, sample_weight=weights).coef_)[0]
        intercept = np.ravel(model.intercept_)[0]
        assert abs(plain) < 0.15 * solution, solver
        # (slices have a few short steps)
        is_short = solver == "scof-slices"
        assert found == pytest.approx(solution, rel=0.4 if is_short else 0.1), solver
        assert abs(intercept) < 0.25 * solution, solver
