"""Where displays draw."""

from __future__ import annotations

from typing import Any

from .._checks import import_pyplot

__all__ = ["Display"]


class Display:
    """Base of the displays.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
        Set by `plot`, like the artists that it draws.
    """

    ax_: Any
    figure_: Any

    def _draw_on(self, ax: Any) -> Any:
        """The axes to draw on, new ones if None, and their figure as attributes."""
        pyplot = import_pyplot(f"{type(self).__name__}.plot")
        self.ax_ = pyplot.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_
