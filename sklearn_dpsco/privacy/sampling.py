"""Epsilon of Gaussian noise on random batches.

Two laws have a tight accountant, one for each relation (doc/privacy, section 2.6): batches
of a fixed size drawn without replacement under replace-one, by Renyi DP ("rdp"); Poisson
batches, normalized by their expected size, under zero-out, by privacy loss distributions
("pld").
"""

from __future__ import annotations

from typing import Any

__all__ = ["event_epsilon"]

# Orders of Renyi DP. Any set is valid; few orders cost a little more noise.
_ORDERS = (*range(2, 17), 20, 25, 32, 40, 50, 64, 80, 320, 512, 1024, 2048)
_DISCRETIZATION = 1e-3  # of the privacy loss, in units of the claim
_MOST_KNOWN = 1024

_known: dict[tuple[str, str, float, float], float] = {}


def event_epsilon(event: Any, composition: str, epsilon: float, delta: float) -> float:
    """Epsilon of an event at `delta`; cached, as a calibration asks often.

    Parameters
    ----------
    event : DpEvent
    composition : {"rdp", "pld"}
    epsilon : float
        The claim, which sets the discretization for "pld".
    delta : float
    """
    key = (repr(event), composition, float(epsilon), float(delta))
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = _epsilon(event, composition, epsilon, delta)
    return _known[key]


def _epsilon(event: Any, composition: str, epsilon: float, delta: float) -> float:
    from . import events

    if composition == "rdp":
        return events.rdp_epsilon(event, delta, _ORDERS)
    return events.pld_epsilon(event, delta, epsilon * _DISCRETIZATION)
