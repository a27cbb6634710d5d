"""How many rows, or which epsilon, a standard error or a score needs: before any data is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.metrics import get_scorer

from .._checks import check_count, check_real, check_share, check_size, rounded, unwarned
from ..losses import Tweedie
from ..model_selection.private_steps import last_step
from ..preprocessing.declared import declared_columns, opened
from ..preprocessing.encoder import PublicEncoder
from ..privacy.selections import bracketed
from ..solvers.inference import TooFewRowsError
from . import axes_for, stand_ins

_MOST_ROWS = 10**12
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-3, 1e4
_POWER = 0.8
# of simulations
_N_FITS = 20
_N_FAILURES = 1
_MOST_CELLS = 5 * 10**7
_STEP = 2 ** (1 / 3)
_SIMULATED = (0.01 * _STEP ** np.arange(52)).tolist()  # epsilons
# for tables that are harder than the stand-ins, found by simulation: a part of the score that may
# be lost, and a factor of rows or epsilon, to which 1 / columns is added: the fewer they are, the
# less do their shapes average out, and the correlation that is assumed makes less safe
_SAFE_PART, _SAFE = 0.8, 1.3
_CORRELATION = 0.5  # of each column with each other one, if nothing is said
_NOT_OF_ERRORS = {"target", "safe", "parts"}  # of scores, or said here
_Wanted = tuple[float | None, float | None, float]  # a standard error, an effect, and power


def _planned(estimator: Any, n_samples: Any, n_features: int) -> Any:
    """The plan, None where there are too few rows for one."""
    with suppress(TooFewRowsError), unwarned():
        return estimator.plan(n_samples, n_features)
    return None


def _with_errors(estimator: Any) -> Any:
    """A clone of the model, of a pipeline its last step, which must release standard errors."""
    last = last_step(estimator)
    if not hasattr(last, "inference"):
        is_moments = hasattr(last, "regression")
        instead = "DPLinearRegression(inference=True), which needs no fewer rows, or "
        raise ValueError(
            "standard errors and effects are foretold of models that have inference=True, and of "
            f"pipelines that end with one, got {type(last).__name__}: ask "
            f"{'of ' + instead if is_moments else ''}for a score"
        )
    if not last.inference:  # who plans for standard errors, and fits without them, has none
        raise ValueError(
            f"{type(last).__name__} has inference=False, and a fit would have no standard errors: "
            "set inference=True, or ask for a score"
        )
    return clone(last)


def _infers(
    estimator: Any, n_features: Any, wanted: _Wanted, assumptions: dict[str, Any]
) -> Callable[..., bool]:
    """Whether the plan for so many rows, with these settings, has that standard error or power."""
    std, effect, power = wanted
    n_features = declared_columns(n_features) or n_features
    check_count("n_features", n_features)
    if (std is None) == (effect is None):
        raise ValueError(
            "say what is wanted: either std, or effect and power, or score and "
            "score_without_privacy"
        )
    model = _with_errors(estimator)
    facts = {"safe": True, "correlation": _CORRELATION, **assumptions}
    # (defaults would be silent, and for most counts too few rows)
    if isinstance(model.loss, Tweedie) and not {"mean", "dispersion"} <= assumptions.keys():
        raise ValueError(
            "counts and costs need a guess of the mean of the targets and of their dispersion, "
            "the variance over the mean to the loss's power: give both, such as mean=0.5, "
            "dispersion=2.0 (1 is Poisson's law; most counts have more)"
        )
    if useless := _NOT_OF_ERRORS & assumptions.keys():
        raise TypeError(f"{min(useless)} has no effect on standard errors")
    if std is not None:
        check_size("std", std)
        if power != _POWER or "level" in assumptions:
            raise TypeError("power and level are for an effect, and have none on std")
    else:
        if not np.isscalar(effect):
            raise ValueError(
                "effect must be one number, the smallest of those that are to be found"
            )
        check_real("effect", effect)
        check_share("power", power)

    def is_enough(n: int, **settings: Any) -> bool:
        plan = _planned(model.set_params(**settings), n, n_features)
        if plan is None or n < plan.inference.n_enough:  # or intervals may be the whole line
            return False
        if std is not None:
            return bool(plan.expected_std(**facts) <= std)
        return bool(plan.power(effect, **facts) >= power)

    return is_enough


def _scores(
    estimator: Any, features: Any, wanted: _Wanted, scores: Any, assumptions: dict[str, Any]
) -> tuple[Callable[..., bool], float]:
    """Whether all of some fits to stand-ins of so many rows, with these settings, score as wanted.

    New rows are scored beside the best linear predictions of them, whose score is the one assumed.
    And of how many times as many rows that must hold, too, for tables that are harder.
    """
    if wanted != (None, None, _POWER):
        raise ValueError("give one of std, effect and score; power is for an effect")
    stand_ins.check_public("what foretells a score", (), estimator, True)
    score, best = scores
    if None in scores:
        raise ValueError(
            "score and score_without_privacy go together: what a private model is to reach on new "
            "rows, and what the best linear one would, as a guess or from a public table"
        )
    n_columns, table = stand_ins.stand_in(estimator, features, best, assumptions, is_safe=True)
    scoring, least = stand_ins.scoring_of(estimator)
    check_real("score", score, low=least, high=best, low_open=True, high_open=True)
    scorer = get_scorer(scoring)

    def is_enough(n: int, **settings: Any) -> bool:
        if n * n_columns > _MOST_CELLS:
            raise ValueError(
                f"{n} rows are not enough, and more are not simulated: ask for a lower score, or "
                "take a larger epsilon"
            )
        n_failures = 0
        for seed, model in enumerate(stand_ins.clones_of(estimator, 0, [settings] * _N_FITS)):
            X, y, z = table(n + stand_ins.N_NEW, seed)
            at_best = stand_ins.best_score(scoring != "r2", y[n:], z[n:])
            try:
                with unwarned():
                    model.fit(X[:n], y[:n], **stand_ins.groups_of(model, n))
            except TooFewRowsError:
                return False
            n_failures += at_best - scorer(model, X[n:], y[n:]) > _SAFE_PART * (best - score)
            if n_failures > _N_FAILURES:
                return False
        return True

    return is_enough, _SAFE + 1 / n_columns


def _question(
    estimator: Any, n_features: Any, wanted: _Wanted, scores: Any, assumptions: dict[str, Any]
) -> tuple[Callable[..., bool], float | None]:
    """What is asked for, as `_infers` or `_scores`; without a factor of safety for the former."""
    n_features = _columns(estimator, n_features)
    if scores == (None, None):
        return _infers(estimator, n_features, wanted, assumptions), None
    return _scores(estimator, n_features, wanted, scores, assumptions)


def _columns(estimator: Any, n_features: Any) -> Any:
    """What is given, or the encoder that begins a pipeline, or how many columns are declared."""
    last, before = opened(estimator)
    if n_features is not None or (before and isinstance(before[0], PublicEncoder)):
        return before[0] if n_features is None else n_features
    if not (size := declared_columns(getattr(last, "bounds_X", None))):  # of no fitted words 0
        raise TypeError("n_features must be given, as no transformer in bounds_X declares columns")
    return size


def rows_needed(
    estimator: Any,
    n_features: Any = None,
    *,
    std: float | None = None,
    effect: float | None = None,
    power: float = _POWER,
    score: float | None = None,
    score_without_privacy: float | None = None,
    **assumptions: Any,
) -> int:
    """The number of rows from which nine of ten fits are this sure, or score this. Spends nothing.

    This sure of each coefficient by itself: that all are at once takes more. Of a standard error
    or an effect, no fewer than those from which a fit does not warn that intervals may be the whole
    line; for large effects that alone decides.

    Parameters
    ----------
    estimator : DPLinearRegression, DPLogisticRegression, DPMirror... or DPPoissonRegressor and like
        With its epsilon, delta and relation, or a pipeline that ends with one, of which that step
        counts, with ``inference=True``. For a score any estimator of this package, a search or
        a pipeline that ends with one, as it stands.
    n_features : int >= 1, PublicEncoder or None, default=None
        With an encoder its columns count, or those of another transformer that declares its
        outputs. For a score an encoder or its schema, of a pipeline that holds one. None stands for
        the encoder that begins the pipeline, or for what is `bounds_X`.
    std : float or None, default=None
        The standard error of a coefficient that is wanted, as `UnitDescentPlan.expected_std` has
        it: per standard deviation of a feature, in standard deviations of the target, or in
        log-odds.
    effect, power : float or None, default=None; float in (0, 1), default=.8
        In the place of `std`: an effect of this size is to be told from 0 with this probability.
        Of labels, other effects are taken to be small: where several are as large, ask for half as
        many rows again, or at a power of .8 up to half of the fits miss it.
    score, score_without_privacy : float or None, default=None
        In the place of `std`: this score on new rows is wanted, where the best linear model
        has that one. Of a regression R2, of two classes the area under the ROC curve, of several,
        each as frequent, the accuracy.
    **assumptions
        Of a regression `r2`, of two classes `prevalence`, as in the plan's methods, and of an
        effect's interval `level`. Of counts and costs `mean` and `dispersion` must be given. A
        `TypeError` names one that has no effect.

        `correlation` : float in [0, 1), default=.5
            Of each feature with each other one. Independent columns need a fifth to a third fewer
            rows than .5 (for a score of 60 columns half), and .8 up to twice as many.

        For a score also:

        `target` : {"normal", "skewed", "zeros"}, default="normal"
            Of a regression. "skewed": few are large, such as costs or counts. "zeros": most are
            0, and the rest amounts.
        `prevalence` : float in (0, 1), default=.5, or .1 for zeros
            The frequency of the second class, or with "zeros" of targets that are not 0.

    Returns
    -------
    int
        Rows of stand-ins have no gaps: count the rows that have a target.

    Raises
    ------
    ValueError
        If 10^12 rows are not enough. For a score, if those that can be simulated are not, about
        5e7 / n_features, or if no linear model reaches `score_without_privacy`. Of counts and
        costs, without `mean` and `dispersion`. Of a standard error or an effect, if the model has
        no ``inference``.

    Notes
    -----
    A score is found by simulation, in seconds, the same at each call: the estimator is fitted to
    public stand-ins with the declared columns and the assumed score, of more and more rows, till
    19 of 20 fits lose at most .8 of what may be lost, and of 1.3 + 1 / n_features times as many
    rows, too. That is the answer, for tables that are harder. Of one or two columns some stand-ins
    have long tails or flags of 3 in 100 rows, so that their answer can be several times what normal
    columns need. Some are harder still: flags that are rarer, means far from linear. With
    `max_rows_per_user` above 1, fits have `groups` of so many rows each, all independent: rows of a
    user that are alike tell less.

    Examples
    --------
    >>> from sklearn_dpsco import DPLinearRegression, rows_needed
    >>> model = DPLinearRegression(
    ...     epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 1), inference=True)
    >>> 20_000 < rows_needed(model, 10, effect=0.05) < 40_000
    True
    >>> model = model.set_params(inference=False)
    >>> 1000 < rows_needed(model, 10, score=0.45, score_without_privacy=0.5) < 5000
    True
    """
    wanted, scores = (std, effect, power), (score, score_without_privacy)
    is_enough, safe = _question(estimator, n_features, wanted, scores, assumptions)
    if safe is not None:
        n = 64.0
        # fits can be worse from more rows, where a plan changes its releases
        while not (is_enough(math.ceil(n)) and is_enough(math.ceil(safe * n))):
            n *= _STEP
        return math.ceil(safe * n)
    # (of far more rows than are needed, float errors may be too large)
    doubled = (min(64 << k, _MOST_ROWS) for k in range(35))
    if (high := next(filter(is_enough, doubled), None)) is None:
        raise ValueError("10^12 rows are not enough: ask for less, or take a larger epsilon")
    return math.ceil(bracketed(lambda n: is_enough(math.ceil(n)), 1e-3, high / 2, high)[1])


def epsilon_needed(
    estimator: Any,
    n_samples: int,
    n_features: Any = None,
    *,
    std: float | None = None,
    effect: float | None = None,
    power: float = _POWER,
    score: float | None = None,
    score_without_privacy: float | None = None,
    **assumptions: Any,
) -> float:
    """The epsilon from which nine of ten fits are this sure, or score this. Spends nothing.

    This sure of each coefficient by itself, as in `rows_needed`. Of a standard error or an effect,
    no less than the one from which a fit does not warn that intervals may be the whole line; for
    large effects that alone decides.

    Parameters
    ----------
    estimator, n_features, std, effect, power, score, score_without_privacy, **assumptions
        As in `rows_needed`; the estimator's own epsilon does not count. Of labels of which several
        effects are as large, give two thirds of the rows.
    n_samples : int >= 2

    Returns
    -------
    float
        Rounded up to three digits.

    Raises
    ------
    ValueError
        If sampling alone leaves nearly as much as is wanted, or of a score .8 of what may be lost:
        then only more rows are sure to help.

    Examples
    --------
    >>> from sklearn_dpsco import DPLogisticRegression, epsilon_needed
    >>> model = DPLogisticRegression(bounds_X=(0, 1), classes=[0, 1], inference=True)
    >>> 0.1 < epsilon_needed(model, 50_000, 10, effect=0.1, prevalence=0.3) < 3
    True
    """
    check_count("n_samples", n_samples, low=2)
    wanted, scores = (std, effect, power), (score, score_without_privacy)
    is_enough, safe = _question(estimator, n_features, wanted, scores, assumptions)
    if safe is not None:
        stand_ins.check_one_budget(estimator)
        for epsilon in _SIMULATED:
            if all(is_enough(n_samples, epsilon=one) for one in (epsilon, safe * epsilon)):
                return rounded(safe * epsilon, 3)
        raise ValueError(
            f"no epsilon is sure to be large enough: {n_samples} rows leave nearly as much, or "
            "more, by sampling alone, or what the estimator clips does; rows_needed says how many "
            "are enough"
        )
    if not is_enough(n_samples, epsilon=_LARGEST_EPSILON):
        raise ValueError(
            f"no epsilon is large enough: {n_samples} rows leave nearly as much, or more, by "
            "sampling alone; rows_needed says how many are enough"
        )
    ends = _LEAST_EPSILON, 2 * _LEAST_EPSILON
    return rounded(bracketed(lambda e: is_enough(n_samples, epsilon=e), 1e-3, *ends)[1], 3)


@dataclass(kw_only=True, eq=False, repr=False)
class PowerDisplay:
    """Standard errors that plans can be expected to report, against epsilon or the number of rows.

    Parameters
    ----------
    values : array-like of shape (k,)
        Epsilons, or numbers of rows; NaN standard errors where there are too few rows.
    std, std_sampling : array-like of shape (k,)
        With privacy, and by sampling alone: what no epsilon can better.
    against : {"epsilon", "rows"}

    Attributes
    ----------
    line_, sampling_line_ : matplotlib Line2D
    ax_, figure_ : matplotlib Axes and Figure

    Examples
    --------
    >>> from sklearn_dpsco import DPLinearRegression, PowerDisplay
    >>> model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1), inference=True)
    >>> display = PowerDisplay.from_estimator(model, 50_000, 10)  # doctest: +SKIP
    """

    values: Any
    std: Any
    std_sampling: Any
    against: str = "epsilon"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        n_samples: int | Sequence[int],
        n_features: int,
        *,
        epsilons: Sequence[float] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
        **assumptions: float,
    ) -> Self:
        """Draw what the plans of an estimator can be expected to report.

        Parameters
        ----------
        estimator : as in `rows_needed`
        n_samples : int, or a sequence of them
            Of a sequence, standard errors are drawn against it, at the estimator's epsilon.
        n_features : int
        epsilons : sequence of float
            Against which they are drawn if `n_samples` is one number.
        ax : matplotlib Axes or None, default=None
        line_kwargs : dict or None
            For the lines.
        **assumptions
            As in `UnitDescentPlan.expected_std`.
        """
        model = _with_errors(estimator)
        by_rows = not np.isscalar(n_samples)
        values: list[Any] = list(n_samples) if by_rows else list(epsilons)  # type: ignore[arg-type]
        found = []
        for value in values:
            n, settings = (value, {}) if by_rows else (n_samples, {"epsilon": value})
            plan = _planned(model.set_params(**settings), n, n_features)
            no_parts = math.nan, math.nan
            parts = no_parts if plan is None else plan.expected_std(parts=True, **assumptions)
            found.append((math.hypot(*parts), parts[0]))
        std, of_sampling = np.transpose(found)
        against = "rows" if by_rows else "epsilon"
        display = cls(values=values, std=std, std_sampling=of_sampling, against=against)
        return display.plot(ax=ax, **(line_kwargs or {}))

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw both lines.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
        **kwargs
            For the lines.
        """
        ax = axes_for(self, ax)
        (self.line_,) = ax.plot(self.values, self.std, "o-", label="with privacy", **kwargs)
        style = {"color": "gray", "linestyle": "--", "label": "by sampling alone", **kwargs}
        (self.sampling_line_,) = ax.plot(self.values, self.std_sampling, **style)
        ax.set(xscale="log", yscale="log", ylabel="Standard error of a coefficient")
        ax.set_xlabel("Number of rows" if self.against == "rows" else "epsilon")
        ax.legend(loc="best")
        return self
