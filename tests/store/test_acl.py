"""The shipped user has the permissions that the sidecar needs and no other: without any one of them something fails."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.claims import beat, suspect
from harness.sentinels import MASTER, masters_reply
from harness.stores import CULL, HOLD, commit, look, redis_store, send_beat
from sidecar.core.claims import Presence
from sidecar.core.types import Entry
from sidecar.store.protocol import StoreError
from sidecar.store.redis import RedisStore
from sidecar.store.redis_client import RedisClient

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from store.conftest import Actor

DIRECTORY: Final = Path(__file__).parents[2] / "deploy" / "redis"
PAGE: Final = (DIRECTORY / "README.md").read_text()


def rights_of(service: str) -> list[str]:
    """The words of ``ACL SETUSER`` for the user of a service in the namespace ``default``."""
    (line,) = re.findall(r"^    (sed .*)$", PAGE, re.MULTILINE)
    typed = ["sh", "-c", line.replace("{ha:default/shop}", f"{{ha:default/{service}}}")]
    printed = subprocess.run(typed, cwd=DIRECTORY, capture_output=True, text=True, timeout=30, check=True).stdout
    words = printed.split()
    assert words[:3] == ["user", "shop", "on"]
    return words[3:]


SHIPPED: Final = DIRECTORY / "users.acl"
RIGHTS: Final = SHIPPED.read_text().split()[3:]
PRESET: Final = re.findall(r"`(~errorWatcher:\*(?: \+\w+)+)`", PAGE)[0].split()


class Scene:
    """A fleet on one server, whose sidecars log in as the shipped user."""

    def __init__(self, server: RedisServer, stack: AsyncExitStack, sentinel: str) -> None:
        self.server = server
        self.login = f"redis://health-arbiter:pw@127.0.0.1:{server.port}"
        self.by_sentinel = f"redis+sentinel://health-arbiter:pw@{sentinel}/{MASTER}"
        self._stack = stack
        self._service = 0

    def store(self, url: str = "", prefix: str = "") -> RedisStore:
        """A store of the service that the operation has to itself, or of another."""
        store = redis_store(url or self.login, prefix=prefix or f"{{ha:default/{self._service}}}")
        self._stack.push_async_callback(store.aclose)
        return store

    async def run(self, operation: Operation) -> None:
        self._service += 1
        await operation(self)


Operation = Callable[[Scene], Awaitable[None]]


# -- what sidecars do: each shall need something that the others do not -----------------------------------------


async def fleet_in_which_members_are_refused_recover_and_leave(scene: Scene) -> None:
    store = scene.store()
    for name in "abcd":
        await send_beat(store, beat(name, ratio=1, about="news"), settings=name)
    for told in (suspect("a"), suspect("a", refused=True), beat("a"), suspect("b"), beat("b", Presence.DOWN)):
        await send_beat(store, told)
    scene.server.advance(60)
    await send_beat(store, beat("e"))
    assert len((await store.members(most=10, since_us=0)).departed) == 3


async def more_causes_than_are_counted(scene: Scene) -> None:
    store = scene.store()
    for told in (lambda name: suspect(name, name, refused=True), beat):
        for number in range(101):
            await send_beat(store, told(str(number)))
    await send_beat(store, suspect("a"))


async def culls_that_are_granted_given_back_and_renewed(scene: Scene) -> None:
    store = scene.store()
    scene.server.advance(1)
    await commit(store, grant="a", refund=["a"], culls={"a": CULL}, holds={"": HOLD})
    await send_beat(store, beat("a"))
    assert set((await look(store)).beating) == {"a"}
    scene.server.advance(-1)
    await commit(store, grant="a", holds={"": None})
    scene.server.advance(601)
    await commit(store, grant="a")


async def ledger_and_who_is_first(scene: Scene) -> None:
    store = scene.store()
    assert await store.note([Entry("culled", 1.0, "a")]) == 1
    assert len(await store.entries(0, "", 10)) == 1
    assert await store.first("word", 60)
    assert not await scene.store().first("word", 60)


async def server_that_has_forgotten_the_scripts(scene: Scene) -> None:
    store = scene.store()
    await send_beat(store, beat("a"))
    scene.server.cli("SCRIPT", "FLUSH")
    await commit(store, grant="a")


async def master_that_a_sentinel_names(scene: Scene) -> None:
    await send_beat(scene.store(scene.by_sentinel), beat("a"))


OPERATIONS: Final[list[Operation]] = [
    fleet_in_which_members_are_refused_recover_and_leave,
    more_causes_than_are_counted,
    culls_that_are_granted_given_back_and_renewed,
    ledger_and_who_is_first,
    server_that_has_forgotten_the_scripts,
    master_that_a_sentinel_names,
]


async def claim_by_the_article(scene: Scene) -> None:
    assert await scene.store().count("errorWatcher:3", 600) > 0


# -- fixtures ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def scene(faketime_redis: RedisServer, actor: Actor) -> Any:
    """A server that has the shipped user, with a password added."""
    server = faketime_redis
    server.cli("ACL", "SETUSER", "health-arbiter", "reset", "on", ">pw", *RIGHTS)
    sentinel = (await actor.open()).removeprefix("redis://")
    actor.line = masters_reply(server.port)
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
    except StoreError as refused:
        return refused.word
    return None


# -- enough, and no more ----------------------------------------------------------------------------------------


async def test_each_right_is_needed(scene: Scene) -> None:
    assert await failure(scene, RIGHTS, OPERATIONS) is None
    failures = {right: await failure(scene, [r for r in RIGHTS if r != right], OPERATIONS) for right in RIGHTS}
    assert failures == dict.fromkeys(RIGHTS, "permission") | {"+info": None}


@pytest.mark.parametrize("tells", [True, False])
async def test_user_without_info_is_not_told_which_process_answers(scene: Scene, *, tells: bool) -> None:
    rights = [right for right in RIGHTS if tells or right != "+info"]
    scene.server.cli("ACL", "SETUSER", "health-arbiter", "reset", "on", ">pw", *rights)
    run_id = scene.server.cli("INFO", "server")["run_id"] if tells else ""
    store = scene.store()
    assert (await send_beat(store, beat("a"))).run_id == run_id
    assert (await look(store)).run_id == run_id


async def test_preset_of_the_article_needs_what_the_page_says_and_no_less(scene: Scene) -> None:
    operations: list[Operation] = [claim_by_the_article]
    rights = [*RIGHTS, *PRESET]
    assert await failure(scene, rights, operations) is None
    failures = {right: await failure(scene, [r for r in rights if r != right], operations) for right in PRESET}
    assert failures == dict.fromkeys(PRESET, "permission")


# -- a user for each service ------------------------------------------------------------------------------------


async def test_user_of_a_service_may_do_what_its_sidecars_do(scene: Scene) -> None:
    for number, operation in enumerate(OPERATIONS, 1):
        assert await failure(scene, rights_of(str(number)), [operation]) is None, operation.__name__
    assert scene.server.cli("ACL", "LOG") == []


async def test_user_of_a_service_may_touch_no_key_of_another(scene: Scene) -> None:
    scene.server.cli("ACL", "SETUSER", "health-arbiter", "reset", "on", ">pw", *rights_of("1"))
    client = RedisClient(scene.login, 5.0)

    async def word(*command: str) -> str:
        with pytest.raises(StoreError) as refusal:
            await client.ask(lambda reply: reply, *command)
        return refusal.value.word

    for prefix in ("{ha:default/2}", "{ha:default/11}", "{ha:other/1}", "{ha:default/1", "{ha:a}:{ha:default/1}"):
        async with aclosing(redis_store(scene.server.url, prefix=prefix)) as other:
            await send_beat(other, beat("a"))
        key = f"{prefix}:state"
        kept = scene.server.cli("HGETALL", key)
        for command in (
            *(("DEL", key), ("HSET", key, "a", "1"), ("HGETALL", key), ("SET", f"{prefix}:new", "1")),
            *(("EVAL", "return 1", "1", key), ("EVAL", f"return redis.call('DEL', '{key}')", "0")),
        ):
            assert await word(*command) == "permission", command
        with pytest.raises(StoreError) as refusal:
            await send_beat(scene.store(scene.login, prefix), beat("intruder"))
        assert refusal.value.word == "permission"
        assert scene.server.cli("HGETALL", key) == kept
    for command in (("PUBLISH", "{ha:default/1}:x", "x"), ("SUBSCRIBE", "{ha:default/1}:x")):
        assert await word(*command) == "permission", command


OTHER_COMMANDS: Final = (
    *("FLUSHALL", "KEYS *", "SCAN 0", "CONFIG SET maxmemory 1", "ACL LIST", "SCRIPT FLUSH", "CLIENT LIST"),
    *("SHUTDOWN NOSAVE", "REPLICAOF NO ONE", "SUBSCRIBE channel", "ZADD other 1 x", "ZADD ha:default/app 1 x"),
    *("GET errorWatcher:1", "EVAL return(redis.call('HGET','other','x')) 0", "EVAL return(1) 1 other"),
    *("EVAL return(redis.call('FLUSHALL')) 0", "EVAL return(redis.call('KEYS','*')) 0"),
)


async def test_other_commands_are_refused(scene: Scene) -> None:
    scene.server.cli("ZADD", "other", 1, "x")
    client = RedisClient(scene.login, 5.0)
    for command in OTHER_COMMANDS:
        with pytest.raises(StoreError) as refusal:
            await client.ask(lambda reply: reply, *command.split(" "))
        assert refusal.value.word == "permission", command
    assert scene.server.cli("ZCARD", "other") == 1
