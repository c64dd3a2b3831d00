"""Sessions of a gateway: their keys, their limits, their conversations, and what is kept when they end.

A session is one attempt of one agent at one task. Every request belongs to one: by the session's own key, or by the gateway's
key and a name. A session ends when it is finished (with an outcome, if the caller knows one), when it is idle for too long, or
with the gateway; its branches then go to `keep`.
"""

import asyncio
import hmac
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from pydantic import Field

from ratchet.components.core import (
    ConfigurationError,
    InfrastructureError,
    Message,
    Policy,
    PolicyReply,
    PolicyRequest,
    RatchetError,
    ToolSpec,
    assistant_message,
)
from ratchet.components.core.configuration import Configuration
from ratchet.components.core.http_requests import RequestFault
from ratchet.components.trajectories.trajectory import Agent, Outcome, Provenance, TaskRef, digest

from ..context_truncation import estimate_tokens
from .chat_answer import ChatAnswer
from .chat_request import ChatRequest, with_choice, with_format, without_format
from .message_tree import MessageNode, MessageTree, RecordedBranch, SessionRecord, branch_records
from .policy_queue import PolicyQueue, SampledPrefix

_log = logging.getLogger(__name__)
KEY_PREFIX = "rgw-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
MAX_CHARACTERS = 64 << 20
"""Characters of all messages of a session, each counted once and with 1,000 more for what is kept beside its text."""
_ITEM = re.compile(
    r"(?:(?P<text>msg|rs)|(?P<call>fc))_(?P<session>[0-9a-f]{24})(?P<reply>[0-9]{6}|[1-9][0-9]{6,8})"
    r"(?(call)_(?P<index>0|[1-9][0-9]{0,8}))"
)
"""Id of an item of a reply; each item has one."""
DEFAULT_SESSION = "default"
"""Session of requests with the gateway's key that name none."""


class SessionLimits(Configuration):
    """Limits of one session; None: no limit. A request beyond one is refused for good, and the session can still be finished.

    - `requests`: replies. `tokens`: sampled tokens. `seconds`: since the session began.
    - `idle_seconds`: after the last request, at which the session ends by itself. `parallel`: requests at once.
    - `request_seconds`: from a request to its reply.
    """

    requests: int | None = Field(1000, gt=0)
    tokens: int | None = Field(None, gt=0)
    seconds: float | None = Field(None, gt=0)
    idle_seconds: float = Field(1800.0, gt=0)
    parallel: int = Field(16, gt=0)
    request_seconds: float = Field(600.0, gt=0)


class SessionTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The task of a session, if the caller names one. Sessions with the same `task_id` are attempts at one task.
    `seed`: with which the session's replies are sampled; None: a random one, so that attempts differ.
    """

    task_id: str | None = None
    description: str = ""
    attempt: int = 0
    seed: int | None = None


class _Continued(NamedTuple):
    """The conversation that a request continues by naming a reply. `instructions`: whether the first message was for that reply
    alone; `form`: characters of the words for its schema; `tools`: those that its request defined.
    """

    reply: MessageNode
    instructions: bool
    form: int
    tools: tuple[ToolSpec, ...]

    @property
    def messages(self) -> list[Message]:
        """The conversation up to the reply."""
        messages = [each.message for each in self.reply.path if each.message is not None]
        return messages[1:] if self.instructions else without_format(messages, self.form)


class Session:
    """One running session. `record`: the identity of its episode where the caller planned it; else it is made at the end.
    `requests`: number of the next request, for its seed; `granted`: requests that were answered or are in work.
    `model_failure`: the last reason for which the model gave no reply.
    """

    def __init__(
        self, name: str, limits: SessionLimits, task: SessionTask | None = None, record: SessionRecord | None = None
    ) -> None:
        self.name = name
        self.limits = limits
        self.task = task or SessionTask()
        self.record = record
        self.key = KEY_PREFIX + secrets.token_urlsafe(24)
        self.identity = secrets.token_hex(12)
        self.seed = secrets.randbits(31) if self.task.seed is None else self.task.seed
        self.tree = MessageTree()
        self.requests = self.granted = self.tokens = self.running = 0
        self.began = self.used = time.monotonic()
        self.ended = False
        self.ending: asyncio.Task[list[RecordedBranch]] | None = None
        self.model_failure = ""
        self.responses: dict[str, _Continued] = {}

    def insert_items(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a request of OpenAI Responses with the items of earlier replies in place of references to them.

        Raises RequestFault for a reference to none of this session's.
        """
        items = body.get("input")
        if not isinstance(items, list):
            return body
        # Each once, as in OpenAI's API: a short reference to a long text would be a prompt of any length.
        names = [str(item.get("id")) for item in items if _is_reference(item)]
        if twice := next((name for name, count in Counter(names).items() if count > 1), None):
            raise RequestFault(f"the item '{twice[:60]}' is referred to twice; send each item once")
        return {**body, "input": [self._item(item) if _is_reference(item) else item for item in items]}

    def _item(self, reference: dict[str, Any]) -> dict[str, Any]:
        name = str(reference.get("id"))
        found = _ITEM.fullmatch(name)
        try:
            if found is None or found["session"] != self.identity:
                raise IndexError
            message = self.tree.replies[int(found["reply"])].message or {}
            if found["call"]:
                call = message["tool_calls"][int(found["index"])]
                return {"type": "function_call", "call_id": call["id"], **call["function"]}
        except (IndexError, KeyError) as error:
            raise RequestFault(f"the item '{name[:60]}' is none of this session's; send the item itself") from error
        kind = "message" if found["text"] == "msg" else "reasoning"
        return {"type": kind, "role": "assistant", "content": message["content"]}

    def admit(self) -> None:
        """Raise RequestFault if the session may send no further request (now: 429; for good: 403, which no client repeats)."""
        limits = self.limits
        if self.ended:
            raise RequestFault(f"session '{self.name}' has ended", 403, "session_ended")
        if limits.requests is not None and self.granted >= limits.requests:
            raise RequestFault(f"the session has used its {limits.requests} requests", 403, "budget_exceeded")
        if limits.tokens is not None and self.tokens >= limits.tokens:
            raise RequestFault(f"the session has used its {limits.tokens} tokens", 403, "budget_exceeded")
        if limits.seconds is not None and time.monotonic() - self.began > limits.seconds:
            raise RequestFault(f"the session has used its {limits.seconds:g} s", 403, "budget_exceeded")
        if self.tree.characters > MAX_CHARACTERS:
            raise RequestFault("the session's messages are too many", 403, "budget_exceeded")

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count one request as in work, from before its body is read: bodies take memory. Raises RequestFault."""
        self.admit()
        if self.running >= self.limits.parallel:
            raise RequestFault(
                f"the session has {self.running} requests in work, its limit", 429, "rate_limit_exceeded", wait=1
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self.used = time.monotonic()


def _is_reference(item: Any) -> bool:
    # As in OpenAI's API, an item with an id alone is a reference too.
    return isinstance(item, dict) and (item.get("type") == "item_reference" or item.keys() == {"id"})


Keep = Callable[[Session, list[RecordedBranch]], Awaitable[None]]
"""Keeps the branches of a session that ended; returns when they are safe."""


class Gateway:
    """The sessions in front of one policy. Use it within one event loop; the caller closes the policy.

    `key`: of the gateway itself, which makes sessions. `model`: the name that clients see.
    """

    def __init__(
        self, policy: Policy, kind: str, keep: Keep, *, key: str, limits: SessionLimits, queue: PolicyQueue
    ) -> None:
        self.policy = policy
        self.kind = kind
        self.key = key
        self.limits = limits
        self.queue = queue
        self.model = policy.version
        self.recorded = 0
        self._keep = keep
        self._by_key: dict[str, Session] = {}
        self._by_name: dict[str, Session] = {}

    def open(
        self, name: str | None = None, task: SessionTask | None = None, record: SessionRecord | None = None
    ) -> Session:
        """Begin a session. Raises RequestFault for a name that is taken or no name."""
        name = name or secrets.token_hex(6)
        if not _NAME.fullmatch(name):
            raise RequestFault("a session's name has at most 80 letters, digits, dots, hyphens and underscores")
        if name in self._by_name:
            raise RequestFault(f"session '{name}' exists already; choose another name", 403, "session_exists")
        session = Session(name, self.limits, task, record)
        self._by_key[session.key] = self._by_name[name] = session
        return session

    def find(self, keys: set[str], name: str | None) -> Session:
        """Return the session that a request belongs to; `name` is from its URL or header. A new name begins a session.

        Raises RequestFault: 401 for a missing or unknown key, 403 for the key of another session.
        """
        if len(keys) > 1:
            raise RequestFault("the request has two different keys; send one", 400)
        if not keys:
            raise RequestFault("no key: send the session's or the gateway's as the API key", 401, "invalid_api_key")
        (key,) = keys
        if self.is_own_key(key):
            return self._by_name.get(name or DEFAULT_SESSION) or self.open(name or DEFAULT_SESSION)
        session = self._by_key.get(key)
        if session is None:
            raise RequestFault("unknown key", 401, "invalid_api_key")
        if name not in (None, session.name):
            raise RequestFault("the key belongs to another session", 403, "permission_error")
        return session

    def is_own_key(self, key: str) -> bool:
        """Return whether a key is the gateway's, in constant time."""
        return hmac.compare_digest(key.encode("utf-8", "replace"), self.key.encode())

    async def answer(self, session: Session, request: ChatRequest) -> ChatAnswer:
        """Return the policy's reply to a request, recorded, within `session.work()`. Raises RequestFault."""
        session.admit()
        begin = time.monotonic()
        messages, tools, all_tools = self._conversation(session, request)
        node = session.tree.place(messages, tools)
        asked = PolicyRequest(
            session.identity if session.record is None else session.record.episode_id,
            session.task.task_id or "",
            session.requests,
            session.seed,
            [each.message for each in node.path if each.message is not None],
            tools,
            request.max_tokens,
        )
        session.requests += 1
        session.granted += 1
        try:
            reply = await self._ask(session, asked, node)
        except BaseException:  # a request that is refused, fails or is cancelled uses nothing of the limit
            session.granted -= 1
            raise
        # A session that was finished meanwhile is recorded already, and this reply would be in no record.
        if session.ended:
            raise RequestFault(f"session '{session.name}' has ended", 403, "session_ended")
        answer, answered = self._record(session, request, node, reply, messages, time.monotonic() - begin)
        # The tools of the tree: each request's own would be as many as all bodies.
        all_tools = session.tree.root(all_tools).tools
        session.responses[answer.id] = _Continued(answered, request.instructions, len(request.form), all_tools)
        return answer

    async def _ask(self, session: Session, asked: PolicyRequest, node: MessageNode) -> PolicyReply:
        seconds = session.limits.request_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self.queue.ask(asked, _sampled_prefix(node))
        except RequestFault as fault:
            if fault.status == 502:
                session.model_failure = str(fault)
            raise
        except TimeoutError as error:
            session.model_failure = f"no reply within {seconds:g} s"
            raise RequestFault(session.model_failure, 504, "timeout") from error

    def _conversation(
        self, session: Session, request: ChatRequest
    ) -> tuple[list[Message], tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
        """Return all messages, the tools that are offered, and those of which they were chosen. Raises RequestFault."""
        if request.previous is None:
            return request.messages, request.tools, request.all_tools
        kind, _, identity = request.previous.partition("_")
        if identity not in session.responses:
            name = f"'{request.previous[:60]}' is none of this session's; send the whole conversation"
            if kind == "msg":  # Anthropic's clients then do so
                raise RequestFault(f"the message {name}", 404, "thread_not_found")
            raise RequestFault(f"the response {name}", 400, "previous_response_not_found")
        before, own = session.responses[identity], int(request.instructions)
        messages = [*request.messages[:own], *before.messages, *request.messages[own:]]
        all_tools = request.all_tools or before.tools
        return with_format(messages, request.form), with_choice(all_tools, request.choice), all_tools

    def _record(
        self,
        session: Session,
        request: ChatRequest,
        node: MessageNode,
        reply: PolicyReply,
        messages: list[Message],
        seconds: float,
    ) -> tuple[ChatAnswer, MessageNode]:
        # With the seed, since a client may go on in a new session with the calls of an earlier one in its messages.
        prefix = f"call_{session.seed:x}_{len(session.tree.replies)}"
        calls = tuple(
            msgspec.structs.replace(call, call_id=f"{prefix}_{index}") for index, call in enumerate(reply.calls)
        )
        reply = msgspec.structs.replace(reply, calls=calls)
        shown = tuple(call for call in calls if call.parse_error is None)
        # A call that could not be parsed reaches the agent as the text that it is.
        text, ending = _cut(reply.text + "".join(call.raw for call in calls if call.parse_error), request.stop)
        if ending is not None:
            shown = ()
            # The model goes on from what the client has: else an agent's results would follow those that the model invented.
            tokens = self.queue.cut_at(ending, reply.tokens)
            reply = msgspec.structs.replace(reply, text=text, calls=(), stop_reason="stop", tokens=tokens)
        message = assistant_message(text, shown)
        answered = session.tree.add_reply(node, message, reply, seconds)
        usage = reply.usage
        prompt = estimate_tokens(messages) if usage.prompt_tokens is None else usage.prompt_tokens
        new = estimate_tokens([message]) if usage.completion_tokens is None else usage.completion_tokens
        session.tokens += new
        stop = "stop_sequence" if ending is not None else "length" if reply.stop_reason == "length" else "stop"
        answer = ChatAnswer(
            id=f"{session.identity}{answered.number:06d}",
            model=request.model or self.model,
            text=text,
            calls=shown,
            stop="tool_calls" if shown and stop == "stop" else stop,
            prompt_tokens=prompt,
            completion_tokens=new,
            thought=reply.thought,
            stop_text=ending,
            custom_tools=request.custom_tools,
            usage_chunk=request.usage_chunk,
        )
        return answer, answered

    async def count_tokens(self, session: Session, request: ChatRequest) -> int:
        """Return the number of tokens of a prompt, estimated for a policy without a tokenizer. Raises RequestFault."""
        messages, tools, _ = self._conversation(session, request)
        counted = await self.queue.count(PolicyRequest(session.identity, "", 0, 0, messages, tools))
        return estimate_tokens(messages) if counted is None else counted

    async def finish(self, session: Session, outcome: Outcome) -> list[RecordedBranch]:
        """End a session and return its branches, which are kept when this returns; empty if nothing was sampled, or if it
        had ended before. A call while it ends waits for the same end.
        """
        if session.ending is None:
            if session.ended:
                return []
            session.ended = True
            session.ending = asyncio.create_task(self._end(session, outcome))
        # A caller that is cancelled, such as a request at the gateway's end, does not interrupt the writing.
        return await asyncio.shield(session.ending)

    async def _end(self, session: Session, outcome: Outcome) -> list[RecordedBranch]:
        try:
            branches: list[RecordedBranch] = []
            if session.tree.replies:
                # In a thread, since long sessions take seconds; no request changes the tree any more.
                record = self._session_record(session, outcome)
                branches = await asyncio.to_thread(branch_records, session.tree, record)
                await self._keep(session, branches)
                self.recorded += 1
        except BaseException:
            session.ended = False  # a full disk, for example: it can be finished later
            raise
        finally:
            session.ending = None
        self._by_name.pop(session.name, None)
        session.tree, session.responses = MessageTree(), {}
        asyncio.get_running_loop().call_later(session.limits.idle_seconds, self._by_key.pop, session.key, None)
        return branches

    async def end_idle(self) -> None:
        """End the sessions that are idle for too long, except planned ones, which their caller ends. Raises InfrastructureError
        if some could not be kept.
        """
        now = time.monotonic()
        idle = [
            each
            for each in self._by_name.values()
            if each.record is None and not each.running and now - each.used > each.limits.idle_seconds
        ]
        await self._finish_all(idle, "idle")

    async def close(self) -> None:
        """End all sessions and keep what they hold. Raises InfrastructureError if some could not be kept."""
        await self._finish_all(list(self._by_name.values()), "gateway_stopped")

    async def _finish_all(self, sessions: Sequence[Session], reason: str) -> None:
        errors = []
        for session in sessions:
            try:
                await self.finish(session, Outcome(reason=reason, truncated=True))
            except Exception as error:  # the other sessions are kept all the same
                unexpected = not isinstance(error, RatchetError)
                _log.error("session %s cannot be recorded: %s", session.name, error, exc_info=unexpected)
                errors.append(error)
        if errors:
            raise InfrastructureError(f"{len(errors)} of {len(sessions)} sessions could not be recorded: {errors[0]}")

    def state(self) -> dict[str, Any]:
        """Return figures for operators."""
        return {"sessions": len(self._by_name), "recorded": self.recorded, "waiting": self.queue.pending}

    def _session_record(self, session: Session, outcome: Outcome) -> SessionRecord:
        if session.record is not None:
            return msgspec.structs.replace(session.record, outcome=outcome)
        policy, task = self.policy, session.task
        messages = (each.message for each in session.tree.replies[0].path)
        asked = next((each["content"] for each in messages if each and each["role"] == "user"), "")
        description = task.description or asked
        task_hash = digest(description)
        task_id = task.task_id or f"gateway/{task_hash[:12]}"
        # What a gateway records may be trained on: held-out tasks are played by `ratchet evaluate`.
        ref = TaskRef(task_id, task_hash, "gateway", task_id, "session", "train", "coding", description)
        return SessionRecord(
            episode_id=f"ep-{digest('gateway', session.identity)}",
            group_id=f"gr-{digest(task_id, task_hash, policy.version)}",
            attempt=task.attempt,
            seed=session.seed,
            task=ref,
            agent=Agent(policy.name, self.kind, policy.version, "gateway", policy.sampling),
            outcome=outcome,
            provenance=Provenance(source="gateway", collected_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())),
            session=session.name,
        )


