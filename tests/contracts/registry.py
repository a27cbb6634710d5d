"""The public estimators, and what the contracts have to know of each.

The contracts run over whatever in ``sklearn_dpsco.__all__`` has a method `predict`. A new
estimator needs one entry in `REGISTRY`: the forms that are worth running, the bad values of
the parameters that it alone has, and what it cannot do.
"""

import threading
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.base import is_classifier as _is_classifier
from support import rest_is_slow

import sklearn_dpsco
from sklearn_dpsco import BudgetAccountant, PrivacyBudget, mechanisms
from sklearn_dpsco.geometry import L1Ball, Simplex
from sklearn_dpsco.losses import Logistic, Squared, SquaredHinge
from sklearn_dpsco.mechanisms.laws import AdditiveNoise
from sklearn_dpsco.privacy.budget import RELATIONS
from sklearn_dpsco.solvers import (
    FTRL,
    SCOF,
    Descent,
    Gradient,
    Localized,
    NoisyMD,
    NoisySFW,
    PhasedSGD,
    Proximal,
    Rounds,
    SCOFSlices,
    Selection,
    Solver,
    Spider,
    Tree,
)
from sklearn_dpsco.solvers.base import Frame

NAN, INF = np.nan, np.inf

# what a careful user declares, wherever an estimator has such a parameter
DECLARED = {"bounds_X": (-1, 1), "classes": ["no", "yes"], "max_weight": 1.0}

# bad values of the parameters that mean the same in all estimators
BAD = {
    "epsilon": (-1, 0, NAN, -INF, 1e10, "inf", None, True),
    "delta": (-1e-9, 1, 1.5, NAN, "0", None),
    "relation": ("replace_one", None),
    "max_weight": (0, -1, NAN, INF, "1", True, 1e51, [1.0]),
    "max_rows_per_user": (0, -1, 1.5, "2", None, True, NAN),
    "bounds_X": (
        (1, -1), (0, 0), (0,), (0, NAN), (-INF, 1), "ab", 3, ("low", "high"),
        ([0, 0, 1], [1, 1, 0]), ([0, 0], [1, 1, 1]), {"a": (1, 0)}, {"a": 1},
    ),
    "bounds_y": (
        (1, -1), (0, 0), (0, NAN), (0, 1, 2), 3, "ab", (-INF, 0),
        ([0, 0], [1, 1, 1]), ([[0]], [[1]]), ([0, 2], [1, 1]),
    ),
    "class_weight": (
        "even", 3, [1, 2], {"no": -1}, {"no": NAN}, {"no": INF}, {"no": "1"}, {"no": True},
        {"no": 0, "yes": 0}, {"maybe": 1.0}, True,
    ),
    "classes": (
        ["a"], [], ["a", "a"], ["a", "b", "a"], 3, "ab", [["a", "b"]], [0, 2**53], [-(2**53), 1],
        [0, 2**64 - 1], [0, 2**70],
    ),
    "fit_intercept": ("yes", 1, None),
    "inference": ("yes", 1, None),
    "loss": ("no such loss", None, 3, Squared),
    "feasible_set": ("l3", None, L1Ball),
    "units": ("scaled", None, 1),
    "solver": ("sgd", None, 1, "constant", Solver, L1Ball(1.0)),
    "precision": ("double", None),
    "nonfinite": ("drop", None, True, 0, NAN),
    "accountant": (1.0, "auto", PrivacyBudget(1.0), BudgetAccountant),
    "verbose": (-1, 1.5, "yes", None, NAN),
    "random_state": (-1, "0", 1.5, True, np.random.default_rng(0)),
}  # fmt: skip

