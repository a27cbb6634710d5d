"""Several fits on the same records: one total budget, and the ledger of its charges."""

from __future__ import annotations

import math
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .._checks import check_real
from ..exceptions import PrivacyBudgetError
from .budget import ROUNDING, PrivacyBudget, best_log_gap, renyi_epsilon, zcdp_epsilon
from .guarantee import Guarantee

__all__ = ["BudgetAccountant", "ParallelGroup", "accountant_in_force", "active_accountant"]


class _Branch:
    """Charges that may fall on the same record: its own, and the largest of each group.

    A charge is the vector (epsilon, rho, rho at one order) of `BudgetAccountant._cost`.
    """

    def __init__(self) -> None:
        self.own: NDArray[np.float64] = np.zeros(3)
        self.groups: list[list[_Branch]] = []

    def total(self) -> NDArray[np.float64]:
        total = self.own
        for group in self.groups:
            total = total + np.max([np.zeros(3), *(b.total() for b in group)], axis=0)
        return total


class ParallelGroup:
    """Branches that use disjoint records; made by `BudgetAccountant.parallel`."""

    def __init__(self, accountant: BudgetAccountant, branches: list[_Branch]) -> None:
        self._accountant = accountant
        self._branches = branches

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Charges inside the ``with`` block fall on this branch's records only.

        The block covers the thread that it is opened in; what other threads spend
        at the same time is charged outside the branch.
        """
        branch = _Branch()
        with self._accountant._locked():
            self._branches.append(branch)
        token = _open_branches.set((*_open_branches.get(), (self._accountant, branch)))
        try:
            yield
        finally:
            _open_branches.reset(token)


class BudgetAccountant:
    r"""A total budget that fits on the same records share, and the ledger of its charges.

    An estimator with ``accountant=`` charges its guarantee in full, after X and y are
    validated and before anything is computed from their values. A charge that would exceed
    the budget raises `PrivacyBudgetError` and is not made; a charge that was made is never
    refunded, not even if the fit then fails.

    As a context manager, it charges all fits in this process, in any thread, whose
    estimator has ``accountant=None``. Only one accountant's block can be open at a
    time; it may be opened again inside itself.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1), default=1e-6
        0 accepts only guarantees that compose purely.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        As in `PrivacyBudget`. Guarantees under the other relation are refused.

    Attributes
    ----------
    budget : PrivacyBudget
        The total.

    Notes
    -----
    Releases are composed, not the epsilons of the fits. A charge is accepted if the total
    passes one of two tests:

    * *pure*: all guarantees on the ledger compose purely, and
      :math:`\sum \varepsilon_i \le \varepsilon`;
    * *zCDP*: :math:`\sum \min(\rho_i, \varepsilon_i / \alpha) \le \rho`, where
      :math:`\rho` is `PrivacyBudget.rho` of the total and :math:`\alpha` the order at which
      its conversion is best. :math:`\rho_i` adds up the releases' costs in zCDP
      (:math:`\varepsilon_t^2 / 2` for a pure release, :math:`\varepsilon_t^2 / 8` for a
      selection with Gumbel noise), and :math:`\varepsilon_i` is infinite for guarantees
      that do not compose purely.

    Each summand of the second test, times alpha, bounds the Renyi divergence of order alpha,
    so that the sum is a Renyi filter (Feldman and Zrnic 2021): the budget holds also if fits
    are chosen after looking at the results of earlier ones. Outcomes that pass the pure test
    need no delta, so either test may be used.

    Plans of fits under an accountant are made in zCDP, so that they add up whatever their
    mechanisms are. A plan with Gaussian noise alone has up to 9 % more noise than without an
    accountant.

    Copies (`copy.copy`, `copy.deepcopy`, `sklearn.clone`) are the same object, so every fit
    of a search is charged. A pickle holds an identifier only. Loaded in the process of the
    accountant, it gives the accountant; elsewhere it gives an object that refuses every
    charge, so fits in other processes (``n_jobs > 1``) fail. An estimator that is pickled or
    copied while a block is open gets the block's accountant as its `accountant`.

    Examples
    --------
    >>> from sklearn_dpsco import BudgetAccountant, DPLassoFW
    >>> accountant = BudgetAccountant(epsilon=1.0, delta=1e-6)
    >>> model = DPLassoFW(epsilon=0.5, accountant=accountant)
    """

    def __init__(self, epsilon: float, delta: float = 1e-6, relation: str = "replace-one") -> None:
        self.budget = PrivacyBudget(epsilon, delta, relation)
        log_gap = None if self.budget.is_pure else best_log_gap(self.budget.rho, float(epsilon))
        self._order = 1.0 if log_gap is None else 1 + math.exp(log_gap)
        self._id = uuid.uuid4().hex
        self._pid: int | None = os.getpid()
        self._lock = threading.Lock()
        self._root = _Branch()
        self._ledger: list[Guarantee] = []
        _accountants[self._id] = self

    @property
    def order(self) -> float | None:
        """Order of the Renyi filter, which plans with random batches use; None for delta = 0."""
        self._check_process()
        return None if self.budget.is_pure else self._order

    @property
    def ledger(self) -> tuple[Guarantee, ...]:
        """The guarantees that were charged, in order."""
        with self._locked():
            return tuple(self._ledger)

    def spend(self, guarantee: Any) -> None:
        """Charge a guarantee, or the guarantee of a plan.

        Parameters
        ----------
        guarantee : Guarantee or Plan

        Raises
        ------
        PrivacyBudgetError
            If the total would exceed the budget, the relation is not the budget's, the
            budget has delta=0 and the guarantee does not compose purely, or this is not
            the process of the accountant. Nothing is charged then.
        ValueError
            If `guarantee` is neither a guarantee nor a plan.
        """
        guarantee = getattr(guarantee, "guarantee", guarantee)
        if not isinstance(guarantee, Guarantee):
            raise ValueError(f"guarantee must be a Guarantee or a Plan, got {guarantee!r}")
        with self._locked():
            if guarantee.relation != self.budget.relation:
                raise PrivacyBudgetError(
                    f"the accountant's relation is {self.budget.relation!r}, that of the "
                    f"guarantee {guarantee.relation!r}"
                )
            branch = self._branch()
            before = branch.own
            branch.own = before + self._cost(guarantee)
            epsilon, _, rho = self._root.total()
            if not self._allows(epsilon, rho):
                branch.own = before
                raise PrivacyBudgetError(self._refusal(epsilon, rho))
            self._ledger.append(guarantee)

    def remaining(self, delta: float | None = None) -> float:
        """Largest epsilon of one more fit outside all parallel branches; 0 if nothing is left.

        A fit with this epsilon and `delta`, and the budget's relation, is accepted if its
        guarantee composes in zCDP (delta > 0) or purely (delta = 0). A guarantee with
        delta > 0 may compose purely, too (few selections); next to others that compose in
        zCDP it costs more, and may be refused.

        Parameters
        ----------
        delta : float in [0, 1) or None
            delta of that fit. None stands for the budget's.
        """
        epsilon, _, rho = self._total()
        delta = self.budget.delta if delta is None else delta
        delta = check_real("delta", delta, low=0, high=1, high_open=True)
        left = max(0.0, self.budget.rho - rho)
        if delta > 0:
            return zcdp_epsilon(left, delta)
        return max(0.0, self.budget.epsilon - epsilon, math.sqrt(2 * left), self._order * left)

    def total_spent(self) -> float:
        """Epsilon of the ledger at the budget's delta, 0 if nothing was charged.

        The smallest of the sum of epsilons (if all compose purely), the epsilon of the sum
        of rho and that of the sum at the order of the filter, and never above the budget's. It
        holds if the fits were fixed in advance; if later ones were chosen after looking at the
        results of earlier ones, the budget itself is the guarantee.
        """
        epsilon, rho, at_order = self._total()
        delta, order = self.budget.delta, self.order
        if order is not None:
            # one part in 1e12: the other end of the bracket
            by_rho = zcdp_epsilon(rho, delta) * (1 + 1e-12)
            epsilon = min(epsilon, by_rho, renyi_epsilon(order, order * at_order, delta))
        return float(min(epsilon, self.budget.epsilon))

    @contextmanager
    def parallel(self) -> Iterator[ParallelGroup]:
        """A group of branches on disjoint records, which cost the largest of them.

        You state that no record is used in two branches, and that the branch of a record
        is fixed without looking at its values, for example by its position: a changed value
        must not move a record to another branch. Charged is the largest total of a branch, so
        a later branch costs only what exceeds that. Charges in the group but in no branch add up.

        Examples
        --------
        >>> from sklearn_dpsco import BudgetAccountant
        >>> accountant = BudgetAccountant(epsilon=1.0)
        >>> with accountant.parallel() as group:
        ...     with group.branch():
        ...         pass  # fits on the first half of the records
        ...     with group.branch():
        ...         pass  # fits on the second half
        """
        branches: list[_Branch] = []
        with self._locked():
            self._branch().groups.append(branches)
        yield ParallelGroup(self, branches)

    def _cost(self, guarantee: Guarantee) -> NDArray[np.float64]:
        """Pure epsilon, rho, and the smaller charge in rho at the budget's order."""
        rho = guarantee.cost("zcdp")
        if guarantee.composition == "pure":
            epsilon = guarantee.spent
        else:
            epsilon = math.inf if rho > 0 else 0.0
        at_order = rho if self.order is None else guarantee.renyi(self.order) / self.order
        return np.array([epsilon, rho, min(at_order, epsilon / self._order)])

    def _allows(self, epsilon: float, rho: float) -> bool:
        budget = self.budget
        return bool(epsilon <= budget.epsilon * ROUNDING or rho <= budget.rho * ROUNDING)

    def _refusal(self, epsilon: float, rho: float) -> str:
        budget, pure = self.budget, math.isfinite(epsilon)
        if budget.is_pure and not pure:
            return "a budget with delta=0 accepts only guarantees that compose purely (delta=0)"
        totals = [f"epsilon {epsilon:.6g} of {budget.epsilon:.6g}"] if pure else []
        if not budget.is_pure:
            totals.append(f"rho {rho:.6g} of {budget.rho:.6g}")
        return (
            f"the budget (epsilon={budget.epsilon:.6g}, delta={budget.delta:.6g}) would be "
            f"exceeded: with this charge the total would be {' and '.join(totals)}; nothing was "
            "charged"
        )

    def _branch(self) -> _Branch:
        """The innermost open branch of this accountant, or its root."""
        for accountant, branch in reversed(_open_branches.get()):
            if accountant is self:
                return branch
        return self._root

    def _total(self) -> NDArray[np.float64]:
        with self._locked():
            return self._root.total()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise PrivacyBudgetError(
                "this accountant lives in another process, or no longer exists: nothing can "
                "be charged to it here. Use n_jobs=1, or threads."
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._check_process()  # first: after a fork the lock may never be released
        with self._lock:
            yield

    def __enter__(self) -> BudgetAccountant:
        self._check_process()
        with _active_lock:
            if any(accountant is not self for accountant in _active):
                raise PrivacyBudgetError("the block of another accountant is open")
            _active.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _active.pop()

    def __copy__(self) -> BudgetAccountant:
        return self

    def __deepcopy__(self, memo: object) -> BudgetAccountant:
        return self

    def __sklearn_clone__(self) -> BudgetAccountant:
        return self

    def __reduce__(self) -> Any:
        return _find_accountant, (self._id,)

    def __repr__(self) -> str:
        if self._pid is None:
            return "BudgetAccountant(<of another process>)"
        budget = self.budget
        return f"BudgetAccountant({budget.epsilon!r}, {budget.delta!r}, {budget.relation!r})"


_accountants: WeakValueDictionary[str, BudgetAccountant] = WeakValueDictionary()
_active: list[BudgetAccountant] = []  # one entry for each open block, all the same object
_active_lock = threading.Lock()
_open_branches: ContextVar[tuple[tuple[BudgetAccountant, _Branch], ...]] = ContextVar(
    "_open_branches", default=()
)


def active_accountant() -> BudgetAccountant | None:
    """The accountant whose block is open in this process, if any."""
    return next(iter(_active), None)


def accountant_in_force(accountant: Any) -> BudgetAccountant | None:
    """The accountant to charge, for a parameter `accountant`: None means the open block's."""
    if accountant is None:
        return active_accountant()
    if not isinstance(accountant, BudgetAccountant):
        raise ValueError(f"accountant must be None or a BudgetAccountant, got {accountant!r}")
    return accountant


def _find_accountant(identifier: str) -> BudgetAccountant:
    """What a pickle loads: the accountant if this is its process, else one that refuses."""
    stranger = BudgetAccountant.__new__(BudgetAccountant)
    stranger._id, stranger._pid = identifier, None
    return _accountants.setdefault(identifier, stranger)
