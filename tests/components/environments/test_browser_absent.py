"""What the browser environment says where Playwright or Chromium is not installed, and what it plans to start where they are."""

import sys

import pytest

from ratchet.components.core import ConfigurationError, Role, TaskSpec, make
from ratchet.components.environments.browser import chromium_process
from ratchet.components.environments.browser.browser_environment import BrowserEnvironment

TASK = TaskSpec(
    task_id="t/1", taskset="t", family="f", kind="k", role=Role.TRAIN, domain="browser", description="Look.", world={}
)


@pytest.fixture(autouse=True)
def no_browser_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromium_process, "_running", None)


def test_the_registry_knows_it_and_it_tells_of_its_tools() -> None:
    made = make("ratchet/browser", max_steps=3)
    assert isinstance(made, BrowserEnvironment)
    assert set(made.available_tools) == {
        *("click", "type_text", "navigate", "screenshot", "scroll", "wait", "extract_text", "select", "submit")
    }
    assert (made.domain, made.max_steps) == ("browser", 3)


def test_an_absent_playwright_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "playwright", None)
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    with pytest.raises(ConfigurationError, match="needs Playwright; install it: pip install "):
        BrowserEnvironment().reset(task=TASK)


def test_an_absent_chromium_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    pytest.importorskip("playwright")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigurationError, match=r"needs Chromium; install it: apt-get install chromium-headless-shell$"
    ):
        BrowserEnvironment().reset(task=TASK)


def test_its_environment_holds_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    planned = chromium_process.plan_launch("/usr/bin/chromium")
    assert set(planned.environment) <= {"PATH", "LANG", "RATCHET_CHROMIUM", "RATCHET_CHROMIUM_OWNER"}


def test_where_nothing_is_allowed_chromium_runs_without_its_own_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromium_process, "_prefix_works", lambda words: words == [])
    planned = chromium_process.plan_launch("/usr/bin/chromium")
    assert (planned.command_prefix, planned.sandbox, planned.network_namespace) == ((), False, False)
    assert planned.environment["RATCHET_CHROMIUM"] == "/usr/bin/chromium"


def test_root_gives_up_its_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromium_process, "_prefix_works", lambda words: True)
    monkeypatch.setattr(chromium_process.os, "geteuid", lambda: 0)
    planned = chromium_process.plan_launch("/usr/bin/chromium")
    assert planned.command_prefix[:2] == ("unshare", "--net") and "--reuid=65534" in planned.command_prefix
    assert planned.sandbox and planned.environment["RATCHET_CHROMIUM_OWNER"] == "65534:65534"
