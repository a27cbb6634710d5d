"""Second moments as vectors that mechanisms release, and what is made of them: whitening.

Derivations: doc/privacy, sections 4.5 and 6.1b.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["isometric_vector", "spectral_noise", "vector_size", "whitening"]

Array = NDArray[np.float64]


def vector_size(n_columns: int) -> int:
    """Length of the vector of a symmetric matrix."""
    return n_columns * (n_columns + 1) // 2


def isometric_vector(matrix: Array) -> Array:
    """The diagonal of a symmetric matrix and sqrt(2) times what is above it.

    Distances of such vectors are the Frobenius distances of the matrices.
    """
    upper = np.triu_indices(len(matrix))
    return matrix[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2))


def spectral_noise(scale: float, n_columns: int) -> float:
    """About the spectral norm of the matrix of a vector of noise."""
    return scale * math.sqrt(2 * n_columns)


def whitening(vector: Array, n_columns: int, noise: float) -> tuple[Array, Array, float]:
    """(G + ridge I)^(-1/2), the eigenvalues of G, negative ones as 0, and the ridge.

    G has this `isometric_vector` and about this `spectral_noise`, which is the ridge.
    """
    upper = np.triu_indices(n_columns)
    matrix = np.zeros((n_columns, n_columns))
    vector = vector / np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    matrix[upper] = matrix[upper[::-1]] = vector
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 0.0)
    # where there is no noise, above the float errors of the eigenvalues
    ridge = max(noise, 1e-10 * float(values.max()), 1e-30)
    return np.asarray((vectors / np.sqrt(values + ridge)) @ vectors.T), values, ridge
