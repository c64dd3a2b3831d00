"""The stage: from sealed nights and their scores to the table of pairs."""

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratchet.components.datasets.export.message_views import edited_view
from ratchet.components.datasets.export.ranked_episodes import read_pairs
from ratchet.components.rewards import scoring_stage
from ratchet.components.rewards.annotation_records import PREFERRED_TO, Label
from ratchet.components.rewards.preferences import pairs_stage
from ratchet.components.trajectories.shards import write_shard
from ratchet.components.trajectories.trajectory import Parent, with_content_hash


@pytest.fixture
def night(tmp_path, play):
    """One task played three times by three policies of different skill, one crash, one task that may not be trained on."""
    folder = tmp_path / "rollouts" / "night-1"
    folder.mkdir(parents=True)
    episodes = [
        play.solver(attempt=0),
        play.trajectory(play.read(), play.edit("sum", "max"), play.submit(), success=False, attempt=1),
        play.trajectory(play.read(), play.read(), play.edit("- 1", "+ 0"), play.submit(), success=True, attempt=2),
        play.trajectory(play.read(), success=False, infrastructure=True, attempt=3),
        play.solver(attempt=4, role="promote", task_id="held-out"),
        play.trajectory(play.unreadable(), success=False, attempt=5, role="promote", task_id="held-out"),
    ]
    write_shard(folder, 0, episodes[:3])
    write_shard(folder, 1, episodes[3:])
    return folder, episodes


def scores_of(folder, tmp_path, *more):
    out = tmp_path / "scores" / f"{folder.name}.parquet"
    assert scoring_stage.main(["--rollouts", str(folder), "--domain-from-task", "--out", str(out), *more]) == 0
    return out


@pytest.fixture
def scored(night, tmp_path):
    return scores_of(night[0], tmp_path)


@pytest.fixture
def ranked(night, tmp_path):
    def write(*accepted):
        path = tmp_path / "ranked.parquet"
        ids = [each.episode_id for each in [*night[1], *accepted]]
        named = {each.episode_id for each in accepted}
        pq.write_table(pa.table({"episode_id": ids, "accepted": [each in named for each in ids]}), path)
        return path

    return write


def build_pairs(night, scored, ranked, out, *more):
    flags = ["--rollouts", str(night[0]), "--scores", str(scored), "--ranked", str(ranked), "--out", str(out), *more]
    return pairs_stage.main(flags), pq.read_table(out).to_pylist() if out.exists() else None


def test_the_table_of_pairs(night, scored, ranked, tmp_path, capsys):
    won, lost, slow = night[1][:3]
    code, rows = build_pairs(night, scored, ranked(won, slow), tmp_path / "pairs.parquet")
    assert code == 0
    table = pq.read_table(tmp_path / "pairs.parquet")
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("task_id", "string"), ("level", "string"), ("turn", "int32"), ("chosen_episode_id", "string"),
        ("rejected_episode_id", "string"), ("margin", "double"), ("chosen_length", "int32"), ("rejected_length", "int32"),
    ]  # fmt: skip
    step = [row for row in rows if row["level"] == "step"]
    assert [(row["turn"], row["chosen_episode_id"], row["rejected_episode_id"]) for row in step] == [
        (1, won.episode_id, lost.episode_id)
    ]
    assert all(row["chosen_length"] > 0 and row["rejected_length"] > 0 for row in rows)
    assert {row["task_id"] for row in rows} == {"price-1"}
    assert {row["level"] for row in rows} == {"step", "trajectory"}
    said = capsys.readouterr().out
    assert "1 step-level (length gap" in said and "no_worth 1" in said


def test_only_accepted_episodes_are_chosen(night, scored, ranked, tmp_path):
    slow = night[1][2]
    _, rows = build_pairs(night, scored, ranked(slow), tmp_path / "pairs.parquet")
    assert rows and {row["chosen_episode_id"] for row in rows} == {slow.episode_id}


def test_a_known_failure_is_never_chosen(night, scored, ranked, tmp_path):
    _, rows = build_pairs(night, scored, ranked(night[1][1]), tmp_path / "pairs.parquet")
    assert rows == []


def test_infrastructure_failures_and_other_roles_are_in_no_pair(night, scored, ranked, tmp_path):
    _, rows = build_pairs(night, scored, ranked(*night[1]), tmp_path / "pairs.parquet")
    named = {row[side] for row in rows for side in ("chosen_episode_id", "rejected_episode_id")}
    assert named <= {each.episode_id for each in night[1][:3]}


def test_the_same_inputs_give_the_same_bytes(night, scored, ranked, tmp_path):
    path = ranked(*night[1])
    for name in ("one.parquet", "two.parquet"):
        build_pairs(night, scored, path, tmp_path / name)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


