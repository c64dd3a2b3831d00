"""A night's world of fakes: every effect is recorded, and any of them may be the moment at which the process dies."""

import json
from functools import cache

import msgspec

from ratchet.components import tasksets
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.nights.episode_sets import night_episodes
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import begin_night, decision_file
from ratchet.components.nights.recipe_config import load_recipe
from ratchet.components.nights.scale_config import load_scale
from ratchet.components.rollouts.collection_plan import cohorts, plan_episodes
from ratchet.components.training.checkpoint_io import candidate_folder
from ratchet.components.training.config.shared_sections import ModelOptions
from ratchet.components.trajectories.shards import read_manifest, write_shard
from ratchet.components.trajectories.trajectory import Agent, Outcome, TaskRef, Trajectory
from ratchet.flows import nightly
from ratchet.flows.night_context import NightContext
from ratchet.flows.steps import build, collect, declare, evaluate, judge, promote, train
from ratchet.tasks import decide as comparing
from ratchet.tasks.judge import JudgeReport

load, load_scale, load_recipe = cache(tasksets.load_taskset), cache(load_scale), cache(load_recipe)


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
        self.anchor = None
        self.built, self.rewards, self.skills, self.judged = "", (0.2, 0.5), {}, {}

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
        folder.mkdir(parents=True, exist_ok=True)
        played = len(read_manifest(folder))
        if played < len(self.lots(plan)):
            self.happens(title)
            self.write(plan, folder, played)
        self.plans[title] = plan
        return Future({"episodes": 1, "seconds": 1.0})

    def lots(self, plan):
        """A shard for each part of the plan that is to be played."""
        version = plan.policy.rpartition("/")[2]
        planned = plan_episodes(plan, load(plan.taskset), version)
        until = None if plan.until is None else plan.until * plan.attempts
        return cohorts(planned, len(planned), [part * plan.attempts for part in plan.parts], until)

    def write(self, plan, folder, played=0):
        """Episodes whose success rises with the training that the policy had; all but the first so many parts."""
        folder.mkdir(parents=True, exist_ok=True)
        skill = {"teacher": 1.0, "first": 0.4, "control": 0.4, "challenger": 0.8 if self.better else 0.4} | self.skills
        version = plan.policy.rpartition("/")[2]
        agent = Agent(version, plan.policy.partition(":")[0], version)
        lots = [
            [
                Trajectory(
                    episode_id=each.episode_id,
                    group_id=each.group_id,
                    attempt=each.attempt,
                    seed=each.seed,
                    task=TaskRef.from_task(each.task),
                    agent=agent,
                    messages=(),
                    turns=(),
                    outcome=Outcome(
                        success=(each.seed % 1000) / 1000 < skill.get(version.split("-")[0], 0.6), terminated=True
                    ),
                )
                for each in lot
            ]
            for lot in self.lots(plan)[played:]
        ]
        for index, episodes in enumerate(lots, played):
            write_shard(folder, index, episodes)

    def add_night(self, night, root):
        if f"add {night}" not in self.effects:
            self.happens(f"add {night}")

    def judge_and_seal(self, night, rollouts, judging, seed):
        assert (rollouts / "manifest.jsonl").is_file()
        self.judged[night] = judging
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

    def run_build(self, nights, *, scale, seed, as_of, baseline, root):
        self.happens(f"build {' '.join(nights)}")
        rows = b"".join(
            json.dumps({"night": night, "row": row, "episode_id": f"{night}-{row}"}).encode() + b"\n"
            for night in nights
            for row in range(3)
        )
        for dataset in ("sft", "dpo", "grpo", "groups"):
            (place := root / build.DATASETS_FOLDER / dataset).mkdir(parents=True, exist_ok=True)
            for part in ("train.jsonl", "validation.jsonl"):
                (place / part).write_bytes(rows)
        self.built = " ".join(nights)
        return {"metrics": {"sft_rows": 3 * len(nights)}, "lock_hash": "-".join(nights), "seconds": 1.0}

    def keep_build(self, root=None):
        if f"keep {self.built}" not in self.effects:
            self.happens(f"keep {self.built}")
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
        if config.checkpoints.candidates:
            for step in (100, 200, 300):
                candidate_folder(config.output, step).mkdir(parents=True, exist_ok=True)
        played = dict(zip(("first_reward", "last_reward"), self.rewards, strict=True)) | {"episodes": 64, "lost": 0}
        return {"checkpoint": f"/models/{name}", "rows": 40, "parameters": 1, "steps": 1, "tokens": 9} | {
            "seconds": 1.0,
            "validation_loss": 0.1,
            "converged": True,
            **(played if config.method == "grpo" else {}),
            **({"auroc": 0.8, "episodes": 12} if config.method == "prm" else {}),
        }

    def trained(self, checkpoint, nights, build):
        return NightModel(f"{checkpoint.name}-v", str(checkpoint), nights, build)

    def register(self, title, model, *, lineage, name="agent", **_):
        self.lineage[title] = lineage if name == "agent" else {**lineage, "name": name}
        if model not in self.registry:
            self.happens(f"register {title}")
            self.registry.append(model)
        return msgspec.structs.replace(model, version=self.registry.index(model) + 1)

    def promote(self, version, why, *, first=False, over=None):
        if over is not None and self.champion.version not in (version, over):
            return self.champion.version
        self.happens(f"promote {version}")
        self.champion = msgspec.structs.replace(self.registry[version - 1], version=version)
        self.anchor = self.champion if first else self.anchor
        return version

    def roll_back(self, version, why, *, over):
        assert over == self.champion.version or version == self.champion.version
        self.happens(f"roll back {version}")
        self.champion = msgspec.structs.replace(self.registry[version - 1], version=version)
        return version

    def move_anchor(self, version):
        self.happens(f"anchor {version}")
        self.anchor = msgspec.structs.replace(self.registry[version - 1], version=version)
        return version

    def keep_decision(self, version, decision):
        assert decision_file(decision.night).read_text() == decision.text
        self.happens(f"decision {version}")
        return version

    def publish(self, night, decision):
        self.happens(f"publish {night}")
        return {"tag": f"night/{night}"}


