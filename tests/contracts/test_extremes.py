"""Extremes: values of the data near the largest float, and parameters of any size and kind."""

import functools
import itertools
import re
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from registry import (
    BAD,
    READING_ORDER,
    STORAGES,
    build,
    columns_as,
    each_form,
    each_form_or_default,
    each_reader,
    each_solver,
    entry,
    is_classifier,
    known,
    main_form,
    outcome,
    parameters_of,
    predictions_of,
    solver_of,
    table,
    ways_to_store,
)
from support import cells_of, half_is_enough

from sklearn_dpsco import (
    BudgetAccountant,
    DPScaler,
    PrivacyBudget,
    PrivateMoments,
    exceptions,
    plan_private_bounds,
    plan_score,
)
from sklearn_dpsco._checks import shown
from sklearn_dpsco.geometry import L1Ball, L2Ball, LInfBall, LpBall, Simplex, get_geometry
from sklearn_dpsco.means import plan_mean
from sklearn_dpsco.privacy.budget import RELATIONS
from sklearn_dpsco.solvers.heavy_tail.oracles import ORACLES

HUGE, TINY = 1.7e308, 5e-324
WIDE = {"bounds_X": (-1e50, 1e50), "bounds_y": (-1e50, 1e50)}


def quietly(call, *data):
    """The call, in which each warning is an error but that of a small table."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*too small to learn from")
        return call(*data)


def predictions(model, X):
    """All that it predicts of X, without a warning."""
    names = ("predict", "decision_function", "predict_proba", "predict_log_proba")
    return {name: quietly(getattr(model, name), X) for name in names if hasattr(model, name)}


def extreme_tables(name):
    """Tables whose sums overflow, or are inf - inf, or vanish."""
    X, y = table(name)
    for rows, values in (
        ([3], HUGE),
        ([3], -HUGE),
        ([3, 4], [[HUGE], [-HUGE]]),
        ([3], TINY),
        ([8], [HUGE, -HUGE, 1]),
        (range(60), [[HUGE], [HUGE], [-HUGE], [-HUGE]] * 15),
    ):
        features, targets = X.copy(), y.copy()
        features[rows] = values
        yield features, targets
        if not is_classifier(name):
            values = np.abs(values) if entry(name).of_rates else values
            targets[rows] = np.broadcast_to(values, (len(rows), 3))[:, 0]
            yield X, targets
            yield features, targets


@half_is_enough
@each_form
@np.errstate(all="warn")
def test_values_near_the_largest_float(name, form, cells):
    tables, ways = enumerate(extreme_tables(name)), ways_to_store(name, form)
    ways = itertools.product(ways, ("raise", "zero"))
    # each table in all ways, or in one by turns
    every, one = itertools.product, lambda *of: zip(of[0], itertools.cycle(of[1]), strict=False)
    cases = (every if cells == "all" else one)(tables, ways)
    for (number, (X, y)), ((kind, settings), mode) in cases:
        stored, case = STORAGES[kind](X), (number, kind, mode)
        model = build(name, form, nonfinite=mode, **settings)
        quietly(model.fit, stored, y)
        assert np.all(np.isfinite(outcome(model))), case
        for method, found in predictions(model, stored).items():
            assert found.dtype.kind != "f" or not np.any(np.isnan(found)), (case, method)


@each_reader
def test_other_containers_of_values_near_the_largest_float(name):
    X, y = table(name)
    X[[3, 4, 5]] = [[HUGE], [-HUGE], [HUGE]]
    single = np.where(np.abs(X) > 1, np.copysign(3.4e38, X), X).astype(np.float32)
    bounds = known(name, WIDE)
    containers = [
        columns_as(X), columns_as(X).astype(object), X.tolist(), X.astype(np.longdouble),
        single, np.asfortranarray(single), columns_as(single), STORAGES["csr"](single),
        STORAGES["csc"](single),
    ]  # fmt: skip
    for number, stored in enumerate(containers):
        modes = ("raise", "zero")[:: 1 if number % 2 else -1]
        for settings, mode in zip(({}, bounds), modes, strict=True):
            settings = settings | dict(entry(name).sparse)
            model = build(name, main_form(name), nonfinite=mode, **settings)
            quietly(model.fit, stored, y)
            assert np.all(np.isfinite(outcome(model))), number
            predictions(model, stored)
            if hasattr(model, "partial_fit"):
                stream = build(name, nonfinite=mode, **settings)
                quietly(stream.partial_fit, stored, y)
                quietly(stream.partial_fit, stored, y)
                assert np.all(np.isfinite(outcome(stream))), number


@each_solver
def test_predictions_of_rows_near_the_largest_float(name):
    X, y = table(name)
    model = build(name, epsilon=1e3).fit(X, y)
    # terms overflow, but not their sum
    small = np.array([[1.0, -2.0, 0.5]])
    coef, intercept = np.ravel(model.coef_), np.ravel(model.intercept_)[0]
    coef[...] = [4.0, 3.0, 4.0]  # a view: 4 - 6 + 2 = 0
    predict = model.decision_function if is_classifier(name) else model.predict
    X = np.vstack((0.8 * small, 0.4 * small, -0.8 * small, [[-1.5, -1.5, 1.0]])) * 1e308
    expected = np.array([intercept] * 3 + [-np.inf])
    if getattr(model, "limits_X_", None) is not None:  # features are clipped
        expected = np.clip(X, *model.limits_X_) @ coef + intercept
    expected = predictions_of(name, expected, model)
    for kind in STORAGES.values():
        np.testing.assert_allclose(quietly(predict, kind(X)), expected, rtol=1e-12, atol=1e-300)


def test_labels_near_the_largest_float_are_labels():
    for name, classes in (
        ("DPLassoFWClassifier", [0.0, HUGE]),
        ("DPFTRLClassifier", [-HUGE, TINY]),
    ):
        X, y = table(name)
        for mode in ("raise", "zero"):
            model = build(name, classes=classes, nonfinite=mode)
            labels = np.where(y == "yes", *classes)
            quietly(model.fit, X, labels)
            assert set(model.predict(X)) <= set(classes)


# ---------------------------------------------------------------------------- parameters

VALUES = (
    0, -1, np.nan, np.inf, -np.inf, 1e300, -1e300, HUGE, TINY, 1e-300, 1e50, 1e-50, 10**400,
    -(10**5000), 10**30, 10**12, 2**63, 1e15, True, np.True_, "text", "auto", "0.5", b"x", None,
    np.float32(0.3), np.float64(2.0), np.int64(3), np.float32(np.inf), np.longdouble(HUGE) * 10,
    Decimal("0.5"), Decimal("sNaN"), Decimal("1e999999"), Fraction(1, 3), Fraction(10**400, 3), 1j,
    [], {}, set(), object(), np.array(0.5), np.array([1.0, 2.0]), [1.0, None], (1, 2), float, 7,
)  # fmt: skip
PAIRS = (
    (-1e308, 1e308), (-HUGE, HUGE), (0, HUGE), (-1e50, 1e50), (0, 1e51), (0, TINY), (TINY, 1e-323),
    (-TINY, TINY), (0, 1e-310), (0, 1e-50), (-1e-50, 0), (-1e-50, 1e-50), (1, 1 + 3e-16),
    (1, 1 + 1e-9), (1e50, 1.1e50), (1e16, 1e16 + 2), (-(10**400), 10**400), (0, 10**400),
    (Decimal(0), Decimal(1)), (Decimal("sNaN"), 1), (None, None), (True, False), (1j, 2), ([], []),
    (0, [1, 1, 1e308]), ([0, 0, 0], [1, 1, TINY]), (0, [1, 1, 10**400]), ("0", "1"),
)  # fmt: skip
COLUMNS = ([1.0, 1e300, 1.0], [1.0, TINY, 1.0], [1, 10**400, 1], [1.0, 1e50, 1e-50])
ELSEWHERE = ("loss",)  # losses have tests of their own


def extremes_of(key):
    """Values to try for a parameter."""
    return (*VALUES, *(PAIRS if "bounds" in key else ()), *(COLUMNS if "_X" in key else ()))


def refusal(call, *data):
    """What the error of the call says; None if it raises none. Other warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in exceptions.__all__:
            if kind.endswith("Warning"):
                warnings.simplefilter("ignore", getattr(exceptions, kind))
        try:
            call(*data)
        except (ValueError, exceptions.PrivacyBudgetError) as error:
            return str(error)
    return None


