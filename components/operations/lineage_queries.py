"""Answer the commands `trace`, `why` and `data`: lineage of models, datasets, rows and episodes, and exports of a build."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.configuration import read_section
from ratchet.components.core.errors import suggest_name
from ratchet.components.datasets import versioning
from ratchet.components.datasets.export.build_figures import (
    EpisodeCounts,
    count_episodes,
    count_reasons,
    read_figure_columns,
    summarise_ranked,
)
from ratchet.components.datasets.export.export_datasets import FORMATS, ExportRequest, write_format
from ratchet.components.datasets.lineage.build_changes import (
    EpisodeChanges,
    EpisodeExplanation,
    RowChanges,
    episode_changes,
    explain_episode,
    row_changes,
)
from ratchet.components.datasets.lineage.build_state import (
    DATASETS,
    BuildState,
    HashCheck,
    find_state,
    state_with_tables,
)
from ratchet.components.datasets.lineage.episode_impact import (
    EpisodeImpact,
    episode_impact,
    episodes_used_by,
    nights_with_episode,
)
from ratchet.components.datasets.lineage.known_builds import find_build, known_builds
from ratchet.components.datasets.lineage.model_lineage import TracedModel, model_from_tags
from ratchet.components.datasets.lineage.row_lineage import (
    MANIFEST,
    PROMPTS,
    RowOrigin,
    read_dataset_manifest,
    row_origins,
    rows_with_episodes,
)
from ratchet.components.datasets.lineage.trace import (
    LineageTrace,
    TraceWalk,
    require_dataset,
    trace_dataset,
    trace_nights,
)
from ratchet.components.datasets.stage_params import ExportParams
from ratchet.components.interop.read_write import read
from ratchet.components.rewards.preferences.pair_building import PairConfig
from ratchet.components.trajectories.parallel_shards import print_progress
from ratchet.components.trajectories.trajectory_list import Trajectories

from .dataset_export import export_dpo, export_grpo, export_sft

PARAMS = Path("params.yaml")


def export_build(
    format: str, out: Path, *, parquet: bool = False, root: Path = Path(), **changes: Any
) -> dict[str, Any]:
    """Write the last build's datasets in one format below `out`; return the manifests and numbers of rows by dataset.

    `parquet`: write Parquet files too. `root`: folder of the repository. `changes`: fields that override the section
    `export` of params.yaml, unless None. Raises ConfigurationError for an
    unknown format or an invalid filter, DataError for a missing or damaged table.
    """
    format_name = next((candidate for candidate in FORMATS if candidate == format), None)
    if format_name is None:
        raise ConfigurationError(f"'{format}' is no format of export; {suggest_name(format, FORMATS)}")
    request = export_request(root, parquet=parquet, **changes)
    if format == "dpo" and changes.get("pair_levels"):
        asked, levels = request.params.pair_levels, read_section(root / PARAMS, "pairs", PairConfig).levels
        if not set(asked) & set(levels):
            raise ConfigurationError(
                f"the build made no {asked[0]}-level pairs: pairs.levels of {PARAMS} is [{', '.join(levels)}]; add it there "
                "and run `ratchet build`"
            )
    manifests = write_format(format_name, request, out, on_progress=print_progress("export: rows, in parts"))
    return _export_report(format, out, manifests)


def export_logs(
    format: str, logs: Sequence[Path], out: Path, *, pair_levels: Sequence[str] | None = None, **options: Any
) -> dict[str, Any]:
    """Export logs, or files and folders of trajectories, without a build; return what `export_build` returns.

    `pair_levels`: one level. `options`: those of the function for the format, unless None. Raises ConfigurationError,
    DataError where no episode qualifies.
    """
    writers: dict[str, Callable[..., Any]] = {"sft": export_sft, "dpo": export_dpo, "grpo": export_grpo}
    given = {name: value for name, value in options.items() if value not in (None, False)}
    if pair_levels:
        given["level"] = pair_levels[0]
    if format not in writers or given.keys() - inspect.signature(writers[format]).parameters.keys():
        raise ConfigurationError(
            "without a build, give --format sft (with --min-reward), dpo (with one --level) or grpo; other formats and "
            "options export a build"
        )
    sets = [read(log) for log in logs]
    rewards = {name: reward for own in sets for name, reward in own.rewards.items()}
    writers[format](Trajectories(chain.from_iterable(sets), rewards=rewards), out, **given)
    files = {path.parent.name if format == "grpo" else format: path for path in sorted(out.rglob(MANIFEST))}
    return _export_report(format, out, {name: msgspec.json.decode(path.read_bytes()) for name, path in files.items()})


def _export_report(format: str, out: Path, manifests: Mapping[str, Any]) -> dict[str, Any]:
    rows = {name: rows_by_split(manifest["files"]) for name, manifest in manifests.items()}
    return {"out": str(out), "format": format, "rows": rows, "manifests": manifests}


def export_request(root: Path, *, parquet: bool = False, **changes: Any) -> ExportRequest:
    """Return the inputs and parameters of an export, as in `export_build`. Raises DataError for a build of no night."""
    build = versioning.read_build(root)
    if not build.nights:
        raise DataError(
            "data/build.yaml lists no night: there is nothing to export; run `ratchet night` or `ratchet build`"
        )
    base = read_section(root / PARAMS, "export", ExportParams)
    overrides = {name: value for name, value in changes.items() if value is not None}
    return ExportRequest(
        [root / path for path in build.files["rollouts"]],
        [root / path for path in build.files["scores"]],
        root / "data/ranked.parquet",
        root / "data/pairs.parquet",
        build.as_of,
        build.on_policy_only,
        ExportParams.load(base.model_dump() | overrides),
        parquet,
    )


def rows_by_split(files: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of rows of each split, given the section `files` of a dataset's manifest."""
    return {name.removesuffix(".jsonl"): file["rows"] for name, file in files.items() if name.endswith(".jsonl")}


