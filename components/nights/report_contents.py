"""Gather the contents of a night's report from its state, the data's reports and its episodes.

Each part is gathered on its own: what is missing or damaged is named in the report, and the rest is shown.
"""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ratchet.components.core import DataError
from ratchet.components.datasets.versioning.dvc_lock import dvc_md5
from ratchet.components.datasets.versioning.run_build import local_folder
from ratchet.components.evaluation.agent_comparison import TaskFlip, flips, most_informative_flips
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.evaluation.night_trends import NightPoint, benchmark_drift, consecutive_changes
from ratchet.components.evaluation.promotion.decision_record import Decision
from ratchet.components.redaction import Sanitiser
from ratchet.components.reporting.episode_pairs import EpisodePair, redact_episode
from ratchet.components.reporting.evaluation_figures import (
    cost_success_figure,
    difference_figure,
    episode_length_figure,
    failure_cause_figure,
    learning_curve_figure,
    reward_figure,
    success_figure,
)
from ratchet.components.reporting.figure_canvas import RenderedFigure
from ratchet.components.reporting.night_report import FailedExpectation, NightReport, StageVerdict
from ratchet.components.reporting.report_blocks import ReportFigure
from ratchet.components.trajectories.shards import read_folder
from ratchet.components.trajectories.trajectory import Trajectory

from .episode_sets import NightEpisodes, night_episodes
from .night_history import build_night_point, night_points
from .night_state import Night, night_decision

T = TypeVar("T")
NONE: list[NightPoint] = []
AGENTS = ("champion", "control", "challenger", "anchor")
"""Order of agents in figures."""
TITLES = {
    "difference_forest": "Lead by kind of task",
    "success_bars": "Success",
    "learning_curves": "Success over the nights",
    "cost_quality": "Success against cost",
    "failure_confusion": "How the same attempts ended",
    "length_distribution": "Length of the episodes",
    "reward_distribution": "Rewards of the episodes",
}
"""Figures of a report in order, with their captions."""


