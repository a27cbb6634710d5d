"""What every solver shares: the public facts, settings, the plan and the result."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping
from copy import copy as shallow_copy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator

from .._checks import auto_or, check_bool, check_choice, check_count, check_real, check_size
from .._overview import Overview, Overviewed
from .._types import Array
from ..data.bounds import TargetScaling
from ..data.rows import SolverData
from ..geometry import AnySet
from ..losses import Loss, Multinomial, base_loss, check_loss
from ..mechanisms import Release
from ..privacy.budget import LARGEST_EPSILON, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream

MOST_COPIED_FEATURES = 1000  # of a copy in learned units, and of second moments
LARGEST_COPY = 2**28  # numbers of such a copy


@dataclass(frozen=True)
class Problem:
    """Public facts of a fit. Holds no array of the user's data.

    Attributes
    ----------
    n_samples, n_features : int
    loss : Loss
        Of one or several outputs. Tried out by `losses.check_loss` if it is a user's own.
    feasible_set : Geometry or subclass of Geometry
        The set of (coef, intercept) in scaled units, all outputs' together; a class leaves the
        radius to the plan, and `Geometry` itself the kind of set as well.
    fit_intercept : bool
    row_norm : float or None
        The largest l2 norm of a scaled row without the intercept's 1, as declared; None if there
        are only bounds of each column. Used in default rules, never in a sensitivity: rows in the
        box that are longer may occur.
    class_weight : tuple of float, "balanced" or None
        Factors in [0, 1] on the weights of each class's records, the largest 1, which the records'
        weights hold already; or to be made of the released frequencies. None for ones.
    nonnegative : bool
        Whether no scaled feature is negative, as the bounds tell. Of wide rows it decides on the
        means that are released and on what is made of them; no sensitivity depends on it.
    from_zero : tuple of bool
        Which scaled features have an end of their bounds at 0, as flags have, of at most the first
        1000; one for all if they have the same bounds, and empty if nothing is declared. No plan
        and no sensitivity depends on it.
    units : {"auto", "bounds", "learned"}
        Of features and targets, in which the solver works.
    inference : bool
        Whether the result has an estimate with its covariance.
    n_users : int
        The number of users of several rows, of a table in one place; 0 if it is not known whose
        each row is. It is public, and no sensitivity depends on it.
    may_be_empty : bool
        Whether records may be invalid and count as empty ones: then their number is worth a
        release. Some may be empty whatever this says, and no sensitivity depends on it.
    has_weights : bool
        Whether records have weights of their own, which released frequencies do not count, those of
        `LearnedUnits` apart.
    largest_rate : float
        Of counts and costs, the largest target times its weight, over the largest target: below 1
        where a short exposure makes a rate large and counts little.
    usual_rate : float
        A guess of what few of these exceed, over the largest, where too few records tell it.
    one_count : float
        Of counts, 1 over the largest, times its weight; 0 where it is not known.
    n_indicators : int
        How many features tell of gaps, and could be spared; for messages.
    target_scaling : TargetScaling
        The map of the targets of a regression to [-1, 1], for medians that are round numbers.
    base_loss : Loss
        That of a single output.
    n_outputs : int
        Number of predictions for a record: K classes (1 if K = 2), or targets.
    dimension, size : int
        Numbers of coefficients of an output, the intercept included, and of all outputs.
    shape : tuple of int
        That of the coefficients as `Rows` takes them: a matrix if there are several outputs.
    joint_unit : float
        The largest norm of a record's derivatives if each of them is at most 1.
    has_frequencies : bool
        Whether targets are one of several classes, whose mean is their frequencies.
    is_wide, is_large : bool
        Whether there are too many features for second moments, and whether a copy of all rows in
        other units is too large.
    by_user : bool
        Whether a descent in learned units clips the sums over a user's rows.
    """

    n_samples: int
    n_features: int
    loss: Loss
    feasible_set: AnySet
    fit_intercept: bool = True
    row_norm: float | None = None
    class_weight: tuple[float, ...] | str | None = None
    nonnegative: bool = False
    units: str = "auto"
    inference: bool = False
    largest_rate: float = 1.0
    usual_rate: float = 2.0**-4
    one_count: float = 0.0
    # plans say what they make of these
    n_users: int = field(default=0, compare=False)
    may_be_empty: bool = field(default=False, compare=False)
    has_weights: bool = field(default=False, compare=False)
    n_indicators: int = field(default=0, compare=False)
    from_zero: tuple[bool, ...] = field(default=(), compare=False, repr=False)
    target_scaling: TargetScaling = field(default=TargetScaling(), compare=False, repr=False)
    # what follows from these
    base_loss: Loss = field(init=False, repr=False, compare=False)
    n_outputs: int = field(init=False, repr=False, compare=False)
    dimension: int = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    shape: tuple[int, ...] = field(init=False, repr=False, compare=False)
    joint_unit: float = field(init=False, repr=False, compare=False)
    has_frequencies: bool = field(init=False, repr=False, compare=False)
    is_wide: bool = field(init=False, repr=False, compare=False)
    is_large: bool = field(init=False, repr=False, compare=False)
    by_user: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_loss(self.loss)
        n, d = int(self.n_samples), int(self.n_features)  # products of numpy's may overflow
        n_outputs, dimension = self.loss.n_outputs, d + self.fit_intercept
        is_wide, is_large = d > MOST_COPIED_FEATURES, n * dimension > LARGEST_COPY
        self.__dict__.update(
            n_samples=n,
            n_features=d,
            base_loss=base_loss(self.loss),
            n_outputs=n_outputs,
            dimension=dimension,
            size=dimension * n_outputs,
            shape=(dimension,) if n_outputs == 1 else (dimension, n_outputs),
            joint_unit=math.sqrt(2 if isinstance(self.loss, Multinomial) else n_outputs),
            has_frequencies=n_outputs > 1 and self.loss.task == "classification",
            is_wide=is_wide,
            is_large=is_large,
            by_user=self.n_users > 0 and not is_wide and (self.inference or not is_large),
        )


@dataclass(frozen=True)
class Part:
    """A part of a plan that holds mechanisms; `audit` searches its fields for them.

    One with a single mechanism calls it `noise`. It may have a `count` of its uses, and a `group`
    of the records that it reads.
    """

    release_name: ClassVar[str]  # of that mechanism

    @property
    def releases(self: Any) -> tuple[Release, ...]:
        """Its releases, as the plan's guarantee counts them."""
        count, group = getattr(self, "count", 1), getattr(self, "group", None)
        return named_releases((self.release_name, self.noise, count), group=group)


