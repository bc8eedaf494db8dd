"""What stands in Redis: the scripts with their keys, and rows, entries and replies as the values of this program.

A reader of a reply raises one of ``UNREADABLE`` for anything that no command of this program gives. Texts are the
exception. Other sidecars wrote them, of other versions too, and an unreadable text must not hide the others: a byte
that is not UTF-8 is kept as a surrogate. A table row whose name has such a byte is skipped, because no sidecar could
write that name again.

Each entry of the ledger is written once, also if a sidecar sends it again after a lost reply: the store remembers a
digest of the entry for a day, or for ten minutes the key that is the same in all sidecars that saw the event
(``Entry.once``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from hashlib import blake2b, sha1
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, StoredRecord
from sidecar.core.fleet.view import BeatReply, MemberKey, View, settings_in_force
from sidecar.core.types import DETAIL_LIMIT, ENTRY_WORDS, Entry

R = TypeVar("R", bound=StoredRecord)

ENCODING_ERRORS: Final = "surrogatepass"
"""Texts are UTF-8, also those with half a surrogate pair, which JSON allows."""

UNREADABLE: Final = (TypeError, ValueError, LookupError, AttributeError, OverflowError)
"""What these functions raise for a reply that no command of this program gives."""

_LUA: Final = Path(__file__).with_name("lua")
_TEXT_LIMITS: Final = {
    **dict.fromkeys(("instance", "kind", "reason", "author"), 500),
    "detail": DETAIL_LIMIT,
    **dict.fromkeys(("node", "app_version"), 64),
}
"""Text of an entry -> its maximum number of characters."""

_ID: Final = re.compile(r"([0-9]{1,20})-[0-9]{1,20}")
_MAX_TIME_S: Final = 1e11
"""In the year 5138: a time has to fit into a date."""


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


# -- the ledger ---------------------------------------------------------------------------------------------------


def fields_of(entry: Entry) -> Iterator[str]:
    """The arguments of ``commit.lua`` for the entry: its word, whether several share it, its names and values."""
    fields = list(_fields(entry))
    yield entry.once or blake2b("\0".join(fields).encode(errors=ENCODING_ERRORS), digest_size=16).hexdigest()
    yield str(int(bool(entry.once)))
    yield str(len(fields))
    yield from fields


def _fields(entry: Entry) -> Iterator[str]:
    yield from ("what", entry.what)
    for name, longest in _TEXT_LIMITS.items():
        if text := getattr(entry, name)[:longest]:
            yield from (name, text)
    if entry.seconds is not None and math.isfinite(entry.seconds):
        yield from ("seconds", f"{entry.seconds:.3f}")
    if entry.at:
        yield from ("at", f"{entry.at:.6f}")


def start_id(since: float, after: str) -> str:
    """The first id to read: after the id ``after``, else written ``since`` (Unix seconds)."""
    return f"({after}" if _ID.fullmatch(after) else str(round(min(max(since, 0), _MAX_TIME_S) * 1000))


def entries(reply: Any) -> list[tuple[str, Entry | None]]:
    """Ids of a stream, each with its entry; None if no sidecar wrote it."""
    return [_entry_or_none(_bytes(name).decode(), flat) for name, flat in reply]


def _entry_or_none(name: str, flat: Any) -> tuple[str, Entry | None]:
    match = _ID.fullmatch(name)
    if match is None:
        raise ValueError("not an id of a stream")
    try:
        return name, _entry(name, int(match[1]) / 1000, flat)
    except (ValueError, TypeError, AttributeError):
        return name, None


def _entry(name: str, arrived_at: float, flat: Any) -> Entry:
    """The entry from a list of names and values. Raises ValueError, TypeError or AttributeError for others."""
    texts = [value.decode(errors=ENCODING_ERRORS) for value in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    what = fields.get("what")
    if what not in ENTRY_WORDS:
        raise ValueError("not an entry of ours")
    seconds = _time(fields["seconds"]) if "seconds" in fields else None
    about = {name: fields.get(name, "")[:longest] for name, longest in _TEXT_LIMITS.items()}
    return Entry(what, _time(fields.get("at", arrived_at)), seconds=seconds, id=name, **about)


def _time(seconds: str | float) -> float:
    if not 0 <= (number := float(seconds)) <= _MAX_TIME_S:
        raise ValueError("not a time of ours")
    return number


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
