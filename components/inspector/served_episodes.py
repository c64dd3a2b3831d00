"""The episodes that an inspector serves: its sources, the thread that indexes them, and queries over the index."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.components.core import ConfigurationError, RatchetError, load_domain
from ratchet.components.core.configuration import read_section
from ratchet.components.core.home import home, home_folder, params_file
from ratchet.components.datasets.export.row_filter import Kind, parse_filter
from ratchet.components.interop.log_conversion import convert_logs
from ratchet.components.interop.log_source import LogSource
from ratchet.components.interop.ratchet_reader import RatchetReader
from ratchet.components.redaction import error_line
from ratchet.components.rewards.annotation_records import JUDGEMENTS_FILE, LABELS_FILE, WHOLE, Judgement, Label
from ratchet.components.rewards.calibration.calibration_record import Calibration
from ratchet.components.rewards.calibration.labelled_scores import latest_labels
from ratchet.components.rewards.episode_scoring import score_all
from ratchet.components.rewards.hack_detection.hack_detector import find_hacks
from ratchet.components.rewards.reward_config import RewardConfig
from ratchet.components.trajectories.blobs import blob_name, is_blob_name
from ratchet.components.trajectories.shards import MANIFEST
from ratchet.components.trajectories.trajectory import Trajectory, digest

from . import api_models as api
from .clean_texts import clean_text
from .episode_views import EpisodeRewards, score_rows
from .index import (
    RECORD_COLUMNS,
    SCORE_COLUMNS,
    InspectorIndex,
    SourceFile,
    file_stamp,
    read_record,
    source_files,
)

COLUMNS: dict[str, Kind] = {**RECORD_COLUMNS, "source": "text", **SCORE_COLUMNS, "damaged": "truth"}
"""Columns of `where` and `sort`."""
_TYPES = {"text": pa.string(), "number": pa.float64(), "truth": pa.bool_()}
_SELECT = (
    f"SELECT e.key, {', '.join(f'e.{name}' for name in RECORD_COLUMNS)}, source, {', '.join(SCORE_COLUMNS)}, damaged IS NOT NULL"
    " FROM episodes e JOIN files f USING (file) LEFT JOIN scores s ON s.episode_id = e.episode_id"
)
_SCHEMA = pa.schema([("key", pa.int64()), *((name, _TYPES[kind]) for name, kind in COLUMNS.items())])
MAX_BATCHES = 200
FACETS = ("source", "kind", "outcome", "cause", "finding", "reward")
FACET_VALUES = 50
"""Values of a facet in an answer, the most frequent ones."""
POLL_SECONDS = 2.0
IMAGE_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


class EpisodeColumns(NamedTuple):
    """Columns of all episodes, the state of the index that they have, and the time until which they need not be newer."""

    table: pa.Table = _SCHEMA.empty_table()
    generation: int = -1
    revision: int = -1
    fresh_until: float = 0.0


class ServedEpisodes:
    """The episodes of the home, or of given files and folders. Thread-safe. `start` begins indexing in a thread.

    `paths`: files or folders of trajectories or of logs that `components/interop` reads; none: the sealed nights, the
    evaluations and the running collections below `root`. Raises ConfigurationError for a path that is absent.
    """

    def __init__(self, paths: Sequence[Path] = (), root: Path = Path()) -> None:
        for path in paths:
            if not path.exists():
                raise ConfigurationError(f"{path} is absent; give a file or folder of episodes")
            if clean_text(str(path)) != str(path):  # SQLite and JSON hold UTF-8 alone
                raise ConfigurationError(f"{path.name!a} is not a UTF-8 name; rename it")
        self.paths, self.root = [path.resolve() for path in paths], root.resolve()
        self.folder = home_folder("inspector", digest(*map(ascii, self.paths or [self.root]))[:16])
        self.index = InspectorIndex(self.folder / "index.sqlite")
        self.shows_labels = True
        """Whether labels by people are shown; not in a review, where a reviewer must not see those of another."""
        self.error: str | None = None
        self.running = False
        self._damage: dict[str, str] = {}
        self._total_bytes = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._columns_lock = threading.Lock()
        self._columns = EpisodeColumns()
        # The page asks for an episode's head and then for its turns, page by page.
        self._latest: tuple[tuple[Any, ...], Trajectory, EpisodeRewards] | None = None

    def start(self) -> None:
        """Load the columns of what is indexed, then index in a thread, and go on as long as files grow."""
        self.columns()  # a second for 100,000 episodes, which the first list would take longer
        self._thread = threading.Thread(target=self._run, name="inspector-index", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the index."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.index.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.update()
                self.error = None
            except InterruptedError:
                return
            except Exception as error:  # whatever a file holds: the server goes on, and says so
                self.error = error_line(error)
            self.running = False
            self._stop.wait(POLL_SECONDS)

    def update(self) -> None:
        """Index what is new, once."""

        def check_stop() -> None:
            self.running = True
            if self._stop.is_set():
                raise InterruptedError

        files = list(self._files())
        self._total_bytes = sum(file.path.stat().st_size for file in files if file.path.is_file())
        self.index.update(files, check_stop)
        for path in sorted((self.root / "data/scores").glob("*.parquet")) if not self.paths else ():
            self.index.write_scores(path, self._scores_in(path))

    def _files(self) -> Iterator[SourceFile]:
        self._damage = {}
        folders = [(path.name, path) for path in self.paths]
        if not self.paths:
            folders = [(path.name, path) for path in sorted((self.root / "data/rollouts").glob("*/"))]
            folders += [(f"{path.parent.name}/{path.name}", path) for path in sorted(home().glob("evaluations/*/*/"))]
            folders += [(f"{path.name} (running)", path) for path in sorted(home().glob("spool/*/"))]
        for name, path in folders:
            if (path / MANIFEST).exists() or any(path.glob("journal-*.jsonl")):
                files, damage = source_files(path, name)
                if damage:
                    self._damage[name] = damage
                yield from files
            elif self.paths:
                try:
                    yield self._log_copy(path)
                except (RatchetError, OSError) as error:  # the other paths are served
                    self._damage[name] = error_line(error)

    def _log_copy(self, path: Path) -> SourceFile:
        """Return a file of our own records as it is, and of other logs a converted copy, made again when the log grows."""
        if path.is_file() and RatchetReader().detects(LogSource(path)):
            return SourceFile(path, path.name)
        stamps = [file_stamp(each) for each in ([path] if path.is_file() else path.rglob("*"))]
        name, stamp = digest(str(path))[:16], digest(*sorted(stamps))[:16]
        copy = self.folder / f"{name}-{stamp}.jsonl"
        if not copy.is_file():
            convert_logs(path, copy, skip_bad=True)
            for old in self.folder.glob(f"{name}-*"):
                if not old.name.startswith(copy.stem) and old.is_file():
                    old.unlink(missing_ok=True)
        return SourceFile(copy, path.name)

    def _scores_in(self, path: Path) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the scores of a table by episode; its rows are sorted by episode."""
        names = ["episode_id", "turn", "step", "scorer", "version", "score"]
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            rows = (
                row
                for batch in file.iter_batches(16_384, columns=names)
                for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            )
            found: list[tuple[Any, ...]] = []
            for episode_id, own in groupby(rows, key=lambda row: row[0]):
                values = list(own)
                whole = {row[3]: row[5] for row in values if row[1] == WHOLE}
                findings = self._hack_kinds(episode_id) if whole.get("layer.guards") == 0 else None
                parts = [whole.get(name) for name in ("total", "process", "efficiency", "outcome")]
                packed = msgspec.json.encode(
                    [(turn, step, scorer, score) for _, turn, step, scorer, _, score in values]
                )
                found.append((episode_id, *parts, findings, values[0][4], packed))
                if len(found) == 1_000:
                    yield found
                    found = []
            yield found

    def _hack_kinds(self, episode_id: str) -> str:
        kinds = {"hack"}
        with suppress(RatchetError, KeyError):  # the record is damaged or absent, or its domain unknown
            record = read_record(self.index.locate(episode_id), episode_id)
            kinds = {hack.kind for hack in find_hacks(record, load_domain(record.task.domain))} or kinds
        return " ".join(sorted(kinds))

    def damage(self) -> list[str]:
        """Return one line for each damaged shard or manifest."""
        shards = self.index.rows("SELECT damage FROM files WHERE damage IS NOT NULL ORDER BY path")
        return [*self._damage.values(), *(line for (line,) in shards)]

    def progress(self) -> api.IndexProgress:
        """Return how much is indexed."""
        done = self.index.rows("SELECT coalesce(sum(done), 0) FROM files")[0][0]
        return api.IndexProgress(
            total_bytes=max(self._total_bytes, done), indexed_bytes=done, running=self.running, error=self.error
        )

    def columns(self) -> pa.Table:
        """Return the columns of all episodes in the order of their keys, and FACETS. While files are being indexed they may
        lag behind by some seconds.
        """
        with self._columns_lock:
            generation, revision, begin = self.index.generation, self.index.revision, time.monotonic()
            last = self._columns
            if last.generation == generation or begin < last.fresh_until:
                return last.table
            batches = last.table.select(_SCHEMA.names).to_batches() if revision == last.revision else []
            key = batches[-1]["key"][-1].as_py() if batches else 0
            self._columns = last = EpisodeColumns()  # not two tables at once in memory
            while rows := self.index.rows(f"{_SELECT} WHERE e.key > ? ORDER BY e.key LIMIT 5000", (key,)):
                key = rows[-1][0]
                arrays = map(_array, zip(*rows, strict=True), _SCHEMA.types)
                batches.append(pa.RecordBatch.from_arrays(list(arrays), schema=_SCHEMA))
            table = pa.Table.from_batches(batches, _SCHEMA)
            # Each poll of a running night adds a few rows.
            table = _with_facets(table.combine_chunks() if len(batches) > MAX_BATCHES else table)
            pa.default_memory_pool().release_unused()
            end = time.monotonic()
            # Where reading takes long it is done seldom while the index grows.
            self._columns = EpisodeColumns(table, generation, revision, end + 10 * (end - begin))
            return table

    def find(
        self, query: str, where: str, filters: dict[str, str], sort: str, offset: int, limit: int
    ) -> api.EpisodesAnswer:
        """Return a page of the episodes that fit, with facets. Raises ConfigurationError for a wrong `where` or `sort`."""
        table, column = self.columns(), sort.removeprefix("-")
        if column and column not in COLUMNS:
            raise ConfigurationError(f"there is no column '{column}' to sort by; there are {', '.join(COLUMNS)}")
        fits = pc.is_valid(table["key"])
        if where.strip():
            condition = parse_filter(where, COLUMNS)
            found = table.select(sorted({"key", *condition.columns})).filter(condition.expression)["key"]
            fits = pc.and_(fits, pc.is_in(table["key"], found.combine_chunks()))
        if query.strip():
            found = pa.array(self.index.search(query), pa.int64())
            fits = pc.and_(fits, pc.is_in(table["key"], found))
        masks = {name: _facet_mask(table, name, value) for name, value in filters.items() if value}
        facets = {}
        for name in FACETS:
            others = [mask for facet, mask in masks.items() if facet != name]
            facets[name] = _count_values(table[f"facet {name}"].filter(reduce(pc.and_, others, fits)), name)
        # Not `pc.indices_nonzero`, which ends the process where there are no rows (pyarrow 25).
        places = np.flatnonzero(reduce(pc.and_, masks.values(), fits).to_numpy())
        page = places[offset : offset + limit]
        if column:
            order = "descending" if sort.startswith("-") else "ascending"
            chosen = table.select([column, "key"]).take(places)
            sorted_places = pc.sort_indices(chosen, [(column, order), ("key", "ascending")])
            page = places[sorted_places[offset : offset + limit].to_numpy()]
        items = [_row(values) for values in table.take(page).to_pylist()]
        return api.EpisodesAnswer(total=len(places), items=items, facets=facets)

    def newest(self, source: str, limit: int) -> list[api.EpisodeRow]:
        """Return the latest episodes of sources whose name begins with `source`."""
        table = self.columns()
        places = np.flatnonzero(pc.starts_with(table["source"], source).to_numpy())[-limit:]
        return [_row(values) for values in reversed(table.take(places).to_pylist())]

    def row(self, episode_id: str) -> api.EpisodeRow:
        """Return an episode of the list. Raises KeyError for an unknown one."""
        rows = self._select("e.episode_id = ? ORDER BY e.damaged IS NOT NULL, e.key DESC LIMIT 1", episode_id)
        if not rows:
            raise KeyError(episode_id)
        return rows[0]

    def group(self, group_id: str, limit: int) -> list[api.EpisodeRow]:
        """Return the readable attempts of a group, each once, in order."""
        rows = self._select(
            "e.group_id = ? AND e.damaged IS NULL ORDER BY e.attempt, e.key LIMIT ?", group_id, 4 * limit
        )
        return list({row.episode_id: row for row in rows}.values())[:limit]

    def _select(self, condition: str, *parameters: Any) -> list[api.EpisodeRow]:
        found = self.index.rows(f"{_SELECT} WHERE {condition}", parameters)
        return [_row(dict(zip(("key", *COLUMNS), values, strict=True))) for values in found]

    def record(self, episode_id: str) -> tuple[Trajectory, EpisodeRewards]:
        """Return a record with its rewards. Raises KeyError for an unknown episode, DataError for a damaged one."""
        with self._lock:
            location = self.index.locate(episode_id)
            key = (location.key, self.index.generation, episode_id)
            if self._latest is None or self._latest[0] != key:
                self._latest = None  # not two records of 50 MB at once in memory
                record = read_record(location, episode_id)
                self._latest = key, record, self._rewards(record, location.source)
            return self._latest[1:]

    def _rewards(self, record: Trajectory, source: str) -> EpisodeRewards:
        found = self.index.rows("SELECT version, rows FROM scores WHERE episode_id = ?", (record.episode_id,))
        notes = self.root / "data"
        judgements = _annotations(notes / "judgements" / source / JUDGEMENTS_FILE, Judgement, record)
        labels = _annotations(notes / "labels" / source / LABELS_FILE, Label, record) if self.shows_labels else []
        calibration = notes / "calibration.json"
        try:
            config = read_section(params_file(), "score", RewardConfig)
            calibrated = Calibration.load(calibration) if judgements and calibration.is_file() else None
            by_content = {record.effective_hash: judgements} if judgements else {}
            computed = next(score_all([record], {}, config, None, by_content, calibrated))
        except (RatchetError, OverflowError, RecursionError):
            computed = None
        rows, version = (score_rows(computed), computed.version) if computed else ({}, "")
        if found:
            version, packed = found[0]
            rows = {(turn, step, name): value for turn, step, name, value in msgspec.json.decode(packed)}
        return EpisodeRewards(rows, version, bool(found), computed, latest_labels(labels))

    def blob(self, name: str) -> tuple[bytes, str]:
        """Return an image and its type. Raises KeyError where there is none of that name, or it is no image."""
        if not is_blob_name(name):
            raise KeyError(name)
        files = [Path(path) for (path,) in self.index.rows("SELECT path FROM files")]
        folders = (place for file in files for place in (file.parent / "blobs", file.with_name(f"{file.stem}.blobs")))
        for path in (folder / name for folder in dict.fromkeys(folders)):
            if path.is_file():
                data = path.read_bytes()
                kind = next((kind for magic, kind in IMAGE_TYPES.items() if data.startswith(magic)), None)
                if kind and (kind != "image/webp" or data[8:12] == b"WEBP") and blob_name(data) == name:
                    return data, kind
        raise KeyError(name)


