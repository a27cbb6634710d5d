"""Warnings and errors of the package. None of their messages depends on private values."""

__all__ = [
    "BlocksChangedError",
    "BoundsNotDeclaredWarning",
    "PrivacyBudgetError",
    "PrivacyLeakWarning",
    "PrivacyParameterWarning",
    "TasksLostError",
]


class BlocksChangedError(RuntimeError):
    """Blocks of Dask were not the same when a fit read them again, and it was stopped.

    A record that is in one place in one pass and in another in the next would count in several
    parts of the fit, and the guarantee is for records that count in one (:ref:`section-2.8`). What
    was charged stays charged. No model is left, and nothing that was released is shown.

    Examples
    --------
    >>> from sklearn_dpsco import BlocksChangedError
    >>> def fit_on_query(model, X, y):
    ...     try:
    ...         return model.fit(X, y)
    ...     except BlocksChangedError:  # such as of a query without ORDER BY
    ...         return None
    """


class BoundsNotDeclaredWarning(UserWarning):
    """Bounds of the data were not given, so (-1, 1) is used and values outside are clipped.

    Or weights were given without `max_weight`, and those above 1 count as 1.

    Examples
    --------
    Forgotten bounds as an error:

    >>> import warnings
    >>> from sklearn_dpsco import BoundsNotDeclaredWarning
    >>> warnings.simplefilter("error", BoundsNotDeclaredWarning)
    """


class PrivacyLeakWarning(UserWarning):
    """A value outside the guarantee, such as the list of labels, was taken from the data.

    Or all of it is outside, with ``epsilon=inf``.

    Examples
    --------
    >>> import warnings
    >>> from sklearn_dpsco import DPLogisticRegression, PrivacyLeakWarning
    >>> X, y = [[0.0], [1.0]] * 50, [0, 1] * 50
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = DPLogisticRegression(bounds_X=(0, 1), delta=1e-3).fit(X, y)  # without `classes`
    >>> [warning.category.__name__ for warning in caught]
    ['PrivacyLeakWarning']
    """


class PrivacyParameterWarning(UserWarning):
    """The requested guarantee is valid but weak, for example delta >= 1 / n_samples.

    Or so strong that noise hides all that could be learned from so few rows.

    Examples
    --------
    >>> import warnings
    >>> from sklearn_dpsco import DPLinearRegression, PrivacyParameterWarning
    >>> model = DPLinearRegression(delta=0.1, bounds_X=(0, 1), bounds_y=(0, 1))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.plan(n_samples=1000, n_features=1)
    >>> [warning.category.__name__ for warning in caught]
    ['PrivacyParameterWarning']
    """


class PrivacyBudgetError(RuntimeError):
    """A `BudgetAccountant` refuses a charge. The charge is not made.

    A `RuntimeError`, since no argument is wrong by itself: the same fit may be accepted by
    an accountant on which less was spent.

    Examples
    --------
    >>> from sklearn_dpsco import BudgetAccountant, DPLassoFW, PrivacyBudgetError
    >>> accountant = BudgetAccountant(epsilon=0.5)
    >>> model = DPLassoFW(epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 1), accountant=accountant)
    >>> try:
    ...     model.fit([[0.0], [1.0]] * 50, [0.0, 1.0] * 50)
    ... except PrivacyBudgetError:
    ...     print("refused, and nothing was spent:", accountant.total_spent())
    refused, and nothing was spent: 0.0
    """


class TasksLostError(RuntimeError):
    """Workers or the scheduler of Dask were lost, and the sums of a step could not be computed.

    What was charged stays charged. No model is left, and nothing that was released is shown.

    Examples
    --------
    >>> from sklearn_dpsco import TasksLostError
    >>> def fit_on_cluster(model, X, y):
    ...     try:
    ...         return model.fit(X, y)
    ...     except TasksLostError:  # charged: fitting again costs again
    ...         return None
    """
