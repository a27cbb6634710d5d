"""Fits for a look at public or synthetic tables, which no budget pays for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone

from .._checks import check_bool, warn_user
from ..data.blocks import check_in_memory
from ..exceptions import PrivacyLeakWarning
from ..model_selection.private_steps import private_last, private_steps
from ..privacy.accountant import active_accountant

__all__ = ["budgeted_steps", "check_public", "seeds", "with_noise_of"]


def check_public(what: str, X: Any, estimator: Any, data_is_public: bool) -> None:
    """Warn unless the data are said to be public; raise if a fit would be charged."""
    check_in_memory(what, X)
    private_last(estimator, f"{what} takes a private estimator or search")
    accountants = [step.accountant for step in private_steps(estimator).values()]
    if active_accountant() is not None or any(found is not None for found in accountants):
        raise ValueError(
            f"{what} fits many times, on public or synthetic data that need no budget, and an "
            "accountant would be charged for each fit: leave its block, and give a "
            "clone(estimator).set_params(accountant=None)"
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


def seeds(random_state: Any, size: int) -> Iterator[int | None]:
    """So many seeds of fits; None, for noise that nobody knows, without a random_state."""
    if random_state is None:
        return iter([None] * size)
    generator = np.random.default_rng(random_state)
    return iter(generator.integers(2**31, size=size).tolist())


def with_noise_of(estimator: Any, seed: int | None, **parameters: Any) -> Any:
    """A clone whose private steps have this seed, and these parameters if there are any."""
    steps = budgeted_steps(estimator)
    settings = {"random_state": seed, **parameters}
    return clone(estimator).set_params(
        **{f"{prefix}{name}": value for prefix in steps for name, value in settings.items()}
    )
