"""The log: one structured line for each change of state, as JSON or as text for people.

Lines leave through a bounded queue and a thread, so that a stalled reader of the standard error stops the thread and
never the event loop. Lines that do not fit are counted. A line that repeats is logged once a minute, with the number of
repetitions that were left out.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TextIO

from sidecar.core.explain import reasons
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.life.container import Container
from sidecar.core.life.events import (
    Culled,
    Event,
    Moved,
    OrderTaken,
    Recovered,
    Restarted,
    Retired,
    RetirementAnswered,
    Revived,
    Suspected,
    TokenAnswered,
    WentDown,
    WouldCull,
    WouldRetire,
)
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Denied, Fleet, Granted, Missed, Report, Unknown
from sidecar.telemetry.fleet_telemetry import changes
from sidecar.telemetry.observers import Failure

SAMPLE_S: Final = 60.0
QUEUE_LIMIT: Final = 1_000
FLUSH_S: Final = 1.0

Lines = queue.Queue[logging.LogRecord | None]
"""Lines that wait to be written; None ends the thread."""

logger: Final = logging.getLogger("sidecar")


class Log:
    """Logs what it observes. ``plan``: the fleet's rotation; the log warns if it is impossible."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, plan: RotationPlan | None = None) -> None:
        self._plan = plan
        self._falls_short = False
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}
        self._fleet: Fleet | None = None
        self._is_away = False

    def observe(self, record: Record) -> None:
        """Log what has happened in a step, and (sampled) each answer to a request that is no grant."""
        for event in record.events:
            if line := LINES.get(type(event)):
                logger.log(line.level, line.text(event), extra={"fields": _fields(record, event)})
            elif isinstance(event, TokenAnswered) and not isinstance(event.answer, Granted):
                self._no_token(event.answer, event.claim_id)
            elif isinstance(event, RetirementAnswered) and not isinstance(event.answer, Granted):
                self._no_lease(event.answer)

    def _no_token(self, answer: Denied | Unknown, claim_id: str) -> None:
        word = reasons.reason_word(answer)
        fields = {"claim": reasons.outcome(answer), "reason": word, "claim_id": claim_id}
        self.sampled(f"claim {word}", logging.WARNING, f"no token: {reasons.answer(answer)}", fields)

    def _no_lease(self, answer: Denied | Unknown) -> None:
        """Log it as a warning only if there was no answer: waiting for a free slot is usual."""
        word = reasons.reason_word(answer)
        level = logging.WARNING if isinstance(answer, Unknown) else logging.INFO
        fields = {"lease": reasons.outcome(answer), "reason": word}
        self.sampled(f"lease {word}", level, f"no lease: {reasons.lease(answer)}", fields)

    def beaten(self, answer: Fleet | Unknown) -> None:
        """Log what has changed in the fleet, whether its store can be reached, and (sampled) why not."""
        if isinstance(answer, Unknown):
            text = f"store unreachable: {reasons.answer(answer)}"
            self.sampled(f"warm {answer.error}", logging.WARNING, text, {"reason": answer.error})
        elif self._is_away:
            logger.info("store reachable again")
        self._is_away = isinstance(answer, Unknown)
        if isinstance(answer, Fleet):
            self._compare(answer)

    def _compare(self, fleet: Fleet) -> None:
        for line in changes(self._fleet, fleet):
            logger.log(line.level, line.text, extra={"fields": line.fields})
        self._fleet = fleet
        shortfall = self._plan.shortfall(fleet.alive + fleet.down) if self._plan else ""
        if bool(shortfall) is not self._falls_short:
            self._falls_short = bool(shortfall)
            logger.log(logging.WARNING if shortfall else logging.INFO, shortfall or "retirements can keep up again")

    def scraped(self, report: Report) -> None:
        """Log, sampled, that the app's page could not be fetched."""
        if isinstance(report, Missed):
            self.sampled(f"scrape {report.cause}", logging.WARNING, "scrape failed", {"cause": report.cause})

    def failed(self, failure: Failure) -> None:
        """Log an exception that the sidecar survived, at most once a minute for each place and type."""
        where, error = f"{failure.where} {failure.operation}".strip(), failure.error
        fields = {"where": where, "error": type(error).__name__, "detail": str(error)[:500]}
        trace = error if where == "step" else None
        self.sampled(f"{where} {type(error).__name__}", logging.ERROR, f"{where} failed", fields, trace)

    def sampled(
        self, key: str, level: int, text: str, fields: Mapping[str, object], error: Exception | None = None
    ) -> None:
        """Log ``text`` unless a line with this ``key`` was logged within the last minute."""
        now = self._clock()
        logged_at, swallowed = self._logged.get(key, (-SAMPLE_S, 0))
        if now - logged_at < SAMPLE_S:
            self._logged[key] = (logged_at, swallowed + 1)
            return
        self._logged[key] = (now, 0)
        logger.log(level, text, extra={"fields": {**fields, "swallowed": swallowed}}, exc_info=error)


class EventLine(NamedTuple):
    """How an event is logged; ``text`` makes the message of it."""

    level: int
    text: Callable[[Any], str]


def _state(event: Moved) -> str:
    return event.state


