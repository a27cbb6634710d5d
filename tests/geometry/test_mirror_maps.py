"""Steps of mirror maps: certificates of optimality, a generic solver, and extreme inputs."""

import itertools
import math

import numpy as np
import pytest
from support import assert_refuses, rest_is_slow

from sklearn_dpsco.geometry import (
    Entropy,
    L1Ball,
    L2Ball,
    LInfBall,
    LpBall,
    PowerMap,
    Simplex,
    lp_norm,
)
from sklearn_dpsco.losses import Absolute
from sklearn_dpsco.privacy.budget import PrivacyBudget
from sklearn_dpsco.solvers.phased_sgd import PhasedSGD

SETS = [
    L1Ball(1.0),
    L1Ball(2.5),
    Simplex(1.0),
    Simplex(3.0),
    LpBall(1.0, 1.5),
    LpBall(2.0, 1.1),
    LpBall(1.5, 3.0),
    L2Ball(0.7),
    LInfBall(1.0),
]
MAPS = [g.mirror_map(kind) for g in SETS for kind in g.mirror_maps]
POWER_MAPS = [m for m in MAPS if m.has_center]
ENTROPIES = [m for m in MAPS if not m.has_center]
DIMENSIONS = [1, 2, 5]
every_dimension = pytest.mark.parametrize("d", DIMENSIONS)


def norm_of(mirror_map, x):
    """The one in which the map is strongly convex."""
    return lp_norm(x, mirror_map.exponent(x.size))


def point_of(geometry, d, rng, size=1.0):
    return np.array(geometry.project(size * geometry.radius * rng.standard_normal(d)))


def is_feasible(geometry, w):
    if isinstance(geometry, Simplex):
        return w.min() >= 0 and abs(w.sum() - geometry.radius) <= 1e-12 * geometry.radius
    return geometry.norm(w) <= geometry.radius * (1 + 1e-12)


def normals(geometry, w):
    """Generator of the normal cone, and where it holds with equality (else it dominates)."""
    d, edge = w.size, geometry.norm(w) >= geometry.radius * (1 - 1e-9)
    if isinstance(geometry, Simplex):
        return np.ones(d), w > 0
    if not edge:
        return None, np.ones(d, dtype=bool)
    if geometry.p == 1:
        return np.sign(w), w != 0
    if geometry.p == math.inf:
        return None, np.abs(w) < geometry.radius
    return np.sign(w) * np.abs(w / geometry.radius) ** (geometry.p - 1), np.ones(d, dtype=bool)


def assert_is_the_argmin(mirror_map, got, coef, gradient, step, center=None, within=None):
    """The slope at `got` lies within 1e-10 of minus the normal cone of the two sets.

    The objective is strongly convex, so `got` is then as near to the argmin. Powers of
    p - 1 < 1 are steep at 0: what a change of `got` by 1e-11 does to the slope is allowed.
    """
    geometry = mirror_map.geometry
    case = (mirror_map, coef, gradient, step, center, within)
    assert is_feasible(geometry, got), case
    grad_now, grad_then = (mirror_map.gradient(w, center) for w in (got, coef))
    slope = step * gradient + grad_now - grad_then
    scale = 1 + np.abs(step * gradient).max() + np.abs(grad_now).max()
    normal, equal = normals(geometry, got)
    columns = [] if normal is None else [normal]
    if within is not None:
        distance = norm_of(mirror_map, got - center)
        assert distance <= within * (1 + 1e-9), case
        if distance >= within * (1 - 1e-9):
            columns.append(grad_now / max(1.0, np.abs(grad_now).max()))
    tolerance = np.full(coef.size, 1e-10 * scale)
    for move in (-1e-11, 1e-11):
        tolerance += np.abs(mirror_map.gradient(got + move, center) - grad_now)
        if normal is not None and 1 < geometry.p < 2:
            moved = np.abs((got + move) / geometry.radius) ** (geometry.p - 1)
            tolerance += scale * np.abs(np.sign(got + move) * moved - normal)
    multipliers = np.zeros(len(columns))
    if columns:
        matrix = np.stack(columns, axis=1)
        weighted = (matrix / tolerance[:, None])[equal], -(slope / tolerance)[equal]
        multipliers = np.linalg.lstsq(*weighted, rcond=None)[0]
        slope = slope + matrix @ multipliers
    assert np.all(np.abs(slope) <= tolerance, where=equal), case
    free = 1 if isinstance(geometry, Simplex) else 0  # an equality has either sign
    assert multipliers[free:].min(initial=0) >= -1e-10 * scale, case
    rest = ~equal
    if not rest.any():
        return
    if isinstance(geometry, Simplex):  # w_j = 0 may only be pushed further down
        assert slope[rest].min() >= -1e-10 * scale, case
    elif geometry.p == 1:
        assert np.abs(slope[rest]).max() <= (multipliers[0] + 1e-10) * scale, case
    elif geometry.p == math.inf:
        assert (slope * np.sign(got))[rest].max() <= 1e-10 * scale, case


