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
    Vertex,
    get_geometry,
)

__all__ = [
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
    "get_geometry",
    "lp_norm",
]
