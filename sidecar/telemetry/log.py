"""The log: one structured line a state change, as JSON or for a person's eyes.

Lines leave through a bounded queue and a thread, so that a reader of our standard error who stalls holds up a thread
and never the loop; what does not fit is counted. What repeats (a Redis that is away) is said once a minute, with how
often it was not said.
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
from sidecar.core.life.container import Container
from sidecar.core.life.events import Answered, CullOrdered, Leased, Revived
from sidecar.core.life.lifetime import Plan
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Denied, Fleet, Granted, State, Unknown
from sidecar.telemetry.fleet_telemetry import changes

SAMPLE_S: Final = 60.0
QUEUE_LIMIT: Final = 1_000
FLUSH_S: Final = 1.0

Lines = queue.Queue[logging.LogRecord | None]
"""What waits to be written; None ends it."""

logger: Final = logging.getLogger("sidecar")


class Log:
    """Observer of the controller's records, and the place where failures are told.

    ``plan``: how the fleet is to be renewed, which may be impossible.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, plan: Plan | None = None) -> None:
        self._plan = plan
        self._falls_short = False
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}
        self._fleet: Fleet | None = None
        self._is_away = False

    def observe(self, record: Record) -> None:
        """Tell a state change, a grant, and (sampled) every other answer to a claim."""
        before, after, event = record.before, record.after, record.event
        if isinstance(event, CullOrdered) and after.order is not before.order:
            logger.warning("cull ordered", extra={"fields": {"author": event.author, "order": event.reason}})
        if after.state is not before.state:
            is_loud = after.state in _LOUD or record.not_honoured or isinstance(event, Revived)
            level = logging.WARNING if is_loud else logging.INFO
            logger.log(level, _message(record), extra={"fields": _change(record)})
        elif after.would_retire and not before.would_retire:
            logger.warning("would be retired (shadow mode)", extra={"fields": _change(record)})
        elif after.would_culls > before.would_culls:
            logger.warning("would be culled (shadow mode)", extra={"fields": _change(record)})
        elif record.restarted:
            logger.info("app restarted", extra={"fields": {"app_start": after.app_start}})
        if isinstance(event, Answered) and not isinstance(event.answer, Granted):
            self._refused(event.answer, event.claim_id)
        if isinstance(event, Leased) and not isinstance(event.answer, Granted):
            self._not_leased(event.answer)

    def _refused(self, answer: Denied | Unknown, claim_id: str) -> None:
        word = reasons.reason_word(answer)
        fields = {"claim": reasons.outcome(answer), "reason": word, "claim_id": claim_id}
        self.sampled(f"claim {word}", logging.WARNING, f"no token: {reasons.answer(answer)}", fields)

    def _not_leased(self, answer: Denied | Unknown) -> None:
        """To wait for one's turn is nothing to worry about."""
        word = reasons.reason_word(answer)
        level = logging.WARNING if isinstance(answer, Unknown) else logging.INFO
        fields = {"lease": reasons.outcome(answer), "reason": word}
        self.sampled(f"lease {word}", level, f"no lease: {reasons.lease(answer)}", fields)

    def unreachable(self, unknown: Unknown) -> None:
        """Tell, sampled, that the bucket cannot be reached."""
        text = f"bucket unreachable: {reasons.answer(unknown)}"
        self.sampled(f"warm {unknown.error}", logging.WARNING, text, {"reason": unknown.error})
        self._is_away = True

    def reachable(self) -> None:
        """Tell that the bucket can be reached again, if it could not."""
        if self._is_away:
            logger.info("bucket reachable again")
        self._is_away = False

    def fleet(self, fleet: Fleet) -> None:
        """Tell what has changed in the fleet."""
        for line in changes(self._fleet, fleet):
            logger.log(line.level, line.text, extra={"fields": line.fields})
        self._fleet = fleet
        shortfall = self._plan.shortfall(fleet.alive + fleet.down) if self._plan else ""
        if bool(shortfall) is not self._falls_short:
            self._falls_short = bool(shortfall)
            logger.log(logging.WARNING if shortfall else logging.INFO, shortfall or "retirements can keep up again")

    def scrape_missed(self, cause: str) -> None:
        """Tell, sampled, that the app's page could not be had."""
        self.sampled(f"scrape {cause}", logging.WARNING, "scrape failed", {"cause": cause})

    def failed(self, where: str, error: Exception) -> None:
        """Tell a failure of ours that the sidecar survived, at most once a minute for each place and type."""
        fields = {"where": where, "error": type(error).__name__, "detail": str(error)[:500]}
        trace = error if where == "step" else None
        self.sampled(f"{where} {type(error).__name__}", logging.ERROR, f"{where} failed", fields, trace)

    def sampled(
        self, key: str, level: int, text: str, fields: Mapping[str, object], error: Exception | None = None
    ) -> None:
        """Say ``text`` unless it was said under ``key`` within the last minute."""
        now = self._clock()
        said_at, swallowed = self._said.get(key, (-SAMPLE_S, 0))
        if now - said_at < SAMPLE_S:
            self._said[key] = (said_at, swallowed + 1)
            return
        self._said[key] = (now, 0)
        logger.log(level, text, extra={"fields": {**fields, "swallowed": swallowed}}, exc_info=error)


