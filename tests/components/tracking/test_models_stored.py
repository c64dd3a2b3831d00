"""Models in a real MLflow, their checkpoints in a folder or in S3: whole, or not registered at all."""

from pathlib import Path

import pytest
from faulty_s3 import BUCKET, faulty_s3, s3_client

from components.protocol import ConfigurationError, DataError, InfrastructureError
from components.tracking import logged, models, place, retention
from components.tracking.checkpoints import FolderStore, Listing
from components.tracking.runs import night_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    with faulty_s3() as found:
        yield found


@pytest.fixture(scope="module", params=["folder", "s3"])
def mlflow(request, server, tmp_path_factory):
    """An MLflow of its own whose checkpoints lie in a folder, or in S3 by one setting; the proxy before S3."""
    patch = pytest.MonkeyPatch()
    patch.setenv("RATCHET_HOME", str(tmp_path_factory.mktemp("home")))
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    patch.delenv("RATCHET_ARTIFACTS", raising=False)
    if request.param == "s3":
        patch.setenv("RATCHET_ARTIFACTS", f"s3://{BUCKET}/ratchet")
    proxy, url = server
    yield request.param, proxy, url
    patch.undo()


def checkpoint(folder: Path, weights: str) -> Path:
    (folder / weights).mkdir(parents=True)
    (folder / weights / "model.safetensors").write_bytes(weights.encode() * 1000)
    (folder / weights / "config.json").write_bytes(b"{}")
    return folder / weights


def name_of(request) -> str:
    return request.node.name.replace("[", "-").replace("]", "")


def files(found: models.ModelRef, url: str) -> list[str]:
    """What lies in the store of a model, looked at from outside."""
    if found.path is not None:
        return sorted(path.relative_to(found.path).as_posix() for path in found.path.rglob("*") if path.is_file())
    prefix = found.location.removeprefix(f"s3://{BUCKET}/") + "/"
    objects = s3_client(url).list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return [each["Key"].removeprefix(prefix) for each in objects]


def test_a_checkpoint_is_registered_downloaded_and_checked(mlflow, request, tmp_path) -> None:
    kind, _, url = mlflow
    name, folder = name_of(request), checkpoint(tmp_path, "w1")
    with night_run(name, "repair") as run:
        found = models.register(folder, policy_version="w1", name=name, run_id=run.run_id, metrics={"train/loss": 0.5})
    assert (found.version, found.location.startswith(f"s3://{BUCKET}/ratchet")) == (1, kind == "s3")
    assert files(found, url) == ["config.json", "model.safetensors"]
    assert Listing.of_tags(logged.model_of(found.model_id).tags) is not None
    got = models.download(1, name)
    assert models.checkpoint_hash(got) == models.checkpoint_hash(folder)
    assert got.is_relative_to(place.home() / "checkpoints") is (kind == "s3")
    assert models.register(folder, policy_version="w1", name=name) == found  # again: the version that it has


def test_damage_in_the_store_is_named(mlflow, request, tmp_path) -> None:
    _, _, url = mlflow
    name = name_of(request)
    found = models.register(checkpoint(tmp_path, "w2"), policy_version="w2", name=name)
    if found.path is not None:
        (found.path / "config.json").write_bytes(b"[]")
    else:
        key = found.location.removeprefix(f"s3://{BUCKET}/") + "/config.json"
        s3_client(url).put_object(Bucket=BUCKET, Key=key, Body=b"[]")
    with pytest.raises(DataError, match="damaged"):
        models.download(1, name)


def test_a_transfer_that_fails_registers_nothing_and_the_same_call_goes_on(
    mlflow, request, tmp_path, monkeypatch
) -> None:
    kind, proxy, url = mlflow
    name, folder = name_of(request), checkpoint(tmp_path, "w3")

    def full(self: FolderStore, source: Path, file: str) -> None:
        raise InfrastructureError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(FolderStore, "put", full)
        patch.setattr(
            proxy, "rule", lambda asked: "refuse" if asked.method == "PUT" and "model.saf" in asked.path else None
        )
        with pytest.raises(InfrastructureError, match="the disk is full" if kind == "folder" else "the store refuses"):
            models.register(folder, policy_version="w3", name=name)
    assert models.versions(name) == []
    (begun,) = logged.unfinished(name)
    found = models.register(folder, policy_version="w3", name=name)
    assert (found.version, found.model_id) == (1, begun.model_id)
    assert logged.unfinished(name) == []
    assert files(found, url) == ["config.json", "model.safetensors"]


def test_pruning_frees_what_no_alias_and_no_lineage_reaches(mlflow, request, tmp_path, monkeypatch) -> None:
    _, _, url = mlflow
    name = name_of(request)
    bases = {"p1": "", "p2": "p1", "p3": "p1", "p4": "p2"}
    refs = {}
    for policy, base in bases.items():
        folder = checkpoint(tmp_path, f"{name}-{policy}")
        refs[policy] = models.register(folder, policy_version=policy, name=name, tags={"base": base})
    models.promote(2, name)
    models.download(3, name)
    planned = retention.prune(1, name, dry_run=True)
    assert (planned.versions, planned.bytes > 3000) == ([3], True)
    assert files(refs["p3"], url)
    assert retention.prune(1, name) == planned
    assert {policy: bool(files(ref, url)) for policy, ref in refs.items()} == {"p1": 1, "p2": 1, "p3": 0, "p4": 1}
    with pytest.raises(ConfigurationError, match=r"the files of .* version 3 were pruned; take another version"):
        models.download(3, name)
    with pytest.raises(ConfigurationError, match="were pruned"):
        models.promote(3, name)
    assert models.get(3, name).tags["base"] == "p1"  # what it was stays known
    assert retention.prune(1, name).versions == []
    again = models.register(tmp_path / f"{name}-p3", policy_version="p3", name=name, tags={"base": "p1"})
    assert again.version == 5 and files(again, url)
    assert models.checkpoint_hash(models.download(5, name)) == again.checkpoint_hash


def test_an_upload_that_was_given_up_is_removed(mlflow, request, tmp_path, monkeypatch) -> None:
    name, folder = name_of(request), checkpoint(tmp_path, "w4")
    monkeypatch.setattr(logged, "send", lambda *_: (_ for _ in ()).throw(InfrastructureError("gone")))
    with pytest.raises(InfrastructureError, match="gone"):
        models.register(folder, policy_version="w4", name=name)
    assert retention.prune(0, name).unfinished == []  # it may still be on its way
    monkeypatch.setattr(retention, "ABANDONED", -1)
    assert len(retention.prune(0, name).unfinished) == 1
    assert logged.unfinished(name) == []


def test_a_run_whose_artifacts_lie_elsewhere_does_not_decide_where_its_model_lies(
    mlflow, request, tmp_path, monkeypatch
) -> None:
    name = name_of(request)
    with night_run(name, "repair") as run:
        monkeypatch.setenv("RATCHET_ARTIFACTS", str(tmp_path / "elsewhere"))
        found = models.register(checkpoint(tmp_path, "w5"), policy_version="w5", name=name, run_id=run.run_id)
    assert found.path is not None and found.path.is_relative_to(tmp_path / "elsewhere")
