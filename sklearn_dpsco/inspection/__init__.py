"""Displays in scikit-learn's way: what privacy costs, where the budget goes, what a model says."""

from __future__ import annotations

from typing import Any

from .._checks import import_pyplot


def axes_for(display: Any, ax: Any) -> Any:
    """The axes to draw on, new ones if None; they and their figure become `ax_` and `figure_`."""
    pyplot = import_pyplot(f"{type(display).__name__}.plot")
    display.ax_ = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    display.figure_ = display.ax_.figure
    return display.ax_
