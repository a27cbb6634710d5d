"""The page for a data protection officer, and its data."""

import html
import json
import math
import re
from decimal import ROUND_DOWN
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest
from support import gaussian, joined

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLassoFW,
    DPLinearRegression,
    DPScaler,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyParameterWarning,
    dp_score,
)
from sklearn_dpsco._checks import rounded
from sklearn_dpsco.means import plan_mean
from sklearn_dpsco.mechanisms import Gaussian, Release
from sklearn_dpsco.privacy.guarantee import Guarantee
from sklearn_dpsco.privacy.ledger import Snapshot
from sklearn_dpsco.privacy.report import Report, _percent, promise

TABLE = np.random.default_rng(0).uniform(0, 1, (500, 2))
FACTS = {"bounds_X": (0, 1), "bounds_y": (0, 1)}
TYPES = {
    "object": dict, "array": list, "string": str, "number": int | float, "integer": int,
    "boolean": bool,
}  # fmt: skip


def is_valid(value, schema):
    """Whether it follows a schema of the keywords that are used here."""
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    if not isinstance(value, TYPES[schema["type"]]):
        return False
    if isinstance(value, bool) and schema["type"] != "boolean":
        return False
    if value in (None, []):  # left out
        return False
    if isinstance(value, dict):
        named = schema["properties"]
        in_order = [name for name in named if name in value]
        return (
            list(value) == in_order
            and set(schema["required"]) <= set(value)
            and all(is_valid(value[name], named[name]) for name in value)
        )
    return not isinstance(value, list) or all(is_valid(one, schema["items"]) for one in value)


def facts_of(report):
    facts = json.loads(report.to_json())
    assert is_valid(facts, Report.schema())
    assert facts == report.facts
    return facts


def test_a_guarantee_in_words():
    plan = DPLinearRegression(epsilon=1.0, delta=1e-6, **FACTS).plan(5000, 4)
    report = plan.guarantee.report()
    text = joined(report)
    for words in (
        "the values of any single row", "find out at most about the row's values, apart from",
        "at most 2.72 times as likely, and at least 1/2.72 as likely, give or take a probability",
        "probability of 0.000001 (delta)", "Delta is 0.000001, at most one in 1,000,000. Rare",
        "50% sure can become at most 73.2% sure, and who was 1% sure at most 2.68% sure",
        "With two rows in a result, 50% can become 88.1%, and delta 0.00000372; with five 99.4%, "
        "and delta 0.0000858.", "Epsilon is 1, which says the same as the 2.72 times",
        "Random noise hides what a single row", "secret key", "Name: __", "many rows and columns",
        "noisy choice among public candidates", "sums with normal noise",
        "- [ ] No person has more",
        "names of the columns", "categories and the classes", "computing time and memory",
        "errors", "outside of this result", "[ ] This result may be published",
    ):  # fmt: skip
        assert words in text, words
    assert "seed" not in text
    assert [row[0] for row in report.overview().rows] == [r.name for r in plan.guarantee.releases]
    facts = facts_of(report)
    assert "budget" not in facts
    assert "fits" not in facts
    assert facts["guarantee"]["epsilon"] == 1.0
    assert [one["name"] for one in facts["releases"]] == [r.name for r in plan.guarantee.releases]
    assert report._repr_html_().count("<tr>") == len(facts["releases"]) + 1


def test_sizes_of_any_kind():
    model = DPLinearRegression(epsilon=Fraction(1, 2), delta=Fraction(1, 10**6), **FACTS)
    report = model.plan(5000, 4).guarantee.report()
    assert "Epsilon is 0.5, which" in joined(report)
    assert facts_of(report)["guarantee"]["delta"] == 1e-6


