"""check_pipeline names what learns from data, and nothing else; a fit warns of it once."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import decomposition, ensemble, feature_selection, impute, preprocessing
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SequentialFeatureSelector
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.random_projection import GaussianRandomProjection
from support import assert_refuses

from sklearn_dpsco import (
    DPFTRLRegressor,
    DPGridSearchCV,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPScaler,
    PrivateVocabulary,
    PublicEncoder,
    check_pipeline,
)
from sklearn_dpsco.solvers import Descent

CLASSES = ["no", "yes"]


def regressor(**parameters):
    settings = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
    settings["solver"] = Descent(max_iter=2)
    return DPMirrorRegressor(**settings | parameters)


def classifier():
    return DPMirrorClassifier(bounds_X=(-1, 1), classes=CLASSES, solver=Descent(max_iter=2))


class Shift(TransformerMixin, BaseEstimator):
    """Of a user, and learns from the data."""

    def fit(self, X, y=None):
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.mean_


class Halve(Shift):
    """Of a user, and says that it learns nothing."""

    def transform(self, X):
        return X / 2

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class MyScaler(preprocessing.StandardScaler):
    """A class derived from one that is known."""


LEAKING = [
    preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.MaxAbsScaler(),
    preprocessing.RobustScaler(), preprocessing.QuantileTransformer(),
    preprocessing.PowerTransformer(), preprocessing.KBinsDiscretizer(),
    preprocessing.OneHotEncoder(), preprocessing.OrdinalEncoder(), preprocessing.TargetEncoder(),
    preprocessing.OneHotEncoder(categories=[["a", "b"]], min_frequency=3),
    preprocessing.SplineTransformer(), preprocessing.KernelCenterer(),
    impute.SimpleImputer(), impute.SimpleImputer(strategy="constant"),
    impute.SimpleImputer(strategy="constant", keep_empty_features=True, add_indicator=True),
    impute.KNNImputer(), impute.MissingIndicator(), feature_selection.SelectKBest(),
    feature_selection.VarianceThreshold(), decomposition.PCA(), decomposition.TruncatedSVD(),
    Nystroem(), RBFSampler(gamma="scale"), CountVectorizer(), TfidfVectorizer(),
    TfidfVectorizer(vocabulary=["a"]), TfidfTransformer(), MyScaler(),
]  # fmt: skip
FIXED = [
    "passthrough", None, PublicEncoder({"a": (0, 1)}), preprocessing.FunctionTransformer(np.tanh),
    preprocessing.OneHotEncoder(categories=[["a", "b"]]), preprocessing.Normalizer(),
    preprocessing.OrdinalEncoder(categories=[["a", "b"]]), preprocessing.Binarizer(),
    preprocessing.PolynomialFeatures(), preprocessing.SplineTransformer(knots=[[0.0], [1.0]]),
    impute.SimpleImputer(strategy="constant", keep_empty_features=True),
    impute.MissingIndicator(features="all"),
    GaussianRandomProjection(3), RBFSampler(gamma=1.0), HashingVectorizer(),
    CountVectorizer(vocabulary=["a"]), TfidfVectorizer(vocabulary=["a"], use_idf=False),
    TfidfTransformer(use_idf=False), Halve(),
]  # fmt: skip


def kind_of(step):
    return type(step).__name__


@pytest.mark.parametrize("step", LEAKING, ids=kind_of)
def test_steps_that_leak(step):
    report = check_pipeline(Pipeline([("prepare", step), ("model", regressor())]))
    assert not report
    assert not report.ok
    (finding,) = report
    assert (finding.step, finding.kind) == ("prepare", kind_of(step))
    assert finding.leaks
    assert finding.instead
    assert (
        str(report) == f"prepare ({finding.kind}) leaks {finding.leaks}; instead: {finding.instead}"
    )


@pytest.mark.parametrize("step", FIXED, ids=kind_of)
def test_steps_that_learn_nothing(step):
    report = check_pipeline(make_pipeline(step, regressor()))
    assert report
    assert report.ok
    assert report.findings == ()
    assert str(report) == "no step is known to leak"


def test_unknown_steps():
    (finding,) = check_pipeline(make_pipeline(Shift(), regressor()))
    assert "unless you know otherwise" in finding.leaks
    assert "requires_fit" in finding.instead


def steps_of(pipe):
    return [(finding.step, finding.kind) for finding in check_pipeline(pipe)]


def test_steps_inside_of_others():
    scale = preprocessing.StandardScaler()
    columns = ColumnTransformer(
        [("a", make_pipeline(scale), ["x"]), ("b", "drop", ["y"]), ("c", "passthrough", ["z"])],
        remainder=impute.SimpleImputer(),
    )
    union = FeatureUnion([("d", decomposition.PCA()), ("e", "passthrough")])
    pipe = Pipeline([("columns", columns), ("union", union), ("model", regressor())])
    assert steps_of(pipe) == [
        ("columns: a: standardscaler", "StandardScaler"),
        ("columns: remainder", "SimpleImputer"),
        ("union: d", "PCA"),
    ]
    target = TransformedTargetRegressor(
        make_pipeline(scale, regressor()), transformer=scale, check_inverse=False
    )
    assert steps_of(target) == [
        ("transformer", "StandardScaler"),
        ("regressor: standardscaler", "StandardScaler"),
    ]
    assert steps_of(scale) == [("the estimator itself", "StandardScaler")]
    assert steps_of(regressor()) == []
    scaled = ("standardscaler", "StandardScaler")
    assert steps_of(make_pipeline(scale, Ridge())) == [scaled, ("ridge", "Ridge")]
    assert steps_of(DPMirrorClassifier()) == [("the estimator itself", "DPMirrorClassifier")]


def test_steps_inside_of_a_private_search():
    def search(*steps):
        return DPGridSearchCV(make_pipeline(*steps), {"dpmirrorregressor__loss": ["huber"]})

    leaking = search(preprocessing.StandardScaler(), regressor())
    found = ("estimator: standardscaler", "StandardScaler")
    assert steps_of(leaking) == [found]
    assert steps_of(make_pipeline("passthrough", leaking))[0][1] == "StandardScaler"
    # whose epsilons and seeds the search sets
    assert steps_of(search("passthrough", regressor(epsilon=np.inf, random_state=0))) == []
    assert steps_of(DPGridSearchCV(DPMirrorClassifier(), {"loss": ["hinge"]})) == [
        ("estimator", "DPMirrorClassifier")
    ]


def test_functions_that_choose_columns():
    def chosen_by(columns):
        return make_pipeline(ColumnTransformer([("some", "passthrough", columns)]), regressor())

    (finding,) = check_pipeline(chosen_by(lambda X: X.columns[X.var() > 1]))
    assert finding.step == "columntransformer: some"
    assert "make_column_selector" in finding.instead
    for columns in (["x"], slice(0, 1), [True, False], make_column_selector("x")):
        assert check_pipeline(chosen_by(columns))


def test_estimators_that_hold_others():
    folds = KFold(2)
    on_folds = [kind(regressor(), {}, cv=folds) for kind in (GridSearchCV, RandomizedSearchCV)]
    for search in (*on_folds, GridSearchCV(regressor(), {})):
        (finding,) = check_pipeline(search)
        assert "un-noised scores" in finding.leaks
    for cv in (None, 3, StratifiedKFold(3)):
        found = check_pipeline(GridSearchCV(classifier(), {}, cv=cv)).findings
        assert ["stratified" in finding.leaks for finding in found] == [False, True]
        assert "KFold" in found[1].instead
    assert len(check_pipeline(GridSearchCV(classifier(), {}, cv=folds)).findings) == 1
    chosen, other = SequentialFeatureSelector, regressor()
    held = [TunedThresholdClassifierCV(classifier(), cv=0.3), chosen(classifier()), chosen(other)]
    held += [chosen(other, cv=kind(n_splits=3)) for kind in (RepeatedStratifiedKFold, GroupKFold)]
    held += [ClassifierChain(classifier(), cv=cv) for cv in (None, 3)]
    found = ["stratified" in str(check_pipeline(one)) for one in held]
    assert found == [True, True, False, True, False, False, True]
    inner = GridSearchCV(make_pipeline(preprocessing.StandardScaler(), regressor()), {}, cv=folds)
    assert steps_of(inner)[1] == ("estimator: standardscaler", "StandardScaler")
    assert "calibration" in str(check_pipeline(CalibratedClassifierCV(classifier(), cv=folds)))
    assert "weights" in str(check_pipeline(ensemble.AdaBoostClassifier(classifier())))
    for bootstrap in (True, False):  # a fit warns of the seeds, too
        bagging = ensemble.BaggingRegressor(regressor(), bootstrap=bootstrap)
        (finding,) = check_pipeline(bagging).findings
        assert "seeds" in finding.leaks
    _, codes = check_pipeline(ensemble.BaggingClassifier(classifier())).findings
    assert "labels that occur" in codes.leaks
    assert "two classes" in str(check_pipeline(OneVsOneClassifier(classifier())))
    pair = [("a", regressor()), ("b", regressor())]
    assert check_pipeline(ensemble.VotingRegressor(pair))
    assert "final estimator" in str(check_pipeline(ensemble.StackingRegressor(pair)))
    assert check_pipeline(ensemble.StackingRegressor(pair, final_estimator=regressor()))
    mixed = ensemble.VotingClassifier([("a", classifier()), ("b", LogisticRegression())])
    assert steps_of(mixed) == [
        ("the estimator itself", "VotingClassifier"),
        ("b", "LogisticRegression"),
    ]


@pytest.mark.parametrize("model", [
    GaussianProcessRegressor(), TransformedTargetRegressor(),
    ensemble.BaggingRegressor(bootstrap=False),
], ids=kind_of)  # fmt: skip
def test_models_without_privacy_that_need_no_fit_or_are_held_by_default_are_named(model):
    found = check_pipeline(make_pipeline("passthrough", model)).findings
    assert any("without privacy" in finding.leaks for finding in found)


@pytest.mark.parametrize("holder", [
    lambda: ensemble.VotingClassifier([("a", classifier())]),
    lambda: ensemble.StackingClassifier([("a", classifier())], classifier(), cv=KFold(3)),
    lambda: OneVsRestClassifier(classifier()), lambda: OutputCodeClassifier(classifier()),
])  # fmt: skip
def test_codes_that_follow_from_the_labels_that_occur_are_named(holder):
    (finding,) = check_pipeline(holder()).findings
    assert "labels that occur" in finding.leaks


def test_a_check_of_an_inverse_function_tells_of_records():
    def cut(x):
        return np.clip(x, 0, 1)

    def steps(**more):
        target = TransformedTargetRegressor(regressor(), func=cut, inverse_func=np.copy, **more)
        of_X = preprocessing.FunctionTransformer(cut, np.copy, **more)
        return target, make_pipeline(of_X, regressor())

    for step in steps():
        (finding,) = check_pipeline(step).findings
        assert "check_inverse=False" in finding.instead
    for step in steps(check_inverse=False):
        assert check_pipeline(step)
    assert check_pipeline(TransformedTargetRegressor(regressor()))
    assert check_pipeline(make_pipeline(preprocessing.FunctionTransformer(cut), regressor()))
    # (why it is one: scikit-learn's own doing)
    X, y = np.full((100, 1), 0.5), np.full(100, 0.5)
    with pytest.warns(UserWarning, match="inverse"):
        steps()[0].fit(X, np.append(-0.5, y[1:]))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*inverse")
        steps()[0].fit(X, y)


def test_one_record_moves_the_labels_of_others_where_codes_follow_from_labels():
    # (why the finding above is one: scikit-learn's own doing)
    seen = []

    class Seen(DPMirrorClassifier):
        def fit(self, X, y, **extras):
            seen.append(np.asarray(y))
            return super().fit(X, y, **extras)

    X = np.linspace(-1, 1, 100)[:, None]
    labels = np.where(X[:, 0] > 0, 2, 0)
    odd = np.where(np.arange(100) == 7, 1, labels)
    model = Seen(bounds_X=(-1, 1), classes=[0, 1, 2], solver=Descent(max_iter=2))
    for y in (labels, odd):
        ensemble.VotingClassifier([("a", model)]).fit(X, y)
    assert np.sum(np.delete(seen[0] != seen[1], 7)) == 50


def test_what_fits_private_models_more_than_once_says_that_they_compose():
    for repeats in (
        RFE(regressor()),
        RFECV(regressor()),
        SequentialFeatureSelector(regressor()),
        GridSearchCV(regressor(), {}),
        ensemble.BaggingRegressor(regressor(), bootstrap=False),
    ):
        (step,) = check_pipeline(make_pipeline("passthrough", repeats)).repeated
        assert step.endswith(f" ({type(repeats).__name__})")
    found = check_pipeline(make_pipeline(RFE(regressor()), regressor()))
    assert found.ok
    assert str(found).endswith(
        "to leak\nrfe (RFE) fits private models more than once: all its fits compose"
    )
    for once in (SelectFromModel(regressor()), RFE(Ridge()), regressor()):
        assert check_pipeline(once).repeated == ()


def test_hashed_signs_that_bounds_cut_off_are_named():
    def report(step, bounds):
        return check_pipeline(make_pipeline(step, regressor(bounds_X=bounds)))

    for step in (HashingVectorizer(), FeatureHasher()):
        found, kind = report(step, (0, 1)), type(step).__name__
        assert found.ok
        assert found.clipped == (f"{kind.lower()} ({kind})",)
        assert str(found).endswith("alternate_sign=False makes none")
        branches = FeatureUnion([("words", make_pipeline("passthrough", step))])
        assert report(branches, (0, 1)).clipped == (f"featureunion: words ({kind})",)
        for bounds in ((-1, 1), None, HashingVectorizer()):
            assert not report(step, bounds).clipped
        assert not report(step.set_params(alternate_sign=False), (0, 1)).clipped
    assert not report(HashingVectorizer(binary=True), (0, 1)).clipped  # has no signs


def test_negative_values_of_an_encoder_that_bounds_cut_off_are_named():
    encoder = PublicEncoder({"age": (18, 98), "income": (0, 1e5)})
    both = ColumnTransformer([("table", encoder, ["age", "income"])])

    def clipped(step, bounds):
        return check_pipeline(make_pipeline(step, regressor(bounds_X=bounds))).clipped

    assert clipped(encoder, (0, 1)) == ("publicencoder (PublicEncoder)",)
    assert clipped(encoder, ([0, 0], [1, 1])) == clipped(encoder, (0, 1))
    assert clipped(both, (0, 1)) == ("columntransformer: table (PublicEncoder)",)
    for bounds in (encoder, None, (-1, 1), ([-1, 0], [1, 1]), ([0, 0, 0], [1, 1, 1])):
        assert clipped(encoder, bounds) == ()
    assert clipped(both, ([0, 0], [1, 1])) == ()  # it is not known which column is whose
    assert clipped(PublicEncoder({"income": (0, 1e5)}), (0, 1)) == ()


def test_an_encoder_that_is_not_the_one_in_bounds_is_refused_or_named():
    encoder = PublicEncoder({"age": (18, 98), "job": ["a", "b"]}, drop="first")
    other = clone(encoder).set_params(drop={"job": "b"})
    table, target = pd.DataFrame({"age": [20, 50], "job": ["a", "b"]}), [0.0, 1.0]
    stream = DPFTRLRegressor(bounds_X=other, bounds_y=(0, 1))
    for fit in (stream.fit, stream.partial_fit):
        assert_refuses(fit, "the one that made X", encoder.transform(table), target)
    # columns of others beside them: nobody knows who made them
    both = ColumnTransformer([("all", encoder, ["age", "job"])])
    for bounds in (None, (0, 1), both, clone(both)):
        assert check_pipeline(make_pipeline(both, regressor(bounds_X=bounds))).unlike == ()
    pipe = clone(make_pipeline(both, regressor(bounds_X=both)))
    report = check_pipeline(pipe.set_params(columntransformer__all__drop={"job": "b"}))
    assert report.ok
    assert report.unlike == ("the ColumnTransformer before the model",)
    assert "the ColumnTransformer before the model is not what bounds_X says" in str(report)


def test_bounds_that_no_step_declares_are_an_error_before_words_are_bought():
    words, counts = PrivateVocabulary(epsilon=0.5), PrivateVocabulary(CountVectorizer())
    for step, bounds in ((counts, counts), (words, counts), (words, DPScaler())):
        with pytest.raises(ValueError, match="bounds_X is a transformer, and"):
            check_pipeline(make_pipeline(step, regressor(bounds_X=bounds)))
    with pytest.raises(ValueError, match=r"CountVectorizer.*learns words"):
        check_pipeline(regressor(bounds_X=CountVectorizer()))
    beside = ColumnTransformer([("words", words, "note")], sparse_threshold=1)
    for step in (words, beside):
        pipe = make_pipeline(step, regressor(bounds_X=step))
        for copy in (pipe, clone(pipe)):  # whose bounds are those of another vocabulary
            report = check_pipeline(copy)
            assert report.ok
            (named,) = report.budgeted
            assert named.endswith(" (PrivateVocabulary) costs epsilon=0.5")
            assert named in str(report)
    scaled = make_pipeline(DPScaler(), regressor())
    assert check_pipeline(scaled).budgeted == ("dpscaler (DPScaler) costs epsilon=1.0",)
    # the budget of a search is for all that it fits
    search = DPGridSearchCV(scaled, {"dpmirrorregressor__loss": ["huber"]})
    for pipe in (search, make_pipeline("passthrough", search)):
        assert check_pipeline(pipe).budgeted == ()
    # what leaks is named first
    scaler = preprocessing.StandardScaler()
    assert not check_pipeline(make_pipeline(scaler, regressor(bounds_X=scaler))).ok


def test_nothing_is_printed(capsys):
    check_pipeline(make_pipeline(preprocessing.StandardScaler(), regressor()))
    assert capsys.readouterr() == ("", "")


def test_a_seed_is_a_leak():
    (found,) = check_pipeline(make_pipeline("passthrough", regressor(random_state=7))).findings
    assert "random_state is given" in found.leaks
    assert check_pipeline(regressor()).ok


def test_a_record_that_decides_whether_columns_are_stacked_as_a_sparse_matrix():
    """By their density, to which an unknown category adds nothing."""
    codes = preprocessing.OneHotEncoder(categories=[CLASSES], handle_unknown="ignore")
    dense = preprocessing.OneHotEncoder(categories=[CLASSES], sparse_output=False)
    encoder = PublicEncoder({"b": ["u", "v"]}, sparse_output=True)
    number = ("number", "passthrough", [0])
    inner = ColumnTransformer([("codes", codes, [1])], sparse_threshold=0)
    sparse_parts = (
        codes,
        encoder,
        PrivateVocabulary(),
        HashingVectorizer(),
        make_pipeline(HashingVectorizer(), TfidfTransformer(use_idf=False), "passthrough"),
        FeatureUnion([("codes", codes), ("dense", dense)]),
    )
    for part in sparse_parts:
        both = ColumnTransformer([("part", part, [1]), number])
        findings = check_pipeline(make_pipeline(both, regressor())).findings
        assert [one.step for one in findings] == ["columntransformer"], part
        assert "sparse_threshold=0" in str(findings[0])
        for threshold in (0, 1):
            both.set_params(sparse_threshold=threshold)
            assert check_pipeline(make_pipeline(both, regressor())), part
    for part in (dense, inner, PublicEncoder({"b": ["u", "v"]})):
        assert check_pipeline(ColumnTransformer([("part", part, [1]), number])), part
    # an encoder that refuses unknown categories stores as many values of every table
    strict = clone(codes).set_params(handle_unknown="error")
    for part in (strict, make_pipeline("passthrough", strict)):
        assert check_pipeline(ColumnTransformer([("part", part, [1]), number])), part
    for part in (
        clone(strict).set_params(drop=np.array(CLASSES[:1], dtype=object)),
        # (of which a dense part becomes sparse)
        FeatureUnion([("codes", strict), ("dense", dense)]),
    ):
        assert not check_pipeline(ColumnTransformer([("part", part, [1]), number])), part
