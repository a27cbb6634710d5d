"""What an attacker can tell, at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..privacy.guarantee import Guarantee
from .axes import axes_for

__all__ = ["TradeoffCurveDisplay"]

_NEAR_0 = np.geomspace(1e-6, 0.02, 60)  # where the curve is steep, or flat at the other end
_FALSE_ALARMS = np.unique([0.0, *_NEAR_0, *np.linspace(0.02, 0.98, 97), *(1 - _NEAR_0), 1.0])


@dataclass(kw_only=True, eq=False, repr=False)
class TradeoffCurveDisplay:
    """False alarms against missed detections of any attack on a guarantee.

    An attacker sees what is published, and is to tell whether a record had one value or another.
    Whatever they do and know of the other records, their rates of false alarms and of missed
    detections make a point on the curve or above it (`Guarantee.trade_off`). On the diagonal is
    who guesses without looking: the closer the curve is to it, the more private.

    Make one by `from_guarantee`. All shown is public.

    Parameters
    ----------
    false_alarms, missed_detections : ndarray of shape (n_points,)
        Rates in [0, 1].
    name : str or None, default=None
        For the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
    chance_level_ : matplotlib Line2D or None
    ax_, figure_
        Axes and figure.

    Examples
    --------
    >>> from sklearn_dpsco import DPLinearRegression, TradeoffCurveDisplay
    >>> model = DPLinearRegression(epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 1))
    >>> guarantee = model.plan(n_samples=5000, n_features=10).guarantee
    >>> display = TradeoffCurveDisplay.from_guarantee(guarantee)  # doctest: +SKIP
    """

    false_alarms: Any
    missed_detections: Any
    name: str | None = None

    @classmethod
    def from_guarantee(
        cls,
        guarantee: Guarantee,
        *,
        name: str | None = None,
        ax: Any = None,
        plot_chance_level: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Draw the curve of a guarantee.

        Parameters
        ----------
        guarantee : Guarantee
            Of a plan or of a fitted estimator.
        name : str or None, default=None
            For the legend. None: its epsilon and delta.
        ax, plot_chance_level, **kwargs
            As in `plot`.

        Returns
        -------
        TradeoffCurveDisplay

        Raises
        ------
        TypeError
            If `guarantee` is none, such as an estimator.
        """
        if not isinstance(guarantee, Guarantee):
            raise TypeError(
                f"guarantee must be a Guarantee, got {type(guarantee).__name__}: of a fitted "
                "estimator give guarantee_, of a plan guarantee"
            )
        missed = np.array([guarantee.trade_off(float(alpha)) for alpha in _FALSE_ALARMS])
        name = f"epsilon={guarantee.epsilon:g}, delta={guarantee.delta:g}" if name is None else name
        display = cls(false_alarms=_FALSE_ALARMS.copy(), missed_detections=missed, name=name)
        return display.plot(ax=ax, plot_chance_level=plot_chance_level, **kwargs)

    def plot(self, *, ax: Any = None, plot_chance_level: bool = True, **kwargs: Any) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Give those of another display to compare guarantees. None: new ones.
        plot_chance_level : bool, default=True
            Whether to draw the diagonal.
        **kwargs
            For the line, as `matplotlib.axes.Axes.plot` takes them.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_for(self, ax)
        style = {"label": self.name, **kwargs}
        (self.line_,) = ax.plot(self.false_alarms, self.missed_detections, **style)
        self.chance_level_ = None
        if plot_chance_level:
            chance = {"color": "gray", "linestyle": "--", "label": "no information"}
            (self.chance_level_,) = ax.plot([0, 1], [1, 0], **chance)
        ax.set(xlabel="False alarms", ylabel="Missed detections", aspect="equal")
        ax.legend(loc="upper right")
        return self
