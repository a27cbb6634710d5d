r"""Estimates with a covariance: Newton steps after a descent, in its units.

With scores :math:`s_i = \omega_i z_i l'(z_i^T w, y_i)`, each scaled down to a norm of C, which few
exceed, a step is :math:`w - H^{-1} \bar s`, H a release of the mean of the second derivatives.
:math:`\omega_i` is 1 but for the few rows with the largest second derivatives, which count less in
H and in the scores alike: else the error before the step would be left, times the difference. The
estimate after the last step has the covariance

.. math:: H^{-1} (M / n + N + N_H) H^{-1},

M a release of the mean of :math:`s_i s_i^T`, N the covariance of the noise in the last mean of
scores, which is known, and N_H that of the noise in H times the last step: what an H that is off
leaves of the error before it. C follows from two released sizes, by the Weibull law with these
quantiles: the records beyond it move the mean by less than noise.

Of users with several rows, a record is a user: scores and second derivatives are the sums over the
user's rows, and these sums are what is scaled down. So the noise does not grow with the number of
rows, and M is that of a sandwich clustered by user.

Releases are means of vectors and of positive semi-definite matrices of norm at most 1, and ranks
(doc/privacy, section 4.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc, erfc, expit, gammaincc, ndtr, ndtri
from scipy.special import gamma as gamma_function
from scipy.stats import chi2, gamma, nbinom, poisson

from .._checks import rounded, stated, warn_user
from .._types import AnyArray, Array, Flags
from ..data.rows import (
    UNIT_ROUNDOFF,
    Rows,
    SolverData,
    norm_error,
    on_threads,
    place_counts,
    row_slices,
    sum_on_threads,
    times_rows,
)
from ..estimates import Estimates
from ..exceptions import PrivacyParameterWarning
from ..losses import Logistic, Loss, Multinomial, Squared, Tweedie, clipped_derivative
from ..mechanisms import Gaussian, Release, SelectVertex
from ..privacy.budget import size_epsilon
from ..privacy.selections import bracketed
from ..randomness.stream import RandomStream
from . import statistics
from .base import Part, Problem, named_releases
from .defaults import INFERENCE, RATES
from .learned_units import Purse, Units, plan_units
from .records import Users
from .statistics import LARGEST_PREDICTION, TINY, clipped_to

_SIZES = 2.0 ** np.arange(-16.0, 24.01, 0.25)  # candidates for sizes
# Of the tails of scores, the largest power of -log of a share that sizes grow with. Labels have
# bounded derivatives, and scores the tails of rows.
_HEAVIEST = {"regression": 4.0, "classification": 1.0, "rates": 4.0}
# Times the rows without which a fit is refused: from there on, nine of ten intervals have ends
# (but for columns that hardly vary).
_ENOUGH = 1.4
_FEW = 4.0  # coefficients
# The same of other models, beside an intercept: with one column, rows have no second moments from
# so few on, and the level is mostly hidden.
_FEW_OF_OTHERS = 2.8
# Octaves above 1 up to which sizes of scores are hardly less likely: a target that few records
# have, as a rare 1 among zeros, is several spreads away.
_LONGEST = {"regression": 1.5, "classification": 0.0, "rates": 0.0}
# The same of second derivatives: up to those of the longest row that there may be. If these are
# more than this, fewer, and from twice as many on none: far too wide bounds say nothing of rows.
_OCTAVES_OF_ROWS = 4.0
_ROOM = math.log(100.0)  # of logarithms of rates above that of the largest target
# In the first steps of a regression the bound on rows is so many times smaller. The larger this is,
# the more a bent mean moves them, and the more of an earlier error the next step leaves (by
# simulation).
_SHORTER = 1.5
_PLAUSIBLE = 4.0  # change of the logarithm of a rate by a step
_FAR = 2.0  # log-odds by which a step moves predictions, up to which it is not too long
_SURE = 2 / 3  # with an error of full size, 95 % intervals still hold in at least 93.6 %
_STEEPER = 2.0  # standard deviation of effects of labels that are hidden, over them (simulation)
_RARE = 1.25  # times the root of 1 - 4 p (1 - p), at most 1, of that where one of two is rare
_BETWEEN = 0.1  # of the variance of a flag, that of columns whose rows are no groups
_GONE = 0.98  # of a rare label's probability, the most that a step can tell to be too much
_UPWARD = 2.5  # deviations of noise in second derivatives that are hardly clear of it
_HIDDEN = 0.65  # error in weak directions, over effects in the units (found by simulation)
_SAFE = 1.6  # standard deviations that nine of ten variances by sampling stay below, as skewed ones
_UNEQUAL = 0.5  # what variances of residuals of long rows may differ by from those of all
_MOST_STEPS = 20  # without noise, where losses are not quadratic


class Estimate(NamedTuple):
    """Coefficients that are not shrunk, and what is known of their errors."""

    table: Estimates  # for plain rows, without names
    residual: Array  # of a regression, the variance of the targets about their means
    # of scores that move the estimate as little if they are shortened more and long rows count less
    clip_pvalue: float
    n_records: int  # users if scores are summed by user; else as the next
    n_present: int  # about how many rows are not empty


class Bread(NamedTuple):
    """The inverse of the second derivatives, 0 in weak directions, and its root, in a basis."""

    basis: Array  # orthonormal, of what coefficients can be told: of classes, that sum to 0
    inverse: Array
    root: Array  # a column for each direction that is not weak
    faint: Array  # the weak ones, orthogonal, each as long as effects along it may be larger
    weak: Array  # the same, but shorter
    scale: float  # of the noise in the second derivatives

    @property
    def dual(self) -> Array:
        """The root of the second derivatives, as that of their inverse."""
        return np.asarray(self.root / (self.root**2).sum(axis=0))

    def careful(self, task: str) -> Bread:
        """A longer inverse where it is hardly clear: what is told of these is told too large."""
        sizes = INFERENCE.unclear[task] * self.scale * (self.root**2).sum(axis=0)
        root = self.root * (1 + sizes**3)
        longer = root @ root.T - self.root @ self.root.T
        return self._replace(root=root, inverse=self.inverse + longer)


class LastStep(NamedTuple):
    """What the last step was made of."""

    point: Array  # where it began, of shape (dimension,) or (dimension, n_outputs)
    scores: Array  # the released mean there, of shape (size,)
    variance: float  # of the noise in a number of it
    step: Array  # in the basis, to be subtracted
    cut: float  # as of `_move`
    bread: Bread  # as of `_move`, not yet careful


@dataclass(frozen=True)
class NewtonSteps(Part):
    """What is released for an estimate and its covariance."""

    # Of second derivatives and of last scores twice, of first scores once; of rates once more of
    # last scores, and of the level unless users are known. Without a covariance: of second
    # derivatives, and of that level.
    size: SelectVertex
    n_sizes: int
    n_cut: int  # second derivatives that exceed theirs
    # scores that exceed the first; half as many records may be empty without a trace
    n_large: int
    n_beyond: float  # last ones that exceed the clip
    hessian: Gaussian
    first: Gaussian | None
    n_first: int  # steps before the last one
    n_hessians: int
    moments: Gaussian | None  # of the scores; None where no covariance is asked for
    last: Gaussian
    level: Gaussian | None  # of rates
    rows_per_user: int  # if above 1, a record is a user
    n_enough: float  # rows from which few intervals are the whole line

    @property
    def releases(self) -> tuple[Release, ...]:
        return named_releases(
            ("score sizes", self.size, self.n_sizes),
            ("second derivatives", self.hessian, self.n_hessians),
            ("first scores", self.first, self.n_first),
            ("score moments", self.moments, 1),
            ("last scores", self.last, 1),
            ("last level", self.level, 1),
        )

    def run(
        self, units: Units, coef: Array, stream: RandomStream
    ) -> tuple[Array, float, Estimate | None]:
        """The coefficients that predict best, in the units, and the estimate for plain rows.

        And what noise there is in levels of predictions: the mean square of that of intercepts, and
        of what errors of slopes add to the logarithm of the mean of exponentials.
        """
        problem, n = units.problem, units.problem.n_samples
        hidden = self.n_large // 2 * problem.may_be_empty  # halves of these would count as large
        n_present = max((units.n_users or units.n_present) - hidden, 8 * self.n_large)
        found_there = self._first_steps(units, coef.reshape(problem.shape), n_present, stream)
        point, copy, bread, bound, before, first_clip = found_there
        there, clip, has_cov = copy.map(scored), first_clip, self.moments is not None
        if has_cov:
            clip = self._clip(copy, there, n_present, units, first_clip, bound, stream)
        total = np.atleast_2d(there.sum(score_and_moment_sum if has_cov else score_sum, clip) / n)
        scores, variance = clip * self.last.release(total[0], stream), clip**2 * self.last.variance
        step, bread, cut = _move(problem, bread, scores, float(units.unit[-1]))
        step = self._plausible(units, bread, step, variance)
        last, basis = LastStep(point, scores, variance, step, cut, bread), bread.basis
        bread = bread.careful(problem.loss.task)
        found = basis @ (basis.T @ point.ravel() - step)
        longest = bound if problem.loss.task == "rates" else first_clip * has_cov
        noise, counted = _errors(units, bread, last, longest)
        best = _best(units, coef, found, basis @ bread.root, noise, clip)
        best, level = self._on_level(units, best, stream), _level_error(units, bread, noise)
        if not has_cov:
            return best, level, None
        if problem.loss.task == "rates" and self.hessian.scale == 0:
            # noise hides by how much they differ from their mean; without it this is HC0
            bread = self._bread(problem, copy.map(curved, True), bound, stream)
        sampling, doubt, residual = self._of_sampling(units, bread, total[1:], clip, stream)
        faint, k = _HIDDEN * basis @ bread.faint, problem.n_features * problem.n_outputs
        noise = noise + float((found[:k] ** 2).mean()) * faint @ faint.T
        short = _short(units, last)
        fallen, gone = _fallen(units, last, bread.inverse, counted + short)
        known: Any = {"unknown": np.hstack((basis @ bread.weak, gone)), "gram": basis @ basis.T}
        known |= {"sampling": basis @ (sampling / n) @ basis.T, "noise": noise + short + fallen}
        table = Estimates(names=(), coef=found, doubt=doubt, **known)
        pvalue = _clip_pvalue(bread, scores, before, variance)
        return best, level, _in_plain_units(units, table, residual, pvalue)

    def _first_steps(
        self, units: Units, point: Array, n_present: int, stream: RandomStream
    ) -> tuple[Array, Any, Bread, float, tuple[Array, Array] | None, float]:
        """The steps before the last.

        Returned are the point, the copy and the bread there, the bound on roots of second
        derivatives, what the last of these steps leaves and its noise, and their clip.
        """
        problem, before, has_cov = units.problem, None, self.moments is not None
        # intervals are for the exponential mean, of which bounds of targets cut no end
        of_predictions = units.frame.offset, units.largest + _ROOM * has_cov
        copy = units.copy.map(_unweighed, units)
        copy = copy.map(predicted, point, *of_predictions).map(curved)
        bound = self._bound(copy, n_present, units, stream)
        copy = copy.map(_weighed, bound)
        is_labels = problem.loss.task == "classification" and has_cov
        # (without an intercept weights of rows of other lengths leave most of an error)
        is_test = problem.loss.task == "regression" and has_cov and problem.fit_intercept
        # without a covariance that of the descent, if there is noise
        clip = units.clip if self.last.scale > 0 else float(_SIZES[-1])
        for t in range(self.n_first):
            assert self.first is not None
            if t < self.n_hessians:
                bread = self._bread(problem, copy, bound, stream)
            there = copy.map(scored)
            if t == 0 and has_cov:
                seen = copy.map(scored, whatever_label) if is_labels else there
                (clip,) = self._sizes(
                    seen, n_present, (self.n_large,), stream, _LONGEST[problem.loss.task]
                )
                clip = max(clip, units.clip if problem.loss.task == "rates" else 0.0)
            if is_test and units.users is None:  # of whom whole rows would be left out
                # where means are linear, weights that fall from shorter rows on move nothing (the
                # clip of scores, and so their noise, is that of the usual weights)
                there = copy.map(_weighed, bound / _SHORTER).map(scored)
            mean = there.sum(score_sum, clip) / problem.n_samples
            # (second derivatives there are released anew, or those of all points are the same)
            noisy = clip * self.first.release(mean, stream)
            move, _, _ = _move(problem, bread, noisy, float(units.unit[-1]))
            if t == 0 and is_labels:
                # few predictions move by more; where a label is rare, long steps overshoot
                furthest = max(clip * float(np.linalg.norm(move)), _FAR)
                move *= (_FAR + math.log1p(furthest - _FAR)) / furthest
            move = self._plausible(units, bread, move, clip**2 * self.first.variance)
            if problem.loss.task == "rates":  # of exponentials long slopes overshoot by as much
                move[:-1] *= 1 - _far(units, bound, bread.basis @ move)[0].max(initial=0.0)
            if is_test:  # other losses leave more
                cov = _noise(problem, bread, move, clip**2 * self.first.variance)
                part = 1.0 if units.users is not None else _taken(bread, bound / _SHORTER)
                before = (1 / part - 1) * noisy, cov / part**2
            point = point - (bread.basis @ move).reshape(problem.shape)
            copy = copy.map(predicted, point, *of_predictions)
            if self.n_hessians > 1:  # rows whose second derivatives are larger here count less
                copy = copy.map(curved).map(_weighed, bound)
        if self.n_hessians > self.n_first:
            bread = self._bread(problem, copy, bound, stream)
        return point, copy, bread, bound, before, clip

    def _plausible(self, units: Units, bread: Bread, move: Array, variance: float) -> Array:
        """A step of rates less what noise in scores makes of it, by the rule of Wiener.

        It is thought to move the logarithm of the rate at an end of each column by about
        `_PLAUSIBLE`. Noise may move that of a rare category many times as far, from where clipped
        scores of few rows do not return. Estimates with a covariance are not shrunk.
        """
        if units.problem.loss.task != "rates" or self.moments is not None:
            return move
        d = units.problem.n_features
        ends = _far(units, 1.0, np.zeros(units.problem.size))[1][:d] @ bread.basis[:d] / _PLAUSIBLE
        noise = variance * bread.inverse @ bread.inverse @ ends.T
        # (the matrix is the identity and more, whatever was released)
        gain = noise @ np.linalg.pinv(np.eye(d) + ends @ noise, hermitian=True)
        return np.asarray(move - gain @ (ends @ move))

    def _on_level(self, units: Units, coef: Array, stream: RandomStream) -> Array:
        """Coefficients of rates with which the mean prediction is that of the targets.

        Steps leave it another one where means are not exponentials of any slopes, and clips where
        tails are long: where the first one takes much away, what is told here is trusted more.
        Clipped where noise and what is lost beyond add up to least.
        """
        problem, unit = units.problem, float(units.unit[-1])
        if self.level is None or self.level.scale == 0:  # or steps converge
            return coef
        one = units.ratio / units.frame.mean_weight  # of the released mean
        copy = units.copy.map(_unweighed, units)
        copy = copy.map(predicted, coef, units.frame.offset, units.largest)
        copy = copy.map(_level_alone).map(scored)
        clips = units.clip * 2.0 ** np.arange(0.0, 10.1, 0.25)
        lost = self._lost(copy, units, clips, stream)
        # at most, of tails of finite variance: those of some tables are as long
        most = np.maximum(lost, lost[0] * clips[0] / clips)
        errors = np.hypot(clips * one * self.level.scale, most)
        k = np.flatnonzero(errors <= max(RATES.least_level_error, errors.min()))[-1]
        mean = copy.sum(score_sum, clips[k]) / problem.n_samples
        off = clips[k] * one * float(self.level.release(mean, stream)[0])
        if unit < RATES.least_level_unit:
            return coef
        off -= RATES.given_back * math.sqrt(float(lost[k] * most[k]))
        noise, least = float(errors[k]) ** 2, max(RATES.least_level_error, 0.5 * float(lost[0]))
        doubt = max(least**2, min(off**2 - 2 * noise, RATES.most_off**2))
        off *= doubt / (doubt + noise)
        # (over the smaller of the two means, or noise in one that is too low would be a factor of
        # any size)
        level = math.copysign(math.log1p(min(20.0, abs(off))), off)
        return np.append(coef[:-1], coef[-1] - level / unit)

    def _lost(self, copy: Any, units: Units, clips: Array, stream: RandomStream) -> Array:
        """By how much clips lower the mean of rates over theirs; of users with exponential tails.

        By the law of Weibull, of which a size is a power of -log of the share beyond it: through
        the place of the first clip, and a size that fewer exceed. The power is the usual one, the
        closer together these are.
        """
        if units.users is not None:
            return units.level_bias * np.exp((clips[0] - clips) / units.tail)
        is_cost = units.problem.loss != Tweedie(1)
        power, longer = (RATES.power_of_costs, RATES.tail_of_costs) if is_cost else (1.0, 1.0)
        n, n_far, weight = units.n_positive, max(1, self.n_large // 2), units.frame.mean_weight
        facts = copy.sum(_size_counts, clips), max(units.n_present, 2 * n_far), clips
        prior = statistics.clip_prior(np.log2(clips / clips[0]), 0.0)
        far = statistics.median_on_grid(*facts, prior, self.size, stream, n_far)
        size = units.clip + weight
        rank = max(1.0, longer * size / units.tail)
        apart = math.log(max(math.log(max(n / n_far, 1.0)), TINY) / rank)
        if apart > 0:
            told = min(4.0, max(0.5, math.log(max((far + weight) / size, 1.0)) / apart))
            power += (told - power) / (1 + (RATES.power_doubt / apart) ** 2)
            size, rank = far + weight, rank * math.exp(apart)
        ranks = rank * ((clips + weight) / size) ** (1 / power)
        beyond = gamma_function(1 + power) * gammaincc(power, ranks)
        return np.asarray(n / units.n_present / weight * size / rank**power * beyond)

    def _sizes(
        self, copy: Any, n: int, ranks: tuple[int, ...], stream: RandomStream, widest: float = 0.0
    ) -> list[float]:
        """The sizes that so many of n exceed, for each of some ranks."""
        counts = copy.sum(_size_counts, _SIZES)
        # (of the many that are beyond all rows, one would be selected now and then)
        prior = statistics.clip_prior(np.log2(_SIZES), widest)
        facts = counts, n, _SIZES, prior, self.size, stream
        return [statistics.median_on_grid(*facts, n_above) for n_above in ranks]

    def _bound(self, copy: Any, n: int, units: Units, stream: RandomStream) -> float:
        """The root of second derivatives beyond which rows count less, by two ranks.

        Where those of few rows are so large that noise in proportion would hide those of most rows
        (their sum over all directions, by the tenth that is largest), more than `n_cut` are beyond.
        """
        problem, widest = units.problem, 0.0
        if problem.n_features == 1 and problem.inference and not problem.may_be_empty:
            # up to the longest row that there may be, as of a flag; of several columns rows at the
            # ends of all bounds say nothing of any, and where records may be empty sizes beyond all
            # are not improbable without a prior
            longest = float((1.0 + abs(units.frame.center[0])) * abs(units.transform[0, 0]))
            octaves = math.log2(max(1.0, longest))
            widest = max(0.0, min(octaves, 2 * _OCTAVES_OF_ROWS - octaves))
        ranks = (self.n_cut, n // 10) if self.moments is not None else (self.n_cut,)
        bound, *usual = self._sizes(copy, n, ranks, stream, widest)
        if self.hessian.scale == 0:  # nothing is hidden, and they are larger elsewhere
            return float(_SIZES[-1])
        if not usual:
            return bound
        k = _n_joint(problem)
        hidden = 1.5 * k * math.sqrt(self.hessian.variance) * (math.sqrt(2 * k) + 3)
        rules = INFERENCE
        narrow = min(1.0, rules.wide_exposures * problem.largest_rate)
        most = rules.hidden * (narrow + (1 - narrow) * rules.least_hidden) / max(hidden, TINY)
        return min(bound, usual[0] * max(1.3, math.sqrt(most)))

    def _clip(
        self,
        copy: Any,
        there: Any,
        n: int,
        units: Units,
        first: float,
        bound: float,
        stream: RandomStream,
    ) -> float:
        """The norm that about `n_beyond` of n >= 8 `n_large` scores exceed, by two ranks.

        `there` is the copy with its scores. Of a regression the larger size is between the two that
        were selected with its rank. It is at least, of labels, the first clip, which follows from
        rows; of rates, that of the descent and a size that follows from rows as well. But of labels
        it is hardly more than the longest row that counts times the range of the targets.
        """
        task, most = units.problem.loss.task, math.inf
        told, heaviest = self.law(n, units.n_positive, units.problem.loss)
        usual, large = self._sizes(there, n, (told // 4, self.n_large), stream, _LONGEST[task])
        least = first * (task == "classification")
        if task == "regression":
            if self.n_large > 0:  # both were chosen by noisy ranks, of tails that are alike
                large = math.sqrt(large * first)
            most = float(np.linalg.norm(2 / np.asarray(units.frame.target_scale)))
        elif task == "classification":  # no larger than of any labels, but by chance
            large = min(large, first)
        elif task == "rates":
            most = units.problem.largest_rate * math.exp(min(units.largest, 700.0))
            facts = _few_exceed(units), most, bound, units.frame.mean_weight
            sizes = copy.map(scored, whatever_rate, *facts)
            (least,) = self._sizes(sizes, n, (self.n_large,), stream)
            # (on average a candidate is half an interval above the size)
            least = max(units.clip, 2**-0.125 * least)
        most *= bound * math.sqrt(self.rows_per_user)  # of a sum over a user's rows
        return max(self.clip(usual, large, told, heaviest, most), least)

    def law(self, n: int, n_positive: float, loss: Loss) -> tuple[int, float]:
        """How many of n scores follow one law, and the largest power as in `_HEAVIEST`.

        Of rates as many as targets above 0: most scores of rare events are those of zeros. If these
        are too few to tell a law, it is that of as many as would be enough: of counts an
        exponential one, and of costs one of longer tails.
        """
        told = int(min(n, max(n_positive, 8 * self.n_large)))
        usual = 1.0 if loss == Tweedie(1) else RATES.power_of_costs
        return told, _HEAVIEST[loss.task] if n_positive >= told else usual

    def clip(
        self, usual: float, large: float, told: int, heaviest: float, most: float = math.inf
    ) -> float:
        """That norm, if a quarter and `n_large` of so many exceed these, and few exceed `most`."""
        if self.n_large == 0:
            return large
        ranks = [-math.log(k / told) for k in (told // 4, self.n_large, self.n_beyond)]
        slope = math.log(max(large / usual, 1.0)) / math.log(ranks[1] / ranks[0])
        longer = large * max(1.0, ranks[2] / ranks[1]) ** min(slope, heaviest)
        return min(longer, max(most, large))

    def doubt(self, square: float, kurtosis: float, problem: Problem) -> float:
        """Standard deviation of a released variance by sampling, over it.

        By the noise in the moments, of which less is kept the more there is, `square` being that of
        the clip over the variance of residuals; and by the rows, of which features are normal and
        residuals have that kurtosis.
        """
        assert self.moments is not None
        spread = square * math.sqrt(self.moments.variance)
        prior = INFERENCE.prior[problem.loss.task]
        kept = prior**2 / (prior**2 + spread**2)
        of_noise = spread * math.hypot(kept, 1 / math.sqrt(problem.dimension))
        return math.hypot(of_noise, math.sqrt((3 * kurtosis - 1) / problem.n_samples))

    def _bread(self, problem: Problem, copy: Any, bound: float, stream: RandomStream) -> Bread:
        n_classes, basis = problem.n_outputs, np.eye(problem.size)
        if isinstance(problem.loss, Multinomial):
            apart = np.linalg.qr(np.eye(n_classes)[:, : n_classes - 1] - 1 / n_classes)[0]
            basis = np.kron(np.eye(problem.dimension), apart)
        total = copy.sum(curvature_sum, bound) / problem.n_samples
        noisy, k = self.hessian.release(statistics.isometric_vector(total), stream), len(total)
        of_one = bound**2 * statistics.symmetric_matrix(noisy, k)
        hessian = np.kron(of_one, np.eye(problem.size // k))
        values, vectors = np.linalg.eigh(basis.T @ hessian @ basis)
        scale = bound**2 * math.sqrt(self.hessian.variance)
        # the largest eigenvalue of r directions of noise alone
        r = np.arange(1, len(values) + 1)
        largest = scale * (np.sqrt(2 * np.ceil(r * k / problem.size)) + INFERENCE.clear)
        is_noise = values <= np.maximum(largest, 1e-12 * values[-1])
        n_weak = int(np.max(r * is_noise, initial=0))
        root = vectors[:, n_weak:] / np.sqrt(values[n_weak:])
        # where columns vary less than by their units, effects are larger by as much
        seen = np.maximum(values[:n_weak] + largest[n_weak - 1] - scale, 1e-12 * values[-1])
        larger = np.sqrt(np.maximum(1.0, np.median(values) / seen))
        weak = vectors[:, :n_weak] * np.maximum(1.0, 0.6 * larger)
        return Bread(basis, root @ root.T, root, vectors[:, :n_weak] * larger, weak, scale)

    def _of_sampling(
        self, units: Units, bread: Bread, moments: Array, clip: float, stream: RandomStream
    ) -> tuple[Array, float, Array]:
        """Covariance by sampling, times n; how unsure it is; and variances of residuals.

        Between that by the released moments of the scores and the usual one, by which they are the
        second derivatives times the residuals' variances: the more noise, the closer to this. Of
        users of several rows, these are variances times what likeness of the rows adds to them, the
        mean over directions, which may differ more; those of single residuals are not known.
        """
        assert self.moments is not None
        problem, unit = units.problem, float(units.unit[-1])
        noisy = self.moments.release(statistics.isometric_vector(moments), stream)
        whole = clip**2 * statistics.symmetric_matrix(noisy, problem.size)
        meat, rows = bread.basis.T @ whole @ bread.basis, self.rows_per_user
        scale = clip**2 * math.sqrt(self.moments.variance)
        rank = bread.root.shape[1]
        k = 1 if isinstance(problem.loss, Multinomial) else problem.n_outputs
        if rank == 0:
            return np.zeros_like(meat), 0.0, np.full(k, math.nan)
        # the mean of an inverse is larger than that of what has noise: by this, to the second order
        sizes = (bread.root**2).sum(axis=0)
        root = bread.root / np.sqrt(1 + bread.scale**2 / 2 * sizes * (sizes + sizes.sum() / k))
        inverse = root @ root.T
        blocks = (inverse @ meat).reshape(len(meat) // k, k, -1, k)
        least = 0.5 * scale * float(np.linalg.norm(inverse)) / rank  # half of its deviation
        values, vectors = np.linalg.eigh(np.einsum("ikil->kl", blocks) * k / rank)
        variances = np.maximum(values, max(least, 1e-12 * values[-1], TINY))
        usual = (vectors * variances) @ vectors.T
        outer = np.kron(np.eye(len(meat) // k), (vectors * np.sqrt(variances)) @ vectors.T)
        inner = np.linalg.solve(outer, root)
        spread = scale * float(np.sum(inverse**2)) / float(np.trace(inverse))
        spread /= float(variances.mean())
        prior = INFERENCE.prior[problem.loss.task]
        prior = math.hypot(prior, INFERENCE.prior_of_users * (rows - 1))
        kept = prior**2 / (prior**2 + spread**2)
        values, vectors = np.linalg.eigh(inner.T @ meat @ inner - np.eye(rank))
        factors = 1 + kept * np.maximum(values, -1.0)
        if scale > 0:  # positive ones whose mean is what it was, if that is: noise spreads them
            factors = np.maximum(1 + kept * values, 0.1)
            factors *= max(1 + kept * float(values.mean()), 0.1) / float(factors.mean())
        half = outer @ root @ vectors
        is_known = problem.loss.task != "classification" and rows == 1
        residual = np.diag(usual) if is_known else np.full(k, math.nan)
        if is_known and problem.fit_intercept and unit > 0:
            # long rows, which slopes follow from, may have other ones: those of all, but for noise
            of_all = whole.diagonal()[-k:] / unit**2
            kept_of_all = 1 / (1 + (scale / unit**2 / residual / _UNEQUAL) ** 2)
            residual = np.maximum(residual + kept_of_all * (of_all - residual), 0.1 * residual)
        return (half * factors) @ half.T, math.sqrt(kept) * spread, residual


def _few_exceed(units: Units) -> float:
    """Of weighted rates, about what few of their derivatives exceed: of rare events that of one."""
    problem, size = units.problem, units.clip + units.frame.mean_weight
    one = problem.one_count * math.exp(min(-units.frame.target_center, 700.0))
    # (sizes are candidates above those of counts)
    is_rare = one > units.frame.mean_weight  # of others an event says little, and noise would grow
    return one * math.floor(size / one) if is_rare and one <= size else units.clip


def _level_error(units: Units, bread: Bread, noise: Array) -> float:
    """What errors of this covariance make of levels where probabilities are not 0 or 1.

    There rows count in the second derivatives: those that a slope without end rules out tell none.
    """
    k, unit = units.problem.n_outputs, float(units.unit[-1])
    dual = bread.basis @ bread.dual
    sizes = np.maximum((dual[-k:] ** 2).sum(axis=1), TINY)
    seen = dual @ (dual[-k:].T / sizes)
    of_slopes = 0.5 * float(np.trace(dual.T @ noise @ dual)) * unit**2 / float(sizes.sum())
    return float(np.einsum("ik,ij,jk", seen, noise, seen)) / k * unit**2 + of_slopes * of_slopes


def _move(problem: Problem, bread: Bread, scores: Array, unit: float) -> tuple[Array, Bread, float]:
    """The step of Newton, to be subtracted, in the basis, and the bread that suits its end.

    Of rates it is that of one level for all by its logarithm, at once where the mean is, and from
    there the rest, where second derivatives are larger by the same factor. The rest moves
    predictions by at most 1, in the norm of the second derivatives: exponentials overshoot. The
    inverse is cut as the rest is, by the last number, since noise in scores is.
    """
    move = bread.inverse @ (bread.basis.T @ scores)
    dual = bread.dual
    along = dual @ dual[-1]
    if problem.loss.task != "rates" or unit <= 0 or not _tells_level(bread.root):
        return move, bread, 1.0
    amount = float(along @ move) / along[-1]
    factor = 1 + min(20.0, max(-0.7, -amount * unit))
    move[-1] -= amount
    length = float(np.linalg.norm(dual.T @ move)) * unit / math.sqrt(along[-1])
    cut = max(1.0, length)
    move /= factor * cut
    move[-1] -= math.log(factor) / unit
    inverse, root = bread.inverse / (factor * cut), bread.root / math.sqrt(factor)
    inverse[-1, -1] += (1 - 1 / cut) / (factor * along[-1])
    return move, bread._replace(inverse=inverse, root=root), cut


def _tells_level(root: Array) -> bool:
    """Whether a level of all predictions is along directions that are not weak, for the most part.

    Of a level that is hardly told, steps would be multiples of one along a slope.
    """
    return float((root[-1] ** 2 / (root**2).sum(axis=0)).sum()) > 0.5


def _taken(bread: Bread, bound: float) -> float:
    """The part of a step that weights with this bound leave, of rows that are all as long."""
    squares = float((1 / (bread.root**2).sum(axis=0)).sum())  # their mean
    return float(np.clip(bound**2 / max(squares, TINY), 1 / _SHORTER**2, 1.0))


def _clip_pvalue(
    bread: Bread, scores: Array, before: tuple[Array, Array] | None, variance: float
) -> float:
    """Of last scores that pull no other way than the first, which were shortened more; or NaN.

    `before` has what the first step leaves of an error, and the covariance of its noise.
    """
    if before is None or bread.root.size == 0 or variance == 0:
        return math.nan
    left, cov = before
    pulls = bread.root.T @ bread.basis.T @ (scores - left)
    cov = bread.root.T @ (cov + variance * np.eye(len(cov))) @ bread.root
    return float(chdtrc(pulls.size, pulls @ np.linalg.solve(cov, pulls)))


def _errors(units: Units, bread: Bread, last: LastStep, longest: float) -> tuple[Array, Array]:
    """Covariances of errors by noise and by what the last step leaves; and of these by themselves.

    By a careful bread, of rows that are at most so long.
    """
    problem, basis, step, variance = units.problem, bread.basis, last.step, last.variance
    # the noise of a step was no error before it: what is left of its square
    of_noise = variance * float((last.bread.inverse**2).sum())
    left = max(0.0, 1 - of_noise / max(float(step @ step), TINY))
    error, far = step * math.sqrt(left), step  # of exponentials noise in steps overshoots, too
    noise = bread.inverse @ _noise(problem, bread, error, variance) @ bread.inverse
    of_step: Any = 0.0
    if problem.loss.task == "classification":
        # what the step leaves, as second derivatives change from where scores are 0
        pulls, far = bread.root.T @ basis.T @ last.scores, error
        bend = _bend(left * float(pulls @ pulls), units.balance)
        half = bend * basis @ bread.root @ _bent(problem, bread, last.point, basis @ error)
        of_step = half @ half.T
    elif last.cut > 1:  # what is left of a step that was cut, in any direction
        seen = (last.cut - 1) * error @ bread.dual
        noise = noise + float(seen @ seen) / seen.size * bread.root @ bread.root.T
    of_step = of_step + _left(units, longest, basis @ far, bread.inverse)
    return basis @ noise @ basis.T + of_step, of_step


def _noise(problem: Problem, bread: Bread, move: Array, variance: float) -> Array:
    """Covariance of the noise in scores, and in the derivatives times the step by them."""
    k, basis = _n_joint(problem), bread.basis
    steps = (basis @ move).reshape(k, -1)
    of_hessian = np.einsum("ij,kl->ikjl", np.eye(k), steps.T @ steps)
    of_hessian += np.einsum("jk,il->ikjl", steps, steps)
    of_hessian = bread.scale**2 / 2 * of_hessian.reshape(problem.size, problem.size)
    return variance * np.eye(basis.shape[1]) + basis.T @ of_hessian @ basis


def _bend(energy: float, balance: float) -> float:
    """The error of a step of labels of this squared length, in the norm of their derivatives.

    These change on its way, by about abs(p'' / p') <= 1 for each unit of a prediction, of rare
    labels as exponentials: there a step is longer than it seems.
    """
    return INFERENCE.bend * energy / math.sqrt(min(1.0, balance / INFERENCE.rare_balance))


def _bent(problem: Problem, bread: Bread, coef: Array, step: Array) -> Array:
    """Where that error lies, as orthogonal columns in the norm of the second derivatives.

    It is the inverse times a mean of z f, f a function of the predictions before and after the
    step. Of normal rows, what depends on predictions is correlated with rows along effects and the
    step alone (Stein's lemma), and with levels. Several classes have more such lines, and the error
    is no longer.
    """
    d, levels = problem.dimension, np.eye(problem.dimension)[:, problem.n_features :]
    lines = np.column_stack((coef.reshape(d, -1), step.reshape(d, -1), levels))
    dual = bread.dual
    seen = dual.T @ bread.basis.T @ np.kron(lines, np.eye(problem.n_outputs))
    turn, sizes, _ = np.linalg.svd(seen, full_matrices=False)
    turn = turn[:, sizes > 1e-9 * sizes.max(initial=0.0)]
    return np.asarray(turn * math.sqrt(min(1.0, 3 / max(turn.shape[1], 1))))


def _short(units: Units, last: LastStep) -> Array:
    r"""How far effects of labels may be from where the last step ends, as a covariance.

    Where labels are nearly determined, only rows close to the boundary tell how steep effects k
    are: in k the loss has a slope like :math:`1 / K^2 - 1 / k^2`, K the true ones, and a second
    derivative like :math:`2 / k^3`. So a step adds :math:`f = (1 - k^2 / K^2) / 2` times k, however
    far it is. To f is added what noise may hide. Predictions of which second derivatives are those
    without effects have no such error: in as far as they are smaller, if predictions are normal.
    The level changes with k so that predictions keep their sum, in the second derivatives: of rare
    labels steeper effects have a lower one. Along directions that these derivatives do not show,
    or hardly, no step was of any use: there what effects are is in doubt as a whole.
    """
    problem, bread, coef = units.problem, last.bread, last.point
    if problem.loss.task != "classification":
        return np.zeros((coef.size, coef.size))
    effects = np.array(coef).reshape(problem.dimension, -1)
    effects[problem.n_features :] = 0.0
    levels = np.eye(problem.dimension)[:, problem.n_features :]
    levels = bread.basis.T @ np.kron(levels, np.eye(effects.shape[1]))
    effects = bread.basis.T @ effects.ravel()
    clear = 1 - 1 / math.sqrt(1 + math.pi / 8 * units.spread**2 * float(effects @ effects))
    lengths = (bread.root**2).sum(axis=0)
    dual, told = bread.root / lengths, bread.root / np.sqrt(lengths)
    effects -= levels @ (np.linalg.pinv(dual.T @ levels) @ (dual.T @ effects))
    seen, parts_told = dual.T @ effects, told.T @ effects
    size = float(parts_told @ parts_told)
    slope, curved = -float(seen @ bread.root.T @ bread.basis.T @ last.scores), float(seen @ seen)
    slopes = np.array([slope, slope + 1.5 * math.sqrt(last.variance * size)])
    parts = slopes / np.maximum([curved, curved - 1.5 * bread.scale * size], TINY)
    parts = np.clip(parts, -0.7, 0.49)
    left = float((1 / ((1 + parts) * np.sqrt(1 - 2 * parts))).max()) - 1
    far = clear * left * (1 + parts[0]) * bread.basis @ bread.root @ seen
    shown = 1 - np.minimum(1.0, INFERENCE.unclear["classification"] * bread.scale * lengths) ** 6
    # (of two classes that are alike, levels do not go with effects)
    alike = 0.0 if problem.has_frequencies else min(1.0, units.balance)
    rare = min(1.0, _RARE * math.sqrt(1 - alike))
    doubt = _STEEPER * rare * clear * bread.basis @ (effects - told @ (shown * parts_told))
    return np.outer(far, far) + np.outer(doubt, doubt)


def _far(units: Units, longest: float, step: Array) -> tuple[Array, Array]:
    """What parts of a step are in doubt, as it moves predictions of some rows by far; these rows.

    In a rare group a step seems short in the norm of all rows, and may be far too long: of labels
    from `_FAR` on, and of rates, whose exponentials grow on its way, all but its logarithm. Groups
    are of rows, of this length at most, that have one column at an end of its bounds; of rates the
    last one has 0 in all, as a reference category has. Its rate may also fall, and the step is then
    too short.
    """
    d, task = units.problem.n_features, units.problem.loss.task
    center, plain = units.frame.center, units.transform[:d, :d] * units.unit[:d]
    rows = ((1.0 + np.abs(center)) * plain.T).T
    if task == "rates":
        rows = np.vstack((rows, -center @ plain))
    lengths = np.maximum(np.linalg.norm(rows, axis=1) / max(longest, TINY), 1.0)
    moved = np.linalg.norm(rows @ step.reshape(units.problem.dimension, -1)[:d], axis=1) / lengths
    if task == "rates":
        moved[d] = max(float(-rows[d] @ step[:d]) / lengths[d], -0.9)
        moved[np.abs(moved) < 1e-9] = 1e-9
        return 1 - np.log1p(moved) / moved, rows
    return np.clip(moved / _FAR - 1, 0.0, 1.0) * (task == "classification"), rows


def _groups(units: Units) -> tuple[Array, Array, Flags]:
    """Rows that have one column at an end of its bounds, those of all first ends first.

    At the other end are the flags that hardly occur with it, too: those of one list, of which the
    reference category is left, as the last result says. The second is in how far each column varies
    as if all of its values were at the ends.
    """
    d, mean = units.problem.n_features, units.frame.center - units.shift[0]
    plain, ends = units.transform[:d, :d], np.where(mean < 0, -1.0, 1.0)
    others = np.where(np.resize(units.problem.from_zero or (False,), d), 0.0, -ends)
    back = units.spread * np.linalg.pinv(plain) / (ends - others)
    shares, cov = (mean - others) / (ends - others), back.T @ back
    alike = cov.diagonal() / np.maximum(shares * (1 - shares), TINY)
    alike = np.clip((alike - _BETWEEN) / (1 - _BETWEEN), 0.0, 1.0)
    # (independent ones have no covariance, and those of one list less the product of their shares)
    lists = np.where(np.eye(d) > 0, 1.0, cov < -0.5 * np.outer(shares, shares))
    rows = np.vstack((np.diag(ends - mean), lists * (others - mean))) - units.shift[0]
    rows = np.column_stack((rows @ plain, np.full(2 * d, units.unit[-1])))
    is_reference = np.append(np.zeros(d, dtype=bool), lists.sum(axis=1) > 1)
    return rows, np.resize(alike, 2 * d), is_reference


def _fallen(units: Units, last: LastStep, inverse: Array, counted: Array) -> tuple[Array, Array]:
    r"""How far a group in which a label is rare may be from where the last step leaves it.

    With p before the step and :math:`p^*` in truth, its second derivatives are p (1 - p) and its
    scores :math:`p - p^*`, so that a step moves its log-odds by :math:`(1 - p^* / p) / (1 - p)`:
    hardly by more than 1, however rare the label is. What is left follows from that but for noise
    in the step. The result is a covariance of what is not `counted` yet, the largest such error
    first; and as columns the directions of flags of which steps are so near 1 that the label may
    not occur at all: these have no ends.
    """
    problem, bread, point = units.problem, last.bread, last.point
    left = np.zeros((point.size, point.size))
    if problem.loss.task != "classification" or problem.n_outputs > 1 or not problem.fit_intercept:
        return left, np.zeros((point.size, 0))
    rows, alike, is_reference = _groups(units)
    p = expit(rows @ point.ravel() + units.frame.offset)
    seen = rows @ bread.basis
    moved, pulled, longer = seen @ last.step, seen @ bread.inverse, seen @ inverse
    squares = (pulled**2).sum(axis=1)
    noise = np.sqrt(last.variance * squares)
    unsure = bread.scale * squares / np.maximum((pulled * seen).sum(axis=1), TINY)
    error = np.sqrt(np.maximum(moved**2 - noise**2, 0.0))
    size = error * (1 + 1.5 * unsure) + np.minimum(noise, error)
    rarer = np.where(moved > 0, p, 1 - p)  # what the step makes smaller, of two labels
    other = np.maximum(1 - rarer, TINY)
    part = np.minimum(size * other, _GONE)
    # (step and noise together: what noise may make of 0 is no bound, either. And second derivatives
    # that are hardly clear of noise are seen where it made them larger, and steps by it too short)
    clear = np.maximum(1 - _UPWARD * unsure, 0.01)
    is_gone = (np.abs(moved) + noise) / clear * other >= _GONE
    is_gone &= (alike > 0.5) & ~is_reference  # all others would have none, either
    size = part / other
    errors = alike * (np.log1p(size * rarer) - np.log1p(-part) - size)
    lengths = np.maximum((longer * seen).sum(axis=1), TINY)
    order = np.argsort(-errors)
    for j in order[errors[order] > 0]:
        more = _SURE * errors[j] ** 2 - float(rows[j] @ (counted + left) @ rows[j])
        if more > 0:
            own = bread.basis @ longer[j] / lengths[j]
            left += more * np.outer(own, own)
    gone = bread.basis @ longer[is_gone].T
    return left, gone / np.maximum(np.linalg.norm(gone, axis=0), TINY)


def _left(units: Units, longest: float, step: Array, inverse: Array) -> Array:
    """What a last step leaves of that, as a covariance.

    Of rates it is an error of each column's own coefficient, or what the step would make of one in
    the last group's rate; and in doubt is the most that it can be: `_SURE` of its square is enough
    beside noise of any size.
    """
    parts, rows = _far(units, longest, step)
    if units.problem.loss.task != "rates":
        return np.asarray(parts.max(initial=0.0) ** 2 * np.outer(step, step))
    d, left = units.problem.n_features, np.zeros((step.size, step.size))
    errors = parts * (rows @ step[:d])
    of_columns = np.linalg.pinv(rows[:d]) * errors[:d]
    left[:d, :d] = of_columns @ of_columns.T
    row = np.append(rows[d], units.unit[d:])
    own = inverse @ row * (errors[d] / max(float(row @ inverse @ row), TINY))
    return _SURE * (left + np.outer(own, own))


def _best(units: Units, coef: Array, found: Array, root: Array, noise: Array, clip: float) -> Array:
    """Between a descent's coefficients and an estimate with more noise, those that predict best.

    Slopes times a factor and an intercept that come nearest to the estimate, in the norm of the
    second derivatives; and as far towards it as the rest of the way is above its noise.
    """
    problem, k, dual = units.problem, units.problem.n_outputs, root / (root**2).sum(axis=0)
    unit = float(units.unit[-1])
    line = np.einsum("ik,kl->ikl", coef.reshape(-1, k), np.eye(k))
    line[problem.n_features :] = 0.0
    intercepts = np.zeros((problem.dimension, k, k))
    intercepts[problem.n_features :] = np.eye(k)
    line = np.concatenate((line, intercepts), axis=2).reshape(problem.size, 2 * k)
    start = np.append(np.ones(k), coef.reshape(-1, k)[problem.n_features :].sum(axis=0))
    prior = np.diag(np.repeat([1.0, 100.0], k))  # of the factors, and in units of the intercepts
    seen, of_noise = dual.T @ line, dual.T @ noise @ dual
    gain = prior @ seen.T @ np.linalg.pinv(seen @ prior @ seen.T + of_noise, 1e-12, hermitian=True)
    near = line @ (start + gain @ (dual.T @ found - seen @ start))
    rest = np.eye(len(seen)) - seen @ gain
    energy = max(float(((dual.T @ (found - near)) ** 2).sum()), TINY)
    of_rest, is_rate = rest @ of_noise @ rest.T, problem.loss.task == "rates"
    far = float(np.trace(of_rest))
    # (of rates by the factor of James and Stein, of as many directions as noise is in)
    n_rest = far**2 / max(float((of_rest**2).sum()), TINY) if is_rate else 0.0
    least = max(0.5, 1 - 2 / n_rest) if n_rest > 2.5 else 1.0
    kept = max(0.0, 1 - least * far / energy)
    # what is not seen stays as it was
    told = root / np.sqrt((root**2).sum(axis=0))
    best = np.asarray(coef + told @ told.T @ (near + kept * (found - near) - coef))
    if not is_rate:
        return best
    wider = clip / math.sqrt(units.trace) - units.clip
    if not _tells_level(root):
        # the descent's level, what steps made of it, and the mean's, which weights may tilt
        along = unit * (told @ told[-1])
        own = units.steps_noise + float(along @ noise @ along)
        # (rows that are cut tell less of how far predictions are apart)
        apart = max(units.trace, units.spread**2 * best.size)
        return units._replace(trace=apart).near_mean(best, own, wider)
    # errors make exponentials larger on average, in the norm of the second derivatives
    # (but that of their level, whose logarithm was taken)
    size, of_level = float((dual[-1] ** 2).sum()), float(dual[-1] @ of_noise @ dual[-1])
    error = max(0.0, kept * far + float(np.trace(seen @ gain @ of_noise)) - of_level / size)
    # slopes are shrunk by that, as ones of their own energy and what is usual
    slopes = dual[:-1].T @ best[:-1]
    energy = float(slopes @ slopes) - float(dual[-1] @ slopes) ** 2 / size
    energy += RATES.effects * size / max(unit, RATES.least_level_unit) ** 2
    best[:-1] *= energy / (energy + error)
    best[-1] -= 0.5 * error * unit / size
    return units.near_mean(best, of_level * (unit / size) ** 2, wider)


def _in_plain_units(
    units: Units, table: Estimates, residual: Array, clip_pvalue: float
) -> Estimate:
    """The estimate for plain rows and targets; coefficients in the units have shape (size,)."""
    problem, d = units.problem, units.problem.n_features
    back = np.eye(problem.dimension)
    back[d:, :d] = -units.frame.center
    back = back @ units.transform
    scales = np.broadcast_to(units.frame.target_scale, problem.n_outputs)
    matrix = np.einsum("ij,kl->kijl", back, np.diag(scales)).reshape(problem.size, problem.size)
    model = units.result(table.coef, problem, 1)
    coef = np.atleast_2d(model.coef)
    if problem.fit_intercept:
        coef = np.column_stack((coef, np.atleast_1d(model.intercept)))
    table, residual = replace(table.times(matrix), coef=coef), residual * np.square(scales)
    n_records = units.n_present if units.users is None else units.users.starts.size
    return Estimate(table, residual, clip_pvalue, n_records, units.n_present)


# ------------------------------------------------------------------------------- planning


class TooFewRowsError(ValueError):
    """There are too few rows for standard errors that are not noise."""


def plan_steps(purse: Purse, change: float) -> NewtonSteps | None:
    """The steps, where a mean changes by `change`; None of rates where they would be noise."""
    rules, problem, budget = INFERENCE, purse.problem, purse.budget
    if not isinstance(problem.base_loss, (Squared, Logistic, Tweedie)):
        raise ValueError(
            "inference=True is for the squared and the logistic loss, and for counts and costs"
        )
    if problem.is_wide:
        raise ValueError("inference=True takes at most 1000 features")
    if budget.rows_per_user > 1 and not problem.by_user:
        if problem.inference:
            raise ValueError("inference=True needs to know whose rows are, for users of several")
        return None  # users are a promise alone
    k, of_sizes = _n_joint(problem), (5 if problem.inference else 2 - problem.by_user)
    left = purse.left - of_sizes * rules.size_share
    m = Purse(problem, budget, purse.allowance.share(max(left, 0.0))).user_accuracy
    # of few coefficients of labels, the error of a whole step is more than its part
    few = max(1.0, (_FEW / k) ** 1.5) if problem.loss.task == "classification" else 1.0
    times = _ENOUGH * few
    if problem.loss.task != "classification" and problem.fit_intercept:
        times *= max(1.0, (_FEW_OF_OTHERS / k) ** 1.5)
    least = rules.least * k**1.5
    is_enough = m >= least and left > 0.1 * problem.inference
    if problem.inference and (not is_enough or m < times * least):
        _tell_of_few_rows(purse, k, left, times, is_enough)
    elif not is_enough:
        return None
    enough = times * least / m * purse.n_records
    return _newton_steps(purse, change, of_sizes, m, few, enough)


def _newton_steps(
    purse: Purse, change: float, of_sizes: int, m: float, few: float, enough: float
) -> NewtonSteps:
    """Those of `plan_steps`, of which sizes have so many shares, and m is what the rest buys."""
    rules, problem, n_records = INFERENCE, purse.problem, purse.n_records
    k, size, loss = _n_joint(problem), problem.size, problem.base_loss
    is_rate = isinstance(loss, Tweedie)
    n_first = _n_first(problem, k, m)
    # (those of the squared and of Gamma's loss are the same everywhere)
    n_hessians = 1 if loss in (Squared(), Tweedie(2)) else n_first + 1
    # of rates one more for the least clip of the last scores, and one for the level, but of users
    of_rates = is_rate * (2 - problem.by_user)
    n_sizes = 4 + (n_first > 0) + of_rates if problem.inference else of_sizes
    of_size = purse.rank(of_sizes * rules.size_share, n_sizes, of_users=True)
    left, share = purse.left, _hessian_share(problem, k, m, n_hessians)
    # change of the mean of s s^T, or of second derivatives, of norm at most 1 (section 4.6)
    products = problem.n_outputs if isinstance(problem.loss, Multinomial) else 1
    of_matrix = statistics.second_moments(problem, purse.budget) + 16 * products * UNIT_ROUNDOFF
    moments, first, spent, of_last = None, None, rules.last_share, rules.last_share - share
    if n_first > 0:
        # where the last step is long, it errs by more than its noise
        of_first = min(rules.first_most, few * rules.first_share)
        of_last -= of_first - rules.first_share
        spent += rules.first_share
        first = purse.noise(change, of_first * left, size, n_first, of_users=True)
    if problem.inference:
        numbers, spent = size * (size + 1) // 2, spent + rules.moments_share
        moments = purse.noise(of_matrix, rules.moments_share * left, numbers, of_users=True)
    n_large = min(n_records // 8, math.floor(rules.large * of_size.scale))
    hessian = purse.noise(of_matrix, share * left, k * (k + 1) // 2, n_hessians, of_users=True)
    of_level = is_rate * (RATES.least_level_share if problem.inference else RATES.level_share)
    level = purse.noise(change, of_level * left, of_users=True) if of_level else None
    last = purse.noise(change, (of_last - of_level) * left, size, of_users=True)
    purse.left = (1 - spent) * left
    return NewtonSteps(
        size=of_size,
        n_sizes=n_sizes,
        n_cut=max(n_large, math.floor(n_records * min(rules.cut_most, rules.cut * k**1.5 / m))),
        n_large=n_large,
        n_beyond=rules.beyond * math.sqrt(size) * n_records / m,
        hessian=hessian,
        first=first,
        n_first=n_first,
        n_hessians=n_hessians,
        moments=moments,
        last=last,
        level=level,
        rows_per_user=purse.budget.rows_per_user,
        n_enough=enough,
    )


def _hessian_share(problem: Problem, k: int, m: float, n_hessians: int) -> float:
    """Of second derivatives."""
    rules, is_rate = INFERENCE, problem.loss.task == "rates"
    of_users = is_rate and problem.by_user
    factor = rules.hessian_wanted if of_users or (is_rate and n_hessians > 1) else 1.0
    usual: float = factor * rules.hessian[problem.loss.task] * k**1.5 / m
    most = rules.hessian_of_users if of_users else rules.hessian_most
    most = min(rules.hessian_scarce, most * max(1.0, usual) ** 2)
    return min(most, max(factor * rules.hessian_least, usual))


def _n_first(problem: Problem, k: int, m: float) -> int:
    """Number of steps before the last one."""
    is_rate = problem.loss.task == "rates"
    if problem.loss.task != "regression" and m > 1e3 * problem.n_samples:
        return _MOST_STEPS  # hardly any noise: until they converge
    is_noise = is_rate and m < INFERENCE.first_of_rates * k**1.5
    return int(min(5, max(not is_noise, math.log10(m) - 3)))


def _n_joint(problem: Problem) -> int:
    """Number of coefficients of one matrix of second derivatives: of an output, or all classes."""
    return problem.size if isinstance(problem.loss, Multinomial) else problem.dimension


def _tell_of_few_rows(purse: Purse, k: int, left: float, times: float, is_enough: bool) -> None:
    """Refuse records that are too few for k coefficients, or warn that they hardly suffice.

    From so many times as many they do. Before second derivatives is so much of the budget `left`.
    """
    problem, budget, n = purse.problem, purse.budget, purse.n_records
    what, counted = ("users", "n_users") if problem.by_user else ("rows", "n_samples")
    needed, enough = (_n_from(purse, k, left, more) for more in (1.0, times))
    goal = enough if is_enough else needed
    # noise falls as Gaussian DP's mu grows, and shares go with both
    mu, growth = budget.mu * budget.rows_per_user, 1.1 * enough / n
    larger = [  # under the relation, and under zero-out
        size_epsilon("gdp", mu * of_n, budget.delta) if mu else budget.epsilon * of_n
        for of_n in (growth, growth / budget.record_factor)
    ]
    fewer = "fewer features" + " or classes" * isinstance(problem.loss, Multinomial)
    advice = [fewer, f"a larger epsilon (about {rounded(larger[0], 2):g})"]
    if problem.n_indicators:
        spared = "missing='keep' in the place of indicators"
        advice[0] += f" ({spared}: {problem.n_indicators} fewer)"
    gaps = " (rows with gaps, if there are any, do not count)" * problem.may_be_empty
    if budget.record_factor > 1:
        of_half = (
            f"half as many {what}" if goal < 2 * n else f"epsilon about {rounded(larger[1], 2):g}"
        )
        advice.append(f"relation='zero-out' ({of_half}, a weaker promise)")
    has_moments = n > needed / 2 and (not is_enough or problem.loss.task == "regression")
    if has_moments and problem.loss.task != "rates" and not problem.by_user:
        moments = "PrivateMoments (intervals from half as many rows)"
        if problem.loss.task == "classification":
            moments = f"effects on probabilities by {moments[:-1]}; labels are 0 and 1, and most "
            moments += "probabilities within .2 and .8)"
        advice.append(moments)
    take = f"Take {', '.join(advice)} or inference=False"
    if not is_enough:
        raise TooFewRowsError(
            f"inference=True needs about {rounded(needed, 2):.0f} {what}, better "
            f"{rounded(enough, 2):.0f}, for {k} coefficients at epsilon={stated(budget.epsilon)}, "
            f"for standard errors that are not noise; {counted}={n}{gaps}. {take}. rows_needed "
            "counts the rows for an effect"
        )
    alike = " if classes are alike, and from more if one is rare"
    alike *= problem.loss.task == "classification"
    warn_user(
        f"{counted}={n}{gaps} is too small to learn from how sure {k} coefficients are "
        f"at epsilon={stated(budget.epsilon)}: intervals may be the whole line, first those of "
        "columns that vary little, that go with others or that have strong effects. Few are from "
        f"about {rounded(enough, 2):.0f} {what} on{alike}. {take}",
        PrivacyParameterWarning,
    )


def _n_from(purse: Purse, k: int, left: float, times: float) -> float:
    """From how many records m is so many times what k coefficients take.

    What comes before second derivatives has other shares of the budget where records are more.
    """
    problem, budget = purse.problem, purse.budget

    def left_by_units(more: float) -> float:
        n, n_users = (math.ceil(more * of_now) for of_now in (problem.n_samples, problem.n_users))
        of_more = Purse(replace(problem, n_samples=n, n_users=n_users), budget)
        plan_units(of_more)
        return of_more.left

    of_others = left_by_units(1.0) - left
    wanted = times * INFERENCE.least * k**1.5 / Purse(problem, budget).user_accuracy

    def is_enough(more: float) -> bool:
        return more * math.sqrt(max(0.0, left_by_units(more) - of_others)) >= wanted

    return 1.03 * bracketed(is_enough, 0.01, wanted, 2 * wanted)[1] * purse.n_records


def expected_std(
    problem: Problem, steps: NewtonSteps, known: Mapping[str, float], correlation: float, safe: bool
) -> tuple[float, float]:
    """Standard errors by sampling and by noise of a coefficient, if features are normal.

    For features of standard deviation 1 that have one correlation with each other; `known` is as in
    `UnitDescentPlan.expected_std`. Of rates with effects that are small; in a classification in
    log-odds, for this effect alone.
    """
    n, d, k, loss = problem.n_samples, problem.n_features, problem.dimension, problem.loss
    p, effect, mean = known["prevalence"], known["effect"], known["mean"]
    is_binary, is_rate = (loss.task == task for task in ("classification", "rates"))
    information, curved = _information(problem, steps, p, effect)
    residual, law = information if is_binary else 1 - float(known["r2"]), None
    if isinstance(loss, Tweedie):  # of targets over their mean
        residual = known["dispersion"] * mean ** (loss.power - 2)
        law = _law(loss, mean, residual)
    # quantiles of the length of a row, the intercept's 1 included, of which the last is far out
    lengths = np.sqrt(1.0 * problem.fit_intercept + chi2.ppf((np.arange(4000) + 0.5) / 4000, d))

    def excess(t: float, share: float) -> float:
        """The share of the records whose scores are longer than t, beyond this one."""
        return float(_beyond(t / lengths, problem, residual, law, p).mean()) - share

    told, heaviest = steps.law(n, n * float(law.sf(0)) if law else math.inf, loss)
    ends, counts = (0.0, 1e3 * max(1.0, residual) * lengths[-1]), (told // 4, max(steps.n_large, 1))
    usual, large = (float(brentq(excess, *ends, (m / n,), xtol=1e-6)) for m in counts)
    large *= 2**0.125  # of a grid, whose next candidate is half an interval larger
    clip = steps.clip(usual, large, told, heaviest)
    # the derivative of a rarer label, or of a count of 1, if no clip is below it, of long rows
    least = (1 / mean - 1) * float(lengths[-40]) if loss == Tweedie(1) else 0.0
    if is_binary:
        least = 2**0.125 * max(p, 1 - p) * float(np.quantile(lengths, 1 - counts[1] / n))
    clip, large = max(clip, least), max(large, least)
    # found by simulation, also that the column of an effect on labels has more noise than others
    factor, doubt = (1.3 if safe else 1.0) * (1.15 if is_binary and effect != 0 else 1.0), 0.0
    inflation = (1 + (d - 2) * correlation) / ((1 - correlation) * (1 + (d - 1) * correlation))
    part = curved / information * steps.hessian.scale
    if safe:
        # the inverse of second derivatives of which noise hides much has a long tail
        inflation *= (1 + 4 * k**2 * (inflation * part) ** 4) ** 2
        if is_rate:  # with long tails more: the candidate after that
            factor = steps.clip(usual, large * 2**0.25, told, heaviest) / clip
        kurtosis = (p**3 + (1 - p) ** 3) / (p * (1 - p)) if is_binary else 3.0
        kurtosis = 3.0 + float(law.stats("k")) if law is not None else kurtosis
        doubt = _SAFE * steps.doubt(clip**2 / residual, kurtosis, problem)
    of_first = 0.0 if steps.first is None else large**2 * steps.first.variance
    of_scores = np.array([clip**2 * steps.last.variance, of_first]) / information**2
    sampling = residual / (information**2 * n)
    # what is left of the error before the last step; of labels derivatives change on its way
    noise = of_scores[0] + part**2 / 2 * (k + 1) * (of_scores.sum() + 2 * sampling)
    noise += is_binary * _bend(k * information * of_scores[1], 4 * p * (1 - p)) ** 2 / information
    return math.sqrt(sampling * (1 + doubt) * inflation), factor * math.sqrt(noise * inflation)


def _beyond(ratios: Array, problem: Problem, residual: float, law: Any, p: float) -> Any:
    """Shares of derivatives that are larger: of labels of prevalence p, of rates by their law."""
    if problem.loss.task == "classification":
        return p * (ratios < 1 - p) + (1 - p) * (ratios < p)
    if law is not None:
        return law.cdf((1 - ratios) * law.mean()) + law.sf((1 + ratios) * law.mean())
    if problem.n_outputs == 1:  # as below, and many times as fast
        return erfc(ratios / math.sqrt(2 * residual))
    return chi2.sf(ratios**2 / residual, problem.n_outputs)


def _law(loss: Loss, mean: float, variance: float) -> Any:
    """Of rates of this mean, or of multiples of them, which over their mean have this variance."""
    dispersion = variance * mean
    if loss == Tweedie(1) and dispersion > 1 + 1e-6:
        # multiples of Poisson's with that variance have lighter tails than counts have
        return nbinom(mean / (dispersion - 1), 1 / dispersion)
    return (poisson if loss == Tweedie(1) else gamma)(1 / variance)


def chance_of_ends(problem: Problem, steps: NewtonSteps, prevalence: float, effect: float) -> float:
    """How probable it is that second derivatives along a coefficient are told from noise."""
    information, curved = _information(problem, steps, prevalence, effect)
    # the bound, a candidate that is on average half an interval larger, varies by a quarter; rows
    # that count less, and a point that is off, take another one (found by simulation)
    ratio = 0.75 * information / max(curved * 2**0.25 * steps.hessian.scale, TINY)
    return float(ndtr((ratio - math.sqrt(2) - INFERENCE.clear) / math.hypot(1.0, ratio / 4)))


def _information(
    problem: Problem, steps: NewtonSteps, prevalence: float, effect: float
) -> tuple[float, float]:
    """The second derivative along a coefficient, and the size of such that their bound is.

    In a classification of log-odds a + effect * z with z normal, one of the features, the mean of
    p (1 - p) z^2, with an intercept about the mean of z by p (1 - p); else 1.
    """
    far = max(steps.n_cut, 1) / problem.n_samples
    if problem.loss.task != "classification":
        return 1.0, float(problem.fit_intercept + chi2.ppf(1 - far, problem.n_features))
    levels = (np.arange(400) + 0.5) / 400
    z, effect = ndtri(levels), float(np.clip(effect, -50, 50))  # beyond, nothing is told, either
    reach = 40 + 4 * abs(effect)
    rarer = min(prevalence, 1 - prevalence)  # (of two, whose names change nothing)
    level = brentq(lambda a: float(expit(a + effect * z).mean()) - rarer, -reach, reach)
    p = expit(level + effect * z)
    others = chi2.ppf(levels, problem.n_features - 1) if problem.n_features > 1 else 0 * levels
    squares = (z - problem.fit_intercept * np.average(z, weights=p * (1 - p))) ** 2
    sizes = (problem.fit_intercept + squares + others[:, None]) * p * (1 - p)
    weights = squares / (z**2).mean()
    return float((p * (1 - p) * weights).mean()), float(np.quantile(sizes, 1 - far))


# -------------------------------------------------------------------------------- of records


class Sized(NamedTuple):
    """Numbers of records: rows of the copy, weights, 0 of empty ones, and norms of z, rounded up.

    And what was computed of each at a point: derivatives times weights, or for second derivatives
    probabilities or 1; and norms of scores, or the roots of norms of second derivatives. Of users,
    the latter are those of the sums over their rows, which all have the same; their scores are rows
    of a table of their own, whose derivatives are 1.
    """

    x: AnyArray
    unit: Array  # z is this times [x, 1], or times x
    loss: Loss
    counted: Flags  # of each present record once: of users, at their first rows
    users: Users | None  # None where each row is a record
    weights: Array
    # The part of a row that counts, by its features. Its own weight may depend on its label, and
    # exposures vary by decades: those of rates are a factor of it.
    shares: Array
    norms: Array
    raw: Array  # predictions at that point
    of_each: Array
    sizes: Array


def _unweighed(copy: SolverData, units: Units) -> SolverData:
    """The copy with no weights but the records' own, and with norms."""
    x, rows, problem = copy.numbers[0], copy.rows, units.problem
    unit, loss, users = units.unit, problem.loss, units.users
    d = x.shape[1]
    squares = Rows(x, False).norms(unit[:d]) ** 2 + float((unit[d:] ** 2).sum())
    norms = np.sqrt(squares * (1 + norm_error(len(unit))))
    counted = rows.present()
    weights = rows.sample_weights() * counted
    if users is not None:
        counted = np.zeros(len(x), dtype=bool)
        counted[users.order[users.starts]] = users.present
    # Exposures are known beforehand, unless an event ends them: those of at most one may be shorter
    # for it, and would count more.
    is_fixed = loss.task == "rates" and problem.one_count < problem.largest_rate
    shares = weights if is_fixed else np.maximum(weights, weights > 0)
    numbers = Sized(x, unit, loss, counted, users, weights, shares, norms, norms, norms, norms)
    return replace(copy, numbers=numbers)


def predicted(copy: SolverData, point: Array, offset: Any, largest: float) -> SolverData:
    """The copy with predictions at a point of shape (dimension,) or (dimension, n_outputs)."""
    x, unit = copy.numbers.x, copy.numbers.unit
    raw = Rows(x, len(unit) > x.shape[1]).product((unit * point.T).T) + offset
    raw = np.clip(raw, -LARGEST_PREDICTION, largest)
    return replace(copy, numbers=copy.numbers._replace(raw=raw))


def curved(copy: SolverData, is_observed: bool = False) -> SolverData:
    """The copy with what its records have of second derivatives there, of rates in the mean."""
    numbers, users = copy.numbers, copy.numbers.users
    of_each, curvature = _curvature(numbers.loss, numbers.raw, copy.y if is_observed else None)
    sizes = numbers.norms * np.sqrt(numbers.shares * curvature)
    if users is not None:  # the trace of a sum bounds its Frobenius norm
        most = int((users.ends - users.starts).max())
        squares = np.add.reduceat(sizes[users.order] ** 2, users.starts)
        sizes = np.sqrt(squares * (1 + norm_error(most)))[users.of_rows]
    return replace(copy, numbers=numbers._replace(of_each=of_each, sizes=sizes))


def _level_alone(copy: SolverData) -> SolverData:
    """The copy with scores of the level of rates alone, predictions less targets."""
    x, ones = copy.numbers.x, np.ones(len(copy.numbers.raw))
    alone = {"x": x[:, :0], "unit": np.ones(1), "norms": ones, "loss": Tweedie(1)}
    return replace(copy, numbers=copy.numbers._replace(**alone))


def scored(copy: SolverData, least: Any = None, *facts: float) -> SolverData:
    """The copy with the scores of its records there, or of its users.

    Perhaps with at least the norms that a function tells of rows; of users with the largest of
    their rows: that of one event, where that of their sum is smaller.
    """
    numbers, users = copy.numbers, copy.numbers.users
    r = clipped_derivative(numbers.loss, numbers.raw, copy.y, math.inf)
    of_each = times_rows(r, numbers.weights)
    if users is not None:
        found = _of_users(numbers, of_each.reshape(len(r), -1))
    else:
        lengths = np.abs(of_each) if r.ndim == 1 else np.linalg.norm(of_each, axis=1)
        sizes = numbers.norms * lengths * (1 + norm_error(len(numbers.unit)))
        found = numbers._replace(of_each=of_each, sizes=sizes)
    if least is not None:
        sizes = least(copy, *facts)
        if users is not None:
            sizes = np.maximum.reduceat(sizes[users.order], users.starts)
        found = found._replace(sizes=np.maximum(sizes, found.sizes))
    return replace(copy, numbers=found)


def whatever_label(copy: SolverData) -> Array:
    """The norms that scores of rows have with the least probable label.

    A few events in a rare group are fewer than a rank sees, but its rows are not.
    """
    numbers: Sized = copy.numbers
    p = numbers.loss.probability(numbers.raw)  # type: ignore[attr-defined]
    if p.ndim == 1:
        most = np.maximum(p, 1 - p)
    else:
        most = np.sqrt((p**2).sum(axis=1) + 1 - 2 * p.min(axis=1))
    return np.asarray(numbers.norms * numbers.weights * most)


def whatever_rate(
    copy: SolverData, derivative: float, largest: float, bound: float, usual: float
) -> Array:
    """The norms that scores of rows have with a derivative that few exceed.

    That of an event, where these are rare: as of labels. Of an exposure at most with the largest
    rate. Of long rows, which count less the longer their exposures are, as with the usual one at
    least: few events are those of short ones.
    """
    numbers, rows = copy.numbers, copy.rows
    own = rows.sample_weights() * rows.present()
    exposures = np.maximum(own, usual * (own > 0))
    squares = numbers.norms**2 * exposures * _curvature(numbers.loss, numbers.raw)[1]
    sizes = numbers.norms * clipped_to(bound, np.sqrt(squares)) ** 2
    return np.asarray(sizes * np.minimum(derivative, own * largest))


def _of_users(numbers: Sized, of_each: Array) -> Sized:
    """The scores of the users, in the place of rows.

    What is computed of a user is the same whatever the others hold, and is what is scaled down: the
    float error of a sum in which rows cancel out is part of the user's own vector.
    """
    from .._kernels.products import add_by_user

    users, unit = numbers.users, np.repeat(numbers.unit, of_each.shape[1])
    assert users is not None
    starts, ends = users.starts, users.ends
    s = np.zeros((starts.size, unit.size))

    def fill(part: slice) -> None:
        add_by_user(numbers.x, of_each, users.order, starts[part], ends[part], s[part])

    on_threads(fill, row_slices(s), uses_blas=False)
    s *= unit
    sizes, ones = np.linalg.norm(s, axis=1) * (1 + norm_error(unit.size)), np.ones(len(s))
    units = np.ones(unit.size)
    return Sized(s, units, numbers.loss, users.present, None, ones, ones, sizes, ones, ones, sizes)


def _curvature(loss: Loss, raw: Array, y: Array | None = None) -> tuple[Array, Array]:
    """What second derivatives in predictions follow from, and a bound on their Frobenius norms."""
    if isinstance(loss, Tweedie):
        information = loss.information(raw, y)
        return information, information
    if loss.task == "regression":
        ones = np.ones(raw.shape)
        return ones, ones if ones.ndim == 1 else ones[:, 0]
    p = loss.probability(raw)  # type: ignore[attr-defined]
    if not isinstance(loss, Multinomial):
        return p * (1 - p), p * (1 - p)
    squares = (p**2).sum(axis=1)
    # that of diag(p) - p p^T is no larger, roundings included
    room = (8 * p.shape[1] + 16) * UNIT_ROUNDOFF
    return p, np.sqrt(squares * np.maximum(1 - squares, 0.0) + room)


def _size_counts(copy: SolverData, grid: Array) -> Array:
    return place_counts(copy.numbers.sizes, copy.numbers.counted, grid)


def _weighed(copy: SolverData, bound: float) -> SolverData:
    """The copy with weights with which no root of second derivatives is above the bound.

    Of a user with too much, the last rows count less: a weight of all that depends on how many rows
    there are would depend on the outcome where this decides what follows it.
    """
    numbers, users = copy.numbers, copy.numbers.users
    if users is not None:
        from .._kernels.products import shares_of_first

        squares = numbers.norms**2 * numbers.shares * _curvature(numbers.loss, numbers.raw)[1]
        kept = np.ones(len(squares))
        shares_of_first(squares, users.order, users.starts, users.ends, bound**2, kept)
        weights, shares = numbers.weights * kept, numbers.shares * kept
        return curved(replace(copy, numbers=numbers._replace(weights=weights, shares=shares)))
    factors = clipped_to(bound, numbers.sizes)
    weights, shares = numbers.weights * factors**2, numbers.shares * factors**2
    found = {"weights": weights, "shares": shares, "sizes": numbers.sizes * factors}
    return replace(copy, numbers=numbers._replace(**found))


def _shortened(copy: SolverData, clip: float) -> Array:
    """Derivatives over a clip, such that times their z they are scores of norm at most 1."""
    numbers = copy.numbers
    return times_rows(numbers.of_each, clipped_to(clip, numbers.sizes) / clip)


def score_sum(copy: SolverData, clip: float) -> Array:
    """Sum of the scores over a clip, the longer ones scaled down to 1; of shape (size,)."""
    x, unit = copy.numbers.x, copy.numbers.unit
    total = Rows(x, len(unit) > x.shape[1]).weighted_sum(_shortened(copy, clip))
    return np.asarray((unit * total.T).T.ravel())


def score_and_moment_sum(copy: SolverData, clip: float) -> Array:
    """The same in the first row, and below it the sum of s s^T, by one pass."""
    x, unit, shortened = copy.numbers.x, copy.numbers.unit, _shortened(copy, clip)

    def added(part: slice) -> Array:
        r = shortened[part]
        if r.ndim == 1:
            s = statistics.scaled(x[part], r, len(unit))
        else:
            z = statistics.scaled(x[part], np.ones(len(r)), len(unit))
            s = (z[:, :, None] * r[:, None]).reshape(len(z), -1)
        return np.vstack((np.ones(len(s)) @ s, s.T @ s))  # a product is faster than a sum

    units = np.repeat(unit, math.prod(shortened.shape[1:]))
    total = sum_on_threads(added, row_slices(x))
    return np.asarray(total * np.vstack((units, np.outer(units, units))))


def curvature_sum(copy: SolverData, bound: float) -> Array:
    """Sum of the second derivatives over the bound's square, the larger ones scaled down to 1."""
    x, p, unit = copy.numbers.x, copy.numbers.of_each, copy.numbers.unit
    is_joint, dimension = isinstance(copy.numbers.loss, Multinomial), len(unit)
    factors = copy.numbers.weights * (clipped_to(bound, copy.numbers.sizes) / bound) ** 2

    def added(part: slice) -> Array:
        q, f = p[part], factors[part]
        if not is_joint:
            z = statistics.scaled(x[part], np.sqrt(f * (q if q.ndim == 1 else q[:, 0])), dimension)
            return np.asarray(z.T @ z)
        z, k = statistics.scaled(x[part], np.ones(len(q)), dimension), q.shape[1]
        total = np.zeros((dimension, k, dimension, k))
        for a in range(k):
            for b in range(a + 1):
                block = (z.T * (f * q[:, a] * ((a == b) - q[:, b]))) @ z
                total[:, a, :, b] = total[:, b, :, a] = block
        return total.reshape(dimension * k, dimension * k)

    units = np.repeat(unit, p.shape[1] if is_joint else 1)
    total = sum_on_threads(added, row_slices(x))
    return np.asarray(total * np.outer(units, units))
