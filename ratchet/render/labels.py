"""Print the results of `label` and `calibrate`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ratchet.components.rewards.calibration.calibration_record import CalibrationPool
from ratchet.components.rewards.calibration.calibration_report import CalibrationReport, describe_scope
from ratchet.components.rewards.human_labels.label_selection import LabelChoice
from ratchet.components.rewards.human_labels.rater_agreement import ClusterEstimate
from ratchet.components.trajectories.terminal_rendering import single_line

from .terminal import print_note, print_table, print_text


def show_choices(chosen: Sequence[LabelChoice]) -> None:
    """Print the steps chosen for labelling, and why each was chosen."""
    rows = [
        (candidate.episode_id, f"{candidate.turn}.{candidate.step}", candidate.kind, why) for candidate, why in chosen
    ]
    print_table(("episode", "step", "kind", "why"), rows)


def show_calibration(report: CalibrationReport) -> None:
    """Print a calibration report."""
    print_text(
        f"{report.labels:,} labels, {report.scores:,} scores of judges, {report.pairs:,} of them labelled; "
        f"calibration {report.version}"
    )
    if report.unmet:
        changed = f", {report.changed:,} of them because the episode's content has changed" if report.changed else ""
        print_note(f"{report.unmet:,} labels have no judge's score to compare with{changed}")
    if report.pools:
        columns = ("pool", "labels", "curve", "MAE", "bias", "ECE", "AUROC", "TNR")
        print_table(
            columns, [_pool_row(pool) for pool in report.pools], title="held-out labels: uncalibrated → calibrated"
        )
    elif report.pairs:
        print_note("too few labels to fit a curve: scores stay uncalibrated")
    if report.judges:
        names = ("spearman", "kendall", "pairwise", "kappa", "mae")
        rows = [
            (
                judge_agreement.judge.partition("@")[0],
                judge_agreement.line or "all criteria",
                judge_agreement.agreement.count,
                *(_estimate_text(getattr(judge_agreement.agreement, name)) for name in names),
            )
            for judge_agreement in report.judges
        ]
        print_table(
            ("judge", "criterion", "labels", *names), rows, title="agreement with people, 95 % intervals by episode"
        )
    if report.people:
        rows = [
            (line, people.things, people.raters, _estimate_text(people.alpha)) for line, people in report.people.items()
        ]
        print_table(("criterion", "items", "people", "Krippendorff's alpha"), rows, title="agreement of people")
    for line in _trust_lines(report):
        print_text(line)
    _show_nights(report)


def _pool_row(pool: CalibrationPool) -> tuple[object, ...]:
    before, after = pool.before, pool.after
    return (
        describe_scope(pool.place),
        before.labels,
        "same as the wider pool" if pool.curve is None else str(pool.curve.__struct_config__.tag),
        _change_text(before.mae, after.mae),
        _change_text(before.bias, after.bias),
        _change_text(before.ece, after.ece),
        _change_text(before.auroc, after.auroc),
        _change_text(before.tnr, after.tnr),
    )


def _change_text(before: float | None, after: float | None) -> str:
    one, other = ("-" if metric is None else f"{metric:.3f}" for metric in (before, after))
    return one if one == other else f"{one} → {other}"


def _estimate_text(estimate: ClusterEstimate) -> str:
    if estimate.value is None:
        return "-"
    return f"{estimate.value:.2f}" + ("" if estimate.low is None else f" [{estimate.low:.2f}, {estimate.high:.2f}]")


def _trust_lines(report: CalibrationReport) -> Iterator[str]:
    for verdict in report.verdicts:
        where = "in all domains" if verdict.domain is None else f"in {single_line(verdict.domain)}"
        yield f"{verdict.layer} {where}: " + ("trusted" if verdict.trusted else f"not trusted: {verdict.why}")


def _show_nights(report: CalibrationReport) -> None:
    if len({drift.night for drift in report.nights}) < 2:
        return
    rows = [
        (
            drift.judge.partition("@")[0],
            drift.night,
            drift.scores,
            f"{drift.mean:.3f}",
            _signed_text(drift.shift),
            _signed_text(drift.bias),
            _signed_text(drift.bias_shift),
            "drifted" if drift.drifted else "",
        )
        for drift in report.nights
    ]
    print_table(
        ("judge", "night", "scores", "mean", "shift", "bias", "bias shift", "remark"), rows, title="drift over nights"
    )


def _signed_text(value: float | None) -> str | None:
    return None if value is None else f"{value:+.3f}"


def note_written(out: Path | None, plot: Path | None) -> None:
    """Print on stderr which files were written; None: not written."""
    for path in (out, plot):
        if path is not None:
            print_note(f"written: {path}")
