"""Routes of the review desk: what a page may read and send, and what it must not."""

import json
import statistics
import time

import pytest
from episodes import make_episode, turn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ratchet.components.inspector.review import MAX_TEXT, review_router
from ratchet.components.rewards.human_labels.label_files import read_labels
from ratchet.components.rewards.human_labels.review_desk import ProposedPair, open_desk
from ratchet.components.trajectories.chat_messages import edited_turn

ORIGIN = {"origin": "http://testserver"}
EPISODES = [make_episode(attempt=n, success=n == 0) for n in range(40)]


def client_of(path, reviewer="ann", episodes=EPISODES, budget=100):
    one, other = episodes[0].episode_id, episodes[1].episode_id
    pairs = [ProposedPair(one, other, 1, 0.3, "repair"), ProposedPair(one, other, -1, 0.3, "repair")]
    desk = open_desk(reviewer, lambda: iter(episodes), [], pairs, path, budget=budget)
    app = FastAPI()
    app.include_router(review_router(desk))
    return TestClient(app, headers=ORIGIN)


def queue(client, name="steps"):
    return client.get(f"/api/review/queues/{name}").json()


def save(client, item, value, name="steps", **changes: object):
    body = {"queue": name, "item_id": item["item_id"], "value": value} | changes
    return client.post("/api/review/labels", json=body)


def test_a_read_only_inspector_has_no_desk(tmp_path):
    app = FastAPI()
    app.include_router(review_router(None))
    client = TestClient(app, headers=ORIGIN)
    assert client.get("/api/review").json() == {"reviewer": None, "queues": {}}
    assert client.get("/api/review/queues/steps").status_code == 403
    assert client.post("/api/review/undo", json={}).status_code == 403


def test_a_step_shows_what_led_to_it_and_neither_outcome_nor_judgement(tmp_path):
    client = client_of(tmp_path / "labels.jsonl")
    item = next(each for each in queue(client) if each["turn"] == 1)
    shown = client.get(f"/api/review/items/{item['item_id']}").json()
    (earlier,) = shown["earlier"]
    assert earlier["tool"] == "read_file" and json.loads(earlier["arguments"]["text"]) == {"path": "main.py"}
    assert earlier["result"]["text"] == "did read_file"
    (side,) = shown["sides"]
    assert side["turns"][0]["calls"][0]["tool"] == "edit_file"
    assert side["turns"][0]["calls"][0]["result"] == {"text": "did edit_file", "length": 13}
    assert not {"outcome", "success", "why", "score"} & set(shown) and shown["others"] == []


def test_a_pair_shows_both_sides_of_one_message_or_whole_episodes(tmp_path):
    client = client_of(tmp_path / "labels.jsonl")
    turns = {}
    for item in queue(client, "pairs"):
        sides = client.get(f"/api/review/items/{item['item_id']}").json()["sides"]
        turns[item["turn"]] = [[each["turn"] for each in side["turns"]] for side in sides]
    assert turns == {1: [[1], [1]], -1: [[0, 1, 2], [0, 1, 2]]}


def test_a_huge_text_is_cut_and_its_length_stated(tmp_path):
    episodes = [make_episode(turns=[turn(0, "edit_file", new="x" * 5_000_000)]), EPISODES[1]]
    client = client_of(tmp_path / "labels.jsonl", episodes=episodes)
    item = next(each for each in queue(client) if each["episode_id"] == episodes[0].episode_id)
    response = client.get(f"/api/review/items/{item['item_id']}")
    arguments = response.json()["sides"][0]["turns"][0]["calls"][0]["arguments"]
    assert len(arguments["text"]) == MAX_TEXT and arguments["length"] > 5_000_000 and len(response.content) < 40_000


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "https://testserver"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_a_page_of_another_origin_writes_nothing(tmp_path, headers, status):
    client = client_of(tmp_path / "labels.jsonl")
    client.headers = {"content-type": "application/json"} | ORIGIN | headers
    assert client.post("/api/review/undo", content=b"{}").status_code == status
    body = b'{"queue": "steps", "item_id": "%s", "value": 1}' % queue(client)[0]["item_id"].encode()
    assert client.post("/api/review/labels", content=body).status_code in (status, 422)
    assert not (tmp_path / "labels.jsonl").exists()


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"value": 2}, 422),
        ({"value": None}, 422),
        ({"item_id": "unknown"}, 409),
        ({"comment": "x" * 5_000}, 422),
        ({"annotator": "bob"}, 422),
        ({"queue": "disputes"}, 409),
    ],
)
def test_a_wrong_label_is_refused_and_leaves_no_trace(tmp_path, changes, status):
    client = client_of(tmp_path / "labels.jsonl")
    assert save(client, queue(client)[0], **({"value": 1} | changes)).status_code == status
    assert not (tmp_path / "labels.jsonl").exists()


