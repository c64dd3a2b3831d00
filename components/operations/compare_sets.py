"""Compare sets of episodes: pairwise tests, the promotion rule's verdict on two of them, and a leaderboard of many."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError, Role
from ratchet.components.evaluation.agent_comparison import AgentComparison, compare_agents
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.evaluation.leaderboard import Leaderboard
from ratchet.components.evaluation.leaderboard import leaderboard as board_of
from ratchet.components.evaluation.paired_comparison import Measure
from ratchet.components.evaluation.promotion.decision_record import Decision, TasksetRef
from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import merge_deciding_roles
from ratchet.components.nights.episode_sets import (
    evaluated_agents,
    evaluations_folder,
    latest_night,
    load_set_results,
    resolve_sets,
    summarise_episodes,
)
from ratchet.components.nights.night_state import list_nights
from ratchet.components.statistics.multiple_testing import holm
from ratchet.components.statistics.result_types import few_families_remark, p_text
from ratchet.components.tasksets import Taskset, load_taskset
from ratchet.components.trajectories.notebook_tables import NotebookTable
from ratchet.components.trajectories.shards import read_folder, read_jsonl
from ratchet.components.trajectories.trajectory import Trajectory
from ratchet.components.trajectories.trajectory_list import Trajectories


class SetComparison(NotebookTable, msgspec.Struct, frozen=True):
    """Comparisons of each further set with the first, in order; `corrected`: their Holm-adjusted p-values.

    `decision`: verdict of the promotion rule on two sets (and a control); None where the rule does not apply, for the
    reason in `why_not`.
    """

    comparisons: tuple[AgentComparison, ...]
    corrected: tuple[float, ...]
    decision: Decision | None = None
    why_not: str = ""

    def __getitem__(self, index: int) -> AgentComparison:
        return self.comparisons[index]

    def __len__(self) -> int:
        return len(self.comparisons)

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per comparison, with the corrected p-value."""
        pairs = zip(self.comparisons, self.corrected, strict=True)
        return [{**comparison.row, "p_corrected": corrected} for comparison, corrected in pairs]

    def __repr__(self) -> str:
        lines = [
            f"{row['b']} against {row['a']}, {row['by']}: {_signed(row['difference'])} "
            f"[{_signed(row['low'])}, {_signed(row['high'])}], {p_text(row['p_corrected'])}, {row['tasks']} tasks"
            for row in self.rows()
        ]
        return "\n".join([*lines, self.remark] if self.remark else lines)

    @property
    def remark(self) -> str:
        """A remark on intervals over few families; empty where there are enough."""
        return few_families_remark(min(comparison.n_families for comparison in self.comparisons))

    def _caption(self) -> tuple[str, str]:
        note = "Difference: b - a, with a 95 % interval; the two-sided p-value of a permutation test, corrected by Holm's method."
        return f"Comparison with {self.comparisons[0].a.name}", f"{note} {self.remark}".rstrip()


def _signed(value: float | None) -> str:
    return "n/a" if value is None else f"{value:+.3f}"


def compare(
    *agents: Iterable[Trajectory] | Path | str,
    by: Measure | None = None,
    role: str | None = None,
    seed: int | None = None,
) -> SetComparison:
    """Compare each further agent with the first on the tasks that both played: difference, interval, tests.

    `agents`: episodes in memory, or a set that `ratchet compare` takes (a folder, NIGHT/AGENT, a registered version).
    `seed`: of the resampling; None: that of the night that all sets are of, else 0.
    `by`: success, or the reward: that of `Trajectories.rewards`, else the rules' total; None: the reward where all
    episodes in memory have been given one, else success. `role` as in `compare_sets`. Attempts are paired where the
    seeds agree; intervals resample families of tasks; p-values are two-sided and corrected by Holm's method. Raises
    ConfigurationError, DataError.

    >>> careful = ratchet.collect("repair", agent="teacher", tasks=8)
    >>> careless = ratchet.collect("repair", agent="random-edit", tasks=8)
    >>> result = ratchet.compare(careless, careful)
    >>> result[0].difference.value, result[0].p_value < 0.05
    (1.0, True)
    """
    if len(agents) < 2:
        raise ConfigurationError("one set alone has nothing to be compared with; give two or more")
    sets: list[Iterable[Trajectory]] = []
    names: list[str] = []
    places: list[Path] = []
    for agent in agents:
        if isinstance(agent, Path | str):
            for name, path in resolve_sets([str(agent)]):
                sets.append(read_folder(path) if path.is_dir() else read_jsonl(path))
                names.append(name)
                places.append(path)
        else:
            places.append(Path())
            sets.append(agent if isinstance(agent, Trajectories) else Trajectories(agent))
            names.append(next((each.agent.name for each in sets[-1]), "nobody"))
    names = [name if names.count(name) == 1 else f"{name} #{number}" for number, name in enumerate(names, start=1)]
    rewarded = [own.rewards if isinstance(own, Trajectories) else {} for own in sets]
    results = list(summarise_episodes(dict(zip(names, sets, strict=True))).values())
    results = [_with_rewards(result, own) if own else result for result, own in zip(results, rewarded, strict=True)]
    results, role = _of_role(results, role)
    measure: Measure = by or ("reward" if all(rewarded) else "success")
    return _compare_with_first(results, role, measure, _resampling_seed(seed, places))


