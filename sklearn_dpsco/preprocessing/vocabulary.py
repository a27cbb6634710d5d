"""The words that many users have, released privately; doc/privacy, section 2.19."""

from __future__ import annotations

import math
from array import array
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.utils.validation import check_is_fitted

from .._checks import check_count, check_int, naming, stated, warn_user
from .._fitting import PrivateEstimator, in_order
from .._overview import Overviewed
from .._types import AnyArray, Array, Indices
from ..data.cells import as_users, check_order, is_of_bytes, texts_of_bytes, user_of
from ..exceptions import PrivacyParameterWarning
from ..mechanisms import KeyedGaussian, Release
from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream

_SLACK_SHARE = 0.2  # of delta, for words that one user alone has
# Counts are multiples of the unit, so that sums of as many as there may be texts are exact.
_UNIT, _MOST_TEXTS = 2.0**-24, 2**29


@dataclass(frozen=True)
class VocabularyPlan(Overviewed):
    """How a vocabulary is released; made before any text is read.

    Attributes
    ----------
    n_samples : int
    count : KeyedGaussian
        Its `threshold` is what the noisy count of a word must exceed. A user with t words
        adds 1 / sqrt(t) to each of them.
    guarantee : Guarantee
    """

    _headline = "a vocabulary of {0.n_samples} texts"

    n_samples: int
    count: KeyedGaussian
    guarantee: Guarantee

    @classmethod
    def of(cls, n_samples: int, max_words: int, budget: PrivacyBudget) -> VocabularyPlan:
        """The plan for so many texts."""
        if budget.is_pure:
            raise ValueError(
                "delta=0 allows for no word that the data alone name: take delta > 0, or a "
                "vocabulary that is public"
            )
        slack = _SLACK_SHARE * budget.delta
        allowance = replace(budget, delta=budget.delta - slack).gaussian_allowance
        # the weights of one user's words have the norm 1; those of two are orthogonal at worst
        changed = max_words * int(budget.record_factor)
        norm = math.sqrt(budget.record_factor) / budget.rows_per_user
        count = KeyedGaussian.within(norm, allowance, slack, keys=max_words, changed=changed)
        releases = (Release("words", count),)
        return cls(n_samples, count, Guarantee.of(budget, releases, allowance.kind))

    def release(self, words: sparse.csr_matrix, stream: RandomStream) -> tuple[Indices, Array]:
        """The columns that are released of a table of users and their words, and noisy counts."""
        return self.count.select(self.counts(words, stream.substream("words", 0)), stream)

    def counts(self, words: sparse.csr_matrix, stream: RandomStream) -> Array:
        """The weights of each word's users, added up. Not private.

        Of a user with more than `max_words` words, a random choice of them counts.
        """
        size = np.diff(words.indptr)
        user = np.repeat(np.arange(size.size), size)
        # in an order that does not depend on other users
        order = np.lexsort((stream.uniform(words.nnz), user))
        place = np.arange(words.nnz) - words.indptr[user]
        chosen = order[place < self.count.keys]
        number = np.minimum(size, self.count.keys)[user[chosen]]
        weights = np.floor(1 / (_UNIT * np.sqrt(number)))
        counts = np.bincount(words.indices[chosen], weights, words.shape[1])
        return np.asarray(counts * _UNIT, dtype=np.float64)


_OF_WORDS = "stop_words ngram_range tokenizer token_pattern lowercase analyzer max_features binary"
_FEW = "see plan_.count.threshold: words of fewer texts are never released"
_HINTS = dict.fromkeys(_OF_WORDS.split(), "see vectorizer, which has it")
_HINTS |= {"min_df": _FEW, "use_idf": "weights of words would have to be released, too"}


