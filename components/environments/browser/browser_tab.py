"""BrowserTab, the only page of an episode, and PageMonitor, its DevTools events. All of it runs in the browser's thread.

A page that hangs is closed and replaced by an empty one, and the action raises ToolError. A crash of the page or the
browser, and an empty page that does not answer, raise SandboxUnavailable. Dialogs are accepted, popups and downloads
refused, each with a note.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec

from ratchet.components.core import SandboxUnavailable

from ..sandbox_tools import ToolError
from .page_view import PageOutline
from .site_protocol import SITE_ORIGIN, Site, SiteRequest

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Page, Route


SCRIPT_WORLD = "ratchet"
MAX_NOTES = 4
NOTE_LENGTH = 120
NAVIGATION_START_SECONDS = 5.0
"""A requested navigation that has not started by then counts as none."""


ENDLESS_REQUESTS = ("EventSource", "Ping", "WebSocket", "Prefetch")
"""Types of requests that never finish; settling does not wait for them."""


class PageNotes:
    """Notes on events that the agent did not cause itself: dialogs, popups, blocked requests.

    At most MAX_NOTES are kept between two calls of `take`.
    """

    def __init__(self) -> None:
        self._notes: list[str] = []

    def add_note(self, text: str) -> None:
        """Add a note as one short line."""
        if len(self._notes) <= MAX_NOTES:
            line = " ".join(text.split())
            self._notes.append(line if len(line) <= NOTE_LENGTH else line[:NOTE_LENGTH] + "…")

    def take(self) -> list[str]:
        """Return the notes since the last call; if there were more than MAX_NOTES, a last line says so."""
        notes, self._notes = self._notes, []
        return notes if len(notes) <= MAX_NOTES else [*notes[:MAX_NOTES], "and more of these"]


class PageMonitor:
    """One page, its DevTools session, and its state according to DevTools events. A page that replaces it has its own.

    - `world`: id of the JavaScript context in which page.js runs; None between two documents.
    - `requests`: ids of the document's unanswered requests. DevTools events arrive in order, so when an action returns,
      the requests that it caused are listed.
    - `crashed`: a future that is done when the page's process has died.
    """

    def __init__(self, page: "Page", session: Any, notes: PageNotes) -> None:
        self.page = page
        self.notes = notes
        self.world: str | None = None
        self.requests: set[str] = set()
        self.crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session = session
        self._frame = ""
        self._world_number = -1
        self._loading: set[str] = set()
        self._navigation_requested_at: float | None = None

    @classmethod
    async def begin(cls, context: "BrowserContext", notes: PageNotes) -> "PageMonitor":
        """Open an empty page in a context and monitor it."""
        page = await context.new_page()
        monitor = cls(page, await context.new_cdp_session(page), notes)
        monitor._listen()
        script = {"source": _page_script(), "worldName": SCRIPT_WORLD, "runImmediately": True}
        tree, *_ = await asyncio.gather(
            monitor.send("Page.getFrameTree"),
            monitor.send("Page.enable"),
            monitor.send("Network.enable"),
            monitor.send("Page.addScriptToEvaluateOnNewDocument", script),
        )
        monitor._frame = tree["frameTree"]["frame"]["id"]
        await monitor.send("Runtime.enable")
        return monitor

    async def send(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a DevTools command and return its result."""
        return await self._session.send(method, params or {})

    def navigating(self) -> bool:
        """Return True while a document is loading, and shortly after one was requested that has not started to load."""
        # A navigation that the page itself cancels is requested and never starts.
        if (
            self._navigation_requested_at is not None
            and _now() - self._navigation_requested_at > NAVIGATION_START_SECONDS
        ):
            self._navigation_requested_at = None
        return bool(self._loading) or self._navigation_requested_at is not None

    def _listen(self) -> None:
        self.page.on("dialog", self._accept_dialog)
        self.page.on(
            "download", lambda download: self.notes.add_note(f"download refused: {download.suggested_filename}")
        )
        self.page.on("crash", self._crashed)
        for event, handler in {
            "Runtime.executionContextCreated": self._script_world_created,
            "Runtime.executionContextDestroyed": self._script_world_destroyed,
            "Runtime.executionContextsCleared": self._all_worlds_cleared,
            "Page.frameRequestedNavigation": self._navigation_requested,
            "Page.frameStartedLoading": self._loading_started,
            "Page.frameStoppedLoading": self._loading_stopped,
            "Page.frameDetached": self._loading_stopped,
            "Page.navigatedWithinDocument": self._navigated_within_document,
            "Page.windowOpen": self._popup_refused,
            "Network.requestWillBeSent": self._request_started,
            "Network.loadingFinished": self._request_finished,
            "Network.loadingFailed": self._request_finished,
        }.items():
            self._session.on(event, handler)

    def _script_world_created(self, event: dict[str, Any]) -> None:
        context = event["context"]
        if context.get("name") == SCRIPT_WORLD and context.get("auxData", {}).get("frameId") == self._frame:
            self.world, self._world_number = context["uniqueId"], context["id"]

    def _script_world_destroyed(self, event: dict[str, Any]) -> None:
        if event.get("executionContextId") == self._world_number:
            self.world = None

    def _all_worlds_cleared(self, event: dict[str, Any]) -> None:
        self.world = None
        self.requests.clear()

    def _request_started(self, event: dict[str, Any]) -> None:
        if event.get("type") not in ENDLESS_REQUESTS and not event["request"]["url"].startswith("data:"):
            self.requests.add(event["requestId"])

    def _request_finished(self, event: dict[str, Any]) -> None:
        self.requests.discard(event["requestId"])

    def _navigation_requested(self, event: dict[str, Any]) -> None:
        if event.get("disposition", "currentTab") == "currentTab":
            self._navigation_requested_at = _now()

    def _loading_started(self, event: dict[str, Any]) -> None:
        self._navigation_requested_at = None
        self._loading.add(event["frameId"])

    def _loading_stopped(self, event: dict[str, Any]) -> None:
        self._loading.discard(event["frameId"])

    def _navigated_within_document(self, event: dict[str, Any]) -> None:
        self._navigation_requested_at = None

    def _crashed(self, page: "Page") -> None:
        if not self.crashed.done():
            self.crashed.set_result(None)

    def _popup_refused(self, event: dict[str, Any]) -> None:
        self.notes.add_note(f"popup refused: {event['url']}")

    async def _accept_dialog(self, dialog: "Dialog") -> None:
        from playwright.async_api import Error

        self.notes.add_note(f'{dialog.type} accepted: "{dialog.message}"')
        with suppress(Error):  # its page may be closed already
            await dialog.accept()


