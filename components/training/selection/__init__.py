"""Selection: which attempts are learned from, and which tasks are played next. Pure functions, and buffers that can be saved.

Arrays or tensors in, the same kind out. NaN is "not known". (`lim` ranks tasks before training: see quality/terms.)
"""

from .groups import accuracy_band, kept, unsolved
from .guide import guided_old_logprobs, partial_solution, with_hint
from .options import SelectionOptions, selected
from .order import curriculum_order
from .relift import Hard, HardestBuffer
from .replay import Replacement, ReplayBuffer, Success
from .ucb import UcbCurriculum, curriculum_ucb
from .variance import max_variance

__all__ = [
    "Hard",
    "HardestBuffer",
    "Replacement",
    "ReplayBuffer",
    "SelectionOptions",
    "Success",
    "UcbCurriculum",
    "accuracy_band",
    "curriculum_order",
    "curriculum_ucb",
    "guided_old_logprobs",
    "kept",
    "max_variance",
    "partial_solution",
    "selected",
    "unsolved",
    "with_hint",
]
