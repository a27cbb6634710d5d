"""The linear layer against a naive reference, and the error of its sums."""

import itertools
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse
from support import cells_of, half_is_enough, problem, rest_is_slow, storage

from sklearn_dpsco._kernels import sparse_sums as kernels
from sklearn_dpsco._kernels.arguments import Compressed, Slope
from sklearn_dpsco.data.rows import (
    BLOCK_ROWS,
    Move,
    Rows,
    SolverData,
    Terms,
    chunk_rows,
    summation_error,
)
from sklearn_dpsco.losses import (
    Absolute,
    Huber,
    Logistic,
    Loss,
    SmoothedHinge,
    Squared,
    clipped_derivative,
    kernel_id,
)
from sklearn_dpsco.solvers.records import Records
from sklearn_dpsco.solvers.statistics import row_sum

STORAGES = ["dense", "fortran", "csr", "csc"]


@dataclass(frozen=True)
class PseudoHuber(Loss):
    """A loss of the user's own: it has no number, so that numpy runs it."""

    task: ClassVar[str] = "regression"

    def derivative(self, z, y):
        return (z - y) / np.sqrt(1 + (z - y) ** 2)


LOSSES = [Squared(), Huber(0.3), Logistic(), SmoothedHinge(0.5), PseudoHuber()]
SIZES = [(1, 1), (1, 3), (7, 1), (37, 5), (600, 3)]


def make_case(n, d, *, has_intercept, has_scale, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < 0.6)).astype(dtype)
    y = np.where(rng.uniform(size=n) < 0.5, 1.0, -1.0)
    scale = rng.uniform(0, 1, n) * (rng.uniform(size=n) < 0.8) if has_scale else None
    return X, y, scale, rng.standard_normal(d + has_intercept)


def reference_gradient(X, y, scale, coef, offset, loss, clip, center=0.0, weight=None):
    scale, weight = (np.ones(len(X)) if factor is None else factor for factor in (scale, weight))
    rows = np.column_stack((X.astype(np.float64) - center, np.ones(len(X))))[:, : coef.size]
    rows *= scale[:, None]
    r = np.clip(loss.derivative(offset + rows @ coef, y), -clip, clip)
    return (weight * r) @ rows / len(X)


