"""What a store returns of a fleet: texts, instants and counts that are not read as records yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Raw:
    """What the store holds at one instant, for a claim or another request of one instance.

    ``now_us``: the store's clock. ``revision``: grows with each commit; 0: nothing was ever committed. ``epoch`` and
    ``state``: texts of these records, ``""`` where there is none. ``culls``, ``leases`` and ``holds``: whole tables,
    texts by instance. ``settings``: texts of the settings in force, and when a beat last brought each. ``alive``:
    members that beat within the expiry. ``beating``: of the instances in ``culls``, those that beat within the expiry,
    each with the member row as below. ``newest_us``: the latest beat of any member. ``causes``: suspects by cause.
    ``control``: ``"<refused|recovered|ended>|<cause>"``, suspects that were refused, and of these that recovered or
    ended otherwise. ``grants``: claim ids of the last two windows and when each was granted; ``refunded``: those of
    them whose token was given back. ``member``: the requester's own row, four lines: incarnation, identity (left out if
    it has none), cause (empty unless it is suspect), ``0`` or ``1`` (refused). ``seen_us``: its last beat,
    ``departed_us``: when it left or was struck off; 0: not known.
    ``run_id``: names the server process; ``""`` if the server does not tell. ``median_errors`` as in ``BeatReply``.
    """

    now_us: int
    revision: int = 0
    epoch: str = ""
    state: str = ""
    culls: Mapping[str, str] = field(default_factory=dict)
    leases: Mapping[str, str] = field(default_factory=dict)
    holds: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)
    alive: int = 0
    beating: Mapping[str, str] = field(default_factory=dict)
    newest_us: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)
    control: Mapping[str, int] = field(default_factory=dict)
    grants: Mapping[str, int] = field(default_factory=dict)
    refunded: frozenset[str] = frozenset()
    member: str = ""
    seen_us: int = 0
    departed_us: int = 0
    run_id: str = ""
    median_errors: int = -1


@dataclass(frozen=True, slots=True)
class BeatReply:
    """The store's answer to a beat.

    ``alive``: members, the silent and this one included. ``silent``: how many of them did not beat within the expiry;
    ``struck``: the first hundred of these at most, struck off by this beat. ``former``: the row of this instance before
    (``Raw.member``). ``causes`` as in ``Raw``. ``policies``: different settings in force. ``median_errors`` and
    ``median_ratio``: the upper median of what members reported; -1 if none did. ``holds``: the rows of the hold on the
    service and of that on the instance. ``used``: grants of the last ``window_us`` that were not refunded.
    ``run_id`` as in ``Raw``.
    """

    now_us: int
    epoch: str = ""
    state: str = ""
    alive: int = 0
    silent: int = 0
    struck: tuple[str, ...] = ()
    former: str = ""
    causes: Mapping[str, int] = field(default_factory=dict)
    policies: int = 1
    median_errors: int = -1
    median_ratio: int = -1
    holds: tuple[str, str] = ("", "")
    used: int = 0
    run_id: str = ""


class Listing(NamedTuple):
    """The members, by name, as ``(instance, last beat, member row, description by its sidecar)``.

    ``departed``: instances that left and when, the newest first. ``culled``: instances in the table ``culls``, with the
    last description by their sidecars.
    """

    members: Sequence[tuple[str, int, str, str]] = ()
    departed: Sequence[tuple[str, int]] = ()
    culled: Mapping[str, str] = {}


class MemberKey(NamedTuple):
    """What tells two containers of one name apart: the incarnation, and the random identity that its sidecar keeps."""

    life: str = ""
    identity: str = ""

    def is_other(self, other: MemberKey) -> bool:
        """Whether both are known and differ; an older version tells no identity."""
        return _differ(self.life, other.life) or _differ(self.identity, other.identity)


def member_life(row: str) -> str:
    """The incarnation in a member row."""
    return row.partition("\n")[0]


def member_of(row: str) -> MemberKey:
    """The incarnation and the identity in a member row."""
    life, _, rest = row.partition("\n")
    identity = rest.partition("\n")[0] if rest.count("\n") > 1 else ""
    return MemberKey(life, identity)


def _differ(one: str, other: str) -> bool:
    return bool(one) and bool(other) and one != other
