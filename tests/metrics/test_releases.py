"""What a record adds to a score's sums: sensitivities by brute force, exactness, the plan."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.stats import kstest, laplace, norm
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    precision_recall_fscore_support,
    r2_score,
    roc_auc_score,
    roc_curve,
)
from support import (
    assert_refuses,
    half_is_enough,
    joined,
    recomputed_epsilon,
    rest_is_slow,
    stream,
)

from sklearn_dpsco import BudgetAccountant, plan_score
from sklearn_dpsco.exceptions import PrivacyParameterWarning
from sklearn_dpsco.metrics.releases import SCORINGS, Facts, queries_for

RELATIONS = ("replace-one", "zero-out")
FIELDS = ("truth", "predicted", "score", "own_probability", "y", "prediction")
EMPTY = {
    "truth": -1, "predicted": -1, "score": np.nan, "own_probability": np.nan, "y": np.nan,
    "prediction": np.nan,
}  # fmt: skip
every_scoring = pytest.mark.parametrize("scoring", SCORINGS)


def two_classes(scoring):
    return scoring.startswith(("roc", "calibration", "neg_brier"))


def of_numbers(scoring):
    return scoring == "r2" or "mean" in scoring


def plan(n, scoring, **settings):
    names = [scoring] if isinstance(scoring, str) else scoring
    n_classes = 2 if any(map(two_classes, names)) else 3
    most = {"max_error": 2.5} if any(map(of_numbers, names)) else {}
    settings = {"bounds_y": (-1.0, 3.0), "n_classes": n_classes, **most, **settings}
    return plan_score(n, scoring=scoring, **settings)


def records(scoring, rng, size):
    """Random and extreme records as a list of dicts."""
    n_classes = 2 if two_classes(scoring) else 3
    numbers = [-1.0, 3.0, 1.0, 0.0, 2.0, 1e300, -1e300, np.nan, np.inf, -np.inf]
    chances = [0.0, 1.0, 0.5, 1e-300, np.exp(-2.5), 0.2, np.nan, np.inf, -1.0, 2.0]
    chances.append(np.nextafter(0.2, 0))  # the other end of the first of five bins

    def pick(extremes, low, high):
        return rng.choice(extremes) if rng.random() < 0.5 else rng.uniform(low, high)

    return [
        {
            "truth": rng.integers(-1, n_classes),
            "predicted": rng.integers(-1, n_classes),
            "score": pick(chances, 0, 1),
            "own_probability": pick(chances, 0, 1),
            "y": pick(numbers, -1, 3),
            "prediction": pick(numbers, -1, 3),
        }
        for _ in range(size)
    ]


def answers(rows):
    return {name: np.array([row[name] for row in rows]) for name in FIELDS}


def farthest(noise, sums, relation, empty):
    """The largest distance of two neighbours' sums, of which many are alike."""
    sums = np.unique(sums, axis=0)
    replaced = itertools.combinations(sums, 2)
    pairs = replaced if relation == "replace-one" else ((one, empty) for one in sums)
    return max(noise.distance(one - other) for one, other in pairs)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("shares", [0.0, 0.5, 1.0])
def test_pairs_of_neighbours_are_as_far_apart_as_the_plan_says(relation, delta, shares):
    """Most where all other records are of one class, and the record is at either end of them."""
    chosen = plan(41, "roc_auc", relation=relation, delta=delta)
    (query,), (noise,) = chosen.queries, chosen.noises
    score = np.random.default_rng(0).random(40).round(1)
    truth = (np.arange(40) < 40 * shares).astype(int)
    others = [(k, at) for k in (-1, 0, 1) for at in (-1.0, 0.0, 0.5, 2.0, np.nan)]
    sums = [
        query.statistic({"truth": np.r_[truth, k], "score": np.r_[score, at]}) for k, at in others
    ]
    largest = farthest(noise, sums, relation, sums[0])
    assert largest <= noise.sensitivity
    assert shares == 0.5 or largest > 0.95 * noise.sensitivity


# each scoring on each kind of table under both relations, one with each delta, by turns
PLANS = [*itertools.product(RELATIONS, (0.0, 1e-6))]
KINDS = ({}, {"invalid": "exclude"}, {"n_groups": 3})


