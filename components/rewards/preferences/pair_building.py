"""Build preference pairs of single turns and of whole episodes, then remove duplicates, contradictions and a length
bias.

Episodes of one task with the same opening form a tree: they share turns until one acts differently. The *options* at a
fork are the different actions taken there (for whole episodes: the different courses of action), each worth the mean of
the samples that took it. Actions that differ by padding alone are one option. Options are paired best with worst, then
second best with second worst, and so on, as long as both the options and the two representing episodes differ by at
least `margin`. The chosen episode must be accepted and no known failure. Each option occurs once per fork, so pairs of
a fork never contradict each other. Where only a result differs there is no fork: the environment differed, not the
agent.

Duplicates, contradictions and length bias are removed over all pairs of a build: tasks may have equal texts under
different names, and a preference for length shows only over many pairs (Singhal et al. 2023, arXiv:2310.03716).
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from fractions import Fraction
from math import fsum
from typing import Annotated, Literal, NamedTuple

import msgspec
import pydantic

from ratchet.components.core.configuration import Configuration
from ratchet.components.trajectories.chat_messages import edited_turn
from ratchet.components.trajectories.trajectory import digest

from ..annotation_records import PREFERRED_TO, WHOLE, Label
from ..calibration.labelled_scores import mean_label, settled_labels
from .comparable_episodes import ComparableEpisode, TurnDigest, digest_turn
from .episode_worth import BranchTree, with_win_rates

PairLevel = Literal["step", "trajectory"]


class SideSummary(NamedTuple):
    """Summary of one side of a pair, a message or a whole episode. `hash`: of the message or of all messages.

    `tools`: names of the called tools in order. `text_length`: characters of the text without calls, mean per turn.
    `length`: characters of the whole output, with calls.
    """

    hash: str
    tools: tuple[str, ...]
    text_length: float
    length: int

    @classmethod
    def of(cls, moves: Sequence[TurnDigest]) -> "SideSummary":
        """Summarise the turns of one side."""
        if len(moves) == 1:
            return cls(moves[0].message_hash, moves[0].tools, float(moves[0].text_length), moves[0].length)
        words = sum(move.text_length for move in moves) / max(1, len(moves))
        tools = tuple(tool for move in moves for tool in move.tools)
        return cls(digest([move.message_hash for move in moves]), tools, words, sum(move.length for move in moves))


class PreferenceSide(NamedTuple):
    """One side of a pair: the episode that represents its option, the worth of the option (mean over its samples), and
    the number of its samples.
    """

    episode_id: str
    worth: float
    samples: int
    summary: SideSummary


class Preference(NamedTuple):
    """One pair. `turn`: the assistant turn in which the sides differ, -1 for whole episodes; `context`: hash of all
    messages before the sides; `edit`: the message that a person wrote in place of the chosen one (see `Label.edit`).
    """

    task_id: str
    level: PairLevel
    turn: int
    chosen: PreferenceSide
    rejected: PreferenceSide
    context: str
    edit: str = ""

    @property
    def margin(self) -> float:
        """Difference of worth, rounded to nine digits because float sums differ in the last ones."""
        return round(self.chosen.worth - self.rejected.worth, 9)

    @property
    def length_gap(self) -> float:
        """Relative length difference (chosen - rejected) / (chosen + rejected), in [-1, 1].

        Sides that call the same tools are compared by their whole output; others by their text without calls, per turn:
        an edit is longer than a search by nature.
        """
        one, other = self.chosen.summary, self.rejected.summary
        chosen, rejected = (
            (one.length, other.length) if one.tools == other.tools else (one.text_length, other.text_length)
        )
        return (chosen - rejected) / (chosen + rejected) if chosen + rejected else 0.0


class OptionEpisode(NamedTuple):
    """An episode that took an option. `worth`: its value after the message. `is_sample`: it generated the message
    itself; otherwise it inherited the message from its parent.
    """

    episode: ComparableEpisode
    worth: float
    is_sample: bool
    summary: SideSummary


Forks = Iterable[tuple[str, int, str, dict[Hashable, list[OptionEpisode]]]]
"""(task, turn, context, episodes by option)"""


def _step_forks(episodes: Sequence[ComparableEpisode]) -> Forks:
    """Yield the forks turn by turn, as long as two episodes share their history."""
    tree = BranchTree(episodes)
    forks = []
    by_history: dict[tuple[str, str], list[ComparableEpisode]] = defaultdict(list)
    for episode in episodes:
        by_history[episode.start, episode.opening_hash].append(episode)
    turn = 0
    while by_history:
        next_by_history: dict[tuple[str, str], list[ComparableEpisode]] = defaultdict(list)
        for (start, history), members in by_history.items():
            longer = [episode for episode in members if len(episode.moves) > turn]
            if len(longer) < 2:
                continue
            options: dict[Hashable, list[OptionEpisode]] = defaultdict(list)
            for episode in longer:
                move = episode.moves[turn]
                value, is_sample = tree.value(episode, turn), tree.wrote_turn(episode, turn)
                options[move.calls_hash].append(OptionEpisode(episode, value, is_sample, SideSummary.of([move])))
                next_by_history[start, digest(history, move.message_hash, move.results_hash)].append(episode)
            forks.append((start, turn, history, longer[0].task_id, options))
        by_history, turn = next_by_history, turn + 1
    for _, turn, history, task_id, options in sorted(forks, key=lambda fork: fork[:3]):
        yield task_id, turn, history, options


def _trajectory_forks(episodes: Sequence[ComparableEpisode]) -> Forks:
    starts: dict[str, dict[Hashable, list[OptionEpisode]]] = defaultdict(lambda: defaultdict(list))
    for episode in episodes:
        if not episode.moves:  # nothing was said: there is nothing to imitate or to avoid
            continue
        option_episode = OptionEpisode(episode, episode.worth, True, SideSummary.of(episode.moves))
        starts[episode.start][_distinct_steps(episode.moves)].append(option_episode)
    for _, options in sorted(starts.items(), key=lambda start: start[0]):
        episode = next(iter(options.values()))[0].episode
        yield episode.task_id, WHOLE, episode.opening_hash, options


def _distinct_steps(moves: Sequence[TurnDigest]) -> tuple[tuple[str, str], ...]:
    """Return the (calls, results) hashes of an episode without immediate repetitions, which are padding."""
    steps = [(move.calls_hash, move.results_hash) for move in moves]
    return tuple(step for index, step in enumerate(steps) if index == 0 or step != steps[index - 1])


def pairs_of_level(
    level: PairLevel, episodes: Sequence[ComparableEpisode], margin: float, left_out: Counter[str], min_samples: int = 1
) -> Iterator[Preference]:
    """Yield pairs of single messages after the same history (`step`) or of whole episodes of one task (`trajectory`),
    in a fixed order. `margin`: least difference of worth; `min_samples`: least samples of an option. Forks without a pair
    are added to the counts in `left_out`.
    """
    forks = _step_forks(episodes) if level == "step" else _trajectory_forks(episodes)
    for task_id, turn, context, by_action in forks:
        options = [_Option(members) for members in by_action.values() if any(member.is_sample for member in members)]
        if len(options) < 2:
            left_out["padding"] += any(
                len({member.summary for member in members}) > 1 for members in by_action.values()
            )
            continue
        options = [option for option in options if option.samples >= min_samples]
        pairs = list(_pair_inwards(options, margin))
        left_out["margin" if len(options) > 1 else "samples"] += not pairs
        for chosen, rejected in pairs:
            yield Preference(task_id, level, turn, chosen, rejected, context)


class _Option:
    """One option of a fork with at least one sample. `best` represents it when chosen, `worst` when rejected.

    Only samples determine the worth. Branches of the same policies may represent it too, because they contain the
    message.
    """

    def __init__(self, members: list[OptionEpisode]) -> None:
        samples = [member for member in members if member.is_sample]
        policies = {member.episode.policy for member in samples}
        representable = [member for member in members if member.episode.policy in policies]
        self.samples = len(samples)
        self.worth = fsum(member.worth for member in samples) / len(samples)
        allowed = [member for member in representable if member.episode.may_be_chosen]
        self.best = max(allowed, key=_by_worth_then_brevity, default=None)
        self.worst = min(representable, key=lambda member: (member.episode.worth, member.episode.episode_id))

    def as_side(self, option_episode: OptionEpisode) -> PreferenceSide:
        """Return the option as one side of a pair, represented by `option_episode`."""
        return PreferenceSide(option_episode.episode.episode_id, self.worth, self.samples, option_episode.summary)


def _by_worth_then_brevity(option_episode: OptionEpisode) -> tuple[float, int, str]:
    return option_episode.episode.worth, -option_episode.summary.length, option_episode.episode.episode_id


def _pair_inwards(options: list[_Option], margin: float) -> Iterator[tuple[PreferenceSide, PreferenceSide]]:
    """Yield (best, worst), then (second best, second worst), and so on: each option once."""
    ranked = sorted(options, key=lambda option: (option.worth, option.worst.episode.episode_id))
    low, high = 0, len(ranked) - 1
    while low < high:
        best, worst = ranked[high], ranked[low]
        if best.worth - worst.worth < margin:
            return
        # No episode of the best option may be chosen, or its representatives differ too little: try the next best.
        if best.best is None or best.best.episode.worth - worst.worst.episode.worth < margin:
            high -= 1
            continue
        yield best.as_side(best.best), worst.as_side(worst.worst)
        low, high = low + 1, high - 1


class LengthGap(msgspec.Struct, frozen=True):
    """Mean length gap of the pairs of one level before (`found`) and after (`kept`) limiting it; None without pairs."""

    found: float | None
    kept: float | None


def drop_duplicates(pairs: Sequence[Preference], left_out: Counter[str]) -> list[Preference]:
    """Keep each comparison of equal texts in equal context once, and drop both sides of a contradiction: pairs of the
    same texts with opposite preference. Dropped pairs are added to the counts in `left_out`.
    """
    compared = {_comparison_key(pair) for pair in pairs}
    pair_by_key: dict[tuple[str, ...], Preference] = {}
    for pair in sorted(pairs):
        key = _comparison_key(pair)
        if (*key[:2], key[3], key[2]) in compared:
            left_out["contradictions"] += 1
        elif key in pair_by_key:
            left_out["duplicates"] += 1
        else:
            pair_by_key[key] = pair
    return list(pair_by_key.values())


def _comparison_key(pair: Preference) -> tuple[str, ...]:
    return pair.level, pair.context, pair.chosen.summary.hash, pair.rejected.summary.hash


def mean_length_gap(pairs: Sequence[Preference]) -> float | None:
    """Return the mean length gap; None without pairs."""
    return fsum(pair.length_gap for pair in pairs) / len(pairs) if pairs else None


def limit_length_gap(pairs: Sequence[Preference], bound: float, left_out: Counter[str]) -> list[Preference]:
    """Drop the pairs with the largest gaps in the direction of the mean, one by one, until the mean gap is within
    ±`bound`. Dropped pairs are added to the counts in `left_out`.
    """
    ranked = sorted(pairs, key=lambda pair: (pair.length_gap, pair))
    gaps = [Fraction(pair.length_gap) for pair in ranked]  # exact, so that one after the other can be taken off the sum
    total, limit = sum(gaps, Fraction()), Fraction(bound)
    low, high = 0, len(ranked)
    while low < high and abs(total) > limit * (high - low):
        if total > 0:
            high -= 1
            total -= gaps[high]
        else:
            total -= gaps[low]
            low += 1
    left_out["length"] += len(ranked) - (high - low)
    return ranked[low:high]


class PairVerdict(NamedTuple):
    """Decision of people on a pair. `turn` -1: whole episodes. `content_hash`: of the chosen episode that they saw, empty
    if not recorded. `edit`: as in `Label`, the latest one.
    """

    chosen_episode_id: str
    rejected_episode_id: str
    turn: int
    content_hash: str
    accepted: bool
    edit: str = ""


def pair_verdicts(labels: Iterable[Label]) -> list[PairVerdict]:
    """Return the decisions in labels of pairs: an adjudication, else the mean label. People who are evenly divided decide
    nothing.
    """
    by_pair: dict[tuple[str, str, int, str], list[Label]] = defaultdict(list)
    for label in settled_labels(labels):
        if label.line.startswith(PREFERRED_TO):
            rejected = label.line.removeprefix(PREFERRED_TO)
            by_pair[label.episode_id, rejected, label.turn, label.content_hash].append(label)
    values = {pair: mean_label(of_pair) for pair, of_pair in sorted(by_pair.items())}
    edits = {
        pair: max((label.labelled_at, label.annotator, label.edit) for label in of_pair if label.edit)[2]
        for pair, of_pair in by_pair.items()
        if any(label.edit for label in of_pair)
    }
    return [
        PairVerdict(*pair, accepted=value > 0.5, edit=edits.get(pair, "") if value > 0.5 else "")
        for pair, value in values.items()
        if value != 0.5
    ]


def apply_verdicts(
    level: PairLevel,
    pairs: Sequence[Preference],
    episodes: Sequence[ComparableEpisode],
    verdicts: Iterable[PairVerdict],
    left_out: Counter[str],
) -> tuple[list[Preference], list[Preference]]:
    """Return (the pairs that nobody decided on, the accepted pairs). Pairs with the texts of a rejected one, and the
    reverse of an accepted one, are dropped and counted in `left_out`.

    An accepted pair may have a smaller margin than the build asks for, but not a negative one: the gate refuses a pair
    whose chosen side has the lower reward.
    """
    tree = BranchTree(episodes)
    by_id = {episode.episode_id: episode for episode in episodes}
    accepted: dict[tuple[str, ...], Preference] = {}
    rejected: set[tuple[str, ...]] = set()
    replaced: set[tuple[str, ...]] = set()
    for verdict in verdicts:
        if (verdict.turn == WHOLE) != (level == "trajectory"):
            continue
        chosen, other = by_id.get(verdict.chosen_episode_id), by_id.get(verdict.rejected_episode_id)
        if chosen is None or other is None or verdict.content_hash not in ("", chosen.content_hash):
            continue
        pair = _reviewed_pair(level, verdict.turn, chosen, other, tree)
        if pair is None:
            continue
        if not verdict.accepted:
            rejected.add(_comparison_key(pair))
        elif pair.margin > 0 and chosen.may_be_chosen:
            # The pair that was proposed is replaced: its chosen message is not what the person would have written.
            replaced.add(_comparison_key(pair))
            pair = _with_edit(pair, verdict.edit)
            if pair.chosen.summary.hash != pair.rejected.summary.hash:
                accepted[_comparison_key(pair)] = pair
    accepted = {key: pair for key, pair in accepted.items() if key not in rejected}
    reverse = {(*key[:2], key[3], key[2]) for key in accepted}
    undecided = [pair for pair in pairs if _comparison_key(pair) not in accepted.keys() | replaced]
    kept = [pair for pair in undecided if _comparison_key(pair) not in rejected | reverse]
    left_out["rejected"] += len(undecided) - len(kept)
    return kept, list(accepted.values())


def _reviewed_pair(
    level: PairLevel, turn: int, chosen: ComparableEpisode, rejected: ComparableEpisode, tree: BranchTree
) -> Preference | None:
    """Return the pair of two episodes; None where they no longer are one: they share no history up to the turn."""
    both = (chosen, rejected)
    if chosen.start != rejected.start or any(len(side.moves) <= max(turn, 0) for side in both):
        return None
    context = _history_hash(chosen, max(turn, 0))
    if context != _history_hash(rejected, max(turn, 0)):
        return None
    summaries = [SideSummary.of(side.moves if turn == WHOLE else [side.moves[turn]]) for side in both]
    if summaries[0].hash == summaries[1].hash:
        return None
    worths = [side.worth if turn == WHOLE else tree.value(side, turn) for side in both]
    sides = [
        PreferenceSide(side.episode_id, worth, 1, summary)
        for side, worth, summary in zip(both, worths, summaries, strict=True)
    ]
    return Preference(chosen.task_id, level, turn, sides[0], sides[1], context)


def _with_edit(pair: Preference, edit: str) -> Preference:
    """Return the pair with a person's message as its chosen side; a pair of whole episodes has none."""
    if not edit or pair.turn == WHOLE:
        return pair
    chosen = pair.chosen._replace(summary=SideSummary.of([digest_turn(edited_turn(edit))]))
    return pair._replace(chosen=chosen, edit=edit)


