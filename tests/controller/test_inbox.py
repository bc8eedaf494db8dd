"""What waits for the controller, and for how long."""

from __future__ import annotations

import asyncio

from harness.virtual_time import in_virtual_time
from sidecar.controller.inbox import INBOX_LIMIT, REPORTS_A_TURN, Inbox
from sidecar.core.app_reports import ErrorReport


def test_inbox_is_bounded_by_reports_however_they_come() -> None:
    inbox = Inbox()
    offered = [inbox.offer([ErrorReport()] * 1000) for _ in range(20)]
    assert offered == [True] * (INBOX_LIMIT // 1000) + [False] * 10


@in_virtual_time
async def test_many_reports_are_taken_in_several_turns_and_others_run_between() -> None:
    inbox = Inbox()
    others: list[str] = []
    for _ in range(3):
        inbox.offer([ErrorReport()] * (REPORTS_A_TURN // 2))
    asyncio.get_running_loop().call_soon(others.append, "another")
    assert [len(await inbox.take(5)), others] == [2, []]
    assert [len(await inbox.take(5)), others] == [1, ["another"]]
