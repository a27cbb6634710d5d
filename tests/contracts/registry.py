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

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import MetaEstimatorMixin
from sklearn.base import is_classifier as _is_classifier
from support import WEIGHT_CHECKS, rest_is_slow

import sklearn_dpsco
from sklearn_dpsco import BudgetAccountant, PrivacyBudget, mechanisms
from sklearn_dpsco.geometry import L1Ball, L2Ball, Simplex
from sklearn_dpsco.losses import Logistic, Squared, SquaredHinge

NAN, INF = np.nan, np.inf

# what a careful user declares, wherever an estimator has such a parameter
DECLARED = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "classes": ["no", "yes"]}

# bad values of the parameters that mean the same in all estimators
BAD = {
    "epsilon": (-1, 0, NAN, -INF, 1e10, "inf", None, True),
    "delta": (-1e-9, 1, 1.5, NAN, "0", None),
    "relation": ("replace_one", None),
    "max_weight": (0, -1, NAN, INF, "1", None, True, 1e51, [1.0]),
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
    "classes": (["a"], [], ["a", "a"], ["a", "b", "a"], 3, "ab", [["a", "b"]]),
    "fit_intercept": ("yes", 1, None),
    "loss": ("no such loss", None, 3, Squared),
    "feasible_set": ("l3", None, L1Ball),
    "radius": (0, -1, NAN, INF, "big", None, True),
    "mirror_map": ("l2", None, 2),
    "l2_penalty": (-0.1, NAN, INF, "auto", None),
    "gradient_clip": (0, -0.5, NAN, "none"),
    "data_norm": (0, -1, NAN, INF, "l2"),
    "solver": ("sgd", None, 1, "constant"),
    "max_iter": (0, -3, 1.5, "many", True, NAN),
    "n_phases": (0, -1, 2.0, None),
    "n_restarts": (0, 1.5, "many", None, 101),
    "min_selections": (0, -1, 1.5, "2", None, True, NAN),
    "batch_size": (0, -1, 2.5, "all", True),
    "learning_rate": (0, -0.1, NAN, INF, "constant", None),
    "average": ("yes", None, 1),
    "shuffle": ("yes", None, 1),
    "precision": ("double", None),
    "nonfinite": ("drop", None, True, 0, NAN),
    "accountant": (1.0, "auto", PrivacyBudget(1.0), BudgetAccountant),
    "verbose": (-1, 1.5, "yes", None, NAN),
    "random_state": (-1, "0", 1.5, True, np.random.default_rng(0)),
}  # fmt: skip


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
    expected_failed_checks : dict
        Of scikit-learn, with the reason.
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
        ({}, (0, 0, 0)), ({"bounds_X": ([-1, -1, -2], [3, 0, 1])}, (1, 0, -0.5)),
    )  # fmt: skip
    unlike_sums: tuple[str, ...] = ()
    by_selection: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    expected_failed_checks: Mapping[str, str] = field(default_factory=lambda: WEIGHT_CHECKS)


RADIUS_TWICE = ({"feasible_set": L2Ball(2.0), "radius": 2.0}, "radius")
SIMPLEX = ({"feasible_set": "simplex"}, "fit_intercept=False")

