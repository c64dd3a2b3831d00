"""Episodes of a policy that answers one request at a time: whole, many at once, and none lost for another's sake."""

import threading
import time

import msgspec
import pytest
from patience import LIMIT, until
from tiny import Tiny

from ratchet.components.core import ConfigurationError, InfrastructureError, SandboxUnavailable
from ratchet.components.models.scripted_policies import Teacher
from ratchet.components.rollouts.collection import collect
from ratchet.components.trajectories.shards import read_folder, read_manifest
from ratchet.components.trajectories.trajectory import FailureKind


def untimed(folder):
    """Every shard's bytes without what a clock wrote."""
    found = {}
    for entry in read_manifest(folder):
        rows = []
        for line in (folder / entry.shard).read_bytes().splitlines():
            row = msgspec.json.decode(line)
            row["provenance"].pop("collected_at")
            for turn in row["turns"]:
                del turn["seconds"], turn["call_seconds"]
            rows.append(msgspec.json.encode(row))
        found[entry.shard] = rows
    return found


def away(task_id, steps):
    raise SandboxUnavailable("the engine is away")


def failing(*task_ids, times, error=None):
    """A hook that raises for those tasks, so many times each; that the engine is away, unless `error` says otherwise."""
    left = dict.fromkeys(task_ids, times)
    lock = threading.Lock()

    def hook(task_id, steps):
        with lock:
            if left.get(task_id, 0) <= 0:
                return
            left[task_id] -= 1
        raise error or SandboxUnavailable("the engine is away")

    return hook


def test_an_episode_stays_on_one_thread_from_its_beginning_to_its_end(make_plan, tmp_path):
    Tiny.on_step = lambda task_id, steps: until(lambda: Tiny.most == 4)
    collect(make_plan(), tmp_path / "out")
    assert len(Tiny.threads) == 12
    assert all(len(threads) == 1 for threads in Tiny.threads.values())
    assert len(set.union(*Tiny.threads.values())) == 4


@pytest.mark.parametrize("concurrency", [1, 3, 7])
def test_as_many_episodes_are_played_at_once_as_the_plan_says(make_plan, tmp_path, concurrency):
    full = threading.Event()

    def wait_for_the_others(task_id, steps):
        if Tiny.most >= concurrency:
            time.sleep(0.01)  # one too many would come now
            full.set()
        assert full.wait(LIMIT), f"{Tiny.most} at once"

    Tiny.on_step = wait_for_the_others
    collect(make_plan(concurrency=concurrency), tmp_path / "out")
    assert Tiny.most == concurrency


@pytest.mark.parametrize("change", [{"concurrency": 1}, {"concurrency": 12}, {"workers": 1}, {"workers": 3}])
def test_the_same_rollouts_whatever_the_concurrency_and_the_workers(make_plan, tmp_path, change):
    collect(make_plan(policy="clumsy", attempts=2), tmp_path / "a")
    collect(make_plan(policy="clumsy", attempts=2, **change), tmp_path / "b")
    assert len(untimed(tmp_path / "a")) == 6
    assert untimed(tmp_path / "a") == untimed(tmp_path / "b")


def test_a_slow_episode_holds_up_its_own_shard_alone(make_plan, tmp_path):
    go_on = threading.Event()
    Tiny.on_step = lambda task_id, steps: go_on.wait(LIMIT) if task_id == "t0" else None
    shards = []

    def seen(progress):
        if progress.done == 11:
            shards.extend(entry.shard for entry in read_manifest(tmp_path / "out"))
            go_on.set()

    collect(make_plan(), tmp_path / "out", on_progress=seen)
    assert shards == ["shard-00001.jsonl", "shard-00002.jsonl"]
    assert len(read_manifest(tmp_path / "out")) == 3


