"""Public bounds of the data, or guesses in their place: clip to them, scale by them, and map back.

A feature with bounds (low, high) becomes ``(x - mid) / half``, in [-1, 1]. Where one end is 0, it
is divided by the size of the other end and not centred, so that zeros stay zero; as are features
and targets of models through 0, by the size of the larger end. Without bounds it
becomes (x - center) / scale, both guesses of the user, or neutral where the plan releases them. No
constant is computed from the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from scipy import sparse

from .._checks import LARGEST, SMALLEST, check_size, listed, shown, warn_user
from .._kernels.arguments import read_only
from .._types import Array
from ..exceptions import BoundsNotDeclaredWarning
from .cells import as_numbers
from .compressed import slices, stored_places, value_parts, with_values
from .rows import TASK_NUMBERS, on_threads

_FINEST = 1e-12  # high - low in units of the larger end
_APART = f"at least {SMALLEST:g} and {_FINEST:g} times the larger end apart"

_SHIFTING_BOUNDS = (
    "sparse X needs bounds_X with one end at 0 or symmetric about 0 in every column (without an "
    "intercept any that hold 0), since other bounds would shift its zeros"
)
SHIFTING_CENTER = "sparse X needs center_X=0, since a centre would shift its zeros"
_OTHER_COLUMNS = (
    "What hands on fewer or more columns (RFE, SequentialFeatureSelector, ClassifierChain, bagging "
    "with max_features) needs scalars, the same for all columns"
)

_MOST_PLACES = 4096  # for the median of a target


@dataclass(frozen=True)
class FeatureScaling:
    """The map x -> (clip(x, low, high) - shift) / width to [-1, 1], by column."""

    low: Array  # of shape (n_features,), as all; infinite ends do not bound the values either
    high: Array
    shift: Array
    width: Array

    def transform(self, X: Any) -> Any:
        """Scaled X: one copy, or X itself where nothing needs to change, dense in C order.

        In X's dtype if all columns have a middle of 0 and a width of 1, else in float64: a step
        before may make float32 of numbers only if no cell of theirs is odd, and what others are
        scaled to must not depend on that. Sparse X is to be canonical.
        """
        low, high, is_sparse = self.low, self.high, sparse.issparse(X)
        has_bounds = bool(np.all(np.isfinite(low)))
        largest = 1.0 if has_bounds else np.inf  # the division may round past 1
        is_identity = bool(np.all(self.shift == 0) and np.all(self.width == 1))
        is_uniform = bool(np.all(low == low[0]) and np.all(high == high[0]))
        if is_sparse:
            if np.any((self.shift != 0) | (low > 0) | (high < 0)):
                raise ValueError(_SHIFTING_BOUNDS if has_bounds else SHIFTING_CENTER)
            values, parts = X.data, value_parts(X)
        else:
            values = X
            parts = slices(X.shape[0], max(1, TASK_NUMBERS // max(1, X.shape[1])))

        def columns_of(part: slice) -> Any:
            return stored_places(X, part, 1) if is_sparse else slice(None)

        def is_kept(part: slice) -> bool:  # by an identity
            if not has_bounds:
                return True
            block = values[part]
            if is_uniform:  # ten times faster
                return bool(block.min() >= low[0] and block.max() <= high[0])
            columns = columns_of(part)
            return bool(np.all(block >= low[columns]) and np.all(block <= high[columns]))

        def fill(part: slice) -> None:
            from .._kernels.products import rows_in_bounds

            # stored values as one row, each with the facts of its column
            block = read_only(np.ascontiguousarray(np.atleast_2d(values[part])))
            columns = columns_of(part)
            facts = (of[columns] for of in (low, high, self.shift, self.width))
            rows_in_bounds(block, *facts, largest, np.atleast_2d(out[part]))

        with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal a record
            # A copy is in C order and aligned, and products of other arrays may round differently.
            # Whether a value of one record is out of bounds must not change those of other records.
            may_stay = is_identity and (is_sparse or (X.flags.c_contiguous and X.flags.aligned))
            if may_stay and all(map(is_kept, parts)):
                return X
            # an identity clips to -1, 0 and 1, which all types of floats hold exactly
            dtype = X.dtype if is_identity else np.float64
            out = np.empty(values.shape, dtype=dtype)
            on_threads(fill, parts, uses_blas=False)
        return with_values(X, out) if is_sparse else out

    def unscale(self, coef: Array, intercept: Any) -> tuple[Array, Any]:
        """Coefficients of shape (n_features,) or (K, n_features), and intercept, for unscaled X."""
        coef = coef / self.width
        intercept = intercept - coef @ self.shift
        return coef, float(intercept) if coef.ndim == 1 else intercept


@dataclass(frozen=True)
class TargetScaling:
    """The map y -> (clip(y, low, high) - middle) / half, of one number or one for each target."""

    low: Any = -math.inf  # infinite ends as in `FeatureScaling`
    high: Any = math.inf
    middle: Any = 0.0  # the target that a raw prediction of 0 stands for
    half: Any = 1.0
    has_log_link: bool = False  # of predictions of the logarithm of the target's mean

    def transform(self, y: Any) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # as for the features
            y = np.clip(np.asarray(y, dtype=np.float64), self.low, self.high)
            y = (y - self.middle) / self.half
            return np.clip(y, -1.0, 1.0) if np.all(np.isfinite(self.low)) else y

    def of(self, k: int) -> TargetScaling:
        """That of target k."""
        facts: Any = self.low, self.high, self.middle, self.half
        low, high, middle, half = (float(np.ravel(v)[min(k, np.size(v) - 1)]) for v in facts)
        return TargetScaling(low, high, middle, half)

    def places(self, k: int) -> Array:
        """Some thousand numbers in [-1, 1] that stand for round ones within the bounds of target k.

        A value that most targets have, such as 0 or 40 hours, is one of them, to the last bit.
        """
        one = self.of(k)
        low, high = one.low, one.high
        width = high - low
        if not math.isfinite(width):
            return np.linspace(-1.0, 1.0, _MOST_PLACES + 1)
        power = math.floor(math.log10(width / _MOST_PLACES))
        unit = next(u for u in (1, 2, 5, 10) if u * 10.0**power * _MOST_PLACES >= width)
        # by a division, which rounds as that of a literal does
        up, down = 10.0 ** max(power, 0), 10.0 ** max(-power, 0)
        first, last = (math.floor(end / up * down / unit) for end in (low, high))
        numbers = np.arange(first + 1.0, last + 1.0) * unit * up / down
        return np.unique(one.transform([low, *numbers, high]))

    def unscale(self, coef: Array, intercept: Any) -> tuple[Array, Any]:
        """Coefficients and intercept that predict in the user's units."""
        if self.has_log_link:
            return coef, intercept + math.log(self.half)
        return (coef.T * self.half).T, intercept * self.half + self.middle


