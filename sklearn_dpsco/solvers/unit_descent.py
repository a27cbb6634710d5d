r"""Gradient descent in privately learned units, without a set, a radius or a tuned step.

After `learned_units`, T releases of the mean gradient follow, each record's derivatives clipped to
c; the mean of the second half of the iterates is the model. Clip, step and momentum follow from
public facts and from what was released. A small clip keeps the noise small and biases what is
estimated, means and probabilities more than ranks. So the last steps have a wide one: on all
coefficients where the noise allows it, else on the slope and the intercept of the predictions.
Intercepts of classes stay near those with which the mean probabilities are the released
frequencies: few noisy steps leave those of rare classes anywhere, and clipped derivatives of
unequal classes push them.

A release is the mean of vectors of norm at most 1, derivatives over the clip times rows, so that
its sensitivity does not depend on the clip (doc/privacy, section 4.5). Of users of several rows,
whose each is being known, it is the sum over their rows that is clipped (section 4.5e).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import helmert
from scipy.special import chdtri, expit, ndtr, ndtri, softmax

from .._checks import check_level, check_real, check_size, says_level
from .._progress import steps
from .._types import Array, Auto
from ..data.rows import SolverData, Terms, gamma, gradient_sum, place_counts
from ..geometry import AnySet, Geometry
from ..losses import Logistic, Loss, Squared, Tweedie, Welsch, base_loss
from ..mechanisms import Gaussian, Release, SelectVertex
from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from . import statistics
from .base import Part, Plan, Problem, Solver, SolverResult, named_releases, releases_of
from .defaults import CORRECTION, RATES, UNIT_DESCENT, affordable_steps, unit_rules
from .inference import NewtonSteps, chance_of_ends, expected_std, plan_steps
from .learned_units import LearnedUnits, Purse, Units, pays, plan_units
from .mirror_descent import NoisyMD
from .records import Users, user_gradients
from .statistics import NORMAL_MEDIAN, TINY, few_longer, median_on_grid, norm_counts
from .wide_units import wide_mean

_USER_CLIPS = 2.0 ** np.arange(-10.0, 12.01, 0.25)
_ASSUMED = "r2", "correlation", "prevalence", "mean", "dispersion", "safe"  # of an effect's power
_LINE_UNIT = math.sqrt(0.5)  # of slope and intercept, as of rows of norm sqrt(2)
_LINE_BYTES = 2**28  # of rows on such a line that are kept, where other rows are read again
_N_POINTS = 200  # of normal predictions
_LEAST_DONE = 0.01  # of the way of a level, so that what is told of it stays a number
_MOST_STEPS = 1000  # to levels; few but for predictions that are all clear
# what standard errors depend on, by the task
_ASSUMED_OF = {
    "regression": {"r2": 0.0},
    "classification": {"prevalence": 0.5, "effect": 0.0},
    "rates": {"mean": 1.0, "dispersion": 1.0},
}


# of gradients of several classes along the slopes before their step, and the energies of these
Pulls = Sequence[tuple[float, float]]

# ------------------------------------------------------------------------------- planning


@dataclass(kw_only=True, repr=False, eq=False)
class Descent(Solver):
    """Gradient descent in learned units: mirror descent with the Euclidean map, without a set.

    A part of the budget buys the units: centre and spread of the targets, centre and length of the
    rows and, where n is large against d, their second moments. The descent then needs no bounds
    that are tight, no set, no step and no clip, and has none as parameters. Its last steps have a
    wide clip, so that means and probabilities are what they say. For the squared, the logistic and
    Welsch's loss. Of X with up to 1000 features, up to 2^28 numbers are copied, densely;
    more are read anew in each step, some at a time. Wider X, such as texts, stays as it is, and
    noisy frequencies of the features take the place of second moments.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps, with momentum, before the last ones; more cost time and hardly change the
        accuracy. "auto" is 8 to 100, as many as some tenths of a second allow.
    """

    form = "descent"
    with_set: ClassVar[str] = "noisy-md"  # the solver for sets and other losses

    max_iter: int | Auto = "auto"

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        self._check_delta(budget)
        if feasible_set is not Geometry:
            raise ValueError(
                "solver='descent', that of inference=True, has no feasible set, which "
                f"feasible_set='auto' stands for; solver={self.with_set!r} has one"
            )
        if units == "bounds":
            raise ValueError("solver='descent' learns its units: units='bounds' is for the others")
        if not knows(loss):
            raise ValueError(
                "solver='descent' knows the squared, the logistic and Welsch's loss "
                f"(width='auto'), solver={self.with_set!r} others as well; got {loss!r}"
            )

    def _plan(self, problem: Problem, budget: PrivacyBudget) -> UnitDescentPlan:
        return self._bought(UnitDescentPlan, Purse(problem, budget))

    def _bought(self: Any, kind: Any, purse: Purse, *before: Part | None, **more: Any) -> Any:
        """The plan of a kind that a purse buys, after the parts before it; it has more fields."""
        problem, budget = purse.problem, purse.budget
        is_rate = problem.loss.task == "rates"
        if is_rate and (problem.is_wide or problem.n_outputs > 1):
            raise ValueError("models of counts and costs have one target, at most 1000 features")
        units = plan_units(purse)
        sizes = problem.n_samples, problem.dimension
        change = statistics.mean_of_numbers(*sizes, budget.record_factor)
        if problem.is_wide:
            change = wide_mean(problem, budget)
        of_users, correction, inference = None, None, None
        if problem.by_user:
            present = None
            if problem.may_be_empty:
                of_one = statistics.unit_mean(problem, 1.0) / budget.rows_per_user
                present = purse.noise(of_one, UNIT_DESCENT.present_share)
            size = purse.rank(UNIT_DESCENT.user_share, of_users=True)
            of_users = OfUsers(present, size, purse.user_accuracy)
        if problem.inference or is_rate:
            inference = plan_steps(purse, change)
        if inference is None and not (is_rate and budget.rows_per_user > 1):
            correction = _plan_correction(purse, change)
        limits = UNIT_DESCENT.plain
        if units.moments:
            moves_all = correction is not None and correction.size is None
            is_start = problem.inference or is_rate or moves_all
            limits = UNIT_DESCENT.start if is_start else UNIT_DESCENT.whitened
            clear = UNIT_DESCENT.clear * problem.n_outputs * problem.n_features**1.5
            if problem.has_frequencies and not is_start and purse.user_accuracy >= clear:
                limits = UNIT_DESCENT.of_classes
        n_steps = self.max_iter or affordable_steps(problem, limits)
        step = purse.noise(change, purse.left, problem.size, n_steps, of_users=True)
        first, last = releases_of(*before, units, of_users), releases_of(correction or inference)
        releases = (*first, Release("mean gradient", step, n_steps), *last)
        guarantee = Guarantee.of(budget, releases, purse.allowance.kind)
        common = problem, budget, self.form, n_steps, guarantee
        more["reads_pieces"] = problem.is_large and not (problem.is_wide or problem.by_user)
        more["clips_users"] = problem.by_user
        return kind(*common, units, of_users, step, correction, inference, **more)


def knows(loss: Loss) -> bool:
    """Whether a descent in learned units has rules for the loss."""
    base = base_loss(loss)
    return type(base) in (Squared, Logistic, Tweedie) or (
        type(base) is Welsch and base.width == "auto"
    )


class MirrorDescent(Solver):
    """The solver that suits loss, set, sizes and budget: `Descent` or `NoisyMD`.

    `Descent` if no set is declared, unless it cannot be done or, in regression, n times epsilon is
    very small; else `NoisyMD`.
    """

    form = "auto"

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        self._check_delta(budget)
        if feasible_set is not Geometry:
            NoisyMD().check(loss, feasible_set, budget, units)

    def _plan(self, problem: Problem, budget: PrivacyBudget) -> Plan:
        may_descend = problem.feasible_set is Geometry and problem.units != "bounds"
        is_best = may_descend and knows(problem.loss) and pays(problem, budget)
        return (Descent if problem.inference or is_best else NoisyMD)().plan(problem, budget)


def _plan_correction(purse: Purse, change: float) -> Correction | None:
    """The last steps where they pay, of rates on the line alone; a mean changes by `change`."""
    problem, rules, loss = purse.problem, CORRECTION, purse.problem.base_loss
    m, k = purse.user_accuracy, problem.n_outputs
    whole = rules.whole * problem.n_features**1.5 * math.sqrt(k)
    least = rules.least  # below which a clip that so many exceed is not wide
    is_label = problem.loss.task == "classification"  # whose slopes alone are biased, too
    if is_label:
        of_several = rules.least_of_classes * math.sqrt(k - 1)
        whole, least = math.inf, rules.least_of_two if k == 1 else of_several
    elif problem.loss.task == "rates":
        is_noise = m <= RATES.many_columns * problem.n_features**2  # much of what slopes tell
        whole, least = math.inf, least if is_noise else math.inf
    elif m <= rules.many_columns * problem.n_features**2 and not problem.is_wide:
        least = rules.least_of_many  # noise in many slopes costs more than a narrow clip
    whole = max(whole, min(least, rules.least_of_whole))
    is_whole = m >= whole and not problem.is_wide
    has_line = is_label or (problem.fit_intercept and k == 1)
    is_line = has_line and m >= least
    if isinstance(loss, Welsch) or not (is_whole or is_line):
        return None
    tail, n_above, size = None, 0, None
    dimension, n_steps = problem.size, rules.whole_steps
    share = min(rules.most_share, rules.whole_share * m / whole)
    if not is_whole:
        dimension = 1 + k * problem.fit_intercept
        share, n_steps = rules.line_share, rules.line_steps
        if is_label:
            share = max(share, min(rules.labels_share, (rules.labels_aim / m) ** 2))
        size = purse.rank(min(rules.size_share, (rules.aim / m) ** 2))
        # rows have a number for each output; the slope's part is added up over the classes
        of_rows = statistics.mean_of_numbers(problem.n_samples, k, purse.budget.record_factor)
        change = max(change, of_rows) + 2 * gamma(k - 1)
    if problem.loss.task == "regression" or problem.by_user:
        tail = purse.rank(rules.tail_share, of_users=True)
        # as many as the noise of a mean hides, and no fewer than can be counted
        of_mean = 2 * math.sqrt(dimension)
        n_above = math.ceil(purse.n_records / m * max(of_mean, 4 / math.sqrt(rules.tail_share)))
        n_above = min(n_above, purse.n_records // 2)
    left = purse.left
    step = purse.noise(change, share * left, dimension, n_steps, of_users=True)
    purse.left = (1 - share) * left
    unit = rules.largest_unit if k == 1 else rules.largest_of_classes
    unit *= max(1.0, math.sqrt(m / rules.unit_from))
    return Correction(tail, n_above, step, n_steps, size, unit)


# --------------------------------------------------------------------------------- the run


@dataclass(frozen=True)
class UnitDescentPlan(Plan):
    """Plan of a descent in learned units; see `Plan` for the common fields.

    Attributes
    ----------
    units : LearnedUnits
        What is released before the descent.
    of_users : OfUsers or None
        What is released of users of several rows.
    step : Gaussian
        What releases the mean gradients, in units of the clip.
    correction : Correction or None
        The last steps, with a wide clip.
    inference : NewtonSteps or None
        The last steps of a fit with ``inference=True``, in their place.
    """

    units: LearnedUnits
    of_users: OfUsers | None
    step: Gaussian
    correction: Correction | None
    inference: NewtonSteps | None

    @property
    def n_steps(self) -> int:
        """See `Plan.n_steps`."""
        return self.max_iter + (0 if self.correction is None else self.correction.n_steps)

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        problem, d = self.problem, self.problem.n_features
        units = self.units.run(data, stream)
        if self.of_users is not None:
            units = self.of_users.run(units, data, stream)
        walk = self._walk(units)
        coef, pulls, _ = _descend(units, np.zeros(problem.size), walk, stream)
        slopes, own = _slopes_and_levels(units, coef)
        before, clear = float((slopes**2).sum()), self._shrink(units, slopes, own, walk, pulls)
        slopes[:] = _without_doubts(units, slopes, walk)
        keeps_level = self.correction is None and isinstance(problem.base_loss, Squared)
        is_known = self.units.accuracy / units.ratio >= CORRECTION.least_for_level
        if keeps_level and (is_known or np.all(units.whole_noise < math.inf)):
            _restore_levels(units, coef, walk, units.unit[-1])
        if problem.loss.task == "rates" and units.unit[d] >= RATES.least_level_unit:
            # the mean of the exponentials stays, as if predictions were normal
            lost = before - float((slopes**2).sum())
            coef[d] += 0.5 * units.trace / problem.dimension * lost / units.transform[d, d]
            units = units._replace(steps_noise=_level_stretch(units, walk)[1] ** 2)
            if self.inference is None:  # Newton steps find the level anew
                coef = units.near_mean(coef, units.steps_noise)
        if self.correction is not None:
            coef = self.correction.run(units, coef, stream, clear)
        elif self.inference is None:
            # clipped derivatives hardly pull back what noise has moved
            noise = walk.variance * walk.kept_noise(0.0) * units.unit[-1] ** 2
            kept = math.sqrt(float((slopes**2).sum()) / max(before, TINY))
            move_toward_levels(units, coef, noise, walk.clip, walk.length, kept)
        if self.inference is None:
            restore_whole_means(units, coef)
            return units.result(coef, problem, self.n_steps)
        loss = problem.loss
        if loss.task == "classification" and walk.clip < loss.derivative_bound(math.inf):
            _start_levels(units, coef)
        # (about another centre, and back)
        about, coef = units.recentred(coef, _tilt(units, coef))
        coef, noise, estimate = self.inference.run(about, coef, stream)
        if about is not units:
            coef[d] -= about.shift[1] @ coef[:d] / units.unit[d]
        move_toward_levels(units, coef, noise)
        if loss.task == "regression" and units.may_be_none:
            frame = replace(units.frame, target_center=0.0 * units.frame.target_center)
            units, coef = units._replace(frame=frame), 0.0 * coef
        return replace(units.result(coef, problem, self.n_steps), estimate=estimate)

    def _shrink(self, units: Units, slopes: Array, own: Array, walk: Walk, pulls: Pulls) -> Clear:
        """Shrink slopes, in place, or say by how much last steps on their size are to do so."""
        problem = self.problem
        if problem.is_wide:
            if problem.loss.task != "classification":
                return WHOLE
            terms, curved = Terms(units.frame.offset, problem.loss, walk.clip), units.curvature
            added = walk.weights(curved * units.trace / problem.dimension).sum() / units.n_present
            return WHOLE._replace(own=(terms, units.unit[: problem.n_features], added))
        if problem.loss.task == "classification":
            has_levels = problem.has_frequencies and problem.fit_intercept
            level = units.unit[-1] * own if has_levels else 0.0
            clear = _clear_of_labels(units, slopes, walk, pulls, level)
            if self.correction is not None:
                if has_levels and tells_levels(units):
                    doubt = _push_back(units, clear.part * slopes, own, walk)
                    clear = clear._replace(levels=doubt)
                return clear
            slopes *= clear.part
            return WHOLE
        curved = units.curvature
        if problem.loss.task == "regression" and units.users is None:
            # Where derivatives are clipped, the loss is less curved, and more of the noise is left:
            # of targets that are normal and are not explained, so many are within the clip.
            within = 2 * ndtr(NORMAL_MEDIAN * walk.clip / problem.joint_unit) - 1
            known = self.units.accuracy / units.ratio / UNIT_DESCENT.less_curved_from
            curved *= within ** (UNIT_DESCENT.less_curved * min(1.0, max(0.0, known - 1)))
        kept = walk.kept_noise(curved * units.trace / problem.dimension)
        slopes *= _clear_part(slopes, walk.variance * kept)
        return WHOLE

    def _walk(self, units: Units) -> Walk:
        """The steps, from public facts and released numbers."""
        problem, is_rate, n_steps = self.problem, self.problem.loss.task == "rates", self.max_iter
        rules = unit_rules(problem)
        clip = min(rules.largest_clip, rules.smallest_clip * math.sqrt(units.growth))
        clip *= problem.joint_unit
        last = _loss_at(problem.loss, n_steps, n_steps)
        clip = min(clip, last.derivative_bound(math.inf))
        if units.users is not None or is_rate:
            clip = units.clip
        if is_rate and units.users is None and self.inference is not None:
            clip = min(clip, RATES.largest_clip)  # steps with a wider one follow
        size = 1.0 if is_rate and units.users is None else clip
        # standard deviation of the noise of a coordinate, if one step had all of the budget
        noise = clip * units.ratio * self.step.scale
        single = max(noise / math.sqrt(n_steps), 1e-50)  # or there is none
        wanted = min(
            rules.prediction_noise * math.sqrt(1.5 / units.trace) / single,
            (rules.signal * size * units.balance / single) ** 2
            / (units.curvature * units.trace * units.longest**2),
        )
        # that of plain steps that do not overshoot; with momentum, directions of small curvature go
        # further, and it dies away within the first half of the steps
        plain = n_steps / (0.75 * units.curvature * units.top)
        gain = max(1.0, min(wanted / plain, n_steps / UNIT_DESCENT.momentum_steps))
        length = min(wanted, gain * plain)
        return Walk(self.step, clip, n_steps, length, 1 - 1 / gain, units.ratio)

    def expected_std(
        self,
        *,
        r2: float | None = None,
        correlation: float = 0.0,
        prevalence: float | None = None,
        mean: float | None = None,
        dispersion: float | None = None,
        effect: float | None = None,
        safe: bool = False,
        parts: bool = False,
    ) -> Any:
        """The standard error of a coefficient that this plan can be expected to report.

        For features that are normal, of standard deviation 1; skewed ones have wider intervals.
        Nothing is spent. A `TypeError` names a guess that has no effect on the model's task.

        Parameters
        ----------
        r2 : float in [0, 1) or None, default=None
            In a regression, the part of the target's variance that the features explain, 0 if
            nothing is said. The result is in standard deviations of the target.
        correlation : float in [0, 1), default=0
            Of each feature with each other one.
        prevalence : float in (0, 1) or None, default=None
            In a classification, the frequency of the second of two classes, .5 if nothing is said.
            The result is in log-odds.
        mean, dispersion : float > 0 or None, default=None
            Of counts and costs: the mean of the targets, and their variance over the power p of it,
            both 1 if nothing is said. Counts of more than 1 are taken for negative binomial, costs
            for Gamma. The result is on the logarithmic scale, for effects that are small also
            together.
        effect : float or None, default=None
            In a classification, the coefficient itself, 0 if nothing is said, with others that are
            small: the stronger it is, the less the rows tell of it.
        safe : bool, default=False
            Whether to say what about nine of ten fits stay below, in the place of one of two: clips
            are chosen by noise.
        parts : bool, default=False
            Whether to return the pair (by sampling, by noise) in the place of their root sum.

        Returns
        -------
        float, or a pair

        Raises
        ------
        ValueError
            If the plan was made without ``inference=True``, or is for more than two classes, or for
            users of several rows, whose standard errors depend on how alike the rows are.

        Examples
        --------
        >>> from sklearn_dpsco import DPLinearRegression
        >>> model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1), inference=True)
        >>> round(model.plan(50_000, 10).expected_std(), 4)
        0.0063
        """
        if self.inference is None or self.inference.moments is None:
            return super().expected_std()
        if self.problem.has_frequencies:
            raise ValueError("expected_std is for regressions and for two classes")
        if self.budget.rows_per_user > 1:
            raise ValueError(
                "expected_std, and rows_needed of std or effect, are for rows that are independent "
                "of each other: those of a user may be alike, and nothing says how much. Plan with "
                "max_rows_per_user=1 for a table of one row a user, or ask for a score"
            )
        task, given = self.problem.loss.task, {"r2": r2, "prevalence": prevalence, "effect": effect}
        given |= {"mean": mean, "dispersion": dispersion}
        guesses = {name: value for name, value in given.items() if value is not None}
        if useless := guesses.keys() - _ASSUMED_OF[task]:
            raise TypeError(
                f"{min(useless)} has no effect on standard errors of models for {task}, but "
                f"{', '.join(_ASSUMED_OF[task])} and correlation have"
            )
        known = {name: of[name] for of in _ASSUMED_OF.values() for name in of} | guesses
        check_real("r2", known["r2"], low=0, high=1, high_open=True)
        check_real("prevalence", known["prevalence"], low=0, high=1, low_open=True, high_open=True)
        check_real("effect", known["effect"])
        for name in ("mean", "dispersion"):
            check_size(name, known[name])
        check_real("correlation", correlation, low=0, high=1, high_open=True)
        sampling, noise = expected_std(self.problem, self.inference, known, correlation, safe)
        return (sampling, noise) if parts else math.hypot(sampling, noise)

    @says_level
    def power(self, effect: float, *, level: float = 0.95, **assumptions: Any) -> float:
        """How probable it is that the interval of a coefficient of this size leaves out 0.

        Columns are taken for normal. Where there are few rows, or effects on labels are strong, it
        may have no ends, which counts as a failure. A plan warns where intervals of columns that
        hardly vary, are skewed, or nearly sums of others may have none.

        Parameters
        ----------
        effect : float
            What the target, in its standard deviations, the log-odds or the logarithm of the mean
            change by as a feature grows by one of its standard deviations. Of labels, other effects
            are taken to be small: where several are as large, it is less likely, .5 to .8 for .8.
        level : float in [0.5, 1), default=.95
            Of the interval.
        **assumptions
            `r2`, `correlation`, `prevalence`, `mean`, `dispersion` and `safe`, as in
            `expected_std`.

        Returns
        -------
        float in (0, 1)

        Examples
        --------
        >>> from sklearn_dpsco import DPLinearRegression
        >>> model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1), inference=True)
        >>> model.plan(50_000, 10).power(0.03) > 0.9
        True
        """
        if unknown := assumptions.keys() - _ASSUMED:
            raise TypeError(f"power assumes {', '.join(_ASSUMED)}, not {min(unknown)!r}")
        if self.problem.loss.task == "classification":
            assumptions["effect"] = effect
        sampling, noise = self.expected_std(parts=True, **assumptions)
        ratio = effect / math.hypot(sampling, noise)
        far = float(ndtri((1 + check_level("level", level)) / 2))
        assert self.inference is not None
        facts = assumptions.get("prevalence") or 0.5, effect
        clear = chance_of_ends(self.problem, self.inference, *facts)
        return clear * float(ndtr(ratio - far) + ndtr(-ratio - far))


@dataclass(frozen=True)
class OfUsers(Part):
    """What is released of users of several rows, whose gradients are clipped as a whole."""

    present: Gaussian | None  # users with a row that is not empty, over the slots
    size: SelectVertex  # norms of their gradients at the start
    accuracy: float  # that of a mean over them, as of `LearnedUnits`

    @property
    def releases(self) -> tuple[Release, ...]:
        return named_releases(("users present", self.present, 1), ("user size", self.size, 1))

    def run(self, units: Units, data: SolverData, stream: RandomStream) -> Units:
        """The units with the users, and as the clip what some of their gradients exceed."""
        problem, users = units.problem, Users.of(data.rows)
        n = users.starts.size
        if self.present is not None:
            total = np.array([float(users.present.sum())])
            n = statistics.n_present(total, data.n_samples, n, self.present, stream)
        units = units._replace(data=replace(units.data, numbers=None), users=users, n_users=n)
        # as many as the noise hides, and no more than have a label of the rarer class
        hidden = UNIT_DESCENT.hidden * math.sqrt(problem.size) / self.accuracy
        many, start = min(0.5, 2 * _rarer(units), hidden), np.zeros(problem.size)
        clip, bias, tail = _user_clip(units, start, self.size, many, stream), 0.0, math.inf
        if problem.loss.task == "rates":
            # beyond it tails of sums are nearly exponential, of rows that have little in common (of
            # many that exceed it, as many have sums that are too small)
            unit = max(float(units.unit[-1]), TINY)
            tail = clip / unit / (1 + math.log(1 / many))
            bias = many * (1 - 2 * many) ** 2 * n * tail
            bias /= units.n_present * units.frame.mean_weight
            # of users most of whom have no event, the clip may leave little of one
            bias += math.log(max(1.0, units.clip * unit / clip))
        return units._replace(clip=clip, level_bias=bias, tail=tail)


def _user_clip(
    units: Units, coef: Array, mechanism: SelectVertex, share: float, stream: RandomStream
) -> float:
    """The norm that this share of the users' gradients exceed, at coefficients as in `_descend`."""
    assert units.users is not None
    problem = units.problem
    terms = Terms(units.frame.offset, _loss_at(problem.loss, 0, 1), 1.0)
    norms = user_gradients(units.data, units.users, units.unit, _point(units, coef), terms)[1]
    most, grid = int((units.users.ends - units.users.starts).max()), _USER_CLIPS
    if problem.loss.task == "classification":  # whose derivatives are bounded
        grid = grid[: 1 + np.searchsorted(grid, most * problem.joint_unit)]
    # of labels, gradients at the end are hardly longer than those at the start
    is_last = problem.loss.task == "classification" and units.clip < math.inf
    octaves, widest = np.log2(grid / units.clip if is_last else grid), 0.0 if is_last else 2.0
    prior = statistics.clip_prior(octaves, widest)
    counts, n = place_counts(norms, units.users.present, grid), units.n_users
    return median_on_grid(counts, n, grid, prior, mechanism, stream, math.floor(share * n))


