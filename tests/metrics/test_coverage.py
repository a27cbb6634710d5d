"""Intervals cover the score of the population as often as they say, whatever noise there is."""

import functools
import itertools

import numpy as np
import pytest
from scipy.special import expit, ndtr
from scipy.stats import binom
from support import rest_is_slow, stream

from sklearn_dpsco import plan_score
from sklearn_dpsco.metrics import intervals
from sklearn_dpsco.metrics.intervals import Law

TABLES = {
    "even": [[0.4, 0.1], [0.15, 0.35]],
    "sharp": [[0.69, 0.005], [0.005, 0.3]],
    "rare": [[0.93, 0.02], [0.03, 0.02]],
    "perfect": [[0.5, 0.0], [0.0, 0.5]],
    "three": [[0.3, 0.05, 0.02], [0.04, 0.25, 0.05], [0.01, 0.03, 0.25]],
}
# share of the second class, half the distance of the classes' means, their deviation, middle
CURVES = {
    "wide": (0.5, 1.2, 1.5, 0.0),
    "narrow": (0.5, 0.24, 0.3, 0.0),
    "rare": (0.1, 1.0, 1.0, -3.0),
    "strong": (0.5, 3.0, 1.0, 0.0),
}
# deviation of the errors, None for heavy tails, and max_error
ERRORS = {"loose": (1.0, "auto"), "tight": (0.3, "auto"), "capped": (0.3, 1.0), "heavy": (None, 3)}


def of_table(name, n):
    """Classes, a function that draws records, and the scores of the population."""
    table = np.array(TABLES[name])
    k = len(table)

    def draw(rng):
        cells = rng.choice(k * k, n, p=table.ravel())
        return {"truth": cells // k, "predicted": cells % k}

    recalls = np.diagonal(table) / table.sum(axis=1)
    return k, draw, {
        "accuracy": np.trace(table),
        "balanced_accuracy": recalls.mean(),
        "confusion_matrix": n * table,
    }  # fmt: skip


@functools.cache
def of_curve(name, n):
    share, shift, deviation, middle = CURVES[name]

    def draw(rng, size=n):
        y = rng.random(size) < share
        score = expit(middle + shift * (2 * y - 1) + deviation * rng.standard_normal(size))
        own = np.where(y, score, 1 - score)
        return {"truth": y.astype(int), "score": score, "own_probability": own}

    def rates(thresholds):
        with np.errstate(all="ignore"):
            return ndtr((shift + middle - np.log(thresholds / (1 - thresholds))) / deviation)

    many = draw(np.random.default_rng(0), 400_000)
    bins = np.minimum((5 * many["score"]).astype(int), 4)
    counts = np.bincount(bins, minlength=5)
    return draw, rates, {
        "roc_auc": ndtr(np.sqrt(2) * shift / deviation),
        "calibration_curve": np.bincount(bins, many["truth"], 5) / np.maximum(counts, 1),
        "neg_log_loss": -np.minimum(-np.log(many["own_probability"]), 5).mean(),
    }  # fmt: skip


@functools.cache
def of_errors(name, n):
    deviation, most = ERRORS[name]

    def draw(rng, size=n):
        x = rng.standard_normal(size)
        noise = rng.standard_normal(size) if deviation else 0.3 * rng.standard_t(2.5, size)
        return {"y": x + (deviation or 1) * noise, "prediction": 0.9 * x}

    many = draw(np.random.default_rng(0), 400_000)
    y, most_error = np.clip(many["y"], -5, 5), 10.0 if most == "auto" else most
    error = np.minimum(np.abs(y - np.clip(many["prediction"], -5, 5)), most_error)
    settings = {"bounds_y": (-5, 5), "max_error": most}
    return settings, draw, {
        "r2": 1 - np.mean(error**2) / y.var(),
        "neg_mean_squared_error": -np.mean(error**2),
        "neg_mean_absolute_error": -error.mean(),
    }  # fmt: skip


def coverage(plan, draw, truths, runs, seed=0):
    """Share of runs whose interval holds the truth, by scoring; of arrays, the mean."""
    rng, noise = np.random.default_rng(seed), stream(seed)
    hits = {name: [] for name in plan.scorings}
    for _ in range(runs):
        found = plan.estimates(plan.release(plan.statistics(draw(rng)), noise))
        for name in plan.scorings:
            low, high = found[name]["interval"]
            hits[name].append(np.mean((low <= truths[name]) & (truths[name] <= high)))
    return {name: np.mean(hit) for name, hit in hits.items()}


def check(found, runs, at_least=0.92):
    """No fewer than runs of a coverage of `at_least` have, but for one case in 1e7."""
    least = binom.ppf(1e-7, runs, at_least) / runs
    for name, share in found.items():
        assert share >= least, (name, share)


def cases(n, some=slice(None), *, alone=True, **settings):
    """All populations, or some of each kind, with their plans; scores `alone` as well."""
    settings = {"precision": "float", **settings}
    for name in list(TABLES)[some]:
        k, draw, truths = of_table(name, n)
        for scoring in (list(truths), ["balanced_accuracy"], ["accuracy"])[: 2 + alone]:
            yield plan_score(n, scoring=scoring, n_classes=k, **settings), draw, truths
    for name in list(CURVES)[some]:
        draw, rates, truths = of_curve(name, n)
        for scoring, own in (("calibration_curve", {"n_bins": 5}), ("neg_log_loss", {})):
            yield plan_score(n, scoring=scoring, **own, **settings), draw, truths
        plan = plan_score(n, scoring=["roc_auc", "roc_curve"], **settings)
        bins = plan.queries[-1].shape[1]
        curve = rates(np.r_[1.0, np.arange(bins)[::-1] / bins])
        yield plan, draw, truths | {"roc_curve": curve}
    for name in list(ERRORS)[some]:
        own, draw, truths = of_errors(name, n)
        several = ["r2", "neg_mean_squared_error"]
        for scoring in (several, *([name] for name in list(truths)[2 - alone :])):
            yield plan_score(n, scoring=scoring, **own, **settings), draw, truths


@rest_is_slow(
    ("some", "n", "epsilon", "relation", "delta"),
    [
        (slice(1), 200, 1.0, "replace-one", 0.0),
        (slice(1, 2), 1000, 0.3, "zero-out", 1e-6),
        (slice(2, 3), 300, 3.0, "replace-one", 1e-6),
        (slice(3, 4), 200, 5.0, "zero-out", 0.0),
    ],
    ("n=300, epsilon=3.0",),
    lambda case: f"n={case[1]}, epsilon={case[2]}",
)
def test_intervals_cover(some, n, epsilon, relation, delta):
    settings = {"epsilon": epsilon, "relation": relation, "delta": delta}
    for plan, draw, truths in cases(n, some, alone=False, **settings):
        check(coverage(plan, draw, truths, 30), 30)


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 1000, 10_000])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_intervals_cover_everywhere(n, epsilon, relation, delta):
    for plan, draw, truths in cases(n, epsilon=epsilon, relation=relation, delta=delta):
        check(coverage(plan, draw, truths, 1000), 1000, 0.935)