def test_users_and_the_other_relation():
    model = DPLinearRegression(epsilon=1.0, relation="zero-out", max_rows_per_user=3, **FACTS)
    text = joined(model.plan(5000, 4).guarantee.report())
    assert "Protected are the values of any person (up to 3 rows), against" in text
    assert "had the person's values been left out, any result would have been at most" in text
    assert "whether the person's values were used at all" in text
    assert "had is protected less: 50% can become at most 88.1%, and delta 0.00000372." in text
    assert "No person has more than one row" not in text


def boxes(report):
    """Whether it asks for a promise of so many rows, and for whose rows are whose."""
    text = joined(report)
    words = "has more than 3 rows", "is counted as two persons: the numbers"
    return tuple(f"- [ ] Nobody {one}" in text for one in words)


def test_a_promise_is_asked_for_where_nobody_said_whose_rows_are_whose():
    people, y = np.arange(500) // 3, TABLE[:, 0]
    settings = {"epsilon": 0.3, "max_rows_per_user": 3}
    accountants = [BudgetAccountant(3.0, max_rows_per_user=3) for _ in range(3)]
    assert boxes(accountants[0].report()) == (True, False)
    promised, known, both = accountants
    for accountant, groups in ((promised, None), (known, people), (both, people), (both, None)):
        model = DPLinearRegression(accountant=accountant, **settings, **FACTS)
        guarantee = model.fit(TABLE, y, groups=groups).guarantee_
        score = dp_score(
            model, TABLE, y, groups=groups, scoring="r2", accountant=accountant, **settings
        )
        for one in (guarantee, score.guarantee):
            assert one.has_groups == (groups is not None)
            assert boxes(one.report()) == (groups is None, groups is not None)
    found = [boxes(accountant.report()) for accountant in accountants]
    assert found == [(True, False), (False, True), (True, True)]
    plan = DPLinearRegression(**settings, **FACTS).plan(500, 2)
    assert boxes(plan.guarantee.report()) == (True, False)
    known.spend(plan)
    assert boxes(known.report()) == (True, True)


def test_a_page_about_rows_says_that_results_are_about_persons():
    accountants = [BudgetAccountant(1.0, max_rows_per_user=rows) for rows in (1, 2, 3)]
    of_persons = DPLinearRegression(epsilon=0.3, max_rows_per_user=3, **FACTS).plan(500, 2)
    for accountant in accountants:
        accountant.spend(of_persons, has_groups=True)
    found = [joined(accountant.report()) for accountant in accountants]
    assert "persons of up to 3 rows, and this page speaks of a single row: a Budget" in found[0]
    assert "and this page speaks of persons of up to 2 rows: a BudgetAccountant with" in found[1]
    assert "this page speaks of" not in found[2]


def test_streams_scalers_and_searches_know_whose_rows_are_whose():
    people, settings = np.arange(500) // 3, {"max_rows_per_user": 3}
    y, model = TABLE[:, 0], DPLassoFW(**FACTS)
    search = DPGridSearchCV(model, {"fit_intercept": [True, False]}, epsilon=90.0, **settings)
    for groups in (None, people):
        wanted = groups is None, groups is not None
        stream = DPFTRLRegressor(**settings, **FACTS).partial_fit(TABLE, y, groups=groups)
        scaler = DPScaler(bounds_X=(0, 1), **settings).fit(TABLE, groups=groups)
        for one in (stream, scaler, search.fit(TABLE, y, groups=groups)):
            assert boxes(one.guarantee_.report()) == wanted, type(one)