# the same of solvers
BAD_OF_SOLVERS = {
    "average": ("yes", None, 1),
    "batch_size": (0, -1, 2.5, "all", True),
    "data_norm": (0, -1, NAN, INF, "l2"),
    "gradient_clip": (0, -0.5, NAN, "none"),
    "l2_penalty": (-0.1, NAN, INF, "auto", None),
    "learning_rate": (0, -0.1, NAN, INF, "constant", None),
    "max_iter": (0, -3, 1.5, "many", True, NAN),
    "min_selections": (0, -1, 1.5, "2", None, True, NAN),
    "mirror_map": ("l2", None, 2),
    "moment_bound": (0.0, -1.0),
    "moment_order": (1.5, NAN, "2"),
    "n_buckets": (0, 1.5),
    "n_phases": (0, -1, 2.0, None),
    "n_restarts": (0, 1.5, "many", None, 101),
    "oracle": ("mean", None),
    "rank_bound": (0, 1.5, "d", 2),
    "scale_share": (0, 0.71, 1.0, NAN, "half"),
    "shuffle": ("yes", None, 1),
    "tau": (0.0, -2, "big"),
}


class Mixing(Squared):
    """A user's loss that is not one of each record."""

    def derivative(self, z, y):
        return z - y.mean()


class MixingHinge(SquaredHinge):
    """The same for labels."""

    def derivative(self, z, y):
        return (z - y) / np.abs(z).max()


BAD_LOSSES = {
    "regression": ("logistic", "smoothed_hinge", Logistic(), Mixing()),
    "classification": ("squared", "huber", Squared(), MixingHinge()),
}


@dataclass(frozen=True)
class Entry:
    """One estimator, or a regressor and its classifier.

    Attributes
    ----------
    forms : dict
        Parameters of the forms that are run on `table()`, few steps each. The first is the
        main one: it learns coefficients, all of which hold additive noise.
    bad : dict
        Bad values of the parameters that are not in `BAD`, or more of those that are.
    nonsense : tuple of (parameters, pattern)
        Combinations that are wrong whatever the data are, and their messages. One of
        parameters that an estimator does not have is left out.
    too_small : tuple of (parameters, pattern)
        What is wrong on a table of 40 rows and 3 columns.
    pure : str or None
        None if delta=0 works. Else what the refusal has to name.
    sparse : dict
        Parameters with which sparse X is accepted.
    shifting : tuple of dict
        Parameters that would shift the zeros of sparse X.
    columns : dict
        Parameters that may hold values for each column, and the value of one.
    origins : tuple of (parameters, origin)
        On `table()`: what `predict` takes for an invalid row, or the attribute with it.
    unlike_sums : tuple of str
        Forms whose releases are not made of sums over the records.
    by_selection : tuple of str
        Forms whose coefficients hold no additive noise.
    constant : tuple of str
        Forms that learn nothing but an intercept.
    bounds_y : tuple
        Of the targets of `table()`.
    of_rates : bool
        Whether it is of one target, above 0, of whose mean the logarithm is predicted, and takes
        at most 1000 features and always an intercept.
    """

    forms: Mapping[str, dict[str, Any]]
    bad: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    nonsense: tuple[tuple[dict[str, Any], str], ...] = ()
    too_small: tuple[tuple[dict[str, Any], str], ...] = ()
    pure: str | None = None
    sparse: Mapping[str, Any] = field(default_factory=dict)
    shifting: tuple[dict[str, Any], ...] = ({"bounds_X": (-1e6, 2e6)}, {"bounds_X": (1, 1e6)})
    columns: Mapping[str, Any] = field(default_factory=lambda: {"bounds_X": (-1e6, 1e6)})
    origins: tuple[tuple[dict[str, Any], Any], ...] = (
        ({}, (0, 0, 0)),
        ({"bounds_X": ([-1, -1, -2], [3, 0, 1])}, (1, 0, -0.5)),
    )
    unlike_sums: tuple[str, ...] = ()
    by_selection: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    bounds_y: tuple[float, float] = (-1, 1)
    of_rates: bool = False


SIMPLEX = ({"feasible_set": "simplex"}, "fit_intercept=False")

