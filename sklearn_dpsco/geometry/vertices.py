"""Vertices of polyhedral sets, with what the privacy of a selection among them rests on.

The scores of a selection are -<v, g> for the vertices v and a gradient g. If g changes by at
most x in every coordinate, their range changes by at most `l1_diameter` times x. Scores and
diameter are computed here from the vertices themselves, never taken from a feasible set.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist

from .._checks import LARGEST, SMALLEST, check_int, check_real
from .._types import Array

_MOST_PAIRED = 1000  # vertices of which every two are compared


class Vertex(NamedTuple):
    """The point ``value * e_coordinate``, a vertex of a polyhedral set."""

    coordinate: int
    value: float


@dataclass(frozen=True)
class _Facts:
    """What a selection reads of vertices, beside `scores` of a direction and `vertex` by number."""

    n_features: int
    size: int = field(init=False, repr=False, compare=False)
    width: int = field(init=False, repr=False, compare=False)  # coordinates a score is a sum over
    # the largest of one vertex, and distance of two, or a little more
    l1_norm: float = field(init=False, repr=False, compare=False)
    l1_diameter: float = field(init=False, repr=False, compare=False)


@dataclass(frozen=True)
class AxisVertices(_Facts):
    """The vertices ``value * e_j`` for every coordinate j, and for each of some values.

    Parameters
    ----------
    n_features : int >= 1
        Number of coordinates.
    values : tuple of float
        In [-1e50, 1e50], not all 0.

    Examples
    --------
    Those of the l1 ball of radius 2 in three dimensions:

    >>> import numpy as np
    >>> from sklearn_dpsco.geometry import AxisVertices
    >>> vertices = AxisVertices(3, (2.0, -2.0))
    >>> vertices.scores(np.array([1.0, 0.0, -0.5])).tolist()
    [-2.0, -0.0, 1.0, 2.0, 0.0, -1.0]
    >>> vertices.vertex(3)
    Vertex(coordinate=0, value=-2.0)
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        d = check_int("n_features", self.n_features, low=1)
        # a list or an array could be changed after a plan was made of it
        name = "the value of a vertex"
        values = tuple(check_real(name, v, low=-LARGEST, high=LARGEST) for v in self.values)
        if not any(abs(value) >= SMALLEST for value in values):
            raise ValueError(f"the vertices of a set must not all be within {SMALLEST:g} of 0")
        largest = max(map(abs, values))
        facts = {"l1_norm": largest, "l1_diameter": 2 * largest}
        self.__dict__.update(values=values, size=d * len(values), width=1, **facts)

    def scores(self, direction: Array) -> Array:
        return np.outer(np.negative(self.values), direction).ravel()

    def vertex(self, number: int) -> Vertex:
        block, coordinate = divmod(number, self.n_features)
        return Vertex(coordinate, self.values[block])


@dataclass(frozen=True)
class VertexMatrix(_Facts):
    """Any vertices, one in each row of a matrix.

    Parameters
    ----------
    matrix : ndarray or CSR matrix of shape (n_vertices, n_features)
        In [-1e50, 1e50], not all rows the same. Copied.

    Examples
    --------
    >>> from sklearn_dpsco.geometry import VertexMatrix
    >>> vertices = VertexMatrix([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> vertices.vertex(2).tolist(), round(vertices.l1_diameter, 6)
    ([1.0, 1.0], 2.0)
    """

    n_features: int = field(init=False, repr=False)
    matrix: Any = field(compare=False)
    digest: bytes = field(init=False, repr=False)  # of the matrix, of which arrays have no equality

    def __post_init__(self) -> None:
        matrix = self.matrix
        if sparse.issparse(matrix):
            matrix = sparse.csr_array(matrix, dtype=np.float64, copy=True)
            matrix.sum_duplicates()
            arrays: tuple[Any, ...] = (matrix.data, matrix.indices, matrix.indptr)
        else:
            matrix = np.array(matrix, dtype=np.float64)
            arrays = (matrix,)
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise ValueError("vertices must be a matrix with a row for each and a column a feature")
        # NaN must not pass
        if not np.all(np.abs(arrays[0]) <= LARGEST):
            raise ValueError(f"vertices must be in [{-LARGEST:g}, {LARGEST:g}]")
        digest = hashlib.sha256(str(matrix.shape).encode())
        for array in arrays:
            array.flags.writeable = False  # it could be changed after a plan was made of it
            digest.update(array.tobytes())
        n, d = matrix.shape
        rounding = 1 + (d + 4) * 2.0**-50
        norms = np.asarray(abs(matrix).sum(axis=1)).ravel() * rounding
        if n <= _MOST_PAIRED:
            points = matrix.toarray() if sparse.issparse(matrix) else matrix
            diameter = float(pdist(points, "cityblock").max(initial=0.0)) * rounding
        else:
            diameter = float(np.sort(norms)[-2:].sum())  # no two are farther apart
        if not diameter >= SMALLEST:
            raise ValueError(f"two vertices must be at least {SMALLEST:g} apart in the l1 norm")
        self.__dict__.update(matrix=matrix, digest=digest.digest(), n_features=d, size=n, width=d)
        self.__dict__.update(l1_norm=float(norms.max()), l1_diameter=diameter)

    def scores(self, direction: Array) -> Array:
        return -np.asarray(self.matrix @ direction)

    def vertex(self, number: int) -> Array:
        row = self.matrix[[number]]
        return np.asarray(row.toarray() if sparse.issparse(row) else row)[0]


Vertices = AxisVertices | VertexMatrix


def known_vertices(vertices: Vertices, n_features: int) -> Vertices:
    """The same object; `ValueError` if it may not compute its own scores and diameter."""
    if type(vertices) not in (AxisVertices, VertexMatrix):
        raise ValueError(
            "the vertices of a feasible set must be AxisVertices or a VertexMatrix, got "
            f"{type(vertices).__name__}"
        )
    if vertices.n_features != n_features:
        raise ValueError(
            f"the vertices of a feasible set must have {n_features} coordinates here, "
            f"got {vertices.n_features}"
        )
    return vertices


def moved(coef: Array, vertex: Vertex | Array, rate: float) -> Array:
    """(1 - rate) coef + rate vertex."""
    if not isinstance(vertex, Vertex):
        return (1 - rate) * coef + rate * vertex
    coef = (1 - rate) * coef
    coef[vertex.coordinate] += rate * vertex.value
    return coef
