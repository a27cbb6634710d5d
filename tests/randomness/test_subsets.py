"""Random batches: uniform subsets, independent coins, and the counts that stand in for them."""

import math

import numpy as np
import pytest
from scipy.stats import binom
from support import p_value, stream

from sklearn_dpsco.randomness import subsets
from sklearn_dpsco.randomness.subsets import RandomBatches

LAW_LEVEL = 1e-12  # see `p_value`


def found(law, n, size, source, draws=1200):
    """The p-value of batches against the law of all 2^n sets."""
    batches, counts = RandomBatches(n, size, law), np.zeros(2**n)
    for _ in range(draws):
        batch = batches.draw(source)
        assert np.all(np.diff(batch) > 0)
        counts[np.sum(1 << batch)] += 1
    sizes = np.array([k.bit_count() for k in range(2**n)])
    if law == "fixed":
        return p_value(counts, (sizes == size) / math.comb(n, size))
    return p_value(counts, (size / n) ** sizes * (1 - size / n) ** (n - sizes))


# with a map that is read off, and with one that is not
@pytest.mark.parametrize("dense", [50, 0])
def test_fixed_batches_are_uniform_subsets(monkeypatch, dense):
    monkeypatch.setattr(subsets, "_DENSE_MAP", dense)
    source = stream()
    for size in (1, 3, 8):
        assert found("fixed", 8, size, source) > LAW_LEVEL, size
    # the first of sorted numbers would be likelier
    monkeypatch.setattr(
        subsets, "_subset", lambda n, size, stream: np.sort(stream.permutation(n - 1)[:size])
    )
    assert found("fixed", 8, 3, source) < LAW_LEVEL


@pytest.mark.parametrize("by_blocks", [False, True])
def test_poisson_batches_are_independent_coins(monkeypatch, by_blocks):
    source = stream()
    monkeypatch.setattr(subsets, "_COINS_PER_DRAW", 0 if by_blocks else 1000)
    for expected, size in ((32, 3), (1, 2), (1, 3), (1, 6)):  # one block, or as many as records
        monkeypatch.setattr(subsets, "_EXPECTED_COUNT", expected)
        assert found("poisson", 6, size, source) > LAW_LEVEL, (expected, size)
    if by_blocks:  # as many of each block as are expected
        monkeypatch.setattr(subsets, "bisect_right", lambda *_: 1)
    else:
        monkeypatch.setattr(
            subsets, "_coins", lambda n, size, s: subsets._subset(n, 1 + s.integer(2 * size - 1), s)
        )
    assert found("poisson", 6, 3, source) < LAW_LEVEL


def test_counts_of_blocks_have_the_binomial_law():
    for trials, size, n in ((1, 1, 2), (50, 3, 100), (10**6, 7, 10**6)):
        table = np.array([float(v) for v in subsets._cumulative(trials, size, n)]) / 2.0**128
        expected = binom.cdf(np.arange(table.size), trials, size / n)
        np.testing.assert_allclose(table, expected, rtol=1e-9)
        assert 1 - table[-1] < 1e-15 or table.size == trials, trials