def _annotations(path: Path, kind: type[Any], record: Trajectory) -> list[Any]:
    """Return the judgements or labels of one record; other lines are not decoded, and damaged ones skipped."""
    key, found = record.episode_id.encode("utf-8", "replace"), []
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if key in line:
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    found.append(msgspec.json.decode(line, type=kind))
    return [note for note in found if note.episode_id == record.episode_id]


def _array(column: Sequence[Any], kind: pa.DataType) -> pa.Array:
    values = [None if value is None else bool(value) for value in column] if kind == pa.bool_() else column
    return pa.array(values, kind)


def _with_facets(table: pa.Table) -> pa.Table:
    outcome = pc.if_else(pc.fill_null(table["success"], False), "success", "failure")
    outcome = pc.if_else(pc.is_null(table["success"]), "unknown", outcome)
    # Rounded first: 0.7 * 10 is 7.000000000000001, and 0.3 * 10 below 3 in some orders.
    tenth = pc.divide(pc.floor(pc.add(pc.multiply(table["reward"], 10.0), 1e-9)), 10.0)
    reward = pc.fill_null(pc.cast(tenth, pa.string()), "unscored")
    columns = (table["source"], table["kind"], outcome, table["cause"], table["findings"], reward)
    for name, column in zip(FACETS, columns, strict=True):
        table = table.append_column(f"facet {name}", pc.dictionary_encode(column).unify_dictionaries())
    return table


def _facet_mask(table: pa.Table, name: str, value: str) -> pa.ChunkedArray:
    """Return whether each episode has the value."""
    column = table[f"facet {name}"]
    own = [text for text in pc.unique(column).to_pylist() if text and value in _values(name, text)]
    return pc.is_in(column, pa.array(own, pa.string()))


def _count_values(column: pa.ChunkedArray, name: str) -> list[api.ValueCount]:
    """Count the values of a facet, the most frequent first."""
    counts: Counter[str] = Counter()
    for entry in pc.value_counts(column).to_pylist():
        counts.update(dict.fromkeys(_values(name, entry["values"] or ""), entry["counts"]))
    return [api.ValueCount(value=value, count=count) for value, count in counts.most_common(FACET_VALUES)]


def _values(name: str, text: str) -> list[str]:
    return text.split() if name == "finding" else [text] if text else []


def _row(values: dict[str, Any]) -> api.EpisodeRow:
    texts = {name: values[name] or "" for name in ("group_id", "task_id", "kind", "agent", "policy_version")}
    numbers = {name: values[name] or 0 for name in ("attempt", "turns")}
    return api.EpisodeRow(**{**values, **texts, **numbers, "findings": (values["findings"] or "").split()})
