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

from .._checks import check_string, rounded
from .._overview import Overview, Overviewed

Claim = tuple[float, float, str, int]  # epsilon, delta, relation, rows of a person

FORMAT = "sklearn_dpsco.report/2"

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
_DECISION = "Decided by: ______________________________   Date: ______________"
_PAGE = (
    "body {font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em} "
    "div {margin: .5em 0}"
)
_STRING, _NUMBER, _INTEGER, _BOOLEAN = (
    {"type": kind} for kind in ("string", "number", "integer", "boolean")
)
_TIME = {"type": "string", "format": "date-time"}
_CLAIM: dict[str, Any] = {
    "epsilon": _NUMBER,
    "delta": _NUMBER,
    "relation": {"enum": list(_CHANGE)},
    "rows_per_user": _INTEGER,
    "composition": _STRING,
    "noise_is_secret": _BOOLEAN,
}
_RELEASE: dict[str, Any] = {
    "name": _STRING,
    "uses": _INTEGER,
    "mechanism": _STRING,
    "sensitivity": _NUMBER,
    "scale": _NUMBER,
    "records": _STRING,
    "part": _STRING,
}
_FITS: dict[str, Any] = {
    "n_fits": _INTEGER,
    "epsilon": _NUMBER,
    "delta": _NUMBER,
    "has_copies": _BOOLEAN,
    "noise_is_secret": _BOOLEAN,
}
_CHARGE: dict[str, Any] = {
    **_CLAIM,
    "what": _STRING,
    "label": _STRING,
    "n_samples": _INTEGER,
    "n_features": _INTEGER,
    "time": _TIME,
    "part": _STRING,
}
_BUDGET: dict[str, Any] = {
    **{name: _CLAIM[name] for name in ("epsilon", "delta", "relation", "rows_per_user")},
    "spent": _NUMBER,
    "left": _NUMBER,
}


