"""Compiling ahead of the first fit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier

from ._checks import unwarned
from ._progress import check_verbose, progress_bar, silent
from .data.rows import Rows, SolverData
from .estimators.heavy_tail import HeavyTailDPClassifier, HeavyTailDPRegressor
from .estimators.lasso import DPLassoFW, DPLassoFWClassifier
from .estimators.mirror import DPMirrorClassifier, DPMirrorRegressor
from .estimators.phased import DPPhasedSGDClassifier, DPPhasedSGDRegressor
from .estimators.streaming import DPFTRLClassifier, DPFTRLRegressor
from .preprocessing.scaler import DPScaler
from .privacy.accountant import BudgetAccountant
from .randomness.stream import GroupedScores, stream_from_random_state
from .solvers.statistics import centred_sum, mean_octaves, turned_moment_sum

_KINDS: tuple[Any, ...] = DPMirrorRegressor, DPMirrorClassifier, DPLassoFW, DPLassoFWClassifier
_KINDS += DPPhasedSGDRegressor, DPPhasedSGDClassifier, DPFTRLRegressor, DPFTRLClassifier
_KINDS += HeavyTailDPRegressor, HeavyTailDPClassifier
# few columns, and so many that a default method is another one; shares of entries that are not 0
_SHAPES = ((300, 5, 0.8), (600, 2000, 0.01))
_LAYOUTS = (np.asarray, sparse.csr_array)


def compile_kernels(*, verbose: Any = 0) -> None:
    """Compile what the default fits of all estimators need, and keep it in numba's cache.

    Else it is done in the first fits on a machine, and takes some ten seconds in each, once for
    dense and for sparse X, and for float64 and float32. Other solvers, sets and losses that need
    more compile it when they first run. Where the installed package cannot be written to, numba
    keeps its cache in the folder that the environment variable NUMBA_CACHE_DIR names.

    Fits tiny tables that are made here; no accountant is charged.

    Parameters
    ----------
    verbose : int >= 0 or bool, default=0
        From 1 on, a bar on standard error counts the fits (needs tqdm). In any case the logger
        "sklearn_dpsco" tells of each kernel, at level INFO.

    Raises
    ------
    ValueError
        If `verbose` is neither a bool nor an integer >= 0.

    Examples
    --------
    >>> from sklearn_dpsco import compile_kernels
    >>> compile_kernels()  # doctest: +SKIP
    """
    check_verbose(verbose)
    fits = list(_fits())
    with progress_bar(verbose, len(fits), "fit", "compile_kernels") as bar:
        for model, X, y in fits:
            with unwarned(), silent():
                # an accountant of its own: that of an open block must not be charged
                model.set_params(accountant=BudgetAccountant(1e9), random_state=0).fit(X, y)
            bar.update(1)
    # a lone best score needs what few selections reach: of a few scores, and of a sparse table's
    scores, stream = np.zeros((10_000, 2)), stream_from_random_state(0)
    scores[0] = 1.0
    for column in (scores[:, 0].copy(), scores.astype(np.int64)[:, 0]):
        groups = GroupedScores(column, column, (-1.0,))
        for _ in range(300):
            groups.sample((1.0, 0.0), 0.01, stream)
    # sizes, centres and moments of the columns of a table with many rows
    data = SolverData(Rows(scores, True), scores[:, 0])
    mean_octaves(data, 2, 1, 4.0, True)
    centred_sum(data, np.zeros(2), np.ones(2))
    turned_moment_sum(data, np.zeros(2), np.ones(2))


def _fits() -> Iterator[tuple[Any, Any, Any]]:
    """Estimators, features and targets."""
    rng = np.random.default_rng(0)
    for n, d, share in _SHAPES:
        values = rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < share)
        for layout in _LAYOUTS:
            for dtype in (np.float64, np.float32):
                X = layout(values.astype(dtype))
                yield DPScaler(with_centering=False), X, None
                # bounds by which dense values are divided; sparse ones keep their type by these
                known: dict[str, Any] = {"bounds_X": (-2, 2), "bounds_y": (-1, 1)}
                if sparse.issparse(X):
                    known |= {"bounds_X": (-1, 1), "center_X": 0.0}
                for kind, n_classes in itertools.product(_KINDS, (2, 3)):
                    model = kind()
                    known["classes"] = list(range(n_classes))
                    own = known.keys() & model.get_params().keys()
                    model.set_params(**{name: known[name] for name in own})
                    y: Any = values[:, 0] if n_classes == 2 else values[:, :3]
                    yield model, X, np.arange(n) % n_classes if is_classifier(model) else y
