"""Where budgets go: the ledger of an accountant, and the releases of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..privacy.accountant import BudgetAccountant
from .axes import axes_for

__all__ = ["LedgerDisplay", "PlanDisplay"]


@dataclass(kw_only=True, eq=False, repr=False)
class LedgerDisplay:
    """What the charges of a `BudgetAccountant` add up to, one after the other, and by label.

    A bar is what a charge added to the epsilon of all charges so far, at the budget's delta
    (`BudgetAccountant.running_total`). Its height depends on what came before, since charges
    compose to less than the sum of their epsilons; in a branch of `parallel` it is what exceeds
    the other branches. The dashed line is the budget.

    Make one by `from_accountant`. A ledger holds public facts only.

    Parameters
    ----------
    totals : array-like of shape (n_charges,)
        Epsilon after each charge.
    labels : list of str
        Of each charge; those of one label have one colour.
    epsilon : float
        Of the budget.

    Attributes
    ----------
    bars_ : dict of str to matplotlib BarContainer
        The bars of each label.
    budget_line_ : matplotlib Line2D
    ax_, figure_
        Axes and figure.

    Examples
    --------
    >>> from sklearn_dpsco import BudgetAccountant, LedgerDisplay
    >>> accountant = BudgetAccountant(epsilon=2.0)
    >>> display = LedgerDisplay.from_accountant(accountant)  # doctest: +SKIP
    """

    totals: Any
    labels: list[str]
    epsilon: float

    @classmethod
    def from_accountant(
        cls, accountant: BudgetAccountant, *, ax: Any = None, **kwargs: Any
    ) -> Self:
        """Draw the ledger of an accountant.

        Parameters
        ----------
        accountant : BudgetAccountant
            A charge without a label has the name of its estimator.
        ax, **kwargs
            As in `plot`.

        Returns
        -------
        LedgerDisplay
        """
        totals = accountant.running_total()
        charges = accountant.ledger[: len(totals)]  # others may be charging
        labels = [charge.label or charge.estimator or "other" for charge in charges]
        epsilon = float(accountant.budget.epsilon)
        return cls(totals=np.array(totals), labels=labels, epsilon=epsilon).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones.
        **kwargs
            For the bars, as `matplotlib.axes.Axes.bar` takes them.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_for(self, ax)
        totals = np.asarray(self.totals, dtype=np.float64)
        before = np.append(0.0, totals[:-1]) if totals.size else totals
        number = np.arange(1, totals.size + 1)
        self.bars_ = {}
        for label in dict.fromkeys(self.labels):
            which = np.array([other == label for other in self.labels])
            height, style = (totals - before)[which], {"label": label, **kwargs}
            self.bars_[label] = ax.bar(number[which], height, bottom=before[which], **style)
        budget = {"color": "black", "linestyle": "--", "label": "budget"}
        self.budget_line_ = ax.axhline(self.epsilon, **budget)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set(xlabel="Charge", ylabel="Epsilon spent", ylim=(0, 1.05 * self.epsilon))
        ax.legend(loc="best")
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class PlanDisplay:
    """Where the budget of a plan goes: the share of each release, or of each part of a search.

    Shares are those of `Guarantee.shares`. Releases on disjoint records, whose bars name their
    records, each have the share of what a record among them bears: such bars do not add up to 1.

    Make one by `from_plan` or `from_estimator`. A plan holds public facts only.

    Parameters
    ----------
    names : list of str
    shares : array-like of shape (n_releases,)
        In [0, 1].
    title : str or None, default=None

    Attributes
    ----------
    bars_ : matplotlib BarContainer
    ax_, figure_
        Axes and figure.

    Examples
    --------
    >>> from sklearn_dpsco import DPLinearRegression, PlanDisplay
    >>> model = DPLinearRegression(epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 1))
    >>> display = PlanDisplay.from_estimator(model, 5000, 10)  # doctest: +SKIP
    """

    names: list[str]
    shares: Any
    title: str | None = None

    @classmethod
    def from_plan(cls, plan: Any, *, ax: Any = None, max_bars: int = 30, **kwargs: Any) -> Self:
        """Draw the shares of a plan.

        Parameters
        ----------
        plan : object with a `guarantee`, or Guarantee
            Such as ``model.plan(n_samples, n_features)`` or ``model.plan_``, of an estimator, a
            search, a scaler or a score.
        ax, max_bars, **kwargs
            As in `plot`.

        Returns
        -------
        PlanDisplay
        """
        guarantee = getattr(plan, "guarantee", plan)
        found = guarantee.shares()
        names, shares = [name for name, _ in found], np.array([share for _, share in found])
        display = cls(names=names, shares=shares, title=guarantee.claim)
        return display.plot(ax=ax, max_bars=max_bars, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        n_samples: int,
        n_features: int,
        *,
        ax: Any = None,
        max_bars: int = 30,
        **kwargs: Any,
    ) -> Self:
        """Draw the shares of the plan that a fit would follow; spends nothing.

        Parameters
        ----------
        estimator : estimator, search or scaler of this package
        n_samples, n_features : int
            As its `plan` takes them.
        ax, max_bars, **kwargs
            As in `plot`.

        Returns
        -------
        PlanDisplay

        Raises
        ------
        TypeError
            If `estimator` has no `plan`, as a pipeline has none.
        """
        if not hasattr(estimator, "plan"):
            raise TypeError(
                f"estimator must have a plan, which {type(estimator).__name__} has not: of a "
                "pipeline give model[-1], and the number of columns that reach it"
            )
        plan = estimator.plan(n_samples, n_features)
        return cls.from_plan(plan, ax=ax, max_bars=max_bars, **kwargs)

    def plot(self, *, ax: Any = None, max_bars: int = 30, **kwargs: Any) -> Self:
        """Draw the bars, the first release at the top.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones.
        max_bars : int, default=30
            Of more releases, the largest shares are drawn.
        **kwargs
            For the bars, as `matplotlib.axes.Axes.barh` takes them.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_for(self, ax)
        shares = np.asarray(self.shares, dtype=np.float64)
        largest = np.sort(np.argsort(-shares, kind="stable")[:max_bars])
        place = np.arange(largest.size)
        self.bars_ = ax.barh(place, shares[largest], **kwargs)
        ax.set_yticks(place, [self.names[k] for k in largest])
        ax.invert_yaxis()
        omitted = shares.size - largest.size
        ax.set_xlabel(
            "Share of the budget" + (f" ({omitted} smaller ones left out)" if omitted else "")
        )
        if self.title is not None:
            ax.set_title(self.title)
        return self
