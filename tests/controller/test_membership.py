"""When a sidecar tells the fleet of itself, what it says, and how long it believes what it heard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random
from typing import Self

import pytest

from harness.cases import cases
from harness.containers import SICK
from harness.controller import POLICY, WALL_S, NoChance
from harness.virtual_time import VirtualLoop, in_virtual_time, settle
from sidecar.controller.beat_content import about
from sidecar.controller.membership import (
    FIRST_AFTER_S,
    JITTER,
    LOST_S,
    STALE_BEATS,
    SUSPECT_BEATS,
    Membership,
)
from sidecar.controller.runtime import Runtime
from sidecar.core.claims import Beat, Fleet, Presence, Unknown
from sidecar.core.fleet.common_trait import Traits
from sidecar.core.fleet.members import About
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import BeatAnswered, BeatUnanswered
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Latch, State

INTERVAL_S = 10.0
FLEET = Fleet(3)
AWAY = Unknown("timeout")
REDIS = Evidence(60, 5, {"redis": 4, "http": 1})
UP = start("web/a", 0.0, POLICY, app_start="boot-1")._replace(state=State.UP)
SUSPECT = UP._replace(state=State.SUSPECT, verdict=SICK.verdict, cause="redis")
LATCHED = SUSPECT._replace(latch=Latch("web/a/boot-1", WALL_S, "many"))
DRAINING, DOWN = LATCHED._replace(state=State.DRAINING), LATCHED._replace(state=State.DOWN)
STOPPING = UP._replace(state=State.STOPPING)
RETIRING = UP._replace(state=State.RETIRING)
LEASE = Latch("", WALL_S, "retired", lease="lease-1")


class Always(Random):
    """Chance that is always this part of what it may be, from -1 to 1."""

    def __new__(cls, _part: float) -> Self:
        return super().__new__(cls)

    def __init__(self, part: float) -> None:
        self._part = part

    def uniform(self, a: float, b: float) -> float:
        return (a + b + self._part * (b - a)) / 2


class Scene:
    """A membership with a container, a budget that answers as the test says, and the observers of the answers."""

    def __init__(self, rng: Random | None = None, interval_s: float = INTERVAL_S) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.began = loop.time()
        self.container = UP
        self.evidence = REDIS
        self.answer: Fleet | Unknown | Exception = FLEET
        self.beats: list[tuple[float, Beat]] = []
        self.told: list[Fleet | Unknown] = []
        self.heard: list[BeatAnswered | BeatUnanswered] = []
        self.failures: list[Exception] = []
        self.lost = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.membership = Membership(
            self.beat,
            Runtime(loop.time, lambda: WALL_S, rng or NoChance(), self.failures.append),
            error_limit=POLICY.error_limit,
            interval_s=interval_s,
            put=self.heard.append,
            on_answer=lambda record: self.told.append(record.answer),
            lost=self.lost,
        )

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Answer as a budget."""
        self.beats.append((self.loop.time() - self.began, beat))
        self.lost.clear()
        await self.open.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.beats]

    @property
    def said(self) -> list[Presence]:
        return [beat.presence for _, beat in self.beats]

    @property
    def last(self) -> Beat:
        return self.beats[-1][1]

    async def becomes(self, container: Container) -> None:
        """Take a step, and let everybody hear of it."""
        self.container = container
        self.publish()
        await settle()

    async def counts(self, errors: int) -> None:
        """Have so many errors in the window, and a second pass."""
        self.evidence = self.evidence._replace(errors=errors)
        self.publish()
        await self.advance(1)

    def publish(self) -> None:
        """Hand in a snapshot, as the controller does."""
        self.membership.update(Snapshot(self.loop.time(), self.container, self.evidence, None))

    async def beat_now(self) -> None:
        self.publish()
        await self.membership.beat()

    async def advance(self, seconds: float) -> None:
        self.publish()
        await asyncio.sleep(seconds)
        await settle()


