"""Commands on human labels: label, calibrate."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import open_atomically, read_json_lines, refuse_overwriting
from ratchet.components.core.home import home, params_file
from ratchet.render.terminal import print_json, print_note, print_text

if TYPE_CHECKING:
    from ratchet.components.rewards.annotation_records import Judgement, Label
    from ratchet.components.rewards.human_labels.label_selection import LabelChoice
    from ratchet.components.rewards.human_labels.review_desk import ReviewDesk
    from ratchet.components.trajectories.trajectory import Trajectory

JudgementFiles = Annotated[
    list[Path] | None, Option(help="Files of judgements; default: those of all nights, and .ratchet/judgements.")
]


def label(
    log: Annotated[Path | None, Argument(help="Trajectories: a file, a log, or a folder of either.")] = None,
    budget: Annotated[int, Option(min=1, help="Maximum number of steps to label.")] = 20,
    annotator: Annotated[str | None, Option(help="Name of the annotator; default: your user name.")] = None,
    line: Annotated[
        str, Option(help="What is labelled: a criterion of a rubric, or overall for the whole step.")
    ] = "overall",
    judgements: JudgementFiles = None,
    seed: Annotated[int, Option(help="Seed of the randomly chosen steps.")] = 0,
    only_list: Annotated[bool, Option("--list", help="Only list the chosen steps, and why each was chosen.")] = False,
    import_from: Annotated[Path | None, Option("--import", help="Read labels from a CSV or JSONL file.")] = None,
    export_to: Annotated[Path | None, Option("--export", help="Write all labels to a .csv or .jsonl file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Label single steps as right or wrong. The most informative ones come first: those where judges are unsure or disagree.

    Each answer is saved at once in .ratchet/labels/labels.jsonl; the same command continues where you stopped, and the next
    night seals the new labels. With --import and trajectories every label is checked against them.

    Examples: `ratchet label data/rollouts/2026-11-21-a1b2 --budget 30`, `ratchet label --import labels.csv`
    """
    if import_from is not None or export_to is not None:
        _exchange_labels(log, import_from, export_to, annotator, as_json)
        return

    if log is None:
        raise ConfigurationError(
            "nothing to label was given; give a file of trajectories, or --import or --export a file"
        )
    who = annotator or _user_name()
    chosen = _choose_steps(_read_log(log), judgements, budget, seed, who, line)
    if only_list:
        from ratchet.render.labels import show_choices

        if not as_json:
            show_choices(chosen)
        for candidate, why in chosen if as_json else ():
            print_json({**candidate._asdict(), "why": why})
        return
    if not chosen:
        raise DataError(f"{log} holds no step that {who} has not labelled; give other trajectories")
    from ratchet.render.label_session import LabelSession

    episode_ids = {choice.candidate.episode_id for choice in chosen}
    trajectories = {
        trajectory.episode_id: trajectory for trajectory in _read_log(log) if trajectory.episode_id in episode_ids
    }
    session = LabelSession(trajectories, chosen, _labels_file(), who, line)
    try:
        session.run()
    finally:
        print_note(f"{session.labels} labels by {who} kept in {_labels_file()}")
    if as_json:
        print_json({"labels": session.labels, "annotator": who, "file": str(_labels_file())})


