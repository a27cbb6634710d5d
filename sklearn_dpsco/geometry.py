"""Feasible sets: a norm, its size, and oracles over it. They know nothing of privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._checks import check_real

__all__ = ["Geometry", "L1Ball", "Simplex", "Vertex", "get_geometry"]

Array = NDArray[np.float64]


class Vertex(NamedTuple):
    """The point ``value * e_coordinate``, a vertex of a polyhedral set."""

    coordinate: int
    value: float


@dataclass(frozen=True)
class Geometry:
    """Base class: a convex set of coefficients in scaled units.

    Parameters
    ----------
    radius : float > 0

    Attributes
    ----------
    allows_intercept : bool
        Whether the intercept may be one more coordinate of the set.
    contains_origin : bool
        Whether the zero model, and with a point every shrunk one, is in the set.
    has_vertices : bool
        Whether it gives `vertex_scores`, `vertex` and `l1_diameter`, which selections
        need.
    """

    radius: float

    allows_intercept: ClassVar[bool] = True
    contains_origin: ClassVar[bool] = True
    has_vertices: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_real("radius", self.radius, low=0, low_open=True)

    @property
    def diameter(self) -> float:
        """Largest distance of two points of the set, in its norm."""
        raise NotImplementedError

    @property
    def l1_diameter(self) -> float:
        """Largest l1 distance of two vertices: what bounds the range of a selection."""
        raise NotImplementedError

    def norm(self, x: Array) -> float:
        """The norm of the set."""
        raise NotImplementedError

    def dual_norm(self, g: Array) -> float:
        """Sup of <x, g> over norm(x) <= 1."""
        raise NotImplementedError

    def center(self, n_features: int) -> Array:
        """The point that a solver starts from."""
        raise NotImplementedError

    def vertex_scores(self, direction: Array) -> Array:
        """-<v, direction> for every vertex v, in the order of `vertex`."""
        raise NotImplementedError

    def vertex(self, number: int, n_features: int) -> Vertex:
        """The vertex of that number."""
        raise NotImplementedError

    def lmo(self, direction: Array) -> Vertex:
        """A vertex that minimizes <v, direction> (linear minimization oracle)."""
        return self.vertex(int(np.argmax(self.vertex_scores(direction))), direction.size)

    def project(self, x: Array) -> Array:
        """The nearest point of the set in Euclidean distance."""
        raise NotImplementedError


def _project_simplex(x: Array, radius: float) -> Array:
    """Nearest point of {w >= 0, sum w = radius}: shift and cut, O(d log d)."""
    x = x - x.max()  # changes nothing, and keeps the radius from being lost in rounding
    ordered = np.sort(x)[::-1]
    shifts = (np.cumsum(ordered) - radius) / np.arange(1, x.size + 1)
    last = np.nonzero(ordered > shifts)[0][-1]
    return np.maximum(x - shifts[last], 0.0)


@dataclass(frozen=True)
class L1Ball(Geometry):
    r"""The l1 ball :math:`\{w : \|w\|_1 \le s\}`.

    2 d vertices :math:`\pm s e_j`, diameter 2 s, dual norm l-infinity.

    Parameters
    ----------
    radius : float > 0
        s.
    """

    has_vertices: ClassVar[bool] = True

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    @property
    def l1_diameter(self) -> float:
        return self.diameter

    def norm(self, x: Array) -> float:
        return float(np.abs(x).sum())

    def dual_norm(self, g: Array) -> float:
        return float(np.abs(g).max())

    def center(self, n_features: int) -> Array:
        return np.zeros(n_features)

    def vertex_scores(self, direction: Array) -> Array:
        scores = np.empty(2 * direction.size)
        np.multiply(direction, -self.radius, out=scores[: direction.size])
        np.multiply(direction, self.radius, out=scores[direction.size :])
        return scores

    def vertex(self, number: int, n_features: int) -> Vertex:
        sign = 1.0 if number < n_features else -1.0
        return Vertex(number % n_features, sign * self.radius)

    def lmo(self, direction: Array) -> Vertex:
        index = int(np.argmax(np.abs(direction)))
        return Vertex(index, float(-np.copysign(self.radius, direction[index])))

    def project(self, x: Array) -> Array:
        size = np.abs(x)
        if size.sum() <= self.radius:
            return x
        return np.copysign(_project_simplex(size, self.radius), x)


@dataclass(frozen=True)
class Simplex(Geometry):
    r"""The scaled simplex :math:`\{w \ge 0 : \sum_j w_j = s\}`.

    d vertices :math:`s e_j`, diameter 2 s in the l1 norm. It has no room for an
    intercept, and its centre is :math:`(s / d, \dots, s / d)`.

    Parameters
    ----------
    radius : float > 0
        s.
    """

    allows_intercept: ClassVar[bool] = False
    contains_origin: ClassVar[bool] = False
    has_vertices: ClassVar[bool] = True

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    @property
    def l1_diameter(self) -> float:
        return self.diameter

    def norm(self, x: Array) -> float:
        return float(np.abs(x).sum())

    def dual_norm(self, g: Array) -> float:
        return float(np.abs(g).max())

    def center(self, n_features: int) -> Array:
        return np.full(n_features, self.radius / n_features)

    def vertex_scores(self, direction: Array) -> Array:
        return -self.radius * direction

    def vertex(self, number: int, n_features: int) -> Vertex:
        return Vertex(number, float(self.radius))

    def project(self, x: Array) -> Array:
        return _project_simplex(x, self.radius)


_GEOMETRIES: dict[str, type[Geometry]] = {"l1": L1Ball, "simplex": Simplex}


def get_geometry(feasible_set: Any, radius: float | None) -> Geometry | type[Geometry]:
    """Resolve the constructor's `feasible_set` and `radius`.

    Returns the object itself, the named set with the given radius, or, where the radius
    is `None` ("auto"), the class whose radius the solver's plan will choose.

    Raises
    ------
    ValueError
        If the name is unknown, or a radius is given beside an object.
    """
    if isinstance(feasible_set, Geometry):
        if radius is not None:
            raise ValueError("radius must be 'auto' when feasible_set is an object, which has one")
        return feasible_set
    if not isinstance(feasible_set, str) or feasible_set not in _GEOMETRIES:
        names = ", ".join(map(repr, _GEOMETRIES))
        raise ValueError(f"feasible_set must be a Geometry or one of {names}, got {feasible_set!r}")
    kind = _GEOMETRIES[feasible_set]
    return kind if radius is None else kind(radius)
