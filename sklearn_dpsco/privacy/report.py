"""What a guarantee promises, in words for someone without mathematics, and as data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Any

from scipy.special import expit

from .._overview import Overview, Overviewed

Claim = tuple[float, float, str, int]  # epsilon, delta, relation, rows of a person

FORMAT = "sklearn_dpsco.report/1"

_CHANGE = {"replace-one": "replaced by any others", "zero-out": "left out"}
_HARDLY = 1.0  # epsilon up to which a guess can hardly be told from any other
_CERTAIN = 0.99
_GUESS = {
    "replace-one": (
        "which values the {whom} had",
        "who held two possibilities for the {whom}'s values for equally likely may, having seen "
        "the result, hold one of them for {most} % likely at most",
        ".",
    ),
    "zero-out": (
        "whether the values of the {whom} were used at all",
        "who held it for as likely as not that the {whom}'s values were used may, having seen the "
        "result, hold it for {most} % likely at most",
        ". How many rows there are is public.",
    ),
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
    "how many rows and columns there are, and the names of the columns",
    "declared bounds, categories and classes, and all other settings: nobody may choose them by "
    "looking at the records",
    "how long the computation took, and how much memory it needed",
    "errors: a fit may stop at invalid input, such as a missing number, and so tell of it",
    "anything, from whoever knows the seed (random_state), if one was given: the number from which "
    "the noise can be computed once more, and taken off",
    "whatever else was looked at, computed or published of the same records, outside of this {}",
)
_PAGE = (
    "body {font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em} "
    "div {margin: .5em 0}"
)
_NUMBER = {"type": "number"}
_OR_NULL: dict[str, Any] = {
    kind: {"type": [kind, "null"]} for kind in ("number", "integer", "string", "boolean")
}
_CLAIM = {
    "epsilon": _OR_NULL["number"],
    "delta": _NUMBER,
    "relation": {"enum": list(_CHANGE)},
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
    "part": _OR_NULL["string"],
}
_FITS = {
    "n_fits": {"type": "integer"},
    "epsilon": _OR_NULL["number"],
    "delta": _NUMBER,
    "has_copies": {"type": "boolean"},
    "noise_is_secret": {"type": "boolean"},
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
    "relation": {"enum": list(_CHANGE)},
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


def up(x: float) -> str:
    """Rounded up to three digits, as what is said to be at most so much must be."""
    near = float(f"{x:.3g}")
    near += 0.0 if near >= x else 10.0 ** (math.floor(math.log10(x)) - 2)
    return f"{near:,.0f}" if 100 <= near < 1e6 else f"{near:.3g}"


def promise(
    epsilon: float, delta: float, relation: str, rows: int, noise_is_secret: bool | None = True
) -> str:
    """The first sentence of reports and prints: who is protected, against whom, at what odds."""
    if math.isinf(epsilon):
        return "epsilon = inf: no noise, and nothing is private"
    who = "each row of the table by itself" if rows == 1 else f"each person (up to {rows} rows)"
    factor = up(math.exp(epsilon)) if epsilon <= 700 else f"e^{epsilon:g}"
    slack = f", plus {up(delta)}," if delta > 0 else ""
    text = (
        f"Protected is {who}, against whoever sees the result and may know all other rows: the "
        f"chance of any outcome changes by a factor of at most {factor}{slack} if the "
        f"{'row' if rows == 1 else 'person'}'s values are {_CHANGE[relation]}."
    )
    if noise_is_secret is not False:
        return text
    seed = "NOT PRIVATE against whoever knows or guesses the seed (random_state) that was given."
    return f"{seed} For all others, p{text[1:]}"


def _explained(epsilon: float, delta: float, relation: str, rows: int) -> list[str]:
    """The same for someone without mathematics."""
    whom, most, runs = "row" if rows == 1 else "person", odds(epsilon), 1000
    often = up(math.exp(epsilon)) if epsilon < math.log(runs) else f"{runs:,}"
    hidden, guess, more = (text.format(whom=whom, most=up(100 * most)) for text in _GUESS[relation])
    guess = f"So one can hardly tell {hidden}: {guess}" if epsilon <= _HARDLY else guess
    guess += ", which is close to certainty" if most >= _CERTAIN else ""
    lines = [
        f"A factor: what comes out once in {runs:,} runs with the values comes out at most {often} "
        f"times in {runs:,} runs if they are {_CHANGE[relation]}, and the other way round.",
        f"{guess[0].upper()}{guess[1:]}{more}",
        f"Epsilon is {epsilon:.4g}: the smaller it is, the less can be told. At 0 the factor is 1, "
        "and nothing can be told; each 0.7 more about doubles the factor.",
        f"Delta is {up(delta)}: a {'small ' if delta <= 1e-3 else ''}chance that the promise "
        f"fails. Up to so often, the result may tell anything; else, what is said above holds."
        if delta > 0
        else "Delta is 0: the factor holds without exception.",
    ]
    if rows == 1:
        lines.append(
            "A row need not be a person: if a person has several rows, this protects one of them, "
            "and not all of them together."
        )
    return lines


@dataclass(frozen=True, eq=False, repr=False)
class Report(Overviewed):
    """One page on what is promised: ``print`` and notebooks show it, `to_html` and `to_json`
    write it and the facts.

    Made by `Guarantee.report` and `BudgetAccountant.report`. It holds public facts only.

    The data state the version of their schema: "format" is "sklearn_dpsco.report/1", also at the
    end of the schema's ``$id``. Of one version, no key changes its name, type or meaning, and
    none comes or goes: what reads it can rely on that, and refuse another one.

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

    def to_html(self) -> str:
        """The page as a file of its own, for any browser.

        Returns
        -------
        str
            All of it ASCII, so that any encoding of the file is right.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> from sklearn_dpsco import BudgetAccountant
        >>> page = BudgetAccountant(epsilon=1.0).report().to_html()
        >>> page.startswith("<!DOCTYPE html>"), "Protected is each row" in page
        (True, True)
        >>> Path(mkdtemp(), "report.html").write_text(page) == len(page)
        True
        """
        title, body = escape(self._shown.lines[0]), self._shown.html()
        page = (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"<title>{title}</title>\n<style>{_PAGE}</style>\n</head>\n"
            f"<body>\n{body}\n</body>\n</html>\n"
        )
        return page.encode("ascii", "xmlcharrefreplace").decode()

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON schema of `to_json`.

        "promise" is the first sentence of the page, "outside" lists what is not protected.
        "epsilon" is null for infinity: nothing is private then. "guarantee" with its "releases"
        and `Guarantee.fits` is of one fit, "budget" and "charges" of an accountant; the others are
        null or empty: "releases" of an accountant are, since its ledger keeps what fits cost, and
        not what they released. "part" of a charge is "all records", or names a branch on records
        of its own; of a release, the part of a search.
        """
        versions = _object(
            {name: {"type": "string"} for name in ("sklearn_dpsco", "numpy", "scikit-learn")}
        )
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:{FORMAT.replace('/', ':')}",
            **_object(
                {
                    "format": {"const": FORMAT},
                    "time": {"type": "string", "format": "date-time"},
                    "versions": versions,
                    "promise": {"type": "string"},
                    "outside": {"type": "array", "items": {"type": "string"}},
                    "guarantee": {"anyOf": [_object(_CLAIM), {"type": "null"}]},
                    "fits": {"anyOf": [_object(_FITS), {"type": "null"}]},
                    "releases": {"type": "array", "items": _object(_RELEASE)},
                    "budget": {"anyOf": [_object(_BUDGET), {"type": "null"}]},
                    "charges": {"type": "array", "items": _object(_CHARGE)},
                }
            ),
        }


def _secrecy(kinds: set[bool | None]) -> list[str]:
    """A line on the noise, unless the promise says it; `kinds` is empty before the first result."""
    if None in kinds:
        return ["Whether all noise was secret is not recorded."]
    return ["The noise was drawn from a secret key."] if kinds == {True} else []


def _report(title: str, what: str, lines: Sequence[str], table: Any, **facts: Any) -> Report:
    """The page: `lines`, the promise first, and a table; and the data."""
    now, names = datetime.now(UTC), ("sklearn_dpsco", "numpy", "scikit-learn")
    versions = {name: version(name) for name in names}
    outside = [text.format(what) for text in _OUTSIDE]
    found: dict[str, Any] = {"format": FORMAT, "time": now.isoformat(), "versions": versions}
    found |= {"promise": lines[0], "outside": outside}
    found |= {"guarantee": None, "fits": None, "releases": [], "budget": None}
    found |= {"charges": []} | facts
    stated = ", ".join(f"{name} {number}" for name, number in versions.items())
    columns, rows = table
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    layout = "".join(f"  {{:{width}s}}" for width in widths)
    listed = [f"- {text}" for text in outside]
    head = (title, *lines, "Not protected:", *listed, f"Made on {now:%Y-%m-%d} by {stated}.")
    return Report(found, Overview(head, columns, layout, rows))


def of_guarantee(guarantee: Any, releases: Iterable[Sequence[Any]]) -> Report:
    """The report of one guarantee, with the facts of its releases in the schema's order."""
    size = float(guarantee.epsilon), float(guarantee.delta)
    claim = *size, guarantee.relation, guarantee.rows_per_user
    lines = [promise(*claim, guarantee.noise_is_secret)]
    if not guarantee.is_void:
        lines += [*_explained(*claim), *_secrecy({guarantee.noise_is_secret})]
    lines += guarantee.fits.lines if guarantee.fits else []
    if n := len(guarantee.parts):
        lines.append(
            f"The records were used in {n} parts, one after the other, as the table lists them. "
            "What is promised holds for what comes out of all parts together."
        )
    named = [dict(zip(_RELEASE, facts, strict=True)) for facts in releases]
    rows = [
        (
            ": ".join(filter(None, (one["part"], one["name"]))),
            f"{one['uses']} times" if one["uses"] > 1 else "once",
            "without noise" if guarantee.is_void else _KINDS.get(one["mechanism"], "with noise"),
        )
        for one in named
    ]
    table = ("what was computed of the records", "how often", "and left in this form"), rows
    facts = {"guarantee": _facts(guarantee), "releases": named}
    facts["fits"] = guarantee.fits and guarantee.fits.facts
    return _report("Privacy of one result", "result", lines, table, **facts)


