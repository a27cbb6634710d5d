"""Speed of exact noise: draws per second, selections against argmax, fits against float noise.

    python benchmarks/noise.py

Everything is timed side by side in one run, on one core if OPENBLAS_NUM_THREADS=1.
"""

import time
from functools import partial

import numpy as np

from sklearn_dpsco import DPLassoFWClassifier
from sklearn_dpsco.randomness.stream import (
    floor_draws,
    permute_and_flip,
    sample_softmax,
    stream_from_random_state,
)

N_DRAWS = 5_000_000
N_VERTICES = 2_000_000
FITS = [
    (442, 10, "gradient"),
    (6_000, 30, "gradient"),
    (100_000, 50, "gradient"),
    (20_000, 500, "selection"),
    (2_000, 20_000, "gradient"),
]


def seconds(run, repeats=7):
    """Median time of a run, after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def samplers():
    stream = stream_from_random_state(None)
    print("million draws per second, cipher included")
    for name, draw in (
        ("normal, exact", lambda: floor_draws(True, 2**30, N_DRAWS, stream)),
        ("normal, float", lambda: stream.normal(N_DRAWS)),
        ("Laplace, exact", lambda: floor_draws(False, 2**30, N_DRAWS, stream)),
        ("Laplace, float", lambda: stream.laplace(N_DRAWS)),
    ):
        print(f"  {name:15s} {N_DRAWS / seconds(draw, 3) / 1e6:6.1f}")


def _argmax_abs(scores):
    return np.argmax(np.abs(scores))


def selections():
    stream = stream_from_random_state(None)
    scores = np.random.default_rng(0).standard_normal(N_VERTICES)
    print(f"selection over {N_VERTICES} vertices / np.argmax(np.abs(scores))")
    for spread in (0.1, 1.0, 10.0, 100.0):
        values = spread * scores
        baseline = seconds(partial(_argmax_abs, values))
        ratios = [
            seconds(partial(sample, values, 1.0, stream)) / baseline
            for sample in (sample_softmax, permute_and_flip)
        ]
        print(
            f"  scores spread over {spread:5.1f} scales: softmax {ratios[0]:.2f}, "
            f"permute-and-flip {ratios[1]:.2f}"
        )


def fits():
    rng = np.random.default_rng(0)
    print("time of a fit, exact / float noise")
    for n, d, solver in FITS:
        X = rng.uniform(-1, 1, (n, d))
        y = np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0)
        times = {}
        for precision in ("exact", "float"):
            model = DPLassoFWClassifier(
                bounds_X=(-1, 1), classes=[-1, 1], solver=solver, precision=precision
            )
            times[precision] = seconds(partial(model.fit, X, y), 5)
        ratio = times["exact"] / times["float"]
        print(f"  {n:7d} x {d:6d} {solver:9s} {1e3 * times['exact']:8.1f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    samplers()
    selections()
    fits()
