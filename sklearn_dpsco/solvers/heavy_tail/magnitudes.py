r"""Private scales and centres of columns without bounds.

Scales are powers of two, chosen by the exponential mechanism from a public grid, one for all
columns and, where the noise allows it, one for each; centres are means of values clipped in units
of the scales. For a descent in learned units, which finds centres by itself, scales alone bound
the columns (`ReachSearch`). Sensitivities: doc/privacy, section 7.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..._kernels.arguments import dense_or_stored
from ..._types import Array, Flags, Integers
from ...data.compressed import slices
from ...data.rows import UNIT_ROUNDOFF, Rows, SolverData
from ...mechanisms import Gaussian, Laplace, Release, SelectVertex, additive_noise
from ...mechanisms.laws import PRIOR_ROOM
from ...privacy.budget import Allowance
from ...randomness.stream import RandomStream
from .. import statistics
from ..base import Frame, Part, named_releases

Counts = Integers
Exponents = Integers
Noise = Gaussian | Laplace

_LOWEST, _HIGHEST = -64, 64  # exponents of the grid of scales
_EXPONENTS = np.arange(_LOWEST, _HIGHEST + 1)
_FINEST = 16  # no spread below 2^-16 of the column's magnitude is a candidate
BOX = 64.0  # scaled values are clipped to [-64, 64], so that all products are finite
_CENTER_CLIP = 2.0  # clip of scaled values in the mean for a centre
_FLOAT_TERMS = 160  # roundings of a score: at most one for each octave and a few

# The mean of m^2 over m uniform in [1/2, 1): the mean of x^2 in an octave, over its upper end.
_OCTAVE_MEAN = 7 / 12

# A prior: columns have magnitudes near 1, more likely above than below, and a spread is more
# likely near the column's magnitude than far below. In units of the noise, so that it only
# decides between scores that differ by little more than noise.
_LOG_PRIOR = np.where(
    _EXPONENTS < 0, -4 * np.log1p(np.abs(_EXPONENTS) / 4), -2 * np.log1p(np.abs(_EXPONENTS) / 8)
)
# Per octave above and below: a scale that is too small blows up what noise adds to predictions. But
# about a centre that was found, columns may vary little against what they are.
_LOG_SPREAD = 0.7
_SLOPE_BELOW: Array = 1.5 * np.arange(float(_HIGHEST - _LOWEST + 1))
_BELOW_CENTRED: Array = 6 * np.log1p(_SLOPE_BELOW / 6)

# g, of which a record adds g - q to a score, by its octave (rows) and the scale (columns).
_GAPS = np.arange(_LOWEST, _HIGHEST + 2)[:, None] - _EXPONENTS
_CLIPPED_SQUARE = np.where(_GAPS > 0, 1.0, _OCTAVE_MEAN * 4.0 ** np.minimum(_GAPS, 0))

# Selections get the share of the budget that brings their noise down to _NOISE_AIMED, but at
# most what is allowed. A second round follows where that share is at most
# _SECOND_CENTER_SHARE.
_NOISE_AIMED = 0.004
_SECOND_CENTER_SHARE = 0.04
# Scale of the noise on a score above which all columns have one scale: that of a column which is
# far off then has more than e^-3 times the weight of the best.
_UNCLEAR = 1 / 6
# A single column's scale counts as chosen by noise unless the share of the records that are not
# _FAR_BELOW octaves below it exceeds 0 by _EVIDENCE standard deviations. It has the share of the
# budget with which _MOST_PRESENCE does, and a little at least; where that is too much, it is not
# released, and the scale is at most 1.
_EVIDENCE, _FAR_BELOW, _MOST_PRESENCE = 4.0, 4, 0.5
_LEAST_FOR_PRESENCE, _MOST_FOR_PRESENCE = 0.01, 0.5  # the last of a search's share
# A single column has up to three rounds, as long as the scale of the noise on a score is below
# this, where its scale is hardly ever far off: each brings a far-off centre nearer.
_SURE, _MOST_ROUNDS = 0.05, 3
_USELESS_CENTER = 0.5  # a centre with more noise than this, in units of the scale

# A column reaches as far as 8 typical sizes, or, where the noise is small, as twice the size with
# few records beyond: a share of 16 times the noise of the selection, if that is below .2.
_TYPICAL, _FAR, _FARTHEST = 8.0, 2.0, 24
_CLEAR_SHARE, _FEW = 16.0, 0.2
_FAR_NOISE_AIMED = 0.001
# A wrong size of a target spoils all: up to this share of the budget brings the noise down to this.
_MOST_FOR_TARGET, _TARGET_NOISE = 0.25, 0.035
_UNSHARED = 0.006  # noise of a column's typical size above which one for all comes first


@dataclass(frozen=True)
class MagnitudeSearch(Part):
    """How the centres and scales of some columns are released.

    One round releases the scale of the deviations from the current centre, then the mean of
    the deviations in units of that scale. A last scale follows the last round. Of several
    columns, first one scale for all is released, from the rows' norms. It is the only one where
    the noise hides more; else every column's own is looked for around it.

    Attributes
    ----------
    what : str
        Name of the columns, for a reader of the plan.
    shared : SelectVertex or None
        What releases one scale for all columns.
    select : SelectVertex or None
        What releases the scale of each column.
    presence : Gaussian, Laplace or None
        What releases the share of the records that are not far below a single column's scale.
    ceiling : int
        Largest exponent of a scale where presence is not released.
    center : Gaussian, Laplace or None
        What releases the centres of a round.
    n_columns : int
    n_rounds : int
        Centres that are released.
    n_shared, n_scales : int
        Scales for all columns and for each that are released.
    bound : float
        On the norm (l2, or l1 for pure DP) of a record's clipped deviations.
    share : float
        Of the budget.
    """

    what: str
    shared: SelectVertex | None
    select: SelectVertex | None
    presence: Noise | None
    ceiling: int
    center: Noise | None
    n_columns: int
    n_rounds: int
    n_shared: int
    n_scales: int
    bound: float
    share: float

    @property
    def releases(self) -> tuple[Release, ...]:
        return named_releases(
            (f"shared {self.what} scale", self.shared, self.n_shared),
            (f"{self.what} scales", self.select, self.n_scales * self.n_columns),
            (f"{self.what} presence", self.presence, 1),
            (f"{self.what} centres", self.center, self.n_rounds),
        )

    def run(self, data: SolverData, stream: RandomStream) -> Frame:
        """Release the centres and scales of the columns of X."""
        center, scale = np.zeros(self.n_columns), np.ones(self.n_columns)
        first: Exponents | None = None
        for k in range(self.n_rounds + 1):
            if self.shared is not None or self.select is not None:
                exponents = self._release_exponents(data, center, first, stream)
                first = exponents if first is None else first
                scale = np.ldexp(1.0, exponents)
            if self.center is not None and k < self.n_rounds:
                total = data.sum(_deviation_sum, center, scale, self.bound, self.center.order)
                noisy = self.center.release(total / data.n_samples, stream)
                step = statistics.shrunk_vector(noisy, self.center.variance)
                center = center + scale * np.clip(step, -_CENTER_CLIP, _CENTER_CLIP)
        return Frame(center=center, scale=scale)

    def _release_exponents(
        self, data: SolverData, center: Array, first: Exponents | None, stream: RandomStream
    ) -> Exponents:
        """Scales around a centre; `first` are those of the first round, if it is over."""
        n, around = data.n_samples, first
        if self.shared is not None and (first is None or self.select is None):
            counts = data.sum(_octaves, center, True)
            prior = _LOG_PRIOR if first is None else _near(first[:1], _FINEST)
            around = np.repeat(_select(counts, n, prior, self.shared, stream), self.n_columns)
        if self.select is None:
            assert around is not None
            return around
        counts = data.sum(_octaves, center)
        prior = _LOG_PRIOR if around is None else _near(around, math.inf)
        if first is not None:
            prior = _near(first, _FINEST, _BELOW_CENTRED)
        found = _select(counts, n, prior, self.select, stream)
        if first is not None:
            # squared deviations from a mean are no larger than those from 0
            return np.minimum(found, first)
        if self.presence is None:
            return np.minimum(found, self.ceiling)
        is_seen = _are_present(counts, found, n, self.presence, stream)
        return np.where(is_seen, found, _LOWEST)


@dataclass(frozen=True)
class ReachSearch(Part):
    """How far the values of some columns reach from 0, but for a few records.

    Attributes
    ----------
    what : str
        Name of the columns, for a reader of the plan.
    shared : SelectVertex or None
        What releases one typical size for all columns, around which each column's own is found.
    typical : SelectVertex
        What releases the typical size of each column, that of the values that are not 0.
    far : SelectVertex or None
        What releases the size at which the mean of clipped squares is small, of each column.
    beyond : float
        That mean, an upper bound on the share of the values that are larger.
    presence : Gaussian, Laplace or None
        Of targets: what releases the shares of the records that are not far below their sizes.
    ceiling : int
        Largest exponent of a typical size where presence is not released.
    n_columns : int
    share : float
        Of the budget.
    """

    what: str
    shared: SelectVertex | None
    typical: SelectVertex
    far: SelectVertex | None
    beyond: float
    presence: Noise | None
    ceiling: int
    n_columns: int
    share: float

    @property
    def releases(self) -> tuple[Release, ...]:
        return named_releases(
            (f"shared {self.what} size", self.shared, 1),
            (f"typical {self.what} sizes", self.typical, self.n_columns),
            (f"largest {self.what} sizes", self.far, self.n_columns),
            (f"{self.what} presence", self.presence, 1),
        )

    def run(self, data: SolverData, stream: RandomStream) -> tuple[Array, Array]:
        """The typical sizes of the columns of X, and how far they reach."""
        n, zero, prior = data.n_samples, np.zeros(self.n_columns), _LOG_PRIOR
        if self.shared is not None:
            of_rows = _select(data.sum(_octaves, zero, True), n, prior, self.shared, stream)
            prior = _near(np.repeat(of_rows, self.n_columns), math.inf)
        counts = data.sum(_octaves, zero)
        exponents = _select(counts, n, prior, self.typical, stream)
        if self.presence is None:
            exponents = np.minimum(exponents, self.ceiling)
        typical = np.ldexp(1.0, exponents)
        reach = _TYPICAL * typical
        if self.far is not None:
            gap = _EXPONENTS - exponents[:, None]
            # (of a rare flag all that are too far are alike to the scores)
            prior = np.where((gap >= 0) & (gap <= _FARTHEST), -1.5 * gap, -np.inf)
            far = _select(counts, n, prior, self.far, stream, self.beyond)
            reach = np.maximum(reach, _FAR * np.ldexp(1.0, far))
        if self.presence is not None:
            is_seen = _are_present(counts, exponents, n, self.presence, stream)
            reach = np.where(is_seen, reach, 2.0**_LOWEST)
        return typical, reach


# ------------------------------------------------------------------------------- planning


@dataclass(frozen=True)
class Columns:
    """Public facts of the columns whose magnitudes are looked for."""

    what: str  # their name
    n_samples: int
    n_columns: int
    record_factor: float
    allowance: Allowance  # all of the budget

    @property
    def power(self) -> int:
        """Noise falls with the share of the budget to the power -1 / power."""
        return 1 if self.allowance.kind == "pure" else 2

    @property
    def bound(self) -> float:
        """Bound on the norm of a record's clipped deviations; large, to cause little bias."""
        is_pure = self.allowance.kind == "pure"
        return max(2.0, 1.2 * (self.n_columns if is_pure else math.sqrt(self.n_columns)))

    def selection_noise(self, n_columns: int) -> float:
        """Scale of the noise on a score, if one scale for each of n_columns is released."""
        change = self.record_factor / self.n_samples
        if self.allowance.kind == "pure":
            return change * n_columns / self.allowance.amount
        return change * math.sqrt(n_columns / (8 * self.allowance.amount))

    def selection_share(self, n_columns: int, most: float, largest_noise: float) -> float:
        """Share for scales of that many columns, at most `most`; 0 if they are too noisy."""
        at_all = self.selection_noise(n_columns)
        share = min(most, (at_all / _NOISE_AIMED) ** self.power)
        return share if at_all / share ** (1 / self.power) <= largest_noise else 0.0

    def plan_select(self, share: float, count: int, factor: float | None = None) -> SelectVertex:
        """Mechanism for that many scales, which have this share of the budget together."""
        change = octave_score(self.n_samples, factor or self.record_factor)
        return SelectVertex.calibrate(change, self.allowance.share(share), count)

    def plan_presence(self, most: float) -> tuple[Noise | None, float]:
        """Mechanism for the shares of present records, and its share; None if above `most`."""
        d, kind = self.n_columns, additive_noise(self.allowance)
        several = d ** (1 / kind.order)
        # a record adds 0 or 1 to each count, under both relations
        whole = mean_noise(self.n_samples, self.record_factor, self.allowance)
        noise = several * whole / self.record_factor
        share = max(_LEAST_FOR_PRESENCE, (_EVIDENCE * noise / _MOST_PRESENCE) ** self.power)
        if share > most:
            return None, 0.0
        change = several * statistics.mean_of_numbers(self.n_samples, 1, 1.0)
        return kind.calibrate(change, self.allowance.share(share), dimension=d), share

    def search(
        self,
        n_rounds: int,
        centers: float,
        shared: float,
        scales: float,
        presence: Noise | None = None,
        ceiling: int = _HIGHEST,
        spent: float = 0.0,
    ) -> MagnitudeSearch:
        """The search in so many rounds.

        All centres, all shared scales and all others have these shares of the budget, beside what
        is spent already. Where scales of each column are released, one is shared, else each is.
        """
        d, center = self.n_columns, None
        n_scales = n_rounds + 1 if scales else 0
        n_shared = (1 if scales else n_rounds + 1) if shared else 0
        if n_rounds:
            change = self.bound * statistics.mean_of_numbers(self.n_samples, d, self.record_factor)
            part = self.allowance.share(centers)
            center = additive_noise(part).calibrate(change, part, n_rounds, d)
        one = self.plan_select(shared, n_shared) if shared else None
        select = self.plan_select(scales, n_scales * d) if scales else None
        mechanisms, sizes = (
            (one, select, presence, ceiling, center),
            (d, n_rounds, n_shared, n_scales),
        )
        spent += shared + scales + centers
        return MagnitudeSearch(self.what, *mechanisms, *sizes, self.bound, spent)


