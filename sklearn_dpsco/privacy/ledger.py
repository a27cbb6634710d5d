"""The charges of a budget accountant: what they add up to, and the file that keeps them.

And turns at a ledger: one thread after the other, and with a file one process after the other.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time as clock
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from .._checks import check_bool, check_choice, check_int, check_real, check_string
from .._types import Array
from ..randomness.stream import current_process
from .branches import BranchPath
from .budget import ROUNDING, Currency, PrivacyBudget, pure_of_mu, renyi_epsilon, size_epsilon
from .guarantee import Guarantee

FORMAT = "sklearn_dpsco budget ledger"
VERSION = 1
_CLAIM = ("epsilon", "delta", "relation")
COSTS = ("pure_epsilon", "rho", "rho_at_order", "half_mu_squared", "slack")
_LATER = "noise_is_secret", "has_groups", "noise_is_exact"  # files of earlier versions lack them
# Costs that are left out of a file where they are this, the default: earlier versions lack both.
_USUAL = {"half_mu_squared": math.inf, "slack": 0.0}
# place of the cost that adds up
_COLUMN = {"gdp": COSTS.index("half_mu_squared"), "zcdp": COSTS.index("rho_at_order")}
_MOST_UNITS = 64  # that are told apart: as a rule few are, since most costs grow together


@dataclass(frozen=True)
class Charge:
    r"""An entry of a ledger. It holds public facts only.

    Attributes
    ----------
    epsilon, delta, relation, rows_per_user, composition
        The claim, as in `Guarantee`.
    pure_epsilon : float
        Its term of the sum of epsilons; infinite if the guarantee does not compose purely.
    rho : float
        Its term of the sum of rho.
    rho_at_order : float
        What the guarantee costs of the budget's rho: its Renyi divergence at the order alpha of
        the accountant is at most alpha times this.
    half_mu_squared : float
        What it costs of the budget's mu^2 / 2 in Gaussian DP; infinite if nothing is known there.
    slack : float
        Part of delta with which something is told that the other costs do not cover.
    branch : tuple of str
        The branch of `BudgetAccountant.parallel` that was charged: group, branch, group, branch,
        ... from the outermost, a group by what was declared of it, such as "rows-1c9a27f04be3", a
        branch as "77ab01e4c2d5 north", if it has a name. `BudgetAccountant.to_frame` has words.
    label : str or None
        What the user called it.
    estimator : str or None
        Class of the estimator, or name of the private mean.
    n_samples, n_features : int or None
        Size of the table that the plan is made for; for a stream, the longest that there may be.
    time : datetime
        When it was charged, in UTC.
    noise_is_secret : bool or None
        False if the noise followed from a seed. None in files of earlier versions, which do not
        say.
    has_groups : bool or None
        Whether the fit was told whose each row is. If not, that nobody has more than
        `rows_per_user` rows is a promise. None in files of earlier versions, which do not say.
    noise_is_exact : bool or None
        False if noise was drawn in floating point (``precision="float"``). None in files of earlier
        versions, which do not say.
    guarantee : Guarantee or None
        The guarantee itself, if this process charged it and has not loaded the accountant since.
    """

    epsilon: float
    delta: float
    relation: str
    rows_per_user: int
    composition: str
    pure_epsilon: float
    rho: float
    rho_at_order: float
    half_mu_squared: float = math.inf
    slack: float = 0.0
    branch: BranchPath = ()
    label: str | None = None
    estimator: str | None = None
    n_samples: int | None = None
    n_features: int | None = None
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    noise_is_secret: bool | None = None
    has_groups: bool | None = None
    noise_is_exact: bool | None = None
    guarantee: Guarantee | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # a file that holds what was charged can be read again
        facts = vars(self)
        PrivacyBudget(*(facts[key] for key in _CLAIM))
        check_string("composition", self.composition)
        for key in COSTS:
            if facts[key] != math.inf:
                facts[key] = check_real(key, facts[key], low=0)
        facts["rows_per_user"] = check_int("rows_per_user", self.rows_per_user, low=1)
        checks: dict[str, Any] = dict.fromkeys(("label", "estimator"), check_string)
        checks |= dict.fromkeys(("n_samples", "n_features"), partial(check_int, low=1))
        for key, check in (checks | dict.fromkeys(_LATER, check_bool)).items():
            if facts[key] is not None:
                facts[key] = check(key, facts[key])
        for part in self.branch:
            check_string("branch", part)
        if len(self.branch) % 2:
            raise ValueError("a branch without its group")

    @property
    def cost(self) -> Array:
        """The vector of `COSTS`."""
        return np.array([getattr(self, key) for key in COSTS])

    def summary(self) -> dict[str, Any]:
        """All fields but the guarantee, by name."""
        return {key: value for key, value in vars(self).items() if key != "guarantee"}


class Ledger(NamedTuple):
    """Charges and what they cost; never changed, so that one step puts a new state in its place."""

    charges: tuple[Charge, ...] = ()  # in order
    own: Array = np.zeros(len(COSTS))  # of those on all records
    groups: dict[str, dict[str, Ledger]] = {}  # by group and branch

    def total(self) -> Array:
        """At least what any unit bears, each cost by itself."""
        groups: Any = self.groups.values()
        largest = (np.max([one.total() for one in group.values()], axis=0) for group in groups)
        return self.own + sum(largest)

    def units(self, path: BranchPath = ()) -> list[Array]:
        """What the units bear of which none bears less than another in all costs.

        With a path, those of units there, which are in no sibling of its branches.
        """
        found = [self.own]
        for group, branches in self.groups.items():
            inside, further = list(branches.values()), path[:0]
            if path[:1] == (group,):
                inside, further = [branches.get(path[1], Ledger())], path[2:]
            costs = [cost for inner in inside for cost in inner.units(further)]
            found = _foremost([one + other for one in found for other in _foremost(costs)])
        return found

    @property
    def slack(self) -> float:
        """The largest that a unit bears, added up as where it is accepted."""
        return float(max(cost[-1] for cost in self.units()))

    def plus(self, *charges: Charge) -> Ledger:
        """The ledger with more entries."""
        ledger = self
        for charge in charges:
            ledger = ledger._with(charge.branch, charge.cost)
        return ledger._replace(charges=(*self.charges, *charges))

    def _with(self, path: BranchPath, cost: Array) -> Ledger:
        """With a cost on a branch; branches list no charges."""
        if not path:
            return self._replace(own=self.own + cost)
        group, branch = path[:2]
        branches = self.groups.get(group, {})
        inner = branches.get(branch, Ledger())._with(path[2:], cost)
        return self._replace(groups={**self.groups, group: {**branches, branch: inner}})


def _foremost(costs: list[Array]) -> list[Array]:
    """Those that no other exceeds in all; or, if these are many, one that exceeds them."""
    kept: list[Array] = []
    for cost in sorted(costs, key=tuple, reverse=True):
        if not any(np.all(other >= cost) for other in kept):
            kept.append(cost)
    return kept if len(kept) <= _MOST_UNITS else [np.max(kept, axis=0)]


class Snapshot(NamedTuple):
    """What a ledger's file says, as JSON text. Writers hold the lock of a second file."""

    id: str
    budget: PrivacyBudget
    max_rows_per_user: int
    order: float
    slack: float
    composition: Currency  # "gdp" or "zcdp": how the costs add up
    ledger: Ledger = Ledger()

    @property
    def whole(self) -> PrivacyBudget:
        """The budget next to the slack that is kept."""
        return replace(self.budget, delta=self.budget.delta - self.slack)

    @property
    def size(self) -> float:
        """What the costs may add up to, in the currency of `composition`."""
        return self.whole.mu**2 / 2 if self.composition == "gdp" else self.whole.rho

    @property
    def is_within(self) -> bool:
        """Whether what each unit bears passes a test: that of epsilons, or that of the currency."""
        pure, whole = self.budget.epsilon, self.size * ROUNDING  # the first is the claim itself
        column = _COLUMN[self.composition]
        return all(
            (unit[0] <= pure or unit[column] <= whole) and unit[-1] <= self.slack
            for unit in self.ledger.units()
        )

    def spent(self, most: float | None = None) -> float:
        """Epsilon of the ledger at the budget's delta, at most the budget's epsilon or `most`."""
        found, budget = [], self.budget
        for epsilon, rho, at_order, half_mu_squared, slack in self.ledger.units():
            delta = budget.delta - slack
            bounds = [budget.epsilon if most is None else most, epsilon]
            if delta > 0 and at_order > 0:
                sizes = {"zcdp": rho, "gdp": math.sqrt(2 * half_mu_squared)}
                for currency in {"zcdp", self.composition}:
                    if math.isfinite(size := sizes[currency]):
                        # one part in 1e12: the other end of the bracket
                        bounds.append(size_epsilon(currency, size, delta) * (1 + 1e-12))
                bounds.append(renyi_epsilon(self.order, self.order * at_order, delta))
            found.append(float(min(bounds)))
        return max(found)

    def left(self, path: BranchPath = (), delta: float | None = None, n_fits: int = 1) -> float:
        """Largest epsilon of one more fit at this path, or of each of so many; see `remaining`."""
        delta = self.budget.delta if delta is None else delta
        delta = check_real("delta", delta, low=0, high=1, high_open=True)
        found, is_gdp = [], self.composition == "gdp"
        for unit in self.ledger.units(path):
            left = max(0.0, self.size - float(unit[_COLUMN[self.composition]])) / n_fits
            pure = (self.budget.epsilon - unit[0]) / n_fits
            root = math.sqrt(2 * left)
            if delta == 0:
                by_size = pure_of_mu(root) if is_gdp else max(root, self.order * left)
                found.append(float(max(0.0, pure, by_size)))
            else:
                found.append(size_epsilon(self.composition, root if is_gdp else left, delta))
        return min(found)

    def plus(self, *charges: Charge) -> Snapshot:
        """The state with more charges."""
        return self._replace(ledger=self.ledger.plus(*charges))

    @classmethod
    def read(cls, path: Path) -> Snapshot:
        """What the file says; `ValueError` if that is not a whole ledger that adds up."""
        text = path.read_bytes()
        try:
            document = json.loads(text, parse_constant=_no_constant)
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise ValueError(f"it does not say that its format is {FORMAT!r}")
            if (version := document["version"]) != VERSION:
                raise ValueError(
                    f"it has version {version!r} of the format, this is version {VERSION}"
                )
            budget = PrivacyBudget(*(document[key] for key in _CLAIM))
            rows = check_int("max_rows_per_user", document["max_rows_per_user"], low=1)
            order = check_real("order", document["order"], low=1)
            slack = check_slack(document.get("slack", 0.0), budget)
            kind = document.get("composition", "zcdp")
            composition: Any = check_choice("composition", kind, tuple(_COLUMN))
            charges = []
            for entry in document["charges"]:
                names = set(Charge.__dataclass_fields__) - {"guarantee"}
                if set(entry) | {*_USUAL, *_LATER} != names:
                    raise ValueError("a charge with missing or unexpected keywords")
                infinite = {key: math.inf for key in COSTS if entry.get(key, 0.0) is None}
                branch, time = tuple(entry["branch"]), datetime.fromisoformat(entry["time"])
                charge = Charge(**entry | infinite | {"branch": branch, "time": time})
                if charge.relation != budget.relation:
                    raise ValueError("a charge has another relation than the budget")
                charges.append(charge)
            ledger = Ledger().plus(*charges)
            if document["total"] != _stated(ledger.total()):
                raise ValueError("its charges do not add up to its total")
            if ledger.slack > slack:
                raise ValueError("its charges have more slack than it keeps")
            facts = check_string("id", document["id"]), budget, rows, order, slack, composition
            return cls(*facts, ledger)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{str(path)!r} is not a ledger that this version can read: {error}. If it was "
                "damaged, charges may be missing: count its budget as spent"
            ) from error

    def write(self, path: Path) -> None:
        """Put this state in the file. Needs the lock. Raises `OSError` if it fails.

        It is written beside the file, forced to the disk, and put in its place in one step, so that
        every state of the file is complete.
        """
        document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "id": self.id}
        document |= {key: getattr(self.budget, key) for key in _CLAIM}
        document |= {key: getattr(self, key) for key in ("max_rows_per_user", "order")}
        document |= {"slack": self.slack} if self.slack else {}
        document |= {"composition": self.composition} if self.composition != "zcdp" else {}
        document |= {"total": _stated(self.ledger.total())}
        document["charges"] = [
            {key: value for key, value in charge.summary().items() if key not in COSTS}
            | _stated(charge.cost)
            | {"time": charge.time.isoformat()}
            for charge in self.ledger.charges
        ]
        text = json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"
        fresh = path.with_name(path.name + ".new")
        fresh.unlink(missing_ok=True)
        with open(fresh, "xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, fresh)
        for left in reversed(range(21)):
            try:
                os.replace(fresh, path)
                break
            except PermissionError:  # on Windows, while somebody reads the file
                if not left:
                    raise
                clock.sleep(0.01)
        if hasattr(os, "O_DIRECTORY"):
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _stated(cost: Array) -> dict[str, float | None]:
    """The costs by name, but for `_USUAL` ones; JSON has no infinity."""
    named = zip(COSTS, cost.tolist(), strict=True)
    told = {key: value for key, value in named if value != _USUAL.get(key)}
    return {key: value if math.isfinite(value) else None for key, value in told.items()}


def _no_constant(name: str) -> float:
    raise ValueError(f"it holds {name}")


def check_slack(value: Any, budget: PrivacyBudget) -> float:
    """Return `value` if an accountant can keep that much of delta."""
    most = budget.delta
    return check_real("slack", value, low=0, high=most, high_open=most > 0)


# --------------------------------------------------------------------------------- turns

PATIENCE = 60.0  # seconds to wait for the lock of a file; a charge holds it for some milliseconds

# The package for this that is kept up makes some forks fail in the program that imports it. What is
# needed is one exclusive lock of the operating system, which ends with its process.
if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, *, is_end: bool = False) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK if is_end else msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int, *, is_end: bool = False) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN if is_end else fcntl.LOCK_EX | fcntl.LOCK_NB)


