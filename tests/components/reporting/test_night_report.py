"""What a report says of a night, whatever became of it."""

import xml.etree.ElementTree as ET

import msgspec
import pytest
from contenders import TASKSET, contender, wins
from mornings import morning

from ratchet.components.evaluation.night_trends import BenchmarkDrift, NightCost
from ratchet.components.evaluation.promotion.decision_record import AnchorMatch, Guardrail
from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.reporting.decision_text import VERDICT_TITLES, explain_decision, summary_sentence
from ratchet.components.reporting.evaluation_figures import difference_figure
from ratchet.components.reporting.night_report import format_duration, format_time, report_document
from ratchet.components.reporting.report_blocks import (
    CollapsedBlocks,
    CommandList,
    Paragraph,
    QuotedText,
    ReportTable,
    SideBySide,
    SubsectionTitle,
    VerdictBanner,
)
from ratchet.components.reporting.report_rendering import report_markdown

replace = msgspec.structs.replace


def blocks(of, kind):
    return [block for block in report_document(of).blocks if isinstance(block, kind)]


def headings(of):
    return [block.text for block in report_document(of).contents]


def test_a_decided_night_begins_with_its_verdict_and_the_numbers_to_remember():
    made = morning()
    first = report_document(made).blocks[0]
    assert isinstance(first, VerdictBanner) and first.word == VERDICT_TITLES[made.decision.verdict]
    shown = " ".join(value for value, _ in first.numbers)
    for name in ("champion", "challenger"):
        assert f"{100 * getattr(made.decision, name).success.value:.1f} %" in shown
    assert headings(made)[:4] == ["Success", "Where", "Guardrails", "Episodes"]
    assert headings(made)[-4:] == ["Data quality", "Time and cost", "Compared with the previous night", "Next steps"]


def drawn(decision):
    return ET.fromstring(difference_figure(decision).svg())


@pytest.mark.slow
def test_the_table_of_kinds_and_the_forest_plot_have_one_order():
    leads = (0.1, -0.2, 0.3)
    rows = tuple(
        replace(row, difference=replace(row.difference, value=lead))
        for row, lead in zip(morning().decision.by_kind, leads, strict=True)
    )
    decision = replace(morning().decision, by_kind=rows)
    table = next(each for each in blocks(morning(decision=decision), ReportTable) if each.columns[0] == "kind of task")
    names = [name.partition(" ")[0] for name, *_ in table.rows]
    texts = [(each.text or "").partition(" ")[0] for each in drawn(decision).iter() if each.tag.endswith("text")]
    heights = [each for each in texts if each in names]
    assert len(names) == 3 and heights[::-1] == names, "matplotlib writes the labels from below"


def compared(control_rate, audit_rates):
    """A decision with a control and audit tasks, by their success rates."""
    rates = {"champion": (0.3, audit_rates[0]), "challenger": (0.8, audit_rates[1]), "control": (control_rate, 0.5)}
    agents = []
    for name, (rate, audit) in rates.items():
        parts = [contender(name, wins(rate, 40)), contender(name, wins(audit, 40), role="audit")]
        tasks = tuple(task for part in parts for task in part.tasks)
        agents.append(replace(parts[0], name=name, policy_version=f"{name}-v", tasks=tasks))
    return decide_promotion(*agents, TASKSET, PromotionRule(n_resamples=400))


def test_the_verdict_says_what_the_control_gained_alone_and_what_the_audit_tasks_say():
    decision = compared(0.6, (0.5, 0.5))
    alone = decision.control_versus_champion.difference
    lead = decision.versus_champion.difference.value
    control, audit = report_document(morning(decision=decision)).blocks[0].notes
    assert f"gained {100 * alone.value:+.1f} points [{100 * alone.interval.low:+.1f}, " in control
    assert control.endswith(f"the challenger's lead is {100 * lead:+.1f}.") and control.startswith("The control alone")
    assert "40 tasks × 4" in audit and "no difference is shown" in audit
    for note in (control, audit):
        assert note in explain_decision(decision) and note.split(";")[0] in report_markdown(
            report_document(morning(decision=decision))
        ).replace("\\", "")