LASSO = Entry(
    forms={
        "gradient": {"solver": "gradient", "max_iter": 4},
        "selection": {"solver": "selection", "max_iter": 4},
        "pure": {"delta": 0, "max_iter": 4},
        "repeated": {"min_selections": 2, "max_iter": 6},
        "rounds": {"solver": "rounds", "max_iter": 2},
        "tree": {"solver": "tree", "n_restarts": 2, "max_iter": 4},
        "spider": {"solver": "spider", "l2_penalty": 0.1},
    },
    bad={
        "learning_rate": (1.1,),
        "feasible_set": ("simplex", Simplex(1.0)),
    },
    nonsense=(
        ({"solver": "gradient", "delta": 0}, "selection"),
        ({"feasible_set": L1Ball(2.0), "radius": 2.0}, "radius"),
        ({"feasible_set": "unconstrained"}, "unconstrained"),
        ({"delta": 0, "feasible_set": "l2", "max_iter": 5}, "vertices"),
        SIMPLEX,
        ({"solver": "selection", "n_restarts": 2}, "n_restarts is for"),
        ({"solver": "spider", "max_iter": 5}, "max_iter='auto'"),
        ({"solver": "rounds", "feasible_set": "l2"}, "vertices"),
        ({"solver": "gradient", "min_selections": 2}, "min_selections=2 is for"),
        ({"solver": "tree", "min_selections": 2}, "min_selections=2 is for"),
        (
            {"feasible_set": "simplex", "fit_intercept": False, "min_selections": 2},
            "min_selections=2 needs feasible_set='l1'",
        ),
    ),
    too_small=(
        ({"max_iter": 3, "min_selections": 4}, "min_selections must be at most"),
        ({"solver": "rounds", "max_iter": 41}, "smallest n that works"),
        ({"solver": "tree", "max_iter": 64}, "smallest n that works"),
        ({"solver": "spider", "n_restarts": 20}, "smallest n that works"),
    ),
    # which records are read together is drawn
    unlike_sums=("rounds", "tree", "spider"),
    by_selection=("selection", "pure", "repeated", "rounds", "tree", "spider"),
)
MIRROR = Entry(
    forms={
        "noisy-md": {"solver": "noisy-md", "max_iter": 4},
        "localized": {"solver": "localized", "max_iter": 2, "n_restarts": 2},
        "proximal": {"solver": "proximal", "max_iter": 2, "n_phases": 3},
        # (with the default clip a derivative at the ends of the targets never changes)
        "noisy-sfw": {"solver": "noisy-sfw", "max_iter": 4, "gradient_clip": 2.0},
        "entropy": {"feasible_set": "l1", "mirror_map": "entropy", "max_iter": 4},
        "batches": {"batch_size": 10, "max_iter": 4},
        "learned-units": {"max_iter": 4},
    },
    bad={"batch_size": ("auto",), "feasible_set": ("simplex", Simplex(1.0))},
    nonsense=(
        RADIUS_TWICE,
        SIMPLEX,
        ({"solver": "noisy-sfw", "feasible_set": "linf"}, r"p <= 2.*'noisy-md'"),
        ({"solver": "noisy-sfw", "learning_rate": 1.5}, "learning_rate"),
        ({"solver": "noisy-sfw", "batch_size": 5}, "batch_size is for solver='noisy-md'"),
        ({"solver": "localized", "batch_size": 5}, "batch_size is for solver='noisy-md'"),
        ({"batch_size": 5, "n_restarts": 2}, "n_restarts is not for random batches"),
        ({"solver": "localized", "feasible_set": "l1", "mirror_map": "entropy"}, "entropy"),
        ({"solver": "proximal", "feasible_set": "l1", "mirror_map": "entropy"}, "entropy"),
        ({"feasible_set": "l2", "mirror_map": "entropy"}, "mirror_map"),
        ({"mirror_map": "entropy"}, "mirror_map"),  # the plan may choose the l2 ball
    ),
    too_small=(
        ({"batch_size": 41}, "smallest n that works"),
        ({"solver": "localized", "n_phases": 20}, "smallest n that works"),
        ({"solver": "noisy-md", "n_restarts": 7}, "smallest n that works"),
        ({"solver": "proximal", "n_phases": 41}, "smallest n that works"),
        ({"solver": "noisy-sfw", "max_iter": 40}, "smallest n that works"),
    ),
    pure="DPLassoFW",
    # a median is no sum
    unlike_sums=("learned-units",),
)
PHASED = Entry(
    forms={
        "one pass": {"max_iter": 1},
        "passes": {"max_iter": 3, "n_phases": 2},
        "learned units": {},
    },
    bad={
        "learning_rate": (99.0,),  # beyond what the proof allows
        "feasible_set": ("l1", L1Ball(1.0)),
        "rank_bound": (0, 1.5, "d", 2),
    },
    nonsense=(
        ({"feasible_set": "unconstrained", "radius": 2.0}, "has no radius"),
        ({"feasible_set": "unconstrained", "rank_bound": 0}, "rank_bound"),
        ({"feasible_set": "unconstrained", "rank_bound": "d"}, "rank_bound"),
        ({"rank_bound": 2}, "rank_bound must be None unless"),
        RADIUS_TWICE,
    ),
    too_small=(
        ({"n_phases": 41}, "n_phases=41 needs n_samples >= 41"),
        ({"feasible_set": "unconstrained", "rank_bound": 4}, "rank_bound must be at most"),
    ),
    pure="no pure-DP form",
    # where a descent ends is no sum
    unlike_sums=("one pass", "passes", "learned units"),
)
FTRL = Entry(
    forms={"steps of 4": {}, "tree": {"factorization": "tree", "average": False, "batch_size": 7}},
    bad={
        "horizon": (0, -1, 1.5, "long", True, NAN),
        "batch_size": (None,),
        "factorization": ("fft", None),
        "feasible_set": ("simplex", Simplex(1.0)),
    },
    nonsense=(RADIUS_TWICE, SIMPLEX, ({"mirror_map": "entropy"}, "mirror_map")),
    pure="DPLassoFW",
    expected_failed_checks=WEIGHT_CHECKS
    | {"check_fit_score_takes_y": "it calls partial_fit after fit, which would spend twice"},
)
HEAVY_TAIL = Entry(
    forms={
        "scof": {"max_iter": 3},
        "slices": {"max_iter": 2, "solver": "scof-slices"},
        "guesses": {"max_iter": 3, "scale_X": 1.0, "center_X": 0.0, "oracle": "smoothed"},
        "buckets": {"max_iter": 3, "oracle": "median-of-means", "n_buckets": 3},
        "pure": {"max_iter": 3, "delta": 0},
        "intercept only": {},
    },
    bad={
        "scale_X": (0, -1.0, NAN, "auto", [1.0, 0.0], np.ones((2, 2)), None, {"a": "private"}),
        "center_X": (INF, "mean", np.ones((2, 2)), {"a": NAN}),
        "scale_y": (0.0, [1.0], "auto", None),
        "center_y": (NAN, [1.0], "mean", None),
        "scale_share": (0, 0.71, 1.0, NAN, "half"),
        "oracle": ("mean", None),
        "moment_order": (1.5, NAN, "2"),
        "moment_bound": (0.0, -1.0),
        "tau": (0.0, -2, "big"),
        "n_buckets": (0, 1.5),
        "solver": ("auto", "noisy-md"),
    },
    nonsense=(
        ({"fit_intercept": False, "center_X": 1.0}, "center_X"),
        ({"fit_intercept": False, "center_y": 1.0}, "center_y"),
        RADIUS_TWICE,
    ),
    too_small=(
        ({"oracle": "median-of-means", "n_buckets": 41, "max_iter": 2}, "n_buckets=41"),
        ({"scale_X": [1.0, 2.0]}, "scale_X"),
    ),
    sparse={"center_X": 0.0},
    shifting=({"center_X": "private"}, {"center_X": 1.0}),
    columns={"scale_X": 1.0, "center_X": 0.0},
    origins=(
        ({"max_iter": 3}, "center_X_"),
        ({"scale_X": 1.0, "center_X": [0.5, 0.0, -2.0]}, (0.5, 0.0, -2.0)),
    ),
    unlike_sums=("buckets",),
    constant=("intercept only",),
)  # fmt: skip

