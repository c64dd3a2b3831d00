"""What a run plays or has recorded: read strictly, and tokenised as it would have been played."""

import json

import msgspec
import pytest

pytest.importorskip("transformers")

from small_model import CHAT, OPENAI, TASK, TOOLS

from ratchet.components.core import DataError, PlayableTask, PolicyRequest
from ratchet.components.models.sampled_policy import Sampled, SamplingParameters, TokenExactPolicy
from ratchet.components.training.format.chat_rows import NotOneSequence
from ratchet.components.training.grpo.recorded_groups import recorded_tokens
from ratchet.components.training.grpo.rollout_sample import join_traces
from ratchet.components.training.grpo.task_sampler import epoch_order
from ratchet.components.training.grpo.train_grpo import select_tasks
from ratchet.components.training.scratch_model import conversation_text, fit_tokenizer

pytestmark = pytest.mark.slow

TASKS = [PlayableTask(f"t{number}", "f", "k") for number in range(3)]


def test_a_recorded_episode_has_the_tokens_that_playing_it_would_have_had():
    tokenizer = fit_tokenizer([conversation_text(CHAT, OPENAI)] * 2, 380)
    found = recorded_tokens(CHAT, OPENAI, tokenizer)
    replies = [[id for id, turn in zip(found.completion_ids, found.turns, strict=True) if turn == n] for n in range(3)]

    class Again:
        stops, context_length = (), 10_000

        def sample(self, prompts, seeds, sampling):
            ids = tuple(replies.pop(0))
            return [Sampled(ids, (0.0,) * len(ids))]

    policy = TokenExactPolicy(Again(), tokenizer, SamplingParameters(), version="v")
    traces, before = [], 0
    for turn in range(3):
        (reply,) = policy.act([PolicyRequest("ep", "t", turn, 7, CHAT[: 1 + 2 * turn], TOOLS)])
        new = reply.tokens.prompt_ids[before:]
        traces.append(type(reply.tokens)(new, reply.tokens.completion_ids, reply.tokens.logprobs, before))
        before = len(reply.tokens.prompt_ids) + len(reply.tokens.completion_ids)
    played = join_traces(traces)
    assert played.versions == [0, 0, 0]
    assert msgspec.structs.replace(played, versions=[]) == found


def test_a_conversation_without_a_reply_is_no_episode():
    tokenizer = fit_tokenizer([conversation_text(CHAT, OPENAI)] * 2, 380)
    assert recorded_tokens([TASK], OPENAI, tokenizer) is None


def test_a_prompt_set_says_which_tasks_once_each(tmp_path):
    path = tmp_path / "grpo.jsonl"
    path.write_text("".join(json.dumps({"task_id": task, "prompt": []}) + "\n" for task in ("t2", "t0", "t2")))
    assert [task.task_id for task in select_tasks(TASKS, path)] == ["t2", "t0"]
    assert select_tasks(TASKS, None) == TASKS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no tasks"),
        ('{"prompt": []}\n', "line 1: not a GRPO row"),
        ('{"task_id": "t0"}\n{"task_id": "x"}\n', "does not know task 'x'"),
        ("\xff", "not a GRPO row"),
    ],
)
def test_a_prompt_set_that_is_none_is_named(tmp_path, text, why):
    path = tmp_path / "grpo.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=why):
        select_tasks(TASKS, path)
    with pytest.raises(DataError, match="cannot be read"):
        select_tasks(TASKS, tmp_path / "nothing.jsonl")


def test_every_epoch_is_a_permutation_of_its_own():
    whole = epoch_order(5, 0, 20, seed=1)
    epochs = [whole[start : start + 5] for start in range(0, 20, 5)]
    assert all(sorted(epoch) == list(range(5)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert [place for start in range(20) for place in epoch_order(5, start, 1, seed=1)] == whole
    assert epoch_order(5, 0, 20, seed=2) != whole


def test_an_attempt_that_the_template_rewrites_is_no_sequence_and_is_left_out():
    import chat_templates

    template = (chat_templates.TEMPLATES / f"{chat_templates.THINKING}.jinja").read_text()
    tokenizer = chat_templates.tokenizer_for(template)
    ask = {"role": "user", "content": "2 + 2?"}
    plain = [{"role": "assistant", "content": "<think>two and two</think>4"}]
    longer = [*plain, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "<think>yes</think>4"}]
    with pytest.raises(NotOneSequence):
        recorded_tokens([ask, *longer], None, tokenizer)
    assert recorded_tokens([ask, *plain], None, tokenizer).mask[0] == 1
