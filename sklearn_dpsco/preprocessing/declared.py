"""What a transformer says of its outputs: public bounds, for whoever declares them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DeclaredOutput"]


@dataclass(frozen=True)
class DeclaredOutput:
    """Public bounds of the outputs of a transformer, whatever its inputs are.

    Attributes
    ----------
    low, high : ndarray of shape (n_features_out,)
    row_norm : float
        Largest l2 norm of a row.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    row_norm: float
