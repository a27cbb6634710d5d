"""
Time to an event: hazard ratios and survival curves
===================================================

Who leaves a job, when, and what goes with it? From a raw table of durations to a table of hazard
ratios and a survival curve, both private for each person.

The tables of durations that statsmodels ships have 69 patients (``heart``) and 62 strikes
(``strikes``). At epsilon 3 a private model says nothing of so few. So the table here is simulated:
20,000 employees whose times until they leave follow a Weibull law with proportional hazards. The
true ratios are known, nothing is private, and fits without privacy may stand beside.
"""

import numpy as np
import pandas as pd
import statsmodels.api as sm
from sklearn.pipeline import make_pipeline

from sklearn_dpsco import (
    CoefficientDisplay,
    DPLogisticRegression,
    PublicEncoder,
    person_periods,
    survival_curve,
)

rng = np.random.default_rng(0)
n = 20_000
table = pd.DataFrame(
    {
        "age": rng.uniform(18, 65, n).round(),
        "commute": rng.gamma(2, 10, n).clip(0, 100),
        "overtime": rng.random(n) < 0.3,
        "unit": rng.choice(["office", "lab", "sales"], n, p=[0.5, 0.3, 0.2]),
    }
)
truth = pd.Series(
    {"age": np.log(0.8) / 10, "commute": np.log(1.1) / 10, "overtime": np.log(1.6)}
    | {"unit_lab": np.log(0.9), "unit_sales": np.log(1.4)}
)
columns = table[["age", "commute", "overtime"]].astype(float)
columns = columns.assign(unit_lab=table["unit"] == "lab", unit_sales=table["unit"] == "sales")
hazard = np.exp(columns.astype(float) @ truth[list(columns)])
leaves = 70 * (rng.exponential(size=n) / hazard) ** (1 / 1.2)  # months: Weibull of shape 1.2
seen = rng.uniform(6, 36, n)  # months since they were hired, or until the study ended
table["months"] = np.minimum(leaves, seen)
table["left"] = leaves <= seen
table.head()

# %%
# Rows of persons and periods
# ---------------------------
# The grid is a public fact, chosen before the records are looked at. Each person has a row for each
# of its periods, and that is so whatever the durations are; where a person is no longer followed,
# the outcome is NaN, which the fit counts as nothing. A period more costs little noise.

periods = [0, 6, 12, 24]
rows = person_periods(table, "months", "left", periods=periods)
rows.head(6)

# %%
# The fit
# -------
# Bounds and categories are those that a form would have. ``extra="drop"`` leaves out the columns
# that are no features; ``groups`` says whose rows they are, so that epsilon holds for a person.

encoder = PublicEncoder(
    {
        "age": (16, 70),
        "commute": (0, 100),
        "overtime": bool,
        "unit": ["office", "lab", "sales"],
        "period": [1, 2, 3],
    },
    drop="first",
    extra="drop",
)
model = make_pipeline(
    encoder,
    DPLogisticRegression(
        epsilon=3.0,
        relation="zero-out",
        bounds_X=encoder,
        classes=[0, 1],
        max_rows_per_user=3,
        nonfinite="zero",
        inference=True,
        random_state=0,  # so that the page is the same each time; never with private records
    ),
)
model.fit(rows, rows["left"], dplogisticregression__groups=rows["person"])
print(model[-1].guarantee_)

# %%
# Hazard ratios
# -------------
# Of rows of persons and periods, odds ratios are nearly hazard ratios where hazards are small. They
# are a little farther from 1: by a tenth of their logarithm where a fifth leaves in a period.

model[-1].summary(exponentiate=True)

# %%
# Beside the truth, and the fits without privacy: Cox's regression of the durations, and ``Logit``
# of the same rows.

at_risk = rows["left"].notna()
X = pd.DataFrame(encoder.transform(rows[at_risk]), columns=encoder.get_feature_names_out())
logit = sm.Logit(rows.loc[at_risk, "left"].to_numpy(), sm.add_constant(X)).fit(disp=0)
cox = sm.PHReg(table["months"], encoder.transform(rows[::3])[:, :5], status=table["left"]).fit()
units = [column.width for column in encoder.output_columns()]
frame = model[-1].summary(exponentiate=True).to_frame()
compared = frame[["exp(coef)", "[0.025", "0.975]"]][:5].rename(columns={"exp(coef)": "private"})
compared["Logit"] = np.exp(logit.params.to_numpy()[1:] / units)[:5]
compared["Cox"] = np.exp(cox.params / units[:5])
compared["truth"] = np.exp(truth)
print(compared.round(3).to_string())

# %%
# As a forest plot: for numbers the ratio for the width of their bounds.

display = CoefficientDisplay.from_estimator(model, units="scaled", exponentiate=True)
_ = display.ax_.set_title("Odds ratios of leaving in a period, 95 % intervals")

# %%
# Survival curves
# ---------------
# Of new persons, here two who differ in overtime alone. `person_periods` without durations makes
# their rows. A curve is known at the ends of periods; the lines between are for the eye.

new = pd.DataFrame(
    {
        "age": [30, 30],
        "commute": [20, 20],
        "overtime": [False, True],
        "unit": ["office", "office"],
    }
)
curve = survival_curve(model, person_periods(new, periods=periods), by="overtime")
print(curve.to_frame().round(3).to_string(index=False))

# %%
# The dotted lines are the truth.

ax = curve.plot()
months = np.linspace(0, 24, 100)
for overtime, line in zip(curve.names, ax.get_lines(), strict=True):
    ratio = np.exp(truth[["age", "commute", "overtime"]] @ [30, 20, float(overtime)])
    ax.plot(months, np.exp(-ratio * (months / 70) ** 1.2), ":", color=line.get_color())
_ = ax.set(xlabel="Months since they were hired", ylabel="Share still in the job", ylim=(0.7, 1.01))