class PartCollector:
    """Collects in `missing` one sentence for each part that could not be gathered."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def gather(self, title: str, work: Callable[[], T], default: T) -> T:
        """Return the result of `work`, or `default` where it fails; add the failure to `missing` under `title`."""
        try:
            return work()
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            self.missing.append(f"{title}: {reason}.")
            return default


def gather_report(
    night: Night, error: str | None = None, ended: str | None = None, played: NightEpisodes | None = None
) -> NightReport:
    """Gather the report of a night. `error`: the line with which it failed; `ended`: when it failed or was
    done; `played`: episodes that were read already (None: they are read).

    Missing or damaged parts are listed in the report; they raise nothing.
    """
    parts = PartCollector()
    episodes = played or night_episodes(night.id)
    decision = parts.gather("the decision", lambda: night_decision(night), None)
    point = parts.gather(
        "the night's figures", lambda: build_night_point(night), NightPoint(night.id, night.begun, night.scale)
    )
    points = parts.gather("the nights before", lambda: _before(night), NONE)
    no_agents: dict[str, AgentResult] = {}
    agents = parts.gather("the agents' episodes", lambda: _played(episodes), no_agents) if decision else no_agents
    before = next((candidate for candidate in reversed(points) if candidate.taskset_hash == point.taskset_hash), None)
    return NightReport(
        state="failed" if error else "finished" if ended else "unfinished",
        point=point,
        seed=night.seed,
        decision=decision,
        error=error,
        ended=ended,
        done=len(night.results),
        last=next(reversed(night.seconds), None),
        before=before,
        changes=consecutive_changes((before, point)) if before and decision else (),
        drifts=tuple(candidate for candidate in benchmark_drift([*points, point]) if candidate.has_drifted()),
        flips=parts.gather("the tasks won and lost", lambda: _flips(agents), ()),
        duels=parts.gather("the episodes side by side", lambda: _duels(episodes.folders, agents), ()),
        pictures=_pictures(parts, decision, agents, [*points, point]) if decision else (),
        verdicts=parts.gather("the verdicts on the data", lambda: _verdicts(night, failed=error is not None), ()),
        version=parts.gather("the challenger's version", lambda: _version(night, "register challenger"), None),
        holder=parts.gather("who holds the place", lambda: _holder(night), None),
        missing=tuple(parts.missing),
    )


class _Registered(msgspec.Struct):
    version: int | None = None


def _version(night: Night, step: str) -> int | None:
    """Return the registered version that a step returned."""
    registered = night.result(step, _Registered)
    return None if registered is None else registered.version


def _holder(night: Night) -> int | None:
    """Return the version that kept `champion` although the night decided to move it; None where there was none."""
    for step, agent_step in (("promote", "register challenger"), ("roll back", "anchor")):
        champion = night.result(step, int)
        if champion is not None and champion != _version(night, agent_step):
            return champion
    return None


def _before(night: Night) -> list[NightPoint]:
    """Return the nights that were decided before this one began, oldest first."""
    earlier_points = (point for point in night_points() if point.begun < night.begun and point.night != night.id)
    return [point for point in earlier_points if point.verdict is not None]


def _played(episodes: NightEpisodes) -> dict[str, AgentResult]:
    return {name: episodes.results[name] for name in AGENTS if name in episodes.results}


def _flips(played: Mapping[str, AgentResult]) -> tuple[TaskFlip, ...]:
    if "champion" not in played or "challenger" not in played:
        return ()
    return flips(played["champion"], played["challenger"], "promote")


def _duels(folders: Mapping[str, Path], played: Mapping[str, AgentResult]) -> tuple[EpisodePair, ...]:
    shown_flips = most_informative_flips(_flips(played))
    if not shown_flips:
        return ()
    first_attempts = [flip.attempts[0] for flip in shown_flips]
    champion_episodes = _episodes(folders["champion"], {attempt.a_episode for attempt in first_attempts})
    challenger_episodes = _episodes(folders["challenger"], {attempt.b_episode for attempt in first_attempts})
    return tuple(
        EpisodePair(flip, champion_episodes[attempt.a_episode], challenger_episodes[attempt.b_episode])
        for flip, attempt in zip(shown_flips, first_attempts, strict=True)
    )


def _episodes(folder: Path, episode_ids: set[str]) -> dict[str, Trajectory]:
    """Return episodes without their secrets. Raises DataError for a missing one."""
    sanitiser = Sanitiser()
    episodes = {
        trajectory.episode_id: redact_episode(trajectory, sanitiser)
        for trajectory in read_folder(folder, verify=False)
        if trajectory.episode_id in episode_ids
    }
    if missing := episode_ids - episodes.keys():
        raise DataError(f"{folder} has no episode {min(missing)}; was it removed since the night?")
    return episodes


def _pictures(
    parts: PartCollector, decision: Decision, played: Mapping[str, AgentResult], points: list[NightPoint]
) -> tuple[ReportFigure, ...]:
    drawers: dict[str, Callable[[], RenderedFigure]] = {
        "difference_forest": lambda: difference_figure(decision),
        "success_bars": lambda: success_figure(decision),
    }
    if len(points) > 1:
        drawers["learning_curves"] = lambda: learning_curve_figure(points)
    if "champion" in played and "challenger" in played:
        drawers["cost_quality"] = lambda: cost_success_figure(played)
        drawers["failure_confusion"] = lambda: failure_cause_figure(played["champion"], played["challenger"])
        drawers["length_distribution"] = lambda: episode_length_figure(played)
        drawers["reward_distribution"] = lambda: reward_figure(played)

    def draw(name: str) -> ReportFigure:
        figure = drawers[name]()
        return ReportFigure(name, TITLES[name], figure.alt, figure.svg())

    figures = (parts.gather(f"the figure '{name}'", partial(draw, name), None) for name in drawers)
    return tuple(picture for picture in figures if picture is not None)


class _Built(msgspec.Struct):
    outputs: dict[str, str | None] = {}


def _verdicts(night: Night, *, failed: bool) -> tuple[StageVerdict, ...]:
    """Return the verdicts on this night's build: the files in data/ are those of the last build."""
    build = night.result("build", _Built)
    if build is None:
        return tuple(stage_verdict(*item) for item in read_quality_reports(failed=True).items()) if failed else ()
    own_stages = [
        stage
        for stage, name in QUALITY_REPORTS.items()
        if dvc_md5(Path("data") / name) == build.outputs.get(f"data/{name}")
    ]
    return tuple(
        stage_verdict(stage, report) for stage, report in read_quality_reports().items() if stage in own_stages
    )


def stage_verdict(stage: str, report: Mapping[str, Any]) -> StageVerdict:
    """Convert a build stage's quality report to the verdict that the night's report shows."""
    unit = next((unit for unit in ("episodes", "rows") if isinstance(report.get(unit), int)), "rows")
    failures = tuple(
        FailedExpectation(
            suite, name, str(entry.get("severity")), str(entry.get("reason", "")), entry.get("failing", 0)
        )
        for suite, results in report.get("results", {}).items()
        for name, entry in results.items()
        if not entry.get("success")
    )
    counts = (int(report.get("quarantined", 0)), int(report.get("expectations", 0)))
    return StageVerdict(stage, bool(report.get("passed")), report.get(unit), unit, *counts, failures)


QUALITY_REPORTS = {"validate": "quality_report.json", "gate": "gate.json"}
"""Report file of each stage."""


def read_quality_reports(root: Path = Path(), *, failed: bool = False) -> dict[str, dict[str, Any]]:
    """Return the quality reports that can be read, by stage; of a failed build with `failed`."""
    folder = local_folder(root, "build", "failed") if failed else root / "data"
    reports = {}
    for stage, name in QUALITY_REPORTS.items():
        with contextlib.suppress(OSError, msgspec.DecodeError):
            reports[stage] = msgspec.json.decode((folder / name).read_bytes(), type=dict[str, Any])
    return reports
