"""Convert: whole or not at all, in any format, and what cannot be read is kept beside it."""

import base64
import io
import json
import os
from pathlib import Path

import msgspec
import pytest
from episodes import make_episode
from records import recorded

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import open_atomically
from ratchet.components.interop.log_conversion import EpisodeNames, convert_logs
from ratchet.components.interop.log_values import decode_json
from ratchet.components.trajectories.file_validation import TrajectoryValidator
from ratchet.components.trajectories.shards import read_jsonl
from ratchet.components.trajectories.trajectory import Parent, Trajectory, with_content_hash


def write(path, *records):
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
    return path


@pytest.fixture
def ours(tmp_path):
    return write(tmp_path / "ours.jsonl", *(make_episode(attempt=i, edit=f"x = {i}") for i in range(3)))


class TestOutput:
    def test_ours_come_out_byte_for_byte(self, ours, tmp_path):
        report = convert_logs(ours, tmp_path / "out.jsonl")
        assert (tmp_path / "out.jsonl").read_bytes() == ours.read_bytes()
        assert (report.trajectories, report.turns, report.steps, report.files) == (3, 9, 9, 1)
        assert (report.succeeded, report.not_succeeded, report.success_unknown) == (3, 0, 0)
        assert report.formats == {"ratchet": 3} and report.rejected == 0 and report.blobs is None

    def test_folders_on_the_way_are_made(self, ours, tmp_path):
        convert_logs(ours, tmp_path / "a" / "b" / "out.jsonl")
        assert len(list(read_jsonl(tmp_path / "a" / "b" / "out.jsonl"))) == 3

    def test_an_older_record_comes_out_as_a_present_one(self, tmp_path):
        path = tmp_path / "old.jsonl"
        path.write_text(json.dumps(recorded()) + "\n")
        convert_logs(path, tmp_path / "out.jsonl", format="ratchet")
        validator = TrajectoryValidator()
        assert list(validator.validate(tmp_path / "out.jsonl")) == [] and validator.summary.records == 1

    def test_a_stream_may_be_written(self, ours):
        stream = io.BytesIO()
        convert_logs(ours, stream)
        assert stream.getvalue() == ours.read_bytes()

    def test_the_same_episode_met_again_is_written_once(self, ours, tmp_path):
        folder = tmp_path / "logs"
        folder.mkdir()
        for name in ("one.jsonl", "copy.jsonl"):
            (folder / name).write_bytes(ours.read_bytes())
        report = convert_logs(folder, tmp_path / "out.jsonl")
        assert (report.trajectories, report.repeated) == (3, 3)

    def test_every_trajectory_is_told_as_it_is_written(self, ours, tmp_path):
        told = []
        convert_logs(
            ours, tmp_path / "out.jsonl", progress=lambda report: told.append((report.trajectories, report.files))
        )
        assert told == [(1, 1), (2, 1), (3, 1)]

    @pytest.mark.parametrize("to", ["openai_chat", "adp", "verifiers"])
    def test_other_formats_are_written_one_json_line_each(self, ours, tmp_path, to):
        convert_logs(ours, tmp_path / "out.jsonl", to=to)
        lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
        assert len(lines) == 3
        for line in lines:
            assert isinstance(json.loads(line), dict)
            with pytest.raises(msgspec.ValidationError):
                msgspec.json.decode(line, type=Trajectory)

    def test_an_unknown_format_names_the_nearest_and_writes_nothing(self, ours, tmp_path):
        with pytest.raises(ConfigurationError, match="openai_chat"):
            convert_logs(ours, tmp_path / "out.jsonl", to="openai_chta")
        assert [each.name for each in tmp_path.iterdir()] == ["ours.jsonl"]


