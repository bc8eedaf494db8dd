"""The records that the fleet keeps in the store, and their form as text.

Every record is a JSON object; ``"f"`` is its format, 1. A reader ignores names that it does not know and takes the
default for missing ones, so that a fleet can run two versions side by side. A text that cannot be read is no record
(``None``), because one bad row must not hide the others. Instants are microseconds of the store's clock (``*_us``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache, lru_cache
from typing import Final, Self, TypeVar, cast

from sidecar.core.types import US_PER_S, Hold, by_name

FORMAT: Final = 1

_encode: Final = json.JSONEncoder(separators=(",", ":"), default=by_name).encode
_LARGEST: Final = 2**60
"""Larger numbers than an instant in the far future are not valid."""

_STORED: Final = {"incarnation": "life", "by_incarnation": "by_life"}
"""Fields whose names in the store are those of version 0.2."""

_DURATIONS: Final = ("for_us", "pause_us")


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record: its conversion to text and back."""

    def dump(self) -> str:
        """The record as text."""
        return _encode({"f": FORMAT, **{_STORED.get(name, name): value for name, value in by_name(self).items()}})

    @classmethod
    def load(cls, text: str) -> Self | None:
        """The record of a text; None if the text is no record."""
        return cast("Self | None", _load(cls, text))  # type: ignore[arg-type]  # a class can be hashed

    def checked(self) -> Self:
        """The record itself. Raises TypeError or ValueError if a field is not of the type of its default."""
        for name, kind in _kinds(type(self)).values():  # type: ignore[arg-type]  # a class can be hashed
            value = getattr(self, name)
            if type(value) is not kind:
                raise TypeError(f"{name} is not of its type")
            if isinstance(value, int) and not -_LARGEST < value < _LARGEST:
                raise ValueError(f"{name} is too large")
        return self


@cache  # every claim reads every row
def _kinds(cls: type[StoredRecord]) -> Mapping[str, tuple[str, type]]:
    """The fields by their names in the store, with the types of their defaults."""
    blank = cls()
    names = [declared.name for declared in fields(cls)]
    return {_STORED.get(name, name): (name, type(getattr(blank, name))) for name in names}


@cache
def instants(cls: type[StoredRecord]) -> tuple[str, ...]:
    """The fields that are instants; the others in microseconds are durations."""
    names = (declared.name for declared in fields(cls))
    return tuple(name for name in names if name.endswith("_us") and name not in _DURATIONS)


R = TypeVar("R", bound=StoredRecord)


@lru_cache(maxsize=512)  # rows hardly ever change from one look to the next
def _load(cls: type[StoredRecord], text: str) -> StoredRecord | None:
    try:
        values = json.loads(text).items()
        kinds = _kinds(cls)  # type: ignore[arg-type]  # a class can be hashed
        return cls(**{kinds[name][0]: value for name, value in values if name in kinds}).checked()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


Counts = Mapping[str, int]


class CullOutcome(StrEnum):
    """Whether a cull helped."""

    HELPED = "helped"
    UNHELPED = "unhelped"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Epoch(StoredRecord):
    """The data-loss epoch of the store, by which sidecars notice a data loss."""

    born_us: int = 0
    """When the epoch began."""
    grants: int = 0
    """Tokens granted since."""
    losses: int = 0
    """Number of data losses."""
    lost_us: int = 0
    """The last data loss."""
    silent_us: int = 0
    """When half of the fleet fell silent at once."""
    servers: str = ""
    """A digest of the address at which the fleet finds the store."""
    granted_us: int = 0
    """The last grant."""
    run_id: str = ""
    """The process of the server."""
    met_us: int = 0
    """When the fleet met this process, if it followed another one."""


@dataclass(frozen=True, slots=True)
class Trial(StoredRecord):
    """The trial of culls for one cause."""

    limit: int = 1
    """Culls without an outcome that are allowed at once."""
    failures: int = 0
    """Culls in a row that did not help."""
    paused_us: int = 0
    """When culls for this cause were paused."""
    pause_us: int = 0
    """How long the pause is."""
    last_us: int = 0
    """The last cull or outcome."""
    began_us: int = 0
    """When the episode began in which the limit was earned; 0 between episodes."""
    quiet_us: int = 0
    """Since when the cause has no suspect; 0 while it has."""

    def pause_left_us(self, now_us: int) -> int:
        """Microseconds until culls for this cause are allowed again; 0: now."""
        return max(0, self.paused_us + self.pause_us - now_us) if self.paused_us else 0


