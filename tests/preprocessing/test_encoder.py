"""The encoder: each row by itself, within the bounds it declares, by its schema alone."""

import functools
import itertools
import json
import pickle
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted
from support import rest_is_slow

from sklearn_dpsco import DPLinearRegression, PrivacyParameterWarning, PublicEncoder, preprocessing
from sklearn_dpsco.preprocessing.encoder import filled
from sklearn_dpsco.preprocessing.schema import nice_bounds

SCHEMA = {
    "age": (18, 98),
    "income": (0, 1000.0),
    "debt": (-50, 0),
    "edu": ["hs", "ba", "ma"],
    "rooms": [1, 2, 5],
    "urban": [True, False],
    "member": bool,
}
RULES = [
    {"missing": missing, "unknown": unknown}
    for missing in ("middle", "indicator", "zero")
    for unknown in ("none", "other")
]
REFERENCES = {"edu": "ma", "rooms": np.int64(2), "urban": "first"}
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(rule.values()))
some_rules = rest_is_slow(
    "rule",
    RULES,
    ("middle-none", "indicator-other", "zero-none"),
    lambda rule: "-".join(rule.values()),
)

# cells that no schema expects, besides good ones
ODD = [
    None, np.nan, pd.NA, pd.NaT, np.inf, -np.inf, "", "12", "1e3", "x", "hs ", b"hs", 1e300, -7,
    10**400, 2**53 + 1, True, np.bool_(False), np.int8(2), 1.0, 1.5, 3 + 4j, 5 + 0j, Decimal("2"),
    Decimal("NaN"), (1, 2), [1], {"a": 1}, object(), np.array([1.0, 2.0]), pd.Timestamp("2020"),
]  # fmt: skip
GOOD = {
    "age": [18, 98, 40.5],
    "income": [0, 1000, 250.0],
    "debt": [-50, 0, -1],
    "edu": ["hs", "ba", "ma"],
    "rooms": [1, 2, 5],
    "urban": [True, False],
    "member": [True, False],
}


@functools.cache
def odd_table(seed, n):
    """A table of objects, a third of whose cells are odd, with its columns in random order."""
    rng = np.random.default_rng(seed)
    table = {}
    for name in rng.permutation(list(SCHEMA)):
        pool = [*GOOD[name] * 20, *ODD]
        cells = np.empty(n, dtype=object)
        for row in range(n):
            cells[row] = pool[rng.integers(len(pool))]
        table[name] = cells
    return pd.DataFrame(table, dtype=object)


@functools.cache
def extreme_table():
    """Every combination of good cells and gaps."""
    extreme = {name: [*cells, None] for name, cells in GOOD.items()}
    grid = pd.MultiIndex.from_product(extreme.values(), names=list(extreme))
    return grid.to_frame(index=False).astype(object)


def clean_table():
    return {
        "member": [True, False, None, True],
        "age": [18, 78, None, 200],
        "income": [0.0, 500.0, None, 1e9],
        "debt": [-50, -25, None, 3],
        "edu": ["ba", "phd", None, "hs"],
        "urban": [True, None, False, False],
        "rooms": [5, 3, None, 1],
    }


# ------------------------------------------------------------------------- each row by itself


@some_rules
def test_a_row_alone_is_encoded_as_within_the_table(rule):
    encoder = PublicEncoder(SCHEMA, **rule)
    table = odd_table(RULES.index(rule), 24)
    whole = encoder.transform(table)
    for row in range(len(table)):
        alone = encoder.transform(table.iloc[[row]])
        np.testing.assert_array_equal(alone[0], whole[row])


@some_rules
def test_an_odd_cell_changes_no_other_row(rule):
    encoder = PublicEncoder(SCHEMA, **rule)
    table = pd.DataFrame({name: cells * 4 for name, cells in GOOD.items() if len(cells) == 3})
    table["urban"], table["member"] = [True, False] * 6, [False, True] * 6
    table = table.astype(object)
    clean = encoder.transform(table)
    places = {name: row for row, name in enumerate(SCHEMA, 2)}  # each column's in a row of its own
    names = encoder.get_feature_names_out()
    for odd in ODD:
        changed = {}
        for name, row in places.items():
            cells = table[name].to_numpy(dtype=object, copy=True)
            cells[row] = odd
            changed[name] = pd.Series(cells, dtype=object)
        is_changed = encoder.transform(pd.DataFrame(changed)) != clean
        for name, row in places.items():
            assert all(found.startswith(name) for found in names[is_changed[row]])
        assert not np.delete(is_changed, list(places.values()), 0).any()


DROPS = {"all": None, "first": "first", "some": REFERENCES}


@rest_is_slow(
    ("rule", "drop"),
    itertools.product(RULES, DROPS),
    ("middle-none-all", "middle-none-some", "indicator-other-first", "zero-none-some"),
    lambda case: "-".join([*case[0].values(), case[1]]),
)
def test_outputs_lie_within_the_declared_bounds_and_norm(rule, drop):
    encoder = PublicEncoder(SCHEMA, **rule, drop=DROPS[drop])
    low, high = encoder.bounds_X
    reached = []
    for seed in range(3):
        out = encoder.transform(odd_table(seed, 100))
        assert np.all((out >= low) & (out <= high))
        reached.append(np.linalg.norm(out, axis=1).max())
    assert max(reached) <= encoder.row_norm * (1 + 1e-15)
    # every end is attained, and so is the norm
    out = encoder.transform(extreme_table())
    assert np.linalg.norm(out, axis=1).max() == pytest.approx(encoder.row_norm, rel=1e-14)
    is_reached = (out.min(axis=0) == low) & (out.max(axis=0) == high)
    names = encoder.get_feature_names_out()[~is_reached]
    assert all(name.endswith("_other") for name in names)


