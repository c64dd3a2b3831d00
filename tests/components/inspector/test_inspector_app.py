"""The API of the inspector: values, hostile content, and what it refuses."""

import json
import math
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from episodes import make_episode, night_of, turn, write_night
from fastapi.testclient import TestClient
from patience import until

from ratchet.components.core import ToolCall, ToolResult
from ratchet.components.core.files import try_lock_file
from ratchet.components.inspector import build_views, served_episodes
from ratchet.components.inspector.app import HEADERS, build_app
from ratchet.components.inspector.episode_views import EpisodeRewards, align_turns
from ratchet.components.inspector.served_episodes import FACETS, ServedEpisodes
from ratchet.components.interop.log_conversion import convert_logs
from ratchet.components.nights.night_state import RUNNING_FILE, Night, begin_night, hold_night_lock
from ratchet.components.rewards.episode_scoring import score_all
from ratchet.components.rewards.reference_steps import reference_steps
from ratchet.components.rewards.reward_config import RewardConfig
from ratchet.components.rewards.score_table import ScoreColumnsBuilder, write_score_table
from ratchet.components.trajectories.trajectory import Turn

ADDRESS = "http://127.0.0.1:8000"
HACK = make_episode(
    "repair/train-0900",
    turns=(
        turn(0, "edit_file", path="tests/test_main.py", old="assert f(1) == 2", new="assert True"),
        turn(1, "submit"),
    ),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed night with its table of scores."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    episodes = [*night_of(6, 3), HACK]
    write_night(tmp_path / "data/rollouts/2026-11-20-a1b2", episodes, shard=10)
    columns = ScoreColumnsBuilder()
    for score in score_all(episodes, reference_steps(episodes), RewardConfig()):
        columns.add(score)
    (tmp_path / "data/scores").mkdir(parents=True)
    write_score_table(tmp_path / "data/scores/2026-11-20-a1b2.parquet", columns.columns())
    return tmp_path


@pytest.fixture
def client(project: Path) -> Iterator[TestClient]:
    yield from open_client(ServedEpisodes())


def open_client(served: ServedEpisodes) -> Iterator[TestClient]:
    served.update()
    client = TestClient(build_app(served, "secret", 8000), base_url=ADDRESS, follow_redirects=False)
    client.get("/?key=secret")
    yield client
    served.close()


def get(client: TestClient, path: str, **params: Any) -> Any:
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_reward_equals_the_table_of_scores(client: TestClient, project: Path) -> None:
    rows = pq.read_table(project / "data/scores/2026-11-20-a1b2.parquet").to_pylist()
    table = {(row["episode_id"], row["turn"], row["step"], row["scorer"]): row["score"] for row in rows}
    seen = {}
    for row in get(client, "/api/episodes", limit=500)["items"]:
        name = row["episode_id"]
        scores = get(client, f"/api/episodes/{name}")["scores"]
        assert scores["recorded"] and row["reward"] == scores["total"]
        seen |= {(name, -1, -1, part): scores[part] for part in ("total", "outcome", "process", "efficiency")}
        seen |= {(name, -1, -1, f"layer.{layer}"): own["score"] for layer, own in scores["layers"].items()}
        for played in get(client, f"/api/episodes/{name}/turns")["items"]:
            for number, step in enumerate(played["steps"]):
                seen[name, played["index"], number, "process"] = step["total"]
                for score in step["scores"]:
                    if score["layer"] == "rules":
                        seen[name, played["index"], number, score["scorer"]] = score["score"]
    assert seen == table


def test_a_hack_is_found_by_its_facet_and_explained(client: TestClient) -> None:
    page = get(client, "/api/episodes")
    kinds = [entry["value"] for entry in page["facets"]["finding"]]
    assert kinds
    found = get(client, "/api/episodes", finding=kinds[0])
    assert [row["episode_id"] for row in found["items"]] == [HACK.episode_id]
    findings = get(client, f"/api/episodes/{HACK.episode_id}")["findings"]
    assert {finding["kind"] for finding in findings} == set(kinds) and all(finding["why"] for finding in findings)


def test_kinds_of_hacks_are_read_only_when_all_records_are_indexed(project: Path) -> None:
    served = ServedEpisodes()
    with (served.folder / "index.lock").open("a") as lock:
        assert try_lock_file(lock)  # another server is indexing
        served.update()
        assert served.index.rows("SELECT * FROM scores") == []
    served.update()
    assert "hack" not in served.row(HACK.episode_id).findings != []
    served.close()


def test_scores_that_a_build_dropped_are_not_shown(project: Path) -> None:
    served, table = ServedEpisodes(), project / "data/scores/2026-11-20-a1b2.parquet"
    served.update()
    assert served.row(HACK.episode_id).reward is not None
    rows = pq.read_table(table)
    pq.write_table(rows.filter(pc.field("episode_id") != HACK.episode_id), table)
    served.update()
    assert served.row(HACK.episode_id).reward is None
    assert [row.reward is None for row in served.find("", "", dict.fromkeys(FACETS, ""), "", 0, 50).items].count(
        True
    ) == 1
    table.unlink()
    served.update()
    assert served.index.rows("SELECT count(*) FROM scores") == [(0,)]
    served.close()


def test_a_page_lacks_no_episodes_after_a_night_was_replaced(project: Path) -> None:
    served, night = ServedEpisodes(), project / "data/rollouts/2026-11-20-a1b2"
    served.update()
    served._columns = served.columns()._replace(fresh_until=math.inf)  # as while an index of 100,000 episodes grows
    night.rename(project / "away")
    write_night(night, night_of(2, 2))
    served.update()
    found = served.find("", "", dict.fromkeys(FACETS, ""), "", 0, 50)
    assert found.total == len(found.items) == 4
    served.close()


def test_facets_count_what_their_own_filter_would_leave(client: TestClient) -> None:
    page = get(client, "/api/episodes", outcome="success", limit=1)
    successes = sum(bool(each.outcome.success) for each in night_of(6, 3)) + 1
    assert page["total"] == successes
    assert {entry["value"]: entry["count"] for entry in page["facets"]["outcome"]} == {
        "success": successes,
        "failure": 19 - successes,
    }


def test_where_and_sort_take_the_columns_of_the_list(client: TestClient) -> None:
    rows = get(client, "/api/episodes", where="success and reward >= 0.5 and turns == 3", sort="-reward", limit=500)[
        "items"
    ]
    assert rows and all(row["success"] and row["reward"] >= 0.5 for row in rows)
    assert rows == sorted(rows, key=lambda row: -row["reward"])
    wrong = client.get("/api/episodes", params={"where": "succes"})
    assert wrong.status_code == 400 and "did you mean 'success'" in wrong.json()["error"]
    assert client.get("/api/episodes", params={"sort": "x; DROP TABLE"}).status_code == 400


def test_attempts_are_aligned_around_an_additional_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    short = [turn(0, "read_file", path="a"), turn(1, "submit")]
    long = [turn(0, "read_file", path="a"), turn(1, "bash", command="ls"), turn(2, "submit")]
    night = write_night(tmp_path / "n", [make_episode(attempt=0, turns=short), make_episode(attempt=1, turns=long)])
    for client in open_client(ServedEpisodes([night])):
        group = get(client, f"/api/groups/{make_episode().group_id}")
        cells = [[cell and cell["tools"] for cell in row["cells"]] for row in group["rows"]]
        assert cells == [["read_file", "read_file"], [None, "bash"], ["submit", "submit"]]
        assert [row["differs"] for row in group["rows"]] == [False, True, False]


def test_attempts_that_loop_for_thousands_of_turns_are_aligned_at_once() -> None:
    places = random.Random(0)
    loops = [
        make_episode(
            attempt=attempt,
            turns=[turn(place, "bash", command=places.choice(["ls", "cat a"])) for place in range(3_000)],
        )
        for attempt in range(3)
    ]
    begin = time.process_time()
    rows = align_turns(loops, [EpisodeRewards({}, "", recorded=False, computed=None)] * 3)
    assert len(rows) == 3_000 and time.process_time() - begin < 10  # by equal turns it takes a minute


def test_a_large_output_is_cut_and_its_pieces_are_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    output = "\x1b[31m<script>alert(1)</script>\u202e é\U0001f600" * 40_000
    played = Turn(
        0,
        "a",
        "é" * 20_000,
        calls=(ToolCall("0", "bash", {"x": float(2**60)}, ""),),
        results=(ToolResult("0", output),),
    )
    night = write_night(tmp_path / "n", [make_episode(turns=[played])])
    for client in open_client(ServedEpisodes([night])):
        name = make_episode().episode_id
        (shown,) = get(client, f"/api/episodes/{name}/turns")["items"]
        assert shown["text"] == "é" * 16_384 + "… (20000 characters)"
        result = shown["steps"][0]["result"]
        assert result["length"] == len(output) and result["content"] == output[:16_384]
        pieces = [
            get(client, f"/api/episodes/{name}/content", turn=0, call=0, offset=offset, length=300_000)["text"]
            for offset in range(0, len(output), 300_000)
        ]
        assert "".join(pieces) == output


def test_a_log_of_another_format_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    log = tmp_path / "chats.jsonl"
    log.write_text(
        json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "zebra"}]})
    )
    for client in open_client(ServedEpisodes([log])):
        page = get(client, "/api/episodes", q="zebra")
        assert page["total"] == 1 and page["items"][0]["source"] == "chats.jsonl"


