from __future__ import annotations

import json

import pytest

from sidecar.inputs.report_bodies import BadReportError
from sidecar.server.orders import NO_REASON, HoldOrder, OverrideOrder, ReleaseOrder, read_hold, read_order, read_release

LEAST = {"for": "1h", "reason": "why", "author": "alice"}


def _read(**fields: object) -> HoldOrder:
    return read_hold(json.dumps({**LEAST, **fields}).encode(), "a")


@pytest.mark.parametrize(
    ("fields", "order"),
    [
        pytest.param({}, HoldOrder("", "alice", "why", 3600.0), id="least"),
        pytest.param({"scope": "service"}, HoldOrder("", "alice", "why", 3600.0), id="service"),
        pytest.param({"scope": "instance"}, HoldOrder("a", "alice", "why", 3600.0), id="own instance"),
        pytest.param({"scope": "instance", "instance": "b"}, HoldOrder("b", "alice", "why", 3600.0), id="another"),
        pytest.param({"for": 90}, HoldOrder("", "alice", "why", 90.0), id="seconds"),
        pytest.param({"for": "1s"}, HoldOrder("", "alice", "why", 1.0), id="shortest"),
        pytest.param({"for": "168h"}, HoldOrder("", "alice", "why", 604800.0), id="longest"),
        pytest.param({"reason": " größer 🚀 "}, HoldOrder("", "alice", "größer 🚀", 3600.0), id="trimmed, any script"),
        pytest.param({"reason": "x" * 200}, HoldOrder("", "alice", "x" * 200, 3600.0), id="longest reason"),
        pytest.param({"author": "x" * 100}, HoldOrder("", "x" * 100, "why", 3600.0), id="longest author"),
    ],
)
def test_order_is_read(fields: dict[str, object], order: HoldOrder) -> None:
    assert _read(**fields) == order


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"for": "soon"}, "for: is not a duration", id="no duration"),
        pytest.param({"for": "0.9s"}, "for: takes 1s to 168h", id="too short"),
        pytest.param({"for": "169h"}, "for: takes 1s to 168h", id="too long"),
        pytest.param({"for": -1}, "for: must not be negative", id="negative"),
        pytest.param({"for": None}, "for: is not a duration", id="null for a duration"),
        pytest.param({"reason": "x" * 201}, "reason: takes a line of 1 to 200", id="long reason"),
        pytest.param({"reason": "a\nb"}, "reason: takes a line", id="two lines"),
        pytest.param({"reason": "a\x1b[2Jb"}, "reason: takes a line", id="terminal codes"),
        pytest.param({"reason": "a\u202eb"}, "reason: takes a line", id="text that turns round"),
        pytest.param({"reason": 5}, "reason: takes a line", id="number for a reason"),
        pytest.param({"author": "x" * 101}, "author: takes a line of 1 to 100", id="long author"),
        pytest.param({"scope": "all"}, "scope: takes one of service, instance", id="scope"),
        pytest.param({"scope": "instance", "instance": ""}, "instance: takes 1 to 128", id="no instance"),
        pytest.param({"scope": "instance", "instance": "a b"}, "instance: takes 1 to 128", id="blank in the instance"),
        pytest.param({"scope": "service", "instance": "b"}, "instance: goes with scope instance", id="contradiction"),
        pytest.param({"instance": "b"}, "instance: goes with scope instance", id="instance without its scope"),
        pytest.param({"untill": "1h"}, "untill: no such field", id="unknown field"),
    ],
)
def test_bad_order_is_refused_by_the_field(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadReportError) as error:
        _read(**fields)
    assert str(error.value).startswith(complaint)


@pytest.mark.parametrize("missing", sorted(LEAST))
def test_missing_field_is_named(missing: str) -> None:
    rest = {name: value for name, value in LEAST.items() if name != missing}
    with pytest.raises(BadReportError, match=f"^{missing}: is missing$"):
        read_hold(json.dumps(rest).encode(), "a")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'"hold"', b'{"for":1,"for":2}'])
def test_body_that_is_no_order_is_refused(body: bytes) -> None:
    with pytest.raises(BadReportError):
        read_hold(body, "a")


@pytest.mark.parametrize(
    ("query", "release"),
    [
        ([], ReleaseOrder("")),
        ([("scope", "service")], ReleaseOrder("")),
        ([("scope", "instance")], ReleaseOrder("a")),
        ([("scope", "instance"), ("instance", "b")], ReleaseOrder("b")),
        ([("instance", "b"), ("scope", "instance")], ReleaseOrder("b")),
        ([("author", "alice")], ReleaseOrder("", "alice")),
    ],
)
def test_release_is_read(query: list[tuple[str, str]], release: ReleaseOrder) -> None:
    assert read_release(query, "a") == release


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ([("scope", "all")], "scope: takes one of"),
        ([("scope", "")], "scope: takes one of"),
        ([("instance", "b")], "instance: goes with scope instance"),
        ([("scope", "instance"), ("instance", "b c")], "instance: takes 1 to 128"),
        ([("scope", "service"), ("scope", "instance")], "scope: given twice"),
        ([("force", "1")], "force: no such field"),
        ([("author", "a\nb")], "author: takes a line"),
    ],
)
def test_bad_release_is_refused_by_the_field(query: list[tuple[str, str]], complaint: str) -> None:
    with pytest.raises(BadReportError) as error:
        read_release(query, "a")
    assert str(error.value).startswith(complaint)


@pytest.mark.parametrize(
    ("body", "order"),
    [
        (b'{"author":"alice"}', OverrideOrder("alice", NO_REASON)),
        (b'{"author":"alice","reason":" stuck "}', OverrideOrder("alice", "stuck")),
    ],
)
def test_order_to_cull_or_revive_is_read(body: bytes, order: OverrideOrder) -> None:
    assert read_order(body) == order


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "body: not JSON"),
        (b"{}", "body: takes an object with author and reason"),
        (b'{"reason":"x"}', "author: is missing"),
        (b'{"author":""}', "author: takes a line"),
        (b'{"author":"alice","reason":"a\\u001b[2J"}', "reason: takes a line"),
        (b'{"author":"alice","instance":"b"}', "instance: no such field"),
    ],
)
def test_bad_order_to_cull_is_refused_by_the_field(body: bytes, complaint: str) -> None:
    with pytest.raises(BadReportError) as error:
        read_order(body)
    assert str(error.value).startswith(complaint)
