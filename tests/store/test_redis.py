"""What goes wrong with a real Redis: one word, in time, and afterwards the same id gets its answer."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
import threading
import time
from random import Random
from socket import gaierror
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from redis import exceptions as theirs
from redis.asyncio import Redis

from harness.claims import WINDOW_ONLY, beat
from harness.ports import free_port
from harness.sentinels import MASTER, masters_reply
from harness.stores import FRESH, HEARD, HOLD, claim, commit, impatient, look, send_beat, warm, word_of
from harness.virtual_time import settle
from harness.waiting import eventually
from sidecar.core.claims import Claim, Unknown
from sidecar.core.explain.words import FAILURES
from sidecar.core.fleet.view import Edits
from sidecar.core.types import Entry, Hold
from sidecar.store import redis_client
from sidecar.store.budget import FleetBudget
from sidecar.store.protocol import StoreError
from sidecar.store.redis_client import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.redis_server import RedisServer
    from sidecar.store.redis import RedisStore
    from store.conftest import Actor, OpenStore

SECRET = "s3cret/pass?word"
TIMEOUT_S = 3.0
"""A second one of these would take longer than any pause of a busy machine."""


async def assert_refused_with(store: RedisStore, word: str) -> None:
    """Whatever is asked, the answer is the word, and the word has a sentence."""
    assert word in FAILURES
    assert await word_of(look(store)) == word
    assert await word_of(store.commit(0, Edits())) == word
    assert await word_of(send_beat(store, beat("a"))) == word
    assert await word_of(store.members(most=10, since_us=0)) == word
    assert await word_of(store.count("errorWatcher:1", 60)) == word
    assert await word_of(store.note([Entry("culled")])) == word
    assert await word_of(store.entries(0, "", 10)) == word
    assert await word_of(store.first("word", 60)) == word
    assert await word_of(look(store)) == word


async def assert_claims_end_with(store: RedisStore, word: str) -> None:
    """Claims do, whose read may pass: a full server and a replica answer it."""
    assert await claim(store, "a") == word
    assert await claim(store, "a") == word


# -- away ---------------------------------------------------------------------------------------------------


async def test_killed_server_is_a_lost_connection_and_an_empty_one_grants_anew(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    assert await claim(store, "a") == FRESH
    redis_server.kill()
    await assert_refused_with(store, "connection")
    redis_server.restart()
    assert await warm(store) == HEARD
    assert await claim(store, "a") == FRESH


# -- slow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm_ups", [0, 1], ids=["cold", "warm"])
async def test_hung_server_is_a_timeout_within_the_timeout(
    warm_ups: int, redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url, timeout_s=TIMEOUT_S)
    for _ in range(warm_ups):
        assert await warm(store) == HEARD
    redis_server.pause()
    started = time.monotonic()
    assert await claim(store, "a") == "timeout"
    assert TIMEOUT_S <= time.monotonic() - started < 2 * TIMEOUT_S
    with impatient(store):
        assert await warm(store) == "timeout"
    redis_server.resume()


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["timed out", "cancelled"])
async def test_late_reply_is_read_by_no_other_call_and_its_commit_is_seen_by_the_next_read(
    redis_server: RedisServer, open_store: OpenStore, *, is_cancelled: bool
) -> None:
    store = open_store(redis_server.url)
    assert await warm(store) == HEARD
    redis_server.pause()
    with impatient(store):
        asking = asyncio.create_task(word_of(store.commit(0, Edits(grant="a"))))
        await settle()  # it is sent
        if is_cancelled:
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        else:
            assert await asking == "timeout"
    redis_server.resume()
    assert await claim(store, "b") == "granted 2"
    assert await claim(store, "a") == "replayed 2"


async def test_claim_that_waits_for_its_turn_is_bounded_too(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url, timeout_s=TIMEOUT_S)
    redis_server.pause()
    started = time.monotonic()
    answers = await asyncio.gather(*(claim(store, f"claim-{n}") for n in range(10)))
    assert answers == ["timeout"] * 10
    assert time.monotonic() - started < 2 * TIMEOUT_S
    redis_server.resume()


async def test_each_step_of_a_claim_costs_one_round_trip(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url)
    assert await warm(store) == HEARD
    redis_server.cli("CONFIG", "RESETSTAT")
    assert await claim(store, "a") == FRESH
    assert await store.count("errorWatcher:1", 60) == 1
    assert (await send_beat(store, beat("a"))).alive == 2
    calls = {name: said["calls"] for name, said in redis_server.cli("INFO", "commandstats").items()}
    assert (calls["cmdstat_evalsha"], calls["cmdstat_eval"]) == (3, 1)


def logins(server: RedisServer) -> dict[str, str]:
    secret, wrong = quote(SECRET, safe=""), quote(f"{SECRET}x", safe="")
    return {
        "wrong": f"redis://:{wrong}@127.0.0.1:{server.port}",
        "none": f"redis://127.0.0.1:{server.port}",
        "unknown user": f"redis://nobody:{secret}@127.0.0.1:{server.port}",
        "wrong over a unix socket": f"unix://:{wrong}@{server.unix_socket}",
    }


# -- who may ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["wrong", "none", "unknown user", "wrong over a unix socket"])
async def test_login_that_the_server_refuses_is_auth_and_tells_no_secret(
    login: str, redis_server: RedisServer, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    redis_server.set_password(SECRET)
    store = open_store(logins(redis_server)[login])
    await assert_claims_end_with(store, "auth")
    assert await warm(store) == "auth"
    assert "s3cret" not in caplog.text + repr(store) + repr(vars(store))


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/99", "unix://{path}?db=99"])
async def test_database_that_is_not_there_is_never_mistaken_for_another(
    url: str, redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(url.format(port=redis_server.port, path=redis_server.unix_socket))
    await assert_claims_end_with(store, "response")
    assert redis_server.cli("INFO", "keyspace") == {}


# -- what may not be written --------------------------------------------------------------------------------


async def test_read_only_replica_is_readonly_until_it_is_promoted(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    redis_server.cli("REPLICAOF", "127.0.0.1", str(free_port()))
    store = open_store(redis_server.url)
    await assert_claims_end_with(store, "readonly")
    assert await warm(store) == "readonly"
    assert (await look(store)).revision == 0
    redis_server.cli("REPLICAOF", "NO", "ONE")
    assert await claim(store, "a") == FRESH


async def test_full_memory_is_oom_and_writes_nothing_of_a_commit(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    await commit(store, holds={"": HOLD})
    revision = (await look(store)).revision
    redis_server.cli("CONFIG", "SET", "maxmemory", "1")
    await assert_claims_end_with(store, "oom")
    assert await warm(store) == "oom"
    assert await word_of(commit(store, holds={"": None}, grant="b")) == "oom"
    raw = await look(store)
    assert (raw.revision, raw.holds, raw.grants, raw.alive) == (revision, {"": HOLD}, {}, 0)
    redis_server.cli("CONFIG", "SET", "maxmemory", "0")
    assert await claim(store, "a") == FRESH


async def test_hold_is_set_and_released_on_a_full_server_which_grants_nothing(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    """A full server stops all culls by itself, but not for ever: a person has to be able to say what comes then."""
    clock = asyncio.get_running_loop().time
    budget = FleetBudget(open_store(redis_server.url), WINDOW_ONLY, rng=Random(0), clock=clock)
    assert isinstance(await budget.hold("", "ann", "a deployment", 60), Hold)
    redis_server.cli("CONFIG", "SET", "maxmemory", "1")
    assert await budget.release("") is True
    assert await budget.release("") is False
    assert await budget.claim(Claim("a", "a")) == Unknown("oom")
    held = await budget.hold("a", "ann", "look first", 60)
    assert isinstance(held, Hold)
    assert held.instance == "a"
    assert await budget.claim(Claim("b", "b")) == Unknown("oom")


# -- busy ---------------------------------------------------------------------------------------------------


async def test_busy_server_is_busy_and_then_answers(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url)
    assert await warm(store) == HEARD
    redis_server.cli("CONFIG", "SET", "lua-time-limit", "20")
    async with Redis.from_url(redis_server.url, socket_timeout=30) as other:
        spinning = asyncio.create_task(_spin(other))
        await eventually(lambda: _is_busy(store), timeout_s=60, what="busy")
        assert await warm(store) == "busy"
        redis_server.cli("SCRIPT", "KILL")
        await spinning
    assert await claim(store, "a") == FRESH


async def _spin(client: Redis) -> None:
    with pytest.raises(Exception, match="killed by user"):
        await client.eval("while true do end", 0)


async def _is_busy(store: RedisStore) -> bool:
    return await warm(store) == "busy"


# -- what Redis or the network said --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "word", "said"),
    [
        ("redis://127.0.0.1:1", "connection", "redis://127.0.0.1:1: Connection refused"),
        ("redis+cluster://127.0.0.1:{port}", "response", "This instance has cluster support disabled"),
        ("rediss://127.0.0.1:{port}", "timeout", "rediss://127.0.0.1:{port}: no connection; does this port speak TLS?"),
        ("redis+sentinel://127.0.0.1:{port}/m", "response", "unknown command"),
    ],
    ids=["nobody listens", "no Cluster", "no TLS", "no Sentinel"],
)
async def test_failure_says_the_address_and_what_was_said(
    redis_server: RedisServer, open_store: OpenStore, url: str, word: str, said: str
) -> None:
    store = open_store(url.format(port=redis_server.port), timeout_s=TIMEOUT_S)
    with pytest.raises(StoreError) as failed:
        await store.members(most=1, since_us=0)
    assert (failed.value.word, said.format(port=redis_server.port) in failed.value.said) == (word, True)


async def test_server_that_hangs_after_it_was_reached_gave_no_answer(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url, timeout_s=TIMEOUT_S)
    await store.members(most=1, since_us=0)
    redis_server.pause()
    with impatient(store), pytest.raises(StoreError) as failed:
        await store.members(most=1, since_us=0)
    redis_server.resume()
    assert failed.value.said == f"{redis_server.url}: no answer"


def test_what_was_said_has_neither_a_frame_nor_a_password() -> None:
    text = f"unknown command 'AUTH', with args beginning with: '{SECRET}'"
    refused = theirs.ConnectionError("Error 111 connecting to h:1.")
    refused.__cause__ = ConnectionRefusedError(111, "Connect call failed")
    assert message(theirs.ResponseError(text)) == "unknown command 'AUTH'"
    assert message(refused) == "Connection refused"
    assert message(gaierror(-2, "Name or service not known")) == "Name or service not known"
    assert message(theirs.ResponseError("a\n b")) == "a b"
    assert message(TimeoutError()) == "TimeoutError"


# -- the first call ------------------------------------------------------------------------------------------------

UNOPENED = """
import asyncio, sys
from sidecar.store.redis import RedisStore
store = RedisStore("redis://localhost", prefix="p", timeout_s=1)
asyncio.run(store.aclose())
print([name for name in sys.modules if name.partition(".")[0] in ("redis", "hiredis")])
"""


class Opening:
    """Replaces the constructor of the client: records the threads that call it, fails on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._made = redis_client.RedisClient
        self.threads: list[threading.Thread] = []
        self.failures: list[Exception] = []
        monkeypatch.setattr(redis_client, "RedisClient", self)

    def __call__(self, *args: object, **named: object) -> object:
        self.threads.append(threading.current_thread())
        if self.failures:
            raise self.failures.pop()
        make: Callable[..., object] = self._made
        return make(*args, **named)


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Opening:
    return Opening(monkeypatch)


