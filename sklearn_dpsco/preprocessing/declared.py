"""What a transformer declares of its outputs: public bounds, and the length of the longest row.

A method `declared_output()` says it, by public facts alone: by parameters, never by what was
learned from data. An estimator clips to the bounds, so that its guarantee does not rest on
their being true. Besides, what is before the last model of a pipeline.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils import _safe_indexing

from .._checks import import_pandas
from .._types import Array
from ..data.bounds import check_feature_bounds, is_declaring
from .schema import OutputColumn
from .vocabulary import PrivateVocabulary

_REMEDY = (
    "Take a transformer that declares its outputs, such as PublicEncoder, or give bounds_X as "
    "numbers, such as (-clip, clip) behind a DPScaler, (0, 1) behind a PrivateVocabulary"
)
TWO_OF_THEM = (
    ". A clone of a pipeline has two of them: set both, such as step__drop and "
    "model__bounds_X__drop"
)


@dataclass(frozen=True)
class DeclaredOutput:
    """Public facts about the outputs of a transformer.

    Attributes
    ----------
    low, high : ndarray of shape (n_outputs,)
        Bounds of each column, low < high.
    row_norm : float
        The largest l2 norm of a row in scaled units, in which a column is (x - middle) / half
        width, or x over the size of the other end where one end is 0. At most
        sqrt(n_outputs), which is what it is for columns that have nothing to do with each other.
    n_indicators : int
        How many columns tell of gaps, and could be spared.
    """

    low: Array
    high: Array
    row_norm: float
    n_indicators: int = 0

    @classmethod
    def of_box(cls, low: Any, high: Any) -> Self:
        """Columns in these bounds that have nothing to do with each other."""
        low, high = (np.asarray(end, dtype=np.float64) for end in (low, high))
        return cls(low, high, float(np.sqrt(low.size)))

    @property
    def n_outputs(self) -> int:
        """Number of columns."""
        return int(self.low.size)

    @property
    def bounds_X(self) -> tuple[Array, Array]:
        """(low, high), as the estimators take them."""
        return self.low, self.high


def is_passthrough(step: Any) -> bool:
    """Whether a step of a pipeline does nothing."""
    if isinstance(step, Pipeline):
        return last_of(step) is None
    if isinstance(step, FunctionTransformer):  # which scikit-learn makes of "passthrough"
        return step.func is None
    return step is None or (isinstance(step, str) and step == "passthrough")


def last_of(step: Pipeline) -> Any:
    """The last step of a pipeline that does something, or None."""
    return next((part for _, part in reversed(step.steps) if not is_passthrough(part)), None)


def is_given(value: Any) -> bool:
    """Whether a parameter is declared, neither None nor the name of a rule for the data."""
    return value is not None and not isinstance(value, str)


# of encoders of scikit-learn, with which they take nothing from their data
DECLARED_CATEGORIES = {"categories": is_given, "min_frequency": None, "max_categories": None}


def has_settings(step: Any, settings: Mapping[str, Any]) -> bool:
    """Whether parameters have these values, or meet these conditions."""
    found = ((getattr(step, name), wanted) for name, wanted in settings.items())
    return all(wanted(value) if callable(wanted) else value == wanted for value, wanted in found)


def declared_bounds(bounds_X: Any, n_features: int) -> tuple[Any, dict[str, Any]]:
    """The bounds that numbers or a transformer declare, and what else is known, for `Problem`."""
    facts: dict[str, Any] = {}
    if is_declaring(bounds_X):
        if isinstance(bounds_X, type):
            kind = bounds_X.__name__
            raise ValueError(f"bounds_X is the class {kind}: give an object, {kind}(...)")
        kind = type(bounds_X).__name__
        found = _output_of(kind, bounds_X)
        if found.n_outputs < n_features:  # of a copy of a vocabulary it tells how many words
            found = _output_of(kind, bounds_X, n_features - found.n_outputs)
        bounds_X = found.bounds_X
        facts = {"row_norm": found.row_norm, "n_indicators": found.n_indicators}
        if found.n_outputs != n_features:
            raise ValueError(
                f"bounds_X declares {found.n_outputs} columns and X has {n_features}: give the "
                f"transformer that makes X, or one with its parameters{TWO_OF_THEM}"
            )
    ends = check_feature_bounds(bounds_X)
    facts["nonnegative"] = ends is not None and bool(np.all(ends[0] == 0))
    if ends is not None:
        has_zero = (np.asarray(ends[0]) == 0) | (np.asarray(ends[1]) == 0)
        facts["from_zero"] = tuple(np.atleast_1d(has_zero)[:1000].tolist())
    return bounds_X, facts


# what arrays stand for that encoders made, while they live
_MADE: dict[int, tuple[Any, list[OutputColumn]]] = {}


def note_columns(made: Any, columns: list[OutputColumn]) -> Any:
    """Remember what the columns of an array or sparse array stand for; returns it."""
    key = id(made)
    _MADE[key] = weakref.ref(made, lambda _: _MADE.pop(key, None)), columns
    return made


def check_maker(bounds_X: Any, X: Any) -> None:
    """Refuse an encoder whose columns are not those of the one that made X, where that is known.

    A pipeline and its model share an encoder, and their clones have one each.
    """
    _, made = _MADE.get(id(X), (None, None))
    if made is None or isinstance(bounds_X, type) or not hasattr(bounds_X, "output_columns"):
        return
    # (other numbers of columns are refused in any case)
    if made != (declared := bounds_X.output_columns()) and len(made) == len(declared):
        raise ValueError(
            f"bounds_X is a {type(bounds_X).__name__} with other settings than the one that made "
            f"X{TWO_OF_THEM}"
        )


def declared_columns(bounds_X: Any) -> int | None:
    """How many columns a transformer in the place of bounds makes; None if it is none.

    Without the words of a `PrivateVocabulary` that is not fitted.
    """
    if not is_declaring(bounds_X) or isinstance(bounds_X, type):
        return None
    return _output_of(type(bounds_X).__name__, bounds_X).n_outputs


_NO_NAMES = AttributeError, NotFittedError, ValueError


def output_names(step: Any) -> list[str | None]:
    """Names of the outputs of a step that declares them, by its parameters if it is not fitted.

    None stands for a name that they do not tell, as of a transformer of scikit-learn.
    """
    names = _names_by_parameters(step)
    # (where none are known, this says why)
    return list(step.get_feature_names_out()) if names is None else names


def _names_by_parameters(step: Any) -> list[str | None] | None:
    with suppress(*_NO_NAMES):
        return list(step.get_feature_names_out())
    if isinstance(step, Pipeline):
        return _names_by_parameters(last_of(step))
    if not isinstance(step, ColumnTransformer | FeatureUnion):
        with suppress(ValueError):
            # (a vocabulary that is not fitted has no words yet)
            return [None] * _output_of(type(step).__name__, step).n_outputs or None
        return None
    rule: Any = step.verbose_feature_names_out
    if isinstance(rule, bool):
        rule = "{transformer_name}__{feature_name}" if rule else "{feature_name}"

    def named(name: str, inner: str) -> str:
        is_text = isinstance(rule, str)
        facts = {"transformer_name": name, "feature_name": inner}
        return rule.format(**facts) if is_text else rule(name, inner)

    found = [(name, _names_by_parameters(part)) for name, part in branches(step)]
    if any(names is None for _, names in found):
        return None
    pairs = [(name, inner) for name, names in found for inner in names or ()]
    return [None if inner is None else named(name, inner) for name, inner in pairs]


def table_columns(step: Any) -> list[OutputColumn] | None:
    """What the outputs of a step stand for in the table, if an encoder in it tells; else None.

    Or if a fitted `DPScaler` in it does, beside others.
    """
    if hasattr(step, "output_columns"):
        return list(step.output_columns())
    if isinstance(step, Pipeline):
        return table_columns(last_of(step))
    if not isinstance(step, ColumnTransformer | FeatureUnion) or step.transformer_weights:
        return None
    parts = [
        (part, part.unscaled_columns() if _is_scaler(part) else table_columns(part))
        for _, part in branches(step)
    ]
    is_known = any(columns is not None for _, columns in parts)
    if not is_known or (names := _names_by_parameters(step)) is None:
        return None
    found: list[OutputColumn] = []
    for part, columns in parts:
        rest = names[len(found) :]
        if columns is None:  # in units of their own
            columns = [OutputColumn(name or "") for name in rest[: len(output_names(part))]]
        elif _is_scaler(part) and not hasattr(part, "feature_names_in_"):  # x0, ... of an array
            pairs = zip(columns, rest, strict=False)
            columns = [column._replace(source=name or "") for column, name in pairs]
        found += columns
    return found if len(found) == len(names) else None


def scalers(step: Any, weight: float = 1.0) -> Iterator[tuple[Any, slice, float]]:
    """The fitted `DPScaler` that a step is, or those beside others.

    And where their outputs are, and how many times as large the step makes them.
    """
    if _is_scaler(step):
        yield step, slice(0, step.scale_.size), weight
    elif isinstance(step, ColumnTransformer | FeatureUnion):
        parts, weights = list(branches(step)), step.transformer_weights or {}
        for i, (name, part) in enumerate(parts):
            for scaler, at, times in scalers(part, weight * abs(float(weights.get(name, 1.0)))):
                start = sum(len(output_names(other)) for _, other in parts[:i])
                yield scaler, slice(start + at.start, start + at.stop), times


def _is_scaler(step: Any) -> bool:
    return hasattr(step, "unscaled_columns") and hasattr(step, "scale_")


def opened(estimator: Any) -> tuple[Any, list[Any]]:
    """The last model of a pipeline or of a search's best, and the steps that are before it."""
    before: list[Any] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(getattr(estimator, "steps", None), list) and estimator.steps:
            *first, estimator = (step for _, step in estimator.steps)
            before += [step for step in first if not is_passthrough(step)]
        else:
            return estimator, before


