"""When a sidecar tells the fleet of itself, what it says, and how long it believes what it heard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from harness.hall import POLICY, WALL_S
from harness.lives import SICK
from harness.virtual_time import VirtualLoop, in_virtual_time, settle
from sidecar.core.events import Stopped
from sidecar.core.members import unpack
from sidecar.core.records import Record, Snapshot
from sidecar.core.standing import Order, Standing, start
from sidecar.core.words import About, Beat, Evidence, Fleet, Latch, Presence, State, Unknown
from sidecar.pulse import ABOUT_EVERY, FIRST_AFTER_S, JITTER, STALE_BEATS, Description, Pulse

INTERVAL_S = 10.0
FLEET = Fleet(3)
AWAY = Unknown("timeout")
REDIS = Evidence(60, 5, {"redis": 4, "http": 1})
UP = replace(start("web/a", 0.0, POLICY, app_start="boot-1"), state=State.UP)
SUSPECT = replace(UP, state=State.SUSPECT, verdict=SICK.verdict)
LATCHED = replace(SUSPECT, latch=Latch("web/a/boot-1", WALL_S, "many"))
DRAINING, DOWN = replace(LATCHED, state=State.DRAINING), replace(LATCHED, state=State.DOWN)
STOPPING = replace(UP, state=State.STOPPING)
RETIRING = replace(UP, state=State.RETIRING)
LEASE = Latch("", WALL_S, "retired", lease="lease-1")
ORDER = Order("ann", "it leaks", State.UP, None)


class Middle:
    """Chance without any."""

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


class Scene:
    """A pulse and what it can see: the standing, a bucket that answers as it is told, and who hears the answers."""

    def __init__(self, rng: object = None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.began = loop.time()
        self.standing = UP
        self.evidence = REDIS
        self.answer: Fleet | Unknown = FLEET
        self.about = ""
        self.beats: list[tuple[float, Beat]] = []
        self.told: list[Fleet | Unknown] = []
        self.failures: list[Exception] = []
        self.tells = True
        self.open = asyncio.Event()
        self.open.set()
        self.pulse = Pulse(
            self._snapshot,
            self,  # type: ignore[arg-type]  # of a budget it needs the beat alone
            interval_s=INTERVAL_S,
            clock=loop.time,
            rng=rng or Middle(),  # type: ignore[arg-type]  # as above
            told=self._tell,
            on_failure=self.failures.append,
            about=lambda _: self.about,
        )

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.loop.time(), self.standing, self.evidence, None)

    def _tell(self, answer: Fleet | Unknown) -> None:
        if not self.tells:
            raise RuntimeError("who was told failed")
        self.told.append(answer)

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """The bucket."""
        self.beats.append((self.loop.time() - self.began, beat))
        await self.open.wait()
        return self.answer

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.beats]

    @property
    def said(self) -> list[Presence]:
        return [beat.presence for _, beat in self.beats]

    @property
    def abouts(self) -> list[str]:
        return [beat.about for _, beat in self.beats]

    @property
    def last(self) -> Beat:
        return self.beats[-1][1]

    async def becomes(self, standing: Standing) -> None:
        """Take a step, and let everybody hear of it."""
        before, self.standing = self.standing, standing
        self.pulse.notice(Record(Stopped(), before, standing, self.evidence))
        await settle()

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await settle()


@contextlib.asynccontextmanager
async def beating(rng: object = None) -> AsyncIterator[Scene]:
    scene = Scene(rng)
    running = asyncio.create_task(scene.pulse.run())
    await settle()
    try:
        yield scene
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


# -- when ---------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_first_beat_leaves_the_first_polls_alone_whatever_happens_meanwhile() -> None:
    async with beating() as scene:
        await scene.becomes(SUSPECT)
        await scene.passes(FIRST_AFTER_S - 0.01)
        assert scene.beats == []
        await scene.passes(0.02)
        assert scene.said == [Presence.WANTS]


@in_virtual_time
async def test_beats_come_an_interval_apart() -> None:
    async with beating() as scene:
        await scene.passes(35)
        assert scene.times == pytest.approx([FIRST_AFTER_S + beat * INTERVAL_S for beat in range(4)])


@in_virtual_time
async def test_beat_that_fails_inside_is_told_and_the_next_comes_all_the_same() -> None:
    async with beating() as scene:
        scene.tells = False
        await scene.passes(FIRST_AFTER_S)
        scene.tells = True
        await scene.passes(INTERVAL_S)
        assert (len(scene.beats), scene.told) == (2, [FLEET])
        assert list(map(str, scene.failures)) == ["who was told failed"]


@in_virtual_time
async def test_jitter_keeps_every_beat_within_its_bounds_and_no_two_pulses_in_step() -> None:
    async with beating(Random(1)) as one, beating(Random(2)) as other:
        await one.passes(40 * INTERVAL_S)
        gaps = [after - before for scene in (one, other) for before, after in pairwise(scene.times)]
        assert all(INTERVAL_S * (1 - JITTER) <= gap <= INTERVAL_S * (1 + JITTER) for gap in gaps)
        assert min(gaps) < INTERVAL_S * (1 - JITTER / 2)
        assert max(gaps) > INTERVAL_S * (1 + JITTER / 2)
        assert not set(one.times[1:]) & set(other.times[1:])


CHANGES = {
    "wants": (UP, SUSPECT),
    "recovers": (SUSPECT, UP),
    "is culled": (SUSPECT, DRAINING),
    "app restarts": (UP, replace(UP, incarnation="boot-2")),
    "culled app is replaced": (DOWN, replace(UP, state=State.STARTING, incarnation="boot-2")),
    "starts to serve": (replace(UP, state=State.STARTING), UP),
    "stops": (UP, STOPPING),
    "would be culled": (SUSPECT, replace(SUSPECT, would_culls=1, would_down=True)),
    "would be replaced": (
        replace(SUSPECT, would_culls=1, would_down=True),
        replace(UP, would_culls=1),
    ),
}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
@in_virtual_time
async def test_change_that_concerns_the_fleet_is_told_at_once(before: Standing, after: Standing) -> None:
    async with beating() as scene:
        scene.standing = before
        await scene.passes(1)
        await scene.becomes(after)
        assert scene.times == pytest.approx([FIRST_AFTER_S, 1])
        assert (scene.last.presence, scene.last.incarnation) == (after.presence, after.life)
        await scene.passes(INTERVAL_S - 0.01)
        assert len(scene.beats) == 2
        await scene.passes(0.02)
        assert len(scene.beats) == (2 if after is STOPPING else 3)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (UP, replace(UP, bad_checks=1)),
        (SUSPECT, replace(SUSPECT, asking=True)),
        (DRAINING, DOWN),
        (UP, replace(UP, app_start="boot-1 by its page")),
    ],
    ids=["counts", "asks", "drained", "named"],
)
@in_virtual_time
async def test_step_that_the_fleet_does_not_care_for_waits_for_the_next_beat(before: Standing, after: Standing) -> None:
    async with beating() as scene:
        scene.standing = before
        await scene.passes(1)
        await scene.becomes(after)
        assert len(scene.beats) == 1


@in_virtual_time
async def test_presence_that_flips_while_a_beat_is_on_its_way_makes_one_more_beat_that_tells_the_last() -> None:
    async with beating() as scene:
        scene.open.clear()
        await scene.passes(1)
        for number in range(101):
            await scene.becomes(SUSPECT if number % 2 == 0 else UP)
        assert scene.said == [Presence.WELL]
        scene.open.set()
        await scene.passes(1)
        assert scene.said == [Presence.WELL, Presence.WANTS]


@in_virtual_time
async def test_flapping_costs_no_more_than_one_beat_a_flip_and_ends_with_it() -> None:
    async with beating() as scene:
        await scene.passes(1)
        for number in range(20):
            await scene.becomes(SUSPECT if number % 2 == 0 else UP)
        assert len(scene.beats) <= 21
        assert scene.last.presence is Presence.WELL
        await scene.passes(INTERVAL_S - 1)
        assert len(scene.beats) <= 21


@in_virtual_time
async def test_bucket_that_is_away_is_asked_no_more_often_than_one_that_is_there() -> None:
    async with beating() as scene:
        scene.answer = AWAY
        await scene.passes(35)
        assert len(scene.beats) == 4


# -- what ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("standing", "beat"),
    [
        (replace(UP, state=State.STARTING), Beat("a", "boot-1", Presence.STARTING, first=True)),
        (UP, Beat("a", "boot-1", Presence.WELL, first=True)),
        (SUSPECT, Beat("a", "boot-1", Presence.WANTS, "redis", first=True)),
        (DRAINING, Beat("a", "boot-1", Presence.DOWN, "unknown", "web/a/boot-1", first=True)),
        (DOWN, Beat("a", "boot-1", Presence.DOWN, "unknown", "web/a/boot-1", first=True)),
        (
            replace(DOWN, latch=Latch("web/a/-", WALL_S, "many")),
            Beat("a", "boot-1", Presence.DOWN, "unknown", "web/a/-", first=True),
        ),
        (RETIRING, Beat("a", "boot-1", Presence.WELL, first=True)),
        (
            replace(DOWN, latch=LEASE),
            Beat("a", "boot-1", Presence.DOWN, "unknown", "", first=True, lease="lease-1"),
        ),
        (
            replace(DRAINING, latch=LEASE),
            Beat("a", "boot-1", Presence.DOWN, "unknown", "", first=True, lease="lease-1"),
        ),
        (replace(STOPPING, latch=LEASE), Beat("a", "boot-1", Presence.GONE, first=True)),
        (replace(SUSPECT, order=ORDER), Beat("a", "boot-1", Presence.WELL, first=True)),
        (replace(DOWN, order=ORDER), Beat("a", "boot-1", Presence.DOWN, "manual", "web/a/boot-1", first=True)),
        (STOPPING, Beat("a", "boot-1", Presence.GONE, first=True)),
        (
            replace(SUSPECT, would_culls=1, would_down=True),
            Beat("a", "boot-1", Presence.DOWN, "unknown", "web/a/boot-1", first=True),
        ),
        (
            replace(SUSPECT, would_culls=2, would_down=True),
            Beat("a", "boot-1#2", Presence.DOWN, "unknown", "web/a/boot-1#2", first=True),
        ),
        (replace(UP, would_culls=1), Beat("a", "boot-1#2", Presence.WELL, first=True)),
        (replace(UP, app="shop.web/0a1b-2c"), Beat("0a1b-2c", "boot-1", Presence.WELL, first=True)),
    ],
    ids=[
        "starting",
        "up",
        "suspect",
        "draining",
        "down",
        "down by a claim of another name",
        "retiring",
        "down under a lease",
        "draining under a lease",
        "stopping under a lease",
        "ordered to be culled",
        "down by an order",
        "stopping",
        "would be down",
        "would be down again",
        "lives on after it would have been culled",
        "instance without its service",
    ],
)
@in_virtual_time
async def test_every_standing_has_its_beat(standing: Standing, beat: Beat) -> None:
    scene = Scene()
    scene.standing = standing
    await scene.pulse.beat()
    assert scene.last == beat


@in_virtual_time
async def test_culled_container_names_what_it_suffered_from_when_it_wanted_to_be() -> None:
    async with beating() as scene:
        await scene.passes(1)
        await scene.becomes(SUSPECT)
        scene.evidence = Evidence(60)
        await scene.becomes(DRAINING)
        assert (scene.last.presence, scene.last.kind) == (Presence.DOWN, "redis")


@in_virtual_time
async def test_retired_container_complains_of_nothing_whatever_it_suffered_from_before() -> None:
    async with beating() as scene:
        await scene.becomes(SUSPECT)
        await scene.passes(1)
        await scene.becomes(UP)
        await scene.becomes(replace(DOWN, latch=LEASE))
        assert (scene.last.presence, scene.last.kind, scene.last.lease) == (Presence.DOWN, "unknown", "lease-1")


@in_virtual_time
async def test_container_that_is_well_again_complains_of_nothing() -> None:
    async with beating() as scene:
        await scene.passes(1)
        await scene.becomes(SUSPECT)
        await scene.becomes(UP)
        assert [beat.kind for _, beat in scene.beats] == ["unknown", "redis", "unknown"]


@in_virtual_time
async def test_beat_says_first_until_one_has_been_answered() -> None:
    async with beating() as scene:
        scene.answer = AWAY
        await scene.passes(15)
        scene.answer = FLEET
        await scene.passes(20)
        assert [beat.first for _, beat in scene.beats] == [True, True, True, False]


# -- goodbye ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_goodbye_is_said_once() -> None:
    async with beating() as scene:
        await scene.passes(1)
        await scene.becomes(STOPPING)
        await scene.passes(5 * INTERVAL_S)
        await scene.pulse.beat()
        assert scene.said == [Presence.WELL, Presence.GONE]


@in_virtual_time
async def test_goodbye_that_nobody_heard_is_said_again_at_the_end() -> None:
    async with beating() as scene:
        await scene.passes(1)
        scene.answer = AWAY
        await scene.becomes(STOPPING)
        scene.answer = FLEET
        await scene.pulse.beat()
        await scene.pulse.beat()
        assert scene.said == [Presence.WELL, Presence.GONE, Presence.GONE]


# -- what was heard -----------------------------------------------------------------------------------------


@in_virtual_time
async def test_every_answer_is_told_and_the_last_fleet_is_kept() -> None:
    async with beating() as scene:
        assert scene.pulse.fleet is None
        for answer in (AWAY, FLEET, AWAY, Fleet(4)):
            scene.answer = answer
            await scene.passes(INTERVAL_S)
        assert scene.told == [AWAY, FLEET, AWAY, Fleet(4)]
        assert scene.pulse.fleet == Fleet(4)


@in_virtual_time
async def test_fleet_that_was_not_heard_of_for_three_beats_is_not_known() -> None:
    scene = Scene()
    await scene.pulse.beat()
    scene.answer = AWAY
    await scene.passes(STALE_BEATS * INTERVAL_S)
    await scene.pulse.beat()
    assert scene.pulse.fleet == FLEET
    await scene.passes(0.01)
    assert scene.pulse.fleet is None
    scene.answer = FLEET
    await scene.pulse.beat()
    assert scene.pulse.fleet == FLEET


@in_virtual_time
async def test_age_of_the_fleet_counts_from_its_answer() -> None:
    scene = Scene()
    scene.open.clear()
    beating = asyncio.create_task(scene.pulse.beat())
    await scene.passes(100)
    scene.open.set()
    await beating
    assert scene.pulse.fleet == FLEET


# -- what it tells about the container ----------------------------------------------------------------------


async def _abouts(scene: Scene, *answers: Fleet | Unknown) -> list[str]:
    """What was told about the container, beat by beat, while the bucket answers so."""
    for answer in answers:
        scene.answer = answer
        await scene.pulse.beat()
    return scene.abouts


@in_virtual_time
async def test_what_is_known_is_not_told_again_until_it_changes() -> None:
    scene = Scene()
    scene.about = "first"
    await _abouts(scene, FLEET, FLEET)
    scene.about = "second"
    assert await _abouts(scene, FLEET, FLEET) == ["first", "", "second", ""]


@in_virtual_time
async def test_what_may_not_be_known_is_told_again() -> None:
    scene = Scene()
    scene.about = "first"
    away = replace(FLEET, away=("redis://h2: timeout",))
    assert await _abouts(scene, AWAY, FLEET, FLEET) == ["first", "first", ""]
    assert (await _abouts(scene, AWAY, FLEET, FLEET))[3:] == ["", "first", ""]
    assert (await _abouts(scene, replace(FLEET, losses=1), replace(FLEET, losses=1)))[6:] == ["", "first"]
    assert (await _abouts(scene, away, away, away, FLEET, FLEET, FLEET))[8:] == ["", "first", "", "", "first", ""]


@in_virtual_time
async def test_what_is_known_is_told_again_after_many_beats() -> None:
    scene = Scene()
    scene.about = "first"
    told = await _abouts(scene, *[FLEET] * (2 * ABOUT_EVERY + 1))
    assert [place for place, about in enumerate(told) if about] == [0, ABOUT_EVERY, 2 * ABOUT_EVERY]


def test_description_says_what_a_person_asks_for() -> None:
    describe = Description(lambda: WALL_S, 5, "0.9")
    standing = replace(SUSPECT, since=90.0, born=40.0)
    about = unpack(describe(Snapshot(100.0, standing, REDIS, None, weight=80)))
    assert about == About(State.SUSPECT, int(WALL_S) - 10, "boot-1", 80, 5, 5, "0.9", int(WALL_S) - 60)
    about = unpack(describe(Snapshot(100.0, replace(DOWN, since=99.0, born=40.0), REDIS, None, weight=80)))
    assert about == About(State.DOWN, int(WALL_S) - 1, "boot-1", 0, 5, 5, "0.9", int(WALL_S) - 60)


@pytest.mark.parametrize("drift_s", [0.0, 0.4, -0.4, 0.9], ids=str)
def test_description_stays_the_same_while_clocks_drift(drift_s: float) -> None:
    wall = [WALL_S]
    describe = Description(lambda: wall[0], 5, "0.9")
    first = describe(Snapshot(100.0, UP, REDIS, None))
    wall[0] += 3600 + drift_s
    assert describe(Snapshot(3700.0, UP, REDIS, None)) == first


def test_description_follows_a_wall_clock_that_is_put_right() -> None:
    wall = [0.0]
    describe = Description(lambda: wall[0], 5, "0.9")
    describe(Snapshot(100.0, UP, REDIS, None))
    wall[0] = WALL_S
    about = unpack(describe(Snapshot(110.0, UP, REDIS, None)))
    assert about is not None
    assert (about.since, about.born) == (int(WALL_S - 110 + UP.since), int(WALL_S - 110 + UP.born))
