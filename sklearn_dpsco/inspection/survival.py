"""Survival curves of fitted models of the time to an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, softmax
from sklearn.base import is_classifier

from .._checks import check_level, import_pandas, import_pyplot, listed, says_level
from .._types import AnyArray, Array
from ..model_selection.private_steps import private_last
from ..preprocessing.declared import columns_read, opened, reaching
from ..preprocessing.encoder import encoders_of


@dataclass(frozen=True, kw_only=True, eq=False)
class SurvivalCurve:
    """Probabilities that the event has not happened, with intervals if the fit has them.

    Parameters
    ----------
    names : list of length n_curves
        Of the curves: values of the column `by`.
    times : ndarray of shape (n_periods + 1,)
        0 and the ends of the periods.
    survival : ndarray of shape (n_curves, n_periods + 1)
    low, high : ndarray of the shape of `survival`, or None, default=None
        Ends of the intervals, each for itself.
    level : float in [0.5, 1), default=.95
    by : str, default="person"
        What the names are values of.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.inspection.survival import SurvivalCurve
    >>> curve = SurvivalCurve(
    ...     names=["all"], times=np.array([0, 30]), survival=np.array([[1.0, 0.8]]))
    >>> curve.to_frame()
      person  time  survival
    0    all     0       1.0
    1    all    30       0.8
    """

    names: list[Any]
    times: AnyArray
    survival: Array
    low: Array | None = None
    high: Array | None = None
    level: float = 0.95
    by: str = "person"

    def __str__(self) -> str:
        """As a table."""
        return str(self.to_frame().to_string(index=False))

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each curve and time."""
        n_curves, n_times = self.survival.shape
        columns = {
            self.by: [name for name in self.names for _ in range(n_times)],
            "time": np.tile(self.times, n_curves),
            "survival": self.survival.ravel(),
        }
        if self.low is not None and self.high is not None:
            tail = (1 - self.level) / 2
            columns |= {f"[{tail:.4g}": self.low.ravel(), f"{1 - tail:.4g}]": self.high.ravel()}
        return import_pandas("to_frame").DataFrame(columns)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Any:
        """Draw the curves, and their intervals as bands.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones. An `ImportError` says if matplotlib is not installed.
        **kwargs
            For the lines, as `matplotlib.axes.Axes.plot` takes them.

        Returns
        -------
        matplotlib Axes
        """
        pyplot = import_pyplot("SurvivalCurve.plot")
        ax = pyplot.subplots(layout="constrained")[1] if ax is None else ax
        for k, name in enumerate(self.names):
            style = {"label": str(name), "marker": ".", **kwargs}
            (line,) = ax.plot(self.times, self.survival[k], **style)
            if self.low is not None and self.high is not None:
                ends = self.low[k], self.high[k]
                ax.fill_between(self.times, *ends, alpha=0.2, color=line.get_color())
        ax.set(xlabel="Time", ylabel="Probability of no event", ylim=(0, 1.02))
        ax.legend(loc="best", title=None if self.by == "person" else self.by)
        return ax


