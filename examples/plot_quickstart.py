"""
Private linear models in two minutes
====================================

A medical table, a fixed privacy budget, and what it costs in accuracy.

The table has 442 patients, ten measurements each, and the progress of their diabetes
after a year; it ships with scikit-learn. So small a table is the hard case: the noise
that hides one patient is spread over few of them. It is public, so that scores without noise
may be shown here; those of a private table are for `dp_score`.
"""

# %%
# Declare what is public
# ----------------------
# Bounds come from medical knowledge, never from the table. Values outside are clipped.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_dpsco import DPMirrorRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
bounds_X = {
    "age": (0, 100),
    "sex": (1, 2),
    "bmi": (10, 60),
    "bp": (40, 180),
    "s1": (50, 400),  # total serum cholesterol
    "s2": (0, 300),  # low-density lipoproteins
    "s3": (0, 120),  # high-density lipoproteins
    "s4": (0, 12),  # total cholesterol / HDL
    "s5": (2, 8),  # log of triglycerides
    "s6": (40, 200),  # blood sugar
}
bounds_y = (0, 400)

# %%
# Look at the plan before spending anything
# -----------------------------------------
# A plan is made from public facts alone. It lists every release of the fit, its
# sensitivity and its noise, and the guarantee that follows from them. The relation is
# "zero-out", the one that most libraries quote: a record against one that contributes
# nothing. The default, "replace-one", is the stronger promise and costs twice the noise.

public = {"relation": "zero-out", "bounds_X": bounds_X, "bounds_y": bounds_y}
plan = DPMirrorRegressor(epsilon=1.0, **public).plan(n_samples=331, n_features=10)
print(plan)
print(f"dp_accounting finds epsilon = {plan.guarantee.second_opinion():.4f}")

# %%
# Fit and compare
# ---------------
# Each number is the median over 20 splits and fits. Every epsilon is that of one fit; to
# publish several of them would cost their composition.

epsilons = [0.5, 1.0, 3.0, 8.0]
private = {epsilon: [] for epsilon in epsilons}
trivial, ridge = [], []
for seed in range(20):
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed)
    for epsilon in epsilons:
        model = DPMirrorRegressor(epsilon=epsilon, **public)
        private[epsilon].append(model.fit(X_train, y_train).score(X_test, y_test))
    trivial.append(DummyRegressor().fit(X_train, y_train).score(X_test, y_test))
    reference = make_pipeline(StandardScaler(), RidgeCV())
    ridge.append(reference.fit(X_train, y_train).score(X_test, y_test))

scores = {f"{epsilon:g}": np.median(values) for epsilon, values in private.items()}
print("\nepsilon           test R2")
print(f"trivial (mean)    {np.median(trivial):7.3f}")
for epsilon, score in scores.items():
    print(f"{epsilon:18s}{score:7.3f}")
print(f"infinity (ridge)  {np.median(ridge):7.3f}")

# %%
# The picture
# -----------

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
low, middle, high = (
    [np.quantile(private[epsilon], q) for epsilon in epsilons] for q in (0.25, 0.5, 0.75)
)
axes.fill_between(epsilons, low, high, alpha=0.25, label="half of the fits")
axes.plot(epsilons, middle, "o-", label="DPMirrorRegressor, median")
axes.axhline(np.median(ridge), color="black", linestyle="--", label="ridge, not private")
axes.axhline(np.median(trivial), color="gray", linestyle=":", label="mean of the training part")
axes.set(
    xscale="log",
    xlabel="epsilon (smaller is more private)",
    ylabel="test R2",
    title="Diabetes, 331 training patients, delta = 1e-6",
)
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.minorticks_off()
axes.legend(loc="lower right")
picture = Path("quickstart.png")
figure.savefig(picture, dpi=120)
print(f"\nThe picture is in {picture}.")
