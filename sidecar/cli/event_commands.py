"""The commands that look back: ``events`` and ``report``, asked of the sidecar on this machine.

It answers with the ledger of the service, or with what it knows itself while the shared bucket is away; then the exit
code is 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from sidecar.cli import local_api
from sidecar.cli.exit_codes import EXIT_FAILED, EXIT_NO_SIDECAR, EXIT_USAGE
from sidecar.cli.fleet_table import span
from sidecar.cli.terminal import complain, plain, say
from sidecar.config.rollout import ALL
from sidecar.core.types import Entry

if TYPE_CHECKING:
    from sidecar.config.settings import Settings

Out = Callable[[str], None]
"""Takes a line, or several, without the final newline."""

PAGE: Final = 500
MOST_PAGES: Final = 1000
FOLLOW_S: Final = 1.0
STDOUT: Final = "-"
FORMATS: Final = ("text", "json", "html")
MOST_LINES: Final = 24
"""So many lines of a detail stand below its first one: a hook may have printed hundreds."""

_INDENT: Final = " " * 4
_OK: Final = 200
_REMEMBERED: Final = 2000


class RefusedError(Exception):
    """The door would not have the question; the message is its own."""


def events(
    settings: Settings,
    since_s: float,
    follow: bool,  # noqa: FBT001 - a flag of the command line
    as_json: bool,  # noqa: FBT001 - as above
    out: Out = say,
    *,
    polls: int | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Print the events of the last so many seconds, and with ``follow`` those to come; the exit code.

    With ``as_json`` each is one line of JSON. It follows until it is interrupted, or has asked ``polls`` times.
    """
    written = _as_json if as_json else as_text
    reader = _Reader(settings, since_s)
    try:
        for event in reader.news():
            out(written(event))
        if not follow:
            return _ended(reader)
        with contextlib.suppress(KeyboardInterrupt):
            while polls is None or polls > 0:
                polls = None if polls is None else polls - 1
                pause(FOLLOW_S)
                for event in reader.news_if_any():
                    out(written(event))
    except local_api.NoSidecarError as error:
        complain(str(error))
        return EXIT_NO_SIDECAR
    except RefusedError as error:
        complain(str(error))
        return EXIT_USAGE
    return 0


def report(settings: Settings, since_s: float, form: str = "text", path: str = STDOUT, out: Out = say) -> int:
    """Print the report of the last so many seconds as ``text``, ``json`` or ``html``, or write it to a file."""
    from sidecar.cli.report import figures  # noqa: PLC0415 - a sidecar that runs reports nothing

    reader = _Reader(settings, since_s)
    try:
        told = list(reader.news())
    except local_api.NoSidecarError as error:
        complain(str(error))
        return EXIT_NO_SIDECAR
    except RefusedError as error:
        complain(str(error))
        return EXIT_USAGE
    now = time.time()
    service, mode = reader.service or settings.service, reader.mode or settings.mode
    part = reader.enforce_percent
    added = figures.report(map(_entry, told), now - since_s, now, now, service=service, mode=mode, enforce_percent=part)
    document = _document(added, form)
    if path == STDOUT:
        out(document)
    elif not _wrote(Path(path), document):
        return EXIT_FAILED
    return _ended(reader)


def as_text(event: dict[str, Any]) -> str:
    """One event for a terminal: a line, and the rest of its detail indented below; nothing in it moves the cursor."""
    at = datetime.fromtimestamp(event["at"], UTC)
    took = "" if event["seconds"] is None else span(event["seconds"])
    detail, *rest = event["detail"].splitlines() or [""]
    about = [event["kind"], event["reason"], f"by {event['author']}" if event["author"] else "", took, detail]
    head = f"{at:%Y-%m-%d %H:%M:%S}Z  {event['what']:<13} {event['instance'] or '-':<20}"
    return "\n".join([plain("  ".join([head, *filter(None, about)]).rstrip()), *_below(rest)])


