"""What stands in Redis: the scripts with their keys, and rows and replies as the values of this program.

A reader of a reply raises one of ``UNREADABLE`` for anything that no command of this program gives. Texts are the
exception. Other sidecars wrote them, of other versions too, and an unreadable text must not hide the others: a byte
that is not UTF-8 is kept as a surrogate. A table row whose name has such a byte is skipped, because no sidecar could
write that name again.
"""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, StoredRecord
from sidecar.core.fleet.view import BeatReply, MemberKey, View, settings_in_force

R = TypeVar("R", bound=StoredRecord)

ENCODING_ERRORS: Final = "surrogatepass"
"""Texts are UTF-8, also those with half a surrogate pair, which JSON allows."""

UNREADABLE: Final = (TypeError, ValueError, LookupError, AttributeError, OverflowError)
"""What these functions raise for a reply that no command of this program gives."""

_LUA: Final = Path(__file__).with_name("lua")


# -- scripts ------------------------------------------------------------------------------------------------------


class Script(NamedTuple):
    """A Lua file, which a server knows by its digest, and its keys in order.

    It runs on every server since Redis 6.2. Redis functions would need Redis 7 and the permission to install them.
    """

    name: str
    keys: tuple[str, ...]
    sha: str

    @property
    def text(self) -> bytes:
        """The Lua text. A server needs it once, so it is not kept in memory."""
        return (_LUA / f"{self.name}.lua").read_bytes()


def _script(name: str, *keys: str) -> Script:
    script = Script(name, keys, "")
    return script._replace(sha=sha1(script.text, usedforsecurity=False).hexdigest())


_TABLES: Final = ("state", "culls", "leases", "holds")
_MEMBERS: Final = (
    *(*_TABLES, "settings", "alive", "members", "causes", "control"),
    *("grants", "refunded", "departed", "errors"),
)
READ: Final = _script("read", *_MEMBERS)
COMMIT: Final = _script("commit", *_TABLES, "grants", "refunded", "events", "noted", "alive", "abouts")
BEAT: Final = _script("beat", *_MEMBERS, "ratios", "abouts")


# -- replies ------------------------------------------------------------------------------------------------------


def view(reply: Any) -> View:
    """The reply of ``read.lua``."""
    fields = _by_name(reply)
    now_us, heard = _number(fields["now"]), times(fields["settings"])
    return View(
        now_us,
        FleetState.load(_text(fields["state"])) or FleetState(),
        Epoch.load(_text(fields["epoch"])) or Epoch(),
        times(fields["grants"]),
        frozenset(times(fields["refunded"])),
        revision=_us(fields["revision"]),
        run_id=_text(fields["run_id"]),
        culls=_rows(fields["culls"], Cull),
        leases=_rows(fields["leases"], Slot),
        holds=_rows(fields["holds"], HoldRow),
        settings=settings_in_force(heard, now_us),
        settings_texts=tuple(heard),
        alive=_number(fields["alive"]),
        beating={name: MemberKey.load(row).incarnation for name, row in _table(fields["beating"]).items()},
        newest_us=max(times(fields["newest"]).values(), default=0),
        causes=_counts(fields["causes"]),
        control={word: number for word, number in _counts(fields["control"]).items() if number > 0},
        member=MemberKey.load(_text(fields["own_row"])),
        seen_us=_us(fields["own_beat"]),
        departed_us=_us(fields["departed"]),
        median_errors=_number(fields["median_errors"]),
    )


def beat_reply(reply: Any, instance: str) -> BeatReply:
    """The reply of ``beat.lua`` to this instance."""
    fields = _by_name(reply)
    holds = zip(("", instance), _list(fields["holds"]), strict=True)
    numbers = ("alive", "silent", "settings", "median_errors", "median_ratio", "used", "draining")
    return BeatReply(
        now_us=_number(fields["now"]),
        epoch=Epoch.load(_text(fields["epoch"])) or Epoch(),
        state=FleetState.load(_text(fields["state"])) or FleetState(),
        struck=tuple(texts(fields["struck"])),
        former=_text(fields["former"]),
        causes=_counts(fields["causes"]),
        holds={scope: row for scope, text in holds if (row := HoldRow.load(_text(text))) is not None},
        run_id=_text(fields["run_id"]),
        **{name: _number(fields[name]) for name in numbers},
    )


def committed(reply: Any) -> tuple[int, int, int]:
    """The reply of ``commit.lua``: 1 done, 0 conflict or -1 over; the time; the number of new entries."""
    word, now, noted = map(_number, reply)
    if word not in (1, 0, -1) or noted < 0:
        raise ValueError("neither done nor refused")
    return word, now, noted


def count(reply: Any) -> int:
    """A count."""
    if (number := _number(reply)) < 0:
        raise ValueError("not a count")
    return number


def times(reply: Any) -> dict[str, int]:
    """Names, each with its time, in order."""
    return {_text(name): _us(at) for name, at in _pairs(reply)}


def texts(reply: Any) -> list[str]:
    """Values of a hash, ``""`` for missing ones."""
    return [_text(value) for value in _list(reply)]


def names(reply: Any) -> list[str]:
    """The names of a hash."""
    return [_text(name) for name, _ in _pairs(reply)]


# -- values -------------------------------------------------------------------------------------------------------


def _list(reply: Any) -> list[Any]:
    if not isinstance(reply, list):
        raise TypeError("not a list")
    return reply


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("not a number")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("not a text")
    return value


def _us(value: Any) -> int:
    """A whole number from its digits; 0 for None."""
    if value is None:
        return 0
    return int(value) if _bytes(value).isdigit() else int(float(value))


def _text(value: Any) -> str:
    """The text of these bytes, ``""`` for None."""
    if value is None:
        return ""
    try:
        return _bytes(value).decode(errors=ENCODING_ERRORS)
    except UnicodeDecodeError:
        return _bytes(value).decode(errors="surrogateescape")


def _pairs(reply: Any) -> zip[tuple[Any, Any]]:
    """Names and values of a list that alternates them."""
    both = _list(reply)
    return zip(both[::2], both[1::2], strict=True)


def _by_name(reply: Any) -> dict[str, Any]:
    """The values of a script's reply by the names that the script gives them."""
    return {_bytes(name).decode(): value for name, value in _pairs(reply)}


def _table(reply: Any) -> dict[str, str]:
    rows = {}
    for name, value in _pairs(reply):
        try:
            rows[_bytes(name).decode(errors=ENCODING_ERRORS)] = _text(value)
        except UnicodeDecodeError:
            continue
    return rows


def _rows(reply: Any, kind: type[R]) -> dict[str, R]:
    """The records of a table; rows that cannot be read are left out."""
    return {name: row for name, text in _table(reply).items() if (row := kind.load(text)) is not None}


def _counts(reply: Any) -> dict[str, int]:
    """Counts by name, without values that are no count."""
    counts = ((_text(name), _bytes(number)) for name, number in _pairs(reply))
    return {name: int(number) for name, number in counts if number.removeprefix(b"-").isdigit()}
