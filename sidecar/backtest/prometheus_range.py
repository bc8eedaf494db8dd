"""Counts how much error counters rose, from answers of Prometheus to ``query_range``: over its API, or saved.

A counter that falls was started again, and counts from 0, as in ``increase`` of Prometheus. So does a series that
begins while its container is there: the app made it with its first error. A rise across missing samples has no time, so
it does not count. An answer is read as a whole, so its size is bounded.
(https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries)
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlencode

from sidecar.backtest.error_counts import PARTS, ErrorCounts, PastError, clock, opened, unix_s
from sidecar.config.addresses import web_parts
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
        self._begin_s: dict[str, float] = {}
        self._near: Counter[bool] = Counter()

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
            for one in series:  # those that begin later were made with the first error
                instance = one["metric"].get(self._label, "")
                begin_s = float(one["values"][0][0]) if one["values"] else inf
                self._begin_s[instance] = min(begin_s, self._begin_s.get(instance, inf))
            for one in series:
                self._rises(one["metric"], one["values"])
        except (LookupError, TypeError, AttributeError):
            shape = '{"metric":{},"values":[[1700000000,"12"]]}'
            raise PastError(f"{place}: expected series such as {shape}") from None
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
        for time, text in points:
            at_s, value = unix_s(str(time)), float(text)
            if not isfinite(value):
                self._counts.notes[_NO_NUMBER] += 1
                continue
            if value % 1 or value < 0:
                raise ValueError(f"{name} of {instance}: {text} is no count: give a counter, no rate or gauge")
            begins = at_s, value if at_s <= self._begin_s[instance] else 0.0
            before_s, before = self._last.get(key, begins)
            if at_s < before_s:
                raise ValueError(f"{instance} at {clock(at_s)}: goes back in time: give the files in the order of time")
            self._count(instance, at_s, value - before if value >= before else value, at_s - before_s)
            self._last[key] = at_s, value

    def _count(self, instance: str, at_s: float, rise: float, within_s: float) -> None:
        is_known = within_s <= self._counts.window_s
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
