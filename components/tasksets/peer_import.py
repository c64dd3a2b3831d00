"""Make tasksets of the tasks of other frameworks, which then set up and grade the episodes."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError, Role, TaskSpec
from ratchet.components.core.files import InvalidYaml, load_yaml
from ratchet.components.environments import openenv_environment, tau2_environment, verifiers_environment
from ratchet.components.environments.harbor_task import TEST_COMMAND
from ratchet.components.environments.peer_task import PeerTask

from .harbor_import import read_harbor_tasks
from .reasoning_gym_import import assign_roles, with_role
from .row_import import ImportResult, RefusedRow
from .taskset_files import TasksetHead, check_import_folder, write_taskset

GENERATOR = "ratchet tasks import"
FRAMEWORKS: dict[str, tuple[str, Callable[[str, dict[str, Any], int], Iterable[tuple[PeerTask, str] | RefusedRow]]]] = {
    "verifiers": ("ratchet/verifiers", verifiers_environment.peer_tasks),
    "openenv": ("ratchet/openenv", openenv_environment.peer_tasks),
    "tau2": ("ratchet/tau2", tau2_environment.peer_tasks),
    "harbor": ("ratchet/sandbox", read_harbor_tasks),
}
"""Of each framework, the environment that plays its tasks, and what reads them: package, settings, largest number of tasks."""


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Return the settings of `KEY=VALUE` with values in YAML; a dotted key is nested. Raises ConfigurationError."""
    values: dict[str, Any] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        section = values
        *parents, key = path.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
        if not equals or not key or not isinstance(section, dict):
            raise ConfigurationError(f"--set {setting}: write KEY=VALUE")
        try:
            section[key] = load_yaml(value.encode())
        except InvalidYaml as error:
            raise ConfigurationError(f"--set {setting}: {error}") from error
    return values


def import_peer_tasks(
    folder: Path, tasks: Iterable[tuple[PeerTask, str] | RefusedRow], *, seed: int = 0, role: Role | None = None
) -> ImportResult:
    """Write a taskset of a framework's tasks, each with its description, to `folder`; refused tasks are returned.

    `role` None: split one by one. Tasks without a name get one of their content. Raises ConfigurationError for a folder with
    another taskset, DataError where there is no task, or one twice.
    """
    check_import_folder(folder, GENERATOR)
    name = folder.resolve().name
    made: dict[str, TaskSpec] = {}
    refused = []
    for item in tasks:
        if isinstance(item, RefusedRow):
            refused.append(item)
            continue
        peer, description = item
        digest = hashlib.sha256(msgspec.json.encode(peer.data, order="sorted")).hexdigest()[:10]
        task_id = f"{name}/{peer.data.get('name') or digest}"
        if task_id in made:
            raise DataError(
                f"{peer.graded_by}, '{peer.package}': the task '{task_id}' occurs twice; names must be unique"
            )
        made[task_id] = TaskSpec(
            task_id, name, digest, peer.package, Role.TRAIN, "generic", description,
            criteria=msgspec.to_builtins(peer), test_command=TEST_COMMAND if peer.graded_by == "harbor" else "",
        )  # fmt: skip
    if not made:
        raise DataError(
            "; ".join([f"{folder}: there is no task to import", *(f"{row.where}: {row.why}" for row in refused[:3])])
        )
    framework, package = peer.graded_by, peer.package
    specs = list(made.values())
    assigned = assign_roles(specs, seed, "instance") if role is None else with_role(specs, role)
    head = TasksetHead(
        name=name, version="1", domain="generic", counts={}, environment=FRAMEWORKS[framework][0], split_by="instance",
        description=f"Tasks of {framework}: {package}.", generator=f"{GENERATOR} {framework}", seed=seed,
    )  # fmt: skip
    by_role = {a_role: [task for task in assigned if task.role == a_role] for a_role in Role}
    card = f"# {name}\n\n{len(specs)} tasks of {package}, imported from {framework}, which grades them.\n"
    write_taskset(folder, head, {key: rows for key, rows in by_role.items() if rows}, card)
    return ImportResult(tuple(assigned), tuple(refused))
