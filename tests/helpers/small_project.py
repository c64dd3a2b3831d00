"""A project as `ratchet init` makes it, with a night that only shows that every step runs."""

from pathlib import Path

SMALL_NIGHT = {
    "scales/smoke.yaml": {
        "demonstrations: {tasks: 40, attempts: 1, cohort_size: 20,": "demonstrations: {tasks: 12, attempts: 1, cohort_size: 12,",
        "steps: 10": "steps: 3",
        "evaluate_every: 5": "evaluate_every: 3",
        "collection: {tasks: 300, attempts: 4,": "collection: {tasks: 10, attempts: 2,",
        "promote: 80, audit: 40, attempts: 4,": "promote: 8, audit: 4, attempts: 1,",
        "min_tasks: 60": "min_tasks: 4",
    },
    "recipes/own.yaml": {"token_budget: 600000": "token_budget: 20000"},
}
"""Texts of a project's files, and what they are replaced by."""


def make_night_small(project: Path) -> None:
    """Change scale and recipe of a project."""
    for name, changes in SMALL_NIGHT.items():
        text = (project / name).read_text()
        for before, after in changes.items():
            assert before in text
            text = text.replace(before, after)
        (project / name).write_text(text)
