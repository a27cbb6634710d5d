"""Runs of a solver that it takes to flag planted bugs: by results, and by releases.

    python benchmarks/audit_fits.py [--case mirror_descent] [--seeds 5] [--most 10000]

The solvers and bugs are those of tests/solvers/audit_cases.py, at a claim of (4, 1e-6). "one
release" is a plan on tight clips that releases once, "whole plan" one with the intercept, the
means and four steps. Printed is the median over the seeds of the runs of both tables together
until `flagged` at 99.99 %. By results, numbers of runs that grow by a quarter are tried, which
favours that way: it has many looks. By releases, each replay counts as a run. A dash stands
for a bug that was not flagged, since it does not show on this pair or takes more runs.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(ROOT), str(ROOT / "solvers")]

from audit_cases import BUGS, CASES, DELTA, EPSILON  # noqa: E402
from support import problem  # noqa: E402

from sklearn_dpsco.audit import audit_outcomes, audit_plan  # noqa: E402
from sklearn_dpsco.mechanisms import AdditiveNoise  # noqa: E402
from sklearn_dpsco.privacy.budget import PrivacyBudget  # noqa: E402
from sklearn_dpsco.randomness.stream import stream_from_random_state  # noqa: E402

RELATION = "replace-one"
PLANTED = ("noise", "derivative clip", "row clip", "sum for a mean", "relation")


def no_noise(monkeypatch):
    """Releases what it is given."""
    monkeypatch.setattr(AdditiveNoise, "with_noise", lambda self, value, stream: value.copy())
    return lambda solver, plan: (solver, plan)


BUGS_RUN = {"no noise": no_noise} | {name: BUGS[name][0] for name in PLANTED}


def setting(case, which):
    """Solver, plan, the two tables and the statistic."""
    is_one = which == "one release"
    facts = case.facts if is_one else problem(20, 2, feasible_set=case.feasible_set)
    solver = case.single if is_one else case.solver
    plan = solver.plan(facts, PrivacyBudget(EPSILON, DELTA, RELATION))
    return solver, plan, case.pair(facts, RELATION), case.statistic if is_one else None


def runs_by_results(solver, plan, pair, statistic, seed, most):
    """Runs of both tables until the bound from results is above the claim; inf if it is not."""
    root, outcomes, n = stream_from_random_state(seed), ([], []), 20
    while 2 * n <= most:
        for side in (0, 1):
            for k in range(len(outcomes[side]), n):
                result = plan.run(pair[side], root.substream(side, k))
                vector = np.append(result.coef, result.intercept)
                outcomes[side].append(statistic(result) if statistic else vector)
        found = audit_outcomes(*outcomes, epsilon=EPSILON, delta=DELTA, gaussian=True)
        if found.flagged:
            return 2 * n
        n = math.ceil(1.25 * n)
    return math.inf


def runs_by_releases(solver, plan, pair, seed, most):
    """The same, from releases; each run has a replay."""
    found = audit_plan(plan, *pair, most // 4, statistic="releases", random_state=seed)
    n = 2 * (found.scores.size + found.neighbour_scores.size)
    return n if found.flagged else math.inf


def median(runs):
    value = float(np.median(runs))
    return f"{value:.0f}" if math.isfinite(value) else "-"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", default="mirror_descent")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=10_000)
    settings = parser.parse_args()
    (case,) = (case for case in CASES if case.name == settings.case)
    print(f"{'bug':18s} {'plan':12s} {'results':>8s} {'releases':>9s}")
    for bug, plant_in in BUGS_RUN.items():
        if bug in case.immune:
            continue
        for which in ("one release", "whole plan"):
            with pytest.MonkeyPatch.context() as patch:
                solver, plan, pair, statistic = setting(case, which)
                solver, plan = plant_in(patch)(solver, plan)
                seeds = range(settings.seeds)
                old = [
                    runs_by_results(solver, plan, pair, statistic, seed, settings.most)
                    for seed in seeds
                ]
                new = [runs_by_releases(solver, plan, pair, seed, settings.most) for seed in seeds]
            print(f"{bug:18s} {which:12s} {median(old):>8s} {median(new):>9s}", flush=True)


if __name__ == "__main__":
    main()
