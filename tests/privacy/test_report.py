"""The page for a data protection officer, and its data."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from sklearn_dpsco import BudgetAccountant, DPGridSearchCV, DPLinearRegression, PrivacyBudget
from sklearn_dpsco.mechanisms import Gaussian, Release
from sklearn_dpsco.privacy.guarantee import Guarantee
from sklearn_dpsco.privacy.report import Report, odds

TABLE = np.random.default_rng(0).uniform(0, 1, (500, 2))
FACTS = {"bounds_X": (0, 1), "bounds_y": (0, 1)}
TYPES = {
    "object": dict, "array": list, "string": str, "number": int | float, "integer": int,
    "boolean": bool, "null": type(None),
}  # fmt: skip


def is_valid(value, schema):
    """Whether it follows a schema of the keywords that are used here."""
    if "anyOf" in schema:
        return any(is_valid(value, one) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return False
    if isinstance(value, bool) and "boolean" not in kinds:
        return False
    if isinstance(value, dict):
        named = schema["properties"]
        return list(value) == schema["required"] == list(named) and all(
            is_valid(value[name], one) for name, one in named.items()
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
    text = str(report)
    for words in (
        "each row of the table by itself", "which values one record had", "at most 2.72",
        "at most 73.2 % likely", "Delta is 1e-06", "secret key", "how many rows and columns",
        "noisy choice among public candidates", "sums with normal noise",
    ):  # fmt: skip
        assert words in text, words
    facts = facts_of(report)
    assert facts["budget"] is None
    assert facts["guarantee"]["epsilon"] == 1.0
    assert [one["name"] for one in facts["releases"]] == [r.name for r in plan.guarantee.releases]
    assert report._repr_html_().count("<tr>") == len(facts["releases"]) + 1


def test_sizes_of_any_kind():
    model = DPLinearRegression(epsilon=Fraction(1, 2), delta=Fraction(1, 10**6), **FACTS)
    report = model.plan(5000, 4).guarantee.report()
    assert "Epsilon is 0.5:" in str(report)
    assert facts_of(report)["guarantee"]["delta"] == 1e-6


def test_users_and_the_other_relation():
    model = DPLinearRegression(epsilon=1.0, relation="zero-out", max_rows_per_user=3, **FACTS)
    text = str(model.plan(5000, 4).guarantee.report())
    assert "each person who has at most 3 rows in it" in text
    assert "one person, in all of their up to 3 rows, were used at all" in text


def test_what_is_not_private_is_told_first():
    model = DPLinearRegression(random_state=0, delta=1e-6, **FACTS).fit(TABLE, TABLE[:, 0])
    assert "NOT PRIVATE against whoever knows or guesses the seed" in str(model.guarantee_.report())
    void = Guarantee.of(PrivacyBudget(math.inf), [Release("sum", Gaussian(1.0, 0.0))], "none")
    report = void.report()
    assert "nothing is private" in str(report)
    assert "Protected" not in str(report)
    assert "without noise" in str(report)
    assert facts_of(report)["guarantee"]["epsilon"] is None


def test_an_accountant_names_its_charges_and_no_hash():
    accountant = BudgetAccountant(2.0, 1e-6)
    group = accountant.parallel()
    branches = [group.branch(), group.branch()]
    for account in (accountant, *branches, branches[0]):
        DPLinearRegression(epsilon=0.3, accountant=account, **FACTS).fit(TABLE, TABLE[:, 0])
    with accountant.label("<b>costs</b>"):
        accountant.spend(
            DPLinearRegression(epsilon=0.3, accountant=accountant, **FACTS).plan(200, 2)
        )
    report = accountant.report()
    facts, text = facts_of(report), str(report)
    parts = [charge["part"] for charge in facts["charges"]]
    first, second = (f"part {k} of disjoint records, division 1" for k in (1, 2))
    assert parts == ["all records", first, second, first, "all records"]
    assert facts["budget"]["spent"] == accountant.total_spent()
    assert "500 rows, 2 columns" in text
    assert "&lt;b&gt;costs" in report._repr_html_()
    for key in [group._path[0].partition("-")[2], branches[0].path[-1]]:
        assert key not in text
        assert key not in report.to_json()
    assert "what was computed" not in str(BudgetAccountant(1.0).report())


def test_parts_of_a_search():
    model = DPLinearRegression(delta=1e-6, **FACTS)
    grid = {"fit_intercept": [True, False]}
    plan = DPGridSearchCV(model, grid, epsilon=3.0, delta=1e-6).plan(5000, 2)
    assert facts_of(plan.guarantee.report())["releases"]


@pytest.mark.parametrize(("epsilon", "p"), [(0.0, 0.5), (math.log(3), 0.75), (1e6, 1.0)])
def test_odds(epsilon, p):
    assert odds(epsilon) == pytest.approx(p)
