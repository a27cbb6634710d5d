"""How the arguments of a fit become records: here, or in blocks of Dask where they are."""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, column_or_1d

from .._checks import check_size, shown
from .._types import AnyArray, Array, Flags, Indices, Integers
from ..data import cells
from ..data.blocks import Blocks, blocks_of_all, fingerprint, results, split
from ..data.bounds import FeatureScaling
from ..data.compressed import row_range
from ..data.pieces import Pieces, in_memory
from ..data.rows import Rows, SolverData, scaled_rows, times_rows
from ..exceptions import BlocksChangedError
from ..solvers.base import SolverResult


@dataclass(frozen=True)
class Targets:
    """Numbers and their public scaling, or labels by their position among the sorted classes.

    Numbers have the shape (n,) or (n, n_targets); a label that is not among the classes is -1.
    """

    y: AnyArray
    scaling: Any = None  # the `TargetScaling` of numbers
    classes: Any = None  # of labels, an array
    class_weight: tuple[float, ...] | str | None = None  # as in `Problem`

    @property
    def n_outputs(self) -> int:
        if self.classes is not None:
            return 1 if self.classes.size == 2 else int(self.classes.size)
        return 1 if self.y.ndim == 1 else self.y.shape[1]

    @functools.cached_property
    def is_empty(self) -> Flags:
        """Flags the records whose target is invalid."""
        if self.classes is not None:
            return self.y < 0
        columns = self.y if self.y.ndim == 2 else self.y[:, None]
        return np.any([cells.is_missing(column) for column in columns.T], axis=0)

    def without_records(self) -> Targets:
        """What is public of the targets."""
        return replace(self, y=self.y[:0].copy())

    def of(self, reader: Reader, y: AnyArray) -> Targets:
        """Others on the same scale, or of the same classes."""
        return replace(self, y=y if self.classes is None else reader.codes(y, self.classes))

    def scaled(self) -> Array:
        """Numbers in [-1, 1], 0 for an invalid one; labels as 1 (the second of two classes) and -1.

        Several targets, and more classes than two, have a column each.
        """
        if self.classes is None:
            scaled = self.scaling.transform(self.y)
            scaled[self.is_empty] = 0.0
            return scaled.ravel() if self.n_outputs == 1 else scaled
        if self.n_outputs == 1:
            return np.where(self.y == 1, 1.0, -1.0)
        return np.where(self.y[:, None] == np.arange(self.classes.size), 1.0, -1.0)

    def model(self, result: SolverResult, features: FeatureScaling) -> dict[str, Any]:
        """Coefficients in the user's units, of a matrix y and of classes a row for each output."""
        coef, intercept = features.unscale(result.coef, result.intercept)
        if self.classes is None:
            coef, intercept = self.scaling.unscale(coef, intercept)
        if self.classes is not None or self.y.ndim == 2:
            coef, intercept = np.atleast_2d(coef), np.atleast_1d(intercept)
        known = {} if self.classes is None else {"classes_": self.classes}
        return known | {"coef_": coef, "intercept_": intercept}


def class_weights(class_weight: Any, classes: AnyArray | None) -> tuple[float, ...] | str | None:
    """The weights of the sorted classes over the largest, 1 before that for one without any.

    "balanced" stays as it is, and None stands for equal weights. Without `classes`, a dict is
    checked alone.
    """
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return class_weight
    if not isinstance(class_weight, dict):
        raise ValueError(
            "class_weight must be None, 'balanced' or a dict {label: weight}, got "
            f"{shown(class_weight)}"
        )
    for label, weight in class_weight.items():
        check_size(f"class_weight[{shown(label)}]", weight, low=0)
    if classes is None:
        return None
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown:
        raise ValueError(
            f"class_weight has labels that are not among the classes: {shown(unknown)}"
        )
    weights = [float(class_weight.get(label, 1.0)) for label in labels]
    largest = max(weights)
    if largest == 0:
        raise ValueError("class_weight must be positive for at least one class, got 0 for all")
    return None if min(weights) == largest else tuple(weight / largest for weight in weights)


