"""Selections: release the index of the largest noisy score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._types import Array, Precision
from ..privacy.budget import ROUNDING, Allowance
from ..privacy.selections import selections_mu, selections_of_mu
from ..randomness.exact import permute_and_flip, sample_softmax
from ..randomness.stream import RandomStream
from .base import Mechanism

# Of a prior that is added to scores: its largest size, in units of their sensitivity, and the
# factor on the sensitivity that covers the rounding of the sums (doc/privacy, section 2.5).
_LARGEST_PRIOR = 2.0**30
PRIOR_ROOM = 1 + 2.0**-20


@dataclass(frozen=True)
class SelectVertex(Mechanism):
    r"""Report the index of the largest noisy score.

    Only the range r of the change of the scores between neighbours matters,
    :math:`r = \max_v \Delta_v - \min_v \Delta_v` (doc/privacy, section 2.3).

    * Gumbel noise of scale b is the exponential mechanism: (r / b)-DP with bounded
      range, hence :math:`(r / b)^2 / 8`-zCDP.
    * Exponential noise of scale b is permute-and-flip: (r / b)-DP, never a larger
      expected error than Gumbel noise at the same pure epsilon, and of bounded range
      2 r / b only.

    Selections of bounded range eta are mu-Gaussian-DP as well, mu = `selections_mu`.

    Parameters
    ----------
    sensitivity : float > 0
        The range r.
    scale : float > 0
        b, in the units of the scores.
    noise : {"gumbel", "exponential"}, default="gumbel"
    precision : {"exact", "float"}, default="exact"
        "exact" draws from the exact law, the scores taken as real numbers without error.

    Examples
    --------
    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.mechanisms import SelectVertex
    >>> allowance = PrivacyBudget(epsilon=1.0, delta=0.0).allowance
    >>> noise = SelectVertex.calibrate(0.01, allowance, count=5)
    >>> noise.cost("pure", count=5) <= 1.0
    True
    """

    noise: str = "gumbel"
    precision: Precision = "exact"

    compositions: ClassVar[tuple[str, ...]] = ("zcdp", "gdp", "pure")
    selects: ClassVar[bool] = True
    _LAWS: ClassVar[tuple[str, str]] = ("gumbel", "exponential")

    def __post_init__(self) -> None:
        if self.noise not in self._LAWS:
            raise ValueError(f"noise must be one of {self._LAWS}, got {self.noise!r}")

    @classmethod
    def calibrate(cls, sensitivity: float, allowance: Allowance, count: int = 1) -> SelectVertex:
        """Least noise with which `count` selections stay within `allowance`."""
        noise = "exponential" if allowance.kind == "pure" else "gumbel"
        if allowance.kind == "gdp":
            scale = sensitivity / selections_of_mu(math.sqrt(2 * allowance.amount), count)
        elif allowance.kind == "pure":
            scale = sensitivity * count / allowance.amount
        else:
            scale = sensitivity * math.sqrt(count / (8 * allowance.amount))
        return cls(sensitivity, scale * ROUNDING, noise, allowance.precision)

    @classmethod
    def of_range(cls, sensitivity: float, log_range: float, precision: Precision) -> SelectVertex:
        """Gumbel noise with which `log_range` is not exceeded."""
        return cls(sensitivity, sensitivity / log_range * ROUNDING, "gumbel", precision)

    @property
    def log_range(self) -> float | None:  # type: ignore[override]
        """Of Gumbel noise; permute-and-flip is not of bounded range."""
        return self.sensitivity / self.scale if self.noise == "gumbel" else None

    def distance(self, difference: Array) -> float:
        """The range of the change of the scores."""
        return float(np.ptp(difference))

    def cost(self, composition: str, count: int = 1) -> float:
        """Epsilon ("pure"), rho ("zcdp") or mu^2 / 2 ("gdp") of `count` selections.

        Under "gdp" many cost less than one does times their number; only releases with Gaussian
        noise may come between them.
        """
        self.check(composition)
        epsilon = self.sensitivity / self.scale
        if composition == "pure":
            return count * epsilon
        eta = epsilon if self.noise == "gumbel" else 2 * epsilon
        return selections_mu(eta, count) ** 2 / 2 if composition == "gdp" else count * eta**2 / 8

    def with_prior(self, scores: Array, log_prior: Array) -> Array:
        """Scores for which candidates have public weights before anything is known.

        Logarithms of the weights are added in units of the noise's scale, as far as the rounding
        of the sums stays within `PRIOR_ROOM`: weights are drawn together where a scale is more
        than some million times the sensitivity.
        """
        below = log_prior - log_prior.max()
        most = _LARGEST_PRIOR * self.sensitivity / max(1.0, -float(below.min()))
        return scores + min(self.scale, most) * below

    def release(self, scores: Array, stream: RandomStream) -> int:
        """Index of the selected score.

        Raises `ValueError` if a score is not finite.
        """
        scores, is_gumbel = np.asarray(scores, dtype=np.float64), self.noise == "gumbel"
        if not np.isfinite(scores).all():
            raise ValueError("the scores of a selection must be finite")
        if self.scale > 0 and self.precision == "exact":
            sample = sample_softmax if is_gumbel else permute_and_flip
            return sample(scores, self.scale, stream)
        if self.scale > 0:
            draw = stream.gumbel if is_gumbel else stream.exponential
            scores = scores + self.scale * draw(scores.size)
        return int(np.argmax(scores))


@dataclass(frozen=True)
class SelectSequence(SelectVertex):
    r"""The selections of a run in which a record has a part in several scores.

    With :math:`r_j` the range of the change of the scores of selection j by one record, given the
    outcomes before, the run is :math:`\sum_j r_j / b`-DP, and with Gumbel noise
    :math:`\sum_j r_j^2 / (8 b^2)`-zCDP (doc/privacy, section 2.3): the sensitivity is the l1 or the
    l2 norm (`norm`) of the ranges. `n_scores` is the number of scores of one selection.
    """

    norm: int = 2
    n_scores: int = 1

    is_joint: ClassVar[bool] = True
    log_range: ClassVar[None] = None  # the selections of a run have several

    @classmethod
    def of_ranges(
        cls, sensitivity: float, allowance: Allowance, n_scores: int, *, flips: bool
    ) -> SelectSequence:
        """Least noise with which one run stays within `allowance`, "zcdp" or "pure".

        `flips`: whether a pure one may be made by permute-and-flip.
        """
        if allowance.kind == "pure":
            scale, norm = sensitivity / allowance.amount, 1
        else:
            scale, norm = sensitivity / math.sqrt(8 * allowance.amount), 2
        law = "exponential" if norm == 1 and flips else "gumbel"
        return cls(sensitivity, scale * ROUNDING, law, allowance.precision, norm, n_scores)

    @property
    def compositions(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ranges that are only bounded in l2 have no sum."""
        return ("zcdp", "pure") if self.norm == 1 else ("zcdp",)

    def distance(self, difference: Array) -> float:
        """The norm of the ranges of the changes of a run's scores, one selection after another."""
        ranges = np.ptp(difference.reshape(-1, self.n_scores), axis=1)
        return float(np.linalg.norm(ranges, self.norm))


def softmax_scale(mechanism: Mechanism) -> float | None:
    """The scale, if a release is an exact draw from the softmax of the scores over it, else None.

    For loops that make the draws themselves. Where something stands for a mechanism or for its
    method, as in an audit, that must be called.
    """
    if type(mechanism) not in (SelectVertex, SelectSequence):
        return None
    assert isinstance(mechanism, SelectVertex)
    if type(mechanism).release is not _RELEASE:
        return None
    is_softmax = mechanism.precision == "exact" and mechanism.noise == "gumbel"
    return mechanism.scale if is_softmax and mechanism.scale > 0 else None


_RELEASE = SelectVertex.release
