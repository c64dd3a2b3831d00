"""Logs: a file, sealed shards or a folder of logs are one stream, and nothing of a folder is left out in silence."""

import json

import msgspec
import pytest
from episodes import make_episode, write_night

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.interop.log_conversion import LogStream
from ratchet.components.rollouts.rollout_spool import EpisodeJournal


def chat(text):
    return {
        "messages": [
            {"role": "user", "content": text},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
            {"role": "assistant", "content": "One file."},
        ]
    }


def write(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
    return path


class TestOne:
    def test_a_file_of_ours_is_read_as_it_is(self, tmp_path):
        records = [make_episode(attempt=i) for i in range(3)]
        logs = LogStream(write(tmp_path / "some.jsonl", *records))
        assert list(logs) == records and logs.formats == {"ratchet": 3} and logs.files_begun == 1

    def test_a_sealed_night_is_read_by_its_manifest(self, tmp_path):
        records = [make_episode(attempt=i) for i in range(5)]
        logs = LogStream(write_night(tmp_path / "night", records, shard=2))
        assert list(logs) == records and logs.formats == {"ratchet": 5}

    def test_a_file_that_is_absent_empty_or_strange_is_a_data_error(self, tmp_path):
        (tmp_path / "empty.jsonl").touch()
        (tmp_path / "readme.md").write_text("# Hello")
        for name in ("absent.jsonl", "empty.jsonl", "readme.md"):
            with pytest.raises(DataError, match=name) as caught:
                list(LogStream(tmp_path / name))
            assert "\n" not in str(caught.value)

    def test_an_unknown_format_names_the_nearest(self, tmp_path):
        path = write(tmp_path / "some.jsonl", make_episode())
        with pytest.raises(ConfigurationError, match="did you mean 'openhands'"):
            list(LogStream(path, "openhand"))


class TestFolder:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "logs"
        write(folder / "b" / "ours.jsonl", make_episode())
        write(folder / "a" / "chat.jsonl", chat("What is here?"), chat("And there?"))
        (folder / "README.md").write_text("# About these logs")
        (folder / "a" / "empty.log").touch()
        write(folder / ".cache" / "old.jsonl", make_episode(attempt=7))
        return folder

    def test_every_log_below_it_is_read_in_order_whatever_its_format(self, folder):
        logs = LogStream(folder)
        found = list(logs)
        assert [each.provenance.source for each in found] == ["openai_chat", "openai_chat", "ratchet"]
        assert logs.formats == {"openai_chat": 2, "ratchet": 1}

    def test_what_is_no_log_is_named_with_the_reason(self, folder):
        logs = LogStream(folder)
        list(logs)
        named = {path.name: why for path, why in logs.strangers}
        assert named.keys() == {"README.md"} and "begins with" in named["README.md"]
        assert [path.name for path in logs.empty] == ["empty.log"]

    def test_the_journal_of_an_interrupted_collection_is_no_log(self, folder):
        EpisodeJournal(folder / "journal-00000.jsonl").append(make_episode(), [])
        with pytest.raises(DataError, match="interrupted collection; the same command continues it"):
            list(LogStream(folder))

    def test_what_is_to_be_left_out_is_left_out(self, folder):
        assert [each.provenance.source for each in LogStream(folder, leave_out=(folder / "a",))] == ["ratchet"]

    def test_without_anybody_listening_the_first_damage_ends_it(self, folder):
        with (folder / "a" / "chat.jsonl").open("ab") as file:
            file.write(b'{"messages": [\n')
        with pytest.raises(DataError, match=r"chat\.jsonl, line 3"):
            list(LogStream(folder))

    def test_with_somebody_listening_all_the_rest_is_read(self, folder):
        with (folder / "a" / "chat.jsonl").open("ab") as file:
            file.write(b'{"messages": [\n' + json.dumps(chat("More?")).encode() + b"\n")
        told = []
        found = list(LogStream(folder, reject=lambda path, bad: told.append((path.name, bad.where, bad.raw))))
        assert len(found) == 4
        assert told == [("chat.jsonl", "line 3", b'{"messages": [\n')]

    def test_an_empty_folder_is_a_data_error(self, tmp_path):
        with pytest.raises(DataError, match="holds no file"):
            list(LogStream(tmp_path))
