"""API view of drift: the log-probability of a sampled token in its dataset row, under the very weights that sampled it, less
the recorded one. A separate process (query_process.py) imports torch and loads the weights.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import psutil

from ratchet.components.core import DataError
from ratchet.components.core.home import home
from ratchet.components.models.checkpoint_folders import checkpoint_version, is_adapter, read_adapter
from ratchet.components.trajectories.trajectory import Agent

from . import api_models as api
from . import token_views
from .query_process import QueryProcess

if TYPE_CHECKING:
    from ratchet.components.training.token_scoring import TokenScorer

_process = QueryProcess("drift", seconds=600.0, idle_seconds=300.0)
_scorers: dict[tuple[str, float], "TokenScorer"] = {}


def row_drift(root: Path, dataset: str, row_id: str, agent: Callable[[str], Agent]) -> api.DriftAnswer:
    """Return the drift of a row. `agent`: returns the agent of an episode. Raises KeyError for an unknown row or episode,
    DataError where there is no drift, InfrastructureError.
    """
    origin, row = token_views.read_row(root, dataset, row_id)
    job, _ = token_views.training_job(root)
    if job is None or dataset not in token_views.NOTES:
        raise DataError("this row has no tokens of its own, and so no drift")
    agents = [agent(id) for id in origin["episode_ids"]]
    sampled = [(own.policy_version, own.sampling.get("temperature")) for own in agents]
    return api.DriftAnswer(**_process.ask(str(root), dataset, row, origin["episode_ids"], str(job), sampled))


def measure_drift(
    root: str, dataset: str, row: Mapping[str, Any], episode_ids: Sequence[str], job: str, sampled: Sequence[Any]
) -> dict[str, Any]:
    """Return the fields of DriftAnswer. `sampled`: policy version and temperature of each episode. Raises DataError."""
    weights: dict[str, tuple[str, float | None]] = dict(zip(episode_ids, map(tuple, sampled), strict=True))
    tokenizer = token_views.job_tokenizer(job)
    places: list[int] = []
    values: list[float] = []
    shown, moved, begin = 0, 0, 0
    for part, _, replies in token_views.trained_rows(root, dataset, row, episode_ids, job, tokenizer):
        used = {weights[reply.episode_id] for _, reply in replies}
        scores = {own: _score(Path(root), *own, part.input_ids, tokenizer) for own in used}
        for start, reply in replies:
            for place, logprob in enumerate(reply.logprobs, start):
                if math.isfinite(logprob):  # vLLM gives NaN for a token that it could not score
                    places.append(begin + place)
                    values.append(scores[weights[reply.episode_id]][place - 1] - logprob)
            shown, moved = shown + 1, moved + (reply.context != part.input_ids[:start])
        begin += len(part.input_ids)
    if not places:
        if not token_views.sampled_replies(Path(root), episode_ids):
            raise DataError("no log-probabilities were recorded when the episodes of this row were played: no drift")
        raise DataError("another tokenizer or chat template made this row than sampled it: no reply is equal, no drift")
    sizes = [abs(value) for value in values]
    note = f"{shown} replies as sampled by {', '.join(sorted({version for version, _ in weights.values()}))}"
    if moved:
        note += f", {moved} of them after other tokens than here: that is part of their drift"
    return {"places": places, "values": values, "mean": fmean(sizes), "largest": max(sizes), "note": note}


def _score(root: Path, version: str, temperature: float | None, ids: list[int], tokenizer: Any) -> list[float]:
    """Return the log-probability of each token but the first under the weights of a policy version."""
    from ratchet.components.training.token_scoring import TokenScorer, scoring_memory

    if temperature is None:
        raise DataError(f"the temperature at which {version} sampled is not recorded: no drift")
    scorer = _scorers.get((version, temperature))
    if scorer is None:
        _scorers.clear()  # not two models at once in memory
        folder = find_checkpoint(root, version)
        need = scoring_memory(read_adapter(folder).base if is_adapter(folder) else folder, len(ids))
        if need > (free := psutil.virtual_memory().available):
            raise DataError(
                f"{version} needs {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory are free; close other programs"
            )
        scorer = _scorers[version, temperature] = TokenScorer(folder, temperature)
    if scorer.tokenizer.convert_ids_to_tokens(ids) != tokenizer.convert_ids_to_tokens(ids):
        raise DataError(
            f"this row is tokenised by another tokenizer than that of {version}, which sampled it: no drift"
        )
    return scorer.log_probs(ids)


def find_checkpoint(root: Path, version: str) -> Path:
    """Return the folder of a policy version's checkpoint: the one that a night recorded, or one trained by hand or bundled.
    Raises DataError where no folder holds exactly its files.
    """
    from ratchet.components.nights.night_history import recorded_models
    from ratchet.components.nights.night_state import open_night

    folders: list[Path] = []
    for path in sorted((home() / "nights").glob("*/state.json")):
        with suppress(DataError, OSError):  # a damaged night
            models = recorded_models(open_night(path.parent.name).results)
            folders += [root / folder for own, folder in models if own == version]
    folders += [*home().glob("training/*/checkpoint"), *root.glob("data/models/*")]
    for folder in dict.fromkeys(folders):
        with suppress(DataError, OSError):  # pruned, or changed since
            if checkpoint_version(folder) == version:
                return folder
    raise DataError(
        f"the weights {version}, which sampled this row, are not on this machine: pruned, or of another home; put their "
        "folder into data/models"
    )
