"""Coefficients of a private regression with their standard errors, intervals and tests.

The covariance has two parts: that of sampling, which a model without privacy has as well, and that
of the noise of the mechanisms, which is known from the plan. See doc/inference and doc/privacy,
sections 4.6 and 10.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ._checks import (
    check_level,
    first_of,
    import_pandas,
    listed,
    says_level,
    shown,
    telling,
    warn_user,
)
from ._overview import Overview, Overviewed
from ._types import Array
from .exceptions import PrivacyParameterWarning

__all__ = ["Estimates", "WaldTest"]


INTERCEPT = "(intercept)"
_INTERCEPTS = r"\b(Intercept|const)\b"  # elsewhere
# what statsmodels calls the numbers of a table
STATSMODELS = {"params": "to_frame()['coef']", "bse": "to_frame()['std err']", "cov_params": "cov"}
STATSMODELS |= {"f_test": "wald_test"}
_NUMBER = r"\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+"
UNKNOWN = 0.25  # share of a coefficient in directions of which nothing is known


class WaldTest(NamedTuple):
    """Test of linear hypotheses: the statistic, its degrees of freedom, and the p-value.

    `statistic` is the quadratic form over the number of hypotheses, `df_num`; its law is F with
    `df_num` and `df_denom` degrees of freedom, the latter infinite where variances are sure.
    """

    statistic: float
    pvalue: float
    df_num: int
    df_denom: float

    def __repr__(self) -> str:
        """In short, as statsmodels has it."""
        return (
            f"<F test: F={self.statistic:.6g}, p={self.pvalue:.4g}, df_denom={self.df_denom:.4g}, "
            f"df_num={self.df_num}>"
        )


_SHOWN = ("tables", "as_text", "as_html", "as_latex", "as_csv", "to_latex", "to_csv")


@telling(
    {name: f"see {place}" for name, place in STATSMODELS.items()}
    | dict.fromkeys((*_SHOWN, "summary"), "see to_frame(), to_html() and str()")
    | {"predict": "X @ coef[:, :-1].T + coef[:, -1] predicts, without intercept X @ coef.T"}
)
@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Estimates(Overviewed):
    r"""Coefficients that are not shrunk, and how sure they are.

    ``print`` shows the table, as does a notebook. With b the coefficients of one output after the
    other, each with its intercept last, an interval of a linear function :math:`a^T b` is

    .. math:: a^T b \pm t_{\nu} \sqrt{a^T (S + N) a},

    S the covariance by sampling, an estimate, and N that by the noise of the mechanisms. t has as
    many degrees of freedom :math:`\nu` as the noise in S leaves, often very many. Where a linear
    function depends on columns of which the released numbers say nothing, the interval is the whole
    line.

    Parameters
    ----------
    names : sequence of str
        Of the features, without the intercept.
    is_named : bool, default=False
        Whether columns have these names, so that `conf_int` is a frame, or only numbers.
    outputs : sequence
        Labels of the targets or the classes; ("coef",) if there is one.
    coef : ndarray of shape (n_outputs, n_params)
        The intercept last if there is one.
    sampling, noise : ndarray of shape (n_outputs * n_params, n_outputs * n_params)
    doubt : float, default=0
        Standard deviation of the estimated variances by sampling, over these.
    unknown : ndarray of shape (n_outputs * n_params, k), default=none
        Directions of which nothing is known, as columns.
    gram : ndarray of the shape of `noise`, default=the identity
        W W^T for coefficients W w of the columns' own units w, in which `unknown` was found.
    residual_std : float or ndarray of shape (n_outputs,), default=nan
        Of a regression: standard deviation of the targets about their means.
    predicting : ndarray of the shape of coef or None, default=None
        The coefficients of the model that predicts best, shown beside. They have noise of their
        own, and need not be smaller.
    title : str
    notes : tuple of str
        What the table should say besides.
    void : str, default=""
        Why intervals and tests do not hold, if they do not, as after a choice on the same records:
        the last note, of which those methods warn.
    level : float in [0.5, 1), default=.95
        Of the intervals that are shown.
    exponentiate : bool, default=False
        Whether e to the coefficients and to the ends of intervals is shown, as "exp(coef)":
        ratios. Standard errors, t and p-values, and all methods, are those of the coefficients.
    ratios : str, default="ratios"
        What the table calls them, such as "odds ratios of 'ill' against 'well'".
    meaning : str, default=""
        What coefficients are, such as "log-odds of 'ill' against 'well'".
    sources : sequence of str, default=()
        The columns of a table that the features were made of, if they were.
    value : float or ndarray of shape (n_params,), default=0
        What t and p-values compare coefficients with.

    Attributes
    ----------
    std, std_sampling, std_noise : ndarray of the shape of `coef`
    cov : ndarray of the shape of `noise`
    tvalues, df, pvalues : ndarray of the shape of `coef`
        Coefficients over their standard errors, and degrees of freedom of these: infinite where
        variances are sure.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.estimates import Estimates
    >>> found = Estimates(
    ...     names=["dose"], outputs=["coef"], coef=np.array([[2.0, 1.0]]),
    ...     sampling=np.diag([0.03, 0.02]), noise=np.diag([0.01, 0.02]))
    >>> found.std.round(3).tolist()
    [[0.2, 0.2]]
    >>> found.conf_int().round(2).tolist()
    [[1.61, 2.39], [0.61, 1.39]]
    """

    names: Sequence[str]
    is_named: bool = False
    outputs: Sequence[Any] = ("coef",)
    coef: Array
    sampling: Array
    noise: Array
    doubt: float = 0.0
    unknown: Array | None = None
    gram: Array | None = None
    residual_std: Any = math.nan
    predicting: Array | None = None
    title: str = ""
    notes: tuple[str, ...] = ()
    void: str = ""
    level: float = 0.95
    exponentiate: bool = False
    ratios: str = "ratios"
    meaning: str = ""
    sources: Sequence[str] = ()
    value: Any = 0.0

    # ---------------------------------------------------------------------------- numbers

    @property
    def cov(self) -> Array:
        """Covariance of all coefficients; infinite variances are on the diagonal alone."""
        cov = self.sampling + self.noise
        np.fill_diagonal(cov, self.std.ravel() ** 2)
        return cov

    @property
    def std(self) -> Array:
        """Standard errors: of sampling and of noise together."""
        return self.errors(np.eye(self.coef.size))[0].reshape(self.coef.shape)

    @property
    def std_sampling(self) -> Array:
        """Standard errors without the noise; NaN where those with it are infinite."""
        found = np.sqrt(np.diag(self.sampling)).reshape(self.coef.shape)
        return np.where(np.isinf(self.std), np.nan, found)

    @property
    def std_noise(self) -> Array:
        """Standard deviations of what the mechanisms' noise does to coefficients, NaN as above."""
        return np.sqrt(self.std**2 - self.std_sampling**2)

    @property
    def tvalues(self) -> Array:
        """Coefficients, less `value`, over their standard errors."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num((self.coef - self.value) / self.std, nan=0.0) + 0.0

    @property
    def df(self) -> Array:
        """Degrees of freedom of the standard errors (Satterthwaite), as variances are estimated."""
        std, df = self.errors(np.eye(self.coef.size))
        return np.where(np.isinf(std), np.nan, df).reshape(self.coef.shape)

    @property
    def pvalues(self) -> Array:
        """Of the hypotheses that a coefficient is `value`, two-sided."""
        df = self.errors(np.eye(self.coef.size))[1].reshape(self.coef.shape)
        return np.asarray(2 * stats.t.sf(np.abs(self.tvalues), df))

    def errors(self, functions: Array) -> tuple[Array, Array]:
        """Standard errors of linear functions, a row for each, and their degrees of freedom."""
        sampling, noise = (
            np.maximum(((functions @ part) * functions).sum(axis=1), 0.0)
            for part in (self.sampling, self.noise)
        )
        variance = sampling + noise
        with np.errstate(divide="ignore", invalid="ignore"):
            df = 2 * (variance / (self.doubt * sampling)) ** 2
        df = np.where(np.isnan(df), np.inf, np.maximum(df, 1.0))
        if self.unknown is not None and self.unknown.size:
            of_unknown = ((functions @ self.unknown) ** 2).sum(axis=1)
            gram = np.eye(self.coef.size) if self.gram is None else self.gram
            size = ((functions @ gram) * functions).sum(axis=1)
            variance[of_unknown > UNKNOWN * size] = np.inf
        return np.sqrt(variance), df

    @says_level
    def conf_int(self, level: float | None = None) -> Any:
        """Intervals of the coefficients, which each cover the true one with this probability.

        Of ratios if `exponentiate`.

        Parameters
        ----------
        level : float in [0.5, 1) or None, default=None
            None stands for that of the object.

        Returns
        -------
        pandas.DataFrame, or ndarray of shape (n_params, 2) or (n_outputs, n_params, 2)
            A frame with the columns "lower" and "upper" and the rows of `to_frame` where columns
            have names. Else an array, of the shape with n_outputs if there are several; the last
            dimension is lower and upper end. The intercept is last.
        """
        self.warn_if_void()
        low, high = self._ends(level)
        if self.is_named:
            return self._frame("conf_int", {"lower": low, "upper": high})
        ends = np.stack((low, high), axis=-1)
        return ends if len(self.coef) > 1 else ends[0]

    def _ends(self, level: float | None = None) -> tuple[Array, Array]:
        half = self.half_widths(np.eye(self.coef.size), level).reshape(self.coef.shape)
        with np.errstate(over="ignore"):
            return self._shown(self.coef - half), self._shown(self.coef + half)

    def _shown(self, coef: Array) -> Array:
        return np.exp(coef) if self.exponentiate else coef

    def warn_if_void(self) -> None:
        """Warn a `PrivacyParameterWarning` if intervals and tests do not hold."""
        if self.void:
            warn_user(self.void, PrivacyParameterWarning)

    def half_widths(
        self, functions: Array, level: float | None = None, *, of_std: bool = False
    ) -> Array:
        """Half the widths of the intervals of linear functions, a row for each.

        Or these over the standard errors.
        """
        std, df = self.errors(functions)
        level = self.level if level is None else check_level("level", level)
        return np.asarray((1.0 if of_std else std) * stats.t.ppf((1 + level) / 2, df))

    def wald_test(self, hypotheses: Any, value: Any = 0.0) -> WaldTest:
        """Test that linear functions of the coefficients have these values, all together.

        Parameters
        ----------
        hypotheses : str, list of str, dict, or array-like of shape (q, n_outputs * n_params)
            Names of features, or of columns of the table for all features that are made of them,
            whose coefficients (of all outputs) are tested; "name = 2" says their value. Or linear
            equations, as of statsmodels: "a = b", "a - 2 * b = 1, c = 0". Or a dict of names and
            values, {"a": 2}. Or a matrix R of the functions R b, b the coefficients of one output
            after the other, each with its intercept last; or a pair of it and the values.
        value : float or array-like of shape (q,), default=0
            Of functions that say none themselves.

        Returns
        -------
        WaldTest

        Raises
        ------
        ValueError
            If a name is unknown, a shape wrong, a function one of which nothing is known, or if the
            hypotheses contradict each other.
        """
        names, matrix, value = self._hypotheses(hypotheses, value)
        std, _ = self.errors(matrix)
        if np.isinf(std).any():
            hidden = first_of([name for name, x in zip(names, std, strict=True) if np.isinf(x)])
            raise ValueError(
                f"the released numbers say nothing about {hidden}: test the others by themselves"
            )
        gap = matrix @ self.coef.ravel() - value
        cov = matrix @ (self.sampling + self.noise) @ matrix.T
        # in units in which ranks do not depend on those of the features
        size = np.sqrt(np.maximum(cov.diagonal(), 1e-300))
        gap, matrix = gap / size, (matrix.T / size).T
        values, vectors = np.linalg.eigh(cov / np.outer(size, size))
        is_told = values > len(values) * np.finfo(np.float64).eps * values[-1]
        q, root = int(is_told.sum()), vectors[:, is_told] / np.sqrt(values[is_told])
        apart, beyond = root.T @ gap, vectors[:, ~is_told].T @ gap
        if np.linalg.norm(beyond) > 1e-6 * (1 + max(abs(gap))):
            raise ValueError("the hypotheses contradict each other: no coefficients meet all")
        statistic = float(apart @ apart) / max(q, 1)
        # the fewest of any function that they are about, in whatever form they are written
        sampled = root.T @ matrix @ self.sampling @ matrix.T @ root
        part = self.doubt * float(np.linalg.eigvalsh(sampled).max(initial=0.0))
        df_denom = max(1.0, 2 / part**2) if part > 0 else math.inf
        is_sure = math.isinf(df_denom)
        pvalue = stats.chi2.sf(statistic * q, q) if is_sure else stats.f.sf(statistic, q, df_denom)
        return WaldTest(statistic, float(pvalue), q, df_denom)

    def t_test(self, hypotheses: Any, value: Any = 0.0) -> Estimates:
        """The linear functions of `wald_test`, each by itself: estimate, error, test, interval.

        Parameters
        ----------
        hypotheses, value
            As in `wald_test`.

        Returns
        -------
        Estimates
            A row for each function, as it is called or c0, c1, ...; "t" is of the function less its
            value.
        """
        names, matrix, value = self._hypotheses(hypotheses, value)
        names = [f"{name} = {x:g}" if x else name for name, x in zip(names, value, strict=True)]
        facts: Any = {"sources": (), "outputs": ("coef",), "notes": (), "residual_std": math.nan}
        return self.times(matrix, names=names, value=value, **facts)

    def _hypotheses(self, hypotheses: Any, value: Any) -> tuple[list[str], Array, Array]:
        """What hypotheses are called, their functions as the rows of a matrix, and their values."""
        self.warn_if_void()
        given = [hypotheses] if isinstance(hypotheses, str) else hypotheses
        if isinstance(given, tuple) and len(given) == 2 and np.ndim(given[0]) == 2:
            given, value = given
        if isinstance(given, Mapping):
            given = [f"{name} = {float(x)!r}" for name, x in given.items()]
        if not isinstance(given, list | tuple):
            given = np.atleast_1d(given)
        if len(given) == 0:
            raise ValueError("hypotheses must hold at least one")
        if not all(isinstance(text, str) for text in given):
            matrix = np.atleast_2d(np.asarray(given, dtype=np.float64))
            if matrix.ndim != 2 or matrix.shape[1] != self.coef.size:
                raise ValueError(
                    f"hypotheses must be names or have the shape (q, {self.coef.size}), got "
                    f"{matrix.shape}"
                )
            names = [f"c{k}" for k in range(len(matrix))]
            return names, matrix, np.broadcast_to(np.asarray(value, np.float64), len(matrix))
        found = [function for text in given for function in self._functions(text)]
        params = self.param_names
        asked = [name for _, row, _ in found for name, x in zip(params, row, strict=True) if x]
        if twice := [name for name in asked if params.count(name) > 1]:
            raise ValueError(
                f"several coefficients are called {shown(twice[0])}: rename the column, or give "
                "rows of a matrix"
            )
        k, names = len(self.outputs), [name for name, _, _ in found]
        functions, said = np.array([row for _, row, _ in found]), np.tile([x for *_, x in found], k)
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), len(said))
        if not np.isnan(said).any() and values.any():
            raise ValueError("hypotheses say what they are equal to, and value does: give it once")
        values = np.where(np.isnan(said), values, said)
        if k > 1:
            names = [f"{output}: {name}" for output in self.outputs for name in names]
        return names, np.kron(np.eye(k), functions), values

    def _functions(self, text: str) -> list[tuple[str, Array, float]]:
        """Functions of an output's coefficients of a text: names, rows, and the values or NaN."""
        params = self.param_names
        if not any(re.search(_INTERCEPTS, name) for name in params):
            text = re.sub(_INTERCEPTS, INTERCEPT, text)
        places = {name: [k] for k, name in enumerate(params)}
        for source in dict.fromkeys(self.sources):
            made = [k for k, other in enumerate(self.sources) if other == source]
            places.setdefault(source, made)
        name, is_equation, said = text.rpartition("=")
        if text in places or not is_equation:
            name, said = text, "nan"
        with suppress(KeyError, ValueError):
            number = float(said)
            return [(params[k], np.eye(len(params))[k], number) for k in places[name.strip()]]
        found = _equations(text, params)
        if not found or not all(row.any() for row, _ in found):
            # the first that is no name and no number
            parts = re.split(r"\s*(?:[=,+*]|(?<!\w)-|-(?!\w)|\s-\s)\s*", text.strip())
            strange = [x for x in parts if x and x not in params and not re.fullmatch(_NUMBER, x)]
            wrong = strange[0] if strange else text
            like = difflib.get_close_matches(wrong, params, 1)
            meant = f" (is it {like[0]!r}?)" if like else ""
            raise ValueError(
                f"no coefficient is called {shown(wrong)}{meant}: hypotheses are names, "
                "'name = number', 'a - 2 * b = 0', or rows of a matrix. A category that is left "
                f"out has none, others are compared with it. Names are {listed(params)}"
            )
        return [(_called(row, params), row, number) for row, number in found]

    # ------------------------------------------------------------------------------ shown

    @property
    def param_names(self) -> list[str]:
        """Names of the coefficients of an output, with the intercept if there is one."""
        return [*self.names, *[INTERCEPT] * (self.coef.shape[1] - len(self.names))]

    def times(self, functions: Array, **others: Any) -> Estimates:
        """The same of linear functions of the coefficients, a row for each, with other fields."""
        shape = len(others.get("outputs", self.outputs)), -1
        gram = np.eye(self.coef.size) if self.gram is None else self.gram
        covariances = {"sampling": self.sampling, "noise": self.noise, "gram": gram}
        others |= {name: functions @ part @ functions.T for name, part in covariances.items()}
        others["coef"] = (functions @ self.coef.ravel()).reshape(shape)
        if self.unknown is not None:
            others["unknown"] = functions @ self.unknown
        if self.predicting is not None:
            others["predicting"] = (functions @ self.predicting.ravel()).reshape(shape)
        return dataclasses.replace(self, **others)

    def in_units(
        self,
        names: Sequence[str],
        shift: Array,
        width: Array,
        sources: Sequence[str] = (),
        scales: Any = 1.0,
    ) -> Estimates:
        """The same for features z of these names, of which (z - shift) / width are the model's.

        And for targets that are the model's times scales, a number or one for each output.
        """
        n_outputs, n_params = self.coef.shape
        matrix: Any = np.diag(np.append(1 / width, np.ones(n_params - len(width))))
        matrix[len(width) :, : len(width)] = -shift / width
        of_outputs = np.eye(n_outputs) * scales
        return self.times(np.kron(of_outputs, matrix), names=names, sources=sources)

    @property
    def rows(self) -> list[str]:
        """What the rows of the table are called: with the output, if there are several."""
        if len(self.outputs) == 1:
            return self.param_names
        return [f"{output}: {name}" for output in self.outputs for name in self.param_names]

    def to_frame(self) -> Any:
        """The table as a pandas data frame, a row for each coefficient (of each output)."""
        return self._frame("to_frame", self._columns())

    def _frame(self, what: str, columns: dict[str, Array]) -> Any:
        pandas, meaning = import_pandas(what), self.ratios if self.exponentiate else self.meaning
        index = pandas.Index(self.param_names, name="feature")
        if len(self.outputs) > 1:
            parts = [list(self.outputs), self.param_names]
            index = pandas.MultiIndex.from_product(parts, names=["output", "feature"])
        found = pandas.DataFrame({name: of.ravel() for name, of in columns.items()}, index)
        return found.rename_axis(columns=meaning or None)

    def _columns(self) -> dict[str, Array]:
        tail, (low, high) = (1 - self.level) / 2, self._ends()
        with np.errstate(over="ignore"):
            columns = {
                "exp(coef)" if self.exponentiate else "coef": self._shown(self.coef),
                "std err": self.std,
                "sampling": self.std_sampling,
                "noise": self.std_noise,
                "t": self.tvalues,
                "df": self.df,
                "P>|t|": self.pvalues,
                f"[{tail:.4g}": low,
                f"{1 - tail:.4g}]": high,
            }
            if self.predicting is not None:
                columns["predicting"] = self._shown(self.predicting)
        return columns

    def overview(self) -> Overview:
        """The table as text."""
        columns, labels = self._columns(), self.rows
        cells = []
        for name, column in columns.items():
            form = ".3f" if name == "P>|t|" else ".4g"
            cells.append(["" if math.isnan(x) else f"{x:{form}}" for x in column.flat])
        rows = [*zip(labels, *cells, strict=True)]
        layout = f"{{:{max(map(len, labels))}}}" + " {:>11}" * len(columns)
        meaning = [f"coef: {self.meaning}"] * bool(self.meaning)
        if self.exponentiate:
            meaning = [
                f"exp(coef), interval and predicting: {self.ratios}; std err, sampling, noise and "
                "t: of coef"
            ]
        notes = *self.notes, *[self.void] * bool(self.void)
        return Overview((self.title, *meaning, *notes), ("", *columns), layout, rows)


