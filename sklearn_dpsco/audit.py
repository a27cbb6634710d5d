r"""Audits: can the outputs of a fit, or what it releases, betray a record more than claimed?

`audit` fits an estimator thousands of times on two tables that differ in one row and
turns how well the outcomes tell them apart into lower bounds on epsilon. It sees whatever
is wrong, noise that is too small included, but no more than some thousand runs can show:
about log(n_trials / 30). `audit_solver` does the same for a solver and its plan, in
seconds, and `audit_outcomes` for outcomes from anywhere.

`check_sensitivity` runs a solver on neighbours with the answers of its mechanisms frozen.
What still differs is what one record can change, so every release is compared with the
sensitivity that its noise was calibrated to. It is exact and fast, but takes the
mechanisms' own noise for granted.

Neither proves anything: a fault that the given tables do not provoke goes unseen.
Use invented tables. Whatever is shown of real ones is not private.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import brentq
from scipy.stats import beta, norm
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from ._checks import check_bool, check_choice, check_int, check_real
from ._linear import make_rows
from ._random import check_random_state, stream_from_random_state
from .accounting import RELATIONS, PrivacyBudget
from .mechanisms import Laplace, SelectVertex
from .solvers.base import Plan, Problem, Solver, SolverData

__all__ = [
    "AuditResult",
    "SensitivityResult",
    "audit",
    "audit_outcomes",
    "audit_solver",
    "check_sensitivity",
    "map_mechanisms",
    "mechanisms",
    "neighbours",
]

Array = NDArray[np.float64]
Pair = tuple[SolverData, SolverData]

_LEAST_TRIALS = 20
_PILOT = 5  # one trial in five chooses the direction that the others are projected on
_THRESHOLDS = 1001
_EXCESS = 1e-12  # relative float error of a replayed distance


# ------------------------------------------------------------------ bounds from outcomes


@dataclass(frozen=True, eq=False)
class AuditResult:
    r"""Lower bounds on epsilon, against the claim.

    Attributes
    ----------
    epsilon, delta : float
        The claim for tables that differ in one row.
    epsilon_lower_bound : float
        Bound on the epsilon at `delta` of whatever produced the outcomes. For a threshold
        with false positive rate a and false negative rate b, (epsilon, delta)-DP implies
        :math:`\epsilon \ge \log((1 - b - \delta) / a)` and the same with a and b
        exchanged. No other assumption.
    gaussian_epsilon_lower_bound : float
        As before, if the trade-off between a and b has the shape of Gaussian noise. Much
        sharper than the other bound where delta is small, and wrong for other shapes: pure
        epsilon-DP mechanisms may exceed their claim here. NaN for delta = 0.
    gaussian_mu_lower_bound : float
        The mu of Gaussian DP behind it, :math:`\Phi^{-1}(1 - a) - \Phi^{-1}(b)`.
    confidence : float
        Each bound holds with at least this probability.
    scores, neighbour_scores : ndarray of shape (n,)
        The numbers that the thresholds were set on, for the two tables.
    """

    epsilon: float
    delta: float
    epsilon_lower_bound: float
    gaussian_epsilon_lower_bound: float
    gaussian_mu_lower_bound: float
    confidence: float
    scores: Array = field(repr=False)
    neighbour_scores: Array = field(repr=False)

    @property
    def flagged(self) -> bool:
        """Whether `epsilon_lower_bound` exceeds the claim.

        If the claim is true, this happens with probability at most 1 - `confidence`.
        """
        return self.epsilon_lower_bound > self.epsilon

    def plot(self, ax: Any = None) -> Any:
        """Histograms of the two arrays of scores.

        Parameters
        ----------
        ax : matplotlib Axes or None

        Returns
        -------
        matplotlib Axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        bins = np.histogram_bin_edges(np.concatenate((self.scores, self.neighbour_scores)), 60)
        for scores, label in ((self.scores, "table"), (self.neighbour_scores, "neighbour")):
            ax.hist(scores, bins=bins, density=True, alpha=0.5, label=label)
        ax.set(
            xlabel="score", ylabel="density",
            title=f"epsilon >= {self.epsilon_lower_bound:.3g} "
            f"({self.gaussian_epsilon_lower_bound:.3g} if Gaussian), claim {self.epsilon:.3g}",
        )  # fmt: skip
        ax.legend()
        return ax


