"""The episodes that an inspector serves: its sources, the thread that indexes them, and queries over the index."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ratchet.components.core import ConfigurationError, DataError, RatchetError, load_domain
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


class Facet(NamedTuple):
    """A facet: the distinct lists of values (`values`), and for each episode the index of its list there (`own`)."""

    values: list[list[str]]
    own: NDArray[np.int32]

    def mask(self, value: str) -> NDArray[np.bool_]:
        """Return whether each episode has the value."""
        return np.isin(self.own, [number for number, values in enumerate(self.values) if value in values])

    def top_values(self, fits: NDArray[np.bool_]) -> list[api.ValueCount]:
        """Count the values of the episodes that fit, the most frequent first."""
        counts: Counter[str] = Counter()
        found = np.bincount(self.own[fits], minlength=len(self.values)).tolist()
        for values, number in zip(self.values, found, strict=True):
            counts.update(dict.fromkeys(values, number))
        return [api.ValueCount(value=value, count=count) for value, count in (+counts).most_common(FACET_VALUES)]


class EpisodeColumns(NamedTuple):
    """Columns of all episodes in the order of their keys, FACETS, the state of the index that they have, and the time until
    which they need not be newer.
    """

    table: pa.Table = _SCHEMA.empty_table()
    keys: NDArray[np.int64] = np.empty(0, np.int64)
    facets: Mapping[str, Facet] = MappingProxyType({})
    state: tuple[int, int] = (-1, -1)
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
        self._unreadable: dict[str, tuple[Path, RatchetError]] = {}
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
        if self.index.update(files, check_stop) and not self.paths:  # kinds of hacks are read from indexed records
            self.index.write_scores(sorted((self.root / "data/scores").glob("*.parquet")), self._scores_in)

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
        failed_copy, failure = self._unreadable.get(name, (None, None))
        if failure is not None and failed_copy == copy:  # reading it at every poll would take a whole core
            raise failure.with_traceback(None)
        if not copy.is_file():
            try:
                convert_logs(path, copy, skip_bad=True)
            except (ConfigurationError, DataError) as error:
                self._unreadable[name] = copy, error
                raise
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
                    if self._stop.is_set():
                        raise InterruptedError
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

    def columns(self) -> EpisodeColumns:
        """Return the columns of all episodes. While files are being indexed they may lag behind by some seconds."""
        with self._columns_lock:
            state, begin = self.index.state(), time.monotonic()
            last = self._columns
            if last.state == state or begin < last.fresh_until:
                return last
            batches = last.table.to_batches() if state[1] == last.state[1] else []
            key = batches[-1]["key"][-1].as_py() if batches else 0
            self._columns = last = EpisodeColumns()  # not two tables at once in memory
            while rows := self.index.rows(f"{_SELECT} WHERE e.key > ? ORDER BY e.key LIMIT 5000", (key,)):
                key = rows[-1][0]
                # SQLite has no booleans, and integers of 64 bits.
                arrays = [
                    pa.array(values).cast(kind, safe=False)
                    for values, kind in zip(zip(*rows, strict=True), _SCHEMA.types, strict=True)
                ]
                batches.append(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
            table = pa.Table.from_batches(batches, _SCHEMA)
            # Each poll of a running night adds a few rows.
            table = table.combine_chunks() if len(batches) > MAX_BATCHES else table
            keys, facets = table["key"].to_numpy(), _facets(table)
            pa.default_memory_pool().release_unused()
            end = time.monotonic()
            # Where reading takes long it is done seldom while the index grows.
            self._columns = EpisodeColumns(table, keys, facets, state, end + 10 * (end - begin))
            return self._columns

    def find(
        self,
        query: str,
        where: str,
        filters: dict[str, str],
        sort: str,
        offset: int,
        limit: int,
        is_abandoned: Callable[[], bool] = lambda: False,
    ) -> api.EpisodesAnswer:
        """Return a page of the episodes that fit, with facets. Raises ConfigurationError for a wrong `where` or `sort`, and
        sqlite3.OperationalError for a search that is abandoned.
        """
        (table, keys, facets, *_), column = self.columns(), sort.removeprefix("-")
        if column and column not in COLUMNS:
            raise ConfigurationError(f"there is no column '{column}' to sort by; there are {', '.join(COLUMNS)}")
        fits = np.ones(len(keys), np.bool_)
        if where.strip():
            condition = parse_filter(where, COLUMNS)
            found = table.select(sorted({"key", *condition.columns})).filter(condition.expression)["key"]
            fits &= np.isin(keys, found.to_numpy())
        if query.strip():
            fits &= np.isin(keys, self.index.search(query, is_abandoned))
        masks = {name: facet.mask(filters[name]) for name, facet in facets.items() if filters[name]}
        counts = {}
        for name, facet in facets.items():
            others = [mask for other, mask in masks.items() if other != name]
            counts[name] = facet.top_values(reduce(np.logical_and, others, fits))
        places = np.flatnonzero(reduce(np.logical_and, masks.values(), fits))
        if column:
            order = "descending" if sort.startswith("-") else "ascending"
            chosen = table.select([column, "key"]).take(places)
            places = places[pc.sort_indices(chosen, [(column, order), ("key", "ascending")]).to_numpy()]
        page = json.dumps(keys[places[offset : offset + limit]].tolist())
        items = self._select("JOIN json_each(?) page ON page.value = e.key ORDER BY page.id", page)
        if len(items) < len(places[offset : offset + limit]) and self._columns.fresh_until:
            # Records of the page are forgotten, as of a night that was sealed since the columns were read.
            self._columns = self._columns._replace(fresh_until=0.0)
            return self.find(query, where, filters, sort, offset, limit, is_abandoned)
        return api.EpisodesAnswer(total=len(places), items=items, facets=counts)

    def newest(self, source: str, limit: int) -> list[api.EpisodeRow]:
        """Return the latest episodes of sources whose name begins with `source`."""
        own = "e.file IN (SELECT file FROM files WHERE source GLOB ? || '*')"
        return self._select(f"WHERE {own} ORDER BY e.key DESC LIMIT ?", source, limit)

    def row(self, episode_id: str) -> api.EpisodeRow:
        """Return an episode of the list. Raises KeyError for an unknown one."""
        rows = self._select("WHERE e.episode_id = ? ORDER BY e.damaged IS NOT NULL, e.key DESC LIMIT 1", episode_id)
        if not rows:
            raise KeyError(episode_id)
        return rows[0]

    def group(self, group_id: str, limit: int) -> list[api.EpisodeRow]:
        """Return the readable attempts of a group, each once, in order."""
        rows = self._select(
            "WHERE e.group_id = ? AND e.damaged IS NULL ORDER BY e.attempt, e.key LIMIT ?", group_id, 4 * limit
        )
        return list({row.episode_id: row for row in rows}.values())[:limit]

    def _select(self, rest: str, *parameters: Any) -> list[api.EpisodeRow]:
        found = self.index.rows(f"{_SELECT} {rest}", parameters)
        return [_row(dict(zip(("key", *COLUMNS), values, strict=True))) for values in found]

    def record(self, episode_id: str) -> tuple[Trajectory, EpisodeRewards]:
        """Return a record with its rewards. Raises KeyError for an unknown episode, DataError for a damaged one."""
        with self._lock:
            location = self.index.locate(episode_id)
            key = (location.key, self.index.state(), episode_id)
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
        rows, version, computed = {}, "", None
        with suppress(RatchetError, OverflowError, RecursionError):  # an unknown domain; a number without bounds
            config = read_section(params_file(), "score", RewardConfig)
            calibrated = Calibration.load(calibration) if judgements and calibration.is_file() else None
            by_content = {record.effective_hash: judgements} if judgements else {}
            computed = next(score_all([record], {}, config, None, by_content, calibrated))
            rows, version = score_rows(computed), computed.version
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


def _facets(table: pa.Table) -> dict[str, Facet]:
    outcome = pc.if_else(pc.fill_null(table["success"], False), "success", "failure")
    outcome = pc.if_else(pc.is_null(table["success"]), "unknown", outcome)
    # Rounded first: 0.7 * 10 is 7.000000000000001, and 0.3 * 10 below 3 in some orders.
    tenth = pc.divide(pc.floor(pc.add(pc.multiply(table["reward"], 10.0), 1e-9)), 10.0)
    reward = pc.fill_null(pc.cast(tenth, pa.string()), "unscored")
    columns = (table["source"], table["kind"], outcome, table["cause"], table["findings"], reward)
    facets = {}
    for name, column in zip(FACETS, columns, strict=True):
        encoded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        values = [text.split() if name == "finding" else [text] if text else [] for text in texts]
        facets[name] = Facet(values, encoded.indices.to_numpy())
    return facets


def _row(values: dict[str, Any]) -> api.EpisodeRow:
    texts = {name: values[name] or "" for name in ("group_id", "task_id", "kind", "agent", "policy_version")}
    numbers = {name: values[name] or 0 for name in ("attempt", "turns")}
    return api.EpisodeRow(**{**values, **texts, **numbers, "findings": (values["findings"] or "").split()})
