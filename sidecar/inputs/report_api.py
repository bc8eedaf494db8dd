"""The app's part of the local listener: it reports errors, results and heartbeats, and reads ``GET /verdict``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import hdrs

from sidecar.core.app_reports import Heartbeat, Report
from sidecar.core.claims import Denied, Unknown
from sidecar.core.explain import reasons
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import State
from sidecar.inputs.report_bodies import read_errors, read_results
from sidecar.net import web

SMALL_BODY: Final = 4 * 1024
"""Bytes up to which a body is parsed at once. A larger one takes up to 3 ms: each turn of the loop parses one."""

JSON: Final = {hdrs.CONTENT_TYPE: "application/json"}
ACCEPTED: Final = {state: f'{{"state":"{state}"}}\n'.encode() for state in State}


def routes(
    offer: Callable[[Sequence[Report]], bool],
    snapshot: Callable[[], Snapshot],
    mode: str,
) -> web.Routes:
    """Routes of the local listener.

    ``offer`` passes reports to the controller, or returns False if too many are waiting.
    """
    large_bodies = asyncio.Lock()

    def accepted(reports: Sequence[Report]) -> web.StreamResponse:
        if not offer(reports):
            raise web.HttpError(503, "full", "too many reports are waiting, this one was not counted")
        return web.Response(body=ACCEPTED[snapshot().container.state], status=202, headers=JSON)

    def posted(read: Callable[[bytes], Sequence[Report]]) -> web.Handler:
        async def post(request: web.BaseRequest) -> web.StreamResponse:
            body = await web.read_body(request)
            if len(body) <= SMALL_BODY:
                return accepted(read(body))
            async with large_bodies:
                await asyncio.sleep(0)
                return accepted(read(body))

        return post

    async def post_heartbeat(_request: web.BaseRequest) -> web.StreamResponse:
        return accepted((Heartbeat(),))

    async def get_verdict(_request: web.BaseRequest) -> web.Response:
        return web.json_response({"mode": mode, **verdict(snapshot())})

    return {
        "/errors": {"POST": posted(read_errors)},
        "/results": {"POST": posted(lambda body: (read_results(body),))},
        "/heartbeat": {"POST": post_heartbeat},
        "/verdict": {"GET": get_verdict},
    }


def verdict(snapshot: Snapshot) -> dict[str, Any]:
    """State, verdict and evidence of the app, as JSON values. Durations are in seconds."""
    container, evidence = snapshot.container, snapshot.evidence
    judged = container.verdict
    return {
        "state": container.state,
        "state_age_s": round(snapshot.now - container.since, 3),
        "verdict": judged.word if judged else None,
        "reasons": [reason._asdict() for reason in judged.reasons] if judged else [],
        "evidence": evidence._asdict(),
        "claim": _claim(snapshot),
        "latched": container.latch is not None,
        "would_be_down": container.would_down,
        "weight": snapshot.share,
        "success_rate": None if snapshot.success_rate is None else round(snapshot.success_rate, 4),
        "app_start": container.app_start,
        "age_s": round(snapshot.now - container.born, 3),
        "retire_in_s": None if snapshot.retire_at is None else round(snapshot.retire_at - snapshot.now, 3),
        "load": snapshot.load.value if snapshot.load else None,
    }


def _claim(snapshot: Snapshot) -> dict[str, Any] | None:
    container, answer = snapshot.container, snapshot.container.answer
    if answer is None:
        return {"outstanding": True} if container.asking else None
    return {
        "outstanding": container.asking,
        "outcome": reasons.outcome(answer),
        "reason": reasons.reason_word(answer),
        "sentence": reasons.answer(answer),
        "used": None if isinstance(answer, Unknown) else answer.used,
        "capacity": None if isinstance(answer, Unknown) else answer.capacity,
        "retry_after_s": answer.retry_after_s if isinstance(answer, Denied) else None,
    }