def put_in_place(made, monkeypatch):
    """Let the flow act on that world."""
    for module in (collect, evaluate, declare, comparing):
        monkeypatch.setattr(module, "load_taskset", load)
    monkeypatch.setattr(nightly, "find_champion", lambda: made.champion)
    monkeypatch.setattr(nightly, "promote", made.promote)
    monkeypatch.setattr(collect, "play_and_seal", made.play_and_seal)
    monkeypatch.setattr(collect, "add_night", made.add_night)
    for name in ("judge_and_seal", "seal_labels", "log_traces"):
        monkeypatch.setattr(judge, name, getattr(made, name))
    monkeypatch.setattr(judge, "score_path", lambda *args: iter(()))
    monkeypatch.setattr(judge, "read_judgement_file", lambda *args: iter(()))
    monkeypatch.setattr(build, "run_build", made.run_build)
    monkeypatch.setattr(build, "publish_night", made.publish)
    monkeypatch.setattr(build, "keep_build", made.keep_build)
    monkeypatch.setattr(build, "seal_uses", made.seal_uses)
    monkeypatch.setattr(train, "trained_model", made.trained)
    monkeypatch.setattr(train, "register", made.register)
    monkeypatch.setattr(train, "train", _task(made.train))
    monkeypatch.setattr(train, "play", lambda *args: made.submit_play(*args).value)
    monkeypatch.setattr(train, "run_as_flow", lambda name, work: work())
    monkeypatch.setattr(train, "acceptance", lambda ranked, night: {"accepted": 40, "accept_clean": 1.0})
    monkeypatch.setattr(train, "count_reasons", lambda ranked, night: {})
    monkeypatch.setattr(evaluate, "play", _task(made.submit_play, lambda *args: made.submit_play(*args)))
    monkeypatch.setattr(evaluate, "decide_night", evaluate.decide_night.fn)
    for name in ("promote", "roll_back", "move_anchor", "keep_decision"):
        monkeypatch.setattr(promote, name, getattr(made, name))
    monkeypatch.setattr(evaluate, "find_anchor", lambda: made.anchor)
    monkeypatch.setattr(evaluate, "log_evaluation", lambda *args: None)


def _task(call, submit=None):
    class Task:
        def __call__(self, *args):
            return call(*args)

        def submit(self, *args):
            return submit(*args) if submit else Future(call(*args))

    return Task()


def small_scale():
    """The smoke scale with few tasks of `repair`, whose families have several tasks each."""
    scale = load_scale("smoke")
    return scale.model_copy(
        update={
            "taskset": "repair",
            "teacher": "teacher",
            "cold_start": scale.cold_start.model_copy(update={"model": ModelOptions()}),
            "demonstrations": scale.demonstrations.model_copy(update={"tasks": 30}),
            "collection": scale.collection.model_copy(update={"tasks": 20, "attempts": 2}),
            "evaluation": scale.evaluation.model_copy(update={"promote": 40, "audit": 6, "attempts": 2}),
            "promotion": PromotionRule(  # margins that the families of 40 tasks can show
                n_resamples=500, invalid_call_margin=0.3, steps_margin=1.0, tokens_margin=1.0, unsafe_margin=0.3
            ),
        }
    )


def run(seed=1, recipe="sft", size="smoke"):
    """Begin a night, or go on with the unfinished one, as `ratchet night` does."""
    night = begin_night("smoke", None if seed is None else seed)
    decision = nightly.run_steps(tonight_of(night, recipe, size))
    night.finish()
    return night, decision


def tonight_of(night, recipe="sft", size="smoke"):
    return NightContext(night, small_scale(), FakeRun(), load_recipe(recipe, size), night_episodes(night.id))
