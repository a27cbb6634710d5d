"""
From raw columns to a scored private model
==========================================

A survey of 6,366 wives, as statsmodels ships it: ages, years, numbers of children, and codes of
occupations. Who has had an affair? Everything that looks at a record, preparation, choice of
settings, fit and score, is paid from one epsilon, and no number without noise is shown.
"""

import matplotlib.pyplot as plt
import statsmodels.api as sm
from sklearn.pipeline import make_pipeline

from sklearn_dpsco import (
    BudgetAccountant,
    DPGridSearchCV,
    DPMirrorClassifier,
    PublicEncoder,
    check_pipeline,
    dp_score,
)

table = sm.datasets.fair.load_pandas().data.sample(frac=1, random_state=0)
X, y = table.drop(columns="affairs"), table["affairs"] > 0
train, test = slice(0, 4800), slice(4800, None)  # a shuffled table, cut by position

# %%
# A schema says what is public about the columns: bounds of numbers, and lists of categories. It
# comes from the questionnaire, and not from the answers. Nothing is learned from the table.
# `DPMirrorClassifier` does what `DPLogisticRegression` does, and has a loss to choose.

occupations = [1, 2, 3, 4, 5, 6]
schema = {
    "rate_marriage": (1, 5),
    "age": (15, 60),
    "yrs_married": (0, 30),
    "children": (0, 8),
    "religious": (1, 4),
    "educ": (9, 20),
    "occupation": occupations,
    "occupation_husb": occupations,
}
encoder = PublicEncoder(schema)
model = make_pipeline(encoder, DPMirrorClassifier(bounds_X=encoder, classes=[False, True]))
print(check_pipeline(model))

# %%
# The search fits each candidate with a small part of its budget, chooses among them privately, and
# fits the settings that it chose with the rest. Its plan is there before a record is read.

accountant = BudgetAccountant(epsilon=2.0, delta=1e-6)
grid = {"dpmirrorclassifier__loss": ["logistic", "smoothed_hinge"]}
branches = accountant.parallel()  # on disjoint records, which cost the largest of them
search = DPGridSearchCV(
    model, grid, epsilon=2.0, scoring="accuracy", accountant=branches.branch("search")
)
print(search.plan(n_samples=4800, n_features=18))

# %%
# Training and test records are disjoint, so that the fit and the scores, each in a branch of the
# accountant, cost the larger of the two.

search.fit(X[train], y[train])
scores = dp_score(
    search, X[test], y[test], scoring=["accuracy", "roc_auc", "confusion_matrix"],
    epsilon=2.0, accountant=branches.branch("score"),
)  # fmt: skip
print(search.best_params_)
for score in scores.values():
    print(score)
print(accountant)

# %%
# What the model says, in the encoder's columns. Its coefficients are private, and may be shown.

best = search.best_estimator_
figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
axes.barh(best[0].get_feature_names_out(), best[-1].coef_[0])
axes.axvline(0, color="black", linewidth=0.8)
axes.invert_yaxis()
axes.set(xlabel="coefficient, in units of the column", title="Affairs, epsilon = 2")
plt.show()
