"""A package as released: its source distribution as files, and a *test runner* archive with pytest and its dependencies.

pip downloads both. As with `pip install` of a source distribution, its build backend runs on this machine to tell its
metadata; everything else of the package runs in sandboxes only.
"""

import configparser
import gzip
import hashlib
import io
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable
from email.parser import HeaderParser
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.core.files import file_sha256, hold_lock, temporary_folder
from ratchet.components.environments.git_mirror import EXECUTABLE_MODE, FILE_MODE, GitFile
from ratchet.components.environments.repository_tasks import tar_archive

# Later versions need Pygments: five times the size in every workspace.
PYTEST = "pytest>=8,<8.4"
RUNNER_FILE = ".test-runner.tar.gz"
RUNNER_FOLDER = "${TMPDIR:-/tmp}/test-runner"
# Outside of the workspace and before an answer is applied: an answer cannot change the runner that grades it.
SETUP_COMMAND = f'python3 -m tarfile -e {RUNNER_FILE} "{RUNNER_FOLDER}"'
MAX_BYTES = 16 << 20
PIP_SECONDS = 600.0
TEST_FILE = re.compile(r"(test_.*|.*_test|tests)\.py")
REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*\s*(\[[\w\s,.-]*\])?\s*(\(?[<>=!~][^@:/;]*)?(;.*)?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w.-]+)['\"]")
_TEST_GROUPS = ("test", "tests", "testing", "dev")
_TEST_REQUIREMENTS = re.compile(r"(.*/)?((tests?|dev)[-_./]requirements|requirements[-_./](tests?|dev)\w*)\.(txt|in)")
# Programs around tests, not in them: they measure, check style, build, or change the tests' order.
_TEST_TOOL = re.compile(
    r"pytest|(pytest[-_])?(cov|xdist|randomly|random-order|sugar|flake8|mypy|ruff|black|isort|pylint|pycodestyle|pydocstyle|codspeed)"
    r"|(coverage|flake8|mypy|sphinx|tox|types)\b.*|nox|pre-commit|twine|build|wheel|setuptools"
)
_NO_SOURCE = {"tests", "test", "testing", "docs", "doc", "examples", "example", "benchmarks", "benchmark", "tools"}
_BUILD_OUTPUT = {"build", "dist", ".git", "__pycache__", ".pytest_cache", ".tox", ".eggs"}
# pip's records of an installation: they name its options and the scripts, whose first line is a path of this machine.
_INSTALLATION = re.compile(r"bin/.*|.*\.pyc|[^/]+\.dist-info/(RECORD|REQUESTED|INSTALLER|direct_url\.json)")
_COPIES = (".pyc", ".pyo", ".whl", ".zip", ".egg", ".pyz", ".orig", ".rej", ".patch", ".diff", ".so")


class ReleasedPackage(msgspec.Struct, frozen=True):
    """A release. `sdist`: the archive's name; `files`: its content by path; `source_folder`: `src` or `.`, on Python's path.

    `test_requirements`: what it declares for its tests beyond `requirements`, in extras, groups, tox.ini or requirement files.
    """

    name: str
    version: str
    sdist: str
    sha256: str
    files: dict[str, GitFile]
    source_folder: str
    requirements: tuple[str, ...]
    test_requirements: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of test runs. In CI, Hypothesis draws the same examples each time, without deadlines."""
        return {"CI": "true"} if any(line.startswith("hypothesis") for line in self.requirements) else {}

    def test_command(self, tests: Iterable[str]) -> str:
        """Return the command that runs tests, for a shell in the workspace: shown to agents, and run by the grading."""
        variables = "".join(f"{name}={value} " for name, value in self.environment.items())
        path = f'{variables}PYTHONPATH="{self.source_folder}:{RUNNER_FOLDER}:$PYTHONPATH"'
        return f"{path} python3 -m pytest -q -c /dev/null --rootdir . -p no:cacheprovider {shlex.join(tests)}"

    @property
    def test_files(self) -> list[str]:
        """Paths of the files with tests."""
        return sorted(path for path in self.files if TEST_FILE.fullmatch(PurePosixPath(path).name))

    @property
    def modules(self) -> dict[str, bytes]:
        """The package's own source files, by path, without tests, documents and scripts around it."""
        prefix = "" if self.source_folder == "." else f"{self.source_folder}/"
        return {
            path: file.data
            for path, file in sorted(self.files.items())
            if path.endswith(".py")
            and path.startswith(prefix)
            and not _NO_SOURCE & set(PurePosixPath(path).parts[:-1])
            and not TEST_FILE.fullmatch(PurePosixPath(path).name)
            and PurePosixPath(path).name not in ("conftest.py", "setup.py", "noxfile.py", "conf.py")
        }


def run_pip(*arguments: str) -> None:
    """Run pip of this Python. Raises InfrastructureError with pip's last error."""
    command = [sys.executable, "-m", "pip", *arguments]
    try:
        result = subprocess.run(command, capture_output=True, timeout=PIP_SECONDS, check=False, text=True)
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"pip {arguments[0]} took longer than {PIP_SECONDS:g} s; try again") from error
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or [result.stderr.strip()]
        raise InfrastructureError(f"pip {arguments[0]} {arguments[-1]}: {errors[-1][:300]}; check name and network")


