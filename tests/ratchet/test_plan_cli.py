"""`ratchet plan`: a night before it runs."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from fake_hub import hub

from ratchet.components.nights import scale_config
from ratchet.components.nights.night_state import begin_night
from ratchet.components.operations.host_checks import TrainingMemory
from ratchet.flows import night_plan

SMOKE = scale_config.SCALES_FOLDER / "smoke.yaml"
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def clone(tmp_path, monkeypatch):
    """An empty project, with the tasksets and the base model of the repository."""
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").touch()
    (tmp_path / "data").mkdir()
    for name in ("tasksets", "models"):
        (tmp_path / "data" / name).symlink_to(REPOSITORY / "data" / name)
    return tmp_path


@pytest.fixture
def small(clone):
    """The scale smoke with changed sections, as a file."""

    def write(**changes):
        values = yaml.safe_load(SMOKE.read_text()) | changes
        (clone / "small.yaml").write_text(yaml.safe_dump(values))
        return "small.yaml"

    return write


def played(scale="smoke", episodes=2000, seconds=100.0):
    """A finished night, whose collection played so many episodes in so many seconds."""
    night = begin_night(scale)
    night.results = {
        "collect attempts": {"episodes": episodes},
        "build": {},
        "evaluate": {name: {"episodes": 600} for name in ("champion", "challenger", "control")},
    }
    night.durations = [("declared", 2.0), ("collect attempts", seconds), ("build", 30.0), ("evaluate", 90.0)]
    night.finish()
    return night


def plan_of(run, *words):
    code, out, err = run("plan", *words, "--json")
    assert code == 0, err
    return json.loads(out)


def steps_of(plan):
    return {step["name"]: step for step in plan["steps"]}


def test_a_first_night_has_every_step_and_no_estimate_and_says_so(run, clone):
    code, out, _ = run("plan")
    assert code == 0 and "no night of this scale has run in this home, so there is no estimate" in out
    assert "variance assumed, since no night has decided here" in out and "nothing for judges and paid servers" in out
    plan = plan_of(run)
    names = [step["name"] for step in plan["steps"]]
    assert names[:4] == ["collect demonstrations", "build demonstrations", "train cold start", "collect attempts"]
    assert {step["state"] for step in plan["steps"]} == {"to do"} and plan["past"] == []
    assert all(step["seconds"] is None for step in plan["steps"])
    assert not (clone / "home" / "nights").exists()


def test_a_new_night_has_no_name_before_it_begins(run):
    assert "`ratchet night` begins a new night\n" in run("plan")[1] and plan_of(run)["night"] is None
    assert "`ratchet night` begins night mine\n" in run("plan", "--night", "mine")[1]
    begun = begin_night("smoke")
    assert f"`ratchet night` resumes night {begun.id}\n" in run("plan")[1]


def test_times_are_medians_of_this_homes_nights_scaled_by_their_episodes(run):
    for seconds in (100.0, 300.0, 200.0):
        played(seconds=seconds)
    played("sums", seconds=1e6)
    plan = plan_of(run)
    steps = steps_of(plan)
    assert len(plan["past"]) == 3
    assert steps["collect attempts"]["seconds"] == pytest.approx(200 * 4000 / 2000)  # smoke plays 1000 tasks x 4
    assert steps["evaluate"]["seconds"] == pytest.approx(90 * 3600 / 1800)
    assert (steps["build"]["seconds"], steps["build"]["nights"]) == (30.0, 3)
    assert steps["train challenger"]["seconds"] is None and steps["other steps"]["seconds"] == 2.0
    assert "which no past night here took" in run("plan")[1]


def test_a_night_that_is_resumed_shows_what_is_done(run):
    played()
    night = begin_night("smoke")
    night.run_once("collect attempts", lambda: {"episodes": 4000})
    plan = plan_of(run)
    assert plan["resumes"] and plan["night"] == night.id
    states = {name: step["state"] for name, step in steps_of(plan).items()}
    assert (states["collect attempts"], states["build"]) == ("done", "to do")


def test_a_judge_costs_at_most_its_budget_and_without_one_there_is_no_limit(run, small):
    model = {"base_url": "http://127.0.0.1:9/v1", "model": "judge", "price": {"prompt": 3.0, "completion": 15.0}}
    plan = plan_of(run, "--scale", small(judge={"models": [model], "budget": {"money": 2.5}}))
    assert steps_of(plan)["judge"]["money"] == 2.5 and "2.5 money" in steps_of(plan)["judge"]["note"]
    code, out, _ = run("plan", "--scale", small(judge={"models": [model]}))
    assert code == 0 and "money: without a limit" in out and "at most 1,000 calls" in out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"teacher": "openai:nofile.yaml"}, "error: teacher: nofile.yaml cannot be read"),
        ({"teacher": "techer"}, "error: teacher: unknown policy 'techer'"),
        ({"judge": {"models": [{"base_url": "http://x/v1", "model": "j", "api_key_env": "NO_KEY"}]}}, "NO_KEY"),
        ({"judge": {"prm": "docs", "rubric": "no.yaml"}}, "judge.rubric: no.yaml is no file"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "schedule", "night"])
def test_a_policy_of_the_scale_that_cannot_be_asked_is_said_before_anything_starts(run, small, command, changes, said):
    Path("docs").mkdir(exist_ok=True)
    code, out, err = run(command, "--scale", small(**changes))
    assert code == 2 and out == "" and said in err and len(err.splitlines()) == 1


def test_training_that_does_not_fit_ends_with_4_and_says_what_to_change(run, monkeypatch):
    monkeypatch.setattr(night_plan, "training_memory", lambda: TrainingMemory("GPU", 1 << 30, 1))
    code, out, _ = run("plan")
    assert code == 4 and "DOES NOT FIT" in out and "model.lora" in out


QWEN = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "num_hidden_layers": 28,
    "intermediate_size": 8960,
    "vocab_size": 151936,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32768,
    "dtype": "bfloat16",
}
"""What the `config.json` of Qwen2.5-1.5B-Instruct says."""


@pytest.fixture
def qwen(clone, monkeypatch):
    """A hub on this machine that has the model of the scale `gpu`, without weights to speak of; yields what is asked for."""
    folder = clone / "served"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN))
    (folder / "model.safetensors").write_bytes(bytes(8))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(clone / "cache"))
    with hub({"Qwen/Qwen2.5-1.5B-Instruct": {"main": folder}}) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield asked


def gpus(monkeypatch, gigabytes, count=1, disk=1000):
    """A machine of `count` GPUs with `gigabytes` of memory and `disk` gigabytes of free disk, whatever this one has."""
    monkeypatch.setattr(night_plan, "training_memory", lambda: TrainingMemory("GPU", gigabytes * 10**9, count))
    monkeypatch.setattr(night_plan.shutil, "disk_usage", lambda folder: SimpleNamespace(free=disk * 10**9))


@pytest.mark.slow
def test_a_night_of_a_real_model_is_planned_from_its_configuration_alone(run, qwen, monkeypatch):
    gpus(monkeypatch, 24)
    plan = plan_of(run, "--scale", "gpu")
    assert plan["fits"] and plan["needed"] < 24e9 and not any("safetensors" in path for path in qwen)
    cold, challenger, _ = plan["jobs"]
    assert cold["memory"]["parameters"] == pytest.approx(1_543_714_304, rel=1e-3)
    assert cold["memory"]["trained_parameters"] < 40_000_000, "adapters"
    assert challenger["memory"]["weights"] > 1.9 * cold["memory"]["weights"], "a champion is written in float32"
    server = plan["server"]["memory"]
    assert server["weights"] == 2 * cold["memory"]["parameters"] and server["rows"] > 50
    out = " ".join(run("plan", "--scale", "gpu")[1].split())
    assert "vLLM server, on 1 GPU, while nothing trains there: 3.09 GB of weights" in out and "fits" in out


@pytest.mark.slow
def test_a_server_that_cannot_start_is_said_before_the_night(run, qwen, monkeypatch, clone):
    gpus(monkeypatch, 6)
    code, out, _ = run("plan", "--scale", "gpu")
    assert code == 4 and "its cache holds 0.00 sequences of 8,192 tokens; lower vllm.max_model_len" in out
    gpus(monkeypatch, 80)
    values = yaml.safe_load((scale_config.SCALES_FOLDER / "gpu.yaml").read_text()) | {
        "vllm": {"tensor_parallel_size": 2}
    }
    (clone / "two.yaml").write_text(yaml.safe_dump(values))
    code, out, _ = run("plan", "--scale", "two.yaml")
    assert code == 4 and "it asks for 2 GPUs of 1; lower vllm.*_parallel_size" in out


@pytest.mark.slow
def test_checkpoints_that_the_disk_cannot_hold_end_with_4_and_say_what_to_do(run, qwen, monkeypatch):
    gpus(monkeypatch, 24, disk=1)
    code, out, _ = run("plan", "--scale", "gpu")
    assert code == 4 and "that are free: DOES NOT FIT; free space" in " ".join(out.split())


@pytest.mark.slow
def test_rows_that_the_model_cannot_read_are_said(run, qwen, monkeypatch, clone):
    gpus(monkeypatch, 80)
    (clone / "served" / "config.json").write_text(json.dumps(QWEN | {"max_position_embeddings": 4096}))
    code, out, _ = run("plan", "--scale", "gpu")
    assert code == 4 and "its rows of 8,192 tokens exceed the 4,096 that Qwen/Qwen2.5-1.5B-Instruct reads" in out


@pytest.mark.parametrize(
    ("vllm", "said"),
    [
        ({"logprobs_mode": "raw"}, "vllm.logprobs_mode: Ratchet needs"),
        ({"max_loras": 2}, "vllm.max_loras: Ratchet sets it"),
    ],
)
def test_a_vllm_option_that_ratchet_decides_is_said_before_anything_starts(run, small, vllm, said):
    code, out, err = run("plan", "--scale", small(vllm=vllm))
    assert code == 2 and out == "" and said in err and "remove it here" in err


def test_a_model_whose_size_nobody_knows_is_said(run, small):
    scale = small(cold_start={"model": {"base": "no such model"}})
    plan = plan_of(run, "--scale", scale)
    assert plan["fits"] is None and plan["jobs"][0]["memory"] is None and plan["jobs"][0]["problem"]
    assert "memory: unknown" in run("plan", "--scale", scale)[1]


def test_every_stage_of_a_recipe_is_planned(run):
    names = [step["name"] for step in plan_of(run, "--scale", "sums")["steps"]]
    assert sum(name.startswith("train ") for name in names) >= 4 and "train challenger" in names
    assert [name for name in names if name.startswith("collect ")][2:], names


def test_more_families_and_larger_leads_are_found_more_often(run):
    plan = plan_of(run)
    powers = [lead["power"] for lead in plan["leads"]]
    assert powers == sorted(powers) and plan["declaration"]["minimum_effect"] in [
        lead["lead"] for lead in plan["leads"]
    ]
    found = {(design["tasks"], design["attempts"]): design["detectable"] for design in plan["designs"]}
    assert found[75, 4] > found[150, 2] > found[150, 4] > found[300, 4] > found[600, 4]
    assert found[150, 4] == pytest.approx(plan["declaration"]["detectable"])
    (unsafe,) = [margin for margin in plan["margins"] if margin["name"] == "unsafe_actions"]
    assert unsafe["families"] == 49 and unsafe["passes"] is None  # .94^49 < .05: the rule of three


def test_a_night_that_cannot_promote_says_so_and_one_that_can_does_not(run, small):
    one = small(evaluation={"promote": 1, "audit": 0, "attempts": 2})
    code, out, _ = run("plan", "--scale", one)
    assert code == 0 and "NO PROMOTION" in out and "1 task of 1 family" in out
    assert "requires 100 tasks" in out and "a p-value of 0.025 needs 6 families, and there are 1" in out
    rule = yaml.safe_load(SMOKE.read_text())["promotion"] | {"min_tasks": 20}
    few = small(evaluation={"promote": 30, "audit": 0, "attempts": 2}, promotion=rule)
    reasons = plan_of(run, "--scale", few)["obstacles"]
    assert "the guardrail unsafe_actions needs 49 families, and there are 30" in reasons
    assert all(reason.startswith("the guardrail ") for reason in reasons)
    assert "NO PROMOTION" not in run("plan")[1] and plan_of(run)["obstacles"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scale", "smok"), "did you mean 'smoke'?"),
        (("--recipe", "nosuch"), "unknown recipe"),
        (("--night", "../x"), "cannot name a night"),
    ],
)
def test_what_makes_no_sense_is_one_line(run, words, said):
    code, out, err = run("plan", *words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1


def test_a_plan_is_refused_outside_of_a_project(run, clone):
    (clone / "dvc.yaml").unlink()
    assert run("plan")[0] == 2
