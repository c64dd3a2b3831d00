r"""Stage `export`: write the SFT, DPO and GRPO datasets from nights, scores, ranks and pairs; and exports into a folder
of the user's.

    python -m ratchet.components.datasets.export.export_datasets --rollouts DIR... --scores FILE... --ranked
    data/ranked.parquet \\
        --pairs data/pairs.parquet --as-of 2026-11-21 --on-policy-only false --params params.yaml --out data/datasets
"""

import argparse
import glob
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ratchet.components.core import ConfigurationError
from ratchet.components.core.configuration import read_section
from ratchet.components.core.errors import block_pandas, run_stage
from ratchet.components.core.files import temporary_path, write_atomically
from ratchet.components.core.processes import token_owner_is_dead
from ratchet.components.trajectories.parallel_shards import ShardProgress, gc_paused, print_progress

from ..stage_params import ExportParams
from .dataset_files import (
    TITLES,
    DatasetRows,
    RowBatch,
    front_matter,
    input_sha256,
    made_from,
    markdown_table,
    shard_hashes,
    splits_in,
    write_datasets,
)
from .export_plan import ExportTables, ProcessRewards, plan_rows, scored_episodes
from .message_views import EpisodeViews
from .ranked_episodes import exportable_pairs, read_pairs, read_ranked
from .render_batches import BATCH_ROWS, Plans, RenderWork, check_episodes_present, rendered_batches
from .shard_offsets import ShardOffsets

ExportFormat = Literal["sft", "dpo", "grpo", "benchmark", "huggingface", "verifiers", "prime-rl"]

DATASETS = ("sft", "dpo", "grpo", "groups")
"""Datasets that the data build exports. `grpo` holds tasks to play, `groups` recorded attempts for offline GRPO."""

FORMATS: dict[ExportFormat, tuple[str, ...]] = {
    "sft": ("sft",),
    "dpo": ("dpo",),
    "grpo": ("grpo", "groups"),
    "benchmark": ("benchmark",),
    "huggingface": (*DATASETS, "benchmark"),
    "verifiers": ("verifiers",),
    "prime-rl": ("prime-rl",),
}


class ExportRequest(NamedTuple):
    """Inputs and parameters of an export.

    `rollouts` and `scores`: the shard folder and the score table of each night. `as_of`: day of the build (ISO), which
    the manifest records. `own_only` restricts SFT and DPO rows to on-policy episodes. `parquet` also writes Parquet
    copies of the JSONL files.
    """

    rollouts: Sequence[Path]
    scores: Sequence[Path]
    ranked: Path
    pairs: Path
    as_of: str
    own_only: bool = False
    params: ExportParams = ExportParams()
    parquet: bool = False


def export_datasets(
    request: ExportRequest,
    places: Mapping[str, Path],
    *,
    workers: int | None = None,
    on_progress: ShardProgress | None = None,
) -> dict[str, dict[str, Any]]:
    """Write datasets and return their manifests by name. `places` maps each dataset to its folder.

    Existing files of these datasets are replaced. The output does not depend on the number of workers. Raises DataError
    for a missing or damaged input, and ConfigurationError for an invalid filter.
    """
    with gc_paused():
        return _export(request, places, workers, on_progress)


def _export(
    request: ExportRequest, places: Mapping[str, Path], workers: int | None, on_progress: ShardProgress | None
) -> dict[str, dict[str, Any]]:
    with ThreadPoolExecutor(1) as beside:  # both parts mostly run outside of Python's global lock
        offsets = beside.submit(ShardOffsets.read, request.rollouts)
        source = read_tables(request, places)
        plans = {name: plan_rows(name, source) for name in places}
        stand = offsets.result()
    check_episodes_present(plans, stand)
    work = RenderWork(plans, source, EpisodeViews(stand, request.params.agent_format))
    inputs = manifest_inputs(request, source.steps.versions)
    lines = rendered_batches(work, in_memory=stand.in_memory, workers=workers, on_progress=on_progress)
    return _write_lines(plans, lines, places, inputs, parquet=request.parquet)


