"""A night as a commit: pointers, lock, parameters, inputs and decision, under the tag `night/<id>`.

The commit is made through an index of its own, on top of HEAD. HEAD, the branch, the index and a dirty work tree stay as
they are; the tag alone holds the commit.
"""

import tempfile
from pathlib import Path
from typing import Any

import msgspec

from components.protocol import ConfigurationError, DataError
from components.trajectories.store import write_atomically

from .build_file import BUILD, NAME, read_build
from .git import commit_of, git
from .sealed import pointer_of

TAG = "night/"
DECISIONS = Path("data/decisions")
SOMEBODY = {"NAME": "Ratchet", "EMAIL": "ratchet@localhost"}


def commit_night(night: str, decision: dict[str, Any], message: str, *, root: Path = Path()) -> str:
    """Commit and tag a night; the commit. Doing it again with the same content gives the same commit back.

    Raises ConfigurationError where there is no git repository, or the night is tagged with other content.
    """
    if not NAME.fullmatch(night):
        raise ConfigurationError(f"'{night}' cannot name a night; use letters, digits, '.', '_' and '-'")
    path = root / DECISIONS / f"{night}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.encode(decision, order="sorted")
    write_atomically(path, msgspec.json.format(encoded, indent=2) + b"\n")
    files = _files(night, root)
    head, known = commit_of("HEAD", root), commit_of(f"refs/tags/{TAG}{night}", root)
    if known is not None:
        return _same(night, known, files, root)
    tree = _tree(files, head, root)
    parents = ["-p", head] if head else []
    text = f"{message}\n\n{_trailer(head, root)}"
    commit = git("commit-tree", tree, *parents, root=root, env=_identity(root), data=text.encode())
    git("update-ref", f"refs/tags/{TAG}{night}", commit, "", root=root)
    return commit


def _files(night: str, root: Path) -> list[Path]:
    """What a night's commit holds. Raises DataError where one of them is missing."""
    nights = read_build(root).nights
    pointers = [pointer_of(each) for each in dict.fromkeys([*nights, night])]
    own = pointer_of(night)
    files = [each for each in pointers if each != own or (root / own).is_file() or night in nights]
    files += [Path("dvc.yaml"), Path("dvc.lock"), Path("params.yaml"), BUILD, DECISIONS / f"{night}.json"]
    for each in files:
        if not (root / each).is_file():
            raise DataError(f"{each} is absent: build before the night is committed (`ratchet build`)")
    return files


def _tree(files: list[Path], head: str | None, root: Path) -> str:
    """The tree of HEAD with those files as they stand in the work tree."""
    prefix = git("rev-parse", "--show-prefix", root=root)
    with tempfile.TemporaryDirectory() as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        git("read-tree", head or "--empty", root=root, env=env)
        for each in files:
            git(
                "update-index", "--add", "--cacheinfo", f"100644,{_blob(each, root)},{prefix}{each}", root=root, env=env
            )
        return git("write-tree", root=root, env=env)


def _blob(path: Path, root: Path) -> str:
    return git("hash-object", "-w", "--no-filters", "--", str(path), root=root)


def _same(night: str, commit: str, files: list[Path], root: Path) -> str:
    """The commit that the night has, if these are its files."""
    prefix = git("rev-parse", "--show-prefix", root=root)
    for each in files:
        if git("rev-parse", "--quiet", f"{commit}:{prefix}{each}", root=root) != _blob(each, root):
            raise ConfigurationError(
                f"night {night} is tagged already with another {each}; a night is committed once: choose another name"
            )
    return commit


def _trailer(head: str | None, root: Path) -> str:
    """Whether the code that ran is that of the parent commit."""
    if head is None:
        return "Code: no commit\n"
    changed = git("status", "--porcelain", "--untracked-files=no", root=root).splitlines()
    return f"Code: {head}{f' with {len(changed)} changed files' if changed else ''}\n"


def _identity(root: Path) -> dict[str, str]:
    """Author and committer for a machine that has none."""
    try:
        git("var", "GIT_COMMITTER_IDENT", root=root)
    except ConfigurationError:
        return {f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in SOMEBODY.items()}
    return {}


def list_nights(root: Path = Path()) -> dict[str, str]:
    """Every tagged night with its commit, by name."""
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", f"refs/tags/{TAG}", root=root).splitlines()
    pairs = (line.split() for line in lines)
    return {name.removeprefix(f"refs/tags/{TAG}"): commit for name, commit in pairs}
