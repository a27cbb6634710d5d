"""Pointwise losses l(z, y) of a raw prediction z and a target y, in scaled units.

Regression targets lie in [-1, 1]; classification targets are -1 or +1. A loss never sees X, and
its constants are public facts. The compiled kernels know each loss of this module by a number
(`kernel_id`). Every other class, those that inherit from one of these included, is a user's loss:
it runs through numpy, `clipped_derivative` bounds what it returns, and `check_loss` tries it out.

Most losses here are convex in z; `Welsch`, `LogAbsolute`, `MCPAbsolute` and `Sigmoid` are weakly
convex. A non-smooth loss gives a subgradient as its derivative, and can be smoothed (`Envelope`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logsumexp

from ._checks import LARGEST, SMALLEST, check_real, shown
from ._types import Array

_BISECTIONS = 60  # halve the interval to its last bits
_LARGEST_SLOPE = 1e100  # no interval is longer than that over beta
_LEAST_FREQUENCY = 2e-6  # of a class, over the number of classes
_WELSCH_WIDTH = 0.4  # where no spread is learned
FAR = 300.0  # predictions with whose exponential no norm overflows


@dataclass(frozen=True, slots=True)
class Loss:
    r"""Base class: the methods and constants that solvers use.

    A loss of your own is a frozen dataclass that inherits from this class. The guarantee of a fit
    with it rests on your word that `derivative` is a function of each record's own z and y and of
    nothing else, for all z and y, on arrays of any length; that it raises and warns for no value of
    them; and that no field of the object was taken from private data. If this is false, the privacy
    claim is void. `check_loss` tries out the first on a few public numbers, before anything is
    spent. The other facts are not trusted: whatever `derivative` returns is clipped, and a wrong
    constant costs accuracy alone (doc/extending.rst, "A loss").

    Attributes
    ----------
    task : {"regression", "classification"}; of `Tweedie` "rates"
    smoothness : float
        Bound on the second derivative in z, at least 0; infinite for a non-smooth loss.
    is_convex : bool
        Whether l is convex in z, so that phased SGD takes it. False unless declared.
    weak_convexity : float
        rho, at least 0, with l + rho z^2 / 2 convex in z; infinite if there is none. It is 0 for a
        convex loss, else the smoothness unless declared. Where it is finite, l has an envelope.
    n_outputs : int
        Number of predictions of a record that the loss takes together.

    Examples
    --------
    A loss of your own, :math:`\log \cosh(z - y)`:

    >>> from dataclasses import dataclass
    >>> from typing import ClassVar
    >>> import numpy as np
    >>> from sklearn_dpsco import DPMirrorRegressor
    >>> from sklearn_dpsco.losses import Loss
    >>> @dataclass(frozen=True)
    ... class LogCosh(Loss):
    ...     task: ClassVar[str] = "regression"
    ...     is_convex: ClassVar[bool] = True
    ...     smoothness: ClassVar[float] = 1.0
    ...     def value(self, z, y):
    ...         return np.logaddexp(z - y, y - z) - np.log(2)
    ...     def derivative(self, z, y):
    ...         return np.tanh(z - y)
    ...     def derivative_bound(self, prediction_bound, y_bound=1.0):
    ...         return 1.0
    ...     def best_constant(self, mean):
    ...         return mean
    >>> model = DPMirrorRegressor(loss=LogCosh(), bounds_X=(0, 1), bounds_y=(0, 1))
    >>> model.plan(n_samples=5000, n_features=3).guarantee.epsilon
    1.0
    """

    task: ClassVar[str]
    is_convex: ClassVar[bool] = False
    kernel_parameter: ClassVar[float] = 0.0
    n_outputs = 1

    def of_outputs(self, n_outputs: int) -> Loss:
        """The loss of so many predictions of a record together: the sum over them, if several."""
        return self if n_outputs == 1 else Joint(self, n_outputs)

    @property
    def smoothness(self) -> float:
        raise NotImplementedError

    @property
    def weak_convexity(self) -> float:
        return 0.0 if self.is_convex else self.smoothness

    def value(self, z: Array, y: Array) -> Array:
        """l(z, y), elementwise."""
        raise NotImplementedError

    def derivative(self, z: Array, y: Array) -> Array:
        """dl/dz, elementwise; at a kink some subgradient.

        Of some of the records, in some order: z, y and the result have shape (n,), and z and y must
        be left as they are. Solvers clip the result; NaN counts as 0.
        """
        raise NotImplementedError

    def excess(self, beta: float) -> float:
        """How far beta is above `weak_convexity`; `ValueError` unless it is, for an envelope."""
        excess = beta - self.weak_convexity
        if not excess > 0:  # NaN must not pass
            raise ValueError(
                f"{type(self).__name__} has an envelope only for beta > weak_convexity = "
                f"{self.weak_convexity:g} (infinite unless the class declares is_convex, or a "
                f"finite smoothness or weak_convexity), got beta={beta:g}"
            )
        return excess

    def envelope(self, z: Array, y: Array, beta: float) -> Array:
        r"""Moreau envelope, :math:`l_\beta(z, y) = \min_u l(u, y) + \frac{\beta}{2} (u - z)^2`.

        At most l, and at least :math:`l - c^2 / (2 \beta)`, c bounding the derivative of l. Of the
        absolute error, Huber's loss:

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_dpsco.losses import Absolute
        >>> Absolute().envelope(np.array([0.5, 3.0]), np.zeros(2), beta=1.0).tolist()
        [0.125, 2.5]
        """
        slope = self.envelope_derivative(z, y, beta)
        return self.value(z - slope / beta, y) + slope**2 / (2 * beta)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        r"""Derivative of the envelope in z, :math:`\beta (z - u)`, elementwise.

        It is a subgradient of l at the minimizer u, hence in the range of `derivative`. Without a
        closed form, it is found by bisection: with rho the `weak_convexity` and beta > rho (else
        `ValueError`), :math:`l'(u) + \beta (u - z)` rises at a rate of at least
        :math:`\beta - \rho`, so that its root is between z and
        :math:`z - l'(z, y) / (\beta - \rho)`.
        """
        rate = self.excess(beta)
        near = np.array(z, dtype=np.float64)
        far = near - np.clip(self.derivative(z, y), -_LARGEST_SLOPE, _LARGEST_SLOPE) / rate
        for _ in range(_BISECTIONS):
            middle = (near + far) / 2
            # of the same sign as at z where the middle is beyond the root
            pull = (self.derivative(middle, y) + beta * (middle - z)) * np.sign(z - far)
            near, far = np.where(pull > 0, middle, near), np.where(pull > 0, far, middle)
        return beta * (z - (near + far) / 2)

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        """Bound on abs(dl/dz) over abs(z) <= prediction_bound and abs(y) <= y_bound."""
        raise NotImplementedError

    def best_constant(self, mean: float) -> float:
        """The constant z that suits targets with the given mean in [-1, 1]."""
        raise NotImplementedError


def _parameter(default: Any, **limits: Any) -> Any:
    """The only field of a loss, with its limits."""
    return field(default=default, metadata={"low": SMALLEST, "high": LARGEST} | limits)


@dataclass(frozen=True, slots=True)
class _Known(Loss):
    """A loss of this package: convex, and with a kink, unless it says otherwise."""

    task: ClassVar[str] = "regression"
    is_convex: ClassVar[bool] = True
    _steepest: ClassVar[float | None] = None  # bounds the derivative; if convex, its ends do
    smoothness: ClassVar[float] = math.inf
    # of z, y, the parameter and beta: the derivative of the envelope, at an infinite beta that of
    # the loss itself. For arrays, and compiled for numbers (`_kernels/derivatives.py`). Where the
    # envelope has no closed form, beta is not looked at.
    formula: ClassVar[Any]

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.metadata:  # else it is a user's, of a subclass
                value = check_real(one.name, getattr(self, one.name), **one.metadata)
                object.__setattr__(self, one.name, value)

    @property
    def kernel_parameter(self) -> float:  # type: ignore[override]
        """The parameter that the formula takes (0 if it takes none)."""
        return next((getattr(self, one.name) for one in fields(self) if one.metadata), 0.0)

    def derivative(self, z: Array, y: Array) -> Array:
        with np.errstate(over="ignore"):  # of exp, which gives the limit 0
            return self.formula(z, y, self.kernel_parameter, math.inf)

    def envelope_derivative(self, z: Array, y: Array, beta: float) -> Array:
        self.excess(beta)
        return self.formula(z, y, self.kernel_parameter, beta)

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        if self._steepest is not None:
            return self._steepest
        # of a convex loss the derivative does not fall in z, so that it is largest at the ends; by
        # the formula that is known here, also where a user's subclass has a `derivative` of its own
        z, y = np.array([-prediction_bound, prediction_bound]), np.array([y_bound, -y_bound])
        return float(np.abs(self.formula(z, y, self.kernel_parameter, math.inf)).max())

    def best_constant(self, mean: float) -> float:
        return mean


# what the formulas call


def clip(x: Any, low: float, high: float) -> Any:
    """As `np.clip`, which would make an array of each number when it is compiled."""
    return np.clip(x, low, high)


def pull(r: Any, beta: float) -> Any:
    """A residual times beta, and its sign where beta is infinite."""
    return np.sign(r) if beta == math.inf else beta * r


def shrunk(beta: float) -> float:
    """By what the envelope of a parabola is less steep than it."""
    return 1.0 if beta == math.inf else beta / (1.0 + beta)


@dataclass(frozen=True, slots=True)
class Squared(_Known):
    r"""Squared error, :math:`l(z, y) = (z - y)^2 / 2`.

    Smoothness 1. The derivative z - y is unbounded in z, so `gradient_clip` turns the
    loss into Huber's with that threshold.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Squared
    >>> Squared().derivative(np.array([0.0, 0.5]), np.array([1.0, 0.0])).tolist()
    [-1.0, 0.5]
    """

    smoothness: ClassVar[float] = 1.0

    def value(self, z: Array, y: Array) -> Array:
        return (z - y) ** 2 / 2

    @staticmethod
    def formula(z: Any, y: Any, parameter: float, beta: float) -> Any:
        return (z - y) * shrunk(beta)


@dataclass(frozen=True, slots=True)
class Huber(_Known):
    r"""Huber's loss: squared within `threshold`, linear beyond it.

    .. math:: l(z, y) = \begin{cases} r^2 / 2 & |r| \le \tau \\
                        \tau |r| - \tau^2 / 2 & |r| > \tau \end{cases},
              \quad r = z - y.

    Parameters
    ----------
    threshold : float in [1e-50, 1e50], default=0.1
        :math:`\tau`, in units of half the width of `bounds_y`.

    Examples
    --------
    A threshold of 0.2 is 40 where ``bounds_y=(0, 400)``:

    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Huber
    >>> Huber(threshold=0.25).derivative(np.array([0.125, 1.0]), np.zeros(2)).tolist()
    [0.125, 0.25]
    """

    threshold: float = _parameter(0.1)

    smoothness: ClassVar[float] = 1.0

    def value(self, z: Array, y: Array) -> Array:
        r = np.abs(z - y)
        return np.where(r <= self.threshold, r**2 / 2, self.threshold * (r - self.threshold / 2))

    @staticmethod
    def formula(z: Any, y: Any, threshold: float, beta: float) -> Any:
        return clip((z - y) * shrunk(beta), -threshold, threshold)


@dataclass(frozen=True, slots=True)
class Welsch(_Known):
    r"""Welsch's loss: squared near 0, and constant far from it.

    .. math:: l(z, y) = \frac{w^2}{2} \big(1 - e^{-r^2 / w^2}\big), \quad r = z - y.

    Targets with gross errors pull less than others, and in the limit not at all. Smoothness 1,
    derivative at most :math:`w / \sqrt{2 e}`, which it has at :math:`r = w / \sqrt 2`. Not
    convex: weak convexity :math:`2 e^{-3/2}`, at :math:`r = w \sqrt{3 / 2}`.

    Parameters
    ----------
    width : "auto" or float in [1e-50, 1e50], default="auto"
        w, in units of half the width of `bounds_y`. "auto" is 0.4, or for a descent in learned
        units (`solvers.Descent`, the default of `DPMirrorRegressor` then) 1.5 times the spread of
        the targets that was learned; that descent starts at 32 times this width, so as to find the
        minimum that suits most of the records.

    Examples
    --------
    A gross error hardly pulls:

    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Welsch
    >>> small, gross = Welsch(width=0.4).derivative(np.array([0.2, 2.0]), np.zeros(2))
    >>> bool(gross < 1e-6 < small)
    True
    """

    width: float | str = _parameter("auto")

    smoothness: ClassVar[float] = 1.0
    is_convex: ClassVar[bool] = False
    weak_convexity: ClassVar[float] = 2 * math.exp(-1.5)
    envelope_derivative = Loss.envelope_derivative  # by bisection

    def __post_init__(self) -> None:
        if not (isinstance(self.width, str) and self.width == "auto"):
            _Known.__post_init__(self)

    @property
    def kernel_parameter(self) -> float:  # type: ignore[override]
        return _WELSCH_WIDTH if self.width == "auto" else float(self.width)

    def value(self, z: Array, y: Array) -> Array:
        w = self.kernel_parameter
        return -(w**2 / 2) * np.expm1(-(((z - y) / w) ** 2))

    @staticmethod
    def formula(z: Any, y: Any, width: float, beta: float) -> Any:
        r = z - y
        return r * np.exp(-((r / width) ** 2))

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        w = self.kernel_parameter
        r = min(prediction_bound + y_bound, w / math.sqrt(2))
        return r * math.exp(-((r / w) ** 2))


@dataclass(frozen=True, slots=True)
class Logistic(_Known):
    r"""Logistic loss, :math:`l(z, y) = \log(1 + e^{-y z})`, y in {-1, +1}.

    Smoothness 1/4, derivative bound 1; `predict_proba` is the sigmoid of z, held at
    `Plan.least_probability`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Logistic
    >>> Logistic().derivative(np.zeros(2), np.array([-1.0, 1.0])).tolist()
    [0.5, -0.5]
    >>> float(Logistic().probability(np.array(0.0)))
    0.5
    """

    smoothness: ClassVar[float] = 0.25
    task: ClassVar[str] = "classification"
    envelope_derivative = Loss.envelope_derivative  # by bisection

    def value(self, z: Array, y: Array) -> Array:
        return np.logaddexp(0.0, -y * z)

    @staticmethod
    def formula(z: Any, y: Any, parameter: float, beta: float) -> Any:
        # numpy's exp is ten times faster than scipy's expit
        return -y / (1.0 + np.exp(y * z))

    def best_constant(self, mean: float) -> float:
        # the log-odds, kept finite
        mean = min(1 - _LEAST_FREQUENCY, max(_LEAST_FREQUENCY - 1, mean))
        return math.log1p(mean) - math.log1p(-mean)

    def of_outputs(self, n_outputs: int) -> Loss:
        """Of several classes the multinomial loss."""
        return self if n_outputs == 1 else Multinomial(self, n_outputs)

    def probability(self, z: Array) -> Array:
        """P(y = +1) at raw prediction z."""
        return expit(z)


@dataclass(frozen=True, slots=True)
class SmoothedHinge(_Known):
    r"""Hinge loss, smoothed by a parabola of width h below the margin 1.

    .. math:: l(z, y) = \begin{cases} 0 & m \ge 1 \\
        (1 - m)^2 / (2 h) & 1 - h < m < 1 \\ 1 - m - h / 2 & m \le 1 - h \end{cases},
        \quad m = y z.

    Smoothness 1 / h, derivative bound 1. It is the Moreau envelope of the hinge loss.

    Parameters
    ----------
    width : float in [1e-50, 1e50], default=1.0
        h.

    Examples
    --------
    Margins beyond 1 do not pull:

    >>> import numpy as np
    >>> from sklearn_dpsco.losses import SmoothedHinge
    >>> SmoothedHinge(width=0.5).derivative(np.array([0.0, 0.75, 2.0]), np.ones(3)).tolist()
    [-1.0, -0.5, -0.0]
    """

    width: float = _parameter(1.0)

    task: ClassVar[str] = "classification"

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        return 1 / self.width

    def value(self, z: Array, y: Array) -> Array:
        gap = np.maximum(1 - y * z, 0.0)
        return np.where(gap < self.width, gap**2 / (2 * self.width), gap - self.width / 2)

    @staticmethod
    def formula(z: Any, y: Any, width: float, beta: float) -> Any:
        return -y * clip((1.0 - y * z) / (width + 1.0 / beta), 0.0, 1.0)

    def best_constant(self, mean: float) -> float:
        if mean == 0:
            return 0.0
        majority = (1 + min(1.0, abs(mean))) / 2
        if self.width > 2 * majority:
            return mean  # both labels lie on the parabola
        return math.copysign(1 - self.width * (1 - majority) / majority, mean)


@dataclass(frozen=True, slots=True)
class Absolute(_Known):
    r"""Absolute error, :math:`l(z, y) = |z - y|`: regression towards the median.

    Not smooth; derivative bound 1. Its envelope is Huber's loss of threshold
    :math:`1 / \beta`, times :math:`\beta`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Absolute
    >>> Absolute().derivative(np.array([0.1, 100.0]), np.zeros(2)).tolist()
    [1.0, 1.0]
    """

    def value(self, z: Array, y: Array) -> Array:
        return np.abs(z - y)

    @staticmethod
    def formula(z: Any, y: Any, parameter: float, beta: float) -> Any:
        return clip(pull(z - y, beta), -1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Quantile(_Known):
    r"""Pinball loss, whose minimizer is the quantile of the given level.

    .. math:: l(z, y) = \max(\tau (y - z), (1 - \tau) (z - y)).

    Not smooth; derivative in :math:`[-\tau, 1 - \tau]`.

    Parameters
    ----------
    level : float in (0, 1), default=0.5
        :math:`\tau`; 0.5 is half the absolute error.

    Examples
    --------
    Of the level 0.75, predictions below the target pull three times as much as those above:

    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Quantile
    >>> Quantile(0.75).derivative(np.array([-1.0, 1.0]), np.zeros(2)).tolist()
    [-0.75, 0.25]
    """

    level: float = _parameter(0.5, low=0, high=1, low_open=True, high_open=True)

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(self.level * (y - z), (1 - self.level) * (z - y))

    @staticmethod
    def formula(z: Any, y: Any, level: float, beta: float) -> Any:
        return clip(pull(z - y, beta), -level, 1.0 - level)


@dataclass(frozen=True, slots=True)
class EpsilonInsensitive(_Known):
    r"""Absolute error beyond a tolerance, :math:`l(z, y) = \max(|z - y| - w, 0)`.

    The loss of support vector regression. Not smooth; derivative bound 1.

    Parameters
    ----------
    width : float in [0, 1e50], default=0.1
        w, in units of half the width of `bounds_y`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import EpsilonInsensitive
    >>> EpsilonInsensitive(width=0.5).value(np.array([0.25, 1.0]), np.zeros(2)).tolist()
    [0.0, 0.5]
    """

    width: float = _parameter(0.1, low=0)

    _steepest: ClassVar[float | None] = 1.0  # also where the width covers all residuals

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(np.abs(z - y) - self.width, 0.0)

    @staticmethod
    def formula(z: Any, y: Any, width: float, beta: float) -> Any:
        r = z - y
        return np.copysign(clip(pull(np.abs(r) - width, beta), 0.0, 1.0), r)


@dataclass(frozen=True, slots=True)
class LogAbsolute(_Known):
    r"""Absolute error that grows like a logarithm, :math:`l(z, y) = w \log(1 + |z - y| / w)`.

    Targets with gross errors pull less than others: the derivative is
    :math:`\mathrm{sign}(r) \, w / (w + |r|)`. Not smooth; derivative bound 1. Not convex: weak
    convexity 1 / w.

    Parameters
    ----------
    width : float in [1e-50, 1e50], default=0.3
        w, in units of half the width of `bounds_y`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import LogAbsolute
    >>> LogAbsolute(width=0.5).derivative(np.array([0.5, 1.5]), np.zeros(2)).tolist()
    [0.5, 0.25]
    """

    width: float = _parameter(0.3)

    _steepest: ClassVar[float | None] = 1.0
    is_convex: ClassVar[bool] = False

    @property
    def weak_convexity(self) -> float:
        return 1 / self.width

    def value(self, z: Array, y: Array) -> Array:
        return self.width * np.log1p(np.abs(z - y) / self.width)

    @staticmethod
    def formula(z: Any, y: Any, width: float, beta: float) -> Any:
        r = z - y
        total = np.abs(r) + width
        if beta == math.inf:
            return np.sign(r) * (width / total)
        # the proximal point u of m = |r| is 0, or the larger root of beta (m - u) (w + u) = w
        root = np.sqrt(np.maximum(total**2 - 4.0 * width / beta, 0.0))
        falling = np.minimum(2.0 * width / (total + root), 1.0)
        return np.copysign(np.minimum(beta * np.abs(r), falling), r)


@dataclass(frozen=True, slots=True)
class MCPAbsolute(_Known):
    r"""Absolute error that is constant from a width on: the minimax concave penalty of r = z - y.

    .. math:: l(z, y) = \begin{cases} |r| - r^2 / (2 w) & |r| \le w \\
                        w / 2 & |r| > w \end{cases}.

    Targets further away than w do not pull at all. Not smooth; derivative bound 1. Not convex:
    weak convexity 1 / w.

    Parameters
    ----------
    width : float in [1e-50, 1e50], default=1.0
        w, in units of half the width of `bounds_y`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import MCPAbsolute
    >>> MCPAbsolute(width=1.0).derivative(np.array([0.25, 5.0]), np.zeros(2)).tolist()
    [0.75, 0.0]
    """

    width: float = _parameter(1.0)

    _steepest: ClassVar[float | None] = 1.0
    is_convex: ClassVar[bool] = False
    weak_convexity = LogAbsolute.weak_convexity

    def value(self, z: Array, y: Array) -> Array:
        r = np.minimum(np.abs(z - y), self.width)
        return r * (1 - r / (2 * self.width))

    @staticmethod
    def formula(z: Any, y: Any, width: float, beta: float) -> Any:
        r = z - y
        falling = 1.0 - np.abs(r) / width
        if beta == math.inf:
            return np.sign(r) * np.maximum(falling, 0.0)
        # u = 0, (beta m - 1) / (beta - 1 / w) or m: firm thresholding of m = |r|
        falling = falling * (beta / (beta - 1.0 / width))
        return np.copysign(clip(np.minimum(beta * np.abs(r), falling), 0.0, 1.0), r)


@dataclass(frozen=True, slots=True)
class Hinge(_Known):
    r"""Hinge loss, :math:`l(z, y) = \max(1 - y z, 0)`, y in {-1, +1}.

    The loss of support vector machines. Not smooth; derivative bound 1. Its envelope is
    `SmoothedHinge` of width :math:`1 / \beta`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Hinge
    >>> Hinge().value(np.array([-1.0, 0.5, 2.0]), np.ones(3)).tolist()
    [2.0, 0.5, 0.0]
    """

    task: ClassVar[str] = "classification"

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(1 - y * z, 0.0)

    @staticmethod
    def formula(z: Any, y: Any, parameter: float, beta: float) -> Any:
        return -y * clip(pull(1.0 - y * z, beta), 0.0, 1.0)

    def best_constant(self, mean: float) -> float:
        return math.copysign(1.0, mean) if mean else 0.0


@dataclass(frozen=True, slots=True)
class SquaredHinge(_Known):
    r"""Squared hinge loss, :math:`l(z, y) = \max(1 - y z, 0)^2 / 2`, y in {-1, +1}.

    Smoothness 1. The derivative is unbounded in z, so `gradient_clip` turns the loss into
    the clip times `SmoothedHinge`, with the clip as its width.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import SquaredHinge
    >>> SquaredHinge().value(np.array([-1.0, 0.5, 2.0]), np.ones(3)).tolist()
    [2.0, 0.125, 0.0]
    """

    smoothness: ClassVar[float] = 1.0
    task: ClassVar[str] = "classification"

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(1 - y * z, 0.0) ** 2 / 2

    @staticmethod
    def formula(z: Any, y: Any, parameter: float, beta: float) -> Any:
        return -y * np.maximum(1.0 - y * z, 0.0) * shrunk(beta)


@dataclass(frozen=True, slots=True)
class Sigmoid(_Known):
    r"""Sigmoid loss, a smooth count of errors: :math:`l(z, y) = 1 / (1 + e^{y z})`, y in {-1, +1}.

    Records with a wrong label pull less than others. Derivative at most 1/4, at z = 0; smoothness
    :math:`1 / (6 \sqrt 3)`. Not convex: its weak convexity is the same number.

    Examples
    --------
    A label that is clearly wrong pulls hardly more than one that is clearly right:

    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Sigmoid
    >>> pulls = -Sigmoid().derivative(np.array([-4.0, 0.0, 4.0]), np.ones(3))
    >>> pulls.round(3).tolist()
    [0.018, 0.25, 0.018]
    """

    task: ClassVar[str] = "classification"
    is_convex: ClassVar[bool] = False
    # of s = l: l'' = s (1 - s) (1 - 2 s), largest at s = (3 - sqrt 3) / 6, and odd about 1/2
    smoothness: ClassVar[float] = 1 / (6 * math.sqrt(3))
    _steepest: ClassVar[float | None] = 0.25
    envelope_derivative = Loss.envelope_derivative  # by bisection
    # (`best_constant` is the mean: the minimum is at infinity, where all derivatives vanish)

    def value(self, z: Array, y: Array) -> Array:
        return expit(-y * z)

    @staticmethod
    def formula(z: Any, y: Any, parameter: float, beta: float) -> Any:
        e = np.exp(-np.abs(y * z))
        return -y * e / (1.0 + e) ** 2


@dataclass(frozen=True, slots=True)
class Tweedie(_Known):
    r"""Deviance of Tweedie's laws with a logarithmic link, less what does not depend on z.

    The mean of y is :math:`\mu = e^z`, and its variance proportional to :math:`\mu^p`:

    .. math:: l(z, y) = \frac{\mu^{2 - p}}{2 - p} - y \frac{\mu^{1 - p}}{1 - p}, \quad
        l'(z, y) = (\mu - y) \mu^{1 - p},

    with the limits :math:`\mu - y z` for p = 1, Poisson, and :math:`z + y / \mu` for p = 2, Gamma.
    Targets are at least 0, of Gamma above it. Derivatives have no bound, so that solvers clip them.

    Parameters
    ----------
    power : float in [1, 2], default=1.0
        p.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.losses import Tweedie
    >>> z, y = np.log([1.0, 2.0]), np.array([3.0, 3.0])
    >>> Tweedie(power=1).derivative(z, y).round(3).tolist()
    [-2.0, -1.0]
    >>> Tweedie(power=2).derivative(z, y).round(3).tolist()
    [-2.0, -0.5]
    """

    power: float = _parameter(1.0, low=1, high=2)

    task: ClassVar[str] = "rates"
    _steepest: ClassVar[float | None] = math.inf
    envelope_derivative = Loss.envelope_derivative  # by bisection

    def value(self, z: Array, y: Array) -> Array:
        p, mean = self.power, np.exp(z)
        if p in (1, 2):
            return mean - y * z if p == 1 else z + y / mean
        return mean ** (2 - p) / (2 - p) - y * mean ** (1 - p) / (1 - p)

    @staticmethod
    def formula(z: Any, y: Any, power: float, beta: float) -> Any:
        z = clip(z, -FAR, FAR)
        return np.exp((2.0 - power) * z) - y * np.exp((1.0 - power) * z)

    def information(self, z: Array, y: Array | None = None) -> Array:
        r"""Second derivatives at z, :math:`(2 - p) \mu^{2 - p} + (p - 1) y \mu^{1 - p}`.

        Without y their mean, :math:`\mu^{2 - p}`, if that of y is :math:`\mu = e^z`.
        """
        z, p = np.clip(z, -FAR, FAR), self.power
        mean = np.exp((2 - p) * z)
        return mean if y is None else (2 - p) * mean + (p - 1) * y * np.exp((1 - p) * z)


# ------------------------------------------------------------------------ several outputs


def _of_base(name: str) -> Any:
    return property(lambda self: getattr(self.base, name))


@dataclass(frozen=True, slots=True)
class Joint(Loss):
    r"""One loss of K outputs of a record: the sum over them, :math:`\sum_k l(z_k, y_k)`.

    Predictions and targets have shape (n, K). A record's K derivatives are clipped together, to
    the l2 norm, so that the noise of a coefficient matrix is that of one record's gradient,
    whatever K is.

    Parameters
    ----------
    base : Loss
        l, of a single output.
    n_outputs : int >= 2
        K: targets of a regression, or classes, of which each is told from the rest.
    """

    base: Loss
    n_outputs: int

    task = _of_base("task")
    is_convex = _of_base("is_convex")
    smoothness = _of_base("smoothness")
    weak_convexity = _of_base("weak_convexity")
    best_constant = _of_base("best_constant")

    def value(self, z: Array, y: Array) -> Array:
        return self.base.value(z, y).sum(axis=1)

    def derivative(self, z: Array, y: Array) -> Array:
        derivative = np.asarray(self.base.derivative(z.ravel(), y.ravel()))
        return derivative.reshape(z.shape) if derivative.size == z.size else derivative

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return math.sqrt(self.n_outputs) * self.base.derivative_bound(prediction_bound, y_bound)

    def probability(self, z: Array) -> Array:
        """P(class k), shape (n, K): those of the outputs, normalized to sum to 1."""
        positive = self.base.probability(z)  # type: ignore[attr-defined]
        total = positive.sum(axis=1, keepdims=True)
        uniform = np.full_like(positive, 1 / self.n_outputs)
        return np.divide(positive, total, out=uniform, where=total > 0)


@dataclass(frozen=True, slots=True)
class Envelope(Loss):
    r"""The Moreau envelope of a convex or weakly convex loss, which is smooth.

    Parameters
    ----------
    base : Loss
    beta : float above the base's `weak_convexity`
        Bound on its second derivative, from above. The envelope is below the loss by at most
        :math:`c^2 / (2 \beta)`, c bounding the derivative.
    """

    base: Loss
    beta: float

    task = _of_base("task")
    is_convex = _of_base("is_convex")
    derivative_bound = _of_base("derivative_bound")
    best_constant = _of_base("best_constant")

    def __post_init__(self) -> None:
        self.base.excess(self.beta)

    @property
    def smoothness(self) -> float:
        return max(min(self.beta, self.base.smoothness), self.weak_convexity)

    @property
    def weak_convexity(self) -> float:
        # l'(u) falls at a rate of at most rho in u, and u moves by at most beta / (beta - rho) of z
        rho = self.base.weak_convexity
        return rho * self.beta / self.base.excess(self.beta)

    def value(self, z: Array, y: Array) -> Array:
        return self.base.envelope(z, y, self.beta)

    def derivative(self, z: Array, y: Array) -> Array:
        return self.base.envelope_derivative(z, y, self.beta)


@dataclass(frozen=True, slots=True)
class Multinomial(Joint):
    r"""Multinomial logistic loss, :math:`-z_y + \log \sum_k e^{z_k}`.

    Its derivative p - e_y, p the softmax of z, has norm at most sqrt(2) and the Jacobian
    diag(p) - p p^T of norm at most 1/2.
    """

    smoothness: ClassVar[float] = 0.5  # type: ignore[misc]

    def value(self, z: Array, y: Array) -> Array:
        return logsumexp(z, axis=1) - np.sum(z, axis=1, where=y > 0)

    def derivative(self, z: Array, y: Array) -> Array:
        derivative = self.probability(z)
        derivative -= y > 0
        return derivative

    def derivative_bound(self, prediction_bound: float, y_bound: float = 1.0) -> float:
        return math.sqrt(2)

    def probability(self, z: Array) -> Array:
        weights = np.exp(z - z.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return weights


_LOSSES: dict[str, type[_Known]] = {
    "squared": Squared,
    "huber": Huber,
    "absolute": Absolute,
    "quantile": Quantile,
    "epsilon_insensitive": EpsilonInsensitive,
    "logistic": Logistic,
    "smoothed_hinge": SmoothedHinge,
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "welsch": Welsch,
    "log_absolute": LogAbsolute,
    "mcp_absolute": MCPAbsolute,
    "sigmoid": Sigmoid,
}


_ROUNDOFF = 2.0**-52  # relative error of an operation, and as much again


# the numbers by which `_kernels/derivatives.py` knows them
_KINDS: tuple[type[_Known], ...] = (*_LOSSES.values(), Tweedie)
_KERNEL_IDS: dict[type[Loss], int] = {kind: number for number, kind in enumerate(_KINDS)}
FORMULAS = tuple(kind.formula for kind in _KINDS)
USUAL: tuple[type[_Known], ...] = Squared, Logistic, Tweedie  # of the default models


def kernel_id(loss: Loss) -> int | None:
    """Number by which the compiled kernels know the loss; None for a user's, also of a subclass."""
    return _KERNEL_IDS.get(type(loss))


