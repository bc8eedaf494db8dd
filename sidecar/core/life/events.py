"""What has happened to a container in a step. Log, metrics, ledger, history and messages are tables of them.

An event has what a line, a counter, an entry or a message needs. Nobody else finds out what a step has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sidecar.core.claims import Answer
from sidecar.core.life.container import Container, CullOrder
from sidecar.core.life.triggers import CullOrdered, Effect, ReviveOrdered
from sidecar.core.types import State, Verdict


class Event:
    """What has happened in a step."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Checked(Event):
    """The window was judged."""

    verdict: Verdict


# -- moves to another state ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Event):
    """The container went from the state ``was`` to another one."""

    was: State
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspected(Moved):
    """The app is judged to be sick, or a person ordered a cull."""

    verdict: Verdict | None
    by_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Moved):
    """A suspect is well again."""

    suspect_s: float
    would_down_s: float | None = None
    """Since the cull that shadow mode did not carry out; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Culled(Moved):
    """A token put the container out of balance."""

    why: str = ""
    verdict: Verdict | None
    order: CullOrder | None
    suspect_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired(Moved):
    """A lease put the container out of balance."""

    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WentDown(Moved):
    """The drain is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revived(Moved):
    """The container is up again: by a person's ``order``, or because its lease ended before it was replaced."""

    out_s: float
    """Since the token or the lease."""

    order: ReviveOrdered | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(Moved):
    """Another incarnation of the app began. It may have ``was`` in the state ``starting`` as well."""

    app_start: str | None
    out_s: float | None
    """Since the token or the lease of the incarnation that ended; None without one."""


# -- answers to requests -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenAnswered(Event):
    """A claim was answered."""

    claim_id: str
    answer: Answer
    took_s: float
    is_late: bool = False  # no longer wanted
    is_repeated: bool = False  # denied for a reason for which this suspect was denied before
    order: CullOrder | None = None  # the person's order that it was for


@dataclass(frozen=True, slots=True)
class RetirementAnswered(Event):
    """A request for a lease was answered."""

    answer: Answer


# -- orders of a person, shadow mode, and what does not happen -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class OrderTaken(Event):
    """A person's order to cull is being claimed."""

    order: CullOrdered


@dataclass(frozen=True, slots=True)
class OrderIgnored(Event):
    """A person's order changes nothing in this state."""

    order: CullOrdered | ReviveOrdered


@dataclass(frozen=True, slots=True)
class WouldCull(Event):
    """Shadow mode did not carry out a cull."""

    verdict: Verdict | None
    order: CullOrder | None = None


@dataclass(frozen=True, slots=True)
class WouldRetire(Event):
    """Shadow mode did not carry out a retirement."""


@dataclass(frozen=True, slots=True)
class NotHonoured(Event):
    """A culled container is still there, ``out_s`` after its token."""

    claim_id: str
    out_s: float


class Step(NamedTuple):
    """The container after a trigger, the effects that follow, and what has happened."""

    container: Container
    effects: tuple[Effect, ...] = ()
    events: tuple[Event, ...] = ()