def test_row_norm_by_hand():
    for missing, square in (("middle", 7.0), ("zero", 7.0), ("indicator", 7 + 3 * 0.25)):
        # a half in the column of a boolean or of a number with an end at 0, and a 1
        assert PublicEncoder(SCHEMA, missing=missing).row_norm == pytest.approx(square**0.5)


# ------------------------------------------------------------------------- values


def test_values_of_each_rule():
    table = pd.DataFrame(clean_table())
    out = PublicEncoder(SCHEMA).set_output(transform="pandas").transform(table)
    assert out["age"].tolist() == [-1, 0.5, 0, 1]
    assert out["income"].tolist() == [0, 0.5, 0.5, 1]
    assert out["debt"].tolist() == [-1, -0.5, -0.5, 0]
    assert out["member"].tolist() == [1, 0, 0.5, 1]
    assert out.filter(like="edu").to_numpy().tolist() == [[0, 1, 0], [0] * 3, [0] * 3, [1, 0, 0]]
    assert out["rooms_5"].tolist() == [1, 0, 0, 0]
    assert out["urban_False"].tolist() == [0, 0, 1, 1]
    zero = PublicEncoder(SCHEMA, missing="zero", unknown="other")
    out = zero.set_output(transform="pandas").transform(table)
    assert out.iloc[2].drop(["urban_False"]).eq(0).all()
    assert out["edu_other"].tolist() == [0, 1, 0, 0]
    middle = PublicEncoder(SCHEMA, unknown="other").set_output(transform="pandas")
    assert middle.transform(table)["edu_other"].tolist() == [0, 1, 1, 0]
    flags = PublicEncoder(SCHEMA, missing="indicator", unknown="other")
    out = flags.set_output(transform="pandas").transform(table)
    for name in ("age", "income", "debt", "member", "edu", "rooms"):
        assert out[f"{name}_missing"].tolist() == [0, 0, 1, 0]
    assert out["edu_other"].tolist() == [0, 1, 0, 0]
    assert out["income"].tolist() == [0, 0.5, 0.5, 1]


def test_columns_may_come_in_any_order():
    table = pd.DataFrame(clean_table())
    encoder = PublicEncoder(SCHEMA)
    np.testing.assert_array_equal(
        encoder.transform(table), encoder.transform(table[sorted(table.columns)])
    )
    assert encoder.feature_names_in_.tolist() == list(SCHEMA)
    assert encoder.n_features_in_ == 7


@some_rules
def test_all_types_of_columns_give_the_same(rule):
    encoder = PublicEncoder(SCHEMA, **rule)
    table = pd.DataFrame(clean_table())
    expected = encoder.transform(table)
    pyarrow = {"dtype_backend": "pyarrow"} if _has("pyarrow") else {}
    text = functools.partial(pd.Series, dtype=object)
    others = [
        table.astype(object), table.convert_dtypes(), table.convert_dtypes(**pyarrow),
        table.astype({"edu": "category", "rooms": "category", "member": "category"}),
        table.assign(age=pd.Series(["18", "78", None, "200.0"], dtype=object)),
        table.assign(age=table["age"].astype("float32"), rooms=table["rooms"].astype("Int8")),
        *(table.assign(member=text([yes, no, "", yes]), urban=text([yes, None, no, no]))
          for yes, no in (("True", "False"), ("TRUE", "FALSE"), ("true", "false"))),
    ]  # fmt: skip
    for other in others:
        np.testing.assert_array_equal(encoder.transform(other), expected)
    encoder.set_params(sparse_output=True)
    found = encoder.transform(table)
    assert found.format == "csr"
    np.testing.assert_array_equal(found.toarray(), expected)


