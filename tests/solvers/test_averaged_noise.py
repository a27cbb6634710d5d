"""The noise of averaged points: against runs on noise alone, and what it makes of slopes."""

import numpy as np
import pytest

from sklearn_dpsco import DPFTRLRegressor, DPLassoFW, DPMirrorRegressor
from sklearn_dpsco.mechanisms import PrefixSum
from sklearn_dpsco.solvers import ftrl, statistics

WIDTH = 20_000  # runs of one coordinate: the standard error of a variance is 1 % of it


def test_the_noise_of_steps_is_that_of_runs_on_noise():
    rng, noise = np.random.default_rng(0), statistics.AveragedNoise()
    w, v, total, way = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH), [0.0, 0.0, 0.0]
    for t in range(40):
        length, newest, kept, weight = 0.6 / (1 + t % 3), 1 / (1 + t % 2), 0.97, float(t >= 20)
        v = v + newest * (0.4 * w + rng.normal(0.0, 0.3, WIDTH) - v)
        w = kept * w - length * v
        total += weight * w
        way[1] += newest * (0.4 * (way[0] - 1) - way[1])
        way[0] = kept * way[0] - length * way[1]
        way[2] += weight * way[0]
        noise.add(0.4, length, 0.09, weight, newest, kept)
    assert noise.found() == pytest.approx((total.var() / 400, way[2] / 20), rel=0.06)
    assert noise.found()[1] == pytest.approx(way[2] / 20)


def test_the_noise_of_prefix_sums_is_that_of_runs_on_noise():
    rng, noise = np.random.default_rng(0), ftrl._PrefixNoise()
    points = np.zeros((2, WIDTH + 1))  # the average and the iterate; the last coordinate has none
    solution = np.append(np.zeros(WIDTH), 1.0)
    for n_steps in (20, 40):
        mechanism = PrefixSum(1.0, 0.3, n_steps=n_steps)
        noise.begin(mechanism)
        run, start = mechanism.start(WIDTH + 1), points[1].copy()
        for t in range(n_steps):
            sums = run.encode(0.5 * (points[1] - solution))
            sums[:-1] += rng.normal(0.0, 0.3, WIDTH)
            points[1] = start - 0.1 * run.decode(sums)
            points[0] += (points[1] - points[0]) / (t + 2)
            noise.step(0.5, 0.1, 1 / (t + 2))
    of_runs = points[:, :-1].var(axis=1)
    assert np.diag(noise.covariance)[:2] == pytest.approx(of_runs, rel=0.06)
    assert noise.way[:2] == pytest.approx(points[:, -1])


@pytest.mark.parametrize(
    ("kind", "settings", "n"),
    [
        (DPMirrorRegressor, {"solver": "noisy-md"}, 600),
        (DPLassoFW, {"solver": "gradient"}, 600),
        (DPFTRLRegressor, {}, 1500),
    ],
)
def test_slopes_that_are_noise_become_short_and_exact_ones_stay(kind, settings, n, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (n, 8)), rng.normal(size=n).clip(-6, 6)
    parts, own = [], statistics.kept_part
    monkeypatch.setattr(statistics, "kept_part", lambda *a: parts.append(own(*a)) or parts[-1])
    for seed in range(2):
        facts = {"bounds_X": (-1, 1), "bounds_y": (-6, 6), "random_state": seed}
        for epsilon in (0.5, np.inf):
            kind(epsilon=epsilon, delta=1e-6, **facts, **settings).fit(X, y)
    noisy, exact = parts[::2], parts[1::2]
    assert np.mean(noisy) < 0.9
    assert exact == [1.0] * 2


def test_what_is_above_its_noise_and_what_has_not_come_far_stay():
    slopes = np.full(4, 0.5)
    assert statistics.kept_part(slopes, 0.05, 1.0) == pytest.approx(0.8)  # as James and Stein
    assert statistics.kept_part(slopes, 0.05, 0.9) == pytest.approx(0.8 / 0.9)
    assert statistics.kept_part(slopes, 1.0, 0.9) == pytest.approx(0.1)
    assert statistics.kept_part(0 * slopes, 1.0, 0.9) == pytest.approx(0.1)


def test_the_noise_of_a_stream_is_not_that_of_its_copy():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (2000, 3)), rng.normal(size=2000).clip(-6, 6)
    model = DPFTRLRegressor(bounds_X=(-1, 1), bounds_y=(-6, 6), random_state=0)
    run = model.partial_fit(X, y)._stream.run
    before, other = run._noise.covariance, run.copy()
    other._noise.step(0.5, 0.1, 0.5)
    assert run._noise.covariance is before
