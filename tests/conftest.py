"""Settings for the whole suite.

Every random stream in the suite is seeded, the keys of secret noise by the name of the test
(but for those of other processes), so each test gives the same verdict in every run: there are no
false alarms to budget for. The levels quoted in the tests (1e-6 for a law, 1e-4 for an audit) only
say how surprising a value must be to count as wrong.
"""

import gc
import hashlib
import itertools
import os
import time

import pytest

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# the suite runs in several processes; BLAS threads on top of that only get in the way
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    if getattr(config.option, "dist", None) == "load":
        # neighbours together: what is made once for a module, such as a cluster, is made once
        config.option.dist = "worksteal"
    gc.disable()  # until all tests are collected, which stay: nothing of them is garbage
    # not in pyproject.toml, where pytest would import the package before coverage starts, and not
    # in the process that hands tests to workers, which needs no package
    if getattr(config.option, "dist", "no") == "no":
        config.addinivalue_line(
            "filterwarnings", "error::sklearn_dpsco.exceptions.PrivacyParameterWarning"
        )
    # most tables here are small, many have users of more rows than count, and fits have seeds
    small = ("too small to learn from", "rows count for nothing")
    for told in (*small, "random_state was ", "epsilon=inf adds no noise", "all categories of"):
        config.addinivalue_line("filterwarnings", f"ignore:.*{told}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Every second worker begins at the last module: what one has compiled, another one loads."""
    report = yield
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if isinstance(collector, pytest.Directory) and int(worker[2:]) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: str(item.path))  # the same order in all workers


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(20_000, 20)  # most that tests make goes without a collection
    gc.enable()


@pytest.fixture(autouse=True)
def _keys_of_secret_noise(request, monkeypatch):
    from sklearn_dpsco.randomness import stream

    numbers, parent = itertools.count(), os.getpid()

    def key():
        child = os.getpid() if os.getpid() != parent else 0  # never the key of its parent
        return hashlib.sha256(f"{request.node.nodeid} {next(numbers)} {child}".encode()).digest()

    monkeypatch.setattr(stream, "_secret_key", key)


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_compiled_by_one_worker(tmp_path_factory):
    """A worker of pytest-xdist waits for the kernel that another one compiles, and loads it."""
    if fcntl is None or "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    from sklearn_dpsco._kernels.jit import _Cache

    folder, held = tmp_path_factory.getbasetemp().parent, {}  # the folder of all workers
    load, save = _Cache.load_overload, _Cache.save_overload

    def name(cache):
        kernel = f"{cache.cache_path} {cache._impl.filename_base}"
        return hashlib.sha256(kernel.encode()).hexdigest()

    def load_or_wait(self, *key):
        found = load(self, *key)
        if found is not None or name(self) in held:
            return found
        file, until = (folder / f"{name(self)}.lock").open("w"), time.monotonic() + 60
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:  # the other one has failed
                    file.close()
                    return None
                time.sleep(0.01)
        held[name(self)] = file
        found = load(self, *key)
        if found is not None:
            let_go(self)
        return found

    def save_and_let_go(self, *compiled):
        try:
            save(self, *compiled)
        finally:
            let_go(self)

    def let_go(cache):
        file = held.pop(name(cache), None)
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing would not do for children that were forked
            file.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Cache, "load_overload", load_or_wait)
        patch.setattr(_Cache, "save_overload", save_and_let_go)
        yield
