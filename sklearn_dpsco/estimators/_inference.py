"""Standard errors, intervals and tests of models whose plan has an estimate with a covariance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, softmax
from sklearn.utils.validation import check_is_fitted

from .._checks import (
    check_bool,
    check_choice,
    check_level,
    first_of,
    says_level,
    shown,
    telling,
    warn_user,
)
from .._types import Array
from ..data.bounds import FeatureScaling, TargetScaling
from ..data.cells import check_in_memory
from ..estimates import STATSMODELS, Estimates, WaldTest, telling_unknown
from ..exceptions import PrivacyParameterWarning
from ..losses import Multinomial, check_ratios
from ..preprocessing.declared import scalers, table_columns
from ..preprocessing.encoder import filled, references
from ..solvers.base import SolverResult
from ._base import DPLinearModel, Settings
from ._records import Targets

_FIT = "see dp_score on other records; of linear regressions also PrivateMoments.goodness_of_fit"
_HINTS = {name: f"see summary().{place}" for name, place in STATSMODELS.items()}
_HINTS |= dict.fromkeys(("rsquared", "prsquared", "rsquared_adj", "aic", "bic", "llf"), _FIT)
_HINTS |= dict.fromkeys(("resid", "fittedvalues"), "they are private; see predict")
_HINTS |= dict.fromkeys(("pvalues", "pvalues_"), "see summary().to_frame()['P>|t|']")
_HINTS |= {"tvalues": "see summary().to_frame()['t']"}
_HINTS |= {"nobs": "see plan_.problem.n_samples"}
_HINTS |= {"get_prediction": "see predict_interval", "summary2": "see summary"}
_HINTS |= dict.fromkeys(("compare_lr_test", "compare_f_test", "wald_test_terms"), "see wald_test")
_HINTS |= {"get_margeff": "see predict_interval, and DPLinearRegression on labels 0 and 1"}
_HINTS |= dict.fromkeys(("coef_std_", "coef_cov_"), "fit with inference=True has it")
_HINTS |= {"partial_fit": "see DPFTRLClassifier and DPFTRLRegressor, for data that keep arriving"}


@telling(_HINTS)
@dataclasses.dataclass(kw_only=True, repr=False, eq=False)
class Inference(DPLinearModel):
    r"""Base of the models that can say how sure their coefficients are.

    Parameters
    ----------
    inference : bool, default=False
        Whether a part of the budget buys standard errors: `conf_int`, `summary`, `wald_test`,
        `predict_interval`, and in a regression ``predict(X, return_std=True)``. The fit then ends
        in Newton steps, whose covariance by sampling is a released sandwich, and by noise known
        from the plan. Needs bounds that are declared, the squared loss, the logistic one or that of
        counts and costs, without a set, at most 1000 features, and about
        :math:`20 r k^{1.5} / \mu` rows for k coefficients (of all classes, if several),
        :math:`\mu` the Gaussian-DP budget (.24 at epsilon 1, delta 1e-6) and r 2 under
        replace-one, else 1: a `ValueError` says if there are fewer. With `max_rows_per_user` above
        1, as many users; X must be in memory and `fit` needs `groups`, by which the sandwich is
        clustered.

    Attributes
    ----------
    coef_std_ : ndarray of the shape of `coef_`
        With ``inference=True``: standard errors, of sampling and of noise together, of the
        coefficients before they were shrunk to those that predict best, in the units of `coef_`
        (of ``summary(units="scaled")``, where `bounds_X` is an encoder); infinite where the
        released numbers say nothing of a column.
    coef_cov_ : ndarray of shape (n_outputs * n_params, n_outputs * n_params)
        With ``inference=True``: the covariance of all coefficients of one output after the other,
        the intercept the last of each.
    """

    inference: bool = False

    def _keep_estimate(self, estimate: Any, scaling: FeatureScaling, targets: Targets) -> None:
        """Set what tells how sure the coefficients are."""
        d, (n_outputs, n_params) = self.n_features_in_, estimate.table.coef.shape
        coef, intercept = estimate.table.coef[:, :d], estimate.table.coef[:, d:].sum(axis=1)
        if n_outputs == 1:
            coef, intercept = coef[0], intercept[0]
        model = targets.model(SolverResult(coef, intercept, 1), scaling)
        is_link = targets.scaling is None or targets.scaling.has_log_link
        halves = np.broadcast_to(1.0 if is_link else targets.scaling.half, n_outputs)
        pairs = (model["coef_"], model["intercept_"]), (self.coef_, self.intercept_)
        coef, predicting = (
            np.hstack((np.atleast_2d(slopes), np.reshape(level, (-1, 1))))[:, :n_params]
            for slopes, level in pairs
        )
        table = estimate.table.in_units((), scaling.shift, scaling.width, scales=halves)
        problem, guarantee, steps = self.plan_.problem, self.guarantee_, self.plan_.inference
        residual = np.sqrt(estimate.residual * halves**2)
        by_user = guarantee.rows_per_user > 1
        size, most = f"{problem.n_samples} rows", guarantee.rows_per_user
        size += f" of {estimate.n_records} users, at most {most} each" * by_user
        size += f", about {estimate.n_present} rows not empty" * (not self._is_strict)
        estimates = dataclasses.replace(
            table,
            names=tuple(self._names),
            coef=coef,
            outputs=tuple(self._output_labels()),
            residual_std=residual * (np.nan if problem.has_weights else 1.0),
            predicting=predicting,
            title=f"{type(self).__name__}: {size}, {guarantee.claim}",
            notes=(
                *_notes(estimate, steps, self.bounds_X, targets.class_weight),
                *self._beyond(scaling, targets.scaling),
            ),
        )
        std = estimates.std[:, :d].reshape(np.shape(self.coef_))
        self.__dict__.update(_estimates=estimates, coef_std_=std, coef_cov_=estimates.cov)

    def _beyond(
        self, features: FeatureScaling | None, target: TargetScaling | None
    ) -> Iterator[str]:
        """A note on released means of columns and targets that lie at an end of their bounds."""
        frame, (names, _, shift, width) = self._scaled_model.frame, self._units(None, "data")
        center, found = frame.center, []
        if features is not None and center is not None:
            numbers = features.shift + features.width * center, features.low, features.high
            mean, low, high = (shift + width * number for number in numbers)
            is_at_end = _is_at_end(mean, low, high)
            found = [str(names[k]) for k in np.flatnonzero(is_at_end)]
        if target is not None:
            center = frame.target_center
            center = np.exp(center) if target.has_log_link else np.asarray(center)
            mean, may_be_flags = target.middle + target.half * center, not target.has_log_link
            is_at_end = _is_at_end(mean, target.low, target.high, may_be_flags)
            found += ["the target"] * bool(np.any(is_at_end))
        if found:
            yield (
                f"most values of {first_of(found)} may lie beyond an end of their bounds: their "
                "mean is there"
            )

    def _against(self, found: Estimates, base: Any) -> Estimates:
        """Log-odds against a class, by default the first of two, or of more against their mean."""
        labels = self.classes_.tolist() if hasattr(self, "classes_") else []
        if base is None and len(labels) != 2:
            of_all = "log-odds of each class against the mean over the classes"
            return dataclasses.replace(found, meaning=of_all if labels else "")
        if base is not None and base not in labels:
            raise ValueError(f"base must be one of the classes {shown(labels)}, got {shown(base)}")
        at, k = 0 if base is None else labels.index(base), len(labels)
        others, (n_outputs, n_params) = labels[:at] + labels[at + 1 :], found.coef.shape
        differences = np.delete(np.eye(k) - np.eye(k)[at], at, axis=0)[:, -n_outputs:]
        of = shown(others[0]) if k == 2 else "each class"
        meaning = f"log-odds of {of} against {shown(labels[at])}"
        functions = np.kron(differences, np.eye(n_params))
        return found.times(functions, outputs=tuple(others), meaning=meaning)

    def _settings(self) -> Settings:
        left_out = {}
        if check_bool("inference", self.inference) and self.fit_intercept:
            left_out = references(self.bounds_X) or {}
        if whole := [name for name, reference in left_out.items() if reference is None]:
            warn_user(
                f"columns of all categories of {first_of(whole)} add up to the intercept, and have "
                "no intervals by themselves: say drop= in the PublicEncoder, as drop='first'",
                PrivacyParameterWarning,
            )
        return super()._settings()

    def _found(self) -> Estimates:
        check_is_fitted(self)
        if self._estimates is None:
            raise ValueError("standard errors are a part of the budget: fit with inference=True")
        return self._estimates

    @says_level
    def conf_int(
        self,
        encoder: Any = None,
        *,
        units: str = "data",
        level: float = 0.95,
        exponentiate: bool = False,
        base: Any = None,
    ) -> Any:
        """Intervals of the coefficients, each of which covers the true one with this probability.

        "True" is the coefficient that the loss has in the population that the rows (of users with
        several rows, the users) are drawn from.
        The intervals cover sampling and noise. They are those of `summary`: about coefficients that
        are not shrunk, so that `coef_` need not lie in their middle.

        Parameters
        ----------
        encoder : PublicEncoder, other transformer, list of str or None, default=None
            As in `summary`: its columns name the rows, in the units of its table. None takes the
            encoder of `bounds_X`, if it is one. A number is the level.
        level : float in [0.5, 1), default=.95
        units, exponentiate, base
            As in `summary`. ``np.exp`` of the frame would keep the label of log-odds.

        Returns
        -------
        pandas.DataFrame, or ndarray of shape (n_params, 2) or (n_outputs, n_params, 2)
            A frame with the columns "lower" and "upper", and rows as in ``summary().to_frame()``,
            where X had names or there is an encoder. Else an array; the last dimension is lower
            and upper end. The intercept is last.

        Raises
        ------
        ValueError
            As of `summary`.
        """
        if isinstance(encoder, Real):
            if level != 0.95:
                raise TypeError(
                    "conf_int() got two levels: a number in the place of encoder is one"
                )
            encoder, level = None, encoder
        found = self._found()
        if found.unknown is not None and found.unknown.size:
            warn_user(
                "of some columns the released numbers say nothing: their intervals are the whole "
                "line, and others may be those of the regression without them; summary() names "
                "them, and what helps",
                PrivacyParameterWarning,
            )
        table = self.summary(
            encoder, units=units, level=level, exponentiate=exponentiate, base=base
        )
        return table.conf_int()

    @says_level
    def summary(
        self,
        encoder: Any = None,
        *,
        units: str = "data",
        level: float = 0.95,
        exponentiate: bool = False,
        base: Any = None,
    ) -> Estimates:
        """The coefficients with standard errors, tests and intervals, as text, HTML or a frame.

        Parameters
        ----------
        encoder : PublicEncoder, other transformer, list of str or None, default=None
            As in `coef_frame`: rows have the names and units of its table. None takes the encoder
            of `bounds_X`, if it is one; those of its columns, as X has them, ``units="scaled"``
            then shows. Of another fitted transformer in `bounds_X` it takes the names alone, with
            the units of its outputs.
        units : {"data", "scaled"}, default="data"
            As in `coef_frame`.
        level : float in [0.5, 1), default=.95
            Of the intervals.
        exponentiate : bool, default=False
            Whether to show ratios, e to the coefficients and to the ends of their intervals: of
            odds against a class (in rows of `person_periods` farther from 1 than those of hazards),
            for a log link of rates (there of hazards) or of means. A note says which. Standard
            errors, t and p-values stay those of the coefficients.
        base : label or None, default=None
            Of a classifier, the class that log-odds and odds ratios are against. None stands for
            the first of two classes; of more, coefficients are then deviations from their mean over
            the classes.

        Returns
        -------
        Estimates
            ``print`` shows it, ``to_frame()`` gives the numbers. Its column "coef" is the estimate
            that the intervals are about, "predicting" is `coef_`, the model that predicts best.

        Raises
        ------
        ValueError
            If the fit was without ``inference=True``, `encoder` has another number of outputs,
            `base` is no class, or `exponentiate` is True of a linear model, or of several classes
            without a base.
        """
        found = self._found()
        names, columns, shift, width = self._units(encoder, units)
        sources = tuple(column.source for column in columns or ())
        found = self._against(found.in_units(tuple(names), shift, width, sources), base)
        left_out = self._references if encoder is None else references(encoder)
        encoder, notes = self._encoder if encoder is None else encoder, [*found.notes]
        is_named = encoder is not None or self._feature_names() is not None
        if not is_named:
            notes.append(
                "x0, x1, ...: columns of X; summary(model[0]) of a pipeline `model`, or "
                "summary(['age', ...]), has names"
            )
        steps = [encoder, *(step for _, step in getattr(encoder, "steps", ()))]
        if columns is None and any(table_columns(step) for step in steps):
            notes.append(
                "rows are in units of what reaches the model: an encoder scaled its columns"
            )
        room = np.broadcast_to(self._width - np.abs(self._origin), self.n_features_in_)
        found_at = ((scaler.clip, room[at].min(), w) for scaler, at, w in scalers(encoder) if w)
        clips = [min(clip, float(most) / w) for clip, most, w in found_at]
        if clips:
            clip = min(clips)
            notes.append(
                f"columns are clipped to +-{clip:g} released scales, intervals are for these: "
                "slopes of columns with longer tails are too steep"
            )
        facts: Any = {"level": check_level("level", level), "is_named": is_named}
        found = dataclasses.replace(found, notes=tuple(notes), **facts)
        if check_bool("exponentiate", exponentiate):
            ratios = "odds ratios" if base is not None else check_ratios(self.plan_.problem.loss)
            ratios += found.meaning.removeprefix("log-odds")
            is_told = any(c.source == "period" and c.category is not None for c in columns or ())
            if is_told or any(str(name).startswith("period_") for name in names):
                what = "in a period; farther from 1 than " * ratios.startswith("odds")
                by_rates = ", which a DPPoissonRegressor has" * ratios.startswith("odds")
                ratios += f" ({what}hazard ratios{by_rates}, if rows are those of person_periods)"
            found = dataclasses.replace(found, exponentiate=True, ratios=ratios)
        problem = self.plan_.problem
        cause, more = _ADVICE.get(problem.loss.task, ("", ""))
        if self.guarantee_.rows_per_user > 1:
            more = more.replace(", PrivateMoments", "")  # whose intervals are of rows
        if 2 * self._scaled_model.estimate.n_present < problem.n_samples:
            cause = f", most rows empty{cause}"
        if problem.has_weights and problem.loss.task != "rates":  # where they may be exposures
            cause = f", max_weight far above most weights{cause}"
        if problem.n_indicators:
            more = f", missing='keep' in the place of indicators{more}"
        return telling_unknown(found, left_out if self.fit_intercept else {}, cause, more)

    def wald_test(self, hypotheses: Any, value: Any = 0.0) -> WaldTest:
        """Test linear hypotheses about the coefficients: see `Estimates.wald_test`.

        They are those of ``summary()``, with its names and units: of the table, where `bounds_X` is
        an encoder. For others see ``summary(encoder).wald_test``, and ``summary(units="scaled")``.

        Parameters
        ----------
        hypotheses : str, list of str, or array-like of shape (q, n_outputs * n_params)
            Features, or columns of the encoder's table, whose coefficients are all 0 if it is true;
            "name = 2"; linear equations, "a = b"; or the matrix R of R b = value.
        value : float or array-like of shape (q,), default=0

        Returns
        -------
        WaldTest
        """
        return self.summary().wald_test(hypotheses, value)

    @says_level
    def t_test(
        self,
        hypotheses: Any,
        value: Any = 0.0,
        *,
        level: float = 0.95,
        exponentiate: bool = False,
        base: Any = None,
    ) -> Estimates:
        """The hypotheses of `wald_test` each by itself, with estimates and intervals.

        Such as a difference of two effects, "a - b", or with ``exponentiate=True`` the ratio for
        ten years, "10 * age": see `Estimates.t_test`.

        Parameters
        ----------
        hypotheses, value
            As in `wald_test`.
        level, exponentiate, base
            As in `summary`.

        Returns
        -------
        Estimates
        """
        table = self.summary(level=level, exponentiate=exponentiate, base=base)
        return table.t_test(hypotheses, value)

    @says_level
    def predict_interval(self, X: Any, *, level: float = 0.95, of: str = "mean") -> Array:
        """Intervals of the mean, or with of="record" of one new target, for each row of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), in memory
        level : float in [0.5, 1), default=.95
        of : {"mean", "record"}, default="mean"
            Of the mean target, or the probability of a class, at such rows; or in a regression of
            the target of one new record, if targets are normal about their means with one variance,
            cut off at `bounds_y`; not with `sample_weight` or several rows of a user.

        Returns
        -------
        ndarray of shape (n_samples, 2), or (n_samples, n_outputs, 2)
            Of two classes the probability of the second one.
        """
        found = self._found()
        found.warn_if_void()
        check_choice("of", of, ("mean", "record"))
        level, loss = check_level("level", level), self.plan_.problem.loss
        if of == "record" and loss.task != "regression":
            raise ValueError("of='record' is for a regression: labels have no interval")
        rows, raw = self.linear_functions(X)
        (n, k), signs = raw.shape, np.array([-1, 1])
        if isinstance(loss, Multinomial):
            ends = np.empty((n, k, 2))
            for j in range(k):  # of the log-odds against the rest, by their gradient
                others = np.where(np.arange(k) == j, -np.inf, raw)
                weights = -softmax(others, axis=1)
                weights[:, j] = 1.0
                functions: Any = np.einsum("nk,np->nkp", weights, rows).reshape(n, -1)
                odds = raw[:, j] - logsumexp(others, axis=1)
                half = found.half_widths(functions, level)[:, None]
                ends[:, j] = expit(odds[:, None] + half * signs)
            return ends
        functions = np.kron(np.eye(k), rows)  # those of one output after the other
        half = found.half_widths(functions, level).reshape(k, n).T
        if of == "record":
            if np.isnan(found.residual_std).all():
                raise ValueError(
                    "of='record' needs a fit without sample_weight and with max_rows_per_user=1: "
                    "else the variance of the targets is not released"
                )
            far = found.half_widths(functions, level, of_std=True).reshape(k, n).T
            half = np.hypot(half, far * found.residual_std)
        ends = raw[..., None] + half[..., None] * signs
        if of == "record":  # as in predictions
            scaling = self._targets.scaling
            ends = np.clip(ends, *(np.reshape(end, (-1, 1)) for end in (scaling.low, scaling.high)))
        if loss.task == "classification":
            return np.asarray(loss.probability(ends[:, 0]))
        if loss.task == "rates":
            with np.errstate(over="ignore"):
                return np.exp(ends[:, 0])
        return ends[:, 0] if self.coef_.ndim == 1 else ends

    def _prediction_std(self, X: Any) -> Array:
        found = self._found()
        rows, raw = self.linear_functions(X)
        functions: Any = np.kron(np.eye(raw.shape[1]), rows)  # as in `predict_interval`
        std = found.errors(functions)[0].reshape(raw.T.shape).T
        return std[:, 0] if self.coef_.ndim == 1 else std

    def linear_functions(self, X: Any) -> tuple[Array, Array]:
        """Rows of X as functions of the coefficients that `summary` shows, and their values.

        For errors of what is made of raw predictions, by `Estimates.half_widths` of sums of rows:
        where `bounds_X` is a `PublicEncoder`, of ``summary(units="scaled")``, the columns of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), in memory

        Returns
        -------
        functions : ndarray of shape (n_samples, n_params)
            With a last column of ones if there is an intercept.
        raw : ndarray of shape (n_samples, n_outputs)
            Raw predictions by the coefficients that are not shrunk.
        """
        found = self._found()
        check_in_memory("an interval", X)
        X = self._features(X, reset=False)
        rows = np.array(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        if not self._is_strict:  # as in predictions
            rows = np.where(np.isfinite(rows), rows, self._usual_row)
        if found.coef.shape[1] > rows.shape[1]:
            rows = np.column_stack((rows, np.ones(len(rows))))
            return rows, rows @ found.coef.T
        # without an intercept, models go through the origin of the scaled features
        fixed = np.atleast_1d(self.intercept_) + np.atleast_2d(self.coef_) @ self._origin
        rows = rows - self._origin
        return rows, rows @ found.coef.T + fixed


# a cause of whole lines, and what helps, by the task
_ADVICE = {
    "regression": ("", ", PrivateMoments"),
    "classification": (", strong effects", ", DPLinearRegression on 0/1"),
}


def _is_at_end(mean: Array, low: Any, high: Any, may_be_flags: bool = True) -> Any:
    """Whether means lie at ends that are not natural, as 0 is, and 1 of flags."""
    ends = np.array([low, high])
    room = 0.02 * np.minimum(ends[1] - ends[0], np.abs(ends))
    room[1] *= ~((ends[0] == 0) & (ends[1] == 1) & may_be_flags)
    return (np.abs(mean - ends) < room).any(axis=0)


def _limits(found: Any, steps: Any) -> list[str]:
    """What the releases of the fit leave open."""
    records = "users" if steps.rows_per_user > 1 else "rows"
    if steps.hessian.variance == 0:
        return [f"std err is by sampling alone: no score is shortened, and no {records} count less"]
    notes = [
        "std err and intervals are about coef, sampling is estimated with noise; predicting: "
        "coef_, the model that predicts best; it has noise of its own and need not be smaller",
        f"about {steps.n_beyond:.3g} of {found.n_records} scores (residual times row) are "
        f"shortened, {steps.n_cut} or more {records} count less",
        f"what only {steps.n_large} {records} or fewer show, such as the effect of a rare "
        "category, may be missed, also by intervals",
    ]
    if math.isnan(found.clip_pvalue):
        return [
            *notes,
            "if effects bend in a skewed column (on the scale of coefficients), they are of a "
            "fit in which long rows count less: take its logarithm, or tighter bounds",
        ]
    of_weights = steps.rows_per_user == 1
    moved = " and smaller weights of long rows move" if of_weights else " moves"
    bent = ", or the mean is not linear in a skewed column: it is that of a fit in which long "
    bent = (bent + "rows count less") * of_weights
    tested = f"test whether a smaller clip{moved} the estimate: p={found.clip_pvalue:.2g} (if "
    return [*notes, f"{tested}small, the largest scores drive it{bent})"]


def _notes(found: Any, steps: Any, encoder: Any, class_weight: Any) -> tuple[str, ...]:
    """What a reader of the table must know, of public facts and released numbers."""
    notes = _limits(found, steps)
    if class_weight is not None:
        notes.append(
            "classes are weighted (class_weight): the intercept, probabilities and their intervals "
            "are those of a table in which classes have these weights, not of the one that was read"
        )
    references, middles = filled(encoder)
    if references:
        notes.append(
            "categories that were not declared, if there are any, count as the reference "
            f"({first_of(references)}): unknown='other' gives them a column, "
            "outside='missing' makes gaps of them"
        )
    if middles:
        notes.append(
            "missing numbers, if there are any, count as the middle of their bounds "
            f"({first_of(middles)}), which biases coefficients only if many are missing and it "
            "is far from the usual value: "
            "PublicEncoder(missing='keep') and nonfinite='zero' leave such records out"
        )
    return tuple(notes)
