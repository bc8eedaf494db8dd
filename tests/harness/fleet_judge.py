"""Checks the promises of the fleet from outside: by the containers that went down, in real time.

The judge does not use the rules of the fleet. It follows the messages that the server accepted, its decisions, the
outcomes in the ledger, and the containers that went down. It keeps plain lists of these
and compares them with the promises. Where the lists do not prove a broken promise, the judge accepts the decision.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.core.claims import Denied
from sidecar.core.fleet.fleet_settings import FleetSettings, Share
from sidecar.core.types import US_PER_S

HOUR_US: Final = 3600 * US_PER_S
MINUTE_US: Final = 60 * US_PER_S
DAY_S: Final = 24 * 3600.0
UNPROVEN: Final = 2


class BrokenPromiseError(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Down:
    """A grant of a token or a lease; ``at_us``: when the server wrote it last.

    ``is_reported``: the container went down by it. ``is_down``: it was not replaced, and kept the grant.
    ``is_open``: it has no outcome yet. ``is_standing``: whether the grant was kept (True) or given back
    (False); None: unknown. ``by``: the instance that replaced the container.
    """

    claim: str
    instance: str
    cause: str
    at_us: int
    is_lease: bool = False
    until_us: int = 0
    slots: int = 0
    order: int = 0
    is_down: bool = True
    is_open: bool = True
    is_standing: bool | None = True
    is_reported: bool = False
    by: str = ""


@dataclass(slots=True)
class Heard:
    """The last beat of one name that the server accepted."""

    at_us: int
    life: str
    terms: FleetSettings
    terms_at: int
    moment: int


@dataclass(slots=True)
class HoldPut:
    """A hold: its end, the number of the last decision before it was answered, and whether the server has it."""

    until_us: int
    order: int
    is_kept: bool = True


@dataclass
class Judge:
    """The promises of one fleet; ``now_us`` is always real time.

    ``moment`` counts the requests (concurrent ones are one), and ``began_us`` is the beginning of the last. A decision
    uses what it read at its beginning, so it may miss a beat that arrives meanwhile, or a silence.
    ``is_split``: some sidecars reach another process of the server, so beats, holds and outcomes may be known to one
    process only. ``is_lost``: the server lost data, and no sidecar has noticed it yet. ``outage``: the cause that
    everybody has, for which no restart helps.
    """

    window_us: int
    downs: list[Down] = field(default_factory=list)
    refunded: set[str] = field(default_factory=set)
    heard: dict[str, Heard] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    paused_until_us: dict[str, int] = field(default_factory=dict)
    touched_us: dict[str, int] = field(default_factory=dict)
    holds: dict[str, HoldPut] = field(default_factory=dict)
    is_lost: bool = False
    names: set[str] = field(default_factory=set)
    newcomers: int = 0
    moment: int = 0
    began_us: int = 0
    left: dict[str, int] = field(default_factory=dict)
    several_us: int = 0
    slack_us: int = 0
    is_split: bool = False
    outage: str = ""
    outage_cull_us: int | None = None
    judged: Counter[str] = field(default_factory=Counter)

    def begins(self, now_us: int) -> None:
        """A request begins, or several concurrent ones."""
        self.moment += 1
        self.began_us = now_us

    # -- what the server takes in -------------------------------------------------------------------------------------

    def took_beat(self, name: str, life: str, terms: FleetSettings, now_us: int, *, is_up: bool) -> None:
        if is_up and name not in self.names:  # it may be the replacement of a container that is down
            self.newcomers += any(down.is_down for down in self.downs)
            self.names.add(name)
        former = self.heard.pop(name, None)
        if is_up:
            terms_at = former.terms_at if former is not None and former.terms == terms else self.moment
            self.heard[name] = Heard(now_us, life, terms, terms_at, self.moment)
        elif former is not None:
            self.left[name] = self.moment

    def replaced(self, instance: str) -> None:
        """The container of this name was restarted."""
        for down in self.downs:
            if down.instance == instance:
                down.is_down = False

    def resigns(self, instance: str, claim: str, *, is_sure: bool = False) -> None:
        """The container gives back its grant; until ``is_sure`` that may or may not have happened."""
        for down in self.downs:
            if (down.instance, down.claim) == (instance, claim) and not down.is_reported:
                down.is_open = down.is_down = False
                down.is_standing = False if is_sure else None

    def follow(self, what: str, instance: str, cause: str, reason: str, now_us: int) -> None:
        """Follow one ledger entry of a decision."""
        if what == "replaced":
            for down in self._open(instance):
                down.by = reason or instance
            return
        if what not in ("helped", "unhelped", "unclear"):
            return
        culls = [down for down in self._open() if down.by == instance] or self._open(instance)
        for down in culls[:1]:
            down.is_open = False
        limit = self.limits.get(cause, 1)
        if what == "helped":
            self.limits[cause] = limit * 2
            self.failures[cause] = 0
            self.paused_until_us.pop(cause, None)
        elif what == "unhelped" or reason == "control":
            self.limits[cause] = 1
            if now_us - max(self.touched_us.get(cause, 0), self.paused_until_us.get(cause, 0)) > HOUR_US:
                self.failures[cause] = 0
            self.failures[cause] += 1
            pause_us = min(self.window_us << (self.failures[cause] - 1), round(DAY_S * US_PER_S))
            self.paused_until_us[cause] = now_us + pause_us
        self.touched_us[cause] = now_us

    def _open(self, instance: str = "") -> list[Down]:
        return [
            down
            for down in self.downs
            if down.is_open and not down.is_lease and (not instance or down.instance == instance)
        ]

    # -- what people order ----------------------------------------------------------------------------------------

    def held(self, scope: str, until_us: int, order: int) -> None:
        self.holds[scope] = HoldPut(until_us, order)

    def released(self, scope: str) -> None:
        self.holds.pop(scope, None)
        if not scope:
            self.paused_until_us.clear()
            self.failures.clear()
            self.outage_cull_us = None

    def outage_begins(self, cause: str) -> None:
        """From now on everybody has this cause; ``""``: the outage is over."""
        self.outage, self.outage_cull_us = cause, None

    # -- what goes wrong ------------------------------------------------------------------------------------------

    def lost(self) -> None:
        """The server lost its grants, or its clock was set."""
        self.is_lost = True
        for hold in self.holds.values():
            hold.is_kept = False

    def stepped(self, now_us: int, by_us: int) -> None:
        """The clock of the server was set: beats may seem younger, and pauses shorter."""
        for beat in self.heard.values():
            beat.at_us = now_us + by_us
        self.outage_cull_us = None
        self.paused_until_us.clear()
        for down in self.downs:
            down.is_open = False

    def noticed(self) -> None:
        """A sidecar that can see the loss had an exchange with the server."""
        self.is_lost = False

    def forgot(self) -> None:
        """The server lost the last decision, and with it outcomes and pauses."""
        for down in self.downs:
            down.is_open = False
            down.is_standing = None
        self.newcomers = len(self.downs)
        self.paused_until_us.clear()

    # -- what is answered -----------------------------------------------------------------------------------------

    def denied(self, answer: Denied) -> None:
        if not 0 < answer.retry_after_s <= DAY_S:
            raise BrokenPromiseError(f"denied ({answer.reason}), and to ask again in {answer.retry_after_s} s")

    def granted(self, down: Down, life: str, terms: FleetSettings) -> None:
        """Judge a grant when the server has written it."""
        now_us = down.at_us
        former = next((each for each in self.downs if each.claim == down.claim), None)
        self._hold_is_kept(down, now_us)
        if former is None or former.is_standing is False:
            self._floor_is_kept(down, terms, now_us)
            self._name_is_one(down, life)
            if not down.is_lease:
                self._trial_is_kept(down, terms, now_us)
            if not down.is_lease and former is None:
                self._spacing_is_kept(down, terms)
        if former is not None:
            self.downs.remove(former)
        self.downs.append(down)
        if not down.is_lease:
            self.touched_us[down.cause] = now_us

    def goes_down(self, claim: str, terms: FleetSettings, now_us: int) -> None:
        """Judge a grant when its container goes down."""
        down = next(down for down in self.downs if down.claim == claim)
        down.is_reported = True
        if down.is_lease:
            self._slots_are_kept(down, now_us)
        else:
            self._bound_is_kept(down, terms)
            self._outage_has_one_cull(down, terms)
        self.judged["leases" if down.is_lease else "tokens"] += 1

    def in_force(self, terms: FleetSettings, now_us: int) -> list[FleetSettings]:
        """The terms of the requester, and all terms that the server certainly heard within their expiry."""
        heard = {
            beat.terms
            for beat in self.heard.values()
            if beat.terms_at < self.moment and now_us - beat.at_us < beat.terms.expiry_us - US_PER_S
        }
        return [terms] if self.is_lost or self.is_split else [terms, *(heard - {terms})]

    def _hold_is_kept(self, down: Down, now_us: int) -> None:
        """A hold stops every grant whose commits began after its answer."""
        for scope in () if self.is_split else ("", down.instance):
            hold = self.holds.get(scope)
            if hold is None or now_us >= hold.until_us - self.slack_us or down.order <= hold.order:
                continue
            if hold.is_kept:
                raise BrokenPromiseError(f"{down.instance} goes down under the hold of {scope or 'the service'}")

    def _name_is_one(self, down: Down, life: str) -> None:
        beat = self.heard.get(down.instance)
        if beat is None or beat.life == life or beat.moment >= self.moment or self.is_split:
            return
        if down.at_us - beat.at_us < beat.terms.expiry_us - US_PER_S:
            raise BrokenPromiseError(f"{down.instance} goes down as incarnation {life}, and the last beat is of {beat}")

    def _floor_is_kept(self, down: Down, terms: FleetSettings, now_us: int) -> None:
        """Enough of the members that the server heard stay up."""
        away = [each for each in self.downs if each.is_down]
        gone = {each.instance for each in away if each.is_reported or now_us - each.at_us < self.window_us}
        names = {
            name
            for name, beat in self.heard.items()
            if self.began_us - beat.at_us <= max(terms.expiry_us, beat.terms.expiry_us)
        }
        names |= {name for name, at in self.left.items() if at == self.moment}  # they left after the claim was read
        available = names - gone
        window_us = min(self.window_us, terms.window_us)
        missing = {each.instance for each in away if each.is_open and now_us - each.at_us < window_us}
        missing -= available | {down.instance}
        fleet = len(available | {down.instance}) + max(0, len(missing) - self.newcomers)
        if fleet > 1:
            self.several_us = now_us
        for settings in self.in_force(terms, now_us):
            floor = Share.load(settings.min_healthy).at_least(fleet)
            stay = len(available - {down.instance})
            is_single = fleet == 1 and (now_us - self.several_us > HOUR_US - MINUTE_US or self.is_lost)
            if stay < floor and not is_single:
                raise BrokenPromiseError(f"{down.instance} goes down: {stay} of {fleet} stay, the floor is {floor}")

    def _trial_is_kept(self, down: Down, terms: FleetSettings, now_us: int) -> None:
        if self.is_split or not any(settings.trial for settings in self.in_force(terms, now_us)):
            return
        cause = down.cause
        if now_us < self.paused_until_us.get(cause, 0):
            raise BrokenPromiseError(f"{down.instance} goes down in a pause of {cause}")
        out = Counter(each.cause for each in self._open() if now_us - each.at_us < self.window_us)
        limit = self.limits.get(cause, 1)
        if out[cause] >= limit:
            raise BrokenPromiseError(f"{down.instance} goes down: {out[cause]} for {cause} are out, of {limit}")
        unproven = sum(self.limits.get(other, 1) == 1 for other in out if other != cause)
        if limit == 1 and unproven >= UNPROVEN:
            raise BrokenPromiseError(f"{down.instance} goes down: {dict(out)} are being tried already")

    def _spacing_is_kept(self, down: Down, terms: FleetSettings) -> None:
        last_us = max((each.at_us for each in self.downs if not each.is_lease), default=0)
        if last_us and down.at_us - last_us < terms.spacing_us - self.slack_us:
            raise BrokenPromiseError(f"{down.instance} goes down {down.at_us - last_us} us after the one before")

    def _outage_has_one_cull(self, down: Down, terms: FleetSettings) -> None:
        """A cull in an outage does not help, so the next one for this cause comes a window later at the earliest."""
        if down.cause != self.outage or not any(settings.trial for settings in self.in_force(terms, down.at_us)):
            return
        last_us = self.outage_cull_us
        if last_us is not None and 0 < down.at_us - last_us < self.window_us - self.slack_us:
            raise BrokenPromiseError(f"{down.instance} goes down in an outage, {down.at_us - last_us} us after another")
        self.outage_cull_us = down.at_us
        self.judged["outage"] += 1

    def _bound_is_kept(self, down: Down, terms: FleetSettings) -> None:
        now_us = down.at_us
        culls = [each for each in self.downs if each.is_reported and not each.is_lease]
        for settings in self.in_force(terms, now_us):
            window_us = settings.window_us - self.slack_us
            taken = [each for each in culls if now_us - each.at_us <= window_us]
            kept = [each for each in taken if each.claim not in self.refunded]
            if len(taken) > self._most(settings) or len(kept) > self._most(replace(settings, refund_max=-1)):
                raise BrokenPromiseError(f"{len(taken)} went down within {window_us} us, by {settings}")

    def _most(self, terms: FleetSettings) -> int:
        capacity = Share.load(terms.capacity).amount
        if terms.strategy == "previous":
            return max(0, 2 * capacity - 1)
        return capacity if terms.refund_max < 0 else terms.refund_max or 3 * capacity

    def _slots_are_kept(self, down: Down, now_us: int) -> None:
        leases = [down for down in self.downs if down.is_lease and down.is_down and down.is_open]
        used = sum(now_us < lease.until_us for lease in leases)
        if used - self.newcomers > down.slots:
            raise BrokenPromiseError(f"{used} retire at a time, of {down.slots}")
