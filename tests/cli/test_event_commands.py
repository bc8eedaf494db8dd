"""The commands that look back, at a real door: what they print, how they follow, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.listening import Told, listening
from harness.ports import free_port
from sidecar.cli import event_commands
from sidecar.config.settings import Settings, load
from sidecar.core.explain.ledger_log import EventStream
from sidecar.core.types import US_PER_S, Entry, Unknown
from sidecar.server.ledger_api import Events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

IDENTITY: dict[str, Any] = {"service": "web", "instance": "a", "mode": "shadow", "enforce_percent": 10}
AWAY = "health-arbiter: Redis cannot be reached: that is what this sidecar has seen itself\n"


class Desk:
    """A door with a ledger behind it, and one who asks there from another thread."""

    def __init__(self) -> None:
        self.now = time.time()
        self.stream = EventStream(10_000)
        self.error = ""
        self.local: list[Entry] = []
        self.out: list[str] = []
        self.settings = load({}, {})

    def entry(self, what: str, ago_s: float = 0.0, **about: Any) -> Entry:
        return Entry(what, round(self.now - ago_s, 3), "a", "redis", **about)

    def keep(self, *entries: Entry) -> None:
        self.stream.note(entries, round(self.now * US_PER_S))

    async def stored(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        return Unknown(self.error) if self.error else self.stream.entries(since, after, most)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        routes = Events(self.stored, lambda _since: self.local, identity=IDENTITY, wall=time.time, limit_s=30).routes()
        async with listening(routes, Told()) as listener:
            self.settings = settings_of(listener.addresses[0])
            yield

    async def events(self, since_s: float = 3600.0, *, follow: bool = False, as_json: bool = False, **more: Any) -> int:
        call = event_commands.events
        return await asyncio.to_thread(call, self.settings, since_s, follow, as_json, self.out.append, **more)

    async def report(self, form: str = "text", path: str = "-", since_s: float = 7 * 86400.0) -> int:
        return await asyncio.to_thread(event_commands.report, self.settings, since_s, form, path, self.out.append)

    @property
    def printed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out]

    @property
    def whats(self) -> list[str]:
        return [event["what"] for event in self.printed]


def settings_of(address: str) -> Settings:
    return load({"local_listen": address}, {})


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.open():
        yield desk


# -- events -------------------------------------------------------------------------------------------------


def test_event_is_one_line_with_all_that_is_known() -> None:
    event = Entry("culled", 1_767_873_600.4, "web-1", "redis", "errors", "ann", 4.0, "5 errors", id="1-0")._asdict()
    assert event_commands.as_text(event) == (
        "2026-01-08 12:00:00Z  culled        web-1                 redis  errors  by ann  4s  5 errors"
    )
    assert event_commands.as_text(
        {**event, **dict.fromkeys(("kind", "reason", "author", "detail"), ""), "seconds": None}
    ) == ("2026-01-08 12:00:00Z  culled        web-1")


def test_event_of_the_fleet_has_no_container_and_no_letter_moves_the_cursor() -> None:
    event = Entry("hold", 0.0, "", "", "\x1b[2J\n\ud800", "ann")._asdict()
    assert event_commands.as_text(event) == "1970-01-01 00:00:00Z  hold          -                     ?[2J??  by ann"


async def test_events_are_printed_in_their_order(desk: Desk) -> None:
    desk.keep(desk.entry("suspect", 9), desk.entry("culled", 5), desk.entry("helped"))
    assert await desk.events() == 0
    assert [line.split()[2] for line in desk.out] == ["suspect", "culled", "helped"]


CULLED = Entry("culled", 0.0, "web-1", "redis", "errors", seconds=4.0)
CULLED_LINE = "1970-01-01 00:00:00Z  culled        web-1                 redis  errors  4s  5 errors"
DETAILS = {
    "what the app said": ("5 errors\n5 x redis: no answer", ["    5 x redis: no answer"]),
    "columns of the hook": ("5 errors\nPID\tTIME\n\n  1\t9 s\r\n", ["    PID     TIME", "", "      1     9 s"]),
    "what would look like an event": (
        "5 errors\n\x1b[2K\r1970-01-01 00:00:00Z  helped\u2028\ud800",
        ["    ?[2K", "    1970-01-01 00:00:00Z  helped", "    ?"],
    ),
    "as much as is shown": ("5 errors" + "\nmore" * 24, ["    more"] * 24),
    "one line too many": ("5 errors" + "\nmore" * 25, ["    more"] * 24 + ["    and 1 more line: --json"]),
    "many too many": ("5 errors" + "\nmore" * 912, ["    more"] * 24 + ["    and 888 more lines: --json"]),
}


@pytest.mark.parametrize(("detail", "below"), DETAILS.values(), ids=DETAILS)
def test_evidence_of_a_cull_stands_indented_below_its_line(detail: str, below: Sequence[str]) -> None:
    told = event_commands.as_text(CULLED._replace(detail=detail)._asdict())
    assert told.split("\n") == [CULLED_LINE, *below]


async def test_json_is_a_line_an_event(desk: Desk) -> None:
    desk.keep(desk.entry("culled", 5, seconds=3.5, detail="größer"))
    assert await desk.events(as_json=True) == 0
    (event,) = desk.printed
    assert (event["what"], event["seconds"], event["detail"]) == ("culled", 3.5, "größer")
    assert set(event) == {"id", "at", "what", "instance", "kind", "reason", "author", "seconds", "detail"}


async def test_all_pages_are_read(desk: Desk) -> None:
    desk.keep(*(desk.entry("suspect", detail=str(number)) for number in range(2 * event_commands.PAGE + 1)))
    assert await desk.events(as_json=True) == 0
    assert [event["detail"] for event in desk.printed] == [str(number) for number in range(2 * event_commands.PAGE + 1)]


async def test_without_redis_it_is_what_the_sidecar_knows_and_the_code_says_so(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.error, desk.local = "connection", [desk.entry("redis_away")]
    assert await desk.events(as_json=True) == 1
    assert desk.whats == ["redis_away"]
    assert capsys.readouterr().err == AWAY


async def test_nobody_there_is_a_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk()
    desk.settings = settings_of(f"127.0.0.1:{free_port()}")
    assert await desk.events() == 69
    assert await desk.report() == 69
    assert capsys.readouterr().err.count("no sidecar answers at") == 2


async def test_question_that_the_door_refuses_is_a_usage_error(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert await desk.events(since_s=401 * 86400.0) == 2
    assert await desk.report(since_s=401 * 86400.0) == 2
    assert capsys.readouterr().err == "health-arbiter: since: takes at most 400d\n" * 2


# -- follow -------------------------------------------------------------------------------------------------


def script(*steps: Callable[[], None]) -> Callable[[float], None]:
    """A pause in which the next of these happens."""
    left = iter(steps)

    def pause(seconds: float) -> None:
        assert seconds == event_commands.FOLLOW_S
        next(left, lambda: None)()

    return pause


async def test_following_prints_what_comes_and_nothing_twice(desk: Desk) -> None:
    desk.keep(desk.entry("suspect"))
    pause = script(
        lambda: None,
        lambda: desk.keep(desk.entry("granted"), desk.entry("culled")),
        lambda: None,
        lambda: desk.keep(desk.entry("replaced")),
    )
    assert await desk.events(follow=True, as_json=True, polls=5, pause=pause) == 0
    assert desk.whats == ["suspect", "granted", "culled", "replaced"]


async def test_following_goes_on_while_redis_is_away_and_repeats_nothing_when_it_is_back(desk: Desk) -> None:
    desk.keep(desk.entry("suspect", 9))
    away = [desk.entry("redis_away", 5, seconds=1 / 3), desk.entry("redis_back", 1)]

    def lose() -> None:
        desk.error, desk.local = "connection", away[:1]

    def find() -> None:
        desk.error, desk.local = "", []
        desk.keep(away[0]._replace(seconds=0.333), away[1])

    assert await desk.events(follow=True, as_json=True, polls=4, pause=script(lose, lambda: None, find)) == 0
    assert desk.whats == ["suspect", "redis_away", "redis_back"]


async def test_following_outlives_the_sidecar(desk: Desk) -> None:
    desk.keep(desk.entry("suspect"))
    there = desk.settings.local_listen

    def lose() -> None:
        desk.settings.__dict__["local_listen"] = f"127.0.0.1:{free_port()}"

    def find() -> None:
        desk.settings.__dict__["local_listen"] = there
        desk.keep(desk.entry("recovered"))

    assert await desk.events(follow=True, as_json=True, polls=3, pause=script(lose, lambda: None, find)) == 0
    assert desk.whats == ["suspect", "recovered"]


async def test_interruption_is_the_end_of_following_and_no_failure(desk: Desk) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert await desk.events(follow=True, pause=script(lambda: None, interrupt)) == 0


# -- report -------------------------------------------------------------------------------------------------


async def test_report_is_of_the_service_and_mode_of_the_sidecar(desk: Desk) -> None:
    desk.keep(desk.entry("would_cull", 60), desk.entry("would_recover", 30, seconds=30.0))
    assert await desk.report() == 0
    lines = desk.out[0].splitlines()
    assert lines[0].startswith("web: 7 days until ")
    assert lines[1] == "of the containers in shadow mode alone, 10 % enforce: ask one of those too"
    assert lines[2] == "7 days in shadow: 1 would have been culled, and it recovered by itself"


async def test_report_as_json_names_its_numbers(desk: Desk) -> None:
    desk.keep(desk.entry("culled", 60), desk.entry("denied", 50, reason="paused"), desk.entry("hold", 40, seconds=60.0))
    assert await desk.report("json") == 0
    told = json.loads(desk.out[0])
    assert told["causes"] == [{"kind": "redis", "culls": 1, "helped": 0, "unhelped": 0, "unclear": 0}]
    assert told["refusals"] == {"paused": 1}
    assert told["holds"][0]["seconds"] == 60.0
    assert told["replaced_s"] == {"count": 0, "p50": 0.0, "p95": 0.0, "longest": 0.0}
    assert sum(one["culls"] for one in told["bins"]) == 1


async def test_report_as_a_file_is_whole_and_leaves_nothing_beside_it(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("the last one")
    desk.keep(desk.entry("culled", 60))
    assert await desk.report("html", str(file)) == 0
    assert desk.out == []
    assert os.listdir(tmp_path) == ["report.html"]  # noqa: PTH208 - pathlib's is not for coroutines
    page = file.read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")


async def test_report_goes_into_a_pipe_as_it_is(desk: Desk, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read, code = await asyncio.gather(asyncio.to_thread(pipe.read_text), desk.report("text", str(pipe)))
    assert (code, read.startswith("web: 7 days")) == (0, True)
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["missing/report.html", "folder"], ids=["no directory", "a directory"])
async def test_file_that_cannot_be_written_is_a_failure_with_its_name(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert await desk.report("html", str(tmp_path / name)) == 1
    assert capsys.readouterr().err.startswith(f"health-arbiter: {tmp_path / name} cannot be written: ")
    assert os.listdir(tmp_path) == ["folder"]  # noqa: PTH208 - pathlib's is not for coroutines


async def test_report_without_redis_is_told_to_be_of_one_sidecar(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.error, desk.local = "connection", [desk.entry("culled", 60)]
    assert await desk.report() == 1
    assert "culls         1" in desk.out[0]
    assert capsys.readouterr().err == AWAY
