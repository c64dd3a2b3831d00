"""A night's report where the Prefect run shows it. It never stops a night."""

import contextlib

KEY = "night-report"


def show_report(markdown: str) -> None:
    """Put the report's Markdown beside the run. Without a Prefect server nothing is shown."""
    from prefect.artifacts import create_markdown_artifact

    with contextlib.suppress(Exception):  # a page less is no reason to lose a night
        create_markdown_artifact(markdown, key=KEY, description="The night's report")
