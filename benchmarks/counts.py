"""Models of counts and costs in made families: deviance, bias, worst fits, and intervals.

    python benchmarks/counts.py [--families NAME ...] [--rows N ...] [--features D ...]
        [--epsilons E ...] [--seeds K] [--relation R] [--exposure] [--intervals] [--linear]

For each cell: n mu over d^1.5; D2 on new rows of scikit-learn's fit without penalty and without
privacy; the median and the worst difference of the private fits to it, and the worst to a constant
model; the mean of the predictions over that of the targets, less 1. With ``--intervals``: how many
95 % intervals cover the true coefficient, the mean over the coefficients and the least, and their
width over that without privacy. With ``--linear``, the same deviance of `DPLinearRegression` whose
predictions are floored at a thousandth of the mean. Delta 1e-6.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
import zlib

import numpy as np
from sklearn.linear_model import TweedieRegressor
from sklearn.metrics import d2_tweedie_score

from sklearn_dpsco import (
    DPGammaRegressor,
    DPLinearRegression,
    DPPoissonRegressor,
    DPTweedieRegressor,
)

N_NEW = 20_000


def negative_binomial(rng, mean):
    """Three times as much variance as the mean."""
    return rng.poisson(rng.gamma(mean / 2, 2.0))


FAMILIES = {
    "poisson .2": (1, 0.2, 20, lambda rng, mean: rng.poisson(mean)),
    "poisson 2": (1, 2.0, 100, lambda rng, mean: rng.poisson(mean)),
    "poisson 20": (1, 20.0, 500, lambda rng, mean: rng.poisson(mean)),
    "overdispersed": (1, 2.0, 200, negative_binomial),
    "gamma .5": (2, 500.0, 100_000, lambda rng, mean: rng.gamma(0.5, mean / 0.5)),
    "gamma 2": (2, 500.0, 100_000, lambda rng, mean: rng.gamma(2.0, mean / 2.0)),
    "zeros": (
        1.5,
        50.0,
        100_000,
        lambda rng, mean: rng.binomial(1, 0.1, mean.size) * rng.gamma(1.0, mean / 0.1),
    ),
}


def table(family, n, d, seed, exposure):
    """X, y, exposures, and the coefficients on the log scale."""
    _, level, _, draw = FAMILIES[family]
    rng = np.random.default_rng([seed, d])
    X = rng.normal(size=(n, d))
    X[:, 1::2] = rng.uniform(size=X[:, 1::2].shape) < 0.3  # flags
    coef = 0.5 / np.sqrt(d) * np.where(np.arange(d) % 4 < 2, 1.0, -1.0) * (1 + np.arange(d) % 2)
    mean = np.exp(X @ coef)
    mean *= level / np.exp(coef[::2] @ coef[::2] / 2 + np.log1p(0.3 * np.expm1(coef[1::2])).sum())
    e = rng.uniform(0.1, 1.0, n) if exposure else np.ones(n)
    y = draw(rng, mean * e)
    return X, np.maximum(y, 1e-9 * level) if family.startswith("gamma") else y, e, coef


def private(family, exposure, **settings):
    """The model that suits the family, with wide bounds."""
    power, level, high, _ = FAMILIES[family]
    kind = {1: DPPoissonRegressor, 2: DPGammaRegressor, 1.5: DPTweedieRegressor}[power]
    low = 1e-9 * level if power == 2 else 0
    return kind(
        bounds_X=(-5, 5),
        bounds_y=(low, high),
        bounds_exposure=(0.1, 1.0) if exposure else None,
        delta=1e-6,
        precision="float",
        **settings,
    )


def cell(family, n, d, epsilon, args):
    """The numbers of one line."""
    power, _, high, _ = FAMILIES[family]
    differences, constants, biases, covered, widths, linear, best = [], [], [], [], [], [], []
    for seed in range(args.seeds):
        X, y, e, coef = table(family, n + N_NEW, d, seed, args.exposure)
        weights, rates = e ** (2 - power), y / e
        facts, floor = (X[n:], rates[n:], weights[n:]), 1e-3 * rates[:n].mean()
        plain = TweedieRegressor(power=power, alpha=0, link="log", solver="newton-cholesky")
        plain.fit(X[:n], rates[:n], sample_weight=weights[:n])

        def d2(predicted, facts=facts, floor=floor):
            predicted = np.maximum(predicted, floor)
            return d2_tweedie_score(facts[1], predicted, sample_weight=facts[2], power=power)

        # noise of its own in each cell, or all biases would have the same error
        noise = zlib.crc32(f"{family} {n} {d} {epsilon} {seed}".encode())
        model = private(family, args.exposure, epsilon=epsilon, random_state=noise)
        model.set_params(inference=args.intervals, relation=args.relation)
        given = {"exposure": e[:n]} if args.exposure else {}
        model.fit(X[:n], y[:n], **given)
        found = model.predict(X[n:])
        best.append(d2(plain.predict(X[n:])))
        differences.append(d2(found) - best[-1])
        constants.append(d2(found) - d2(np.full(N_NEW, np.average(rates[:n], weights=weights[:n]))))
        biases.append(np.average(found, weights=e[n:]) / np.average(rates[n:], weights=e[n:]) - 1)
        if args.intervals:
            ends = np.asarray(model.conf_int())[:d]
            covered.append((ends[:, 0] <= coef) & (coef <= ends[:, 1]))
            errors = model._estimates
            ratios = errors.std[0, :d] / errors.std_sampling[0, :d]
            widths.append(np.median(np.where(np.isfinite(ratios), ratios, np.inf)))
        if args.linear:
            facts_of = model.get_params()
            line = DPLinearRegression(
                **{
                    k: facts_of[k]
                    for k in ("epsilon", "delta", "relation", "bounds_X", "precision")
                },
                bounds_y=(0, high / (0.1 if args.exposure else 1)),
                random_state=seed,
            ).fit(X[:n], rates[:n], sample_weight=e[:n])
            linear.append(d2(line.predict(X[n:])) - best[-1])
    budget = model.plan_.budget
    mu = np.sqrt(2 * budget.mixed_allowance.amount)
    line = [
        f"{family:14} {n:7} {d:3} {epsilon:4g} {n * mu / d**1.5:7.0f}",
        f"{np.median(best):6.3f} {np.median(differences):7.3f} {min(differences):7.3f}",
        f"{min(constants):7.3f} {np.mean(biases):7.3f} {np.max(np.abs(biases)):6.3f}",
    ]
    if args.intervals:
        by_coef = np.mean(covered, axis=0)
        line.append(f"{by_coef.mean():.3f} {by_coef.min():.3f} {np.median(widths):.2f}")
    if args.linear:
        line.append(f"{np.median(linear):7.3f}")
    return "  ".join(line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--rows", nargs="*", type=int, default=[5000, 20_000])
    parser.add_argument("--features", nargs="*", type=int, default=[5, 20])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[0.5, 1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--relation", default="zero-out", choices=["zero-out", "replace-one"])
    for flag in ("exposure", "intervals", "linear"):
        parser.add_argument(f"--{flag}", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "family               n   d  eps nmu/d^1.5  best   median   worst  constant    bias    most"
    )
    for facts in itertools.product(args.families, args.rows, args.features, args.epsilons):
        try:
            print(cell(*facts, args), flush=True)
        except ValueError as refused:  # intervals of too few rows
            print(
                "{:14} {:7} {:3} {:4g}".format(*facts), "", str(refused).split(",")[0], flush=True
            )


if __name__ == "__main__":
    main()
