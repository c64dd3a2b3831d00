"""Checkpoints on their way into MLflow's artifact store and back: each file compared with its hash after every transfer."""

from .listing import Listing, listing_of
from .store import FolderStore
from .transfer import erase, fetch, send

__all__ = ["FolderStore", "Listing", "erase", "fetch", "listing_of", "send"]