@naming(_HINTS.get)
@in_order
@dataclass(repr=False, eq=False)
class PrivateVocabulary(  # type: ignore[call-arg]
    PrivateEstimator, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    r"""The words that many users have, for texts of which the words are private as well.

    Each user adds :math:`1 / \sqrt t` to the counts of their t words, at most `max_words`. Words
    whose noisy count exceeds a threshold are the vocabulary. The threshold is so high that a word
    of a single user passes it with a probability below a fifth of delta. `transform` then counts
    these words, as the vectorizer does.

    Parameters
    ----------
    vectorizer : CountVectorizer, TfidfVectorizer or None, default=None
        Says what a word is, and how texts become numbers: its analyzer, n-grams, stop words, norm.
        Without a vocabulary, document frequencies (`min_df`, `max_df`) or `use_idf`, which are
        not private. Of its `max_features`, those with the largest noisy counts are kept. An
        analyzer of your own must not fail on any text, and what it gives that is no text does not
        count. None: ``TfidfVectorizer(use_idf=False, binary=True)``, rows of the norm 1.
    epsilon : float in [1e-15, 1e9] or inf, default=1.0
        Privacy loss of the vocabulary. A model of the texts costs its own epsilon on top, about
        twice as much for the best score.
    delta : "auto" or float in (0, 1), default="auto"
        "auto" is min(1e-6, 1 / (10 n)), or the accountant's.
    relation : {"auto", "replace-one", "zero-out"}, default="auto"
        Which tables are neighbours, see `PrivacyBudget`. "auto" is the accountant's, or without one
        "replace-one".
    max_rows_per_user : "auto" or int in [1, 1e15], default="auto"
        The guarantee is for all texts of one user together. Above 1, `fit` needs `groups`; how
        many texts a user has makes no difference to the noise. "auto" is the accountant's, or
        without one 1.
    max_words : int in [1, 1e6], default=50
        Of a user with more different words, so many count, chosen at random.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise, see `PrivacyBudget`.
    nonfinite : {"raise", "zero"}, default="raise"
        Whether a text that is missing or no string is an error, or has no words in `fit` and
        becomes an invalid row in `transform`. One that is to count as a text without words is "".
    accountant : None, BudgetAccountant or Branch, default=None
        Is charged before any text is read. None stands for the one whose ``with`` block is open,
        if any. It must keep a fifth of its delta for this: ``BudgetAccountant(epsilon, delta=1e-6,
        slack=2e-7)``.
    random_state : None, int or RandomState, default=None
        An int makes the result reproducible and *not private*.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Private: it may be published.
    counts_ : ndarray of shape (n_words,)
        Noisy counts, which may be published, too.
    vectorizer_ : CountVectorizer or TfidfVectorizer
        With this vocabulary. It learns nothing, and with a norm or ``binary=True`` it declares its
        outputs: ``make_pipeline(words.vectorizer_,
        DPLogisticRegression(bounds_X=words.vectorizer_))``. None if no word was found.
    plan_ : VocabularyPlan
    guarantee_ : Guarantee
        Its `slack` is the part of delta for words of a single user.
    noise_is_secret_ : bool
        False if `random_state` was given.

    Examples
    --------
    >>> from sklearn_dpsco import PrivateVocabulary
    >>> texts = ["good morning", "good night", "good day"] * 500
    >>> words = PrivateVocabulary(epsilon=1.0, random_state=0).fit(texts)  # an int: not private
    >>> sorted(words.vocabulary_)
    ['day', 'good', 'morning', 'night']
    >>> words.transform(["good evening"]).toarray()
    array([[0., 1., 0., 0.]])
    """

    vectorizer: Any = None
    _: KW_ONLY
    max_words: int = 50

    def plan(self, n_samples: int) -> VocabularyPlan:
        """The plan that `fit` would follow for so many texts; spends nothing.

        Parameters
        ----------
        n_samples : int in [1, 2^29]

        Examples
        --------
        >>> from sklearn_dpsco import PrivateVocabulary
        >>> plan = PrivateVocabulary(epsilon=0.5, relation="zero-out").plan(20_000)
        >>> round(plan.count.threshold)  # users with one word, or seven times as many with 49
        47
        """
        accounting = self._accounting()
        n_samples = check_count("n_samples", n_samples, high=_MOST_TEXTS)
        max_words = check_int("max_words", self.max_words, low=1, high=10**6)
        plan = accounting.plan(n_samples, lambda b: VocabularyPlan.of(n_samples, max_words, b))
        if n_samples <= plan.count.threshold:
            warn_user(
                f"n_samples={n_samples} is too small for a private vocabulary at epsilon="
                f"{stated(plan.guarantee.epsilon)}: a word must be in more than "
                f"{plan.count.threshold:.0f} texts",
                PrivacyParameterWarning,
            )
        return plan

    def _vectorizer(self) -> Any:
        """A copy of the vectorizer, all parameters checked."""
        default = TfidfVectorizer(use_idf=False, binary=True)
        found = default if self.vectorizer is None else self.vectorizer
        if not isinstance(found, CountVectorizer):  # TfidfVectorizer is one, too
            raise ValueError(
                "vectorizer must be a CountVectorizer or a TfidfVectorizer of scikit-learn, got "
                f"{type(found).__name__}"
            )
        settings = found.get_params(deep=False)
        own = {"vocabulary": None, "min_df": 1, "max_df": 1.0, "use_idf": False, "input": "content"}
        for name, value in own.items():
            if name in settings and settings[name] != value:
                raise ValueError(
                    f"vectorizer must have {name}={value!r}: the vocabulary comes from `fit`, of "
                    "texts that it is given, and document frequencies are not private"
                )
        if found.max_features is not None:
            check_count("max_features", found.max_features)
        # scikit-learn checks the other parameters where it reads texts: a public one
        clone(found).set_params(vocabulary=["a"], max_features=None).fit_transform(["a"])
        return clone(found)

    def declaring(self, n_words: int) -> Any:
        """The vectorizer with the released words; before a fit with `n_words` without a meaning."""
        found = getattr(self, "vectorizer_", None)
        return found or self._vectorizer().set_params(vocabulary=range(n_words))

    def _texts(self, X: Any) -> list[str | None]:
        """The texts of a column; None for what is none, unless that is an error."""
        is_column = hasattr(X, "__len__") and len(getattr(X, "shape", (0,))) == 1
        if not is_column or isinstance(X, str | bytes | dict | set):
            raise ValueError("texts must be a list or a column of strings: of a frame, X['name']")
        cells = X.to_pylist() if hasattr(X, "to_pylist") else X
        cells = texts_of_bytes(X) if is_of_bytes(X) else list(cells)
        texts = [cell if isinstance(cell, str) else None for cell in cells]
        if self._is_strict and None in texts:
            raise ValueError(
                "a text is missing or no string: say nonfinite='zero', so that the record counts "
                "for nothing, or put '' in its place, which has no words"
            )
        return texts

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn the vocabulary.

        Parameters
        ----------
        X : list, array or column of str, shape (n_samples,)
        y : ignored, but for the index of a Series
        groups : array-like of shape (n_samples,) or None, default=None
            The user whose text it is: of each, the first `max_rows_per_user` texts count.

        Raises
        ------
        ValueError
            If a parameter or the data are wrong; or `PrivacyBudgetError` if the accountant refuses
            the charge. Nothing is spent then.
        """
        with self._until_spent():
            self._accounting()  # a parameter that is wrong is named before the data
            check_order(X=X, y=y, groups=groups)
            vectorizer, texts = self._vectorizer(), self._texts(X)
            accounting = self._accounting()  # a block may have been opened since
            if groups is None and accounting.budget.rows_per_user > 1:
                raise ValueError("max_rows_per_user > 1 needs groups: whose text each is")
            users = np.arange(len(texts)) if groups is None else as_users(groups)
            surplus = self._surplus(texts, groups, accounting.budget.rows_per_user)
            plan = self.plan(len(texts))
            self._spend(accounting.accountant, plan, has_groups=groups is not None)
        stream = self._noise_of("vocabulary")
        names, table = _words_of_users(vectorizer, texts, users, surplus)
        chosen, counts = plan.release(table, stream)
        self._keep_claim(plan, stream)
        if vectorizer.max_features is not None:
            largest = np.sort(np.argsort(-counts, kind="stable")[: vectorizer.max_features])
            chosen, counts = chosen[largest], counts[largest]
        self.counts_ = counts
        self.vocabulary_ = {word: k for k, word in enumerate(names[chosen])}
        self.vectorizer_ = None
        if self.vocabulary_:
            vectorizer.set_params(vocabulary=dict(self.vocabulary_), max_features=None)
            self.vectorizer_ = vectorizer.fit(["a"])
        else:
            warn_user(
                "no word passed the threshold, so that texts have no columns: take a larger "
                "epsilon, or HashingVectorizer, which needs no vocabulary",
                PrivacyParameterWarning,
            )
        return self

    def transform(self, X: Any) -> Any:
        """The words of the vocabulary in each text, a CSR matrix of shape (n_samples, n_words).

        With ``nonfinite="zero"``, of floats, and with NaN in the first column for a text that is
        missing or no string: a model with ``nonfinite="zero"`` leaves the record out, too.
        """
        check_is_fitted(self, "vocabulary_")
        if self.vectorizer_ is None:
            raise ValueError("the vocabulary is empty: no word passed the threshold")
        texts = self._texts(X)
        found = self.vectorizer_.transform([text or "" for text in texts])
        if self._is_strict:
            return found
        # without words, they would be valid records of what follows
        rows = np.flatnonzero([text is None for text in texts])
        at, found = (rows, np.zeros_like(rows)), found.astype(np.result_type(found, np.float32))
        return found + sparse.csr_matrix((np.full(rows.size, np.nan, found.dtype), at), found.shape)

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """The words, in the order of the columns."""
        check_is_fitted(self, "vocabulary_")
        return np.array(list(self.vocabulary_), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


def _words_of_users(
    vectorizer: Any, texts: list[str | None], users: AnyArray, surplus: Any
) -> tuple[AnyArray, sparse.csr_matrix]:
    """All words that occur, sorted, and which user has which of them; not private."""
    of_word: dict[str, int] = {}
    of_user: dict[Any, int] = {}
    rows, columns = array("q"), array("q")
    analyze = vectorizer.build_analyzer()
    surplus = np.zeros(len(texts)) if surplus is None else surplus
    for text, user, is_surplus in zip(texts, map(user_of, users.tolist()), surplus, strict=True):
        if is_surplus:  # also of a user who cannot be told from others
            continue
        row = of_user.setdefault(user, len(of_user))
        words = {word for word in analyze(text or "") if isinstance(word, str)}
        columns.extend(of_word.setdefault(word, len(of_word)) for word in words)
        rows.extend([row] * len(words))
    # columns in an order that no user's text decides: that of ties, and of the noise
    names = np.array(sorted(of_word), dtype=object)
    place = np.empty(len(names), dtype=np.int64)
    place[[of_word[word] for word in names]] = np.arange(len(names))
    shape = len(of_user), len(names)
    table = sparse.csr_matrix((np.ones(len(rows)), (rows, place[columns])), shape=shape)
    table.sum_duplicates()
    return names, table
