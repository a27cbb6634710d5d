"""Inner products, and the factor on a row, for the kernels that form rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arguments import Compressed
from .jit import njit

__all__ = ["dense_products", "inner_product", "row_factor", "row_products", "stored_products"]


# The compiler may reorder the sums of these two functions: the error bound of the plan holds
# for any order. Nothing else in the kernels may be reordered.
@njit(cache=True, fastmath={"reassoc", "contract"})
def dense_products(row: Any, center: Any, w: Any) -> Any:
    """<x - center, w> and the squared norm of x - center."""
    product, square = 0.0, 0.0
    for j in range(center.size):
        value = row[j] - center[j]
        product += value * w[j]
        square += value * value
    return product, square


@njit(cache=True, fastmath={"reassoc", "contract"})
def inner_product(a: Any, b: Any) -> float:
    """<a, b>."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@njit(cache=True)
def row_products(X: Any, w: Any, out: Any) -> None:
    """<x_i, w> for every row, each by the same steps wherever the row lies."""
    for i in range(out.size):
        out[i] = inner_product(X[i], w)


@njit(cache=True, inline="always")
def stored_products(X: Compressed, i: int, center: Any, w: Any) -> Any:
    """<x, w>, <x, center> and the squared norm of x, the row i of a CSR matrix."""
    data, indices, indptr = X
    product, row_center, square = 0.0, 0.0, 0.0
    for k in range(indptr[i], indptr[i + 1]):
        x, j = data[k], np.uint64(indices[k])  # unsigned: see `sparse_sums`
        product += x * w[j]
        row_center += x * center[j]
        square += x * x
    return product, row_center, square


@njit(cache=True, inline="always")
def row_factor(weight: float, square: float, bound: float) -> float:
    """The factor s of `RowForm`, from the squared norm of [x - center, bias], its error added."""
    return weight * (bound / max(bound, math.sqrt(square)))
