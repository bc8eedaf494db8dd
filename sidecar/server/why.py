"""Why the container stands as it does, and what would clear it: as one value, and as text.

All of it comes from memory: nothing here waits for the bucket. At the public door stands nothing that the app wrote
freely: no samples, no capture, no names of incarnations. Who holds culls, and why, is told at each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from aiohttp import hdrs

from sidecar.core.explain import reasons
from sidecar.core.explain.history import History
from sidecar.core.explain.remedies import Outlook, clears
from sidecar.core.explain.runbooks import ANCHORS
from sidecar.core.explain.samples import MESSAGE_LIMIT, ErrorSample, Kept
from sidecar.core.fleet import about
from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Denied, Fleet, Granted, Hold, State, Unknown
from sidecar.net import web
from sidecar.net.listener import Refusal, json_response
from sidecar.server.health import why
from sidecar.server.why_text import written

PLAIN: Final = "text/plain; charset=utf-8"
FORMATS: Final = ("json", "text")


class Identity(NamedTuple):
    """What does not change while the sidecar runs. ``runbook_url``: what links to runbooks begin with, or nothing."""

    service: str
    instance: str
    mode: str
    error_limit: int
    runbook_url: str = ""


class Sources(NamedTuple):
    """Where what changes is read from.

    ``heard_s``: how many seconds ago ``fleet`` was heard of. ``local_hold``: one that the shared bucket does not know.
    ``leaving(limit)`` as ``RollingCounts`` has it. ``samples`` and ``kept``: of this life, and of the last cull.
    """

    snapshot: Callable[[], Snapshot]
    fleet: Callable[[], Fleet | None]
    heard_s: Callable[[], float]
    local_hold: Callable[[], Hold | None]
    leaving: Callable[[int], tuple[int, int]]
    samples: Callable[[], Iterable[ErrorSample]]
    kept: Callable[[], Kept | None]
    wall: Callable[[], float]


class Why:
    """Answers for one container; ``history`` has its decisions."""

    def __init__(self, identity: Identity, sources: Sources, history: History) -> None:
        self._identity = identity
        self._from = sources
        self._history = history
        self._written: tuple[object, str] = (None, "")

    async def get_public(self, request: web.BaseRequest) -> web.Response:
        """``GET /why`` of the public door."""
        return _response(request, self.value())

    async def get_local(self, request: web.BaseRequest) -> web.Response:
        """``GET /why`` of the local door."""
        return _response(request, self.local())

    def text(self, limit: int) -> str:
        """What the public door tells, in at most ``limit`` bytes: the older part of the history is left out first.

        It is written once a second: polls may come in thousands.
        """
        of = (self._from.wall() // 1, self._from.snapshot().container, limit)
        if self._written[0] != of:
            self._written = (of, written(self.value(), limit))
        return self._written[1]

    def value(self) -> dict[str, Any]:
        """What the public door tells, as JSON values; times are Unix seconds, durations seconds."""
        value = self._value(self._from.snapshot(), self._from.fleet())
        value["incarnation"] = None
        if value["fleet"]:
            value["fleet"]["away"] = [word.rpartition(": ")[2] for word in value["fleet"]["away"]]
        return value

    def local(self) -> dict[str, Any]:
        """What the local door tells: the same, and what the app wrote."""
        seen = self._from.snapshot()
        value = self._value(seen, self._from.fleet())
        kept = self._from.kept()
        offset = self._from.wall() - seen.now
        was_culled = kept is not None and _claim_id(seen.container) == kept.claim_id
        samples = kept.samples if kept and was_culled else self._from.samples()
        return {
            **value,
            "samples": [_sample(each, offset) for each in samples],
            "capture": kept.capture if kept else None,
            "last_cull": None if kept is None or was_culled else _kept(kept, offset),
        }

    def _value(self, seen: Snapshot, fleet: Fleet | None) -> dict[str, Any]:
        held = (fleet.hold if fleet else None) or self._from.local_hold()
        container, unix, own = seen.container, self._from.wall(), self._identity
        answered_at = self._history.answered_at
        age_s = 0.0 if answered_at is None else max(0.0, unix - answered_at)
        outlook = Outlook(unix, self._from.leaving(own.error_limit), age_s, held)
        return {
            "service": own.service,
            "instance": own.instance,
            "incarnation": container.life,
            "mode": own.mode,
            "state": container.state,
            "since": round(unix - (seen.now - container.since), 3),
            "at": round(unix, 3),
            "health": {"haproxy": container.haproxy_up, "nomad": container.nomad_up},
            "weight": seen.share,
            "soft_drained": seen.is_soft_drained,
            "sentence": _sentence(seen, own.error_limit),
            "spared": container.verdict.spared if container.verdict else "",
            "rules": [asdict(reason) for reason in container.verdict.reasons] if container.verdict else [],
            "window": _window(seen, own.error_limit),
            "claim": _claim(container, age_s, answered_at),
            "budget": _budget(container, answered_at, fleet, unix - self._from.heard_s()),
            "fleet": _fleet(fleet, held) if fleet else None,
            "hold": _shown_hold(held),
            "clears": list(clears(seen, outlook)),
            "history": [_decision(*each) for each in self._history.newest()],
            "runbook": _runbook(own.runbook_url, container),
        }


def _sentence(seen: Snapshot, error_limit: int) -> str:
    container, evidence = seen.container, seen.evidence
    if not container.haproxy_up:
        return why(container)
    if container.state is State.STARTING:
        return "it is not judged until its grace is over"
    judged = reasons.verdict(container.verdict)
    if container.would_down:
        return f"it would be down but for shadow mode: {judged}"
    if container.order is not None:
        return f"{reasons.ORDERED}, the claim is on its way"
    if container.state is State.RETIRING:
        return "it is old enough to be retired and waits for a lease"
    limit = f", the limit is {error_limit}" if error_limit else ""
    return judged or f"in service: {evidence.errors} server errors in {evidence.window_s} s{limit}"


def _window(seen: Snapshot, error_limit: int) -> dict[str, Any]:
    evidence = seen.evidence
    return {
        "seconds": evidence.window_s,
        "errors": evidence.errors,
        "limit": error_limit,
        "kinds": evidence.kinds,
        "requests": evidence.requests,
        "failed": evidence.failed,
    }


def _claim(container: Container, age_s: float, answered_at: float | None) -> dict[str, Any] | None:
    answer = container.answer
    if answer is None:
        return None
    left_s = max(0.0, answer.retry_after_s - age_s) if isinstance(answer, Denied) else None
    return {
        "outcome": reasons.outcome(answer),
        "reason": reasons.reason_word(answer),
        "sentence": reasons.answer(answer),
        "retry_after_s": None if left_s is None else round(left_s, 3),
        "at": _rounded(answered_at),
    }


def _budget(
    container: Container, answered_at: float | None, fleet: Fleet | None, heard_at: float
) -> dict[str, Any] | None:
    """Tokens as the last clear answer had them, to a claim or to a beat.

    A hold that is known here refuses without asking for any.
    """
    answer = container.answer
    told: Granted | Denied | Fleet | None = None if isinstance(answer, Unknown) else answer
    at = answered_at
    if fleet is not None and fleet.capacity and (not told or not told.capacity or (at or 0.0) < heard_at):
        told, at = fleet, heard_at
    if told is None or not told.capacity:
        return None
    left = max(0, told.capacity - told.used)
    return {"used": told.used, "capacity": told.capacity, "left": left, "at": _rounded(at)}


def _fleet(fleet: Fleet, held: Hold | None) -> dict[str, Any]:
    return {**about.fleet(fleet), "hold": _shown_hold(held)}


def _shown_hold(held: Hold | None) -> dict[str, Any] | None:
    return None if held is None else {"scope": "instance" if held.instance else "service", **asdict(held)}


def _decision(at: float, what: str, reason: str, sentence: str, times: int) -> dict[str, Any]:
    return {"at": round(at, 3), "what": what, "reason": reason, "sentence": sentence, "times": times}


def _sample(sample: ErrorSample, offset: float) -> dict[str, Any]:
    from sidecar.client.redaction import redacted  # noqa: PLC0415 - its patterns take a while, and most apps send none

    return {
        "fingerprint": sample.fingerprint,
        "kind": sample.kind,
        "level": sample.level,
        "count": sample.errors,
        "first": round(sample.first + offset, 3),
        "last": round(sample.last + offset, 3),
        "message": redacted(sample.message, MESSAGE_LIMIT),
    }


def _kept(kept: Kept, offset: float) -> dict[str, Any]:
    return {"at": round(kept.at, 3), "samples": [_sample(each, offset) for each in kept.samples]}


def _claim_id(container: Container) -> str:
    return container.latch.claim_id if container.latch else ""


def _runbook(url: str, container: Container) -> str:
    """Where a person reads on: of what stands in the way of a cull or a retirement, else the beginning."""
    answer = {State.SUSPECT: container.answer, State.RETIRING: container.lease_answer}.get(container.state)
    word = reasons.reason_word(answer) if answer is not None else ""
    anchor = ANCHORS.get(word, "")
    return f"{url}#{anchor}" if url and anchor else url


def _rounded(at: float | None) -> float | None:
    return None if at is None else round(at, 3)


def _response(request: web.BaseRequest, value: dict[str, Any]) -> web.Response:
    if _format(request) == "json":
        return json_response(value)
    return web.Response(body=written(value).encode(errors="replace"), headers={hdrs.CONTENT_TYPE: PLAIN})


def _format(request: web.BaseRequest) -> str:
    """What the client wants: as it says in the query, else by its ``Accept``."""
    wanted = request.query.get("format")
    if wanted is None:
        accepted = request.headers.get(hdrs.ACCEPT, "")
        return "text" if "text/plain" in accepted and "application/json" not in accepted else "json"
    if wanted not in FORMATS:
        raise Refusal(400, "query", f"format: takes {' or '.join(FORMATS)}")
    return wanted
