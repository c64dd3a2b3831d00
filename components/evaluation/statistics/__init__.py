"""Estimates, intervals and tests. Pure functions over numpy, seeded, vectorised; what they promise is in docs/statistics.md.

The unit that varies is the family: tasks of one family succeed and fail together, so every clustered interval resamples
whole families and every clustered test exchanges whole families. The estimate is always the mean over *tasks*: a family
weighs as much as it has tasks. A test of (a, b) is about a - b, as in scipy: positive where a is higher, two-sided unless told.
Degenerate inputs have answers: no value gives no estimate and p = 1; one family gives no interval, because nothing was seen
of how families differ; NaN is refused with a DataError.
"""

from .bayes import Posterior, bayes_correlated, bayes_groups, bayes_paired
from .betting import Anytime, always_valid, confidence_sequence
from .bootstrap import bootstrap_ci, bootstrap_difference
from .bounded_means import families_for_margin, worst_case_means
from .clustered import clustered_mean, clustered_standard_error
from .corrections import benjamini_hochberg, bonferroni, holm
from .designs import Clustered, Design, Paired, TwoSample, clustered_design
from .effects import cliffs_delta, cohens_d
from .estimates import difference_estimate, rate_estimate
from .mcnemar import mcnemar
from .means import confidence_interval, paired_t_test, welch_t_test
from .permutation import EXACT_FAMILIES, permutation_test
from .power import least_families, minimum_detectable_effect, power, tasks_needed
from .proportions import clopper_pearson, cons_at_k, pass_at_k, pass_hat_k, wilson
from .ranks import mann_whitney_u, wilcoxon
from .results import Alternative, Estimate, Interval, TestResult
from .sequential import Bounds, alpha_spent, sequential_bounds
from .spending import Allowance, Look, Spending, allowance, season_levels
from .variance import Components, paired_components

__all__ = [
    "EXACT_FAMILIES",
    "Allowance",
    "Alternative",
    "Anytime",
    "Bounds",
    "Clustered",
    "Components",
    "Design",
    "Estimate",
    "Interval",
    "Look",
    "Paired",
    "Posterior",
    "Spending",
    "TestResult",
    "TwoSample",
    "allowance",
    "alpha_spent",
    "always_valid",
    "bayes_correlated",
    "bayes_groups",
    "bayes_paired",
    "benjamini_hochberg",
    "bonferroni",
    "bootstrap_ci",
    "bootstrap_difference",
    "cliffs_delta",
    "clopper_pearson",
    "clustered_design",
    "clustered_mean",
    "clustered_standard_error",
    "cohens_d",
    "confidence_interval",
    "confidence_sequence",
    "cons_at_k",
    "difference_estimate",
    "families_for_margin",
    "holm",
    "least_families",
    "mann_whitney_u",
    "mcnemar",
    "minimum_detectable_effect",
    "paired_components",
    "paired_t_test",
    "pass_at_k",
    "pass_hat_k",
    "permutation_test",
    "power",
    "rate_estimate",
    "season_levels",
    "sequential_bounds",
    "tasks_needed",
    "welch_t_test",
    "wilcoxon",
    "wilson",
    "worst_case_means",
]