def _equations(text: str, names: list[str]) -> list[tuple[Array, float]] | None:
    """Rows and values of linear equations, such as "a = b, a - 2 * c = 1"; None of other texts.

    A row without "=" has the value NaN.
    """
    # names may hold any character, and one of them another: the longest that fits is meant
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    after = r"(?!\w)\s*(=|,|$|(?=[+-]))"
    times = rf"(?:\s*([*/])\s*({_NUMBER}))?"
    either = rf"({known}){times}|({_NUMBER})(?:\s*\*?\s*({known}))?"
    term = re.compile(rf"\s*([+-]?)\s*(?:{either}){after}")
    found: list[tuple[Array, float]] = []
    at, sides = 0, [np.zeros(len(names) + 1)]
    while at < len(text):
        if (match := term.match(text, at)) is None:
            return None
        name, at = match[2] or match[6], match.end()
        factor = float(match[5] or match[4] or 1)
        if match[3] == "/":
            if factor == 0:
                return None
            factor = 1 / factor
        sides[-1][names.index(name) if name else -1] += -factor if match[1] == "-" else factor
        if match[7] == "=":
            sides.append(np.zeros(len(names) + 1))
        elif match[7] == "," or at == len(text):
            rows = sides if len(sides) == 1 else [a - b for a, b in itertools.pairwise(sides)]
            value = math.nan if len(sides) == 1 and not sides[0][-1] else 0.0
            found += [(row[:-1], value - row[-1]) for row in rows]
            sides = [np.zeros(len(names) + 1)]
    return found if not sides[-1].any() and len(sides) == 1 else None


