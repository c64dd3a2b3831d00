"""An agent is a function: what it may return, and what its version depends on."""

import asyncio
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial

import pytest
from patience import LIMIT

from ratchet.components.core import ConfigurationError, Policy, PolicyReply, PolicyRequest
from ratchet.components.models.callable_policy import CallablePolicy, SystemPromptPolicy, as_policy

REQUEST = PolicyRequest("ep-1", "task", 3, 0, (), ())


def reply_of(agent):
    policy = CallablePolicy(agent)
    try:
        (reply,) = policy.act([REQUEST])
    finally:
        policy.close()
    return reply


def test_text_calls_no_tool_and_a_dictionary_calls_one():
    assert reply_of(lambda request: "done") == PolicyReply("done")
    reply = reply_of(lambda request: {"tool": "bash", "params": {"command": "ls"}, "thought": "look"})
    (call,) = reply.calls
    assert (call.call_id, call.tool, call.arguments, reply.thought) == ("3-0", "bash", {"command": "ls"}, "look")
    assert reply_of(lambda request: {"tool": "submit"}).calls[0].arguments == {}


def test_a_whole_reply_is_kept_as_it_is():
    whole = PolicyReply("x", stop_reason="length")
    assert reply_of(lambda request: whole) is whole


def test_coroutines_of_all_episodes_and_of_all_collections_run_in_one_loop():
    loops = []

    async def agent(request):
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return "done"

    for _ in range(2):  # a client of the first collection is used in the second
        policy = CallablePolicy(agent)
        assert policy.act([REQUEST, REQUEST]) == [PolicyReply("done")] * 2
        policy.close()
    assert len(loops) == 4 and len(set(map(id, loops))) == 1


def test_a_closed_policy_cancels_the_coroutines_that_still_run_also_one_that_has_just_begun(monkeypatch):
    started, ended = threading.Event(), threading.Event()

    async def agent(request):
        started.set()
        try:
            await asyncio.sleep(2 * LIMIT)
        finally:
            ended.set()

    policy = CallablePolicy(agent)
    submit = asyncio.run_coroutine_threadsafe

    def submit_while_closed(*arguments):  # the policy is closed as early as it can be: before it knows of the coroutine
        future = submit(*arguments)
        assert started.wait(LIMIT)
        threading.Thread(target=policy.close).start()
        time.sleep(0.1)
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", submit_while_closed)
    with ThreadPoolExecutor(1) as pool:
        replies = pool.submit(policy.act, [REQUEST])
        assert isinstance(replies.exception(LIMIT), CancelledError) and ended.wait(LIMIT)


@pytest.mark.parametrize("reply", [3, None, {"name": "bash"}, {"tool": "bash", "arguments": {}}, ["bash"]])
def test_any_other_reply_is_refused_with_what_to_return(reply):
    with pytest.raises(ConfigurationError, match=r"return a ratchet\.PolicyReply, a dictionary"):
        reply_of(lambda request: reply)


def make_agent(word, repeat=1):
    def agent(request, times=repeat):
        return word * times

    return agent


def test_the_version_depends_on_code_captured_values_and_defaults_and_on_nothing_else():
    version = CallablePolicy(make_agent("yes")).version
    assert version == CallablePolicy(make_agent("yes")).version and version.startswith("agent-")
    others = [make_agent("no"), make_agent("yes", 2), lambda request: "yes", partial(make_agent("yes"), times=4)]
    assert len({version, *(CallablePolicy(other).version for other in others)}) == 5


MODULE = """
PROMPT, LIMITS, unread = "Be kind.", {"words": 3}, 1

def shorten(text):
    return cut(text)[: LIMITS["words"]]

def cut(text):
    return text.split() if text else shorten(text)

def agent(request):
    return [shorten(PROMPT) for _ in range(1)]
"""


def module_version(old="", new=""):
    assert old in MODULE
    namespace = {"__name__": "mine"}
    exec(MODULE.replace(old, new), namespace)
    return CallablePolicy(namespace["agent"]).version