def check_numbers(name: str, value: Any, *, low: float = -LARGEST, high: float = LARGEST) -> Array:
    """Numbers, one or by column, as an array if in the range; the default keeps products finite."""
    try:
        is_plain = isinstance(value, (int, float))  # by far most, and fastest
        numbers = value if is_plain else as_numbers(name, value, strict=True)
        array = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array(np.nan)
    if not np.all((array >= low) & (array <= high)):
        raise ValueError(
            f"{name} must hold finite numbers in [{low:g}, {high:g}], got {shown(value)}"
        )
    return array


def _pair(name: str, bounds: Any) -> tuple[Array, Array]:
    if name == "bounds_y" and isinstance(bounds, Mapping):
        pairs, here = list(bounds.values()), ""
        if pairs and all(map(_is_pair, pairs)):
            ends = pairs[0] if len(pairs) == 1 else tuple(map(list, zip(*pairs, strict=True)))
            here = f": {shown(ends)}, if these are {listed([*bounds])}"
        raise ValueError(
            "bounds_y must be a pair (low, high) and no dict, of several targets a tuple of two "
            f"lists (lows, highs) in the order of the columns of y{here}"
        )
    is_array = isinstance(bounds, np.ndarray) and bounds.ndim > 0
    is_list = isinstance(bounds, Sequence) and not isinstance(bounds, (str, bytes))
    may_be_several = name.startswith(("bounds_X", "bounds_y"))
    if may_be_several and (is_array or is_list) and len(bounds) and not isinstance(bounds[0], Real):
        _refuse_pairs(name, bounds)
    if not (is_array or is_list) or len(bounds) != 2:
        several = ", of several targets ([lows], [highs])" * (name == "bounds_y")
        of_data = ". Bounds are public knowledge: those of the data tell of its records"
        advice = of_data * hasattr(bounds, "to_numpy")  # such as what describe() returns
        raise ValueError(f"{name} must be a pair (low, high){several}, got {shown(bounds)}{advice}")
    return check_numbers(name, bounds[0]), check_numbers(name, bounds[1])


