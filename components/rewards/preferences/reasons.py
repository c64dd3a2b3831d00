"""Why one side of a preference is the better one, in words for a person."""

from components.trajectories.record import Trajectory
from components.trajectories.rendering import one_line

from ..episode_score import EpisodeScore
from .pairing import Preference, Side

_TELLING = ("path", "file_path", "command", "cmd", "pattern", "query", "url", "message", "text", "content", "answer")
SHOWN = 60
"""Characters of an argument, or of a message."""


def why(pair: Preference, chosen: tuple[Trajectory, EpisodeScore], rejected: tuple[Trajectory, EpisodeScore]) -> str:
    """One line: what was done on each side and what it was worth, how both ended, and what the rules or judges held against the
    rejected step."""
    sides = ((pair.chosen, *chosen), (pair.rejected, *rejected))
    better, worse = (f"{what_was_done(trajectory, pair.turn)} {_worth(side)}" for side, trajectory, _ in sides)
    ends = f"chosen {_end(*chosen)}; rejected {_end(*rejected)}"
    faults = _faults(rejected[1], pair.turn) if pair.level == "step" else ""
    return f"{better} rather than {worse}; {ends}{faults}"


def what_was_done(trajectory: Trajectory, turn: int) -> str:
    """The calls of a turn, or its words; of a whole episode (`turn` -1) its length."""
    if turn < 0:
        calls = sum(len(each.calls) for each in trajectory.turns)
        return f"{len(trajectory.turns)} turns with {calls} calls"
    found = trajectory.turns[turn]
    calls_made = [
        "an unreadable call"
        if call.parse_error is not None
        else f"{one_line(call.tool, SHOWN)}({_telling(call.arguments)})"
        for call in found.calls
    ]
    return " + ".join(calls_made) or f"“{one_line(found.text, SHOWN)}”"


def _telling(arguments: dict[str, object]) -> str:
    """The argument that says what a call is about."""
    known = [arguments[name] for name in _TELLING if isinstance(arguments.get(name), str)]
    rest = [value for value in arguments.values() if isinstance(value, str)]
    return one_line(str((known + rest)[0]), SHOWN) if known or rest else ""


def _worth(side: Side) -> str:
    samples = f"{side.samples} sample{'s' if side.samples != 1 else ''}"
    return f"(worth {side.worth:.2f} over {samples})"


def _end(trajectory: Trajectory, score: EpisodeScore) -> str:
    outcome = trajectory.outcome
    solved = {None: "ended with nobody knowing how", True: "succeeded", False: "failed"}[outcome.success]
    tests = f" with {outcome.tests_passed}/{outcome.tests_total} tests" if outcome.tests_total else ""
    parts = [
        f"{name} {value:.2f}"
        for name in ("total", "outcome", "process", "efficiency")
        if (value := getattr(score, name)) is not None
    ]
    return f"{solved}{tests} ({', '.join(parts)})" if parts else f"{solved}{tests}"


def _faults(score: EpisodeScore, turn: int) -> str:
    found = dict.fromkeys(one_line(each.why, 120) for each in score.explanations if each.turn == turn and each.why)
    return f"; against the rejected step: {'; '.join(found)}" if found else ""