_files: WeakSet[FileIO] = WeakSet()  # of this process


def _after_fork_in_child() -> None:
    # or the child would hold the lock on if the parent is killed; this does not unlock it
    for file in list(_files):
        with suppress(OSError):
            file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Turn:
    """One turn, taken inside of its own block: ``with turn, turn: turn.take()``.

    Ctrl-C may come between any two steps of the interpreter, and leaves nothing taken. Nothing is
    before the block, and its end gives back whatever is: each step that takes something tells at
    once who has it (`dict.setdefault`, or a file object, which closes its descriptor). It is two
    blocks, since the end of one may be interrupted: then that of the other one does the same again.
    `holder` says who has the turn, by process: after a fork, other threads never give theirs back.
    All who exclude one another share it.
    """

    def __init__(self, holder: dict[Any, Turn]) -> None:
        self._holder = holder
        self._file: FileIO | None = None

    def take(self, patience: float = math.inf) -> None:
        """Exclude other threads. Raises `TimeoutError` after so many seconds."""
        key = current_process()
        self._wait(
            lambda: self._holder.setdefault(key, self) is self, patience, "thread has the turn"
        )

    def take_file(self, path: Path) -> None:
        """Exclude whoever takes the same file, in any process. Raises as `take`, or `OSError`."""
        lock = Path(f"{path}.lock")
        self._wait(lambda: self._has_file(lock), PATIENCE, f"process holds the lock {str(lock)!r}")

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None:
        try:
            self._give_back_file()
        finally:
            if self._holder.get(key := current_process()) is self:
                del self._holder[key]

    def _wait(self, has: Callable[[], bool], patience: float, other: str) -> None:
        deadline = clock.monotonic() + patience
        while not has():
            if clock.monotonic() > deadline:
                raise TimeoutError(f"another {other}")
            clock.sleep(0.001)

    def _has_file(self, path: Path) -> bool:
        self._file = file = FileIO(path, "a+")
        _files.add(file)  # so that no child keeps it
        # held, as the systems say it; or removed a moment ago
        with suppress(BlockingIOError, PermissionError, FileNotFoundError):
            _lock(file.fileno())
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return True
        self._give_back_file()
        return False

    def _give_back_file(self) -> None:
        if self._file is not None and not self._file.closed:  # as in a child
            with suppress(OSError):  # if it was not locked
                _lock(self._file.fileno(), is_end=True)
            self._file.close()