def base_loss(loss: Loss) -> Loss:
    """The loss of a single output."""
    return loss.base if isinstance(loss, Joint) else loss


def smoothed(loss: Loss, beta: float) -> Loss:
    """The loss, or its envelope of parameter beta if it is not smooth.

    Of a weakly convex loss beta is at least twice that constant: then it is the smoothness.
    """
    if math.isfinite(loss.smoothness):
        return loss
    beta = max(beta, 2 * loss.weak_convexity)
    return Envelope(base_loss(loss), beta).of_outputs(loss.n_outputs)


def largest_constant(loss: Loss) -> float:
    """Bound on the constants that the loss may ask for, in absolute value."""
    if isinstance(loss, Multinomial):
        # one class has all records or none; the mean of the logarithms is rounded
        share = _LEAST_FREQUENCY / loss.n_outputs
        return -(1 - 1 / loss.n_outputs) * math.log(share) * (1 + 1e-12)
    loss = base_loss(loss)
    return max(abs(loss.best_constant(-1.0)), abs(loss.best_constant(1.0)))


def best_constants(loss: Loss, means: Array) -> Array:
    """The constants z, shape (n_outputs,), that suit targets with the given means in [-1, 1]."""
    if not isinstance(loss, Multinomial):
        return np.array(list(map(loss.best_constant, means.tolist())))
    # centred logarithms of the frequencies, which are kept from 0 as those of two classes
    frequencies = np.maximum((1 + means) / 2, _LEAST_FREQUENCY / loss.n_outputs)
    logs = np.log(frequencies)
    return logs - logs.mean()