_OTHER_LABELS = "y has labels that are not among the declared classes"
_SPELLED = "They must be spelled as there: 'No' is not 'no'"
_CODES = (
    "Where a meta-estimator puts codes in the place of labels, declare the codes: 0, 1, ... in the "
    "order of the labels, or -1 and 1"
)
_AS_THEY_ARE = "Declare the labels as y holds them, numbers in quotes if these are text"


@dataclass(frozen=True)
class Reader:
    """How the values of records are checked and read, by public settings alone."""

    name: str  # of the estimator, for messages
    task: str  # as in `losses.Loss`
    is_strict: bool  # whether a record that is invalid is an error
    max_weight: float  # the largest that counts
    lowest: float = -np.inf  # valid target of a regression

    def features(self, X: Any) -> Any:
        """X as an array or a sparse matrix, perhaps of no records."""
        facts: dict[str, Any] = {"estimator": self.name, "ensure_min_samples": 0}
        return cells.checked_table(X, strict=self.is_strict, **facts)

    def targets(self, y: Any) -> Any:
        """Numbers, shape (n,) or (n, n_targets), or labels, if not strict with invalid ones."""
        if y is None:
            raise ValueError(f"{self.name} requires y to be passed, but the target y is None")
        if self.task != "classification":
            y = cells.checked(
                check_array,
                cells.as_numbers("y", y, strict=self.is_strict),
                dtype=np.float64,
                ensure_2d=False,
                ensure_all_finite=self.is_strict,
                input_name="y",
                estimator=self.name,
                ensure_min_samples=0,
            )
            y = y if y.ndim == 2 else cells.checked(column_or_1d, y)
            if self.lowest == -np.inf:
                return y
            with np.errstate(invalid="ignore"):
                is_low = y < self.lowest
            if self.is_strict and np.any(is_low):
                least = "at least 0" if self.lowest == 0 else "above 0"
                raise ValueError(
                    f"y of {self.name} must be {least}. Say nonfinite='zero', so that a record "
                    "with another target contributes nothing"
                )
            return np.where(is_low, np.nan, y)
        labels = cells.checked(cells.as_labels, y)
        if self.is_strict and np.any(cells.is_missing(labels)):
            raise ValueError(
                "y contains labels that are missing: NaN, None or infinity. Say nonfinite='zero', "
                "so that such a record contributes nothing"
            )
        return labels

    def codes(self, y: AnyArray, classes: AnyArray) -> Integers:
        """Position of each label among the classes, -1 for one that is not among them."""
        codes = cells.label_codes(y, classes)
        # an array of text against numbers is a mistake in the types, not in some records (unless
        # classes spell numbers, of which a reader of files makes a column if no cell is odd)
        of_other_type = (y.dtype.kind in "US") != (classes.dtype.kind in "US")
        of_other_type = of_other_type and "O" not in (y.dtype.kind, classes.dtype.kind)
        if of_other_type and not cells.spell_values(classes):
            if y.dtype.kind in "US":
                raise ValueError(f"{_OTHER_LABELS}: y holds text, classes does not. {_AS_THEY_ARE}")
            raise ValueError(f"{_OTHER_LABELS}: classes holds text, y does not. {_CODES}")
        if self.is_strict and np.any(codes < 0):
            raise ValueError(f"{_OTHER_LABELS}. {_SPELLED}. {_CODES}")
        return codes

    def weights(self, X: Any, sample_weight: Any, targets: Targets | None = None) -> Array | None:
        """The records' weights in [0, 1], times those of their classes; None if there are none."""
        of_classes = None
        if targets is not None and isinstance(targets.class_weight, tuple):
            of_classes = np.array([*targets.class_weight, 0.0])[targets.y]  # 0 for no class
        if sample_weight is None:
            return of_classes
        weights = cells.as_weights(sample_weight, self.max_weight, strict=self.is_strict)
        cells.check_lengths(X=X, sample_weight=weights)
        return times_rows(weights, of_classes)