def _now() -> float:
    return asyncio.get_running_loop().time()


@cache
def _page_script() -> str:
    return Path(__file__).with_name("page.js").read_text(encoding="utf-8")


T = TypeVar("T")
CLOSE_SECONDS = 20.0
BACKGROUND_SECONDS = 3.0
"""A page that still fetches in the background after this time counts as settled."""
MAX_WAIT_SECONDS = 5.0
POLL_SECONDS = 0.002


class BrowserTab:
    """The page of one episode, created by `prepare` and started by `open`.

    Every action takes at most `seconds` and returns when the page has loaded what the action requested. `ref` is the
    number in brackets that the outline shows for an element. Raises ToolError for an action that is not possible,
    SandboxUnavailable after a crash.
    """

    def __init__(self, context: "BrowserContext") -> None:
        self.seconds = 0.0
        self.notes = PageNotes()
        self._context = context
        self._site: Site | None = None
        self._monitor: PageMonitor | None = None
        self._site_error: Exception | None = None

    @classmethod
    async def prepare(cls, context: "BrowserContext") -> "BrowserTab":
        """Return a tab with an empty page, ready for any site."""
        tab = cls(context)
        await context.route("**/*", tab._answer_request)
        tab._monitor = await PageMonitor.begin(context, tab.notes)
        context.on("page", tab._close_popup)
        return tab

    async def open(self, site: Site, seconds: float) -> None:
        """Load the first page of a site; this and later actions take at most `seconds`."""
        self._site, self.seconds = site, seconds
        await self.navigate("/")

    async def close(self) -> None:
        """Close the context. Never raises: the context or the browser may be closed already."""
        with suppress(Exception):
            await asyncio.wait_for(self._context.close(), CLOSE_SECONDS)

    async def navigate(self, url: str) -> None:
        """Open a page of the site. Raises ToolError for any other URL."""
        try:
            target = urljoin(f"{SITE_ORIGIN}/", url.strip())
            is_own_page = urlsplit(target)[:2] == urlsplit(SITE_ORIGIN)[:2]
        except ValueError:  # no URL at all
            is_own_page = False
        if not is_own_page:
            raise ToolError(f"only pages of {SITE_ORIGIN} can be opened")
        await self._act(lambda: self._current_monitor().send("Page.navigate", {"url": target}))

    async def click(self, ref: int) -> None:
        """Click the middle of an element."""
        await self._act(lambda: self._press(ref))

    async def type_text(self, ref: int, text: str, enter: bool) -> None:
        """Replace the text of a field; with `enter`, press Enter afterwards."""
        await self._act(lambda: self._type(ref, text, enter))

    async def select(self, ref: int, option: str) -> None:
        """Choose an option of a drop-down list by its label or value, ignoring case."""
        await self._act(lambda: self._call("choose", ref, option))

    async def wait(self, seconds: float) -> None:
        """Wait `seconds`, at most MAX_WAIT_SECONDS."""
        await self._act(lambda: asyncio.sleep(max(0.0, min(seconds, MAX_WAIT_SECONDS))))

    async def reveal(self, line: int) -> None:
        """Scroll the page to a line of its outline; the first line is 0."""
        await self._act(lambda: self._call("reveal", line))

    async def text(self, ref: int | None) -> str:
        """Return the visible text of the element `ref`, or of the page if `ref` is None."""
        return str(await self._bounded(lambda: self._call("text", ref)))

    async def screenshot(self) -> bytes:
        """Return a PNG of the viewport."""
        return await self._bounded(lambda: self._current_monitor().page.screenshot(animations="disabled", caret="hide"))

    async def outline(self) -> PageOutline:
        """Return the page as text."""
        page = await self._bounded(lambda: self._call("outline"))
        world = self._current_monitor().world or ""
        return PageOutline(world, page["url"], page["title"], tuple(page["lines"]), page["more"])

    async def _act(self, work: Callable[[], Awaitable[Any]]) -> None:
        async def act_and_settle() -> None:
            await work()
            await self._settle()

        await self._bounded(act_and_settle)

    async def _bounded(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run an action within the time limit; a page that hangs is replaced and ToolError raised."""
        crashed = self._current_monitor().crashed
        task = asyncio.ensure_future(work())
        try:
            # Not asyncio.timeout: a crashed page never answers, and the time limit would be waited for.
            waiting: set[asyncio.Future[Any]] = {task, crashed}
            await asyncio.wait(waiting, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1)
        if self._site_error is not None:
            raise self._site_error
        if crashed.done():
            raise SandboxUnavailable("the page crashed; the episode is retried")
        if task.done() and not task.cancelled():
            return task.result()
        await self._replace()
        raise ToolError(f"the page did not answer within {self.seconds:g} s and was closed; navigate to go on")

    async def _settle(self) -> None:
        """Wait until the page has loaded what the action requested; for background requests at most BACKGROUND_SECONDS."""
        end, monitor = _now() + BACKGROUND_SECONDS, self._current_monitor()
        while True:
            await self._call("settled")
            if not monitor.navigating() and (not monitor.requests or _now() > end):
                return
            await asyncio.sleep(POLL_SECONDS)
            while monitor.navigating() or (monitor.requests and _now() <= end):
                await asyncio.sleep(POLL_SECONDS)

    async def _call(self, function: str, *arguments: object) -> Any:
        """Call a function of page.js as soon as there is a document. Raises ToolError with the message of its error."""
        while True:
            result = await self._try_call(function, *arguments)
            if result is not None:
                if "wrong" in result:
                    raise ToolError(result["wrong"])
                return result["value"]
            await asyncio.sleep(POLL_SECONDS)

    async def _try_call(self, function: str, *arguments: object) -> dict[str, Any] | None:
        """Return the result, {"value"} or {"wrong"}; None if there is no document, or it was replaced meanwhile."""
        from playwright.async_api import Error

        monitor = self._current_monitor()
        if monitor.world is None:
            return None
        encoded = ", ".join(msgspec.json.encode(argument).decode() for argument in (function, *arguments))
        evaluation = {
            "expression": f"ratchet({encoded})",
            "uniqueContextId": monitor.world,
            "awaitPromise": True,
            "returnByValue": True,
        }
        try:
            answer = await monitor.send("Runtime.evaluate", evaluation)
        except Error as error:
            if monitor.page.is_closed() or "has been closed" in str(error):
                raise
            return None  # another document was loaded, and this one's world was destroyed
        if "exceptionDetails" in answer:
            return None
        result: dict[str, Any] = answer["result"]["value"]
        return result

    async def _press(self, ref: int) -> None:
        point = await self._call("target", ref)
        await self._current_monitor().page.mouse.click(point["x"], point["y"])

    async def _type(self, ref: int, text: str, enter: bool) -> None:
        is_set = await self._call("prepare", ref, text)
        keyboard = self._current_monitor().page.keyboard
        if not is_set:
            await (keyboard.insert_text(text) if text else keyboard.press("Delete"))
        if enter:
            await keyboard.press("Enter")

    def _current_monitor(self) -> PageMonitor:
        if self._monitor is None:
            raise SandboxUnavailable("the page was closed; the episode is retried")
        return self._monitor

    async def _replace(self) -> None:
        """Replace a hanging page. Raises SandboxUnavailable if even an empty page does not answer."""
        old, self._monitor = self._current_monitor(), None
        try:
            await asyncio.wait_for(old.page.close(), CLOSE_SECONDS)
            self._monitor = await asyncio.wait_for(self._open_new_page(), CLOSE_SECONDS)
            await asyncio.wait_for(self._call("settled"), CLOSE_SECONDS)
        except TimeoutError as error:
            raise SandboxUnavailable("the browser does not answer any more; the episode is retried") from error

    async def _open_new_page(self) -> PageMonitor:
        """Open an empty page and monitor it."""
        from playwright.async_api import Error

        # Twice if necessary: Chromium may give a new page the process of the closed one, and both end with it.
        try:
            return await PageMonitor.begin(self._context, self.notes)
        except Error:
            return await PageMonitor.begin(self._context, self.notes)

    async def _close_popup(self, page: "Page") -> None:
        """Close pages that the site's page opens."""
        from playwright.async_api import Error

        # Without a monitor the new page is the one that `_open_new_page` has just opened.
        if self._monitor is not None and page is not self._monitor.page:
            with suppress(Error):
                await page.close()

    async def _answer_request(self, route: "Route") -> None:
        """Answer a request to the site's origin from the site; abort all others."""
        request = route.request
        try:
            if self._site is None or urlsplit(request.url)[:2] != urlsplit(SITE_ORIGIN)[:2]:
                self.notes.add_note(f"blocked: {request.url}")
                await route.abort("blockedbyclient")
                return
            answer = self._site.handle(SiteRequest.of(request.method, request.url, _posted(request)))
            await route.fulfill(
                status=answer.status, headers={"content-type": answer.content_type, **answer.headers}, body=answer.body
            )
        except Exception as error:
            await self._handle_request_error(route, error)

    async def _handle_request_error(self, route: "Route", error: Exception) -> None:
        """Ignore an error of Playwright, whose page was closed; store any other for the action that caused it."""
        from playwright.async_api import Error

        if isinstance(error, Error):
            return
        self._site_error = error
        await route.abort()


def _posted(request: Any) -> str:
    data: bytes = request.post_data_buffer or b""
    return data.decode("utf-8", "replace")
