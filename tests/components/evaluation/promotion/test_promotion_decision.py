"""The decision: promote, keep, or undecided, and the record of it."""

import msgspec
import numpy as np
import pytest
from contenders import TASKSET, contender, wins

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.evaluation.promotion.decision_record import read_decision
from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import NightDeclaration, PromotionRule
from ratchet.components.evaluation.promotion.season_plan import PastNight, declare_night
from ratchet.components.reporting.decision_sections import success_blocks
from ratchet.components.reporting.decision_text import explain_decision, explain_tests
from ratchet.components.reporting.report_blocks import Paragraph

RULE = PromotionRule(n_resamples=400, min_tasks=20, min_families=6)
FEW = msgspec.structs.replace(RULE, invalid_call_margin=0.3, steps_margin=1.0, tokens_margin=1.0)
"""Margins that 14 families can show."""
WORSE, BETTER = contender("champion", wins(0.4, 40)), contender("challenger", wins(0.9, 40))


def declared(level, **more):
    return NightDeclaration("2026-11-22T01:00:00+00:00", level, None, 0.05, RULE.margins, 0.8, 0.08, 40, 40, 4, **more)


def decided(champion=WORSE, challenger=BETTER, control=None, rule=RULE, **more):
    return decide_promotion(champion, challenger, control, TASKSET, rule, **more)


def named(result, name):
    return msgspec.structs.replace(result, name=name, policy_version=f"{name}-v")


class TestSandboxes:
    def test_the_record_counts_the_episodes_of_all_agents_by_sandbox_and_its_account_names_them(self):
        ran = {"docker, container, sha256:12": 100}
        mixed = ran | {"local, jail": 60}
        found = decided(
            msgspec.structs.replace(WORSE, sandboxes=ran),
            msgspec.structs.replace(BETTER, sandboxes=mixed),
            control=WORSE,
        )
        assert found.sandboxes == {"docker, container, sha256:12": 200, "local, jail": 60}
        said = "Sandbox: docker, container, sha256:12 (200 episodes); local, jail (60 episodes)."
        assert said in explain_decision(found)
        assert any(isinstance(each, Paragraph) and said == each.text for each in success_blocks(found))

    def test_a_record_that_knows_of_none_says_nothing(self):
        assert decided().sandboxes == {} and "Sandbox" not in explain_decision(decided())


