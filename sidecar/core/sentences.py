"""Every "no" says why: one human sentence for each verdict and each answer."""

from __future__ import annotations

from math import ceil
from typing import Final

from sidecar.core.words import Answer, Denied, Granted, Hold, Unknown, Verdict

UNKNOWN: Final = {
    "timeout": "Redis did not answer in time",
    "connection": "Redis cannot be reached",
    "auth": "Redis refused our credentials",
    "permission": "the Redis user may not run what the claim needs",
    "readonly": "this Redis is a read-only replica",
    "oom": "Redis is out of memory",
    "loading": "Redis is still loading its data",
    "busy": "Redis is busy with a script",
    "crowded": "too many calls wait for this Redis already",
    "response": "Redis answered with an error",
    "cluster": "the Redis Cluster cannot serve this service's keys at the moment",
    "sentinel": "no Sentinel tells where the master is",
    "tls": "the TLS handshake with Redis failed, look at the certificates",
    "secret": "the file with the Redis password cannot be read or is empty",
    "alone": "there is no shared bucket",
    "internal": "the claim failed inside the sidecar",
}

DENIED: Final = {
    "window": "all {capacity} tokens of the window are in use, the next comes back in {wait_s} s",
    "earn_max": "so many were culled in this window, proven ones too, that it is enough for {wait_s} s",
    "spacing": "the last cull was too short a time ago, the next may come in {wait_s} s",
    "hold": "nobody is culled for {wait_s} s more",
    "lost_memory": "Redis lost the memory of former culls, so none is allowed for {wait_s} s",
    "newborn": "the bucket has not heard of the whole fleet yet, wait {wait_s} s",
    "useless": "culls have stopped helping against this kind of error, a person has to look",
    "brake": "{wanting} of {alive} containers suffer at once, restarts are not what helps",
    "floor": "too few of the {alive} containers would stay in service",
    "last": "this is the last container in service",
    "slots": "as many as may be away at once already go for their age",
    "culls": "{wanting} of {alive} containers suffer, they go first",
    "share": "this Redis has spent its share of the containers that may be missing at once",
}


_UNDER_A_MINUTE: Final = 59.95

ORDERED: Final = "a person ordered the cull"
"""What the public door may tell of an order; who gave it and why is for the local door and the log only."""


def verdict(value: Verdict | None) -> str:
    """Why the evidence speaks against the app; empty when it does not."""
    return "; ".join(reason.sentence for reason in value.reasons) if value else ""


def answer(value: Answer) -> str:
    """What came of the claim."""
    if isinstance(value, Granted):
        again = " (already ours)" if value.replayed else ""
        canary = " as the canary" if value.canary else ""
        return f"token granted{canary}{again}, {value.used} of {value.capacity} in use"
    if isinstance(value, Denied):
        return _denied(value)
    return f"{UNKNOWN.get(value.error, value.error)}: without a clear answer there is no token"


def _denied(value: Denied) -> str:
    sentence = value.reason
    if value.reason in DENIED:
        wait_s = max(1, ceil(value.retry_after_s))
        sentence = DENIED[value.reason].format(
            capacity=value.capacity, wait_s=wait_s, alive=value.alive, wanting=value.wanting
        )
    if value.hold is not None:
        sentence = f"{hold(value.hold)}, {sentence}"
    shared = f"; most of the {value.wanting} that suffer share one cause: {value.cause}" if value.cause else ""
    return f"{sentence}{shared}"


def hold(value: Hold) -> str:
    """Who froze what, and why."""
    scope = f"instance {value.instance}" if value.instance else "the service"
    return f"{value.author} holds {scope}: {value.reason}"


def lease(value: Answer) -> str:
    """What came of asking for the lease of a retirement."""
    if isinstance(value, Granted):
        return f"lease granted, {value.used} of {value.capacity} in use"
    if isinstance(value, Denied):
        return _denied(value)
    return f"{UNKNOWN.get(value.error, value.error)}: without a clear answer there is no lease"


def retired(age_s: float, lifetime_s: float) -> str:
    """Why a container was retired."""
    return f"retired at age {span(age_s)}, its lifetime is {span(lifetime_s)}"


def span(seconds: float) -> str:
    """A duration for a person, in its two largest units: ``6h 2m``, ``90s`` as ``1m 30s``, ``0.5s``."""
    if seconds < _UNDER_A_MINUTE:
        return f"{round(seconds, 1):g}s"
    parts, left = [], round(seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        parts.append(f"{count}{unit}" if count else "")
    first = next(at for at, part in enumerate(parts) if part)
    return " ".join(filter(None, parts[first : first + 2]))


def reason_word(value: Answer) -> str:
    """The machine's word for the answer: the same in the log, the metric and the JSON."""
    if isinstance(value, Denied):
        return value.reason
    if isinstance(value, Unknown):
        return value.error
    return "replayed" if value.replayed else "granted"


def outcome(value: Answer) -> str:
    """Which of the three answers it is: ``granted``, ``denied`` or ``unknown``."""
    return type(value).__name__.lower()