def _has(module):
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def test_categories_that_are_truth_values_are_those_also_where_a_gap_leaves_no_text():
    encoder = PublicEncoder({"flag": ["False", "True"]}, missing="indicator")
    for cells in (["True", "False", None], [True, False, None], [" true", "FALSE", pd.NA]):
        found = encoder.transform(pd.DataFrame({"flag": pd.Series(cells, dtype=object)}))
        np.testing.assert_array_equal(found, [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    # and no number, unless a reader of files has made truth values of those
    texts = PublicEncoder({"a": ["x", "1"]})
    cells = pd.Series(["true", True, "1", 1, "x"], dtype=object)
    found = texts.transform(pd.DataFrame({"a": cells}))
    np.testing.assert_array_equal(found, [[0, 1], [0, 1], [0, 1], [0, 1], [1, 0]])


@some_rules
def test_polars(rule):
    pl = pytest.importorskip("polars")
    encoder = PublicEncoder(SCHEMA, **rule)
    expected = encoder.transform(pd.DataFrame(clean_table()))
    frame = pl.DataFrame(clean_table(), strict=False)
    others = [
        frame,
        frame.with_columns(pl.col("edu").cast(pl.Categorical)),
        frame.with_columns(pl.col("edu").cast(pl.Enum(["ba", "phd", "hs"]))),
        frame.with_columns(pl.col("age").cast(pl.Float32), pl.col("rooms").cast(pl.UInt8)),
        frame.with_columns(pl.col("age").cast(pl.Decimal(10, 2))),
    ]
    for other in others:
        np.testing.assert_array_equal(encoder.transform(other), expected)
    cells = pl.Series("edu", ["ba", object(), None, "hs"], dtype=pl.Object)
    out = PublicEncoder({"edu": SCHEMA["edu"]}).transform(pl.DataFrame([cells]))
    assert out.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
    named = encoder.set_output(transform="polars").transform(frame)
    assert named.columns == encoder.get_feature_names_out().tolist()
    with pytest.raises(ValueError, match=r"column 'edu'.*String"):
        PublicEncoder({"edu": (0, 1)}).transform(frame.select("edu"))
    with pytest.raises(ValueError, match=r"column 'day'.*Date"):
        PublicEncoder({"day": (0, 1)}).transform(pl.DataFrame({"day": [pd.Timestamp("2020")]}))
    with pytest.raises(ValueError, match=r"LazyFrame: collect\(\)"):
        encoder.transform(frame.lazy())


def test_neither_pandas_nor_polars_is_imported():
    for path in Path(preprocessing.__file__).parent.glob("*.py"):
        assert not re.search(r"(?m)^\s*(import|from) (pandas|polars)", path.read_text())


# ------------------------------------------------------------------------- JSON


@each_rule
@pytest.mark.parametrize("is_sparse", [False, True])
def test_json_round_trip(rule, is_sparse):
    schema = SCHEMA | {
        "third": (np.float64(1 / 3), 1e50),
        "codes": np.array([3, 1]),
        "yes": [True],
        "text": ["1", "True", "ä", ""],
        "whole": (np.int64(-3), 7),
    }
    encoder = PublicEncoder(schema, **rule, sparse_output=is_sparse)
    back = PublicEncoder.from_json(encoder.to_json())
    expected = schema | {"third": (1 / 3, 1e50), "codes": [3, 1], "whole": (-3, 7)}
    assert back.get_params() == encoder.get_params() | {"schema": expected}
    assert list(back.schema) == list(schema)
    for name, declared in back.schema.items():
        if declared is not bool:
            assert [type(x) for x in declared] == [type(x) for x in expected[name]]
    assert back.to_json() == encoder.to_json()
    np.testing.assert_array_equal(back.get_feature_names_out(), encoder.get_feature_names_out())


def test_wrong_json():
    good = json.loads(PublicEncoder(SCHEMA).to_json())
    for change, pattern in (
        ({"format": "other"}, "format"),
        ({"version": 2}, "version"),
        ({"schema": 3}, "schema"),
        ({"missing": "mean"}, "missing"),
        ({"extra": 1}, "extra"),
        ({"schema": {"a": {"type": "date"}}}, "'a'"),
        ({"schema": {"a": {"type": "number", "low": 1, "high": 0}}}, "'a'"),
        ({"schema": {"a": {"type": "number", "low": None, "high": 0}}}, "'a'"),
    ):
        with pytest.raises(ValueError, match=pattern):
            PublicEncoder.from_json(json.dumps(good | change))
    for text in ("", "[]", "{", None, 3):
        with pytest.raises(ValueError, match="text must be JSON"):
            PublicEncoder.from_json(text)


# ------------------------------------------------------------------------- scikit-learn


def test_conventions():
    encoder = PublicEncoder(SCHEMA, missing="indicator")
    table = pd.DataFrame(clean_table())
    expected = encoder.transform(table)  # without fit
    assert encoder.fit(table) is encoder
    assert encoder.fit() is encoder
    assert vars(encoder).keys() == encoder.get_params().keys()  # nothing is learned
    np.testing.assert_array_equal(encoder.fit_transform(table), expected)
    np.testing.assert_array_equal(clone(encoder).transform(table), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).transform(table), expected)
    tags = get_tags(encoder)
    assert not tags.requires_fit
    assert tags.input_tags.allow_nan
    check_is_fitted(encoder)
    assert "PublicEncoder" in repr(encoder)
    names = encoder.get_feature_names_out(list(SCHEMA))
    assert names.tolist()[:3] == ["age", "age_missing", "income"]
    with pytest.raises(ValueError, match="columns of the schema"):
        encoder.get_feature_names_out(["age"])
    pipe = make_pipeline(encoder, "passthrough")
    np.testing.assert_array_equal(pipe.fit_transform(table), expected)
    part = make_column_transformer((PublicEncoder({"age": (18, 98)}), ["age"]))
    part.set_output(transform="pandas")
    out = part.fit(table).transform(table)
    assert out["publicencoder__age"].tolist() == [-1, 0.5, 0, 1]
    assert len(encoder.transform(table[:0])) == 0
    index = encoder.set_output(transform="pandas").transform(table.set_axis(list("abcd"))).index
    assert index.tolist() == list("abcd")
    with pytest.raises(NotFittedError):  # the check above can fail
        check_is_fitted(make_column_transformer((encoder, ["age"])))


# ------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ({}, "schema must be a dict"), (None, "schema must be a dict"), ([("a", (0, 1))], "dict"),
        ({1: (0, 1)}, "text for column names"), ({"a": (1, 0)}, "'a'.*low < high"),
        ({"a": (1, 1)}, "'a'.*low < high"), ({"a": (0, np.inf)}, "'a'.*finite"),
        ({"a": (0, np.nan)}, "'a'"), ({"a": (0, 1, 2)}, "'a'"), ({"a": ("x", "y")}, "'a'.*a list"),
        ({"a": ("0", "1")}, "'a'"), ({"a": (False, True)}, "'a'"), ({"a": (0, 1e51)}, "'a'"),
        ({"a": []}, "'a'.*one category or more"), ({"a": [["x"], ["y"]]}, "'a'"),
        ({"a": ["x", 1]}, "'a'.*one type"), ({"a": [1, True]}, "'a'.*one type"),
        ({"a": [1.5, 2.5]}, "'a'.*one type.*a tuple"), ({"a": [None]}, "'a'.*one type"),
        ({"a": ["x", "x"]}, "'a'.*once"), ({"a": [1, 2, 1]}, "'a'.*once"),
        ({"a": [2**53]}, "2\\^53"), ({"a": "bool"}, "'a' *\\]? must be|'a'"), ({"a": int}, "'a'"),
        ({"a": 3}, "'a'"), ({"a": {"low": 0}}, "'a'"),
        ({"a": ["b"], "a_b": (0, 1)}, "same name"),
    ],
)  # fmt: skip
def test_bad_schemas(schema, pattern):
    encoder = PublicEncoder(schema)
    table = pd.DataFrame({"a": [0.5]})
    with_table = lambda: encoder.fit(table), lambda: encoder.transform(table)
    facts = encoder.get_feature_names_out, lambda: encoder.bounds_X, encoder.declared_output
    for call in (*with_table, *facts, encoder.to_json):
        with pytest.raises(ValueError, match=pattern):
            call()
    assert not hasattr(encoder, "bounds_X")
    assert "transform" in dir(encoder)
    assert encoder._repr_html_()