ROOT = Path()


def registered_models() -> list[TracedModel]:
    """Return every registered version with its aliases, oldest first. Raises InfrastructureError."""
    from ratchet.components.tracking.model_registry import named_versions

    return [
        model_from_tags(ref.name, ref.version, ref.policy_version, ref.checkpoint_hash, ref.tags, names)
        for ref, names in named_versions()
    ]


def find_model(name: str, models: list[TracedModel]) -> TracedModel | None:
    """Find a model by alias (`champion`, `@champion`), version (`3`, `agent/3`) or policy version; None if there is
    none.
    """
    bare_name = name.removeprefix("@")
    for model in models:
        if bare_name in (*model.aliases, model.policy_version, str(model.version), f"{model.name}/{model.version}"):
            return model
    return None


def trace(target: str, at: str | None = None, *, ancestors: bool = False) -> list[LineageTrace]:
    """Trace a model, dataset or row back to its episodes; with `ancestors` trace the models too from which a model was
    trained.

    `target`: an alias, version or policy version; or `sft`, `sft/train/17`, a folder of a dataset or an export. `at`:
    night, commit or build of a dataset. Raises ConfigurationError for an unknown name.
    """
    folder = Path(target)
    if (folder / MANIFEST).is_file() and at is None and folder.parts[-2:-1] == ("datasets",):
        return [_dataset(find_state(str(folder.parents[2]), ROOT), folder.name, None)]
    if (folder / MANIFEST).is_file():
        manifest = read_dataset_manifest(folder / MANIFEST)
        built = find_state(at, ROOT) if at else state_with_tables(manifest.tables, ROOT) or find_state(None, ROOT)
        return [trace_dataset(_walk(built), manifest.dataset or folder.name, folder=folder)]
    dataset, _, row = target.partition("/")
    state = None if target.startswith("@") else find_state(at, ROOT)
    if state is not None and dataset in state.datasets():
        return [_dataset(state, dataset, row or None)]
    models = registered_models()
    model = find_model(target, models)
    if model is None:
        raise ConfigurationError(_unknown(target, models, state))
    return [_model(traced_model) for traced_model in (_line(model, models) if ancestors else [model])]