@dataclass(frozen=True, slots=True)
class FleetState(StoredRecord):
    """The state of the fleet as a whole."""

    trials: Mapping[str, Trial] = field(default_factory=dict)
    """By cause."""
    several_us: int = 0
    """When the fleet last had several members."""
    due_us: int = 0
    """When the next thing ends and a decision is due; 0: nothing ends."""
    open_culls: Counts = field(default_factory=dict)
    """Culls without an outcome by cause."""
    missing: int = 0
    """Containers that were granted a token or a lease and are not replaced."""
    retiring: int = 0
    """Slots in use."""
    outcomes: Counts = field(default_factory=dict)
    """Culls by ``"<outcome>|<cause>"``."""
    duplicates: Counts = field(default_factory=dict)
    """Instance names that two containers use, and when that was noticed last."""
    majority_us: int = 0
    """When most of the fleet was last sick."""

    def checked(self) -> Self:
        """The state with its rows by cause as records; a row that cannot be read is left out."""
        for counts in (self.open_culls, self.outcomes, self.duplicates):
            if not all(isinstance(count, int) for count in counts.values()):
                raise TypeError("not counts")
        return StoredRecord.checked(replace(self, trials=_by_cause(self.trials, Trial)))


def _by_cause(raw: Mapping[str, object], kind: type[R]) -> dict[str, R]:
    rows = ((cause, kind.load(json.dumps(row))) for cause, row in raw.items() if isinstance(row, dict))
    return {cause: row for cause, row in rows if row is not None}


@dataclass(frozen=True, slots=True)
class Cull(StoredRecord):
    """A container that was granted a token, or a lease to retire, kept under its instance name.

    Its phases:

    - ``out``: granted, and not replaced yet. It counts as missing.
    - ``watched``: replaced, and the replacement is on probation.
    - ``over``: its outcome is known. The row stays while its sidecar may still beat that it is down.
    """

    claim: str = ""
    """Its claim id, or with ``is_lease`` the holder of its lease."""
    incarnation: str = ""
    cause: str = ""
    at_us: int = 0
    """When it was granted."""
    phase: str = "out"
    is_lease: bool = False
    occupied_us: int = 0
    """Until then its place is taken: an expiry after the last beat of its sidecar, or until that one said goodbye."""
    down_us: int = 0
    """The last beat that said it is down."""
    by: str = ""
    """The instance that replaced it, with its incarnation."""
    by_incarnation: str = ""
    since_us: int = 0
    """When it was replaced, or its outcome became known."""
    well_us: int = 0
    """Since when the replacement is well; 0: it never was."""
    refused: int = 0
    """Suspects of the cause that were refused a token, at the grant; of them recovered and ended."""
    recovered: int = 0
    ended: int = 0
    identity: str = ""
    """That of the container, as in ``Claim``."""

    def heard_us(self, expiry_us: int) -> int:
        """When its sidecar beat last, as far as ``occupied_us`` tells."""
        said_goodbye = self.occupied_us < max(self.at_us, self.down_us) + expiry_us
        return self.occupied_us if said_goodbye else self.occupied_us - expiry_us


@dataclass(frozen=True, slots=True)
class Slot(StoredRecord):
    """The lease of one retirement, kept under the instance that has to be well for the lease to end."""

    holder: str = ""
    """The random id of the lease."""
    incarnation: str = ""
    """That of the container that retires."""
    at_us: int = 0
    """When it began."""
    for_us: int = 0
    """How long it lasts."""
    arrived: bool = False
    """The container was replaced by this instance."""

    def left_us(self, now_us: int) -> int:
        """Microseconds until it is over; 0: it is."""
        return max(0, self.at_us + self.for_us - now_us)


@dataclass(frozen=True, slots=True)
class HoldRow(StoredRecord):
    """A hold, kept under its instance, or under ``""`` for the service."""

    author: str = ""
    reason: str = ""
    at_us: int = 0
    """When it began."""
    for_us: int = 0
    """How long it lasts; 0: it is released."""

    def left_us(self, now_us: int) -> int:
        """Microseconds until it is over; 0: it is."""
        return max(0, self.at_us + self.for_us - now_us)

    def shown(self, scope: str) -> Hold:
        """The hold on this instance, or on the service, as it is shown to people."""
        return Hold(self.author, self.reason, (self.at_us + self.for_us) / US_PER_S, scope)
