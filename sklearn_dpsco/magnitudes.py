r"""How large the columns of a table are: public guesses, and private estimates.

A table without bounds is put into units of its own: x becomes (x - center) / scale, where
both are guesses of the user or released by mechanisms. Scales are powers of two, chosen
for each column by the exponential mechanism from a public grid; centres are means of
values clipped in units of the scales. Sensitivities: doc/privacy.rst, section 7.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ._linear import UNIT_ROUNDOFF, Rows, chunk_rows, make_rows, summation_error
from ._random import RandomStream
from .accounting import Allowance
from .bounds import FeatureScaling, TargetScaling, canonical
from .mechanisms import Gaussian, Laplace, SelectVertex, additive_noise

__all__ = [
    "PRIVATE",
    "FeatureMagnitudes",
    "MagnitudeSearch",
    "Magnitudes",
    "TargetMagnitude",
    "by_column",
    "check_magnitude",
    "plan_search",
    "release_magnitudes",
    "scale_rows",
]

Array = NDArray[np.float64]

PRIVATE = "private"

_LOWEST, _HIGHEST = -64, 64  # exponents of the grid of scales
_EXPONENTS = np.arange(_LOWEST, _HIGHEST + 1)
_FINEST = 16  # a spread below 2^-16 of the column's magnitude is not looked for
_BOX = 64.0  # scaled values are clipped to [-64, 64], far beyond where they have influence
_CENTER_CLIP = 2.0  # scaled values count in a centre up to this
_FLOAT_TERMS = 160  # roundings of a score: at most one for each octave and a few

# The mean of m^2 over m uniform in [1/2, 1): what x^2 is on average in its octave.
_OCTAVE_MEAN = 7 / 12

# A priori, columns have magnitudes near 1, more likely above than below; and a spread is
# more likely near the column's magnitude than far below. In units of the noise, so that
# it only decides where the data do not.
_LOG_PRIOR = np.where(
    _EXPONENTS < 0, -4 * np.log1p(np.abs(_EXPONENTS) / 4), -2 * np.log1p(np.abs(_EXPONENTS) / 8)
)
_LOG_SPREAD = 1.0  # per octave
_LARGEST_PRIOR = 200.0  # more than any of them, with the score itself

# Selections get the share of the budget that brings their noise down to _NOISE_AIMED, but
# not more than is allowed. The spread about a second centre is worth its cost where the
# noise is small.
_NOISE_AIMED = 0.01
_SECOND_CENTER_SHARE = 0.04
_USELESS_CENTER = 0.25  # a centre with more noise than this, in units of the scale


def check_magnitude(name: str, value: Any, *, positive: bool) -> None:
    """Raise unless `value` is "private", or finite: a number, an array, or a dict of numbers."""
    kind = "positive numbers" if positive else "finite numbers"
    message = f"{name} must be 'private' or {kind}"
    if isinstance(value, Mapping):
        for column, number in value.items():
            if isinstance(number, str) or np.ndim(number) != 0:
                raise ValueError(f"{name}[{column!r}] must be a number, got {number!r}")
            check_magnitude(f"{name}[{column!r}]", number, positive=positive)
        return
    if isinstance(value, str):
        if value != PRIVATE:
            raise ValueError(f"{message}, got {value!r}")
        return
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{message}, got {type(value).__name__}") from None
    if array.ndim > 1 or not np.all(np.isfinite(array)) or (positive and np.any(array <= 0)):
        raise ValueError(f"{message}, a scalar or one for each column, got {value!r}")


def by_column(name: str, value: Any, columns: Sequence[str] | None) -> Any:
    """`value` in the order of the columns, if it is a dict by their names."""
    if not isinstance(value, Mapping):
        return value
    if columns is None:
        raise ValueError(f"{name} is a dict, which needs X to be a data frame with column names")
    missing = [column for column in columns if column not in value]
    unknown = [column for column in value if column not in set(columns)]
    if missing or unknown:
        raise ValueError(
            f"{name} must name every column of X and no other: {len(missing)} columns are not "
            f"named, {len(unknown)} names are no columns ({unknown[:5]!r})"
        )
    return np.array([value[column] for column in columns], dtype=np.float64)


def _is_private(value: Any) -> bool:
    return isinstance(value, str)


# ------------------------------------------------------------------------ public guesses


class FeatureMagnitudes(FeatureScaling):
    """The map x -> (x - shift) / width by column, without bounds."""

    @classmethod
    def of(cls, center: Any, scale: Any, n_features: int) -> FeatureMagnitudes:
        """From guesses, of which "private" ones are left to the plan.

        Raises
        ------
        ValueError
            If an array has another length than there are columns.
        """
        columns = []
        for name, value, neutral in (("center_X", center, 0.0), ("scale_X", scale, 1.0)):
            array = np.asarray(neutral if _is_private(value) else value, dtype=np.float64)
            if array.ndim == 1 and array.size != n_features:
                raise ValueError(
                    f"{name} must hold a scalar or {n_features} numbers, got {array.size}"
                )
            columns.append(np.broadcast_to(array, (n_features,)).copy())
        infinite = np.full(n_features, np.inf)
        return cls(-infinite, infinite, *columns)

    def transform(self, X: Any) -> Any:
        """(X - shift) / width; X itself where nothing changes. Infinities stay."""
        if sparse.issparse(X):
            if np.any(self.shift != 0):
                raise ValueError("sparse X needs center_X=0, since a centre would shift its zeros")
            X = canonical(X)
            with np.errstate(over="ignore", invalid="ignore"):
                data = X.data / self.width[_columns(X)]
            return type(X)((data, X.indices, X.indptr), shape=X.shape)
        if self._is_identity():
            return X
        with np.errstate(over="ignore", invalid="ignore"):
            return ((X - self.shift) / self.width).astype(X.dtype, copy=False)


@dataclass(frozen=True)
class TargetMagnitude(TargetScaling):
    """The map y -> (y - center) / scale, without bounds."""

    center: float
    scale: float

    @classmethod
    def of(cls, center: Any, scale: Any) -> TargetMagnitude:
        """From guesses, of which "private" ones are left to the plan."""
        middle = 0.0 if _is_private(center) else float(center)
        half = 1.0 if _is_private(scale) else float(scale)
        return cls(-math.inf, math.inf, middle, half)

    # not from the ends, between which floats would lose a scale that is small beside the centre

    @property
    def middle(self) -> float:
        return self.center

    @property
    def half(self) -> float:
        return self.scale

    def transform(self, y: Any) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return (np.asarray(y, dtype=np.float64) - self.middle) / self.half


def _columns(X: Any) -> Any:
    """The column of each stored value of a CSR or CSC matrix."""
    if X.format == "csr":
        return X.indices
    return np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))


# --------------------------------------------------------------------- private estimates


class Magnitudes(NamedTuple):
    """Released centres and scales of the columns, shape (n_features,) each."""

    center: Array
    scale: Array


@dataclass(frozen=True)
class MagnitudeSearch:
    """How centres and scales are released; the mechanisms are held by the plan.

    One round releases the scale of the deviations from the current centre, then the mean of
    the deviations in units of that scale. A last scale follows the last round.

    Attributes
    ----------
    n_rounds : int
        Centres that are released.
    n_scales : int
        Scales that are released, 0 or n_rounds + 1.
    bound : float
        On the norm (l2, or l1 for pure DP) of a record's clipped deviations.
    share : float
        Of the budget.
    """

    n_rounds: int
    n_scales: int
    bound: float
    share: float


class _Planned(NamedTuple):
    search: MagnitudeSearch
    select: SelectVertex | None
    center: Gaussian | Laplace | None


def selection_noise(
    n_samples: int, n_columns: int, record_factor: float, allowance: Allowance
) -> float:
    """Scale of the noise on a score, if one scale for each column is released."""
    change = record_factor / n_samples
    if allowance.kind == "pure":
        return change * n_columns / allowance.amount
    return change * math.sqrt(n_columns / (8 * allowance.amount))


def _center_bound(n_columns: int, allowance: Allowance) -> float:
    """Bound on the norm of a record's clipped deviations; binds seldom, for it would bias."""
    return max(2.0, 1.2 * (n_columns if allowance.kind == "pure" else math.sqrt(n_columns)))


