"""A person's orders: hold, release, cull or revive; what is refused is named by its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.inputs.report_bodies import BadReportError
from sidecar.server.orders import NO_REASON, HoldOrder, OverrideOrder, ReleaseOrder, read_hold, read_order, read_release

LEAST = {"for": "1h", "reason": "why", "author": "alice"}


def _hold(**fields: object) -> HoldOrder:
    return read_hold(json.dumps({**LEAST, **fields}).encode(), "a")


def _release(*pairs: tuple[str, str]) -> ReleaseOrder:
    return read_release(pairs, "a")


@pytest.mark.parametrize(
    ("fields", "order"),
    [
        pytest.param({}, HoldOrder("", "alice", "why", 3600.0), id="least"),
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
def test_hold_is_read(fields: dict[str, object], order: HoldOrder) -> None:
    assert _hold(**fields) == order


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"for": "0.9s"}, "for: takes 1s to 168h", id="too short"),
        pytest.param({"for": "169h"}, "for: takes 1s to 168h", id="too long"),
        pytest.param({"for": None}, "for: is not a duration", id="null for a duration"),
        pytest.param({"reason": "x" * 201}, "reason: takes a line of 1 to 200", id="long reason"),
        pytest.param({"reason": "a\x1b[2Jb"}, "reason: takes a line", id="terminal codes"),
        pytest.param({"reason": "a\u202eb"}, "reason: takes a line", id="text that turns round"),
        pytest.param({"reason": 5}, "reason: takes a line", id="number for a reason"),
        pytest.param({"author": "x" * 101}, "author: takes a line of 1 to 100", id="long author"),
        pytest.param({"scope": "all"}, "scope: takes one of service, instance", id="scope"),
        pytest.param({"scope": "instance", "instance": "a b"}, "instance: takes 1 to 128", id="blank in the instance"),
        pytest.param({"instance": "b"}, "instance: goes with scope instance", id="instance without its scope"),
    ],
)
def test_bad_hold_is_refused_by_the_field(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadReportError, match=f"^{complaint}"):
        _hold(**fields)


@pytest.mark.parametrize("missing", sorted(LEAST))
def test_missing_field_is_named(missing: str) -> None:
    rest = {name: value for name, value in LEAST.items() if name != missing}
    with pytest.raises(BadReportError, match=f"^{missing}: is missing$"):
        read_hold(json.dumps(rest).encode(), "a")


@pytest.mark.parametrize(
    ("pairs", "release"),
    [
        ((), ReleaseOrder("")),
        ((("scope", "instance"),), ReleaseOrder("a")),
        ((("instance", "b"), ("scope", "instance")), ReleaseOrder("b")),
        ((("author", "alice"),), ReleaseOrder("", "alice")),
        ((("instance", "b"),), "instance: goes with scope instance"),
        ((("scope", "service"), ("scope", "instance")), "scope: given twice"),
        ((("for", "1h"),), "for: no such field"),
    ],
)
def test_release_is_read_or_refused_by_the_field(pairs: Any, release: ReleaseOrder | str) -> None:
    if isinstance(release, str):
        with pytest.raises(BadReportError, match=f"^{release}"):
            _release(*pairs)
    else:
        assert _release(*pairs) == release


@pytest.mark.parametrize(
    ("body", "order"),
    [
        (b'{"author":"alice"}', OverrideOrder("alice", NO_REASON)),
        (b'{"author":"alice","reason":" stuck "}', OverrideOrder("alice", "stuck")),
        (b"{}", "body: takes an object with author and reason"),
        (b'{"reason":"x"}', "author: is missing"),
        (b'{"author":"alice","instance":"b"}', "instance: no such field"),
    ],
)
def test_order_to_cull_or_revive_is_read_or_refused_by_the_field(body: bytes, order: OverrideOrder | str) -> None:
    if isinstance(order, str):
        with pytest.raises(BadReportError, match=f"^{order}"):
            read_order(body)
    else:
        assert read_order(body) == order
