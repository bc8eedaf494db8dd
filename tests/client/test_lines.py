from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client import lines
from sidecar.core.types import ErrorLevel, ErrorReport, Heartbeat, Results
from sidecar.inputs.statsd import PacketReader

TEXTS = st.none() | st.text(max_size=100)


@pytest.mark.parametrize(
    ("level", "kind", "fingerprint", "app_start", "fatal", "line"),
    [
        ("server_error", None, None, None, False, b"errors:3|c|#level:server_error"),
        ("recovered", "redis", None, None, False, b"errors:3|c|#level:recovered,kind:redis"),
        ("server_error", "a,b|c #d\n\u00e9", None, None, False, b"errors:3|c|#level:server_error,kind:a_b_c__d__"),
        ("server_error", "k" * 80, None, None, False, b"errors:3|c|#level:server_error,kind:" + b"k" * 64),
        ("server_error", "", "", "", False, b"errors:3|c|#level:server_error"),
        (
            "server_error",
            "redis",
            "KeyError@cart:<module>:12",
            "7+1",
            True,
            b"errors:3|c|#level:server_error,kind:redis,fingerprint:KeyError@cart:<module>:12,fatal:true,app_start:7+1",
        ),
        ("server_error", None, "a b,c|d#e", None, False, b"errors:3|c|#level:server_error,fingerprint:a_b_c_d_e"),
    ],
    ids=["least", "kind", "odd kind", "long kind", "empty is absent", "all", "odd fingerprint"],
)
def test_line_contains_only_valid_tags(
    level: str, kind: str | None, fingerprint: str | None, app_start: str | None, line: bytes, *, fatal: bool
) -> None:
    assert lines.errors(level, kind, fingerprint, app_start, fatal=fatal).line(3) == line


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("cannot connect", "cannot connect"),
        ("a,b|c#d\r\ne\u2028f\x00g", "a;b/c*d  e f g"),
        ("x" * 300, "x" * 200),
        ("na\u00efve", "na\u00efve"),
    ],
    ids=["plain", "separators", "long", "not ASCII"],
)
def test_message_fits_a_tag_of_one_line(text: str, tag: str) -> None:
    assert lines.message_tag(text) == tag
    assert lines.errors("server_error", None, None, None).line(1, tag).endswith(b",message:" + tag.encode())


def test_message_that_is_not_unicode_is_still_sent() -> None:
    assert lines.errors("server_error", None, None, None).line(1, "\ud800").endswith(b",message:?")


@pytest.mark.parametrize("level", ["error", "", "SERVER_ERROR"])
def test_unknown_level_is_refused(level: str) -> None:
    with pytest.raises(ValueError, match="level: takes one of"):
        lines.errors(level, None, None, None)


def test_levels_are_those_of_the_sidecar() -> None:
    assert {level.value for level in ErrorLevel} == lines.LEVELS


def test_folded_series_keeps_the_decisive_tags_and_folds_no_further() -> None:
    folded = lines.errors("server_error", "redis", "f", "7", fatal=True).folded
    assert folded is not None
    assert folded.line(1) == b"errors:1|c|#level:server_error,kind:other,fatal:true,app_start:7"
    assert folded.folded is None


@given(
    level=st.sampled_from(sorted(lines.LEVELS)),
    kind=TEXTS,
    fingerprint=TEXTS,
    app_start=TEXTS,
    message=TEXTS,
    fatal=st.booleans(),
    count=st.integers(0, 1_000_000),
)
def test_listener_reads_every_line_of_errors(
    *,
    level: str,
    kind: str | None,
    fingerprint: str | None,
    app_start: str | None,
    message: str | None,
    count: int,
    fatal: bool,
) -> None:
    series = lines.errors(level, kind, fingerprint, app_start, fatal=fatal)
    line = series.line(count, None if message is None else lines.message_tag(message))
    reports, _, unreadable = PacketReader().read({b"\n".join([line, line]): 1})
    assert unreadable == 0
    assert b"\n" not in line
    assert len(line) < 1_400
    if count or app_start:
        (ping,) = reports
        assert isinstance(ping, ErrorReport)
        assert (ping.errors, ping.level, ping.fatal) == (2 * count, level, fatal)
        assert (ping.fingerprint is None, ping.app_start is None) == (not fingerprint, not app_start)


def test_listener_reads_results_and_heartbeats() -> None:
    of_results = [lines.OK.line(10), lines.FAILED.line(2), lines.IN_FLIGHT.line(1, "7")]
    packet = b"\n".join([*of_results, lines.HEARTBEAT.line(1)])
    reports, _, unreadable = PacketReader().read({packet: 1})
    assert unreadable == 0
    assert sorted(map(repr, reports)) == sorted(map(repr, [Results(10, 2, 7), Heartbeat()]))


@given(st.floats(0, allow_infinity=False))
def test_listener_reads_every_load(load: float) -> None:
    reports, _, unreadable = PacketReader().read({lines.LOAD.line(1, lines.decimal(load)): 1})
    assert unreadable == 0
    (result,) = reports
    assert isinstance(result, Results)
    assert result.load == pytest.approx(min(load, 1e15), rel=1e-9, abs=1e-14)
