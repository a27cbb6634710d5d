"""Fits without an accountant: how many there are of an estimator and its clones, and their cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from .budget import zcdp_epsilon
from .report import up


@dataclass(frozen=True)
class Fits:
    """Fits of an estimator and its clones without an accountant, up to one of them, in one process.

    Attributes
    ----------
    n_fits : int
    delta : float
        That of all together.
    costs : (float, float, float) or None
        Sums of their epsilons, of rho and of slack. None: not known, since their relations or their
        `rows_per_user` differ, or one had a seed.
    has_copies : bool
        Whether copies went elsewhere, such as to a worker process, whose fits nobody counts.
    noise_is_secret : bool
        False if one of them had a `random_state`.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn_dpsco import DPLinearRegression
    >>> X, y = [[0.0], [1.0]] * 100, [0.0, 1.0] * 100
    >>> model = DPLinearRegression(epsilon=0.5, delta=1e-6, bounds_X=(0, 1), bounds_y=(0, 1))
    >>> model.fit(X, y).guarantee_.fits is None
    True
    >>> _ = cross_val_score(model, X, y, cv=5)
    >>> fits = model.fit(X, y).guarantee_.fits
    >>> fits.n_fits, 1.0 < fits.epsilon < 7 * 0.5
    (7, True)
    """

    n_fits: int
    delta: float
    costs: tuple[float, float, float] | None
    has_copies: bool
    noise_is_secret: bool

    @cached_property
    def epsilon(self) -> float | None:
        """What they cost at most if all were on the same records, and fixed beforehand.

        None where that is not known, also if one had no noise.
        """
        if self.costs is None or self.delta >= 1:
            return None
        epsilon, rho, slack = self.costs
        if self.delta > slack and math.isfinite(rho):
            epsilon = min(epsilon, zcdp_epsilon(rho, self.delta - slack))
        return epsilon if math.isfinite(epsilon) else None

    @property
    def lines(self) -> list[str]:
        """What is said of them below a promise."""
        lines = []
        if self.has_copies:
            lines.append(
                "This estimator or a clone was copied or pickled, as for another process or a "
                "file: fits of the copies are not seen here, and add up with this one if the "
                "records are the same."
            )
        if self.n_fits > 1:
            cost = "an unknown epsilon" if self.epsilon is None else f"epsilon = {up(self.epsilon)}"
            cost += f", delta = {up(self.delta)}" if self.delta > 0 else ""
            known = "if they were fixed beforehand"
            known = known if self.noise_is_secret else "since one of them had a seed"
            lines.append(
                f"This is one of {self.n_fits} fits of this estimator and its clones without an "
                f"accountant, on whatever records. On the same records, they cost up to {cost} "
                f"together, {known}: a BudgetAccountant adds them up."
            )
        return lines
