"""``GET /events`` on a real socket: pages of the ledger, answers without it, and bad queries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from harness.listeners import serving
from harness.raw_http import Observed, RawConnection, get
from sidecar.core.claims import Unknown
from sidecar.core.explain import reasons
from sidecar.core.types import Entry
from sidecar.server.ledger_api import get_events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.net import web

NOW_S = 1_700_000_000.0
IDENTITY = {"service": "web", "instance": "a", "mode": "enforce"}
CULLED = Entry("culled", NOW_S - 10, "a", "redis", "errors", "ann", 2.5, "5 errors", "shared word", "1-0")
SHOWN = {
    "id": "1-0",
    "at": NOW_S - 10,
    "what": "culled",
    "instance": "a",
    "kind": "redis",
    "reason": "errors",
    "author": "ann",
    "seconds": 2.5,
    "detail": "5 errors",
    "node": "",
    "app_version": "",
}


def _asked(since: float, after: str, most: int) -> list[tuple[float, str, int]]:
    """The questions for ``most`` entries of a ledger that has one behind ``after``."""
    return [(since, after, min(50, most)), *([(since, "1-0", min(50, most - 1))] if most > 1 else [])]


class LedgerRig:
    """A ledger that answers as the test sets, and records the questions."""

    def __init__(self) -> None:
        self.says: Sequence[Entry] | Unknown = [CULLED]
        self.hangs = False
        self.local: list[Entry] = [CULLED._replace(id="")]
        self.asked: list[tuple[float, str, int]] = []
        self.since: list[float] = []
        self.was_settled = False

    async def stored(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        self.asked.append((since, after, most))
        if self.hangs:
            await asyncio.Event().wait()
        if isinstance(self.says, Unknown):
            return self.says
        ids = [entry.id for entry in self.says]
        behind = ids.index(after) + 1 if after in ids else 0
        return self.says[behind : behind + most]

    def kept(self, since: float) -> list[Entry]:
        self.since.append(since)
        return self.local

    async def settled(self) -> None:
        self.was_settled = not self.asked

    def routes(self) -> web.Routes:
        events = get_events(
            self.stored, self.kept, settled=self.settled, identity=IDENTITY, wall=lambda: NOW_S, limit_s=0.1
        )
        return {"/events": {"GET": events}}


@pytest.fixture
def rig() -> LedgerRig:
    return LedgerRig()


@pytest.fixture
async def wire(rig: LedgerRig) -> AsyncIterator[RawConnection]:
    observed = Observed()
    async with serving(rig.routes(), observed) as listener, await RawConnection.to(listener) as wire:
        yield wire
    assert observed.failures == []


async def test_entries_are_shown_as_in_the_ledger(wire: RawConnection, rig: LedgerRig) -> None:
    answer = await wire.ask(get("/events"))
    assert (answer.status, answer.json()) == (200, {**IDENTITY, "events": [SHOWN], "stored": True})
    assert rig.asked == _asked(NOW_S - 3600, "", 500)
    assert rig.was_settled, "what this sidecar has just written is in the answer"


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("since=60", (NOW_S - 60, "", 500)),
        ("since=7d&most=7", (NOW_S - 7 * 86400, "", 7)),
        ("after=17-3&since=0", (NOW_S, "17-3", 500)),
        ("since=400d", (NOW_S - 400 * 86400, "", 500)),
        ("after=17-3,-,9-1", (NOW_S - 3600, "17-3,-,9-1", 500)),
    ],
)
async def test_query_has_since_after_and_most(
    wire: RawConnection, rig: LedgerRig, query: str, asked: tuple[float, str, int]
) -> None:
    assert (await wire.ask(get(f"/events?{query}"))).status == 200
    assert rig.asked == _asked(*asked)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("since=soon", "since"),
        ("since=401d", "since"),
        ("after=x", "after"),
        ("after=" + "1" * 401, "after"),
        ("most=0", "most"),
        ("most=501", "most"),
        ("most=%D9%A3", "most"),
        ("limit=5", "limit"),
    ],
)
async def test_bad_query_is_refused_with_the_name_of_the_field(
    wire: RawConnection, rig: LedgerRig, query: str, name: str
) -> None:
    answer = await wire.ask(get(f"/events?{query}"))
    assert answer.status == 400
    assert answer.error.startswith(f"{name}: ")
    assert rig.asked == []


@pytest.mark.parametrize("hangs", [False, True])
async def test_without_an_answer_in_time_the_newest_of_its_own_entries_are_shown(
    wire: RawConnection, rig: LedgerRig, *, hangs: bool
) -> None:
    rig.says, rig.hangs = Unknown("connection"), hangs
    rig.local.insert(0, rig.local[0]._replace(at=NOW_S - 20))
    answer = (await wire.ask(get("/events?since=60&most=1"))).json()
    error = "timeout" if hangs else "connection"
    observed = {"stored": False, "error": error, "sentence": reasons.failure(error)}
    assert answer == {**IDENTITY, "events": [{**SHOWN, "id": ""}], **observed}
    assert rig.since == [NOW_S - 60]
