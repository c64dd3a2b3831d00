"""A night's evaluation in a real MLflow: what a person opens in the morning is there, once, linked, and counted."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from episodes import make_episode, write_night
from night_world import small_scale
from patience import until

from ratchet.components.core.processes import free_port
from ratchet.components.evaluation.promotion.decision_record import TasksetRef
from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.nights.episode_sets import NightEpisodes
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import begin_night, list_nights
from ratchet.components.nights.recipe_config import load_recipe
from ratchet.components.operations import manual_training
from ratchet.components.tasksets import load_taskset
from ratchet.components.tracking import champion_aliases, mlflow_client, model_registry, trace_writer
from ratchet.components.tracking.record_upload import spool_folder, sync
from ratchet.components.tracking.run_writer import MAX_METRICS, night_run
from ratchet.components.tracking.trace_log import read_feedback
from ratchet.components.trajectories.trajectory import with_content_hash
from ratchet.flows.mlflow_log import log_collection, log_evaluation
from ratchet.flows.night_context import NightContext

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mlflow")]
AGENTS = ("champion", "challenger", "control")
WINS = {"champion": 3, "challenger": 6, "control": 3}
"""Of eight tasks, how many an agent solves; the challenger loses one that the champion solves."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.chdir(home)
        yield home


def solves(agent, task):
    return task < WINS[agent] and not (agent == "challenger" and task == 0)


@pytest.fixture(scope="module")
def folders(home):
    """Episodes of three agents at the same eight tasks, each a family of its own, two attempts each."""
    return {
        agent: write_night(
            home / "evaluations" / agent,
            [episode(agent, task, attempt) for task in range(8) for attempt in range(2)],
        )
        for agent in AGENTS
    }


def episode(agent, number, attempt):
    task = f"repair/promote-{number:04d}"
    own = make_episode(task, attempt, success=solves(agent, number), version=f"v-{agent}", role="promote")
    return with_content_hash(msgspec.structs.replace(own, task=msgspec.structs.replace(own.task, family=task)))


@pytest.fixture(scope="module")
def agents(home):
    """Registered models of these names."""
    found = {}
    for agent in AGENTS:
        (checkpoint := home / "models" / agent).mkdir(parents=True)
        (checkpoint / "weights").write_text(agent)
        ref = model_registry.register(checkpoint, policy_version=f"v-{agent}")
        found[agent] = NightModel(f"v-{agent}", str(checkpoint), (), None, ref.version)
    champion_aliases.promote(found["champion"].version, why="the first")
    return found


def logged(folders, agents, seed):
    """A night that has decided, logged; its run."""
    night = begin_night("smoke", seed, f"night-{seed}")
    played = NightEpisodes(folders)
    rule = PromotionRule(n_resamples=300)
    made = decide_promotion(
        *(played.results[name] for name in AGENTS),
        TasksetRef("repair", "2", load_taskset("repair").hash, "family"),
        rule,
        night=night.id,
    )
    night.run_once("decision", lambda: made)
    with night_run(night.id, "repair", params={"seed": seed}) as run:
        log_evaluation(NightContext(night, small_scale(), run, load_recipe("sft", "smoke"), played), made, agents)
    return run, made


@pytest.fixture(scope="module")
def first(folders, agents):
    return logged(folders, agents, 1)


def runs(kind):
    client = mlflow_client.client()
    experiment = client.get_experiment_by_name("repair").experiment_id
    return client.search_runs([experiment], f"tags.`ratchet.kind` = '{kind}'")


def files(run, folder):
    return {Path(each.path).name for each in mlflow_client.client().list_artifacts(run.info.run_id, folder)}


def table(run, path, tmp_path):
    read = json.loads(
        Path(mlflow_client.client().download_artifacts(run.info.run_id, path, str(tmp_path))).read_bytes()
    )
    return [dict(zip(read["columns"], row, strict=True)) for row in read["data"]]


def test_everything_that_was_told_is_found_again(first):
    run, _ = first
    assert run.read_back_report.is_complete and run.read_back_report.told > 100 and run.read_back_report.runs == 7


def test_agents_are_runs_below_their_night_with_few_metrics_and_the_rest_as_tables(first):
    (night,) = [each for each in runs("night") if each.info.run_name == "night-1"]
    found = {
        each.data.tags["ratchet.agent"]: each for each in runs("agent") if each.data.tags["ratchet.night"] == "night-1"
    }
    assert set(found) == set(AGENTS)
    assert {each.data.tags["mlflow.parentRunId"] for each in found.values()} == {night.info.run_id}
    assert {each.data.tags["ratchet.seed"] for each in found.values()} == {"1"}
    assert all(0 < len(each.data.metrics) <= MAX_METRICS for each in (night, *found.values()))
    assert found["challenger"].data.metrics["eval/success"] == 5 / 8
    assert files(found["challenger"], "eval") == {
        "by_kind.json", "by_family.json", "causes.json", "spread.json", "at_k.json", "episodes.json", "result.json",
    }  # fmt: skip


