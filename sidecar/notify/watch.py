"""What one sidecar knows that a message could be of: the last of the fleet, the tokens, and its own container."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from sidecar.core.life.snapshot import Record
from sidecar.core.types import Evidence, Fleet, State, Unknown
from sidecar.notify.rules import Seen

TOKENS_KNOWN_S: Final = 90.0
REPORTED_S: Final = 60.0


class _Tokens(NamedTuple):
    used: int
    capacity: int
    at: float
    refused: bool


class Watch:
    """Keeps what it is handed, with the time: ``now`` in seconds of a clock that does not jump.

    ``scrapes``: whether the app's page is asked, and so shows that the app is there.
    """

    def __init__(self, *, scrapes: bool = False) -> None:
        self.answer: Fleet | Unknown | None = None
        self.clear_at: float | None = None
        self._scrapes = scrapes
        self._tokens: _Tokens | None = None
        self._down_since: float | None = None
        self._reported_at = -inf

    @property
    def capacity(self) -> int:
        """Tokens a window as they were last told of; 0 if they never were."""
        return self._tokens.capacity if self._tokens else 0

    @property
    def must_ask_tokens(self) -> bool:
        """Whether beats do not tell how many tokens are in use."""
        return not getattr(self.answer, "capacity", 0)

    def beaten(self, answer: Fleet | Unknown, now: float) -> None:
        """Keep what came of a beat."""
        self.answer = answer
        if isinstance(answer, Fleet):
            self.clear_at = now
            # A bucket may tell of its tokens with every beat; one that does not is asked for its roll.
            used, capacity = getattr(answer, "used", None), getattr(answer, "capacity", None)
            if used is not None and capacity:
                self.count(used, capacity, now)

    def step(self, record: Record, now: float) -> None:
        """Keep what a step says of the own container."""
        after = record.after
        is_culled = after.state is State.DOWN and after.latch is not None and not after.latch.lease
        self._down_since = after.since if is_culled else None
        if self._is_reporting(record.evidence):
            self._reported_at = now

    def count(self, used: int, capacity: int, now: float, *, refused: bool = False) -> None:
        """Keep how many tokens are in use; ``refused``: for want of one somebody was."""
        before = self._tokens
        refused = refused or (before is not None and before.refused and used >= capacity)
        self._tokens = _Tokens(used, capacity, now, refused)

    def seen(self, now: float) -> Seen:
        """All of it, without what is too old to be known."""
        tokens = self._tokens if self._tokens and now - self._tokens.at < TOKENS_KNOWN_S else None
        is_there = now - self._reported_at < REPORTED_S
        return Seen(
            self.answer,
            tokens.used if tokens else None,
            tokens.capacity if tokens else 0,
            refused=bool(tokens and tokens.refused),
            kept_s=now - self._down_since if is_there and self._down_since is not None else None,
            is_leaving=self._down_since is None,
        )

    def _is_reporting(self, evidence: Evidence) -> bool:
        age_s = evidence.heartbeat_age_s
        heard = evidence.errors or evidence.requests or evidence.levels or (age_s is not None and age_s < REPORTED_S)
        return bool(heard) or (self._scrapes and not evidence.missed_scrapes)
