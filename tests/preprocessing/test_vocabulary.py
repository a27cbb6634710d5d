"""The private vocabulary: what it finds, how far one user moves it, and its delta."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from support import assert_refuses, recomputed_epsilon

from sklearn_dpsco import (
    BudgetAccountant,
    DPGridSearchCV,
    DPLogisticRegression,
    DPScaler,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyParameterWarning,
    PrivateVocabulary,
    PublicEncoder,
    check_pipeline,
    coef_frame,
)
from sklearn_dpsco.mechanisms import KeyedGaussian
from sklearn_dpsco.preprocessing import vocabulary
from sklearn_dpsco.preprocessing.declared import declared_bounds
from sklearn_dpsco.preprocessing.vocabulary import VocabularyPlan
from sklearn_dpsco.privacy.budget import cost_delta
from sklearn_dpsco.randomness.stream import stream_from_random_state

TEXTS = ["good morning", "good night", "a good day"] * 700
RELATIONS = ("zero-out", "replace-one")


def fitted(texts=TEXTS, groups=None, **settings):
    return PrivateVocabulary(**{"random_state": 0, **settings}).fit(texts, groups=groups)


# ------------------------------------------------------------------------- what is found


def test_words_of_many_are_found_and_those_of_few_are_not():
    rare = [f"name{i}" for i in range(1000)] + ["seldom"] * 20
    words = fitted(TEXTS + rare)
    assert list(words.vocabulary_) == ["day", "good", "morning", "night"]
    weight = 1 / math.sqrt(2)  # of a word of a text that has two
    expected = np.array([700, 2100, 700, 700]) * weight
    assert np.abs(words.counts_ - expected).max() < 8 * words.plan_.count.scale
    half = [weight, weight, 0, 0]
    np.testing.assert_allclose(words.transform(["good old day"]).toarray(), [half], rtol=1e-12)
    assert words.get_feature_names_out().tolist() == list(words.vocabulary_)
    again = pickle.loads(pickle.dumps(words))
    assert again.vocabulary_ == clone(words).fit(TEXTS + rare).vocabulary_ == words.vocabulary_
    plain = fitted(TEXTS + rare, vectorizer=CountVectorizer(ngram_range=(2, 2), max_features=1))
    assert list(plain.vocabulary_) in (["good morning"], ["good night"], ["good day"])


def test_texts_of_a_user_are_joined():
    texts, users = TEXTS + ["word"] * 3000, [*range(len(TEXTS)), *["one"] * 3000]
    assert "word" not in fitted(texts, users, max_rows_per_user=3000).vocabulary_
    assert "word" in fitted(texts).vocabulary_
    # a number and its text are one user
    users = np.array([7, "7", "7.0", "x"], dtype=object)
    _, table = vocabulary._words_of_users(CountVectorizer(), ["good day"] * 4, users, None)
    assert table.shape == (2, 2)
    few, many = (PrivateVocabulary(max_rows_per_user=m).plan(2000).count for m in (1, 50))
    assert few.scale == pytest.approx(many.scale, rel=1e-2)
    assert few.threshold == pytest.approx(many.threshold, rel=1e-2)


def test_without_noise_all_words_are_found():
    with pytest.warns(UserWarning, match="epsilon=inf"):
        words = fitted([*TEXTS, "once"], epsilon=math.inf)
    assert "once" in words.vocabulary_
    assert words.guarantee_.slack == 0


def test_a_vocabulary_may_be_empty():
    with pytest.warns(PrivacyParameterWarning, match="no word passed"):
        words = fitted([f"name{i}" for i in range(1000)])
    assert words.vocabulary_ == {}
    with pytest.raises(ValueError, match="vocabulary is empty"):
        words.transform(["name1"])
    with pytest.warns(PrivacyParameterWarning, match="n_samples=30 is too small"):
        PrivateVocabulary(epsilon=0.5).plan(30)


# ------------------------------------------------------------------------------- privacy


def counts_of(texts, plan, seed=0):
    """Counts by word."""
    analyzer = TfidfVectorizer(use_idf=False)
    users = np.arange(len(texts))
    names, table = vocabulary._words_of_users(analyzer, texts, users, None)
    counts = plan.counts(table, stream_from_random_state(seed))
    return dict(zip(names, counts, strict=True))


@pytest.mark.parametrize("relation", RELATIONS)
def test_how_far_one_user_moves_the_counts(relation):
    plan = PrivateVocabulary(relation=relation, max_words=7).plan(500)
    others = ["good day", "bad day", ""] * 100
    own = ["", "one", "aa bb", "aa bb cc dd ee ff gg", " ".join(f"w{i}" for i in range(40)), "good"]
    largest = 0.0
    for mine in own:
        for other in own if relation == "replace-one" else [""]:
            a, b = (counts_of([*others, text], plan) for text in (mine, other))
            change = [a.get(word, 0.0) - b.get(word, 0.0) for word in a.keys() | b.keys()]
            assert np.count_nonzero(change) <= plan.count.dimension
            largest = max(largest, float(np.linalg.norm(change)))
            # what nobody else has has the weights that the slack allows for
            unique = [a[word] for word in a.keys() - b.keys() if a[word] > 0]
            assert all(count <= 1 / math.sqrt(len(unique)) for count in unique)
    assert 0.999 * plan.count.sensitivity <= largest <= plan.count.sensitivity


def test_words_of_a_user_with_many_are_chosen_by_chance_and_for_each_user_alone():
    plan = PrivateVocabulary(max_words=2).plan(500)
    found = np.sum([list(counts_of(["a0 b0 c0 d0"], plan, s).values()) for s in range(400)], axis=0)
    chosen = np.rint(found * math.sqrt(2))
    assert chosen.sum() == 800
    assert np.all(np.abs(chosen - 200) < 6 * math.sqrt(400 / 4))


@pytest.mark.parametrize("delta", [1e-6, 0.05])
@pytest.mark.parametrize("precision", ["exact", "float"])
def test_slack_bounds_the_words_of_one_user(delta, precision):
    budget = PrivacyBudget(1.0, delta, "replace-one", precision=precision)
    count = VocabularyPlan.of(1000, 30, budget).count
    t = np.arange(1, 31)
    # as it is drawn: rounded up to the grid, like the count
    grid = count.grid
    scale = math.ceil(count.scale / grid) * grid if grid else count.scale
    told = -np.expm1(t * norm.logcdf((count.threshold - grid - 1 / np.sqrt(t)) / scale))
    assert told.max() <= count.slack <= 0.2 * delta * (1 + 1e-6)
    assert told.max() >= 0.98 * count.slack  # not far below: sigma and tau are least


def test_single_words_are_released_as_often_as_the_slack_says():
    """Of the law that is drawn, not of the formula."""
    count = KeyedGaussian.within(
        1.0, PrivacyBudget(1.0, 0.3, "zero-out").gaussian_allowance, 0.2, keys=4, changed=4
    )
    runs, stream = 20_000, stream_from_random_state(1)
    told, _ = count.select(np.full(4 * runs, 0.5), stream)
    n_told = np.unique(told // 4).size
    worst = 1 - norm.cdf((count.threshold - 0.5) / count.scale) ** 4
    low, high = binom.ppf([1e-8, 1 - 1e-8], runs, worst)
    assert low <= n_told <= high
    assert worst <= count.slack
    nobody = KeyedGaussian(1.0, 1.0, 4, keys=4, threshold=-100.0)
    assert nobody.select(np.array([0.0, 1.0, 0.0, 1.0]), stream)[0].tolist() == [1, 3]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("users", [1, 20])
def test_an_adversary_does_not_exceed_the_claim(relation, users):
    """The best test of counts and of words that only one user has, against the whole curve."""
    budget = PrivacyBudget(1.0, 0.1, relation, rows_per_user=users)
    plan = VocabularyPlan.of(100, 3, budget)
    mu = (math.sqrt(2) if relation == "replace-one" else 1.0) / plan.count.scale
    # three words that nobody else has, and next to them counts of others that move by mu
    told = 1 - norm.cdf((plan.count.threshold - 3**-0.5) / plan.count.scale) ** 3
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        gaussian = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(
            -mu / 2 - epsilon / mu
        )
        seen = told + (1 - told) * gaussian
        assert seen <= plan.guarantee.delta_at(epsilon) * (1 + 1e-9)
        if epsilon == 1.0:
            assert seen >= 0.97 * plan.guarantee.delta


def test_slack_is_a_part_of_delta_in_every_claim():
    guarantee = fitted().guarantee_
    assert guarantee.slack == pytest.approx(2e-7, rel=1e-6)
    assert guarantee.mu is None
    assert guarantee.epsilon_at(guarantee.slack) == math.inf
    assert guarantee.epsilon_at(1e-6) == pytest.approx(1.0, rel=1e-6)
    assert guarantee.delta_at(50.0) == guarantee.slack
    assert guarantee.trade_off(0.0) <= 1 - guarantee.slack
    assert recomputed_epsilon(guarantee) <= 1.001
    with pytest.raises(AssertionError, match="spends more"):  # if it were not taken off
        type(guarantee)(
            1.0,
            1e-6,
            "replace-one",
            "gdp",
            VocabularyPlan.of(2000, 50, PrivacyBudget(1.0, 1.3e-6)).guarantee.releases,
        )


# ----------------------------------------------------------------------------- accountants


def test_an_accountant_adds_up_slack(tmp_path):
    accountant = BudgetAccountant(epsilon=2.0, slack=4e-7)
    first = fitted(epsilon=0.5, accountant=accountant).guarantee_
    accountant.save(tmp_path / "ledger.json")
    del accountant
    accountant = BudgetAccountant.load(tmp_path / "ledger.json")
    (charge,) = accountant.ledger
    assert charge.slack == first.slack > 0
    spent = accountant.total_spent()
    assert first.slack + cost_delta("gdp", first.cost("gdp"), spent) <= 1e-6 * (1 + 1e-9)
    with pytest.raises(PrivacyBudgetError) as refused:
        fitted(epsilon=2.0, accountant=accountant)
    largest = float(str(refused.value).split("still fits is ")[1].split(",")[0])
    second = fitted(epsilon=0.999 * largest, accountant=accountant).guarantee_
    total, slack = (sum(costs) for costs in zip(*map(costs_of, (first, second)), strict=True))
    # whatever was chosen after looking: the two parts are fixed before
    assert total <= PrivacyBudget(2.0, 6e-7).mu ** 2 / 2
    assert slack <= 4e-7
    assert accountant.remaining() < 0.1
    assert 1.9 < accountant.total_spent() <= 2.0
    frame = accountant.to_frame()
    assert frame["slack"].tolist() == [first.slack, second.slack]
    path = tmp_path / "ledger.json"
    assert "slack=4e-07" in repr(BudgetAccountant.load(path))
    path.write_text(path.read_text().replace('"slack": 4e-07', '"slack": 3e-07'))
    with pytest.raises(ValueError, match=r"ledger.json' is not.*more slack than it keeps"):
        BudgetAccountant.load(path)


def costs_of(guarantee):
    return guarantee.cost("gdp"), guarantee.slack


def test_slack_is_kept_before_the_first_fit_and_never_taken_from_what_is_left():
    """Who may choose after each result whether delta pays for noise or slack gets both of them."""
    plain = BudgetAccountant(epsilon=2.0)
    with pytest.raises(PrivacyBudgetError, match=r"slack=2e-07\); or say a smaller delta"):
        fitted(epsilon=0.02, accountant=plain)
    assert not plain.ledger
    kept = BudgetAccountant(epsilon=2.0, slack=2e-7)
    assert kept.remaining() < plain.remaining()
    fitted(epsilon=2.0, accountant=kept)  # a vocabulary may take the whole
    again = BudgetAccountant(epsilon=2.0, slack=2e-7)
    fitted(epsilon=0.02, accountant=again)
    with pytest.raises(PrivacyBudgetError, match=r"slack=4e-07 with"):
        fitted(epsilon=0.02, accountant=again)
    assert len(again.ledger) == 1
    model = DPLogisticRegression(epsilon=2.0, bounds_X=(0, 1), classes=[0, 1])
    model.set_params(accountant=BudgetAccountant(epsilon=2.0, slack=2e-7))
    with pytest.raises(PrivacyBudgetError, match=r"\(slack=2e-07 of delta is kept\) would be"):
        model.fit([[0.0], [1.0]] * 500, [0, 1] * 500)
    small = BudgetAccountant(epsilon=2.0, delta=1e-7)  # which cannot keep so much
    with pytest.raises(PrivacyBudgetError, match=r"was charged\. Say a smaller delta here"):
        fitted(epsilon=0.02, delta=1e-6, accountant=small)
    for slack in (-1e-9, 1e-6, "1e-7", math.nan):
        assert_refuses(BudgetAccountant, "slack", epsilon=1.0, slack=slack)
    assert_refuses(BudgetAccountant, "slack", epsilon=1.0, delta=0.0, slack=1e-9)


def test_slack_of_parallel_branches_is_that_of_the_largest():
    accountant = BudgetAccountant(epsilon=1.0, slack=2e-7)
    group = accountant.parallel()
    for k in range(8):
        fitted(epsilon=0.9, accountant=group.branch(str(k)))
    assert accountant.remaining() > 0.01


# ----------------------------------------------------------------------------------- use


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"vectorizer": HashingVectorizer()}, "CountVectorizer"),
        ({"vectorizer": TfidfVectorizer()}, "use_idf=False"),
        ({"vectorizer": CountVectorizer(min_df=2)}, "min_df=1"),
        ({"vectorizer": CountVectorizer(max_df=0.5)}, "max_df=1.0"),
        ({"vectorizer": CountVectorizer(vocabulary=["a"])}, "vocabulary=None"),
        ({"vectorizer": CountVectorizer(input="filename")}, "input='content'"),
        ({"vectorizer": CountVectorizer(max_features=-1)}, "max_features"),
        ({"vectorizer": CountVectorizer(ngram_range=(2, 1))}, "ngram_range"),
        ({"vectorizer": CountVectorizer(token_pattern="(a)(b)")}, "capturing group"),
        ({"vectorizer": CountVectorizer(stop_words="klingon")}, "stop_words"),
        ({"max_words": 0}, "max_words"),
        ({"max_words": 10**12}, "max_words"),
        ({"delta": 0}, "delta=0"),
        ({"nonfinite": "drop"}, "nonfinite"),
        ({"max_rows_per_user": 2}, "needs groups"),
        ({"random_state": "x"}, "random_state"),
    ],
)
def test_bad_parameters_cost_nothing(settings, match):
    accountant = BudgetAccountant(epsilon=1.0, slack=2e-7)
    with pytest.raises(ValueError, match=match):
        fitted(**settings, accountant=accountant)
    assert not accountant.ledger


def test_bad_texts_cost_nothing():
    accountant = BudgetAccountant(epsilon=1.0, slack=2e-7)
    once = (text for text in TEXTS)  # fit_transform would read it twice
    for texts in ("good day", b"x", [*TEXTS, None], np.array([TEXTS]), 3, [*TEXTS, b"x"], once):
        with pytest.raises(ValueError, match="text"):
            fitted(texts, accountant=accountant)
    with pytest.raises(ValueError, match="inconsistent"):
        fitted(groups=[1, 2], accountant=accountant)
    assert_refuses(PrivateVocabulary().plan, "n_samples", 2**29 + 1)  # sums would be rounded
    assert not accountant.ledger
    column = pd.Series([*TEXTS, None, math.nan])
    users = np.array([*range(len(TEXTS)), ["no", "user"], None], dtype=object)
    words = fitted(column, users, nonfinite="zero")
    assert "good" in words.vocabulary_
    # a text that is missing makes an invalid record, one without words does not
    rows = words.transform(pd.Series(["good", None, math.nan, ""]))
    np.testing.assert_array_equal(np.isnan(rows.toarray()).any(axis=1), [False, True, True, False])
    counts = fitted(vectorizer=CountVectorizer(), nonfinite="zero")
    for texts in (["good"], ["good", None]):  # whose type and order tell of no other text
        found = counts.transform(texts)
        assert (found.dtype, found.has_sorted_indices) == (np.float64, True)


def test_neither_the_order_of_texts_nor_that_of_words_matters():
    """Words have the order of the alphabet, which decides ties and the noise of each."""
    reordered = [" ".join(reversed(text.split())) for text in TEXTS]
    first, second = fitted(TEXTS), fitted(reordered)
    assert first.vocabulary_ == second.vocabulary_
    np.testing.assert_array_equal(first.counts_, second.counts_)
    # nor their hashes, which are others in another process, and sets in another order
    texts, found = ["the quick brown fox jumps over my lazy dog"] * 1000, []
    for sign in (1, -1):
        word = type("Word", (str,), {"__hash__": lambda self, sign=sign: sign * ord(self[0])})
        split = CountVectorizer(analyzer=lambda text, word=word: map(word, text.split()))
        words = fitted(texts, vectorizer=split)
        found.append((list(words.vocabulary_), words.counts_.tolist()))
    assert found[0] == found[1]


def test_what_an_analyzer_gives_that_is_no_text_does_not_count():
    def pairs(text):
        return [*text.split(), 3, None, ("a", "b")]

    words = fitted(vectorizer=CountVectorizer(analyzer=pairs, binary=True))
    assert list(words.vocabulary_) == ["a", "day", "good", "morning", "night"]


def test_a_pipeline_counts_released_words():
    y = np.resize(["am", "pm", "am"], len(TEXTS))
    words = PrivateVocabulary(epsilon=0.5)
    pipe = make_pipeline(
        words, DPLogisticRegression(epsilon=0.5, bounds_X=(0, 1), classes=["am", "pm"])
    )
    assert check_pipeline(pipe).ok
    assert pipe.fit(TEXTS, y).score(TEXTS, y) > 0.95
    # the vocabulary declares bounds by then, also beside other columns, and also where a copy of it
    # is in their place
    table = pd.DataFrame({"note": TEXTS, "age": [20.0, 60.0, 40.0] * 700})
    beside = make_column_transformer((PublicEncoder({"age": (18, 98)}), ["age"]), (words, "note"))
    for step, X in ((words, TEXTS), (beside, table)):
        whole = make_pipeline(step, clone(pipe[-1]).set_params(bounds_X=step))
        for model in (whole,) if step is words else (whole, clone(whole)):
            accountant = BudgetAccountant(epsilon=1.0, slack=2e-7)
            with accountant:
                assert model.fit(X, y).score(X, y) > 0.95
            assert len(accountant.ledger) == 2
            names = coef_frame(model).index.get_level_values(0)
            assert "morning" in names.str.removeprefix("privatevocabulary__")
            bounds = model[-1].plan_.problem
            assert bounds.n_features == len(names) - 1
            assert bounds.row_norm == pytest.approx(math.sqrt(1 + (step is beside)))
    # a search takes the vectorizer, which is public by then
    vectorizer = words.fit(TEXTS).vectorizer_
    public = make_pipeline(
        vectorizer, DPLogisticRegression(bounds_X=vectorizer, classes=["am", "pm"])
    )
    assert check_pipeline(public).ok
    grid = {"dplogisticregression__fit_intercept": [True, False]}
    search = DPGridSearchCV(public, grid, epsilon=5.0).fit(TEXTS * 3, np.tile(y, 3))
    assert search.score(TEXTS, y) > 0.95
    with pytest.raises(ValueError, match="vectorizer_"):
        DPGridSearchCV(pipe, grid, epsilon=2.0).fit(TEXTS, y)


@pytest.mark.parametrize(
    ("vectorizer", "low", "row_norm"),
    [
        (HashingVectorizer(n_features=16), -1, 1.0),
        (HashingVectorizer(n_features=16, binary=True), 0, 1.0),
        (HashingVectorizer(n_features=16, alternate_sign=False, norm="l1"), 0, 1.0),
        (HashingVectorizer(n_features=16, binary=True, norm=None), 0, 4.0),
        (TfidfVectorizer(vocabulary=list("abcd"), use_idf=False), 0, 1.0),
        (TfidfVectorizer(vocabulary=list("abcd"), use_idf=False, norm=None, binary=True), 0, 2.0),
        (CountVectorizer(vocabulary={"a": 0, "b": 1}, binary=True), 0, math.sqrt(2)),
    ],
)
def test_vectorizers_declare_their_outputs(vectorizer, low, row_norm):
    texts = ["a b c d", "aa bb cc dd ee ff gg hh", "a a a a", ""]
    if not isinstance(vectorizer, HashingVectorizer):
        vectorizer = clone(vectorizer).set_params(token_pattern=r"\w+").fit(texts)
    X = vectorizer.transform(texts).toarray()
    bounds, facts = declared_bounds(vectorizer, X.shape[1])
    assert (bounds[0] == low).all()
    assert (bounds[1] == 1).all()
    assert facts["row_norm"] == pytest.approx(row_norm)
    assert X.min() >= low
    assert X.max() <= 1
    assert np.linalg.norm(X, axis=1).max() <= row_norm * (1 + 1e-9)


@pytest.mark.parametrize(
    ("vectorizer", "match"),
    [
        (HashingVectorizer(n_features=16, norm=None), "without a bound"),
        (CountVectorizer(vocabulary=["a"]), "without a bound"),
        (CountVectorizer(binary=True), "learns words"),
        (TfidfVectorizer(vocabulary=["a"]), "learns words"),
        (PrivateVocabulary(CountVectorizer()), "without a bound"),
        (DPScaler(), "budget"),
    ],
)
def test_other_vectorizers_declare_nothing(vectorizer, match):
    with pytest.raises(ValueError, match=match):
        declared_bounds(vectorizer, 16)


def test_bad_claims_are_refused():
    for name, value in {"epsilon": -1, "relation": "add", "precision": "double"}.items():
        assert_refuses(fitted, name, **{name: value})
