"""What everything that is fitted shares: parameters, the budget in force, the charge."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np
from sklearn.utils.validation import validate_data

from ._checks import auto_or, check_choice, check_count, rounded, shown, stated, warn_user
from ._overview import DOCUMENTATION_LINK, Overview
from ._types import Auto, Flags, Indices, Nonfinite, Precision, RandomState, Relation
from .data.bounds import is_declaring
from .data.cells import (
    as_users,
    check_in_memory,
    check_lengths,
    checked_table,
    is_frame,
    is_nameless,
    surplus_rows,
)
from .exceptions import PrivacyBudgetError, PrivacyLeakWarning, PrivacyParameterWarning
from .privacy.accountant import accountant_in_force
from .privacy.branches import INFINITE, Account
from .privacy.budget import (
    LARGEST_DEFAULT_DELTA,
    RELATIONS,
    PrivacyBudget,
    check_delta,
    default_delta,
)
from .privacy.guarantee import Guarantee
from .privacy.report import Fits
from .randomness.stream import RandomStream, check_random_state, stream_from_random_state
from .solvers.base import P, plan_within

_NO_NOISE = "epsilon=inf adds no noise: nothing that is learned is private"


def relation_of(relation: Any, account: Account | None) -> Any:
    """The parameter, "auto" being that of the account, or without one replace-one."""
    if check_choice("relation", relation, ("auto", *RELATIONS)) != "auto":
        return relation
    return "replace-one" if account is None else account.budget.relation


def rows_of(max_rows_per_user: Any, account: Account | None) -> int:
    """The parameter, "auto" being that of the account, or without one 1."""
    given = auto_or(check_count, "max_rows_per_user", max_rows_per_user)
    if given is not None:
        return int(given)
    return 1 if account is None else account.max_rows_per_user


class Accounting(NamedTuple):
    """The accountant in force, the budget of a fit under it, and whether n decides on delta."""

    accountant: Account | None
    budget: PrivacyBudget
    sizes_delta: bool

    @classmethod
    def of(
        cls, epsilon: Any, delta: Any, relation: Any, rows: Any, precision: Any, accountant: Any
    ) -> Accounting:
        """From parameters; "auto" is the accountant's: a fit can spend all but its slack."""
        account, given = accountant_in_force(accountant), check_delta(delta)
        relation, rows = relation_of(relation, account), rows_of(rows, account)
        delta = LARGEST_DEFAULT_DELTA if account is None else account.budget.delta
        delta = delta if given is None else given
        budget = PrivacyBudget(epsilon, delta, relation, precision, rows_per_user=rows)
        if account is not None:  # it adds up plans, in a currency that they share
            budget = replace(budget, currency=account.currency, order=account.order)
        if not budget.is_infinite:
            _ = budget.gaussian_allowance  # what cannot be converted raises here
        elif account is not None:
            raise PrivacyBudgetError(INFINITE)
        return cls(account, budget, given is None and account is None)

    def of_size(self, n_samples: int) -> Accounting:
        """The same with the delta that belongs to so many records, if `sizes_delta`."""
        if not self.sizes_delta:
            return self
        budget = replace(self.budget, delta=default_delta(n_samples))
        return self._replace(budget=budget, sizes_delta=False)

    def warn_if_weak(
        self, n_samples: int, n_features: int = 0, least: float = 0.0, n_present: int | None = None
    ) -> float:
        """Warn if epsilon is infinite, or delta not below 1 / n_samples, or if noise hides all.

        The last is for a model on `n_features`, as found by simulation: a mean over fewer rows than
        4 sqrt(n_features) times its noise, or `least` times, hides even strong effects, with three
        times as many they show; returned is the number of rows over this. Rows of wide tables are
        sparse, and such a table is as hard as one of 1000 columns at most. With `n_present`, only
        of what was not said before: that so few of the rows are not empty.
        """
        is_first = n_present is None
        if self.budget.is_infinite:
            if is_first:
                warn_user(_NO_NOISE, PrivacyLeakWarning)
            return math.inf
        budget = self.of_size(n_samples).budget
        size = budget.epsilon / budget.rows_per_user if budget.is_pure else budget.mu
        needed = max(4 * math.sqrt(min(n_features, 1000)), least) * budget.record_factor / size
        counted, given = n_samples, f"n_samples={n_samples} is"
        if n_present is not None:
            needed = needed if needed <= n_samples else 0.0
            counted, of_what = n_present, "gaps, text, weights of 0, and labels of no class"
            given = f"{of_what} make rows empty: about {n_present} rows of {n_samples} are not "
            given += "empty, which is"
        if counted < needed:
            first, clear = rounded(needed, 2), rounded(3 * needed, 2)
            warn_user(
                f"{given} too small to learn from {n_features} features at "
                f"epsilon={stated(budget.epsilon)} with {budget.relation} neighbours: noise hides "
                f"even strong effects. These begin to show from about {first:.0f} rows on, and are "
                f"clear from {clear:.0f}; or take fewer features, or a larger epsilon",
                PrivacyParameterWarning,
            )
        if is_first and budget.delta >= 1 / n_samples:
            warn_user(
                f"delta={budget.delta!r} is not below 1 / n_samples: such a guarantee lets a "
                "mechanism publish a whole record",
                PrivacyParameterWarning,
            )
        return counted / needed if needed > 0 else math.inf

    def plan(self, n_samples: int, make: Callable[[PrivacyBudget], P]) -> P:
        """The plan that `make` makes of the budget of so many records; see `warn_if_weak`."""
        self.warn_if_weak(n_samples)
        return plan_within(self.of_size(n_samples).budget, make)


