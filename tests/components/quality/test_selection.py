"""What is accepted for training, and why."""

from typing import Any

from components.quality.params import RankParams
from components.quality.selection import Candidate, select, weight


def candidate(name: str, gdi: float | None = 0.5, **changes: Any) -> Candidate:
    fields: dict[str, Any] = {
        "episode_id": name,
        "task_id": "t1",
        "source": "on_policy",
        "messages_hash": f"content {name}",
        "success": True,
        "gdi": gdi,
        "pass_rate": 0.5,
    }
    return Candidate(**(fields | changes))


def accepted(*candidates: Candidate, **params: Any) -> list[str]:
    choices = select(candidates, RankParams(**params))
    return [each.episode_id for each, choice in zip(candidates, choices, strict=True) if choice.accepted]


def test_the_best_successes_of_each_task_are_accepted() -> None:
    rows = [candidate("a", 0.3), candidate("b", 0.9), candidate("c", 0.6), candidate("d", 0.1, task_id="t2")]
    assert accepted(*rows, best_of=2) == ["b", "c", "d"]


def test_ties_are_broken_by_identity_whatever_the_order() -> None:
    rows = [candidate("b"), candidate("c"), candidate("a")]
    assert accepted(*rows, best_of=2) == ["b", "a"]
    assert accepted(*reversed(rows), best_of=2) == ["a", "b"]


def test_only_known_successes_are_accepted() -> None:
    assert accepted(candidate("a", success=False), candidate("b", success=None), candidate("c")) == ["c"]


def test_neither_failures_of_infrastructure_nor_quarantined_nor_unscored_episodes_are_accepted() -> None:
    rows = [candidate("a", infrastructure_failure=True), candidate("b", quarantined="turns"), candidate("c", None)]
    assert accepted(*rows) == []
    reasons = [choice.reason for choice in select(rows, RankParams())]
    assert reasons == ["infrastructure failure", "quarantined by turns", "not scored"]


def test_the_same_way_to_success_is_accepted_once() -> None:
    rows = [candidate("b", messages_hash="same"), candidate("a", messages_hash="same"), candidate("c")]
    assert accepted(*rows, best_of=3) == ["a", "c"] or accepted(*rows, best_of=3) == ["c", "a"]
    assert select(rows, RankParams())[0].reason == "went the same way as a"


def test_demonstrations_do_not_displace_own_attempts() -> None:
    rows = [candidate("a", 0.9, source="demonstration"), candidate("b", 0.2)]
    assert accepted(*rows, best_of=1) == ["a", "b"]


def test_a_rank_below_the_least_is_refused() -> None:
    assert accepted(candidate("a", 0.4), candidate("b", 0.6), min_gdi=0.5) == ["b"]


def test_tasks_of_middling_pass_rate_weigh_most() -> None:
    params = RankParams(min_weight=0.25)
    rates = {0.5: 1.0, 0.25: 0.75, 1.0: 0.25, 0.05: 0.25}
    assert {rate: weight(candidate("a", pass_rate=rate), params) for rate in rates} == rates


def test_a_demonstration_weighs_one() -> None:
    assert weight(candidate("a", pass_rate=1.0, source="demonstration"), RankParams()) == 1.0


def test_a_success_by_a_hack_is_refused_with_its_reason() -> None:
    caught = candidate("a", 0.9, caught=True)
    (choice,) = select([caught], RankParams())
    assert not choice.accepted and choice.reason.startswith("a hack was found in it")