def _refuse_pairs(name: str, bounds: Sequence[Any]) -> None:
    """Raise for a pair (low, high) for each column, which two columns would let pass as ends.

    A tuple of two lists or arrays is (lows, highs); another container of pairs has two readings.
    """
    is_pair_of_lists = isinstance(bounds, tuple) and not any(isinstance(x, tuple) for x in bounds)
    if (is_pair_of_lists and len(bounds) == 2) or not all(map(_is_pair, bounds)):
        return
    of_what, by_name = "column", ", or for a data frame a dict {column: (low, high)}"
    if not name.startswith("bounds_X"):
        of_what, by_name = "target", ""
    pairs = np.asarray(bounds).tolist()
    by_end = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if len(pairs) == 2 and all(map(_is_pair, by_end)):
        raise ValueError(
            f"{name} has two readings, {shown(bounds)}: a pair (low, high) for each of two "
            f"{of_what}s, or the lows and the highs. Write a tuple of two lists (lows, highs), "
            f"{shown(by_end)} for the first reading, {shown(tuple(pairs))} for the second{by_name}"
        )
    here = "" if len(pairs) > 10 else f", here {by_end!r}"
    raise ValueError(
        f"{name} holds a pair for each {of_what}: write a tuple of two lists (lows, highs)"
        f"{here}{by_name}"
    )


def _is_pair(value: Any) -> bool:
    """Whether it is a list, a tuple or an array of two numbers low < high."""
    is_list = isinstance(value, (list, tuple)) or np.ndim(value) == 1
    if not is_list or len(value) != 2:
        return False
    low, high = value
    return isinstance(low, Real) and isinstance(high, Real) and bool(low < high)


def _is_wide_enough(low: Array, high: Array) -> bool:
    """Whether low < high in each column, so far that no rounding of a map shows in predictions."""
    size = np.maximum(np.abs(low), np.abs(high))
    return bool(np.all(high - low >= np.maximum(SMALLEST, _FINEST * size)))


def by_column(name: str, value: Any, columns: Sequence[str] | None) -> Any:
    """The values of a dict by column name as an array; anything else unchanged."""
    if not isinstance(value, Mapping):
        return value
    if columns is None:
        raise ValueError(
            f"{name} is a dict, which needs X to be a data frame with text as names of its columns "
            "(X.columns = X.columns.astype(str)). Behind a PublicEncoder say bounds_X=encoder, "
            "behind others set_output(transform='pandas'), or give a pair (lows, highs) by the "
            "order of columns; meta-estimators such as RFE hand on an array: there give one pair"
        )
    missing = [column for column in columns if column not in value]
    unknown = [column for column in value if column not in set(columns)]
    faults = (missing, "columns are not named"), (unknown, "names are no columns")
    found = [f"{len(names)} {what} ({listed(names)})" for names, what in faults if names]
    if found:
        raise ValueError(f"{name} must name every column of X and no other: {', '.join(found)}")
    return np.array([value[column] for column in columns], dtype=np.float64)


def check_feature_bounds(bounds: Any, n_features: int | None = None) -> tuple[Array, Array] | None:
    """The checked ends of `bounds_X`, of a dict in its order; None if it declares no numbers."""
    if bounds is None or is_declaring(bounds):
        return None
    if isinstance(bounds, Mapping):
        if n_features not in (None, len(bounds)):
            raise ValueError(f"bounds_X names {len(bounds)} columns, but n_features={n_features}")
        ends = [_ends(f"bounds_X[{column!r}]", pair, 1) for column, pair in bounds.items()]
        lows, highs = np.reshape(ends, (-1, 2)).T
        return lows, highs
    low, high = _pair("bounds_X", bounds)
    shapes = {low.shape, high.shape} - {()}
    if max(low.ndim, high.ndim) > 1:
        raise ValueError("bounds_X must hold scalars or arrays of shape (n_features,)")
    if len(shapes) > 1:
        raise ValueError(f"bounds_X has ends of shapes {low.shape} and {high.shape}")
    if n_features is not None and shapes - {(n_features,)}:
        raise ValueError(
            f"bounds_X must hold scalars or arrays of shape ({n_features},), got shapes "
            f"{low.shape} and {high.shape}. {_OTHER_COLUMNS}"
        )
    if not _is_wide_enough(low, high):
        raise ValueError(
            f"bounds_X must have low < high in every column, {_APART}; it is one pair (low, high) "
            "of scalars or of arrays over the columns, or a dict of pairs by column name"
        )
    return low, high