def test_nothing_of_redis_py_is_imported_before_the_first_call() -> None:
    ran = subprocess.run([sys.executable, "-c", UNOPENED], capture_output=True, text=True, check=True, timeout=90)
    assert ran.stdout.strip() == "[]"


async def test_client_is_made_once_for_calls_at_the_same_time_and_not_in_the_thread_of_the_loop(
    redis_server: RedisServer, open_store: OpenStore, opening: Opening
) -> None:
    store = open_store(redis_server.url)
    assert opening.threads == []
    await asyncio.gather(*(look(store) for _ in range(5)))
    (thread,) = opening.threads
    assert thread is not threading.current_thread()


async def test_failure_is_reported_answered_with_a_word_and_tried_again(
    redis_server: RedisServer, open_store: OpenStore, opening: Opening
) -> None:
    reported: list[Exception] = []
    store = open_store(redis_server.url, on_failure=reported.append)
    opening.failures = [ImportError("no such client"), ImportError("no such client")]
    assert [await word_of(look(store)), await word_of(look(store))] == ["internal", "internal"]
    assert [str(error) for error in reported] == ["no such client"] * 2
    assert await claim(store, "a") == FRESH


# -- a connection that has ended -----------------------------------------------------------------------------------


async def noticed(store: RedisStore) -> bool:
    """True, once the store has noticed the end of its connection."""
    return await eventually(store.lost.is_set, timeout_s=30, what="the connection is lost")


