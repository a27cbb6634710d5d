r"""Private scales and centres of columns.

Without bounds, columns are put into released units: x becomes (x - center) / scale, where
both are released by mechanisms. Scales are powers of two, chosen by the exponential mechanism
from a public grid, one for all columns and, where the noise allows it, one for each; centres
are means of values clipped in units of the scales. Sensitivities: doc/privacy, section 7.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..._kernels.arguments import Compressed
from ...data.compressed import value_parts, with_values
from ...data.rows import Rows, make_rows
from ...data.summation import UNIT_ROUNDOFF, chunk_rows
from ...mechanisms import Gaussian, Laplace, Release, SelectVertex, additive_noise
from ...privacy.budget import Allowance
from ...randomness.stream import RandomStream
from .. import sensitivity
from ..base import Part, SolverData
from ..first_releases import shrunk_vector

__all__ = ["Columns", "MagnitudeSearch", "Magnitudes", "plan_search", "scale_rows"]

Array = NDArray[np.float64]
Exponents = NDArray[np.int64]

_LOWEST, _HIGHEST = -64, 64  # exponents of the grid of scales
_EXPONENTS = np.arange(_LOWEST, _HIGHEST + 1)
_FINEST = 16  # no spread below 2^-16 of the column's magnitude is a candidate
_BOX = 64.0  # scaled values are clipped to [-64, 64], so that all products are finite
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
# Per octave above and below: a scale that is too small blows up what noise adds to predictions.
_LOG_SPREAD, _LOG_SPREAD_BELOW = 0.7, 1.5

# Selections get the share of the budget that brings their noise down to _NOISE_AIMED, but at
# most what is allowed. A second round follows where that share is at most
# _SECOND_CENTER_SHARE.
_NOISE_AIMED = 0.004
_SECOND_CENTER_SHARE = 0.04
# Scale of the noise on a score above which all columns have one scale: that of a column which is
# far off then has more than e^-3 times the weight of the best.
_UNCLEAR = 1 / 6
# A single column's scale counts as chosen by noise unless the share of the records in its octave
# and above it exceeds 0 by _EVIDENCE standard deviations. Where even a share of _MOST_PRESENCE
# would not, it is not released, and the scale is at most 1.
_EVIDENCE = 4.0
_MOST_PRESENCE = 0.75
_PRESENCE_SHARE = 0.5  # of the search's share of the budget
_USELESS_CENTER = 0.5  # a centre with more noise than this, in units of the scale


class Magnitudes(NamedTuple):
    """Released centres and scales of the columns, shape (n_features,) each."""

    center: Array
    scale: Array


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
    presence: Gaussian | Laplace | None
    ceiling: int
    center: Gaussian | Laplace | None
    n_columns: int
    n_rounds: int
    n_shared: int
    n_scales: int
    bound: float
    share: float

    @property
    def releases(self) -> tuple[Release, ...]:
        named = (
            (f"shared {self.what} scale", self.shared, self.n_shared),
            (f"{self.what} scales", self.select, self.n_scales * self.n_columns),
            (f"{self.what} presence", self.presence, 1),
            (f"{self.what} centres", self.center, self.n_rounds),
        )
        return tuple(
            Release(name, mechanism, count)
            for name, mechanism, count in named
            if mechanism is not None and count > 0
        )

    def run(self, data: SolverData, stream: RandomStream) -> Magnitudes:
        """Release the centres and scales of the columns of X."""
        found = Magnitudes(np.zeros(self.n_columns), np.ones(self.n_columns))
        first: Exponents | None = None
        for k in range(self.n_rounds + 1):
            if self.shared is not None or self.select is not None:
                exponents = self._release_exponents(data, found.center, first, stream)
                first = exponents if first is None else first
                found = Magnitudes(found.center, np.ldexp(1.0, exponents))
            if self.center is not None and k < self.n_rounds:
                total = data.sum(_deviation_sum, found, self.bound, self.center.order)
                deviation = total / data.n_samples
                step = shrunk_vector(self.center.release(deviation, stream), self.center.variance)
                step = np.clip(step, -_CENTER_CLIP, _CENTER_CLIP)
                found = Magnitudes(found.center + found.scale * step, found.scale)
        return found

    def _release_exponents(
        self, data: SolverData, center: Array, first: Exponents | None, stream: RandomStream
    ) -> Exponents:
        """Scales around a centre; `first` are those of the first round, if it is over."""
        n, is_first = data.n_samples, first is None
        if self.shared is not None and (is_first or self.select is None):
            counts = data.sum(_size_octaves, center)
            before = None if first is None else first[:1]
            shared = _select(counts, n, _priors(before, 1), self.shared, stream)
            first = np.repeat(shared, self.n_columns)
        if self.select is None:
            assert first is not None
            return first
        counts = data.sum(_octaves, center)
        reach = math.inf if is_first else _FINEST
        found = _select(counts, n, _priors(first, self.n_columns, reach), self.select, stream)
        if is_first:
            return self._supported(counts, n, found, stream)
        assert first is not None
        # squared deviations from a mean are no larger than those from 0
        return np.minimum(found, first)

    def _supported(
        self, counts: NDArray[np.int64], n: int, found: Exponents, stream: RandomStream
    ) -> Exponents:
        """A single column's scale, unless noise chose it: then as small as can be.

        Where (nearly) all values are 0, every scale is as good as any other. Far too large
        ones would blow up the noise of the whole model.
        """
        if self.presence is None:
            return np.minimum(found, self.ceiling)
        least = int(found[0]) - _LOWEST
        share = counts[0, max(0, least) :].sum() / n
        noisy = self.presence.release(np.array([share]), stream)[0]
        is_seen = noisy > _EVIDENCE * math.sqrt(self.presence.variance)
        return found if is_seen else np.full_like(found, _LOWEST)


# ------------------------------------------------------------------------------- planning


@dataclass(frozen=True)
class Columns:
    """Public facts of the columns whose magnitudes are looked for.

    Attributes
    ----------
    what : str
        Their name.
    n_samples, n_columns : int
    record_factor : {1.0, 2.0}
    allowance : Allowance
        All of the budget.
    nominal : Allowance
        The same before anything is gained by how few selections compose; it decides what is
        released, so that a little less noise does not change that.
    """

    what: str
    n_samples: int
    n_columns: int
    record_factor: float
    allowance: Allowance
    nominal: Allowance

    @property
    def power(self) -> int:
        """Noise falls with the share of the budget to the power -1 / power."""
        return 1 if self.allowance.kind == "pure" else 2

    def selection_noise(self, n_columns: int) -> float:
        """Scale of the noise on a score, if one scale for each of n_columns is released."""
        change = self.record_factor / self.n_samples
        if self.nominal.kind == "pure":
            return change * n_columns / self.nominal.amount
        return change * math.sqrt(n_columns / (8 * self.nominal.amount))

    def selection_share(self, n_columns: int, most: float, largest_noise: float) -> float | None:
        """Share for scales of that many columns, at most `most`; None if they are too noisy."""
        at_all = self.selection_noise(n_columns)
        share = min(most, (at_all / _NOISE_AIMED) ** self.power)
        return share if at_all / share ** (1 / self.power) <= largest_noise else None

    @property
    def bound(self) -> float:
        """Bound on the norm of a record's clipped deviations; large, to cause little bias."""
        is_pure = self.allowance.kind == "pure"
        return max(2.0, 1.2 * (self.n_columns if is_pure else math.sqrt(self.n_columns)))

    def mean_noise(self, change: float, part: Allowance) -> float:
        """Standard deviation of the noise in a mean of numbers."""
        change *= self.record_factor / self.n_samples
        if part.kind == "pure":
            return math.sqrt(2) * change / part.amount
        return change / math.sqrt(2 * part.amount)

    def plan_select(self, share: float, count: int) -> SelectVertex:
        """Mechanism for that many scales, which have this share of the budget together."""
        change = sensitivity.octave_score(self.n_samples, self.record_factor, _FLOAT_TERMS)
        return SelectVertex.calibrate(change, self.allowance.share(share), count)

    def plan_center(self, share: float, n_rounds: int) -> Gaussian | Laplace:
        """Mechanism for the centres of all rounds, which have this share of the budget."""
        change = self.bound * sensitivity.mean_of_numbers(
            self.n_samples, self.n_columns, self.record_factor
        )
        part = self.allowance.share(share)
        return additive_noise(part).calibrate(change, part, n_rounds, self.n_columns)

    def plan_presence(self, share: float) -> Gaussian | Laplace | None:
        """Mechanism for the share of records that are present; None if it could not show."""
        part = self.allowance.share(share)
        # a record adds 0 or 1 to a count, under both relations
        change = sensitivity.mean_of_numbers(self.n_samples, 1, 1.0)
        noise = self.mean_noise(1.0, self.nominal.share(share)) / self.record_factor
        is_hopeless = _EVIDENCE * noise > _MOST_PRESENCE
        return None if is_hopeless else additive_noise(part).calibrate(change, part)


