"""Mechanisms: where noise is added. Each holds a sensitivity and the scale of its noise."""

from ..privacy.guarantee import Release
from .additive import AdditiveNoise, Gaussian, KeyedGaussian, Laplace, additive_noise
from .base import Mechanism
from .batch import BatchGaussian
from .generalized_gaussian import GeneralizedGaussian, vector_mechanism
from .prefix_sum import PrefixSum
from .selection import SelectSequence, SelectVertex, softmax_scale

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