def _write_lines(
    plans: Plans, lines: Iterator[RowBatch], places: Mapping[str, Path], inputs: Mapping[str, Any], *, parquet: bool
) -> dict[str, dict[str, Any]]:
    datasets = [
        DatasetRows(
            places[name], name, {split: islice(lines, -(-len(own) // BATCH_ROWS)) for split, own in rows.items()}
        )
        for name, rows in plans.items()
    ]
    return write_datasets(datasets, inputs, parquet=parquet)


def read_tables(request: ExportRequest, datasets: Iterable[str]) -> ExportTables:
    """Read the tables of a request, with step scores only of the episodes whose rows use them. Raises DataError."""
    ranked = read_ranked(request.ranked, request.params)
    pairs = read_pairs(request.pairs) if "dpo" in datasets else []
    exportable = exportable_pairs(pairs, ranked, request.params, on_policy_only=request.own_only)
    source = ExportTables(ranked, exportable, ProcessRewards(), request.params, request.own_only)
    episode_ids = scored_episodes(datasets, source)
    return source._replace(steps=ProcessRewards.read(request.scores, episode_ids))


def manifest_inputs(request: ExportRequest, scorers: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the manifest fields on the inputs: nights, shard and table hashes, scorer versions, parameters."""
    return {
        "nights": [folder.name for folder in request.rollouts],
        "as_of": request.as_of,
        "on_policy_only": request.own_only,
        "shards": shard_hashes(request.rollouts),
        "scorers": dict(scorers),
        "tables": {path.name: input_sha256(path) for path in (request.ranked, request.pairs)},
        "params": request.params.model_dump(mode="json"),
    }


def main(arguments: list[str] | None = None) -> None:
    """Write the datasets of the `export` stage. Raises DataError for a missing or damaged input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=Path, action="append", default=[], help="a sealed night (repeatable)")
    parser.add_argument("--scores", type=Path, action="append", default=[], help="its scores, in the same order")
    parser.add_argument("--ranked", type=Path, default=Path("data/ranked.parquet"))
    parser.add_argument("--pairs", type=Path, default=Path("data/pairs.parquet"))
    parser.add_argument("--as-of", required=True, help="the day of the build, for the cards")
    parser.add_argument("--on-policy-only", choices=("true", "false"), required=True, help="leave demonstrations out")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--out", type=Path, default=Path("data/datasets"))
    options = parser.parse_args(arguments)
    request = ExportRequest(
        options.rollouts,
        options.scores,
        options.ranked,
        options.pairs,
        options.as_of,
        options.on_policy_only == "true",
        read_section(options.params, "export", ExportParams),
    )
    places = {name: options.out / name for name in DATASETS}
    export_datasets(request, places, on_progress=print_progress("export: rows, in parts"))


def write_format(
    format: ExportFormat, request: ExportRequest, out: Path, *, on_progress: ShardProgress | None = None
) -> dict[str, dict[str, Any]]:
    """Write an export format into a new folder, and return the manifests by dataset.

    A format with one dataset is written directly into `out`. A format with several gets a subfolder for each and a
    common card. Raises DataError, and ConfigurationError for a folder that cannot be used or an invalid filter.
    """
    return _write_format(format, out, lambda places: export_datasets(request, places, on_progress=on_progress))


def write_rendered(
    format: ExportFormat, work: RenderWork, inputs: Mapping[str, Any], out: Path
) -> dict[str, dict[str, Any]]:
    """Write an export format as `write_format` does, from episodes in memory. `inputs`: fields of the manifests."""
    lines = rendered_batches(work, in_memory=True)
    return _write_format(format, out, lambda places: _write_lines(work.plans, lines, places, inputs, parquet=False))


def _write_format(
    format: ExportFormat, out: Path, write: Callable[[Mapping[str, Path]], dict[str, dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    names = FORMATS[format]
    with _new_folder(out) as place:
        if len(names) == 1:
            return write({names[0]: place})
        manifests = write({name: place / name for name in names})
        write_atomically(place / "README.md", overview(manifests).encode())
        return manifests


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `out` that is renamed to `out` on success and deleted on failure."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigurationError(f"{out} is there already; give a new folder")
    place = temporary_path(out)
    for leftover in _left(out):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        place.mkdir(parents=True)
        yield place
        if out.exists():
            out.rmdir()
        place.rename(out)
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror}; give another folder") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _left(out: Path) -> Iterator[Path]:
    """Yield the temporary folders of earlier exports to `out` whose process no longer exists."""
    for path in out.parent.glob(f".{glob.escape(out.name)}.*.tmp"):
        if path.is_dir() and token_owner_is_dead(path.name):
            yield path


def overview(manifests: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the card of several datasets, each one a configuration for `load_dataset(FOLDER, NAME)`."""
    files = {name: manifest["files"] for name, manifest in manifests.items()}
    rows = [
        [name, TITLES[name], *(_rows(files[name], split) for split in ("train", "validation", "test"))]
        for name in files
    ]
    lines = [
        front_matter({name: (name, own, f"{name}/") for name, own in files.items()}),
        "# Trajectories of tool-use agents",
        made_from(next(iter(manifests.values()))),
        markdown_table(["configuration", "what it is", "train", "validation", "test"], rows),
        "Each folder has a card of its own, the reason of every row (`rows.parquet`) and the hash of every file (`manifest.json`).",
    ]
    return "\n\n".join(lines) + "\n"


def _rows(files: Mapping[str, Any], split: str) -> int:
    return int(files[f"{split}.jsonl"]["rows"]) if split in splits_in(files) else 0


if __name__ == "__main__":
    block_pandas()
    run_stage(main)