@half_is_enough
@each_solver
def test_a_parameter_of_any_size_and_kind_is_refused_by_name_or_right(name, cells):
    X, y = table(name)
    turn = READING_ORDER.index(name)
    solver = solver_of(name, main_form(name))
    inner = solver.get_params().keys() if solver else set()
    for key in sorted((parameters_of(name) | inner) - set(ELSEWHERE)):
        # a half of the values; of what means the same in all estimators, a sixth by each of them
        step = 1 if cells == "all" else 2 if key in entry(name).bad or key not in BAD else 6
        for value in extremes_of(key)[turn % step :: step]:
            case = (key, shown(value))
            model = build(name, main_form(name), **{key: value})
            message = refusal(model.fit, X, y)
            if message is None:
                assert np.all(np.isfinite(outcome(model))), case
                assert np.all(np.isfinite(model.coef_ @ X.T)), case
            else:
                assert re.search(rf"\b{key}\b", message), (case, message)
                assert len(message) < 400, case


IN_UNITS = ("data_norm", "gradient_clip", "l2_penalty", "learning_rate")


@half_is_enough
@each_form
def test_the_ends_of_all_ranges_together(name, form, cells):
    X, y = table(name)
    small, large = (-1e-50, 1e-50), (-1e50, 1e50)
    others = ((), ("learning_rate", "l2_penalty"), ("feasible_set",))
    both = (small, large), (large, small)
    for bounds, size, more in cells_of(cells, both, (1e-50, 1e50), others):
        extremes = {
            "bounds_X": bounds[0], "bounds_y": bounds[1], "scale_X": bounds[0][1],
            "scale_y": bounds[1][1], "center_X": bounds[0][0], "center_y": bounds[1][0],
            "gradient_clip": size, "data_norm": size, "tau": size, "moment_bound": size,
        }  # fmt: skip
        settings = known(name, extremes | dict.fromkeys(more, size), form)
        if "moment_bound" in settings:  # which decides on it
            settings.pop("tau", None)
        if "feasible_set" in settings:
            declared = build(name, form).feasible_set
            kind = L2Ball if declared == "auto" else get_geometry(declared)
            settings["feasible_set"] = kind(size)
        if entry(name).forms[form].get("units") == "learned":  # which takes no such numbers
            settings = {key: value for key, value in settings.items() if key not in IN_UNITS}
        model = build(name, form, **settings)
        message = refusal(model.fit, X, y)
        if message is None:
            assert np.all(np.isfinite(outcome(model))), (bounds, size, more)
        else:
            assert re.search("learning_rate must|has no feasible set", message), message


