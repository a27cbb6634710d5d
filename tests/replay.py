"""Sensitivity replay: what would a plan's mechanisms see on two neighbouring tables?

The mechanisms of a plan are replaced by recorders, which keep the value they are given
and answer from a script that is the same for both tables. Whatever then differs between
the two records is what one person's row can change, to be compared with the sensitivity
that the plan's noise was calibrated to (privacy.md, section 9, item 2).
"""

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from support import problem, solver_data, storage, stream

from sklearn_dpsco.accounting import PrivacyBudget
from sklearn_dpsco.mechanisms import SelectVertex
from sklearn_dpsco.solvers.frank_wolfe import FrankWolfe


def mechanisms(plan):
    """{field of the plan: mechanism}, whatever the plan calls them."""
    values = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
    return {name: v for name, v in values.items() if hasattr(v, "release")}


@dataclass
class Recorder:
    """Stands in for a mechanism: keeps what it is given, answers from the script.

    The first run writes the script: for vectors the value plus noise of its own size,
    every second one scaled by 100 if adversarial; for selections a random vertex.
    """

    mechanism: object
    rng: np.random.Generator
    adversarial: bool
    script: list = field(default_factory=list)
    seen: list = field(default_factory=list)

    @property
    def __class__(self):
        return type(self.mechanism)  # so that isinstance says what it would say of it

    def __getattr__(self, name):
        # what a solver reads off a mechanism besides, such as its scale
        return getattr(self.mechanism, name)

    def release(self, value, _stream):
        self.seen.append(np.array(value, dtype=np.float64))
        if len(self.seen) > len(self.script):
            self.script.append(self._answer(self.seen[-1]))
        return self.script[len(self.seen) - 1]

    def _answer(self, value):
        if isinstance(self.mechanism, SelectVertex):
            return int(self.rng.integers(value.size))
        noise = self.rng.standard_normal(value.shape) * (np.abs(value).mean() + 0.1)
        return (value + noise) * (100 if self.adversarial and len(self.script) % 2 else 1)

    def rewind(self):
        """The values seen so far; the next run starts the script again."""
        seen, self.seen = self.seen, []
        return seen

    def distance(self, first, second):
        """In the metric that the sensitivity is stated in."""
        difference = first - second
        if isinstance(self.mechanism, SelectVertex):
            return np.ptp(difference)
        return np.linalg.norm(difference)


def distances(solver, plan, table, neighbour, *, rng, adversarial):
    """{name of the mechanism: largest distance / sensitivity over a run}."""
    recorders = {
        name: Recorder(mechanism, rng, adversarial) for name, mechanism in mechanisms(plan).items()
    }
    replayed = dataclasses.replace(plan, **recorders)
    seen = []
    for data in (table, neighbour):
        solver.solve(data, replayed, stream())
        seen.append({name: recorder.rewind() for name, recorder in recorders.items()})
    out = {}
    for name, recorder in recorders.items():
        pairs = list(zip(seen[0][name], seen[1][name], strict=True))
        assert len(pairs) == (plan.max_iter if name == "step" else 1)
        out[name] = max(recorder.distance(*p) for p in pairs) / recorder.mechanism.sensitivity
    return out


def neighbours(rng, n, d, *, task, relation, kind, fit_intercept):
    """Two tables that differ in one row, the row chosen to do harm.

    Its features sit in corners of the box, at its centre or on one axis, its target at
    the ends of the interval. Under zero-out it is replaced by a row of scale 0.
    """
    X = rng.choice([-1.0, -0.2, 0.0, 0.5, 1.0], (n, d))
    y = rng.choice([-1.0, 1.0], n) if task == "classification" else rng.uniform(-1, 1, n)
    i = rng.integers(n)
    corner = rng.choice([-1.0, 1.0], d)
    first, second = [
        (corner, corner),  # same place, other target
        (corner, -corner),
        (corner, np.zeros(d)),
        (corner * (np.arange(d) == 0), corner),
    ][rng.integers(4)]
    y_first = rng.choice([-1.0, 1.0])
    pairs = []
    for x, target in ((first, y_first), (second, -y_first)):
        X[i], y[i] = x, target
        pairs.append((storage(X.copy(), kind), y.copy(), None))
    if relation == "zero-out":
        scale = np.ones(n)
        scale[i] = 0.0
        pairs[0] = (*pairs[0][:2], scale)
    return [solver_data(*pair[:2], scale=pair[2], fit_intercept=fit_intercept) for pair in pairs]


def worst_distances(form, *, relation, planned_relation=None, n_pairs=28, change_plan=None,
                    fit_intercept=True, tasks=("regression", "classification")):  # fmt: skip
    """Worst distance / sensitivity by mechanism, over both tasks and `n_pairs` pairs each.

    `planned_relation` and `change_plan` are for planting bugs.
    """
    worst = {}
    rng = np.random.default_rng(0)
    for task in tasks:
        solver = FrankWolfe(form=form, max_iter=4, gradient_clip=0.4)
        for k in range(n_pairs):
            n, d = int(rng.choice([2, 3, 9, 16])), int(rng.choice([1, 3, 8]))
            facts = problem(n, d, task=task, fit_intercept=fit_intercept)
            budget = PrivacyBudget(1.0, 1e-6, planned_relation or relation)
            plan = solver.plan(facts, budget)
            plan = plan if change_plan is None else change_plan(plan)
            kind = ("dense", "csr", "csc")[k % 3]
            pair = neighbours(
                rng, n, d, task=task, relation=relation, kind=kind, fit_intercept=fit_intercept
            )
            found = distances(solver, plan, *pair, rng=rng, adversarial=k % 2 == 0)
            for name, ratio in found.items():
                worst[name] = max(worst.get(name, 0.0), ratio)
    return worst
