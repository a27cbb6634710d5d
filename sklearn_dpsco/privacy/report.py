"""What a guarantee promises, in words for someone without mathematics, and as data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from scipy.special import expit

from .._overview import Overview, Overviewed

FORMAT = "sklearn_dpsco.report/1"

_AGAINST = {
    "replace-one": "Whoever sees the results, and may know all other records, can hardly tell "
    "which values {whom} had: others in their place would have given much the same results.",
    "zero-out": "Whoever sees the results, and may know all other records, can hardly tell whether "
    "the values of {whom} were used at all. How many records there are is public.",
}
_KINDS = {
    "Gaussian": "sums with normal noise",
    "KeyedGaussian": "counts with normal noise, where they are large enough",
    "Laplace": "sums with Laplace noise",
    "GeneralizedGaussian": "sums with noise",
    "BatchGaussian": "sums over random parts of the records, with normal noise",
    "PrefixSum": "running sums with normal noise",
    "SelectVertex": "a noisy choice among public candidates",
    "SelectSequence": "noisy choices among public candidates",
}
_OUTSIDE = (
    "Not protected, and taken for public: how many rows and columns there are, names, declared "
    "bounds, categories and labels, all settings, and how long the computation took. "
    "Not counted here: whatever else was looked at or published of the same records."
)
_SECRECY = {
    True: "The noise was drawn from a secret key.",
    False: "NOT PRIVATE against whoever knows or guesses the seed (random_state) that was given.",
    None: "Whether the noise was secret is not recorded.",
}

_NUMBER = {"type": "number"}
_OR_NULL: dict[str, Any] = {
    kind: {"type": [kind, "null"]} for kind in ("number", "integer", "string", "boolean")
}
_CLAIM = {
    "epsilon": _OR_NULL["number"],
    "delta": _NUMBER,
    "relation": {"enum": list(_AGAINST)},
    "rows_per_user": {"type": "integer"},
    "composition": {"type": "string"},
    "noise_is_secret": _OR_NULL["boolean"],
}
_RELEASE = {
    "name": {"type": "string"},
    "uses": {"type": "integer"},
    "mechanism": {"type": "string"},
    "sensitivity": _NUMBER,
    "scale": _NUMBER,
    "records": _OR_NULL["string"],
}
_CHARGE = {
    **_CLAIM,
    "what": _OR_NULL["string"],
    "label": _OR_NULL["string"],
    "n_samples": _OR_NULL["integer"],
    "n_features": _OR_NULL["integer"],
    "time": {"type": "string", "format": "date-time"},
    "part": {"type": "string"},
}
_BUDGET = {
    "epsilon": _NUMBER,
    "delta": _NUMBER,
    "relation": {"enum": list(_AGAINST)},
    "rows_per_user": {"type": "integer"},
    "spent": _NUMBER,
    "left": _NUMBER,
}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    required = list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _facts(claim: Any) -> dict[str, Any]:
    """What a guarantee or a charge claims, by the names of the schema."""
    facts, epsilon = {name: getattr(claim, name) for name in _CLAIM}, float(claim.epsilon)
    finite = epsilon if math.isfinite(epsilon) else None
    return facts | {"epsilon": finite, "delta": float(claim.delta)}


def odds(epsilon: float) -> float:
    """The largest probability that even odds can become."""
    return float(expit(epsilon))


def _up(x: float) -> float:
    """Rounded up to three digits, as what is said to be at most so much must be."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 2)
    return math.ceil(x / unit) * unit


def _words(epsilon: float, delta: float, relation: str, rows: int) -> list[str]:
    """Who is protected, against what, and how well."""
    one = "one record" if rows == 1 else f"one person, in all of their up to {rows} rows,"
    protected = "each row of the table" if rows == 1 else "each person"
    protected += " by itself" if rows == 1 else f" who has at most {rows} rows in it"
    factor = "any factor"
    if epsilon <= 700:
        factor = f"a factor of at most {_up(math.exp(epsilon)):.3g}"
    lines = [
        f"Protected is {protected}.",
        _AGAINST[relation].format(whom=one),
        f"Epsilon is {epsilon:.4g}: the odds of any guess about them change by {factor}. What was "
        f"as likely as not is then at most {_up(100 * odds(epsilon)):.3g} % likely.",
    ]
    if delta > 0:
        lines.append(f"Delta is {delta:.3g}: by so much, at most, a probability may exceed that.")
    return lines


