"""Labels in files: what people filled in elsewhere is taken whole or refused with its line, and nothing that was kept is lost."""

import multiprocessing

import msgspec
import pytest
from episodes import make_episode
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import append_json_lines, read_json_lines
from ratchet.components.rewards.annotation_records import Label
from ratchet.components.rewards.human_labels.label_files import (
    LABEL_COLUMNS,
    add_labels,
    export_labels,
    import_labels,
    label_subjects,
    read_labels,
    unsealed_labels,
)

HEADER = "episode_id,turn,step,value,annotator,domain\n"


def label(**changes) -> Label:
    fields = {"episode_id": "ep-1", "content_hash": "c", "domain": "coding", "value": 1.0, "annotator": "ann"}
    return Label(**(fields | changes))


def table(tmp_path, text, name="labels.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


class TestImport:
    def test_a_table_of_people_becomes_labels(self, tmp_path):
        path = table(tmp_path, HEADER + "ep-1,0,0,yes,ann,coding\nep-1,1,0,0.25,bob,coding\nep-2,,,no,ann,coding\n")
        found = import_labels(path)
        assert [(each.turn, each.step, each.value, each.annotator) for each in found] == [
            (0, 0, 1.0, "ann"),
            (1, 0, 0.25, "bob"),
            (-1, -1, 0.0, "ann"),
        ]

    def test_semicolons_a_byte_order_mark_windows_lines_and_decimal_commas_are_read(self, tmp_path):
        path = table(tmp_path, "\ufeffepisode_id;value;annotator;domain\r\nep-1;0,5;ann;coding\r\n")
        assert [each.value for each in import_labels(path)] == [0.5]

    def test_a_comment_may_hold_commas_quotes_and_lines(self, tmp_path):
        path = table(tmp_path, 'episode_id,value,annotator,domain,comment\nep-1,1,ann,coding,"a, ""b""\nc"\n')
        assert import_labels(path)[0].comment == 'a, "b"\nc'

    def test_trajectories_fill_in_what_they_know_and_who_labels_can_be_said_once(self, tmp_path):
        episode = make_episode()
        path = table(tmp_path, f"episode_id,turn,step,value\n{episode.episode_id},1,0,1\n")
        (found,) = import_labels(path, label_subjects([episode]), annotator="ann", labelled_at="2026-11-21")
        assert (found.content_hash, found.domain, found.annotator) == (episode.content_hash, "coding", "ann")
        assert found.labelled_at == "2026-11-21"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "no column 'episode_id'"),
            ("episode,value\n", "no column 'episode_id'"),
            (HEADER, "holds no label"),
            (HEADER + "ep-1,0,0,1.5,ann,coding\n", "line 2: 'value' must be in \\[0, 1\\], or yes or no, found 1.5"),
            (HEADER + "ep-1,0,0,perhaps,ann,coding\n", "line 2: .* found 'perhaps'"),
            (HEADER + "ep-1,0,0,nan,ann,coding\n", "line 2: 'value'"),
            (HEADER + "ep-1,0,0,1,ann,coding\n,0,0,1,ann,coding\n", "line 3: 'episode_id' is missing"),
            (HEADER + "ep-1,one,0,1,ann,coding\n", "line 2: 'turn' must be a number"),
            (HEADER + "ep-1,-2,0,1,ann,coding\n", "line 2: 'turn' must be a number"),
            (HEADER + "ep-1,0,0,1,,coding\n", "line 2: 'annotator' is missing"),
            (
                HEADER + "ep-1,0,0,1,ann,\n",
                "line 2: 'domain' is missing; add the column, or give the file of trajectories",
            ),
            (HEADER + "ep-1,0,0,1,ann,coding,what\n", "line 2: more cells than columns"),
            (
                "episode_id,value,annotator,domain,labelled_at\nep-1,1,ann,c,21/11/2026\n",
                "line 2: 'labelled_at' must be a date",
            ),
            (HEADER + "ep-1,0,0,1\n", "line 2: 'annotator' is missing"),
            ("episode_id,value,episode_id\n", "occurs twice"),
            ("episode_id,value,annotator,domain,mood\nep-1,1,ann,coding,sad\n", "unknown column 'mood'"),
            (HEADER + 'ep-1,0,0,"1,ann,coding\n', "line 2"),
            (b"\xff\xfee\x00p\x00", "not UTF-8 text \\(byte 0\\); save it as UTF-8"),
        ],
    )
    def test_a_fault_is_told_with_its_line_and_nothing_is_taken(self, tmp_path, text, said):
        with pytest.raises(DataError, match=said) as caught:
            import_labels(table(tmp_path, text))
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[1, 2]\n", "line 1: a label is one JSON object a line"),
            ('{"episode_id": "ep-1", "value": true, "annotator": "ann", "domain": "d"}\n{"epi', "line 2: "),
            ('{"schema_version": 3, "episode_id": "ep-1"}\n', "line 1: schema_version 3 is newer than 2; upgrade"),
            ('{"episode_id": 7, "value": 1, "annotator": "ann", "domain": "d"}', "line 1: Expected `str`"),
            ("[" * 100_000, "line 1"),
        ],
    )
    def test_so_it_is_of_json_lines(self, tmp_path, text, said):
        with pytest.raises(DataError, match=said):
            import_labels(table(tmp_path, text, "labels.jsonl"))

    def test_a_label_must_be_of_an_episode_and_step_that_there_is(self, tmp_path):
        episode = make_episode()
        known, name = label_subjects([episode]), episode.episode_id
        for row, said in (
            ("ep-none,0,0,1", "is not among the trajectories"),
            (f"{name},0,1,1", "has no step 0.1"),
            (f"{name},9,0,1", "has no step 9.0"),
            (f"{name},-1,0,1", "has no step -1.0"),
        ):
            path = table(tmp_path, f"episode_id,turn,step,value\n{row}\n")
            with pytest.raises(DataError, match=said):
                import_labels(path, known, annotator="ann")

    def test_a_label_of_another_content_is_refused(self, tmp_path):
        episode = make_episode()
        path = table(tmp_path, f"episode_id,value,content_hash\n{episode.episode_id},1,old\n")
        with pytest.raises(DataError, match="labelled with another content"):
            import_labels(path, label_subjects([episode]), annotator="ann")


