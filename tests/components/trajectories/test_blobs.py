"""Blobs: whatever a record names comes along, from one folder's name that writers and finders share."""

import pytest
from episodes import make_episode

from ratchet.components.core import ToolResult
from ratchet.components.interop.log_conversion import convert_logs
from ratchet.components.interop.log_ingest import LogIngest
from ratchet.components.interop.redact_files import sanitise_records
from ratchet.components.interop.trajectory_draft import TrajectoryDraft
from ratchet.components.interop.trajectory_writers import line_encoder
from ratchet.components.redaction import Sanitiser
from ratchet.components.trajectories.blobs import BlobFolder, blob_name, blobs_folder, referenced_blobs
from ratchet.components.trajectories.shards import read_jsonl
from ratchet.components.trajectories.store.store_export import export_query
from ratchet.components.trajectories.store.store_maintenance import check_store, remove_garbage
from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.trajectory import Message, Turn

PICTURES = {b"\x89PNG opening\xff", b"\x89PNG result\xff", b"\x89PNG noted\xff"}


def blobs_in(folder):
    return {path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else set()


def episode():
    opening, result, noted = (blob_name(b"\x89PNG " + each + b"\xff") for each in (b"opening", b"result", b"noted"))
    draft = TrajectoryDraft("crew")
    draft.message("user", "look", [opening])
    draft.turn("so")
    draft.call("see", {})
    draft.result("seen", blob=result)
    draft.note("user", "and this", blobs=[noted])
    return draft.finish(native_id="one")


@pytest.fixture(params=["x.jsonl", "x.j", "x", "x.v1.blobs"])
def log(request, tmp_path):
    folder = tmp_path / "in"
    path = folder / request.param
    folder.mkdir()
    path.write_bytes(line_encoder("ratchet")(episode()))
    keep = BlobFolder(blobs_folder(path))
    for each in PICTURES:
        keep.put(each)
    return path


def test_every_place_of_a_record_counts():
    assert referenced_blobs(episode()) == {blob_name(each) for each in PICTURES}


def test_only_the_name_of_a_blob_is_one():
    turns = [Turn(0, "a", "", results=(ToolResult("", "", blob="../../secret"),))]
    made = make_episode(messages=(Message("user", "", ("sha256-12", "..")),), turns=turns)
    assert referenced_blobs(made) == set()


def test_all_names_of_files_have_a_folder_that_is_not_the_file(tmp_path):
    found = {name: blobs_folder(tmp_path / name).name for name in ("x.jsonl", "x.j", "x", "x.blobs")}
    assert found == {"x.jsonl": "x.blobs", "x.j": "x.blobs", "x": "x.blobs", "x.blobs": "x.blobs.blobs"}


def test_converting_ours_takes_them_along(log, tmp_path):
    report = convert_logs(log, tmp_path / "out" / "y.j")
    assert blobs_in(tmp_path / "out" / "y.blobs") == PICTURES and report.blobs_absent == 0


def test_what_is_absent_or_damaged_is_counted_once(log, tmp_path):
    held = sorted(blobs_folder(log).iterdir())
    held[0].unlink()
    held[1].write_bytes(b"other")
    assert convert_logs(log, tmp_path / "y.jsonl").blobs_absent == 2
    assert sanitise_records(log, tmp_path / "z.jsonl", Sanitiser()).blobs_absent == 2
    assert len(blobs_in(tmp_path / "y.blobs")) == len(blobs_in(tmp_path / "z.blobs")) == 1


def test_a_folder_of_logs_and_their_blobs_has_no_strangers(log, tmp_path):
    report = convert_logs(log.parent, tmp_path / "out" / "y.jsonl")
    assert (report.trajectories, report.strangers, report.blobs_absent) == (1, [], 0)


def test_sanitising_takes_images_along_and_leaves_texts_with_a_secret(tmp_path):
    keep = BlobFolder(blobs_folder(tmp_path / "in.jsonl"))
    secret = "token: gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    names = (keep.put(secret.encode()), keep.put(b"\x89PNG\xff"), keep.put(b"a plain text"))
    (tmp_path / "in.jsonl").write_bytes(
        line_encoder("ratchet")(make_episode(messages=(Message("user", "see", names),)))
    )
    summary = sanitise_records(tmp_path / "in.jsonl", tmp_path / "out.jsonl", Sanitiser())
    assert blobs_in(tmp_path / "out.blobs") == {b"\x89PNG\xff", b"a plain text"}
    assert (summary.blobs_unclean, summary.blobs_absent) == (1, 0)


@pytest.mark.parametrize("raw", [True, False])
def test_a_store_takes_keeps_knows_and_exports_all_of_them(log, tmp_path, raw):
    with StoreWriter(tmp_path / "store", raw=raw) as writer:
        (report,) = LogIngest(writer).once([log])
        assert (report.tally.added, report.blobs_absent) == (1, 0)
        remove_garbage(writer)
    checked = check_store(TrajectoryStore(tmp_path / "store"))
    assert (checked.blobs, checked.faults) == (3, [])
    export_query(TrajectoryStore(tmp_path / "store"), EpisodeQuery(), tmp_path / "again" / "y.txt")
    assert blobs_in(tmp_path / "again" / "y.blobs") == PICTURES
    assert referenced_blobs(next(iter(read_jsonl(tmp_path / "again" / "y.txt")))) == referenced_blobs(episode())


def test_a_store_says_how_many_are_absent(log, tmp_path):
    next(blobs_folder(log).iterdir()).unlink()
    with StoreWriter(tmp_path / "store", raw=True) as writer:
        (report,) = LogIngest(writer).once([log])
    assert report.blobs_absent == 1 and report.is_news
    assert ["is absent" in each.why for each in check_store(TrajectoryStore(tmp_path / "store")).faults] == [True]