@rest_is_slow(
    ("n", "share", "delta"),
    [*itertools.product((300, 500, 2000), (5e-4, 2e-3, 1e-2, 5e-2), (0.0, 1e-6))],
    ("500-0.002-1e-06",),
    lambda case: "-".join(map(str, case)),
)
def test_intervals_cover_where_a_few_losses_are_large(n, share, delta):
    """Samples without a large loss, or with fewer than usual, have too small a variance as well."""
    runs = 80 if (n, share) == (500, 2e-3) else 2000
    settings = {"bounds_y": (-1, 1), "epsilon": 100.0, "delta": delta, "precision": "float"}

    def draw(rng):
        is_large = rng.random(n) < share
        own = np.where(is_large, np.exp(-5.0), 1.0)
        return {"own_probability": own, "y": 2.0 * is_large - 1, "prediction": np.full(n, -1.0)}

    truths = {"neg_log_loss": -5, "neg_mean_absolute_error": -2, "neg_mean_squared_error": -4}
    for scoring, largest in truths.items():
        plan = plan_score(n, scoring=[scoring], **settings)
        check(coverage(plan, draw, {scoring: largest * share}, runs), runs, 0.94)


@rest_is_slow("name", ["even", "three"], ("three",))
def test_intervals_of_classes_cover(name):
    n, runs, noise, rng = 1000, 50, stream(0), np.random.default_rng(0)
    k, draw, _ = of_table(name, n)
    table = np.array(TABLES[name])
    facts = {"n_classes": k, "precision": "float"}
    right, plan = np.diagonal(table), plan_score(n, scoring="confusion_matrix", **facts)
    truths = {"precision": right / table.sum(axis=0), "recall": right / table.sum(axis=1)}
    truths["f1"] = 2 * right / (table.sum(axis=0) + table.sum(axis=1))
    truths["share"] = table.sum(axis=1) / table.sum()
    hits = dict.fromkeys(truths, 0.0)
    for _ in range(runs):
        found = plan.estimates(plan.release(plan.statistics(draw(rng)), noise))
        for measure, truth in truths.items():
            _, low, high = found["confusion_matrix"]["by_class"][measure]
            hits[measure] += np.mean((low <= truth) & (truth <= high)) / runs
    check(hits, runs)


