"""Checkpoints of a night: trained, registered, or downloaded from the registry."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ratchet.components.models import checkpoint_folders

if TYPE_CHECKING:
    from ratchet.components.tracking.model_registry import ModelRef


class NightModel(msgspec.Struct, frozen=True):
    """A checkpoint and its origin. `nights`: sealed nights that it was trained on; `build`: hash of the lock of their
    build; `version`: number in the registry.
    """

    policy_version: str
    checkpoint: str
    nights: tuple[str, ...]
    build: str | None = None
    version: int | None = None

    @property
    def policy_name(self) -> str:
        """Name of the policy in a collection plan."""
        return f"transformers:{self.checkpoint}"


def trained_model(checkpoint: Path, nights: tuple[str, ...], build: str) -> NightModel:
    """Return the model of a training job. Raises DataError for an incomplete checkpoint."""
    return NightModel(checkpoint_folders.checkpoint_version(checkpoint), str(checkpoint), nights, build)


def download_model(registered: "ModelRef") -> NightModel:
    """Return a registered model with its checkpoint on this machine, verified against its hash.

    Downloads the checkpoint if it is not here.
    """
    from ratchet.components.tracking import model_registry

    checkpoint = model_registry.download(registered.version, registered.name)
    checkpoint_folders.check_checkpoint(checkpoint)
    return registered_model(registered, str(checkpoint))


def registered_model(registered: "ModelRef", checkpoint: str) -> NightModel:
    """Return a registered model whose checkpoint is at `checkpoint`."""
    nights = tuple(night for night in registered.tags.get("nights", "").split(",") if night)
    build = registered.tags.get("build") or None
    return NightModel(registered.policy_version, checkpoint, nights, build, registered.version)


def champion_model() -> NightModel | None:
    """Return the champion with its checkpoint on this machine, verified; None before the first."""
    from ratchet.components.tracking import champion_aliases, model_registry

    with champion_aliases.registry_lock():
        registered = model_registry.version_by_alias(model_registry.CHAMPION)
    return None if registered is None else download_model(registered)
