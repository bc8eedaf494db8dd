"""The members of the fleet, for people: each sidecar's description of its container, and the list of all members.

A description is a short line: ``state|since|incarnation|weight|errors|limit|version|born|settings``. Its last two
fields may be missing. The version may be followed by the node and the version of the app, each on a line of its own
within the field: version 0.2 reads no further field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from sidecar.core.claims import Fleet, Presence
from sidecar.core.fleet.fleet_events import fleet_of
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.view import BeatReply, Listing, View
from sidecar.core.types import US_PER_S, Hold, State

_LONGEST_INCARNATION: Final = 120
_LONGEST_VERSION: Final = 50
_LONGEST_TRAIT: Final = 64
_LATEST: Final = 99_999_999_999
"""In the year 5138: an instant has to fit into a date."""

AS_AT_FIRST: Final = (1, 0, 0)
"""Limit, culls without an outcome, and failures of a trial when it begins."""

MOST_GRANTS: Final = 100
MOST_DEPARTED: Final = 100
"""Bounds of the list: tokens in use, and members that have left."""

FIELDS: Final = 3
"""Number of fields of a member row: incarnation, cause, and whether it was refused."""


class About(NamedTuple):
    """A sidecar's description of its container, and what led to its state."""

    state: State
    since: int
    """Unix seconds."""
    incarnation: str
    weight: int
    """Percent."""
    errors: int
    """In the window, against their limit."""
    limit: int
    version: str
    """Of the sidecar."""
    born: int = 0
    """Unix seconds at which the incarnation began; 0: unknown."""
    settings: str = ""
    """``digest_of`` the sidecar's settings; empty: unknown, as in the two below."""
    node: str = ""
    app_version: str = ""

    def dump(self) -> str:
        """The line; long texts are cut."""
        traits = [_field(trait, _LONGEST_TRAIT) for trait in (self.node, self.app_version)]
        version = "\n".join([_field(self.version, _LONGEST_VERSION), *(traits if any(traits) else [])])
        incarnation = _field(self.incarnation, _LONGEST_INCARNATION)
        numbers = (self.weight, self.errors, self.limit)
        fields = (self.state, self.since, incarnation, *numbers, version, self.born)
        return "|".join(map(str, (*fields, self.settings) if self.settings else fields))

    @classmethod
    def load(cls, line: str) -> About | None:
        """The description in the line; None if it is none."""
        try:
            state, since, incarnation, weight, errors, limit, version, *more = line.split("|")
            born, settings = (*more, *("0", "")[len(more) :])
            version, node, app_version = (*version.split("\n"), "", "")[:3]
            numbers = (int(weight), int(errors), int(limit))
            about = cls(State(state), int(since), unquote(incarnation), *numbers, unquote(version), int(born), settings)
        except ValueError:
            return None
        is_dated = 0 <= about.since <= _LATEST and 0 <= about.born <= _LATEST
        return about._replace(node=unquote(node), app_version=unquote(app_version)) if is_dated else None


class Member(NamedTuple):
    """One container of the fleet."""

    instance: str
    presence: Presence
    """``well``, ``suspect`` or ``down``."""
    kind: str
    """The cause, if it is suspect or down."""
    age_s: float
    """Since its last beat, or its cull."""
    about: About | None = None
    """The last description by its sidecar; None: unknown."""
    duplicate: bool = False
    """Two containers use its name."""


class MemberList(NamedTuple):
    """The fleet, for people."""

    fleet: Fleet
    used: int
    """Tokens in use within the caller's own window."""
    members: tuple[Member, ...] = ()
    """The first by name."""
    holds: tuple[Hold, ...] = ()
    settings: tuple[str, ...] = ()
    """The different settings in force, each as JSON."""
    grants: tuple[float, ...] = ()
    """Unix seconds at which tokens in use were taken, ascending, at most ``MOST_GRANTS``."""
    departed: tuple[tuple[str, float], ...] = ()
    """Members that left or fell silent within the window and were not replaced, each with the seconds since.

    The newest first, at most ``MOST_DEPARTED``.
    """


def digest_of(settings: str) -> str:
    """Eight hexadecimal digits that tell the settings of a sidecar (their text in the store) from others."""
    return blake2b(settings.encode(errors="surrogatepass"), digest_size=4).hexdigest()


def members_json(
    members: Sequence[Member], departed: Sequence[tuple[str, float]]
) -> dict[str, Iterator[dict[str, Any]]]:
    """Members, present and departed, as JSON values; an iterator each, because there may be thousands."""
    return {
        "members": (
            {
                **member._asdict(),
                "presence": presence_word(member.presence),
                "age_s": round(member.age_s, 3),
                "about": member.about and member.about._asdict(),
            }
            for member in members
        ),
        "departed": ({"instance": instance, "age_s": round(age_s, 3)} for instance, age_s in departed),
    }


