"""Pages of real libraries, recorded after seven requests, of which three failed: the selectors that they need.

Those of prometheus-net, OpenTelemetry for .NET and PHP are written by their documentation.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.cli.doctor.page_names import advice, proposals, read_names
from sidecar.config.selectors import parse_selectors
from sidecar.inputs.counter_increments import Role
from sidecar.inputs.exposition import Scanner
from sidecar.inputs.series_selection import SeriesSelection, Unmatched

PAGES = Path(__file__).parent / "pages"
SETTINGS = Path(__file__).parents[3] / "deploy" / "settings.md"


def _page(library: str) -> bytes:
    return (PAGES / f"{library}.txt").read_bytes()


@pytest.mark.parametrize("library", sorted(path.stem for path in PAGES.iterdir()))
def test_documented_selectors_of_a_library_are_proposed_and_count_its_failures(library: str) -> None:
    row = re.search(rf"^\| {re.escape(library)}[^|]*\|(.*)\|$", SETTINGS.read_text(), re.MULTILINE)
    assert row, library
    errors, requests, in_flight = (cell.strip().strip("`") for cell in row[1].split("|"))
    found = proposals(read_names(_page(library)))
    assert (found["scrape_errors"], found["scrape_requests"], found.get("scrape_in_flight", "")) == (
        errors,
        requests,
        in_flight,
    )
    selection = SeriesSelection(*map(parse_selectors, (errors, requests, in_flight)))
    scanner = Scanner(selection.names, selection.use, openmetrics=False)
    scanner.feed(_page(library))
    page = scanner.finish(whole=True)
    readings = [(use, value) for use, value in zip(page.uses, page.values, strict=True) if use.role is Role.COUNTER]
    assert sum(value for use, value in readings if use.kind is not None) == 3
    assert sum(value for use, value in readings if use.requests) == 7
    assert [*selection.unmatched] == []


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (b'jobs_errors_total{kind="redis"} 4\nup 1\n', {"scrape_errors": "jobs_errors_total"}),
        (b'http_client_requests_total{status="500"} 1\nhttp_requests_total{method="GET"} 3\n', {}),
        (b'http_requests_total{code="abc"} 1\n', {}),
        (b"\xff\xfe{{{\n\n# TYPE\n", {}),
        (
            b'jobs_total{status="200"} 1\nhttp_requests_total{status="200"} 1\n',
            {"scrape_requests": "http_requests_total"},
        ),
        (b"db_in_flight 1\nrequests_in_flight 2\n", {"scrape_in_flight": "requests_in_flight"}),
    ],
    ids=[
        "errors alone",
        "requests to others",
        "no status",
        "no page",
        "jobs beside",
        "in flight elsewhere",
    ],
)
def test_other_pages_get_what_they_tell(page: bytes, found: dict[str, str]) -> None:
    assert {name: text for name, text in proposals(read_names(page)).items() if name in found} == found
    assert found or proposals(read_names(page)) == {}


def test_long_line_without_a_label_takes_no_time() -> None:
    """With a backtracking pattern it takes half an hour, with all threads of the sidecar standing still."""
    page = b"a_total{" + b"x" * 300_000 + b"} 1\n" + b'b_total{code="500"} 1\n'
    assert read_names(page) == {"a_total": {}, "b_total": {"code": frozenset({"500"})}}


@pytest.mark.parametrize(
    ("library", "selector", "sentence"),
    [
        (
            "micrometer",
            'http_server_request_seconds_count{status=~"5.."}',
            "nothing on the page is called http_server_request_seconds_count; the nearest names are http_server_",
        ),
        (
            "express-prom-bundle",
            'http_request_duration_seconds_count{status=~"5.."}',
            "http_request_duration_seconds_count has no label status on the page; its labels are method, path, status_",
        ),
        ("prom-client", "zzz", "nothing on the page is called zzz"),
        ("prom-client", 'http_requests_total{status="599"}', ""),
        ("express-prom-bundle", "http_request_duration_seconds_count", ""),
    ],
    ids=["name", "label", "nothing near", "no such errors yet", "there"],
)
def test_advice_names_what_comes_closest(library: str, selector: str, sentence: str) -> None:
    unmatched = [Unmatched("scrape_errors", each) for each in parse_selectors(selector)]
    said = "".join(advice(unmatched, read_names(_page(library))))
    assert said.startswith(f"ARBITER_SCRAPE_ERRORS: {sentence}" if sentence else "")
    assert bool(said) is bool(sentence)