def clients_of_scripts(server: RedisServer) -> list[str]:
    """The ids of the connections over which a script came last."""
    return re.findall(r"^id=(\d+) .* cmd=eval", str(server.cli("CLIENT", "LIST")), re.MULTILINE)


@pytest.fixture
async def store(redis_server: RedisServer, open_store: OpenStore) -> RedisStore:
    """A store whose connection is open and idle."""
    store = open_store(redis_server.url)
    await send_beat(store, beat("a"))
    assert not store.lost.is_set()
    return store


async def test_server_that_is_killed_is_noticed_and_a_beat_asks_the_next_process(
    redis_server: RedisServer, store: RedisStore
) -> None:
    before = (await look(store)).run_id
    redis_server.restart()
    assert await noticed(store)
    assert (await send_beat(store, beat("a"))).run_id not in ("", before)
    assert not store.lost.is_set()


async def test_watched_connection_is_the_one_that_the_next_call_uses(
    redis_server: RedisServer, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_client, "WATCH_AFTER_S", 0.0)
    before = clients_of_scripts(redis_server)
    for _ in range(3):
        assert not store.lost.is_set()
        for _ in range(4):  # the watch begins to read
            await asyncio.sleep(0)
        assert (await look(store)).alive == 1
    assert clients_of_scripts(redis_server) == before
    assert len(before) == 1


async def test_master_that_closes_an_idle_connection_is_noticed(
    actor: Actor, redis_server: RedisServer, open_store: OpenStore
) -> None:
    actor.line = masters_reply(redis_server.port)
    store = open_store(f"{await actor.open()}/{MASTER}".replace("redis", "redis+sentinel"))
    await send_beat(store, beat("a"))
    assert not store.lost.is_set()
    redis_server.cli("CLIENT", "KILL", "TYPE", "normal")
    assert await noticed(store)


async def test_failed_call_ends_the_connection_and_a_failed_beat_asks_for_none(
    redis_server: RedisServer, store: RedisStore
) -> None:
    redis_server.pause()
    with impatient(store):
        assert await word_of(look(store)) == "timeout"
        assert store.lost.is_set()
        assert await word_of(send_beat(store, beat("a"))) == "timeout"
    assert not store.lost.is_set()
