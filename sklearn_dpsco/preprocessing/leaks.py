"""What a pipeline learns from data without privacy, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from .._checks import shown
from .declared import branches, is_passthrough

__all__ = ["LeakFinding", "LeakReport", "check_pipeline"]


@dataclass(frozen=True)
class LeakFinding:
    """A step that learns from data without privacy, or may do so.

    Attributes
    ----------
    step : str
        Its name, after those of the pipelines that it is in: ``prepare: scale``.
    kind : str
        Its class.
    leaks : str
        What it takes from the data.
    instead : str
        What to take in its place.

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

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[LeakFinding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "no step is known to leak"


def check_pipeline(pipe: Any) -> LeakReport:
    """Name every step that learns from data without privacy. Reads no data and prints nothing.

    It looks into pipelines, column transformers, unions, and estimators that hold others. A
    step passes if it is of this package, declares its outputs (`declared_output`), says by its
    tags that it needs no fit (``requires_fit=False``), or is a transformer of scikit-learn whose
    parameters leave nothing to learn, such as ``OneHotEncoder(categories=[...])``. Of other
    packages' steps nothing is known, and they are reported as such.

    It is a list of known mistakes and no proof: a function in a `FunctionTransformer` that uses
    the mean of its table leaks it, and a step before the pipeline cannot be seen.

    Parameters
    ----------
    pipe : estimator
        A pipeline, a transformer, or a search or the like; fitted or not.

    Returns
    -------
    LeakReport
        Its `findings`; ``bool(report)`` and `report.ok` are True if there are none.

    Raises
    ------
    TypeError
        If `pipe` is none of these.

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
    return LeakReport(tuple(_look_at("", pipe)))


# ------------------------------------------------------------------------ the walk


def _look_at_all(name: str, steps: Iterable[tuple[str, Any]]) -> Iterator[LeakFinding]:
    for inner, step in steps:
        yield from _look_at(f"{name}: {inner}" if name else str(inner), step)


def _look_at(name: str, step: Any) -> Iterator[LeakFinding]:
    """What leaks in a step and in all that it holds."""
    if is_passthrough(step) or isinstance(step, str):
        return
    kind = _known_kind(step)
    if _is_ours(step):
        yield from _look_at_ours(name, step)
    elif isinstance(step, Pipeline | FeatureUnion | ColumnTransformer):
        yield from _look_at_all(name, _parts(step))
    elif kind in _HOLDERS:
        if finding := _finding(name, step, kind, _HOLDERS):
            yield finding
        yield from _folds(name, step)
        yield from _look_at_all(name, _held(step))
    elif finding := _of_step(name, step, kind):
        yield finding


def _known_kind(step: Any) -> str:
    """Its class, or the nearest class of scikit-learn that it derives from; "" if none is known."""
    for kind in type(step).__mro__:
        is_known = kind.__name__ in _HOLDERS or kind.__name__ in _STATELESS
        is_known = is_known or kind.__name__ in _LEARNERS
        if is_known and kind.__module__.partition(".")[0] == "sklearn":
            return kind.__name__
    return ""


def _is_ours(step: Any) -> bool:
    package = __name__.partition(".")[0]
    ours = any(kind.__module__.partition(".")[0] == package for kind in type(step).__mro__)
    return ours or hasattr(step, "declared_output")


def _look_at_ours(name: str, step: Any) -> Iterator[LeakFinding]:
    if is_classifier(step) and getattr(step, "classes", ()) is None:
        found = "the list of labels, taken from y", "declare them: classes=[...]"
        yield LeakFinding(_shown(name), type(step).__name__, *found)
    if getattr(step, "epsilon", None) == math.inf:
        found = "all that it learns: epsilon=inf adds no noise", "a finite epsilon"
        yield LeakFinding(_shown(name), type(step).__name__, *found)


def _shown(name: str) -> str:
    return name or "the estimator itself"


def _parts(step: Any) -> list[tuple[str, Any]]:
    return list(step.steps) if isinstance(step, Pipeline) else list(branches(step))


def _held(step: Any) -> list[tuple[str, Any]]:
    """The named estimators that an estimator holds."""
    parameters = step.get_params(deep=False)
    held = [
        (name, parameters[name])
        for name in ("transformer", "estimator", "regressor", "final_estimator")
        if hasattr(parameters.get(name), "fit")
    ]
    several = parameters.get("estimators")
    return [*held, *(several if isinstance(several, list) else [])]


def _finding(
    name: str, step: Any, kind: str, table: Mapping[str, _Rule | None]
) -> LeakFinding | None:
    rule = table[kind]
    if rule is None or (rule.unless is not None and rule.unless(step)):
        return None
    return LeakFinding(_shown(name), type(step).__name__, rule.leaks, rule.instead)


def _folds(name: str, step: Any) -> Iterator[LeakFinding]:
    """Folds that depend on labels, as scikit-learn's default ones of classifiers do."""
    if "cv" not in step.get_params(deep=False):
        return
    is_default = step.cv is None or isinstance(step.cv, int)
    is_stratified = isinstance(step.cv, StratifiedKFold | StratifiedShuffleSplit)
    if is_stratified or (is_default and is_classifier(step)):
        leaks = "labels through stratified folds, so that one record moves others between folds"
        instead = "cv=KFold(k), with shuffle=True if the order of the rows tells of them"
        yield LeakFinding(_shown(name), type(step).__name__, leaks, instead)


def _of_step(name: str, step: Any, kind: str) -> LeakFinding | None:
    """What a single step leaks."""
    if kind in _LEARNERS:
        return _finding(name, step, kind, _LEARNERS)
    if kind in _STATELESS or _needs_no_fit(step):
        return None
    of_scikit_learn = type(step).__module__.partition(".")[0] == "sklearn"
    if of_scikit_learn or not hasattr(step, "fit"):
        rule = _PREDICTOR if hasattr(step, "predict") else _ANY
    else:
        rule = _UNKNOWN
    return LeakFinding(_shown(name), type(step).__name__, rule.leaks, rule.instead)


def _needs_no_fit(step: Any) -> bool:
    try:
        return get_tags(step).requires_fit is False
    except Exception:  # whatever another package's tags may raise
        return False


# ------------------------------------------------------------------------ what is known


@dataclass(frozen=True)
class _Rule:
    leaks: str
    instead: str
    unless: Callable[[Any], bool] | None = None


_ENCODER = "PublicEncoder, or declared categories: categories=[[...], ...]"
_BOUNDS = "PublicEncoder or bounds_X with public bounds, by which estimators scale"
_FIXED = "columns or directions chosen from domain knowledge or from public data"
_TEXT = "HashingVectorizer, or a public vocabulary (and use_idf=False)"

_PREDICTOR = _Rule("the data: it is a model without privacy", "an estimator of this package")
_ANY = _Rule(
    "un-noised statistics of the data", "a step that learns nothing, or one fitted on public data"
)
_UNKNOWN = _Rule(
    "nobody knows what: it learns from data unless you know otherwise",
    "a step that is known, or state requires_fit=False in its tags if it learns nothing",
)

_SCALER = {
    "StandardScaler": "un-noised means and variances of the columns",
    "MinMaxScaler": "the smallest and the largest value of each column",
    "MaxAbsScaler": "the largest absolute value of each column",
    "RobustScaler": "un-noised medians and quartiles of the columns",
    "QuantileTransformer": "un-noised quantiles of the columns",
    "PowerTransformer": "un-noised exponents, means and variances of the columns",
    "KBinsDiscretizer": "un-noised ends of bins",
}
_SELECTIONS = (
    "SelectKBest", "SelectPercentile", "SelectFpr", "SelectFdr", "SelectFwe",
    "GenericUnivariateSelect", "VarianceThreshold",
)  # fmt: skip
_DIRECTIONS = (
    "PCA", "IncrementalPCA", "KernelPCA", "SparsePCA", "TruncatedSVD", "FastICA",
    "FactorAnalysis", "NMF", "PLSRegression", "LinearDiscriminantAnalysis", "Nystroem", "KMeans",
)  # fmt: skip


def _declares_categories(step: Any) -> bool:
    is_declared = not isinstance(step.categories, str)
    return is_declared and step.min_frequency is None and step.max_categories is None


_LEARNERS: dict[str, _Rule | None] = {
    **{kind: _Rule(leaks, _BOUNDS) for kind, leaks in _SCALER.items()},
    **{kind: _Rule("which columns matter, by un-noised scores", _FIXED) for kind in _SELECTIONS},
    **{kind: _Rule("un-noised directions or points of the data", _FIXED) for kind in _DIRECTIONS},
    **{
        kind: _Rule("the list of the categories that occur", _ENCODER, _declares_categories)
        for kind in ("OneHotEncoder", "OrdinalEncoder")
    },
    "TargetEncoder": _Rule("un-noised means of the target by category", "PublicEncoder"),
    "LabelBinarizer": _Rule("the list of the labels that occur", "declared classes"),
    "LabelEncoder": _Rule("the list of the labels that occur", "declared classes"),
    "MultiLabelBinarizer": _Rule(
        "the list of the labels that occur", "classes=[...]", lambda step: step.classes is not None
    ),
    "SimpleImputer": _Rule(
        "un-noised means, medians or modes, or which columns have gaps",
        "PublicEncoder, or strategy='constant' without add_indicator",
        lambda step: step.strategy == "constant" and not step.add_indicator,
    ),
    "KNNImputer": _Rule("records themselves: rows are filled from others", "PublicEncoder"),
    "IterativeImputer": _Rule("un-noised regressions between the columns", "PublicEncoder"),
    "MissingIndicator": _Rule(
        "which columns have gaps", "features='all'", lambda step: step.features == "all"
    ),
    "CountVectorizer": _Rule(
        "the words that occur", _TEXT, lambda step: step.vocabulary is not None
    ),
    "TfidfVectorizer": _Rule(
        "the words that occur and how often",
        _TEXT,
        lambda step: step.vocabulary is not None and not step.use_idf,
    ),
    "TfidfTransformer": _Rule("how often words occur", _TEXT, lambda step: not step.use_idf),
    "DictVectorizer": _Rule("the names that occur", "FeatureHasher"),
    "SplineTransformer": _Rule(
        "un-noised knots", "knots=[...]", lambda step: not isinstance(step.knots, str)
    ),
    "RBFSampler": _Rule(
        "the variance of the data", "a number for gamma", lambda step: step.gamma != "scale"
    ),
}

_STATELESS = frozenset(
    {
        "AdditiveChi2Sampler", "Binarizer", "FeatureHasher", "FunctionTransformer",
        "GaussianRandomProjection", "HashingVectorizer", "Normalizer", "PolynomialCountSketch",
        "PolynomialFeatures", "SkewedChi2Sampler", "SparseRandomProjection",
    }
)  # fmt: skip

_SCORES = _Rule(
    "a choice by un-noised scores, outside every guarantee; all its fits compose",
    "DPGridSearchCV, which chooses privately",
)


def _has_private_end(step: Any) -> bool:
    return _is_ours(step.final_estimator)


_STACKING = _Rule(
    "the targets: its final estimator is fitted without privacy",
    "a private final_estimator",
    _has_private_end,
)
_BAGGING = _Rule(
    "more of records that are drawn several times: a guarantee counts a record once",
    "bootstrap=False; all fits compose",
    lambda step: not step.bootstrap,
)
_BOOSTING = _Rule(
    "un-noised errors and weights of the records", "one private model, or a mean of several"
)

# what holds other estimators; None: nothing of its own leaks
_HOLDERS: dict[str, _Rule | None] = {
    "GridSearchCV": _SCORES,
    "RandomizedSearchCV": _SCORES,
    "HalvingGridSearchCV": _SCORES,
    "HalvingRandomSearchCV": _SCORES,
    "TunedThresholdClassifierCV": _SCORES,
    "RFECV": _SCORES,
    "SequentialFeatureSelector": _SCORES,
    "CalibratedClassifierCV": _Rule(
        "un-noised calibration", "the probabilities of the model, or calibrate on public data"
    ),
    "AdaBoostClassifier": _BOOSTING,
    "AdaBoostRegressor": _BOOSTING,
    "StackingClassifier": _STACKING,
    "StackingRegressor": _STACKING,
    "BaggingClassifier": _BAGGING,
    "BaggingRegressor": _BAGGING,
    "OneVsOneClassifier": _Rule(
        "how many records two classes have", "the estimators' own model of several classes"
    ),
    "SelfTrainingClassifier": _Rule(
        "how many records pass a threshold", "one private model of the labelled records"
    ),
    "FixedThresholdClassifier": None,
    "FrozenEstimator": None,
    "MultiOutputClassifier": None,
    "MultiOutputRegressor": None,
    "OneVsRestClassifier": None,
    "OutputCodeClassifier": None,
    "ClassifierChain": None,
    "RegressorChain": None,
    "RFE": None,
    "SelectFromModel": None,
    "TransformedTargetRegressor": None,
    "VotingClassifier": None,
    "VotingRegressor": None,
}
