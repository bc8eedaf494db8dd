"""What ``watch`` says of two answers of ``/why``, one second apart."""

from __future__ import annotations

from typing import Any

import pytest
from click import unstyle

from sidecar.cli.why_commands import line_of, news


def _why(samples: dict[str, tuple[int, str, str]] | None = None, state: str = "up", **window: Any) -> dict[str, Any]:
    """An answer; ``samples``: fingerprint -> count, kind, level."""
    shown = [
        {"fingerprint": key, "count": count, "kind": kind, "level": level, "message": f"{key} lost"}
        for key, (count, kind, level) in (samples or {}).items()
    ]
    counts = {"kinds": {}, "levels": {}, "requests": 0, "failed": 0, **window}
    return {"at": 43_201.0, "state": state, "sentence": "for a reason", "samples": shown, "window": counts}


REDIS = (2, "redis", "server_error")


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        (None, _why({"a": REDIS}, kinds={"redis": 2}), ["state     up: for a reason"]),
        (_why(), _why(), []),
        (_why(), _why(state="suspect"), ["state     suspect: for a reason"]),
        (_why(), _why({"a": REDIS}, kinds={"redis": 2}), ["error     2 x redis: a lost"]),
        (
            _why({"a": REDIS}, kinds={"redis": 2}),
            _why({"a": (3, *REDIS[1:])}, kinds={"redis": 4}),
            ["error     1 x redis: a lost", "error     1 x redis"],
        ),
        (_why({"a": REDIS}), _why({"a": (1, *REDIS[1:])}, kinds={"redis": 1}), ["error     1 x redis: a lost"]),
        (_why({"a": REDIS}, kinds={"redis": 2}), _why({"a": REDIS}), []),
        (
            _why(),
            _why({"b": REDIS, "a": (1, "x", "recovered")}, kinds={"redis": 2}, levels={"recovered": 3}),
            [
                "error     1 x x (recovered: does not count): a lost",
                "error     2 x redis: b lost",
                "error     2 x (recovered: does not count)",
            ],
        ),
        (
            _why(),
            _why({"a": (1, "cache", "server_error")}, levels={"ignored": 1}),
            ["error     1 x cache (ignored: does not count): a lost"],
        ),
        (_why(), _why(requests=3), ["requests  3, of which 0 failed"]),
        (_why(requests=3), _why(requests=9), []),
        (_why(requests=3), _why(requests=9, failed=1), ["requests  6, of which 1 failed"]),
    ],
    ids=[
        *("first look", "nothing new", "another state", "error", "more, one without a message", "another incarnation"),
        *("old errors leave", "levels that do not count", "kind that never counts"),
        *("first requests", "more requests", "failed request"),
    ],
)
def test_only_what_is_new_is_a_line(before: dict[str, Any] | None, now: dict[str, Any], lines: list[str]) -> None:
    shown = [unstyle(line_of({"at": 43_201.0, **row})) for row in news(before, now)]
    assert shown == [f"12:00:01Z  {line}" for line in lines]
