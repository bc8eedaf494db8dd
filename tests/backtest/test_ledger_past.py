"""The ledger as a past: suspects become errors at the rate that they had, until the ledger says how it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.backtest import ledger_past
from sidecar.backtest.ledger_past import read_file
from sidecar.backtest.past import Past, PastError
from sidecar.core.life.detectors import judge
from sidecar.core.types import Evidence, Policy

BEGIN = 1_700_000_000
SUSPECT_AT = "2023-11-14 22:14:20Z"
SICK = Evidence(60, 6, {"redis": 4, "mysql": 2})
SENTENCE = judge(SICK, Policy()).reasons[0].sentence  # as sidecars write it


def entry(second: float, what: str, instance: str = "a", **more: object) -> dict[str, object]:
    return {"id": "1-0", "at": BEGIN + second, "what": what, "instance": instance, "kind": "redis", **more}


def read(tmp_path: Path, *entries: object, **more: Any) -> Past:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in entries))
    return read_file(path, **more)


def errors(past: Past, instance: str = "a") -> dict[str, tuple[int, int, int]]:
    """By kind: the number of errors, and the first and the last second, since ``BEGIN``."""
    found = {kind: list(counts) for kind, counts in past.containers[instance].errors.items()}
    return {
        kind: (sum(n for _, n in rows), rows[0][0] - BEGIN, rows[-1][0] - BEGIN) for kind, rows in found.items() if rows
    }


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ([entry(300, "recovered")], {"redis": (16, 15, 300 - 60)}),
        ([entry(330, "recovered")], {"redis": (18, 15, 330 - 60)}),
        ([entry(120, "culled"), entry(160, "replaced")], {"redis": (8, 15, 120)}),
        ([entry(120, "would_cull"), entry(180, "would_recover")], {"redis": (8, 15, 120)}),
        ([entry(130, "denied", reason="window"), entry(180, "restarted")], {"redis": (12, 15, 180)}),
    ],
)
def test_errors_of_a_suspect_go_on_to_its_end(tmp_path: Path, end: list[Any], expected: dict[str, Any]) -> None:
    past = read(tmp_path, entry(60, "suspect", detail=SENTENCE), *end, entry(400, "hold", ""))
    found = errors(past)
    assert found["redis"][0] == expected["redis"][0]
    assert found["redis"][1:] == pytest.approx(expected["redis"][1:], abs=15)
    assert past.notices.lines() == []
    assert len(past.lives(past.containers["a"])) == 1 + any(one["what"] in ("replaced", "restarted") for one in end)


def test_only_entries_of_the_asked_time_are_read(tmp_path: Path) -> None:
    entries = [entry(60, "suspect", detail=SENTENCE), entry(90, "culled"), entry(600, "suspect", "b", detail=SENTENCE)]
    past = read(tmp_path, *entries, entry(900, "recovered", "b"), since_s=BEGIN + 300)
    assert [*past.containers] == ["b"]


def test_what_the_ledger_does_not_tell_is_said(tmp_path: Path) -> None:
    past = read(
        tmp_path,
        entry(60, "suspect", detail=SENTENCE),
        entry(70, "suspect", "b", detail="no heartbeat for 31 s, the limit is 30 s"),
        entry(80, "telepathy"),
        entry(180, "denied", "c"),
        containers=5,
    )
    assert [*past.containers] == ["a", "b", "c", "without entries 1", "without entries 2"]
    assert errors(past, "b") == {}
    place = tmp_path / "events.jsonl"
    assert past.notices.lines() == [
        f"{ledger_past.OTHER_RULE}: 1, the first: {place}: line 2",
        f"entries that this version does not know, left out: 1, the first: {place}: line 3",
        f"suspects whose end is not in the ledger; their errors go on to the end: 1, the first: a at {SUSPECT_AT}",
    ]
    assert len(past.unknowns) == 3


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", ": has no entries"),
        ("12:00 suspect", ": line 1: is not JSON, as health-arbiter events --json prints it"),
        ("[]", ": line 1: is not a JSON object"),
        ({"what": "suspect"}, ": line 1: at: has to be a Unix time in seconds"),
        (
            entry(0, "suspect") | {"at": BEGIN * 1000},
            ": line 1: at: a time after tomorrow: 1700000000000 s; it looks like",
        ),
        (entry(0, "suspect") | {"at": int("9" * 400)}, ": line 1: at: has to be a Unix time in seconds"),
        (f"[{' ' * (1 << 20)}]", ": line 1: has more than 1048576 bytes"),
        ("<html>", ": line 1: is a web page, not JSON: perhaps that of a login"),
        (entry(0, "suspect", detail=3), ": line 1: detail: has to be a text"),
        (entry(0, "data_loss", ""), ": no entry is about a container"),
    ],
)
def test_bad_ledger_is_a_sentence_with_the_line(tmp_path: Path, line: object, sentence: str) -> None:
    with pytest.raises(PastError) as raised:
        read(tmp_path, line)
    assert sentence in str(raised.value)
