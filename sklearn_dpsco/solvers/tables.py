r"""A user's loss as phased SGD takes it: derivatives in tables (section 5).

The guarantee of phased SGD needs derivatives that are non-decreasing in the prediction and no
steeper than some beta. Nobody can check that of a user's code, so it is made true: the
derivative of a record is asked for at a fixed grid of predictions about its target, what comes
back is made non-decreasing, and the steps take the piecewise linear function through these
values, its knots moved apart where it would be steeper than beta. Of a convex loss whose
smoothness is at most beta this is the derivative itself, up to the resolution of the grid, and of
one with a kink that of its Moreau envelope.
"""

from __future__ import annotations

import numpy as np

from .._types import Array
from ..losses import Loss, Multinomial, base_loss, clipped_derivative, kernel_id

# Distances of predictions from the target: 0.002 apart at the target itself, where the kink of most
# losses lies (that of a margin loss lies at z = y, too), and an eighth of the distance far from
# it. Beyond the ends, 1300 times the range of targets, derivatives are constant.
GRID: Array = 0.016 * np.sinh(np.arange(-96, 97) / 8)


def is_tabulated(loss: Loss) -> bool:
    """Whether the derivative of the loss, or of each output, is a user's own.

    That of the multinomial loss is the package's, whatever logistic loss it came from.
    """
    return type(loss) is not Multinomial and kernel_id(base_loss(loss)) is None


def tables(loss: Loss, targets: Array, clip: float, beta: float) -> tuple[Array, Array]:
    """Knots and values of the derivatives in z for each of the targets, shape (n, GRID.size).

    Of a loss of a single output, which is called once. The values, within the clip, are
    non-decreasing in each row, whatever the loss returns, and no steeper than beta.
    """
    from .._kernels.tables import lay_knots

    z = targets[:, None] + GRID
    y = np.repeat(targets, GRID.size)
    values = clipped_derivative(loss, z.ravel(), y, clip).reshape(z.shape)
    knots = np.empty_like(values)
    lay_knots(values, targets, GRID, beta, knots)
    return knots, values