def _unknown(target: str, models: list[TracedModel], state: BuildState | None) -> str:
    names = [
        *(f"@{alias}" for model in models for alias in model.aliases),
        *(f"agent/{model.version}" for model in models),
    ]
    names += state.datasets() if state else []
    return (
        f"'{target}' is no model, alias, dataset or row (as sft/train/17); there are: {', '.join(names[:12]) or 'none'}"
    )


def _line(model: TracedModel, models: list[TracedModel]) -> list[TracedModel]:
    """Return a model and its ancestors, nearest first."""
    lineage, by_policy = [model], {candidate.policy_version: candidate for candidate in models}
    while (base := by_policy.get(lineage[-1].base or "")) is not None and base not in lineage:
        lineage.append(base)
    return lineage


def _model(model: TracedModel) -> LineageTrace:
    """Trace a model through its build, or through its nights where the build is unknown. Raises DataError where neither
    is recorded.
    """
    checks, unknown = _checkpoint(model)
    build = find_build(model.build or "", known_builds(ROOT))
    if build is not None:
        state = BuildState(build.name, ROOT, build)
        require_dataset(state, model.dataset)
        if state.is_current or state.output_files(f"{DATASETS}/{model.dataset}") is not None:
            return trace_dataset(_walk(state, checks, unknown), model.dataset, model=model)
    if not model.nights:
        raise DataError(f"{model.label} was registered without nights and build: where it comes from was not recorded")
    builds = (
        candidate for candidate in known_builds(ROOT) if set(model.nights) <= set(candidate.recorded_inputs.nights)
    )
    containing_build = build or next(builds, None)
    state = BuildState(containing_build.name, ROOT, containing_build) if containing_build else find_state(None, ROOT)
    return trace_nights(_walk(state, checks, unknown), model, episodes_used_by(model.policy_version, ROOT))


def _walk(state: BuildState, checks: Sequence[HashCheck] = (), unknown: Sequence[str] = ()) -> TraceWalk:
    return TraceWalk(state, task_hashes, print_progress("trace: shards"), [*checks], [*unknown])


def _checkpoint(model: TracedModel) -> tuple[list[HashCheck], list[str]]:
    """Recompute the checkpoint's hash if it is on this machine."""
    from ratchet.components.tracking.model_registry import checkpoint_hash, get_version

    if model.checkpoint is None or model.pruned:
        return [], [f"the checkpoint: {'its files were pruned' if model.pruned else 'its hash was not recorded'}"]
    path = get_version(model.version, model.name).path
    if path is None:
        return [], ["the checkpoint: it lies elsewhere; `ratchet trace` downloads nothing"]
    try:
        current_hash: str | None = checkpoint_hash(path)
    except DataError:
        current_hash = None
    return [HashCheck("checkpoint", str(path), model.checkpoint, current_hash)], []


def _dataset(state: BuildState, dataset: str, row: str | None) -> LineageTrace:
    require_dataset(state, dataset)
    return trace_dataset(_walk(state), dataset, row=row)


def task_hashes(taskset: str) -> Mapping[str, str] | None:
    """Recompute the hash of every task of a taskset; None where it is not on this machine."""
    from ratchet.components.tasksets import load_taskset

    try:
        return {task.task_id: task.task_hash for task in load_taskset(taskset).tasks()}
    except (ConfigurationError, DataError):
        return None


def trace_forward(episode_id: str) -> EpisodeImpact:
    """Return everything an episode contributed to: nights, branches, datasets, models, and models trained from them.

    Sources that cannot be read, such as the registry, are listed in `unknown`. Raises DataError for an unknown id.
    """
    try:
        models = registered_models()
    except InfrastructureError:
        models = None
    return episode_impact(episode_id, models, ROOT)