LASSO = Entry(
    forms={
        "gradient": {"solver": Gradient(max_iter=4), "units": "bounds"},
        "selection": {"solver": Selection(max_iter=4), "units": "bounds"},
        "pure": {"delta": 0, "solver": Selection(max_iter=4)},
        "repeated": {"solver": Selection(min_selections=2, max_iter=6), "units": "bounds"},
        "rounds": {"solver": Rounds(max_iter=2)},
        "tree": {"solver": Tree(n_restarts=2, max_iter=4)},
        "spider": {"solver": Spider(l2_penalty=0.1)},
        "learned gradient": {"solver": Gradient(max_iter=4), "units": "learned"},
        "learned selection": {"solver": Selection(max_iter=4), "units": "learned"},
        "learned rounds": {"solver": Rounds(max_iter=2), "units": "learned"},
    },
    bad={"feasible_set": ("simplex", Simplex(1.0))},
    nonsense=(
        ({"solver": Gradient(learning_rate=1.1)}, "learning_rate"),
        ({"solver": "gradient", "delta": 0}, "selection"),
        ({"feasible_set": "unconstrained"}, "unconstrained"),
        ({"delta": 0, "feasible_set": "l2", "solver": Selection(max_iter=5)}, "vertices"),
        SIMPLEX,
        ({"solver": "rounds", "feasible_set": "l2"}, "vertices"),
        (
            {
                "feasible_set": "simplex",
                "fit_intercept": False,
                "solver": Selection(min_selections=2),
            },
            "min_selections=2 needs feasible_set='l1'",
        ),
        ({"units": "learned", "delta": 0}, "units='learned' has no pure-DP form"),
        ({"units": "learned", "solver": Gradient(data_norm=1.0)}, "data_norm"),
    ),
    too_small=(
        ({"solver": Selection(max_iter=3, min_selections=4)}, "min_selections must be at most"),
        ({"solver": Rounds(max_iter=41)}, "smallest n that works"),
        ({"solver": Tree(max_iter=64)}, "smallest n that works"),
        ({"solver": Spider(n_restarts=20)}, "smallest n that works"),
    ),
    # which records are read together is drawn, and a median is no sum
    unlike_sums=(
        "rounds",
        "tree",
        "spider",
        "learned gradient",
        "learned selection",
        "learned rounds",
    ),
    by_selection=(
        "selection",
        "pure",
        "repeated",
        "rounds",
        "tree",
        "spider",
        "learned selection",
        "learned rounds",
    ),
)
MIRROR = Entry(
    forms={
        "noisy-md": {"solver": NoisyMD(max_iter=4)},
        "localized": {"solver": Localized(max_iter=2, n_restarts=2)},
        "proximal": {"solver": Proximal(max_iter=2, n_phases=3)},
        # (with the default clip a derivative at the ends of the targets never changes)
        "noisy-sfw": {"solver": NoisySFW(max_iter=4, gradient_clip=2.0)},
        "entropy": {"feasible_set": "l1", "solver": NoisyMD(mirror_map="entropy", max_iter=4)},
        "batches": {"solver": NoisyMD(batch_size=10, max_iter=4)},
        "learned-units": {"solver": Descent(max_iter=4)},
        "learned noisy-md": {"solver": NoisyMD(max_iter=4), "units": "learned"},
    },
    bad={"feasible_set": ("simplex", Simplex(1.0))},
    nonsense=(
        SIMPLEX,
        ({"solver": "noisy-sfw", "feasible_set": "linf"}, r"p <= 2.*'noisy-md'"),
        ({"solver": NoisySFW(learning_rate=1.5)}, "learning_rate"),
        ({"solver": NoisyMD(batch_size="auto")}, "batch_size"),
        ({"solver": NoisyMD(batch_size=5, n_restarts=2)}, "n_restarts is not for random batches"),
        ({"solver": NoisyMD(batch_size=5), "units": "learned"}, "batch_size"),
        ({"solver": Localized(mirror_map="entropy"), "feasible_set": "l1"}, "entropy"),
        ({"solver": Proximal(mirror_map="entropy"), "feasible_set": "l1"}, "entropy"),
        ({"feasible_set": "l2", "solver": NoisyMD(mirror_map="entropy")}, "mirror_map"),
        # the plan may choose the l2 ball
        ({"solver": NoisyMD(mirror_map="entropy")}, "mirror_map"),
        ({"solver": "descent", "feasible_set": "l2"}, "has no feasible set"),
        ({"solver": "descent", "units": "bounds"}, "learns its units"),
        ({"units": "learned", "solver": NoisyMD(data_norm=1.0)}, "data_norm"),
    ),
    too_small=(
        ({"solver": NoisyMD(batch_size=41)}, "smallest n that works"),
        ({"solver": Localized(n_phases=20)}, "smallest n that works"),
        ({"solver": NoisyMD(n_restarts=7)}, "smallest n that works"),
        ({"solver": Proximal(n_phases=41)}, "smallest n that works"),
        ({"solver": NoisySFW(max_iter=40)}, "smallest n that works"),
    ),
    pure="DPLassoFW",
    # a median is no sum
    unlike_sums=("learned-units", "learned noisy-md"),
)
LINEAR = Entry(
    forms={"default": {}},
    nonsense=(({"delta": 0}, "DPLassoFW"),),
    pure="DPLassoFW",
    unlike_sums=("default",),
)
PHASED = Entry(
    forms={
        "one pass": {"solver": PhasedSGD(max_iter=1)},
        "passes": {"solver": PhasedSGD(max_iter=3, n_phases=2), "units": "bounds"},
        "learned units": {},
        "learned phases": {"solver": PhasedSGD(max_iter=2, n_phases=2), "units": "learned"},
    },
    bad={"feasible_set": ("l1", L1Ball(1.0))},
    nonsense=(
        ({"solver": PhasedSGD(learning_rate=99.0)}, "learning_rate"),  # beyond the proof
        ({"feasible_set": "unconstrained", "solver": PhasedSGD(rank_bound=0)}, "rank_bound"),
        ({"feasible_set": "unconstrained", "solver": PhasedSGD(rank_bound="d")}, "rank_bound"),
        ({"solver": PhasedSGD(rank_bound=2)}, "rank_bound must be None unless"),
        ({"units": "learned", "solver": PhasedSGD(data_norm=1.0)}, "data_norm"),
    ),
    too_small=(
        ({"solver": PhasedSGD(n_phases=41)}, "n_phases=41 needs n_samples >= 41"),
        (
            {"feasible_set": "unconstrained", "solver": PhasedSGD(rank_bound=4)},
            "rank_bound must be at most",
        ),
    ),
    pure="no pure-DP form",
    # where a descent ends is no sum
    unlike_sums=("one pass", "passes", "learned units", "learned phases"),
)
FTRL_MODELS = Entry(
    forms={
        "steps of 4": {},
        "last iterate": {"solver": FTRL(average=False, batch_size=7)},
    },
    bad={
        "horizon": (0, -1, 1.5, "long", True, NAN),
        "feasible_set": ("simplex", Simplex(1.0)),
    },
    nonsense=(
        SIMPLEX,
        ({"solver": FTRL(mirror_map="entropy")}, "mirror_map"),
        ({"solver": FTRL(batch_size=None)}, "batch_size"),
        ({"units": "learned", "feasible_set": "l1"}, "feasible_set='l2'"),
        ({"units": "learned", "solver": FTRL(learning_rate=0.1)}, "learning_rate"),
    ),
    too_small=(({"units": "learned"}, "units='learned' needs a stream"),),
    pure="DPLassoFW",
)
HEAVY_TAIL = Entry(
    forms={
        "scof": {"solver": SCOF(max_iter=3)},
        "slices": {"solver": SCOFSlices(max_iter=2)},
        "guesses": {
            "solver": SCOF(max_iter=3, oracle="smoothed"),
            "scale_X": 1.0,
            "center_X": 0.0,
        },
        "buckets": {"solver": SCOF(max_iter=3, oracle="median-of-means", n_buckets=3)},
        "pure": {"solver": SCOF(max_iter=3), "delta": 0},
        "intercept only": {},
    },
    bad={
        "scale_X": (0, -1.0, NAN, "auto", [1.0, 0.0], np.ones((2, 2)), None, {"a": "private"}),
        "center_X": (INF, "mean", np.ones((2, 2)), {"a": NAN}),
        "scale_y": (0.0, [1.0], "auto", None),
        "center_y": (NAN, [1.0], "mean", None),
        "solver": ("noisy-md",),
    },
    nonsense=(
        ({"fit_intercept": False, "center_X": 1.0}, "center_X"),
        ({"fit_intercept": False, "center_y": 1.0}, "center_y"),
    ),
    too_small=(
        (
            {"solver": SCOF(oracle="median-of-means", n_buckets=41, max_iter=2)},
            "n_buckets=41",
        ),
        ({"scale_X": [1.0, 2.0]}, "scale_X"),
    ),
    sparse={"center_X": 0.0},
    shifting=({"center_X": "private"}, {"center_X": 1.0}),
    columns={"scale_X": 1.0, "center_X": 0.0},
    origins=(
        ({"solver": SCOF(max_iter=3)}, "center_X_"),
        ({"scale_X": 1.0, "center_X": [0.5, 0.0, -2.0]}, (0.5, 0.0, -2.0)),
    ),
    unlike_sums=("buckets",),
    constant=("intercept only",),
)
RATES = Entry(
    forms={"default": {}},
    bad={
        "bounds_y": ((-1, 1), (-2, -1)),
        "bounds_exposure": ((0, 1), (-1, 1), (1, -1), (1, NAN), (1,), 3, "ab", ([1, 1], [2, 2])),
        "power": (0.5, 2, 2.5, NAN, "1", None, True),
    },
    nonsense=(({"delta": 0}, "no pure-DP form"),),
    pure="no pure-DP form",
    unlike_sums=("default",),
    bounds_y=(0.25, 2.25),
    of_rates=True,
)