def _history_hash(episode: ComparableEpisode, turn: int) -> str:
    history = episode.opening_hash
    for move in episode.moves[:turn]:
        history = digest(history, move.message_hash, move.results_hash)
    return history


LEFT_OUT = (
    "no_worth",
    "no_parent",
    "padding",
    "samples",
    "margin",
    "duplicates",
    "contradictions",
    "rejected",
    "length",
)


class PairConfig(Configuration):
    """Configuration of the pairs. `margin`: least difference of worth within a pair. `levels`: kinds of pairs to build.

    `worth`: the total of an episode, or its win rate among its policy's samples. `max_length_gap`: bound on the
    absolute mean length gap of a level; at .2 chosen sides are at most about half as long again as rejected ones, at 1
    there is no bound. `min_samples`: least number of samples of either option.
    """

    margin: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.05
    min_samples: Annotated[int, pydantic.Field(ge=1)] = 1
    levels: tuple[PairLevel, ...] = ("step", "trajectory")
    worth: Literal["total", "winrate"] = "total"
    max_length_gap: Annotated[float, pydantic.Field(ge=0, le=1)] = 0.2


class PairReport(msgspec.Struct, frozen=True):
    """Result of a build. `pairs`: number by level. `left_out`: numbers of episodes, forks and pairs that were left out,
    by reason:

    `no_worth`: episodes without a score (or without another sample, for win rates); `no_parent`: branches whose
    parent's turns are missing; `padding`: forks whose messages differ by padding alone; `samples`: forks without two
    options of `min_samples` samples; `margin`: forks whose options differ by less than the margin, or where the better
    ones may not be chosen; `duplicates`, `contradictions`, `rejected` (by people), `length`: pairs.
    """

    episodes: int
    pairs: dict[str, int]
    left_out: dict[str, int]
    length_gap: dict[str, LengthGap]

    def why_none(self, config: PairConfig) -> str:
        """Explain a report without pairs in one sentence."""
        reasons = {
            "no_worth": "episodes have no reward",
            "no_parent": "branches lack their parent",
            "padding": "forks differ by padding alone",
            "samples": f"forks have no two options of {config.min_samples} samples",
            "margin": f"forks differ by less than the margin {config.margin:g}, or their better side is a known failure",
            "contradictions": "pairs contradict each other",
            "rejected": "pairs were rejected by people",
            "length": f"pairs exceed max_length_gap {config.max_length_gap:g}",
        }
        counted = [f"{self.left_out[name]} {reason}" for name, reason in reasons.items() if self.left_out.get(name)]
        levels = " and ".join(config.levels)
        why = "; ".join(counted) or "no two attempts at one task act differently after the same history"
        return f"no {levels}-level pair among {self.episodes} episodes: {why}"


