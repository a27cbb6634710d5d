"""What a fit is charged to, and branches of it for disjoint records or users."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, NoReturn, Self

from .._checks import check_choice, check_int, shown, warn_user
from .._types import Disjoint
from ..exceptions import PrivacyBudgetError, PrivacyLeakWarning, PrivacyParameterWarning
from .budget import Currency, PrivacyBudget
from .guarantee import Guarantee

INFINITE = "epsilon=inf is a fit without noise, which no budget allows: nothing was charged"
BranchPath = tuple[str, ...]  # group, branch, group, branch, ... from the outermost


class Account:
    """What a fit is charged to: an accountant, a branch of one, or a part of a search's budget."""

    def _place(self) -> tuple[Any, BranchPath]:
        """The accountant, and the branch of it."""
        return self, ()

    def _terms(self) -> tuple[PrivacyBudget, Currency, float | None, int]:
        """`budget`, `currency`, `order` and `max_rows_per_user`."""
        return self._place()[0]._terms()

    @property
    def budget(self) -> PrivacyBudget:
        """The total."""
        return self._terms()[0]

    @property
    def currency(self) -> Currency:
        """That of plans of fits under it, in which they add up: "gdp" or "zcdp"."""
        return self._terms()[1]

    @property
    def order(self) -> float | None:
        """Order of the Renyi filter of zCDP, for plans with random batches; else None."""
        return self._terms()[2]

    @property
    def max_rows_per_user(self) -> int:
        """Most rows of a user whom the budget is for."""
        return self._terms()[3]

    def spend(
        self,
        guarantee: Any,
        label: str | None = None,
        *,
        estimator: str | None = None,
        has_groups: bool = False,
        noise_is_secret: bool = True,
    ) -> None:
        """Charge a guarantee, or the guarantee of a plan.

        Parameters
        ----------
        guarantee : Guarantee or Plan
        label : str or None
            What to call the charge. None stands for that of the innermost open `label` block.
        estimator : str or None
            Name of what is fitted.
        has_groups : bool, default=False
            Whether the fit was told which user each row belongs to, and lets at most the
            guarantee's `rows_per_user` rows of each count: then it protects users, of however many
            rows.
        noise_is_secret : bool, default=True
            False where the noise follows from a seed: a `PrivacyLeakWarning` says that the claim
            does not hold against who knows or guesses it, or sees another result of it, and the
            ledger keeps that.

        Raises
        ------
        PrivacyBudgetError
            If the total would exceed the budget, the relation is not the budget's, the budget has
            delta=0 and the guarantee does not compose purely, users are protected in a branch of
            disjoint records, this is not the process of the accountant, or its file cannot be read
            or written. Nothing is charged.
        ValueError
            If `guarantee` is neither a guarantee nor a plan, `label` or `estimator` no string, or a
            size of the plan no positive integer. Nothing is charged.

        Examples
        --------
        Fits charge by themselves. This is for a release of your own:

        >>> from sklearn_dpsco import BudgetAccountant
        >>> from sklearn_dpsco.means import plan_mean
        >>> accountant = BudgetAccountant(epsilon=1.0, delta=1e-6)
        >>> plan = plan_mean(5000, 2, epsilon=0.5, accountant=accountant)
        >>> accountant.spend(plan, "mean of the first columns")
        >>> 0.49 < accountant.total_spent() <= 0.51
        True
        """
        account, path = self._place()
        if not noise_is_secret:  # before the charge: who makes errors of warnings spends nothing
            warn_user(
                f"random_state was given to what is charged ({estimator}): who knows or guesses "
                "it, or sees another result of it, can take off the noise, and nothing is private "
                "against them. Leave it at None for a release",
                PrivacyLeakWarning,
            )
        plan, guarantee = guarantee, getattr(guarantee, "guarantee", guarantee)
        if not isinstance(guarantee, Guarantee):
            raise ValueError(f"guarantee must be a Guarantee or a Plan, got {shown(guarantee)}")
        if guarantee.is_void:
            raise PrivacyBudgetError(INFINITE)
        account._check_process()
        if label is None and account._labels:
            [label] = account._labels[-1]  # that of the innermost open block
        sized = getattr(plan, "problem", plan)
        named = {key: getattr(sized, key, None) for key in ("n_samples", "n_features")}
        named |= {"label": label, "estimator": estimator, "noise_is_secret": noise_is_secret}
        if path and estimator and not _name_of(path):
            _warn_of_another_run(account, path, named)
        accept = partial(account._accept, guarantee, branch=path, has_groups=has_groups, **named)
        account._in_turn(accept)

    def remaining(self, delta: float | None = None, *, n_fits: int = 1) -> float:
        """Largest epsilon of one more fit on all records, or in a branch; 0 if nothing is left.

        Or of each of several fits that share what is left evenly: more than its n-th part, as noise
        is composed and not epsilon.

        A fit with this epsilon and `delta`, and the budget's relation, is accepted if its guarantee
        composes in the `currency` (delta > 0) or purely (delta = 0). One with delta > 0 that
        composes otherwise (purely, by few selections, or by random batches) costs more next to
        others, and may be refused.

        Parameters
        ----------
        delta : float in [0, 1) or None
            delta of that fit. None stands for the budget's.
        n_fits : int >= 1, default=1

        Examples
        --------
        >>> from sklearn_dpsco import BudgetAccountant, DPLinearRegression
        >>> accountant = BudgetAccountant(epsilon=1.0, delta=1e-6)
        >>> model = DPLinearRegression(epsilon=0.5, bounds_X=(0, 1), bounds_y=(0, 1))
        >>> with accountant:
        ...     _ = model.fit([[0.0], [1.0]] * 500, [0.0, 1.0] * 500)
        >>> 0.5 < accountant.remaining() < 1.0  # noise is composed, so that more is left than 0.5
        True
        >>> round(BudgetAccountant(epsilon=1.0).remaining(n_fits=5), 3)  # and not 0.2
        0.422
        """
        root, path = self._place()
        n_fits = check_int("n_fits", n_fits, low=1)
        return float(root._in_turn().left(path, delta, n_fits))

    def parallel(self, disjoint: Disjoint = "rows") -> ParallelGroup:
        """A group of branches on disjoint records, which cost the largest of them.

        You state that no record is used in two branches, and that the branch of a record is fixed
        without looking at its values, for example by its position: a changed value must not move a
        record to another branch. Charged is the largest total of a branch, so a later branch costs
        only what exceeds that. What is charged to the accountant itself adds to all branches.

        A user with records in two branches bears both. So fits with `groups`, or with
        max_rows_per_user > 1 (a promise about the whole table), are refused in them, unless you
        state of this group, and of those around it, that all records of a user are in one branch.

        Parameters
        ----------
        disjoint : {"rows", "users"}, default="rows"
            What is in one branch only.
        """
        check_choice("disjoint", disjoint, ("rows", "users"))
        root, path = self._place()
        # the ledger keeps what was said
        return ParallelGroup(root, (*path, f"{disjoint}-{secrets.token_hex(6)}"))

    def branch(self, name: str | BranchPath) -> Branch:
        """A branch of the ledger to go on with: what is charged to it adds to its own charges.

        For a later program, or another one. `Branch.group` has further branches of its group.

        Parameters
        ----------
        name : str or tuple of str
            The name that the branch was given, or `Charge.branch` of one of its charges.

        Raises
        ------
        ValueError
            If nothing was charged to a branch of that name, or to several.

        Examples
        --------
        >>> from sklearn_dpsco import BudgetAccountant
        >>> from sklearn_dpsco.means import plan_mean
        >>> accountant = BudgetAccountant(epsilon=1.0)
        >>> accountant.parallel().branch("train").spend(plan_mean(5000, 2, epsilon=0.5))
        >>> train = accountant.branch("train")  # tomorrow, after `BudgetAccountant.load`
        >>> test = train.group.branch("test")  # of records that are not in train
        >>> train.remaining() < test.remaining() <= 1.0
        True
        """
        root, path = self._place()
        known = _charged(root, path)
        if len(found := [one for one in known if name and name in (_name_of(one), one)]) != 1:
            names = ", ".join(map(repr, sorted({n for n in map(_name_of, known) if n})))
            advice = (
                "Take the one that you mean by a charge: accountant.branch(ledger[0].branch)"
                if found
                else "One that nothing was charged to is opened again by its group, such as "
                "accountant.branch('train').group.branch('test')"
            )
            raise ValueError(
                f"{len(found) or 'no'} branches with charges are called {shown(name)}; those with "
                f"a name: {names or 'none'}. {advice}"
            )
        return Branch(root, found[0])

    def covers(self, other: Account) -> bool:
        """Whether a charge here counts for all records for which one there would."""
        (root, path), (other_root, other_path) = self._place(), other._place()
        return root == other_root and other_path[: len(path)] == path

    # all copies of an estimator share it
    def __copy__(self, memo: object = None) -> Self:
        return self

    __deepcopy__ = __sklearn_clone__ = __copy__


