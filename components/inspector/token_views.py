"""API views of dataset rows and of their tokens, which the functions of the training job make."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
NOTES = {
    "sft": "weights before the job scales them to a mean of 1 over all its trained tokens",
    "dpo": "the chosen side, then the rejected side; each begins with the shared prompt",
    "groups": "the attempts one after the other, each with its advantage",
}
PROCESS = QueryProcess("tokens")


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


def read_row(root: Path, dataset: str, row_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
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
    origin, row = read_row(root, dataset, row_id)
    job, of_build = training_job(root)
    if dataset not in NOTES:
        note = "a prompt without tokens to train: they are sampled during training"
    elif job is None:
        note = "no trained model is on this machine, so that there is no tokenizer to show tokens with"
    else:
        which = "which was trained on this build" if of_build else "the latest model here: none of this build is"
        note = f"{NOTES[dataset]}; tokenised as by {job.parent.parent.name}/{job.name}, {which}"
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


@lru_cache(maxsize=2)  # about 1 KiB a token
def _tokens(root: Path, dataset: str, row_id: str, job: Path | None, stamp: str) -> list[api.TokenView]:
    origin, row = read_row(root, dataset, row_id)
    if dataset not in NOTES or job is None:
        return []
    tokens = PROCESS.ask(str(root), dataset, row, origin["episode_ids"], str(job))
    return [api.TokenView(**token) for token in tokens]


def tokenize_row(
    root: str, dataset: str, row: Mapping[str, Any], episode_ids: Sequence[str], job: str
) -> list[dict[str, Any]]:
    """Tokenise a row by the functions and the options of a training job; return the fields of TokenView."""
    from ratchet.components.training.format.training_row import IGNORE

    # Tokenizers need no torch, whose import would take most of the time: transformers leaves out what is not installed.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    tokenizer = job_tokenizer(job)
    tokens: list[dict[str, Any]] = []
    for part, advantage, replies in trained_rows(root, dataset, row, episode_ids, job, tokenizer):
        logprobs = {start + place: value for start, reply in replies for place, value in enumerate(reply.logprobs)}
        for place, (token, label, value) in enumerate(zip(part.input_ids, part.labels, part.weights, strict=True)):
            tokens.append(
                {
                    "text": tokenizer.decode([token]),
                    "mask": label != IGNORE,
                    "weight": value,
                    "advantage": advantage if label != IGNORE else None,
                    "logprob": logprobs.get(place),
                }
            )
    return tokens


def job_tokenizer(job: str) -> Any:
    """Return the tokenizer of a training job's checkpoint."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(Path(job) / "checkpoint")


class SampledReply(NamedTuple):
    """A recorded reply: the ids that it was sampled after, its own, and their natural log-probabilities."""

    episode_id: str
    context: list[int]
    ids: list[int]
    logprobs: list[float]


def trained_rows(
    root: str, dataset: str, row: Mapping[str, Any], episode_ids: Sequence[str], job: str, tokenizer: Any
) -> Iterator[tuple["TrainingRow", float | None, list[tuple[int, SampledReply]]]]:
    """Yield the training rows of a dataset row, in order, with their advantage and the sampled replies that they show token by
    token, each with the place at which it begins. `tokenizer`: that of the job.
    """
    from ratchet.components.training.config.shared_sections import FormatOptions
    from ratchet.components.training.exported_rows import drop_weightless_labels
    from ratchet.components.training.format.chat_rows import reply_weights, tokenize_rows
    from ratchet.components.training.format.training_row import fit_rows

    config = msgspec.json.decode((Path(job) / "config.json").read_bytes())
    options, sft = FormatOptions.load(config.get("format") or {}), config.get("sft") or {}
    sampled = sampled_replies(Path(root), episode_ids)
    for number, (side, advantage) in enumerate(_conversations(dataset, row)):
        weights: list[float | None] | None = None
        if dataset == "sft" and sft.get("step_weighted_loss"):
            weights = [*reply_weights(side)]
        elif dataset != "sft" and options.agent_format:  # replies of the prompt are context
            weights = [*[None] * len(reply_weights(row["prompt"])), *[1.0] * len(reply_weights(side))]
        weight = row.get("weight", 1.0) if dataset == "sft" and sft.get("weighted", True) else 1.0
        messages = [*row.get("prompt", ()), *side]
        fitted = fit_rows(
            tokenize_rows(messages, row.get("tools"), tokenizer, weight=weight, weights=weights, options=options).rows,
            options,
        )
        # The other episodes of a row share its prompt, which may hold replies.
        left = sorted(sampled, key=lambda reply: reply.episode_id != episode_ids[number])
        for part in map(drop_weightless_labels, fitted.rows):
            yield part, advantage, list(_find_replies(part, left))


def _conversations(dataset: str, row: Mapping[str, Any]) -> list[tuple[list[dict[str, Any]], float | None]]:
    """Return the messages after the prompt and the advantage of each conversation that a row trains, one per episode."""
    if dataset == "sft":
        return [(row["messages"], None)]
    if dataset == "dpo":
        return [(row["chosen"], None), (row["rejected"], None)]
    return list(zip(row["attempts"], row["advantages"], strict=True))


def sampled_replies(root: Path, episode_ids: Sequence[str]) -> list[SampledReply]:
    """Return the replies of episodes whose log-probabilities are recorded, in the order of their turns."""
    found: list[SampledReply] = []
    columns = ["episode_id", "turn", "kept", "prompt_ids", "completion_ids", "logprobs"]
    for path in sorted((root / "data/rollouts").glob("*/tokens-*.parquet")):
        rows = pq.read_table(path, columns=columns, filters=[("episode_id", "in", episode_ids)]).to_pylist()
        before: dict[str, list[int]] = {}
        for row in sorted(rows, key=lambda row: row["turn"]):
            context = before.get(row["episode_id"], [])[: row["kept"]] + row["prompt_ids"]
            before[row["episode_id"]] = context + row["completion_ids"]
            if row["logprobs"]:
                found.append(SampledReply(row["episode_id"], context, row["completion_ids"], row["logprobs"]))
    return found


def _find_replies(row: "TrainingRow", left: list[SampledReply]) -> Iterator[tuple[int, SampledReply]]:
    """Yield the replies of a row whose tokens are those that were sampled, with their places, and remove them from `left`.
    Of equal replies that after the same tokens is taken, else the first.
    """
    for turn in row.turns:
        ids = row.input_ids[turn.start : turn.end]
        # The token that ends a reply is trained, and not among the recorded ones where another one stopped it.
        same = [reply for reply in left if reply.ids in (ids, ids[:-1])]
        context = row.input_ids[: turn.start]
        if same:
            best = next((reply for reply in same if reply.context == context), same[0])
            left.remove(best)
            yield turn.start, best
