"""The charges of a budget accountant: what they add up to, and the file that keeps them."""

from __future__ import annotations

import json
import math
import os
import shutil
import time as clock
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._checks import check_int, check_real, shown
from .branches import BranchPath
from .budget import PrivacyBudget
from .guarantee import Guarantee
from .turns import Turn

__all__ = ["Charge", "Ledger", "LedgerFile", "Snapshot", "check_string", "now"]

Cost = NDArray[np.float64]

FORMAT = "sklearn_dpsco budget ledger"
VERSION = 1
COSTS = ("pure_epsilon", "rho", "rho_at_order")
PATIENCE = 60.0  # seconds to wait for the lock; a charge holds it for some milliseconds


def now() -> datetime:
    """The time of a charge, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Charge:
    r"""An entry of a ledger. It holds public facts only.

    Attributes
    ----------
    epsilon, delta, relation, rows_per_user, composition
        The claim, as in `Guarantee`.
    pure_epsilon : float
        Cost in the sum of epsilons; infinite if the guarantee does not compose purely.
    rho : float
        Cost in the sum of rho.
    rho_at_order : float
        What the guarantee costs of the budget's rho: its Renyi divergence at the order alpha of
        the accountant is at most alpha times this.
    branch : tuple of str
        The branch of `BudgetAccountant.parallel` that was charged: group, branch, group, branch,
        ... from the outermost, a group by what was declared of it, such as "rows-1c9a27f04be3".
        Empty outside of all branches.
    label : str or None
        What the user called it.
    estimator : str or None
        Class of the estimator, or name of the private mean.
    n_samples, n_features : int or None
        Size of the table that the plan is made for; for a stream, its horizon, or the longest
        stream that there may be.
    time : datetime
        When it was charged, in UTC.
    guarantee : Guarantee or None
        The guarantee itself, if this process charged it and the accountant has not been loaded
        since.
    """

    epsilon: float
    delta: float
    relation: str
    rows_per_user: int
    composition: str
    pure_epsilon: float
    rho: float
    rho_at_order: float
    branch: BranchPath = ()
    label: str | None = None
    estimator: str | None = None
    n_samples: int | None = None
    n_features: int | None = None
    time: datetime = field(default_factory=now)
    guarantee: Guarantee | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # a file that holds what was charged can be read again
        facts = vars(self)
        PrivacyBudget(*(facts[key] for key in ("epsilon", "delta", "relation")))
        check_string("composition", self.composition)
        for key in COSTS:
            if facts[key] != math.inf:
                facts[key] = check_real(key, facts[key], low=0)
        facts["rows_per_user"] = check_int("rows_per_user", self.rows_per_user, low=1)
        for key in ("label", "estimator"):
            if facts[key] is not None:
                check_string(key, facts[key])
        for key in ("n_samples", "n_features"):
            if facts[key] is not None:
                facts[key] = check_int(key, facts[key], low=1)
        for part in self.branch:
            check_string("branch", part)
        if len(self.branch) % 2:
            raise ValueError("a branch without its group")

    @property
    def cost(self) -> Cost:
        """The vector (pure_epsilon, rho, rho_at_order)."""
        return np.array([getattr(self, key) for key in COSTS])

    def summary(self) -> dict[str, Any]:
        """All fields but the guarantee, by name."""
        return {key: value for key, value in vars(self).items() if key != "guarantee"}


class _Branch(NamedTuple):
    """Charges that may fall on the same unit: its own, and the largest of each group."""

    own: Cost
    groups: dict[str, dict[str, _Branch]]  # never changed

    def total(self) -> Cost:
        return self.own + sum((_largest(group) for group in self.groups.values()), np.zeros(3))

    def plus(self, path: BranchPath, cost: Cost) -> _Branch:
        if not path:
            return self._replace(own=self.own + cost)
        group, branch, *rest = path
        branches = self.groups.get(group, {})
        inner = branches.get(branch, _EMPTY).plus(tuple(rest), cost)
        return self._replace(groups={**self.groups, group: {**branches, branch: inner}})

    def beside(self, path: BranchPath) -> Cost:
        """What adds to further charges on this path: the total without sibling branches."""
        if not path:
            return self.total()
        group, branch, *rest = path
        others = (_largest(g) for name, g in self.groups.items() if name != group)
        inner = self.groups.get(group, {}).get(branch, _EMPTY).beside(tuple(rest))
        return self.own + sum(others, np.zeros(3)) + inner


_EMPTY = _Branch(np.zeros(3), {})


def _largest(group: dict[str, _Branch]) -> Cost:
    return np.max([np.zeros(3), *(branch.total() for branch in group.values())], axis=0)


class Ledger(NamedTuple):
    """Charges in order, and their total: a sum, of which each group gives its largest branch.

    It is never changed, so that one step puts a new state in the place of an old one.
    """

    charges: tuple[Charge, ...] = ()
    root: _Branch = _EMPTY

    def plus(self, *charges: Charge) -> Ledger:
        """The ledger with more entries."""
        root = self.root
        for charge in charges:
            root = root.plus(charge.branch, charge.cost)
        return Ledger((*self.charges, *charges), root)

    def total(self) -> Cost:
        """The vector (pure epsilon, rho, rho at the order) of the worst unit."""
        return self.root.total()

    def beside(self, branch: BranchPath) -> Cost:
        """The cost that a further charge in this branch comes on top of."""
        return self.root.beside(branch)


class Snapshot(NamedTuple):
    """What a ledger's file says."""

    id: str
    budget: PrivacyBudget
    max_rows_per_user: int
    order: float
    ledger: Ledger