def test_one_sentence_begins_all_prints():
    for settings in ({}, {"relation": "zero-out", "max_rows_per_user": 2}, {"epsilon": 0.1}):
        model = DPLinearRegression(random_state=None, **settings, **FACTS).fit(TABLE, TABLE[:, 0])
        guarantee, plan = model.guarantee_, model.plan_
        first = guarantee.report().facts["promise"]
        assert first.startswith("Protected are the values of any ")
        assert guarantee.report().overview().lines[1] == first
        for shown in (guarantee, plan):
            assert joined(shown).startswith(f"{first} "), type(shown)
            assert f"><div>{html.escape(first)}</div>" in shown._repr_html_()
        claim = float(guarantee.epsilon), guarantee.delta
        accountant = BudgetAccountant(
            *claim, relation=guarantee.relation, max_rows_per_user=guarantee.rows_per_user
        )
        of_all = accountant.report().facts["promise"]  # and not of one result alone
        assert "sees all results and" in of_all
        of_one = of_all.replace("all results", "the result")
        assert (
            of_one.replace("the same results (all together, whatever they are)", "any result")
            == first
        )
    seeded = DPLinearRegression(random_state=0, **FACTS).fit(TABLE, TABLE[:, 0]).guarantee_
    first = seeded.report().facts["promise"]
    assert first.startswith("NOT PRIVATE against whoever knows or guesses the seed (random_state)")
    assert "or sees another result of it, with the same noise. For all others" in first
    assert joined(seeded).startswith(f"{first} ")


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_what_is_at_most_so_much_is_rounded_up(relation):
    for epsilon, delta in zip(
        np.geomspace(1e-3, 600, 300), np.geomspace(1e-12, 0.5, 300), strict=True
    ):
        sentence = promise(PrivacyBudget(epsilon, delta, relation), True, True)
        factor, slack = re.search(
            r"at most (\S+) times as .* give or take a probability of (\S+) \(delta", sentence
        ).groups()
        for shown, true in ((float(factor.replace(",", "")), np.exp(epsilon)), (slack, delta)):
            assert true <= float(shown) <= 1.01 * true, sentence
    large = promise(PrivacyBudget(1000.0001, 0.0, relation), True, True)
    assert "at most e^1000.01 times as likely" in large


def test_no_claim_is_shown_as_less_and_nothing_that_is_left_as_more():
    def shown(text):
        return [float(x) for x in re.findall(r"[-+]?(?:\d*\.)?\d+(?:e[-+]?\d+)?", text)]

    epsilon, delta = 1.0000004, 1.0000004e-6
    guarantee = gaussian(epsilon, delta)
    assert shown(guarantee.claim) == [1.00001, 1.00001e-6]
    accountant = BudgetAccountant(2 * epsilon, delta)
    assert shown(repr(accountant)) == [2.00001, 1.00001e-6, 0, 2.0, 0]
    accountant.spend(guarantee)
    for text in (repr(accountant), joined(accountant.report())):
        assert "epsilon 1.001" in text or "spent=1.001" in text
        assert str(rounded(accountant.remaining(), 4, ROUND_DOWN)) in text
    assert "Epsilon is 2.001," in text
    with pytest.raises(PrivacyBudgetError) as refused:
        accountant.spend(gaussian(2 * epsilon, delta))
    said = shown(str(refused.value))
    assert said[:3] == [2.00001, 1.00001e-6, rounded(accountant.total_spent(), 6)]
    assert accountant.remaining() - 1e-5 < said[4] <= accountant.remaining()
    # sums of floats alone make nothing more
    accountant = BudgetAccountant(1.0, 0.0)
    for _ in range(3):
        accountant.spend(plan_mean(5000, 2, epsilon=0.1, delta=0.0))
    assert shown(repr(accountant))[2:4] == [0.3, 0.7]


def test_a_print_tells_once_against_whom_it_does_not_hold():
    settings = {"random_state": 0, "precision": "float", "delta": 1e-6}
    text = joined(DPLinearRegression(**settings, **FACTS).fit(TABLE, TABLE[:, 0]).guarantee_)
    assert (text.count("NOT PRIVATE"), text.count("last digits")) == (1, 1)


