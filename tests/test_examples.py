"""Public names: the reference lists each, each has an example, and all examples run."""

import doctest
import importlib.util
import os
import pkgutil
import random
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import rest_is_slow

import sklearn_dpsco
from sklearn_dpsco import solvers
from sklearn_dpsco.randomness import stream

API = Path(__file__).parent.parent / "doc" / "api.rst"


def examples():
    finder, found = doctest.DocTestFinder(exclude_empty=True), {}
    for _, name, _ in pkgutil.walk_packages(sklearn_dpsco.__path__, "sklearn_dpsco."):
        if ">>>" in Path(importlib.util.find_spec(name).origin).read_text():
            tests = finder.find(importlib.import_module(name), name)
            found |= {test.name: test for test in tests if test.examples}
    return found


EXAMPLES = examples()


# the longest; tests of the same modules run all that they call
SLOW = {
    "sklearn_dpsco.audit.replay.check_sensitivity", "sklearn_dpsco.audit.runs.audit",
    "sklearn_dpsco.audit.runs.audit_plan", "sklearn_dpsco.estimators.streaming.DPFTRLClassifier",
    "sklearn_dpsco.inspection.power.epsilon_needed", "sklearn_dpsco.inspection.power.rows_needed",
    "sklearn_dpsco.inspection.survival.survival_curve",
    "sklearn_dpsco.privacy.report.Fits", "sklearn_dpsco.solvers.mirror_descent.NoisyMD",
}  # fmt: skip


@rest_is_slow("name", sorted(EXAMPLES), EXAMPLES.keys() - SLOW)
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # examples draw secret noise, as users should; here it is the same each time
    same = SimpleNamespace(urandom=random.Random(0).randbytes, getpid=os.getpid)
    monkeypatch.setattr(stream, "os", same)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    said = []
    with warnings.catch_warnings():  # an example may change the filters
        runner.run(EXAMPLES[name], out=said.append)
    assert not runner.failures, "".join(said)


def test_the_reference_lists_every_public_name_once():
    listed = re.findall(r"^   ([A-Za-z][\w.]*)$", API.read_text(), re.M)
    assert len(listed) == len(set(listed))
    public = {*sklearn_dpsco.__all__} - {"__version__"}
    assert public | {f"solvers.{name}" for name in solvers.__all__} <= set(listed)


def documented():
    """Names in the reference, but for parts of plans, which users read and never make."""
    listed = re.findall(r"auto(?:class|function):: (\S+)", API.read_text())
    made_by_users = "losses", "geometry", "mechanisms", "means", "audit"
    for name in listed:
        room, _, short = name.rpartition(".")
        room = room.removeprefix("sklearn_dpsco").removeprefix(".")
        if not room or room in made_by_users:
            module = importlib.import_module(f"sklearn_dpsco.{room}".rstrip("."))
            yield name, getattr(module, short)
    for name in set(sklearn_dpsco.__all__) - {"__version__"} - set(listed):
        yield name, getattr(sklearn_dpsco, name)


@pytest.mark.parametrize(("name", "thing"), sorted(documented(), key=lambda pair: pair[0]))
def test_what_is_public_has_an_example(name, thing):
    assert re.search(r"Examples\n *--------\n[\s\S]*>>> ", thing.__doc__), name