REGISTRY = {
    "DPLassoFW": LASSO,
    "DPLassoFWClassifier": LASSO,
    "DPMirrorRegressor": MIRROR,
    "DPMirrorClassifier": MIRROR,
    "DPPhasedSGDRegressor": PHASED,
    "DPPhasedSGDClassifier": PHASED,
    "DPLinearRegression": LINEAR,
    "DPLogisticRegression": LINEAR,
    "DPFTRLRegressor": FTRL_MODELS,
    "DPFTRLClassifier": FTRL_MODELS,
    "HeavyTailDPRegressor": HEAVY_TAIL,
    "HeavyTailDPClassifier": HEAVY_TAIL,
    "DPPoissonRegressor": RATES,
    "DPGammaRegressor": RATES,
    "DPTweedieRegressor": RATES,
}

ESTIMATORS = sorted(
    name
    for name, kind in vars(sklearn_dpsco).items()
    if name in sklearn_dpsco.__all__
    and hasattr(kind, "predict")
    and not issubclass(kind, MetaEstimatorMixin)
)


# --------------------------------------------------------------------------- estimators


def kind_of(name):
    return getattr(sklearn_dpsco, name)


def entry(name):
    if name not in REGISTRY:
        pytest.fail(f"{name} is public: give it an entry in tests/contracts/registry.py")
    return REGISTRY[name]


