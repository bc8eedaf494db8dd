"""The table of reasons: the sentence, the remedy and the runbook for each word.

Answers to claims, the log, metrics and JSON use the same words. Every word that the rules of the fleet or the store can
answer has one row here, and no row is unused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from types import MappingProxyType
from typing import Final, NamedTuple

from sidecar.core.types import Answer, Denied, Granted, Hold, Unknown, Verdict


class Explanation(NamedTuple):
    """One row: why there is no token or lease, what has to happen first, and a heading in ``deploy/runbooks.md``.

    A ``sentence`` may name the fields of ``Denied``. ``{wait}`` is the time after which it is worth asking again: in a
    sentence as ``3m 10s``, in a remedy as ``in 3m 10s`` or ``now``.
    """

    sentence: str
    remedy: str
    runbook: str


REFUSALS: Final[Mapping[str, Explanation]] = MappingProxyType(
    {
        "hold": Explanation(
            "no container is culled for {wait}", "the hold ends {wait}, or health-arbiter release ends it", "hold"
        ),
        "duplicate": Explanation(
            "two containers run under this instance name: neither may be culled or retired until one is renamed",
            "one of the two containers gets another ARBITER_INSTANCE; the sidecar asks again {wait}",
            "duplicate",
        ),
        "data_loss": Explanation(
            "Redis lost its record of earlier culls, no container is culled for {wait}",
            "culls are allowed again {wait}, when the culls that Redis forgot no longer count",
            "memory",
        ),
        "newborn": Explanation(
            "Redis has not heard from the whole fleet yet, no container is culled for {wait}",
            "Redis has heard from the whole fleet {wait}",
            "memory",
        ),
        "old_errors": Explanation(
            "its last error is old, it claims no token until it has another one",
            "the app has another error, and the sidecar claims within a second; or the old ones leave the window",
            "old-errors",
        ),
        "trial": Explanation(
            "the outcome of the last cull for this cause is not known yet, the next cull waits for it",
            "the replacement of the last cull for this cause stays well or fails too; the sidecar asks again {wait}",
            "trial",
        ),
        "paused": Explanation(
            "culls for this cause are paused for {wait}: the last one has not helped",
            "the pause ends {wait}; or an engineer finds what is wrong, then health-arbiter release",
            "paused",
        ),
        "causes": Explanation(
            "culls for two other causes are being tried, this cause waits for the outcome of one of them",
            "the outcome of a cull for one of the two other causes is known; the sidecar asks again {wait}",
            "trial",
        ),
        "floor": Explanation(
            "too few of the {alive} containers would stay in service",
            "replacements of culled containers come into service; the sidecar asks again {wait}",
            "floor",
        ),
        "last": Explanation(
            "this is the last container in service",
            "another container of the service comes into service; the sidecar asks again {wait}",
            "floor",
        ),
        "spacing": Explanation(
            "the last cull was too recent, the next one is allowed in {wait}",
            "the next cull of the service is allowed {wait}",
            "budget",
        ),
        "window": Explanation(
            "all {capacity} tokens of the window are in use, the next comes back in {wait}",
            "the next token comes back {wait}",
            "budget",
        ),
        "refund_max": Explanation(
            "the window allows no more culls, refunded ones included, the next one is allowed in {wait}",
            "the next cull of the service is allowed {wait}",
            "budget",
        ),
        "culls": Explanation(
            "culls come before retirements: {suspect} of {alive} containers are suspect",
            "the suspect containers are well again or culled; the sidecar asks again {wait}",
            "retirement",
        ),
        "slots": Explanation(
            "no retirement lease is free, {used} of {capacity} are in use",
            "a container that is retiring is replaced; the sidecar asks again {wait}",
            "retirement",
        ),
    }
)
"""Why a claim, or a request for a lease, was denied. The last two rows are about leases.

