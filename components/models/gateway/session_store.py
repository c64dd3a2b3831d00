"""Keeps the recorded sessions of a gateway in a store of trajectories, in a process of its own.

Redaction and compression would otherwise hold the gateway's interpreter while other sessions wait. When `keep` returns, the
session's records survive a kill and a power cut.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import msgspec

from ratchet.components.core import InfrastructureError
from ratchet.components.redaction import Sanitiser
from ratchet.components.trajectories.parallel_shards import exit_with_parent
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.token_sidecar import TurnTokens, encode_tokens
from ratchet.components.trajectories.trajectory import Trajectory, with_content_hash

from .gateway_sessions import KEY_PREFIX, Session
from .message_tree import RecordedBranch

KEY_PLACEHOLDER = "[GATEWAY_KEY]"


def redact_branches(branches: list[RecordedBranch], keys: list[str]) -> list[RecordedBranch]:
    """Return the branches without secrets, personal data and the `keys`. Token ids of a record in which something was found are
    left out, because they spell the same text; `source_extra.tokens_left_out` says so.
    """
    sanitiser = Sanitiser()
    clean: list[RecordedBranch] = []
    for trajectory, tokens in branches:
        hidden = without_keys(trajectory, keys)
        redacted, findings = sanitiser.trajectory(hidden)
        if redacted is None:
            continue
        if findings or hidden is not trajectory:
            if tokens:
                extra = {**redacted.source_extra, "tokens_left_out": "they spell redacted text"}
                redacted = msgspec.structs.replace(redacted, source_extra=extra)
            tokens = []
        clean.append((redacted, tokens))
    return clean


def without_keys(trajectory: Trajectory, keys: list[str]) -> Trajectory:
    """Return the trajectory with a placeholder for each of `keys`; the same object where it holds none."""
    line = msgspec.json.encode(trajectory)
    hidden = line
    for key in keys:
        hidden = hidden.replace(key.encode(), KEY_PLACEHOLDER.encode())
    if hidden == line:
        return trajectory
    return with_content_hash(msgspec.json.decode(hidden, type=Trajectory))


_writer: StoreWriter | None = None


def _open(root: Path, parent: int) -> None:
    global _writer
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group; the gateway lets this process finish
        signal.signal(number, signal.SIG_IGN)
    os.nice(5)  # redaction takes more processor time than the gateway itself; sessions that wait for a reply come first
    threading.Thread(target=exit_with_parent, args=(parent,), daemon=True).start()
    _writer = StoreWriter(root)
    _writer.__enter__()


def _put(branches: list[RecordedBranch], keys: list[str], tokenizer_hash: str, template_hash: str) -> int:
    assert _writer is not None
    clean = redact_branches(branches, keys)
    rows: list[TurnTokens] = [row for _, tokens in clean for row in tokens]
    sidecar = encode_tokens(rows, tokenizer_hash=tokenizer_hash, template_hash=template_hash) if rows else None
    _writer.put([trajectory for trajectory, _ in clean], tokens=sidecar)
    return len(clean)


class SessionStore:
    """The store of a gateway at `root`, which no other process writes meanwhile. A context manager. `keys`: texts that no
    record may hold.

    Raises ConfigurationError where the folder is no store or another process writes it.
    """

    def __init__(self, root: Path, keys: list[str], tokenizer_hash: str | None, template_hash: str | None) -> None:
        self._keys = keys
        self._hashes = (tokenizer_hash or "", template_hash or "")
        self._root = root
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "SessionStore":
        with StoreWriter(self._root):  # its errors, in this process
            pass
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_open, initargs=(self._root, os.getpid()))
        self._pool.submit(os.getpid).result()
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    async def keep(self, session: Session, branches: list[RecordedBranch]) -> None:
        """Store a session's branches. Raises InfrastructureError on a full disk or a dead process."""
        assert self._pool is not None and session.key.startswith(KEY_PREFIX)
        keys = [*self._keys, session.key]
        try:
            await asyncio.wrap_future(self._pool.submit(_put, branches, keys, *self._hashes))
        except BrokenProcessPool as error:
            raise InfrastructureError("the process that writes the store has died; start the gateway again") from error
