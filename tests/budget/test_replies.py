"""What the scripts answer is read exactly as they write it, and nothing else is taken for an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from redis.exceptions import InvalidResponse

from sidecar.budget import replies
from sidecar.core.words import About, Brake, Denied, Fleet, Granted, Hold, Member, Presence, Roll, State

HELD: Final = [1_700_000_060_500_000, b"ops", b"a deploy", b""]
HOLD: Final = Hold("ops", "a deploy", 1_700_000_060.5)
MARK: Final = (1_700_000_000_000_000, 7)
GRANTED: Final = [1, b"granted", 3, 10, 0, 20, 2, 1_700_000_000_000_000, 7]
DENIED: Final = [0, b"window", 10, 10, 1_500_000, 20, 2, b"redis", [], 1_700_000_000_000_000, 7]
TALLY: Final = b"unhelped|12|2|\xc3\xa9helped|5|5|redishelped|1|4|a|b|"
CULLS_BY: Final = (("helped", "a|b|", 1), ("helped", "redis", 5), ("unhelped", "\u00e9", 12))
FLEET: Final = [20, 4, 1, b"on", b"redis", 2, 1, 5, 6, 7, [b"b", b"a"], HELD, 2, TALLY, 6, 9, *MARK]
MEMBERS: Final = [[b"b", b"7000000", b"a", b"9500000"], [b"b", b"redis"], [b"c", b"disk", 4_000_000]]
ABOUT: Final = [b"b", b"suspect|7|life-2|80|5|5|0.9", b"a", b"up|never", b"c", b"\xff", b"gone", b""]
GONE: Final = [b"y", b"9000000", b"x", b"8500000"]
ROLL: Final = [FLEET, 3, 10_000_000, *MEMBERS, HELD, [b"z", b"y"], [b"2500000", b"3000000"], ABOUT, GONE]


def test_claims_are_read_with_the_mark() -> None:
    assert replies.answer(GRANTED) == (Granted(3, 10, alive=20, wanting=2), MARK)
    canary = [1, b"replayed", 3, 10, 1, *GRANTED[5:]]
    assert replies.answer(canary) == (Granted(3, 10, replayed=True, canary=True, alive=20, wanting=2), MARK)
    assert replies.answer(DENIED) == (Denied("window", 10, 10, 1.5, 20, 2, "redis"), MARK)
    held = [0, b"hold", *DENIED[2:8], HELD, *MARK]
    assert replies.answer(held) == (Denied("hold", 10, 10, 1.5, 20, 2, "redis", HOLD), MARK)


def test_fleet_is_read_with_the_mark_and_its_useless_kinds_in_order() -> None:
    fleet = Fleet(20, 4, 1, Brake.ON, "redis", 2, 1, 5, 6, 7, ("a", "b"), HOLD, (), 2, CULLS_BY, 6, 9)
    assert replies.fleet(FLEET) == (fleet, MARK)


def test_roll_is_read_in_order_of_names_and_cut() -> None:
    members = (
        Member("a", Presence.WELL, "", 0.5),
        Member("b", Presence.WANTS, "redis", 3.0, About(State.SUSPECT, 7, "life-2", 80, 5, 5, "0.9")),
        Member("c", Presence.DOWN, "disk", 6.0),
    )
    whole = Roll(replies.fleet(FLEET)[0], 3, members, (HOLD,), ("y", "z"), (2.5, 3.0), (("y", 1.0), ("x", 1.5)))
    assert replies.roll(ROLL, 3) == whole
    assert replies.roll(ROLL, 2).members == members[:2]


@pytest.mark.parametrize("text", ["", "a|b", "\0\n\r", "\u00e9\u4e00\U0001f600", "\ud800"])
def test_any_text_comes_back_as_it_was_written(text: str) -> None:
    reply = [*DENIED[:7], replies.written(text), *DENIED[8:]]
    answer, _ = replies.answer(reply)
    assert isinstance(answer, Denied)
    assert answer.cause == text


def _of_roll(reply: object) -> Roll:
    return replies.roll(reply, 10)


def _two_flags(reply: object) -> list[bool]:
    return replies.flags(reply, 2)


READERS: Final[list[tuple[Callable[[object], Any], list[Any]]]] = [
    (replies.answer, GRANTED),
    (replies.answer, DENIED),
    (replies.fleet, FLEET),
    (_of_roll, ROLL),
    (_two_flags, [0, 1]),
]


@pytest.mark.parametrize(("read", "reply"), READERS)
def test_reply_with_anything_missing_too_much_or_of_another_kind_makes_no_sense(
    read: Callable[[object], Any], reply: list[Any]
) -> None:
    read(reply)
    spoilt: list[Any] = [reply[:place] for place in range(len(reply))]
    spoilt += [[*reply, 1], [*reply, []], None, b"OK", 1, {}]
    junk: tuple[Any, ...] = (None, 1.5, b"\xff", {})
    for place in range(len(reply)):
        spoilt += [[*reply[:place], other, *reply[place + 1 :]] for other in junk]
    for nonsense in spoilt:
        with pytest.raises(InvalidResponse):
            read(nonsense)


@pytest.mark.parametrize(
    ("read", "reply"),
    [
        (replies.answer, [2, *GRANTED[1:]]),
        (replies.answer, [1, b"window", *GRANTED[2:]]),
        (replies.answer, [*GRANTED[:4], 2, *GRANTED[5:]]),
        (replies.answer, [0, b"window", 10, 10, 0, *DENIED[5:]]),
        (replies.fleet, [*FLEET[:3], b"half", *FLEET[4:]]),
        (replies.fleet, [*FLEET[:11], HELD[:3], *FLEET[12:]]),
        (replies.fleet, [*FLEET[:13], b"helped|1|9|redis", *FLEET[14:]]),
        (replies.fleet, [*FLEET[:13], b"eaten|1|5|redis", *FLEET[14:]]),
        (replies.fleet, [*FLEET[:13], b"helped|1|1|\xc3\xa9", *FLEET[14:]]),
        (_of_roll, [*ROLL[:3], [b"a", b"1.5e3"], *ROLL[4:]]),
        (_of_roll, [*ROLL[:3], [b"a"], *ROLL[4:]]),
        (_two_flags, [0, 2]),
        (replies.was_held, 2),
        (replies.until_us, b"1"),
    ],
)
def test_value_that_no_script_writes_makes_no_sense(read: Callable[[object], Any], reply: object) -> None:
    with pytest.raises(InvalidResponse):
        read(reply)


def test_flags_and_ends_are_read() -> None:
    assert replies.flags([1, 0], 2) == [True, False]
    assert replies.was_held(1) is True
    assert replies.until_us(5) == 5
