"""What the client adds up, within which bounds, and the JSON objects that the sidecar reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client.local_http import Outcome
from sidecar.client.sums import FAILED, HEARTBEAT, KEPT_SERIES, LEVELS, MOST, OK, Sums, errors
from sidecar.core.app_reports import ErrorLevel, ErrorReport
from sidecar.inputs.report_bodies import read_errors

TEXTS = st.none() | st.text(max_size=100)


@pytest.mark.parametrize(
    ("kind", "fingerprint", "app_start", "fatal", "tags"),
    [
        (None, None, None, False, {}),
        ("", "", "", False, {}),
        (
            *("redis", "KeyError@cart:<module>:12", "7+1", True),
            {"kind": "redis", "fingerprint": "KeyError@cart:<module>:12", "app_start": "7+1", "fatal": True},
        ),
        ("a,b|c #d\n\u00e9", "a b,c\n", None, False, {"kind": "a_b_c__d__", "fingerprint": "a_b,c_"}),
        ("k" * 80, "f" * 80, "s" * 80, False, {"kind": "k" * 64, "fingerprint": "f" * 64, "app_start": "s" * 64}),
    ],
    ids=["least", "empty is absent", "all", "odd", "long"],
)
def test_fields_are_those_that_the_listener_takes(
    kind: str | None, fingerprint: str | None, app_start: str | None, tags: dict[str, object], *, fatal: bool
) -> None:
    series = errors("recovered", kind, fingerprint, app_start, fatal=fatal)
    assert (series.path, series.field, dict(series.tags)) == ("/errors", "count", {"level": "recovered", **tags})


@given(kind=TEXTS, fingerprint=TEXTS, app_start=TEXTS)
def test_listener_reads_every_error(kind: str | None, fingerprint: str | None, app_start: str | None) -> None:
    series = errors("server_error", kind, fingerprint, app_start)
    assert read_errors(json.dumps({series.field: 3, **dict(series.tags)}).encode())[0].errors == 3


def test_levels_are_those_of_the_sidecar() -> None:
    assert {level.value for level in ErrorLevel} == LEVELS
    with pytest.raises(ValueError, match="level: takes one of"):
        errors("error", None, None, None)


def _sent(sums: Sums) -> list[ErrorReport]:
    """The errors of all requests, which the sidecar takes."""
    requests = [*sums.requests()]
    for _, body, series in requests:
        assert len(body) < 60_000
        sums.settle(Outcome.SENT, series, 0.0)
    return [error for path, body, _ in requests if path == "/errors" for error in read_errors(body)]


def test_equal_reports_are_one_object_with_the_last_message() -> None:
    sums = Sums()
    for message in ("first", "last", None):
        sums.add(errors("server_error", "redis", None, None), 1, message, 0.0)
    assert [(error.errors, error.message) for error in _sent(sums)] == [(3, "last")]


def test_sum_larger_than_the_listener_takes_leaves_in_pieces() -> None:
    sums = Sums()
    sums.add(errors("server_error", "redis", None, None), 2 * MOST + 5, None, 0.0)
    assert [error.errors for _ in range(3) for error in _sent(sums)] == [MOST, MOST, 5]


def test_announcement_of_a_start_without_errors_is_sent() -> None:
    sums = Sums()
    sums.add(errors("server_error", None, None, "7"), 0, None, 0.0)
    assert [(error.errors, error.app_start) for error in _sent(sums)] == [(0, "7")]
    assert not sums


def test_series_without_bound_are_dropped_and_counted_and_results_have_room() -> None:
    sums = Sums()
    for number in range(1_000):
        sums.add(errors("server_error", f"{number:064}", None, None), 1, "\U0001f600" * 200, 0.0)
    for series in (OK, FAILED, HEARTBEAT):
        sums.add(series, 1, None, 0.0)
    assert (len(sums.kept), sums.dropped) == (KEPT_SERIES + 3, 1_000 - KEPT_SERIES)
    assert len(_sent(sums)) == KEPT_SERIES
    assert (sums.sent, sums.taken) == (KEPT_SERIES + 3, 1_003)
