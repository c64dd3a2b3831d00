"""A GRPO job: rewards rise, a killed one goes on exactly, recorded groups are learned from and said to be recorded."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from grpo_player import Letters  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from small_model import TASK, TOOLS, called, returned  # noqa: E402
from training_jobs import make_job  # noqa: E402

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError  # noqa: E402
from ratchet.components.training import job  # noqa: E402

SAMPLING = {"max_new_tokens": 8, "max_episode_tokens": 64}


@pytest.fixture
def settings(base, tmp_path):
    Letters.calls, Letters.break_at = 0, None

    def made(name="out", **changes):
        return make_job(
            "grpo",
            **{
                "output": tmp_path / name,
                "base": base,
                "precision": "float32",
                "batch_size": 8,
                "group_size": 4,
                "steps": 6,
                "save_every": 3,
                "learning_rate": 2e-3,
                "schedule": "constant",
                "warmup_steps": 0,
                "threads": 1,
                "player": "grpo_player:Letters",
                "sampling": SAMPLING,
                "reward": {"grpo_player:letters": 1.0, "success": 0.0},
            }
            | changes,
        )

    return made


def weights(report):
    return load_file(f"{report.checkpoint}/model.safetensors")


def lines(config):
    return [json.loads(line) for line in (config.output / "metrics.jsonl").read_text().splitlines()]


def test_what_is_rewarded_is_done_more_often_and_every_component_is_told(settings):
    config = settings(steps=12, batch_size=32, group_size=8, learning_rate=7e-4, save_every=100)
    report = job.run(config)
    rewards = [line["reward"] for line in lines(config) if "reward" in line]
    assert sum(rewards[-4:]) > 1.3 * sum(rewards[:4]), rewards
    assert (
        report.episodes == 12 * 32 and report.lost == report.untrained == 0 and not report.offline and report.tokens > 0
    )
    (first, *_) = lines(config)
    assert {
        "reward",
        "rewards/grpo_player:letters/mean",
        "rewards/success/mean",
        "groups/without_difference",
        "advantages/std",
        "rollout/lost",
        "frac_reward_zero_std",
    } <= first.keys()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="plain", marks=pytest.mark.long),
        pytest.param({"selection": {"replay": {"per_task": 2}, "curriculum_ucb": {}}}, id="selection"),
        pytest.param({"micro_batch": 4, "beta": 0.1, "updates": 3}, id="micro-batches, kl, updates"),
    ],
)
def test_a_job_that_was_ended_goes_on_exactly(settings, changes):
    straight = job.run(settings("straight", **changes))
    Letters.calls, Letters.break_at = 0, 5 if "updates" not in changes else 2
    with pytest.raises(InfrastructureError, match="world is away"):
        job.run(settings("ended", **changes))
    Letters.break_at = None
    resumed = job.run(settings("ended", **changes))
    theirs = weights(straight)
    assert all(torch.equal(each, theirs[name]) for name, each in weights(resumed).items())
    rewards = [
        [line["reward"] for line in lines(settings(name, **changes)) if "reward" in line]
        for name in ("straight", "ended")
    ]
    assert rewards[0] == rewards[1]


def test_the_hardest_tasks_are_learned_from_exported_rows_of_them(settings, tmp_path):
    """Nobody succeeds: each group is a hard task, and two of those that are demonstrated make a lesson."""
    (path := tmp_path / "sft.jsonl").write_text(
        "".join(
            json.dumps(
                {"task_id": f"repair/t{number}", "episode_id": str(number), "messages": [TASK, called("submit")]}
            )
            + "\n"
            for number in range(4)
        )
    )
    config = settings(steps=4, selection={"relift": 2}, demonstrations=path, max_length=512, learning_rate=1e-6)
    job.run(config)
    lessons = [line for line in lines(config) if "relift/loss" in line]
    assert lessons and all(line["relift/tasks"] == 2 and line["relift/loss"] > 1 for line in lessons)


def test_lessons_in_several_processes_are_refused(settings, monkeypatch, tmp_path):
    """They would be due in one of them, and the others would wait for it for ever."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match=r"relift learns in one process; set run\.launch: single"):
        job.run(settings(selection={"relift": 2}, demonstrations=tmp_path / "sft.jsonl"))