def test_bad_parameters():
    bad = ("missing", "mean"), ("missing", None), ("unknown", "error"), ("sparse_output", 1)
    bad += ("unknown", {"age": "other"}), ("unknown", {"edu": "drop"})
    for parameters, name in (({name: value}, name) for name, value in bad):
        with pytest.raises(ValueError, match=name):
            PublicEncoder(SCHEMA, **parameters).fit()
    with pytest.raises(ValueError, match=r"same name.*a_other"):
        PublicEncoder({"a": ["other"]}, unknown="other").fit()
    with pytest.raises(ValueError, match=r"same name.*a_missing"):
        PublicEncoder({"a": ["missing"]}, missing="indicator").fit()


def test_bad_tables():
    encoder = PublicEncoder({"a": (0, 1), "b": ["x"]})
    good = pd.DataFrame({"a": [0.5], "b": ["x"]})
    for table, pattern in (
        (good[["a"]], "'b'.*are missing"), (good.assign(c=1), "'c'.*not in the schema"),
        (good.rename(columns={"a": "A"}), "'a'.*missing.*'A'"), (good[["a", "b", "b"]], "once"),
        (good.to_numpy(), "data frame.*ndarray"), (sparse.eye(2, format="csr"), "data frame"),
        ([[0.5, "x"]], "data frame"), ({"a": [1], "b": ["x"]}, "data frame"), (good["a"], "Series"),
        (None, "data frame"), (good.assign(a="text").astype({"a": "string"}), "column 'a'.*string"),
        (good.assign(a=pd.Timestamp("2020")), "column 'a'.*datetime"),
        (good.assign(b=3), "column 'b'.*int"), (good.assign(b=True), "column 'b'.*bool"),
        (good.assign(a=good["b"].astype("string").astype("category")), "column 'a'.*category"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=pattern):
            encoder.transform(table)
    with pytest.raises(ValueError, match="'b'"):
        encoder.fit(good[["a"]])
    numbers = PublicEncoder({"a": [1, 2]})
    with pytest.raises(ValueError, match="column 'a'"):
        numbers.transform(good.assign(a="1").astype({"a": "string"})[["a"]])


# ------------------------------------------------------------------------- proposals


def test_proposal_from_a_public_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "age": rng.integers(18, 97, 300), "score": rng.uniform(-0.83, 0.4, 300),
        "edu": rng.choice(["hs", "ba"], 300), "rooms": rng.integers(1, 5, 300),
        "member": rng.uniform(size=300) > 0.5, "flag": pd.Series([True, None] * 150, dtype=object),
        "one": 5.0,
    })  # fmt: skip
    encoder = PublicEncoder.from_public(table, missing="indicator")
    assert encoder.schema == {
        "age": (10, 100), "score": (-1.0, 0.4), "edu": ["ba", "hs"], "rooms": [1, 2, 3, 4],
        "member": bool, "flag": bool, "one": (4, 6),
    }  # fmt: skip
    assert encoder.missing == "indicator"
    out = encoder.transform(table)
    assert np.abs(out).max() <= 1
    pl = pytest.importorskip("polars")
    columns = {name: table[name].to_list() for name in table}
    assert PublicEncoder.from_public(pl.DataFrame(columns)).schema == encoder.schema
    for column, pattern in (
        ([pd.Timestamp("2020")] * 2, "day.*datetime"),
        ([None, None], "day.*no values"),
        ([f"name {k}" for k in range(21)], "day.*21 categories"),
    ):
        with pytest.raises(ValueError, match=pattern):
            PublicEncoder.from_public(pd.DataFrame({"day": column}))
    with pytest.raises(ValueError, match="max_categories"):
        PublicEncoder.from_public(table, max_categories=0)
    with pytest.raises(ValueError, match="data frame"):
        PublicEncoder.from_public([[1]])


