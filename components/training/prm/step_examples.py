"""Targets of steps from labels or episode outcomes, and training examples split by family.

| objective | target | score of a step |
|---|---|---|
| `value` | mean label of the step; without labels, the outcome of its episode | its correctness, or the chance of
success after it |
| `progress` | as `value`, as chances of success, START included | change of that chance (process advantage verifier) |
| `sum_decomposition` | outcomes of episodes, as sums over their steps | contribution to the outcome (SPA) |

An outcome is one Monte-Carlo sample of the value of every state of its episode (Wang et al. 2024, Math-Shepherd);
`monte_carlo` labels are means of many samples.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ratchet.components.core import HELD_OUT, DataError, load_domain
from ratchet.components.core.files import read_json_lines
from ratchet.components.rewards.annotation_records import OVERALL, WHOLE, Label
from ratchet.components.rewards.calibration.labelled_scores import mean_label, settled_labels
from ratchet.components.rewards.hack_detection.hack_detector import find_hacks
from ratchet.components.rewards.monte_carlo_labels import MONTE_CARLO_ANNOTATOR
from ratchet.components.rewards.reward_formulas import outcome_score
from ratchet.components.training.config.job_config import PrmConfig
from ratchet.components.trajectories.shards import read_folder, read_jsonl
from ratchet.components.trajectories.trajectory import TaskRef, Trajectory

from .episode_windows import START, StepPosition, TokenWindow, step_positions, token_windows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


StepTargets = Mapping[StepPosition, float]
"""Targets in [0, 1] by step."""
LabelsByEpisode = Mapping[str, Sequence[Label]]
"""Labels by episode id."""
StartValues = Mapping[tuple[str, str], float]
"""Chance of success at the start, by (task id, task hash)."""


def read_labels(paths: Iterable[Path]) -> LabelsByEpisode:
    """Return the overall labels (not those of single criteria) of steps and episodes in JSONL files, by episode id; of
    each annotator only the latest label, or the adjudication of an item. Raises DataError.
    """
    result: dict[str, list[Label]] = defaultdict(list)
    for label in settled_labels(item for path in paths for item in read_json_lines(path, Label, skip_partial=True)):
        if label.line == OVERALL:
            result[label.episode_id].append(label)
    return dict(result)


def label_targets(trajectory: Trajectory, labels: LabelsByEpisode) -> StepTargets:
    """Return the mean label of each labelled step. Labels of steps that do not exist, or of an episode with other
    content, are ignored.

    START has a target only if its chance of success was sampled: a person's label of a whole episode concerns no step.
    """
    positions = set(step_positions(trajectory))
    values: dict[StepPosition, list[Label]] = defaultdict(list)
    for label in labels.get(trajectory.episode_id, ()):
        index = (label.turn, label.step)
        fits = label.content_hash in ("", trajectory.content_hash)
        if fits and index in positions and (index != START or label.annotator == MONTE_CARLO_ANNOTATOR):
            values[index].append(label)
    return {index: mean_label(of_step) for index, of_step in values.items()}


def outcome_targets(trajectory: Trajectory) -> StepTargets:
    """Return the episode's outcome as the target of every step, and of START unless the episode is a branch from a
    later turn; empty if the outcome is unknown.
    """
    outcome = episode_outcome(trajectory)
    if outcome is None:
        return {}
    return {
        index: outcome for index in step_positions(trajectory) if index != START or starts_at_first_turn(trajectory)
    }


def reply_targets(
    trajectory: Trajectory, targets: StepTargets, default: float | None = None
) -> dict[StepPosition, float]:
    """Return the target of each reply, before its results are known: the mean target of its steps, Q(s, a) where that is
    a chance of success. `default`: target of replies without a targeted step (None: they have none).
    """
    result: dict[StepPosition, float] = {}
    for turn in trajectory.turns:
        positions = ((turn.index, step) for step in range(len(turn.calls)))
        values = [targets[position] for position in positions if position in targets]
        if values or default is not None:
            result[turn.index, WHOLE] = sum(values) / len(values) if values else default or 0.0
    return result


def starts_at_first_turn(trajectory: Trajectory) -> bool:
    """Return whether the episode began from the task's start; false for a branch from a later turn."""
    return trajectory.parent is None or trajectory.parent.turn == 0