# the corners of what a budget may be, and where conversions lose most digits
BUDGETS = (
    (1e-15, 1e-300), (1e-15, TINY), (1e-15, 0), (1e-15, 0.5), (1e9, 1e-300), (1e9, TINY), (1e9, 0),
    (1e9, 0.5), (1, 1 - 2**-53),
)  # fmt: skip
NO_PLAN = r"pure-DP form|precision='float'|n_samples|smallest n|n_buckets"


def charge(accountant, model):
    """Charge a plan of a fit."""
    accountant.spend(model.plan(60, 1))


@half_is_enough
@each_form_or_default
def test_the_corners_of_a_budget(name, form, cells):
    X, y = table(name, 3, 1)
    weights, groups = np.array([1.0, 0.0, 0.5]), [0, 0, 1]
    claims = list(zip((1, 10**6), RELATIONS, strict=True))
    for k, (epsilon, delta) in enumerate(BUDGETS, READING_ORDER.index(name)):
        for rows, kind in claims if cells == "all" else claims[k % 2 :][:1]:
            claim = {"epsilon": epsilon, "max_rows_per_user": rows, "relation": kind}
            model = build(name, form, **claim | {"delta": delta})
            case = (epsilon, delta, rows, kind)
            for n in (1, 2, 1000):
                message = refusal(model.plan, n, 1)
                assert message is None or re.search(NO_PLAN, message), (case, n, message)
        fit = functools.partial(model.fit, groups=groups, sample_weight=weights)
        message = refusal(fit, X, y)
        assert message is None or re.search(NO_PLAN, message), (case, message)
        assert message is not None or np.all(np.isfinite(outcome(model))), case
        charged = BudgetAccountant(epsilon=epsilon, delta=delta)
        model = build(name, form, epsilon=epsilon, accountant=charged)
        message = refusal(charge, charged, model)
        # (what does not add up in Gaussian DP costs more beside others than all there is)
        advice = "|composition='zcdp'" * name.startswith("DPLassoFW")
        assert message is None or re.search(NO_PLAN + advice, message), (case, message)
        assert 0 <= charged.total_spent() <= epsilon * (1 + 1e-9), case


@pytest.mark.slow
def test_the_corners_of_a_budget_of_other_releases():
    for (epsilon, delta), rows, kind in itertools.product(BUDGETS, (1, 10**6), RELATIONS):
        claim = {"epsilon": epsilon, "delta": delta, "max_rows_per_user": rows, "relation": kind}
        case = (epsilon, delta, rows, kind)
        for n in (2, 3, 1000, 2**32):
            for call in (
                functools.partial(plan_private_bounds, n, **claim),
                functools.partial(plan_private_bounds, n, within=(0, 1), **claim),
                functools.partial(DPScaler(**claim).plan, n, 1),
                functools.partial(PrivateMoments(**claim | {"max_rows_per_user": 1}).plan, n, 1),
                functools.partial(plan_score, n, scoring="r2", bounds_y=(0, 1), **claim),
                functools.partial(plan_mean, n, 1, **claim),
            ):
                message = refusal(call)
                assert message is None or re.search(NO_PLAN, message), (case, n, message)
        budget = PrivacyBudget(epsilon, delta, kind, rows_per_user=rows)
        for fraction in (1e-12, 0.3):
            for currency in ("pure", "gdp", "pld") if delta == 0 else ("gdp", "zcdp"):
                message = refusal(budget.part, fraction, currency)
                expected = "has no parts" if currency != "pure" else "too small to be divided"
                expected = expected if delta == 0 else "too small to be divided"
                assert message is None or re.search(expected, message), case
                assert message is not None or (currency == "pure") == (delta == 0), case