def test_a_pair_is_accepted_or_rejected_and_not_half(tmp_path):
    client = client_of(tmp_path / "labels.jsonl")
    (first, second) = queue(client, "pairs")
    assert save(client, first, 0.5, "pairs").status_code == 422
    assert [save(client, each, n, "pairs").status_code for n, each in enumerate((first, second))] == [200, 200]
    labels = list(read_labels(tmp_path / "labels.jsonl"))
    assert [label.value for label in labels] == [0.0, 1.0]
    assert {label.line for label in labels} == {f"preferred_to {EPISODES[1].episode_id}"}


def test_the_better_message_of_an_accepted_pair_can_be_rewritten(tmp_path):
    client = client_of(tmp_path / "labels.jsonl")
    pairs = {each["turn"]: each for each in queue(client, "pairs")}
    edit = '{"text": "Better.", "calls": [{"tool": "submit", "arguments": {}}]}'
    assert save(client, pairs[-1], 1, "pairs", edit=edit).status_code == 409
    assert save(client, pairs[1], 0, "pairs", edit=edit).status_code == 409
    for wrong in (
        '{"text": " "}',
        "{",
        '{"text": "\\ud800"}',
        '{"calls": [{"tool": ""}]}',
        '{"text": "a", "role": "user"}',
    ):
        assert save(client, pairs[1], 1, "pairs", edit=wrong).status_code == 409
    assert save(client, queue(client)[0], 1, edit=edit).status_code == 409
    assert save(client, pairs[1], 1, "pairs", edit=edit).status_code == 200
    (label,) = read_labels(tmp_path / "labels.jsonl")
    assert edited_turn(label.edit).calls[0].tool == "submit" and label.value == 1.0


def test_two_reviewers_and_an_adjudicator_through_the_api(tmp_path):
    path = tmp_path / "labels.jsonl"
    ann, bob, cy = (client_of(path, name, budget=20) for name in ("ann", "bob", "cy"))
    for n, item in enumerate(queue(ann)):
        save(ann, item, n % 2)
        save(bob, item, n % 2 if n else 1)
    agreement = bob.get("/api/review/agreement/steps").json()
    assert agreement["items"] == 20 and agreement["people"] == 2 and 0.8 < agreement["alpha"] < 1
    (disputed,) = queue(cy, "disputes")
    assert disputed["item_id"] in {item["item_id"] for item in queue(cy)}
    assert cy.get(f"/api/review/items/{disputed['item_id']}").json()["others"] == []  # a label of one's own comes first
    others = cy.get(f"/api/review/items/{disputed['item_id']}?queue=disputes").json()["others"]
    assert sorted(each["value"] for each in others) == [0.0, 1.0]
    assert save(cy, disputed, 1, "disputes").status_code == 200
    assert cy.get("/api/review").json()["queues"]["disputes"] == {"total": 1, "labelled": 1}


def test_a_hundred_steps_are_labelled_without_a_wait(tmp_path):
    client = client_of(tmp_path / "labels.jsonl", episodes=EPISODES)
    seconds = []
    for n, item in enumerate(queue(client)):
        start = time.process_time()  # not the clock: other processes on the machine decide nothing
        assert save(client, item, n % 3 / 2).status_code == 200
        assert client.get(f"/api/review/items/{item['item_id']}").status_code == 200
        seconds.append(time.process_time() - start)
    assert len(list(read_labels(tmp_path / "labels.jsonl"))) == len(seconds) == 100
    assert client.get("/api/review").json()["queues"]["steps"] == {"total": 100, "labelled": 100}
    assert statistics.quantiles(seconds, n=20)[-1] < 0.1
