"""Every line that may come: the good ones to the report, other people's metrics to nothing, garbage to a count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.app_reports import ErrorLevel, ErrorReport, Heartbeat, Report, Results
from sidecar.inputs.report_bodies import MOST_ERRORS
from sidecar.inputs.statsd import PacketReader

LONG_RATE = b"0.3333333333333333"

READABLE: dict[str, tuple[bytes, list[Report]]] = {
    "one error": (b"errors:1|c", [ErrorReport()]),
    "tags": (b"errors:3|c|@0.5|#level:server_error,kind:redis", [ErrorReport(6, kind="redis")]),
    "every tag": (
        b"errors:1|c|#level:recovered,kind:db.read,fingerprint:a1b2,app_start:17,fatal:true",
        [ErrorReport(1, ErrorLevel.RECOVERED, "db.read", None, "a1b2", fatal=True, app_start="17")],
    ),
    "not fatal": (b"errors:1|c|#fatal:false", [ErrorReport()]),
    "kind with a colon": (b"errors:1|c|#kind:http:503", [ErrorReport(kind="http:503")]),
    "tags of the app's own": (b"errors:1|c|#env:prod,canary,kind,version:1,level", [ErrorReport()]),
    "life announced without an error": (b"errors:0|c|#app_start:17", [ErrorReport(0, app_start="17")]),
    "no errors": (b"errors:0|c", []),
    "both are one result": (b"failed:2|c\nrequests:10|c", [Results(10, 2)]),
    "requests with tags": (b"requests:10|c|#kind:not checked here", [Results(ok=10)]),
    "heartbeat": (b"heartbeat:1|c", [Heartbeat()]),
    "requests in flight": (b"in_flight:7|g", [Results(in_flight=7)]),
    "none in flight": (b"in_flight:0|g", [Results(in_flight=0)]),
    "in flight as a float, with tags and a rate": (b"in_flight:7.0|g|@0.5|#env:prod", [Results(in_flight=7)]),
    "the largest gauge of several": (b"in_flight:0|g\nin_flight:3:5:2|g\nin_flight:0|g", [Results(in_flight=5)]),
    "a gauge is part of the one result": (b"in_flight:2|g\nrequests:10|c\nfailed:1|c", [Results(10, 1, 2)]),
    "load": (b"load:0.7|g", [Results(load=0.7)]),
    "load as clients write what is small": (b"load:1e-05|g|#env:prod", [Results(load=1e-05)]),
    "the largest load of several": (b"load:0.2|g\nload:0.9:0.1|g\nload:0.3|g", [Results(load=0.9)]),
    "load is part of the one result": (b"load:0.5|g\nin_flight:2|g\nfailed:1|c", [Results(0, 1, 2, 0.5)]),
    "several heartbeats are one": (b"heartbeat:3|c\nheartbeat:1|c", [Heartbeat()]),
    "sampled requests": (b"requests:1|c|@0.1", [Results(ok=10)]),
    "packed values": (b"errors:1:2:3|c", [ErrorReport(6)]),
    "whole float": (b"errors:1.0|c\nerrors:1e1|c", [ErrorReport(11)]),
    "the most": (b"errors:%d|c" % MOST_ERRORS, [ErrorReport(MOST_ERRORS)]),
    "all extensions": (
        b"errors:2|c|@0.5|#kind:db|c:ci-83|e:it-false|T1656581400|card:low",
        [ErrorReport(4, kind="db")],
    ),
    "windows newline": (b"errors:1|c\r\nheartbeat:1|c\r\n", [ErrorReport(), Heartbeat()]),
    "empty lines": (b"\n\n\r\nerrors:1|c\n\n", [ErrorReport()]),
    "equal lines are one report": (b"errors:1|c\nerrors:1|c\nerrors:2|c", [ErrorReport(4)]),
    "kinds are told apart": (
        b"errors:1|c|#kind:a\nerrors:1|c|#kind:b\nerrors:1|c|#kind:a",
        [ErrorReport(2, kind="a"), ErrorReport(1, kind="b")],
    ),
    "sampled: all": (b"errors:3|c|@1", [ErrorReport(3)]),
    "sampled: half, short": (b"errors:3|c|@.5", [ErrorReport(6)]),
    "sampled: a third, as clients write it": (b"errors:1|c|@" + LONG_RATE, [ErrorReport(3)]),
    "sampled: seven hundredths": (b"errors:7|c|@0.07", [ErrorReport(100)]),
    "sampled: down to the nearest": (b"errors:1|c|@0.7", [ErrorReport(1)]),
    "sampled: half way is up": (b"errors:1|c|@0.4", [ErrorReport(3)]),
    "sampled: the sum is scaled, not each": (b"errors:1:1:1|c|@0.7", [ErrorReport(4)]),
    "sampled: few": (b"errors:1|c|@0.000001", [ErrorReport(MOST_ERRORS)]),
}

FOREIGN = {
    "gauge": b"memory:320|g",
    "timer": b"render:320|ms|@0.1",
    "set": b"users:anna@example.org|s",
    "other counter": b"page.views:1|c",
    "gauge of our name": b"errors:5|g",
    "counter of the name of a gauge": b"in_flight:1|c",
    "event with odd text": b"_e{5,9}:title|a\\nb:1|c|x",
    "service check": b"_sc|redis.can_connect|2|#a:b|m:no route",
    "other prefix": b"other.errors:1|c",
    "name in capitals": b"ERRORS:1|c",
    "name that only begins alike": b"errors.total:1|c",
}

UNREADABLE = {
    "text": b"hello",
    "name only": b"errors",
    "no value": b"errors:|c",
    "no type": b"errors:1",
    "unknown type": b"errors:1|x",
    "type that only begins alike": b"errors:1|cc",
    "no name": b":1|c",
    "negative": b"errors:-1|c",
    "half an error": b"errors:1.5|c",
    "not a number": b"errors:nan|c",
    "underscore": b"errors:1_0|c",
    "other digits": "errors:\u0661|c".encode(),
    "blank in the number": b"errors: 1|c",
    "too many": b"errors:%d|c" % (MOST_ERRORS + 1),
    "far too many": b"errors:" + b"9" * 5000 + b"|c",
    "too many when packed": b"errors:%d:1|c" % MOST_ERRORS,
    "too many when scaled": b"errors:%d|c|@0.5" % MOST_ERRORS,
    "gauge that moves up": b"in_flight:+1|g",
    "half a request in flight": b"in_flight:0.5|g",
    "load that moves": b"load:+0.1|g",
    "load below none": b"load:-1|g",
    "load beyond floats": b"load:1e999|g",
    "one of several loads is none": b"load:0.5:x|g",
    "too many in flight": b"in_flight:%d|g" % (MOST_ERRORS + 1),
    "gauge of no value": b"in_flight:|g",
    "a packed value missing": b"errors:1::2|c",
    "a packed value bad": b"requests:1:x|c",
    "rate of nothing": b"errors:1|c|@0",
    "rate above all": b"errors:1|c|@1.1",
    "rate a point": b"errors:1|c|@.",
    "rate far too long": b"errors:1|c|@0." + b"3" * 100,
    "two rates": b"errors:1|c|@0.5|@0.5",
    "two sets of tags": b"errors:1|c|#kind:a|#kind:b",
    "rate without its sign": b"errors:1|c|0.5",
    "unknown level": b"errors:1|c|#level:warning",
    "kind too long": b"errors:1|c|#kind:" + b"k" * 65,
    "kind not text": b"errors:1|c|#kind:\xff",
    "fingerprint with a blank": b"errors:1|c|#fingerprint:a b",
    "fatal neither true nor false": b"errors:1|c|#fatal:1",
    "kind twice": b"errors:1|c|#kind:a,kind:b",
}


def _read(packet: bytes, prefix: str = "") -> tuple[list[Report], int]:
    """What a new reader makes of one packet: its reports, and the number of unreadable lines."""
    batch = PacketReader(prefix).read({packet: 1})
    return batch.reports, batch.unreadable


@pytest.mark.parametrize(("packet", "reports"), READABLE.values(), ids=READABLE)
def test_packet_becomes_reports(packet: bytes, reports: list[Report]) -> None:
    assert _read(packet) == (reports, 0)


@pytest.mark.parametrize("line", FOREIGN.values(), ids=FOREIGN)
def test_other_metrics_are_neither_counted_nor_unreadable(line: bytes) -> None:
    assert _read(line) == ([], 0)


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_line_is_counted_and_harms_no_other(line: bytes) -> None:
    assert _read(b"errors:1|c\n" + line + b"\nerrors:1|c") == ([ErrorReport(2)], 1)


@pytest.mark.parametrize(
    ("prefix", "line", "reports"),
    [
        ("myapp", b"myapp.errors:1|c", [ErrorReport()]),
        ("myapp", b"errors:1|c", [ErrorReport()]),
        ("myapp", b"myapp.requests:2|c", [Results(ok=2)]),
        ("myapp", b"myapp.in_flight:2|g", [Results(in_flight=2)]),
        ("myapp", b"myapperrors:1|c", []),
        ("myapp", b"other.errors:1|c", []),
        ("myapp.", b"myapp.errors:1|c", [ErrorReport()]),
        ("myapp_", b"myapp_errors:1|c", [ErrorReport()]),
        ("team.myapp", b"team.myapp.heartbeat:1|c", [Heartbeat()]),
        ("", b"myapp.errors:1|c", []),
    ],
    ids=["behind it", "plain", "requests", "gauge", "no dot", "other", "own dot", "own sign", "two words", "none set"],
)
def test_prefix_of_the_client_is_removed(prefix: str, line: bytes, reports: list[Report]) -> None:
    assert _read(line, prefix) == (reports, 0)


# -- many packets -------------------------------------------------------------------------------------------


def test_packets_are_summed_by_the_number_of_times_they_came() -> None:
    batch = PacketReader().read({b"errors:1|c": 50, b"errors:2|c\nrequests:3|c\n": 4, b"garbage": 7, b"": 3})
    assert batch.reports == [ErrorReport(58), Results(ok=12)]
    assert (batch.lines, batch.unreadable) == (50 + 8 + 7, 7)


def test_gauge_is_not_multiplied() -> None:
    batch = PacketReader().read({b"in_flight:3|g": 50, b"in_flight:0|g\nrequests:1|c": 4})
    assert batch.reports == [Results(4, 0, 3)]


# -- the sum --------------------------------------------------------------------------------------------------------


@st.composite
def counters(draw: st.DrawFn) -> tuple[bytes, int]:
    """A line of errors as a client writes it, and how many errors a plain model makes of it."""
    values = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=5))
    hundredths = draw(st.one_of(st.none(), st.integers(1, 100)))
    kind = draw(st.sampled_from([b"", b"|#kind:db", b"|#env:prod,kind:redis"]))
    rate = b"" if hundredths is None else b"|@%d.%02d" % divmod(hundredths, 100)
    line = b"errors:" + b":".join(b"%d" % value for value in values) + b"|c" + rate + kind
    return line, int(sum(values) / (float(rate[2:] or 1)) + 0.5)


@given(st.lists(counters(), max_size=30), st.integers(1, 70))
def test_sum_of_errors_is_that_of_a_plain_model(sent: list[tuple[bytes, int]], times: int) -> None:
    packet = b"\n".join(line for line, _ in sent)
    batch = PacketReader().read({packet: times})
    assert batch.unreadable == 0
    assert batch.lines == len(sent) * times
    counted = sum(report.errors for report in batch.reports if isinstance(report, ErrorReport))
    assert counted == times * sum(errors for _, errors in sent)


# -- advice -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packets", "advice"),
    [
        ([b"myapp.errors:1|c"] * 3, "if 'myapp' is the prefix of the app's client, set ARBITER_STATSD_PREFIX=myapp"),
        ([b"my_errors:1|c\nmy_requests:4|c\nmy_requests:4|c"], "set ARBITER_STATSD_PREFIX=my_"),
        ([b"a.b.in_flight:1|g", b"a.b.load:2|g", b"a.b.heartbeat:1|c"], "set ARBITER_STATSD_PREFIX=a.b"),
        ([b"myapp.errors:1|c"] * 2, ""),
        ([b"myapp.errors:1|c"] * 2 + [b"errors:1|c"] + [b"other.errors:1|c"] * 3, ""),
        ([b"myapp.errors:1|c\nmyapp.errors:1|c\nmyapp.errors:1|c\nerrors:1|c"], ""),
        ([b"memory:1|c", b"overload:3|g", b"render:3|ms"] * 9, ""),
    ],
    ids=["prefix", "prefix with a sign", "gauges", "two lines", "known", "known in one packet", "others"],
)
def test_prefix_that_nobody_set_gives_one_advice(packets: list[bytes], advice: str) -> None:
    reader = PacketReader()
    given = [said for packet in packets if (said := reader.read({packet: 1}).advice)]
    assert len(given) == bool(advice)
    assert "".join(given).endswith(advice)
