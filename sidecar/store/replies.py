"""Reads the replies of Redis exactly as the scripts write them: anything else raises InvalidReplyError.

Texts are the exception. Other sidecars wrote them, of other versions too, and an unreadable text must not hide the
others: a byte that is not UTF-8 is kept as a surrogate. A table row whose name has such a byte is skipped, because no
sidecar could write that name again.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, StoredRecord
from sidecar.core.fleet.view import BeatReply, Listing, View, member_incarnation, member_of, settings_in_force

R = TypeVar("R", bound=StoredRecord)

_READ: Final = 18
_BEAT: Final = 13


class InvalidReplyError(ValueError):
    """A reply that no command of this project gives."""


def encoded(text: str) -> bytes:
    """The text as bytes for Redis, also with half a surrogate pair, which JSON allows."""
    return text.encode("utf-8", "surrogatepass")


def view(reply: object) -> View:
    """The reply of ``read.lua``."""
    now, records, culls, leases, holds, settings, alive, beating, newest, causes, control, *rest = _list(reply, _READ)
    grants, refunded, row, seen, departed, run_id, median_errors = rest
    revision, epoch, state = _list(records, 3)
    now_us, heard, member = _number(now), _times(settings), member_of(_text(row))
    return View(
        now_us,
        FleetState.load(_text(state)) or FleetState(),
        Epoch.load(_text(epoch)) or Epoch(),
        _times(grants),
        frozenset(_times(refunded)),
        revision=_us(revision),
        run_id=_text(run_id),
        culls=_rows(culls, Cull),
        leases=_rows(leases, Slot),
        holds=_rows(holds, HoldRow),
        settings=settings_in_force(heard, now_us),
        settings_texts=tuple(heard),
        alive=_number(alive),
        beating={name: member_incarnation(text) for name, text in _table(beating).items()},
        newest_us=max(_times(newest).values(), default=0),
        causes=_counts(causes),
        control={word: number for word, number in _counts(control).items() if number > 0},
        incarnation=member.incarnation,
        identity=member.identity,
        seen_us=_us(seen),
        departed_us=_us(departed),
        median_errors=_number(median_errors),
    )


def beat_reply(reply: object) -> BeatReply:
    """The reply of ``beat.lua``."""
    now, records, alive, silent, struck, former, causes, policies, errors, ratio, *rest = _list(reply, _BEAT)
    holds, used, run_id = rest
    epoch, state, _ = _list(records, 3)
    of_service, of_instance = _list(holds, 2)
    return BeatReply(
        now_us=_number(now),
        epoch=Epoch.load(_text(epoch)) or Epoch(),
        state=FleetState.load(_text(state)) or FleetState(),
        alive=_number(alive),
        silent=_number(silent),
        struck=tuple(_text(name) for name in _list(struck)),
        former=_text(former),
        causes=_counts(causes),
        policies=_number(policies),
        median_errors=_number(errors),
        median_ratio=_number(ratio),
        holds=(HoldRow.load(_text(of_service)), HoldRow.load(_text(of_instance))),
        used=_number(used),
        run_id=_text(run_id),
    )


def committed(reply: object) -> tuple[int, int, int]:
    """The reply of ``commit.lua``: 1 done, 0 conflict or -1 over; the time; the number of new entries."""
    word, now, noted = (_number(value) for value in _list(reply, 3))
    if word not in (1, 0, -1) or noted < 0:
        raise InvalidReplyError("neither done nor refused")
    return word, now, noted


def count(reply: object) -> int:
    """A count."""
    if (number := _number(reply)) < 0:
        raise InvalidReplyError("not a count")
    return number


def times(reply: object) -> list[tuple[bytes, int]]:
    """Names as bytes, each with its time, in order."""
    return [(_bytes(name), _us(at)) for name, at in zip(*_columns(reply), strict=True)]


def texts(reply: object) -> list[str]:
    """Values of a hash, ``""`` for missing ones."""
    return [_text(value) for value in _list(reply)]


def names(reply: object) -> list[bytes]:
    """The names of a hash as bytes."""
    return [_bytes(name) for name in _columns(reply)[0]]


def minutes(reply: object) -> dict[int, int]:
    """Counts by minute."""
    return {_us(minute): _us(count) for minute, count in zip(*_columns(reply), strict=True)}


def listing(
    alive: list[tuple[bytes, int]],
    rows: list[str],
    abouts: list[str],
    left: list[tuple[bytes, int]],
    culled: dict[bytes, str],
) -> Listing:
    """The listing from members with their rows and reports, departed members, and reports of culled ones."""
    if not len(alive) == len(rows) == len(abouts):
        raise InvalidReplyError("not as many as expected")
    members = [(_text(name), at, row, about) for (name, at), row, about in zip(alive, rows, abouts, strict=True)]
    reports = {_text(name): about for name, about in culled.items() if about}
    return Listing(members, [(_text(name), at) for name, at in left], reports)


def _list(reply: object, length: int | None = None) -> list[Any]:
    if not isinstance(reply, list) or length not in (None, len(reply)):
        raise InvalidReplyError("not a list of the expected length")
    return reply


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise InvalidReplyError("not a number")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidReplyError("not a text")
    return value


def _us(value: Any) -> int:
    """A whole number from its digits; 0 for None."""
    if value is None:
        return 0
    try:
        return int(value) if value.isdigit() else int(float(value))
    except (AttributeError, ValueError, OverflowError):
        raise InvalidReplyError("not a whole number") from None


def _text(value: object) -> str:
    return "" if value is None else _decoded([value])[0]


def _decoded(values: list[Any]) -> list[str]:
    """The texts of several values."""
    try:
        return [value.decode() for value in values]
    except (AttributeError, UnicodeDecodeError):
        return [_name(_bytes(value)) or value.decode("utf-8", "surrogateescape") for value in values]


def _name(value: bytes) -> str | None:
    """The text for which ``encoded`` gives these bytes; None if there is none."""
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _columns(reply: object) -> tuple[list[Any], list[Any]]:
    """Names and values of a list that alternates them."""
    both = _list(reply)
    if len(both) % 2:
        raise InvalidReplyError("not pairs")
    return both[::2], both[1::2]


def _table(reply: object) -> dict[str, str]:
    names, texts = _columns(reply)
    try:
        return dict(zip([name.decode() for name in names], _decoded(texts), strict=True))
    except (AttributeError, UnicodeDecodeError):
        rows = zip([_name(_bytes(name)) for name in names], _decoded(texts), strict=True)
        return {name: text for name, text in rows if name is not None}


def _rows(reply: object, kind: type[R]) -> dict[str, R]:
    """The records of a table; rows that cannot be read are left out."""
    return {name: row for name, text in _table(reply).items() if (row := kind.load(text)) is not None}


def _times(reply: object) -> dict[str, int]:
    names, times = _columns(reply)
    return dict(zip(_decoded(names), map(_us, times), strict=True)) if names else {}


def _counts(reply: object) -> dict[str, int]:
    """Counts by name, without values that are no count."""
    names, numbers = _columns(reply)
    counts = zip(_decoded(names), map(_bytes, numbers), strict=True)
    return {name: int(number) for name, number in counts if number.removeprefix(b"-").isdigit()}
