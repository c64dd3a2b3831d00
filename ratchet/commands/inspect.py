"""Command that serves the rollout inspector: inspect."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ratchet.components.core import ConfigurationError
from ratchet.components.core.errors import install_command
from ratchet.components.core.home import INSPECTOR_PORT
from ratchet.render.terminal import print_note, print_text


def inspect(
    paths: Annotated[
        list[Path] | None,
        Argument(
            help="Files or folders of trajectories or logs; default: this home and its nights.", show_default=False
        ),
    ] = None,
    port: Annotated[
        int,
        Option(
            min=0, max=65535, help="Port on 127.0.0.1; links of reports and MLflow lead to the default; 0: a free one."
        ),
    ] = INSPECTOR_PORT,
    review: Annotated[
        str | None, Option(metavar="NAME", help="Open the review desk for this person; without it nothing is written.")
    ] = None,
) -> None:
    """Serve a page to read rollouts: find, compare attempts, see rewards, tokens as trained, data, lineage, the running night.

    Open the printed address: it holds the key of this home. Nothing is changed; the index is kept in `.ratchet/inspector`.
    With --review NAME the page has a desk where this person labels steps and preference pairs by keyboard.

    Examples: `ratchet inspect`, `ratchet inspect runs.jsonl --port 8765`, `ratchet inspect --review ann`
    """
    try:
        from ratchet.components.inspector import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn"):
            raise
        raise ConfigurationError(
            f"the package '{error.name}' is not installed; install it: {install_command('inspector')}"
        ) from error
    from ratchet.components.core.errors import block_pandas
    from ratchet.components.core.processes import free_port, require_free_port
    from ratchet.components.inspector.served_episodes import ServedEpisodes

    block_pandas()  # 60 MiB that nothing here needs
    port = port or free_port()
    require_free_port(port, "the inspector", "--port")
    if not (app.ASSETS / "index.html").is_file():
        print_note("the page is not built: `make inspector` builds it (Node 18 or newer); the API is served")
    served, options = ServedEpisodes(paths or []), {}
    if review is not None:
        from ratchet.commands.label import open_review_desk
        from ratchet.components.datasets.versioning import review_notice
        from ratchet.components.inspector.review import review_router

        served.shows_labels = False
        if notice := review_notice():
            print_note(notice)
        options = {"mode": "review", "review": review_router(open_review_desk(paths or [], review))}
    with app.serve(served, port, **options) as (address, run):
        print_text(address)
        print_note("Ctrl-C ends it")
        run()
