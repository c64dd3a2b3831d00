"""API views of dataset rows and of their tokens, which the functions of the training job make."""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.components.core import DataError
from ratchet.components.core.files import file_sha256
from ratchet.components.core.home import home
from ratchet.components.datasets.lineage.row_lineage import ROWS_TABLE, rows_with_episodes, splits_of
from ratchet.components.datasets.parquet_tables import read_table
from ratchet.components.datasets.versioning.dvc_lock import LOCK

from . import api_models as api
from .index import file_stamp
from .query_process import QueryProcess

if TYPE_CHECKING:
    from ratchet.components.training.format.training_row import TrainingRow

DATASETS = Path("data/datasets")
_NOTES = {
    "sft": "weights before the job scales them to a mean of 1 over all its trained tokens",
    "dpo": "the chosen side, then the rejected side; each begins with the shared prompt",
    "groups": "the attempts one after the other, each with its advantage",
}
_process = QueryProcess("tokens")


def _dataset_files(root: Path, dataset: str) -> dict[str, Path]:
    folder = root / DATASETS / dataset
    if dataset != Path(dataset).name or not (folder / ROWS_TABLE).is_file():
        raise KeyError(dataset)
    return {path.name: path for path in folder.iterdir()}


def episode_rows(root: Path, episode_id: str) -> list[api.RowReference]:
    """Return the rows of all datasets of the build that contain an episode. Raises DataError for a damaged table."""
    return [
        api.RowReference(dataset=name, row_id=f"{row.split}-{row.row}", split=row.split, reason=row.reason)
        for name in sorted(path.parent.name for path in (root / DATASETS).glob(f"*/{ROWS_TABLE}"))
        for row in rows_with_episodes(_dataset_files(root, name), {episode_id})
    ]


