"""The scanner beside prometheus-client's parsers, which read the whole page: they must find the same."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from sidecar.config.selectors import parse_selectors
from sidecar.inputs.exposition import BadPageError, Page, Scanner, Series, parse_series
from sidecar.inputs.series_selection import SeriesSelection

Found = set[tuple[str, frozenset[tuple[str, str]], str]]
"""Name, labels and value; the value as text, so that NaN is like NaN."""


def _scan(data: bytes, names: Iterable[str], *, openmetrics: bool = False, step: int = 0, **how: Any) -> Page[Series]:
    names = set(names)

    def resolve(text: bytes) -> Series | None:
        series = parse_series(text)
        return series if series.name in names else None

    scanner = Scanner(names, resolve, openmetrics=openmetrics, **how)
    for begin in range(0, len(data), step or len(data) or 1):
        scanner.feed(data[begin : begin + (step or len(data))])
    return scanner.finish(whole=True)


def _found(page: Page[Series]) -> Found:
    return {_reading(name, labels, value) for (name, labels), value in zip(page.uses, page.values, strict=True)}


def _expected(text: str, read: Callable[[str], Iterable[Any]]) -> Found:
    return {_reading(*sample[:3]) for metric in read(text) for sample in metric.samples}


def _reading(name: str, labels: dict[str, str], value: float) -> tuple[str, frozenset[tuple[str, str]], str]:
    return name, frozenset(labels.items()), repr(float(value))


# -- lines --------------------------------------------------------------------------------------------------

LINES = [
    pytest.param('up{a="b",c="d",} 1', Series("up", {"a": "b", "c": "d"}), 1, id="comma at the end"),
    pytest.param('up\t{a="b"}\t 1\t', Series("up", {"a": "b"}), 1, id="tabs"),
    pytest.param('up{a="b"} 1 1732096800123', Series("up", {"a": "b"}), 1, id="timestamp"),
    pytest.param(r'up{a="\\ \" \n \x"} 1', Series("up", {"a": '\\ " \n \\x'}), 1, id="escapes"),
    pytest.param('up{a="} 5"} 1', Series("up", {"a": "} 5"}), 1, id="brace in a value"),
    pytest.param('up{a="{b=\\"c\\"} 5 # {"} 1', Series("up", {"a": '{b="c"} 5 # {'}), 1, id="a line in a value"),
    pytest.param('up{a="x",b="up{} 3"} 1', Series("up", {"a": "x", "b": "up{} 3"}), 1, id="its name in a value"),
    pytest.param("up .5", Series("up", {}), 0.5, id="no digit before the point"),
]


@pytest.mark.parametrize(("line", "series", "value"), LINES)
def test_line_is_read_as_prometheus_client_reads_it(line: str, series: Series, value: float) -> None:
    page = _scan(line.encode() + b"\n", {"up"})
    assert (page.uses, [*page.values]) == ([series], [value])
    assert _expected(line + "\n", read_text) == {_reading(*series, value)}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        pytest.param('up_total{a="b"} 7 # {trace_id="x"} 0.5', 7, id="exemplar"),
        pytest.param('up_total{a="b"} 7 1732096800.25 # {} 3', 7, id="both timestamps"),
        pytest.param('up_total{a="} 3 # {"} 7 # {a="} 4"} 1', 7, id="exemplar and braces in values"),
    ],
)
def test_exemplar_is_ignored(line: str, value: float) -> None:
    page = f"# TYPE up counter\n{line}\n# EOF\n"
    scanned = _scan(page.encode(), {"up_total"}, openmetrics=True)
    assert [*scanned.values] == [value]
    assert _found(scanned) == _expected(page, read_openmetrics)


@pytest.mark.parametrize(
    "line",
    [
        *("#up 1", "  # HELP up up{} 1", "upper 1", "not_up 1", 'other{a="up"} 1', "UP 1", "up:up 1", "up", " up 3"),
        '{"up"} 3',
    ],
)
def test_other_lines_are_ignored(line: str) -> None:
    page = _scan(f"up 1\n{line}\nup 2\n".encode(), {"up"})
    assert (page.uses, [*page.values]) == ([Series("up", {})] * 2, [1, 2])


@pytest.mark.parametrize(
    "line",
    [
        *(b"up ", b"up 1 x", b"up 1 2 3", b"up 1_0", b"up 0xp", b"up{a=b} 1", b"up{a} 1"),
        *(b'up{a="b" 1', b'up{a="b}" 1', b'up{a="b" c="d"} 1', b'up{a="b",a="c"} 1', b'up{,a="b"} 1', b'up{"a"="b"} 1'),
        *(b'up{a="b"}', b'up{a="\xff"} 1'),
    ],
)
def test_invalid_selected_line_is_refused(line: bytes) -> None:
    with pytest.raises(BadPageError, match="cannot read"):
        _scan(b"up 1\n" + line + b"\nup 2\n", {"up"})


# -- the end of a page --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "openmetrics", "whole", "values", "cut_off"),
    [
        pytest.param(b"up 12\nup 34", False, True, [12, 34], False, id="length known: the last line is a line"),
        pytest.param(b"up 12\nup 34", False, False, [12], True, id="length unknown: it may be cut off"),
        pytest.param(b"up 12\n", False, False, [12], False, id="ends with a line's end"),
        pytest.param(b"", False, False, [], False, id="empty text"),
        pytest.param(b"up 12\n# EOF\n", True, False, [12], False, id="EOF"),
        pytest.param(b"up 12\n# EOF", True, False, [12], False, id="EOF without a line's end"),
        pytest.param(b"up 12\r\n# EOF\r\n", True, False, [12], False, id="EOF and carriage returns"),
        pytest.param(b"up 12\n", True, True, [12], True, id="no EOF"),
        pytest.param(b"up 12\nx# EOF\n", True, True, [12], True, id="not quite EOF"),
        pytest.param(b"up 12\n# EO", True, True, [12], True, id="half an EOF"),
        pytest.param(b"", True, True, [], True, id="empty OpenMetrics"),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_end_of_a_page(
    *, data: bytes, openmetrics: bool, whole: bool, values: list[float], cut_off: bool, step: int
) -> None:
    scanner = Scanner(["up"], parse_series, openmetrics=openmetrics)
    for begin in range(0, len(data), step):
        scanner.feed(data[begin : begin + step])
    page = scanner.finish(whole=whole)
    assert ([*page.values], page.cut_off) == (values, cut_off)


def test_line_without_end_is_refused() -> None:
    scanner = Scanner(["up"], parse_series, openmetrics=False, longest_line=1000)
    scanner.feed(b"x" * 1000)
    with pytest.raises(BadPageError, match="a line of more than 1000 bytes"):
        scanner.feed(b"x")


def test_memory_is_bounded_by_a_line() -> None:
    scanner = Scanner(["up"], parse_series, openmetrics=False)
    line = b'other_seconds_bucket{le="0.5",handler="/api/up"} 17\n' * 300
    scanner.feed(line)
    tracemalloc.start()
    try:
        for _ in range(200):
            scanner.feed(line)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


# -- lines of any length --------------------------------------------------------------------------------------

PIECES = [
    *("req_total", "req_total{", "req_total ", ' # {"req_total"} 1 ', "_total", "x", "1 "),
    *('code="', 'code="4"', 'code="5"', "a=", 'a="b",', '"', '\\"', "\\", "{", "}", "{}", ",", " ", "\t", "#"),
]
WANTED = SeriesSelection(parse_selectors('req_total{code=~"5..",path!="x"}'))


def _cpu_s(data: bytes) -> float:
    """The least CPU time in which the scanner reads this line, or refuses it."""
    times = []
    for _ in range(3):
        begun = time.thread_time()
        scanner = Scanner(WANTED.names, WANTED.use, openmetrics=False)
        with suppress(BadPageError):
            scanner.feed(data)
        times.append(time.thread_time() - begun)
    return min(times)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=3).map("".join),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=2).map("".join),
)
def test_time_of_a_line_grows_with_its_length_alone(begin: str, again: str, end: str) -> None:
    """Sixteen times as long, sixteen times the time; twice the square of the length would be 256 times."""
    short, long = (f"{begin}{again * (size // len(again))}{end}\n".encode() for size in (4_000, 64_000))
    assert _cpu_s(long) < 64 * _cpu_s(short) + 0.005


# -- agreement ----------------------------------------------------------------------------------------------

NAMES = ("up", "up_total", "group_up", "up:up", "u", "process_start_time_seconds")
BLANK = st.sampled_from(["", "", "", " ", "\t", "  "])
GAP = st.sampled_from([" ", " ", " ", "  ", "\t"])
TEXTS = st.text(st.sampled_from('ab5"\\\n{}#=, \u00e9'), max_size=8) | st.sampled_from(["up", "up{", "500", " # {"])
VALUES = (
    st.integers(-5, 10**12).map(str)
    | st.floats().map(repr)
    | st.sampled_from(["+Inf", "-Inf", "NaN", "1e3", "0", "1.50"])
)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@st.composite
def label_pairs(draw: st.DrawFn) -> list[str]:
    names = draw(st.lists(st.sampled_from(["a", "b", "code", "le", "up"]), unique=True, max_size=3))
    return [f'{name}{draw(BLANK)}={draw(BLANK)}"{_escaped(draw(TEXTS))}"' for name in names]


@st.composite
def text_lines(draw: st.DrawFn) -> str:
    comment = st.sampled_from(["# HELP up up is up", "# TYPE up gauge", "# up 1", "", "#", "# TYPE up_total counter"])
    if draw(st.integers(0, 4)) == 0:
        return draw(comment)
    pairs = draw(label_pairs())
    inside = f"{draw(BLANK)},{draw(BLANK)}".join(pairs)
    braces = f"{draw(BLANK)}{{{draw(BLANK)}{inside}{draw(BLANK)}}}"
    if not pairs and draw(st.booleans()):
        braces = ""
    stamp = draw(st.sampled_from(["", "", f"{draw(GAP)}1732096800123"]))
    end = draw(BLANK) + draw(st.sampled_from(["", "\r"]))
    return f"{draw(st.sampled_from(NAMES))}{braces}{draw(GAP)}{draw(VALUES)}{stamp}{end}"


@settings(max_examples=100, deadline=None)
@given(st.lists(text_lines(), max_size=12), st.booleans(), st.integers(1, 40))
def test_text_page_is_read_as_prometheus_client_reads_it(lines: list[str], ended: bool, step: int) -> None:  # noqa: FBT001 - drawn
    text = "\n".join(lines) + "\n" * ended
    try:
        expected = _expected(text, read_text)
    except ValueError:  # a page that it refuses; we may have looked at less of it
        with suppress(BadPageError):
            _scan(text.encode(), NAMES, step=step)
        return
    assert _found(_scan(text.encode(), NAMES, step=step)) == expected


@st.composite
def openmetrics_pages(draw: st.DrawFn) -> str:
    lines = []
    for name in draw(st.lists(st.sampled_from(["up", "group_up", "u"]), unique=True, max_size=4)):
        lines.append(f"# TYPE {name} counter")
        codes = draw(st.lists(TEXTS, unique=True, min_size=1, max_size=4))
        for code in codes:
            value = draw(st.integers(0, 10**9).map(str) | st.floats(0, 1e9).map(repr))
            full = f'{name}_total{{code="{_escaped(code)}"}}'
            exemplar = draw(st.sampled_from(["", ' # {trace_id="a} 1"} 0.5', " # {} 0.5 1732096800.5"]))
            stamp = draw(st.sampled_from(["", " 1732096800.5"])) if len(codes) == 1 else ""
            lines.append(f"{full} {value}{stamp}{exemplar}")
            lines.append(full.replace("_total", "_created") + " 1732096800.25" + stamp)
    return "\n".join([*lines, "# EOF"]) + draw(st.sampled_from(["", "\n"]))


@settings(max_examples=100, deadline=None)
@given(openmetrics_pages(), st.integers(1, 40))
def test_openmetrics_page_is_read_as_prometheus_client_reads_it(text: str, step: int) -> None:
    names = {f"{name}_{suffix}" for name in ("up", "group_up", "u") for suffix in ("total", "created")}
    page = _scan(text.encode(), names, openmetrics=True, step=step)
    assert not page.cut_off
    with suppress(ValueError):  # it forbids a few more things, such as two kinds of time in one metric
        assert _found(page) == _expected(text, read_openmetrics)