def mean_noise(n_samples: int, record_factor: float, allowance: Allowance, count: int = 1) -> float:
    """Standard deviation of the noise in the mean of so many means of numbers in [-1, 1]."""
    change = record_factor / n_samples
    if allowance.kind == "pure":
        return change * math.sqrt(2 * count) / allowance.amount
    return change / math.sqrt(2 * allowance.amount)


def plan_reach(columns: Columns, most: float) -> ReachSearch:
    """The search for the reach of columns, with at most this share of the allowance.

    That of few targets has up to `_MOST_FOR_TARGET`, and half of it for presence.
    """
    d, is_target = columns.n_columns, columns.what == "target"
    shared, presence, spent = None, None, 0.0
    at_all, far, beyond = columns.selection_noise(d), None, 0.5
    # under zero-out, other records than those of the median change by up to 1 - q, on both sides
    twice = 2 / columns.record_factor * at_all
    if is_target:
        most = max(most, min(_MOST_FOR_TARGET, (at_all / _TARGET_NOISE) ** 2))
        presence, spent = columns.plan_presence(_MOST_FOR_PRESENCE * most)
    if _CLEAR_SHARE * twice / math.sqrt(most / 2) < _FEW:
        most /= 2
        share = min(most, (twice / _FAR_NOISE_AIMED) ** 2)
        spent += share
        far, beyond = columns.plan_select(share, d, 2.0), _CLEAR_SHARE * twice / math.sqrt(share)
    share = min(most, (at_all / _NOISE_AIMED) ** 2)
    spent += share
    # targets of one table are few, and may be of very different sizes
    if d > 1 and not is_target and at_all / math.sqrt(share) > _UNSHARED:
        shared = columns.plan_select(share / 6, 1)
        share *= 5 / 6
    typical = columns.plan_select(share, d)
    ceiling = 0 if is_target and d == 1 else _HIGHEST
    return ReachSearch(columns.what, shared, typical, far, beyond, presence, ceiling, d, spent)