@every_dimension
def test_power_step_is_the_argmin(d):
    for mirror_map in POWER_MAPS:
        rng = np.random.default_rng(d)
        for size, step in itertools.product((0.3, 3.0), (1e-3, 0.5, 30.0)):
            coef = point_of(mirror_map.geometry, d, rng, size)
            gradient = rng.standard_normal(d)
            got = mirror_map.step(coef, gradient, step)
            assert_is_the_argmin(mirror_map, got, coef, gradient, step)


@every_dimension
def test_localized_step_is_the_argmin(d):
    grid = list(itertools.product((0.3, 3.0), (1e-2, 1.0, 50.0), (0.05, 0.5, 1.5)))
    for mirror_map in POWER_MAPS:
        rng = np.random.default_rng(10 + d)
        for size, step, within in grid:
            center = point_of(mirror_map.geometry, d, rng, size)
            other = point_of(mirror_map.geometry, d, rng, 3.0)
            away = norm_of(mirror_map, other - center)
            coef = center + (other - center) * min(1.0, 0.9 * within / max(away, 1e-9))
            gradient = rng.standard_normal(d)
            got = mirror_map.step(coef, gradient, step, center, within)
            assert_is_the_argmin(mirror_map, got, coef, gradient, step, center, within)


def test_both_constraints_bind_in_these_tests():
    # else the tests above would prove less than they seem to
    rng = np.random.default_rng(0)
    for geometry in (L1Ball(1.0), LpBall(1.0, 1.5), L2Ball(1.0)):
        mirror_map = geometry.mirror_map("power")
        center = geometry.project(9 * rng.standard_normal(4))
        gradient = -2 * center + rng.standard_normal(4)
        got = mirror_map.step(center, gradient, 50.0, center, 0.4)
        assert geometry.norm(got) == pytest.approx(1.0)
        assert norm_of(mirror_map, got - center) == pytest.approx(0.4)


def test_the_gradient_is_that_of_half_the_squared_norm():
    # which the certificates rest on
    for mirror_map in POWER_MAPS:
        w, center = np.random.default_rng(5).standard_normal((2, 4))
        p = mirror_map.exponent(4)
        sizes = [
            norm_of(mirror_map, w + side - center)
            for side in 1e-6 * np.vstack((np.eye(4), -np.eye(4)))
        ]
        ahead, behind = np.reshape(sizes, (2, 4)) ** 2 / (2 * (p - 1))
        found = mirror_map.gradient(w, center)
        np.testing.assert_allclose(
            found, (ahead - behind) / 2e-6, rtol=1e-6, err_msg=repr(mirror_map)
        )


def test_entropy_step_against_the_weights_themselves():
    # exponentiated gradient on the simplex, of 2 d weights for the ball, from the centre
    for mirror_map, d in itertools.product(ENTROPIES, (1, 2, 5, 40)):
        geometry, rng = mirror_map.geometry, np.random.default_rng(d)
        signs = np.array([1.0]) if isinstance(geometry, Simplex) else np.array([1.0, -1.0])
        weights = np.full((signs.size, d), 1 / (signs.size * d))
        coef = geometry.center(d)
        for _ in range(20):
            gradient = rng.standard_normal(d)
            weights *= np.exp(-0.3 / geometry.radius * signs[:, None] * gradient)
            weights /= weights.sum()
            coef = mirror_map.step(coef, gradient, 0.3)
            expected = geometry.radius * signs @ weights
            np.testing.assert_allclose(coef, expected, atol=1e-10, err_msg=repr((mirror_map, d)))


def test_entropy_gradient_is_the_slope_of_the_step():
    # at the argmin, step * gradient + grad(new) - grad(old) is normal to the set
    for mirror_map, d in itertools.product(ENTROPIES, DIMENSIONS):
        rng = np.random.default_rng(d)
        coef = 0.9 * point_of(mirror_map.geometry, d, rng) + 0.1 * mirror_map.geometry.center(d)
        gradient = rng.standard_normal(d)
        new = mirror_map.step(coef, gradient, 0.7)
        slope = 0.7 * gradient + mirror_map.gradient(new) - mirror_map.gradient(coef)
        if isinstance(mirror_map.geometry, Simplex):
            slope -= slope.mean()
        np.testing.assert_allclose(slope, 0, atol=1e-10, err_msg=repr((mirror_map, d)))


NODES, WEIGHTS = np.polynomial.legendre.leggauss(100)


