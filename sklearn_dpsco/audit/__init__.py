r"""Audits: do the outputs or the releases of a fit depend on one record more than claimed?

`audit` fits an estimator thousands of times on two tables that differ in one record, and computes
lower bounds on epsilon from how well the outcomes tell the tables apart. It can find errors of
every kind, but it cannot show an epsilon above about log(n_trials / 30). `audit_plan` does the same
for a plan, in seconds, or by its releases; `audit_outcomes` takes outcomes from anywhere.

`check_sensitivity` runs a plan on neighbours with the answers of its mechanisms frozen. The values
that still differ depend on the record, so every release is compared with its sensitivity. The order
of the releases and the random words that they read are checked, too. It is exact and fast, but does
not test the law of the noise.

Neither is a proof: an error that does not show on the given tables is not found.
Use invented tables, since the results on real ones are not private.
"""

from ..solvers.base import map_mechanisms
from .neighbours import neighbours
from .outcomes import AuditResult, audit_outcomes
from .replay import SensitivityResult, check_sensitivity, mechanisms
from .runs import audit, audit_plan

__all__ = [
    "AuditResult",
    "SensitivityResult",
    "audit",
    "audit_outcomes",
    "audit_plan",
    "check_sensitivity",
    "map_mechanisms",
    "mechanisms",
    "neighbours",
]
