"""Results: what agents did, read from their episodes, with what rules and guards say of each. Nothing here needs Prefect.

Efficiency, a part of the reward, is measured against what each task needs by *all* the agents that are read together, so that
their rewards can be compared.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from components.evaluation.attempts import AgentResult, Inspection, agent_result, inspected
from components.protocol import load_domain
from components.rewards.config import RewardConfig
from components.rewards.engine import score
from components.rewards.guards import KINDS
from components.rewards.params import load_section
from components.rewards.references import Awaiting, References, references_of
from components.rewards.unsafe import unsafe_actions
from components.trajectories.record import FailureKind, Trajectory
from components.trajectories.shards import read_folder

from .home import parameters

UNREADABLE = "unreadable"
"""The kind of hack of an episode that guards cannot read to its end: what nobody could look at is no success."""


class Looked(NamedTuple):
    """What was found of one episode. `awaiting` is None where it could not be scored."""

    awaiting: Awaiting | None
    unsafe: int | None
    hack: str = ""

    def inspection(self, references: References, config: RewardConfig) -> Inspection:
        """With its reward, once it is known what each task needs."""
        reward = None if self.awaiting is None else self.awaiting.completed(references, config)[1]
        return Inspection(reward, self.unsafe, self.hack)


def result_of(name: str, folder: Path) -> AgentResult:
    """One agent's result over its folder of shards. Raises DataError."""
    return results_of({name: folder})[name]


def results_of(folders: Mapping[str, Path]) -> dict[str, AgentResult]:
    """The results of agents that are compared with each other, by name. Raises DataError."""
    return results_in({name: read_folder(folder) for name, folder in folders.items()})


def results_in(episodes: Mapping[str, Iterable[Trajectory]]) -> dict[str, AgentResult]:
    """The same of episodes; each is read once, and none is kept. Scored by the section `score` of params.yaml where it stands."""
    config = load_section(RewardConfig, parameters(), "score")
    found: dict[str, tuple[AgentResult, dict[str, Looked]]] = {}
    for name, own in episodes.items():
        looked: dict[str, Looked] = {}
        found[name] = agent_result(_watched(own, config, looked), name=name), looked
    awaiting = (each.awaiting for _, looked in found.values() for each in looked.values())
    references = references_of(each for each in awaiting if each is not None)
    return {
        name: inspected(result, {episode: each.inspection(references, config) for episode, each in looked.items()})
        for name, (result, looked) in found.items()
    }


def _watched(episodes: Iterable[Trajectory], config: RewardConfig, looked: dict[str, Looked]) -> Iterator[Trajectory]:
    for trajectory in episodes:
        if (found := look(trajectory, config)) is not None:
            looked[trajectory.episode_id] = found
        yield trajectory


def look(trajectory: Trajectory, config: RewardConfig) -> Looked | None:
    """What rules and guards say of an episode; None where the infrastructure ended it."""
    if trajectory.failure is not None and trajectory.failure.kind is FailureKind.INFRASTRUCTURE:
        return None
    profile = load_domain(trajectory.task.domain)
    try:
        scored = score(trajectory, profile, config)
        unsafe = len(unsafe_actions(trajectory, profile))
    except (OverflowError, RecursionError):
        return Looked(None, None, UNREADABLE)
    hacks = [each.line for each in scored.explanations if each.layer == "guards" and each.line in KINDS]
    return Looked(Awaiting.of(trajectory, profile, profile, scored), unsafe + len(hacks), hacks[0] if hacks else "")
