"""References: how many calls each task needs, from the episodes that solved it. What efficiency is measured against."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from components.protocol import load_domain
from components.trajectories.record import Trajectory

from .episode import is_infrastructure_failure, is_success, outcome_score
from .guards import find_hacks

References = dict[tuple[str, str], float]
"""How many calls a task needs, by (task_id, task_hash)."""


def reference_steps(trajectories: Iterable[Trajectory]) -> References:
    """For each task that was solved: the median number of calls of its successful episodes. A hack solves nothing."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(list)
    for trajectory in trajectories:
        steps = sum(len(turn.calls) for turn in trajectory.turns)
        profile = load_domain(trajectory.task.domain)
        solved = is_success(trajectory.outcome, outcome_score(trajectory, profile))
        if steps and solved and not is_infrastructure_failure(trajectory) and not find_hacks(trajectory, profile):
            counts[trajectory.task.task_id, trajectory.task.task_hash].append(steps)
    return {task: float(median(each)) for task, each in counts.items()}
