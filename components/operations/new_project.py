"""Make a project of one's own beside an installed Ratchet: the files of `project_template`, a taskset, a model and git."""

import contextlib
import shutil
from pathlib import Path

import msgspec

from ratchet.components.core import ConfigurationError, Role
from ratchet.components.datasets.versioning.git_plumbing import git
from ratchet.components.datasets.versioning.night_commits import git_identity
from ratchet.components.datasets.versioning.sealed_nights import ensure_build_file
from ratchet.components.nights.night_sampling import shuffle_tasks
from ratchet.components.tasksets import TasksetHead, load_taskset
from ratchet.components.tasksets.plain_rows_import import ROWS_FILE, import_plain_rows
from ratchet.components.tasksets.taskset_files import BUNDLED_FOLDER, write_taskset

TEMPLATE = Path(__file__).with_name("project_template")
FILES = {
    "README.md": "README.md",
    "greenhouse.py": "greenhouse.py",
    "tests/test_project.py": "tests/test_project.py",
    "scales/smoke.yaml": "smoke.yaml",
    "recipes/own.yaml": "own.yaml",
    "params.yaml": "params.yaml",
    "prefect.yaml": "prefect.yaml",
    "dvc.yaml": "pipeline.yaml",
    ".gitignore": "gitignore",
    ".dvcignore": "dvcignore",
    ".dvc/config": "dvc_config",
    ".dvc/.gitignore": "dvc_gitignore",
    "data/.gitignore": "data_gitignore",
    "data/tasksets/greenhouse/rows.yaml": "greenhouse_rows.yaml",
}
"""File of a project -> file of the template. Files that begin with a dot have other names there: git and DVC would read
them. Those that a project shares with the repository are links."""
MODEL = Path("data/models/programs-base")
STARTER, STARTER_SOURCE = "starter", "programs"
STARTER_TASKS = {Role.TRAIN: 600, Role.PROMOTE: 120, Role.AUDIT: 60}
GREENHOUSE, GREENHOUSE_TASKS = "greenhouse:mine/greenhouse", Path("data/tasksets/greenhouse")
PIPELINE_CHANGES = (
    (
        "# The clone's own Python, also where its environment is not activated; `ratchet` puts its own first on the path "
        'elsewhere.\n- python: PATH="$PWD/.venv/bin:$PATH" python\n',
        "# `ratchet` puts its own Python first on the path.\n- python: python\n",
    ),
    (
        """    deps: [components/core, components/datasets, components/interop, components/redaction, components/rewards,
      components/statistics, components/trajectories]
""",
        "    always_changed: true    # the code is installed, and no file of this project changes with it\n",
    ),
)
"""Passages of the repository's `dvc.yaml`, and what a project has instead."""


def new_project(folder: Path) -> list[str]:
    """Write a project to `folder` and return the paths of its files, sorted. A git repository is made, with a first
    commit, where `folder` is not in one.

    Raises ConfigurationError, before anything is written, for a folder in which one of the files exists, or without git.
    """
    targets = (*FILES, str(MODEL), f"data/tasksets/{STARTER}")
    if taken := next((name for name in targets if (folder / name).exists()), None):
        raise ConfigurationError(f"{folder / taken} exists, and nothing is overwritten; give a new folder")
    if shutil.which("git") is None:
        raise ConfigurationError("git is not installed, and nights are stored in its tags; install git")
    for target, source in FILES.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_bytes((TEMPLATE / source).read_bytes())
    pipeline = (folder / "dvc.yaml").read_text(encoding="utf-8")
    for passage, replacement in PIPELINE_CHANGES:
        assert passage in pipeline, passage
        pipeline = pipeline.replace(passage, replacement)
    (folder / "dvc.yaml").write_text(pipeline, encoding="utf-8")
    shutil.copytree(BUNDLED_FOLDER.parent / "models" / MODEL.name, folder / MODEL)
    _write_starter(folder / "data/tasksets" / STARTER)
    with contextlib.chdir(folder):  # the environment's module is imported from the working directory
        import_plain_rows(GREENHOUSE_TASKS, GREENHOUSE_TASKS / ROWS_FILE, environment=GREENHOUSE)
    ensure_build_file(folder)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    _begin_repository(folder)
    return files


def _write_starter(folder: Path) -> None:
    """Write a taskset of some tasks of STARTER_SOURCE: tasks that the bundled model can learn."""
    source = load_taskset(STARTER_SOURCE)
    tasks = {
        role: [
            msgspec.structs.replace(task, taskset=STARTER)
            for task in shuffle_tasks(source.tasks(role), 0, STARTER)[:count]
        ]
        for role, count in STARTER_TASKS.items()
    }
    description = f"Some tasks of Ratchet's taskset {STARTER_SOURCE}, to begin with."
    head = TasksetHead(STARTER, source.version, source.head.domain, {}, description=description)
    write_taskset(folder, head, tasks, f"# {STARTER}\n\n{description} Replace them by tasks of your own.\n")


def _begin_repository(folder: Path) -> None:
    """Make a git repository with one commit of all files, unless the folder is in one: that one is its owner's to commit."""
    try:
        git("rev-parse", "--git-dir", root=folder)
    except ConfigurationError:
        git("init", "--quiet", "--initial-branch=main", root=folder)
        git("add", "--all", root=folder)
        commit = ("-c", "commit.gpgsign=false", "commit", "--quiet", "--message", "Begin a Ratchet project")
        git(*commit, root=folder, env=git_identity(folder))
