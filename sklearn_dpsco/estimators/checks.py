"""What of scikit-learn's checks of estimators no private model can pass, and why."""

from __future__ import annotations

from typing import Any

from sklearn.base import is_regressor

from ._base import DPLinearModel

_OF_ALL = {
    "check_sample_weight_equivalence_on_dense_data": "it compares tables of different sizes, whose "
    "noise differs, since the number of rows is public; and no weight above max_weight counts",
    "check_sample_weight_equivalence_on_sparse_data": "as on dense data",
    "check_all_zero_sample_weights_error": "weights are private: an error would tell of them",
}


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """The checks of scikit-learn that a model cannot pass, with the reasons.

    Parameters
    ----------
    estimator : estimator
        With the parameters that it is checked with. Of what is no model of this package, nothing
        is said.

    Returns
    -------
    dict of str to str
        As the argument `expected_failed_checks` of `sklearn.utils.estimator_checks.check_estimator`
        takes it; `parametrize_with_checks` takes the function itself.

    Examples
    --------
    >>> from sklearn_dpsco import DPLassoFW, expected_failed_checks
    >>> expected_failed_checks(DPLassoFW())["check_all_zero_sample_weights_error"]
    'weights are private: an error would tell of them'
    """
    if not isinstance(estimator, DPLinearModel):
        return {}
    found = dict(_OF_ALL)
    if hasattr(estimator, "partial_fit"):
        found["check_fit_score_takes_y"] = "it calls partial_fit after fit, which would cost again"
    if is_regressor(estimator) and estimator.nonfinite == "zero":
        found["check_supervised_y_no_nan"] = "nonfinite='zero': such a row is empty, and no error"
    return found
