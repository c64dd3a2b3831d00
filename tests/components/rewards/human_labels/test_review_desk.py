"""The review desk: labels, undo and restarts behave like a stack, the file is the truth, and nobody sees another's label."""

import multiprocessing
import os
import signal

import pytest
from episodes import make_episode
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import append_json_lines
from ratchet.components.rewards.annotation_records import Judgement, Label
from ratchet.components.rewards.calibration.labelled_scores import latest_labels, match_labels, settled_labels
from ratchet.components.rewards.human_labels.label_files import read_labels, unsealed_labels
from ratchet.components.rewards.human_labels.review_desk import ProposedPair, ReviewDesk, ReviewItem, open_desk

EPISODES = {each.episode_id: each for each in (make_episode(attempt=n, success=n == 0) for n in range(3))}
FIRST, SECOND, THIRD = EPISODES
STEPS = [ReviewItem(FIRST, turn, 0) for turn in range(3)] + [ReviewItem(SECOND, turn, 0) for turn in range(2)]
PAIRS = [ReviewItem(FIRST, 1, -1, SECOND)]


def desk_of(path, reviewer="ann", **changes):
    return ReviewDesk(reviewer, STEPS, PAIRS, EPISODES, path, **changes)


def values(desk, queue="steps"):
    return [None if each.own is None else each.own.value for each in desk.queue(queue)]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("label"), st.integers(0, len(STEPS)), st.sampled_from([0.0, 1.0])),
        st.sampled_from([("undo",), ("restart",)]),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=40)
@given(ACTIONS)
def test_any_labels_undos_and_restarts_leave_what_a_stack_would_hold(tmp_path_factory, actions):
    path = tmp_path_factory.mktemp("desk") / "labels.jsonl"
    desk, model, items = desk_of(path), {}, [*STEPS, *PAIRS]
    for name, *arguments in actions:
        if name == "label":
            item, value = items[arguments[0]], arguments[1]
            desk.add(item.item_id, value)
            if model.get(item) != value:  # the same answer again is no new one
                model.pop(item, None)
                model[item] = value
        elif name == "undo":
            undone = desk.undo()
            assert undone == (next(reversed(model)) if model else None)
            model.pop(undone, None)
        else:
            desk = desk_of(path)
        shown = dict(zip(items, values(desk) + values(desk, "pairs"), strict=True))
        assert shown == {item: model.get(item) for item in items}
    counted = latest_labels(read_labels(path)) if path.exists() else []
    assert {(each.episode_id, each.turn, each.line): each.value for each in counted} == {
        (item.episode_id, item.turn, item.line): value for item, value in model.items()
    }


def _label_until_killed(path, started):
    desk = desk_of(path)
    for item in STEPS:
        desk.add(item.item_id, 1.0)
    started.set()
    while True:
        desk.undo()
        desk.add(STEPS[-1].item_id, 1.0)


@pytest.mark.slow
def test_a_killed_desk_loses_no_label_and_doubles_none(tmp_path):
    path, context = tmp_path / "labels.jsonl", multiprocessing.get_context("fork")
    started = context.Event()
    process = context.Process(target=_label_until_killed, args=(path, started))
    process.start()
    assert started.wait(30)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    desk = desk_of(path)
    assert values(desk)[:-1] == [1.0] * (len(STEPS) - 1)
    assert [each.own for each in desk.queue("steps")[:-1]] == list(read_labels(path))[: len(STEPS) - 1]
    desk.add(STEPS[-1].item_id, 0.0)
    assert values(desk_of(path)) == [1.0] * (len(STEPS) - 1) + [0.0]


def test_a_repeated_request_appends_nothing(tmp_path):
    desk = desk_of(tmp_path / "labels.jsonl")
    assert desk.add(STEPS[0].item_id, 1.0) == desk.add(STEPS[0].item_id, 1.0)
    assert len(list(read_labels(tmp_path / "labels.jsonl"))) == 1


def test_labels_of_other_processes_appear_at_once(tmp_path):
    first, second = desk_of(tmp_path / "labels.jsonl"), desk_of(tmp_path / "labels.jsonl")
    first.add(STEPS[2].item_id, 0.5)
    assert values(second)[2] == 0.5 and second.undo() == STEPS[2] and values(first)[2] is None


def test_nobody_sees_a_label_before_giving_one(tmp_path):
    ann, bob = desk_of(tmp_path / "labels.jsonl"), desk_of(tmp_path / "labels.jsonl", "bob")
    ann.add(STEPS[0].item_id, 1.0)
    assert values(bob) == [None] * len(STEPS) and bob.agreement("steps").things == 0
    bob.add(STEPS[0].item_id, 0.0)
    assert all(each.others == () for each in bob.queue("steps")) and bob.queue("disputes") == []
    assert bob.agreement("steps").things == 1


def test_a_third_person_decides_a_dispute_and_only_that_counts(tmp_path):
    path = tmp_path / "labels.jsonl"
    ann, bob, cy, dan = (desk_of(path, name) for name in ("ann", "bob", "cy", "dan"))
    for desk, labels in ((ann, (1.0, 1.0)), (bob, (1.0, 0.0))):
        for item, value in zip(STEPS, labels, strict=False):
            desk.add(item.item_id, value)
    (disputed,) = cy.queue("disputes")
    assert disputed.item == STEPS[1] and {each.value for each in disputed.others} == {0.0, 1.0}
    cy.add(STEPS[1].item_id, 0.0, "the file was empty", adjudicate=True)
    assert [each.own.value for each in cy.queue("disputes")] == [0.0] and dan.queue("disputes") == []
    counted = [each for each in settled_labels(read_labels(path)) if each.turn == 1]
    assert [(each.annotator, each.value) for each in counted] == [("adjudication:cy", 0.0)]
    assert STEPS[1] not in [each.item for each in cy.queue("steps")]
    with pytest.raises(DataError, match="not in dispute"):
        dan.add(STEPS[1].item_id, 1.0, adjudicate=True)
    with pytest.raises(DataError, match="undo that first"):
        cy.add(STEPS[1].item_id, 1.0)
    assert cy.undo() == STEPS[1] and [each.own for each in cy.queue("disputes")] == [None]
    assert len(dan.queue("disputes")) == 1


