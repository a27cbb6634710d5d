"""The private steps of an estimator, their plans, and the parts of a budget that they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from ..privacy.allotment import Allotment
from ..privacy.budget import Composition, PrivacyBudget

__all__ = [
    "OWN",
    "Sizes",
    "UnfitCurrencyError",
    "check_steps",
    "is_private",
    "last_step",
    "plans_of",
    "private_steps",
    "set_parts",
    "widths_of",
]

# what a search sets in every private step
OWN = ("epsilon", "delta", "relation", "max_rows_per_user", "accountant")


class Sizes(NamedTuple):
    """Public facts of a table.

    Attributes
    ----------
    n_samples : int
    n_outputs : int
        Number of classes, or of targets.
    widths : callable
        Maps a pipeline, and the number of a step, to the number of columns that reach it.
    """

    n_samples: int
    n_outputs: int
    widths: Callable[[Any], dict[str, int]]


def private_steps(estimator: Any) -> dict[str, Any]:
    """What has a budget of its own, by the prefix of its parameters; the estimator's is ""."""
    nested = estimator.get_params(deep=True)
    found = {f"{name}__": value for name, value in nested.items() if is_private(value)}
    return ({"": estimator} if is_private(estimator) else {}) | found


def is_private(value: Any) -> bool:
    """Whether an estimator or a transformer has a budget, and a plan."""
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return False
    return set(OWN) <= set(value.get_params(deep=False)) and hasattr(value, "plan")


def last_step(estimator: Any) -> Any:
    """The step of a pipeline that predicts, or the estimator."""
    while isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    return estimator


def _flat_steps(estimator: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The steps of nested pipelines in order, by the prefix of their parameters."""
    if not isinstance(estimator, Pipeline):
        yield prefix, estimator
        return
    for name, step in estimator.steps:
        yield from _flat_steps(step, f"{prefix}{name}__")


def check_steps(estimator: Any) -> None:
    """Raise `ValueError` if what predicts is not private, or a private step cannot be planned."""
    steps = dict(_flat_steps(estimator))
    if not is_private(last_step(estimator)):
        raise ValueError(
            "estimator must be a private estimator of this package, or a pipeline that ends with "
            f"one, got {type(last_step(estimator)).__name__}"
        )
    hidden = private_steps(estimator).keys() - steps.keys()
    if hidden:
        raise ValueError(
            "private steps must be steps of the pipeline itself, since their budgets are planned; "
            f"got {sorted(name.removesuffix('__') for name in hidden)} inside others"
        )


def widths_of(estimator: Any, X: Any, y: Any) -> dict[str, int]:
    """Number of columns that reach each private step, by its prefix.

    Other steps run on two records; private ones keep the columns.

    Raises
    ------
    ValueError
        If a step does not run on them, as one that learns from data may not.
    """
    few, labels = _two(X), None if y is None else _two(y)
    found = {}
    for prefix, step in _flat_steps(estimator):
        if is_private(step):
            found[prefix] = int(few.shape[1])
        elif step not in (None, "passthrough"):
            try:
                few = clone(step).fit_transform(few, labels)
            except Exception as error:
                if type(step).__module__.partition(".")[0] == __name__.partition(".")[0]:
                    raise  # its messages quote no value
                raise ValueError(
                    f"the step {prefix.removesuffix('__')!r} does not run on two records, so that "
                    f"how many columns it makes cannot be planned: {type(error).__name__}"
                ) from None
    return found


def _two(table: Any) -> Any:
    return table.iloc[:2] if hasattr(table, "iloc") else table[:2]


def set_parts(
    estimator: Any, budget: PrivacyBudget, currency: Composition,
    charge: Callable[[], None] | None = None,
) -> Any:  # fmt: skip
    """Give each private step its part of the budget, in proportion to what it asks for.

    With m private steps whose own epsilons cost c_1, ..., c_m in the currency, step k may cost
    the fraction c_k / (c_1 + ... + c_m) of the budget; a single one gets the budget as it is.
    `charge` is called when the first part is about to be spent.
    """
    steps = private_steps(estimator)
    asked = {prefix: _asked(step, budget, currency) for prefix, step in steps.items()}
    for prefix in steps:
        part = budget
        if len(steps) > 1:
            part = budget.part(asked[prefix] / sum(asked.values()), currency)
        settings = {
            "epsilon": part.epsilon,
            "delta": part.delta,
            "relation": part.relation,
            "max_rows_per_user": part.rows_per_user,
            "accountant": Allotment(part, charge),
        }
        estimator.set_params(**{f"{prefix}{name}": value for name, value in settings.items()})
    return estimator


def _asked(step: Any, budget: PrivacyBudget, currency: Composition) -> float:
    """What the step would cost with its own epsilon."""
    own = replace(budget, epsilon=step.epsilon)
    if currency == "pure":
        return own.epsilon
    return own.mu**2 if currency == "gdp" else own.rho


def plans_of(estimator: Any, sizes: Sizes) -> tuple[Any, ...]:
    """The plans of the private steps, each with the part that it has."""
    widths = sizes.widths(estimator)
    plans = []
    for prefix, step in private_steps(estimator).items():
        outputs = (sizes.n_outputs,) if hasattr(step, "predict") else ()
        plan = step.plan(sizes.n_samples, widths[prefix], *outputs)
        if not step.accountant.accepts(plan.guarantee):
            raise UnfitCurrencyError
        plans.append(plan)
    return tuple(plans)


class UnfitCurrencyError(Exception):
    """A plan does not add up in the currency that was tried."""
