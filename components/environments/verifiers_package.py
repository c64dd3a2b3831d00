"""Write a taskset as an installable `verifiers` package; its classes are in `verifiers_export`."""

import importlib.metadata
import re
import shutil
from pathlib import Path

from ratchet.components.core import ConfigurationError

_PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "Ratchet's taskset {taskset} for verifiers."
requires-python = ">=3.11"
dependencies = ["ratchet>={ratchet}", "verifiers>=0.4,<0.5"]

[tool.setuptools.package-data]
{module} = ["taskset/*"]
"""
_MODULE = '''"""Ratchet's taskset {taskset} for verifiers."""

from pathlib import Path

from ratchet.components.environments.verifiers_export import RatchetTaskset


class ExportedTaskset(RatchetTaskset):
    """The tasks in the folder `taskset`."""

    folder = Path(__file__).parent / "taskset"


__all__ = ["ExportedTaskset"]
'''


def write_package(source: Path, name: str, version: str, folder: Path) -> str:
    """Write an installable package with a copy of the taskset in `source` to the new `folder`; return its name.

    Raises ConfigurationError for a taskset whose name no package can have.
    """
    if not re.fullmatch(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*", name):
        raise ConfigurationError(
            f"no package can be named after the taskset '{name}'; use letters, digits, - and _ in its name"
        )
    package = re.sub(r"[._]", "-", f"ratchet-{name}".lower())
    module = package.replace("-", "_")
    shutil.copytree(source, folder / module / "taskset")
    (folder / module / "__init__.py").write_text(_MODULE.format(taskset=name), encoding="utf-8")
    ratchet = importlib.metadata.version("ratchet")
    project = _PROJECT.format(name=package, version=version, taskset=name, module=module, ratchet=ratchet)
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    return package
