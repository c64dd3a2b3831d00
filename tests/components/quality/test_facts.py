"""The flat row of an episode says what happened and invents nothing."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from episodes import make_episode, turn, write_night

from components.protocol import DataError
from components.quality.facts import FIELDS, Scores, facts, read_scores, table_of
from components.trajectories.record import Outcome, Trajectory, sealed
from components.trajectories.sanitise import remaining, sanitise_trajectory

NONE = Scores({}, set(), set())


def row(trajectory: Trajectory, scores: Scores = NONE) -> dict[str, object]:
    return facts(trajectory, "n1", scores, {"teacher"}, lambda _: ())


def write_scores(path: Path, *rows: tuple[str, int, str, float | None]) -> Path:
    columns = zip(*[(episode, turn, -1, scorer, "v1", score) for episode, turn, scorer, score in rows], strict=True)
    names = ("episode_id", "turn", "step", "scorer", "version", "score")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), path)
    return path


def test_an_unscored_episode_has_no_total() -> None:
    assert (row(make_episode())["total"], row(make_episode())["scored"]) == (None, False)


def test_an_infrastructure_failure_needs_no_score_and_must_not_have_one() -> None:
    broken = make_episode(broken=True)
    assert (row(broken)["scored"], row(broken)["failure_unscored"], row(broken)["success"]) == (True, True, None)
    assert row(broken, Scores({}, {broken.episode_id}, set()))["failure_unscored"] is False


@pytest.mark.parametrize(
    ("success", "passed", "total", "consistent"),
    [
        (True, 4, 4, True),
        (True, 3, 4, False),
        (True, 0, 0, False),
        (False, 3, 4, True),
        (False, 5, 4, False),
        (None, None, None, True),
    ],
)
def test_success_means_that_all_tests_passed(
    success: bool | None, passed: int | None, total: int | None, consistent: bool
) -> None:
    episode = make_episode(outcome=Outcome(success, None, passed, total))
    assert row(episode)["outcome_consistent"] is consistent


def test_every_call_needs_its_result() -> None:
    lost = msgspec.structs.replace(turn(0, "read_file"), results=())
    assert row(make_episode(turns=[lost, turn(1, "submit")]))["calls_answered"] is False
    assert row(make_episode(turns=[turn(0, "read_file"), msgspec.structs.replace(turn(1, "submit"), results=())]))[
        "calls_answered"
    ]


def test_a_changed_record_does_not_match_its_hash() -> None:
    episode = make_episode()
    assert row(episode)["hash_matches"] is True
    assert row(msgspec.structs.replace(episode, outcome=Outcome(False)))["hash_matches"] is False


def test_a_success_and_a_failure_of_the_same_turns_are_two_contents() -> None:
    failed = sealed(msgspec.structs.replace(make_episode(), outcome=Outcome(False, None, 1, 4)))
    assert failed.content_hash != make_episode().content_hash


def test_two_texts_that_say_the_same_call_are_one_run_and_two_contents() -> None:
    episode = make_episode()
    first = episode.turns[0]
    call = msgspec.structs.replace(first.calls[0], raw=first.calls[0].raw + " ")
    other = msgspec.structs.replace(first, calls=(call, *first.calls[1:]))
    spaced = sealed(msgspec.structs.replace(episode, turns=(other, *episode.turns[1:])))
    assert row(spaced)["content_hash"] != row(episode)["content_hash"]
    assert row(spaced)["messages_hash"] == row(episode)["messages_hash"]


def test_the_teachers_episodes_are_demonstrations() -> None:
    assert row(make_episode(policy="teacher"))["source"] == "demonstration"
    assert row(make_episode())["source"] == "on_policy"


def test_scores_out_of_range_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = write_scores(
        tmp_path / "s.parquet",
        ("a", -1, "total", 0.5),
        ("b", 0, "validity", 1.2),
        ("c", 0, "validity", None),
        ("d", 1, "x", float("nan")),
    )
    scores = read_scores(path)
    assert scores.out_of_range == {"b", "d"}
    assert scores.totals == {"a": {"total": 0.5}}
    assert "c" not in scores.scored


def test_two_totals_of_one_episode_are_refused(tmp_path: Path) -> None:
    path = write_scores(tmp_path / "s.parquet", ("a", -1, "total", 0.5), ("a", -1, "total", 0.6))
    with pytest.raises(DataError, match="a has two scores 'total'"):
        read_scores(path)


def test_the_table_is_sorted_and_counts_groups_without_broken_episodes(tmp_path: Path) -> None:
    made = [make_episode(attempt=0), make_episode(attempt=1), make_episode(attempt=2, broken=True)]
    folder = write_night(tmp_path / "n1", made)
    scores = write_scores(tmp_path / "n1.parquet", *((each.episode_id, -1, "total", 0.5) for each in made[:2]))
    columns = table_of({"n1": (folder, scores)}, ["teacher"], lambda _: ())
    assert list(columns) == list(FIELDS)
    assert columns["episode_id"] == sorted(each.episode_id for each in made)
    assert set(columns["group_size"]) == {2}
    shown = table_of({"n1": (folder, scores)}, ["transformers"], lambda _: ())
    assert set(shown["group_size"]) == {None}  # a demonstration's group measures nobody


def test_what_must_not_be_there_is_counted() -> None:
    episode = make_episode(edit="token = 'gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8'")
    counted = facts(episode, "n1", NONE, (), remaining)["secrets_remaining"]
    clean, _ = sanitise_trajectory(episode)
    assert counted > 0
    assert clean is not None
    assert facts(clean, "n1", NONE, (), remaining)["secrets_remaining"] == 0


def test_a_damaged_scores_file_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match=r"s.parquet is not a Parquet table"):
        read_scores(path)


def test_a_success_in_which_a_hack_was_found_is_none() -> None:
    won = make_episode()
    caught, clean, unchecked = (
        row(won, Scores({won.episode_id: {"total": 0.0, "layer.guards": guards}}, {won.episode_id}, set()))
        for guards in (0.0, 1.0, None)
    )
    assert [(each["success"], each["caught"]) for each in (caught, clean, unchecked)] == [
        (False, True), (True, False), (True, False)
    ]  # fmt: skip


def test_what_the_guards_said_is_read_from_the_table(tmp_path: Path) -> None:
    path = write_scores(tmp_path / "n1.parquet", ("ep-1", -1, "layer.guards", 0.0), ("ep-1", -1, "total", 0.0))
    assert read_scores(path).totals["ep-1"] == {"layer.guards": 0.0, "total": 0.0}