def episode_outcome(trajectory: Trajectory) -> float | None:
    """Return the episode's outcome: 0 for a reward hack, else 1 for success and 0 for failure, or without a verdict the
    outcome's score in [0, 1]; None if unknown.
    """
    profile = load_domain(trajectory.task.domain)
    success = trajectory.outcome.success
    outcome = outcome_score(trajectory, profile) if success is None else float(success)
    return 0.0 if outcome and find_hacks(trajectory, profile) else outcome


def start_values(trajectories: Iterable[Trajectory]) -> StartValues:
    """Return the mean outcome of each task's episodes, as its chance of success before the first step.

    Branches from a later turn and episodes that the infrastructure ended are excluded.
    """
    outcomes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trajectory in trajectories:
        if starts_at_first_turn(trajectory) and not trajectory.has_infrastructure_failure:
            outcome = episode_outcome(trajectory)
            if outcome is not None:
                outcomes[trajectory.task.task_id, trajectory.task.task_hash].append(outcome)
    return {task: sum(item) / len(item) for task, item in outcomes.items()}


MAX_WINDOWS = 8
"""`sum_decomposition` excludes longer episodes, since all windows of an episode are in memory at once."""


class StepExample(msgspec.Struct, frozen=True, gc=False):
    """Windows that are trained together. Their step ends are numbered over all windows; the i-th belongs to group
    `groups[i]`, whose target is `targets[groups[i]]`.

    Each end is its own group, but for `sum_decomposition` all ends of an episode form one.
    """

    windows: list[TokenWindow]
    groups: list[int]
    targets: list[float]

    @property
    def tokens(self) -> int:
        """Number of input tokens."""
        return sum(len(window.input_ids) for window in self.windows)


class StepCorpus(msgspec.Struct, frozen=True):
    """Episodes with the targets of their steps, and the number of excluded episodes by cause."""

    episodes: list[tuple[Trajectory, StepTargets]]
    left_out: dict[str, int]


def read_corpus(config: PrmConfig) -> StepCorpus:
    """Read the episodes and the targets of their steps. Raises DataError if no episode has a target."""
    trajectories = list(_read_episodes(config.data.trajectories))
    labels, starts = read_labels(config.data.labels), start_values(trajectories)
    episodes, left_out = [], Counter[str]()
    for trajectory in trajectories:
        targets, cause = _episode_targets(trajectory, labels, starts, config)
        if cause is None:
            episodes.append((trajectory, targets))
        else:
            left_out[cause] += 1
    if not episodes:
        causes = "; ".join(f"{count} {cause}" for cause, count in sorted(left_out.items())) or "there is none at all"
        raise DataError(f"no episode to learn from: {causes}; give labels of these very episodes, or graded episodes")
    if config.prm.objective == "progress" and not any(START in targets for _, targets in episodes):
        raise DataError(
            "progress needs the chance of success before the first step, and no task has an outcome from its start or a "
            f"{MONTE_CARLO_ANNOTATOR} label of a whole episode; give those, or use objective: value"
        )
    return StepCorpus(episodes, dict(sorted(left_out.items())))


def _read_episodes(paths: Sequence[Path]) -> Iterator[Trajectory]:
    """Yield the episodes of files and folders, each once."""
    seen: set[str] = set()
    for path in paths:
        for trajectory in read_folder(path) if path.is_dir() else read_jsonl(path):
            if trajectory.episode_id not in seen:
                seen.add(trajectory.episode_id)
                yield trajectory