@dataclass(frozen=True)
class Branch(Account):
    """A branch of an accountant; give it as ``accountant=`` to what uses its records only.

    Made by `ParallelGroup.branch`, and taken up again by `BudgetAccountant.branch`. Copies and
    pickles are the same branch, also in worker processes. What is given the accountant itself is in
    no branch, and adds to all of them.

    Attributes
    ----------
    accountant : BudgetAccountant
    path : tuple of str
        As the ledger shows it, see `Charge`.

    Examples
    --------
    >>> from sklearn_dpsco import BudgetAccountant, DPLassoFW
    >>> group = BudgetAccountant(epsilon=1.0).parallel()
    >>> first = DPLassoFW(accountant=group.branch("first"))  # for half of the records
    >>> second = DPLassoFW(accountant=group.branch("second"))  # for the rest
    """

    accountant: Account
    path: BranchPath

    def _place(self) -> tuple[Any, BranchPath]:
        return self.accountant, self.path

    @property
    def group(self) -> ParallelGroup:
        """Its group, for branches on records that are in no other branch of it, now or before."""
        return ParallelGroup(self.accountant, self.path[:-1])

    def __repr__(self) -> str:
        """By the names that were given; the numbers in the path say nothing to people."""
        names = (_name_of((part,)) or "unnamed" for part in self.path[1::2])
        return f"<branch {' > '.join(names)} of {self.accountant!r}>"

    # what is no block: code that runs in between would not know whether it is inside
    def __enter__(self) -> NoReturn:
        raise TypeError(
            "branches are given, not entered: group = accountant.parallel(), and then "
            "accountant=group.branch(name) for the fits of each branch"
        )

    def __exit__(self, *exception: object) -> None: ...


