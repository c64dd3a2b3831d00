"""Commands on a project of one's own: init, publish."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.render.terminal import print_json, print_note, print_text

if TYPE_CHECKING:
    from ratchet.components.operations.hub_publishing import Publication


def init(folder: Annotated[Path, Argument(help="The project's folder.")], as_json: AsJson = False) -> None:
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


publish = typer.Typer(no_args_is_help=True, help="Publish on the Hugging Face Hub; HF_TOKEN holds the token.")

Repository = Annotated[str, Option("--to", help="The repository, ORG/NAME; it is made where it is absent.")]
Public = Annotated[bool, Option("--public", help="A new repository may be read by everybody; default: private.")]


@publish.command("dataset")
def publish_dataset(
    dataset: Annotated[str, Argument(help="sft, dpo, grpo, ...")],
    to: Repository,
    at: Annotated[
        str | None, Option(help="A night, a tag, a commit, the hash of a lock or a folder; default: the current data.")
    ] = None,
    public: Public = False,
    as_json: AsJson = False,
) -> None:
    """Publish a dataset with its card, manifest and lineage. A row that holds a credential stops it, before anything is sent.

    Example: `ratchet publish dataset sft --to ORG/NAME --at 2026-11-21-a1b2`
    """
    from ratchet.components.core.home import require_clone
    from ratchet.components.operations import hub_publishing

    require_clone()
    _show(hub_publishing.publish_dataset(dataset, at, to, public=public), as_json)


@publish.command("model")
def publish_model(
    model: Annotated[str, Argument(help="An alias such as champion, a version, or a checkpoint's folder.")],
    to: Repository,
    public: Public = False,
    as_json: AsJson = False,
) -> None:
    """Publish a checkpoint with a card and its lineage.

    Example: `ratchet publish model champion --to ORG/NAME`
    """
    from ratchet.components.operations import hub_publishing

    _show(hub_publishing.publish_model(model, to, public=public), as_json)


def _show(publication: "Publication", as_json: bool) -> None:
    if as_json:
        print_json(publication)
    else:
        print_text(f"{publication.url}: {len(publication.files)} files, commit {publication.commit[:12]}")
