"""Nonsense from a server is a word, and no URL changes the options that a claim relies on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis import exceptions as theirs

from harness.claims import beat
from harness.stores import claim, look, send_beat, warm, word_of
from sidecar.core.explain.words import FAILURES
from sidecar.core.fleet.view import Edits
from sidecar.store.redis_client import error_word

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from store.conftest import Actor, OpenStore

BEFORE_7 = b"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: "
NOW = 1_700_000_000_000_000
READ: dict[str, object] = {
    **{name: [] for name in ("culls", "leases", "holds", "settings", "beating", "control", "grants", "refunded")},
    **dict.fromkeys(("epoch", "own_row", "own_beat", "departed")),
    "now": NOW,
    "revision": b"7",
    "state": b"state",
    "alive": 3,
    "newest": [b"a", b"1700000000000000"],
    "causes": [b"redis", b"2"],
    "run_id": b"run1",
    "median_errors": -1,
}
HEARD_REPLY: dict[str, object] = {
    **dict.fromkeys(("silent", "settings", "median_errors", "median_ratio", "used", "draining"), 0),
    **dict.fromkeys(("epoch", "state", "former", "run_id")),
    "now": NOW,
    "alive": 20,
    "struck": [],
    "causes": [],
    "holds": [None, None],
}


def resp(value: object) -> bytes:
    """The value as Redis writes it; a table as its names and values in turn."""
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, dict):
        return resp([each for name, value in value.items() for each in (name.encode(), value)])
    return b"*%d\r\n%b" % (len(value), b"".join(map(resp, value))) if isinstance(value, list) else b"$-1\r\n"


LINES = [
    (b"-LOADING Redis is loading the dataset in memory\r\n", "loading"),
    (b"-BUSY Redis is busy running a script.\r\n", "busy"),
    (b"-NOAUTH Authentication required.\r\n", "auth"),
    (b"-NOPERM this user has no permissions\r\n", "permission"),
    (b"-ERR Protocol error: unauthenticated multibulk length\r\n", "auth"),
    (b"-READONLY You can't write against a read only replica.\r\n", "readonly"),
    (b"-OOM command not allowed\r\n", "oom"),
    (b"-" + BEFORE_7 + b"-OOM command not allowed\r\n", "oom"),
    (b"-" + BEFORE_7 + b"The user executing the script can't run this command\r\n", "permission"),
    (b"-ERR ACL failure in script: User u has no permissions to run the 'hget' command script: f_1\r\n", "permission"),
    (b"-ERR max number of clients reached\r\n", "connection"),
    (b"-MISCONF Redis is configured to save RDB snapshots\r\n", "response"),
    (b"-MOVED 3999 127.0.0.1:6381\r\n", "cluster"),
    (b"-ASK 3999 127.0.0.1:6381\r\n", "cluster"),
    (b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "cluster"),
    (b"-CROSSSLOT Keys in request don't hash to the same slot\r\n", "response"),
    (b"-CLUSTERDOWN The cluster is down\r\n", "cluster"),
    (b"-MASTERDOWN Link with MASTER is down\r\n", "readonly"),
    (b"-ERR something\r\n", "response"),
    (b"-NOSCRIPT No matching script.\r\n", "response"),
    (b"-\r\n", "response"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "response"),
    (b"\x15\x03\x01\x00\x02\x02\x50\r\n", "response"),
    (b"+OK\r\n", "response"),
    (b"$-1\r\n", "response"),
    (b":1\r\n", "response"),
    (b"*0\r\n", "response"),
    (b"*-1\r\n", "response"),
]


@pytest.mark.parametrize(("line", "word"), LINES, ids=[repr(line)[:90] for line, _ in LINES])
async def test_anything_but_a_complete_reply_is_a_word(
    line: bytes, word: str, actor: Actor, open_store: OpenStore
) -> None:
    store = open_store(await actor.open())
    actor.line = line
    assert await word_of(look(store)) == word
    assert await word_of(store.commit(0, Edits())) == word
    assert await warm(store) == word
    assert word in FAILURES


@pytest.mark.parametrize(
    ("of", "reply"),
    [
        ("read", {name: READ[name] for name in READ if name != "median_errors"}),
        ("read", {**READ, "alive": b"3"}),
        ("read", {**READ, "revision": b"x"}),
        ("read", {**READ, "newest": [b"a", b"inf"]}),
        ("read", {**READ, "causes": [b"redis"]}),
        ("read", [*READ.values()]),
        ("commit", [2, NOW, 0]),
        ("commit", [1, NOW, -1]),
        ("beat", {name: HEARD_REPLY[name] for name in HEARD_REPLY if name != "draining"}),
        ("beat", {**HEARD_REPLY, "alive": b"20"}),
        ("beat", {**HEARD_REPLY, "holds": [None]}),
    ],
)
async def test_reply_with_a_missing_or_wrong_part_is_refused(
    of: str, reply: object, actor: Actor, open_store: OpenStore
) -> None:
    store = open_store(await actor.open())
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "read": lambda: look(store),
        "commit": lambda: store.commit(7, Edits()),
        "beat": lambda: send_beat(store, beat("a")),
    }
    actor.line = resp({"read": READ, "commit": [1, NOW, 0], "beat": HEARD_REPLY}[of])
    assert await word_of(calls[of]()) == ""
    actor.line = resp(reply)
    assert await word_of(calls[of]()) == "response"


@pytest.mark.parametrize("length", [0, 1, 4, 20, len(resp(READ)) - 1])
async def test_reply_that_breaks_off_is_a_lost_connection(length: int, actor: Actor, open_store: OpenStore) -> None:
    store = open_store(await actor.open())
    actor.line, actor.hangs_up = resp(READ)[:length], True
    assert await claim(store, "a") == "connection"
    actor.line, actor.hangs_up = resp(READ), False
    assert (await look(store)).revision == 7


async def test_reply_that_makes_no_sense_ends_the_connection(actor: Actor, open_store: OpenStore) -> None:
    store = open_store(await actor.open())
    for line in (b"+OK\r\n", 2 * resp(READ), b"-ERR something\r\n", resp(READ)):
        actor.line = line
        await word_of(look(store))
    assert actor.connections == 4


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (TimeoutError(), "timeout"),
        (theirs.TimeoutError("slow"), "timeout"),
        (theirs.AuthorizationError("no"), "auth"),
        (theirs.AuthenticationWrongNumberOfArgsError("no"), "auth"),
        (theirs.InvalidResponse("?"), "response"),
        (theirs.DataError("?"), "response"),
        (OSError("?"), "connection"),
        (ValueError("?"), "internal"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_has_a_word(error: Exception, word: str) -> None:
    assert error_word(error) == word
    assert word in FAILURES


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_word_of_a_failed_connection_attempt_is_that_of_what_failed(link: str) -> None:
    error = theirs.ConnectionError("wrapped")
    setattr(error, link, theirs.AuthenticationError("no"))
    assert error_word(error) == "auth"
