"""The facts that the reader of a message needs first: containers, their cause, a sample error, the command to type.

They are looked up when a message is sent, by its sender alone. A failure to look up never delays the message for long,
and never stops it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from shlex import quote
from typing import Final, Protocol

from sidecar.core.explain import reasons
from sidecar.core.fleet.about import MemberList
from sidecar.core.types import Entry, Presence, Unknown
from sidecar.notify.episodes import Notification

LOOK_S: Final = 3.0
SINCE_S: Final = 3600.0
PAGE: Final = 50
"""Entries that are read in one turn of the loop: 500 with long details took it 20 ms."""

PAGES: Final = 60
MOST_NAMES: Final = 5
LONGEST_SAMPLE: Final = 200
_EVIDENCE: Final = re.compile(r"(\d+ x .{1,100}?) \([^()]*\): (.*)")
"""A line of a cull's evidence, without fingerprint and times: see ``evidence_capture``."""

_OUT: Final = (Presence.SUSPECT, Presence.DOWN)


class FleetRecords(Protocol):
    """What this needs of a budget."""

    async def member_list(self) -> MemberList | Unknown:
        """The members of the fleet."""

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """The entries of the ledger since a Unix second, after an id."""


class Details:
    """Looks up the details of a notification. ``own_sample``: an error of this sidecar's app, redacted, or empty."""

    def __init__(self, records: FleetRecords, own_sample: Callable[[], str], wall: Callable[[], float]) -> None:
        self._records = records
        self._own_sample = own_sample
        self._wall = wall

    async def __call__(self, notification: Notification) -> dict[str, object]:
        """The details that are known, by name."""
        if notification.topic in ("redis", "test"):
            return {"command": "health-arbiter doctor"}
        if notification.topic == "hold":  # not release: the author has a reason
            return {"command": "health-arbiter fleet"}
        try:
            async with asyncio.timeout(LOOK_S):
                return await self._look(notification)
        except TimeoutError:
            return {"command": "health-arbiter fleet"}

    async def _look(self, notification: Notification) -> dict[str, object]:
        answer = await self._records.member_list()
        members = [] if isinstance(answer, Unknown) else [one for one in answer.members if one.presence in _OUT]
        members.sort(key=lambda one: one.presence is Presence.DOWN)
        causes = notification.facts.get("causes")
        if isinstance(causes, str):
            members = [one for one in members if one.kind in causes.split(", ")]
        if notification.instance:
            members = [one for one in members if one.instance == notification.instance]
        cause = Counter(one.kind for one in members if one.kind).most_common(1)
        kind = cause[0][0] if cause else ""
        first = notification.instance or (members[0].instance if members else "")
        return {
            "containers": reasons.names([one.instance for one in members], MOST_NAMES),
            "cause": kind,
            "sample": await self._sample(kind),
            "command": f"health-arbiter why {quote(first)}" if first else "health-arbiter fleet",
        }

    async def _sample(self, kind: str) -> str:
        """The newest error of this kind that a culled container left behind, else one of this container.

        Where apps report no messages, it is why the last container became suspect.
        """
        newest = verdict = after = ""
        for _ in range(PAGES):
            page = await self._records.entries(self._wall() - SINCE_S, after, PAGE)
            if isinstance(page, Unknown) or not page:
                break
            for entry in page:
                if entry.what in ("suspect", "culled") and entry.kind == (kind or entry.kind):
                    newest = _first_line(entry.detail) or newest
                    verdict = entry.detail.partition("\n")[0]
            after = page[-1].id
            if len(page) < PAGE:
                break
        return (newest or self._own_sample() or verdict)[:LONGEST_SAMPLE]


def _first_line(detail: str) -> str:
    """The first line of the evidence, as ``5 x redis: connection lost``."""
    _, _, evidence = detail.partition("\n")
    line = evidence.partition("\n")[0]
    match = _EVIDENCE.fullmatch(line)
    return f"{match[1]}: {match[2]}" if match else ""
