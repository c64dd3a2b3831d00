"""What a GRPO job reports beside what every job does."""

import math
from typing import Any

from ..config import GrpoConfig
from ..report import TrainReport


class GrpoReport(TrainReport, frozen=True, kw_only=True):
    """`rows` counts tasks. `episodes` were played, `untrained` of them hold no token of the policy's: `lost` because the
    infrastructure ended them, others because their prompt did not fit.

    `first_reward` and `last_reward` are means over the first and the last tenth of the steps. `offline`: the episodes were
    recorded, by whatever policy played them, and the ratio to that policy was taken for 1; `left_out` of them were too long, or no
    single sequence because the chat template rewrites history.
    """

    episodes: int
    lost: int
    untrained: int
    first_reward: float | None
    last_reward: float | None
    offline: bool = False
    left_out: int = 0


def report(config: GrpoConfig, trainer: Any, fields: dict[str, Any], begun: int) -> GrpoReport:
    """The report of a trainer that has come to its end, and went on from step `begun`; `fields` are those of TrainReport."""
    history = trainer.state.log_history
    rewards = [entry["reward"] for entry in history if entry.get("reward") is not None]
    tenth = max(1, len(rewards) // 10)
    batches = math.ceil(trainer.state.global_step / config.grpo.updates)
    size, tokens = config.optimization.batch_size, round(trainer.state.num_input_tokens_seen)
    before = max((entry.get("num_tokens") or 0 for entry in history if entry["step"] <= begun), default=0)
    counted = {"tokens": tokens, "tokens_per_second": (tokens - before) / max(fields["seconds"], 1e-9)}
    return GrpoReport(
        **{**fields, **counted},
        episodes=size * batches,
        lost=_counted(history, "rollout/lost", size),
        untrained=_counted(history, "rollout/untrained", size),
        first_reward=_mean(rewards[:tenth]),
        last_reward=_mean(rewards[-tenth:]),
        offline=config.grpo.offline,
        left_out=getattr(trainer.rollout_func, "left_out", 0),
    )


def _counted(history: list[dict[str, Any]], name: str, size: int) -> int:
    """How many attempts a share of each batch comes to."""
    return round(math.fsum(entry[name] for entry in history if name in entry) * size)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
