"""Public stand-ins for private tables, and fits on them, which no budget pays for.

Stand-ins are made of declared bounds and of an assumed score alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import issparse
from scipy.special import ndtr
from sklearn.base import clone, is_classifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline

from .._checks import (
    check_bool,
    check_choice,
    check_count,
    check_real,
    check_share,
    import_pandas,
    listed,
    unwarned,
    warn_user,
)
from .._types import Array
from ..data.bounds import check_feature_bounds, check_target_bounds
from ..data.cells import check_in_memory
from ..exceptions import PrivacyLeakWarning
from ..model_selection.private_steps import last_step, private_last, private_steps
from ..preprocessing.declared import declared_bounds
from ..preprocessing.encoder import PublicEncoder, encoders_of
from ..privacy.accountant import accountant_in_force
from ..solvers.statistics import TINY

N_NEW = 10_000  # rows on which fits are scored
_LOG_SPREAD = 1.1  # of skewed targets
_STRONGEST = 100.0
# few columns, whose shapes do not average out, are also tried with long tails and as rare flags, by
# which labels cannot have a high score; one column is a flag, the hardest shape, twice as often
_N_SHAPES, _RARE = {1: 4, 2: 3}, 1.9  # of 3 in 100 rows


def _cells(
    columns: dict[str, Any], correlation: float, n_shapes: int, n: int, rng: Any
) -> dict[str, Any]:
    """So many cells of each column, by its bounds, its categories or `bool`."""
    common = math.sqrt(correlation) * rng.standard_normal(n)
    own = math.sqrt(1 - correlation)
    cells = {}
    for name, declared in columns.items():
        normal = common + own * rng.standard_normal(n)
        if isinstance(declared, tuple):
            low, high = declared
            is_rare = normal > _RARE
            shapes = 0.5 + normal / 8, np.exp(normal) / 80, is_rare, is_rare
            cells[name] = low + (high - low) * np.clip(shapes[rng.integers(n_shapes)], 0, 1)
        else:
            options = [False, True] if declared is bool else declared
            shares = np.cumsum(1 / np.arange(1, len(options) + 1))
            places = np.searchsorted(shares[:-1] / shares[-1], ndtr(normal))
            cells[name] = np.array(options)[places]
    return cells


def _columns(estimator: Any, features: Any) -> tuple[dict[str, Any], Any, bool]:
    """What is declared of the columns, their encoder, and whether fits take the table before it."""
    inner = getattr(estimator, "estimator", estimator)  # of a search
    is_raw = isinstance(inner, Pipeline)
    if isinstance(features, Mapping | PublicEncoder):
        encoder = features if isinstance(features, PublicEncoder) else PublicEncoder(features)
        return {field.name: field.declared for field in encoder._fields()}, encoder, is_raw
    size = check_count("n_features", features)
    given = getattr(model_of(estimator), "bounds_X", None)
    has_names = isinstance(given, Mapping)
    if is_raw and (has_names or any(one for _, s in inner.steps for one in encoders_of(s))):
        raise ValueError(
            "this pipeline takes tables with names of columns: give the encoder or its schema "
            "in the place of n_features, as rows_needed(pipe, encoder, ...)"
        )
    declared, _ = declared_bounds(given, size)
    ends = check_feature_bounds((-1, 1) if declared is None else declared, size) or ()
    names: Any = given if has_names else [f"x{k}" for k in range(size)]
    pairs = zip(*(np.broadcast_to(end, size).tolist() for end in ends), strict=True)
    columns = dict(zip(names, pairs, strict=True))
    if has_names:  # the estimator takes a frame
        return columns, PublicEncoder(columns), True
    return columns, None, is_raw


def stand_in(
    estimator: Any,
    features: Any,
    score: float,
    assumptions: Mapping[str, Any],
    *,
    is_safe: bool = False,
) -> tuple[int, Callable[[int, int | None], tuple[Any, Any, Array]]]:
    """Tables with the declared columns, in which a linear model without privacy has some score.

    For an estimator, of that many features or of a schema: the number of columns, and what makes
    X, y and the best linear prediction z for a number of rows and a seed.

    Normal variables, of one correlation with each other, decide on the cells of a row: a number is
    about the middle of its bounds, which are four standard deviations away, and the k-th of several
    categories has a frequency in proportion to 1 / k. If `is_safe`, of one or two columns a number
    is in some tables log-normal from the lower end on, or for R2 a flag of 3 in 100 rows. The
    signal z, a sum of the encoded columns with normal weights, is divided by its standard
    deviation. Each of several classes has such a signal, and is about as frequent as any other.
    """
    facts: dict[str, Any] = {"target": "normal", "prevalence": None, "correlation": 0.5}
    if unknown := [name for name in assumptions if name not in facts]:
        raise TypeError(
            f"{listed(unknown)} cannot be assumed for a score, but {', '.join(facts)} can. It is "
            "R2, of two classes the area under the ROC curve, of more the accuracy"
        )
    facts |= assumptions
    correlation = check_real("correlation", facts["correlation"], low=0, high=1, high_open=True)
    last = model_of(estimator)
    scoring, _ = scoring_of(last)
    shareless = scoring == "r2" and facts["target"] in ("normal", "skewed")
    is_useless = {"target": scoring != "r2", "prevalence": scoring == "accuracy" or shareless}
    if found := [name for name in assumptions if is_useless.get(name)]:
        raise TypeError(f"{found[0]} has no effect on the score of this model and target")
    columns, encoder, is_raw = _columns(estimator, features)
    draw, n_signals = _targets(last, score, facts["target"], facts["prevalence"])

    n_shapes = 1
    if is_safe:
        n_shapes = min(_N_SHAPES.get(len(columns), 1), 4 if scoring == "r2" else 2)

    def table(n: int, seed: int | None) -> tuple[Any, Any, Array]:
        rng = np.random.default_rng(seed)
        cells = _cells(columns, correlation, n_shapes, n, rng)
        if encoder is None:
            X: Any = np.column_stack(list(cells.values()))
            encoded = X
        else:
            X = import_pandas("a stand-in with a schema").DataFrame(cells)
            encoded = encoder.transform(X)
            X = X if is_raw else encoded
        encoded = np.asarray(encoded.toarray() if issparse(encoded) else encoded)
        spread = encoded.std(axis=0)[:, None]
        z = encoded @ (rng.standard_normal((spread.size, n_signals)) / (spread + TINY))
        z = np.squeeze((z - z.mean(axis=0)) / z.std(axis=0))
        return X, draw(z, rng), z

    return len(columns), table


def _targets(
    last: Any, score: float, target: str, share: float | None
) -> tuple[Callable[..., Any], int]:
    """What draws labels, or numbers in the bounds of the estimator, by how many signals."""
    if hasattr(last, "bounds_exposure"):
        raise ValueError(
            "no score is foretold of models of counts and costs, whose means may be anywhere in "
            "bounds_y: draw PrivacyUtilityDisplay.from_estimator with a table that you simulate"
        )
    check_choice("target", target, ("normal", "skewed", "zeros"))
    scoring, least = scoring_of(last)
    check_real("score_without_privacy", score, low=least, high=1, low_open=True, high_open=True)
    is_labels = scoring != "r2"
    share = (0.5 if is_labels else 0.1) if share is None else share
    check_share("prevalence", share)
    if is_labels:
        classes = _classes(last)
        n_signals = len(classes) if scoring == "accuracy" else 1
        law = _law("labels", n_signals, share, 0.0, 1.0, score)
        return lambda z, rng: classes[law(z, rng)], n_signals
    ends = check_target_bounds(getattr(last, "bounds_y", None))
    low, high = (-1.0, 1.0) if ends is None else (float(np.ravel(end)[0]) for end in ends)
    return _law(target, 1, share, low, high, score), 1


def _classes(last: Any) -> Any:
    return np.arange(2) if last.classes is None else np.unique(last.classes)


def scoring_of(model: Any) -> tuple[str, float]:
    """What a model is scored by, and the score of a constant."""
    last = model_of(model)
    if not is_classifier(last):
        return "r2", 0.0
    n_classes = len(_classes(last))
    return "roc_auc" if n_classes == 2 else "accuracy", 1 / n_classes


@functools.cache
def _law(
    kind: str, n_signals: int, share: float, low: float, high: float, score: float
) -> Callable[..., Any]:
    """What makes targets of signals: labels 0, 1, ..., or numbers, in which signals have the score.

    `share` is that of labels that are 1, or for "zeros" of numbers that are not 0.
    """

    def draw(strength: float, z: Array, rng: np.random.Generator) -> Any:
        if z.ndim == 2:  # of several classes
            return (strength * z + rng.gumbel(size=z.shape)).argmax(axis=1)
        if kind in ("labels", "zeros"):
            latent = strength * z + rng.logistic(size=z.size)
            is_some = latent > np.quantile(latent, 1 - share)
            if kind == "labels":
                return is_some.astype(int)
            y = is_some * rng.gamma(2.0, size=z.size)
        else:
            y = (strength * z + rng.standard_normal(z.size)) / math.hypot(strength, 1)
            if kind == "normal":
                return np.clip((low + high) / 2 + (high - low) / 8 * y, low, high)
            y = np.exp(_LOG_SPREAD * y)
        return low + (high - low) * np.clip(y / (40 * y.std()), 0, 1)  # with room for a long tail

    def excess(strength: float) -> float:
        rng = np.random.default_rng(0)
        z = np.squeeze(rng.standard_normal((100_000, n_signals)))
        return best_score(kind == "labels", draw(strength, z, rng), z) - score

    if excess(_STRONGEST) < 0:
        raise ValueError(
            f"score_without_privacy={score:g} is more than a linear model reaches on such targets, "
            f"which is {score + excess(_STRONGEST):.2g}: say less, or another target"
        )
    return functools.partial(draw, float(brentq(excess, 0.0, _STRONGEST, xtol=1e-3)))


def model_of(estimator: Any) -> Any:
    """What predicts in the end: of a pipeline its last step, and of a search what it fits."""
    last = last_step(estimator)
    return model_of(last.estimator) if hasattr(last, "estimator") else last


def best_score(is_labels: bool, y: Any, z: Array) -> float:
    """Of predictions z but for scale and shift: R2, the area under the ROC curve, or accuracy."""
    if z.ndim == 2:
        return float(np.mean(np.unique(y)[z.argmax(axis=1)] == y))
    return float(roc_auc_score(y, z) if is_labels else np.corrcoef(y, z)[0, 1] ** 2)


# ------------------------------------------------------------------------- fits


def check_public(what: str, X: Any, estimator: Any, data_is_public: bool) -> None:
    """Warn unless the data are said to be public; raise if a fit would be charged."""
    check_in_memory(what, X)
    last = private_last(model_of(estimator), f"{what} takes a private estimator or search")
    if getattr(last, "bounds_exposure", None) is not None:
        raise ValueError(f"{what} fits without exposure: set bounds_exposure=None, and take counts")
    own = (step.accountant for step in private_steps(estimator).values())
    if accounts := [found for found in (accountant_in_force(None), *own) if found is not None]:
        relation, rows = accounts[0].budget.relation, accounts[0].max_rows_per_user
        raise ValueError(
            f"{what} fits many times, on public or synthetic data that need no budget, and an "
            "accountant would be charged for each fit: leave its block, and give a "
            f"clone(estimator).set_params(accountant=None, relation={relation!r}, "
            f"max_rows_per_user={rows})"
        )
    if not check_bool("data_is_public", data_is_public):
        warn_user(
            f"{what} shows what no guarantee covers, such as un-noised scores: use it on public or "
            "synthetic data, and say data_is_public=True",
            PrivacyLeakWarning,
        )


def _budgeted_steps(estimator: Any) -> dict[str, Any]:
    """The private steps that are not inside of another one, by the prefix of their parameters."""
    steps = private_steps(estimator)
    return {
        prefix: step
        for prefix, step in steps.items()
        if not any(prefix != outer and prefix.startswith(outer) for outer in steps)
    }


def groups_of(estimator: Any, n: int) -> dict[str, Any]:
    """What tells a fit to n rows whose they are: of each user as many as may count, in order."""
    most = {prefix: step._rows_per_user for prefix, step in _budgeted_steps(estimator).items()}
    return {f"{prefix}groups": np.arange(n) // rows for prefix, rows in most.items() if rows > 1}


def check_one_budget(estimator: Any) -> None:
    """Raise `ValueError` if no one epsilon is that of the whole."""
    if len(budgeted := _budgeted_steps(estimator)) > 1:
        raise ValueError(
            f"several steps have a budget ({', '.join(sorted(budgeted))}), so that epsilon "
            "would not be that of the whole: put the pipeline into a DPGridSearchCV, which has "
            "one for all"
        )


def clones_of(estimator: Any, random_state: Any, settings: Sequence[dict[str, Any]]) -> list[Any]:
    """Clones whose private steps have these settings, and noise of their own."""
    seeds: list[int | None] = [None] * len(settings)  # noise that nobody knows
    if random_state is not None:
        seeds = np.random.default_rng(random_state).integers(2**31, size=len(settings)).tolist()
    steps = _budgeted_steps(estimator)
    clones = []
    for seed, given in zip(seeds, settings, strict=True):
        own = {"random_state": seed, **given}
        params = {f"{prefix}{name}": own[name] for prefix in steps for name in own}
        with unwarned():  # the seed is the one that was asked for
            clones.append(clone(estimator).set_params(**params))
    return clones
