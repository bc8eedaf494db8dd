"""What a message says beside its sentence: containers, their cause, a sample error, the command to type."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from sidecar.controller.evidence_capture import evidence_text
from sidecar.core.explain.samples import CullEvidence, ErrorSample
from sidecar.core.fleet.about import Member, MemberList
from sidecar.core.types import Entry, ErrorLevel, Fleet, Presence, Unknown
from sidecar.notify import details
from sidecar.notify.details import Details
from sidecar.notify.episodes import Notification
from sidecar.notify.rules import Severity

NOW: Final = 1_700_000_000.0
SICK: Final = tuple(Member(f"c{at}", Presence.SUSPECT, "mysql", 1.0) for at in range(7))
DOWN: Final = Member("a", Presence.DOWN, "redis", 1.0)
WELL: Final = Member("b", Presence.WELL, "", 1.0)
SAMPLE: Final = ErrorSample("00c0ffee", "mysql", ErrorLevel.SERVER_ERROR, 5, 0, 60, "connection refused (111): db-1")
EVIDENCE: Final = evidence_text(CullEvidence("claim", NOW, (SAMPLE,), "ps output"), NOW)  # as sidecars write it
CULLED: Final = Entry("culled", NOW - 60, "c9", "mysql", detail=f"5 server errors in 60 s\n{EVIDENCE}", id="1")


class Records:
    def __init__(self, *members: Member, entries: Any = ()) -> None:
        self.members: Any = MemberList(Fleet(9), 0, members)
        self.ledger: Any = entries
        self.is_hung = False

    async def member_list(self) -> MemberList | Unknown:
        if self.is_hung:
            await asyncio.Event().wait()
        answer: MemberList | Unknown = self.members
        return answer

    async def entries(self, _since: float, after: str, _most: int) -> Any:
        return [] if after else self.ledger


def _notification(topic: str = "budget", instance: str = "", **facts: object) -> Notification:
    return Notification(topic, topic, Severity.WARNING, "s", 0.0, facts=facts, instance=instance)


CASES: Final[dict[str, tuple[Records, Notification, dict[str, object]]]] = {
    "budget: suspects first, and those that are down": (
        Records(WELL, DOWN, *SICK[:2], entries=[CULLED._replace(kind="redis")]),
        _notification(),
        {"containers": "c0, c1, a", "cause": "mysql", "sample": "1 x own: error", "command": "health-arbiter why c0"},
    ),
    "many": (
        Records(*SICK, entries=[CULLED._replace(detail="no evidence"), CULLED]),
        _notification(),
        {
            "containers": "c0, c1, c2, c3, c4 and 2 more",
            "cause": "mysql",
            "sample": "5 x mysql: connection refused (111): db-1",
            "command": "health-arbiter why c0",
        },
    ),
    "apps that report no messages": (
        Records(SICK[0], entries=[CULLED._replace(what="suspect", detail="5 errors in 60 s")]),
        _notification("budget", own=""),
        {"containers": "c0", "cause": "mysql", "sample": "5 errors in 60 s", "command": "health-arbiter why c0"},
    ),
    "paused: only those of its causes": (
        Records(DOWN, *SICK[:1]),
        _notification("paused", causes="disk, mysql"),
        {"containers": "c0", "cause": "mysql", "sample": "1 x own: error", "command": "health-arbiter why c0"},
    ),
    "not honoured: itself": (
        Records(DOWN, *SICK),
        _notification("not_honoured", "a"),
        {"containers": "a", "cause": "redis", "sample": "1 x own: error", "command": "health-arbiter why a"},
    ),
    "action: itself": (
        Records(DOWN, *SICK),
        _notification("action", "a"),
        {"containers": "a", "cause": "redis", "sample": "1 x own: error", "command": "health-arbiter why a"},
    ),
    "hold: another person has a reason": (Records(), _notification("hold"), {"command": "health-arbiter fleet"}),
    "a name that a shell would read": (
        Records(),
        _notification("action", "it; rm"),
        {"containers": "", "cause": "", "sample": "1 x own: error", "command": "health-arbiter why 'it; rm'"},
    ),
    "redis": (Records(*SICK), _notification("redis"), {"command": "health-arbiter doctor"}),
}


@pytest.mark.parametrize(("records", "notification", "expected"), CASES.values(), ids=CASES)
async def test_details(records: Records, notification: Notification, expected: dict[str, object]) -> None:
    own = str(notification.facts.get("own", "1 x own: error"))
    found = await Details(records, lambda: own, lambda: NOW)(notification)
    assert found == expected


async def test_store_that_is_away_or_hangs_stops_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records()
    records.members = records.ledger = Unknown("timeout")
    found = await Details(records, lambda: "", lambda: NOW)(_notification())
    assert found == {"containers": "", "cause": "", "sample": "", "command": "health-arbiter fleet"}
    records.is_hung = True
    monkeypatch.setattr(details, "LOOK_S", 0.01)
    assert await Details(records, lambda: "", lambda: NOW)(_notification()) == {"command": "health-arbiter fleet"}
