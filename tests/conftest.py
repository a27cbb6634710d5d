"""Settings for the whole suite.

Every random stream in the suite is seeded, the keys of secret noise by the name of the test
(but for those of other processes), so each test gives the same verdict in every run: there are no
false alarms to budget for. The levels quoted in the tests (1e-6 for a law, 1e-4 for an audit) only
say how surprising a value must be to count as wrong.
"""

import hashlib
import itertools
import os

import pytest

# the suite runs in several processes; BLAS threads on top of that only get in the way
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    # not in pyproject.toml, where pytest would import the package before coverage starts
    config.addinivalue_line(
        "filterwarnings", "error::sklearn_dpsco.exceptions.PrivacyParameterWarning"
    )


@pytest.fixture(autouse=True)
def _keys_of_secret_noise(request, monkeypatch):
    from sklearn_dpsco.randomness import stream

    numbers, parent = itertools.count(), os.getpid()

    def key():
        child = os.getpid() if os.getpid() != parent else 0  # never the key of its parent
        return hashlib.sha256(f"{request.node.nodeid} {next(numbers)} {child}".encode()).digest()

    monkeypatch.setattr(stream, "_secret_key", key)
