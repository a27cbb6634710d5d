"""How the arguments of a fit become records: here, or in blocks of Dask where they are."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from .._fitting import checked, checked_table
from ..data.blocks import Blocks, blocks_of_all, results
from ..data.bounds import FeatureScaling
from ..data.cells import as_numbers
from ..data.compressed import canonical
from ..data.pieces import Pieces, Source
from ..data.records import (
    as_labels,
    as_weights,
    clear_rows,
    is_missing,
    label_codes,
    nonfinite_rows,
)
from ..data.rows import Rows, make_rows, times_rows
from ..solvers.base import SolverData
from ._targets import Labels, Numbers

__all__ = ["BlocksTable", "FoundBlocks", "LocalTable", "Reader", "read_blocks"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Reader:
    """How the values of records are checked and read, by public settings alone.

    Attributes
    ----------
    name : str
        Of the estimator, for messages.
    task : {"regression", "classification"}
    is_strict : bool
        Whether a record that is invalid is an error.
    """

    name: str
    task: str
    is_strict: bool

    def features(self, X: Any, min_samples: int = 1) -> Any:
        """X as an array or a sparse matrix."""
        strict, least = self.is_strict, min_samples
        return checked_table(X, strict=strict, estimator=self.name, ensure_min_samples=least)

    def targets(self, y: Any) -> Any:
        """Numbers, shape (n,) or (n, n_targets), or labels, if not strict with invalid ones."""
        if self.task == "regression":
            y = checked(
                check_array, as_numbers("y", y, strict=self.is_strict), dtype=np.float64,
                ensure_2d=False, ensure_all_finite=self.is_strict, input_name="y",
                estimator=self.name, ensure_min_samples=0,
            )  # fmt: skip
            return y if y.ndim == 2 else checked(column_or_1d, y)
        labels = checked(as_labels, y)
        if self.is_strict and np.any(is_missing(labels)):
            raise ValueError(
                "y contains labels that are missing: NaN, None or infinity. Say nonfinite='zero', "
                "so that such a record contributes nothing"
            )
        return labels

    def codes(self, y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int_]:
        """Position of each label among the classes, -1 for one that is not among them."""
        codes = label_codes(y, classes)
        # an array of text against numbers is a mistake in the types, not in some records
        of_other_type = (y.dtype.kind in "US") != (classes.dtype.kind in "US")
        of_other_type = of_other_type and "O" not in (y.dtype.kind, classes.dtype.kind)
        if of_other_type:
            text, other = ("y", "classes") if y.dtype.kind in "US" else ("classes", "y")
            raise ValueError(
                f"y has labels that are not among the declared classes: {text} holds text, "
                f"{other} does not"
            )
        if self.is_strict and np.any(codes < 0):
            raise ValueError("y has labels that are not among the declared classes")
        return codes

    def weights(
        self, X: Any, sample_weight: Any, largest: float, targets: Numbers | Labels
    ) -> Array | None:
        """The records' weights in [0, 1], times those of their classes; None if there are none."""
        if sample_weight is None:
            return targets.record_weight
        weights = as_weights(sample_weight, largest, strict=self.is_strict)
        check_consistent_length(X, weights)
        return times_rows(weights, targets.record_weight)

    def rows(
        self, X: Any, scaling: FeatureScaling, fit_intercept: bool, is_empty: Flags,
        is_surplus: Flags | None, weight: Array | None,
    ) -> Rows:  # fmt: skip
        """Scaled rows. Those of scale 0 are empty records.

        `is_empty` flags records whose target is invalid, which only nonfinite="zero" has; those
        with invalid features are found here. `is_surplus` flags the rows of users who have too
        many of them, None if there are no `groups`. `weight` is in [0, 1], None if there are no
        weights; records of weight 0 are empty.
        """
        left_out = is_surplus
        if weight is not None:
            left_out = weight == 0 if left_out is None else left_out | (weight == 0)
        if self.is_strict:
            scale = None if left_out is None else np.where(left_out, 0.0, 1.0)
            return make_rows(scaling.transform(X), fit_intercept, scale, weight)
        X = canonical(X) if sparse.issparse(X) else X
        empty = nonfinite_rows(X) | is_empty
        if left_out is not None:
            empty |= left_out
        cleared = clear_rows(scaling.transform(X), empty, X)
        return make_rows(cleared, fit_intercept, np.where(empty, 0.0, 1.0), weight)