def _read_row(root: Path, dataset: str, row_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the origin of a row, as in `rows.parquet`, and the row."""
    files = _dataset_files(root, dataset)
    split, _, number = row_id.rpartition("-")
    path = splits_of(files).get(split)
    if path is None or not re.fullmatch(r"\d{1,18}", number, re.ASCII):
        raise KeyError(row_id)
    table = read_table(files[ROWS_TABLE], ("split", "row", "task_id", "episode_ids", "reason"))
    origins = table.filter((pc.field("split") == split) & (pc.field("row") == int(number))).to_pylist()
    with path.open("rb") as file:
        line = next(islice(file, int(number), None), None)
    if not origins or line is None:
        raise KeyError(row_id)
    try:
        return origins[0], msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}, line {int(number) + 1}: {error}; restore the dataset") from error


def row_view(root: Path, dataset: str, row_id: str) -> api.RowAnswer:
    """Return a row of a dataset. Raises KeyError for an unknown one, DataError."""
    origin, row = _read_row(root, dataset, row_id)
    job, of_build = training_job(root)
    if dataset not in _NOTES:
        note = "a prompt without tokens to train: they are sampled during training"
    elif job is None:
        note = "no trained model is on this machine, so that there is no tokenizer to show tokens with"
    else:
        which = "which was trained on this build" if of_build else "the latest model here: none of this build is"
        note = (
            f"{_NOTES[dataset]}; tokenised as by {job.parent.parent.name}/{job.name}, {which}; drift was not recorded"
        )
    advantage = (row.get("advantages") or [None])[0]
    return api.RowAnswer(
        dataset=dataset, row_id=row_id, **origin, weight=row.get("weight"), advantage=advantage, note=note
    )


def training_job(root: Path) -> tuple[Path | None, bool]:
    """Return the folder of the training job of a night whose tokenizer shows the rows, and whether it was trained on the
    build in `root`: a challenger of that build, another model of it, or the latest model of this home. None without any.
    """
    lock, states = root / LOCK, sorted((home() / "nights").glob("*/state.json"))
    # A night's state is written after each step, and the lock by each build.
    stamps = tuple(file_stamp(path) for path in (lock, *states) if path.is_file())
    return _training_job(lock, home(), stamps)


@lru_cache(maxsize=1)
def _training_job(lock: Path, home: Path, stamps: tuple[str, ...]) -> tuple[Path | None, bool]:
    build = file_sha256(lock) if lock.is_file() else None
    jobs: list[tuple[bool, bool, float, Path]] = []
    for tokenizer in home.glob("nights/*/training/*/checkpoint/tokenizer.json"):
        job, registered = tokenizer.parent.parent, None
        # Absent where the night is unfinished, damaged, or of an older Ratchet.
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            state = msgspec.json.decode((job.parents[1] / "state.json").read_bytes())
            registered = state["results"][f"register {job.name}"]["build"]
        of_build = build is not None and registered == build
        jobs.append((of_build, job.name == "challenger", tokenizer.stat().st_mtime, job))
    of_build, *_, best = max(jobs, default=(False, None))
    return best, of_build


def row_tokens(root: Path, dataset: str, row_id: str) -> list[api.TokenView]:
    """Return the tokens of a row as training sees them; empty where it has none to train. Raises KeyError for an unknown
    row, DataError.
    """
    job, _ = training_job(root)
    built = _dataset_files(root, dataset)[ROWS_TABLE]
    return _tokens(root, dataset, row_id, job, file_stamp(built))


@lru_cache(maxsize=8)
def _tokens(root: Path, dataset: str, row_id: str, job: Path | None, stamp: str) -> list[api.TokenView]:
    origin, row = _read_row(root, dataset, row_id)
    if dataset not in _NOTES or job is None:
        return []
    tokens = _process.ask(str(root), dataset, row, origin["episode_ids"], str(job))
    return [api.TokenView(**token) for token in tokens]


def tokenize_row(
    root: str, dataset: str, row: Mapping[str, Any], episode_ids: Sequence[str], job: str
) -> list[dict[str, Any]]:
    """Tokenise a row by the functions and the options of a training job; return the fields of TokenView."""
    from ratchet.components.training.config.shared_sections import FormatOptions
    from ratchet.components.training.exported_rows import drop_weightless_labels
    from ratchet.components.training.format.chat_rows import reply_weights, tokenize_rows
    from ratchet.components.training.format.training_row import IGNORE, fit_rows

    # Tokenizers need no torch, whose import would take most of the time: transformers leaves out what is not installed.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(Path(job) / "checkpoint")
    config = msgspec.json.decode((Path(job) / "config.json").read_bytes())
    options, sft = FormatOptions.load(config.get("format") or {}), config.get("sft") or {}
    sampled = _sampled_replies(Path(root), episode_ids)
    tokens: list[dict[str, Any]] = []
    for messages, weight, advantage in _conversations(dataset, row, weighted=sft.get("weighted", True)):
        weights = reply_weights(messages) if dataset == "sft" and sft.get("step_weighted_loss") else None
        fitted = fit_rows(
            tokenize_rows(messages, row.get("tools"), tokenizer, weight=weight, weights=weights, options=options).rows,
            options,
        )
        for part in map(drop_weightless_labels, fitted.rows):
            logprobs = _sampled_logprobs(part, sampled)
            for place, (token, label, value) in enumerate(zip(part.input_ids, part.labels, part.weights, strict=True)):
                tokens.append(
                    {
                        "text": tokenizer.decode([token]),
                        "mask": label != IGNORE,
                        "weight": value,
                        "advantage": advantage if label != IGNORE else None,
                        "logprob": logprobs.get(place),
                        "drift": None,
                    }
                )
    return tokens


def _conversations(
    dataset: str, row: Mapping[str, Any], *, weighted: bool
) -> list[tuple[list[dict[str, Any]], float, float | None]]:
    """Return (messages, weight, advantage) of each conversation that a row trains."""
    if dataset == "sft":
        return [(row["messages"], row.get("weight", 1.0) if weighted else 1.0, None)]
    if dataset == "dpo":
        return [([*row["prompt"], *row[side]], 1.0, None) for side in ("chosen", "rejected")]
    pairs = zip(row["attempts"], row["advantages"], strict=True)
    return [([*row["prompt"], *attempt], 1.0, advantage) for attempt, advantage in pairs]


def _sampled_replies(root: Path, episode_ids: Sequence[str]) -> dict[tuple[int, ...], list[float]]:
    """Return the log-probabilities of the sampled replies of episodes, by their token ids."""
    found: dict[tuple[int, ...], list[float]] = {}
    for path in sorted((root / "data/rollouts").glob("*/tokens-*.parquet")):
        columns = ["completion_ids", "logprobs"]
        for row in pq.read_table(path, columns=columns, filters=[("episode_id", "in", episode_ids)]).to_pylist():
            found[tuple(row["completion_ids"])] = row["logprobs"]
    return found


def _sampled_logprobs(row: "TrainingRow", sampled: Mapping[tuple[int, ...], list[float]]) -> dict[int, float]:
    """Return the log-probability by place of the replies whose tokens are those that were sampled."""
    found: dict[int, float] = {}
    for turn in row.turns:
        ids = tuple(row.input_ids[turn.start : turn.end])
        # The token that ends a reply is trained, and not among the recorded ones.
        logprobs = sampled.get(ids) or sampled.get(ids[:-1]) or []
        found |= {turn.start + number: value for number, value in enumerate(logprobs)}
    return found