@cache
def parameters_of(name):
    """The names of its parameters."""
    return frozenset(kind_of(name)().get_params())


@cache
def is_classifier(name):
    return _is_classifier(kind_of(name)())


CLASSIFIERS = [name for name in ESTIMATORS if is_classifier(name)]
# of several targets
REGRESSORS = [n for n in ESTIMATORS if not (is_classifier(n) or entry(n).of_rates)]

each = pytest.mark.parametrize("name", ESTIMATORS)
each_classifier = pytest.mark.parametrize("name", CLASSIFIERS)
each_regressor = pytest.mark.parametrize("name", REGRESSORS)


# those of `LINEAR` have the solver of `MIRROR`, as test_solvers states to the bit
SOLVED = [name for name in ESTIMATORS if REGISTRY.get(name) is not LINEAR]


def _one_of_each_entry():
    """A regressor and a classifier in turns: the two of an entry have one solver."""
    of_entry = {}
    for name in sorted(SOLVED, key=is_classifier):
        of_entry.setdefault(id(REGISTRY.get(name)), []).append(name)
    return [names[k % len(names)] for k, names in enumerate(of_entry.values())]


ONE_OF_EACH_SOLVER = _one_of_each_entry()
# for what takes long and is decided by the solver; with `-m slow` all of them are run
each_solver = rest_is_slow("name", ESTIMATORS, ONE_OF_EACH_SOLVER)