@dataclass(eq=False, repr=False)
class ParallelGroup:
    """Branches on disjoint records or users; made by `BudgetAccountant.parallel`."""

    accountant: Any
    path: BranchPath

    __enter__, __exit__ = Branch.__enter__, Branch.__exit__

    def branch(self, name: str | None = None) -> Branch:
        """One more branch, or that of the name if the group has one.

        Parameters
        ----------
        name : str or None
            What `BudgetAccountant.to_frame`, reports and displays call it, beside its number. A
            name is one branch of the group, in any process. None is a new branch each time, also
            when the same line runs again: then a charge like one of another branch warns.

        Examples
        --------
        >>> from sklearn_dpsco import BudgetAccountant
        >>> from sklearn_dpsco.means import plan_mean
        >>> accountant = BudgetAccountant(epsilon=1.0)
        >>> regions = accountant.parallel()
        >>> for region in ("north", "south"):
        ...     regions.branch(region).spend(plan_mean(5000, 2, epsilon=0.5))
        >>> accountant.to_frame()["branch"].tolist()
        ['branch 1 of 2 (north)', 'branch 2 of 2 (south)']
        """
        if not (name is None or (isinstance(name, str) and name)):
            raise ValueError(f"name of a branch must be a text or None, got {shown(name)}")
        if name is None:
            return Branch(self.accountant, (*self.path, secrets.token_hex(6)))
        siblings = [
            path
            for path in _charged(self.accountant, self.path[:-1])
            if len(path) == len(self.path) + 1 and _name_of(path) == name
        ]
        own = [path for path in siblings if path[:-1] == self.path]
        if len(own) > 1:  # of earlier versions, which made a new one each time
            raise ValueError(
                f"{len(own)} branches of this group are called {name!r}: take the one that you "
                "mean by a charge of it: accountant.branch(ledger[0].branch)"
            )
        if siblings and not own:
            warn_user(
                f"the ledger has a branch {name!r} of another group, and this new one adds up with "
                f"it. To go on with that one, take accountant.branch({name!r})",
                PrivacyParameterWarning,
            )
        # no chance in it: processes that open it at the same time must have the same one
        key = f"{sha256(name.encode(errors='surrogatepass')).hexdigest()[:12]} {name}"
        return Branch(self.accountant, own[0] if own else (*self.path, key))


