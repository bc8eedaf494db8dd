"""The sources of a fleet's past: access logs, and ranges of counters from Prometheus, over its API or saved.

Access logs are in the Common or Combined Log Format, or have one JSON object a line; a status of 500 or more is an
error. Lines that cannot be read are counted, with the place of the first.

A counter that falls was started again, and counts from 0, as in ``increase`` of Prometheus. So does a series that
begins while its container is there: the app made it with its first error. A rise across missing samples has no time, so
it does not count. An answer is read as a whole, so its size is bounded.
(https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries)
"""

from __future__ import annotations

import gzip
import http.client
import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from math import inf, isfinite
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import SplitResult, urlencode

from sidecar.backtest.windows import PARTS, ErrorCounts, PastError
from sidecar.config.addresses import web_parts
from sidecar.net.credential_files import SHORTEST, Token
from sidecar.runlock import durations

ERROR_STATUS: Final = 500
MOST_BROKEN: Final = 0.1
"""A file of which a greater part of the lines cannot be read has another format."""

FIELDS: Final = ("instance", "time", "status")
LONGEST_LINE: Final = 1 << 20
LARGEST_ANSWER: Final = 32 << 20
"""Bytes of one answer; as objects they take about eight times as many."""

MOST_SERIES: Final = 100_000
POINTS: Final = 500
"""Points of a series in one query. 200 containers with five series each take 13 MB."""

TIMEOUT_S: Final = 120.0
"""Time for a server to go on with its answer: two minutes are the limit of a query of Prometheus."""

_EARLIEST_S: Final = 946_684_800.0
"""The year 2000."""

_LATER_S: Final = 86_400.0
"""Clocks and zones may be wrong by a day."""

_MILLISECONDS: Final = 1e11
"""A number from here on is a time in milliseconds: in seconds it would be the year 5138."""

_GZIP: Final = b"\x1f\x8b"
_SHOWN: Final = 300
_IN_GAP: Final = "rises across missing samples, left out because nobody knows when they were"
_NO_NUMBER: Final = "values that are no number (NaN or Inf), left out"
_SHAPE: Final = '{"metric":{},"values":[[1700000000,"12"]]}'
_COMMON: Final = re.compile(
    rb'\S+ \S+ .*?\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "(?:[^"\\]|\\.)*+" (\d{3}) (?:\d+|-)(?:\s|$)'
)
_ROTATED: Final = re.compile(r"(?:\.(?:\d{1,3}|gz|log|json|jsonl|txt|access)|-\d{8})+$")


