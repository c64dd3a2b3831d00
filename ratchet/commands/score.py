"""Commands on rewards: score, preferences."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import refuse_overwriting, write_json_lines
from ratchet.components.core.home import params_file
from ratchet.render.terminal import decimals, multiline_cell, print_json, print_note, print_table, print_text

if TYPE_CHECKING:
    from ratchet.components.operations.score_files import EpisodePreferences
    from ratchet.components.rewards.episode_score import EpisodeScore


SCORE_NAMES = ("total", "outcome", "process", "efficiency")


def score(
    file: Annotated[Path, Argument(help="Trajectories, one JSON line each (a shard), or a folder of shards.")],
    domain: Annotated[str | None, Option(help="Profile of a domain; default: each record's own.")] = None,
    judgements: Annotated[list[Path] | None, Option(help="File or folder of judgements (repeatable).")] = None,
    calibration: Annotated[Path | None, Option(help="Calibration; default: data/calibration.json.")] = None,
    explain: Annotated[bool, Option("--explain", help="Show the score of every step, with reasons.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score trajectories by the process reward: rules, judgements if given, hack detection.

    Weights and layers come from params.yaml. A missing score is null, not zero.

    Example: `ratchet score data/rollouts/2026-11-21-a1b2/shard-00000.jsonl --explain`
    """
    from ratchet.components.operations.score_files import score_path

    scored = []
    for episode_score in score_path(file, domain, judgements or (), calibration):
        if as_json:
            print_json(episode_score)
        elif explain:
            show_explained(episode_score)
        else:
            scored.append(episode_score)
    if scored:
        show_overview(scored)


def show_overview(scored: Sequence["EpisodeScore"]) -> None:
    """Print one line per episode, and their means."""
    from ratchet.components.rewards.reward_formulas import mean_known

    layers = [name for name in ("rules", "judge", "learned") if any(name in episode.layers for episode in scored)]
    rows = [
        (
            episode.episode_id,
            *(decimals(getattr(episode, name)) for name in SCORE_NAMES),
            *(decimals(episode.layers[name].score) if name in episode.layers else None for name in layers),
            _episode_remark(episode),
        )
        for episode in scored
    ]
    means = [decimals(mean_known([getattr(episode, name) for episode in scored])) for name in SCORE_NAMES]
    means += [
        decimals(mean_known([episode.layers[name].score for episode in scored if name in episode.layers]))
        for name in layers
    ]
    known = sum(episode.total is not None for episode in scored)
    print_table(("episode", *SCORE_NAMES, *layers, "remark"), [*rows, (f"mean of {known}", *means, "")])
    if known < len(rows):
        print_text(f"{len(rows) - known} of {len(rows)} episodes have no total and are not in its mean")
    if repeated := len(scored) - len({episode.episode_id for episode in scored}):
        print_note(
            f"{repeated} records repeat an episode and are counted again; `ratchet trajectories convert` drops them"
        )
    print_text("rules, judge, learned: process score of that layer alone; `--explain` shows the steps with reasons")


def show_explained(episode: "EpisodeScore") -> None:
    """Print one episode's scores, its steps and the reasons."""
    totals = (f"{name} {decimals(getattr(episode, name)) or '-'}" for name in SCORE_NAMES)
    print_text("  ".join([episode.episode_id, *totals]))
    why: dict[tuple[int, int], list[str]] = {}
    for reason in episode.explanations:
        line = reason.line if reason.layer in ("rules", reason.line) else f"{reason.layer}, {reason.line}"
        scored = "" if reason.score is None else f" {decimals(reason.score)}"
        why.setdefault((reason.turn, reason.step), []).append(f"{line}{scored}: {' '.join(reason.why.split())}")
    steps = {(step.turn, step.step): decimals(step.total) for step in episode.steps}
    whole = [place for place in why if place not in steps]
    rows = [
        # A negative turn is the whole episode, a negative step the whole turn.
        (
            "all" if turn < 0 else turn,
            "" if step < 0 else step,
            steps.get((turn, step)),
            multiline_cell(why.get((turn, step), ())),
        )
        for turn, step in (*whole, *steps)
    ]
    print_table(("turn", "step", "score", "why"), rows)
    print_text()


