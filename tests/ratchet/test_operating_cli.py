"""`ratchet up`, `down` and `logs` on the command line."""

import threading
from pathlib import Path

import pytest
from patience import until

from ratchet.render import logs

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(ROOT)


def write_logs(home: Path, **texts: str) -> None:
    (home / "logs").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (home / "logs" / f"{name.replace('_', '-')}.log").write_text(text)


def test_logs_shows_the_last_lines_of_all_services_or_of_those_that_are_named(run, tmp_path):
    write_logs(tmp_path / "home", worker="1\n2\n3\n", mlflow_server="hot \x1b[31mred\n", night_a="other\n")
    code, out, _ = run("logs", "-n", 2)
    assert code == 0 and sorted(out.splitlines()) == [
        "mlflow-server | hot red",
        "worker        | 2",
        "worker        | 3",
    ]
    assert run("logs", "night")[1] == "night-a | other\n"


def test_logs_of_something_unknown_names_those_that_there_are(run, tmp_path):
    assert run("logs")[0] == 2 and "`ratchet up`" in run("logs")[2]
    write_logs(tmp_path / "home", night_a="x\n")
    code, _, error = run("logs", "nothing")
    assert code == 2 and "night-a" in error


def test_followed_logs_go_on_in_a_file_that_was_rotated(monkeypatch, tmp_path):
    printed: list[str] = []
    monkeypatch.setattr(logs, "print_text", printed.append)
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    write_logs(tmp_path / "home", worker="old line\n")
    # A daemon: nothing but the end of its process ends it, as Ctrl-C does the command.
    threading.Thread(target=logs.print_logs, args=("worker", 1), kwargs={"follow": True}, daemon=True).start()
    path = tmp_path / "home/logs/worker.log"
    until(lambda: printed == ["worker | old line"])
    printed.clear()
    with path.open("a") as file:
        file.write("two\nhalf")
    until(lambda: printed == ["worker | two"])
    path.write_text("new\n")
    until(lambda: printed == ["worker | two", "worker | new"])


def test_down_without_up_says_so(run):
    assert run("down") == (0, "nothing of `ratchet up` is running\n", "")


def test_units_are_written_and_how_to_start_them_is_said(run, tmp_path):
    code, out, said = run("up", "--systemd", "--units", tmp_path / "units")
    assert code == 0 and "enable --now ratchet.target" in said
    names = ["ratchet.target", *(f"ratchet-{name}.service" for name in ("prefect", "mlflow", "worker", "watch"))]
    assert [Path(line).name for line in out.splitlines()] == names


@pytest.mark.parametrize("options", [["--units", "x"], ["--serve", "'unclosed"]])
def test_options_that_make_no_sense_are_refused(run, options):
    code, _, error = run("up", *options)
    assert code == 2 and len(error.splitlines()) == 1