def test_the_nights_description_is_the_verdict_with_its_numbers_and_its_figures_are_there(first, tmp_path):
    _, decision = first
    (night,) = [each for each in runs("night") if each.info.run_name == "night-1"]
    told = night.data.tags["mlflow.note.content"]
    assert decision.why in told and "37.5 %" in told and "62.5 %" in told
    assert files(night, "figures") == {
        "difference_by_kind.png", "success.png", "rewards.png", "lengths.png", "cost_quality.png", "failure_causes.png",
        "calibration.png", "learning_curves.png",
    }  # fmt: skip
    rows = table(night, "decision/tasks.json", tmp_path)
    assert [(row["champion"], row["challenger"]) for row in rows][:5] == [(1, 0), (1, 1), (1, 1), (0, 1), (0, 1)]


def test_models_and_data_are_inputs_of_their_agents_and_the_model_knows_what_it_reached(first, agents):
    client = mlflow_client.client()
    run = client.get_run(
        next(each.info.run_id for each in runs("agent") if each.data.tags["ratchet.agent"] == "challenger")
    )
    ref = model_registry.get_version(agents["challenger"].version)
    assert [each.model_id for each in run.inputs.model_inputs] == [ref.model_id]
    assert [each.dataset.name for each in run.inputs.dataset_inputs] == ["repair-promote"]
    known = {each.key: each for each in client.get_logged_model(ref.model_id).metrics}
    assert known["eval/success"].value == 5 / 8 and known["eval/success"].dataset_name == "repair-promote"


def test_the_episodes_that_made_the_difference_are_traces_side_by_side(first, agents):
    client = mlflow_client.client()
    experiment = client.get_experiment_by_name("repair").experiment_id
    infos = [
        each
        for each in trace_writer.search_traces([experiment])
        if each.tags.get("ratchet.run", "").startswith("night-1/") and each.tags["ratchet.flip"] == "lost"
    ]
    assert {each.tags["ratchet.agent"] for each in infos} == {"champion", "challenger"}
    assert {each.tags["ratchet.pair"] for each in infos} == {"repair/promote-0000 #0"}
    assert {each.trace_metadata["mlflow.trace.session"] for each in infos} == {"repair/promote-0000 #0"}
    assert {each.tags["ratchet.success"] for each in infos} == {"yes", "no"}
    assert {each.tags["mlflow.traceName"] for each in infos} == {
        f"lost: repair/promote-0000 ({name} v{agents[name].version})" for name in ("champion", "challenger")
    }
    success = {
        each.tags["ratchet.agent"]: {one.name: one.value for one in each.assessments}["success"] for each in infos
    }
    assert success == {"champion": True, "challenger": False}


def test_what_people_say_of_an_evaluations_episode_is_no_label(first):
    from mlflow.entities import AssessmentSource, Feedback

    experiment = mlflow_client.client().get_experiment_by_name("repair").experiment_id
    info = next(iter(trace_writer.search_traces([experiment], "night-1/champion s1")))
    said = Feedback(name="feedback", value=True, source=AssessmentSource("HUMAN", "ann"))
    trace_writer._tracing().log_assessment(info.trace_id, said)
    found = read_feedback("repair")
    assert found.labels == [] and found.refused == {
        "it is about an episode of an evaluation, and those are never learned from": 1
    }


def rows(experiment="repair agents"):
    """The rows of the experiment of agents by policy version."""
    client = mlflow_client.client()
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return {each.data.tags["ratchet.run"]: each for each in found}


def test_an_agent_has_one_row_that_is_gone_on_with_night_after_night(first, folders, agents):
    logged(folders, agents, 2)
    found, client = rows(), mlflow_client.client()
    assert set(found) == {"v-champion", "v-challenger", "v-control"}
    row = found["v-challenger"]
    history = client.get_metric_history(row.info.run_id, "eval/success")
    assert [(point.step, point.value) for point in history] == [(1, 5 / 8), (2, 5 / 8)]
    ref = model_registry.get_version(agents["challenger"].version)
    assert row.info.run_name == f"v{ref.version}" and row.data.tags["version"] == str(ref.version)
    inputs = client.get_run(row.info.run_id).inputs
    assert [each.model_id for each in inputs.model_inputs] == [ref.model_id]
    assert [each.dataset.name for each in inputs.dataset_inputs] == ["repair-promote"]


