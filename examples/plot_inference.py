"""
Standard errors of a private model
==================================

Which coefficients can be told from zero, and how much of the doubt is the noise of privacy?

The table is a survey of 6,366 wives of 1974, a row each, which statsmodels ships. What they say of
their marriage predicts whether there was an affair. It is the regression with which the guide of
statsmodels shows its models of discrete choice, with the same eight columns. The table is public,
and the fit without privacy may stand beside; of a private one there would be the private fit alone.
"""

import statsmodels.api as sm

from sklearn_dpsco import CoefficientDisplay, DPLogisticRegression, PowerDisplay, rows_needed

table = sm.datasets.fair.load_pandas().data
y = (table["affairs"] > 0).astype(int)

# %%
# Bounds, from the questionnaire
# ------------------------------
# The answers that the form allows, and ages and years that anybody could name. The columns are
# chosen before any look at the records: a choice made with them would void the intervals, and
# bounds read off the table would be a leak as well.

bounds_X = {
    "occupation": (1, 6),
    "educ": (8, 20),
    "occupation_husb": (1, 6),
    "rate_marriage": (1, 5),
    "age": (15, 60),
    "yrs_married": (0, 40),
    "children": (0, 10),
    "religious": (1, 4),
}
X = table[list(bounds_X)]
model = DPLogisticRegression(
    epsilon=5.0,
    relation="zero-out",
    bounds_X=bounds_X,
    classes=[0, 1],
    inference=True,
    random_state=1,  # so that the page is the same each time; never with private records
)

# %%
# Is the table large enough?
# --------------------------
# The plan answers before any record is read, for features that are normal and unrelated. That a
# third of the labels is positive is a guess. Half of all fits are as sure as ``expected_std`` says,
# and nine of ten in as many rows as ``rows_needed`` says. The dashed line is what sampling alone
# leaves: no epsilon gets below it. Columns that go together have larger errors of both kinds.

n_samples, n_features = X.shape
plan = model.plan(n_samples, n_features)
by_sampling, by_noise = plan.expected_std(prevalence=1 / 3, parts=True)
print(f"per standard deviation of a feature: {plan.expected_std(prevalence=1 / 3):.3f} log-odds")
print(f"by sampling {by_sampling:.3f}, by noise {by_noise:.3f}")
print(f"an effect of 0.1 is found with probability {plan.power(0.1, prevalence=1 / 3):.2f}")
facts = {"prevalence": 1 / 3, "correlation": 0.0}
fewer = rows_needed(model, n_features, effect=0.1, power=0.8, **facts)
print(f"with probability 0.8 in {fewer} rows")

power = PowerDisplay.from_estimator(model, n_samples, n_features, prevalence=1 / 3)
_ = power.ax_.set_title(f"Expected of {n_samples} rows and {n_features} columns")

# %%
# The fit
# -------
# ``std err`` holds both parts, sampling and noise, which add as squares.

model.fit(X, y)
model.summary()

# %%
# Do age, years of marriage and children tell anything together? One test for the three, as no
# interval by itself says so.

print(model.wald_test(["age", "yrs_married", "children"]))

# %%
# Beside the fit without privacy
# ------------------------------
# ``Logit`` of statsmodels gives the published coefficients, here with robust standard errors:
# -0.716 for the rating of the marriage, 0.110 for its years, 0.160 for the occupation. The last
# column is the length of the private interval over that of its own. It is largest where columns go
# together, as age and years of marriage do. A little below 1 it may be, too: "sampling" is a
# released estimate of "its std err", with noise that a t law allows for. Of eight intervals of 95 %
# one that misses the true coefficient is no surprise, private or not. At epsilon 1 a third of the
# fits do not tell age and years apart: then both have the whole line, and nothing is said of them.

logit = sm.Logit(y, sm.add_constant(X)).fit(disp=0, cov_type="HC0")
frame = model.summary().to_frame().drop(index="(intercept)")
frame["Logit"], frame["its std err"] = logit.params, logit.bse
length = frame["0.975]"] - frame["[0.025"]
frame["times as long"] = length / (2 * 1.96 * frame["its std err"])
columns = ["Logit", "its std err", "coef", "std err", "sampling", "noise", "times as long"]
print(frame[columns].round(3).to_string())

# %%
# The picture is in the units of the bounds, in which columns compare. In each row the interval of
# the private model is above, and that without privacy below.

display = CoefficientDisplay.from_estimator(model, label="private, epsilon = 5")
factor = display.coef[:, 0] / model.summary().to_frame()["coef"][list(X)]
display.ax_.errorbar(
    factor * frame["Logit"],
    [place + 0.2 for place in range(n_features)],
    xerr=1.96 * factor * frame["its std err"],
    fmt="s",
    color="gray",
    capsize=3,
    label="not private",
)
display.ax_.set_title("95 % intervals: what tells of an affair")
_ = display.ax_.legend()