class TestNights:
    def another(self, tmp_path, *episodes):
        folder = tmp_path / "rollouts" / "night-2"
        folder.mkdir()
        write_shard(folder, 0, list(episodes))
        return folder

    def test_several_nights_are_joined(self, night, scored, ranked, tmp_path, play):
        late = play.trajectory(play.bash("ls"), play.submit(), success=False, attempt=9)
        folder = self.another(tmp_path, late)
        flags = ["--rollouts", str(folder), "--scores", str(scores_of(folder, tmp_path))]
        won = night[1][0]
        _, rows = build_pairs(night, scored, ranked(won), tmp_path / "pairs.parquet", *flags)
        found = {(row["turn"], row["chosen_episode_id"], row["rejected_episode_id"]) for row in rows}
        assert (0, won.episode_id, late.episode_id) in found

    @pytest.mark.parametrize("whole", [True, False], ids=["all turns", "only new turns"])
    def test_a_branch_of_another_night_is_paired_with_its_parent_where_they_part(
        self, night, scored, ranked, tmp_path, play, whole
    ):
        lost = night[1][1]
        own = play.solver(attempt=9)
        branch = msgspec.structs.replace(own, parent=Parent(lost.episode_id, 1))
        if not whole:
            turns = tuple(msgspec.structs.replace(each, index=each.index - 1) for each in own.turns[1:])
            branch = msgspec.structs.replace(branch, turns=turns, messages=())
        branch = with_content_hash(branch)
        folder = self.another(tmp_path, branch)
        flags = ["--rollouts", str(folder), "--scores", str(scores_of(folder, tmp_path))]
        _, rows = build_pairs(night, scored, ranked(branch), tmp_path / "pairs.parquet", *flags)
        step = [row for row in rows if row["level"] == "step"]
        assert [(row["turn"], row["chosen_episode_id"], row["rejected_episode_id"]) for row in step] == [
            (1, branch.episode_id, lost.episode_id)
        ]

    def test_a_branch_whose_parent_is_not_there_is_left_out_and_counted(
        self, night, scored, ranked, tmp_path, play, capsys
    ):
        own = play.solver(attempt=9)
        orphan = with_content_hash(msgspec.structs.replace(own, turns=own.turns[:1], parent=Parent("ep-gone", 3)))
        folder = self.another(tmp_path, orphan)
        flags = ["--rollouts", str(folder), "--scores", str(scores_of(folder, tmp_path))]
        capsys.readouterr()
        code, rows = build_pairs(night, scored, ranked(*night[1]), tmp_path / "pairs.parquet", *flags)
        assert code == 0 and rows and "no_parent 1" in capsys.readouterr().out

    def test_totals_of_two_versions_are_not_compared(self, night, scored, ranked, tmp_path, capsys, play):
        folder = self.another(tmp_path, play.solver(attempt=9))
        params = tmp_path / "params.yaml"
        params.write_text("score: {weights: {process: 2}}")
        scores = scores_of(folder, tmp_path, "--params", str(params))
        flags = ["--rollouts", str(folder), "--scores", str(scores)]
        code, _ = build_pairs(night, scored, ranked(), tmp_path / "pairs.parquet", *flags)
        assert code == 3 and "score its nights anew" in capsys.readouterr().err

    def test_logs_of_two_domains_may_name_one_task_and_are_not_compared(self, night, scored, ranked, tmp_path, play):
        own = play.solver(attempt=9)
        other = with_content_hash(
            msgspec.structs.replace(own, task=msgspec.structs.replace(own.task, domain="generic"))
        )
        folder = self.another(tmp_path, other)
        flags = ["--rollouts", str(folder), "--scores", str(scores_of(folder, tmp_path))]
        code, rows = build_pairs(night, scored, ranked(*night[1], other), tmp_path / "pairs.parquet", *flags)
        sides = {row[side] for row in rows for side in ("chosen_episode_id", "rejected_episode_id")}
        assert code == 0 and sides and other.episode_id not in sides


class TestWrongInput:
    def test_a_night_without_scores_is_refused(self, night, scored, ranked, tmp_path, capsys, play):
        write_shard(night[0], 2, [play.solver(attempt=7)])
        code, rows = build_pairs(night, scored, ranked(), tmp_path / "pairs.parquet")
        assert (code, rows) == (3, None)
        assert "has no scores; score this night first" in capsys.readouterr().err

    def test_an_unreadable_ranked_table_ends_in_one_line(self, night, scored, tmp_path, capsys):
        wrong = tmp_path / "ranked.parquet"
        pq.write_table(pa.table({"episode_id": ["a"]}), wrong)
        code, _ = build_pairs(night, scored, wrong, tmp_path / "pairs.parquet")
        error = capsys.readouterr().err
        assert code == 3 and "ranked.parquet" in error and error.count("\n") == 1
        code, _ = build_pairs(night, scored, tmp_path / "absent.parquet", tmp_path / "pairs.parquet")
        assert code == 3

    def test_an_unknown_level_is_refused(self, night, scored, ranked, tmp_path, capsys):
        params = tmp_path / "params.yaml"
        params.write_text("pairs: {levels: [steps]}")
        code, _ = build_pairs(night, scored, ranked(), tmp_path / "pairs.parquet", "--params", str(params))
        assert code == 2 and "levels" in capsys.readouterr().err


