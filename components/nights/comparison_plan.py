"""A comparison of recipes on disk: what is declared before anything is trained, and the record of how it stands.

Each comparison has a folder below `.ratchet/comparisons`: its state, a workspace for each data build, the trainings, all
episodes, and at the end the record as JSON and Markdown. Its name holds a hash of all that it depends on, so that the same
command continues it, and a changed recipe or parameter begins another.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet.components.core import ConfigurationError, Role
from ratchet.components.core.home import home
from ratchet.components.evaluation.promotion.decision_record import TasksetRef
from ratchet.components.evaluation.recipe_comparison import ComparisonDeclaration, plan_seeds
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.trajectory import digest

from .night_models import NightModel
from .night_sampling import draw_tasks
from .night_state import Night, begin_in, list_nights, open_night, open_state_file
from .recipe_variants import RecipeVariant, parse_variant
from .scale_config import Scale, load_scale

MAX_RECIPES = 12
"""Sides of one comparison."""


class SourceNight(msgspec.Struct, frozen=True):
    """A night that was played here: its champion, and the inputs of the data build that made its rows."""

    id: str
    champion: NightModel
    nights: tuple[str, ...]
    as_of: str
    baseline: str | None
    seed: int


class ComparisonPlan(msgspec.Struct, frozen=True):
    """Everything that a comparison runs on. `tasks`: ids, those that decide first; `declared` as stored when it began."""

    state: Night
    declared: ComparisonDeclaration
    scale: Scale
    source: SourceNight
    variants: dict[str, RecipeVariant]
    tasks: tuple[str, ...]


class _CopiedRows(msgspec.Struct):
    """The part of a night's copied rows that a comparison needs."""

    nights: tuple[str, ...]


RECORD_STEP, DECLARED_STEP, ROWS_STEP = "record", "declared", "set aside data"
"""Steps of a comparison's state, and the step of a night that copied the challenger's rows."""


def comparisons_folder() -> Path:
    """Return the folder of all comparisons, one folder each; it may not exist."""
    return home() / "comparisons"


def list_comparisons() -> list[Night]:
    """Return the states of all comparisons of this home, in the order in which they began. Raises DataError."""
    states = [open_state_file(path) for path in comparisons_folder().glob("*/state.json")]
    return sorted(states, key=lambda state: (state.begun, state.id))


def find_source(night: str | None) -> SourceNight:
    """Return the night whose rows are used: the last that came as far as its training, where none is named.

    Raises ConfigurationError where there is none.
    """
    played = [state for state in list_nights() if ROWS_STEP in state.results] if night is None else [open_night(night)]
    if not played or ROWS_STEP not in played[-1].results:
        which = f"night {night} has" if night else "no night here has"
        raise ConfigurationError(f"{which} built the rows of a challenger yet; run `ratchet night` first")
    state = played[-1]
    champion = state.result("champion", NightModel | None) or state.result("register cold-start", NightModel)
    rows = state.result(ROWS_STEP, _CopiedRows)
    assert champion is not None and rows is not None
    baseline = state.result("choose baseline", str | None)
    return SourceNight(state.id, champion, rows.nights, state.begun[:10], baseline, state.seed)


def plan_comparison(
    recipes: Sequence[str], *, seeds: int, night: str | None, scale: str, alpha: float, params: bytes
) -> ComparisonPlan:
    """Return the plan of a comparison of `recipes` (as in `parse_variant`), of which the first is the reference; one that
    was begun before goes on. `params`: content of `params.yaml`. Raises ConfigurationError, DataError.
    """
    if not 2 <= len(recipes) <= MAX_RECIPES or len(set(recipes)) != len(recipes):
        raise ConfigurationError(f"give 2 to {MAX_RECIPES} different recipes; the first is the reference")
    parameters = load_scale(scale)
    variants = {text: parse_variant(text, parameters.size, params) for text in recipes}
    if all(variant.recipe is None for variant in variants.values()):
        raise ConfigurationError("the champion alone has nothing to be compared with; name a recipe")
    seed_plan = plan_seeds(seeds, alpha=alpha, recipes=len(recipes) - 1)
    source, taskset, held_out = find_source(night), load_taskset(parameters.taskset), parameters.evaluation
    counts = {Role.PROMOTE.value: held_out.promote} | ({Role.AUDIT.value: held_out.audit} if held_out.audit else {})
    tasks = tuple(
        task for role, count in counts.items() for task in draw_tasks(taskset.tasks(role), count, source.seed, role)
    )
    name = (
        "compare-"
        + digest(
            [variant.identity for variant in variants.values()],
            seed_plan,
            source,
            taskset.hash,
            parameters.model_dump(
                mode="json", exclude={"name", "promotion", "collection", "demonstrations", "cold_start", "budget"}
            ),
        )[:8]
    )
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    state = begin_in(comparisons_folder() / name, name, scale=scale, seed=source.seed, begun=now)
    declared = state.run_once(
        DECLARED_STEP,
        lambda: ComparisonDeclaration(
            name=name,
            at=now,
            night=source.id,
            champion=source.champion.policy_version,
            recipes=tuple(recipes),
            plan=seed_plan,
            taskset=TasksetRef(taskset.name, taskset.version, taskset.hash, taskset.split_by),
            tasks=counts,
            attempts=held_out.attempts,
            seed=source.seed,
        ),
        ComparisonDeclaration,
    )
    return ComparisonPlan(state, declared, parameters, source, variants, tasks)
