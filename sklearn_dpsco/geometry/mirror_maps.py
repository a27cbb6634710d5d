"""Norms, and mirror maps, which replace the squared distance in a gradient step. No data.

A map is a convex function Phi on a feasible set; a step from w along a gradient g is

    argmin over v in the set of  <g, v> + D(v, w) / step,

where D(v, w) = Phi(v) - Phi(w) - <grad Phi(w), v - w> is its Bregman divergence. Every map
is scaled to be 1-strongly convex in the l_p norm of its `exponent`, so that a step rule
needs only the smoothness, the noise and `bregman_diameter` in that norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg.blas import dnrm2

from .._types import Array

_NO_CENTER = "the entropy has no center: use the mirror map 'power'"


def lp_norm(x: Array, p: float) -> float:
    """The l_p norm for p in [1, inf], without overflow."""
    if p == 2:
        return float(dnrm2(x)) if x.size else 0.0
    size = np.abs(x)
    largest = float(size.max(initial=0.0))
    if largest == 0 or p == math.inf:
        return largest
    if p == 1:
        return float(size.sum())
    return largest * float(((size / largest) ** p).sum()) ** (1 / p)


def dual_exponent(p: float) -> float:
    """The q of the dual norm, 1 / p + 1 / q = 1, for p in [1, inf]."""
    if p in (1, math.inf):
        return math.inf if p == 1 else 1.0
    return p / (p - 1)


@dataclass(frozen=True)
class MirrorMap:
    """Base class: a mirror map on one feasible set; made by `Geometry.mirror_map`.

    Parameters
    ----------
    geometry : Geometry
        The feasible set.

    Attributes
    ----------
    has_center : bool
        Whether `step` and `gradient` take a `center`, which the localized method needs.

    Examples
    --------
    >>> from sklearn_dpsco.geometry import L1Ball
    >>> mirror_map = L1Ball(1.0).mirror_map("power")
    >>> round(mirror_map.exponent(1000), 3)  # 1 + 1 / ln d
    1.145
    """

    geometry: Any

    has_center: ClassVar[bool] = False

    def exponent(self, dimension: int) -> float:
        """The p of the norm in which the map is 1-strongly convex, in [1, 2]."""
        raise NotImplementedError

    def dual_exponent(self, dimension: int) -> float:
        """The q = p / (p - 1) of the norm that gradients and noise are measured in."""
        return dual_exponent(self.exponent(dimension))

    def dual_norm(self, g: Array) -> float:
        """The l_q norm, q = `dual_exponent`."""
        return lp_norm(g, self.dual_exponent(g.size))

    def bregman_diameter(self, dimension: int) -> float:
        """Sup of D(w, start) over the set, start = `geometry.center(dimension)`."""
        raise NotImplementedError

    def gradient(self, coef: Array, center: Array | None = None) -> Array:
        """Gradient of the map, or of the map about `center`, at a point of the set."""
        raise NotImplementedError

    def step(
        self,
        coef: Array,
        gradient: Array,
        step: float,
        center: Array | None = None,
        within: float | None = None,
    ) -> Array:
        """One step from `coef`: argmin over the set of <gradient, w> + D(w, coef) / step.

        Parameters
        ----------
        coef, gradient : ndarray of shape (dimension,)
            A point of the set, and the gradient there.
        step : float >= 0
        center : ndarray of shape (dimension,), optional
            A point of the set. The map is then Phi(w - center), as in the phases of the
            localized method; needs `has_center`.
        within : float > 0, optional
            Bound on the l_p distance of `coef` and of the result from `center`, p = `exponent`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class PowerMap(MirrorMap):
    r"""Half the squared l_p norm: :math:`\Phi(w) = \frac{1}{2 (p - 1)} \|w\|_p^2`.

    A step costs O(d). Where both the set and `within` bind, two nested searches take some
    fifty passes over the coordinates, except for Euclidean balls; on l_p balls with
    1 < p < 2 or p > 2 a pass itself solves an equation for each coordinate.

    Parameters
    ----------
    geometry : Geometry
        An l1 ball, a simplex, or an l_p ball (with its own p, or p = 2).
    power : float in (1, 2] or None, default=2.0
        p; None means 1 + 1 / ln(dimension), at most 2. p = 2 is the Euclidean map, whose
        step is projected gradient descent.

    Examples
    --------
    Of p = 2, a step is that of projected gradient descent:

    >>> import numpy as np
    >>> from sklearn_dpsco.geometry import L2Ball
    >>> mirror_map = L2Ball(1.0).mirror_map("euclidean")
    >>> mirror_map.step(np.zeros(2), np.array([1.0, 0.0]), 0.5).tolist()
    [-0.5, 0.0]
    """

    power: float | None = 2.0

    has_center: ClassVar[bool] = True

    def exponent(self, dimension: int) -> float:
        if self.power is not None:
            return self.power
        return 2.0 if dimension < 3 else 1 + 1 / math.log(dimension)

    def bregman_diameter(self, dimension: int) -> float:
        p, largest = self.exponent(dimension), self.geometry.radius
        if p < self.geometry.p:
            largest *= dimension ** (1 / p - 1 / self.geometry.p)
        # of the centre, without an array: 0, or equal coordinates that sum to the radius
        is_at_origin = self.geometry.contains_origin
        start = 0.0 if is_at_origin else self.geometry.radius * dimension ** (1 / p - 1)
        # the gradient at the start is orthogonal to all differences within the set
        return (largest**2 - start**2) / (2 * (p - 1))

    def gradient(self, coef: Array, center: Array | None = None) -> Array:
        from .._kernels.mirror_steps import power_gradient

        p = self.exponent(coef.size)
        return power_gradient(coef if center is None else coef - center, p) / (p - 1)

    def step(
        self,
        coef: Array,
        gradient: Array,
        step: float,
        center: Array | None = None,
        within: float | None = None,
    ) -> Array:
        from .._kernels.mirror_steps import power_step

        if within is None:
            within = math.inf
        elif center is None:
            raise ValueError("within needs a center")
        kind = self.geometry
        domain = kind.set_id, float(kind.p), float(kind.radius), self.exponent(coef.size)
        return power_step(coef, gradient, step, center, within, domain)


