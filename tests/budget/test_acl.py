"""The shipped user may do what the sidecar does and nothing else: each right is taken away in turn, and missed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest
from redis.exceptions import NoPermissionError

from sidecar.budget.link import Link
from sidecar.budget.redis import RedisBudget
from sidecar.core.terms import Share, Terms
from sidecar.core.words import US_PER_S, Beat, Claim, Denied, Entry, Granted, Lease, Presence, Unknown

if TYPE_CHECKING:
    from budget.conftest import Actor
    from harness.redis_server import RedisServer
    from harness.starting import StartRedis

T = TypeVar("T")

ROOT: Final = Path(__file__).parents[2]
RIGHTS: Final = (ROOT / "deploy/redis/users.acl").read_text().split()[3:]
PRESET: Final = re.findall(r"`(~errorWatcher:\*(?: \+\w+)+)`", (ROOT / "deploy/redis/README.md").read_text())[0].split()
OF_LINK: Final = {"+evalsha", "+eval", "+script|exists", "+script|load", "+role", "+xrange"}

FEW: Final = Terms(capacity=Share(2), window_us=60 * US_PER_S, probation_us=5 * US_PER_S, lost_is_empty=False)
EARNING: Final = Terms(capacity=Share(2), window_us=60 * US_PER_S, probation_us=5 * US_PER_S, earn_max=0)
FIXED: Final = Terms(
    strategy="fixed", window_us=60 * US_PER_S, min_healthy=Share(0), never_last=False, lost_is_empty=False
)


class RefusedError(AssertionError):
    """An operation had no clear answer."""


class Scene:
    """A fleet on one server, whose sidecars log in as the shipped user."""

    def __init__(self, server: RedisServer, stack: AsyncExitStack, sentinel: str) -> None:
        self.server = server
        self.login = f"redis://health-arbiter:pw@127.0.0.1:{server.port}"
        self.by_sentinel = f"redis+sentinel://health-arbiter:pw@{sentinel}/fleet"
        self._stack = stack
        self._service = 0

    def bucket(self, terms: Terms = FEW, url: str = "") -> RedisBudget:
        """A bucket of the service that the operation has to itself."""
        bucket = RedisBudget(
            url or self.login,
            terms=terms,
            prefix=f"{{ha:default/{self._service}}}",
            fixed_key="errorWatcher",
            timeout_s=5.0,
            local_time=lambda: datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC),
        )
        self._stack.push_async_callback(bucket.aclose)
        return bucket

    async def run(self, operation: Operation) -> None:
        self._service += 1
        await operation(self)


Operation = Callable[[Scene], Awaitable[None]]


async def clear(call: Awaitable[T | Unknown]) -> T:
    """The answer, which has to be one."""
    answer = await call
    if isinstance(answer, Unknown):
        raise RefusedError(answer.error)
    return answer


def beat(instance: str, presence: Presence, life: str = "1", **more: Any) -> Beat:
    return Beat(instance, life, presence, **more)


# -- what sidecars do: each shall need something that the others do not -----------------------------------------


async def fleet_in_which_one_is_culled_and_replaced(scene: Scene) -> None:
    bucket = scene.bucket(EARNING)
    scene.server.advance(1)
    for name in ("a", "b", "c", "d"):
        await clear(bucket.beat(beat(name, Presence.WELL, first=True)))
    scene.server.advance(20)
    for name in ("a", "b", "c", "d"):
        await clear(bucket.beat(beat(name, Presence.WELL)))
    await clear(bucket.beat(beat("a", Presence.WANTS, kind="redis")))
    assert isinstance(await clear(bucket.claim(Claim("id", "a", "1", "redis"))), Granted)
    assert isinstance(await clear(bucket.claim(Claim("id", "a", "1", "redis"))), Granted)
    await clear(bucket.beat(beat("a", Presence.DOWN, kind="redis", claim_id="id")))
    await clear(bucket.beat(beat("a", Presence.GONE)))
    await clear(bucket.beat(beat("e", Presence.WELL, first=True)))
    scene.server.advance(6)
    await clear(bucket.beat(beat("e", Presence.WELL)))
    await clear(bucket.roll())
    scene.server.advance(70)
    await clear(bucket.beat(beat("e", Presence.WELL)))
    await clear(bucket.claim(Claim("other", "e", "1", "redis")))


async def cull_that_does_not_help(scene: Scene) -> None:
    bucket = scene.bucket()
    for name in ("a", "b", "c"):
        await clear(bucket.beat(beat(name, Presence.WELL, first=True)))
    assert isinstance(await clear(bucket.claim(Claim("id", "a", "1", "redis"))), Granted)
    await clear(bucket.beat(beat("a", Presence.WELL, life="2")))
    await clear(bucket.beat(beat("a", Presence.WANTS, life="2", kind="redis")))
    await clear(bucket.beat(beat("b", Presence.WANTS, kind="redis")))
    await clear(bucket.beat(beat("b", Presence.WELL)))
    await clear(bucket.release(""))


async def bucket_that_is_empty(scene: Scene) -> None:
    bucket = scene.bucket()
    for name in "abcdefgh":
        await clear(bucket.beat(beat(name, Presence.WELL, first=True)))
    answers = [await clear(bucket.claim(Claim(name, name, "1", "redis"))) for name in "abc"]
    assert [type(answer) for answer in answers] == [Granted, Granted, Denied]


async def share_of_one_of_two_servers(scene: Scene) -> None:
    bucket = scene.bucket(replace(FEW, capacity=Share(4), servers=2))
    for name in "abcdefgh":
        await clear(bucket.beat(beat(name, Presence.WELL, first=True)))
    answers = [await clear(bucket.claim(Claim(name, name, "1", "redis"))) for name in "abc"]
    assert [getattr(answer, "reason", "granted") for answer in answers] == ["granted", "granted", "share"]


async def hold_and_release(scene: Scene) -> None:
    bucket = scene.bucket()
    await clear(bucket.hold("", "ops", "a reason", 60))
    await clear(bucket.beat(beat("a", Presence.WELL)))
    assert await clear(bucket.release(""))


async def container_that_goes_for_its_age(scene: Scene) -> None:
    bucket = scene.bucket(replace(FEW, lost_is_empty=False))
    for name in "abc":
        await clear(bucket.beat(beat(name, Presence.WELL, first=True)))
    lease = Lease("holder", "a", "1", "1", 60)
    assert isinstance(await clear(bucket.retire(lease)), Granted)
    assert isinstance(await clear(bucket.retire(lease._replace(instance="b"))), Denied)
    await clear(bucket.beat(beat("a", Presence.DOWN, lease="holder")))
    assert await clear(bucket.resign("a", "holder"))


async def ledger_and_who_is_first(scene: Scene) -> None:
    bucket = scene.bucket()
    assert await clear(bucket.note([Entry("culled", 1.0, "a")])) == 1
    assert len(await clear(bucket.entries(0, "", 10))) == 1
    assert await clear(bucket.first("word", 60))
    assert not await clear(scene.bucket().first("word", 60))


async def server_that_has_forgotten_the_scripts(scene: Scene) -> None:
    bucket = scene.bucket()
    await clear(bucket.beat(beat("a", Presence.WELL)))
    scene.server.cli("SCRIPT", "FLUSH")
    await clear(bucket.claim(Claim("id", "a", "1")))


async def master_that_a_sentinel_names(scene: Scene) -> None:
    await clear(scene.bucket(url=scene.by_sentinel).beat(beat("a", Presence.WELL)))


OPERATIONS: Final[list[Operation]] = [
    fleet_in_which_one_is_culled_and_replaced,
    cull_that_does_not_help,
    bucket_that_is_empty,
    share_of_one_of_two_servers,
    hold_and_release,
    container_that_goes_for_its_age,
    ledger_and_who_is_first,
    server_that_has_forgotten_the_scripts,
    master_that_a_sentinel_names,
]


async def claim_by_the_article(scene: Scene) -> None:
    assert isinstance(await clear(scene.bucket(FIXED).claim(Claim("id", "a", "1"))), Granted)


# -- fixtures ---------------------------------------------------------------------------------------------------


@pytest.fixture
def server(start_redis: StartRedis, tmp_path: Path) -> RedisServer:
    """A server that has loaded the shipped file, with a password added."""
    users = tmp_path / "users.acl"
    users.write_text(" ".join(["user", "health-arbiter", "on", ">pw", *RIGHTS]) + "\n")
    return start_redis("redis", "--aclfile", str(users), faketime=True)


@pytest.fixture
async def scene(server: RedisServer, actor: Actor) -> Any:
    sentinel = (await actor.open()).removeprefix("redis://")
    actor.line = b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(server.port)), server.port)
    async with AsyncExitStack() as stack:
        yield Scene(server, stack, sentinel)


async def failure(scene: Scene, rights: list[str], operations: list[Operation]) -> str | None:
    """The word for the first operation that a user with these rights cannot do."""
    scene.server.cli("ACL", "SETUSER", "health-arbiter", "reset", "on", ">pw", *rights)
    scene.server.cli("FLUSHALL")
    scene.server.cli("SCRIPT", "FLUSH")
    try:
        for operation in operations:
            await scene.run(operation)
    except RefusedError as refused:
        return str(refused)
    return None


# -- enough, and no more ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
async def test_shipped_user_may_do_what_a_sidecar_does(operation: Operation, scene: Scene) -> None:
    await scene.run(operation)
    assert scene.server.cli("ACL", "LOG") == []


async def test_each_right_is_needed(scene: Scene) -> None:
    assert await failure(scene, RIGHTS, OPERATIONS) is None
    failures = {right: await failure(scene, [r for r in RIGHTS if r != right], OPERATIONS) for right in RIGHTS}
    assert failures == dict.fromkeys(RIGHTS, "permission")


async def test_preset_of_the_article_needs_what_the_page_says_and_no_less(scene: Scene) -> None:
    operations: list[Operation] = [claim_by_the_article]
    rights = [*RIGHTS, *PRESET]
    assert await failure(scene, rights, operations) is None
    failures = {right: await failure(scene, [r for r in rights if r != right], operations) for right in PRESET}
    assert failures == dict.fromkeys(PRESET, "permission")


def test_commands_of_the_scripts_are_the_commands_of_the_user() -> None:
    scripts = "\n".join(path.read_text() for path in (ROOT / "sidecar/budget").glob("*.lua"))
    called = set(re.findall(r"\b(?:call|pcall|write|put)\('([A-Z]+)'", scripts))
    assert {f"+{command.lower()}" for command in called} | OF_LINK == {
        right for right in (*RIGHTS, *PRESET) if right.startswith("+")
    }


@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "SCAN 0",
        "CONFIG SET maxmemory 1",
        "CONFIG GET requirepass",
        "ACL LIST",
        "SCRIPT FLUSH",
        "SCRIPT KILL",
        "FUNCTION LIST",
        "CLIENT LIST",
        "SHUTDOWN NOSAVE",
        "REPLICAOF NO ONE",
        "SUBSCRIBE channel",
        "ZADD other 1 x",
        "ZADD ha:default/app 1 x",
        "ZSCORE errorWatcher:1 x",
        "GET errorWatcher:1",
        "EVAL return(redis.call('HGET','other','x')) 0",
        "EVAL return(redis.call('FLUSHALL')) 0",
        "EVAL return(redis.call('KEYS','*')) 0",
        "EVAL return(1) 1 other",
    ],
)
async def test_whatever_else_it_asks_for_is_refused(command: str, scene: Scene) -> None:
    scene.server.cli("ZADD", "other", 1, "x")
    link = Link(scene.login, 5.0)
    with pytest.raises(Exception, match=r"NOPERM|no permissions|can't run this command|can't access") as refusal:
        await link.ask(lambda reply: reply, *command.split(" "))
    await link.aclose()
    assert isinstance(refusal.value, NoPermissionError) or "script" in str(refusal.value)
    assert scene.server.cli("ZCARD", "other") == 1
