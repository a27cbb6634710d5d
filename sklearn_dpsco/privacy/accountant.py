"""Several fits on the same records: one total budget, and the ledger of its charges."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import ROUND_DOWN
from pathlib import Path
from typing import Any, Literal, Self
from weakref import WeakValueDictionary

from .._checks import (
    check_choice,
    check_int,
    check_string,
    import_pandas,
    naming,
    rounded,
    shown,
    stated,
)
from .._overview import Overview
from .._types import Relation
from ..exceptions import PrivacyBudgetError
from ..randomness.stream import current_process
from .branches import Account, BranchPath, ParallelGroup, branch_names
from .budget import Currency, PrivacyBudget, pure_mu
from .guarantee import Guarantee
from .ledger import COSTS, Charge, Ledger, Snapshot, Turn, check_slack
from .report import Report, of_accountant
from .selections import LARGEST_MU

_ELSEWHERE = (
    "this accountant lives in another process, or no longer exists: nothing can be charged to it "
    "here. Use n_jobs=1, or threads, or bind it to a file (`save`) when it is made, before a fit."
)
_USERS_IN_BRANCHES = (
    "what has groups, or max_rows_per_user > 1, protects users with all of their rows, and the "
    "branches of parallel() are only known to share no row: of a user with rows in two of them, "
    "more could be found out than is counted. If all rows of each user are in one branch of each "
    "group, say parallel(disjoint='users'); otherwise charge the accountant itself"
)


@naming({"path": "save(path) binds it to a new file, and load(path) goes on with one"}.get)
class BudgetAccountant(Account):
    r"""A total budget that fits on the same records share, and the ledger of its charges.

    An estimator with ``accountant=`` charges its guarantee in full, after X and y are validated and
    before anything is computed from their values. A charge that would exceed the budget raises
    `PrivacyBudgetError` and is not made; one that was made is never refunded, not even if the fit
    then fails.

    As a context manager, it charges all fits in this process, in any thread, whose estimator has
    ``accountant=None``. Only one accountant's block can be open at a time; it may be opened again
    inside itself. `save` binds the ledger to a file that several processes can share, and `load`
    opens one: save it when it is made, before the first fit, if it is to outlive the process.

    Parameters
    ----------
    epsilon : float in [1e-15, 1e9]
        Finite: nothing could exceed an infinite one. Fits with epsilon=inf are refused.
    delta : float in [0, 1), default=1e-6
        0 accepts only guarantees that compose purely.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        As in `PrivacyBudget`. Guarantees under the other relation are refused.
    max_rows_per_user : int >= 1, default=1
        The budget is for all rows of a user together, of whom nobody has more than this.
        Guarantees for users of fewer rows are refused, unless the fit has `groups`: then no more
        rows of anybody count.
    slack : float in [0, delta), default=0.0
        A part of delta that is kept for releases which may tell something outright, as a
        `PrivateVocabulary` may of a word that one user alone has: it takes a fifth of its delta.
        All costs then add up to what goes with the rest of delta.
    composition : {"auto", "gdp", "zcdp"}, default="auto"
        How costs add up. "gdp" is Gaussian DP: the least noise for all defaults. Random batches
        count as if they were not random, and pure releases as Gaussian noise above them. "zcdp" is
        for fits with random batches, and for those with delta=0 next to others; Gaussian noise is
        larger there, by 7 % at (1, 1e-6), 2 to 13 % for delta from 1e-10 to 1e-5, up to a half at
        delta = 0.1. "auto" is "gdp" unless delta is 0, or epsilon so large (50 at 1e-6) that
        selections have no Gaussian curve above them.

    Notes
    -----
    Releases are composed, not the epsilons of the fits. A charge is accepted if what each unit
    bears (a row, or a user, of one branch in each group) passes one of two tests, the first or
    that of `composition`:

    * *pure*: all its guarantees compose purely, and
      :math:`\sum \varepsilon_i \le \varepsilon`;
    * *Gaussian DP*: :math:`\sum \mu_i^2 \le \mu^2`, where :math:`\mu` is
      `PrivacyBudget.mu` of the total, at delta less `slack`, and :math:`\mu_i` that of Gaussian
      noise which tells neighbours apart no less than the fit does: for one that composes purely
      at :math:`\varepsilon_i` also :math:`2 \Phi^{-1}(1 / (1 + e^{-\varepsilon_i}))`;
    * *zCDP*: :math:`\sum \min(\rho_i, \varepsilon_i / \alpha) \le \rho`, where
      :math:`\rho` is `PrivacyBudget.rho` of the total, at delta less `slack`, and :math:`\alpha`
      the order at which its conversion is best. :math:`\rho_i` adds up the releases' costs in zCDP
      (:math:`\varepsilon_t^2 / 2` for a pure release, :math:`\varepsilon_t^2 / 8` for a
      selection with Gumbel noise), and :math:`\varepsilon_i` is infinite for guarantees
      that do not compose purely. A release on random batches costs its Renyi divergence of order
      :math:`\alpha`, over :math:`\alpha`, where that is less.

    The sums are filters (Smith and Thakurta 2022; of Renyi divergences Feldman and Zrnic 2021):
    the budget holds also if fits are chosen after looking at the results of earlier ones, and if
    they run at the same time (doc/privacy, section 1). Outcomes that pass the pure test need no
    delta, so either test may be used. Plans of fits under an accountant are made in its currency,
    in zCDP those with random batches at the order :math:`\alpha`.

    Copies (`copy.copy`, `copy.deepcopy`, `sklearn.clone`) are the same object, so every fit of a
    search is charged. A pickle, also of a `Branch`, holds an identifier, and the path of the file
    if there is one. In the process of the accountant it gives the accountant; elsewhere that of the
    file or, without a file, an object that refuses every charge, so that fits in other processes
    (``n_jobs > 1``) fail. An estimator that is pickled or copied while a block is open gets the
    block's accountant as its `accountant`. What `skops` loads is equal to the accountant and shares
    all with it.

    Examples
    --------
    >>> from sklearn_dpsco import BudgetAccountant, DPLassoFW
    >>> accountant = BudgetAccountant(epsilon=1.0, delta=1e-6)
    >>> model = DPLassoFW(epsilon=0.5, accountant=accountant)
    >>> accountant
    BudgetAccountant(epsilon=1, delta=1e-06, relation='replace-one', spent=0, left=1, charges=0)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-6,
        relation: Relation = "replace-one",
        max_rows_per_user: int = 1,
        slack: float = 0.0,
        composition: Literal["auto", "gdp", "zcdp"] = "auto",
    ) -> None:
        budget = PrivacyBudget(epsilon, delta, relation)
        if budget.is_infinite:
            raise ValueError("epsilon of an accountant must be finite: inf would bound nothing")
        rows = check_int("max_rows_per_user", max_rows_per_user, low=1)
        slack = check_slack(slack, budget)
        whole = replace(budget, delta=delta - slack)
        has_gdp = 0 < whole.mu <= LARGEST_MU  # beyond, selections have no Gaussian curve
        check_choice("composition", composition, ("auto", "gdp", "zcdp"))
        if composition == "gdp" and not has_gdp:
            raise ValueError(
                f"composition='gdp' needs delta > 0 and mu, here {whole.mu:.3g}, of at most "
                f"{LARGEST_MU:g}: take 'auto'"
            )
        kind: Currency = "gdp" if has_gdp and composition != "zcdp" else "zcdp"
        self._set_up(Snapshot(uuid.uuid4().hex, budget, rows, whole.best_order, slack, kind))

    def _set_up(self, state: Snapshot, file: Path | None = None) -> None:
        self._id, self._state = state.id, state
        self._process = current_process()
        self._file = file
        self._why_not: str | None = None
        self._turn: dict[Any, Turn] = {}  # who has it, by process
        self._labels: list[list[str]] = []
        _accountants[self._id] = self  # last: from here on other threads find it, and charge it

    @classmethod
    def load(cls, path: Any) -> Self:
        """The accountant of a file that `save` made, with its budget and charges.

        What it charges is in the file first, and what others charge counts here. Loaded twice in
        one process, it is one object.

        Parameters
        ----------
        path : str or path-like

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is not a whole ledger of this version's format, its charges do not add up to
            the total that it states, or it is a copy of a ledger that is open in this process.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sklearn_dpsco import BudgetAccountant
        >>> path = Path(tempfile.mkdtemp()) / "records.json"  # next to the records, in earnest
        >>> BudgetAccountant(epsilon=3.0).save(path)
        >>> BudgetAccountant.load(path).remaining() <= 3.0  # tomorrow, or in another program
        True
        """
        file = Path(path).resolve()
        saved = Snapshot.read(file)
        if not math.isclose(saved.order, saved.whole.best_order, rel_tol=1e-6):
            raise ValueError(f"{str(file)!r}: the order does not belong to the budget")
        known: Any = _accountants.get(saved.id)
        if known is not None and known._file is not None and known._obstacle() is None:
            if known._file != file:
                raise ValueError(
                    f"{str(file)!r} is a copy of {str(known._file)!r}, which is open: two "
                    "copies of a ledger would spend its budget twice"
                )
            return known
        accountant = cls.__new__(cls)
        accountant._set_up(saved, file)
        return accountant

    def save(self, path: Any) -> None:
        """Bind the ledger to a new file, which from now on holds every charge before its fit.

        The file is JSON text: the budget, and of each charge what `Charge` describes, no values of
        the data. All processes that `load` it, or an estimator that was pickled with this
        accountant, share the budget. A charge waits until no other process is charging, reads the
        file again, and is on the disk before the fit begins; it is refused if the file cannot be
        read or written.

        A second file, `path` + ".lock", is the lock; leave it there. Both must be on a file system
        where file locks and atomic renames work between all that use them: a local disk, or a
        network file system of which that is known. The file protects against crashes and races,
        its total against slips of an editor; nothing against somebody who wants to change it. Never
        put back an older state or go on with a copy: the budget would be spent twice.

        Parameters
        ----------
        path : str or path-like
            There must be no such file.

        Raises
        ------
        FileExistsError
            If there is a file. `load` it, if it is the one you mean.
        OSError
            If the file cannot be written.
        ValueError
            If this accountant is bound to a file already.
        """
        self._check_process()
        turn = Turn(self._turn)
        with turn, turn:
            turn.take()
            if self._file is not None:
                raise ValueError(f"this accountant is bound to {str(self._file)!r} already")
            file = Path(path).resolve()
            turn.take_file(file)
            if file.exists():
                raise FileExistsError(
                    f"{str(file)!r} exists: a ledger is never overwritten. If it is the one you "
                    "mean, BudgetAccountant.load(path) goes on with it"
                )
            try:
                self._file = file  # first: the budget must not be here and in a file
                self._state.write(file)
            except BaseException:
                with suppress(OSError):
                    file.unlink(missing_ok=True)
                    self._file = None
                raise

    def _terms(self) -> tuple[PrivacyBudget, Currency, float | None, int]:
        self._check_process()
        _, budget, rows, order, _, kind, _ = self._state
        return budget, kind, None if budget.is_pure or kind == "gdp" else order, rows

    @property
    def ledger(self) -> tuple[Charge, ...]:
        """The charges, in order."""
        return self._in_turn().ledger.charges

    def report(self, *, dataset: str | None = None, purpose: str | None = None) -> Report:
        """One page for someone without mathematics: what is promised of all results together.

        Parameters
        ----------
        dataset, purpose : str or None, default=None
            What the page says of the data, and of what the results are for. Public text.

        Returns
        -------
        Report
            ``print`` shows it, as does a notebook, and ``to_json()`` has the facts.
        """
        state = self._in_turn()
        names = branch_names(state.ledger.charges)
        return of_accountant(state, names, dataset=dataset, purpose=purpose)

    def to_frame(self) -> Any:
        """The charges as a `pandas.DataFrame`, a row for each and a column for each of its facts.

        Branches are named as people can read: "all records", "branch 1 of 2", with the name if one
        was given, and "branch 1 of 2 > branch 2 of 3" for the second branch within the first.
        They are numbered as they come, so that those of a longer ledger may be more.
        `Charge.branch` has what tells them apart.

        Raises `ImportError` if pandas is not installed.
        """
        pandas = import_pandas("BudgetAccountant.to_frame")
        columns = [name for name in Charge.__dataclass_fields__ if name != "guarantee"]
        charges = self.ledger
        places = zip(charges, branch_names(charges), strict=True)
        rows = [charge.summary() | {"branch": name} for charge, name in places]
        # any text, also what has no UTF-8
        kinds = dict.fromkeys(("label", "estimator", "branch"), object)
        series = {c: pandas.Series([r[c] for r in rows], dtype=kinds.get(c)) for c in columns}
        return pandas.DataFrame(series)

    @contextmanager
    def label(self, text: str) -> Iterator[None]:
        """Charges of this process inside the ``with`` block get this label, in any thread."""
        check_string("label", text)
        self._check_process()
        entry = [text]  # a list is told from others with the same text by what it is
        try:
            self._labels.append(entry)
            yield
        finally:
            self._labels[:] = [other for other in self._labels if other is not entry]

    def total_spent(self) -> float:
        """Epsilon of the ledger at the budget's delta, 0 if nothing was charged.

        The smallest of the sum of epsilons (if all compose purely), the epsilons of the sums of
        mu^2 (in Gaussian DP) and of rho, that of the Renyi divergence at the order of the budget,
        and the budget's. It holds if the
        fits were fixed in advance; if later ones were chosen after looking at the results of
        earlier ones, the budget itself is the guarantee.
        """
        return self._in_turn().spent()

    def spans(self) -> dict[int, tuple[float, float]]:
        """Epsilon before and after each charge of the ledger, for who bears the charge.

        By its position in the ledger, with charges of a group of branches, and in it of a branch,
        one after the other. Other branches of its groups are left out, and a group that came
        before counts as its largest branch.

        Examples
        --------
        >>> from sklearn_dpsco import BudgetAccountant
        >>> from sklearn_dpsco.means import plan_mean
        >>> accountant = BudgetAccountant(epsilon=1.0)
        >>> group = accountant.parallel()
        >>> for _ in range(2):
        ...     group.branch().spend(plan_mean(5000, 2, epsilon=0.5))
        >>> (_, first), (start, second) = accountant.spans().values()
        >>> start == 0.0, second == first  # side by side
        (True, True)
        """
        found: dict[int, tuple[float, float]] = {}

        def pile(numbers: Iterable[int], depth: int, below: Ledger, level: float) -> None:
            units: dict[Any, dict[Any, list[int]]] = {}  # groups, or single charges
            for k in numbers:
                group, branch = (*charges[k].branch[depth : depth + 2], k, None)[:2]
                units.setdefault(group, {}).setdefault(branch, []).append(k)
            for branches in units.values():
                members = [k for inside in branches.values() for k in inside]
                for branch, inside in branches.items():
                    if branch is not None:
                        pile(inside, depth + 2, below, level)
                below = below.plus(*(charges[k] for k in members))
                start, level = level, state._replace(ledger=below).spent()
                if None in branches:
                    found[members[0]] = start, level

        state = self._in_turn()
        charges = state.ledger.charges
        pile(range(len(charges)), 0, Ledger(), 0.0)
        return found

    # --------------------------------------------------------------- what is accepted

    def _accept(
        self, guarantee: Guarantee, branch: BranchPath, has_groups: bool, **named: Any
    ) -> None:
        """Charge a branch, or with an empty path all records, unless the budget refuses that."""
        state = self._state
        budget, rows = state.budget, state.max_rows_per_user
        if guarantee.relation != budget.relation:
            raise PrivacyBudgetError(
                f"the accountant's relation is {budget.relation!r}, that of the "
                f"guarantee {guarantee.relation!r}: set relation={budget.relation!r}"
            )
        if guarantee.rows_per_user < rows and not has_groups:
            raise PrivacyBudgetError(
                f"the accountant's budget is for users of up to {rows} rows, the "
                f"guarantee for those of up to {guarantee.rows_per_user}: set "
                "max_rows_per_user, or give groups, the user of each row"
            )
        is_of_users = has_groups or guarantee.rows_per_user > 1
        if is_of_users and not all(group.startswith("users-") for group in branch[::2]):
            raise PrivacyBudgetError(_USERS_IN_BRANCHES)
        rho, kind, order = guarantee.cost("zcdp"), guarantee.composition, state.order
        epsilon = guarantee.spent if kind == "pure" else math.inf if rho > 0 else 0.0
        at_order = rho if budget.is_pure else guarantee.renyi(order) / order
        half_mu_squared = guarantee.cost("gdp") if guarantee.composes_in("gdp") else math.inf
        half_mu_squared = min(half_mu_squared, pure_mu(epsilon) ** 2 / 2)
        costs = epsilon, rho, min(at_order, epsilon / order), half_mu_squared, guarantee.slack
        named |= dict(zip(COSTS, map(float, costs), strict=True))
        named |= {"branch": branch, "has_groups": has_groups, "guarantee": guarantee}
        named |= {"noise_is_exact": guarantee.noise_is_exact}
        claim = float(guarantee.epsilon), float(guarantee.delta), guarantee.relation
        charge = Charge(*claim, guarantee.rows_per_user, kind, **named)
        state = state.plus(charge)
        if not state.is_within:
            raise PrivacyBudgetError(self._refusal(charge, state))
        if self._file is not None:
            try:
                state.write(self._file)
            except OSError as error:
                raise PrivacyBudgetError(
                    f"the charge could not be written to {str(self._file)!r}, so it is not "
                    f"accepted: {error}"
                ) from error
        self._state = state

    def _refusal(self, charge: Charge, refused: Snapshot) -> str:
        state = self._state
        budget, kept = state.budget, state.slack
        if budget.is_pure and not math.isfinite(charge.pure_epsilon):
            return "a budget with delta=0 accepts only guarantees that compose purely (delta=0)"
        if (slack := refused.ledger.slack) > kept:
            advice, least = "Say", f"{rounded(slack, 6):g}"
            if float(least) < budget.delta:
                advice = (
                    "How much is kept is fixed before the first fit: "
                    f"BudgetAccountant({budget.epsilon!r}, {budget.delta!r}, slack={least}); or say"
                )
            return (
                "a part of delta that may tell something outright (slack="
                f"{stated(slack, 3)} with this charge) is more than the accountant keeps for that, "
                f"{stated(kept, 3, ROUND_DOWN)}; nothing was charged. {advice} a smaller delta here"
            )
        spent, would_be = state.spent(), refused.spent(math.inf)
        delta = 0.0 if charge.composition == "pure" else charge.delta
        left = state.left(charge.branch, delta - charge.slack)
        of_delta = f" (slack={stated(kept)} of delta is kept)" if kept else ""
        said = (
            f"the budget (epsilon={stated(budget.epsilon)}, delta={stated(budget.delta)})"
            f"{of_delta} would be exceeded: {stated(spent)} of its epsilon is spent, and with this "
            f"charge it would be {stated(would_be)}; nothing was charged. The largest epsilon that "
            f"still fits is {stated(left, direction=ROUND_DOWN)}, for a fit with "
            f"{charge.composition} composition and delta={stated(charge.delta)}."
        )
        is_other = charge.composition in ("pure", "pld", "renyi")
        if state.composition == "gdp" and (is_other or math.isinf(charge.half_mu_squared)):
            said += (
                " Such a fit costs less beside others where all add up in zCDP: "
                f"BudgetAccountant({budget.epsilon!r}, {budget.delta!r}, composition='zcdp')."
            )
        facts = [(c.estimator, c.n_features) for c in refused.ledger.charges]
        is_search = charge.guarantee is not None and charge.guarantee.parts  # those of its fits
        if all(facts[-1]) and facts.count(facts[-1]) > 2 and not is_search:
            said += " Fits of one search share a budget in a DPGridSearchCV."
        return said + self._of_branches(charge)

    def _of_branches(self, charge: Charge) -> str:
        """What a branch would change, or would have changed, for a charge that is refused."""
        if charge.branch:
            return ""
        is_of_users = charge.has_groups or charge.rows_per_user > 1
        for group in self._state.ledger.groups:
            beside = replace(charge, branch=(group, ""))
            may_be_there = group.startswith("users-") or not is_of_users
            if may_be_there and self._state.plus(beside).is_within:
                return (
                    " If it reads no record of the branches of a group, such as a score on a test "
                    "set, it goes into a branch of its own there: accountant.branch(name).group"
                    ".branch('test'), with the name of one of them for the first"
                )
        if not self._state.ledger.own.any():
            return ""
        return (
            " What is charged to the accountant itself counts for all records. A fit, and its "
            "score on other records, cost the larger of both only where each was charged to a "
            "branch of one group, accountant.parallel()"
        )

    # ------------------------------------------------------------- file, lock, process

    def _take_in(self, saved: Snapshot) -> None:
        """Go on from what the file says, which is what is known here and perhaps more."""
        known, charges = self._state.ledger.charges, saved.ledger.charges
        if saved[:-1] != self._state[:-1] or charges[: len(known)] != known:
            raise ValueError(
                "the file is not the one that was loaded, or charges are missing from it. Put back "
                "the newest state; the budget of an older one may be spent"
            )
        self._state = self._state.plus(*charges[len(known) :])

    def _obstacle(self) -> str | None:
        """Why nothing can be charged here, if so."""
        if self._why_not is None and self._file is None and self._process != current_process():
            return _ELSEWHERE
        return self._why_not

    def _check_process(self) -> None:
        if (obstacle := self._obstacle()) is not None:
            raise PrivacyBudgetError(obstacle)

    def _in_turn(self, change: Callable[[], None] | None = None) -> Snapshot:
        """The newest state, that of the file if there is one; or after a change, alone."""
        self._check_process()  # first: after a fork, who has the turn may not exist
        turn = Turn(self._turn)
        with turn, turn:
            turn.take()
            if self._file is not None:
                try:
                    if change is not None:
                        turn.take_file(self._file)
                    self._take_in(Snapshot.read(self._file))
                except (OSError, ValueError) as error:
                    raise PrivacyBudgetError(
                        f"the ledger {str(self._file)!r} cannot be used, so nothing is accepted: "
                        f"{error}"
                    ) from error
            if change is not None:
                change()
            return self._state

    def __enter__(self) -> Self:
        self._check_process()
        block, turn = object(), Turn(_opening)
        try:
            with turn, turn:
                turn.take()
                if any(other != self for other in list(_active.values())):
                    raise PrivacyBudgetError("the block of another accountant is open")
                _active[block] = self
            return self
        except BaseException:  # Ctrl-C, too: a block that does not begin does not end
            _active.pop(block, None)
            raise

    def __exit__(self, *exception: object) -> None:
        _active.popitem()

    # ------------------------------------------------------------------------- copies

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BudgetAccountant) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __getstate__(self) -> dict[str, str | None]:
        return {"identifier": self._id, "path": None if self._file is None else str(self._file)}

    def __reduce__(self) -> Any:
        return _find_accountant, tuple(self.__getstate__().values())

    def __setstate__(self, state: dict[str, Any]) -> None:
        # for loaders that make an object first: it shares all with the accountant
        original = _find_accountant(**state)
        self.__dict__ = original.__dict__
        self._original = original  # `_accountants` knows it as long as this one is in use

    def __repr__(self) -> str:
        where, facts = self._facts()
        text = ", ".join(f"{key}={value}" for key, value in facts.items())
        return f"BudgetAccountant({f'<{where}>' if where else text})"

    def _repr_html_(self) -> str:
        where, facts = self._facts()
        lines = ("BudgetAccountant", where) if where else ("BudgetAccountant",)
        return Overview(lines, rows=list(facts.items())).html()

    def _facts(self) -> tuple[str, dict[str, str]]:
        """What is shown; or where the accountant is, if that cannot be known here."""
        if self._obstacle() is not None:
            is_here = self._file is not None
            return "of a file that cannot be used" if is_here else "of another process", {}
        budget, rows, slack = self._state.budget, self._state.max_rows_per_user, self._state.slack
        facts = {"epsilon": stated(budget.epsilon), "delta": stated(budget.delta)}
        facts["relation"] = repr(budget.relation)
        facts |= {"max_rows_per_user": str(rows)} if rows > 1 else {}
        facts |= {"slack": stated(slack)} if slack else {}
        turn = Turn(self._turn)
        with suppress(TimeoutError), turn, turn:
            turn.take(patience=1)  # or somebody is charging
            if self._file is not None:
                with suppress(OSError, ValueError):  # then what was known last
                    self._take_in(Snapshot.read(self._file))
            spent, left = self._state.spent(), self._state.left()
            is_more = spent + left > 1.001 * budget.epsilon
            if math.isclose(left, budget.epsilon, rel_tol=1e-9):  # but for roundings
                left = budget.epsilon
            facts["spent"] = stated(spent, 4)
            facts["left"] = stated(left, 4, ROUND_DOWN) + " (noise adds up, not epsilon)" * is_more
            facts["charges"] = str(len(self._state.ledger.charges))
        return "", facts