def clipped_derivative(loss: Loss, z: Array, y: Array, clip: float) -> Array:
    """dl/dz of every record, of l2 norm at most `clip`; NaN counts as 0, infinities as the ends.

    The one place where solvers call a loss on data; z and y have the shape (n,), or (n, K) for a
    loss of K outputs. Bounds hold whatever the loss returns.
    """
    with np.errstate(all="ignore"):  # a warning would tell of some record
        # in single precision, rounding would carry the clip and sums beyond their bounds
        derivative = np.asarray(loss.derivative(z, y), dtype=np.float64)
    if derivative.shape != z.shape:
        raise ValueError(f"{type(loss).__name__}.derivative must give one number for each record")
    return clipped_to(derivative, clip)


def clipped_to(values: Array, clip: float) -> Array:
    """Numbers clipped to [-clip, clip], rows of a matrix to that l2 norm; NaN counts as 0."""
    values = np.clip(values, -clip, clip)
    values[np.isnan(values)] = 0.0
    return values if values.ndim == 1 else clipped_rows(values, np.full(len(values), clip), 2)


def clipped_rows(values: Array, clips: Array, order: float) -> Array:
    """Rows of a matrix shrunk to norms of order 1 or 2 that are at most `clips`, or numbers."""
    if values.ndim == 1:
        return np.clip(values, -clips, clips)
    # relative to the clip, so that no square overflows, and rounded up
    size = np.abs(values) / clips[:, None]
    norms = size.sum(axis=1) if order == 1 else np.sqrt(np.einsum("ij,ij->i", size, size))
    norms *= 1 + (size.shape[1] + 8) * _ROUNDOFF
    return values / np.maximum(norms, 1.0)[:, None]


