r"""Private scales and centres of columns.

Without bounds, columns are put into released units: x becomes (x - center) / scale, where
both are released by mechanisms. Scales are powers of two, chosen for each column by the
exponential mechanism from a public grid; centres are means of values clipped in units of the
scales. Sensitivities: doc/privacy, section 7.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..._kernels.arguments import Compressed
from ...data.rows import Rows, make_rows
from ...data.summation import UNIT_ROUNDOFF, chunk_rows
from ...mechanisms import Gaussian, Laplace, Release, SelectVertex, additive_noise
from ...privacy.budget import Allowance
from ...randomness.stream import RandomStream
from .. import sensitivity
from ..base import Part
from ..first_releases import shrunk_vector

__all__ = ["Columns", "MagnitudeSearch", "Magnitudes", "plan_search", "scale_rows"]

Array = NDArray[np.float64]

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
_LOG_SPREAD = 1.0  # per octave
_LARGEST_PRIOR = 200.0  # above every prior, with room for the rounding of its sum

# Selections get the share of the budget that brings their noise down to _NOISE_AIMED, but at
# most what is allowed. A second round follows where that share is at most
# _SECOND_CENTER_SHARE.
_NOISE_AIMED = 0.01
_SECOND_CENTER_SHARE = 0.04
_USELESS_CENTER = 0.25  # a centre with more noise than this, in units of the scale


class Magnitudes(NamedTuple):
    """Released centres and scales of the columns, shape (n_features,) each."""

    center: Array
    scale: Array


@dataclass(frozen=True)
class MagnitudeSearch(Part):
    """How the centres and scales of some columns are released.

    One round releases the scale of the deviations from the current centre, then the mean of
    the deviations in units of that scale. A last scale follows the last round.

    Attributes
    ----------
    what : str
        Name of the columns, for a reader of the plan.
    select : SelectVertex or None
        What releases each scale.
    center : Gaussian, Laplace or None
        What releases the centres of a round.
    n_columns : int
    n_rounds : int
        Centres that are released.
    n_scales : int
        Scales that are released, 0 or n_rounds + 1.
    bound : float
        On the norm (l2, or l1 for pure DP) of a record's clipped deviations.
    share : float
        Of the budget.
    """

    what: str
    select: SelectVertex | None
    center: Gaussian | Laplace | None
    n_columns: int
    n_rounds: int
    n_scales: int
    bound: float
    share: float

    @property
    def releases(self) -> tuple[Release, ...]:
        named = (
            (f"{self.what} scales", self.select, self.n_scales * self.n_columns),
            (f"{self.what} centres", self.center, self.n_rounds),
        )
        return tuple(
            Release(name, mechanism, count)
            for name, mechanism, count in named
            if mechanism is not None and count > 0
        )

    def run(self, rows: Rows, stream: RandomStream) -> Magnitudes:
        """Release the centres and scales of the columns of X."""
        d = rows.n_columns
        found = Magnitudes(np.zeros(d), np.ones(d))
        magnitude: NDArray[np.int64] | None = None
        for k in range(self.n_rounds + 1):
            if self.select is not None:
                counts = _octaves(rows, found.center)
                exponents = _select(counts, rows.n_samples, magnitude, self.select, stream)
                magnitude = exponents if magnitude is None else magnitude
                found = Magnitudes(found.center, np.ldexp(1.0, exponents))
            if self.center is not None and k < self.n_rounds:
                deviation = _mean_deviation(rows, found, self.bound, self.center.order)
                step = shrunk_vector(self.center.release(deviation, stream), self.center.variance)
                step = np.clip(step, -_CENTER_CLIP, _CENTER_CLIP)
                found = Magnitudes(found.center + found.scale * step, found.scale)
        return found


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
    """

    what: str
    n_samples: int
    n_columns: int
    record_factor: float
    allowance: Allowance

    @property
    def selection_noise(self) -> float:
        """Scale of the noise on a score, if one scale for each column is released."""
        change = self.record_factor / self.n_samples
        if self.allowance.kind == "pure":
            return change * self.n_columns / self.allowance.amount
        return change * math.sqrt(self.n_columns / (8 * self.allowance.amount))

    @property
    def bound(self) -> float:
        """Bound on the norm of a record's clipped deviations; large, to cause little bias."""
        is_pure = self.allowance.kind == "pure"
        return max(2.0, 1.2 * (self.n_columns if is_pure else math.sqrt(self.n_columns)))

    def center_noise(self, part: Allowance) -> float:
        """Standard deviation of a centre's noise, in units of the scale."""
        change = self.bound * self.record_factor / self.n_samples
        if part.kind == "pure":
            return math.sqrt(2) * change / part.amount
        return change / math.sqrt(2 * part.amount)

    def shares(
        self, private_scale: bool, largest_share: float, n_rounds: int, largest_noise: float
    ) -> tuple[int, float, float] | None:
        """Rounds, and the shares of each selection and each centre.

        None if the noise is above `largest_noise`. One round becomes two where they are cheap.
        """
        center_share = largest_share / 6 if n_rounds else 0.0
        if not private_scale:
            return n_rounds, 0.0, center_share
        at_all = self.selection_noise
        power = 1 if self.allowance.kind == "pure" else 2
        wanted = (at_all / _NOISE_AIMED) ** power
        share = min(wanted, (largest_share - center_share) / (n_rounds + 1))
        if at_all / share ** (1 / power) > largest_noise:
            return None
        share = max(share, largest_share / 20)
        is_cheap = share <= _SECOND_CENTER_SHARE and 3 * share + 2 * center_share <= largest_share
        return n_rounds + (1 if n_rounds and is_cheap else 0), share, center_share

    def plan_select(self, share: float, n_scales: int) -> SelectVertex:
        """Mechanism for all scales, each with this share of the budget."""
        part, count = self.allowance.share(n_scales * share), n_scales * self.n_columns
        facts = self.n_samples, self.record_factor, _FLOAT_TERMS
        # a first one without the prior, which is stated in units of the noise
        select = SelectVertex.calibrate(sensitivity.octave_score(*facts, 0.0), part, count)
        change = sensitivity.octave_score(*facts, _LARGEST_PRIOR * select.scale)
        return SelectVertex.calibrate(change, part, count)

    def plan_center(self, share: float, n_rounds: int) -> Gaussian | Laplace:
        """Mechanism for the centres of all rounds, each with this share of the budget."""
        change = self.bound * sensitivity.mean_of_numbers(
            self.n_samples, self.n_columns, self.record_factor
        )
        part = self.allowance.share(n_rounds * share)
        return additive_noise(part).calibrate(change, part, n_rounds, self.n_columns)


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
    shares = None
    if private_center:
        part = columns.allowance.share(largest_share / 6)
        if math.isinf(largest_noise) or columns.center_noise(part) <= _USELESS_CENTER:
            shares = columns.shares(private_scale, largest_share, 1, largest_noise)
    if shares is None:
        private_center = False
        shares = columns.shares(private_scale, largest_share, 0, largest_noise)
    if shares is None:
        return None
    n_rounds, selection_share, center_share = shares
    n_scales = n_rounds + 1 if private_scale else 0
    return MagnitudeSearch(
        columns.what,
        columns.plan_select(selection_share, n_scales) if private_scale else None,
        columns.plan_center(center_share, n_rounds) if private_center else None,
        columns.n_columns,
        n_rounds,
        n_scales,
        columns.bound,
        n_scales * selection_share + n_rounds * center_share,
    )


