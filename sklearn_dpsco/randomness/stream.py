r"""Random streams, a cipher in counter mode with a new key for every fit; and exact samplers.

``random_state=None`` takes the key from the operating system; an int or a ``RandomState`` makes the
stream reproducible, and therefore *not private*: who knows the seed can subtract the noise. Both
run the same code after the key is chosen, so tests with a seed test what users run.

The outputs of exact samplers have exactly the claimed law, not one that is close to it. Every
decision is taken on the leading bits of real random numbers. Where a kernel finds that those do not
decide (once in about :math:`2^{39}` comparisons with a probability), the attempt is repeated here
in rational arithmetic with as many further bits as needed (doc/privacy, section 2.5).
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import count, takewhile
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
from scipy.special import ndtri

from .._checks import shown
from .._types import AnyArray, Array, Flags, Indices, Integers, Words

_KEY_BYTES = 32
_forks: list[None] = []  # one for each fork between the first process and this one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=partial(_forks.append, None))


def current_process() -> tuple[int, int]:
    """Differs from that of every parent process; a process id alone may be used again."""
    return os.getpid(), len(_forks)


def _secret_key() -> bytes:
    return os.urandom(_KEY_BYTES)


_SHUFFLED_WORDS = 2**16
_MIN_WORDS = 1024  # for fewer words, the 5 us that a call of the cipher takes would dominate


class RandomStream:
    """Words of a block cipher (AES-256 in counter mode) and the laws drawn from them.

    `is_secure` says that the key came from the operating system. A stream cannot be pickled or
    copied, since two holders of one key would draw the same noise. After a fork a secure stream
    takes a new key in the child process.
    """

    def __init__(self, key: bytes, *, is_secure: bool) -> None:
        self.is_secure, self._key = is_secure, key
        self._process = current_process()
        self._encryptor: Any = None  # made when it is read: many streams only have substreams
        self._buffer: Words = np.empty(0, dtype=np.uint64)
        self._next = 0  # position in the buffer

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a RandomStream holds a secret key and cannot be copied or pickled")

    def substream(self, *names: str | int) -> RandomStream:
        """Independent stream for one purpose, for example ``substream("class", 2)``."""
        self._check_process()
        key = hashlib.blake2b(repr(names).encode(), key=self._key, digest_size=_KEY_BYTES).digest()
        return RandomStream(key, is_secure=self.is_secure)

    def _check_process(self) -> None:
        if self.is_secure and current_process() != self._process:
            RandomStream.__init__(self, _secret_key(), is_secure=True)

    def words(self, size: int) -> Words:
        """Uniform 64-bit words, shape (size,)."""
        self._check_process()
        n_new = size - (self._buffer.size - self._next)
        if n_new > 0:
            if self._encryptor is None:
                from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

                cipher = Cipher(algorithms.AES(self._key), modes.CTR(bytes(16)))
                self._encryptor = cipher.encryptor()
            text = self._encryptor.update(bytes(8 * max(n_new, _MIN_WORDS)))
            fresh = np.frombuffer(text, dtype=np.uint64)
            self._buffer, self._next = np.concatenate((self._buffer[self._next :], fresh)), 0
        self._next += size
        return self._buffer[self._next - size : self._next]

    def unread(self, size: int) -> None:
        """Put back the last `size` words of the last call of `words`, to be read again."""
        self._next -= size

    def integer(self, high: int) -> int:
        """An integer below `high`, exactly uniform."""
        while True:
            product = int(self.words(1)[0]) * high
            if product & (2**64 - 1) >= 2**64 % high:
                return product >> 64

    def permutation(self, size: int) -> Indices:
        """A uniform permutation of range(size)."""
        from .._kernels.sampling import shuffle

        order, left = np.arange(size), size
        while left > 1:
            left = shuffle(self.words(min(left, _SHUFFLED_WORDS)), order, left)
        return order

    def uniform(self, size: int) -> Array:
        """Multiples of 2^-52 plus 2^-53, exact and hence strictly inside (0, 1)."""
        high_bits = (self.words(size) >> np.uint64(12)).astype(np.float64)
        return (high_bits + 0.5) * 2.0**-52

    def normal(self, size: int) -> Array:
        """Standard normal draws by inversion."""
        return np.asarray(ndtri(self.uniform(size)))

    def exponential(self, size: int) -> Array:
        """Standard exponential draws."""
        return -np.log(self.uniform(size))

    def gumbel(self, size: int) -> Array:
        """Standard Gumbel draws (location 0, scale 1)."""
        return -np.log(self.exponential(size))

    def laplace(self, size: int) -> Array:
        """Standard Laplace draws (density exp(-|x|) / 2)."""
        return self.exponential(size) - self.exponential(size)


def stream_from_random_state(random_state: Any) -> RandomStream:
    """Stream for one fit; `ValueError` unless it is None, a non-negative int or a RandomState."""
    check_random_state(random_state)
    if random_state is None:
        return RandomStream(_secret_key(), is_secure=True)
    if isinstance(random_state, np.random.RandomState):
        return RandomStream(random_state.bytes(_KEY_BYTES), is_secure=False)
    key = hashlib.sha256(b"random_state:%d" % int(random_state)).digest()
    return RandomStream(key, is_secure=False)


def check_random_state(random_state: Any) -> None:
    """Raise `ValueError` unless it is None, a non-negative int or a RandomState."""
    is_int = isinstance(random_state, Integral) and not isinstance(random_state, bool)
    is_seed = is_int and random_state >= 0
    if not (is_seed or random_state is None or isinstance(random_state, np.random.RandomState)):
        raise ValueError(
            "random_state must be None, an int >= 0 or a numpy.random.RandomState, "
            f"got {shown(random_state)}"
        )


# ------------------------------------------------------------ exact samplers

Bounds = tuple[Fraction, Fraction]
Law = tuple[Array, float, float]  # scores, their maximum and the scale

_TABLE_BITS = 63  # one bit of the first word is the sign
UNIFORM_ATTEMPTS = 512  # with uniform proposals, before the scores are sorted into groups
_ATTEMPTS = 64  # of either kind, whose words are drawn together
_FLIPS = 64
_GROUP_BITS = 10
_NEAR = 7.0  # above 10 ln 2: scores further below the top have weights below 2^-10
_FIRST_DIGITS = 40
_LARGEST_EXPONENT = 10_000  # exp(-10000): in practice no uniform is below it
_HUGE = 2.0**960  # differences of scores may overflow where the top is above this


def _in_range(scores: Array, scale: float) -> Law:
    """The law of a selection, such that no difference of scores overflows."""
    top = float(scores.max())
    if top < _HUGE:
        return scores, top, scale
    # exact but for subnormal numbers, whose rounding is nothing beside a top this large
    return scores / 4, top / 4, max(scale / 4, 2.0**-1074)


def refuse() -> NoReturn:
    """Stop where a bound does not hold, and another law would be drawn from than is claimed."""
    raise RuntimeError(
        "internal error: a score of a selection was above its bound, so that the claimed law could "
        "not be drawn from, and nothing is released; please report this as a privacy bug"
    )


@dataclass
class _LazyUniform:
    """A uniform real in [0, 1), of which some leading bits are known."""

    leading: int
    bits: int

    def extend(self, stream: RandomStream) -> None:
        self.leading = (self.leading << 64) + int(stream.words(1)[0])
        self.bits += 64

    @property
    def interval(self) -> Bounds:
        unit = Fraction(1, 1 << self.bits)
        return self.leading * unit, (self.leading + 1) * unit


def _exp_minus(t: Fraction, digits: int) -> Bounds:
    """Bounds on exp(-t), t >= 0."""
    if t > _LARGEST_EXPONENT:  # 0 is a lower bound; a fraction that small would be slow
        return Fraction(0), _exp_minus(Fraction(_LARGEST_EXPONENT), digits)[1]
    # the division and the exponential are correctly rounded in `digits` digits; the
    # relative error of the result is below (t + 2) 10^(1 - digits)
    context = Context(prec=digits, Emin=-(10**9), Emax=10**9)
    ratio = context.divide(Decimal(t.numerator), Decimal(t.denominator))
    value = Fraction(context.exp(context.minus(ratio)))
    slack = (t + 2) * Fraction(10) ** (1 - digits)
    return value * (1 - slack), value * (1 + slack)


def _is_below(
    bounds: Callable[[int], Bounds], stream: RandomStream, uniform: _LazyUniform, *others: Any
) -> bool:
    """Whether the uniform is below a number, given ever closer bounds by `bounds(digits)`."""
    digits = _FIRST_DIGITS
    while True:
        low, high = uniform.interval
        least, most = bounds(digits)
        if high <= least:
            return True
        if low >= most:
            return False
        for one in (uniform, *others):
            one.extend(stream)
        digits += 20


# ------------------------------------------------------------------------ additive noise


def _normal_cumulative(k: int, digits: int) -> Bounds:
    """Sum of exp(-j^2 / 2) over j <= k, over the sum for all j."""
    n_terms = max(k + 2, math.isqrt(6 * digits - 1) + 1)  # up to the root of 6 digits, or more
    terms = [_exp_minus(Fraction(j * j, 2), digits) for j in range(n_terms)]
    head_low, head_high = (sum(side, Fraction(0)) for side in zip(*terms[: k + 1], strict=True))
    tail_low, tail_high = (sum(side, Fraction(0)) for side in zip(*terms[k + 1 :], strict=True))
    tail_high += terms[-1][1]  # each term beyond is less than half of the one before
    return head_low / (head_low + tail_high), head_high / (head_high + tail_low)


def _laplace_cumulative(k: int, digits: int) -> Bounds:
    """1 - exp(-(k + 1)): the density of Laplace is exp(-|z|) / 2."""
    low, high = _exp_minus(Fraction(k + 1), digits)
    return 1 - high, 1 - low


# by whether it is the normal one: the law of k, and minus the logarithm of the density at k + x
# relative to that at k
_LAWS: dict[bool, tuple[Callable[[int, int], Bounds], Callable[[int, Fraction], Fraction]]] = {
    True: (_normal_cumulative, lambda k, x: x * (2 * k + x) / 2),
    False: (_laplace_cumulative, lambda _, x: x),
}


@lru_cache(maxsize=2)
def _table(is_normal: bool) -> Words:
    """Cumulative probabilities of k, times 2^63, rounded down; ends before 1."""
    cumulative, whole = _LAWS[is_normal][0], 1 << _TABLE_BITS
    values = (int(cumulative(k, 2 * _FIRST_DIGITS)[0] * whole) for k in count())
    below = takewhile(lambda value: value + 4 < whole, values)
    return np.array(list(below), dtype=np.uint64)


def _exact_attempt(
    words: list[int], is_normal: bool, steps: int, stream: RandomStream
) -> int | None:
    """One attempt of `floor_draws` with as many further bits as needed; None: rejected."""
    cumulative, exponent = _LAWS[is_normal]
    choice = _LazyUniform(words[0] >> 1, _TABLE_BITS)
    x, coin = _LazyUniform(words[1], 64), _LazyUniform(words[2], 64)
    k = next(k for k in count() if _is_below(partial(cumulative, k), stream, choice))

    def acceptance(digits: int) -> Bounds:
        low, high = x.interval
        return _exp_minus(exponent(k, high), digits)[0], _exp_minus(exponent(k, low), digits)[1]

    if not _is_below(acceptance, stream, coin, x):
        return None
    while True:
        low, high = (k + end for end in x.interval)
        size = int(steps * low)
        if steps * high <= size + 1:
            return -size - 1 if words[0] & 1 else size
        x.extend(stream)


def floor_draws(is_normal: bool, steps: int, size: int, stream: RandomStream) -> Integers:
    """floor(steps * Z), steps in [1, 2^55], for independent standard normal or Laplace reals Z."""
    from .._kernels import sampling

    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        # about 1.4 attempts (normal) or 1.6 (Laplace) of three words each
        words = stream.words(3 * min(2**15, 4 + (3 * (size - done)) // 2))
        filled, used, is_certain = sampling.floor_draws(
            words, _table(is_normal), is_normal, np.uint64(steps), out[done:]
        )
        done += filled
        stream.unread(words.size - used - 3 * (not is_certain))
        if not is_certain:
            draw = _exact_attempt(words[used : used + 3].tolist(), is_normal, steps, stream)
            if draw is not None:
                out[done] = draw
                done += 1
    return out


# ---------------------------------------------------------------------------- selections


def _exact_coin(
    word: int, top: float, score: float, scale: float, factor: Any, stream: RandomStream
) -> bool:
    """Whether the uniform that begins with `word` is below factor * exp(-(top - score) / scale)."""
    if not top >= score:
        refuse()
    t = (Fraction(top) - Fraction(score)) / Fraction(scale)

    def bounds(digits: int) -> Bounds:
        low, high = _exp_minus(t, digits)
        if factor * low > 1:
            refuse()
        return factor * low, factor * high

    return _is_below(bounds, stream, _LazyUniform(word, 64))


def _attempts(
    size: int, law: Law, rejected: Integers, n_rejected: int, stream: RandomStream
) -> tuple[int, int, int]:
    """The index that up to `size` uniform proposals end with, or -1; words used; rejected ones."""
    from .._kernels.sampling import UNCERTAIN, propose_uniformly

    words, (scores, top, scale) = stream.words(2 * size), law
    index, used, n_rejected = propose_uniformly(words, *law, rejected, n_rejected)
    if index != UNCERTAIN:
        stream.unread(words.size - used)
        return int(index), used, n_rejected
    stream.unread(words.size - used - 2)
    index = _proposed(words[used], scores.size)
    if _exact_coin(int(words[used + 1]), top, scores[index], scale, 1, stream):
        return index, used, n_rejected
    rejected[n_rejected : n_rejected + 1] = index  # where they are kept
    return -1, used, n_rejected + 1


def sample_softmax(scores: Array, scale: float, stream: RandomStream) -> int:
    """An index with probability exactly proportional to exp(scores / scale).

    Rejection from uniform proposals; where few scores are near the top, from those of
    `GroupedScores`. The scores are finite, and taken as real numbers without error.
    """
    scores, _, scale = law = _in_range(scores, scale)
    left, size, keep_none = UNIFORM_ATTEMPTS, 16, np.empty(0, dtype=np.int64)
    while left > 0:
        index, used, _ = _attempts(size, law, keep_none, 0, stream)
        if index >= 0:
            return index
        left, size = left - used // 2, _ATTEMPTS
    return GroupedScores(scores, scores, (-1.0,)).sample((1.0, 0.0), scale, stream)


class GroupedScores:
    """Scores :math:`-v (a l_j + b r_j)` of k places j and some values v, sampled in groups.

    Groups of 2^`bits` consecutive places have `bounds`, of shape (n_groups, 4): the smallest and
    largest l and r. They are proposed by integer weights that bound all scores of a group, in time
    proportional to their number (doc/privacy, section 2.5). Whoever changes l or r keeps the bounds
    valid: they may be wider than needed where `is_loose` says so. A sample that meets a score above
    its bound is refused, and `check` looks at all.

    `left` and `right` are l and r, of shape (k,), float64 or int64, and not copied.
    """

    def __init__(self, left: AnyArray, right: AnyArray, values: tuple[float, ...]) -> None:
        self.left, self.right, self.values = left, right, np.array(values)
        # the weights of all groups take as long as the attempts
        self.bits = max(0, round(math.log2(left.size / 10) / 2))
        n_groups = -(-left.size >> self.bits)
        self.bounds = np.empty((n_groups, 4), dtype=left.dtype)
        self.is_loose = np.zeros(n_groups, dtype=bool)
        self._tops = np.empty(n_groups)
        self._cumulative = np.empty(n_groups, dtype=np.int64)
        self.tighten()

    def tighten(self) -> None:
        """Make all bounds as tight as they can be."""
        from .._kernels.sampling import bound_groups

        bound_groups(self.left, self.right, self.bits, self.bounds)
        self.is_loose[:] = False

    def check(self) -> None:
        """Refuse unless all bounds hold."""
        from .._kernels.sampling import bound_groups

        tight = np.empty_like(self.bounds)
        bound_groups(self.left, self.right, self.bits, tight)
        low, high = tight[:, ::2] < self.bounds[:, ::2], tight[:, 1::2] > self.bounds[:, 1::2]
        if np.any(low | high):
            refuse()

    def shift(self) -> None:
        """Make l what r is, with its bounds, once those of l were looked at a last time."""
        self.check()
        self.left[:] = self.right
        self.bounds[:, :2] = self.bounds[:, 2:]

    def sample(self, form: tuple[float, float], scale: float, stream: RandomStream) -> int:
        """``m k + j`` for place j and value m, with probability proportional to exp(S / scale).

        `form` is a and b, at least 0.
        """
        from .._kernels import sampling

        scores = self.left, self.right, self.bits, *form, self.values, scale
        sampling.top_groups(self.bounds, *form, self.values, self._tops)
        reference, attempts, is_sharp = self._weigh(scale), 0, False
        patience = 4 * self.values.size << self.bits
        while True:
            if attempts >= patience and not is_sharp:
                if not sampling.sharpen_groups(scores, self.bounds, self.is_loose, self._tops):
                    refuse()
                reference, is_sharp = self._weigh(scale), True
            words = stream.words(3 * max(_ATTEMPTS, attempts))
            number, used = sampling.propose_in_groups(words, scores, reference, self._cumulative)
            is_open = number == sampling.UNCERTAIN  # an attempt that more bits decide on
            attempts += used // 3 + is_open
            stream.unread(words.size - used - 3 * is_open)
            if is_open:
                number, score, factor = self._proposed(words[used], words[used + 1], form)
                word = int(words[used + 2])
                if not _exact_coin(word, reference, score, scale, factor, stream):
                    number = -1
            if number >= 0:
                return int(number)

    def _weigh(self, scale: float) -> float:
        from .._kernels.sampling import weigh_groups

        reference = float(weigh_groups(self._tops, scale, self._cumulative))
        return reference if math.isfinite(reference) else refuse()

    def _proposed(
        self, place: Any, within: Any, form: tuple[float, float]
    ) -> tuple[int, float, Fraction]:
        """What `propose_in_groups` proposes, its score, and 2^20 over its group's weight."""
        number = _proposed(place, int(self._cumulative[-1]))
        group = int(np.searchsorted(self._cumulative, number, "right"))
        k, position = divmod(_proposed(within, self.values.size << self.bits), 1 << self.bits)
        j, weight = (group << self.bits) + position, np.diff(self._cumulative, prepend=0)[group]
        direction = form[0] * float(self.left[j]) + form[1] * float(self.right[j])
        score = -float(self.values[k]) * direction
        return k * self.left.size + j, score, Fraction(1 << 20, int(weight))


