"""Episode pairs: an episode of the champion and one of the challenger at the same task, side by side from the turn
where they diverge.

Secrets are removed before texts are cut, since half a secret would not be recognised.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ratchet.components.core import ToolCall
from ratchet.components.core.home import inspector_link
from ratchet.components.evaluation.agent_comparison import TaskFlip
from ratchet.components.redaction import Sanitiser
from ratchet.components.statistics.result_types import percent
from ratchet.components.trajectories.trajectory import Trajectory, Turn
from ratchet.components.trajectories.trajectory_diff import find_divergence

from .report_blocks import CollapsedBlocks, Paragraph, QuotedText, ReportBlock, SideBySide, SubsectionTitle

MAX_TURNS_SHOWN = 6
"""Turns shown after the divergence: the first and the last ones."""
BOTH_AGENTS = "both"


class EpisodePair(msgspec.Struct, frozen=True):
    """A task with different success rates, and one redacted episode of each agent at it (see `redact_episode`)."""

    flip: TaskFlip
    champion: Trajectory
    challenger: Trajectory


def redact_episode(trajectory: Trajectory, sanitiser: Sanitiser) -> Trajectory:
    """Return the episode with secrets redacted; an episode that the redaction policy drops is reduced to its facts,
    without texts.
    """
    # Before anything is cut: half a secret would not be recognised.
    redacted_episode, _ = sanitiser.trajectory(trajectory)
    if redacted_episode is not None:
        return redacted_episode
    nothing = msgspec.structs.replace(trajectory.task, description="")
    return msgspec.structs.replace(trajectory, task=nothing, messages=(), turns=(), source_extra={})


def episode_pair_blocks(duel: EpisodePair) -> Iterator[ReportBlock]:
    """Yield the task, the shared turns, then each turn side by side, and both outcomes."""
    flip, champion, challenger = duel.flip, duel.champion, duel.challenger
    first = flip.attempts[0]
    yield SubsectionTitle(f"{'Won' if flip.won else 'Lost'}: {flip.task_id}", "good" if flip.won else "bad")
    yield Paragraph(
        f"{flip.kind}, attempt {champion.attempt}. Of this task's attempts the champion solves {percent(flip.a)}, "
        f"the challenger {percent(flip.b)}.",
        "quiet",
    )
    yield CollapsedBlocks("The task", (QuotedText("task", champion.task.description), *_opening_messages(champion)))
    parting = _count_shared_turns(champion, challenger)
    if parting:
        same = tuple(block for turn in champion.turns[:parting] for block in _turn_blocks(BOTH_AGENTS, turn))
        yield CollapsedBlocks(f"Both begin with the same {'turn' if parting == 1 else _turns_text(parting)}", same)
    yield from _diverged_turns(champion, challenger, parting)
    yield SideBySide(
        (_outcome_block("champion", champion, first.a_success, first.a_cause),),
        (_outcome_block("challenger", challenger, first.b_success, first.b_cause),),
    )


def _opening_messages(trajectory: Trajectory) -> Iterator[QuotedText]:
    """Yield the messages before the first turn that do not repeat the task's description."""
    for message in trajectory.messages:
        if message.content != trajectory.task.description:
            yield QuotedText(message.role, message.content)


def _count_shared_turns(one: Trajectory, two: Trajectory) -> int:
    """Return the number of turns that both begin with; 0 where the messages before them differ already."""
    divergence = find_divergence(one, two)
    if divergence is None:
        return len(one.turns)
    return divergence.turn or 0


def _diverged_turns(champion: Trajectory, challenger: Trajectory, parting: int) -> Iterator[ReportBlock]:
    last = max(len(champion.turns), len(challenger.turns))
    left_out = range(parting + MAX_TURNS_SHOWN // 2, last - MAX_TURNS_SHOWN // 2)
    for number in range(parting, last):
        if number not in left_out:
            yield from _paired_turn(champion.turns[number : number + 1], challenger.turns[number : number + 1])
        elif number == left_out.start:
            yield Paragraph(f"… {_turns_text(len(left_out))} left out …", "quiet")


def _paired_turn(one: Sequence[Turn], two: Sequence[Turn]) -> Iterator[ReportBlock]:
    """Yield a turn of each agent, once where both did the same."""
    if one and two and _turn_content(one[0]) == _turn_content(two[0]):
        yield from _turn_blocks(BOTH_AGENTS, one[0])
    else:
        yield SideBySide(
            tuple(block for turn in one for block in _turn_blocks("champion", turn)),
            tuple(block for turn in two for block in _turn_blocks("challenger", turn)),
        )


def _turn_content(turn: Turn) -> tuple[object, ...]:
    return turn.thought, turn.text, turn.calls, turn.results


def _turn_blocks(who: str, turn: Turn) -> Iterator[QuotedText]:
    """Yield the thought, text, calls and results of a turn."""
    title = f"{who}, turn {turn.index + 1}"
    texts = [text for text in (turn.thought, turn.text) if text]
    if texts or not turn.calls:
        yield QuotedText(title, "\n".join(dict.fromkeys(texts)))
    for call in turn.calls:
        yield QuotedText(f"{title}: {call.tool or 'a call'}", _call_text(call))
    for result in turn.results:
        code = "" if result.exit_code is None else f", exit {result.exit_code}"
        failed = f", error: {result.error}" if result.error else ""
        yield QuotedText(f"answer{code}{failed}", result.content)


def _call_text(call: ToolCall) -> str:
    if call.parse_error is not None:
        return f"{call.raw}\n(unreadable: {call.parse_error})"
    return "\n".join(f"{name}: {_value_text(value)}" for name, value in call.arguments.items())


def _value_text(value: object) -> str:
    if not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return f"\n{value}" if "\n" in value else value


def _outcome_block(who: str, trajectory: Trajectory, success: bool, cause: str) -> QuotedText:
    """Return how the episode counted and why: a hack is no success, whatever the tests report."""
    outcome, failure = trajectory.outcome, trajectory.failure
    tests = f", {outcome.tests_passed} of {outcome.tests_total} tests passed" if outcome.tests_total else ""
    why = cause or outcome.reason
    more = f": {failure.message}" if failure else ""
    summary = f"{'solved' if success else 'not solved'}{tests} ({why}{more}), {_turns_text(len(trajectory.turns))}"
    return QuotedText(f"{who}: end", f"{summary}\n{trajectory.episode_id}", inspector_link(trajectory.episode_id))


def _turns_text(number: int) -> str:
    return f"{number:,} turn" if number == 1 else f"{number:,} turns"