def _turn(test):
    return crc32(test.__name__.encode())


# each half of `each_solver`, every second one of the first of these, has regressors and classifiers
READING_ORDER = [
    *sorted(ONE_OF_EACH_SOLVER, key=is_classifier),
    *(name for name in ESTIMATORS if name not in ONE_OF_EACH_SOLVER),
]


def readers(turn):
    """A half of `each_solver`."""
    return READING_ORDER[: len(ONE_OF_EACH_SOLVER)][turn % 2 :: 2]


def each_reader(test):
    """For what is decided before the solver, by code that all of them share.

    A half of `each_solver` in each test, by turns; the rest is slow.
    """
    return rest_is_slow("name", ESTIMATORS, readers(_turn(test)))(test)


def each_reader_of_labels(test):
    """The same for what all classifiers share: every second one of them, by turns."""
    return rest_is_slow("name", CLASSIFIERS, CLASSIFIERS[_turn(test) % 2 :: 2])(test)


def solver_of(name, form=None):
    """The solver of a form, or the one by default; None of an estimator that takes none."""
    if "solver" not in parameters_of(name):
        return None
    solver = entry(name).forms[form].get("solver", "auto") if form else "auto"
    return kind_of(name)._solvers[solver]() if isinstance(solver, str) else clone(solver)


def known(name, parameters, form=None):
    """Those of the parameters that the estimator has, or its solver."""
    solver = solver_of(name, form)
    names = parameters_of(name) | set(solver.get_params() if solver else ())
    found = {key: value for key, value in parameters.items() if key in names}
    if "bounds_y" in found and entry(name).of_rates:
        low, high = found["bounds_y"]
        found["bounds_y"] = (max(low, 5e-324) if name == "DPGammaRegressor" else 0.0, high)
    return found


def build(name, form=None, **parameters):
    """The estimator with everything declared, in one of its forms or by default, and a seed.

    Parameters of the form's solver are given to that.
    """
    settings = {} if form is None else entry(name).forms[form]
    declared = known(name, DECLARED | {"bounds_y": entry(name).bounds_y})
    settings = declared | {"random_state": 0} | settings
    inner = {key: parameters.pop(key) for key in set(parameters) & BAD_OF_SOLVERS.keys()}
    if inner:
        settings["solver"] = solver_of(name, form).set_params(**inner)
    return kind_of(name)(**settings | parameters)


@cache
def composition_for(name, form):
    """How an accountant of it may add up: only a few papers' solvers have no Gaussian curve."""
    has_curve = build(name, form, accountant=None).plan(60, 3).guarantee.composes_in("gdp")
    return {"composition": "gdp" if has_curve else "zcdp"}


def forms(name):
    """The names of its forms. Batches of a classifier are left out: nothing new, and slow."""
    return [form for form in entry(name).forms if form != "batches" or not is_classifier(name)]


def descending_forms(name):
    """Those that learn coefficients."""
    return [form for form in forms(name) if form not in entry(name).constant]


def main_form(name):
    return forms(name)[0]


