"""The leaderboard as rows of text and as Markdown."""

from collections.abc import Sequence

from ratchet.components.core.errors import count_text
from ratchet.components.evaluation.leaderboard import Leaderboard, LeaderboardRow
from ratchet.components.statistics.result_types import (
    Estimate,
    few_families_remark,
    format_number,
    interval_text,
    percent,
)

from .safe_text import safe_line

_COLUMNS = ("group", "best_rank", "worst_rank", "win_rate", "steps", "tokens", "seconds", "lost")


def leaderboard_headings(board: Leaderboard) -> tuple[str, ...]:
    """Return the headings of `leaderboard_rows`."""
    return (
        "rank",
        "agent",
        board.by,
        f"{100 * board.level:g} % interval",
        "group",
        "wins",
        "steps",
        "tokens",
        "no outcome",
    )


def leaderboard_rows(board: Leaderboard) -> list[tuple[str, ...]]:
    """Return a row of text for each agent; where several ranks are possible, the rank is `2 (1 to 3)`."""
    return [_text_row(place, board.by == "success") for place in board.places]


def leaderboard_columns(board: Leaderboard) -> dict[str, list[object]]:
    """Return the rows as columns of values, for a table in MLflow."""

    def column(name: str) -> list[object]:
        return [getattr(place, name) for place in board.places]

    intervals = [place.value.interval for place in board.places]
    return {
        "rank": column("rank"),
        "agent": column("name"),
        "policy_version": column("policy_version"),
        board.by: [place.value.value for place in board.places],
        "low": [interval and interval.low for interval in intervals],
        "high": [interval and interval.high for interval in intervals],
        **{name: column(name) for name in _COLUMNS},
    }


def leaderboard_caption(board: Leaderboard) -> str:
    """Return the caption: numbers of tasks and families, tasks left out, and the level of the comparisons."""
    left_out = max(place.left_out for place in board.places)
    beyond = f" Tasks that not all agents played are left out (up to {left_out} of one agent)." if left_out else ""
    one = len(board.places) == 1
    groups = (
        ""
        if one
        else f" Agents that share a letter do not differ significantly at {board.alpha:g} ({board.correction})."
    )
    few = " " + few_families_remark(board.n_families)
    wins = (
        f" Rank: by mean {board.by}. Wins: share of tasks at which the agent beats another one, ties counted half, averaged over "
        "the others; it ignores by how much, so the highest rank may have the lowest wins."
    )
    tasks = count_text(board.n_tasks, f"{board.role or ''} task".lstrip())
    return (
        f"{tasks} of {count_text(board.n_families, 'family')}, intervals resampled by "
        f"family.{groups}{'' if one else wins}{beyond}{few}".rstrip()
    )


def leaderboard_markdown(board: Leaderboard) -> str:
    """Return the leaderboard as Markdown: the table, the win matrix and the caption, with names escaped."""
    names = [_escape(place.name) for place in board.places]
    cells = [(line[0], name, *line[2:]) for line, name in zip(leaderboard_rows(board), names, strict=True)]
    parts = [_markdown_table(leaderboard_headings(board), cells), leaderboard_caption(board)]
    if len(names) > 1:
        wins = [
            (name, *("" if rate is None else percent(rate) for rate in row))
            for name, row in zip(names, board.wins(), strict=True)
        ]
        parts += ["Share of tasks at which the agent of the row beats that of the column, ties counted half:"]
        parts += [_markdown_table(("", *names), wins)]
    return "\n\n".join(parts) + "\n"


def _text_row(place: LeaderboardRow, is_rate: bool) -> tuple[str, ...]:
    open_ranks = "" if place.best_rank == place.worst_rank else f" ({place.best_rank} to {place.worst_rank})"
    return (
        f"{place.rank}{open_ranks}",
        place.name,
        *_estimate_text(place.value, is_rate),
        place.group,
        percent(place.win_rate),
        format_number(place.steps),
        format_number(place.tokens),
        str(place.lost),
    )


def _estimate_text(estimate: Estimate, is_rate: bool) -> tuple[str, str]:
    if is_rate:
        return percent(estimate.value), interval_text(estimate)
    interval = estimate.interval
    around = "[no interval]" if interval is None else f"[{interval.low:.3f}, {interval.high:.3f}]"
    return "n/a" if estimate.value is None else f"{estimate.value:.3f}", around


def _markdown_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escape(text: str) -> str:
    """Return a name on one line with everything escaped that Markdown or HTML would interpret."""
    text = safe_line(text)
    # The backslash first, or it would escape the escapes.
    for character in "\\`*_[]<>|":
        text = text.replace(character, "\\" + character)
    return text