def named_releases(*named: tuple[str, Any, int], group: str | None = None) -> tuple[Release, ...]:
    """The releases (name, mechanism, count) among these whose mechanism is there, and used."""
    return tuple(Release(*one, group) for one in named if one[1] is not None and one[2] > 0)


def releases_of(*parts: Part | None) -> tuple[Release, ...]:
    """Those of all parts that are there."""
    return tuple(release for part in parts if part is not None for release in part.releases)


@dataclass(frozen=True)
class Plan(Overviewed):
    """All that a run depends on besides the data; made before any data is read.

    Attributes
    ----------
    problem : Problem
    budget : PrivacyBudget
    solver : str
        Name of the method.
    max_iter : int
    guarantee : Guarantee
        The claim and every release.
    reads_pieces : bool
        Whether `run` is better given rows in pieces, of which few are in memory at a time.
    clips_users : bool
        Whether sums over the rows of a user are clipped, and not rows alone.
    """

    problem: Problem
    budget: PrivacyBudget
    solver: str
    max_iter: int
    guarantee: Guarantee
    reads_pieces: bool = field(default=False, kw_only=True, repr=False, compare=False)
    clips_users: bool = field(default=False, kw_only=True, repr=False, compare=False)

    @property
    def n_steps(self) -> int:
        """How many steps `run` reports to `_progress.steps`."""
        return self.max_iter

    @property
    def least_probability(self) -> float:
        r"""What probabilities of K classes are held at: 1 / (2 m (K - 1)), m at least 2.

        m is :math:`n \mu / \phi`, or :math:`n \epsilon / \phi` if delta is 0; 0 without noise. They
        are of one row of a user, or if sums over users are clipped of all of them: events are known
        that well then, which each user has once, as in rows of periods.
        """
        budget, n_others = self.budget, max(1, self.problem.n_outputs - 1)
        if budget.is_infinite:
            return 0.0
        size = budget.mixed_allowance.amount
        of_one = (size if budget.is_pure else math.sqrt(2 * size)) / budget.record_factor
        of_one *= budget.rows_per_user if self.clips_users else 1
        return 0.5 / max(self.problem.n_samples * of_one, 2.0) / n_others

    def run(self, data: Any, stream: RandomStream) -> SolverResult:
        """Do what the plan says; all noise and all random choices come from `stream`."""
        raise NotImplementedError

    def expected_std(self, *args: Any, **kwargs: Any) -> Any:
        """Of plans with ``inference=True``, which are `UnitDescentPlan`; an error of others."""
        raise ValueError("the plan has no standard errors: make it with inference=True")

    power = expected_std

    def overview(self) -> Overview:
        """What the guarantee shows, with the solver and the sizes."""
        sizes = f"{self.problem.n_samples} x {self.problem.n_features}"
        what = f"solver {self.solver!r}, {self.max_iter} steps, {sizes}"
        return self.guarantee.overview().of(what)