def _episode_targets(
    trajectory: Trajectory, labels: LabelsByEpisode, starts: StartValues, config: PrmConfig
) -> tuple[StepTargets, str | None]:
    """Return the targets of an episode, and why it is excluded, if it is."""
    if trajectory.task.role in HELD_OUT:
        return {}, "of held-out tasks"
    if trajectory.has_infrastructure_failure:
        return {}, "ended by the infrastructure"
    if not any(turn.calls for turn in trajectory.turns):
        return {}, "without a step"
    if not config.data.labels:
        if not (result := outcome_targets(trajectory)):
            return {}, "with an unknown outcome"
        outcome = next(iter(result.values()))
        return {**result, **(reply_targets(trajectory, result, outcome) if config.prm.replies else {})}, None
    result = label_targets(trajectory, labels)
    if not result:
        return {}, "without a label"
    if config.prm.replies:
        result = {**result, **reply_targets(trajectory, result)}
    start = starts.get((trajectory.task.task_id, trajectory.task.task_hash))
    if config.prm.objective == "progress" and start is not None and starts_at_first_turn(trajectory):
        result = {START: start, **result}  # a START label of this episode takes precedence over the mean of its task
    return result, None


def split_families(tasks: Sequence[TaskRef], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the indices of training episodes and of held-out episodes. `tasks`: the task of each episode.

    Whole families (tasks, if there is one family) are held out: about `share` of them, at least one, chosen by name and
    `seed`. Raises DataError for episodes of a single task.
    """
    if share == 0:
        return list(range(len(tasks))), []
    names = [task.family or task.task_id for task in tasks]
    if len(set(names)) < 2:
        names = [task.task_id for task in tasks]
    order = sorted(set(names), key=lambda name: hashlib.sha256(f"{seed}\0{name}".encode()).digest())
    if len(order) < 2:
        raise DataError(f"all episodes are of task '{order[0]}': give more tasks, or held_out: 0")
    held_out = set(order[: min(len(order) - 1, max(1, round(share * len(order))))])
    learned = [index for index, name in enumerate(names) if name not in held_out]
    return learned, [index for index, name in enumerate(names) if name in held_out]


def make_examples(
    episodes: Iterable[tuple[Trajectory, StepTargets]], tokenizer: "PreTrainedTokenizerBase", config: PrmConfig
) -> list[StepExample]:
    """Return one example per window with a target or, for `sum_decomposition`, one per episode; episodes of more than
    MAX_WINDOWS windows are then left out.
    """
    result: list[StepExample] = []
    for trajectory, targets in episodes:
        windows = token_windows(trajectory, tokenizer, config.format.max_length, replies=config.prm.replies)
        if config.prm.objective != "sum_decomposition":
            result.extend(example for window in windows if (example := _step_example(window, targets)).targets)
        elif len(windows) <= MAX_WINDOWS:
            result.append(_episode_example(windows, episode_outcome(trajectory) or 0.0))
    return result


def _step_example(window: TokenWindow, targets: StepTargets) -> StepExample:
    """Return an example of the steps of a window that have a target."""
    targeted = _select_steps(window, lambda position: position in targets)
    values = [targets[position] for position in targeted.positions]
    return StepExample([targeted], list(range(len(values))), values)


def _select_steps(window: TokenWindow, is_wanted: Callable[[StepPosition], bool]) -> TokenWindow:
    """Return the window with the ends of the wanted steps alone; its tokens are unchanged."""
    pairs = zip(window.ends, window.positions, strict=True)
    selected = [(end, position) for end, position in pairs if is_wanted(position)]
    return TokenWindow(window.input_ids, [end for end, _ in selected], [position for _, position in selected])


def _episode_example(windows: Sequence[TokenWindow], outcome: float) -> StepExample:
    """Return an example whose steps sum to the episode's outcome; START contributes nothing."""
    steps = [_select_steps(window, lambda position: position != START) for window in windows]
    return StepExample(steps, [0] * sum(len(window.ends) for window in steps), [outcome])