def is_declaring(bounds: Any) -> bool:
    """Whether `bounds_X` is a transformer that declares them, in the place of numbers."""
    is_table = hasattr(bounds, "iloc")  # of pandas, which has a method of this name
    return (hasattr(bounds, "transform") and not is_table) or hasattr(bounds, "declared_output")


def feature_scaling(
    bounds: Any,
    n_features: int,
    feature_names: Sequence[str] | None = None,
    *,
    through_zero: bool = False,
) -> FeatureScaling:
    """The scaling that `bounds_X` declares; None stands for (-1, 1) and warns."""
    if bounds is None:
        advice = " Behind a PublicEncoder say bounds_X=encoder."
        low, high = _undeclared("bounds_X", "features", advice=advice)
    elif isinstance(bounds, Mapping):
        check_feature_bounds(bounds)
        low, high = by_column("bounds_X", bounds, feature_names).T
    else:  # a transformer is no pair
        low, high = check_feature_bounds(bounds, n_features) or _pair("bounds_X", bounds)
    low, high = np.full(n_features, low), np.full(n_features, high)
    keeps_zero = through_zero | (low == 0) | (high == 0)
    shift = np.where(keeps_zero, 0.0, low / 2 + high / 2)
    width = np.where(keeps_zero, np.maximum(-low, high), high / 2 - low / 2)
    return FeatureScaling(low, high, shift, width)


def largest_weight(max_weight: Any, *, has_weights: bool = False) -> float:
    """The largest weight that counts; None stands for 1, and warns where weights are given."""
    if max_weight is None and has_weights:
        warn_user(
            "max_weight was not given: weights above 1 count as 1. Declare the largest weight from "
            "domain knowledge, not from the data.",
            BoundsNotDeclaredWarning,
        )
    return 1.0 if max_weight is None else check_size("max_weight", max_weight)


def _undeclared(name: str, what: str, low: float = -1.0, advice: str = "") -> tuple[Any, Any]:
    warn_user(
        f"{name} was not given: {what} are clipped to ({low:g}, 1). Declare the bounds from "
        f"domain knowledge, not from the data.{advice}",
        BoundsNotDeclaredWarning,
    )
    return low, 1.0


def check_declared(what: str, **bounds: Any) -> None:
    """Refuse what has intervals where one of these bounds was not given."""
    if missing := [name for name, given in bounds.items() if given is None]:
        raise ValueError(
            f"{what} needs {' and '.join(missing)}: values are clipped to a range that nobody "
            "chose, and intervals would be those of what is left. Declare the bounds from domain "
            "knowledge, not from the data"
        )


def _ends(name: str, bounds: Any, n_targets: int | None) -> tuple[Array, Array]:
    """Those of a number, or of `bounds_y` if right for that number of targets, or for any."""
    low, high = _pair(name, bounds)
    shapes = {low.shape, high.shape} - {()}
    is_one = bool(shapes) and name != "bounds_y"
    if is_one or len(shapes) > 1 or max(low.ndim, high.ndim) > 1 or not _is_wide_enough(low, high):
        several = ", or two arrays of such numbers over the targets" * (n_targets != 1)
        raise ValueError(
            f"{name} must be two numbers with low < high, {_APART}{several}, got {shown(bounds)}"
        )
    if n_targets is not None and shapes - {(n_targets,)}:
        raise ValueError(f"{name} has the ends of {shapes.pop()[0]} targets, y has {n_targets}")
    return low, high