def audit_outcomes(
    outcomes: ArrayLike,
    neighbour_outcomes: ArrayLike,
    *,
    epsilon: float,
    delta: float = 0.0,
    confidence: float = 0.9999,
) -> AuditResult:
    """Lower bounds on epsilon from outcomes of independent runs on two neighbours.

    Half of the scores choose a threshold and its direction, one pair for each bound; the
    other half bound its two error rates by Clopper and Pearson, both at once.

    Parameters
    ----------
    outcomes, neighbour_outcomes : array-like of shape (n_trials,) or (n_trials, k)
        Finite. With k > 1, the first fifth of the trials chooses a direction (a linear
        discriminant with Ledoit-Wolf shrinkage) and the others are projected on it.
    epsilon, delta : float
        The claim.
    confidence : float in (0, 1), default=0.9999

    Returns
    -------
    AuditResult

    Raises
    ------
    ValueError
        If a parameter is out of range, or the shapes differ or have fewer than 20 trials.
    """
    claim = PrivacyBudget(epsilon, delta)
    _check_confidence(confidence)
    first, second = (
        np.asarray(values, dtype=np.float64) for values in (outcomes, neighbour_outcomes)
    )
    if first.ndim not in (1, 2) or first.shape != second.shape or len(first) < _LEAST_TRIALS:
        raise ValueError(
            "outcomes and neighbour_outcomes must be arrays of one shape (n_trials,) or "
            f"(n_trials, k) with n_trials >= {_LEAST_TRIALS}, got {first.shape} and {second.shape}"
        )
    if not (np.all(np.isfinite(first)) and np.all(np.isfinite(second))):
        raise ValueError("outcomes must be finite")
    first, second = _scores(first, second)

    def gap(a: Array, b: Array) -> Array:
        return norm.isf(a) - norm.ppf(b)

    def log_ratio(a: Array, b: Array) -> Array:
        power = np.maximum(1 - delta - np.stack((b, a)), 1e-300)
        return np.log(power / np.stack((a, b))).max(axis=0)

    mu = max(0.0, _best_bound(first, second, gap, confidence))
    return AuditResult(
        epsilon=claim.epsilon, delta=claim.delta,
        epsilon_lower_bound=max(0.0, _best_bound(first, second, log_ratio, confidence)),
        gaussian_epsilon_lower_bound=_epsilon_of_mu(mu, delta),
        gaussian_mu_lower_bound=mu, confidence=confidence,
        scores=first, neighbour_scores=second,
    )  # fmt: skip


def _check_confidence(confidence: Any) -> None:
    check_real("confidence", confidence, low=0, high=1, low_open=True, high_open=True)


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


def _epsilon_of_mu(mu: float, delta: float) -> float:
    """Epsilon of mu-Gaussian-DP at `delta`; NaN if delta is 0."""
    if delta == 0:
        return math.nan

    def excess(epsilon: float) -> float:
        return PrivacyBudget(epsilon, delta).mu - mu

    low, high = 1e-6, 1.0
    if excess(low) >= 0:
        return 0.0
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, low, high))


