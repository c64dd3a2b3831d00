"""What a path says of a file: a test, settings of a test runner, a scratch file, something that starts with Python."""

import posixpath
import re

_TEST = re.compile(
    r"(?:^|/)(?:test_[^/]*\.py|[^/]*_tests?\.(?:py|go|rb|exs|dart|rs|cc|cpp)|tests?\.py|conftest\.py|[^/]*\.(?:test|spec)\.[cm]?[jt]sx?"
    r"|[^/]*(?:Test|Tests|Spec)\.(?:java|kt|cs|scala|swift)|[^/]*_spec\.rb|[^/]*\.bats)$"
)
_TEST_FOLDER = re.compile(r"(?:^|/)(?:tests?|__tests__|testing|specs?)/")
_CODE = re.compile(r"\.(?:py|[cm]?[jt]sx?|go|rb|rs|java|kt|cs|c|cc|cpp|php|swift|scala)$")
_SETTINGS = re.compile(
    r"(?:^|/)(?:\.?pytest\.ini|tox\.ini|setup\.cfg|pyproject\.toml|\.coveragerc|noxfile\.py|package\.json|jest\.config\.\w+"
    r"|vitest\.config\.\w+|\.mocharc[^/]*|karma\.conf\.js|phpunit\.xml[^/]*|Cargo\.toml|build\.gradle(?:\.kts)?|pom\.xml)$"
)
_RUN_SCRIPT = re.compile(
    r"(?:^|/)(?:(?:run[-_]?)?tests?(?:[-_]?run(?:ner)?)?\.(?:sh|bash)|runtests(?:\.py|\.sh)?|Makefile|makefile|GNUmakefile|justfile"
    r"|ci\.sh|check\.sh|grade\.sh|eval\.sh)$|(?:^|/)\.(?:github/workflows|circleci)/[^/]+\.ya?ml$|(?:^|/)\.gitlab-ci\.yml$"
)
_SCRATCH = re.compile(
    r"^(?:/tmp/|/var/tmp/|/dev/shm/|\$TMPDIR/)|(?:^|/)(?:repro|reproduc|scratch|debug|demo|tmp|temp|try|check|verify|play|bench|"
    r"example|explore|probe|poc|sandbox|experiment|quick|manual|validate|edge|sample)[^/]*$",
    re.IGNORECASE,
)


def is_test(path: str) -> bool:
    """A file that a test runner collects or loads, by its name or folder."""
    return _TEST.search(path) is not None or (_TEST_FOLDER.search(path) is not None and _CODE.search(path) is not None)


def is_conftest(path: str) -> bool:
    """A file of pytest's own hooks."""
    return posixpath.basename(path) == "conftest.py"


def is_runner_settings(path: str) -> bool:
    """Settings that a test runner reads."""
    return _SETTINGS.search(path) is not None


def is_run_script(path: str) -> bool:
    """A script that runs tests."""
    return _RUN_SCRIPT.search(path) is not None


def is_scratch(path: str) -> bool:
    """A file for trying things out, by its name or place."""
    return _SCRATCH.search(path) is not None


def is_python(path: str) -> bool:
    """A source of Python."""
    return path.endswith((".py", ".pyw"))


def is_outside(path: str) -> bool:
    """A place that is not in the workspace: absolute, above it, or somebody's home."""
    return path.startswith(("/", "~", "$HOME", "..")) and not path.startswith(("/tmp", "/dev/null", "/workspace"))
