"""
Tutorial: from a raw table to a private report
==============================================

A hospital wants to know who comes back within a month of being sent home, and to publish a model,
its quality and what drives it. The records are confidential, so that everything that leaves the
hospital is paid from one privacy :term:`budget`, and nothing else about the records is looked at
on the way.

The table is made up here, so that the page can be run anywhere: ages and laboratory values with
gaps, wards as text, and a yes or no. It stands for a file that you cannot look into.
"""

import numpy as np
import pandas as pd


def read_records(n_records=12_000, seed=0):
    """A table as it comes out of a database."""
    rng = np.random.default_rng(seed)
    ward = rng.choice(["surgery", "medicine", "cardiology", "other"], n_records)
    records = pd.DataFrame(
        {
            "age": rng.integers(18, 95, n_records).astype(float),
            "days": np.ceil(rng.exponential(5, n_records)),
            "creatinine": rng.lognormal(0, 0.4, n_records),
            "ward": ward,
            "emergency": rng.uniform(size=n_records) < 0.3,
        }
    )
    risk = (
        0.05 * (records["age"] - 60)
        + 0.15 * (records["days"] - 5)
        + 1.2 * records["emergency"]
        + 0.8 * (ward == "cardiology")
        + rng.logistic(0, 1, n_records)
    )
    returned = np.where(risk > 0.3, "yes", "no")
    records.loc[rng.uniform(size=n_records) < 0.1, "creatinine"] = None  # not measured
    return records, returned


records, returned = read_records()

# %%
# What is public
# --------------
# Before the records are used, write down what everybody may know about the columns: the form that
# was filled in, not the answers. Bounds of numbers are a pair, and values outside will be
# clipped; categories are a list, and what is not listed gets no column. Not everybody's
# creatinine is measured, as everybody knows: a 0/1 column, an "indicator", tells where it is not.
#
# :class:`~sklearn_dpsco.PublicEncoder` learns nothing from the table. An imputer, a scaler or an
# encoder of scikit-learn would, and none of that is covered by any guarantee.

from sklearn_dpsco import PublicEncoder

schema = {
    "age": (18, 100),
    "days": (0, 30),
    "creatinine": (0.3, 4.0),
    "ward": ["surgery", "medicine", "cardiology"],
    "emergency": bool,
}
encoder = PublicEncoder(schema, missing={"creatinine": "indicator"})
print(list(encoder.fit().get_feature_names_out()))

# %%
# The model
# ---------
# A private classifier takes the bounds from the encoder before it in the pipeline. The labels are
# declared, too. ``check_pipeline`` looks for steps that learn without privacy.
#
# Nothing else has to be chosen. The :term:`plan` of a fit lists what is released and with how much
# noise. It is made of the number of rows and columns alone, and costs nothing.

from sklearn.pipeline import make_pipeline

from sklearn_dpsco import DPLogisticRegression, check_pipeline

model = make_pipeline(encoder, DPLogisticRegression(bounds_X=encoder, classes=["no", "yes"]))
print(check_pipeline(model))
n_columns = len(encoder.get_feature_names_out())
model[-1].plan(n_samples=9000, n_features=n_columns)

# %%
# One budget
# ----------
# One :term:`accountant` holds the budget for all that follows: :term:`epsilon` = 2, for whatever
# anybody learns about one patient's record. Every tool below charges it before it computes
# anything, and is refused if that would be too much. (``accountant.save(path)`` keeps the ledger in
# a file, next to the records.)
#
# The records are cut by position, into those of the fit and those of the test. Since no record is
# in both, two :term:`branches <branch>` of the accountant cost the larger of their budgets and not
# the sum.

from sklearn_dpsco import BudgetAccountant

accountant = BudgetAccountant(epsilon=2.0, delta=1e-6)
halves = accountant.parallel()
train, test = slice(0, 9000), slice(9000, None)

# %%
# A choice
# --------
# ``model.fit(records[train], returned[train])`` would do. Would another loss than the logistic one
# suit better? `DPMirrorClassifier` does what `DPLogisticRegression` does unless told otherwise, and
# has a loss to choose. A private search fits every candidate with a small part of its budget,
# chooses one of them privately, and spends the rest on the winner. It has a plan, too.

from sklearn_dpsco import DPGridSearchCV, DPMirrorClassifier

candidates = make_pipeline(encoder, DPMirrorClassifier(bounds_X=encoder, classes=["no", "yes"]))
settings = {"dpmirrorclassifier__loss": ["logistic", "smoothed_hinge"]}
search = DPGridSearchCV(candidates, settings, epsilon=2.0, accountant=halves.branch("search"))
search.plan(n_samples=9000, n_features=n_columns)

# %%
# Search, fit and score
# ---------------------
# ``search.score`` would be a number without noise, which is outside of the guarantee: for the
# report, ``dp_score`` gives noisy scores, each with an interval that covers both the noise and
# the luck of the test records.

from sklearn_dpsco import dp_score

with accountant.label("search and fit"):
    search.fit(records[train], returned[train])
with accountant.label("test scores"):
    scores = dp_score(
        search,
        records[test],
        returned[test],
        scoring=["accuracy", "confusion_matrix"],
        epsilon=2.0,
        accountant=halves.branch("score"),
    )
print(search.best_params_)

# %%
# The report
# ----------
# All of this may be published. What is computed from released numbers alone, such as the picture,
# costs nothing more.

print(scores["accuracy"])
low, high = scores["accuracy"].interval
scores["confusion_matrix"]

# %%
# Coefficients are for the width of the bounds of a number, and for a category, which is 0 or 1.

from sklearn_dpsco import CoefficientDisplay

display = CoefficientDisplay.from_estimator(search)
_ = display.ax_.set(
    xlabel="coefficient (to the right: comes back)",
    title=f"Accuracy {float(scores['accuracy']):.2f} ({low:.2f} to {high:.2f}), epsilon = 2",
)

# %%
# And what it cost. The ledger has a line for each charge, and no values of the records. Somebody
# who does not trust this package can compute epsilon again with ``dp_accounting``.

print(accountant)
print(accountant.to_frame()[["label", "estimator", "epsilon", "delta", "branch"]].to_string())
print(f"dp_accounting: epsilon = {search.guarantee_.second_opinion():.3f}")

# %%
# There is nothing left for another fit on these records, and the accountant says so:

from sklearn_dpsco import PrivacyBudgetError

try:
    search.fit(records[train], returned[train])
except PrivacyBudgetError as refusal:
    print(refusal)

# %%
# For the officer
# ---------------
# Somebody has to sign that this may be published, and need not know mathematics. The report says on
# one page who is protected, against what and how well, and what was computed. ``to_json()`` has the
# facts as data.

accountant.report()

# %%
# Where to go on
# --------------
#
# * :ref:`workflow`: each of these tools, and columns of which nothing is known.
# * :ref:`sharp_edges`: what leaks all the same.
# * :ref:`user_guide`: the estimators, and how to read a plan.