REGISTRY = {
    "DPLassoFW": LASSO,
    "DPLassoFWClassifier": LASSO,
    "DPMirrorRegressor": MIRROR,
    "DPMirrorClassifier": MIRROR,
    "DPPhasedSGDRegressor": PHASED,
    "DPPhasedSGDClassifier": PHASED,
    "DPFTRLRegressor": FTRL,
    "DPFTRLClassifier": FTRL,
    "HeavyTailDPRegressor": HEAVY_TAIL,
    "HeavyTailDPClassifier": HEAVY_TAIL,
}

# other paths than the defaults take, for all checks of scikit-learn
FURTHER_CHECKS = [
    ("DPLassoFW", {"solver": "selection", "max_iter": 5}),
    ("DPLassoFWClassifier", {"solver": "gradient", "nonfinite": "zero", "max_iter": 5}),
    ("DPMirrorRegressor", {"solver": "localized", "max_iter": 2}),
    ("DPPhasedSGDClassifier", {"max_iter": 1, "fit_intercept": False, "relation": "zero-out"}),
    ("HeavyTailDPRegressor", {"max_iter": 2, "center_X": 0.0, "delta": 0, "solver": "scof-slices"}),
    ("HeavyTailDPClassifier", {"max_iter": 3}),
]

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

each = pytest.mark.parametrize("name", ESTIMATORS)
each_classifier = pytest.mark.parametrize("name", CLASSIFIERS)
each_regressor = pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - set(CLASSIFIERS)))


