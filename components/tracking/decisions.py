"""Decisions kept with the models that they are about: the record as an artifact of the version's run, its headlines as tags."""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from .logged import call
from .models import AGENT, get
from .place import client

RECORD = "decision/decision.json"
"""The artifact, in the run that trained the version."""
RECORD_TAG = "decision.record"
_LONGEST = 1000


def keep_decision(version: int, record: str, headlines: Mapping[str, object], name: str = AGENT) -> None:
    """Store a decision record with the version that it is about; the same call again changes nothing.

    Raises InfrastructureError where MLflow does not answer: a decision that nobody can read must not move an alias.
    """
    ref = get(version, name)
    if ref.run_id is not None:
        call(partial(client().log_text, ref.run_id, record, RECORD))
    place = {} if ref.run_id is None else {RECORD_TAG: f"runs:/{ref.run_id}/{RECORD}"}
    for key, value in {**{f"decision.{key}": value for key, value in headlines.items()}, **place}.items():
        call(partial(client().set_model_version_tag, name, str(version), key, str(value)[:_LONGEST]))


def decision_of(version: int, name: str = AGENT) -> bytes | None:
    """The decision record of a version; None where none was kept with it. Raises ConfigurationError for no such version."""
    ref = get(version, name)
    if RECORD_TAG not in ref.tags or ref.run_id is None:
        return None
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        return Path(call(partial(client().download_artifacts, ref.run_id, RECORD, folder))).read_bytes()