@pytest.mark.parametrize(
    ("rates", "said"),
    [((0.2, 0.9), "better there too"), ((0.9, 0.2), "worse there."), ((0.5, 0.5), "no difference is shown")],
)
def test_the_audit_note_says_whether_the_lead_is_seen_there(rates, said):
    assert said in report_document(morning(decision=compared(0.3, rates))).blocks[0].notes[1]


def test_a_night_without_control_or_audit_says_so_or_nothing():
    assert report_document(morning()).blocks[0].notes == ("Audit tasks were not played.",)


@pytest.mark.parametrize("verdict", VERDICT_TITLES)
def test_every_verdict_has_its_word_everywhere(verdict):
    decision = replace(morning().decision, verdict=verdict, why="so it is")
    assert report_document(morning(decision=decision)).blocks[0].word == VERDICT_TITLES[verdict]
    assert summary_sentence(decision).startswith(f"{VERDICT_TITLES[verdict]}: so it is (champion ")
    assert explain_decision(decision).startswith(f"Verdict: {verdict}. So it is.")


def test_a_night_without_a_decision_says_how_far_it_is_and_how_to_go_on():
    made = morning(state="unfinished", decision=None, duels=(), pictures=(), done=7, last="build")
    banner = report_document(made).blocks[0]
    assert banner.word == "Not finished" and "7 steps are finished, the last one 'build'" in banner.sentence
    command = blocks(made, CommandList)[0].rows[0][0]
    assert command == f"ratchet night --scale smoke --night {made.point.night}"
    assert headings(made) == ["Data quality", "Time and cost", "Compared with the previous night", "Next steps"]


def test_a_failed_night_says_why():
    made = morning(state="failed", decision=None, duels=(), error="the disk is full; free space", done=3)
    banner = report_document(made).blocks[0]
    assert (banner.word, banner.tone) == ("Failed", "bad") and "the disk is full; free space" in banner.sentence


def test_a_night_that_failed_after_its_decision_shows_both():
    made = morning(state="failed", error="no route to the remote")
    assert report_document(made).blocks[0].word in VERDICT_TITLES.values()
    said = [block.text for block in blocks(made, Paragraph) if block.tone == "bad"]
    assert said[0] == "The night failed after its decision: no route to the remote."
    assert any("--night" in line for line, _ in blocks(made, CommandList)[0].rows)


def test_a_promotion_that_somebody_was_before_is_no_change_of_place():
    assert not any("promoted while the night ran" in block.text for block in blocks(morning(), Paragraph))
    made = morning(version=2, holder=9)
    said = [block.text for block in blocks(made, Paragraph) if block.tone == "bad"]
    assert said[0] == "Version 9, promoted while the night ran, stays champion."
    lines = [line for line, _ in blocks(made, CommandList)[0].rows]
    assert 'ratchet promote 2 --why "REASON"' in lines and not any("rollback" in line for line in lines)


def test_the_tables_hold_the_figures_of_the_record():
    made = morning()
    decision = made.decision
    text = report_markdown(report_document(made))
    for row in decision.by_kind:
        assert f"{row.kind} ({row.difference.tasks})" in text
    for guard in decision.guardrails:
        assert guard.name in text
    assert (
        f"{decision.versus_champion.won} : {decision.versus_champion.lost_to} : {decision.versus_champion.tied}" in text
    )
    assert "6,400 episodes, 1 in quarantine" in text and "validate, rollouts: turns_plausible" in text
    assert "collect attempts | 3 min 15 s" in text and "5,600 episodes played" in text
    assert (
        "| champion, success | 55.0 % | 55.0 % |".replace("55.0", f"{100 * decision.champion.success.value:.1f}")
        in text
    )


