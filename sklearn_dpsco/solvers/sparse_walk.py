r"""Frank-Wolfe by selection on sparse X, in steps that read only what the last vertex changes.

The scores of a step need the mean gradient at w, of which one coordinate was changed and all others
shrunk. With :math:`w = s u`, s a public number, only the predictions of the rows that store the
selected column change otherwise than by the fall of s. While s falls from :math:`S_e` to
:math:`S_{e+1} = S_e / 1.5` (an epoch), the derivative of each record is taken to be linear in s,
between its clipped derivatives at both ends. Both sums over the records are exact integers, which a
step updates for a few rows, and an epoch ends with one pass over all of them. The next vertex is
selected in time proportional to the root of the number of columns (`GroupedScores`).

The selections are those of the plan: same mechanism, same sensitivity. Derivations and the error of
the line: doc/privacy, section 3.1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._kernels.arguments import Compressed, read_only
from .._progress import steps
from .._types import AnyArray, Array
from ..data.compressed import with_values
from ..data.rows import SolverData, Terms
from ..geometry import AxisVertices, Vertex, Vertices
from ..mechanisms import softmax_scale
from ..randomness.stream import GroupedScores, RandomStream

_LEAST_FEATURES = 2000  # for fewer, a pass costs little more than a selection
MOST_SPARSE_STEPS = 10**6  # whose sizes are held in memory
_FALL = 1.5  # of the factor s in an epoch
_SMALLEST = 1e-100  # the least s
_SUM_BITS = 62  # of a sum of integers, without the sign
# Steps that an epoch and the start must save: passes at the ends of epochs cost about twice as much
# as those at each step, the start as much as eight, and a walk is taken where it costs half.
_EPOCH_COST, _START_COST = 4, 16


def schedule(rates: Array) -> tuple[Array, list[int]]:
    """The factor s before each of T steps and after the last; the first steps of epochs, and T."""
    factors, bounds = np.append(1.0, np.cumprod(1 - rates)), [0]
    rising = -factors
    while bounds[-1] < rates.size:
        fallen = int(np.searchsorted(rising, rising[bounds[-1]] / _FALL))
        bounds.append(min(fallen, rates.size))
    return factors, bounds


def mean_weights(rates: Array, first: int) -> tuple[float, Array]:
    """Weights of the first point and of the vertices in the mean of the iterates after `first`.

    Iterate t + 1 is (1 - rate_t) times iterate t plus rate_t times vertex t.
    """
    n_steps = rates.size
    weights, later = np.empty(n_steps), 1.0  # what a unit in iterate t + 1 adds to the sum
    for t in range(n_steps - 1, -1, -1):
        weights[t] = rates[t] * later
        later = (t > first) + (1 - rates[t]) * later
    return later / (n_steps - first), weights / (n_steps - first)


def walk_pays(data: SolverData, terms: Terms, vertices: Vertices, rates: Array) -> bool:
    """Whether a walk of steps of these sizes does, by public facts alone.

    The number of stored values is private, so it is not looked at: sparse X is taken to be sparse.
    """
    is_known = data.is_sparse and data.rows.center is None and data.y.ndim == 1
    if not is_known or terms.slope is None or not isinstance(vertices, AxisVertices):
        return False
    if data.rows.n_columns < _LEAST_FEATURES or float(np.prod(1 - rates)) < _SMALLEST:
        return False
    return _EPOCH_COST * (len(schedule(rates)[1]) - 1) + _START_COST <= rates.size


class SparseWalk:
    """The predictions, what each record contributes, and the sums of that.

    `sums`, of int64 and shape (size, 2), are n times the mean gradient at s u in units of
    1 / `unit`, for s at both ends of the epoch.
    """

    def __init__(
        self, data: SolverData, terms: Terms, plan: Any, rates: Array, center: Array
    ) -> None:
        rows, n = data.rows, data.n_samples
        self.rows, self.y, self.terms, self.rates = rows, data.y, terms, rates
        self.factors, self.bounds = schedule(rates)
        self.center, self.vertices, self.mechanism = center, plan.vertices, plan.step
        self.X = Compressed.of(rows.X)
        # the rows that store a column; no copy of the values
        columns = with_values(rows.X, np.ones(rows.X.nnz, dtype=bool)).tocsc()
        self.columns = columns.indptr, read_only(columns.indices)
        self.everyone = read_only(np.arange(n, dtype=columns.indices.dtype))
        # <[x_i, 1], u>, without what later steps add to the intercept
        self.product, self.intercept = rows.product(center), 0.0
        # n contributions of at most clip * unit add up to less than 2^62
        bits = math.frexp(n)[1] + math.frexp(terms.clip)[1]
        self.unit = 2.0 ** (_SUM_BITS - bits)
        self.r, self.sums = np.zeros((n, 2)), np.zeros((center.size, 2), dtype=np.int64)
        self.scores = GroupedScores(self.sums[:, 0], self.sums[:, 1], self.vertices.values)
        self.epoch = 0
        self._contribute(self.everyone)

    def mean(self, first: int, stream: RandomStream) -> Array:
        """Walk: the mean of the iterates after step `first` and later ones, shape (size,)."""
        weight, weights = mean_weights(self.rates, first)
        mean = weight * self.center
        for t in steps(range(weights.size)):
            vertex = self.select(t, stream)
            mean[vertex.coordinate] += weights[t] * vertex.value
            if t + 1 < weights.size:
                self.move(t, vertex)
        self.scores.check()
        return mean

    def ends(self) -> tuple[float, float]:
        """The factor s at the start of the epoch and of the next one, or after the last step."""
        start, stop = self.bounds[self.epoch : self.epoch + 2]
        return float(self.factors[start]), float(self.factors[stop])

    def form(self, t: int) -> tuple[float, float]:
        """The weights of the two sums in the mean gradient of step t."""
        left, right = self.ends()
        # the smallest of steps leave s as it is
        share = (left - float(self.factors[t])) / (left - right) if left > right else 0.0
        unit = self.rows.n_samples * self.unit
        return (1 - share) / unit, share / unit

    def select(self, t: int, stream: RandomStream) -> Vertex:
        """The vertex of step t."""
        form, scale = self.form(t), softmax_scale(self.mechanism)
        if scale is None:  # another law, or an audit: from the scores of all vertices
            gradient = form[0] * self.sums[:, 0] + form[1] * self.sums[:, 1]
            number = self.mechanism.release(self.vertices.scores(gradient), stream)
        else:
            number = self.scores.sample(form, scale, stream)
        return self.vertices.vertex(number)

    def move(self, t: int, vertex: Vertex) -> None:
        """Bring everything to the point after step t."""
        from .._kernels.vertex_steps import add_column

        amount = float(self.rates[t] * vertex.value / self.factors[t + 1])
        which = self.everyone
        if vertex.coordinate == self.rows.n_columns:
            self.intercept += amount
        else:
            starts, stored = self.columns
            which = stored[starts[vertex.coordinate] : starts[vertex.coordinate + 1]]
            add_column(self.X, vertex.coordinate, which, amount, self.product)
        if t + 1 == self.bounds[self.epoch + 1]:
            self.epoch += 1
            self.scores.shift()
            self.r[:, 0] = self.r[:, 1]
            which = self.everyone
        self._contribute(which)

    def _contribute(self, which: AnyArray) -> None:
        """Bring the contributions of these rows up to date, and the sums with them."""
        from .._kernels.vertex_steps import contribute

        rows, scores, slope = self.rows, self.scores, self.terms.slope
        # For many of them all bounds are made anew, which is faster. How many is private, but
        # decides on time alone: bounds that hold leave the law of a selection as it is.
        n, size = self.product.size, self.sums.shape[0]
        widens = 2 * which.size * (self.X.data.size + n) < n * size
        if not widens:
            scores.check()
        secant = *self.ends(), rows.has_intercept, self.intercept, self.unit
        records = rows.scales(), rows.factors(), self.y, self.product
        groups = scores.bits, scores.bounds, scores.is_loose, widens
        contribute(self.X, which, records, secant, slope, (self.r, self.sums), groups)
        if not widens:
            scores.tighten()
