"""The ledger in a file: what a crash, a race, an edit or another process may do to it."""

import dataclasses
import dis
import errno
import gc
import itertools
import json
import math
import os
import pickle
import signal
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock
from weakref import WeakValueDictionary

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from support import assert_refuses, gaussian, pure, regressor, rest_is_slow, scaled_table

from sklearn_dpsco import (
    BudgetAccountant,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyParameterWarning,
)
from sklearn_dpsco.geometry import L1Ball
from sklearn_dpsco.privacy import accountant as accountant_module
from sklearn_dpsco.privacy import ledger
from sklearn_dpsco.privacy.accountant import accountant_in_force
from sklearn_dpsco.privacy.ledger import Ledger, Snapshot
from sklearn_dpsco.randomness.stream import current_process
from sklearn_dpsco.solvers.frank_wolfe import FrankWolfePlan

DELTA = 1e-6
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork among threads


def kept(path, epsilon=1.0, delta=DELTA):
    accountant = BudgetAccountant(epsilon, delta)
    accountant.save(path)
    return accountant


def reloaded(accountant):
    """What another process would load; the accountant must not be in use elsewhere."""
    path = accountant._file
    for attribute in list(vars(accountant)):
        delattr(accountant, attribute)
    accountant._why_not, accountant._file = "given up", None
    return BudgetAccountant.load(path)


