"""Events that `dp_accounting` lacks; imported when a guarantee exports them."""

from __future__ import annotations

import attr
from dp_accounting import dp_event

__all__ = ["AdaptiveSelectionsDpEvent"]


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AdaptiveSelectionsDpEvent(dp_event.DpEvent):
    """Selections of bounded range, each chosen after looking at the earlier outcomes.

    A mechanism has range eta if, for any two neighbours, the logarithm of the ratio of the
    probabilities stays in an interval of length eta over all outcomes: the exponential
    mechanism is one. The accountants of `dp_accounting` refuse this event.

    Attributes
    ----------
    log_range : float
        eta of each selection.
    count : int
        Number of selections.
    """

    log_range: float
    count: int