def test_a_guardrail_that_does_not_hold_is_told_in_capitals_and_in_red():
    decision = replace(
        morning().decision,
        guardrails=(
            Guardrail("mean_steps", 3.0, 4.0, 0.5, False, p_value=0.9, state="broken"),
            Guardrail("tokens", 3.0, 3.0, 0.5, True, p_value=0.01, state="holds"),
            Guardrail("old", 3.0, 3.0, 0.5, True),
        ),
    )
    table = next(
        block
        for block in report_document(morning(decision=decision)).blocks
        if getattr(block, "columns", ("",))[0] == "guardrail"
    )
    assert [row[1].replace("\u00a0", " ") for row in table.rows] == ["BROKEN, p = 0.9000", "holds, p = 0.0100", "holds"]
    assert table.tones == ("bad", "good", "good")


def test_a_match_that_brings_an_old_champion_back_is_told():
    decision = morning().decision
    match = AnchorMatch(
        decision.champion, decision.versus_champion, 0.025, True, "the champion is worse than the anchor"
    )
    made = morning(decision=replace(decision, match=match))
    said = [block for block in blocks(made, Paragraph) if block.text.startswith("Match: ")]
    assert (
        said[0].tone == "bad"
        and "Match: the champion is worse than the anchor (one-sided, for worse p = " in said[0].text
    )


def test_every_task_won_or_lost_is_listed_by_name_and_folded():
    made = morning()
    lists = {block.title.partition(":")[0]: block for block in blocks(made, CollapsedBlocks)}
    for word, won in (("won", True), ("lost", False)):
        names = [flip.task_id for flip in made.flips if flip.won is won]
        folded = lists.get(f"All tasks that the challenger {word}")
        assert [row[0] for row in folded.blocks[0].rows] == names if names else folded is None
    assert "All tasks that the challenger won" in lists


def test_the_next_steps_compare_both_agents_and_a_promotion_against_the_verdict_comes_last():
    made = morning(decision=replace(morning().decision, verdict="keep"))
    lines = [line for line, _ in blocks(made, CommandList)[0].rows]
    night = made.point.night
    assert f"ratchet compare {night}/champion {night}/challenger" in lines and "promote 2" in lines[-1]


def test_guardrails_have_units():
    guards = (
        Guardrail("mean_steps", 3.0, 3.1, 0.75, True),
        Guardrail("unsafe_actions", 0.0, 0.01, 0.06, True),
        Guardrail("lost_attempts", None, 0.0, 0.05, True),
    )
    made = morning(decision=replace(morning().decision, guardrails=guards))
    (table,) = [each for each in blocks(made, ReportTable) if each.columns[0] == "guardrail"]
    assert [row[2:] for row in table.rows] == [
        ("3 → 3.1 calls", "0.75 calls"),
        ("0.0 % → 1.0 % of attempts", "6 points"),
        ("n/a → 0.0 % of attempts", "5 points"),
    ]


def test_a_decision_says_what_the_audit_measures():
    assert "tasks never seen" in explain_decision(compared(0.3, (0.4, 0.6)))


def test_only_trained_agents_get_the_limit_of_their_recipe():
    decision = morning().decision
    agents = {
        name: replace(getattr(decision, name), agent=replace(decision.champion.agent, policy="openai"))
        for name in ("champion", "challenger")
    }
    served = replace(decision, **agents)
    assert "not about the recipe" not in explain_decision(served)
    trained = replace(served, champion=replace(served.champion, agent=replace(served.champion.agent, policy="vllm")))
    assert "not about the recipe" in explain_decision(trained)


def test_the_first_night_has_nothing_to_be_compared_with():
    made = morning(before=None, changes=())
    assert "There is no earlier night to compare with." in [block.text for block in blocks(made, Paragraph)]


