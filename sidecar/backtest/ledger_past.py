"""Reads the past of a fleet from its own ledger: each time that a container was suspect, as errors at the rate it had.

The ledger has no counts of errors, but the sentence of each suspect has those of its window. So its errors go on at
that rate until the ledger says that it recovered, was culled or was restarted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from typing import Any, Final

from sidecar.backtest.http_source import HttpSource
from sidecar.backtest.past import Past, PastError, clock
from sidecar.backtest.plausible_times import problem_with
from sidecar.backtest.saved_file import LONGEST_LINE, SavedFile
from sidecar.core.types import ENTRY_WORDS, Entry

PAGE: Final = 500
MOST_PAGES: Final = 1000
LARGEST_PAGE: Final = 16 << 20
LONGEST_S: Final = 400 * 86_400.0
"""The sidecar answers for this time at most."""

_TIMES: Final = 1e20
"""Larger numbers are no time in any unit."""

_COUNT: Final = re.compile(r"(\d{1,9}) server errors?(?: of kind \S+)? in (\d{1,6}) s(?: \((\d{1,9}) of them (\S+)\))?")
_ENDS: Final = frozenset({"recovered", "would_recover", "culled", "restarted", "retired"})
_BEGINS_AGAIN: Final = frozenset({"restarted", "replaced", "revived"})

OTHER_RULE: Final = "suspects without a count of errors (fatal errors, heartbeats, scrapes), left out"
_NO_END: Final = "suspects whose end is not in the ledger; their errors go on to the end"
_UNKNOWN_WORD: Final = "entries that this version does not know, left out"

UNKNOWNS: Final = (
    "The ledger tells only of suspects. Errors below the limit then are not in it: lower limits cannot be tried.",
    "The ledger tells nothing of containers that never had trouble: --containers adds them.",
    "The rate of errors of a suspect is that of its first window.",
)


@dataclass
class _Trouble:
    """A suspect: since when, and the errors of a window by kind."""

    since_s: float
    window_s: int
    errors: dict[str, int]


class LedgerPast:
    """Builds the past from entries, which come in the order of the ledger."""

    def __init__(self, source: str) -> None:
        self._past = Past(source, 1.0, is_sampled=False, unknowns=list(UNKNOWNS))
        self._troubles: dict[str, _Trouble] = {}
        self._ended: list[tuple[str, _Trouble, float]] = []
        self._first_s, self._last_s = inf, 0.0

    def take(self, entry: Entry, place: str) -> None:
        """Take one entry; ``place`` is where it stands."""
        if entry.what not in ENTRY_WORDS:
            self._past.notices.add(_UNKNOWN_WORD, place)
            return
        self._first_s, self._last_s = min(self._first_s, entry.at), max(self._last_s, entry.at)
        if not entry.instance or entry.what in ("hold", "duplicate"):
            return
        container = self._past.container(entry.instance)
        if entry.what in _ENDS and (trouble := self._troubles.pop(entry.instance, None)):
            is_recovered = entry.what in ("recovered", "would_recover")
            end_s = entry.at - trouble.window_s if is_recovered else entry.at
            self._ended.append((entry.instance, trouble, max(trouble.since_s, end_s)))
        if entry.what in _BEGINS_AGAIN:
            container.restarts.add(ceil(entry.at))
        if entry.what == "suspect":
            self._begin(entry, place)

    def finish(self, containers: int = 0) -> Past:
        """The past of this many containers, or of those that the ledger names. Raises PastError if it has none."""
        past = self._past
        if self._last_s <= 0:
            raise PastError(f"{past.source}: has no entries")
        for instance, trouble in self._troubles.items():
            past.notices.add(_NO_END, f"{instance} at {clock(trouble.since_s)}")
            self._ended.append((instance, trouble, self._last_s))
        first_s = min([self._first_s, *(trouble.since_s - trouble.window_s for _, trouble, _ in self._ended)])
        for number in range(containers - len(past.containers)):
            past.container(f"without entries {number + 1}")
        if not past.containers:
            raise PastError(f"{past.source}: no entry is about a container")
        for container in past.containers.values():
            container.see(ceil(first_s), ceil(self._last_s))
        for instance, trouble, end_s in self._ended:
            self._spread(instance, trouble, end_s)
        past.finish()
        return past

    def _begin(self, entry: Entry, place: str) -> None:
        match = _COUNT.search(entry.detail)
        if match is None:
            self._past.notices.add(OTHER_RULE, place)
            return
        count, window_s = int(match[1]), max(1, int(match[2]))
        of_kind = min(count, int(match[3] or count))
        errors = {entry.kind or "unknown": of_kind}
        if count > of_kind:
            errors["unknown"] = errors.get("unknown", 0) + count - of_kind
        self._troubles.setdefault(entry.instance, _Trouble(entry.at, window_s, errors))

    def _spread(self, instance: str, trouble: _Trouble, end_s: float) -> None:
        """Count the errors of the window before the suspect, and go on at their rate to ``end_s``."""
        container = self._past.container(instance)
        first, last = ceil(trouble.since_s) - trouble.window_s + 1, ceil(end_s)
        for kind, count in trouble.errors.items():
            counts = self._past.errors(container, kind)
            for second in range(last - first + 1):
                whole = (second + 1) * count // trouble.window_s - second * count // trouble.window_s
                if whole:
                    counts.add(first + second, whole)


def read_file(path: Path, containers: int = 0, since_s: float = 0.0) -> Past:
    """The past from what ``health-arbiter events --json`` printed, from the Unix time ``since_s`` on.

    Raises PastError with the file and the line.
    """
    built = LedgerPast(str(path))
    with SavedFile(path) as file:
        for number, line in file.lines():
            if line.strip():
                place = f"{path}: line {number}"
                if len(line) > LONGEST_LINE:
                    raise PastError(f"{place}: has more than {LONGEST_LINE} bytes")
                entry = _entry(_object(line, place), place)
                if entry.at >= since_s:
                    built.take(entry, place)
    return built.finish(containers)


def read_api(source: HttpSource, since_s: float, containers: int = 0) -> Past:
    """The past from a sidecar, of the last ``since_s`` seconds. Raises PastError."""
    built = LedgerPast(source.place)
    for number, event in enumerate(_events(source, since_s), 1):
        place = f"{source.place}: entry {number}"
        built.take(_entry(event, place), place)
    return built.finish(containers)


def _events(source: HttpSource, since_s: float) -> Iterator[Any]:
    after = ""
    for _ in range(MOST_PAGES):
        query = {"since": f"{min(LONGEST_S, since_s):.3f}", "after": after, "most": str(PAGE)}
        with source.open("/events", query) as read:
            answer = _object(read(LARGEST_PAGE), source.place)
        events = answer.get("events")
        if not isinstance(events, list):
            raise PastError(f"{source.place}: does not answer as a sidecar does")
        if not answer.get("stored"):
            raise PastError(f"{source.place}: the shared store is away, so the ledger cannot be read")
        yield from events
        if not events:
            return
        after = str(events[-1].get("id", ""))


def _object(text: bytes, place: str) -> dict[str, Any]:
    if text.lstrip().startswith(b"<"):
        raise PastError(f"{place}: is a web page, not JSON: perhaps that of a login")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise PastError(f"{place}: is not JSON, as health-arbiter events --json prints it") from None
    if not isinstance(found, dict):
        raise PastError(f"{place}: is not a JSON object, as health-arbiter events --json prints it")
    return found


def _entry(event: Any, place: str) -> Entry:
    """The entry of a JSON object. Raises PastError if a field is not of its type."""
    found = event if isinstance(event, dict) else {}
    at = found.get("at")
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 < at < _TIMES:
        raise PastError(f"{place}: at: has to be a Unix time in seconds")
    if problem := problem_with(at):
        raise PastError(f"{place}: at: {problem}")
    texts = {name: found.get(name) or "" for name in ("what", "instance", "kind", "reason", "detail")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise PastError(f"{place}: {name}: has to be a text")
    what, instance, kind, reason, detail = texts.values()
    return Entry(what, float(at), instance, kind, reason, detail=detail)
