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

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..data.compressed import with_values
from ..data.rows import Rows, make_rows
from ..data.summation import UNIT_ROUNDOFF
from ..mechanisms import Gaussian, SelectVertex
from ..randomness.stream import RandomStream
from .base import Problem
from .defaults import WIDE_UNITS
from .first_releases import shrunk_vector
from .medians import scale_on_grid
from .sensitivity import LONGEST_CENTER

__all__ = ["WideRows", "clipped_to", "wide_rows"]

Array = NDArray[np.float64]

_TINY = 1e-300  # in the place of 0 in a denominator
_N_DIRECTIONS = 4


class WideRows(NamedTuple):
    r"""Rows as they are, and the units in which they have a norm of at most 1.

    Attributes
    ----------
    rows : Rows
        s_i [x_i - m, 1], s_i the factor of the scaling down, 0 for an empty record.
    unit : ndarray of shape (n_features,)
        u, with :math:`\|u \circ s_i (x_i - m)\|_2 \le 1`; 0 for a feature that is left out.
    """

    rows: Rows
    unit: Array

    def moments_size(self) -> float:
        r"""About the Frobenius norm of the second moments M of the rows in units.

        :math:`\|M V\|_F / \sqrt k` for k public vectors of random signs, the products of a row
        with all of them cut to a norm of :math:`\sqrt k`.
        """
        rows, unit = self.rows, self.unit
        assert rows.center is not None
        signs = 1.0 - 2.0 * np.random.default_rng(0).integers(0, 2, (unit.size, _N_DIRECTIONS))
        point = unit[:, None] * signs / math.sqrt(_N_DIRECTIONS)
        products = rows.product(np.vstack((point, -rows.center @ point)))
        products *= rows.scales()[:, None]
        products *= (clipped_to(1.0, np.linalg.norm(products, axis=1)) * rows.scales())[:, None]
        total = unit[:, None] * rows.weighted_sum(products)[:-1]
        return float(np.linalg.norm(total)) / rows.n_samples


def clipped_to(bound: float, norms: Array) -> Array:
    """min(1, bound / norm), such that rows times it stay within the bound."""
    return np.minimum(1.0, bound / np.maximum(norms, _TINY)) * (1 - 8 * UNIT_ROUNDOFF)


def wide_rows(
    rows: Rows, norms: Array, problem: Problem, rough: float, center: Gaussian | None,
    length: SelectVertex | None, row_growth: float, stream: RandomStream,
) -> WideRows:  # fmt: skip
    """Release centre and length of the rows.

    Parameters
    ----------
    rows : Rows
        Plain, their scale 1 or, of an empty record, 0; not in CSC.
    norms : ndarray of shape (n_samples,)
        Of the rows of X.
    problem : Problem
    rough : float
        Bound on the norms of the rows whose mean is released.
    center, length
        See `LearnedUnits`.
    row_growth : float
        Factor on the bound on the rows.
    stream : RandomStream
    """
    rules, present, weight = WIDE_UNITS[problem.loss.task], rows.present(), rows.sample_weight
    plain = make_rows(rows.X, False)
    means, unit, usual = np.zeros(plain.n_columns), np.ones(plain.n_columns), rough
    if center is not None:
        factors = clipped_to(rough, norms) / rough * present
        is_sparse = sparse.issparse(plain.X)
        of = plain
        if is_sparse and not problem.nonnegative:  # sizes in the place of means that may cancel out
            of = make_rows(with_values(plain.X, np.abs(plain.X.data)), False)
        noisy = rough * center.release(of.weighted_sum(factors) / of.n_samples, stream)
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
    norms = plain.centered(means).norms(unit)
    longest = 2 * rough * max(float(unit.max()), _TINY)
    usual = min(longest, max(usual, 1e-3 * longest))
    norm = scale_on_grid(norms, present, longest, usual, length, stream)
    norm *= rules.row_bound * row_growth
    # so that the rounding of the centre's part is small against the rows
    norm = max(norm, float(np.linalg.norm(unit * means)) / LONGEST_CENTER)
    scaled = make_rows(plain.X, True, clipped_to(norm, norms) * present, weight)
    return WideRows(scaled.centered(means), unit / norm)
