"""Access logs: errors by container and part of a window, and what is said about lines that cannot be read."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sidecar.backtest import access_log
from sidecar.backtest.access_log import FIELDS, instance_of
from sidecar.backtest.error_counts import ErrorCounts, PastError

BEGIN = 1_700_000_000
"""2023-11-14 22:13:20 UTC."""


def common(second: int, status: int = 200, zone: str = "+0000", time: str = "22:13") -> str:
    return f'10.0.0.1 - - [14/Nov/2023:{time}:{20 + second:02} {zone}] "GET /a\\"b HTTP/1.1" {status} 12 "-" "curl"\n'


def line(second: float, status: object = 200, instance: str = "a", **more: object) -> str:
    return json.dumps({"instance": instance, "time": BEGIN + second, "status": status, **more}) + "\n"


def read(tmp_path: Path, text: str | bytes, fields: Sequence[str] = FIELDS, since_s: float = 0.0) -> ErrorCounts:
    path = tmp_path / "web-1.log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    counts = ErrorCounts(str(path), 4.0, since_s)
    access_log.read([path], fields, counts)
    return counts


def counted(counts: ErrorCounts) -> dict[str, list[tuple[int, int]]]:
    """By container, the errors of each second since ``BEGIN``."""
    return {
        name: [(part - BEGIN, errors) for part, errors in one.errors.items()] for name, one in counts.containers.items()
    }


def test_common_log_has_its_container_in_its_name(tmp_path: Path) -> None:
    text = common(0) + common(1, 500) + common(1, 500) + common(1, 404) + "\n" + common(3, 503)
    counts = read(tmp_path, text)
    assert counted(counts) == {"web-1": [(1, 2), (3, 1)]}
    assert counts.span == (BEGIN, BEGIN + 3), "it was there without errors"
    assert counted(read(tmp_path, gzip.compress(text.encode()))) == counted(counts)


def test_json_lines_have_fields_of_any_name(tmp_path: Path) -> None:
    times = ["2023-11-14T22:13:21Z", "2023-11-14T23:13:21.250+01:00", (BEGIN + 1) * 1000, str(BEGIN + 1)]
    lines = [{"ts": time, "http": {"code": "502"}, "pod.name": "a", "size": 3} for time in times]
    text = "".join(f"{json.dumps(one)}\n" for one in lines)
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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ": has no lines"),
        ("\n\n", ": has no lines"),
        (
            "time=22:13 status=500\n" * 30,
            ": line 1: neither a JSON object nor the Common Log Format; 30 of 30 lines cannot be read",
        ),
        ('{"time": 3', "; 1 of 1 lines cannot be read"),
        ("{}\n[]\n", ": line 1: no field 'instance': set --fields; the line has ; 2 of 2 lines cannot be read"),
        (line(0, "OK"), ": line 1: could not convert string to float: 'OK'; "),
        (line(0, instance=""), ": line 1: no field 'instance': set --fields; the line has instance, time"),
        (
            line(0).replace('"time"', '"at"'),
            ": line 1: no field 'time': set --fields; the line has instance, at, status",
        ),
        (line(float("nan")), ": line 1: 'nan' is before the year 2000, or after tomorrow; "),
        (line(0).replace(str(BEGIN), '"tomorrow"'), "Invalid isoformat string: 'tomorrow'; "),
        (common(0).replace("Nov", "Nox"), ": line 1: time data '14/Nox/2023:22:13:20 +0000' does not match"),
        (b"\xff\xfe\x00" * 9, ": line 1: neither a JSON object nor the Common Log Format; "),
        (gzip.compress(common(0).encode() * 9, mtime=0)[:-12], ": the gzip data is damaged or cut off"),
        (b"a" * (1 << 20) + b"b", ": line 1: neither a JSON object nor the Common Log Format; 2 of 2 lines cannot be"),
    ],
)
def test_unusable_file_is_a_sentence_with_its_line(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(PastError) as raised:
        read(tmp_path, text)
    assert str(tmp_path / "web-1.log") in str(raised.value)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        *(line(0).replace(str(BEGIN), time) for time in ("0", "-5", "9" * 400, '"2999-01-01T00:00:00Z"')),
        *(line(0).replace(str(BEGIN), str(BEGIN * 10**power)) for power in (6, 9)),
        line(0, "9" * 400),
        line(0, path="a" * (1 << 20)),
        common(0).replace("2023", "2999"),
    ],
    ids=[
        *("1970", "before 1970", "400 digits", "next century", "microseconds", "nanoseconds", "status", "1 MiB"),
        "common log",
    ],
)
def test_one_line_that_cannot_be_is_left_out_with_its_place(tmp_path: Path, text: str) -> None:
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
    access_log.read([Path(f"/dev/fd/{reading}")], FIELDS, counts)
    os.close(reading)
    assert counted(counts) == {"a": [(0, 1)]}


def test_only_the_time_that_was_asked_for_counts(tmp_path: Path) -> None:
    text = line(0, 500) + line(1, 500) + line(2, 500)
    assert counted(read(tmp_path, text, since_s=BEGIN + 1)) == {"a": [(1, 1), (2, 1)]}
    with pytest.raises(PastError, match="no request since then"):
        read(tmp_path, text, since_s=BEGIN + 60)
