"""Defaults: rules and numbers that depend on public facts only, one set for a solver and task.

A set is one frozen object for all tables, of numbers with names; a tuple has a number for
regressions, one for classifications and perhaps one for rates. The numbers were chosen on
synthetic data (benchmarks/defaults_study.py, mirror_study.py, phased_sgd.py, streaming.py,
heavy_tails.py); where those left a choice open, five public tables decided (diabetes, computers,
breast cancer, digits, fair). No number was tuned to a single table.

Units: features and targets scaled to [-1, 1]. "Noise" is the l2 norm of the noise in the mean
of all released gradients, for a clip of 1 (`gradient_noise`), unless it says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import make_dataclass, replace
from typing import Any

from ..geometry import Geometry
from ..losses import smoothed
from ..privacy.budget import PrivacyBudget
from .base import Problem

# Limits of what a user may ask for.
MOST_SCALE_SHARE = 0.7  # for scales of heavy tails; with the other shares it leaves 0.07
MOST_SLICES = 10**4  # of heavy-tailed records, each of which has a mechanism of its own


def rule_set(**numbers: Any) -> Any:
    """A frozen object that has these numbers."""
    return make_dataclass("Rules", numbers, frozen=True)(**numbers)


def by_task(tasks: tuple[str, ...], **numbers: Any) -> dict[str, Any]:
    """Such an object for each task: a tuple has a number for each, any other value is for all."""
    kind: Any = make_dataclass("Rules", numbers, frozen=True)
    own = [v if isinstance(v, tuple) else (v,) * len(tasks) for v in numbers.values()]
    return {task: kind(*values) for task, *values in zip(tasks, *own, strict=True)}


_TASKS = "regression", "classification"

# --------------------------------------------------------------- rules that solvers share


def data_norm(problem: Problem) -> float:
    """Half of the largest possible norm of a row, declared or in the box, and at least 1."""
    longest = math.sqrt(problem.dimension)
    if problem.row_norm is not None:
        longest = min(math.hypot(problem.row_norm, problem.fit_intercept), longest)
    return max(1.0, longest / 2)


def gradient_noise(problem: Problem, budget: PrivacyBudget, norm: float, amount: float) -> float:
    """l2 norm of the noise in the mean of all released gradients of an output, for a clip of 1.

    `amount` is rho, or mu^2 / 2.
    """
    per_coordinate = budget.record_factor * norm / (problem.n_samples * math.sqrt(2 * amount))
    return per_coordinate * math.sqrt(problem.dimension)


def sized_set(problem: Problem, radius: float) -> Geometry:
    """The declared set, or one of this radius."""
    kind = problem.feasible_set
    if isinstance(kind, Geometry):
        return kind
    # noise beyond all measure would ask for a radius that no set may have
    return kind(1.0 if has_fixed_size(problem) else max(radius, 1e-50))


def has_fixed_size(problem: Problem) -> bool:
    """Whether the radius of a set without the origin is the size of the model: 1, for mixtures."""
    return problem.loss.task == "regression" and not problem.feasible_set.contains_origin


def growing(smallest: float, noise: float, accurate: float) -> float:
    """The smallest where noise dominates, and up to 1 where it is far below `accurate`."""
    return min(1.0, smallest * max(1.0, math.sqrt(accurate / noise)))


def growing_clip(problem: Problem, smallest: float, noise: float, accurate: float) -> float:
    """A clip that is `growing`, of several outputs in units of `Problem.joint_unit`."""
    return growing(smallest, noise, accurate) * problem.joint_unit


def intercept_share(problem: Problem, budget: PrivacyBudget) -> float:
    """Share of the budget that brings the noise of the mean target to `target_noise`."""
    rules = FIRST_RELEASES
    full = budget.record_factor / problem.n_samples
    if budget.is_pure:
        share = math.sqrt(2) * full / budget.allowance.amount / rules.target_noise
    else:
        share = (full / rules.target_noise) ** 2 / (2 * budget.rho)
    return min(rules.most_target_share, max(rules.least_target_share, share))


def affordable_steps(problem: Problem, rules: Any) -> int:
    """More steps never hurt, as their noise averages out, but cost time.

    `rules.affordable` bounds the numbers of X that all of them read.
    """
    affordable = int(rules.affordable / (problem.n_samples * problem.n_features))
    return min(rules.most_steps, max(affordable, rules.fewest_steps))


# -------------------------------------------------------------------- before the descent

# Shares of the budget, and the steps to the centre of the targets.
FIRST_RELEASES = rule_set(
    row_factor_share=0.02,
    means_share=0.05,
    clear_means=0.1,  # noise of a column's mean above which selections do without
    # Unit of the intercept about means: it has little left to correct, and its part of a gradient
    # varies most, for which alone it would be selected.
    centered_intercept=0.25,
    least_target_share=0.1,
    most_target_share=0.5,
    target_noise=0.12,  # standard deviation that the target's share aims at
    least_frequency=0.02,  # of a class with a weight, over the number of classes
    target_prior=0.5,  # standard deviation of the mean of targets over tasks
    # Where the least share gives too much noise for a mean in [-1, 1], the centre of the targets
    # is found by steps on residuals clipped to `location_clip`, which need less noise.
    location_clip=0.12,
    location_steps=25,
    location_step=1.9,
    location_reach=0.2,  # bound on the sum of the noise over all steps
)

# ---------------------------------------------------------------------------- Frank-Wolfe

# Radii, clips and levels of noise.
FRANK_WOLFE = by_task(
    _TASKS,
    gradient_radius=(0.8, 6.0),  # over the root of the noise, of labels for 16 features
    # The power of the number of columns by which the radius of labels grows: the l1 norm of as good
    # a dense model grows with its root, that of a sparse one does not.
    widening=0.25,
    largest_radius=(12.0, 70.0),
    selection_radius=(1.5, 7.0),
    smallest_clip=(0.15, 0.5),
    fewest_steps=(50, 16),
    noisy=(0.15, 0.2),  # noise above which the radius falls, and with it the coefficients
    few_columns=(20.0, 16.0),  # from which on the noise of several outputs is less than their sum
    hopeless=(0.6, 1.5),  # noise above which only the intercept is learned
    most_steps=200,
    # times as many of a loss with a kink, whose envelope is steep, and the noise from which not
    kinked=(2, 3),
    kinked_noise=0.05,
    affordable=8e7,
    accurate=0.02,  # noise below which the clip grows to 1
    # Noise of a selection below which it is preferred where gradients are noisy. The two noises
    # differ by a factor of about d / (2 log 2d). Where that is below sparsity_bet (d < 80),
    # selections are better only if the best model is sparse, and worse if it is dense.
    selectable=0.15,
    sparsity_bet=8.0,
    # Width of the smoothing of the linear minimization, in units of the noise left in the
    # momentum, and curvature of the loss along one feature, in units of its smoothness, which
    # keeps the first steps of a run with little noise from overshooting.
    smoothing=0.2,
    curvature=0.2,
    newest=(0.1, 0.15),  # weight in the momentum, at least
)


# The error of permute-and-flip is that of Gumbel noise of about 0.75 times (few close
# scores) to 1 times (noise dominates) its scale.
PERMUTE_AND_FLIP = 0.9

_ENVELOPE = 2.8  # beta of a loss that is not smooth, over c sqrt(steps)


def smoothed_for(problem: Problem, clip: float, n_steps: int) -> Problem:
    """With the envelope that suits so many Frank-Wolfe steps, if the loss is not smooth.

    An envelope of parameter beta is off by at most c^2 / (2 beta), and T steps leave an error
    proportional to beta / T, so that both are alike where beta grows like c sqrt(T).
    """
    return replace(problem, loss=smoothed(problem.loss, _ENVELOPE * clip * math.sqrt(n_steps)))


# Steps of Frank-Wolfe in a single pass.
# Of several plans the one with the least sum of `unfinished` over the steps, the error of a
# selection and `variation` times the sampling error is taken, in units of the radius times the
# clip.
SINGLE_PASS = by_task(
    _TASKS,
    late=(9.0, 6.0),  # steps are 2 / (k + late)
    # Of a new batch in the estimate of "rounds", in units of the step: a little more than that, or
    # everything, which leaves a record in one estimate. The second is better for all but large n.
    weights=((3.0, math.inf), (3.0, math.inf)),
    unfinished=0.5,
    variation=0.3,
    forgets=0.5,  # "spider": the step, in units of that of BGN21
)

# ------------------------------------------------------------------------- mirror descent

# Radii, clips and the step rule (`Stage`).
MIRROR_DESCENT = by_task(
    _TASKS,
    radius=(2.0, 10.0),
    smallest_clip=(0.12, 0.3),
    # Size of a useful gradient, in units of its clip: where the noise of the mean of all steps
    # is far above it, steps are so short that the model stays near its start.
    gradient=(1.0, 0.9),
    reach=0.5,  # of AdaGrad's steps, in units of the diameter
    # Noise of a single release below which the clip grows to 1; a small one makes the slopes of
    # labels too steep, which ranks do not show, but probabilities do.
    accurate=(0.02, 0.2),
    # Noise of a single release above which, and number of features from which, the l1 ball is
    # the default set: assuming a sparse model then costs nothing, and helps.
    drowning=0.5,
    wide=100,
    # "noisy-sfw" steps towards the boundary even if the gradient is small: a smaller set,
    # and shorter steps where the noise is above `direction` times the Lipschitz constant.
    boundary=0.25,
    direction=0.05,
    most_phases=6,  # later ones hardly change the model
    growing_rounds=8,  # of "noisy-sfw" where the loss is not convex, at most
    round_steps=16,  # of "proximal", whose many rounds need few steps each, at least
    fewest_steps=60,
    most_steps=400,
    affordable=4e8,
)

# ----------------------------------------------------------- descent in learned units

# Shares of the budget, and bounds in units of what was released.
# m is n mu over the record factor. (benchmarks/learned_units.py)
LEARNED_UNITS = by_task(
    (*_TASKS, "rates"),
    smallest_clip=(0.5, 0.3, 1.0),
    prediction_noise=(0.85, 1.0, 0.4),  # standard deviation that is accepted in a prediction
    signal=(0.3, 0.2, 0.3),  # norm of a useful gradient, in units of its clip
    # for the mean of the targets, which aims at m = 8 (but of rates at far more)
    most_mean_share=(0.15, 0.3, 0.07),
    least_mean_share=(0.02, 0.04, 0.02),
    # The m below which the units of the bounds are better than learned ones, over the root of the
    # number of outputs.
    least=(14.0, 0.0, 0.0),
    norm_share=(0.08, 0.1, 0.08),  # the largest, for each of two norms that few rows exceed
    least_for_norms=(7.0, 2.0, 7.0),  # the m sqrt(share) below which they are not released
    largest_clip=(6.0, 1.0, 1.0),
    median_share=(0.12, 0.25, 0.07),
    spread_share=0.15,
    widest_mean=4.0,
    center_share=0.08,
    present_share=(0.005, 0.005, 0.02),  # for the number of records that are not empty
    positive_share=0.04,  # and of rates above 0
    growth=0.03,  # clips grow from m / (d + 1) of the inverse on
    row_growth=0.2,  # of that growth, for the bound on rows in second moments, which is no bias
    # And of gradients, from a growth on and up to a length: where effects saturate, or means are
    # otherwise bent, slopes of rows without the long ones are steeper than those of all.
    long_rows=1.5,
    long_rows_from=3.0,
    most_long_rows=8.0,
    row_bound=0.8,  # of centred rows, in units of the norm that few exceed
    # The m / d^1.5 from which second moments are released, twice: bounds that were too narrow for
    # the first round suit the second.
    whiten=9.0,
    least_to_whiten=100.0,  # and the m, below which other shares leave too little
    moments_share=0.1,  # for both
    moment_growth=2.0,  # of the bound on the rows in them
    # The m over the root of the number of columns from which their sizes are released, that times
    # the root of the share that it aims at, and the share at least and at most.
    least_for_sizes=35.0,
    least_for_intervals=500.0,  # and the m itself, with inference
    sizes_aim=48.0,
    least_size_share=0.02,
    most_size_share=0.1,
    # Below that, `near_sum` tells how near the centre columns are, if at most this share brings its
    # noise to `near_noise`. Columns more than `apart` octaves nearer are enlarged, up to a factor.
    near_noise=0.45,
    most_near_share=0.05,
    per_octave=0.75,  # by which columns are nearer that are half as large
    apart=1.5,
    most_apart=8.0,
    # A few rows, too few to show in noise, may be at the bounds: the more a column is enlarged, the
    # further off they are.
    most_enlarged=6.5,  # octaves
    # Longest vector of octaves, over the root of the number of columns: where noise is large, and
    # where it is small.
    octaves=4.0,
    most_octaves=16.0,
    alike=0.8,  # octaves up to which sizes count as one
    clear_octave=0.25,  # noise of these, where they are longer
    size_doubt=0.25,  # standard deviations by which a size is taken to be larger
    # Of whitened rows, those longer than a bound count less: as few as are clear of the noise of
    # the selection, whose share this is.
    far_share=0.02,
    clear_center=3.0,  # of rows, in units of the noise of their centre
    clear_count=4.0,
    # Coefficients of columns whose moment is not above `clear_moment` times its noise are
    # shrunk, as far as usual moments are above `clear_usual` times the spectral norm of the noise.
    # (From this m / d^1.5 on; below, moments need be less clear.)
    doubts_all=60.0,
    clear_moment=2.0,
    clear_usual=0.63,
    # From `doubts_from` on, those along directions of which the moment is up to this part of it
    # with the ridge are, too, and none from twice this part on, as far as two in five directions
    # have more than `usual_part`.
    doubts_from=30.0,
    unclear_part=0.25,
    usual_part=0.6,
    scalar_share=0.01,  # for the top eigenvalue
    scalars=30.0,  # the m from which it is released
    least_for_center=0.0,  # the m below which the centre is not released
    # Of wide rows, where a feature's unit is sqrt(mean + ridge * noise), by the noise in its mean.
    clear=5.0,  # the mean, in units of its noise, below which it is not a feature's own
    rest=2.0,  # noise of gradients, over that of means, by which those weigh less
    sure=3.0,  # and below which it is not centred
    ridge=4.0,
)


# Of counts and costs, beside their learned units. (benchmarks/counts.py)
RATES = rule_set(
    curvature=1.5,  # of the loss, over that at the mean of the targets
    level=2.0,  # the sum of the steps of the intercept, at least, over what it needs
    # below which rows are 0, and the level is that of the released mean
    least_level_unit=0.01,
    clear=5.0,  # what tells a size, in units of its selection's noise
    # The most by which the logarithm of a size's weight falls with each octave from the usual one,
    # where that does not tell: else one of the many far too small ones is selected now and then.
    # Where it does it is 1 at most, as bounds may be far too wide.
    usual=3.0,
    least=30.0,  # the m below which levels may be off by several times
    # the error of a level: a part of what slopes may add to that of normal predictions
    not_normal=0.5,
    tail_of_costs=2.0,  # over that of exponential ones
    lost=0.55,  # tails of what is given back, over these (by simulation)
    # Of the law by which a clip lowers the level of rates: the usual power of costs, by how much
    # ranks must differ to tell another one, as logarithms, and the part of it that is given back.
    power_of_costs=1.5,
    power_doubt=0.3,
    given_back=0.5,
    largest_mean=4.0,  # of predictions, over what few targets exceed
    # Of a descent before Newton steps, over the mean: rows of rates that are far too high already,
    # as exponentials may be, take longer steps than others return from.
    largest_clip=16.0,
    shorter=0.85,  # steps of a coefficient whose gradient has turned, and grown
    # Of what Newton steps may spend, to tell by how much the mean prediction is off. It is off by
    # some hundredths, or where means are not exponentials by up to about `most_off`.
    level_share=0.1,
    least_level_share=0.03,  # the same with a covariance, which needs the budget more
    least_level_error=0.01,
    most_off=0.25,
    # Steps on slope and level are for an m of at most ``many_columns * d^2``, where noise may be
    # most of the slopes.
    many_columns=0.25,
    effects=0.2,  # the variance of the logarithms of means that is usual
)


# what differs with more features than are copied (benchmarks/wide_units.py)
WIDE_UNITS = {
    "regression": replace(
        LEARNED_UNITS["regression"], least=20.0, smallest_clip=1.0, prediction_noise=0.2,
        signal=0.04, median_share=0.25, norm_share=0.05, least_for_norms=5.0,
        center_share=0.1, least_for_center=400.0,
    ),
    "classification": replace(
        LEARNED_UNITS["classification"], smallest_clip=0.5, prediction_noise=0.2,
        signal=0.02, least_mean_share=0.03, center_share=0.1, least_for_center=400.0,
    ),
}  # fmt: skip


# Widths of learned boxes, in units of what was released. (benchmarks/utility.py --wider)
BOX_UNITS = rule_set(
    width=2.0,  # of a column, in units of E z^2 / E abs(z)
    row_bound=1.5,  # of centred rows in the second moments, in units of their median norm
    aim=20.0,  # the m sqrt(share) of a median
    doubt=2.0,  # what is added to a mean square, in units of its noise
    longest=4.0,  # by how much widths grow as the noise falls, at most
    clear=5.0,  # the m over n_features from which such units are the default
    times=1.4,  # and the m, over that from which those of a descent are
)


def target_width(problem: Problem, accuracy: float) -> float:
    """How far targets may be from their median, in spreads.

    Far ones make noise, and means are biased without them: the less so, the more is known. The
    accuracy is n mu / phi.
    """
    relative = accuracy / (150 * math.sqrt(problem.dimension))
    return 6.0 * max(1.0, relative) ** (1 / 3)


def unit_rules(problem: Problem) -> Any:
    """Those that suit the size of the problem."""
    return (WIDE_UNITS if problem.is_wide else LEARNED_UNITS)[problem.loss.task]


# Steps of a descent in learned units, and Welsch's loss there, in spreads of the targets.
UNIT_DESCENT = rule_set(
    plain=rule_set(fewest_steps=30, most_steps=100, affordable=4e8),
    whitened=rule_set(fewest_steps=12, most_steps=16, affordable=2e8),
    # of several classes, of which rare ones are flat, from this times K d^1.5 on
    of_classes=rule_set(fewest_steps=12, most_steps=64, affordable=4e7),
    clear=200.0,
    # of a descent that later steps on all coefficients start from
    start=rule_set(fewest_steps=8, most_steps=16, affordable=1e7),
    momentum_steps=6.0,  # 1 / (1 - momentum) is at most the number of steps over this
    width=1.5,  # of Welsch's loss
    widening=32.0,  # times that in the first step, falling to 1 by the middle of the steps
    # Of users, those whose gradients are scaled down, at most half: this over m, times the root of
    # the number of coefficients. And shares of the budget for the norm that they exceed, and for
    # the number of users with a row that is not empty.
    hidden=10.0,
    user_share=0.03,
    present_share=0.005,
    many_columns=30.0,  # of which one that is noise says less about the others
    # The power of that part of the curvature which clipped derivatives leave at the start, from
    # twice the m on: more of it would take what is little above the noise.
    less_curved=0.5,
    less_curved_from=20.0,
    # Of slopes of labels: noise over energy to this power is taken away, of which 1 is the factor
    # of James and Stein; and this part of the noise, which is not known exactly, is added to the
    # energy.
    noise_power=1.5,
    unsure=0.1,
    least_part=0.1,  # of slopes that is kept in any case
    # Of several classes, what slopes are to be multiplied by is guessed before gradients tell it.
    guess=0.3,  # standard deviation of this guess, where noise is a small part of the slopes
    clear_groups=0.2,  # the part of noise from which on it is as large as the guess
    # error of the gradients that are expected, over their change from slopes of 0 to right ones
    not_normal=0.15,
    explained=0.7,  # part of what the sample explains by chance that is taken off
    # Doubtful coefficients are 0 where their squares are below `sure` times their noise, and shrunk
    # above. Along doubtful directions it is `sure_along`, and less where their noise is below this
    # part of the energy of all others.
    sure=6.0,
    sure_along=4.0,
    usual=0.3,
)


# The steps with a wide clip after such a descent, and shares of what is left for it.
# The m from which they pay: on all coefficients of a regression ``whole * d^1.5 sqrt(K)``, if
# also `least_of_whole`; on slope and intercept `least`, or `least_of_many` where m is at most
# ``many_columns * d^2``; of two classes `least_of_two`, of more, which have a slope together and
# an intercept each, ``least_of_classes sqrt(K - 1)``.
# Derivatives of classes are bounded: slope and intercepts are all that a small clip biases much.
CORRECTION = rule_set(
    whole=10.0,
    least_of_whole=200.0,
    # times m over the least for these steps, at most `most_share`
    whole_share=0.35,
    most_share=0.7,
    whole_steps=5,
    least=300.0,
    least_of_many=50.0,
    many_columns=0.03125,
    least_of_two=60.0,
    least_of_classes=100.0,
    line_share=0.1,
    # of labels ``(labels_aim / m)^2`` where that is more, at most `labels_share`
    labels_share=0.2,
    labels_aim=450.0,
    line_steps=20,
    # Sum of these steps: `reach` over the noise of one release, within limits, of which the last is
    # for up to three classes, and grows as their number does.
    reach=0.5,
    shortest=32.0,
    longest=80.0,
    momentum=0.5,
    # Deviations of its noise by which a number of two gradients in turn must be off 0 for its sign
    # to be known: if it stays, steps double, else they halve.
    sign=2.5,
    tail_share=0.02,  # of the whole budget, for the clip
    # That of targets that are mostly one number: so many median deviations of them, as far as the
    # deviation of predictions by noise is then at most this part of one.
    widest=8.0,
    wide_noise=0.03,
    clear=5.0,  # of the noise of that selection, of users
    rarer=0.4,  # of users with a label of the rarer class, whose gradients are clipped
    size_share=0.02,  # at most, for the size of the predictions, which aims at m = 160
    aim=160.0,
    prior=1.0,  # standard deviation of the changes of slope and intercept
    slope_prior=0.5,  # and of what slopes are multiplied by
    prior_of_two=0.75,  # of the slope of two classes, where frequencies tell the level
    most_lost=0.7,  # of labels' slopes that are clear of noise, by that of these steps
    prior_of_classes=0.3,  # of several classes' intercepts
    # where frequencies tell levels of probabilities, in the place of a prior for intercepts: levels
    # are as wrong as if the spread of the predictions were so many times as large
    law_doubt=1.25,
    start_above=0.75,  # log-odds by which Newton steps begin nearer the constant than such levels
    steepest=3.0,  # of the slopes, where most predictions are alike
    # The unit of predictions on the line grows up to so many log-odds where few of them are far
    # from all others, the less the smaller the part of slopes that is clear, by a power of it. Of
    # two classes it is never longer, of more no longer than `largest_of_classes`; but where there
    # are fewer than `records` for a column, and by the root of m over `unit_from`, as longer ones
    # bias less where no slopes suit all.
    largest_unit=1.5,
    largest_of_classes=3.0,
    unit_from=1e4,
    records=100.0,
    sure=8.0,
    # Below `least`, but from this m and 6 d on, levels of a regression that are off the released
    # means of its targets, by so many variances, go back to these. Their share of the whole budget
    # is then up to `level_share`, and from `least_for_spread` on that of the spreads is, too.
    least_for_level=60.0,
    least_for_spread=130.0,
    level_share=0.05,
    level_doubt=3.0,
    # Variance of a level of labels above which steps may end anywhere, as the loss is flat there.
    known_level=0.05,
    # From this m and 1.5 d^1.5 on, they also go to means without a clip, off which they must be by
    # more; both means have at most this share, which aims at such an m sqrt(share).
    least_for_mean=100.0,
    mean_doubt=7.0,
    mean_share=0.1,
    mean_aim=300.0,
)


# Newton steps with a covariance; shares are of what is left after the units and the sizes.
# With k the number of coefficients of an output, of classes of all, and m the accuracy of a mean
# by all that is left.
INFERENCE = rule_set(
    size_share=0.015,  # of the whole budget, five times for all sizes with a covariance
    least=15.0,  # the m over k^1.5 from which second derivatives are not noise
    # Share of the second derivatives, by the task: ``hessian * k^1.5 / m`` within limits, so that
    # their noise falls as m grows; those of labels are small along strong effects. `last_share` is
    # for them and the last scores. Where it would be above 1, the most grows with its square.
    hessian={"regression": 12.0, "classification": 30.0, "rates": 10.0},
    hessian_least=0.06,
    hessian_most=0.3,
    hessian_scarce=0.5,  # and no further
    # What the share is multiplied by of rates whose second derivatives are released at several
    # points or are of users, who differ most; and the most of users.
    hessian_wanted=2.0,
    hessian_of_users=0.4,
    # The m over k^1.5 from which rates have a first step, as others do: a single step is far too
    # long for the rate of a small group that is unlike the others. With a smaller m, up to 10^4,
    # the noise of a first step would cost more.
    first_of_rates=100.0,
    first_share=0.08,
    first_most=0.24,  # of few coefficients of labels, the more the fewer
    moments_share=0.06,
    last_share=0.76,
    large=8.0,  # records that exceed a large size, in units of the selection's noise
    # Rows that count less: ``cut * k^1.5 / m`` of them, at most `cut_most`, or as many as those;
    # more would hide less, and move the coefficient where means are not linear.
    cut=3.0,
    cut_most=0.01,
    # Long rows count less until noise hides no more than this of the second derivatives along one
    # direction (found by simulation). It is less, down to `least_hidden` times that, if exposures
    # may differ by more than `wide_exposures`: second derivatives then differ more than rows do.
    hidden=0.4,
    least_hidden=0.5,
    wide_exposures=10.0,
    beyond=0.1,  # scores that exceed the clip, in units of what the noise of a mean hides
    # An eigenvalue is told from noise if it is so many deviations above the edge of those of noise
    # alone, which exceed that once in 700 times or less.
    clear=1.6,
    # Second derivatives of rates or labels that are clear by chance are too large, and errors told
    # too small: times this noise over one, to the third power, is added to the root of its inverse.
    unclear={"regression": 0.0, "classification": 2.7, "rates": 2.7},
    # Error of a last step of labels, over the square of its length, both in the norm of the second
    # derivatives (found by simulation).
    bend=0.75,
    rare_balance=0.2,  # 4 p (1 - p) of labels below which it is larger
    # Relative deviation of the variance of scores from the usual one. That of targets may grow
    # along a skewed column: with 1 its intervals miss nearly twice as often (by simulation).
    prior={"regression": 2.0, "classification": 1.0, "rates": 1.0},
    # The same for each further row of a user: what differs between users alone has a variance that
    # is larger by their number.
    prior_of_users=0.25,
    furthest=2.0,  # deviations of predictions by which steps' centre is off the mean of the rows
)

# Curvature that is counted where slopes are shrunk by the noise of averaged iterates, over that of
# rows as long as their bound whose derivatives are not clipped. More of the noise is left where the
# true one is smaller, and a factor too small costs more than one too large.
CURVED = 0.7

# ----------------------------------------------------------------------------- phased SGD

# Lengths of steps, clips and shares.
# A step's length is how far it moves the prediction for a row of the largest norm B at the
# slope c_0, ``learning_rate c_0 B^2``, where c_0 is the smallest default clip, so that it
# does not depend on the scales of the loss and the rows. N is the l2 norm of the noise that a
# run of total length 1 ends with.
PHASED_SGD = by_task(
    _TASKS,
    radius=(10.0, 100.0),
    length=(0.45, 4.5),  # of a step, times 1 / sqrt(n)
    reach=(1.5, 10.0),  # all steps together are at most reach / N, so that they stay in the set
    energy=(0.26, 0.72),  # and energy / N^2, so that coefficients shrink as the noise grows
    prediction_noise=(0.015, 0.075),  # of the last of several phases, for a row of the largest norm
    clip_growth=(0.03, 0.3),  # in learned units; small clips make the slopes of labels too steep
    smallest_clip=(0.35, 0.5),
    curved=0.2,  # learning_rate B^2 is at most this over the smoothness of the loss
    unit_step=2.0,  # in learned units, of curvature 1, times 1 / sqrt(n)
    target_unit=16.0,  # of the targets in learned units, in units of the clip
    kink=(40.0, 10.0),  # least beta of the envelope of a loss with a kink, times `target_unit`
    n_phases=3,
    ratio=3.0,  # of the steps of one phase and the next
    accurate=0.002,  # the noise N below which the clip grows
    averaged=0.25,  # share of a phase whose iterates are averaged
    affordable=1e8,  # stored numbers read by all passes
    most_passes=40,
    fewest_passes=3,  # one pass over disjoint phases is better than two passes
    # One pass: the slice of the first releases, if the noise of its mean target is at most
    # `first_noise`, and the shares of its budget (target, means, row factor).
    first_slice=1 / 16,
    first_noise=0.03,
    first_shares=((0.3, 0.6, 0.1), (0.3, 0.6, 0.1)),
)

# ----------------------------------------------------------------------------------- FTRL

# Steps, clips and the noise that is allowed in the coefficients.
FTRL = by_task(
    _TASKS,
    # l2 norm of the noise in the prediction for the longest row, of classes times the root of their
    # number (log-odds of 3 are a clear label), and after whitening, where fewer steps are enough
    reach=(1.0, 3.2),
    whitened_reach=(0.4, 3.2),
    kinked=(1.0, 8.0),  # how far the steps about a kink go together, at most, over the root of them
    noisy=(0.15, 0.6),  # relative noise of the mean gradient above which less than that is allowed
    clip=(0.3, 0.5),
    accurate=(0.002, 0.016),  # noise below which the clip grows to 1
    accurate_of_open=(0.008, 0.032),  # of an epoch, where no length is known
    radius=(3.0, 30.0),
    n_steps=256,  # of an epoch, at least
    most_steps=2048,  # and at most; more cost time and a little noise without any gain
    useful_batch=16,  # more steps than `n_steps` have at least as many records each
    prefix_noise=2.8,  # of the last of `n_steps` sums, in units of sensitivity / mu
    relative_noise=0.15,  # in many coordinates, above which the map "power" is better
    smallest_batch=4,  # the mean gradient of fewer records varies too much
    # Records for each selection of the units of the targets, in units of its noise, what is enough
    # to be of use, and the least and most part of a stream; the spread in bounds of which nothing
    # is known.
    target_records=40.0,
    target_records_of_open=20.0,  # where no length is known
    least_target_records=12.0,
    useful_target_records=100,  # of fewer, 90 % zeros tell nothing of the others
    least_targets=0.02,
    most_targets=0.08,
    # Too large spreads cost more than too small ones; but those of bounds that are about as wide as
    # the targets must not be the less likely by more than so few records tell.
    target_guess=2.0**-4,
    # The noise that the first release aims at: the standard deviation of the mean target, and the
    # l2 norm for the means of the features.
    target_noise=0.1,
    target_noise_of_open=0.05,  # where no length is known: first epochs correct little
    means_noise=0.5,
    least_first=0.02,  # part of the stream for the first release, at least
    most_first=0.3,  # and at most
    # Records for the second moments: the part of the stream, and what is aimed at. "Noise" is that
    # of the moments in units of their mean, if the columns fill half of their bounds.
    moment_noise=0.1,
    clear_moments=1.1,  # noise above which none are released
    clear_moments_of_open=0.5,
    least_moments=0.02,
    most_moments=0.1,
    moments_per_column=40,
    longest_moments=2**20,
    longest_start=2048,  # where the length of the stream is unknown
    widest=256,  # columns, whose moments take time and memory
    # Bound on whitened rows, in units of their root mean square, where the noise is small, and
    # the part of it where the noise is large.
    longest_rows=3.0,
    shortest_rows=0.3,
    accurate_rows=1.2e-4,
    whitened_curvature=8.0,  # bound on the second moments of large batches of them
    average_power=2.0,  # the average weighs the iterate after n records by about n^2
)

# ----------------------------------------------------------------------------- heavy tails

# Shares of the budget, clips and steps, in released units.
HEAVY_TAIL = by_task(
    _TASKS,
    radius=(20.0, 70.0),
    reach=(3.0, 20.0),  # of the noisy part of the step rule
    target_prior=(1.0, 0.5),  # standard deviation of the mean target, in units of its scale
    # A descent in learned units is the default from this m = n mu / phi on, and from this m over
    # the root of the number of columns.
    descent=(25.0, 20.0),
    descent_columns=2.0,
    reach_share=0.25,  # for how far features reach, and the target, at most
    target_reach_share=0.05,
    feature_share=0.3,  # for scales and centres of the features
    target_share=0.12,  # for scale and centre of the target
    target_share_alone=0.6,  # where only an intercept is learned
    intercept_share=0.1,
    row_norm_share=0.01,
    row_norm_octaves=8.0,  # guesses that are wrong by more than 2^8 count as wrong by 2^8
    largest_speedup=4.0,
    # Scale of the noise on a score above which no scales are released: one that is far off then has
    # more than e^-11 times the weight of the best (e^-5: without the target's scale there is no
    # prediction at all, so more noise is accepted there).
    guesswork=0.045,
    target_guesswork=0.1,
    too_noisy=0.5,  # noise above which nothing but the intercept is learned
    # Half of the squared deviations lie within a scale, so that a scaled column has a second
    # moment of about `second_moment` or more.
    second_moment=0.35,
    smoothness=0.75,  # top eigenvalue of the rows' second moments, per feature
    least_target_clip=2.0,
    bounded_clip=0.3,  # a bounded derivative has light tails, and needs no wide clip
    accurate=0.02,
    most_steps=400,
    fewest_steps=50,
    affordable=2e9,
    pure_steps=12,
    n_slices=10,
)