class TestWhole:
    def test_a_damaged_log_leaves_the_earlier_output_as_it_was(self, ours, tmp_path):
        out = tmp_path / "out.jsonl"
        out.write_text("what stood here")
        with ours.open("ab") as file:
            file.write(b'{"episode_id": "ep-')
        with pytest.raises(DataError, match=r"ours\.jsonl, line 4"):
            convert_logs(ours, out)
        assert out.read_text() == "what stood here"
        assert sorted(each.name for each in tmp_path.iterdir()) == ["ours.jsonl", "out.jsonl"]

    def test_a_full_disk_leaves_nothing(self, ours, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            convert_logs(ours, tmp_path / "out.jsonl")
        assert [each.name for each in tmp_path.iterdir()] == ["ours.jsonl"]

    def test_the_log_itself_is_never_written_over(self, ours):
        before = ours.read_bytes()
        with pytest.raises(ConfigurationError, match="is the log itself"):
            convert_logs(ours, ours)
        assert ours.read_bytes() == before

    def test_an_output_within_the_folder_is_not_read_the_next_time(self, ours, tmp_path):
        for _ in range(2):
            report = convert_logs(tmp_path, tmp_path / "out.jsonl", skip_bad=True)
            assert (report.trajectories, report.repeated, report.files) == (3, 0, 1)

    def test_what_is_no_place_for_a_file_is_refused(self, ours, tmp_path):
        for out in (tmp_path, ours / "below.jsonl"):
            with pytest.raises(ConfigurationError, match="cannot be written"):
                convert_logs(ours, out)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ConfigurationError, match="ordinary file"), open_atomically(tmp_path / "pipe"):
            pass


class TestRejected:
    @pytest.fixture
    def damaged(self, ours):
        with ours.open("ab") as file:
            file.write(b'{"episode_id": 3}\n{"caf\xe9": 1}\n')
        return ours

    def test_what_cannot_be_read_is_kept_with_its_place_and_its_bytes(self, damaged, tmp_path):
        report = convert_logs(damaged, tmp_path / "out.jsonl", skip_bad=True)
        assert (report.trajectories, report.rejected) == (3, 2)
        assert report.rejects == str(tmp_path / "out.rejected.jsonl")
        first, second = map(json.loads, (tmp_path / "out.rejected.jsonl").read_text().splitlines())
        assert (first["file"], first["where"]) == (str(damaged), "line 4") and first["why"]
        assert first["raw"] == '{"episode_id": 3}\n' and "raw_base64" not in first
        assert base64.b64decode(second["raw_base64"]) == b'{"caf\xe9": 1}\n'

    def test_what_an_earlier_run_left_there_goes(self, ours, tmp_path):
        (tmp_path / "out.rejected.jsonl").write_text("{}")
        report = convert_logs(ours, tmp_path / "out.jsonl", skip_bad=True)
        assert report.rejects is None and not (tmp_path / "out.rejected.jsonl").exists()

    def test_nothing_that_can_be_read_is_an_error(self, tmp_path):
        path = tmp_path / "bad.jsonl"
        path.write_bytes(b'{"episode_id": 3, "turns": []}\n' * 3)
        with pytest.raises(DataError, match="nothing could be read; 3 parts"):
            convert_logs(path, tmp_path / "out.jsonl", format="ratchet", skip_bad=True)
        assert [each.name for each in tmp_path.iterdir()] == ["bad.jsonl"]

    def test_a_stream_has_no_place_for_them(self, ours):
        with pytest.raises(ConfigurationError, match="-o"):
            convert_logs(ours, io.BytesIO(), skip_bad=True)


def test_images_go_into_a_folder_beside_the_output(tmp_path):
    image = base64.b64encode(b"\x89PNG fake").decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]},
        {"role": "assistant", "content": "A picture."},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    report = convert_logs(path, tmp_path / "out.jsonl")
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    (name,) = record.messages[0].blobs
    assert report.blobs == str(tmp_path / "out.blobs")
    assert (tmp_path / "out.blobs" / name).read_bytes() == b"\x89PNG fake"


CUT = {
    "cut.json": b'{"messages": [{"role": "user",\n "content"',
    "cut.traj": b'{"trajectory": [',
    "lines.jsonl": b'{"a": \n{"b": \n{"c": \n',
    "log.eval": b"PK\x03\x04 and no end",
    "wide.jsonl": '{"messages": []}\n'.encode("utf-16"),
}


