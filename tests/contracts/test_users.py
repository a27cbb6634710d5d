"""Users with several rows: what their noise costs, and which of their rows count."""

import dataclasses
import functools
import itertools
import math
from contextlib import ExitStack

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from registry import (
    build,
    changes,
    each_form,
    each_form_of_readers,
    each_reader,
    each_solver,
    is_classifier,
    main_form,
    nothing_is_released,
    outcome,
    statistics,
    table,
    targets_of,
)
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support import recomputed_epsilon

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLassoFW,
    DPLinearRegression,
    DPLogisticRegression,
    DPScaler,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyParameterWarning,
    PrivateVocabulary,
    dp_score,
    means,
    private_bounds,
)
from sklearn_dpsco.solvers import Selection

ROWS = 3


def users_of(n, rng):
    """A user for each row, some with more than `ROWS` rows."""
    return rng.integers(0, n // 3, n).astype(str)


@each_form
def test_the_noise_is_as_many_times_larger(name, form):
    one = build(name, form).plan(60, 3)
    many = build(name, form, max_rows_per_user=ROWS).plan(60, 3)
    guarantee, composition = many.guarantee, many.guarantee.composition
    assert guarantee.rows_per_user == ROWS
    assert f"up to {ROWS} rows" in str(guarantee)
    claim = (guarantee.epsilon, guarantee.delta)
    assert claim == (one.guarantee.epsilon, one.guarantee.delta)
    # the cost of a row, by the group privacy of each currency
    if composition in ("zcdp", "gdp", "pure"):
        row = dataclasses.replace(guarantee, rows_per_user=1).cost(composition)
        power = 1 if composition == "pure" else 2
        assert guarantee.spent == pytest.approx(ROWS**power * row)
    if composition != "adaptive-range":
        assert 0.85 < recomputed_epsilon(guarantee) <= 1 + 1e-3
    assert guarantee.to_frame()["share"].sum() >= 1 - 1e-9
    with pytest.raises(AssertionError, match="rows_per_user must be"):
        dataclasses.replace(guarantee, rows_per_user=0)
    # never amplified, and a little more noise than the claim for rows alone
    assert composition != "pld"
    alone = dataclasses.replace(many.budget, epsilon=1.0 / ROWS, rows_per_user=1)
    if alone.delta:
        assert many.budget.mu == pytest.approx(PrivacyBudget(1.0, alone.delta).mu / ROWS)
        assert many.budget.rho == pytest.approx(PrivacyBudget(1.0, alone.delta).rho / ROWS**2)
        assert guarantee.renyi(7.0) <= 7 * guarantee.cost("zcdp") * (1 + 1e-12)
    else:
        assert many.budget.allowance.amount == alone.epsilon


@each_form_of_readers
def test_only_the_first_rows_of_a_user_count(name, form):
    X, y = table(name)
    rng = np.random.default_rng(0)
    users = users_of(len(y), rng)
    counts = {}
    kept = np.array([counts.setdefault(u, []).append(0) or len(counts[u]) <= ROWS for u in users])
    assert 0 < kept.sum() < len(y)
    for nonfinite in ("raise", "zero"):
        # (an epsilon by which no centre is below its noise)
        settings = {"max_rows_per_user": ROWS, "nonfinite": nonfinite, "epsilon": 50.0}
        model = build(name, form, **settings).fit(X, y, groups=users)
        # the others have no influence at all: whatever they hold, the same bits
        other_X, other_y = X.copy(), y.copy()
        other_X[~kept] *= -0.5
        other_y[~kept] = other_y[~kept][::-1]
        other = build(name, form, **settings).fit(other_X, other_y, groups=users.tolist())
        np.testing.assert_array_equal(outcome(model), outcome(other))
        # they are empty records
        if nonfinite == "zero" and not model.plan_.problem.by_user:
            other_X[~kept] = np.nan
            empty = build(name, form, **settings).fit(other_X, other_y)
            np.testing.assert_array_equal(outcome(model), outcome(empty))
        # and everybody's first rows do count
        whole = build(name, form, **settings).fit(X, y, groups=np.arange(len(y)))
        assert np.any(outcome(whole) != outcome(model))
        assert whole.plan_ == model.plan_ or model.plan_.problem.by_user


@each_form
def test_all_rows_of_a_user_move_a_release_by_as_many_sensitivities(name, form):
    # what a fit releases on tables that differ in all rows of a user, earlier answers frozen
    X, y = table(name)
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(len(y) // 2), 2)
    model = build(name, form, max_rows_per_user=2)
    other_X, other_y = X.copy(), y.copy()
    mine = users == 3
    other_X[mine] = rng.choice([-1.0, 1.0], (2, X.shape[1]))
    y = y.copy()
    ends = ("no", "yes") if is_classifier(name) else targets_of(name, [-1, 1])
    y[mine], other_y[mine] = ends
    first = statistics(model, X, y)
    second = statistics(model, other_X, other_y)
    moved = changes(first, second).values()
    assert 0 < max(moved) <= 2 + 1e-9


def with_errors(n_classes=0, **settings):
    facts = {"bounds_X": (-1, 1), "inference": True, "max_rows_per_user": ROWS, "random_state": 0}
    facts |= {"epsilon": 30.0, **settings}
    if n_classes:
        return DPLogisticRegression(classes=list(range(n_classes)), **facts)
    return DPLinearRegression(bounds_y=(-1, 1), **facts)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_standard_errors_are_of_users_and_of_their_first_rows(n_classes):
    rng = np.random.default_rng(0)
    X, users = rng.uniform(-1, 1, (1200, 2)), users_of(1200, rng)
    y = rng.integers(0, n_classes, 1200) if n_classes else X[:, 0] * 0.5 + rng.uniform(-1, 1, 1200)
    seen = pd.Series(users).groupby(users).cumcount().to_numpy()
    model = with_errors(n_classes).fit(X, y, groups=users)
    assert f"1200 rows of {len(set(users))} users, at most 3 each, eps" in str(model.summary())
    # further rows have no influence at all, whatever they hold
    other_X, other_y = X.copy(), y.copy()
    other_X[seen >= ROWS] *= -0.5
    other_y[seen >= ROWS] = other_y[seen >= ROWS][::-1]
    other = with_errors(n_classes).fit(other_X, other_y, groups=users.tolist())
    np.testing.assert_array_equal(outcome(model), outcome(other))
    np.testing.assert_array_equal(model.coef_cov_, other.coef_cov_)
    # and whose rows they are does
    apart = with_errors(n_classes).fit(X, y, groups=np.arange(1200))
    assert np.all(apart.coef_cov_ != model.coef_cov_)
    # users are told apart whatever their rows' order and storage
    float_users = users.astype(float)
    again = with_errors(n_classes).fit(X, y, groups=float_users)
    np.testing.assert_array_equal(again.coef_cov_, model.coef_cov_)


def test_standard_errors_of_users_need_to_know_them():
    X, y = np.random.default_rng(0).uniform(-1, 1, (2, 1200))
    X, users, accountant = X[:, None], np.arange(1200) // ROWS, BudgetAccountant(30.0)
    with nothing_is_released():
        with pytest.raises(ValueError, match="needs groups, the user of each row"):
            with_errors(accountant=accountant).fit(X, y)
        there = da.from_array(X, chunks=(400, 1))
        with pytest.raises(ValueError, match="needs a table in memory"):
            with_errors(accountant=accountant).fit(there, y, groups=users)
        with pytest.raises(ValueError, match="labels that are missing"):
            with_errors(accountant=accountant).fit(X, y, groups=np.where(users == 1, np.nan, users))
    assert accountant.ledger == ()
    # rows of nobody are empty
    some = np.where(users == 1, np.nan, users)
    model = with_errors(nonfinite="zero").fit(X, y, groups=some)
    assert "1200 rows of 399 users, at most 3 each, about 1" in str(model.summary())


def test_rows_that_count_for_nothing_are_told():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (600, 2)), rng.uniform(0, 1, 600)
    users = np.append(np.arange(500), np.full(100, 7)).astype(object)  # 101 rows of one
    facts = {"bounds_X": (0, 1), "bounds_y": (0, 1)}
    lasso = functools.partial(DPLassoFW, solver=Selection(max_iter=3), **facts)
    model = lasso().fit(X, y)
    texts = ["a word"] * 600
    told = {
        "a fit": lambda most: lasso(max_rows_per_user=most).fit(X, y, groups=users),
        "of blocks": lambda most: lasso(max_rows_per_user=most).fit(
            da.from_array(X, chunks=(200, 2)), da.from_array(y, chunks=200), groups=users
        ),
        "a stream at once": lambda most: DPFTRLRegressor(max_rows_per_user=most, **facts).fit(
            X, y, groups=users
        ),
        "a search": lambda most: DPGridSearchCV(
            lasso(),
            {"fit_intercept": [True, False]},
            epsilon=90.0,
            max_rows_per_user=most,
        ).fit(X, y, groups=users),
        "a scaler": lambda most: DPScaler(bounds_X=(0, 1), max_rows_per_user=most).fit(
            X, groups=users
        ),
        "words": lambda most: PrivateVocabulary(epsilon=9.0, max_rows_per_user=most).fit(
            texts, groups=users
        ),
        "a score": lambda most: dp_score(
            model, X, y, scoring="mean_bias", groups=users, max_rows_per_user=most
        ),
    }
    for most, beyond in ((1, 100), (3, 98)):
        words = f"{beyond} of 600 rows count for nothing: .*={most} of .* up to 101. Set max_rows"
        for name, call in told.items():
            with pytest.warns(PrivacyParameterWarning, match=words) as found:
                call(most)
            assert len(found) == 1, name
    # silent: nothing is beyond, rows of nobody, and streams, whose users come again
    told["a fit"](101)
    nobody = np.where(np.arange(600) < 500, users, None)
    lasso(nonfinite="zero").fit(X, y, groups=nobody)
    DPFTRLRegressor(**facts).partial_fit(X, y, groups=users)


@pytest.mark.parametrize("name", ["DPFTRLRegressor", "DPFTRLClassifier"])
def test_a_stream_remembers_the_rows_of_its_users(name):
    X, y = table(name)
    users = users_of(len(y), np.random.default_rng(2))
    settings = {"horizon": len(y), "max_rows_per_user": ROWS}
    whole = build(name, **settings).partial_fit(X, y, groups=users)
    chunked = build(name, **settings)
    for part in np.array_split(np.arange(len(y)), 7):
        chunked.partial_fit(X[part], y[part], groups=users[part])
    np.testing.assert_array_equal(outcome(whole), outcome(chunked))
    model = build(name, **settings).partial_fit(X[:5], y[:5], groups=users[:5])
    with pytest.raises(ValueError, match="with every chunk"):
        model.partial_fit(X[5:9], y[5:9])
    # the rows of the first call, whatever is set later
    model.set_params(max_rows_per_user=1000)
    model.partial_fit(X[5:6], y[5:6], groups=users[:1])
    assert max(model._stream.rows_of_users.values()) <= ROWS
    before = dict(model._stream.rows_of_users)
    with pytest.raises(ValueError, match="inconsistent"):
        model.partial_fit(X[5:9], y[5:9], groups=users[5:8])
    assert model._stream.rows_of_users == before
    assert model.n_seen_ == 6


@pytest.mark.parametrize("kind", [str, "S", float, object])
def test_a_user_is_the_same_under_labels_of_another_type(kind):
    X, y = table("DPFTRLRegressor")
    ids = np.arange(len(y)) % 9
    model = build("DPFTRLRegressor", horizon=4 * len(y), max_rows_per_user=ROWS)
    others = np.array([f"{i}.0" for i in ids]) if kind is object else ids.astype(kind)
    for users in (ids, others, ids):
        model.partial_fit(X, y, groups=users)
    assert model._stream.rows_of_users == dict.fromkeys(range(9), ROWS)


def test_a_missing_user_changes_no_other_one():
    X, y = table("DPFTRLRegressor")
    ids = [2**53 + 1 + 2 * (k // 2) for k in range(len(y))]  # no float holds any of them
    unknown = [*ids[:-1], None]
    kinds = [functools.partial(pd.Series, dtype=kind) for kind in ("Int64", object)]
    for pack in (list, pl.Series, *kinds):
        model = build("DPFTRLRegressor", horizon=3 * len(y), nonfinite="zero")
        for chunk in (ids, unknown):
            model.partial_fit(X, y, groups=pack(chunk))
        assert len(model._stream.rows_of_users) == len(set(ids))


@each_reader
def test_users_that_floats_do_not_tell_apart_are_refused(name):
    X, y = table(name)
    ids, accountant = [2**53 + k for k in range(len(y))], BudgetAccountant(1.0)
    model = build(name, main_form(name), accountant=accountant, nonfinite="zero")
    whole = pd.Series([*ids[:-1], None])  # floats, for the missing one
    odd = pd.Series([*ids[:-1], 1j])
    for groups in (whole, whole.astype(object), odd, da.from_array(whole.to_numpy(), 30)):
        where = X if isinstance(groups, pd.Series) else da.from_array(X, (30, 3))
        with pytest.raises(ValueError, match="groups holds floats of 2\\^53 or more"):
            model.fit(where, y, groups=groups)
    assert accountant.ledger == ()
    whole[:] = range(len(y))
    model.fit(X, y, groups=whole.where(whole > 0))  # smaller ones are told apart


@each_solver
def test_groups_that_name_nobody(name):
    X, y = table(name)
    accountant = BudgetAccountant(1.0)
    for groups in ([(1, 2)] * len(y), np.full(len(y), "2020", dtype="datetime64[us]"), "one"):
        pattern = r"table\['groups'\]" if isinstance(groups, str) else "hold numbers or text"
        with pytest.raises(ValueError, match=f"groups must have the shape .*{pattern}"):
            build(name, main_form(name), accountant=accountant).fit(X, y, groups=groups)
    assert accountant.ledger == ()


@each_reader
def test_rows_without_a_user(name):
    X, y = table(name)
    users = np.arange(len(y)).astype(object)

    class Hostile:
        def __hash__(self):
            raise RuntimeError("no")

    for label in (None, np.nan, [1, 2], Hostile()):
        users[7] = label
        accountant = BudgetAccountant(1.0)
        with pytest.raises(ValueError, match="groups contains labels that are missing"):
            build(name, main_form(name), accountant=accountant).fit(X, y, groups=users)
        assert accountant.ledger == ()
        model = build(name, main_form(name), nonfinite="zero").fit(X, y, groups=users)
        other_X = X.copy()
        other_X[7] = np.nan
        empty = build(name, main_form(name), nonfinite="zero").fit(other_X, y)
        np.testing.assert_array_equal(outcome(model), outcome(empty))
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples.*, of X and groups"):
        build(name, main_form(name)).fit(X, y, groups=users[1:])


def test_groups_reach_a_model_in_pipelines_and_searches():
    X, y = table("DPMirrorRegressor")
    users = users_of(len(y), np.random.default_rng(3))
    model = build("DPMirrorRegressor", "noisy-md", max_rows_per_user=ROWS)
    pipeline = make_pipeline(FunctionTransformer(), model)
    pipeline.fit(X, y, dpmirrorregressor__groups=users)
    alone = build("DPMirrorRegressor", "noisy-md", max_rows_per_user=ROWS).fit(X, y, groups=users)
    np.testing.assert_array_equal(outcome(pipeline[-1]), outcome(alone))
    with config_context(enable_metadata_routing=True):
        routed = build("DPMirrorRegressor", "noisy-md").set_fit_request(groups=True)
        scores = cross_val_score(routed, X, y, cv=3, params={"groups": users})
    assert np.all(np.isfinite(scores))


def test_a_block_that_closes_while_the_data_are_read_leaves_no_claim_for_fewer_rows():
    X, y = table("DPMirrorRegressor")

    class Closing:
        """A table that closes the block as it is read, like another thread might."""

        shape, __len__ = X.shape, X.__len__

        def __array__(self, *_, **__):
            block.close()
            return np.array(X)

    model, users = build("DPFTRLRegressor"), np.arange(60) // ROWS
    with ExitStack() as block:
        block.enter_context(BudgetAccountant(1.0, max_rows_per_user=ROWS))
        with pytest.raises(PrivacyBudgetError, match="became smaller: fit again"):
            model.fit(Closing(), y, groups=users)
    with ExitStack() as block:  # a stream counts rows after they were read
        block.enter_context(BudgetAccountant(1.0, max_rows_per_user=ROWS))
        model.partial_fit(Closing(), y, groups=users)
    other = build("DPFTRLRegressor").partial_fit(X, y, groups=users)
    assert model.guarantee_.rows_per_user == 1
    np.testing.assert_array_equal(outcome(model), outcome(other))


def test_an_accountant_for_users():
    for rows, mine in itertools.product((1, 3), (1, 2, 3, 5)):
        accountant = BudgetAccountant(1.0, 1e-6, max_rows_per_user=rows)
        facts = {"max_rows_per_user": mine, "accountant": accountant}
        model = build("DPMirrorRegressor", "noisy-md", **facts)
        X, y = table("DPMirrorRegressor")
        if mine < rows:
            with pytest.raises(PrivacyBudgetError, match="set max_rows_per_user, or give groups"):
                model.fit(X, y)
            assert accountant.ledger == ()
            # no more than so many rows of anybody count: the cost is that of so many
            model.fit(X, y, groups=np.zeros(len(y)))
            (charge,) = accountant.ledger
            assert (charge.rows_per_user, charge.has_groups) == (mine, True)
            assert charge.rho == model.guarantee_.cost("zcdp") > 0.9 * accountant.budget.rho
            with pytest.raises(PrivacyBudgetError, match="exceeded"):
                model.fit(X, y, groups=np.zeros(len(y)))
        else:
            model.fit(X, y)
            # the claim is that of the users, whatever their number of rows
            assert accountant.total_spent() == pytest.approx(1.0, rel=1e-6)
            assert accountant.ledger[0].rows_per_user == mine
    assert "max_rows_per_user=3" in repr(BudgetAccountant(1.0, max_rows_per_user=3))


def test_rows_of_a_user_are_those_of_the_accountant_or_of_what_is_searched_or_scored():
    X, y = table("DPMirrorRegressor", n=1500)
    users = np.arange(len(y)) // 3

    def rows_of(call):
        accountant = BudgetAccountant(9.0, max_rows_per_user=3)
        call(accountant, {})
        call(accountant, {"groups": users})  # of whom all rows count: nothing warns
        assert {charge.rows_per_user for charge in accountant.ledger} == {3}

    def search(model, account=None):
        return DPGridSearchCV(model, {"feasible_set": [model.feasible_set]}, accountant=account)

    model = build("DPMirrorRegressor", "noisy-md", random_state=None, epsilon=1.0)
    rows_of(lambda account, known: clone(model).set_params(accountant=account).fit(X, y, **known))
    rows_of(lambda account, known: search(model, account).fit(X, y, **known))
    rows_of(lambda account, known: DPScaler(accountant=account).fit(X, **known))
    rows_of(lambda account, _: private_bounds(X, epsilon=3.0, accountant=account))
    model.set_params(max_rows_per_user=3)
    assert search(model).plan(len(y), 3).guarantee.rows_per_user == 3
    found = search(model).fit(X, y, groups=users)
    assert found.guarantee_.rows_per_user == found.best_estimator_.max_rows_per_user == 3
    score = dp_score(found, X + 0.0, y, groups=users)
    assert score.guarantee.rows_per_user == 3
    of_one = build("DPMirrorRegressor", "noisy-md").fit(X, y)
    rows_of(lambda account, known: dp_score(of_one, X + 0.0, y, accountant=account, **known))


def test_whatever_else_protects_users_is_charged_where_they_are_disjoint():
    X, y = table("DPMirrorRegressor", n=2000)
    model, users = build("DPMirrorRegressor", "noisy-md"), np.arange(len(y)) // 2
    score = {"estimator": model.fit(X, y), "X": X + 0.0, "y": y}
    search = DPGridSearchCV(clone(model), {"feasible_set": [model.feasible_set]}, random_state=0)
    accountant = BudgetAccountant(10.0)
    rows, one = (accountant.parallel(disjoint).branch() for disjoint in ("rows", "users"))
    for call in (
        lambda account: search.set_params(accountant=account).fit(X, y, groups=users),
        lambda account: DPScaler(accountant=account).fit(X, groups=users),
        lambda account: DPScaler(accountant=account, max_rows_per_user=2).fit(X),
        lambda account: private_bounds(X, accountant=account, max_rows_per_user=2),
        lambda account: dp_score(**score, accountant=account, max_rows_per_user=2),
        lambda account: means.clipped_mean(X, accountant=account, max_rows_per_user=2),
    ):
        charged = accountant.ledger
        with nothing_is_released(), pytest.raises(PrivacyBudgetError, match="protects users"):
            call(rows)
        assert accountant.ledger == charged
        call(one)
        assert [charge.branch for charge in accountant.ledger[len(charged) :]] == [one.path]
    assert search.best_estimator_.accountant is one


def test_an_accountant_for_users_in_a_file(tmp_path):
    accountant = BudgetAccountant(1.0, 1e-6, max_rows_per_user=4)
    plan = build("DPLassoFW", max_rows_per_user=4, epsilon=0.5).plan(100, 3)
    accountant.save(tmp_path / "ledger")
    accountant.spend(plan)
    identifier = accountant._id
    del accountant
    loaded = BudgetAccountant.load(tmp_path / "ledger")
    assert (loaded._id, loaded.max_rows_per_user) == (identifier, 4)
    assert loaded.ledger[0].rows_per_user == 4


def test_means_of_users():
    X = np.random.default_rng(0).standard_normal((500, 2))
    for delta in (0.0, 1e-6):
        one = means.plan_mean(500, 2, delta=delta)
        many = means.plan_mean(500, 2, delta=delta, max_rows_per_user=ROWS)
        # the clip grows with the noise, so the ratio is not exactly the number of rows
        ratio = (many.noise.scale / many.noise.sensitivity) / (
            one.noise.scale / one.noise.sensitivity
        )
        assert ratio == pytest.approx(ROWS, rel=1e-3)
        assert recomputed_epsilon(many.guarantee) == pytest.approx(1.0, rel=1e-3)
    assert means.clipped_mean(X, max_rows_per_user=2, random_state=0).shape == (2,)


def test_defaults_have_a_delta_below_one_over_the_number_of_records(recwarn):
    for n in (2, 100, 10**5, 10**6, 10**9, 10**12, 10**15):
        plan = build("DPMirrorRegressor").plan(n, 3)
        assert plan.guarantee.delta == min(1e-6, 0.1 / n) < 1 / n
        assert means.plan_mean(n, 2).guarantee.delta == plan.guarantee.delta
    accountant = BudgetAccountant(1.0, 1e-9)
    model = build("DPMirrorRegressor", accountant=accountant)
    assert model.plan(10**4, 3).guarantee.delta == 1e-9
    # so that a fit may spend all that there is
    accountant.spend(model.plan(10**4, 3))
    (charge,) = accountant.ledger  # (selections are calibrated to 1e-4)
    assert charge.half_mu_squared > (1 - 2e-4) * PrivacyBudget(1.0, 1e-9).mu ** 2 / 2
    accountant = BudgetAccountant(1.0, 1e-9, composition="zcdp")
    accountant.spend(build("DPMirrorRegressor", accountant=accountant).plan(10**4, 3))
    assert accountant.remaining() < 1e-3
    assert build("DPLassoFW", accountant=BudgetAccountant(1.0, 0)).plan(50, 2).budget.is_pure
    for horizon, delta in ((10**7, 1e-8), (100, 1e-6), (None, 1e-6)):
        stream = build("DPFTRLRegressor", horizon=horizon)
        stream.partial_fit(np.zeros((3, 2)), np.zeros(3))
        assert math.isclose(stream.guarantee_.delta, delta)
    # some of these tables are too small to learn from, and that is all
    assert all("is too small to learn" in str(w.message) for w in recwarn.list)
