"""Every "no" says why: one human sentence for each verdict and each answer."""

from __future__ import annotations

from math import ceil
from typing import Final

from sidecar.core.types import Answer, Denied, Granted, Hold, Unknown, Verdict

UNKNOWN: Final = {
    "timeout": "Redis did not answer in time",
    "connection": "Redis cannot be reached",
    "auth": "Redis refused the sidecar's credentials",
    "permission": "the Redis user lacks a permission that the claim needs",
    "readonly": "this Redis is a read-only replica",
    "oom": "Redis is out of memory",
    "loading": "Redis is still loading its data",
    "busy": "Redis is busy with a script",
    "crowded": "too many calls are waiting for this Redis already",
    "response": "Redis answered with an error",
    "cluster": "the Redis Cluster cannot serve this service's keys at the moment",
    "sentinel": "no Sentinel knows where the master is",
    "tls": "the TLS handshake with Redis failed, look at the certificates",
    "secret": "the file with the Redis password cannot be read or is empty",
    "contended": "other sidecars kept changing the fleet's state at the same time",
    "quorum": "too few of the Redis servers answered",
    "alone": "there is no shared bucket",
    "internal": "the claim failed inside the sidecar",
}

DENIED: Final = {
    "hold": "no container is culled for {wait}",
    "duplicate": "two containers run under this instance name: neither may be culled or retired until one is renamed",
    "data_loss": "Redis lost its record of earlier culls, no container is culled for {wait}",
    "newborn": "Redis has not heard from the whole fleet yet, no container is culled for {wait}",
    "trial": "the outcome of the last cull for this cause is not known yet, the next cull waits for it",
    "paused": "culls for this cause are paused for {wait}: the last one has not helped",
    "causes": "culls for two other causes are being tried, this cause waits for the outcome of one of them",
    "floor": "too few of the {alive} containers would stay in service",
    "last": "this is the last container in service",
    "spacing": "the last cull was too recent, the next one is allowed in {wait}",
    "window": "all {capacity} tokens of the window are in use, the next comes back in {wait}",
    "refund_max": "the window allows no more culls, refunded ones included, the next one is allowed in {wait}",
    "culls": "culls come before retirements: {suspect} of {alive} containers are suspect",
    "slots": "no retirement lease is free, {used} of {capacity} are in use",
}
"""Why there is no token (or lease), by the word of the refusal."""

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
        return f"token granted{again}, {value.used} of {value.capacity} in use"
    if isinstance(value, Denied):
        return _denied(value)
    return f"{UNKNOWN.get(value.error, value.error)}: without a clear answer there is no token"


def _denied(value: Denied) -> str:
    sentence = value.reason
    if value.reason in DENIED:
        sentence = DENIED[value.reason].format(
            used=value.used,
            capacity=value.capacity,
            wait=span(max(1, ceil(value.retry_after_s))),
            alive=value.alive,
            suspect=value.suspect,
        )
    if value.hold is not None:
        sentence = f"{hold(value.hold)}, {sentence}"
    shared = f"; most of the {value.suspect} suspects share one cause: {value.cause}" if value.cause else ""
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