@pytest.mark.parametrize("oracle", sorted(ORACLES))
def test_a_parameter_of_a_mean_is_refused_by_name_or_right(oracle):
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))

    def mean_of_60(key, value):
        plan = plan_mean(60, 2, oracle=oracle, **{key: value})
        assert np.all(np.isfinite(plan.release(X, random_state=0)))

    def planned(*sizes):
        assert plan_mean(*sizes, oracle=oracle).noise.scale > 0

    for key in ("moment_order", "moment_bound", "center", "scale", "tau", "n_buckets", "precision"):
        for value in (*VALUES, [1.0, TINY], [1, 10**400], [1.0, 1e300], [1e50, 1.0]):
            message = refusal(mean_of_60, key, value)
            if message is not None:
                assert re.search(rf"\b{key}\b", message), (key, shown(value), message)
                assert len(message) < 400, (key, shown(value))
    for sizes in SIZES:
        assert refusal(planned, *sizes) is None
    for value in VALUES:
        for sizes in ((value, 2), (60, value)):
            message = refusal(planned, *sizes)
            assert message is None or re.search("n_samples|n_features", message), message


def test_a_parameter_of_a_set_is_refused_by_name_or_right():
    direction = np.array([3.0, -1.0, 0.5])
    for value in VALUES:
        for kind in (L1Ball, L2Ball, LInfBall, Simplex):
            message = refusal(kind, value)
            assert message is None or re.search("radius must be .*1e-50, 1e[+]50", message), message
            if message is None:
                ball = kind(value)
                assert ball.norm(ball.project(1e3 * value * direction)) <= value * (1 + 1e-9)
        message = refusal(LpBall, 1.0, value)
        assert message is None or re.search("p must be a finite number in .1, inf", message)
        if message is None:
            ball = LpBall(1.0, value)
            for point in (ball.project(direction), ball.extreme_point(direction)):
                assert 1 - 1e-6 <= ball.norm(point) <= 1 + 1e-9, shown(value)


SIZES = ((2, 1), (2, 10**15), (10**12, 10**8), (10**6, 10**6))


@each_form_or_default
def test_plans_of_any_size(name, form):
    asked = ({"max_iter": 10**4}, {"max_iter": 10**9}, {"n_phases": 1}, {"n_phases": 100})
    for settings in ({}, *(asked if form in (None, main_form(name)) else ())):
        model = build(name, form, **known(name, settings, form))
        for sizes in SIZES:
            # nothing is made of the size of the data, and nothing takes longer for more of them
            message = refusal(model.plan, *sizes)
            if message and "copies at most" in message:  # and of so many numbers nothing is copied
                assert model.get_params()["units"] == "learned", (settings, sizes)
                continue
            if entry(name).of_rates and sizes[1] > 1000:
                assert "at most 1000 features" in message
                continue
            small = r"n_samples|records|too small|number of samples"
            assert message is None or re.search(small, message), (settings, sizes)
            assert message is None or sizes[0] == 2, (settings, sizes, message)
    for sizes in ((10**400, 3), (100, 10**400), (10**16, 3), (100, 10**16)):
        with pytest.raises(ValueError, match=r"n_samples|n_features"):
            build(name, form).plan(*sizes)


@half_is_enough
@pytest.mark.parametrize("p", [1 + 1e-15, 1 + 1e-8, 1.0001, 1.01, 30.0, 1e4, 1e300])
def test_lp_balls_with_extreme_exponents(p, cells):
    X, y = table("DPMirrorRegressor")
    ball, forms = LpBall(2.0, p), ("noisy-md", "localized", "proximal", "noisy-sfw")
    for form, precision in cells_of(cells, forms[: 4 if p <= 2 else 3], ("exact", "float")):
        model = build("DPMirrorRegressor", form, feasible_set=ball, max_iter=3, precision=precision)
        quietly(model.fit, X, y)
        assert np.all(np.isfinite(outcome(model)))
        assert ball.norm(model.coef_) <= 2 * (1 + 1e-9)