LINES: Final[Mapping[type[Event], EventLine]] = {
    Moved: EventLine(logging.INFO, _state),
    Suspected: EventLine(logging.WARNING, _state),
    Recovered: EventLine(logging.INFO, _state),
    Culled: EventLine(logging.WARNING, _state),
    Retired: EventLine(logging.WARNING, _state),
    WentDown: EventLine(logging.WARNING, _state),
    Revived: EventLine(
        logging.WARNING, lambda event: "revived" if event.order else "retired and not replaced in time, up again"
    ),
    Restarted: EventLine(logging.INFO, lambda event: "app restarted" if event.state is event.was else event.state),
    OrderTaken: EventLine(logging.WARNING, lambda _: "cull ordered"),
    WouldCull: EventLine(logging.WARNING, lambda _: "would be culled (shadow mode)"),
    WouldRetire: EventLine(logging.WARNING, lambda _: "would be retired (shadow mode)"),
}
"""The events that have a line of their own; answers without a grant have a sampled one."""

FIELDS: Final[Mapping[type[Event], Callable[[Any], dict[str, object]]]] = {
    OrderTaken: lambda event: {"author": event.order.author, "order": event.order.reason},
    Revived: lambda event: {"author": event.order.author, "order": event.order.reason} if event.order else {},
    Restarted: lambda event: {"app_start": event.app_start},
    RetirementAnswered: lambda event: {
        "lease": reasons.outcome(event.answer),
        "answer": reasons.lease(event.answer),
    },
    TokenAnswered: lambda event: {
        "claim": reasons.outcome(event.answer),
        "answer": reasons.answer(event.answer),
        "claim_id": event.claim_id,
        "claim_ms": round(event.took_s * 1000, 3),
    },
}
"""What an event adds to the fields of the lines of its step."""


def _fields(record: Record, event: Event) -> dict[str, object]:
    fields: dict[str, object] = {
        "state": record.container.state,
        "was": event.was if isinstance(event, Moved) else record.container.state,
        "errors": record.evidence.errors,
        "kinds": record.evidence.kinds,
        "reason": _reason(record.container),
    }
    for each in record.events:
        fields |= FIELDS[type(each)](each) if type(each) in FIELDS else {}
    return fields


def _reason(container: Container) -> str:
    latched = container.latch.reason if container.latch else ""
    return latched if container.lease else reasons.verdict(container.verdict) or latched


class _Formatter(logging.Formatter):
    def __init__(
        self, render: Callable[[logging.LogRecord, dict[str, object]], str], common: dict[str, object]
    ) -> None:
        super().__init__()
        self._render = render
        self._common = common

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        trace = {"trace": self.formatException(record.exc_info)} if record.exc_info else {}
        return self._render(record, {**self._common, **fields, **trace})


def as_json(record: logging.LogRecord, fields: dict[str, object]) -> str:
    """One JSON object: ``time`` (RFC 3339, UTC), ``level``, ``message``, then the fields."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    head = {"time": f"{at}.{int(record.msecs):03}Z", "level": record.levelname.lower(), "message": record.getMessage()}
    return json.dumps({**head, **fields}, default=str)


def as_console(record: logging.LogRecord, fields: dict[str, object]) -> str:
    """Time of day, level, message, then ``name=value``; a trace follows on indented lines."""
    at = time.strftime("%H:%M:%S", time.localtime(record.created))
    shown = {name: value for name, value in fields.items() if name != "trace" and value not in ("", None, {})}
    head = f"{record.getMessage()}{''.join(f'  {name}={value}' for name, value in shown.items())}"
    trace = (f"\n    {_plain(line)}" for line in str(fields.get("trace", "")).splitlines())
    return f"{at} {record.levelname:<7} {_plain(head)}{''.join(trace)}"


def _plain(text: str) -> str:
    """Escape characters that would begin a new line or control a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _Bounded(logging.Handler):
    """Never blocks and never raises; ``on_drop`` is called for each line that does not fit."""

    def __init__(self, lines: Lines, on_drop: Callable[[], None]) -> None:
        super().__init__()
        self._lines = lines
        self._on_drop = on_drop

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(record)
        except queue.Full:
            self._on_drop()


@contextmanager
def logging_to(
    stream: TextIO, *, style: str = "auto", level: str, common: dict[str, object], on_drop: Callable[[], None]
) -> Iterator[None]:
    """Send the log of the whole process to the descriptor of ``stream`` while the context lasts.

    ``style`` is ``json``, ``console`` or ``auto`` (console on a terminal); ``common`` are fields of every line.
    ``on_drop`` is called, in any thread, for each line that did not fit or could not be written.
    """
    console = style == "console" or (style == "auto" and stream.isatty())
    formatter = _Formatter(as_console, {}) if console else _Formatter(as_json, common)
    lines: Lines = queue.Queue(QUEUE_LIMIT)
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.handlers[:] = [_Bounded(lines, on_drop)]
    root.setLevel(level.upper())
    writer = threading.Thread(target=_write, args=(lines, formatter, stream.fileno(), on_drop), name="log", daemon=True)
    writer.start()
    try:
        yield
    finally:
        with suppress(queue.Full):  # the output is stalled: the thread ends with the process
            lines.put(None, timeout=FLUSH_S)
            writer.join(FLUSH_S)


def _write(lines: Lines, formatter: logging.Formatter, descriptor: int, on_drop: Callable[[], None]) -> None:
    """Write to the descriptor. A process that ends would wait for the lock of a stream or of a handler."""
    while (record := lines.get()) is not None:
        try:
            _write_all(descriptor, f"{formatter.format(record)}\n".encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001 - one line that cannot be written must not end the log
            on_drop()


def _write_all(descriptor: int, left: bytes) -> None:
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # another process that shares the descriptor may have made it non-blocking
            select.select([], [descriptor], [])
