"""Backup of a home and of the data of its clone as one archive, and its restore in another folder.

The archive is a tar of `objects/<sha256>`, each content once, and at its end `manifest.json`: every file with its hash, and
the folders that it came from. A restore verifies each hash, replaces those folders in the files and in MLflow's database
that name them, and gives the home its name last: until then a killed restore has restored nothing.
"""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import quote

import msgspec

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.files import file_sha256, open_atomically, temporary_folder
from ratchet.components.core.home import home, without_password
from ratchet.components.datasets.versioning import dvc_client
from ratchet.components.datasets.versioning.git_plumbing import git
from ratchet.components.nights.night_state import hold_night_lock
from ratchet.components.tracking.mlflow_client import artifact_root, replace_in_database, tracking_uri

Area = Literal["home", "clone", "git"]
CREDENTIALS = Path("credentials")
LEFT_OUT = (Path("run"), Path("logs"), Path("prefect"))
"""Folders of the home that belong to running processes, servers among them, and that no night reads."""
BUSY_ADVICE = "end what works in this clone and repeat the command"
MLFLOW_DATABASE = "mlflow.db"
MANIFEST, SCHEMA_VERSION = "manifest.json", 1
OBJECT = re.compile(r"objects/([0-9a-f]{64})")
SEALED = {"data", "checkpoint", "adapter", "candidates"}
"""Folders of nights and comparisons whose files have recorded hashes."""
NIGHT_TAGS = "refs/tags/night/*"


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file: its path within the area, SHA-256, size in bytes and mode."""

    area: Area
    path: str
    sha256: str
    size: int
    mode: int


class ArchiveManifest(msgspec.Struct, frozen=True):
    """The last file of an archive. `home` and `clone` are the absolute folders that were backed up."""

    created: str
    home: str
    clone: str
    files: tuple[ArchivedFile, ...]
    schema_version: int = SCHEMA_VERSION


def back_up(archive: Path, *, credentials: bool = False) -> ArchiveManifest:
    """Write the home and the clone's data to `archive`, whole or not at all; return its manifest. No night runs meanwhile.
    `credentials`: with those of the home.

    Raises ConfigurationError where a night runs or there is no home, InfrastructureError where a file changes meanwhile.
    """
    place = archive.absolute()
    if place.is_relative_to(home()) or place.is_relative_to(Path("data").absolute()):
        raise ConfigurationError(f"{archive} lies in what is backed up; give another folder")
    if not (home() / "nights").is_dir():
        raise ConfigurationError(f"{home()} holds no night; there is nothing to back up")
    with contextlib.ExitStack() as stack:
        for kind in ("night", "comparison"):
            stack.enter_context(hold_night_lock(kind))("(a backup)")
        scratch = Path(stack.enter_context(temporary_folder("backup", home() / "run")))
        sources = [*_home_files(scratch, credentials), *_clone_files(), *_bundled_tags(scratch)]
        with open_atomically(archive) as file, tarfile.open(fileobj=file, mode="w", dereference=True) as tar:
            now, files = datetime.now(UTC).isoformat(timespec="seconds"), tuple(_archive(sources, tar))
            manifest = ArchiveManifest(now, str(home()), str(Path.cwd()), files)
            (scratch / MANIFEST).write_bytes(msgspec.json.encode(manifest))
            tar.add(scratch / MANIFEST, MANIFEST)
    return manifest


_Source = tuple[Area, Path, Path]
"""Area, path within it, and the file that holds the content."""


def _archive(sources: list[_Source], tar: tarfile.TarFile) -> Iterator[ArchivedFile]:
    """Add the files to the archive, equal contents once, and yield their entries."""
    stored = set()
    try:
        for area, path, source in sources:
            status, sha256 = source.stat(), file_sha256(source)
            if sha256 not in stored:
                stored.add(sha256)
                tar.add(source, f"objects/{sha256}")
            if (now := source.stat()).st_size != status.st_size or now.st_mtime_ns != status.st_mtime_ns:
                raise InfrastructureError(f"{source} was changed meanwhile; {BUSY_ADVICE}")
            yield ArchivedFile(area, path.as_posix(), sha256, status.st_size, status.st_mode & 0o777)
    except FileNotFoundError as error:
        raise InfrastructureError(f"{error.filename} was removed meanwhile; {BUSY_ADVICE}") from error


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, sorted, through links to other folders; without temporary files."""
    for place, folders, names in os.walk(folder, followlinks=True):
        if Path(place).is_symlink() and os.path.realpath(place) in map(os.path.realpath, Path(place).parents):
            folders.clear()  # a link to a folder above
            continue
        folders.sort()
        yield from (path for name in sorted(names) if (path := Path(place, name)).is_file() and path.suffix != ".tmp")


