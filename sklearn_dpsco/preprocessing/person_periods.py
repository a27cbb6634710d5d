"""Times to an event as a table with a row for each person and period."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import check_bool, check_choice, import_pandas, shown
from .._types import AnyArray, Array, Nonfinite
from ..data.bounds import check_numbers
from ..data.cells import check_in_memory
from .schema import read_column


def person_periods(
    table: Any,
    duration: str | None = None,
    event: str | None = None,
    *,
    periods: Any,
    person: str | None = None,
    exposure: bool = False,
    nonfinite: Nonfinite = "zero",
) -> Any:
    r"""A row for each person and period, for models of the time to an event.

    A logistic regression of such rows is the discrete-time hazard model: the probability of the
    event in a period, of those who are at risk in it. A Poisson regression with the time at risk as
    its exposure (``exposure=True``) is the piecewise exponential model, whose rate ratios are
    hazard ratios. Each person gets a row for *every* period, also after the event: rows
    that stopped with the person would publish the durations. Rows of periods in which a person is
    not at risk have NaN for their outcome, and a fit with ``nonfinite="zero"`` counts them as empty
    records.

    A person followed until t, from 0, is at risk in the period (a, b]

    * of the logistic model, if the event was in it, a < t <= b, outcome 1, or if the person was
      followed without it for half of the period, t >= (a + b) / 2, outcome 0;
    * of the Poisson one, if t > a, with exposure min(t, b) - a, and outcome 1 if the event was in
      it. This is exact, whenever persons are censored.

    An event at time 0 is in the first period, without exposure. Durations beyond the last end are
    censored there.

    Parameters
    ----------
    table : pandas.DataFrame
        A row for each person.
    duration : str or None, default=None
        The column of the times from 0 to the event or to the end of the observation, numbers of at
        least 0 in the units of `periods`. It is not in the result. None: all periods of all
        persons, without outcomes, for `survival_curve`.
    event : str or None, default=None
        The column that says whether the event was seen at that time (1 or True) or the person was
        censored (0 or False). In the result it is the outcome of the row. Given with `duration`.
        Codes 1 and 2, or words, must be turned into these before: a 2 is invalid, and so is a word.
    periods : array-like of shape (n_periods + 1,)
        Where they begin and end, increasing from 0: ``[0, 30, 60, 90]`` are three. They are public:
        never take them from the table. One more costs little noise.
    person : str or None, default=None
        A column with names of persons, for `groups`. Persons with several rows in the table have as
        many times more rows than `max_rows_per_user` counts, and what is beyond is left out. None:
        the number of the row, from 0.
    exposure : bool, default=False
        Whether rows are for the Poisson model.
    nonfinite : {"zero", "raise"}, default="zero"
        What is done with a person whose duration is missing, infinite, negative or no number, or
        whose event is missing or not 0 or 1. "zero" makes all rows of the person empty, and nothing
        shows it. "raise" raises a `ValueError`, which tells one bit of the data that lies outside
        the guarantee of a fit.

    Returns
    -------
    pandas.DataFrame of n_persons * n_periods rows
        Those of a person one after the other, with the other columns of the table as they were,
        and "person", for `groups`; "period", 1, 2, ...; "start" and "stop", its ends; with
        durations the outcome under the name of `event`, 1, 0 or NaN; and with ``exposure=True``
        "exposure", 0 where not at risk.

    Raises
    ------
    ValueError
        If a parameter is wrong, a column is missing, holds no numbers by its type, or has a name
        that the result needs, or as `nonfinite` says. No message quotes a cell.

    Notes
    -----
    Guarantee: none is needed. A row is a function of the record of its person and of
    public facts, and how many rows there are of a person depends on nothing else. A fit with
    ``groups=rows["person"]`` and ``max_rows_per_user`` the number of periods is private for the
    table of persons.

    References
    ----------
    That half of a period counts as the whole, which leaves little bias where persons are censored
    within periods, is the rule of Gensheimer and Narasimhan, "A scalable discrete-time survival
    model for neural networks", PeerJ 7 (2019), e6257.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpsco import person_periods
    >>> table = pd.DataFrame({"age": [61, 48], "days": [40, 75], "died": [True, False]})
    >>> person_periods(table, "days", "died", periods=[0, 30, 60, 90])
       age  person  period  start  stop  died
    0   61       0       1      0    30   0.0
    1   61       0       2     30    60   1.0
    2   61       0       3     60    90   NaN
    3   48       1       1      0    30   0.0
    4   48       1       2     30    60   0.0
    5   48       1       3     60    90   0.0
    >>> rows = person_periods(table, "days", "died", periods=[0, 30, 60, 90], exposure=True)
    >>> rows["exposure"].tolist()
    [30.0, 10.0, 0.0, 30.0, 30.0, 15.0]
    """
    pandas = import_pandas("person_periods")
    check_in_memory("person_periods", table)
    if not isinstance(table, pandas.DataFrame):
        instead = ": give table.to_pandas()" if hasattr(table, "to_pandas") else ""
        raise ValueError(f"table must be a pandas.DataFrame, got {type(table).__name__}{instead}")
    if len(twice := table.columns[table.columns.duplicated()]):
        raise ValueError(f"table has several columns {shown(twice[0])}: rename all but one")
    check_choice("nonfinite", nonfinite, ("zero", "raise"))
    has_outcome = duration is not None
    if has_outcome != (event is not None) or (check_bool("exposure", exposure) and not has_outcome):
        raise ValueError(
            "duration and event go together, and exposure=True needs both: leave all three "
            "out of new persons"
        )
    given = [name for name in (duration, event, person) if name is not None]
    if any(np.ndim(name) > 0 for name in given if not isinstance(name, tuple)):
        raise ValueError("duration, event and person must be names of columns of the table")
    if missing := [name for name in given if name not in table.columns]:
        raise ValueError(f"table has no column {shown(missing[0])}")
    kept = table.drop(columns=given)
    made = ["person", "period", "start", "stop", *["exposure"] * exposure]
    if taken := [name for name in [*kept.columns, event] if name in made]:
        raise ValueError(f"table has a column {taken[0]!r}, which the result needs: rename it")
    edges = _edges(periods)
    n, n_periods = len(table), len(edges) - 1
    rows = kept.iloc[np.repeat(np.arange(n), n_periods)].reset_index(drop=True)
    rows["person"] = (np.arange(n) if person is None else table[person].array).repeat(n_periods)
    rows["period"] = np.tile(np.arange(1, n_periods + 1), n)
    rows["start"], rows["stop"] = start, stop = np.tile(edges[:-1], n), np.tile(edges[1:], n)
    if duration is None or event is None:
        return rows
    time, happened = _followed(table, duration, event, nonfinite == "raise")
    time, happened = time.repeat(n_periods), happened.repeat(n_periods)
    is_last = np.where(start == 0, time >= 0, time > start) & (time <= stop)
    is_event = is_last & (happened == 1)
    at_risk = np.maximum(np.minimum(time, stop) - start, 0.0)
    counts = at_risk > 0 if exposure else is_event | (2 * at_risk >= stop - start)
    rows[event] = np.where(counts, is_event, np.nan)
    if exposure:
        rows["exposure"] = at_risk
    return rows


def _edges(periods: Any) -> AnyArray:
    edges = np.asarray(periods)
    numbers = check_numbers("periods", edges)
    if numbers.ndim != 1 or numbers.size < 2 or numbers[0] != 0 or np.any(np.diff(numbers) <= 0):
        raise ValueError(
            "periods must say where they begin and end, increasing from 0, as [0, 30, 60]; got "
            f"{shown(periods)}"
        )
    return edges if edges.dtype.kind in "iuf" else numbers


def _followed(table: Any, duration: str, event: str, is_strict: bool) -> tuple[Array, Array]:
    """Until when each person was followed, -1 if that is not valid, and whether the event came."""
    columns = [(name, read_column(table, name)) for name in (duration, event)]
    for name, cells in columns:
        if cells.kind == "other":  # (readers of files make text of numbers for one odd cell)
            raise ValueError(
                f"column {name!r} has the type {cells.type_name}: durations and events must be "
                "numbers or booleans, and a time span is divided by its unit first"
            )
    if columns[0][1].type_name.startswith("bool"):
        raise ValueError(f"column {duration!r} holds booleans, no durations: is it the event?")
    time, happened = (cells.numbers() for _, cells in columns)
    is_valid = (time >= 0) & ((happened == 0) | (happened == 1))
    if is_strict and not is_valid.all():
        raise ValueError(
            f"{duration!r} must hold finite numbers of at least 0, and {event!r} 0 and 1 or "
            "booleans. nonfinite='zero' leaves out persons of whom this is not so"
        )
    return np.where(is_valid, time, -1.0), happened  # at risk in no period
