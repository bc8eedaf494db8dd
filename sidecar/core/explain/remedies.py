"""What would clear it: one sentence for each thing that stands between the container and being in service, or culled.

Sentences for an engineer at night: what has to happen, in how long, and what a hand can do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final, NamedTuple

from sidecar.core.explain import reasons as sentences
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Answer, Denied, Evidence, Hold, Judgement, Reason, State, Unknown

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400

DENIED: Final = {
    "hold": "the hold ends {wait}, or health-arbiter release ends it",
    "duplicate": "one of the two containers gets another ARBITER_INSTANCE; the sidecar asks again {wait}",
    "data_loss": "culls are allowed again {wait}, when the culls that Redis forgot no longer count",
    "newborn": "Redis has heard from the whole fleet {wait}",
    "trial": "the replacement of the last cull for this cause stays well or fails too; the sidecar asks again {wait}",
    "paused": "the pause ends {wait}; or an engineer finds what is wrong, then health-arbiter release",
    "causes": "the outcome of a cull for one of the two other causes is known; the sidecar asks again {wait}",
    "floor": "replacements of culled containers come into service; the sidecar asks again {wait}",
    "last": "another container of the service comes into service; the sidecar asks again {wait}",
    "spacing": "the next cull of the service is allowed {wait}",
    "window": "the next token comes back {wait}",
    "refund_max": "the next cull of the service is allowed {wait}",
    "culls": "the suspect containers are well again or culled; the sidecar asks again {wait}",
    "slots": "a container that is retiring is replaced; the sidecar asks again {wait}",
}
"""By the word of the refusal; ``{wait}`` is when it is worth asking again, as the store said."""

REFUSED: Final = "the reason of the refusal is over; the sidecar asks again {wait}"

UNKNOWN: Final = {
    "timeout": "Redis answers within ARBITER_REDIS_TIMEOUT",
    "connection": "Redis can be reached",
    "auth": "Redis accepts the password in ARBITER_REDIS_URL or ARBITER_REDIS_PASSWORD_FILE",
    "permission": "the Redis user gets the permissions that the claim needs (health-arbiter doctor names them)",
    "readonly": "ARBITER_REDIS_URL leads to a master",
    "oom": "Redis has memory again: look at maxmemory and its policy",
    "loading": "Redis has loaded its data",
    "busy": "the script that keeps Redis busy has ended, or SCRIPT KILL ends it",
    "crowded": "Redis answers the calls that are waiting already",
    "response": "Redis answers without an error; its log may name the cause",
    "cluster": "the Redis Cluster serves all slots again",
    "sentinel": "a Sentinel can be reached that knows the master",
    "tls": "the certificates match: ARBITER_REDIS_CA, ARBITER_REDIS_CERT and those of Redis",
    "secret": "ARBITER_REDIS_PASSWORD_FILE can be read and holds a password",
    "contended": "fewer sidecars claim at the same moment",
    "quorum": "more than half of the Redis servers answer",
    "alone": "ARBITER_REDIS_URL names a shared bucket",
    "internal": "the failure is fixed that the sidecar's log describes",
}
"""By the word of what was no clear answer. The sidecar asks again all the time, with growing pauses."""

UNCLEAR: Final = "Redis gives a clear answer"
REPLACED: Final = "the container is replaced, or health-arbiter revive"


class Outlook(NamedTuple):
    """What ``clears`` has to know beside the snapshot.

    ``leaving``: so many errors leave the window in so many seconds, and then it is below its limit. ``answer_age_s``:
    how old the last answer to a claim is. ``hold``: the one in force. ``unix``: Unix time in seconds.
    """

    unix: float
    leaving: tuple[int, int] = (0, 0)
    answer_age_s: float = 0.0
    hold: Hold | None = None


def clears(seen: Snapshot, outlook: Outlook) -> tuple[str, ...]:
    """What would clear the state of ``seen``, a sentence for each thing; never none."""
    return tuple(_STATES[seen.container.state](seen, outlook))


def _starting(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield f"its grace is over, and it is judged, {_in(seen.container.due, seen.now)}"


def _up(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    if seen.container.verdict and seen.container.verdict.judgement is not Judgement.FINE:
        yield from _evidence(seen, outlook)
    else:
        yield "nothing has to change: it is in service"


def _suspect(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    container = seen.container
    yield from _evidence(seen, outlook)
    if container.would_down:
        yield "shadow mode: nothing happens to it until then"
    elif container.asking:
        yield "the answer to its claim is on the way" + (", an operator ordered the cull" if container.order else "")
    elif not container.is_heard and container.order is None:
        answers = UNKNOWN.get(seen.beat_error, "Redis answers a beat")
        yield f"{answers}, so that the fleet hears that it is suspect; then it claims a token"
    elif container.answer is None:
        yield f"it claims a token {_in(container.due, seen.now)}, unless its errors have left the window by then"
    else:
        yield _asked(container.answer, seen, outlook)


def _asked(answer: Answer, seen: Snapshot, outlook: Outlook) -> str:
    """What has to happen for a request to be granted that was not."""
    again = f"the sidecar asks again {_in(seen.container.due, seen.now)}"
    if isinstance(answer, Unknown):
        return f"{UNKNOWN.get(answer.error, UNCLEAR)}; {again}"
    if not isinstance(answer, Denied):
        return again
    if answer.reason == "hold" and outlook.hold is not None:
        return hold(outlook.hold, outlook.unix)
    left_s = answer.retry_after_s - outlook.answer_age_s
    sentence = DENIED.get(answer.reason, REFUSED)
    return sentence.replace("{wait}", f"in {lasting(left_s)}" if left_s > 0 else "now")


def hold(value: Hold, unix: float) -> str:
    """When a hold ends, and how else."""
    return f"the hold by {value.author} ends {at(value.until, unix)}, or health-arbiter release ends it"


def _evidence(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    """When each rule that speaks will be silent, if nothing more comes."""
    reasons = seen.container.verdict.reasons if seen.container.verdict else ()
    for reason in reasons:
        yield _RULES.get(reason.rule, _leaves)(reason, seen.evidence, outlook)


def _errors(_reason: Reason, evidence: Evidence, outlook: Outlook) -> str:
    count, left_s = outlook.leaving
    if not count:
        return "the next check sees that the errors have left the window"
    return f"{count} of {evidence.errors} errors leave the window in {lasting(left_s)}, if no more come"


def _leaves(_reason: Reason, evidence: Evidence, _outlook: Outlook) -> str:
    left_s = evidence.window_s - (evidence.newest_age_s or 0)
    return f"the counted errors leave the window within {lasting(left_s)}, if no more come"


def _ratio(reason: Reason, _evidence: Evidence, _outlook: Outlook) -> str:
    return f"less than {100 * reason.limit:.3g} % of the requests fail"


def _consecutive(_reason: Reason, _evidence: Evidence, _outlook: Outlook) -> str:
    return "one request goes well"


def _heartbeat(_reason: Reason, _evidence: Evidence, _outlook: Outlook) -> str:
    return "the app sends a heartbeat"


def _scrape(_reason: Reason, _evidence: Evidence, _outlook: Outlook) -> str:
    return "the app answers a scrape"


_RULES: Final = {
    "errors": _errors,
    "kind": _leaves,
    "fatal": _leaves,
    "ratio": _ratio,
    "consecutive": _consecutive,
    "heartbeat": _heartbeat,
    "scrape": _scrape,
}


def _retiring(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    answer = seen.container.lease_answer
    if answer is None:
        yield f"it asks for a lease {_in(seen.container.due, seen.now)}"
    else:
        yield _asked(answer, seen, outlook)
    yield "or the app is replaced before that"


def _draining(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield f"it is down {_in(seen.container.due, seen.now)}, or earlier when no request is in flight; then: {REPLACED}"


def _down(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield REPLACED
    ends = seen.container.lease_ends
    if ends is not None:
        yield f"or nobody replaces it, and its lease runs out {_in(ends, seen.now)}: then it is up again"


def _stopping(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield "the sidecar is started again"
    if seen.container.latch is not None:
        yield REPLACED


_STATES: Final = {
    State.STARTING: _starting,
    State.UP: _up,
    State.SUSPECT: _suspect,
    State.RETIRING: _retiring,
    State.DRAINING: _draining,
    State.DOWN: _down,
    State.STOPPING: _stopping,
}


def _in(due: float | None, now: float) -> str:
    """When something comes that is due on the controller's clock; unless that is known, it is at the next check."""
    if due is None:
        return "at the next check"
    return f"in {lasting(due - now)}" if due > now else "now"


def lasting(seconds: float) -> str:
    """How long to wait at the most, in whole seconds: ``3m 10s``."""
    return sentences.span(max(1, ceil(seconds)))


def at(until: float, unix: float) -> str:
    """The time of day in UTC at which something is that is ahead; in how long, if that is not within a day."""
    clock = f"{int(until) % DAY_S // HOUR_S:02}:{int(until) % HOUR_S // MINUTE_S:02} UTC"
    return f"at {clock}" if until - unix < DAY_S else f"in {lasting(until - unix)}, at {clock}"
