"""A night's commit as a project of its own: there the pointers, the lock and the inputs are in git.

In a clone git ignores them, for a build is to leave the work tree clean; DVC does not see the lines by which it does (see
`data/.gitignore`). In a night's commit they are the content: `git checkout night/<id>`, `dvc pull`, `dvc repro` and
`dvc metrics diff night/<other>` work there as in any DVC project.
"""

from pathlib import Path

IGNORED = Path(".gitignore")
DATA_IGNORED = Path("data/.gitignore")
KNOWN = ("/decisions/", "/baselines/", "/locks/")
"""What a clone ignores and a night's commit holds."""
GIT_ALONE = "\ufeff"
"""A line that begins with a byte order mark is read by git and not by DVC; it ignores what a night's commit holds."""


def with_git(root: Path) -> dict[Path, bytes]:
    """The ignore files of a clone as they stand in a night's commit; a file that is absent is left out."""
    present = [path for path in (IGNORED, DATA_IGNORED) if (root / path).is_file()]
    return {path: _ignored((root / path).read_text(encoding="utf-8")).encode() for path in present}


def _ignored(text: str) -> str:
    """The data is ignored, and neither the pointers nor what is small."""
    lines = [line for line in text.splitlines() if line not in KNOWN and not line.startswith(GIT_ALONE)]
    return "".join(f"{line}\n" for line in lines)