def _center_noise(
    n_samples: int, n_columns: int, record_factor: float, allowance: Allowance
) -> float:
    """Standard deviation of a centre's noise, in units of the scale."""
    change = _center_bound(n_columns, allowance) * record_factor / n_samples
    if allowance.kind == "pure":
        return math.sqrt(2) * change / allowance.amount
    return change / math.sqrt(2 * allowance.amount)


def _shares(
    n_samples: int, n_columns: int, record_factor: float, allowance: Allowance,
    private_scale: bool, largest_share: float, n_rounds: int, largest_noise: float,
) -> tuple[int, float, float] | None:  # fmt: skip
    """Rounds, and the shares of each selection and each centre; None if it is guesswork.

    One round may become two where both are cheap.
    """
    center_share = largest_share / 6 if n_rounds else 0.0
    if not private_scale:
        return n_rounds, 0.0, center_share
    at_all = selection_noise(n_samples, n_columns, record_factor, allowance)
    power = 1 if allowance.kind == "pure" else 2
    wanted = (at_all / _NOISE_AIMED) ** power
    share = min(wanted, (largest_share - center_share) / (n_rounds + 1))
    if at_all / share ** (1 / power) > largest_noise:
        return None
    share = max(share, largest_share / 20)
    is_cheap = share <= _SECOND_CENTER_SHARE and 3 * share + 2 * center_share <= largest_share
    return n_rounds + (1 if n_rounds and is_cheap else 0), share, center_share