class BuiltPairs(NamedTuple):
    """The pairs, sorted as by `make_pairs`, and the report."""

    preferences: list[Preference]
    report: PairReport


def make_pairs(
    episodes: Sequence[ComparableEpisode],
    config: PairConfig,
    before: Counter[str] | None = None,
    verdicts: Sequence[PairVerdict] = (),
) -> BuiltPairs:
    """Return the distinct pairs that `config` allows, sorted by task, level, turn and sides, and a report of what was
    left out. The order of the episodes does not matter.

    `before`: counts of what was left out in earlier steps, to be added to `PairReport.left_out`. `verdicts`: decisions
    of people, which outrank the margin and the bound on lengths.
    """
    left_out = Counter(before)
    compared = list(episodes) if config.worth == "total" else with_win_rates(episodes)
    left_out["no_worth"] += len(episodes) - len(compared)
    compared.sort(key=lambda episode: episode.episode_id)
    pairs: list[Preference] = []
    gaps: dict[str, LengthGap] = {}
    for level in dict.fromkeys(config.levels):
        found = pairs_of_level(level, compared, config.margin, left_out, config.min_samples)
        distinct = drop_duplicates(list(found), left_out)
        undecided, accepted = (
            apply_verdicts(level, distinct, compared, verdicts, left_out) if verdicts else (distinct, [])
        )
        balanced = [*limit_length_gap(undecided, config.max_length_gap, left_out), *accepted]
        gaps[level] = LengthGap(mean_length_gap(distinct), mean_length_gap(balanced))
        pairs += balanced
    counts: Counter[str] = Counter(pair.level for pair in pairs)
    report = PairReport(
        len(compared), {level: counts[level] for level in gaps}, {name: left_out[name] for name in LEFT_OUT}, gaps
    )
    return BuiltPairs(sorted(pairs), report)
