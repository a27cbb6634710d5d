"""What random batches cost: against other accountants, and by brute force."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad, trapezoid
from scipy.stats import norm
from support import batch_game, cells_of, rest_is_slow

from sklearn_dpsco.privacy import events
from sklearn_dpsco.privacy.budget import PrivacyBudget, mu_delta
from sklearn_dpsco.privacy.events import pld_delta, pld_epsilon
from sklearn_dpsco.privacy.sampling import batch_renyi, mixture_delta


def density_ratio(w, multiplier, q):
    return 1 - q + q * np.exp(w / multiplier - 0.5 / multiplier**2)


def test_the_curve_of_one_batch_is_a_hockey_stick_divergence():
    grid = cells_of("half", (0.5, 2.0, 20.0), (1e-3, 0.3, 1.0), (0.0, 0.01, 0.7))
    for z, q, epsilon in grid:
        gamma = math.exp(epsilon)
        kink = z * math.log((gamma - 1 + q) / q) + 0.5 / z  # where the densities' ratio is gamma
        expected, _ = quad(
            lambda w, z=z, q=q, g=gamma: norm.pdf(w) * max(0.0, density_ratio(w, z, q) - g),
            min(kink, 12.0),
            12 + 1 / z,
            limit=400,
            epsabs=1e-15,
        )
        found = mixture_delta(np.array([epsilon]), z, q)[0]
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-13), (z, q, epsilon)


def test_a_batch_of_one_table_against_the_other_is_below_the_curve():
    # one step on subsets of n = 8, the sums of all subsets enumerated: the record against
    # another, with the others at 0 and at the far ends
    n, m, z = 8, 3, 1.3
    subsets = list(itertools.combinations(range(n), m))
    grid = np.linspace(-9, 9, 20001)
    for rest, (record, other) in itertools.product((0.0, 1.0, -1.0), ((1.0, -1.0), (1.0, 0.0))):
        laws = []
        for value in (record, other):
            table = np.full(n, rest)
            table[0] = value
            # the sensitivity of the sum is 2, so sigma = 2 z
            sums, n_times = np.unique(
                [table[list(s)].sum() / (2 * z) for s in subsets], return_counts=True
            )
            laws.append(n_times @ norm.pdf(grid, sums[:, None]) / len(subsets))
        for epsilon in (0.0, 0.1, 0.4, 1.0):
            bound = mixture_delta(np.array([epsilon]), z, m / n)[0]
            for first, second in (laws, laws[::-1]):
                delta = trapezoid(np.maximum(0, first - math.exp(epsilon) * second), grid)
                assert delta <= bound + 1e-8, (rest, epsilon)


GAMES = ((2.0, 0.05, 50, 0.0), (1.2, 0.02, 30, 0.1), (6.0, 0.3, 40, 0.3))


@rest_is_slow(
    ("law", "game", "epsilon"),
    itertools.product(("fixed", "poisson"), range(3), (0.3, 1.0)),
    ("fixed-1-1.0", "poisson-2-0.3"),
)
def test_compositions_against_brute_force(law, game, epsilon):
    z, q, count, mu = GAMES[game]
    noise = dp.GaussianDpEvent(z)
    if law == "fixed":
        event = dp.SampledWithoutReplacementDpEvent(1000, int(1000 * q), noise)
    else:
        event = dp.PoissonSampledDpEvent(q, noise)
    parts = [dp.SelfComposedDpEvent(event, count)]
    whole = events.composed([*parts, dp.GaussianDpEvent(1 / mu)] if mu else parts)
    low, high = (
        batch_game(epsilon, *GAMES[game], law, roundup=up, width=2e-4) for up in (False, True)
    )
    found = pld_delta(whole, epsilon, 1.0)
    assert low <= found <= high * 1.01 + 2e-13
    if 1e-11 < found < 0.5:
        assert pld_epsilon(whole, found, 1.0) == pytest.approx(epsilon, rel=1e-6)


def test_nothing_is_claimed_below_the_rounding_of_transforms():
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(50.0)), 5)
    assert 1e-13 <= pld_delta(event, 5.0, 1.0) < 2e-13
    assert pld_epsilon(event, 1e-14, 1.0) == math.inf


def test_renyi_divergences_of_batches():
    for z, q, order in itertools.product((0.7, 3.0, 30.0), (1e-3, 0.1, 0.6), (1.3, 4.0, 30.0)):
        found = {law: batch_renyi(order, z, q, law) for law in ("fixed", "poisson")}
        assert 0 < found["poisson"] <= order / (2 * z**2)
        if float(order).is_integer():  # the binomial formula of the library is exact there
            accountant = RdpAccountant([order])
            accountant.compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(z)))
            exact = accountant._rdp[0]
            assert exact * (1 - 1e-9) <= found["poisson"] <= exact * (1 + 3e-5) + 1e-15, (z, q)
            # a bound for batches of a fixed size that is not tight
            loose = RdpAccountant([order], NeighboringRelation.REPLACE_ONE)
            loose.compose(
                dp.SampledWithoutReplacementDpEvent(10**4, int(q * 10**4), dp.GaussianDpEvent(z))
            )
            assert found["fixed"] <= loose._rdp[0] * (1 + 1e-6), (z, q, order)
        # the mass at both ends of the symmetric curve, by brute force
        w = np.linspace(0.5 / z, 14 + order / z, 40_001)
        r = density_ratio(w, z, q)
        if order * np.log(r[-1]) > 600:
            continue
        mean = trapezoid(norm.pdf(w) * (r**order - r + r ** (1 - order) - 1), w)
        expected = min(math.log1p(mean) / (order - 1), order / (2 * z**2))
        assert found["fixed"] == pytest.approx(expected, rel=1e-4, abs=1e-13), (z, q, order)
    for law in ("fixed", "poisson"):
        assert batch_renyi(5.0, 2.0, 1.0, law) == 5.0 / 8
        # orders beyond every float of the integrand fall back on the cost without sampling
        assert batch_renyi(1e9, 2.0, 0.1, law) <= 1e9 / 8


def test_batches_of_all_records_cost_what_gaussian_noise_costs():
    event = dp.SelfComposedDpEvent(
        dp.SampledWithoutReplacementDpEvent(50, 50, dp.GaussianDpEvent(10.0)), 4
    )
    budget = PrivacyBudget(1.0, 1e-6)
    exact = pld_epsilon(dp.SelfComposedDpEvent(dp.GaussianDpEvent(10.0), 4), 1e-6, 1.0)
    assert pld_epsilon(event, budget.delta, 1.0) == pytest.approx(exact, rel=1e-3)


@rest_is_slow("count", (100, 10**4, 10**6), ("1000000",))
def test_many_compositions_round_to_the_private_side(count):
    # the error of a transform to the power T grows like T
    mu = PrivacyBudget(1.0, 1e-6).mu
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(math.sqrt(count) / mu), count)
    for epsilon in (1.0, 1.3, 1.4, 1.5, 1.6, 2.0):
        assert pld_delta(event, epsilon, 1.0) >= mu_delta(mu, epsilon), epsilon
