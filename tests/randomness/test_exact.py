"""Exact samplers: the kernels against rational arithmetic, and the laws of what they draw.

With ``NUMBA_DISABLE_JIT=1`` the kernels run as plain Python, on fewer draws.
"""

import itertools
import math
import os
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
from scipy import stats
from support import half_is_enough, p_value, rest_is_slow, stream

from sklearn_dpsco._kernels import sampling as kernels
from sklearn_dpsco.mechanisms import Gaussian, Laplace, SelectVertex
from sklearn_dpsco.randomness import stream as exact
from sklearn_dpsco.randomness.stream import (
    GroupedScores,
    floor_draws,
    permute_and_flip,
    sample_softmax,
)

JIT = os.environ.get("NUMBA_DISABLE_JIT") != "1"
LEVEL = 1e-6
LAW_LEVEL = 1e-12  # see `p_value`
GUARD = 2.0**-40
DRAWS = {
    "normal": (partial(floor_draws, True), stats.norm),
    "laplace": (partial(floor_draws, False), stats.laplace),
}


@pytest.fixture(autouse=True)
def _words_wrap_around():
    # as plain Python, numpy warns where 64-bit words overflow on purpose
    with np.errstate(over="ignore"):
        yield


def exact_exp_minus(t):
    with localcontext() as context:
        context.prec = 50
        return (-Decimal(float(t))).exp()


def test_exp_minus_is_within_its_stated_error():
    rng = np.random.default_rng(0)
    grid = np.arange(0, 45 * 16) / 16
    points = np.concatenate((grid, np.nextafter(grid[1:], 0), rng.uniform(0, 45, 2000), [1e-300]))
    for t in points:
        true = exact_exp_minus(t)
        assert abs(Decimal(float(kernels.exp_minus(t))) - true) <= Decimal(2) ** -48 * true, t
    for t in (45.0, 1e5, math.inf):
        assert kernels.exp_minus(t) == 0.0
    assert kernels.exp_minus(0.0) == 1.0
    for t in (-5e-324, -1.0, -1e5, -math.inf, math.nan):
        assert math.isnan(kernels.exp_minus(t)), t


@half_is_enough
@pytest.mark.parametrize("is_normal", [True, False])
def test_kernel_and_rational_arithmetic_take_the_same_decisions(is_normal, cells):
    n = 200 if cells == "all" else 50
    words, table = stream(5).words(3 * n).reshape(-1, 3), exact._table(is_normal)
    for steps, attempt in itertools.product((1, 1000, 2**54), words):
        out = np.empty(1, dtype=np.int64)
        filled, used, certain = kernels.floor_draws(
            attempt.copy(), table, is_normal, np.uint64(steps), out
        )
        if not certain:
            assert steps == 2**54, attempt  # there, one attempt in a thousand needs more bits
            continue
        assert used == 3, (steps, attempt)
        settled = exact._exact_attempt([int(w) for w in attempt], is_normal, steps, stream())
        assert (int(out[0]) if filled else None) == settled, (steps, attempt)


def _boundary_words(is_normal):
    """Attempts at the edge of each decision: the choice of k, the coin, the last digit of x."""
    for value in exact._table(is_normal)[:3]:
        yield (int(value) << 1, 1 << 60, 0)
    x = 1 << 62
    exponent = exact._LAWS[is_normal][1](0, Fraction(1, 4))
    with localcontext() as context:
        context.prec = 60
        p = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        yield (0, x, int(p * Decimal(2) ** 64))