def calibrate(
    judgements: JudgementFiles = None,
    labels: Annotated[list[Path] | None, Option(help="Files of labels; default: all nights' and this home's.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Write the calibration as JSON.")] = None,
    plot: Annotated[Path | None, Option(help="Draw the reliability diagram (PNG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how well judges agree with people, calibrate them, and check them for drift, on held-out episodes.

    A judge's scores of a criterion in a domain get a curve (logistic, beta or isotonic) only where held-out labels show that it
    reduces the error; a layer that is still inaccurate after calibration scores no steps. The nightly build does the same with
    the sealed files.

    Example: `ratchet calibrate --plot reliability.png`
    """
    from ratchet.components.core.configuration import read_section
    from ratchet.components.rewards.calibration.calibration_learning import CalibrationConfig
    from ratchet.components.rewards.calibration.calibration_report import group_by_night, make_report

    refuse_overwriting([*(labels or _label_files()), *(judgements or ())], out, plot)
    config = read_section(params_file(), "calibration", CalibrationConfig)
    human_labels = list(_read_label_files(labels or _label_files()))
    report, calibration = make_report(group_by_night(_read_judgement_files(judgements)), human_labels, config)
    if out is not None:
        calibration.save(out)
    if plot is not None:
        from ratchet.components.rewards.calibration.calibration_report import reliability_diagram

        drawn = reliability_diagram(calibration)
        with open_atomically(plot) as file:
            file.write(drawn)
    from ratchet.render.labels import note_written, show_calibration

    if as_json:
        print_json(report)
    else:
        show_calibration(report)
    note_written(out, plot)


def open_review_desk(paths: list[Path], reviewer: str) -> "ReviewDesk":
    """Return the review desk of a person on the given logs, by default the sealed nights, and on the pairs of the last
    build. Raises ConfigurationError for an invalid name, DataError where there is nothing to review.
    """
    from itertools import chain

    from ratchet.components.datasets.export.ranked_episodes import read_pairs
    from ratchet.components.rewards.human_labels.review_desk import ProposedPair, open_desk

    logs = paths or sorted(path for path in Path("data/rollouts").glob("[!.]*") if path.is_dir())
    if not logs:
        raise DataError("there is no sealed night to review here; run a night first, or give files of trajectories")
    table = Path("data/pairs.parquet")
    pairs = (
        ProposedPair(pair.chosen_episode_id, pair.rejected_episode_id, pair.turn, pair.margin, pair.task_id)
        for pair in (read_pairs(table) if table.is_file() else ())
    )
    judgements = (judgement for _, judgement in _read_judgement_files(None))
    *sealed, local = [*sorted(Path("data/labels").glob(f"*/{_labels_file().name}")), _labels_file()]
    return open_desk(reviewer, lambda: chain.from_iterable(map(_read_log, logs)), judgements, pairs, local, sealed)


def _exchange_labels(
    log: Path | None, import_from: Path | None, export_to: Path | None, annotator: str | None, as_json: bool
) -> None:
    """Import labels from a table, and export them to one."""
    from datetime import UTC, datetime

    from ratchet.components.rewards.calibration.labelled_scores import latest_labels
    from ratchet.components.rewards.human_labels.label_files import (
        add_labels,
        export_labels,
        import_labels,
        label_subjects,
    )

    counts: dict[str, int] = {}
    if import_from is not None:
        subjects = label_subjects(_read_log(log)) if log is not None else None
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        labels = import_labels(import_from, subjects, annotator=annotator or "", labelled_at=now)
        counts = {"read": len(labels), "new": add_labels(_labels_file(), labels)}
    if export_to is not None:
        refuse_overwriting(_label_files() if log is None else [*_label_files(), log], export_to)
        counts["written"] = export_labels(export_to, latest_labels(_read_label_files(_label_files())))
    if as_json:
        print_json(counts)
    else:
        print_text(", ".join(f"{count:,} {name}" for name, count in counts.items()))


def _choose_steps(
    trajectories: Iterable["Trajectory"], judgements: list[Path] | None, budget: int, seed: int, who: str, line: str
) -> list["LabelChoice"]:
    """Choose steps that this annotator has not labelled yet."""
    from ratchet.components.rewards.human_labels.label_selection import choose_steps

    done = {
        (human_label.episode_id, human_label.turn, human_label.step)
        for human_label in _read_label_files(_label_files())
        if human_label.annotator == who and human_label.line == line
    }
    read = (judgement for _, judgement in _read_judgement_files(judgements))
    return choose_steps(trajectories, read, budget, seed, done)


def _read_log(log: Path) -> Iterator["Trajectory"]:
    from ratchet.components.interop.log_conversion import LogStream

    return iter(LogStream(log))


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise ConfigurationError("the user name cannot be determined; give --annotator") from error


def _labels_file() -> Path:
    from ratchet.components.rewards.annotation_records import LABELS_FILE

    return home() / "labels" / LABELS_FILE


def _label_files() -> list[Path]:
    sealed = sorted(Path("data/labels").glob("*/labels.jsonl"))
    return [*sealed, *([_labels_file()] if _labels_file().is_file() else [])]


def _read_label_files(paths: Iterable[Path]) -> Iterator["Label"]:
    from ratchet.components.rewards.human_labels.label_files import read_labels

    return (human_label for path in paths for human_label in read_labels(path))


def _read_judgement_files(files: list[Path] | None) -> Iterator[tuple[str, "Judgement"]]:
    """Yield judgements without duplicates, with their night: its name if sealed, else the day."""
    from ratchet.components.rewards.annotation_records import JUDGEMENTS_FILE, Judgement

    own = home() / "judgements" / JUDGEMENTS_FILE
    seen: set[str] = set()
    for path in files or [
        *sorted(Path("data/judgements").glob(f"*/{JUDGEMENTS_FILE}")),
        *([own] if own.is_file() else []),
    ]:
        sealed = path.name == JUDGEMENTS_FILE and path.parent.parent.name == "judgements"
        # A judge may be appending to the cache now: an incomplete last line is skipped.
        for judgement in read_json_lines(path, Judgement, skip_partial=True):
            if judgement.key not in seen:
                seen.add(judgement.key)
                yield path.parent.name if sealed else judgement.judged_at[:10], judgement