def test_a_broken_try_is_repeated_with_the_same_seed_and_leaves_no_trace_in_the_record(make_plan, tmp_path):
    collect(make_plan(), tmp_path / "smooth")
    Tiny.forget()
    Tiny.on_step = failing("t1", "t5", times=2)
    report = collect(make_plan(), tmp_path / "rough")
    assert untimed(tmp_path / "rough") == untimed(tmp_path / "smooth")
    assert report.retried == {"SandboxUnavailable": 4} and report.infrastructure_failures == 0
    assert len({seed for task_id, seed in Tiny.resets if task_id == "t1"}) == 1
    assert sum(task_id == "t1" for task_id, _ in Tiny.resets) == 3


def test_one_failing_environment_loses_no_other_episode_and_none_is_missing(make_plan, tmp_path):
    """Defect 38: one failing environment lost all episodes, and 8 of 12 came back without a word."""
    Tiny.on_step = failing("t1", times=99, error=RuntimeError("a bug in an environment"))
    report = collect(make_plan(min_completed=0.9), tmp_path / "out")
    records = {each.task.task_id: each for each in read_folder(tmp_path / "out")}
    assert len(records) == 12 and report.episodes == 12 and report.successes == 11
    lost = records["t1"]
    assert (lost.failure.kind, lost.failure.type) == (FailureKind.INFRASTRUCTURE, "RuntimeError")
    assert lost.outcome.success is None and lost.outcome.score is None
    assert report.failures == {"infrastructure: RuntimeError": 1}
    assert not Tiny.alive


def test_even_an_environment_that_exits_ends_nothing_but_its_try(make_plan, tmp_path):
    Tiny.on_reset = failing("t2", times=1, error=SystemExit(3))
    assert collect(make_plan(), tmp_path / "out").successes == 12


def test_too_many_losses_end_with_one_line_and_the_same_call_plays_only_them(make_plan, tmp_path):
    Tiny.on_step = failing("t1", "t2", times=99)
    with pytest.raises(
        InfrastructureError, match=r"2 of 12 episodes were lost.*the engine is away.*the others are saved"
    ):
        collect(make_plan(), tmp_path / "out")
    assert len(read_manifest(tmp_path / "out")) == 2
    Tiny.forget()
    report = collect(make_plan(), tmp_path / "out")
    assert (report.episodes, report.successes, report.replayed) == (12, 12, 2)
    assert {task_id for task_id, _ in Tiny.resets} == {"t1", "t2"}


def test_where_all_are_lost_none_is_said_to_be_saved(make_plan, tmp_path):
    Tiny.on_step = failing(*(f"t{i}" for i in range(12)), times=99)
    with pytest.raises(InfrastructureError, match="12 of 12 episodes were lost") as error:
        collect(make_plan(patience=1.0), tmp_path / "out")
    assert "saved" not in str(error.value)


def test_a_policy_that_breaks_is_recorded_as_such_and_never_asked_again(make_plan, tmp_path, monkeypatch):
    asked = []
    honest = Teacher._reply

    def reply(self, request):
        if request.task_id == "t3" and request.turn == 1:
            asked.append(request.turn)
            raise ValueError("no answer")
        return honest(self, request)

    monkeypatch.setattr(Teacher, "_reply", reply)
    report = collect(make_plan(), tmp_path / "out")
    (broken,) = [each for each in read_folder(tmp_path / "out") if each.failure is not None]
    assert (broken.failure.kind, broken.failure.type) == (FailureKind.POLICY, "ValueError")
    assert broken.outcome.success is False and broken.outcome.reason == "policy_error" and len(broken.turns) == 1
    assert asked == [1] and report.failures == {"policy: ValueError": 1} and report.infrastructure_failures == 0


def test_a_wrong_configuration_ends_the_collection_at_once_and_keeps_what_was_played(make_plan, tmp_path, monkeypatch):
    honest = Teacher._reply

    def reply(self, request):
        if request.task_id == "t8":
            raise ConfigurationError("no such key")
        return honest(self, request)

    monkeypatch.setattr(Teacher, "_reply", reply)
    with pytest.raises(ConfigurationError, match="no such key"):
        collect(make_plan(concurrency=1), tmp_path / "out")
    monkeypatch.undo()
    assert 1 <= collect(make_plan(), tmp_path / "out").replayed <= 4
    assert not Tiny.alive


