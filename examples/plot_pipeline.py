"""
A sparse private classifier in a pipeline
=========================================

Which digit is it? Ten classes, a pipeline, a grid search, and one budget for all of it.

Preprocessing must not learn from private data: a ``StandardScaler`` fitted on the table
would void the guarantee. Fixed transforms, such as the ones below, are fine.
"""

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpsco import DPLassoFWClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# Pixels are 0 to 16, so that a sparse matrix keeps its zeros. With ten classes, each of
# ten models gets a tenth of the budget's rho.

model = make_pipeline(
    FunctionTransformer(sparse.csr_matrix),
    DPLassoFWClassifier(epsilon=4.0, bounds_X=(0, 16), classes=list(range(10))),
)

# %%
# A grid search over three radii in three folds trains nine models and then one more. Its
# cost is the composition of all ten fits (at most ten times epsilon), and its choice looks
# at un-noised scores, which no guarantee covers. Search on public or synthetic data where
# you can. ``KFold`` instead of the default stratified folds: those depend on the labels.

search = GridSearchCV(
    model,
    {"dplassofwclassifier__radius": [10.0, 20.0, 40.0]},
    cv=KFold(3),
    error_score="raise",
).fit(X_train, y_train)
best = search.best_estimator_[-1]
print("radius", search.best_params_, f"test accuracy {search.score(X_test, y_test):.3f}")
print(f"each fit: epsilon = {best.guarantee_.epsilon}, delta = {best.guarantee_.delta}")
print(f"a guess would have {np.bincount(y_train).max() / len(y_train):.3f}")

# %%
# A second opinion on epsilon
# ---------------------------
# Google's accountant reads the list of releases of one fit.

print(f"dp_accounting: epsilon = {best.guarantee_.second_opinion():.5f}")
