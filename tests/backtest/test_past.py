"""Access logs and answers of Prometheus: what is counted, and what is said of what cannot be read."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from sidecar.backtest import past
from sidecar.backtest.past import FIELDS, POINTS, CounterRange, PrometheusServer, instance_of, read_logs
from sidecar.backtest.windows import ErrorCounts, PastError
from sidecar.cli import application

BEGIN = 1_700_000_010
"""2023-11-14 22:13:30 UTC, a multiple of 15 s."""

Errors = dict[str, list[tuple[int, int]]]
"""By container, the number of errors in each part of a window since ``BEGIN``."""


def counted(counts: ErrorCounts) -> Errors:
    first = BEGIN // int(counts.at(1))
    return {
        name: [(part - first, number) for part, number in container.errors.items()]
        for name, container in counts.containers.items()
    }


# -- access logs ------------------------------------------------------------------------------------------------


def common(second: int, status: int = 200) -> str:
    return f'10.0.0.1 - - [14/Nov/2023:22:13:{30 + second:02} +0000] "GET /a\\"b HTTP/1.1" {status} 12 "-" "curl"\n'


def line(second: float, status: object = 200, instance: str = "a", **more: object) -> str:
    return json.dumps({"instance": instance, "time": BEGIN + second, "status": status, **more}) + "\n"


def read(tmp_path: Path, text: str | bytes, fields: Sequence[str] = FIELDS, since_s: float = 0.0) -> ErrorCounts:
    """A log, in parts of a second."""
    path = tmp_path / "web-1.log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    counts = ErrorCounts(str(path), 4.0, since_s)
    read_logs([path], fields, counts)
    return counts


def test_common_log_has_its_container_in_its_name(tmp_path: Path) -> None:
    text = common(0) + common(1, 500) + common(1, 500) + common(1, 404) + "\n" + common(3, 503)
    counts = read(tmp_path, text)
    assert counted(counts) == {"web-1": [(1, 2), (3, 1)]}
    assert counts.span == (BEGIN, BEGIN + 3), "it was there without errors"
    assert counted(read(tmp_path, gzip.compress(text.encode()))) == counted(counts)


def test_json_lines_have_fields_of_any_name(tmp_path: Path) -> None:
    times = ["2023-11-14T22:13:31Z", "2023-11-14T23:13:31.250+01:00", (BEGIN + 1) * 1000, str(BEGIN + 1)]
    lines = [{"ts": time, "http": {"code": "502"}, "pod.name": "a", "size": 3} for time in times]
    text = "".join(f"{json.dumps(each)}\n" for each in lines)
    assert counted(read(tmp_path, text, ("pod.name", "ts", "http.code"))) == {"a": [(1, 4)]}
    assert [*read(tmp_path, text, ("", "ts", "http.code")).containers] == ["web-1"]


@pytest.mark.parametrize(
    ("name", "instance"),
    [
        ("web-1.log", "web-1"),
        ("web-1.access.log.2.gz", "web-1"),
        ("web-1.log-20261122", "web-1"),
        ("access.log", "access"),
    ],
)
def test_name_of_a_rotated_log_has_the_instance(name: str, instance: str) -> None:
    assert instance_of(Path("/var/log") / name) == instance


NO_FORMAT = ": line 1: neither a JSON object nor the Common Log Format; "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\n\n", ": has no lines"),
        ("time=22:13 status=500\n" * 30, f"{NO_FORMAT}30 of 30 lines cannot be read"),
        ('{"time": 3', "; 1 of 1 lines cannot be read"),
        ("{}\n[]\n", ": line 1: no field 'instance': set --fields; the line has ; 2 of 2 lines cannot be read"),
        (line(0, "OK"), ": line 1: could not convert string to float: 'OK'; "),
        (line(0, instance=""), ": line 1: no field 'instance': set --fields; the line has instance, time"),
        (line(float("nan")), ": line 1: 'nan' is before the year 2000, or after tomorrow; "),
        (line(0).replace(str(BEGIN), '"tomorrow"'), "Invalid isoformat string: 'tomorrow'; "),
        (common(0).replace("Nov", "Nox"), ": line 1: time data '14/Nox/2023:22:13:30 +0000' does not match"),
        (b"\xff\xfe\x00" * 9, NO_FORMAT),
        (gzip.compress(common(0).encode() * 9, mtime=0)[:-12], ": the gzip data is damaged or cut off"),
        (b"a" * (1 << 20) + b"b", f"{NO_FORMAT}2 of 2 lines cannot be"),
    ],
)
def test_unusable_log_is_a_sentence_with_its_line(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(PastError) as raised:
        read(tmp_path, text)
    assert str(tmp_path / "web-1.log") in str(raised.value)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        *(line(0).replace(str(BEGIN), time) for time in ("0", "-5", "9" * 400, '"2999-01-01T00:00:00Z"')),
        line(0).replace(str(BEGIN), str(BEGIN * 10**6)),
        line(0, "9" * 400),
        line(0, path="a" * (1 << 20)),
        common(0).replace("2023", "2999"),
    ],
    ids=["1970", "before 1970", "400 digits", "next century", "microseconds", "status", "1 MiB", "common log"],
)
def test_line_that_cannot_be_is_left_out_with_its_place(tmp_path: Path, text: str) -> None:
    counts = read(tmp_path, line(0) * 30 + text + line(1, 500) * 30)
    assert counted(counts) == {"a": [(1, 30)]}
    ((note, number),) = counts.notes.items()
    assert number in (1, 2)
    assert note.startswith(f"lines that cannot be read, left out; the first: {tmp_path / 'web-1.log'}: line 31: ")


def test_tenth_of_the_lines_may_be_broken(tmp_path: Path) -> None:
    assert counted(read(tmp_path, line(0, 500) * 9 + "broken\n")) == {"a": [(0, 9)]}
    with pytest.raises(PastError, match="1 of 9 lines cannot be read"):
        read(tmp_path, line(0, 500) * 8 + "broken\n")


def test_byte_order_mark_status_as_a_fraction_and_instance_as_a_number_are_read(tmp_path: Path) -> None:
    text = "\ufeff" + line(0, 500.0) + line(1, "200.0").replace('"a"', "7")
    assert counted(read(tmp_path, text)) == {"a": [(0, 1)], "7": []}
    assert [*read(tmp_path, "\ufeff" + common(0)).containers] == ["web-1"]


@pytest.mark.parametrize("data", [line(0, 500).encode(), gzip.compress(line(0, 500).encode())], ids=["plain", "gzip"])
def test_pipe_is_read_as_a_file(data: bytes) -> None:
    """As ``<(zcat a.gz)`` of a shell, and /dev/stdin."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    counts = ErrorCounts("a pipe", 4.0)
    read_logs([Path(f"/dev/fd/{reading}")], FIELDS, counts)
    os.close(reading)
    assert counted(counts) == {"a": [(0, 1)]}


