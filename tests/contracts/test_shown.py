"""What estimators show of themselves in notebooks, and their coefficients as frames."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
from registry import (
    build,
    columns_as,
    each,
    each_classifier,
    each_reader,
    each_regressor,
    each_solver,
    every_release,
    fitted,
    is_classifier,
    kind_of,
    main_form,
    parameters_of,
    predictions_of,
    table,
)
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklearn_dpsco import (
    DPGridSearchCV,
    DPMirrorRegressor,
    DPScaler,
    PrivateMoments,
    PublicEncoder,
    mechanisms,
)
from sklearn_dpsco._overview import Overview
from sklearn_dpsco.geometry import L2Ball

IDS = re.compile(r"sk-(container|estimator)-id-\d+")


def html(shown):
    """As a notebook that knows mime bundles shows it, and as others do."""
    first, second = shown._repr_mimebundle_()["text/html"], shown._repr_html_()
    assert IDS.sub("", first) == IDS.sub("", second)
    return IDS.sub("", first).replace(" class=number", "")


def raw(model, X):
    """The scores, or what is predicted, shape (n_samples, n_outputs)."""
    found = model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)
    return np.reshape(found, (len(X), -1))


# ---------------------------------------------------------------------------------- HTML


@each_reader
def test_html_shows_what_is_claimed_and_declared(name):
    model = build(name, epsilon=0.25)
    before = html(model)
    page = f"https://sklearn-dpsco.readthedocs.io/generated/sklearn_dpsco.{name}.html"
    for text in (page, "<td>0.25</td>", "<td>relation</td><td>&#x27;auto&#x27;</td>"):
        assert text in before, text
    assert "guarantee of the fit" not in before
    for key in {"bounds_X", "bounds_y", "classes"} & parameters_of(name):
        assert f"<td>{key}</td><td>declared</td>" in before
        undeclared = html(clone(model).set_params(**{key: None}))
        assert f"<td>{key}</td><td>not declared</td>" in undeclared
    after = html(model.fit(*table(name)))
    assert "epsilon = 0.25, delta = 1e-06, replace-one neighbours" in after
    assert str(model.guarantee_).startswith("NOT PRIVATE against whoever knows or guesses the seed")
    assert "not secret: random_state was given" in after
    secret = html(
        build(name, epsilon=0.25, random_state=None, max_rows_per_user=2).fit(*table(name))
    )
    assert "<td>noise</td><td>secret</td>" in secret
    assert "NOT PRIVATE" not in secret
    assert "<td>Protected are the values of any person (up to 2 rows), against" in secret
    assert "epsilon = 0.25, delta = 1e-06, replace-one neighbours" in secret
    assert "for users of up to 2 rows" in secret


@each_solver
def test_html_depends_on_the_data_by_the_releases_alone(name):
    def answer(mechanism, value, _release):
        if isinstance(mechanism, mechanisms.SelectVertex):
            return value.size // 2
        return np.full(np.shape(value), 0.01)

    def shown(seed):
        X, y = table(name, seed=seed)
        with every_release(answer):
            models = [build(name, main_form(name)).fit(X, y)]
            if hasattr(models[0], "partial_fit"):
                models.append(build(name).partial_fit(X[:50], y[:50]))
        return [html(model) for model in models]

    first, second = shown(0), shown(1)
    for fit, other in zip(first, second, strict=True):
        assert fit == other


@each_solver
def test_html_is_escaped_and_can_be_switched_off(name):
    model = build(name, relation="<script>")
    assert "<td>&#x27;&lt;script&gt;&#x27;</td>" in html(model)
    assert "<script>&#x27;" not in html(model)
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert set(model._repr_mimebundle_()) == {"text/plain"}


def test_html_of_other_estimators():
    search = DPGridSearchCV(
        build("DPMirrorRegressor"), {"feasible_set": [L2Ball(1.0)]}, epsilon=3.0
    )
    scaler = DPScaler(epsilon=2.0).fit(table("DPMirrorRegressor", n=4000)[0])
    moments = PrivateMoments(bounds_X=(-1, 1), random_state=0).fit(
        table("DPFTRLRegressor", n=4000)[0]
    )
    assert "second moments" in moments.plan_._repr_html_()
    assert "generated/sklearn_dpsco.PrivateMoments.html" in html(moments)
    encoder = PublicEncoder({"a": (0, 1)})
    assert "generated/sklearn_dpsco.DPGridSearchCV.html" in html(search)
    assert "<td>3.0</td>" in html(search)
    assert "; epsilon = 2, delta = 1e-06, replace-one neighbours" in html(scaler)
    assert "generated/sklearn_dpsco.PublicEncoder.html" in html(encoder)
    pipeline = make_pipeline(encoder, build("DPMirrorRegressor", bounds_X=encoder))
    assert "generated/sklearn_dpsco.DPMirrorRegressor.html" in html(pipeline)
    assert "<td>declared by PublicEncoder</td>" in html(pipeline[-1])


# -------------------------------------------------------------------------------- frames


@each_solver
def test_frames_predict(name):
    X, y = table(name)
    bounds = {"bounds_X": ([-1, -1, -2], [3, 0, 1])} if "bounds_X" in parameters_of(name) else {}
    model = build(name, main_form(name), **bounds).fit(columns_as(X), y)
    frame = model.coef_frame()
    assert list(frame.index) == ["a", "b", "c", "(intercept)"]
    assert list(frame.columns) == (["yes"] if is_classifier(name) else ["coef"])
    assert frame.columns.name == "for predictions, not effects"
    assert (frame.dtypes == np.float64).all()
    expected = raw(model, columns_as(X))
    values = frame.to_numpy()
    found = predictions_of(name, X @ values[:-1] + values[-1])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    middle, width = (1, 0, -0.5), (2, 1, 1.5)
    if not bounds:
        middle, width = model.center_X_, model.scale_X_
    values = model.coef_frame(units="scaled").to_numpy()
    scaled = (X - middle) / width
    found = predictions_of(name, scaled @ values[:-1] + values[-1])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    unnamed = fitted(name).coef_frame()
    assert list(unnamed.index) == ["x0", "x1", "x2", "(intercept)"]


@each
def test_frames_are_refused(name, monkeypatch):
    with pytest.raises(NotFittedError):
        build(name).coef_frame()
    model = fitted(name)
    with pytest.raises(ValueError, match="units must be one of 'data', 'scaled'"):
        model.coef_frame(units="bounds")
    with pytest.raises(ValueError, match="encoder has 1 output columns, but the model has 3"):
        model.coef_frame(PublicEncoder({"a": (0, 1)}))
    with pytest.raises(ValueError, match="encoder must be a list of names or the transformer"):
        model.coef_frame("a")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="coef_frame needs pandas"):
        model.coef_frame()


@each_classifier
def test_frames_of_several_classes(name):
    X, y = table(name, n=300, classes=("u", "v", "w"))
    model = build(name, classes=["w", "u", "v"]).fit(X, y)
    frame = model.coef_frame()
    assert list(frame.columns) == ["u", "v", "w"]
    np.testing.assert_array_equal(frame.to_numpy()[:-1].T, model.coef_)
    np.testing.assert_array_equal(frame.to_numpy()[-1], model.intercept_)


@each_regressor
def test_frames_of_several_targets(name):
    X, y = table(name, n=300)
    form = main_form(name)
    frame = build(name, form).fit(X, np.column_stack((y, -y))).coef_frame()
    assert list(frame.columns) == ["target_0", "target_1"]
    assert frame.shape == (4, 2)
    named = build(name, form).fit(X, pd.DataFrame({"u": y, "v": -y}))
    assert list(named.coef_frame().columns) == ["u", "v"]
    numbered = build(name, form).fit(X, pd.DataFrame(np.column_stack((y, -y))))  # names are no text
    assert list(numbered.coef_frame().columns) == ["target_0", "target_1"]


@each_reader
@pytest.mark.parametrize("missing", ["middle", "indicator"])
def test_frames_in_the_units_of_an_encoded_table(name, missing):
    rng = np.random.default_rng(0)
    raw_table = pd.DataFrame(
        {
            "age": rng.uniform(18, 98, 200),
            "debt": rng.uniform(0, 5e4, 200),
            "edu": rng.choice(["hs", "ba", "phd"], 200),
            "member": rng.uniform(size=200) < 0.5,
        }
    )
    schema = {"age": (18, 98), "debt": (0, 5e4), "edu": ["hs", "ba"], "member": bool}
    encoder = PublicEncoder(schema, missing=missing, unknown="other")
    y = table(name, n=200)[1]
    model = make_pipeline(encoder, build(name, random_state=3)).fit(raw_table, y)
    frame = model[-1].coef_frame(model[0])
    coef = frame.iloc[:, 0]
    assert frame.index.names == ["column", "category"]
    categories = ["hs", "ba", "other", *(["missing"] if missing == "indicator" else [])]
    assert list(coef["edu"].index) == categories
    told = raw_table["edu"].replace("phd", "other").map(coef["edu"])
    by_hand = coef["(intercept)", ""] + coef["age", ""] * raw_table["age"] + told
    by_hand += coef["debt", ""] * raw_table["debt"] + coef["member", ""] * raw_table["member"]
    by_hand = predictions_of(name, by_hand)
    np.testing.assert_allclose(by_hand, raw(model, raw_table)[:, 0], rtol=1e-9, atol=1e-9)


def test_frames_named_by_other_transformers():
    X, y = table("DPMirrorRegressor")
    scaler = StandardScaler().fit(columns_as(X))
    model = kind_of("DPMirrorRegressor")(bounds_X=(-3, 3), bounds_y=(-1, 1), random_state=0)
    model.fit(scaler.transform(columns_as(X)), y)
    frame = model.coef_frame(scaler)
    assert list(frame.index) == ["a", "b", "c", "(intercept)"]
    np.testing.assert_array_equal(frame["coef"], np.append(model.coef_, model.intercept_))


def test_frames_in_the_units_of_a_table_that_several_transformers_encode():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(18, 98, 300), "edu": rng.choice(["ba", "hs"], 300)})
    X["size"] = rng.choice(["big", "small"], 300)
    y = rng.uniform(-1, 1, 300)
    parts = [
        ("one", make_pipeline(PublicEncoder({"age": (18, 98)})), ["age"]),
        ("hot", OneHotEncoder(categories=[["big", "small"]]), ["size"]),
        ("two", PublicEncoder({"edu": ["ba", "hs"]}, drop="first"), ["edu"]),
    ]
    for both in (ColumnTransformer(parts), FeatureUnion([("all", ColumnTransformer(parts))])):
        model = DPMirrorRegressor(epsilon=50.0, bounds_X=both, bounds_y=(-1, 1), random_state=0)
        model = make_pipeline(both, model).fit(X, y)
        frame = model[-1].coef_frame()
        assert frame.equals(model[-1].coef_frame(model[0]))
        coef = frame["coef"].to_numpy()  # of a year, of two sizes, of "hs"
        by_hand = X["age"] * coef[0] + X["size"].map({"big": coef[1], "small": coef[2]})
        by_hand += (X["edu"] == "hs") * coef[3] + coef[4]
        np.testing.assert_allclose(by_hand, model.predict(X), rtol=1e-9, atol=1e-9)
    weighted = ColumnTransformer(parts, transformer_weights={"one": 2.0}).fit(X)
    assert model[-1].coef_frame(weighted).index.names == ["feature"]


def test_words_with_hyphens_are_not_broken():
    assert "-\n" not in Overview(("replace-one, " * 9,)).text()
