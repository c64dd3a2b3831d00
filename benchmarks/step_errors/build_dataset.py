"""The step benchmark: solved episodes, and the same with one known error planted, every known step labelled.

    python -m benchmarks.step_errors.build_dataset [--out data/benchmarks/steps] [--seed 0] [--backend local]

Writes `episodes/TASKSET.jsonl` (trajectories), `labels.jsonl` (labels of steps) and `card.json` (what was made, from what, how
much of it). Dates, times and temporary names are left out, so that the same tasksets and seed give the same bytes.
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ratchet.components.core import DataError, Role, TaskSpec, ToolCall
from ratchet.components.core.errors import run_and_report
from ratchet.components.core.files import write_atomically
from ratchet.components.rewards.annotation_records import Label
from ratchet.components.rollouts.collection_plan import PlannedEpisode, episode_seed
from ratchet.components.rollouts.episode_replay import VOLATILE
from ratchet.components.sandboxes import SandboxConfig
from ratchet.components.tasksets import Taskset, load_taskset
from ratchet.components.trajectories.shards import read_jsonl
from ratchet.components.trajectories.trajectory import Provenance, Trajectory, Turn, with_content_hash

from .careful_policy import Careful
from .error_injection import (
    CLEAN,
    ERROR_KINDS,
    INJECTION_VERSION,
    Injected,
    Injection,
    clean_labels,
    inject,
    injection_labels,
    play_injections,
)
from .repair_search import locate_errors
from .scripted_replay import EpisodeScript, play_scripts, reply_with_calls

SHARES = {"repair": 60, "orders": 18, "reviews": 8, "advice": 8, "debates": 6}
"""How many tasks of each bundled taskset are played."""
A_CLEAN_EVERY = 3
"""One solved episode in so many stands in the benchmark as it is, without an error."""
ERRORS_EACH = 2
"""Errors planted into copies of one episode."""
EPISODES, CARD = "episodes", "card.json"
_WORKSPACE = re.compile(dict(VOLATILE)["workspace"])


class DatasetCard(msgspec.Struct, frozen=True):
    """What the benchmark holds. `labels` counts labelled steps, of which `errors` are wrong; `survived` injections were left out.

    `located`: of the planted errors, those whose turn repair-and-replay found; `elsewhere` those that it saw at another turn.
    """

    seed: int
    version: str
    tasksets: dict[str, str]
    episodes: int
    clean: int
    labels: int
    errors: int
    steps: int
    kinds: dict[str, int]
    survived: dict[str, int]
    located: int
    elsewhere: int


class TasksetPart(msgspec.Struct):
    """One taskset's part."""

    episodes: list[Trajectory] = []
    labels: list[Label] = []
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    survived: Counter[str] = msgspec.field(default_factory=Counter)
    located: int = 0
    elsewhere: int = 0

    def add(self, trajectory: Trajectory, labels: Iterable[Label], kind: str) -> None:
        """One episode and what is known of its steps."""
        self.episodes.append(trajectory)
        self.labels.extend(labels)
        self.kinds[kind] += 1


def build_part(taskset: Taskset, tasks: Sequence[TaskSpec], seed: int, sandbox: SandboxConfig) -> TasksetPart:
    """Play the tasks well, plant errors into copies, keep those that cost the task, and look for them again by repair."""
    parents = play_solved_episodes(taskset, tasks, seed, sandbox)
    by_id = {task.task_id: task for task in tasks}
    injected = play_injections(list(_injections(parents, by_id, seed)), taskset, sandbox)
    part = TasksetPart()
    for parent in map(without_times, parents[::A_CLEAN_EVERY]):
        part.add(parent, clean_labels(parent), CLEAN)
    decisive = [episode for episode in injected if episode.decisive]
    part.survived.update(episode.injection.kind for episode in injected if not episode.decisive)
    errors = locate_errors([episode.trajectory for episode in decisive], taskset, sandbox)
    for episode, located in zip(decisive, errors, strict=True):
        timeless = Injected(episode.injection, without_times(episode.trajectory))
        part.add(timeless.trajectory, injection_labels(timeless), episode.injection.kind)
        part.located += located.turn == episode.injection.turn
        part.elsewhere += located.turn not in (None, episode.injection.turn)
    return part


def play_solved_episodes(
    taskset: Taskset, tasks: Sequence[TaskSpec], seed: int, sandbox: SandboxConfig
) -> list[Trajectory]:
    """A solved episode of each task that careful solves, some of them long."""
    careful = Careful(taskset)
    scripts = []
    for task in tasks:
        planned = PlannedEpisode.create(task, 0, episode_seed(seed, task.task_id, 0), careful.version)
        moves = careful.moves(task, random.Random(f"careful/{planned.seed}/{task.task_id}"))
        scripts.append(EpisodeScript(planned, tuple(reply_with_calls(ToolCall("", *move)) for move in moves)))
    played = play_scripts(scripts, taskset, name=careful.name, version=careful.version, sandbox=sandbox)
    return [trajectory for trajectory in played if trajectory.outcome.success]


