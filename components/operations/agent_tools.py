"""The tools of `ratchet mcp`: each calls the function behind a command of ours, with paths and names checked by a ToolScope.

`AGENT_TOOLS` maps names to tools. The description that an agent sees is the docstring; a returned value becomes JSON. The
first nineteen replace the tools of four servers of an earlier system and keep their names.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, create_model

from ratchet.components.core import ConfigurationError, Repository, load_domain
from ratchet.components.core.files import temporary_folder
from ratchet.components.core.home import require_clone
from ratchet.components.environments.sandbox_tools import GIT, TOOLS, Observation, ToolSettings, call_tool, check_call
from ratchet.components.interop import log_conversion
from ratchet.components.sandboxes import SandboxConfig, persistent_sandboxes
from ratchet.components.sandboxes.persistent_sandboxes import AttachedSandbox
from ratchet.components.trajectories.file_validation import TrajectoryValidator
from ratchet.components.trajectories.trajectory import Trajectory, schema_text
from ratchet.components.trajectories.trajectory_diff import compare_trajectories, pair_trajectories, summarize_pairs

from .tool_scope import Level, ToolScope

PathText = Annotated[str, Field(min_length=1, max_length=4096, description="A path in the home or a named folder.")]
Name = Annotated[str, Field(min_length=1, max_length=300)]
Format = Annotated[str, Field(max_length=40, description="Format of the log; auto detects it from its content.")]
Record = Annotated[dict[str, Any], Field(description="A trajectory as a JSON object; see get_schema.")]
Source = PathText | Record
Limit = Annotated[int, Field(ge=1, le=500, description="Maximum number of rows in the result.")]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Numbers = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=2, max_length=20_000)]
Backend = Literal["auto", "docker", "local"]
Result = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])


class AgentTool:
    """A tool: its name, level, description, and the model that its arguments must fit."""

    def __init__(self, function: Callable[..., Any], level: Level) -> None:
        self.function, self.level, self.name = function, level, function.__name__
        self.description = inspect.cleandoc(function.__doc__ or "")

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The model of the arguments. Unknown ones are refused."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]  # without the scope
        fields: dict[str, Any] = {
            each.name: (each.annotation, ... if each.default is each.empty else each.default) for each in parameters
        }
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)


AGENT_TOOLS: dict[str, AgentTool] = {}


def agent_tool(level: Level) -> Callable[[Function], Function]:
    """Register a function of a ToolScope and JSON arguments as a tool."""

    def register(function: Function) -> Function:
        AGENT_TOOLS[function.__name__] = AgentTool(function, level)
        return function

    return register


@contextmanager
def _files(scope: ToolScope, sources: Sequence[str | dict[str, Any]]) -> Iterator[list[Path]]:
    """Yield a readable path for each source; records are written to temporary files."""
    with temporary_folder("mcp") as folder:
        paths = []
        for number, source in enumerate(sources):
            if isinstance(source, str):
                paths.append(scope.readable(source))
            else:
                paths.append(Path(folder, f"trajectory-{number}.jsonl"))
                paths[-1].write_bytes(msgspec.json.encode(source) + b"\n")
        yield paths


def _read(path: Path, format: str = "auto") -> Iterator[Trajectory]:
    return iter(log_conversion.LogStream(path, format))


# Sandboxes.


@agent_tool("run")
def create_sandbox(
    scope: ToolScope,
    repo_url: Annotated[
        str | None, Field(max_length=2000, description="https URL, or the path of a repository.")
    ] = None,
    base_commit: Name = "HEAD",
    backend: Backend = "auto",
    lifetime: Annotated[float, Field(gt=0, le=82_800, description="Seconds until it is stopped.")] = 3600.0,
) -> Result:
    """Create a sandbox, empty or with a repository at a commit. Returns its id, and a snapshot of its first state.

    Stop it with stop_sandbox when it is no longer needed.
    """
    from ratchet.components.environments.git_mirror import open_mirror
    from ratchet.components.environments.repository_tasks import base_archive, unpack_files

    archive = None
    if repo_url is not None:
        source = repo_url if repo_url.startswith("https://") else str(scope.readable(repo_url))
        archive = base_archive(*open_mirror(Repository(source, base_commit)))
    record = persistent_sandboxes.create_sandbox(SandboxConfig.load({"backend": backend}), lifetime)
    sandbox = AttachedSandbox(record.id)
    try:
        if archive is not None:
            unpack_files(sandbox, archive)
        snapshot = sandbox.snapshot()
    except BaseException:
        sandbox.stop()
        raise
    facts = {"backend": record.backend, "isolation": record.isolation, "expires": record.expires}
    return {"sandbox_id": record.id, "snapshot_id": snapshot, **facts}


@agent_tool("run")
def execute_tool(scope: ToolScope, sandbox_id: Name, tool_name: Name, params: dict[str, Any]) -> Any:
    """Call a tool in a sandbox: read_file (path, start_line, end_line), edit_file (path, old, new; an empty old writes the
    whole file), bash (command, timeout), grep (pattern, path) or git (subcommand, args).
    """
    observation = _call_in(AttachedSandbox(sandbox_id), tool_name, params)
    if observation.error is not None and observation.exit_code is None:
        raise ConfigurationError(observation.error)
    return observation


def _call_in(sandbox: AttachedSandbox, tool_name: str, params: dict[str, Any]) -> Observation:
    """Return the Observation of one call in a sandbox; a call that is not valid is one with an error."""
    fault = check_call(tool_name, params, (*TOOLS[:-1], GIT))  # without submit
    if fault is not None:
        return Observation(f"error: {fault}", error=fault)
    return call_tool(tool_name, params, sandbox, ToolSettings())


@agent_tool("run")
def reset_sandbox(scope: ToolScope, sandbox_id: Name, snapshot_id: Name | None = None) -> Result:
    """Reset a sandbox to a snapshot: that of create_sandbox is its first state. Without one, make it new and empty."""
    if snapshot_id is None:
        persistent_sandboxes.reset_sandbox(sandbox_id)
    else:
        AttachedSandbox(sandbox_id).restore(snapshot_id)
    return {"sandbox_id": sandbox_id, "snapshot_id": snapshot_id}


@agent_tool("run")
def replay_trajectory(scope: ToolScope, trajectory: Source, sandbox_id: Name, episode_id: Name | None = None) -> Result:
    """Replay the recorded calls of one episode in a sandbox and list where the results differ.

    `episode_id` chooses an episode of a file; by default its first.
    """
    from ratchet.components.rollouts import episode_replay

    with _files(scope, [trajectory]) as (path,):
        episode = next(episode_replay.read_episodes(path, episode_id))
    sandbox, divergences, step = AttachedSandbox(sandbox_id), [], 0
    for turn in episode.turns:
        for call, recorded in zip(turn.calls, turn.results, strict=False):
            if call.parse_error is None and call.tool != "submit":
                observation = _call_in(sandbox, call.tool, call.arguments)
                replayed = msgspec.structs.replace(recorded, blob=None, **msgspec.structs.asdict(observation))
                place = {"turn": turn.index, "step": step, "tool": call.tool}
                found = episode_replay.result_divergences(recorded, replayed)
                divergences += [msgspec.structs.replace(divergence, **place) for divergence in found]
                step += 1
    return {"episode_id": episode.episode_id, "steps": step, "same": not divergences, "divergences": divergences}


@agent_tool("run")
def sandbox_snapshot(scope: ToolScope, sandbox_id: Name) -> Result:
    """Save the files of a sandbox; reset_sandbox restores them by the returned snapshot_id."""
    return {"sandbox_id": sandbox_id, "snapshot_id": AttachedSandbox(sandbox_id).snapshot()}


# Trajectories.


@agent_tool("read")
def convert_logs(
    scope: ToolScope,
    log_path: PathText,
    framework: Format = "auto",
    output_path: PathText | None = None,
    limit: Limit = 5,
) -> Any:
    """Convert a log, or a folder of logs, to trajectories. Success that a log does not prove is null.

    Without output_path the first `limit` are returned; with it (X.jsonl, level write) all are written there.
    """
    path = scope.readable(log_path)
    if output_path is None:
        return {"trajectories": list(islice(_read(path, framework), limit))}
    scope.require("write", "output_path")
    out = scope.writable(output_path)
    beside = [log_conversion.sibling_file(out, name) for name in ("rejected.jsonl", "blobs")]
    if out.suffix != ".jsonl" or any(each.exists() for each in beside):
        raise ConfigurationError(f"{output_path} is no new X.jsonl; give another name that ends in .jsonl")
    return log_conversion.convert_logs(path, out, format=framework, skip_bad=True)


@agent_tool("read")
def validate_logs(scope: ToolScope, log_path: PathText, for_build: bool = False, limit: Limit = 50) -> Result:
    """Validate a file of trajectories or a folder of shards. `for_build` adds what a data build would reject."""
    validator = TrajectoryValidator(for_build=for_build)
    problems = validator.validate(scope.readable(log_path))
    first = list(islice(problems, limit))
    for _ in problems:  # the rest is counted only
        pass
    return {"valid": validator.summary.valid, "summary": validator.summary, "problems": first}


@agent_tool("read")
def get_schema(scope: ToolScope) -> Any:
    """Return the JSON Schema of a trajectory."""
    return msgspec.json.decode(schema_text())


@agent_tool("read")
def recorder_diff(
    scope: ToolScope, trajectory_a: Source, trajectory_b: Source, content_only: bool = False, limit: Limit = 20
) -> Result:
    """Compare two trajectories, or two files of them, field by field. `content_only`: without identity, timing and usage."""
    with _files(scope, [trajectory_a, trajectory_b]) as paths:
        paired = pair_trajectories(*map(_read, paths))
    compared = [compare_trajectories(one, other, content=content_only) for one, other in paired.pairs]
    different = [comparison for comparison in compared if not comparison.same]
    return {"summary": summarize_pairs(compared, paired), "different": different[:limit]}


# Rewards.


@agent_tool("read")
def score_trajectory(scope: ToolScope, trajectory: Source, limit: Limit = 20) -> Result:
    """Score trajectories by the rules of their domain: total, outcome, process, efficiency, each step with its reason.

    A missing score is null, not zero. Convert logs of other formats first, or use process_log.
    """
    with _files(scope, [trajectory]) as (path,):
        return _scores(path, limit)


def _scores(path: Path, limit: int) -> Result:
    from ratchet.components.operations.score_files import score_path
    from ratchet.components.rewards.reward_formulas import mean_known

    parts = ("total", "outcome", "process", "efficiency")
    kept: list[Any] = []
    values: list[list[float | None]] = []
    for score in score_path(path, None):
        values.append([getattr(score, part) for part in parts])
        if len(kept) < limit:
            kept.append(score)
    means = {part: mean_known(column) for part, column in zip(parts, zip(*values, strict=True), strict=True)}
    return {"episodes": len(values), "mean": means, "scores": kept}


@agent_tool("read")
def build_preferences(
    scope: ToolScope,
    trajectories_by_task: dict[str, Annotated[list[Source], Field(max_length=500)]],
    level: Literal["step", "trajectory"] = "trajectory",
    margin: Annotated[float, Field(gt=0, le=1)] = 0.05,
    limit: Limit = 50,
) -> Result:
    """Build preference pairs among attempts at the same task: files or records by task, with the reasons."""
    from ratchet.components.operations.score_files import EpisodeScorer, pair_config, preferences_in

    sources = [source for group in trajectories_by_task.values() for source in group]
    if not sources:
        raise ConfigurationError("trajectories_by_task names no trajectories; give files or records by task")
    with _files(scope, sources) as paths:
        found = preferences_in(paths, EpisodeScorer(None), pair_config(levels=(level,), margin=margin))
    pairs = [found.describe(pair) for pair in found.made.preferences[:limit]]
    return {"pairs": pairs, "found": len(found.made.preferences), "report": found.made.report}


@agent_tool("read")
def calibrate_reward(scope: ToolScope, reward_scores: Numbers, human_scores: Numbers) -> Any:
    """Measure how well scores agree with those of people, item by item: correlations, order of pairs, error, intervals."""
    from ratchet.components.rewards.human_labels.rater_agreement import rater_agreement

    if len(reward_scores) != len(human_scores):
        raise ConfigurationError(
            f"{len(reward_scores)} reward_scores and {len(human_scores)} human_scores; give one of each for every item"
        )
    return rater_agreement(reward_scores, human_scores, range(len(reward_scores)))


@agent_tool("read")
def list_rubrics(scope: ToolScope) -> list[Result]:
    """List the rubrics of judges with their criteria, weights and anchors."""
    from ratchet.components.rewards.judges.judge_rubric import bundled_rubrics, describe_rubric, select_rubric

    profiles = [load_domain(name) for name in bundled_rubrics()]
    rubrics = [(select_rubric(profile), profile) for profile in profiles]
    return [describe_rubric(rubric, rubric.weights(profile)) for rubric, profile in rubrics]


@agent_tool("read")
def reward_leaderboard(
    scope: ToolScope,
    trajectory_files: Annotated[list[Name], Field(max_length=20)],
    by: Literal["reward", "success"] = "reward",
) -> Any:
    """Rank agents on the tasks that all of them played, with intervals. Give files or folders of trajectories, NIGHT,
    NIGHT/AGENT or registered versions; an empty list ranks the agents of the latest night.
    """
    from ratchet.components.operations.compare_sets import leaderboard

    return leaderboard([scope.name(word) for word in trajectory_files], by=by)


# The pipeline.


@agent_tool("run")
def run_pipeline(
    scope: ToolScope,
    output_dir: PathText,
    task_source: Name = "repair",
    policy: Name = "champion",
    role: Literal["train", "promote", "audit", "reserve"] = "train",
    tasks: Annotated[int, Field(ge=1, le=10_000)] = 5,
    attempts: Annotated[int, Field(ge=1, le=64)] = 1,
    seed: Seed = 0,
) -> Result:
    """Let a policy play tasks in sandboxes, record every episode in a new folder, and score them.

    `task_source`: a taskset's name or folder. `policy`: champion, @ALIAS, a scripted policy such as teacher,
    transformers:FOLDER or openai:FILE.yaml. Finished episodes are kept at a time-out: the same call goes on from there.
    """
    from ratchet.components.operations.manual_evaluation import collect_into

    kind, _, place = policy.partition(":")
    if place and kind not in ("transformers", "openai"):  # MODULE:FUNCTION would import any code
        raise ConfigurationError(
            f"policy '{kind}:…' is not offered here; give a name, transformers:FOLDER or openai:FILE.yaml"
        )
    policy = f"{kind}:{scope.readable(place)}" if place else scope.name(policy)
    folder, taskset = scope.writable(output_dir, resumed=True), scope.name(task_source)
    options = {"policy": policy, "taskset": taskset, "role": role, "seed": seed, "scale": "smoke"}
    report = collect_into(folder, tasks=tasks, attempts=attempts, **options)  # type: ignore[arg-type]
    return {"output_dir": str(folder), "report": report, "scores": _scores(folder, 1)}


@agent_tool("write")
def export_dataset(
    scope: ToolScope,
    output_path: PathText,
    format: Literal["sft", "dpo", "grpo", "benchmark", "huggingface", "verifiers", "prime-rl"],
    trajectories_path: PathText | None = None,
    min_reward: float | None = None,
) -> Any:
    """Export trajectories (sft, dpo or grpo), or without trajectories_path the last build, as a dataset in a new folder."""
    from ratchet.components.operations.lineage_queries import export_build, export_logs

    out = scope.writable(output_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        if trajectories_path is not None:
            report = export_logs(format, [scope.readable(trajectories_path)], out, min_reward=min_reward)
        else:
            require_clone()
            report = export_build(format, out, min_reward=min_reward)
    return {name: report[name] for name in ("out", "format", "rows")} | {
        "notes": [str(each.message) for each in caught]
    }


@agent_tool("read")
def process_log(scope: ToolScope, log_path: PathText, framework: Format = "auto", limit: Limit = 20) -> Result:
    """Convert a log and score its episodes; nothing is kept."""
    path = scope.readable(log_path)
    with temporary_folder("mcp") as folder:
        out = Path(folder, "trajectories.jsonl")
        report = log_conversion.convert_logs(path, out, format=framework, skip_bad=True)
        return {"conversion": report, **_scores(out, limit)}


@agent_tool("read")
def process_logs_batch(scope: ToolScope, log_dir: PathText, framework: Format = "auto", limit: Limit = 20) -> Result:
    """Convert and score all logs of a folder and its subfolders; unreadable parts are counted and left out."""
    if not scope.readable(log_dir).is_dir():
        raise ConfigurationError(f"{log_dir} is a file; give a folder, or use process_log")
    return process_log(scope, log_dir, framework, limit)


@agent_tool("read")
def pipeline_status(scope: ToolScope, output_dir: PathText) -> Result:
    """Return whether a run_pipeline is running, and how many episodes it has finished (in complete shards, and in journals)."""
    from ratchet.components.rollouts.rollout_spool import spool_status

    folder = scope.readable(output_dir)
    if not (folder / "plan.txt").is_file():
        raise ConfigurationError(f"{output_dir} holds no collection; give the output_dir of run_pipeline")
    return spool_status(folder)


# Further tools, which read what nights left.


@agent_tool("run")
def stop_sandbox(scope: ToolScope, sandbox_id: Name) -> Result:
    """Stop a sandbox and remove its files."""
    persistent_sandboxes.stop_sandbox(sandbox_id)
    return {"stopped": sandbox_id}


@agent_tool("read")
def list_nights(scope: ToolScope, limit: Limit = 20) -> Result:
    """List the latest nights: state, verdict, success of champion, challenger and control, lead, p-value, cost."""
    from ratchet.components.nights.night_history import night_points

    require_clone()
    points = night_points()
    return {"found": len(points), "nights": points[-limit:]}


@agent_tool("read")
def night_decision(scope: ToolScope, which: Name | None = None) -> Any:
    """Return the promotion decision of a night or a registered version, with its tests, guardrails and reasons."""
    from ratchet.components.operations.manual_promotion import find_decision

    require_clone()
    return find_decision(which and scope.name(which))


@agent_tool("read")
def explain_episode(scope: ToolScope, episode_id: Name, at: Name | None = None) -> Any:
    """Explain why an episode is in the datasets, left out or quarantined. `at`: a night, tag or commit; default: now."""
    from ratchet.components.operations import lineage_queries

    require_clone()
    return lineage_queries.explain(scope.name(episode_id), at and scope.name(at))


@agent_tool("read")
def trace_lineage(scope: ToolScope, target: Name, at: Name | None = None, ancestors: bool = False) -> list[Result]:
    """Trace a model (@champion, agent/3), dataset (sft) or row (sft/train/17) back to its rollouts, and verify the hashes."""
    from ratchet.components.operations import lineage_queries

    require_clone()
    traces = lineage_queries.trace(scope.name(target), at and scope.name(at), ancestors=ancestors)
    return [{"verified": each.is_verified, **msgspec.to_builtins(each)} for each in traces]


@agent_tool("read")
def trace_episode(scope: ToolScope, episode_id: Name) -> Any:
    """Trace an episode forward to the nights, datasets and models that it reached."""
    from ratchet.components.operations import lineage_queries

    require_clone()
    return lineage_queries.trace_forward(scope.name(episode_id))


@agent_tool("read")
def compare_agents(
    scope: ToolScope,
    agents: Annotated[list[Name], Field(min_length=1, max_length=20)],
    control: Name | None = None,
    role: Name | None = None,
) -> Any:
    """Compare agents with the first one on the same tasks: difference, interval, tests; of two, the promotion rule's verdict.

    An agent is NIGHT/AGENT (NIGHT: all of its agents), a registered version, or a file or folder of trajectories. Nothing is
    promoted.
    """
    from ratchet.components.operations.compare_sets import compare_sets

    return compare_sets([scope.name(agent) for agent in agents], control=control and scope.name(control), role=role)