def test_nice_bounds_hold_the_values():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        low, high = np.sort(rng.standard_normal(2) * 10.0 ** rng.integers(-9, 9, 2))
        first, last = nice_bounds(low, high)
        assert first <= low < high <= last
        assert last - first <= 1.9 * (high - low)
    for value in (0.0, 5.0, -1e-9, 1e40):
        first, last = nice_bounds(value, value)
        assert first < value < last


def test_a_list_that_is_meant_as_bounds_is_named():
    for declared in ([18, 98], np.array([18, 98])):
        with pytest.warns(PrivacyParameterWarning, match=r"write a tuple, \(18, 98\)"):
            PublicEncoder({"age": declared}).fit()


def test_a_column_that_stands_twice_is_named():
    frame = pd.DataFrame(np.zeros((2, 2)), columns=["u", "u"])
    with pytest.raises(ValueError, match=r"\['u'\] stand twice"):
        PublicEncoder({"u": (0, 1)}).transform(frame)


def test_dates_are_told_to_become_days():
    pl = pytest.importorskip("polars")
    table = pd.DataFrame({"admitted": pd.date_range("2021-01-01", periods=4)})
    advice = re.escape("since a public date, such as (table['admitted'] - pd.Timestamp(")
    texts = "2020-01-01", "2023-12-31"
    kinds = (str, pd.Timestamp, date.fromisoformat, np.datetime64, lambda s: np.datetime64(s, "ns"))
    for kind in kinds:
        with pytest.raises(ValueError, match=f"two finite numbers.*{advice}"):
            PublicEncoder({"admitted": tuple(map(kind, texts))}).fit(table)
    encoder = PublicEncoder({"admitted": (0, 1460)})
    frames = [table, table.astype("datetime64[s]"), pl.DataFrame({"admitted": [date(2021, 1, 1)]})]
    frames += [table.apply(lambda c: c.dt.tz_localize("UTC")), pl.DataFrame(table)]
    frames += [table.astype("timestamp[ns][pyarrow]"), table.astype("date32[pyarrow]")]
    for frame in frames:
        with pytest.raises(ValueError, match=f"does not go with.*{advice}"):
            encoder.transform(frame)
        with pytest.raises(ValueError, match=f"no schema describes.*{advice}"):
            PublicEncoder.from_public(frame)
    model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1))
    for frame in frames[:5]:
        with pytest.raises(ValueError, match=f"Date data.*{advice}"):
            model.fit(frame, np.zeros(len(frame)))
    times = table - table.iloc[0]
    for frame in (times, times.astype("duration[ns][pyarrow]"), pl.DataFrame(times)):
        with pytest.raises(ValueError, match=r"column: table\['admitted'\]\.dt\.days are days"):
            encoder.transform(frame)
    with pytest.raises(ValueError, match=r"convert the column \(.*, dates by pandas.to_datetime\)"):
        encoder.transform(table.astype(str))
    days = (table["admitted"] - pd.Timestamp("2020-01-01")).dt.days  # as the message says
    np.testing.assert_allclose(encoder.transform(days.to_frame())[:, 0], days / 1460)


def test_bounds_of_the_table_behind_an_encoder_are_found_out():
    table = pd.DataFrame({"age": np.linspace(18, 90, 3000)})
    encoder, bounds = PublicEncoder({"age": (18, 90)}), {"age": (18, 90)}
    facts = {"bounds_X": bounds, "bounds_y": (18, 90), "random_state": 0}
    model = DPLinearRegression(epsilon=3.0, **facts)
    with pytest.raises(ValueError, match=r"Behind a PublicEncoder say bounds_X=encoder"):
        make_pipeline(encoder, model).fit(table, table["age"])
    encoder.set_output(transform="pandas")  # of which 18 is the largest number that there is
    with pytest.warns(PrivacyParameterWarning, match=r"Behind a PublicEncoder bounds_X=encoder"):
        make_pipeline(encoder, model).fit(table, table["age"])
    model = DPLinearRegression(epsilon=3.0, **facts | {"bounds_X": encoder, "bounds_y": (1, 19)})
    with pytest.warns(PrivacyParameterWarning, match=r"of the target may .* a bound\?$"):
        make_pipeline(encoder, model).fit(table, table["age"])