def test_what_is_not_private_is_told_first():
    model = DPLinearRegression(random_state=0, delta=1e-6, **FACTS).fit(TABLE, TABLE[:, 0])
    report = model.guarantee_.report()
    assert report.overview().lines[1].startswith("NOT PRIVATE against whoever knows or guesses")
    assert "secret key" not in str(report)
    assert report.facts["outside"][0].startswith("anything, against who knows a seed")
    unused = BudgetAccountant(1.0).report()  # of which nobody knows yet
    assert "who knows a seed (random_state), if one was given" in joined(unused)
    void = Guarantee.of(PrivacyBudget(math.inf), [Release("sum", Gaussian(1.0, 0.0))], "none")
    report = void.report()
    assert "nothing is private" in str(report)
    assert "Protected" not in str(report)
    assert "without noise" in str(report)
    assert "epsilon" not in facts_of(report)["guarantee"]


def test_noise_that_is_not_exact_is_told_first(tmp_path):
    accountant = BudgetAccountant(2.0, 1e-6)
    accountant.save(tmp_path / "ledger.json")
    exact = plan_mean(5000, 2, epsilon=0.5, accountant=accountant)
    accountant.spend(exact)
    for report in (exact.guarantee.report(), accountant.report()):
        assert "precision" not in str(report)
        assert "precision" not in report.to_json()
    plan = plan_mean(5000, 2, epsilon=0.5, accountant=accountant, precision="float")
    accountant.spend(plan)
    of_file = Snapshot.read(tmp_path / "ledger.json").ledger.charges
    assert [charge.noise_is_exact for charge in of_file] == [True, False]
    first = "NOT PRIVATE against whoever sees the last digits, which noise of precision='float'"
    assert joined(plan.guarantee).startswith(first)
    for report in (plan.guarantee.report(), accountant.report()):
        assert report.overview().lines[1].startswith(first)
        told = [text for text in facts_of(report)["outside"] if "precision='float'" in text]
        assert len(told) == 1
        assert "recorded" not in told[0]
    parts = (("all", (exact.guarantee, plan.guarantee)),)
    both = Guarantee.of_parts(PrivacyBudget(1.0, 1e-6, currency="gdp"), "gdp", parts)
    assert not both.noise_is_exact  # whichever is carried out
    void = plan_mean(5000, 2, epsilon=math.inf, precision="float").guarantee
    assert "precision" not in f"{void.claim} {void.report()}"  # there is no noise
    seeded = plan.guarantee.of_fit(noise_is_secret=False)
    assert "with the same noise, or sees the last digits" in joined(seeded)
    # files of earlier versions do not say
    entries = json.loads((tmp_path / "ledger.json").read_text())
    for charge in entries["charges"]:
        del charge["noise_is_exact"]
    (tmp_path / "ledger.json").write_text(json.dumps(entries))
    (told,) = (
        text
        for text in facts_of(reloaded(tmp_path / "ledger.json").report())["outside"]
        if "precision='float'" in text
    )
    assert "if one was: it is not recorded" in told


def reloaded(path):
    """The accountant of a file as another process finds it."""
    accountant = BudgetAccountant.__new__(BudgetAccountant)
    accountant._set_up(Snapshot.read(path)._replace(id="another"))
    return accountant