def of_accountant(claim: Claim, spent: float, left: float, charges: Any, names: Any) -> Report:
    """The report of a budget and its charges, whose branches have these names."""
    epsilon, delta, relation, rows_per_user = claim
    found = []
    for charge, name in zip(charges, names, strict=True):
        what, part = _facts(charge), name
        if charge.branch:
            whose = "persons" if charge.branch[-2].startswith("users-") else "records"
            part = f"{whose} of their own: {name}"
        what |= {"what": charge.estimator, "label": charge.label}
        what |= {"n_samples": charge.n_samples, "n_features": charge.n_features}
        found.append(what | {"time": charge.time.isoformat(), "part": part})
    secrets = {charge["noise_is_secret"] for charge in found}
    lines = [
        promise(*claim, False not in secrets),
        *_explained(*claim),
        "The budget is the most that all results in this ledger, the table below, may cost "
        "together; what is said above holds if all of it is used. Up to now they cost an "
        f"epsilon of {spent:.4g}; "
        + (f"one more of epsilon {left:.4g} is allowed." if left > 0 else "nothing is left of it."),
        "Fits that were made outside of this ledger, also in notebooks that were closed, are not "
        "counted.",
    ]
    lines += _secrecy(secrets)
    if any(charge.branch for charge in charges):
        lines.append(
            "A branch is a part of the ledger for records (or persons) of its own. Branches of a "
            "group were declared to have none in common, which nothing checks: of such branches "
            "the costliest counts."
        )
    rows = [
        (
            one["label"] or one["what"] or "a release",
            ", ".join(
                f"{one[size]} {what}"
                for size, what in (("n_samples", "rows"), ("n_features", "columns"))
                if one[size] is not None
            )
            or "of an unknown table",
            f"epsilon {one['epsilon']:.4g}",
            one["part"],
            one["time"][:16].replace("T", " "),
            {True: "secret", False: "SEED GIVEN", None: "not recorded"}[one["noise_is_secret"]],
        )
        for one in found
    ]
    table = ("result", "table", "its own claim", "records", "time (UTC)", "noise"), rows
    budget = {"epsilon": epsilon, "delta": delta, "relation": relation}
    budget |= {"rows_per_user": rows_per_user, "spent": spent, "left": left}
    title = "Privacy of all results of a budget"
    return _report(title, "ledger", lines, table, budget=budget, charges=found)