@rest_is_slow(
    ("n", "epsilon", "relation", "delta", "share"),
    [
        *itertools.product(
            (300, 2000), (0.5, 2.0), ("replace-one", "zero-out"), (0.0, 1e-6), (0.01, 0.1, 0.3)
        )
    ],
    ("2000-0.5-replace-one-0.0-0.1",),
    lambda case: "-".join(map(str, case)),
)
def test_intervals_cover_the_scores_of_valid_records(n, epsilon, relation, delta, share):
    settings = {"epsilon": epsilon, "relation": relation, "delta": delta, "invalid": "exclude"}
    runs = 25 if (n, epsilon, share) in ((300, 2.0, 0.3), (2000, 0.5, 0.1)) else 500

    def losing(draw):
        def some(rng):
            full = draw(rng)
            lost = rng.random(n) < share
            fields = {"truth": -1, "own_probability": np.nan, "y": np.nan}
            invalid = fields.keys() & full.keys()
            return full | {name: np.where(lost, fields[name], full[name]) for name in invalid}

        return some

    for plan, draw, truths in cases(n, slice(1), alone=False, **settings):
        truths = {k: v for k, v in truths.items() if k != "confusion_matrix"}
        if set(plan.scorings) <= set(truths):
            check(coverage(plan, losing(draw), truths, runs), runs)


def test_intervals_of_r2_cover_where_few_events_have_all_of_the_errors():
    """Squared errors are nearly 0 or all alike there, of which products tell next to nothing."""

    def draw(rng, size=10_000):
        p = 0.05 * np.exp(0.8 * rng.standard_normal(size) - 0.32)
        return {"y": 5.0 * (rng.random(size) < p) - 4, "prediction": 5 * np.minimum(p, 1) - 4}

    settings = {"epsilon": 20, "max_error": "auto", "bounds_y": (-5, 5), "precision": "float"}
    plan = plan_score(10_000, scoring="r2", **settings)
    many, hits = draw(np.random.default_rng(1), 200_000), 0
    rng, draws = np.random.default_rng(0), stream(0)

    @functools.cache
    def truth(facts):  # of targets and errors within the ranges that were selected
        y, predicted = (np.clip(many[of], facts.low, facts.high) for of in ("y", "prediction"))
        errors = np.clip(predicted - y, -facts.max_error, facts.max_error)
        return 1 - np.mean(errors**2) / y.var()

    for _ in range(60):
        own = plan.narrowed(given := draw(rng), draws)
        low, high = own.estimates(own.release(own.statistics(given), draws))["r2"]["interval"]
        hits += low <= truth(own.queries[0].facts) <= high
    assert hits >= 55  # of 60, of which an extrapolated covariance covered 38


@pytest.mark.parametrize(
    ("law", "most"), [("normal", 1.2), ("skewed", 1.5), ("off centre", 1.2), ("shrunk", 1.5)]
)
def test_intervals_of_r2_are_as_long_as_what_errors_and_targets_have_in_common_leaves(law, most):
    n, runs, best, part = 1500, 40, 0.3, 0.5 if law == "shrunk" else 1.0
    truth = best * (1 - (1 - part) ** 2)
    plan = plan_score(
        n, scoring="r2", epsilon=1e4, bounds_y=(-8, 8), max_error=8, precision="float"
    )

    def draw(rng):
        error = rng.standard_exponential(n) - 1 if law == "skewed" else rng.standard_normal(n)
        prediction = 2 * (law == "off centre") + np.sqrt(best) * rng.standard_normal(n)
        return {"y": prediction + np.sqrt(1 - best) * error, "prediction": part * prediction}

    noise, rng = stream(0), np.random.default_rng(0)
    found = [plan.estimates(plan.release(plan.statistics(draw(rng)), noise)) for _ in range(runs)]
    low, high = np.transpose([one["r2"]["interval"] for one in found])
    value = np.array([one["r2"]["value"] for one in found])
    # the other end allows for large errors that may be missing
    assert np.median(high - value) < most * 1.96 * value.std()
    check({"r2": np.mean((low <= truth) & (truth <= high))}, runs)