def _warn_of_another_run(accountant: Any, path: BranchPath, named: dict[str, Any]) -> None:
    """Warn where another branch of the group was charged the same, as by the same line run again.

    By public facts, and before the charge.
    """
    facts = "estimator", "label", "n_samples", "n_features"
    others = (c for c in accountant.ledger if c.branch[:-1] == path[:-1] and c.branch != path)
    if any(all(getattr(charge, name) == named[name] for name in facts) for charge in others):
        warn_user(
            f"this group has another branch of {named['estimator']} on as many records, and counts "
            "this one as of other records. If it is the same line run again, that is not so: give "
            "each branch a name, as in group.branch('train'), which stays one branch",
            PrivacyParameterWarning,
        )


def _charged(accountant: Any, path: BranchPath) -> list[BranchPath]:
    """The branches below a path that were charged, or of which one below was, as they come."""
    paths = [charge.branch for charge in accountant.ledger if charge.branch[: len(path)] == path]
    inside = (one[:k] for one in paths for k in range(len(path) + 2, len(one) + 1, 2))
    return list(dict.fromkeys(inside))


def _name_of(path: BranchPath) -> str:
    """The name that a branch was given, or none."""
    return path[-1].partition(" ")[2]


def branch_names(charges: Sequence[Any]) -> list[str]:
    """What people call the branches of these charges."""
    return [" > ".join(levels) or "all records" for levels in branch_levels(charges)]


def branch_levels(charges: Sequence[Any]) -> list[list[str]]:
    """From the outermost: by numbers, as they come, and by names that were given."""
    paths: list[BranchPath] = [charge.branch for charge in charges]
    known: dict[BranchPath, dict[str, int]] = {}  # groups of a branch, and branches of a group
    for path in paths:
        for k, part in enumerate(path):
            siblings = known.setdefault(path[:k], {})
            siblings.setdefault(part, len(siblings) + 1)

    def level(path: BranchPath) -> str:
        *_, group, branch = path
        groups, branches, given = known[path[:-2]], known[path[:-1]], _name_of(path)
        text = f"branch {branches[branch]} of {len(branches)}" + (f" ({given})" if given else "")
        return f"group {groups[group]} of {len(groups)}, {text}" if len(groups) > 1 else text

    return [[level(path[:k]) for k in range(2, len(path) + 1, 2)] for path in paths]