_LOUD: Final = frozenset({State.SUSPECT, State.DRAINING, State.DOWN})


def _message(record: Record) -> str:
    if record.not_honoured:
        return "retired and not replaced in time, up again"
    return "revived" if isinstance(record.event, Revived) else record.after.state


def _change(record: Record) -> dict[str, object]:
    before, after = record.before, record.after
    fields: dict[str, object] = {
        "state": after.state,
        "was": before.state,
        "errors": record.evidence.errors,
        "kinds": record.evidence.kinds,
        "reason": _reason(after),
    }
    if isinstance(record.event, Revived):
        fields.update(author=record.event.author, order=record.event.reason)
    if isinstance(record.event, Leased):
        fields["lease"] = reasons.outcome(record.event.answer)
        fields["answer"] = reasons.lease(record.event.answer)
    if isinstance(record.event, Answered):
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
    """Time of day, level, message, then ``name=value``; a trace stands below, indented."""
    at = time.strftime("%H:%M:%S", time.localtime(record.created))
    told = {name: value for name, value in fields.items() if name != "trace" and value not in ("", None, {})}
    head = f"{record.getMessage()}{''.join(f'  {name}={value}' for name, value in told.items())}"
    trace = (f"\n    {_plain(line)}" for line in str(fields.get("trace", "")).splitlines())
    return f"{at} {record.levelname:<7} {_plain(head)}{''.join(trace)}"


def _plain(text: str) -> str:
    """Escape what would begin a line of its own or steer a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _Bounded(logging.Handler):
    """Never blocks and never raises; what does not fit is told to ``on_drop``."""

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
    stream: TextIO, *, style: str, level: str, common: dict[str, object], on_drop: Callable[[], None]
) -> Iterator[None]:
    """Send the log of the whole process to the descriptor of ``stream`` while the context lasts.

    ``style`` is ``json``, ``console`` or ``auto`` (console on a terminal); ``common`` are fields of every line.
    ``on_drop`` is told of each line that did not fit or could not be written, from whatever thread.
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
        _flush(lines, writer)


def _write(lines: Lines, formatter: logging.Formatter, descriptor: int, on_drop: Callable[[], None]) -> None:
    """Write line by line to the descriptor: the end of the process waits for whoever holds the stream or a handler."""
    while (record := lines.get()) is not None:
        try:
            _write_all(descriptor, f"{formatter.format(record)}\n".encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001 - one line that cannot be written must not end the log
            on_drop()


def _write_all(descriptor: int, left: bytes) -> None:
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # whoever shares the descriptor with us may have set it so
            select.select([], [descriptor], [])


def _flush(lines: Lines, writer: threading.Thread) -> None:
    """Give the last lines a moment. A reader who stalls does not keep us: the thread ends with the process."""
    with suppress(queue.Full):
        lines.put(None, timeout=FLUSH_S)
        writer.join(FLUSH_S)
