r"""Second moments of a table, released once: any number of linear regressions from them.

Rows are brought into learned units (doc/privacy, sections 4.5 and 4.7), so that bounds may be too
wide and columns ill-conditioned. One symmetric matrix A of the second moments of (z, 1) is
released, with noise that is the same in all directions. With Q the way back to the user's units, a
regression of the target t on features F is that of :math:`G = Q A Q^T`. What follows from the
release costs nothing.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ._checks import (
    check_bool,
    check_choice,
    check_count,
    check_real,
    first_of,
    import_pandas,
    naming,
    saying,
    shown,
    stated,
    telling,
    warn_user,
)
from ._fitting import Accounting, PrivateEstimator, in_order
from ._types import Array, FeatureBounds
from .data.bounds import check_declared, check_feature_bounds, feature_scaling
from .data.compressed import slices
from .data.rows import SolverData, chunk_rows, row_slices, scaled_rows, sum_on_threads
from .estimates import Estimates, telling_unknown
from .exceptions import PrivacyParameterWarning
from .geometry import Geometry
from .losses import Squared
from .mechanisms import Gaussian, SelectVertex
from .preprocessing.declared import check_maker, declared_bounds, output_names, table_columns
from .preprocessing.encoder import references
from .privacy.budget import PrivacyBudget
from .privacy.guarantee import Guarantee
from .randomness.stream import RandomStream
from .solvers import statistics
from .solvers.base import Plan, Problem, SolverResult, named_releases
from .solvers.learned_units import N_CENTERS, LearnedUnits, Purse, plan_sizes
from .solvers.statistics import LONGEST, TINY, clipped_to, copied

__all__ = ["MomentsPlan", "PrivateMoments"]


_FORMAT = "sklearn_dpsco.PrivateMoments/1"
_SOME = 1.3  # rows over those with which noise hides most directions, that hide some
_LAST = math.sqrt(0.1)  # the coordinate of the intercept, beside rows of norm at most 1
# Shares of the budget; what is left is for the second moments that are published.
_SIZE, _CENTER, _ROUGH, _FAR, _PRESENT = 0.015, 0.05, 0.09, 0.02, 0.005
_TAILS = 0.07
_PAYS, _PAYS_TWICE = 4.5, 20.0  # the m over d^1.5 from which rough moments pay, and two rounds
_CUT = 1.25  # of 4.5's bound on centred rows: that is the length that few of them exceed
_TOLD = 2.0  # deviations of noise that are taken off a moment which a column has at least
_FAR_SHARE = 0.02  # of the rows, which may be cut: rows are cut by their targets, too
_OCTAVES = np.arange(0.0, 4.01, 0.5)  # of the lengths of far rows, which are told apart
_OUTSIDE = 0.07  # of normal rows exceed the root of their mean square by 1, the first length
_SKEWED = 2.5  # deviations of what columns have on one side by chance
# Rows that may be longer than a column's tail: of the noise of counts, and a part of the root of n.
_FEW, _MANY = 1.0, 8.0
_SHOWN = 2.0  # what is to be told from noise, over what eigenvalues of noise hardly ever exceed
_BEYOND = 2.0  # few normal rows exceed the root of their mean square by more
_FINEST = 1e-6  # of the moments, beside those that are large
_NO_NOISE = 1e-8  # of the largest eigenvalue: what is below is of float errors
_MOST_FEATURES, _MOST_TRIED = 1000, 12
_CLAIM = "epsilon", "delta", "relation"
_NOT_IN_JSON = "of what from_json read, the claim is in epsilon, delta and relation"
_ARRAYS = "low", "high", "width", "moments", "back"
# What `PrivateMoments.to_json` describes, after the format.
_KEYS: tuple[str, ...] = ("columns", "n_samples", *_CLAIM, "noise_is_secret", "precision")
_KEYS += (*_ARRAYS[:3], "noise_scale", "n_far", *_ARRAYS[3:], "sources")


@dataclass(frozen=True)
class MomentsPlan(Plan):
    """How second moments are released; see `Plan` for the common fields.

    Attributes
    ----------
    units : LearnedUnits
        Those of columns, and up to two rounds of rough second moments, of which `run` here makes
        units of its own: rows that are long count less there, and any column may be a target.
    tails : Gaussian or None
        On which side of the centre far rows are, for each column, by their lengths; None with fewer
        than 2 rounds.
    far : SelectVertex
        The length that `n_far` rows exceed.
    n_far : int
    moments : Gaussian
        The second moments that are published.
    """

    units: LearnedUnits
    tails: Gaussian | None
    far: SelectVertex
    n_far: int
    moments: Gaussian

    @classmethod
    def of(
        cls, n_samples: int, n_features: int, budget: PrivacyBudget, may_be_empty: bool = False
    ) -> MomentsPlan:
        """The plan for a table of this size, of which some rows may be empty."""
        d = n_features
        problem = Problem(n_samples, d, Squared(), Geometry, inference=True)
        purse = Purse(problem, budget)
        m, mean = purse.accuracy, statistics.unit_mean(problem, budget.record_factor)
        of_squares = statistics.second_moments(problem, budget)
        present = moments = sizes = tails = None
        if may_be_empty:
            present = purse.noise(statistics.unit_mean(problem, 1.0), _PRESENT)
        n_rounds = (m > _PAYS * d**1.5) + (m > _PAYS_TWICE * d**1.5)
        if n_rounds:
            moments = purse.noise(of_squares, _ROUGH, d * (d + 1) // 2, n_rounds)
        if n_rounds > 1:
            tails = purse.noise(mean, _TAILS, d * _OCTAVES.size)
            sizes = plan_sizes(purse)
        long, length, far = (purse.rank(share) for share in (_SIZE, _SIZE, _FAR))
        center = purse.noise(mean, _CENTER, d, 1 if sizes is None else N_CENTERS)
        of_rows = {"long": long, "length": length, "center": center, "sizes": sizes}
        of_rows |= {"moments": moments, "n_rounds": n_rounds, "present": present}
        units = LearnedUnits(problem, m, purse.left, **of_rows)
        wider, size = Problem(n_samples, d + 1, Squared(), Geometry), (d + 1) * (d + 2) // 2
        last = purse.noise(statistics.second_moments(wider, budget), purse.left, size)
        named = ("tails of columns", tails, 1), ("far rows", far, 1), ("all moments", last, 1)
        releases = *units.releases, *named_releases(*named)
        n_far = math.floor(min(_FAR_SHARE * n_samples, 6 * far.scale))
        guarantee = Guarantee.of(budget, releases, purse.allowance.kind)
        return cls(problem, budget, "moments", 1, guarantee, units, tails, far, n_far, last)

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """The released matrix A, and the way back Q to scaled columns, as the field `estimate`."""
        n, d = self.problem.n_samples, self.problem.n_features
        n_present = statistics.rows_present(data, self.units.present, stream)
        center, transform, usual, kept = self._units(data, n_present, stream)
        copy, least = data.map(copied, center, transform), 0.0
        if self.tails is not None:
            widths, least = self._widths(copy, usual, kept, stream)
            transform = transform / widths
            copy = data.map(copied, center, transform)
        octaves = np.arange(-4.0, 8.01, 0.125)
        # short cuts bias, and noise grows with the square of this length
        grid, prior = usual * 2.0**octaves, -3 * np.abs(octaves)
        counts = copy.sum(statistics.norm_counts, grid)
        further = prior, self.far, stream, self.n_far
        found = statistics.median_on_grid(counts, n_present, grid, *further)
        # not so long that noise hides what is usual
        bound = max(least, min(found, max(usual, 1 / math.sqrt(self._hidden(d)))))
        mean = copy.sum(joined_sum, bound) / n
        noisy = self.moments.release(statistics.isometric_vector(mean), stream)
        back = np.zeros((d + 1, d + 1))
        back[:d, :d] = np.linalg.inv(transform).T * bound / math.sqrt(1 - _LAST**2)
        back[:d, d], back[d, d] = center / _LAST, 1 / _LAST
        matrix = statistics.symmetric_matrix(noisy, d + 1)
        return SolverResult(matrix.ravel(), 0.0, 1, estimate=(matrix, back))

    def _units(
        self, data: SolverData, n_present: int, stream: RandomStream
    ) -> tuple[Array, Array, float, Array]:
        """A centre, what whitens centred rows, and a length that few of those then exceed.

        Besides, the moments of columns then: less than 1 where few rows would be long.
        """
        n, d, rough = self.problem.n_samples, self.problem.n_features, self.units.moments
        center, by, _ = self.units.release_columns(data, _CUT, n_present, stream)
        transform, usual, told, kept = by * np.eye(d), 1.0, np.zeros(d), np.ones(d)
        for t in range(self.units.n_rounds):
            assert rough is not None
            mean = data.map(copied, center, transform).sum(statistics.moment_sum) / n
            noisy = rough.release(statistics.isometric_vector(mean), stream)
            # at least so much that the way back is exact to many digits
            scale = max(math.sqrt(rough.variance), _FINEST / d**1.5)
            matrix = statistics.symmetric_matrix(noisy, d)
            squares = np.diag(matrix).copy()
            # Few rows have a column that has less than it was told to have, as they are cut: they
            # become as long as others are, where whitened ones would be far.
            kept = np.minimum(np.maximum(squares, scale) / np.maximum(told, TINY), 1.0)
            np.fill_diagonal(matrix, np.where(kept < 1, told / kept, squares))
            vector = statistics.isometric_vector(matrix)
            root, (values, _), ridge = statistics.whitening(vector, d, scale)
            size = math.sqrt(max(float(np.sum(values / (values + ridge))), TINY))
            usual = size + _BEYOND
            # rows beyond 1 are cut for the next round
            short = 1.0 if t == self.units.n_rounds - 1 else size + 1
            told = np.diag(root @ (matrix - _TOLD * scale * np.eye(d)) @ root) / short**2
            transform = transform @ root / short
        return center, transform, usual, kept

    def _widths(
        self, copy: SolverData, usual: float, kept: Array, stream: RandomStream
    ) -> tuple[Array, float]:
        """What columns are divided by: more than 1 if they are skewed and would cut rows.

        Rows that are cut by a skewed target bias its slopes, those cut by its features do not, nor
        by a target with as much on either side. But any column may be a target later.
        Besides, the norm of rows that are long in such a column and usual in others, or 0.
        """
        assert self.tails is not None
        n, d = self.problem.n_samples, self.problem.n_features
        grid = (usual - 1) * 2.0**_OCTAVES
        noisy = n * self.tails.release(copy.sum(_side_sum, grid).ravel() / n, stream)
        # rows of an octave of lengths, those of one side less those of the other
        sums, sigma = noisy.reshape(-1, d), n * math.sqrt(self.tails.variance)
        counts, noise = np.abs(sums + np.vstack((sums[1:], np.zeros(d)))), math.sqrt(2) * sigma
        by_chance = np.hypot(noise, math.sqrt(_OUTSIDE * n / d) * 2.0 ** (-1.5 * _OCTAVES))
        # more where a tail that is none would cost more
        is_clear = counts > ((_SKEWED + _OCTAVES) * by_chance)[:, None]
        # few rows are longer, if their number falls with the third power of the length
        few = max(_FEW * sigma, math.sqrt(n) / _MANY)
        ends = grid[:, None] * ((counts + noise) / few) ** (1 / 3)
        ends[:-1][np.logical_or.accumulate(is_clear[:0:-1])[::-1]] = np.inf
        # less what other columns have of that length
        ends = np.sqrt(np.maximum(ends.min(axis=0) ** 2 - (usual - _BEYOND) ** 2, 0.0))
        # of this length in one column, and usual in others, rows are not far
        short = math.sqrt(2 * (usual - 1))
        # not so wide that noise hides what is not far
        squares = np.maximum(np.sum(is_clear * counts * grid[:, None] ** 2, axis=0) / n, kept)
        widest = np.maximum(np.sqrt(squares / self._hidden(1)) / usual, 1.0)
        widths = np.where(is_clear.any(axis=0), np.clip(ends / short, 1.0, widest), 1.0)
        least = math.sqrt(max(short**2 + (usual - _BEYOND) ** 2 - 1, 0.0))
        return widths, least * bool((widths > 1).any())

    def _hidden(self, r: int) -> float:
        """What noise hides in r directions, with some room; more than float errors do."""
        return max(_SHOWN * float(_edge(math.sqrt(self.moments.variance), r)), _NO_NOISE)


def _edge(scale: float, r: Any) -> Any:
    """What eigenvalues of noise alone hardly ever exceed, in r directions."""
    return scale * (np.sqrt(2 * r) + 3)


def _side_sum(copy: SolverData, grid: Array) -> Array:
    """Sums of squares with their signs, of rows of length 1, by place in a grid of lengths.

    Each row is in one place or, if it is shorter than the grid, in none: its numbers are of norm
    at most 1.
    """
    x, _, norms = copy.numbers
    places, weights = np.searchsorted(grid, norms) - 1, LONGEST / np.maximum(norms, grid[0])

    def added(part: slice) -> Array:
        z = x[part] * weights[part, None]
        is_there = places[part] == np.arange(grid.size)[:, None]
        return np.asarray(is_there.astype(np.float64) @ (z * np.abs(z)))

    return np.asarray(sum_on_threads(added, row_slices(x)))


def joined_sum(copy: SolverData, bound: float) -> Array:
    """Sum of v v^T, v the rows over a bound and an intercept's coordinate, of norm at most 1."""
    x, _, norms = copy.numbers
    weights = LONGEST * clipped_to(bound, norms)

    def added(part: slice) -> Array:
        v = np.full((part.stop - part.start, x.shape[1] + 1), _LAST)
        np.multiply(x[part], math.sqrt(1 - _LAST**2) / bound, out=v[:, :-1])
        v *= weights[part, None]
        return np.asarray(v.T @ v)

    start = np.zeros((x.shape[1] + 1,) * 2)
    rows = chunk_rows(len(x), x.shape[1] + 1)  # as the plan counts float errors
    return np.asarray(sum_on_threads(added, slices(len(x), rows), start))