def _episode_remark(episode: "EpisodeScore") -> str:
    if not episode.layers:
        return "infrastructure failure"
    hacks = list(
        dict.fromkeys(reason.line for reason in episode.explanations if reason.layer == "guards" and reason.score == 0)
    )
    if not hacks and episode.outcome is None:
        return "outcome unknown"
    return f"hack: {', '.join(hacks)}" if hacks else ""


MAX_PAIRS_SHOWN = 20
"""Pairs in the table; --json and --out give all."""


def preferences(
    files: Annotated[list[Path], Argument(help="Trajectories, one JSON line each, or folders of shards.")],
    domain: Annotated[str | None, Option(help="Profile of a domain; default: each record's own.")] = None,
    level: Annotated[
        list[str] | None, Option(help="step: pairs of messages; trajectory: pairs of episodes (repeatable).")
    ] = None,
    margin: Annotated[
        float | None, Option(help="Minimum difference of value within a pair, above 0, at most 1.")
    ] = None,
    winrate: Annotated[
        bool, Option("--winrate", help="Compare by win rate among the same policy's samples (SPO).")
    ] = False,
    max_length_gap: Annotated[float | None, Option(help="Maximum mean length gap; 1 ignores lengths.")] = None,
    judgements: Annotated[list[Path] | None, Option(help="File or folder of judgements (repeatable).")] = None,
    calibration: Annotated[Path | None, Option(help="Calibration of the judgements.")] = None,
    out: Annotated[Path | None, Option("-o", "--out", help="Write pairs for TRL's DPO trainer.")] = None,
    labels: Annotated[Path | None, Option(help="With --winrate: write win rates as labels (JSON lines).")] = None,
    as_json: AsJson = False,
) -> int:
    """Find preference pairs: messages after the same history, or whole episodes, with reasons.

    Default settings come from the section `pairs` of params.yaml. Exit code 3 where there is no pair; the error says why.
    Example: `ratchet preferences runs.jsonl --level step --out dpo.jsonl`
    """
    from ratchet.components.operations.score_files import EpisodeScorer, pair_config, preferences_in
    from ratchet.components.rewards.preferences.pairs_stage import describe_report

    if labels is not None and not winrate:
        raise ConfigurationError("--labels writes win rates; give --winrate too")
    refuse_overwriting([*files, *(judgements or ())], out, labels)
    levels = tuple(level) if level else None
    config = pair_config(
        levels=levels, margin=margin, worth="winrate" if winrate else None, max_length_gap=max_length_gap
    )
    episode_preferences = preferences_in(files, EpisodeScorer(domain, judgements or (), calibration), config)
    pairs = episode_preferences.made.preferences
    print_note(f"settings, by the options and {params_file() or 'the defaults'}: {config}")
    if out is not None and (trainable_pairs := episode_preferences.trainable()):
        write_json_lines(out, [episode_preferences.row(pair) for pair in trainable_pairs])
        if len(trainable_pairs) < len(pairs):
            print_note(
                f"{len(pairs) - len(trainable_pairs)} pairs of held-out tasks are not written: "
                "they must not be trained on"
            )
    if labels is not None:
        write_json_lines(labels, episode_preferences.win_rates)
    if as_json:
        for pair in pairs:
            print_json(episode_preferences.describe(pair))
        print_json({"summary": episode_preferences.made.report})
        return 0 if pairs else DataError.exit_code
    if not pairs:
        raise DataError(f"{episode_preferences.made.report.why_none(config)}; nothing is written")
    _show_pairs(episode_preferences)
    print_text(describe_report(episode_preferences.made.report))
    if out is not None:
        if not trainable_pairs:
            raise DataError("all pairs are of held-out tasks, which must not be trained on; nothing is written")
        print_text(f"written: {out}")
    return 0


def _show_pairs(episode_preferences: "EpisodePreferences") -> None:
    """Print pairs, largest margins first."""
    ranked = sorted(episode_preferences.made.preferences, key=lambda pair: (-pair.margin, pair))
    rows = [
        (
            pair.task_id,
            pair.level,
            pair.turn if pair.turn >= 0 else None,
            f"{pair.margin:.3f}",
            episode_preferences.why(pair),
        )
        for pair in ranked[:MAX_PAIRS_SHOWN]
    ]
    print_table(("task", "level", "turn", "margin", "why"), rows)
    if len(ranked) > MAX_PAIRS_SHOWN:
        print_note(f"{len(ranked) - MAX_PAIRS_SHOWN} more; --json or --out gives all")
