"""The flow over a world of fakes: every effect is recorded, and any of them may be the moment at which the process dies."""

import hashlib
import json
from functools import cache
from pathlib import Path

import msgspec
import pytest

from components.environments import tasksets
from components.protocol import DataError
from components.rollouts.plan import plan_episodes
from components.trajectories.record import Agent, Outcome, TaskRef, Trajectory
from components.trajectories.shards import write_shard
from flows import build, collect, evaluate, judge, nightly, train, uses
from flows.scale import load_scale
from flows.state import begin
from flows.tonight import ROLLOUTS, Tonight
from tasks import evaluate as comparing
from tasks.judge import JudgeReport
from tasks.registry import Model

load = cache(tasksets.load)


class Killed(BaseException):
    """What kill -9 looks like to a process that is asked nothing."""


class FakeRun:
    run_id = "run"

    def __getattr__(self, name):
        return lambda *args, **kwargs: self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


class Future:
    def __init__(self, value):
        self.value = value

    def result(self):
        return self.value


class World:
    """Stands in for sandboxes, DVC, training and MLflow. `die_at` names the effect, by number, before which it is killed."""

    def __init__(self, better=True):
        self.effects, self.plans, self.jobs, self.registry = [], {}, {}, []
        self.champion, self.die_at, self.better, self.uses, self.lineage = None, None, better, [], {}

    def happens(self, effect):
        if self.die_at is not None and len(self.effects) == self.die_at:
            self.die_at = None
            raise Killed(effect)
        self.effects.append(effect)

    def play_and_seal(self, title, plan, spool, target):
        if not target.exists():
            self.happens(f"seal {target.name}")
            self.write(plan, target)
        self.plans[target.name] = plan
        return {"episodes": 4, "successes": 2, "infrastructure_failures": 0, "failures": {}} | {
            "seconds": 1.0,
            "policy_version": plan.policy,
        }

    def submit_play(self, title, plan, folder):
        if not folder.exists():
            self.happens(title)
            self.write(plan, folder)
        self.plans[title] = plan
        return Future({"episodes": 1})

    def write(self, plan, folder):
        """Episodes whose success rises with the training that the policy had."""
        folder.mkdir(parents=True)
        skill = {"teacher": 1.0, "first": 0.4, "control": 0.4, "challenger": 0.8 if self.better else 0.4}
        version = plan.policy.rpartition("/")[2]
        agent = Agent(version, plan.policy.partition(":")[0], version)
        episodes = [
            Trajectory(
                episode_id=each.episode_id,
                group_id=each.group_id,
                attempt=each.attempt,
                seed=each.seed,
                task=TaskRef.of(each.task),
                agent=agent,
                messages=(),
                turns=(),
                outcome=Outcome(success=(each.seed % 1000) / 1000 < skill[version.split("-")[0]], terminated=True),
            )
            for each in plan_episodes(plan, load(plan.taskset), version)
        ]
        write_shard(folder, 0, episodes)

    def add_night(self, night):
        if f"add {night}" not in self.effects:
            self.happens(f"add {night}")

    def judge_and_seal(self, night, rollouts, judging, seed):
        assert (rollouts / "manifest.jsonl").is_file() and judging is None
        if f"judge {night}" not in self.effects:
            self.happens(f"judge {night}")
        return JudgeReport(episodes=4)

    def seal_labels(self, night):
        if f"labels {night}" not in self.effects:
            self.happens(f"labels {night}")
        return {"labels": 0}

    def log_traces(self, night, run, rollouts, scores, judgements, *, seed):
        if f"traces {night}" not in self.effects:
            self.happens(f"traces {night}")
        return {"chosen": len(scores)}

    def run_build(self, nights, *, scale, seed, as_of, baseline):
        self.happens(f"build {' '.join(nights)}")
        build.EXPORT.mkdir(parents=True, exist_ok=True)
        rows = b"".join(
            json.dumps({"night": night, "row": row, "episode_id": f"{night}-{row}"}).encode() + b"\n"
            for night in nights
            for row in range(3)
        )
        for part in ("train.jsonl", "validation.jsonl"):
            (build.EXPORT / part).write_bytes(rows)
        return {"metrics": {"sft_rows": 3 * len(nights)}, "lock_hash": "-".join(nights), "seconds": 1.0}

    def keep_build(self):
        if "keep build" not in self.effects:
            self.happens("keep build")
        return "lock"

    def seal_uses(self, night, trainings):
        if f"uses {night}" not in self.effects:
            self.happens(f"uses {night}")
        self.uses = [use for training in trainings for use in training.uses()]
        return "hash"

    def train(self, title, config):
        name = {"cold-start": "first"}.get(config.output.name, config.output.name)
        if title not in self.jobs:
            self.happens(title)
        self.jobs[title] = config
        return {"checkpoint": f"/models/{name}", "rows": 1, "parameters": 1, "steps": 1, "tokens": 9} | {
            "seconds": 1.0,
            "validation_loss": 0.1,
            "converged": True,
        }

    def trained(self, checkpoint, nights, build):
        return Model(f"{checkpoint.name}-v", str(checkpoint), nights, build)

    def register(self, title, model, *, lineage, **_):
        self.lineage[title] = lineage
        if model not in self.registry:
            self.happens(f"register {title}")
            self.registry.append(model)
        return msgspec.structs.replace(model, version=self.registry.index(model) + 1)

    def promote(self, version, why):
        self.happens(f"promote {version}")
        self.champion = msgspec.structs.replace(self.registry[version - 1], version=version)
        return version

    def publish(self, night, decision):
        self.happens(f"publish {night}")
        return {"tag": f"night/{night}"}


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    made = World()
    for module in (collect, evaluate, comparing):
        monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(nightly, "find_champion", lambda: made.champion)
    monkeypatch.setattr(nightly, "promote", made.promote)
    monkeypatch.setattr(collect, "play_and_seal", made.play_and_seal)
    monkeypatch.setattr(collect, "add_night", made.add_night)
    for name in ("judge_and_seal", "seal_labels", "log_traces"):
        monkeypatch.setattr(judge, name, getattr(made, name))
    monkeypatch.setattr(judge, "score_path", lambda *args: iter(()))
    monkeypatch.setattr(judge, "read_said", lambda *args: iter(()))
    monkeypatch.setattr(build, "run_build", made.run_build)
    monkeypatch.setattr(build, "publish_night", made.publish)
    monkeypatch.setattr(build, "keep_build", made.keep_build)
    monkeypatch.setattr(uses, "seal_uses", made.seal_uses)
    for name in ("trained", "register"):
        monkeypatch.setattr(train, name, getattr(made, name))
    monkeypatch.setattr(train, "train", _task(made.train))
    monkeypatch.setattr(evaluate, "play", _task(made.submit_play, lambda *args: made.submit_play(*args)))
    monkeypatch.setattr(evaluate, "compare", evaluate.compare.fn)
    monkeypatch.setattr(evaluate, "promote", made.promote)
    for name in ("log_agent", "log_decision"):
        monkeypatch.setattr(evaluate, name, lambda *args: None)
    return made