@pytest.mark.parametrize("is_normal", [True, False])
def test_kernels_stop_where_their_bits_do_not_decide(is_normal):
    table = exact._table(is_normal)
    for words in _boundary_words(is_normal):
        out = np.empty(1, dtype=np.int64)
        result = kernels.floor_draws(
            np.array(words, dtype=np.uint64), table, is_normal, np.uint64(2**20), out
        )
        assert tuple(result) == (0, 0, False)
    # both outcomes of the coin, the last of them, occur with other bits to follow
    ends = {
        exact._exact_attempt(list(words), is_normal, 2**20, stream(seed)) is None
        for seed in range(24)
    }
    assert ends == {True, False}
    # the carry: x is 1/3 as far as it is known, and 3 x may or may not reach 1
    carry = np.array([0, 2**64 // 3, 0], dtype=np.uint64)
    out = np.empty(1, dtype=np.int64)
    assert not kernels.floor_draws(carry, table, is_normal, np.uint64(3), out)[2]
    attempts = [
        exact._exact_attempt(carry.tolist(), is_normal, 3, _Scripted([more] * 3))
        for more in (0, 2**64 - 1)
    ]
    assert attempts == [0, 1]


class _Scripted:
    """A stream that begins with given words."""

    def __init__(self, words, seed=0):
        self.script, self.rest = [int(w) for w in words], stream(seed)
        self.given = []

    def words(self, size):
        while len(self.script) < size:
            self.script.append(int(self.rest.words(1)[0]))
        self.given, self.script = self.script[:size], self.script[size:]
        return np.array(self.given, dtype=np.uint64)

    def unread(self, size):
        if size:
            self.script = self.given[-size:] + self.script
            self.given = self.given[:-size]


@pytest.mark.parametrize("is_normal", [True, False])
def test_an_uncertain_attempt_is_settled_and_the_others_are_not_disturbed(is_normal):
    draw = partial(floor_draws, is_normal)
    plain = draw(2**20, 50, stream(3))
    for words in _boundary_words(is_normal):
        following = stream(3).words(600)
        values = draw(2**20, 51, _Scripted([*words, *following]))
        # the attempt takes a few of the words that follow for its own bits; the draws after
        # it are those of the words that are left
        assert any(
            np.array_equal(
                values[-49:], draw(2**20, 49 + gained, _Scripted(following[taken:]))[-49:]
            )
            for taken in range(1, 9)
            for gained in (0, 1, 2)
        )
    settled = _Scripted(stream(3).words(600))
    np.testing.assert_array_equal(draw(2**20, 50, settled), plain)


def floored(name, steps, size, stretch=1.0):
    """The p-value of draws of floor(steps Z)."""
    draw, law = DRAWS[name]
    values = stretch * draw(steps, size, stream(11))
    edges = np.unique(np.round(steps * np.linspace(-3.5, 3.5, 29))).astype(np.int64)
    # floor(steps Z) < e iff Z < e / steps
    below = np.concatenate(([0.0], law.cdf(edges / steps), [1.0]))
    return p_value(np.histogram(values, bins=[-(2**62), *edges, 2**62])[0], np.diff(below))


@pytest.mark.parametrize("name", DRAWS)
def test_floor_draws_have_their_law(name, monkeypatch):
    size, table = 200_000 if JIT else 2000, exact._table
    for steps in (1, 3, 2**30):
        assert floored(name, steps, size) > LAW_LEVEL, steps
    if JIT:
        assert floored(name, 2**30, size, stretch=1.05) < LAW_LEVEL
        # one law's k with the other's x
        monkeypatch.setattr(exact, "_table", lambda is_normal: table(not is_normal))
        assert floored(name, 2**30, size) < LAW_LEVEL


@pytest.mark.parametrize("name", DRAWS)
def test_floor_draws_that_are_settled_have_their_law(name, monkeypatch):
    monkeypatch.setattr(kernels, "floor_draws", lambda *_: (0, 0, False))
    laws = {key: (cache(cumulative), x) for key, (cumulative, x) in exact._LAWS.items()}
    monkeypatch.setattr(exact, "_LAWS", laws)
    assert floored(name, 2**30, 120) > LAW_LEVEL
    planted = {key: (cumulative, lambda k, x: 20 * x) for key, (cumulative, _) in laws.items()}
    monkeypatch.setattr(exact, "_LAWS", planted)
    assert floored(name, 2**30, 120) < LAW_LEVEL


def test_draws_do_not_depend_on_how_they_are_batched():
    whole = floor_draws(True, 2**20, 300, stream(2))
    one = stream(2)
    parts = [floor_draws(True, 2**20, size, one) for size in (1, 0, 99, 150, 50)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def softmax(scores, scale):
    weights = np.exp((scores - scores.max()) / scale)
    return weights / weights.sum()


def flip_law(scores, scale):
    """Of permute-and-flip: j is kept, and all that are visited before, at times in [0, 1], not."""
    keep = np.exp((scores - scores.max()) / scale)
    points, weights = np.polynomial.legendre.leggauss(200)
    flips = 1 - keep * (points[:, None] + 1) / 2
    first = np.exp(np.log(flips).sum(axis=1))[:, None] / flips
    return keep * (weights @ first) / 2


UNEVEN = np.array([0.0, -0.3, -2.0, -6.9, -7.1, -8.0, -9.0, -7.5])


@pytest.mark.parametrize("from_the_start", [True, False])
def test_softmax_in_groups_has_its_law(monkeypatch, from_the_start):
    monkeypatch.setattr(exact, "UNIFORM_ATTEMPTS", 0 if from_the_start else 3)
    # the weights below e^-7 only show where there are many of them
    scores = np.concatenate((UNEVEN, np.full(4000, -7.6)))
    n, one = 2000 if JIT else 300, stream(4)

    def found():
        chosen = [sample_softmax(scores, 1.0, one) for _ in range(n)]
        return p_value(np.bincount(chosen, minlength=scores.size), softmax(scores, 1.0))

    assert found() > LAW_LEVEL
    if JIT:  # what the uniform attempts leave is drawn from another law
        sample = GroupedScores.sample
        monkeypatch.setattr(
            GroupedScores, "sample", lambda self, form, scale, s: sample(self, form, 1.2 * scale, s)
        )
        assert found() < LAW_LEVEL


# ------------------------------------------------------------------- scores in groups

FORM, VALUES = (0.25, 0.5), (2.0, -2.0, 0.5)


def grouped(kind, span, size=700, seed=0):
    """Scores of places and values whose range is about `span`, and themselves."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=size) * span
    right = {
        "alike": left + 0.1,
        "apart": rng.normal(size=size) * span,
        # bounds on each of them tell next to nothing about their sum
        "opposed": rng.normal(size=size) * span / 50 - left / 2,
        "lone": np.where(np.arange(size) == 5, -10 * span, 0.0) - left / 2,
    }[kind]
    left, right = np.rint(np.column_stack((left, right)) * 1000).astype(np.int64).T
    scores = GroupedScores(left, right, VALUES)
    direction = FORM[0] * left + FORM[1] * right
    return scores, np.concatenate([-value * direction for value in VALUES])


SPANS = (0.0, 1.0, 30.0, 400.0)


@rest_is_slow("span", SPANS, ("1.0",))
def test_grouped_scores_have_their_law(span):
    one, n = stream(3), 2000 if JIT else 40
    for kind in ("alike", "apart", "opposed", "lone"):
        scores, plain = grouped(kind, span)
        for loosened in (False, True):
            if loosened:  # as changes leave them
                scores.bounds[:, ::2] -= int(3000 * span + 5)
                scores.bounds[:, 1::2] += int(2000 * span + 7)
                scores.is_loose[:] = True
            drawn = [scores.sample(FORM, 1000.0, one) for _ in range(n)]
            counts, law = np.bincount(drawn, minlength=plain.size), softmax(plain, 1000.0)
            assert not JIT or p_value(counts, law) > LAW_LEVEL, (kind, span, loosened)
        if JIT and (kind, span) == ("apart", 1.0):
            assert p_value(counts, softmax(plain, 1500.0)) < LAW_LEVEL


def test_loose_bounds_and_wide_spans_cost_few_words():
    for kind, span in itertools.product(("alike", "apart", "opposed", "lone"), (0.0, 40.0, 1e5)):
        scores, _ = grouped(kind, span, size=4000 if JIT else 200)
        scores.bounds[:, ::2] -= int(1e6 * span)
        scores.is_loose[:] = True
        one, n_words = stream(4), 0
        words, unread = one.words, one.unread

        def counted(size, words=words):
            nonlocal n_words
            n_words += size
            return words(size)

        def put_back(size, unread=unread):
            nonlocal n_words
            n_words -= size
            unread(size)

        one.words, one.unread = counted, put_back
        n = 20
        for _ in range(n):
            scores.sample(FORM, 1000.0, one)
        # what is waited for, and on average two attempts for each score of a group
        expected = (4 + 3) * len(VALUES) << scores.bits
        assert n_words / n < 3 * (expected + 64), (kind, span)


def test_weights_are_never_below_those_of_the_scores():
    for kind, span in itertools.product(("alike", "opposed"), (0.0, 1.0, 15.0, 45.0, 1e3, 1e9)):
        scores, plain = grouped(kind, span)
        tops = scores._tops
        kernels.top_groups(scores.bounds, *FORM, scores.values, tops)
        for is_sharp in (False, True):
            if is_sharp:
                known = scores.left, scores.right, scores.bits, *FORM, scores.values, 1000.0
                kernels.sharpen_groups(known, scores.bounds, scores.is_loose, tops)
            reference = scores._weigh(1000.0)
            weights = np.diff(scores._cumulative, prepend=0)
            by_place = plain.reshape(len(VALUES), -1).max(axis=0)
            for group in range(tops.size):
                own = by_place[group << scores.bits : (group + 1) << scores.bits]
                assert tops[group] >= own.max()
                least = Decimal(2**20) * exact_exp_minus((reference - own.max()) / 1000.0)
                assert int(weights[group]) > least * (1 + Decimal(2) ** -40)
            near = tops > reference - 14e3
            assert not is_sharp or np.all(
                tops[near]
                == [
                    by_place[g << scores.bits : (g + 1) << scores.bits].max()
                    for g in np.flatnonzero(near)
                ]
            )


def refused(call, *arguments):
    with pytest.raises(RuntimeError, match="above its bound") as error:
        call(*arguments)
    assert not re.search(r"\d", str(error.value))


def test_no_coin_is_flipped_with_what_is_no_probability():
    words = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)
    for word, probability in itertools.product(words, (math.nan, 1 + 2.0**-52, 1.5, math.inf)):
        assert kernels.coin(word, probability) == kernels.UNCERTAIN
        assert kernels.coin(word, 1.0) != 0
        # nor where a coin is settled
        refused(exact._exact_coin, int(word), 1.0, 1.1, 1.0, 1, stream())
        refused(exact._exact_coin, int(word), 1.0, math.nan, 1.0, 1, stream())
        refused(exact._exact_coin, int(word), 1.0, 0.5, 1.0, 2, stream())
    for sample, scores in itertools.product(
        (sample_softmax, permute_and_flip), ([0.0, math.nan], [math.nan] * 3)
    ):
        refused(sample, np.array(scores), 1.0, stream())


@pytest.mark.parametrize("what", ["above all tops", "above its own", "in the sums alone"])
def test_a_bound_that_does_not_hold_is_refused(what):
    scores, plain = grouped("apart", 1.0)
    top = int(np.argmax(plain)) % scores.left.size >> scores.bits
    scores.check()
    if what == "in the sums alone":  # as of sums that were changed without their bounds
        scores.left[top << scores.bits] -= 10**9
    else:
        group = top if what == "above all tops" else (top + 1) % scores.is_loose.size
        scores.bounds[group] = 0
    refused(scores.check)
    if JIT:  # it takes some draws to meet it
        refused(lambda: [scores.sample(FORM, 1000.0, stream(k)) for k in range(3000)])
    # where few attempts succeed, bounds are looked at together
    sharpened = scores.left, scores.right, scores.bits, *FORM, scores.values, 1e9
    tops = scores._tops
    kernels.top_groups(scores.bounds, *FORM, scores.values, tops)
    assert not kernels.sharpen_groups(sharpened, scores.bounds, scores.is_loose, tops)


def test_numbers_that_become_the_left_ones_bring_their_bounds():
    scores, _ = grouped("opposed", 1.0)
    scores.shift()
    np.testing.assert_array_equal(scores.left, scores.right)
    scores.check()


def test_kernel_and_rational_arithmetic_draw_the_same_from_groups(monkeypatch):
    # a size that fills all groups: the fallback is asked about real places only; and so few
    # attempts that the groups stay as they are
    scores, plain = grouped("apart", 0.5, size=640)
    assert 640 % (1 << scores.bits) == 0
    n = 300 if JIT else 10
    one = stream(9)
    drawn = [scores.sample(FORM, 1000.0, one) for _ in range(n)]
    kernel, settled = kernels.propose_in_groups, []

    def undecided(words, *known):
        settled.append(words[:3])
        return kernels.UNCERTAIN, 0

    monkeypatch.setattr(kernels, "propose_in_groups", undecided)
    one = stream(9)
    assert [scores.sample(FORM, 1000.0, one) for _ in range(n)] == drawn
    assert len(settled) > n
    # the numbers that the fallback speaks of are those of the scores
    for place, within, _ in settled:
        number, score, _ = scores._proposed(place, within, FORM)
        assert score == plain[number]
    monkeypatch.setattr(kernels, "propose_in_groups", kernel)


def test_a_coin_on_the_edge_is_settled_exactly_in_groups():
    scores = GroupedScores(np.array([0.0, 1.0]), np.zeros(2), (1.0,))
    assert scores.bits == 0
    scores.sample((1.0, 0.0), 1.0, stream())
    least, most = np.diff(scores._cumulative, prepend=0)[::-1]
    share = Fraction(2**20, int(least)) * Fraction(exact_exp_minus(1.0))
    edge = int(share * 2**64)
    place = int((int(most) + 1) * 2**64 // int(most + least))
    outcomes = {
        scores.sample((1.0, 0.0), 1.0, _Scripted([place, 0, edge, extra, 0, 0, 5], seed=1))
        for extra in (0, 2**64 - 1)
    }
    assert outcomes == {0, 1}


# few scores; and some near the top with many that are far from it and survive now and then
FLIPPED = (
    np.array([-1.0, 0.0, -0.4, -2.5, -0.1]),
    np.concatenate(([0.0, -1.0, -3.0, -6.9], np.full(3000, -7.5))),
)


@rest_is_slow("flips", (0, 2, 64), ("0", "2"))
def test_permute_and_flip_has_its_law_however_it_is_drawn(monkeypatch, flips):
    monkeypatch.setattr(exact, "_FLIPS", flips)
    one, thinned = stream(6), exact._thinned

    def found(scores):
        n = (1500 if flips or scores.size == 5 else 2500) if JIT else 300
        chosen = [permute_and_flip(scores, 0.9, one) for _ in range(n)]
        return p_value(np.bincount(chosen, minlength=scores.size), flip_law(scores, 0.9))

    for scores in FLIPPED:
        assert found(scores) > LAW_LEVEL, scores.size
    if JIT and flips == 0:  # where all are thinned
        # far ones survive half as often
        monkeypatch.setattr(exact, "_thinned", lambda size, stream: thinned(size, stream)[::2])
        assert found(FLIPPED[1]) < LAW_LEVEL
        with monkeypatch.context() as patch:  # near ones are thinned: coins of more than 1
            patch.setattr(exact, "_NEAR", 2.0)
            with pytest.raises(RuntimeError, match="above its bound"):
                found(FLIPPED[1])


def test_thinning_is_binomial_and_uniform():
    size, n, one = 3000, 2000 if JIT else 50, stream(9)
    found = [exact._thinned(size, one) for _ in range(n)]
    assert all(np.unique(part).size == part.size for part in found)
    numbers = np.array([part.size for part in found])
    mean, variance = size / 1024, size / 1024 * (1 - 1 / 1024)
    assert abs(numbers.mean() - mean) < 5.2 * math.sqrt(variance / n)
    if JIT:
        assert 0.8 < numbers.var() / variance < 1.25
        everything = np.concatenate(found) / size
        assert stats.kstest(everything, "uniform").pvalue > LEVEL


@pytest.mark.parametrize("sample", [sample_softmax, permute_and_flip])
def test_selections_at_extreme_scores(sample):
    one = stream(1)
    assert sample(np.array([3.0]), 1.0, one) == 0
    huge = np.array([-1e300, 1e300, 0.0])
    assert {sample(huge, 1e-5, one) for _ in range(20)} == {1}
    assert {sample(np.zeros(3), 1e300, one) for _ in range(200)} == {0, 1, 2}
    # far apart against the scale, with the top hard to find
    scores = np.full(2000, -1e6)
    scores[1234] = 5.0
    assert {sample(scores, 1.0, one) for _ in range(20)} == {1234}


@pytest.mark.parametrize("sample", [sample_softmax, permute_and_flip])
def test_differences_of_scores_beyond_the_largest_float(sample):
    scores, scale = np.array([1.7e308, -1.7e308]), 1e308
    weight = math.exp(-3.4)
    share = weight / (1 + weight) if sample is sample_softmax else weight / 2
    one, n = stream(3), 4000
    counts = np.bincount([sample(scores, scale, one) for _ in range(n)], minlength=2)
    assert stats.binomtest(int(counts[1]), n, share).pvalue > LEVEL
    assert sample(scores, 2.0**-1074, one) == 0


def test_coins_of_tiny_probability_take_no_time():
    for score in (-1e4, -1e5, -1e9, -1e300):
        assert not exact._exact_coin(0, 0.0, score, 1.0, 1, stream(1)), score


@pytest.mark.parametrize("sample", [sample_softmax, permute_and_flip])
def test_a_coin_on_the_edge_is_settled_exactly(sample):
    # first word: index 1 of 2; second: the leading bits of exp(-1), so that more decide
    edge = int(exact_exp_minus(1.0) * Decimal(2) ** 64)
    scores = np.array([0.0, -1.0])
    outcomes = {
        sample(scores, 1.0, _Scripted([2**63 + 5, edge, extra, 5, 0], seed=1))
        for extra in (0, 2**64 - 1)
    }
    assert outcomes == {0, 1}


def test_integers_and_permutations_are_uniform():
    one = stream(0)
    counts = np.bincount([one.integer(7) for _ in range(20_000)], minlength=7)
    assert stats.chisquare(counts).pvalue > LEVEL
    orders = [tuple(one.permutation(4)) for _ in range(24_000)]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert counts.size == 24
    assert stats.chisquare(counts).pvalue > LEVEL
    np.testing.assert_array_equal(np.sort(one.permutation(1000)), np.arange(1000))
    assert one.permutation(0).size == 0


def test_words_that_are_put_back_come_again():
    one, other = stream(3), stream(3)
    first = one.words(100).copy()
    one.unread(40)
    np.testing.assert_array_equal(one.words(2000)[:40], first[60:])
    np.testing.assert_array_equal(other.words(2060)[:100], first)


# --------------------------------------------------------------- attacks on the low bits

N_ATTACK = 500_000 if JIT else 2000


def fine_bits(values):
    """Whether a value has finer bits than 1 + noise can have in floating point."""
    return np.mod(values, 2.0**-54) != 0


@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_no_output_betrays_the_value_by_its_low_bits(kind):
    safe = kind(1.0, 1.0, N_ATTACK)
    releases = {
        value: safe.release(np.full(N_ATTACK, value), stream(seed))
        for seed, value in enumerate((0.0, 1.0, 1 / 3))
    }
    for values in releases.values():
        steps = values / safe.grid - 0.5
        # one and the same lattice for every value
        assert np.all(steps == np.rint(steps))
    if JIT:
        # the attack itself works on noise in floating point
        unsafe = kind(1.0, 1.0, N_ATTACK, "float")
        zero, one = (fine_bits(unsafe.release(np.full(N_ATTACK, v), stream(0))) for v in (0.0, 1.0))
        assert zero.mean() > 0.02
        assert not np.any(one)
        # and the histograms of the lattice's residues agree
        residues = [
            np.bincount(((v / safe.grid - 0.5).astype(np.int64)) & 15, minlength=16)
            for v in releases.values()
        ]
        assert stats.chi2_contingency(residues).pvalue > LEVEL


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_selections_have_the_same_support_on_neighbours(noise):
    mechanism = SelectVertex(1.0, 0.5, noise)
    seen = []
    for scores in ([0.0, 1.0, 0.3], [1.0, 0.0, 0.3]):
        one = stream(0)
        seen.append({mechanism.release(np.array(scores), one) for _ in range(3000)})
    assert seen == [{0, 1, 2}] * 2
