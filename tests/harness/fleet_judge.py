"""What the fleet's bucket promises, judged from outside: by the messages that reached it and the answers it sent.

Times are microseconds of one server's clock. ``elapsed_us`` adds up the clock's steps forward, and no step back: in
that time the windows are judged, for a clock that was set back has to make its way once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.fleet import HOUR_US, MINUTE_US
from sidecar.core.strictest import split
from sidecar.core.terms import Terms
from sidecar.core.words import Beat, Brake, Claim, Granted, Presence


class BrokenPromiseError(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Lost:
    """A container that may be down by a grant: by ``sure_us`` it is, if it is not heard to be up. ``down_us``: when it
    was last heard to be.
    """

    claim_id: str
    incarnation: str
    at_us: int
    sure_us: int
    down_us: int = 0


@dataclass(slots=True)
class Known:
    """What a server has been told, and has to go by; it goes with the server's memory."""

    heard: dict[str, tuple[int, bool]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    missing: dict[str, Lost] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)
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
        """The server's time: it stands still at the newest grant."""
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
                self.known.missing[beat.instance].sure_us = 0
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
        for one in [one for one, it in known.missing.items() if now_us - max(it.at_us, it.down_us) > terms.window_us]:
            del known.missing[one]

    def _hears_down(self, beat: Beat, now_us: int) -> None:
        known = self.known
        known.heard.pop(beat.instance, None)
        if known.replaced.get(beat.instance) == beat.claim_id:
            return
        lost = known.missing.get(beat.instance)
        if lost is None or lost.claim_id != beat.claim_id:
            lost = known.missing[beat.instance] = Lost(beat.claim_id, beat.incarnation, now_us, 0)
        lost.sure_us, lost.down_us = 0, now_us

    def _hears_up(self, beat: Beat, now_us: int) -> None:
        known = self.known
        lost = known.missing.get(beat.instance)
        if lost is not None and lost.incarnation == beat.incarnation:
            lost.sure_us = now_us + self.terms.expiry_us
            return
        known.missing.pop(beat.instance, None)
        known.replaced.pop(beat.instance, None)
        if lost is None and beat.first and beat.instance not in known.seen:
            self._replaces_the_longest_missing(now_us)
        known.heard[beat.instance] = (now_us, beat.presence is Presence.WANTS)

    def _replaces_the_longest_missing(self, now_us: int) -> None:
        away = [(it.at_us, one) for one, it in self.known.missing.items() if it.sure_us <= now_us]
        if away:
            _, place = min(away)
            self.known.replaced[place] = self.known.missing.pop(place).claim_id

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

    def lets_go_down(self, claim: Claim, now_us: int) -> None:
        """From now on the container may be down."""
        self.known.heard.pop(claim.instance, None)
        self.known.missing[claim.instance] = Lost(
            claim.claim_id, claim.incarnation, now_us, now_us + self.terms.expiry_us
        )

    def _nobody_goes_under_a_hold(self, claim: Claim) -> None:
        if {"", claim.instance} & self.known.holds.keys():
            raise BrokenPromiseError(f"{claim.instance} was granted a token under a hold")

    def floor_is_kept(self, claim: Claim, now_us: int) -> None:
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
        wanting = sum(wants for _, wants in self.known.heard.values())
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
