"""Evaluating by hand, on the tiny environment: any policy, the same worlds for all of them, and the same call goes on."""

import os
import signal
import threading
from datetime import UTC, datetime

import msgspec
import pytest
import tiny
from patience import LIMIT

from ratchet.components.core import ConfigurationError, Role, SandboxUnavailable
from ratchet.components.evaluation.paired_comparison import compare_paired
from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.nights.scale_config import load_scale
from ratchet.components.operations import manual_evaluation
from ratchet.components.operations.manual_evaluation import describe_sandbox, evaluate_agent
from ratchet.components.rollouts.independent_play import WatchedThreadPool
from ratchet.components.rollouts.lockstep_play import Interrupted
from ratchet.components.sandboxes import SandboxConfig, sandbox_factory
from ratchet.components.tracking.evaluation_tables import log_decision
from ratchet.components.trajectories.shards import read_folder
from ratchet.flows.night_context import pin_sandbox

pytestmark = pytest.mark.usefixtures("tiny_home")


@pytest.fixture
def taskset(tmp_path):
    return tiny.write_taskset(tmp_path / "tiny", 6, role=Role.PROMOTE)


def played(result):
    return {(task.task_id, each.attempt, each.seed) for task in result.tasks for each in task.attempts}


def test_each_task_is_played_k_times_and_everything_is_known_of_it(taskset):
    found = evaluate_agent("teacher", taskset, k=3, seed=5)
    assert found.result.name == "teacher" and len(found.result.tasks) == 6
    assert {len(task.attempts) for task in found.result.tasks} == {3}
    assert all(
        each.success and each.reward == 1.0 and each.unsafe == 0
        for task in found.result.tasks
        for each in task.attempts
    )
    assert (found.plan.attempts, found.taskset.name, found.report.episodes) == (3, "tiny", 18)


def test_two_agents_with_one_seed_are_compared_attempt_by_attempt(taskset):
    teacher, clumsy = evaluate_agent("teacher", taskset, k=2), evaluate_agent("clumsy", taskset, k=2)
    assert played(teacher.result) == played(clumsy.result) and teacher.folder != clumsy.folder
    assert compare_paired(clumsy.result, teacher.result, n_resamples=200).lost == 0
    other = evaluate_agent("teacher", taskset, k=2, seed=1)
    assert not played(other.result) & played(teacher.result)


def test_the_same_call_goes_on_where_it_was_ended_and_a_finished_one_only_reads(taskset, monkeypatch, capsys):
    ended, abandon = threading.Event(), WatchedThreadPool.abandon
    monkeypatch.setattr(WatchedThreadPool, "abandon", lambda crew, why: ended.set() or abandon(crew, why))

    def interrupt(task_id, steps):
        if len(tiny.Tiny.resets) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        elif len(tiny.Tiny.resets) > 3:  # it looks now and then
            ended.wait(LIMIT)

    tiny.Tiny.on_reset = interrupt
    with pytest.raises(Interrupted):
        evaluate_agent("teacher", taskset, k=1, concurrency=1)
    before = len(tiny.Tiny.resets)
    tiny.Tiny.forget()
    found = evaluate_agent("teacher", taskset, k=1, concurrency=1)
    assert found.report.episodes == 6 and before + len(tiny.Tiny.resets) < 12 and before < 6
    tiny.Tiny.forget()
    capsys.readouterr()
    again = evaluate_agent("teacher", taskset, k=1, concurrency=4)
    assert again.result == found.result and tiny.Tiny.resets == [] and again.folder == found.folder
    finished = datetime.fromtimestamp((found.folder / "manifest.jsonl").stat().st_mtime, UTC)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        f"nothing was played: the 6 episodes were read from {found.folder}, finished {finished:%Y-%m-%d %H:%M}"
    )
    assert "--out or another --seed" in said and "`revision`" in said


def test_another_question_has_a_folder_of_its_own(taskset):
    folders = {
        evaluate_agent("teacher", taskset, **asked).folder
        for asked in ({}, {"k": 1}, {"tasks": 2}, {"seed": 1}, {"temperature": 0.5}, {"max_turns": 2})
    }
    assert len(folders) == 6
    assert all(folder.name.startswith("teacher-s") for folder in folders)


def test_a_folder_of_ones_own_is_used_and_refuses_another_question(taskset, tmp_path):
    found = evaluate_agent("teacher", taskset, k=1, out=tmp_path / "mine")
    assert found.folder == tmp_path / "mine" and len(list(read_folder(found.folder))) == 6
    with pytest.raises(ConfigurationError):
        evaluate_agent("teacher", taskset, k=2, out=tmp_path / "mine")


