"""What a model says of each feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from .._checks import check_int
from .axes import axes_for
from .public_data import check_public, seeds, with_noise_of

__all__ = ["CoefficientDisplay"]


@dataclass(kw_only=True, eq=False, repr=False)
class CoefficientDisplay:
    """The coefficients of a model, and on public data how much its noise moves them.

    `from_estimator` draws the coefficients of one private model. They come **without error bars**:
    a plan tells the noise of each release, but not what becomes of it in the coefficients. That
    depends on how the features lie, by factors of ten and more, and features are private.

    `from_refits` fits a public or synthetic table again and again with fresh noise, and draws the
    means and standard deviations of the coefficients. These are those of that table; for another
    one they are a guess, and the better, the more its features lie like yours.

    Parameters
    ----------
    names : list of str
        Of the features.
    coef : array-like of shape (n_features, n_outputs)
    std : array-like of shape (n_features, n_outputs) or None, default=None
    outputs : list, default=("coef",)
        Names of the targets or the classes.
    units : {"data", "scaled"}, default="scaled"

    Attributes
    ----------
    points_ : list of matplotlib ErrorbarContainer
        One for each output.
    ax_, figure_
        Axes and figure.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import CoefficientDisplay, DPLinearRegression
    >>> X = np.random.default_rng(0).uniform(0, 1, (1000, 3))
    >>> model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1)).fit(X, X[:, 0])
    >>> display = CoefficientDisplay.from_estimator(model)  # doctest: +SKIP
    """

    names: list[str]
    coef: Any
    std: Any = None
    outputs: Any = ("coef",)
    units: str = "scaled"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        encoder: Any = None,
        units: str = "scaled",
        ax: Any = None,
        max_features: int = 20,
        **kwargs: Any,
    ) -> Self:
        """Draw the coefficients of a fitted model. Costs nothing.

        Parameters
        ----------
        estimator : fitted estimator of this package, or a Pipeline or a search that ends with one
        encoder : PublicEncoder, other transformer or None, default=None
            What names the features, as in `coef_frame`. None: in a pipeline, the step before.
        units : {"scaled", "data"}, default="scaled"
            As in `coef_frame`: "scaled" makes columns comparable.
        ax, max_features, **kwargs
            As in `plot`.

        Returns
        -------
        CoefficientDisplay
        """
        frame, names = _frame(estimator, encoder, units)
        display = cls(names=names, coef=frame.to_numpy(), outputs=list(frame.columns), units=units)
        return display.plot(ax=ax, max_features=max_features, **kwargs)

    @classmethod
    def from_refits(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        data_is_public: bool = False,
        n_refits: int = 20,
        encoder: Any = None,
        units: str = "scaled",
        random_state: int | None = None,
        n_jobs: int | None = None,
        ax: Any = None,
        max_features: int = 20,
        **kwargs: Any,
    ) -> Self:
        """Fit a public or synthetic table with fresh noise, and draw means and deviations.

        Parameters
        ----------
        estimator : estimator or search of this package, or a Pipeline that ends with one
            It is cloned. There may be no accountant.
        X, y
            A public or synthetic table, in memory. Noise falls with the number of rows: have as
            many as in yours.
        data_is_public : bool, default=False
            Say True if so; else a `PrivacyLeakWarning` reminds you.
        n_refits : int >= 2, default=20
        encoder, units
            As in `from_estimator`.
        random_state : int or None, default=None
            Decides on the noise.
        n_jobs : int or None, default=None
            Fits at the same time.
        ax, max_features, **kwargs
            As in `plot`.

        Returns
        -------
        CoefficientDisplay

        Warns
        -----
        PrivacyLeakWarning
            Unless ``data_is_public=True``.

        Raises
        ------
        ValueError
            If an accountant is in force, which would be charged for every fit.
        """
        check_public(f"{cls.__name__}.from_refits", X, estimator, data_is_public)
        size = check_int("n_refits", n_refits, low=2)
        fit = delayed(_frame)
        found = Parallel(n_jobs=n_jobs)(
            fit(with_noise_of(estimator, seed), encoder, units, (X, y))
            for seed in seeds(random_state, size)
        )
        frame, names = found[0]
        coefs = np.array([frame.to_numpy() for frame, _ in found])
        display = cls(
            names=names,
            coef=coefs.mean(axis=0),
            std=coefs.std(axis=0, ddof=1),
            outputs=list(frame.columns),
            units=units,
        )
        return display.plot(ax=ax, max_features=max_features, **kwargs)

    def plot(self, *, ax: Any = None, max_features: int = 20, **kwargs: Any) -> Self:
        """Draw a point for each coefficient, with its standard deviation if there is one.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones.
        max_features : int, default=20
            Of more features, those with the largest coefficients are drawn.
        **kwargs
            For the points, as `matplotlib.axes.Axes.errorbar` takes them.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_for(self, ax)
        coef = np.asarray(self.coef, dtype=np.float64)
        size = np.abs(coef).max(axis=1)
        largest = np.sort(np.argsort(-size, kind="stable")[:max_features])
        place, self.points_ = np.arange(largest.size), []
        for k, output in enumerate(self.outputs):
            std = None if self.std is None else np.asarray(self.std)[largest, k]
            style = {"fmt": "o", "capsize": 3, "label": str(output), **kwargs}
            self.points_.append(ax.errorbar(coef[largest, k], place, xerr=std, **style))
        ax.axvline(0, color="gray", linewidth=0.8)
        ax.set_yticks(place, [self.names[k] for k in largest])
        ax.invert_yaxis()
        ax.set_xlabel("Coefficient" + (" of the scaled feature" if self.units == "scaled" else ""))
        if len(self.outputs) > 1 or self.outputs[0] != "coef":
            ax.legend(loc="best")
        return self


def _frame(estimator: Any, encoder: Any, units: str, data: Any = ()) -> tuple[Any, list[str]]:
    """The coefficients without the intercept, and the names of these rows; of a fit if to data."""
    step_before = None
    if data:
        estimator.fit(*data)
    while isinstance(estimator, Pipeline) or hasattr(estimator, "best_estimator_"):
        if isinstance(estimator, Pipeline):
            named = [step for _, step in estimator.steps[:-1] if step not in (None, "passthrough")]
            step_before = next((s for s in named[-1:] if hasattr(s, "get_feature_names_out")), None)
            estimator = estimator[-1]
        else:
            estimator = estimator.best_estimator_
    names_of = step_before if encoder is None else encoder
    frame = estimator.coef_frame(names_of, units=units).iloc[:-1]
    if frame.index.nlevels == 1:
        return frame, [str(name) for name in frame.index]
    # those of categories with their column
    return frame, [f"{column}: {value}" if value != "" else column for column, value in frame.index]