@half_is_enough
@pytest.mark.parametrize("kind", STORAGES)
def test_gradient_sum_against_whole_matrices(kind, cells):
    # sparse data reach this layer in float64 only (see bounds.py), dense data in both
    dtypes = (np.float32, np.float64) if kind in ("dense", "fortran") else (np.float64,)
    sizes = SIZES if cells == "all" else [(1, 1), (37, 5), (600, 3)]
    grid = cells_of(cells, LOSSES, sizes, (True, False), (True, False), dtypes)
    for loss, (n, d), has_intercept, has_scale, dtype in grid:
        X, y, scale, coef = make_case(
            n, d, has_intercept=has_intercept, has_scale=has_scale, dtype=dtype
        )
        rows = Rows(storage(X, kind), has_intercept, scale)
        for clip, offset in ((0.4, 0.2), (100.0, -1.0)):
            case = f"{loss} {n} x {d} {has_intercept} {has_scale} {dtype} {clip}"
            expected = reference_gradient(X, y, scale, coef, offset, loss, clip)
            objective = y, Terms(offset, loss, clip)
            gradient = rows.gradient_sum(coef, *objective) / n
            assert gradient.dtype == np.float64, case
            np.testing.assert_allclose(gradient, expected, atol=1e-12, err_msg=case)

            # the same point reached by a move along a coordinate
            for coordinate in () if rows.is_sparse else {0, coef.size // 2, coef.size - 1}:
                move = Move(0.7, coordinate, -0.4)
                before = coef.copy()
                before[coordinate] -= move.amount
                product = rows.product(before / move.decay)
                moved = rows.gradient_sum_after_move(product, move, *objective) / n
                np.testing.assert_allclose(moved, expected, atol=1e-12, err_msg=case)
                np.testing.assert_allclose(product, rows.product(coef), atol=1e-13, err_msg=case)


@pytest.mark.parametrize("kind", STORAGES)
def test_gradient_sum_of_centered_rows(kind):
    for loss, has_scale in itertools.product((Logistic(), PseudoHuber()), (True, False)):
        X, y, scale, coef = make_case(37, 5, has_intercept=True, has_scale=has_scale)
        center, before = np.linspace(-1, 1, 5), coef.copy()
        rows = Rows(storage(X, kind), True, scale)
        gradient = replace(rows, center=center).gradient_sum(coef, y, Terms(0.2, loss, 0.4)) / 37
        expected = reference_gradient(X, y, scale, coef, 0.2, loss, 0.4, center)
        np.testing.assert_allclose(gradient, expected, atol=1e-12, err_msg=repr(loss))
        np.testing.assert_array_equal(coef, before)
        weights = np.ones(37) if scale is None else scale
        np.testing.assert_allclose(
            row_sum(SolverData(rows, y), None) / 37, weights @ X / 37, atol=1e-14
        )


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("has_scale", [True, False])
def test_weights_multiply_derivatives_and_no_prediction(kind, has_scale):
    for loss, has_intercept in itertools.product((Huber(0.3), PseudoHuber()), (True, False)):
        X, y, scale, coef = make_case(37, 5, has_intercept=has_intercept, has_scale=has_scale)
        weight = np.random.default_rng(1).uniform(0, 1, 37)
        rows = Rows(storage(X, kind), has_intercept, scale, weight)
        objective, case = (y, Terms(0.2, loss, 0.25)), f"{loss} {has_intercept}"
        expected = reference_gradient(X, y, scale, coef, 0.2, loss, 0.25, weight=weight)
        unweighted = reference_gradient(X, y, scale, coef, 0.2, loss, 0.25)
        assert np.abs(expected - unweighted).max() > 0.005
        facts = problem(37, 5, fit_intercept=has_intercept)
        whole = Records(SolverData(rows, y), objective[1], facts)
        stay = Move(1.0, 0, 0.0)
        found = {
            "gradient": rows.gradient_sum(coef, *objective) / 37,
            "list": whole.mean_over(np.arange(37), coef),
            "change": whole.mean_over(None, coef, 0 * coef, np.inf, 0.0),
        }
        if not rows.is_sparse:
            product = rows.product(coef)
            found["move"] = rows.gradient_sum_after_move(product, stay, *objective) / 37
        for name, gradient in found.items():
            np.testing.assert_allclose(gradient, expected, atol=1e-12, err_msg=f"{name} {case}")
        part = rows.part(np.arange(5, 20), is_drawn=True)
        drawn = part.gradient_sum(coef, y[5:20], objective[1]) / 15
        taken = None if scale is None else scale[5:20]
        expected = reference_gradient(
            X[5:20], y[5:20], taken, coef, 0.2, loss, 0.25, weight=weight[5:20]
        )
        np.testing.assert_allclose(drawn, expected, atol=1e-12, err_msg=case)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_weights_of_gradients_whose_predictions_have_no_scale(kind):
    for loss, n_outputs in itertools.product((Huber(0.3), PseudoHuber()), (1, 2)):
        X, y, scale, coef = make_case(37, 5, has_intercept=True, has_scale=True)
        weight, center = np.random.default_rng(1).uniform(0, 1, 37), np.linspace(-0.5, 0.5, 5)
        if n_outputs == 2:
            y, coef = np.column_stack((y, -y)), np.column_stack((coef, coef[::-1]))
        objective = y, Terms(0.2, loss.of_outputs(n_outputs), 0.25)
        rows = Rows(storage(X, kind), True, scale, weight, center=center)
        found = rows.clipped_gradient_sum(coef, *objective, 1.1)
        Z = np.column_stack((X - center, np.ones(37)))
        r = clipped_derivative(objective[1].loss, Z @ coef + 0.2, y, 0.25).reshape(37, -1)
        factor = scale * weight * np.minimum(1, 1.1 / np.linalg.norm(Z, axis=1))
        expected = (Z.T @ (r * factor[:, None])).reshape(coef.shape)
        np.testing.assert_allclose(found, expected, atol=1e-12, err_msg=f"{loss} {n_outputs}")


JOINT = [Logistic().of_outputs(3), SmoothedHinge(0.5).of_outputs(3), PseudoHuber().of_outputs(3)]


def joint_case(n, d, has_intercept, kind="dense"):
    """Rows with scales and weights, and three outputs with offsets."""
    X, _, scale, _ = make_case(n, d, has_intercept=has_intercept, has_scale=True)
    rng = np.random.default_rng(1)
    weight, coef = rng.uniform(0, 1, n), 2 * rng.standard_normal((d + has_intercept, 3))
    y = np.where(rng.integers(3, size=n)[:, None] == np.arange(3), 1.0, -1.0)
    return Rows(storage(X, kind), has_intercept, scale, weight), coef, y


def joint_reference(rows, coef, y, terms, bounds):
    """The gradient by whole matrices."""
    Z = rows.dense(slice(None))
    Z = np.column_stack((Z, np.ones(len(Z))))[:, : rows.dimension]
    z = rows.scale[:, None] * (Z @ coef) + terms.offset
    r = clipped_derivative(terms.loss, z, y, terms.clip)
    r *= np.minimum(1, bounds / np.maximum(np.linalg.norm(r, axis=1), 1e-99))[:, None]
    return Z.T @ (r * rows.factor[:, None]) / len(Z)


@rest_is_slow(
    ("loss", "kind"),
    itertools.product(JOINT, ("dense", "fortran", "csr")),
    ("Logistic dense", "SmoothedHinge csr", "PseudoHuber fortran", "PseudoHuber csr"),
    lambda case: f"{type(case[0].base).__name__} {case[1]}",
)
def test_gradients_of_several_outputs_and_of_bounded_derivatives(loss, kind):
    # fewer and more rows than a block, and more than a chunk
    for (n, d), has_intercept in itertools.product(((1, 1), (64, 3), (67, 5), (600, 520)), (0, 1)):
        rows, coef, y = joint_case(n, d, has_intercept, kind)
        objective = y, Terms(np.array([0.3, -0.2, 0.1]), loss, 0.7)
        for bounds in (None, np.random.default_rng(2).uniform(0.05, 1, n)):
            found = rows.gradient_sum(coef, *objective, bounds) / n
            expected = joint_reference(rows, coef, *objective, np.inf if bounds is None else bounds)
            np.testing.assert_allclose(found, expected, atol=1e-13, err_msg=f"{n} x {d}")
        for coordinate in range(3 * rows.dimension) if n < 100 and not rows.is_sparse else ():
            product = rows.product(coef)
            target = 0.5 * coef
            target.ravel()[coordinate] += 2.0
            move = Move(0.5, coordinate, 2.0)
            found = rows.gradient_sum_after_move(product, move, *objective) / n
            expected = joint_reference(rows, target, *objective, np.inf)
            np.testing.assert_allclose(found, expected, atol=1e-13)
            np.testing.assert_allclose(product, rows.product(target), atol=1e-13)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_bounds_hold_whatever_the_predictions_are(n_outputs):
    for size, loss in itertools.product((1e3, 1e300, np.inf, np.nan), (*LOSSES, Logistic())):
        y = np.where(np.arange(12).reshape(4, 3)[:, :n_outputs] % 3 == 0, 1.0, -1.0)
        y = y.ravel() if n_outputs == 1 else y
        objective = y, Terms(0.0, loss.of_outputs(n_outputs), 2.0)
        bounds, rows = np.array([1e-3, 0.1, 1.0, 3.0]), Rows(np.eye(4), False)
        coef = np.full((4, 3), size)[:, :n_outputs]
        coef = (coef * np.array([1.0, -1.0, 1.0])[:n_outputs]).reshape(4, *y.shape[1:])
        with np.errstate(all="ignore"):
            gradient = rows.gradient_sum(coef, *objective, bounds).reshape(4, -1)
        norms = np.linalg.norm(gradient, axis=1)
        assert np.all(norms <= np.minimum(bounds, 2.0) * (1 + 1e-14)), (size, loss)


def test_a_records_rounding_does_not_depend_on_its_place_in_a_batch():
    rng = np.random.default_rng(0)
    for loss in (Logistic(), Huber(3.0), Logistic().of_outputs(3)):
        k = loss.n_outputs
        x, y = rng.standard_normal(7), np.where(np.arange(k) == 0, 1.0, -1.0)
        coef = rng.standard_normal((7, k)).reshape(7, *((k,) if k > 1 else ()))
        seen = set()
        for n in (1, 4, 64, 128):
            for place in range(0, n, 3):
                X, scale = rng.standard_normal((n, 7)), np.zeros(n)
                X[place], scale[place] = x, 0.9
                targets = rng.choice([-1.0, 1.0], (n, k))
                targets[place] = y
                targets = targets[:, 0] if k == 1 else targets
                rows = Rows(X, False, scale).part(np.arange(n), is_drawn=True)
                gradient = rows.gradient_sum(coef, targets, Terms(0.1, loss, 9.0))
                seen.add(tuple(gradient.ravel()))  # of one term that is not 0
        assert len(seen) == 1, loss
        assert np.any(list(seen))


@pytest.mark.parametrize("kind", STORAGES)
def test_product_and_norms(kind):
    X, _, _, coef = make_case(30, 4, has_intercept=True, has_scale=False)
    with_ones = np.column_stack((X, np.ones(30)))
    rows = Rows(storage(X, kind), True)
    assert rows.dimension == 5
    np.testing.assert_allclose(rows.product(coef), with_ones @ coef, atol=1e-14)
    np.testing.assert_array_equal(rows.product(np.zeros(5)), np.zeros(30))
    np.testing.assert_allclose(rows.norms(), np.linalg.norm(with_ones, axis=1), rtol=1e-14)
    without = Rows(storage(X, kind), False)
    assert without.dimension == 4
    np.testing.assert_allclose(without.product(coef[:4]), X @ coef[:4], atol=1e-14)
    np.testing.assert_allclose(without.norms(), np.linalg.norm(X, axis=1), rtol=1e-14)


@pytest.mark.parametrize("case", ["plain", "intercept", "centered", "float32"])
def test_norm_bound_holds_in_exact_arithmetic(case):
    # sparse data reach this layer in float64 only
    for kind in STORAGES[: 2 if case == "float32" else 4]:
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (40, 6)).astype(np.float32 if case == "float32" else np.float64)
        center = rng.uniform(-1, 1, 6) if case == "centered" else np.zeros(6)
        X[0], X[1], X[2] = 0, 1, center
        bound, has_intercept = 1.3, case != "plain"
        rows = Rows(storage(X, kind), has_intercept)
        rows = replace(rows, center=center) if case == "centered" else rows
        rows = rows.with_norm_bound(bound)
        for x, factor in zip(X, rows.scale, strict=True):
            differences = (Fraction(float(v)) - Fraction(m) for v, m in zip(x, center, strict=True))
            squared = sum(v**2 for v in differences) + has_intercept
            assert Fraction(factor) ** 2 * squared <= Fraction(bound) ** 2, kind
            # and no row is shrunk more than it must be
            expected = min(1.0, bound / math.sqrt(squared)) if squared else 1.0
            assert factor == pytest.approx(expected, rel=1e-13), kind


