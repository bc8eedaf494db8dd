"""A reply that announces more than memory or time allow is refused before hiredis makes room for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sidecar.store.bounded_parser import MAX_BYTES
from sidecar.store.protocol import StoreError
from sidecar.store.redis_client import RedisClient

if TYPE_CHECKING:
    from store.conftest import Actor

HUGE = b"*1000000000\r\n"


async def asked(actor: Actor, reply: bytes) -> object:
    """What the client makes of the reply, or the word for its refusal."""
    actor.line = reply
    client = RedisClient(await actor.open(), 5.0)
    try:
        return await client.ask(lambda value: value, "PING")
    except StoreError as error:
        return error.word
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        HUGE,
        b"*1000000\r\n",
        b"*4000000000\r\n",
        b"~1000000000\r\n",
        b">1000000000\r\n",
        b"|1000000000\r\n",
        b"*2\r\n" + HUGE,
        b"*3\r\n$4\r\nab\r\n\r\n$13\r\n" + HUGE + b"\r\n" + HUGE,
        b"*3\r\n=15\r\ntxt:$99999\r\nabcd\r\n" + HUGE,
        b"$2\r\n$9\r\n" + HUGE + b"+OK\r\n" + HUGE,
        b"*70000\r\n" + b":1\r\n" * 60_000 + HUGE,
    ],
    ids=lambda reply: repr(reply[:40]),
)
async def test_huge_list_is_refused_at_once(reply: bytes, actor: Actor) -> None:
    begun = time.thread_time()  # of the loop, which would make room for it, however busy the machine is
    assert await asked(actor, reply) == "response"
    assert time.thread_time() - begun < 1


async def test_reply_over_the_limit_is_refused(actor: Actor) -> None:
    assert await asked(actor, b"$%d\r\n" % (2 * MAX_BYTES) + b"x" * (MAX_BYTES + 1)) == "response"


@pytest.mark.parametrize("text", [b"*1000000000", b"$5\r\n*1000000000\r\n*1", b"\r\n*1000000000\r\n", b"x" * 200_000])
async def test_text_that_reads_like_a_huge_list_is_a_text(text: bytes, actor: Actor) -> None:
    reply = b"*2\r\n:1\r\n$%d\r\n%b\r\n" % (len(text), text)
    assert await asked(actor, reply) == [1, text]