@dataclass(frozen=True)
class LocalTable:
    """Validated arguments of a fit in the memory of this process.

    Attributes
    ----------
    reader, X, targets, is_surplus, weight
        See `Reader.rows`.
    """

    reader: Reader
    X: Any
    targets: Numbers | Labels
    is_surplus: Flags | None
    weight: Array | None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of records and of features."""
        return self.X.shape

    @property
    def empty(self) -> Any:
        """X without its records."""
        return self.X[:0]

    def data(self, scaling: FeatureScaling, fit_intercept: bool) -> SolverData:
        """Scaled records."""
        flags = self.targets.is_empty, self.is_surplus
        rows = self.reader.rows(self.X, scaling, fit_intercept, *flags, self.weight)
        return SolverData(rows, self.targets.scaled())


# ------------------------------------------------------------------------ blocks elsewhere


class _Facts(NamedTuple):
    """What a check tells of a block: public facts of its form, the labels if they are asked for.

    `given` and `empty` are X as it was given and as it is read, without records.
    """

    n_samples: int = 0
    given: Any = None
    empty: Any = None
    of_targets: tuple[int, ...] = ()
    labels: tuple[Any, ...] = ()
    error: Exception | None = None

    @property
    def form(self) -> tuple[Any, ...]:
        """What must be the same for all blocks."""
        names = list(self.given.columns) if hasattr(self.given, "columns") else None
        return self.empty.shape, sparse.issparse(self.empty), self.of_targets, names


class FoundBlocks(NamedTuple):
    """Checked blocks.

    Attributes
    ----------
    blocks : dict of str to Blocks
        Those of "X", "y", and of "weight" and "surplus" (flags of rows) if there are any.
    sizes : tuple of int
        Numbers of records of the blocks.
    given, empty : array-like of shape (0, d)
        X as it was given and as it is read, without records.
    targets : ndarray
        The labels that occur, if they are asked for; else y without records.
    """

    blocks: dict[str, Blocks]
    sizes: tuple[int, ...]
    given: Any
    empty: Any
    targets: Any


@dataclass(frozen=True)
class BlocksTable:
    """Validated arguments of a fit in blocks of rows elsewhere.

    Attributes
    ----------
    reader, found
        How the blocks are read, and where they are.
    targets : Numbers or Labels
        What is public of them.
    largest_weight : float
        The `max_weight` of the estimator.
    """

    reader: Reader
    found: FoundBlocks
    targets: Numbers | Labels
    largest_weight: float

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of records and of features."""
        return sum(self.found.sizes), self.empty.shape[1]

    @property
    def empty(self) -> Any:
        """X without its records."""
        return self.found.empty

    def data(self, scaling: FeatureScaling, fit_intercept: bool) -> Pieces:
        """Scaled records, where the blocks are."""
        blocks, sizes = self.found.blocks, self.found.sizes
        facts = scaling, fit_intercept, self.targets, self.largest_weight
        read = functools.partial(_read, self.reader, tuple(blocks), *facts)
        inputs = tuple(zip(*(of_one.keys for of_one in blocks.values()), strict=True))
        graph = {key: task for of_one in blocks.values() for key, task in of_one.graph.items()}
        of_X = blocks["X"]
        source = Source(graph, of_X.groups(sizes), inputs, read, of_X.is_in_memory, of_X.get)
        nothing = [np.zeros(0, dtype=float if kind == "weight" else bool) for kind in blocks][2:]
        of_targets = np.zeros((0, *self.found.targets.shape[1:]), dtype=self.found.targets.dtype)
        return Pieces(source, sizes, read(self.empty, of_targets, *nothing)).kept()