def _lost_without(places: Sequence[int], found: Estimates, n: float) -> float:
    """Twice the log-likelihood that is lost without these coefficients, in n rows.

    Of normal errors, n log(1 + W / df), W the Wald statistic: without noise 1 + W / df is the ratio
    of sums of squared residuals, and with noise W is smaller. -inf where noise hides a direction.
    """
    if found.unknown is not None and found.unknown.size:
        return -math.inf
    if not places:
        return 0.0
    test = found.wald_test(np.eye(found.coef.size)[list(places)])
    return n * math.log1p(test.statistic * test.df_num / max(n - found.coef.size, 1.0))


@telling(
    dict.fromkeys(("guarantee_", "plan_"), _NOT_IN_JSON)
    | dict.fromkeys(("summary", "conf_int", "wald_test", "coef_", "predict"), "see regression")
)
@naming({"bounds_y": "bounds_X has those of all columns", "bounds": "say bounds_X"}.get)
@in_order
@dataclass(kw_only=True, repr=False, eq=False)
class PrivateMoments(PrivateEstimator, BaseEstimator):
    r"""Second moments of all columns of a table under differential privacy, released once.

    From them, without further budget, follow any number of linear regressions with intervals, their
    ridge paths and goodness of fit: for tables on which many regressions are run. What else is a
    function of second moments (principal components, say) is one of `covariance_`. The release
    itself can be published (`to_json`).

    Of least squares alone: logistic regressions, and those of counts and costs with a log link, do
    not follow from second moments, and need fits of their own.

    Parameters
    ----------
    epsilon, delta, relation, max_rows_per_user
        As of `DPLinearRegression`; `max_rows_per_user` above 1 has intervals for rows, not users,
        and is refused.
    bounds_X : pair (low, high), dict or transformer
        Public bounds of all columns, features and targets alike, as of `DPLinearRegression`, which
        must be given and may be far too wide. Of columns that a `PublicEncoder` given here has
        made, alone or in a `ColumnTransformer`, all results are under the names of its outputs and
        in the units of its table.
    precision : {"exact", "float"}, default="exact"
    nonfinite : {"raise", "zero"}, default="raise"
        Whether a row with a value that is missing or no number is an error, or counts as none.
    accountant : None, BudgetAccountant or Branch, default=None
    random_state : None, int or RandomState, default=None
        An int makes the release reproducible and *not private*.

    Attributes
    ----------
    mean_ : ndarray of shape (n_columns,)
    covariance_ : ndarray of shape (n_columns, n_columns)
        In the units of the table. With noise: small eigenvalues may be negative.
        Of columns with long tails variances, and a little also means, are too small, as rows that
        are far out count less: of a count with 68 % zeros (6,366 rows of nine columns, replace-one)
        .58, .74 and .86 of the true variance at epsilon 1, 3 and 8, and .87, .94 and .98 of the
        mean.
    n_features_in_, feature_names_in_
    plan_ : MomentsPlan
    guarantee_ : Guarantee
    noise_is_secret_ : bool

    Notes
    -----
    With u the vector of a regression's residual, :math:`y - x^T b = u^T (x, y, 1)`, coefficients
    err by :math:`G_{FF}^{-1} (E u)_F` for noise E in G. In the units of the release E has the
    same law in all directions, and :math:`\mathrm{Cov}(E w) = \tfrac{s^2}{2} (|w|^2 I + w w^T)`,
    :math:`w = Q^T u`. By sampling they vary by :math:`\sigma^2 G_{FF}^{-1} / n`: second moments
    hold no fourth ones, so that one variance is assumed for all rows.
    The few rows that are far out in the learned units count less. Columns with a long tail on one
    side are widened, so that as targets they hardly cut rows, which would draw slopes to 0: with
    longer tails (98 % zeros) they still do. (doc/privacy, section 4.7)

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_dpsco import PrivateMoments
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.uniform(20, 80, 9000), "dose": rng.uniform(0, 9, 9000)})
    >>> table["pressure"] = 100 + 0.5 * table["age"] - table["dose"] + rng.normal(0, 9, 9000)
    >>> bounds = {"age": (0, 120), "dose": (0, 10), "pressure": (50, 250)}
    >>> moments = PrivateMoments(epsilon=1.0, bounds_X=bounds).fit(table)
    >>> one = moments.regression("pressure", ["age", "dose"])
    >>> low, high = one.conf_int().loc["age"]
    >>> bool(low < 0.6 and high > 0.4)
    True
    >>> other = moments.regression("dose", ["age"])  # costs nothing more
    """

    bounds_X: FeatureBounds | None = None

    def _accounting(self) -> Accounting:
        check_feature_bounds(self.bounds_X)
        accounting = super()._accounting()
        if accounting.budget.is_pure:
            raise ValueError("PrivateMoments has no pure-DP form (delta=0)")
        if accounting.budget.rows_per_user > 1:
            raise ValueError("PrivateMoments needs max_rows_per_user=1: its intervals are of rows")
        return accounting

    def plan(self, n_samples: int, n_features: int) -> MomentsPlan:
        """The plan that `fit` would follow on a table of this size; spends nothing.

        Parameters
        ----------
        n_samples : int in [2, 1e15]
        n_features : int in [1, 1000]
            Number of columns, targets included; at most ``n_samples - 2``.
        """
        accounting = self._accounting()
        n = check_count("n_samples", n_samples, low=2)
        d = check_count("n_features", n_features, high=_MOST_FEATURES)
        check_feature_bounds(self.bounds_X, d)
        if n < d + 2:
            raise ValueError(
                f"n_samples={n} must be larger than the number of columns, {d}, by two or more: "
                "take fewer columns"
            )
        plan = accounting.plan(n, lambda b: MomentsPlan.of(n, d, b, not self._is_strict))
        usual = (1 - _LAST**2) / (math.sqrt(d) + _BEYOND) ** 2
        hidden = _edge(math.sqrt(plan.moments.variance), d + 1) / usual
        if hidden > 1 / _SOME:  # from 1 on, noise hides most directions
            warn_user(
                f"n_samples={n} is too small for regressions on all of {d} columns at epsilon="
                f"{stated(plan.budget.epsilon)}: {'most' if hidden > 1 else 'some'} intervals may "
                "be the whole line; take fewer columns, or a larger epsilon",
                PrivacyParameterWarning,
            )
        return plan

    @saying(
        {
            "groups": "nothing where each person has one row. Of several rows a person, "
            "DPLinearRegression(max_rows_per_user=..., inference=True) takes groups",
            "sample_weight": "nothing, as each row counts once: DPLinearRegression takes weights",
        }
    )
    def fit(self, X: Any, y: Any = None) -> Self:
        """Release the second moments of all columns of X.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_columns)
            With the targets among the columns. Values outside `bounds_X` are clipped.
        y : None
            A `ValueError` says that targets are columns of X.

        Raises
        ------
        ValueError
            If a parameter or the table is wrong, or has fewer than two rows more than columns; or
            `PrivacyBudgetError` if the accountant refuses. Nothing is spent then.
        """
        self._accounting()  # a parameter that is wrong is named before the data
        if y is not None:
            raise ValueError(
                "fit takes one table: put the targets of linear regressions among the columns of "
                "X. Models of classes, counts and costs need fits of their own"
            )
        if sparse.issparse(X):
            raise ValueError("PrivateMoments takes dense X: toarray() it")
        with np.errstate(all="ignore"):  # what numpy warns of may be the value of one record
            with self._until_spent():
                check_maker(self.bounds_X, X)
                X = self._features(X, reset=True, min_samples=2)
                check_declared("PrivateMoments", bounds_X=self.bounds_X)
                n, d = X.shape
                bounds, _ = declared_bounds(self.bounds_X, d)
                known = feature_scaling(bounds, d, self._feature_names())
                plan, columns = self.plan(n, d), self._encoded()
                self._spend(self._accounting().accountant, plan)  # a block may have been opened
            stream = self._noise_of("moments")
            data = SolverData(scaled_rows(X, known, True, False), np.zeros(n))
            matrix, back = plan.run(data, stream).estimate
        scale, shift = np.ones(d), np.zeros(d)
        if columns:
            scale, shift = np.array([(column.width, column.shift) for column in columns]).T
        to_data = np.diag(np.append(known.width * scale, 1.0))
        to_data[:d, d] = known.shift * scale + shift
        self._keep_claim(plan, stream)
        released = {name: getattr(plan.guarantee, name) for name in _CLAIM}
        released |= {"columns": self._names, "sources": [column.source for column in columns]}
        released |= {"n_samples": n, "n_far": plan.n_far, "noise_is_secret": self.noise_is_secret_}
        released |= {"noise_scale": math.sqrt(plan.moments.variance), "precision": self.precision}
        low, high = (end * scale + shift for end in (known.low, known.high))
        arrays = low, high, known.width * scale, matrix, to_data @ back
        return self._with(released | dict(zip(_ARRAYS, arrays, strict=True)))

    @np.errstate(all="ignore")  # numbers that noise hides may be divided by next to nothing
    def _with(self, released: dict[str, Any]) -> Self:
        """Keep what is released, and what follows from it at once."""
        self._released = released
        whole = released["back"] @ released["moments"] @ released["back"].T
        d = len(whole) - 1
        # of the rows' weights, which are 1 but for those far out and those that are empty
        self._total = max(float(whole[d, d]), TINY)
        # (where noise hides it, means of next to no weight would be anywhere)
        total = max(self._total, released["noise_scale"] * float(np.sum(released["back"][d] ** 2)))
        self.mean_ = whole[:d, d] / total
        self.covariance_ = whole[:d, :d] / total - np.outer(self.mean_, self.mean_)
        self._references = references(self.bounds_X)
        return self

    def _encoded(self) -> list[Any]:
        """What encoders in `bounds_X` tell of its columns, which get their names; [] of others."""
        if (columns := table_columns(self.bounds_X)) is None:
            return []
        pairs = zip(output_names(self.bounds_X), self._names, strict=True)
        names = [own if name is None else name for name, own in pairs]
        if self._feature_names() not in (None, names):
            return []  # X was renamed, or made otherwise
        self.feature_names_in_ = np.array(names, dtype=object)
        return list(columns)

    # -------------------------------------------------------------------- post-processing

    def _places(self, target: Any, features: Any) -> tuple[int, list[int]]:
        """The columns that are meant, by name or number."""
        check_is_fitted(self)
        names, sources, found = self._names, self._released["sources"], []
        is_one = isinstance(features, (str, int, np.integer))
        given = [features] if is_one else () if features is None else features
        for k, column in enumerate((target, *given)):
            is_number = isinstance(column, (int, np.integer)) and not isinstance(column, bool)
            if column in names:
                found.append(names.index(column))
            elif is_number and 0 <= column < len(names):
                found.append(int(column))
            elif k > 0 and column in sources:  # all its categories
                found += [place for place, source in enumerate(sources) if source == column]
            else:
                known = f": it has {first_of(list(map(str, names)))}"
                raise ValueError(f"the table has no column {shown(column)}{known}")
        at, *chosen = found
        if features is None:
            return at, [k for k in range(len(names)) if k != at]
        if at in chosen or len(set(chosen)) < len(chosen) or not chosen:
            raise ValueError("features must be different columns without the target, at least one")
        return at, chosen

    def regression(
        self, target: Any, features: Any = None, *, fit_intercept: bool = True, ridge: float = 0.0
    ) -> Estimates:
        """The least squares regression of a column on others, with intervals.

        Parameters
        ----------
        target : str or int
            Name or number of a column.
        features : str, list of str or int, or None, default=None
            None: all other columns. The name of a list of categories in the table of a
            `PublicEncoder` stands for all its columns.
        fit_intercept : bool, default=True
        ridge : float >= 0, default=0
            Is added to the variance of each column of variance 1. Above 0 coefficients are drawn
            towards 0, and intervals do not cover those of least squares.

        Returns
        -------
        Estimates
            Its intervals cover sampling, if all rows have the same variance about their mean, and
            the noise of the release. A column that hardly varies has the whole line, which a note
            says.

        Raises
        ------
        ValueError
            If there is no such column, a column is meant twice, or `ridge` is negative.
        """
        at, chosen = self._places(target, features)
        ridge = check_real("ridge", ridge, low=0)
        release = self._released
        n, n_far, scale = release["n_samples"], release["n_far"], release["noise_scale"]
        matrix, back = release["moments"], release["back"]
        used = [*chosen, len(back) - 1] if check_bool("fit_intercept", fit_intercept) else chosen
        widths = np.append(release["width"][chosen], np.zeros(len(used) - len(chosen)))
        # orthogonal directions in the units of the release, where noise is the same in all of them
        unit, triangle = np.linalg.qr(back[used].T)
        turn = np.linalg.inv(triangle)  # coefficients of columns from those of directions
        penalty = np.append(ridge * self._total * self.covariance_.diagonal()[chosen], np.zeros(1))
        penalty, gram = np.maximum(penalty[: len(used)], 0.0), unit.T @ matrix @ unit
        values, vectors = np.linalg.eigh(gram + (turn.T * penalty) @ turn)
        r, least = np.arange(1, len(values) + 1), _NO_NOISE * values[-1]
        n_weak = int(np.max(r * (values <= np.maximum(_edge(scale, r), least)), initial=0))
        weak, strong = vectors[:, :n_weak], vectors[:, n_weak:] / np.sqrt(values[n_weak:])
        bread = strong @ strong.T
        found = bread @ (unit.T @ (matrix @ back[at]))
        w = back[at] - unit @ found  # the residual, as weights of the release's coordinates
        across, size = unit.T @ w, float(w @ w)
        noise = scale**2 / 2 * (size * np.eye(len(used)) + np.outer(across, across))
        # a fit takes a part of the noise out of its residuals
        least = scale * size
        total = max(float(w @ matrix @ w) + scale**2 / 2 * size * float(np.trace(bread)), least)
        variance = total * n / max(n * self._total - len(used), 1.0)
        unknown, gram_of_turn = turn @ weak, turn @ turn.T
        if n_weak:  # of what is unknown, the least in units of the bounds
            lengths_of = np.where(widths > 0, widths, 1.0)[:, None]
            turn = turn - unknown @ np.linalg.lstsq(lengths_of * unknown, lengths_of * turn)[0]
        coef = turn @ found
        # there, the largest error of an effect over its width is three times the largest effect
        unsure = unknown / np.maximum(np.abs(unknown * widths[:, None]).max(axis=0), TINY)
        unsure *= 3 * float(np.max(np.abs(coef * widths), initial=0.0)) / math.sqrt(max(1, n_weak))
        far = f"{n} rows, of which about {n_far} that are far out count less"
        estimates = Estimates(
            names=tuple(self._names[k] for k in chosen),
            sources=tuple(release["sources"][k] for k in chosen if release["sources"]),
            is_named=self._feature_names() is not None,
            coef=coef[None],
            sampling=variance / n * turn @ bread @ gram @ bread @ turn.T,
            noise=turn @ bread @ noise @ bread @ turn.T + unsure @ unsure.T,
            doubt=least / total,
            unknown=unknown,
            gram=gram_of_turn,
            residual_std=np.array([math.sqrt(variance)]),
            title=f"{self._names[at]} by least squares from private moments",
            notes=(far, "sampling: under one variance of all rows about their means"),
            void=f"ridge={ridge:g} shrinks: intervals do not cover least squares" * bool(ridge),
        )
        return telling_unknown(estimates, self._references)

    def goodness_of_fit(
        self, target: Any, features: Any = None, *, against: Any = None
    ) -> dict[str, float]:
        r"""R2, adjusted R2, AIC and BIC of a regression, and how far noise moves them.

        Parameters
        ----------
        target, features
            As in `regression`.
        against : str, list of str or int, or None, default=None
            Features of another regression of the target, with which this one is compared.

        Returns
        -------
        dict with "r2", "r2_noise", "r2_adjusted", "aic", "bic" and "aic_noise"
            "r2_noise" is the standard deviation of "r2" by the noise of the release, without
            sampling, and "aic_noise" that of "aic" and of "bic". With `against` it is that of their
            differences from those of the other regression, which is far smaller, as most noise is
            common to both. Differences that are not well above it tell nothing. "aic" and "bic"
            are of normal errors, as statsmodels counts them, for about as many rows as are not
            empty and not shortened, so that differences alone compare with those of other tables;
            with noise they prefer too many features, so choose by `select`. All are NaN where noise
            hides a direction of the columns: take fewer.

        Notes
        -----
        To leading order noise E in A moves R2 by :math:`\mathrm{tr}(E M)`, of standard deviation
        :math:`s |M|_F`, and AIC by such a term less :math:`(E w)^T K (E w)`, which is what features
        of no use gain.
        """
        at, chosen = self._places(target, features)
        w, ml, moved, curved = self._residual(at, chosen)
        if against is not None:
            other = self._residual(*self._places(target, against))
            moved, curved = moved - other[2], curved - other[3]
        n, k = self._released["n_samples"] * self._total, len(chosen) + 1
        variance = max(float(self.covariance_[at, at]), TINY)
        back, scale = self._released["back"], self._released["noise_scale"]
        # v is the residual of the regression on a constant
        v, left = back[at] - self.mean_[at] * back[-1], ml / variance
        of_r2 = (np.outer(w, w) - left * np.outer(v, v)) / (variance * self._total)
        spread = scale / math.sqrt(2) * ((w @ w) * curved + np.outer(curved @ w, w))
        of_aic = math.sqrt(np.sum(moved**2) + np.sum(spread * spread.T))
        deviance = n * (math.log(2 * math.pi * ml) + 1)
        found = {
            "r2": 1 - left,
            "r2_noise": scale * float(np.linalg.norm(of_r2)),
            "r2_adjusted": 1 - left * (n - 1) / max(1.0, n - k),
            "aic": deviance + 2 * k,
            "bic": deviance + math.log(max(n, 1.0)) * k,
            "aic_noise": scale * of_aic,
        }
        return found if np.isfinite(of_aic) else dict.fromkeys(found, math.nan)

    def _residual(self, at: int, chosen: list[int]) -> tuple[Array, float, Array, Array]:
        """Of a regression: w, the residual's variance, and the M and K by which noise moves AIC.

        All are NaN where noise hides a direction of the columns.
        """
        found, n = self.regression(at, chosen), self._released["n_samples"]
        back = self._released["back"]
        used, variance = back[[*chosen, -1]], float(found.residual_std[0]) ** 2
        w, total = back[at] - found.coef[0] @ used, n * self._total
        ml = max(variance * max(total - len(used), 1.0) / total, TINY)
        if found.unknown is not None and found.unknown.size:
            w, ml = w * math.nan, math.nan
        level = math.log(2 * math.pi * ml) * np.outer(back[-1], back[-1])
        moved = n * (np.outer(w, w) / ml + level)
        curved = n**2 / (ml * variance) * used.T @ found.sampling @ used
        return w, ml, moved, curved

    def ridge_path(self, target: Any, features: Any, penalties: Sequence[float]) -> Array:
        """Coefficients without the intercept for each of several `ridge`, without intervals.

        Parameters
        ----------
        target, features
            As in `regression`.
        penalties : float >= 0, or a sequence of them

        Returns
        -------
        ndarray of shape (n_penalties, n_features)
        """
        found = (self.regression(target, features, ridge=r) for r in np.atleast_1d(penalties))
        return np.array([one.coef[0, :-1] for one in found])

    def select(
        self, target: Any, features: Any = None, *, criterion: str = "bic", method: str = "forward"
    ) -> Estimates:
        """The regression on features that are chosen by AIC or BIC, at least one.

        Noise counts: a feature has to gain more than the noise of the release explains, in
        standard errors of `regression`. Without noise these are the usual criteria.

        Parameters
        ----------
        target, features
            As in `regression`: from these.
        criterion : {"bic", "aic"}, default="bic"
        method : {"forward", "best"}, default="forward"
            Step by step, or the best of all subsets of at most 12 features.

        Returns
        -------
        Estimates
            Which says, and whose methods warn, that intervals after a choice on the same release do
            not cover.
        """
        check_choice("criterion", criterion, ("bic", "aic"))
        check_choice("method", method, ("forward", "best"))
        at, given = self._places(target, features)
        if method == "best" and len(given) > _MOST_TRIED:
            raise ValueError(
                f"method='best' tries all subsets of at most {_MOST_TRIED} features, got "
                f"{len(given)}: take method='forward', or name fewer features"
            )
        n = self._released["n_samples"] * self._total
        chosen: list[int] = []
        price = 2.0 if criterion == "aic" else math.log(max(n, 1.0))
        while left := [k for k in given if k not in chosen]:
            place = [len(chosen)]
            gains = [_lost_without(place, self.regression(at, [*chosen, k]), n) for k in left]
            if chosen and max(gains) <= (price if method == "forward" else -math.inf):
                break
            chosen.append(left[gains.index(max(gains))])
        if method == "best":  # subsets of those that noise does not hide
            whole, places = self.regression(at, chosen), range(len(chosen))
            subsets = [some for k in places for some in itertools.combinations(places, k)]
            spared = min(subsets, key=lambda s: _lost_without(s, whole, n) - price * len(s))
            chosen = [k for k in given if k in chosen and chosen.index(k) not in spared]
        void = f"features were chosen by {criterion} on this release: intervals do not cover"
        return replace(self.regression(at, chosen), void=void)

    # ---------------------------------------------------------------------- to be published

    def to_json(self) -> str:
        """The release and its claim as JSON, which may be published.

        The keys, in this order: "format"; "columns", their names; "n_samples"; "epsilon" (null for
        infinity), "delta" and "relation", the claim; "noise_is_secret"; "precision", without which
        it is "exact"; "low" and "high", the declared bounds, "width", that which is 1 in scaled
        columns; "noise_scale", the standard deviation of the noise on the diagonal of A, sqrt(2)
        times that beside it; "n_far", how many rows count less, about; "moments", the matrix A;
        "back", the matrix Q, with which ``Q A Q^T`` are the second moments of (columns, 1);
        "sources", of which columns of a table the encoder in `bounds_X` made them, if it did.
        Numbers are written so that the regressions that `from_json` makes of them are the same to
        the bit.
        """
        check_is_fitted(self)
        facts = {"format": _FORMAT, **{key: self._released[key] for key in _KEYS}}
        if math.isinf(facts["epsilon"]):
            facts["epsilon"] = None
        return json.dumps(facts, default=np.ndarray.tolist, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote: all methods work, but the plan and its releases are not there.

        Raises
        ------
        ValueError
            If the text is not such a release, or not a whole one.
        """
        wrong = ValueError(
            f"text is not a whole release of the format {_FORMAT!r}: of a file give what is in it, "
            "Path(...).read_text()"
        )
        try:
            # (older ones lack these)
            facts = {"sources": (), "precision": "exact", **json.loads(text)}
            if facts["format"] != _FORMAT:
                raise wrong
            released = {key: facts[key] for key in _KEYS}
            released |= {key: np.array(facts[key], dtype=np.float64) for key in _ARRAYS}
            released |= {key: list(map(str, facts[key])) for key in ("columns", "sources")}
            for key, least in (("n_samples", 1), ("n_far", 0)):
                check_count(key, facts[key], low=least)
            check_real("noise_scale", facts["noise_scale"], low=0)
            check_bool("noise_is_secret", facts["noise_is_secret"])
            check_choice("precision", facts["precision"], ("exact", "float"))
        except (KeyError, TypeError, ValueError):
            raise wrong from None
        if released["epsilon"] is None:
            released["epsilon"] = math.inf
        d, shapes = len(released["columns"]), [released[key].shape for key in _ARRAYS]
        if shapes != [(d,)] * 3 + [(d + 1, d + 1)] * 2 or len(released["sources"]) not in (0, d):
            raise wrong
        claim = {name: released[name] for name in (*_CLAIM, "precision")}
        made = cls(**claim, bounds_X=(released["low"], released["high"]))
        made._accounting()
        made.n_features_in_ = d
        made.feature_names_in_ = np.array(released["columns"], dtype=object)
        made.noise_is_secret_ = released["noise_is_secret"]
        return made._with(released)

    def to_frame(self) -> Any:
        """`covariance_` as a pandas data frame with the names of the columns."""
        check_is_fitted(self)
        return import_pandas("to_frame").DataFrame(self.covariance_, self._names, self._names)