def _task(call, submit=None):
    class Task:
        def __call__(self, *args):
            return call(*args)

        def submit(self, *args):
            return submit(*args) if submit else Future(call(*args))

    return Task()


def small_scale():
    scale = load_scale("smoke")
    return scale.model_copy(
        update={
            "demonstrations": scale.demonstrations.model_copy(update={"tasks": 30}),
            "collection": scale.collection.model_copy(update={"tasks": 20, "attempts": 2}),
            "evaluation": scale.evaluation.model_copy(update={"promote": 100, "audit": 10, "attempts": 2}),
        }
    )


def run(seed=1):
    """Begin a night, or go on with the unfinished one, as `ratchet night` does."""
    night = begin("smoke", None if seed is None else seed)
    decision = nightly.play(Tonight(night, small_scale(), FakeRun()))
    night.finish()
    return night, decision


def test_the_first_night_makes_its_champion_from_demonstrations_and_promotes_what_beats_it(world):
    night, decision = run()
    assert decision["verdict"] == "promote" and decision["self_improvement"]
    assert world.effects == [
        "seal demonstrations-s1",
        "add demonstrations-s1",
        "build demonstrations-s1",
        "keep build",
        "train cold start",
        "register cold-start",
        "promote 1",
        f"seal {night.id}",
        f"add {night.id}",
        f"judge {night.id}",
        f"labels {night.id}",
        f"build demonstrations-s1 {night.id}",
        f"traces {night.id}",
        "train challenger",
        "train control",
        "register challenger",
        "register control",
        f"uses {night.id}",
        *(f"evaluate {who}" for who in ("champion", "challenger", "control")),
        "promote 2",
        f"publish {night.id}",
    ]
    assert world.champion.nights == ("demonstrations-s1", night.id)


def test_tonights_tasks_were_never_demonstrated(world):
    night, _ = run()
    shown, collected = world.plans["demonstrations-s1"], world.plans[night.id]
    assert shown.policy == "teacher" and collected.policy == "transformers:/models/first"
    assert len(collected.task_ids) == 20 and set(shown.task_ids).isdisjoint(collected.task_ids)


