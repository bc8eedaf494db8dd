"""What the fleet's bucket promises, judged from outside: by the messages that reached it and the answers it sent.

Times are microseconds of one server's clock. ``elapsed_us`` adds up the clock's steps forward, and no step back: in
that time the windows are judged, for a clock that was set back has to make its way once more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sidecar.core.hearing import MINUTE_US
from sidecar.core.strictest import split
from sidecar.core.terms import Share, Terms
from sidecar.core.trials import HOUR_US
from sidecar.core.words import US_PER_S, Beat, Brake, Claim, Granted, Lease, Presence


class BrokenPromiseError(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Lost:
    """A container that may be down by a grant. ``down_us``: when it was last heard to be; from ``vacant_us`` on its
    sidecar is not there either, if it is not heard of.
    """

    claim_id: str
    incarnation: str
    at_us: int
    vacant_us: int
    down_us: int = 0
    is_lease: bool = False


@dataclass(slots=True)
class Leave:
    """A slot in use: of the container that went, until ``until_us`` of the server's time."""

    holder: str
    until_us: int
    incarnation: str
    has_arrived: bool = False


@dataclass(slots=True)
class Known:
    """What a server has been told, and has to go by; it goes with the server's memory."""

    heard: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    missing: dict[str, Lost] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)
    leaves: dict[str, Leave] = field(default_factory=dict)
    newest_us: int = 0
    several_us: int = 0


