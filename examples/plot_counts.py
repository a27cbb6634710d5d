"""
Counts and rate ratios: visits to a doctor
==========================================

What goes with more visits to a doctor, and by what factor? From a table of counts to a table of
rate ratios with intervals that cover sampling and noise, beside the fit without privacy.

The table is that of the RAND health insurance experiment, which statsmodels ships: 20,190 rows of a
person and a year, with the visits in it. It is public, so that both fits may stand beside each
other.
"""

import numpy as np
import statsmodels.api as sm
from sklearn.model_selection import train_test_split

from sklearn_dpsco import CoefficientDisplay, DPPoissonRegressor

table = sm.datasets.randhie.load_pandas().data
visits = table.pop("mdvis")
table.describe().loc[["mean", "min", "max"]].round(2)

# %%
# Means and variances
# -------------------
# The variance of the visits is seven times their mean. Poisson regression is right all the same: it
# models the mean alone. What must not be taken from a Poisson law is the standard error, and it is
# not: it is the sandwich, as ``cov_type="HC0"`` of statsmodels.

print(f"mean {visits.mean():.1f}, variance {visits.var():.1f}, largest {visits.max():.0f}")

# %%
# The fit
# -------
# Bounds are what a person who knows the study would declare, without a look at the records: the
# coinsurance rate is a percentage, of which the column is log(1 + rate); at most 100 visits a year.
# A count that is declared too large costs little. (Of a table with one person in several rows, all
# of them are protected together by ``max_rows_per_user`` and ``groups``; this one has no names.)

bounds_X = {
    "lncoins": (0, np.log(101)),  # logarithm of the coinsurance rate and 1
    "idp": (0, 1),  # individual deductible plan
    "lpi": (0, 8),  # logarithm of the yearly incentive payment
    "fmde": (0, 10),  # a function of the largest expenses that the person pays
    "physlm": (0, 1),  # physical limitation
    "disea": (0, 60),  # number of chronic diseases
    "hlthg": (0, 1),  # health is good, fair, poor; excellent is the rest
    "hlthf": (0, 1),
    "hlthp": (0, 1),
}
model = DPPoissonRegressor(
    epsilon=3.0,
    delta=1e-6,
    relation="zero-out",
    bounds_X=bounds_X,
    bounds_y=(0, 100),
    inference=True,
    random_state=0,  # so that the page is the same each time; never with private records
)
model.fit(table, visits)
print(model.guarantee_)

# %%
# Rate ratios
# -----------
# The exponential of a coefficient is by what factor the mean grows as the feature grows by 1, other
# features being the same.

model.summary(exponentiate=True)

# %%
# Beside the fit without privacy, with intervals of its own. (Both are for the same population, so
# that intervals of noise and sampling hold the other estimate in nearly all cases.)

plain = sm.GLM(visits, sm.add_constant(table), family=sm.families.Poisson()).fit(cov_type="HC0")
frame = model.summary(exponentiate=True).to_frame()
compared = frame[["exp(coef)", "[0.025", "0.975]"]].rename(columns={"exp(coef)": "private"})
compared["without"] = np.exp(plain.params)
compared[["[0.025 ", "0.975] "]] = np.exp(plain.conf_int())
print(compared.drop(index="(intercept)").round(3).to_string())

# %%
# A forest plot
# -------------
# The ratio is that for the width of the bounds: of a flag its own, of the diseases for 60 of them.

display = CoefficientDisplay.from_estimator(model, units="scaled", exponentiate=True)
_ = display.ax_.set_title("Rate ratios of visits, 95 % intervals")

# %%
# Deviance
# --------
# How much of the deviance the features explain, D2, on records that the fit did not see. Both
# numbers are without noise: of private records they must not be shown.

parts = train_test_split(table, visits, random_state=0)
X_train, X_test, y_train, y_test = parts
private = DPPoissonRegressor(**model.get_params() | {"inference": False}).fit(X_train, y_train)
plain = sm.GLM(y_train, sm.add_constant(X_train), family=sm.families.Poisson()).fit()
null = sm.families.Poisson().deviance(y_test, np.full(len(y_test), y_train.mean()))
left = sm.families.Poisson().deviance(y_test, plain.predict(sm.add_constant(X_test)))
print(f"D2 {private.score(X_test, y_test):.3f}, without privacy {1 - left / null:.3f}")