@dataclass(frozen=True)
class SolverResult:
    """Private coefficients in scaled units."""

    coef: Array  # of shape (n_features,), or (n_outputs, n_features) if there are several
    intercept: Any  # a float, or of shape (n_outputs,)
    n_iter: int
    units: Any = None  # what was released about the features, if anything
    frame: Any = None  # offset and centre of the rows that the descent worked with
    estimate: Any = None  # coefficients that are not shrunk, with their covariance, if asked for
    n_present: int | None = None  # about how many rows are not empty, if that was released


@dataclass(frozen=True)
class Frame:
    """Units and offsets that were released, and the way back to plain rows.

    With the descent's coefficients w, the model predicts the target
    ``(y - target_center) / target_scale`` as ``offset + factor <[(x - center) / scale, 1], w>``.
    """

    offset: Any = 0.0  # the constant prediction that the descent corrects, for each output
    center: Any = None  # None stands for zeros
    scale: Array | None = None  # None stands for ones
    factor: float = 1.0
    target_center: Any = 0.0
    target_scale: Any = 1.0
    # how far the logarithm of a predicted rate may be from that of the mean, `target_center`
    reach: float = math.inf
    intercept_unit: float = 1.0  # in the place of the 1 in [(x - center) / scale, 1]
    class_weight: Array | None = None  # of balanced classes, in [0, 1], still to be multiplied
    mean_weight: float = 1.0  # of all classes, declared or balanced, by released frequencies
    outer: Frame | None = None  # of the units in which all this is stated

    @property
    def balance(self) -> float:
        """4 p (1 - p), p the frequency of the second of two classes that the offset stands for."""
        return float(4 * expit(self.offset) * expit(-self.offset))

    def weighted(self, data: SolverData) -> SolverData:
        """The records, their weights times those of their classes if classes are balanced."""
        if self.class_weight is None:
            return data
        return data.map(SolverData.reweighted, self.class_weight)

    def units(self, problem: Problem) -> Array:
        """What the coordinates of centred rows are multiplied by, shape (size,)."""
        units = np.ones(problem.dimension)
        if self.scale is not None:
            units[: problem.n_features] /= self.scale
        units[problem.n_features :] *= self.intercept_unit
        return np.repeat(units, problem.n_outputs)

    def result(self, solution: Array, problem: Problem, n_iter: int) -> SolverResult:
        """The model for plain rows, from the descent's coefficients of shape (size,)."""
        solution = (self.factor * solution).reshape(problem.shape).T
        coef, intercept = solution[..., : problem.n_features], self.offset
        if problem.fit_intercept:
            intercept = intercept + self.intercept_unit * solution[..., -1]
        coef, intercept = self.plain(coef, intercept)
        # a float, or an array over the outputs
        intercept = np.broadcast_to(intercept, (problem.n_outputs,))
        intercept = intercept if problem.n_outputs > 1 else float(intercept[0])
        return SolverResult(coef, intercept, max(1, n_iter), frame=self)

    def plain(self, coef: Array, intercept: Any) -> tuple[Array, Any]:
        """A model for (x - center) / scale as one for plain rows and targets."""
        if self.scale is not None:
            coef = coef / self.scale
        if self.center is not None:
            intercept = intercept - coef @ self.center
        coef = np.multiply(self.target_scale, coef.T).T
        intercept = self.target_center + self.target_scale * intercept
        return (coef, intercept) if self.outer is None else self.outer.plain(coef, intercept)


