"""A fleet over ``decide`` alone: its records are kept as texts, and the clock moves only with ``advance``.

There is no store and no budget: the edits of ``decide`` are written, and a grant over the bound is an error.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from sidecar.core.fleet.decide import decide
from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot
from sidecar.core.fleet.summary import Reading, fleet_of, is_due
from sidecar.core.fleet.view import (
    Asked,
    Attend,
    Attended,
    BeatReply,
    Edits,
    EndHold,
    Known,
    PutHold,
    Raw,
    Request,
    ReturnGrant,
    View,
)
from sidecar.core.types import (
    US_PER_S,
    Answer,
    Beat,
    Claim,
    Denied,
    Entry,
    Fleet,
    Granted,
    Hold,
    LeaseRequest,
    Presence,
)

START_US = 1_700_000_000 * US_PER_S
TERMS = FleetSettings(servers="one")
SPACE = "c{:02}"


def names(count: int) -> list[str]:
    """``c00``, ``c01`` and so on."""
    return [SPACE.format(number) for number in range(count)]


def word(answer: Answer) -> str:
    """``granted``, or the reason of the refusal."""
    return answer.reason if isinstance(answer, Denied) else type(answer).__name__.lower()


@lru_cache(maxsize=16)
def _state(text: str) -> FleetState:
    return FleetState.load(text) or FleetState()


@lru_cache(maxsize=16)
def _epoch(text: str) -> Epoch:
    return Epoch.load(text) or Epoch()


class Row(NamedTuple):
    """A member as the store knows it."""

    at_us: int
    life: str = "0"
    cause: str = ""
    refused: bool = False

    @property
    def text(self) -> str:
        return f"{self.life}\n{self.cause}\n{int(self.refused)}"


@dataclass
class Kept:
    """The data of one server: texts, instants and counts."""

    epoch: str = ""
    state: str = ""
    culls: dict[str, str] = field(default_factory=dict)
    leases: dict[str, str] = field(default_factory=dict)
    holds: dict[str, str] = field(default_factory=dict)
    grants: dict[str, int] = field(default_factory=dict)
    refunded: set[str] = field(default_factory=set)
    members: dict[str, Row] = field(default_factory=dict)
    departed: dict[str, int] = field(default_factory=dict)
    control: Counter[str] = field(default_factory=Counter)
    settings: dict[str, int] = field(default_factory=dict)


@dataclass
class Sidecar:
    """The state of one sidecar: the incarnation of its container, and the server at their last exchange."""

    life: int = 0
    epoch: Epoch = field(default_factory=Epoch)
    store_us: int = 0
    own_us: int = 0
    refused: bool = False
    is_watched: bool = False
    waits_since_us: int | None = None


class FleetModel:
    """A fleet, its records and its sidecars, with the same terms unless a call changes them.

    ``median_errors``: what the store tells as the median of all windows; -1: nothing.
    """

    def __init__(self, terms: FleetSettings | None = None) -> None:
        self.terms = terms or TERMS
        self.kept = Kept()
        self.run_id = "1"
        self.now_us = START_US
        self.own_us = 0
        self.sidecars: dict[str, Sidecar] = {}
        self.entries: list[Entry] = []
        self.decisions = 0
        self.median_errors = -1

    # -- time ---------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.now_us += round(seconds * US_PER_S)
        self.own_us += round(seconds * US_PER_S)

    def steps(self, seconds: float) -> None:
        """Set the clock of the store; for the sidecars no time passes."""
        self.now_us += round(seconds * US_PER_S)

    # -- what sidecars ask --------------------------------------------------------------------------------------

    def claim(self, instance: str, kind: str = "redis", *, claim_id: str = "", **terms: object) -> Answer:
        """Ask for a token; the claim id is that of the incarnation unless it is given."""
        sidecar = self.sidecar(instance)
        asked = Claim(claim_id or f"{instance}/{sidecar.life}", instance, str(sidecar.life), kind)
        answer: Answer = self.ask(asked, instance, **terms)
        sidecar.refused |= isinstance(answer, Denied)
        return answer

    def retire(self, instance: str, *, slots: str = "1", timeout_s: float = 600.0, **terms: object) -> Answer:
        life = self.sidecar(instance).life
        lease = LeaseRequest(f"h-{instance}-{life}", instance, str(life), slots, timeout_s)
        answer: Answer = self.ask(lease, instance, **terms)
        return answer

    def give_back(self, instance: str, *, is_lease: bool = False) -> bool:
        life = self.sidecar(instance).life
        holder = f"h-{instance}-{life}" if is_lease else f"{instance}/{life}"
        return bool(self.ask(ReturnGrant(instance, holder), instance))

    def hold(self, instance: str = "", for_s: float = 60.0) -> Hold:
        held: Hold = self.ask(PutHold(instance, "ada", "look", round(for_s * US_PER_S)), instance)
        return held

    def release(self, instance: str = "") -> bool:
        return bool(self.ask(EndHold(instance), instance))

    def beat(self, instance: str, *arguments: Any, **named: Any) -> Fleet:
        """Send a beat; the fleet after it."""
        self.send_beat(instance, *arguments, **named)
        return self.fleet(instance)

    def send_beat(
        self,
        instance: str,
        presence: Presence = Presence.WELL,
        kind: str = "redis",
        *,
        first: bool = False,
        is_lease: bool = False,
        **terms: object,
    ) -> None:
        """Send a beat, with the decision that is due then, if any."""
        sidecar = self.sidecar(instance)
        if presence is not Presence.SUSPECT:
            sidecar.refused = False
        is_down = presence is Presence.DOWN
        beat = Beat(
            instance,
            str(sidecar.life),
            presence,
            kind,
            f"{instance}/{sidecar.life}" if is_down and not is_lease else "",
            first=first or sidecar.waits_since_us is not None,
            lease=f"h-{instance}-{sidecar.life}" if is_down and is_lease else "",
            refused=sidecar.refused,
        )
        asked_by = self._terms(terms)
        reading = self._reading(self._hear(beat, asked_by))
        if sidecar.is_watched or is_due(reading, beat, self._known(sidecar), asked_by):
            waited_us = 0 if sidecar.waits_since_us is None else self.own_us - sidecar.waits_since_us
            attend = Attend(beat, reading.reply.struck, reading.reply.silent, reading.reply.alive, waited_us)
            attended: Attended = self.ask(attend, instance, **terms)
            sidecar.is_watched = attended.is_watched
            sidecar.waits_since_us = self.own_us - waited_us if attended.is_waiting else None
        else:
            self._learn(sidecar)

    def ask(self, asked: Asked, instance: str = "", **terms: object) -> Any:
        """Decide by the current records, and write the edits."""
        sidecar = self.sidecar(instance)
        view = self.view(instance)
        answer, edits = decide(view, Request(asked, self._terms(terms), self._known(sidecar)))
        self.decisions += 1
        self._write(edits)
        self._learn(sidecar)
        return answer

    # -- many ---------------------------------------------------------------------------------------------------

    def beat_all(self, *instances: str, presence: Presence = Presence.WELL, kind: str = "redis") -> None:
        for instance in instances:
            self.send_beat(instance, presence, kind)

    def advance_beating(self, seconds: float, *instances: str, presence: Presence = Presence.WELL) -> None:
        """Let time pass while these beat every ten seconds and at the end."""
        end_us = self.now_us + round(seconds * US_PER_S)
        while self.now_us < end_us:
            self.advance(min(10 * US_PER_S, end_us - self.now_us) / US_PER_S)
            self.beat_all(*instances, presence=presence)

    def replaced(self, instance: str, presence: Presence = Presence.WELL, *, under: str = "") -> Fleet:
        """Send the first beat of a replacement: under the name of the old container, or ``under`` another."""
        if under:
            return self.beat(under, presence, first=True)
        life = self.sidecar(instance).life
        self.sidecars[instance] = Sidecar(life + 1)
        return self.beat(instance, presence, first=True)

    def claim_and_go_down(self, instance: str, kind: str = "redis") -> None:
        """Get a token, and go down."""
        assert isinstance(self.claim(instance, kind), Granted)
        self.beat(instance, Presence.DOWN, kind)

    # -- what is kept -------------------------------------------------------------------------------------------

    def sidecar(self, instance: str) -> Sidecar:
        return self.sidecars.setdefault(instance, Sidecar())

    def view(self, instance: str = "") -> View:
        return View.of(self.raw(instance))

    def raw(self, instance: str = "") -> Raw:
        kept, oldest, latest = self.kept, self.now_us - self.terms.expiry_us, self.now_us + US_PER_S
        alive = {name: row for name, row in kept.members.items() if oldest <= row.at_us <= latest}
        own = kept.members.get(instance)
        return Raw(
            self.now_us,
            epoch=kept.epoch,
            state=kept.state,
            culls=dict(kept.culls),
            leases=dict(kept.leases),
            holds=dict(kept.holds),
            settings=dict(kept.settings),
            alive=len(alive),
            beating={name: alive[name].text for name in kept.culls if name in alive},
            newest_us=max((row.at_us for row in kept.members.values()), default=0),
            causes=self._causes(),
            control=dict(kept.control),
            grants={claim: at for claim, at in kept.grants.items() if at >= self.now_us - 2 * self.terms.window_us},
            refunded=frozenset(kept.refunded),
            member=own.text if own else "",
            seen_us=own.at_us if own else 0,
            departed_us=kept.departed.get(instance, 0),
            run_id=self.run_id,
            median_errors=self.median_errors,
        )

    @property
    def state(self) -> FleetState:
        return _state(self.kept.state)

    @property
    def epoch(self) -> Epoch:
        return _epoch(self.kept.epoch)

    def cull(self, instance: str) -> Cull:
        found = Cull.load(self.kept.culls[instance])
        assert found is not None
        return found

    def phase(self, instance: str) -> str:
        return self.cull(instance).phase if instance in self.kept.culls else ""

    def fleet(self, instance: str = "") -> Fleet:
        return fleet_of(self._reading(self._heard(instance, 0, (), "")), self.terms, instance)

    def outcomes(self) -> tuple[int, int, int]:
        """The numbers of culls that helped, did not help, and were unclear."""
        fleet = self.fleet()
        return fleet.helped, fleet.unhelped, fleet.unclear

    def loses(self) -> None:
        """Flush the store."""
        self.kept = Kept()

    def crashes(self, kept: Kept) -> None:
        """Go on with another process of the server, which has this older copy."""
        self.kept, self.run_id = kept, f"{self.run_id}1"

    # -- inside -------------------------------------------------------------------------------------------------

    def _reading(self, heard: BeatReply) -> Reading:
        return Reading(heard, self.epoch, self.state)

    def _terms(self, changes: dict[str, object]) -> FleetSettings:
        return replace(self.terms, **changes)  # type: ignore[arg-type]  # each of its own field's type

    def _known(self, sidecar: Sidecar) -> Known:
        elapsed_us = self.own_us - sidecar.own_us if sidecar.store_us else 0
        return Known(sidecar.epoch, sidecar.store_us, elapsed_us)

    def _learn(self, sidecar: Sidecar) -> None:
        sidecar.epoch, sidecar.store_us, sidecar.own_us = self.epoch, self.now_us, self.own_us

    def _write(self, edits: Edits) -> None:
        kept = self.kept
        if edits:
            kept.grants = {claim: min(at, self.now_us) for claim, at in kept.grants.items()}
        if edits.grant:
            self._grant(edits)
        kept.state = edits.state.dump() if edits.state else kept.state
        kept.epoch = edits.epoch.dump() if edits.epoch else kept.epoch
        for table, rows in ((kept.culls, edits.culls), (kept.leases, edits.leases), (kept.holds, edits.holds)):
            for name, row in rows.items():
                if row is None:
                    table.pop(name, None)
                else:
                    table[name] = row.dump()
        kept.refunded |= {claim for claim in edits.refund if claim in kept.grants}
        self.entries += edits.entries

    def _grant(self, edits: Edits) -> None:
        kept = self.kept
        others = {
            claim for claim, at in kept.grants.items() if at >= self.now_us - edits.window_us and claim != edits.grant
        }
        assert not 0 < edits.capacity <= len(others - kept.refunded), "a grant over the capacity"
        assert not 0 < edits.most <= len(others), "a grant over what may be granted with refunds"
        kept.grants[edits.grant] = self.now_us

    def _causes(self) -> dict[str, int]:
        return dict(Counter(row.cause for row in self.kept.members.values() if row.cause))

    def _hear(self, beat: Beat, terms: FleetSettings) -> BeatReply:
        """Accept a beat, as every store does."""
        kept, former = self.kept, self.kept.members.get(beat.instance)
        if beat.presence in (Presence.DOWN, Presence.GONE):
            self._leave(beat.instance, is_departure=beat.presence is Presence.GONE)
        else:
            self._change(beat, former)
        members = len(kept.members)
        oldest, latest = self.now_us - terms.expiry_us, self.now_us + US_PER_S
        silent = [name for name, row in kept.members.items() if not oldest <= row.at_us <= latest]
        for name in silent[:100]:
            self._leave(name, is_departure=True)
        kept.settings[terms.dump()] = self.now_us
        heard = self._heard(beat.instance, len(silent), tuple(silent[:100]), former.text if former else "")
        return replace(heard, alive=members)

    def _heard(self, instance: str, silent: int, struck: tuple[str, ...], former: str) -> BeatReply:
        kept = self.kept
        used = [claim for claim, at in kept.grants.items() if at >= self.now_us - self.terms.window_us]
        return BeatReply(
            self.now_us,
            kept.epoch,
            kept.state,
            len(kept.members),
            silent,
            struck,
            former,
            self._causes(),
            len({text for text, at in kept.settings.items() if at >= self.now_us - self.terms.expiry_us}),
            self.median_errors,
            holds=(kept.holds.get("", ""), kept.holds.get(instance, "")),
            used=len(set(used) - kept.refunded),
            run_id=self.run_id,
        )

    def _change(self, beat: Beat, former: Row | None) -> None:
        cause = beat.kind if beat.presence is Presence.SUSPECT else ""
        row = Row(self.now_us, beat.incarnation, cause, beat.refused and bool(cause))
        if former is not None and (former.life, former.cause) == (row.life, row.cause):
            row = row._replace(refused=former.refused or row.refused)
            was_refused = former.refused
        else:
            was_refused = False
            self._end(former, "recovered" if beat.presence is Presence.WELL else "ended", row.life)
        if row.refused and not was_refused:
            self.kept.control[f"refused|{cause}"] += 1
        self.kept.members[beat.instance] = row

    def _leave(self, instance: str, *, is_departure: bool) -> None:
        self._end(self.kept.members.pop(instance, None), "ended", "")
        if is_departure:
            self.kept.departed[instance] = self.now_us

    def _end(self, former: Row | None, how: str, life: str) -> None:
        if former is not None and former.refused:
            self.kept.control[f"{how if former.life == life else 'ended'}|{former.cause}"] += 1


def fleet_of_size(count: int, terms: FleetSettings | None = None) -> FleetModel:
    """``count`` healthy members, in a store that has heard the fleet for long enough to grant tokens."""
    it = FleetModel(terms)
    it.beat_all(*names(count))
    it.advance_beating(20, *names(count))
    return it


def draft_of(
    view: View, terms: FleetSettings = TERMS, *, known: Known | None = None, asked: Asked | None = None
) -> Draft:
    """A draft over this view, for the rules that work on one."""
    return Draft(view, Request(asked or EndHold(""), terms, known or Known()))


__all__ = [
    "START_US",
    "TERMS",
    "Cull",
    "FleetModel",
    "HoldRow",
    "Kept",
    "Sidecar",
    "Slot",
    "draft_of",
    "fleet_of_size",
    "names",
    "word",
]
