"""Scores of a fitted estimator on held-out records under differential privacy, and their plan."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from operator import itemgetter
from typing import Any

import numpy as np
from scipy.special import expit, ndtri
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from .._checks import (
    auto_or,
    check_choice,
    check_count,
    check_level,
    check_real,
    check_size,
    import_pandas,
    listed,
    saying,
    says_level,
    shown,
    stated,
    telling,
    warn_user,
)
from .._fitting import Accounting
from .._overview import Overview, Overviewed
from .._types import (
    AnyArray,
    Array,
    Auto,
    Bounds,
    ClassLabels,
    Integers,
    Magnitude,
    Precision,
    RandomState,
    Relation,
    Scoring,
)
from ..data import cells
from ..data.bounds import check_target_bounds, number_bounds
from ..exceptions import PrivacyParameterWarning
from ..mechanisms import Gaussian, Laplace, Release, SelectVertex, additive_noise
from ..preprocessing.declared import opened, reaching
from ..privacy.accountant import accountant_in_force
from ..privacy.budget import PrivacyBudget, check_delta
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream, check_random_state, stream_from_random_state
from .intervals import Law
from .releases import (
    FORMULAS,
    INVALID,
    LARGEST_SAMPLE,
    SCORINGS,
    Answers,
    Estimate,
    Facts,
    Query,
    Range,
    joint,
    queries_for,
    sized,
)

# bins of means where none are given: of equal width, or "doubling" up to the end of the bounds
_EVEN, _DOUBLING = 10, 2.0 ** np.arange(-11, 1)
_LOSSES = ("r2", "neg_mean_absolute_error", "neg_mean_squared_error", "mean_bias")
_OF_NUMBERS = (*_LOSSES, "binned_means")
_OF_THE_SECOND = ("roc_curve", "calibration_curve", "calibration_in_the_large")
_OF_TWO_CLASSES = ("roc_auc", "neg_brier_score", *_OF_THE_SECOND)
_OF_PROBABILITIES = (*_OF_TWO_CLASSES, "neg_log_loss")
_MOST_SHOWN = 22  # rows of a table
# Of the selections of ranges: their parts of the budget; how many records one that is narrower by a
# factor e is worth, in units of the noise; and the largest share of all records that may so be left
# out: rare large targets are not few errors.
_RANGE_SHARE, _WORTH = {"targets": 0.2, "errors": 0.1}, {"targets": 5.0, "errors": 12.0}
_LEFT_OUT = {"targets": 0.1, "errors": 0.02}
_LIKELY_ERROR = 1.4  # the largest one that is kept, in half widths of the range of the targets
_FEW = 4  # releases for which Laplace noise is less than Gaussian noise
_SQUARED_ERROR = "neg_mean_squared_error"
_FILLED = 1 / 20_000  # noise per record that is too little to hide targets in narrow ranges
# What a plan that counts them says of missing targets.
_MISSING = (
    "spoil it, unless they are left out, which widens it: if the model has nonfinite='zero', "
    "plan with invalid='exclude', as dp_score does, for the number of the others"
)
_NARROWER = {"targets": 2.0, "errors": 2.5}  # by which ranges can be at least, or none is selected
# Standard deviations of targets in units of their bounds' width, of which R^2 is foretold, and of
# how many records. A spread of the first is that of bounds which cut off a good deal.
_SPREADS, _STAND_INS = (0.2, 0.02), 4096
_LONG = 0.6  # interval of an R^2 of .5, of which a plan warns
_HINTED = 0.3  # interval of a released R^2 that has a hint
_SELECTED = 41  # times that ranges are, of which the middle is told
_HIDDEN = (
    "* noise hides the value: it is at the end of its range, and its interval is half of the range "
    "or more, or its interval is all of the range. Take more records or a larger epsilon"
)
_HIDDEN_TARGETS = ", narrower bounds_y, a smaller max_error, or neg_mean_absolute_error"
# Scores by other names; of an RMSE the square.
_MEANT = dict.fromkeys(("rmse", "mse", "neg_root_mean_squared_error"), _SQUARED_ERROR)
_MEANT |= dict.fromkeys(("brier", "brier_score", "brier_score_loss"), "neg_brier_score")
_MEANT |= {"mae": "neg_mean_absolute_error", "auc": "roc_auc", "log_loss": "neg_log_loss"}
# What an invalid record counts as, where it is not left out.
_COUNTED = dict.fromkeys(
    (*_LOSSES, "neg_brier_score", "neg_log_loss"), "as half of the largest loss"
)
_COUNTED |= {"accuracy": "as wrong", "mean_bias": "as 0", "calibration_in_the_large": "as 0"}


@dataclass(frozen=True)
class ScorePlan(Overviewed):
    """All that private scores depend on besides the records; made before any is read.

    Attributes
    ----------
    scorings : tuple of str
    queries : tuple of Query
        What is released: the fewest sums that tell all of the scores.
    noises : tuple of Gaussian or Laplace
        On each of them.
    confidence : float
    guarantee : Guarantee
        Of all scores together.
    ranges : tuple of Range
        The selections of ranges that hold most targets and errors, to which those of R^2 and of the
        mean squared error are then clipped.
    """

    scorings: tuple[str, ...]
    queries: tuple[Query, ...]
    noises: tuple[Gaussian | Laplace, ...]
    confidence: float
    guarantee: Guarantee
    ranges: tuple[Range, ...] = ()

    def overview(self) -> Overview:
        """All releases, below a line that says of what, and how wide an interval of R^2 will be."""
        what = f"{', '.join(self.scorings)} on {self.n_samples} records"
        what += f" in {self.n_groups} groups" if self.n_groups > 1 else ""
        k = 1 + max(query.facts.target for query in self.queries)
        what += f", for each of {k} targets with 1/{k} of the budget" if k > 1 else ""
        if "r2" in self.scorings:
            excludes = self.queries[0].facts.excludes
            form = "[{:.2g}, {:.2g}] if it is {:g}".format
            intervals = (form(*self.expected_r2(spread=spread), spread) for spread in _SPREADS)
            what += (
                f"; with invalid={'exclude' if excludes else 'count'!r}, "
                "the interval to expect of an r2 of 0.5 with normal targets, by their standard "
                f"deviation over the width of bounds_y: {', '.join(intervals)}; missing targets "
                + ("widen it: plan for the number of the others" if excludes else _MISSING)
            )
        return self.guarantee.overview().of(what)

    def expected_r2(self, r2: float = 0.5, *, spread: float = 0.15) -> tuple[float, float]:
        """The interval of R^2 to expect; reads no data and spends nothing.

        It is about the middle one of those that noise may give. Targets and errors are assumed to
        be normal, and with groups to be of one among so many of the same size. Intervals are longer
        where targets are skewed, or missing: with ``invalid="exclude"`` about those of a plan for
        the number of the others.

        Parameters
        ----------
        r2 : float in [0, 1], default=0.5
            What the model is assumed to have.
        spread : float in (0, 0.5], default=0.15
            The standard deviation that targets are assumed to have, in units of the width of
            `bounds_y`.

        Returns
        -------
        low, high : float
            `low` is -inf if noise hides R^2.

        Raises
        ------
        ValueError
            If R^2 is none of the plan's scores, or a parameter is out of range.

        Examples
        --------
        >>> from sklearn_dpsco import plan_score
        >>> plan = plan_score(2860, scoring="r2", epsilon=2.0, bounds_y=(0, 60))
        >>> low, high = plan.expected_r2(0.6, spread=0.1)
        >>> bool(0.3 < low < 0.6 < high < 0.8)
        True
        """
        if "r2" not in self.scorings:
            raise ValueError("expected_r2 is of a plan with scoring='r2'")
        known = math.sqrt(check_real("r2", r2, low=0, high=1))
        spread = check_real("spread", spread, low=0, high=0.5, low_open=True)
        releases = zip(self.queries, self.noises, strict=True)
        query, noise = next(pair for pair in releases if "r2" in FORMULAS[pair[0].name].tells)
        facts, n = query.facts, self.n_samples / self.n_groups
        m = min(math.ceil(n), _STAND_INS)
        normal, rng = ndtri((np.arange(m) + 0.5) / m), np.random.default_rng(0)
        unit, middle = spread * (facts.high - facts.low), facts.low / 2 + facts.high / 2
        prediction = middle + unit * known * normal
        y = prediction + unit * math.sqrt(1 - known**2) * rng.permutation(normal)
        answers, share, found = {"y": y, "prediction": prediction}, m / self.n_samples, []
        ranges = [one for one in self.ranges if one.target == facts.target]

        @functools.cache  # most draws select the same ranges
        def scores(one: Range, own: Facts) -> Array:
            part = replace(one, worth=share * one.worth, most=share * one.most)
            return part.scores(own, answers) / share

        @functools.cache
        def interval(own: Facts) -> tuple[float, float]:
            own_query = replace(query, facts=own)
            sums = own_query.statistic(answers) * (n / m)
            return own_query.estimate("r2", sums, self._law(noise))["interval"]

        for seed in range(_SELECTED if ranges else 1):
            own, draws = facts, np.random.default_rng(seed)
            for one in ranges:
                of_each = scores(one, own)
                noisy = of_each + draws.gumbel(0.0, one.select.scale, of_each.size)
                own = one.narrowed(own, int(np.argmax(noisy)))
            found.append(interval(own))
        return sorted(found, key=lambda ends: ends[1] - ends[0])[len(found) // 2]

    def _law(self, noise: Gaussian | Laplace, number: int = 1) -> Law:
        """Of the sums of so many groups."""
        laplace = float(noise.noise_multiplier is None) / number
        return Law(number * noise.variance, self.confidence, laplace, self.guarantee.rows_per_user)

    @property
    def n_samples(self) -> int:
        """Number of records."""
        return self.queries[0].facts.n_samples

    @property
    def n_groups(self) -> int:
        """Of each of which all sums are released; 1 stands for no groups."""
        return self.queries[0].facts.n_groups

    def narrowed(self, answers: Answers, stream: RandomStream, group: Any = 0) -> ScorePlan:
        """The plan with the released ranges, if it has any; noise stays as it is."""
        if not self.ranges:
            return self
        rows: Any = slice(None) if self.n_groups == 1 else group >= 0
        queries = list(self.queries)
        for one in self.ranges:
            for k, query in enumerate(queries):
                tells, facts = FORMULAS[query.name].tells, query.facts
                if facts.target == one.target and _SQUARED_ERROR in tells:  # of one query alone
                    scores = one.scores(facts, _part(answers, rows, one.target))
                    selected = one.select.release(scores, stream)
                    queries[k] = replace(query, facts=one.narrowed(facts, selected))
        return replace(self, queries=tuple(queries), ranges=())

    def statistics(self, answers: Answers, group: Any = 0) -> list[Array]:
        """The sums to which noise is added, group by group. Not private.

        `group` is the position of each record's group, -1 for none.
        """
        groups = range(self.n_groups)
        rows: list[Any] = [slice(None) if self.n_groups == 1 else group == k for k in groups]
        return [
            np.concatenate([q.statistic(_part(answers, own, q.facts.target)) for own in rows])
            for q in self.queries
        ]

    def release(self, statistics: Sequence[Array], stream: RandomStream) -> list[Array]:
        """The sums with noise."""
        pairs = zip(self.noises, statistics, strict=True)
        return [noise.release(value, stream) for noise, value in pairs]

    def estimates(
        self, noisy: Sequence[Array], group: int | None = None, target: int = 0
    ) -> dict[str, Estimate]:
        """Each score of a target and its interval: functions of the noisy sums and of this plan.

        Of one group, or of the records of all groups together.
        """
        found: dict[str, Estimate] = {}
        groups = list(range(self.n_groups)) if group is None else [group]
        valid: list[tuple[float, float]] = []  # variances and numbers
        for query, noise, released in zip(self.queries, self.noises, noisy, strict=True):
            if query.facts.target != target:
                continue
            sums = released.reshape(self.n_groups, -1)[groups].sum(axis=0)
            law = self._law(noise, len(groups))
            if query.facts.excludes:
                number, units = query.n_valid(sums)
                valid.append((units * law.variance, number))
            for name in set(self.scorings) & set(FORMULAS[query.name].tells):
                found[name] = query.estimate(name, sums, law) | {"counts": sums}
        _, n_valid = min(valid, key=itemgetter(0), default=(0.0, None))
        return {name: found[name] | {"n_valid": n_valid} for name in self.scorings}


def _part(answers: Answers, rows: Any, target: int) -> Answers:
    """Of some rows, and of one target, where there are several."""
    return {name: of[rows, target] if of.ndim == 2 else of[rows] for name, of in answers.items()}


def _scorings(scoring: Any, n_classes: int = 2) -> tuple[str, ...]:
    """The names of one scoring or of several, those of two classes alone if there are so many."""
    names = (scoring,) if isinstance(scoring, str) else scoring
    if not isinstance(names, (list, tuple)) or not names or len(set(map(str, names))) < len(names):
        raise ValueError(
            f"scoring must be a name or a list of different names, got {shown(scoring)}"
        )
    for name in map(str, names):
        if name.startswith("d2") or "deviance" in name:
            raise ValueError(
                "a deviance, and D2, have no private score here: take one of "
                f"{', '.join(map(repr, _LOSSES))}, or draw a CalibrationDisplay"
            )
        if name.partition("_")[0] in ("precision", "recall", "f1"):
            raise ValueError(
                f"scoring={name!r} is of single classes: take 'confusion_matrix', whose "
                "class_frame() has it with intervals, at no further cost"
            )
        if meant := _MEANT.get(name):
            raise ValueError(f"scoring has no {name!r}: take {meant!r}")
    names = tuple(check_choice("scoring", name, SCORINGS) for name in names)
    if (two := set(_OF_TWO_CLASSES) & set(names)) and n_classes != 2:
        raise ValueError(
            f"scoring={min(two)!r} needs two classes, got n_classes={n_classes}: for one class "
            "against the rest, score y == label, with an estimator that has classes_ [False, True] "
            "and as predict_proba 1 - p and p of that class (guide, Scores: One class)"
        )
    return names


@says_level
def plan_score(
    n_samples: int,
    *,
    scoring: Scoring | Sequence[Scoring] = "accuracy",
    n_classes: int = 2,
    epsilon: float = 1.0,
    delta: float | Auto = "auto",
    relation: Relation | Auto = "auto",
    confidence: float = 0.95,
    max_rows_per_user: int | Auto = "auto",
    bounds_y: Bounds | None = None,
    max_error: float | Magnitude | Auto = "auto",
    max_log_loss: float = 5.0,
    n_thresholds: int | Auto = "auto",
    n_bins: Any = "auto",
    score_bounds: Any = (0.0, 1.0),
    invalid: str = "auto",
    n_groups: int = 1,
    n_targets: int = 1,
    precision: Precision = "exact",
    accountant: Any = None,
) -> ScorePlan:
    """The plan that `dp_score` follows on so many records; reads no data and spends nothing.

    Parameters
    ----------
    n_samples : int in [2, 2^32]
        Invalid records are counted.
    scoring : str, or list of str, default="accuracy"
        As in `dp_score`.
    n_classes : int in [2, 1e4], default=2
        Two for "roc_auc", "roc_curve" and the scorings of calibration.
    epsilon, delta, relation, confidence, max_rows_per_user, bounds_y, max_error, max_log_loss, \