def test_an_accountant_names_its_charges_and_no_hash():
    accountant = BudgetAccountant(2.0, 1e-6)
    group = accountant.parallel()
    branches = [group.branch("train"), group.branch("b")]
    users = accountant.parallel("users").branch()
    for account in (accountant, *branches, branches[0], users):
        DPLinearRegression(epsilon=0.3, accountant=account, **FACTS).fit(TABLE, TABLE[:, 0])
    with accountant.label("<b>costs</b>"):
        accountant.spend(
            DPLinearRegression(epsilon=0.3, accountant=accountant, **FACTS).plan(200, 2)
        )
    report = accountant.report()
    facts, text = facts_of(report), joined(report)
    parts = [charge["part"] for charge in facts["charges"]]
    first = "records of their own: group 1 of 2, branch 1 of 2 (train)"
    second = "records of their own: group 1 of 2, branch 2 of 2 (b)"
    third = "persons of their own: group 2 of 2, branch 1 of 1"
    assert parts == ["all records", first, second, first, third, "all records"]
    assert "outside of this ledger" in text
    assert "so of a group only the costliest branch counts" in text
    assert "and with rows in one branch of a group alone. With two rows in a result, or in" in text
    assert "- [ ] The branches of a group have no row and no person in common," in text
    assert "its values. (If not, the limits for several rows hold.)" in text
    assert "costliest" not in str(BudgetAccountant(1.0).report())
    assert facts["budget"]["spent"] == accountant.total_spent()
    assert "500 rows, 2 columns" in text
    spent = accountant.total_spent()
    assert re.search(
        rf"below alone, who was 50% .* who was 1% sure at most {_percent(spent, 0.01)} sure: rely",
        text,
    )
    assert "now and later, who was 50% sure can become at most 88.1% sure, and who" in text
    assert f"allowed epsilon of 2, {rounded(spent, 4):.4g} is used, and one more result of" in text
    assert "until the budget is used (50% can become 88.1%)." in text
    assert "&lt;b&gt;costs" in report._repr_html_()
    for key in [group.path[0].partition("-")[2], branches[0].path[-1]]:
        assert key not in text
        assert key not in report.to_json()
    assert "what was computed" not in str(BudgetAccountant(1.0).report())


def test_what_differs_from_the_budget_by_roundings_alone_is_the_budget():
    for delta in (0.0, 1e-6):
        accountant = BudgetAccountant(1.0, 1e-6)
        accountant.spend(plan_mean(5000, 2, epsilon=1.0, delta=delta, accountant=accountant))
        assert 0 < 1 - accountant.total_spent() < 1e-9
        budget = facts_of(accountant.report())["budget"]
        assert (budget["spent"], budget["left"]) == (1.0, 0.0)


def test_what_a_page_says_is_left_can_be_spent():
    for epsilon in (0.3, 0.55):
        accountant = BudgetAccountant(1.0, 1e-6)
        accountant.spend(gaussian(epsilon))
        said = re.search(r"and one more result of (\S+), or", joined(accountant.report())).group(1)
        accountant.spend(gaussian(float(said)))
    accountant.spend(gaussian(accountant.remaining()))
    assert "nothing more can be computed from all rows" in joined(accountant.report())


def test_numbers_that_add_up_are_not_called_less_than_their_sum():
    # pure epsilons are a sum; beside it one result, and two of normal noise
    for delta, sizes, less in (
        (0, [0.5, 0.3], False),
        (1e-6, [1.0], False),
        (1e-6, [0.3, 0.3], True),
    ):
        accountant = BudgetAccountant(1.0, delta)
        assert "Do not add up the limits of single results" not in joined(accountant.report())
        for epsilon in sizes:
            facts = {"epsilon": epsilon, "delta": delta, "accountant": accountant}
            accountant.spend(plan_mean(5000, 2, **facts))
        text = joined(accountant.report())
        assert ("Do not add up the limits of single results" in text) == less
        assert "more than one row in what any one result is made from. Checked" in text


def test_where_nothing_is_left_only_rows_in_no_branch_are_asked_about():
    accountant = BudgetAccountant(1.0)
    branch = accountant.parallel().branch()
    branch.spend(plan_mean(5000, 2, epsilon=1.0, delta=0, accountant=branch))
    text = joined(accountant.report())
    assert "More may be computed from some rows (those in no branch yet, if there are any, " in text
    assert (
        "from all rows within the budget. From some rows alone it can: those in no branch" in text
    )