@contextlib.asynccontextmanager
async def beating(rng: Random | None = None, interval_s: float = INTERVAL_S) -> AsyncIterator[Scene]:
    scene = Scene(rng, interval_s)
    running = asyncio.create_task(scene.membership.run())
    await settle()
    try:
        yield scene
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


# -- when ---------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_first_beat_leaves_the_first_polls_alone_unless_the_container_is_suspect() -> None:
    async with beating() as scene:
        await scene.becomes(RETIRING)
        await scene.advance(FIRST_AFTER_S - 0.01)
        assert scene.beats == []
        await scene.becomes(SUSPECT)
        assert scene.said == [Presence.SUSPECT]


@in_virtual_time
async def test_beat_that_fails_inside_is_told_and_the_next_comes_all_the_same() -> None:
    async with beating() as scene:
        scene.answer = RuntimeError("broken")
        await scene.advance(FIRST_AFTER_S)
        scene.answer = FLEET
        await scene.advance(INTERVAL_S)
        assert scene.told[:1] == [FLEET]
        assert list(map(str, scene.failures)) == ["broken"]


@in_virtual_time
async def test_jitter_keeps_every_beat_within_its_bounds_and_no_two_sidecars_in_step() -> None:
    async with beating(Random(1)) as one, beating(Random(2)) as other:
        await one.advance(40 * INTERVAL_S)
        gaps = [after - before for scene in (one, other) for before, after in pairwise(scene.times)]
        assert all(INTERVAL_S * (1 - JITTER) <= gap <= INTERVAL_S * (1 + JITTER) for gap in gaps)
        assert min(gaps) < INTERVAL_S * (1 - JITTER / 2)
        assert max(gaps) > INTERVAL_S * (1 + JITTER / 2)
        assert not set(one.times[1:]) & set(other.times[1:])


@in_virtual_time
async def test_lost_connection_is_followed_by_a_beat_within_two_seconds_at_times_of_its_own() -> None:
    delays = []
    for seed in range(20):
        async with beating(Random(seed)) as scene:
            await scene.advance(4)
            scene.lost.set()
            await scene.advance(2)
            assert len(scene.beats) == 2
            delays.append(scene.times[1] - 4)
            await scene.advance(INTERVAL_S * (1 - JITTER) - 2)
            assert len(scene.beats) == 2
    assert max(delays) - min(delays) > 0.5
    assert LOST_S / 2 <= min(delays) <= max(delays) <= 1.5 * LOST_S


CHANGES = {
    "is suspect": (UP, SUSPECT),
    "is refused": (SUSPECT, SUSPECT._replace(refused=("window",))),
    "is culled": (SUSPECT, DRAINING),
    "app restarts": (UP, UP._replace(incarnation="boot-2")),
    "stops": (UP, STOPPING),
    "would be culled": (SUSPECT, SUSPECT._replace(would_culls=1, would_down=True)),
}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
@in_virtual_time
async def test_change_that_concerns_the_fleet_is_told_at_once(before: Container, after: Container) -> None:
    async with beating() as scene:
        scene.container = before
        await scene.advance(1)
        await scene.becomes(after)
        assert scene.times == pytest.approx([0 if before.presence is Presence.SUSPECT else FIRST_AFTER_S, 1])
        assert (scene.last.presence, scene.last.incarnation) == (after.presence, after.life)
        pause_s = INTERVAL_S / SUSPECT_BEATS if after.presence is Presence.SUSPECT else INTERVAL_S
        await scene.advance(pause_s - 0.01)
        assert len(scene.beats) == 2
        await scene.advance(0.02)
        assert len(scene.beats) == (2 if after is STOPPING else 3)


@in_virtual_time
async def test_goodbye_is_repeated_until_it_is_answered() -> None:
    async with beating() as scene:
        await scene.advance(1)
        scene.answer = AWAY
        await scene.becomes(STOPPING)
        await scene.advance(2 * INTERVAL_S)
        assert len(set(scene.said[1:])) == 1 < len(scene.said[1:])
        scene.answer = FLEET
        await scene.advance(INTERVAL_S)
        count = len(scene.beats)
        await scene.advance(2 * INTERVAL_S)
        assert (scene.last.presence, len(scene.beats)) == (Presence.GONE, count)


