"""Label files: the local JSON-lines file that commands append to, and CSV or JSONL tables that people fill in
elsewhere.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import append_json_lines, open_atomically, read_json_lines
from ratchet.components.rewards.annotation_records import OVERALL, Label
from ratchet.components.trajectories.trajectory import Trajectory

from ..calibration.labelled_scores import latest_labels

MAX_CELL = 1 << 20
"""Characters of a CSV cell."""


def read_table_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, row) of a table: CSV for the suffixes .csv and .tsv, else JSON lines. A CSV must have the
    first of `columns`; its delimiter (comma, semicolon or tab) is detected.

    Raises DataError, with the line for an invalid row.
    """
    return _csv_rows(path, columns) if path.suffix.lower() in (".csv", ".tsv") else _json_rows(path)


def _csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    text = _read_text(path)
    header = text.partition("\n")[0]
    # Spreadsheets write semicolons where the comma is the decimal sign.
    delimiter = max(",;\t", key=header.count)
    # The default limit is 131,072 characters, less than a long comment with a quoted output.
    csv.field_size_limit(MAX_CELL)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restkey="", strict=True)
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        if columns[0] not in names:
            raise DataError(f"{path}, line 1: no column '{columns[0]}'; columns: {', '.join(columns)}")
        if len(set(names)) < len(names):
            raise DataError(f"{path}, line 1: a column occurs twice; keep one of each")
        reader.fieldnames = names
        for row in reader:
            if row.pop("", None):
                raise DataError(
                    f"{path}, line {reader.line_num}: more cells than columns; quote what holds a {delimiter!r}"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num + 1}: {error}") from error


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: {error}; a label is one JSON object a line") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: a label is one JSON object a line")
        if isinstance(version := row.get("schema_version"), int) and version > 2:
            raise DataError(f"{path}, line {number}: schema_version {version} is newer than 2; upgrade Ratchet")
        yield number, row


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path") from error
    try:
        # Spreadsheets begin a UTF-8 file with a byte order mark.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


VALUE_WORDS = {
    **dict.fromkeys(("yes", "y", "true", "right", "pass", "passed", "good", "correct"), 1.0),
    **dict.fromkeys(("no", "n", "false", "wrong", "fail", "failed", "bad", "incorrect"), 0.0),
}
"""Words that are accepted as values."""
LABEL_COLUMNS = (
    *("episode_id", "turn", "step", "line", "value", "annotator", "comment", "labelled_at"),
    *("content_hash", "domain", "edit"),
)


class LabelSubject(NamedTuple):
    """An episode that can be labelled: content hash, domain, and number of calls by turn (`steps`)."""

    content_hash: str
    domain: str
    steps: dict[int, int]

    def has(self, turn: int, step: int) -> bool:
        """Return whether the episode has this step, this turn (step -1), or is meant as a whole (turn and step -1)."""
        return step == -1 if turn == -1 else turn in self.steps and -1 <= step < self.steps[turn]


LabelSubjects = Mapping[str, LabelSubject]
"""Subjects by episode id."""


def label_subjects(trajectories: Iterable[Trajectory]) -> dict[str, LabelSubject]:
    """Return the subjects of trajectories by episode id."""
    return {
        trajectory.episode_id: LabelSubject(
            trajectory.content_hash, trajectory.task.domain, {turn.index: len(turn.calls) for turn in trajectory.turns}
        )
        for trajectory in trajectories
    }


def read_labels(path: Path) -> Iterator[Label]:
    """Yield the labels of a JSON-lines file. An incomplete last line is skipped. Raises DataError."""
    return read_json_lines(path, Label, skip_partial=True)


def add_labels(path: Path, labels: Iterable[Label]) -> int:
    """Append the labels that the file does not contain yet, durably; return the number of appended ones. The same label
    with another value, comment or date is a new one. Safe for concurrent processes.
    """
    existing = set(map(_label_identity, read_labels(path))) if path.exists() else set()
    new = list({_label_identity(label): label for label in labels if _label_identity(label) not in existing}.values())
    append_json_lines(path, new)
    return len(new)


def unsealed_labels(labels: Iterable[Label], sealed: Iterable[Label]) -> list[Label]:
    """Return the latest label of each annotator on each item, unless `sealed` contains it already; sorted. A withdrawal is
    returned only if it withdraws a sealed label.
    """
    sealed_identities = set(map(_label_identity, sealed))
    sealed_items = {identity[:5] for identity in sealed_identities}
    return sorted(
        (
            label
            for label in latest_labels(labels, withdrawn=True)
            if (identity := _label_identity(label)) not in sealed_identities
            and (label.value is not None or identity[:5] in sealed_items)
        ),
        key=_sort_key,
    )


def _label_identity(label: Label) -> tuple[object, ...]:
    return (*_sort_key(label), label.value, label.comment, label.content_hash, label.edit)


def _sort_key(label: Label) -> tuple[str, int, int, str, str, str]:
    return (label.episode_id, label.turn, label.step, label.line, label.annotator, label.labelled_at)