def each_form_of(names, forms_of=forms, always=None, by_turns=True):
    """Parametrize a test with `name` and `form`.

    A form of each estimator in `always`, by default of all, is run always: another one in each
    test, or the main one. With `-m slow` all of them are run. (`always` may be a function of the
    turn.)
    """

    def parametrized(test):
        turn = _turn(test)
        chosen = always(turn) if callable(always) else names if always is None else always
        cases = [(name, form) for name in names for form in forms_of(name)]
        first = {
            f"{name}-{forms_of(name)[by_turns * (turn + k) % len(forms_of(name))]}"
            for k, name in enumerate(chosen)
            if forms_of(name)
        }
        return rest_is_slow(("name", "form"), cases, first)(test)

    return parametrized


def relation_of(name, form):
    """The relations by turns: which one does not matter to the form."""
    return RELATIONS[forms(name).index(form) % 2]


def forms_of_sums(name):
    """Those whose releases are made of sums over the records."""
    return [form for form in forms(name) if form not in entry(name).unlike_sums]


def forms_and_default(name):
    return [None, *forms(name)]


each_form = each_form_of(ESTIMATORS, always=ONE_OF_EACH_SOLVER)
each_form_or_main = each_form_of(ESTIMATORS, always=ONE_OF_EACH_SOLVER, by_turns=False)
each_form_or_default = each_form_of(ESTIMATORS, forms_and_default, ONE_OF_EACH_SOLVER)
each_descending_form = each_form_of(ESTIMATORS, descending_forms, ONE_OF_EACH_SOLVER)
each_form_of_sums = each_form_of(ESTIMATORS, forms_of_sums, ONE_OF_EACH_SOLVER)
each_form_of_readers = each_form_of(ESTIMATORS, always=readers)
each_main_form_of_readers = each_form_of(ESTIMATORS, always=readers, by_turns=False)
each_form_of_classifiers = each_form_of(CLASSIFIERS, always=[n for n in CLASSIFIERS if n in SOLVED])
each_form_of_regressors = each_form_of(REGRESSORS, always=[n for n in REGRESSORS if n in SOLVED])
each_form_of_all = each_form_of(ESTIMATORS)


def outcome(model):
    """All coefficients and intercepts, shape (k,)."""
    return np.append(np.ravel(model.coef_), np.ravel(model.intercept_))


# --------------------------------------------------------------------------------- data


