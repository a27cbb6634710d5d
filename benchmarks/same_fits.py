"""Some 4,500 seeded fits, to see that a change of the code leaves plans and models as they are.

    python benchmarks/same_fits.py record FILE     # on the code before
    python benchmarks/same_fits.py compare FILE    # on the code after

A third argument names the folder of the tests of another checkout, whose package is then the one
that fits. Every estimator in every form of ``tests/contracts/registry.py``, on tables of several
shapes, storages and targets, under both relations, and with intervals. Plans are equal if their
releases have the same names, numbers, laws and scales to the last bit; models, and covariances, if
they differ by at most 1e-12 of their scale. Cases are told from each other by the names of the
forms: parameters may be renamed in between.
"""

import itertools
import os
import pickle
import sys
import warnings
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
TESTS = Path(sys.argv[3] if len(sys.argv) > 3 else Path(__file__).parent.parent / "tests")
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "contracts")]

import numpy as np  # noqa: E402
import registry as known  # noqa: E402

import sklearn_dpsco  # noqa: E402

RELATIONS = ("replace-one", "zero-out")
STORAGES = known.STORAGES | {"float32": lambda X: X.astype(np.float32)}
# further parameters, and arguments of fit by name
EXTRAS = {
    "weights": ({"max_weight": 2.0}, ("sample_weight",)),
    "users": ({"max_rows_per_user": 2}, ("groups",)),
    "zero": ({"nonfinite": "zero"}, ()),
    "float": ({"precision": "float"}, ()),
    "even": ({"class_weight": "balanced"}, ()),
    "account": ({"accountant": True}, ()),
    "wide bounds": ({"bounds_X": (-30, 50), "bounds_y": (-9, 20)}, ()),
}


def table(name, n, d, outputs):
    rng = np.random.default_rng(n + 31 * d + outputs)
    X = rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < 0.8)
    z = X @ rng.normal(size=(d, outputs)) + 0.1 * rng.normal(size=(n, outputs))
    if not known.is_classifier(name):
        y = known.targets_of(name, np.clip(z, -1, 1))
        return X, y[:, 0] if outputs == 1 else y, {}
    if outputs == 1:
        return X, np.where(z[:, 0] > 0, "yes", "no"), {}
    return X, np.array(["a", "b", "c"])[z.argmax(axis=1)], {"classes": ["a", "b", "c"]}


def cases():
    """Key, name, form, parameters, (n, d, outputs), storage, arguments of fit."""
    for name in known.ESTIMATORS:
        forms = known.entry(name).forms
        for form, relation, outputs, storage, intercept, n in itertools.product(
            forms, RELATIONS, (1, 3), ("C", "csr", "csc"), (True, False), ((60, 3), (300, 12))
        ):
            parameters = {"relation": relation, "fit_intercept": intercept}
            yield name, form, parameters, (*n, outputs), storage, ()
        for form, storage in itertools.product(forms, ("float32", "Fortran")):
            yield name, form, {}, (150, 5, 1), storage, ()
        for form, extra, relation in itertools.product(forms, EXTRAS, RELATIONS):
            more, arguments = EXTRAS[extra]
            yield name, form, more | {"relation": relation}, (100, 4, 1), "C", arguments
        defaults = ((100, 3, 1), (1500, 5, 1), (1500, 5, 3), (400, 40, 1), (6000, 8, 1))
        for epsilon, sizes, relation in itertools.product((0.1, 1.0, 8.0), defaults, RELATIONS):
            yield name, None, {"epsilon": epsilon, "relation": relation}, sizes, "C", ()
        for epsilon, storage in itertools.product((0.3, 3.0), ("csr", "csc")):
            yield name, None, {"epsilon": epsilon}, (800, 2500, 1), storage, ()
        of_intervals = EXTRAS if "inference" in known.parameters_of(name) else ()
        for extra, relation, outputs in itertools.product(of_intervals, RELATIONS, (1, 3)):
            more, arguments = EXTRAS[extra]
            more = more | {"relation": relation, "inference": True, "epsilon": 8.0}
            yield name, None, more, (6000, 4, outputs), "C", arguments
        for delta in (0.0, 1e-6):
            yield name, None, {"delta": delta}, (2000, 6, 1), "C", ()


