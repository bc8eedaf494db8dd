"""``health-arbiter doctor``: looks at every Redis server, at the sidecar on this machine and at what is round it.

It changes nothing: no beat, no claim, no hold; what it writes to see whether it may is gone before the answer comes.
What it prints holds no secret.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sidecar.app import budget_parts, rotation_plan
from sidecar.cli import local_api
from sidecar.cli.doctor import findings, job_findings, jobspec, surroundings
from sidecar.cli.doctor.findings import Finding, Level
from sidecar.cli.terminal import complain, plain, say
from sidecar.config import redis_urls, rollout
from sidecar.core.types import Member, Unknown

if TYPE_CHECKING:
    from sidecar.config.settings import Settings
    from sidecar.store.link import Link

T = TypeVar("T")

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
_WRITE: Final = "redis.call('SET', KEYS[1], '1', 'PX', '1000') return redis.call('DEL', KEYS[1])"
_WIDTH: Final = max(map(len, Level))

_Placed = tuple[str, Finding]


def main(settings: Settings, *, as_json: bool = False, job: str | None = None) -> int:
    """Print the findings, one a line or as JSON; the exit code is 1 if one of them is a failure.

    ``job``: a job file to look at too; the exit code is 2 if it is none.
    """
    try:
        groups = None if job is None else jobspec.read(job)
    except jobspec.JobError as error:
        complain(str(error))
        return EXIT_USAGE
    settings = rollout.effective(settings)
    found = asyncio.run(_all(settings, groups, print_each=not as_json))
    failed = any(each.level is Level.FAIL for _, each in found)
    if as_json:
        rows = [{"where": place, **each._asdict()} for place, each in found]
        say(json.dumps({"failed": failed, "findings": rows}, indent=2))
    return EXIT_FAILED if failed else 0


async def _all(settings: Settings, groups: list[jobspec.Group] | None, *, print_each: bool) -> list[_Placed]:
    """Every finding; each is printed as soon as it is found, if it is to be."""
    found = []
    async for place, each in examined(settings, groups):
        found.append((place, each))
        if print_each:
            where = f" {place}" if place else ""
            say(plain(f"{each.level:<{_WIDTH}} {each.what}{where}: {each.sentence}"))
    return found


async def examined(settings: Settings, groups: list[jobspec.Group] | None = None) -> AsyncIterator[_Placed]:
    """Every finding with the masked URL that it is about, ``""`` where that is plain or it is about no server."""
    members: list[Member] = []
    if not settings.redis_url:
        yield "", Finding(Level.OK, "bucket", "in memory: this sidecar has a budget of its own, and knows no fleet")
    else:
        async for place, found in _servers(settings, members):
            yield place, found
    for found in _round_it(settings, members, groups):
        yield "", found


def _round_it(settings: Settings, members: list[Member], groups: list[jobspec.Group] | None) -> Iterator[Finding]:
    yield from _sidecar(settings, members)
    yield surroundings.of_state(settings)
    yield from surroundings.of_nomad(settings, os.environ)
    if groups is not None:
        yield from job_findings.of_job(groups, settings.drain, settings.stop_drain)


# -- the servers ------------------------------------------------------------------------------------------------


async def _servers(settings: Settings, members: list[Member]) -> AsyncIterator[_Placed]:
    try:
        servers = budget_parts.servers(settings)
    except ValueError as error:
        yield "", Finding(Level.FAIL, "settings", f"ARBITER_REDIS_URL: {error}")
        return
    run_ids: dict[str, str] = {}
    for server in servers:
        async for found in _server(settings, server, run_ids, members):
            yield server.name if len(servers) > 1 or found.what == "reachable" else "", found
    for found in findings.of_identity(run_ids, len(servers)):
        yield "", found


async def _server(
    settings: Settings, server: budget_parts.Server, run_ids: dict[str, str], members: list[Member]
) -> AsyncIterator[Finding]:
    """Look at one; its run id goes to ``run_ids``, whom it has heard of to ``members``."""
    from sidecar.store.link import Link  # noqa: PLC0415 - a doctor without Redis needs no client

    probe = _Probe(Link(server.url, settings.redis_timeout, budget_parts.access(settings)), settings.redis_timeout)
    is_cluster_url = redis_urls.is_cluster(server.url)
    try:
        if is_cluster_url:
            await probe.find(f"{budget_parts.prefix(settings)}:grants")
        reach = findings.of_reach(await probe.ping())
        yield reach
        if reach.level is Level.FAIL:
            return
        yield findings.of_clock(await probe.ahead())
        info = await probe.info()
        if not isinstance(info, Unknown) and "run_id" in info:
            run_ids[server.name] = info["run_id"]
        for found in findings.of_info(info, await probe.save(), is_cluster_url=is_cluster_url):
            yield found
        yield findings.of_write(await probe.write(f"{budget_parts.prefix(settings)}:doctor"))
        roll = await budget_parts.fleet_budget(settings, [(server.name, server.store)]).roll()
        for found in findings.of_roll(roll, settings.instance):
            yield found
        if not isinstance(roll, Unknown):
            members += roll.members
            for found in findings.of_renewal(rotation_plan.plan(settings), roll.fleet):
                yield found
    finally:
        await probe.aclose()
        await server.store.aclose()


class _Probe:
    """The questions to one server; what goes wrong is ``Unknown``, as with claims."""

    def __init__(self, link: Link, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s

    async def find(self, key: str) -> None:
        """Find the owner of this key in a Cluster, so that all other questions go there."""
        await self._ask(_nothing, "EVAL", "return 1", "1", key)

    async def ping(self) -> float | Unknown:
        """How long a PING takes once we are connected, in seconds."""
        reached = await self._ask(_nothing, "PING")
        begun = time.perf_counter()
        answer = reached if isinstance(reached, Unknown) else await self._ask(_nothing, "PING")
        return answer if isinstance(answer, Unknown) else time.perf_counter() - begun

    async def ahead(self) -> float | Unknown:
        """By how many seconds the server's clock is ahead of ours."""
        begun = time.time()
        told = await self._ask(_unix_s, "TIME")
        return told if isinstance(told, Unknown) else told - (begun + time.time()) / 2

    async def info(self) -> dict[str, str] | Unknown:
        """What it says of itself."""
        return await self._ask(_fields, "INFO")

    async def save(self) -> str | Unknown:
        """When it takes snapshots; empty for never."""
        return await self._ask(_setting, "CONFIG", "GET", "save")

    async def write(self, key: str) -> Unknown | None:
        """Write there, and take it away again in the same moment."""
        return await self._ask(_nothing, "EVAL", _WRITE, "1", key)

    async def aclose(self) -> None:
        """End the connection."""
        await self._link.aclose()

    async def _ask(self, read: Callable[[Any], T], *command: str) -> T | Unknown:
        from sidecar.store.link import error_word  # noqa: PLC0415 - as in _server

        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._link.ask(read, *command)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            return Unknown(error_word(error))


