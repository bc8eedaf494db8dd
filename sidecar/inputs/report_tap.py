"""Shows each report to those who watch, with the input that it came by. Without a watcher it costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidecar.core.types import Report

Offer = Callable[[Sequence[Report]], bool]
"""Takes reports; False if too many are waiting."""

Watcher = Callable[[str, Sequence[Report | str]], None]
"""``(source, reports)``; a text is why a report was refused. It must return at once and must not raise."""


class ReportTap:
    """``watchers`` see what the controller takes and what is refused, in the order of arrival."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []

    def note(self, source: str, reports: Sequence[Report | str]) -> None:
        """Show reports to every watcher."""
        for watcher in self.watchers:
            watcher(source, reports)

    def tapped(self, source: str, offer: Offer) -> Offer:
        """``offer``, whose accepted reports are shown under the name ``source``."""

        def offer_and_note(reports: Sequence[Report]) -> bool:
            if not offer(reports):
                return False
            if self.watchers:
                self.note(source, reports)
            return True

        return offer_and_note
