"""Second moments as vectors that mechanisms release, and what is made of them: whitening.

Derivations: doc/privacy, sections 4.5 and 6.1b.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Spectrum", "isometric_vector", "spectral_noise", "spectrum", "vector_size"]

Array = NDArray[np.float64]


class Spectrum(NamedTuple):
    """Eigenvalues, the negative ones as 0, and eigenvectors of a symmetric matrix."""

    values: Array
    vectors: Array

    def inverse_root(self, ridge: float) -> Array:
        """(G + ridge I)^(-1/2), G the matrix of these eigenvalues."""
        return np.asarray((self.vectors / np.sqrt(self.values + ridge)) @ self.vectors.T)


def vector_size(n_columns: int) -> int:
    """Length of the vector of a symmetric matrix."""
    return n_columns * (n_columns + 1) // 2


def isometric_vector(matrix: Array) -> Array:
    """The diagonal of a symmetric matrix and sqrt(2) times what is above it.

    Distances of such vectors are the Frobenius distances of the matrices.
    """
    upper = np.triu_indices(len(matrix))
    return matrix[upper] * _weights(upper)


def spectrum(vector: Array, n_columns: int) -> Spectrum:
    """Of the matrix with this `isometric_vector`."""
    upper = np.triu_indices(n_columns)
    matrix = np.zeros((n_columns, n_columns))
    matrix[upper] = matrix[upper[::-1]] = vector / _weights(upper)
    values, vectors = np.linalg.eigh(matrix)
    return Spectrum(np.maximum(values, 0.0), vectors)


def spectral_noise(scale: float, n_columns: int) -> float:
    """About the spectral norm of the matrix of a vector of noise."""
    return scale * math.sqrt(2 * n_columns)


def _weights(upper: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Array:
    return np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
