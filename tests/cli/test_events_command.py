"""``events`` and ``report`` at a real listener: what they print, how they follow, and how they end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.listeners import serving
from harness.ports import free_port
from harness.raw_http import Observed
from harness.rule_fleet import run
from sidecar.cli import application, events_command, local_api
from sidecar.cli.events_command import LedgerReader
from sidecar.core.claims import Unknown
from sidecar.core.types import US_PER_S, Entry
from sidecar.server.ledger_api import get_events
from sidecar.store.alone import AloneStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

IDENTITY: dict[str, Any] = {"service": "web", "instance": "a", "mode": "shadow", "enforce_percent": 10}
AWAY = "health-arbiter: Redis cannot be reached: these are this sidecar's own events\n"


class EndOfStepsError(Exception):
    pass


def end() -> None:
    raise EndOfStepsError


class LedgerServer:
    """A listener with a ledger behind it; its commands run in another thread."""

    def __init__(self) -> None:
        self.now = time.time()
        self.stream = AloneStore(lambda: round(self.now * US_PER_S))
        self.error = ""
        self.local: list[Entry] = []
        self.address = f"127.0.0.1:{free_port()}"

    def entry(self, what: str, ago_s: float = 0.0, **about: Any) -> Entry:
        return Entry(what, round(self.now - ago_s, 3), "a", "redis", **about)

    def keep(self, *entries: Entry) -> None:
        run(self.stream.note(entries))

    async def stored(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        return Unknown(self.error) if self.error else await self.stream.entries(since, after, most)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        settled = partial(asyncio.sleep, 0)
        events = get_events(
            self.stored, lambda _since: self.local, settled=settled, identity=IDENTITY, wall=time.time, limit_s=30
        )
        async with serving({"/events": {"GET": events}}, Observed()) as listener:
            self.address = listener.addresses[0]
            yield

    async def run(self, *arguments: str) -> int:
        words = [*arguments, "--local-listen", self.address]
        return await asyncio.to_thread(application.run, words, {})

    async def follow(self, *steps: Callable[[], object]) -> list[str]:
        """The words of the events so far, and of those that come with each of these steps."""
        reader = LedgerReader(local_api.local_listener("", self.address), 3600.0)

        def read() -> Iterator[str]:
            yield from (event["what"] for event in reader.news())
            pauses = iter(steps)

            def pause(seconds: float) -> None:
                assert seconds == events_command.FOLLOW_S
                next(pauses, end)()

            with suppress(EndOfStepsError):
                yield from (event["what"] for event in reader.follow(pause))

        return await asyncio.to_thread(lambda: list(read()))


@pytest.fixture
async def ledger() -> AsyncIterator[LedgerServer]:
    server = LedgerServer()
    async with server.open():
        yield server


# -- events -------------------------------------------------------------------------------------------------


EVENT: Final = Entry("culled", 1_767_873_600.4, "web-1", "redis", "errors", "ann", 4.0, "5 errors", id="1-0")
LINES: Final = {
    "all that is known": (
        EVENT,
        "culled         web-1                 redis       errors      by ann  after 4s  5 errors",
    ),
    "nothing but its word": (Entry("culled", EVENT.at, "web-1"), "culled         web-1                 -           -"),
    "of the fleet, with what would move the cursor": (
        Entry("hold", EVENT.at, "", "", "\x1b[2J\n\ud800", "ann"),
        "hold           -                     -           -           by ann  ?[2J??",
    ),
    "a reason in words": (
        Entry("hold", EVENT.at, "", "", "look at it", "ann", 60.0),
        "hold           -                     -           -           by ann  for 1m  look at it",
    ),
    "a person's reason of one word": (
        Entry("hold_lost", EVENT.at, "", "", "deploy", "ann", 60.0),
        "hold_lost      -                     -           -           by ann  with a rest of 1m  deploy",
    ),
    "a revival without an order": (
        Entry("revived", EVENT.at, "web-1", "", "not_replaced", seconds=60.0),
        "revived        web-1                 -           not_replaced  after 1m",
    ),
    "a refusal": (
        Entry("denied", EVENT.at, "web-1", "redis", "window", "", 60.0),
        "denied         web-1                 redis       window      ask again in 1m",
    ),
    "where it ran": (
        Entry("culled", EVENT.at, "web-1", node="n7", app_version="412"),
        "culled         web-1                 -           -           node n7  app version 412",
    ),
}


@pytest.mark.parametrize(("event", "line"), LINES.values(), ids=LINES)
def test_event_is_one_line(event: Entry, line: str) -> None:
    assert events_command.as_text(event._asdict()) == f"2026-01-08 12:00:00Z  {line}"


async def test_events_that_come_late_stand_at_their_time_and_none_is_a_sentence(
    ledger: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ledger.run("events", "--since", "1h") == 0
    assert capsys.readouterr().out == "no events in the last 1h\n"
    assert await ledger.run("events", "--json") == 0
    assert capsys.readouterr().out == ""
    ledger.keep(ledger.entry("redis_back", 3), ledger.entry("suspect", 9))
    assert await ledger.run("events") == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["WHAT", "suspect", "redis_back"]


CULLED = Entry("culled", 0.0, "web-1", "redis", "errors", seconds=4.0)
CULLED_LINE = "1970-01-01 00:00:00Z  culled         web-1                 redis       errors      after 4s  5 errors"
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
    observed = events_command.as_text(CULLED._replace(detail=detail)._asdict())
    assert observed.split("\n") == [CULLED_LINE, *below]


async def test_all_pages_are_read(ledger: LedgerServer, capsys: pytest.CaptureFixture[str]) -> None:
    count = events_command.PAGE + 1
    ledger.keep(*(ledger.entry("suspect", detail=str(number)) for number in range(count)))
    assert await ledger.run("events", "--json") == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["detail"] for event in printed] == [str(number) for number in range(count)]
    names = {"id", "at", "what", "instance", "kind", "reason", "author", "seconds", "detail", "node", "app_version"}
    assert set(printed[0]) == names


async def test_without_redis_it_is_what_the_sidecar_knows_and_the_code_says_so(
    ledger: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.error, ledger.local = "connection", [ledger.entry("redis_away"), ledger.entry("culled", 60)]
    assert await ledger.run("events", "--json") == 1
    out, err = capsys.readouterr()
    assert ([json.loads(line)["what"] for line in out.splitlines()], err) == (["culled", "redis_away"], AWAY)
    assert await ledger.run("report") == 1
    out, err = capsys.readouterr()
    assert ("culls         1" in out, err) == (True, AWAY)


@pytest.mark.parametrize("command", ["events", "report"])
async def test_question_that_the_sidecar_refuses_is_a_usage_error(
    ledger: LedgerServer, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert await ledger.run(command, "--since", "401d") == 2
    assert capsys.readouterr().err == "health-arbiter: since: takes at most 400d\n"
    assert await ledger.run(command, "--since", "soon") == 2
    assert capsys.readouterr().err.startswith("health-arbiter: Invalid value for '--since': 'soon' is not a duration")


# -- follow -------------------------------------------------------------------------------------------------


def nothing() -> None:
    """A second in which nothing happens."""


async def test_following_prints_what_comes_and_nothing_twice(ledger: LedgerServer) -> None:
    ledger.keep(ledger.entry("suspect"))
    whats = await ledger.follow(
        nothing,
        lambda: ledger.keep(ledger.entry("granted"), ledger.entry("culled")),
        nothing,
        lambda: ledger.keep(ledger.entry("replaced")),
        nothing,
    )
    assert whats == ["suspect", "granted", "culled", "replaced"]


async def test_following_goes_on_while_redis_is_away_and_repeats_nothing_when_it_is_back(ledger: LedgerServer) -> None:
    ledger.keep(ledger.entry("suspect", 9))
    away = [ledger.entry("redis_away", 5, seconds=1 / 3), ledger.entry("redis_back", 1)]

    def lose() -> None:
        ledger.error, ledger.local = "connection", [away[0]._replace(at=away[0].at + 0.0004)]  # the store keeps 1 ms

    def find() -> None:
        ledger.error, ledger.local = "", []
        ledger.keep(away[0]._replace(seconds=0.333), away[1])

    assert await ledger.follow(lose, nothing, find, nothing) == ["suspect", "redis_away", "redis_back"]


async def test_following_outlives_the_sidecar(ledger: LedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.keep(ledger.entry("suspect"))

    def lose() -> None:
        def refuse(*_: object) -> None:
            raise local_api.NoSidecarError("away")

        monkeypatch.setattr(events_command, "ask", refuse)

    def find() -> None:
        monkeypatch.setattr(events_command, "ask", local_api.ask)
        ledger.keep(ledger.entry("recovered"))

    assert await ledger.follow(lose, nothing, find) == ["suspect", "recovered"]


async def test_interruption_is_the_end_of_following_and_no_failure(
    ledger: LedgerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_reader: LedgerReader) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(LedgerReader, "follow", interrupt)
    assert await ledger.run("events", "--follow") == 0


# -- report -------------------------------------------------------------------------------------------------


async def test_report_is_of_the_service_and_mode_of_the_sidecar(
    ledger: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.keep(ledger.entry("would_cull", 60), ledger.entry("would_recover", 30, seconds=30.0))
    assert await ledger.run("report") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("web: 7 days until ")
    assert lines[1] == "only the containers in shadow mode; ask one of the 10 % that enforce too"
    assert lines[3].startswith("enforcing     1 cull, 1 of them recovered without it")


async def test_report_as_json_names_its_numbers(ledger: LedgerServer, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.keep(ledger.entry("culled", 60), ledger.entry("denied", 50, reason="paused"))
    assert await ledger.run("report", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["causes"] == [{"kind": "redis", "culls": 1, "helped": 0, "unhelped": 0, "unclear": 0}]
    assert found["refusals"] == {"paused": 1}
    assert found["replaced_s"] == {"count": 0, "median": 0.0, "longest": 0.0}


async def test_report_is_a_page_too(ledger: LedgerServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert await ledger.run("report", "--html") == 0
    page = capsys.readouterr().out
    assert (page.startswith("<!DOCTYPE html>"), page.endswith("</html>\n")) == (True, True)
    assert await ledger.run("report", "--html", "--json") == 2
