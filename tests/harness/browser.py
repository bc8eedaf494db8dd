"""A headless Chromium, controlled by Playwright, and windows that collect every error of their page."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal, Self

from playwright.sync_api import Error, sync_playwright

from harness.binaries import require
from harness.waiting import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Dialog, Page

_TIMEOUT_MS = 30_000
_TIMEOUT_S = 40.0
"""After a slow answer of the store the page waits ten times as long, up to 30 s, before it asks again."""

_ACCUSED = ("warning", "error")


class Browser:
    """One Chromium while the context lasts. The test has no event loop: Playwright runs one."""

    def __init__(self) -> None:
        self._program = require("chromium")
        self._playwright = sync_playwright()

    def __enter__(self) -> Self:
        # The sandbox of Chromium does not work for root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = self._playwright.start()
        try:
            self._chromium = started.chromium.launch(executable_path=self._program, args=options)
        except BaseException:
            started.stop()
            raise
        self._started = started
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._chromium.close()
        finally:
            self._started.stop()

    def open(
        self,
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: Literal["light", "dark"] = "light",
        **options: Any,
    ) -> Window:
        """A window with a new profile that has loaded ``url``."""
        size = {"width": width, "height": height}
        context = self._chromium.new_context(viewport=size, color_scheme=scheme, **options)  # type: ignore[arg-type]
        context.set_default_timeout(_TIMEOUT_MS)
        window = Window(context.new_page())
        window.page.goto(url)
        return window

    def close_windows(self) -> None:
        for context in self._chromium.contexts:
            context.close()


class Window:
    """A page. ``complaints`` has the warnings and errors of its console, its exceptions and its dialogs."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"thrown: {error}"))
        page.on("dialog", self._dialog)

    def text(self, selector: str) -> str:
        """The visible text of an element."""
        return self.page.inner_text(selector)

    def wait(self, script: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until the JavaScript is true. The page's strict content policy stops Playwright's own waiting."""
        wait_for(lambda: self._evaluated(script), timeout_s=timeout_s, what=script)

    def wait_text(self, selector: str, text: str) -> None:
        """Wait until the visible text of the element has this text."""
        self.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")

    def _evaluated(self, script: str) -> Any:
        """The value of the script; None while the window goes to another page."""
        try:
            return self.page.evaluate(script)
        except Error as error:
            if "context was destroyed" not in str(error):
                raise
            return None

    @property
    def overflows(self) -> bool:
        """Whether the page is wider than its window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in _ACCUSED:
            self.complaints.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()
