"""Spool folder of a collection: complete cohorts are shards, finished episodes of other cohorts are in journals.

A journal has one line per episode. A line is written in one piece and survives the kill of the process; a crash of the
machine may lose lines since the last `sync`. A torn or damaged line is dropped, and its episode is played again.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from ratchet.components.core import ConfigurationError, Policy
from ratchet.components.core.files import fsync_path, try_lock_file, write_atomically
from ratchet.components.core.otlp_export import traces_enabled
from ratchet.components.trajectories.shards import read_jsonl, read_manifest, write_shard_lines
from ratchet.components.trajectories.token_sidecar import TurnTokens, encode_tokens
from ratchet.components.trajectories.trajectory import Trajectory

from .collection_plan import PlannedEpisode, folder_plan


class _JournalLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    episode_id: str
    trajectory: msgspec.Raw
    tokens: list[TurnTokens]
    branches: list[msgspec.Raw] = []


class _Identity(msgspec.Struct):
    episode_id: str


_encoder = msgspec.json.Encoder()


class EpisodeJournal:
    """One journal file, written by one process; each episode id occurs once. Call `load` before `append`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: set[str] = set()
        self._unsynced = False

    def load(self, planned: Collection[str]) -> list[Trajectory]:
        """Return the episodes that an earlier process journaled and whose ids are in `planned`, each once; remove all
        other lines from the file.
        """
        if not self.path.is_file():
            return []
        lines = self.path.read_bytes().split(b"\n")
        trajectories: list[Trajectory] = []
        valid_lines: list[bytes] = []
        for line in lines[:-1]:
            try:
                entry = msgspec.json.decode(line, type=_JournalLine)
                trajectory = msgspec.json.decode(entry.trajectory, type=Trajectory)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            identity = entry.episode_id
            if identity in planned and identity not in self.ids and identity == trajectory.episode_id:
                self.ids.add(identity)
                trajectories.append(trajectory)
                valid_lines.append(line)
        if valid_lines != lines[:-1] or lines[-1]:
            write_atomically(self.path, b"".join(line + b"\n" for line in valid_lines))
        return trajectories

    def append(self, trajectory: Trajectory, tokens: list[TurnTokens], branches: Sequence[Trajectory] = ()) -> bool:
        """Append one episode with its `branches`, whose token rows are in `tokens` too; return False without writing if
        its id is present already. Raises OSError on a full disk.

        The line is not on disk before `sync`.
        """
        if trajectory.episode_id in self.ids:
            return False
        raw, others = msgspec.Raw(_encoder.encode(trajectory)), [msgspec.Raw(_encoder.encode(one)) for one in branches]
        line = _encoder.encode(_JournalLine(trajectory.episode_id, raw, tokens, others)) + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # A single `write` call, so that a kill of this process cannot cut the line.
            if os.write(file, line) < len(line):
                raise OSError(28, "no space left for the journal", str(self.path))
        finally:
            os.close(file)
        self.ids.add(trajectory.episode_id)
        self._unsynced = True
        return True

    def sync(self) -> None:
        """Flush appended lines to disk."""
        if self._unsynced:
            fsync_path(self.path)
            self._unsynced = False

    def entries(self) -> list[_JournalLine]:
        """Return every episode: identity, trajectory JSON as written, and token rows."""
        return [msgspec.json.decode(line, type=_JournalLine) for line in self.path.read_bytes().splitlines()]


REMOVABLE_LEFTOVERS = (".plan.txt.", "shard-")
"""Prefixes of file names that are allowed in a folder without a plan.txt: left by a kill at the very start, or shards
brought from another machine.
"""


