"""
Learning from a stream, private at every moment
===============================================

A model that learns from records as they arrive, and keeps one epsilon whenever it is asked.
First what does not work, and how an audit shows it; then what replaces it.
"""

# %%
# A claim
# -------
# Arora, Marinov and Ullah (2020) follow the regularized leader: the model after t records
# minimizes the sum of the gradients so far, as a linear function, plus a regularizer. Each
# gradient gets independent Gaussian noise of standard deviation sigma. Their Theorem B.2
# says that the model after T records has a Renyi divergence, of order alpha, of at most
#
# .. math:: \frac{\alpha s^2}{T \sigma^2}
#
# between two streams that differ in one record, s being the change of one gradient: the
# noise of all T steps is said to hide it. That would allow a very small sigma.

import math

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpsco import DPFTRLRegressor, PrivacyBudget
from sklearn_dpsco.audit import audit_outcomes
from sklearn_dpsco.mechanisms import PrefixSum

epsilon, delta, n_steps = 1.0, 1e-6, 1000
orders = 1 + np.geomspace(1, 1e3, 2000)
divergence = epsilon - math.log(1 / delta) / (orders - 1)  # what each order may spend
useful = divergence > 0
sigma = np.min(2 * np.sqrt(orders[useful] / (n_steps * divergence[useful])))
print(f"for epsilon = 1, delta = 1e-6 and T = {n_steps} the theorem asks for sigma = {sigma:.3f}")

# %%
# What an audit measures
# ----------------------
# One dimension, loss abs(w - z), and two streams: all records are 0, or all but the last,
# which is 1. Many runs of each give the model after the last record. If the claim held, no
# threshold could tell the two sets of outcomes apart better than (epsilon, delta) allows.


def last_models(z, n_runs, seed, prefix_sum=None):
    """Models after the last record, of many runs at once."""
    rng = np.random.default_rng(seed)
    w, total = np.zeros(n_runs), np.zeros(n_runs)
    run = None if prefix_sum is None else prefix_sum.start(n_runs)
    for t, z_t in enumerate(z):
        gradient = np.sign(w - z_t)
        noise = rng.standard_normal(n_runs)
        if run is None:
            total += gradient + sigma * noise
        else:
            total = run.decode(run.encode(gradient) + prefix_sum.scale * noise)
        w = np.clip(-total / math.sqrt(t + 1), -1, 1)
    return w


n_runs = 20_000
streams = np.zeros((2, n_steps))
streams[1, -1] = 1.0
independent = [last_models(z, n_runs, seed) for seed, z in enumerate(streams)]
result = audit_outcomes(*independent, epsilon=epsilon, delta=delta)
print(f"claimed epsilon: 1; measured: at least {result.epsilon_lower_bound:.2f}")
print("the claim is flagged" if result.flagged else "the claim is not flagged")

# %%
# Why
# ---
# The proof takes the earlier gradients as fixed while the noise varies. But they are taken
# at models that contain the noise, and answer it: whenever noise pushes the model up, the
# next gradients push it down. So the noise does not pile up, and the last record shows.
#
# What replaces it
# ----------------
# Noise that is correlated between steps, so that every *sum* of gradients has the noise it
# needs, whatever the gradients do. A record then costs one release, and every model along
# the way is covered at once. With the square root of the prefix sum as factorization, the
# noise of the worst of 1000 sums is only 3.3 times that of a single release.

one = PrefixSum.calibrate(
    2.0,
    PrivacyBudget(epsilon, delta).gaussian_allowance,
    n_steps=n_steps,
    width=1,
    largest_norm=1.0,
)
print(f"noise of the last sum: {one.prefix_scales()[-1]:.1f} instead of {sigma:.3f}")
correlated = [last_models(z, n_runs, seed, one) for seed, z in enumerate(streams)]
replaced = audit_outcomes(*correlated, epsilon=epsilon, delta=delta)
print(f"claimed epsilon: 1; measured: at least {replaced.gaussian_epsilon_lower_bound:.2f}")
print("the claim is flagged" if replaced.flagged else "the claim is not flagged")

figure, axes = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
for axis, outcome, title in (
    (axes[0], independent, "independent noise, as claimed"),
    (axes[1], correlated, "correlated noise"),
):
    edges = np.histogram_bin_edges(np.concatenate(outcome), 60)
    for values, label in zip(outcome, ("all 0", "last record 1"), strict=True):
        axis.hist(values, bins=edges, density=True, alpha=0.5, label=label)
    axis.set(xlabel="model after the last record", title=title)
    axis.legend()
plt.show()

# %%
# A stream in use
# ---------------
# `partial_fit` takes chunks of any size. `coef_` may be published after each of them, and
# all of that together costs one epsilon, as long as no record is fed twice. (The stream is made up,
# so that its scores may be shown without noise.)

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (42_000, 10))
y = np.clip(X @ np.linspace(0.3, -0.3, 10) + 0.1 + 0.1 * rng.normal(size=42_000), -1, 1)
X_test, y_test = X[-2000:], y[-2000:]

public = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "epsilon": epsilon, "delta": delta}
curves = {}
for label, horizon in (("length not known", None), ("length known", 40_000)):
    model = DPFTRLRegressor(**public, horizon=horizon)
    seen, scores = [], []
    for start in range(0, 40_000, 500):
        model.partial_fit(X[start : start + 500], y[start : start + 500])
        seen.append(model.n_seen_)
        scores.append(model.score(X_test, y_test))
    curves[label] = seen, scores
    print(f"{label}: test R2 {scores[-1]:.3f} after {seen[-1]} records")
print(model.guarantee_)

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for label, (seen, scores) in curves.items():
    axes.plot(seen, scores, label=label)
axes.set(
    xscale="log",
    ylim=(0, 1),
    xlabel="records seen",
    ylabel="test R2",
    title="one epsilon, at all times",
)
axes.legend()
plt.show()