@lru_cache(maxsize=4096)  # many lines of a log have the same time
def unix_s(text: str) -> float:
    """Unix time from seconds, milliseconds, or text as in ISO 8601, without a zone in UTC. Raises ValueError."""
    try:
        at_s = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        at_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    at_s = at_s / 1000 if at_s > _MILLISECONDS else at_s
    if not _EARLIEST_S <= at_s <= time.time() + _LATER_S:
        raise ValueError(f"{text[:40]!r} is before the year 2000, or after tomorrow")
    return at_s


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file of the operator, plain or with gzip, also a pipe. Raises PastError also while it is being read."""
    try:
        with path.open("rb") as raw:
            is_gzip = raw.peek(len(_GZIP)).startswith(_GZIP)
            yield cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_gzip else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PastError(f"{path}: the gzip data is damaged or cut off: {str(error).lower()}") from None
    except OSError as error:
        raise PastError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None


# -- access logs ------------------------------------------------------------------------------------------------


def read_logs(paths: Sequence[Path], fields: Sequence[str], counts: ErrorCounts) -> None:
    """Count the requests of these files. Raises PastError with the file and the line.

    ``fields``: the names of the three ``FIELDS`` in a line of JSON, ``a.b`` for ``b`` inside of ``a``. Without one for
    the container, as in the Common Log Format, the file is that of one container, and has its name.
    """
    for path in paths:
        _read_log(path, fields, counts)
    if not counts.containers:
        raise PastError(f"{counts.source}: no request since then")


def instance_of(path: Path) -> str:
    """The container from the name of its log: ``web-1.access.log.2.gz`` is ``web-1``."""
    return _ROTATED.sub("", path.name) or path.name


def _read_log(path: Path, fields: Sequence[str], counts: ErrorCounts) -> None:
    own, lines, broken, first = instance_of(path), 0, 0, ""
    with opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if not line.strip():
                continue
            lines += 1
            try:
                instance, at_s, status = _request(line.removeprefix(b"\xef\xbb\xbf"), fields)  # a byte order mark
            except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
                broken += 1
                first = first or f"{path}: line {number}: {error}"
                continue
            counts.add(instance or own, at_s, int(status >= ERROR_STATUS))
    if not lines:
        raise PastError(f"{path}: has no lines")
    if broken > MOST_BROKEN * lines:
        raise PastError(f"{first}; {broken:,} of {lines:,} lines cannot be read")
    if broken:
        counts.notes[f"lines that cannot be read, left out; the first: {first}"] += broken


def _request(line: bytes, fields: Sequence[str]) -> tuple[str, float, int]:
    """Container, Unix time and status of a line; the container is empty if the line does not have it."""
    if line.lstrip().startswith(b"{"):
        values = json.loads(line)
        instance, at, status = (_field(values, name) for name in fields)
        return str(instance), unix_s(str(at)), int(float(status))
    if (match := _COMMON.match(line)) is None:
        raise ValueError("neither a JSON object nor the Common Log Format")
    return "", _common_time(match[1].decode()), int(match[2])


def _field(values: dict[str, Any], name: str) -> Any:
    if not name:
        return ""
    value: Any = values.get(name)
    for key in name.split(".") if value is None and "." in name else ():
        value = (values if value is None else value)[key]
    if value is None or value == "":
        raise ValueError(f"no field {name!r}: set --fields; the line has {', '.join(values)[:200]}")
    return value


@lru_cache(maxsize=4096)  # as with unix_s
def _common_time(text: str) -> float:
    return unix_s(str(datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()))


# -- Prometheus -------------------------------------------------------------------------------------------------


class PrometheusServer(NamedTuple):
    """A server that is asked for a range. No redirect is followed, because the token is for this server alone."""

    parts: SplitResult
    token: Token | None

    @classmethod
    def of(cls, url: str, token_file: str = "") -> PrometheusServer:
        """The server of this URL. Raises PastError if the URL or the file with the token cannot be used."""
        try:
            parts = web_parts(url, "takes http:// or https:// and a host")
        except ValueError as error:
            raise PastError(f"--prometheus: the URL {error}") from None
        if parts.username is not None or parts.query or parts.fragment:
            raise PastError("--prometheus: the URL must have no login, ? or #: the token is for --source-token-file")
        token = Token(token_file) if token_file else None
        if token and not token.is_there:
            raise PastError(f"--source-token-file: {token_file}: holds no token of at least {SHORTEST} bytes")
        return cls(parts, token)

    @property
    def place(self) -> str:
        """The address for a person."""
        return f"{self.parts.scheme}://{self.parts.netloc}{self.parts.path.rstrip('/')}"

    def ask(self, query: dict[str, str]) -> bytes:
        """The answer to ``query_range``. Raises PastError with the server's words."""
        secured = self.parts.scheme == "https"
        kind = http.client.HTTPSConnection if secured else http.client.HTTPConnection
        connection = kind(str(self.parts.hostname), self.parts.port, timeout=TIMEOUT_S)
        path = f"{self.parts.path.rstrip('/')}/api/v1/query_range?{urlencode(query)}"
        try:
            connection.request("GET", path, headers=self.token.headers if self.token else {})
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                said = response.read(_SHOWN).decode(errors="replace").strip()
                raise PastError(f"{self.place}: HTTP status {response.status}: {said}")
            return response.read(LARGEST_ANSWER + 1)
        except (OSError, http.client.HTTPException) as error:
            cause = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
            raise PastError(f"{self.place}: {cause.lower()}") from None
        finally:
            connection.close()