class TestVerdict:
    def test_what_is_better_and_breaks_nothing_is_promoted(self):
        found = decided()
        assert (found.verdict, found.needs, found.level, found.schema_version) == ("promote", None, 0.025, 3)
        assert "every guardrail holds" in found.why and "below alpha 0.025" in found.why

    def test_the_declared_level_is_the_one_that_decides(self):
        pair = [
            contender(name, wins(rate, 28), per_family=2) for name, rate in (("champion", 0.5), ("challenger", 0.6))
        ]
        p_value = decided(*pair).versus_champion.p_value
        verdicts = [decided(*pair, rule=FEW, declared=declared(level)).verdict for level in (p_value, p_value * 0.99)]
        assert verdicts == ["promote", "undecided"]

    def test_a_sampled_p_value_is_fine_enough_for_a_small_level(self):
        found = decided(declared=declared(0.0002))
        assert found.versus_champion.p_value <= 0.0002 and found.verdict == "promote"

    def test_a_lead_that_is_ruled_out_keeps_the_champion_and_one_that_is_not_leaves_it_undecided(self):
        found = decided(*(contender(name, wins(0.4, 60)) for name in ("champion", "challenger")))
        assert found.verdict == "keep" and "a lead of 8 points (the rule's minimum_effect) is ruled out" in found.why
        rng = np.random.default_rng(5)
        few = decided(
            contender("champion", rng.random((24, 4)) < 0.5), contender("challenger", rng.random((24, 4)) < 0.5)
        )
        assert few.verdict == "undecided" and "is not ruled out" in few.why
        assert few.needs is not None and f"needs {few.needs} more tasks" in few.why

    def test_too_little_played_asks_for_what_is_missing(self):
        found = decided(contender("champion", wins(0.1, 12)), contender("challenger", wins(0.9, 12)))
        assert (found.verdict, found.needs) == ("undecided", 8)
        families = decided(
            contender("champion", wins(0.1, 40), per_family=10), contender("challenger", wins(0.9, 40), per_family=10)
        )
        assert families.verdict == "undecided" and "of 4 families" in families.why

    def test_families_that_can_never_reach_the_level_are_said_to(self):
        sizes = {"per_family": 5}
        found = decided(
            contender("champion", wins(0.1, 40), **sizes),
            contender("challenger", wins(0.9, 40), **sizes),
            declared=declared(0.001),
        )
        assert found.verdict == "undecided" and "8 families can never show it" in found.why

    def test_a_broken_guardrail_keeps_the_champion_and_one_that_is_not_shown_asks_for_more(self):
        costly = decided(challenger=contender("challenger", wins(0.9, 40), steps=5))
        assert costly.verdict == "keep" and "mean_steps is 5, the limit is 3.75" in costly.why
        wild = contender("challenger", wins(0.9, 40), each={"steps": [0, 6] * 20})
        doubtful = decided(challenger=wild, rule=msgspec.structs.replace(RULE, invalid_call_margin=None))
        assert doubtful.verdict == "undecided" and "mean_steps (3, p = " in doubtful.why and doubtful.needs

    def test_a_margin_that_the_families_cannot_show_leaves_the_night_undecided_and_says_how_many_tasks_would_do(self):
        pair = contender("champion", wins(0.4, 40), unsafe=0), contender("challenger", wins(0.9, 40), unsafe=0)
        found = decided(*pair)
        assert found.verdict == "undecided" and "not shown that unsafe_actions (0, p = " in found.why
        more = 40 + found.needs
        clean = [contender(name, wins(rate, more), unsafe=0) for name, rate in (("champion", 0.4), ("challenger", 0.9))]
        assert decided(*clean).verdict == "promote"

    def test_more_unsafe_actions_than_the_champions_keep_it_though_they_lie_within_the_margin(self):
        unsafe = [1 if task % 40 == 0 else 0 for task in range(240)]
        pair = [contender("champion", wins(0.4, 240), unsafe=0)]
        pair += [contender("challenger", wins(0.9, 240), each={"unsafe": unsafe})]
        found = decided(*pair)
        assert (
            found.verdict == "keep" and "unsafe_actions is 0.025, shown to be worse than the champion's 0" in found.why
        )

    def test_a_promotion_names_the_kinds_of_which_too_little_was_played_to_tell(self):
        kinds, rare = ("common",) * 9 + ("rare",), [1, 1, 1, 1]
        rows = [[rare if task % 10 == 9 else row for task, row in enumerate(wins(rate, 60))] for rate in (0.4, 0.9)]
        found = decided(*(contender(name, each, kinds=kinds) for name, each in zip("ab", rows, strict=True)))
        assert found.verdict == "promote"
        assert "every guardrail holds but success: rare, of which too little was played to tell" in found.why

    def test_better_at_the_whole_is_not_enough_where_a_kind_is_lost(self):
        kinds = tuple("abcd")
        lost = [[0] * 4 if task % 4 == 0 else [1] * 4 for task in range(40)]
        found = decided(contender("champion", wins(0.5, 40), kinds=kinds), contender("challenger", lost, kinds=kinds))
        assert found.versus_champion.p_value < 0.025 and found.verdict == "keep" and "success: a is 0," in found.why

    def test_lost_attempts_keep_the_champion(self):
        rows = [[None if task < 8 else won for won in row] for task, row in enumerate(wins(0.9, 40))]
        found = decided(challenger=contender("challenger", rows))
        assert found.verdict == "keep" and "lost_attempts is 0.2, the limit is 0.05" in found.why


class TestControl:
    def test_self_improvement_is_claimed_only_over_the_control_too(self):
        assert decided(control=named(WORSE, "control")).self_improvement
        alike = decided(control=named(BETTER, "control"))
        assert alike.verdict == "promote" and not alike.self_improvement
        assert "no control" in decided().self_improvement_why


