"""The suite: what is expected of a night's rows, each with a severity. Declared here, judged by Great Expectations.

`critical` stops the build; `warning` puts the failing rows in quarantine; `info` is reported. Only `warning`s must be
about single rows, since a quarantine needs to know which.
"""

from typing import TYPE_CHECKING, Any

from components.protocol import Role
from components.trajectories.record import SCHEMA_VERSION

from .facts import FIELDS
from .params import QualityParams

if TYPE_CHECKING:
    import great_expectations as gx


def suite(params: QualityParams) -> "gx.ExpectationSuite":
    """The expectations in order. Each has `meta` with its `name` and, in words, the `reason` why a row fails it."""
    import great_expectations as gx

    return gx.ExpectationSuite(
        name="rollouts", expectations=[*_identity(), *_roles(), *_rewards(params), *_episodes(params), *_night(params)]
    )


def _expect(kind: str, name: str, severity: str, reason: str, **arguments: Any) -> Any:
    from great_expectations import expectations

    return getattr(expectations, kind)(severity=severity, meta={"name": name, "reason": reason}, **arguments)


def _true(column: str, name: str, severity: str, reason: str) -> Any:
    return _expect("ExpectColumnValuesToBeInSet", name, severity, reason, column=column, value_set=[True])


def _filled(column: str, reason: str) -> Any:
    return _expect("ExpectColumnValuesToNotBeNull", f"{column}_present", "critical", reason, column=column)


def _between(column: str, name: str, severity: str, reason: str, low: float | None, high: float | None) -> Any:
    return _expect(
        "ExpectColumnValuesToBeBetween", name, severity, reason, column=column, min_value=low, max_value=high
    )


def _identity() -> list[Any]:
    """Rows are what they say they are."""
    return [
        _expect(
            "ExpectTableRowCountToBeBetween", "episodes_present", "critical", "the night holds no episode", min_value=1
        ),
        _expect(
            "ExpectTableColumnsToMatchSet",
            "columns_known",
            "critical",
            "the table has other columns than this suite knows",
            column_set=list(FIELDS),
            exact_match=True,
        ),
        _expect(
            "ExpectColumnValuesToBeInSet",
            "schema_version_known",
            "critical",
            f"the record's schema_version is not {SCHEMA_VERSION}",
            column="schema_version",
            value_set=[SCHEMA_VERSION],
        ),
        _expect(
            "ExpectColumnValuesToMatchRegex",
            "episode_id_formed",
            "critical",
            "the episode_id does not look like one",
            column="episode_id",
            regex=r"^ep-[0-9a-f]{24}$",
        ),
        _expect(
            "ExpectColumnValuesToBeUnique",
            "episode_id_unique",
            "critical",
            "the episode occurs more than once",
            column="episode_id",
        ),
        *(_filled(name, f"{name} is missing") for name in ("task_id", "family", "group_id", "policy_version")),
        _true("hash_matches", "content_hash_matches", "critical", "the record is not what its content_hash says"),
    ]


def _roles() -> list[Any]:
    """Held-out tasks stay held out."""
    return [
        _expect(
            "ExpectColumnValuesToBeInSet",
            "role_known",
            "critical",
            "the task's role is unknown",
            column="role",
            value_set=[role.value for role in Role],
        ),
        _expect(
            "ExpectColumnValuesToBeInSet",
            "only_train_tasks",
            "critical",
            "a task that is held out for evaluation stands in the training data",
            column="role",
            value_set=[Role.TRAIN.value],
        ),
    ]


def _rewards(params: QualityParams) -> list[Any]:
    """Scores mean what they should. A null score is allowed everywhere: it is not a zero."""
    return [
        _between("total", "total_in_range", "critical", "the total reward lies outside [0, 1]", 0.0, 1.0),
        _true("scores_in_range", "scores_in_range", "critical", "a score lies outside [0, 1]"),
        _true("failure_unscored", "failures_unscored", "critical", "an infrastructure failure was given a reward"),
        _true("scored", "episode_scored", "warning", "the episode has no total reward"),
        _expect(
            "ExpectColumnValuesToBeInSet",
            "no_hack_found",
            "info",
            "a hack was found in the episode: it earns nothing and is not trained on",
            column="caught",
            value_set=[False],
        ),
        _expect(
            "ExpectColumnMeanToBeBetween",
            "infrastructure_failure_rate",
            "critical",
            f"more than {params.max_infrastructure_rate:.0%} of the episodes failed for want of infrastructure",
            column="infrastructure_failure",
            max_value=params.max_infrastructure_rate,
        ),
    ]


def _episodes(params: QualityParams) -> list[Any]:
    """Single episodes are whole."""
    return [
        _true("played", "turns_present", "warning", "the episode has no turn"),
        _true("calls_answered", "calls_answered", "warning", "calls and results do not pair up"),
        _true("outcome_known", "outcome_known", "warning", "nobody knows whether the episode succeeded"),
        _true(
            "outcome_consistent",
            "outcome_consistent",
            "warning",
            "success and the counts of tests contradict each other",
        ),
        _between("turns", "turns_in_range", "warning", f"more than {params.max_turns} turns", 0, params.max_turns),
        _between("steps", "steps_in_range", "warning", f"more than {params.max_steps} steps", 0, params.max_steps),
        _between(
            "longest_observation",
            "observation_length",
            "warning",
            f"an observation of more than {params.max_observation} characters",
            0,
            params.max_observation,
        ),
        _between(
            "secrets_remaining",
            "no_secret_remains",
            "warning",
            "the record holds a secret: `ratchet sanitise` takes it out",
            0,
            0,
        ),
    ]


def _night(params: QualityParams) -> list[Any]:
    """What a person should look at, and what stops nothing."""
    rates = {
        "truncated": ("truncation_rate", "many episodes were cut off", params.max_truncation_rate),
        "parse_errors": ("parse_errors_per_episode", "many calls cannot be read", params.max_parse_errors),
    }
    return [
        *(
            _expect("ExpectColumnMeanToBeBetween", name, "info", reason, column=column, max_value=limit)
            for column, (name, reason, limit) in rates.items()
        ),
        _between(
            "group_size",
            "group_size",
            "info",
            f"fewer than {params.min_group_size} attempts at a task say little of its pass rate",
            params.min_group_size,
            None,
        ),
    ]
