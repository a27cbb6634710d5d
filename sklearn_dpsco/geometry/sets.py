"""Feasible sets: norm, radius, projection, linear minimization. No privacy in here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .._checks import check_choice, check_real, check_size, shown
from .._types import Array
from .mirror_maps import Entropy, MirrorMap, PowerMap, dual_exponent, lp_norm
from .vertices import AxisVertices, Vertex, VertexMatrix, Vertices

_L1_MAPS = ("entropy", "power", "euclidean")


@dataclass(frozen=True)
class Geometry:
    """Base class: a convex set of coefficients in scaled units.

    Parameters
    ----------
    radius : float in [1e-50, 1e50]

    Attributes
    ----------
    p : float
        Of the set's norm, the l_p norm, unless the set has methods `norm` and `dual_norm`.
    allows_intercept : bool
        Whether the intercept may be one more coordinate of the set.
    contains_origin : bool
        Whether 0 is in the set, and with a point all its multiples by factors in [0, 1].
    has_vertices : bool
        Whether it has `vertices`, which selections need.
    mirror_maps : tuple of str
        The kinds of mirror map that `mirror_map` offers, the default first.

    Examples
    --------
    >>> from sklearn_dpsco import DPMirrorRegressor
    >>> from sklearn_dpsco.geometry import LpBall
    >>> model = DPMirrorRegressor(feasible_set=LpBall(2.0, p=1.5), bounds_X=(0, 1), bounds_y=(0, 1))
    >>> model.plan(n_samples=5000, n_features=3).geometry
    LpBall(radius=2.0, p=1.5)
    """

    radius: float

    p: ClassVar[float]
    allows_intercept: ClassVar[bool] = True
    contains_origin: ClassVar[bool] = True
    has_vertices: ClassVar[bool] = False
    mirror_maps: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        # a plain float, which is what kernels take
        object.__setattr__(self, "radius", check_size("radius", self.radius))

    def norm(self, x: Array) -> float:
        """The norm of the set."""
        return lp_norm(x, self.p)

    def dual_norm(self, g: Array) -> float:
        """Sup of <x, g> over norm(x) <= 1."""
        return lp_norm(g, dual_exponent(self.p))

    def center(self, n_features: int) -> Array:
        """The point that a solver starts from: 0, unless the set says otherwise."""
        return np.zeros(n_features)

    def vertices(self, n_features: int) -> Vertices:
        """All vertices: `AxisVertices` or a `VertexMatrix`, nothing else.

        These compute scores and their range, on which the privacy of a selection rests.
        """
        raise NotImplementedError

    def lmo(self, direction: Array) -> Vertex | Array:
        """A vertex that minimizes <v, direction> (linear minimization oracle)."""
        vertices = self.vertices(direction.size)
        return vertices.vertex(int(np.argmax(vertices.scores(direction))))

    def extreme_point(self, direction: Array) -> Array:
        """A point that minimizes <v, direction>, as an array."""
        vertex = self.lmo(direction)
        if not isinstance(vertex, Vertex):
            return vertex
        point = np.zeros(direction.size)
        point[vertex.coordinate] = vertex.value
        return point

    def project(self, x: Array) -> Array:
        """The nearest point of the set in Euclidean distance."""
        raise NotImplementedError

    def mirror_map(self, kind: str | None = None) -> MirrorMap:
        """The mirror map of that kind on this set; None means the first it offers.

        "euclidean" is half the squared l2 norm; "power" half the squared l_p norm, with the p of
        the set or, on the l1 ball and the simplex, p = 1 + 1 / ln d; "entropy" the negative
        entropy. `ValueError` if the set has no map of that kind.
        """
        if not self.mirror_maps:
            raise ValueError(f"{type(self).__name__} has no mirror map")
        kind = self.mirror_maps[0] if kind is None else kind
        check_choice("mirror_map", kind, self.mirror_maps)
        if kind == "entropy":
            return Entropy(self)
        if kind == "euclidean":
            return PowerMap(self, 2.0)
        # None is 1 + 1 / ln d; for p > 2, half the squared norm is not strongly convex enough
        return PowerMap(self, None if self.p == 1 else min(self.p, 2.0))


AnySet = Geometry | type[Geometry]  # a class leaves the radius to the plan


def _project_simplex(x: Array, radius: float) -> Array:
    """Nearest point of {w >= 0, sum w = radius}: shift, then clip at 0; O(d log d)."""
    x = x - x.max()  # the same result, but large x would lose the radius in rounding
    ordered = np.sort(x)[::-1]
    shifts = (np.cumsum(ordered) - radius) / np.arange(1, x.size + 1)
    return np.maximum(x - shifts[ordered > shifts][-1], 0.0)


@dataclass(frozen=True)
class L1Ball(Geometry):
    r"""The l1 ball :math:`\{w : \|w\|_1 \le s\}`.

    2 d vertices :math:`\pm s e_j`, dual norm l-infinity.

    Parameters
    ----------
    radius : float in [1e-50, 1e50]
        s.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.geometry import L1Ball
    >>> L1Ball(1.0).project(np.array([2.0, 0.5])).tolist()
    [1.0, 0.0]
    >>> L1Ball(1.0).extreme_point(np.array([0.1, -0.3])).tolist()
    [0.0, 1.0]
    """

    has_vertices: ClassVar[bool] = True
    mirror_maps: ClassVar[tuple[str, ...]] = _L1_MAPS
    p: ClassVar[float] = 1.0
    set_id: ClassVar[int] = 0  # by which the kernels know it

    def vertices(self, n_features: int) -> Vertices:
        return AxisVertices(n_features, (self.radius, -self.radius))

    def project(self, x: Array) -> Array:
        size = np.abs(x)
        if size.sum() <= self.radius:
            return x
        return np.copysign(_project_simplex(size, self.radius), x)


@dataclass(frozen=True)
class Simplex(Geometry):
    r"""The scaled simplex :math:`\{w \ge 0 : \sum_j w_j = s\}`.

    d vertices :math:`s e_j`. The intercept cannot be one of its coordinates, and its centre is
    :math:`(s / d, \dots, s / d)`.

    Parameters
    ----------
    radius : float in [1e-50, 1e50]
        s.

    Examples
    --------
    >>> from sklearn_dpsco.geometry import Simplex
    >>> Simplex(1.0).center(4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    allows_intercept: ClassVar[bool] = False
    contains_origin: ClassVar[bool] = False
    has_vertices: ClassVar[bool] = True
    mirror_maps: ClassVar[tuple[str, ...]] = _L1_MAPS
    p: ClassVar[float] = 1.0
    set_id: ClassVar[int] = 1

    def center(self, n_features: int) -> Array:
        return np.full(n_features, self.radius / n_features)

    def vertices(self, n_features: int) -> Vertices:
        return AxisVertices(n_features, (self.radius,))

    def project(self, x: Array) -> Array:
        return _project_simplex(x, self.radius)


@dataclass(frozen=True, init=False)
class Polytope(Geometry):
    r"""The convex hull of given points, :math:`s \, \mathrm{conv}(v_1, \dots, v_K)`.

    For coefficients that are a mixture of known ones. They are in scaled units: coefficient
    j multiplies feature j in units of its bounds, and the target has its own. The intercept
    cannot be one of its coordinates.

    Parameters
    ----------
    points : array-like or sparse matrix of shape (K, n_features)
        :math:`v_1, \dots, v_K`; public.
    radius : float in [1e-50, 1e50], default=1.0
        s.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.geometry import Polytope
    >>> earlier = Polytope([[0.5, 0.0], [0.0, 0.5], [0.5, 1.0]])  # coefficients that are known
    >>> earlier.extreme_point(np.array([0.0, -1.0])).tolist()
    [0.5, 1.0]
    """

    points: VertexMatrix

    has_vertices: ClassVar[bool] = True
    p: ClassVar[float] = 1.0
    allows_intercept: ClassVar[bool] = False
    contains_origin: ClassVar[bool] = False

    def __init__(self, points: Any, radius: float = 1.0) -> None:
        matrix = points if isinstance(points, VertexMatrix) else VertexMatrix(points)
        object.__setattr__(self, "points", matrix)
        object.__setattr__(self, "radius", radius)
        self.__post_init__()

    @cached_property
    def _scaled(self) -> VertexMatrix:
        return VertexMatrix(self.points.matrix * self.radius)

    def center(self, n_features: int) -> Array:
        return np.asarray(self._scaled.matrix.mean(axis=0), dtype=np.float64).ravel()

    def vertices(self, n_features: int) -> Vertices:
        return self._scaled


@dataclass(frozen=True)
class LpBall(Geometry):
    r"""The l_p ball :math:`\{w : \|w\|_p \le s\}`, 1 < p <= infinity.

    Dual norm :math:`\ell_q`, q = p / (p - 1).

    Parameters
    ----------
    radius : float in [1e-50, 1e50]
        s.
    p : float > 1
        `math.inf` is allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.geometry import LpBall
    >>> ball = LpBall(1.0, p=3)
    >>> bool(abs(ball.norm(ball.project(np.array([2.0, 2.0]))) - 1) < 1e-9)
    True
    """

    p: float  # type: ignore[misc]

    mirror_maps: ClassVar[tuple[str, ...]] = ("power", "euclidean")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.p, float) and self.p == math.inf):
            object.__setattr__(self, "p", check_real("p", self.p, low=1, low_open=True))

    @property
    def set_id(self) -> int:
        return 3 if self.p == math.inf else 2

    def extreme_point(self, direction: Array) -> Array:
        size = self.dual_norm(direction)
        if size == 0:
            return np.zeros(direction.size)  # all points have the same value
        if self.p == math.inf:
            return np.copysign(self.radius, -direction)
        sizes = np.abs(direction / size) ** (dual_exponent(self.p) - 1)
        return np.copysign(self.radius * sizes, -direction)

    def project(self, x: Array) -> Array:
        if self.norm(x) <= self.radius:
            return x
        if self.p == math.inf:
            return np.clip(x, -self.radius, self.radius)
        if self.p == 2:
            return x * (self.radius / lp_norm(x, 2))
        from .._kernels.mirror_steps import project_lp

        return self.radius * project_lp(x / self.radius, self.p)


