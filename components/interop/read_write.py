"""Read logs as trajectories in memory, write them, and convert files."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import open_atomically, write_error
from ratchet.components.trajectories.shards import write_shard
from ratchet.components.trajectories.trajectory import Trajectory
from ratchet.components.trajectories.trajectory_list import Trajectories

from .log_conversion import ConversionReport, LogStream, convert_logs
from .trajectory_writers import RATCHET_FORMAT, line_encoder

SHARD_EPISODES = 250


def read(path: Path | str, format: str = "auto") -> Trajectories:
    """Return the trajectories of a log of any format, of a folder of shards, or of a folder of logs.

    `format`: one of `ratchet.list_formats()`; auto detects it by content. Success that a log does not prove is None. The
    rewards of a verifiers log stand for the rules' total in `compare` and the exports; `with_rewards` replaces them.
    Raises ConfigurationError (unknown format), DataError (another format, damaged, empty).

    >>> _ = ratchet.write(ratchet.collect("orders", agent="teacher", tasks=2), "runs.jsonl")
    >>> ratchet.read("runs.jsonl")
    Trajectories(2 episodes of 2 tasks by teacher; success 100.0 %)
    """
    log = Path(path)
    if not log.exists():
        raise ConfigurationError(f"{log} is absent; give a log, a folder of logs, or a folder of collected episodes")
    episodes = tuple(LogStream(log, format))
    if not episodes:
        raise DataError(f"{log} holds no trajectory; is it the right path?")
    rewards = {each.episode_id: each.outcome.score for each in episodes}
    has_rewards = all(each.provenance.source == "verifiers" for each in episodes) and any(
        reward is not None for reward in rewards.values()
    )
    return Trajectories(episodes, rewards=rewards if has_rewards else None, folder=log if log.is_dir() else None)


def write(episodes: Iterable[Trajectory], path: Path | str, format: str = RATCHET_FORMAT) -> Path:
    """Write trajectories and return the path: `X.jsonl` is one file, any other name a new folder of shards.

    `format` of a file: ratchet, openai_chat, adp, verifiers, atif, otel, or one of an installed package. A file is written whole or
    not at all. Raises ConfigurationError, InfrastructureError.

    >>> ratchet.write(ratchet.collect("orders", agent="teacher", tasks=1), "chats.jsonl", format="openai_chat").name
    'chats.jsonl'
    """
    out = Path(path)
    is_file = out.suffix in (".jsonl", ".json")
    if not is_file and (format != RATCHET_FORMAT or (out.exists() and (not out.is_dir() or any(out.iterdir())))):
        raise ConfigurationError(f"{out}: give a file X.jsonl, or a new folder for shards, which are of our own format")
    encode = line_encoder(format)
    try:
        if is_file:
            with open_atomically(out) as file:
                file.writelines(map(encode, episodes))
            return out
        out.mkdir(parents=True, exist_ok=True)
        rest = iter(episodes)
        for index, shard in enumerate(iter(lambda: list(islice(rest, SHARD_EPISODES)), [])):
            write_shard(out, index, shard)
    except OSError as error:
        raise write_error(out, error) from error
    return out


def convert(
    log: Path | str, out: Path | str, *, to: str = RATCHET_FORMAT, format: str = "auto", **options: Any
) -> ConversionReport:
    """Convert a log, or a folder of logs, to one file without holding it in memory, and return the counts.

    `options`: `skip_bad`, `blobs` and `naming` of `convert_logs`. Raises ConfigurationError, DataError.

    >>> _ = ratchet.write(ratchet.collect("orders", agent="teacher", tasks=2), "episodes.jsonl")
    >>> ratchet.convert("episodes.jsonl", "traces.jsonl", to="verifiers").trajectories
    2
    """
    return convert_logs(Path(log), Path(out), format=format, to=to, **options)
