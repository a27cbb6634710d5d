"""Mechanisms: where noise is added. Each holds a sensitivity and the scale of its noise."""

from ..privacy.guarantee import Release
from .batch import BatchGaussian
from .generalized_gaussian import GeneralizedGaussian, vector_mechanism
from .laws import (
    AdditiveNoise,
    Gaussian,
    KeyedGaussian,
    Laplace,
    Mechanism,
    SelectSequence,
    SelectVertex,
    additive_noise,
    softmax_scale,
)
from .prefix_sum import PrefixSum

__all__ = [
    "AdditiveNoise",
    "BatchGaussian",
    "Gaussian",
    "GeneralizedGaussian",
    "KeyedGaussian",
    "Laplace",
    "Mechanism",
    "PrefixSum",
    "Release",
    "SelectSequence",
    "SelectVertex",
    "additive_noise",
    "softmax_scale",
    "vector_mechanism",
]
