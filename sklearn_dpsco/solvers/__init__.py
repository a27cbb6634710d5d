"""Solvers: settings of one algorithm each, for the parameter `solver` of the estimators."""

from .base import Solver
from .frank_wolfe import FrankWolfe, Gradient, Selection
from .ftrl import FTRL
from .heavy_tail import SCOF, HeavyTail, SCOFSlices, UnboundedDescent
from .mirror_descent import NoisyMD
from .papers.mirror_descent import Localized, NoisySFW, Proximal
from .papers.single_pass import Rounds, Spider, Tree
from .phased_sgd import PhasedSGD
from .unit_descent import Descent, MirrorDescent

__all__ = [
    "FTRL",
    "SCOF",
    "Descent",
    "FrankWolfe",
    "Gradient",
    "HeavyTail",
    "Localized",
    "MirrorDescent",
    "NoisyMD",
    "NoisySFW",
    "PhasedSGD",
    "Proximal",
    "Rounds",
    "SCOFSlices",
    "Selection",
    "Solver",
    "Spider",
    "Tree",
    "UnboundedDescent",
]
