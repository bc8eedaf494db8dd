"""The newest errors by fingerprint: grouped whatever their numbers, bounded whatever comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.app_reports import ErrorLevel, ErrorReport
from sidecar.core.explain.samples import MESSAGE_LIMIT, MOST, ErrorSample, Samples

UUIDS = ("123e4567-e89b-12d3-a456-426614174000", "9f1c2b3a-0d4e-4f5a-8b6c-7d8e9f0a1b2c")


def _taken(*pings: ErrorReport) -> tuple[ErrorSample, ...]:
    samples = Samples()
    for second, ping in enumerate(pings):
        samples.take(ping, float(second))
    return samples.newest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("took 9 ms", "took 12345 ms", id="number"),
        pytest.param("order 1 of cart 22 failed", "order 4711 of cart 5 failed", id="numbers"),
        pytest.param(f"user {UUIDS[0]} unknown", f"user {UUIDS[1]} unknown", id="uuid"),
        pytest.param("at 0x7f00deadbeef", "at 0x7f12cafe0042", id="address"),
        pytest.param("commit 3f2a9c1 missing", "commit AB12CD9 missing", id="hex"),
        pytest.param(f"{'x' * 120} one", f"{'x' * 120} two", id="beyond what is compared"),
    ],
)
def test_messages_that_differ_in_numbers_are_of_one_fingerprint(one: str, other: str) -> None:
    (sample,) = _taken(ErrorReport(message=one), ErrorReport(2, message=other))
    assert (sample.errors, sample.first, sample.last, sample.message) == (3, 0.0, 1.0, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ErrorReport(message="table a is missing"), ErrorReport(message="table b is missing")),
        (ErrorReport(message="disk full"), ErrorReport(message="disk slow")),
        (ErrorReport(message="timeout", kind="redis"), ErrorReport(message="timeout", kind="mysql")),
        (ErrorReport(message="timeout", fingerprint="a"), ErrorReport(message="timeout", fingerprint="b")),
        (ErrorReport(message="a", kind="a"), ErrorReport(message="a", fingerprint="a")),
    ],
    ids=["letter", "word", "kind", "fingerprint", "the app's own fingerprint"],
)
def test_what_differs_otherwise_is_told_apart(one: ErrorReport, other: ErrorReport) -> None:
    assert [sample.errors for sample in _taken(one, other)] == [1, 1]


def test_fingerprint_of_the_app_wins_over_the_message() -> None:
    (sample,) = _taken(ErrorReport(message="a", fingerprint="f1"), ErrorReport(message="b", fingerprint="f1"))
    assert sample == ErrorSample("f1", "unknown", ErrorLevel.SERVER_ERROR, 2, 0.0, 1.0, "b")


def test_report_without_a_message_leaves_the_last_one() -> None:
    (sample,) = _taken(ErrorReport(message="a", fingerprint="f1"), ErrorReport(fingerprint="f1", kind="redis"))
    assert (sample.message, sample.kind, sample.errors) == ("a", "redis", 2)


def test_made_fingerprint_is_short_and_the_same_in_every_process() -> None:
    (sample,) = _taken(ErrorReport(message="took 9 ms", kind="redis"))
    assert sample.fingerprint == "95a0a097"


@pytest.mark.parametrize("fingerprint", ["bob@example.org", "password=hunter2", "a,b", '"', "<script>", "\ud800"])
def test_fingerprint_that_could_be_a_secret_is_shown_as_a_checksum(fingerprint: str) -> None:
    (sample,) = _taken(ErrorReport(fingerprint=fingerprint))
    assert len(sample.fingerprint) == 8
    assert sample.fingerprint.isalnum()


def test_newest_comes_first_and_the_silent_make_room() -> None:
    pings = [ErrorReport(message="m", fingerprint=f"f{number}") for number in range(MOST + 5)]
    newest = _taken(*pings[:6], *pings, pings[7])
    assert newest[0].fingerprint == "f7"
    assert len(newest) == MOST
    assert "f0" not in {sample.fingerprint for sample in newest}


@given(
    st.lists(
        st.builds(
            ErrorReport,
            st.integers(0, 10**6),
            message=st.none() | st.text(max_size=400),
            fingerprint=st.none() | st.text("abc", min_size=1, max_size=64),
        ),
        max_size=60,
    )
)
def test_memory_is_bounded_whatever_comes(pings: list[ErrorReport]) -> None:
    newest = _taken(*pings)
    assert len(newest) <= MOST
    assert all(len(sample.message) <= MESSAGE_LIMIT + 1 for sample in newest)
    assert [sample.last for sample in newest] == sorted((sample.last for sample in newest), reverse=True)
