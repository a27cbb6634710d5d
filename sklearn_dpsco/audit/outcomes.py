"""Lower bounds on epsilon from the outcomes of many runs on two neighbouring tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta, norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from .._checks import check_bool, check_share
from .._types import Array
from ..privacy.budget import PrivacyBudget, size_epsilon

LEAST_TRIALS = 20
_PILOT = 5  # the first fifth of the trials chooses the direction to project the others on
_THRESHOLDS = 1001


@dataclass(frozen=True, eq=False)
class AuditResult:
    r"""Lower bounds on epsilon, against the claim.

    Attributes
    ----------
    epsilon, delta : float
        The claim for tables that differ in one record.
    epsilon_lower_bound : float
        Bound on the epsilon, at `delta`, of what produced the outcomes. For a threshold with false
        positive rate a and false negative rate b, (epsilon, delta)-DP implies
        :math:`\epsilon \ge \log((1 - b - \delta) / a)` and the same with a and b exchanged.
    gaussian_epsilon_lower_bound : float
        As before, if the trade-off between a and b is that of Gaussian noise. Much larger where
        delta is small, but not valid for other trade-offs: pure epsilon-DP mechanisms may exceed
        their claim here. NaN for delta = 0.
    gaussian_mu_lower_bound : float
        The mu of Gaussian DP behind it, :math:`\Phi^{-1}(1 - a) - \Phi^{-1}(b)`.
    decided_by : {"assumption-free", "gaussian", "releases"}
        Which of the two bounds `flagged` compares with the claim: the Gaussian one where the claim
        is of Gaussian DP, as that of a plan whose releases are all Gaussian. "releases": that of
        `audit_plan` with ``statistic="releases"``, from the noise of the releases instead of a
        threshold; the other one is 0.
    confidence : float
        Each bound holds with at least this probability.
    scores, neighbour_scores : ndarray of shape (n,)
        The numbers that the thresholds were set on, for the two tables.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.audit import audit_outcomes
    >>> rng = np.random.default_rng(0)
    >>> alike = audit_outcomes(rng.normal(size=500), rng.normal(size=500), epsilon=0.1, delta=1e-3)
    >>> alike.flagged, alike.decided_by
    (False, 'assumption-free')
    """

    epsilon: float
    delta: float
    epsilon_lower_bound: float
    gaussian_epsilon_lower_bound: float
    gaussian_mu_lower_bound: float
    decided_by: str
    confidence: float
    scores: Array = field(repr=False)
    neighbour_scores: Array = field(repr=False)

    @property
    def flagged(self) -> bool:
        """Whether the bound that decides exceeds the claim.

        If the claim is true, this happens with probability at most 1 - `confidence`: which bound
        is compared does not depend on the outcomes.
        """
        if self.decided_by != "assumption-free":
            return self.gaussian_mu_lower_bound > PrivacyBudget(self.epsilon, self.delta).mu
        return self.epsilon_lower_bound > self.epsilon


def audit_outcomes(
    outcomes: ArrayLike,
    neighbour_outcomes: ArrayLike,
    *,
    epsilon: float,
    delta: float = 0.0,
    gaussian: bool = False,
    confidence: float = 0.9999,
) -> AuditResult:
    """Lower bounds on epsilon from outcomes of independent runs on two neighbours.

    Half of the scores choose a threshold and its direction, one pair for each bound. The other half
    give bounds of Clopper and Pearson on both error rates together.

    Parameters
    ----------
    outcomes, neighbour_outcomes : array-like of shape (n_trials,) or (n_trials, k)
        Finite. With k > 1, the first fifth of the trials chooses a direction (a linear
        discriminant with Ledoit-Wolf shrinkage) and the others are projected on it.
    epsilon, delta : float
        The claim.
    gaussian : bool, default=False
        Whether the claim is of the mu-Gaussian DP that gives this (epsilon, delta), delta > 0. Then
        the Gaussian bound decides.
    confidence : float in (0, 1), default=0.9999

    Raises
    ------
    ValueError
        If a parameter is out of range, or the shapes differ or have fewer than 20 trials.

    Examples
    --------
    Noise of standard deviation 1 on a change of 4, claimed to be (0.1, 1e-3)-DP:

    >>> import numpy as np
    >>> from sklearn_dpsco.audit import audit_outcomes
    >>> rng = np.random.default_rng(0)
    >>> first, second = rng.normal(size=500), 4 + rng.normal(size=500)
    >>> found = audit_outcomes(first, second, epsilon=0.1, delta=1e-3)
    >>> found.flagged, bool(found.epsilon_lower_bound > 1)
    (True, True)
    """
    claim = finite_claim(epsilon, delta)
    check_share("confidence", confidence)
    if check_bool("gaussian", gaussian) and claim.is_pure:
        raise ValueError("gaussian must be False for delta=0: no Gaussian noise is pure DP")
    first, second = (np.asarray(side, dtype=np.float64) for side in (outcomes, neighbour_outcomes))
    if first.ndim not in (1, 2) or first.shape != second.shape or len(first) < LEAST_TRIALS:
        raise ValueError(
            "outcomes and neighbour_outcomes must be arrays of one shape (n_trials,) or "
            f"(n_trials, k) with n_trials >= {LEAST_TRIALS}, got {first.shape} and {second.shape}"
        )
    if not (np.all(np.isfinite(first)) and np.all(np.isfinite(second))):
        raise ValueError("outcomes must be finite")
    first, second = _scores(first, second)

    def log_ratio(a: Array, b: Array) -> Array:
        power = np.maximum(1 - delta - np.stack((b, a)), 1e-300)
        return np.log(power / np.stack((a, b))).max(axis=0)

    mu = max(0.0, _best_bound(first, second, lambda a, b: norm.isf(a) - norm.ppf(b), confidence))
    bound = max(0.0, _best_bound(first, second, log_ratio, confidence))
    bounds = bound, size_epsilon("gdp", mu, delta)
    decided_by = "gaussian" if gaussian else "assumption-free"
    claimed = claim.epsilon, claim.delta
    return AuditResult(*claimed, *bounds, mu, decided_by, confidence, first, second)


def _scores(first: Array, second: Array) -> tuple[Array, Array]:
    """One number per trial; the trials that chose the projection are dropped."""
    if first.ndim == 1 or first.shape[1] == 1:
        return first.ravel(), second.ravel()
    n_pilot = len(first) // _PILOT
    pilot = np.concatenate((first[:n_pilot], second[:n_pilot]))
    if np.all(pilot == pilot[0]):
        return first[n_pilot:, 0], second[n_pilot:, 0]
    pilot_mean, size = pilot.mean(axis=0), pilot.std(axis=0)
    size[size == 0] = 1.0
    separate = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    pilot = (pilot - pilot_mean) / size
    separate.fit(pilot, np.repeat([0, 1], n_pilot))
    direction = separate.coef_[0]
    if not np.any(direction):  # outcomes without any noise have no covariance
        direction = pilot[n_pilot:].mean(axis=0) - pilot[:n_pilot].mean(axis=0)
    direction = direction / size
    return first[n_pilot:] @ direction, second[n_pilot:] @ direction


def _error_rates(first: Array, second: Array, thresholds: Array, level: float) -> list[Array]:
    """Upper bounds on both error rates of "second if above the threshold", each at `level`."""
    false_positives = first.size - np.searchsorted(np.sort(first), thresholds, side="right")
    false_negatives = np.searchsorted(np.sort(second), thresholds, side="right")
    return [
        np.where(k == m, 1.0, beta.ppf(level, k + 1, np.maximum(m - k, 1)))
        for k, m in ((false_positives, first.size), (false_negatives, second.size))
    ]


def _best_bound(
    first: Array, second: Array, value: Callable[[Array, Array], Array], confidence: float
) -> float:
    """`value` of the error rates at a threshold and direction chosen on every other score."""
    level = 1 - (1 - confidence) / 2
    choices = []
    for sign in (1.0, -1.0):
        a, b = sign * first[::2], sign * second[::2]
        grid = np.linspace(0, 1, _THRESHOLDS)
        thresholds = np.quantile(np.concatenate((a, b)), grid, method="nearest")
        values = value(*_error_rates(a, b, thresholds, level))
        best = int(np.argmax(values))
        choices.append((float(values[best]), sign, thresholds[best]))
    _, sign, threshold = max(choices)
    rates = _error_rates(sign * first[1::2], sign * second[1::2], np.array([threshold]), level)
    return float(value(*rates)[0])


def finite_claim(*claim: Any) -> PrivacyBudget:
    """The `PrivacyBudget` of a claim that outcomes may refute."""
    if (budget := PrivacyBudget(*claim)).is_infinite:
        raise ValueError("epsilon=inf claims nothing that an audit could refute")
    return budget