def reaching(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The last model of a fitted estimator, and what its steps before make of X."""
    last, before = opened(estimator)
    for step in before:
        X = step.transform(X)
    return last, X


def _output_of(name: str, step: Any, n_words: int = 0) -> DeclaredOutput:
    """What a step declares.

    `n_words` is how many a `PrivateVocabulary` has that is not fitted, such as a clone of the step.
    """
    if hasattr(step, "declared_output"):
        return step.declared_output()
    if isinstance(step, PrivateVocabulary):
        return _output_of_words(name, step.declaring(n_words))
    if hasattr(step, "epsilon"):  # a copy of it would have a budget of its own
        _refuse(name, type(step).__name__, "learns from data, with a budget")
    if isinstance(step, Pipeline) and not is_passthrough(step):
        inner, part = next(pair for pair in reversed(step.steps) if not is_passthrough(pair[1]))
        return _output_of(f"{name}: {inner}", part, n_words)
    if isinstance(step, ColumnTransformer | FeatureUnion):
        return _output_of_branches(name, step, n_words)
    if isinstance(step, HashingVectorizer | CountVectorizer):
        return _output_of_words(name, step)
    if isinstance(step, OneHotEncoder) and has_settings(step, DECLARED_CATEGORIES | {"drop": None}):
        # 0/1 columns, of which one of each group is 1 at most
        size = sum(len(group) for group in step.categories)
        return DeclaredOutput(np.zeros(size), np.ones(size), float(np.sqrt(len(step.categories))))
    _refuse(name, type(step).__name__, "does not declare bounds of its outputs")


def _output_of_words(name: str, step: HashingVectorizer | CountVectorizer) -> DeclaredOutput:
    """Of a vectorizer that learns nothing and whose rows have a norm, or hold zeros and ones."""
    kind = type(step).__name__
    is_hashed, norm = isinstance(step, HashingVectorizer), getattr(step, "norm", None)
    if not is_hashed and (step.vocabulary is None or getattr(step, "use_idf", False)):
        _refuse(name, kind, "learns words or their frequencies from the texts")
    if not is_hashed and not hasattr(step.vocabulary, "__len__"):
        _refuse(name, kind, "has a vocabulary that can be read once only: give a list")
    if norm is None and not step.binary:
        _refuse(name, kind, "counts words without a bound: say binary=True, or norm='l2'")
    size = step.n_features if is_hashed else len(set(step.vocabulary))
    has_signs = is_hashed and step.alternate_sign and not step.binary
    low, high = np.full(size, -1.0 if has_signs else 0.0), np.ones(size)
    return DeclaredOutput(low, high, float(np.sqrt(size)) if norm is None else 1.0)


def _output_of_branches(name: str, step: Any, n_words: int) -> DeclaredOutput:
    """The columns of all branches side by side, each times its weight."""
    lows, highs, square, n_indicators = [], [], 0.0, 0
    for inner, branch in branches(step):
        if is_passthrough(branch):
            _refuse(f"{name}: {inner}", "passthrough", "lets columns through without any bounds")
        part = _output_of(f"{name}: {inner}", branch, n_words)
        if (weight := float((step.transformer_weights or {}).get(inner, 1.0))) == 0:
            _refuse(f"{name}: {inner}", type(branch).__name__, "has the weight 0")
        ends = part.low * weight, part.high * weight
        lows.append(np.minimum(*ends))
        highs.append(np.maximum(*ends))
        square += part.row_norm**2  # in scaled units, where the weight changes nothing
        n_indicators += part.n_indicators
    if not lows:
        _refuse(name, type(step).__name__, "has no columns")
    low, high = np.concatenate(lows), np.concatenate(highs)
    return DeclaredOutput(low, high, float(np.sqrt(square)), n_indicators)


def columns_read(step: Any, names: Any) -> list[Any]:
    """Of the columns of a frame those that a step reads, which was fitted to it."""
    if not isinstance(step, ColumnTransformer):
        return list(names)
    numbered, used = np.arange(len(names))[None], set[int]()
    frame = import_pandas("columns_read").DataFrame(numbered, columns=names)
    for _, part, columns in step.transformers_:
        if not (isinstance(part, str) and part == "drop"):
            used.update(np.ravel(_safe_indexing(frame, columns, axis=1)).tolist())
    return [name for k, name in enumerate(names) if k in used]


def branches(step: ColumnTransformer | FeatureUnion) -> Iterator[tuple[str, Any]]:
    """Names and transformers, without those that give no column; fitted ones, if they are."""
    if isinstance(step, FeatureUnion):
        yield from (pair for pair in step.transformer_list if pair[1] != "drop")
        return
    given = [*step.transformers, ("remainder", step.remainder, None)]
    for name, branch, columns in getattr(step, "transformers_", given):
        mask = np.asarray(columns) if isinstance(columns, list | tuple | np.ndarray) else None
        is_empty = mask is not None and (mask.size == 0 or (mask.dtype == bool and not mask.any()))
        if not (is_empty or (isinstance(branch, str) and branch == "drop")):
            yield name, branch


def leaves(step: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The transformers whose outputs, side by side, are those of a step, and what they are called.

    A pipeline is called as its last step, and a branch after what it is a branch of.
    """
    if isinstance(step, Pipeline):
        yield from leaves(last_of(step), name)
    elif isinstance(step, ColumnTransformer | FeatureUnion):
        for inner, part in branches(step):
            yield from leaves(part, f"{name}: {inner}")
    else:
        yield name, step


def _refuse(name: str, kind: str, why: str) -> NoReturn:
    raise ValueError(f"bounds_X is a transformer, and {name!r} ({kind}) in it {why}. {_REMEDY}")
