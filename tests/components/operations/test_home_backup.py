"""A backup is one verified archive, and restores at another path; what is damaged or would be overwritten is refused."""

import io
import json
import os
import sqlite3
import subprocess
import tarfile
from pathlib import Path

import pytest

from ratchet import cli
from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.home import credential, home
from ratchet.components.nights.night_state import begin_night, hold_night_lock, list_nights, open_night
from ratchet.components.operations import home_backup
from ratchet.components.operations.home_backup import back_up, restore


def git(folder, *arguments):
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *arguments], cwd=folder, env=os.environ | names, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def enter(monkeypatch):
    """Makes a clone the working directory, with its own home."""
    for name in ("RATCHET_HOME", "MLFLOW_TRACKING_URI", "RATCHET_ARTIFACTS", "RATCHET_DVC_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.chdir


@pytest.fixture
def clone(tmp_path, enter):
    """A clone in which a night has left its files, at a path with a space."""
    clone = tmp_path / "old clone"
    (clone / "data" / "tasksets").mkdir(parents=True)
    (clone / ".gitignore").write_text(".ratchet/\n/dvc.lock\n/data/rollouts/\n.dvc/cache/\n")
    (clone / "dvc.yaml").touch()
    (clone / "data/tasksets/a.jsonl").write_text("{}\n")
    git(clone, "init", "--quiet")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "all")
    enter(clone)
    night = begin_night("smoke", 1)
    night.run_once("train", lambda: {"checkpoint": str(home() / "models/a"), "shards": str(clone / "data/rollouts/a")})
    night.finish()
    for name in ("models/a/weights", "dvc-remote/files/md5/aa/b"):
        (home() / name).parent.mkdir(parents=True)
        (home() / name).write_bytes(b"\x00weights" * 1000)
    (clone / "data/rollouts/a").mkdir(parents=True)
    (clone / "data/rollouts/a/shard-0.jsonl").write_text("{}\n")
    (clone / ".dvc/cache/files").mkdir(parents=True)
    (clone / ".dvc/cache/files/b").write_bytes(b"\x00weights" * 1000)
    (clone / "dvc.lock").write_text("stages: {}\n")
    credential("mlflow")
    (home() / "spool").mkdir()
    (home() / "spool" / ".a.jsonl.77.tmp").write_text("half")
    with sqlite3.connect(home() / "mlflow.db") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE runs (artifact_uri TEXT, name TEXT)")
        database.execute("INSERT INTO runs VALUES (?, ?)", ((home() / "mlartifacts/1").as_uri(), f"{clone}-not-a-path"))
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "night")
    git(clone, "tag", "night/a")
    git(clone, "reset", "--quiet", "--hard", "HEAD~1")
    return clone


@pytest.fixture
def archive(clone, tmp_path):
    back_up(tmp_path / "a.tar")
    return tmp_path / "a.tar"


@pytest.fixture
def fresh(clone, tmp_path, enter):
    """A fresh clone at a path that holds the old one."""
    fresh = tmp_path / "old clone.d" / "old clone" / "new"
    git(tmp_path, "clone", "--quiet", "--no-tags", str(clone), str(fresh))
    return fresh


def test_a_restored_home_has_every_file_and_names_its_own_paths(archive, clone, fresh, enter):
    (night,) = list_nights()
    before = {path.relative_to(clone) for path in clone.rglob("*") if path.is_file() and ".git" not in path.parts}
    enter(fresh)
    restore(archive)
    after = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file() and ".git" not in path.parts}
    missing = {str(path) for path in before - after}
    assert after <= before and all(
        name.startswith((".ratchet/run/", ".ratchet/credentials"))
        for name in missing - {".ratchet/spool/.a.jsonl.77.tmp", ".ratchet/mlflow.db-wal", ".ratchet/mlflow.db-shm"}
    )
    assert open_night(night.id).results["train"] == {
        "checkpoint": f"{fresh}/.ratchet/models/a",
        "shards": f"{fresh}/data/rollouts/a",
    }
    assert (fresh / ".ratchet/models/a/weights").read_bytes() == (clone / ".ratchet/models/a/weights").read_bytes()
    with sqlite3.connect(home() / "mlflow.db") as database:
        uri, name = database.execute("SELECT * FROM runs").fetchone()
    assert uri == (fresh / ".ratchet/mlartifacts/1").as_uri() and name == f"{clone}-not-a-path"
    assert git(fresh, "tag") == "night/a\n" and not git(fresh, "status", "--porcelain")
    assert home().stat().st_mode & 0o077 == 0 and (home() / "mlflow.db").stat().st_mode & 0o077 == 0