def test_codes_are_not_declared_as_text_nor_texts_as_flags():
    table = pd.DataFrame({"code": [1.0, np.nan, 2.0], "member": ["no", "yes", "no"]})
    with pytest.raises(ValueError, match=r"or better declare a list of its numbers"):
        PublicEncoder({"code": ["1", "2"]}, extra="drop").transform(table)  # str(1.0) is "1.0"
    for declared in ((0, 1), bool, [0, 1]):
        with pytest.raises(ValueError, match=r"to_numeric\(table\['member'\], .*declare a list of"):
            PublicEncoder({"member": declared}, extra="drop").transform(table)
    schema = {"code": [1, 2], "member": ["no", "yes"]}  # as the messages say
    assert PublicEncoder(schema).transform(table)[:, :2].tolist() == [[1, 0], [0, 0], [0, 1]]


def test_columns_of_intervals_and_periods_do_not_count_as_missing():
    ages = pd.DataFrame({"age": [10, 30, 60]})
    cut = ages.apply(pd.cut, bins=[0, 20, 100])
    spans = [cut, ages.set_index(pd.interval_range(0, 3)).index.to_frame(name="age")]
    spans += [pd.DataFrame({"age": pd.period_range("2020-01", periods=3, freq="M")})]
    for frame in spans:
        for declared in ((0, 100), ["(0, 20]", "(20, 100]"], bool):
            with pytest.raises(ValueError, match=r"does not go with"):
                PublicEncoder({"age": declared}).transform(frame)
    with pytest.raises(ValueError, match=r"category of interval.*labels=.* makes text"):
        PublicEncoder({"age": ["(0, 20]", "(20, 100]"]}).transform(cut)


def test_columns_beside_the_schema():
    table = pd.DataFrame({"age": [20.0, 60.0], "id": ["k", "l"]})
    schema = {"age": (0, 100)}
    with pytest.raises(ValueError, match=r"not in the schema.*extra='drop'.*list\(encoder.schema"):
        PublicEncoder(schema).transform(table)
    encoder = PublicEncoder(schema, extra="drop")
    np.testing.assert_array_equal(encoder.fit_transform(table), [[0.2], [0.6]])
    assert PublicEncoder.from_json(encoder.to_json()).extra == "drop"
    with pytest.raises(ValueError, match="extra must be"):
        PublicEncoder(schema, extra="keep").fit()
    with pytest.raises(ValueError, match="are missing"):
        encoder.transform(table[["id"]])


def test_a_rule_for_missing_cells_of_each_column():
    table = pd.DataFrame({"age": [np.nan], "pay": [np.nan], "edu": [None]})
    schema = {"age": (0, 100), "pay": (0, 10), "edu": ["hs", "ba"]}
    encoder = PublicEncoder(schema, missing={"age": "indicator", "pay": "zero"})
    assert encoder.get_feature_names_out().tolist() == [
        "age", "age_missing", "pay", "edu_hs", "edu_ba",
    ]  # fmt: skip
    np.testing.assert_array_equal(encoder.transform(table), [[0.5, 1, 0, 0, 0]])
    again = PublicEncoder.from_json(encoder.to_json())
    assert again.missing == encoder.missing
    assert again.bounds_X[1].tolist() == encoder.bounds_X[1].tolist()
    for wrong in ({"agee": "zero"}, {"age": "mean"}):
        with pytest.raises(ValueError, match="missing"):
            PublicEncoder(schema, missing=wrong).fit()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_public_number_stands_for_what_is_missing(is_sparse):
    fills = {"age": np.int64(30), "income": 0, "debt": np.float32(-12.5), "member": 0.25}
    encoder = PublicEncoder(SCHEMA, missing=fills, sparse_output=is_sparse)
    plain = PublicEncoder(SCHEMA, sparse_output=is_sparse)
    table = pd.DataFrame(clean_table())
    filled = table.astype(object)
    for name in ("age", "income", "debt"):
        filled.loc[2, name] = fills[name]
    found, expected = encoder.fit().transform(table), plain.transform(filled)
    if is_sparse:
        found, expected = found.toarray(), expected.toarray()
    names = plain.get_feature_names_out().tolist()
    assert found[2, names.index("member")] == 0.25
    expected[2, names.index("member")] = 0.25  # no cell is a quarter
    np.testing.assert_array_equal(found, expected)
    # what is declared stays
    assert encoder.row_norm == plain.row_norm
    np.testing.assert_array_equal(encoder.bounds_X, plain.bounds_X)
    assert encoder.get_feature_names_out().tolist() == names
    again = PublicEncoder.from_json(encoder.to_json())
    assert again.missing == clone(encoder).missing == fills
    np.testing.assert_array_equal(again.bounds_X, plain.bounds_X)