class TestDamagedInAFolder:
    @pytest.fixture
    def folder(self, ours, tmp_path):
        folder = tmp_path / "logs"
        folder.mkdir()
        ours.rename(folder / "ours.jsonl")
        (folder / "other.json").write_text('{"name": "no log"}')
        (folder / "notes.md").write_text("# Notes")
        (folder / "empty.jsonl").touch()
        return folder

    @pytest.mark.parametrize("name", CUT)
    def test_a_log_of_which_nothing_can_be_read_ends_it_or_is_rejected(self, folder, tmp_path, name):
        (folder / name).write_bytes(CUT[name])
        with pytest.raises(DataError, match=name):
            convert_logs(folder, tmp_path / "out.jsonl")
        report = convert_logs(folder, tmp_path / "out.jsonl", skip_bad=True)
        assert (report.trajectories, report.rejected) == (3, 1)
        assert sorted(Path(each).name for each in report.strangers) == ["notes.md", "other.json"]
        (line,) = map(json.loads, (tmp_path / "out.rejected.jsonl").read_text().splitlines())
        assert line["file"] == str(folder / name) and line["why"] and "truncated" not in line
        raw = base64.b64decode(line["raw_base64"]) if "raw_base64" in line else line["raw"].encode()
        assert raw == CUT[name]

    def test_what_is_kept_only_in_part_says_so(self, folder, tmp_path):
        (folder / "cut.json").write_bytes(b'{"text": "' + b"x" * (1 << 20))
        convert_logs(folder, tmp_path / "out.jsonl", skip_bad=True)
        line = json.loads((tmp_path / "out.rejected.jsonl").read_text())
        assert line["truncated"] is True and len(line["raw"]) == 1 << 20


def test_a_line_that_is_too_long_is_kept_in_part_and_says_so(ours, tmp_path, monkeypatch):
    monkeypatch.setattr("ratchet.components.interop.log_source.LINE_LIMIT", 1 << 20)
    with ours.open("ab") as file:
        file.write(b'{"text": "' + b"x" * (3 << 20) + b'"}\n')
    convert_logs(ours, tmp_path / "out.jsonl", skip_bad=True)
    line = json.loads((tmp_path / "out.rejected.jsonl").read_text())
    assert line["truncated"] is True and len(line["raw"]) == 1 << 20 and line["where"] == "line 4"


def test_what_is_wrong_is_said_with_one_advice_that_helps(ours, tmp_path):
    record = json.loads(ours.read_bytes().splitlines()[0])
    (tmp_path / "newer.jsonl").write_text(json.dumps({**record, "schema_version": 99}) + "\n")
    (tmp_path / "digits.jsonl").write_bytes(ours.read_bytes() + b'{"n": ' + b"1" * 5000 + b"}\n")
    (tmp_path / "wide.jsonl").write_bytes(ours.read_text().encode("utf-16"))

    def said(name, format="auto"):
        with pytest.raises(DataError) as caught:
            convert_logs(tmp_path / name, tmp_path / "out.jsonl", format=format)
        return str(caught.value)

    assert "upgrade Ratchet, or read on" in said("newer.jsonl") and "mend" not in said("newer.jsonl")
    digits = said("digits.jsonl")
    assert "sys." not in digits, digits
    for format in ("auto", "openai_chat", "ratchet"):
        assert "iconv -f UTF-16 -t UTF-8" in said("wide.jsonl", format)
    with pytest.raises(ValueError, match=r"^a number of more than 4300 digits$"):
        decode_json(b"1" * 5000)


