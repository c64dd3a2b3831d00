"""One Chromium per process, isolated when it is started. Each episode has a browser context.

Playwright's objects belong to the thread of their event loop, so the loop runs in a thread of this module and `call`
submits coroutines to it from any thread. The browser starts on first use and closes with the process; if the process is
killed, Playwright's driver and Chromium end because their pipes close.

| measure | where | what it stops |
|---|---|---|
| requests answered from memory, all others aborted | always | every URL but the site's, including `file:` |
| a dead proxy, no name resolution, no UDP | always | traffic that is not a request: web sockets, WebRTC, prefetching |
| a network namespace without interfaces | if the kernel allows | all of the network, including loopback |
| the user `nobody`, no new privileges | if we are root | access to our files and processes |
| Chromium's own sandbox | if that user may create user namespaces | the file system, system calls |
| no host environment, no downloads, bounded JavaScript heap | always | secrets in variables, files, memory |

Where a container forbids user namespaces (Docker's default profile does), Chromium runs with `--no-sandbox`: then the
container is the sandbox. Not covered: a renderer exploit there, side channels, and a page that keeps a core busy until
its limit.
"""

import asyncio
import atexit
import concurrent.futures
import os
import shutil
import subprocess
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ratchet.components.core import ConfigurationError, SandboxUnavailable
from ratchet.components.core.errors import install_command

from .browser_tab import BrowserTab

LAUNCH_SCRIPT = Path(__file__).with_name("launch.sh")
NOBODY = 65534
# The shell without a user interface comes first: an episode costs it about half the time and two thirds of the memory.
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
CHROMIUM_SWITCHES = (
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",
    # Without this rule requests to loopback addresses would bypass the proxy.
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--dns-prefetch-disable",
    "--disable-quic",
    "--disable-gpu",
    "--disable-crash-reporter",
    "--hide-scrollbars",
    "--js-flags=--max-old-space-size=256",
)


class ChromiumLaunch(msgspec.Struct, frozen=True):
    """How Chromium is started.

    `command_prefix`: for example `unshare --net`; empty if none works. `environment`: all of its environment variables.
    `sandbox`: whether Chromium's own sandbox works here. `network_namespace`: whether it has one to itself.
    """

    command_prefix: tuple[str, ...]
    environment: dict[str, str]
    sandbox: bool
    network_namespace: bool


def find_chromium() -> str:
    """Return the path of the system's Chromium. Raises ConfigurationError with the command to install it."""
    for name in CHROMIUM_NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise ConfigurationError("ratchet/browser needs Chromium; install it: apt-get install chromium-headless-shell")


def plan_launch(chromium: str) -> ChromiumLaunch:
    """Return the strictest launch that this machine allows; each measure is tried, not assumed."""
    root = os.geteuid() == 0
    user_prefix = (
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"] if root else []
    )
    if not _prefix_works(user_prefix):
        user_prefix = []
    network_prefix = ["unshare", "--net"] if root else ["unshare", "--user", "--map-current-user", "--net"]
    if not _prefix_works([*network_prefix, *user_prefix]):
        network_prefix = []
    namespace_test = [*network_prefix, *user_prefix, "unshare", "--user"]
    environment = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "RATCHET_CHROMIUM": " ".join([*network_prefix, *user_prefix, chromium]),
    }
    if user_prefix:
        environment["RATCHET_CHROMIUM_OWNER"] = f"{NOBODY}:{NOBODY}"
    sandbox = _prefix_works(namespace_test) and (bool(user_prefix) or not root)
    return ChromiumLaunch((*network_prefix, *user_prefix), environment, sandbox, bool(network_prefix))


