"""Read Harbor task folders (task.toml, instruction.md, environment/, tests/) as tasks, which HarborLayout plays."""

import json
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ratchet.components.core import ConfigurationError
from ratchet.components.environments.harbor_task import encode_file
from ratchet.components.environments.peer_task import PeerTask

from .row_import import RefusedRow, RowFault

MAX_FOLDER_BYTES = 16 << 20
PARTS = ("environment", "tests", "solution")


def read_harbor_tasks(source: str, config: dict[str, Any], size: int) -> Iterator[tuple[PeerTask, str] | RefusedRow]:
    """Yield the first `size` task folders that the folder `source` is or holds, each with its instruction, or why it is refused.

    Raises ConfigurationError where there is none, and for settings, of which there are none.
    """
    folder = Path(source)
    folders = (
        [folder] if (folder / "task.toml").is_file() else sorted(path.parent for path in folder.glob("*/task.toml"))
    )
    if not folders or config:
        raise ConfigurationError(
            f"{folder} is no Harbor task, and holds none" if not folders else "harbor has no settings"
        )
    for path in islice(folders, size):
        try:
            yield _read_task(path.resolve())
        except RowFault as fault:
            yield RefusedRow(str(path), str(fault))


def _read_task(folder: Path) -> tuple[PeerTask, str]:
    try:
        # A date of TOML becomes a text.
        config = json.loads(json.dumps(tomllib.loads((folder / "task.toml").read_text("utf-8")), default=str))
        instruction = (folder / "instruction.md").read_text("utf-8")
        paths = [path for part in PARTS for path in sorted((folder / part).rglob("*")) if not path.is_dir()]
        if links := [path for path in paths if path.is_symlink() or not path.is_file()]:
            raise RowFault(f"{links[0].relative_to(folder)} is no regular file")
        if sum(path.stat().st_size for path in paths) > MAX_FOLDER_BYTES:
            raise RowFault(f"its files hold more than {MAX_FOLDER_BYTES >> 20} MiB")
        files = {str(path.relative_to(folder)): encode_file(path.read_bytes()) for path in paths}
    except (OSError, ValueError) as error:
        raise RowFault(f"it cannot be read: {' '.join(str(error).split())[:200]}") from error
    _check(config, files)
    data = {"name": folder.name, "instruction": instruction, "config": config, "files": files}
    return PeerTask("harbor", folder.parent.name, {}, data), instruction.strip()


def _check(config: dict[str, Any], files: dict[str, Any]) -> None:
    """Raise RowFault for a task that needs what our sandboxes do not have."""
    environment, verifier = (config.get(name) or {} for name in ("environment", "verifier"))
    image = "tests/Dockerfile" if verifier.get("environment_mode") == "separate" else "environment/Dockerfile"
    reasons = {
        "tests/test.sh is missing": "tests/test.sh" not in files,
        f"{image} is missing": image not in files and not environment.get("docker_image"),
        "it has several steps": config.get("steps"),
        "it starts several containers": any(path.startswith("environment/docker-compose") for path in files),
        "it is for Windows": environment.get("os") == "windows",
        "it needs MCP servers": environment.get("mcp_servers"),
        "it needs a GPU": environment.get("gpus"),
        "its verifier needs a key of this machine": "${" in json.dumps(verifier.get("env") or {}),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        raise RowFault(f"{reason}; play it with Harbor itself")