@says_level
def survival_curve(
    model: Any, rows: Any, *, by: str | None = "person", level: float = 0.95
) -> SurvivalCurve:
    r"""Survival curves of new persons by a fitted model of `person_periods`. Costs nothing.

    .. math:: S(t) = \prod_{s \le t} (1 - h_s) \qquad \text{or} \qquad
        S(t) = \exp\Bigl(-\sum_{s \le t} \lambda_s \ell_s\Bigr)

    by the hazards h of a classifier, the probabilities of the second class, or the rates
    :math:`\lambda` of a regression with a log link, which was fitted with the exposure, times the
    lengths :math:`\ell` of the periods. Between the ends of periods nothing is said.

    Of a fit with ``inference=True``, S is that of the coefficients that are not shrunk, as in
    `summary`, with an interval at each time, for sampling and noise: that of
    :math:`\log(-\log S)`, linear about the coefficients (the delta method). It is within [0, 1],
    no higher than before and no lower than later, as S falls, and all of that where nothing is
    known. Of other fits the curve is that of the predictions.

    Parameters
    ----------
    model : fitted estimator of this package, or a Pipeline or a search that ends with one
        Fitted to a data frame, so that its columns have names.
    rows : data frame of pandas or polars
        Of `person_periods`, with its columns "person", "period", "start" and "stop" and those of
        the model; others are not looked at. Made with the `periods` of the fit, which the model
        does not keep: a period of another length would have the hazard of the one of its number.
        All rows of public or new persons: the curve of persons of the private table tells of what
        they are, as any prediction does.
    by : str or None, default="person"
        The column whose values, a missing one too, have a curve each, the mean over their persons:
        persons, groups, or a treatment. None: one curve, the mean over all.
    level : float in [0.5, 1), default=.95

    Returns
    -------
    SurvivalCurve

    Raises
    ------
    ValueError
        If the model is no such one, or the rows are not those of `person_periods`.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_dpsco import DPLogisticRegression, PublicEncoder
    >>> from sklearn_dpsco import person_periods, survival_curve
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"treated": rng.random(5000) < 0.5})
    >>> table["days"] = rng.exponential(np.where(table["treated"], 200, 100))
    >>> table["died"] = table["days"] < 90
    >>> rows = person_periods(table, "days", "died", periods=[0, 30, 60, 90])
    >>> encoder = PublicEncoder({"treated": bool, "period": [1, 2, 3]}, drop="first", extra="drop")
    >>> model = make_pipeline(encoder, DPLogisticRegression(
    ...     epsilon=3, bounds_X=encoder, classes=[0, 1], nonfinite="zero", max_rows_per_user=3))
    >>> _ = model.fit(rows, rows["died"], dplogisticregression__groups=rows["person"])
    >>> new = person_periods(pd.DataFrame({"treated": [True, False]}), periods=[0, 30, 60, 90])
    >>> curve = survival_curve(model, new, by="treated")
    >>> curve.times.tolist(), curve.survival.shape
    ([0, 30, 60, 90], (2, 4))
    """
    level, pandas = check_level("level", level), import_pandas("survival_curve")
    rows = rows.to_pandas() if hasattr(rows, "to_pandas") else rows  # of polars
    last, X, times = _opened(model, rows, by)
    is_discrete, n_periods = is_classifier(last), times.size - 1
    lengths, gradients = np.resize(np.diff(times), X.shape[0]), None
    with np.errstate(all="ignore"):
        # by how much -log S grows in each row, and its gradient if coefficients have errors
        if hasattr(last, "coef_std_"):
            last._estimates.warn_if_void()
            functions, raw = last.linear_functions(X)
            slopes = expit(raw[:, 0]) if is_discrete else np.exp(raw[:, 0]) * lengths
            steps = np.logaddexp(0.0, raw[:, 0]) if is_discrete else slopes
            gradients = functions * slopes[:, None]
        elif is_discrete:
            steps = -np.log1p(-last.predict_proba(X)[:, 1])
        else:
            steps = last.predict(X) * lengths
        # minus the logarithm of S of each person
        hazards = steps.reshape(-1, n_periods).cumsum(axis=1)
        codes, names = np.zeros(len(hazards), dtype=int), ["all"]
        if by is not None:
            codes, names = pandas.factorize(rows[by].iloc[::n_periods], use_na_sentinel=False)
        curves, halves = np.zeros((2, len(names), n_periods))
        for k in range(len(names)):
            own = hazards[codes == k]
            curves[k] = np.log(len(own)) - logsumexp(-own, axis=0)
            if gradients is not None:
                sums = gradients.reshape(len(hazards), n_periods, -1)[codes == k].cumsum(axis=1)
                mean = np.einsum("ij,ijp->jp", softmax(-own, axis=0), sums)
                # in the units of X, as the gradients
                halves[k] = last._estimates.half_widths(mean / curves[k][:, None], level)
        found = {"survival": curves}
        if gradients is not None:
            # (of hazards that round to 0 a logarithm says nothing)
            low = np.fmin(curves * np.exp(halves), np.inf)
            high = np.fmax(curves * np.exp(-halves), 0.0)
            # S falls: it is at most what it was before, and at least what it is later
            found["low"] = np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1]
            found["high"] = np.maximum.accumulate(high, axis=1)
        # at time 0 the event has happened to nobody
        made = {name: np.exp(-np.insert(of, 0, 0.0, axis=1)) for name, of in found.items()}
    return SurvivalCurve(names=list(names), times=times, level=level, by=by or "curve", **made)


def _opened(model: Any, rows: Any, by: Any) -> tuple[Any, Any, AnyArray]:
    """The last model, what it reads of the rows, and the ends of the periods."""
    private_last(model, "survival_curve takes a model")
    if (names := getattr(model, "feature_names_in_", None)) is None:
        raise ValueError("model must have been fitted to a data frame, whose columns have names")
    before = opened(model)[1]
    names = columns_read(before[0] if before else None, names)
    needed = dict.fromkeys(["person", "period", "start", "stop", *names, *[by] * (by is not None)])
    if missing := [name for name in needed if name not in getattr(rows, "columns", ())]:
        raise ValueError(f"rows must be those of person_periods, but have no column {missing[:5]}")
    first = rows.iloc[: rows["period"].drop_duplicates().size]
    n_persons, left = divmod(len(rows), max(len(first), 1))
    same = ("period", "start", "stop")
    # without a period in between, the next one would be taken for as long as both
    starts = np.append(0, first["stop"])[: len(first)]
    is_whole = n_persons > 0 and left == 0 and np.array_equal(first["start"], starts)
    if not is_whole or any((rows[c] != np.tile(first[c], n_persons)).any() for c in same):
        raise ValueError(
            "rows must be all rows that person_periods made, in their order: each period of each "
            "person"
        )
    for step in (encoder for part in before for encoder in encoders_of(part)):
        declared = step.schema.get("period", ())
        unknown = [p for p in first["period"].tolist() if p not in declared]
        if unknown and isinstance(declared, list | np.ndarray):  # of whose hazard nothing is known
            raise ValueError(
                "rows must have the periods of the fit: its encoder does not declare "
                f"{listed(unknown)}"
            )
    last, X = reaching(model, rows[list(names)])
    is_discrete = is_classifier(last)
    if is_discrete and len(last.classes_) != 2:
        raise ValueError("model must have two classes, of which the second is the event")
    if not is_discrete and last.plan_.problem.loss.task != "rates":
        raise ValueError("model must be a classifier, or a regression with a log link")
    if not is_discrete and last.bounds_exposure is None:  # rates are of rows then, not of time
        raise ValueError(
            "a model of rates must have been fitted with the time at risk: make the rows by "
            "person_periods(..., exposure=True), declare bounds_exposure, and give fit the column "
            "'exposure'"
        )
    return last, X, np.append(0, first["stop"])