LABELS = st.lists(
    st.builds(
        Label,
        episode_id=st.text(min_size=1, max_size=8).filter(lambda text: text.strip() == text and "\x00" not in text),
        content_hash=st.sampled_from(["", "c"]),
        domain=st.just("coding"),
        turn=st.integers(-1, 9),
        step=st.integers(-1, 9),
        line=st.sampled_from(["overall", "goal_progress"]),
        value=st.floats(0, 1),
        annotator=st.sampled_from(["ann", "bob, the 2nd"]),
        comment=st.text(max_size=20).filter(lambda text: "\x00" not in text),
        labelled_at=st.sampled_from(["", "2026-11-21T00:00:00Z"]),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=30)
@example(
    [Label(episode_id="a\rb", content_hash="", domain="d", value=0.5, annotator="x", comment="1\r\n2\r")], "labels.csv"
)
@given(LABELS, st.sampled_from(["labels.csv", "labels.jsonl"]))
def test_what_is_exported_is_imported_the_same(tmp_path_factory, labels, name):
    path = tmp_path_factory.mktemp("labels") / name
    assert export_labels(path, labels) == len(labels)
    assert sorted(map(msgspec.json.encode, import_labels(path))) == sorted(map(msgspec.json.encode, labels))


def test_an_export_names_its_columns_and_goes_to_csv_or_jsonl_only(tmp_path):
    export_labels(tmp_path / "new" / "labels.csv", [label()])
    assert (tmp_path / "new" / "labels.csv").read_text().splitlines()[0] == ",".join(LABEL_COLUMNS)
    with pytest.raises(ConfigurationError, match=r"\.csv or \.jsonl"):
        export_labels(tmp_path / "labels.xlsx", [label()])


class TestLocalFile:
    def test_the_same_label_is_added_once_and_a_changed_mind_is_another(self, tmp_path):
        path = tmp_path / "labels" / "labels.jsonl"
        assert add_labels(path, [label(), label()]) == 1
        assert add_labels(path, [label()]) == 0
        assert add_labels(path, [label(value=0.0, labelled_at="later")]) == 1
        assert [each.value for each in read_labels(path)] == [1.0, 0.0]

    def test_half_a_last_line_of_a_killed_process_is_passed_over_and_spoils_no_other(self, tmp_path):
        path = tmp_path / "labels.jsonl"
        append_json_lines(path, [label()])
        with path.open("ab") as file:
            file.write(msgspec.json.encode(label(episode_id="ep-2"))[:40])
        assert [each.episode_id for each in read_labels(path)] == ["ep-1"]
        append_json_lines(path, [label(episode_id="ep-3")])
        assert [each.episode_id for each in read_labels(path)] == ["ep-1", "ep-3"]

    def test_a_long_half_line_is_taken_back_whole(self, tmp_path):
        path = tmp_path / "labels.jsonl"
        append_json_lines(path, [label()])
        with path.open("ab") as file:
            file.write(b'{"episode_id": "' + b"x" * 10_000)
        append_json_lines(path, [label(episode_id="ep-3")])
        assert [each.episode_id for each in read_labels(path)] == ["ep-1", "ep-3"]

    def test_a_file_that_is_half_a_line_begins_anew(self, tmp_path):
        path = tmp_path / "labels.jsonl"
        path.write_bytes(b'{"epis')
        append_json_lines(path, [label()])
        assert [each.episode_id for each in read_labels(path)] == ["ep-1"]

    def test_processes_that_add_at_once_lose_nothing(self, tmp_path):
        path = tmp_path / "labels.jsonl"
        workers = [multiprocessing.get_context("fork").Process(target=_add, args=(path, name)) for name in "abc"]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = list(read_labels(path))
        assert len(found) == 150 and len({(each.annotator, each.turn) for each in found}) == 150

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b'{"episode_id": "ep"}\n', "line 1: not a label: Object missing required field"),
            (b"\n\xff\xff\n", "line 2: not a label"),
            (msgspec.json.encode(label()) + b"\n" + b'{"schema_version": 3}\n', "line 2: schema_version 3 is newer"),
            (msgspec.json.encode(label())[:-3], "the last line is cut short"),
        ],
    )
    def test_a_damaged_file_is_told_with_its_line(self, tmp_path, content, said):
        with pytest.raises(DataError, match=said):
            list(read_json_lines(table(tmp_path, content), Label))

    def test_an_absent_file_and_a_place_that_cannot_be_written_are_told(self, tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            list(read_labels(tmp_path / "absent.jsonl"))
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigurationError, match="cannot be written"):
            append_json_lines(tmp_path / "file" / "labels.jsonl", [label()])


def _add(path, name):
    for turn in range(50):
        append_json_lines(path, [label(annotator=name, turn=turn)])


def test_what_a_night_seals_is_what_no_night_has_sealed():
    first, changed = label(labelled_at="1"), label(value=0.0, labelled_at="2")
    other = label(annotator="bob")
    assert unsealed_labels([first, changed, other], [first]) == [changed, other]
    assert unsealed_labels([first, changed, other], [first, changed]) == [other]
    assert unsealed_labels([first], [first]) == []
