"""Warnings and errors of the package. None of their messages depends on private values."""

__all__ = [
    "BoundsNotDeclaredWarning",
    "PrivacyBudgetError",
    "PrivacyLeakWarning",
    "PrivacyParameterWarning",
]


class BoundsNotDeclaredWarning(UserWarning):
    """Bounds of the data were not given, so (-1, 1) is used and values outside are clipped."""


class PrivacyLeakWarning(UserWarning):
    """A value outside the guarantee, such as the list of labels, was taken from the data."""


class PrivacyParameterWarning(UserWarning):
    """The requested guarantee is valid but weak, for example delta >= 1 / n_samples."""


class PrivacyBudgetError(RuntimeError):
    """A `BudgetAccountant` refuses a charge. The charge is not made.

    A `RuntimeError`, since no argument is wrong by itself: the same fit may be accepted by
    an accountant on which less was spent.
    """
