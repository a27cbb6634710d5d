"""Every fit is charged once, in full and first; what is charged is what it releases."""

import warnings
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from weakref import WeakValueDictionary

import numpy as np
import pytest
from registry import (
    STORAGES,
    build,
    composition_for,
    descending_forms,
    each_classifier,
    each_form,
    each_form_of_readers,
    each_form_or_default,
    each_reader,
    each_solver,
    every_release,
    is_classifier,
    known,
    main_form,
    nothing_is_released,
    outcome,
    statistics,
    table,
    ways_to_store,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold

from sklearn_dpsco import (
    BudgetAccountant,
    DPGridSearchCV,
    DPLassoFWClassifier,
    DPMirrorClassifier,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivateMoments,
    PrivateVocabulary,
    dp_score,
)
from sklearn_dpsco.geometry import L1Ball
from sklearn_dpsco.privacy import accountant as accountant_module
from sklearn_dpsco.privacy.accountant import accountant_in_force
from sklearn_dpsco.solvers import Gradient, Selection

RESULTS = ("coef_", "intercept_", "plan_", "guarantee_", "n_iter_", "noise_is_secret_", "n_seen_")


class Watched(BudgetAccountant):
    """Calls `then` right after each charge, and notes it down among the events."""

    def __init__(self, *budget, then=lambda: None, **keywords):
        super().__init__(*budget, **keywords)
        self.then, self.events = then, []

    def spend(self, *arguments, **keywords):
        super().spend(*arguments, **keywords)
        self.events.append("charge")
        self.then()


def state(model):
    return {key: id(value) for key, value in vars(model).items()}


def released(call):
    """The mechanisms of all releases of a call."""
    made = []

    def answer(mechanism, _value, release):
        made.append(mechanism)
        return release()

    with every_release(answer):
        call()
    return made


# ----------------------------------------------------------------------------- the charge


@each_reader
def test_a_charge_with_a_seed_is_told(name):
    X, y = table(name)
    accountant = BudgetAccountant(3.0)
    with pytest.warns(PrivacyLeakWarning, match="random_state was given to what is charged"):
        build(name, accountant=accountant, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        build(name, accountant=accountant, random_state=None).fit(X, y)
        with pytest.raises(PrivacyLeakWarning):  # and nothing is spent
            build(name, accountant=accountant, random_state=0).fit(X, y)
    assert accountant.to_frame()["noise_is_secret"].tolist() == [False, True]


@each_solver
def test_the_relation_is_that_of_the_accountant(name):
    X, y = table(name)
    with BudgetAccountant(3.0, relation="zero-out"):
        model = build(name, random_state=None).fit(X, y)
    assert model.guarantee_.relation == "zero-out"
    assert build(name).fit(X, y).guarantee_.relation == "replace-one"


@each_form_or_default
def test_a_fit_is_charged_once_in_full_before_anything_is_released(name, form):
    X, y = table(name)
    accountant = Watched(2.0, **composition_for(name, form))
    model = build(name, form, accountant=accountant)

    def answer(mechanism, value, release, events=accountant.events):
        events.append("release")
        return release()

    with every_release(answer):
        model.fit(X, y)
    events = accountant.events
    assert (events[0], events.count("charge")) == ("charge", 1)
    assert "release" in events
    (charge,) = accountant.ledger
    assert charge.guarantee == model.guarantee_
    assert (charge.estimator, charge.n_samples, charge.n_features) == (name, 60, 3)
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (
        1.0,
        build(name, form).plan(60, 3).budget.delta,
    )
    if model.delta:  # a pure plan costs less where others are not pure
        if accountant.currency == "gdp":  # (in zCDP selections may cost less, which is told)
            size = PrivacyBudget(1.0, model.guarantee_.delta).mu ** 2 / 2
            assert 0.99 * size <= charge.half_mu_squared <= size * (1 + 1e-9)
            assert accountant.total_spent() <= 1 + 1e-9
        else:
            assert 0.99 <= accountant.total_spent() <= 1 + 1e-2
    # the plan is made for the accountant, and it is the one that `plan` shows
    assert model.plan_ == build(name, form, accountant=accountant).plan(60, 3)
    assert model.guarantee_.composition in (accountant.currency, "pure")
    # the accountant of an open block is as good
    block = BudgetAccountant(2.0, **composition_for(name, form))
    with block:
        in_block = build(name, form).fit(X, y)
    assert [charge.guarantee for charge in block.ledger] == [in_block.guarantee_]
    assert in_block.guarantee_ == charge.guarantee
    # (a watched release is not made in a compiled loop, whose sums round otherwise)
    np.testing.assert_allclose(outcome(in_block), outcome(model), rtol=1e-12)
    in_block.fit(X, y)
    build(name, form, accountant=accountant).plan(60, 3)
    assert len(block.ledger) == len(accountant.ledger) == 1
    assert clone(model).accountant is accountant


@each_form
def test_values_are_used_after_the_charge_only(name, form):
    X, y = table(name, n=200)
    adds_up = composition_for(name, form)
    for kind, settings in ways_to_store(name, form):
        storage = STORAGES[kind]
        given = storage(X.copy())
        values = given if isinstance(given, np.ndarray) else given.data

        def overwrite(values=values):
            values *= -1  # of the caller's array, in the moment of the charge

        model = build(name, form, accountant=Watched(2.0, then=overwrite, **adds_up), **settings)
        model.fit(given, y)
        after, before = (
            build(name, form, accountant=BudgetAccountant(2.0, **adds_up), **settings).fit(
                storage(Z), y
            )
            for Z in (-X, X)
        )
        case = f"{form} {kind}"
        np.testing.assert_array_equal(outcome(model), outcome(after), err_msg=case)
        if form in descending_forms(name):
            assert np.any(outcome(model) != outcome(before)), case


@each_form
def test_a_record_enters_no_more_releases_than_the_guarantee_counts(name, form):
    for classes in (["no", "yes"], ["a", "b", "c"]) if is_classifier(name) else (["no", "yes"],):
        X, y = table(name, classes=classes)
        model = build(name, form, nonfinite="zero", **known(name, {"classes": classes}))
        whole = statistics(model, X, y)
        counted = counts_of(model.guarantee_)
        made = Counter(mechanism for mechanism, _ in whole)
        assert set(made) == set(counted), classes
        for mechanism, counts in counted.items():
            # on all records, and as often as it is counted
            if set(counts) == {None} and not mechanism.is_joint:
                assert made[mechanism] == counts[None], (classes, mechanism)
        n_touched = Counter()
        for i in range(0, 60, 7):
            other = X.copy()
            other[i] = np.nan
            pairs = zip(whole, statistics(model, other, y), strict=True)
            touched = Counter(m for (m, one), (_, two) in pairs if np.any(one != two))
            for mechanism, count in touched.items():
                counts = Counter(counted[mechanism])
                limit = counts.pop(None, 0) + max(counts.values(), default=0)
                # of a whole run, there is one sensitivity
                assert count <= limit or mechanism.is_joint, (classes, i, mechanism)
            # a record of one group is in no other group, in each of the models
            sure = [set(counted[m]) for m in touched if len(counted[m]) == 1]
            if len(classes) == 2:
                assert len(set().union(*sure) - {None}) <= 1, (classes, i)
            n_touched.update(touched)
        assert n_touched, classes


def counts_of(guarantee):
    """By mechanism and group, how often the guarantee counts a record."""
    counted = {}
    for release in guarantee.releases:
        counts = counted.setdefault(release.mechanism, Counter())
        counts[release.group] += release.count
    return counted


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_every_noise_of_a_search_is_one_of_its_plan(delta):
    """What is drawn in a run is what the guarantee counts, no more and no other."""
    X = np.random.default_rng(0).uniform(-1, 1, (1000, 3))
    y = np.where(X[:, 0] > 0, "b", "a")
    solver = Gradient(max_iter=3) if delta else Selection(max_iter=3)
    model = DPLassoFWClassifier(bounds_X=(-1, 1), classes=["a", "b"], solver=solver)
    grid = {"feasible_set": [L1Ball(1.0), L1Ball(30.0)]}
    search = DPGridSearchCV(model, grid, delta=delta, epsilon=8.0)
    seen = released(lambda: search.fit(X, y))
    plan = search.plan_
    parts = [g for _, options in plan.guarantee.parts[:-1] for g in options]
    parts.append(plan.guarantee.parts[-1][1][search.best_index_])
    planned = [(r.mechanism, r.count) for g in parts for r in g.releases]
    assert len(seen) == sum(count for _, count in planned)
    assert set(map(repr, seen)) == {repr(mechanism) for mechanism, _ in planned}


class Late:
    """A table that opens an accountant's block as it is read, like another thread might."""

    def __init__(self, X, accountant, stack):
        self.X, self.accountant, self.stack = X, accountant, stack
        self.shape = X.shape

    def __array__(self, *args, **kwargs):
        if accountant_in_force(None) is not self.accountant:
            self.stack.enter_context(self.accountant)
        return np.array(self.X)

    def __len__(self):
        return len(self.X)

    def __iter__(self):
        return iter(np.asarray(self))


@each_solver
def test_a_block_that_opens_while_the_data_are_checked_is_charged(name):
    X, y = table(name)
    accountant = BudgetAccountant(2.0)
    with ExitStack() as stack:
        model = build(name).fit(Late(X, accountant, stack), y)
    assert [charge.guarantee for charge in accountant.ledger] == [model.guarantee_]


def moments_of(X, y):
    return PrivateMoments(bounds_X=(-1, 1)).fit(X).guarantee_


def words_of(X, y):
    return PrivateVocabulary().fit(X).guarantee_


def search_on(X, y):
    model = DPMirrorClassifier(bounds_X=(-1, 1), classes=[0, 1])
    return DPGridSearchCV(model, {"loss": ["smoothed_hinge"]}).fit(X, y).guarantee_


def score_on(X, y):
    model = LogisticRegression().fit(np.eye(3), [0, 1, 1])
    return dp_score(model, X, y).guarantee


@pytest.mark.filterwarnings("ignore:n_samples")
@pytest.mark.parametrize("call", [moments_of, words_of, search_on, score_on])
def test_a_block_that_opens_while_a_tool_reads_the_data_is_charged(call):
    X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
    y = (X[:, 0] > 0).astype(int)
    given = np.array(["some words"] * 300, dtype=object) if call is words_of else X
    accountant = BudgetAccountant(2.0, slack=4e-7)
    with ExitStack() as stack:
        guarantee = call(Late(given, accountant, stack), y)
    (charge,) = accountant.ledger
    assert replace(charge.guarantee, noise_is_secret=True) == replace(
        guarantee, noise_is_secret=True
    )


@each_classifier
def test_all_classes_are_charged(name):
    classes, form, accountant = list("abcdef"), main_form(name), BudgetAccountant(1.0)
    X, y = table(name, n=120, d=6, classes=classes)
    model = build(name, form, classes=classes, accountant=accountant).fit(X, y)
    assert model.coef_.shape == (6, 6)
    assert accountant.total_spent() == pytest.approx(1.0, rel=1e-2)
    assert model.plan_ == build(name, form, classes=classes, accountant=accountant).plan(120, 6)
    with pytest.raises(PrivacyBudgetError):
        clone(model).fit(X, y)


@each_reader
def test_a_search_leaves_all_its_fits_on_the_ledger(name):
    X, y = table(name)
    accountant = BudgetAccountant(10.0)
    model = build(name, main_form(name), accountant=accountant, epsilon=0.1)
    search = GridSearchCV(model, {"max_weight": [1.0, 2.0]}, cv=KFold(2), error_score="raise").fit(
        X, y
    )
    assert len(accountant.ledger) == 2 * 2 + 1
    assert search.best_estimator_.accountant is accountant
    assert 0.1 < accountant.total_spent() < 5 * 0.1
    # one that does not fit in raises in the middle
    tight = BudgetAccountant(0.15)
    with pytest.raises(PrivacyBudgetError):
        search.set_params(estimator=clone(model).set_params(accountant=tight)).fit(X, y)
    assert 1 <= len(tight.ledger) < 5
    assert tight.total_spent() <= 0.15


@each_form_of_readers
def test_a_model_stored_by_skops_charges_its_accountant(name, form, monkeypatch):
    skops = pytest.importorskip("skops.io")
    X, y = table(name)
    accountant = BudgetAccountant(10.0, **composition_for(name, form))
    model = build(name, form, accountant=accountant.parallel().branch()).fit(X, y)
    stored = skops.dumps(model)
    untrusted = skops.get_untrusted_types(data=stored)
    loaded = skops.loads(stored, trusted=untrusted)
    np.testing.assert_array_equal(outcome(loaded), outcome(model))
    assert loaded.accountant == model.accountant
    before, twin = len(accountant.ledger), loaded.accountant.accountant
    with accountant, twin:
        loaded.fit(X, y)
    assert accountant.ledger[-1].branch == model.accountant.path
    assert len(accountant.ledger) == len(twin.ledger) == before + 1
    assert twin.total_spent() == accountant.total_spent()
    with pytest.raises(PrivacyBudgetError):
        loaded.set_params(epsilon=20.0).fit(X, y)
    # as in another process, where nothing is known of this one's accountants
    monkeypatch.setattr(accountant_module, "_accountants", WeakValueDictionary())
    loaded = skops.loads(stored, trusted=untrusted)
    loaded.predict(X)
    with pytest.raises(PrivacyBudgetError, match="another process"):
        loaded.fit(X, y)


@each_solver
def test_a_fit_in_a_branch_is_charged_there_and_of_users_where_they_are_disjoint(name):
    X, y = table(name)
    accountant, users = BudgetAccountant(10.0), np.arange(len(y))
    rows, one = (accountant.parallel(disjoint).branch() for disjoint in ("rows", "users"))
    for settings, groups in (({}, users), ({"max_rows_per_user": 2}, None)):
        model = build(name, main_form(name), accountant=rows, **settings)
        calls = [model.fit, model.partial_fit] if hasattr(model, "partial_fit") else [model.fit]
        for call in calls:
            with nothing_is_released(), pytest.raises(PrivacyBudgetError, match="protects users"):
                call(X, y, groups=groups)
        assert accountant.remaining() == one.remaining(), settings
        model.set_params(accountant=one).fit(X, y, groups=groups)
        build(name, main_form(name), accountant=accountant, **settings).fit(X, y, groups=groups)
    model = build(name, main_form(name), accountant=rows).fit(X, y)
    assert model.plan_ == build(name, main_form(name), accountant=accountant).plan(*X.shape)
    places = [one.path, ()] * 2 + [rows.path]
    assert [charge.branch for charge in accountant.ledger] == places
    assert {charge.estimator for charge in accountant.ledger} == {name}


# -------------------------------------------------------------------- what is not charged


@each_form
def test_a_refused_fit_computes_nothing_and_leaves_the_earlier_model(name, form):
    X, y = table(name)
    accountant = BudgetAccountant(1.0, **composition_for(name, form))
    model = build(name, form, accountant=accountant, epsilon=0.9).fit(X, y)
    before, ledger, spent = state(model), accountant.ledger, accountant.total_spent()
    predictions = model.predict(X)
    never = build(name, form, accountant=accountant, epsilon=0.9)
    with nothing_is_released():
        with pytest.raises(PrivacyBudgetError, match=r"epsilon=1, delta=1e-06"):
            model.fit(X[:, :2], y)
        with pytest.raises(PrivacyBudgetError):
            never.fit(X, y)
        with pytest.raises(PrivacyBudgetError, match="relation"):
            clone(never).set_params(relation="zero-out", epsilon=0.01).fit(X, y)
    assert (accountant.ledger, accountant.total_spent()) == (ledger, spent)
    assert state(model) == before
    np.testing.assert_array_equal(model.predict(X), predictions)
    assert not [key for key in vars(never) if key.endswith("_")]


@each_solver
def test_invalid_data_cost_nothing_and_leave_the_earlier_model(name):
    X, y = table(name)
    accountant = BudgetAccountant(10.0)
    model = build(name, accountant=accountant).fit(X, y)
    before = state(model)
    for X_bad, y_bad, pattern in (
        (X * np.nan, y, "NaN"),
        (X[:, :2], y[:-1], "inconsistent"),
        (X[0], y, "2D array"),
        (X, None, "y to be passed"),
        (X[:1], y[:1], "minimum of 2"),
    ):
        with nothing_is_released(), pytest.raises(ValueError, match=pattern):
            model.fit(X_bad, y_bad)
        assert state(model) == before
    assert len(accountant.ledger) == 1


# ------------------------------------------------------------------- fits that do not end


@each_form
def test_a_fit_that_fails_after_the_charge_stays_charged_and_leaves_no_model(name, form):
    X, y = table(name)
    accountant = BudgetAccountant(40.0, **composition_for(name, form))
    model = build(name, form, accountant=accountant)
    n_releases = len(released(lambda: model.fit(X, y)))
    expected = outcome(model)
    # in the first release, and in the last one, of a model that was fitted before
    for error, at in ((KeyboardInterrupt, 1), (MemoryError, n_releases)):
        calls, charged = [], len(accountant.ledger)

        def interrupt(mechanism, value, release, error=error, at=at, calls=calls):
            calls.append(1)
            if len(calls) == at:
                raise error
            return release()

        with every_release(interrupt), pytest.raises(error):
            model.fit(X, y)
        assert len(calls) == at
        assert len(accountant.ledger) == charged + 1
        with pytest.raises(NotFittedError):
            model.predict(X)
        assert not [key for key in RESULTS if hasattr(model, key)]
        # and the next fit is as good as new
        found = outcome(model.fit(X, y))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
