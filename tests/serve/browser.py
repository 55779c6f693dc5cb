"""A real browser: Debian's Chromium, driven by Playwright. One for all tests of a file, with a profile of its own for
each test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from support.local import needs

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
AXE = Path(__file__).parents[1] / "interop" / "node_modules" / "axe-core" / "axe.min.js"
PATIENCE = 15_000
"""Milliseconds."""


@contextmanager
def browser() -> Iterator[Browser]:
    needs("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield running
        finally:
            running.close()


class Visit:
    """A visitor with a browser. What goes wrong in it is collected: refused scripts, errors, requests to elsewhere."""

    def __init__(self, browser: Browser, **device: Any) -> None:
        self._context = browser.new_context(**device)
        self._context.set_default_timeout(PATIENCE)
        self.page: Page = self._context.new_page()
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("console", lambda message: self.wrong.append(f"{message.type}: {message.text}"))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._requested(request.url))

    def _requested(self, url: str) -> None:
        if not url.startswith("http://127.0.0.1:"):
            self.wrong.append(f"request: {url}")

    def close(self) -> None:
        self._context.close()

    def names(self) -> list[str]:
        """Of the rows in the document."""
        return self.page.locator("#rows button.name").all_inner_texts()

    def focused(self) -> str:
        """The text of what has the keyboard."""
        return str(self.page.evaluate("document.activeElement.textContent"))

    def row(self, name: str) -> Any:
        return self.page.locator("#rows tr", has=self.page.get_by_role("button", name=name, exact=True))

    def violations(self) -> list[str]:
        """What the accessibility checker finds, in words."""
        self.page.evaluate(AXE.read_text(encoding="utf-8") + "; null")  # as a debugger does it: no policy applies
        found = self.page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
        return [f"{each['id']}: {node['html'][:120]}" for each in found for node in each["nodes"]]


Visits = Callable[..., Visit]
