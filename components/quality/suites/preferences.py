"""The suite of preferences, a row per pair: two attempts at one task, of which the better one is chosen, each pair once."""

from typing import TYPE_CHECKING

from .expectations import one_of, sound, suite, true, unique

if TYPE_CHECKING:
    import great_expectations as gx


def preferences() -> "gx.ExpectationSuite":
    """What is expected of pairs. All of it is critical: they are made by the build itself."""
    return suite(
        "preferences",
        [
            one_of("level", "level_known", "critical", "a pair of an unknown level", ["step", "trajectory"]),
            true("margin_positive", "margin_positive", "critical", "the margin is no positive number"),
            sound("unknown", "sides_ranked", "critical", "a side is not ranked"),
            true("one_task", "one_task", "critical", "the sides are attempts at different tasks"),
            true("accepted", "chosen_accepted", "critical", "an episode that was not accepted is chosen"),
            sound("preference_fault", "better_chosen", "critical", "the rejected side is the better one"),
            unique("pair", "pair_once", "critical", "a pair stands in the table twice"),
            true("agrees", "no_contradiction", "critical", "two pairs prefer the opposite of each other"),
        ],
    )