A sidecar with ``old_errors`` says so itself, and asks nobody.
"""

FAILURES: Final[Mapping[str, Explanation]] = MappingProxyType(
    {
        "timeout": Explanation("Redis did not answer in time", "Redis answers within ARBITER_REDIS_TIMEOUT", "redis"),
        "connection": Explanation("Redis cannot be reached", "Redis can be reached", "redis"),
        "auth": Explanation(
            "Redis refused the sidecar's credentials",
            "Redis accepts the password in ARBITER_REDIS_URL or ARBITER_REDIS_PASSWORD_FILE",
            "access",
        ),
        "permission": Explanation(
            "the Redis user lacks a permission that the claim needs",
            "the Redis user gets the permissions that the claim needs (health-arbiter doctor names them)",
            "access",
        ),
        "readonly": Explanation("this Redis is a read-only replica", "ARBITER_REDIS_URL leads to a master", "redis"),
        "oom": Explanation(
            "Redis is out of memory", "Redis has memory again: look at maxmemory and its policy", "redis"
        ),
        "loading": Explanation("Redis is still loading its data", "Redis has loaded its data", "redis"),
        "busy": Explanation(
            "Redis is busy with a script", "the script that keeps Redis busy has ended, or SCRIPT KILL ends it", "redis"
        ),
        "response": Explanation(
            "Redis answered with an error", "Redis answers without an error; its log may name the cause", "redis"
        ),
        "cluster": Explanation(
            "the Redis Cluster cannot serve this service's keys at the moment",
            "the Redis Cluster serves all slots again",
            "redis",
        ),
        "sentinel": Explanation(
            "no Sentinel knows where the master is", "a Sentinel can be reached that knows the master", "redis"
        ),
        "tls": Explanation(
            "the TLS handshake with Redis failed, look at the certificates",
            "the certificates match: ARBITER_REDIS_CA, ARBITER_REDIS_CERT and those of Redis",
            "access",
        ),
        "secret": Explanation(
            "the file with the Redis password cannot be read or is empty",
            "ARBITER_REDIS_PASSWORD_FILE can be read and holds a password",
            "access",
        ),
        "contended": Explanation(
            "other sidecars kept changing the fleet's state at the same time",
            "fewer sidecars claim at the same moment",
            "redis",
        ),
        "alone": Explanation("there is no shared store", "ARBITER_REDIS_URL names a shared store", "redis"),
        "internal": Explanation(
            "the claim failed inside the sidecar", "the failure is fixed that the sidecar's log describes", "internal"
        ),
    }
)
"""Why a request had no clear answer. The sidecar asks again, with growing pauses."""

MESSAGE_RUNBOOKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "budget_empty": "budget",
        "paused_shared": "paused",
        "not_honoured": "not-honoured",
        "action_failed": "action-failed",
        "redis_unknown": "redis",
        "test": "messages",
    }
)
"""The runbooks of the messages to people. What a message says is in ``notify.alerts``."""

_OTHER_PROCESS: Final = Explanation(
    "Redis was restarted or failed over, no container is culled for {wait}",
    "all sidecars have told this Redis which containers are down, so that lost culls show, {wait}",
    "memory",
)
"""For ``newborn``, if the store is another process than before."""

UNKNOWN_PROCESS: Final = (
    "Redis does not tell its run_id, which takes INFO: after it was restarted or failed over, "
    "culls that it lost may be granted a second time; deploy/redis has the permissions"
)

_OTHER_REFUSAL: Final = "the reason of the refusal is over; the sidecar asks again {wait}"
_UNDER_A_MINUTE: Final = 59.95

ORDERED: Final = "a person ordered the cull"
"""The public listener shows only this of an order; its author and reason are for the local listener and the log."""


def verdict(value: Verdict | None) -> str:
    """Why the verdict is excessive; empty if it is not."""
    return "; ".join(reason.sentence for reason in value.reasons) if value else ""


def rule(value: Verdict | None) -> str:
    """The name of the first detector that fired; empty if none did."""
    return value.reasons[0].rule if value and value.reasons else ""


def answer(value: Answer) -> str:
    """The answer to a claim as a sentence."""
    if isinstance(value, Granted):
        again = " (already ours)" if value.replayed else ""
        return f"token granted{again}, {value.used} of {value.capacity} in use"
    return _refused(value, "token")


def lease(value: Answer) -> str:
    """The answer to a request for a lease as a sentence."""
    if isinstance(value, Granted):
        return f"lease granted, {value.used} of {value.capacity} in use"
    return _refused(value, "lease")


def _refused(value: Denied | Unknown, what: str) -> str:
    if isinstance(value, Denied):
        return _denied(value)
    return f"{failure(value.error)}: without a clear answer there is no {what}"


def failure(error: str) -> str:
    """The sentence for an error; the error itself if this version does not know it."""
    return FAILURES[error].sentence if error in FAILURES else error


def remedy(value: Denied, wait: str) -> str:
    """What has to happen before the store grants what it refused; ``wait`` is ``in 3m 10s`` or ``now``."""
    row = _row(value)
    return (row.remedy if row else _OTHER_REFUSAL).replace("{wait}", wait)


def failure_remedy(error: str, default: str) -> str:
    """What has to happen before there is a clear answer; ``default`` for an error that this version does not know."""
    return FAILURES[error].remedy if error in FAILURES else default


def runbook(word: str) -> str:
    """The heading in ``deploy/runbooks.md`` for any word of these tables; empty for any other word."""
    row = REFUSALS.get(word) or FAILURES.get(word)
    return row.runbook if row else MESSAGE_RUNBOOKS.get(word, "")


def _denied(value: Denied) -> str:
    sentence, row = value.reason, _row(value)
    if row is not None:
        numbers = {name: getattr(value, name) for name in ("used", "capacity", "alive", "suspect")}
        sentence = row.sentence.format(wait=whole_seconds(value.retry_after_s), **numbers)
    if value.hold is not None:
        sentence = f"{hold(value.hold)}, {sentence}"
    shared = f"; {most(value.suspect, value.alive)} have {value.cause}" if value.cause else ""
    return f"{sentence}{shared}"


def _row(value: Denied) -> Explanation | None:
    """The row of a refusal; None for a word of another version."""
    return _OTHER_PROCESS if value.is_other_process else REFUSALS.get(value.reason)


def hold(value: Hold) -> str:
    """The author of a hold, what it freezes, and its reason."""
    scope = f"instance {value.instance}" if value.instance else "the service"
    return f"{value.author} holds {scope}{f': {value.reason}' if value.reason else ''}"


def lost_hold(lost: Hold) -> str:
    """What a person has to know of a hold that Redis has lost."""
    return f"Redis has lost a hold before its end ({hold(lost)}): set it again if it is still needed"


def anonymous_hold(value: Hold) -> Hold:
    """The hold without what a person wrote: the author's name and the reason."""
    return replace(value, author="a person", reason="")


def anonymous_answer(value: Answer) -> Answer:
    """The answer, and if a hold refused, the hold as ``anonymous_hold`` gives it."""
    if isinstance(value, Denied) and value.hold is not None:
        return replace(value, hold=anonymous_hold(value.hold))
    return value


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


def most(suspect: int, alive: int) -> str:
    """Whose cause the fleet names: ``All 11 containers``, or most of the suspects."""
    return f"all {alive} containers" if suspect >= alive > 1 else f"most of {suspect} suspects of {alive} containers"


def names(every: Sequence[str], most: int) -> str:
    """The first ``most`` names, and how many more: ``a, b and 3 more``."""
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def whole_seconds(seconds: float) -> str:
    """A waiting time for a person: as ``span``, rounded up to whole seconds, at least one."""
    return span(max(1, ceil(seconds)))


def reason_word(value: Answer) -> str:
    """The word of the answer: the same in the log, in metrics and in JSON."""
    if isinstance(value, Denied):
        return value.reason
    if isinstance(value, Unknown):
        return value.error
    return "replayed" if value.replayed else "granted"


def outcome(value: Answer) -> str:
    """Which of the three answers it is: ``granted``, ``denied`` or ``unknown``."""
    return type(value).__name__.lower()
