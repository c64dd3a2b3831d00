"""The suite of scores, a row per episode that a table of scores speaks of: they are numbers, of this night, each said once."""

from typing import TYPE_CHECKING

from .expectations import suite, true

if TYPE_CHECKING:
    import great_expectations as gx

AGAIN = "; score the night again"


def scores() -> "gx.ExpectationSuite":
    """What is expected of a night's scores. All of it is critical: a table of scores is made by the build itself."""
    return suite(
        "scores",
        [
            true(column, name, "critical", reason + AGAIN)
            for column, name, reason in (
                ("known", "scores_of_known_episodes", "the scores are of an episode that is not in the night"),
                ("once", "scores_unique", "one thing was scored twice by one scorer"),
                ("finite", "scores_finite", "a score is not a number: neither null nor finite"),
                ("in_range", "scores_in_range", "a score lies outside [0, 1]"),
                ("one_version", "scores_one_version", "the episode was scored by two versions of the scorer"),
                ("placed", "scores_placed", "a score is of a turn or a step that cannot be"),
                ("steps_match", "steps_match", "not each call of the episode has its score"),
                ("earns_nothing", "caught_earns_nothing", "a hack was found, and the episode earns something"),
            )
        ],
    )
