"""The suite of tasks, a row per task: each in one split, with its unit and with what it is near to, and none met in evaluation."""

from typing import TYPE_CHECKING

from ..split import SPLITS
from .expectations import filled, one_of, suite, true, unique

if TYPE_CHECKING:
    import great_expectations as gx


def tasks() -> "gx.ExpectationSuite":
    """What is expected of tasks. All of it is critical: a leak cannot be taken back once a model has trained on it."""
    return suite(
        "tasks",
        [
            filled("task_id", "a task has no name"),
            unique("task_id", "task_once", "critical", "a task stands in the table twice"),
            one_of("split", "split_known", "critical", "the split is unknown", SPLITS),
            true("placed", "left_out_for_a_reason", "critical", "a task is left out and nothing says why"),
            true("clean", "not_contaminated", "critical", "a task that stands in a split was met in evaluation"),
            true("unit_whole", "unit_in_one_split", "critical", "its unit (family, or task) is cut by the split"),
            true(
                "cluster_whole", "cluster_in_one_split", "critical", "a task that it is near to stands in another split"
            ),
            true("ranked_agrees", "ranks_keep_the_split", "critical", "the ranked table puts it into another split"),
        ],
    )
