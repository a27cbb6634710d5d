"""The solvers that the audit and the sensitivity replay run on, and the bugs they must find.

A new solver joins both suites by an entry of `CASES`.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
from support import CONSTANT, in_pieces, problem, running, solver_data, solver_of

from sklearn_dpsco.audit import audit_plan, map_mechanisms
from sklearn_dpsco.data import rows
from sklearn_dpsco.geometry import L1Ball, L2Ball
from sklearn_dpsco.mechanisms import AdditiveNoise, SelectVertex
from sklearn_dpsco.solvers import (
    FTRL,
    SCOF,
    Gradient,
    NoisyMD,
    PhasedSGD,
    Selection,
    Spider,
)
from sklearn_dpsco.solvers.base import Problem
from sklearn_dpsco.solvers.records import Records

RELATIONS = ["replace-one", "zero-out"]
# plans with last steps of every kind: on all coefficients, and on slope and intercepts
CORRECTED = [
    (task, k, d, relation)
    for task, k, d in (
        ("regression", 1, 14), ("regression", 1, 2), ("regression", 2, 2),
        ("classification", 1, 2), ("classification", 3, 2), ("classification", 4, 30),
    )
    for relation in RELATIONS
]  # fmt: skip
EPSILON, DELTA = 4.0, 1e-6

# those that leave the values alone, which the replay cannot see
OF_THE_NOISE = frozenset({"noise", "inverted scale"})

# groups of bugs that solvers are immune to
CLIPS = frozenset({"derivative clip", "row clip"})
MEANS = frozenset({"sum for a mean", "private n"})
STOPPING = frozenset({"early stopping", "rare stopping"})

# the three releases before a descent on rows of bounded norm
FIRST = frozenset({"first.target", "first.means", "first.row_factor"})


def flipped_label(facts, relation, n_told=2):
    """All weight on one feature; the record turns the whole mean gradient's tail around.

    The other rows balance what the first table's record adds, so that a selection stands
    at a tie on one side and at the full range on the other. Only the first `n_told` rows are not 0.
    """
    n, d = facts.n_samples, facts.n_features
    X, y = np.zeros((n, d)), np.where(np.arange(n) % 2, 1.0, -1.0)
    X[:n_told, 0], y[:2] = 1.0, (1.0, -1.0)
    other_y, scale = y.copy(), None
    if relation == "zero-out":
        scale = np.ones(n)
        scale[0] = 0.0
    else:
        other_y[0] = -1.0
    fit_intercept = facts.fit_intercept
    return (
        solver_data(X, y, fit_intercept=fit_intercept),
        solver_data(X, other_y, scale=scale, fit_intercept=fit_intercept),
    )


def lone_record(facts, relation):
    """Nothing but the record that differs says anything."""
    return flipped_label(facts, relation, n_told=1)


def run_in_pieces(plan):
    """The plan, run on records that are cut into pieces, as those of Dask are."""

    def run(self, data, stream):
        n = data.n_samples
        cuts = (0, n // 3, n // 3, (n + 1) // 2, n)
        with dask.config.set(scheduler="synchronous"):
            return type(plan).run(self, in_pieces(data, cuts), stream)

    return running(plan, run)


@dataclass(frozen=True)
class Case:
    """One solver and the runs that the suites make of it.

    Attributes
    ----------
    name : str
    solver : Solver
        With a few steps, for the replay and the audit of whole plans.
    single : Solver or None
        So that one release decides the outcome and the audit loses no power; None if there is no
        such setting.
    facts : Problem
        For `single`.
    delta : float
        For `single`; 0 asks for pure DP, audited without assumptions, otherwise the
        Gaussian bound is the sharp one.
    pair : callable (facts, relation) -> two SolverData
        The worst neighbours for `single`.
    whole_pair : callable (facts, relation) -> two SolverData
        For `solver`.
    statistic : callable or None
        For `single`, see `audit_plan`.
    releases : set of str
        Mechanisms that the replay must have driven close to their sensitivities.
    immune : set of str
        Names of `BUGS` that cannot be planted in this solver.
    feasible_set : type of Geometry
        For `solver`.
    """

    name: str
    solver: Any
    single: Any
    facts: Problem
    delta: float = DELTA
    pair: Callable[..., Any] = flipped_label
    whole_pair: Callable[..., Any] = flipped_label
    statistic: Callable[[Any], float] | None = None
    releases: frozenset[str] = frozenset({"step", "first.target"})
    immune: frozenset[str] = frozenset()
    feasible_set: Any = L1Ball

    def __str__(self):
        return self.name


def _first_coefficient(result):
    return result.coef[0]


# scales and centres are public
GIVEN = dict.fromkeys(
    ("private_scale_X", "private_scale_y", "private_center_X", "private_center_y"), False
)

CASES = [
    Case(
        "frank_wolfe-gradient",
        Gradient(max_iter=4, gradient_clip=0.4),
        Gradient(max_iter=1, gradient_clip=0.3, data_norm=1.0),
        problem(20, 2, fit_intercept=False),
        statistic=_first_coefficient,
        releases=frozenset({"step"}) | FIRST,
    ),
    Case(
        "frank_wolfe-selection",
        Selection(max_iter=4, gradient_clip=0.4),
        Selection(max_iter=1, gradient_clip=0.3),
        problem(20, 1, fit_intercept=False),
        delta=0.0,
        statistic=_first_coefficient,
        # a selection needs no bound on rows beyond the box
        immune=frozenset({"row clip"}),
    ),
    *(
        Case(
            f"frank_wolfe-{form}",
            solver_of(form, max_iter=2, gradient_clip=0.4),
            solver_of(form, max_iter=1, gradient_clip=0.3),
            problem(20, 1, fit_intercept=False),
            delta=0.0,
            whole_pair=lone_record,
            statistic=_first_coefficient,
            releases=frozenset({"runs[0].noise", "first.target"}),
            immune=frozenset({"row clip"}),
        )
        for form in ("rounds", "tree")
    ),
    Case(
        "frank_wolfe-spider",
        Spider(gradient_clip=0.4, learning_rate=0.02),
        None,  # it has as many releases as records
        problem(20, 1, fit_intercept=False),
        whole_pair=lone_record,
        releases=frozenset({"runs[0].noise", "first.target"}),
        # a step for each record, whatever the data are; the noise is audited in whole runs
        immune=STOPPING | {"row clip", *OF_THE_NOISE},
    ),
    Case(
        "frank_wolfe-constant",
        CONSTANT,
        CONSTANT,
        problem(20, 1, task="classification"),  # regression takes 25 steps to the centre
        releases=frozenset({"first.target"}),
        # no gradients, and one release
        immune=CLIPS | MEANS | STOPPING,
    ),
    Case(
        "mirror_descent",
        NoisyMD(max_iter=4, gradient_clip=0.4),
        NoisyMD(max_iter=1, gradient_clip=0.3, data_norm=1.0, learning_rate=1.0),
        problem(20, 2, fit_intercept=False, feasible_set=L2Ball),
        statistic=_first_coefficient,
        releases=frozenset({"stages[0].noise"}) | FIRST,
        feasible_set=L2Ball,
    ),
    *(
        Case(
            f"mirror_descent-{form}",
            solver_of(form, max_iter=1, n_phases=2, gradient_clip=0.4),
            # one phase or round, so that the record is in it
            solver_of(form, max_iter=1, n_phases=1, gradient_clip=0.3, data_norm=1.0),
            problem(20, 1, fit_intercept=False, feasible_set=L2Ball),
            statistic=_first_coefficient,
            releases=frozenset({"stages[0].noise", "stages[1].noise"}) | FIRST,
            # one step in each phase: the case above has the same loop
            immune=STOPPING,
            feasible_set=L2Ball,
        )
        for form in ("localized", "proximal")
    ),
    Case(
        "phased_sgd",
        PhasedSGD(max_iter=2, n_phases=2, gradient_clip=0.4),
        PhasedSGD(max_iter=1, n_phases=1, gradient_clip=0.3, data_norm=1.0),
        # so few that the one iterate that counts is the last
        problem(16, 1, fit_intercept=False, feasible_set=L2Ball),
        statistic=_first_coefficient,
        releases=frozenset({"phases[0].noise", "phases[1].noise"}) | FIRST,
        # no mean gradients
        immune=MEANS,
        feasible_set=L2Ball,
    ),
    Case(
        "ftrl",
        FTRL(batch_size=5, gradient_clip=0.4, mirror_map="euclidean", shuffle=False),
        FTRL(
            batch_size=20,
            gradient_clip=0.3,
            data_norm=1.0,
            mirror_map="euclidean",
            learning_rate=0.01,
        ),
        problem(20, 2, fit_intercept=False),
        statistic=_first_coefficient,
        releases=frozenset({"first.noise", "epochs[0].noise"}),
        # it takes sums, and never looks at max_iter
        immune=MEANS | STOPPING,
    ),
    Case(
        "heavy_tail",
        SCOF(max_iter=2).with_facts(private_scale_y=False, private_center_y=False),
        SCOF(max_iter=1, tau=0.3).with_facts(**GIVEN),
        problem(20, 2, fit_intercept=False, feasible_set=L2Ball),
        statistic=_first_coefficient,
        # those of the regression's target alone are replayed in test_heavy_tail.py
        releases=frozenset({"first.intercept", "steps[0]"})
        | {f"first.features.{part}" for part in ("shared", "select", "center")},
        # its oracle clips whole gradients: test_heavy_tail.py plants a bug there
        immune=CLIPS | MEANS,
        feasible_set=L2Ball,
    ),
]


# ------------------------------------------------------------------------- planted bugs


def weaker(plan, factor):
    """The plan with all its noise divided by `factor`."""
    return map_mechanisms(plan, lambda _, m: dataclasses.replace(m, scale=m.scale / factor))


def assert_only_too_little_noise_is_flagged(plan, pair, n_trials=120, factor=60.0):
    """By black-box audits of the plan, and of one with so much less noise."""
    assert not audit_plan(plan, *pair, n_trials, random_state=0).flagged
    assert audit_plan(weaker(plan, factor), *pair, n_trials, random_state=0).flagged


def _as_planned(_, plan):
    return plan


def _noise(_):
    return lambda _, plan: weaker(plan, math.sqrt(2))


def _derivative_clip(_):
    def without(plan):
        if hasattr(plan, "epochs"):  # each has its own
            return dataclasses.replace(plan, epochs=tuple(map(without, plan.epochs)))
        return dataclasses.replace(plan, gradient_clip=math.inf)

    return lambda _, plan: without(plan)


def _row_clip(monkeypatch):
    clip = rows.Rows.with_norm_bound
    monkeypatch.setattr(rows.Rows, "with_norm_bound", lambda self, bound: clip(self, 1e9))
    return _as_planned


def _times(monkeypatch, factor):
    """Multiply every mean gradient by what `factor` makes of its rows."""
    for name in ("gradient_sum", "gradient_sum_after_move"):
        method = getattr(rows.Rows, name)
        monkeypatch.setattr(
            rows.Rows, name, lambda self, *a, method=method: factor(self) * method(self, *a)
        )
    mean_over = Records.mean_over
    monkeypatch.setattr(
        Records, "mean_over", lambda self, *a: factor(self.data.rows) * mean_over(self, *a)
    )
    return _as_planned


def _sum_for_a_mean(monkeypatch):
    return _times(monkeypatch, lambda table: table.n_samples)


def _private_n(monkeypatch):
    # the mean over the records that are there, not over the public number of them
    def factor(table):
        n_present = table.n_samples if table.scale is None else np.count_nonzero(table.scale)
        return table.n_samples / max(1, n_present)

    return _times(monkeypatch, factor)


def _relation(_):
    # calibrated to zero-out, and run on neighbours that need twice as much
    def plant(solver, plan):
        budget = dataclasses.replace(plan.budget, relation="zero-out")
        return solver.plan(plan.problem, budget)

    return plant


def _stops_where(stops):
    """A bug: fewer steps on some data."""

    def plant(_, plan):
        def run(self, data, stream):
            if stops(data):
                self = dataclasses.replace(self, max_iter=self.max_iter // 2)
                if hasattr(self, "stages"):
                    stages = (dataclasses.replace(s, n_steps=s.n_steps // 2) for s in self.stages)
                    self = dataclasses.replace(self, stages=tuple(stages))
                if hasattr(self, "runs"):
                    runs = (
                        dataclasses.replace(r, steps=r.steps[: r.n_steps // 2]) for r in self.runs
                    )
                    self = dataclasses.replace(self, runs=tuple(runs))
            return type(plan).run(self, data, stream)

        return running(plan, run)

    return lambda _: plant


_early_stopping = _stops_where(lambda data: data.y.mean() <= 0)
_rare_stopping = _stops_where(lambda data: np.ptp(data.y) == 0)  # all labels are the same


def _noise_again(monkeypatch):
    """Every release draws from the same substream of what it is given."""
    for kind in (AdditiveNoise, SelectVertex):
        name = "with_noise" if kind is AdditiveNoise else "release"
        original = getattr(kind, name)
        monkeypatch.setattr(
            kind,
            name,
            lambda self, value, stream, original=original: original(
                self, value, stream.substream("noise")
            ),
        )
    return _as_planned


def _draws_of(monkeypatch, kind, name, changed):
    """Releases draw their noise as `changed(mechanism, value)`, a mechanism and a value, would."""
    original = getattr(kind, name)

    def drawn(self, value, stream):
        return original(*changed(self, value), stream)

    monkeypatch.setattr(kind, name, drawn)


def _inverted_scale(monkeypatch):
    """Noise of epsilon / 2 sensitivities where 2 / epsilon of them are stated, and the like."""

    def changed(mechanism, value):
        return dataclasses.replace(
            mechanism, scale=mechanism.sensitivity**2 / mechanism.scale
        ), value

    _draws_of(monkeypatch, AdditiveNoise, "with_noise", changed)
    _draws_of(monkeypatch, SelectVertex, "release", changed)
    return _as_planned


def _scale_as_location(monkeypatch):
    """The scale goes to the first parameter of a law, its location: noise of scale 1 about it."""

    def changed(mechanism, value):
        return dataclasses.replace(mechanism, scale=1.0), value + mechanism.scale

    _draws_of(monkeypatch, AdditiveNoise, "with_noise", changed)
    return _as_planned


# name: (plant, the relations that it matters under); `plant(monkeypatch)` is called once
# and returns what changes (solver, plan)
BUGS = {
    "noise": (_noise, RELATIONS),
    "inverted scale": (_inverted_scale, RELATIONS),
    "derivative clip": (_derivative_clip, RELATIONS),
    "row clip": (_row_clip, RELATIONS),
    "sum for a mean": (_sum_for_a_mean, RELATIONS),
    "private n": (_private_n, ["zero-out"]),
    "early stopping": (_early_stopping, RELATIONS),
    "rare stopping": (_rare_stopping, RELATIONS),
    "noise again": (_noise_again, RELATIONS),
    "relation": (_relation, ["replace-one"]),
}

# Bugs of the draws that are planted in a pure plan whose scale is above 1.
OF_THE_LAW = {"scale as location": _scale_as_location, "inverted scale": _inverted_scale}