@dataclass(frozen=True)
class _Shares:
    """What a search spends: on each shared scale, on each round's scales, on each centre."""

    n_rounds: int
    n_shared: int
    shared: float
    scales: float
    center: float

    @property
    def n_scales(self) -> int:
        return self.n_rounds + 1 if self.scales else 0


def plan_search(
    columns: Columns, *,
    private_center: bool, private_scale: bool, largest_share: float, largest_noise: float,
) -> MagnitudeSearch | None:  # fmt: skip
    """The search within `largest_share` of the allowance, None if it is too noisy.

    Parameters
    ----------
    columns : Columns
    private_center, private_scale : bool
        What is to be released.
    largest_share : float
    largest_noise : float
        Scale of a score's noise, scores being within [-1/2, 0], above which it is too noisy;
        inf accepts any noise, in centres as well.
    """
    is_single = columns.n_columns == 1 and private_scale
    presence = columns.plan_presence(_PRESENCE_SHARE * largest_share) if is_single else None
    spent = 0.0 if presence is None else _PRESENCE_SHARE * largest_share
    shares = None
    if private_center:
        noise = columns.mean_noise(columns.bound, columns.nominal.share(largest_share / 6))
        if math.isinf(largest_noise) or noise <= _USELESS_CENTER:
            shares = _shares(columns, private_scale, largest_share - spent, 1, largest_noise)
    if shares is None:
        private_center = False
        shares = _shares(columns, private_scale, largest_share - spent, 0, largest_noise)
    if shares is None:
        return None
    shared, scales, center = (
        shares.n_shared * shares.shared,
        shares.n_scales * shares.scales,
        shares.n_rounds * shares.center,
    )
    n_selected = shares.n_scales * columns.n_columns
    return MagnitudeSearch(
        columns.what,
        columns.plan_select(shared, shares.n_shared) if shared else None,
        columns.plan_select(scales, n_selected) if scales else None,
        presence,
        0 if is_single else _HIGHEST,
        columns.plan_center(center, shares.n_rounds) if private_center else None,
        columns.n_columns,
        shares.n_rounds,
        shares.n_shared,
        shares.n_scales,
        columns.bound,
        shared + scales + center + spent,
    )