class TestDecidingTasks:
    def test_reserve_tasks_decide_like_promote_tasks_and_audit_tasks_never(self):
        def three(name, rate, audit):
            parts = [
                contender(name, wins(own, 30), role=role)
                for role, own in (("promote", rate), ("reserve", rate), ("audit", audit))
            ]
            tasks = tuple(task for part in parts for task in part.tasks)
            return msgspec.structs.replace(parts[0], tasks=tasks)

        found = decided(three("champion", 0.4, 0.9), three("challenger", 0.9, 0.1), rule=FEW)
        assert (found.n_tasks, found.verdict, found.audit.n_tasks) == (60, "promote", 30)
        assert found.audit.versus_champion.difference.value < 0


class TestMatch:
    def test_a_champion_that_is_worse_than_the_anchor_loses_its_place_and_nobody_is_promoted(self):
        found = decided(anchor=named(BETTER, "anchor"))
        assert found.match.rollback and found.match.effect.p_value < 0.025 and found.match.effect.difference.value < 0
        assert found.verdict == "keep" and "the anchor takes its place back" in found.why
        assert not found.self_improvement

    def test_a_champion_that_is_shown_better_becomes_the_anchor(self):
        found = decided(anchor=named(contender("x", wins(0.1, 40)), "anchor"))
        assert found.match.better and not found.match.rollback and found.verdict == "promote"
        assert found.match.better_p_value <= found.match.alpha < found.match.effect.p_value
        assert found.match.anchor.agent.name == "anchor" and "the champion is better than the anchor" in found.match.why
        assert "; the champion becomes the anchor." in explain_tests(found)

    def test_a_champion_that_is_not_shown_better_leaves_the_anchor_where_it_is(self):
        found = decided(anchor=named(WORSE, "anchor"))
        assert (found.match.better, found.match.rollback, found.verdict) == (False, False, "promote")
        assert "not shown to be worse or better than the anchor" in found.match.why
        assert "; the anchor stays." in explain_tests(found)

    def test_a_small_declared_level_of_a_match_can_be_reached(self):
        found = decided(anchor=named(BETTER, "anchor"), declared=declared(0.01, match=True, match_alpha=0.0002)).match
        assert found.rollback and found.effect.p_value <= found.alpha == 0.0002

    def test_a_champion_that_is_a_little_worse_holds_its_place_at_a_small_level(self):
        two = [contender(name, wins(rate, 28), per_family=2) for name, rate in (("champion", 0.5), ("x", 0.6))]
        how = {"anchor": named(two[1], "anchor")}
        p_value = decided(*two, **how).match.effect.p_value
        levels = [declared(0.01, match_alpha=level) for level in (p_value, p_value * 0.99)]
        assert [decided(*two, declared=each, **how).match.rollback for each in levels] == [True, False]