# -------------------------------------------------------------------------------- running


def _octaves(rows: Rows, center: Array) -> NDArray[np.int64]:
    """Counts of the octaves of abs(x - center) by column, shape (d, grid + 2)."""
    from ..._kernels.bounded_sums import csr_octave_counts, octave_counts

    counts = np.zeros((rows.n_columns, _EXPONENTS.size + 1), dtype=np.int64)
    X, present = rows.X, _present(rows)
    if isinstance(X, np.ndarray):
        octave_counts(X, present, center, _LOWEST, counts)
    else:
        csr_octave_counts(Compressed.of(X.tocsr()), present, center, _LOWEST, counts)
    return counts


def _present(rows: Rows) -> NDArray[np.bool_]:
    return np.ones(rows.n_samples, dtype=bool) if rows.scale is None else rows.scale > 0


def _influence() -> Array:
    """What a record adds to a score, g - 1/2, by its octave (rows) and scale (columns)."""
    octaves = np.arange(_LOWEST, _HIGHEST + 2)
    gap = octaves[:, None] - _EXPONENTS[None, :]
    within = _OCTAVE_MEAN * 4.0 ** np.minimum(gap, 0)
    return np.where(gap > 0, 1.0, within) - 0.5


def _select(
    counts: NDArray[np.int64], n_samples: int, magnitude: NDArray[np.int64] | None,
    mechanism: SelectVertex, stream: RandomStream,
) -> NDArray[np.int64]:  # fmt: skip
    """The exponent of each column's scale.

    The score of 2^e is -abs(sum of (g - 1/2)) / n over the records with a deviation, where g
    is a squared deviation over 4^e (by its octave), at most 1. It is highest at the scale
    where the mean of g is 1/2.
    """
    scores = -np.abs(counts @ _influence()) / n_samples
    chosen = np.empty(len(counts), dtype=np.int64)
    for j, score in enumerate(scores):
        if magnitude is None:
            candidates, prior = slice(None), _LOG_PRIOR
        else:
            # public, since the magnitude was released
            candidates = slice(max(0, int(magnitude[j]) - _FINEST - _LOWEST), None)
            prior = -_LOG_SPREAD * np.abs(_EXPONENTS[candidates] - magnitude[j])
        place = mechanism.release(score[candidates] + mechanism.scale * prior, stream)
        chosen[j] = _EXPONENTS[candidates][place]
    return chosen


