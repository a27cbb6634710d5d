"""Models: what they say of each feature, and what privacy costs them, on public tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV, TweedieRegressor
from sklearn.metrics import d2_tweedie_score, make_scorer
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit, check_cv, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.parallel import Parallel, delayed

from .._checks import check_int, says_level
from .._types import Array
from ..data.cells import check_order
from ..estimates import Estimates
from ..losses import Tweedie, check_ratios
from ..model_selection.private_steps import private_last
from ..preprocessing.declared import opened, reaching, table_columns
from ..preprocessing.scaler import DPScaler
from . import axes_for, stand_ins, use_log_axis

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(kw_only=True, eq=False, repr=False)
class CoefficientDisplay:
    """The coefficients of a model, and on public data how much its noise moves them.

    `from_estimator` draws the coefficients of one private model: of a fit with ``inference=True``
    with their 95 % intervals, about the coefficients that are not shrunk, as `summary` has them (a
    line across stands for an interval without ends); of another one without error bars.

    `from_refits` fits a public or synthetic table again and again with fresh noise, and draws the
    means and standard deviations of the coefficients. These are those of that table; for another
    one they are a guess, and the better, the more its features lie like yours.

    Parameters
    ----------
    names : list of str, of the features
    coef, std : array-like of shape (n_features, n_outputs); std may be None, default=None
        `std` is how far error bars reach: standard deviations of refits, or half of an interval.
    outputs : list, default=("coef",)
        Names of the targets or the classes.
    units : {"data", "scaled"}, default="scaled"
        What the axis says: per unit of a feature, or for the width of its bounds.
    exponentiate : bool, default=False
        Whether e to the coefficients is drawn, on a logarithmic axis: a forest plot of ratios.

    Attributes
    ----------
    points_ : list of matplotlib ErrorbarContainer, by output
    ax_, figure_ : matplotlib Axes and Figure

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
    exponentiate: bool = False

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        encoder: Any = None,
        units: str = "auto",
        exponentiate: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Draw the coefficients of a fitted model. Costs nothing.

        Parameters
        ----------
        estimator : fitted estimator of this package, or a Pipeline or a search that ends with one
        encoder : PublicEncoder, other transformer or None, default=None
            What names the features, as in `coef_frame`, also if None.
        units : {"auto", "scaled", "data"}, default="auto"
            "data": as in `coef_frame`. "scaled": for the whole width of each feature's bounds, so
            that columns compare (of `HeavyTail...` for its scale). "auto" is that, and of ratios
            "data": those of `summary`.
        exponentiate : bool, default=False
            Whether to draw ratios, of odds or of rates: see `summary` of the model. A `ValueError`
            says if they are none.
        **kwargs
            As `plot` takes them.
        """
        if units == "auto":
            units = "data" if exponentiate else "scaled"
        frame, names, found = _frame(estimator, encoder, units)
        if exponentiate:
            check_ratios(opened(estimator)[0].plan_.problem.loss)
        coef, std = frame.to_numpy(), None
        if found is not None:
            half = found.half_widths(np.eye(found.coef.size)).reshape(found.coef.shape)
            coef, std = (of[:, : len(names)].T for of in (found.coef, half))
        shown: Any = {"outputs": list(frame.columns), "units": units, "exponentiate": exponentiate}
        return cls(names=names, coef=coef, std=std, **shown).plot(**kwargs)

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
        **kwargs: Any,
    ) -> Self:
        """Fit a public or synthetic table with fresh noise, and draw means and deviations.

        Parameters
        ----------
        estimator : estimator or search of this package, or a Pipeline that ends with one
            It is cloned. A `ValueError` says if there is an accountant, charged for each fit.
        X, y
            A public or synthetic table, in memory. Noise falls with the number of rows: have as
            many as in yours.
        data_is_public : bool, default=False
            Say True if so; else a `PrivacyLeakWarning` reminds you.
        n_refits : int >= 2, default=20
        encoder : PublicEncoder, other transformer or None, default=None
        units : {"scaled", "data"}, default="scaled"
            As in `from_estimator`.
        random_state : int or None, default=None
            Decides on the noise.
        n_jobs : int or None, default=None
            Fits at the same time.
        **kwargs
            As `plot` takes them.
        """
        stand_ins.check_public(f"{cls.__name__}.from_refits", X, estimator, data_is_public)
        size = check_int("n_refits", n_refits, low=2)
        models, fit = stand_ins.clones_of(estimator, random_state, [{}] * size), delayed(_frame)
        found = Parallel(n_jobs=n_jobs)(fit(model, encoder, units, (X, y)) for model in models)
        frame, names, _ = found[0]
        coefs = np.array([frame.to_numpy() for frame, *_ in found])
        shown: Any = {"names": names, "outputs": list(frame.columns), "units": units}
        coef, std = coefs.mean(axis=0), coefs.std(axis=0, ddof=1)
        return cls(coef=coef, std=std, **shown).plot(**kwargs)

    def plot(self, *, ax: Any = None, max_features: int = 20, **kwargs: Any) -> Self:
        """Draw a point for each coefficient, with its standard deviation if there is one.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones. An `ImportError` says if matplotlib is not installed.
        max_features : int, default=20
            Of more features, those with the largest coefficients are drawn.
        **kwargs
            For the points, as `matplotlib.axes.Axes.errorbar` takes them.
        """
        ax = axes_for(self, ax)
        coef = np.asarray(self.coef, dtype=np.float64)
        largest = np.sort(np.argsort(-np.abs(coef).max(axis=1), kind="stable")[:max_features])
        place, self.points_ = np.arange(largest.size), []
        for k, output in enumerate(self.outputs):
            at, ends = coef[largest, k], None
            value = np.exp(at) if self.exponentiate else at
            if self.std is not None:
                std = np.asarray(self.std)[largest, k]
                for row in place[np.isinf(std)]:
                    ax.axhline(row, color="gray", linewidth=0.5, linestyle=":")
                ends = np.where(np.isinf(std), np.nan, std)
                if self.exponentiate:
                    ends = np.abs(np.exp([at - ends, at + ends]) - value)
            style = {"fmt": "o", "capsize": 3, "label": str(output), **kwargs}
            self.points_.append(ax.errorbar(value, place, xerr=ends, **style))
        if self.exponentiate:
            use_log_axis(ax)
        ax.axvline(1 if self.exponentiate else 0, color="gray", linewidth=0.8)
        ax.set_yticks(place, [self.names[k] for k in largest])
        ax.invert_yaxis()
        what = "Ratio" if self.exponentiate else "Coefficient"
        of = "for the width, or scale," if self.units == "scaled" else "per unit"
        ax.set_xlabel(f"{what} {of} of the feature")
        if len(self.outputs) > 1 or self.outputs[0] != "coef":
            ax.legend(loc="best")
        return self


def coef_frame(estimator: Any, encoder: Any = None, *, units: str = "data") -> Any:
    """The coefficients of a fitted model, pipeline or search, as a pandas data frame.

    Of a pipeline those of its last step, named by the step before that; of a search those of the
    best model.

    Parameters
    ----------
    estimator : fitted estimator
        A model of this package, or a pipeline or a search that ends with one.
    encoder : PublicEncoder, other transformer or None, default=None
        By whose output columns rows are named; None stands for the step before the model, and
        without a pipeline for the encoder of `bounds_X`, if it is one.
    units : {"data", "scaled"}, default="data"
        As in the method `coef_frame` of a model, which says what the frame holds.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    ValueError
        If there is no such model.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_dpsco import DPLinearRegression, PublicEncoder, coef_frame
    >>> table = pd.DataFrame({"age": [20, 40] * 500, "member": [True, False] * 500})
    >>> encoder = PublicEncoder({"age": (18, 98), "member": bool})
    >>> model = make_pipeline(encoder, DPLinearRegression(bounds_X=encoder, bounds_y=(0, 9)))
    >>> [name for name, _ in coef_frame(model.fit(table, [3.0, 5.0] * 500)).index]
    ['age', 'member', '(intercept)']
    """
    model, names_of = _model_and_names(estimator, encoder)
    private_last(model, "coef_frame takes a model")
    return model.coef_frame(names_of, units=units)


@says_level
def predict_interval(estimator: Any, X: Any, *, level: float = 0.95, **settings: Any) -> Array:
    """Intervals of the mean, or with of="record" of one new target, for each row of X.

    Of a pipeline, X is the table that it takes, such as new records. Costs nothing.

    Parameters
    ----------
    estimator : fitted estimator
        A model of this package that was fitted with ``inference=True``, or a pipeline or a search
        that ends with one.
    X : array-like or data frame, in memory
        Rows as `predict` of the estimator takes them.
    level : float in [0.5, 1), default=.95
    **settings
        `of` and `exposure`, as the method `predict_interval` of the model has them.

    Returns
    -------
    ndarray of shape (n_samples, 2), or (n_samples, n_outputs, 2)

    Raises
    ------
    ValueError
        If there is no such model.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_dpsco import DPLinearRegression, PublicEncoder, predict_interval
    >>> table = pd.DataFrame({"age": [20, 40, 60] * 1000, "member": [True, False] * 1500})
    >>> encoder = PublicEncoder({"age": (18, 98), "member": bool})
    >>> model = make_pipeline(
    ...     encoder, DPLinearRegression(bounds_X=encoder, bounds_y=(0, 9), inference=True))
    >>> _ = model.fit(table, [3.0, 5.0, 7.0] * 1000)
    >>> predict_interval(model, table[:4]).shape
    (4, 2)
    """
    private_last(estimator, "predict_interval takes a model")
    check_order(X=X, exposure=settings.get("exposure"))
    model, rows = reaching(estimator, X)
    if not hasattr(model, "predict_interval"):
        raise ValueError(f"{type(model).__name__} has no intervals: take a model with inference")
    return np.asarray(model.predict_interval(rows, level=level, **settings))


def _model_and_names(estimator: Any, encoder: Any) -> tuple[Any, Any]:
    """The last model, and what names its columns: the encoder, else steps before it."""
    model, before = opened(estimator)
    if encoder is None and before and hasattr(before[-1], "get_feature_names_out"):
        encoder = before[-1]
        has_units = isinstance(encoder, DPScaler) or table_columns(encoder) is not None
        if not has_units and all(hasattr(step, "get_feature_names_out") for step in before):
            encoder = make_pipeline(*before)  # names come through all of them
    return model, encoder


def _frame(
    estimator: Any, encoder: Any, units: str, data: Any = ()
) -> tuple[Any, list[str], Estimates | None]:
    """The coefficients without the intercept, the names of these rows, and how sure they are.

    Of a fit to the data, if there are any.
    """
    if data:
        estimator.fit(*data)
    model, names_of = _model_and_names(estimator, encoder)
    frame = model.coef_frame(names_of, units=units).iloc[:-1]
    found = model.summary(names_of, units=units) if hasattr(model, "coef_std_") else None
    if units == "scaled":  # some by half of the width of their bounds, and others by all of it
        whole = np.broadcast_to(model._whole, len(frame))
        frame = frame.mul(whole, axis=0)
        found = found and found.in_units(found.names, 0 * whole, 1 / whole)
    if frame.index.nlevels == 1:
        return frame, [str(name) for name in frame.index], found
    # those of categories with their column
    names = [f"{column}: {value}" if value != "" else column for column, value in frame.index]
    return frame, names, found


@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyUtilityDisplay:
    """Test score against epsilon, between no privacy and no model at all.

    For **public or synthetic data only**: the scores have no noise, and the fits are charged to no
    budget. Learn from a table that resembles yours (an open one, a simulated one) what an epsilon
    is worth; for private scores of a private model see `dp_score`. Make one by `from_estimator`, or
    by `from_schema` where no such table is at hand.

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
    line_, non_private_line_, trivial_line_ : matplotlib Line2D or None
        The medians.
    band_ : matplotlib collection
        From the first to the third quartile of the splits, each with noise of its own.
    ax_, figure_ : matplotlib Axes and Figure

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
        **kwargs: Any,
    ) -> Self:
        """Fit and score at each epsilon, and draw.

        Parameters
        ----------
        estimator : estimator or search of this package, or a Pipeline that ends with one
            It is cloned. A `ValueError` says if another step has a budget, so that epsilon is not
            that of the whole, or if there is an accountant, which each fit would charge.
        X, y
            A public or synthetic table, in memory.
        data_is_public : bool, default=False
            Say True if so; else a `PrivacyLeakWarning` reminds you.
        epsilons : array-like of shape (n_epsilons,), default=(0.1, 0.3, 1, 3, 10)
            Numbers in [1e-15, 1e9].
        non_private : "auto", estimator or None, default="auto"
            What is fitted without privacy. "auto": `RidgeCV`, or `LogisticRegression`, or of counts
            and costs `TweedieRegressor`, on columns divided by their standard deviations, behind
            the other steps of a pipeline. None: nothing.
        trivial : "auto", estimator or None, default="auto"
            What does not look at X. "auto": the mean target, or the frequencies of the classes
            (`DummyRegressor`, `DummyClassifier`). None: nothing.
        cv : None, int, splitter or iterable, default=None
            As in `cross_val_score`; each split is one fit at each epsilon, with noise of its own.
            None: ten random splits with a quarter for the test, of classes stratified.
        scoring : str, callable or None, default=None
            As in `cross_val_score`. None: the estimator's own, R2 or the accuracy, or of counts and
            costs D2, the part of the deviance that is explained.
        random_state : int or None, default=None
            Decides on the splits and the noise.
        n_jobs : int or None, default=None
            Fits at the same time.
        **kwargs
            As `plot` takes them.
        """
        stand_ins.check_public(cls.__name__, X, estimator, data_is_public)
        stand_ins.check_one_budget(estimator)
        of_classes = is_classifier(estimator)
        if cv is None:
            kind = StratifiedShuffleSplit if of_classes else ShuffleSplit
            cv = kind(n_splits=10, test_size=0.25, random_state=random_state)
        splits = list(check_cv(cv, y, classifier=of_classes).split(X, y))
        epsilons = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
        loss = getattr(stand_ins.model_of(estimator), "loss", None)
        power = loss.power if isinstance(loss, Tweedie) else None  # None: no counts or costs
        if isinstance(non_private, str):
            non_private = _non_private(estimator, power)
        if isinstance(trivial, str):
            trivial = DummyClassifier() if of_classes else DummyRegressor()
        name = "accuracy" if of_classes else "R2" if power is None else "D2"
        if scoring is not None:
            is_name = isinstance(scoring, str)
            name = scoring.replace("_", " ") if is_name else getattr(scoring, "__name__", "score")
        elif power is not None:
            scoring = make_scorer(d2_tweedie_score, power=power)  # also of what is compared
        settings = [{"epsilon": float(epsilon)} for epsilon in epsilons for _ in splits]
        models = stand_ins.clones_of(estimator, random_state, settings)
        given = {"scoring": scoring, "error_score": "raise"}
        found = Parallel(n_jobs=n_jobs)(
            delayed(cross_val_score)(model, X, y, cv=[split], **given)
            for model, split in zip(models, itertools.cycle(splits), strict=False)
        )
        others: Any = {"non_private_scores": non_private, "trivial_scores": trivial}
        for which, model in others.items():
            if model is not None:
                others[which] = cross_val_score(model, X, y, cv=splits, n_jobs=n_jobs, **given)
        scores = np.reshape(found, (-1, len(splits)))
        display = cls(epsilons=epsilons, scores=scores, score_name=str(name), **others)
        return display.plot(**kwargs)

    @classmethod
    def from_schema(
        cls,
        estimator: Any,
        schema: Any,
        n_samples: int | Sequence[int],
        *,
        score_without_privacy: float,
        n_splits: int = 10,
        random_state: int | None = None,
        ax: Any = None,
        assumptions: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw scores against epsilon on a public stand-in: no data are needed, none are read.

        Parameters
        ----------
        estimator
            As in `from_estimator`. A pipeline is fitted to the table, and else to what the encoder
            makes of it.
        schema : PublicEncoder, its schema, or number of features
        n_samples : int or sequence of int
            Rows to fit. Of several numbers each has a line, and the display holds the last one.
        score_without_privacy : float
            Of the stand-in, as in `rows_needed`.
        n_splits : int >= 1, default=10
            Fits at each epsilon, on rows and with noise of their own.
        random_state : int or None, default=None
            Decides on the stand-in, the rows and the noise.
        ax : matplotlib Axes or None, default=None
        assumptions : dict or None, default=None
            Of the stand-in: `target`, `prevalence`, `correlation`, as in `rows_needed`.
        **kwargs
            As in `from_estimator`, but for `cv`.
        """
        if "cv" in kwargs:
            raise TypeError("cv is for from_estimator: here n_samples and n_splits say the splits")
        _, table = stand_ins.stand_in(estimator, schema, score_without_privacy, assumptions or {})
        if not (sizes := [check_int("n_samples", n, low=2) for n in np.ravel(n_samples).tolist()]):
            raise ValueError("n_samples must be a number of rows, or several, got none")
        X, y, _ = table(max(sizes) + stand_ins.N_NEW, random_state)
        given = {"data_is_public": True, "scoring": stand_ins.scoring_of(estimator)[0], **kwargs}
        kind = StratifiedShuffleSplit if is_classifier(estimator) else ShuffleSplit
        for k, size in enumerate(sizes):
            part = {"train_size": size, "test_size": stand_ins.N_NEW}
            cv = kind(n_splits, **part, random_state=random_state)
            own = {"cv": cv, "random_state": random_state, "ax": ax}
            own |= {} if k == len(sizes) - 1 else {"non_private": None, "trivial": None}
            named = {"name": f"{size:,} rows", **given, **own}
            display: Any = cls.from_estimator(estimator, X, y, **named)
            ax = display.ax_
        return display

    def plot(self, *, ax: Any = None, name: str = "private", **kwargs: Any) -> Self:
        """Draw the medians over the splits, with their quartiles.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones. An `ImportError` says if matplotlib is not installed.
        name : str, default="private"
            Of the line, in the legend.
        **kwargs
            For the line, as `matplotlib.axes.Axes.plot` takes them.
        """
        ax = axes_for(self, ax)
        low, middle, high = np.percentile(self.scores, [25, 50, 75], axis=1)
        style = {"marker": "o", "label": name, **kwargs}
        (self.line_,) = ax.plot(self.epsilons, middle, **style)
        color = self.line_.get_color()
        self.band_ = ax.fill_between(self.epsilons, low, high, alpha=0.2, color=color)
        others = {"without privacy": self.non_private_scores, "trivial": self.trivial_scores}
        lines: list[Any] = []
        for (label, scores), linestyle in zip(others.items(), ("--", ":"), strict=True):
            style = {"color": "gray", "linestyle": linestyle, "label": label}
            lines.append(None if scores is None else ax.axhline(float(np.median(scores)), **style))
        self.non_private_line_, self.trivial_line_ = lines
        ax.set(xlabel="Epsilon", ylabel=f"Test {self.score_name}")
        use_log_axis(ax)
        ax.legend(loc="best")
        return self


def _non_private(estimator: Any, power: float | None) -> Any:
    """A model of its kind without privacy, in a pipeline behind the same steps."""
    if isinstance(estimator, Pipeline):
        *before, (name, last) = estimator.steps
        copies = [(of, clone(step, safe=False)) for of, step in before]
        return Pipeline([*copies, (name, _non_private(last, power))])
    if hasattr(estimator, "estimator"):  # a search
        return _non_private(estimator.estimator, power)
    linear: Any = RidgeCV(np.logspace(-3, 3, 13))
    if is_classifier(estimator):
        linear = LogisticRegression(max_iter=1000)
    elif power is not None:
        linear = TweedieRegressor(power=power, link="log", alpha=1e-3, max_iter=1000)
    return make_pipeline(StandardScaler(with_mean=False), linear)  # also of sparse columns
