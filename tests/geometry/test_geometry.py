"""Feasible sets against enumeration of their vertices and a generic solver."""

import itertools
import math
import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist
from support import assert_refuses

from sklearn_dpsco.geometry import (
    AxisVertices,
    Geometry,
    L1Ball,
    L2Ball,
    LInfBall,
    LpBall,
    Polytope,
    Simplex,
    VertexMatrix,
    get_geometry,
    known_vertices,
    lp_norm,
    moved,
)

SETS = [L1Ball(1.0), L1Ball(2.5), L1Ball(1e-3), Simplex(1.0), Simplex(3.0)]
DIMENSIONS = [1, 2, 7]
every_dimension = pytest.mark.parametrize("d", DIMENSIONS)


def points_of(vertices):
    """Every vertex as a row of an array, in the order of their numbers."""
    n_vertices = vertices.scores(np.zeros(vertices.n_features)).size
    out = np.zeros((n_vertices, vertices.n_features))
    for number in range(n_vertices):
        coordinate, value = vertices.vertex(number)
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
        points = points_of(geometry.vertices(d))
        expected = [geometry.radius * row for row in np.eye(d)]
        if isinstance(geometry, L1Ball):
            expected += [-row for row in expected]
        assert {tuple(v + 0.0) for v in points} == {tuple(v + 0.0) for v in expected}, geometry
        for direction in directions(d):
            scores = geometry.vertices(d).scores(direction)
            np.testing.assert_allclose(scores, -points @ direction)
            coordinate, value = geometry.lmo(direction)
            assert value * direction[coordinate] == pytest.approx((points @ direction).min())
            assert any(value == v[coordinate] for v in points), geometry
            best = geometry.extreme_point(direction) @ direction
            assert best == pytest.approx((points @ direction).min()), geometry


@every_dimension
def test_the_l1_diameter_bounds_the_range_of_the_scores(d):
    # what the sensitivity of a selection rests on
    lists = [geometry.vertices(d) for geometry in SETS] + random_matrices(d)
    for vertices, change in itertools.product(lists, directions(d)):
        scores = vertices.scores(change)
        largest = vertices.l1_diameter * np.abs(change).max()
        assert np.ptp(scores) <= largest * (1 + 1e-15), (vertices, change)


def random_matrices(d):
    """Vertices with several on an axis, axes without any, and 0 among them."""
    rng = np.random.default_rng(d)
    found = [np.array([[0.0] * d, [1.0] + [0.0] * (d - 1)])]
    for k in rng.integers(2, 9, size=20):
        points = np.zeros((k, d))
        points[np.arange(k), rng.integers(0, d, size=k)] = rng.normal(size=k)
        found.append(points)
    return [VertexMatrix(points) for points in found]


def test_axes_stay_what_they_are():
    sides = [1.0]  # also if they were made of what can be changed
    axes = AxisVertices(2, sides)
    sides[0] = 50.0
    assert points_of(axes).max() == 1.0


@every_dimension
def test_a_matrix_of_vertices_computes_its_own_diameter(d):
    rng = np.random.default_rng(d)
    for points in (rng.normal(size=(4, d)), np.array([[0.0] * d, [5.0] * d]), 7 + np.eye(2, d)):
        widest = max(np.abs(v - w).sum() for v, w in itertools.combinations(points, 2))
        for matrix in (points, sparse.csr_array(points), sparse.coo_array(points)):
            vertices = VertexMatrix(matrix)
            assert widest <= vertices.l1_diameter <= widest * (1 + 1e-11)
            longest = np.abs(points).sum(axis=1).max()
            assert longest <= vertices.l1_norm <= longest * (1 + 1e-11)
            for direction in directions(d, 3):
                np.testing.assert_allclose(vertices.scores(direction), -points @ direction)
            for k, point in enumerate(points):
                np.testing.assert_array_equal(vertices.vertex(k), point)
                found = moved(np.ones(d), vertices.vertex(k), 0.25)
                np.testing.assert_allclose(found, 0.75 + 0.25 * point)


