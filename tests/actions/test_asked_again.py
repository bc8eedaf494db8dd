"""An action that was surely not carried out is asked for again: how often, until when, and who is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.virtual_time import in_virtual_time, settle
from harness.waiting import eventually
from sidecar.actions.actuator import (
    STOPPED,
    ActionError,
    ActionResult,
    Actuator,
    NotCarriedOutError,
    RefusedError,
    UnreadError,
    pause_s,
)
from sidecar.actions.asked_file import ActionProgress, AskedFile
from sidecar.core.life.container import Container
from sidecar.core.life.events import Moved
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Evidence, Latch, State

LATCH = Latch("claim", 1.0, "reason")
DOWN = Container(State.DOWN, 0.0, "app/a", latch=LATCH)
UP = Container(State.UP, 0.0, "app/a")
AWAY = UnreadError("no agent")
NO_POLICY = RefusedError("Permission denied")


@pytest.fixture(autouse=True)
def _disk_of_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.actions.actuator.FILE_S", 60.0)


class Story:
    """An action that answers ``answer`` after ``takes_s``, when it was asked, and the results that were told."""

    def __init__(
        self, asked: AskedFile | None = None, *, timeout_s: float = 30.0, found: Container = UP, jitter: float = 0.5
    ) -> None:
        self.answer: str | ActionError = AWAY
        self.takes_s = 0.0
        self.times: list[float] = []
        self.results: list[ActionResult] = []
        self.most_at_once = self._now = 0
        self.found = found
        self.actuator = Actuator(
            "nomad-stop",
            self._act,
            timeout_s=timeout_s,
            wall=lambda: 1000.0,
            on_result=self.results.append,
            asked=asked,
            found_down_s=0.0,
            jitter=lambda: jitter,
        )

    async def _act(self) -> str:
        self.times.append(asyncio.get_running_loop().time())
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self._now -= 1
        if isinstance(self.answer, str):
            return self.answer
        raise self.answer

    def move(self, before: State, after: State) -> None:
        """The container moves, and the actuator notices."""
        self.actuator.notice(Record((Moved(was=before, state=after),), Container(after, 0.0, "app/a"), Evidence(60, 0)))

    def go_down(self) -> None:
        self.move(State.DRAINING, State.DOWN)

    @property
    def pauses(self) -> list[float]:
        return [round(later - earlier, 3) for earlier, later in zip(self.times, self.times[1:], strict=False)]

    @property
    def told(self) -> list[tuple[bool, bool]]:
        """Of each result that was told, whether the action failed, and whether the sidecar asks again."""
        return [(result.failed, result.asks_again) for result in self.results]


@asynccontextmanager
async def running(story: Story) -> AsyncIterator[Story]:
    task = asyncio.create_task(story.actuator.run(lambda: story.found))
    await settle()
    yield story
    task.cancel()


@pytest.mark.parametrize(
    ("error", "asked_for_s", "timeout_s", "pause"),
    [
        pytest.param(AWAY, 0, 30, 0.5, id="an agent that restarts is back soon"),
        pytest.param(AWAY, 14.5, 30, 0.5, id="for half of the time"),
        pytest.param(AWAY, 15, 30, 30, id="then it has failed"),
        pytest.param(AWAY, 300, 30, 30, id="every 30 s at first"),
        pytest.param(AWAY, 1200, 30, 120, id="then slower"),
        pytest.param(AWAY, 1e6, 30, 300, id="never slower than that"),
        pytest.param(AWAY, 14.5, 300, 0.5, id="much time for the action"),
        pytest.param(AWAY, 15, 300, 30, id="much time for the action does not slow it down"),
        pytest.param(AWAY, 10, 3, 3, id="little time for the action"),
        pytest.param(NO_POLICY, 0, 30, 120, id="a refusal is slow from the beginning"),
        pytest.param(NO_POLICY, 2000, 30, 200, id="and slower"),
        pytest.param(NO_POLICY, 1e6, 30, 300, id="and no slower than the others"),
    ],
)
def test_pause(error: NotCarriedOutError, asked_for_s: float, timeout_s: float, pause: float) -> None:
    assert pause_s(error, asked_for_s, timeout_s) == pause


@in_virtual_time
async def test_agent_that_is_back_carries_it_out_and_both_ends_are_told_once() -> None:
    async with running(Story()) as story:
        story.go_down()
        await asyncio.sleep(14.1)
        assert (story.pauses, story.results, story.actuator.last) == ([0.5] * 28, [], None)
        await asyncio.sleep(59.9)
        assert story.pauses[28:] == [0.5, 0.5, 30.0]
        assert story.told == [(True, True)]
        assert story.results[0].sentence == "the sidecar asks again: no agent"
        story.answer = "stopped"
        await asyncio.sleep(3600)
        assert story.told == [(True, True), (False, False)]
        assert (story.results[1].sentence, story.results[1].took_s) == ("stopped", 75.0)
        assert story.actuator.last == story.results[1]
        assert len(story.times) == 33


@pytest.mark.parametrize(("jitter", "pause"), [(0.0, 0.4), (1.0, 0.6)])
@in_virtual_time
async def test_sidecars_of_a_fleet_do_not_ask_at_the_same_time(jitter: float, pause: float) -> None:
    async with running(Story(jitter=jitter)) as story:
        story.go_down()
        await asyncio.sleep(5)
        assert set(story.pauses) == {pause}


@in_virtual_time
async def test_agent_that_is_back_soon_is_no_failure() -> None:
    async with running(Story()) as story:
        story.go_down()
        await asyncio.sleep(10)
        story.answer = "stopped"
        await asyncio.sleep(3600)
        assert story.told == [(False, False)]


@in_virtual_time
async def test_refusal_is_told_at_once_and_a_repaired_policy_is_used() -> None:
    async with running(Story()) as story:
        story.answer = NO_POLICY
        story.go_down()
        await asyncio.sleep(1)
        assert story.told == [(True, True)]
        await asyncio.sleep(199)
        assert (story.pauses, story.told) == ([120.0], [(True, True)])
        story.answer = "stopped"
        await asyncio.sleep(3600)
        assert (story.pauses, story.told) == ([120.0, 120.0], [(True, True), (False, False)])


@in_virtual_time
async def test_any_doubt_ends_it_and_is_told_as_well() -> None:
    async with running(Story()) as story:
        story.go_down()
        await asyncio.sleep(20)
        story.answer = ActionError("EOF")
        await asyncio.sleep(1e6)
        assert story.told == [(True, True), (True, False)]
        assert (story.results[1].sentence, story.actuator.last) == ("EOF", story.results[1])
        assert len(story.times) == 32


@in_virtual_time
async def test_day_without_an_agent_has_few_requests_and_one_result() -> None:
    async with running(Story()) as story:
        story.go_down()
        await asyncio.sleep(86_400)
        assert (len(story.times) < 400, story.told) == (True, [(True, True)])


@pytest.mark.parametrize("after_s", [5.0, 20.0, 45.5], ids=["soon", "in the pause", "in a request"])
@pytest.mark.parametrize("state", [State.STARTING, State.UP, State.STOPPING])
@in_virtual_time
async def test_container_that_is_not_down_any_more_is_asked_for_no_longer(after_s: float, state: State) -> None:
    async with running(Story()) as story:
        story.takes_s = 0.4
        story.go_down()
        await asyncio.sleep(after_s)
        count = len(story.times)
        story.move(State.DOWN, state)
        await asyncio.sleep(1e5)
        assert len(story.times) == count
        story.answer = "stopped"
        story.go_down()
        await asyncio.sleep(1e5)
        assert (len(story.times), story.told[-1]) == (count + 1, (False, False))


@in_virtual_time
async def test_next_cull_waits_for_the_request_of_the_last() -> None:
    async with running(Story()) as story:
        story.takes_s = 20.0
        story.go_down()
        await asyncio.sleep(1)
        story.move(State.DOWN, State.STARTING)
        story.go_down()
        await asyncio.sleep(25)
        assert (story.pauses, story.most_at_once) == ([20.0], 1)


@in_virtual_time
async def test_disk_that_hangs_costs_one_thread() -> None:
    class Hanging(AskedFile):
        def note(self, *_: object) -> None:
            hung.append(1)
            release.wait(60)

    hung, release = list[int](), threading.Event()
    async with running(Story(Hanging(Path("asked")))) as story:
        story.actuator.notice(Record((Moved(was=State.DRAINING, state=State.DOWN),), DOWN, Evidence(60, 0)))
        await asyncio.sleep(1000)
        assert len(story.times) > 15
        release.set()
        assert hung == [1]


# -- another sidecar --------------------------------------------------------------------------------------------------


async def _restarted(asked: AskedFile, answer: str | ActionError, until: Callable[[Story], object]) -> Story:
    """A sidecar that finds its container down and has little time for its action."""
    story = Story(asked, timeout_s=0.1, found=DOWN)
    story.answer = answer  # before it runs: a sidecar asks at once
    async with running(story):
        await eventually(lambda: until(story), timeout_s=60, what="the next sidecar asks")
    return story


@pytest.mark.parametrize("progress", [ActionProgress.NOT_CARRIED_OUT, ActionProgress.FAILURE_TOLD])
async def test_restarted_sidecar_asks_again(progress: ActionProgress, tmp_path: Path) -> None:
    asked = AskedFile(tmp_path / "asked")
    asked.note(LATCH, ActionProgress.WITHOUT_RESULT)
    asked.note(LATCH, progress)
    story = await _restarted(asked, "stopped", lambda _: asked.read(LATCH) is ActionProgress.WITH_RESULT)
    assert (story.told, len(story.times)) == ([(False, False)], 1)


async def test_failure_is_told_once_over_restarts_and_why_has_it(tmp_path: Path) -> None:
    asked = AskedFile(tmp_path / "asked")
    for told in ([(True, True)], []):
        story = Story(asked, found=DOWN)
        story.answer = NO_POLICY
        async with running(story):
            await eventually(lambda story=story: story.actuator.last, timeout_s=60, what="it is refused")  # type: ignore[misc]
            await eventually(
                lambda: asked.read(LATCH) is ActionProgress.FAILURE_TOLD, timeout_s=60, what="it is written down"
            )
        assert story.told == told
        assert story.actuator.last is not None
        assert story.actuator.last.asks_again


async def test_what_was_not_read_yet_is_written_down_before_it_is_told(tmp_path: Path) -> None:
    asked = AskedFile(tmp_path / "asked")
    async with running(Story(asked, found=DOWN)) as story:
        await eventually(
            lambda: asked.read(LATCH) is ActionProgress.NOT_CARRIED_OUT, timeout_s=60, what="it is written down"
        )
    assert story.told == []


async def test_sidecar_that_was_killed_while_it_asked_again_leaves_doubt(tmp_path: Path) -> None:
    asked = AskedFile(tmp_path / "asked")
    asked.note(LATCH, ActionProgress.WITHOUT_RESULT)
    asked.note(LATCH, ActionProgress.FAILURE_TOLD)
    story = Story(asked, found=DOWN)
    story.takes_s = 60.0
    async with running(story):
        await eventually(lambda: story.times, timeout_s=60, what="it asks")
    story = await _restarted(asked, "stopped", lambda story: story.results)
    assert (story.results[0].sentence, story.told, story.times) == (STOPPED, [(True, False)], [])