@dataclass(frozen=True, eq=False, repr=False)
class Report(Overviewed):
    """One page on what is promised: ``print`` and notebooks show it, `to_json` has the facts.

    Made by `Guarantee.report` and `BudgetAccountant.report`. It holds public facts only.

    Attributes
    ----------
    facts : dict
        What `to_json` writes.
    """

    facts: dict[str, Any]
    _shown: Overview

    def overview(self) -> Overview:
        """The page."""
        return self._shown

    def to_json(self) -> str:
        """The facts as JSON, as `schema` describes it; the keys have one order."""
        return json.dumps(self.facts, indent=1, allow_nan=False)

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON schema of `to_json`.

        "epsilon" is null for infinity: nothing is private then. "guarantee" with its "releases" is
        of one fit, "budget" and "charges" of an accountant; the others are null or empty. "part" of
        a charge is "all records", or numbers a part of disjoint ones.
        """
        versions = _object(
            {name: {"type": "string"} for name in ("sklearn_dpsco", "numpy", "scikit-learn")}
        )
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **_object(
                {
                    "format": {"const": FORMAT},
                    "time": {"type": "string", "format": "date-time"},
                    "versions": versions,
                    "guarantee": {"anyOf": [_object(_CLAIM), {"type": "null"}]},
                    "releases": {"type": "array", "items": _object(_RELEASE)},
                    "budget": {"anyOf": [_object(_BUDGET), {"type": "null"}]},
                    "charges": {"type": "array", "items": _object(_CHARGE)},
                }
            ),
        }


def _report(title: str, lines: Sequence[str], table: Any, **facts: Any) -> Report:
    now, names = datetime.now(UTC), ("sklearn_dpsco", "numpy", "scikit-learn")
    versions = {name: version(name) for name in names}
    found = {"format": FORMAT, "time": now.isoformat(), "versions": versions}
    found |= {"guarantee": None, "releases": [], "budget": None, "charges": []} | facts
    stated = ", ".join(f"{name} {number}" for name, number in versions.items())
    columns, rows = table
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    layout = "".join(f"  {{:{width}s}}" for width in widths)
    head = (title, *lines, _OUTSIDE, f"Made on {now:%Y-%m-%d} by {stated}.")
    return Report(found, Overview(head, columns, layout, rows))


def of_guarantee(guarantee: Any, releases: Iterable[Sequence[Any]]) -> Report:
    """The report of one guarantee, with the facts of its releases in the schema's order."""
    lines = ["Epsilon is infinite: no noise was added, and nothing is private."]
    if not guarantee.is_void:
        size = float(guarantee.epsilon), float(guarantee.delta)
        words = _words(*size, guarantee.relation, guarantee.rows_per_user)
        lines = [*words, _SECRECY[guarantee.noise_is_secret]]
    named = [dict(zip(_RELEASE, facts, strict=True)) for facts in releases]
    rows = [
        (
            one["name"],
            f"{one['uses']} times" if one["uses"] > 1 else "once",
            "without noise" if guarantee.is_void else _KINDS.get(one["mechanism"], "with noise"),
        )
        for one in named
    ]
    table = ("what was computed of the records", "how often", "and left in this form"), rows
    facts = _facts(guarantee)
    return _report("Privacy of one result", lines, table, guarantee=facts, releases=named)


def of_accountant(
    claim: tuple[float, float, str, int], spent: float, left: float, charges: Iterable[Any]
) -> Report:
    """The report of a budget and its charges."""
    epsilon, delta, relation, rows_per_user = claim
    numbers: dict[tuple[str, ...], dict[str, int]] = {}
    found = []
    for charge in charges:
        what, part = _facts(charge), _part(charge.branch, numbers)
        what |= {"what": charge.estimator, "label": charge.label}
        what |= {"n_samples": charge.n_samples, "n_features": charge.n_features}
        found.append(what | {"time": charge.time.isoformat(), "part": part})
    lines = [
        *_words(*claim),
        f"That holds for all results together, if the whole budget is used. Up to now they cost an "
        f"epsilon of {spent:.4g}; one more result of epsilon {left:.4g} is allowed.",
    ]
    secrets = {charge["noise_is_secret"] for charge in found}
    lines += [_SECRECY[kind] for kind in (False, None, True) if kind in secrets][:1]
    rows = [
        (
            one["label"] or one["what"] or "a release",
            "of an unknown table"
            if one["n_samples"] is None
            else f"{one['n_samples']} rows, {one['n_features']} columns",
            f"epsilon {one['epsilon']:.4g}",
            one["part"],
            one["time"][:16].replace("T", " "),
            "SEED GIVEN" if one["noise_is_secret"] is False else "",
        )
        for one in found
    ]
    table = ("result", "table", "its own claim", "records", "time (UTC)", "noise"), rows
    budget = {"epsilon": epsilon, "delta": delta, "relation": relation}
    budget |= {"rows_per_user": rows_per_user, "spent": spent, "left": left}
    return _report("Privacy of all results of a budget", lines, table, budget=budget, charges=found)


def _part(branch: tuple[str, ...], numbers: dict[tuple[str, ...], dict[str, int]]) -> str:
    """The place of a charge in numbers: groups and branches are counted as they come."""
    names = []
    for k in range(0, len(branch), 2):
        groups = numbers.setdefault(branch[:k], {})
        group = groups.setdefault(branch[k], len(groups) + 1)
        parts = numbers.setdefault(branch[: k + 1], {})
        part = parts.setdefault(branch[k + 1], len(parts) + 1)
        unit = "persons" if branch[k].startswith("users-") else "records"
        names.append(f"part {part} of disjoint {unit}, division {group}")
    return ", in it ".join(names) or "all records"