def test_norm_bound_keeps_an_earlier_scale():
    rows = Rows(np.ones((3, 4)), False, np.array([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(rows.with_norm_bound(1.0).scale, [0, 0.25, 0.5], rtol=1e-12)


def exact_mean_gradient(X, r):
    """Column means of r_i x_i, correctly rounded sums of exactly rounded products."""
    return np.array([math.fsum(column * r) for column in X.astype(np.float64).T]) / len(r)


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_accurate_within_the_stated_error(kind, dtype):
    n, d = 100_000, 3
    rng = np.random.default_rng(0)
    # all of one sign, near the bound: the sum grows and so does its rounding
    X = rng.uniform(0.5, 1, (n, d)).astype(dtype)
    y, clip = -np.ones(n), 1.0
    rows = Rows(storage(X, kind), True)
    objective = y, Terms(0.0, Squared(), clip)
    r = np.ones(n)  # derivative 0 - (-1) at coef = 0
    expected = np.append(exact_mean_gradient(X, r), 1.0)
    allowed = summation_error(n, d) * clip
    assert allowed < 1e-10
    move = Move(1.0, 0, 0.0)
    gradients = [rows.gradient_sum(np.zeros(d + 1), *objective) / n]
    if not rows.is_sparse:
        gradients.append(rows.gradient_sum_after_move(np.zeros(n), move, *objective) / n)
    for gradient in gradients:
        assert np.abs(gradient - expected).max() <= allowed


def test_summation_error_is_a_bound_for_the_worst_order():
    # one by one within chunks, as the formula allows; values chosen to round up each time
    n, d = 200_000, 2
    chunk = chunk_rows(n, d)
    values = np.full(n, 1 / 3)
    partial = [np.add.accumulate(values[k : k + chunk])[-1] for k in range(0, n, chunk)]
    mean = np.add.accumulate(partial)[-1] / n
    error = abs(Fraction(float(mean)) - Fraction(1 / 3))
    assert error <= Fraction(summation_error(n, d)) * Fraction(1 / 3)


def test_chunks_are_a_public_fact_and_bounded():
    for n, d in itertools.product((1, 2, 255, 257, 10**6, 10**8), (1, 50, 10**6)):
        rows = chunk_rows(n, d)
        assert 1 <= rows <= n
        error = summation_error(n, d)
        terms = max(m + n / m for m in (rows, min(n, BLOCK_ROWS)))  # of a chunk or of a block
        assert terms <= error / 2**-53 <= terms + 20 + 128
    assert summation_error(10**6, 50) < 1e-11


def test_kernels_without_the_compiler():
    # the plain Python source of each kernel, with its index checks, on tiny input
    X, y, scale, coef = make_case(7, 3, has_intercept=True, has_scale=True)
    A = sparse.csr_array(X)
    expected = reference_gradient(X, y, scale, coef, 0.1, Huber(0.3), 0.2)
    python = {name: getattr(kernel, "py_func", kernel) for name, kernel in vars(kernels).items()}
    total = np.zeros(3)
    slope = Slope(kernel_id(Huber()), 0.3, 0.2, 0.1)
    arrays = (Compressed.of(A), (scale, scale, y))
    total_b = python["gradient_at"](*arrays, coef, slope, 2, total)
    np.testing.assert_allclose(np.append(total, total_b) / 7, expected, atol=1e-13)

    r, stored = np.arange(7.0), Compressed.of(A)
    both, total, products = np.column_stack((r, r**2)), np.zeros((3, 2)), np.zeros((7, 2))
    python["add_transposed_product"](stored, both, 2, total)
    np.testing.assert_allclose(total, X.T @ both, atol=1e-13)
    python["add_product"](stored, total, products)
    np.testing.assert_allclose(products, X @ total, atol=1e-12)
    np.testing.assert_allclose(python["row_norms"](Compressed.of(A), r[:3]), X**2 @ r[:3])


SLOPE_AT_1 = """
import numpy as np
from copied._kernels.arguments import Compressed, Slope
from copied._kernels.sparse_sums import gradient_at

total, one = np.zeros(1), np.ones(1)
X = Compressed(one, np.zeros(1, dtype=np.int32), np.array([0, 1], dtype=np.int32))
gradient_at(X, (one, one, 0 * one), one, Slope(0, 0.0, 0.25, 0.0), 1, total)
print(total[0])
"""


ANOTHER_CLIP = """

@njit(cache=True, inline="always")
def clipped_derivative(slope, prediction, y):
    return 2 * slope.clip
"""


@pytest.mark.slow
def test_compiled_kernels_follow_changes_in_the_files_that_they_call(tmp_path):
    package, source = tmp_path / "copied", Path(kernels.__file__).parent.parent
    shutil.copytree(source / "_kernels", package / "_kernels")
    for name in ("_checks.py", "_types.py", "losses.py"):
        shutil.copy(source / name, package / name)
    (package / "_progress.py").write_text("def remark(text):\n    pass\n")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run():
        return float(
            subprocess.run(
                [sys.executable, "-c", SLOPE_AT_1],
                cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
            ).stdout
        )  # fmt: skip

    assert run() == 0.25  # the derivative of the squared loss, clipped
    losses = package / "losses.py"
    losses.write_text(losses.read_text().replace("(z - y) * shrunk", "(y - z) * shrunk"))
    assert run() == -0.25
    with (package / "_kernels" / "derivatives.py").open("a") as file:
        file.write(ANOTHER_CLIP)
    assert run() == 0.5


def test_predictions_of_a_random_batch_do_not_depend_on_the_other_records():
    rng = np.random.default_rng(0)
    for n, d, kind in itertools.product((3, 40), (1, 7, 20, 133), ("dense", "csr")):
        X = rng.standard_normal((n, d))
        rows = Rows(storage(X, kind), True)
        coef = rng.standard_normal(d + 1)
        each = [rows.part(np.array([i]), is_drawn=True) for i in range(n)]
        alone = np.array([row.product(coef)[0] for row in each])
        np.testing.assert_allclose(alone, X @ coef[:d] + coef[d], rtol=1e-12, atol=1e-12)
        for size in range(1, n + 1, 1 if n < 10 else 7):
            which = rng.permutation(n)[:size]
            batch = rows.part(which, is_drawn=True)
            np.testing.assert_array_equal(batch.product(coef), alone[which])
            # an absolute loss with every record on its kink: derivatives turn with a last bit
            y = alone[which]
            if kind == "csr":  # its gradient has a product of its own, row by row
                continue
            gradient = batch.gradient_sum(coef, y, Terms(0.0, Absolute(), 1.0))
            np.testing.assert_array_equal(gradient, np.zeros(d + 1))
