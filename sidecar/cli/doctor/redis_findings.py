"""The findings of ``doctor`` about Redis: what it says of itself, what its user may do, and the fleet in it.

Nothing is changed: no beat, no claim, no hold, and the test key is removed at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, TypeVar

from sidecar.app import build_store
from sidecar.cli.doctor import Finding, fail, ok, warn
from sidecar.config import redis_urls, syntax
from sidecar.config.settings import Config
from sidecar.core.claims import Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet.fleet_settings import OFF, FleetSettings, Share
from sidecar.core.fleet.members import MemberList
from sidecar.core.types import US_PER_S
from sidecar.runlock import durations
from sidecar.store.protocol import StoreError
from sidecar.store.redis_client import RedisClient

T = TypeVar("T")
Ask = Callable[..., Awaitable[Any]]
Info = Mapping[str, str]
"""The reply to INFO: field and value."""

CLOCK_LIMIT_S: Final = 5.0
NAMES_LIMIT: Final = 5
"""Maximum number of instance names in one sentence."""

_WRITE: Final = "redis.call('SET', KEYS[1], '1', 'PX', '1000') return redis.call('DEL', KEYS[1])"
_OTHER_SERVICE: Final = "{ha:doctor/other}:doctor"


async def of_redis(config: Config) -> list[Finding]:
    """Ask the server for all that ``doctor`` looks at; after a server that does not answer there is nothing more."""
    url, timeout_s, prefix = config.redis.redis_url, config.redis.redis_timeout, build_store.prefix(config)
    try:  # in a Cluster every command goes to the owner of the service's keys
        client = RedisClient(url, timeout_s, config.redis.redis_password_file, f"{prefix}:grants")
    except ValueError as error:
        return [fail("settings", f"ARBITER_REDIS_URL: {error}")]
    ask = partial(_ask, client, timeout_s)
    budget = build_store.fleet_budget(config, build_store.redis_store(config))
    async with aclosing(client), aclosing(budget):
        ahead_s = await _ahead_s(ask)
        if isinstance(ahead_s, Unknown) and ahead_s.error != "permission":
            return [fail("reachable", f"{redis_urls.masked(url)}: {reasons.unreachable(ahead_s)}")]
        save = await ask(lambda reply: reply[1].decode(), "CONFIG", "GET", "save")
        info = await ask(_fields, "INFO")
        own = await ask(_nothing, "EVAL", _WRITE, "1", f"{prefix}:doctor")
        others = await ask(_nothing, "EVAL", "return 1", "1", _OTHER_SERVICE)
        members = await budget.member_list()
    is_node = not isinstance(info, Unknown) and info.get("cluster_enabled") == "1" and not redis_urls.is_cluster(url)
    return [
        ok("reachable", f"{redis_urls.masked(url)} answers"),
        of_clock(ahead_s),
        *of_info(info, save),
        *([warn("cluster", "the server is a node of a Cluster: its URL is redis+cluster://...")] if is_node else []),
        *of_rights(own, others),
        *of_fleet(members, config.identity.instance),
    ]


async def _ask(client: RedisClient, timeout_s: float, read: Callable[[Any], T], *command: str) -> T | Unknown:
    """The answer to one command; a failure is ``Unknown``, as with claims."""
    try:
        async with asyncio.timeout(timeout_s):
            return await client.ask(read, *command)
    except StoreError as error:
        return Unknown(error.word, error.said)
    except TimeoutError:
        return Unknown("timeout", client.silence())


async def _ahead_s(ask: Ask) -> float | Unknown:
    """The seconds by which the server's clock is ahead of this machine's."""
    begun = time.time()
    answer: float | Unknown = await ask(_unix_s, "TIME")
    return answer if isinstance(answer, Unknown) else answer - (begun + time.time()) / 2


def _nothing(_reply: object) -> None:
    """Ignore the reply: only its success matters."""


def _unix_s(reply: Sequence[bytes]) -> float:
    seconds, micros = map(int, reply)
    return seconds + micros / 1_000_000


def _fields(reply: bytes) -> dict[str, str]:
    rows = (line.partition(":") for line in reply.decode().splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in rows if name}


# -- the server -------------------------------------------------------------------------------------------------


def of_clock(ahead_s: float | Unknown) -> Finding:
    """Whether the server's clock agrees with this machine's."""
    if isinstance(ahead_s, Unknown):
        return warn("clock", f"cannot tell: {reasons.unreachable(ahead_s)}")
    if abs(ahead_s) > CLOCK_LIMIT_S:
        text = f"the server is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine"
        return warn("clock", f"{text}; the budget goes by the server's clock")
    return ok("clock", f"it differs from ours by {abs(ahead_s):.1f} s")


def of_info(info: Info | Unknown, save: str | Unknown) -> Iterator[Finding]:
    """The findings about the server's reply to INFO and its setting ``save``."""
    if isinstance(info, Unknown):
        yield warn("server", f"cannot tell its version, role and persistence: {reasons.unreachable(info)}")
        return
    name, version = info.get("server_name", "redis"), info.get("redis_version", "unknown")
    yield ok("version", f"{name} {info.get(f'{name}_version', version)}")
    if info.get("role") == "master":
        yield ok("role", f"master, with {info.get('connected_slaves', '0')} replicas")
    else:
        yield fail("role", "a read-only replica, which cannot grant: the URL has to lead to its master")
    policy = info.get("maxmemory_policy", "unknown")
    if info.get("maxmemory") == "0" or policy == "noeviction":
        yield ok("eviction", "none")
    else:
        yield warn("eviction", f"{policy}: it may forget culls when its memory is full; set noeviction")
    yield _persistence(info, save)