def _prefix_works(words: list[str]) -> bool:
    """Return True if the program `true` runs with this command prefix."""
    try:
        return subprocess.run([*words, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


T = TypeVar("T")
START_SECONDS = 60.0
CALL_MARGIN = 90.0
VIEWPORT = (1024, 768)


class Chromium:
    """A browser, which `start` runs as `launch` specifies, and the thread of its event loop."""

    def __init__(self, launch: ChromiumLaunch) -> None:
        self.launch = launch
        self.alive = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ratchet-browser", daemon=True)
        self._driver: Any = None
        self._browser: Any = None
        self._spare: asyncio.Task[BrowserTab] | None = None

    def start(self) -> None:
        """Start the thread, the driver and the browser. Raises SandboxUnavailable."""
        self._thread.start()
        try:
            self.call(self._launch(), START_SECONDS)
        except BaseException:
            self.close()
            raise

    async def _launch(self) -> None:
        from playwright.async_api import async_playwright

        self._driver = await async_playwright().start()
        self._browser = await self._driver.chromium.launch(
            executable_path=str(LAUNCH_SCRIPT),
            chromium_sandbox=self.launch.sandbox,
            args=list(CHROMIUM_SWITCHES),
            env=self.launch.environment,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=START_SECONDS * 1000,
        )
        self._browser.on("disconnected", lambda _: self._disconnected())
        self.alive = True

    def _disconnected(self) -> None:
        self.alive = False

    async def tab(self) -> BrowserTab:
        """Return a tab with an empty page and no cookies, storage or cache. Call it in the browser's thread."""
        # The prepared tab may have failed meanwhile: then another is made, whose error is raised.
        spare, self._spare = self._spare, None
        if spare is not None:
            with suppress(Exception):
                return await spare
        return await self._prepare()

    def keep_ready(self) -> None:
        """Prepare a tab for the next episode in the background. Call it in the browser's thread."""
        if self._spare is None:
            self._spare = asyncio.ensure_future(self._prepare())
            # Fetches the exception of a failed task: asyncio would log one that nobody asks for.
            self._spare.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _prepare(self) -> BrowserTab:
        width, height = VIEWPORT
        context = await self._browser.new_context(
            viewport={"width": width, "height": height},
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
            # The requests of a service worker would bypass the routes of the context.
            service_workers="block",
            accept_downloads=False,
        )
        return await BrowserTab.prepare(context)

    def call(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a coroutine in the browser's thread and return its result, or raise its exception.

        Raises SandboxUnavailable after `seconds`, for an error of Playwright, and if the browser was closed.
        """
        from playwright.async_api import Error

        if not self._thread.is_alive():
            work.close()
            raise SandboxUnavailable("the browser was closed; the episode is retried")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError as error:
            future.cancel()
            raise SandboxUnavailable(
                f"the browser did not answer within {seconds:g} s; the episode is retried"
            ) from error
        except Error as error:
            raise SandboxUnavailable(f"the browser failed: {_first_line(error)}; the episode is retried") from error

    def close(self) -> None:
        """End the browser, the driver and the thread; safe to call twice."""
        if not self._thread.is_alive():
            return
        with suppress(Exception):  # the browser may have crashed
            asyncio.run_coroutine_threadsafe(self._stop_driver(), self._loop).result(15)
        self.alive = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _stop_driver(self) -> None:
        if self._spare is not None:
            self._spare.cancel()
        if self._browser is not None:
            await self._browser.close()
        if self._driver is not None:
            await self._driver.stop()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


_lock = threading.Lock()
_running: tuple[int, Chromium] | None = None


def shared_chromium() -> Chromium:
    """Return this process's browser, starting one if none is running.

    Raises ConfigurationError if Playwright or Chromium is not installed, SandboxUnavailable if it does not start.
    """
    global _running
    with _lock:
        if _running is not None and _running[0] == os.getpid() and _running[1].alive:
            return _running[1]
        _end_running()
        require_playwright()
        chromium = Chromium(plan_launch(find_chromium()))
        chromium.start()
        _running = (os.getpid(), chromium)
        return chromium


def require_playwright() -> None:
    """Raise ConfigurationError with the command to install Playwright if it is absent."""
    try:
        import playwright.async_api  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"ratchet/browser needs Playwright; install it: {install_command('browser')}"
        ) from error


def close_shared_chromium() -> None:
    """Close this process's browser, if any; the next `shared_chromium` starts another."""
    with _lock:
        _end_running()


def _end_running() -> None:
    """Close this process's browser."""
    global _running
    # After a fork the child has the parent's browser in its memory, and must leave it alone.
    if _running is not None and _running[0] == os.getpid():
        _running[1].close()
    _running = None


atexit.register(close_shared_chromium)
