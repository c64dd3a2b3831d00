"""Nights as MLflow holds them in the morning: agents that have played, decided by the real rule, told by the real flow.

To be called where RATCHET_HOME is set.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from episodes import make_episode, write_night

from ratchet.components.core import Usage
from ratchet.components.core.home import home
from ratchet.components.evaluation.promotion.decision_record import Decision, TasksetRef
from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.nights.episode_sets import NightEpisodes
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import Night, night_folder
from ratchet.components.nights.recipe_config import load_recipe
from ratchet.components.nights.scale_config import load_scale
from ratchet.components.tracking import champion_aliases, model_registry
from ratchet.components.tracking.run_writer import night_run
from ratchet.components.trajectories.trajectory import with_content_hash
from ratchet.flows.mlflow_log import log_evaluation
from ratchet.flows.night_context import NightContext

TASKSET = TasksetRef("repair", "1", "6454ed5a40770ce8", "instance")


def registered(policy_version: str, night: str, champion: str | None = None, role: str = "challenger") -> int:
    """A checkpoint that stands for a training, in the registry; `champion`: why it takes the place, None where it does not."""
    folder = home() / "trained" / policy_version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(policy_version.encode())
    version = model_registry.register(
        folder, policy_version=policy_version, tags={"night": night, "role": role}
    ).version
    if champion is not None:
        champion_aliases.promote(version, why=champion, anchor=True)
    return version


def log_night(name: str, folders: Mapping[str, Path], seed: int, rule: PromotionRule | None = None) -> Decision:
    """One night of agents that have played, folders of episodes by the agents' names: decided, and told whole."""
    agents_played = NightEpisodes(folders)
    results = agents_played.results
    agents = (results["champion"], results["challenger"], results.get("control"))
    decision = decide_promotion(*agents, TASKSET, rule, night=name, seed=seed)
    known = {ref.policy_version: ref.version for ref in model_registry.versions()}
    night = _decided(name, decision, seed)
    with night_run(name, TASKSET.name, params={"scale": "smoke", "seed": seed, "recipe": "sft"}) as run:
        tonight = NightContext(night, load_scale("smoke"), run, load_recipe("sft", "smoke"), agents_played)
        played = {
            role: NightModel(result.policy_version, "", (), version=known.get(result.policy_version))
            for role, result in results.items()
        }
        log_evaluation(tonight, decision, played)
    night.finish()
    if decision.verdict == "promote":
        champion_aliases.promote(known[results["challenger"].policy_version], why=decision.why)
    assert run.read_back_report is not None and not run.read_back_report.absent, run.read_back_report
    return decision


def _decided(name: str, decision: Decision, seed: int) -> Night:
    """A night whose state says no more than what was decided."""
    night_folder(name).mkdir(parents=True)
    night = Night(name, "smoke", seed, f"{name[:10]}T01:00:00+00:00")
    night.run_once("decision", lambda: decision)
    return night


def played(folder: Path, version: str, solved: int, tasks: int = 24, day: str = "2026-11-20") -> Path:
    """Episodes of an agent that solves so many of the tasks, each twice, and as many of six audit tasks in proportion;
    every task is a family of its own.
    """
    episodes = []
    for role, count in (("promote", tasks), ("audit", 6)):
        for number in range(count):
            task = f"repair/{role}-{number:04d}"
            success = (number * 7) % count < solved * count / tasks
            for attempt in range(2):
                own = make_episode(task, attempt, success=success, version=version, role=role, day=day)
                turns = tuple(msgspec.structs.replace(each, usage=_USAGE) for each in own.turns)
                own = msgspec.structs.replace(own, task=msgspec.structs.replace(own.task, family=task), turns=turns)
                episodes.append(with_content_hash(own))
    return write_night(folder, episodes)


_USAGE = Usage(prompt_tokens=310, completion_tokens=42)
"""What a turn costs."""
