"""Random batches: uniform subsets, independent coins, and the counts that stand in for them."""

import math

import numpy as np
import pytest
from scipy.stats import binom, chi2
from support import stream

from sklearn_dpsco.randomness import subsets
from sklearn_dpsco.randomness.subsets import RandomBatches


# with a map that is read off, with one that is not, and without a map
@pytest.mark.parametrize(("largest", "dense"), [(10_000, 50), (10_000, 0), (0, 0)])
def test_fixed_batches_are_uniform_subsets(monkeypatch, largest, dense):
    monkeypatch.setattr(subsets, "_LARGEST_MAP", largest)
    monkeypatch.setattr(subsets, "_DENSE_MAP", dense)
    n, draws = 12, 4000
    for size in (3, 5, 11):
        source, batches = stream(), RandomBatches(n, size, "fixed")
        counts, pairs = np.zeros(n), 0
        for _ in range(draws):
            batch = batches.draw(source)
            assert batch.size == size == np.unique(batch).size
            assert np.all(np.diff(batch) > 0)
            counts[batch] += 1
            pairs += {0, 1} <= set(batch.tolist())
        expected = draws * size / n
        # the counts of a subset vary by (1 - size / n) and sum to a constant
        statistic = ((counts - expected) ** 2 / expected).sum() / (1 - size / n) * (n - 1) / n
        assert chi2.sf(statistic, n - 1) > 1e-7, size
        p = size * (size - 1) / (n * (n - 1))
        assert abs(pairs - draws * p) < 5.5 * math.sqrt(draws * p * (1 - p)) + 1, size


def test_a_batch_of_one_record_is_uniform():
    source, n = stream(1), 7
    drawn = np.concatenate([RandomBatches(n, 1, "fixed").draw(source) for _ in range(7000)])
    counts = np.bincount(drawn, minlength=n)
    assert counts.size == n
    assert chi2.sf(((counts - 1000) ** 2 / 1000).sum(), n - 1) > 1e-7


@pytest.mark.parametrize("by_blocks", [False, True])
def test_poisson_batches_are_independent_coins(monkeypatch, by_blocks):
    n, size, draws = 400, 100, 2000
    monkeypatch.setattr(subsets, "_COINS_PER_DRAW", 0 if by_blocks else 1000)
    source, batches = stream(), RandomBatches(n, size, "poisson")
    counts, sizes = np.zeros(n), []
    for _ in range(draws):
        batch = batches.draw(source)
        assert np.all(np.diff(batch) > 0)
        counts[batch] += 1
        sizes.append(batch.size)
    q = size / n
    assert abs(np.mean(sizes) - size) < 5.5 * math.sqrt(n * q * (1 - q) / draws)
    assert np.var(sizes) == pytest.approx(n * q * (1 - q), rel=0.2)
    statistic = ((counts - draws * q) ** 2 / (draws * q * (1 - q))).sum()
    assert min(chi2.sf(statistic, n), chi2.cdf(statistic, n)) > 1e-7


def test_counts_of_blocks_have_the_binomial_law():
    for trials, size, n in ((1, 1, 2), (50, 3, 100), (10**6, 7, 10**6)):
        table = np.array([float(v) for v in subsets._cumulative(trials, size, n)]) / 2.0**128
        expected = binom.cdf(np.arange(table.size), trials, size / n)
        np.testing.assert_allclose(table, expected, rtol=1e-9)
        assert 1 - table[-1] < 1e-15 or table.size == trials, trials
