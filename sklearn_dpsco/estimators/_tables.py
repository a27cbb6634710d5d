"""How the arguments of a fit become records: here, or in blocks of Dask where they are."""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from .._fitting import checked, checked_table
from ..data.blocks import Blocks, blocks_of_all, fingerprint, results, split
from ..data.bounds import FeatureScaling
from ..data.cells import (
    as_labels,
    as_numbers,
    as_users,
    as_weights,
    clear_rows,
    is_missing,
    label_codes,
    nonfinite_rows,
)
from ..data.compressed import canonical
from ..data.pieces import Pieces, Source
from ..data.rows import Rows, make_rows, times_rows
from ..exceptions import BlocksChangedError
from ..solvers.records import SolverData
from ._targets import Labels, Numbers

__all__ = ["BlocksTable", "FoundBlocks", "LocalTable", "Reader", "read_blocks"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_OTHER_LABELS = "y has labels that are not among the declared classes"
_CODES = (
    "Where a meta-estimator puts codes in the place of labels, declare the codes: 0, 1, ... in the "
    "order of the labels, or -1 and 1"
)


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
                check_array,
                as_numbers("y", y, strict=self.is_strict),
                dtype=np.float64,
                ensure_2d=False,
                ensure_all_finite=self.is_strict,
                input_name="y",
                estimator=self.name,
                ensure_min_samples=0,
            )
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
            raise ValueError(f"{_OTHER_LABELS}: {text} holds text, {other} does not. {_CODES}")
        if self.is_strict and np.any(codes < 0):
            raise ValueError(f"{_OTHER_LABELS}. {_CODES}")
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
        self,
        X: Any,
        scaling: FeatureScaling,
        fit_intercept: bool,
        is_empty: Flags,
        is_surplus: Flags | None,
        weight: Array | None,
    ) -> Rows:
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

    `given` and `empty` are X as it was given and as it is read, without records; `mark` is the
    `fingerprint` of the block, and `users` are those of its rows if there are any.
    """

    n_samples: int = 0
    given: Any = None
    empty: Any = None
    of_targets: tuple[int, ...] = ()
    labels: tuple[Any, ...] = ()
    mark: int = 0
    users: Any = None
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
    sizes, marks : tuple of int
        Numbers of records of the blocks, and their fingerprints.
    given, empty : array-like of shape (0, d)
        X as it was given and as it is read, without records.
    targets : ndarray
        The labels that occur, if they are asked for; else y without records.
    users : ndarray or None
        Those of all rows, if they were in blocks.
    """

    blocks: dict[str, Blocks]
    sizes: tuple[int, ...]
    marks: tuple[int, ...]
    given: Any
    empty: Any
    targets: Any
    users: Any

    def without(self, surplus: Flags) -> FoundBlocks:
        """Blocks of which some rows do not count."""
        flags = split(surplus, replace(self.blocks["X"], sizes=self.sizes))
        return self._replace(blocks=self.blocks | {"surplus": flags})


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
        reads = [
            functools.partial(_read, self.reader, mark, tuple(blocks), *facts)
            for mark in (None, *self.found.marks)
        ]
        inputs = tuple(zip(*(of_one.keys for of_one in blocks.values()), strict=True))
        graph = {key: task for of_one in blocks.values() for key, task in of_one.graph.items()}
        of_X = blocks["X"]
        source = Source(graph, of_X.groups(sizes), inputs, reads[1:], of_X.is_in_memory, of_X.get)
        nothing = [np.zeros(0, dtype=float if kind == "weight" else bool) for kind in blocks][2:]
        of_targets = np.zeros((0, *self.found.targets.shape[1:]), dtype=self.found.targets.dtype)
        return Pieces(source, sizes, reads[0](self.empty, of_targets, *nothing)).kept()


def _read(
    reader: Reader,
    mark: int | None,
    kinds: tuple[str, ...],
    scaling: FeatureScaling,
    fit_intercept: bool,
    meta: Numbers | Labels,
    largest_weight: float,
    *arrays: Any,
) -> SolverData:
    """A block as scaled records; `mark` is what its fingerprint was, None if there was none.

    Raises
    ------
    BlocksChangedError
        If it is another block now.
    """
    given = dict(zip(kinds, arrays, strict=True))
    with suppress(ValueError):  # the block of the check was valid
        X, y = _read_both(reader, given)
        if mark is None or _mark(X, y, given) == mark:
            targets: Numbers | Labels
            if isinstance(meta, Numbers):
                targets = replace(meta, y=y)
            else:
                targets = replace(meta, codes=reader.codes(y, meta.classes))
            weight = reader.weights(X, given.get("weight"), largest_weight, targets)
            flags = targets.is_empty, given.get("surplus")
            rows = reader.rows(X, scaling, fit_intercept, *flags, weight)
            return SolverData(rows, targets.scaled())
    raise BlocksChangedError(
        "blocks of X, or of what goes with it, were not the same when they were read again. A "
        "record may have counted in several parts of the fit, which voids the guarantee: so the "
        "fit was stopped, and what was charged stays charged. Let each block be the same rows in "
        "the same order whenever it is read (a query needs ORDER BY, a file must not change), or "
        "persist() the collection; then fit again under a new charge."
    )


def _read_both(reader: Reader, given: dict[str, Any]) -> tuple[Any, Any]:
    """X and y of a block."""
    y = given["y"]
    if reader.task == "classification" and getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        y = np.asarray(y)[:, 0]  # each block would warn of the column in each step
    return reader.features(given["X"], min_samples=0), reader.targets(y)


def _mark(X: Any, y: Any, given: dict[str, Any]) -> int:
    return fingerprint(X, y, *([given["weight"]] if "weight" in given else []))


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
            users = as_users(given["groups"]) if "groups" in given else None
            check_consistent_length(X, users)
        labels = ()
        if wants_labels:
            labels = tuple(set(y[~is_missing(y)].tolist()))
        elif classes is not None:
            reader.codes(y, classes)
        forms = _emptied(given["X"]), _emptied(X), y.shape[1:]
        return _Facts(X.shape[0], *forms, labels, _mark(X, y, given), users)
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
        If blocks are invalid, or do not go with each other, or one of X is given twice.
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
    counted = [key for key, size in zip(blocks["X"].keys, sizes, strict=True) if size]
    if len(set(counted)) < len(counted):
        raise ValueError(
            "the same part of X is given twice: each of its records would count as two, and the "
            "guarantee is for records that count once"
        )
    users = None
    if blocks.pop("groups", None):  # numpy would make text of the numbers beside text
        users = np.concatenate([fact.users.astype(object) for fact in facts])
    marks = tuple(fact.mark for fact in facts)
    return FoundBlocks(blocks, sizes, marks, first.given, first.empty, targets, users)
