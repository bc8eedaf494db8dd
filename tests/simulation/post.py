"""What one sidecar sends to the bucket: claims, requests for a lease, resignations, beats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from sidecar.core.arbiter import Standing
from sidecar.core.birth import Mark
from sidecar.core.words import Answer, Beat, Claim, Lease, Presence, State
from simulation.network import Network
from simulation.rules import Rules

STEADY_BEATS: Final = 2.5
"""So many beats apart come those of the steady: the work of most is spared, and three would have them struck off."""


class Sender(Protocol):
    """Whose post it is."""

    instance: str
    kind: str
    standing: Standing
    is_killed: bool


class Post:
    """The post of one sidecar. What it has sent arrives, whatever becomes of the sidecar meanwhile."""

    def __init__(self, sender: Sender, rules: Rules, network: Network) -> None:
        self._sender = sender
        self._rules = rules
        self._network = network
        self._timeline = network.timeline
        self._mark = Mark()
        self._is_heard = False
        self._beat_at = 0.0
        self._resigned_at = 0.0

    def claim(self, claim: Claim, receive: Callable[[Answer], None]) -> None:
        """Ask for a token."""
        self._network.after_delay(partial(self._claim, claim, receive))

    def retire(self, lease: Lease, receive: Callable[[Answer], None]) -> None:
        """Ask for a lease, after a resignation that is on its way: what is granted now it would give back."""
        ask = partial(self._retire, lease, receive)
        if self._resigned_at > self._timeline.now:
            self._timeline.at(self._resigned_at, ask)
        else:
            self._network.after_delay(ask)

    def resign(self, holder: str) -> None:
        """Give a lease back."""
        self._resigned_at = self._network.after_delay(partial(self._network.resign, self._sender.instance, holder))

    def beat(self) -> None:
        """Tell how it stands; the next beat by the clock follows from there."""
        if self._rules.beats:
            self._beat_at = self._network.after_delay(self._beat)

    def _claim(self, claim: Claim, receive: Callable[[Answer], None]) -> None:
        self._mark = self._network.claim(self._rules.terms, claim, self._mark, receive)

    def _retire(self, lease: Lease, receive: Callable[[Answer], None]) -> None:
        self._mark = self._network.retire(self._rules.terms, lease, self._mark, receive)

    def _beat(self) -> None:
        now = self._timeline.now
        if now != self._beat_at or self._sender.is_killed:
            return  # a change has been told since
        beat = self._written()
        self._mark, self._is_heard = self._network.beat(self._rules.terms, beat, self._mark), True
        if beat.presence is not Presence.GONE:
            self._beat_at = now + self._every_s() * (1 + 0.1 * self._network.rng.uniform(-1, 1))
            self._timeline.at(self._beat_at, self._beat)

    def _written(self) -> Beat:
        sender, standing = self._sender, self._sender.standing
        latch, lease = standing.latch, standing.lease
        return Beat(
            sender.instance,
            standing.life,
            standing.presence,
            "unknown" if lease else sender.kind,
            latch.claim_id if latch else "",
            first=not self._is_heard,
            lease=lease,
        )

    def _every_s(self) -> float:
        """Who has been well for longer than any probation has nothing to tell but that it is there."""
        terms, standing = self._rules.terms, self._sender.standing
        well_since = {State.UP: standing.since, State.RETIRING: standing.born}.get(standing.state, self._timeline.now)
        is_steady = (self._timeline.now - well_since) * 1e6 > terms.probation_us + terms.expiry_us
        return terms.beat_us / 1e6 * (STEADY_BEATS if is_steady else 1)
