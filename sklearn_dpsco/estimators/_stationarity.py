"""How far a fitted model is from a stationary point of its feasible set, on public data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..data.rows import Terms
from ._base import DPLinearModel
from ._records import LocalTable


class HasFeasibleSet(DPLinearModel):
    """Base of the models whose solvers have a feasible set in the units of the bounds."""

    def stationarity_gap(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        r"""Frank-Wolfe gap of the model on the data given: **not private**.

        .. math:: \max_{v \in \mathcal{W}} \langle \nabla F(w), w - v \rangle

        F is the mean of the plan's loss over the rows of X, each times its weight as `fit` scales
        it, in scaled units and without any clip, plus half of `l2_penalty` times the squared norm
        if there is one; w are the model's scaled coefficients, the intercept's correction
        included, and :math:`\mathcal{W}` is the feasible set. 0 at a stationary point; for a convex
        loss at least F(w) less its minimum over the set. (The noise of phased SGD may take w out of
        the set, and the gap below 0.)

        .. warning:: This spends no budget and adds no noise: the number tells of the rows that
           it is computed from. Call it on public or on held-out data, and never publish
           it for records that are to be protected.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            As in `fit`: values outside the bounds are clipped, invalid records count as empty ones
            with ``nonfinite="zero"``.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            As in `fit`.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the model has no bounded set: `feasible_set="unconstrained"`, or learned units.
        """
        check_is_fitted(self)
        plan, model = self.plan_, self._scaled_model
        problem = plan.problem
        geometry = plan.bounded_set
        if geometry is None or not math.isfinite(geometry.radius):
            raise ValueError(
                f"stationarity_gap needs a bounded feasible set in the units of the bounds, which "
                f"solver={plan.solver!r} with feasible_set={self.feasible_set!r} has not. Say "
                "units='bounds', or take a solver that has one"
            )
        with np.errstate(all="ignore"):
            X, y = self._validate(X, y, reset=False, min_samples=1)
            targets = self._targets.of(self._reader, y)
            if targets.n_outputs != problem.n_outputs:
                raise ValueError(f"y must have {problem.n_outputs} targets, as in fit")
            weight = self._reader.weights(X, sample_weight, targets)
            table = LocalTable(self._reader, X, targets, None, weight)
            frame, coef = model.frame, np.asarray(model.coef).T
            data = frame.weighted(table.data(self._scaling, problem.fit_intercept, False))
            rows = data.rows
            if problem.fit_intercept:
                center = np.zeros(len(coef)) if frame.center is None else frame.center
                rows = rows.centered(center)
                intercept = model.intercept - frame.offset + center @ coef
                coef = np.concatenate((coef, np.reshape(intercept, (1, *coef.shape[1:]))))
            units = frame.units(problem)
            terms = Terms(frame.offset, problem.loss, math.inf)
            gradient = units * rows.gradient_sum(coef, data.y, terms).ravel() / rows.n_samples
        point = coef.ravel() / units
        gradient = gradient + getattr(plan, "l2_penalty", 0.0) * point
        return float(gradient @ (point - geometry.extreme_point(gradient)))
