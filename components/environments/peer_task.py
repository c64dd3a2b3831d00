"""PeerTask: the criteria of a task that another framework defines and grades."""

from typing import Any, Literal

import msgspec

from ratchet.components.core import ConfigurationError, DataError, Environment
from ratchet.components.core.environment_registry import make, spec

SUCCESS_REWARD = 1.0
SPARE_STEPS = 8
"""Steps beyond an environment's turns, where another framework counts the turns."""


class PeerTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task of another framework, as it is kept in `TaskSpec.criteria`.

    - `package`: the name by which the framework finds the taskset (an installed package, a server's URL, a domain, a task's name).
    - `config`: settings of the taskset. `data`: the task itself in the framework's own format, with any hidden answer.
    """

    graded_by: Literal["verifiers", "openenv", "tau2", "harbor"]
    package: str
    config: dict[str, Any] = {}
    data: dict[str, Any] = {}


def read_peer_task(criteria: dict[str, Any], graded_by: str | None = None) -> PeerTask:
    """Parse the criteria of a task of the framework `graded_by` (None: of any). Raises DataError."""
    try:
        peer = msgspec.convert(criteria, PeerTask)
    except msgspec.ValidationError as error:
        raise DataError(f"criteria cannot be used: {error}; import the taskset again") from error
    if graded_by not in (None, peer.graded_by):
        raise DataError(
            f"the task is graded by {peer.graded_by}, and the environment by {graded_by}; correct the taskset"
        )
    return peer


def open_environment(environment: str) -> Environment:
    """Return an environment of ours for another framework, which ends episodes by its own count of turns."""
    return make(environment, max_steps=spec(environment).turns + SPARE_STEPS)


def missing_package(package: str, error: ImportError) -> ConfigurationError:
    """Return the error for an environment whose framework is not installed."""
    return ConfigurationError(f"the package '{error.name or package}' is missing; install {package} beside Ratchet")