class CounterRange:
    """Reads answers into ``counts``. ``label``: that of the container."""

    def __init__(self, counts: ErrorCounts, label: str = "instance") -> None:
        self._counts = counts
        self._label = label
        self._last: dict[frozenset[tuple[str, str]], tuple[float, float]] = {}
        """Time and value of the last sample of each series."""
        self._begin_s: dict[str, float] = {}
        """The time of the first sample of each container."""
        self._near: Counter[bool] = Counter()
        """How many samples were near to the one before, and how many were not."""

    def read_files(self, paths: Sequence[Path]) -> None:
        """Count the errors of saved answers, in the order of time. Raises PastError with the file."""
        for path in paths:
            with opened(path) as file:
                self._take(file.read(LARGEST_ANSWER + 1), str(path))
        self._check()

    def read_api(self, server: PrometheusServer, query: str, until_s: float) -> None:
        """Count the errors of the counters that ``query`` selects, from ``counts.since_s`` on. Raises PastError."""
        step_s, begin_s = self._counts.window_s / PARTS, self._counts.since_s
        while begin_s <= until_s:
            end_s = min(until_s, begin_s + (POINTS - 1) * step_s)
            asked = {"query": query, "start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
            self._take(server.ask(asked), server.place)
            begin_s += POINTS * step_s
        self._check()

    def _check(self) -> None:
        if not self._counts.containers:
            raise PastError(f"{self._counts.source}: no series since then")
        if self._near[False] > self._near[True]:
            window = durations.write(self._counts.window_s)
            raise PastError(f"{self._counts.source}: most points are further apart than the window of {window}")

    def _take(self, answer: bytes, place: str) -> None:
        """Count the rises of the series of this answer."""
        try:
            series = _series(answer, place)
            for each in series:  # those that begin later were made with the first error
                instance = each["metric"].get(self._label, "")
                begin_s = float(each["values"][0][0]) if each["values"] else inf
                self._begin_s[instance] = min(begin_s, self._begin_s.get(instance, inf))
            for each in series:
                self._rises(each["metric"], each["values"])
        except (LookupError, TypeError, AttributeError):
            raise PastError(f"{place}: expected series such as {_SHAPE}") from None
        except ValueError as error:
            raise PastError(f"{place}: {error}") from None

    def _rises(self, labels: dict[str, str], points: Sequence[Any]) -> None:
        name, instance, key = labels.get("__name__", ""), labels.get(self._label, ""), frozenset(labels.items())
        if not name:
            raise ValueError("a series without a name, as of rate() or sum by (): give the counters themselves")
        if not instance:
            raise ValueError(f"{name}: a series without the label {self._label!r}: set --instance-label")
        if key not in self._last and len(self._last) >= MOST_SERIES:
            raise ValueError(f"more than {MOST_SERIES:,} series")
        for at, text in points:
            at_s, value = unix_s(str(at)), float(text)
            if not isfinite(value):
                self._counts.notes[_NO_NUMBER] += 1
                continue
            if value % 1 or value < 0:
                raise ValueError(f"{name} of {instance}: {text} is no count: give a counter, no rate or gauge")
            begins = at_s, value if at_s <= self._begin_s[instance] else 0.0
            before_s, before = self._last.get(key, begins)
            if at_s < before_s:
                raise ValueError(f"{instance} at {at_s:.0f}: goes back in time: give the files in the order of time")
            self._count(instance, at_s, value - before if value >= before else value, at_s - before_s)
            self._last[key] = at_s, value

    def _count(self, instance: str, at_s: float, rise: float, within_s: float) -> None:
        is_near = within_s <= self._counts.window_s
        self._near[is_near] += 1
        if rise and not is_near:
            self._counts.notes[_IN_GAP] += 1
        self._counts.add(instance, at_s, int(rise) if is_near else 0)


def _series(answer: bytes, place: str) -> Sequence[Any]:
    """The series of an answer. Raises PastError."""
    if len(answer) > LARGEST_ANSWER:
        sentence = f"the answer has more than {LARGEST_ANSWER >> 20} MiB"
        raise PastError(f"{place}: {sentence}: take fewer series, or save it in several files")
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise PastError(f"{place}: is not JSON: {str(error).lower()}") from None
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        said = value.get("error", "") if isinstance(value, dict) else ""
        raise PastError(f"{place}: is no answer of Prometheus to query_range{f': {said}' if said else ''}")
    series: Sequence[Any] = data["result"]
    return series
