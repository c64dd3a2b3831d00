"""Traces in a real MLflow, by its database and by its server: all that is written arrives, once, and what people say comes back."""

import pytest
from episodes import make_episode, night_of, turn, write_night
from scored import judgement_of, score_of

from ratchet.components.core.processes import free_port
from ratchet.components.rewards.human_labels.label_files import add_labels
from ratchet.components.tracking import mlflow_client, model_registry, trace_writer
from ratchet.components.tracking.episode_trace import parse_span_id, span_id
from ratchet.components.tracking.record_upload import spool_folder, sync
from ratchet.components.tracking.run_writer import night_run
from ratchet.components.tracking.trace_log import TraceSample, log_traces, read_feedback

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mlflow")]


@pytest.fixture(scope="module", params=["database", "server"])
def mlflow(request, tmp_path_factory):
    """Where MLflow is: a database of its own, or a server over one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        if request.param == "server":
            patch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("served").url)
        yield request.param


@pytest.fixture
def night(request):
    """A night of its own for each test."""
    return request.node.name.replace("[", "-").replace("]", "")


def infos(night):
    client = mlflow_client.client()
    return list(trace_writer.search_traces([each.experiment_id for each in client.search_experiments()], night))


def say(trace, name, value, span=None, **more):
    """What somebody does in MLflow's page of a trace."""
    from mlflow.entities import AssessmentSource, Feedback

    source = AssessmentSource("HUMAN", "ann@example.com")
    feedback = Feedback(name=name, value=value, source=source, span_id=span, rationale="as I see it", **more)
    return trace_writer._tracing().log_assessment(trace.trace_id, feedback)


def test_every_trace_arrives_is_counted_and_told_again_stands_once(mlflow, night):
    episodes = night_of(4, 3)
    scores = {each.episode_id: score_of(each) for each in episodes}
    with night_run(night, "repair") as run:
        for _ in range(2):
            assert log_traces(run, episodes, scores, [judgement_of(episodes[0])]).found == 12
    found = infos(night)
    assert sorted(each.trace_metadata["ratchet.episode_id"] for each in found) == sorted(scores)
    (one,) = (each for each in found if each.trace_metadata["ratchet.episode_id"] == episodes[0].episode_id)
    assert [(each.name, each.value, parse_span_id(each.span_id)) for each in one.assessments] == [
        ("success", True, (-1, -1)),
        ("total", 0.7, (-1, -1)),
        ("outcome", 1.0, (-1, -1)),
        ("process", 0.5, (-1, -1)),
        ("process", 0.5, (0, 0)),
        ("process", 0.5, (1, 0)),
        ("judge", 0.25, (1, 0)),
        ("judge.goal_progress", 0.25, (1, 0)),
    ]


def test_a_trace_holds_a_span_a_step_with_what_was_called_and_what_came_back(mlflow, night):
    episode = make_episode()
    with night_run(night, "repair") as run:
        log_traces(run, [episode], {})
    (info,) = infos(night)
    spans = mlflow_client.client().get_trace(info.trace_id).data.spans
    steps = [(each.name, each.inputs, each.outputs["content"]) for each in spans if each.span_type == "TOOL"]
    assert steps == [
        (call.tool, call.arguments, result.content)
        for each in episode.turns
        for call, result in zip(each.calls, each.results, strict=True)
    ]
    assert info.request_preview == "repair repair/train-0001" and info.state.value == "OK"


def test_a_trace_says_which_agent_played_and_links_its_model(mlflow, night, tmp_path):
    (checkpoint := tmp_path / "model").mkdir()
    (checkpoint / "weights").write_text(night)
    ref = model_registry.register(checkpoint, policy_version=night)
    with night_run(night, "repair") as run:
        log_traces(run, [make_episode(version=night), make_episode("repair/train-0002", version="unregistered")], {})
    known, unknown = sorted(infos(night), key=lambda each: each.tags["ratchet.task"])
    assert known.tags["mlflow.traceName"] == f"repair/train-0001 (v{ref.version})"
    assert (
        known.tags["ratchet.model"] == f"agent/{ref.version}" and known.trace_metadata["mlflow.modelId"] == ref.model_id
    )
    assert unknown.tags["mlflow.traceName"] == "repair/train-0002" and "mlflow.modelId" not in unknown.trace_metadata


def test_no_secret_reaches_mlflow(mlflow, night):
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    episode = make_episode(turns=[turn(0, "bash", command=f"curl -H 'Authorization: Bearer {secret}' example.com")])
    with night_run(night, "repair") as run:
        log_traces(run, [episode], {episode.episode_id: score_of(episode)})
    (info,) = infos(night)
    spans = mlflow_client.client().get_trace(info.trace_id).data.spans
    assert secret not in str([each.to_dict() for each in spans]) and "curl" in str([each.inputs for each in spans])
    assert info.trace_metadata["ratchet.content_hash"] == episode.content_hash  # labels are of what was played


