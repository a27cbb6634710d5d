"""What privacy costs in accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import (
    ShuffleSplit,
    StratifiedShuffleSplit,
    check_cv,
    cross_val_score,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.parallel import Parallel, delayed

from .axes import axes_for
from .public_data import budgeted_steps, check_public, seeds, with_noise_of

__all__ = ["PrivacyUtilityDisplay"]

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyUtilityDisplay:
    """Test score against epsilon, between no privacy and no model at all.

    For **public or synthetic data only**: the scores have no noise, and the fits are charged to no
    budget. Learn from a table that resembles yours (an open one, a simulated one) what an epsilon
    is worth; for private scores of a private model see `dp_score`.

    Make one by `from_estimator`.

    Parameters
    ----------
    epsilons : array-like of shape (n_epsilons,)
    scores : array-like of shape (n_epsilons, n_splits)
        Of the private fits on the test parts.
    non_private_scores, trivial_scores : array-like of shape (n_splits,) or None, default=None
        Of what learns without privacy, and of what does not look at the features.
    score_name : str, default="score"

    Attributes
    ----------
    line_ : matplotlib Line2D
        The medians.
    band_ : matplotlib collection
        From the first to the third quartile of the splits, each with noise of its own.
    non_private_line_, trivial_line_ : matplotlib Line2D or None
        At the medians.
    ax_, figure_
        Axes and figure.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_dpsco import DPLinearRegression, PrivacyUtilityDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DPLinearRegression(bounds_X=(-0.2, 0.2), bounds_y=(0, 400))
    >>> display = PrivacyUtilityDisplay.from_estimator(
    ...     model, X, y, data_is_public=True
    ... )  # doctest: +SKIP
    """

    epsilons: Any
    scores: Any
    non_private_scores: Any = None
    trivial_scores: Any = None
    score_name: str = "score"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        data_is_public: bool = False,
        epsilons: Any = _EPSILONS,
        non_private: Any = "auto",
        trivial: Any = "auto",
        cv: Any = None,
        scoring: Any = None,
        random_state: int | None = None,
        n_jobs: int | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Fit and score at each epsilon, and draw.

        Parameters
        ----------
        estimator : estimator or search of this package, or a Pipeline that ends with one
            It is cloned. No other step may have a budget, and there may be no accountant.
        X, y
            A public or synthetic table, in memory.
        data_is_public : bool, default=False
            Say True if so; else a `PrivacyLeakWarning` reminds you.
        epsilons : array-like of shape (n_epsilons,), default=(0.1, 0.3, 1, 3, 10)
            Numbers in [1e-15, 1e9].
        non_private : "auto", estimator or None, default="auto"
            What is fitted without privacy. "auto": `RidgeCV`, or `LogisticRegression`, on columns
            divided by their standard deviations, behind the other steps of a pipeline. None:
            nothing.
        trivial : "auto", estimator or None, default="auto"
            What does not look at X. "auto": the mean target, or the frequencies of the classes
            (`DummyRegressor`, `DummyClassifier`). None: nothing.
        cv : None, int, splitter or iterable, default=None
            As in `cross_val_score`; each split is one fit at each epsilon, with noise of its own.
            None: ten random splits with a quarter for the test, of classes stratified.
        scoring : str, callable or None, default=None
            As in `cross_val_score`. None: the estimator's own, R2 or the accuracy.
        random_state : int or None, default=None
            Decides on the splits and the noise.
        n_jobs : int or None, default=None
            Fits at the same time.
        ax, **kwargs
            As in `plot`.

        Returns
        -------
        PrivacyUtilityDisplay

        Warns
        -----
        PrivacyLeakWarning
            Unless ``data_is_public=True``.

        Raises
        ------
        ValueError
            If an accountant is in force, which would be charged for every fit, or another step
            has a budget, so that epsilon is not that of the whole.
        """
        check_public(cls.__name__, X, estimator, data_is_public)
        budgeted = budgeted_steps(estimator)
        if len(budgeted) > 1:
            raise ValueError(
                f"several steps have a budget ({', '.join(sorted(budgeted))}), so that epsilon "
                "would not be that of the whole: put the pipeline into a DPGridSearchCV, which has "
                "one for all"
            )
        of_classes = is_classifier(estimator)
        if cv is None:
            kind = StratifiedShuffleSplit if of_classes else ShuffleSplit
            cv = kind(n_splits=10, test_size=0.25, random_state=random_state)
        splits = list(check_cv(cv, y, classifier=of_classes).split(X, y))
        epsilons = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
        if isinstance(trivial, str):
            trivial = DummyClassifier() if of_classes else DummyRegressor()
        compared = [_non_private(non_private, estimator), trivial]
        noise = seeds(random_state, epsilons.size * len(splits))
        models = [
            [with_noise_of(estimator, next(noise), epsilon=float(epsilon)) for _ in splits]
            for epsilon in epsilons
        ] + [[model] * len(splits) for model in compared if model is not None]
        score = delayed(cross_val_score)
        found = Parallel(n_jobs=n_jobs)(
            score(model, X, y, cv=[split], scoring=scoring, error_score="raise")
            for row in models
            for model, split in zip(row, splits, strict=True)
        )
        rows = iter(np.reshape(found, (len(models), len(splits))))
        scores = np.array([next(rows) for _ in epsilons])
        baselines = [None if model is None else next(rows) for model in compared]
        name = "accuracy" if of_classes else "R2"
        if scoring is not None:
            is_name = isinstance(scoring, str)
            name = scoring.replace("_", " ") if is_name else getattr(scoring, "__name__", "score")
        display = cls(
            epsilons=epsilons,
            scores=scores,
            non_private_scores=baselines[0],
            trivial_scores=baselines[1],
            score_name=str(name),
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, name: str = "private", **kwargs: Any) -> Self:
        """Draw the medians over the splits, with their quartiles.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones.
        name : str, default="private"
            Of the line, in the legend.
        **kwargs
            For the line, as `matplotlib.axes.Axes.plot` takes them.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_for(self, ax)
        low, middle, high = np.percentile(self.scores, [25, 50, 75], axis=1)
        style = {"marker": "o", "label": name, **kwargs}
        (self.line_,) = ax.plot(self.epsilons, middle, **style)
        color = self.line_.get_color()
        self.band_ = ax.fill_between(self.epsilons, low, high, alpha=0.2, color=color)
        lines: list[Any] = []
        for scores, linestyle, label in (
            (self.non_private_scores, "--", "without privacy"),
            (self.trivial_scores, ":", "trivial"),
        ):
            style = {"color": "gray", "linestyle": linestyle, "label": label}
            is_drawn = scores is not None
            lines.append(ax.axhline(float(np.median(scores)), **style) if is_drawn else None)
        self.non_private_line_, self.trivial_line_ = lines
        ax.set(xscale="log", xlabel="Epsilon", ylabel=f"Test {self.score_name}")
        ax.xaxis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.legend(loc="best")
        return self


def _non_private(model: Any, estimator: Any) -> Any:
    """The model without privacy, in a pipeline behind the same steps."""
    if not isinstance(model, str):
        return model
    if isinstance(estimator, Pipeline):
        last_name, last = estimator.steps[-1]
        before = [(name, clone(step, safe=False)) for name, step in estimator.steps[:-1]]
        return Pipeline([*before, (last_name, _non_private(model, last))])
    if hasattr(estimator, "estimator"):  # a search
        return _non_private(model, estimator.estimator)
    linear: Any = RidgeCV(np.logspace(-3, 3, 13))
    if is_classifier(estimator):
        linear = LogisticRegression(max_iter=1000)
    return make_pipeline(StandardScaler(with_mean=False), linear)  # also of sparse columns