def _object(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _told(facts: Any) -> Any:
    """Facts without what has no value."""
    if isinstance(facts, dict):
        return {name: _told(of) for name, of in facts.items() if of is not None and of != []}
    return [_told(of) for of in facts] if isinstance(facts, list) else facts


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
    near = rounded(x, 3)
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
    """The same for someone without mathematics, each word with what it means."""
    whom, most, runs = "row" if rows == 1 else "person", odds(epsilon), 1000
    factor = up(math.exp(epsilon)) if epsilon <= 700 else f"e^{epsilon:g}"
    often = factor if epsilon < math.log(runs) else f"{runs:,}"
    hidden, guess, more = (text.format(whom=whom, most=up(100 * most)) for text in _GUESS[relation])
    guess = f"So one can hardly tell {hidden}: {guess}" if epsilon <= _HARDLY else guess
    guess += f", odds of {factor} to 1 in place of 1 to 1"
    guess += ", which is close to certainty" if most >= _CERTAIN else ""
    one_in = f", at most one in {math.floor(1 / delta):,}" if 1e-9 <= delta <= 0.5 else ""
    lines = [
        f"The factor says how much likelier: what comes out once in {runs:,} runs with the values "
        f"comes out at most {often} times in {runs:,} runs if they are {_CHANGE[relation]}, and "
        "the other way round.",
        f"{guess[0].upper()}{guess[1:]}{more}",
        f"Epsilon, the number that states how strong the protection is, is {epsilon:.4g}: the "
        "smaller it is, the less can be told. At 0 the odds stay 1 to 1; each 0.7 more about "
        "doubles them.",
        f"Delta, a {'small ' if delta <= 1e-3 else ''}chance that the promise fails, is {up(delta)}"
        f"{one_in}. Up to so often, the result may tell anything; else, what is said above holds."
        if delta > 0
        else "Delta, a chance that the promise fails, is 0: it holds without exception.",
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

    The data state the version of their schema: "format" is "sklearn_dpsco.report/2", also at the
    end of the schema's ``$id``. Of one version, no key changes its name, type, place or meaning:
    what reads it can rely on that, and refuse another one. A key without a value is left out.

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
        Without "epsilon", it is infinite: nothing is private then. "guarantee" with its "releases"
        and `Guarantee.fits` is of one fit, "budget" and "charges" are of an accountant, whose
        ledger keeps what fits cost, and not what they released. "part" of a charge is "all
        records", or names a branch on records of its own; of a release, the part of a search.
        """
        versions = dict.fromkeys(("sklearn_dpsco", "numpy", "scikit-learn"), _STRING)
        optional = {
            "dataset": _STRING,
            "purpose": _STRING,
            "guarantee": _object(_CLAIM, "epsilon", "noise_is_secret"),
            "fits": _object(_FITS, "epsilon"),
            "releases": {"type": "array", "items": _object(_RELEASE, "records", "part")},
            "budget": _object(_BUDGET),
            "charges": {
                "type": "array",
                "items": _object(
                    _CHARGE, "noise_is_secret", "what", "label", "n_samples", "n_features"
                ),
            },
        }
        properties = {
            "format": {"const": FORMAT},
            "time": _TIME,
            "versions": _object(versions),
            "promise": _STRING,
            "outside": {"type": "array", "items": _STRING},
        }
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:{FORMAT.replace('/', ':')}",
            **_object(properties | optional, *optional),
        }


def _secrecy(kinds: set[bool | None]) -> list[str]:
    """A line on the noise, unless the promise says it; `kinds` is empty before the first result."""
    if None in kinds:
        return ["Whether all noise was secret is not recorded."]
    if kinds != {True}:
        return []
    return [
        "The noise, random numbers that hide what a single row adds, was drawn from a secret key."
    ]


def _report(
    title: str,
    what: str,
    lines: Sequence[str],
    table: Any,
    named: dict[str, str | None],
    **facts: Any,
) -> Report:
    """The page: what is `named`, `lines`, the promise first, and a table; and the data."""
    for name, text in named.items():
        if text is not None:
            check_string(name, text)
    now, names = datetime.now(UTC), ("sklearn_dpsco", "numpy", "scikit-learn")
    versions = {name: version(name) for name in names}
    outside = [text.format(what) for text in _OUTSIDE]
    found: dict[str, Any] = {"format": FORMAT, "time": now.isoformat(), "versions": versions}
    found |= {"promise": lines[0], "outside": outside, **named, **facts}
    stated = ", ".join(f"{name} {number}" for name, number in versions.items())
    columns, rows = table
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    layout = "".join(f"  {{:{width}s}}" for width in widths)
    told = [f"{name.capitalize()}: {text}" for name, text in named.items() if text is not None]
    made = f"Made on {now:%Y-%m-%d} by {stated}."
    listed = [f"- {text}" for text in outside]
    head = (title, *told, *lines, "Not protected:", *listed, made, _DECISION)
    return Report(_told(found), Overview(head, columns, layout, rows))


def of_guarantee(guarantee: Any, releases: Iterable[Sequence[Any]], **named: Any) -> Report:
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
    found = [dict(zip(_RELEASE, facts, strict=True)) for facts in releases]
    rows = [
        (
            ": ".join(filter(None, (one["part"], one["name"]))),
            f"{one['uses']} times" if one["uses"] > 1 else "once",
            "without noise" if guarantee.is_void else _KINDS.get(one["mechanism"], "with noise"),
        )
        for one in found
    ]
    table = ("what was computed of the records", "how often", "and left in this form"), rows
    facts = {"guarantee": _facts(guarantee), "fits": guarantee.fits and guarantee.fits.facts}
    return _report("Privacy of one result", "result", lines, table, named, **facts, releases=found)


def of_accountant(
    claim: Claim, spent: float, left: float, charges: Any, names: Any, **named: Any
) -> Report:
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
        "The budget, this epsilon and delta, is the most that all results in the ledger, the list "
        "of them in the table below, may cost together; what is said above holds if all of it is "
        f"used. Up to now they cost an epsilon of {spent:.4g}; "
        + (f"one more of epsilon {left:.4g} is allowed." if left > 0 else "nothing is left of it."),
        "Results that were made outside of this ledger, also in notebooks that were closed, are "
        "not counted.",
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
    return _report(title, "ledger", lines, table, named, budget=budget, charges=found)
