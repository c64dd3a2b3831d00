"""Tools over an episode's world: the Tool type with its JSON Schema, and the tools that several environments share.

The knowledge base is a small collection of dated documents in the world; nothing here uses the network.
"""

import inspect
import re
from collections.abc import Callable, Collection
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from ratchet.components.core import ToolSpec

from .outcome_criteria import World, tokens
from .sandbox_tools import Observation, ToolError

_JSON_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


class Tool(msgspec.Struct, frozen=True):
    """One tool. `use(world, **params)` returns the text of the observation, or raises ToolError.

    - `needs`: key that the world must have for the tool to be offered; None: always offered.
    - `speech`: parameter whose text is an utterance of the agent; None: the tool utters nothing.
    - `answered`: the simulated user gets the utterance and may reply.
    """

    spec: ToolSpec
    use: Callable[..., str]
    needs: str | None = None
    speech: str | None = None
    answered: bool = False

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.spec.name

    def call(self, world: World, params: dict[str, Any]) -> Observation:
        """Execute a call. Invalid parameters and a ToolError become an observation with `error`."""
        fault = self.spec.parameter_error(params)
        if fault is not None:
            return Observation(f"error: {fault}", error=fault)
        try:
            return Observation(self.use(world, **params))
        except ToolError as error:
            return Observation(f"error: {error}", error=str(error))


def tool(
    use: Callable[..., str], *, needs: str | None = None, speech: str | None = None, answered: bool = False
) -> Tool:
    """Make a Tool of a function. `needs`, `speech`, `answered`: see Tool.

    The name is the function's without the leading `_`, the description the first line of its docstring, the parameters
    those after `world`, annotated with str, int, float, bool, list or dict, or lists of them, and optional if they have
    a default.

    >>> def water(world, plant: str) -> str:
    ...     "Water a plant."
    ...     world[plant] = "wet"
    ...     return "done"
    >>> ratchet.tool(water).spec.parameters["required"]
    ['plant']
    """
    hints = get_type_hints(use)
    parameters = list(inspect.signature(use).parameters.values())[1:]
    schema = {
        "type": "object",
        "properties": {parameter.name: _schema(hints[parameter.name]) for parameter in parameters},
        "required": [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty],
        "additionalProperties": False,
    }
    description = (inspect.getdoc(use) or "").partition("\n")[0]
    return Tool(ToolSpec(use.__name__.strip("_"), description, schema), use, needs, speech, answered)


def _schema(annotation: Any) -> dict[str, Any]:
    """Return the JSON schema of an annotation; that of `X | None` is the schema of X."""
    inner = [argument for argument in get_args(annotation) if argument is not type(None)]
    if get_origin(annotation) is list:
        return {"type": "array", "items": _schema(inner[0])}
    if annotation not in _JSON_TYPES and len(inner) == 1:
        return _schema(inner[0])
    return {"type": _JSON_TYPES[annotation]}


def _require_known(kind: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise ToolError(f"no {kind} {name!r}; {kind}s: {', '.join(names)}")


# HAZARD: `tool` takes a tool's name and description from the function: renaming one of these functions or rewording the first
# line of its docstring changes the prompt, and with it the hashes of recorded episodes.
def _respond(world: World, text: str) -> str:
    """Say something to the person you work for."""
    return ""


def _think(world: World, thought: str) -> str:
    """Think. Nobody reads it and nothing changes."""
    return "ok"


def _create_note(world: World, text: str) -> str:
    """Keep a note for colleagues. The person you work for does not read it."""
    world.setdefault("notes", []).append(text)
    return "noted"


def _submit(world: World, text: str = "") -> str:
    """Hand in the work, with the answer where one is asked for. Ends the episode."""
    return "submitted"


def _finish(world: World, text: str = "") -> str:
    """Say that the work is done, with the answer where one is asked for. Ends the episode."""
    return "finished"


def _query_stats(world: World, metric: str) -> str:
    """Look up a figure by the name of its metric."""
    _require_known("metric", metric, world["stats"])
    return f"{metric}: {world['stats'][metric]}"


def _send_message(world: World, to: str, text: str) -> str:
    """Send a message to one of the contacts."""
    _require_known("contact", to, world["contacts"])
    world.setdefault("messages", []).append({"to": to, "text": text})
    return "sent"


def _delegate(world: World, to: str, task: str) -> str:
    """Hand a task over to a colleague."""
    _require_known("colleague", to, world["colleagues"])
    world.setdefault("delegations", []).append({"to": to, "task": task})
    return f"handed over to {to}"


def _web_search(world: World, query: str) -> str:
    """Search the web. Gives the pages that share most words with the query."""
    return search_pages(world["pages"], query)


def search_pages(pages: dict[str, str], query: str, limit: int = 3) -> str:
    """Return title and text of the (at most `limit`) pages that share most words with the query, best first.

    `pages` maps titles to texts. `nothing found` if no page shares a word.
    """
    query_words = set(tokens(query))
    matching_words = {title: len(query_words & set(tokens(f"{title} {text}"))) for title, text in pages.items()}
    best = sorted(
        (title for title in pages if matching_words[title]), key=lambda title: (-matching_words[title], title)
    )[:limit]
    return "\n\n".join(f"{title}\n{pages[title]}" for title in best) or "nothing found"


RESPOND = tool(_respond, speech="text", answered=True)
THINK = tool(_think)
CREATE_NOTE = tool(_create_note)
SUBMIT = tool(_submit, speech="text")
FINISH = tool(_finish, speech="text")
QUERY_STATS = tool(_query_stats, needs="stats")
SEND_MESSAGE = tool(_send_message, needs="contacts")
DELEGATE = tool(_delegate, needs="colleagues")
WEB_SEARCH = tool(_web_search, needs="pages")


SEARCH_HITS = 4
DOCUMENT_ID = re.compile(r"[A-Z]+-\d+", re.IGNORECASE)


def _knowledge_base(world: World, query: str = "", document: str = "") -> str:
    """Search the documents by words (query), or read one by its id (document); without either, list them."""
    documents = world["documents"]
    if document and query:
        raise ToolError("give query or document, not both")
    if document:
        document_id = document.strip(" []").casefold()
        match = next((candidate for candidate in documents if candidate["id"].casefold() == document_id), None)
        if match is None:
            raise ToolError(f"no document {document!r}; search by query, or list them all by leaving both out")
        return f"{_document_title(match)}\n{match['text']}"
    if query:
        return search_pages({_document_title(entry): entry["text"] for entry in documents}, query, SEARCH_HITS)
    return "\n".join(_document_title(entry) for entry in documents)


def normalise_sources(sources: list[str]) -> list[str]:
    """Return sources in comparable form, sorted, unique: `[ab-1] Title` becomes `AB-1`, `./x.py` becomes `x.py`."""
    return sorted({_normalise_source(source.strip()) for source in sources})


def _normalise_source(source: str) -> str:
    if source.startswith("["):
        source = source[1:].partition("]")[0].strip()
    return source.upper() if DOCUMENT_ID.fullmatch(source) else source.removeprefix("./")


def _document_title(document: dict[str, str]) -> str:
    return f"[{document['id']}] {document['title']} ({document['date']})"


KNOWLEDGE_BASE = tool(_knowledge_base, needs="documents")
