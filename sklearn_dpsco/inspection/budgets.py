"""Where budgets go: ledgers and plans; and what an attacker can tell, at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._checks import stated
from ..privacy.accountant import BudgetAccountant
from ..privacy.branches import branch_levels
from ..privacy.guarantee import Guarantee
from . import axes_for

_NEAR_0 = np.geomspace(1e-6, 0.02, 60)  # where a curve is steep, or flat at the other end
_FALSE_ALARMS = np.unique([0.0, *_NEAR_0, *np.linspace(0.02, 0.98, 97), *(1 - _NEAR_0), 1.0])


@dataclass(kw_only=True, eq=False, repr=False)
class LedgerDisplay:
    """What the charges of a `BudgetAccountant` add up to, one after the other, and by label.

    A bar is what a charge added to the epsilon of those before it, at the budget's delta. Its
    height depends on them, since charges compose to less than the sum of their epsilons. Branches
    of `parallel` stand side by side, each in a column with its own charges only (that of a branch
    within a branch next to it), and what comes after them begins at the top of the costliest
    (`BudgetAccountant.spans`). The dashed line is the budget. A ledger holds public facts only;
    make a display by `from_accountant`.

    Parameters
    ----------
    totals : array-like of shape (n_charges,)
        Epsilon after each charge.
    labels : list of str
        Of each charge; those of one label have one colour.
    epsilon : float, of the budget
    starts : array-like of shape (n_charges,) or None, default=None
        Epsilon before each charge. None: that after the charge before.
    columns : list of int or None, default=None
        Of each charge, the number of its column, from 0. None: each has its own.
    names : list of str or None, default=None
        Of each column. None: numbers from 1.

    Attributes
    ----------
    bars_ : dict of str to matplotlib BarContainer, by label
    budget_line_ : matplotlib Line2D
    ax_, figure_ : matplotlib Axes and Figure

    Examples
    --------
    >>> from sklearn_dpsco import BudgetAccountant, LedgerDisplay
    >>> accountant = BudgetAccountant(epsilon=2.0)
    >>> display = LedgerDisplay.from_accountant(accountant)  # doctest: +SKIP
    """

    totals: Any
    labels: list[str]
    epsilon: float
    starts: Any = None
    columns: list[int] | None = None
    names: list[str] | None = None

    @classmethod
    def from_accountant(cls, accountant: BudgetAccountant, **kwargs: Any) -> Self:
        """Draw the ledger of an accountant.

        Parameters
        ----------
        accountant : BudgetAccountant
            A charge without a label has the name of its estimator.
        **kwargs
            As `plot` takes them.
        """
        spans = accountant.spans()
        ledger = accountant.ledger  # others may be charging
        charges = [ledger[k] for k in spans]
        keys = [charge.branch or (str(k + 1),) for k, charge in zip(spans, charges, strict=True)]
        # of a branch within another one the last level is enough: that stands next to it
        words = {
            key: "> " * (len(found) > 1) + found[-1].replace("branch ", "", 1) if found else key[0]
            for key, found in zip(keys, branch_levels(charges), strict=True)
        }
        starts, totals = np.reshape(list(spans.values()), (-1, 2)).T
        return cls(
            totals=totals,
            labels=[charge.label or charge.estimator or "other" for charge in charges],
            epsilon=accountant.budget.epsilon,
            starts=starts,
            columns=[list(words).index(key) for key in keys],
            names=list(words.values()),
        ).plot(**kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones. An `ImportError` says if matplotlib is not installed.
        **kwargs
            For the bars, as `matplotlib.axes.Axes.bar` takes them.
        """
        ax = axes_for(self, ax)
        totals = np.asarray(self.totals, dtype=np.float64)
        before = np.append(0.0, totals)[:-1] if self.starts is None else np.asarray(self.starts)
        number = 1 + np.asarray(range(totals.size) if self.columns is None else self.columns, int)
        names = [str(k + 1) for k in range(totals.size)] if self.names is None else self.names
        self.bars_ = {}
        for label in dict.fromkeys(self.labels):
            which = np.array([other == label for other in self.labels])
            height, style = (totals - before)[which], {"label": label, **kwargs}
            self.bars_[label] = ax.bar(number[which], height, bottom=before[which], **style)
        budget = {"color": "black", "linestyle": "--", "label": "budget"}
        self.budget_line_ = ax.axhline(self.epsilon, **budget)
        what = "Charge" if all(map(str.isdigit, names)) else "Charge, or branch"
        ax.set(xlabel=what, ylabel="Epsilon spent", ylim=(0, 1.05 * self.epsilon))
        # upright names where columns are narrow, of some if they are many
        inches = ax.get_window_extent().width / ax.figure.dpi
        step = 1 + int(len(names) / (6 * inches))
        is_upright = max(map(len, names), default=0) * len(names) > 10 * inches
        shown = [f"{name[:13]}..." if len(name) > 16 else name for name in names[::step]]
        ax.set_xticks(range(1, len(names) + 1, step), shown, rotation=90 if is_upright else 0)
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "fontsize": "small"}
        ax.legend(**(above if inches < 4 else {"loc": "best"}))
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class PlanDisplay:
    """Where the budget of a plan goes: the share of each release, or of each part of a search.

    Shares are those of `Guarantee.shares`. Releases on disjoint records, whose bars name their
    records, each have the share of what a record among them bears: such bars do not add up to 1.
    A plan holds public facts only; make a display by `from_plan` or `from_estimator`.

    Parameters
    ----------
    names : list of str
    shares : array-like of shape (n_releases,)
        In [0, 1].
    title : str or None, default=None

    Attributes
    ----------
    bars_ : matplotlib BarContainer
    ax_, figure_ : matplotlib Axes and Figure

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
    def from_plan(cls, plan: Any, **kwargs: Any) -> Self:
        """Draw the shares of a plan.

        Parameters
        ----------
        plan : object with a `guarantee`, or Guarantee
            Such as ``model.plan(n_samples, n_features)`` or ``model.plan_``, of an estimator, a
            search, a scaler or a score.
        **kwargs
            As `plot` takes them.
        """
        guarantee = getattr(plan, "guarantee", plan)
        found = guarantee.shares()
        names, shares = [name for name, _ in found], np.array([share for _, share in found])
        return cls(names=names, shares=shares, title=guarantee.claim).plot(**kwargs)

    @classmethod
    def from_estimator(cls, estimator: Any, n_samples: int, n_features: int, **kwargs: Any) -> Self:
        """Draw the shares of the plan that a fit would follow; spends nothing.

        Parameters
        ----------
        estimator : estimator, search or scaler of this package
            A `TypeError` says if it has no `plan`, as a pipeline has none.
        n_samples, n_features : int
            As its `plan` takes them.
        **kwargs
            As `plot` takes them.
        """
        if not hasattr(estimator, "plan"):
            raise TypeError(
                f"estimator must have a plan, which {type(estimator).__name__} has not: of a "
                "pipeline give model[-1], and the number of columns that reach it"
            )
        return cls.from_plan(estimator.plan(n_samples, n_features), **kwargs)

    def plot(self, *, ax: Any = None, max_bars: int = 30, **kwargs: Any) -> Self:
        """Draw the bars, the first release at the top.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None: new ones. An `ImportError` says if matplotlib is not installed.
        max_bars : int, default=30
            Of more releases, the largest shares are drawn.
        **kwargs
            For the bars, as `matplotlib.axes.Axes.barh` takes them.
        """
        ax = axes_for(self, ax)
        shares = np.asarray(self.shares, dtype=np.float64)
        largest = np.sort(np.argsort(-shares, kind="stable")[:max_bars])
        place, omitted = np.arange(largest.size), shares.size - largest.size
        self.bars_ = ax.barh(place, shares[largest], **kwargs)
        ax.set_yticks(place, [self.names[k] for k in largest])
        ax.invert_yaxis()
        more = f" ({omitted} smaller ones left out)" if omitted else ""
        ax.set_xlabel("Share of the budget" + more)
        if self.title is not None:
            ax.set_title(self.title)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class TradeoffCurveDisplay:
    """False alarms against missed detections of any attack on a guarantee.

    An attacker sees what is published, and is to tell whether a record had one value or another.
    Whatever they do and know of the other records, their rates of false alarms and of missed
    detections make a point on the curve or above it (`Guarantee.trade_off`). On the diagonal is
    who guesses without looking: the closer the curve is to it, the more private. All shown is
    public; make a display by `from_guarantee`.

    Parameters
    ----------
    false_alarms, missed_detections : ndarray of shape (n_points,)
        Rates in [0, 1].
    name : str or None, default=None
        For the legend.

    Attributes
    ----------
    line_, chance_level_ : matplotlib Line2D, the latter or None
    ax_, figure_ : matplotlib Axes and Figure

    Examples
    --------
    >>> from sklearn_dpsco import DPLinearRegression, TradeoffCurveDisplay
    >>> model = DPLinearRegression(epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 1))
    >>> guarantee = model.plan(n_samples=5000, n_features=10).guarantee
    >>> display = TradeoffCurveDisplay.from_guarantee(guarantee)  # doctest: +SKIP
    """

    false_alarms: Any
    missed_detections: Any
    name: str | None = None

    @classmethod
    def from_guarantee(
        cls, guarantee: Guarantee, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the curve of a guarantee.

        Parameters
        ----------
        guarantee : Guarantee
            Of a plan or of a fitted estimator. A `TypeError` says if it is something else.
        name : str or None, default=None
            For the legend. None: its epsilon and delta.
        **kwargs
            As `plot` takes them.
        """
        if not isinstance(guarantee, Guarantee):
            raise TypeError(
                f"guarantee must be a Guarantee, got {type(guarantee).__name__}: of a fitted "
                "estimator give guarantee_, of a plan guarantee"
            )
        missed = np.array([guarantee.trade_off(float(alpha)) for alpha in _FALSE_ALARMS])
        if name is None:
            name = f"epsilon={stated(guarantee.epsilon)}, delta={stated(guarantee.delta)}"
        rates = {"false_alarms": _FALSE_ALARMS.copy(), "missed_detections": missed}
        return cls(**rates, name=name).plot(**kwargs)

    def plot(self, *, ax: Any = None, plot_chance_level: bool = True, **kwargs: Any) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Give those of another display to compare guarantees. None: new ones. An `ImportError`
            says if matplotlib is not installed.
        plot_chance_level : bool, default=True
            Whether to draw the diagonal.
        **kwargs
            For the line, as `matplotlib.axes.Axes.plot` takes them.
        """
        ax = axes_for(self, ax)
        style = {"label": self.name, **kwargs}
        (self.line_,) = ax.plot(self.false_alarms, self.missed_detections, **style)
        self.chance_level_ = None
        if plot_chance_level:
            chance = {"color": "gray", "linestyle": "--", "label": "no information"}
            (self.chance_level_,) = ax.plot([0, 1], [1, 0], **chance)
        ax.set(xlabel="False alarms", ylabel="Missed detections", aspect="equal")
        ax.legend(loc="upper right")
        return self