def plan_search(
    n_samples: int, n_columns: int, record_factor: float, allowance: Allowance, *,
    private_center: bool, private_scale: bool, largest_share: float, largest_noise: float,
) -> _Planned | None:  # fmt: skip
    """The search within `largest_share` of the allowance, None if it would be guesswork.

    Parameters
    ----------
    n_samples, n_columns : int
    record_factor : {1.0, 2.0}
    allowance : Allowance
        All of the budget.
    private_center, private_scale : bool
        What is to be released.
    largest_share : float
    largest_noise : float
        Scale of a score's noise, scores being within [-1/2, 0], above which it would be;
        inf to search, and centre, all the same.
    """
    facts = n_samples, n_columns, record_factor
    shares = None
    if private_center:
        part = allowance.share(largest_share / 6)
        if math.isinf(largest_noise) or _center_noise(*facts, part) <= _USELESS_CENTER:
            shares = _shares(*facts, allowance, private_scale, largest_share, 1, largest_noise)
    if shares is None:
        private_center = False
        shares = _shares(*facts, allowance, private_scale, largest_share, 0, largest_noise)
    if shares is None:
        return None
    n_rounds, selection_share, center_share = shares
    n_scales = n_rounds + 1 if private_scale else 0
    bound = _center_bound(n_columns, allowance)
    share = n_scales * selection_share + n_rounds * center_share
    search = MagnitudeSearch(n_rounds, n_scales, bound, share)
    select = center = None
    if private_scale:
        part = allowance.share(n_scales * selection_share)
        # each of the float scores of two neighbours errs by so much, the prior left out
        change = record_factor / n_samples + 4 * _FLOAT_TERMS * UNIT_ROUNDOFF
        select = SelectVertex.calibrate(change, part, n_scales * n_columns)
        # and by this much more for the prior, which is stated in units of the noise
        change += 4 * _LARGEST_PRIOR * UNIT_ROUNDOFF * select.scale
        select = SelectVertex.calibrate(change, part, n_scales * n_columns)
    if private_center:
        change = record_factor / n_samples + 2 * summation_error(n_samples, n_columns)
        center = additive_noise(allowance).calibrate(
            bound * change, allowance.share(n_rounds * center_share), n_rounds, n_columns
        )
    return _Planned(search, select, center)


def release_magnitudes(
    rows: Rows, search: MagnitudeSearch, select: SelectVertex | None,
    center: Gaussian | Laplace | None, stream: RandomStream,
) -> Magnitudes:  # fmt: skip
    """Centres and scales of the columns of X, as the search says."""
    d = rows.n_columns
    found = Magnitudes(np.zeros(d), np.ones(d))
    magnitude: NDArray[np.int64] | None = None
    for k in range(search.n_rounds + 1):
        if select is not None:
            counts = _octaves(rows, found.center)
            exponents = _select(counts, rows.n_samples, magnitude, select, stream)
            magnitude = exponents if magnitude is None else magnitude
            found = Magnitudes(found.center, np.ldexp(1.0, exponents))
        if center is not None and k < search.n_rounds:
            step = center.release(_mean_deviation(rows, found, search, center), stream)
            found = Magnitudes(found.center + found.scale * _shrunk(step, center), found.scale)
    return found


def _shrunk(step: Array, mechanism: Gaussian | Laplace) -> Array:
    """The estimate of James and Stein, which is 0 where the step is noise."""
    size = float(step @ step)
    kept = max(0.0, 1 - step.size * mechanism.variance / size) if size > 0 else 0.0
    return np.clip(step * kept, -_CENTER_CLIP, _CENTER_CLIP)


def _octaves(rows: Rows, center: Array) -> NDArray[np.int64]:
    """Counts of the octaves of abs(x - center) by column, shape (d, grid + 2)."""
    from ._kernels.means import csr_octave_counts, octave_counts

    counts = np.zeros((rows.n_columns, _EXPONENTS.size + 1), dtype=np.int64)
    X, present = rows.X, _present(rows)
    if isinstance(X, np.ndarray):
        octave_counts(X, present, center, _LOWEST, counts)
    else:
        X = X.tocsr()
        csr_octave_counts(X.data, X.indices, X.indptr, present, center, _LOWEST, counts)
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
    is the part of a squared deviation over 4^e, at most 1: highest at the scale beyond which
    a record counts as much as all that is left of the others.
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


def _mean_deviation(
    rows: Rows, found: Magnitudes, search: MagnitudeSearch, mechanism: Gaussian | Laplace
) -> Array:
    """Mean of the clipped deviations over the scales, over records of bounded norm."""
    order = 1 if isinstance(mechanism, Laplace) else 2
    present = _present(rows)
    total = np.zeros(rows.n_columns)
    rows = rows.row_major()
    rows_per_chunk = chunk_rows(rows.n_samples, rows.n_columns)
    for first in range(0, rows.n_samples, rows_per_chunk):
        part = slice(first, first + rows_per_chunk)
        V = _scaled(_dense(rows.X[part]), found, _CENTER_CLIP)
        # the sum in a norm rounds, and so do the products to come
        norms = np.linalg.norm(V, order, axis=1)
        norms *= 1 + 2 * (rows.n_columns + 8) * UNIT_ROUNDOFF
        weights = np.minimum(1.0, search.bound / np.maximum(norms, 1e-300)) * present[part]
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