@dataclass(frozen=True)
class L2Ball(LpBall):
    r"""The Euclidean ball :math:`\{w : \|w\|_2 \le s\}`.

    Parameters
    ----------
    radius : float in [1e-50, 1e50]
        s.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.geometry import L2Ball
    >>> L2Ball(5.0).project(np.array([6.0, 8.0])).round(12).tolist()
    [3.0, 4.0]
    """

    p: float = field(default=2.0, init=False, repr=False)  # type: ignore[misc]


@dataclass(frozen=True)
class LInfBall(LpBall):
    r"""The cube :math:`\{w : \max_j |w_j| \le s\}`.

    Parameters
    ----------
    radius : float in [1e-50, 1e50]
        s.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.geometry import LInfBall
    >>> LInfBall(1.0).project(np.array([3.0, -0.5])).tolist()
    [1.0, -0.5]
    """

    p: float = field(default=math.inf, init=False, repr=False)  # type: ignore[misc]


@dataclass(frozen=True)
class Unconstrained(Geometry):
    """All coefficients, without a bound; the norm is the Euclidean one.

    Has no radius: `radius` is infinite.

    Examples
    --------
    >>> from sklearn_dpsco import DPPhasedSGDRegressor
    >>> model = DPPhasedSGDRegressor(
    ...     feasible_set="unconstrained", bounds_X=(0, 1), bounds_y=(0, 1)
    ... )
    >>> model.plan(n_samples=5000, n_features=10).geometry
    Unconstrained(radius=inf)
    """

    radius: float = math.inf

    p: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        if self.radius != math.inf:
            raise ValueError(
                "feasible_set='unconstrained' has no radius: it needs a solver that works without "
                "one, which is phased SGD"
            )


_GEOMETRIES: dict[str, type[Geometry]] = {
    "l1": L1Ball,
    "l2": L2Ball,
    "linf": LInfBall,
    "simplex": Simplex,
    "unconstrained": Unconstrained,
}


def get_geometry(feasible_set: Any) -> AnySet:
    """The set itself, or of a name its class: the solver's plan chooses the radius."""
    if isinstance(feasible_set, Geometry):
        return feasible_set
    if not isinstance(feasible_set, str) or feasible_set not in _GEOMETRIES:
        names = ", ".join(map(repr, _GEOMETRIES))
        raise ValueError(
            f"feasible_set must be a Geometry or one of {names}, got {shown(feasible_set)}"
        )
    return _GEOMETRIES[feasible_set]