def test_a_row_says_how_good_an_agent_is_how_sure_that_is_and_over_whom_it_leads(first, agents):
    _, decision = first
    row = rows()["v-challenger"]
    lead = decision.versus_champion.difference
    assert row.data.metrics["eval/lead"] == lead.value == 0.25
    assert (
        row.data.metrics["eval/lead_low"] == float(f"{lead.interval.low:.4g}") and row.data.metrics["eval/steps"] == 3
    )
    assert row.data.tags["success"].startswith("62.5 % [") and row.data.tags["lead"].startswith("+25.0 [")
    assert row.data.tags["lead"].endswith(f"over v{agents['champion'].version}")
    assert row.data.tags["result"].startswith("undecided night-")
    assert "lead" not in rows()["v-champion"].data.tags and row.data.params["policy_version"] == "v-challenger"


def test_the_promote_tasks_are_one_evaluation_dataset_of_the_agents_without_answers(first, folders, agents):
    logged(folders, agents, 5)
    client, taskset = mlflow_client.client(), load_taskset("repair")
    (dataset,) = client.search_datasets([client.get_experiment_by_name("repair agents").experiment_id])
    assert dataset.name == f"repair-promote 2 {taskset.hash[:8]}" and dataset.tags["hash"] == taskset.hash
    with mlflow_client.default_tracking_uri():
        records = dataset.to_df().to_dict("records")
    assert {record["inputs"]["task_id"]: record["inputs"]["prompt"] for record in records} == {
        task.task_id: task.description for task in taskset.tasks("promote")
    }
    written = json.dumps([[record["inputs"], record["tags"], record["expectations"]] for record in records])
    assert not any(text in written for task in taskset.tasks("promote") for text in task.reference.values())
    assert all(record["inputs"].keys() == {"task_id", "prompt"} for record in records)


def test_the_start_page_names_the_best_agent_and_why_the_last_night_ended_as_it_did(first, agents):
    _, decision = first
    client = mlflow_client.client()
    ours, nights = (client.get_experiment_by_name(name).tags for name in ("repair agents", "repair"))
    assert ours["mlflow.note.content"].startswith(f"v{agents['champion'].version} is champion")
    assert decision.why in nights["mlflow.note.content"] and nights["mlflow.note.content"].startswith("undecided on")
    board = json.loads(json.loads(ours["mlflow.sharedViewState.leaderboard"])["state"])
    assert board["orderByKey"] == "metrics.`eval/success`" and not board["orderByAsc"]
    assert {"tags.`success`", "tags.`lead`", "metrics.`eval/lead_p`", "metrics.`eval/audit_success`"} <= set(
        board["selectedColumns"]
    )
    (night,) = [each for each in runs("night") if each.info.run_name == "night-1"]
    assert night.data.tags["why"] == decision.why and night.data.tags["lead"].startswith("+25.0 points")


def test_a_kind_of_experiment_that_somebody_chose_stays_and_earlier_nights_get_their_rows(
    first, folders, agents, monkeypatch
):
    from ratchet.components.tracking import agent_rows

    client = mlflow_client.client()
    nights = client.get_experiment_by_name("repair").experiment_id
    client.set_experiment_tag(nights, "mlflow.experimentKind", "genai_development")
    monkeypatch.setattr(agent_rows, "agents_experiment", lambda taskset: f"{taskset}, a home that had no rows")
    before = len(list_nights())
    logged(folders, agents, 4)
    assert client.get_experiment(nights).tags["mlflow.experimentKind"] == "genai_development"
    run_id = rows("repair, a home that had no rows")["v-control"].info.run_id
    assert len(client.get_metric_history(run_id, "eval/success")) >= before > 0


def test_a_night_while_mlflow_is_away_is_told_whole_afterwards(first, folders, agents, monkeypatch):
    """Figures, tables, traces and links of models among them."""
    before, here = len(list(spool_folder().glob("*.jsonl"))), mlflow_client.tracking_uri()
    monkeypatch.setattr("ratchet.components.tracking.mlflow_client.RETRY_WAITS", (0.0,))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    run, decision = logged(folders, agents, 3)
    assert run.read_back_report is None and len(list(spool_folder().glob("*.jsonl"))) == before + 1
    monkeypatch.setenv("MLFLOW_TRACKING_URI", here)
    assert sync().waiting == 0
    client = mlflow_client.client()
    (night,) = [each for each in runs("night") if each.info.run_name == "night-3"]
    assert decision.why in night.data.tags["mlflow.note.content"] and len(files(night, "figures")) == 8
    found = [each for each in runs("agent") if each.data.tags["ratchet.night"] == "night-3"]
    linked = [client.get_run(each.info.run_id).inputs.model_inputs for each in found]
    assert [len(each) for each in linked] == [1, 1, 1]
    experiment = client.get_experiment_by_name("repair").experiment_id
    traces = [
        len(list(trace_writer.search_traces([experiment], f"{night}/champion s{seed}")))
        for night, seed in (("night-1", 1), ("night-3", 3))
    ]
    assert traces[0] == traces[1] > 0


