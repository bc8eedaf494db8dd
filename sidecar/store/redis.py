"""The store on Redis: each call is one Lua script or a few plain commands, and nothing is tried twice.

A caller without a clear answer asks again: a claim under the same claim id, an entry of the ledger with the same text.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from secrets import token_hex
from types import MappingProxyType
from typing import Any, Final, TypeVar

from redis.exceptions import InvalidResponse, NoScriptError

from sidecar.core.explain.ledger_log import NOTED_S, SHARED_S
from sidecar.core.fleet.raw import Heard, Raw
from sidecar.core.types import US_PER_S, Beat, Entry
from sidecar.store import ledger_rows, replies, scripts
from sidecar.store.access import Access
from sidecar.store.beats import MOST_CAUSES, member_row
from sidecar.store.link import NO_FILES, Link, error_word
from sidecar.store.protocol import MOST_STRUCK, Changes, Conflict, Listing, Over, StoreError
from sidecar.store.replies import written
from sidecar.store.scripts import Script

T = TypeVar("T")

KEPT_S: Final = 35 * 24 * 3600
"""How long the keys of a service that has ended stay: the ledger for the report of the month, all others with it."""

_TABLES: Final[Mapping[str, str]] = MappingProxyType({"state": "1", "culls": "2", "leases": "3", "holds": "4"})
_MOST_PAGES: Final = 20
_MOST_UNCLEAR: Final = 100

# The counter of the article: its own code does MULTI, INCR, EXPIRE, EXEC on the same key.
_COUNT: Final = "local n = redis.call('INCR', KEYS[1]) redis.call('EXPIRE', KEYS[1], ARGV[1]) return n"


class RedisStore:
    """The store of one service under ``<prefix>:*``, on the Redis at ``url``.

    A call takes ``timeout_s`` seconds at most, connecting included, and one waits for the other. The ledger keeps about
    ``events_max`` entries. Raises ValueError for a URL or files that cannot be used.
    """

    def __init__(
        self, url: str, *, prefix: str, timeout_s: float, access: Access = NO_FILES, events_max: int = 10_000
    ) -> None:
        self._link = Link(url, timeout_s, access)
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._are_loaded = False
        self._keys: dict[Script, tuple[str | bytes, ...]] = {
            script: (str(len(script.keys)), *(self._key(name) for name in script.keys))
            for script in (scripts.READ, scripts.COMMIT, scripts.BEAT)
        }
        kept = (KEPT_S * 1000, NOTED_S * US_PER_S, SHARED_S * US_PER_S)
        self._of_ledger = tuple(str(number) for number in (events_max, *kept))
        self._of_beats = tuple(str(number) for number in (MOST_STRUCK, MOST_CAUSES, KEPT_S * 1000))
        self._unclear: dict[str, str] = {}

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> Raw:
        """What is there now."""
        about = (written(instance), str(window_us), str(expiry_us))
        return await self._in_turn(self._run(scripts.READ, replies.raw, about))

    async def commit(self, revision: int, changes: Changes) -> int:
        """Write, if the revision is still this one; the instant of it. Raises Conflict and Over."""
        word, now_us, _ = await self._in_turn(self._commit(str(revision), changes))
        if word < 0:
            raise Over
        if word == 0:
            raise Conflict
        return now_us

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> Heard:
        """Take in a sign of life; it also sees to it that the next claim costs one round trip per step."""
        return await self._in_turn(self._beat(beat, settings, (str(window_us), str(expiry_us))))

    async def members(self, *, most: int, since_us: int) -> Listing:
        """At most so many members, and as many of those who departed after ``since_us``."""
        return await self._in_turn(self._members(most, since_us))

    async def count(self, key: str, window_s: int) -> int:
        """Count one up under the article's key, which is not a key of the service."""
        about = (_COUNT, "1", written(key), str(window_s))
        return await self._in_turn(self._link.ask(replies.count, "EVAL", *about))

    async def note(self, entries: Sequence[Entry]) -> int:
        """Write entries into the ledger; how many were new."""
        return (await self._in_turn(self._commit("", Changes(entries=entries))))[2] if entries else 0

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        """At most so many of the ledger, in the order of their arrival; what is no entry of ours is passed over."""
        return await self._in_turn(self._entries(ledger_rows.start(since, after), most))

    async def first(self, word: str, for_s: float) -> bool:
        """Whether nobody said the word before us; asked again after a failure, the same caller is still the first."""
        return await self._in_turn(self._first(word, max(1, round(for_s * 1000))))

    async def aclose(self) -> None:
        """End the connection, within the time-out."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._timeout_s):
                await self._link.aclose()

    def _key(self, name: str) -> bytes:
        return written(f"{self._prefix}:{name}")

    async def _in_turn(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                return await call
        except Exception as error:
            self._are_loaded = False  # the next connection may lead to another server
            raise StoreError(error_word(error)) from error
        finally:
            call.close()

    async def _commit(self, revision: str, changes: Changes) -> tuple[int, int, int]:
        numbers = (changes.window_us, changes.capacity, changes.most, len(changes.writes), len(changes.refund))
        about: list[str | bytes] = [revision, written(changes.grant), *map(str, numbers), *self._of_ledger]
        for table, name, text in changes.writes:
            about += (_TABLES.get(table, "0"), written(name), written(text))
        about += map(written, changes.refund)
        about += (written(text) for entry in changes.entries for text in ledger_rows.told(entry))
        return await self._run(scripts.COMMIT, replies.committed, about)

    async def _beat(self, beat: Beat, settings: str, limits: tuple[str, ...]) -> Heard:
        ratio = "" if beat.ratio is None else str(beat.ratio)
        texts = (beat.instance, beat.presence.value, member_row(beat), str(beat.errors), ratio, settings, beat.about)
        about: tuple[str | bytes, ...] = (*map(written, texts), *limits, *self._of_beats)
        heard = await self._run(scripts.BEAT, replies.heard, about)
        if not self._are_loaded:
            await self._load()
            self._are_loaded = True
        return heard

    async def _load(self) -> None:
        """Ask which scripts the server has before sending any: older ones hand each SCRIPT LOAD to replicas."""
        needed = (scripts.READ, scripts.COMMIT)  # the beat has just been run
        read = partial(replies.flags, number=len(needed))
        there = await self._link.ask(read, "SCRIPT", "EXISTS", *(script.sha for script in needed))
        for script, is_there in zip(needed, there, strict=True):
            if not is_there:
                await self._link.ask(partial(_loaded, script), "SCRIPT", "LOAD", script.text)

    async def _members(self, most: int, since_us: int) -> Listing:
        every = await self._link.ask(replies.times, "ZRANGE", self._key("alive"), "0", "-1", "WITHSCORES")
        shown = sorted(every)[:most]
        names = [name for name, _ in shown]
        rows = await self._values("members", names)
        abouts = await self._values("abouts", names)
        newest: tuple[str, ...] = ("+inf", f"({since_us}", "BYSCORE", "REV", "LIMIT", "0", str(most), "WITHSCORES")
        left = await self._link.ask(replies.times, "ZRANGE", self._key("departed"), *newest)
        here = {name for name, _ in every}
        culled = await self._link.ask(replies.names, "HGETALL", self._key("culls"))
        told = dict(zip(culled, await self._values("abouts", culled), strict=True))
        return replies.listing(shown, rows, abouts, [one for one in left if one[0] not in here], told)

    async def _values(self, key: str, names: Sequence[bytes]) -> list[str]:
        return await self._link.ask(replies.texts, "HMGET", self._key(key), *names) if names else []

    async def _entries(self, start: str, most: int) -> list[Entry]:
        for _ in range(_MOST_PAGES):
            page = await self._link.ask(ledger_rows.page, "XRANGE", self._key("events"), start, "+", "COUNT", str(most))
            read = [entry for _, entry in page if entry is not None]
            if read or len(page) < most:
                return read
            start = f"({page[-1][0]}"
        return []

    async def _first(self, word: str, for_ms: int) -> bool:
        caller = self._unclear.setdefault(word, token_hex(8))
        while len(self._unclear) > _MOST_UNCLEAR:
            del self._unclear[next(iter(self._unclear))]
        key = self._key(f"first:{word}")
        was_first = await self._link.ask(_is_set, "SET", key, caller, "NX", "PX", str(for_ms))
        if not was_first:
            was_first = await self._link.ask(lambda reply: reply == caller.encode(), "GET", key)
        self._unclear.pop(word, None)
        return was_first

    async def _run(self, script: Script, read: Callable[[object], T], about: Iterable[str | bytes]) -> T:
        arguments: tuple[str | bytes, ...] = (*self._keys[script], *about)
        try:
            return await self._link.ask(read, "EVALSHA", script.sha, *arguments)
        except NoScriptError:
            self._are_loaded = False
            return await self._link.ask(read, "EVAL", script.text, *arguments)


def _is_set(reply: object) -> bool:
    if reply not in (b"OK", None):
        raise InvalidResponse("neither set nor not")
    return reply is not None


def _loaded(script: Script, reply: object) -> None:
    if reply != script.sha.encode():
        raise InvalidResponse("not the digest of our script")