def test_equal_contents_are_stored_once_and_no_credential_is(archive, clone):
    with tarfile.open(archive) as tar:
        contents = [tar.extractfile(member).read() for member in tar]
    assert contents.count(b"\x00weights" * 1000) == 1
    assert not any(credential("mlflow").encode() in content for content in contents)


def test_credentials_are_kept_where_that_is_asked_for(clone, fresh, tmp_path, enter):
    secret = credential("mlflow")
    back_up(tmp_path / "a.tar", credentials=True)
    enter(fresh)
    restore(tmp_path / "a.tar")
    assert credential("mlflow") == secret


def test_a_home_elsewhere_is_restored_to_a_home_elsewhere(archive, fresh, tmp_path, enter, monkeypatch):
    enter(fresh)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "its own" / "home"))
    restore(archive)
    (night,) = list_nights()
    assert night.results["train"]["checkpoint"] == str(tmp_path / "its own/home/models/a")


@pytest.mark.parametrize("kind", ["night", "comparison"])
def test_nothing_is_backed_up_while_a_night_runs(clone, tmp_path, kind):
    with hold_night_lock(kind) as claim:
        claim("x")
        with pytest.raises(ConfigurationError, match=f"{kind} x is running"):
            back_up(tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()


def test_an_archive_is_written_whole_or_not_at_all(clone, tmp_path, monkeypatch):
    (tmp_path / "a.tar").write_bytes(b"the last one")
    monkeypatch.setattr(home_backup, "file_sha256", lambda path: (_ for _ in ()).throw(FileNotFoundError(2, "", path)))
    with pytest.raises(InfrastructureError, match="was removed meanwhile"):
        back_up(tmp_path / "a.tar")
    assert (tmp_path / "a.tar").read_bytes() == b"the last one" and list(tmp_path.glob(".*")) == []


def test_a_file_that_changes_meanwhile_is_an_error(clone, tmp_path, monkeypatch):
    def changing(path):
        with path.open("a") as file:
            file.write(" ")
        return "0" * 64

    monkeypatch.setattr(home_backup, "file_sha256", changing)
    with pytest.raises(InfrastructureError, match="was changed meanwhile"):
        back_up(tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()


def test_an_archive_does_not_lie_in_what_it_holds(clone):
    for place in (home() / "a.tar", clone / "data/a.tar"):
        with pytest.raises(ConfigurationError, match="lies in what is backed up"):
            back_up(place)


def test_an_empty_home_is_not_backed_up(fresh, tmp_path, enter):
    enter(fresh)
    with pytest.raises(ConfigurationError, match="holds no night"):
        back_up(tmp_path / "a.tar")


def test_a_home_that_is_not_empty_is_refused(archive, clone):
    with pytest.raises(ConfigurationError, match="is not empty"):
        restore(archive)


def test_a_file_of_the_clone_that_differs_is_refused_before_anything_is_written(archive, fresh, enter):
    enter(fresh)
    (fresh / "dvc.lock").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"dvc\.lock exists and differs"):
        restore(archive)
    assert (fresh / "dvc.lock").read_text() == "mine" and not (fresh / "data/rollouts").exists() and not home().exists()


@pytest.mark.parametrize("at", [0.2, 0.6, 0.999])
def test_a_truncated_archive_restores_nothing(archive, fresh, enter, at):
    enter(fresh)
    with tarfile.open(archive) as tar:
        end = max(member.offset_data + member.size for member in tar)
    archive.write_bytes(archive.read_bytes()[: int(at * end)])
    with pytest.raises(DataError):
        restore(archive)
    assert not home().exists() and not git(fresh, "status", "--porcelain")


def rewritten(archive, change):
    """The archive with changed members: `change` returns the content of a member, by its name."""
    members = []
    with tarfile.open(archive) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar]
    with tarfile.open(archive, "w") as tar:
        for member, content in members:
            new = change(member.name, content)
            member.size = len(new)
            tar.addfile(member, io.BytesIO(new))