class TestNames:
    """A chat log knows neither a policy's version nor a task: options give them, and a build takes what comes out."""

    @pytest.fixture
    def chats(self, tmp_path):
        path = tmp_path / "chats.jsonl"
        said = [{"role": "user", "content": "refund order 7"}, {"role": "assistant", "content": "done"}]
        logs = [{"messages": [said[0], {**said[1], "content": f"done {number}"}]} for number in range(3)]
        path.write_text("".join(json.dumps({**log, "resolved": True}) + "\n" for log in logs))
        return path

    def converted(self, path, **names):
        out = path.with_name("out.jsonl")
        convert_logs(path, out, naming=EpisodeNames(**names))
        return list(read_jsonl(out)), out

    def test_an_episode_whose_log_names_no_model_has_a_version_and_may_be_built_from(self, chats):
        found, out = self.converted(chats)
        assert {each.agent.policy_version for each in found} == {"openai_chat"}
        assert list(TrajectoryValidator(for_build=True).validate(out)) == []

    def test_names_that_are_given_stand_in_every_episode_and_identities_follow(self, chats):
        found, out = self.converted(
            chats,
            policy="helpdesk",
            policy_version="helpdesk-7",
            task_id="desk/refund",
            taskset="desk",
            domain="conversation",
        )
        assert {(each.agent.policy, each.agent.policy_version) for each in found} == {("helpdesk", "helpdesk-7")}
        tasks = {(each.task.task_id, each.task.family, each.task.taskset, each.task.domain) for each in found}
        assert tasks == {("desk/refund", "desk/refund", "desk", "conversation")}
        assert [each.attempt for each in found] == [0, 1, 2] and len({each.group_id for each in found}) == 1
        assert (
            len({each.episode_id for each in found}) == 3
            and list(TrajectoryValidator(for_build=True).validate(out)) == []
        )
        assert self.converted(chats, policy_version="helpdesk-8")[0][0].episode_id != found[0].episode_id
        assert (
            found
            == self.converted(
                chats,
                policy="helpdesk",
                policy_version="helpdesk-7",
                task_id="desk/refund",
                taskset="desk",
                domain="conversation",
            )[0]
        )

    def test_records_of_ours_keep_the_rule_of_their_identity(self, ours):
        found, out = self.converted(ours, policy_version="weights-2", task_id="repair/other")
        assert {each.agent.policy_version for each in found} == {"weights-2"}
        assert [each for each in TrajectoryValidator().validate(out) if each.severity == "error"] == []

    def test_an_episode_of_ours_that_is_met_again_is_written_once(self, ours):
        known = next(read_jsonl(ours)).task.task_id
        ours.write_bytes(2 * ours.read_bytes())
        for task_id in ("repair/other", known):
            assert [each.attempt for each in self.converted(ours, task_id=task_id)[0]] == [0, 1, 2]

    def test_attempts_at_a_named_task_are_counted_where_some_have_that_task_already(self, ours):
        known = next(read_jsonl(ours))
        other = make_episode("repair/other", attempt=5)
        write(ours, other, known)
        found, out = self.converted(ours, task_id=known.task.task_id)
        assert [each.attempt for each in found] == [0, 1] and len({each.episode_id for each in found}) == 2
        assert [each for each in TrajectoryValidator().validate(out) if each.severity == "error"] == []

    def test_an_episode_that_is_met_again_is_written_once(self, chats):
        chats.write_text(2 * chats.read_text())
        assert len(self.converted(chats, task_id="desk/refund")[0]) == 3

    def test_a_parent_is_found_under_its_new_name(self, tmp_path):
        parent = make_episode(attempt=0)
        foreign = msgspec.structs.replace(parent.provenance, source="crew")
        parent = with_content_hash(msgspec.structs.replace(parent, provenance=foreign))
        branch = msgspec.structs.replace(
            make_episode(attempt=1), provenance=foreign, parent=Parent(parent.episode_id, 0)
        )
        path = write(tmp_path / "both.jsonl", parent, with_content_hash(branch))
        first, second = self.converted(path, policy_version="new")[0]
        assert second.parent.episode_id == first.episode_id != parent.episode_id

    def test_an_unknown_domain_is_refused_with_the_nearest(self):
        with pytest.raises(ConfigurationError, match=r"'codign'.*coding"):
            EpisodeNames(domain="codign")
