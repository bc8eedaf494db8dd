"""Collects what the rules read: the last answer of the fleet, the tokens in use, and the own container."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from sidecar.core.life.snapshot import Record
from sidecar.core.types import Entry, Evidence, Fleet, State, Unknown
from sidecar.notify.rules import Observation

TOKENS_KNOWN_S: Final = 90.0
REPORTED_S: Final = 60.0


class _Tokens(NamedTuple):
    used: int
    capacity: int
    at: float
    refused: bool


class Watch:
    """Collects observations; ``now`` is in monotonic seconds.

    ``scrapes``: whether the sidecar scrapes the app's metrics, which also shows that the app is there.
    """

    def __init__(self, *, scrapes: bool = False) -> None:
        self.answer: Fleet | Unknown | None = None
        self.answered_at: float | None = None
        self._scrapes = scrapes
        self._tokens: _Tokens | None = None
        self._down_since: float | None = None
        self._is_down = True  # as far as is known: a sidecar may find its container down, and ask for the action
        self._failed_action: Entry | None = None
        self._reported_at = -inf

    @property
    def capacity(self) -> int:
        """The last known capacity of the budget, in tokens per window; 0 if unknown."""
        return self._tokens.capacity if self._tokens else 0

    @property
    def must_ask_tokens(self) -> bool:
        """Whether the answers to beats lack the number of tokens in use."""
        return not getattr(self.answer, "capacity", 0)

    def beaten(self, answer: Fleet | Unknown, now: float) -> None:
        """Keep the answer to a beat."""
        self.answer = answer
        if isinstance(answer, Fleet):
            self.answered_at = now
            used, capacity = getattr(answer, "used", None), getattr(answer, "capacity", None)
            if used is not None and capacity:
                self.count(used, capacity, now)

    def step(self, record: Record, now: float) -> None:
        """Keep what a step of the controller shows of the own container."""
        after = record.after
        is_culled = after.state is State.DOWN and after.latch is not None and not after.latch.lease
        self._down_since = after.since if is_culled else None
        self._is_down = after.state is State.DOWN
        if not self._is_down:
            self._failed_action = None
        if self._is_reporting(record.evidence):
            self._reported_at = now

    def acted(self, entry: Entry) -> None:
        """Keep that the action failed which should have the own container restarted; it may be up all the same."""
        self._failed_action = entry if entry.what == "action_failed" and self._is_down else None

    def count(self, used: int, capacity: int, now: float, *, refused: bool = False) -> None:
        """Keep how many tokens are in use; ``refused``: a claim was denied because none was left."""
        before = self._tokens
        refused = refused or (before is not None and before.refused and used >= capacity)
        self._tokens = _Tokens(used, capacity, now, refused)

    def observation(self, now: float) -> Observation:
        """Return what is known and not outdated."""
        tokens = self._tokens if self._tokens and now - self._tokens.at < TOKENS_KNOWN_S else None
        is_there = now - self._reported_at < REPORTED_S
        return Observation(
            self.answer,
            tokens.used if tokens else None,
            tokens.capacity if tokens else 0,
            refused=bool(tokens and tokens.refused),
            kept_s=now - self._down_since if is_there and self._down_since is not None else None,
            is_leaving=self._down_since is None,
            failed_action=self._failed_action,
        )

    def _is_reporting(self, evidence: Evidence) -> bool:
        age_s = evidence.heartbeat_age_s
        has_news = evidence.errors or evidence.requests or evidence.levels or (age_s is not None and age_s < REPORTED_S)
        return bool(has_news) or (self._scrapes and not evidence.missed_scrapes)
