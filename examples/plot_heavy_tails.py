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
# distributed, and a target with a long tail.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from sklearn_dpsco import HeavyTailDPRegressor
from sklearn_dpsco.estimators.mirror import DPMirrorRegressor

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
# All scales, of the features or of the target, are multiplied by one factor. Guesses that
# are too small still learn, since a record then counts by its direction. Guesses that are
# too large bury the features, or the target, in noise. A method with bounds that are too
# wide by the same factor stands beside.

scale_X, center_X = X.std(axis=0), np.median(X, axis=0)
scale_y, center_y = y.std(), float(np.median(y))
middle, half = (X.max(axis=0) + X.min(axis=0)) / 2, np.ptp(X, axis=0) / 2
factors = 10.0 ** np.arange(-2, 2.1, 0.5)


def score(model):
    return np.median([model.set_params(random_state=k).fit(X_train, y_train).score(X_test, y_test)
                      for k in range(3)])  # fmt: skip


curves = {"scale_X": [], "scale_y": [], "bounds_X and bounds_y of DPMirrorRegressor": []}
for factor in factors:
    guesses = {"center_X": center_X, "center_y": center_y, "scale_X": scale_X, "scale_y": scale_y}
    for name in ("scale_X", "scale_y"):
        wrong = guesses | {name: factor * guesses[name]}
        curves[name].append(score(HeavyTailDPRegressor(**wrong)))
    reach = factor * np.ptp(y) / 2
    bounded = DPMirrorRegressor(
        bounds_X=(middle - factor * half, middle + factor * half),
        bounds_y=(center_y - reach, center_y + reach),
    )
    curves["bounds_X and bounds_y of DPMirrorRegressor"].append(score(bounded))

# %%
# The picture
# -----------

figure, axes = plt.subplots(figsize=(6.5, 5), layout="constrained")
for name, values in curves.items():
    axes.plot(factors, np.maximum(values, -0.5), "o-", label=f"{name} times the factor")
axes.axhline(private, color="black", label="scales found privately")
axes.axhline(reference, color="black", linestyle="--", label="not private")
axes.axhline(0, color="gray", linestyle=":", label="mean of the training part")
axes.set(
    xscale="log", ylim=(-0.55, 1), xlabel="factor on the guesses, 1 being the standard deviation",
    ylabel="test R2, cut at -0.5", title="Wrong guesses, epsilon = 1, 15,000 records",
)  # fmt: skip
figure.legend(fontsize="small", loc="outside lower center", ncols=2)
picture = Path("heavy_tails.png")
figure.savefig(picture, dpi=120)
print(f"The picture is in {picture}.")
