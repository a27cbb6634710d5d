"""Mechanisms: where noise is added. Each holds a sensitivity and the scale of its noise."""

from ..privacy.guarantee import Release
from .batch import BatchGaussian
from .laws import (
    AdditiveNoise,
    Gaussian,
    GeneralizedGaussian,
    KeyedGaussian,
    Laplace,
    Mechanism,
    SelectSequence,
    SelectVertex,
    additive_noise,
    softmax_scale,
    vector_mechanism,
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