def check_target_bounds(bounds: Any, n_targets: int | None = None) -> tuple[Array, Array] | None:
    """The ends of `bounds_y`, if they are right for that number of targets, or for any."""
    return None if bounds is None else _ends("bounds_y", bounds, n_targets)


def number_bounds(bounds: Any, name: str) -> tuple[float, float] | None:
    """The ends of bounds of a single number."""
    if bounds is None:
        return None
    low, high = _ends(name, bounds, 1)
    return low.item(), high.item()


def rate_scaling(bounds_y: Any, bounds_exposure: Any, *, with_zero: bool) -> TargetScaling:
    """The scaling of targets over their exposures; None for the first stands for (0 or .001, 1)."""
    most = " Larger counts and costs count as 1: say bounds_y=(low, the most a record may have)."
    of_y = number_bounds(bounds_y, "bounds_y")
    low, high = of_y or _undeclared("bounds_y", "targets", 0.0 if with_zero else 0.001, most)
    if low < 0 or (low == 0 and not with_zero):
        least = "at least 0" if with_zero else "above 0"
        advice = ": a small cost such as .01, or DPTweedieRegressor for costs of 0" * (low == 0)
        raise ValueError(f"bounds_y must be {least}, got {shown(bounds_y)}{advice}")
    if with_zero and low > 0:
        raise ValueError(
            f"bounds_y must begin at 0, got ({low:g}, {high:g}): targets of 0 would count as "
            f"{low:g}. Say (0, {high:g}), which costs nothing"
        )
    shortest, longest = number_bounds(bounds_exposure, "bounds_exposure") or (1.0, 1.0)
    if shortest <= 0:
        raise ValueError(
            f"bounds_exposure must be above 0, got {shown(bounds_exposure)}: begin with a short "
            "one, such as a hundredth of the longest. A record with an exposure of 0 tells "
            "nothing, and nonfinite='zero' leaves it out"
        )
    largest = high / shortest
    return TargetScaling(low / longest, largest, 0.0, largest, has_log_link=True)


def target_scaling(bounds: Any, n_targets: int = 1, *, through_zero: bool = False) -> TargetScaling:
    """The scaling that `bounds_y` declares; None stands for (-1, 1) and warns."""
    low, high = check_target_bounds(bounds, n_targets) or _undeclared("bounds_y", "targets")
    low, high = np.full(n_targets, low), np.full(n_targets, high)
    if n_targets == 1:
        low, high = low.item(), high.item()
    if through_zero:
        half = np.maximum(-low, high)
        return TargetScaling(low, high, 0.0 * half, half)
    return TargetScaling(low, high, low / 2 + high / 2, high / 2 - low / 2)


PRIVATE: Literal["private"] = "private"


def check_magnitude(name: str, value: Any, *, positive: bool) -> None:
    """Raise unless `value` is "private", or in range: a number, an array, or a dict of numbers."""
    low = SMALLEST if positive else -LARGEST
    if isinstance(value, Mapping):
        for column, number in value.items():
            if isinstance(number, (str, Mapping)) or np.ndim(number) != 0:
                raise ValueError(f"{name}[{column!r}] must be a number, got {shown(number)}")
            check_numbers(f"{name}[{column!r}]", number, low=low)
    elif isinstance(value, str):
        if value != PRIVATE:
            raise ValueError(f"{name} must be 'private' or numbers, got {shown(value)}")
    elif check_numbers(name, value, low=low).ndim > 1:
        raise ValueError(
            f"{name} must be 'private', a scalar or one number for each column, got {shown(value)}"
        )


def guessed_feature_scaling(center: Any, scale: Any, n_features: int) -> FeatureScaling:
    """The map without bounds that guesses make, of which "private" ones are left to the plan."""
    columns = []
    for name, value, neutral in (("center_X", center, 0.0), ("scale_X", scale, 1.0)):
        array = np.asarray(neutral if isinstance(value, str) else value, dtype=np.float64)
        if array.ndim == 1 and array.size != n_features:
            raise ValueError(
                f"{name} must hold a scalar or {n_features} numbers, got {array.size}. "
                f"{_OTHER_COLUMNS}"
            )
        columns.append(np.full(n_features, array))
    infinite = np.full(n_features, np.inf)
    return FeatureScaling(-infinite, infinite, *columns)