def import_labels(
    path: Path, subjects: LabelSubjects | None = None, *, annotator: str = "", labelled_at: str = ""
) -> list[Label]:
    """Read labels from a CSV or JSONL table. The columns `episode_id` and `value` are required.

    `subjects` (by episode id) fill in content hashes and domains; without them, the table needs a domain. `annotator`
    and `labelled_at` (ISO 8601) apply to rows that give none. Raises DataError with the line number for an invalid row,
    and for a row about an episode, step or content that `subjects` do not contain; also for a table without rows.
    """
    labels = []
    for number, row in read_table_rows(path, LABEL_COLUMNS):
        try:
            labels.append(_parse_row(row, subjects, annotator, labelled_at))
        except (ValueError, msgspec.ValidationError) as error:
            raise DataError(f"{path}, line {number}: {error}") from error
    if not labels:
        raise DataError(f"{path} holds no label; give a table with the columns episode_id and value")
    return labels


def _parse_row(row: Mapping[str, Any], subjects: LabelSubjects | None, annotator: str, labelled_at: str) -> Label:
    unknown = sorted(set(row) - {*LABEL_COLUMNS, "schema_version"})
    if unknown:
        raise ValueError(f"unknown column '{unknown[0]}'; columns: {', '.join(LABEL_COLUMNS)}")
    row = {name: value for name, value in row.items() if value not in (None, "")}
    for name in ("episode_id", "value"):
        if name not in row:
            raise ValueError(f"'{name}' is missing")
    turn, step = _parse_index(row, "turn"), _parse_index(row, "step")
    defaults = {"line": OVERALL, "annotator": annotator, "labelled_at": labelled_at, "content_hash": "", "domain": ""}
    parsed = {"turn": turn, "step": step, "value": parse_label_value(row["value"])}
    values: dict[str, Any] = {**defaults, **row, **parsed}
    if subjects is not None:
        values |= _check_subject(values, subjects)
    if not values["annotator"]:
        raise ValueError("'annotator' is missing; add the column, or give --annotator")
    _check_date(values["labelled_at"])
    if not values["domain"]:
        raise ValueError("'domain' is missing; add the column, or give the file of trajectories")
    return msgspec.convert(values, Label)


def _check_subject(values: dict[str, Any], subjects: LabelSubjects) -> dict[str, str]:
    """Return content hash and domain of the episode that a row names. Raises ValueError."""
    episode, turn, step = values["episode_id"], values["turn"], values["step"]
    subject = subjects.get(episode)
    if subject is None:
        raise ValueError(f"episode '{episode}' is not among the trajectories")
    if not subject.has(turn, step):
        raise ValueError(f"episode '{episode}' has no step {turn}.{step}")
    if values["content_hash"] not in ("", subject.content_hash):
        raise ValueError(f"episode '{episode}' was labelled with another content ({values['content_hash']})")
    return {"content_hash": subject.content_hash, "domain": subject.domain}


def _check_date(raw: Any) -> None:
    """Raise ValueError for an invalid date. Dates decide which of two labels by one person counts."""
    try:
        raw and datetime.fromisoformat(raw)
    except (TypeError, ValueError):
        raise ValueError(f"'labelled_at' must be a date such as 2026-11-21T10:00:00+00:00, found {raw!r}") from None


def _parse_index(row: Mapping[str, Any], name: str) -> int:
    raw = row.get(name, -1)
    try:
        number = int(raw)
    except (TypeError, ValueError):
        number = -2
    if number < -1 or isinstance(raw, float | bool):
        raise ValueError(f"'{name}' must be a number from 0, or -1 for the whole, found {raw!r}")
    return number


def parse_label_value(raw: Any) -> float:
    """Return a number in [0, 1] from a number, a boolean, or one of VALUE_WORDS. Raises ValueError."""
    if isinstance(raw, str):
        word = raw.strip().lower()
        try:
            raw = VALUE_WORDS[word] if word in VALUE_WORDS else float(word.replace(",", "."))
        except ValueError:
            raise ValueError(f"'value' must be in [0, 1], or yes or no, found {raw!r}") from None
    if not isinstance(raw, int | float) or not 0 <= raw <= 1:
        raise ValueError(f"'value' must be in [0, 1], or yes or no, found {raw!r}; scale it to that range")
    return float(raw)


def export_labels(path: Path, labels: Sequence[Label]) -> int:
    """Write sorted labels to a .csv or .jsonl file; return their number. `import_labels` reads back equal labels.
    Raises ConfigurationError for another suffix.
    """
    write = {".csv": _encode_csv, ".jsonl": _encode_jsonl}.get(path.suffix.lower())
    if write is None:
        raise ConfigurationError(f"{path}: labels are written as CSV or JSONL; give a path that ends in .csv or .jsonl")
    with open_atomically(path) as file:
        file.write(write(sorted(labels, key=_sort_key)))
    return len(labels)


def _encode_csv(labels: Sequence[Label]) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")  # RFC 4180; and a cell that holds either sign is quoted
    writer.writerow(LABEL_COLUMNS)
    writer.writerows([getattr(label, name) for name in LABEL_COLUMNS] for label in labels)
    return buffer.getvalue().encode()


_encode_jsonl: Callable[[Sequence[Label]], bytes] = msgspec.json.Encoder().encode_lines
