"""What a fit is charged to, and branches of it for disjoint records or users."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from .._checks import check_choice
from .._types import Disjoint
from .budget import Currency, PrivacyBudget

__all__ = ["Account", "Branch", "BranchPath", "ParallelGroup", "are_users_disjoint"]

BranchPath = tuple[str, ...]  # group, branch, group, branch, ... from the outermost


class Account(ABC):
    """What a fit is charged to: an accountant, a branch of one, or a part of a search's budget.

    Copies are the same object, so that all copies of an estimator share it.
    """

    @property
    @abstractmethod
    def budget(self) -> PrivacyBudget:
        """The total."""

    @property
    @abstractmethod
    def currency(self) -> Currency:
        """That of plans of fits under it."""

    @property
    @abstractmethod
    def order(self) -> float | None:
        """Order of a Renyi filter, which plans with random batches use."""

    @property
    @abstractmethod
    def max_rows_per_user(self) -> int:
        """Most rows of a user whom the budget is for."""

    @abstractmethod
    def spend(
        self, guarantee: Any, label: str | None = None, *, estimator: str | None = None,
        has_groups: bool = False,
    ) -> None:  # fmt: skip
        """Charge a guarantee, or that of a plan; raises `PrivacyBudgetError` if it is refused."""

    def covers(self, other: Account) -> bool:
        """Whether a charge here counts for all records for which one there would."""
        (root, path), (other_root, other_path) = self._place(), other._place()
        return root == other_root and other_path[: len(path)] == path

    def _place(self) -> tuple[Account, BranchPath]:
        return self, ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __sklearn_clone__(self) -> Self:
        return self


class _NoBlock:
    """What is no block: code that runs in between would not know whether it is inside."""

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "branches are given, not entered: group = accountant.parallel(), and then "
            "accountant=group.branch() for the fits of each branch"
        )

    def __exit__(self, *exception: object) -> None: ...


@dataclass(frozen=True)
class Branch(_NoBlock, Account):
    """A branch of an accountant; give it as ``accountant=`` to what uses its records only.

    Made by `ParallelGroup.branch`. Its copies and pickles are the same branch, of the accountant
    that copies and pickles of the accountant stand for, in worker processes, too. What is given
    the accountant itself is in no branch, and adds to all of them.

    Attributes
    ----------
    accountant : BudgetAccountant
    path : tuple of str
        As the ledger shows it, see `Charge`.

    Examples
    --------
    >>> from sklearn_dpsco import BudgetAccountant, DPLassoFW
    >>> group = BudgetAccountant(epsilon=1.0).parallel()
    >>> models = [DPLassoFW(accountant=group.branch()) for _ in range(2)]
    """

    accountant: Account
    path: BranchPath

    @property
    def budget(self) -> PrivacyBudget:
        """That of the accountant."""
        return self.accountant.budget

    @property
    def currency(self) -> Currency:
        """That of the accountant."""
        return self.accountant.currency

    @property
    def order(self) -> float | None:
        """That of the accountant."""
        return self.accountant.order

    @property
    def max_rows_per_user(self) -> int:
        """That of the accountant."""
        return self.accountant.max_rows_per_user

    def spend(
        self, guarantee: Any, label: str | None = None, *, estimator: str | None = None,
        has_groups: bool = False,
    ) -> None:  # fmt: skip
        """Charge a guarantee to the records of this branch, see `BudgetAccountant.spend`."""
        root: Any = self.accountant
        root._charge(self.path, guarantee, label, estimator, has_groups)

    def remaining(self, delta: float | None = None) -> float:
        """Largest epsilon of one more fit in this branch, see `BudgetAccountant.remaining`."""
        root: Any = self.accountant
        return float(root._remaining(self.path, delta))

    def parallel(self, disjoint: Disjoint = "rows") -> ParallelGroup:
        """Branches inside of this one, see `BudgetAccountant.parallel`."""
        return ParallelGroup(self.accountant, self.path, disjoint)

    def _place(self) -> tuple[Account, BranchPath]:
        return self.accountant, self.path


class ParallelGroup(_NoBlock):
    """Branches on disjoint records or users; made by `BudgetAccountant.parallel`."""

    def __init__(self, accountant: Account, path: BranchPath, disjoint: Any) -> None:
        check_choice("disjoint", disjoint, ("rows", "users"))
        self._accountant = accountant
        self._path = (*path, f"{disjoint}-{secrets.token_hex(6)}")  # the ledger keeps what was said

    def branch(self) -> Branch:
        """One more branch."""
        return Branch(self._accountant, (*self._path, secrets.token_hex(6)))


def are_users_disjoint(path: BranchPath) -> bool:
    """Whether each user's rows are in one branch of each group on the path."""
    return all(group.startswith("users-") for group in path[::2])