def fetch_sdist(requirement: str, folder: Path) -> Path:
    """Return the path of a source distribution in `folder`: a copy if `requirement` is a file, else downloaded."""
    if requirement.endswith(".tar.gz"):
        if not Path(requirement).is_file():
            raise DataError(f"{requirement} is no file; give a source distribution or the name of a package")
        copy = folder / Path(requirement).name
        copy.write_bytes(Path(requirement).read_bytes())
        return copy
    with temporary_folder("sdist", folder) as new:
        run_pip("download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", new, requirement)
        downloaded = next(iter(Path(new).iterdir()))
        if not downloaded.name.endswith(".tar.gz"):
            raise DataError(f"{downloaded.name} is no .tar.gz; leave {requirement} out")
        return downloaded.replace(folder / downloaded.name)


def read_sdist(sdist: Path) -> ReleasedPackage:
    """Read a source distribution without unpacking it on disk. Raises DataError."""
    try:
        files, metadata_files = _read_members(sdist)
    except (OSError, tarfile.TarError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{sdist} cannot be read as a source distribution: {error}; download it again") from error
    metadata = HeaderParser().parsestr(metadata_files["PKG-INFO"])
    name, version = metadata["Name"], metadata["Version"]
    if not name or not version or not re.fullmatch(r"[\w.-]+", name) or not re.fullmatch(r"[\w.!+-]+", version):
        raise DataError(f"{sdist}: PKG-INFO names no package and version; it is no source distribution")
    with temporary_folder("metadata") as folder:
        for file, text in metadata_files.items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        # Those of PKG-INFO or, where older tools left them out there, of setuptools' requires.txt.
        declared = [line.strip() for line in Distribution.at(folder).requires or ()]
    needed = tuple(line for line in declared if not _EXTRA.search(line))
    # An address or an option of pip would be opened on this machine.
    if unusual := [line for line in needed if not REQUIREMENT.fullmatch(line)]:
        raise DataError(f"{sdist.name}: its requirement {unusual[0]!r} is no name with versions; leave it out")
    has_src = any(path.startswith("src/") and path.endswith(".py") for path in files)
    normal = re.sub(r"[-_.]+", "-", name).lower()
    return ReleasedPackage(normal, version, sdist.name, file_sha256(sdist), files, "src" if has_src else ".", needed,
                           _test_requirements(declared, files))  # fmt: skip


def _test_requirements(declared: list[str], files: dict[str, GitFile]) -> tuple[str, ...]:
    # A marker that always holds takes the place of the extra's.
    lines = [_EXTRA.sub('python_version > "3"', line) for line in declared
             if (extra := _EXTRA.search(line)) and extra[1].lower() in _TEST_GROUPS]  # fmt: skip
    texts = {path: file.data.decode("utf-8", "replace") for path, file in files.items()
             if path in ("pyproject.toml", "tox.ini") or _TEST_REQUIREMENTS.fullmatch(path)}  # fmt: skip
    try:
        groups: Any = tomllib.loads(texts.pop("pyproject.toml", "")).get("dependency-groups", {})
        lines += [line for name in _TEST_GROUPS for line in groups.get(name, ()) if isinstance(line, str)]
        tox = configparser.RawConfigParser(strict=False)
        tox.read_string(texts.pop("tox.ini", ""))
        lines += tox.get("testenv", "deps", fallback="").splitlines()
    except (tomllib.TOMLDecodeError, configparser.Error, AttributeError):
        pass  # not for us to judge: the tests then run without
    lines += [line.partition(" #")[0] for text in texts.values() for line in text.splitlines()]
    named = {line.strip() for line in lines if REQUIREMENT.fullmatch(line.strip())}
    tools = {line for line in named if _TEST_TOOL.fullmatch(re.split(r"[^\w.-]", line)[0].lower())}
    return tuple(sorted(named - tools))


def _read_members(sdist: Path) -> tuple[dict[str, GitFile], dict[str, str]]:
    files: dict[str, GitFile] = {}
    metadata = {"PKG-INFO": ""}
    size = 0
    with tarfile.open(sdist, "r:gz") as tar:
        for entry in tar:
            parts = PurePosixPath(entry.name).parts[1:]
            size += entry.size
            if size > MAX_BYTES:
                raise DataError(f"{sdist} holds more than {MAX_BYTES >> 20} MiB; leave it out")
            if not entry.isreg() or not parts or ".." in parts:
                continue
            content = tar.extractfile(entry)
            data = content.read() if content else b""
            if re.fullmatch(r"PKG-INFO|(src/)?[^/]+\.egg-info/requires\.txt", "/".join(parts)):
                metadata[parts[-1]] = data.decode()
            if _BUILD_OUTPUT & set(parts) or parts[-1].endswith(_COPIES) or ".egg-info" in "/".join(parts):
                continue
            files["/".join(parts)] = GitFile(EXECUTABLE_MODE if entry.mode & 0o100 else FILE_MODE, data)
    return files, metadata


def build_runner(package: ReleasedPackage, cache: Path) -> tuple[bytes, tuple[str, ...]]:
    """Return a compressed archive of pytest and the package's dependencies, all pure Python, without the package itself.

    The second value is what was installed, each as NAME==VERSION: as requirements, they give the same archive.
    Raises DataError if a dependency is the package, needs a compiler, or does not exist.
    """
    requirements = [PYTEST, *sorted(package.requirements)]
    folder = cache / hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:16]
    with hold_lock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            with temporary_folder("runner", cache) as new:
                try:
                    install_requirements(requirements, Path(new) / "site")
                except InfrastructureError as error:
                    raise DataError(f"{package.name}: its dependencies cannot be installed: {error}") from error
                (Path(new) / "site").replace(folder)
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    files = {name: path.read_bytes() for name, path in paths.items() if not _INSTALLATION.fullmatch(name)}
    installed = {path.partition(".dist-info")[0].rpartition("-") for path in files if ".dist-info/" in path}
    # In any version: a near copy gives the solution away as well.
    if package.name in {re.sub(r"[-_.]+", "-", name).lower() for name, _, _ in installed}:
        raise DataError(f"{package.name}: a dependency needs the package itself, whose solution it would hold")
    # Programs that ask importlib.metadata for the package's version need a folder of metadata.
    metadata = f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
    files[f"{package.name.replace('-', '_')}-{package.version}.dist-info/METADATA"] = metadata.encode()
    archived = tar_archive({path: GitFile(FILE_MODE, data) for path, data in files.items()})
    buffer = io.BytesIO()
    # gzip.compress writes another header in other versions of Python.
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as file:
        file.write(archived)
    return buffer.getvalue(), tuple(sorted(f"{name}=={version}" for name, _, version in installed))


def install_requirements(requirements: list[str], folder: Path) -> None:
    """Install pure wheels to a folder. Raises InfrastructureError."""
    pure = ("--only-binary", ":all:", "--platform", "any", "--implementation", "py", "--abi", "none")
    run_pip("install", "--quiet", "--no-compile", *pure, "--target", str(folder), *requirements)
