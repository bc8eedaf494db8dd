"""The table of words: for each why there is no token, the sentence, the remedy and the runbook.

Answers to claims, the log, metrics and JSON use the same words. Every word that the rules of the fleet or the store can
answer has one row here, and no row is unused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Explanation(NamedTuple):
    """One row. ``{wait}`` is the time after which it is worth asking again."""

    sentence: str
    """Why there is no token or lease; it may name the fields of ``Denied``, and ``{wait}`` is ``3m 10s``."""

    remedy: str
    """What has to happen first; ``{wait}`` is ``in 3m 10s`` or ``now``."""

    runbook: str
    """A heading in ``deploy/runbooks.md``."""


REFUSALS: Final[Mapping[str, Explanation]] = {
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
        "the replacement of the last cull for this cause stays up or fails too; the sidecar asks again {wait}",
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
        "the suspect containers are up again or culled; the sidecar asks again {wait}",
        "retirement",
    ),
    "slots": Explanation(
        "no retirement lease is free, {used} of {capacity} are in use",
        "a container that is retiring is replaced; the sidecar asks again {wait}",
        "retirement",
    ),
}
"""Why a claim, or a request for a lease, was denied. The last two rows are about leases.

A sidecar with ``old_errors`` says so itself, and asks nobody.
"""

FAILURES: Final[Mapping[str, Explanation]] = {
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
    "oom": Explanation("Redis is out of memory", "Redis has memory again: look at maxmemory and its policy", "redis"),
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
        "the certificates match: those in the options ssl_... of ARBITER_REDIS_URL, and those of Redis",
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
"""Why a request had no clear answer. The sidecar asks again, with growing pauses."""

MESSAGE_RUNBOOKS: Final[Mapping[str, str]] = {
    "budget_empty": "budget",
    "paused_shared": "paused",
    "not_honoured": "arbiternothonoured",
    "action_failed": "arbiteractionfailed",
    "redis_unknown": "redis",
    "test": "messages",
}
"""The runbooks of the messages to people. What a message says is in ``notify.messages``."""

OTHER_PROCESS: Final = Explanation(
    "Redis was restarted or failed over, no container is culled for {wait}",
    "all sidecars have told this Redis which containers are down, so that lost culls show, {wait}",
    "memory",
)
"""For ``newborn``, if the store is another process than before."""

UNKNOWN_PROCESS: Final = (
    "Redis does not tell its run_id, which takes INFO: after it was restarted or failed over, "
    "culls that it lost may be granted a second time; deploy/redis has the permissions"
)