def table(name, n=60, d=3, *, seed=0, classes=("no", "yes")):
    """X in [-1, 1], a fifth of it 0, and targets in their bounds or labels with a linear signal."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < 0.8)
    if is_classifier(name) and len(classes) > 2:
        return X, np.asarray(classes)[X[:, : len(classes)].argmax(axis=1)]
    signal = X @ np.linspace(1, -0.5, d) + 0.2 + 0.1 * rng.standard_normal(n)
    if is_classifier(name):
        return X, np.where(signal > 0.2, *classes[::-1])
    return X, targets_of(name, np.clip(signal, -1, 1))


@cache
def fitted(name, form=None):
    """The estimator fitted to `table(name)`, once for all tests: they leave it as it is."""
    return build(name, form).fit(*table(name))


def targets_of(name, values):
    """Numbers in [-1, 1] as targets in the bounds of those of a regressor."""
    low, high = entry(name).bounds_y
    return (low + high) / 2 + (high - low) / 2 * np.asarray(values)


def predictions_of(name, raw, model=None):
    """Raw predictions as the scores of a classifier, or as `predict` of a model gives them."""
    if entry(name).of_rates:
        frame = Frame() if model is None else model._scaled_model.frame
        top = np.log(entry(name).bounds_y[1])
        middle, reach = top + frame.target_center, frame.reach
        return np.exp(np.clip(raw, middle - reach, min(top, middle + reach)))
    return np.clip(raw, *entry(name).bounds_y) if "bounds_y" in parameters_of(name) else raw


STORAGES = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
}
SPARSE = ("csr", "csc")


def ways_to_store(name, form):
    """Pairs of a storage and what the estimator needs for it: all for the main form."""
    kinds = STORAGES if form == main_form(name) else ("C", "csr")
    return [(kind, entry(name).sparse if kind in SPARSE else {}) for kind in kinds]


def columns_as(X):
    """A data frame with the columns a, b, c, ..."""
    return pd.DataFrame(X, columns=[chr(ord("a") + k) for k in range(X.shape[1])])


class Unreadable:
    """Data that must not be looked at."""

    def _touched(self, *args, **kwargs):
        raise AssertionError("the data were read")

    __array__ = __len__ = __getitem__ = __iter__ = __float__ = __eq__ = _touched
    __hash__ = None
    shape = property(_touched)
    dtype = property(_touched)


# --------------------------------------------------------------------------- mechanisms


def switch_noise_off(monkeypatch):
    """From now on additive mechanisms release what they are given."""
    monkeypatch.setattr(AdditiveNoise, "with_noise", lambda self, value, stream: np.array(value))


def _kinds_of_mechanisms():
    """All classes of the package with a method `release` of their own."""
    found = set()
    todo = [kind for kind in vars(mechanisms).values() if isinstance(kind, type)]
    while todo:
        kind = todo.pop()
        if kind not in found and kind.__module__.startswith("sklearn_dpsco"):
            found.add(kind)
            todo += kind.__subclasses__()
    return [kind for kind in found if "release" in vars(kind)]


@contextmanager
def every_release(answer):
    """Let ``answer(mechanism, value, release)`` stand in for every release of a mechanism.

    `release` is what the mechanism would have done, a function of nothing.
    """
    inside = threading.local()  # a release that is made of another one counts once

    def replaced(original):
        def release(self, value, stream):
            if getattr(inside, "is_open", False):
                return original(self, value, stream)
            inside.is_open = True
            try:
                return answer(self, value, lambda: original(self, value, stream))
            finally:
                inside.is_open = False

        return release

    with pytest.MonkeyPatch.context() as patch:
        for kind in _kinds_of_mechanisms():
            patch.setattr(kind, "release", replaced(vars(kind)["release"]))
        yield


def _refuse(*_):
    raise AssertionError("budget was spent")


def nothing_is_released():
    """A block in which every release is an error."""
    return every_release(_refuse)


def statistics(model, X, y, groups=None, sample_weight=None):
    """What a fit of the data hands to its mechanisms; see `releases_of`."""
    return releases_of(lambda: model.fit(X, y, groups=groups, sample_weight=sample_weight))


def releases_of(call):
    """What the call hands to mechanisms: pairs (mechanism, value).

    The answers of the mechanisms are the same in every call, so that the values show what a
    record changes in each release, the earlier ones given.
    """
    seen = []

    def answer(mechanism, value, _release):
        seen.append((mechanism, np.array(value, dtype=np.float64)))
        if isinstance(mechanism, mechanisms.SelectVertex):
            return (value.size // 2 + len(seen)) % value.size
        return np.sin(np.arange(value.size) + len(seen))

    with every_release(answer):
        call()
    assert seen
    return seen


def changes(first, second):
    """By mechanism, how much larger than its sensitivity the largest change is.

    The two are `statistics` of neighbouring tables.
    """
    assert [value.shape for _, value in first] == [value.shape for _, value in second]
    differences = {}
    for (mechanism, one), (_, two) in zip(first, second, strict=True):
        differences.setdefault(mechanism, []).append(two - one)
    return {
        mechanism: max(_size(mechanism, change) for change in _units(mechanism, all_of_it))
        / mechanism.sensitivity
        for mechanism, all_of_it in differences.items()
    }


def _units(mechanism, all_of_it):
    """The parts of a mechanism's releases that have one sensitivity together."""
    return [np.concatenate(all_of_it)] if mechanism.is_joint else all_of_it


def _size(mechanism, change):
    """In the norm of the mechanism's sensitivity."""
    if isinstance(mechanism, mechanisms.SelectVertex | mechanisms.GeneralizedGaussian):
        return mechanism.distance(change)
    return np.linalg.norm(change, 1 if isinstance(mechanism, mechanisms.Laplace) else 2)