def bounded_clip(loss: Loss, clip: float, reach: float) -> float:
    """The smaller of the clip and the loss's own bound on its derivative.

    At predictions of a model that stays within a reach, about any constant of the loss.
    """
    bound = loss.derivative_bound(reach + largest_constant(loss))
    if not bound > 0:  # NaN must not pass
        raise ValueError(
            f"loss must have a positive {type(loss).__name__}.derivative_bound, got {bound!r}"
        )
    return min(clip, float(bound))


# numbers that are public, for trying out a user's loss: small, usual and far predictions
_PROBE_Z = np.array(
    [0, -5.3, 2.2, -0.7, 40, -0.2, 1.3, 0.1, -2.6, 6.1, 0.4, -1.1, 3.7, -40, 0.9, 0.5]
)
_PROBE_Y = np.array([2, -10, 10, 7, -4, -9, 3, 1, -6, 5, -1, -8, 9, -3, -5, 6]) / 10
_PROBE_TARGETS = {"regression": _PROBE_Y, "classification": np.sign(_PROBE_Y)}
# Vector code may treat the end of an array otherwise than its middle and differ in the last
# bits. Where a record lies is public, so such bits tell nothing of other records.
_LAST_BITS = 2.0**-48


def check_loss(loss: Loss) -> None:
    """Try out a user's loss on fixed public numbers.

    `ValueError` unless the derivative of a record is the same alone, among others, in any order,
    and when asked for again, up to the last bits, and the constants are in their ranges.
    """
    loss = base_loss(loss)
    if kernel_id(loss.base if isinstance(loss, Envelope) else loss) is not None:
        return
    name = type(loss).__name__
    targets = _PROBE_TARGETS.get(getattr(loss, "task", ""))
    if targets is None:
        raise ValueError(f"loss must be a Loss with a task of {list(_PROBE_TARGETS)}, got {loss!r}")
    every = np.arange(_PROBE_Z.size)
    shuffled = every * 5 % every.size
    parts = (shuffled, shuffled[:7], *every[:8, None], every)
    expected = _probed(loss, _PROBE_Z, targets)
    wanted = expected[np.concatenate(parts)]
    found = np.concatenate([_probed(loss, _PROBE_Z[which], targets[which]) for which in parts])
    with np.errstate(invalid="ignore"):  # infinities must be the same
        near = np.abs(found - wanted) < _LAST_BITS * np.maximum(1.0, np.abs(wanted))
    if not np.all(near | (found == wanted)):
        raise ValueError(
            f"loss must treat each record by itself: on fixed numbers, what {name}.derivative gave "
            "for a record changed with the other records or from call to call. Compute it "
            "elementwise, without means, maxima, sorting, random numbers or state"
        )
    for constant in ("smoothness", "weak_convexity"):
        value = getattr(loss, constant)
        if not (0 <= value <= _LARGEST_SLOPE or value == math.inf):  # NaN must not pass
            raise ValueError(
                f"loss: {name}.{constant} must be in [0, {_LARGEST_SLOPE:g}] or infinite, "
                f"got {value!r}"
            )
    for mean in (-1.0, -0.3, 0.0, 0.7, 1.0):
        if not math.isfinite(loss.best_constant(mean)):
            raise ValueError(
                f"loss: {name}.best_constant must be finite on [-1, 1], not so at {mean}"
            )