# ------------------------------------------------------------------------- running things


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
    progress: bool = False,
) -> AuditResult:
    """Fit an estimator many times on each of two neighbours and bound its epsilon from below.

    Parameters
    ----------
    estimator : estimator
        With the interface of scikit-learn; clones of it are fitted, and an `accountant`
        among its parameters is not charged.
    data, neighbour : pair (X, y)
        Two invented tables of the same shape that differ in one row. The further that row
        moves the model, the sharper the bounds: few rows, a row in a corner of the bounds
        against its mirror image or its other label.
    n_trials : int >= 20, default=5000
        Fits of each table. No epsilon above about log(n_trials / 30) can be shown.
    statistic : callable or None, default=None
        Maps a fitted estimator to a number. None projects `coef_` and `intercept_` on a
        direction chosen by the first fifth of the trials (see `audit_outcomes`).
    claim : pair (epsilon, delta) or None, default=None
        For tables that differ in one row. None reads the parameters `epsilon`, `delta`
        (absent: 0) and `relation`; "zero-out" counts as the
        (2 epsilon, (1 + e^epsilon) delta) that it implies for such tables.
    confidence : float in (0, 1), default=0.9999
    random_state : None, int or RandomState, default=None
        None fits with ``random_state=None``. Otherwise each fit gets a seed of its own
        derived from it, and the audit is reproducible.
    progress : bool, default=False
        Whether to count the fits on standard error.

    Returns
    -------
    AuditResult

    Raises
    ------
    ValueError
        Before any fit, if a parameter is wrong or the tables are not neighbours. After a
        fit, if the outcome is not a finite number, or there is no `coef_` and no
        `statistic`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPLassoFW
    >>> from sklearn_dpsco.audit import audit
    >>> X, y = np.zeros((20, 1)), np.tile([1.0, -1.0], 10)
    >>> X[:2], other = 1, y.copy()
    >>> other[0] = -1
    >>> model = DPLassoFW(epsilon=4, bounds_X=(-1, 1), bounds_y=(-1, 1))
    >>> audit(model, (X, y), (X, other), 200, random_state=0).flagged
    False
    """
    _check_trials(n_trials, statistic, confidence, random_state, progress)
    if not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        raise ValueError(f"estimator must have fit and get_params, got {estimator!r}")
    parameters = estimator.get_params()
    budget = _claim(parameters, claim)
    tables = _tables(data, neighbour)
    if random_state is not None and "random_state" not in parameters:
        raise ValueError("random_state was given, but the estimator has no such parameter")
    start = int(stream_from_random_state(random_state).words(1)[0] % np.uint64(2**31))
    fixed = {"accountant": None} if "accountant" in parameters else {}

    def run(side: int, k: int) -> Any:
        settings: dict[str, Any] = dict(fixed)
        if "random_state" in parameters:
            seed = (start + side * n_trials + k) % 2**32
            settings["random_state"] = None if random_state is None else seed
        model = clone(estimator).set_params(**settings)
        model.fit(*tables[side])
        return _coefficients(model) if statistic is None else _number(statistic(model))

    return audit_outcomes(
        *_repeat(run, n_trials, progress),
        epsilon=budget[0], delta=budget[1], confidence=confidence,
    )  # fmt: skip


def audit_solver(
    solver: Solver,
    plan: Plan,
    data: SolverData,
    neighbour: SolverData,
    n_trials: int = 5000,
    *,
    statistic: Callable[[Any], float] | None = None,
    confidence: float = 0.9999,
    random_state: Any = None,
    progress: bool = False,
) -> AuditResult:
    """`audit` of ``solver.solve`` under one plan, without an estimator around it.

    Parameters
    ----------
    solver : Solver
    plan : Plan
        For one model. The claim is that of its guarantee.
    data, neighbour : SolverData
        Neighbours under the relation of the plan; an empty record is a row of scale 0.
    statistic : callable or None, default=None
        Maps a `SolverResult` to a number; None as in `audit`.
    n_trials, confidence, random_state, progress
        As in `audit`.

    Returns
    -------
    AuditResult

    Raises
    ------
    ValueError
        As `audit`.
    """
    _check_trials(n_trials, statistic, confidence, random_state, progress)
    _check_pairs(plan, [(data, neighbour)])
    if plan.problem.n_models != 1:
        raise ValueError(f"plan must be for one model, got one for {plan.problem.n_models}")
    root = stream_from_random_state(random_state)

    def run(side: int, k: int) -> Any:
        result = solver.solve((data, neighbour)[side], plan, root.substream(side, k))
        if statistic is not None:
            return _number(statistic(result))
        return np.append(result.coef, result.intercept)

    return audit_outcomes(
        *_repeat(run, n_trials, progress),
        epsilon=plan.guarantee.epsilon, delta=plan.guarantee.delta, confidence=confidence,
    )  # fmt: skip


def _check_trials(
    n_trials: Any, statistic: Any, confidence: Any, random_state: Any, progress: Any
) -> None:
    check_int("n_trials", n_trials, low=_LEAST_TRIALS)
    if statistic is not None and not callable(statistic):
        raise ValueError(f"statistic must be None or callable, got {statistic!r}")
    _check_confidence(confidence)
    check_random_state(random_state)
    check_bool("progress", progress)


def _claim(parameters: dict[str, Any], claim: Any) -> tuple[float, float]:
    """(epsilon, delta) for tables that differ in one row."""
    if claim is not None:
        if not isinstance(claim, tuple) or len(claim) != 2:
            raise ValueError(f"claim must be None or a pair (epsilon, delta), got {claim!r}")
        budget = PrivacyBudget(*claim)
    elif "epsilon" not in parameters:
        raise ValueError("the estimator has no parameter epsilon: give claim=(epsilon, delta)")
    else:
        budget = PrivacyBudget(
            parameters["epsilon"],
            parameters.get("delta", 0.0),
            parameters.get("relation", "replace-one"),
        )
    if budget.relation == "replace-one":
        return budget.epsilon, budget.delta
    # two steps, by way of the table in which the row contributes nothing
    delta = (1 + math.exp(min(budget.epsilon, 700.0))) * budget.delta
    if delta >= 1:
        raise ValueError("zero-out with this epsilon and delta claims nothing for two tables")
    return 2 * budget.epsilon, delta


