"""The processes that answer slow queries: few, kept, and with an end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.inspector import query_process
from ratchet.components.inspector.query_process import QueryProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryProcess]:
    """Queries of lineage in a folder without a build."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    started = QueryProcess("lineage")
    yield started
    started.close()


def ask_night(queries: QueryProcess) -> str:
    """A query that is refused without MLflow."""
    with pytest.raises(DataError) as refused:
        queries.ask("night", "2026-11-20-a1b2")
    return str(refused.value)


def test_one_process_answers_all_queries_and_is_replaced_when_it_dies(queries: QueryProcess) -> None:
    assert "filter `source`" in ask_night(queries)
    first = queries._process
    assert first is not None and "filter `source`" in ask_night(queries) and queries._process is first
    os.kill(first.process.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureError):
        queries.ask("night", "2026-11-20-a1b2")
    assert "filter `source`" in ask_night(queries) and queries._process is not first


def test_a_query_without_an_answer_in_time_ends_its_process(
    queries: QueryProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_night(queries)
    first = queries._process
    assert first is not None
    os.kill(first.process.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch, pytest.raises(InfrastructureError, match="no answer within"):
        patch.setattr(query_process, "QUERY_SECONDS", 0.3)
        queries.ask("night", "2026-11-20-a1b2")
    assert first.process.returncode == -signal.SIGKILL
    ask_night(queries)


def test_a_process_that_nobody_asks_for_a_while_ends_and_the_next_query_starts_another(
    queries: QueryProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_idle_seconds", 0.2)
    ask_night(queries)
    until(lambda: queries._process is None)
    ask_night(queries)


def test_a_hundred_queries_at_once_start_one_process_and_those_beyond_the_bound_are_refused(
    queries: QueryProcess,
) -> None:
    ask_night(queries)
    first = queries._process
    assert first is not None
    os.kill(first.process.pid, signal.SIGSTOP)
    errors: list[Exception] = []

    def click() -> None:
        try:
            queries.ask("night", "x")
        except (DataError, InfrastructureError) as error:
            errors.append(error)

    clicks = [threading.Thread(target=click) for _ in range(100)]
    for thread in clicks:
        thread.start()
    end = time.monotonic() + 60
    while len(errors) < 100 - query_process.MAX_WAITING and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(first.process.pid, signal.SIGCONT)
    for thread in clicks:
        thread.join()
    refused = [error for error in errors if isinstance(error, InfrastructureError)]
    assert len(refused) == 100 - query_process.MAX_WAITING and queries._process is first


def test_a_process_whose_query_hangs_ends_with_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "transformers.py").write_text(
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = (
        "from ratchet.components.inspector.query_process import QueryProcess\n"
        "QueryProcess('tokens').ask('.', 'sft', {}, [], '.')"
    )
    with subprocess.Popen([sys.executable, "-c", server]) as running:
        until(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text().endswith("\n"))
        running.kill()
    pid = (tmp_path / "pid").read_text().strip()
    until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("garbage", ["{}{}", "5", '{"value": 1, "other": 2}', "\xff", "Traceback"])
def test_a_process_that_prints_garbage_is_replaced(queries: QueryProcess, garbage: str, tmp_path: Path) -> None:
    command, own = queries._command, tmp_path / "own.sh"
    own.write_text(f"read line; echo '{garbage}'; sleep 600")
    queries._command = ["/bin/sh", str(own)]
    with pytest.raises(InfrastructureError):
        queries.ask("night", "x")
    queries._command = command
    assert "filter `source`" in ask_night(queries)


@pytest.mark.parametrize(
    "id", ["\0", "a\nb", "../../etc/passwd", "x" * 100_000, '"}', "\u202e", "models:/a/b/c", "/", "ep-"]
)
def test_a_hostile_id_is_no_id(queries: QueryProcess, id: str) -> None:
    with pytest.raises(DataError) as refused:
        queries.ask("", id)
    assert "\n" not in str(refused.value)
    first = queries._process
    with pytest.raises(DataError, match="Unicode"):
        queries.ask("", "\ud800")
    assert queries._process is first