def divergence(mirror_map, v, w):
    """D(v, w) as the integral of the change of slope along the line from w to v."""
    start = mirror_map.gradient(w)
    slopes = [(mirror_map.gradient(w + t * (v - w)) - start) @ (v - w) for t in (NODES + 1) / 2]
    return float(WEIGHTS @ slopes) / 2


@rest_is_slow("d", DIMENSIONS, ("5",))
def test_strong_convexity_and_diameter(d):
    for mirror_map in MAPS:
        geometry, rng = mirror_map.geometry, np.random.default_rng(d)
        center, bound = geometry.center(d), mirror_map.bregman_diameter(d)
        for _ in range(2):
            v, w = (0.98 * point_of(geometry, d, rng, 3.0) + 0.02 * center for _ in range(2))
            least = 0.5 * norm_of(mirror_map, v - w) ** 2
            assert divergence(mirror_map, v, w) >= least * (1 - 1e-3) - 1e-12, mirror_map
            assert divergence(mirror_map, v, center) <= bound * (1 + 1e-3) + 1e-12, mirror_map
        worst = geometry.extreme_point(np.eye(d)[0])
        p = mirror_map.exponent(d)
        if p < geometry.p:  # all coordinates alike are farthest in a norm of smaller exponent
            worst = geometry.radius * d ** (-1 / geometry.p) * np.ones(d)
        near = 0.999999 * worst + 0.000001 * center
        reached = divergence(mirror_map, near, center)
        assert reached == pytest.approx(bound, rel=2e-3, abs=1e-9), mirror_map


def test_norms_are_dual():
    for mirror_map, d in itertools.product(MAPS, DIMENSIONS):
        p, q = mirror_map.exponent(d), mirror_map.dual_exponent(d)
        assert 1 / p + 1 / q == pytest.approx(1), (mirror_map, d)
        rng = np.random.default_rng(0)
        x, g = rng.standard_normal((2, d))
        largest = norm_of(mirror_map, x) * mirror_map.dual_norm(g) * (1 + 1e-12)
        assert x @ g <= largest, (mirror_map, d)


def test_exponent_of_the_l1_ball():
    mirror_map = L1Ball(1.0).mirror_map("power")
    assert [mirror_map.exponent(d) for d in (1, 2)] == [2.0, 2.0]
    assert mirror_map.exponent(1000) == pytest.approx(1 + 1 / math.log(1000))
    # |x|_1 <= d^(1 - 1/p) |x|_p, which is at most e and not 2
    assert 2 < 1000 ** (1 - 1 / mirror_map.exponent(1000)) < math.e


@rest_is_slow("d", (1, 3, 30), ("1", "3"))
def test_extreme_steps(d):
    sizes = (1e-300, 1e-10, 1.0, 1e10, 1e300) if d > 3 else (1e-300, 1.0, 1e300)
    for mirror_map, size in itertools.product(MAPS, sizes):
        geometry, rng = mirror_map.geometry, np.random.default_rng(d)
        gradient = rng.standard_normal(d)
        gradient[1:2] = 0.0
        corner = geometry.extreme_point(rng.standard_normal(d))
        for coef, step in itertools.product(
            (geometry.center(d), corner, point_of(geometry, d, rng)), (0.0, 1e-300, 1e-3, 1e300)
        ):
            case = (mirror_map, coef, size, step)
            got = mirror_map.step(coef.copy(), size * gradient, step)
            assert np.isfinite(got).all(), case
            assert is_feasible(geometry, got), case
            if size * step < 1e-20:
                atol = 1e-12 * geometry.radius
                np.testing.assert_allclose(got, coef, atol=atol, err_msg=repr(case))
            elif size * step > 1e20:  # all that matters is the direction
                best = geometry.extreme_point(gradient) @ gradient
                assert got @ gradient == pytest.approx(best, rel=1e-6), case
            if mirror_map.has_center:
                near = mirror_map.step(coef, size * gradient, step, coef, 0.3)
                assert is_feasible(geometry, near), case
                assert norm_of(mirror_map, near - coef) <= 0.3 * (1 + 1e-9), case


def test_entropy_comes_back_from_the_corner():
    # weights too small for a float are not lost for ever
    for geometry in (Simplex(2.0), L1Ball(2.0)):
        mirror_map = geometry.mirror_map("entropy")
        coef = mirror_map.step(geometry.center(3), np.array([-1.0, 0.0, 0.0]), 1e4)
        np.testing.assert_allclose(coef, [2, 0, 0], atol=1e-12)
        coef = mirror_map.step(coef, np.array([0.0, -1.0, 0.0]), 1e4)
        np.testing.assert_allclose(coef, [0, 2, 0], atol=1e-12)


