"""The records as text: what is written is read again, and what another version wrote blinds nobody."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, StoredRecord, Trial, instants

RECORDS: tuple[StoredRecord, ...] = (
    Epoch(1, 2, 3, 4, 5, "digest", 6, "run", 7),
    Trial(4, 2, 10, 20, 30, 40, 50),
    FleetState(
        trials={"redis": Trial(2), "": Trial()},
        several_us=5,
        due_us=6,
        open_culls={"redis": 1},
        missing=2,
        retiring=3,
        outcomes={"helped|redis": 4},
        duplicates={"a": 9},
        majority_us=8,
    ),
    Cull("id", "life", "redis", 1, "watched", False, 2, 3, "b", "1", 4, 5, 6, 7, 8),  # noqa: FBT003 - in order
    Slot("holder", "0", 1, 2, arrived=True),
    HoldRow('ada "the second"\n', "Ärger\ud800 \x00", 1, 2),
    FleetSettings(),
    FleetSettings("previous", "500p", 1, "3", refund_max=0, servers="x"),
)
IDS = [f"{type(record).__name__}-{number}" for number, record in enumerate(RECORDS)]
each = pytest.mark.parametrize("record", RECORDS, ids=IDS)


@each
def test_record_is_read_as_it_was_written(record: StoredRecord) -> None:
    assert type(record).load(record.dump()) == record
    assert json.loads(record.dump())["f"] == 1
    assert record.dump().isascii()
    assert '": ' not in record.dump(), "each row is read with every view"


@each
def test_names_of_another_version_are_ignored_and_missing_ones_have_their_default(record: StoredRecord) -> None:
    told = json.loads(record.dump())
    later = {**told, "f": 2, "invented": {"later": [1]}}
    assert type(record).load(json.dumps(later)) == record
    assert type(record).load("{}") == type(record)()
    for name in told.keys() - {"f"}:
        fewer = type(record).load(json.dumps({other: told[other] for other in told if other != name}))
        assert fewer is not None
        assert json.loads(fewer.dump())[name] == json.loads(type(record)().dump())[name]


@each
@pytest.mark.parametrize("text", ["", "{", "null", "1", '"{}"', "[]", "[{}]", "[" * 100_000, "\ud800", "{} {}"])
def test_text_that_is_no_object_is_no_record(record: StoredRecord, text: str) -> None:
    assert type(record).load(text) is None


WRONG: dict[str, list[object]] = {
    "int": ["1", 1.0, None, True, 2**60, -(2**60), [], {}],
    "str": [1, None, [], True],
    "bool": [0, 1, "x", None],
}


@each
def test_field_of_a_wrong_kind_makes_it_no_record(record: StoredRecord) -> None:
    told = json.loads(record.dump())
    for name, value in told.items():
        kind = type(value).__name__
        for wrong in WRONG.get(kind, [1, "x", None, []]) if name != "f" else ():
            assert type(record).load(json.dumps({**told, name: wrong})) is None, (name, wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [("open_culls", {"a": "1"}), ("outcomes", {"a": None}), ("duplicates", {"a": 1.5}), ("trials", [1])],
)
def test_counts_are_whole_numbers(field: str, value: object) -> None:
    assert FleetState.load(json.dumps({field: value})) is None


@pytest.mark.parametrize("bad", [1, None, [], {"limit": "x"}, {"paused_us": 2**70}])
def test_trial_that_cannot_be_read_is_left_out_and_blinds_no_other(bad: object) -> None:
    text = json.dumps(
        {"several_us": 3, "trials": {"disk": bad, "redis": {"limit": 4, "invented": 1}}, "recurrences": {}}
    )
    assert FleetState.load(text) == FleetState(several_us=3, trials={"redis": Trial(4)})


@pytest.mark.parametrize(
    "text",
    ['{"strategy":"best"}', '{"capacity":"many"}', '{"min_healthy":"p"}', '{"window_us":0}', '{"capacity":10}'],
)
def test_terms_that_there_are_none_of_are_no_terms(text: str) -> None:
    assert FleetSettings.load(text) is None


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_no_text_is_too_strange(text: str) -> None:
    for record in RECORDS:
        found = type(record).load(text)
        assert found is None or isinstance(found, type(record))


def test_instant_that_no_text_names_is_none() -> None:
    for kind in (Epoch, Trial, FleetState, Cull, Slot, HoldRow):
        assert {getattr(kind(), name) for name in instants(kind)} == {0}


@pytest.mark.parametrize(("now_us", "left_us"), [(100, 50), (149, 1), (150, 0), (9_999, 0)])
def test_what_began_ends_in_time(now_us: int, left_us: int) -> None:
    assert Slot("h", "0", 100, 50).left_us(now_us) == left_us
    assert HoldRow("a", "b", 100, 50).left_us(now_us) == left_us
    assert Trial(paused_us=100, pause_us=50).pause_left_us(now_us) == left_us
    assert Trial(pause_us=50).pause_left_us(now_us) == 0


@pytest.mark.parametrize(
    ("down_us", "occupied_us", "heard_us"),
    [(0, 130, 100), (150, 180, 150), (150, 160, 160)],
    ids=["granted", "down", "goodbye"],
)
def test_place_says_when_its_sidecar_beat_last(down_us: int, occupied_us: int, heard_us: int) -> None:
    assert Cull(at_us=100, down_us=down_us, occupied_us=occupied_us).heard_us(30) == heard_us
