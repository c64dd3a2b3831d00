"""What the tools of `ratchet mcp` may touch: permission levels, and paths confined to the home and to named folders.

A path is resolved first, links included, and the resolved path is what a tool opens. Reading is allowed below the home
(except its credentials) and the named folders; writing only to new paths below a named folder or `mcp` in the home.

Not covered: another process of the same user that replaces a folder by a link between the check and the use.
"""

import os
import re
from pathlib import Path
from typing import Literal, Self, get_args

import msgspec

from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import private_home

Level = Literal["read", "write", "run"]
"""Permission levels, each of which includes those before it. `run`: sandboxes and models."""
LEVELS: tuple[Level, ...] = get_args(Level)
MAX_ENTRIES = 100_000
"""Maximum files and folders below a folder that a tool reads."""
NAME = re.compile(r"@?\w[\w.+-]*(/\w[\w.+-]*)*")
"""A night, NIGHT/AGENT, dataset row, version, alias, commit or taskset. No `..`, and no dash at the beginning: git would take it
for an option."""


class ToolScope(msgspec.Struct, frozen=True):
    """The permissions of one server. `home`, `roots`: resolved folders; see `of`."""

    level: Level
    home: Path
    roots: tuple[Path, ...]

    @classmethod
    def of(cls, level: Level, roots: list[Path]) -> Self:
        """Return the scope of this home and the folders `roots`. Raises ConfigurationError where one is no folder."""
        for root in roots:
            if not root.is_dir():
                raise ConfigurationError(f"--root {root} is no folder; give an existing one")
        return cls(level, private_home().resolve(), tuple(root.resolve() for root in roots))

    def allows(self, level: Level) -> bool:
        """Return whether tools of a level may be called."""
        return LEVELS.index(level) <= LEVELS.index(self.level)

    def require(self, level: Level, action: str) -> None:
        """Raise ConfigurationError where `action` (a noun phrase) needs a higher level than this."""
        if not self.allows(level):
            raise ConfigurationError(
                f"{action} needs the level '{level}', and this server allows '{self.level}'; start it with --allow {level}"
            )

    def readable(self, text: str) -> Path:
        """Return an existing file or folder that may be read, resolved. Raises ConfigurationError."""
        path = self._resolve(text)
        if not self._is_readable(path):
            raise ConfigurationError(f"{text} is outside the folders that may be read: {self._folders()}")
        if not path.is_file() and not path.is_dir():
            raise ConfigurationError(f"{text} is no file or folder; give an existing one")
        if path.is_dir():
            self._check_folder(path, text)
        return path

    def writable(self, text: str, *, resumed: bool = False) -> Path:
        """Return a new path that may be written, resolved, and create its parent. Raises ConfigurationError.

        `resumed`: a folder that holds an unfinished collection is accepted too.
        """
        path, own = self._resolve(text), self.home / "mcp"
        for root in (own, *self.roots):
            in_home = path.is_relative_to(self.home) and root != own and not root.is_relative_to(self.home)
            if path.is_relative_to(root) and path != root and not in_home:
                break
        else:
            folders = ", ".join(map(str, (*self.roots, own)))
            raise ConfigurationError(f"{text} is outside the folders that may be written: {folders}")
        if any(part.startswith(".") for part in path.relative_to(root).parts):
            raise ConfigurationError(f"{text} is hidden; give a path without names that begin with a dot")
        begun = resumed and path.is_dir() and ((path / "plan.txt").is_file() or not any(path.iterdir()))
        if path.exists() and not begun:
            raise ConfigurationError(f"{text} exists, and nothing is overwritten; give a new path")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def name(self, text: str) -> str:
        """Return a name, or the resolved path of a file or folder that may be read. Raises ConfigurationError."""
        if self._resolve(text).exists():  # functions that take a name try it as a path first
            return str(self.readable(text))
        if not NAME.fullmatch(text):
            raise ConfigurationError(f"{text!r} is no name, and no path that may be read; give one of them")
        return text

    def _resolve(self, text: str) -> Path:
        if "\0" in text:
            raise ConfigurationError("a path holds a null character; give another one")
        try:
            return Path(text).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links
            raise ConfigurationError(f"{text} cannot be resolved: {type(error).__name__}; give another path") from error

    def _is_readable(self, path: Path) -> bool:
        inside = any(path.is_relative_to(root) for root in (self.home, *self.roots))
        return inside and not path.is_relative_to(self._credentials)

    @property
    def _credentials(self) -> Path:
        return (self.home / "credentials").resolve()

    def _folders(self) -> str:
        return f"{', '.join(map(str, (self.home, *self.roots)))}; start the server with --root FOLDER for more"

    def _check_folder(self, folder: Path, text: str) -> None:
        """Raise ConfigurationError where reading all of a folder would leave the scope: by a link, or to credentials."""
        if self._credentials.is_relative_to(folder):
            raise ConfigurationError(f"{text} holds the credentials of the home; name a folder below it")
        entries = 0
        for place, folders, files in os.walk(folder):
            entries += len(folders) + len(files)
            if entries > MAX_ENTRIES:
                raise ConfigurationError(f"{text} holds more than {MAX_ENTRIES:,} files; name a folder below it")
            for name in (*folders, *files):
                entry = Path(place, name)
                if entry.is_symlink() and not self._is_readable(self._resolve(str(entry))):
                    raise ConfigurationError(
                        f"{entry} links to a place that may not be read; remove it, or name other files"
                    )
