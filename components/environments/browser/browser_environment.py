"""BrowserEnvironment: an agent in a real browser on an isolated site, graded by the site's final state and its answer.

The tools address elements by the number in brackets that the page's text shows; numbers are valid until another page
is loaded.
"""

import hashlib
import threading
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import SandboxUnavailable, TaskSpec, ToolSpec
from ratchet.components.core.files import write_atomically

from ..episode_environment import EpisodeEnvironment, grade_world
from ..outcome_criteria import RecordedCall
from ..sandbox_tools import Observation, ToolError, check_call, tool_spec, truncate_text
from .browser_tab import BrowserTab
from .chromium_process import CALL_MARGIN, VIEWPORT, Chromium, shared_chromium
from .page_view import PageView
from .shop_site import ShopSite
from .site_protocol import SiteFactory, SiteWorld

BROWSER_TOOLS = (
    tool_spec("click", "Click the element [ref].", {"ref": "integer"}),
    tool_spec(
        "type_text",
        "Replace the text of the textbox [ref].",
        {"ref": "integer", "text": "string"},
        {"enter": "boolean"},
    ),
    tool_spec("select", "Choose an option of the list [ref].", {"ref": "integer", "option": "string"}),
    tool_spec("navigate", "Open a page of this site by its path.", {"url": "string"}),
    tool_spec(
        "scroll",
        "Show the next or the previous part of the page.",
        {"direction": {"type": "string", "enum": ["down", "up"]}},
    ),
    tool_spec("wait", "Let a few seconds pass.", {"seconds": "number"}),
    tool_spec("extract_text", "The whole text of the page, or of the element [ref].", {}, {"ref": "integer"}),
    tool_spec("screenshot", "A picture of what the window shows.", {}),
    tool_spec(
        "submit",
        "Hand in the work, with the answer where one is asked for. Ends the episode.",
        {},
        {"answer": "string"},
    ),
)


STEP_SECONDS = 30.0
MAX_CHARACTERS = 8000
_blob_lock = threading.Lock()


class _PageObservation(Observation, frozen=True):
    """The observation of one call. `screenshot`: the bytes of a PNG, or None."""

    screenshot: bytes | None = None


