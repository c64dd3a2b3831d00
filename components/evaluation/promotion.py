"""The promotion rule: may the challenger take the champion's place? The answer is a record, with its reasons."""

from typing import Literal

import msgspec

from components.protocol import ConfigurationError, DataError

from .comparison import AgentRef, Comparison, KindRow, compare
from .metrics import AgentResult, Summary, summary
from .report import effect_text
from .statistics import Estimate, rate_estimate

CORRECTION = "fixed sequence: champion first, then control, each one-sided at alpha"


class PromotionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Declared before the night. Margins are how much worse the challenger may be and still pass.

    `alpha` is one-sided. `invalid_call_margin` is in shares of calls, `steps_margin` in calls an episode, `max_lost` the
    share of attempts that may lack an outcome, `min_tasks` and `min_families` the least that a verdict may rest on.
    """

    alpha: float = 0.025
    level: float = 0.95
    invalid_call_margin: float = 0.02
    steps_margin: float = 1.0
    max_lost: float = 0.05
    min_tasks: int = 20
    min_families: int = 6
    n_resamples: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5 or not 0 < self.level < 1:
            raise ConfigurationError(
                f"promotion rule: alpha {self.alpha} must lie in (0, .5) and level {self.level} in (0, 1)"
            )


class TasksetRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was played. `split_by` says whether a family may stand in train and in promote (`instance`) or not (`family`)."""

    name: str
    version: str
    hash: str
    split_by: str


