"""Fitting an estimator, or running a solver, many times on each of two neighbouring tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.base import clone

from .._checks import check_int, check_share, unwarned
from .._fitting import relation_of, rows_of
from .._progress import check_verbose, progress_bar
from .._types import Array
from ..data.rows import SolverData
from ..privacy.accountant import accountant_in_force
from ..privacy.budget import PrivacyBudget, check_delta, default_delta, size_epsilon
from ..randomness.stream import RandomStream, stream_from_random_state
from ..solvers.base import Plan
from .neighbours import Pair, check_pairs, differing_rows
from .outcomes import LEAST_TRIALS, AuditResult, audit_outcomes, finite_claim
from .replay import Run, mechanisms, replay

_CLOSE = 0.9  # a bound this close to its estimate has little left to gain
_LEAST_CHANGE = 0.1  # of the sensitivity: releases that change less say nothing of the cost
_SMALLEST, _LARGEST = 1e-9, 1e9  # factors on the noise that are told apart
# how many times too large the scale under test may be: fine where errors are small
_FACTORS = np.array([*2 ** (np.arange(1, 9) / 8), 4.0, 8.0, 16.0, 64.0, 256.0, 65536.0])
_LOG_FACTORS = np.log(_FACTORS)


def audit(
    estimator: Any,
    data: tuple[Any, Any],
    neighbour: tuple[Any, Any],
    n_trials: int = 5000,
    *,
    statistic: Callable[[Any], float] | None = None,
    claim: tuple[float, float] | None = None,
    confidence: float = 0.9999,
    random_state: Any = None,
    verbose: Any = 0,
) -> AuditResult:
    """Fit an estimator many times on each of two neighbours and bound its epsilon from below.

    Parameters
    ----------
    estimator : estimator
        With the interface of scikit-learn; clones of it are fitted, and its `accountant` is not
        charged. (Within the block of one, an audit is an error.)
    data, neighbour : pair (X, y)
        Two invented tables of the same shape that differ in one record, or in as many as the
        estimator's `max_rows_per_user`. The more they change the model, the better the bounds: take
        few records, and one in a corner of the bounds against its mirror image or other label.
    n_trials : int >= 20, default=5000
        Fits of each table. No epsilon above about log(n_trials / 30) can be shown.
    statistic : callable or None, default=None
        Maps a fitted estimator to a number. None projects `coef_` and `intercept_` on a direction
        chosen by the first fifth of the trials (see `audit_outcomes`).
    claim : pair (epsilon, delta) or None, default=None
        For tables that differ in one record. None reads the parameters `epsilon`, `delta` (absent:
        0) and `relation`; "zero-out" counts as the (2 epsilon, (1 + e^epsilon) delta) that it
        implies. Where `guarantee_` counts Gaussian releases only, the Gaussian bound decides.
    confidence : float in (0, 1), default=0.9999
    random_state : None, int or RandomState, default=None
        None fits with ``random_state=None``; otherwise each fit gets a seed derived from it.
    verbose : int >= 0 or bool, default=0
        From 1 on, a bar on standard error counts the fits (needs tqdm).

    Raises
    ------
    ValueError
        Before any fit, if a parameter is wrong or the tables are not neighbours; after one, if the
        outcome is not a finite number, or there is no `coef_` and no `statistic`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPLassoFW
    >>> from sklearn_dpsco.audit import audit
    >>> X, y = np.zeros((20, 1)), np.tile([1.0, -1.0], 10)
    >>> X[:2], other = 1, y.copy()
    >>> other[0] = -1
    >>> model = DPLassoFW(epsilon=4, bounds_X=(-1, 1), bounds_y=(-1, 1))
    >>> audit(model, (X, y), (X, other), 20, random_state=0).flagged  # of few trials: a smoke test
    False
    """
    _check_trials(n_trials, statistic, confidence, verbose)
    if not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        raise ValueError(f"estimator must have fit and get_params, got {estimator!r}")
    if accountant_in_force(None) is not None:
        raise ValueError(
            "the block of an accountant is open, to which every fit of an audit would be charged: "
            "audit outside of it, before real data are used"
        )
    parameters = estimator.get_params()
    fixed: dict[str, Any] = dict.fromkeys({"accountant", "random_state"} & parameters.keys())
    # is left out, and what it says is kept
    account = accountant_in_force(parameters.get("accountant"))
    if parameters.get("relation") == "auto":
        fixed["relation"] = relation_of("auto", account)
    most = rows_of(parameters.get("max_rows_per_user", 1), account)
    if "max_rows_per_user" in parameters:
        fixed["max_rows_per_user"] = most
    for name, table in (("data", data), ("neighbour", neighbour)):
        if not isinstance(table, tuple) or len(table) != 2:
            raise ValueError(f"{name} must be a pair (X, y), got {type(table).__name__}")
        if len(np.shape(table[0])) != 2 or np.shape(table[1]) != np.shape(table[0])[:1]:
            raise ValueError(f"{name} must have X of shape (n, d) and y of shape (n,)")
    if np.shape(data[0]) != np.shape(neighbour[0]):
        raise ValueError("data and neighbour must have the same shape")
    differs = differing_rows(data[0], neighbour[0])
    differs = differs | (np.asarray(data[1]) != np.asarray(neighbour[1]))
    if np.count_nonzero(differs) > most:
        rows = "one row" if most == 1 else f"{most} rows, the estimator's max_rows_per_user"
        raise ValueError(f"data and neighbour must differ in at most {rows}")
    claim = _claim(parameters | fixed, claim, len(data[1]))
    if random_state is not None and "random_state" not in parameters:
        raise ValueError("random_state was given, but the estimator has no such parameter")
    start = int(stream_from_random_state(random_state).words(1)[0] % np.uint64(2**31))

    def run(side: int, k: int) -> Any:
        seed = (start + side * n_trials + k) % 2**32
        seeded = {} if random_state is None else {"random_state": seed}
        with unwarned():  # the seeds are those that were asked for
            model = clone(estimator).set_params(**fixed | seeded)
        model.fit(*(data, neighbour)[side])
        if statistic is None and not hasattr(model, "coef_"):
            raise ValueError(f"{type(model).__name__} has no coef_: give a statistic")
        return getattr(model, "guarantee_", None), model

    of_result = "coef_", "intercept_"
    return _audited(run, statistic, of_result, n_trials, verbose, claim, confidence)


def audit_plan(
    plan: Plan,
    data: SolverData,
    neighbour: SolverData,
    n_trials: int = 5000,
    *,
    statistic: Callable[[Any], float] | str | None = None,
    confidence: float = 0.9999,
    random_state: Any = None,
    verbose: Any = 0,
) -> AuditResult:
    """`audit` of one plan, without an estimator around it.

    Parameters
    ----------
    plan : Plan
        For one model. The claim is that of its guarantee.
    data, neighbour : SolverData
        Neighbours under the relation of the plan; an empty record has scale 0.
    n_trials : int >= 20, default=5000
        Runs of each table; with "releases" at most.
    statistic : callable, "releases" or None, default=None
        Maps a `SolverResult` to a number; None as in `audit`. "releases" looks at all releases of a
        run instead of its result: each run is replayed on the other table with the same answers,
        and the noise is measured along the differences. It needs a plan of Gaussian noise only. It
        stops as soon as the claim is refuted, or the bound is within a tenth of what it estimates:
        after about 120 releases if the noise is too small by sqrt 2, at most about 1,500 otherwise,
        with false alarms as rare as ever. The bound on mu assumes that the scales of the noise have
        the plan's proportions, and is of the costliest run that was seen.
    confidence, random_state, verbose
        As in `audit`; "releases" shows nothing.

    Raises
    ------
    ValueError
        As `audit`. With "releases", if one is not Gaussian, or their number depends on the data.

    Examples
    --------
    >>> from sklearn_dpsco import DPMirrorRegressor
    >>> from sklearn_dpsco.audit import audit_plan, neighbours
    >>> from sklearn_dpsco.solvers import NoisyMD
    >>> model = DPMirrorRegressor(bounds_X=(0, 1), bounds_y=(0, 1), solver=NoisyMD(max_iter=3))
    >>> plan = model.plan(n_samples=12, n_features=2)
    >>> pair = neighbours(plan.problem, "replace-one", n_pairs=1)[0]
    >>> audit_plan(plan, *pair, 100, random_state=0).flagged
    False
    """
    by_releases = isinstance(statistic, str) and statistic == "releases"
    _check_trials(n_trials, None if by_releases else statistic, confidence, verbose)
    guarantee = plan.guarantee
    claim = guarantee.epsilon, guarantee.delta
    finite_claim(*claim)
    check_pairs(plan, [(data, neighbour)])
    root = stream_from_random_state(random_state)
    if by_releases:
        return _audit_releases(plan, (data, neighbour), n_trials, confidence, root)

    def run(side: int, k: int) -> Any:
        return guarantee, plan.run((data, neighbour)[side], root.substream(side, k))

    of_result = "coef", "intercept"
    return _audited(run, statistic, of_result, n_trials, verbose, claim, confidence)


def _audited(
    run: Any, statistic: Any, names: Any, n_trials: int, verbose: Any, claim: Any, confidence: float
) -> AuditResult:
    """The audit of what `run(side, k)` gives for both sides: its guarantee and its result.

    `names` are those of the coefficients and the intercept of a result.
    """
    sides: list[Array] = []
    with progress_bar(verbose, 2 * n_trials, "run", "audit") as bar:
        for side in (0, 1):
            outcomes = []
            for k in range(n_trials):
                guarantee, result = run(side, k)
                if statistic is None:
                    coef, intercept = (getattr(result, name, 0.0) for name in names)
                    value = np.append(coef, intercept)  # flattened
                elif np.size(value := statistic(result)) != 1:
                    shape = np.shape(value)
                    raise ValueError(f"statistic must return one number, got shape {shape}")
                outcomes.append(np.ravel(value))
                bar.update(1)
            sides.append(np.array(outcomes, dtype=np.float64))
    epsilon, delta = claim
    releases = getattr(guarantee, "releases", ())
    is_sampled = bool(releases) and guarantee.composition in ("pld", "renyi")
    gaussian = delta > 0 and len(releases) > 0 and not is_sampled
    if gaussian and guarantee.composition != "gdp":
        gaussian = all(release.mechanism.noise_multiplier is not None for release in releases)
    facts: Any = {"epsilon": epsilon, "delta": delta, "gaussian": gaussian}
    return audit_outcomes(*sides, **facts, confidence=confidence)


# ----------------------------------------------------- the releases of a plan of Gaussian noise


def evidence(log_scale: float, n_draws: int, energy: float, alpha: float) -> float:
    r"""How far draws of :math:`N(0, \kappa^2)` rule a scale out; from 0 on, they do.

    `energy` is the sum of their squares. Returned is log(alpha m), m the mean of likelihood ratios
    for several factors on the scale, which grows with the scale. At the true one m is a martingale
    of mean 1: it ever exceeds 1 / alpha with probability at most alpha (doc/privacy, section 9.3).
    """
    power = energy / (2 * math.exp(2 * log_scale))
    ratios = n_draws * _LOG_FACTORS - power * (_FACTORS**2 - 1)
    top = float(ratios.max())
    return top + math.log(float(np.exp(ratios - top).mean()) * alpha)


def upper_bound(*seen: Any) -> float:
    """Upper confidence bound on kappa, valid at any time: the least scale that is ruled out."""
    low, high = math.log(_SMALLEST), math.log(_LARGEST)
    if evidence(high, *seen) < 0:
        return math.inf
    if evidence(low, *seen) >= 0:
        return _SMALLEST
    return math.exp(float(brentq(evidence, low, high, args=seen))) * (1 + 1e-9)


def _transcript(plan: Plan, pair: Pair, stream_of: Callable[[], Any]) -> tuple[float, float, Array]:
    """Of a run and its replay on the other table: what it tells of which is which.

    Returns the log-likelihood ratio of the run's table to the other one and mu^2 of the releases,
    both by the stated noise, and the noise along each difference, over the stated scale.
    """
    run = Run(0, "own")
    other_run = Run(0, "own", answers=run.answers)
    for data, of_table in zip(pair, (run, other_run), strict=True):
        replay(plan, data, of_table, stream_of())
    loss, cost, draws = 0.0, 0.0, []
    for name, mechanism in mechanisms(plan).items():
        first, second = run.values[name], other_run.values[name]
        if [v.shape for v in first] != [v.shape for v in second]:
            raise ValueError(
                f"how often {name} is released depends on the data: see check_sensitivity"
            )
        scale = mechanism.scale
        for value, other, answer in zip(first, second, run.answers[name], strict=True):
            change, noise = (other - value) / scale, (answer - value) / scale
            size = float(np.linalg.norm(change))
            cost += size**2
            loss += size**2 / 2 - float(change @ noise)
            if size * scale >= _LEAST_CHANGE * mechanism.sensitivity:
                draws.append(float(change @ noise) / size)
    return loss, cost, np.array(draws)


def _audit_releases(
    plan: Plan, pair: Pair, n_trials: int, confidence: float, root: RandomStream
) -> AuditResult:
    """See `audit_plan` with ``statistic="releases"``.

    A run on one table is followed by a replay on the other with the same answers, so that of every
    release the difference of the two values is known. Along it, the noise over the stated scale is
    N(0, kappa^2), with kappa = 1 if the plan is right (doc/privacy, section 9.3).
    """
    guarantee = plan.guarantee
    if not guarantee.delta > 0 or any(
        m.noise_multiplier is None or m.batches is not None or m.order != 2
        for m in mechanisms(plan).values()
    ):
        raise ValueError("statistic='releases' needs a plan whose noise is Gaussian throughout")
    claim = PrivacyBudget(guarantee.epsilon, guarantee.delta).mu
    n_draws, energy, largest = 0, 0.0, 0.0
    scores: tuple[list[float], list[float]] = ([], [])
    for k in range(2 * n_trials):
        side = k % 2
        tables = pair if side == 0 else (pair[1], pair[0])
        loss, cost, draws = _transcript(plan, tables, partial(root.substream, side, k // 2))
        scores[side].append(loss if side else -loss)  # of the neighbour against the table
        n_draws, energy = n_draws + draws.size, energy + float(draws @ draws)
        seen = n_draws, energy, 1 - confidence
        largest = max(largest, math.sqrt(cost))
        if n_draws:
            estimate = math.sqrt(energy / n_draws)
            scales = np.clip((largest / claim, estimate / _CLOSE), _SMALLEST, _LARGEST)
            if any(evidence(math.log(scale), *seen) >= 0 for scale in scales):
                break
    bound = largest / upper_bound(*seen)
    bounds = 0.0, size_epsilon("gdp", bound, guarantee.delta), bound
    claimed = guarantee.epsilon, guarantee.delta
    return AuditResult(*claimed, *bounds, "releases", confidence, *map(np.array, scores))


# ---------------------------------------------------------------------- checks


def _check_trials(n_trials: Any, statistic: Any, confidence: Any, verbose: Any) -> None:
    check_int("n_trials", n_trials, low=LEAST_TRIALS)
    if statistic is not None and not callable(statistic):
        raise ValueError(f"statistic must be None or callable, got {statistic!r}")
    check_share("confidence", confidence)
    check_verbose(verbose)


def _claim(parameters: dict[str, Any], claim: Any, n_samples: int) -> tuple[float, float]:
    """(epsilon, delta) for tables that differ in one record, or in the rows of a user."""
    if claim is None:
        if "epsilon" not in parameters:
            raise ValueError("the estimator has no parameter epsilon: give claim=(epsilon, delta)")
        given = check_delta(parameters.get("delta", 0.0))
        delta = default_delta(n_samples) if given is None else given
        claim = parameters["epsilon"], delta, parameters.get("relation", "replace-one")
    elif not isinstance(claim, tuple) or len(claim) != 2:
        raise ValueError(f"claim must be None or a pair (epsilon, delta), got {claim!r}")
    budget = finite_claim(*claim)
    if budget.relation == "replace-one":
        return budget.epsilon, budget.delta
    # two steps of zero-out, through the table in which the record contributes nothing
    delta = (1 + math.exp(min(budget.epsilon, 700.0))) * budget.delta
    if delta >= 1:
        raise ValueError("zero-out with this epsilon and delta claims nothing for two tables")
    return 2 * budget.epsilon, delta