def run(name, form, parameters, sizes, storage, arguments):
    X, y, more = table(name, *sizes)
    rng, n = np.random.default_rng(5), len(X)
    given = {"sample_weight": rng.uniform(0, 2, n), "groups": rng.integers(0, n // 2, n)}
    parameters = {"random_state": 7, **more, **parameters}
    if parameters.get("accountant"):
        parameters["accountant"] = sklearn_dpsco.BudgetAccountant(50.0, 1e-3)
        parameters["relation"] = "replace-one"
    if form is not None and "delta" in known.entry(name).forms[form]:
        parameters["delta"] = known.entry(name).forms[form]["delta"]
    own = known.parameters_of(name)
    model = known.build(name, form, **{k: v for k, v in parameters.items() if k in own})
    model.fit(STORAGES[storage](X), y, **{a: given[a] for a in arguments})
    guarantee = model.guarantee_
    plan = [guarantee.composition, float(guarantee.epsilon).hex(), float(guarantee.delta).hex()]
    for release in guarantee.releases:
        mechanism = release.mechanism
        numbers = (mechanism.sensitivity, mechanism.scale)
        law = type(mechanism).__name__, *(float(v).hex() for v in numbers)
        plan.append((release.name, release.count, *law))
    coef = np.append(np.ravel(model.coef_), np.ravel(model.intercept_))
    if parameters.get("inference"):
        coef = np.append(coef, np.nan_to_num(model.coef_cov_))
    return tuple(plan), coef, model.n_iter_


def all_outcomes():
    outcomes = {}
    for case in cases():
        key = repr(case)
        assert key not in outcomes, key
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcomes[key] = run(*case)
        except (ValueError, sklearn_dpsco.PrivacyBudgetError) as error:
            outcomes[key] = type(error).__name__
    return outcomes


def difference(before, after):
    """Why two outcomes differ; "" if they do not."""
    said = [outcome if isinstance(outcome, str) else "a fit" for outcome in (before, after)]
    if "a fit" not in said or said[0] != said[1]:
        both_fail = "a fit" not in said
        return "" if both_fail else f"{said[0]} before, {said[1]} now"
    (plan, coef, n_iter), (new_plan, new_coef, new_n_iter) = before, after
    if plan != new_plan:
        changed = [pair for pair in zip(plan, new_plan, strict=False) if pair[0] != pair[1]]
        return f"plan: {changed[:2]}, {len(plan)} and {len(new_plan)} facts"
    if n_iter != new_n_iter or coef.shape != new_coef.shape:
        return "number of steps or of coefficients"
    worst, scale = np.abs(coef - new_coef).max(), np.abs(coef).max()
    return "" if worst <= 1e-12 * scale else f"coefficients by {worst:.1e} of {scale:.1e}"


def main(mode, file, *_):
    outcomes = all_outcomes()
    if mode == "record":
        Path(file).write_bytes(pickle.dumps(outcomes))
        n_fits = sum(not isinstance(outcome, str) for outcome in outcomes.values())
        print(f"{len(outcomes)} cases, {n_fits} of them fits")
        return
    before = pickle.loads(Path(file).read_bytes())
    both = sorted(before.keys() & outcomes.keys())
    differ = {key: why for key in both if (why := difference(before[key], outcomes[key]))}
    for key, why in differ.items():
        print(why, "|", key)
    fits = [key for key in both if not isinstance(before[key], str) and key not in differ]
    n_equal = sum(before[key][1].tobytes() == outcomes[key][1].tobytes() for key in fits)
    alone = len(before.keys() ^ outcomes.keys())
    print(
        f"{len(both)} compared, {n_equal} fits equal to the bit, {len(differ)} differ, "
        f"{alone} in one of the two only"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
