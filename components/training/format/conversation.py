"""Conversations as training rows: one render, one call of the tokenizer, a label for each token that the assistant wrote."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from components.policies.chat import encode
from components.protocol import ConfigurationError, DataError, Message
from components.training.config import Format

from .frame import frame
from .labelling import labelled, tokens
from .rendering import rendered
from .row import IGNORE, TrainingRow
from .spans import Span, as_asked, spans

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

AGENT = Format(agent_format=True, mask_observations=True)
"""Exactly what the agent wrote is trained."""


class _Function(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | str | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    """What every template takes for granted."""

    role: str
    content: str | list[Any] | None = None
    tool_calls: list[_Call] | None = None
    weight: float = 1.0


def tokenize_chat(
    messages: Sequence[Message],
    tools: list[dict[str, Any]] | None,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    weight: float = 1.0,
    weights: Sequence[float | None] | None = None,
    unfinished: Collection[int] = (),
    options: Format = AGENT,
) -> TrainingRow:
    """One conversation as a row, as long as it is; `fit` makes it fit.

    `weight` multiplies the row's weights, `weights` those of each reply of the assistant (None: not trained); `unfinished` replies
    were cut short, so that the end token which the template gives them is not theirs.

    With `agent_format` the tokens of a reply are those that a policy would have sampled: from where its prompt ends up to its end
    token, whatever the template; an empty thought that the template writes before a last reply without one is left out. Without
    it the template's `{% generation %}` marks say what is trained, as in TRL's `assistant_only_loss`. Without `mask_observations`
    all tokens are trained, TRL's default. In each case observations are text.
    Raises DataError for what is no conversation or has another number of replies than weights, ConfigurationError for a template
    that refuses it or does not keep messages apart.
    """
    _check(messages)
    if not options.agent_format:
        if weights is not None:
            raise ConfigurationError(
                "weights of replies need format.agent_format: true; set it, or leave the weights out"
            )
        return _plain(messages, tools, tokenizer, weight, marked=options.mask_observations)
    each = _weights(messages, weights, weight)
    told = rendered(messages, tools, tokenizer)
    framed = frame(tokenizer)
    text, found = as_asked(told.text, spans(told, framed))
    found = [_cut(span, text, framed.ends) if i in unfinished else span for i, span in enumerate(found)]
    ids, offsets = tokens(text, tokenizer)
    return labelled(text, ids, offsets, found, each, rest=None if options.mask_observations else weight)


def reply_weights(messages: Sequence[Message]) -> list[float]:
    """The weight that each reply carries in an exported row; 1 where it has none."""
    return [float(message.get("weight", 1.0)) for message in messages if message["role"] == "assistant"]


def _check(messages: Sequence[Message]) -> None:
    if not messages:
        raise DataError("a conversation without messages cannot be trained on; leave it out")
    try:
        msgspec.convert(messages, list[_Message])
    except msgspec.ValidationError as error:
        raise DataError(f"not a conversation: {error}; export the dataset again") from error


def _weights(messages: Sequence[Message], weights: Sequence[float | None] | None, weight: float) -> list[float | None]:
    replies = sum(message["role"] == "assistant" for message in messages)
    given = [1.0] * replies if weights is None else weights
    if len(given) != replies:
        raise DataError(f"{len(given)} weights for {replies} replies: give one for each message of the assistant")
    return [None if each is None else each * weight for each in given]


def _plain(
    messages: Sequence[Message],
    tools: list[dict[str, Any]] | None,
    tokenizer: "PreTrainedTokenizerBase",
    weight: float,
    *,
    marked: bool,
) -> TrainingRow:
    """TRL's own labels."""
    if marked and "generation" not in str(tokenizer.chat_template or ""):
        raise ConfigurationError(
            "the chat template has no {% generation %} marks to mask observations by; set format.agent_format: true"
        )
    ids, own = encode(messages, tools, tokenizer, prompt=False)
    mask = own if marked else [1] * len(ids)
    labels = [token if bit else IGNORE for token, bit in zip(ids, mask, strict=True)]
    return TrainingRow(ids, labels, [weight * bit for bit in mask])


def _cut(reply: Span, text: str, ends: tuple[str, ...]) -> Span:
    """The reply without its end token."""
    if not reply.parts:
        return reply
    start, end = reply.parts[-1]
    token = next((each for each in ends if text.endswith(each, start, end)), "")
    return reply._replace(parts=[*reply.parts[:-1], (start, end - len(token))])