@pytest.mark.parametrize("end", [18, 98])
def test_a_missing_number_may_be_an_end_of_its_bounds(end):
    encoder = PublicEncoder({"age": (18, 98)}, missing={"age": end}, outside="missing")
    out = encoder.transform(pd.DataFrame({"age": [None, 17.9, np.inf, 58]}))
    assert out[:, 0].tolist() == [(end - 58) / 40] * 3 + [0]
    assert encoder.row_norm == 1


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ({"age": 17.9}, r"missing\['age'\] must be a finite number in \[18, 98\], got 17.9"),
        ({"age": 10**400}, r"missing\['age'\] must be a finite number in \[18, 98\]"),
        ({"age": np.nan}, r"missing\['age'\] must be a finite number in .*, got nan"),
        ({"age": True}, r"missing\['age'\] must be a finite number in .*, got True"),
        ({"age": np.bool_(True)}, r"missing(\['age'\])? must be one of"),
        ({"age": "30"}, r"missing(\['age'\])? must be one of"),
        ({"member": 2}, r"missing\['member'\] must be a finite number in \[0, 1\], got 2"),
        ({"edu": 1.0}, r"missing\['edu'\] must be a name.*list of categories; got the number 1.0"),
        ({"rooms": 1}, r"missing\['rooms'\] must be a name.*list of categories; got the number 1"),
        (30.0, r"missing must be a dict \{column: number\} .*, got 30.0"),
        (np.nan, r"missing must be a dict \{column: number\} .*, got nan"),
        (True, "missing must be one of .*, got True"),
    ],
)
def test_wrong_numbers_for_what_is_missing(missing, message):
    with pytest.raises(ValueError, match=message):
        PublicEncoder(SCHEMA, missing=missing).fit()


def test_what_the_page_says_of_missing_values():
    fair = pytest.importorskip("statsmodels.datasets").fair
    table = fair.load_pandas().data[["age", "children", "educ", "yrs_married"]]
    years = table.pop("yrs_married")
    table["age"] = table["age"].mask(np.random.default_rng(0).random(len(table)) < 0.05)
    schema, truth = {"age": (18, 100), "children": (0, 10), "educ": (8, 22)}, 0.748
    model = DPLinearRegression(epsilon=2.0, bounds_y=(0, 60), inference=True, random_state=1)

    def ends(missing, target=years, **settings):
        encoder = PublicEncoder(schema, missing=missing)
        fit = clone(model).set_params(bounds_X=encoder, **settings)
        fit.fit(encoder.transform(table), target)
        return fit.conf_int(encoder=encoder).loc["age", ["lower", "upper"]].tolist()

    assert ends("middle")[1] < 0.4
    for missing in ({"age": 30.0}, {"age": "indicator"}):
        low, high = ends(missing)
        assert (low + high) / 2 == pytest.approx(truth, abs=0.05)
    complete = years.mask(table["age"].isna())
    for kept in (ends("keep", nonfinite="zero"), ends({"age": 30.0}, complete, nonfinite="zero")):
        low, high = kept
        assert low < truth < high < low + 0.08
    with pytest.raises(ValueError, match="nonfinite='zero'"):
        ends("keep")


def test_what_is_missing_may_be_kept():
    table, filled = pd.DataFrame(clean_table()), PublicEncoder(SCHEMA, missing="indicator")
    encoder = PublicEncoder(SCHEMA, missing="keep")
    out, names = encoder.transform(table), filled.get_feature_names_out().tolist()
    marked = dict(zip(names, filled.transform(table).T, strict=True))
    for name, column in zip(encoder.get_feature_names_out(), out.T, strict=True):
        is_missing = marked[f"{name.partition('_')[0]}_missing"] == 1
        np.testing.assert_array_equal(np.isnan(column), is_missing)
        np.testing.assert_array_equal(column[~is_missing], marked[name][~is_missing])
    assert 0 < np.isnan(out).sum() < out.size
    compact = PublicEncoder(SCHEMA, missing="keep", sparse_output=True).transform(table)
    np.testing.assert_array_equal(compact.toarray(), out)
    assert (compact.indices.dtype, compact.indptr.dtype) == (np.int32, np.int32)
    assert PublicEncoder.from_json(encoder.to_json()).missing == "keep"
    assert encoder.row_norm == PublicEncoder(SCHEMA).row_norm


@pytest.mark.parametrize("missing", ["middle", "indicator", "zero"])
def test_numbers_out_of_their_bounds_are_missing_if_that_is_the_rule(missing):
    schema = {"age": (18, 98), "income": (0, 10), "edu": ["hs"], "ok": bool}
    codes = pd.DataFrame({"age": [-1, 999, 18, 98], "income": [11.0, 0, 10, -1e-9]})
    table = codes.assign(edu="hs", ok=True)
    gaps = codes.where([[False, False], [False, True], [True, True], [True, False]])
    encoder = PublicEncoder(schema, missing=missing, outside="missing")
    clips = PublicEncoder(schema, missing=missing)
    expected = clips.transform(gaps.assign(edu="hs", ok=True))
    np.testing.assert_array_equal(encoder.transform(table), expected)
    assert encoder.row_norm == clips.row_norm
    copy = PublicEncoder.from_json(encoder.to_json())
    np.testing.assert_array_equal(copy.transform(table), expected)
    one = encoder.set_params(outside={"income": "missing"}).transform(table)
    np.testing.assert_array_equal(one[:, 0], clips.transform(table)[:, 0])
    for bad in ("drop", {"age": "drop"}, {"edu": "none"}, {"ok": "clip"}, {"no": "clip"}):
        with pytest.raises(ValueError, match="outside"):
            encoder.set_params(outside=bad).transform(table)