def test_what_people_say_of_a_step_an_episode_or_a_score_comes_back_as_labels(mlflow, night):
    episode = make_episode(version=night)
    with night_run(night, "repair") as run:
        log_traces(run, [episode], {episode.episode_id: score_of(episode)}, [judgement_of(episode)])
    (info,) = infos(night)
    said = {each.name: each for each in info.assessments if each.span_id == span_id(1, 0)}
    say(info, "goal_progress", True, span_id(2, 0))
    say(info, "feedback", "no")
    say(info, "judge.goal_progress", 0.75, span_id(1, 0), overrides=said["judge.goal_progress"].assessment_id)
    say(info, "mood", 4)
    say(info, "overall", 1.0, "00000000000000ff")
    with night_run(night, "repair") as run:  # a night that goes on tells again
        log_traces(run, [episode], {episode.episode_id: score_of(episode)}, [judgement_of(episode)])
    found = read_feedback("repair")
    own = [each for each in found.labels if each.episode_id == episode.episode_id]
    assert sorted((each.turn, each.step, each.line, each.value) for each in own) == [
        (-1, -1, "overall", 0.0),
        (1, 0, "goal_progress", 0.75),
        (2, 0, "goal_progress", 1.0),
    ]
    assert {(each.annotator, each.comment, each.domain, each.content_hash) for each in own} == {
        ("ann@example.com", "as I see it", "coding", episode.content_hash)
    }
    assert sum(found.refused.values()) == 2 and any("found 4" in each for each in found.refused)


def test_mlflow_away_loses_no_trace(mlflow, night, monkeypatch):
    episodes = night_of(2, 2, version=night)
    here = mlflow_client.tracking_uri()
    monkeypatch.setattr("ratchet.components.tracking.mlflow_client.RETRY_WAITS", (0.0,))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    with night_run(night, "repair") as run:
        report = log_traces(run, episodes, {})
    assert (report.chosen, report.found, report.waiting) == (4, 0, 4)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", here)
    assert sync().waiting == 0 and not list(spool_folder().glob("0*.jsonl"))
    assert len(infos(night)) == 4


@pytest.mark.parametrize("mlflow", ["database"], indirect=True)
class TestTasks:
    @pytest.fixture(autouse=True)
    def own_clone(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    def test_a_sample_of_a_sealed_night_is_written(self, mlflow, night, tmp_path):
        from ratchet.tasks.traces import log_traces as task

        episodes = night_of(5, 4, version=night)
        rollouts = write_night(tmp_path / "rollouts", episodes)
        scores = {each.episode_id: score_of(each, total=float(n)) for n, each in enumerate(episodes)}
        with night_run(night, "repair") as run:
            report = task.fn(night, run, rollouts, scores, sample=TraceSample(best=2, worst=1, random=3))
        assert report == {"chosen": 6, "found": 6, "waiting": 0}
        told = {each.trace_metadata["ratchet.episode_id"] for each in infos(night)}
        assert {episodes[-1].episode_id, episodes[-2].episode_id, episodes[0].episode_id} <= told

    def test_labels_of_both_ways_are_gathered_once(self, mlflow, night, tmp_path, planted_label):
        from ratchet.components.core.home import home
        from ratchet.tasks.traces import gather_labels

        episode = make_episode(version=night)
        with night_run(night, "repair") as run:
            log_traces(run, [episode], {})
        (info,) = infos(night)
        say(info, "feedback", "yes", span_id(0, 0))
        own = planted_label(f"ep-{night}")
        add_labels(home() / "labels" / "labels.jsonl", [own])
        found = gather_labels([])
        assert found.asked and found.from_file >= 1 and own in found.labels
        (theirs,) = (each for each in found.labels if each.episode_id == episode.episode_id)
        assert (theirs.turn, theirs.step, theirs.value) == (0, 0, 1.0)
        sealed = tmp_path / "labels.jsonl"
        add_labels(sealed, found.labels)
        assert gather_labels([sealed]).labels == []

    def test_without_mlflow_the_local_labels_are_sealed_all_the_same(self, mlflow, night, monkeypatch, planted_label):
        from ratchet.components.core.home import home
        from ratchet.tasks.traces import gather_labels

        own = planted_label(f"ep-{night}")
        add_labels(home() / "labels" / "labels.jsonl", [own])
        monkeypatch.setattr("ratchet.components.tracking.mlflow_client.RETRY_WAITS", (0.0,))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
        found = gather_labels([])
        assert not found.asked and found.from_feedback == 0 and own in found.labels


@pytest.fixture
def planted_label():
    from ratchet.components.rewards.annotation_records import Label

    def make(episode):
        return Label(episode_id=episode, content_hash="c", domain="coding", value=1.0, annotator="ann")

    return make


def test_the_options_of_a_database_are_no_part_of_its_file_name(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    mlflow_client._make_database(f"sqlite:///{tmp_path}/db/mlflow.db?timeout=30")
    assert [path.name for path in (tmp_path / "db").iterdir()] == ["mlflow.db"]
