"""Access logs: requests and errors by container and second, and what is said about lines that are unusual."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sidecar.backtest.access_log import AccessLogs, Fields, instance_of
from sidecar.backtest.past import Past, PastError

BEGIN = 1_700_000_000
"""2023-11-14 22:13:20 UTC."""

SILENCE = "2023-11-14 22:13:21Z to 2023-11-14 22:33:22Z"


def common(second: int, status: int = 200, zone: str = "+0000", time: str = "22:13") -> str:
    return f'10.0.0.1 - - [14/Nov/2023:{time}:{20 + second:02} {zone}] "GET /a\\"b HTTP/1.1" {status} 12 "-" "curl"\n'


def line(second: float, status: object = 200, instance: str = "a", **more: object) -> str:
    return json.dumps({"instance": instance, "time": BEGIN + second, "status": status, **more}) + "\n"


def read(tmp_path: Path, text: str | bytes, name: str = "web-1.log", **logs: Any) -> Past:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return AccessLogs(**logs).read([path])


def counted(past: Past) -> dict[str, tuple[int, dict[str, list[tuple[int, int]]]]]:
    """By instance: all requests, and by status the errors of each second since ``BEGIN``."""
    first = BEGIN + 1
    return {
        name: (
            one.requests.total,
            {status: [(step - first, count) for step, count in counts] for status, counts in one.errors.items()},
        )
        for name, one in past.containers.items()
    }


def test_common_log_has_its_instance_in_its_name_or_on_the_command_line(tmp_path: Path) -> None:
    text = common(0) + common(1, 500) + common(1, 500) + common(1, 404) + "\n" + common(3, 503)
    expected = (5, {"500": [(1, 2)], "503": [(3, 1)]})
    assert counted(read(tmp_path, text)) == {"web-1": expected}
    assert counted(read(tmp_path, gzip.compress(text.encode()), instance="b")) == {"b": expected}


def test_json_lines_have_fields_of_any_name(tmp_path: Path) -> None:
    times = ["2023-11-14T22:13:21Z", "2023-11-14T23:13:21.250+01:00", (BEGIN + 1) * 1000, str(BEGIN + 1)]
    lines = [{"ts": time, "http": {"code": "502"}, "pod.name": "a", "size": 3} for time in times]
    text = "".join(f"{json.dumps(one)}\n" for one in lines)
    past = read(tmp_path, text, fields=Fields("pod.name", "ts", "http.code"))
    assert counted(past) == {"a": (4, {"502": [(1, 4)]})}
    by_file = read(tmp_path, text, fields=Fields("", "ts", "http.code"), format="json")
    assert [*by_file.containers] == ["web-1"]


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
    ("text", "said"),
    [
        (
            common(0) * 60 + "broken\n" + common(0) * 38 + '{"a": 1}\n',
            ["lines that cannot be read, left out: 2, the first: {file}: line 61: not the Common Log Format"],
        ),
        (
            common(0) + common(1, zone="+0100", time="23:13") + common(2),
            ["zones that are mixed; each time counts in its own: 1, the first: {file}: line 2: +0000 and +0100"],
        ),
        (
            common(9) + common(0) + line(0),
            None,
        ),
        (
            line(90) + line(0) + line(31) + line(1),
            [
                "times more than 60 s before the line above; each counts at its own time: 1, the first: {file}: line 2",
            ],
        ),
        (
            '{"instance":"a","status":200,"time":"2023-11-14 22:13:20"}\n' * 2,
            ["times without a zone, read as UTC: 2, the first: {file}: line 1"],
        ),
        (
            line(0) + line(1201),
            [f"times without data of any instance; nothing is played for them: 1, the first: {SILENCE}"],
        ),
        (
            line(0)
            + line(0, instance="b")
            + "".join(line(at, instance="b") for at in range(300, 1500, 300))
            + line(1201),
            [f"times of more than 10m in which an instance was away: 1, the first: a, {SILENCE}"],
        ),
    ],
    ids=["1 % broken", "mixed zones", "another format in the middle", "clock set back", "no zone", "quiet", "away"],
)
def test_what_is_unusual_is_said_with_its_place(tmp_path: Path, text: str, said: list[str] | None) -> None:
    if said is None:
        with pytest.raises(PastError, match=r"line 3: not the Common Log Format; 1 of 3 lines cannot be read"):
            read(tmp_path, text)
        return
    past = read(tmp_path, text)
    assert past.notices.lines() == [one.format(file=tmp_path / "web-1.log") for one in said]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ": has no lines"),
        ("\n\n", ": has no lines"),
        (
            "time=22:13 status=500\n" * 30,
            ": line 1: not the Common Log Format; none of the first 20 lines can be read: the formats are common and",
        ),
        ('{"time": 3', ": line 1: not JSON; 1 of 1 lines cannot be read: the formats are common and json"),
        ("{}\n[]\n", ": line 1: status: no such field, set --status-field; the line has ; 2 of 2 lines cannot be read"),
        (line(0, "OK"), ": line 1: status: 'OK' is no status of HTTP; "),
        (line(0, 99), ": line 1: status: '99' is no status of HTTP; "),
        (line(0, instance=""), ": line 1: instance: has to be a text; "),
        (
            line(0).replace('"time"', '"at"'),
            ": line 1: time: no such field, set --time-field; the line has instance, at",
        ),
        (line(float("nan")), ": line 1: a time that is no number; "),
        (line(0).replace(str(float(BEGIN)), '"tomorrow"').replace(str(BEGIN), '"tomorrow"'), "'tomorrow' is no time"),
        (common(0).replace("Nov", "Nox"), ": line 1: '14/Nox/2023:22:13:20 +0000' is no time; "),
        (b"\xff\xfe\x00" * 9, ": line 1: not the Common Log Format; "),
        (gzip.compress(common(0).encode() * 9, mtime=0)[:-12], ": the gzip data is damaged or cut off"),
        (b"a" * (1 << 20) + b"b", ": line 1: has more than 1048576 bytes"),
    ],
)
def test_unusable_file_is_a_sentence_with_its_line(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(PastError) as raised:
        read(tmp_path, text)
    assert str(tmp_path / "web-1.log") in str(raised.value)
    assert sentence in str(raised.value)


def test_time_long_before_the_others_is_said_with_its_line_and_can_be_left_out(tmp_path: Path) -> None:
    text = line(0) + line(-700_000_000, 503) + line(1)
    with pytest.raises(PastError) as raised:
        read(tmp_path, text)
    log = tmp_path / "web-1.log"
    assert f"from 2001-09-09 01:46:41Z ({log}: line 2) to 2023-11-14 22:13:22Z ({log}: line 3), more" in str(
        raised.value
    )
    assert counted(read(tmp_path, text, since_s=BEGIN)) == {"a": (2, {})}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (line(0).replace(str(BEGIN), "0"), "a time before the year 2000: 1970-01-01 00:00:00Z"),
        (line(0, 500).replace(str(BEGIN), "-5"), "a time before the year 2000: 1969-12-31 23:59:55Z"),
        (line(0).replace(str(BEGIN), "9" * 400), "time: '9999999999999999999999999999999999999999' is no time"),
        (line(0).replace(str(BEGIN), '"2999-01-01T00:00:00Z"'), "a time after tomorrow: 32472144000 s"),
        (line(0, "9" * 5000), "status: '9999999999999999999999999999999999999999' is no status of HTTP"),
        (line(0, path="a" * (1 << 20)), "has more than 1048576 bytes"),
        (common(0).replace("2023", "2999"), "not JSON"),
    ],
    ids=["1970", "before 1970", "400 digits", "next century", "5000 digits", "more than 1 MiB", "other format"],
)
def test_one_line_that_cannot_be_is_left_out_with_its_place(tmp_path: Path, text: str, cause: str) -> None:
    past = read(tmp_path, line(0) * 30 + text + line(1, 500) * 30)
    assert counted(past) == {"a": (60, {"500": [(1, 30)]})}
    place = f"{tmp_path / 'web-1.log'}: line 31: {cause}"
    assert past.notices.lines() == [f"lines that cannot be read, left out: 1, the first: {place}"]


@pytest.mark.parametrize(
    ("factor", "unit"), [(10**6, "it looks like microseconds"), (10**9, "it looks like nanoseconds")]
)
def test_times_in_another_unit_are_refused_with_its_name(tmp_path: Path, factor: int, unit: str) -> None:
    text = "".join(line(0).replace(str(BEGIN), str((BEGIN + at) * factor)) for at in range(60))
    with pytest.raises(PastError, match=rf"line 1: a time after tomorrow: \d+ s; {unit}; none of the first 20 lines"):
        read(tmp_path, text)


def test_byte_order_mark_status_as_a_fraction_and_instance_as_a_number_are_read(tmp_path: Path) -> None:
    text = "\ufeff" + line(0, 500.0) + line(1, "200.0").replace('"a"', "7")
    assert counted(read(tmp_path, text)) == {"a": (1, {"500": [(0, 1)]}), "7": (1, {})}
    assert counted(read(tmp_path, "\ufeff" + common(0), format="common"))["web-1"][0] == 1


@pytest.mark.parametrize("data", [line(0, 500).encode(), gzip.compress(line(0, 500).encode())], ids=["plain", "gzip"])
def test_pipe_is_read_as_a_file(data: bytes) -> None:
    """As ``<(zcat a.gz)`` of a shell, /dev/stdin and ``-``."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    past = AccessLogs().read([Path(f"/dev/fd/{reading}")])
    os.close(reading)
    assert counted(past) == {"a": (1, {"500": [(0, 1)]})}


def test_nothing_within_the_time_is_said(tmp_path: Path) -> None:
    with pytest.raises(PastError, match="no request within the time that was asked for"):
        read(tmp_path, common(0), since_s=BEGIN + 60)
