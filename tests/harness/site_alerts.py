"""Everything that Alertmanager has ever shown: whoever told it, and whether it has ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from harness.alertmanager import Alertmanager

_PAUSE_S: Final = 0.5


class Shown(NamedTuple):
    """One alert by its name and severity; ``by`` whom it was sent: ``sidecar`` or ``prometheus``."""

    by: str
    name: str
    severity: str


class SiteAlerts:
    """Looks every half a second, as a context. ``ever`` has all that was shown, with the last description of each."""

    def __init__(self, manager: Alertmanager) -> None:
        self.ever: dict[Shown, str] = {}
        self._now: set[Shown] = set()
        self._manager = manager
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def by(self, sender: str) -> dict[str, str]:
        """The severity of each alert that this one has sent."""
        return {shown.name: shown.severity for shown in self.ever if shown.by == sender}

    def now_of(self, sender: str) -> set[str]:
        """The names of those by this sender that are shown now."""
        return {shown.name for shown in self._now if shown.by == sender}

    def _look(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            with contextlib.suppress(OSError):
                found = dict(_shown(self._manager.alerts()))
                self._now = set(found)
                self.ever = self.ever | found  # whoever is reading it has the former one


def _shown(alerts: list[dict[str, Any]]) -> Iterator[tuple[Shown, str]]:
    for alert in alerts:
        labels = alert["labels"]
        # Only a sidecar says which of its occasions it is.
        by = "sidecar" if "occasion" in labels else "prometheus"
        yield Shown(by, labels["alertname"], labels["severity"]), alert["annotations"]["description"]