def _mean_deviation(rows: Rows, found: Magnitudes, bound: float, order: float) -> Array:
    """Mean of the clipped deviations over the scales, over records of bounded norm."""
    present = _present(rows)
    total = np.zeros(rows.n_columns)
    rows = rows.row_major()
    rows_per_chunk = chunk_rows(rows.n_samples, rows.n_columns)
    for first in range(0, rows.n_samples, rows_per_chunk):
        part = slice(first, first + rows_per_chunk)
        V = _scaled(_dense(rows.X[part]), found, _CENTER_CLIP)
        # for the rounding of the norms and of the products that follow
        norms = np.linalg.norm(V, order, axis=1)
        norms *= 1 + 2 * (rows.n_columns + 8) * UNIT_ROUNDOFF
        weights = np.minimum(1.0, bound / np.maximum(norms, 1e-300)) * present[part]
        total += weights @ V
    return total / rows.n_samples


def _scaled(X: Any, found: Magnitudes, bound: float) -> Array:
    """(X - center) / scale, clipped to [-bound, bound], in float64."""
    with np.errstate(over="ignore"):
        V = (np.asarray(X, dtype=np.float64) - found.center) / found.scale
    return np.clip(V, -bound, bound)


def _dense(X: Any) -> Any:
    return X.toarray() if sparse.issparse(X) else X


def scale_rows(rows: Rows, found: Magnitudes) -> Rows:
    """The rows in the released units, clipped to a wide box: dense or CSR, a copy.

    Sparse rows stay so if no centre was released.
    """
    if sparse.issparse(rows.X) and not np.any(found.center):
        X = rows.X.tocsr()
        with np.errstate(over="ignore"):
            data = np.clip(X.data / found.scale[X.indices], -_BOX, _BOX)
        X = type(X)((data, X.indices, X.indptr), shape=X.shape)
        return make_rows(X, rows.has_intercept, rows.scale)
    X = rows.row_major().X
    out = np.empty(X.shape, dtype=X.dtype)
    step = chunk_rows(rows.n_samples, rows.n_columns)
    for first in range(0, rows.n_samples, step):
        part = slice(first, first + step)
        out[part] = _scaled(_dense(X[part]), found, _BOX)
    return make_rows(out, rows.has_intercept, rows.scale)