@rest_is_slow(
    ("n", "epsilon", "delta", "n_bins"),
    [(30_000, 1.0, 0.0, 5), (3000, 0.3, 0.0, 20), (3000, 0.3, 1e-6, 5), (3000, 3.0, 0.0, 5)],
    ("30000-1.0-0.0-5", "3000-0.3-1e-06-5"),
    lambda case: "-".join(map(str, case)),
)
def test_intervals_of_a_calibrated_model_hold_its_mean_predictions(n, epsilon, delta, n_bins):
    """Also where most predictions are far from the middle of their bin."""
    facts = {"epsilon": epsilon, "delta": delta, "n_bins": n_bins, "precision": "float"}
    plan, noise = plan_score(n, scoring="calibration_curve", **facts), stream(0)
    rng, hits, runs = np.random.default_rng(0), [], 30
    for _ in range(runs):
        p = rng.beta(1.2, 6, n)
        given = {"truth": (rng.random(n) < p).astype(int), "score": p}
        found = plan.estimates(plan.release(plan.statistics(given), noise))["calibration_curve"]
        low, high = found["interval"]
        predicted = found["prob_pred"]
        assert np.all(abs(n_bins * predicted - np.arange(n_bins) - 0.5) < 0.5 + 1e-9)
        hits.append((low <= predicted) & (predicted <= high))
    check(dict(enumerate(np.mean(hits, axis=0))), runs)


def test_noise_of_the_number_of_valid_records_is_in_the_interval():
    own = np.where(np.arange(3000) < 2100, np.exp(-0.25), np.nan)  # no sampling
    facts = {"epsilon": 0.1, "delta": 1e-6, "invalid": "exclude", "precision": "float"}
    plan = plan_score(3000, scoring=["neg_log_loss"], **facts)
    found = coverage(plan, lambda _: {"own_probability": own}, {"neg_log_loss": -0.25}, 100)
    check(found, 100)


@rest_is_slow(
    ("confidence", "name"),
    [*itertools.product((0.6, 0.99), ("even", "rare"))],
    ("0.6-even", "0.99-rare"),
)
def test_other_confidences(confidence, name):
    k, draw, truths = of_table(name, 300)
    plan = plan_score(
        300, scoring="accuracy", n_classes=k, confidence=confidence, precision="float"
    )
    found = coverage(plan, draw, truths, 150)
    check(found, 150, confidence)
    assert found["accuracy"] < 1 or confidence > 0.9


@pytest.mark.parametrize(
    ("scoring", "epsilon"), [("accuracy", 0.02), ("roc_auc", 0.3), ("neg_log_loss", 0.05)]
)
def test_intervals_that_leave_the_noise_out_do_not_cover(scoring, epsilon):
    n, runs = 1000, 50  # as above
    draw, _, truths = of_curve("wide", n)
    if scoring == "accuracy":
        _, draw, truths = of_table("even", n)
    plan = plan_score(n, scoring=scoring, epsilon=epsilon, precision="float")
    rng, noise, hits = np.random.default_rng(0), stream(0), 0
    for _ in range(runs):
        (noisy,) = plan.release(plan.statistics(draw(rng)), noise)
        found = plan.queries[0].estimate(scoring, noisy, Law(1e-9, 0.95, 1.0))
        hits += found["interval"][0] <= truths[scoring] <= found["interval"][1]
    assert hits < binom.ppf(1e-7, runs, 0.92)


def test_intervals_shrink_to_the_exact_ones():
    # Wilson's interval with half a record of continuity, without noise
    law = Law(1e-12, 0.95, 0.0)
    low, high = intervals.share_interval(30.0, 100, 1, law)
    z = law.reach(1.0)

    def wilson(x, sign):
        mean = (x + z**2 / 2) / (100 + z**2)
        half = z * np.sqrt(x * (100 - x) / 100 + z**2 / 4) / (100 + z**2)
        return mean + sign * half

    np.testing.assert_allclose([low, high], [wilson(29.5, -1), wilson(30.5, 1)], atol=1e-5)


