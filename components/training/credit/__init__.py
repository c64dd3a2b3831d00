"""Credit: from what episodes earned to the advantage and weight of each token. Pure functions, one for each named method.

Arrays or tensors in, the same kind out. B episodes, S turns, T tokens; NaN is "not known". `advantages` joins them by their
options' names; `CreditOptions()` is plain TRL.
"""

from .advantages import Played, advantages
from .decomposition import learned_contributions, sum_decomposition
from .options import OWN_SCALE, CreditOptions, RegionSchedule, RegionWeights, Scale
from .outcome import batch_std, broadcast, leave_one_out, per_task
from .signal import SignalWindow, deviation, share_without_difference
from .tokens import entropy_topk, region_schedule, spread
from .turns import chances_of_success, per_role, progress, returns_to_go, step_level, turn_sum_norm

__all__ = [
    "OWN_SCALE",
    "CreditOptions",
    "Played",
    "RegionSchedule",
    "RegionWeights",
    "Scale",
    "SignalWindow",
    "advantages",
    "batch_std",
    "broadcast",
    "chances_of_success",
    "deviation",
    "entropy_topk",
    "learned_contributions",
    "leave_one_out",
    "per_role",
    "per_task",
    "progress",
    "region_schedule",
    "returns_to_go",
    "share_without_difference",
    "spread",
    "step_level",
    "sum_decomposition",
    "turn_sum_norm",
]