def _tables(data: Any, neighbour: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    for name, table in (("data", data), ("neighbour", neighbour)):
        if not isinstance(table, tuple) or len(table) != 2:
            raise ValueError(f"{name} must be a pair (X, y), got {type(table).__name__}")
        if len(np.shape(table[0])) != 2 or np.shape(table[1]) != np.shape(table[0])[:1]:
            raise ValueError(f"{name} must have X of shape (n, d) and y of shape (n,)")
    if np.shape(data[0]) != np.shape(neighbour[0]):
        raise ValueError("data and neighbour must have the same shape")
    differs = _differing_rows(data[0], neighbour[0])
    differs = differs | (np.asarray(data[1]) != np.asarray(neighbour[1]))
    if np.count_nonzero(differs) > 1:
        raise ValueError("data and neighbour must differ in at most one row")
    return data, neighbour


def _differing_rows(first: Any, second: Any) -> NDArray[np.bool_]:
    if sparse.issparse(first) or sparse.issparse(second):
        rows = (sparse.csr_array(first) - sparse.csr_array(second)).tocoo()
        differs = np.zeros(rows.shape[0], dtype=bool)
        differs[rows.row[rows.data != 0]] = True
        return differs
    return np.any(np.asarray(first) != np.asarray(second), axis=1)


def _coefficients(model: Any) -> Array:
    if not hasattr(model, "coef_"):
        raise ValueError(f"{type(model).__name__} has no coef_: give a statistic")
    return np.append(np.ravel(model.coef_), np.ravel(getattr(model, "intercept_", 0.0)))


def _number(value: Any) -> float:
    if np.size(value) != 1:
        raise ValueError(f"statistic must return one number, got shape {np.shape(value)}")
    return float(np.ravel(value)[0])


def _repeat(run: Callable[[int, int], Any], n_trials: int, progress: bool) -> tuple[Array, Array]:
    """Outcomes of `run(side, k)` for both sides."""
    sides: list[Array] = []
    for side in (0, 1):
        outcomes = []
        for k in range(n_trials):
            outcomes.append(run(side, k))
            if progress and ((k + 1) % 100 == 0 or k + 1 == n_trials):
                done = side * n_trials + k + 1
                end = "\n" if done == 2 * n_trials else "\r"
                print(f"{done} of {2 * n_trials} runs", end=end, file=sys.stderr, flush=True)
        sides.append(np.array(outcomes, dtype=np.float64))
    return sides[0], sides[1]


# ------------------------------------------------------------------- sensitivity, replayed


@dataclass(frozen=True)
class SensitivityResult:
    """What one record was seen to change.

    Attributes
    ----------
    ratios : dict of str to float
        For every mechanism, by the name of the plan's field: the largest distance between
        what it was given on two neighbours, over its sensitivity. Infinite if the number
        of releases or their shape depends on the data.
    violations : dict of str to str
        What is wrong, by the name of the mechanism, or "result", or "groups". Empty if
        nothing is.
    """

    ratios: dict[str, float]
    violations: dict[str, str]


def map_mechanisms(plan: Any, change: Callable[[str, Any], Any]) -> Any:
    """The plan with each mechanism m of each field replaced by ``change(name, m)``.

    A mechanism is whatever has a method `release`. It is looked for in the fields of the
    plan and in their tuples, where its name is ``"field[0]"``.
    """

    def changed(name: str, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(changed(f"{name}[{i}]", item) for i, item in enumerate(value))
        return change(name, value) if hasattr(value, "release") else value

    values = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
    return dataclasses.replace(plan, **{name: changed(name, v) for name, v in values.items()})


def mechanisms(plan: Any) -> dict[str, Any]:
    """The mechanisms of a plan by name, see `map_mechanisms`."""
    found = {}

    def note(name: str, mechanism: Any) -> Any:
        found[name] = mechanism
        return mechanism

    map_mechanisms(plan, note)
    return found


@dataclass
class _Recorder:
    """Stands in for a mechanism: keeps what it is given, answers from a script.

    The first run writes the script: for vectors the value plus noise of its own size,
    every second one scaled by 100 if adversarial; for selections a random vertex.
    """

    mechanism: Any
    rng: np.random.Generator
    adversarial: bool
    script: list[Any] = field(default_factory=list)
    seen: list[Array] = field(default_factory=list)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.mechanism)  # so that isinstance says what it would say of it

    def __getattr__(self, name: str) -> Any:
        # what a solver reads off a mechanism besides, such as its scale
        return getattr(self.mechanism, name)

    def release(self, value: ArrayLike, _stream: Any) -> Any:
        self.seen.append(np.array(value, dtype=np.float64))
        if len(self.seen) > len(self.script):
            self.script.append(self._answer(self.seen[-1]))
        return self.script[len(self.seen) - 1]

    def _answer(self, value: Array) -> Any:
        if isinstance(self.mechanism, SelectVertex):
            return int(self.rng.integers(value.size))
        noise = self.rng.standard_normal(value.shape) * (np.abs(value).mean() + 0.1)
        return (value + noise) * (100 if self.adversarial and len(self.script) % 2 else 1)

    def rewind(self) -> list[Array]:
        """The values seen so far; the next run starts the script again."""
        seen, self.seen = self.seen, []
        return seen

    def distances(self, first: list[Array], second: list[Array]) -> list[float]:
        """Of every release, over the sensitivity and in the metric that it is stated in."""
        if [v.shape for v in first] != [v.shape for v in second]:
            return [math.inf]
        if getattr(self.mechanism, "is_joint", False) and first:
            # one sensitivity for the whole run
            first, second = ([np.concatenate(values)] for values in (first, second))
        distance = getattr(self.mechanism, "distance", None) or _metric(self.mechanism)
        return [
            float(distance(a - b)) / self.mechanism.sensitivity
            for a, b in zip(first, second, strict=True)
        ]


def _metric(mechanism: Any) -> Callable[[Array], Any]:
    if isinstance(mechanism, SelectVertex):
        return np.ptp
    return lambda change: np.linalg.norm(change, 1 if isinstance(mechanism, Laplace) else 2)


def check_sensitivity(
    solver: Solver, plan: Plan, pairs: Iterable[Pair] | None = None, *, random_state: int = 0
) -> SensitivityResult:
    """Replay a solver on neighbours and compare every release with its sensitivity.

    ``solver.solve`` runs on both tables of a pair with the plan's mechanisms replaced by
    recorders whose answers are the same for both: once near the values, once with every
    second vector 100 times too large. For each release, the distance of the two values (the
    range of the difference for `SelectVertex`, l1 for `Laplace`, else l2, or the method
    ``distance(difference)`` of the mechanism if it has one; a mechanism with a true
    `is_joint` counts all its releases of a run as one) must not exceed the
    sensitivity. The number of releases must not depend on the data, no more of them may
    depend on the record than the plan's guarantee counts, no two groups of releases that
    claim disjoint records may depend on the same one, and the two results must be
    equal, since whatever the recorders did not see was not released.

    Parameters
    ----------
    solver : Solver
    plan : Plan
        Its mechanisms are found by `map_mechanisms`.
    pairs : iterable of (SolverData, SolverData) or None, default=None
        Neighbours under the relation of the plan. None takes those of `neighbours`.
    random_state : int, default=0
        Decides the answers.

    Returns
    -------
    SensitivityResult

    Raises
    ------
    ValueError
        If a table has another shape than the plan, or the guarantee counts a mechanism that
        no field of the plan holds.
    """
    check_int("random_state", random_state, low=0)
    if pairs is None:
        pairs = neighbours(plan.problem, plan.budget.relation, random_state=random_state)
    pairs = list(pairs)
    _check_pairs(plan, pairs)
    found = mechanisms(plan)
    if any(all(r.mechanism is not m for m in found.values()) for r in plan.guarantee.releases):
        raise ValueError("the plan's guarantee counts a mechanism that is in no field of the plan")
    claimed = {
        name: sum(r.count for r in plan.guarantee.releases if r.mechanism is mechanism)
        for name, mechanism in found.items()
    }
    groups = {
        name: r.group
        for name, mechanism in found.items()
        for r in plan.guarantee.releases
        if r.mechanism is mechanism and r.group is not None
    }
    ratios, violations = dict.fromkeys(found, 0.0), {}
    rng = np.random.default_rng(random_state)
    for pair in pairs:
        for adversarial in (False, True):
            distances, results_agree = _replay(solver, plan, pair, rng, adversarial, random_state)
            if not results_agree:
                violations["result"] = "depends on the record beyond what was released"
            touched = {group for name, group in groups.items() if np.any(distances[name])}
            if len(touched) > 1:
                violations["groups"] = "releases on disjoint records depend on one record"
            for name, found_distances in distances.items():
                ratios[name] = float(np.max([ratios[name], *found_distances]))
                count = np.count_nonzero(found_distances)
                if count > claimed[name]:
                    violations[name] = (
                        f"{count} releases depend on one record, the guarantee counts "
                        f"{claimed[name]}"
                    )
    for name, ratio in ratios.items():
        if ratio == math.inf:
            violations[name] = "the number or the shape of the releases depends on the data"
        elif not ratio <= 1 + _EXCESS:
            violations[name] = f"a record changes it by {ratio:.3g} times its sensitivity"
    return SensitivityResult(ratios, violations)


def _replay(
    solver: Solver, plan: Plan, pair: Pair, rng: Any, adversarial: bool, seed: int
) -> tuple[dict[str, list[float]], bool]:
    """Distances over sensitivities by mechanism, and whether the results are equal."""
    replayed = map_mechanisms(plan, lambda _, m: _Recorder(m, rng, adversarial))
    recorders = cast("dict[str, _Recorder]", mechanisms(replayed))
    seen, results = [], []
    for data in pair:
        result = solver.solve(data, replayed, stream_from_random_state(seed))
        results.append(np.append(result.coef, (result.intercept, result.n_iter)))
        seen.append({name: recorder.rewind() for name, recorder in recorders.items()})
    distances = {
        name: recorder.distances(seen[0][name], seen[1][name])
        for name, recorder in recorders.items()
    }
    return distances, np.array_equal(results[0], results[1], equal_nan=True)


def _check_pairs(plan: Plan, pairs: list[Pair]) -> None:
    shape = plan.problem.n_samples, plan.problem.n_features
    for data in (side for pair in pairs for side in pair):
        if not isinstance(data, SolverData):
            raise ValueError(f"tables must be SolverData, got {type(data).__name__}")
        if (data.rows.n_samples, data.rows.n_columns) != shape or data.y.shape != shape[:1]:
            raise ValueError(f"tables must have the plan's shape {shape}")


def neighbours(
    problem: Problem, relation: str, n_pairs: int = 24, *, random_state: int = 0
) -> list[Pair]:
    """Pairs of tables that differ in one row, the row chosen to do harm.

    Its features sit in corners of the box, at its centre or on one axis, its target at
    the ends of the interval. Under "zero-out" one table has a row of scale 0 in its
    place. Dense, CSR and CSC storage take turns.

    Parameters
    ----------
    problem : Problem
    relation : {"replace-one", "zero-out"}
    n_pairs : int, default=24
    random_state : int, default=0

    Returns
    -------
    list of (SolverData, SolverData)
    """
    check_choice("relation", relation, RELATIONS)
    check_int("n_pairs", n_pairs, low=1)
    rng = np.random.default_rng(check_int("random_state", random_state, low=0))
    storages = (np.ascontiguousarray, sparse.csr_array, sparse.csc_array)
    return [
        _neighbours(problem, relation, storages[k % len(storages)], rng) for k in range(n_pairs)
    ]


def _neighbours(problem: Problem, relation: str, storage: Any, rng: Any) -> Pair:
    n, d = problem.n_samples, problem.n_features
    X = rng.choice([-1.0, -0.2, 0.0, 0.5, 1.0], (n, d))
    is_regression = problem.loss.task == "regression"
    y = rng.uniform(-1, 1, n) if is_regression else rng.choice([-1.0, 1.0], n)
    i = rng.integers(n)
    corner = rng.choice([-1.0, 1.0], d)
    places = [
        (corner, corner),  # same place, other target
        (corner, -corner),
        (corner, np.zeros(d)),
        (corner * (np.arange(d) == 0), corner),
    ][rng.integers(4)]
    target = rng.choice([-1.0, 1.0])
    tables = []
    for place, sign in zip(places, (1, -1), strict=True):
        X[i], y[i] = place, sign * target
        rows = make_rows(storage(X.copy()), problem.fit_intercept)
        tables.append(SolverData(rows, y.copy()))
    if relation == "zero-out":
        tables[0].rows.scale = (np.arange(n) != i).astype(np.float64)
    return tables[0], tables[1]
