"""
Heavy tails without bounds, and what wrong guesses cost
=======================================================

Incomes, delays and counts have no bounds that anybody knows. `HeavyTailDPRegressor` finds a
scale and a centre for every column privately. Who knows the magnitudes can give them
instead; this page shows how far off such guesses may be.
"""

# %%
# A table without bounds
# ----------------------
# Claims of 20,000 customers: columns in units of their own, log-normal and Student-t
# distributed, and a target with a long tail. The table is made up, so that scores without noise
# may be shown here; those of a private table are for `dp_score`.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from sklearn_dpsco import DPLinearRegression, HeavyTailDPRegressor

rng = np.random.default_rng(0)
n = 20_000
income = rng.lognormal(10, 0.8, n)
delay = 20 * np.abs(rng.standard_t(3, n))
visits = rng.poisson(rng.gamma(0.5, 4.0, n))
year = rng.integers(1990, 2020, n)
X = np.column_stack((income, delay, visits, year))
y = 0.02 * income + 15 * delay + 200 * visits + 20 * (year - 2000) + 600 * rng.standard_t(3, n)
X_train, X_test, y_train, y_test = X[:15_000], X[15_000:], y[:15_000], y[15_000:]
reference = LinearRegression().fit(X_train, y_train).score(X_test, y_test)

# %%
# No guesses at all
# -----------------
# The plan shows what the scales and centres cost.

model = HeavyTailDPRegressor(epsilon=1.0, random_state=0)
print(model.plan(*X_train.shape))
model.fit(X_train, y_train)
private = model.score(X_test, y_test)
print(f"\ntest R2: {private:.3f}, not private {reference:.3f}")
for name, scale, center in zip(
    ("income", "delay", "visits", "year"), model.scale_X_, model.center_X_, strict=True
):
    print(f"{name:8s} scale {scale:8g}, centre {center:10.1f}")

# %%
# Guesses that are off
# --------------------
# Guesses come from knowledge of the field, never from the table: an income is some 20,000, give or
# take as much, a customer waits some weeks and comes twice. All scales, of the features or of the
# target, are then multiplied by one factor. Guesses that are too small still learn, since a record
# then counts by its direction. Guesses that are too large bury the features, or the target, in
# noise. A method with bounds, ten times such a guess, stands beside.

guesses = {
    "scale_X": np.array([20_000.0, 30, 3, 10]),
    "center_X": [20_000.0, 20, 2, 2005],
    "scale_y": 1500.0,
    "center_y": 1000.0,
}
factors = 10.0 ** np.arange(-2, 2.1, 0.5)


def score(model):
    return np.median([model.set_params(random_state=k).fit(X_train, y_train).score(X_test, y_test)
                      for k in range(3)])  # fmt: skip


curves = {"scale_X": [], "scale_y": [], "bounds_X and bounds_y of DPLinearRegression": []}
for factor in factors:
    for name in ("scale_X", "scale_y"):
        wrong = guesses | {name: factor * guesses[name]}
        curves[name].append(score(HeavyTailDPRegressor(**wrong, random_state=0)))
    reach_X, reach_y = 10 * factor * guesses["scale_X"], 10 * factor * guesses["scale_y"]
    bounded = DPLinearRegression(
        bounds_X=(guesses["center_X"] - reach_X, guesses["center_X"] + reach_X),
        bounds_y=(guesses["center_y"] - reach_y, guesses["center_y"] + reach_y),
        random_state=0,
    )
    curves["bounds_X and bounds_y of DPLinearRegression"].append(score(bounded))

# %%
# The picture
# -----------

figure, axes = plt.subplots(figsize=(6.5, 5), layout="constrained")
for name, values in curves.items():
    axes.plot(factors, np.maximum(values, -0.5), "o-", label=f"{name} times the factor")
axes.axhline(private, color="tab:red", label="scales found privately")
axes.axhline(reference, color="black", linestyle="--", label="not private")
axes.axhline(0, color="gray", linestyle=":", label="mean of the training part")
axes.set(
    xscale="log",
    ylim=(-0.55, 1),
    xlabel="factor on the guesses",
    ylabel="test R2, cut at -0.5",
    title="Wrong guesses, epsilon = 1, 15,000 records",
)
figure.legend(fontsize="small", loc="outside lower center", ncols=2)
plt.show()
