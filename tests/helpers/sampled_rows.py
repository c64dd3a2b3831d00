"""A home with two episodes that a small model really sampled, the dataset rows made of them, and a trained model's tokenizer."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from episodes import make_episode

from ratchet.components.core import Policy, PolicyRequest, ToolResult
from ratchet.components.environments.sandbox_tools import TOOLS
from ratchet.components.trajectories.chat_messages import as_chat_messages, chat_messages
from ratchet.components.trajectories.shards import write_shard
from ratchet.components.trajectories.token_sidecar import TurnTokens, common_prefix, encode_tokens
from ratchet.components.trajectories.trajectory import Agent, Message, Trajectory, Turn

BASE = Path(__file__).parents[2] / "data/models/programs-base"
TEMPERATURE = 0.8
ASKED = "add_cost(price, size): if size is below 68, return size plus price; return the larger of size and price."
SOURCE = "def add_cost(price, size):\n    if size < 68:\n        return size - price\n    return max(size, price)\n"
TRAINED = {"format": {"max_length": 1024, "agent_format": True, "mask_observations": True}, "sft": {"weighted": True}}


def sampled_home(root: Path) -> list[Trajectory]:
    """Write it to `root`, with the weights in `data/models/base`, and return the episodes."""
    from ratchet.components.models.transformers_policy import TransformersPolicy

    weights = root / "data/models/base"
    shutil.copytree(BASE, weights)
    job = root / ".ratchet/nights/2026-11-20-a1b2/training/challenger"
    shutil.copytree(BASE, job / "checkpoint", ignore=shutil.ignore_patterns("*.safetensors"))
    (job / "config.json").write_text(json.dumps(TRAINED))
    policy = TransformersPolicy(weights, temperature=TEMPERATURE, device="cpu", threads=1)
    episodes, tokens = zip(*(_play(policy, attempt) for attempt in range(2)), strict=True)
    night = root / "data/rollouts/2026-11-20-a1b2"
    night.mkdir(parents=True)
    sidecar = encode_tokens([each for own in tokens for each in own], tokenizer_hash="t", template_hash="c")
    write_shard(night, 0, episodes, sidecar)
    _write_rows(root, episodes)
    return list(episodes)


def _write_rows(root: Path, episodes: tuple[Trajectory, ...]) -> None:
    """Write an SFT row of each episode, and a pair and a group of both."""
    tools = [tool.as_openai() for tool in TOOLS]
    one, two = (chat_messages(each) for each in episodes)
    ids = [each.episode_id for each in episodes]
    rows: dict[str, list[tuple[list[str], dict[str, Any]]]] = {
        "sft": [([id], {"messages": chat, "weight": 0.5}) for id, chat in zip(ids, (one, two), strict=True)],
        # The pair's prompt ends with the result of the first reply.
        "dpo": [(ids, {"prompt": one[:3], "chosen": one[3:4], "rejected": two[3:4]})],
        "groups": [(ids, {"prompt": one[:1], "attempts": [one[1:], two[1:]], "advantages": [1.0, -1.0]})],
    }
    for name, own in rows.items():
        folder = root / "data/datasets" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.jsonl").write_text(
            "".join(json.dumps({**row, "tools": tools, "episode_ids": made_of}) + "\n" for made_of, row in own)
        )
        origins = [
            {"split": "train", "row": at, "sha256": "", "task_id": "t", "episode_ids": made_of, "reason": None}
            for at, (made_of, _) in enumerate(own)
        ]
        pq.write_table(pa.Table.from_pylist(origins), folder / "rows.parquet")


def _play(policy: Policy, attempt: int) -> tuple[Trajectory, list[TurnTokens]]:
    started = make_episode(attempt=attempt, version=policy.version, turns=())
    opening = (Message("user", ASKED),)
    messages, context = as_chat_messages(opening), ()
    played: list[Turn] = []
    tokens: list[TurnTokens] = []
    for index in range(3):
        (reply,) = policy.act([PolicyRequest(started.episode_id, "t", index, 2 * attempt, messages, TOOLS)])
        results = tuple(ToolResult(call.call_id, "done" if index else SOURCE, exit_code=0) for call in reply.calls)
        played.append(Turn(index, "agent", reply.text, calls=reply.calls, results=results))
        trace = reply.tokens
        kept = common_prefix(context, trace.prompt_ids)
        context = trace.prompt_ids + trace.completion_ids
        trace = msgspec.structs.replace(trace, prompt_ids=trace.prompt_ids[kept:], kept=kept)
        tokens.append(TurnTokens(started.episode_id, index, trace))
        agent = Agent("transformers", "transformers", policy.version, sampling=policy.sampling)
        episode = make_episode(attempt=attempt, version=policy.version, turns=played, agent=agent, messages=opening)
        messages = chat_messages(episode)
    return episode, tokens
