"""Feasible sets against enumeration of their vertices and a generic solver."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from support import assert_refuses

from sklearn_dpsco.geometry import (
    Geometry,
    L1Ball,
    L2Ball,
    LInfBall,
    LpBall,
    Simplex,
    get_geometry,
)
from sklearn_dpsco.geometry.norms import lp_norm

SETS = [L1Ball(1.0), L1Ball(2.5), L1Ball(1e-3), Simplex(1.0), Simplex(3.0)]
DIMENSIONS = [1, 2, 7]
every_dimension = pytest.mark.parametrize("d", DIMENSIONS)


def vertices(geometry, d):
    """Every vertex as a row of an array, in the order of `vertex`."""
    n_vertices = geometry.vertex_scores(np.zeros(d)).size
    out = np.zeros((n_vertices, d))
    for number in range(n_vertices):
        coordinate, value = geometry.vertex(number, d)
        out[number, coordinate] = value
    return out


def directions(d, size=50):
    rng = np.random.default_rng(d)
    return [*rng.standard_normal((size, d)), np.zeros(d), np.ones(d), -np.ones(d)]


def contains(geometry, x, tolerance=1e-12):
    size = geometry.radius * (1 + tolerance)
    if isinstance(geometry, Simplex):
        return np.all(x >= 0) and abs(x.sum() - geometry.radius) <= tolerance * geometry.radius
    return np.abs(x).sum() <= size


@every_dimension
def test_vertices_scores_and_lmo_against_enumeration(d):
    for geometry in SETS:
        points = vertices(geometry, d)
        expected = [geometry.radius * row for row in np.eye(d)]
        if isinstance(geometry, L1Ball):
            expected += [-row for row in expected]
        assert {tuple(v + 0.0) for v in points} == {tuple(v + 0.0) for v in expected}, geometry
        for direction in directions(d):
            np.testing.assert_allclose(geometry.vertex_scores(direction), -points @ direction)
            coordinate, value = geometry.lmo(direction)
            assert value * direction[coordinate] == pytest.approx((points @ direction).min())
            assert any(value == v[coordinate] for v in points), geometry
            best = geometry.extreme_point(direction) @ direction
            assert best == pytest.approx((points @ direction).min()), geometry


@every_dimension
def test_the_diameter_is_the_largest_distance_of_vertices(d):
    for geometry in SETS:
        points = vertices(geometry, d)
        pairs = itertools.combinations(points, 2)
        widest = max((geometry.norm(v - w) for v, w in pairs), default=0.0)
        assert widest <= geometry.diameter, geometry
        if len(points) > 1:
            assert widest == pytest.approx(geometry.diameter), geometry


@every_dimension
def test_the_l1_diameter_bounds_the_range_of_the_scores(d):
    # what the sensitivity of a selection rests on
    for geometry, change in itertools.product(SETS, directions(d)):
        scores = geometry.vertex_scores(change)
        largest = geometry.l1_diameter * np.abs(change).max()
        assert np.ptp(scores) <= largest * (1 + 1e-15), (geometry, change)


@every_dimension
def test_the_dual_norm_of_a_polyhedral_set(d):
    rng = np.random.default_rng(0)
    unit_ball = np.concatenate((np.eye(d), -np.eye(d)))  # its vertices: both norms are l1
    for geometry, g in itertools.product(SETS, directions(d)):
        assert geometry.dual_norm(g) == pytest.approx((unit_ball @ g).max()), geometry
        for x in rng.standard_normal((5, d)):
            assert x @ g <= geometry.norm(x) * geometry.dual_norm(g) * (1 + 1e-12), geometry


@every_dimension
def test_the_center_lies_in_the_set(d):
    for geometry in SETS:
        assert contains(geometry, geometry.center(d)), geometry
        # and in its middle: no coordinate is preferred
        assert np.unique(geometry.center(d)).size == 1, geometry


def points_to_project(geometry, d):
    rng = np.random.default_rng(1)
    points = list(geometry.radius * rng.standard_normal((20, d)) * rng.choice([0.1, 1, 9], (20, 1)))
    points += [np.zeros(d), np.full(d, 5.0), np.full(d, -5.0), geometry.center(d)]
    return points + list(vertices(geometry, d)) + list(2 * vertices(geometry, d))


@every_dimension
def test_the_projection_is_the_nearest_point(d):
    for geometry in SETS:
        corners = vertices(geometry, d)
        for x in points_to_project(geometry, d):
            nearest = geometry.project(x.copy())
            assert contains(geometry, nearest), (geometry, x)
            # over a polytope this inequality at every vertex is necessary and sufficient
            slack = (corners - nearest) @ (x - nearest)
            assert slack.max() <= 1e-10 * geometry.radius * (1 + np.abs(x).max()), (geometry, x)


def test_the_projection_against_a_generic_solver():
    for geometry in (L1Ball(1.3), Simplex(1.3)):
        corners = vertices(geometry, 4)
        for x in points_to_project(geometry, 4)[:20:4]:
            # the point as a convex combination of the vertices
            found = minimize(
                lambda w, x=x, corners=corners: ((w @ corners - x) ** 2).sum(),
                np.full(len(corners), 1 / len(corners)),
                jac=lambda w, x=x, corners=corners: 2 * corners @ (w @ corners - x),
                bounds=[(0, 1)] * len(corners),
                constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
                method="SLSQP",
                options={"ftol": 1e-15, "maxiter": 500},
            )
            np.testing.assert_allclose(geometry.project(x), found.x @ corners, atol=1e-6)


def test_the_projection_of_far_points():
    # beside them the radius vanishes in rounding
    for kind, far in itertools.product((L1Ball, Simplex), (1e8, 1e17, 1e300)):
        np.testing.assert_allclose(kind(1.0).project(np.array([far, 0.0])), [1, 0], atol=1e-7)
        np.testing.assert_allclose(kind(1.0).project(np.array([far, far])), [0.5, 0.5], atol=1e-7)


def test_projection_moves_no_point_of_the_set():
    inside = np.array([0.2, -0.3, 0.0])
    np.testing.assert_array_equal(L1Ball(1.0).project(inside), inside)


def test_bad_parameters_are_refused():
    for kind in (L1Ball, Simplex, L2Ball, LInfBall):
        for bad in (0, -1.0, np.nan, np.inf, "1", None, True):
            assert_refuses(kind, "radius must be", bad)
    for bad in (1, 1.0, 0.5, -1, math.nan, "2", None, True, -math.inf):
        assert_refuses(LpBall, "p must be", 1.0, bad)


def test_get_geometry():
    assert get_geometry("l1", 2.0) == L1Ball(2.0)
    assert get_geometry("simplex", None) is Simplex
    assert get_geometry("l2", 2.0) == L2Ball(2.0)
    assert get_geometry("linf", 2.0) == LInfBall(2.0)
    mine = Simplex(4.0)
    assert get_geometry(mine, None) is mine
    with pytest.raises(ValueError, match="radius must be 'auto'"):
        get_geometry(mine, 4.0)
    for unknown in ("l3", None, L1Ball, 3):
        with pytest.raises(ValueError, match="feasible_set must be"):
            get_geometry(unknown, 1.0)


def test_only_the_ball_has_room_for_an_intercept():
    assert L1Ball.allows_intercept
    assert not Simplex.allows_intercept
    assert issubclass(Simplex, Geometry)


# ------------------------------------------------------------------------ l_p balls

BALLS = [LpBall(1.5, 1.1), LpBall(0.5, 1.5), L2Ball(2.0), LpBall(1.0, 3.5), LpBall(3.0, 20.0)]
BALLS += [LInfBall(1.5), LpBall(1.5, math.inf)]


@every_dimension
def test_norms_of_a_ball_are_dual_and_attained(d):
    for ball in BALLS:
        rng = np.random.default_rng(d)
        for g in [*rng.standard_normal((20, d)), np.zeros(d), np.eye(d)[0]]:
            point = ball.extreme_point(g)
            assert ball.norm(point) <= ball.radius * (1 + 1e-12), ball
            # the least value of <v, g> over the ball
            least = -ball.radius * ball.dual_norm(g)
            assert point @ g == pytest.approx(least, abs=1e-13), ball
            for x in rng.standard_normal((5, d)):
                assert x @ g <= ball.norm(x) * ball.dual_norm(g) * (1 + 1e-12), ball


@every_dimension
def test_the_projection_onto_a_ball(d):
    for ball in BALLS:
        rng = np.random.default_rng(d)
        for size in (0.01, 1.0, 3.0, 1e6):
            x = size * ball.radius * rng.standard_normal(d)
            x[rng.uniform(size=d) < 0.2] = 0.0
            nearest = ball.project(x.copy())
            assert ball.norm(nearest) <= ball.radius * (1 + 1e-12), (ball, x)
            if ball.norm(x) <= ball.radius:
                np.testing.assert_array_equal(nearest, x)
                continue
            # necessary and sufficient: no point of the set lies further along x - nearest
            gap = x - nearest
            furthest = ball.radius * ball.dual_norm(gap)
            assert furthest - nearest @ gap <= 1e-12 * (1 + furthest), (ball, x)


def test_facts_of_balls():
    for ball in BALLS:
        assert ball.diameter == 2 * ball.radius
        np.testing.assert_array_equal(ball.center(3), np.zeros(3))
        assert ball.contains_origin
        assert ball.allows_intercept
        assert not ball.has_vertices


def test_named_balls():
    assert L2Ball(2.0).p == 2
    assert LInfBall(2.0).p == math.inf
    assert repr(L2Ball(2.0)) == "L2Ball(radius=2.0)"
    assert LpBall(1.0, 2.0).project(np.array([3.0, 4.0])) == pytest.approx([0.6, 0.8])


def test_lp_norm_does_not_overflow():
    for p in (1.0, 1.3, 2.0, 5.0, math.inf):
        x = np.array([3e300, -4e300])
        assert lp_norm(x, p) == pytest.approx(1e300 * np.linalg.norm([3, 4], p)), p
        assert lp_norm(1e-320 * x, p) == pytest.approx(1e-20 * np.linalg.norm([3, 4], p)), p
        assert lp_norm(np.zeros(2), p) == 0, p
