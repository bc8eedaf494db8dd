"""What a sidecar asks the store for, a token or a lease, and the answers.

Seconds are floats named ``*_s``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from sidecar.core.types import Hold


class Presence(StrEnum):
    """The state of a container as its sidecar reports it to the fleet with every beat."""

    STARTING = "starting"
    WELL = "well"
    SUSPECT = "suspect"
    DOWN = "down"
    GONE = "gone"


class Claim(NamedTuple):
    """A request for a token. A repeated claim keeps its ``claim_id``. ``cause``: the kind of most errors.

    ``identity``: the random word of the incarnation, which its sidecar keeps; empty if it has none. Two containers may
    have one name and one incarnation, because an app may report any text as that.
    """

    claim_id: str
    instance: str = ""
    incarnation: str = ""
    cause: str = "unknown"
    identity: str = ""


class LeaseRequest(NamedTuple):
    """The request for a lease to retire.

    ``slots``: number of leases, ``2``, or ``100p`` for 100 thousandths of the fleet. ``holder``: a random id of this
    lease. Its slot is free again at the latest ``timeout_s`` after the grant.
    """

    holder: str
    instance: str
    incarnation: str
    slots: str
    timeout_s: float


MANUAL: Final = "manual"
"""The cause of a cull that a person ordered."""


NAMELESS: Final = ("unnamed-", "after-")
"""Beginnings of the ids of incarnations that the app has not named: one found at the start; in 0.2 one after an exit.
The first id that the app reports names such an incarnation, and begins no other one.
"""


REVIVED: Final = "revived"
"""Beginning of the id of an incarnation that a person put back into service: nothing was replaced."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A token, or a lease. ``replayed``: this claim was granted before, and costs no second token.

    ``alive`` and ``suspect`` are 0 where no fleet is known. ``left_s``: remaining time of a lease; None for a token.
    """

    used: int
    capacity: int
    replayed: bool = False
    alive: int = 0
    suspect: int = 0
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """No token: ``reason`` is a word of ``words.REFUSALS``; asking again before ``retry_after_s`` is of no use.

    ``cause``: the cause that most suspects share, if any. ``hold``: the hold that refused. ``is_other_process``: the
    store was restarted or failed over shortly before.
    """

    reason: str
    used: int
    capacity: int
    retry_after_s: float
    alive: int = 0
    suspect: int = 0
    cause: str = ""
    hold: Hold | None = None
    is_other_process: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """No clear answer, therefore no token."""

    error: str
    """A word of ``words.FAILURES``."""

    said: str = field(default="", compare=False)
    """The address, and what Redis or the network said; for the log and for operators, never for strangers."""


Answer = Granted | Denied | Unknown


class RandomIdentity(NamedTuple):
    """The random values of an incarnation: the holder of its lease, and from 0 to 1 the jitter of its lifetime."""

    holder: str = ""
    part: float = 0.5


NO_IDENTITY: Final = RandomIdentity()
"""The identity of an incarnation that is never retired."""