def forked(work):
    """Run in a child; its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = work() or 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


# -------------------------------------------------------------------------- what it holds


def test_a_loaded_ledger_goes_on_where_the_saved_one_was(tmp_path):
    accountant, twin = (BudgetAccountant(1, DELTA) for _ in range(2))
    for one in (accountant, twin):
        one.spend(gaussian(0.1 + 0.2, 1e-7), "before")
    accountant.save(tmp_path / "budget.json")
    for one in (accountant, twin):
        one.spend(pure(np.float64(0.1)))
        group = one.parallel()
        for epsilon in (0.2, 0.3):
            with one.label("half"):
                group.branch().spend(gaussian(epsilon))
    before, numbers = accountant.ledger, (accountant.total_spent(), accountant.remaining(1e-9))
    assert numbers == (twin.total_spent(), twin.remaining(1e-9))
    loaded = reloaded(accountant)
    assert loaded.ledger == before
    assert (loaded.total_spent(), loaded.remaining(1e-9)) == numbers
    assert (loaded.budget, loaded._state.order) == (twin.budget, twin._state.order)
    assert [charge.label for charge in loaded.ledger] == ["before", None, "half", "half"]
    assert all(charge.guarantee is None for charge in loaded.ledger)
    epsilon = loaded.remaining() * (1 + 1e-6)
    for one in (loaded, twin):
        with pytest.raises(PrivacyBudgetError):
            one.spend(gaussian(epsilon))
        one.spend(gaussian(epsilon / 2))
    assert loaded.total_spent() == twin.total_spent()


def test_a_charge_says_what_it_was_for(tmp_path):
    X, y = scaled_table(60, 3)
    accountant = kept(tmp_path / "budget.json", 10.0)
    start = datetime.now(UTC)
    model = regressor(accountant=accountant)
    with accountant.label("outer"), accountant.label("inner"):
        thread = threading.Thread(target=clone(model).fit, args=(X, y))
        thread.start()
        thread.join()
        accountant.spend(pure(0.5), "\udc80 own")
    model.fit(X, y)
    loaded = reloaded(accountant)
    in_block, own, after = loaded.ledger
    assert (in_block.label, own.label, after.label) == ("inner", "\udc80 own", None)
    assert (in_block.estimator, own.estimator) == ("DPLassoFW", None)
    assert (after.n_samples, after.n_features) == (60, 3)
    assert (after.epsilon, after.delta) == (0.1, DELTA)
    assert start <= in_block.time <= own.time <= after.time < start + timedelta(minutes=5)
    for label in (3, b"x"):
        assert_refuses(loaded.spend, "label must be a string", gaussian(0.1), label)
        assert_refuses(lambda text: loaded.label(text).__enter__(), "label must be", label)
    frame = loaded.to_frame()
    assert list(frame["label"][:2]) == ["inner", "\udc80 own"]
    assert frame["rho"].tolist() == [charge.rho for charge in loaded.ledger]
    assert frame["pure_epsilon"].tolist() == pytest.approx([math.inf, 0.5, math.inf])
    assert list(BudgetAccountant(1.0).to_frame().columns) == list(frame.columns)


def test_a_frame_names_branches_as_people_do(tmp_path):
    accountant = kept(tmp_path / "budget.json", 10.0)
    regions, users = accountant.parallel(), accountant.parallel("users")
    north, second = regions.branch("north"), regions.branch()
    inside = second.parallel().branch("a (b) > c")
    for account in (accountant, second, north, inside, users.branch(), second):
        account.spend(gaussian(0.1))
    expected = [
        "all records",
        "group 1 of 2, branch 1 of 2",
        "group 1 of 2, branch 2 of 2 (north)",
        "group 1 of 2, branch 1 of 2 > branch 1 of 1 (a (b) > c)",
        "group 2 of 2, branch 1 of 1",
        "group 1 of 2, branch 1 of 2",
    ]
    assert accountant.to_frame()["branch"].tolist() == expected
    assert accountant.ledger[2].branch == north.path  # which tells branches of one name apart
    for name in ("", 3):
        assert_refuses(regions.branch, "name of a branch", name)
    loaded = reloaded(accountant)
    assert loaded.to_frame()["branch"].tolist() == expected
    # as earlier versions wrote branches, without names
    document = json.loads((tmp_path / "budget.json").read_text())
    for charge in document["charges"]:
        charge["branch"] = [part.partition(" ")[0] for part in charge["branch"]]
    (tmp_path / "budget.json").write_text(json.dumps(document))
    earlier = reloaded(loaded).to_frame()["branch"].tolist()
    assert earlier == [name.partition(" (")[0] for name in expected]


def test_a_frame_needs_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="needs pandas"):
        BudgetAccountant(1.0).to_frame()


def test_the_file_is_text_with_public_facts_only(tmp_path):
    X, y = scaled_table(60, 3)
    accountant = kept(tmp_path / "budget.json")
    regressor(accountant=accountant, random_state=0).fit(X, y, groups=np.arange(60))
    document = json.loads((tmp_path / "budget.json").read_text())
    assert set(document) == {
        *("format", "version", "id", "epsilon", "delta", "relation", "max_rows_per_user"),
        *("order", "composition", "total", "charges"),
    }
    (entry,) = document["charges"]
    assert set(entry) == {
        *("epsilon", "delta", "relation", "composition", "pure_epsilon", "rho", "rho_at_order"),
        *("rows_per_user", "branch", "label", "estimator", "n_samples", "n_features", "time"),
        *("noise_is_secret", "has_groups", "noise_is_exact", "half_mu_squared"),
    }
    assert (entry["noise_is_secret"], entry["has_groups"]) == (False, True)
    assert entry["pure_epsilon"] is None
    half_mu_squared = PrivacyBudget(0.1, DELTA).mu ** 2 / 2
    assert entry["rho"] == entry["half_mu_squared"] == pytest.approx(half_mu_squared, rel=1e-9)
    for key in (
        "noise_is_secret",
        "has_groups",
        "noise_is_exact",
    ):  # which earlier versions did not write
        del entry[key]
    (tmp_path / "budget.json").write_text(json.dumps(document))
    (charge,) = reloaded(accountant).ledger
    assert (charge.noise_is_secret, charge.has_groups) == (None, None)


def test_a_page_of_an_earlier_file_asks_for_the_promise(tmp_path):
    accountant = BudgetAccountant(1.0, DELTA, max_rows_per_user=3)
    accountant.save(tmp_path / "budget.json")
    X, y = scaled_table(60, 3)
    model = regressor(accountant=accountant, max_rows_per_user=3)
    model.fit(X, y, groups=np.arange(60) // 2)
    promise, loaded = "Nobody has more than 3 rows", reloaded(accountant)
    assert promise not in str(loaded.report())
    document = json.loads((tmp_path / "budget.json").read_text())
    del document["charges"][0]["has_groups"]
    (tmp_path / "budget.json").write_text(json.dumps(document))
    assert promise in str(reloaded(loaded).report())


def test_the_representation_tells_what_is_left(tmp_path):
    accountant = BudgetAccountant(1, DELTA)
    accountant.spend(gaussian(0.5))
    text = (
        "BudgetAccountant(epsilon=1, delta=1e-06, relation='replace-one', "
        "spent=0.5, left=0.8411 (noise adds up, not epsilon), charges=1)"
    )
    assert repr(accountant) == text
    accountant.save(tmp_path / "budget.json")
    assert repr(reloaded(accountant)) == text
    accountant = kept(tmp_path / "other.json", 1.0, 0.0)
    accountant.spend(pure(0.25))
    text = repr(accountant)
    assert text.endswith("spent=0.25, left=0.75, charges=1)")
    (tmp_path / "other.json").unlink()
    assert repr(accountant) == text
    accountant._turn[current_process()] = object()
    assert repr(accountant) == text.partition(", spent")[0] + ")"


# ----------------------------------------------------------------------- several processes


@needs_fork
def test_processes_cannot_spend_the_same_rest(tmp_path):
    accountant = kept(tmp_path / "budget.json", 1.0, 0.0)
    branch = accountant.parallel().branch()
    branch.spend(pure(0.25))
    pickled, in_branch = pickle.dumps(accountant), pickle.dumps(branch)
    ready, go = os.pipe(), os.pipe()

    def work(ours):
        os.write(ready[1], b".")
        os.read(go[0], 1)
        accepted = 0
        for _ in range(8):
            try:
                ours().spend(pure(0.05))
                accepted += 1
            except PrivacyBudgetError as error:
                accepted += 0 if "would be exceeded" in str(error) else 50
        return accepted

    # inherited, unpickled, and loaded as a process that knew nothing would
    ways = [
        lambda: branch,
        lambda: pickle.loads(in_branch),
        lambda: accountant,
        lambda: pickle.loads(pickled),
        lambda: reloaded(BudgetAccountant.load(tmp_path / "budget.json")),
    ]
    children = []
    for way in ways:
        child = os.fork()
        if child == 0:
            os._exit(work(way))
        children.append(child)
    for _ in children:
        os.read(ready[0], 1)
    os.write(go[1], b"..." * len(ways))
    accepted = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for end in (*ready, *go):
        os.close(end)
    assert sum(accepted) == 15
    assert len(accountant.ledger) == 16
    assert accountant.total_spent() == pytest.approx(1.0)
    assert len(accountant.ledger[0].branch) == 2


@needs_fork
def test_a_branch_is_taken_up_by_its_name_in_any_process(tmp_path):
    def charged(one, two, go_on):
        group = one.parallel("users")
        group.branch("north").spend(gaussian(1.0))
        for task in (
            lambda: two().branch("north").spend(gaussian(0.5)),
            # two that open a name which has no charge, and one of no name
            lambda: two().branch("north").group.branch("south").spend(gaussian(1.3)),
            lambda: group.branch("south").spend(gaussian(0.2)),
            lambda: two().branch("south").group.branch().spend(gaussian(0.7)),
            lambda: two().branch("south").parallel().branch("train").spend(gaussian(0.3)),
            lambda: two().branch("south").branch("train").group.branch("test").spend(gaussian(0.4)),
            lambda: two().branch("train").spend(gaussian(0.1), has_groups=False),
        ):
            assert not go_on(task)
        return group

    accountant, alone = kept(tmp_path / "budget.json", 3.0), BudgetAccountant(3.0, DELTA)
    group = charged(
        accountant,
        lambda: reloaded(BudgetAccountant.load(tmp_path / "budget.json")),
        forked,
    )
    charged(alone, lambda: alone, lambda task: task())
    paths = [charge.branch for charge in accountant.ledger]
    assert {path[0] for path in paths} == {group.path[0]}
    assert accountant.to_frame()["branch"].tolist() == alone.to_frame()["branch"].tolist()
    assert accountant.total_spent() == alone.total_spent()
    for k, path in enumerate(paths):
        branch = accountant.branch(path)
        assert branch.remaining() == alone.branch(alone.ledger[k].branch).remaining()
        assert branch == accountant.branch(accountant.ledger[k].branch)
    # what was said of users holds on
    accountant.branch("north").spend(gaussian(0.1), has_groups=True)


def test_a_name_that_is_no_branch_or_several_is_told(tmp_path):
    accountant = kept(tmp_path / "budget.json")
    first = accountant.parallel().branch("a b")
    assert_refuses(accountant.branch, "no branches .* called 'a b'; .*: none", "a b")
    assert first == first.group.branch("a b")  # also where no other process sees a charge yet
    first.spend(gaussian(0.1))
    assert accountant.branch("a b") == first == first.group.branch("a b")
    first.group.branch().spend(gaussian(0.1))
    assert_refuses(accountant.branch, "no branches .* called ''", "")
    assert first.parallel().branch("a b") != first  # within it no other group has the name
    with pytest.warns(PrivacyParameterWarning, match=r"go on .* accountant\.branch\('a b'\)"):
        second = accountant.parallel().branch("a b")
    second.spend(gaussian(0.1))
    assert_refuses(accountant.branch, "2 branches .* called 'a b'", "a b")
    # earlier versions made a branch of a name anew each time
    earlier = [dataclasses.replace(first, path=("rows-1", f"{k:012} c")) for k in range(2)]
    earlier[0].spend(gaussian(0.1))
    loaded = reloaded(accountant)
    assert loaded.branch("c").path == loaded.branch("c").group.branch("c").path == earlier[0].path
    dataclasses.replace(earlier[1], accountant=loaded).spend(gaussian(0.1))
    assert_refuses(loaded.branch(earlier[1].path).group.branch, "2 branches of this group", "c")


@needs_fork
def test_one_of_two_wins_the_rest(tmp_path):
    for k in range(3):
        accountant = kept(tmp_path / f"{k}.json", 1.0, 0.0)
        start, results = threading.Barrier(2), []

        def spend(start=start, results=results, accountant=accountant):
            start.wait()
            results.append(forked(lambda: accountant.spend(pure(0.6))))

        threads = [threading.Thread(target=spend) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == [0, 99]
        assert len(accountant.ledger) == 1


@pytest.mark.slow  # as tests/contracts/test_parallel.py does of models
def test_workers_of_a_search_charge_the_file(tmp_path):
    X, y = scaled_table(60, 3)
    accountant = kept(tmp_path / "budget.json")
    search = GridSearchCV(
        regressor(),
        {"feasible_set": [L1Ball(0.5), L1Ball(1.0)]},
        cv=KFold(2),
        error_score="raise",
        n_jobs=2,
    )
    branch = accountant.parallel().branch()
    search.set_params(estimator__accountant=branch)
    with accountant.label("search"):
        search.fit(X, y)
    charges = accountant.ledger
    assert len(charges) == 5
    # a worker knows the branch, and of no label
    assert {charge.branch for charge in charges} == {branch.path}
    assert [charge.label for charge in charges] == [None] * 4 + ["search"]
    assert [charge.guarantee is None for charge in charges] == [True] * 4 + [False]
    mu = math.sqrt(5) * PrivacyBudget(0.1, DELTA).mu
    assert PrivacyBudget(accountant.total_spent(), DELTA).mu == pytest.approx(mu, rel=1e-3)
    # a worker of a model that names its accountant, and one for which nothing is left
    tight = kept(tmp_path / "tight.json", 0.15)
    with pytest.raises(PrivacyBudgetError, match="would be exceeded"):
        search.set_params(estimator=regressor(accountant=tight)).fit(X, y)
    assert 1 <= len(tight.ledger) < 4


@needs_fork
def test_a_pickle_in_another_process_charges_the_file_or_refuses(tmp_path, monkeypatch):
    X, y = scaled_table(60, 3)
    monkeypatch.chdir(tmp_path)
    accountant, only_here = kept("budget.json"), BudgetAccountant(1.0, DELTA)
    model = regressor(accountant=accountant).fit(X, y)
    alone = clone(model).set_params(accountant=only_here).fit(X, y)
    pickled = pickle.dumps((model, alone))
    Path("elsewhere").mkdir()

    def elsewhere():
        os.chdir("elsewhere")
        accountant_module._accountants.clear()  # a process that has inherited nothing
        loaded, again = (pickle.loads(pickled) for _ in range(2))
        for first, second in zip(loaded, again, strict=True):
            assert first.accountant is second.accountant is clone(first).accountant
        X, y = np.zeros((5, 3)), np.zeros(5)
        model, alone = loaded

        # without a file
        stranger = alone.accountant
        assert "another process" in repr(alone)
        alone.predict(X)
        for attempt in (
            lambda: alone.fit(X, y), lambda: stranger.spend(alone.guarantee_), stranger.remaining,
            stranger.total_spent, lambda: stranger.ledger, stranger.__enter__,
            stranger.parallel().branch().remaining,
        ):  # fmt: skip
            with pytest.raises(PrivacyBudgetError, match="lives in another process"):
                attempt()
        alone.set_params(accountant=None).fit(X, y)
        Path("sent").write_bytes(pickle.dumps(stranger))

        # with a file
        assert model.accountant is BudgetAccountant.load("../budget.json")
        model.set_params(delta=1e-7).fit(X, y)
        with pytest.raises(PrivacyBudgetError, match=r"still fits is 1\.10"):
            model.set_params(epsilon=1.2).fit(X, y)

    assert forked(elsewhere) == 0
    assert pickle.loads(Path("elsewhere/sent").read_bytes()) is only_here
    first, second = accountant.ledger
    assert (first.guarantee, second.guarantee) == (model.guarantee_, None)
    assert (second.delta, second.n_samples) == (1e-7, 5)


# --------------------------------------------------------------------------------- crashes


@needs_fork
def test_a_fit_that_is_killed_stays_charged(tmp_path, monkeypatch):
    X, y = scaled_table(60, 3)
    accountant = kept(tmp_path / "budget.json")
    monkeypatch.setattr(FrankWolfePlan, "run", die)
    fit = regressor(accountant=accountant).fit
    assert forked(lambda: fit(X, y)) == -signal.SIGKILL
    assert [charge.estimator for charge in accountant.ledger] == ["DPLassoFW"]
    loaded = reloaded(accountant)
    assert loaded.total_spent() == pytest.approx(0.1, rel=1e-6)
    loaded.spend(gaussian(0.1))


@needs_fork
@pytest.mark.parametrize("moment", ["fsync", "replace", "after"])
def test_a_writer_that_is_killed_harms_nobody(tmp_path, monkeypatch, moment):
    accountant = kept(tmp_path / "budget.json")
    accountant.spend(gaussian(0.1))
    replace = os.replace

    def after(*arguments):
        replace(*arguments)
        die()

    name, act = ("replace", after) if moment == "after" else (moment, die)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, act)
        assert forked(lambda: accountant.spend(gaussian(0.2))) == -signal.SIGKILL
    # the charge of the fit that never began is there or it is not, and the lock is free
    expected = [0.1, 0.2] if moment == "after" else [0.1]
    assert [charge.epsilon for charge in accountant.ledger] == expected
    accountant.spend(gaussian(0.3))
    assert [charge.epsilon for charge in reloaded(accountant).ledger] == [*expected, 0.3]


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    path = tmp_path / "budget.json"
    accountant = kept(path)
    for epsilon in (0.1, 0.2):
        accountant.spend(gaussian(epsilon))
    whole = path.read_bytes()
    for length in range(0, len(whole.rstrip()), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"not a ledger .* count its budget as spent"):
            BudgetAccountant.load(path)
        with pytest.raises(PrivacyBudgetError, match="nothing is accepted"):
            accountant.spend(gaussian(0.1))
        assert path.read_bytes() == whole[:length]
    path.unlink()
    for call in (lambda: accountant.spend(gaussian(0.1)), accountant.remaining):
        with pytest.raises(PrivacyBudgetError, match="No such file"):
            call()
    assert not path.exists()
    path.write_bytes(whole)
    accountant.spend(gaussian(0.1))
    assert len(accountant.ledger) == 3


@contextmanager
def failing(monkeypatch, name, error, *, then=False):
    real = getattr(os, name)

    def call(*arguments):
        if then:
            real(*arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, name, call)
        yield


FAILURES = [
    ("fsync", OSError(errno.ENOSPC, "No space left on device")),
    ("replace", OSError(errno.EIO, "Input/output error")),
    ("replace", KeyboardInterrupt()),
]


@pytest.mark.parametrize(("name", "error"), FAILURES)
def test_a_charge_that_cannot_be_written_is_refused(tmp_path, monkeypatch, name, error):
    X, y = scaled_table(60, 3)
    path = tmp_path / "budget.json"
    accountant = kept(path)
    accountant.spend(gaussian(0.1))
    before, model = path.read_bytes(), regressor(accountant=accountant)
    expected = PrivacyBudgetError if isinstance(error, OSError) else KeyboardInterrupt
    with failing(monkeypatch, name, error), pytest.raises(expected):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert (path.read_bytes(), len(accountant.ledger)) == (before, 1)
    # in doubt the charge counts, though its fit never began
    with failing(monkeypatch, "replace", error, then=True), pytest.raises(expected):
        model.fit(X, y)
    assert len(accountant.ledger) == 2
    model.fit(X, y)
    assert len(accountant.ledger) == 3


def test_a_slow_reader_on_windows_is_waited_for(tmp_path, monkeypatch):
    accountant = kept(tmp_path / "budget.json")
    replace, refusals = os.replace, [PermissionError()] * 3

    def busy(*arguments):
        if refusals:
            raise refusals.pop()
        replace(*arguments)

    monkeypatch.setattr(os, "replace", busy)
    accountant.spend(gaussian(0.1))
    assert len(accountant.ledger) == 1


@needs_fork
def test_a_child_does_not_keep_the_lock_of_a_parent_that_was_killed(tmp_path, monkeypatch):
    accountant = kept(tmp_path / "budget.json")
    monkeypatch.setattr(ledger, "PATIENCE", 5.0)
    end, started = os.pipe(), os.pipe()

    def parent():
        (turn := ledger.Turn({})).take_file(accountant._file)
        if os.fork() == 0:
            os.write(started[1], b".")
            os.read(end[0], 1)
            os._exit(0)
        os.read(started[0], 1)
        die(turn)

    assert forked(parent) == -signal.SIGKILL
    accountant.spend(gaussian(0.1))
    os.write(end[1], b".")
    for pipe in (*end, *started):
        os.close(pipe)


@contextmanager
def file_lock(path, patience=0.0):
    turn = ledger.Turn({})
    with turn, turn:
        with mock.patch.object(ledger, "PATIENCE", patience):
            turn.take_file(path)
        yield


@needs_fork
def test_a_child_does_not_give_back_the_lock_of_its_parent(tmp_path):
    path = tmp_path / "lock"
    with file_lock(path):

        def child():
            with pytest.raises(TimeoutError), file_lock(path):
                pass

        assert forked(child) == 0
        with pytest.raises(TimeoutError), file_lock(path):
            pass
    Path(f"{path}.lock").unlink()
    with file_lock(path), pytest.raises(TimeoutError), file_lock(path):
        pass


def test_who_waits_too_long_for_the_lock_is_refused(tmp_path, monkeypatch):
    accountant = kept(tmp_path / "budget.json")
    monkeypatch.setattr(ledger, "PATIENCE", 0.05)
    with file_lock(tmp_path / "budget.json"):
        with pytest.raises(PrivacyBudgetError, match=r"another process holds .*json\.lock"):
            accountant.spend(gaussian(0.1))
        assert accountant.ledger == ()  # to read it needs no lock
    accountant.spend(gaussian(0.1))


# ---------------------------------------------------------------------------------- Ctrl-C


@contextmanager
def ctrl_c(at, kind):
    """At so many moments in the ledger's modules: before an instruction, or about a call.

    Python itself interrupts about calls. An instruction that does nothing is in no block.
    """
    left, earlier = itertools.count(at, -1), (sys.gettrace(), sys.getprofile())
    places = {f"sklearn_dpsco.privacy.{name}" for name in ("accountant", "ledger")}

    def look(frame, event, _):
        if frame.f_globals.get("__name__") in places:
            frame.f_trace_opcodes = kind == "instruction"
            is_idle = frame.f_code.co_code[frame.f_lasti] == dis.opmap["NOP"]
            is_one = (event, is_idle) == ("opcode", False) or event.startswith("c_")
            if (is_one or (event, kind) == ("call", "call")) and next(left) == 0:
                raise KeyboardInterrupt
            return look

    sys.settrace(look) if kind == "instruction" else sys.setprofile(look)
    try:
        yield
    finally:
        sys.settrace(earlier[0])
        sys.setprofile(earlier[1])


LAST = pure(0.5)


def check_nothing_is_held(accountant, path):
    assert not accountant._turn
    accountant.spend(LAST)
    charges = accountant.ledger  # which reads the file
    spent = [charge.epsilon for charge in charges]
    assert spent in ([0.125, 0.5], [0.125, 0.25, 0.5])
    assert accountant.total_spent() == pytest.approx(sum(spent))
    assert accountant._file is None or Snapshot.read(path).ledger.charges == charges


@rest_is_slow(
    ("action", "kind", "first_moment"),
    itertools.product(("spend", "save"), ("call", "instruction"), (0, 1)),
    ("spend-call-0", "save-call-1"),
)
def test_ctrl_c_at_any_moment_leaves_nothing_held_and_no_charge_half_done(
    tmp_path, monkeypatch, action, kind, first_moment
):
    monkeypatch.setattr(ledger, "PATIENCE", 0.0)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    first, more = pure(0.125), pure(0.25)
    for moment in itertools.count(first_moment, 2):
        accountant, path = BudgetAccountant(1.0, 0.0), tmp_path / f"{moment}.json"
        accountant.spend(first)
        if action == "spend":
            accountant.save(path)
            accountant._state = accountant._state._replace(
                ledger=Ledger()
            )  # the file knows more, by another process
        try:
            with ctrl_c(moment, kind):
                accountant.save(path) if action == "save" else accountant.spend(more)
        except KeyboardInterrupt:  # whose traceback lives on
            check_nothing_is_held(accountant, path)
            if accountant._file is None:
                accountant.save(path)
        else:
            break
    assert moment > 50


def test_ctrl_c_when_a_block_opens():
    accountant, outer = BudgetAccountant(1.0), BudgetAccountant(1.0)
    for moment in itertools.count():
        try:
            with ctrl_c(moment, "call"):
                accountant.__enter__()
        except KeyboardInterrupt:
            with outer:
                assert accountant_in_force(None) is outer
            assert accountant_in_force(None) is None
        else:
            break
    accountant.__exit__(None, None, None)
    assert moment > 10


# ------------------------------------------------------------------- edits, copies, old states


def test_an_edited_file_is_refused(tmp_path):
    path = tmp_path / "budget.json"
    accountant = kept(path)
    accountant.spend(gaussian(0.1))
    accountant.parallel().branch().spend(pure(0.1))
    document = json.loads(path.read_text()) | {"slack": 0.0}

    def edited(*keys, value):
        changed = json.loads(json.dumps(document))
        inner = changed
        for key in keys[:-1]:
            inner = inner[key]
        assert keys[-1] == "extra" or inner[keys[-1]] != value
        inner[keys[-1]] = value
        path.write_text(json.dumps(changed))
        return path

    for *keys, value, pattern in (
        ("charges", 0, "rho", 0.0, "do not add up"),
        ("charges", 0, "rho_at_order", -1.0, "rho_at_order must be"),
        ("charges", 0, "half_mu_squared", 0.0, "do not add up"),
        ("composition", "renyi", "composition must be one of"),
        ("charges", 1, "rho_at_order", 0.0, "do not add up"),
        ("charges", 1, "pure_epsilon", math.nan, "NaN"),
        ("charges", 0, "rho", math.inf, "Infinity"),
        ("charges", 1, "branch", ["a"], "without its group"),
        ("charges", 1, "branch", [1, 2], "must be a string"),
        ("charges", 0, "relation", "zero-out", "another relation"),
        ("charges", 0, "time", "yesterday", "isoformat"),
        ("charges", 0, "n_samples", -1, "n_samples must be"),
        ("charges", 0, "extra", 1, "unexpected keyword"),
        ("charges", 0, {}, "missing"),
        ("charges", 0, None, "NoneType"),
        ("charges", [], "do not add up"),
        ("total", "rho", 0.0, "do not add up"),
        ("version", 2, "has version 2 of the format"),
        ("format", "other", "does not say that its format"),
        ("epsilon", -1.0, "epsilon must be"),
        ("epsilon", 2.0, "does not belong to the budget"),
        ("order", 1.5, "does not belong to the budget"),
        ("slack", 1e-6, r"budget.json' is not a ledger .* slack must be"),
        ("id", 3, "id must be a string"),
    ):
        with pytest.raises(ValueError, match=pattern):
            BudgetAccountant.load(edited(*keys, value=value))
        with pytest.raises(PrivacyBudgetError):
            accountant.spend(gaussian(0.1))
    for text in ("", "[]", "{}", "null", "[" * 100_000, "\udc80"):
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(ValueError, match="not a ledger"):
            BudgetAccountant.load(path)
    path.write_text(json.dumps(document))
    assert len(BudgetAccountant.load(path).ledger) == 2


def test_an_older_state_is_noticed_by_who_knows_better(tmp_path):
    path = tmp_path / "budget.json"
    accountant = kept(path)
    accountant.spend(gaussian(0.1))
    old = path.read_bytes()
    accountant.spend(gaussian(0.2))
    path.write_bytes(old)
    for call in (lambda: accountant.spend(gaussian(0.1)), accountant.total_spent):
        with pytest.raises(PrivacyBudgetError, match="charges are missing"):
            call()
    other = kept(tmp_path / "other.json")
    other.spend(gaussian(0.1))
    path.write_bytes((tmp_path / "other.json").read_bytes())
    with pytest.raises(PrivacyBudgetError, match="not the one that was loaded"):
        accountant.spend(gaussian(0.1))


def test_a_ledger_is_bound_to_one_new_file(tmp_path, monkeypatch):
    path = tmp_path / "budget.json"
    accountant = kept(path)
    with pytest.raises(ValueError, match=r"bound to .* already"):
        accountant.save(tmp_path / "other.json")
    before = path.read_bytes()
    free = BudgetAccountant(1.0)
    with pytest.raises(FileExistsError, match="never overwritten"):
        free.save(path)
    assert path.read_bytes() == before
    with pytest.raises(OSError, match="No such file"):
        free.save(tmp_path / "missing" / "budget.json")
    # a file that was written in spite of an error would be a second budget
    other = tmp_path / "other.json"
    late = failing(monkeypatch, "replace", FAILURES[1][1], then=True)
    with late, pytest.raises(OSError, match="Input/output"):
        free.save(other)
    assert not other.exists()
    free.spend(gaussian(0.1))
    free.save(other)
    assert len(reloaded(free).ledger) == 1


def test_copies_of_the_file_and_of_the_accountant(tmp_path, monkeypatch):
    path, copied = tmp_path / "budget.json", tmp_path / "copy.json"
    accountant = kept(path)
    (tmp_path / "link.json").symlink_to(path)
    for same in (BudgetAccountant.load(tmp_path / "link.json"), clone(accountant)):
        assert same is accountant
    assert pickle.loads(pickle.dumps(accountant)) is accountant
    copied.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="is a copy of"):
        BudgetAccountant.load(copied)
    path.chmod(0o640)
    accountant.spend(gaussian(0.1))
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.json").is_symlink()
    pickled = pickle.dumps(accountant)
    monkeypatch.setattr(accountant_module, "_accountants", WeakValueDictionary())  # as elsewhere
    assert len(pickle.loads(pickled).ledger) == 1


@needs_fork
def test_a_loader_that_makes_an_object_first_keeps_the_accountant(tmp_path):
    path, copied = tmp_path / "budget.json", tmp_path / "copy.json"
    twin = BudgetAccountant.__new__(BudgetAccountant)
    twin.__setstate__(kept(path).__getstate__())
    gc.collect()
    copied.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="is a copy of"):
        BudgetAccountant.load(copied)
    twin._turn[current_process()] = object()  # as if another thread had it
    assert forked(lambda: current_process() in twin._turn) == 0
    twin._turn.clear()
    BudgetAccountant.load(path).spend(pure(0.5))
    assert len(twin.ledger) == 1


def test_a_model_whose_file_is_gone_loads_and_refuses(tmp_path, monkeypatch):
    X, y = scaled_table(60, 3)
    path = tmp_path / "budget.json"
    model = regressor(accountant=kept(path)).fit(X, y)
    expected, pickled = model.predict(X), pickle.dumps(model)
    whole = path.read_bytes()
    monkeypatch.setattr(accountant_module, "_accountants", WeakValueDictionary())  # as elsewhere
    path.unlink()
    model = pickle.loads(pickled)
    np.testing.assert_array_equal(model.predict(X), expected)
    assert "a file that cannot be used" in repr(model)
    for call in (
        lambda: model.fit(X, y),
        lambda: model.accountant.budget,
        lambda: model.accountant.save(tmp_path / "new.json"),
        model.accountant.remaining,
        model.accountant.__enter__,
    ):
        with pytest.raises(PrivacyBudgetError, match=r"cannot be used here: .*No such file"):
            call()
    assert not path.exists()
    # once it is back, a pickle finds it again, also one of the model that refused
    again = pickle.dumps(model)
    path.write_bytes(whole)
    for data in (again, pickled):
        pickle.loads(data).fit(X, y)
    assert len(BudgetAccountant.load(path).ledger) == 3