def _shares(
    columns: Columns, private_scale: bool, largest: float, n_rounds: int, largest_noise: float
) -> _Shares | None:
    """None if the noise is above `largest_noise`. One round becomes two where they are cheap."""
    center = largest / 6 if n_rounds else 0.0
    if not private_scale:
        return _Shares(n_rounds, 0, 0.0, 0.0, center)
    alone, shared, unclear = None, 0.0, largest_noise
    if columns.n_columns > 1:
        most = (largest - center) / (n_rounds + 1)
        alone = columns.selection_share(1, most, largest_noise)
        if alone is None:
            return None
        enough = (columns.selection_noise(1) / largest_noise) ** columns.power
        shared, unclear = min(alone, max(enough, (largest - center) / 8)), _UNCLEAR
    left = largest - center - shared
    scales = columns.selection_share(columns.n_columns, left / (n_rounds + 1), unclear)
    if scales is None:
        return _Shares(n_rounds, n_rounds + 1, alone, 0.0, center) if alone else None
    scales = max(scales, left / 20)
    is_cheap = scales <= _SECOND_CENTER_SHARE and 3 * scales + center <= left
    n_rounds += 1 if n_rounds and is_cheap else 0
    return _Shares(n_rounds, 1 if shared else 0, shared, scales, center)


# -------------------------------------------------------------------------------- running


def _octaves(data: SolverData, center: Array) -> NDArray[np.int64]:
    """Counts of the octaves of abs(x - center) by column, shape (d, grid + 2)."""
    return _octave_counts(data.rows, center)


def _size_octaves(data: SolverData, center: Array) -> NDArray[np.int64]:
    """The same of the sizes of the rows, as one column."""
    return _octave_counts(_sizes(data.rows, center), np.zeros(1))


def _octave_counts(rows: Rows, center: Array) -> NDArray[np.int64]:
    from ..._kernels.bounded_sums import csr_octave_counts, octave_counts

    counts = np.zeros((rows.n_columns, _EXPONENTS.size + 1), dtype=np.int64)
    X, present = rows.X, rows.present()
    if isinstance(X, np.ndarray):
        octave_counts(X, present, center, _LOWEST, counts)
    else:
        csr_octave_counts(Compressed.of(X.tocsr()), present, center, _LOWEST, counts)
    return counts