@dataclass(frozen=True)
class LocalTable:
    """Validated arguments of a fit in the memory of this process."""

    reader: Reader
    X: Any
    targets: Targets
    is_surplus: Flags | None  # flags the rows of users who have too many of them
    weight: Array | None  # in [0, 1]
    users: Indices | None = None  # a number for each row's, where the plan asks for them
    n_users: int = 0  # in this case

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of records and of features."""
        return self.X.shape

    def data(
        self, scaling: FeatureScaling, fit_intercept: bool, in_pieces: bool
    ) -> SolverData | Pieces:
        """Scaled records; in pieces, that are scaled when they are read."""
        if not in_pieces:
            return self.records(scaling, fit_intercept)
        return in_memory(lambda part: self.part(part).records(scaling, fit_intercept), *self.shape)

    def part(self, which: slice) -> LocalTable:
        """The records of a range."""
        beside = self.is_surplus, self.weight, self.users
        targets = replace(self.targets, y=self.targets.y[which])
        arrays: Any = (None if array is None else array[which] for array in beside)
        return LocalTable(self.reader, row_range(self.X, which), targets, *arrays)

    def records(self, scaling: FeatureScaling, fit_intercept: bool) -> SolverData:
        """Scaled records. Those of scale 0 are empty: invalid, of weight 0, or surplus rows."""
        left_out: Any = False if self.is_surplus is None else self.is_surplus
        if self.weight is not None:
            left_out = left_out | (self.weight == 0)
        if self.reader.is_strict:
            scale = None if left_out is False else np.where(left_out, 0.0, 1.0)
            rows = Rows(scaling.transform(self.X), fit_intercept, scale, self.weight)
        else:
            left_out = self.targets.is_empty | left_out
            rows = scaled_rows(self.X, scaling, fit_intercept, left_out, self.weight)
        rows.users = self.users
        return SolverData(rows, self.targets.scaled())


# ------------------------------------------------------------------------ blocks elsewhere


@dataclass(frozen=True)
class BlocksTable:
    """Checked arguments of a fit in blocks of rows elsewhere."""

    reader: Reader
    blocks: dict[str, Blocks]  # "X", "y", and "weight" and "surplus" (flags) if there are any
    sizes: tuple[int, ...]  # numbers of records of the blocks
    marks: tuple[int, ...]  # and their fingerprints
    X: Any  # as it is read, without records
    # What is public of them. Before that is known, the labels that occur, if they are asked for,
    # else y without records.
    targets: Any
    n_users: ClassVar[int] = 0  # whose rows may lie in several blocks

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of records and of features."""
        return sum(self.sizes), self.X.shape[1]

    def of(self, targets: Targets, surplus: Flags | None) -> BlocksTable:
        """The same with their targets, and without the rows that do not count."""
        blocks = self.blocks
        if surplus is not None:
            flags = split(surplus, replace(blocks["X"], sizes=self.sizes))
            blocks = blocks | {"surplus": flags}
        return replace(self, blocks=blocks, targets=targets.without_records())

    def data(self, scaling: FeatureScaling, fit_intercept: bool, in_pieces: bool) -> Pieces:
        """Scaled records, where the blocks are: in pieces in any case."""
        facts = tuple(self.blocks), scaling, fit_intercept, self.targets
        reads = [
            functools.partial(_read, self.reader, mark, *facts) for mark in (None, *self.marks)
        ]
        inputs = tuple(zip(*(of_one.keys for of_one in self.blocks.values()), strict=True))
        graph = {key: task for of_one in self.blocks.values() for key, task in of_one.graph.items()}
        of_X = self.blocks["X"]
        groups = of_X.groups(self.sizes)
        classes = self.targets.classes
        y = self.targets.y if classes is None else classes[:0]
        nothing = [np.zeros(0, float if kind == "weight" else bool) for kind in self.blocks][2:]
        of_tasks = graph, groups, inputs, reads[1:], of_X.is_in_memory, of_X.get
        return Pieces(*of_tasks, self.sizes, reads[0](self.X, y, *nothing)).kept()


