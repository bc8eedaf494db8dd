"""``doctor``: what is wrong with the Redis servers, the sidecar of this machine, its directories and its job.

It changes nothing: no beat, no claim, no hold; its test key is removed at once. It prints no secret.
"""

from __future__ import annotations

import asyncio
import os
import time
from binascii import crc_hqx
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from typing import Any, Final, TypeVar

import click

from sidecar.app import build_store
from sidecar.cli import local_api
from sidecar.cli.colours import coloured
from sidecar.cli.doctor import findings, job_findings, jobspec, scrape_findings, surroundings
from sidecar.cli.doctor.findings import Finding, FindingLevel, fail, ok, warn
from sidecar.cli.exit_codes import EXIT_FAILED, EXIT_NO_SIDECAR
from sidecar.cli.parameters import show
from sidecar.cli.terminal import plain
from sidecar.config import redis_urls
from sidecar.config.settings import Config
from sidecar.config.urls import Target
from sidecar.core.fleet.members import Member
from sidecar.core.types import Fleet, Unknown
from sidecar.store.protocol import StoreError
from sidecar.store.redis_client import RedisClient
from sidecar.store.redis_errors import certificate_refusal

T = TypeVar("T")

NO_SIDECAR: Final = "no_sidecar"
"""The finding that none answers on this machine. A job can be checked without one."""

_WRITE: Final = "redis.call('SET', KEYS[1], '1', 'PX', '1000') return redis.call('DEL', KEYS[1])"
_WIDTH: Final = max(map(len, FindingLevel))


def main(effective: Config, *, as_json: bool, job: str | None, page: str | None = None, is_here: bool = True) -> int:
    """Print the findings, one per line or as JSON, and return the exit code.

    It is that of a failure, else without ``job`` and ``page`` that of a missing sidecar.
    ``job``: the path of a job in JSON to check too. ``page``: the URL of a metrics page for which to propose selectors.
    ``is_here``: whether to look at this machine and its store. Raises UsageError if one of them is not that.
    """
    groups = None if job is None else jobspec.read(job)
    target = None if page is None else scrape_findings.target(page)
    found = asyncio.run(_all(_examined(effective, groups, target, is_here=is_here), print_each=not as_json))
    failed = any(each.level is FindingLevel.FAIL for each in found)
    if as_json:
        show({"failed": failed, "findings": [each._asdict() for each in found]})
    if not failed and job is None and page is None and any(each.what == NO_SIDECAR for each in found):
        return EXIT_NO_SIDECAR
    return EXIT_FAILED if failed else 0


async def _all(examined: AsyncIterator[Finding], *, print_each: bool) -> list[Finding]:
    """Every finding; with ``print_each`` each is printed as soon as it is found."""
    found = []
    async for each in examined:
        found.append(each)
        if print_each:
            where = f" {each.where}" if each.where else ""
            line = plain(f"{each.level:<{_WIDTH}} {each.what}{where}: {each.sentence}")
            click.echo(coloured(line, each.level))
    return found


async def _examined(
    effective: Config, groups: list[jobspec.Group] | None, page: Target | None, *, is_here: bool
) -> AsyncIterator[Finding]:
    if is_here:
        async for found in _of_machine(effective):
            yield found
    for found in [] if groups is None else job_findings.of_job(groups):
        yield found
    if page is not None or effective.scrape.scrape_url:
        for found in await scrape_findings.of_page(effective.scrape, page):
            yield found


async def _of_machine(effective: Config) -> AsyncIterator[Finding]:
    members: list[Member] = []
    if effective.redis.redis_url:
        async for found in _server(effective, members):
            yield found
    else:
        yield warn("store", effective.alone)
    for found in chain(
        _of_sidecar(effective, members),
        [findings.of_budget(effective.budget)],
        [surroundings.of_state(effective)],
        surroundings.of_secrets(effective),
        surroundings.of_nomad(effective, os.environ),
    ):
        yield found


# -- Redis --------------------------------------------------------------------------------------------------------


async def _server(effective: Config, members: list[Member]) -> AsyncIterator[Finding]:
    """Check Redis, and add the members that it knows to ``members``."""
    url, timeout_s, prefix = effective.redis.redis_url, effective.redis.redis_timeout, build_store.prefix(effective)
    # In a Cluster every command goes to the owner of the service's keys.
    try:
        client = RedisClient(url, timeout_s, effective.redis.redis_password_file, f"{prefix}:grants")
    except ValueError as error:
        yield fail("settings", f"ARBITER_REDIS_URL: {error}")
        return
    ask = partial(_ask, client, timeout_s)
    budget = build_store.fleet_budget(effective, build_store.redis_store(effective))
    try:
        reach = await _reach(ask, client, timeout_s)
        yield reach._replace(where=redis_urls.masked(url))
        if reach.level is FindingLevel.FAIL:
            return
        yield findings.of_clock(await _ahead_s(ask))
        info: findings.Info | Unknown = await ask(_fields, "INFO")
        save: str | Unknown = await ask(lambda reply: reply[1].decode(), "CONFIG", "GET", "save")
        for found in findings.of_info(info, save, is_cluster_url=redis_urls.is_cluster(url)):
            yield found
        written = await ask(_nothing, "EVAL", _WRITE, "1", f"{prefix}:doctor")
        yield findings.of_write(written)
        if written is None:
            for found in findings.of_scope(await ask(_nothing, "EVAL", "return 1", "1", _foreign_key(prefix))):
                yield found
        member_list = await budget.member_list()
        for found in findings.of_fleet(member_list, effective.identity.instance):
            yield found
        if not isinstance(member_list, Unknown):
            members += member_list.members
            for found in _of_rotation(effective, member_list.fleet):
                yield found
    finally:
        await client.aclose()
        await budget.aclose()