def test_the_diameter_of_many_vertices_is_bounded_by_their_norms():
    points = np.random.default_rng(0).normal(size=(1500, 3))
    widest = pdist(points, "cityblock").max()
    assert widest <= VertexMatrix(points).l1_diameter <= 2 * np.abs(points).sum(axis=1).max() * 1.01


def test_a_matrix_of_vertices_keeps_its_numbers():
    points = np.eye(3)
    vertices = VertexMatrix(points)
    points[:] = 50.0
    assert vertices.l1_diameter == pytest.approx(2.0)
    with pytest.raises(ValueError, match="read-only"):
        vertices.matrix[0] = 50.0
    assert vertices == VertexMatrix(np.eye(3)) != VertexMatrix(2 * np.eye(3))
    assert hash(vertices) == hash(VertexMatrix(np.eye(3)))
    assert pickle.loads(pickle.dumps(vertices)) == vertices
    for bad in (np.ones((2, 3)), np.ones(3), np.full((2, 2), np.nan), np.zeros((0, 3))):
        assert_refuses(VertexMatrix, "vert", bad)
    for bad in ([[1e51, 0.0], [0.0, 1.0]], 1e-60 * np.eye(3), 1e-320 * np.eye(3)):
        assert_refuses(VertexMatrix, "vert", bad)


def test_a_polytope_is_the_hull_of_its_points():
    points = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, -1.0, 0.5]])
    for kind in (np.array, sparse.csr_array):
        polytope = Polytope(kind(points), radius=2.0)
        assert polytope == Polytope(kind(points), 2.0) != Polytope(kind(points), 1.0)
        vertices = polytope.vertices(3)
        for direction in directions(3, 5):
            best = (2 * points @ direction).min()
            assert polytope.extreme_point(direction) @ direction == pytest.approx(best)
            assert vertices.scores(direction).max() == pytest.approx(-best)
        np.testing.assert_allclose(polytope.center(3), 2 * points.mean(axis=0))
    assert_refuses(Polytope, "radius", points, -1.0)
    with pytest.raises(ValueError, match="must have 4 coordinates"):
        known_vertices(Polytope(points).vertices(4), 4)


def test_vertices_that_make_no_set_are_refused():
    for bad in ((), (0.0, 0.0), (np.nan,), (np.inf, 1.0), (1e51, 1.0), ("a", 1.0)):
        assert_refuses(AxisVertices, "vert", 2, bad)
    assert_refuses(AxisVertices, "n_features", 0, (1.0,))


def test_only_vertices_that_compute_their_own_range_are_known():
    class Narrow(AxisVertices):
        l1_diameter = 1e-9

    matrix = VertexMatrix(np.eye(3))
    for vertices in (AxisVertices(3, (1.0,)), matrix):
        assert known_vertices(vertices, 3) is vertices
        assert_refuses(known_vertices, "must have 4 coordinates", vertices, 4)
    for other in (Narrow(3, (1.0, -1.0)), np.eye(3), None):
        assert_refuses(known_vertices, "must be AxisVertices or a VertexMatrix", other, 3)


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
    return (
        points + list(points_of(geometry.vertices(d))) + list(2 * points_of(geometry.vertices(d)))
    )


@every_dimension
def test_the_projection_is_the_nearest_point(d):
    for geometry in SETS:
        corners = points_of(geometry.vertices(d))
        for x in points_to_project(geometry, d):
            nearest = geometry.project(x.copy())
            assert contains(geometry, nearest), (geometry, x)
            # over a polytope this inequality at every vertex is necessary and sufficient
            slack = (corners - nearest) @ (x - nearest)
            assert slack.max() <= 1e-10 * geometry.radius * (1 + np.abs(x).max()), (geometry, x)


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
    assert [get_geometry(name) for name in ("l1", "l2", "linf")] == [L1Ball, L2Ball, LInfBall]
    assert get_geometry("simplex") is Simplex
    mine = Simplex(4.0)
    assert get_geometry(mine) is mine
    for unknown in ("l3", None, L1Ball, 3):
        with pytest.raises(ValueError, match="feasible_set must be"):
            get_geometry(unknown)


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