@rest_is_slow(
    ("facts", "relation", "delta", "scoring"),
    [(facts, *of, scoring) for facts in KINDS for of in PLANS for scoring in SCORINGS],
    [
        "-".join(map(str, (facts, *PLANS[(k + n) % 4], scoring)))
        for k, facts in enumerate(KINDS)
        for n, scoring in enumerate(SCORINGS)
    ],
)
def test_neighbours_are_as_far_apart_as_the_plan_says(scoring, relation, delta, facts):
    if scoring == "roc_auc" and "n_groups" not in facts:
        return  # of pairs, see above
    rng = np.random.default_rng(0)
    one_bin = {"n_bins": 1} if scoring == "binned_means" else {}  # records are at both ends of it
    chosen = plan(12, scoring, relation=relation, delta=delta, **facts, **one_bin)
    (noise,) = chosen.noises
    rows = records(scoring, rng, 130)
    base, others, groups = rows[:11], [*rows[11:], EMPTY], rng.integers(-1, 3, 131)
    with np.errstate(all="ignore"):
        sums = np.array(
            [
                chosen.statistics(answers([*base, row]), np.r_[groups[:11], group])[0]
                for row, group in zip(others, groups[11:], strict=True)
            ]
        )
    assert (
        0.99 * noise.sensitivity <= farthest(noise, sums, relation, sums[-1]) <= noise.sensitivity
    )


BINS = [
    *itertools.product(("calibration_curve", "binned_means"), (1, 2, 1000, (0, 0.01, 0.1, 0.9)))
]