class RolloutSpool:
    """Context manager with exclusive access to the folder. Every planned episode is stored at most once.

    `cohorts`: planned episodes by cohort; the number of a cohort is that of its shard. `identity`: hash of the plan,
    written to a new folder and compared in an existing one. Exhaust `saved` before any other method.
    A kill at any moment loses no finished episode: a shard and its manifest line are written before the journal is
    removed.
    """

    def __init__(self, folder: Path, cohorts: Mapping[int, Sequence[PlannedEpisode]], identity: str) -> None:
        self.folder = folder
        self.cohorts = cohorts
        self._identity = identity
        self._cohort_of = {episode.episode_id: number for number, cohort in cohorts.items() for episode in cohort}
        self._journals: dict[int, EpisodeJournal] = {}
        self._sharded: set[int] = set()
        self._lock: int | None = None

    def __enter__(self) -> Self:
        """Create the folder, or check that it belongs to this plan. Raises ConfigurationError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError, FileNotFoundError, PermissionError) as error:
            raise ConfigurationError(
                f"{self.folder} cannot be made a folder: {error.strerror}; give the path of a new folder"
            ) from error
        # The folder itself is locked: no lock file is left among the shards, and a kill releases it.
        self._lock = os.open(self.folder, os.O_RDONLY)
        try:
            if not try_lock_file(self._lock):
                raise ConfigurationError(f"another process collects into {self.folder}; wait for its end or stop it")
            self._check_folder()
        except BaseException:
            self._unlock()
            raise
        sealed = {int(entry.shard[6:11]) for entry in read_manifest(self.folder)}
        self._sharded = sealed & self.cohorts.keys()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.sync()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _check_folder(self) -> None:
        recorded_identity = folder_plan(self.folder)
        files = {path.name for path in self.folder.iterdir()}
        if recorded_identity is None and not all(name.startswith(REMOVABLE_LEFTOVERS) for name in files):
            raise ConfigurationError(f"{self.folder.absolute()} holds other files; give a new or an empty folder")
        # A run that failed before its first episode may be repeated with other settings.
        if recorded_identity is None or files == {"plan.txt"}:
            write_atomically(self.folder / "plan.txt", f"{self._identity}\n".encode())
        elif recorded_identity != self._identity:
            raise ConfigurationError(
                f"{self.folder} holds episodes of another plan (tasks, policy or seeds differ); "
                "give another folder or remove it"
            )

    def saved(self) -> Iterator[Trajectory]:
        """Yield the planned episodes of earlier runs, from shards and journals, and load the journals.

        Exhaust it before `missing`, `saved_count` or saving, which rely on the loaded journals.
        """
        for number in sorted(self._sharded):
            # A kill after the shard was written leaves its journal behind; the shard holds all of it.
            self._journal_path(number).unlink(missing_ok=True)
            shard = read_jsonl(self.folder / f"shard-{number:05d}.jsonl")
            yield from (trajectory for trajectory in shard if trajectory.episode_id in self._cohort_of)
        for number in self.unfinished():
            yield from self._journal(number).load({episode.episode_id for episode in self.cohorts[number]})

    @property
    def saved_count(self) -> int:
        """Number of episodes in shards and journals."""
        shards = sum(len(self.cohorts[number]) for number in self._sharded)
        return shards + sum(len(journal.ids) for journal in self._journals.values())

    def unfinished(self) -> list[int]:
        """Return the numbers of the cohorts without a shard."""
        return [number for number in self.cohorts if number not in self._sharded]

    def missing(self) -> list[PlannedEpisode]:
        """Return the episodes that are not saved, in plan order."""
        return [
            episode
            for number in self.unfinished()
            for episode in self.cohorts[number]
            if episode.episode_id not in self._journal(number).ids
        ]

    def save(
        self, trajectory: Trajectory, tokens: list[TurnTokens], policy: Policy, branches: Sequence[Trajectory] = ()
    ) -> None:
        """Journal an episode, and write the shard if it completes its cohort. `policy` identifies the tokenizer of
        `tokens`; `branches`: further records of the same attempt, which were not planned and follow it in the shard.

        An episode that is saved already is ignored.
        """
        number = self._cohort_of[trajectory.episode_id]
        if number not in self._sharded:
            self._journal(number).append(trajectory, tokens, branches)
            self.seal_complete(number, policy)

    def seal_complete(self, number: int, policy: Policy) -> None:
        """Write the shard of cohort `number` if all its episodes are journaled; else do nothing. `policy`: see `save`."""
        journal, cohort = self._journal(number), self.cohorts[number]
        if len(journal.ids) < len(cohort):
            return
        entry_by_id = {entry.episode_id: entry for entry in journal.entries()}
        entries = [entry_by_id[episode.episode_id] for episode in cohort]
        records = (record for entry in entries for record in (entry.trajectory, *entry.branches))
        lines = b"".join(bytes(record) + b"\n" for record in records)
        self.write(number, lines, token_table([row for entry in entries for row in entry.tokens], policy))

    def write(self, number: int, lines: bytes, tokens: bytes | None) -> None:
        """Write a cohort's shard (`lines`: trajectories as JSON lines in plan order, each with its branches behind it;
        `tokens`: Parquet, None for none) and remove its journal.
        """
        ids = [msgspec.json.decode(line, type=_Identity).episode_id for line in lines.splitlines()]
        write_shard_lines(self.folder, number, ids, lines, tokens)
        if traces_enabled():
            from ratchet.components.trajectories.episode_spans import send_episodes

            send_episodes(lines)
        # The journal goes last: a kill before this line leaves both, and `saved` reads the shard.
        self._sharded.add(number)
        self._journals.pop(number, None)
        self._journal_path(number).unlink(missing_ok=True)

    def sync(self) -> None:
        """Flush the journals to disk."""
        for journal in self._journals.values():
            journal.sync()

    def _journal(self, number: int) -> EpisodeJournal:
        if number not in self._journals:
            self._journals[number] = EpisodeJournal(self._journal_path(number))
        return self._journals[number]

    def _journal_path(self, number: int) -> Path:
        return self.folder / f"journal-{number:05d}.jsonl"


def token_table(rows: list[TurnTokens], policy: Policy) -> bytes | None:
    """Return the token sidecar of a shard as Parquet bytes, with the policy's tokenizer and template hashes; None if
    there are no rows.
    """
    if not rows:
        return None
    return encode_tokens(rows, tokenizer_hash=policy.tokenizer_hash or "", template_hash=policy.template_hash or "")


def spool_status(folder: Path) -> dict[str, int | bool]:
    """Return whether a process collects into a folder now, and its numbers of episodes in shards and in journals."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        is_running = not try_lock_file(lock, shared=True)
    finally:
        os.close(lock)
    entries = read_manifest(folder)
    sealed = {entry.shard[6:11] for entry in entries}
    journals = [path for path in folder.glob("journal-*.jsonl") if path.stem[-5:] not in sealed]
    return {
        "running": is_running,
        "episodes": sum(entry.episodes for entry in entries),
        "in_journals": sum(path.read_bytes().count(b"\n") for path in journals),
    }
