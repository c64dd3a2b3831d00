"""Drift: what the weights that sampled a row's tokens make of them in that row, less what was recorded."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from sampled_rows import BASE, TEMPERATURE, sampled_home

from ratchet.components.core import DataError
from ratchet.components.inspector import drift_views, token_views
from ratchet.components.inspector.app import build_app
from ratchet.components.inspector.served_episodes import ServedEpisodes
from ratchet.components.models.checkpoint_folders import checkpoint_version
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import begin_night
from ratchet.components.trajectories.trajectory import Trajectory

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Trajectory]]:
    root = tmp_path_factory.mktemp("sampled")
    return root, sampled_home(root)


@pytest.fixture
def project(
    sampled: tuple[Path, list[Trajectory]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[Trajectory]]:
    """A copy of the home, and its episodes."""
    shutil.copytree(sampled[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    drift_views._scorers.clear()
    return tmp_path, sampled[1]


def measure(
    root: Path, episodes: list[Trajectory], dataset: str = "sft", row: int = 0, **changes: Any
) -> dict[str, Any]:
    """The drift of a row, as the process of its own computes it. `version`, `temperature`: said of its episodes."""
    origin, line = token_views.read_row(root, dataset, f"train-{row}")
    agents = {each.episode_id: each.agent for each in episodes}
    sampled = [
        (
            changes.get("version", agents[id].policy_version),
            changes.get("temperature", agents[id].sampling.get("temperature")),
        )
        for id in origin["episode_ids"]
    ]
    job, _ = token_views.training_job(root)
    return drift_views.measure_drift(str(root), dataset, line, origin["episode_ids"], str(job), sampled)


def expected(root: Path, episode: Trajectory, weights: Path) -> list[float]:
    """A plain forward pass of transformers over what was sampled, less what was recorded."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    (sidecar,) = root.glob("data/rollouts/*/tokens-*.parquet")
    found, ids = [], []
    for row in pq.read_table(sidecar, filters=[("episode_id", "==", episode.episode_id)]).to_pylist():
        prompt = ids[: row["kept"]] + row["prompt_ids"]
        ids = prompt + row["completion_ids"]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1]
        chosen = torch.log_softmax(logits / TEMPERATURE, -1).gather(-1, torch.tensor(row["completion_ids"])[:, None])
        found += (chosen[:, 0] - torch.tensor(row["logprobs"])).tolist()
    return found


def other_weights(root: Path) -> Path:
    """The base with its weights changed a little, as another checkpoint."""
    from safetensors.torch import load_file, save_file

    folder = root / "data/models/other"
    shutil.copytree(BASE, folder)
    state = load_file(folder / "model.safetensors")
    save_file({name: value * 1.05 for name, value in state.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_under_the_weights_that_sampled_a_row_its_drift_is_rounding(project: tuple[Path, list[Trajectory]]) -> None:
    root, episodes = project
    for row, episode in enumerate(episodes):
        answer = measure(root, episodes, row=row)
        tokens = token_views.row_tokens(root, "sft", f"train-{row}")
        assert answer["places"] == [at for at, token in enumerate(tokens) if token.logprob is not None]
        assert len(answer["places"]) == sum(token.mask for token in tokens) - len(episode.turns)  # the ends of replies
        assert 0 < answer["largest"] < 1e-4 and "after other tokens" not in answer["note"]


def test_under_other_weights_drift_is_that_of_a_plain_forward_pass(project: tuple[Path, list[Trajectory]]) -> None:
    root, episodes = project
    other = other_weights(root)
    for row, episode in enumerate(episodes):
        answer = measure(root, episodes, row=row, version=checkpoint_version(other))
        assert answer["values"] == pytest.approx(expected(root, episode, other), abs=1e-5)
        sizes = [abs(value) for value in answer["values"]]
        assert answer["largest"] == max(sizes) > 0.05
        assert answer["mean"] == pytest.approx(sum(sizes) / len(sizes))


def test_at_another_temperature_than_the_recorded_one_there_would_be_drift(
    project: tuple[Path, list[Trajectory]],
) -> None:
    assert measure(*project, temperature=1.0)["largest"] > 0.05


@pytest.mark.parametrize("dataset", ["dpo", "groups"])
def test_every_conversation_of_a_row_has_the_drift_of_its_own_episode(
    project: tuple[Path, list[Trajectory]], dataset: str
) -> None:
    root, episodes = project
    answer = measure(root, episodes, dataset)
    assert answer["largest"] < 1e-4 or "after other tokens" in answer["note"]
    tokens = token_views.row_tokens(root, dataset, "train-0")
    assert answer["places"] == [at for at, token in enumerate(tokens) if token.logprob is not None]


def test_a_row_that_lost_what_was_sampled_before_its_replies_says_so(project: tuple[Path, list[Trajectory]]) -> None:
    root, episodes = project
    path = root / "data/datasets/sft/train.jsonl"
    first, *others = path.read_text().splitlines()
    row = json.loads(first)
    row["messages"][0]["content"] += " Hurry."
    path.write_text("\n".join([json.dumps(row), *others]) + "\n")
    answer = measure(root, episodes)
    assert "3 of them after other tokens than here" in answer["note"] and answer["largest"] > 1e-3


def test_what_prevents_drift_is_one_line_each(
    project: tuple[Path, list[Trajectory]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, episodes = project

    def refusal(dataset: str = "sft", **changes: Any) -> str:
        with pytest.raises(DataError) as refused:
            measure(root, episodes, dataset, **changes)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert "ckpt-0123456789abcdef, which sampled this row, are not on this machine" in refusal(
        version="ckpt-0123456789abcdef"
    )
    assert "temperature" in refusal(temperature=None)
    with monkeypatch.context() as patch:
        patch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100_000_000))
        assert "0.1 GB of memory are free" in refusal()
    (sidecar,) = root.glob("data/rollouts/*/tokens-*.parquet")
    kept = sidecar.read_bytes()
    sidecar.unlink()
    assert "no log-probabilities were recorded" in refusal()
    sidecar.write_bytes(kept)
    job, _ = token_views.training_job(root)
    assert job is not None
    template = job / "checkpoint/chat_template.jinja"
    template.write_text(template.read_text().replace('"name": ', '"name":'))
    assert "another tokenizer or chat template made this row" in refusal()