def test_a_run_shows_the_load_of_its_machine(home, monkeypatch):
    from ratchet.components.tracking import run_writer

    monkeypatch.setattr(run_writer, "SYSTEM_SECONDS", 0.05)
    monkeypatch.setattr(run_writer, "SYSTEM_SAMPLES", 1)
    with night_run("loaded", "repair") as run:
        until(lambda: any(name.startswith("system/") for name in _metrics(run)))
    assert "system/cpu_utilization_percentage" in _metrics(run)


def test_a_stage_takes_as_long_in_mlflow_as_its_work_took(home):
    report = {"episodes": 4, "infrastructure_failures": 0, "successes": 2, "policy_version": "v", "failures": {}}
    with night_run("timed", "repair") as run:
        log_collection(run, "attempts", report | {"seconds": 90.0})
    (stage,) = [each for each in runs("collection") if each.data.tags["mlflow.parentRunId"] == run.run_id]
    assert 90_000 <= stage.info.end_time - stage.info.start_time < 150_000


def _metrics(run):
    return mlflow_client.client().get_run(run.run_id).data.metrics


def test_what_mlflow_lost_is_named(first, caplog, monkeypatch):
    from ratchet.components.tracking import run_writer

    with caplog.at_level(logging.WARNING), night_run("lossy", "repair") as run:
        run.log_metrics({"eval/success": 1})
        run.log_history([("train/loss", 0.5, 1), ("train/loss", float("nan"), 2)])
        run.log_table("gone.json", {"a": [1]})
        run.set_tags({"kept": "yes"})
        run.log_dataset("sft", "digest", "data/sft")
        monkeypatch.setattr(run_writer, "find_run", _losing(run.run_id, run_writer.find_run))
    assert not run.read_back_report.is_complete and run.read_back_report.told - run.read_back_report.found == 2
    assert run.read_back_report.absent == ("lossy: tag kept", "lossy: file gone.json")
    assert "things that MLflow was told of 1 runs stand there; absent: lossy: tag kept" in caplog.text


def _losing(run_id, find):
    """Loses a tag and a file before it is asked."""

    def lose(client, experiment, key):
        root = Path(client.get_run(run_id).info.artifact_uri.removeprefix("file://"))
        if (root / "gone.json").exists():
            client.delete_tag(run_id, "kept")
            (root / "gone.json").unlink()
        return find(client, experiment, key)

    return lose


class TestTrainingByHand:
    @pytest.fixture
    def job(self, home, tmp_path):
        (tmp_path / "train.jsonl").write_text("{}\n")
        (output := tmp_path / "out").mkdir()
        lines = [{"step": step, "loss": 1 / step} for step in (1, 2)]
        (output / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return SimpleNamespace(
            output=output,
            method="sft",
            seed=3,
            model=SimpleNamespace(base=None),
            data=[("train", tmp_path / "train.jsonl"), ("sources", None)],
        )

    def found(self, job):
        client = mlflow_client.client()
        experiment = client.get_experiment_by_name(manual_training.EXPERIMENT).experiment_id
        return [
            each for each in client.search_runs([experiment]) if each.data.tags["ratchet.output"] == str(job.output)
        ]

    def test_a_job_that_failed_and_went_on_has_one_run_with_its_curves_once(self, job):
        with pytest.raises(KeyboardInterrupt), manual_training.training_run(job):
            raise KeyboardInterrupt
        assert [each.info.status for each in self.found(job)] == ["KILLED"]
        for _ in range(2):
            with manual_training.training_run(job) as report:
                report |= {"steps": 2, "tokens": 90, "validation_loss": 0.25}
        (run,) = self.found(job)
        assert run.info.status == "FINISHED" and run.data.metrics["train/best_validation_loss"] == 0.25
        curve = mlflow_client.client().get_metric_history(run.info.run_id, "train/loss")
        assert [(each.step, each.value) for each in curve] == [(1, 1.0), (2, 0.5)]
        assert [each.dataset.digest for each in run.inputs.dataset_inputs] and run.data.params["base"] == "from scratch"
        assert run.data.tags["mlflow.note.content"] == "sft from scratch: 2 steps, 90 tokens, validation loss 0.2500."