def _resampling_seed(seed: int | None, places: Iterable[Path]) -> int:
    """Return the seed if there is one, else that of the night that all places are of, so that all pages about its agents
    have the same figures; else 0.
    """
    folders = {path.absolute().parent for path in places}
    nights = list_nights() if seed is None and len(folders) == 1 else []
    return seed or next((night.seed for night in nights if evaluations_folder().absolute() / night.id in folders), 0)


def _with_rewards(result: AgentResult, rewards: Mapping[str, float | None]) -> AgentResult:
    replace = msgspec.structs.replace
    tasks = (
        replace(task, attempts=tuple(replace(each, reward=rewards.get(each.episode_id)) for each in task.attempts))
        for task in result.tasks
    )
    return replace(result, tasks=tuple(tasks))


def _compare_with_first(results: Sequence[AgentResult], role: str | None, by: Measure, seed: int) -> SetComparison:
    comparisons = tuple(compare_agents(results[0], other, role, by=by, seed=seed) for other in results[1:])
    return SetComparison(comparisons, tuple(holm([comparison.p_value for comparison in comparisons])))


def compare_sets(
    words: Sequence[str],
    *,
    control: str | None = None,
    scale: str = "smoke",
    role: str | None = None,
    by: Measure = "success",
    seed: int | None = None,
) -> SetComparison:
    """Compare each further set of episodes with the first, and with two sets apply the scale's promotion rule.

    `words`: names of the sets, as in `resolve_sets`; the first is the champion of the rule, the second its challenger.
    `control`: name of the control's set. `seed` as in `compare`. `role`: by default promote (with reserve) where
    all agents played it, else every task. Raises ConfigurationError, DataError.
    """
    sets = resolve_sets([*words, *([control] if control else [])])
    count = len(resolve_sets(words)) if control else len(sets)
    if count < 2:
        raise ConfigurationError("one set alone has nothing to be compared with; give two or more")
    if control and (count > 2 or len(sets) != 3):
        raise ConfigurationError("--control is one set beside two; give it as one more set")
    results, role = _of_role(load_set_results(sets), role)
    seed = _resampling_seed(seed, [place.path for place in sets])
    agents, comparison = results[:count], _compare_with_first(results, role, by, seed)
    if len(agents) > 2:
        return comparison
    if role != "promote" or by != "success":
        return msgspec.structs.replace(comparison, why_not="the promotion rule is about success on promote tasks")
    return _with_decision(comparison, agents, results[2] if control else None, scale, seed)


def _of_role(results: Sequence[AgentResult], role: str | None) -> tuple[list[AgentResult], str | None]:
    """Return the results, with all deciding tasks under promote, and the role. Raises ConfigurationError for an unknown
    role.
    """
    if role is not None and role not in list(Role):
        raise ConfigurationError(f"unknown role '{role}'; choose one of {', '.join(choice.value for choice in Role)}")
    if role not in (None, Role.PROMOTE):
        return list(results), role
    agents = [merge_deciding_roles(result) for result in results]
    return agents, role or (Role.PROMOTE.value if all(agent.of(Role.PROMOTE.value) for agent in agents) else None)


def _with_decision(
    comparison: SetComparison, agents: Sequence[AgentResult], control: AgentResult | None, scale: str, seed: int
) -> SetComparison:
    from ratchet.components.nights.scale_config import load_scale

    replace, parameters = msgspec.structs.replace, load_scale(scale)
    taskset = load_taskset(parameters.taskset)
    ref = TasksetRef(taskset.name, taskset.version, taskset.hash, taskset.split_by)
    champion, challenger = replace(agents[0], name="champion"), replace(agents[1], name="challenger")
    try:
        _check_taskset(champion, taskset)
        rule = parameters.promotion
        decision = decide_promotion(champion, challenger, control, ref, rule, night="by hand", seed=seed)
    except DataError as error:
        return replace(comparison, why_not=str(error))
    return replace(comparison, decision=decision)


def _check_taskset(agent: AgentResult, taskset: Taskset) -> None:
    """Raise DataError where the agent played tasks that are not in the taskset."""
    task_specs = taskset.by_id
    for task in agent.of("promote"):
        if task.task_id not in task_specs or task_specs[task.task_id].task_hash != task.task_hash:
            raise DataError(
                f"task {task.task_id} was played, and is none of the taskset {taskset.name} as it is; give --scale a file with the "
                "`taskset:` that was played, and with the rule under `promotion:` (a copy of scales/smoke.yaml; docs/project.md)"
            )


def leaderboard(
    words: Sequence[str] = (),
    *,
    role: str | None = None,
    by: Measure = "success",
    alpha: float = 0.05,
    seed: int | None = None,
) -> Leaderboard:
    """Return the leaderboard of sets of episodes (`words` as in `resolve_sets`; empty: the latest evaluated night).

    `role` None: as in `compare_sets`; `seed` as in `compare`. Raises RatchetError.
    """
    sets = resolve_sets(words) if words else evaluated_agents(latest_night())
    results, role = _of_role(load_set_results(sets), role)
    return board_of(results, role, by=by, alpha=alpha, seed=_resampling_seed(seed, [place.path for place in sets]))
