"""Pointwise losses l(z, y) of a raw prediction z and a target y, in scaled units.

Regression targets lie in [-1, 1]; classification targets are -1 or +1. A loss never sees
X, and its constants (`smoothness`, `derivative_bound`) are public facts. Each loss has
an integer `loss_id` by which the compiled kernels know it (`_kernels/pointwise.py`); a
loss of the user's own leaves it at `None` and runs through numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ._checks import check_real

__all__ = ["Huber", "Logistic", "Loss", "SmoothedHinge", "Squared", "get_loss"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """Base class: what a solver may ask of a loss.

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
        """`loss_id` if this very class states it: a subclass may differ from its parent."""
        return type(self).__dict__.get("loss_id")

    @property
    def kernel_parameter(self) -> float:
        """The parameter that the compiled derivative takes (0 if it takes none)."""
        return 0.0

    def value(self, z: Array, y: Array) -> Array:
        """l(z, y), elementwise."""
        raise NotImplementedError

    def derivative(self, z: Array, y: Array) -> Array:
        """dl/dz, elementwise."""
        raise NotImplementedError

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        """Bound on abs(dl/dz) over abs(z) <= prediction_bound and abs(y) <= y_bound."""
        raise NotImplementedError

    def best_constant(self, mean: float) -> float:
        """The constant z that suits targets with the given mean in [-1, 1]."""
        raise NotImplementedError


@dataclass(frozen=True)
class Squared(Loss):
    r"""Squared error, :math:`l(z, y) = (z - y)^2 / 2`.

    Smoothness 1. The derivative z - y is unbounded in z, so `gradient_clip` turns the
    loss into Huber's with that threshold.
    """

    task: ClassVar[str] = "regression"
    loss_id: ClassVar[int | None] = 0

    @property
    def smoothness(self) -> float:
        return 1.0

    def value(self, z: Array, y: Array) -> Array:
        return (z - y) ** 2 / 2

    def derivative(self, z: Array, y: Array) -> Array:
        return z - y

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return prediction_bound + y_bound

    def best_constant(self, mean: float) -> float:
        return mean


@dataclass(frozen=True)
class Huber(Loss):
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

    task: ClassVar[str] = "regression"
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

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return min(float(self.threshold), prediction_bound + y_bound)

    def best_constant(self, mean: float) -> float:
        return mean


@dataclass(frozen=True)
class Logistic(Loss):
    r"""Logistic loss, :math:`l(z, y) = \log(1 + e^{-y z})`, y in {-1, +1}.

    Smoothness 1/4, derivative bound 1; `predict_proba` is the sigmoid of z.
    """

    task: ClassVar[str] = "classification"
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
class SmoothedHinge(Loss):
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

    task: ClassVar[str] = "classification"
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

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return min(1.0, (1 + prediction_bound * y_bound) / self.width)

    def best_constant(self, mean: float) -> float:
        if mean == 0:
            return 0.0
        majority = (1 + min(1.0, abs(mean))) / 2
        if self.width > 2 * majority:
            return mean  # both labels lie on the parabola
        return math.copysign(1 - self.width * (1 - majority) / majority, mean)


_LOSSES: dict[str, type[Loss]] = {
    "squared": Squared,
    "huber": Huber,
    "logistic": Logistic,
    "smoothed_hinge": SmoothedHinge,
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
