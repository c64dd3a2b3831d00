"""Environments over a knowledge base of dated documents: AdvisoryEnvironment and DiscussionEnvironment.

Advisory: recommend one of several options to a client. The world holds `documents`, `pages` (for web_search) and
`user`. Discussion: reply to statements in turn. The world holds `context` (topic and first statement), `statements`
(those that follow, in order) and `documents`.
"""

from collections.abc import Sequence

from .dialogue_environment import DialogueEnvironment, TranscriptLine
from .outcome_criteria import World
from .sandbox_tools import ToolError
from .world_tools import FINISH, KNOWLEDGE_BASE, RESPOND, SUBMIT, THINK, WEB_SEARCH, Tool, normalise_sources, tool


# HAZARD: `tool` takes a tool's name and description from the function: renaming one of these functions or rewording the first
# line of its docstring changes the prompt, and with it the hashes of recorded episodes.
def _create_note(world: World, option: str, amount: float) -> str:
    """Note for the file what an option comes to. A second note on an option replaces the first."""
    world.setdefault("notes", {})[option.strip()] = amount
    return "noted"


def _submit(world: World, option: str, amount: float, sources: list[str], caveat: str) -> str:
    """Hand in the recommendation: one option, its amount, the ids of the sources it rests on, what to beware of. Ends it."""
    world["recommendation"] = {"option": option.strip(), "amount": amount, "sources": normalise_sources(sources)}
    return "submitted"


ADVISORY_TOOLS: tuple[Tool, ...] = (
    RESPOND,
    KNOWLEDGE_BASE,
    WEB_SEARCH,
    tool(_create_note),
    THINK,
    tool(_submit, speech="caveat"),
    FINISH,
)


class AdvisoryEnvironment(DialogueEnvironment):
    """Domain `advisory`; tools: respond, knowledge_base, web_search, create_note, think, submit, finish.

    `submit` stores the recommendation in `world["recommendation"]`, and its caveat counts as an utterance; `create_note`
    stores the amount of an option in `world["notes"]`.
    """

    domain = "advisory"
    default_tools = ADVISORY_TOOLS


REPLY_STANCES = ("agree", "correct", "answer")


def _respond(world: World, text: str, stance: str, sources: list[str]) -> str:
    """Reply to the last statement: agree with it, correct it, or answer its question, citing the ids of your sources."""
    if stance not in REPLY_STANCES:
        raise ToolError(f"stance must be one of {', '.join(REPLY_STANCES)}")
    world.setdefault("replies", []).append({"stance": stance, "sources": normalise_sources(sources)})
    return ""


class DiscussionPanel:
    """The other participants, as a simulated user: their statements follow in order, whatever the agent replies."""

    def reply(self, world: World, transcript: Sequence[TranscriptLine]) -> str | None:
        """Return the next statement, or None after the last."""
        statements: Sequence[str] = world.get("statements", ())
        replies = sum(line.speaker == "agent" for line in transcript)
        return statements[replies - 1] if replies <= len(statements) else None


DISCUSSION_TOOLS: tuple[Tool, ...] = (tool(_respond, speech="text", answered=True), KNOWLEDGE_BASE, THINK, SUBMIT)


class DiscussionEnvironment(DialogueEnvironment):
    """Domain `discussion`; tools: respond, knowledge_base, think, submit.

    The reply to the last statement ends the episode.
    """

    domain = "discussion"
    ends = frozenset({"respond", "submit"})
    default_tools = DISCUSSION_TOOLS
    default_user = DiscussionPanel