@pytest.mark.parametrize(("interval_s", "pause_s"), [(10.0, 2.0), (2.0, 1.0), (0.5, 0.5)])
@in_virtual_time
async def test_suspect_beats_more_often_until_it_is_one_no_more(interval_s: float, pause_s: float) -> None:
    async with beating(interval_s=interval_s) as scene:
        scene.container = SUSPECT
        await scene.advance(3 * pause_s + 0.01)
        assert scene.times == pytest.approx([number * pause_s for number in range(4)])
        await scene.becomes(UP)
        await scene.advance(interval_s - 0.01)
        assert len(scene.beats) == 5


@in_virtual_time
async def test_errors_that_have_become_many_more_or_fewer_are_told_soon() -> None:
    async with beating() as scene:
        scene.evidence = Evidence(60)
        await scene.advance(1)
        for errors in (1, 4, 5, 9, 10, 14, 15, 21, 30, 40, 45, 23, 22, 18, 17, 0):
            await scene.counts(errors)
        told = [beat.errors for _, beat in scene.beats]
        assert told == [0, 5, 10, 15, 30, 45, 22, 0]


@in_virtual_time
async def test_beat_without_an_answer_is_sent_again_soon_and_the_next_ones_in_their_own_time() -> None:
    async with beating() as scene:
        scene.answer = AWAY
        await scene.advance(9)
        scene.answer = FLEET
        await scene.advance(21)
        assert scene.times == pytest.approx([FIRST_AFTER_S + at for at in (0, 2, 4, 6, 8, 10, 20)])


@pytest.mark.parametrize(("chance", "first_s"), [(-1.0, 1.0), (1.0, 3.0)], ids=["earliest", "latest"])
@in_virtual_time
async def test_fleet_does_not_ask_a_store_that_was_away_all_at_once(chance: float, first_s: float) -> None:
    async with beating(Always(chance)) as scene:
        scene.answer = AWAY
        await scene.advance(FIRST_AFTER_S + first_s)
        assert scene.times == pytest.approx([FIRST_AFTER_S, FIRST_AFTER_S + first_s])


@in_virtual_time
async def test_no_claim_is_made_for_one_beat_and_a_half_after_the_store_was_away() -> None:
    async with beating() as scene:
        await scene.advance(1)
        for answer in (AWAY, FLEET, FLEET, FLEET):
            scene.answer = answer
            await scene.advance(INTERVAL_S)
        waits = [one.wait_s for one in scene.heard if isinstance(one, BeatAnswered)]
        assert waits == pytest.approx([0, 1.5 * INTERVAL_S, 0.5 * INTERVAL_S, 0])


# -- what ---------------------------------------------------------------------------------------------------


@cases(
    "container, beat",
    {
        "up": (UP, Beat("a", "boot-1", Presence.WELL, first=True, errors=5)),
        "refused": (
            SUSPECT._replace(refused=("window",)),
            Beat("a", "boot-1", Presence.SUSPECT, "redis", first=True, errors=5, refused=True),
        ),
        "draining": (DRAINING, Beat("a", "boot-1", Presence.DOWN, "redis", "web/a/boot-1", first=True, errors=5)),
        "down since before the sidecar started, by a claim of another name": (
            DOWN._replace(cause="", latch=Latch("web/a/-", WALL_S, "many")),
            Beat("a", "boot-1", Presence.DOWN, "unknown", "web/a/-", first=True, errors=5),
        ),
        "down under a lease": (
            DOWN._replace(latch=LEASE),
            Beat("a", "boot-1", Presence.DOWN, "unknown", "", first=True, lease="lease-1", errors=5),
        ),
        "stopping under a lease": (
            STOPPING._replace(latch=LEASE),
            Beat("a", "boot-1", Presence.GONE, first=True, errors=5),
        ),
        "would be down again": (
            SUSPECT._replace(would_culls=2, would_down=True, refused=("window",)),
            Beat("a", "boot-1#2", Presence.DOWN, "redis", "web/a/boot-1#2", first=True, errors=5),
        ),
        "instance without its service": (
            UP._replace(app="shop.web/0a1b-2c"),
            Beat("0a1b-2c", "boot-1", Presence.WELL, first=True, errors=5),
        ),
    },
)
@in_virtual_time
async def test_every_state_has_its_beat(container: Container, beat: Beat) -> None:
    scene = Scene()
    scene.container = container
    await scene.beat_now()
    assert scene.last == beat


