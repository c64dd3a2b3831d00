"""A collection that several machines play. Each machine plays whole cohorts in its own home; the flow seals the shards.

All machines reach one store (RATCHET_ARTIFACTS: a folder or `s3://bucket/prefix`). Below `rollouts/<plan hash>` it holds
`plan.json`, the policy's checkpoints, and for each played cohort the shard and its token sidecar, named by their SHA-256,
then `cohort-00003.json`, their line of a manifest. A cohort that two machines have played is taken once: the names by hash
keep both whole, and one line names one of them.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.files import hold_lock, write_atomically
from ratchet.components.core.home import home, home_folder
from ratchet.components.models.policy_factory import checkpoint_folders
from ratchet.components.rollouts.collection_plan import CollectPlan, plan_cohorts, plan_episodes, plan_hash
from ratchet.components.rollouts.episode_runner import planned_version
from ratchet.components.rollouts.rollout_spool import RolloutSpool
from ratchet.components.tasksets import Taskset, load_taskset
from ratchet.components.tracking.checkpoint_stores import checkpoint_store
from ratchet.components.tracking.checkpoint_transfer import (
    CheckpointListing,
    fetch_checkpoint,
    list_checkpoint,
    upload_checkpoint,
)
from ratchet.components.trajectories.shards import ShardEntry, read_manifest

PLAN = "plan.json"


class SharedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `plan.json`. `checkpoints`: files of each checkpoint, by its folder in the name of the policy."""

    plan: dict[str, Any]
    identity: str
    checkpoints: dict[str, CheckpointListing] = {}


def _identify(plan: CollectPlan) -> tuple[str, Taskset, str]:
    """Return the hash of a plan, its taskset and the version of its policy, as they are on this machine."""
    taskset = load_taskset(plan.taskset)
    version = planned_version(plan, taskset)
    return plan_hash(plan, version, taskset.hash), taskset, version


class SharedCollection:
    """The flow's side of a shared collection. `unfinished`: numbers of the cohorts that are not in the spool yet."""

    def __init__(self, plan: CollectPlan, location: str, spool: RolloutSpool) -> None:
        self.plan = plan
        self.location = location
        self._spool = spool
        self._store = checkpoint_store(location)

    @property
    def unfinished(self) -> list[int]:
        """Numbers of the cohorts whose shards the spool lacks, in order."""
        return self._spool.unfinished()

    def episodes(self, number: int) -> int:
        """Return the number of episodes of a cohort."""
        return len(self._spool.cohorts[number])

    def adopt(self, number: int) -> bool:
        """Write the shard of a cohort from the store into the spool; return False where no machine has stored it yet.

        Raises InfrastructureError for a shard with a wrong hash or other episodes than planned, after removing its line
        from the store: the cohort is then played again.
        """
        name = _line_name(number)
        if self._store.size(name) is None:
            return False
        entry = msgspec.json.decode(b"".join(self._store.read(name)), type=ShardEntry)
        lines = b"".join(self._store.read(entry.sha256))
        tokens = b"".join(self._store.read(entry.tokens_sha256)) if entry.tokens_sha256 else None
        intact = hashlib.sha256(lines).hexdigest() == entry.sha256 and (
            tokens is None or hashlib.sha256(tokens).hexdigest() == entry.tokens_sha256
        )
        planned = [each.episode_id for each in self._spool.cohorts[number]]
        # A harness's side conversations are records too, which no plan can name.
        if not intact or [each for each in entry.episode_ids if not self.plan.harness or each in planned] != planned:
            self._store.remove(name)
            raise InfrastructureError(
                f"{self.location}/{name} names a damaged shard, or other episodes than planned; it is played again"
            )
        self._spool.write(number, lines, tokens)
        return True

    def remove(self) -> None:
        """Remove everything of this collection from the store."""
        self._store.remove(PLAN)  # first: a machine that still plays a cohort of it then stores nothing more
        self._store.remove()