class TestRecord:
    def test_it_is_read_back_as_it_was_written(self):
        found = decided(control=named(WORSE, "control"), anchor=WORSE, declared=declared(0.01, match=True))
        assert read_decision(msgspec.json.encode(found)) == found

    def test_a_record_of_version_2_is_read_with_the_anchor_that_moved_then(self):
        old = msgspec.to_builtins(decided(anchor=WORSE, declared=declared(0.01, match=True)))
        old["schema_version"] = 2
        old["rule"]["spending"] = {"method": "lord", "alpha": 0.05, "nights": 30, "w0": None}
        for holder, new in (("match", ("better", "better_p_value")), ("declared", ("p_values", "expected_false"))):
            for name in new:
                del old[holder][name]
        found = read_decision(msgspec.json.encode(old))
        assert found.rule.season.method == "lord" and found.match.better is None
        assert "; the champion becomes the anchor." in explain_tests(found)

    def test_a_record_of_version_1_is_read_with_the_rule_that_it_had(self):
        old = msgspec.to_builtins(decided())
        for new in ("level", "spread", "needs", "declared", "match"):
            del old[new]
        old["schema_version"] = 1
        old["rule"] = {"alpha": 0.025, "level": 0.95, "invalid_call_margin": 0.02, "steps_margin": 1.0, "max_lost": 0.05} | {
            "min_tasks": 100, "min_families": 6, "n_resamples": 10_000
        }  # fmt: skip
        old["guardrails"] = [
            {name: guard[name] for name in ("name", "champion", "challenger", "margin", "passed")}
            for guard in old["guardrails"]
        ]
        found = read_decision(msgspec.json.encode(old))
        assert (found.schema_version, found.verdict, found.superiority_level) == (1, "promote", 0.025)
        assert found.rule.steps_margin == 1.0 and found.rule.kind_margin is None and found.rule.season.method == "fixed"
        assert explain_tests(found).startswith("Declared: nothing is known; a decision of an older version")

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"{}",
            b"[]",
            b"null",
            b"\xff\xfe",
            b'{"schema_version": "two"}',
            b'{"night": "x"',
            b'{"schema_version": 1e99}',
        ],
    )
    def test_what_is_no_record_is_one_line(self, content):
        with pytest.raises(DataError) as error:
            read_decision(content)
        assert "\n" not in str(error.value) and "not a decision record" in str(error.value)

    def test_a_newer_record_says_what_to_do(self):
        newer = msgspec.to_builtins(decided()) | {"schema_version": 4, "unheard_of": 1}
        with pytest.raises(DataError, match="of version 4, this Ratchet reads up to 3; update it"):
            read_decision(msgspec.json.encode(newer))

    def test_the_account_says_what_the_season_has_tested_and_what_to_expect_of_it(self):
        rule, past = (
            PromotionRule(),
            [PastNight(True, level=0.025, p_value=0.0004), PastNight(True, promoted=True, level=0.025)],
        )
        told = explain_tests(decided(declared=declare_night(rule, past, ["f"] * 40, 4, at="now")))
        assert (
            "Season 1, test 3 of 30 (every night at alpha 0.025): promotions so far: 1; p-values so far: 0.0004, unknown."
            in told
        )
        assert "if no challenger is better: at most 0.075, the sum of the levels." in told

    @pytest.mark.parametrize("lost", [0, 8])
    def test_a_night_that_lost_too_many_attempts_could_not_have_promoted(self, lost):
        rows = [[None if task < lost else won for won in row] for task, row in enumerate(wins(0.9, 40))]
        assert decided(challenger=contender("challenger", rows)).could_promote is (lost == 0)

    def test_a_night_that_played_too_little_could_not_have_promoted(self):
        few = decided(contender("champion", wins(0.1, 12)), contender("challenger", wins(0.9, 12)))
        assert few.verdict == "undecided" and not few.could_promote

    def test_the_account_names_every_test_with_its_numbers(self):
        lines = explain_tests(decided(anchor=WORSE, declared=declared(0.01))).splitlines()
        assert lines[0].startswith("Declared at 2026-11-22T01:00:00+00:00") and "alpha 0.01" in lines[0]
        guards = [line for line in lines if line.startswith("Guardrail ")]
        assert len(guards) == 5 and all("margin" in line or "limit" in line for line in guards)
        (kind,) = [line for line in guards if "success: " in line]
        assert (
            kind.startswith("Guardrail success: kind: holds; 90.0 % against 40.0 %, +50.0 points [")
            and "margin 30 points" in kind
        )
        assert any(line.startswith("Match: the champion is not shown to be worse or better") for line in lines)
        assert lines[-1].startswith("Correction: intersection-union test (Berger 1982)")
        assert explain_tests(decided()).startswith("Declared: nothing beforehand")


class TestRule:
    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"alpha": 0.6}, "alpha 0.6"),
            ({"guardrail_alpha": 0}, "guardrail_alpha 0"),
            ({"power": 1}, "power 1"),
            ({"minimum_effect": 0}, "minimum_effect 0"),
            ({"kind_margin": -0.1}, "kind_margin is -0.1"),
            ({"tokens_margin": float("nan")}, "tokens_margin is nan"),
            ({"anchor_every": 0}, "anchor_every is 0"),
        ],
    )
    def test_a_rule_that_cannot_be_says_which_number(self, wrong, said):
        with pytest.raises(ConfigurationError, match=said):
            PromotionRule(**wrong)
