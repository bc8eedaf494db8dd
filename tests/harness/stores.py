"""The store of the service ``app``, and minimal claims: read, and commit if there is a token."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from harness.claims import S, beat
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, HoldRow
from sidecar.core.fleet.view import Edits
from sidecar.store.protocol import Conflict, Over, Store, StoreError
from sidecar.store.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from sidecar.core.claims import Beat
    from sidecar.core.fleet.view import BeatReply, View

HOLD: Final = HoldRow("ada", "look", 1, 2)
CULL: Final = Cull("claim", "1", "redis", 1)
PREFIX: Final = "{ha:default/app}"
WINDOW_US: Final = 600 * S
EXPIRY_US: Final = 30 * S
CAPACITY: Final = 10
SETTINGS: Final = FleetSettings().dump()
FRESH, REPLAYED, SECOND, HEARD, REACHED = "granted 1", "replayed 1", "granted 2", "heard", "reached"


def redis_store(url: str, **changes: Any) -> RedisStore:
    """The store in the Redis at ``url``, with a timeout of 5 s unless ``changes`` has another."""
    return RedisStore(url, **{"prefix": PREFIX, "timeout_s": 5.0, **changes})


async def send_beat(store: Store, sent: Beat, settings: str = SETTINGS) -> BeatReply:
    """The store's answer to the beat."""
    return await store.beat(sent, settings=settings, window_us=WINDOW_US, expiry_us=EXPIRY_US)


async def look(store: Store, instance: str = "a") -> View:
    """The store's content for the instance."""
    return await store.read(instance, window_us=WINDOW_US, expiry_us=EXPIRY_US)


async def commit(store: Store, *, capacity: int = CAPACITY, **changes: Any) -> int:
    """Commit with the current revision."""
    revision = (await look(store)).revision
    return await store.commit(revision, Edits(**{"window_us": WINDOW_US, "capacity": capacity, **changes}))


async def claim(store: Store, claim_id: str) -> str:
    """``granted 1`` (tokens in use), ``replayed 1``, ``over``, ``conflict``, or the word of the error."""
    try:
        view = await look(store)
        if claim_id in view.grants:
            return f"replayed {len(view.grants)}"
        await store.commit(view.revision, Edits(grant=claim_id, window_us=WINDOW_US, capacity=CAPACITY))
    except StoreError as error:
        return error.word
    except (Over, Conflict) as answer:
        return type(answer).__name__.lower()
    return f"granted {len(view.grants) + 1}"


async def warm(store: Store) -> str:
    """Run each script, so that each step of a claim costs one round trip; ``heard`` or the word of the error."""

    async def run_each_script() -> None:
        await send_beat(store, beat("another"))
        await look(store)
        with suppress(Conflict):
            await store.commit(-1, Edits())

    return await word_of(run_each_script()) or HEARD


async def reach(store: Store) -> str:
    """``reached``, or the word of the error: one exchange, which writes nothing."""
    return await word_of(look(store)) or REACHED


async def word_of(call: Awaitable[object]) -> str:
    """The word of the error, or ``""``."""
    try:
        await call
    except StoreError as error:
        return error.word
    return ""


@contextmanager
def impatient(*stores: RedisStore, for_s: float = 0.3) -> Iterator[None]:
    """Shorten the timeout of these stores while no answer can come; outside, a busy machine has more time."""
    patience = [store._timeout_s for store in stores]
    for store in stores:
        store._timeout_s = for_s
    yield
    for store, timeout_s in zip(stores, patience, strict=True):
        store._timeout_s = timeout_s