@pytest.mark.parametrize(
    ("requests", "failed", "ratio"),
    [(0, 0, None), (19, 19, None), (20, 10, 500_000), (20, 0, 0), (3_000_000, 1, 0), (600, 1, 1_667)],
)
@in_virtual_time
async def test_ratio_is_told_once_there_are_enough_requests(requests: int, failed: int, ratio: int | None) -> None:
    scene = Scene()
    scene.evidence = Evidence(60, requests=requests, failed=failed)
    await scene.beat_now()
    assert scene.last.ratio == ratio


@in_virtual_time
async def test_beat_says_first_until_one_has_been_answered() -> None:
    async with beating() as scene:
        scene.answer = AWAY
        await scene.advance(15)
        scene.answer = FLEET
        await scene.advance(20)
        unanswered = scene.told.count(AWAY)
        assert [beat.first for _, beat in scene.beats] == [True] * (unanswered + 1) + [False]


# -- goodbye ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_goodbye_is_said_once() -> None:
    async with beating() as scene:
        await scene.advance(1)
        await scene.becomes(STOPPING)
        await scene.advance(5 * INTERVAL_S)
        await scene.beat_now()
        assert scene.said == [Presence.WELL, Presence.GONE]


# -- what was heard -----------------------------------------------------------------------------------------


@in_virtual_time
async def test_fleet_that_was_not_heard_of_for_three_beats_is_not_known() -> None:
    scene = Scene()
    await scene.beat_now()
    scene.answer = AWAY
    await scene.advance(STALE_BEATS * INTERVAL_S)
    await scene.beat_now()
    assert scene.membership.fleet == FLEET
    await scene.advance(0.01)
    assert scene.membership.fleet is None
    scene.answer = FLEET
    await scene.beat_now()
    assert scene.membership.fleet == FLEET


@in_virtual_time
async def test_controller_gets_every_beat_and_no_fleet_that_is_too_old() -> None:
    scene = Scene()
    scene.container = SUSPECT
    await scene.beat_now()
    for answer in (AWAY, RuntimeError("broken")):
        scene.answer = answer
        with contextlib.suppress(RuntimeError):
            await scene.beat_now()
    await scene.advance(STALE_BEATS * INTERVAL_S + 1)
    scene.answer = AWAY
    await scene.beat_now()
    assert scene.heard == [
        BeatAnswered(Presence.SUSPECT, "boot-1", FLEET),
        BeatUnanswered("timeout", FLEET),
        BeatUnanswered("internal", FLEET),
        BeatUnanswered("timeout"),
    ]


# -- what it tells about the container ----------------------------------------------------------------------


def _shown(container: Container, now: float, unix: float) -> Snapshot:
    return Snapshot(now, container, REDIS, None, weight=80, unix=unix)


def test_description_says_what_a_person_asks_for() -> None:
    suspect = SUSPECT._replace(since=90.0, born=40.0)
    told = about(_shown(suspect, 100.0, WALL_S), 5, "0.9", traits=Traits("411", "n7"))
    since, born = int(WALL_S) - 10, int(WALL_S) - 60
    assert told == About(State.SUSPECT, since, "boot-1", 80, 5, 5, "0.9", born, node="n7", app_version="411")
    down = DOWN._replace(since=90.0, born=40.0, app_version="412")
    told = about(_shown(down, 100.0, WALL_S), 5, "0.9", traits=Traits("411"))
    assert told == About(State.DOWN, since, "boot-1", 0, 5, 5, "0.9", born, app_version="412")
