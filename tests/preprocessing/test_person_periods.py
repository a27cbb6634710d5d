"""Rows of persons and periods: who is at risk when, and that a row is a function of its person."""

from io import StringIO

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sklearn_dpsco import person_periods

NAN = np.nan
GRID = [0, 2, 4, 8]


def table_of(times, events, **columns):
    return pd.DataFrame({"time": times, "event": events, **columns})


@pytest.mark.parametrize(
    ("time", "event", "discrete", "exact", "at_risk"),
    [
        (0, True, [1, NAN, NAN], [NAN] * 3, [0, 0, 0]),
        (0, False, [NAN] * 3, [NAN] * 3, [0, 0, 0]),
        (0.5, True, [1, NAN, NAN], [1, NAN, NAN], [0.5, 0, 0]),
        (0.5, False, [NAN] * 3, [0, NAN, NAN], [0.5, 0, 0]),
        (1, False, [0, NAN, NAN], [0, NAN, NAN], [1, 0, 0]),
        (2, True, [1, NAN, NAN], [1, NAN, NAN], [2, 0, 0]),
        (2, False, [0, NAN, NAN], [0, NAN, NAN], [2, 0, 0]),
        (5, True, [0, 0, 1], [0, 0, 1], [2, 2, 1]),
        (5, False, [0, 0, NAN], [0, 0, 0], [2, 2, 1]),
        (6, 0, [0, 0, 0], [0, 0, 0], [2, 2, 2]),
        (8, 1, [0, 0, 1], [0, 0, 1], [2, 2, 4]),
        (9, 1, [0, 0, 0], [0, 0, 0], [2, 2, 4]),
        (-1, True, [NAN] * 3, [NAN] * 3, [0, 0, 0]),
        (NAN, True, [NAN] * 3, [NAN] * 3, [0, 0, 0]),
        (np.inf, False, [NAN] * 3, [NAN] * 3, [0, 0, 0]),
        (5, 2, [NAN] * 3, [NAN] * 3, [0, 0, 0]),
        (5, None, [NAN] * 3, [NAN] * 3, [0, 0, 0]),
        ("soon", True, [NAN] * 3, [NAN] * 3, [0, 0, 0]),
    ],
)
def test_who_is_at_risk(time, event, discrete, exact, at_risk):
    table = table_of(np.array([time, 3], dtype=object), np.array([event, False], dtype=object))
    rows = person_periods(table, "time", "event", periods=GRID)
    np.testing.assert_array_equal(rows["event"][:3], discrete)
    rows = person_periods(table, "time", "event", periods=GRID, exposure=True)
    np.testing.assert_array_equal(rows["event"], [*exact, 0, 0, NAN])
    np.testing.assert_array_equal(rows["exposure"], [*at_risk, 2, 1, 0])


def test_rows_say_whose_and_which_they_are():
    table = table_of([3.0, 1.0], [1, 0], age=[60, 40], name=["a", "b"])
    rows = person_periods(table, "time", "event", periods=[0, 0.5, 2], person="name")
    expected = {
        "age": [60, 60, 40, 40],
        "person": ["a", "a", "b", "b"],
        "period": [1, 2, 1, 2],
        "start": [0, 0.5, 0, 0.5],
        "stop": [0.5, 2, 0.5, 2],
        "event": [0.0, 0.0, 0.0, NAN],
    }
    pd.testing.assert_frame_equal(rows, pd.DataFrame(expected))
    new = person_periods(table[["age"]], periods=[0, 0.5, 2])
    assert list(new.columns) == ["age", "person", "period", "start", "stop"]
    assert new["person"].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("exposure", [False, True])
def test_a_person_moves_no_row_of_another_one(exposure):
    rng = np.random.default_rng(0)
    times = rng.exponential(6, 50).astype(object)
    events = (rng.random(50) < 0.7).astype(object)
    given = {"periods": GRID, "exposure": exposure}
    rows = person_periods(table_of(times, events), "time", "event", **given)
    others = rows["person"] != 7
    for time, event in [(-3, 1), (1e300, 0), ("x", None), (None, 7), (2, "yes"), (0, 1)]:
        times[7], events[7] = time, event
        found = person_periods(table_of(times, events), "time", "event", **given)
        pd.testing.assert_frame_equal(found[others], rows[others])
        assert (found.dtypes == rows.dtypes).all()
    # nor by the type that one odd cell gives its column in a file
    file = table_of(times, events).to_csv(index=False)
    found = person_periods(pd.read_csv(StringIO(file)), "time", "event", **given)
    pd.testing.assert_frame_equal(found[others], rows[others])


def test_rates_and_products_are_those_of_the_field():
    rng = np.random.default_rng(0)
    times, events = rng.integers(1, 9, 400), rng.random(400) < 0.6
    table = table_of(times, events)
    rows = person_periods(table, "time", "event", periods=range(9), exposure=True)
    assert rows["exposure"].sum() == times.sum()
    assert rows["event"].sum() == events.sum()
    # all leave at ends of periods: hazards are those of the product-limit estimate
    hazards = person_periods(table, "time", "event", periods=range(9)).groupby("period")["event"]
    product = [np.mean(events[times >= t] & (times[times >= t] == t)) for t in range(1, 9)]
    np.testing.assert_allclose(hazards.mean(), product)


def test_strict_errors_quote_nothing():
    table = table_of([3.0, -1.25], [1, 0])
    with pytest.raises(ValueError, match="nonfinite='zero'") as raised:
        person_periods(table, "time", "event", periods=GRID, nonfinite="raise")
    assert "1.25" not in str(raised.value)
    valid = person_periods(table[:1], "time", "event", periods=GRID, nonfinite="raise")
    assert len(valid) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"periods": [1, 2]}, "from 0"),
        ({"periods": [0, 2, 2]}, "increasing"),
        ({"periods": [0]}, "begin and end"),
        ({"periods": 3}, "begin and end"),
        ({"periods": [0, np.nan]}, "finite"),
        ({"duration": None}, "go together"),
        ({"event": None}, "go together"),
        ({"duration": None, "event": None, "exposure": True}, "all three out of new persons"),
        ({"duration": "days"}, "no column 'days'"),
        ({"duration": pd.Series([1.0])}, "must be names of columns"),
        ({"duration": "span"}, "timedelta"),
        ({"duration": "seen"}, "'seen' holds booleans.* is it the event"),
        ({"event": "day"}, "numbers or booleans"),
        ({"table": table_of([1], [1], stop=[2])}, "'stop', which the result needs"),
        ({"table": {"time": [1], "event": [1]}}, "pandas.DataFrame, got dict$"),
        ({"table": pl.DataFrame({"time": [1], "event": [1]})}, r"give table.to_pandas\(\)"),
        ({"table": pd.concat([table_of([1], [1])] * 2, axis=1)}, "several columns 'time'"),
        ({"nonfinite": "drop"}, "nonfinite"),
        ({"exposure": 1}, "exposure"),
    ],
)
def test_what_is_wrong_is_said(change, message):
    span = pd.to_timedelta([1], unit="D")
    table = table_of([1.0], [1], span=span, seen=[True], day=pd.Timestamp("2020-01-01") + span)
    given = {"table": table, "duration": "time", "event": "event", "periods": GRID} | change
    with pytest.raises(ValueError, match=message):
        person_periods(given.pop("table"), **given)