def test_only_the_time_that_was_asked_for_counts(tmp_path: Path) -> None:
    text = line(0, 500) + line(1, 500) + line(2, 500)
    assert counted(read(tmp_path, text, since_s=BEGIN + 1)) == {"a": [(1, 1), (2, 1)]}
    with pytest.raises(PastError, match="no request since then"):
        read(tmp_path, text, since_s=BEGIN + 60)
    rises = read_saved(tmp_path, answer(errors("a", 1, 2, 4, 8)), since_s=BEGIN + 30)
    assert counted(rises) == {"a": [(2, 2), (3, 4)]}


# -- saved answers of Prometheus --------------------------------------------------------------------------------


def answer(*series: tuple[dict[str, str], list[tuple[int, object]]]) -> bytes:
    """An answer of ``query_range``; times are steps of 15 s."""
    result = [
        {"metric": labels, "values": [[BEGIN + 15 * step, str(value)] for step, value in points]}
        for labels, points in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def errors(
    instance: str, *values: object, begin: int = 0, **labels: str
) -> tuple[dict[str, str], list[tuple[int, object]]]:
    """Error counters; None is a missing sample."""
    points = [(begin + step, value) for step, value in enumerate(values) if value is not None]
    return {"__name__": "errors_total", "instance": instance, **labels}, points


def read_saved(tmp_path: Path, *answers: bytes, since_s: float = 0.0) -> ErrorCounts:
    """Answers, in parts of 15 s."""
    paths = [tmp_path / f"{number}.json" for number in range(len(answers))]
    for path, text in zip(paths, answers, strict=True):
        path.write_bytes(text)
    counts = ErrorCounts("saved", 60.0, since_s)
    CounterRange(counts).read_files(paths)
    return counts


IN_GAP = {"rises across missing samples, left out because nobody knows when they were": 1}
NO_NUMBER = {"values that are no number (NaN or Inf), left out": 1}


@pytest.mark.parametrize(
    ("series", "expected", "notes"),
    [
        ([errors("a", 5, 5, 7, 7, 8)], {"a": [(2, 2), (4, 1)]}, {}),
        ([errors("a", 1, 2, 2), errors("a", 1, 1, 4, code="503")], {"a": [(1, 1), (2, 3)]}, {}),
        ([errors("a", 8, 9, 2, 2)], {"a": [(1, 1), (2, 2)]}, {}),
        ([errors("a", 1, 2, *[None] * 3, 9, 9)], {"a": [(1, 1), (5, 7)]}, {}),
        ([errors("a", 1, 2, *[None] * 4, 9, 9)], {"a": [(1, 1)]}, IN_GAP),
        ([errors("a", 0, 0, 0), errors("a", 3, code="503", begin=2)], {"a": [(2, 3)]}, {}),
        ([errors("a", 0, 0, 0), errors("b", 300, 301, begin=2)], {"a": [], "b": [(3, 1)]}, {}),
        ([errors("a", 1, 2, "NaN", 3)], {"a": [(1, 1), (3, 1)]}, NO_NUMBER),
    ],
    ids=[
        *("rises", "two series", "reset", "window without samples", "more than a window without samples"),
        *("series made with its first error", "first value of a new container", "no number"),
    ],
)
def test_rises_are_counted_and_the_rest_is_said(
    tmp_path: Path, series: Any, expected: object, notes: dict[str, int]
) -> None:
    counts = read_saved(tmp_path, answer(*series))
    assert counted(counts) == expected
    assert counts.notes == notes


def test_files_follow_each_other_and_may_be_compressed(tmp_path: Path) -> None:
    parts = answer(errors("a", 1, 2)), gzip.compress(answer(errors("a", 5, 5, begin=2)))
    assert counted(read_saved(tmp_path, *parts)) == {"a": [(1, 1), (2, 3)]}
    with pytest.raises(PastError, match=r"1\.json: a at .* goes back in time: give the files in the order of time"):
        read_saved(tmp_path, *reversed(parts))


def series(**labels: str) -> bytes:
    return answer((labels, [(0, 1), (1, 2)]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"<html>", "is not JSON"),
        (b'{"status":"error","error":"query timed out"}', "is no answer of Prometheus to query_range: query timed out"),
        (b"[1]", "is no answer of Prometheus"),
        (b'{"data":{"resultType":"vector","result":[]}}', "is no answer of Prometheus to query_range"),
        (answer(), "saved: no series since then"),
        (answer(({"__name__": "a", "instance": "b"}, [])), "saved: no series since then"),
        (b'{"data":{"resultType":"matrix","result":[3]}}', "expected series such as"),
        (series(instance="a"), "a series without a name, as of rate() or sum by ()"),
        (series(__name__="errors_total"), "errors_total: a series without the label 'instance': set --instance-label"),
        (answer(errors("a", 1, 1.5)), "errors_total of a: 1.5 is no count: give a counter, no rate or gauge"),
        (answer(errors("a", 1, -1)), "errors_total of a: -1 is no count"),
        (answer(errors("a", *[1, None, None, None, None] * 3)), "saved: most points are further apart than the window"),
        (gzip.compress(answer(errors("a", 1, 2)))[:-12], "the gzip data is damaged or cut off"),
    ],
)
def test_bad_answer_is_a_sentence_with_the_file(tmp_path: Path, text: bytes, sentence: str) -> None:
    with pytest.raises(PastError) as raised:
        read_saved(tmp_path, text)
    assert sentence in str(raised.value)
    assert "0.json: " in str(raised.value) or "saved: " in sentence


