"""What would clear it: one sentence for each thing that stands between the container and being in service, or culled.

Sentences for an engineer at night: what has to happen, in how long, and what a hand can do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final, NamedTuple

from sidecar.core import sentences
from sidecar.core.records import Snapshot
from sidecar.core.words import Answer, Brake, Denied, Evidence, Hold, Judgement, Reason, State, Unknown

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400

DENIED: Final = {
    "window": "the next token comes back {wait}",
    "earn_max": "so many culls are enough; the next may come {wait}",
    "spacing": "the next cull of the service may come {wait}",
    "hold": "the hold ends {wait}, or health-arbiter release ends it",
    "lost_memory": "the bucket is trusted again {wait}, when culls that it forgot no longer count",
    "newborn": "the bucket has heard of the whole fleet {wait}",
    "useless": "a person finds what is wrong, then health-arbiter release; or culls for this kind are tried again when "
    "it was quiet for an hour",
    "brake": "fewer containers suffer at once, or the canary's replacement stays well; it is asked again {wait}",
    "floor": "more containers are in service, as those that were culled are replaced; it is asked again {wait}",
    "last": "another container of the service comes into service; it is asked again {wait}",
    "slots": "one of those that go for their age is replaced; it is asked again {wait}",
    "culls": "the containers that suffer are well again or culled; it is asked again {wait}",
    "share": "one of the containers that are missing is replaced; it is asked again {wait}",
}
"""By the word of the refusal; ``{wait}`` is when it is worth asking again, as the bucket said."""

BRAKED: Final = {
    Brake.OPEN: "the brake is open meanwhile, for the canary's replacement stayed well; it is asked again {wait}",
    Brake.CLOSED: "the canary did not help: a person finds what is wrong, then health-arbiter release; or fewer "
    "containers suffer at once",
}
"""What stands in the place of the brake's sentence where it is known to have moved on."""

REFUSED: Final = "what refused it is over; it is asked again {wait}"

UNKNOWN: Final = {
    "timeout": "Redis answers within ARBITER_REDIS_TIMEOUT",
    "connection": "Redis can be reached",
    "auth": "Redis takes the password in ARBITER_REDIS_URL or ARBITER_REDIS_PASSWORD_FILE",
    "permission": "the Redis user is allowed what the claim needs (health-arbiter doctor tells)",
    "readonly": "ARBITER_REDIS_URL leads to a master",
    "oom": "Redis has memory again: look at maxmemory and its policy",
    "loading": "Redis has loaded its data",
    "busy": "the script that keeps Redis busy has ended, or SCRIPT KILL ends it",
    "crowded": "Redis answers the calls that wait already",
    "response": "Redis answers without an error, which its log may tell of",
    "cluster": "the Redis Cluster serves all slots again",
    "sentinel": "a Sentinel can be reached that knows the master",
    "tls": "the certificates suit: ARBITER_REDIS_CA, ARBITER_REDIS_CERT and what Redis has",
    "secret": "ARBITER_REDIS_PASSWORD_FILE can be read and holds a password",
    "alone": "ARBITER_REDIS_URL names a shared bucket",
    "internal": "the failure is mended that the sidecar's log tells of",
}
"""By the word of what was no clear answer. It is asked again all the time, with growing pauses."""

UNCLEAR: Final = "the bucket gives a clear answer"
REPLACED: Final = "the container is replaced, or health-arbiter revive"


class Outlook(NamedTuple):
    """What ``clears`` has to know beside the snapshot.

    ``leaving``: so many errors leave the window in so many seconds, and then it is below its limit. ``answer_age_s``:
    how old the last answer to a claim is. ``hold``: the one in force. ``brake``: where the fleet's stands, if that is
    known. ``unix``: Unix time in seconds.
    """

    unix: float
    leaving: tuple[int, int] = (0, 0)
    answer_age_s: float = 0.0
    hold: Hold | None = None
    brake: Brake | None = None


def clears(seen: Snapshot, outlook: Outlook) -> tuple[str, ...]:
    """What would clear the state of ``seen``, a sentence for each thing; never none."""
    return tuple(_STATES[seen.standing.state](seen, outlook))


def _starting(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield f"its grace is over, and it is judged, {_in(seen.standing.due, seen.now)}"


def _up(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    if seen.standing.verdict and seen.standing.verdict.judgement is not Judgement.FINE:
        yield from _evidence(seen, outlook)
    else:
        yield "nothing has to be: it is in service"


def _suspect(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    standing = seen.standing
    yield from _evidence(seen, outlook)
    if standing.would_down:
        yield "shadow mode: nothing happens to it until then"
    elif standing.asking:
        yield "the answer to its claim is on the way" + (", which a person ordered" if standing.order else "")
    elif standing.answer is None:
        yield f"it claims a token {_in(standing.due, seen.now)}, unless the evidence is gone by then"
    else:
        yield _asked(standing.answer, seen, outlook)


def _asked(answer: Answer, seen: Snapshot, outlook: Outlook) -> str:
    """What has to happen for a request to be granted that was not."""
    again = f"it is asked again {_in(seen.standing.due, seen.now)}"
    if isinstance(answer, Unknown):
        return f"{UNKNOWN.get(answer.error, UNCLEAR)}; {again}"
    if not isinstance(answer, Denied):
        return again
    if answer.reason == "hold" and outlook.hold is not None:
        return hold(outlook.hold, outlook.unix)
    left_s = answer.retry_after_s - outlook.answer_age_s
    sentence = DENIED.get(answer.reason, REFUSED)
    if answer.reason == "brake" and outlook.brake is not None:
        sentence = BRAKED.get(outlook.brake, sentence)
    return sentence.replace("{wait}", f"in {lasting(left_s)}" if left_s > 0 else "now")


def hold(value: Hold, unix: float) -> str:
    """When a hold ends, and how else."""
    return f"the hold by {value.author} ends {at(value.until, unix)}, or health-arbiter release ends it"


def _evidence(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    """When each rule that speaks will be silent, if nothing more comes."""
    reasons = seen.standing.verdict.reasons if seen.standing.verdict else ()
    for reason in reasons:
        yield _RULES.get(reason.rule, _leaves)(reason, seen.evidence, outlook)


def _errors(_reason: Reason, evidence: Evidence, outlook: Outlook) -> str:
    count, left_s = outlook.leaving
    if not count:
        return "the next check sees that the errors have left the window"
    return f"{count} of {evidence.errors} errors leave the window in {lasting(left_s)}, if no more come"


def _leaves(_reason: Reason, evidence: Evidence, _outlook: Outlook) -> str:
    left_s = evidence.window_s - (evidence.newest_age_s or 0)
    return f"what speaks against it leaves the window within {lasting(left_s)}, if no more comes"


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
    answer = seen.standing.lease_answer
    if answer is None:
        yield f"it asks for a lease {_in(seen.standing.due, seen.now)}"
    else:
        yield _asked(answer, seen, outlook)
    yield "or the app is replaced before that"


def _draining(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield f"it is down {_in(seen.standing.due, seen.now)}, or earlier when no request is in flight; then: {REPLACED}"


def _down(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield REPLACED
    ends = seen.standing.lease_ends
    if ends is not None:
        yield f"or nobody replaces it, and its lease runs out {_in(ends, seen.now)}: then it is up again"


def _stopping(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield "the sidecar is started again"
    if seen.standing.latch is not None:
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
    """When something comes that is due on the hall's clock; unless that is known, it is at the next check."""
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