def explain(episode_id: str, at: str | None) -> EpisodeExplanation:
    """Explain why an episode is in, out or quarantined in a build (`at`: night, commit or build; None: the current
    one). Raises DataError for an unknown episode.
    """
    state = find_state(at, ROOT)
    rows = {name: rows_with_episodes(_files(state, name), {episode_id}) for name in state.datasets()}

    def table_file(name: str) -> Path | None:
        files = state.output_files(f"data/{name}")
        if files is None and name == "ranked.parquet":  # the other tables may be absent from older builds
            raise state.absence_error(f"data/{name}")
        return None if files is None else files[""]

    explanation = explain_episode(episode_id, table_file, {name: origins for name, origins in rows.items() if origins})
    if explanation is None:
        nights = nights_with_episode(episode_id, ROOT)
        location = f"it is in {', '.join(nights)}, which is no part of that build" if nights else "and in no night here"
        raise DataError(f"'{episode_id}' is in no table of the build ({state.name}); {location}")
    return explanation


def _files(state: BuildState, dataset: str) -> Mapping[str, Path]:
    """Return the files of a dataset; empty if there is none of that name. Raises DataError where they are no longer
    here.
    """
    path = f"{DATASETS}/{dataset}"
    files = state.output_files(path)
    if files is None and dataset in state.datasets():
        raise state.absence_error(path)
    return files or {}


def _origins(state: BuildState, dataset: str) -> list[RowOrigin]:
    return row_origins(_files(state, dataset))


class DataDiff(msgspec.Struct, frozen=True):
    """Differences of the data's state `b` from `a`: nights, episodes, and rows of each dataset."""

    a: str
    b: str
    nights_added: list[str]
    nights_removed: list[str]
    episodes: EpisodeChanges
    datasets: dict[str, RowChanges]


def diff(a: str, b: str | None) -> DataDiff:
    """Compare two states of the data: nights, tags, commits, builds or folders (`b` None: the current one). Raises
    DataError.
    """
    before, after = find_state(a, ROOT), find_state(b, ROOT)
    episodes = episode_changes(before.output_file("data/ranked.parquet"), after.output_file("data/ranked.parquet"))
    names = sorted({*before.datasets(), *after.datasets()})
    return DataDiff(
        before.name,
        after.name,
        sorted(set(after.nights()) - set(before.nights())),
        sorted(set(before.nights()) - set(after.nights())),
        episodes,
        {name: row_changes(_origins(before, name), _origins(after, name), by_task=name in PROMPTS) for name in names},
    )


class DataStats(msgspec.Struct, frozen=True):
    """Statistics of a build: `figures` of the ranking, `rows` by `DATASET SPLIT`, episode counts by grouping (such as
    `night`), and numbers of episodes by selection reason.
    """

    name: str
    figures: dict[str, object]
    rows: dict[str, int]
    episodes: dict[str, list[EpisodeCounts]]
    reasons: dict[str, int]


def stats(at: str | None) -> DataStats:
    """Return the statistics of a build (`at` None: the current one). Raises DataError where its tables are not here."""
    state = find_state(at, ROOT)
    ranked = state.output_file("data/ranked.parquet")
    rows: dict[str, int] = {}
    for name in state.datasets():
        files = state.output_files(f"{DATASETS}/{name}") or {}
        if MANIFEST in files:
            splits = rows_by_split(read_dataset_manifest(files[MANIFEST]).files)
            rows |= {f"{name} {split}": count for split, count in splits.items()}
    return DataStats(
        state.name, summarise_ranked(read_figure_columns(ranked)), rows, count_episodes(ranked), count_reasons(ranked)
    )


def card(dataset: str, at: str | None) -> str:
    """Return the dataset card (README.md) of a dataset. `at` None: the current build. Raises DataError where there is
    none or it is not here.
    """
    state = find_state(at, ROOT)
    require_dataset(state, dataset)
    files = state.output_files(f"{DATASETS}/{dataset}")
    if files is None or "README.md" not in files:
        raise state.absence_error(f"{DATASETS}/{dataset}")
    return files["README.md"].read_text(encoding="utf-8")
