"""Excess risk on the instances of the lower bounds falls as the upper bounds say.

The instances, and how their sizes were chosen, are in benchmarks/lower_bounds.py.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "lower_bounds.py"
TOLERANCE = 0.1


def load_benchmark():
    spec = importlib.util.spec_from_file_location("lower_bounds", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for annotations
    spec.loader.exec_module(module)
    return module


lower_bounds = load_benchmark()
CLAIMS = [(kind, solver) for kind in lower_bounds.INSTANCES for solver in sorted(kind.claimed_by)]


def worst(fits):
    """By how much the exponent of an axis is above that of the bound."""
    return max(fit.exponent - fit.expected for fit in fits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "solver"), CLAIMS, ids=lambda value: value if isinstance(value, str) else value.title
)
def test_exponents_are_no_worse_than_those_of_the_upper_bound(kind, solver):
    fits = lower_bounds.fits(kind, solver, n_seeds=2)
    fits = [fit for fit in fits if fit.axis in kind.claimed_axes]
    said = "; ".join(f"{f.axis}: {f.exponent:.2f}, bound {f.expected:.2f}" for f in fits)
    assert worst(fits) <= TOLERANCE, said


@pytest.mark.slow  # as what it would be a failure of
def test_a_model_that_learns_nothing_would_fail(monkeypatch):
    def nothing(instance):
        return lambda table, seed: lower_bounds.np.zeros(instance.problem.size)

    monkeypatch.setitem(lower_bounds.SOLVERS, "nothing", nothing)
    for kind in lower_bounds.INSTANCES:
        if kind.title.startswith(("BGN21", "KLZ22 Thm")):
            assert worst(lower_bounds.fits(kind, "nothing", n_seeds=1)) > 2 * TOLERANCE, kind.title
