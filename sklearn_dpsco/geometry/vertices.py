"""Vertices of polyhedral sets, with what the privacy of a selection among them rests on.

The scores of a selection are -<v, g> for the vertices v and a gradient g. If g changes by at
most x in every coordinate, their range changes by at most `l1_diameter` times x. Scores and
diameter are computed here from the vertices themselves, never taken from a feasible set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .._checks import check_int, check_real

__all__ = ["AxisVertices", "Vertex", "VertexList", "Vertices", "known_vertices"]

Array = NDArray[np.float64]

_LARGEST = 1e50  # of a coordinate, so that products do not overflow


class Vertex(NamedTuple):
    """The point ``value * e_coordinate``, a vertex of a polyhedral set."""

    coordinate: int
    value: float


class Vertices(Protocol):
    """What a selection reads of the vertices, which have numbers from 0 on."""

    @property
    def n_features(self) -> int: ...

    @property
    def l1_diameter(self) -> float:
        """Largest l1 distance of two of them, or a little more."""
        ...

    def scores(self, direction: Array) -> Array:
        """-<v, direction> for every vertex v."""
        ...

    def vertex(self, number: int) -> Vertex:
        """The vertex of that number."""
        ...


@dataclass(frozen=True)
class AxisVertices:
    """The vertices ``value * e_j`` for every coordinate j, and for each of some values.

    Parameters
    ----------
    n_features : int >= 1
        Number of coordinates.
    values : tuple of float
        In [-1e50, 1e50], not all 0.
    """

    n_features: int
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        check_int("n_features", self.n_features, low=1)
        # a list or an array could be changed after a plan was made of it
        object.__setattr__(self, "values", _checked(self.values))

    @property
    def l1_diameter(self) -> float:
        return 2 * max(abs(value) for value in self.values)

    def scores(self, direction: Array) -> Array:
        d = self.n_features
        scores = np.empty(d * len(self.values))
        for k, value in enumerate(self.values):
            np.multiply(direction, -value, out=scores[k * d : (k + 1) * d])
        return scores

    def vertex(self, number: int) -> Vertex:
        block, coordinate = divmod(number, self.n_features)
        return Vertex(coordinate, self.values[block])


@dataclass(frozen=True)
class VertexList:
    """Any vertices that have one coordinate other than 0 each.

    Parameters
    ----------
    n_features : int >= 1
        Number of coordinates.
    coordinates : tuple of int
        The coordinate of each vertex that may differ from 0, in [0, n_features).
    values : tuple of float
        The value of each vertex there, in [-1e50, 1e50]. Not all vertices may be the same.
    """

    n_features: int
    coordinates: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        d, name = check_int("n_features", self.n_features, low=1), "the coordinate of a vertex"
        coordinates = tuple(check_int(name, coordinate, low=0) for coordinate in self.coordinates)
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "values", _checked(self.values))
        if len(self.coordinates) != len(self.values):
            raise ValueError("a list of vertices needs one coordinate and one value for each")
        if max(self.coordinates) >= d:
            raise ValueError(f"{name} must be below {d}, got {max(self.coordinates)}")
        if self.l1_diameter == 0:
            raise ValueError("a list of vertices needs two different points")

    @cached_property
    def l1_diameter(self) -> float:
        which, place = np.unique(self._arrays[0], return_inverse=True)
        high, low = np.full(which.size, -np.inf), np.full(which.size, np.inf)
        np.maximum.at(high, place, self._arrays[1])
        np.minimum.at(low, place, self._arrays[1])
        # two vertices on one axis, or the two that are farthest out on different ones
        size = np.sort(np.maximum(np.abs(high), np.abs(low)))
        apart = float(size[-2:].sum()) if size.size > 1 else 0.0
        return max(float((high - low).max()), apart) * (1 + 2.0**-50)

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.intp], Array]:
        return np.asarray(self.coordinates, dtype=np.intp), np.asarray(self.values, dtype=float)

    def scores(self, direction: Array) -> Array:
        coordinates, values = self._arrays
        return -values * direction[coordinates]

    def vertex(self, number: int) -> Vertex:
        return Vertex(self.coordinates[number], self.values[number])


def _checked(values: tuple[float, ...]) -> tuple[float, ...]:
    name = "the value of a vertex"
    checked = tuple(check_real(name, value, low=-_LARGEST, high=_LARGEST) for value in values)
    if not any(checked):
        raise ValueError("the vertices of a set must not all be 0")
    return checked


def known_vertices(vertices: Vertices, n_features: int) -> Vertices:
    """The same object, if it is one that computes its own scores and diameter.

    Raises
    ------
    ValueError
        If it is of another class, subclasses included, or for another number of features.
    """
    if type(vertices) not in (AxisVertices, VertexList):
        raise ValueError(
            "the vertices of a feasible set must be AxisVertices or a VertexList, "
            f"got {type(vertices).__name__}"
        )
    if vertices.n_features != n_features:
        raise ValueError(
            f"the vertices of a feasible set must have {n_features} coordinates here, "
            f"got {vertices.n_features}"
        )
    return vertices
