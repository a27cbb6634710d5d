r"""Private units of rows of many features, of which no copy and no second moments are made.

The released means of the features serve as frequencies. Where no feature is negative, as words and
flags, its variance is about its mean, so that dividing by the root whitens it: the diagonal of what
`learned_units` does with second moments. Features whose mean drowns in its noise are left out,
which takes more noise out of the model than signal. Of sparse features of both signs means of the
sizes serve for that, and no centre; dense ones are centred only. Centre and units are applied
inside products, so that sparse rows stay sparse.

Derivations: doc/privacy, section 4.5b.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.compressed import with_values
from ..data.rows import make_rows
from ..data.summation import UNIT_ROUNDOFF
from ..mechanisms import Gaussian, SelectVertex
from ..randomness.stream import RandomStream
from .base import Piece, Problem, SolverData
from .defaults import WIDE_UNITS
from .first_releases import shrunk_vector
from .medians import place_counts, scale_on_grid
from .sensitivity import LONGEST_CENTER

__all__ = [
    "Measured",
    "WideRows",
    "about",
    "measure",
    "norm_counts",
    "short_row_sum",
    "wide_rows",
]

Array = NDArray[np.float64]

_TINY = 1e-300  # in the place of 0 in a denominator
_N_DIRECTIONS = 4


@dataclass(frozen=True)
class Measured(Piece):
    """Records whose scale is 1 or, of an empty record, 0, and norms of the rows of X."""

    data: SolverData
    norms: Array

    @property
    def n_samples(self) -> int:
        return self.norms.size

    @property
    def is_sparse(self) -> bool:
        return self.data.is_sparse


def measure(data: SolverData) -> Measured:
    """Records with their norms."""
    return Measured(data, make_rows(data.rows.X, False).norms())


def norm_counts(measured: Measured, grid: Array) -> Array:
    """`place_counts` of the norms of the rows."""
    return place_counts(measured.norms, measured.data.rows.present(), grid)


def about(measured: Measured, center: Array, unit: Array | None) -> Measured:
    """The same records, with the norms of unit (x - center)."""
    rows = make_rows(measured.data.rows.X, False).centered(center)
    return Measured(measured.data, rows.norms(unit))


def short_row_sum(measured: Measured, bound: float, of_sizes: bool = False) -> Array:
    """Sum of the rows over a bound, the longer ones scaled down to 1; or of the sizes of them."""
    rows = measured.data.rows
    factors = clipped_to(bound, measured.norms) / bound * rows.present()
    X = with_values(rows.X, np.abs(rows.X.data)) if of_sizes else rows.X
    return make_rows(X, False).weighted_sum(factors)


class WideRows(NamedTuple):
    r"""Records as they are, and the units in which their rows have a norm of at most 1.

    Attributes
    ----------
    data : SolverData
        Rows s_i [x_i - m, 1], s_i the factor of the scaling down, 0 for an empty record.
    unit : ndarray of shape (n_features,)
        u, with :math:`\|u \circ s_i (x_i - m)\|_2 \le 1`; 0 for a feature that is left out.
    center : ndarray of shape (n_features,)
        m.
    """

    data: SolverData
    unit: Array
    center: Array

    def moments_size(self) -> float:
        r"""About the Frobenius norm of the second moments M of the rows in units.

        :math:`\|M V\|_F / \sqrt k` for k public vectors of random signs, the products of a row
        with all of them cut to a norm of :math:`\sqrt k`.
        """
        unit = self.unit
        signs = 1.0 - 2.0 * np.random.default_rng(0).integers(0, 2, (unit.size, _N_DIRECTIONS))
        point = unit[:, None] * signs / math.sqrt(_N_DIRECTIONS)
        point = np.vstack((point, -self.center @ point))
        total = unit[:, None] * self.data.sum(_products_sum, point)[:-1]
        return float(np.linalg.norm(total)) / self.data.n_samples


def _products_sum(data: SolverData, point: Array) -> Array:
    """Sum of the rows times their clipped products with the columns of the point."""
    rows = data.rows
    products = rows.product(point)
    products *= rows.scales()[:, None]
    products *= (clipped_to(1.0, np.linalg.norm(products, axis=1)) * rows.scales())[:, None]
    return rows.weighted_sum(products)


def clipped_to(bound: float, norms: Array) -> Array:
    """min(1, bound / norm), such that rows times it stay within the bound."""
    return np.minimum(1.0, bound / np.maximum(norms, _TINY)) * (1 - 8 * UNIT_ROUNDOFF)


def wide_rows(
    measured: Measured, problem: Problem, rough: float, center: Gaussian | None,
    length: SelectVertex | None, row_growth: float, stream: RandomStream,
) -> WideRows:  # fmt: skip
    """Release centre and length of the rows.

    Parameters
    ----------
    measured : Measured
        Not in CSC.
    problem : Problem
    rough : float
        Bound on the norms of the rows whose mean is released.
    center, length
        See `LearnedUnits`.
    row_growth : float
        Factor on the bound on the rows.
    stream : RandomStream
    """
    rules, n, d = WIDE_UNITS[problem.loss.task], measured.n_samples, problem.n_features
    means, unit, usual = np.zeros(d), np.ones(d), rough
    if center is not None:
        is_sparse = measured.is_sparse
        # sizes in the place of means that may cancel out
        of_sizes = is_sparse and not problem.nonnegative
        mean = measured.sum(short_row_sum, rough, of_sizes) / n
        noisy = rough * center.release(mean, stream)
        noise = rough * math.sqrt(center.variance)
        if is_sparse or problem.nonnegative:
            unit = 1 / np.sqrt(np.maximum(noisy, 0.0) + rules.ridge * noise)
            unit[noisy <= rules.clear * noise] = 0.0
            usual = math.sqrt(float(unit**2 @ np.maximum(noisy, 0.0)))
            if problem.nonnegative:
                means = noisy * (noisy > rules.sure * noise)
        else:
            means = shrunk_vector(noisy, noise**2)
    if not problem.fit_intercept:  # which would have to make up for the centre
        means[:] = 0.0
    centred = measured.map(about, means, unit)
    counts = functools.partial(centred.sum, norm_counts)
    longest = 2 * rough * max(float(unit.max()), _TINY)
    usual = min(longest, max(usual, 1e-3 * longest))
    norm = scale_on_grid(counts, n, longest, usual, length, stream)
    norm *= rules.row_bound * row_growth
    # so that the rounding of the centre's part is small against the rows
    norm = max(norm, float(np.linalg.norm(unit * means)) / LONGEST_CENTER)
    return WideRows(centred.map(_scaled_down, means, norm), unit / norm, means)


def _scaled_down(measured: Measured, center: Array, norm: float) -> SolverData:
    """Centred rows, those of longer norms scaled down."""
    rows = measured.data.rows
    scale = clipped_to(norm, measured.norms) * rows.present()
    scaled = make_rows(rows.X, True, scale, rows.sample_weight).centered(center)
    return SolverData(scaled, measured.data.y)
