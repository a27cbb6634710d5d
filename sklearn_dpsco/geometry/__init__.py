"""Feasible sets and mirror maps. They know nothing of data or privacy."""

from .mirror_maps import Entropy, MirrorMap, PowerMap
from .norms import lp_norm
from .sets import (
    Geometry,
    L1Ball,
    L2Ball,
    LInfBall,
    LpBall,
    Simplex,
    Unconstrained,
    get_geometry,
)
from .vertices import AxisVertices, Vertex, VertexList, Vertices, known_vertices

__all__ = [
    "AxisVertices",
    "Entropy",
    "Geometry",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "LpBall",
    "MirrorMap",
    "PowerMap",
    "Simplex",
    "Unconstrained",
    "Vertex",
    "VertexList",
    "Vertices",
    "get_geometry",
    "known_vertices",
    "lp_norm",
]