@pytest.mark.parametrize("missing", ["middle", "indicator", "zero", "keep"])
def test_codes_that_are_not_declared_are_missing_if_that_is_the_rule(missing):
    table = pd.DataFrame({"sector": [1, 9, 2, None], "union": ["N", "Y", "?", None]})
    gaps = pd.DataFrame({"sector": [1, None, 2, None], "union": ["N", "Y", None, None]})
    encoder = PublicEncoder(
        {"sector": [1, 2, 3], "union": ["N", "Y"]}, missing=missing, drop="first"
    )
    expected = encoder.transform(gaps)
    for outside in ("missing", {"sector": "missing", "union": "missing"}):
        encoder.set_params(outside=outside)
        np.testing.assert_array_equal(encoder.transform(table), expected)
        again = PublicEncoder.from_json(encoder.to_json())
        np.testing.assert_array_equal(again.transform(table), expected)
    # what counts as the reference is told apart
    assert bool(filled(encoder)[0]) == (missing in ("middle", "zero"))
    encoder.set_params(unknown={"sector": "other"})
    with pytest.raises(ValueError, match="unknown gives a column to the same cells"):
        encoder.fit()
    other = encoder.set_params(outside="missing").transform(table)
    assert other[1, encoder.get_feature_names_out().tolist().index("sector_other")] == 1


# ------------------------------------------------------------------------- references


@pytest.mark.parametrize(
    ("drop", "columns"),
    [("first", [1, 2]), ({"edu": "ba"}, [0, 2]), ({"edu": "first"}, [1, 2]), ({}, [0, 1, 2])],
)
@each_rule
def test_a_reference_has_no_column_and_nothing_else_changes(rule, drop, columns):
    table = pd.DataFrame({"edu": ["hs", "ba", "ma", "phd", None]})
    whole = PublicEncoder({"edu": SCHEMA["edu"]}, **rule)
    encoder = PublicEncoder(whole.schema, **rule, drop=drop)
    columns = [*columns, *range(3, whole.bounds_X[0].size)]
    out = encoder.transform(table)
    np.testing.assert_array_equal(out, whole.transform(table)[:, columns])
    names = whole.get_feature_names_out()[columns]
    np.testing.assert_array_equal(encoder.get_feature_names_out(), names)
    again = PublicEncoder.from_json(encoder.to_json())
    np.testing.assert_array_equal(again.transform(table), out)


def test_rules_of_any_mapping_travel():
    rules = {"missing": {"age": "middle"}, "outside": {"age": "missing"}}
    frozen = {name: MappingProxyType(rule) for name, rule in rules.items()}
    again = PublicEncoder.from_json(PublicEncoder(SCHEMA, **frozen).to_json())
    assert (again.missing, again.outside) == tuple(rules.values())


def test_a_dict_says_of_which_lists_undeclared_categories_have_a_column():
    encoder = PublicEncoder(SCHEMA, unknown={"edu": "other"}, drop="first")
    names = encoder.get_feature_names_out().tolist()
    assert [name for name in names if name.endswith("_other")] == ["edu_other"]
    again = PublicEncoder.from_json(encoder.to_json())
    assert again.get_params() == encoder.get_params()
    # the others count as the reference, of which a summary tells
    assert filled(encoder)[0] == ["rooms: 1", "urban: True"]
    assert filled(PublicEncoder(SCHEMA))[0] == filled((0, 1))[0] == []


def test_references_of_integers_and_booleans_travel():
    encoder = PublicEncoder(SCHEMA, drop=REFERENCES)
    again = PublicEncoder.from_json(encoder.to_json())
    assert again.drop == REFERENCES
    assert again.get_feature_names_out().tolist() == [
        "age", "income", "debt", "edu_hs", "edu_ba", "rooms_1", "rooms_5", "urban_False", "member",
    ]  # fmt: skip
    older = json.loads(PublicEncoder(SCHEMA).to_json())
    del older["drop"]
    assert PublicEncoder.from_json(json.dumps(older)).drop is None


@pytest.mark.parametrize(
    ("drop", "message"),
    [
        ("last", "drop must be one of"), (True, "drop must be one of"), (["hs"], "drop must be"),
        ({"age": "first"}, r"drop has columns.*'age'"), ({"no": "first"}, "drop has columns"),
        ({"edu": "phd"}, r"drop\['edu'\] must be 'first' or one of"), ({"edu": None}, "drop"),
        ({"edu": np.zeros(2)}, "drop"), ({"one": "x"}, r"drop leaves no column of schema\['one'\]"),
        ("first", r"drop leaves no column of schema\['one'\]"),
    ],
)  # fmt: skip
def test_wrong_references(drop, message):
    with pytest.raises(ValueError, match=message):
        PublicEncoder(SCHEMA | {"one": ["x"]}, drop=drop).fit()


def test_a_last_step_says_that_a_table_has_to_be_encoded():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": [20.0, 70.0] * 500, "sex": ["m", "f", "f", "m"] * 250})
    encoder = PublicEncoder({"age": (18, 80), "sex": ["m", "f"]}, drop="first")
    fitted = DPLinearRegression(epsilon=9.0, bounds_X=encoder, bounds_y=(0, 99), random_state=0)
    model = make_pipeline(encoder, fitted).fit(table, table["age"])
    with pytest.raises(ValueError, match=r"pipeline\[:-1\].transform\(X\)"):
        model[-1].predict(table)
    assert model[-1].predict(model[:-1].transform(table)).shape == (1000,)