class BrowserEnvironment(EpisodeEnvironment):
    """Domain `browser`; tools: click, type_text, select, navigate, scroll, wait, extract_text, screenshot, submit.

    - One headless Chromium per process; each episode has a browser context, and a site that `site` makes from a deep
      copy of the task's `world`. Nothing else can be reached; see chromium_process. Needs the extra `browser` and the
      system's Chromium; without them `reset` raises ConfigurationError with the command to install them.
    - The first observation is the task's description and the first page. An action shows the resulting page, or only
      the changed lines. Dialogs are accepted, popups and downloads refused, each with a note.
    - `screenshot` sets `ToolResult.blob` to `sha256:` and the hash of a PNG. Its bytes are `info["picture"]`. They
      are also passed to `keep_blob` (name, bytes) or, if `keep_blob` is a folder, written there to a file named by the
      hash; None: they are not stored.
    - `submit` ends the episode. The outcome is the task's `criteria` applied to the final world, the calls and the
      answer.
    - A call takes at most about `step_seconds`. A page that hangs is closed, and the observation says so; if a page or
      the browser crashes, SandboxUnavailable is raised.
    """

    domain = "browser"

    def __init__(
        self,
        *,
        max_steps: int = 30,
        site: SiteFactory = ShopSite,
        keep_blob: Callable[[str, bytes], object] | Path | None = None,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        super().__init__(max_steps)
        self.step_seconds = step_seconds
        self.world: SiteWorld = {}
        self._site = site
        self._store_blob = _blob_writer(keep_blob) if isinstance(keep_blob, Path) else keep_blob
        self._chromium: Chromium | None = None
        self._tab: BrowserTab | None = None
        self._view = PageView()
        self._calls: list[RecordedCall] = []
        self._answers: tuple[str, ...] = ()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The specs of the nine tools."""
        return BROWSER_TOOLS

    def _is_running(self) -> bool:
        return self._tab is not None and self._chromium is not None

    def _begin_episode(self, task: TaskSpec) -> tuple[str, dict[str, Any]]:
        """Open the site in a fresh context. Raises ConfigurationError, SandboxUnavailable."""
        self.world = deepcopy(task.world)
        self._calls, self._answers, self._view = [], (), PageView()
        self._chromium = shared_chromium()
        try:
            page = self._chromium.call(self._open(self._chromium), 2 * self.step_seconds + CALL_MARGIN)
        except BaseException:
            self.close()
            raise
        return f"{task.description}\n\n{page}", {}

    def _call_tool(self, tool: Any, params: Any) -> tuple[Observation, bool]:
        assert self._tab is not None and self._chromium is not None
        fault = check_call(tool, params, BROWSER_TOOLS)
        if fault is not None:
            return Observation(f"error: {fault}", error=fault), False
        if tool == "submit":
            self._calls.append(RecordedCall(tool, params, True))
            self._answers = (params["answer"],) if "answer" in params else ()
            return Observation("submitted"), True
        observation = self._chromium.call(
            self._perform_with_notes(self._tab, tool, params), 2 * self.step_seconds + CALL_MARGIN
        )
        self._calls.append(RecordedCall(tool, params, observation.error is None))
        return observation, False

    def _grade(self, task: TaskSpec, reason: str | None) -> tuple[float | None, dict[str, Any]]:
        self.close()
        return grade_world(task, self.world, self._answers, tuple(self._calls), reason)

    def _observation_info(self, observation: Observation, call_id: str) -> dict[str, Any]:
        info = super()._observation_info(observation, call_id)
        screenshot = observation.screenshot if isinstance(observation, _PageObservation) else None
        if screenshot is None:
            return info
        name = f"sha256:{hashlib.sha256(screenshot).hexdigest()}"
        if self._store_blob is not None:
            self._store_blob(name, screenshot)
        return {"result": msgspec.structs.replace(info["result"], blob=name), "picture": screenshot}

    def close(self) -> None:
        """Close the episode's browser context; safe to call twice. The browser stays open for later episodes."""
        if self._tab is not None and self._chromium is not None and self._chromium.alive:
            self._chromium.call(self._tab.close(), CALL_MARGIN)
        self._tab = self._chromium = None

    # The methods below run in the browser's thread, to which Playwright's objects belong.

    async def _open(self, chromium: Chromium) -> str:
        self._tab = await chromium.tab()
        try:
            await self._tab.open(self._site(self.world), self.step_seconds)
            page = self._view.show(await self._tab.outline())
        except ToolError as error:
            raise SandboxUnavailable(f"the first page did not load: {error}; the episode is retried") from error
        chromium.keep_ready()
        return page

    async def _perform_with_notes(self, tab: BrowserTab, tool: str, params: dict[str, Any]) -> _PageObservation:
        """Execute any call but submit. A ToolError becomes an observation; the page's notes precede it."""
        params = {key: _encodable(value) for key, value in params.items()}
        try:
            observation = await self._perform(tab, tool, params)
        except ToolError as error:
            observation = _PageObservation(f"error: {error}", error=str(error))
        notes = tab.notes.take()
        content, truncated = truncate_text("\n".join([*notes, observation.content]), MAX_CHARACTERS)
        return msgspec.structs.replace(observation, content=content, truncated=truncated)

    async def _perform(self, tab: BrowserTab, tool: str, params: dict[str, Any]) -> _PageObservation:
        if tool == "extract_text":
            return _PageObservation(await tab.text(params.get("ref")))
        if tool == "screenshot":
            width, height = VIEWPORT
            screenshot = await tab.screenshot()
            return _PageObservation(
                f"picture of {width} x {height} points, {len(screenshot)} bytes", screenshot=screenshot
            )
        if tool == "scroll":
            window = self._view.scroll(params["direction"])
            if window is None:
                raise ToolError(f"there is nothing further {params['direction']}")
            await tab.reveal(self._view.first)
            return _PageObservation(window)
        match tool:
            case "click":
                await tab.click(params["ref"])
            case "type_text":
                await tab.type_text(params["ref"], params["text"], params.get("enter", False))
            case "select":
                await tab.select(params["ref"], params["option"])
            case "navigate":
                await tab.navigate(params["url"])
            case "wait":
                await tab.wait(params["seconds"])
        return _PageObservation(self._view.show(await tab.outline()))


def _encodable(value: Any) -> Any:
    """Replace lone surrogates in a parameter: they cannot be encoded as UTF-8."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _blob_writer(folder: Path) -> Callable[[str, bytes], object]:
    """Return a function that writes blobs to `folder`, named by their hash."""

    def write_blob(name: str, content: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name.removeprefix("sha256:")
        # Episodes in several threads may store the same picture.
        with _blob_lock:
            if not path.exists():
                write_atomically(path, content)

    return write_blob
