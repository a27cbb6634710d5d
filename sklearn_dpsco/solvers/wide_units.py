r"""Private units of rows of many features, of which no copy and no second moments are made.

The released means of the features serve as frequencies. Where no feature is negative, as words and
flags, its variance is about its mean, so that dividing by the root whitens it: the diagonal of what
`learned_units` does with second moments. Features whose mean drowns in its noise share a unit, the
smaller the more noise they would add to the model. Of sparse features of both signs means of the
sizes serve for that, and no centre; dense ones are centred only. Centre and units are applied
inside products, so that sparse rows stay sparse.

Derivations: doc/privacy, section 4.5b.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._types import Array
from ..data.rows import Rows, SolverData, gamma, summation_error
from ..privacy.budget import PrivacyBudget
from .base import Problem
from .statistics import clipped_to, unit_mean

# Of the released centre of wide rows, in units of their bound.
LONGEST_CENTER = 16.0
_N_DIRECTIONS = 4


def wide_mean(problem: Problem, budget: PrivacyBudget) -> float:
    """l2 change of the mean of vectors of norm at most 1 in the units of wide rows (section 4.5b).

    A centred sum is a difference of two, whose terms are longer by up to the norm of the centre.
    """
    n, d = problem.n_samples, problem.n_features
    of_centre = 4 * LONGEST_CENTER * (summation_error(n, d) + gamma(8))
    return unit_mean(problem, budget.record_factor) + of_centre


def frequency_units(noisy: Array, noise: float, of_rows: float, rules: Any) -> tuple[Array, float]:
    """Units of features with these frequencies, and the usual norm of rows in them.

    Those whose frequency is not clear of its noise have one unit, that of their mean frequency,
    times the root of a weight that falls from 1 to 0 as noise grows: that with which one step
    predicts best a target on which all occurrences act alike. With weights w of the clear ones and
    of these, the square of the correlation is (s . w)^2 / (s . w^2 + v (t . w)^2): s their parts
    of the occurrences, t their traces of the second moments, and v the variance of the noise in a
    gradient. At its maximum w is proportional to 1 - c t / s, c = v sum(t) / (1 + v t . (t / s)).
    """
    mass, drowned = np.maximum(noisy, 0.0), noisy <= rules.clear * noise
    rest, kept = max(0.0, float(noisy[drowned].sum())), float(mass[~drowned].sum())
    unit = 1 / np.sqrt(mass + rules.ridge * noise)
    of_rest = rest / max(1, drowned.sum()) + rules.ridge * noise
    # (0 without noise: no row has any of these features)
    unit[drowned] = 1 / math.sqrt(of_rest) if of_rest > 0 else 0.0
    # squares of usual norms, which are what the traces of the second moments are as well
    traces = np.array([float(unit[~drowned] ** 2 @ mass[~drowned]), 0.0])
    if kept > 0 and np.any(drowned):
        square = float(unit[drowned][0]) ** 2
        traces[1] = square * rest
        ratios = np.array([traces[0] / kept, square]) * (kept + rest)  # t / s
        variance = (rules.rest * of_rows) ** 2
        c = variance * traces.sum() / (1 + variance * float(traces @ ratios))
        # (the clear ones have the smaller ratio, so that their 1 - c t / s is above 0)
        weight = max(0.0, (1 - c * ratios[1]) / (1 - c * ratios[0])) if rest > 0 else 0.0
        unit[drowned] *= math.sqrt(weight)
        traces[1] *= weight
    return unit, math.sqrt(traces.sum())


def weighed_rows(measured: SolverData, center: Array, norm: float) -> SolverData:
    r"""Rows [x_i - m, 1] of records with norms, and weights s_i, 0 for an empty record.

    With u the unit in which these are the norms, and N this one,
    :math:`\|u \circ s_i (x_i - m)\|_2 \le N`.
    """
    rows = measured.rows
    weights = clipped_to(norm, measured.numbers) * rows.present()
    plain = Rows(rows.X, True, rows.scale, rows.sample_weight, center)
    return SolverData(plain, measured.y, (rows.X, weights))


def moments_size(problem: Problem, budget: PrivacyBudget) -> float:
    """Change of the norm of a mean of matrices of norm at most 1, one a record (section 4.5b)."""
    return wide_mean(problem, budget) + 2 * gamma(4 * problem.n_features + 16)


def size_of_moments(weighed: Any, unit: Array, center: Array) -> float:
    r"""About the Frobenius norm of the second moments M of `weighed_rows`, times their units.

    :math:`\|M V\|_F / \sqrt k` for k public vectors of random signs, the products of a row
    with all of them cut to a norm of :math:`\sqrt k`.
    """
    signs = 1.0 - 2.0 * np.random.default_rng(0).integers(0, 2, (unit.size, _N_DIRECTIONS))
    point = unit[:, None] * signs / math.sqrt(_N_DIRECTIONS)
    point = np.vstack((point, -center @ point))
    total = unit[:, None] * weighed.sum(_products_sum, point)[:-1]
    return float(np.linalg.norm(total)) / weighed.n_samples


def _products_sum(weighed: SolverData, point: Array) -> Array:
    """Sum of the rows times their clipped products with the columns of the point."""
    rows, (_, weights) = weighed.rows, weighed.numbers
    products = rows.product(point) * weights[:, None]
    products *= (clipped_to(1.0, np.linalg.norm(products, axis=1)) * weights)[:, None]
    return rows.weighted_sum(products)
