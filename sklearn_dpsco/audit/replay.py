"""Running a solver on neighbours with the answers of its mechanisms frozen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._checks import check_int
from ..randomness.stream import stream_from_random_state
from ..solvers.base import Part, Plan, Solver
from .neighbours import Pair, check_pairs, neighbours

__all__ = ["SensitivityResult", "check_sensitivity", "map_mechanisms", "mechanisms"]

Array = NDArray[np.float64]

_EXCESS = 1e-12  # relative float error of a replayed distance


@dataclass(frozen=True)
class SensitivityResult:
    """The changes by one record that a replay found.

    Attributes
    ----------
    ratios : dict of str to float
        For every mechanism, by the name of the plan's field: the largest distance between
        its values on two neighbours, over its sensitivity. Infinite if the number
        of releases or their shape depends on the data.
    violations : dict of str to str
        What is wrong, by the name of the mechanism, or "result", or "groups". Empty if
        nothing was found.
    """

    ratios: dict[str, float]
    violations: dict[str, str]


def map_mechanisms(plan: Any, change: Callable[[str, Any], Any]) -> Any:
    """The plan with each mechanism m of each field replaced by ``change(name, m)``.

    A mechanism is any object with a method `release`; to be replayed, it must state the facts of
    `mechanisms.Mechanism`. It is searched for in the fields of the plan, in their tuples, and in
    the fields of the plan's parts (`solvers.base.Part`). Its name is its path, for example
    ``"first.target"`` or ``"stages[0].noises[0]"``.
    """

    def changed(name: str, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(changed(f"{name}[{i}]", item) for i, item in enumerate(value))
        if isinstance(value, Part):
            return fields_changed(f"{name}.", value)
        return change(name, value) if hasattr(value, "release") else value

    def fields_changed(prefix: str, whole: Any) -> Any:
        names = [f.name for f in dataclasses.fields(whole)]
        values = {name: changed(prefix + name, getattr(whole, name)) for name in names}
        return dataclasses.replace(whole, **values)

    return fields_changed("", plan)


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
    """Replaces a mechanism: keeps the values it gets, and gives both runs the same answers.

    The first run makes the answers, `script`: for vectors the value plus noise of its size,
    every second one times 100 if adversarial; for selections a random index.
    """

    mechanism: Any
    rng: np.random.Generator
    adversarial: bool
    script: list[Any] = field(default_factory=list)
    seen: list[Array] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        # other attributes that a solver reads, such as the scale
        return getattr(self.mechanism, name)

    def release(self, value: ArrayLike, _stream: Any) -> Any:
        self.seen.append(np.array(value, dtype=np.float64))
        if len(self.seen) > len(self.script):
            self.script.append(self._answer(self.seen[-1]))
        return self.script[len(self.seen) - 1]

    def _answer(self, value: Array) -> Any:
        if self.mechanism.selects:
            return int(self.rng.integers(value.size))
        noise = self.rng.standard_normal(value.shape) * (np.abs(value).mean() + 0.1)
        return (value + noise) * (100 if self.adversarial and len(self.script) % 2 else 1)

    def rewind(self) -> list[Array]:
        """The values of this run; the next run gets the answers from the start again."""
        seen, self.seen = self.seen, []
        return seen

    def distances(self, first: list[Array], second: list[Array]) -> list[float]:
        """Of every release, over the sensitivity and in the metric that it is stated in."""
        if [v.shape for v in first] != [v.shape for v in second]:
            return [math.inf]
        if self.mechanism.is_joint and first:
            # one sensitivity for the whole run
            first, second = ([np.concatenate(values)] for values in (first, second))
        return [
            float(self.mechanism.distance(a - b)) / self.mechanism.sensitivity
            for a, b in zip(first, second, strict=True)
        ]


def check_sensitivity(
    solver: Solver, plan: Plan, pairs: Iterable[Pair] | None = None, *, random_state: int = 0
) -> SensitivityResult:
    """Replay a solver on neighbours and compare every release with its sensitivity.

    ``solver.solve`` runs on both tables of a pair with the plan's mechanisms replaced by
    recorders whose answers are the same for both: once near the values, once with every
    second vector 100 times too large. For each release, the `distance` of the two values, in the
    mechanism's own metric, must not exceed the sensitivity; a mechanism with a true `is_joint`
    counts all its releases of a run as one. The number of releases must not depend on the data,
    no more of them may depend on the record than the plan's guarantee counts, no two groups of
    releases that claim disjoint records may depend on the same one, and the two results must be
    equal, since they may depend on the data through releases only.

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
    check_pairs(plan, pairs)
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
