"""Pointwise losses l(z, y) of a raw prediction z and a target y, in scaled units.

Regression targets lie in [-1, 1]; classification targets are -1 or +1. A loss never sees
X, and its constants (`smoothness`, `derivative_bound`) are public facts. Each loss has
an integer `loss_id` by which the compiled kernels know it (`_kernels/derivatives.py`); a
user's own loss leaves it at `None` and runs through numpy.

All losses here are convex in z. A non-smooth one (`smoothness` infinite) gives a subgradient as
its derivative, and can be smoothed: its Moreau envelope of parameter beta has a derivative
in the same range whose slope is at most beta, by the closed form of the proximal point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ._checks import check_real

__all__ = [
    "Absolute",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Quantile",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
    "get_loss",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """Base class: the methods and constants that solvers use.

    Attributes
    ----------
    task : {"regression", "classification"}
    loss_id : int or None
        Number by which the compiled kernels know the derivative. Not inherited.
    smoothness : float
        Bound on the second derivative in z; infinite for a non-smooth loss.
    """

    task: ClassVar[str]
    loss_id: ClassVar[int | None] = None

    @property
    def smoothness(self) -> float:
        raise NotImplementedError

    @property
    def kernel_id(self) -> int | None:
        """`loss_id` if this class itself sets it: a subclass may differ from its parent."""
        return type(self).__dict__.get("loss_id")

    @property
    def kernel_parameter(self) -> float:
        """The parameter that the compiled derivative takes (0 if it takes none)."""
        return 0.0

    def value(self, z: Array, y: Array) -> Array:
        """l(z, y), elementwise."""
        raise NotImplementedError

    def derivative(self, z: Array, y: Array) -> Array:
        """dl/dz, elementwise; at a kink some subgradient."""
        raise NotImplementedError

    def prox(self, z: Array, y: Array, beta: float) -> Array:
        r"""Proximal point, :math:`\arg\min_u l(u, y) + \frac{\beta}{2} (u - z)^2`, elementwise."""
        return z - self.envelope_derivative(z, y, beta) / beta

    def envelope(self, z: Array, y: Array, beta: float) -> Array:
        r"""Moreau envelope, :math:`l_\beta(z, y) = \min_u l(u, y) + \frac{\beta}{2} (u - z)^2`.

        At most l, and at least :math:`l - c^2 / (2 \beta)`, c bounding the derivative of l.
        """
        slope = self.envelope_derivative(z, y, beta)
        return self.value(z - slope / beta, y) + slope**2 / (2 * beta)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        r"""Derivative of the envelope in z, :math:`\beta (z - \mathrm{prox}(z))`, elementwise.

        A subgradient of l at the proximal point, hence in the range of `derivative`, and
        Lipschitz in z with constant beta (and with that of l').

        Raises
        ------
        NotImplementedError
            If the loss has no closed form for it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no closed-form proximal point")

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        """Bound on abs(dl/dz) over abs(z) <= prediction_bound and abs(y) <= y_bound."""
        raise NotImplementedError

    def best_constant(self, mean: float) -> float:
        """The constant z that suits targets with the given mean in [-1, 1]."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Regression(Loss):
    """A regression loss; its `best_constant` is the mean of the targets."""

    task: ClassVar[str] = "regression"

    def best_constant(self, mean: float) -> float:
        return mean


@dataclass(frozen=True)
class _Classification(Loss):
    """A loss of the margin y z."""

    task: ClassVar[str] = "classification"


class _Kinked:
    """A loss that is not smooth, with derivatives within [-1, 1]."""

    @property
    def smoothness(self) -> float:
        return math.inf

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return 1.0


@dataclass(frozen=True)
class Squared(_Regression):
    r"""Squared error, :math:`l(z, y) = (z - y)^2 / 2`.

    Smoothness 1. The derivative z - y is unbounded in z, so `gradient_clip` turns the
    loss into Huber's with that threshold.
    """

    loss_id: ClassVar[int | None] = 0

    @property
    def smoothness(self) -> float:
        return 1.0

    def value(self, z: Array, y: Array) -> Array:
        return (z - y) ** 2 / 2

    def derivative(self, z: Array, y: Array) -> Array:
        return z - y

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        return (z - y) * (beta / (1 + beta))

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return prediction_bound + y_bound


@dataclass(frozen=True)
class Huber(_Regression):
    r"""Huber's loss: squared within `threshold`, linear beyond it.

    .. math:: l(z, y) = \begin{cases} r^2 / 2 & |r| \le \tau \\
                        \tau |r| - \tau^2 / 2 & |r| > \tau \end{cases},
              \quad r = z - y.

    Parameters
    ----------
    threshold : float > 0, default=0.1
        :math:`\tau`, in units of half the width of `bounds_y`.
    """

    threshold: float = 0.1

    loss_id: ClassVar[int | None] = 1

    def __post_init__(self) -> None:
        check_real("threshold", self.threshold, low=0, low_open=True)

    @property
    def smoothness(self) -> float:
        return 1.0

    @property
    def kernel_parameter(self) -> float:
        return float(self.threshold)

    def value(self, z: Array, y: Array) -> Array:
        r = np.abs(z - y)
        return np.where(r <= self.threshold, r**2 / 2, self.threshold * (r - self.threshold / 2))

    def derivative(self, z: Array, y: Array) -> Array:
        return np.clip(z - y, -self.threshold, self.threshold)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        return np.clip((z - y) * (beta / (1 + beta)), -self.threshold, self.threshold)

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return min(float(self.threshold), prediction_bound + y_bound)


@dataclass(frozen=True)
class Logistic(_Classification):
    r"""Logistic loss, :math:`l(z, y) = \log(1 + e^{-y z})`, y in {-1, +1}.

    Smoothness 1/4, derivative bound 1; `predict_proba` is the sigmoid of z.
    """

    loss_id: ClassVar[int | None] = 2

    @property
    def smoothness(self) -> float:
        return 0.25

    def value(self, z: Array, y: Array) -> Array:
        return np.logaddexp(0.0, -y * z)

    def derivative(self, z: Array, y: Array) -> Array:
        # numpy's exp is ten times faster than scipy's expit; its overflow gives the limit 0
        with np.errstate(over="ignore"):
            return -y / (1 + np.exp(y * z))

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return float(expit(prediction_bound))

    def best_constant(self, mean: float) -> float:
        # the log-odds, kept within those of 1:99 so that a noisy mean stays finite
        mean = min(0.98, max(-0.98, mean))
        return math.log1p(mean) - math.log1p(-mean)

    def probability(self, z: Array) -> Array:
        """P(y = +1) at raw prediction z."""
        return expit(z)


@dataclass(frozen=True)
class SmoothedHinge(_Classification):
    r"""Hinge loss, smoothed by a parabola of width h below the margin 1.

    .. math:: l(z, y) = \begin{cases} 0 & m \ge 1 \\
        (1 - m)^2 / (2 h) & 1 - h < m < 1 \\ 1 - m - h / 2 & m \le 1 - h \end{cases},
        \quad m = y z.

    Smoothness 1 / h, derivative bound 1. It is the Moreau envelope of the hinge loss.

    Parameters
    ----------
    width : float > 0, default=1.0
        h.
    """

    width: float = 1.0

    loss_id: ClassVar[int | None] = 3

    def __post_init__(self) -> None:
        check_real("width", self.width, low=0, low_open=True)

    @property
    def smoothness(self) -> float:
        return 1 / self.width

    @property
    def kernel_parameter(self) -> float:
        return float(self.width)

    def value(self, z: Array, y: Array) -> Array:
        gap = np.maximum(1 - y * z, 0.0)
        return np.where(gap < self.width, gap**2 / (2 * self.width), gap - self.width / 2)

    def derivative(self, z: Array, y: Array) -> Array:
        return -y * np.clip((1 - y * z) / self.width, 0.0, 1.0)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        return -y * np.clip((1 - y * z) / (self.width + 1 / beta), 0.0, 1.0)

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return min(1.0, (1 + prediction_bound * y_bound) / self.width)

    def best_constant(self, mean: float) -> float:
        if mean == 0:
            return 0.0
        majority = (1 + min(1.0, abs(mean))) / 2
        if self.width > 2 * majority:
            return mean  # both labels lie on the parabola
        return math.copysign(1 - self.width * (1 - majority) / majority, mean)


@dataclass(frozen=True)
class Absolute(_Kinked, _Regression):
    r"""Absolute error, :math:`l(z, y) = |z - y|`: regression towards the median.

    Not smooth; derivative bound 1. Its envelope is Huber's loss of threshold
    :math:`1 / \beta`, times :math:`\beta`.
    """

    loss_id: ClassVar[int | None] = 4

    def value(self, z: Array, y: Array) -> Array:
        return np.abs(z - y)

    def derivative(self, z: Array, y: Array) -> Array:
        return np.sign(z - y)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        return np.clip(beta * (z - y), -1.0, 1.0)


@dataclass(frozen=True)
class Quantile(_Kinked, _Regression):
    r"""Pinball loss, whose minimizer is the quantile of the given level.

    .. math:: l(z, y) = \max(\tau (y - z), (1 - \tau) (z - y)).

    Not smooth; derivative in :math:`[-\tau, 1 - \tau]`.

    Parameters
    ----------
    level : float in (0, 1), default=0.5
        :math:`\tau`; 0.5 is half the absolute error.
    """

    level: float = 0.5

    loss_id: ClassVar[int | None] = 5

    def __post_init__(self) -> None:
        check_real("level", self.level, low=0, high=1, low_open=True, high_open=True)

    @property
    def kernel_parameter(self) -> float:
        return float(self.level)

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(self.level * (y - z), (1 - self.level) * (z - y))

    def derivative(self, z: Array, y: Array) -> Array:
        return np.clip(np.sign(z - y), -self.level, 1 - self.level)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        return np.clip(beta * (z - y), -self.level, 1 - self.level)

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return max(float(self.level), 1 - float(self.level))


@dataclass(frozen=True)
class EpsilonInsensitive(_Kinked, _Regression):
    r"""Absolute error beyond a tolerance, :math:`l(z, y) = \max(|z - y| - w, 0)`.

    The loss of support vector regression. Not smooth; derivative bound 1.

    Parameters
    ----------
    width : float >= 0, default=0.1
        w, in units of half the width of `bounds_y`.
    """

    width: float = 0.1

    loss_id: ClassVar[int | None] = 6

    def __post_init__(self) -> None:
        check_real("width", self.width, low=0)

    @property
    def kernel_parameter(self) -> float:
        return float(self.width)

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(np.abs(z - y) - self.width, 0.0)

    def derivative(self, z: Array, y: Array) -> Array:
        r = z - y
        return np.where(np.abs(r) > self.width, np.sign(r), 0.0)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        r = z - y
        return np.copysign(np.clip(beta * (np.abs(r) - self.width), 0.0, 1.0), r)


@dataclass(frozen=True)
class Hinge(_Kinked, _Classification):
    r"""Hinge loss, :math:`l(z, y) = \max(1 - y z, 0)`, y in {-1, +1}.

    The loss of support vector machines. Not smooth; derivative bound 1. Its envelope is
    `SmoothedHinge` of width :math:`1 / \beta`.
    """

    loss_id: ClassVar[int | None] = 7

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(1 - y * z, 0.0)

    def derivative(self, z: Array, y: Array) -> Array:
        return np.where(y * z < 1, -y, 0.0)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        return -y * np.clip(beta * (1 - y * z), 0.0, 1.0)

    def best_constant(self, mean: float) -> float:
        return math.copysign(1.0, mean) if mean else 0.0


@dataclass(frozen=True)
class SquaredHinge(_Classification):
    r"""Squared hinge loss, :math:`l(z, y) = \max(1 - y z, 0)^2 / 2`, y in {-1, +1}.

    Smoothness 1. The derivative is unbounded in z, so `gradient_clip` turns the loss into
    the clip times `SmoothedHinge`, with the clip as its width.
    """

    loss_id: ClassVar[int | None] = 8

    @property
    def smoothness(self) -> float:
        return 1.0

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(1 - y * z, 0.0) ** 2 / 2

    def derivative(self, z: Array, y: Array) -> Array:
        return -y * np.maximum(1 - y * z, 0.0)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        return -y * np.maximum(1 - y * z, 0.0) * (beta / (1 + beta))

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return 1 + prediction_bound * y_bound

    def best_constant(self, mean: float) -> float:
        return mean


_LOSSES: dict[str, type[Loss]] = {
    "squared": Squared,
    "huber": Huber,
    "absolute": Absolute,
    "quantile": Quantile,
    "epsilon_insensitive": EpsilonInsensitive,
    "logistic": Logistic,
    "smoothed_hinge": SmoothedHinge,
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
}


def get_loss(loss: Any, task: str) -> Loss:
    """The loss of that name, or the object itself, checked against the task.

    Raises
    ------
    ValueError
        If the name is unknown or the loss belongs to the other task.
    """
    names = [name for name, kind in _LOSSES.items() if kind.task == task]
    if isinstance(loss, str) and loss in _LOSSES:
        loss = _LOSSES[loss]()
    if not isinstance(loss, Loss) or loss.task != task:
        raise ValueError(
            f"loss must be a Loss for {task} or one of {', '.join(map(repr, names))}, got {loss!r}"
        )
    return loss
