"""Counts how much error counters rose, from answers of Prometheus to ``query_range``: over its API, or saved.

A counter that falls was started again, and counts from 0, as in ``increase`` of Prometheus. So does a series that
begins while its container is there: the app made it with its first error. A rise across missing samples has no time, so
it does not count. An answer is read as a whole, so its size is bounded.
(https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries)
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlencode

from sidecar.backtest.error_counts import PARTS, ErrorCounts, PastError, clock, is_plausible, opened
from sidecar.config.urls import web_parts
from sidecar.net.token_file import SHORTEST, Token
from sidecar.runlock import durations

LARGEST_ANSWER: Final = 32 << 20
"""Bytes of one answer; as objects they take about eight times as many."""

MOST_SERIES: Final = 100_000
POINTS: Final = 500
"""Points of a series in one query. 200 containers with five series each take 13 MB."""

TIMEOUT_S: Final = 120.0
"""Time for a server to go on with its answer: two minutes are the limit of a query of Prometheus."""

_SHOWN: Final = 300
_IN_GAP: Final = "rises across missing samples, left out because nobody knows when they were"
_NO_NUMBER: Final = "values that are no number (NaN or Inf), left out"


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
            raise PastError(f"the URL {error}") from None
        if parts.username is not None or parts.query or parts.fragment:
            raise PastError("the URL must have no login, ? or #: a token is read from --source-token-file")
        token = Token(token_file) if token_file else None
        if token and not token.is_there:
            raise PastError(f"{token_file}: holds no token of at least {SHORTEST} bytes")
        return cls(parts, token)

    @property
    def place(self) -> str:
        """The address for a person."""
        return f"{self.parts.scheme}://{self.parts.netloc}{self.parts.path.rstrip('/')}"

    def ask(self, query: dict[str, str]) -> bytes:
        """The answer to ``query_range``. Raises PastError with the server's words."""
        host, port = str(self.parts.hostname), self.parts.port
        if self.parts.scheme == "https":
            context = ssl.create_default_context()
            connection: http.client.HTTPConnection
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
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
    """Reads answers into ``counts``. ``label``: that of the container. Only ``since_s`` to ``until_s`` counts."""

    def __init__(
        self, counts: ErrorCounts, label: str = "instance", since_s: float = 0.0, until_s: float = inf
    ) -> None:
        self._counts = counts
        self._label = label
        self._since_s, self._until_s = since_s, until_s
        self._last: dict[frozenset[tuple[str, str]], tuple[float, float]] = {}
        self._begin_s: dict[str, float] = {}
        self._near: Counter[bool] = Counter()

    def read_files(self, paths: Sequence[Path]) -> None:
        """Count the errors of saved answers, in the order of time. Raises PastError with the file."""
        for path in paths:
            with opened(path) as file:
                self._take(file.read(LARGEST_ANSWER + 1), str(path))
        self._check()

    def read_api(self, server: PrometheusServer, query: str) -> None:
        """Count the errors of the counters that ``query`` selects; both times must be set. Raises PastError."""
        step_s = self._counts.window_s / PARTS
        begin_s = self._since_s
        while begin_s <= self._until_s:
            end_s = min(self._until_s, begin_s + (POINTS - 1) * step_s)
            asked = {"query": query, "start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
            self._take(server.ask(asked), server.place)
            begin_s += POINTS * step_s
        self._check()

    def _check(self) -> None:
        if not self._last:
            raise PastError(f"{self._counts.source}: no series within the time of --since and --until")
        if self._near[False] > self._near[True]:
            window = durations.write(self._counts.window_s)
            raise PastError(f"{self._counts.source}: most points are further apart than the window of {window}")

    def _take(self, answer: bytes, place: str) -> None:
        """Count the rises of the series of this answer."""
        try:
            series = _series(answer, place)
            for one in series:
                self._note_begin(one["metric"].get(self._label, ""), one["values"])
            for one in series:
                self._rises(one["metric"], one["values"], place)
        except (LookupError, TypeError, AttributeError, ValueError):
            shape = '{"metric":{},"values":[[1700000000,"12"]]}'
            raise PastError(f"{place}: expected series such as {shape}") from None

    def _note_begin(self, instance: str, points: Sequence[Any]) -> None:
        """Note when the first series of a container began: those that begin later were made with the first error."""
        begin_s = next((at_s for time, _ in points if (at_s := float(time)) >= self._since_s), inf)
        self._begin_s[instance] = min(begin_s, self._begin_s.get(instance, inf))

    def _rises(self, labels: dict[str, str], points: Sequence[Any], place: str) -> None:
        name, instance = labels.get("__name__", ""), labels.get(self._label, "")
        if not name:
            sentence = "a series without a name, as of rate() or sum by (): give the counters themselves"
            raise PastError(f"{place}: {sentence}")
        if not instance:
            raise PastError(f"{place}: {name}: a series without the label {self._label!r}: set --instance-label")
        key = frozenset(labels.items())
        last = self._last.get(key)
        if last is None and len(self._last) >= MOST_SERIES:
            raise PastError(f"{place}: more than {MOST_SERIES:,} series")
        for time, text in points:
            at_s, value = float(time), float(text)
            if not is_plausible(at_s):
                raise PastError(f"{place}: {name} of {instance}: {time} is before the year 2000, or after tomorrow")
            if not isfinite(value):
                self._counts.notes[_NO_NUMBER] += 1
            elif value % 1 or value < 0:
                raise PastError(f"{place}: {name} of {instance}: {text} is no count: give a counter, no rate or gauge")
            elif self._since_s <= at_s <= self._until_s:
                self._point(instance, at_s, value, last, place)
                last = self._last[key] = at_s, value

    def _point(self, instance: str, at_s: float, value: float, last: tuple[float, float] | None, place: str) -> None:
        before_s, before = last or (at_s, value if at_s <= self._begin_s[instance] else 0.0)
        if at_s < before_s:
            sentence = "goes back in time: give the files in the order of time"
            raise PastError(f"{place}: {instance} at {clock(at_s)}: {sentence}")
        rise = value - before if value >= before else value
        is_known = at_s - before_s <= self._counts.window_s
        self._near[is_known] += 1
        if rise and not is_known:
            self._counts.notes[_IN_GAP] += 1
        self._counts.add(instance, at_s, int(rise) if is_known else 0)


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
