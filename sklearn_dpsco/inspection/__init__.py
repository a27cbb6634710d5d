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


def use_log_axis(ax: Any) -> None:
    """Of x, with the numbers 1, 2 and 5 of each power of ten as they are."""
    ax.set_xscale("log")
    ax.xaxis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
