"""Feasible sets and mirror maps. They know nothing of data or privacy."""

from .mirror_maps import Entropy, MirrorMap, PowerMap, lp_norm
from .sets import (
    AnySet,
    Geometry,
    L1Ball,
    L2Ball,
    LInfBall,
    LpBall,
    Polytope,
    Simplex,
    Unconstrained,
    get_geometry,
)
from .vertices import AxisVertices, Vertex, VertexMatrix, Vertices, known_vertices, moved

__all__ = [
    "AnySet",
    "AxisVertices",
    "Entropy",
    "Geometry",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "LpBall",
    "MirrorMap",
    "Polytope",
    "PowerMap",
    "Simplex",
    "Unconstrained",
    "Vertex",
    "VertexMatrix",
    "Vertices",
    "get_geometry",
    "known_vertices",
    "lp_norm",
    "moved",
]
