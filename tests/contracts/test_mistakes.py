"""What a user is told who makes a typical mistake: each row is one, and a part of the message.

Nothing is charged and nothing released before the message, and it quotes neither a cell of the
table nor a label that was not declared.
"""

import re
import warnings
from datetime import date
from types import SimpleNamespace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from registry import nothing_is_released
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.exceptions import DataConversionWarning
from sklearn.feature_selection import RFE, SequentialFeatureSelector
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_dpsco import (
    BoundsNotDeclaredWarning,
    BudgetAccountant,
    DPFTRLClassifier,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLassoFW,
    DPLassoFWClassifier,
    DPLinearRegression,
    DPMirrorRegressor,
    DPPoissonRegressor,
    DPRandomizedSearchCV,
    DPScaler,
    HeavyTailDPRegressor,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
    PrivateMoments,
    PrivateVocabulary,
    PublicEncoder,
    check_pipeline,
    dp_score,
    predict_interval,
    private_bounds,
)
from sklearn_dpsco.geometry import L1Ball
from sklearn_dpsco.solvers import Gradient, Selection

N, CELL, LABEL = 60, 0.7317, "hush"  # the last two stand in the tables and in no message
X = np.full((N, 2), CELL)
X3, y = np.full((N, 3), CELL), X[:, 0].copy()
F, F3 = pd.DataFrame(X, columns=["age", "pay"]), pd.DataFrame(X3, columns=list("abc"))
labels, codes = np.where(np.arange(N) % 2, "no", "yes"), np.arange(N) % 2
hushed = np.where(np.arange(N) % 2, LABEL, "yes")
models = SimpleNamespace()  # fitted before the first row
TURNED = pd.Series(y)[::-1]  # its labels are those of F in another order
BLOCKS = da.from_array(X, chunks=(20, 2))
LISTS = PublicEncoder({"kind": ["a", "b", "c"]})
AGE, BOX = {"age": (0, 100)}, {"age": (0, 1), "pay": (0, 1)}


def R(**parameters):
    few = {"solver": Gradient(max_iter=5), "bounds_X": (0, 1), "bounds_y": (0, 1)}
    return DPLassoFW(**few | {"random_state": 0} | parameters)


def S():
    return DPFTRLRegressor(bounds_X=(0, 1), bounds_y=(0, 1), horizon=N, random_state=0)


def P(**parameters):
    given = {"bounds_X": (0, 1), "bounds_y": (0, 9), "bounds_exposure": (0.1, 1)}
    return DPPoissonRegressor(**{**given, "epsilon": 20.0, "random_state": 0, **parameters})


def C(**parameters):
    declared = {"bounds_X": (0, 1), "classes": ["no", "yes"], "random_state": 0}
    return DPLassoFWClassifier(**declared | parameters)


def with_cell(cell):
    out = X.copy()
    out[3, 1] = cell
    return out


def stream(kind=DPFTRLRegressor, **parameters):
    targets = {} if kind is DPFTRLClassifier else {"bounds_y": (0, 1)}
    return kind(bounds_X=(0, 1), **targets, **parameters)


def grid(estimator=None, settings=None, **parameters):
    settings = settings or {"feasible_set": [L1Ball(0.5), L1Ball(2.0)]}
    return DPGridSearchCV(estimator or R(), settings, **{"random_state": 0} | parameters)


def rates():
    return grid(P(epsilon=1.0), {"max_weight": [1.0, 2.0]})


def encode(schema, table=F, **parameters):
    return PublicEncoder(schema, **parameters).fit_transform(table)