_LINEAGES: WeakValueDictionary[str, Lineage] = WeakValueDictionary()


@dataclass(eq=False)
class Lineage:
    """Fits without an accountant of an estimator and of its clones, in this process."""

    claims: dict[tuple[Any, ...], list[None]] = field(default_factory=dict)  # an item for each fit
    has_copies: bool = False  # in files or other processes, where their fits are not seen
    name: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        _LINEAGES[self.name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return Lineage._restored, (self.name,)  # a copy in this process shares it

    @classmethod
    def _restored(cls, name: str) -> Lineage:
        return _LINEAGES.get(name) or cls(name=name)

    def __getstate__(self) -> dict[str, str]:  # of skops, which does not reduce
        return {"name": self.name}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__dict__ = self._restored(**state).__dict__
        _LINEAGES.setdefault(self.name, self)

    def count(self, guarantee: Any, noise_is_secret: bool) -> Fits | None:
        """One more fit; `Guarantee.fits` of it, None if it is the only one."""
        rho = guarantee.cost("zcdp") if guarantee.composes_in("zcdp") else math.inf
        costs = guarantee.epsilon, rho, guarantee.delta, guarantee.slack
        claim = *map(float, costs), (guarantee.relation, guarantee.rows_per_user), noise_is_secret
        self.claims.setdefault(claim, []).append(None)  # nothing here waits for other threads
        claims, fits = zip(*list(self.claims.items()), strict=True)
        counts = np.array(list(map(len, fits)))
        n_fits = int(counts.sum())
        if n_fits == 1 and not self.has_copies:
            return None
        *facts, meanings, secrets = zip(*claims, strict=True)
        epsilon, rho, delta, slack = (counts * np.array(facts)).sum(axis=1).tolist()
        is_secret = all(secrets)
        is_known = is_secret and len(set(meanings)) == 1  # of neighbours
        known = (epsilon, rho, slack) if is_known else None
        return Fits(n_fits, delta, known, self.has_copies, is_secret)


@dataclass(kw_only=True, repr=False, eq=False)
class PrivateFit:
    """Mixin of what is fitted: its parameters, and the parts before anything is computed."""

    epsilon: float = 1.0
    delta: float | Auto = "auto"
    relation: Relation | Auto = "auto"
    max_rows_per_user: int | Auto = "auto"
    precision: Precision = "exact"
    accountant: Account | None = None
    random_state: RandomState = None

    nonfinite: Any = field(init=False)  # of what is fitted to a table by itself
    plan_: Any = field(init=False)
    guarantee_: Guarantee = field(init=False)
    noise_is_secret_: bool = field(init=False)
    n_features_in_: int = field(init=False)
    _doc_link_module, _doc_link_template = DOCUMENTATION_LINK
    # of the last one, also before this was known of a stream
    _fits: Fits | None = field(default=None, init=False)
    _has_groups: bool = field(default=False, init=False)
    _is_charged: bool = field(default=False, init=False)  # to an accountant
    _counted: int = field(default=1, init=False)  # of a user's rows
    _target_names: tuple[str, ...] | None = field(default=None, init=False)  # of a frame y

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn's estimators do.

        A seed in the place of ``random_state=None`` warns, since who sets it may not be the user:
        ensembles of scikit-learn seed their members unasked.
        """
        if self.random_state is None and params.get("random_state") is not None:
            warn_user(
                "random_state was None and is set to a seed, as ensembles do to their members: "
                "noise that follows from a seed is known to whoever knows or guesses it, so that "
                "such a fit is not private. Fit the members one by one for secret noise",
                PrivacyLeakWarning,
            )
        return super().set_params(**params)  # type: ignore[misc]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "noise_is_secret_")

    @property
    def _rows_per_user(self) -> int:
        """The parameter `max_rows_per_user`, or the number that its "auto" stands for now."""
        return rows_of(self.max_rows_per_user, accountant_in_force(self.accountant))

    def _accounting(self) -> Accounting:
        """The accountant in force at this moment, and the budget of a fit under it.

        Raises on what all that is fitted shares, if it is wrong whatever the data are.
        """
        check_choice("nonfinite", getattr(self, "nonfinite", "raise"), ("raise", "zero"))
        check_random_state(self.random_state)
        claim = self.epsilon, self.delta, self.relation, self._rows_per_user
        return Accounting.of(*claim, self.precision, self.accountant)

    def _spend(
        self,
        account: Account | None,
        plan: Any,
        *,
        has_groups: bool = False,
        is_secret: bool | None = None,
    ) -> None:
        """Charge a plan, if there is an account; else count it among the fits of the clones.

        `is_secret` says of noise that began before whether it had no seed then.
        """
        if has_groups and plan.guarantee.rows_per_user < self._counted:
            raise PrivacyBudgetError(
                "while the data were read, the block of an accountant was opened or closed, with "
                "which max_rows_per_user='auto' became smaller: fit again"
            )
        is_secret = self.random_state is None if is_secret is None else is_secret
        self._has_groups = has_groups
        self._is_charged = account is not None
        if account is None:
            lineage = self.__dict__.setdefault("_lineage", Lineage())
            self._fits = lineage.count(plan.guarantee, is_secret)
        else:
            self._fits, name = None, type(self).__name__
            account.spend(plan, estimator=name, has_groups=has_groups, noise_is_secret=is_secret)

    def _noise_of(self, name: str) -> RandomStream:
        """The stream of a new fit's noise and random choices."""
        return stream_from_random_state(self.random_state).substream(name, 0)

    def _keep_claim(self, plan: Any, stream: RandomStream) -> None:
        """Set what the fit has followed and claims."""
        self.plan_, self.noise_is_secret_ = plan, stream.is_secure
        self.guarantee_ = plan.guarantee.of_fit(
            noise_is_secret=stream.is_secure, fits=self._fits, has_groups=self._has_groups
        )

    def _feature_names(self) -> list[str] | None:
        return list(getattr(self, "feature_names_in_", ())) or None

    @property
    def _names(self) -> list[str]:
        """What the features are called, also where they have no names."""
        return self._feature_names() or [f"x{k}" for k in range(self.n_features_in_)]

    @property
    def _is_strict(self) -> bool:
        """Whether an invalid record is an error."""
        return bool(self.nonfinite != "zero")

    def _features(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        """X as an array or a sparse matrix of finite numbers, or with "zero" of any numbers."""
        check_in_memory(f"this method of {type(self).__name__}", X)
        encoder: Any = getattr(self, "bounds_X", None)
        schema = getattr(encoder, "schema", None)
        is_raw = schema is not None and is_frame(X) and set(schema) <= set(X.columns)
        if not reset and is_raw and list(X.columns) != list(encoder.get_feature_names_out()):
            raise ValueError(
                "X is the table before the encoder in bounds_X: the last step takes what the "
                "others make of it, pipeline[:-1].transform(X); predict_interval(pipeline, X) has "
                "intervals of a table"
            )
        table = checked_table(
            X, strict=self._is_strict, estimator=self, ensure_min_samples=min_samples
        )
        # the names and the number of the columns
        validate_data(self, X, "no_validation", reset=reset, skip_check_array=True)
        return table

    def _surplus(
        self,
        X: Any,
        groups: Any,
        most: int,
        counted: MutableMapping[Any, int] | None = None,
        numbers: Indices | None = None,
    ) -> Flags | None:
        """Flags rows beyond `most` of a user; `counted` and `numbers` are as in `surplus_rows`."""
        if groups is None:
            return None
        self._counted = most
        users = as_users(groups)
        check_lengths(X=X, groups=users)
        if self._is_strict and np.any(is_nameless(users)):
            raise ValueError(
                "groups contains labels that are missing or cannot be compared. Say "
                "nonfinite='zero', so that such a row contributes nothing"
            )
        return surplus_rows(users, most, counted, numbers)

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        """A part of a call after which an error leaves the estimator as it was."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    @contextmanager
    def _until_spent(self) -> Iterator[None]:
        """The part of a fit that ends with the charge; an error leaves an earlier fit as it was."""
        earlier = set(self.__dict__) - {"n_features_in_", "feature_names_in_"}
        with self._unchanged_on_error():
            yield
        # the earlier fit goes, so that a fit that is interrupted from here on leaves no model
        for name in earlier:
            if name.endswith("_"):
                self.__dict__.pop(name, None)

    @property
    def _repr_html_(self) -> Callable[[], str]:
        # scikit-learn's has no such attribute where its configuration asks for text
        diagram: Callable[[], str] = super()._repr_html_  # type: ignore[misc]
        return lambda: diagram() + self._privacy().html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += self._privacy().html()
        return bundle

    def _privacy(self) -> Overview:
        """What is asked for and declared, and of a fit what is guaranteed."""
        rows = [(name, shown(getattr(self, name))) for name in ("epsilon", "delta", "relation")]
        for name in ("bounds_X", "bounds_y", "classes"):
            if hasattr(self, name):
                value = getattr(self, name)
                declared = "not declared" if value is None else "declared"
                declared += f" by {type(value).__name__}" if is_declaring(value) else ""
                rows.append((name, declared))
        if hasattr(self, "guarantee_"):
            noise = "secret" if self.noise_is_secret_ else "not secret: random_state was given"
            noise = "none" if self.guarantee_.is_void else noise
            lines = [line.strip().rstrip(".") for line in self.guarantee_.overview().lines]
            rows += [("guarantee of the fit", "; ".join(lines)), ("noise", noise)]
        return Overview(("Privacy",), rows=rows)

    def __getstate__(self) -> dict[str, Any]:
        # a block does not reach other processes: what is sent there takes its accountant along, so
        # that a fit in a worker fails instead of spending nothing
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        if "guarantee_" not in state:  # a copy that is perhaps fitted where nobody counts
            # (and whose state, which caches hash, is that of its parameters)
            state.pop("_lineage", None)
            self.__dict__.setdefault("_lineage", Lineage()).has_copies = True
        if state.get("accountant") is None and (active := accountant_in_force(None)) is not None:
            state["accountant"] = active
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        if "guarantee_" not in state:  # others are perhaps fitted elsewhere, as in other workers
            self.__dict__["_lineage"] = Lineage(has_copies=True)

    def __sklearn_clone__(self) -> Self:
        twin: Self = super().__sklearn_clone__()  # type: ignore[misc]
        twin.__dict__["_lineage"] = self.__dict__.setdefault("_lineage", Lineage())
        return twin


@dataclass(kw_only=True, repr=False, eq=False)
class PrivateEstimator(PrivateFit):
    """Mixin of what is fitted to a table by itself."""

    nonfinite: Nonfinite = "raise"


C = TypeVar("C", bound=type)

# The order in which readers see parameters.
_ORDER = """
    self vectorizer estimator param_grid param_distributions epsilon delta relation
    max_rows_per_user max_weight max_words bounds_X scale_X bounds_y scale_y bounds_exposure power
    center_X center_y with_centering with_scaling clip classes class_weight fit_intercept inference
    horizon loss feasible_set units scoring n_jobs solver precision nonfinite accountant
    random_state verbose n_iter candidates_seed
"""


def in_order(cls: C) -> C:
    """A dataclass of which the signature has the parameters in the order for readers."""
    init: Any = vars(cls)["__init__"]
    found, order = inspect.signature(init).parameters, _ORDER.split()
    init.__signature__ = inspect.Signature([found[n] for n in sorted(found, key=order.index)])
    return cls