class Contender(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One agent on the tasks of one role: all its attempts that count, whether or not the other's do."""

    agent: AgentRef
    success: Estimate
    summary: Summary


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The challenger's success rate minus another's, paired by attempt; `p_value` is one-sided for better."""

    difference: Estimate
    p_value: float
    exact: bool
    won: int
    lost_to: int
    tied: int


class Guardrail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must not get worse by more than `margin` (or, without a champion's figure, not exceed it)."""

    name: str
    champion: float | None
    challenger: float | None
    margin: float
    passed: bool


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same figures on the sealed audit tasks, for information: they never decide."""

    n_tasks: int
    n_families: int
    k: int
    champion: Contender
    challenger: Contender
    control: Contender | None
    versus_champion: Effect
    versus_control: Effect | None


class Trained(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How challenger and control came to be, and from how many input tokens: the one by a recipe, the other by plain supervised
    training of the champion on its old data.
    """

    recipe: str
    challenger_tokens: int
    control_tokens: int
    control: str = "plain SFT of the champion on its old data"


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The decision record. `self_improvement` is claimed only where the challenger also beats the control.

    `trained`: None where that is not known, as of agents that were compared by hand.
    """

    night: str
    taskset: TasksetRef
    rule: PromotionRule
    n_tasks: int
    n_families: int
    k: int
    lost: int
    champion: Contender
    challenger: Contender
    control: Contender | None
    versus_champion: Effect
    versus_control: Effect | None
    control_versus_champion: Effect | None
    correction: str
    by_kind: tuple[KindRow, ...]
    guardrails: tuple[Guardrail, ...]
    audit: Audit | None
    verdict: Literal["promote", "keep"]
    why: str
    self_improvement: bool
    self_improvement_why: str
    trained: Trained | None = None
    schema_version: int = 1


def decide(
    champion: AgentResult,
    challenger: AgentResult,
    control: AgentResult | None,
    taskset: TasksetRef,
    rule: PromotionRule | None = None,
    *,
    night: str = "",
    seed: int = 0,
    trained: Trained | None = None,
) -> Decision:
    """The verdict on the `promote` tasks; the `audit` tasks are reported where all agents played them.

    Promotes when the difference is significant at `rule.alpha`, every guardrail holds and enough was played. The test
    against the control comes second and only counts after a significant first one, which keeps the family-wise error
    at alpha without dividing it. Guardrails compare point estimates. Raises DataError where the agents cannot be compared.
    """
    rule = rule or PromotionRule()
    main = _compare(champion, challenger, "promote", rule, seed)
    second = _compare(control, challenger, "promote", rule, seed) if control else None
    drift = _compare(champion, control, "promote", rule, seed) if control else None
    guardrails = _guardrails(summary(champion, "promote"), summary(challenger, "promote"), main, rule)
    verdict, why = _verdict(main, guardrails, rule)
    improvement, improvement_why = _self_improvement(main, second, verdict, rule)
    return Decision(
        night=night,
        taskset=taskset,
        rule=rule,
        n_tasks=main.n_tasks,
        n_families=main.n_families,
        k=main.k,
        lost=main.lost,
        champion=_contender(champion, "promote", rule, seed),
        challenger=_contender(challenger, "promote", rule, seed),
        control=_contender(control, "promote", rule, seed) if control else None,
        versus_champion=_effect(main),
        versus_control=_effect(second) if second else None,
        control_versus_champion=_effect(drift) if drift else None,
        correction=CORRECTION,
        by_kind=main.by_kind,
        guardrails=guardrails,
        audit=_audit(champion, challenger, control, rule, seed),
        verdict=verdict,
        why=why,
        self_improvement=improvement,
        self_improvement_why=improvement_why,
        trained=trained,
    )


def read_decision(data: bytes) -> Decision:
    """A decision from its JSON. Raises DataError."""
    try:
        return msgspec.json.decode(data, type=Decision)
    except msgspec.DecodeError as error:
        raise DataError(
            f"not a decision record: {error}; take the record of a night, or the last line of --json"
        ) from error


def _compare(a: AgentResult, b: AgentResult, role: str, rule: PromotionRule, seed: int) -> Comparison:
    return compare(a, b, role, level=rule.level, n_resamples=rule.n_resamples, seed=seed)


def _contender(result: AgentResult, role: str, rule: PromotionRule, seed: int) -> Contender:
    tasks = [task for task in result.of(role) if task.rate is not None]
    success = rate_estimate(
        [task.rate for task in tasks if task.rate is not None],
        [task.family for task in tasks],
        level=rule.level,
        n_resamples=rule.n_resamples,
        seed=seed,
    )
    return Contender(AgentRef(result.name, result.policy, result.policy_version), success, summary(result, role))


def _effect(found: Comparison) -> Effect:
    return Effect(found.difference, found.p_value, found.exact, found.won, found.lost_to, found.tied)


def _guardrails(champion: Summary, challenger: Summary, main: Comparison, rule: PromotionRule) -> tuple[Guardrail, ...]:
    planned = sum(1 for _ in main.pairs) + main.lost_tasks
    lost = main.lost / (planned * main.k)
    return (
        _not_worse(
            "invalid_call_rate", champion.invalid_call_rate, challenger.invalid_call_rate, rule.invalid_call_margin
        ),
        _not_worse("mean_steps", champion.mean_steps, challenger.mean_steps, rule.steps_margin),
        Guardrail("lost_attempts", None, lost, rule.max_lost, lost <= rule.max_lost),
    )


def _not_worse(name: str, champion: float | None, challenger: float | None, margin: float) -> Guardrail:
    """Without the champion's figure there is nothing to be worse than; without the challenger's alone nothing is shown."""
    passed = champion is None or (challenger is not None and challenger <= champion + margin)
    return Guardrail(name, champion, challenger, margin, passed)


def _verdict(
    main: Comparison, guardrails: tuple[Guardrail, ...], rule: PromotionRule
) -> tuple[Literal["promote", "keep"], str]:
    figures = effect_text(_effect(main))
    if main.n_tasks < rule.min_tasks or main.n_families < rule.min_families:
        return "keep", (
            f"too little was played to decide: {main.n_tasks} tasks of {main.n_families} families, "
            f"the rule asks for {rule.min_tasks} of {rule.min_families}"
        )
    if main.p_value >= rule.alpha:
        return "keep", f"the challenger is not shown to be better: {figures}, not below alpha {rule.alpha:g}"
    broken = [guard for guard in guardrails if not guard.passed]
    if broken:
        return "keep", f"better ({figures}), but {'; '.join(_broken(guard) for guard in broken)}"
    return "promote", f"the challenger is better: {figures}, below alpha {rule.alpha:g}; every guardrail holds"


def _broken(guard: Guardrail) -> str:
    limit = guard.margin + (guard.champion or 0.0)
    shown = "unknown" if guard.challenger is None else f"{guard.challenger:.3g}"
    return f"{guard.name} is {shown}, the limit is {limit:.3g}"


def _self_improvement(
    main: Comparison, second: Comparison | None, verdict: str, rule: PromotionRule
) -> tuple[bool, str]:
    if second is None:
        return False, "no control was trained, so training longer on old data may explain the difference"
    figures = effect_text(_effect(second))
    if main.p_value >= rule.alpha:
        return False, f"not tested, the challenger does not beat the champion (against the control: {figures})"
    if second.p_value >= rule.alpha:
        return False, f"the challenger is not shown to beat the control: {figures}"
    if verdict != "promote":
        return False, f"the challenger beats the control ({figures}) but was not promoted"
    return True, f"the challenger also beats the control, which trained equally long on old data: {figures}"


def _audit(
    champion: AgentResult, challenger: AgentResult, control: AgentResult | None, rule: PromotionRule, seed: int
) -> Audit | None:
    agents = [champion, challenger, *([control] if control else [])]
    if not all(agent.of("audit") for agent in agents):
        return None
    main = _compare(champion, challenger, "audit", rule, seed)
    second = _compare(control, challenger, "audit", rule, seed) if control else None
    return Audit(
        n_tasks=main.n_tasks,
        n_families=main.n_families,
        k=main.k,
        champion=_contender(champion, "audit", rule, seed),
        challenger=_contender(challenger, "audit", rule, seed),
        control=_contender(control, "audit", rule, seed) if control else None,
        versus_champion=_effect(main),
        versus_control=_effect(second) if second else None,
    )
