"""From selectors to series: what each line of a page is used for, and what is remembered."""

from __future__ import annotations

import pytest

from sidecar.config.selectors import parse_selectors
from sidecar.inputs.counter_increments import Reading, Role, SeriesUse
from sidecar.inputs.exposition import Scanner
from sidecar.inputs.series_selection import CROWDED_PAGES, SeriesSelection

ERRORS = 'kind=web: http_requests_total{code=~"5.."}, kind_from=db: db_errors_total'


def _wanted(**how: int) -> SeriesSelection:
    return SeriesSelection(
        parse_selectors(ERRORS), parse_selectors("http_requests_total"), parse_selectors("busy"), **how
    )


def _read(wanted: SeriesSelection, text: str) -> list[Reading]:
    wanted.begin()
    scanner = Scanner(wanted.names, wanted.use, openmetrics=False)
    scanner.feed(text.encode())
    page = scanner.finish(whole=True)
    return list(zip(page.uses, page.values, strict=True))


@pytest.mark.parametrize(
    ("line", "uses"),
    [
        ('http_requests_total{code="503"} 1', [(Role.COUNTER, "web", True)]),
        ('http_requests_total{code="200"} 1', [(Role.COUNTER, None, True)]),
        ("http_requests_total 1", [(Role.COUNTER, None, True)]),
        ('http_requests_created{code="503"} 1', []),
        ('http_requests{code="503"} 1', []),
        ('db_errors_total{db="redis"} 1', [(Role.COUNTER, "redis", False)]),
        ("db_errors_total 1", [(Role.COUNTER, "unknown", False)]),
        ("busy 4", [(Role.LEVEL, None, False)]),
        ("busy_total 4", []),
        ("process_start_time_seconds 17", [(Role.START, None, False)]),
        ("other 1", []),
    ],
)
def test_each_series_has_its_use(line: str, uses: list[tuple[Role, str | None, bool]]) -> None:
    assert [(use.role, use.kind, use.requests) for use, _ in _read(_wanted(), line)] == uses


def test_every_spelling_belongs_to_one_counter() -> None:
    text = 'http_requests_total{code="503",a="b"} 1\nhttp_requests_total{a="b", code = "503"} 1\n'
    keys = {use.key for use, _ in _read(_wanted(), text)}
    assert len(keys) == 1
    other = _read(_wanted(), 'http_requests_total{code="503",a="c"} 1\n')
    assert other[0][0].key not in keys


def test_first_selector_gives_the_kind() -> None:
    twice = SeriesSelection(parse_selectors("kind=a: x_total, kind=b: x_total"))
    assert [use.kind for use, _ in _read(twice, "x_total 1")] == ["a"]


def test_series_without_room_are_counted_and_the_others_stay() -> None:
    small = _wanted(most_series=2)
    text = "".join(f'http_requests_total{{code="50{number}"}} 1\n' for number in range(5))
    first = [use.key for use, _ in _read(small, text + "process_start_time_seconds 1\n") if use.role is Role.COUNTER]
    assert (len(first), small.overflow) == (2, 3)
    again = [use for use, _ in _read(small, text + "process_start_time_seconds 1\n")]
    assert [use.key for use in again if use.role is Role.COUNTER] == first
    assert SeriesUse(0, Role.START) in again


def test_series_that_have_left_the_page_make_room_in_the_end() -> None:
    small = _wanted(most_series=2)
    _read(small, 'http_requests_total{code="500"} 1\nhttp_requests_total{code="501"} 1\n')
    pages = [_read(small, 'http_requests_total{code="502"} 1\n') for _ in range(CROWDED_PAGES + 1)]
    assert not any(pages[:-1])
    assert pages[-1]
    assert not small.overflow


def test_unused_series_take_no_room_of_used_ones() -> None:
    small = SeriesSelection(parse_selectors('x_total{code!="200"}'), most_series=3)
    text = "".join(f'x_total{{code="200",n="{number}"}} 1\n' for number in range(50))
    assert len(_read(small, text + 'x_total{code="500"} 1\n')) == 1
    assert not small.overflow
    assert len(small._uses) == 4
