"""A night's commit as a project of its own: there the pointers, the lock and the inputs are in git, so DVC may work with git.

In a clone they are ignored by git and DVC is told to know of none, for a build is to leave the work tree clean. In a night's
commit they are the content: `git checkout night/<id>`, `dvc pull`, `dvc repro` and `dvc metrics diff night/<other>` work there
as in any DVC project.
"""

import re
from pathlib import Path

CONFIG = Path(".dvc/config")
IGNORED = Path(".gitignore")
DATA_IGNORED = Path("data/.gitignore")
KNOWN = ("/dvc.lock", "/build.yaml", "/decisions/", "/baselines/", "/locks/")
"""What a clone ignores and a night's commit holds."""
# Not `*/`: DVC's git takes a pattern that nothing could match for one of the folder itself.
SEALED = ("/rollouts/", "/judgements/", "/labels/", "/uses/")
NO_SCM = re.compile(r"^(\s*no_scm\s*=).*$", re.MULTILINE)


def with_git(root: Path) -> dict[Path, bytes]:
    """The settings of DVC and the ignore files of a clone as they stand in a night's commit; a file that is absent is left out."""
    change = {CONFIG: _config, IGNORED: _ignored, DATA_IGNORED: _ignored}
    present = {path: own for path, own in change.items() if (root / path).is_file()}
    return {path: own((root / path).read_text(encoding="utf-8")).encode() for path, own in present.items()}


def _config(text: str) -> str:
    return NO_SCM.sub(r"\1 false", text)


def _ignored(text: str) -> str:
    """The folders of sealed nights are ignored, and not the pointers beside them; what is small is in git."""
    lines = [line for line in text.splitlines() if line not in KNOWN]
    return "".join(f"{line}?*/\n" if line in SEALED else f"{line}\n" for line in lines)