def test_a_row_of_another_tokenizer_than_that_of_the_weights_has_no_drift(
    project: tuple[Path, list[Trajectory]],
) -> None:
    root, episodes = project
    other = other_weights(root)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    special = {each["content"] for each in tokenizer["added_tokens"]}
    vocabulary = tokenizer["model"]["vocab"]
    names = [name for name in vocabulary if name not in special]
    # Every other piece has the id of its neighbour.
    vocabulary.update(zip(names, [vocabulary[name] for name in (*names[1:], names[0])], strict=True))
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(DataError, match="another tokenizer than that of ckpt-"):
        measure(root, episodes, version=checkpoint_version(other))


def test_the_weights_are_those_of_a_night_or_bundled_and_exactly_the_ones_that_sampled(
    project: tuple[Path, list[Trajectory]],
) -> None:
    root, episodes = project
    version = episodes[0].agent.policy_version
    assert drift_views.find_checkpoint(root, version) == root / "data/models/base"
    kept = root / "kept"
    (root / "data/models/base").rename(kept)
    begin_night("smoke", None, "open").run_once("champion", lambda: NightModel(version, str(kept), ("n",)))
    (root / ".ratchet/nights/damaged").mkdir()
    (root / ".ratchet/nights/damaged/state.json").write_text("{")
    assert drift_views.find_checkpoint(root, version) == kept
    (kept / "config.json").write_text((kept / "config.json").read_text() + "\n")
    with pytest.raises(DataError):
        drift_views.find_checkpoint(root, version)


def test_the_mask_of_a_pair_is_that_of_its_training_rows(project: tuple[Path, list[Trajectory]]) -> None:
    from transformers import AutoTokenizer

    from ratchet.components.training.config.job_config import DpoConfig
    from ratchet.components.training.dpo.dpo_pairs import prepare_pairs, read_pairs

    root, _ = project
    path = root / "data/datasets/dpo/train.jsonl"
    config = DpoConfig.load(
        {
            "method": "dpo",
            "output": "x",
            "model": {"base": "x"},
            "format": {"max_length": 1024, "agent_format": True, "mask_observations": True},
            "data": {"train": str(path)},
        }
    )
    (pair,) = prepare_pairs(read_pairs(path, "all"), AutoTokenizer.from_pretrained(BASE), config, weigh=True).pairs
    shown = token_views.row_tokens(root, "dpo", "train-0")
    labels = [*pair.chosen.labels, *pair.rejected.labels]
    assert [token.mask for token in shown] == [label != -100 for label in labels]
    assert [token.weight for token in shown] == pytest.approx([*pair.chosen.weights, *pair.rejected.weights])


def test_equal_replies_of_two_attempts_have_the_log_probabilities_of_their_own(
    project: tuple[Path, list[Trajectory]],
) -> None:
    root, episodes = project
    (sidecar,) = root.glob("data/rollouts/*/tokens-*.parquet")
    rows = pq.read_table(sidecar).to_pylist()
    ends = [row for row in rows if row["turn"] == 2]
    assert ends[0]["completion_ids"] == ends[1]["completion_ids"] and ends[0]["logprobs"] != ends[1]["logprobs"]
    recorded = [
        value for each in episodes for row in rows if row["episode_id"] == each.episode_id for value in row["logprobs"]
    ]
    shown = [token.logprob for token in token_views.row_tokens(root, "groups", "train-0")]
    assert [value for value in shown if value is not None] == recorded


def test_the_api_gives_drift_when_asked_and_tokens_do_not_wait_for_it(
    project: tuple[Path, list[Trajectory]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, episodes = project
    served = ServedEpisodes()
    served.update()
    client = TestClient(build_app(served, "secret", 8000), base_url="http://127.0.0.1:8000", follow_redirects=False)
    client.get("/?key=secret")
    tokens = client.get("/api/rows/sft/train-0/tokens", params={"limit": 500}).json()
    assert tokens["total"] and drift_views._process._process is None
    answer = client.get("/api/rows/sft/train-0/drift").json()
    assert answer["places"] == [at for at, token in enumerate(tokens["items"]) if token["logprob"] is not None]
    assert answer["largest"] < 1e-4 and episodes[0].agent.policy_version in answer["note"]
    again = client.get("/api/rows/sft/train-0/drift").json()
    assert again == answer
    assert client.get("/api/rows/sft/train-9/drift").status_code == 404
    (sidecar,) = root.glob("data/rollouts/*/tokens-*.parquet")
    sidecar.unlink()
    refused = client.get("/api/rows/sft/train-1/drift")
    assert refused.status_code == 404 and "no log-probabilities were recorded" in refused.json()["error"]
    drift_views._process.close()
    served.close()
