"""Estimates, intervals and tests. Pure functions over numpy, seeded, vectorised; what they promise is in docs/statistics.md.

The unit that varies is the family: tasks of one family succeed and fail together, so every clustered interval resamples
whole families and every clustered test exchanges whole families. The estimate is always the mean over *tasks*: a family
weighs as much as it has tasks. A test of (a, b) is about a - b, as in scipy: positive where a is higher, two-sided unless told.
Degenerate inputs have answers: no value gives no estimate and p = 1; one family gives no interval, because nothing was seen
of how families differ; NaN is refused with a DataError.
"""

from .bootstrap import bootstrap_ci, bootstrap_difference
from .clustered import clustered_mean, clustered_standard_error
from .corrections import benjamini_hochberg, bonferroni, holm
from .effects import cliffs_delta, cohens_d, hedges_g
from .estimates import difference_estimate, rate_estimate
from .mcnemar import mcnemar
from .means import confidence_interval, paired_t_test, welch_t_test
from .permutation import EXACT_FAMILIES, permutation_test
from .proportions import clopper_pearson, cons_at_k, pass_at_k, pass_hat_k, wilson
from .ranks import mann_whitney_u, wilcoxon
from .results import Alternative, Estimate, Interval, TestResult

__all__ = [
    "EXACT_FAMILIES",
    "Alternative",
    "Estimate",
    "Interval",
    "TestResult",
    "benjamini_hochberg",
    "bonferroni",
    "bootstrap_ci",
    "bootstrap_difference",
    "cliffs_delta",
    "clopper_pearson",
    "clustered_mean",
    "clustered_standard_error",
    "cohens_d",
    "confidence_interval",
    "cons_at_k",
    "difference_estimate",
    "hedges_g",
    "holm",
    "mann_whitney_u",
    "mcnemar",
    "paired_t_test",
    "pass_at_k",
    "pass_hat_k",
    "permutation_test",
    "rate_estimate",
    "welch_t_test",
    "wilcoxon",
    "wilson",
]