def _influence() -> Array:
    """What a record adds to a score, g - 1/2, by its octave (rows) and scale (columns)."""
    octaves = np.arange(_LOWEST, _HIGHEST + 2)
    gap = octaves[:, None] - _EXPONENTS[None, :]
    within = _OCTAVE_MEAN * 4.0 ** np.minimum(gap, 0)
    return np.where(gap > 0, 1.0, within) - 0.5


def _sizes(rows: Rows, center: Array) -> Rows:
    """Root mean squares of the rows' deviations, as a table of one column."""
    rows = rows.row_major()
    sizes = np.empty((rows.n_samples, 1))
    step = chunk_rows(rows.n_samples, rows.n_columns)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, rows.n_samples, step):
            part = slice(first, first + step)
            V = rows.dense(part) - center
            sizes[part, 0] = np.linalg.norm(V, axis=1) / math.sqrt(rows.n_columns)
    return make_rows(sizes, False, rows.scale)


def _priors(around: Exponents | None, n_columns: int, reach: float = _FINEST) -> Array:
    """Logarithms of the candidates' prior weights by column, -inf for what is none.

    Without released exponents to look around, magnitudes near 1 are more likely.
    """
    if around is None:
        return np.tile(_LOG_PRIOR, (n_columns, 1))
    gap = _EXPONENTS - around[:, None]
    prior = np.minimum(-_LOG_SPREAD * gap, _LOG_SPREAD_BELOW * gap)
    return np.where(gap >= -reach, prior, -math.inf)


def _select(
    counts: NDArray[np.int64], n_samples: int, priors: Array,
    mechanism: SelectVertex, stream: RandomStream,
) -> Exponents:  # fmt: skip
    """The exponent of each column's scale.

    The score of 2^e is -abs(sum of (g - 1/2)) / n over the records with a deviation, where g
    is a squared deviation over 4^e (by its octave), at most 1. It is highest at the scale
    where the mean of g is 1/2.
    """
    scores = -np.abs(counts @ _influence()) / n_samples
    chosen = np.empty(len(counts), dtype=np.int64)
    for j, (score, prior) in enumerate(zip(scores, priors, strict=True)):
        candidates = np.flatnonzero(np.isfinite(prior))  # public: what was released before
        weighted = mechanism.with_prior(score[candidates], prior[candidates])
        chosen[j] = _EXPONENTS[candidates][mechanism.release(weighted, stream)]
    return chosen


def _deviation_sum(data: SolverData, found: Magnitudes, bound: float, order: float) -> Array:
    """Sum of the clipped deviations over the scales, over records of bounded norm."""
    present, rows = data.rows.present(), data.rows.row_major()
    total = np.zeros(rows.n_columns)
    rows_per_chunk = chunk_rows(rows.n_samples, rows.n_columns)
    for first in range(0, rows.n_samples, rows_per_chunk):
        part = slice(first, first + rows_per_chunk)
        V = _scaled(rows.dense(part), found, _CENTER_CLIP)
        # for the rounding of the norms and of the products that follow
        norms = np.linalg.norm(V, order, axis=1)
        norms *= 1 + 2 * (rows.n_columns + 8) * UNIT_ROUNDOFF
        weights = np.minimum(1.0, bound / np.maximum(norms, 1e-300)) * present[part]
        total += weights @ V
    return total


def _scaled(X: Array, found: Magnitudes, bound: float) -> Array:
    """(X - center) / scale, clipped to [-bound, bound], in float64."""
    with np.errstate(over="ignore"):
        V = (X - found.center) / found.scale
    return np.clip(V, -bound, bound)


def scale_rows(rows: Rows, found: Magnitudes) -> Rows:
    """The rows in the released units, clipped to a wide box: dense or CSR, a copy.

    Sparse rows stay so if no centre was released.
    """
    if sparse.issparse(rows.X) and not np.any(found.center):
        X = rows.X.tocsr()
        data = np.empty(X.nnz)
        with np.errstate(over="ignore"):
            for part in value_parts(X):
                units = found.scale[X.indices[part]]
                np.clip(X.data[part] / units, -_BOX, _BOX, out=data[part])
        return make_rows(with_values(X, data), rows.has_intercept, rows.scale, rows.sample_weight)
    rows = rows.row_major()
    out = np.empty(rows.X.shape, dtype=np.float64 if sparse.issparse(rows.X) else rows.X.dtype)
    step = chunk_rows(rows.n_samples, rows.n_columns)
    for first in range(0, rows.n_samples, step):
        part = slice(first, first + step)
        out[part] = _scaled(rows.dense(part), found, _BOX)
    return make_rows(out, rows.has_intercept, rows.scale, rows.sample_weight)