def _proposed(word: Any, size: int) -> int:
    return (int(word) * size) >> 64


def permute_and_flip(scores: Array, scale: float, stream: RandomStream) -> int:
    """An index by permute-and-flip: visit in random order, accept with exp(-(top - s) / scale).

    After 64 rejections the rest is done at once: every index that is left is kept with its
    probability, and one of those is drawn uniformly. The scores are taken as real numbers.
    """
    scores, top, scale = law = _in_range(scores, scale)
    rejected, n_rejected = np.empty(_FLIPS, dtype=np.int64), 0
    while n_rejected < _FLIPS:
        index, _, n_rejected = _attempts(_ATTEMPTS, law, rejected, n_rejected, stream)
        if index >= 0:
            return index
    # one coin for each that is near the top, and for the others one after they were thinned
    is_out = top - scores < _NEAR * scale
    near = np.flatnonzero(is_out)
    is_out[rejected] = True
    near = near[~np.isin(near, rejected)]
    far = _thinned(scores.size, stream)
    far = far[~is_out[far]]
    near = near[_coins(scores[near], top, scale, 1, stream)]
    far = far[_coins(scores[far], top, scale, 1 << _GROUP_BITS, stream)]
    survivors = np.concatenate((near, far))
    return int(survivors[stream.integer(survivors.size)])


def _thinned(size: int, stream: RandomStream) -> Integers:
    """Each index below `size`, kept with probability 2^-10: their number, then a subset."""
    from .._kernels.sampling import distinct_indices

    number = size
    for _ in range(_GROUP_BITS):
        words = stream.words(-(-number // 64)).astype("<u8")
        bits = int.from_bytes(words.tobytes(), "little") & ((1 << number) - 1)
        number = bits.bit_count()
    out, found = np.empty(number, dtype=np.int64), 0
    is_taken = np.zeros(size, dtype=bool)
    while found < number:
        found = distinct_indices(stream.words(number + 8), is_taken, out, found)
    return out


def _coins(scores: Array, top: float, scale: float, factor: int, stream: RandomStream) -> Flags:
    """Independent coins with probabilities factor * exp(-(top - score) / scale)."""
    from .._kernels.sampling import flip_coins

    out, start = np.zeros(scores.size, dtype=bool), 0
    words = stream.words(scores.size)
    while (start := flip_coins(words, scores, top, scale, float(factor), start, out)) < out.size:
        out[start] = _exact_coin(int(words[start]), top, scores[start], scale, factor, stream)
        start += 1
    return out
