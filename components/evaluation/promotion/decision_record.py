"""The decision record: agents, tasks, rule, results, verdict and reasons of one decision. Versions 1 and 2 can still be
read.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from ratchet.components.core import DataError
from ratchet.components.statistics.power_analysis import VarianceComponents
from ratchet.components.statistics.result_types import Estimate, interval_text, p_text, percentage_points
from ratchet.components.trajectories.notebook_tables import NotebookTable, html_table

from ..agent_metrics import AgentSummary
from ..paired_comparison import AgentRef, KindComparison
from .promotion_rule import LookResult, NightDeclaration, PromotionRule

SCHEMA_VERSION = 3
Verdict = Literal["promote", "keep", "undecided"]


class TasksetRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The taskset. `split_by`: whether a family may be in both train and promote (`instance`) or not (`family`)."""

    name: str
    version: str
    hash: str
    split_by: str


class Contender(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One agent on the tasks of one role, over all its attempts with a known outcome, not only the paired ones."""

    agent: AgentRef
    success: Estimate
    summary: AgentSummary


class PairedEffect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An agent's success rate minus another's, paired by attempt. `p_value`: one-sided, that the first agent
    is better; in an anchor match, that it is worse.
    """

    difference: Estimate
    p_value: float
    exact: bool
    won: int
    lost_to: int
    tied: int


def effect_text(effect: PairedEffect) -> str:
    """Format an effect as `+12.0 points [+5.1, +18.8], p = 0.0012`."""
    lead = percentage_points(effect.difference.value)
    return f"{lead} points {interval_text(effect.difference, signed=True)}, {p_text(effect.p_value)}"


class Guardrail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure that must not get worse by more than `margin`. `passed` is False where that is not shown.

    `difference`: challenger minus champion over tasks; `p_value`: one-sided against "worse by the margin"; `better`:
    which direction is better. `state`: `holds` (shown), `unclear` (neither shown nor refuted), `broken` (worse by more
    than the margin), `untested` (too few families to show anything; passed). `lost_attempts` is a plain limit without a
    difference.
    """

    name: str
    champion: float | None
    challenger: float | None
    margin: float
    passed: bool
    difference: Estimate | None = None
    p_value: float | None = None
    better: Literal["lower", "higher"] = "lower"
    state: Literal["holds", "unclear", "broken", "untested"] | None = None


class AuditResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Results and differences on the sealed audit tasks, for information: they never affect the verdict."""

    n_tasks: int
    n_families: int
    k: int
    champion: Contender
    challenger: Contender
    control: Contender | None
    versus_champion: PairedEffect
    versus_control: PairedEffect | None


class TrainedAgents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How challenger and control were trained, and on how many input tokens."""

    recipe: str
    challenger_tokens: int
    control_tokens: int
    control: str = "plain SFT of the champion on its old data"


class AnchorMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The champion against the anchor (a fixed earlier champion) on the night's deciding tasks.

    `effect` is champion minus anchor, its `p_value` one-sided for worse; `better_p_value` is one-sided for better; both
    are tested at `alpha`. `rollback`: shown worse, so the anchor becomes champion again. `better`: shown better, so the
    champion becomes the anchor. Otherwise the anchor stays. In records before version 3 `better` and `better_p_value`
    are None, and every champion that was not rolled back became the anchor.
    """

    anchor: Contender
    effect: PairedEffect
    alpha: float
    rollback: bool
    why: str
    better: bool | None = None
    better_p_value: float | None = None


class Decision(NotebookTable, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The decision record. `self_improvement` is claimed only where the challenger also beats the control.

    `undecided` keeps the champion; `needs` is the number of further tasks that would decide. `level`: of the test of
    superiority. `spread`: variance of the paired difference, with which the next night plans. `declared`: None for
    agents compared by hand. `trained`: None where unknown. `looked`: results of the declared looks. `sandboxes`:
    episodes by back end, isolation level and image digest; empty where unknown. In a record of version 1 all newer
    fields are None, and its guardrails compared point estimates.
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
    versus_champion: PairedEffect
    versus_control: PairedEffect | None
    control_versus_champion: PairedEffect | None
    correction: str
    by_kind: tuple[KindComparison, ...]
    guardrails: tuple[Guardrail, ...]
    audit: AuditResult | None
    verdict: Verdict
    why: str
    self_improvement: bool
    self_improvement_why: str
    trained: TrainedAgents | None = None
    schema_version: int = SCHEMA_VERSION
    level: float | None = None
    spread: VarianceComponents | None = None
    needs: int | None = None
    declared: NightDeclaration | None = None
    match: AnchorMatch | None = None
    looked: tuple[LookResult, ...] = ()
    sandboxes: dict[str, int] = {}

    @property
    def superiority_level(self) -> float:
        """The one-sided level of the test of superiority: the recorded one, else the rule's alpha."""
        return self.rule.alpha if self.level is None else self.level

    @property
    def guardrail_level(self) -> float:
        """The one-sided level of each guardrail's test: that of the last look, else the rule's."""
        return self.looked[-1].look.guardrail_alpha if self.looked else self.rule.guardrail_alpha

    @property
    def could_promote(self) -> bool:
        """Whether a promotion was possible: enough tasks were played and not too many attempts were lost."""
        enough = self.n_tasks >= self.rule.min_tasks and self.n_families >= self.rule.min_families
        return enough and all(guard.passed for guard in self.guardrails if guard.name == "lost_attempts")

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per agent: its success with its interval, and the challenger's lead over it."""
        agents = (("champion", self.champion, self.versus_champion), ("control", self.control, self.versus_control))
        rows = [_agent_row(name, agent, effect) for name, agent, effect in agents if agent is not None]
        return [*rows, _agent_row("challenger", self.challenger, None)]

    def _caption(self) -> tuple[str, str]:
        return f"Verdict: {self.verdict}. {self.why}", self.self_improvement_why

    def _repr_html_(self) -> str:
        names = {"guardrail": "name", "champion": "champion", "challenger": "challenger", "passed": "passed"}
        guards = [{title: getattr(guard, name) for title, name in names.items()} for guard in self.guardrails]
        size = f"{self.n_tasks} tasks of {self.n_families} families, {self.k} attempts each"
        return super()._repr_html_() + html_table(size, guards)

    @property
    def text(self) -> str:
        """The record as indented JSON, readable by `read_decision`."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=2).decode() + "\n"


def _agent_row(name: str, agent: Contender, effect: PairedEffect | None) -> dict[str, Any]:
    success, lead = agent.success, effect.difference if effect else None
    return {
        "agent": name,
        "success": success.value,
        "low": success.interval and success.interval.low,
        "high": success.interval and success.interval.high,
        "lead": lead and lead.value,
        "lead_low": lead and lead.interval and lead.interval.low,
        "lead_high": lead and lead.interval and lead.interval.high,
        "p_value": effect and effect.p_value,
    }


class _VersionOnly(msgspec.Struct, frozen=True):
    schema_version: int = 1


def read_decision(record: bytes | Path) -> Decision:
    """Return the decision in a JSON record of this or an older version, or in a file of one. Raises DataError.

    >>> ratchet.read_decision(pathlib.Path("decision.json")).verdict
    'promote'
    """
    data = record if isinstance(record, bytes) else _read_record(record)
    try:
        # The version first: a newer record has fields that the type below refuses.
        version = msgspec.json.decode(data, type=_VersionOnly).schema_version
        if version > SCHEMA_VERSION:
            raise DataError(
                f"a decision record of version {version}, this Ratchet reads up to {SCHEMA_VERSION}; update it to read the record"
            )
        return _migrate_version_1(msgspec.json.decode(data, type=Decision))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"not a decision record: {error}; take the record of a night, or the last line of --json"
        ) from error


def _read_record(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; give a night's decision.json") from error


def _migrate_version_1(decision: Decision) -> Decision:
    """Set what version 1 lacked: no margins beyond the two in its record, and alpha spent every night."""
    if decision.schema_version >= 2:
        return decision
    rule = decision.rule
    recorded_margins = {"invalid_call_margin", "steps_margin"}
    unknown = {name: None for name in rule.margins if name not in recorded_margins}
    old = msgspec.structs.replace(rule, spending=None, anchor_every=None, **unknown)
    return msgspec.structs.replace(decision, rule=old)