def _read(
    reader: Reader,
    mark: int | None,
    kinds: tuple[str, ...],
    scaling: FeatureScaling,
    fit_intercept: bool,
    meta: Targets,
    *arrays: Any,
) -> SolverData:
    """A block as scaled records, if its fingerprint is still `mark`; None is not compared."""
    given = dict(zip(kinds, arrays, strict=True))
    with suppress(ValueError):  # the block of the check was valid
        X, y = _read_both(reader, given)
        if mark is None or fingerprint(X, y, given.get("weight")) == mark:
            targets = meta.of(reader, y)
            weight = reader.weights(X, given.get("weight"), targets)
            table = LocalTable(reader, X, targets, given.get("surplus"), weight)
            return table.records(scaling, fit_intercept)
    raise BlocksChangedError(
        "blocks of X, or of what goes with it, were not the same when they were read again. A "
        "record may have counted in several parts of the fit, which voids the guarantee: so the "
        "fit was stopped, and what was charged stays charged. Let each block be the same rows in "
        "the same order whenever it is read (a query needs ORDER BY, a file must not change), or "
        "persist() the collection; then fit again under a new charge."
    )


def _read_both(reader: Reader, given: dict[str, Any]) -> tuple[Any, Any]:
    y: Any = given.get("y")
    if reader.task == "classification" and getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        # each block would warn of the column in each step
        y = cells.only_column(y) if cells.is_frame(y) else np.asarray(y)[:, 0]
    return reader.features(given["X"]), reader.targets(y)


def _checked_block(reader: Reader, kinds: tuple[str, ...], classes: Any, *arrays: Any) -> Any:
    """The facts of a block that `read_blocks` wants, or the error.

    It is returned, as schedulers log what is raised together with the arguments.
    """
    given = dict(zip(kinds, arrays, strict=True))
    try:
        with np.errstate(all="ignore"):
            cells.check_order(**given)
            X, y = _read_both(reader, given)
            cells.check_lengths(X=X, y=y)
            reader.weights(X, given.get("weight"))
            users = cells.as_users(given["groups"]) if "groups" in given else None
            cells.check_lengths(X=X, groups=users)
        labels = ()
        if classes is not None:
            reader.codes(y, classes)
        elif reader.task == "classification":
            labels = tuple(set(y[~cells.is_missing(y)].tolist()))
        bare, empty = _emptied(given["X"] if cells.is_frame(given["X"]) else X), _emptied(X)
        names = list(bare.columns) if hasattr(bare, "columns") else None
        form = empty.shape, sparse.issparse(empty), names, y.shape[1:]
        mark = fingerprint(X, y, given.get("weight"))
        return X.shape[0], mark, bare, empty, form, labels, users
    except Exception as error:
        return error.with_traceback(None)


def _emptied(block: Any) -> Any:
    """A block without its rows, of which it keeps no memory either."""
    empty = (block.tocsr() if sparse.issparse(block) else block)[:0]
    return empty.copy() if hasattr(empty, "copy") else empty


def read_blocks(
    reader: Reader, X: Any, others: dict[str, Any], classes: Any
) -> tuple[BlocksTable, Any, Any]:
    """Blocks of rows of X and of what goes with it, checked where they are.

    `others` has None for what is not there. Labels must be among `classes`; None looks up those
    that occur. Beside the table, X as it was given, without records, and the users of all rows, if
    they were in blocks.
    """
    given = {kind: values for kind, values in others.items() if values is not None}
    blocks = blocks_of_all(X, given)
    check = functools.partial(_checked_block, reader, tuple(blocks), classes)
    facts: list[Any] = results(check, list(blocks.values()))
    for fact in facts:
        if isinstance(fact, Exception):
            raise fact
    sizes, marks, given_X, empty_X, forms, labels, users_of = zip(*facts, strict=True)
    if any(form != forms[0] for form in forms):
        raise ValueError(
            "blocks must all have the same columns (with the same names) and targets, and be all "
            "dense or all sparse"
        )
    targets: Any = np.empty((0, *forms[0][-1]))
    if reader.task == "classification":
        targets = cells.as_labels(sorted(set().union(*labels), key=repr))
    counted = [key for key, size in zip(blocks["X"].keys, sizes, strict=True) if size]
    if len(set(counted)) < len(counted):
        raise ValueError(
            "the same part of X is given twice: each of its records would count as two, and the "
            "guarantee is for records that count once"
        )
    users = None
    if blocks.pop("groups", None):  # numpy would make text of the numbers beside text
        users = np.concatenate([some.astype(object) for some in users_of])
    return BlocksTable(reader, blocks, sizes, marks, empty_X[0], targets), given_X[0], users
