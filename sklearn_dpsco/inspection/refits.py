"""Fits on public or synthetic tables, which no budget pays for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from .._checks import check_bool, unwarned, warn_user
from ..data.blocks import check_in_memory
from ..exceptions import PrivacyLeakWarning
from ..model_selection.private_steps import private_last, private_steps
from ..privacy.accountant import active_accountant


def check_public(what: str, X: Any, estimator: Any, data_is_public: bool) -> None:
    """Warn unless the data are said to be public; raise if a fit would be charged."""
    check_in_memory(what, X)
    last = private_last(
        getattr(estimator, "estimator", estimator), f"{what} takes a private estimator or search"
    )
    if getattr(last, "bounds_exposure", None) is not None:
        raise ValueError(f"{what} fits without exposure: set bounds_exposure=None, and take counts")
    accountants = [step.accountant for step in private_steps(estimator).values()]
    accountants = [found for found in (active_accountant(), *accountants) if found is not None]
    if accountants:
        relation = accountants[0].budget.relation
        raise ValueError(
            f"{what} fits many times, on public or synthetic data that need no budget, and an "
            "accountant would be charged for each fit: leave its block, and give a "
            f"clone(estimator).set_params(accountant=None, relation={relation!r})"
        )
    if not check_bool("data_is_public", data_is_public):
        warn_user(
            f"{what} shows what no guarantee covers, such as un-noised scores: use it on public or "
            "synthetic data, and say data_is_public=True",
            PrivacyLeakWarning,
        )


def budgeted_steps(estimator: Any) -> dict[str, Any]:
    """The private steps that are not inside of another one, by the prefix of their parameters."""
    steps = private_steps(estimator)
    return {
        prefix: step
        for prefix, step in steps.items()
        if not any(prefix != outer and prefix.startswith(outer) for outer in steps)
    }


def check_one_budget(estimator: Any) -> None:
    """Raise `ValueError` if no one epsilon is that of the whole."""
    budgeted = budgeted_steps(estimator)
    if len(budgeted) > 1:
        raise ValueError(
            f"several steps have a budget ({', '.join(sorted(budgeted))}), so that epsilon "
            "would not be that of the whole: put the pipeline into a DPGridSearchCV, which has "
            "one for all"
        )


def clones_of(estimator: Any, random_state: Any, settings: Sequence[dict[str, Any]]) -> list[Any]:
    """Clones whose private steps have these settings, and noise of their own."""
    seeds: list[int | None] = [None] * len(settings)  # noise that nobody knows
    if random_state is not None:
        seeds = np.random.default_rng(random_state).integers(2**31, size=len(settings)).tolist()
    steps = budgeted_steps(estimator)
    clones = []
    for seed, given in zip(seeds, settings, strict=True):
        own = {"random_state": seed, **given}
        params = {f"{prefix}{name}": own[name] for prefix in steps for name in own}
        with unwarned():  # the seed is the one that was asked for
            clones.append(clone(estimator).set_params(**params))
    return clones
