"""What Redis answers, read exactly as the scripts write it: anything else raises InvalidResponse.

Texts are the exception. They come from other sidecars, of other versions too, and one that cannot be read must not hide
the others: a byte that is no UTF-8 is kept as a surrogate. A row of a table whose name has such a byte is passed over,
because nobody could write it again.
"""

from __future__ import annotations

from typing import Any, Final

from redis.exceptions import InvalidResponse

from sidecar.core.fleet.raw import Heard, Raw
from sidecar.store.protocol import Listing

_READ: Final = 16
_HEARD: Final = 12


def written(text: str) -> bytes:
    """The text as Redis has it: half of a surrogate pair, which JSON can smuggle in, is text as well."""
    return text.encode("utf-8", "surrogatepass")


def raw(reply: object) -> Raw:
    """The answer of ``read.lua``."""
    now, records, culls, leases, holds, settings, alive, beating, newest, causes, control, *rest = _list(reply, _READ)
    grants, refunded, member, seen, departed = rest
    revision, epoch, state = _list(records, 3)
    return Raw(
        now_us=_number(now),
        revision=_us(revision),
        epoch=_text(epoch),
        state=_text(state),
        culls=_table(culls),
        leases=_table(leases),
        holds=_table(holds),
        settings=_times(settings),
        alive=_number(alive),
        beating=_table(beating),
        newest_us=max(_times(newest).values(), default=0),
        causes=_counts(causes),
        control=_counts(control),
        grants=_times(grants),
        refunded=frozenset(_times(refunded)),
        member=_text(member),
        seen_us=_us(seen),
        departed_us=_us(departed),
    )


def heard(reply: object) -> Heard:
    """The answer of ``beat.lua``."""
    now, records, alive, silent, struck, former, causes, policies, errors, ratio, holds, used = _list(reply, _HEARD)
    epoch, state, _ = _list(records, 3)
    of_service, of_instance = _list(holds, 2)
    return Heard(
        now_us=_number(now),
        epoch=_text(epoch),
        state=_text(state),
        alive=_number(alive),
        silent=_number(silent),
        struck=tuple(_text(name) for name in _list(struck)),
        former=_text(former),
        causes=_counts(causes),
        policies=_number(policies),
        median_errors=_number(errors),
        median_ratio=_number(ratio),
        holds=(_text(of_service), _text(of_instance)),
        used=_number(used),
    )


def committed(reply: object) -> tuple[int, int, int]:
    """The answer of ``commit.lua``: 1, 0 or -1; the instant; entries that were new."""
    word, now, noted = (_number(value) for value in _list(reply, 3))
    if word not in (1, 0, -1) or noted < 0:
        raise InvalidResponse("neither done nor refused")
    return word, now, noted


def count(reply: object) -> int:
    """A number of something."""
    if (number := _number(reply)) < 0:
        raise InvalidResponse("not a count")
    return number


def flags(reply: object, number: int) -> list[bool]:
    """Which of so many scripts are there."""
    return [bool(_number(value)) for value in _list(reply, number)]


def times(reply: object) -> list[tuple[bytes, int]]:
    """Names as they are in Redis, each with its time, in their order."""
    return [(_bytes(name), _us(at)) for name, at in zip(*_columns(reply), strict=True)]


def texts(reply: object) -> list[str]:
    """Values of a hash, ``""`` for those that are not there."""
    return [_text(value) for value in _list(reply)]


def names(reply: object) -> list[bytes]:
    """The names of a hash, as they are in Redis."""
    return [_bytes(name) for name in _columns(reply)[0]]


def listing(
    alive: list[tuple[bytes, int]],
    rows: list[str],
    abouts: list[str],
    left: list[tuple[bytes, int]],
    culled: dict[bytes, str],
) -> Listing:
    """Members with their rows and what their sidecars tell, those who left, and what those told that are culled."""
    if not len(alive) == len(rows) == len(abouts):
        raise InvalidResponse("not as many as were asked for")
    members = [(_text(name), at, row, about) for (name, at), row, about in zip(alive, rows, abouts, strict=True)]
    told = {_text(name): about for name, about in culled.items() if about}
    return Listing(members, [(_text(name), at) for name, at in left], told)


def _list(reply: object, length: int | None = None) -> list[Any]:
    if not isinstance(reply, list) or length not in (None, len(reply)):
        raise InvalidResponse("not a list of the length that was asked for")
    return reply


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise InvalidResponse("not a number")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidResponse("not a text")
    return value


def _us(value: object) -> int:
    """A whole number in digits, 0 where there is none."""
    if value is None:
        return 0
    digits = _bytes(value)
    try:
        return int(digits) if digits.isdigit() else int(float(digits))
    except (ValueError, OverflowError):
        raise InvalidResponse("not a whole number") from None


def _text(value: object) -> str:
    return "" if value is None else _decoded([value])[0]


def _decoded(values: list[Any]) -> list[str]:
    """The texts of several values at once."""
    try:
        return [value.decode() for value in values]
    except (AttributeError, UnicodeDecodeError):
        return [_name(_bytes(value)) or value.decode("utf-8", "surrogateescape") for value in values]


def _name(value: bytes) -> str | None:
    """The text that ``written`` makes these bytes of, None if there is none."""
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _columns(reply: object) -> tuple[list[Any], list[Any]]:
    """Names and values of a list that has them in turn."""
    both = _list(reply)
    if len(both) % 2:
        raise InvalidResponse("not pairs")
    return both[::2], both[1::2]


def _table(reply: object) -> dict[str, str]:
    names, texts = _columns(reply)
    rows = zip([_name(_bytes(name)) for name in names], _decoded(texts), strict=True)
    return {name: text for name, text in rows if name is not None}


def _times(reply: object) -> dict[str, int]:
    names, times = _columns(reply)
    return dict(zip(_decoded(names), map(_us, times), strict=True)) if names else {}


def _counts(reply: object) -> dict[str, int]:
    """Counts by name; what is none is passed over."""
    names, numbers = _columns(reply)
    counts = zip(_decoded(names), map(_bytes, numbers), strict=True)
    return {name: int(number) for name, number in counts if number.removeprefix(b"-").isdigit()}
