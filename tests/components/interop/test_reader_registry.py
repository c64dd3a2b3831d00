"""The registry: formats are told by content, others may be added, and what nothing knows is refused in one line."""

import contextlib
import json

import pytest
from all_cases import all_cases
from log_files import fixtures_of

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.interop import reader_registry
from ratchet.components.interop.log_source import LogSource
from ratchet.components.interop.reader_registry import detect_format, list_formats, read_log, register_reader
from ratchet.components.interop.trajectory_draft import TrajectoryDraft

LOGS = [
    pytest.param(format, path, id=f"{format}-{path.name}")
    for format in reader_registry.BUNDLED
    for path in fixtures_of(format)
]


@pytest.mark.parametrize(("format", "path"), LOGS)
def test_every_log_of_ours_is_told_by_its_content(format, path, tmp_path):
    assert detect_format(LogSource(path)) == format
    if path.is_file():
        other = tmp_path / "renamed.log"
        other.write_bytes(path.read_bytes())
        assert detect_format(LogSource(other)) == format


@all_cases("format", reader_registry.BUNDLED)
def test_every_format_has_a_log_of_ours(format):
    assert fixtures_of(format)


class TestRefusals:
    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"", "is empty"),
            (bytes(4096), "only zeros"),
            (b"# a readme\n", "neither JSON lines nor a JSON document"),
            (b"\x00\x01\x02", "neither JSON lines nor a JSON document"),
            (b'{"a": 1, "b": 2, "\\n": 3}\n', r"of no known format \(fields a, b\); name it with --format"),
            (b"SQLite format 3\0", "is a SQLite database; export its sessions"),
            (b"PAR1 and more", "is a Parquet file; write its rows as JSON lines"),
            (b"\x1f\x8b\x08 and more", "compressed by gzip; decompress it"),
            (b'{"id": "p", "sessionID": "s", "messageID": "m"}', "OpenCode's storage; export the session"),
            (b'[{"id": "r", "run_type": "llm", "trace_id": "t"}]', "is runs of LangSmith; send the spans"),
            (b'[{"ts": 1, "type": "say", "say": "text"}]', "give api_conversation_history.json"),
            (
                b'{"type": "user", "sessionId": "s", "message": {"role": "user", "parts": [{"text": "q"}]}}\n',
                r"no known format \(fields type, sessionId, message\)",
            ),
            (b"[]", "of no known format"),
            (b"{}", "of no known format"),
            (b'"text"', "of no known format"),
            (b"[" * 100_000, "nested too deeply"),
        ],
    )
    def test_what_is_no_log_is_refused_in_one_line(self, tmp_path, data, why):
        path = tmp_path / "some.log"
        path.write_bytes(data)
        with pytest.raises(DataError, match=why) as caught:
            list(read_log(path))
        assert "\n" not in str(caught.value) and "some.log" in str(caught.value)

    def test_a_folder_that_is_no_log_is_refused(self, tmp_path):
        with pytest.raises(DataError, match="is a folder"):
            list(read_log(tmp_path))

    def test_an_unknown_format_names_the_nearest(self, tmp_path):
        with pytest.raises(ConfigurationError, match="unknown format 'openhand'; did you mean 'openhands'"):
            list(read_log(tmp_path, "openhand"))

    @pytest.mark.parametrize("format", reader_registry.BUNDLED)
    def test_a_log_that_gives_nothing_is_an_error_and_never_an_empty_result(self, tmp_path, format):
        path = tmp_path / "some.log"
        path.write_text(json.dumps({"nothing": []}) + "\n")
        with pytest.raises(DataError):
            list(read_log(path, format))
        path.write_text("[]")
        with pytest.raises(DataError):
            list(read_log(path, format))
        bad = []
        path.write_text('{"nothing": 1}\n{"nothing": 2}\n')
        with contextlib.suppress(DataError):
            assert list(read_log(path, format, on_bad=bad.append)) == [] and bad


class TestPlugins:
    @pytest.fixture(autouse=True)
    def alone(self, monkeypatch):
        monkeypatch.setattr(reader_registry, "_plugin_readers", {})

    class Ours:
        def detects(self, source):
            return source.magic.startswith(b"OURS")

        def read(self, source):
            draft = TrajectoryDraft("ours")
            draft.turn(source.path.read_text())
            yield draft.finish(native_id="1")

    def test_a_reader_of_somebody_else_is_asked_too(self, tmp_path):
        register_reader("ours", self.Ours())
        path = tmp_path / "some.log"
        path.write_text("OURS hello")
        (log,) = read_log(path)
        assert (log.turns[0].text, log.provenance.source, list_formats()[-1]) == ("OURS hello", "ours", "ours")

    def test_a_name_is_given_once(self):
        register_reader("ours", self.Ours())
        for name in ("ours", "openhands"):
            with pytest.raises(ConfigurationError, match=f"'{name}' is registered already"):
                register_reader(name, self.Ours())
