"""
Standard errors of a private model
==================================

Which coefficients can be told from zero, and how much of the doubt is the noise of privacy?

The table is a survey of 6,366 wives of 1974, one row each, which statsmodels ships. What it says of a
marriage predicts whether there was an affair. The table is public, so that the fit without privacy
may stand beside; with a private table one would see the private fit alone.
"""

import numpy as np
import statsmodels.api as sm

from sklearn_dpsco import CoefficientDisplay, DPLogisticRegression, PowerDisplay

table = sm.datasets.fair.load_pandas().data
y = (table["affairs"] > 0).astype(int)

# %%
# Bounds, from the questionnaire
# ------------------------------
# The answers that the form allows, and ages of a marriage that anybody could name. Bounds that are
# read off the table would be a leak, and intervals would not know of it.

bounds_X = {
    "rate_marriage": (1, 5),
    "age": (15, 60),
    "yrs_married": (0, 40),
    "children": (0, 10),
    "religious": (1, 4),
    "educ": (8, 20),
}
X = table[list(bounds_X)]
model = DPLogisticRegression(
    epsilon=3.0,
    relation="zero-out",
    bounds_X=bounds_X,
    classes=[0, 1],
    inference=True,
    random_state=0,  # so that the page is the same each time; never with private records
)

# %%
# Is the table large enough?
# --------------------------
# The plan answers before any record is read, here for features that are normal and for a third of
# the labels positive, both assumptions and not looked up. The dashed line is what sampling alone
# leaves: no epsilon is better than that.

n_samples, n_features = X.shape
plan = model.plan(n_samples, n_features)
by_sampling, by_noise = plan.expected_std(prevalence=1 / 3, parts=True)
print(f"standard error per standard deviation: {plan.expected_std(prevalence=1 / 3):.3f} log-odds")
print(f"by sampling {by_sampling:.3f}, by noise {by_noise:.3f}")
print(f"an effect of 0.15 is found with probability {plan.power(0.15, prevalence=1 / 3):.2f}")

power = PowerDisplay.from_estimator(model, n_samples, n_features, prevalence=1 / 3)
power.ax_.set_title(f"{n_samples} rows, {n_features} columns")

# %%
# The fit
# -------
# ``std err`` holds both parts, ``sampling`` and ``noise``, which add as squares.

model.fit(X, y)
print(model.summary())

# %%
# Beside the fit without privacy
# ------------------------------
# statsmodels' ``Logit`` with robust standard errors, which the part by sampling estimates.
# Most intervals are not much longer, as the noise is the smaller part. The bias of a shrunk
# model is none of theirs: they are about the column ``coef``.

logit = sm.Logit(y, sm.add_constant(X)).fit(disp=0, cov_type="HC0")
frame = model.summary().to_frame().drop(index="(intercept)")
frame["not private"] = logit.params[1:]
frame["its std err"] = logit.bse[1:]
frame["wider by"] = frame["std err"] / frame["its std err"]
shown = ["not private", "its std err", "coef", "std err", "sampling", "noise", "wider by"]
print(frame[shown].round(3).to_string())

display = CoefficientDisplay.from_estimator(model)
places = [text.get_text() for text in display.ax_.get_yticklabels()]
print(places)