@dataclass(frozen=True)
class Entropy(MirrorMap):
    r"""Negative entropy; steps are exponentiated gradient, in O(d).

    On the simplex :math:`\{w \ge 0, \sum_j w_j = s\}`:
    :math:`\Phi(w) = s \sum_j w_j \ln (w_j / s)`. On the l1 ball of radius s: the least
    such sum over the points :math:`(w^+, w^-)` of the simplex in twice the dimension with
    :math:`w^+ - w^- = w`. That is the map of exponentiated gradient with positive and
    negative weights, as a function of w alone (doc/extending.rst, "A mirror map").

    It has no `center`: the localized method needs a map about an arbitrary point.

    Examples
    --------
    On the simplex, a step is exponentiated gradient:

    >>> import numpy as np
    >>> from sklearn_dpsco.geometry import Simplex
    >>> mirror_map = Simplex(1.0).mirror_map("entropy")
    >>> mirror_map.step(np.array([0.5, 0.5]), np.array([np.log(3), 0.0]), 1.0).round(6).tolist()
    [0.25, 0.75]
    """

    def exponent(self, dimension: int) -> float:
        return 1.0

    def bregman_diameter(self, dimension: int) -> float:
        n_weights = dimension * (2 if self.geometry.contains_origin else 1)
        return self.geometry.radius**2 * math.log(n_weights)

    def gradient(self, coef: Array, center: Array | None = None) -> Array:
        from .._kernels.mirror_steps import entropy_dual_l1

        if center is not None:
            raise ValueError(_NO_CENTER)
        s = self.geometry.radius
        if self.geometry.contains_origin:
            return s * entropy_dual_l1(coef, s)
        return s * (np.log(np.maximum(coef / s, 1e-200)) + 1)

    def step(
        self,
        coef: Array,
        gradient: Array,
        step: float,
        center: Array | None = None,
        within: float | None = None,
    ) -> Array:
        from .._kernels.mirror_steps import entropy_step_l1, entropy_step_simplex

        if center is not None or within is not None:
            raise ValueError(_NO_CENTER)
        kernel = entropy_step_l1 if self.geometry.contains_origin else entropy_step_simplex
        return kernel(coef, gradient, step, self.geometry.radius)