def _persistence(info: Info, save: str | Unknown) -> Finding:
    if info.get("aof_enabled") == "1":
        return ok("persistence", "append-only file")
    if isinstance(save, Unknown):
        is_refused = save.error == "permission"
        why = "this user may not use CONFIG GET; claims do not need it" if is_refused else reasons.unreachable(save)
        return warn("persistence", f"no append-only file, and whether it takes snapshots is not known: {why}")
    if save:
        return ok("persistence", "snapshots: a restart forgets what came after the last one")
    return warn("persistence", "none: a restart forgets all culls; set appendonly yes")


def of_rights(own: Unknown | None, others: Unknown | None) -> Iterator[Finding]:
    """What the user may write: a key of the service, and by a script that does nothing one of another service."""
    if own is not None:
        yield fail("write", f"nothing can be written, so no container can be culled: {reasons.unreachable(own)}")
        return
    yield ok("write", "a key of the service was written and removed again")
    if others is None:
        text = "this user may write the keys of every service, and so may everyone who learns its password"
        yield warn("user", f"{text}; deploy/redis has a user for a single service")
    elif others.error == "permission":
        yield ok("user", "it may not write the keys of other services")


# -- the fleet --------------------------------------------------------------------------------------------------


def of_fleet(members: MemberList | Unknown, instance: str) -> Iterator[Finding]:
    """What the sidecars of the service have set, as the store has it. How the fleet is, ``fleet`` says."""
    if isinstance(members, Unknown):
        yield fail("scripts", f"the fleet's state cannot be read: {reasons.unreachable(members)}")
        return
    yield ok("scripts", f"they run; {members.used} tokens are in use")
    names = [member.instance for member in members.members]
    if others := sum(name != instance for name in names):
        number = "1 other instance is" if others == 1 else f"{others} other instances are"
        yield ok("shared", f"{number} seen, {'and' if instance in names else 'but not'} this one")
    else:
        text = "no other instance is seen: they use another store (URL, namespace, service, mode), or do not run"
        yield warn("shared", text)
    if double := [member.instance for member in members.members if member.duplicate]:
        named = f"{reasons.names(double, NAMES_LIMIT)}; give each an ARBITER_INSTANCE of its own"
        yield fail("duplicate", f"two containers run under one instance name, and neither may be culled: {named}")
    yield _of_settings(members.settings)


def _of_settings(texts: tuple[str, ...]) -> Finding:
    if len(texts) <= 1:
        return ok("settings", "all sidecars run with the same ones")
    differing = differences(texts)
    if ADDRESS in differing:
        return fail("settings", f"{differing}: no culls while the addresses differ, and for a window after that")
    return warn("settings", f"{len(texts)} different sets are in force, the strictest of each holds: {differing}")


def _share(text: str) -> str:
    amount, is_part = Share.load(text)
    return syntax.write_share(amount, is_part=is_part)


def _duration(us: int) -> str:
    return durations.write(us / US_PER_S)


_SETTINGS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "strategy": ("ARBITER_BUDGET_STRATEGY", str),
    "capacity": ("ARBITER_BUDGET", _share),
    "window_us": ("ARBITER_BUDGET_WINDOW", _duration),
    "min_healthy": ("ARBITER_MIN_HEALTHY", _share),
    "spacing_us": ("ARBITER_SPACING", _duration),
    "trial": ("ARBITER_TRIAL", lambda is_on: "on" if is_on else "off"),
    "probation_us": ("ARBITER_PROBATION", _duration),
    "refund_max": ("ARBITER_REFUND", lambda most: "off" if most == OFF else "on"),
    "after_loss_wait": ("ARBITER_AFTER_DATA_LOSS", lambda waits: "wait" if waits else "continue"),
    "beat_us": ("ARBITER_BEAT_INTERVAL", _duration),
    # The settings of an earlier version do not tell it.
    "error_limit": ("ARBITER_ERROR_LIMIT", lambda limit: str(limit or "")),
}
"""Field -> the setting that should be the same in all sidecars of a service, and how an operator writes its value."""

ADDRESS: Final = "ARBITER_REDIS_URL"
"""The setting whose values no sidecar writes down, only a digest of them."""


def differences(texts: Sequence[str]) -> str:
    """The settings that differ with all of their values; a text that this version cannot read, as it is.

    Each text is what a sidecar wrote into the store: that of ``FleetSettings``.
    """
    loaded = [(text, FleetSettings.load(text)) for text in texts]
    readable, unread = [each for _, each in loaded if each], [text for text, each in loaded if not each]
    differing = []
    for field, (name, write) in _SETTINGS.items():
        values = dict.fromkeys(filter(None, (write(getattr(each, field)) for each in readable)))
        if len(values) > 1:
            differing.append(f"{name} is {' and '.join(values)}")
    addresses = {each.servers for each in readable}
    if len(addresses) > 1:
        differing.append(f"{ADDRESS} names {len(addresses)} different addresses")
    # If no known setting differs, the texts come from a newer version.
    return "; ".join([*differing, *unread]) or "  ".join(texts)
