"""The lines of the log, how often they repeat, and that a slow reader cannot stop the sidecar."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.controller import POLICY, ControllerRig
from harness.virtual_time import in_virtual_time
from sidecar.core.app_reports import Missed
from sidecar.core.claims import CauseTrial, Denied, Fleet, Granted, Unknown
from sidecar.core.explain import reasons, words
from sidecar.core.fleet.fleet_events import (
    BeatRecord,
    CausePaused,
    DataLost,
    Duplicated,
    DuplicateEnded,
    FleetEvent,
    HoldBegan,
    HoldEnded,
    HoldLost,
    PauseEnded,
    ProcessUnknown,
    SettingsDiffer,
    StoreBack,
)
from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.life.container import start
from sidecar.core.life.events import (
    CullOrdered,
    Event,
    Moved,
    OrderTaken,
    Recovered,
    Restarted,
    Retired,
    RetirementAnswered,
    Revived,
    ReviveOrdered,
    TokenAnswered,
    WentDown,
    WouldCull,
    WouldRetire,
)
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Evidence, Hold, State
from sidecar.telemetry.log import Log, logger
from sidecar.telemetry.log_output import QUEUE_LIMIT, as_console, as_json, logging_to

TOP = Path(__file__).parents[2]
GRANTED = Granted(1, 10)
HOLD = Hold("ann", "deploy", 1_700_000_000.0)
DENIED = Denied("window", 10, 10, 60.0)
FORGED = "x\n00:00:00 ERROR   forged\r\x1b[2J\u2028{}"


class Output:
    """Where a log goes to, and what could not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.drops = 0

    def dropped(self) -> None:
        self.drops += 1

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def messages(self) -> list[str]:
        return [line["message"] for line in self.lines]

    @contextmanager
    def taking(self, descriptor: int | None = None) -> Iterator[None]:
        """Have the log of this process until the context ends, and give it back."""
        root = logging.getLogger()
        before = root.handlers[:], root.level, logging.raiseExceptions
        common: dict[str, object] = {"service": "web", "instance": "a"}
        with open(self.path if descriptor is None else descriptor, "w") as stream:  # noqa: PTH123 - or a descriptor
            try:
                with logging_to(stream, common=common, on_drop=self.dropped):
                    yield
            finally:
                root.handlers[:], root.level, logging.raiseExceptions = before


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Output:
    monkeypatch.setattr("sidecar.telemetry.log_output.FLUSH_S", 30.0)  # the disk of a busy machine may take a while
    # What asyncio has to complain of is collected now and then, and is of other tests.
    monkeypatch.setattr(logging.getLogger("asyncio"), "propagate", False)
    return Output(tmp_path / "log")


class HandClock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def record(*events: Event) -> Record:
    return Record(events, start("web/a", 0.0, POLICY), Evidence(60))


def raised(text: str) -> ValueError:
    """Return an error that has been somewhere, and so has a trace."""
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        raise ValueError(text)
    return caught.value


# -- one line a state change --------------------------------------------------------------------------------


@in_virtual_time
async def test_each_state_change_is_one_line_with_its_reason(output: Output) -> None:
    with output.taking():
        async with ControllerRig(observe=Log().observe) as rig:
            await rig.errors(5, kind="redis", app_start="boot-1")
            await rig.advance(4.5)
            await rig.answered(GRANTED)
            await rig.advance(15)
    up, suspect, draining, down = output.lines
    assert [up["state"], suspect["state"], down["state"]] == ["up", "suspect", "down"]
    assert [up["level"], suspect["level"], down["level"]] == ["info", "warning", "warning"]
    reason = "5 server errors in 60 s (5 of them redis), the limit is 5"
    assert suspect["reason"] == down["reason"] == reason
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", draining.pop("time"))
    assert draining == {
        "level": "warning",
        "message": "draining",
        "service": "web",
        "instance": "a",
        "state": "draining",
        "was": "suspect",
        "errors": 5,
        "kinds": {"redis": 5},
        "reason": reason,
        "claim": "granted",
        "answer": "token granted, 1 of 10 in use",
        "claim_id": "web/a/boot-1",
        "claim_ms": 1500.0,
    }


