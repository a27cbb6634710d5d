"""
Private linear models in two minutes
====================================

A medical table, a fixed privacy :term:`budget`, and what it costs in accuracy.

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

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import ShuffleSplit

from sklearn_dpsco import DPLinearRegression, PrivacyUtilityDisplay

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
plan = DPLinearRegression(epsilon=1.0, **public).plan(n_samples=331, n_features=10)
print(plan)
print(f"dp_accounting finds epsilon = {plan.guarantee.second_opinion():.4f}")

# %%
# Fit and compare
# ---------------
# Each point is the median over 20 splits and fits. Every epsilon is that of one fit; to
# publish several of them would cost their composition.

display = PrivacyUtilityDisplay.from_estimator(
    DPLinearRegression(**public),
    X,
    y,
    data_is_public=True,
    epsilons=[0.5, 1.0, 3.0, 8.0],
    cv=ShuffleSplit(20, test_size=0.25, random_state=0),
)
display.ax_.set(
    xlabel="epsilon (smaller is more private)",
    title="Diabetes, 331 training patients, delta = 1e-6",
)
display.ax_.set_xticks(display.epsilons, [f"{epsilon:g}" for epsilon in display.epsilons])
display.ax_.minorticks_off()

print("\nepsilon           test R2")
print(f"trivial (mean)    {np.median(display.trivial_scores):7.3f}")
for epsilon, scores in zip(display.epsilons, display.scores, strict=True):
    print(f"{epsilon:<18g}{np.median(scores):7.3f}")
print(f"infinity (ridge)  {np.median(display.non_private_scores):7.3f}")

picture = Path("quickstart.png")
display.figure_.savefig(picture, dpi=120)
print(f"\nThe picture is in {picture}.")
