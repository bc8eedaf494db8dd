"""When the action is carried out, how often it is asked for again, until when, and who is told; over restarts too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.virtual_time import in_virtual_time, settle
from harness.waiting import eventually
from sidecar.actions.actuator import (
    STOPPED,
    ActionError,
    ActionProgress,
    ActionResult,
    Actuator,
    AskedFile,
    RefusedError,
    UnreadError,
)
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
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.actions.actuator.FILE_S", 60.0)
    monkeypatch.setattr("sidecar.actions.actuator.FOUND_DOWN_S", 0.0)


Told = list[tuple[bool, bool]]
"""Of each result that was told, whether the action failed, and whether the sidecar asks again."""


class Story:
    """An action that answers ``answer`` after ``takes_s``, when it was asked, and the results that were told."""

    def __init__(self, asked: AskedFile | None = None, *, found: Container = UP, jitter: float = 0.5) -> None:
        self.answer: str | Exception = AWAY
        self.takes_s = 0.0
        self.times: list[float] = []
        self.results: list[ActionResult] = []
        self.most_at_once = self._now = 0
        self.found = found
        self.actuator = Actuator(
            "nomad-stop",
            self._act,
            wall=lambda: 1000.0,
            on_result=self.results.append,
            asked=asked,
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

    def move(self, before: State, after: State, latch: Latch | None = None) -> None:
        """The container moves, and the actuator notices."""
        events = (Moved(was=before, state=after),) if after is not before else ()
        self.actuator.notice(Record(events, Container(after, 0.0, "app/a", latch=latch), Evidence(60, 0)))

    def go_down(self) -> None:
        self.move(State.DRAINING, State.DOWN)

    @property
    def pauses(self) -> list[float]:
        return [round(later - earlier, 3) for earlier, later in zip(self.times, self.times[1:], strict=False)]

    @property
    def told(self) -> Told:
        return [(result.failed, result.asks_again) for result in self.results]


@asynccontextmanager
async def running(story: Story) -> AsyncIterator[Story]:
    task = asyncio.create_task(story.actuator.run(lambda: story.found))
    await settle()
    yield story
    task.cancel()


# -- once -------------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_action_begins_when_the_container_goes_down_and_once_for_each_time() -> None:
    async with running(Story()) as story:
        story.answer = "restarted"
        story.move(State.UP, State.SUSPECT)
        story.move(State.SUSPECT, State.DRAINING)
        await asyncio.sleep(10)
        assert story.times == []
        story.go_down()
        for _ in range(5):
            story.move(State.DOWN, State.DOWN)
        await asyncio.sleep(3600)
        assert story.results == [ActionResult("nomad-stop", 1000.0, 0.0, "restarted", failed=False)]
        assert story.actuator.last == story.results[0]
        story.move(State.DOWN, State.STARTING)
        story.move(State.SUSPECT, State.DOWN)
        await asyncio.sleep(3600)
        assert len(story.times) == len(story.results) == 2


@pytest.mark.parametrize(
    ("answer", "takes_s", "sentence"),
    [
        ("late", 301.0, "no end after 300 s"),
        (ActionError("no such task"), 0.0, "no such task"),
        (KeyError("hunter2"), 0.0, "KeyError in the sidecar"),
    ],
    ids=["hangs", "fails", "breaks"],
)
@in_virtual_time
async def test_action_that_may_have_been_carried_out_fails_and_is_not_asked_again(
    answer: str | Exception, takes_s: float, sentence: str
) -> None:
    async with running(Story()) as story:
        story.answer, story.takes_s = answer, takes_s
        for number in (1, 2):
            story.go_down()
            await asyncio.sleep(1000)
            assert [(each.sentence, each.failed) for each in story.results] == [(sentence, True)] * number


@pytest.mark.parametrize(
    ("answer", "told"), [("stopped", [(False, False)]), (ActionError("EOF"), [])], ids=["done", "failed"]
)
@in_virtual_time
async def test_action_during_which_the_container_restarted_has_not_failed(answer: str | Exception, told: Told) -> None:
    async with running(Story()) as story:
        story.answer, story.takes_s = answer, 5.0
        story.go_down()
        await asyncio.sleep(1)
        story.move(State.DOWN, State.STARTING)
        await asyncio.sleep(1000)
        assert (story.told, len(story.times)) == (told, 1)


@in_virtual_time
async def test_container_that_restarts_before_the_action_begins_is_left_alone() -> None:
    async with running(Story()) as story:
        story.go_down()
        story.move(State.DOWN, State.STARTING)
        await asyncio.sleep(1000)
        assert story.times == []


async def test_what_the_action_lacks_is_told_before_the_first_cull() -> None:
    warnings: list[str] = []
    story = Story()
    actuator = Actuator(
        *("nomad-stop", story._act),
        wall=lambda: 0.0,
        on_result=story.results.append,
        missing=lambda: ["no policy"],
        on_missing=warnings.append,
    )
    task = asyncio.create_task(actuator.run(lambda: UP))
    await eventually(lambda: warnings, timeout_s=60, what="it has looked")
    task.cancel()
    assert (warnings, actuator.missing, story.times) == (["no policy"], ["no policy"], [])


# -- again ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("jitter", "pause"), [(0.0, 0.4), (1.0, 0.6)])
@in_virtual_time
async def test_sidecars_of_a_fleet_do_not_ask_at_the_same_time(jitter: float, pause: float) -> None:
    async with running(Story(jitter=jitter)) as story:
        story.go_down()
        await asyncio.sleep(5)
        assert set(story.pauses) == {pause}


EOF = ActionError("EOF")


@pytest.mark.parametrize(
    ("answer", "told", "repaired_after_s", "repaired", "then_told"),
    [
        pytest.param(AWAY, [], 10, "stopped", [(False, False)], id="an agent that is back soon is no failure"),
        pytest.param(AWAY, [(True, True)], 1e5, "stopped", [(False, False)], id="one that is away for a day is one"),
        pytest.param(NO_POLICY, [(True, True)], 1, "stopped", [(False, False)], id="a refusal is told at once"),
        pytest.param(NO_POLICY, [(True, True)], 1e5, "stopped", [(False, False)], id="and once"),
        pytest.param(AWAY, [(True, True)], 20, EOF, [(True, False)], id="any doubt ends it and is told as well"),
    ],
)
@in_virtual_time
async def test_failure_is_told_once_and_so_is_the_end(
    answer: ActionError, told: Told, repaired_after_s: float, repaired: str | ActionError, then_told: Told
) -> None:
    async with running(Story()) as story:
        story.answer = answer
        story.go_down()
        await asyncio.sleep(repaired_after_s)
        assert story.told == told
        assert set(story.pauses) <= {0.5, 30.0}
        story.answer, count = repaired, len(story.times)
        await asyncio.sleep(1e5)
        assert (story.told, len(story.times)) == (told + then_told, count + 1)
        assert story.actuator.last == story.results[-1]


@in_virtual_time
async def test_refusal_is_repaired_by_a_person_who_needs_more_than_seconds() -> None:
    async with running(Story()) as story:
        story.answer = NO_POLICY
        story.go_down()
        await asyncio.sleep(61)
        assert story.pauses == [30.0, 30.0]


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
        story.move(State.DRAINING, State.DOWN, LATCH)
        await asyncio.sleep(1000)
        assert len(story.times) > 15
        release.set()
        assert hung == [1]


# -- another sidecar --------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(tmp_path: Path) -> AskedFile:
    return AskedFile(tmp_path / "asked")


Until = Callable[[Story], object]


async def _started(asked: AskedFile | None, answer: str | Exception, until: Until, found: Container = DOWN) -> Story:
    """A sidecar that finds its container down, and is ended when ``until`` is true."""
    story = Story(asked, found=found)
    story.answer = answer  # before it runs: a sidecar asks at once
    story.takes_s = 60.0 if answer == "hangs" else 0.0
    async with running(story):
        await eventually(lambda: until(story), timeout_s=60, what="the sidecar has done its part")
    return story


def _waits(story: Story) -> object:
    waiters: Any = story.actuator._wanted
    return waiters._waiters  # it waits for a cull


def _is_noted(asked: AskedFile, progress: ActionProgress) -> Until:
    return lambda _: asked.read(LATCH) is progress


async def test_sidecar_that_finds_its_container_down_asks_if_no_sidecar_has(asked: AskedFile, tmp_path: Path) -> None:
    story = await _started(asked, "done", _is_noted(asked, ActionProgress.WITH_RESULT))
    assert story.told == [(False, False)]
    for found, file in ((DOWN, asked), (UP, AskedFile(tmp_path / "none")), (DOWN, None), (DOWN, AskedFile(tmp_path))):
        assert (await _started(file, "done", _waits, found)).times == []


@pytest.mark.parametrize("now", [UP, Container(State.DOWN, 0.0, "app/a", latch=Latch("other", 2.0, "reason"))])
async def test_container_that_has_moved_on_when_the_sidecar_looks_again_is_left_alone(
    now: Container, asked: AskedFile
) -> None:
    story = Story(asked)
    looks = iter([DOWN])
    task = asyncio.create_task(story.actuator.run(lambda: next(looks, now)))
    await eventually(lambda: _waits(story), timeout_s=60, what="it waits for a cull")
    task.cancel()
    assert story.times == []


async def test_sidecar_asks_again_what_was_surely_not_carried_out(asked: AskedFile) -> None:
    await _started(asked, AWAY, _is_noted(asked, ActionProgress.NOT_CARRIED_OUT))
    story = await _started(asked, NO_POLICY, lambda story: story.results)
    assert (story.told, len(story.times)) == ([(True, True)], 1)
    story = await _started(asked, "stopped", _is_noted(asked, ActionProgress.WITH_RESULT))
    assert (story.told, len(story.times)) == ([(False, False)], 1)


@pytest.mark.parametrize("is_again", [False, True], ids=["first", "asked again"])
async def test_action_during_which_the_sidecar_ended_has_failed_and_is_told_once(
    asked: AskedFile, *, is_again: bool
) -> None:
    if is_again:
        await _started(asked, AWAY, _is_noted(asked, ActionProgress.NOT_CARRIED_OUT))
    await _started(asked, "hangs", lambda story: story.times)
    story = await _started(asked, "stopped", _is_noted(asked, ActionProgress.WITH_RESULT))
    assert story.results == [ActionResult("nomad-stop", 1000.0, 0.0, STOPPED, failed=True)]
    assert story.times == []
    assert (await _started(asked, "stopped", _waits)).results == []


@pytest.mark.parametrize("content", ["", "claim 1.0", "x" * 100_000])
def test_file_that_is_not_about_this_latch_says_that_nobody_asked(
    content: str, asked: AskedFile, tmp_path: Path
) -> None:
    (tmp_path / "asked").write_text(content)
    assert asked.read(LATCH) is ActionProgress.NOT_ASKED


@pytest.mark.parametrize("progress", list(ActionProgress)[2:], ids=lambda progress: progress.name)
def test_result_that_was_cut_off_leaves_no_doubt_that_the_action_was_asked(
    progress: ActionProgress, asked: AskedFile, tmp_path: Path
) -> None:
    asked.note(LATCH, ActionProgress.WITHOUT_RESULT)
    written = (tmp_path / "asked").read_text()
    asked.note(LATCH, progress)
    whole = (tmp_path / "asked").read_text()
    assert asked.read(LATCH) is progress
    for end in range(len(written), len(whole)):  # also an empty file between the two would be a cut
        (tmp_path / "asked").write_text(whole[:end])
        assert asked.read(LATCH) is ActionProgress.WITHOUT_RESULT, whole[:end]
    assert whole.startswith(written)
