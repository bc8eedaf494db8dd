"""A fleet's bucket to play with: its clock stands until it is told to move, and everybody asks by the same terms."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.birth import Mark
from sidecar.core.fleet import FleetBucket
from sidecar.core.terms import Terms
from sidecar.core.words import US_PER_S, Answer, Beat, Claim, Fleet, Presence

START_US = 1_700_000_000 * US_PER_S


class Played:
    """A bucket, its clock, and the marks that its sidecars know. ``lives`` are the incarnations, 0 where not said."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.bucket = FleetBucket()
        self.terms = terms or Terms()
        self.now_us = START_US
        self.known = Mark()
        self.lives: dict[str, int] = {}

    def passes(self, seconds: float) -> None:
        self.now_us += round(seconds * US_PER_S)

    def claim(self, instance: str, kind: str = "redis", **terms: object) -> Answer:
        life = str(self.lives.get(instance, 0))
        claim = Claim(f"{instance}/{life}", instance, life, kind)
        answer = self.bucket.claim(self._terms(terms), claim, self.known, self.now_us)
        self.known = self.bucket.birth.mark
        return answer

    def beat(
        self,
        instance: str,
        presence: Presence = Presence.WELL,
        kind: str = "redis",
        *,
        first: bool = False,
        **terms: object,
    ) -> Fleet:
        life = str(self.lives.get(instance, 0))
        claim_id = f"{instance}/{life}" if presence is Presence.DOWN else ""
        beat = Beat(instance, life, presence, kind, claim_id, first=first)
        fleet = self.bucket.beat(self._terms(terms), beat, self.known, self.now_us)
        self.known = self.bucket.birth.mark
        return fleet

    def all_beat(self, *instances: str, presence: Presence = Presence.WELL) -> None:
        for instance in instances:
            self.beat(instance, presence)

    def lives_on(self, seconds: float, *instances: str, presence: Presence = Presence.WELL) -> None:
        """Time passes, and these are heard every ten seconds of it and at its end."""
        end_us = self.now_us + round(seconds * US_PER_S)
        while self.now_us < end_us:
            self.now_us = min(end_us, self.now_us + 10 * US_PER_S)
            self.all_beat(*instances, presence=presence)

    def replaced_in_place(self, instance: str, presence: Presence = Presence.WELL) -> Fleet:
        self.lives[instance] = self.lives.get(instance, 0) + 1
        return self.beat(instance, presence)

    def _terms(self, changes: dict[str, object]) -> Terms:
        return replace(self.terms, **changes)  # type: ignore[arg-type]  # each of its own field's type


def names(count: int) -> list[str]:
    return [f"c{number:02}" for number in range(count)]


def fleet_of(count: int, terms: Terms | None = None) -> Played:
    """So many who are well, in a bucket that is old enough to give tokens."""
    it = Played(terms)
    it.all_beat(*names(count))
    it.lives_on(20, *names(count))
    return it