def _rarer(units: Units) -> float:
    """The frequency of the rarer of two classes, where they have weights about that; else 1/2."""
    if units.problem.loss.task != "classification":
        return 0.5
    return (1 - math.sqrt(1 - min(1.0, units.balance))) / 2


# ------------------------------------------------------------------------------ the descent


class Walk(NamedTuple):
    """Noisy steps with momentum, the lengths of which add up to `length`."""

    step: Gaussian  # what releases a gradient, over the clip
    clip: float
    n_steps: int
    length: float
    momentum: float
    ratio: float = 1.0  # of gradients over those that are released, as of `Units`

    @property
    def variance(self) -> float:
        """Of the noise in a number of a gradient."""
        return (self.clip * self.ratio * self.step.scale) ** 2

    def kept_noise(self, curvature: Any) -> Any:
        """Variance of the averaged iterate, for a variance of 1 in each release; by curvatures."""
        kept = (self.weights(curvature) ** 2).sum(axis=0)
        return kept if np.ndim(curvature) else float(kept)

    def weights(self, curvature: Any) -> Array:
        """What a release of 1 in each step adds to the averaged iterate."""
        n, coef, direction, total = self.n_steps, 0.0 * curvature, 1.0, [0.0 * curvature]
        for _ in range(n):  # what a release of 1 does to the iterates after it, added up
            coef = coef - (1 - self.momentum) * self.length / n * direction
            direction = self.momentum * direction + curvature * coef
            total.append(total[-1] + coef)
        added, first = np.array(total), np.arange(n)
        # of the iterates in the second half, those after the release of each step
        return (added[n - first] - added[np.maximum(n // 2 - first, 0)]) / (n - n // 2)


def _descend(
    units: Units,
    coef: Array,
    walk: Walk,
    stream: RandomStream,
    *,
    may_overshoot: bool = False,
    may_grow: bool = False,
) -> tuple[Array, Pulls, Array]:
    """The mean of the second half of the iterates, from coefficients of shape (size,) on.

    And the pulls at these, of several classes that have slopes of their own; and how many times
    longer the last step of each coefficient was. Steps may grow while gradients that are clear of
    noise keep their sign (Rprop, Riedmiller and Braun 1993): where labels are clear, the loss is
    flat. They are never again as long as those that went too far, or would swing forever where it
    is flat on one side and steep on the other, as are exponentials: of rates, steps of coefficients
    become shorter where gradients turn and grow.
    """
    problem, step, clip, n_steps = units.problem, walk.step, walk.clip, walk.n_steps
    is_tied = coef.size < problem.size  # one slope of all classes, and an intercept each
    # what the squared norm of noise alone does not exceed once in 10^5 steps
    most_of_noise = (coef.size + 6 * math.sqrt(2 * coef.size) + 12) * step.variance
    stretch, most = np.ones(coef.size), np.full(coef.size, math.inf)
    sum_of: Any = statistics.tied_gradient_sum if is_tied else gradient_sum
    if is_rate := problem.loss.task == "rates":
        stretch[-1], _ = _level_stretch(units, walk)
        sum_of = statistics.limited_gradient_sum
    total, direction, n_added = np.zeros_like(coef), np.zeros_like(coef), 0
    pulls: list[tuple[float, float]] = []
    length = (1 - walk.momentum) * walk.length / n_steps
    # of the step before: where it began, its gradient and the squared norm of that
    start, old, old_square = coef, direction, math.inf
    terms = Terms(units.frame.offset, _loss_at(problem.loss, 0, n_steps), clip)
    for t in steps(range(n_steps)):
        if terms.loss is not problem.loss:
            terms = replace(terms, loss=_loss_at(problem.loss, t, n_steps))
        point = _point(units, coef)
        if units.users is None:
            added = units.data.sum(sum_of, point, terms)
        else:
            added, _ = user_gradients(units.data, units.users, units.unit, point, terms)
        new = step.release((units.unit * added.T).T.ravel() / (clip * problem.n_samples), stream)
        square = float(new @ new)
        if may_overshoot and square > max(1.5 * old_square, most_of_noise):
            # too far, where rows count for more than in the second moments: back, and shorter
            coef, new, square, length = start, old, old_square, length / 4
            total, n_added = np.zeros_like(coef), 0
        if may_grow or is_rate:
            is_clear = np.minimum(np.abs(new), np.abs(old)) > CORRECTION.sign * step.scale
            is_back = is_clear & (new * old < 0)
        if is_rate:
            is_wider = is_back & (np.abs(new) > np.abs(old))
            stretch = np.where(is_wider, RATES.shorter * stretch, stretch)
        if may_grow:
            most = np.where(is_back, np.maximum(1.0, stretch / 2), most)
            stretch = np.minimum(np.where(is_clear, 2 * stretch, stretch), most)
        start, old, old_square = coef, new, square
        direction = walk.momentum * direction + clip * walk.ratio * new
        coef = coef - length * stretch * direction
        if t >= n_steps // 2:
            total, n_added = total + coef, n_added + 1
            if problem.has_frequencies and not is_tied:
                pulls.append(_pull(units, start, new))
    return total / n_added, pulls, stretch


def _pull(units: Units, coef: Array, gradient: Array) -> tuple[float, float]:
    """What a gradient is along the slopes of several classes at which it was taken, their energy.

    Without what these have in common, which changes no probability.
    """
    slopes, along = (_slopes_and_levels(units, of)[0] for of in (coef, gradient))
    slopes = slopes - slopes.mean(axis=1, keepdims=True)
    return float((along * slopes).sum()), float((slopes**2).sum())


def _loss_at(loss: Loss, t: int, n_steps: int) -> Loss:
    """The loss of step t; Welsch's is wide until iterates are averaged, so that all records pull.

    At once narrow, it would stay at a minimum near the start if many records are far from it.
    """
    if not isinstance(base_loss(loss), Welsch):
        return loss
    wider: float = UNIT_DESCENT.widening ** max(0.0, 1 - 2 * t / n_steps)
    return Welsch(UNIT_DESCENT.width * wider).of_outputs(loss.n_outputs)


def _level_stretch(units: Units, walk: Walk) -> tuple[float, float]:
    """How much longer steps of the level of rates are, and about the noise it has after them.

    A single number for all predictions, it is found unless it would be noise.
    """
    unit = float(units.unit[-1])
    if unit < RATES.least_level_unit:
        return 1.0, 0.0
    whole = walk.length * units.curvature * unit**2
    noise = 0.6 * walk.length * unit * math.sqrt(walk.variance) / math.sqrt(walk.n_steps)
    stretch = min(max(1.0, RATES.level / whole), 0.7 / max(noise, TINY))
    return stretch, stretch * noise


def _slopes_and_levels(units: Units, coef: Array) -> list[Array]:
    """Views of coefficients of shape (size,): slopes of shape (d, K), and intercepts, if any."""
    return np.split(coef.reshape(units.problem.dimension, -1), [units.problem.n_features])


def _point(units: Units, coef: Array) -> Array:
    """The coefficients as rows take them, a matrix of several outputs if these are not tied."""
    problem = units.problem
    if problem.n_outputs == 1 or coef.size < problem.size:
        return units.unit * coef
    return units.unit[:, None] * coef.reshape(problem.shape)


# ------------------------------------------------------- what is left of noise and of clipping


class Clear(NamedTuple):
    """What slopes are multiplied by, and the part of their energy that the sample explains."""

    part: float
    chance: float
    levels: Any = 0.0  # of several classes, variances of intercepts beside what is usual
    own: Any = None  # of wide rows, what records add to their own prediction: `of_predictions`


WHOLE = Clear(1.0, 0.0)


def _clear_part(slopes: Array, variance: float) -> float:
    """What slopes are multiplied by: 0 where their energy is that of their noise.

    Closer to 1 than the factor of James and Stein, as noise is mostly along directions of small
    moments, which matter little to predictions; the more so, the more columns there are.
    """
    noise = slopes.size * float(variance) / max(float((slopes**2).sum()), TINY)
    columns = 1 + (len(slopes) / UNIT_DESCENT.many_columns) ** 2
    return max(0.0, 1 - noise * noise / columns)


def _clear_of_labels(
    units: Units, slopes: Array, walk: Walk, pulls: Pulls = (), level: Any = 0.0
) -> Clear:
    """The same of labels, by the noise of clipped derivatives, and of the sample.

    Where nothing is to be found, nearly all derivatives are clipped. Signals mostly lie along the
    largest moments, and noise along all, which the known part of the largest one tells. Of several
    classes, what the pulls tell as well.
    """
    problem, d = units.problem, len(slopes)
    if problem.has_frequencies:  # what classes have in common changes no probability
        slopes = slopes - slopes.mean(axis=1, keepdims=True)
    size = max(float((slopes**2).sum()), TINY)
    facts = walk.clip, slopes, units.spread * math.sqrt(size), level
    curvatures, squares = _where_clipped(units, *facts)
    # of rows that count less if they are longer than 1, and for no more than steps suit
    moment = min(units.top, units.spread**2 / max(1.0, units.spread * math.sqrt(d)))
    weights = walk.weights(curvatures * moment)
    noise = d * walk.variance * float((weights**2).sum()) / size
    explained = squares * weights.sum(axis=0)
    chance = d * moment / units.n_present * float(explained @ weights.sum(axis=0)) / size
    # over the mean of all moments, which is at most 1 / d
    larger = max(1.0, (units.top - units.top_noise) * problem.dimension)
    # (a part of the energy that is expected of noise may be a signal's)
    hidden = (noise + chance) / (1 + UNIT_DESCENT.unsure * (noise + chance))
    scale = larger + (1 - larger) * min(1.0, hidden)
    part = 1 - min(1.0, hidden / scale) ** UNIT_DESCENT.noise_power
    if pulls and units.users is None:
        # of noise the average has less; and what the sample explains is no fit to other rows
        more = float(curvatures.mean()) * (float(np.mean(pulls, axis=0)[1]) - size)
        more += UNIT_DESCENT.explained * d / units.n_present * float(explained.sum())
        part = _pulled_part(units, slopes, walk, pulls, more * units.spread**2, part, level)
    # (small slopes cost nothing, and rank)
    return Clear(max(part, UNIT_DESCENT.least_part), min(1.0, chance / scale))


def _pulled_part(
    units: Units,
    slopes: Array,
    walk: Walk,
    pulls: Pulls,
    more: float,
    part: float,
    level: Any = 0.0,
) -> float:
    """What slopes of several classes are multiplied by, of which `part` is a guess.

    A gradient has noise of its own. Along the slopes before its step it tells how far these are
    from those that suit the rows: by the mean of such pulls, less what is known to be `more`, and
    that for normal predictions of which so many times the slopes are right.
    """
    rules, times = UNIT_DESCENT, np.arange(0.05, 4, 0.1)
    pull, energy = np.mean(pulls, axis=0)
    points = _normal_points(units, slopes, units.spread * float(np.linalg.norm(slopes)))
    offset = _class_offsets(units)
    p = softmax(points + offset + level, axis=1)
    _, _, shorter = _shortened(p, walk.clip)
    along = units.frame.mean_weight * shorter * ((p * points).sum(axis=1, keepdims=True) - points)
    expected = [float((softmax(t * points + offset, axis=1) * along).sum()) / len(p) for t in times]
    off = walk.clip * walk.ratio * pull - more - np.array(expected)
    # of none, less that of slopes that are right
    wrong = rules.not_normal * (expected[0] - float(np.interp(1.0, times, expected)))
    variance = walk.variance * energy / len(pulls) + wrong**2
    # a Gamma law, wider where noise is not small: scores in groups are not normal, and far clearer
    mean = max(part, rules.least_part)
    hidden = (1 - min(part, 1.0)) ** (1 / rules.noise_power)
    shape = (mean / max(rules.guess, mean * min(1.0, hidden / rules.clear_groups))) ** 2
    likely = 2 * ((shape - 1) * np.log(times) - shape * times / mean)
    unlikely = off**2 / max(variance, 1e-12) - likely
    return float(np.average(times, weights=np.exp((unlikely.min() - unlikely) / 2)))


def _where_clipped(
    units: Units, clip: float, slopes: Array, spread: float, level: Any = 0.0
) -> tuple[Array, Array]:
    """Curvatures of a loss of labels, and mean squares of its derivatives, where these are clipped.

    In K - 1 directions of classes, for predictions that are normal, of that spread, and right.
    Derivatives that are all clipped, and those along rare classes, hardly pull back what noise has
    moved. Of users it is sums over their rows that are clipped, thought of as not alike.
    """
    problem = units.problem
    clip, of_users = (clip, math.inf) if units.users is None else (math.inf, clip)
    points = _normal_points(units, slopes, spread) + _class_offsets(units)
    law, p = softmax(points, axis=1), softmax(points + level, axis=1)
    # (of two classes, whose scores are 0 and z, a curvature in z is half of that in both)
    clip, unit = (clip, 1.0) if problem.has_frequencies else (math.sqrt(2) * clip, 0.5)
    # of residuals r, p less 1 for the label, and their derivatives J: J, less what is along r where
    # r is clipped, and r r', each times what the clip leaves
    of_all, norms, shorter = _shortened(p, clip)
    left, cut = law * shorter, np.where(shorter < 1, law * shorter / norms, 0.0)
    cut_p, of_r = cut * p, p**2 - of_all * p
    bent = np.diag((left.sum(axis=1, keepdims=True) * p - cut_p).sum(axis=0))
    bent -= (left.sum(axis=1, keepdims=True) * p).T @ p
    bent -= (cut.sum(axis=1, keepdims=True) * p - cut).T @ of_r
    bent -= (cut_p.sum(axis=1, keepdims=True) * p - cut_p).T @ p - p.T @ cut_p
    left *= shorter
    square = np.diag(left.sum(axis=0)) - p.T @ left - left.T @ p
    square += (left.sum(axis=1, keepdims=True) * p).T @ p
    basis = helmert(p.shape[1])  # what classes have in common changes no probability
    curvatures, turn = np.linalg.eigh(basis @ (bent + bent.T) @ basis.T / 2)
    squares = np.einsum("ij,jk,ik->i", turn.T @ basis, square, turn.T @ basis)
    weight = units.frame.mean_weight * unit / len(p)
    curvatures, squares = weight * np.maximum(curvatures, 0.0), weight * squares
    if units.users is None:
        return curvatures, squares
    rows = units.n_present / units.n_users
    norm = math.sqrt(rows * units.trace * float(squares.sum()))
    part = min(1.0, of_users / max(norm, TINY))  # of sums, where the clip is too small by chance
    return part * curvatures, part**2 * squares


def _shortened(p: Array, clip: float) -> tuple[Array, Array, Array]:
    """Of probabilities the sums of squares, residuals' squared norms, and by what a clip cuts."""
    of_all = (p**2).sum(axis=1, keepdims=True)
    norms = np.maximum(of_all - 2 * p + 1, TINY)
    return of_all, norms, np.minimum(1.0, clip / np.sqrt(norms))


def _without_doubts(units: Units, slopes: Array, walk: Walk) -> Array:
    """Slopes of shape (d, K), without what is in doubt unless it is far above its noise.

    Along directions coefficients are also kept if their noise is no larger than they usually are.
    """
    if units.doubts is None:
        return slopes
    rules, (kept, moments, axes, unclear, coefs) = UNIT_DESCENT, units.doubts
    along, noise = axes.T @ slopes, slopes.shape[1] * walk.variance
    of_one = noise * walk.kept_noise(0.0)
    usual = float(((coefs @ ((1 - unclear)[:, None] * along)) ** 2).sum())
    large = of_one * (coefs**2).sum(axis=0)
    unclear = unclear * large / np.maximum(large + rules.usual * usual, TINY)
    energy = (along**2).sum(axis=1)
    lost = unclear * np.minimum(rules.sure_along * of_one, energy) / np.maximum(energy, TINY)
    slopes = slopes - axes @ (lost[:, None] * along)
    plain = units.transform[: len(slopes), : len(slopes)]
    coef, squares = plain @ slopes, (plain**2).sum(axis=1)
    # (of columns that go with each other the product is above all moments: steps would diverge)
    curvatures = units.curvature * np.minimum(moments * squares, units.top)
    least = rules.sure * noise * squares * walk.kept_noise(curvatures)
    energy = (coef**2).sum(axis=1)
    lost = (1 - kept) * np.minimum(least, energy) / np.maximum(energy, TINY)
    return np.asarray(slopes - np.linalg.solve(plain, lost[:, None] * coef))


def _restore_levels(
    units: Units, coef: Array, walk: Walk, unit: float, share: float = math.inf
) -> None:
    """Move intercepts, in place, back to the released means, from which they are clearly far.

    Clipped derivatives pull the level of skewed targets towards their median. By a factor as that
    of James and Stein, of the variance of either; `unit` is that of intercepts in the steps. The
    mean has a clip, too, and is wrong where large targets are fitted: if this `share` of residuals
    exceed the clip, only levels on the median's side are moved, as far as those can move the mean.
    Not where records have weights, which neither the means nor the centre of the rows count.
    """
    noise = np.max(units.level_noise) + np.max(units.center_noise)
    if noise == math.inf or units.problem.has_weights:  # not released, or not of the weighted ones
        return
    last, (slopes, own) = units.transform[-1, -1], _slopes_and_levels(units, coef)
    variance = units.level_noise + units.center_variance(slopes)
    variance += walk.variance * walk.kept_noise(units.curvature * unit**2) * unit**2
    doubtful, level = CORRECTION.level_doubt * variance, last * own
    kept = doubtful / np.maximum(np.maximum(doubtful, level**2), TINY)
    is_pulled = (level * units.median > 0) | (share == math.inf)
    most = np.where(is_pulled, share, 0.0)  # (what slopes explain pulls no level)
    most = np.minimum(most, _unexplained(units, slopes)) * unit_rules(units.problem).widest_mean
    own -= np.sign(level) * np.minimum((1 - kept) * np.abs(level), most) / max(last, TINY)


def _unexplained(units: Units, slopes: Array) -> Array:
    """The part of the variance of each target that slopes leave, if these targets are normal."""
    return np.maximum(0.0, 1 - (units.spread * NORMAL_MEDIAN) ** 2 * (slopes**2).sum(axis=0))


def restore_whole_means(units: Units, coef: Array) -> None:
    """Move intercepts, in place, to the means of all targets, from which they are surely far.

    Those have no clip, and more noise.
    """
    noise = np.max(units.whole_noise) + np.max(units.center_noise)
    if noise == math.inf:  # they were not released
        return
    last, (slopes, own) = max(units.transform[-1, -1], TINY), _slopes_and_levels(units, coef)
    variance = units.whole_noise + units.center_variance(slopes)
    # chance costs the more, the more spreads of the targets the noise is
    sure = (CORRECTION.mean_doubt + 4 * np.log1p(variance)) * variance
    off = own - units.whole / last
    own -= off * np.maximum(0.0, 1 - sure / np.maximum((last * off) ** 2, TINY))


@dataclass(frozen=True)
class Correction(Part):
    """Steps after a descent, with a clip that few derivatives exceed."""

    tail: SelectVertex | None  # for that clip; None if derivatives are bounded
    n_above: int  # records whose residuals may exceed it
    step: Gaussian
    n_steps: int
    # for the median size of the predictions, if steps are on their slope and intercept alone
    size: SelectVertex | None
    largest_unit: float  # of predictions of labels, in log-odds

    @property
    def releases(self) -> tuple[Release, ...]:
        sizes = ("prediction size", self.size, 1), ("residual size", self.tail, 1)
        return named_releases(*sizes, ("last gradient", self.step, self.n_steps))

    def run(self, units: Units, coef: Array, stream: RandomStream, clear: Clear) -> Array:
        """The corrected coefficients, in the units.

        All are moved as far as the move is above its noise, slopes and intercept apart; or see
        `_scaled`.
        """
        if self.size is not None:
            (coef, walk), unit = self._scaled(units, coef, stream, clear), _LINE_UNIT
            if units.problem.loss.task == "rates":
                noise = walk.variance * walk.kept_noise(units.curvature * unit**2) * unit**2
                return units.near_mean(coef, noise)
        else:
            (coef, walk), unit = self._moved(units, coef, stream), units.unit[-1]
        # the wider clip tells the level
        is_cut = units.users is None and walk.clip < unit_rules(units.problem).widest_mean
        if is_cut and units.problem.loss.task == "regression":
            _restore_levels(units, coef, walk, unit, self.n_above / units.n_present)
        return coef

    def _moved(self, units: Units, coef: Array, stream: RandomStream) -> tuple[Array, Walk]:
        """All coefficients moved, and the steps."""
        problem, curvature = units.problem, units.curvature
        length = 0.75 * self.n_steps / (curvature * units.top)
        clip, (before, _) = self._clip(units, coef, stream), _slopes_and_levels(units, coef)
        if units.users is None and clip < math.sqrt(float(_unexplained(units, before).sum())):
            # targets are mostly one number, and the others fewer than can be counted
            noise = self.step.scale * units.ratio * math.sqrt(problem.size / self.n_steps)
            clip = max(clip, min(CORRECTION.widest, CORRECTION.wide_noise / max(noise, TINY)))
        walk = Walk(self.step, clip, self.n_steps, length, 0.0, units.ratio)
        move = _descend(units, coef, walk, stream, may_overshoot=True)[0] - coef
        variance = walk.variance * walk.kept_noise(curvature * units.trace / problem.dimension)
        slopes, levels = _slopes_and_levels(units, move)
        # what clips have taken is along the slopes, for the most part, and noise is along all
        size = np.maximum((before**2).sum(axis=0), TINY)
        along = before * ((before * slopes).sum(axis=0) / size)
        slopes -= along
        numbers = ((levels, levels.size), (slopes, slopes.size - size.size), (along, size.size))
        for part, number in numbers:
            energy = max(float((part**2).sum()), TINY)
            part *= max(0.0, 1 - number * variance / energy)
        slopes[:] = _without_doubts(units, slopes + along, walk)
        return coef + move, walk

    def _scaled(
        self, units: Units, coef: Array, stream: RandomStream, clear: Clear
    ) -> tuple[Array, Walk]:
        """Slope and intercept between the old ones and those of steps, by the noise; the steps.

        The old slope is the part of the descent's that is clear. One that the same records tell is
        too large by what they fit by chance. Classes have one slope together, and an intercept
        each, which is found as a distance from where the released frequencies put it.
        """
        problem, half = units.problem, _LINE_UNIT
        d, k = problem.n_features, problem.n_outputs
        point = (units.unit * coef.reshape(problem.dimension, k).T).T
        slopes = _slopes_and_levels(units, coef)[0]
        spread, far, unit, sizes = self._sized(units, slopes, clear, point[:d], stream)
        points = _normal_points(units, slopes, spread) if tells_levels(units) else None
        of_own = half * (CORRECTION.prior if k == 1 else CORRECTION.prior_of_classes)
        own, prior = (point[d:].ravel(), of_own**2 + clear.levels), far * CORRECTION.prior

        def level(steeper: float) -> tuple[Array, Array]:
            """Where the intercepts are thought to be, for slopes times this, and its variance."""
            return own if points is None else _doubted_levels(units, slopes, steeper * points, own)

        is_normal, (thought, doubt) = k == 1 and points is not None, level(clear.part)
        if is_normal:  # (scores in groups are not; from far off, steps do not come to their level)
            thought = _between(thought, doubt, *own)
        center = 0.0 if points is None else _center(units, clear.part * points, points, thought)
        line = _on_line(units, sizes, unit, center)
        start = np.append(clear.part * unit, thought - clear.part * center) / half
        walk = self._walk_on_line(line, self._clip(line, start, stream))
        after, _, longer = _descend(line, start, walk, stream, may_grow=True)
        told = after[0] * half / unit
        levels = after[1:] * half + told * center
        if problem.loss.task != "regression" and not problem.is_wide:
            prior = min(prior, CORRECTION.slope_prior * unit / half)
        slope, steepest = told - clear.chance, CORRECTION.steepest * longer[0]
        steeper = min(steepest, max(0.0, slope))
        thought, doubt = level(steeper)
        if is_normal:
            prior = min(prior, CORRECTION.prior_of_two)
        # (where steps are not the shortest, their noise is small)
        is_noisy = walk.length <= CORRECTION.shortest / units.curvature and slope > clear.part
        found = np.append(steeper * unit, thought - steeper * center) if is_noisy else None
        of_two = None if points is None or k > 1 else points[:, 1] + center
        curved = longer * _curvatures(units, of_two, unit, half * start, found)
        curved = np.minimum(curved, units.curvature)  # over which steps are longer
        noise = walk.variance * longer**2 * walk.kept_noise(0.4 * curved)
        kept = 1 / (1 + noise[0] / max(prior**2, TINY))
        least = max(UNIT_DESCENT.least_part, (clear.part - CORRECTION.most_lost) * (k == 1))
        least *= problem.loss.task == "classification" and not problem.is_wide
        steeper = min(steepest, max(least, clear.part + kept * (slope - clear.part)))
        there, less = level(steeper)
        # (levels of slopes that were told, and are not kept, may be in more doubt)
        doubt, noises = np.minimum(less, doubt), noise[1:] * half**2
        if points is not None:  # where slopes are not kept, levels are those of the others
            levels += (steeper - told) * _center(units, told * points, points, levels)
        found, coef = _between(there, doubt, levels, noises, is_surprise=is_normal), coef * steeper
        if found.size and units.unit[d] > 0:  # or rows are 0, all of them and for certain
            _slopes_and_levels(units, coef)[1][:] = found / units.unit[d]
        return coef, walk

    def _sized(
        self, units: Units, slopes: Array, clear: Clear, point: Array, stream: RandomStream
    ) -> tuple[float, float, float, SolverData]:
        """The spread of predictions, over that of most of them, their unit, and they themselves.

        Few rows whose predictions are far from all others may be most of a class, and would hardly
        count if they were much longer than the unit. So it is larger where second moments tell of
        such predictions, those of slopes of which a part near 1 is `sure`, and no noise. Where two
        classes are clear, labels are mixed near 0 alone, and that tells the slope: in a unit of few
        log-odds those rows have gradients as long as any, clear of the noise.
        """
        assert self.size is not None
        k, octaves = units.problem.n_outputs, np.arange(-8.0, 8.01, 0.25)
        sizes = units.data.map(statistics.of_predictions, point, clear.own).kept()
        n, grid, prior = units.n_present, 2.0**octaves, -0.5 * np.abs(octaves)
        few = few_longer(n, self.size)
        counts = sizes.sum(norm_counts, grid)
        spread = median_on_grid(counts, n, grid, prior, self.size, stream, few)
        n_free = max(1, k - 1)
        spread, far = spread / math.sqrt(chdtri(n_free, few / n) / n_free), 1.0
        if units.problem.loss.task == "classification":
            most = max(1.0, CORRECTION.largest_unit / spread)
            far = min(most, max(1.0, _spread_of(units, slopes) / spread))
            far = min(most, far ** (1.5 * min(1.0, clear.part) ** CORRECTION.sure))
        spread *= far
        if not tells_levels(units):
            return spread, far, spread, sizes
        # (of few records for a column, those near 0 are fitted by chance)
        few = max(1.0, CORRECTION.records * len(point) / n)
        return spread, far, min(spread, few * self.largest_unit), sizes

    def _walk_on_line(self, line: Units, clip: float) -> Walk:
        """Further where the noise is small, for classes of which one is rare."""
        scale = line.ratio * self.step.scale / math.sqrt(self.n_steps)
        if line.problem.loss.task != "regression":
            scale *= clip / line.problem.joint_unit
        reach = CORRECTION.reach / max(scale, TINY)
        # the loss of K classes has a curvature of about 1 / K
        longest = CORRECTION.longest * max(1.0, line.problem.n_outputs / 3)
        reach = min(longest, max(CORRECTION.shortest, reach))
        length = reach / line.curvature
        return Walk(self.step, clip, self.n_steps, length, CORRECTION.momentum, line.ratio)

    def _clip(self, units: Units, coef: Array, stream: RandomStream) -> float:
        """A clip that `n_above` records exceed, of the derivatives at the coefficients."""
        if self.tail is None:
            return units.clip if units.problem.loss.task == "rates" else units.problem.joint_unit
        if units.users is not None:
            few, rare = self.n_above / units.n_users, CORRECTION.rarer * _rarer(units)
            # (the selection must not miss by its own noise)
            least = CORRECTION.clear * self.tail.scale / units.n_users
            clip = _user_clip(units, coef, self.tail, min(few, max(rare, least)), stream)
            # of users with a rare label, whom it then does not see, a row counts in full
            is_blind = least > rare and units.problem.loss.task == "classification"
            return max(clip, units.problem.joint_unit) if is_blind else clip
        sizes = units.data.map(statistics.residuals, _point(units, coef), units.frame.offset)
        octaves = np.arange(-4.0, 10.01, 0.5)
        # far too wide ones, which cost most, are as likely by chance as others
        prior = -0.5 * octaves - 1.5 * np.maximum(octaves - 4.0, 0.0)
        grid, n = 2.0**octaves, units.n_present
        counts = sizes.sum(norm_counts, grid)
        return median_on_grid(counts, n, grid, prior, self.tail, stream, self.n_above)


def _on_line(units: Units, sizes: SolverData, unit: float, center: Any) -> Units:
    """Predictions about a centre, in a unit, in the place of rows."""
    problem = replace(units.problem, n_features=units.problem.n_outputs)
    data = sizes.map(statistics.on_line, unit, center).kept(most=_LINE_BYTES)
    unit_of = np.full(1 + problem.n_outputs * problem.fit_intercept, _LINE_UNIT)
    return units._replace(problem=problem, data=data, unit=unit_of)


# ------------------------------------------------------------------ levels of probabilities


def tells_levels(units: Units) -> bool:
    """Whether frequencies were released of which the means of probabilities can be had."""
    problem = units.problem
    is_told = problem.loss.task == "classification" and units.level_noise < math.inf
    # (where the last unit is 0, all rows are, and for certain)
    return is_told and units.unit[-1] > 0 and not problem.is_wide


def move_toward_levels(
    units: Units,
    coef: Array,
    noise: Any,
    clip: float = math.inf,
    length: float = 0.0,
    kept: float = 1.0,
) -> None:
    """Move intercepts, in place, toward those of the released frequencies, if there are any.

    By the variances of both, that of predictions where features are 0 being `noise`, and what steps
    of this clip and length may have moved them, of whose slopes a part is kept.
    """
    if not tells_levels(units):
        return
    unit, (slopes, own) = float(units.unit[-1]), _slopes_and_levels(units, coef)
    rarer, pushed = _rarer(units), 0.0
    if units.problem.n_outputs == 1 and clip < 1 - rarer:
        # Clipped derivatives of two unequal classes push the level of the more frequent one up: by
        # a part of all steps along the first gradient, as it falls, and no further than where it is
        # 0. A part of that is by slopes along the error of the centre, where rows are on average.
        gradient = (1 - rarer) * min(rarer, clip) - rarer * clip
        error = units.center_variance(np.eye(len(slopes))).sum() if slopes.size else 0.0
        error = min(float(error), 1.0)
        whole = 0.3 * length * (unit**2 + error) * gradient
        whole = min(whole, math.log(1 / clip - rarer / (1 - rarer)))
        pushed = whole * error / (unit**2 + error)
        noise = noise + (0.5 * (whole - pushed)) ** 2
        # the less of it the more alike classes are by their weights
        part = math.tanh(_class_offsets(units)[1] / 2) / max(1 - 2 * rarer, TINY)
        whole, pushed = part * whole, part * pushed
        own[0] -= 0.5 * (whole - pushed) / unit
    thought, doubt = _doubted_levels(units, slopes, _normal_points(units, slopes))
    thought = thought - kept * pushed
    own[0] = _between(thought / unit, doubt, own[0], noise)


def _apart(off: Array, variance: Array) -> Array:
    """Intercepts of these variances without what all classes have in common.

    It changes no probability.
    """
    return off - np.average(off, weights=1 / np.maximum(variance, TINY)) if off.size > 1 else off


def _between(
    thought: Array, doubt: Array, own: Array, noise: Any, *, is_surprise: bool = False
) -> Array:
    """Intercepts between those thought of and those of steps, by the variances of both.

    With `is_surprise`, those of steps stay that are off beyond any doubt: of two classes a flag may
    rule one out, and then predictions are no normal ones.
    """
    variance = np.maximum(doubt + noise, TINY)
    off, kept = _apart(own - thought, variance), doubt / variance
    if is_surprise:
        sure = CORRECTION.level_doubt * (1 + noise / CORRECTION.known_level) * variance
        kept = np.maximum(kept, 1 - sure / np.maximum(off**2, TINY))
    return np.asarray(thought + kept * off)


def _start_levels(units: Units, coef: Array) -> None:
    """Set intercepts, in place, to where Newton steps begin.

    Clipped derivatives of unequal classes leave them far below a rarer class, from where such steps
    overshoot. From above they fall short, so not far above the levels of the released frequencies:
    at their log-odds, the offset, if slopes are small.
    """
    slopes, own = _slopes_and_levels(units, coef)
    own[:] = 0.0
    if tells_levels(units):
        level = _levels(units, _normal_points(units, slopes))
        far = np.maximum(np.abs(level) - CORRECTION.start_above, 0.0)
        own[:] = np.sign(level) * far / units.unit[-1]


def _push_back(units: Units, slopes: Array, own: Array, walk: Walk) -> Array:
    """Take from intercepts of several classes, in place, what clips have moved them by.

    Returned are variances of their levels, by what is thought of that and by the noise. Derivatives
    of a rarer class are cut by more: the gradient is 0 where its level is lower by the logarithm of
    what is left of these, over that of all.
    """
    unit, clip = float(units.unit[-1]), math.inf if units.users is not None else walk.clip
    p = softmax(_normal_points(units, slopes) + _class_offsets(units), axis=1)
    _, _, shorter = _shortened(p, clip)
    left = p * shorter
    of_all = (p * left.sum(axis=1, keepdims=True)).mean(axis=0)
    pushed = np.log(np.maximum(left.mean(axis=0), TINY) / np.maximum(of_all, TINY))
    curvature = units.frame.mean_weight * unit**2 * (p * (1 - p)).mean(axis=0)
    # what part of the way there the steps have come, on average over the second half of them
    done = np.maximum(-np.expm1(-0.75 * walk.length * curvature), _LEAST_DONE)
    own[:] = own / done - pushed / unit
    own -= own.mean()
    noise = walk.variance * walk.kept_noise(curvature) * (unit / done) ** 2
    return np.asarray((0.5 * pushed) ** 2 + noise)


def _spread_of(units: Units, slopes: Array) -> float:
    """The root mean square of predictions, by second moments; of classes less their mean."""
    apart = slopes - slopes.mean(axis=1, keepdims=True) if slopes.shape[1] > 1 else slopes
    return units.spread * float(np.linalg.norm(apart))


def _normal_points(units: Units, slopes: Array, spread: float | None = None) -> Array:
    """Normal predictions of all classes, without intercepts; of two classes, 0 and the second's.

    Slopes of shape (d, K) of columns that are alike; the spread is the root mean square of the
    predictions, less their mean over several classes, by default `_spread_of` them.
    """
    k, spread = slopes.shape[1], _spread_of(units, slopes) if spread is None else spread
    if k == 1:
        return spread * np.outer(ndtri((np.arange(_N_POINTS) + 0.5) / _N_POINTS), [0.0, 1.0])
    slopes = slopes - slopes.mean(axis=1, keepdims=True)
    # directions of any number of classes, the same in all fits
    points = np.random.default_rng(0).standard_normal((_N_POINTS, len(slopes))) @ slopes
    size = math.sqrt(float((points**2).sum()) / _N_POINTS)
    return np.vstack((points, -points)) * (spread / max(size, TINY))


def _class_offsets(units: Units) -> Array:
    """Constant predictions of all classes, of two 0 and the second's."""
    offset = np.atleast_1d(units.frame.offset)
    return np.append(0.0, offset) if units.problem.n_outputs == 1 else offset


def _levels(units: Units, points: Array) -> Array:
    """What intercepts are above the constant prediction, shape (K,), for predictions about them.

    Weights of classes shift the intercepts of a model without them by their logarithms.
    """
    problem, offset = units.problem, _class_offsets(units)
    weights: Any = units.frame.class_weight
    weights = problem.class_weight if weights is None else weights
    shift = 0.0 if weights is None else np.log(np.maximum(weights, 1e-12))
    frequencies = softmax(offset - shift)
    found, k = np.log(frequencies), frequencies.size
    for _ in range(_MOST_STEPS):
        p = softmax(points + found, axis=1)
        mean = p.mean(axis=0)
        # (1 / k for all levels together, which nothing tells)
        curvature = np.diag(mean) - p.T @ p / len(p) + 1 / k + 1e-12 * np.eye(k)
        step = np.linalg.solve(curvature, mean - frequencies)
        # second derivatives change by a factor of e^far at most, with which no step overshoots
        far = float(np.ptp(step))
        found = found - step * (math.log1p(far) / max(far, TINY))
        if far < 1e-10:
            break
    found = found + shift - offset
    return found[1:] - found[0] if problem.n_outputs == 1 else found - found.mean()


def _tilt(units: Units, coef: Array) -> float:
    """By how much second derivatives change the mean of normal predictions, over their variance."""
    problem, loss = units.problem, units.problem.loss
    if loss.task == "regression" or problem.n_outputs > 1 or not problem.fit_intercept:
        return 0.0
    if isinstance(loss, Tweedie):
        return 2.0 - loss.power
    slopes, own = _slopes_and_levels(units, coef)
    spread = max(_spread_of(units, slopes), 0.01)
    points = _normal_points(units, slopes, spread)[:, 1]
    p = expit(points + units.unit[-1] * own.sum() + units.frame.offset)
    return float(np.average(points, weights=p * (1 - p) + TINY)) / spread**2


def _center(units: Units, at: Array, points: Array, level: Array) -> Array:
    """What to add to points, so that no frequency changes by a multiple of them.

    To the first order, where predictions are `at` with these levels. Steps in slope and levels then
    do not depend on each other: where classes are clear, both grow together.
    """
    k = units.problem.n_outputs
    p = softmax(at + _class_offsets(units) + (np.append(0.0, level) if k == 1 else level), axis=1)
    moved = (p * (points - (p * points).sum(axis=1, keepdims=True))).mean(axis=0)
    curvature = np.diag(p.mean(axis=0)) - p.T @ p / len(p)
    size = max(float(np.trace(curvature)), TINY)
    found = -np.linalg.pinv(curvature / size, 1e-6, hermitian=True) @ (moved / size)
    return np.asarray(found[1:] - found[0] if k == 1 else found)


def _curvatures(
    units: Units, points: Array | None, unit: float, start: Array, found: Array | None
) -> Array:
    """Of the loss in slope and levels, at most the usual; of two classes, if points are given.

    By rows as in `on_line`. In the level at the start, in the slope where it was found, if at all:
    where predictions are clear they are small, and noise takes a slope that grows much further than
    one that falls.
    """
    k = units.problem.n_outputs
    if k > 1:  # the rarer a class, the less is known of its intercept
        frequencies = softmax(units.frame.offset + np.zeros(k))
        of_levels = frequencies * (1 - frequencies)
        return np.append(of_levels.mean(), of_levels)[: start.size]
    if points is None:
        return np.full(start.size, units.curvature)
    squares = (points / unit) ** 2
    rows = units.frame.mean_weight * np.sqrt(2 / np.maximum(2.0, squares + 1)) / len(points)
    curved = np.array([units.curvature, units.balance / 8])  # half of the variance of labels
    at_start = expit(start[0] * points / unit + units.frame.offset + start[1])
    if unit <= CORRECTION.largest_unit:  # rows near 0 count most
        curved[1] = min(curved[1], float(rows @ (at_start * (1 - at_start))))
    if found is not None:
        p = expit(found[0] * points / unit + units.frame.offset + found[1])
        curved[0] = min(curved[0], float((rows * squares) @ (p * (1 - p))))
    return curved


def _doubted_levels(
    units: Units, slopes: Array, points: Array, own: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """`_levels`, and their variance: by the law of the predictions, which may be another one.

    And by the noise in the frequencies and in the centre of the rows. Of several classes, between
    these and levels of one's own with their variance, if there are any: scores that are clear are
    in groups, and not normal.
    """
    thought, stretch = _levels(units, points), CORRECTION.law_doubt
    wrong = _levels(units, stretch * points) - thought
    frequencies = softmax(_class_offsets(units))[-units.problem.n_outputs :]
    noise = math.sqrt(units.level_noise)
    unit = np.maximum(frequencies, noise) * np.maximum(1 - frequencies, noise)
    doubt = (noise / unit) ** 2 + units.center_variance(slopes) + wrong**2
    doubt = doubt + units.tilt * (points[:, -doubt.size :] ** 2).mean(axis=0)
    if own is None or units.problem.n_outputs == 1:
        return thought, doubt
    # half of the variances, by which levels differ, may be as wrong in one class alone
    doubt = doubt + ((stretch**2 - 1) / 2 * (points**2).mean(axis=0)) ** 2
    return _between(thought, doubt, *own), doubt / (doubt + own[1]) * own[1]