@pytest.mark.parametrize(
    ("event", "level", "message", "fields"),
    [
        (Moved(was=State.STARTING, state=State.UP), "info", "up", {"was": "starting"}),
        (WouldCull(None), "warning", "would be culled (shadow mode)", {"state": "starting", "was": "starting"}),
        (WouldRetire(), "warning", "would be retired (shadow mode)", {}),
        (Retired(was=State.RETIRING, state=State.DRAINING), "warning", "draining", {"was": "retiring"}),
        (WentDown(was=State.DRAINING, state=State.DOWN), "warning", "down", {"was": "draining"}),
        (
            Recovered(was=State.SUSPECT, state=State.UP, suspect_s=3.0),
            "info",
            "up",
            {"was": "suspect"},
        ),
        (
            Revived(was=State.DOWN, state=State.UP, out_s=9.0, order=None),
            "warning",
            "retired and not replaced in time, up again",
            {},
        ),
        (
            Revived(was=State.DOWN, state=State.UP, out_s=9.0, order=ReviveOrdered("bob", "it was me")),
            "warning",
            "revived",
            {"author": "bob", "order": "it was me"},
        ),
        (OrderTaken(CullOrdered("ann", "it leaks")), "warning", "cull ordered", {"author": "ann", "order": "it leaks"}),
        (
            Restarted(was=State.UP, state=State.STARTING, app_start="boot-2", out_s=None),
            "info",
            "starting",
            {"app_start": "boot-2"},
        ),
        (
            Restarted(was=State.STARTING, state=State.STARTING, app_start="boot-2", out_s=None),
            "info",
            "app restarted",
            {"app_start": "boot-2"},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_happens_to_the_container_is_a_line(
    output: Output, event: Event, level: str, message: str, fields: dict[str, object]
) -> None:
    with output.taking():
        Log().observe(record(event))
    (line,) = output.lines
    assert (line["level"], line["message"]) == (level, message)
    assert fields == {name: line[name] for name in fields}


def test_line_of_a_retirement_has_its_lease(output: Output) -> None:
    with output.taking():
        Log().observe(record(RetirementAnswered(Granted(1, 1)), Retired(was=State.RETIRING, state=State.DRAINING)))
    (line,) = output.lines
    assert (line["lease"], line["answer"]) == ("granted", "lease granted, 1 of 1 in use")


# -- what repeats is sampled --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("say", "fields"),
    [
        (
            lambda log: log.observe(record(TokenAnswered("web/a/-", DENIED, 0.0))),
            {"claim": "denied", "reason": "window", "claim_id": "web/a/-", "level": "warning"},
        ),
        (
            lambda log: log.observe(record(TokenAnswered("web/a/-", Unknown("timeout"), 0.0))),
            {"claim": "unknown", "reason": "timeout", "claim_id": "web/a/-", "level": "warning"},
        ),
        (
            lambda log: log.observe(record(RetirementAnswered(Denied("slots", 1, 1, 10.0)))),
            {
                "lease": "denied",
                "reason": "slots",
                "level": "info",
                "message": "no lease: no retirement lease is free, 1 of 1 are in use",
            },
        ),
        (
            lambda log: log.observe(record(RetirementAnswered(Unknown("timeout")))),
            {"lease": "unknown", "reason": "timeout", "level": "warning"},
        ),
        (lambda log: log.beaten(BeatRecord(Unknown("connection"))), {"reason": "connection", "level": "warning"}),
        (lambda log: log.scraped(Missed("timeout")), {"cause": "timeout", "level": "warning"}),
        (
            lambda log: log.failed("journal", OSError("disk full"), "write"),
            {"where": "journal write", "error": "OSError", "detail": "disk full", "level": "error"},
        ),
    ],
    ids=["denied", "time-out", "no lease", "no answer", "unreachable", "scrape", "failure"],
)
def test_what_repeats_is_said_once_a_minute_with_how_often_it_was_not(
    output: Output, say: Callable[[Log], None], fields: dict[str, object]
) -> None:
    clock = HandClock()
    log = Log(clock)
    with output.taking():
        for _ in range(121):
            say(log)
            clock.now_s += 1
    assert [line.get("swallowed") for line in output.lines] == [None, 59, 59]
    assert fields.items() <= output.lines[0].items()


def test_failed_step_is_told_with_its_trace_and_a_failed_listener_without(output: Output) -> None:
    log = Log()
    with output.taking():
        for where in ("step", "listener"):
            log.failed(where, raised("no such number"))
    step, listener = output.lines
    assert (
        (step["error"], step["detail"]) == (listener["error"], listener["detail"]) == ("ValueError", "no such number")
    )
    assert "Traceback" in step["trace"]
    assert "in raised" in step["trace"]
    assert "trace" not in listener


# -- how it is written --------------------------------------------------------------------------------------


def test_console_line_cannot_be_forged_by_a_value() -> None:
    written = logging.LogRecord("x", logging.WARNING, "", 0, "%s", (FORGED,), None)
    plain = r"x\n00:00:00 ERROR   forged\r\x1b[2J\u2028{}"
    assert as_console(written, {"detail": FORGED}).split(" ", 1)[1] == f"WARNING {plain}  detail={plain}"


@given(st.text(), st.text())
def test_any_text_is_one_line_in_either_style(message: str, value: str) -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, message, None, None)
    fields: dict[str, object] = {"detail": value}
    assert len(as_console(record, fields).splitlines()) == 1
    assert len(as_json(record, fields).splitlines()) == 1
    assert json.loads(as_json(record, fields))["detail"] == value


@pytest.mark.parametrize(("terminal", "begins"), [(False, r"\{"), (True, r"\d\d:\d\d:\d\d ")], ids=["file", "terminal"])
def test_auto_is_for_people_on_a_terminal_alone(output: Output, *, terminal: bool, begins: str) -> None:
    master, slave = os.openpty() if terminal else os.pipe()
    with output.taking(descriptor=slave):
        logger.info("hello")
        assert re.match(begins, os.read(master, 1000).decode())
    os.close(master)


def test_line_that_cannot_be_rendered_is_counted_and_the_next_one_written(output: Output) -> None:
    with output.taking():
        logger.info("%d", "no number")
        logger.info("next")
    assert output.messages == ["next"]
    assert output.drops == 1


# -- readers who are slow or gone ---------------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "not blocking"])
def test_slow_reader_gets_all_that_fitted_whole(output: Output, *, blocking: bool) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    count = 200
    with output.taking(descriptor=writing):
        for number in range(count):  # more than a pipe holds
            logger.info("line %d", number, extra={"fields": {"filling": "x" * 5000}})
        with open(reading, encoding="ascii") as reader:  # noqa: PTH123 - a descriptor
            lines = [json.loads(next(reader))["message"] for _ in range(count)]
    assert lines == [f"line {number}" for number in range(count)]
    assert output.drops == 0


STALLED = f"""
import asyncio, logging, sys, time
from sidecar.telemetry.log import logger
from sidecar.telemetry.log_output import logging_to
drops = []
async def main():
    longest = 0.0
    for number in range({QUEUE_LIMIT + 2000}):
        began = time.monotonic()
        logger.warning("line", extra={{"fields": {{"filling": "x" * 100}}}})
        longest = max(longest, time.monotonic() - began)
        if number % 100 == 0:
            await asyncio.sleep(0)
    return longest
with logging_to(sys.stderr, common={{}}, on_drop=lambda: drops.append(1)):
    longest = asyncio.run(main())
print(longest < 5, len(drops))  # who waited for the reader would wait for ever
"""


def test_reader_who_stalls_holds_up_neither_the_loop_nor_the_exit() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", STALLED], cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.wait(60) == 0
        assert child.stdout is not None
        assert child.stderr is not None
        unblocked, drops = child.stdout.read().split()
        heard = child.stderr.read().count("\n")
    finally:
        child.kill()
        child.communicate()
    assert unblocked == "True"
    assert int(drops) > 0
    # What is neither read nor dropped waits in the queue, but for the line that is being written.
    assert 0 <= QUEUE_LIMIT + 2000 - int(drops) - heard <= QUEUE_LIMIT + 1


# -- the fleet ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "level", "message", "fields"),
    [
        (
            CausePaused(CauseTrial("redis", 1, 0, 540.0, 1)),
            "warning",
            "culls for redis are paused: the last one did not help",
            {"cause": "redis", "paused_s": 540, "failures": 1},
        ),
        (PauseEnded("redis"), "info", "the pause of culls for redis is over", {"cause": "redis"}),
        (Duplicated(), "warning", "two containers run under this instance name", {}),
        (DuplicateEnded(), "info", "no other container runs under this instance name any more", {}),
        (SettingsDiffer(2), "warning", "sidecars of this service run with different settings", {"settings": 2}),
        (ProcessUnknown(), "warning", words.UNKNOWN_PROCESS, {}),
        (DataLost(Fleet(10, 2, 1)), "warning", "Redis lost its record of earlier culls", {"suspect": 2, "down": 1}),
        (HoldBegan(HOLD), "warning", "held: ann holds the service: deploy", {"until": HOLD.until}),
        (HoldEnded(), "warning", "no hold any more", {}),
        (HoldLost(HOLD), "error", reasons.lost_hold(HOLD), {"until": HOLD.until}),
        (StoreBack(2.0), "info", "store reachable again", {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_happens_to_the_fleet_is_a_line(
    output: Output, event: FleetEvent, level: str, message: str, fields: dict[str, object]
) -> None:
    with output.taking():
        Log().beaten(BeatRecord(Fleet(10), (event,)))
    (line,) = output.lines
    assert line["level"] == level
    assert line["message"].startswith(message)
    assert fields.items() <= line.items()


def test_fleet_that_cannot_be_retired_in_time_is_told_when_that_changes(output: Output) -> None:
    log = Log(plan=RotationPlan(600.0, Share(1), 60.0))
    with output.taking():
        for fleet in (Fleet(9), Fleet(10), Fleet(11), Fleet(8, down=2), Fleet(9), Fleet(10)):
            log.beaten(BeatRecord(fleet))
    assert [(line["level"], line["message"][:28]) for line in output.lines] == [
        ("warning", "retirements cannot keep up: "),
        ("info", "retirements can keep up agai"),
        ("warning", "retirements cannot keep up: "),
    ]
