"""
A sparse private classifier in a pipeline
=========================================

Which digit is it? Ten classes in one model, a pipeline, a private choice of the feasible set, and
one budget for all of it.

Preprocessing must not learn from private data: a ``StandardScaler`` fitted on the table
would void the guarantee. Fixed transforms, such as the ones below, are fine.
"""

import matplotlib.pyplot as plt
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpsco import DPGridSearchCV, DPLassoFWClassifier, check_pipeline, dp_score
from sklearn_dpsco.geometry import L1Ball

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# Pixels are 0 to 16, so that a sparse matrix keeps its zeros. The ten classes are one model, whose
# noise does not grow with their number. The ball is far too small, for the sake of the example.

model = make_pipeline(
    FunctionTransformer(sparse.csr_matrix),
    DPLassoFWClassifier(
        bounds_X=(0, 16), classes=list(range(10)), feasible_set=L1Ball(1.0), solver="gradient"
    ),
)
print(check_pipeline(model))

# %%
# ``GridSearchCV`` with three balls in three folds would train ten models, at up to ten times
# epsilon, and choose by un-noised scores. This search has one epsilon for all of it: small probes
# of each candidate, a private choice, and a fit of what was chosen.

grid = {"dplassofwclassifier__feasible_set": [L1Ball(10.0), L1Ball(100.0)]}
search = DPGridSearchCV(model, grid, epsilon=8.0, relation="zero-out").fit(X_train, y_train)
print(search.plan_)
print(search.best_params_)

# %%
# The accuracy on other records is a number that is made of them, and gets noise of its own. A guess
# is right in one of ten cases.

print(dp_score(search, X_test, y_test, epsilon=8.0, relation="zero-out"))

# %%
# What the model goes by
# ----------------------
# The coefficients are private, and may be shown: where ink speaks for a digit (blue) or against it.

coef = search.best_estimator_[-1].coef_
figure, axes = plt.subplots(2, 5, figsize=(7, 3), layout="constrained")
for digit, axis in enumerate(axes.flat):
    limit = abs(coef[digit]).max()
    axis.imshow(coef[digit].reshape(8, 8), cmap="RdBu", vmin=-limit, vmax=limit)
    axis.set(xticks=[], yticks=[], title=digit)
plt.show()

# %%
# A second opinion on epsilon
# ---------------------------
# Google's accountant reads the list of releases of the whole search.

print(f"dp_accounting: epsilon = {search.guarantee_.second_opinion():.5f}")
