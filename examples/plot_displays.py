"""
Pictures of a budget
====================

What a budget buys, where it goes, and what an observer can still tell: four displays in the manner
of scikit-learn's. Three of them show public facts alone and may be shown for any table; the
last one fits many times, and is for tables that are public or made up, as this one is.
"""

# %%
# Where the budget goes
# ---------------------
# A plan lists every release before a record is read. Here are two fits of one budget: the first
# learns its units, with a part of the budget; the second trusts the declared bounds.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpsco import (
    BudgetAccountant,
    CoefficientDisplay,
    DPLinearRegression,
    DPMirrorRegressor,
    LedgerDisplay,
    PlanDisplay,
    TradeoffCurveDisplay,
)

bounds = {"bounds_X": (0, 10), "bounds_y": (0, 100)}
model = DPLinearRegression(epsilon=1.0, **bounds)
simple = DPMirrorRegressor(epsilon=1.0, solver="noisy-md", **bounds)

figure, axes = plt.subplots(2, 1, layout="constrained", height_ratios=(3, 1))
PlanDisplay.from_estimator(model, 5000, 6, ax=axes[0])
PlanDisplay.from_estimator(simple, 5000, 6, ax=axes[1])
plt.show()

# %%
# What an observer can tell
# -------------------------
# Whoever has to decide from the model whether a record had one value or another makes errors of
# two kinds. The curve is the best that anyone can do: at epsilon = 0.1 hardly better than a guess.

figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
for epsilon in (0.1, 1.0, 3.0):
    plan = model.set_params(epsilon=epsilon).plan(5000, 6)
    TradeoffCurveDisplay.from_guarantee(
        plan.guarantee, ax=ax, name=f"epsilon = {epsilon:g}", plot_chance_level=epsilon == 3.0
    )
plt.show()

# %%
# What was spent
# --------------
# A ledger says what each fit cost, and what is left for the records it looks after.

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (5000, 6))
y = np.clip(X @ [4, 0, 2, 0, 1, 0] + rng.normal(0, 5, 5000), 0, 100)

accountant = BudgetAccountant(epsilon=3.0)
for epsilon, label in ((1.0, "first model"), (0.5, "fewer columns"), (1.0, "final")):
    with accountant.label(label):
        DPLinearRegression(epsilon=epsilon, accountant=accountant, **bounds).fit(X, y)
LedgerDisplay.from_accountant(accountant)
plt.show()

# %%
# How far noise moves the coefficients
# ------------------------------------
# Of a private table nobody can know that without paying for it. Of a table that is made up to
# resemble it, many fits tell.

CoefficientDisplay.from_refits(
    DPLinearRegression(epsilon=0.3, **bounds), X, y, data_is_public=True, random_state=0
)
plt.show()

# %%
# In a notebook
# -------------
# An estimator shows below scikit-learn's diagram what is declared, and after a fit what is
# guaranteed. Plans, guarantees, scores, ledgers and reports are tables.

model.set_params(epsilon=1.0).fit(X, y)

# %%
# All releases of that fit, with their noise:

model.guarantee_
