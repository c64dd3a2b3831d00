"""Commands that compare agents and nights: compare, leaderboard, history."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import require_clone
from ratchet.render.terminal import print_json, print_text

SETS_HELP = (
    "A folder of episodes, as `ratchet evaluate` leaves it; NIGHT or NIGHT/AGENT; a registered version's number or alias; or a "
    "file of trajectories."
)
SEED_HELP = "Seed of the resampling; default: of the agents of one night that night's, else 0."


def compare(
    sets: Annotated[list[str], Argument(help=f"Two or more. {SETS_HELP}")],
    control: Annotated[str | None, Option(help="With two sets: the control's episodes, for the verdict.")] = None,
    scale: Annotated[str, Option(help="With two sets: the scale whose taskset and promotion rule are used.")] = "smoke",
    by: Annotated[str | None, Option(help="success or reward; default: success, of files reward.")] = None,
    role: Annotated[str | None, Option(help="By success: role of the tasks; default: the deciding ones.")] = None,
    domain: Annotated[
        str | None, Option(help="By reward: domain profile to score with; default: each record's.")
    ] = None,
    judgements: Annotated[list[Path] | None, Option(help="By reward: file or folder of judgements.")] = None,
    calibration: Annotated[Path | None, Option(help="By reward: calibration of the judgements.")] = None,
    seed: Annotated[int | None, Option(help=SEED_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """Compare agents on the same tasks with the first one: difference, interval, tests, and tasks won and lost.

    By success, two sets get the promotion rule's verdict; nothing is promoted. By reward: total, outcome,
    process, efficiency, task by task. Intervals resample families of tasks. Examples:

    `ratchet compare 2026-11-21-a1b2/champion 2026-11-21-a1b2/challenger`

    `ratchet compare 3 4 champion` (registered versions)

    `ratchet compare before.jsonl after.jsonl`
    """
    files = any(Path(name).is_file() for name in sets)
    measure = by or ("reward" if files else "success")
    if measure not in ("success", "reward"):
        raise ConfigurationError(f"agents are compared by success or reward, not by '{by}'")
    if measure == "success":
        if domain or judgements or calibration:
            raise ConfigurationError("--domain, --judgements and --calibration are for files, or --by reward")
        _compare_by_success(sets, control, scale, role, seed, as_json)
        return
    if control is not None or role is not None:
        raise ConfigurationError(
            "--control and --role are only valid when comparing by success; give the control as one more set"
        )
    from ratchet.components.nights.episode_sets import resolve_sets
    from ratchet.components.operations.score_files import EpisodeScorer, compare_files
    from ratchet.render import comparison as pages

    places = [Path(name) for name in sets] if files else [episode_set.path for episode_set in resolve_sets(sets)]
    comparison = compare_files(places, EpisodeScorer(domain, judgements or (), calibration), seed or 0)
    print_json(comparison) if as_json else pages.show_rewards(comparison)


def _compare_by_success(
    sets: Sequence[str], control: str | None, scale: str, role: str | None, seed: int | None, as_json: bool
) -> None:
    from ratchet.components.operations.compare_sets import compare_sets
    from ratchet.render import comparison as pages

    set_comparison = compare_sets(sets, control=control, scale=scale, role=role, seed=seed)
    if not as_json:
        pages.show_set_comparison(set_comparison)
        return
    for pair_comparison in set_comparison.comparisons:
        print_json(pair_comparison)
    if set_comparison.decision is not None:
        print_json(set_comparison.decision)


def leaderboard(
    sets: Annotated[
        list[str] | None, Argument(help=f"Default: the agents of the night that evaluated last. {SETS_HELP}")
    ] = None,
    by: Annotated[str, Option(help="success or reward.")] = "success",
    role: Annotated[str | None, Option(help="Role of the tasks; default: the deciding ones.")] = None,
    alpha: Annotated[
        float, Option(min=0.0001, max=0.5, help="Significance level of a difference between two agents.")
    ] = 0.05,
    seed: Annotated[int | None, Option(help=SEED_HELP)] = None,
    as_json: AsJson = False,
    markdown: Annotated[bool, Option("--markdown", help="As Markdown, with the win matrix.")] = False,
) -> None:
    """Rank agents on the tasks that all of them played, with intervals and groups of indistinguishable agents.

    Example: `ratchet leaderboard 2026-11-21-a1b2 .ratchet/evaluations/by-hand/teacher-s0 --markdown`
    """
    from ratchet.components.operations.compare_sets import leaderboard as board_of
    from ratchet.components.reporting.leaderboard_text import leaderboard_markdown
    from ratchet.render import comparison as pages

    if by not in ("success", "reward"):
        raise ConfigurationError(f"agents are ranked by success or reward, not by '{by}'")
    if as_json and markdown:
        raise ConfigurationError("give --json or --markdown, not both")
    board = board_of(sets or (), role=role, by="reward" if by == "reward" else "success", alpha=alpha, seed=seed)
    if as_json:
        print_json(board)
    elif markdown:
        print_text(leaderboard_markdown(board).rstrip("\n"))
    else:
        pages.show_leaderboard(board)


def history(as_json: AsJson = False) -> None:
    """Show success, lead and verdict of every night, regressions of the champion, and drift of the benchmark.

    Tasks differ from night to night, so only a change beyond both nights' intervals counts. An unchanged agent that played several
    nights serves as control: if its success moved, the benchmark drifted.
    """
    from ratchet.components.evaluation.night_trends import benchmark_drift, consecutive_changes
    from ratchet.components.nights.night_history import night_points
    from ratchet.render import comparison as pages

    require_clone()
    points = night_points()
    if as_json:
        for point in points:
            print_json(point)
        return
    if not points:
        print_text("no nights yet: `ratchet night` starts one")
        return
    pages.show_history(points)
    for change in consecutive_changes(points):
        pages.show_change(change)
    for drift in benchmark_drift(points):
        pages.show_drift(drift)
