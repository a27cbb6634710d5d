"""Public stand-ins for private tables, made of declared bounds and of an assumed score alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import issparse
from scipy.special import expit, ndtr, ndtri
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from .._checks import check_choice, check_count, check_real, import_pandas
from ..data.bounds import check_feature_bounds, check_target_bounds
from ..model_selection.private_steps import last_step
from ..preprocessing.declared import declared_bounds
from ..preprocessing.encoder import PublicEncoder
from ..preprocessing.schema import fields_of

Array = NDArray[np.float64]

_QUANTILES = ndtri((np.arange(2000) + 0.5) / 2000)


@dataclass(frozen=True)
class StandIn:
    """Tables with the declared columns, in which a linear model without privacy has some score.

    Normal variables, of one correlation with each other, decide on the cells of a row: a number is
    about the middle of its bounds, which are four standard deviations away, and the k-th of several
    categories has a frequency in proportion to 1 / k. The signal z, a sum of the encoded columns
    with normal weights, is divided by its standard deviation.
    """

    columns: dict[str, Any]  # bounds, categories or `bool`
    encoder: PublicEncoder | None
    is_raw: bool  # whether the estimator takes the table as it is before the encoder
    correlation: float
    target: Callable[[Array, np.random.Generator], Any]  # of signals

    def table(self, n: int, rng: np.random.Generator) -> tuple[Any, Any, Array]:
        """X and y of n rows, and z, the best linear prediction up to scale and shift."""
        common = math.sqrt(self.correlation) * rng.standard_normal(n)
        own = math.sqrt(1 - self.correlation)
        cells = {
            name: _cells(declared, common + own * rng.standard_normal(n))
            for name, declared in self.columns.items()
        }
        if self.encoder is None:
            X: Any = np.column_stack(list(cells.values()))
            encoded = X
        else:
            raw = import_pandas("a stand-in with a schema").DataFrame(cells)
            encoded = self.encoder.transform(raw)
            X = raw if self.is_raw else encoded
        encoded = np.asarray(encoded.toarray() if issparse(encoded) else encoded)
        spread = encoded.std(axis=0)
        weights = rng.standard_normal(spread.size) / np.where(spread > 0, spread, 1.0)
        z = (encoded - encoded.mean(axis=0)) @ weights
        z /= z.std()
        return X, self.target(z, rng), z


def _cells(declared: Any, normal: Array) -> NDArray[Any]:
    if isinstance(declared, tuple):
        low, high = declared
        return np.clip((low + high) / 2 + (high - low) / 8 * normal, low, high)
    options = [False, True] if declared is bool else declared
    shares = np.cumsum(1 / np.arange(1, len(options) + 1))
    return np.array(options)[np.searchsorted(shares[:-1] / shares[-1], ndtr(normal))]


def stand_in(
    estimator: Any,
    features: Any,
    score: float,
    *,
    target: str = "normal",
    prevalence: float | None = None,
    correlation: float = 0.5,
) -> StandIn:
    """The tables for an estimator, of that many features or of a schema."""
    inner = getattr(estimator, "estimator", estimator)  # of a search
    last, of_classes = last_step(inner), is_classifier(estimator)
    least = 0.5 if of_classes else 0.0
    check_real("score_without_privacy", score, low=least, high=1, low_open=True, high_open=True)
    if isinstance(features, Mapping | PublicEncoder):
        encoder = features if isinstance(features, PublicEncoder) else PublicEncoder(features)
        found = fields_of(encoder.schema, encoder.missing, encoder.unknown)
        columns = {field.name: field.declared for field in found}
    else:
        encoder, size = None, check_count("n_features", features)
        declared = declared_bounds(getattr(last, "bounds_X", None), size).bounds
        ends = check_feature_bounds((-1, 1) if declared is None else declared, size)
        low, high = (np.broadcast_to(end, size) for end in ends or ())
        columns = {f"x{k}": (low[k], high[k]) for k in range(size)}
    if prevalence is None:
        prevalence = 0.5 if of_classes else 0.1
    check_real("prevalence", prevalence, low=0, high=1, low_open=True, high_open=True)
    law = (
        _labels(last, score, prevalence)
        if of_classes
        else _numbers(last, score, target, prevalence)
    )
    check_real("correlation", correlation, low=0, high=1, high_open=True)
    return StandIn(columns, encoder, isinstance(inner, Pipeline), correlation, law)


def _numbers(last: Any, r2: float, target: str, share: float) -> Callable[..., Any]:
    """Normal, lognormal, or 0 but for a share of gamma amounts; in the bounds of the target."""
    check_choice("target", target, ("normal", "skewed", "zeros"))
    ends = check_target_bounds(getattr(last, "bounds_y", None)) or (-1.0, 1.0)
    low, high = (float(np.ravel(end)[0]) for end in ends)
    if target == "normal":
        middle, unit = (low + high) / 2, (high - low) / 8
        signal, error = unit * math.sqrt(r2), unit * math.sqrt(1 - r2)
        return lambda z, rng: middle + signal * z + error * rng.standard_normal(z.size)
    unit = (high - low) / 40  # a standard deviation: tails are long
    if target == "skewed":
        # exp(s z + t e) has R2 = s^2 / (exp(s^2 + t^2) - 1); of s^2 + t^2 s^2 is the part R2^(1/2)
        log_variance = float(brentq(lambda v: math.expm1(v) / v - r2**-0.5, 1e-9, 100.0))
        signal = math.sqrt(log_variance * math.sqrt(r2))
        error = math.sqrt(log_variance - signal**2)
        unit /= math.exp(log_variance / 2) * math.sqrt(math.expm1(log_variance))
        return lambda z, rng: low + unit * np.exp(signal * z + error * rng.standard_normal(z.size))
    # Amounts are gamma of shape 2: their mean is 2, and their mean square 6
    variance = 6 * share - 4 * share**2

    def score_at(strength: float) -> float:
        p = expit(_log_odds(strength, share))
        return float(4 * np.mean(p * _QUANTILES) ** 2 / variance)

    slope, shift = _found(score_at, r2, share)
    unit /= math.sqrt(variance)

    def amounts(z: Array, rng: np.random.Generator) -> Array:
        is_some = rng.random(z.size) < expit(shift + slope * z)
        return low + unit * is_some * rng.gamma(2.0, size=z.size)

    return amounts


def _labels(last: Any, auc: float, share: float) -> Callable[..., Any]:
    """Of two classes, the second of this frequency, with log-odds that are linear in z."""
    classes = np.unique(last.classes) if last.classes is not None else ()
    if len(classes) != 2:
        raise ValueError("a score can be foretold for regressions and for two declared classes")

    def score_at(strength: float) -> float:
        p = expit(_log_odds(strength, share))
        below = np.cumsum(1 - p) - (1 - p) / 2  # of the first class, with lower signals
        return float(p @ below / (p.sum() * (1 - p).sum()))

    slope, shift = _found(score_at, auc, share)
    return lambda z, rng: classes[(rng.random(z.size) < expit(shift + slope * z)).astype(int)]


def _log_odds(strength: float, share: float) -> Array:
    """Linear in normal signals, with this mean probability."""

    def excess(shift: float) -> float:
        return float(expit(shift + strength * _QUANTILES).mean()) - share

    most = 40.0 + 5 * strength
    return np.asarray(brentq(excess, -most, most) + strength * _QUANTILES)


def _found(score_at: Callable[[float], float], score: float, share: float) -> tuple[float, float]:
    """Slope and intercept of log-odds that give the score."""
    strongest = 100.0
    if score_at(strongest) <= score:
        raise ValueError(
            f"score_without_privacy={score:g} is more than a linear model reaches on such targets, "
            f"{score_at(strongest):.3g}: say less, or another target or prevalence"
        )
    strength = float(brentq(lambda b: score_at(b) - score, 0.0, strongest))
    return strength, float(_log_odds(strength, share).mean())
