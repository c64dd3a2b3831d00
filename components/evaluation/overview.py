"""Overview: what an evaluation shows of an agent on the tasks of one role: rates with intervals, figures by kind and family."""

import msgspec

from .attempts import AgentResult
from .comparison.pairing import task_mean
from .metrics import Summary, breakdown, summary
from .statistics import Estimate, difference_estimate, rate_estimate


class Overview(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`success` and `reward` are means over tasks, with intervals that resample whole families; `reward` counts scored tasks."""

    success: Estimate
    reward: Estimate
    summary: Summary
    by_kind: dict[str, Summary]
    by_family: dict[str, Summary]


def overview(result: AgentResult, role: str | None = None, *, level: float = 0.95, seed: int = 0) -> Overview:
    """The overview of one role, or of all tasks; `seed` is that of the resampling."""
    tasks = result.of(role)
    rates = [(rate, task.family) for task in tasks if (rate := task.rate) is not None]
    rewards = [(reward, task.family) for task in tasks if (reward := task_mean(task, "reward")) is not None]
    return Overview(
        success=rate_estimate(*_columns(rates), level=level, seed=seed),
        reward=difference_estimate(*_columns(rewards), level=level, seed=seed),
        summary=summary(result, role),
        by_kind=breakdown(result, "kind", role),
        by_family=breakdown(result, "family", role),
    )


def _columns(pairs: list[tuple[float, str]]) -> tuple[list[float], list[str]]:
    return [value for value, _ in pairs], [family for _, family in pairs]