class TestReviewedPairs:
    """What people decided on pairs outranks what scores propose."""

    @pytest.fixture
    def build(self, night, scored, ranked, tmp_path):
        won, _, slow, *_ = night[1]

        def run(*labels):
            path = tmp_path / "labels.jsonl"
            path.write_bytes(msgspec.json.Encoder().encode_lines(labels))
            _, rows = build_pairs(night, scored, ranked(won, slow), tmp_path / "p.parquet", "--labels", str(path))
            return {(row["turn"], row["chosen_episode_id"], row["rejected_episode_id"]) for row in rows}

        return run

    @staticmethod
    def verdict(pair, value, annotator="ann", **changes):
        turn, chosen, rejected = pair
        fields = {"episode_id": chosen, "content_hash": "", "domain": "coding", "turn": turn, "annotator": annotator}
        return Label(**fields, line=PREFERRED_TO + rejected, value=value, **changes)

    def test_a_rejected_pair_is_left_out_and_the_others_stay(self, build):
        before = build()
        for pair in before:
            assert build(self.verdict(pair, 0.0)) == before - {pair}

    def test_an_accepted_pair_stays_and_one_that_no_build_proposed_is_added(self, build, night):
        before = build()
        _, lost, slow, *_ = (each.episode_id for each in night[1])
        assert build(*(self.verdict(pair, 1.0) for pair in before)) == before
        third = (1, slow, lost)  # of three options, the build pairs the best with the worst
        assert third not in before
        assert build(self.verdict(third, 1.0)) == before | {third}

    def test_people_who_are_evenly_divided_decide_nothing_until_a_third_does(self, build):
        before = build()
        pair = min(before)
        divided = [self.verdict(pair, 1.0, "ann"), self.verdict(pair, 0.0, "bob")]
        assert build(*divided) == before
        assert build(*divided, self.verdict(pair, 0.0, "adjudication:cy")) == before - {pair}

    def test_a_withdrawn_verdict_or_one_about_other_content_decides_nothing(self, build):
        before = build()
        pair = min(before)
        given = self.verdict(pair, 0.0, labelled_at="2026-11-20T00:00:00+00:00")
        assert build(given, self.verdict(pair, None, labelled_at="2026-11-21T00:00:00+00:00")) == before
        assert build(msgspec.structs.replace(given, content_hash="played again")) == before

    def test_an_accepted_pair_is_dropped_once_scores_contradict_it(self, build, night):
        won, lost, *_ = (each.episode_id for each in night[1])
        assert not {(1, lost, won), (-1, lost, won)} & build(
            self.verdict((1, lost, won), 1.0), self.verdict((-1, lost, won), 1.0)
        )

    def test_an_edited_message_replaces_the_chosen_one_and_reaches_the_dataset(self, build, tmp_path):
        before = build()
        (pair,) = (each for each in before if each[0] == 1)
        edit = '{"text": "Better.", "calls": [{"tool": "edit_file", "arguments": {"new": "by a person"}}]}'
        assert build(self.verdict(pair, 1.0, edit=edit)) == before
        rows = {row.turn: row for row in read_pairs(tmp_path / "p.parquet")}
        assert rows[1].edit == edit and rows[-1].edit == ""
        (message,) = msgspec.json.decode(edited_view(rows[1].edit, "tools"))
        assert message["content"] == "Better." and message["tool_calls"][0]["function"] == {
            "name": "edit_file", "arguments": {"new": "by a person"},
        }  # fmt: skip
        assert b"<tool_call>" in edited_view(rows[1].edit, "text")

    def test_an_edit_that_says_what_the_rejected_side_says_is_no_pair(self, build, night):
        before = build()
        (pair,) = (each for each in before if each[0] == 1)
        rejected = next(each for each in night[1] if each.episode_id == pair[2]).turns[1]
        edit = {"text": rejected.text, "calls": [{"tool": c.tool, "arguments": c.arguments} for c in rejected.calls]}
        assert build(self.verdict(pair, 1.0, edit=msgspec.json.encode(edit).decode())) == before - {pair}