def _one_of_each_entry():
    """A regressor and a classifier in turns: the two of an entry have one solver."""
    of_entry = {}
    for name in sorted(ESTIMATORS, key=is_classifier):
        of_entry.setdefault(id(REGISTRY.get(name)), []).append(name)
    return [names[k % len(names)] for k, names in enumerate(of_entry.values())]


# for what takes long and is decided by the solver; with `-m slow` all of them are run
each_solver = rest_is_slow("name", ESTIMATORS, _one_of_each_entry())


def known(name, parameters):
    """Those of the parameters that the estimator has."""
    return {key: value for key, value in parameters.items() if key in parameters_of(name)}


def build(name, form=None, **parameters):
    """The estimator with everything declared, in one of its forms or by default, and a seed."""
    settings = {} if form is None else entry(name).forms[form]
    return kind_of(name)(**known(name, DECLARED) | {"random_state": 0} | settings | parameters)


def forms(name):
    """The names of its forms. Batches of a classifier are left out: nothing new, and slow."""
    return [form for form in entry(name).forms if form != "batches" or not is_classifier(name)]


def descending_forms(name):
    """Those that learn coefficients."""
    return [form for form in forms(name) if form not in entry(name).constant]


def main_form(name):
    return forms(name)[0]


def outcome(model):
    """All coefficients and intercepts, shape (k,)."""
    return np.append(np.ravel(model.coef_), np.ravel(model.intercept_))


# --------------------------------------------------------------------------------- data


def table(name, n=60, d=3, *, seed=0, classes=("no", "yes")):
    """X in [-1, 1], a fifth of it 0, and targets in [-1, 1] or labels with a linear signal."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < 0.8)
    if is_classifier(name) and len(classes) > 2:
        return X, np.asarray(classes)[X[:, : len(classes)].argmax(axis=1)]
    signal = X @ np.linspace(1, -0.5, d) + 0.2 + 0.1 * rng.standard_normal(n)
    if is_classifier(name):
        return X, np.where(signal > 0.2, *classes[::-1])
    return X, np.clip(signal, -1, 1)


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


def _additive_noise():
    """The class that adds all noise that is added to vectors, and its method that does so."""
    try:
        from sklearn_dpsco.mechanisms.additive import AdditiveNoise
    except ImportError:
        return mechanisms._AdditiveNoise, "_with_noise"
    return AdditiveNoise, "with_noise"


def switch_noise_off(monkeypatch):
    """From now on additive mechanisms release what they are given."""
    monkeypatch.setattr(*_additive_noise(), lambda self, value, stream: np.array(value))


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