class LedgerFile:
    """A ledger in a file of JSON text, of which every state is complete.

    A new state is written beside the file, forced to the disk, and put in its place in one
    step. So whoever reads sees the old state or the new one, and a file that is cut off was not
    cut off by a crash. Writers hold the lock of the file at `path` + ".lock".

    Parameters
    ----------
    path : str or path-like
        Kept as the absolute path, links followed.
    """

    def __init__(self, path: Any) -> None:
        self.path = Path(path).resolve()

    def __str__(self) -> str:
        return repr(str(self.path))

    def lock(self, turn: Turn) -> None:
        """Keep others from writing in this turn. Raises `OSError` if that cannot be had."""
        turn.take_file(Path(f"{self.path}.lock"), PATIENCE)

    def read(self) -> Snapshot:
        """What the file says; `ValueError` if that is not a whole ledger that adds up."""
        text = self.path.read_bytes()
        try:
            return _parsed(json.loads(text, parse_constant=_no_constant))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{self} is not a ledger that this version can read: {error}. If it was damaged, "
                "charges may be missing: count its budget as spent"
            ) from error

    def write(self, snapshot: Snapshot) -> None:
        """Put this state in the file. Needs the lock. Raises `OSError` if it fails."""
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.unlink(missing_ok=True)
        with open(fresh, "xb") as file:
            file.write(_text(snapshot))
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            shutil.copymode(self.path, fresh)
        _move(fresh, self.path)
        if hasattr(os, "O_DIRECTORY"):
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _move(source: Path, target: Path) -> None:
    for _ in range(20):
        try:
            os.replace(source, target)
            return
        except PermissionError:  # on Windows, while somebody reads the file
            clock.sleep(0.01)
    os.replace(source, target)


def _total(ledger: Ledger) -> dict[str, float | None]:
    return {key: _finite(cost) for key, cost in zip(COSTS, ledger.total().tolist(), strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no infinity


def _text(snapshot: Snapshot) -> bytes:
    budget = snapshot.budget
    entries = []
    for charge in snapshot.ledger.charges:
        entry = charge.summary()
        costs = {key: _finite(entry[key]) for key in COSTS}
        entries.append(entry | costs | {"time": charge.time.isoformat()})
    document = {
        "format": FORMAT,
        "version": VERSION,
        "id": snapshot.id,
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        "relation": budget.relation,
        "max_rows_per_user": snapshot.max_rows_per_user,
        "order": snapshot.order,
        "total": _total(snapshot.ledger),
        "charges": entries,
    }
    return json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"


def _no_constant(name: str) -> float:
    raise ValueError(f"it holds {name}")


def _parsed(document: Any) -> Snapshot:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"it does not say that its format is {FORMAT!r}")
    if document["version"] != VERSION:
        raise ValueError(
            f"it has version {document['version']!r} of the format, this is version {VERSION}"
        )
    budget = PrivacyBudget(*(document[key] for key in ("epsilon", "delta", "relation")))
    rows = check_int("max_rows_per_user", document["max_rows_per_user"], low=1)
    order = check_real("order", document["order"], low=1)
    ledger = Ledger().plus(*(_charge(entry, budget) for entry in document["charges"]))
    if document["total"] != _total(ledger):
        raise ValueError("its charges do not add up to its total")
    return Snapshot(check_string("id", document["id"]), budget, rows, order, ledger)


def _charge(entry: dict[str, Any], budget: PrivacyBudget) -> Charge:
    if set(entry) != set(Charge.__dataclass_fields__) - {"guarantee"}:
        raise ValueError("a charge with missing or unexpected keywords")
    costs = {key: math.inf if entry[key] is None else entry[key] for key in COSTS}
    branch, time = tuple(entry["branch"]), datetime.fromisoformat(entry["time"])
    charge = Charge(**entry | costs | {"branch": branch, "time": time})
    if charge.relation != budget.relation:
        raise ValueError("a charge has another relation than the budget")
    return charge


def check_string(name: str, value: Any) -> str:
    """Return `value` if it is a string."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {shown(value)}")
    return value
