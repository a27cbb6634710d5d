"""Random streams: a cipher in counter mode, with a new key for every fit.

``random_state=None`` takes the key from the operating system; an int or a ``RandomState`` makes the
stream reproducible, and therefore *not private*: who knows the seed can subtract the noise. Both
run the same code after the key is chosen, so tests with a seed test what users run.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import ndtri

from .._checks import shown
from .._types import Array, Indices, Words

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


def _encryptor(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


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
        label = repr(names).encode()
        key = hashlib.blake2b(label, key=self._key, digest_size=_KEY_BYTES).digest()
        return RandomStream(key, is_secure=self.is_secure)

    def _check_process(self) -> None:
        if self.is_secure and current_process() != self._process:
            RandomStream.__init__(self, _secret_key(), is_secure=True)

    def words(self, size: int) -> Words:
        """Uniform 64-bit words, shape (size,)."""
        self._check_process()
        n_new = size - (self._buffer.size - self._next)
        if n_new > 0:
            self._encryptor = self._encryptor or _encryptor(self._key)
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
    if is_int and random_state >= 0:
        return
    if random_state is not None and not isinstance(random_state, np.random.RandomState):
        raise ValueError(
            "random_state must be None, an int >= 0 or a numpy.random.RandomState, "
            f"got {shown(random_state)}"
        )