def _probed(loss: Loss, z: Array, y: Array) -> Array:
    """The loss's derivative at public numbers; errors say what it must be able to do."""
    own_z, own_y = z.copy(), y.copy()
    try:
        derivative = clipped_derivative(loss, own_z, own_y, math.inf)
    except Exception as error:
        raise ValueError(
            f"loss: {type(loss).__name__}.derivative(z, y) must give one number for each record, "
            f"for arrays of any length; for fixed ones of length {z.size} it failed: {error!r}"
        ) from error
    if np.any(own_z != z) or np.any(own_y != y):
        raise ValueError(f"loss: {type(loss).__name__}.derivative must not change its arguments")
    return derivative


def check_ratios(loss: Loss) -> str:
    """What e to a coefficient is: a ratio of odds, or with a log link of means or rates."""
    if isinstance(loss, Logistic):
        return "odds ratios"
    if loss.task != "rates":
        raise ValueError(
            "exponentiate=True is for the logistic loss, of several classes in a summary with a "
            "base, and for losses with a log link: of other models e to a coefficient is no ratio"
        )
    return "rate ratios" if loss == Tweedie(power=1) else "ratios of means"


def get_loss(loss: Any, task: str) -> Loss:
    """The loss of that name, or the object itself, checked against the task."""
    if isinstance(loss, str) and loss in _LOSSES:
        loss = _LOSSES[loss]()
    if not isinstance(loss, Loss) or loss.task != task:
        names = [name for name, kind in _LOSSES.items() if kind.task == task]
        raise ValueError(
            f"loss must be a Loss for {task} or one of {', '.join(map(repr, names))}, "
            f"got {shown(loss)}"
        )
    check_loss(loss)
    return loss
