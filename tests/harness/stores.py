"""The store of the service ``app``, beats for it, and claims as simple as can be: read, and commit if there is room."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sidecar.core.types import US_PER_S, Beat, Presence
from sidecar.store.protocol import Changes, Conflict, Over, Store, StoreError
from sidecar.store.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from sidecar.core.fleet.raw import Heard, Raw

S: Final = US_PER_S
PREFIX: Final = "{ha:default/app}"
WINDOW_US: Final = 600 * S
EXPIRY_US: Final = 30 * S
CAPACITY: Final = 10
FRESH, REPLAYED, HEARD = "granted 1", "replayed 1", "heard"


def redis_store(url: str, **changes: Any) -> RedisStore:
    """The store in the Redis at ``url``, in good time unless told so."""
    return RedisStore(url, **{"prefix": PREFIX, "timeout_s": 5.0, **changes})


def beat(name: str, presence: Presence = Presence.WELL, life: str = "1", **more: Any) -> Beat:
    """A sign of life."""
    return Beat(name, life, presence, **more)


def suspect(name: str, kind: str = "redis", life: str = "1", **more: Any) -> Beat:
    """The beat of a suspect."""
    return Beat(name, life, Presence.SUSPECT, kind, **more)


async def tell(store: Store, told: Beat, settings: str = "terms") -> Heard:
    """What the store answers to the beat."""
    return await store.beat(told, settings=settings, window_us=WINDOW_US, expiry_us=EXPIRY_US)


async def look(store: Store, instance: str = "a") -> Raw:
    """What the store holds for the instance."""
    return await store.read(instance, window_us=WINDOW_US, expiry_us=EXPIRY_US)


async def commit(store: Store, *, capacity: int = CAPACITY, **changes: Any) -> int:
    """Commit by the revision of now."""
    revision = (await look(store)).revision
    return await store.commit(revision, Changes(**{"window_us": WINDOW_US, "capacity": capacity, **changes}))


async def claim(store: Store, claim_id: str) -> str:
    """``granted 1`` (tokens in use), ``replayed 1``, ``over``, ``conflict``, or the word for what went wrong."""
    try:
        raw = await look(store)
        if claim_id in raw.grants:
            return f"replayed {len(raw.grants)}"
        await store.commit(raw.revision, Changes(grant=claim_id, window_us=WINDOW_US, capacity=CAPACITY))
    except StoreError as error:
        return error.word
    except (Over, Conflict) as answer:
        return type(answer).__name__.lower()
    return f"granted {len(raw.grants) + 1}"


async def warm(store: Store) -> str:
    """``heard`` when a beat was answered, after which each step of a claim costs one round trip."""
    return await word_of(tell(store, beat("somebody else"))) or HEARD


async def word_of(call: Awaitable[object]) -> str:
    """The word for what went wrong, ``""`` if nothing did."""
    try:
        await call
    except StoreError as error:
        return error.word
    return ""


@contextmanager
def impatient(*stores: RedisStore, for_s: float = 0.3) -> Iterator[None]:
    """They wait so long for an answer that will not come; before and after, a busy machine may take its time."""
    patience = [store._timeout_s for store in stores]
    for store in stores:
        store._timeout_s = for_s
    yield
    for store, timeout_s in zip(stores, patience, strict=True):
        store._timeout_s = timeout_s