@pytest.mark.parametrize(
    ("old", "new"), [("kind", "rude"), ('"words": 3', '"words": 4'), ("text.split()", "text.split(',')")]
)
def test_the_version_depends_on_what_the_function_reads_and_calls_in_its_module(old, new):
    assert module_version() == module_version() != module_version(old, new)


def test_the_version_does_not_depend_on_the_rest_of_the_module():
    assert module_version() == module_version("}, 1", "}, 2") == module_version("def agent", "other = 1\n\ndef agent")


def test_the_version_of_an_object_depends_on_all_methods_of_its_class():
    def agent_class(word):
        class Agent:
            def __call__(self, request):
                return self.reply()

            def reply(self):
                return word

        return Agent

    assert CallablePolicy(agent_class("a")()).version == CallablePolicy(agent_class("a")()).version
    assert CallablePolicy(agent_class("a")()).version != CallablePolicy(agent_class("b")()).version
    assert CallablePolicy(agent_class("a")().__call__).version != CallablePolicy(agent_class("b")().__call__).version


def test_a_long_chain_of_helpers_has_a_version():
    namespace = {"__name__": "mine"}
    exec("\n".join(f"def f{i}(request):\n    return f{i + 1}(request)" for i in range(300)), namespace)
    assert CallablePolicy(namespace["f0"]).version


def test_a_function_that_refers_to_itself_has_a_version():
    def agent(request):
        return agent

    assert CallablePolicy(agent).version


def test_an_object_is_named_by_its_class_and_may_state_its_version():
    class Agent:
        def __init__(self, word):
            self.word = word

        def __call__(self, request):
            return self.word

    assert CallablePolicy(Agent("a")).name == "Agent"
    assert CallablePolicy(Agent("a")).version != CallablePolicy(Agent("b")).version
    stated = Agent("a")
    stated.version = "7"
    assert CallablePolicy(stated).version == "7"


def test_a_lambda_is_called_agent():
    assert CallablePolicy(lambda request: "x").name == "agent"


def test_a_system_prompt_is_part_of_the_version():
    policy = CallablePolicy(lambda request: "x")
    brief, kind = SystemPromptPolicy(policy, "Be brief."), SystemPromptPolicy(policy, "Be kind.")
    assert len({policy.version, brief.version, kind.version}) == 3 and brief.system == "Be brief."


@pytest.mark.parametrize("agent", [7, None, Policy])
def test_what_is_no_agent_is_refused(agent):
    with pytest.raises(ConfigurationError, match="is no agent"):
        as_policy(agent)


class Base:
    """An agent whose subclasses differ by what they inherit and by a value of the class."""

    PROMPT = "a"

    def __init__(self, model):
        self.model = model

    def __call__(self, request):
        return f"{self.PROMPT} {self.model}"


class Other(Base):
    PROMPT = "b"


class Inheriting(Base):
    pass


def test_an_object_has_a_version_of_what_it_holds_and_of_what_its_class_inherits_and_defines():
    agents = (Base("m"), Base("n"), Other("m"), Inheriting("m"), Inheriting("n"))
    assert len({as_policy(each).version for each in agents}) == 5
    assert as_policy(Inheriting("m")).version == as_policy(Inheriting("m")).version


def test_a_global_that_the_agent_sets_is_not_part_of_its_version():
    text = "COUNT = {start}\ndef agent(request):\n    global COUNT\n    COUNT += 1\n    return 'x'\n"
    versions = set()
    for start in (0, 5):
        exec(text.format(start=start), place := {"__name__": "m"})
        versions.add(as_policy(place["agent"]).version)
    assert len(versions) == 1


def test_an_asynchronous_agent_that_calls_another_is_refused_instead_of_waiting_for_ever():
    async def inner(request):
        return "x"

    policy = as_policy(inner)

    async def outer(request):
        return policy.act([request])[0].text

    with pytest.raises(ConfigurationError, match="called by another asynchronous agent"):
        as_policy(outer).act([REQUEST])
