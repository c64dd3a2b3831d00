"""How a night hands cohorts to other machines and takes their shards, whatever plays them."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.nights.scale_config import load_scale
from ratchet.components.operations.shared_collection import shared_cohort
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.trajectories.shards import read_folder, read_manifest
from ratchet.tasks import collect as collect_task
from ratchet.tasks import prefect_executor

pytestmark = pytest.mark.slow  # imports Prefect


TWO_CONVERSATIONS = """
import json, os, urllib.request
for text in (os.environ["RATCHET_TASK"], "aside"):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers)).read()
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CollectPlan:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    monkeypatch.setenv("RATCHET_ARTIFACTS", str(tmp_path / "store"))
    return CollectPlan(taskset="orders", policy="teacher", limit=4, attempts=2, cohort_size=3, executor="ray")


def play_in_turn(plan: CollectPlan, location: str, numbers: list[int]) -> Iterator[int | None]:
    for number in numbers:
        with shared_cohort(location, number) as (here, folder):
            collect(here, folder, cohort=number)
        yield number
        yield None


def test_a_flow_seals_what_other_machines_have_played(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(collect_task, "play_on_ray", play_in_turn)
    report = collect_task.play.fn("collect", plan, tmp_path / "out")
    assert (report["episodes"], report["successes"], report["replayed"]) == (8, 8, 8)
    assert [entry.episodes for entry in read_manifest(tmp_path / "out")] == [3, 3, 2]
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    monkeypatch.setattr(collect_task, "play_on_ray", lambda plan, location, numbers: iter(numbers))
    assert collect_task.play.fn("collect", plan, tmp_path / "out")["replayed"] == 0, "what is here is not played again"


def test_what_a_harness_plays_elsewhere_is_sealed_with_its_side_conversations(plan, tmp_path, monkeypatch):
    harness = {"command": ["python3", "$HOME/a.py"], "files": {"$HOME/a.py": TWO_CONVERSATIONS}}
    own = {"taskset": "programs", "policy": "teacher", "limit": 2, "attempts": 1, "cohort_size": 1, "executor": "ray"}
    plan = CollectPlan.load({**own, "sandbox": {"backend": "local"}, "harness": harness})
    monkeypatch.setattr(collect_task, "play_on_ray", play_in_turn)
    assert collect_task.play.fn("collect", plan, tmp_path / "out")["episodes"] == 2
    records = [record.episode_id for record in read_folder(tmp_path / "out")]
    listed = [identity for entry in read_manifest(tmp_path / "out") for identity in entry.episode_ids]
    assert len(set(records)) == 4 and listed == records


def test_a_cohort_that_ended_without_a_shard_is_an_infrastructure_failure(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(collect_task, "play_on_ray", lambda plan, location, numbers: iter(numbers))
    with pytest.raises(InfrastructureError, match="3 cohorts ended without a shard"):
        collect_task.play.fn("collect", plan, tmp_path / "out")


def test_the_executor_of_a_scale_is_that_of_its_plans():
    scale = load_scale("smoke")
    assert scale.executor == "local"
    changed = scale.model_copy(update={"executor": "prefect"})
    plans = [each.plan(each.collection, "teacher", "train", ("a",), 0) for each in (scale, changed)]
    assert [plan.executor for plan in plans] == ["local", "prefect"]


class Server:
    """A Prefect server, as far as the executor asks it: each run ends in the next of the states given for its cohort."""

    def __init__(self, states: dict[int, list[str]]) -> None:
        self.states = states
        self.runs: dict[str, Any] = {}
        self.set: list[tuple[str, str]] = []

    def read_deployment_by_name(self, name: str) -> Any:
        return SimpleNamespace(id=name)

    def create_flow_run_from_deployment(self, deployment: str, parameters: dict[str, Any], tags: list[str]) -> Any:
        kind = self.states[parameters["number"]].pop(0)
        state = SimpleNamespace(
            is_final=lambda: kind not in ("RUNNING", "PENDING"),
            is_completed=lambda: kind == "COMPLETED",
            is_pending=lambda: kind == "PENDING",
            timestamp=datetime.now(UTC) - timedelta(hours=1),
            message="no space left",
        )
        # Prefect's label is that of the worker which came second.
        labels = {"prefect.worker.name": "there", "ratchet.worker": "gone" if kind == "RUNNING" else "there"}
        labels = labels if kind != "PENDING" else {}
        run = SimpleNamespace(id=f"run-{len(self.runs)}", name="run", state=state, labels=labels)
        self.runs[run.id] = run
        return run

    def read_workers_for_work_pool(self, pool: str) -> list[Any]:
        return [SimpleNamespace(name="gone", status="OFFLINE"), SimpleNamespace(name="there", status="ONLINE")]

    def read_flow_runs(self, flow_run_filter: Any, limit: int) -> list[Any]:
        return [self.runs[name] for name in flow_run_filter]

    def set_flow_run_state(self, run: str, state: Any, force: bool = False) -> None:
        self.set.append((run, state.type.value))


@pytest.fixture
def serve(monkeypatch):
    def serve(states: dict[int, list[str]]) -> Server:
        server = Server(states)
        monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: contextlib.nullcontext(server))
        monkeypatch.setattr("prefect.client.schemas.filters.FlowRunFilterId", lambda any_: any_)
        monkeypatch.setattr("prefect.client.schemas.filters.FlowRunFilter", lambda id: id)
        monkeypatch.setattr(prefect_executor, "POLL_SECONDS", 0.0)
        return server

    return serve


def test_a_run_that_failed_or_whose_worker_is_offline_is_created_anew(plan, serve):
    server = serve(
        {0: ["FAILED", "COMPLETED"], 1: ["RUNNING", "COMPLETED"], 2: ["COMPLETED"], 3: ["PENDING", "COMPLETED"]}
    )
    ended = [number for number in prefect_executor.play_by_workers(plan, "store", range(4)) if number is not None]
    assert sorted(ended) == [0, 1, 2, 3] and len(server.runs) == 7
    assert server.set == [("run-1", "CRASHED"), ("run-3", "CRASHED")], "the runs of lost workers are closed"


def test_a_cohort_that_fails_again_and_again_ends_the_collection_and_cancels_the_others(plan, serve, monkeypatch):
    server = serve({0: ["FAILED"] * 5, 1: ["RUNNING"]})
    monkeypatch.setattr(server, "read_workers_for_work_pool", lambda pool: [])
    with pytest.raises(InfrastructureError, match="cohort 0 failed 5 times, last on there: no space left"):
        list(prefect_executor.play_by_workers(plan, "store", [0, 1]))
    assert server.set == [("run-1", "CANCELLING")]


def test_without_a_deployment_the_error_says_how_to_start_a_worker(plan, serve, monkeypatch):
    from prefect.exceptions import ObjectNotFound

    def absent(name: str) -> Any:
        raise ObjectNotFound(Exception())

    server = serve({})
    monkeypatch.setattr(server, "read_deployment_by_name", absent)
    with pytest.raises(ConfigurationError, match=r"start\.sh rollouts"):
        list(prefect_executor.play_by_workers(plan, "store", [0]))


def test_a_server_that_does_not_answer_is_an_infrastructure_failure_which_can_be_repeated(plan, serve, monkeypatch):
    server = serve({0: ["RUNNING"]})
    monkeypatch.setattr(server, "read_workers_for_work_pool", lambda pool: (_ for _ in ()).throw(httpx.ReadTimeout("")))
    with pytest.raises(InfrastructureError, match="run the same command again"):
        list(prefect_executor.play_by_workers(plan, "store", [0]))
    assert server.set == [("run-0", "CANCELLING")]