def test_a_content_with_another_hash_is_refused(archive, fresh, enter):
    enter(fresh)
    rewritten(archive, lambda name, content: content.replace(b"weights", b"waights") if "object" in name else content)
    with pytest.raises(DataError, match="another hash"):
        restore(archive)
    assert not home().exists()


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", ""])
def test_a_file_outside_of_the_clone_is_refused(archive, fresh, enter, path):
    def hostile(name, content):
        if name != "manifest.json":
            return content
        manifest = json.loads(content)
        manifest["files"][0]["path"] = path
        return json.dumps(manifest).encode()

    enter(fresh)
    rewritten(archive, hostile)
    with pytest.raises(DataError, match="not within"):
        restore(archive)


def test_what_is_no_backup_is_refused_in_one_line(clone, fresh, tmp_path, enter, capsys):
    enter(fresh)
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.add(clone / "dvc.yaml", "dvc.yaml")
    (tmp_path / "no.tar").write_bytes(b"\xff" * 2000)
    for name, code in (("other.tar", 3), ("no.tar", 3), ("absent.tar", 2)):
        assert cli.run(["restore", str(tmp_path / name)]) == code
        assert capsys.readouterr().err.count("\n") == 1
    assert not home().exists()


def test_the_commands_say_what_they_did_and_what_lies_elsewhere(clone, fresh, tmp_path, enter, capsys, monkeypatch):
    monkeypatch.setenv("RATCHET_ARTIFACTS", "s3://bucket/artifacts")
    assert cli.run(["backup", str(tmp_path / "a.tar")]) == 0
    printed = capsys.readouterr()
    assert "files" in printed.out and "not in it: artifacts and checkpoints at s3://bucket/artifacts" in printed.err
    enter(fresh)
    assert cli.run(["restore", str(tmp_path / "a.tar")]) == 0
    assert "restored to" in capsys.readouterr().out


def test_paths_are_replaced_whole_and_quoted_in_uris_alone(tmp_path, enter):
    (new := tmp_path / "é b").mkdir()
    enter(new)
    replace = home_backup._folder_replacement(home_backup.ArchiveManifest("", "/a/.ratchet", "/a", ()))
    for old, wanted in {
        "/a/.ratchet/x": f"{new}/.ratchet/x",
        "file:///a/.ratchet/x": (new / ".ratchet/x").as_uri(),
        "file:///a": new.as_uri(),
        '{"x": "/a/y"}': f'{{"x": "{new}/y"}}',
        "/b/a /ab /a.d /a-b": "/b/a /ab /a.d /a-b",
    }.items():
        assert replace(old) == wanted


def test_only_state_is_rewritten_and_no_file_whose_hash_is_recorded():
    rewritten = [
        "nights/n/state.json",
        "nights/n/training/control/config.json",
        "comparisons/c/data/w/.dvc/config.local",
    ]
    kept = [
        *("nights/n/data/cold-start/train.jsonl", "nights/n/training/control/checkpoint/config.json"),
        *("mlartifacts/1/models/m/artifacts/adapter_config.json", "evaluations/n/champion/shard-00000.jsonl"),
        *("comparisons/c/data/w/data/rollouts/n/shard-00000.jsonl", "nights/n/report.md"),
    ]
    assert [path for path in rewritten + kept if home_backup._names_folders(Path(path))] == rewritten


def test_two_links_to_one_folder_are_both_kept_and_a_link_to_a_folder_above_is_not(tmp_path):
    (tmp_path / "home" / "a").mkdir(parents=True)
    (tmp_path / "home" / "b").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "x.py").write_text("")
    for name in "ab":
        (tmp_path / "home" / name / "components").symlink_to(tmp_path / "code")
        (tmp_path / "home" / name / "above").symlink_to(tmp_path / "home")
    found = [path.relative_to(tmp_path / "home").as_posix() for path in home_backup._files(tmp_path / "home")]
    assert found == ["a/components/x.py", "b/components/x.py"]