n_thresholds, n_bins, score_bounds, invalid, precision, accountant
        As in `dp_score`, `invalid` "auto" being "count", or with groups "exclude": say "exclude"
        for a model with ``nonfinite="zero"``, of which `dp_score` leaves out invalid records, and
        `n_bins` "doubling" for a model of counts or costs. Here `bounds_y` must be given for scores
        of regressions, and `max_rows_per_user` of a model.
    n_groups : int in [1, 1000], default=1
        Number of groups, the length of `by_values`.
    n_targets : int in [1, 1000], default=1
        Number of targets of a regression, which share the budget evenly. `bounds_y` are of each,
        or (lows, highs).

    Raises
    ------
    ValueError
        If a parameter is out of range, or of other scores than those that are asked for, but for
        `n_classes` and `bounds_y`, which tell of the table.

    Examples
    --------
    How large is the noise in an accuracy on 500 records?

    >>> from sklearn_dpsco import plan_score
    >>> plan = plan_score(500, scoring="accuracy", epsilon=0.5)
    >>> plan.guarantee.epsilon, plan.guarantee.delta
    (0.5, 0.0)
    >>> round(plan.noises[0].scale / 500, 3)  # Laplace noise of this scale
    0.004
    """
    n_classes = check_count("n_classes", n_classes, low=2, high=1e4)
    names = _scorings(scoring, n_classes)
    n = check_count("n_samples", n_samples, low=2, high=LARGEST_SAMPLE)
    needing = [name for name in names if name in _OF_NUMBERS]
    if bounds_y is None and needing:
        raise ValueError(f"scoring={needing[0]!r} needs bounds_y, a pair (low, high)")
    n_targets = check_count("n_targets", n_targets, high=1000)
    if n_targets > 1 and len(needing) < len(names):
        raise ValueError("several targets have scores of regressions alone")
    ends = check_target_bounds(bounds_y, n_targets) or (-1.0, 1.0)
    lows, highs = (np.full(n_targets, end).tolist() for end in ends)
    if (ends_of_scores := number_bounds(score_bounds, "score_bounds")) is None:
        raise ValueError("score_bounds must be a pair (low, high), got None")
    n_groups = check_count("n_groups", n_groups, high=1000)
    check_choice("invalid", invalid, ("auto", "count", "exclude"))
    if n_groups > 1 and invalid == "count":
        raise ValueError("invalid must be 'auto' or 'exclude' for scores of groups")
    is_private = isinstance(max_error, str) and max_error == "private"
    if is_private and not {"r2", _SQUARED_ERROR} & set(names):
        raise ValueError(f"max_error='private' is for scoring='r2' or {_SQUARED_ERROR!r}")
    given = None if is_private else auto_or(check_size, "max_error", max_error, high=1e51)
    most = math.inf if given is None else given
    facts = [
        Facts(
            n,
            n_classes,
            low,
            high,
            min(most, high - low),
            check_real("max_log_loss", max_log_loss, low=0.1, high=700),
            auto_or(check_count, "n_thresholds", n_thresholds, high=100_000),
            _edges(n_bins, (low, high) if "binned_means" in names else None),
            *ends_of_scores,
            invalid == "exclude" or n_groups > 1,
            n_groups,
            weighed_error=2 * min(most / (high - low), 1.0),
            target=target,
        )
        for target, (low, high) in enumerate(zip(lows, highs, strict=True))
    ]
    _check_used(names, facts[0], most)
    if check_delta(delta) is None and _is_alone(names, facts, epsilon, accountant):
        delta = 0.0  # Laplace noise is less for few releases; next to others it costs more
    accounting = Accounting.of(epsilon, delta, relation, max_rows_per_user, precision, accountant)
    narrows = ("targets",) * ("r2" in names) + ("errors",) * is_private
    make = functools.partial(_plan, names, facts, check_level("confidence", confidence), narrows)
    plan = accounting.plan(n, make)
    _warn_if_hidden(plan)
    return plan


def _check_used(names: tuple[str, ...], facts: Facts, most: float) -> None:
    """Raise if a parameter was given that has no effect on these scores."""
    # areas of groups are made of bins, too
    of_bins = ("roc_curve", "roc_auc")[: 1 + (facts.n_groups > 1)]
    ends = facts.low_score, facts.high_score
    said = {
        "max_error": (most < math.inf, _OF_NUMBERS),
        "max_log_loss": (facts.max_log_loss != Facts.max_log_loss, ("neg_log_loss",)),
        "n_bins": (facts.edges is not None, ("calibration_curve", "binned_means")),
        "n_thresholds": (facts.n_thresholds is not None, of_bins),
        "score_bounds": (ends != (Facts.low_score, Facts.high_score), of_bins),
    }
    for name, (is_said, uses) in said.items():
        if is_said and not set(uses) & set(names):
            wanted = " or ".join(map(repr, uses))
            raise ValueError(f"{name} has no effect on scoring={listed(names)}: it is for {wanted}")


def _edges(n_bins: Any, bounds: tuple[float, float] | None) -> tuple[float, ...] | None:
    """Of bins of predictions within bounds, or of probabilities: None if noise decides of these."""
    (low, high), edges = bounds or (0.0, 1.0), np.empty(0)
    rule = n_bins if isinstance(n_bins, str) else None  # an array is not compared with it
    if rule == "auto":
        if bounds is None:
            return None
        edges = np.linspace(low, high, _EVEN + 1)
    elif rule == "doubling":
        edges = np.append(low, high * _DOUBLING[high * _DOUBLING > low])
    elif np.ndim(n_bins) == 0 and rule is None:
        edges = np.linspace(low, high, check_count("n_bins", n_bins, high=10_000) + 1)
    else:
        with suppress(TypeError, ValueError):
            edges = np.asarray(n_bins, dtype=np.float64)
    is_right = edges.ndim == 1 and 2 <= edges.size <= 10_001 and np.isfinite(edges).all()
    if not (is_right and (np.diff(edges) > 0).all()):
        raise ValueError(
            "n_bins, or edges, must be a number, 'auto', 'doubling' or 2 to 10001 rising numbers, "
            f"got {shown(n_bins)}"
        )
    return tuple(edges.tolist())


def _warn_if_hidden(plan: ScorePlan) -> None:
    """Warn where the interval of R^2 will be of little use, before it is paid for."""
    if "r2" not in plan.scorings:
        return
    low, high = plan.expected_r2(spread=_SPREADS[0])
    if high - low > _LONG:
        hope = "noise will hide it" if low == -math.inf else f"of .5 expect [{low:.2g}, {high:.2g}]"
        warn_user(
            f"n_samples={plan.n_samples} is too small to learn from how large r2 is, at epsilon="
            f"{stated(plan.guarantee.epsilon)}: {hope} even if the standard deviation of the "
            f"targets is as much as {_SPREADS[0]:g} of the width of bounds_y. Take more records, a "
            "larger epsilon, a max_error of a few typical errors, or 'neg_mean_absolute_error'",
            PrivacyParameterWarning,
        )


def _is_alone(names: tuple[str, ...], facts: list[Facts], epsilon: float, accountant: Any) -> bool:
    """Whether there is no accountant, or few releases take all that it has left."""
    if (account := accountant_in_force(accountant)) is None:
        return True
    if not isinstance(epsilon, Real) or math.isinf(epsilon):
        return False  # and it is refused
    takes_all = account.remaining() <= epsilon * (1 + 1e-6)
    is_allowed = epsilon <= account.remaining(delta=0.0) * (1 + 1e-12)
    return takes_all and is_allowed and len(facts) * len(queries_for(names, facts[0], 1)) <= _FEW


def _plan(
    names: tuple[str, ...],
    facts: list[Facts],
    confidence: float,
    narrows: Any,
    budget: PrivacyBudget,
) -> ScorePlan:
    """The releases that tell the scores, with even parts of the budget."""
    allowance, factor = budget.gaussian_allowance, budget.record_factor
    facts, chosen = list(facts), []  # a copy: plans for other budgets follow
    for k, own in enumerate(facts):
        if found := _ranges(own, narrows, budget, len(facts)):
            allowance = budget.mixed_allowance
            # beside a range that is not known yet, but hardly more than its widest over this
            most = 0.0 if found[-1].of == "errors" else _NARROWER["targets"] * own.weighed_error
            facts[k] = replace(own, weighed_error=min(max(_LIKELY_ERROR, most), 2.0))
        chosen += found
    noise = additive_noise(allowance)

    def change(query: Query) -> float:
        own = query.sensitivity(factor)
        if query.facts.n_groups == 1:
            return own
        # under replace-one a record may leave one group and come into another
        return max(own, factor ** (1 / noise.order) * query.sensitivity(1.0))

    queries = [query for own in facts for query in queries_for(names, own, noise.order)]
    left, noises = 1 - sum(_RANGE_SHARE[one.of] for one in chosen) / len(facts), []
    share = allowance.share(left / len(queries))
    for k, query in enumerate(queries):
        one = noise.calibrate(change(query), share)
        queries[k] = query = sized(query, math.sqrt(one.variance))
        dimension = query.facts.n_groups * query.dimension
        noises.append(noise.calibrate(change(query), share, dimension=dimension))
    named: list[Any] = [(f"range of the {one.of}", one.target, one.select) for one in chosen]
    named += [(q.name, q.facts.target, law) for q, law in zip(queries, noises, strict=True)]
    releases = [Release(name + f": target_{t}" * (len(facts) > 1), law) for name, t, law in named]
    guarantee = Guarantee.of(budget, releases, allowance.kind)
    return ScorePlan(names, tuple(queries), tuple(noises), confidence, guarantee, tuple(chosen))


def _ranges(
    facts: Facts, narrows: Sequence[str], budget: PrivacyBudget, n_targets: int
) -> list[Range]:
    """The selections of ranges that can find one, and whose squares may need it."""
    chosen: list[Range] = []
    is_fine = facts.high - facts.low > 1e-9 * max(abs(facts.low), abs(facts.high))
    for of in narrows if is_fine else ():
        # of two sizes of errors in turn the smaller one is in all ranges that hold the other
        change_of_range = budget.record_factor if of == "targets" else 1.0
        part = budget.mixed_allowance.share(_RANGE_SHARE[of] / n_targets)
        select = SelectVertex.calibrate(change_of_range, part)
        worth, most = _WORTH[of] * select.scale, _LEFT_OUT[of] * facts.n_samples
        if select.scale > _FILLED * facts.n_samples and most > math.log(_NARROWER[of]) * worth:
            chosen.append(Range(of, worth, most, select, facts.target))
    return chosen


@telling(dict.fromkeys(("low", "high", "ci", "conf_int", "confidence_interval"), "see interval"))
@dataclass(frozen=True, eq=False, repr=False)
class DPScore(Overviewed):
    """A score that was released under differential privacy.

    ``print`` shows it, as does a notebook, and `to_frame` gives the numbers.

    Attributes
    ----------
    scoring : str
    value : float or ndarray
        The score; for "confusion_matrix" the matrix, rows by true and columns by predicted class,
        for "roc_curve" `tpr` and for "calibration_curve" and "binned_means" `prob_true`.
    interval : pair (low, high) of floats or of arrays like `value`
        Of the score on the population that the records were drawn from, independently: it covers
        both the noise and the sampling of the records. For arrays each entry by itself; of a
        matrix, it is for n_samples times the probability of the cell.
    confidence : float
        Of the interval.
    n_samples : int
        Number of records, invalid ones included.
    n_valid : float or None
        Of ``invalid="exclude"``: about how many of them are valid, a noisy number, and of a group
        how many valid ones it has. All scores of a call tell the one that has the least noise.
    guarantee : Guarantee
        Of all scores of the call together.
    noise_is_secret : bool
        False if `random_state` was given: then `guarantee` does not hold against those who know it.
    limits : pair (low, high) of floats, or of arrays
        The smallest and the largest value that the score can have, of "binned_means" in each bin.
        Noise may have put a value there: ``print`` says so where the interval is half of the range
        or more.
    clipped : str
        What the losses are clipped to, such as "errors clipped at 5", or the range that was
        released; "" if to nothing but the bounds. R^2 has errors clipped to `max_error` over the
        variance of targets that are not: it is too large where errors are clipped.
    classes : ndarray or None
        The labels in the order of rows and columns; the last one is the second class.
    fpr, tpr, thresholds, fpr_interval : ndarray or None
        Of "roc_curve": at each threshold, from infinity down, on the score's own scale.
    prob_true, prob_pred : ndarray or None
        Of "calibration_curve": frequency of the second class in each bin, and its mean probability
        there, a noisy number within the bin. Of "binned_means": mean target and mean prediction.
        Intervals count the noise of both: of a model that is calibrated, that of a bin holds
        `prob_pred` about as often as `confidence` says.
    bin_edges, bin_counts : ndarray or None
        Of both: the edges, and about how many records are in each bin, noisy numbers.
    by_class : dict or None
        Of "confusion_matrix": "precision", "recall", "f1", and "share", the part of the records
        in the matrix that are of the class: where none is invalid, or these are left out, the
        largest is the accuracy of the best constant. Each is three arrays over the classes, the
        values and the ends of their intervals. They cost nothing more.
    by_group : dict of DPScore or None
        Of ``by=``, the score of each group by its label; `value` and the rest are then of the
        records of all groups together.
    is_of_group : bool
        Whether this is one of them.
    target : str or None
        Of several targets, which one this is of.
    counts : ndarray
        The noisy sums as they were released, before anything was clipped.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPLogisticRegression, dp_score
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (6000, 2))
    >>> y = X[:, 0] > 0
    >>> model = DPLogisticRegression(bounds_X=(-1, 1), classes=[False, True])
    >>> model = model.fit(X[:4000], y[:4000])
    >>> score = dp_score(model, X[4000:], y[4000:])
    >>> low, high = score.interval
    >>> bool(low <= float(score) <= high), score.guarantee.epsilon, score.noise_is_secret
    (True, 1.0, True)
    """

    scoring: str
    value: Any
    interval: tuple[Any, Any]
    confidence: float
    n_samples: int
    guarantee: Guarantee
    noise_is_secret: bool
    counts: Array
    classes: AnyArray | None = None
    fpr: Array | None = None
    tpr: Array | None = None
    thresholds: Array | None = None
    fpr_interval: tuple[Array, Array] | None = None
    prob_true: Array | None = None
    prob_pred: Array | None = None
    bin_edges: Array | None = None
    bin_counts: Array | None = None
    n_valid: float | None = None
    is_of_group: bool = False
    target: Any = None
    limits: tuple[Any, Any] = (0.0, 1.0)
    clipped: str = ""
    by_class: dict[str, tuple[Array, Array, Array]] | None = None
    by_group: dict[Any, DPScore] | None = None

    @property
    def matrix(self) -> Array | None:
        """Of "confusion_matrix", the noisy counts with negative ones as 0; else None."""
        return self.value if self.scoring == "confusion_matrix" else None

    @property
    def _is_hidden(self) -> Any:
        """Whether nothing is known of the value, of a curve of each."""
        (low, high), (least, most) = self.interval, self.limits
        is_all = np.isclose(low, least, atol=1e-12) & np.isclose(high, most, atol=1e-12)
        # Noise that was clipped is at an end of the range, and so is what a perfect model has. (R^2
        # and the logarithmic loss say most from 0 to 1, and have a wider range.)
        of_usual = self.scoring in ("r2", "neg_log_loss")
        of_range = 1.0 if of_usual else np.subtract(most, least)
        is_at_end = (self.value == least) | (self.value == most)
        return is_all | (is_at_end & (2 * np.subtract(high, low) >= of_range))

    @property
    def of_class(self) -> str:
        """ " of 'a'", of the second of two classes or a target called 'a'; else ""."""
        if self.target is not None:
            return f" of {shown(self.target)}"
        if self.classes is None or self.scoring not in _OF_THE_SECOND:
            return ""
        return f" of {shown(self.classes.tolist()[-1])}"

    def __float__(self) -> float:
        if np.ndim(self.value):
            raise TypeError(f"{self.scoring} is no single number")
        return float(self.value)

    def __round__(self, digits: int | None = None) -> float:
        return round(float(self), digits)

    def __format__(self, layout: str) -> str:
        return format(float(self), layout) if layout else str(self)

    def to_frame(self) -> Any:
        """The numbers as a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            Of a confusion matrix, rows by true and columns by predicted label; of a curve, a row
            for each threshold or bin; else one row, with the score and the ends of its interval.
            Of groups the frames of all of them, below each other.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pandas, (low, high) = import_pandas("DPScore.to_frame"), self.interval
        if self.by_group is not None:
            frames = {label: score.to_frame() for label, score in self.by_group.items()}
            return pandas.concat(frames, names=["group"])
        if self.scoring == "confusion_matrix":
            labels = pandas.Index(self.classes, name="true")
            return pandas.DataFrame(self.value, labels, labels.rename("predicted"))
        if np.ndim(self.value):
            return pandas.DataFrame(self._columns())
        return pandas.DataFrame({"value": self.value, "low": low, "high": high}, [self.scoring])

    def difference_frame(self) -> Any:
        """Differences of groups, with intervals, as a pandas data frame.

        The distances from both values to the ends of their intervals add up in squares (Zou and
        Donner 2008), as noise and records of groups are independent; linearly where a group's
        noise hides its score. Each interval holds by itself, not all at once.

        Returns
        -------
        pandas.DataFrame
            A row for each pair of groups: "value", the score of the first one less that of the
            second, "low" and "high".

        Raises
        ------
        ValueError
            If the score is of no groups, or is no single number.
        ImportError
            If pandas is not installed.
        """
        pandas = import_pandas("DPScore.difference_frame")
        if self.by_group is None or np.ndim(self.value):
            raise ValueError("difference_frame is for scores of groups (by=) that are one number")
        rows = {}
        for a, b in itertools.combinations(self.by_group, 2):
            first, second = self.by_group[a], self.by_group[b]
            value, reaches = first.value - second.value, []
            for x, y in ((first, second), (second, first)):  # how far x may be below, and y above
                ends = np.array([x.interval[0], y.interval[1]])
                distances = np.abs(ends - [x.value, y.value])
                is_vacuous = np.isclose(ends, (x.limits[0], y.limits[1]), atol=1e-12)
                reaches.append(joint(distances, is_vacuous))
            rows[a, b] = value, value - reaches[0], value + reaches[1]
        index = pandas.MultiIndex.from_tuples(rows, names=["group", "less"])
        return pandas.DataFrame([*rows.values()], index, ["value", "low", "high"])

    def class_frame(self) -> Any:
        """Precision, recall, F1 and share of each class, with intervals, as a pandas data frame.

        They are made of the released confusion matrix, and cost nothing more.

        Returns
        -------
        pandas.DataFrame
            A row for each of "precision", "recall", "f1" and "share" and each class, as in
            ``class_frame().loc["f1"]``; columns "value", "low" and "high".

        Raises
        ------
        ValueError
            If this is no confusion matrix.
        ImportError
            If pandas is not installed.
        """
        if self.by_class is None:
            raise ValueError(f"class_frame is for scoring='confusion_matrix', not {self.scoring!r}")
        pandas, frames = import_pandas("DPScore.class_frame"), {}
        index = pandas.Index(self.classes, name="class")
        for name, found in self.by_class.items():
            frames[name] = pandas.DataFrame(np.transpose(found), index, ["value", "low", "high"])
        return pandas.concat(frames, names=["score"])

    def overview(self) -> Overview:
        """The score and its interval; of several numbers a table."""
        about = [f"n = {self.n_samples}"]
        if self.n_valid is not None:
            valid = f"about {self.n_valid:.0f} valid"
            about.append(f"of which {valid}" + " in the groups" * bool(self.by_group))
            if self.is_of_group:  # how many others it has not is no matter of validity
                about = [f"{valid} of this group"]
        elif self.scoring in _COUNTED:
            counted = f"missing targets, if any, count {_COUNTED[self.scoring]}"
            about.append(f"{counted} (invalid='exclude' leaves them out)")
        claim = ", ".join(filter(None, (*about, self.clipped, self.guarantee.claim)))
        if self.by_class is not None:
            labels = [str(label) for label in np.asarray(self.classes)]
            rows: Any = np.column_stack([labels, np.char.mod("%.0f", self.value)]).tolist()
            layout = "rows: true, columns: predicted"
            if not self.guarantee.is_void:
                layout += ", each with noise of its own, so that they do not add up to n"
            layout += "; class_frame() has precision and recall with intervals"
            return _table([f"{self.scoring} ({claim})", layout], ("", *labels), rows)
        end = f"{100 * self.confidence:g} % interval, {claim}"
        if np.ndim(self.value):
            columns = self._columns()
            parts = {name: [f"{x:.4g}" for x in of] for name, of in columns.items()}
            lines = [f"{self.scoring}{self.of_class} ({end})"]
            if self.bin_counts is not None and self._is_hidden.any():
                for mean in list(parts)[2:4]:  # of predictions and of targets
                    parts[mean] = np.where(self._is_hidden, "hidden*", parts[mean]).tolist()
                lines.append(_HIDDEN)
            rows = [*zip(*parts.values(), strict=True)]
            if self.scoring == "roc_curve" and len(rows) > _MOST_SHOWN:
                rows = _along_curve(columns, rows)
                lines.append(f"{len(rows)} of {self.value.size} thresholds; to_frame() has all")
            return _table(lines, tuple(parts), rows)
        (value, low, high), *others = [
            ["hidden*" if of._is_hidden else f"{of.value:.4g}", *(f"{x:.4g}" for x in of.interval)]
            for of in (self, *(self.by_group or {}).values())
        ]
        lines = [f"{self.scoring}{self.of_class} = {value} in [{low}, {high}] ({end})"]
        if "hidden*" in (value, *(own[0] for own in others)):
            lines.append(_HIDDEN + _HIDDEN_TARGETS * (self.scoring in _OF_NUMBERS))
        elif self.scoring == "r2" and self.interval[1] - self.interval[0] > _HINTED:
            lines.append("with max_error, a few typical errors, the interval may be shorter")
        if self.by_group is None:
            return Overview(tuple(lines))
        rows = [
            (str(label), *own, f"{of.n_valid:.0f}")
            for (label, of), own in zip(self.by_group.items(), others, strict=True)
        ]
        return _table(lines, ("group", "value", "low", "high", "valid"), rows)

    def _columns(self) -> dict[str, Any]:
        """Of a curve, what each threshold or bin has."""
        low, high = self.interval
        if self.bin_edges is not None:
            is_means = self.scoring == "binned_means"
            names = ("predicted", "observed") if is_means else ("prob_pred", "prob_true")
            columns: dict[str, Any] = {"from": self.bin_edges[:-1], "to": self.bin_edges[1:]}
            columns |= {names[0]: self.prob_pred, names[1]: self.prob_true}
            return columns | {"low": low, "high": high, "valid": self.bin_counts}
        fpr_low, fpr_high = self.fpr_interval or (None, None)
        columns = {"threshold": self.thresholds, "fpr": self.fpr, "tpr": self.tpr}
        more = {"fpr_low": fpr_low, "fpr_high": fpr_high, "tpr_low": low, "tpr_high": high}
        return columns | more


