"""ATIF: nothing is lost in either direction, by Harbor's own models where an interpreter with the package `harbor` is named."""

import json
import os
import subprocess
from functools import partial

import msgspec
import pytest
from log_files import FIXTURES, fixtures_of

from ratchet.components.core import TokenTrace
from ratchet.components.interop import reader_registry
from ratchet.components.interop.atif import recorded_tokens, to_atif
from ratchet.components.interop.reader_registry import read_log
from ratchet.components.interop.trajectory_writers import line_encoder
from ratchet.components.trajectories.store.store_export import export_query
from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.token_sidecar import TurnTokens, encode_tokens
from ratchet.components.trajectories.trajectory import content_hash

RUN = FIXTURES / "atif" / "run.json"
HARBOR = os.environ.get("RATCHET_HARBOR_PYTHON")
LOGS = [
    pytest.param(path, id=f"{format}-{path.name}")
    for format in reader_registry.list_formats()
    if format != "atif"
    for path in fixtures_of(format)
    if path.is_file()
]
# Validates each line and returns it as Harbor writes it.
VALIDATE = """
import json, sys
from harbor.models.trajectories import Trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator
for line in sys.stdin:
    document = json.loads(line)
    validator = TrajectoryValidator()
    assert validator.validate(document, validate_images=False), validator.errors
    print(json.dumps(Trajectory.model_validate(document).to_json_dict()))
"""


def harbor(*documents):
    if not HARBOR:
        pytest.skip("RATCHET_HARBOR_PYTHON names no interpreter (Python 3.12) with the package harbor")
    lines = "".join(json.dumps(document) + "\n" for document in documents)
    done = subprocess.run([HARBOR, "-c", VALIDATE], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def run(**changes):
    return json.loads(RUN.read_text()) | changes


def read(tmp_path, document):
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(document))
    return list(read_log(path))


def test_a_document_is_written_as_it_was_read():
    found, subagent = read_log(RUN)
    assert to_atif(found) == run()
    assert to_atif(subagent) == run()["subagent_trajectories"][0]


@pytest.mark.parametrize("path", LOGS)
def test_a_record_is_read_as_it_was_written(path, tmp_path):
    for record in read_log(path):
        (found,) = read(tmp_path, json.loads(line_encoder("atif")(record)))
        assert found == msgspec.structs.replace(record, content_hash=content_hash(record))


def test_steps_are_turns_and_copied_context_is_not():
    found, subagent = read_log(RUN)
    assert [message.role for message in found.messages] == ["system", "user", "assistant"]
    first = found.turns[0]
    assert (first.text, first.thought, [call.tool for call in first.calls]) == (
        "I look.",
        "The test fails.",
        ["bash", "search"],
    )
    assert (first.usage.prompt_tokens, first.usage.cost) == (6, 0.001)
    assert [result.content for result in first.results] == ["1 failed\n", "see", "Context was compacted."]
    assert subagent.parent.episode_id == found.episode_id and subagent.parent.turn == 0
    assert found.outcome.success is None


def test_token_ids_are_those_of_the_document():
    found, _ = read_log(RUN)
    assert list(recorded_tokens(found)) == [
        TurnTokens(found.episode_id, 0, TokenTrace((1, 2, 3, 4, 5, 6), (7, 8, 9), (-0.1, -0.25, -1.5), 0)),
        TurnTokens(found.episode_id, 1, TokenTrace((10, 11), (12,), (-0.5,), 9)),
    ]


def test_token_ids_of_a_sidecar_are_written(tmp_path):
    record = next(iter(read_log(FIXTURES / "codex" / "rollout-2026-11-01.jsonl")))
    rows = [
        TurnTokens(record.episode_id, 0, TokenTrace((1, 2), (3,), (-0.5,))),
        TurnTokens(record.episode_id, 1, TokenTrace((4,), (5,), (-1.0,), 3)),
    ]
    document = to_atif(record, rows)
    metrics = [step["metrics"] for step in document["steps"] if step["source"] == "agent"]
    assert [each.get("prompt_token_ids") for each in metrics] == [[1, 2], [1, 2, 3, 4], None]
    (found,) = read(tmp_path, document)
    assert found.turns == record.turns
    foreign = {key: value for key, value in document.items() if key != "extra"}
    (found,) = read(tmp_path, foreign)
    assert [row.trace for row in recorded_tokens(found)] == [row.trace for row in rows]


def test_an_export_of_a_store_has_the_token_ids(tmp_path):
    record = next(iter(read_log(FIXTURES / "codex" / "rollout-2026-11-01.jsonl")))
    row = TurnTokens(record.episode_id, 0, TokenTrace((1, 2), (3,), (-0.5,)))
    with StoreWriter(tmp_path / "store", raw=True) as writer:
        writer.put([record], tokens=encode_tokens([row], tokenizer_hash="t", template_hash="c"))
    out = tmp_path / "out.jsonl"
    store = TrajectoryStore(tmp_path / "store")
    export_query(store, EpisodeQuery(), out, "atif", partial(line_encoder, tokens=store.tokens))
    metrics = next(step["metrics"] for step in json.loads(out.read_text())["steps"] if step["source"] == "agent")
    assert (metrics["prompt_token_ids"], metrics["completion_token_ids"], metrics["logprobs"]) == ([1, 2], [3], [-0.5])


def test_an_edited_document_of_ours_is_read_as_anybodys(tmp_path):
    record = next(iter(read_log(FIXTURES / "codex" / "rollout-2026-11-01.jsonl")))
    document = to_atif(record)
    document["extra"]["ratchet"]["schema_version"] = "new"
    (found,) = read(tmp_path, document)
    assert found.provenance.source == "atif" and len(found.turns) == len(record.turns)


def test_a_document_of_ours_with_a_copied_step_after_a_turn_is_read_as_anybodys(tmp_path):
    steps = [{"source": "agent", "message": "a"}, {"source": "agent", "message": "b", "is_copied_context": True}]
    (found,) = read(tmp_path, run(steps=steps, extra={"ratchet": {"episode_id": "ep-x"}}, subagent_trajectories=[]))
    assert [turn.text for turn in found.turns] == ["a", "b"] and found.episode_id != "ep-x"


def test_documents_of_one_session_are_episodes_of_their_own(tmp_path):
    steps = [{"source": "user", "message": "Look."}]
    attempts = [
        {
            "schema_version": "ATIF-v1.6",
            "session_id": "unknown",
            "steps": [*steps, {"source": "agent", "message": text}],
        }
        for text in ("a", "b", "a")
    ]
    assert len({read(tmp_path, attempt)[0].episode_id for attempt in attempts}) == 2


def test_an_episode_without_steps_is_written_and_read(tmp_path):
    record = next(iter(read_log(FIXTURES / "codex" / "rollout-2026-11-01.jsonl")))
    empty = msgspec.structs.replace(record, messages=(), turns=()).with_content_hash()
    assert read(tmp_path, to_atif(empty)) == [empty]
    harbor(to_atif(empty))


def test_harbor_reads_every_record_as_it_was_written():
    documents = [json.loads(line_encoder("atif")(record)) for each in LOGS for record in read_log(each.values[0])]
    assert len(documents) > 70
    assert harbor(*documents) == documents


def test_what_harbor_writes_is_written_again_as_it_was(tmp_path):
    (document,) = harbor(run())
    found, _ = read(tmp_path, document)
    assert to_atif(found) == document
