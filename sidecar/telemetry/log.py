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
from typing import Final, TextIO

from sidecar.core.explain import reasons
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.life.container import Container
from sidecar.core.life.events import ClaimAnswered, CullOrdered, LeaseAnswered, ReviveOrdered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Denied, Fleet, Granted, Missed, Report, State, Unknown
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
        """Log a change of state, a grant, and (sampled) every other answer to a claim."""
        before, after, event = record.before, record.after, record.event
        if isinstance(event, CullOrdered) and after.order is not before.order:
            logger.warning("cull ordered", extra={"fields": {"author": event.author, "order": event.reason}})
        if after.state is not before.state:
            is_loud = after.state in _LOUD or record.not_honoured or isinstance(event, ReviveOrdered)
            level = logging.WARNING if is_loud else logging.INFO
            logger.log(level, _message(record), extra={"fields": _change(record)})
        elif after.would_retire and not before.would_retire:
            logger.warning("would be retired (shadow mode)", extra={"fields": _change(record)})
        elif after.would_culls > before.would_culls:
            logger.warning("would be culled (shadow mode)", extra={"fields": _change(record)})
        elif record.restarted:
            logger.info("app restarted", extra={"fields": {"app_start": after.app_start}})
        if isinstance(event, ClaimAnswered) and not isinstance(event.answer, Granted):
            self._refused(event.answer, event.claim_id)
        if isinstance(event, LeaseAnswered) and not isinstance(event.answer, Granted):
            self._not_leased(event.answer)

    def _refused(self, answer: Denied | Unknown, claim_id: str) -> None:
        word = reasons.reason_word(answer)
        fields = {"claim": reasons.outcome(answer), "reason": word, "claim_id": claim_id}
        self.sampled(f"claim {word}", logging.WARNING, f"no token: {reasons.answer(answer)}", fields)

    def _not_leased(self, answer: Denied | Unknown) -> None:
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


_LOUD: Final = frozenset({State.SUSPECT, State.DRAINING, State.DOWN})


def _message(record: Record) -> str:
    if record.not_honoured:
        return "retired and not replaced in time, up again"
    return "revived" if isinstance(record.event, ReviveOrdered) else record.after.state


def _change(record: Record) -> dict[str, object]:
    before, after = record.before, record.after
    fields: dict[str, object] = {
        "state": after.state,
        "was": before.state,
        "errors": record.evidence.errors,
        "kinds": record.evidence.kinds,
        "reason": _reason(after),
    }
    if isinstance(record.event, ReviveOrdered):
        fields.update(author=record.event.author, order=record.event.reason)
    if isinstance(record.event, LeaseAnswered):
        fields["lease"] = reasons.outcome(record.event.answer)
        fields["answer"] = reasons.lease(record.event.answer)
    if isinstance(record.event, ClaimAnswered):
        fields["claim"] = reasons.outcome(record.event.answer)
        fields["answer"] = reasons.answer(record.event.answer)
        fields["claim_id"] = record.event.claim_id
        fields["claim_ms"] = round((record.claim_s or 0.0) * 1000, 3)
    if record.restarted:
        fields["app_start"] = after.app_start
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