Check = Callable[[str, Any], Any]


def none_or_count(name: str, value: Any) -> int | None:
    """`None`, or the value checked by `check_count`."""
    return None if value is None else check_count(name, value)


# Limits of what a user may ask for.
MOST_STEPS = 10**9  # whose noise would drown any model, and which would take weeks
MOST_PHASES = 100  # a phase has about half of the records of the one before, or of its steps

# a parameter means the same in all solvers, but for what their own `checks` say
_CHECKS: Mapping[str, Check] = {
    "average": check_bool,
    "batch_size": partial(auto_or, check_count),
    "data_norm": partial(auto_or, check_size),
    "gradient_clip": partial(auto_or, check_size),
    "l2_penalty": partial(check_size, low=0),
    "learning_rate": partial(auto_or, check_size),
    "max_iter": partial(auto_or, check_count, high=MOST_STEPS),
    "mirror_map": partial(check_choice, choices=("auto", "power", "euclidean", "entropy")),
    "moment_bound": check_size,
    "moment_order": partial(check_real, low=2),
    "n_buckets": partial(auto_or, check_count),
    "n_phases": partial(auto_or, check_count, high=MOST_PHASES),
    "n_restarts": partial(auto_or, check_count, high=MOST_PHASES),
    "rank_bound": none_or_count,
    "shuffle": check_bool,
    "tau": partial(auto_or, check_size),
}


class Solver(BaseEstimator):
    """Settings of one algorithm, which make its plan; "auto" leaves a value to the plan.

    Parameters are checked when a plan is made, which keeps what follows from them and not the
    solver itself. So a solver may be changed between fits, also by ``solver__name`` in searches.
    Methods that plan are called on a resolved copy, whose values are not what users may give (None
    for "auto"): such a method says ``self: Any``.
    """

    form: ClassVar[str]
    checks: ClassVar[Mapping[str, Check]] = {}
    _is_resolved = False

    def resolved(self) -> Self:
        """A copy with checked parameters, None in the place of "auto"."""
        if self._is_resolved:
            return self
        copy = type(self)()
        for name, value in self.get_params(deep=False).items():
            value = {**_CHECKS, **self.checks}[name](name, value)
            setattr(copy, name, None if isinstance(value, str) and value == "auto" else value)
        copy._is_resolved = True
        return copy

    def with_facts(self, **facts: Any) -> Self:
        """A resolved copy with facts that are no parameters, such as what an estimator knows."""
        copy = shallow_copy(self.resolved())
        copy.__dict__.update(facts)
        return copy

    def check(
        self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str = "auto"
    ) -> None:
        """Raise `ValueError` on what cannot work, however many records and features there are."""
        self.resolved()._check(loss, feasible_set, budget, units)

    def plan(self, problem: Problem, budget: PrivacyBudget) -> Plan:
        """Everything that a run does, from public facts alone.

        Raises
        ------
        ValueError
            As `check`, and if the sizes of the problem do not go with the settings.
        """
        solver = self.resolved()
        solver._check(problem.loss, problem.feasible_set, budget, problem.units)
        return solver._plan(problem, budget)

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        raise NotImplementedError

    def _plan(self, problem: Problem, budget: PrivacyBudget) -> Any:
        raise NotImplementedError

    @staticmethod
    def _check_delta(budget: PrivacyBudget) -> None:
        """Raise if delta is 0, of a solver whose noise is Gaussian."""
        if budget.is_pure:
            raise ValueError(
                "this model has no pure-DP form (delta=0): take delta='auto', or an accountant "
                "with a delta above 0. Of linear and logistic models "
                "DPLassoFW(solver='selection') and its classifier have one"
            )

    def _check_units(self, budget: PrivacyBudget, units: str) -> None:
        """Raise if units="learned" does not go with what is declared."""
        if units == "learned" and budget.is_pure:
            raise ValueError("units='learned' has no pure-DP form (delta=0): take units='bounds'")
        if units == "learned" and getattr(self, "data_norm", None) is not None:
            raise ValueError("data_norm is in the units of the bounds: it needs units='bounds'")


