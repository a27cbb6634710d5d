"""Streams: reproducible when seeded, secret and unshareable when not."""

import copy
import os
import pickle

import numpy as np
import pytest
from scipy import stats
from support import assert_refuses, scaled_table

from sklearn_dpsco import DPLassoFW
from sklearn_dpsco.randomness.stream import (
    RandomStream,
    check_random_state,
    stream_from_random_state,
)
from sklearn_dpsco.solvers import Selection

LAWS = {
    "uniform": stats.uniform,
    "normal": stats.norm,
    "exponential": stats.expon,
    "gumbel": stats.gumbel_r,
    "laplace": stats.laplace,
}


@pytest.mark.parametrize(("name", "law"), LAWS.items())
def test_laws(name, law):
    draws = getattr(stream_from_random_state(3), name)(80_000)
    assert draws.shape == (80_000,)
    assert np.all(np.isfinite(draws))
    assert stats.kstest(draws, law.cdf).pvalue > 1e-6
    assert stats.kstest(1.05 * draws, law.cdf).pvalue < 1e-6
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 5 / np.sqrt(draws.size)


def test_same_seed_same_words_whatever_the_chunks():
    whole = stream_from_random_state(7).words(5000)
    in_parts = stream_from_random_state(7)
    parts = np.concatenate([in_parts.words(k) for k in (1, 0, 999, 2500, 1500)])
    np.testing.assert_array_equal(parts, whole)
    assert np.unique(whole).size == whole.size


def test_seeds_of_any_integer_type():
    first, other = (stream_from_random_state(seed).words(8) for seed in (np.int64(5), 5))
    np.testing.assert_array_equal(first, other)


def test_random_state_object_advances():
    first = stream_from_random_state(np.random.RandomState(0)).words(8)
    state = np.random.RandomState(0)
    np.testing.assert_array_equal(stream_from_random_state(state).words(8), first)
    assert not np.any(stream_from_random_state(state).words(8) == first)


def test_different_seeds_and_no_seed_give_different_words():
    streams = [stream_from_random_state(s) for s in (0, 1, 2**70, None, None)]
    words = np.concatenate([s.words(100) for s in streams])
    assert np.unique(words).size == words.size
    assert [s.is_secure for s in streams] == [False, False, False, True, True]


def test_substreams_are_known_by_name_and_independent():
    def draw(*names, parent_words=0):
        parent = stream_from_random_state(0)
        parent.words(parent_words)
        return parent.substream(*names).normal(20_000)

    names = [("a",), ("b",), ("model", 0), ("model", 1), ("model", "1"), ("a", "b"), ("ab",)]
    draws = np.array([stream_from_random_state(0).normal(20_000)] + [draw(*n) for n in names])
    assert np.unique(draws).size > 0.999 * draws.size
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)
    # a substream does not depend on what was drawn before it was made
    np.testing.assert_array_equal(draw("a", parent_words=77), draws[1])


class _Extreme(RandomStream):
    """A stream whose cipher happens to return one and the same word."""

    word = 0

    def words(self, size):
        return np.full(size, self.word, dtype=np.uint64)


def test_uniforms_stay_inside_the_open_interval():
    for word in (0, 2**64 - 1):
        extreme = _Extreme(bytes(32), is_secure=False)
        extreme.word = word
        assert 0 < extreme.uniform(1)[0] < 1, word
        for name in LAWS:
            assert np.isfinite(getattr(extreme, name)(1)[0]), (word, name)


def test_streams_cannot_be_copied_or_pickled():
    for random_state in (0, None):
        one = stream_from_random_state(random_state)
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="secret key"):
                duplicate(one)


def _words_in_child(one):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        status = 1
        try:
            os.write(write, one.words(4).tobytes())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return np.frombuffer(data, dtype=np.uint64)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_draws_other_noise():
    for n_words in (0, 3):  # without and with words of the parent's key still in the buffer
        secure, seeded = stream_from_random_state(None), stream_from_random_state(0)
        for one in (secure, seeded):
            one.words(n_words)
        assert not np.any(_words_in_child(secure) == secure.words(4)), n_words
        np.testing.assert_array_equal(_words_in_child(seeded), seeded.words(4))


def test_nothing_of_the_key_stays_in_a_fitted_estimator(monkeypatch):
    keys = []
    start = RandomStream.__init__

    def recording(self, key, *, is_secure):
        keys.append(key)
        start(self, key, is_secure=is_secure)

    monkeypatch.setattr(RandomStream, "__init__", recording)
    X, y = scaled_table(20, 2)
    model = DPLassoFW(bounds_X=(-1, 1), bounds_y=(-1, 1), solver=Selection(max_iter=2)).fit(X, y)
    # a stream refuses to be pickled, so that success alone says there is none inside
    stored = pickle.dumps(model)
    assert len(keys) >= 2
    assert not any(key in stored for key in keys)
    assert b"RandomStream" not in stored


def test_bad_random_state():
    for bad in (-1, 1.0, "0", True, np.random.default_rng(0), [1]):
        for check in (check_random_state, stream_from_random_state):
            assert_refuses(check, "random_state must be", bad)