def test_a_log_that_cannot_be_read_is_tried_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    log, tried = tmp_path / "a.txt", []

    def convert(*paths: Path, **options: Any) -> None:
        tried.append(paths)
        convert_logs(*paths, **options)

    monkeypatch.setattr(served_episodes, "convert_logs", convert)
    log.write_text("no log")
    served = ServedEpisodes([log])
    for expected in (1, 1, 2):
        if expected == 2:
            log.write_text("no log, but longer")
        served.update()
        assert len(tried) == expected and "a.txt" in served.damage()[0]
    served.close()


def test_a_damaged_record_has_a_page_that_says_so(project: Path) -> None:
    shard = project / "data/rollouts/2026-11-20-a1b2/shard-00001.jsonl"
    shard.write_bytes(b"{broken" + shard.read_bytes()[7:])
    name = night_of(6, 3)[10].episode_id
    for client in open_client(ServedEpisodes()):
        rows = {row["episode_id"]: row for row in get(client, "/api/episodes", limit=100)["items"]}
        assert len(rows) == 19 and [each for each, row in rows.items() if row["damaged"]] == [name]
        assert get(client, f"/api/episodes/{name}")["damaged"]
        (line,) = get(client, "/api/home")["damage"]
        assert "shard-00001.jsonl differs" in line


