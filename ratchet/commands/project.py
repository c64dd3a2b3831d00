"""The command that makes a project of one's own: init."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from ratchet.commands import AsJson
from ratchet.render.terminal import print_json, print_note, print_text


def init(
    folder: Annotated[Path, Argument(help="The project's folder.")],
    as_json: AsJson = False,
) -> None:
    """Make a project of your own: scale, recipe, data build, tasksets, an environment, a test, in a git repository.

    Nothing that exists is overwritten. Example: `ratchet init my && cd my && ratchet night`
    """
    from ratchet.components.operations.new_project import new_project

    files = new_project(folder)
    if as_json:
        print_json({"project": str(folder), "files": files})
        return
    print_text(f"{folder}: {len(files)} files; begin with {folder / 'README.md'} and {folder / 'scales/smoke.yaml'}")
    print_note(f"next: cd {folder}; `ratchet night` runs a night in it")
