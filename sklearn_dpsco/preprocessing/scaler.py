"""A private scaler, by the search of `HeavyTailDP*` with another division of the budget.

Nothing follows here that needs a part of it. Sensitivities: doc/privacy, section 7.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._checks import check_bool, check_count, check_size, stated, warn_user
from .._fitting import Accounting, PrivateEstimator, in_order
from .._overview import Overviewed
from .._types import FeatureBounds
from ..data.bounds import check_feature_bounds, feature_scaling, guessed_feature_scaling
from ..data.cells import check_order, clear_rows, nonfinite_rows
from ..data.compressed import stored_places, with_values
from ..data.rows import SolverData, scaled_rows
from ..exceptions import PrivacyParameterWarning
from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from ..solvers.base import Frame
from ..solvers.heavy_tail.magnitudes import Columns, MagnitudeSearch
from .declared import declared_bounds
from .schema import OutputColumn

_SCALES_SHARE = 0.45  # of the budget, at most, for scales next to centres
# Of a column of which a share p is not 0, a scale that is far off has exp(-p / (2 b)) times the
# weight of the best, b being the scale of the noise. Up to _CLEAR each column's scale is looked for
# among all; up to _UNCLEAR around one scale for all columns; above that there is only this one,
# and none if its noise is above _HOPELESS.
_CLEAR, _UNCLEAR, _HOPELESS = 1 / 125, 1 / 6, 1 / 12
# Up to which noise in the centres, in units of the scale, there are so many rounds: each divides
# the distance of a centre from the middle of its column by about the inverse of that noise.
_ROUNDS = ((3, 0.1), (2, 0.3), (1, 1.0))


@dataclass(frozen=True)
class ScalerPlan(Overviewed):
    """How the centres and scales of columns are released; made before any data is read.

    Attributes
    ----------
    n_samples, n_features : int
    search : MagnitudeSearch or None
        None if there are so few records that only noise would be released. Then scales are 1, or
        half the widths of the bounds.
    guarantee : Guarantee
    """

    _headline = "scales of {0.n_features} columns on {0.n_samples} records"

    n_samples: int
    n_features: int
    search: MagnitudeSearch | None
    guarantee: Guarantee

    @classmethod
    def of(
        cls, n_samples: int, n_features: int, budget: PrivacyBudget, with_centering: bool
    ) -> ScalerPlan:
        """The plan for a table of this size."""
        allowance = budget.mixed_allowance
        columns = Columns("feature", n_samples, n_features, budget.record_factor, allowance)
        # the search with most rounds whose noise allows them; none if all of it is too noisy
        rounds = (*_ROUNDS, (0, math.inf)) if with_centering else ((0, math.inf),)
        searches = (_search(columns, n_rounds, most) for n_rounds, most in rounds)
        search = next((found for found in searches if found is not None), None)
        releases = () if search is None else search.releases
        return cls(n_samples, n_features, search, Guarantee.of(budget, releases, allowance.kind))

    def release(self, data: SolverData, stream: RandomStream) -> Frame:
        """Centres and scales of the columns of a table without bounds."""
        if self.search is None:
            return Frame(center=np.zeros(self.n_features), scale=np.ones(self.n_features))
        return self.search.run(data, stream)


def _search(columns: Columns, n_rounds: int, most_noise: float) -> MagnitudeSearch | None:
    """The search with that many rounds, None if its scales or its centres are too noisy."""
    d, n_times = columns.n_columns, n_rounds + 1
    most = _SCALES_SHARE if n_rounds else 1.0
    shared, scales = 0.0, columns.selection_share(d * n_times, most, _CLEAR if d > 1 else _HOPELESS)
    if d > 1 and not scales:
        shared = columns.selection_share(1, most / 3, _HOPELESS)
        if shared:
            scales = columns.selection_share(d * n_times, most - shared, _UNCLEAR)
    if d > 1 and not scales:  # one scale for all columns
        shared = columns.selection_share(n_times, most, _HOPELESS)
    if not shared and not scales:
        return None
    rest = 1 - shared - scales if n_rounds else 0.0
    found = columns.search(n_rounds, rest, shared, scales)
    if found.center is not None and not math.sqrt(found.center.variance) <= most_noise:
        return None
    return found


@in_order
@dataclass(kw_only=True, repr=False, eq=False)
class DPScaler(PrivateEstimator, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Scale columns of which nothing is known, by private centres and spreads.

    A value x of column j becomes :math:`(x - m_j) / s_j`, clipped to [-clip, clip]. The
    released :math:`s_j` is the power of two at which about half of the squared deviations, each
    counted as at most :math:`s_j^2`, is there: between .7 and 1.6 standard deviations of normal
    columns, and hardly moved by gross errors. The released :math:`m_j` is a mean of values within
    two scales of it. The output's bound is public, so a next step may declare
    ``bounds_X=(-clip, clip)``.

    Parameters
    ----------
    epsilon : float in [1e-15, 1e9] or inf, default=1.0
        Privacy loss of the centres and scales together; inf adds no noise. A model that is fitted
        on the outputs costs its own epsilon on top.
    delta : "auto" or float in [0, 1), default="auto"
        As in the estimators: "auto" is min(1e-6, 1 / (10 n)), or the accountant's. 0 is pure DP.
    relation : {"auto", "replace-one", "zero-out"}, default="auto"
        Which tables are neighbours, see `PrivacyBudget`. "auto" is the accountant's, or without one
        "replace-one".
    max_rows_per_user : "auto" or int in [1, 1e15], default="auto"
        The guarantee is for all rows of one person together, of whom nobody has more than this.
    bounds_X : pair (low, high), dict or None, default=None
        Rough outer bounds, if known, as in the estimators. Values outside are clipped. The search
        then starts from their middle and half width.
    with_centering : bool, default=True
        Must be False for sparse X.
    with_scaling : bool, default=True
        False leaves values in their units, as well as `clip`. Centres need scales, so they are
        released nonetheless.
    clip : float in [1e-50, 1e50], default=16.0
        Public bound of the output. Of values beyond it coefficients are biased: 4 cuts skewed
        columns, 16 only very long tails, such as a few in 1,000 of lognormal(0, 1). Models that
        take the bounds for units (DPFTRL) want ``bounds_X=(-4, 4)`` where noise is large.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise, see `PrivacyBudget`.
    nonfinite : {"raise", "zero"}, default="raise"
        "raise": a row with NaN, an infinity or no number is an error, in `fit` before anything is
        spent; that tells one bit outside of the guarantee. "zero": it contributes nothing to
        `fit`, and becomes a row of NaN in `transform`: a model behind it needs ``nonfinite="zero"``
        as well, and leaves the record out, too.
    accountant : None, BudgetAccountant or Branch, default=None
        Where `fit` charges its guarantee before anything is computed from the values. None stands
        for the accountant whose ``with`` block is open, if any.
    random_state : None, int or RandomState, default=None
        An int or a RandomState makes the result reproducible and *not private*.

    Attributes
    ----------
    center_, scale_ : ndarray of shape (n_features,)
        Private: they may be published.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X had column names.
    plan_ : ScalerPlan
    guarantee_ : Guarantee
        epsilon, delta, relation, and the releases that prove them.
    noise_is_secret_ : bool
        False if `random_state` was given.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPScaler
    >>> X = np.random.default_rng(0).normal([2000, 0], [5, 1e-3], (5000, 2))
    >>> scaler = DPScaler(random_state=0).fit(X)  # an int for the example: not private
    >>> bool(np.abs(scaler.transform(X)).max() <= scaler.clip)
    True
    """

    bounds_X: FeatureBounds | None = None
    with_centering: bool = True
    with_scaling: bool = True
    clip: float = 16.0

    def _accounting(self) -> Accounting:
        centering = check_bool("with_centering", self.with_centering)
        if not check_bool("with_scaling", self.with_scaling) and not centering:
            raise ValueError("with_centering=False and with_scaling=False leave nothing to learn")
        check_size("clip", self.clip)
        check_feature_bounds(self.bounds_X)
        return super()._accounting()

    def _features(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        table = super()._features(X, reset=reset, min_samples=min_samples)
        if sparse.issparse(table) and self.with_centering:
            raise ValueError("sparse X needs with_centering=False: centres shift its zeros")
        return table

    def plan(self, n_samples: int, n_features: int) -> ScalerPlan:
        """The plan that `fit` would follow on data of this size; spends nothing.

        Parameters
        ----------
        n_samples, n_features : int in [2, 1e15] and [1, 1e15]

        Examples
        --------
        >>> from sklearn_dpsco import DPScaler
        >>> DPScaler(epsilon=0.5).plan(n_samples=5000, n_features=3).guarantee.epsilon
        0.5
        """
        accounting = self._accounting()
        n = check_count("n_samples", n_samples, low=2)
        d = check_count("n_features", n_features)
        check_feature_bounds(self.bounds_X, d)
        plan = accounting.plan(n, lambda b: ScalerPlan.of(n, d, b, self.with_centering))
        if plan.search is None:
            warn_user(
                f"n_samples={n} is too small for private scales of {d} columns at "
                f"epsilon={stated(plan.guarantee.epsilon)}: none are released, and columns are "
                "divided by 1, or by the half width of their bounds_X",
                PrivacyParameterWarning,
            )
        return plan

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn the centres and scales.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix} of shape (n_samples, n_features)
        y : ignored, but for the index of a Series
        groups : array-like of shape (n_samples,) or None, default=None
            The user whom each row belongs to: of each, the first `max_rows_per_user` rows count.

        Raises
        ------
        ValueError
            If a parameter or the data are wrong; or `PrivacyBudgetError` if the accountant refuses
            the charge. Nothing is spent then.
        """
        self._accounting()  # a parameter that is wrong is named before the data
        check_order(X=X, y=y, groups=groups)
        with np.errstate(all="ignore"):  # what numpy warns of may be the value of one record
            with self._until_spent():
                X = self._features(X, reset=True, min_samples=2)
                known = guessed_feature_scaling(0.0, 1.0, X.shape[1])
                if self.bounds_X is not None:
                    bounds, _ = declared_bounds(self.bounds_X, X.shape[1])
                    known = feature_scaling(bounds, X.shape[1], self._feature_names())
                known.transform(X[:0])  # bounds that do not suit sparse X: an error before
                accounting = self._accounting()  # a block may have been opened since
                surplus = self._surplus(X, groups, accounting.budget.rows_per_user)
                plan = self.plan(*X.shape)
                self._spend(accounting.accountant, plan, has_groups=groups is not None)
            stream = self._noise_of("scaler")
            # rows in the known units, from which the search starts
            rows = scaled_rows(X, known, False, False if surplus is None else surplus)
            # no target is read
            found = plan.release(SolverData(rows, np.empty(0)), stream)
        center, scale = np.asarray(found.center), np.asarray(found.scale)
        if self.bounds_X is not None:  # what is known is used
            center, scale = np.clip(center, -1.0, 1.0), np.minimum(scale, 1.0)
        self.center_ = known.shift + known.width * center
        self.scale_ = known.width * scale if self.with_scaling else np.ones(scale.size)
        self._keep_claim(plan, stream)
        return self

    def unscaled_columns(self) -> list[OutputColumn]:
        """What the outputs stand for, by what was released: columns of X, within the clip."""
        facts = self.get_feature_names_out(), self.center_, self.scale_
        pairs = zip(*facts, strict=True)
        return [OutputColumn(name, None, float(mid), float(size)) for name, mid, size in pairs]

    def transform(self, X: Any) -> Any:
        """``clip((X - center_) / scale_, -clip, clip)`` in float64, sparse or dense as X is.

        With ``nonfinite="zero"``, all of an invalid row is NaN (of a sparse one, what is stored).
        """
        check_is_fitted(self)
        with np.errstate(all="ignore"):
            X = self._features(X, reset=False)
            values, center, scale = X, self.center_, self.scale_
            if sparse.issparse(X):
                values, center, scale = X.data, 0.0, scale[stored_places(X, slice(0, X.nnz), 1)]
            out = np.clip((values - center) / scale, -self.clip, self.clip)
            out = with_values(X, out) if sparse.issparse(X) else out
            # as zeros, they would be valid records of what follows
            return out if self._is_strict else clear_rows(out, nonfinite_rows(X), X, np.nan)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.with_centering is False
        tags.input_tags.allow_nan = tags.input_tags.string = not self._is_strict
        # a type that one odd cell may decide must not decide on how others are rounded
        tags.transformer_tags.preserves_dtype = []
        return tags
