"""What a pipeline learns from data without privacy, step by step."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from .._checks import shown
from ..data.bounds import check_feature_bounds
from .declared import (
    DECLARED_CATEGORIES,
    TWO_OF_THEM,
    branches,
    declared_columns,
    has_settings,
    is_given,
    is_passthrough,
    last_of,
    leaves,
    opened,
    table_columns,
)
from .vocabulary import PrivateVocabulary


@dataclass(frozen=True)
class LeakFinding:
    """A step that learns from data without privacy, or may do so.

    Attributes
    ----------
    step, kind : str
        Its name, after those of the pipelines that it is in, ``prepare: scale``; and its class.
    leaks, instead : str
        What it takes from the data, and what to take in its place.

    Examples
    --------
    >>> from sklearn.impute import SimpleImputer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_dpsco import DPLassoFW, check_pipeline
    >>> finding = check_pipeline(make_pipeline(SimpleImputer(), DPLassoFW())).findings[0]
    >>> finding.step, finding.kind
    ('simpleimputer', 'SimpleImputer')
    """

    step: str
    kind: str
    leaks: str
    instead: str

    def __str__(self) -> str:
        return f"{self.step} ({self.kind}) leaks {self.leaks}; instead: {self.instead}"


@dataclass(frozen=True)
class LeakReport:
    """What `check_pipeline` found; true if that is nothing.

    Attributes
    ----------
    findings : tuple of LeakFinding
        In the order of the steps.
    repeated : tuple of str
        Steps that fit private models more than once, such as `RFE`: no leak, but each fit costs
        its epsilon, and all compose, as an accountant counts them.
    clipped : tuple of str
        Steps that make negative values, such as hashes with signs and a `PublicEncoder`, which
        bounds of the last step from 0 on make 0: no leak, but what half of them say is lost.
    budgeted : tuple of str
        What comes before the model and costs an epsilon of its own, and how much: a `DPScaler`, a
        `PrivateVocabulary`, and one in `bounds_X` that was fitted before.
    unlike : tuple of str
        The step before the model, if an encoder in it has other settings than that in `bounds_X`:
        no leak, but coefficients get names and units that are not theirs. Fits refuse it only
        where the encoder itself made their X, not behind a `ColumnTransformer` or a cache.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_dpsco import DPLassoFW, PublicEncoder, check_pipeline
    >>> report = check_pipeline(make_pipeline(PublicEncoder({"age": (0, 100)}), DPLassoFW()))
    >>> report.ok
    True
    >>> print(report)
    no step is known to leak
    """

    findings: tuple[LeakFinding, ...]
    repeated: tuple[str, ...] = ()
    clipped: tuple[str, ...] = ()
    budgeted: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[LeakFinding]:
        return iter(self.findings)

    def __str__(self) -> str:
        notes = [
            f"{step} fits private models more than once: all its fits compose"
            for step in self.repeated
        ]
        notes += [
            f"{step} makes negative values, which bounds_X makes 0: give bounds_X the transformer "
            "itself, or (-1, 1); of hashed words alternate_sign=False makes none"
            for step in self.clipped
        ]
        notes += [f"{step} of its own: that of the model comes on top" for step in self.budgeted]
        notes += [f"{step} is not what bounds_X says{TWO_OF_THEM}" for step in self.unlike]
        return "\n".join([*map(str, self.findings or ["no step is known to leak"]), *notes])


def check_pipeline(pipe: Any) -> LeakReport:
    """Name every step that learns from data without privacy. Reads no data and prints nothing.

    It looks into pipelines, column transformers, unions, and estimators that hold others. A
    step passes if it is of this package, with declared classes, a finite epsilon and no seed; or
    if it declares its outputs (`declared_output`), says by its tags that it needs no fit
    (``requires_fit=False``), or is a transformer of scikit-learn whose parameters leave nothing to
    learn, such as ``OneHotEncoder(categories=[...])``. Of other packages' steps nothing is known,
    and they are reported as such.

    It is a list of known mistakes and no proof: a function in a `FunctionTransformer` that uses
    the mean of its table leaks it, and a step before the pipeline cannot be seen. Types of columns
    are taken for public, and so is what `make_column_selector` chooses by them.

    Parameters
    ----------
    pipe : estimator
        A pipeline, a transformer, or a search or the like, fitted or not; else a `TypeError`. A
        `ValueError` if no leak is known, and a transformer in the place of bounds declares none.

    Returns
    -------
    LeakReport
        Its `findings`; ``bool(report)`` and `report.ok` are True if there are none. Steps that are
        no leak but hardly meant are named, too.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn_dpsco import DPLassoFW, check_pipeline
    >>> report = check_pipeline(make_pipeline(StandardScaler(), DPLassoFW()))
    >>> report.ok, report.findings[0].step
    (False, 'standardscaler')
    """
    if isinstance(pipe, type) or not (hasattr(pipe, "fit") or hasattr(pipe, "transform")):
        raise TypeError(
            f"pipe must be an estimator, a transformer or a pipeline, got {shown(pipe)}"
        )
    found = list(_look_at("", pipe))
    findings = tuple(one for one in found if isinstance(one, LeakFinding))
    repeated = tuple(one for one in found if isinstance(one, str))
    if not findings:  # (`fit` would stop there when other steps were charged)
        last, _ = opened(pipe)
        declared_columns(getattr(last, "bounds_X", None))
    notes = (tuple(noted(pipe)) for noted in (_clipped, _budgeted, _unlike))
    return LeakReport(findings, repeated, *notes)


def leaks_before(pipe: Any) -> Iterator[LeakFinding]:
    """Those of the steps before the last one of a pipeline, in a private search."""
    if isinstance(pipe, Pipeline):
        for name, step in pipe.steps[:-1]:
            found = _look_at(name, step, is_searched=True)
            yield from (one for one in found if isinstance(one, LeakFinding))
        yield from leaks_before(pipe.steps[-1][1])


# ------------------------------------------------------------------------ the walk


def _look_at(name: str, step: Any, is_searched: bool = False) -> Iterator[LeakFinding | str]:
    """What leaks in a step and in all that it holds, and what fits private models repeatedly.

    A private search sets the budgets and the noise of what it holds.
    """
    if is_passthrough(step) or isinstance(step, str):
        return
    called = name or "the estimator itself"
    finding = partial(LeakFinding, called, type(step).__name__)
    held: Iterable[tuple[str, Any]] = ()
    if _is_ours(step):
        if is_classifier(step) and getattr(step, "classes", ()) is None:
            yield finding("the list of labels, taken from y", "declare them: classes=[...]")
        if getattr(step, "epsilon", None) == math.inf and not is_searched:
            yield finding("all that it learns: epsilon=inf adds no noise", "a finite epsilon")
        if getattr(step, "random_state", None) is not None and not is_searched:
            leaks = "its noise, to who knows or guesses the seed: random_state is given"
            yield finding(leaks, "random_state=None for a release; a seed is for tests")
        if hasattr(step, "estimator"):  # of a private search
            held, is_searched = [("estimator", step.estimator)], True
    elif isinstance(step, Pipeline | FeatureUnion | ColumnTransformer):
        held = step.steps if isinstance(step, Pipeline) else branches(step)
        stacked = branches(step) if 0 < getattr(step, "sparse_threshold", 0) < 1 else ()
        if any(_may_be_sparse(part) and not _stores_one_each(part) for _, part in stacked):
            yield finding(*_DENSITY)
        for inner, _, columns in getattr(step, "transformers", ()):
            if callable(columns) and not isinstance(columns, make_column_selector):
                called = f"{name}: {inner}" if name else str(inner)
                yield LeakFinding(called, type(columns).__name__, *_CHOICE)
    else:
        kind = _nearest(step, _KNOWN)
        if rule := _rule_of(step, kind):
            yield finding(*rule)
        if kind in _OF_CODES.split():
            yield finding(*_CODES)
        if kind in _HOLDERS:
            given = step.get_params(deep=False)
            folds, several = given.get("cv", ()), given.get("estimators")
            # the default folds of classifiers depend on labels (a chain has none by default)
            is_default = isinstance(folds, Real) or (folds is None and "Chain" not in kind)
            held_one = given.get("estimator")
            is_of_labels = is_classifier(step if not hasattr(held_one, "fit") else held_one)
            if _nearest(folds, _STRATIFIED.split()) or (is_default and is_of_labels):
                yield finding(*_FOLDS)
            if any(name in given and given[name] is None for name in ("estimator", "regressor")):
                yield finding(*_DEFAULT)
            names = ("transformer", "estimator", "regressor", "final_estimator")
            alone = [(n, given[n]) for n in names if hasattr(given.get(n), "fit")]
            held = [*alone, *(several if isinstance(several, list) else [])]
            has_budget = any(name.rpartition("__")[2] == "epsilon" for name in step.get_params())
            if has_budget and kind not in _OF_ONE_FIT.split():
                yield f"{called} ({type(step).__name__})"
    for inner, part in held:
        yield from _look_at(f"{name}: {inner}" if name else str(inner), part, is_searched)


def _budgeted(pipe: Any) -> Iterator[str]:
    """Transformers with a budget, one that is in the place of bounds only if it was fitted."""
    seen: list[Any] = []
    given: dict[str, Any] = getattr(pipe, "get_params", dict)()
    private = ((name, one) for name, one in [("", pipe), *given.items()] if hasattr(one, "epsilon"))
    # the budget of a private search is for all that it fits
    paid = tuple(f"{name}__" * bool(name) for name, one in private if hasattr(one, "estimator"))
    for name, step in given.items():
        is_private = hasattr(step, "epsilon") and hasattr(step, "transform")
        is_copy = "bounds_X" in name.split("__")
        costs = hasattr(step, "guarantee_") if is_copy else not name.startswith(paid)
        if is_private and costs and not any(step is other for other in seen):
            seen.append(step)
            yield f"{name.replace('__', ': ')} ({type(step).__name__}) costs epsilon={step.epsilon}"


def _clipped(pipe: Any) -> Iterator[str]:
    """Steps of a pipeline with negative values that the bounds of its model cut off."""
    steps = pipe.steps if isinstance(pipe, Pipeline) else []
    ends = check_feature_bounds(getattr(steps[-1][1], "bounds_X", None)) if steps else None
    if ends is None or not np.any((lows := ends[0]) >= 0):
        return
    found = [(step, leaf) for name, step in steps[:-1] for leaf in leaves(step, name)]
    for whole, (name, part) in found:
        if lows.ndim and part is not whole:  # it is not known which are its ends
            continue
        is_cut = getattr(part, "alternate_sign", False) and not getattr(part, "binary", False)
        if hasattr(part, "declared_output"):
            low = part.declared_output().low
            is_cut = lows.shape in ((), low.shape) and bool(np.any((low < 0) & (lows >= 0)))
        if is_cut:
            yield f"{name} ({type(part).__name__})"


def _unlike(pipe: Any) -> Iterator[str]:
    """The step before a model, if its columns are known and are not those of `bounds_X`."""
    last, before = opened(pipe)
    pair = [*before[-1:], getattr(last, "bounds_X", None)]
    steps = [step for step in pair if hasattr(step, "transform") and not isinstance(step, type)]
    known = list(filter(None, map(table_columns, steps)))
    if len(known) == 2 and known[0] != known[1]:
        yield f"the {type(pair[0]).__name__} before the model"


def _may_be_sparse(step: Any) -> bool:
    """Whether it makes a sparse matrix, or a part of one, as far as is known."""
    if isinstance(step, Pipeline):
        return _may_be_sparse(last_of(step))
    if isinstance(step, FeatureUnion | ColumnTransformer):
        is_dense = getattr(step, "sparse_threshold", 1) == 0
        return not is_dense and any(_may_be_sparse(part) for _, part in branches(step))
    is_stated = getattr(step, "sparse_output", False) or getattr(step, "sparse", False)
    of_words = isinstance(step, PrivateVocabulary) or _nearest(step, _SPARSE.split())
    return bool(is_stated or of_words)


def _stores_one_each(step: Any) -> bool:
    """Whether a sparse matrix that it makes has a value for each cell, whatever that holds."""
    if isinstance(step, Pipeline):
        return _stores_one_each(last_of(step))
    if not _nearest(step, ["OneHotEncoder"]):
        return False
    return step.handle_unknown == "error" and step.drop is None


def _nearest(step: Any, names: Collection[str]) -> str:
    """The name of the nearest class of scikit-learn that it derives from, of these; else ""."""
    ancestors = (k for k in type(step).__mro__ if k.__module__.partition(".")[0] == "sklearn")
    return next((kind.__name__ for kind in ancestors if kind.__name__ in names), "")


def _is_ours(step: Any) -> bool:
    package = __name__.partition(".")[0]
    ours = any(kind.__module__.partition(".")[0] == package for kind in type(step).__mro__)
    return ours or hasattr(step, "declared_output")


def _rule_of(step: Any, kind: str) -> tuple[str, str] | None:
    """What leaks, and what to take instead."""
    if kind in _KNOWN:
        rule, harmless = _KNOWN[kind][:2], _KNOWN[kind][2:]
        return None if any(has_settings(step, settings) for settings in harmless) else rule
    with suppress(Exception):  # whatever another package's tags may raise
        if get_tags(step).requires_fit is False:
            return None
    if type(step).__module__.partition(".")[0] != "sklearn" and hasattr(step, "fit"):
        return _UNKNOWN
    return _PREDICTOR if hasattr(step, "predict") else _ANY


# ------------------------------------------------------------------------ what is known

_ENCODER = "PublicEncoder, or declared categories: categories=[[...], ...]"
_BOUNDS = "PublicEncoder or bounds_X with public bounds, by which estimators scale"
_FIXED = "columns or directions chosen from domain knowledge or from public data"
_WORDS, _COUNTS = {"vocabulary": is_given}, {"use_idf": False}
_LABELS = "the list of the labels that occur"
_TEXT = "HashingVectorizer, PrivateVocabulary, or a public vocabulary (and use_idf=False)"

_PREDICTOR = "the data: it is a model without privacy", "an estimator of this package"
_DEFAULT = "the data: the model that it holds by default is without privacy", _PREDICTOR[1]
_ANY = (
    "un-noised statistics of the data",
    "a step that learns nothing, or one fitted on public data",
)
_UNKNOWN = (
    "nobody knows what: it learns from data unless you know otherwise",
    "a step that is known, or state requires_fit=False in its tags if it learns nothing",
)
_CHOICE = (
    "which columns a function of the table chooses, unless it looks at names and types alone",
    "names of columns, or make_column_selector",
)
_DENSITY = (
    "whether less than sparse_threshold of its values are stored: one record may decide whether "
    "all rows are sparse or dense, of which models learn by other steps",
    "sparse_threshold=0, which makes dense rows, or 1 where no table can store all values",
)
_SPARSE = "CountVectorizer FeatureHasher HashingVectorizer TfidfTransformer"
_STRATIFIED = "RepeatedStratifiedKFold StratifiedGroupKFold StratifiedKFold StratifiedShuffleSplit"
_FOLDS = (
    "labels through stratified folds, so that one record moves others between folds",
    "cv=KFold(k), with shuffle=True if the order of the rows tells of them",
)
_INVERSE = (
    "by a warning whether the inverse function brings some records back, which one may decide",
    "check_inverse=False",
)
_UNCHECKED = {"check_inverse": False}
_CODES = (
    "the list of the labels that occur, by which those of all records become codes: one record "
    "with a label of its own moves the others' to other classes",
    "the estimators' own model of several classes, or codes of labels that all occur for sure",
)

# names of classes, what they leak, and what to take instead; and with which parameters some leave
# nothing to learn
_LEAKS: dict[str, tuple[Any, ...]] = {
    "StandardScaler": ("un-noised means and variances of the columns", _BOUNDS),
    "MinMaxScaler": ("the smallest and the largest value of each column", _BOUNDS),
    "MaxAbsScaler": ("the largest absolute value of each column", _BOUNDS),
    "RobustScaler": ("un-noised medians and quartiles of the columns", _BOUNDS),
    "QuantileTransformer": ("un-noised quantiles of the columns", _BOUNDS),
    "PowerTransformer": ("un-noised exponents, means and variances of the columns", _BOUNDS),
    "KBinsDiscretizer": ("un-noised ends of bins", _BOUNDS),
    "SelectKBest SelectPercentile SelectFpr SelectFdr SelectFwe GenericUnivariateSelect "
    "VarianceThreshold": ("which columns matter, by un-noised scores", _FIXED),
    "PCA IncrementalPCA KernelPCA SparsePCA TruncatedSVD FastICA FactorAnalysis NMF "
    "PLSRegression LinearDiscriminantAnalysis Nystroem KMeans": (
        "un-noised directions or points of the data",
        _FIXED,
    ),
    "OneHotEncoder OrdinalEncoder": (
        "the list of the categories that occur",
        _ENCODER,
        DECLARED_CATEGORIES,
    ),
    "TargetEncoder": ("un-noised means of the target by category", "PublicEncoder"),
    "LabelBinarizer LabelEncoder": (_LABELS, "declared classes"),
    "MultiLabelBinarizer": (_LABELS, "classes=[...]", {"classes": is_given}),
    "SimpleImputer": (
        "un-noised means, medians or modes, or which columns have gaps or are empty",
        "PublicEncoder, or strategy='constant' and keep_empty_features=True without add_indicator",
        {"strategy": "constant", "add_indicator": False, "keep_empty_features": True},
    ),
    "KNNImputer": ("records themselves: rows are filled from others", "PublicEncoder"),
    "IterativeImputer": ("un-noised regressions between the columns", "PublicEncoder"),
    "MissingIndicator": ("which columns have gaps", "features='all'", {"features": "all"}),
    "CountVectorizer": ("the words that occur", _TEXT, _WORDS),
    "TfidfVectorizer": ("the words that occur and how often", _TEXT, _WORDS | _COUNTS),
    "TfidfTransformer": ("how often words occur", _TEXT, _COUNTS),
    "DictVectorizer": ("the names that occur", "FeatureHasher"),
    "SplineTransformer": ("un-noised knots", "knots=[...]", {"knots": is_given}),
    # (which predicts before a fit as well, and so says that it needs none)
    "GaussianProcessRegressor": _PREDICTOR,
    "RBFSampler": ("the variance of the data", "a number for gamma", {"gamma": is_given}),
    "FunctionTransformer": (*_INVERSE, _UNCHECKED, {"func": None}, {"inverse_func": None}),
    "AdditiveChi2Sampler Binarizer FeatureHasher GaussianRandomProjection HashingVectorizer "
    "Normalizer PolynomialCountSketch PolynomialFeatures SkewedChi2Sampler "
    "SparseRandomProjection": (),  # nothing
}
# the same of what holds other estimators
_LEAKS_OF_HOLDERS: dict[str, tuple[Any, ...]] = {
    "GridSearchCV RandomizedSearchCV HalvingGridSearchCV HalvingRandomSearchCV "
    "TunedThresholdClassifierCV RFECV SequentialFeatureSelector": (
        "a choice by un-noised scores, outside every guarantee",
        "DPGridSearchCV, which chooses privately",
    ),
    "CalibratedClassifierCV": (
        "un-noised calibration",
        "the probabilities of the model, or calibrate on public data",
    ),
    "AdaBoostClassifier AdaBoostRegressor": (
        "un-noised errors and weights of the records",
        "one private model, or a mean of several",
    ),
    "StackingClassifier StackingRegressor": (
        "the targets: its final estimator is fitted without privacy",
        "a private final_estimator",
        {"final_estimator": _is_ours},
    ),
    "BaggingClassifier BaggingRegressor": (
        "its members' noise, to who guesses one of 2^31 seeds that it gives them; and with "
        "bootstrap more of records that are drawn several times",
        "members that are fitted by themselves, such as those of a VotingRegressor",
    ),
    "OneVsOneClassifier": (
        "how many records two classes have",
        "the estimators' own model of several classes",
    ),
    "TransformedTargetRegressor": (*_INVERSE, _UNCHECKED, {"func": None, "transformer": None}),
    "SelfTrainingClassifier": (
        "how many records pass a threshold",
        "one private model of the labelled records",
    ),
    "FixedThresholdClassifier FrozenEstimator MultiOutputClassifier MultiOutputRegressor "
    "OneVsRestClassifier OutputCodeClassifier ClassifierChain RegressorChain RFE SelectFromModel "
    "VotingClassifier VotingRegressor": (),  # nothing of their own
}

_RULES = _LEAKS | _LEAKS_OF_HOLDERS
_KNOWN = {name: rule for names, rule in _RULES.items() for name in names.split()}
_HOLDERS = " ".join(_LEAKS_OF_HOLDERS).split()
_OF_CODES = (
    "BaggingClassifier OneVsRestClassifier OutputCodeClassifier StackingClassifier VotingClassifier"
)
_OF_ONE_FIT = "FixedThresholdClassifier FrozenEstimator SelectFromModel TransformedTargetRegressor"
