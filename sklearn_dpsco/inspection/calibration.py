"""Observed against predicted means, by bins of the prediction, under differential privacy."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from .._checks import import_pandas, shown
from ..data.bounds import number_bounds
from ..metrics.scores import DPScore, dp_score, opened, predicted_means
from .axes import axes_for

_EVEN = 10  # bins of equal width
_DOUBLING = 12  # bins of which each is twice as wide as the one before


@dataclass(kw_only=True, eq=False, repr=False)
class CalibrationDisplay:
    r"""Observed against predicted means, by bins of the prediction, on held-out private records.

    Records are put into public bins by their predictions. Of each bin the mean prediction less the
    mean target, :math:`b`, is released with an interval (`dp_score`). Its point is at
    :math:`(m, m - b)`, m the middle of the bin, so that its distance from the diagonal is b: below
    the diagonal the model predicts too much. The mean prediction itself is somewhere in the bin.
    Of classifiers m - b is moved into [0, 1].

    Make one by `from_estimator`.

    Parameters
    ----------
    edges : array-like of shape (n_bins + 1,)
        Of the bins, rising.
    score : DPScore
        Of the bins as groups, which are named by their numbers from 0 on.

    Attributes
    ----------
    points_ : matplotlib ErrorbarContainer
    line_ : matplotlib Line2D
        The diagonal.
    ax_, figure_ : matplotlib Axes and Figure

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import CalibrationDisplay, DPPoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (40_000, 2))
    >>> claims = rng.poisson(0.3 * np.exp(X[:, 0]))
    >>> model = DPPoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 20), epsilon=3.0)
    >>> model = model.fit(X[:20_000], claims[:20_000])
    >>> display = CalibrationDisplay.from_estimator(
    ...     model, X[20_000:], claims[20_000:], epsilon=1.0, edges=[0.1, 0.2, 0.4, 0.8],
    ...     max_error=4)  # doctest: +SKIP
    """

    edges: Any
    score: DPScore

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        edges: Any = None,
        exposure: Any = None,
        ax: Any = None,
        plot_kwargs: dict[str, Any] | None = None,
        **score_kwargs: Any,
    ) -> Self:
        """Release the bias in each bin, and draw.

        Parameters
        ----------
        estimator : fitted regression or classifier of two classes
            As in `dp_score`.
        X, y
            Records that the estimator was not fitted on.
        edges : array-like of shape (n_bins + 1,) or None, default=None
            Rising numbers, from 2 bins to 1000, in units of the prediction, of classifiers the
            probability of the second class. They must be public: quantiles of these predictions
            are not. Predictions outside count in the outer bins. None stands for ten bins of equal
            width on `bounds_y` or [0, 1]; of models of counts and costs for twelve up to the end of
            `bounds_y`, each twice as wide as the one before. More bins cost no privacy, but each
            has the same noise and fewer records.
        exposure : array-like of shape (n_samples,) or None, default=None
            As in `dp_score`: predictions are the expected numbers of each record's exposure, and so
            are bins and axes.
        ax : matplotlib Axes or None, default=None
        plot_kwargs : dict or None, default=None
            As `plot` takes them.
        **score_kwargs
            `epsilon`, `delta`, `relation`, `accountant`, `confidence`, `max_error` and others of
            `dp_score`, but `scoring` and `by`. Noise is proportional to `max_error`, which is the
            width of `bounds_y` unless you say less.

        Returns
        -------
        CalibrationDisplay

        Raises
        ------
        ValueError, PrivacyBudgetError
            As of `dp_score`, or if `edges` are wrong. Nothing is spent then.
        """
        if taken := {"scoring", "by", "by_values"} & set(score_kwargs):
            raise TypeError(f"{cls.__name__}.from_estimator sets {min(taken)} itself")
        of_classes = is_classifier(estimator)
        if edges is None:  # by the model's bounds and its link alone
            model = opened(estimator)[0]
            bounds = (0.0, 1.0) if of_classes else score_kwargs.get("bounds_y")
            bounds = getattr(model, "bounds_y", None) if bounds is None else bounds
            if bounds is None:
                raise ValueError("edges must be given: the estimator has no bounds_y")
            low, high = number_bounds(bounds) or (-1.0, 1.0)
            edges, plan = np.linspace(low, high, _EVEN + 1), getattr(model, "plan_", None)
            if plan is not None and plan.problem.loss.task == "rates":
                edges = high * 2.0 ** np.arange(1 - _DOUBLING, 1)
                edges = np.append(low, edges[edges > low])
        given, edges = edges, np.empty(0)
        with suppress(TypeError, ValueError):
            edges = np.asarray(given, dtype=np.float64)
        is_right = edges.ndim == 1 and 3 <= edges.size <= 1001 and np.isfinite(edges).all()
        if not (is_right and (np.diff(edges) > 0).all()):
            raise ValueError(f"edges must be 3 to 1001 rising numbers, got {shown(given)}")
        with np.errstate(all="ignore"):  # what numpy warns of may be the value of one record
            if of_classes:
                predicted = np.asarray(estimator.predict_proba(X))[:, -1]
            else:
                predicted = predicted_means(estimator, X, exposure, len(y))
        bins = np.clip(np.searchsorted(edges, predicted, "right") - 1, 0, edges.size - 2)
        scoring: Any = "calibration_in_the_large" if of_classes else "mean_bias"
        groups = {"by": bins, "by_values": list(range(edges.size - 1)), "exposure": exposure}
        score = dp_score(estimator, X, y, scoring=scoring, **groups, **score_kwargs)
        return cls(edges=edges, score=score).plot(ax=ax, **(plot_kwargs or {}))

    @property
    def _is_doubling(self) -> bool:
        """Whether bins grow as those of a logarithmic axis."""
        widths = np.diff(self.edges)
        return bool(self.edges[0] >= 0 and widths[-1] > 3 * widths[0])

    @property
    def _is_share(self) -> bool:
        """Whether frequencies of a class are observed."""
        return self.score.scoring == "calibration_in_the_large"

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each bin.

        Returns
        -------
        pandas.DataFrame
            Columns "from" and "to", the edges; "predicted", the middle; "observed", the middle less
            the bias, with the ends "low" and "high" of its interval, of classifiers within [0, 1]
            as frequencies are (`score` has each bias itself); "valid", a noisy number of records.
        """
        pandas = import_pandas(f"{type(self).__name__}.to_frame")
        low, high = np.asarray(self.edges[:-1]), np.asarray(self.edges[1:])
        middle = low / 2 + high / 2
        if self._is_doubling:
            middle = np.where(low > 0, np.sqrt(low * high), middle)
        scores = (self.score.by_group or {}).values()
        bias, least, most = np.array([[s.value, *s.interval] for s in scores]).T
        seen = np.array([middle - bias, middle - most, middle - least])
        if self._is_share:
            seen = np.clip(seen, 0, 1)
        columns = {"from": low, "to": high, "predicted": middle}
        columns |= dict(zip(("observed", "low", "high"), seen, strict=True))
        return pandas.DataFrame(columns | {"valid": [s.n_valid for s in scores]})

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw a point with its interval for each bin, and the diagonal.

        Bins whose bias noise hides altogether have no point. Axes are logarithmic where bins grow.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones. An `ImportError` says if matplotlib is not installed.
        **kwargs
            For the points, as `matplotlib.axes.Axes.errorbar` takes them.
        """
        ax, frame = axes_for(self, ax), self.to_frame()
        scores = (self.score.by_group or {}).values()
        frame = frame[[s.interval[0] > s.limits[0] or s.interval[1] < s.limits[1] for s in scores]]
        ends = np.abs(frame[["low", "high"]].T - frame["observed"])
        style = {"fmt": "o", "capsize": 3, **kwargs}
        self.points_ = ax.errorbar(frame["predicted"], frame["observed"], yerr=ends, **style)
        (self.line_,) = ax.plot([], [], color="gray", linewidth=0.8)
        if self._is_doubling:
            ax.set(xscale="log", yscale="log")
        shown_edges = self.edges if frame.empty else np.unique(frame[["from", "to"]])
        least = shown_edges[shown_edges > 0][0] / 4 if self._is_doubling else shown_edges[0]
        ends = [max(shown_edges[0], least), shown_edges[-1]]
        self.line_.set_data(ends, ends)
        ax.set(xlim=ends)
        seen = frame["observed"][frame["observed"] > 0] if self._is_doubling else frame["observed"]
        ax.set(ylim=(min([ends[0], *seen]), max([ends[1], *seen])))
        what, seen_as = ("probability", "share") if self._is_share else ("mean", "mean")
        ax.set(xlabel=f"Predicted {what}", ylabel=f"Observed {seen_as}")
        return self