# Everything in force in this process.
_accountants: WeakValueDictionary[str, BudgetAccountant] = WeakValueDictionary()
_active: dict[object, BudgetAccountant] = {}  # by each open block, all the same ledger
_opening: dict[Any, Turn] = {}


def accountant_in_force(accountant: Any) -> Account | None:
    """What to charge, for a parameter `accountant`: None means that of the open block, if any."""
    if accountant is None:
        return next(iter(list(_active.values())), None)
    if isinstance(accountant, Account):
        return accountant
    given = shown(accountant)
    if accountant is BudgetAccountant:
        given = "the class: make one, BudgetAccountant(epsilon)"
    elif isinstance(accountant, ParallelGroup):
        given = "a group of branches: give one of them, group.branch(name)"
    raise ValueError(f"accountant must be None, a BudgetAccountant or a branch of one, got {given}")


def _find_accountant(identifier: str, path: str | None = None) -> BudgetAccountant:
    """What a pickle loads: the accountant of this process or of the file, or one that refuses."""
    known = _accountants.get(identifier)
    if known is not None and (path is None or known._obstacle() is None):
        return known
    stranger = BudgetAccountant.__new__(BudgetAccountant)
    stranger._id, stranger._file, stranger._why_not = identifier, None, _ELSEWHERE
    if path is not None:
        try:
            found = BudgetAccountant.load(path)
            if found._id == identifier:
                return found
            error = "it holds another ledger"
        except (OSError, ValueError) as reason:
            error = str(reason)
        stranger._file = Path(path).resolve()
        stranger._why_not = f"the file of this accountant, {path!r}, cannot be used here: {error}"
    _accountants[identifier] = stranger
    return stranger