def test_a_score_is_calibrated_on_the_decision_and_not_on_the_mean(tmp_path):
    judgement = Judgement(
        key="k", layer="judge", episode_id=FIRST, content_hash=EPISODES[FIRST].content_hash, domain="coding", turn=0,
        step=0, rubric="r", judge="j", prompt="p", overall=0.5,
    )  # fmt: skip
    path = tmp_path / "labels.jsonl"
    desk_of(path, "ann").add(STEPS[0].item_id, 1.0)
    desk_of(path, "bob").add(STEPS[0].item_id, 0.0)
    assert match_labels([judgement], read_labels(path)).pairs[0].label == 0.5
    desk_of(path, "cy").add(STEPS[0].item_id, 1.0, adjudicate=True)
    assert match_labels([judgement], read_labels(path)).pairs[0].label == 1.0


def test_the_desk_fills_what_a_night_seals_and_a_withdrawal_is_sealed_after_its_label(tmp_path):
    path = tmp_path / "labels.jsonl"
    desk = desk_of(path)
    desk.add(STEPS[0].item_id, 1.0)
    desk.add(STEPS[1].item_id, 0.0)
    desk.undo()
    first_night = unsealed_labels(read_labels(path), [])
    assert [(each.turn, each.value, each.content_hash) for each in first_night] == [
        (0, 1.0, EPISODES[FIRST].content_hash)
    ]
    desk.undo()
    second_night = unsealed_labels(read_labels(path), first_night)
    assert [(each.turn, each.value) for each in second_night] == [(0, None)]
    assert latest_labels([*first_night, *second_night]) == []
    assert unsealed_labels(read_labels(path), [*first_night, *second_night]) == []


def test_sealed_labels_of_another_clone_count_as_given(tmp_path):
    desk_of(tmp_path / "sealed.jsonl").add(STEPS[3].item_id, 1.0)
    desk = desk_of(tmp_path / "labels.jsonl", sealed=[tmp_path / "sealed.jsonl"])
    assert values(desk)[3] == 1.0


def test_the_latest_label_is_shown_wherever_it_was_sealed_or_imported(tmp_path):
    here, there = tmp_path / "labels.jsonl", tmp_path / "sealed.jsonl"
    desk_of(here).add(STEPS[0].item_id, 1.0)
    append_json_lines(there, [*read_labels(here)])
    desk_of(there).undo()
    assert latest_labels([*read_labels(there), *read_labels(here)]) == []
    desk = desk_of(here, sealed=[there])
    assert values(desk)[0] is None and desk.undo() is None
    given = next(read_labels(there))
    old = Label(
        **{
            name: getattr(given, name) for name in ("episode_id", "content_hash", "domain", "turn", "step", "annotator")
        },
        value=1.0,
        labelled_at="2020-01-01",
    )
    append_json_lines(here, [old])
    assert values(desk)[0] is None


def test_who_decided_a_dispute_is_not_asked_again_when_one_of_its_labels_is_withdrawn(tmp_path):
    ann, bob, cy = (desk_of(tmp_path / "labels.jsonl", name) for name in ("ann", "bob", "cy"))
    ann.add(STEPS[0].item_id, 1.0)
    bob.add(STEPS[0].item_id, 0.0)
    cy.add(STEPS[0].item_id, 1.0, adjudicate=True)
    ann.undo()
    assert STEPS[0] not in [each.item for each in cy.queue("steps")]
    assert cy.undo() == STEPS[0] and STEPS[0] in [each.item for each in cy.queue("steps")]


def test_labels_of_an_episode_that_was_played_again_do_not_count(tmp_path):
    old = Label(episode_id=FIRST, content_hash="other", domain="coding", turn=0, step=0, value=1.0, annotator="ann")
    append_json_lines(tmp_path / "labels.jsonl", [old])
    assert values(desk_of(tmp_path / "labels.jsonl"))[0] is None


def test_two_reviewers_meet_the_same_steps_and_the_closest_pairs_first(tmp_path):
    pairs = [ProposedPair(FIRST, SECOND, 1, 0.9, "a"), ProposedPair(FIRST, THIRD, -1, 0.1, "b")]
    desks = [
        open_desk(name, lambda: iter(EPISODES.values()), [], pairs, tmp_path / "labels.jsonl", budget=4)
        for name in ("ann", "bob")
    ]
    assert desks[0].queue("steps") == desks[1].queue("steps") and len(desks[0].queue("steps")) == 4
    assert [each.item.turn for each in desks[0].queue("pairs")] == [-1, 1]


@pytest.mark.parametrize(
    "name", ["", " ", "ann ", "a:b", "repair", "adjudication", "a\nb", "a\u202eb", "\udcff", "x" * 101]
)
def test_a_name_that_another_source_of_labels_has_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match="name"):
        desk_of(tmp_path / "labels.jsonl", name)


def test_a_damaged_file_is_refused_with_its_line(tmp_path):
    (tmp_path / "labels.jsonl").write_bytes(b'{"episode_id": 3}\n')
    with pytest.raises(DataError, match="line 1"):
        desk_of(tmp_path / "labels.jsonl")
