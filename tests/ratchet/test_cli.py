import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from patience import LIMIT, gone, until

from ratchet import cli
from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.errors import install_command
from ratchet.flows.home_servers import ServerPages

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(ROOT)


def run(*arguments):
    return cli.run(arguments)


def leaves(group, words=()):
    """Every command of the app, as it is typed."""
    for name, found in group.commands.items():
        yield from leaves(found, (*words, name)) if hasattr(found, "commands") else [" ".join((*words, name))]


COMMANDS = sorted(leaves(typer.main.get_command(cli.app)))


def test_the_commands_that_others_rely_on_are_there():
    parts = {
        "night",
        "schedule",
        "collect",
        "train",
        "evaluate",
        "compare",
        "leaderboard",
        "history",
        "promote",
        "rollback",
        "report",
        "build",
        "score",
        "serve",
        "envs",
    }
    house = {"doctor", "ui", "status", "reap", "data checkout"}
    sandbox = {f"sandbox {each}" for each in ("run", "create", "exec", "reset", "list", "stop", "replay")}
    assert parts | house | sandbox | {"tasks list", "tasks show", "tasks validate"} <= set(COMMANDS)


def test_every_command_has_a_help_that_says_what_it_does(capsys):
    for command in COMMANDS:
        assert run(*command.split(), "--help") == 0
        out = capsys.readouterr().out
        assert f"Usage: ratchet {command}" in out and len(out.splitlines()) > 6