def _nothing(_reply: object) -> None:
    """The answer is all that matters."""


def _unix_s(reply: list[bytes]) -> float:
    seconds, micros = map(int, reply)
    return seconds + micros / 1_000_000


def _fields(reply: bytes) -> dict[str, str]:
    rows = (line.partition(":") for line in reply.decode().splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in rows if name}


def _setting(reply: list[bytes]) -> str:
    _, value = reply
    return value.decode()


# -- the sidecar on this machine --------------------------------------------------------------------------------


def _sidecar(settings: Settings, members: list[Member]) -> Iterator[Finding]:
    try:
        seen = local_api.ask(settings, "GET", "/fleet").value
    except local_api.NoSidecarError as error:
        yield Finding(Level.WARN, "sidecar", str(error))
        return
    if "bucket" in seen:
        yield from findings.of_bucket(settings.redis_url, seen["bucket"])
    names = ("namespace", "service", "instance", "mode")
    differs = [name for name in names if seen.get(name) != getattr(settings, name)]
    if differs:
        named = ", ".join(f"ARBITER_{name.upper()}" for name in differs)
        yield Finding(Level.WARN, "sidecar", f"the one that answers runs with other settings: {named}")
        return
    word = seen.get("error")
    if word not in (None, local_api.ALONE):
        yield Finding(Level.WARN, "sidecar", f"it answers, and has no answer of the bucket: {seen.get('sentence')}")
    else:
        yield Finding(Level.OK, "sidecar", "it answers at its local door")
        yield from findings.of_beat(members, settings.instance)
    yield from surroundings.of_doors(settings)