def _home_files(scratch: Path, credentials: bool) -> Iterator[_Source]:
    left_out = LEFT_OUT if credentials else (*LEFT_OUT, CREDENTIALS)
    for path in _files(home()):
        relative = path.relative_to(home())
        if relative.parts[0].startswith(MLFLOW_DATABASE) or any(relative.is_relative_to(name) for name in left_out):
            continue
        yield "home", relative, path
    if (home() / MLFLOW_DATABASE).is_file():
        # By SQLite itself: a copy of the file would lack what its journal holds, and a server may be writing.
        copy = scratch / MLFLOW_DATABASE
        with (
            contextlib.closing(sqlite3.connect(home() / MLFLOW_DATABASE)) as database,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            database.backup(target)
        copy.chmod(0o600)
        yield "home", Path(MLFLOW_DATABASE), copy


def _committed_data() -> set[str]:
    """Return the paths below `data` that stand as they were committed."""
    tracked = git("ls-files", "-z", "--", "data", root=Path()).split("\0")
    changed = git("diff", "--name-only", "--relative", "-z", "HEAD", "--", "data", root=Path()).split("\0")
    return set(tracked) - set(changed)


def _clone_files() -> Iterator[_Source]:
    """Yield what nights wrote into the clone: data that no commit of the branch holds, the lock, and DVC's cache."""
    committed = _committed_data()
    for path in (*_files(Path("data")), Path("dvc.lock"), *_files(Path(".dvc/cache"))):
        if path.as_posix() not in committed and path.is_file():
            yield "clone", path, path


def _bundled_tags(scratch: Path) -> Iterator[_Source]:
    """Yield a git bundle of the commits of all nights; nothing where no night has published."""
    if git("for-each-ref", "--count=1", NIGHT_TAGS, root=Path()):
        bundle = scratch / "nights.bundle"
        git("bundle", "create", "--quiet", str(bundle), f"--glob={NIGHT_TAGS}", root=Path())
        yield "git", Path(bundle.name), bundle


def remote_places() -> list[str]:
    """Return what the nights keep elsewhere, and no backup holds: an MLflow server, artifacts, a remote of the data."""
    places = []
    if (tracking := tracking_uri()) != f"sqlite:///{home() / MLFLOW_DATABASE}":
        places.append(f"MLflow's records at {without_password(tracking)}")
    root = artifact_root()
    if root is not None and not (root + "/").startswith(f"{home().as_uri()}/"):
        places.append(f"artifacts and checkpoints at {root}")
    with contextlib.suppress(ConfigurationError):  # there is no remote
        remote = dvc_client.remote_override() or dvc_client.remote_url(Path())
        if "://" in remote or not Path(remote).resolve().is_relative_to(home().resolve()):
            places.append(f"the data's remote at {without_password(remote)}")
    return places


def restore(archive: Path) -> ArchiveManifest:
    """Restore an archive into this clone and its home, which must be empty; return the manifest.

    Raises ConfigurationError for a home that is not empty or a file of the clone that differs, DataError for a damaged
    archive. Before an error of the archive nothing is written to the clone.
    """
    if home().is_dir() and any(home().iterdir()):
        advice = "restore into a fresh clone, or set RATCHET_HOME to a new folder"
        raise ConfigurationError(f"{home()} is not empty; {advice}")
    if home().is_symlink() or home().is_mount():
        raise ConfigurationError(f"{home()} is a link or a mount; set RATCHET_HOME to a new folder on that disk")
    staging = home().with_name(f".{home().name}.restore.tmp")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        manifest = _extract(archive, staging)
        replace = _folder_replacement(manifest)
        contents = staging / "objects"
        for entry in manifest.files:
            if entry.area == "home":
                target = _place(contents, entry, staging / "home")
                if _names_folders(Path(entry.path)):
                    text = target.read_bytes().decode("utf-8", "surrogateescape")
                    target.write_bytes(replace(text).encode("utf-8", "surrogateescape"))
        if (database := staging / "home" / MLFLOW_DATABASE).is_file():
            replace_in_database(database, replace)
        _restore_clone([entry for entry in manifest.files if entry.area == "clone"], contents)
        for entry in manifest.files:
            if entry.area == "git":
                git("fetch", "--quiet", str(contents / entry.sha256), f"{NIGHT_TAGS}:{NIGHT_TAGS}", root=Path())
        (staging / "home").chmod(0o700)
        (staging / "home").replace(home())
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _extract(archive: Path, staging: Path) -> ArchiveManifest:
    """Write the contents to `staging/objects`, verified, and return the manifest; every content that it names is there."""
    objects = staging / "objects"
    objects.mkdir(parents=True)
    manifest, sizes = None, dict[str, int]()
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                match = OBJECT.fullmatch(member.name)
                if content is None or (match is None and member.name != MANIFEST):
                    advice = "give a file of `ratchet backup`"
                    raise DataError(f"{archive} holds {member.name!r}, which is of no backup; {advice}")
                if match is None:
                    manifest = msgspec.json.decode(content.read(), type=ArchiveManifest)
                    continue
                with (objects / match[1]).open("wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                if file_sha256(objects / match[1]) != match[1]:
                    raise DataError(f"{archive} is damaged: {match[1][:12]} has another hash; use another copy")
                sizes[match[1]] = member.size
    except (tarfile.TarError, EOFError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{archive} cannot be read as a backup: {error}; use another copy") from error
    except FileNotFoundError as error:
        raise ConfigurationError(f"{archive} does not exist; check the path") from error
    if manifest is None:
        raise DataError(f"{archive} is cut short: it has no {MANIFEST}; use another copy")
    if manifest.schema_version > SCHEMA_VERSION:
        raise DataError(f"{archive} was made by a newer Ratchet; upgrade")
    for entry in manifest.files:
        path = PurePosixPath(entry.path)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise DataError(
                f"{archive} names the file {entry.path!r}, which is not within the {entry.area}; do not use it"
            )
        if sizes.get(entry.sha256) != entry.size:
            raise DataError(f"{archive} is damaged: the content of {entry.path} is missing; use another copy")
    return manifest


def _names_folders(path: Path) -> bool:
    """Return whether a file of the home is state that names folders, and no content whose hash is recorded."""
    state = path.parts[0] in ("nights", "comparisons") and path.suffix in (".json", ".yaml")
    return path.name == "config.local" or (state and SEALED.isdisjoint(path.parts[1:-1]))


def _place(contents: Path, entry: ArchivedFile, folder: Path) -> Path:
    """Write a file below a folder, whole or not at all; return its path."""
    target = folder / entry.path
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.restore.tmp")
    shutil.copyfile(contents / entry.sha256, temporary)
    temporary.chmod(entry.mode)
    return temporary.replace(target)


def _restore_clone(files: list[ArchivedFile], contents: Path) -> None:
    """Write the clone's files. Raises ConfigurationError, before anything is written, where another file stands there."""
    committed = _committed_data()  # git can bring it back
    for entry in files:
        target = Path(entry.path)
        same = not target.exists() or (target.is_file() and file_sha256(target) == entry.sha256)
        if not same and entry.path not in committed:
            raise ConfigurationError(f"{target} exists and differs from the backup; restore into a fresh clone")
    for entry in files:
        _place(contents, entry, Path())


def _folder_replacement(manifest: ArchiveManifest) -> Callable[[str], str]:
    """Return a function that replaces the old folders by the new ones in a text, as paths, in URIs and in JSON strings."""
    folders: dict[str, str] = {}
    for old, new in ((manifest.home, str(home())), (manifest.clone, str(Path.cwd()))):
        folders |= {json.dumps(old)[1:-1]: json.dumps(new)[1:-1]}
        folders |= {old: new, f"file://{quote(old)}": f"file://{quote(new)}"}
    # In one pass, the longest first: a new path may hold an old one, and the home lies in the clone.
    names = "|".join(re.escape(old) for old in sorted(folders, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.-])({names})(?![\w.-])")
    return lambda text: pattern.sub(lambda match: folders[match[1]], text)