def one_line(capsys):
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), captured.err
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nihgt"], 2, "night"),
        (["night", "--sede", "3"], 2, "--seed"),
        (["night", "--scale", "smok"], 2, "did you mean 'smoke'?"),
        (["tasks", "list", "repare"], 2, "did you mean 'repair'?"),
        (["tasks", "list", "repair", "--role", "trian"], 2, "unknown role 'trian'"),
        (["tasks", "show", "repair", "no-such-task"], 2, "has no task 'no-such-task'"),
        (["schedule", "--cron", "every day"], 2, "is not a cron time"),
        (["schedule", "--timezone", "Mars/Olympus"], 2, "unknown time zone"),
        (["train", "absent.yaml"], 2, "absent.yaml cannot be read"),
        (["promote", "3"], 2, "--why"),
        (["compare", "/nowhere", "/nowhere"], 2, "holds no finished episodes"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_names_what_was_meant(arguments, code, said, capsys):
    assert run(*arguments) == code
    assert said in one_line(capsys)


def test_an_unknown_key_of_a_scale_names_the_nearest_and_starts_nothing(tmp_path, capsys):
    text = Path("flows/scales/smoke.yaml").read_text().replace("max_turns:", "max_turn:")
    (tmp_path / "mine.yaml").write_text(text)
    assert run("night", "--scale", str(tmp_path / "mine.yaml")) == 2
    assert "unknown key 'max_turn'; did you mean 'max_turns'?" in one_line(capsys)
    assert not (tmp_path / "home").exists()


def test_a_corrupt_checkpoint_is_one_line(tmp_path, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    assert run("evaluate", "--policy", f"transformers:{tmp_path / 'model'}") == 3
    assert "is corrupt" in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_port_that_is_taken_is_one_line_and_leaves_nothing_running(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run("ui", "--prefect-port", str(taken.getsockname()[1])) == 2
    assert "is taken" in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_server_that_runs_already_is_named_with_the_port_that_was_not_used(monkeypatch, capsys):
    @contextlib.contextmanager
    def running(prefect_port, mlflow_port):
        yield (
            ServerPages("Prefect", "http://127.0.0.1:40613", None),
            ServerPages("MLflow", f"http://127.0.0.1:{mlflow_port}", None),
        )
        raise KeyboardInterrupt

    monkeypatch.setattr("ratchet.flows.home_servers.home_servers", running)
    monkeypatch.setattr("threading.Event.wait", lambda event: None)
    assert run("ui", "--prefect-port", "4210") == 0
    said = capsys.readouterr().err
    assert "it was running already, so --prefect-port 4210 is not used" in said and "--mlflow-port" not in said


def test_an_expected_error_becomes_its_exit_code(monkeypatch, capsys):
    for error, code in ((DataError("line 3 is cut\nshort"), 3), (InfrastructureError("no engine"), 4)):
        monkeypatch.setattr(
            "ratchet.components.nights.night_history.night_rows", lambda error=error: (_ for _ in ()).throw(error)
        )
        assert run("status") == code
        assert one_line(capsys) == f"error: {' '.join(str(error).split())}"


def test_an_unexpected_error_is_one_line_and_its_traceback_in_a_log(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("ratchet.components.nights.night_history.night_rows", lambda: 1 / 0)
    assert run("status") == 1
    line = one_line(capsys)
    log = Path(line.rsplit(" ", 1)[1])
    assert "ZeroDivisionError" in line and "night_rows" in log.read_text() and log.is_relative_to(tmp_path)
    assert run("--debug", "status") == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_full_disk_is_one_line_that_says_what_to_do(monkeypatch, capsys):
    def full():
        with Path("/dev/full").open("w") as file:
            file.write("x")

    monkeypatch.setattr("ratchet.components.nights.night_history.night_rows", full)
    assert run("status") == 4
    assert "No space left" in (line := one_line(capsys)) and "free space" in line


def test_an_interrupt_ends_a_command_with_130(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("ratchet.components.nights.night_history.night_rows", interrupted)
    assert run("status") == 130
    assert "interrupted" in one_line(capsys)


def test_status_of_a_new_clone_says_that_there_is_no_night(capsys):
    assert run("status") == 0
    assert "not running" in capsys.readouterr().out


def test_doctor_says_what_is_here_and_fails_without_an_essential(monkeypatch, capsys):
    assert run("doctor", "--json") == 0
    checks = {check["name"]: check for check in map(json.loads, capsys.readouterr().out.splitlines())}
    assert checks["packages"]["state"] == "ok" and "prefect" in checks["packages"]["found"]
    monkeypatch.setattr("ratchet.components.operations.host_checks.ESSENTIAL", ("no-such-package",))
    assert run("doctor", "--json") == 1
    assert install_command("night") in capsys.readouterr().out


def asks_for_its_credential(server):
    """MLflow's own client gets in with a password or a token of the environment and not without; no foreign page does."""
    import httpx
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    from ratchet.components.core.home import basic_auth_header, bearer_auth_header, credential, home, is_healthy

    password = credential("mlflow")
    assert not [path for path in (home(), home() / "mlflow.db") if path.stat().st_mode & 0o077]
    register = f"{server}/api/2.0/mlflow/registered-models/create"
    intruder = {"json": {"name": "intruder"}, "timeout": LIMIT}
    assert httpx.post(register, **intruder).status_code == 401
    for foreign in ({"Host": "evil.example"}, {"Origin": "http://127.0.0.1:1"}):
        assert httpx.post(register, headers=bearer_auth_header(password) | foreign, **intruder).status_code == 403
    search = f"{server}/api/2.0/mlflow/experiments/search?max_results=1"
    login = basic_auth_header(f"ratchet:{password}")
    assert httpx.get(search, headers=login, timeout=LIMIT).status_code == 200
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", server)
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        given = {"MLFLOW_TRACKING_USERNAME": "ratchet", "MLFLOW_TRACKING_PASSWORD": password}
        for variables in (given, {"MLFLOW_TRACKING_TOKEN": password}):
            with patch.context() as only:
                for name, value in variables.items():
                    only.setenv(name, value)
                assert is_healthy("mlflow", server, LIMIT)
                assert list(MlflowClient(server).search_registered_models()) == []
        with pytest.raises(ConfigurationError, match="refuses the credentials"):
            is_healthy("mlflow", server, LIMIT)
        with pytest.raises(MlflowException, match="401"):
            MlflowClient(server).search_registered_models()


@pytest.mark.slow
@pytest.mark.xdist_group("mlflow")
def test_the_interfaces_answer_until_ctrl_c_and_leave_nothing_behind(tmp_path):
    import httpx
    import psutil

    from ratchet.components.core.home import authorization_header, credential
    from ratchet.components.core.processes import free_port

    prefect, mlflow = free_port(), free_port()
    command = [sys.executable, "-m", "ratchet.cli", "ui", "--prefect-port", str(prefect), "--mlflow-port", str(mlflow)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
    ui = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    lines = [ui.stdout.readline(), ui.stdout.readline()]
    assert [line.split() for line in lines] == [
        ["Prefect", f"http://127.0.0.1:{prefect}"],
        ["MLflow", f"http://127.0.0.1:{mlflow}"],
    ], ui.stderr.read()
    health = f"http://127.0.0.1:{mlflow}/health"
    assert httpx.get(health, timeout=LIMIT).status_code == 401
    assert httpx.get(health, headers=authorization_header("mlflow"), timeout=LIMIT).text == "OK"
    assert "<html" in httpx.get(f"http://127.0.0.1:{prefect}", follow_redirects=True, timeout=LIMIT).text.lower()
    asks_for_its_credential(health.removesuffix("/health"))
    tree = psutil.Process(ui.pid).children(recursive=True)
    ui.send_signal(signal.SIGINT)
    printed, said = ui.communicate(timeout=LIMIT)
    assert ui.returncode == 0 and "Traceback" not in said
    for name in ("prefect", "mlflow"):  # no terminal: the files are named, and what stands in them is not printed
        assert credential(name) not in printed + said and f"credentials/{name}" in said
    until(lambda: all(gone(process.pid) for process in tree))


@pytest.mark.parametrize("command", ["night", "status", "schedule", "build", "ui", "data checkout 2026-11-21-a1b2"])
def test_outside_a_clone_a_command_of_the_night_says_where_to_go_and_writes_nothing(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("RATCHET_HOME")
    monkeypatch.chdir(tmp_path)
    assert run(*command.split()) == 2
    assert "is not the root of a clone" in one_line(capsys)
    assert not list(tmp_path.iterdir())


def test_in_a_folder_of_the_clone_its_root_is_named(monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "tests")
    assert run("status") == 2
    assert str(ROOT) in one_line(capsys).split("run this command in")[1]


def test_a_file_without_trajectories_is_no_clean_score(tmp_path, capsys):
    (tmp_path / "empty.jsonl").touch()
    assert run("score", str(tmp_path / "empty.jsonl")) == 3
    assert "holds no trajectories" in one_line(capsys)


@pytest.mark.parametrize("place", ["README.md", "docs", "", "/proc/nowhere"])
def test_a_collection_goes_into_a_new_or_an_empty_folder_alone(place, capsys):
    before = sorted(path.name for path in (ROOT / "docs").iterdir())
    assert run("collect", place, "--policy", "teacher", "--tasks", "1", "--attempts", "1") == 2
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and "folder" in line
    assert sorted(path.name for path in (ROOT / "docs").iterdir()) == before


@pytest.mark.parametrize(("words", "page"), [(["nihgt"], "ratchet --help"), (["tasks", "lst"], "ratchet tasks --help")])
def test_the_hint_names_a_page_of_help_that_there_is(words, page, capsys):
    assert run(*words) == 2
    assert f"see `{page}`" in one_line(capsys)
