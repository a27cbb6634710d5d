"""Observed against predicted means, by bins of the prediction, under differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from .._checks import import_pandas, import_pyplot, shown
from ..metrics.scores import DPScore, dp_score
from . import axes_for

_POINTS = {"fmt": "o", "capsize": 3}


@dataclass(kw_only=True, eq=False, repr=False)
class CalibrationDisplay:
    r"""Observed against predicted means, by bins of the prediction, on held-out private records.

    Records are put into public bins by their predictions. Of each bin the mean target, with an
    interval, and the mean prediction are released (`dp_score`), of classifiers the share of the
    second class and its mean probability: below the diagonal the model predicts too much.

    Make one by `from_estimator`.

    Parameters
    ----------
    score : DPScore
        Of "calibration_curve" or of "binned_means".

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
        """Release the means in each bin, and draw.

        Parameters
        ----------
        estimator : fitted regression or classifier of two classes
            As in `dp_score`.
        X, y
            Records that the estimator was not fitted on.
        edges : array-like of shape (n_bins + 1,) or None, default=None
            Rising numbers, which must be public, in units of the prediction, of classifiers the
            probability of the second class: `n_bins` of `dp_score`, which says what None stands
            for.
        exposure : array-like of shape (n_samples,) or None, default=None
            As in `dp_score`: predictions are the expected numbers of each record's exposure, and so
            are bins and axes.
        ax : matplotlib Axes or None, default=None
        plot_kwargs : dict or None, default=None
            As `plot` takes them.
        **score_kwargs
            `epsilon`, `delta`, `relation`, `accountant`, `confidence`, `max_error` and others of
            `dp_score`, but `scoring`, `by` and `n_bins`. Targets are clipped at `max_error` from
            the ends of their bin, and noise is proportional to what that leaves of `bounds_y`.

        Returns
        -------
        CalibrationDisplay

        Raises
        ------
        ValueError, PrivacyBudgetError
            As of `dp_score`, or if `edges` are wrong. Nothing is spent then, nor where pandas or
            matplotlib is missing, or `ax` or `plot_kwargs` cannot be drawn with.
        """
        if taken := {"scoring", "by", "by_values", "n_bins"} & set(score_kwargs):
            instead = ": give edges" if "n_bins" in taken else ""
            raise TypeError(f"{cls.__name__}.from_estimator sets {min(taken)} itself{instead}")
        scoring: Any = "calibration_curve" if is_classifier(estimator) else "binned_means"
        edges, style = "auto" if edges is None else edges, dict(plot_kwargs or {})
        # what cannot be drawn is found before the charge, on axes that nobody sees
        import_pandas(f"{cls.__name__}.to_frame")
        pyplot = import_pyplot(f"{cls.__name__}.plot")
        if not (ax is None or isinstance(ax, pyplot.Axes)):
            raise TypeError(f"ax must be an Axes of matplotlib or None, got {shown(ax)}")
        of_all = {name: value for name, value in style.items() if np.ndim(value) == 0}
        pyplot.Figure().subplots().errorbar([], [], yerr=[], **(_POINTS | of_all))
        given = {"scoring": scoring, "n_bins": edges, "exposure": exposure}
        return cls(score=dp_score(estimator, X, y, **given, **score_kwargs)).plot(ax=ax, **style)

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each bin.

        Returns
        -------
        pandas.DataFrame
            Columns "from" and "to", the edges; "predicted" and "observed", the means, both NaN
            where noise hides them: where the interval is half or more of all that is possible;
            "low" and "high", the interval of "observed"; "valid", a noisy number of records.
        """
        import_pandas(f"{type(self).__name__}.to_frame")
        names = {"prob_pred": "predicted", "prob_true": "observed"}
        frame = self.score.to_frame().rename(columns=names)
        ends, limits = self.score.interval, self.score.limits
        hidden = 2 * (ends[1] - ends[0]) >= np.subtract(*limits[::-1])
        frame.loc[hidden, ["predicted", "observed"]] = np.nan
        return frame

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw a point with its interval for each bin, and the diagonal.

        Bins that noise hides have no point. Axes are logarithmic where bins grow.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones. An `ImportError` says if matplotlib is not installed.
        **kwargs
            For the points, as `matplotlib.axes.Axes.errorbar` takes them.
        """
        ax, frame = axes_for(self, ax), self.to_frame().dropna()
        edges = np.asarray(self.score.bin_edges)
        is_doubling = edges[0] >= 0 and edges[-1] - edges[-2] > 3 * (edges[1] - edges[0])
        points = frame[["predicted", "observed"]].to_numpy().T
        ends = np.abs(frame[["low", "high"]].to_numpy().T - points[1])
        self.points_ = ax.errorbar(*points, yerr=ends, **(_POINTS | kwargs))
        shown_edges = np.unique((self.to_frame() if frame.empty else frame)[["from", "to"]])
        least = shown_edges[shown_edges > 0][0] / 4 if is_doubling else shown_edges[0]
        diagonal = [max(shown_edges[0], least), shown_edges[-1]]
        (self.line_,) = ax.plot(diagonal, diagonal, color="gray", linewidth=0.8)
        if is_doubling:
            ax.set(xscale="log", yscale="log")
        is_share = self.score.scoring == "calibration_curve"
        what, seen_as = ("probability", "share") if is_share else ("mean", "mean")
        of = self.score.of_class
        ax.set(xlabel=f"Predicted {what}{of}", ylabel=f"Observed {seen_as}{of}")
        return self
