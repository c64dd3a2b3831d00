"""Source: what is line-delimited and what is a document, what is bad and where, and how much memory a log may take."""

import json

import pytest

from ratchet.components.core import DataError
from ratchet.components.interop import log_source as sources
from ratchet.components.interop.log_source import LogSource


def source_of(tmp_path, data, **more):
    path = tmp_path / "some.log"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return LogSource(path, **more)


def values_of(source):
    return [value for _, value in source.values()]


class TestShape:
    @pytest.mark.parametrize(
        ("text", "lines"),
        [
            ('{"a": 1}\n{"a": 2}\n', True),
            ('{"a": 1}', True),
            ('\n\n{"a": 1}\r\n{"a": 2}', True),
            ('{\n  "a": 1\n}', False),
            ('[\n{"a": 1}\n]', False),
            ('{"a": [\n{"b": 1}\n]}', False),
            ('{"a": 1\n{"a": 2}\n', True),
            ("not json at all", False),
        ],
    )
    def test_lines_and_documents_are_told_apart(self, tmp_path, text, lines):
        assert source_of(tmp_path, text).is_lines is lines

    def test_a_byte_order_mark_is_passed_over(self, tmp_path):
        assert values_of(source_of(tmp_path, b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]

    def test_elements_of_a_document_that_is_an_array_are_its_values(self, tmp_path):
        source = source_of(tmp_path, json.dumps([1, {"a": 2}], indent=1))
        assert [where for where, _ in source.values()] == ["element 0", "element 1"]
        assert [value for _, value in source.roots()] == [[1, {"a": 2}]]

    def test_a_line_that_is_an_array_stays_whole(self, tmp_path):
        assert values_of(source_of(tmp_path, "[1, 2]\n[3]\n")) == [[1, 2], [3]]

    def test_values_that_python_writes_and_json_does_not_know_are_read(self, tmp_path):
        text = '{"a": NaN, "b": [Infinity, -Infinity], "c": "\\ud83d", "d": 1e999}\n'
        assert values_of(source_of(tmp_path, text)) == [
            {"a": "NaN", "b": ["Infinity", "-Infinity"], "c": "\ufffd", "d": "Infinity"}
        ]

    def test_bytes_that_are_no_json_have_no_sample(self, tmp_path):
        assert source_of(tmp_path, b"PK\x03\x04" + bytes(100)).sample == []

    def test_a_number_beyond_all_is_kept_as_text(self, tmp_path):
        assert values_of(source_of(tmp_path, '{"a": 1e999, "b": 99999999999999999999999}\n')) == [
            {"a": "Infinity", "b": "99999999999999999999999"}
        ]

    def test_objects_that_follow_each_other_are_documents_and_a_cut_one_is_reported(self, tmp_path):
        text = json.dumps({"a": 1}, indent=1) + "\n" + json.dumps({"a": 2}, indent=1) + "\n"
        assert values_of(source_of(tmp_path, text)) == [{"a": 1}, {"a": 2}]
        assert source_of(tmp_path, text).sample == [{"a": 1}, {"a": 2}]
        with pytest.raises(DataError, match="document 2: not JSON, or cut short"):
            values_of(source_of(tmp_path, text[:-5]))
        parts = []
        source = source_of(tmp_path, text[:-5])
        source = LogSource(source.path, on_bad=parts.append)
        assert values_of(source) == [{"a": 1}] and [part.where for part in parts] == ["document 2"]

    def test_a_folder_has_no_sample_and_no_document(self, tmp_path):
        source = LogSource(tmp_path)
        assert (source.is_folder, source.sample, source.magic, source.is_lines) == (True, [], b"", False)
        with pytest.raises(DataError, match="is a folder"):
            _ = source.document


class TestBad:
    @pytest.mark.parametrize(
        ("line", "why"),
        [
            (b"{", "not JSON"),
            (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
            (b"[" * 100_000, "nested too deeply"),
            (b'{"a": 1} trailing', "not JSON"),
            (b'{"a": NaN,', "not JSON"),
            (b'{"a": NaN, "b": "\xff"}', "not UTF-8 at byte 17"),
        ],
    )
    def test_a_line_that_cannot_be_read_is_named_and_left_out(self, tmp_path, line, why):
        found = []
        source = source_of(tmp_path, b'{"a": 1}\n' + line + b'\n{"a": 3}\n', on_bad=found.append)
        assert values_of(source) == [{"a": 1}, {"a": 3}]
        assert (found[0].where, found[0].raw, len(found), source.reported) == ("line 2", line + b"\n", 1, 1)
        assert why in found[0].why and "\n" not in found[0].why

    def test_without_a_listener_the_first_one_is_an_error_in_one_line(self, tmp_path):
        with pytest.raises(DataError, match=r"some\.log, line 2: not JSON.*--skip-bad") as caught:
            values_of(source_of(tmp_path, b'{"a": 1}\n{\n{"a": 3}\n'))
        assert "\n" not in str(caught.value)

    def test_defect_35_a_half_written_last_line_is_told_apart_and_flat_values_stay(self, tmp_path):
        found = []
        assert values_of(source_of(tmp_path, b'{"a": 1}\n{"a": ', on_bad=found.append)) == [{"a": 1}]
        assert found[0].why.startswith("the last line is cut short")

    def test_a_line_over_the_limit_is_bad_and_the_next_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sources, "LINE_LIMIT", 100)
        monkeypatch.setattr(sources, "CHUNK_BYTES", 30)
        found = []
        long = b'{"a": "' + b"x" * 500 + b'"}'
        source = source_of(tmp_path, b'{"a": 1}\n' + long + b'\n{"a": 3}\n', on_bad=found.append)
        assert values_of(source) == [{"a": 1}, {"a": 3}]
        assert found[0].where == "line 2" and "longer than" in found[0].why and len(found[0].raw) == 30

    def test_a_long_first_line_is_reported_once_and_not_by_detection(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sources, "LINE_LIMIT", 100)
        found = []
        source = source_of(tmp_path, b'{"a": "' + b"x" * 500 + b'"}\n{"a": 3}\n', on_bad=found.append)
        assert source.is_lines and source.sample == [{"a": 3}] and found == []
        assert values_of(source) == [{"a": 3}] and len(found) == 1

    def test_a_document_over_the_limit_is_refused_before_it_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sources, "DOCUMENT_LIMIT", 100)
        with pytest.raises(DataError, match="write one record a line"):
            values_of(source_of(tmp_path, json.dumps({"a": "x" * 500}, indent=1)))

    def test_absent_empty_and_unreadable_files_are_data_errors(self, tmp_path):
        for path, why in (
            (tmp_path / "absent", "No such file"),
            (tmp_path / ("x" * 300), "too long"),
            (tmp_path / "a\0b", "null"),
        ):
            with pytest.raises(DataError, match=why):
                values_of(LogSource(path))
        with pytest.raises(DataError, match="is empty"):
            values_of(source_of(tmp_path, b""))

    def test_the_sample_is_bounded_and_can_be_forgotten(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sources, "SAMPLE_BYTES", 50)
        source = source_of(tmp_path, b'{"a": "xxxxxxxxxx"}\n' * 100)
        assert len(source.sample) == 2
        source.drop_sample()
        assert len(source.sample) == 2
