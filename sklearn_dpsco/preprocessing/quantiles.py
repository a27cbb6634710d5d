"""Private bounds of columns: two quantiles of each, selected on a public grid e_1 < ... < e_k.

The lower end is the upper end of the negated column. Derivation: doc/privacy, section 2.12.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from .._checks import check_choice, check_count, check_share, shown, stated
from .._fitting import Accounting
from .._overview import Overview, Overviewed
from .._types import Array, Auto, Bounds, Nonfinite, Precision, RandomState, Relation
from ..data.bounds import feature_scaling
from ..data.cells import checked_table, column_names, nonfinite_rows
from ..data.rows import UNIT_ROUNDOFF, place_counts
from ..mechanisms import Release, SelectVertex
from ..mechanisms.laws import PRIOR_ROOM
from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream, check_random_state, stream_from_random_state
from ..solvers.base import plan_within
from ..solvers.statistics import missed_ranks

# Without outer bounds: 0 and both signs of 2^(k / 4), from 2^-64 to 2^64.
_QUARTERS = np.arange(-256, 257)
_GRID = np.concatenate((-(2.0 ** (_QUARTERS[::-1] / 4)), [0.0], 2.0 ** (_QUARTERS / 4)))
# Magnitudes near 1 are more likely, and small ones less than large ones. In units of the noise,
# so that it only decides between scores that differ by little more than noise.
_LOG_WEIGHT = np.where(_QUARTERS < 0, -4.0, -2.0) * np.log1p(
    np.abs(_QUARTERS) / np.where(_QUARTERS < 0, 16, 32)
)
_LOG_PRIOR = np.concatenate((_LOG_WEIGHT[::-1], [0.0], _LOG_WEIGHT))
# Logarithm of all weights over that of a candidate, whose magnitude may be up to 2^64.
_LOG_SIZE = float(np.logaddexp.reduce(_LOG_PRIOR)) + 4.5
# Within outer bounds: so many steps, and quarter octaves of the width from both ends and from 0.
_STEPS = 256
_FRACTIONS = 2.0 ** (-np.arange(1, 121) / 4)
_FINEST = 1e-11  # distance of two candidates, in units of the larger end

# A level stays so far from 1 that the candidates above all records, all ends taken together,
# have less than e^-4 of the weight of the best; in units of the noise, and beyond the logarithms
# of the number of candidates and of ends.
_MARGIN = 4.0
_OUTWARDS = 1.0  # levels are moved towards 1 by this, in units of the noise, where they can be
_LEAST_LEVEL = 0.75  # where only a lower one could be found, nothing is released
# Bounds lie so many distances of the two quantiles beyond them: what they cut off biases slopes,
# of skewed columns the most, and wide ones cost little.
_BEYOND = 2.0


@dataclass(frozen=True)
class BoundsPlan(Overviewed):
    """How the bounds of columns are released; made before any data is read.

    Attributes
    ----------
    n_samples, n_features : int
    levels : tuple of float
        The quantiles that are aimed at. Those asked for are moved outwards by about the noise,
        since bounds that are a little too wide do less harm than those that cut off, but not
        so far out that noise could choose a bound beyond all records.
    grids : tuple of ndarray
        The candidates of each column, increasing; one for all columns of the same outer bounds,
        or of none.
    log_prior : ndarray or None
        Of the candidates, in units of the noise's scale.
    select : SelectVertex
        What releases each end.
    guarantee : Guarantee
    """

    _headline = "bounds of {0.n_features} columns on {0.n_samples} records"

    n_samples: int
    n_features: int
    levels: tuple[float, float]
    grids: tuple[Array, ...]
    log_prior: Array | None
    select: SelectVertex
    guarantee: Guarantee

    def grid(self, column: int) -> Array:
        """The candidates of a column."""
        return self.grids[column if len(self.grids) > 1 else 0]

    def scores(self, values: Array, column: int = 0) -> tuple[Array, Array]:
        """Scores of the candidates for the lower and the upper end of a column. Not private.

        Minus the number of records by which each cell (e_{j-1}, e_j] misses the level; for the
        lower end of the negated candidates from the last to the first. `values` are those of the
        records that are not empty.
        """
        found, grid = [], self.grid(column)
        lower = -values, -grid[::-1], 1 - self.levels[0]
        for signed, candidates, level in (lower, (values, grid, self.levels[1])):
            counts = place_counts(signed, np.ones(values.size, dtype=bool), candidates)
            # of the records that are not empty, whose number is secret
            found.append(-missed_ranks(counts, level * float(counts.sum())))
        return found[0], found[1]

    def release(self, X: Any, present: Any, stream: RandomStream) -> tuple[Array, Array]:
        """The lower and upper ends of the columns of a checked table, shape (n_features,)."""
        if X.shape != (self.n_samples, self.n_features):
            raise ValueError(
                f"X must have the plan's shape ({self.n_samples}, {self.n_features}), got {X.shape}"
            )
        ends = np.empty((2, self.n_features))
        is_sparse = sparse.issparse(X)
        X = X.tocsc() if is_sparse else X
        for column in range(self.n_features):
            values = X[:, [column]].toarray()[present, 0] if is_sparse else X[present, column]
            values = np.asarray(values, dtype=np.float64)  # of the records that are not empty
            places, grid = [], self.grid(column)
            for scores in self.scores(values, column):
                if self.log_prior is not None:  # symmetric: negated candidates have the same
                    scores = self.select.with_prior(scores, self.log_prior)
                places.append(self.select.release(scores, stream))
            first, last = sorted((grid.size - 1 - places[0], places[1]))
            if first == last:  # moved apart
                first, last = max(0, first - 1), min(grid.size - 1, last + 1)
            ends[:, column] = grid[first], grid[last]
        return ends[0], ends[1]


@dataclass(frozen=True, repr=False)
class PrivateBounds(Overviewed):
    """Released quantiles, and bounds to be declared to an estimator; ``print`` shows them.

    Attributes
    ----------
    low, high : ndarray of shape (n_features,), or float of a vector
        The quantiles.
    names : tuple of str or None
        Of the columns, if X was a data frame.
    plan : BoundsPlan
    noise_is_secret : bool
        False if `random_state` was given.
    """

    low: Any
    high: Any
    names: tuple[str, ...] | None
    plan: BoundsPlan
    noise_is_secret: bool

    @property
    def bounds(self) -> Any:
        """What `bounds_X` or `bounds_y` takes: (low, high), or {column: (low, high)} by name.

        They lie twice the distance of the quantiles beyond these, but not across 0 nor out of
        `within`, so that counts stay counts.
        """
        first, last = (np.array([grid[k] for grid in self.plan.grids]) for k in (0, -1))
        far = _BEYOND * (self.high - self.low)
        low = np.maximum(self.low - far, np.where(self.low < 0, first, np.maximum(first, 0.0)))
        high = np.minimum(self.high + far, np.where(self.high > 0, last, np.minimum(last, 0.0)))
        if np.ndim(self.low) == 0:
            return low.item(), high.item()
        if self.names is None:
            return low, high
        return dict(zip(self.names, zip(low.tolist(), high.tolist(), strict=True), strict=True))

    @property
    def guarantee(self) -> Guarantee:
        """What the bounds cost."""
        return self.plan.guarantee.of_fit(noise_is_secret=self.noise_is_secret)

    def overview(self) -> Overview:
        """The bounds of the first columns, and what they cost."""
        found = self.bounds if self.names is None else np.transpose([*self.bounds.values()])
        low, high = map(np.atleast_1d, found)
        names = self.names or [f"x{k}" for k in range(low.size)]
        what = "1 column" if low.size == 1 else f"{low.size} columns"
        line = f"private bounds of {what} ({self.guarantee.claim})"
        rows = [(n, f"{a:.6g}", f"{b:.6g}") for n, a, b in zip(names, low, high, strict=True)]
        return Overview((line,), ("column", "low", "high"), "{:24s} {:>12s} {:>12s}", rows, 20)


def plan_private_bounds(
    n_samples: int,
    n_features: int = 1,
    *,
    quantiles: Any = (0.01, 0.99),
    epsilon: float = 1.0,
    delta: float | Auto = "auto",
    relation: Relation | Auto = "auto",
    max_rows_per_user: int | Auto = "auto",
    within: Bounds | Mapping[Any, Any] | None = None,
    precision: Precision = "exact",
    accountant: Any = None,
) -> BoundsPlan:
    """The plan of `private_bounds`; reads no data and spends nothing.

    Parameters
    ----------
    n_samples, n_features : int in [2, 1e15] and [1, 1e15]
    quantiles, epsilon, delta, relation, max_rows_per_user, within, precision, accountant
        As in `private_bounds`, as are its errors.

    Examples
    --------
    >>> from sklearn_dpsco import plan_private_bounds
    >>> plan = plan_private_bounds(5000, 3, epsilon=0.5)
    >>> plan.guarantee.epsilon
    0.5
    >>> low, high = plan.levels  # of the quantiles, as far out as the noise allows
    >>> bool(0.01 <= low < high <= 0.99)
    True
    """
    accounting = Accounting.of(epsilon, delta, relation, max_rows_per_user, precision, accountant)
    names = tuple(within) if isinstance(within, Mapping) else None
    return _plan((n_samples, n_features), quantiles, within, accounting, names)


def private_bounds(
    X: Any,
    *,
    quantiles: Any = (0.01, 0.99),
    epsilon: float = 1.0,
    delta: float | Auto = "auto",
    relation: Relation | Auto = "auto",
    max_rows_per_user: int | Auto = "auto",
    within: Bounds | Mapping[Any, Any] | None = None,
    precision: Precision = "exact",
    nonfinite: Nonfinite = "raise",
    accountant: Any = None,
    random_state: RandomState = None,
) -> PrivateBounds:
    """Private quantiles of the columns, and bounds for an estimator around them.

    Values beyond the bounds are clipped, so that slopes of columns with longer tails are too steep:
    `PrivateBounds.bounds` therefore lie twice the distance of the two quantiles beyond these. For a
    model that takes bounds for units (DPFTRL) on few rows, the quantiles themselves may be better.

    Parameters
    ----------
    X : array-like, CSR or CSC matrix of shape (n_samples, n_features), or vector (n_samples,)
        Features, or a target.
    quantiles : pair of float in (0, 1), increasing, default=(0.01, 0.99)
        Those that are aimed at, see `BoundsPlan.levels`.
    epsilon, delta, relation, precision
        As in `PrivacyBudget`; "auto" is the accountant's, or without one
        min(1e-6, 1 / (10 n_samples)) and "replace-one". delta = 0 is pure epsilon-DP, by
        permute-and-flip.
    max_rows_per_user : "auto" or int in [1, 1e15], default="auto"
        The guarantee is for all rows of a user together, of whom nobody has more than this.
        "auto" is the accountant's, or without one 1.
    within : pair (low, high), dict or None, default=None
        Outer bounds that are known, as `bounds_X`. Candidates lie within them, so they are
        finer. None needs no knowledge: candidates are quarter octaves, from 2^-64 to 2^64, and 0.
    nonfinite : {"raise", "zero"}, default="raise"
        Whether a row with NaN, an infinity or no number is an error, which tells one bit outside
        of the guarantee, or an empty record: it moves no quantile of the others.
    accountant : None, BudgetAccountant or Branch, default=None
        Is charged before anything is computed from the values. None stands for the one whose
        ``with`` block is open, if any.
    random_state : None, int or RandomState, default=None
        An int makes the result reproducible and *not private*.

    Returns
    -------
    PrivateBounds
        low < high in every column.

    Raises
    ------
    ValueError
        If a parameter or the data is wrong, or n_samples so small that noise could choose the
        bounds; or `PrivacyBudgetError` if the accountant refuses. Nothing is spent then.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPLinearRegression, private_bounds
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal([100, 0], [10, 1], (5000, 2))
    >>> found = private_bounds(X, epsilon=0.5, within=([0, -10], [1000, 10]))
    >>> bool(60 < found.low[0] < 100 < found.high[0] < 140)
    True
    >>> model = DPLinearRegression(bounds_X=found.bounds, bounds_y=(-1, 1))  # costs its own epsilon
    """
    claim = epsilon, delta, relation, max_rows_per_user, precision
    Accounting.of(*claim, accountant)
    _check_quantiles(quantiles)
    check_choice("nonfinite", nonfinite, ("raise", "zero"))
    check_random_state(random_state)
    names = column_names(X)
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        X = X.tolist()  # numpy makes no table of rows of which one is odd, and that is no vector
    with np.errstate(all="ignore"):  # what numpy warns of may be the value of one record
        table = checked_table(X, strict=nonfinite == "raise", ensure_2d=False, ensure_min_samples=2)
        is_vector = table.ndim == 1
        table = table.reshape(-1, 1) if is_vector else table
        accounting = Accounting.of(*claim, accountant)  # a block may have been opened since
        plan = _plan(table.shape, quantiles, within, accounting, names)
        accounting.warn_if_weak(plan.n_samples)
        if accounting.accountant is not None:
            is_secret = random_state is None
            accounting.accountant.spend(plan, estimator="private bounds", noise_is_secret=is_secret)
        stream = stream_from_random_state(random_state)
        low, high = plan.release(table, ~nonfinite_rows(table), stream)
    if is_vector:
        return PrivateBounds(low[0].item(), high[0].item(), None, plan, stream.is_secure)
    return PrivateBounds(low, high, names, plan, stream.is_secure)


# ------------------------------------------------------------------------------- planning


def _plan(
    shape: tuple[Any, Any], quantiles: Any, within: Any, accounting: Accounting, names: Any
) -> BoundsPlan:
    n, d = check_count("n_samples", shape[0], low=2), check_count("n_features", shape[1])
    low, high = _check_quantiles(quantiles)
    grids: tuple[Array, ...] = (_GRID,)
    prior = _LOG_PRIOR if within is None else None
    if within is not None:
        try:
            outer = feature_scaling(within, d, names)
        except ValueError as error:
            raise ValueError(str(error).replace("bounds_X", "within")) from None
        ends = list(zip(outer.low.tolist(), outer.high.tolist(), strict=True))
        grids = tuple(_candidates(*pair) for pair in (ends[:1] if len(set(ends)) == 1 else ends))

    def plan(budget: PrivacyBudget) -> BoundsPlan:
        # levels depend on the noise, and the noise on levels: first on any, then on those found
        factor, both_ends = budget.record_factor, (budget.mixed_allowance, 2 * d)
        noise = SelectVertex.calibrate(quantile_score(n, factor, 1.0), *both_ends).scale
        log_size = math.log(max(grid.size for grid in grids)) if prior is None else _LOG_SIZE
        margin = noise * (log_size + math.log(2 * d) + _MARGIN) / n
        if margin > 1 - _LEAST_LEVEL:
            least = math.ceil(n * margin / (1 - _LEAST_LEVEL))
            raise ValueError(
                f"n_samples={n} is too small for private bounds of {d} columns at epsilon="
                f"{stated(budget.epsilon)}: about {least} records are needed, or a larger epsilon"
            )
        outwards = _OUTWARDS * noise / n
        wanted = np.clip([low - outwards, high + outwards], margin, 1 - margin).tolist()
        levels = wanted[0], wanted[1]
        change = quantile_score(n, factor, max(*levels, 1 - min(levels)))
        select = SelectVertex.calibrate(change, *both_ends)
        releases = (Release("column ends", select, 2 * d),)
        guarantee = Guarantee.of(budget, releases, budget.mixed_allowance.kind)
        return BoundsPlan(n, d, levels, grids, prior, select, guarantee)

    return plan_within(accounting.of_size(n).budget, plan)


def _check_quantiles(quantiles: Any) -> tuple[float, float]:
    is_pair = isinstance(quantiles, (Sequence, np.ndarray)) and not isinstance(quantiles, str)
    if not is_pair or len(quantiles) != 2:
        raise ValueError(f"quantiles must be a pair (low, high), got {shown(quantiles)}")
    low, high = (check_share("quantiles", q) for q in quantiles)
    if not low < high:
        raise ValueError(f"quantiles must be increasing, got {shown(quantiles)}")
    return low, high


def _candidates(low: float, high: float) -> Array:
    """Steps of the width, and finer ones near the ends and near 0."""
    width = high - low
    anchors = [low + width * _FRACTIONS, high - width * _FRACTIONS]
    if low < 0 < high:
        anchors += [np.zeros(1), low * _FRACTIONS, high * _FRACTIONS]
    points = np.concatenate((np.linspace(low, high, _STEPS + 1), *anchors))
    points = np.unique(np.clip(points, low, high))
    # far enough apart for bounds
    least = max(_FINEST * max(abs(low), abs(high)), 1e-49)
    kept = [low]
    for point in points:
        if point - kept[-1] >= least and high - point >= least:
            kept.append(point)
    return np.array([*kept, high])


# ------------------------------------------------------------------------------ sensitivities


def quantile_score(n_samples: int, record_factor: float, level: float) -> float:
    """Range of the change of the scores, with a prior, for a level in [1/2, 1] (section 2.12)."""
    # scores are computed with three roundings
    change = 2.0 if record_factor == 2 else 2 * level
    return (change + 16 * UNIT_ROUNDOFF * n_samples) * PRIOR_ROOM