def plan_search(
    columns: Columns,
    *,
    private_center: bool,
    private_scale: bool,
    largest_share: float,
    largest_noise: float,
) -> MagnitudeSearch | None:
    """The search within `largest_share` of the allowance, None if it is too noisy.

    That is where the scale of a score's noise, scores being within [-1/2, 0], is above
    `largest_noise`; inf accepts any noise, in centres as well.
    """
    presence, spent, is_single = None, 0.0, columns.n_columns == 1 and private_scale
    if is_single:
        presence, spent = columns.plan_presence(_MOST_FOR_PRESENCE * largest_share)
    part = columns.allowance.share(largest_share / 6)
    noise = columns.bound * mean_noise(columns.n_samples, columns.record_factor, part)
    may_center = private_center and (math.isinf(largest_noise) or noise <= _USELESS_CENTER)
    most_rounds = (_MOST_ROUNDS if is_single else 1) if may_center else 0
    for n_rounds in range(most_rounds, -1, -1):
        noise = min(largest_noise, _SURE) if n_rounds > 1 else largest_noise
        shares = _shares(columns, private_scale, largest_share - spent, n_rounds, noise)
        if shares is not None:
            return columns.search(*shares, presence, 0 if is_single else _HIGHEST, spent)
    return None


def _shares(
    columns: Columns, private_scale: bool, largest: float, n_rounds: int, largest_noise: float
) -> tuple[int, float, float, float] | None:
    """Rounds, and shares for centres, shared scales and others; None above `largest_noise`.

    One round becomes two where they are cheap.
    """
    center = n_rounds * largest / 6
    if not private_scale:
        return n_rounds, center, 0.0, 0.0
    alone, shared, unclear = 0.0, 0.0, largest_noise
    if columns.n_columns > 1:
        most = (largest - center) / (n_rounds + 1)
        alone = columns.selection_share(1, most, largest_noise)
        if not alone:
            return None
        enough = (columns.selection_noise(1) / largest_noise) ** columns.power
        shared, unclear = min(alone, max(enough, (largest - center) / 8)), _UNCLEAR
    left = largest - center - shared
    scales = columns.selection_share(columns.n_columns, left / (n_rounds + 1), unclear)
    if not scales:
        return (n_rounds, center, (n_rounds + 1) * alone, 0.0) if alone else None
    scales = max(scales, left / 20)
    is_cheap = scales <= _SECOND_CENTER_SHARE and 3 * scales + center <= left
    if n_rounds == 1 and is_cheap:
        n_rounds, center = 2, 2 * center
    return n_rounds, center, shared, (n_rounds + 1) * scales


