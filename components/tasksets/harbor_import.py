"""Read Harbor task folders (task.toml, instruction.md, environment/, tests/) as tasks, which HarborLayout plays."""

import json
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ratchet.components.core import ConfigurationError
from ratchet.components.environments.harbor_task import encode_file, is_separate
from ratchet.components.environments.peer_task import PeerTask

from .row_import import RefusedRow, RowFault

MAX_FOLDER_BYTES = 16 << 20
TEXTS = ("task.toml", "instruction.md")
PARTS = ("environment", "tests", "solution")
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class _Image(msgspec.Struct):
    workdir: str | None = None
    env: dict[str, str] = {}
    docker_image: str | None = None
    build_timeout_sec: Seconds | None = None
    os: str = "linux"
    mcp_servers: list[Any] = []
    gpus: int | None = None


class _Verifier(msgspec.Struct):
    environment_mode: str | None = None
    timeout_sec: Seconds | None = None
    env: dict[str, str] = {}
    environment: _Image | None = None
    collect: list[Any] = []


class _Agent(msgspec.Struct):
    user: str | int | None = None


class _Solution(msgspec.Struct):
    env: dict[str, str] = {}


class _Artifact(msgspec.Struct):
    source: str


class _Config(msgspec.Struct):
    """The settings of a task.toml that HarborLayout reads, and those that it cannot follow."""

    environment: _Image = msgspec.field(default_factory=_Image)
    verifier: _Verifier = msgspec.field(default_factory=_Verifier)
    agent: _Agent = msgspec.field(default_factory=_Agent)
    solution: _Solution = msgspec.field(default_factory=_Solution)
    artifacts: list[str | _Artifact] = []
    steps: list[Any] = []


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
        # Links first: one may lead out of the folder, and a part that is one would be searched.
        entries = [folder / name for name in (*TEXTS, *PARTS)]
        if not any(path.is_symlink() for path in entries):
            entries += [path for part in PARTS for path in sorted((folder / part).rglob("*"))]
        for path in entries:
            name = path.relative_to(folder.parent).as_posix()
            if not name.isprintable():
                raise RowFault(f"{name!r} has characters that cannot be printed; rename it")
            if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
                raise RowFault(f"{path.relative_to(folder)} is no regular file")
        paths = [path for path in entries if path.is_file()]
        if sum(path.stat().st_size for path in paths) > MAX_FOLDER_BYTES:
            raise RowFault(f"its files hold more than {MAX_FOLDER_BYTES >> 20} MiB")
        # A date of TOML becomes a text.
        config = json.loads(json.dumps(tomllib.loads((folder / "task.toml").read_text("utf-8")), default=str))
        instruction = (folder / "instruction.md").read_text("utf-8")
        texts = [folder / name for name in TEXTS]
        files = {str(path.relative_to(folder)): encode_file(path.read_bytes()) for path in paths if path not in texts}
        _check(msgspec.convert(config, _Config), files)
    except (OSError, ValueError) as error:  # with those of msgspec
        raise RowFault(f"it cannot be read: {' '.join(str(error).split())[:200]}") from error
    data = {"name": folder.name, "instruction": instruction, "config": config, "files": files}
    return PeerTask("harbor", folder.parent.name, {}, data), instruction.strip()


def _check(config: _Config, files: dict[str, Any]) -> None:
    """Raise RowFault for a task that needs what our sandboxes do not have."""
    environment, verifier = config.environment, config.verifier
    images = {"environment/Dockerfile": environment}
    if is_separate(verifier.environment_mode, verifier.environment):
        images["tests/Dockerfile"] = verifier.environment or _Image()
    missing = [name for name, image in images.items() if name not in files and not image.docker_image]
    reasons = {
        "tests/test.sh is missing": "tests/test.sh" not in files,
        f"{' and '.join(missing)} is missing": missing,
        "it has several steps": config.steps,
        "it starts several containers": any(path.startswith("environment/docker-compose") for path in files),
        "it is for Windows": environment.os.lower() == "windows",
        "it needs MCP servers": environment.mcp_servers,
        "it needs a GPU": environment.gpus,
        "it collects artifacts by commands": verifier.collect,
        "its verifier needs a key of this machine": "${" in json.dumps(verifier.env),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        raise RowFault(f"{reason}; play it with Harbor itself")