def _below(rest: Sequence[str]) -> Iterator[str]:
    for line in rest[:MOST_LINES]:
        yield f"{_INDENT}{plain(line.expandtabs())}".rstrip()
    left_out = len(rest) - MOST_LINES
    if left_out > 0:
        yield f"{_INDENT}and {left_out} more line{'s' * (left_out > 1)}: --json"


def _as_json(event: dict[str, Any]) -> str:
    return json.dumps(event)


def _document(added: Any, form: str) -> str:
    if form == "json":
        return json.dumps(_named(added), indent=2)
    if form == "html":
        from sidecar.cli.report.html_report import html  # noqa: PLC0415 - one of three

        return html(added).rstrip("\n")
    from sidecar.cli.report.text_report import text  # noqa: PLC0415 - as above

    return text(added)


def _named(added: Any) -> dict[str, Any]:
    """The numbers by name, where they are rows as well."""
    fields = asdict(added)
    for name in ("causes", "holds", "bins"):
        fields[name] = [row._asdict() for row in getattr(added, name)]
    return {**fields, "refusals": dict(added.refusals), "paused": dict(added.paused)}


def _wrote(path: Path, document: str) -> bool:
    """Whether the file could be written: as a whole, or not at all. A pipe or a terminal is written to as it is."""
    half = path.with_name(f".{path.name}.{os.getpid()}") if path.is_file() or not path.exists() else path
    try:
        half.write_text(f"{document}\n", encoding="utf-8")
        if half != path:
            half.replace(path)
    except OSError as error:
        if half != path:
            half.unlink(missing_ok=True)
        complain(f"{path} cannot be written: {(error.strerror or str(error)).lower()}")
        return False
    return True


def _ended(reader: _Reader) -> int:
    if reader.is_stored:
        return 0
    complain(f"{reader.sentence}: that is what this sidecar has seen itself")
    return EXIT_FAILED


def _entry(event: dict[str, Any]) -> Entry:
    return Entry(**{name: event[name] for name in Entry._fields if name in event})


class _Reader:
    """Reads the ledger page by page from where it was; events that it had from the sidecar alone do not come again."""

    def __init__(self, settings: Settings, since_s: float) -> None:
        self.is_stored = True
        self.sentence = ""
        self.service = self.mode = ""
        self.enforce_percent = ALL
        self._settings = settings
        self._since_s = since_s
        self._after = ""
        self._local: deque[tuple[Any, ...]] = deque(maxlen=_REMEMBERED)

    def news(self) -> Iterator[dict[str, Any]]:
        """What has come since the last time. Raises NoSidecarError and RefusedError."""
        for _ in range(MOST_PAGES):
            page = self._page()
            yield from self._fresh(page)
            if not (page and self.is_stored):
                return
            self._after = page[-1]["id"]

    def news_if_any(self) -> list[dict[str, Any]]:
        """The same; a sidecar that is away for a while, as when its container is replaced, has none."""
        try:
            return list(self.news())
        except local_api.NoSidecarError:
            return []

    def _page(self) -> list[dict[str, Any]]:
        query = {"since": f"{self._since_s:.3f}", "after": self._after, "most": PAGE}
        reply = local_api.ask(self._settings, "GET", f"/events?{urlencode(query)}")
        value = reply.value
        if reply.status != _OK or not isinstance(value.get("events"), list):
            raise RefusedError(str(value.get("error", "the sidecar did not answer with events")))
        self.is_stored = bool(value.get("stored"))
        self.sentence = str(value.get("sentence", ""))
        self.service, self.mode = str(value.get("service", "")), str(value.get("mode", ""))
        self.enforce_percent = int(value.get("enforce_percent", ALL))
        return list(value["events"])

    def _fresh(self, page: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for event in page:
            told = (round(event["at"], 3), *(event[name] for name in ("what", "instance", "kind", "reason")))
            if told in self._local:
                continue
            if not self.is_stored:
                self._local.append(told)
            yield event