def by_name(*kinds: type[Solver]) -> dict[str, type[Solver]]:
    """Kinds of solvers by the names that stand for them; "auto" is the first one."""
    return {"auto": kinds[0]} | {kind.form: kind for kind in kinds}


# ------------------------------------------------ disjoint slices of the records, and restarts


def fast_restarts(n: int) -> int:
    """ceil(log2 log2 n): restarts with which strong convexity gives a faster rate (4.4)."""
    return 1 if n < 32 else math.ceil(math.log2(math.log2(n)))


def doubling_slices(n: int, count: int, *, growing: bool) -> list[tuple[int, int]]:
    """`count` slices of range(n), each about twice or half as long as the one before."""
    sizes = [2**i for i in range(count)][:: 1 if growing else -1]
    totals = itertools.accumulate(sizes, initial=0)
    return list(itertools.pairwise(n * total // (2**count - 1) for total in totals))


def smallest(fits: Callable[[int], bool]) -> int:
    """The least n with fits(n), where all larger n fit, too."""
    high = 1
    while not fits(high):
        high *= 2
    return bisect.bisect_left(range(high), True, high // 2 + 1, key=fits)


# ------------------------------------------------------------------ the mechanisms of a plan

P = TypeVar("P")


def map_mechanisms(plan: Any, change: Callable[[str, Any], Any]) -> Any:
    """The plan with each mechanism m of each field replaced by ``change(name, m)``.

    A mechanism is any object with a method `release`; to be replayed, it must state the facts of
    `mechanisms.Mechanism`. It is searched for in the fields of the plan, in their tuples, and in
    the fields of the plan's parts (`solvers.base.Part`). Its name is its path, for example
    ``"first.target"`` or ``"stages[0].noise"``.

    Parameters
    ----------
    plan : Plan
    change : callable (str, mechanism) -> mechanism

    Returns
    -------
    Plan

    Examples
    --------
    A plan with half of the noise, which an audit should find:

    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.losses import Squared
    >>> from sklearn_dpsco.geometry import L2Ball
    >>> from sklearn_dpsco.solvers import NoisyMD
    >>> from sklearn_dpsco.solvers.base import Problem
    >>> problem = Problem(12, 2, Squared(), L2Ball(1.0))
    >>> plan = NoisyMD(max_iter=3).plan(problem, PrivacyBudget(1.0, 1e-3))
    >>> from dataclasses import replace
    >>> from sklearn_dpsco.audit import map_mechanisms, mechanisms
    >>> wrong = map_mechanisms(plan, lambda name, old: replace(old, scale=old.scale / 2))
    >>> name = list(mechanisms(plan))[-1]
    >>> mechanisms(wrong)[name].scale / mechanisms(plan)[name].scale
    0.5
    """

    def changed(name: str, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(changed(f"{name}[{i}]", item) for i, item in enumerate(value))
        if value is plan or isinstance(value, Part):
            before, names = f"{name}." if name else "", [f.name for f in fields(value)]
            values = {one: changed(before + one, getattr(value, one)) for one in names}
            return replace(value, **values)
        return change(name, value) if hasattr(value, "release") else value

    return changed("", plan)


def plan_within(budget: PrivacyBudget, make: Callable[[PrivacyBudget], P]) -> P:
    """``make(budget)``, or for an infinite epsilon the plan of a finite one without its noise.

    A plan is a frozen dataclass with a field `guarantee`, whose mechanisms `map_mechanisms` finds.
    """
    if not budget.is_infinite:
        return make(budget)
    plan: Any = make(replace(budget, epsilon=LARGEST_EPSILON))
    quiet: dict[int, Any] = {}  # a mechanism of several fields or releases stays one
    without_noise = map_mechanisms(
        plan, lambda _, old: quiet.setdefault(id(old), replace(old, scale=0.0))
    )
    releases = plan.guarantee.releases
    if any(id(release.mechanism) not in quiet for release in releases):
        raise AssertionError("a release of the plan has a mechanism that is in none of its fields")
    releases = tuple(replace(r, mechanism=quiet[id(r.mechanism)]) for r in releases)
    guarantee = replace(plan.guarantee, epsilon=math.inf, composition="none", releases=releases)
    changes = {"budget": budget} if hasattr(plan, "budget") else {}
    return replace(without_noise, guarantee=guarantee, **changes)