def _along_curve(columns: dict[str, Any], rows: list[Any]) -> list[Any]:
    """Rows spread along a ROC curve: most thresholds may be above all but a few predictions."""
    along = columns["fpr"] + columns["tpr"]
    return [rows[k] for k in np.unique(along.searchsorted(np.linspace(0, along[-1], _MOST_SHOWN)))]


class _Scores(dict[str, DPScore]):
    """Scores by name, of which ``print`` shows each as it shows itself."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))


def _table(lines: list[str], columns: tuple[str, ...], rows: Any) -> Overview:
    width = max(len(cell) for row in (columns, *rows) for cell in row)
    layout = " ".join([f"{{:>{min(width, 24)}s}}"] * len(columns))
    return Overview(tuple(lines), columns, layout, rows, _MOST_SHOWN)


_PLANNED = inspect.signature(plan_score).parameters  # what the plan takes under the same name


@says_level
@saying(
    {
        "sample_weight": "nothing, as each record counts once: by= gives the scores of groups, of "
        "which public weights make a mean (exposure= is that of counts)"
    }
)
def dp_score(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    scoring: Scoring | Sequence[Scoring] | None = None,
    epsilon: float = 1.0,
    delta: float | Auto = "auto",
    relation: Relation | Auto = "auto",
    confidence: float = 0.95,
    accountant: Any = None,
    classes: ClassLabels | None = None,
    bounds_y: Bounds | None = None,
    max_error: float | Magnitude | Auto = "auto",
    max_log_loss: float = 5.0,
    n_thresholds: int | Auto = "auto",
    n_bins: Any = "auto",
    score_bounds: Any = (0.0, 1.0),
    invalid: str = "auto",
    by: Any = None,
    by_values: ClassLabels | None = None,
    exposure: Any = None,
    max_rows_per_user: int | Auto = "auto",
    groups: Any = None,
    precision: Precision = "exact",
    random_state: RandomState = None,
) -> Any:
    """Score a fitted estimator on held-out records under differential privacy.

    The guarantee is for the records of X and y. It says nothing of the records that the estimator
    was fitted on: those are protected by the estimator's own guarantee, if it has one, and the
    score of an ordinary scikit-learn model is private for the test records alone.

    Parameters
    ----------
    estimator : fitted estimator
        Any of scikit-learn's kind; of a pipeline or a search, the last step or the best model is
        asked for its classes and bounds. It must predict each row by that row alone.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,), or (n_samples, n_targets)
        Several targets of a regression share the budget evenly. That the estimator was not fitted
        on these records is not checked: a score on records of the fit is as private, and flatters
        the model. Fit and score then compose, and may not stand on disjoint branches of an
        accountant. X goes to the estimator as it is. For records that are invalid see `invalid`:
        neither an error nor a warning shows them, unless the estimator itself refuses X.
    scoring : str, list of str or None, default=None
        "accuracy", "balanced_accuracy", "confusion_matrix", "roc_auc", "roc_curve",
        "calibration_curve", "calibration_in_the_large" (mean probability of the second class less
        its frequency), "neg_brier_score" (of two classes), "neg_log_loss", "r2",
        "neg_mean_absolute_error", "neg_mean_squared_error", "mean_bias" (mean prediction less mean
        target), "binned_means" (mean target and mean prediction by bins of the prediction). None:
        the accuracy of classifiers, else R^2.
        The scores of a list come from as few releases as tell them all, which share the budget
        evenly: accuracies and the matrix are one, and so is R^2 with the squared error.
    epsilon, delta, relation, precision
        As in `PrivacyBudget`, of all scores together. delta = 0 has Laplace noise, a positive one
        Gaussian noise, which is more for a single release, and less where about five or more are
        composed. "auto" is the relation of the accountant, or without one "replace-one"; and the
        accountant's delta, or 0 without one, and for scores of up to four releases that take all of
        an accountant or branch to which nothing was charged before.
    confidence : float in [0.5, 1), default=0.95
        Of the intervals, each by itself.
    accountant : None, BudgetAccountant or Branch, default=None
        Charged after all was checked and X was predicted, before anything is counted. None stands
        for that whose ``with`` block is open, if any.
    classes : list of labels or None, default=None
        The labels, which are public. None stands for the estimator's `classes_`.
    bounds_y : pair (low, high) of floats, or of several targets of lists, or None, default=None
        Of the target, from domain knowledge. Targets and predictions are clipped to them. None
        stands for the estimator's own. Needed for scores of regressions.
    max_error : "auto", "private" or float in [1e-50, 1e51], default="auto"
        Largest absolute error in units of y; larger ones are clipped. "auto" is the width of
        `bounds_y`. Noise is proportional to it, or to its square. R^2 rises where errors are
        clipped, as the variance of the target is not: ten standard deviations of the errors, or
        more, change it little (:ref:`private-scores`). For R^2, a fifth of the budget first selects
        a range of `bounds_y` that holds nearly all targets, if noise allows it and is not little
        anyway, and R^2 is that of targets and predictions clipped to this range, which ``print``
        shows (`DPScore.clipped`), also of a squared error in the same list. With "private" a tenth
        selects a size, too, that 98 % of the errors or more have at most, and errors are clipped to
        twice that: intervals of good models are several times shorter, but large errors of a few
        records are not seen, and R^2 is too large by what they hold: never where most targets are
        the same and few decide, such as rare events.
    max_log_loss : float in [0.1, 700], default=5.0
        Largest log loss of a record, in nats; larger ones are clipped. Noise is proportional to it.
    n_thresholds : "auto" or int in [1, 1e5], default="auto"
        Number of equal bins of the scores from which the ROC curve is made, and the area under it
        for groups; else it needs none. "auto" is 0.4 (n / s)^(2/3), within [4, 1000], n the records
        per group and s the standard deviation of the noise.
    n_bins : "auto", "doubling", int in [1, 1e4], or array-like of rising edges, default="auto"
        Of "calibration_curve" and "binned_means", the bins of predictions: in each, the frequency
        or the mean target, and the mean prediction are released. A number stands for bins of equal
        width on [0, 1] or `bounds_y`, "doubling" for twelve up to the end of these, each twice as
        wide as the one before. "auto" takes of regressions ten bins of equal width, of models of
        counts and costs those that double, and of probabilities tenths, of which the first is cut
        at .001, .002, .005, .01, .02 and .05, for rare classes, and the last likewise: at shares
        that are more than 20 standard deviations of the noise in a count, of the records of a
        group. Edges of your own must be public: quantiles of these predictions are not. Records
        with a prediction outside of them are in no bin. More bins cost no privacy, but each has the
        same noise and fewer records. Targets are clipped at `max_error` from the ends of their bin.
    score_bounds : pair (low, high) of floats, default=(0, 1)
        Range of scores that the bins of the ROC curve divide; scores outside count in the outer
        bins. A score is the second class's predicted probability, or where the estimator has none
        the sigmoid of its decision function. Narrow it if the model is known to be unsure.
    invalid : {"auto", "exclude", "count"}, default="auto"
        What is done with a record that is invalid: a label that is missing or not among the
        classes, a target that is not finite, a prediction that is NaN, and of an estimator with
        ``nonfinite="zero"``, or one that holds such, what its fit would leave out: a row that holds
        NaN or an infinity where it comes to the last step, and a count below 0. "exclude" leaves it
        out:
        scores are those of the valid records, whose noisy number is a part of the release
        (`DPScore.n_valid`) and widens intervals a little. "count" takes it for a wrong prediction
        in the accuracy, for half of the largest loss, and in the variance of y for half a record
        at either end of `bounds_y`: right where nothing is missing, and with the least noise. In
        tables, curves and the balanced accuracy an invalid record is in no cell in any case.
        "auto" is the rule of the fit: "exclude" if the estimator has ``nonfinite="zero"``, else
        "count"; for groups "exclude".
    by : array-like of shape (n_samples,), name of a column of X or None, default=None
        Group of each record, such as sex or region: all scores are released for each group as
        well (`DPScore.by_group`). A record of none of `by_values` is invalid. How many records a
        group has stays private. Groups are disjoint and cost one budget together: under zero-out
        each has the noise that it would have alone; under replace-one, where a record may change
        its group, so have counts, and all scores with Gaussian noise, hardly more, while means with
        Laplace noise have up to twice as much.
    by_values : list of at least two labels or None, default=None
        The groups, which are public. Needed with `by`.
    exposure : array-like of shape (n_samples,) or None, default=None
        Of models of rates, what each record's mean is proportional to: scores are then of the
        targets y, such as numbers of claims, and of ``exposure * predict(X)``, each record counted
        alike. Needed of a model with `bounds_exposure`, and refused of one of this package
        without. A record with one that is missing or not above 0 is invalid, and no error.
    max_rows_per_user : "auto" or int in [1, 1e15], default="auto"
        As in the estimators; "auto" is the accountant's, or without one that of the model.
        Intervals are for independent users, whose rows may all be alike: where noise does not hide
        sampling, up to the root of this number times as long.
    groups : array-like of shape (n_samples,) or None, default=None
        As in `fit`, the user of each row: of a user with more rows than `max_rows_per_user`,
        further ones are invalid, which asks for ``invalid="exclude"`` (that "auto" then is). None:
        it is your word that no user has more, and a `PrivacyParameterWarning` says where the model
        is for users of more.
    random_state : None, int or RandomState, default=None
        None draws noise from a cipher keyed by the operating system; else the result is
        reproducible and *not private*.

    Returns
    -------
    DPScore, or dict of DPScore by name if `scoring` is a list, which ``print`` shows one by one
        Of several targets a dict of that by target: their names in a frame y, or target_0,
        target_1, ...

    Raises
    ------
    ValueError
        If a parameter or a shape is wrong, or a parameter is of other scores than those that are
        asked for, such as `n_bins` of an accuracy; a `TypeError` if `estimator` is none, and a
        `PrivacyBudgetError` if the accountant refuses. Nothing is spent then, nor if the estimator
        raises.

    Notes
    -----
    One record moves counts of disjoint cells by 1 (zero-out), or by 2 in l1 and sqrt(2) in l2
    (replace-one); a mean of u in [-1, 1] is released together with the mean of 1 - u^2, which
    needs no more noise (doc/privacy, section 2.17). The predictions of X are no release: they are
    made before the charge, so that an estimator that raises costs nothing, and only noisy sums of
    them leave.

    Intervals invert tests, made of the released numbers and the law of the noise only. The areas
    of groups allow for any order within bins. They are approximate for few records.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_dpsco import dp_score
    >>> X = np.linspace(-1, 1, 400)[:, None]
    >>> model = LogisticRegression().fit(X[::2], X[::2, 0] > 0)
    >>> print(dp_score(model, X[1::2], X[1::2, 0] > 0, random_state=0).n_samples)
    200
    """
    planned = {name: value for name, value in locals().items() if name in _PLANNED}
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        raise TypeError(f"estimator must be a fitted estimator, got {shown(estimator)}")
    if scoring is None:
        planned["scoring"] = "accuracy" if is_classifier(estimator) else "r2"
    names = planned["scoring"] = _scorings(planned["scoring"])
    if isinstance(by, str):
        if by not in getattr(X, "columns", ()):
            raise ValueError(f"by={by!r} is no column of X: give the group of each record")
        by = X[by]
    cells.check_order(X=X, y=y, by=by, exposure=exposure, groups=groups)
    check_random_state(random_state)
    accountant = planned["accountant"] = accountant_in_force(accountant)
    n, labels = _n_records(X, y), _classes(estimator, classes, names)
    y, targets = _targets(y) if labels is None else (y, [])
    planned["n_targets"] = max(len(targets), 1)
    if (by is None) != (by_values is None):
        raise ValueError("by and by_values must be given together: by_values are the public groups")
    if exposure is not None and labels is not None:
        raise ValueError("exposure is for scores of numbers, such as 'mean_bias'")
    if groups is not None and invalid == "count":
        raise ValueError("groups need invalid='exclude': rows of a user beyond the first are none")
    _take_from_model(planned, estimator, by is not None, groups is not None)
    labels_by = None if by is None else cells.check_classes(by_values, "by_values")
    planned["n_groups"] = 1 if labels_by is None else labels_by.size
    plan = plan_score(n, n_classes=2 if labels is None else labels.size, **planned)
    _warn_of_less(plan, estimator, is_charged=accountant is not None, has_groups=groups is not None)
    with np.errstate(all="ignore"):  # what numpy warns of may be the value of one record
        needs = {name for query in plan.queries for name in FORMULAS[query.name].needs}
        answers = _answers(estimator, X, y, exposure, needs, labels, (n, len(targets)))
        answers = _without_invalid(estimator, X, groups, plan.guarantee.rows_per_user, answers, n)
        group = None if labels_by is None else _codes("by", by, labels_by, n)
        known: Any = {"has_groups": groups is not None, "noise_is_secret": random_state is None}
        # a block may have been opened since
        if (account := accountant_in_force(accountant)) is not None:
            name = f"score of {type(opened(estimator)[0]).__name__}"
            account.spend(plan, estimator=name, **known)
        stream = stream_from_random_state(random_state).substream("score")
        plan = plan.narrowed(answers, stream, group)
        noisy = plan.release(plan.statistics(answers, group), stream)
    plan = replace(plan, guarantee=replace(plan.guarantee, **known))
    scores = [
        _scores(plan, noisy, labels, labels_by, target, name)
        for target, name in enumerate(targets or [None])
    ]
    is_one = scoring is None or isinstance(scoring, str)
    found: Any = [of[names[0]] if is_one else of for of in scores]
    return _Scores(zip(targets, found, strict=True)) if targets else found[0]


def _take_from_model(
    planned: dict[str, Any], estimator: Any, is_grouped: bool, has_groups: bool
) -> None:
    """What the model says in public, where nothing else was said."""
    if not set(_OF_NUMBERS) & set(planned["scoring"]):
        if planned["bounds_y"] is not None:
            of = listed(planned["scoring"])
            raise ValueError(f"bounds_y has no effect on scoring={of}, of labels")
    elif planned["bounds_y"] is None:
        planned["bounds_y"] = _public(estimator, "bounds_y")
    n_bins = planned["n_bins"]  # an array is not compared with "auto"
    if "binned_means" in planned["scoring"] and isinstance(n_bins, str) and n_bins == "auto":
        of_fit = getattr(_public(estimator, "plan_"), "problem", None)
        if of_fit is not None and of_fit.loss.task == "rates":
            planned["n_bins"] = "doubling"  # by the model's link alone
    if planned["max_rows_per_user"] == "auto" and planned["accountant"] is None:
        planned["max_rows_per_user"] = _rows_of_model(estimator)
    if planned["invalid"] == "auto" and not is_grouped:  # the rule of the fit
        excludes = has_groups or bool(_emptying(estimator))
        planned["invalid"] = "exclude" if excludes else "count"


def _targets(y: Any) -> tuple[Any, list[Any]]:
    """Numbers, and the names of several targets, which are public; none of one."""
    names = getattr(y, "columns", None)
    with np.errstate(all="ignore"):  # what numpy warns of may be the value of one record
        y = cells.as_numbers("y", y, strict=False)
    if np.ndim(y) != 2 or y.shape[1] == 1:
        return y, []
    return y, [f"target_{k}" for k in range(y.shape[1])] if names is None else list(names)


def _warn_of_less(plan: ScorePlan, estimator: Any, *, is_charged: bool, has_groups: bool) -> None:
    """Warn where the model was charged and the score is not, or is for users of fewer rows."""
    # (the model that a search has chosen is charged in the search's stead, or not at all)
    charges = [getattr(one, "_is_charged", False) for one in _models(estimator, "_is_charged")]
    if any(charges) and not is_charged:
        warn_user(
            "an accountant was charged for the model, and none is for this score: nothing adds up "
            "the two. Pass accountant=, or score within its block",
            PrivacyParameterWarning,
        )
    most, rows = plan.guarantee.rows_per_user, _rows_of_model(estimator)
    if most < rows and not has_groups:
        whom = "any single row" if most == 1 else f"persons of up to {most} rows"
        warn_user(
            f"the model protects persons of up to {rows} rows, and this score {whom}: pass "
            f"max_rows_per_user={rows}, and groups, the user of each row, if some may have more",
            PrivacyParameterWarning,
        )


def _without_invalid(
    estimator: Any, X: Any, groups: Any, most: int, answers: Answers, n: int
) -> Answers:
    """The same where what is invalid for one answer is so for all: a record counts or does not.

    Invalid are rows that the model takes for empty ones, whose predictions say nothing, those
    without a prediction, and those of users after their first ones.
    """
    is_invalid = np.zeros(n, dtype=bool)
    if models := _emptying(estimator):
        is_invalid |= cells.empty_rows(reaching(estimator, X)[1])
        if "y" in answers:
            is_below = answers["y"] < max(getattr(model, "_lowest", -np.inf) for model in models)
            is_invalid |= is_below.reshape(n, -1).any(axis=1)
    for name in {"prediction", "score", "own_probability"} & answers.keys():
        is_invalid |= np.isnan(answers[name]).reshape(n, -1).any(axis=1)
    if groups is not None:
        if len(users := cells.as_users(groups)) != n:
            raise ValueError(f"groups must have shape ({n},), got {users.shape}")
        is_invalid |= cells.surplus_rows(users, most)
    return {
        name: np.where(is_invalid, INVALID[name], of.T).T if name in INVALID else of
        for name, of in answers.items()
    }


def _scores(
    plan: ScorePlan, noisy: Any, labels: Any, groups: Any, target: int, of: Any
) -> dict[str, DPScore]:
    """What the release tells of a target, and nothing else."""
    facts: dict[str, Any] = {"classes": labels, "target": of, "n_samples": plan.n_samples}
    facts |= {"confidence": plan.confidence, "guarantee": plan.guarantee}
    facts |= {"noise_is_secret": plan.guarantee.noise_is_secret}
    labels_by = [] if groups is None else groups.tolist()
    parts = {label: plan.estimates(noisy, k, target) for k, label in enumerate(labels_by)}
    found = _Scores()
    for name, one in plan.estimates(noisy, None, target).items():
        own = {a: DPScore(name, is_of_group=True, **facts, **of[name]) for a, of in parts.items()}
        found[name] = DPScore(name, by_group=own or None, **facts, **one)
    return found


def _public(estimator: Any, name: str) -> Any:
    """An attribute of the estimator or of its last step; None if neither has it."""
    found = getattr(estimator, name, None)
    return getattr(opened(estimator)[0], name, None) if found is None else found


def _models(estimator: Any, until: str = "") -> Iterator[Any]:
    """It, its last step, and so on of what that holds, if it is an ensemble or a wrapper.

    Not within what has the attribute `until` itself.
    """
    yield estimator
    if until and hasattr(estimator, until):
        return
    last = opened(estimator)[0]
    held = [last]
    if last is estimator:
        names = "estimator_", "regressor_", "final_estimator_"
        held = [getattr(last, name) for name in names if hasattr(last, name)]
        held += [*getattr(last, "estimators_", ())]  # perhaps an array
        held += [part.estimator for part in getattr(last, "calibrated_classifiers_", ())]
    for one in held:
        yield from _models(one, until)


def _emptying(estimator: Any) -> list[Any]:
    """The models of which an invalid row that reaches the last step is an empty one."""
    return [one for one in _models(estimator) if getattr(one, "nonfinite", None) == "zero"]


def _rows_of_model(estimator: Any) -> int:
    """Rows of a user whom the models protect."""
    claims = (getattr(one, "guarantee_", None) for one in _models(estimator))
    return max(getattr(claim, "rows_per_user", 1) for claim in claims)


def _n_records(X: Any, y: Any) -> int:
    """Their number, which is public."""
    sizes = []
    for name, values in (("X", X), ("y", y)):
        cells.check_in_memory("dp_score", values)
        try:
            sizes.append(int(values.shape[0]) if hasattr(values, "shape") else len(values))
        except (TypeError, IndexError):
            raise ValueError(f"{name} must be an array, a table or a list of records") from None
    if sizes[0] != sizes[1]:
        raise ValueError(f"X has {sizes[0]} records, y has {sizes[1]}")
    return check_count("the number of records", sizes[0], low=2)


def _classes(estimator: Any, classes: Any, names: tuple[str, ...]) -> AnyArray | None:
    """The sorted labels; None if no score is of labels."""
    if all(name in _OF_NUMBERS for name in names):
        if classes is not None:
            raise ValueError(f"classes has no effect on scoring={listed(names)}, of numbers")
        return None
    known = _public(estimator, "classes_")
    if classes is None and known is None:
        check_is_fitted(estimator)
        of_labels = next(name for name in names if name not in _OF_NUMBERS)
        raise ValueError(
            f"scoring={of_labels!r} is of labels, and the estimator has no classes_: of numbers "
            f"take {', '.join(map(repr, _OF_NUMBERS))}, or give classes"
        )
    declared = cells.check_classes(known if classes is None else classes)
    has_proba = hasattr(estimator, "predict_proba")
    is_own = known is not None and np.array_equal(cells.check_classes(known), declared)
    for name in names:
        if name in _OF_PROBABILITIES and not is_own:
            raise ValueError(f"scoring={name!r} is for the estimator's own classes_")
        # areas and curves ask for an order alone, which a decision function has as well
        if name in _OF_PROBABILITIES and "roc" not in name and not has_proba:
            raise ValueError(
                f"scoring={name!r} is of probabilities, and the estimator has no predict_proba: "
                "score one that has it, or ask for 'roc_auc'"
            )
    return declared


def _answers(
    estimator: Any, X: Any, y: Any, exposure: Any, needs: set[str], labels: Any, shape: Any
) -> Answers:
    """The truth and the predictions of the records, checked by their shapes and types alone."""
    found: dict[str, Any] = {}
    n = shape[0]
    if needs - {"y", "prediction"}:
        found["truth"] = _codes("y", y, labels, n)
    if "predicted" in needs:
        found["predicted"] = _codes("predict(X)", estimator.predict(X), labels, n)
    if "score" in needs or "own_probability" in needs:
        # without probabilities, no more than an order is asked for
        is_raw = not hasattr(estimator, "predict_proba")
        method = "decision_function" if is_raw else "predict_proba"
        if not hasattr(estimator, method):
            raise ValueError(f"the scoring needs predict_proba, which {shown(estimator)} has not")
        table = np.asarray(getattr(estimator, method)(X), dtype=np.float64)
        if table.shape != (expected := (n,) if is_raw else (n, labels.size)):
            raise ValueError(f"{method}(X) must have shape {expected}, got {table.shape}")
        table = table if is_raw else table[:, np.argsort(_public(estimator, "classes_"))]
        found["score"] = expit(table) if is_raw else table[:, -1]
        if "own_probability" in needs:
            own = table[np.arange(n), np.maximum(found["truth"], 0)]
            found["own_probability"] = np.where(found["truth"] >= 0, own, np.nan)
    if "y" in needs:
        found["y"] = _numbers("y", y, *shape)
        # (what has no such parameter may be given any)
        bounds = getattr(opened(estimator)[0], "bounds_exposure", exposure)
        if exposure is None and bounds is not None:
            raise ValueError("exposure must be given: the estimator has bounds_exposure")
        if bounds is None and exposure is not None:
            raise ValueError(
                "exposure was given, and the estimator has no bounds_exposure: it predicts means "
                "of records, not of a unit of exposure. Fit it with both, or leave exposure out"
            )
        found["prediction"] = means = _numbers("predict(X)", estimator.predict(X), *shape)
        if exposure is not None:
            cells.check_in_memory("a score with exposure", exposure)
            e = _numbers("exposure", exposure, n)
            found["prediction"] = np.where(np.isfinite(e) & (e > 0), e * means, np.nan)
    return found


def _codes(name: str, values: Any, labels: AnyArray, n: int) -> Integers:
    """Positions among the labels, -1 for invalid ones."""
    values = cells.only_column(values)
    if (others := getattr(values, "shape", (n,))[1:]) not in ((), (1,)):
        raise ValueError(f"{name} must hold one label for each record")
    found = cells.as_labels(np.ravel(values) if others else values)
    if found.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), got {found.shape}")
    kinds = {found.dtype.kind, labels.dtype.kind}
    # text against numbers is a mistake in the types, not in some records
    is_mistake = "O" not in kinds and len(kinds) > 1 and bool(kinds & {"U", "S"})
    if is_mistake and not cells.spell_values(labels):  # see `Reader.codes`
        raise ValueError(f"{name} and the classes must both be text or both be numbers")
    return cells.label_codes(found, labels)


def _numbers(name: str, values: Any, n: int, n_targets: int = 0) -> Array:
    """Floats, NaN where a cell is no number; of several targets a column of each."""
    values = values if name == "y" else cells.one_each(values)
    found = np.asarray(cells.as_numbers(name, values, strict=False), dtype=np.float64)
    found = found.ravel() if not n_targets and found.shape == (n, 1) else found
    if found.shape != (expected := (n, n_targets) if n_targets else (n,)):
        raise ValueError(f"{name} must have shape {expected}, got {found.shape}")
    return found