def _read(
    reader: Reader, kinds: tuple[str, ...], scaling: FeatureScaling, fit_intercept: bool,
    meta: Numbers | Labels, largest_weight: float, *arrays: Any,
) -> SolverData:  # fmt: skip
    """A block as scaled records."""
    given = dict(zip(kinds, arrays, strict=True))
    X, y = _read_both(reader, given)
    targets: Numbers | Labels
    if isinstance(meta, Numbers):
        targets = replace(meta, y=y)
    else:
        targets = replace(meta, codes=reader.codes(y, meta.classes))
    weight = reader.weights(X, given.get("weight"), largest_weight, targets)
    flags = targets.is_empty, given.get("surplus")
    return SolverData(reader.rows(X, scaling, fit_intercept, *flags, weight), targets.scaled())


def _read_both(reader: Reader, given: dict[str, Any]) -> tuple[Any, Any]:
    """X and y of a block."""
    y = given["y"]
    if reader.task == "classification" and getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        y = np.asarray(y)[:, 0]  # each block would warn of the column in each step
    return reader.features(given["X"], min_samples=0), reader.targets(y)


def _checked_block(
    reader: Reader, kinds: tuple[str, ...], classes: Any, wants_labels: bool, *arrays: Any
) -> _Facts:
    """The facts of a block.

    What is wrong is returned: schedulers log what is raised together with the arguments.
    """
    given = dict(zip(kinds, arrays, strict=True))
    try:
        with np.errstate(all="ignore"):
            X, y = _read_both(reader, given)
            check_consistent_length(X, y)
            if "weight" in given:
                weights = as_weights(given["weight"], 1.0, strict=reader.is_strict)
                check_consistent_length(X, weights)
        labels = ()
        if wants_labels:
            labels = tuple(set(y[~is_missing(y)].tolist()))
        elif classes is not None:
            reader.codes(y, classes)
        return _Facts(X.shape[0], _emptied(given["X"]), _emptied(X), y.shape[1:], labels)
    except Exception as error:
        return _Facts(error=error.with_traceback(None))


def _emptied(block: Any) -> Any:
    """A block without its rows, of which it keeps no memory either."""
    empty = (block.tocsr() if sparse.issparse(block) else block)[:0]
    return empty.copy() if hasattr(empty, "copy") else empty


def read_blocks(
    reader: Reader, X: Any, others: dict[str, Any], classes: Any, *, wants_labels: bool
) -> FoundBlocks:
    """Blocks of rows of X and of what goes with it, checked where they are.

    Parameters
    ----------
    reader : Reader
    X : collection, or list of delayed parts or futures
    others : dict of str to array-like or collection
        None for what is not there.
    classes : ndarray or None
        Among which labels must be.
    wants_labels : bool
        Whether the labels that occur are looked up.

    Raises
    ------
    ValueError
        If blocks are invalid, or do not go with each other.
    """
    given = {kind: values for kind, values in others.items() if values is not None}
    blocks = blocks_of_all(X, given)
    check = functools.partial(_checked_block, reader, tuple(blocks), classes, wants_labels)
    facts: list[_Facts] = results(check, list(blocks.values()))
    for fact in facts:
        if fact.error is not None:
            raise fact.error
    first = facts[0]
    if any(fact.form != first.form for fact in facts):
        raise ValueError(
            "blocks must all have the same columns (with the same names) and targets, and be all "
            "dense or all sparse"
        )
    targets: Any = np.empty((0, *first.of_targets))
    if reader.task == "classification":
        targets = as_labels(sorted({label for fact in facts for label in fact.labels}, key=repr))
    sizes = tuple(fact.n_samples for fact in facts)
    return FoundBlocks(blocks, sizes, first.given, first.empty, targets)
