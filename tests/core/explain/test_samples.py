"""The newest errors by fingerprint: grouped whatever their numbers, bounded whatever comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.explain.samples import MESSAGE_LIMIT, MOST, ErrorSample, Samples
from sidecar.core.types import Level, Ping

UUIDS = ("123e4567-e89b-12d3-a456-426614174000", "9f1c2b3a-0d4e-4f5a-8b6c-7d8e9f0a1b2c")


def _taken(*pings: Ping) -> tuple[ErrorSample, ...]:
    samples = Samples()
    for second, ping in enumerate(pings):
        samples.take(ping, float(second))
    return samples.newest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 9 ms", "took 12345 ms"),
        ("order 1 of cart 22 failed", "order 4711 of cart 5 failed"),
        (f"user {UUIDS[0]} unknown", f"user {UUIDS[1]} unknown"),
        ("at 0x7f00deadbeef", "at 0x7f12cafe0042"),
        ("commit 3f2a9c1 missing", "commit AB12CD9 missing"),
        (f"{'x' * 120} one", f"{'x' * 120} two"),
    ],
    ids=["number", "numbers", "uuid", "address", "hex", "beyond what is compared"],
)
def test_messages_that_differ_in_numbers_are_of_one_fingerprint(one: str, other: str) -> None:
    (sample,) = _taken(Ping(message=one), Ping(2, message=other))
    assert (sample.errors, sample.first, sample.last, sample.message) == (3, 0.0, 1.0, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Ping(message="table a is missing"), Ping(message="table b is missing")),
        (Ping(message="disk full"), Ping(message="disk slow")),
        (Ping(message="timeout", kind="redis"), Ping(message="timeout", kind="mysql")),
        (Ping(message="timeout", fingerprint="a"), Ping(message="timeout", fingerprint="b")),
        (Ping(message="a", kind="a"), Ping(message="a", fingerprint="a")),
    ],
    ids=["letter", "word", "kind", "fingerprint", "the app's own fingerprint"],
)
def test_what_differs_otherwise_is_told_apart(one: Ping, other: Ping) -> None:
    assert [sample.errors for sample in _taken(one, other)] == [1, 1]


def test_fingerprint_of_the_app_wins_over_the_message() -> None:
    (sample,) = _taken(Ping(message="a", fingerprint="f1"), Ping(message="b", fingerprint="f1"))
    assert sample == ErrorSample("f1", "unknown", Level.SERVER_ERROR, 2, 0.0, 1.0, "b")


def test_report_without_a_message_leaves_the_last_one() -> None:
    (sample,) = _taken(Ping(message="a", fingerprint="f1"), Ping(fingerprint="f1", kind="redis"))
    assert (sample.message, sample.kind, sample.errors) == ("a", "redis", 2)


@pytest.mark.parametrize("ping", [Ping(), Ping(9, kind="redis"), Ping(0, message="started", app_start="life-2")])
def test_report_of_nothing_to_show_leaves_no_trace(ping: Ping) -> None:
    assert _taken(ping) == ()


def test_made_fingerprint_is_short_and_the_same_in_every_process() -> None:
    (sample,) = _taken(Ping(message="took 9 ms", kind="redis"))
    assert sample.fingerprint == "95a0a097"


@pytest.mark.parametrize("fingerprint", ["bob@example.org", "password=hunter2", "a,b", '"', "<script>"])
def test_fingerprint_that_could_be_a_secret_is_shown_as_a_checksum(fingerprint: str) -> None:
    (sample,) = _taken(Ping(fingerprint=fingerprint))
    assert len(sample.fingerprint) == 8
    assert sample.fingerprint.isalnum()


def test_newest_comes_first_and_the_silent_make_room() -> None:
    pings = [Ping(message="m", fingerprint=f"f{number}") for number in range(MOST + 5)]
    newest = _taken(*pings[:6], *pings, pings[7])
    assert newest[0].fingerprint == "f7"
    assert len(newest) == MOST
    assert "f0" not in {sample.fingerprint for sample in newest}


@given(
    st.lists(
        st.builds(
            Ping,
            st.integers(0, 10**6),
            message=st.none() | st.text(max_size=400),
            fingerprint=st.none() | st.text("abc", min_size=1, max_size=64),
        ),
        max_size=60,
    )
)
def test_memory_is_bounded_whatever_comes(pings: list[Ping]) -> None:
    newest = _taken(*pings)
    assert len(newest) <= MOST
    assert all(len(sample.message) <= MESSAGE_LIMIT + 1 for sample in newest)
    assert [sample.last for sample in newest] == sorted((sample.last for sample in newest), reverse=True)


def test_end_of_a_life_forgets_all() -> None:
    samples = Samples()
    samples.take(Ping(message="m"), 1.0)
    samples.clear()
    assert samples.newest() == ()


def test_what_was_told_with_its_keys_goes_on_as_if_nothing_had_happened() -> None:
    one, other = Samples(), Samples()
    for second in range(2 * MOST):
        one.take(Ping(message="m", fingerprint=f"f{second}"), float(second))
        one.take(Ping(message=f"took {second} ms"), float(second))
    other.take(Ping(message="forgotten"), 1.0)
    other.restore(one.keyed())
    assert other.newest() == one.newest()
    for samples in (one, other):
        samples.take(Ping(message="took 999 ms"), 99.0)
        samples.take(Ping(message="another"), 100.0)
    assert other.newest() == one.newest()
    assert other.newest()[1].errors == 2 * MOST + 1


def test_more_than_is_kept_is_cut_to_the_newest() -> None:
    one, other = Samples(most=30), Samples(most=2)
    for number in range(30):
        one.take(Ping(fingerprint=f"f{number}"), float(number))
    other.restore(one.keyed())
    assert [sample.fingerprint for sample in other.newest()] == ["f29", "f28"]


def test_changes_tell_whether_anything_is_new() -> None:
    samples = Samples()
    seen = [samples.changes]
    for at in (1.0, 2.0):
        samples.take(Ping(message="m"), at)
        seen.append(samples.changes)
    samples.clear()
    seen.append(samples.changes)
    samples.restore([])
    seen.append(samples.changes)
    samples.take(Ping(), 3.0)
    assert len(set(seen)) == 5
    assert samples.changes == seen[-1]