def test_what_could_not_be_shown_is_named():
    made = morning(missing=("the figure 'success_bars': no font.",), pictures=())
    assert report_document(made).blocks[-1] == Paragraph("Not shown: the figure 'success_bars': no font.", "quiet")


def test_of_many_short_steps_the_time_is_added_up():
    cost = NightCost({"evaluate": 200.0, **{f"step {number}": 0.01 for number in range(50)}})
    text = report_markdown(report_document(morning(point=replace(morning().point, cost=cost))))
    assert (
        "| evaluate | 3 min 20 s | 99.8 % |" in text
        and "| all other steps | 0.5 s | 0.2 % |" in text
        and "step 7" not in text
    )


def test_a_night_of_which_nothing_is_known_still_has_a_report():
    bare = replace(morning().point, cost=None, quality=None, begun="", scale="")
    made = morning(
        point=bare, decision=None, before=None, changes=(), duels=(), pictures=(), verdicts=(), ended=None, version=None
    )
    text = report_markdown(report_document(made))
    assert "No data was checked." in text and "Neither time nor cost is known." in text


def test_a_pair_shows_once_what_both_did_and_side_by_side_what_they_did_not():
    made = morning()
    chosen = made.duels[0]
    start = next(
        place for place, block in enumerate(report_document(made).blocks) if isinstance(block, SubsectionTitle)
    )
    pair = report_document(made).blocks[start:]
    title, _, task, begin, parting, submit, _, end = pair[:8]
    assert title.text == f"Won: {chosen.flip.task_id}" and title.tone == "good"
    assert isinstance(task, CollapsedBlocks) and task.blocks == (QuotedText("task", chosen.champion.task.description),)
    assert isinstance(begin, CollapsedBlocks) and begin.title == "Both begin with the same turn"
    assert [block.label for block in begin.blocks] == ["both, turn 1: read_file", "answer, exit 0"]
    assert isinstance(parting, SideBySide)
    assert parting.left[0].label == "champion, turn 2: edit_file" and "return bad" in parting.left[0].text
    assert parting.right[0].label == "challenger, turn 2: edit_file" and "return good" in parting.right[0].text
    assert submit == QuotedText("both, turn 3: submit", "")
    assert end.left[0].text.startswith("not solved, 1 of 4 tests passed (submitted), 3 turns")
    assert end.right[0].text.startswith("solved, 4 of 4 tests passed (submitted), 3 turns")


def test_a_success_that_a_guard_calls_a_hack_is_told_as_what_it_counted_for():
    made = morning()
    first = made.duels[0]
    attempt = replace(first.flip.attempts[0], a_cause="hack: test_edit")
    hacked = replace(first, flip=replace(first.flip, attempts=(attempt,)), champion=first.challenger)
    sides = blocks(morning(duels=(hacked,)), SideBySide)
    assert "not solved, 4 of 4 tests passed (hack: test_edit)" in sides[-1].left[0].text


def test_losses_are_shown_beside_wins():
    titles = [block.text for block in blocks(morning(), SubsectionTitle)]
    assert len(titles) == 5 and sum(text.startswith("Lost: ") for text in titles) == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (998, "16 min 38 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_a_duration_is_told_as_people_say_it(seconds, text):
    assert format_duration(seconds) == text


def test_a_day_is_told_as_people_say_it_and_what_is_none_stays():
    assert (
        format_time("2026-11-01T21:37:05.5+00:00") == "1 November 2026, 21:37 UTC"
        and format_time("yesterday") == "yesterday"
    )


def test_an_agent_that_stayed_as_it_was_and_changed_is_told():
    moved = BenchmarkDrift("ckpt-1", "hash", (), 0.5, 0.0004, None, None)
    said = [block for block in blocks(morning(drifts=(moved,)), Paragraph) if "ckpt-1" in block.text]
    assert said[0].tone == "bad" and "p = 0.0004" in said[0].text and "the tasks or the system changed" in said[0].text
