"""A bucket that is made when it is first needed, in a thread: importing a client must not hold up a health answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sidecar.core.types import Answer, Beat, Claim, Entry, Fleet, Hold, Lease, Roll, Unknown
from sidecar.net.threads import in_thread
from sidecar.store.budget import Budget


class Later:
    """``make()``, once made. If that fails it is told, the answer is ``Unknown("internal")``, and it is tried again."""

    def __init__(self, make: Callable[[], Budget], on_failure: Callable[[Exception], None]) -> None:
        self._make = make
        self._on_failure = on_failure
        self._making = asyncio.Lock()
        self._made: Budget | None = None

    async def claim(self, claim: Claim) -> Answer:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.claim(claim)

    async def retire(self, lease: Lease) -> Answer:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.retire(lease)

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.resign(instance, holder)

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.beat(beat)

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.hold(instance, author, reason, for_s)

    async def release(self, instance: str) -> bool | Unknown:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.release(instance)

    async def roll(self) -> Roll | Unknown:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.roll()

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.note(entries)

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.entries(since, after, most)

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """As the bucket answers."""
        bucket = await self._bucket()
        return bucket if isinstance(bucket, Unknown) else await bucket.first(word, for_s)

    async def aclose(self) -> None:
        """Let go of the bucket if it was ever made."""
        if self._made is not None:
            await self._made.aclose()

    async def _bucket(self) -> Budget | Unknown:
        async with self._making:
            if self._made is None:
                try:
                    self._made = await in_thread(self._make)
                except Exception as error:  # noqa: BLE001 - a bucket's failures are values
                    self._on_failure(error)
                    return Unknown("internal")
            return self._made