def _of_rotation(effective: Config, fleet: Fleet) -> Iterator[Finding]:
    if effective.retirement.lifetime:
        yield from findings.of_rotation(build_store.rotation_plan(effective), fleet)


async def _ask(client: RedisClient, timeout_s: float, read: Callable[[Any], T], *command: str) -> T | Unknown:
    """The answer to one command; a failure is ``Unknown``, as with claims."""
    try:
        async with asyncio.timeout(timeout_s):
            return await client.ask(read, *command)
    except StoreError as error:
        return Unknown(error.word, error.said)
    except TimeoutError:
        return Unknown("timeout", client.silence())


async def _reach(ask: Callable[..., Any], client: RedisClient, timeout_s: float) -> Finding:
    found = findings.of_reach(await _ping_s(ask))
    refusal = await _certificate_refusal(client, timeout_s) if found.level is FindingLevel.FAIL else ""
    return found._replace(sentence=f"{found.sentence}: {refusal}") if refusal else found


async def _certificate_refusal(client: RedisClient, timeout_s: float) -> str:
    """Why the certificate of the server is refused; empty if it is not."""
    try:
        async with asyncio.timeout(timeout_s):
            await client.ask(_nothing, "PING")
    except StoreError as error:
        return certificate_refusal(error)
    except TimeoutError:
        return ""
    return ""


async def _ping_s(ask: Callable[..., Any]) -> float | Unknown:
    """How long a PING takes on an open connection, in seconds."""
    for _ in range(2):  # the first one connects
        begun = time.perf_counter()
        if isinstance(answer := await ask(_nothing, "PING"), Unknown):
            return answer
    return time.perf_counter() - begun


async def _ahead_s(ask: Callable[..., Any]) -> float | Unknown:
    """The seconds by which the server's clock is ahead of this machine's."""
    begun = time.time()
    answer: float | Unknown = await ask(_unix_s, "TIME")
    return answer if isinstance(answer, Unknown) else answer - (begun + time.time()) / 2


def _foreign_key(prefix: str) -> str:
    """A key of another service, in the slot of this one, so that the same node of a Cluster answers."""
    tag = prefix[1 : prefix.index("}")]
    others = (f"{tag}-{number}" for number in count())
    return f"{{{next(other for other in others if _slot(other) == _slot(tag))}}}:doctor"


def _slot(tag: str) -> int:
    """The slot of keys with this hash tag (Redis Cluster specification, "Key distribution model")."""
    return crc_hqx(tag.encode(), 0) % 16384


def _nothing(_reply: object) -> None:
    """Ignore the reply: only its success matters."""


def _unix_s(reply: Sequence[bytes]) -> float:
    seconds, micros = map(int, reply)
    return seconds + micros / 1_000_000


def _fields(reply: bytes) -> dict[str, str]:
    rows = (line.partition(":") for line in reply.decode().splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in rows if name}


# -- the sidecar on this machine --------------------------------------------------------------------------------


def _of_sidecar(effective: Config, members: list[Member]) -> Iterator[Finding]:
    try:
        seen = local_api.ask(effective, "GET", "/fleet").value
    except local_api.NoSidecarError as error:
        yield warn(NO_SIDECAR, error.message)
        return
    if "store" in seen:
        yield from findings.of_store(effective.redis.redis_url, seen["store"])
    names = ("namespace", "service", "instance", "mode")
    if differs := [name for name in names if seen.get(name) != getattr(effective.identity, name)]:
        named = ", ".join(f"ARBITER_{name.upper()}" for name in differs)
        yield warn("sidecar", f"the one that answers runs with other settings: {named}")
        return
    if seen.get("error") not in (None, local_api.ALONE):
        yield warn("sidecar", f"it answers, but the store does not answer it: {seen.get('sentence')}")
    else:
        yield ok("sidecar", "it answers at its local listener")
        yield from findings.of_beat(members, effective.identity.instance)
    with suppress(local_api.NoSidecarError):
        why = local_api.ask(effective, "GET", "/why?format=json").value
        yield from (warn("sidecar", sentence) for sentence in why.get("warnings", ()))
        yield from _of_limit(effective, seen, why)
    yield from surroundings.of_listeners(effective)


def _of_limit(effective: Config, fleet: Mapping[str, Any], why: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the limit is above the usual errors that the sidecar has seen."""
    window = why.get("window") or {}
    containers = max(1, int((fleet.get("fleet") or {}).get("alive") or 1))
    yield from findings.of_limit(effective.judging, float(window.get("usual") or 0.0), containers)
