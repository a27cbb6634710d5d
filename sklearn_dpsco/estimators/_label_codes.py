"""What scikit-learn puts in the place of labels, found on the call stack.

Some meta-estimators fit their members to codes and decode the predictions. A member cannot take
the declared labels for codes: a code is the position of a label among those that occur in y, and
which ones occur is private.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from numpy.typing import NDArray

from .._checks import callers, shown

__all__ = ["check_codes"]

_POSITIONS: Any = None  # of the sorted labels

# the functions of scikit-learn that fit members, which workers call as well
_FITS_TO_CODES: dict[tuple[str, str], tuple[str, Any]] = {
    ("sklearn.ensemble._bagging", "_parallel_build_estimators"): ("BaggingClassifier", _POSITIONS),
    ("sklearn.ensemble._base", "_fit_single_estimator"): ("StackingClassifier", _POSITIONS),
    ("sklearn.model_selection._validation", "_fit_and_predict"): ("cross_val_predict", _POSITIONS),
    ("sklearn.multiclass", "_fit_binary"): ("OneVsRestClassifier", [0, 1]),
    ("sklearn.multiclass", "_partial_fit_binary"): ("OneVsRestClassifier", [0, 1]),
}


def check_codes(declared: NDArray[Any]) -> None:
    """Raise if a meta-estimator hands on codes that are not the declared classes.

    Parameters
    ----------
    declared : ndarray of shape (n_classes,)
        Sorted.

    Raises
    ------
    ValueError
        That says which codes to declare. It depends on the caller and on `declared` alone.
    """
    for frame in callers():
        found = _codes_of(frame)
        if found is None:
            continue
        who, codes = found
        codes = list(range(declared.size)) if codes is _POSITIONS else codes
        if declared.tolist() != codes:
            raise ValueError(_remedy(who, codes, declared))
        return


def _codes_of(frame: FrameType) -> tuple[str, Any] | None:
    """Who hands on which codes by this call; None if nobody does."""
    place = frame.f_globals.get("__name__", ""), frame.f_code.co_name
    if place not in _FITS_TO_CODES:
        return None
    who, codes = _FITS_TO_CODES[place]
    arguments = frame.f_locals
    if who == "cross_val_predict" and arguments.get("method", "predict") == "predict":
        return None
    if who == "StackingClassifier" and arguments.get("message_clsname") == "Voting":
        who = "VotingClassifier"
    if frame.f_back is not None and "_ovo_" in frame.f_back.f_code.co_name:
        who = "OneVsOneClassifier"
    elif place[1] == "_fit_binary" and arguments.get("classes") is None:
        who, codes = "OutputCodeClassifier", [-1, 1]
    return who, codes


def _remedy(who: str, codes: list[int], declared: NDArray[Any]) -> str:
    given = shown(declared.tolist())
    if who == "cross_val_predict":  # also of CalibratedClassifierCV(ensemble=False), then of y
        return (
            f"cross_val_predict puts codes {codes} in the place of labels for all methods but "
            f"'predict', so that classes={given} are not met: make y itself of these codes, and "
            f"declare classes={codes}"
        )
    return (
        f"{who} puts codes {codes} in the place of labels, so that classes={given} are not met: "
        f"declare classes={codes}. What {who} predicts are labels again"
    )