def test_parts_of_a_search():
    model = DPLinearRegression(delta=1e-6, **FACTS)
    grid = {"fit_intercept": [True, False]}
    plan = DPGridSearchCV(model, grid, epsilon=3.0, delta=1e-6).plan(5000, 2)
    report = plan.guarantee.report()
    releases, rows = facts_of(report)["releases"], report.overview().rows
    names = [
        "part 1 of 4: trial fit 0",
        "part 2 of 4: trial fit 1",
        "part 3 of 4: private choice of settings",
        "part 4 of 4: fit of what was chosen",
    ]
    assert list(dict.fromkeys(one["part"] for one in releases)) == names
    assert [row[0] for row in rows] == [f"{one['part']}: {one['name']}" for one in releases]
    assert len(releases) == len(plan.guarantee.releases)
    choice = {one["name"] for one in releases if one["part"] == names[2]}
    assert choice == {release.name for release in plan.choice.releases}
    assert "The data were used in 4 parts, one after the other" in joined(report)
    assert joined(plan).startswith(f"{report.facts['promise']} search among 2 settings")


def test_the_schema_of_a_version_stays_as_it_is():
    # who changes one of these names gives `FORMAT` the next number, and changes this test with it
    schema = Report.schema()
    assert schema["$id"] == "urn:sklearn_dpsco.report:2"
    keys = {}
    for name, part in {"": schema, **schema["properties"]}.items():
        one = part.get("items", part)
        if "required" in one:
            keys[name] = [key + "?" * (key not in one["required"]) for key in one["properties"]]
    claim = "epsilon? delta relation rows_per_user composition noise_is_secret?"
    assert keys == {
        name: names.split()
        for name, names in {
            "": "format time versions promise outside dataset? purpose? guarantee? fits? releases? "
            "budget? charges?",
            "versions": "sklearn_dpsco numpy scikit-learn",
            "guarantee": claim,
            "fits": "n_fits epsilon? delta has_copies noise_is_secret",
            "releases": "name uses mechanism sensitivity scale records? part?",
            "budget": "epsilon delta relation rows_per_user spent left",
            "charges": f"{claim.replace('?', '', 1)} what? label? n_samples? n_features? time part",
        }.items()
    }
    assert facts_of(BudgetAccountant(1.0).report())["format"] == "sklearn_dpsco.report/2"


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_no_comfort_where_there_is_none(relation):
    def text(epsilon, delta=1e-6):
        model = DPLinearRegression(epsilon=epsilon, delta=delta, relation=relation, **FACTS)
        return joined(model.plan(5000, 2).guarantee.report())

    for epsilon, sure in ((1.0, "73.2"), (3.0, "95.3"), (8.0, "99.97")):
        found = text(epsilon)
        assert f"50% sure can become at most {sure}% sure" in found
        assert ("close to certainty" in found) == (epsilon == 8.0)
    assert "Delta is 0.000001, at most one in 1,000,000. Rare" in found
    with pytest.warns(PrivacyParameterWarning, match="not below"):
        assert "Delta is 0.01, at most one in 100. Rare" in text(1.0, 0.01)
    several = "50% can become 99.99999%, and delta 0.00299; with five 100%, and delta 1."
    assert f"one row per result. With two rows in a result, {several}" in found
    exact = DPLassoFW(epsilon=1.0, delta=0.0, relation=relation, **FACTS).plan(5000, 2)
    assert "is 0: there is no exception." in joined(exact.guarantee.report())


