"""What the scripts answer, read exactly as they write it. Anything else raises InvalidResponse.

Text goes to Redis and comes back as the bytes that ``written`` makes of it, which holds any text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeVar

from redis.exceptions import InvalidResponse

from sidecar.core import members
from sidecar.core.sentences import DENIED
from sidecar.core.words import US_PER_S, Answer, Brake, Denied, Fleet, Granted, Hold, Member, Presence, Roll

T = TypeVar("T")

Mark = tuple[int, int]
"""Birth of the bucket in microseconds of Unix time, and its grants so far."""

UNMARKED: Final[Mark] = (0, 0)

_TALLIED: Final = re.compile(rb"(helped|unhelped|unclear)\|(\d{1,15})\|(\d{1,9})\|")

_by_instance = attrgetter("instance")


def written(text: str) -> bytes:
    """The text as Redis has it: half of a surrogate pair, which JSON can smuggle in, is text as well."""
    return text.encode("utf-8", "surrogatepass")


def answer(reply: object) -> tuple[Answer, Mark]:
    """The answer to a claim, and the mark."""
    return _whole(reply, lambda values: (_granted(values) if values.flag() else _denied(values), _mark(values)))


def lease(reply: object) -> tuple[Answer, Mark]:
    """The answer to who asks for a lease, and the mark."""
    return _whole(reply, lambda values: (_leased(values) if values.flag() else _denied(values), _mark(values)))


def fleet(reply: object) -> tuple[Fleet, Mark]:
    """The answer to a beat, and the mark."""
    return _whole(reply, _fleet)


def roll(reply: object, most: int) -> Roll:
    """The answer to who asks for the fleet, cut after so many members."""
    return _whole(reply, lambda values: _roll(values, most))


def until_us(reply: object) -> int:
    """When a hold ends, in microseconds of Unix time."""
    return _whole([reply], _Values.number)


def was_held(reply: object) -> bool:
    """Whether there was a hold to end."""
    return _whole([reply], _Values.flag)


def flags(reply: object, count: int) -> list[bool]:
    """Which of so many scripts are there."""
    return _whole(reply, lambda values: [values.flag() for _ in range(count)])


class _Values:
    """A list, read from its beginning; each value has to be of the kind that is asked for."""

    def __init__(self, values: list[Any]) -> None:
        self._left = deque(values)

    def number(self) -> int:
        return self._next(int)

    def flag(self) -> bool:
        if (value := self.number()) not in (0, 1):
            raise InvalidResponse("not a flag")
        return value == 1

    def text(self) -> str:
        return _text(self._next(bytes))

    def packed(self) -> bytes:
        return self._next(bytes)

    def score(self) -> int:
        """A time as sorted sets give it: a number in digits."""
        try:
            return int(self._next(bytes))
        except ValueError:
            raise InvalidResponse("not a whole number") from None

    def rows(self, read: Callable[[_Values], T]) -> list[T]:
        """A list within the list, as many rows as it has."""
        inner, made = _Values(self._next(list)), []
        while inner._left:
            made.append(read(inner))
        return made

    def inner(self, read: Callable[[_Values], T]) -> T:
        """A list within the list, as a whole."""
        return _whole(self._next(list), read)

    def end(self) -> None:
        if self._left:
            raise InvalidResponse("more than was asked for")

    def _next(self, kind: type[T]) -> T:
        value = self._left.popleft() if self._left else None
        if not isinstance(value, kind):
            raise InvalidResponse(f"not of type {kind.__name__}")
        return value


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise InvalidResponse("not our text") from None


def _whole(reply: object, read: Callable[[_Values], T]) -> T:
    if not isinstance(reply, list):
        raise InvalidResponse("not a list")
    values = _Values(reply)
    made = read(values)
    values.end()
    return made


def _granted(values: _Values) -> Granted:
    replayed, used, capacity, canary = _is_replay(values), values.number(), values.number(), values.flag()
    return Granted(used, capacity, replayed, canary, values.number(), values.number())


def _leased(values: _Values) -> Granted:
    replayed, used, capacity, left_us = _is_replay(values), values.number(), values.number(), values.number()
    alive, wanting = values.number(), values.number()
    return Granted(used, capacity, replayed, alive=alive, wanting=wanting, left_s=left_us / US_PER_S)


def _is_replay(values: _Values) -> bool:
    word = values.text()
    if word not in {"granted", "replayed"}:
        raise InvalidResponse("neither granted nor replayed")
    return word == "replayed"


def _denied(values: _Values) -> Denied:
    reason, used, capacity, wait_us = values.text(), values.number(), values.number(), values.number()
    if wait_us <= 0 or reason not in DENIED:
        raise InvalidResponse("denied for no time, or for no reason of ours")
    alive, wanting, cause = values.number(), values.number(), values.text()
    return Denied(reason, used, capacity, wait_us / US_PER_S, alive, wanting, cause, _perhaps(values))


def _mark(values: _Values) -> Mark:
    return values.number(), values.number()


def _fleet(values: _Values) -> tuple[Fleet, Mark]:
    alive, wanting, down = (values.number() for _ in range(3))
    brake, cause = _brake(values), values.text()
    policies, losses, helped, unhelped, unclear = (values.number() for _ in range(5))
    useless = tuple(sorted(values.rows(_Values.text)))
    of_culls = (policies, losses, helped, unhelped, unclear, useless)
    held, retiring, culls_by = _perhaps(values), values.number(), _tally(values.packed())
    tokens = (values.number(), values.number())
    return Fleet(alive, wanting, down, brake, cause, *of_culls, held, (), retiring, culls_by, *tokens), _mark(values)


@lru_cache(maxsize=4)  # changes with a cull, and is told at every beat
def _tally(packed: bytes) -> tuple[tuple[str, str, int], ...]:
    """Outcome, kind and number of culls, as trials.lua packs them."""
    rows, place = [], 0
    while match := _TALLIED.match(packed, place):
        place = match.end() + int(match[3])
        rows.append((match[1].decode(), _text(packed[match.end() : place]), int(match[2])))
    if place != len(packed):
        raise InvalidResponse("not a tally")
    return tuple(sorted(rows))


def _brake(values: _Values) -> Brake:
    try:
        return Brake(values.text())
    except ValueError:
        raise InvalidResponse("no such brake") from None


def _perhaps(values: _Values) -> Hold | None:
    """No hold is an empty list."""
    return next(iter(values.rows(_hold)), None)


def _hold(values: _Values) -> Hold:
    until, author, reason, instance = values.number() / US_PER_S, values.text(), values.text(), values.text()
    return Hold(author, reason, until, instance)


def _roll(values: _Values, most: int) -> Roll:
    of_fleet, used, now_us = values.inner(_fleet)[0], values.number(), values.number()
    heard = values.rows(lambda row: (row.text(), row.score()))
    kinds = dict(values.rows(lambda row: (row.text(), row.text())))
    every = [_member(one, kinds.get(one), now_us - at_us) for one, at_us in heard]
    every += values.rows(lambda row: Member(row.text(), Presence.DOWN, row.text(), (now_us - row.number()) / US_PER_S))
    holds, policies = values.rows(_hold), values.rows(_Values.text)
    granted = values.rows(lambda row: row.score() / US_PER_S)
    about = dict(values.rows(lambda row: (row.text(), row.packed())))
    departed = values.rows(lambda row: (row.text(), (now_us - row.score()) / US_PER_S))
    shown = [_described(one, about.get(one.instance)) for one in sorted(every, key=_by_instance)[:most]]
    by_name = sorted(holds, key=_by_instance)
    lists = (tuple(shown), tuple(by_name), tuple(sorted(policies)), tuple(granted), tuple(departed))
    return Roll(of_fleet, used, *lists)


def _described(member: Member, packed: bytes | None) -> Member:
    """With what its sidecar tells of it; what makes no sense of that says nothing of the fleet."""
    return member if packed is None else member._replace(about=members.unpack(packed.decode(errors="replace")))


def _member(instance: str, kind: str | None, age_us: int) -> Member:
    presence = Presence.WELL if kind is None else Presence.WANTS
    return Member(instance, presence, kind or "", age_us / US_PER_S)
