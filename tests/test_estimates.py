"""Standard errors, intervals and tests of linear functions of coefficients."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLClassifier,
    DPGridSearchCV,
    DPLassoFW,
    DPLinearRegression,
    DPPoissonRegressor,
    DPScore,
    HeavyTailDPRegressor,
    PrivacyParameterWarning,
    PrivateMoments,
    PublicEncoder,
    dp_score,
    plan_score,
    rows_needed,
    survival_curve,
)
from sklearn_dpsco.estimates import INTERCEPT, Estimates, telling_unknown
from sklearn_dpsco.preprocessing.encoder import references

ROOT = np.random.default_rng(0).normal(size=(3, 3))
S, N = ROOT @ ROOT.T, np.diag([1.0, 2.0, 3.0])


def estimates(**others):
    facts = {"names": ["a", "b"], "coef": np.array([[1.0, -2.0, 3.0]]), "sampling": S, "noise": N}
    return Estimates(**{**facts, **others})


def test_the_two_parts_add_up():
    found = estimates()
    np.testing.assert_allclose(found.std**2, found.std_sampling**2 + found.std_noise**2)
    np.testing.assert_allclose(found.cov, S + N)
    np.testing.assert_allclose(found.std[0], np.sqrt(np.diag(S + N)))
    z = found.coef / found.std
    np.testing.assert_allclose(found.pvalues, 2 * stats.norm.sf(np.abs(z)))
    half = stats.norm.ppf(0.95) * found.std[0]
    np.testing.assert_allclose(
        found.conf_int(0.9), np.c_[found.coef[0] - half, found.coef[0] + half]
    )


def test_unsure_variances_have_longer_tails():
    q, total = 0.5, np.diag(S + N)
    df = 2 * (total / (q * np.diag(S))) ** 2
    found = estimates(doubt=q)
    half = stats.t.ppf(0.975, df) * np.sqrt(total)
    np.testing.assert_allclose(np.diff(found.conf_int())[:, 0] / 2, half)
    assert np.all(found.pvalues > estimates().pvalues)
    # noise is known: where it is all, variances are sure
    sure = estimates(doubt=q, sampling=S * 1e-9)
    np.testing.assert_allclose(sure.conf_int(), estimates(sampling=S * 1e-9).conf_int(), rtol=1e-6)


def test_what_is_unknown_has_the_whole_line():
    unknown = np.array([[0.0], [1.0], [0.1]])
    found = estimates(unknown=unknown)
    assert np.isinf(found.std).tolist() == [[False, True, False]]
    for part in (found.std_sampling, found.std_noise):  # no number that looks like an error
        assert np.isnan(part).tolist() == [[False, True, False]]
    assert found.to_frame()[["sampling", "noise"]].loc["b"].isna().all()
    assert str(found).splitlines()[2].split() == ["b", "-2", "inf", "0", "1.000", "-inf", "inf"]
    assert found.conf_int()[1].tolist() == [-np.inf, np.inf]
    assert found.pvalues[0, 1] == 1.0
    assert np.isfinite(found.wald_test("a").pvalue)
    with pytest.raises(ValueError, match="say nothing"):
        found.wald_test(["a", "b"])
    # in units in which all that is known of b is its unknown part
    gram = np.diag([1.0, 1.0, 0.01])
    assert np.isinf(estimates(unknown=unknown, gram=gram).std).tolist() == [[False, True, True]]


def test_a_note_names_what_is_unknown():
    assert telling_unknown(estimates(), None).notes == ()
    found = estimates(unknown=np.array([[0.0], [1.0], [0.1]]), notes=("first",))
    first, note = telling_unknown(found, None, ", or strong", ", another").notes
    both = telling_unknown(estimates(unknown=np.array([[0.0], [1.0], [1.0]])), None).notes[0]
    constant = "a constant column: the fit adds an intercept by itself"
    assert constant in both
    assert constant not in note
    assert first == "first"
    told = "nothing is known of the coefficients of b: noise hides 1 combination of columns that"
    assert f"{told} they are part of, and their intervals are whole lines, without ends." in note
    assert "most values beyond them" in note
    assert "sums of others (drop='first'), or strong. Try fewer" in note
    assert note.endswith("larger epsilon, another")
    (_, note) = telling_unknown(found, {}).notes
    assert "drop" not in note
    assert note.endswith("fewer columns, a larger epsilon")
    # of many the first three
    many = Estimates(
        names=list("abcd"), outputs=["u", "v"], coef=np.ones((2, 4)), sampling=np.eye(8),
        noise=np.eye(8), unknown=np.eye(8)[:, :7],
    )  # fmt: skip
    assert "of u: a, u: b, u: c and 4 more: noise" in telling_unknown(many, {}).notes[0]
    assert "7 combinations of columns" in telling_unknown(many, {}).notes[0]
    # of none all that is said is true
    spread = Estimates(
        names=[f"c{k}" for k in range(9)],
        coef=np.ones((1, 9)),
        sampling=np.eye(9),
        noise=np.eye(9),
        unknown=np.ones((9, 1)) / 3,
    )
    assert "columns, which no coefficient shows by itself" in telling_unknown(spread, {}).notes[0]


def test_a_note_names_a_reference_that_may_be_rare():
    # all but one of a list's columns are unknown, then one of them, then another list's only one
    told = {"u": "x", "v": "y"}
    for at, is_told in (([0, 1], True), ([0], False), ([3], False)):
        found = Estimates(
            names=["u_a", "u_b", "u_c", "v_a"], sources=["u", "u", "u", "v"], coef=np.ones((1, 4)),
            sampling=np.eye(4), noise=np.eye(4), unknown=np.eye(4)[:, at],
        )  # fmt: skip
        (note,) = telling_unknown(found, told).notes
        assert ("a rare reference (u: x): name a common one, drop={column:" in note) == is_told
        assert "rare reference" not in telling_unknown(found, {"u": None, "v": "y"}).notes[0]


def test_references_of_encoders():
    schema = {"age": (0, 9), "edu": ["hs", "ba"], "sex": ["f", "m"]}
    encoders = [
        PublicEncoder(schema), PublicEncoder(schema, drop={"edu": "ba"}),
        PublicEncoder(schema, drop={"edu": "ba", "sex": "f"}), PublicEncoder(schema, drop="first"),
        PublicEncoder({"age": (0, 9)}), (-1, 1), None, OneHotEncoder(drop="first"),
    ]  # fmt: skip
    both, first = {"edu": None, "sex": None}, {"edu": "hs", "sex": "f"}
    expected = [
        both, {**both, "edu": "ba"}, {"edu": "ba", "sex": "f"}, first, {}, None, None, None,
    ]  # fmt: skip
    assert [references(encoder) for encoder in encoders] == expected
    facts = {"bounds_X": encoders[1], "bounds_y": (0, 1), "epsilon": 8.0, "inference": True}
    with pytest.warns(PrivacyParameterWarning, match="all categories of sex add up to the inter"):
        DPLinearRegression(**facts).plan(20_000, encoders[1])
    X = encoders[1].transform(pd.DataFrame({"age": 1, "edu": "hs", "sex": ["f", "m"] * 20}))
    with pytest.warns(PrivacyParameterWarning, match="all categories of sex") as caught:
        DPPoissonRegressor(**facts | {"epsilon": np.inf}).fit(X, np.arange(40) % 2)
    assert len([one for one in caught if "all categories" in str(one.message)]) == 1
    for other in ({"bounds_X": encoders[3]}, {"fit_intercept": False}, {"inference": False}):
        model = DPLinearRegression(**facts | other)
        model.plan(20_000, model.bounds_X)


def test_encoders_in_other_transformers_are_told_of_as_by_themselves():
    numbers = PublicEncoder({"age": (0, 50)})
    lists = PublicEncoder({"edu": ["hs", "ba"], "sex": ["f", "m"]}, drop={"edu": "ba"})
    together = make_column_transformer(
        (numbers, ["age"]), (make_pipeline("passthrough", lists), ["edu", "sex"])
    )
    assert references(together) == {"edu": "ba", "sex": None}
    assert references(make_column_transformer((OneHotEncoder(), ["edu"]))) is None
    facts = {"bounds_y": (0, 9), "epsilon": 8.0, "inference": True, "random_state": 0}
    whole = DPLinearRegression(**facts, bounds_X=together)
    with pytest.warns(PrivacyParameterWarning, match="all categories of sex add up to the inter"):
        whole.plan(20_000, 4)

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 50, 3000), "sex": rng.choice(["f", "m"], 3000)})
    lists = PublicEncoder({"sex": ["f", "m"]}, drop="first")
    together = make_column_transformer((numbers, ["age"]), (lists, ["sex"]))
    model = make_pipeline(together, DPLinearRegression(**facts, bounds_X=together))
    model.fit(table, rng.uniform(0, 9, 3000))
    text = " ".join(str(model[-1].summary()).split())
    assert "count as the reference (sex: f): unknown='other'" in text
    assert "count as the middle of their bounds (age: 25)" in text

    flagged = PublicEncoder({"age": (0, 50)}, missing="indicator")
    together = make_column_transformer((flagged, ["age"]), (flagged, ["age"]))
    problem = DPLinearRegression(**facts, bounds_X=together).plan(20_000, 4).problem
    assert problem.n_indicators == 2


@pytest.mark.parametrize("verbose", [True, False, "{feature_name}.{transformer_name}"])
@pytest.mark.parametrize("output", ["default", "pandas"])
def test_a_clone_reports_the_units_of_the_table(verbose, output):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 50, 3000), "sex": rng.choice(["f", "m"], 3000)})
    table["kind"] = rng.choice(["a", "b"], 3000)
    together = ColumnTransformer(
        [
            ("number", make_pipeline(PublicEncoder({"age": (-50, 100)}), "passthrough"), ["age"]),
            ("list", PublicEncoder({"sex": ["f", "m"]}, drop="first"), ["sex"]),
            ("other", OneHotEncoder(categories=[["a", "b"]], sparse_output=False), ["kind"]),
        ],
        verbose_feature_names_out=verbose,
    ).set_output(transform=output)
    facts = {"bounds_X": together, "bounds_y": (0, 60), "inference": True, "random_state": 0}
    model = make_pipeline(together, DPLinearRegression(epsilon=np.inf, **facts))
    assert model[-1].plan(3000, together).problem.n_features == 4
    y = table["age"] + 2 * (table["sex"] == "m")
    whole, copied = model.fit(table, y), clone(model).fit(table, y)
    names = list(together.get_feature_names_out())
    if output == "default":  # of a step that is not fitted, only encoders tell their names
        names[2:] = ["x2", "x3"]
    found = copied[-1].summary().to_frame()["coef"]
    assert found.index.tolist() == [*names, "(intercept)"]
    assert found.iloc[0] == pytest.approx(1, abs=0.01)  # of a year
    np.testing.assert_allclose(found, whole[-1].summary().to_frame()["coef"], atol=1e-6)
    frames = [one[-1].coef_frame() for one in (copied, whole)]
    np.testing.assert_allclose(*frames, atol=1e-6)
    assert frames[0].index[:2].tolist() == [("age", ""), ("sex", "m")]


def test_wald_tests():
    found = estimates()
    one = found.wald_test("b")
    assert one.pvalue == pytest.approx(found.pvalues[0, 1])
    R, value = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, -1.0]]), np.array([0.5, 1.0])
    gap = R @ found.coef[0] - value
    statistic = gap @ np.linalg.solve(R @ (S + N) @ R.T, gap)
    joint = found.wald_test(R, value)
    assert found.wald_test((R, value)) == joint
    assert joint.statistic == pytest.approx(statistic / 2)
    assert joint.pvalue == pytest.approx(stats.chi2(2).sf(statistic))
    assert (joint.df_num, joint.df_denom) == (2, np.inf)
    assert (
        str(joint)
        == f"<F test: F={statistic / 2:.6g}, p={joint.pvalue:.4g}, df_denom=inf, df_num=2>"
    )
    # the same hypothesis twice is one
    assert found.wald_test(np.vstack((R, R[:1])), np.append(value, 0.5)).df_num == 2
    # whatever the units of the features are
    scale = np.array([1e6, 1e-3, 1.0])
    other = estimates(
        coef=found.coef * scale,
        sampling=S * np.outer(scale, scale),
        noise=N * np.outer(scale, scale),
    )
    assert other.wald_test(["a", "b"]) == pytest.approx(found.wald_test(["a", "b"]))
    noisy = estimates(doubt=1.0).wald_test(R, value)
    assert np.isfinite(noisy.df_denom)
    assert noisy.pvalue > joint.pvalue


def test_a_joint_test_does_not_depend_on_how_it_is_written():
    found = estimates(doubt=0.8)
    texts = (
        "a = b = (intercept) = 1",
        "a - b, 2 * b = 2, b - (intercept)",
        {"a": 1, "b": 1, "const": 1},
    )
    tests = [found.wald_test(text) for text in texts]
    assert all(other == pytest.approx(tests[0]) for other in tests[1:])
    # the degrees of freedom are those of the function that has the fewest
    rng = np.random.default_rng(0)
    _, df = found.errors(rng.normal(size=(20_000, 3)))
    assert tests[0].df_denom == pytest.approx(df.min(), rel=0.01)
    assert tests[0].df_denom <= df.min()
    with pytest.raises(ValueError, match="give it once"):
        found.wald_test("a = 1", 2)


def test_each_function_by_itself():
    found = estimates(names=["a", "b"], sources=["u", "u"], title="of this", notes=("and that",))
    R, value = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, 0.0]]), [0.5, 0.0]
    each = found.t_test(R, value)
    assert each.param_names == ["c0 = 0.5", "c1"]
    np.testing.assert_allclose(each.coef[0], R @ found.coef[0])
    np.testing.assert_allclose(each.std[0] ** 2, np.diag(R @ (S + N) @ R.T))
    for k in range(2):
        assert found.wald_test(R[k], value[k]).pvalue == pytest.approx(each.pvalues[0, k])
    np.testing.assert_allclose(each.conf_int()[1], found.conf_int()[1])
    assert [line.split()[0] for line in str(each).splitlines()] == ["of", "coef", "c0", "c1"]
    # by names: all features that were made of a column, and values
    both = found.t_test("u")
    assert both.param_names == ["a", "b"]
    assert found.wald_test("u") == found.wald_test(["a", "b"])
    assert found.wald_test("a = 2") == found.wald_test("a", 2)
    assert found.wald_test(["a=2", "b"], 1) == found.wald_test(["a", "b"], [2, 1])
    equal = estimates(names=["a = 2", "b"])
    np.testing.assert_allclose(equal.t_test("a = 2 = 1").tvalues, equal.t_test("a = 2", 1).tvalues)
    several = Estimates(
        names=["a"], outputs=["x", "y"], coef=np.ones((2, 1)), sampling=np.eye(2), noise=np.eye(2)
    )
    assert several.t_test("a").param_names == ["x: a", "y: a"]


@pytest.mark.parametrize(
    ("text", "rows", "values", "names"),
    [
        ("b = a", [[-1, 1, 0]], [0], ["- a + b"]),
        ("a - 2 * b = 1.5, b = 0", [[1, -2, 0], [0, 1, 0]], [1.5, 0], ["a - 2*b = 1.5", "b"]),
        ("a=b=(intercept)", [[1, -1, 0], [0, 1, -1]], [0, 0], ["a - b", "b - (intercept)"]),
        ("a + b", [[1, 1, 0]], [7], ["a + b = 7"]),
        (
            "Intercept = 2, b = const",
            [[0, 0, 1], [0, 1, -1]],
            [2, 0],
            ["(intercept) = 2", "b - (intercept)"],
        ),
        ("1 = .5a + 1e1 * b", [[-0.5, -10, 0]], [-1], ["- 0.5*a - 10*b = -1"]),
        ("a*10 - b / 4 = 1", [[10, -0.25, 0]], [1], ["10*a - 0.25*b = 1"]),
    ],
)
def test_equations_are_hypotheses(text, rows, values, names):
    found, by_rows = estimates(), estimates().t_test(rows, values)
    of_others = () if "=" in text else (7,)
    assert found.wald_test(text, *of_others) == found.wald_test(rows, values)
    named = found.t_test([text], *of_others)
    assert named.param_names == names
    np.testing.assert_array_equal(named.tvalues, by_rows.tvalues)


def test_names_in_equations_may_hold_what_equations_do():
    other = estimates(names=["a-b", "b"])
    np.testing.assert_array_equal(other.t_test("a-b = b").coef, other.t_test([[1, -1, 0]]).coef)
    other = estimates(names=["x, y = 2", "x"])
    np.testing.assert_array_equal(
        other.t_test("x - x, y = 2 = 1").coef, other.t_test([[-1, 1, 0]]).coef
    )
    several = Estimates(
        names=["a", "b"],
        outputs=["x", "y"],
        coef=np.ones((2, 2)),
        sampling=np.eye(4),
        noise=np.eye(4),
    )
    assert several.t_test("a = b").param_names == ["x: a - b", "y: a - b"]


@pytest.mark.parametrize(
    ("hypotheses", "message"),
    [
        ("a = a", "no coefficient is called 'a = a'"),
        ("a = b =", "no coefficient is called 'a = b ='"),
        ("a b", "no coefficient is called 'a b'"),
        ("b = c", "no coefficient is called 'c': hypotheses are names, 'name = number', "),
        ("b + intercept = 2", r"is called 'intercept' \(is it '\(intercept\)'\?\)"),
        ("a = 1, a = 2", "contradict each other"),
        (["a = b", "a - b = 1"], "contradict each other"),
        ("c", "no coefficient is called 'c'"),
        (["a", "c"], "no coefficient is called 'c'"),
        ([[1.0, 2.0]], r"must be names or have the shape \(q, 3\), got \(1, 2\)"),
    ],
)
def test_wrong_hypotheses(hypotheses, message):
    with pytest.raises(ValueError, match=message):
        estimates().wald_test(hypotheses)


@pytest.mark.parametrize("hypotheses", ["(intercept)", "Intercept = 2", {"(intercept)": 3}])
def test_a_name_that_stands_twice_tells_no_coefficient(hypotheses):
    other = estimates(names=["(intercept)", "b"])
    for asked in (hypotheses, "b - (intercept)"):
        with pytest.raises(ValueError, match="several coefficients are called"):
            other.wald_test(asked)
    assert other.wald_test("b") == other.wald_test([[0, 1, 0]])


@pytest.mark.parametrize("level", [0, 1, 0.05, 1.1, "95", None, True])  # .05 is an alpha
def test_wrong_levels(level):
    if level is not None:  # that of the object
        with pytest.raises(ValueError, match=r"level must be .* in \[0.5, 1\).*1 - alpha"):
            estimates().conf_int(level)


@pytest.mark.parametrize("name", ["alpha", "confidence", "confidence_level"])
def test_other_names_of_the_level_are_refused_with_the_right_one(name):
    model, given = DPLinearRegression(), {name: 0.9}
    for call in (
        lambda: estimates().conf_int(**given),
        lambda: model.conf_int(**given),
        lambda: model.summary(**given),
        lambda: model.t_test("x0", **given),
        lambda: model.predict_interval([[0.0]], **given),
        lambda: DPPoissonRegressor().predict_interval([[0.0]], **given),
        lambda: survival_curve(model, [[0.0]], **given),
        lambda: rows_needed(DPLinearRegression(inference=True), 3, effect=0.1, **given),
    ):
        with pytest.raises(TypeError, match=f"has no {name}: say level=0.95, .* 1 - alpha"):
            call()
    given = {"level" if name == "confidence" else name: 0.9}
    for call in (lambda: dp_score(model, [[0.0]], [0.0], **given), lambda: plan_score(9, **given)):
        with pytest.raises(TypeError, match=r"say confidence=0\.95"):
            call()


def test_names_of_statsmodels_tell_where_the_numbers_are():
    model = DPLinearRegression()
    for name, place in (
        ("bse", r"summary\(\)\.to_frame\(\)\['std err'\]"),
        ("nobs", "plan_.problem"),
        ("rsquared", "dp_score"),
        ("resid", "private"),
        ("compare_lr_test", "wald_test"),
        ("get_margeff", "DPLinearRegression"),
        ("partial_fit", "DPFTRLClassifier"),
        ("pvalues_", "to_frame"),
    ):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; .*{place}"):
            getattr(model, name)
    with pytest.raises(AttributeError, match=r"'Estimates' .* 'params'; see to_frame\(\)"):
        _ = estimates().params
    with pytest.raises(AttributeError, match=r"'as_latex'; see to_frame\(\)"):
        estimates().as_latex()
    with pytest.raises(AttributeError, match=r"'to_text'; see str\(\)"):
        BudgetAccountant(1.0).report().to_text()
    with pytest.raises(AttributeError, match="'conf_int'; see interval"):
        object.__new__(DPScore).conf_int()
    with pytest.raises(AttributeError, match=r"'predict'; X @ coef"):
        estimates().predict([[0.0]])
    for name in ("coef_std_", "coef_cov_"):
        with pytest.raises(AttributeError, match=f"'{name}'; fit with inference=True"):
            getattr(model, name)
    for other in (DPLassoFW(), DPFTRLClassifier(), HeavyTailDPRegressor()):
        for name in ("conf_int", "summary", "wald_test", "predict_interval", "coef_std_"):
            with pytest.raises(AttributeError, match=f"'{name}'; .*with inference=True"):
                getattr(other, name)
        assert not hasattr(other, "summary")
    search = DPGridSearchCV(model, {})
    for other, place in ((PrivateMoments(), "regression"), (search, "best_estimator_")):
        with pytest.raises(AttributeError, match=f"no attribute 'coef_'; see {place}"):
            _ = other.coef_
    with pytest.raises(TypeError, match=r"'inference'; DPLinearRegression, .* inference=True"):
        DPLassoFW(inference=True)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = model.nothing


def test_other_units_of_the_features():
    rng = np.random.default_rng(1)
    shift, width = rng.normal(size=2), rng.uniform(1, 3, 2)
    found = estimates(
        unknown=np.array([[0.0], [0.0], [0.1]]), predicting=np.array([[1.0, 2.0, 0.0]])
    )
    moved = found.in_units(["u", "v"], shift, width)
    assert moved.param_names == ["u", "v", INTERCEPT]
    Z = rng.normal(size=(5, 2))
    rows = np.column_stack(((Z - shift) / width, np.ones(5)))
    others = np.column_stack((Z, np.ones(5)))
    np.testing.assert_allclose(rows @ found.coef[0], others @ moved.coef[0])
    np.testing.assert_allclose(rows @ found.predicting[0], others @ moved.predicting[0])
    for one, other in zip(found.errors(rows), moved.errors(others), strict=True):
        np.testing.assert_allclose(one, other)


def test_shown():
    pandas = pytest.importorskip("pandas")
    found = estimates(title="of this", notes=("and that",), predicting=np.ones((1, 3)))
    lines = str(found).splitlines()
    assert lines[:2] == ["of this", "and that"]
    assert repr(found) == "<Estimates: of this>"
    assert lines[2].split()[:2] == ["coef", "std"]
    assert len(lines) == 6
    assert "<table>" in found._repr_html_()
    frame = found.to_frame()
    assert frame.index.tolist() == ["a", "b", INTERCEPT]
    np.testing.assert_allclose(frame[["[0.025", "0.975]"]], found.conf_int())
    np.testing.assert_allclose(frame["std err"], found.std[0])
    several = Estimates(
        names=["a"], outputs=["x", "y"], coef=np.ones((2, 1)), sampling=np.eye(2), noise=np.eye(2)
    )
    assert isinstance(several.to_frame().index, pandas.MultiIndex)
    assert several.conf_int().shape == (2, 1, 2)
    assert several.wald_test("a").df_num == 2


def test_ratios():
    found = estimates(predicting=np.ones((1, 3)), level=0.9)
    log, ratios = found.to_frame(), dataclasses.replace(found, exponentiate=True).to_frame()
    assert list(ratios.columns) == ["exp(coef)", *log.columns[1:]]
    np.testing.assert_allclose(np.log(ratios["exp(coef)"]), log["coef"])
    for name in ("[0.05", "0.95]", "predicting"):
        np.testing.assert_allclose(np.log(ratios[name]), log[name], atol=1e-12)
    for name in ("std err", "sampling", "noise", "t", "df", "P>|t|"):
        np.testing.assert_array_equal(ratios[name], log[name])
    ends = dataclasses.replace(found, exponentiate=True).conf_int()
    np.testing.assert_allclose(np.log(ends), found.conf_int(), atol=1e-12)
    whole = dataclasses.replace(found, exponentiate=True, unknown=np.eye(3)[:, :1]).to_frame()
    assert whole[["[0.05", "0.95]"]].iloc[0].tolist() == [0, np.inf]


def test_p_values_are_shown_with_three_decimals():
    found = estimates(coef=np.array([[1000.0, 1.0, 0.0]]))
    rows = [row.split() for row in str(found).splitlines()[-3:]]
    assert [row[7] for row in rows] == [f"{p:.3f}" for p in found.pvalues[0]]
    assert rows[0][7] == "0.000" != rows[1][7]