def test_the_center_of_a_phase_is_a_fixed_point():
    for mirror_map in POWER_MAPS:
        center = point_of(mirror_map.geometry, 4, np.random.default_rng(0), 3.0)
        got = mirror_map.step(center, np.zeros(4), 1.0, center, 0.1)
        np.testing.assert_array_equal(got, center)


def test_euclidean_map_is_projected_gradient_descent():
    rng = np.random.default_rng(0)
    for geometry in SETS:
        coef, gradient = point_of(geometry, 6, rng), rng.standard_normal(6)
        got = geometry.mirror_map("euclidean").step(coef, gradient, 0.4)
        expected = geometry.project(coef - 0.4 * gradient)
        np.testing.assert_allclose(got, expected, atol=1e-12)


def test_entropic_steps_on_the_simplex_expand_distances():
    """AFKT21, Lemma A.1: why phased SGD, whose sensitivity is that of one step, is Euclidean.

    A step for a linear loss separates two points by a factor of 1 + eta / 4 or more, and further
    steps go on with it, where Euclidean steps for the same loss bring no two points apart.
    """
    simplex, gradient = Simplex(1.0), np.array([0.0, -1.0, -1.0])
    entropy, euclidean = simplex.mirror_map("entropy"), simplex.mirror_map("euclidean")

    def distance(x, y):
        return np.abs(x - y).sum()

    def divergence(x, y):
        return float(np.sum(x * np.log(x / y)))

    for eta in (0.01, 0.3, 1.0):
        n = 100 * math.expm1(eta) / eta
        x, y = (np.array([1 - 3 / n, a / n, (3 - a) / n]) for a in (1, 2))
        x1, y1 = (entropy.step(point, gradient, eta) for point in (x, y))
        assert distance(x1, y1) >= (1 + eta / 4) * distance(x, y)
        assert divergence(x1, y1) >= (1 + eta / 4) * divergence(x, y)
        np.testing.assert_allclose(distance(x1, y1) / distance(x, y), 1 + eta, rtol=0.4 * eta)
        for _ in range(int(2 / eta)):
            x1, y1 = (entropy.step(point, gradient, eta) for point in (x1, y1))
        assert distance(x1, y1) >= 5 * distance(x, y)
        for size in (1, 2, np.inf):
            before = np.linalg.norm(x - y, size)
            after = [euclidean.step(point, gradient, eta) for point in (x, y)]
            assert np.linalg.norm(after[0] - after[1], size) <= before * (1 + 1e-12)
    assert_refuses(PhasedSGD().check, "l2", Absolute(), simplex, PrivacyBudget(1.0, 1e-6))


def test_entropic_descent_of_linear_losses_is_stable():
    """AFKT21, Lemma A.2: R rounds over neighbouring records end within 2 eta R L of each other."""
    rng, d, n, rounds, eta = np.random.default_rng(0), 6, 5, 3, 0.1
    entropy = Simplex(1.0).mirror_map("entropy")
    closest = 0.0
    for _ in range(20):
        records = rng.choice([-1.0, 1.0], (n, d))  # L = 1
        other = records.copy()
        other[0] = -records[0]
        ends = []
        for table in (records, other):
            w = np.full(d, 1 / d)
            for z in np.tile(table, (rounds, 1)):
                w = entropy.step(w, z, eta)
            ends.append(w)
        x, y = ends
        both_ways = float(np.sum((x - y) * np.log(x / y)))
        bound = (2 * eta * rounds) ** 2
        assert np.abs(x - y).sum() ** 2 <= both_ways <= bound
        closest = max(closest, both_ways / bound)
    assert closest > 0.2  # the bound is of the right size


def test_which_maps_a_set_offers():
    assert isinstance(L1Ball(1.0).mirror_map(), Entropy)
    assert isinstance(Simplex(1.0).mirror_map(), Entropy)
    assert LpBall(1.0, 1.3).mirror_map() == PowerMap(LpBall(1.0, 1.3), 1.3)
    assert L2Ball(1.0).mirror_map() == PowerMap(L2Ball(1.0), 2.0)
    assert LpBall(1.0, 4.0).mirror_map() == PowerMap(LpBall(1.0, 4.0), 2.0)
    with pytest.raises(ValueError, match="mirror_map must be one of"):
        L2Ball(1.0).mirror_map("entropy")


def test_bad_requests():
    entropy, power = L1Ball(1.0).mirror_map("entropy"), L1Ball(1.0).mirror_map("power")
    zeros = np.zeros(3)
    with pytest.raises(ValueError, match="no center"):
        entropy.step(zeros, zeros, 1.0, center=zeros, within=1.0)
    with pytest.raises(ValueError, match="needs a center"):
        power.step(zeros, zeros, 1.0, within=1.0)