@pytest.mark.parametrize(("n", "scale"), list(itertools.product((50, 5000), (0.1, 30.0))))
def test_the_law_of_noise_and_sampling_together(n, scale):
    rng, weights = np.random.default_rng(0), np.array([[1.0], [0.3], [0.3]])
    noise = (weights * rng.laplace(0, scale, (3, 200_000))).sum(axis=0)
    total = noise + np.sqrt(n) / 2 * rng.standard_normal(noise.size)
    for confidence in (0.5, 0.8, 0.95, 0.99):
        law = Law(2 * scale**2, confidence, 1.0)
        inside = np.mean(np.abs(total) <= law.reach(n / 4, (1, 1), (2, 0.3**2)))
        assert inside == pytest.approx(confidence, abs=0.008)


def test_rows_of_a_user_may_all_be_alike():
    """As far apart as can be: each user is right or wrong in all rows."""
    n_users, rows, hits = 1000, 5, {1: 0, 5: 0}
    rng, facts = np.random.default_rng(0), {"epsilon": 20.0, "precision": "float"}
    plans = {most: plan_score(n_users * rows, max_rows_per_user=most, **facts) for most in hits}
    for seed in range(100):
        truth = np.repeat(rng.random(n_users) < 0.8, rows).astype(int)
        for most, plan in plans.items():
            given = {"truth": truth, "predicted": np.ones(truth.size, dtype=int)}
            released = plan.release(plan.statistics(given), stream(seed))
            low, high = plan.estimates(released)["accuracy"]["interval"]
            hits[most] += low <= 0.8 <= high
    # of a coverage of 95 %, fewer than 82 once in 10^6 times; rows taken for independent have 62 %
    assert hits[5] >= 82
    assert hits[1] < 82


@pytest.mark.parametrize("share", [0.0, 0.25, 0.6, 1.0])
def test_quantiles_of_a_laplace_and_a_normal_variable(share):
    draws = np.random.default_rng(0).standard_normal((2, 400_000))
    noise = np.random.default_rng(1).laplace(0, np.sqrt(share / 2), draws[0].size)
    total = noise + np.sqrt(1 - share) * draws[0]
    for confidence in (0.5, 0.95, 0.999):
        inside = np.mean(np.abs(total) <= Law(share, confidence, 1.0).reach(1 - share, (1, 1)))
        deviation = np.sqrt(confidence * (1 - confidence) / total.size)
        assert inside == pytest.approx(confidence, abs=5.5 * deviation)
    assert Law(1.0, 0.95, 0.0).reach(0.0, (1, 1)) == pytest.approx(1.959964)


def test_where_noise_hides_a_score_the_interval_is_its_range():
    n = 20
    rng = np.random.default_rng(0)
    settings = {"epsilon": 1e-3, "bounds_y": (-1, 1), "precision": "float"}
    given = {
        "truth": rng.integers(0, 2, n), "predicted": rng.integers(0, 2, n), "score": rng.random(n),
        "own_probability": rng.random(n), "y": rng.uniform(-1, 1, n), "prediction": np.zeros(n),
    }  # fmt: skip
    ranges = {
        "accuracy": (0, 1), "balanced_accuracy": (0, 1), "roc_auc": (0, 1), "r2": (-np.inf, 1),
        "neg_log_loss": (-5, 0), "neg_mean_absolute_error": (-2, 0),
        "neg_mean_squared_error": (-4, 0), "mean_bias": (-2, 2),
        "calibration_in_the_large": (-1, 1), "neg_brier_score": (-1, 0),
    }  # fmt: skip
    plan = plan_score(n, scoring=list(ranges), **settings)
    wide = dict.fromkeys(ranges, 0)
    for seed in range(10):
        found = plan.estimates(plan.release(plan.statistics(given), stream(seed)))
        for name, ends in ranges.items():
            assert found[name]["limits"] == ends
            wide[name] += np.allclose(found[name]["interval"], ends, atol=1e-6)
    assert min(wide.values()) >= 7


def test_an_end_that_cannot_be_missed_on_the_other_side_has_the_whole_chance():
    """Errors of u = -1 alone: a sum that is clipped at -n can be too large only, at 5 %."""
    noise = 60.0
    law = Law(noise**2, 0.95, 0.0)
    assert law.reach(0.0, (1, 1), other=0.0) == pytest.approx(1.645 * noise, rel=1e-3)
    assert law.reach(0.0, (1, 1), other=1.9 * noise) == pytest.approx(1.645 * noise, rel=1e-3)
    assert law.reach(0.0, (1, 1), other=2 * noise) == pytest.approx(1.960 * noise, rel=1e-3)
    # noise has made the mean what it is, so that it says nothing of a variance
    for n in (100, 1000):
        for far, is_missed in ((1.6, False), (1.67, True)):
            low, _ = intervals.mean_interval(-n + far * noise, 0.0, n, 0.0, law)
            assert (low > -1) == is_missed


