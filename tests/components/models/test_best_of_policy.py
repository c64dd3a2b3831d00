"""Best-of-n: the best of n candidates is played, all are paid for, and with one candidate nothing differs from the policy alone."""

import msgspec
import pytest
from small_model import TASK, TOOLS

from ratchet.components.core import (
    ConfigurationError,
    DataError,
    Policy,
    PolicyReply,
    PolicyRequest,
    TokenTrace,
    Usage,
)
from ratchet.components.models.best_of_policy import BestOfName, BestOfPolicy
from ratchet.components.models.policy_factory import make_policy, plays_in_lockstep, policy_version, started_server_gpus
from ratchet.components.operations.manual_evaluation import resolve_policy
from ratchet.components.tasksets import load_taskset


class Seeds(Policy):
    """Says its seed, and keeps the batches that it was asked with."""

    name, version, sampling = "seeds", "v", {"temperature": 1.0}

    def __init__(self, lockstep=False, cost=0.5):
        self.lockstep, self.cost, self.batches, self.closed = lockstep, cost, [], 0

    def act(self, requests):
        self.batches.append([request.seed for request in requests])
        return [
            PolicyReply(
                str(request.seed),
                usage=Usage(10, request.seed % 7, self.cost),
                tokens=TokenTrace((1,), (2,), (-1.0,)),
            )
            for request in requests
        ]

    def close(self):
        self.closed += 1


class ByText:
    """Scores a reply by a function of its text."""

    def __init__(self, score):
        self.score, self.asked = score, []

    def scores(self, messages, turn, replies):
        self.asked.append((list(messages), turn, len(replies)))
        return [self.score(reply.text) for reply in replies]


def requests(*seeds, turn=0):
    return [PolicyRequest(f"ep-{seed}", "t", turn, seed, (TASK,), TOOLS) for seed in seeds]


def best_of(n, score, **options):
    inner = Seeds(**options)
    return inner, BestOfPolicy(inner, n, ByText(score), version="b")


@pytest.mark.parametrize("lockstep", [False, True])
def test_the_reply_with_the_highest_score_is_taken_for_each_request(lockstep):
    inner, policy = best_of(5, float, lockstep=lockstep)
    replies = policy.act(requests(3, 4))
    seeds = [seed for batch in inner.batches for seed in batch]
    assert len(set(seeds)) == 10, "every candidate of every request has a stream of its own"
    by_request = [seeds[place::2] for place in range(2)]
    assert [int(reply.text) for reply in replies] == [max(own) for own in by_request]
    assert policy.lockstep is lockstep


def test_the_first_candidate_is_what_the_policy_alone_says_and_wins_every_tie():
    _, policy = best_of(4, lambda text: 0.0)
    assert [reply.text for reply in policy.act(requests(3, 4))] == ["3", "4"]
    alone, one = best_of(1, lambda text: 0.0)
    (reply,) = one.act(requests(9))
    (plain,) = Seeds().act(requests(9))
    assert msgspec.structs.replace(reply, seconds=0.0) == msgspec.structs.replace(plain, tokens=None)
    assert alone.batches == [[9]]


def test_a_policy_that_plays_in_lockstep_is_asked_with_batches_of_the_size_it_would_have_alone():
    inner, policy = best_of(3, float, lockstep=True)
    policy.act(requests(1, 2, 3, 4))
    assert [len(batch) for batch in inner.batches] == [4, 4, 4] and inner.batches[0] == [1, 2, 3, 4]
    other, parallel = best_of(3, float)
    parallel.act(requests(1))
    assert [len(batch) for batch in other.batches] == [3], "a server gets all candidates of a turn at once"


def test_all_candidates_are_paid_for_and_what_is_unknown_stays_unknown():
    inner, policy = best_of(3, float)
    (reply,) = policy.act(requests(5))
    assert reply.usage == Usage(30, sum(seed % 7 for seed in inner.batches[0]), 1.5)
    assert reply.tokens is None, "the log-probabilities of the policy alone are not those of a chosen reply"
    (unpriced,) = best_of(3, float, cost=None)[1].act(requests(5))
    assert unpriced.usage.cost is None and unpriced.usage.prompt_tokens == 30


def test_the_scorer_is_asked_with_the_conversation_and_its_turn():
    inner = Seeds()
    policy = BestOfPolicy(inner, 2, scorer := ByText(float), version="b")
    policy.act(requests(5, turn=3))
    assert scorer.asked == [([TASK], 3, 2)] and policy.act([]) == []
    policy.close()
    assert inner.closed == 1 and policy.sampling == {"temperature": 1.0, "best_of": 2}


def test_a_name_says_how_many_by_which_step_model_and_of_which_policy():
    name = "best-of-8:runs/prm/checkpoint:openai:m@http://127.0.0.1:8000/v1"
    assert BestOfName.parse(name) == (8, "runs/prm/checkpoint", "openai:m@http://127.0.0.1:8000/v1")
    assert str(BestOfName.parse(name)) == name and BestOfName.parse("transformers:best-of-8") is None
    assert plays_in_lockstep("best-of-2:prm:transformers:x") and not plays_in_lockstep(name)
    assert started_server_gpus("best-of-2:prm:vllm:x") and not started_server_gpus(name)
    assert resolve_policy(name) == name


@pytest.mark.parametrize(
    "name", ["best-of-0:prm:champion", "best-of-8:prm", "best-of-x:a:b", "best-of-2:a:best-of-2:a:b"]
)
def test_a_name_that_is_not_whole_is_one_line(name):
    with pytest.raises(ConfigurationError, match="write best-of-8:STEP_MODEL_FOLDER:POLICY") as error:
        make_policy(name, load_taskset("repair"))
    assert "\n" not in str(error.value)


def test_a_script_has_no_candidates_and_a_folder_that_is_no_step_model_is_refused(tmp_path):
    taskset = load_taskset("repair")
    with pytest.raises(ConfigurationError, match="'teacher' is a script"):
        make_policy(f"best-of-2:{tmp_path}:teacher", taskset)
    (config := tmp_path / "openai.yaml").write_text("{model: m, base_url: 'http://127.0.0.1:1/v1'}")
    for use in (make_policy, policy_version):
        with pytest.raises(DataError, match="is not a step model"):
            use(f"best-of-2:{tmp_path}:openai:{config}", taskset)
