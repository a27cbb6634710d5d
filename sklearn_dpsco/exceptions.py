"""Warnings and errors of the package. None of their messages depends on private values."""

__all__ = [
    "BoundsNotDeclaredWarning",
    "PrivacyBudgetError",
    "PrivacyLeakWarning",
    "PrivacyParameterWarning",
    "TasksLostError",
]


class BoundsNotDeclaredWarning(UserWarning):
    """Bounds of the data were not given, so (-1, 1) is used and values outside are clipped."""


class PrivacyLeakWarning(UserWarning):
    """A value outside the guarantee, such as the list of labels, was taken from the data.

    Or all of it is outside, with ``epsilon=inf``.
    """


class PrivacyParameterWarning(UserWarning):
    """The requested guarantee is valid but weak, for example delta >= 1 / n_samples."""


class PrivacyBudgetError(RuntimeError):
    """A `BudgetAccountant` refuses a charge. The charge is not made.

    A `RuntimeError`, since no argument is wrong by itself: the same fit may be accepted by
    an accountant on which less was spent.
    """


class TasksLostError(RuntimeError):
    """Workers or the scheduler of Dask were lost, and the sums of a step could not be computed.

    What was charged stays charged. No model is left, and nothing that was released is shown.
    """