def test_only_images_whose_bytes_match_their_name_are_served(project: Path) -> None:
    from ratchet.components.trajectories.blobs import BlobFolder

    blobs = BlobFolder(project / "data/rollouts/2026-11-20-a1b2/blobs")
    image, page = blobs.put(b"\x89PNG\r\n\x1a\n1"), blobs.put(b"<script>alert(1)</script>")
    forged = "sha256-" + "0" * 64
    (blobs.folder or project).joinpath(forged).write_bytes(b"\x89PNG\r\n\x1a\n2")
    for client in open_client(ServedEpisodes()):
        answer = client.get(f"/api/blobs/{image}")
        assert answer.headers["content-type"] == "image/png" and answer.content.endswith(b"1")
        for name in (page, forged, "..%2f..%2fparams.yaml", "sha256-1"):
            assert client.get(f"/api/blobs/{name}").status_code == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example:8000"}, 403),
        ({"host": "127.0.0.1:9999"}, 403),
        ({"host": "127.0.0.1:8000.evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"cookie": "ratchet-inspector-8000=wrong"}, 401),
        ({"cookie": ""}, 401),
    ],
)
def test_foreign_requests_and_those_without_the_credential_are_refused(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    own = {"cookie": "ratchet-inspector-8000=secret"}
    client.cookies.clear()
    assert client.get("/api/home", headers=own).status_code == 200
    answer = client.get("/api/home", headers=own | headers)
    assert answer.status_code == status and "access-control-allow-origin" not in answer.headers


def test_the_key_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(project: Path) -> None:
    served = ServedEpisodes()
    client = TestClient(build_app(served, "secret", 8000), base_url=ADDRESS, follow_redirects=False)
    assert "set-cookie" not in client.get("/?key=wrong").headers and client.get("/api/home").status_code == 401
    answer = client.get("/?key=secret")
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    served.close()


@pytest.mark.parametrize("path", ["/api/home", "/api/nothing", "/", "/../../etc/passwd", "/%2e%2e/app.py", "/app.py"])
def test_every_answer_has_the_strict_headers(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert path in ("/api/home", "/") or answer.status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(client: TestClient, method: str) -> None:
    assert client.request(method, "/api/episodes").status_code == 405


def test_the_data_of_a_missing_build_is_one_clear_line(client: TestClient) -> None:
    answer = client.get("/api/data/ranked")
    assert answer.status_code == 404 and "ratchet build" in msgspec.json.decode(answer.content)["error"]


@pytest.mark.parametrize(
    "path", ["/a%00b", "/" + "x" * 5_000, "/api/rows/sft/train-" + "9" * 5_000, "/api/lineage?kind=episode&id=%00"]
)
def test_names_that_no_file_can_have_get_one_line(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404) and set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    "name",
    ["a/b", "/", "x/turns", "x/turns/", "x/content", "a%2Fb", "%", "?q=1#f", "é \u202e", "a b", "../../etc/passwd"],
)
def test_an_episode_of_any_name_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    other = msgspec.structs.replace(make_episode(), episode_id="x", group_id="x")
    own = msgspec.structs.replace(make_episode("repair/own"), episode_id=name, group_id=name)
    log = tmp_path / "runs.jsonl"
    log.write_bytes(msgspec.json.Encoder().encode_lines([other, own]))
    for client in open_client(ServedEpisodes([log])):
        quoted = quote(name, safe="")
        assert get(client, f"/api/episodes/{quoted}")["task"]["task_id"] == "repair/own"
        assert get(client, f"/api/episodes/{quoted}/turns")["total"] == 3
        assert get(client, f"/api/episodes/{quoted}/content", turn=0, call=0)["text"] == "did read_file"
        assert get(client, f"/api/groups/{quoted}")["task"]["task_id"] == "repair/own"
        assert client.get(f"/api/episodes/{quoted}-").status_code == 404


def test_a_home_without_episodes_has_an_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    served = ServedEpisodes()
    for client in open_client(served):
        for query in ({}, {"q": "a"}, {"where": "success"}, {"kind": "x"}, {"sort": "-reward"}):
            page = get(client, "/api/episodes", **query)
            assert page["total"] == 0 and page["items"] == [] and page["facets"]["kind"] == []
        assert served.newest("2026", 20) == []


def test_a_path_that_cannot_be_read_does_not_hide_the_others(project: Path) -> None:
    (project / "noise.bin").write_bytes(b"\x80\x81" * 500)
    shard = min((project / "data/rollouts").rglob("shard-*.jsonl"))
    for client in open_client(ServedEpisodes([project / "noise.bin", shard])):
        assert get(client, "/api/episodes")["total"] == 10
        (line,) = get(client, "/api/home")["damage"]
        assert "noise.bin" in line


def night_after(*steps: str) -> Night:
    """A night of the scale smoke in which these steps are done."""
    night = begin_night("smoke")
    for step in steps:
        night.run_once(step, lambda: {})
    return night


def test_a_night_that_begins_is_not_interrupted_unless_it_takes_too_long_or_had_a_step(project, monkeypatch):
    night = night_after()
    assert build_views.live(lambda night: []).state == "begun"
    with monkeypatch.context() as patch:
        patch.setattr(build_views, "STARTING_SECONDS", 0.0)  # later: it was killed before its first step
        assert build_views.live(lambda night: []).state == "interrupted"
    (night.folder / RUNNING_FILE).write_text('["declared"]')  # it was killed in its first step
    assert build_views.live(lambda night: []).state == "interrupted"
    night.run_once("declared", lambda: {})
    assert build_views.live(lambda night: []).state == "interrupted"
    with hold_night_lock() as claim:
        claim(night.id)
        assert build_views.live(lambda night: []).state == "running"


def test_the_steps_that_run_are_listed_as_running_until_they_end(project):
    def steps() -> list[tuple[str, str]]:
        return [(step.name, step.state) for step in build_views.live(lambda night: []).steps]

    with hold_night_lock() as claim:
        claim((first := night_after("declared", "judge", "build")).id)
        first.finish()
        claim((night := night_after("declared")).id)
        seen: list[tuple[str, str]] = []
        night.run_once("judge", lambda: seen.extend(steps()))
        assert seen == [("declared", "done"), ("judge", "running"), ("build", "waiting")]
        with pytest.raises(ZeroDivisionError):
            night.run_once("build", lambda: 1 / 0)
        assert steps() == [("declared", "done"), ("judge", "done"), ("build", "waiting")]


def test_the_waiting_steps_of_a_running_night_are_those_of_the_last_finished_night_of_its_scale(project):
    with hold_night_lock() as claim:
        claim((first := night_after("declared", "cold start")).id)
        assert {step.state for step in build_views.live(lambda night: []).steps} == {"done"}
        night_after("collect attempts", "judge", "build").finish()
        claim((second := night_after("declared", "collect attempts")).id)
        assert second.id != first.id
        steps = [(step.name, step.state) for step in build_views.live(lambda night: []).steps]
    done = [("declared", "done"), ("collect attempts", "done")]
    assert steps == [*done, ("judge", "waiting"), ("build", "waiting")]


def test_the_page_is_told_whether_a_clone_or_given_files_are_served(project):
    for paths in ([], [project / "data/rollouts"]):
        client = next(opened := open_client(ServedEpisodes(paths)))
        assert get(client, "/api/home")["clone"] is (not paths)
        opened.close()


def test_a_search_ends_when_its_client_has_gone(project, monkeypatch):
    import uvicorn

    ended, served = threading.Event(), ServedEpisodes()

    def find(*query):
        until(query[-1])
        ended.set()

    monkeypatch.setattr(served, "find", find)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(build_app(served, "secret", port), log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            with socket.create_connection(("127.0.0.1", port)) as client:
                head = f"Host: 127.0.0.1:{port}\r\nCookie: ratchet-inspector-{port}=secret\r\n\r\n"
                client.sendall(f"GET /api/episodes?q=a HTTP/1.1\r\n{head}".encode())
                with pytest.raises(TimeoutError):  # it waits for the answer
                    client.settimeout(0.3)
                    client.recv(1)
                assert not ended.is_set()
            assert ended.wait(60)
        finally:
            server.should_exit = True
            thread.join()
    served.close()
