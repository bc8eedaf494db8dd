"""Writes the log of the process, as JSON or as text for people.

Lines leave through a bounded queue and a thread, so that a stalled reader of the standard error stops the thread and
never the event loop. Lines that do not fit are counted.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

QUEUE_LIMIT: Final = 1_000
FLUSH_S: Final = 1.0

Lines = queue.Queue[logging.LogRecord | None]
"""Lines that wait to be written; None ends the thread."""


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
def logging_to(stream: TextIO, *, common: dict[str, object], on_drop: Callable[[], None]) -> Iterator[None]:
    """Send the log of the whole process to the descriptor of ``stream`` while the context lasts.

    On a terminal it is text, elsewhere JSON with the fields ``common`` in every line. ``on_drop`` is called, in any
    thread, for each line that did not fit or could not be written.
    """
    formatter = _Formatter(as_console, {}) if stream.isatty() else _Formatter(as_json, common)
    lines: Lines = queue.Queue(QUEUE_LIMIT)
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.handlers[:] = [_Bounded(lines, on_drop)]
    root.setLevel(logging.INFO)
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
