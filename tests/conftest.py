"""Settings for the whole suite.

Every random stream in the suite is seeded, so each test gives the same verdict in every
run: there are no false alarms to budget for. The levels quoted in the tests (1e-6 for a
law, 1e-4 for an audit) only say how surprising a value must be to count as wrong.
"""

import os

# the suite runs in several processes; BLAS threads on top of that only get in the way
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    # not in pyproject.toml, where pytest would import the package before coverage starts
    config.addinivalue_line(
        "filterwarnings", "error::sklearn_dpsco.exceptions.PrivacyParameterWarning"
    )