def test_answer_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MOST_SERIES", 1)
    with pytest.raises(PastError, match=r"0\.json: more than 1 series"):
        read_saved(tmp_path, answer(errors("a", 1), errors("b", 1)))
    monkeypatch.setattr(past, "LARGEST_ANSWER", 1 << 20)
    bomb = gzip.compress(b" " * ((1 << 20) + 1))
    with pytest.raises(PastError, match=r"0\.json: the answer has more than 1 MiB: take fewer series"):
        read_saved(tmp_path, bomb)


# -- a Prometheus over HTTP -------------------------------------------------------------------------------------

TOKEN = "a-token-of-20-bytes."


class Server:
    """Answers with ``answers``, each a status and a body or a function of the query; keeps queries and headers."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, object]] = []
        self.asked: list[tuple[str, dict[str, str], str | None]] = []
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
                server.asked.append((path, query, self.headers["Authorization"]))
                status, body = server.answers.pop(0)
                data = json.dumps(body(query) if callable(body) else body).encode()
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.http.shutdown()
    server.http.server_close()


def matrix(query: dict[str, str]) -> object:
    """One counter that rises by one at each step."""
    start, end, step = (float(query[name]) for name in ("start", "end", "step"))
    times = [start + number * step for number in range(int((end - start) / step) + 1)]
    values = [[time, str(int((time - BEGIN) / step))] for time in times]
    result = [{"metric": {"__name__": "errors_total", "instance": "a"}, "values": values}]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def asked(url: str, token_file: str = "") -> ErrorCounts:
    """The errors of two parts of the range, of which the second is one point shorter."""
    prometheus = PrometheusServer.of(url, token_file)
    counts = ErrorCounts(prometheus.place, 60.0, since_s=BEGIN)
    CounterRange(counts).read_api(prometheus, "errors_total", BEGIN + 15 * (2 * POINTS - 2))
    return counts


def test_long_time_is_asked_in_parts(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    server.answers = [(200, matrix)] * 2
    container = asked(f"{server.url}/prom/", str(tmp_path / "token")).containers["a"]
    assert container.errors.total() == 2 * POINTS - 2, "one at each step but the first"
    assert {path for path, _, _ in server.asked} == {"/prom/api/v1/query_range"}
    assert {token for _, _, token in server.asked} == {f"Bearer {TOKEN}"}
    assert {query["query"] for _, query, _ in server.asked} == {"errors_total"}
    assert not server.answers


def test_command_asks_for_the_last_day(server: Server) -> None:
    server.answers = [(200, matrix)] * 99
    assert application.run(["backtest", "--prometheus", server.url, "--errors", "errors_total"], {}) == 0
    assert time.time() - float(server.asked[0][1]["start"]) == pytest.approx(86_400, abs=60)


def test_command_reads_saved_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_bytes(answer(errors("a", *[1] * 99)))
    assert application.run(["backtest", "--prometheus", str(tmp_path / "a.json")], {}) == 0
    assert "a.json: 1 containers, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (400, {"error": "parse error"}, 'HTTP status 400: {"error": "parse error"}'),
        (302, {}, "HTTP status 302"),
        (200, "hello", "is no answer of Prometheus"),
        (200, {"status": "success", "data": {"resultType": "matrix", "result": []}}, "no series since then"),
    ],
)
def test_answer_that_is_no_range_is_a_sentence_with_the_server(
    server: Server, status: int, body: object, sentence: str
) -> None:
    server.answers = [(status, body)] * 4
    with pytest.raises(PastError, match=r"http://127\.0\.0\.1:") as raised:
        asked(server.url)
    assert sentence in str(raised.value)
    assert all(path != "/elsewhere" for path, _, _ in server.asked)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://host/", "takes http:// or https:// and a host"),
        ("http://ann:secret@host/", "must have no login"),
        ("http://host/?a=b", r"must have no login, \? or #"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1: connection refused"),
    ],
)
def test_bad_address_is_named_without_its_secrets(url: str, sentence: str) -> None:
    with pytest.raises(PastError, match=sentence) as raised:
        asked(url)
    assert "secret" not in str(raised.value)