def _sampled_prefix(node: MessageNode) -> SampledPrefix | None:
    """Return the token ids up to the last sampled reply before a request, and the messages behind it."""
    following: list[Message] = []
    at: MessageNode | None = node
    while at is not None and at.message is not None and at.reply is None:
        following.append(at.message)
        at = at.parent
    if at is None or at.message is None or at.reply is None or at.reply.tokens is None:
        return None
    if any(message["role"] == "assistant" for message in following):
        return None  # a reply that the client wrote: there are no sampled ids to keep behind it
    trace = at.reply.tokens
    return SampledPrefix(trace.prompt_ids + trace.completion_ids, at.message, following[::-1])


def _cut(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the text before the first of `stops`, and that stop; the whole text and None if there is none in it."""
    at = [(place, stop) for stop in stops if (place := text.find(stop)) >= 0]
    if not at:
        return text, None
    place, stop = min(at)
    return text[:place], stop


def check_key(key: str) -> str:
    """Return a gateway's key. Raises ConfigurationError for one that no header or record can hold, or that is easily guessed."""
    # A quotation mark or a backslash is written otherwise in JSON, where records are searched for the key.
    if len(key) < 16 or not (key.isascii() and key.isprintable()) or set(' "\\') & set(key):
        raise ConfigurationError(
            "the gateway's key must have at least 16 printable ASCII characters without blanks, quotation marks and backslashes"
        )
    return key
