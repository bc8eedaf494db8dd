"""The store on Redis: each call is one Lua script or a few plain commands, and nothing is tried twice.

A caller without a clear answer asks again: a claim under the same claim id, an entry of the ledger with the same text.
Nothing of redis-py is imported before the first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import chain
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from sidecar.core.claims import Beat
from sidecar.core.fleet.view import BeatReply, Edits, Listing, View, member_row
from sidecar.core.types import US_PER_S, Entry
from sidecar.net.threads import in_thread
from sidecar.store import redis_content as content
from sidecar.store import redis_entries
from sidecar.store.protocol import MAX_CAUSES, MAX_STRUCK, NOTED_S, SHARED_S, Conflict, Over, StoreError

if TYPE_CHECKING:
    from sidecar.store.redis_client import RedisClient

KEPT_S: Final = 35 * 24 * 3600
"""How long the keys of a service stay after its end: a monthly report needs the ledger that long."""

_MAX_PAGES: Final = 20
_ROWS_AT_ONCE: Final = 250
_MAX_UNCLEAR: Final = 100

# The article's counter. The article itself runs MULTI, INCR, EXPIRE, EXEC on the same key.
_COUNT: Final = "local n = redis.call('INCR', KEYS[1]) redis.call('EXPIRE', KEYS[1], ARGV[1]) return n"


class RedisStore:
    """The store of one service under ``<prefix>:*``, on the Redis at ``url``.

    A call takes at most ``timeout_s`` seconds, connecting included; calls wait for each other. The ledger keeps about
    ``events_max`` entries. A URL or files that cannot be used are reported to ``on_failure`` at each call, and the call
    raises StoreError("internal").
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        timeout_s: float,
        password_file: str = "",
        events_max: int = 10_000,
        on_failure: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        def open_client() -> RedisClient:
            from sidecar.store.redis_client import RedisClient  # noqa: PLC0415 - 7 MiB, and see _opened

            return RedisClient(url, timeout_s, password_file, f"{prefix}:state", lost=self.lost)

        self.lost = asyncio.Event()
        self._open = open_client
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._on_failure = on_failure
        self._client: RedisClient | None = None
        self._opening, self._turn = asyncio.Lock(), asyncio.Lock()
        self._events_max = events_max
        self._unclear: dict[str, str] = {}

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> View:
        async with self._in_turn() as client:
            return await client.run(content.view, content.READ, self._prefix, (instance, window_us, expiry_us))

    async def commit(self, revision: int, edits: Edits) -> int:
        word, now_us, _ = await self._commit(str(revision), edits)
        if word < 0:
            raise Over
        if word == 0:
            raise Conflict
        return now_us

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:
        read = partial(content.beat_reply, instance=beat.instance)
        arguments = (
            *(beat.instance, beat.presence.value, member_row(beat), beat.errors),
            *("" if beat.ratio is None else beat.ratio, settings, beat.about, window_us, expiry_us),
            *(MAX_STRUCK, MAX_CAUSES, KEPT_S * 1000),
        )
        async with self._in_turn() as client:
            try:
                return await client.run(read, content.BEAT, self._prefix, arguments)
            finally:
                self.lost.clear()  # its end asks for this beat, and a failure repeats the beat by itself
                client.watch()

    async def members(self, *, most: int, since_us: int) -> Listing:
        async with self._in_turn() as client:
            alive = await client.ask(content.times, "ZRANGE", self._key("alive"), 0, -1, "WITHSCORES")
            names = sorted(alive)[:most]
            rows, abouts = await self._values(client, "members", names), await self._values(client, "abouts", names)
            newest = ("+inf", f"({since_us}", "BYSCORE", "REV", "LIMIT", 0, most, "WITHSCORES")
            left = await client.ask(content.times, "ZRANGE", self._key("departed"), *newest)
            culled = await client.ask(content.names, "HGETALL", self._key("culls"))
            culled_abouts = zip(culled, await self._values(client, "abouts", culled), strict=True)
        return Listing(
            [(name, alive[name], row, about) for name, row, about in zip(names, rows, abouts, strict=True)],
            [(name, at) for name, at in left.items() if name not in alive],
            {name: about for name, about in culled_abouts if about},
        )

    async def count(self, key: str, window_s: int) -> int:
        """Increment the article's key, which is not a key of the service; return the count."""
        async with self._in_turn() as client:
            return await client.ask(content.count, "EVAL", _COUNT, 1, key, window_s)

    async def note(self, entries: Sequence[Entry]) -> int:
        return (await self._commit("", Edits(entries=tuple(entries))))[2] if entries else 0

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        """At most ``most`` entries of the ledger, in the order of arrival, without those that no sidecar wrote."""
        start, key = redis_entries.start_id(since, after), self._key("events")
        async with self._in_turn() as client:
            for _ in range(_MAX_PAGES):
                page = await client.ask(redis_entries.entries, "XRANGE", key, start, "+", "COUNT", most)
                read = [entry for _, entry in page if entry is not None]
                if read or len(page) < most:
                    return read
                start = f"({page[-1][0]}"
        return []

    async def first(self, word: str, for_s: float) -> bool:
        """Whether this is the first call; the caller that repeats it after a failure is still the first."""
        key, for_ms = self._key(f"first:{word}"), max(1, round(for_s * 1000))
        async with self._in_turn() as client:
            caller = self._unclear.setdefault(word, token_hex(8))
            while len(self._unclear) > _MAX_UNCLEAR:
                del self._unclear[next(iter(self._unclear))]
            was_first = await client.ask(_is_set, "SET", key, caller, "NX", "PX", for_ms)
            if not was_first:
                was_first = await client.ask(lambda reply: reply == caller.encode(), "GET", key)
            self._unclear.pop(word, None)
            return was_first

    async def aclose(self) -> None:
        """End the connection, within the timeout."""
        if self._client is not None:
            with suppress(Exception):
                async with asyncio.timeout(self._timeout_s):
                    await self._client.aclose()

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[RedisClient]:
        """Lend the client to one call at a time, within the time limit."""
        client = self._client or await self._opened()
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                try:
                    yield client
                finally:
                    client.watch_soon()
        except TimeoutError as error:
            raise StoreError("timeout", client.silence()) from error

    async def _opened(self) -> RedisClient:
        """The client, made in a thread, because the import of redis-py takes longer than a health answer may wait."""
        async with self._opening:
            if self._client is None:
                try:
                    self._client = await in_thread(self._open)
                except Exception as error:
                    self._on_failure(error)
                    raise StoreError("internal") from error
            return self._client

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    async def _values(self, client: RedisClient, key: str, names: Sequence[str]) -> list[str]:
        """The values of these names in a hash."""
        read: list[str] = []
        for begin in range(0, len(names), _ROWS_AT_ONCE):  # health answers go between the replies
            some = names[begin : begin + _ROWS_AT_ONCE]
            read += await client.ask(content.texts, "HMGET", self._key(key), *some)
        return read

    async def _commit(self, revision: str, edits: Edits) -> tuple[int, int, int]:
        writes = list(_writes(edits))
        arguments: tuple[str | int, ...] = (
            *(revision, edits.grant, edits.window_us, edits.capacity, edits.most, len(writes), len(edits.refund)),
            *(self._events_max, KEPT_S * 1000, NOTED_S * US_PER_S, SHARED_S * US_PER_S),
            *chain.from_iterable(writes),
            *edits.refund,
            *chain.from_iterable(map(redis_entries.fields_of, edits.entries)),
        )
        async with self._in_turn() as client:
            return await client.run(content.committed, content.COMMIT, self._prefix, arguments)


def _writes(edits: Edits) -> Iterator[tuple[str, str, str]]:
    """The number of the key in ``commit.lua``, the name, and the text of each record; ``""`` removes it."""
    for name, record in (("epoch", edits.epoch), ("state", edits.state)):
        if record is not None:
            yield "1", name, record.dump()
    for key, rows in (("2", edits.culls), ("3", edits.leases), ("4", edits.holds)):
        for name, row in rows.items():
            yield key, name, row.dump() if row is not None else ""


def _is_set(reply: Any) -> bool:
    return {b"OK": True, None: False}[reply]
