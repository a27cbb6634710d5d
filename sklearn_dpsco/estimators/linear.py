"""The front door: linear and logistic regression, private by the defaults of mirror descent."""

from __future__ import annotations

from ._base import DPClassifier, DPRegressor, estimator
from .mirror import MirrorModel


@estimator
class DPLinearRegression(MirrorModel, DPRegressor):
    """Linear regression by least squares under differential privacy: the model to start with.

    What `DPMirrorRegressor` does by default: gradient descent on noisy mean gradients of the
    squared loss, in units that a part of the budget buys, so that bounds may be far too wide.
    Nothing is to be tuned.

    Parameters that are not described here: see `MirrorModel`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Examples
    --------
    Bounds by column, from what is known of the field; the plan costs nothing:

    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_dpsco import DPLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.uniform(20, 80, 5000), "dose": rng.uniform(0, 10, 5000)})
    >>> y = 100 + X["age"] + 2 * X["dose"] + rng.normal(0, 5, 5000)
    >>> bounds_X = {"age": (0, 120), "dose": (0, 20)}
    >>> model = DPLinearRegression(epsilon=1.0, bounds_X=bounds_X, bounds_y=(0, 400))
    >>> model.plan(n_samples=5000, n_features=2).guarantee.epsilon
    1.0
    >>> bool(model.fit(X, y).score(X, y) > 0.9)  # the score itself is not private
    True
    """

    loss = "squared"
    feasible_set = units = solver = "auto"
    _with_settings = "DPMirrorRegressor"


@estimator
class DPLogisticRegression(MirrorModel, DPClassifier):
    """Logistic regression under differential privacy: the model to start with.

    What `DPMirrorClassifier` does by default: gradient descent on noisy mean gradients of the
    logistic loss, of several classes the multinomial one, in units that a part of the budget buys,
    so that bounds may be far too wide. Nothing is to be tuned.

    Parameters that are not described here: see `MirrorModel`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (6000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "more", "less")
    >>> model = DPLogisticRegression(bounds_X=(0, 10), classes=["less", "more"]).fit(X, y)
    >>> model.predict([[9, 1], [1, 9]]).tolist()
    ['more', 'less']
    >>> model.predict_proba([[9, 1]]).shape
    (1, 2)
    """

    loss = "logistic"
    feasible_set = units = solver = "auto"
    _with_settings = "DPMirrorClassifier"
