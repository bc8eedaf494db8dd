"""``GET /why``: why the container is in its state and what would change that, as JSON and as text.

All of it comes from memory: nothing here waits for the shared store. The public listener shows no free text of the app:
no samples, no capture, no incarnation ids. Both listeners show the author and the reason of a hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs

from aiohttp import hdrs

from sidecar.client.redaction import redacted
from sidecar.config.settings import SHADOW
from sidecar.core.claims import Denied, Fleet, Unknown
from sidecar.core.explain import reasons
from sidecar.core.explain.samples import MESSAGE_LIMIT, ErrorSample
from sidecar.core.fleet import members as fleet_members
from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Entry, Hold, State
from sidecar.net import web
from sidecar.net.http_error import HttpError
from sidecar.server.health import why_down
from sidecar.server.public_http import JSON, PLAIN, PublicAnswer
from sidecar.server.remedies import Outlook, remedies
from sidecar.server.why_text import as_text

if TYPE_CHECKING:
    from sidecar.actions.actuator import ActionResult

HAPPENED: Final = frozenset(
    {
        *("suspect", "recovered", "granted", "denied", "culled", "not_honoured", "restarted", "revived", "retired"),
        *("would_cull", "would_recover"),
    }
)
"""Ledger entries about the container itself."""

MOST_EVENTS: Final = 50


class WhyIdentity(NamedTuple):
    """Values that never change in a process."""

    service: str
    instance: str
    mode: str
    error_limit: int
    runbook_url: str = ""  # the beginning of links to runbooks, or empty
    alone: str = ""  # what it means that there is no shared store; empty if there is one


class WhySources(NamedTuple):
    """The sources of all other values."""

    snapshot: Callable[[], Snapshot]
    entries: Callable[[float], Sequence[Entry]]  # those of the ledger since a Unix second that this sidecar has kept
    counts: Mapping[tuple[str, str], int]  # all entries since it started, by word and reason
    fleet: Callable[[], Fleet | None]
    heard_s: Callable[[], float]  # the age of ``fleet`` in seconds
    local_hold: Callable[[], Hold | None]  # a hold that the shared store does not know
    leaving: Callable[[int], tuple[int, int]]  # as in ``RollingCounts``
    samples: Callable[[], Iterable[ErrorSample]]  # the errors of this incarnation
    wall: Callable[[], float]
    action: Callable[[], ActionResult | None] = lambda: None  # how the last one ended
    warnings: Callable[[], list[str]] = list  # what is wrong around the sidecar, in sentences


class Why:
    """Answers for one container."""

    def __init__(self, identity: WhyIdentity, sources: WhySources) -> None:
        self._identity = identity
        self._from = sources
        self._began_at = sources.wall()

    def get_public(self, query: str) -> PublicAnswer:
        """``GET /why`` of the public listener."""
        wanted = parse_qs(query, keep_blank_values=True).get("format", ["json"])[0]
        content, content_type = _written(self.value(), wanted)
        return PublicAnswer(200, content, content_type=content_type)

    async def get_local(self, request: web.BaseRequest) -> web.Response:
        """``GET /why`` of the local listener."""
        content, content_type = _written(self.local(), request.query.get("format", "json"))
        return web.Response(body=content, headers={hdrs.CONTENT_TYPE: content_type})

    def text(self, limit: int) -> str:
        """The public answer as text in at most ``limit`` bytes: the oldest events are left out first."""
        return as_text(self.value(), limit)

    def value(self) -> dict[str, Any]:
        """The public answer as JSON values; times are Unix seconds, durations seconds."""
        return self._value(self._from.snapshot())

    def local(self) -> dict[str, Any]:
        """The local answer: the same, and what the app has written."""
        snapshot, action = self._from.snapshot(), self._from.action()
        container, cull = snapshot.container, snapshot.last_cull
        is_culled = cull is not None and container.latch is not None and container.latch.claim_id == cull.claim_id
        samples = cull.samples if cull and is_culled else self._from.samples()
        offset = snapshot.unix - snapshot.now
        return {
            **self._value(snapshot),
            "incarnation": container.life,
            "samples": [_sample(sample, offset) for sample in samples],
            "capture": cull.capture if cull else None,
            "action": action and {**action._asdict(), "at": round(action.at, 3)},
            "warnings": self._from.warnings(),
        }

    def _value(self, snapshot: Snapshot) -> dict[str, Any]:
        own, fleet, unix = self._identity, self._from.fleet(), self._from.wall()
        container, verdict = snapshot.container, snapshot.container.verdict
        hold = (fleet.hold if fleet else None) or self._from.local_hold()
        answered_at = snapshot.unix_of(container.answered_at)
        age_s = max(0.0, unix - answered_at)
        outlook = Outlook(unix, self._from.leaving(own.error_limit), age_s, hold)
        return {
            "service": own.service,
            "instance": own.instance,
            "incarnation": None,
            "mode": own.mode,
            "would": _would(self._from.counts, self._began_at, snapshot, unix) if own.mode == SHADOW else None,
            "alone": own.alone,
            "state": container.state,
            "since": round(snapshot.unix_of(container.since), 3),
            "at": round(unix, 3),
            "health": {"haproxy": snapshot.presented.haproxy_up, "nomad": snapshot.presented.nomad_up},
            "weight": snapshot.share,
            "soft_drained": snapshot.is_soft_drained and snapshot.enforce,
            "sentence": _sentence(snapshot, own.error_limit),
            "spared": verdict.spared if verdict else "",
            "rules": [reason._asdict() for reason in verdict.reasons] if verdict else [],
            "window": _window(snapshot, own.error_limit),
            "claim": _claim(container, age_s, answered_at),
            "budget": _budget(container, answered_at, fleet, unix - self._from.heard_s()),
            "fleet": {**fleet_members.fleet_json(fleet), "hold": fleet_members.hold_json(hold)} if fleet else None,
            "hold": fleet_members.hold_json(hold),
            "remedies": list(remedies(snapshot, outlook)),
            "history": _history(self._from.entries(0.0), own.instance),
            "runbook": _runbook(own.runbook_url, container),
        }


def _sentence(snapshot: Snapshot, error_limit: int) -> str:
    container, evidence = snapshot.container, snapshot.evidence
    if not container.haproxy_up:
        return why_down(container)
    if container.state is State.STARTING:
        return "it is not judged until its grace period is over"
    judged = reasons.verdict(container.verdict)
    if container.would_down:
        return f"it would be down but for shadow mode: {judged}"
    if container.order is not None:
        return f"{reasons.ORDERED}, the claim is on its way"
    if container.state is State.RETIRING:
        return "it is old enough to be retired and waits for a lease"
    limit = f", the limit is {error_limit}" if error_limit else ""
    return judged or f"in service: {evidence.errors} server errors in {evidence.window_s} s{limit}"


def _would(counts: Mapping[tuple[str, str], int], began_at: float, snapshot: Snapshot, unix: float) -> dict[str, Any]:
    """What enforcing would have done to this container since the sidecar started, and its weight now."""

    def total(word: str) -> int:
        return sum(number for (what, _), number in counts.items() if what == word)

    return {
        "since": round(began_at, 3),
        "for_s": round(max(0.0, unix - began_at), 3),
        "culls": total("would_cull"),
        "recovered": total("would_recover"),
        "tokens": total("granted"),
        "weight": snapshot.would_share,
        "soft_drained": snapshot.is_soft_drained,
        "refusals": {reason: number for (what, reason), number in sorted(counts.items()) if what == "denied"},
    }


def _window(snapshot: Snapshot, error_limit: int) -> dict[str, Any]:
    evidence = snapshot.evidence
    return {
        "seconds": evidence.window_s,
        "errors": evidence.errors,
        "usual": round(snapshot.baseline.usual(evidence).errors, 2),
        "limit": error_limit,
        "kinds": evidence.kinds,
        "levels": evidence.levels,
        "requests": evidence.requests,
        "failed": evidence.failed,
    }


def _claim(container: Container, age_s: float, answered_at: float) -> dict[str, Any] | None:
    answer = container.answer
    if answer is None:
        return None
    left_s = max(0.0, answer.retry_after_s - age_s) if isinstance(answer, Denied) else None
    return {
        "outcome": reasons.outcome(answer),
        "reason": reasons.reason_word(answer),
        "sentence": reasons.answer(answer),
        "retry_after_s": None if left_s is None else round(left_s, 3),
        "at": round(answered_at, 3),
    }


def _budget(container: Container, answered_at: float, fleet: Fleet | None, heard_at: float) -> dict[str, Any] | None:
    """Tokens by the last clear answer to a claim or to a beat: under a known hold the sidecar sends no claims."""
    answers = ((answered_at, container.answer), (heard_at, fleet))
    clear = [(at, answer) for at, answer in answers if answer and not isinstance(answer, Unknown) and answer.capacity]
    if not clear:
        return None
    at, counts = max(clear, key=itemgetter(0))
    left = max(0, counts.capacity - counts.used)
    return {"used": counts.used, "capacity": counts.capacity, "left": left, "at": round(at, 3)}


def _history(entries: Sequence[Entry], instance: str) -> list[dict[str, Any]]:
    """The last events of this container, the newest first, without what the app or a person wrote."""
    happened = [entry for entry in entries if entry.what in HAPPENED and entry.instance == instance]
    return [_event(entry) for entry in reversed(happened[-MOST_EVENTS:])]


def _event(entry: Entry) -> dict[str, Any]:
    reason, sentence = entry.reason, entry.detail.partition("\n")[0]
    if entry.author and entry.what in ("culled", "would_cull", "revived"):
        reason, sentence = "ordered", "a person ordered it"
    return {"at": round(entry.at, 3), "what": entry.what, "reason": reason, "sentence": sentence}


def _sample(sample: ErrorSample, offset: float) -> dict[str, Any]:
    return {
        "fingerprint": sample.fingerprint,
        "kind": sample.kind,
        "level": sample.level,
        "count": sample.errors,
        "first": round(sample.first + offset, 3),
        "last": round(sample.last + offset, 3),
        "message": redacted(sample.message, MESSAGE_LIMIT),
    }


def _runbook(url: str, container: Container) -> str:
    """The runbook for the refusal of a cull or a retirement; else the first page."""
    answer = {State.SUSPECT: container.answer, State.RETIRING: container.lease_answer}.get(container.state)
    word = reasons.reason_word(answer) if answer is not None else ""
    anchor = reasons.runbook(word)
    return f"{url}#{anchor}" if url and anchor else url


def _written(value: dict[str, Any], format_: str) -> tuple[bytes, str]:
    """The content in this format, and its type."""
    if format_ == "text":
        return as_text(value).encode(), PLAIN
    if format_ != "json":
        raise HttpError(400, "query", "format: takes json or text")
    return json.dumps(value).encode() + b"\n", JSON