def test_a_sum_that_noise_made_large_does_not_say_that_losses_vary():
    """An end is off by little more than noise and sampling are, where noise is most of it."""
    n, mean, spread, noise = 2000, -0.97, 0.0025, 30.0
    far = 1.96 * np.sqrt(noise + n * spread)
    gap = n * (1 - mean**2 - spread)
    low, _ = intervals.mean_interval(n * mean + far, gap, n, 0.0, Law(noise, 0.95, 0.0))
    assert far < n * mean + far - n * low < 1.15 * far


def test_without_a_large_loss_in_n_the_share_of_large_ones_is_up_to_3_of_n():
    """The rule of three: more of them are all missing from a sample less than 5 % of the time."""
    for n in (300, 2000):
        _, high = intervals.mean_interval(-n, 0.0, n, 0.0, Law(1e-9, 0.95, 0.0))
        assert n * (1 + high) / 2 == pytest.approx(3.0, abs=0.15)


def test_an_area_of_1_is_missed_on_one_side():
    """Of all pairs in order noise can hide some, and add none."""
    n, law = 10_000, Law(100.0, 0.95, 0.0)
    for lost, is_missed in ((16.0, False), (17.0, True)):
        counts = np.array([n / 2, n / 2]), np.array([n - lost, lost])
        ends = [intervals.auc_interval(*counts, law)]
        ends.append(intervals.rank_interval(5000 - lost, 100, 100, (1.0, 0.0), law))
        for _, high in ends:
            assert (high < 1) == is_missed


def test_an_area_of_which_bins_hide_a_part_is_missed_at_one_end():
    """Order within bins, which may be any, moves it by more than both ends are off."""
    negative, positive = np.array([500.0, 100.0]), np.array([100.0, 500.0])
    low, high = intervals.auc_interval(positive, negative, Law(1e-6, 0.95, 0.0))
    for area, end in ((500.0**2, low), (500.0**2 + 2 * 500 * 100, high)):
        off = abs(area - end * 600**2) / np.sqrt(intervals._of_area(end, 600, 600))
        assert off == pytest.approx(1.645, abs=0.02)


@pytest.mark.parametrize("shift", [0.5, 2.0])
def test_sampling_of_an_area_under_the_curve(shift):
    """Of normal scores, also with one class far larger than the other, whichever it is."""
    rng, a = np.random.default_rng(0), ndtr(shift / np.sqrt(2))
    for P, N in ((4, 40), (40, 4)):
        positive, negative = (
            shift + rng.standard_normal((8000, P, 1)),
            rng.standard_normal((8000, 1, N)),
        )
        in_order = np.sum(positive > negative, axis=(1, 2))
        # of which the standard deviation is 2 to 4 %
        assert intervals._of_area(a, P, N) == pytest.approx(in_order.var(), rel=0.15)
    assert not intervals._of_area(np.array([0.0, 1.0]), P, N).any()


def test_noise_in_squared_errors_is_not_taken_for_their_variance():
    n, rng = 2000, np.random.default_rng(0)
    prediction, error = rng.standard_normal((2, n))

    def reaches(size, epsilon, moved, factor=1):
        """Of the ends from R^2, with so many standard deviations of noise in the first sum."""
        facts = {"epsilon": epsilon, "bounds_y": (-5, 5), "max_error": 5}
        plan = plan_score(n, scoring="r2", **facts)
        given = {"y": prediction + size * error, "prediction": factor * prediction}
        (sums,) = plan.statistics(given)
        sums[0] += moved * np.sqrt(plan.noises[0].variance)
        found = plan.estimates([sums])["r2"]
        return np.abs(np.array(found["interval"]) - found["value"])

    assert reaches(0.5, 0.5, 1)[1] < 1.18 * reaches(0.5, 0.5, -1)[1]
    # slack for what noise hides of targets and errors, none of it where errors are small
    assert np.all(reaches(0.3, 8.0, 0) < (0.038, 0.014))
    assert reaches(1.0, 8.0, 0, factor=2)[0] > 0.104
