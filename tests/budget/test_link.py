"""Nonsense on the wire is a word too, and no URL can bend what a claim relies on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis import exceptions as theirs

from harness.claims import ask, claim, warm
from sidecar.budget.link import Link, error_word
from sidecar.core.sentences import UNKNOWN
from sidecar.core.words import Denied, Granted, Unknown

if TYPE_CHECKING:
    from budget.conftest import Actor, OpenBudget
    from harness.redis_server import RedisServer

BEFORE_7 = b"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: "
MARK = b":1700000000000000\r\n:7\r\n"
GRANTED = b"*9\r\n:1\r\n$7\r\ngranted\r\n:3\r\n:10\r\n:0\r\n:20\r\n:2\r\n" + MARK
DENIED = b"*11\r\n:0\r\n$6\r\nwindow\r\n:10\r\n:10\r\n:1500000\r\n:20\r\n:2\r\n$5\r\nredis\r\n*0\r\n" + MARK
FLEET = (
    b"*18\r\n:20\r\n:2\r\n:0\r\n$3\r\noff\r\n$0\r\n\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n"
    b":0\r\n$0\r\n\r\n:0\r\n:10\r\n" + MARK
)

LINES = [
    (b"-LOADING Redis is loading the dataset in memory\r\n", Unknown("loading")),
    (b"-BUSY Redis is busy running a script.\r\n", Unknown("busy")),
    (b"-NOAUTH Authentication required.\r\n", Unknown("auth")),
    (b"-NOPERM this user has no permissions\r\n", Unknown("permission")),
    (b"-ERR Protocol error: unauthenticated multibulk length\r\n", Unknown("auth")),
    (b"-READONLY You can't write against a read only replica.\r\n", Unknown("readonly")),
    (b"-OOM command not allowed\r\n", Unknown("oom")),
    (b"-" + BEFORE_7 + b"-OOM command not allowed\r\n", Unknown("oom")),
    (b"-" + BEFORE_7 + b"The user executing the script can't run this command\r\n", Unknown("permission")),
    (b"-ERR max number of clients reached\r\n", Unknown("connection")),
    (b"-MISCONF Redis is configured to save RDB snapshots\r\n", Unknown("response")),
    (b"-MOVED 3999 127.0.0.1:6381\r\n", Unknown("cluster")),
    (b"-ASK 3999 127.0.0.1:6381\r\n", Unknown("cluster")),
    (b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", Unknown("cluster")),
    (b"-CROSSSLOT Keys in request don't hash to the same slot\r\n", Unknown("response")),
    (b"-CLUSTERDOWN The cluster is down\r\n", Unknown("cluster")),
    (b"-MASTERDOWN Link with MASTER is down\r\n", Unknown("readonly")),
    (b"-ERR something\r\n", Unknown("response")),
    (b"-NOSCRIPT No matching script.\r\n", Unknown("response")),
    (b"-\r\n", Unknown("response")),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", Unknown("response")),
    (b"\x15\x03\x01\x00\x02\x02\x50\r\n", Unknown("response")),
    (b"+OK\r\n", Unknown("response")),
    (b"$-1\r\n", Unknown("response")),
    (b":1\r\n", Unknown("response")),
    (b"*0\r\n", Unknown("response")),
    (b"*-1\r\n", Unknown("response")),
    (GRANTED, Granted(3, 10, alive=20, wanting=2)),
    (DENIED, Denied("window", 10, 10, 1.5, 20, 2, "redis")),
    (GRANTED.replace(b"granted", b"GRANTED"), Unknown("response")),
    (GRANTED.replace(b":1\r\n", b":2\r\n", 1), Unknown("response")),
    (GRANTED.replace(b":1\r\n", b"$1\r\n1\r\n", 1), Unknown("response")),
    (GRANTED.replace(b":10\r\n", b":9\r\n"), Granted(3, 9, alive=20, wanting=2)),  # the strictest policy's
    (GRANTED.replace(b"*9", b"*8").removesuffix(b":7\r\n"), Unknown("response")),
    (GRANTED.replace(b"*9", b"*10") + b":0\r\n", Unknown("response")),
    (GRANTED.replace(b":3\r\n", b"$-1\r\n"), Unknown("response")),
    (GRANTED.replace(b":3\r\n", b"-ERR x\r\n"), Unknown("response")),
    (GRANTED.replace(b":0\r\n", b":7\r\n"), Unknown("response")),
    (DENIED.replace(b":0\r\n", b":1\r\n", 1), Unknown("response")),
    (DENIED.replace(b":1500000", b":0"), Unknown("response")),
    (DENIED.replace(b":1500000", b":-1"), Unknown("response")),
]


@pytest.mark.parametrize(("line", "answer"), LINES, ids=[repr(line)[:90] for line, _ in LINES])
async def test_answer_is_exactly_an_answer_and_all_else_is_unknown(
    line: bytes, answer: object, actor: Actor, open_budget: OpenBudget
) -> None:
    budget = open_budget(await actor.open())
    actor.line = line
    assert await budget.claim(claim("a")) == answer
    assert await budget.claim(claim("a")) == answer
    told = await warm(budget)
    assert isinstance(told, Unknown)
    assert told.error in UNKNOWN


async def test_refusal_for_a_reason_that_no_script_gives_is_unknown(actor: Actor, open_budget: OpenBudget) -> None:
    budget = open_budget(await actor.open())
    actor.line = DENIED.replace(b"window", b"wind0w")
    assert await budget.claim(claim("a")) == Unknown("response")


@pytest.mark.parametrize("length", [0, 1, 4, 20, len(GRANTED) - 1])
async def test_reply_that_breaks_off_is_a_lost_connection(length: int, actor: Actor, open_budget: OpenBudget) -> None:
    budget = open_budget(await actor.open())
    actor.line, actor.hangs_up = GRANTED[:length], True
    assert await ask(budget, "a") == Unknown("connection")
    actor.line, actor.hangs_up = GRANTED, False
    assert await ask(budget, "a") == Granted(3, 10)


async def test_reply_that_stays_incomplete_is_a_timeout(actor: Actor, open_budget: OpenBudget) -> None:
    budget = open_budget(await actor.open(), timeout_s=0.2)
    actor.line = GRANTED[:-1]
    assert await ask(budget, "a") == Unknown("timeout")
    assert await warm(budget) == Unknown("timeout")


async def test_reply_that_makes_no_sense_ends_the_connection(actor: Actor, open_budget: OpenBudget) -> None:
    budget = open_budget(await actor.open())
    for line in (b"+OK\r\n", GRANTED + GRANTED, b"-ERR something\r\n", GRANTED):
        actor.line = line
        await ask(budget, "a")
    assert actor.connections == 4


@pytest.mark.parametrize(
    "reply",
    [
        b"*2\r\n:2\r\n:1\r\n",
        b"*3\r\n:1\r\n:1\r\n:1\r\n",
        b"*1\r\n:1\r\n",
        b":1\r\n",
        b"*2\r\n$1\r\n1\r\n:1\r\n",
        b"*2\r\n:0\r\n:1\r\n",
    ],
)
async def test_warm_up_takes_no_other_server_for_redis(reply: bytes, actor: Actor, open_budget: OpenBudget) -> None:
    budget = open_budget(await actor.open())
    actor.line, actor.lines[b"EXISTS"] = FLEET, reply
    assert await warm(budget) == Unknown("response")
    actor.lines[b"EXISTS"] = b"*2\r\n:1\r\n:1\r\n"
    assert await warm(budget) is None


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
    assert word in UNKNOWN


async def test_claim_id_with_half_a_surrogate_pair_is_granted_as_any_other(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url)
    assert await ask(budget, "\ud800") == Granted(1, 10)
    assert await ask(budget, "\udfff") == Granted(2, 10)
    assert await ask(budget, "\ud800") == Granted(2, 10, replayed=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://:hunter2@localhost",
        "redis://:hunter2/x@localhost:6379",
        "redis://:hunter2@localhost:port",
        "redis://:hunter2@localhost?db=one",
        "redis://:hunter2@localhost?no_such_option=1",
        "redis://:hunter2@localhost?ssl_cert_reqs=none",
        "rediss://:hunter2@localhost?ssl_ca_certs=/nonexistent/hunter2.pem",
        "rediss://:hunter2@localhost?ssl_cert_reqs=hunter2",
    ],
)
def test_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="cannot be used as a Redis URL") as refusal:
        Link(url, 1)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.__suppress_context__


@pytest.mark.parametrize(
    "option",
    [
        "protocol=3",
        "decode_responses=1",
        "socket_timeout=0.0001",
        "socket_connect_timeout=0.000001",
        "health_check_interval=1",
        "retry_on_timeout=1",
    ],
)
async def test_option_in_the_url_does_not_bend_what_a_claim_relies_on(
    option: str, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(f"{redis_server.url}?{option}")
    assert await ask(budget, "a") == Granted(1, 10)


def test_strategy_that_is_not_known_is_refused(open_budget: OpenBudget) -> None:
    with pytest.raises(ValueError, match="no such strategy"):
        open_budget("redis://localhost", strategy="lottery")