@rest_is_slow(
    ("relation", "delta", "scoring", "n_bins"),
    [(*of, *bins) for of in PLANS for bins in BINS],
    ["-".join(map(str, (*PLANS[(k + k // 4) % 4], *bins))) for k, bins in enumerate(BINS)],
)
def test_ends_of_bins_are_as_far_apart_as_the_plan_says(relation, delta, n_bins, scoring):
    facts = {"relation": relation, "delta": delta, "bounds_y": (0, 1)}
    facts |= {"max_error": 0.5} if of_numbers(scoring) else {}
    chosen = plan(7, scoring, n_bins=n_bins, **facts)
    (noise,), draws = chosen.noises, np.random.default_rng(0)
    base_truth, base_score = draws.integers(0, 2, 6), draws.random(6)
    edges = chosen.queries[0].facts.edges
    ends = [edges[0], np.nextafter(edges[1], 0), *edges[1:4], edges[1] / 2, edges[-1], np.nan, 7.0]
    if np.ndim(n_bins):  # both ends of the widest bin, which the sums are scaled by
        ends.append(np.nextafter(0.9, 0))
    sums = []
    for at, k in itertools.product(ends, (-1, 0, 1, 0.5)):
        own = np.r_[base_truth, k], np.r_[base_score, at]
        given = {"truth": own[0].astype(int), "score": own[1], "prediction": own[1]}
        given["y"] = np.where(own[0] < 0, np.nan, own[0])
        sums.append(chosen.statistics(given)[0])
    largest = farthest(noise, sums, relation, sums[0])
    assert 0.99999 * noise.sensitivity <= largest <= noise.sensitivity


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_scores_of_a_range_change_by_no_more_than_the_plan_says(relation):
    """Any two records in turn; a range of one target loses what a range of the other gains.

    Of two errors the smaller one is within all sizes of the other.
    """
    facts = {"bounds_y": (-1, 3), "max_error": "private", "relation": relation}
    chosen = plan_score(20_000, scoring="r2", **facts)
    facts, rng = chosen.queries[0].facts, np.random.default_rng(0)
    base, others = rng.normal(0, 0.3, 60), [-1.0, 3.0, -9.0, 1e300, np.nan, np.inf, 0.0, 0.1, 1.01]
    tables = [
        {"y": np.append(base, y), "prediction": np.append(base * 0.9, guess)}
        for y in others
        for guess in (-1.0, 0.1, 5.0)
    ]
    are_invalid = [not np.isfinite(table["y"][-1]) for table in tables]
    for one, most in zip(chosen.ranges, (2 if relation == "replace-one" else 1, 1), strict=True):
        scores, largest = [one.scores(facts, table) for table in tables], 0.0
        assert all(np.array_equal(found, np.rint(found)) for found in scores)
        for i, j in itertools.permutations(range(len(tables)), 2):
            if relation == "replace-one" or are_invalid[j]:
                largest = max(largest, one.select.distance(scores[i] - scores[j]))
        assert largest == one.select.sensitivity == most


@rest_is_slow("delta", [0.0, 1e-6], ("1e-06",))
def test_r2_is_released_within_a_range_of_most_targets(delta):
    """Wide bounds cost little, noise stays as planned, and the plan foretells the interval."""
    facts = {"epsilon": 2.0, "delta": delta, "bounds_y": (0, 300), "max_error": "private"}
    chosen = plan_score(2860, scoring="r2", precision="float", **facts)
    rng, draws, widths, highs, sizes = np.random.default_rng(0), stream(0), [], [], []
    for _ in range(15):
        known, error = rng.standard_normal((2, 2860))
        given = {"y": 40 + 4 * known + 3 * error, "prediction": 40 + 4 * known}
        own = chosen.narrowed(given, draws)
        facts, change = own.queries[0].facts, chosen.queries[0].sensitivity(2)
        assert facts.low < 35 < 45 < facts.high
        highs.append(facts.high)
        sizes.append(facts.max_error / (facts.high - facts.low))
        assert 6 < facts.max_error <= facts.high - facts.low
        assert own.queries[0].sensitivity(2) == pytest.approx(change, rel=1e-14)
        assert own.narrowed(given, draws) is own
        found = own.estimates(own.release(own.statistics(given), draws))["r2"]
        low, high = found["interval"]
        assert f"clipped to [{facts.low:.4g}, {facts.high:.4g}]" in found["clipped"]
        widths.append(high - low)
    assert np.median(highs) < 80
    assert np.median(sizes) < 0.95
    low, high = chosen.expected_r2(0.64, spread=5 / 300)
    assert 0.7 < np.median(widths) / (high - low) < 1.4
    assert f"[{low:.2g}" != "[-inf"
    assert "is 0.02" in str(chosen)
    assert "r2 of 0.5" in str(chosen)


def test_a_plan_says_for_which_rule_of_invalid_records_it_foretells(monkeypatch):
    """With a fifth of the targets missing, the interval is that of so many fewer records."""
    monkeypatch.setattr("sklearn_dpsco.metrics.scores._FILLED", 1.0)  # no range is selected
    facts = {"scoring": "r2", "bounds_y": (0, 60), "precision": "float"}
    counts = joined(plan_score(3000, **facts))
    assert "3000 records; with invalid='count', the interval" in counts
    assert "missing targets spoil it" in counts
    assert "if the model has nonfinite='zero', plan with invalid='exclude'" in counts
    chosen = plan_score(3000, invalid="exclude", **facts)
    assert "3000 records; with invalid='exclude', the interval" in joined(chosen)
    assert "missing targets widen it" in joined(chosen)
    rng, noise, lengths = np.random.default_rng(0), stream(0), []
    for _ in range(20):
        known, error = 6 * rng.standard_normal((2, 3000))
        y = np.where(rng.random(3000) < 0.2, np.nan, 30 + known + error)
        sums = chosen.statistics({"y": y, "prediction": 30 + known})
        lengths.append(np.ptp(chosen.estimates(chosen.release(sums, noise))["r2"]["interval"]))
    of_others = plan_score(2400, invalid="exclude", **facts)
    foretold, full = (
        np.ptp(one.expected_r2(spread=np.sqrt(72) / 60)) for one in (of_others, chosen)
    )
    assert np.median(lengths) == pytest.approx(foretold, rel=0.1)
    assert np.median(lengths) > 1.15 * full


@pytest.mark.parametrize(("n", "epsilon"), [(500, 2.0), (2860, 0.5)])
def test_a_range_leaves_out_no_large_targets_that_are_many(n, epsilon):
    """They have most of the variance: without them, R^2 is of another question."""
    facts, y = {"epsilon": epsilon, "bounds_y": (0, 300), "precision": "float"}, np.zeros(n)
    chosen = plan_score(n, scoring="r2", **facts)
    y[: n // 5] = 250.0
    for seed in range(30):
        own = chosen.narrowed({"y": y, "prediction": y}, stream(seed))
        assert own.queries[0].facts.low == 0
        assert own.queries[0].facts.high >= 250


def test_a_range_is_selected_where_noise_allows_it_and_is_not_little():
    facts = {"scoring": "r2", "bounds_y": (0, 60)}
    for n, more, is_selected in (
        (2860, {}, True), (2860, {"epsilon": 5.0}, True), (2860, {"max_error": 9}, True),
        (2860, {"epsilon": 5.0, "max_error": "private"}, True),
        (300, {}, False), (10**6, {}, False),
        (2860, {"scoring": "neg_mean_squared_error"}, False), (2860, {"n_groups": 2}, True),
        (2860, {"bounds_y": (1e9, 1e9 + 1e-3)}, False), (2860, {"epsilon": 1e5}, False),
    ):  # fmt: skip
        chosen = plan_score(n, **{**facts, **more})
        assert bool(chosen.ranges) == is_selected, (n, more)
        names = [release.name for release in chosen.guarantee.releases]
        assert ("range of the targets" in names) == is_selected
        assert ("range of the errors" in names) == ("private" in more.values())
    of_errors = {"epsilon": 5.0, "max_error": "private"}
    squared = plan_score(2860, **facts | of_errors | {"scoring": "neg_mean_squared_error"})
    assert [one.of for one in squared.ranges] == ["errors"]
    assert_refuses(plan_score, "max_error='private' is for", 2860, max_error="private")
    with pytest.raises(ValueError, match="expected_r2 is of"):
        plan_score(500).expected_r2()
    for bad in ({"r2": 1.1}, {"spread": 0.0}, {"spread": 0.6}):
        assert_refuses(chosen.expected_r2, next(iter(bad)), **bad)


@rest_is_slow("rate", [0.003, 0.01], ("0.003",))
def test_rare_events_do_not_make_r2_large(rate):
    """Nearly all errors are tiny there, and few records have all of the variance."""
    rng, n = np.random.default_rng(0), 30_000
    mean = rate * np.exp(0.5 * rng.standard_normal(n) - 0.125)
    y = rng.poisson(mean).astype(float)
    chosen, hits = plan_score(n, scoring="r2", bounds_y=(0, 10)), 0
    for seed in range(20):
        given, draws = {"y": y, "prediction": mean}, stream(seed)
        own = chosen.narrowed(given, draws)
        low, high = own.estimates(own.release(own.statistics(given), draws))["r2"]["interval"]
        assert high < 0.7
        # of targets within the range, which may leave the rarest out
        inside, most = np.minimum(y, own.queries[0].facts.high), own.queries[0].facts.max_error
        errors = np.clip(mean - inside, -most, most)
        hits += low <= 1 - np.mean(errors**2) / inside.var() <= high
    assert hits >= 18


def test_columns_of_a_plan_are_as_wide_as_its_names():
    plan = plan_score(1781, scoring="r2", epsilon=2.0, bounds_y=(0, 200))
    head, *rows = str(plan.guarantee).splitlines()[-3:]
    assert [row.index(" 1  ") for row in rows] == [head.index("uses") + 2] * 2


@pytest.mark.filterwarnings("default:.*too small to learn from")
def test_a_plan_warns_of_an_r2_that_will_be_hidden():
    with pytest.warns(PrivacyParameterWarning, match="how large r2 is"):
        hidden = plan_score(200, scoring="r2", epsilon=0.3, bounds_y=(0, 60))
    assert hidden.expected_r2(spread=0.2)[0] == -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_score(2860, scoring="r2", epsilon=0.5, bounds_y=(0, 60))
        plan_score(200, epsilon=0.3)


def test_several_scores_come_from_as_few_releases_as_can_be():
    def names(*scorings):
        return [query.name for query in queries_for(scorings, Facts(100), 1)]

    assert names("accuracy") == ["correct predictions"]
    assert names("accuracy", "balanced_accuracy") == ["right and wrong by class"]
    assert names("accuracy", "balanced_accuracy", "confusion_matrix") == ["confusion matrix"]
    assert names("roc_auc", "roc_curve") == ["ranks by class", "scores by class"]
    in_groups = queries_for(["roc_auc", "roc_curve"], Facts(100, n_groups=2), 1)
    assert [query.name for query in in_groups] == ["scores by class and group"]
    assert names("roc_auc") == ["ranks by class"]
    assert names("neg_mean_squared_error") == ["squared error"]
    assert names("r2", "neg_mean_squared_error") == ["squared error and target"]
    assert sorted(names(*SCORINGS)) == [
        "absolute error", "calibration", "confusion matrix", "error", "log loss",
        "means by prediction", "probability less label", "ranks by class", "scores by class",
        "square of probability less label", "squared error and target",
    ]  # fmt: skip


@rest_is_slow(
    ("relation", "delta", "rows"),
    [*itertools.product(RELATIONS, (0.0, 1e-6), (1, 3))],
    ("replace-one-0.0-1", "zero-out-1e-06-1", "replace-one-1e-06-3"),
)
@half_is_enough
def test_a_second_accountant_agrees(relation, delta, rows, cells):
    several, ranged = ["r2", "neg_mean_absolute_error"], {"max_error": "auto"}
    asked = (
        (["accuracy"], {}), (["roc_auc"], {}), (several, {"n_groups": 3}), (SCORINGS, {}),
        (several, ranged), (["r2"], ranged | {"n_groups": 3}),
    )  # fmt: skip
    for scorings, more in asked if cells == "all" else asked[(delta > 0) + (rows > 1) :: 3]:
        facts = {"relation": relation, "delta": delta, "max_rows_per_user": rows, **more}
        chosen = plan(5000, list(scorings), epsilon=0.7, n_classes=2, **facts)
        assert bool(chosen.ranges) == ("r2" in scorings)
        guarantee = chosen.guarantee
        assert guarantee.relation == relation
        assert 0.6 < recomputed_epsilon(guarantee) <= 0.7 * (1 + 1e-4)
        assert guarantee.second_opinion() <= 0.7 * (1 + 1e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("precision", ["exact", "float"])
def test_noise_has_the_planned_law(delta, precision):
    chosen = plan(500, "roc_curve", delta=delta, precision=precision, n_thresholds=1000)
    zero = [np.zeros(query.dimension) for query in chosen.queries]
    draws = np.concatenate([chosen.release(zero, stream(k))[0] for k in range(20)])
    law, scale = (laplace if delta == 0 else norm), chosen.noises[0].scale
    assert kstest(draws, law(scale=scale).cdf).pvalue > 1e-7
    assert kstest(draws, law(scale=scale / 1.1).cdf).pvalue < 1e-7


def labelled(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.4
    score = 1 / (1 + np.exp(-(2 * y - 1) - rng.standard_normal(n)))
    return y.astype(int), score


def without_noise(scorings, given, n, **settings):
    chosen = plan_score(n, scoring=scorings, epsilon=1e9, **settings)
    return chosen.estimates(chosen.statistics(given))


def test_without_noise_the_scores_are_those_of_scikit_learn():
    y, score = labelled()
    predicted = (score > 0.5).astype(int)
    own = np.where(y == 1, score, 1 - score)
    given = {"truth": y, "predicted": predicted, "score": score, "own_probability": own}
    scorings = [s for s in SCORINGS if not of_numbers(s)]
    found = without_noise(scorings, given, y.size, n_bins=5)
    value = {name: estimate["value"] for name, estimate in found.items()}
    assert value["accuracy"] == pytest.approx(np.mean(y == predicted), abs=1e-12)
    expected = balanced_accuracy_score(y, predicted)
    assert value["balanced_accuracy"] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(value["confusion_matrix"], confusion_matrix(y, predicted))
    assert value["roc_auc"] == pytest.approx(roc_auc_score(y, score), abs=1e-4)
    rounded = {"truth": y, "score": score.round(1)}  # many ties
    alone = without_noise("roc_auc", rounded, y.size)["roc_auc"]["value"]
    assert alone == pytest.approx(roc_auc_score(y, score.round(1)), abs=1e-7)
    assert value["neg_log_loss"] == pytest.approx(-log_loss(y, score), abs=1e-6)
    assert value["neg_brier_score"] == pytest.approx(-brier_score_loss(y, score), abs=1e-6)
    more = found["roc_curve"]
    fpr, tpr, _ = roc_curve(y, score >= 0.25, drop_intermediate=False)
    at = np.flatnonzero(more["thresholds"] == 0.25)[0]
    np.testing.assert_allclose([more["fpr"][at], more["tpr"][at]], [fpr[1], tpr[1]])
    assert found["calibration_in_the_large"]["value"] == pytest.approx(np.mean(score - y), abs=1e-6)
    curve = found["calibration_curve"]
    expected = calibration_curve(y, score)
    np.testing.assert_allclose([curve["prob_true"], curve["prob_pred"]], expected, atol=1e-6)


def test_without_noise_the_scores_of_regressions_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    y = rng.uniform(-1, 3, 3000)
    prediction = np.clip(y + 0.3 * rng.standard_normal(3000), -1, 3)
    given = {"y": y, "prediction": prediction}
    scorings = ["r2", "neg_mean_squared_error", "neg_mean_absolute_error", "mean_bias"]
    (curve,) = without_noise("binned_means", given, 3000, bounds_y=(-1, 3), n_bins=8).values()
    bins = np.digitize(prediction, np.linspace(-1, 3, 9)[1:-1])
    for name, values in (("prob_true", y), ("prob_pred", prediction)):
        expected = np.bincount(bins, values) / np.bincount(bins)
        np.testing.assert_allclose(curve[name], expected, atol=1e-6)
    for delta in (0.0, 1e-6):
        found = without_noise(scorings, given, 3000, bounds_y=(-1, 3), delta=delta)
        expected = [
            r2_score(y, prediction),
            -mean_squared_error(y, prediction),
            -mean_absolute_error(y, prediction),
            np.mean(prediction - y),
        ]
        np.testing.assert_allclose([found[s]["value"] for s in scorings], expected, atol=1e-6)
        for name in scorings:
            low, high = found[name]["interval"]
            assert low < found[name]["value"] < high


def test_an_invalid_record_counts_as_documented():
    n = 1000
    given = {
        "truth": np.full(n, -1), "predicted": np.zeros(n, int), "score": np.full(n, 0.5),
        "own_probability": np.full(n, np.nan), "y": np.full(n, np.nan), "prediction": np.zeros(n),
    }  # fmt: skip
    found = without_noise(list(SCORINGS), given, n, bounds_y=(-1, 1), max_error=1.0)
    assert found["accuracy"]["value"] == 0
    assert found["confusion_matrix"]["value"].sum() == 0
    assert found["neg_log_loss"]["value"] == -2.5
    assert found["neg_brier_score"]["value"] == -0.5
    assert found["neg_mean_absolute_error"]["value"] == -0.5
    assert found["neg_mean_squared_error"]["value"] == -0.5
    assert found["r2"]["value"] == pytest.approx(0.5)
    assert found["mean_bias"]["value"] == found["calibration_in_the_large"]["value"] == 0
    assert found["roc_auc"]["interval"] == (0.0, 1.0)


def test_precision_recall_and_f1_of_classes_come_from_the_matrix():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 2000)
    predicted = np.where(rng.random(2000) < 0.7, truth, rng.integers(0, 3, 2000))
    given = {"truth": truth, "predicted": predicted}
    found = without_noise(["confusion_matrix"], given, 2000, n_classes=3)["confusion_matrix"]
    *expected, size = precision_recall_fscore_support(truth, predicted)
    expected.append(size / 2000)
    for name, values in zip(("precision", "recall", "f1", "share"), expected, strict=True):
        value, low, high = found["by_class"][name]
        np.testing.assert_allclose(value, values, atol=1e-6)
        assert np.all((low < value) & (value < high))


def test_scores_of_the_valid_records_are_those_of_scikit_learn():
    rng, n = np.random.default_rng(1), 3000
    y, score = labelled(n)
    lost = rng.random(n) < 0.3 + 0.3 * y  # not at random
    truth, predicted = np.where(lost, -1, y), (score > 0.5).astype(int)
    own = np.where(lost, np.nan, np.where(y == 1, score, 1 - score))
    number, prediction = rng.normal(size=n), rng.normal(size=n)
    given = {
        "truth": truth, "predicted": predicted, "score": score, "own_probability": own,
        "y": np.where(lost, np.nan, number), "prediction": prediction,
    }  # fmt: skip
    facts = {"bounds_y": (-5, 5), "invalid": "exclude"}
    kept = y[~lost], predicted[~lost], score[~lost]
    pair = number[~lost], prediction[~lost]
    expected = {
        "accuracy": np.mean(kept[0] == kept[1]),
        "balanced_accuracy": balanced_accuracy_score(*kept[:2]),
        "neg_log_loss": -log_loss(kept[0], kept[2]),
        "r2": r2_score(*pair),
        "neg_mean_squared_error": -mean_squared_error(*pair),
        "neg_mean_absolute_error": -mean_absolute_error(*pair),
    }
    for scorings in ([*expected], *([name] for name in expected)):
        own = {"max_log_loss": 50} if "neg_log_loss" in scorings else {}
        found = without_noise(scorings, given, n, **facts, **own)
        for name in scorings:
            assert found[name]["value"] == pytest.approx(expected[name], abs=1e-5), name
            assert found[name]["n_valid"] == pytest.approx((~lost).sum(), abs=0.01)


def test_scores_of_one_call_tell_the_number_of_valid_records_with_the_least_noise():
    y, score = labelled(500)
    given = {"truth": y, "predicted": y, "score": score, "y": y, "prediction": score}
    last = ["confusion_matrix", "calibration_in_the_large", "roc_auc"]
    first = ["r2", "neg_mean_squared_error", "confusion_matrix"]
    for scorings, delta, groups in (
        (last, 0.0, {"n_groups": 2}),
        (last, 0.0, {}),
        (last, 1e-6, {}),
        (first, 0.0, {}),
    ):
        # the other records are in no group, and invalid
        chosen = plan(800, scorings, delta=delta, **({"invalid": "exclude"} | groups))
        which = 1 if groups.get("n_groups") else None
        noisy = chosen.release(chosen.statistics(given, np.arange(500) % 2), stream(0))
        deviations, numbers = [], []
        for query, noise, sums in zip(chosen.queries, chosen.noises, noisy, strict=True):
            part = sums if which is None else sums.reshape(2, -1)[which]
            number, units = query.n_valid(part)
            draws = [
                query.n_valid(query.statistic(given) + np.sqrt(noise.variance) * normal)[0]
                for normal in np.random.default_rng(0).standard_normal((200, query.dimension))
            ]
            assert np.var(draws) == pytest.approx(units * noise.variance, rel=0.5)
            deviations.append(units * noise.variance)
            numbers.append(number)
        found = {e["n_valid"] for e in chosen.estimates(noisy, which).values()}
        assert found == {numbers[int(np.argmin(deviations))]}


def test_more_bins_where_noise_is_less():
    def bins(n, epsilon):
        return plan_score(n, scoring="roc_curve", epsilon=epsilon).queries[0].shape[1]

    assert bins(300, 0.3) < bins(300, 3) < bins(50_000, 3) <= 1000
    assert bins(2, 1e-3) == 4
    assert bins(2**32, 1e3) == 1000


@rest_is_slow(
    ("n", "epsilon"),
    [*itertools.product((300, 3000, 50_000), (0.3, 1, 3))],
    ("300-3",),
)
def test_intervals_are_hardly_shorter_with_another_number_of_bins(n, epsilon):
    y, score = labelled(n)
    given = {"truth": y, "score": score}

    def width(bins):
        chosen = plan_score(
            n,
            scoring=["roc_auc", "roc_curve"],
            epsilon=epsilon,
            n_thresholds=bins,
            n_groups=2,
            precision="float",
        )
        sums, draws = chosen.statistics(given, np.arange(n) % 2), stream(1)
        found = [chosen.estimates(chosen.release(sums, draws), 0) for _ in range(7)]
        return np.median([np.diff(f["roc_auc"]["interval"])[0] for f in found])

    auto = width("auto")
    widths = [width(bins) for bins in (4, 40, 400)]
    assert auto < 1.25 * min(widths)
    assert auto < 0.8 * max(widths)


def test_bad_settings_are_named():
    for change, message in (
        ({"scoring": "f1"}, "scoring"),
        ({"scoring": []}, "scoring"),
        ({"scoring": ["accuracy", "accuracy"]}, "scoring"),
        ({"scoring": 3}, "scoring"),
        ({"scoring": "r2"}, "bounds_y"),
        ({"scoring": "r2", "bounds_y": (1, 0)}, "bounds_y"),
        ({"scoring": "r2", "bounds_y": ([0, 0], [1, 1])}, "bounds_y"),
        ({"scoring": "roc_auc", "n_classes": 3}, "two classes"),
        ({"n_classes": 1}, "n_classes"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"relation": "add"}, "relation"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": np.nan}, "confidence"),
        ({"max_error": 0.0}, "max_error"),
        ({"max_log_loss": 0.0}, "max_log_loss"),
        ({"n_thresholds": 0}, "n_thresholds"),
        ({"n_bins": 0}, "n_bins"),
        ({"n_bins": [0, 0.5, 0.2]}, "2 to 10001 rising"),
        ({"score_bounds": (1.0, 0.0)}, "score_bounds"),
        ({"score_bounds": 1.0}, "score_bounds"),
        ({"score_bounds": None}, "score_bounds"),
        ({"max_rows_per_user": 0}, "max_rows_per_user"),
        ({"precision": "double"}, "precision"),
        ({"n_groups": 0}, "n_groups"),
        ({"n_groups": 2, "invalid": "count"}, "invalid"),
        ({"accountant": 1}, "accountant"),
    ):
        assert_refuses(plan_score, message, 100, **change)
    assert_refuses(plan_score, "n_samples", 1)
    with pytest.warns(PrivacyParameterWarning):
        plan_score(100, delta=0.01)


def test_auto_is_pure_or_takes_the_delta_of_the_accountant():
    assert plan_score(10**6, delta="auto").guarantee.delta == 0
    with BudgetAccountant(2.0, 1e-8):
        guarantee = plan_score(10**6, delta="auto").guarantee
    assert (guarantee.delta, guarantee.composition) == (1e-8, "gdp")


def test_groups_share_the_noise_of_one_where_a_record_is_in_one():
    """Counts and normal noise lose nothing, means with Laplace noise a factor of two."""
    for scoring, delta, loss in (("accuracy", 0.0, 1), ("r2", 1e-6, 1), ("mean_bias", 0.0, 2)):
        for relation in RELATIONS:
            settings = {"relation": relation, "delta": delta, "invalid": "exclude"}
            one, many = (
                plan(10**5, scoring, **settings, n_groups=groups).noises[0].scale
                for groups in (1, 7)
            )
            most = loss if relation == "replace-one" else 1
            assert many == pytest.approx(most * one, rel=1e-3)


def test_scores_of_groups_and_of_all_of_them():
    rng, n = np.random.default_rng(0), 3000
    y, score = labelled(n)
    group, predicted = rng.integers(-1, 3, n), (score > 0.5).astype(int)
    own = np.where(y == 1, score, 1 - score)
    given = {"truth": y, "predicted": predicted, "score": score, "own_probability": own}
    scorings = ["balanced_accuracy", "roc_auc", "neg_log_loss", "calibration_in_the_large"]
    chosen = plan_score(n, scoring=scorings, n_groups=3, epsilon=1e9)
    sums = chosen.statistics(given, group)
    for which, is_in in ((None, group >= 0), (0, group == 0), (2, group == 2)):
        found = chosen.estimates(sums, which)
        part = y[is_in], predicted[is_in], score[is_in]
        expected = (
            balanced_accuracy_score(*part[:2]),
            roc_auc_score(part[0], part[2]),
            -log_loss(part[0], part[2]),
            np.mean(part[2] - part[0]),
        )
        for name, truth in zip(scorings, expected, strict=True):
            error = 2e-3 if name == "roc_auc" else 1e-5
            assert found[name]["value"] == pytest.approx(truth, abs=error)
            assert found[name]["n_valid"] == pytest.approx(is_in.sum(), abs=0.01)