def test_the_model_of_the_best_rewards_is_kept(settings):
    report = job.run(kept := settings("kept", steps=10, evaluate_every=1, patience=2, best_by="reward"))
    rewards = [line["reward"] for line in lines(kept) if "reward" in line]
    assert report.best_step == 1 + rewards.index(max(rewards)) and len(rewards) in (report.best_step + 2, 10)
    straight = weights(job.run(settings("straight", steps=report.best_step)))
    assert all(torch.equal(each, straight[name]) for name, each in weights(report).items())


def test_a_job_without_signal_refuses_to_go_on(settings):
    with pytest.raises(DataError, match="did not differ in 2 steps"):
        job.run(settings(reward={"efficiency": 0.0, "grpo_player:constant": 1.0}, signal_window=2))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"batch_size": 6}, "not a multiple of grpo.group_size 4"),
        ({"base": None}, "needs model.base"),
        ({"reward": {"total": 0.0}}, "weighs every component 0"),
        ({"token_budget": 1000}, "token_budget cannot end grpo"),
        ({"updates": 2}, "multiple of grpo.updates"),
        ({"chunk_long_trajectories": True}, "trains episodes whole"),
        ({"offline": True}, "needs data.train"),
        ({"steps": None}, "neither steps"),
    ],
)
def test_settings_that_do_not_go_together_are_one_line(settings, changes, why):
    with pytest.raises((ConfigurationError, DataError), match=why):
        job.run(settings(**changes))


def attempt(path, won):
    return [
        called("read_file", path=path),
        returned("def add(a, b):\n    return a - b\n"),
        called("submit" if won else "edit_file", "1-0"),
    ]


def groups(path, rows=3, attempts=4):
    row = {
        "prompt": [TASK],
        "tools": [tool.as_openai() for tool in TOOLS],
        "attempts": [attempt(f"f{place}.py", place % 2 == 0) for place in range(attempts)],
        "rewards": [float(place % 2 == 0) for place in range(attempts)],
        "step_rewards": [[0.5, float(place % 2 == 0)] for place in range(attempts)],
        "task_id": "repair/t0",
        "group_id": "gr-1",
    }
    path.write_text("".join(json.dumps({**row, "task_id": f"t{number}"}) + "\n" for number in range(rows)))
    return path


def test_recorded_groups_are_learned_from_and_the_report_says_so(settings, tmp_path):
    data = groups(tmp_path / "groups.jsonl")
    report = job.run(
        settings(
            offline=True, train=data, credit={"turns": "step_level"}, sampling=SAMPLING | {"max_episode_tokens": 256}
        )
    )
    assert report.offline and report.rows == 3 and report.steps == 6 and report.left_out == 0
    assert Letters.calls == 0


def test_a_recorded_group_larger_than_a_group_is_several_and_what_is_left_over_is_counted(settings, tmp_path):
    data = groups(tmp_path / "groups.jsonl", rows=1, attempts=9)
    report = job.run(settings(offline=True, train=data, steps=1, sampling=SAMPLING | {"max_episode_tokens": 256}))
    assert report.rows == 2 and report.left_out == 1


def test_recorded_groups_that_are_none_are_named(settings, tmp_path):
    data = tmp_path / "groups.jsonl"
    for text, why in (
        ("", "has no groups"),
        ('{"prompt": []}\n', "line 1: not a group"),
        ('{"prompt": [], "attempts": [[]], "rewards": [], "task_id": "t"}\n', "1 attempts and 0 rewards"),
        ("\xff\n", "not a group"),
    ):
        data.write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError, match=why):
            job.run(settings(offline=True, train=data))
    groups(data)
    with pytest.raises(DataError, match="none of 3 groups has two attempts within 4 tokens"):
        job.run(settings(offline=True, train=data, sampling=SAMPLING | {"max_episode_tokens": 4}))