def presence_word(presence: Presence) -> str:
    """The word for people and programs: the store says ``well`` for a container that is up."""
    return "up" if presence is Presence.WELL else presence.value


def fleet_json(value: Fleet) -> dict[str, Any]:
    """The fleet as JSON values: trials by the names of their fields, and the paused causes.

    A trial that is as at its beginning is left out: the store keeps it for an hour after the last cull.
    """
    trials = [
        {**trial._asdict(), "paused_s": round(trial.paused_s, 3)}
        for trial in value.trials
        if (trial.limit, trial.out, trial.failures) != AS_AT_FIRST
    ]
    holds = {"hold": hold_json(value.hold), "lost_hold": hold_json(value.lost_hold)}
    down = value.down - value.draining
    return {
        **value._asdict(),
        "down": down,
        "trials": trials,
        "paused": list(value.paused),
        **holds,
    }


def hold_json(value: Hold | None) -> dict[str, Any] | None:
    """A hold and its scope as JSON values."""
    return None if value is None else {"scope": "instance" if value.instance else "service", **value._asdict()}


def _field(text: str, most: int) -> str:
    """The text without the separators of the line, cut to ``most`` characters."""
    return text[:most].encode(errors="replace").decode().replace("%", "%25").replace("|", "%7C").replace("\n", "%0A")


def present(view: View, rows: Iterable[tuple[str, int, str, str]]) -> dict[str, Member]:
    """Some members of a listing by name. Reading thousands at once would take 8 ms."""
    return {row[0]: _member(view, *row) for row in rows}


def member_list_of(
    view: View, listing: Listing, members: Mapping[str, Member], settings: FleetSettings, *, most: int
) -> MemberList:
    """The fleet as the view has it, and its first ``most`` by name: ``members`` of the listing, and who is missing."""
    now_us, in_use = view.now_us, _in_use(view, settings)
    rows = {**members, **_missing(view, listing)}
    in_force = (row.shown(scope) for scope, row in sorted(view.holds.items()) if row.left_us(now_us))
    departed = [(name, (now_us - at) / US_PER_S) for name, at in listing.departed if name not in rows]
    return MemberList(
        fleet_of(_as_reply(view, len(in_use), rows), settings, ""),
        len(in_use),
        tuple(rows[name] for name in sorted(rows)[:most]),
        tuple(in_force),
        tuple(sorted(view.settings_texts)),
        tuple(at / US_PER_S for at in in_use[:MOST_GRANTS]),
        tuple(departed[:MOST_DEPARTED]),
    )


def _member(view: View, instance: str, heard_us: int, row: str, about: str) -> Member:
    parts = row.rsplit("\n", 2)
    cause = parts[1] if len(parts) == FIELDS else ""
    presence = Presence.SUSPECT if cause else Presence.WELL
    age_s = max(0, view.now_us - heard_us) / US_PER_S
    is_duplicate = instance in view.state.duplicates
    return Member(instance, presence, cause, age_s, About.load(about) if about else None, is_duplicate)


def _missing(view: View, listing: Listing) -> dict[str, Member]:
    """The containers that were granted a token or a lease and are not replaced, with their last descriptions."""
    abouts = {name: about for name, _, _, about in listing.members if about} | dict(listing.culled)
    return {
        name: Member(
            name,
            Presence.DOWN,
            cull.cause,
            max(0, view.now_us - cull.at_us) / US_PER_S,
            About.load(abouts[name]) if abouts.get(name) else None,
            name in view.state.duplicates,
        )
        for name, cull in view.culls.items()
        if cull.phase == "out"
    }


def _in_use(view: View, settings: FleetSettings) -> list[int]:
    """When each token in use was granted, in ascending order."""
    oldest_us = view.now_us - settings.window_us
    return sorted(at for claim, at in view.grants.items() if claim not in view.refunded and at >= oldest_us)


def _as_reply(view: View, used: int, rows: Mapping[str, Member]) -> BeatReply:
    drain = (row.about for row in rows.values() if row.presence is Presence.DOWN)
    return BeatReply(
        view.now_us,
        view.epoch,
        view.state,
        alive=view.alive,
        causes=view.causes,
        settings=max(1, len(view.settings_texts)),
        holds=view.holds,
        used=used,
        run_id=view.run_id,
        median_errors=view.median_errors,
        draining=sum(about is not None and about.state is State.DRAINING for about in drain),
    )
