"""Running a plan on neighbours with the answers of its mechanisms frozen.

What the checks prove: doc/privacy, section 9.1.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .._checks import check_int
from .._types import Array, Indices, Words
from ..randomness.stream import RandomStream
from ..solvers.base import Plan, map_mechanisms
from .neighbours import Pair, changed_record, check_pairs, neighbours

Path = tuple[Any, ...]

_EXCESS = 1e-12  # relative float error of a replayed distance
_ROUNDS = 8  # of all pairs, with other streams, until every release was moved
_ENOUGH_DRAWS = 64  # all of them are equal with probability 2^-64 at most
# what mechanisms answer, for every other pair: see _Recorder
_ANSWERS = (("near", "large"), ("exact", "zero"))


@dataclass(frozen=True)
class SensitivityResult:
    """The changes by one record that a replay found.

    Attributes
    ----------
    ratios : dict of str to float
        For every mechanism, by the name of the plan's field: the largest distance between its
        values on two neighbours, over its sensitivity. Infinite if the number of releases or their
        shape depends on the data.
    violations : dict of str to str
        What is wrong, by the name of the mechanism, or "result", "groups", "sequence" or
        "streams". Empty if nothing was found.

    Examples
    --------
    >>> from sklearn_dpsco.audit import SensitivityResult
    >>> result = SensitivityResult({"step": 0.98, "first.target": 0.0}, {})
    >>> result.untested, result.passed  # no record moved the second one
    (('first.target',), False)
    """

    ratios: dict[str, float]
    violations: dict[str, str]

    @property
    def untested(self) -> tuple[str, ...]:
        """The mechanisms whose releases no record moved: of their sensitivity, nothing is known."""
        return tuple(name for name, ratio in self.ratios.items() if ratio == 0)

    @property
    def passed(self) -> bool:
        """Whether every release was moved by a record, and nothing is wrong."""
        return not self.violations and not self.untested


def mechanisms(plan: Any) -> dict[str, Any]:
    """The mechanisms of a plan by name, see `map_mechanisms`.

    Examples
    --------
    >>> from sklearn_dpsco import DPMirrorRegressor
    >>> from sklearn_dpsco.audit import mechanisms
    >>> plan = DPMirrorRegressor(bounds_X=(0, 1), bounds_y=(0, 1)).plan(n_samples=12, n_features=2)
    >>> all(mechanism.sensitivity > 0 for mechanism in mechanisms(plan).values())
    True
    """
    found: dict[str, Any] = {}
    map_mechanisms(plan, found.setdefault)
    return found


# ------------------------------------------------------------------- what stands for a plan's parts


_lists: Any = partial(defaultdict, list)


@dataclass
class Run:
    """A run on one of two tables, and what it did: by stream, by mechanism, or as a whole."""

    record: int
    kind: str
    rng: Any = None
    # those of mechanisms, and whether the record is in a batch: two runs share both, and the first
    # one makes them
    answers: dict[str, list[Any]] = field(default_factory=_lists)
    presences: dict[str, list[bool]] = field(default_factory=_lists)
    # the streams of each path that were read
    readers: dict[Path, set[TracedStream]] = field(default_factory=partial(defaultdict, set))
    # every release and every draw of a batch, and the path of the stream that it was given
    events: list[tuple[str, Path | None]] = field(default_factory=list)
    # what each mechanism was given
    values: dict[str, list[Array]] = field(default_factory=_lists)
    # for each release from a batch: whether the record is not in it
    absent: dict[str, list[bool]] = field(default_factory=_lists)
    # the batches as drawn, before the record is put in or left out
    draws: dict[str, list[Indices]] = field(default_factory=_lists)
    problems: dict[str, str] = field(default_factory=dict)  # what is wrong with this run alone
    # once it is over: all that the result tells; and how many words of each stream the solver
    # itself has read
    outcome: Any = None
    n_words: Any = None


class TracedStream(RandomStream):
    """The stream of a run, or a substream of it, known by its path of names.

    Two streams of one path give the same words, from the start on: a word is used twice exactly
    where two of them are read at all. What one with an `owner` reads counts as read by that.
    """

    def __init__(self, seed: int, run: Run, path: Path = (), owner: Any = None) -> None:
        key = hashlib.sha256(repr((seed, path)).encode()).digest()
        super().__init__(key, is_secure=False)
        self.seed, self.path, self.n_read = seed, path, 0
        self._run, self._owner = run, owner or self

    def substream(self, *names: str | int) -> TracedStream:
        return TracedStream(self.seed, self._run, (*self.path, names))

    def words(self, size: int) -> Words:
        if size > 0:
            self._run.readers[self.path].add(self._owner)
        self.n_read += size
        return super().words(size)

    def unread(self, size: int) -> None:
        self.n_read -= size
        super().unread(size)


@dataclass(eq=False)
class _Recorder:
    """Replaces a mechanism and its random batches: keeps what it gets, and answers alike.

    An answer to a vector is the mechanism's own ("own"), the first run's value plus noise of its
    size ("near"), every second one times 100 ("large"), the value itself ("exact") or zeros
    ("zero"); to scores, a random index, that of the largest ("exact") or 0 ("zero"). The
    mechanism's own release is always made, to see or to use up the random words that it reads.

    A batch is drawn, and then the record put in or left out, by a fair coin that both runs share:
    small batches would hardly ever hold it.
    """

    name: str
    mechanism: Any
    run: Run
    batch: Indices | None = None

    def __getattr__(self, name: str) -> Any:
        # other attributes that a solver reads, such as the scale, or the size of a batch
        owner = self.mechanism if hasattr(self.mechanism, name) else self.mechanism.batches
        return getattr(owner, name)

    @property
    def batches(self) -> _Recorder | None:
        return None if self.mechanism.batches is None else self

    def release(self, value: Any, stream: Any) -> Any:
        run, name, own = self.run, self.name, None
        value = np.array(value, dtype=np.float64)
        k, answers = len(run.values[name]), run.answers[name]
        run.values[name].append(value)
        run.events.append((name, getattr(stream, "path", None)))
        if run.kind == "own":
            own = self.mechanism.release(value.copy(), stream)
        elif isinstance(stream, TracedStream):
            # a selection may read more words on one table than on the other: the run must not
            stream = TracedStream(stream.seed, run, stream.path, stream)
            self.mechanism.release(value.copy(), stream)
            if stream.n_read <= 0:
                run.problems[name] = "is released without noise"
        else:
            run.problems[name] = "its noise does not come from the stream of the run"
        if self.mechanism.batches is not None:
            if self.batch is None:
                run.problems[name] = "is computed without a batch of its own"
            else:
                run.absent[name].append(run.record not in self.batch)
            self.batch = None
        if k == len(answers):
            answers.append(self._answer(value, k) if own is None else own)
        return np.copy(answers[k]) if isinstance(answers[k], np.ndarray) else answers[k]

    def _answer(self, value: Array, k: int) -> Any:
        kind, rng = self.run.kind, self.run.rng
        if self.mechanism.selects:
            drawn = int(rng.integers(value.size))
            return {"exact": int(np.argmax(value)), "zero": 0}.get(kind, drawn)
        if kind in ("exact", "zero"):
            return value * (kind == "exact")
        noise = rng.standard_normal(value.shape) * (np.abs(value).mean() + 0.1)
        return (value + noise) * (100 if kind == "large" and k % 2 else 1)

    def draw(self, stream: Any) -> Indices:
        run, name, batches = self.run, self.name, self.mechanism.batches
        record = run.record
        run.events.append((f"{name}: batch", getattr(stream, "path", None)))
        before = getattr(stream, "n_read", 0)
        batch = batches.draw(stream)
        is_whole = batches.batch_size == batches.n_samples
        if getattr(stream, "n_read", 0) <= before and not is_whole:
            run.problems[name] = "its batch is not drawn from the stream of the run"
        run.draws[name].append(batch)
        presences, k = run.presences[name], len(run.absent[name])
        while len(presences) <= k:
            presences.append(bool(run.rng.integers(2)))
        if presences[k] != (record in batch) and not is_whole:
            rest = batch[batch != record]
            if batches.law == "fixed":  # another record makes room, or takes the place
                others = np.setdiff1d(np.arange(batches.n_samples), np.append(batch, record))
                rest = batch[1:] if presences[k] else np.append(rest, others[:1])
            batch = np.sort(np.append(rest, record) if presences[k] else rest)
        self.batch = batch
        return batch


def check_sensitivity(
    plan: Plan, pairs: Iterable[Pair] | None = None, *, random_state: int = 0
) -> SensitivityResult:
    """Replay a plan on neighbours and compare every release with its sensitivity.

    ``plan.run`` runs on both tables of a pair, with mechanisms whose answers are the same for both:
    near the values, with every second vector 100 times too large, equal to the values without any
    noise, or zero. These must hold:

    * For each release, the `distance` of the two values, in the mechanism's own metric, does not
      exceed the sensitivity; with a true `is_joint` all releases of a run count as one.
    * All runs, on whatever data, make the same releases and draw the same batches, in the same
      order and from the same substreams: at least as many as the plan's guarantee counts, and no
      more than it counts depend on one record.
    * In Gaussian DP the selections of each mechanism come one after the other, with none of another
      range between them.
    * No word of randomness is used twice, and each release reads some. Each release from a random
      batch has a fresh one, and depends on the record only if it is in that batch.
    * No two groups of releases that claim disjoint records depend on the same one.
    * The two results are equal, since they may depend on the data through releases only.

    Of tables that tell users (see `neighbours`) a record is a user. The rows of one may move a
    release by as many sensitivities as the plan is for rows of a user: the ratios are over those.

    The record is put into every second batch. The pairs are replayed with up to 8 streams, until
    each release was moved at least once, or something is wrong; those that never were are
    `untested`.

    Parameters
    ----------
    plan : Plan
    pairs : iterable of (SolverData, SolverData) or None, default=None
        Neighbours under the relation of the plan. None takes those of `neighbours`, of users if the
        plan tells them apart (`Plan.clips_users`).
    random_state : int, default=0
        Decides the answers and the batches.

    Raises
    ------
    ValueError
        If a table has another shape than the plan, the tables of a pair do not differ in
        one record, or the guarantee counts a mechanism that no field of the plan holds.

    Examples
    --------
    >>> from sklearn_dpsco import DPMirrorRegressor
    >>> from sklearn_dpsco.audit import check_sensitivity
    >>> from sklearn_dpsco.solvers import NoisyMD
    >>> model = DPMirrorRegressor(bounds_X=(0, 1), bounds_y=(0, 1), solver=NoisyMD(max_iter=3))
    >>> result = check_sensitivity(model.plan(n_samples=12, n_features=2))
    >>> result.passed, max(result.ratios.values()) <= 1
    (True, True)
    """
    check_int("random_state", random_state, low=0)
    if pairs is None:
        rows = plan.budget.rows_per_user if plan.clips_users else 1
        facts = plan.problem, plan.budget.relation
        pairs = neighbours(*facts, random_state=random_state, rows_per_user=rows)
    pairs = list(pairs)
    check_pairs(plan, pairs)
    records = [changed_record(pair) for pair in pairs]
    findings, rng = _Findings(plan), np.random.default_rng(random_state)
    for attempt in range(_ROUNDS):
        for k, (pair, record) in enumerate(zip(pairs, records, strict=True)):
            for kind in _ANSWERS[(k + attempt) % 2]:
                seed, first = int(rng.integers(2**32)), Run(record, kind, rng)
                second = Run(record, kind, rng, first.answers, first.presences)
                for data, run in zip(pair, (first, second), strict=True):
                    replay(plan, data, run, TracedStream(seed, run))
                users = pair[0].rows.users
                findings.add(first, second, 1 if users is None else plan.budget.rows_per_user)
        result = findings.result()
        # a single pair takes two rounds, to get every kind of answer
        if (attempt or len(pairs) > 1) and (result.violations or not result.untested):
            break
    return result


def replay(plan: Plan, data: Any, run: Run, stream: RandomStream) -> None:
    """Carry a run out."""
    result = map_mechanisms(plan, lambda name, m: _Recorder(name, m, run)).run(data, stream)
    run.outcome = np.hstack(_told(astuple(result)))
    run.n_words = {path: sum(one.n_read for one in own) for path, own in run.readers.items()}


def _told(value: Any) -> list[Array]:
    """All numbers in a result: units, centres and numbers of rows as well, which models show."""
    if isinstance(value, tuple):
        return [number for part in value for number in _told(part)]
    if isinstance(value, str):
        value = list(value.encode())
    return [] if value is None else [np.ravel(value)]


class _Findings:
    def __init__(self, plan: Plan) -> None:
        self.found = mechanisms(plan)
        releases = plan.guarantee.releases
        if any(all(r.mechanism is not m for m in self.found.values()) for r in releases):
            raise ValueError(
                "the plan's guarantee counts a mechanism that is in no field of the plan"
            )
        of_each = {n: [r for r in releases if r.mechanism is m] for n, m in self.found.items()}
        self.claimed = {n: sum(r.count for r in own) for n, own in of_each.items()}
        self.groups = {n: r.group for n, own in of_each.items() for r in own if r.group is not None}
        self.ratios = dict.fromkeys(self.found, 0.0)
        # by mechanism: whether each batch is equal to the one before
        self.repeats: dict[str, list[bool]] = {name: [] for name in self.found}
        self.violations: dict[str, str] = {}
        self.events: list[Any] | None = None  # those of the first run
        is_gaussian = plan.guarantee.composition == "gdp"
        self.selecting = {n: m for n, m in self.found.items() if is_gaussian and m.selects}

    def result(self) -> SensitivityResult:
        violations = {}
        for name, ratio in self.ratios.items():
            if ratio == math.inf:
                violations[name] = "the number or the shape of the releases depends on the data"
            elif not ratio <= 1 + _EXCESS:
                violations[name] = f"a record changes it by {ratio:.3g} times its sensitivity"
        for name, repeats in self.repeats.items():
            if len(repeats) >= _ENOUGH_DRAWS and all(repeats) and name not in self.violations:
                violations[name] = "its batch is the same in every step"
        return SensitivityResult(dict(self.ratios), self.violations | violations)

    def add(self, first: Run, second: Run, rows: int) -> None:
        """Compare the runs on the two tables of a pair, which differ in so many rows of a user."""
        self._check_run(first)
        self._check_run(second)
        if first.n_words != second.n_words:
            self.violations["streams"] = "what a run reads from its streams depends on the data"
        if not np.array_equal(first.outcome, second.outcome, equal_nan=True):
            self.violations["result"] = "depends on the record beyond what was released"
        touched = set()
        for name, mechanism in self.found.items():
            values, others = first.values[name], second.values[name]
            if [v.shape for v in values] != [v.shape for v in others]:
                distances = [math.inf]
            else:
                if mechanism.is_joint and values:  # one sensitivity for the whole run
                    values, others = [np.concatenate(values)], [np.concatenate(others)]
                # in the metric that the sensitivity is stated in
                of_each = map(mechanism.distance, map(np.subtract, values, others))
                distances = [float(d) / mechanism.sensitivity / rows for d in of_each]
            self.ratios[name] = float(np.max([self.ratios[name], *distances]))
            count, claimed = np.count_nonzero(distances), self.claimed[name]
            if count > claimed:
                self.violations[name] = (
                    f"{count} releases depend on one record, the guarantee counts {claimed}"
                )
            absent = zip(distances, first.absent[name], strict=False)
            if any(d > 0 and is_absent for d, is_absent in absent):
                self.violations[name] = "depends on a record that is not in its batch"
            if count and name in self.groups:
                touched.add(self.groups[name])
            batches, draws = mechanism.batches, first.draws[name]
            if batches is not None and batches.batch_size < batches.n_samples:
                self.repeats[name] += map(np.array_equal, draws, draws[1:])
        # (the rows of a user may be in several groups, for which the plan is one of so many rows)
        if len(touched) > 1 and rows == 1:
            self.violations["groups"] = "releases on disjoint records depend on one record"

    def _check_run(self, run: Run) -> None:
        self.violations |= run.problems
        for path, readers in run.readers.items():
            if len(readers) > 1:  # both gave the same words, from the first on
                self.violations["streams"] = f"the words of substream {path} are used twice"
        if self.events is None:
            self.events = run.events
        # the Gaussian curve of k selections is above them if they are in one run
        selecting = [self.selecting[name] for name, _ in run.events if name in self.selecting]
        turns = [key for key, _ in itertools.groupby(map(id, selecting))]
        if len(turns) > len(set(turns)):
            self.violations["sequence"] = "selections of several ranges take turns in Gaussian DP"
        if run.events != self.events:
            self.violations["sequence"] = (
                "runs differ in their releases, the order of these or their substreams"
            )
        for name, claimed in self.claimed.items():
            if (n_releases := len(run.values[name])) < claimed:
                said = f"a run makes {n_releases} releases, the guarantee counts {claimed}"
                self.violations.setdefault(name, said)
