"""A headless Chromium, steered by Playwright, and pages that remember everything that went wrong on them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, Self

from playwright.sync_api import sync_playwright

from harness.binaries import require
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import ConsoleMessage, Dialog, Page

TIMEOUT_MS = 30_000
PATIENCE_S = 40.0
"""A page whose bucket has been slow once asks it only after ten times as long, up to 30 s."""

_ACCUSED = ("warning", "error")


class Browser:
    """One Chromium for as long as the context lasts. Its thread has an event loop running meanwhile: no other fits."""

    def __init__(self) -> None:
        self._program = require("chromium")
        self._playwright = sync_playwright()

    def __enter__(self) -> Self:
        # Chromium's sandbox wants a user who is not root.
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
        """A window of its own, with no memory of others, that has gone to ``url``."""
        size = {"width": width, "height": height}
        context = self._chromium.new_context(viewport=size, color_scheme=scheme, **options)  # type: ignore[arg-type]
        context.set_default_timeout(TIMEOUT_MS)
        window = Window(context.new_page())
        window.page.goto(url)
        return window


class Window:
    """A page, and what its console complained of, threw, or asked in a dialog: ``complaints``."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"thrown: {error}"))
        page.on("dialog", self._dialog)

    def close(self) -> None:
        self.page.context.close()

    def text(self, selector: str) -> str:
        """The text that is seen there."""
        return self.page.inner_text(selector)

    def wait(self, script: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the JavaScript is true; asked from outside, for a strict policy stops Playwright's own waiting."""
        wait_for(lambda: self.page.evaluate(script), timeout_s=timeout_s, what=script)

    def shot(self, directory: Path, name: str) -> Path:
        """A picture of the whole page; in ``PAGE_SHOTS`` too, if that names a directory."""
        picture = self.page.screenshot(path=directory / f"{name}.png", full_page=True)
        if kept := os.environ.get("PAGE_SHOTS"):
            os.makedirs(kept, exist_ok=True)  # noqa: PTH103 - as given
            with open(os.path.join(kept, f"{name}.png"), "wb") as file:  # noqa: PTH118, PTH123 - as given
                file.write(picture)
        return directory / f"{name}.png"

    @property
    def overflows(self) -> bool:
        """Whether one has to scroll sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in _ACCUSED:
            self.complaints.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()