def test_as_many_tasks_are_drawn_as_were_asked_for_and_more_seeds_draw_others(taskset):
    two, again = (evaluate_agent("teacher", taskset, k=1, tasks=2, seed=seed) for seed in (0, 0))
    assert len(two.result.tasks) == 2 and two.result == again.result
    drawn = {
        tuple(task.task_id for task in evaluate_agent("teacher", taskset, k=1, tasks=2, seed=seed).result.tasks)
        for seed in range(5)
    }
    assert len(drawn) > 1


def test_of_its_own_taskset_a_scale_says_how_many_of_which_role(monkeypatch):
    plans = []

    def planned(plan, folder, title, *, anew):
        plans.append(plan)
        raise ConfigurationError("planned")

    monkeypatch.setattr(manual_evaluation, "play_plan", planned)
    for asked in ({}, {"role": "promote", "tasks": 3}, {"role": "reserve", "tasks": 2}):
        with pytest.raises(ConfigurationError, match="planned"):
            evaluate_agent("teacher", **asked)
    scale = manual_evaluation.load_scale("smoke")
    roles = [name.split("/")[1].split("-")[0] for name in plans[0].task_ids]
    assert (roles.count("promote"), roles.count("audit")) == (scale.evaluation.promote, scale.evaluation.audit)
    assert plans[0].attempts == scale.evaluation.attempts and plans[0].max_turns == scale.max_turns
    assert [len(plan.task_ids) for plan in plans[1:]] == [3, 2] and plans[2].role == "reserve"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tasks": 7}, "7 tasks were asked for"),
        ({"tasks": 0}, "at least 1"),
        ({"k": 0}, "attempts"),
        ({"role": "promot"}, "unknown role"),
        ({"role": "audit"}, "no tasks of role audit"),
        ({"colour": "red"}, "has no 'colour'"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_a_wrong_question_is_one_line_and_plays_nothing(taskset, asked, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        evaluate_agent("teacher", taskset, **asked)
    assert "\n" not in str(caught.value) and tiny.Tiny.resets == []


def test_an_unknown_policy_is_one_line(taskset):
    with pytest.raises(ConfigurationError, match="unknown policy 'techer'"):
        evaluate_agent("techer", taskset)


def test_where_the_agents_commands_ran_stands_in_each_record_and_in_the_result(capfd):
    from ratchet.components.sandboxes.local_sandbox import strongest_isolation

    found = evaluate_agent("teacher", "repair", k=1, tasks=1, role="promote", sandbox={"backend": "local"})
    (record,) = read_folder(found.folder)
    where = record.provenance
    assert (where.sandbox, where.isolation, where.image_digest) == ("local", strongest_isolation().value, None)
    assert found.result.sandboxes == {where.where: 1}
    assert f"sandbox: local, {strongest_isolation()} (as configured)" in capfd.readouterr().err


def test_a_scale_that_requires_docker_plays_nothing_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    sandbox_factory._docker_problem.cache_clear()
    smoke = load_scale("smoke")
    strict = smoke.model_copy(update={"sandbox": SandboxConfig(require="docker")})
    with pytest.raises(SandboxUnavailable, match="no Docker engine listens"):
        pin_sandbox(strict)
    with pytest.raises(SandboxUnavailable, match="no Docker engine listens"):
        evaluate_agent("teacher", "repair", k=1, tasks=1, role="promote", sandbox={"require": "docker"})
    assert pin_sandbox(smoke) == smoke
    sandbox_factory._docker_problem.cache_clear()


def test_a_night_that_begins_in_docker_never_goes_on_in_a_weaker_sandbox(monkeypatch):
    monkeypatch.setattr(sandbox_factory, "_docker_problem", lambda image: "")
    assert pin_sandbox(load_scale("smoke")).sandbox.backend == "docker"


def test_a_taskset_whose_environment_runs_no_commands_needs_no_sandbox(taskset):
    assert describe_sandbox(taskset, SandboxConfig(require="docker", backend="local")) is None


def test_the_run_of_a_night_names_its_sandboxes_in_a_tag():
    from unittest.mock import Mock

    from contenders import TASKSET, contender, wins

    agents = [
        msgspec.structs.replace(contender(name, wins(0.5, 24)), sandboxes={"local, jail": 96})
        for name in ("champion", "challenger")
    ]
    run = Mock()
    log_decision(run, decide_promotion(*agents, None, TASKSET, PromotionRule(n_resamples=200)), "why", "in one line")
    assert run.set_tags.call_args.args[0]["sandbox"] == "local, jail"
