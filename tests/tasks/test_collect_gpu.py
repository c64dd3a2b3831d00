"""A collection that is served by a GPU has one for itself; any other needs none."""

import threading

import pytest
from patience import LIMIT

from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.tasks import collect

pytestmark = pytest.mark.slow


class Told:
    def __init__(self):
        self.remarks = []
        self.heard = threading.Event()

    def update(self, *, remark):
        self.remarks.append(remark)
        self.heard.set()


def plan(policy, executor="local"):
    return CollectPlan(taskset="programs", policy=policy, executor=executor)


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_what_is_served_takes_turns_on_one_gpu(monkeypatch):
    monkeypatch.setattr(collect, "visible_gpus", lambda: ["3"])
    monkeypatch.setattr("ratchet.components.training.gpu_locks.POLL_SECONDS", 0.01)
    told, entered = Told(), threading.Event()

    def second():
        with collect._reserve_gpu(plan("vllm:b"), told) as environment:
            assert environment == {"CUDA_VISIBLE_DEVICES": "3"}
            entered.set()

    with collect._reserve_gpu(plan("vllm:a"), Told()) as environment:
        assert environment == {"CUDA_VISIBLE_DEVICES": "3"}
        thread = threading.Thread(target=second)
        thread.start()
        assert told.heard.wait(LIMIT) and not entered.is_set()
    thread.join()
    assert entered.is_set() and set(told.remarks) == {"waiting for a GPU"}


@pytest.mark.parametrize("policy", ["teacher", "transformers:a", "openai:m@http://h/v1", "vllm:a@http://h/v1"])
def test_what_starts_no_server_waits_for_none(monkeypatch, policy):
    monkeypatch.setattr(collect, "visible_gpus", lambda: pytest.fail("asked for GPUs"))
    with collect._reserve_gpu(plan(policy), Told()) as environment:
        assert environment == {}


@pytest.mark.parametrize("executor", ["ray", "prefect"])
def test_what_other_machines_serve_needs_no_gpu_here(monkeypatch, executor):
    monkeypatch.setattr(collect, "visible_gpus", lambda: pytest.fail("asked for GPUs"))
    with collect._reserve_gpu(plan("vllm:a", executor), Told()) as environment:
        assert environment == {}


def test_without_a_gpu_servers_run_beside_each_other(monkeypatch):
    monkeypatch.setattr(collect, "visible_gpus", list)
    with collect._reserve_gpu(plan("vllm:a"), Told()) as one, collect._reserve_gpu(plan("vllm:b"), Told()) as two:
        assert one == two == {}
