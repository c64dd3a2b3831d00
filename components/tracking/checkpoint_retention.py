"""Checkpoint retention: remove the files of old versions that nothing needs: no alias, no unfinished night, and no descendant
of which one of these is true.

The version stays in the registry with its tags, so that lineage still finds it.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from ratchet.components.core.home import home

from .champion_aliases import registry_lock
from .checkpoint_transfer import delete_checkpoint
from .mlflow_client import client
from .model_registry import (
    AGENT,
    CACHE,
    PRUNED_TAG,
    ModelRef,
    aliases,
    call_registry,
    delete_unfinished,
    unfinished_models,
    versions,
)

BASE_TAG = "base"
"""Tag of a version: the policy version from which its training started; empty if it descends from none."""
ABANDONED_SECONDS = 24 * 3600
"""Seconds after which an unfinished upload is not resumed any more."""


class RetainedVersion(msgspec.Struct, frozen=True):
    """A registered version; `why`: the reason to keep its checkpoint files, None if they may be removed."""

    version: int
    policy_version: str
    why: str | None


class PruneReport(msgspec.Struct, frozen=True):
    """Result of pruning, or of a dry run.

    `versions`: versions whose checkpoint files were removed, `bytes` in all. `unfinished`: ids of the models of
    abandoned uploads, removed too. `kept`: versions that keep their files.
    """

    versions: list[int]
    bytes: int
    unfinished: list[str]
    kept: list[RetainedVersion]


def retention_reasons(
    refs: Sequence[ModelRef], alias_versions: Mapping[str, int], keep: int, in_use: Mapping[str, str] | None = None
) -> list[RetainedVersion]:
    """Return each version that still has its files, oldest first, with the reason to keep them; None for no reason.

    Reasons: an alias points to it, it is in use, such a version descends from it, or it is one of the `keep` newest.
    `in_use`: further versions that are needed, and for what, by policy version.
    """
    reasons: dict[int, str] = {}
    for ref in sorted(refs, key=lambda ref: ref.version):
        for alias in sorted(alias for alias, version in alias_versions.items() if version == ref.version):
            reasons.setdefault(ref.version, f"@{alias}")
        if why := (in_use or {}).get(ref.policy_version):
            reasons.setdefault(ref.version, why)
    for version, alias in list(reasons.items()):
        _keep_lineage(version, alias, refs, reasons)
    present = sorted((ref for ref in refs if not ref.is_pruned), key=lambda ref: ref.version)
    for ref in present[-keep:] if keep else ():
        reasons.setdefault(ref.version, f"among the newest {keep}")
    return [RetainedVersion(ref.version, ref.policy_version, reasons.get(ref.version)) for ref in present]


def prune_checkpoints(
    keep: int, name: str = AGENT, *, in_use: Mapping[str, str] | None = None, dry_run: bool = False
) -> PruneReport:
    """Remove the files of versions without a reason to keep them (see `retention_reasons`), and abandoned uploads. May
    be repeated after any interruption.

    `keep`: number of newest versions to keep; `in_use`: as in `retention_reasons`; `dry_run`: only report. Versions are
    chosen and marked under `registry_lock`, so that no promotion of this home moves an alias meanwhile.
    """
    latest = (time.time() - ABANDONED_SECONDS) * 1000
    abandoned = [
        model
        for model in unfinished_models(name)
        if float(model.last_updated_timestamp or model.creation_timestamp) < latest
    ]
    if dry_run:
        retained, pruned = _plan_prune(name, keep, in_use)
    else:
        with registry_lock(name):
            retained, pruned = _mark_pruned(name, keep, in_use)
    report = PruneReport(
        [ref.version for ref in pruned],
        sum(checkpoint_size(ref) for ref in pruned),
        [str(model.model_id) for model in abandoned],
        [version for version in retained if version.why is not None],
    )
    if not dry_run:
        refs = versions(name)  # with those that were registered meanwhile
        remaining = [ref for ref in refs if not ref.is_pruned]
        for ref in refs:  # also what an earlier call marked, and was killed before it removed
            if ref.is_pruned:
                _remove(ref, remaining)
        for model in abandoned:
            delete_unfinished(model)
    return report


def _plan_prune(name: str, keep: int, in_use: Mapping[str, str] | None) -> tuple[list[RetainedVersion], list[ModelRef]]:
    """Return what is kept and what is not."""
    refs = versions(name)
    retained = retention_reasons(refs, aliases(name), keep, in_use)
    prunable = {version.version for version in retained if version.why is None}
    return retained, [ref for ref in refs if ref.version in prunable]


def _mark_pruned(
    name: str, keep: int, in_use: Mapping[str, str] | None
) -> tuple[list[RetainedVersion], list[ModelRef]]:
    """Mark what goes, so that nobody promotes it, and unmark what another home has given an alias meanwhile."""
    retained, pruned = _plan_prune(name, keep, in_use)
    for ref in pruned:
        call_registry(partial(client().set_model_version_tag, name, str(ref.version), PRUNED_TAG, "true"))
    marked = {ref.version for ref in pruned}
    # The lock is this home's alone: another home may have moved an alias between the plan and the mark. Look again.
    refs = [
        replace(ref, tags={key: value for key, value in ref.tags.items() if key != PRUNED_TAG})
        if ref.version in marked
        else ref
        for ref in versions(name)
    ]
    retained = retention_reasons(refs, aliases(name), keep, in_use)
    prunable = {entry.version for entry in retained if entry.why is None} & marked
    for version in sorted(marked - prunable):
        call_registry(partial(client().delete_model_version_tag, name, str(version), PRUNED_TAG))
    return retained, [ref for ref in pruned if ref.version in prunable]


def _keep_lineage(version: int, alias: str, refs: Sequence[ModelRef], reasons: dict[int, str]) -> None:
    """Keep what a version descends from. Without a recorded base it may descend from any older version."""
    pending, seen = [version], {version}
    while pending:
        current = pending.pop()
        ref = next((other for other in refs if other.version == current), None)
        if ref is None:
            continue
        base = ref.tags.get(BASE_TAG)
        for other in refs:
            if base is None and other.version < current:
                reasons.setdefault(
                    other.version, f"{alias} may descend from it: version {current} does not say from what it began"
                )
            elif base and other.policy_version == base and other.version not in seen:
                reasons.setdefault(other.version, f"{alias} descends from it")
                seen.add(other.version)
                pending.append(other.version)


def _remove(ref: ModelRef, remaining: Sequence[ModelRef]) -> None:
    """Remove the files of a version, unless a version that stays has the same ones."""
    if ref.model_id in ref.location and all(other.model_id != ref.model_id for other in remaining):
        delete_checkpoint(ref.location)
    if all(other.checkpoint_hash != ref.checkpoint_hash for other in remaining):
        shutil.rmtree(home() / CACHE / ref.checkpoint_hash, ignore_errors=True)


def checkpoint_size(ref: ModelRef) -> int:
    """Return the size of a version's checkpoint in bytes; 0 if it was not recorded and the files are not in a folder."""
    if ref.listing is not None:
        return ref.listing.bytes
    return sum(path.stat().st_size for path in ref.path.rglob("*") if path.is_file()) if ref.path else 0
