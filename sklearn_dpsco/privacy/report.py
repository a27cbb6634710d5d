"""What a guarantee promises, in words for someone without mathematics, and as data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_DOWN
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from scipy.special import expit

from .._checks import check_string, rounded, stated, telling
from .._overview import Overview, Overviewed
from .budget import LONGEST_STREAM, size_epsilon

_CHANGE = {
    "replace-one": "had the {whom} held other values",
    "zero-out": "had the {whom}'s values been left out",
}
_CERTAIN = 0.99
_ABOUT = {
    "replace-one": "the {whom}'s values",
    "zero-out": "whether the {whom}'s values were used at all",
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
    "the settings, such as the lowest and the highest value that is allowed in a column, the "
    "categories and the classes",
    "errors: a computation may stop at an entry such as a missing number, and so show that there "
    "is one",
    "computing time and memory, against whoever can watch the computer",
    "anything else that was computed or published from the same data, outside of this {}",
    "what is true of people in general: who guesses a person's values by a model that was "
    "published may be right, and surer than the limits say, whether the person is in the data or "
    "not",
)
_PERSONS = "how many persons there are, and which rows are of the same person"
_SEED = (
    "anything, against who knows a seed (random_state){}, the number from which the noise can be "
    "computed once more, and taken off; or who sees two results of one seed, which have the same "
    "noise: their difference may have none"
)
_DIGITS = (
    "anything, against who sees all digits of a result whose noise was drawn in floating point "
    "(precision='float'){}: the last ones can tell what the noise was added to"
)
_SETTINGS = (
    "- [ ] All settings are in an annex, as model.get_params() lists them, and were chosen without "
    "a look at the data. (If not, no limit on this page is certain.)"
)
_NOTHING_ELSE = (
    "- [ ] Nothing else was computed from the data, or will be, outside of this {}: nobody has a "
    "new budget for them. (If not, more can be revealed than these limits say.)"
)
_ONE_ROW = (
    "- [ ] No person has more than one row{}. Checked how: ____________ (If not, the limits for "
    "several rows hold.)"
)
_ONE_PERSON = (
    "- [ ] Nobody is counted as two persons: the numbers that say whose rows are whose are right. "
    "Checked how: ____________ (If not, the limits do not hold for those who are.)"
)
_MOST_ROWS = (
    "- [ ] Nobody has more than {} rows{}. Checked how: ____________ (If not, the limits do not "
    "hold for those who have.)"
)
# What kinds of results are, by a part of the name of what made them; others are models.
_RESULTS = {
    "score": "a score says how well a model does",
    "Search": "a search (DPGridSearchCV) tries settings of a model and makes one with the best",
    "PrivateVocabulary": "a vocabulary is a list of words that many of the texts have",
    "DPScaler": "a scaler says how long the columns are",
    "private bounds": "private bounds say where the values of each column lie",
    "PrivateMoments": "PrivateMoments are means of columns and how these go together",
    " mean": "a mean is of each column",
}
_MODEL = "A model is a formula, with a number for each column, that predicts"
_SIGNED = "Name: ______________________________   Date: ______________"
_SCHEMA = files(__package__).joinpath("report.schema.json").read_text(encoding="utf-8")
_PARTS = json.loads(_SCHEMA)["properties"]
FORMAT = _PARTS["format"]["const"]
_CLAIM, _FITS, _BUDGET = (_PARTS[part]["properties"] for part in ("guarantee", "fits", "budget"))
_RELEASE = _PARTS["releases"]["items"]["properties"]


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


def up(x: float) -> str:
    """Rounded up to three digits, as what is said to be at most so much must be."""
    near = rounded(x, 3)
    return f"{near:,.0f}" if 100 <= near < 1e12 else f"{near:.3g}"


def _decimal(delta: float) -> str:
    """The same without an exponent, unless there would be too many zeros."""
    digits = 2 - math.floor(math.log10(delta))
    near = f"{rounded(delta, 3):.{digits}f}".rstrip("0")
    return near if 1e-9 <= delta < 1 else up(delta)


def _and_delta(n_steps: int, epsilon: float, delta: float) -> str:
    """That of a change by so many steps, each of which keeps epsilon and delta."""
    is_large = n_steps * epsilon > 700
    grown = 1.0 if is_large else delta * sum(math.exp(k * epsilon) for k in range(n_steps))
    return f", and delta {_decimal(min(grown, 1.0))}" if delta > 0 else ""


def _factor(epsilon: float) -> str:
    return up(math.exp(epsilon)) if epsilon <= 700 else f"e^{stated(epsilon)}"


def _percent(epsilon: float, before: float = 0.5) -> str:
    """What a probability can become, at most; near 100% in as many digits as tell it from that."""
    log_odds = epsilon + math.log(before / (1 - before))
    rest = 100 * float(expit(-log_odds))
    if 1e-6 < rest < 0.1:
        digits = -math.floor(math.log10(rest))
        return f"{100 - math.floor(rest * 10**digits) / 10**digits:.{digits}f}%"
    return f"{up(100 * float(expit(log_odds)))}%"


def promise(claim: Any, is_secret: bool, is_exact: bool, *, is_ledger: bool = False) -> str:
    """The first sentence of reports and prints: who is protected, against whom, at what odds.

    The claim is a guarantee, of one result: what others of the same data tell is outside of it. Or
    it is the budget of a ledger, of all results together. The flags are of their noise.
    """
    epsilon, delta, rows = claim.epsilon, claim.delta, claim.rows_per_user
    if math.isinf(epsilon):
        return "epsilon = inf: no noise, and nothing is private"
    who, whom = ("any single row", "row") if rows == 1 else ("any person", "person")
    slack = f", give or take a probability of {_decimal(delta)} (delta)" if delta > 0 else ""
    factor = _factor(epsilon)
    seen, any_result = "the result", "any result"
    if is_ledger:
        seen, any_result = "all results", "the same results (all together, whatever they are)"
    text = (
        f"Protected are the values of {who}{f' (up to {rows} rows)' if rows > 1 else ''}, against "
        f"whoever sees {seen} and may know everything about all others: "
        f"{_CHANGE[claim.relation].format(whom=whom)}, {any_result} would have been at most "
        f"{factor} times as likely, and at least 1/{factor} as likely{slack}."
    )
    others = []
    if not is_secret:
        seed = "knows or guesses the seed (random_state) that was given, or sees another result"
        others.append(f"{seed} of it, with the same noise")
    if not is_exact:
        others.append("sees the last digits, which noise of precision='float' leaves open")
    if not others:
        return text
    return f"NOT PRIVATE against whoever {', or '.join(others)}. For all others, p{text[1:]}"


def _sure(epsilon: float) -> str:
    """What guesses can become, at most."""
    even, rare = _percent(epsilon), _percent(epsilon, 0.01)
    certain = ", which is close to certainty" if expit(epsilon) >= _CERTAIN else ""
    even = f"who was 50% sure can become at most {even} sure{certain}"
    return f"{even}, and who was 1% sure at most {rare} sure"


def _explained(claim: Any, spent: float | None = None, has_branches: bool = False) -> list[str]:
    """The same for someone without mathematics, each word with what it means.

    `spent` is the epsilon of the results so far, of a budget that has any.
    """
    epsilon, delta, relation = claim.epsilon, claim.delta, claim.relation
    whom = "row" if claim.rows_per_user == 1 else "person"
    rare = ", apart from rare results (delta, below)" if delta > 0 else ""
    about = _ABOUT[relation].format(whom=whom)
    lines = [f"What someone who knows all others can find out at most about {about}{rare}:"]
    if spent is None or _sure(spent) == _sure(epsilon):  # one of roundings at most is left
        spent = None
        lines.append(f"- {_sure(epsilon)}")
    else:
        lines += [
            f"- from the results below alone, {_sure(spent)}: rely on this only if it was settled "
            "before the first one which ones would be computed, and with which epsilon each",
            f"- from all that the budget allows, now and later, {_sure(epsilon)}",
        ]
    if relation == "zero-out":
        lines.append(
            f"Which of two possible values the {whom} had is protected less: 50% can become at "
            f"most {_percent(2 * epsilon)}{_and_delta(2, epsilon, delta)}."
        )
    if claim.rows_per_user == 1:
        sizes = {epsilon: ""} if spent is None else {spent: " (below alone)", epsilon: " (all)"}
        two, five = (
            " and ".join(f"{_percent(k * size)}{of}" for size, of in sizes.items()) for k in (2, 5)
        )
        deltas = [_and_delta(k, epsilon, delta) for k in (2, 5)]
        in_one = ", and with rows in one branch of a group alone" * has_branches
        or_branches = ", or in two branches of one group" * has_branches
        lines.append(
            f"These limits are for a person with one row per result{in_one}. With two rows in a "
            f"result{or_branches}, 50% can become {two}{deltas[0]}; with five {five}{deltas[1]}."
        )
    one_in = f"at most one in {math.floor(1 / delta):,}" if 1e-9 <= delta <= 0.5 else up(delta)
    same = "; whether a certain person is among them is protected to the same limits"
    factor = _factor(epsilon)
    lines += [
        f"How many rows there are is public{same if relation == 'replace-one' else ''}.",
        f"Epsilon is {stated(epsilon, 4)}, which says the same as the {factor} times above: at "
        "epsilon 0 that number is 1, and each 0.7 more about doubles it. What others accepted does "
        "not say what is safe. Published uses took from about 1 (page views of Wikimedia) to 34.9 "
        "a month (queries of advertisers at LinkedIn), and some of these are for what a person "
        "does in one day, and not for all that is known of the person.",
        f"Delta is {_decimal(delta)}, {one_in}. Rare results can tell more than these limits say: "
        "whichever results one looks for, the probability that one of them comes out can be larger "
        f"by this much than the {factor} times above allow, for each {whom}."
        if delta > 0
        else "Delta, what rare results can add to a probability, is 0: there is no exception.",
    ]
    return lines


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
            epsilon = min(epsilon, size_epsilon("zcdp", rho, self.delta - slack))
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


@telling({"to_text": "see str()", "save": "write what str(), to_html() or to_json() give"})
@dataclass(frozen=True, eq=False, repr=False)
class Report(Overviewed):
    """A page on what is promised: ``print`` and notebooks show it, `to_html` and `to_json`
    write it and the facts.

    Made by `Guarantee.report` and `BudgetAccountant.report`. It holds public facts only.

    The data state the version of their schema: "format" is "sklearn_dpsco.report/2", also at the
    end of the schema's ``$id``. Of one version, no key changes its name, type, place or meaning:
    what reads it can rely on that, and refuse another one. A key without a value is left out.

    Attributes
    ----------
    facts : dict
        What `to_json` writes.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from sklearn_dpsco import BudgetAccountant
    >>> page = BudgetAccountant(epsilon=1.0).report().to_html()
    >>> page.startswith("<!DOCTYPE html>"), "Protected are the values" in page
    (True, True)
    >>> Path(mkdtemp(), "report.html").write_text(page) == len(page)
    True
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

        "promise" is the first sentence of the page, "outside" lists what is not protected.
        Without "epsilon", it is infinite: nothing is private then. "guarantee" with its "releases"
        and `Guarantee.fits` is of one fit, "budget" and "charges" are of an accountant, whose
        ledger keeps what fits cost, and not what they released. "part" of a charge is "all
        records", or names a branch on records of its own; of a release, the part of a search.
        """
        return json.loads(_SCHEMA)


def _report(
    what: str, claim: Any, results: Sequence[Any], page: Any, table: Any, named: Any, **facts: Any
) -> Report:
    """The page, and the data.

    `page` has its lines below the promise, what is to be confirmed and what to be decided; the
    `results` say whether noise was secret and exact, and whether fits knew whose rows are whose.
    """
    secrets = {one.noise_is_secret and math.isfinite(one.epsilon) for one in results}
    had_groups = {one.has_groups for one in results}
    exact = {one.noise_is_exact for one in results}
    is_ledger, is_row = what == "ledger", claim.rows_per_user == 1
    first = promise(claim, False not in secrets, False not in exact, is_ledger=is_ledger)
    lines, confirmed, decided = page
    of_each = " in what any one result is made from" if is_ledger else ""
    of_rows = [_ONE_ROW.format(of_each)]
    if not is_row:
        of_rows = [_MOST_ROWS.format(claim.rows_per_user, of_each)] * (had_groups != {True})
        of_rows += [_ONE_PERSON] * (True in had_groups)
    of_what = "the published results" if is_ledger else "one published result"
    title = f"What {of_what} can reveal about one {'of the rows' if is_row else 'person'}"
    whose = "what a single row contributes" if is_row else "what the rows of one person contribute"
    if None in secrets:
        lines = ["Whether all noise was secret is not recorded.", *lines]
    elif secrets == {True}:
        noise = (
            f"Random noise hides {whose}. It was drawn with a secret key that is "
            "kept nowhere, so that nobody can take it off."
        )
        lines = [noise, *lines]
    about = [f"{k.capitalize()}: {check_string(k, s)}" for k, s in named.items() if s is not None]
    now = datetime.now(UTC)
    versions = {name: version(name) for name in _PARTS["versions"]["properties"]}
    given = " that was given" if False in secrets else ", if one was given"
    outside = [_PERSONS] * (not is_row) + [_SEED.format(given)] * (secrets != {True})
    if exact - {True}:
        outside.append(_DIGITS.format("" if False in exact else ", if one was: it is not recorded"))
    outside += [text.format(what) for text in _OUTSIDE]
    found: dict[str, Any] = {"format": FORMAT, "time": now.isoformat(), "versions": versions}
    found |= {"promise": first, "outside": outside, **named, **facts}
    stated = ", ".join(f"{name} {number}" for name, number in versions.items())
    columns, rows = table
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    layout = "".join(f"  {{:{width}s}}" for width in widths)
    made = f"Made on {now:%Y-%m-%d} by {stated}."
    confirmed = [_SETTINGS, *of_rows, *confirmed, _NOTHING_ELSE.format(what)]
    head = (title, *about, first, *lines, "Not protected:", *(f"- {text}" for text in outside))
    head += ("Confirmed by the person who worked with the data:", *confirmed, _SIGNED)
    head += ("Decided by the person who is responsible for the data:", *decided, _SIGNED, made)
    return Report(_told(found), Overview(head, columns, layout, rows))


def of_guarantee(guarantee: Any, releases: Iterable[Sequence[Any]], **named: Any) -> Report:
    """The report of one guarantee, with the facts of its releases in the schema's order."""
    lines = [] if guarantee.is_void else _explained(guarantee)
    lines += guarantee.fits.lines if guarantee.fits else []
    if n := len(guarantee.parts):
        lines.append(
            f"The data were used in {n} parts, one after the other, as the table lists them. The "
            "limits hold for what comes out of all parts together."
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
    table = ("what was computed from the data", "how often", "and left in this form"), rows
    fits = guarantee.fits and {name: getattr(guarantee.fits, name) for name in _FITS}
    facts: Any = {"guarantee": _facts(guarantee), "fits": fits, "releases": found}
    page: Any = lines, [], ["- [ ] This result may be published."]
    return _report("result", guarantee, [guarantee], page, table, named, **facts)


def _of_budget(
    epsilon: float, spent: float, left: float, charges: Sequence[Any], has_branches: bool
) -> tuple[list[str], list[str], list[str]]:
    """What is said of a budget, what is to be confirmed, and what to be decided."""
    alone, makers = [float(c.epsilon) for c in charges], [c.estimator or "" for c in charges]
    kinds = [text for part, text in _RESULTS.items() if any(part in name for name in makers)]
    open_rows = "those in no branch yet, if there are any, and those of a branch with budget left"
    in_branches = f". From some rows alone it can: {open_rows}" if has_branches else ""
    # roundings leave a little of a budget of which all was asked for
    is_left, lines, confirmed = left > epsilon / 100, [], []
    decided = [f"- Epsilon {stated(epsilon, 4)} was chosen by ____________ because ____________"]
    if alone:
        less = max(sum(alone) - spent, spent + left - epsilon if is_left else 0.0)
        lines += [
            f"Of the allowed epsilon of {stated(epsilon, 4)}, {stated(spent, 4)} is used, and "
            + (
                f"one more result of {stated(left, 4, ROUND_DOWN)}, or several smaller ones, "
                "would stay within the budget"
                if is_left
                else f"nothing more can be computed from all rows within the budget{in_branches}"
            )
            + "."
            + " Do not add up the limits of single results in the table: together, they tell less "
            "than the sum of what each can alone." * (less > epsilon / 1000),
            f"The ledger is the list of results below. {'; '.join([_MODEL, *kinds])}. Several "
            "results may be made from the same rows.",
        ]
        confirmed.append(
            "- [ ] Before the first result it was settled which ones would be computed, and with "
            "which epsilon each. (If not, only the limits of the whole budget are certain.)"
        )
        decided.append("- [ ] The results below may be published.")
    if is_left or has_branches:
        only = " If not, people must see to it: the software enforces only the budget."
        of_what = "the data" if is_left else f"some rows ({open_rows})"
        decided.append(
            f"- [ ] More may be computed from {of_what} until the budget is used (50% can become "
            f"{_percent(epsilon)}).{only if alone else ''}"
        )
    return lines, confirmed, decided


def _of_parts(charges: Sequence[Any], rows_per_user: int) -> tuple[list[str], list[str]]:
    """What is said of results from some rows, or by persons, and what is to be confirmed."""
    lines, confirmed, depths = [], [], {len(charge.branch) for charge in charges} - {0}
    if depths:
        lines.append(
            "Some results are made from a part of the rows (or persons) alone, which is called a "
            "branch. Branches that share no row (or person) form a group: a row tells something "
            "through one of them alone, so of a group only the costliest branch counts. For "
            "example, if one has epsilon 1 and another one 2, for each row 2 counts and not 3. "
            "What so counts for one group, for the next one, and for results from all rows is "
            "added up."
            + " A branch after the sign > is a part of the branch before it, for some of its rows: "
            "such parts form groups, too." * (max(depths) > 2)
        )
        limits = "the limits for several rows hold" if rows_per_user == 1 else "no limit is sure"
        confirmed.append(
            "- [ ] The branches of a group have no row and no person in common, and which of them "
            f"a row is in was settled without a look at its values. (If not, {limits}.)"
        )
    most = max((charge.rows_per_user for charge in charges), default=1)
    if rows_per_user < most:
        whom = "a single row" if rows_per_user == 1 else f"persons of up to {rows_per_user} rows"
        lines.append(
            f"Some results protect persons of up to {most} rows, and this page speaks of {whom}: a "
            f"BudgetAccountant with max_rows_per_user={most} has a page about such persons."
        )
    return lines, confirmed


def of_accountant(state: Any, names: Sequence[str], **named: Any) -> Report:
    """The report of a `Snapshot`, whose charges are of branches of these names."""
    claim = replace(state.budget, rows_per_user=state.max_rows_per_user)
    epsilon, spent, left, charges = claim.epsilon, state.spent(), state.left(), state.ledger.charges
    spent = epsilon if math.isclose(spent, epsilon, rel_tol=1e-9) else spent  # but for roundings
    found = []
    for charge, name in zip(charges, names, strict=True):
        what, part = {"what": charge.estimator}, name
        if charge.branch:
            whose = "persons" if charge.branch[-2].startswith("users-") else "records"
            part = f"{whose} of their own: {name}"
        what |= {key: getattr(charge, key) for key in ("label", "n_samples", "n_features")}
        found.append(_facts(charge) | what | {"time": charge.time.isoformat(), "part": part})
    has_branches = any(charge.branch for charge in charges)
    further, confirmed, decided = _of_budget(epsilon, spent, left, charges, has_branches)
    parts, of_parts = _of_parts(charges, claim.rows_per_user)
    lines = [*parts, *_explained(claim, spent if found else None, has_branches), *further]
    rows = [
        (
            ": ".join(filter(None, (one["label"], one["what"]))) or "a release",
            ", ".join(
                f"{one[size]} {what}" if one[size] < LONGEST_STREAM else f"{what} of a stream"
                for size, what in (("n_samples", "rows"), ("n_features", "columns"))
                if one[size] is not None
            )
            or "of an unknown table",
            f"epsilon {stated(one['epsilon'], 4)}",
            *([one["part"]] if has_branches else []),
            one["time"][:16].replace("T", " "),
            {True: "secret", False: "SEED GIVEN", None: "not recorded"}[one["noise_is_secret"]],
        )
        for one in found
    ]
    of_rows = ("of which rows",) if has_branches else ()
    table = ("result", "made from", "its own limit", *of_rows, "time (UTC)", "noise"), rows
    page = lines, [*confirmed, *of_parts], decided
    sizes = epsilon, claim.delta, claim.relation, claim.rows_per_user, spent, left
    facts: Any = {"budget": dict(zip(_BUDGET, sizes, strict=True)), "charges": found}
    return _report("ledger", claim, charges, page, table, named, **facts)
