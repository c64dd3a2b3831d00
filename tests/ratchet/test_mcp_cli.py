"""`ratchet mcp` by the client of the package `mcp`: stdio and HTTP, levels, limits, and hostile calls."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil
import pytest
from patience import LIMIT, gone, until

import ratchet
from ratchet import cli
from ratchet.components.core.errors import install_command
from ratchet.components.core.processes import free_port

pytest.importorskip("mcp", reason="the package 'mcp' is not installed")
import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

pytestmark = [pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    (tmp_path / "runs").mkdir()
    ratchet.write(ratchet.collect("orders", agent="teacher", tasks=3), tmp_path / "runs" / "log.jsonl")
    return tmp_path


def command(folder, *options):
    return [sys.executable, "-m", "ratchet.cli", "mcp", "--root", str(folder / "runs"), *options]


@asynccontextmanager
async def on_stdio(folder, *options, mode="auto"):
    program, *arguments = command(folder, *options)
    environment = {"RATCHET_HOME": str(folder / "home"), "PATH": os.environ["PATH"]}
    server = StdioServerParameters(command=program, args=arguments, env=environment, cwd=str(REPOSITORY))
    async with Client(server, mode=mode) as client:
        yield client


@contextmanager
def http_server(folder, *options):
    port = free_port()
    with subprocess.Popen(
        command(folder, "--port", str(port), *options), stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        try:
            assert f"http://127.0.0.1:{port}/mcp" in process.stderr.readline()
            until(lambda: _answers(port))
            yield f"http://127.0.0.1:{port}/mcp", (folder / "home" / "credentials" / "mcp").read_text()
        finally:
            process.terminate()
            process.wait(LIMIT)


def _answers(port):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/mcp", timeout=5)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@asynccontextmanager
async def over_http(url, key, mode="auto"):
    client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=LIMIT)
    async with Client(streamable_http_client(url, http_client=client), mode=mode) as connected:
        yield connected


async def call(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    return result.is_error, content.text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_on_stdio_sees_the_tools_of_its_level_and_calls_them(folder, mode):
    async def play():
        async with on_stdio(folder, mode=mode) as client:
            names = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "score_trajectory" in names and not {"run_pipeline", "export_dataset"} & names.keys()
            assert all(tool.annotations.read_only_hint for tool in names.values())
            failed, text = await call(client, "score_trajectory", trajectory=str(folder / "runs" / "log.jsonl"))
            assert not failed and json.loads(text)["episodes"] == 3
            record = json.loads((folder / "runs" / "log.jsonl").read_text().splitlines()[0])
            assert json.loads((await call(client, "score_trajectory", trajectory=record))[1])["episodes"] == 1

    anyio.run(play)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_over_http_does_the_same_beside_others(folder, mode):
    async def play(url, key):
        async with over_http(url, key, mode) as client:
            assert "run_pipeline" in {tool.name for tool in (await client.list_tools()).tools}
            out = str(folder / "runs" / "played")
            arguments = {"output_dir": out, "task_source": "orders", "policy": "teacher", "tasks": 2}
            failed, text = await call(client, "run_pipeline", **arguments)
            assert not failed and json.loads(text)["scores"]["episodes"] == 2
            answers = []

            async def ask():
                async with over_http(url, key, mode) as another:
                    answers.append(await call(another, "convert_logs", log_path=out))

            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(ask)
            assert len(answers) == 8 and len(set(answers)) == 1 and not answers[0][0]

    with http_server(folder, "--allow", "run") as (url, key):
        anyio.run(play, url, key)


def test_http_asks_for_the_key_and_answers_no_foreign_page(folder):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    plain = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def status(url, data=body, **headers):
        request = urllib.request.Request(
            url, data, plain | {name.replace("_", "-").title(): value for name, value in headers.items()}
        )
        try:
            return urllib.request.urlopen(request, timeout=LIMIT).status
        except urllib.error.HTTPError as error:
            return error.code

    with http_server(folder) as (url, key):
        good = f"Bearer {key}"
        assert [status(url), status(url, authorization="Bearer x"), status(url, authorization=f"Basic {key}")] == [
            401
        ] * 3
        assert status(url, authorization=good, host="evil.example") == 403
        assert status(url, authorization=good, origin="http://evil.example") == 403
        assert status(url, b"{", authorization=good, content_length=str(5 << 20)) == 413
        assert status(url, b"{" * 100_000, authorization=good) == 400
        assert status(url.replace("/mcp", "/"), authorization=good) == 404
        own = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        assert {each.laddr.ip for each in own if f":{each.laddr.port}/" in url} == {"127.0.0.1"}


HOSTILE = [
    ("convert_logs", {"log_path": "/etc/passwd"}),
    ("convert_logs", {"log_path": "../../../../etc/passwd"}),
    ("convert_logs", {"log_path": "RUNS/link/passwd"}),
    ("convert_logs", {"log_path": "RUNS/deep"}),
    ("convert_logs", {"log_path": "HOME/credentials/mcp"}),
    ("convert_logs", {"log_path": "HOME"}),
    ("convert_logs", {"log_path": "RUNS/log.jsonl\0.png"}),
    ("convert_logs", {"log_path": "RUNS/log.jsonl\nerror: \x1b[2Jx"}),
    ("convert_logs", {"log_path": "/dev/zero"}),
    ("convert_logs", {"log_path": "RUNS/pipe"}),
    ("convert_logs", {"log_path": "x" * 4000}),
    ("convert_logs", {"log_path": ""}),
    ("convert_logs", {"log_path": 7}),
    ("convert_logs", {"log_path": "RUNS/log.jsonl", "framework": "pickle"}),
    ("convert_logs", {"log_path": "RUNS/binary"}),
    ("convert_logs", {"log_path": "RUNS/empty"}),
    ("convert_logs", {"log_path": "RUNS/log.jsonl", "limit": 10**30}),
    ("convert_logs", {"log_path": "RUNS/log.jsonl", "output_path": "/etc/cron.d/x.jsonl"}),
    ("convert_logs", {"log_path": "RUNS/log.jsonl", "output_path": "RUNS/log.jsonl"}),
    ("convert_logs", {"log_path": "RUNS/log.jsonl", "output_path": "RUNS/.git/x.jsonl"}),
    ("convert_logs", {"log_path": "RUNS/log.jsonl", "output_path": "HOME/nights/x.jsonl"}),
    ("export_dataset", {"output_path": "RUNS/../../x", "format": "sft", "trajectories_path": "RUNS/log.jsonl"}),
    ("score_trajectory", {"trajectory": {"episode_id": "x" * 10_000}}),
    ("score_trajectory", {"trajectory": {"turns": [[[[[[]]]]]]}}),
    ("score_trajectory", {"trajectory": []}),
    ("recorder_diff", {"trajectory_a": "RUNS/log.jsonl", "trajectory_b": "/etc/passwd"}),
    ("build_preferences", {"trajectories_by_task": {"t": ["/etc/passwd"]}}),
    ("calibrate_reward", {"reward_scores": ["a"], "human_scores": [1]}),
    ("calibrate_reward", {"reward_scores": [1, 2], "human_scores": [1, 2, 3]}),
    ("reward_leaderboard", {"trajectory_files": ["/etc"]}),
    ("compare_agents", {"agents": ["--help", "x"]}),
    ("trace_lineage", {"target": "sft", "at": "--output=/tmp/x"}),
    ("trace_lineage", {"target": "../../etc"}),
    ("explain_episode", {"episode_id": "' or 1=1; --"}),
    ("night_decision", {"which": "../credentials"}),
    ("execute_tool", {"sandbox_id": "../../etc", "tool_name": "bash", "params": {"command": "id"}}),
    ("stop_sandbox", {"sandbox_id": "/"}),
    ("create_sandbox", {"repo_url": "ext::sh -c touch% /tmp/x"}),
    ("create_sandbox", {"repo_url": "file:///etc", "base_commit": "--upload-pack=x"}),
    ("create_sandbox", {"lifetime": 1e300}),
    ("run_pipeline", {"output_dir": "RUNS/new", "policy": "os:system"}),
    ("run_pipeline", {"output_dir": "RUNS/new", "task_source": "/etc"}),
    ("run_pipeline", {"output_dir": "RUNS/deep"}),
    ("no_such_tool", {}),
    ("__init__", {}),
    ("get_schema", {"scope": "x"}),
]


def test_a_hostile_call_is_refused_with_one_line_and_the_next_call_is_answered(folder):
    runs, home = folder / "runs", folder / "home"
    (runs / "deep" / "er").mkdir(parents=True)
    (runs / "link").symlink_to("/etc")
    (runs / "deep" / "er" / "link").symlink_to("/etc")
    (runs / "binary").write_bytes(bytes(range(256)) * 100)
    (runs / "empty").touch()
    os.mkfifo(runs / "pipe")
    before = set(runs.rglob("*"))

    async def play():
        async with on_stdio(folder, "--allow", "run") as client:
            for name, arguments in HOSTILE:
                text = json.dumps(arguments).replace("RUNS", str(runs)).replace("HOME", str(home))
                failed, message = await call(client, name, **json.loads(text))
                assert failed and message and len(message) <= 1000 and message.isprintable(), (name, arguments, message)
                assert "Traceback" not in message and "failed: " not in message and "root:x" not in message, message
            assert not (await call(client, "get_schema"))[0]

    anyio.run(play)
    assert set(runs.rglob("*")) == before


async def until_ended(client, folder):
    with anyio.fail_after(LIMIT):
        while True:
            failed, text = await call(client, "pipeline_status", output_dir=folder)
            if failed or not json.loads(text)["running"]:  # it may have been ended before it made the folder
                return
            await anyio.sleep(0.2)


def test_a_call_ends_at_its_time_and_so_does_what_it_started(folder):
    async def play():
        async with on_stdio(folder, "--allow", "run", "--timeout", "3") as client:
            out = str(folder / "runs" / "x")
            failed, message = await call(client, "run_pipeline", output_dir=out, policy="clumsy", tasks=2000)
            assert failed and "longer than 3 s" in message
            await until_ended(client, out)

    anyio.run(play)


def test_a_call_that_the_client_cancels_ends(folder):
    async def play():
        async with on_stdio(folder, "--allow", "run") as client:
            out = str(folder / "runs" / "x")
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: call(client, "run_pipeline", output_dir=out, policy="clumsy", tasks=2000))
                with anyio.fail_after(LIMIT):
                    while True:
                        failed, text = await call(client, "pipeline_status", output_dir=out)
                        if not failed and json.loads(text)["running"]:
                            break
                        await anyio.sleep(0.2)
                group.cancel_scope.cancel()
            await until_ended(client, out)

    anyio.run(play)


def test_a_large_result_is_cut_and_still_json(folder):
    async def play():
        async with on_stdio(folder) as client:
            failed, text = await call(client, "convert_logs", log_path=str(folder / "runs"), limit=500)
            assert not failed and len(text) <= 60_000 and "cut: " in text
            assert isinstance(json.loads(text)["trajectories"], list)

    long = "word " * 20_000
    ratchet.write(ratchet.collect("orders", agent=lambda request: long, tasks=4), folder / "runs" / "long.jsonl")
    anyio.run(play)


def test_the_server_ends_with_its_client(folder):
    def servers():
        return [
            each.pid for each in psutil.process_iter(["cmdline"]) if f"{folder}/runs" in (each.info["cmdline"] or ())
        ]

    async def play():
        async with on_stdio(folder) as client:
            await call(client, "get_schema")
            return servers()

    pids = anyio.run(play)
    assert pids
    until(lambda: all(gone(pid) for pid in pids))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--root", "absent"], "--root absent is no folder"),
        (["--allow", "all"], "--allow"),
        (["--port", "70000"], "--port"),
    ],
)
def test_wrong_use_is_one_line(options, said, capsys, folder):
    assert cli.run(["mcp", *options]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert said in error


def test_without_the_package_it_says_what_to_install(capsys, folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "ratchet.components.operations.mcp_server", raising=False)
    monkeypatch.delattr("ratchet.components.operations.mcp_server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel.server", None)
    assert cli.run(["mcp"]) == 2
    assert install_command("mcp") in capsys.readouterr().err