class Judge:
    """The promises of one server. ``down`` are the claims that put their container down, whoever granted them.

    One of several servers promises its share of the tokens, and the floor is the promise of all: ``is_whole`` judges
    that, and hears and sees what any of them does.
    """

    def __init__(self, terms: Terms, down: set[str], *, is_whole: bool = False) -> None:
        self.terms = terms
        self.down = down
        self.is_whole = is_whole
        self.known = Known()
        self.grants: dict[str, int] = {}
        self.canary_us: int | None = None
        self.looked_us = 0

    def now_us(self, told_us: int) -> int:
        """The server's time: it stands still at the newest grant of a token or a lease."""
        return max(told_us, self.known.newest_us)

    def knows(self, known: Known) -> None:
        """The server goes back to what it knew, or to nothing."""
        self.known = known
        self.looked_us = 0

    def forget_grants(self) -> None:
        """Nobody is left who could have told the server of its loss."""
        self.grants.clear()
        self.canary_us = None

    # -- what the server hears ------------------------------------------------------------------------------------

    def hears(self, beat: Beat, told_us: int) -> None:
        """Follow one message that the server takes in."""
        now_us = self.now_us(told_us)
        if now_us != self.looked_us:
            self._let_go(now_us)
        if beat.presence is Presence.GONE:
            self.known.heard.pop(beat.instance, None)
            if beat.instance in self.known.missing:
                self.known.missing[beat.instance].vacant_us = 0
        elif beat.presence is Presence.DOWN:
            self._hears_down(beat, now_us)
        else:
            self._hears_up(beat, now_us)
        known = self.known
        known.seen[beat.instance] = now_us
        known.several_us = known.several_us or now_us
        if len(known.heard.keys() | known.missing.keys()) > 1:
            known.several_us = now_us

    def _let_go(self, now_us: int) -> None:
        self.looked_us = now_us
        known, terms = self.known, self.terms
        silent = [one for one, it in known.heard.items() if now_us - it[0] > terms.expiry_us]
        for one in silent:
            del known.heard[one]
        known.seen |= dict.fromkeys(silent, now_us)
        known.seen = {one: at for one, at in known.seen.items() if now_us - at <= terms.window_us}
        known.holds = {one: until for one, until in known.holds.items() if until > now_us}
        known.leaves = {one: it for one, it in known.leaves.items() if it.until_us > now_us}
        for one in [one for one, it in known.missing.items() if now_us - max(it.at_us, it.down_us) > terms.window_us]:
            del known.missing[one]

    def _hears_down(self, beat: Beat, now_us: int) -> None:
        known = self.known
        known.heard.pop(beat.instance, None)
        claim_id, is_lease = beat.lease or beat.claim_id, bool(beat.lease)
        if known.replaced.get(beat.instance) == claim_id:
            return
        lost = known.missing.get(beat.instance)
        if lost is None or (lost.claim_id, lost.is_lease) != (claim_id, is_lease):
            lost = known.missing[beat.instance] = Lost(claim_id, beat.incarnation, now_us, 0, is_lease=is_lease)
            if is_lease and beat.instance not in known.replaced and not self.terms.index:
                until_us = now_us + self.terms.window_us
                former = known.leaves.get(beat.instance)
                known.leaves[beat.instance] = Leave(
                    beat.lease, former.until_us if former else until_us, beat.incarnation
                )
        lost.vacant_us, lost.down_us = now_us + self.terms.expiry_us, now_us

    def _hears_up(self, beat: Beat, now_us: int) -> None:
        known = self.known
        lost = known.missing.get(beat.instance)
        if lost is not None and lost.incarnation == beat.incarnation:
            lost.vacant_us = now_us + self.terms.expiry_us
            return
        known.missing.pop(beat.instance, None)
        known.replaced.pop(beat.instance, None)
        if lost is not None:
            self._arrives(beat.instance, beat.instance)
        elif beat.first and beat.instance not in known.seen and beat.instance not in known.leaves:
            self._replaces_the_longest_missing(beat.instance, now_us)
        leave = known.leaves.get(beat.instance)
        if leave and beat.presence is Presence.WELL and (leave.has_arrived or leave.incarnation != beat.incarnation):
            del known.leaves[beat.instance]
        known.heard[beat.instance] = (now_us, beat.kind if beat.presence is Presence.WANTS else None)

    def _arrives(self, place: str, instance: str) -> None:
        leave = self.known.leaves.pop(place, None)
        if leave is not None:
            leave.has_arrived = True
            self.known.leaves[instance] = leave

    def _replaces_the_longest_missing(self, instance: str, now_us: int) -> None:
        away = [(it.at_us, one) for one, it in self.known.missing.items() if it.vacant_us <= now_us]
        if away:
            _, place = min(away)
            self.known.replaced[place] = self.known.missing.pop(place).claim_id
            self._arrives(place, instance)

    def resigned(self, instance: str, holder: str) -> None:
        """Follow a lease that the server took back."""
        lost, leave = self.known.missing.get(instance), self.known.leaves.get(instance)
        if lost is not None and lost.is_lease and lost.claim_id == holder:
            del self.known.missing[instance]
        if leave is not None and leave.holder == holder:
            del self.known.leaves[instance]

    # -- what it answers ------------------------------------------------------------------------------------------

    def granted(self, claim: Claim, answer: Granted, told_us: int, elapsed_us: int, brake: Brake) -> None:
        """Judge a grant. ``brake`` is where the server said that it stood."""
        now_us = self.now_us(told_us)
        self._nobody_goes_under_a_hold(claim)
        lost = self.known.missing.get(claim.instance)
        if lost is None or lost.claim_id != claim.claim_id:
            self.floor_is_kept(claim, now_us)
            self._brake_lets_one_pass(answer, elapsed_us, brake)
        self.grants[claim.claim_id] = elapsed_us
        self._window_is_kept(elapsed_us)
        self.lets_go_down(claim, now_us)
        self.known.newest_us = now_us

    def retires(self, lease: Lease, answer: Granted, told_us: int, brake: Brake, useless: Collection[str]) -> None:
        """Judge a lease that was granted. Who suffers from what culls do not help with has nothing to wait for."""
        now_us, known = self.now_us(told_us), self.known
        self._nobody_goes_under_a_hold(lease)
        lost, leave = known.missing.get(lease.instance), known.leaves.get(lease.instance)
        is_standing = lost is not None and lost.is_lease and lost.claim_id == lease.holder
        if not (is_standing and leave is not None and leave.holder == lease.holder):
            self.floor_is_kept(lease, now_us)
            suffered = {kind for _, kind in known.heard.values() if kind is not None}
            if not suffered <= {*useless} or brake is not Brake.OFF:
                raise BrokenPromiseError(f"{lease.instance} goes for its age while others suffer")
            until_us = now_us + round(lease.timeout_s * US_PER_S)
            known.leaves[lease.instance] = Leave(lease.holder, until_us, lease.incarnation)
            self._slots_are_kept(lease)
        if answer.replayed is not is_standing and answer.replayed:
            raise BrokenPromiseError("granted again what was not granted")
        self.lets_go_down(lease, now_us)
        known.newest_us = now_us

    def _slots_are_kept(self, lease: Lease) -> None:
        """Who was replaced may be missing once more: it says that it is down, and its replacement is forgotten."""
        known = self.known
        fleet = known.heard.keys() | known.missing.keys() | known.replaced.keys() | {lease.instance}
        most = Share.read(lease.slots).at_most(len(fleet))
        if len(known.leaves) > most:
            raise BrokenPromiseError(f"{len(known.leaves)} go for their age at a time, of {most}")

    def lets_go_down(self, asked: Claim | Lease, now_us: int) -> None:
        """From now on the container may be down."""
        is_lease = isinstance(asked, Lease)
        claim_id = asked.holder if isinstance(asked, Lease) else asked.claim_id
        vacant_us = now_us + self.terms.expiry_us
        self.known.heard.pop(asked.instance, None)
        self.known.missing[asked.instance] = Lost(claim_id, asked.incarnation, now_us, vacant_us, is_lease=is_lease)

    def _nobody_goes_under_a_hold(self, asked: Claim | Lease) -> None:
        if {"", asked.instance} & self.known.holds.keys():
            raise BrokenPromiseError(f"{asked.instance} was let go under a hold")

    def floor_is_kept(self, claim: Claim | Lease, now_us: int) -> None:
        """Judge what stays after this cull."""
        known, terms = self.known, self.terms
        if terms.servers > 1 and not self.is_whole:
            return
        fleet = len(known.heard.keys() | known.missing.keys() | {claim.instance})
        up = len(self._up() - {claim.instance})
        floor = max(terms.min_healthy.at_least(fleet), int(terms.never_last))
        is_single = fleet == 1 and now_us - known.several_us >= HOUR_US - MINUTE_US
        if up < floor and not is_single:
            raise BrokenPromiseError(f"{up} of {fleet} stay, and the floor is {floor}")

    def _up(self) -> set[str]:
        """Those heard to serve, but for those who truly went down meanwhile."""
        return self.known.heard.keys() - {claim_id.rpartition("/")[0] for claim_id in self.down}

    def _brake_lets_one_pass(self, answer: Granted, elapsed_us: int, brake: Brake) -> None:
        wanting = sum(kind is not None for _, kind in self.known.heard.values())
        is_reached = wanting >= 3 and wanting * 1000 >= self.terms.brake * len(self.known.heard)
        if self.terms.brake and is_reached and brake in {Brake.OFF, Brake.CLOSED}:
            raise BrokenPromiseError(f"{wanting} of {len(self.known.heard)} want, and the brake is {brake}")
        if answer.canary is not (brake is Brake.ON):
            raise BrokenPromiseError(f"canary: {answer.canary}, and the brake is {brake}")
        if not answer.canary:
            return
        if self.terms.index or (self.canary_us is not None and elapsed_us - self.canary_us <= self.terms.window_us):
            raise BrokenPromiseError("a second canary within a window")
        self.canary_us = elapsed_us

    def _window_is_kept(self, elapsed_us: int) -> None:
        terms = self.terms
        most = split(terms.capacity.amount, terms.index, terms.servers)
        if terms.earn_max >= 0:
            most = split(terms.earn_max or 3 * terms.capacity.amount, terms.index, terms.servers)
        used = sum(elapsed_us - at <= terms.window_us for at in self.grants.values())
        if used > most:
            raise BrokenPromiseError(f"{used} tokens within a window, of {most}")
