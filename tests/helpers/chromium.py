"""Chromium for a module of tests, which is skipped where it is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ratchet.components.core import ConfigurationError
from ratchet.components.environments.browser.chromium_process import find_chromium, require_playwright


@contextmanager
def started_chromium() -> Iterator[Any]:
    """Give Playwright's browser, closed at the end."""
    try:
        require_playwright()
        path = find_chromium()
    except ConfigurationError as error:
        pytest.skip(str(error))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--disable-gpu"])
        yield browser
        browser.close()
