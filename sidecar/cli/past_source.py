"""The past that a command line names: which reader reads it, and with what."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import click

from sidecar.backtest import ledger_past, prometheus_past
from sidecar.backtest.access_log import AccessLogs, Fields
from sidecar.backtest.http_source import HttpSource
from sidecar.backtest.past import Past, PastError
from sidecar.backtest.prometheus_past import PastCounters
from sidecar.config.selectors import BadSelectorError, Selector, parse_selectors
from sidecar.runlock import durations

SINCE_S: Final = 86_400.0
"""How far back a server is asked without ``--since``."""

STEP_S: Final = 15.0
LEAST_STEP_S: Final = 0.1
_UNIX_S: Final = 1e8
"""A number from here on is a Unix time: as a duration it would be three years."""

OnPart = Callable[[float], None]
"""Gets the part that is read, from 0 to 1."""


class Source(NamedTuple):
    """Where the past comes from and how it is read, as it was typed. Empty and None: not given."""

    prometheus: tuple[str, ...]
    access_log: tuple[Path, ...]
    ledger: str | None
    files: tuple[Path, ...]
    errors: str
    requests: str
    since: str | None
    until: str | None
    step: float | None
    instance_label: str
    format: str | None
    log_instance: str
    instance_field: str
    time_field: str
    status_field: str
    containers: int
    source_token_file: str


def read(source: Source, on_part: OnPart = lambda _part: None) -> Past:
    """The past. Raises UsageError with the option, and PastError with the place."""
    kinds = {"--prometheus": source.prometheus, "--access-log": source.access_log, "--ledger": source.ledger}
    given = [name for name, value in kinds.items() if value]
    if len(given) != 1:
        raise click.UsageError(f"takes one of --prometheus, --access-log and --ledger{', not both' * (len(given) > 1)}")
    now = time.time()
    since_s, until_s = _time("--since", source.since, now, 0.0), _time("--until", source.until, now, inf)
    if since_s >= until_s:
        raise click.UsageError("--until: must be after --since")
    if source.step is not None and source.step < LEAST_STEP_S:
        raise click.UsageError(f"--step: must be at least {durations.write(LEAST_STEP_S)}")
    if source.prometheus:
        return _prometheus(source, since_s, until_s, now, on_part)
    if source.access_log:
        return _access_logs(source, since_s, until_s, on_part)
    return _ledger(source, since_s, now)


def _prometheus(source: Source, since_s: float, until_s: float, now: float, on_part: OnPart) -> Past:
    if not source.errors:
        raise click.UsageError("--errors: is missing, such as --errors 'http_requests_total{status=~\"5..\"}'")
    step_s = source.step or 0.0
    errors, requests = _selectors("--errors", source.errors), _selectors("--requests", source.requests)
    counters = PastCounters(errors, requests, source.instance_label, since_s, until_s, step_s)
    if not _is_url(source.prometheus[0]):
        files = (*map(Path, source.prometheus), *source.files)
        return prometheus_past.read_files(files, counters, _of_bytes(files, on_part))
    if len(source.prometheus) > 1 or source.files:
        raise click.UsageError("--prometheus: takes one URL, or files")
    asked = PastCounters(
        errors, requests, source.instance_label, since_s or now - SINCE_S, min(until_s, now), step_s or STEP_S
    )
    return prometheus_past.read_api(_server("--prometheus", source.prometheus[0], source), asked, on_part)


def _access_logs(source: Source, since_s: float, until_s: float, on_part: OnPart) -> Past:
    files = (*source.access_log, *source.files)
    logs = AccessLogs(
        source.step or 1.0,
        source.format or "",
        source.log_instance,
        Fields("" if source.log_instance else source.instance_field, source.time_field, source.status_field),
        since_s,
        until_s,
        _of_bytes(files, on_part),
    )
    return logs.read(files)


def _ledger(source: Source, since_s: float, now: float) -> Past:
    if source.until or source.files:
        raise click.UsageError("--ledger: takes one file or URL, and no --until")
    ledger = str(source.ledger)
    if not _is_url(ledger):
        return ledger_past.read_file(Path(ledger), source.containers, since_s)
    return ledger_past.read_api(
        _server("--ledger", ledger, source), now - (since_s or now - SINCE_S), source.containers
    )


def _server(option: str, url: str, source: Source) -> HttpSource:
    try:
        return HttpSource(url, source.source_token_file)
    except PastError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _selectors(option: str, text: str) -> tuple[Selector, ...]:
    try:
        return parse_selectors(text)
    except BadSelectorError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _time(option: str, text: str | None, now: float, default: float) -> float:
    """Unix time of a date, of Unix seconds, or of a duration before now."""
    if text is None:
        return default
    try:
        seconds = durations.parse(text)
        return seconds if seconds >= _UNIX_S else now - seconds
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        hint = "is no time: write 2026-11-22T10:00Z, Unix seconds, or a duration before now such as 6h"
        raise click.UsageError(f"{option}: {text!r} {hint}") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _of_bytes(files: tuple[Path, ...], on_part: OnPart) -> Callable[[int], None]:
    """Turns numbers of bytes into the part of these files."""
    total = sum(path.stat().st_size for path in files if path.is_file()) or 1
    done = 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        on_part(min(1.0, done / total))

    return read


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))