def _called(row: Array, names: list[str]) -> str:
    """What a linear function is called: "a - 2*b"."""
    parts = [
        f"{'-' if row[k] < 0 else '+'} {'' if abs(row[k]) == 1 else f'{abs(row[k]):g}*'}{names[k]}"
        for k in np.flatnonzero(row)
    ]
    return " ".join(parts).removeprefix("+ ")


def telling_unknown(
    found: Estimates, references: Mapping[str, Any] | None, strong: str = "", more: str = ""
) -> Estimates:
    """The same with a note that names the rows of which nothing is known, and what helps.

    `references` has the category of each list that is left out, None if none is; it is None if
    that is not known. `strong` is a further cause, and `more` further advice.
    """
    n_unknown = 0 if found.unknown is None else found.unknown.shape[1]
    if n_unknown == 0:
        return found
    rows = [row for row, std in zip(found.rows, found.std.flat, strict=True) if np.isinf(std)]
    hidden = f"{n_unknown} combination{'s' * (n_unknown > 1)} of columns"
    if rows:
        named = f"the coefficients of {first_of(rows)}: noise hides {hidden} that they are part of,"
        named += " and their intervals are whole lines, without ends"
    else:
        named = f"{hidden}, which no coefficient shows by itself"
    is_known = references is not None and None not in references.values()
    lists, rare = "" if is_known else " (drop='first')", []
    is_unknown: Any = np.isinf(found.std).any(axis=0)
    for name, category in (references or {}).items():
        # most categories of a list with whole lines: all are compared with the reference
        at = [k for k, source in enumerate(found.sources) if source == name]
        if category is not None and len(at) > 1 and is_unknown[at].mean() > 0.5:
            rare.append(f"{name}: {category}")
    if any(row.endswith(INTERCEPT) for row in rows) and not rare:
        strong += ", a constant column: the fit adds an intercept by itself"
    if rare:
        strong += f", a rare reference ({first_of(rare)}): name a common one, "
        strong += "drop={column: category} (what the others differ by is known: t_test('a - b'))"
    spelled = ", categories in another spelling" * bool(found.sources)
    note = (
        f"nothing is known of {named}. Other coefficients may be "
        "those of a regression without them. Causes: bounds far too wide, most values beyond "
        f"them, rare columns{spelled}, columns that go together (as age and age ** 2: take "
        f"(age - 40) ** 2, 40 a usual value) or are sums of others{lists}{strong}. Try "
        f"fewer columns, a larger epsilon{more}"
    )
    return dataclasses.replace(found, notes=(*found.notes, note))