def _injections(parents: Sequence[Trajectory], tasks: dict[str, TaskSpec], seed: int) -> Iterator[Injection]:
    """For each parent the next kinds in turn that have a place in it."""
    kinds = list(ERROR_KINDS)
    at = 0
    for parent in parents:
        remaining = ERRORS_EACH
        for step in range(len(kinds)):
            kind = kinds[(at + step) % len(kinds)]
            injection = inject(parent, tasks[parent.task.task_id], kind, seed)
            if injection is not None:
                yield injection
                remaining -= 1
            if not remaining:
                break
        at += step + 1


def without_times(trajectory: Trajectory) -> Trajectory:
    """The record without what differs from run to run: dates, times, the commit, the place of the workspace; nor tool schemas."""
    return with_content_hash(
        msgspec.structs.replace(
            trajectory,
            turns=tuple(_turn_without_times(turn) for turn in trajectory.turns),
            provenance=Provenance(),
            source_extra={},
        )
    )


def _turn_without_times(turn: Turn) -> Turn:
    results = tuple(
        msgspec.structs.replace(result, content=_WORKSPACE.sub("/workspace", result.content)) for result in turn.results
    )
    return msgspec.structs.replace(turn, results=results, seconds=None, usage=None, call_seconds=msgspec.UNSET)


def build_dataset(out: Path, seed: int, sandbox: SandboxConfig, shares: dict[str, int] | None = None) -> DatasetCard:
    """Make the benchmark and write it into a folder. Raises RatchetError."""
    parts, hashes = {}, {}
    for name, share in (shares or SHARES).items():
        taskset = load_taskset(name)
        tasks = taskset.tasks(Role.TRAIN)
        parts[name] = build_part(taskset, tasks[:: max(1, len(tasks) // share)][:share], seed, sandbox)
        hashes[name] = taskset.hash
    card = _card(list(parts.values()), hashes, seed)
    lines = msgspec.json.Encoder().encode_lines
    (out / EPISODES).mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        write_atomically(out / EPISODES / f"{name}.jsonl", lines(part.episodes))
    write_atomically(out / "labels.jsonl", lines([label for part in parts.values() for label in part.labels]))
    write_atomically(out / CARD, msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n")
    return card


def read_card(folder: Path) -> DatasetCard:
    """The card of the benchmark in a folder. Raises DataError."""
    path = folder / CARD
    try:
        return msgspec.json.decode(path.read_bytes(), type=DatasetCard)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path} is no card of a step benchmark: {error}; name the folder of one") from error


def read_episodes(folder: Path) -> Iterator[Trajectory]:
    """The trajectories of the benchmark in a folder, in the order of the tasksets that its card names. Raises DataError."""
    for name in read_card(folder).tasksets:
        yield from read_jsonl(folder / EPISODES / f"{name}.jsonl")


def _card(parts: Sequence[TasksetPart], hashes: dict[str, str], seed: int) -> DatasetCard:
    kinds: Counter[str] = sum((part.kinds for part in parts), Counter())
    survived: Counter[str] = sum((part.survived for part in parts), Counter())
    return DatasetCard(
        seed=seed,
        version=INJECTION_VERSION,
        tasksets=hashes,
        episodes=kinds.total(),
        clean=kinds[CLEAN],
        labels=sum(len(part.labels) for part in parts),
        errors=sum(not label.value for part in parts for label in part.labels),
        steps=sum(len(episode.turns) for part in parts for episode in part.episodes),
        kinds=dict(sorted(kinds.items())),
        survived=dict(sorted(survived.items())),
        located=sum(part.located for part in parts),
        elsewhere=sum(part.elsewhere for part in parts),
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code of the error where there is one."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.step_errors.build_dataset", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", type=Path, default=Path("data/benchmarks/steps"), help="the folder to write")
    parser.add_argument("--seed", type=int, default=0, help="of the tasks' episodes and of the errors")
    parser.add_argument("--backend", default="local", choices=("local", "docker"), help="where the steps are made")
    flags = parser.parse_args(arguments)

    def work() -> None:
        card = build_dataset(flags.out, flags.seed, SandboxConfig(backend=flags.backend))
        print(
            f"{flags.out}: {card.episodes} episodes, {card.labels} labelled steps of which {card.errors} are wrong; "
            f"repair-and-replay found {card.located} of {card.episodes - card.clean} errors"
        )

    return run_and_report(work)


if __name__ == "__main__":
    sys.exit(main())