ORDER = "has the row labels of X in another order"
NO_NAME = r"must have the shape \(n_samples,\), such as table\[.*\] has: the name of a column"
MISTAKES = {
    # bounds
    "a list of pairs": (lambda: R(bounds_X=[(0, 10), (1, 100)]).fit(X, y),
        r"two readings.*\(\[0, 1\], \[10, 100\]\) for the first.*\(\[0, 10\], \[1, 100\]\) for the"
        r" second.*a dict \{column"),
    "a tuple of pairs": (lambda: R(bounds_X=((0, 10), (1, 100))).fit(X, y), "two readings"),
    "a list of lists": (lambda: R(bounds_X=[[0, 10], [1, 100]]).plan(99, 2), "two readings"),
    "an array of pairs": (lambda: R(bounds_X=np.array([[0, 10], [1, 100]])).fit(X, y), "readings"),
    "pairs that are no ends": (lambda: R(bounds_X=[(0, 9), (0, 1)]).fit(X, y),
        r"a pair for each column.*here \(\[0, 0\], \[9, 1\]\)"),
    "three pairs": (lambda: R(bounds_X=[(0, 1)] * 3).fit(X3, y), "a pair for each column.*a dict"),
    "pairs of targets": (lambda: R(bounds_y=[(0, 10), (1, 100)]).fit(X, X), "of two targets"),
    "the table as bounds": (lambda: R(bounds_X=X).fit(X, y), "bounds_X must be a pair"),
    "the targets as bounds": (lambda: R(bounds_y=y).fit(X, y), "bounds_y must be a pair.*shape"),
    "what the table has as bounds": (lambda: R(bounds_X=F.describe()).fit(F, y),
        r"a pair \(low, high\), got .* shape \(8, 2\)\. Bounds are public knowledge"),
    "what the targets have as bounds": (lambda: P(bounds_y=F["age"].describe()).fit(F, y),
        r"got an object of type Series and shape \(8,\)\. Bounds are public knowledge"),
    "one number": (lambda: R(bounds_X=1).fit(X, y), r"bounds_X must be a pair \(low, high\), got"),
    "bounds_y by name": (
        lambda: R(bounds_y={"y": (0, 1)}).fit(X, y),
        r"bounds_y must be a pair \(low, high\) and no dict, .*: \(0, 1\), if these are 'y'",
    ),
    "bounds_y by names": (
        lambda: R(bounds_y={"wage": (0, 90), "rent": (1, 5)}).fit(X, y),
        r"in the order of the columns of y: \(\[0, 1\], \[90, 5\]\), if these are 'wage', 'rent'",
    ),
    "an exposure of 0": (lambda: DPPoissonRegressor(bounds_exposure=(0, 1)).fit(X, y, exposure=y),
        "must be above 0, .* hundredth of the longest.*nonfinite='zero'"),
    "ends the wrong way": (lambda: R(bounds_X=(1, 0)).fit(X, y), "low < high"),
    "ends that are equal": (lambda: R(bounds_X=BOX | {"pay": (1, 1)}).fit(F, y), r"\['pay'\] must"),
    "an open end": (lambda: R(bounds_X=(0, None)).fit(X, y), "bounds_X must hold finite numbers"),
    "an infinite end": (lambda: R(bounds_X=(0, np.inf)).fit(X, y), "must hold finite numbers"),
    "a column without bounds": (lambda: R(bounds_X=AGE).fit(F, y), r"not named \('pay'\)"),
    "bounds without a column": (lambda: R(bounds_X=BOX | {"x": (0, 1)}).fit(F, y),
        r"no columns \('x'\)"),
    "names for an array": (lambda: R(bounds_X=AGE).fit(X, y), "a data frame with text as names"),
    "integers as names": (lambda: R(bounds_X={0: (0, 1), 1: (0, 1)}).fit(pd.DataFrame(X), y),
        r"X\.columns\.astype\(str\)"),
    "bounds of three columns": (lambda: R(bounds_X=([0] * 3, [1] * 3)).fit(X, y),
        r"shape \(2,\), got shapes \(3,\)"),
    "a column at a time": (lambda: SequentialFeatureSelector(
        R(bounds_X=([0] * 3, [1] * 3)), cv=KFold(2)).fit(X3, y), "fewer or more columns"),
    "some columns": (lambda: BaggingRegressor(
        R(bounds_X=([0] * 3, [1] * 3)), max_features=2).fit(X3, y), "bagging with max_features"),
    "sparse X and a shift": (lambda: R(bounds_X=(1, 2)).fit(sparse.csr_array(X), y),
        "one end at 0 or symmetric"),
    "a transformer of unknown bounds": (lambda: R(bounds_X=StandardScaler()).fit(X, y),
        "'StandardScaler'.* does not declare bounds.*PublicEncoder"),
    "the encoder's class": (lambda: R(bounds_X=PublicEncoder).fit(X, y), "give an object, Public"),
    "a scaler with a budget": (lambda: R(bounds_X=DPScaler()).fit(X, y), r"\(-clip, clip\)"),
    # tables
    "NaN": (lambda: R().fit(with_cell(np.nan), y), "X contains NaN.*nonfinite='zero'"),
    "an infinity": (lambda: R().fit(with_cell(np.inf), y), "infinity.*nonfinite='zero'"),
    "NaN in y": (lambda: R().fit(X, np.where(codes, np.nan, y)), "y contains NaN.*zero'.*dp_score"),
    "complex labels": (lambda: C().fit(X, codes * 1j), "labels that are numbers or text"),
    "a missing label": (lambda: C().fit(X, np.where(codes, None, labels)),
        "labels that are missing.*nonfinite='zero'"),
    "text": (lambda: R().fit(F.assign(pay=LABEL), y), "X.dtypes .*; PublicEncoder"),
    "categories": (lambda: R().fit(F.assign(pay=pd.Categorical([LABEL] * N)), y), "types: 'pay'"),
    "dates": (lambda: R().fit(F.assign(pay=pd.Timestamp("2020-01-01")), y), "Date data.*'pay'"),
    "dates beside a column dtype": (lambda: R(nonfinite="zero").fit(
        F.assign(dtype=0.0, pay=pd.Timestamp("2020-01-01")), y), "Date data.*'pay'"),
    "spans of time": (lambda: R().fit(F.assign(pay=pd.Timedelta(3)), y), "Time span data.*'pay'"),
    "complex numbers": (lambda: R().fit(X * 1j, y), "Complex data not supported"),
    "text of polars": (lambda: R().fit(pl.DataFrame({"a": y, "b": labels}), y), "PublicEncoder"),
    "dates of polars": (lambda: R().fit(pl.DataFrame({"a": y, "b": [date(2020, 1, 1)] * N}), y),
        "Date data.*'b'"),
    "a lazy frame": (lambda: R().fit(pl.DataFrame({"a": y}).lazy(), y), r"lazy frame: collect\(\)"),
    "lazy targets": (lambda: R().fit(X, pl.DataFrame({"a": y}).lazy()), "y is a lazy frame: coll"),
    "a file's name": (lambda: R().fit("table.csv", y), "X must be a table.*got str"),
    "a dict of columns": (lambda: R().fit({"a": y}, y), "X must be a table.*got dict"),
    "a name for y": (lambda: R().fit(F, "pay"), f"y {NO_NAME}"),
    "one dimension": (lambda: R().fit(F["age"], y), r"X\[\['name'\]\].*Reshape your data"),
    "X and y swapped": (lambda: R().fit(y, X), "X first, and then y"),
    "no y": (lambda: R().fit(X, None), "requires y"),
    "y of another length": (lambda: R().fit(X, y[:5]), r"of samples: \[60, 5\], of X and y$"),
    "one row": (lambda: R().fit(X[:1], y[:1]), "minimum of 2"),
    "y in another order": (lambda: R().fit(F, TURNED), rf"of y {ORDER}.*y\.loc\[X\.index\].*numpy"),
    "users in another order": (lambda: R().fit(F, y, groups=TURNED), f"of groups {ORDER}"),
    "users in another order than y": (lambda: R().fit(X, pd.Series(y), groups=TURNED),
        "of groups has the row labels of y in another order"),
    "weights in another order": (lambda: R(max_weight=1).fit(F, y, sample_weight=TURNED),
        f"of sample_weight {ORDER}"),
    "exposure in another order": (lambda: P().fit(F, y, exposure=TURNED), f"of exposure {ORDER}"),
    "predictions in another order": (lambda: models.rates.predict(F, exposure=TURNED),
        f"of exposure {ORDER}"),
    "intervals in another order": (lambda: models.rates.predict_interval(F, exposure=TURNED),
        f"of exposure {ORDER}"),
    "intervals of a pipeline in another order": (
        lambda: predict_interval(make_pipeline(models.rates), F, exposure=TURNED),
        f"of exposure {ORDER}"),
    "repeated labels in another order": (
        lambda: R().fit(F.set_axis(codes), TURNED.set_axis(np.sort(codes))), f"of y {ORDER}"),
    "a stream in another order": (lambda: S().partial_fit(F, TURNED), f"of y {ORDER}"),
    "a private search in another order": (lambda: grid().fit(F, y, groups=TURNED),
        f"of groups {ORDER}"),
    "targets of a search in another order": (lambda: grid().fit(F, TURNED), f"of y {ORDER}"),
    "a score in another order": (lambda: dp_score(models.fitted, F, TURNED), f"of y {ORDER}"),
    "a score without noise in another order": (lambda: models.fitted.score(F, TURNED),
        f"of y {ORDER}"),
    "parts in another order": (
        lambda: dp_score(models.fitted, F, y, by=TURNED, by_values=[0, 1]), f"of by {ORDER}"),
    "parts by another name": (
        lambda: dp_score(models.fitted, F, y, by="sex", by_values=[0, 1]), "'sex' is no column"),
    "parts by the name of a column": (  # of which the values are wrong
        lambda: dp_score(models.fitted, F, y, by="age", by_values=[LABEL, "b"]), "text or both be"),
    "accuracy of numbers": (lambda: dp_score(models.fitted, X, y, scoring="accuracy"),
        "'accuracy' is of labels, .* of numbers take 'r2'"),
    "another order before an encoder": (
        lambda: make_pipeline(PublicEncoder(BOX), R()).fit(F, TURNED), f"of y {ORDER}"),
    "another order before a scaler": (
        lambda: make_pipeline(DPScaler(), R()).fit(F, TURNED), f"of y {ORDER}"),
    "texts in another order": (lambda: PrivateVocabulary().fit(
        pd.Series(labels), groups=TURNED), f"of groups {ORDER}"),
    "frames in another order": (lambda: R().fit(
        dd.from_pandas(F, npartitions=2).map_partitions(lambda part: part[::-1]),
        dd.from_pandas(pd.Series(y), npartitions=2)), f"of y {ORDER}"),
    "persisted frames in another order": (lambda: R().fit(
        dd.from_pandas(F, npartitions=2).map_partitions(lambda part: part[::-1]).persist(),
        dd.from_pandas(pd.Series(y), npartitions=2)), f"of y {ORDER}"),
    "a class in place of a model": (lambda: DPLassoFW.fit(X, y), "missing 1 required positional"),
    # blocks of Dask
    "y in blocks alone": (lambda: R().fit(X, BLOCKS[:, 0]), r"compute\(\) it"),
    "a search in blocks": (lambda: grid().fit(BLOCKS, y), r"search takes tables in memory"),
    "a stream of blocks": (lambda: stream().partial_fit(BLOCKS, y), "takes tables in memory"),
    "other labels in blocks": (lambda: C(classes=[0, 1]).fit(BLOCKS, labels), "y holds text"),
    "NaN in blocks": (lambda: R().fit(BLOCKS * np.nan, y), "X contains NaN.*nonfinite='zero'"),
    # labels
    "labels for a regressor": (lambda: R().fit(X, labels), "y must hold.*for classifiers"),
    "labels as objects": (lambda: R().fit(X, pd.Series(labels)), "y must hold.*for classifiers"),
    "one column per class": (lambda: C().fit(X, np.eye(2)[codes]), r"y\.argmax\(axis=1\)"),
    "a continuous y": (lambda: C(classes=None).fit(X, np.arange(N) / 7), "label type: continuous"),
    "classes of text": (lambda: C(classes=["a", "b"]).fit(X, codes), "classes holds text, y"),
    "classes of numbers": (lambda: C(classes=[0, 1]).fit(X, codes.astype(str)),
        "y holds text, classes does not. Declare the labels as y holds them"),
    "classes of both": (lambda: C(classes=["no", 1]).fit(X, labels), "classes must be of one kind"),
    "another label": (lambda: C().fit(X, hushed), "not among the declared classes.*'No' is not"),
    "one class": (lambda: C(classes=["no"]).fit(X, labels), "at least two different labels"),
    "their number": (lambda: C(classes=2).fit(X, labels), "a list of at least two different"),
    "y as classes": (lambda: C(classes=hushed).fit(X, hushed), r"different labels, got .*\(60,\)"),
    "weights of other classes": (lambda: C(class_weight={0: 1, 1: 2}).fit(X, labels),
        "class_weight has labels that are not among the classes"),
    "a stream without classes": (lambda: stream(DPFTRLClassifier).partial_fit(X, labels),
        "classes must be given to the first call"),
    # codes in the place of labels
    "voting": (lambda: VotingClassifier([("a", C())]).fit(X, labels), "declare the codes: 0, 1"),
    "bagging": (lambda: BaggingClassifier(C()).fit(X, labels), "declare the codes"),
    "stacking": (lambda: StackingClassifier([("a", C())]).fit(X, labels), "declare the codes"),
    "one against all": (lambda: OneVsRestClassifier(C()).fit(X, labels), "declare the codes"),
    "one against one": (lambda: OneVsOneClassifier(C()).fit(X, labels), "declare the codes"),
    "codes of classes": (lambda: OutputCodeClassifier(C(), random_state=0).fit(X, labels),
        "or -1 and 1"),
    "other numbers": (lambda: BaggingClassifier(C(classes=[1, 2])).fit(X, codes + 1),
        "declare the codes"),
    "a stream by classes": (lambda: OneVsRestClassifier(stream(DPFTRLClassifier, classes=[1, 2])
        ).partial_fit(X, codes + 1, classes=[1, 2]), "classes do not agree"),
    "calibration": (lambda: CalibratedClassifierCV(C(), ensemble=False).fit(X, labels),
        "declare the codes"),
    "probabilities by folds": (lambda: cross_val_predict(
        C(), X, labels, cv=KFold(2), method="predict_proba"), "declare the codes"),
    # parameters
    "epsilon as text": (lambda: R(epsilon="1.0").fit(X, y), "epsilon must be inf or a finite n"),
    "no epsilon": (lambda: R(epsilon=None).fit(X, y), "epsilon must be inf or a finite n"),
    "delta of 1": (lambda: R(delta=1).fit(X, y), r"delta must be 'auto' or .* in \[0, 1\), got 1"),
    "no delta": (lambda: R(delta=None).fit(X, y), "delta must be 'auto' or"),
    "another relation": (lambda: R(relation="add-remove").fit(X, y), "'replace-one', 'zero-out'"),
    "another package's loss": (lambda: R(loss="squared_error").fit(X, y), "one of 'squared'"),
    "another package's solver": (lambda: R(solver="lbfgs").fit(X, y), "solver must be one of"),
    "a generator": (lambda: R(random_state=np.random.default_rng(0)).fit(X, y), "random_state"),
    "steps as a float": (lambda: R(solver=Selection(max_iter=10.0)).fit(X, y), "max_iter must be"),
    "records to drop": (lambda: R(nonfinite="ignore").fit(X, y), "must be one of 'raise', 'zero'"),
    "epsilon by position": (lambda: DPLassoFW(1.0), "takes 1 positional argument"),
    "eps": (lambda: DPLinearRegression(eps=1.0), "argument 'eps'; see 'epsilon'"),
    "C": (lambda: DPLassoFWClassifier(C=1.0), "argument 'C'; see .*feasible_set"),
    "alpha": (lambda: DPMirrorRegressor(alpha=1.0), r"argument 'alpha'; see .*\(l2_penalty=...\)"),
    "alpha of counts": (lambda: DPPoissonRegressor(alpha=0), "argument 'alpha'; no penalty"),
    "a link": (lambda: DPPoissonRegressor(link="log"), "argument 'link'; .* a logarithmic one"),
    "steps": (lambda: DPPoissonRegressor(max_iter=9), "argument 'max_iter'; .* as the budget"),
    "no intercept": (lambda: DPPoissonRegressor(fit_intercept=False), "there always is an inter"),
    "offset": (lambda: DPPoissonRegressor(offset=y), "argument 'offset'; see 'bounds_exposure'"),
    "offset of a fit": (lambda: P().fit(X, y, offset=y), r"say exposure=np\.exp\(offset\)"),
    "n_jobs": (lambda: DPLassoFW(n_jobs=2), "argument 'n_jobs'; a fit runs on threads"),
    "bounds": (lambda: DPLassoFW(bounds=(0, 1)), "argument 'bounds'; see 'bounds_X'"),
    "bounds_x": (lambda: DPLassoFW(bounds_x=(0, 1)), "argument 'bounds_x'; see 'bounds_X'"),
    "bounds of heavy tails": (lambda: HeavyTailDPRegressor(bounds_X=(0, 1)), "see 'scale_X'"),
    "bounds of labels": (lambda: DPLassoFWClassifier(bounds_y=(0, 1)), "see 'classes'"),
    "a typing mistake": (lambda: DPLassoFW(espilon=1.0), "see 'epsilon'"),
    "the table for its size": (lambda: R().plan(X, y), r"n_samples must be .* shape \(60, 2\)"),
    # weights and groups
    "weights in third place": (lambda: R().fit(X, y, np.ones(N)), "takes 3 positional arguments"),
    "weights of a pipeline": (lambda: make_pipeline(PublicEncoder(BOX), R()).fit(
        F, y, sample_weight=np.ones(N)), "stepname__parameter"),
    "negative weights": (lambda: R().fit(X, y, sample_weight=-y), "that are not negative"),
    "too few weights": (lambda: R().fit(X, y, sample_weight=y[:3]),
        r"samples: \[60, 3\], of X and sample_weight$"),
    "weights as text": (lambda: R().fit(X, y, sample_weight="balanced"), f"weight {NO_NAME}"),
    "a column's name as groups": (lambda: R().fit(F, y, groups="age"), f"groups {NO_NAME}"),
    "a column's name as exposure": (lambda: P().fit(F, y, exposure="age"), f"exposure {NO_NAME}"),
    "the same of a score": (lambda: dp_score(models.rates, F, y, exposure="e"), NO_NAME),
    "the same of predictions": (lambda: models.rates.predict(F, exposure="e"), NO_NAME),
    "the same of a stream": (lambda: S().partial_fit(F, y, groups="age"), f"groups {NO_NAME}"),
    "too few users": (lambda: R().fit(X, y, groups=y[:3]), r"\[60, 3\], of X and groups"),
    "too few users of a stream": (lambda: S().partial_fit(X, y, groups=y[:3]), "of X and groups"),
    "exposures of a search by name": (
        lambda: rates().fit(F, y, exposure="age"), f"exposure {NO_NAME}"),
    "one exposure of a search": (lambda: rates().fit(X, y, exposure=np.float64(1)),
        r"exposure must have the shape \(n_samples,\), got \(\)"),
    "too few exposures of a search": (lambda: rates().fit(X, y, exposure=y[:3]), "of y and expos"),
    "too few users of a search": (lambda: grid().fit(X, y, groups=y[:3]), "of y and groups"),
    # exposures
    "too few exposures": (lambda: P().fit(X, y, exposure=y[:3]), r"\[60, 3\], of y and exposure"),
    "exposures as weights": (lambda: P(max_weight=1.0).fit(X, y, exposure=y, sample_weight=y),
        "count twice.*Leave sample_weight out"),
    "a column as exposures and weights": (lambda: P(max_weight=1.0).fit(
        F, y, exposure=F["age"], sample_weight=F["age"]), "count twice"),
    "exposures the wrong way": (lambda: P(bounds_exposure=(1, 0.1)).fit(X, y, exposure=y),
        r"^bounds_exposure must be two numbers with low < high, [^,]*, got \(1, 0\.1\)$"),
    "exposures without bounds": (lambda: P(bounds_exposure=None).fit(X, y, exposure=y),
        "go together: declare bounds_exposure"),
    "too few exposures of a score without noise": (
        lambda: models.rates.score(F, y, exposure=y[:3]), "of y and exposure"),
    "exposures and weights of a search": (lambda: rates().fit(X, y, exposure=y, sample_weight=y),
        "count twice"),
    "exposures in second place": (lambda: models.rates.predict(F, y), "return_std must be True or"),
    "exposures after a fit without": (lambda: models.counts.predict(X, exposure=y), "go together"),
    "a score of exposures after a fit without": (
        lambda: dp_score(models.counts, X, y, exposure=y), "no bounds_exposure.*Fit it with both"),
    "too few rows for standard errors": (
        lambda: P(bounds_exposure=None, epsilon=1.0, inference=True).fit(X, y),
        "needs about .* rows, .*at epsilon=1, .*n_samples=60.*inference=False. rows_needed"),
    "standard errors of targets without bounds": (
        lambda: P(bounds_exposure=None, bounds_y=None, inference=True).fit(X, y),
        "^inference=True needs bounds_y: values are clipped to a range that nobody chose"),
    "standard errors without bounds": (lambda: DPLinearRegression(inference=True).fit(X, y),
        "^inference=True needs bounds_X and bounds_y: "),
    "pure counts": (lambda: P(bounds_exposure=None, delta=0).fit(X, y),
        r"^this model has no pure-DP form \(delta=0\): take delta='auto'"),
    "a user without a name": (lambda: R().fit(X, y, groups=np.where(codes, np.nan, 1)),
        "missing or cannot be compared. Say nonfinite='zero'"),
    # accountants
    "the accountant's class": (lambda: R(accountant=BudgetAccountant).fit(X, y),
        r"got the class: make one, BudgetAccountant\(epsilon\)"),
    "epsilon as an accountant": (lambda: R(accountant=1.0).fit(X, y), "accountant must be None"),
    "a ledger's file": (lambda: BudgetAccountant(1.0, path="ledger"), r"save\(path\)"),
    "an accountant of nothing": (lambda: BudgetAccountant(), "argument: 'epsilon'"),
    "too small a budget": (lambda: R(epsilon=11.0).fit(X, y), "would be exceeded.*still fits is"),
    "an accountant's relation": (lambda: R(relation="zero-out").fit(X, y), "accountant's relation"),
    # models
    "no fit before": (lambda: R().predict(X), "not fitted yet"),
    "a fit and then a stream": (lambda: models.ended.partial_fit(X, y), "stream .* has ended"),
    "other columns": (lambda: models.fitted.predict(F.rename(columns={"age": "AGE"})), "unseen at"),
    "another order": (lambda: models.fitted.predict(F[["pay", "age"]]), "same order"),
    "fewer columns": (lambda: models.fitted.predict(X[:, :1]), "has 1 features.*expecting 2"),
    "a row": (lambda: models.fitted.predict(X[0]), "Reshape your data"),
    # searches
    "a grid of no parameter": (lambda: grid(settings={"alpha": [1]}).fit(X, y), "'alpha'; see"),
    "a grid of no step": (lambda: grid(make_pipeline(R()), {"C": [1]}).fit(X, y), "'C'; see"),
    "a grid of a step": (lambda: grid(make_pipeline(R())).fit(X, y),
        r"'feasible_set' is no parameter of the estimator: \['dplassofw__feasible_set'\]"),
    "no y for a search": (lambda: grid().fit(X, None), "requires y"),
    "a grid of one value": (lambda: grid(settings={"feasible_set": L1Ball(1.0)}).fit(X, y),
        "a list for each"),
    "a grid of budgets": (lambda: grid(settings={"epsilon": [1.0]}).fit(X, y), "set by the search"),
    "a model that is not private": (lambda: grid(Ridge()).fit(X, y), "private estimator .* Ridge"),
    "folds": (lambda: grid(cv=5), "unexpected keyword argument 'cv'; there are no folds"),
    "a refit": (lambda: grid(refit=True), "'refit'; .* always fitted again"),
    "a grid of other names": (lambda: grid(make_pipeline(R()), {"dplassofw__C": [1]}).fit(X, y),
        "'dplassofw__C' is no parameter.*argument 'C'; see .*feasible_set"),
    "another scoring": (lambda: grid(scoring="r2x").fit(X, y), "scoring must be one of"),
    "the accountant inside": (lambda: grid(R(accountant=BudgetAccountant(1.0))).fit(X, y),
        "give the accountant to the search"),
    "no candidates": (lambda: DPRandomizedSearchCV(
        R(), {"feasible_set": [L1Ball(1.0)]}, n_iter=0).fit(X, y), "n_iter must be an integer"),
    "a search that is not fitted": (lambda: grid().predict(X), "not fitted yet"),
    "a score where a target is missing": (lambda: models.fitted.score(F, y * np.nan),
        "contains NaN.*dp_score leaves such records out"),
    "a score where a label is missing": (lambda: models.labelled.score(F, ["a", None, "b"] * 20),
        "dp_score leaves such records out"),
    # the encoder
    "a schema of names": (lambda: encode(["age"]), "schema must be a dict"),
    "unknown categories": (lambda: encode(AGE, handle_unknown="ignore"), "see unknown"),
    "words to stop": (lambda: PrivateVocabulary(stop_words="english"), "see vectorizer"),
    "rare words": (lambda: PrivateVocabulary(min_df=5), "words of fewer texts are never released"),
    "a dropped flag": (lambda: encode({"age": bool}, drop={"age": 0}), "a bool is one column"),
    "a type": (lambda: encode({"age": float}), r"schema\['age'\] must be a tuple"),
    "a schema the wrong way": (lambda: encode({"age": (1, 0)}), "low < high"),
    "a column that is not there": (lambda: encode(BOX | {"x": (0, 1)}), r"\['x'\] are missing"),
    "a column too many": (lambda: encode(AGE), r"\['pay'\] are not in the schema"),
    "an array": (lambda: encode(AGE, X), r"data frame.*pandas\.DataFrame\(X, columns="),
    "a table of pyarrow": (lambda: encode(AGE, SimpleNamespace(to_pandas=None)),
        r"a data frame.*: X\.to_pandas\(\) is one"),
    "dates for numbers": (
        lambda: encode(BOX, F.assign(pay=pd.Timestamp("2020-01-01"))), "'pay' has the type"),
    "two kinds of categories": (lambda: encode({"age": ["a", 1]}), "categories of one type"),
    # scores, and the rest
    "no model": (lambda: dp_score("model", X, y), "estimator must be a fitted estimator"),
    "a class to score": (lambda: dp_score(DPLassoFW, X, y), "estimator must be a fitted estimator"),
    "a score of no name": (lambda: dp_score(models.fitted, F + 0, y, scoring="f2"), "scoring must"),
    "an error to score": (lambda: dp_score(models.fitted, X, y, scoring="rmse"), "take 'neg_mean"),
    "a score without bounds": (lambda: dp_score(Ridge().fit(X, y), X, y), "needs bounds_y"),
    "a class to check": (lambda: check_pipeline(StandardScaler), "pipe must be an estimator"),
    "text to scale": (lambda: DPScaler().fit(F.assign(pay=LABEL)), "PublicEncoder"),
    "text to release": (lambda: PrivateMoments().fit(F.assign(pay=LABEL)), "PublicEncoder"),
    "NaN to release": (lambda: PrivateMoments().fit(with_cell(np.nan)), "nonfinite='zero'"),
    "their bounds apart": (lambda: PrivateMoments(bounds_y=(0, 1)), "bounds_X has those of all"),
    "targets apart": (lambda: PrivateMoments().fit(X, y), "targets of linear regressions among"),
    "moments without bounds": (lambda: PrivateMoments().fit(X), "needs bounds_X"),
    "sparse moments": (lambda: PrivateMoments().fit(sparse.csr_array(X)), "dense X"),
    "text to bound": (lambda: private_bounds(F.assign(pay=LABEL)), "PublicEncoder"),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _fits():
    models.fitted = R(solver=Gradient(max_iter=1)).fit(F, y)
    models.labelled = C(solver=Gradient(max_iter=1)).fit(F, labels)
    models.rates = P().fit(F, y, exposure=y)
    models.counts = P(bounds_exposure=None).fit(X, y)
    models.ended = stream(random_state=0).fit(X, y)


def assert_nothing_is_quoted(found):
    """Nor by errors that it came from, which tracebacks hide and crash reports may show."""
    while found is not None:
        assert not re.search(f"{CELL}|{LABEL}", repr(found)), repr(found)
        found = getattr(found, "__cause__", None) or getattr(found, "__context__", None)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_and_costs_nothing(name):
    call, pattern = MISTAKES[name]
    accountant = BudgetAccountant(10.0, 1e-6)
    with (
        accountant,
        nothing_is_released(),
        warnings.catch_warnings(record=True) as shown,
        pytest.raises((TypeError, ValueError, RuntimeError)) as caught,
    ):
        call()
    assert re.search(pattern, str(caught.value), re.DOTALL), str(caught.value)
    assert accountant.ledger == ()
    for message in (caught.value, *(warning.message for warning in shown)):
        assert_nothing_is_quoted(message)


TABLES = {
    "an array": y,
    "a list": y.tolist(),
    "a frame": F,
    "X and y": (X, y),
    "a list in a list": [X.tolist()],
    "a dict of columns": {"age": y.tolist()},
    "a dict of frames": {"age": F},
    "labels": hushed,
    "labels by row": dict(enumerate([LABEL] * N)),
    "a set of labels": {f"{LABEL}{k}" for k in range(N)},
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("parameter", ["epsilon", "solver", "loss", "bounds_y", "feasible_set"])
def test_a_table_in_the_place_of_a_parameter_is_not_quoted(parameter, name):
    with pytest.raises(ValueError, match=r"object of type|two readings|pair|scalars") as caught:
        R(**{parameter: TABLES[name]}).fit(X, y)
    assert_nothing_is_quoted(caught.value)


@pytest.mark.parametrize("few", [N, 3])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_in_the_place_of_a_grid_is_shown_by_its_type(name, few):
    value = TABLES[name]
    value = value[:few] if isinstance(value, np.ndarray | list | pd.DataFrame) else value
    for search in (DPGridSearchCV(R(), value), DPRandomizedSearchCV(R(), value)):
        with pytest.raises(ValueError, match=r"grid of settings|no parameter") as caught:
            search.fit(X, y)
        assert_nothing_is_quoted(caught.value)


def test_an_error_of_one_cell_does_not_say_in_which_column_it_is():
    messages = set()
    for column in F.columns:
        table = F.astype({column: object})
        table.loc[7, column] = LABEL
        with pytest.raises(ValueError, match="must hold numbers") as caught:
            R().fit(table, y)
        messages.add(str(caught.value))
    assert len(messages) == 1


# ------------------------------------------------------------------------ what is only warned of

WARNED = {
    "no bounds": (lambda: R(bounds_X=None).fit(X, y), BoundsNotDeclaredWarning, "bounds_X"),
    "no bounds of y": (lambda: R(bounds_y=None).fit(X, y), BoundsNotDeclaredWarning, "bounds_y"),
    "in a pipeline": (lambda: make_pipeline(R(bounds_X=None)).fit(X, y),
        BoundsNotDeclaredWarning, "bounds_X.*Behind a PublicEncoder say bounds_X=encoder"),
    "in a search": (lambda: GridSearchCV(R(bounds_X=None), {"epsilon": [1]}, cv=2).fit(X, y),
        BoundsNotDeclaredWarning, "bounds_X"),
    "in a private search": (lambda: grid(R(bounds_X=None)).fit(X, y),
        BoundsNotDeclaredWarning, "bounds_X"),
    "no bounds of counts": (lambda: P(bounds_y=None).fit(X, y, exposure=y),
        BoundsNotDeclaredWarning, r"clipped to \(0, 1\).*Larger counts .* say bounds_y=\(low, the"),
    "rows beyond those of a user": (lambda: R().fit(X, y, groups=codes),
        PrivacyParameterWarning, r"58 of 60 rows count for nothing.*max_rows_per_user=1"),
    "the same of counts": (lambda: P().fit(X, y, exposure=y, groups=codes),
        PrivacyParameterWarning, "58 of 60 rows count for nothing"),
    "all categories": (lambda: DPPoissonRegressor(bounds_X=LISTS, bounds_y=(0, 9), epsilon=1e4,
        inference=True).fit(X3, y), PrivacyParameterWarning, "columns of all categories of kind"),
    "no largest weight": (lambda: R().fit(X, y, sample_weight=y),
        BoundsNotDeclaredWarning, "max_weight was not given"),
    "no largest weight of a stream": (lambda: S().partial_fit(X, y, sample_weight=y),
        BoundsNotDeclaredWarning, "max_weight was not given"),
    "no largest weight in a private search": (lambda: grid(R()).fit(X, y, sample_weight=y),
        BoundsNotDeclaredWarning, "max_weight was not given"),
    "no largest weight next to exposure": (lambda: P().fit(X, y, exposure=y, sample_weight=y + 0),
        BoundsNotDeclaredWarning, "max_weight was not given"),
    "in folds": (lambda: cross_val_score(R(delta=0.1), X, y, cv=2),
        PrivacyParameterWarning, "delta=0.1"),
    "hardly a row": (lambda: R(epsilon=0.1).fit(X, y), PrivacyParameterWarning,
        r"too small to learn from 2 features at epsilon=0\.1 .* about \d+0 rows on, and are clear"),
    "a large delta": (lambda: R(delta=0.1).plan(N, 2), PrivacyParameterWarning, "1 / n_samples"),
    "no classes": (lambda: C(classes=None).fit(X, labels), PrivacyLeakWarning, "Declare the"),
    "a seed that nobody asked for": (lambda: BaggingRegressor(R(random_state=None), 1).fit(X, y),
        PrivacyLeakWarning, "known to whoever knows or guesses it"),
    "a column of labels": (lambda: C().fit(X, labels[:, None]), DataConversionWarning, "ravel"),
    "a list for a pair": (lambda: PublicEncoder({"age": [0, 100], "pay": (0, 1)}).fit(F),
        PrivacyParameterWarning, r"write a tuple, \(0, 100\)"),
    "a list within a pipeline": (lambda: make_pipeline(
        PublicEncoder({"age": [0, 100], "pay": (0, 1)}), R()).fit(F, y),
        PrivacyParameterWarning, "write a tuple"),
    "parts of tables in other orders": (lambda: R().fit(
        F.sample(50, random_state=0), TURNED.sample(50, random_state=1)),
        PrivacyParameterWarning, "some row labels of X in another order"),
    "an epsilon inside": (lambda: grid(R(epsilon=0.1)).fit(X, y),
        PrivacyParameterWarning, r"epsilon=0\.1 of the estimator is not used.*epsilon=1\.0"),
    "rows of a user inside": (lambda: grid(R(max_rows_per_user=3), max_rows_per_user=1).fit(X, y),
        PrivacyParameterWarning, "max_rows_per_user=3 of the estimator is not used"),
}  # fmt: skip


@pytest.mark.parametrize("name", WARNED)
def test_a_warning_stands_at_the_line_of_the_user(name):
    call, category, pattern = WARNED[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    found = [warning for warning in caught if re.search(pattern, str(warning.message))]
    assert {warning.category for warning in found} == {category}
    first = call.__code__.co_firstlineno
    for warning in found:
        assert (warning.filename, warning.lineno - first) in ((__file__, 0), (__file__, 1))
    for warning in caught:
        assert_nothing_is_quoted(warning.message)


# (of which folds of scikit-learn make other errors)
@pytest.mark.parametrize("name", [n for n in WARNED if n not in ("in folds", "in a search")])
def test_a_warning_comes_before_anything_is_spent(name):
    call, category, pattern = WARNED[name]
    accountant = BudgetAccountant(1e5, 1e-6)
    with accountant, nothing_is_released(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", f"(?s).*{pattern}", category)
        with pytest.raises(category):
            call()
    assert accountant.ledger == ()


def test_weights_are_silent_where_their_largest_is_declared_and_where_exposure_makes_them():
    with warnings.catch_warnings():
        warnings.simplefilter("error", BoundsNotDeclaredWarning)
        R(max_weight=1.0).fit(X, y, sample_weight=y)
        P().fit(X, y, exposure=y)
        P(max_weight=2.0).fit(X, y, exposure=y, sample_weight=y + 0)


# ------------------------------------------------------------------------ what goes on being taken


def test_bounds_with_one_reading_are_taken():
    for bounds in (
        (0, 1), [0, 1], ([0, 1], [10, 100]), (np.array([0, 1]), np.array([10, 100])),
        [[0, 0], [100, 1]], ((0, 0), (100, 1)), (0, (10, 100)), [0, [10, 100]],
    ):  # fmt: skip
        R(bounds_X=bounds).plan(100, 2)
    three = ((0, 0, 0), (1, 1, 1))
    for bounds in (three, list(three), np.array(three)):
        R(bounds_X=bounds).plan(100, 3)
    R(bounds_y=([0, 1], [10, 100])).plan(100, 2, n_targets=2)


@pytest.mark.parametrize(
    "other",
    [
        pd.Series(y),
        pd.Series(y)[::-1].reset_index(drop=True),
        pd.Series(y, np.arange(N)[::-1] + 9),  # a part of another table, or of one numbered anew
        pd.Series(y, [f"row {k}" for k in range(N)]),
        pd.Series(y).to_frame(),
        pl.Series(y),
    ],
)
def test_rows_are_taken_by_place_where_their_labels_are_others(other):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*row labels")
        R().fit(F, other)
        # a lag
        days = pd.date_range("2020-01-01", periods=N)
        R().fit(F.set_axis(days)[:-1], pd.Series(y, days)[1:])


@pytest.mark.parametrize("bounds", [([0] * 3, [1] * 3), dict.fromkeys("abc", (0, 1))])
def test_columns_that_change_between_fits(bounds):
    # what was fitted before the columns change is charged
    model = R(bounds_X=bounds, solver=Gradient(max_iter=1))
    pattern = "RFE" if isinstance(bounds, dict) else "fewer or more columns"
    for meta, targets in ((RFE(model), y), (RegressorChain(model), X)):
        with pytest.raises(ValueError, match=pattern):
            meta.fit(F3, targets)


META = {
    "voting": (lambda model: VotingClassifier([("a", model)]), [0, 1]),
    "bagging": (lambda model: BaggingClassifier(model, 2, bootstrap=False), [0, 1]),
    "stacking": (lambda model: StackingClassifier([("a", model)], model, cv=KFold(2)), [0, 1]),
    "one against all": (OneVsRestClassifier, [0, 1]),
    "one against one": (OneVsOneClassifier, [0, 1]),
    "codes of classes": (lambda model: OutputCodeClassifier(model, random_state=0), [-1, 1]),
}


@pytest.mark.parametrize("name", META)
def test_the_codes_that_are_asked_for_make_a_model_of_the_labels(name):
    make, declared = META[name]
    rng = np.random.default_rng(0)
    table = rng.uniform(size=(400, 2))
    names = np.where(table[:, 0] > 0.5, "yes", "no")
    model = make(C(classes=declared, epsilon=50.0, max_weight=1.0)).fit(table, names)
    assert model.score(table, names) > 0.9