@pytest.mark.parametrize("stage", ["reset", "step"])
def test_a_hung_stage_is_given_up_and_its_thread_holds_up_nobody(make_plan, tmp_path, stage):
    for_ever = threading.Event()
    hung = []

    def hang(task_id, steps):
        if task_id == "t1" and not hung:
            hung.append(steps)
            assert for_ever.wait(LIMIT), "it was waited for"

    setattr(Tiny, f"on_{stage}", hang)
    report = collect(make_plan(concurrency=2, retries=20, timeouts={stage: 0.3}), tmp_path / "out")
    assert report.successes == 12 and report.retried.keys() == {"StageTimeout"}
    assert not Tiny.alive
    for_ever.set()


def test_a_policy_that_never_answers_is_given_up(make_plan, tmp_path, monkeypatch):
    honest, hung, for_ever = Teacher._reply, [], threading.Event()

    def reply(self, request):
        if request.task_id == "t0" and not hung:
            hung.append(request)
            assert for_ever.wait(LIMIT), "it was waited for"
        return honest(self, request)

    monkeypatch.setattr(Teacher, "_reply", reply)
    report = collect(make_plan(retries=20, timeouts={"act": 0.3}), tmp_path / "out")
    assert report.successes == 12 and report.retried.keys() == {"StageTimeout"}
    for_ever.set()


@pytest.mark.slow
def test_an_environment_that_never_closes_costs_no_episode(make_plan, tmp_path, monkeypatch):
    for_ever = threading.Event()
    monkeypatch.setattr(Tiny, "close", lambda self: for_ever.wait(LIMIT))
    report = collect(make_plan(concurrency=2, timeouts={"close": 0.05}), tmp_path / "out")
    assert report.successes == 12 and not report.retried
    for_ever.set()


@pytest.mark.slow
def test_a_world_that_is_away_for_a_while_is_waited_for_without_using_up_tries(make_plan, tmp_path, monkeypatch):
    begun = []

    def hook(task_id, steps):
        begun.append(time.monotonic())
        if time.monotonic() < begun[0] + 0.5:
            raise SandboxUnavailable("the engine is away")

    Tiny.on_reset = hook
    monkeypatch.setattr("ratchet.components.rollouts.collection.REPORT_SECONDS", 0.0)
    waited = []
    report = collect(
        make_plan(tasks=40, retries=1), tmp_path / "out", on_progress=lambda each: waited.append(each.waiting_for)
    )
    assert report.successes == 40 and report.infrastructure_failures == 0
    assert "SandboxUnavailable" in waited and waited[-1] is None
    assert len(Tiny.resets) < 70, "it probed, and did not play everything again and again"


@pytest.mark.slow
def test_a_world_that_stays_away_ends_the_collection_when_its_patience_is_over(make_plan, tmp_path):
    played = threading.Semaphore(10)

    def hook(task_id, steps):
        if not played.acquire(blocking=False):
            away(task_id, steps)

    Tiny.on_reset = hook
    with pytest.raises(InfrastructureError, match=r"30 of 40 episodes were lost.*the engine is away") as said:
        collect(make_plan(tasks=40, patience=0.5), tmp_path / "out")
    assert "\n" not in str(said.value)
    Tiny.forget()
    assert collect(make_plan(tasks=40), tmp_path / "out").replayed == 30


def test_an_unforeseen_loss_among_successes_is_set_aside_and_not_waited_for(make_plan, tmp_path):
    Tiny.on_reset = failing(*(f"t{4 * n}" for n in range(10)), times=99)
    begin = time.monotonic()
    report = collect(make_plan(tasks=40, min_completed=0.5), tmp_path / "out")
    assert report.infrastructure_failures == 10 and report.successes == 30
    assert time.monotonic() - begin < LIMIT, "the patience of a plan is longer"