def test_the_control_is_the_champion_trained_alike_on_its_old_data_alone(world):
    night, _ = run()
    challenger, control = world.jobs["train challenger"], world.jobs["train control"]
    assert challenger.model.base == control.model.base == "/models/first"
    other = {"output", "data"}
    assert challenger.model_dump(exclude=other) == control.model_dump(exclude=other)
    nights = [
        {json.loads(line)["night"] for line in job.data.train.read_text().splitlines()} for job in (challenger, control)
    ]
    assert nights == [{"demonstrations-s1", night.id}, {"demonstrations-s1"}]


def test_what_each_model_was_trained_on_is_sealed_with_the_night(world):
    night, _ = run()
    found = {}
    for use in world.uses:
        found.setdefault((use.model, use.build), {})[use.episode_id] = use.rows
    old = {f"demonstrations-s1-{row}": 1 for row in range(3)}
    both = f"demonstrations-s1-{night.id}"
    assert found == {
        ("first-v", "demonstrations-s1"): old,
        ("control-v", both): old,
        ("challenger-v", both): old | {f"{night.id}-{row}": 1 for row in range(3)},
    }


def test_the_registry_is_told_what_a_model_was_trained_on(world):
    run()
    wanted = {"base", "dataset", "data_sha256.train", "data_sha256.validation"}
    assert {title: set(tags) for title, tags in world.lineage.items()} == dict.fromkeys(
        ("cold-start", "challenger", "control"), wanted
    )
    assert [world.lineage[title]["base"] for title in ("cold-start", "challenger")] == ["", "first-v"]
    read = world.jobs["train challenger"].data.train.read_bytes()
    assert world.lineage["challenger"]["data_sha256.train"] == hashlib.sha256(read).hexdigest()


def test_the_agents_meet_on_the_same_tasks_with_the_same_seeds(world):
    run()
    plans = [world.plans[f"evaluate {who}"] for who in ("champion", "challenger", "control")]
    assert len({(plan.task_ids, plan.seed, plan.attempts, plan.temperature) for plan in plans}) == 1
    assert len({plan.policy for plan in plans}) == 3
    roles = [load("repair").by_id[task_id].role for task_id in plans[0].task_ids]
    assert (roles.count("promote"), roles.count("audit")) == (100, 10)


def test_the_next_night_starts_from_the_champion_without_a_cold_start(world):
    run()
    world.effects.clear()
    world.better = False
    second, decision = run(seed=None)
    assert second.seed == 2 and decision["verdict"] == "keep"
    assert world.effects[0] == f"seal {second.id}"
    assert world.plans[second.id].policy == "transformers:/models/challenger"
    assert not any(effect.startswith(("promote", "train cold")) for effect in world.effects)


def test_a_challenger_that_is_not_better_is_registered_and_not_promoted(world):
    world.better = False
    _, decision = run()
    assert decision["verdict"] == "keep" and world.champion.version == 1


@pytest.mark.slow
def test_a_night_killed_before_any_of_its_effects_goes_on_to_the_same_end(world, tmp_path, monkeypatch):
    run()
    undisturbed = len(world.effects)
    for moment in range(undisturbed):
        home = tmp_path / f"killed-{moment}"
        home.mkdir()
        monkeypatch.chdir(home)
        monkeypatch.setenv("RATCHET_HOME", str(home / "home"))
        again = World()
        again.die_at = moment
        for name, value in vars(again).items():
            setattr(world, name, value)
        with pytest.raises(Killed):
            run()
        night, decision = run(seed=None)
        assert decision["verdict"] == "promote"
        assert len(world.effects) == len(set(world.effects)) == undisturbed, f"killed at {moment}: {world.effects}"
        assert world.champion.version == 2 and night.finished


def test_a_night_that_promoted_goes_on_with_the_champion_that_it_began_with(world):
    world.better = False
    run()
    first = world.champion
    world.effects.clear()
    world.jobs.clear()
    world.better, world.die_at = True, 15
    with pytest.raises(Killed, match="publish"):
        run(seed=None)
    assert world.champion != first
    night, decision = run(seed=None)
    assert world.effects[-2:] == [f"promote {world.champion.version}", f"publish {night.id}"]
    assert decision["champion"]["agent"]["policy_version"] == "first"


def test_an_export_without_rows_of_the_champions_nights_is_an_error(world):
    night = begin("smoke", 1)
    build.EXPORT.mkdir(parents=True)
    for part in ("train.jsonl", "validation.jsonl"):
        (build.EXPORT / part).write_text('{"night": "another"}\n')
    with pytest.raises(DataError, match="no training row of demonstrations-s1"):
        build.set_aside(Tonight(night, small_scale(), FakeRun()), "control", ("demonstrations-s1",), "lock")


def test_rollouts_lie_where_the_data_build_looks_for_them():
    assert Path("data/rollouts") == ROLLOUTS