# -------------------------------------------------------------------------------- running


def _octaves(data: SolverData, center: Array, of_sizes: bool = False) -> Counts:
    """Counts of octaves of abs(x - center), or as one column of row sizes, shape (d, grid + 2)."""
    from ..._kernels.bounded_sums import octave_counts

    rows = data.rows
    if of_sizes:
        rows, center = _sizes(rows, center), np.zeros(1)
    counts = np.zeros((rows.n_columns, _EXPONENTS.size + 1), dtype=np.int64)
    X = dense_or_stored(rows.X)
    octave_counts(*X, rows.present(), center, _LOWEST, counts)
    return counts


def _sizes(rows: Rows, center: Array) -> Rows:
    """Root mean squares of the rows' deviations, as a table of one column."""
    sizes = np.empty((rows.n_samples, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for part in slices(rows.n_samples, rows.chunk):
            V = rows.dense(part) - center
            sizes[part, 0] = np.linalg.norm(V, axis=1) / math.sqrt(rows.n_columns)
    return Rows(sizes, False, rows.scale)


def _near(around: Exponents, reach: float, below: Array = _SLOPE_BELOW) -> Array:
    """A prior around an exponent for each column, none of the candidates `reach` below it."""
    gap = _EXPONENTS - around[:, None]
    fall = np.where(gap >= 0, _LOG_SPREAD * gap, below[np.maximum(-gap, 0)])
    return np.where(gap >= -reach, -fall, -np.inf)


def _select(
    counts: Counts, n: int, priors: Array, noise: SelectVertex, stream: RandomStream, q: float = 0.5
) -> Exponents:
    """The exponent of each column's scale.

    The score of 2^e is -abs(sum of (g - q)) / n over those of the n records with a deviation, where
    g is a squared deviation over 4^e (by its octave), at most 1. It is highest at the scale where
    the mean of g is q. Candidates are those whose prior is finite.
    """
    scores = -np.abs(counts @ (_CLIPPED_SQUARE - q)) / n
    chosen = np.empty(len(counts), dtype=np.int64)
    for j, (score, prior) in enumerate(zip(*np.broadcast_arrays(scores, priors), strict=True)):
        candidates = np.flatnonzero(np.isfinite(prior))  # public: what was released before
        weighted = noise.with_prior(score[candidates], prior[candidates])
        chosen[j] = _EXPONENTS[candidates][noise.release(weighted, stream)]
    return chosen


def _are_present(
    counts: Counts, exponents: Exponents, n_samples: int, mechanism: Noise, stream: RandomStream
) -> Flags:
    """Whether records that are not far below a column's scale show in the noise.

    Where (nearly) all values of a column are 0, every scale is as good as any other. Far too large
    ones would blow up the noise of the whole model.
    """
    is_above = np.arange(counts.shape[1]) >= (exponents - _LOWEST - _FAR_BELOW)[:, None]
    noisy = mechanism.release((counts * is_above).sum(axis=1) / n_samples, stream)
    return np.asarray(noisy > _EVIDENCE * math.sqrt(mechanism.variance))


def _deviation_sum(
    data: SolverData, center: Array, scale: Array, bound: float, order: float
) -> Array:
    """Sum of the clipped deviations over the scales, over records of bounded norm."""
    present, rows = data.rows.present(), data.rows
    total = np.zeros(rows.n_columns)
    for part in slices(rows.n_samples, rows.chunk):
        with np.errstate(over="ignore"):
            V = np.clip((rows.dense(part) - center) / scale, -_CENTER_CLIP, _CENTER_CLIP)
        # for the rounding of the norms and of the products that follow
        norms = np.linalg.norm(V, order, axis=1)
        norms *= 1 + 2 * (rows.n_columns + 8) * UNIT_ROUNDOFF
        weights = np.minimum(1.0, bound / np.maximum(norms, 1e-300)) * present[part]
        total += weights @ V
    return total


def targets_as_rows(data: SolverData) -> SolverData:
    """The targets in the place of the features."""
    columns = data.y if data.y.ndim == 2 else data.y[:, None]
    return SolverData(Rows(columns, False, data.rows.scale), data.y)


# ------------------------------------------------------------------------------ sensitivities


def octave_score(n_samples: int, record_factor: float) -> float:
    """Range of the change of the scores of a magnitude's candidates, with a prior (section 7.4).

    For q = 1/2; the factor is 2 under both relations for others. Float scores of both neighbours
    err by so many roundings of numbers below 1.
    """
    return (record_factor / n_samples + 4 * _FLOAT_TERMS * UNIT_ROUNDOFF) * PRIOR_ROOM