def test_words_of_a_ledger_are_explained():
    accountant = BudgetAccountant(1.0, max_rows_per_user=2)
    text = joined(accountant.report())
    assert "of this ledger: nobody has a new budget" in text
    assert "Epsilon 1 was chosen by ____" in text
    assert "a person with one row" not in text
    assert "results below" not in text
    assert "branch" not in text
    DPLinearRegression(
        epsilon=0.3, max_rows_per_user=2, accountant=accountant.parallel("users").branch(), **FACTS
    ).fit(TABLE, TABLE[:, 0], groups=np.arange(500) // 2)
    text = joined(accountant.report())
    assert "which is called a branch. Branches that share no row (or" in text
    assert "without a look at its values. (If not, no limit is sure.)" in text
    assert "the sign >" not in text  # none is within another
    assert text.index("called a branch") < text.index("What someone who knows all others")
    kinds = {"PrivateMoments": "means of columns", "DPScaler": "a scaler", "score of x": "a score"}
    assert not any(words in text for words in kinds.values())
    branch = accountant.branch(accountant.ledger[0].branch)
    inner, plan = (
        branch.parallel("users").branch("one"),
        plan_mean(99, 2, epsilon=0.01, delta=0, relation="replace-one", max_rows_per_user=2),
    )
    for kind in kinds:
        inner.spend(plan, estimator=kind)
    text = joined(accountant.report())
    assert all(words in text for words in kinds.values())
    assert "A branch after the sign > is a part of" in text


class Page(HTMLParser):
    """The text of each element, by tag; asks that all are closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found = [], {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        self.found.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.found[self.open[-1]][-1] += data


def test_a_page_of_its_own(tmp_path):
    accountant = BudgetAccountant(1.0)
    account = accountant.parallel().branch("<i>Kosten für Ärzte</i>")
    DPLinearRegression(epsilon=0.3, accountant=account, **FACTS).fit(TABLE, TABLE[:, 0])
    report = accountant.report()
    page = report.to_html()
    (tmp_path / "report.html").write_text(page, encoding="ascii")
    assert page.startswith("<!DOCTYPE html>")
    assert '<meta charset="utf-8">' in page
    found = Page(page).found
    assert found["title"] == ["What the published results can reveal about one of the rows"]
    assert len(found["ul"]) == 4
    now, all_of_it, *items = found["li"]
    assert now.startswith("from the results below")
    assert all_of_it.startswith("from all that the budget allows")
    n_outside = len(report.facts["outside"])
    assert items[:n_outside] == report.facts["outside"]
    boxes = items[n_outside:]
    assert boxes.pop(len(boxes) - 3).startswith("Epsilon 1 was chosen by")
    assert all(item.startswith("\N{BALLOT BOX} ") for item in boxes)
    assert report.facts["promise"] in found["div"]
    assert "<i>Kosten für Ärzte</i>" in found["td"][3]
    assert "i" not in found
    assert report._repr_html_().partition("</style>")[0] in page


def test_what_a_page_is_about_is_named():
    accountant = BudgetAccountant(1.0)
    DPLinearRegression(epsilon=0.3, accountant=accountant, **FACTS).fit(TABLE, TABLE[:, 0])
    named = {"dataset": "Wages <1985>", "purpose": "a law\n& its costs"}
    plan = DPLinearRegression(epsilon=1.0, **FACTS).plan(5000, 4)
    for source in (accountant, plan.guarantee):
        report = source.report(**named)
        facts = facts_of(report)
        assert {name: facts[name] for name in named} == named
        assert report.overview().lines[1:3] == (
            "Dataset: Wages <1985>",
            "Purpose: a law\n& its costs",
        )
        page = report.to_html()
        assert "Dataset: Wages &lt;1985&gt;" in page
        assert "Name: ___" in page
        assert not set(named) & set(facts_of(source.report()))
        with pytest.raises(ValueError, match="purpose must be a string"):
            source.report(purpose=3)


@pytest.mark.parametrize(("epsilon", "p"), [(0.0, 0.5), (math.log(3), 0.75), (1e6, 1.0)])
def test_odds(epsilon, p):
    found = float(_percent(epsilon).removesuffix("%"))
    assert 100 * p <= found <= 100 * p + 0.1


def test_a_stream_without_an_end_is_no_table_of_a_trillion_rows():
    accountant = BudgetAccountant(epsilon=3.0, delta=1e-6)
    for horizon in (None, 500):
        model = DPFTRLRegressor(horizon=horizon, accountant=accountant, **FACTS)
        model.partial_fit([[0.0], [1.0]], [0, 1])
    text = joined(accountant.report())
    assert "rows of a stream, 1 columns" in text
    assert "500 rows, 1 columns" in text
    assert str(2**40) not in text