@contextmanager
def share_collection(plan: CollectPlan, folder: Path) -> Iterator[SharedCollection]:
    """Publish a plan for other machines and open its spool `folder`; yield the shared collection.

    Raises ConfigurationError where RATCHET_ARTIFACTS names no store.
    """
    if not (shared := os.environ.get("RATCHET_ARTIFACTS")):
        raise ConfigurationError(
            f"executor: {plan.executor} needs a store that all machines reach; set RATCHET_ARTIFACTS to s3://BUCKET/PREFIX "
            "or to a shared folder"
        )
    identity, taskset, version = _identify(plan)
    planned = plan_episodes(plan, taskset, version)
    root = shared.rstrip("/") if "://" in shared else str(Path(shared).absolute())
    location = f"{root}/rollouts/{identity}"
    with RolloutSpool(folder, plan_cohorts(plan, planned), identity) as spool:
        for _ in spool.saved():  # loads the journals of an earlier run
            pass
        listings = {source: list_checkpoint(Path(source)) for source in checkpoint_folders(plan.policy)}
        for source, listing in listings.items():
            upload_checkpoint(Path(source), listing, f"{location}/{listing.digest}")
        collection = SharedCollection(plan, location, spool)
        here = folder / PLAN
        write_atomically(here, msgspec.json.encode(SharedPlan(plan.model_dump(mode="json"), identity, listings)))
        checkpoint_store(location).put(here, PLAN)
        here.unlink()
        yield collection


def read_shared_plan(location: str) -> CollectPlan:
    """Return the plan at a location as this machine can play it: with its checkpoints here, and a process per cohort.

    Raises ConfigurationError where the collection has ended, or this machine has another taskset or policy.
    """
    store = checkpoint_store(location)
    if store.size(PLAN) is None:
        raise ConfigurationError(f"{location} holds no plan: its collection has ended")
    shared = msgspec.json.decode(b"".join(store.read(PLAN)), type=SharedPlan)
    plan = CollectPlan.load(shared.plan)
    folder, policy = _local_folder(location), plan.policy
    for source, listing in shared.checkpoints.items():
        target = folder / listing.digest
        with hold_lock(folder / f"{listing.digest}.lock"):
            fetch_checkpoint(f"{location}/{listing.digest}", listing, target)
        policy = policy.replace(source, str(target))
    here = {"executor": "local", "policy": policy, "workers": 1, "model_threads": plan.model_threads or 1}
    plan = plan.model_copy(update=here)
    if _identify(plan)[0] != shared.identity:
        raise ConfigurationError(
            f"the taskset {plan.taskset} or the policy here differs from that of {location}; bring this machine's project to "
            "the same commit"
        )
    return plan


@contextmanager
def shared_cohort(location: str, number: int) -> Iterator[tuple[CollectPlan, Path]]:
    """Yield the plan and the folder to play cohort `number` into; after the block, store its shard.

    Works in the project that holds RATCHET_HOME. An interrupted cohort is resumed by the next call on this machine.
    """
    os.chdir(home().parent)
    _remove_ended(location)
    plan, folder, store = read_shared_plan(location), _local_folder(location), checkpoint_store(location)
    # Prefect may start a run a second time on this machine while the first still plays: then it waits, and plays nothing.
    with hold_lock(folder / f"{number}.lock"):
        spool = folder / str(number)
        yield plan, spool
        (entry,) = read_manifest(spool)
        if store.size(PLAN) is not None:
            for name, digest in ((entry.shard, entry.sha256), (entry.tokens, entry.tokens_sha256)):
                if name is not None and digest is not None:
                    store.put(spool / name, digest)
            line = spool / _line_name(number)
            write_atomically(line, msgspec.json.encode(entry))
            store.put(line, line.name)
        shutil.rmtree(spool)


def _line_name(number: int) -> str:
    return f"cohort-{number:05d}.json"


def _local_folder(location: str) -> Path:
    return home_folder("cohorts", location.rpartition("/")[2])


def _remove_ended(location: str) -> None:
    """Remove what this machine keeps of collections that have ended."""
    for folder in home_folder("cohorts").iterdir():
        if checkpoint_store(f"{location.rpartition('/')[0]}/{folder.name}").size(PLAN) is None:
            shutil.rmtree(folder, ignore_errors=True)
