"""What a sidecar asks of the store and tells it (claims, requests for leases, beats), and the answers.

Seconds are floats named ``*_s``; instants are Unix seconds.
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
    """A request for a token. Two containers may have one name and incarnation: an app may report any text as that."""

    claim_id: str  # a repeated claim keeps it
    instance: str = ""
    incarnation: str = ""
    cause: str = "unknown"  # the kind of most errors
    identity: str = ""  # the random word of the incarnation, which its sidecar keeps; empty if it has none


class LeaseRequest(NamedTuple):
    """The request for a lease to retire."""

    holder: str  # a random id of this lease
    instance: str
    incarnation: str
    slots: str  # number of leases, ``2``, or ``100p`` for 100 thousandths of the fleet
    timeout_s: float  # after the grant; then its slot is free again at the latest


GrantRequest = Claim | LeaseRequest
"""A request for a token or a lease."""


def request_id(request: GrantRequest) -> str:
    """The id under which the store keeps what it grants."""
    return request.claim_id if isinstance(request, Claim) else request.holder


MANUAL: Final = "manual"
"""The cause of a cull that a person ordered."""


NAMELESS: Final = ("unnamed-", "after-")
"""Beginnings of the ids of incarnations that the app has not named: one found at the start; in 0.2 one after an exit.
The first id that the app reports names such an incarnation, and begins no other one.
"""


REVIVED: Final = "revived"
"""Beginning of the id of an incarnation that a person put back into service: nothing was replaced."""


class Granted(NamedTuple):
    """A token, or a lease."""

    used: int
    capacity: int
    replayed: bool = False  # this claim was granted before, and costs no second token
    alive: int = 0  # 0 where no fleet is known, as the next one
    suspect: int = 0
    left_s: float | None = None  # remaining time of a lease; None for a token


class Denied(NamedTuple):
    """No token."""

    reason: str  # a word of ``words.REFUSALS``
    used: int
    capacity: int
    retry_after_s: float  # asking again before is of no use
    alive: int = 0
    suspect: int = 0
    cause: str = ""  # the cause that most suspects share, if any
    hold: Hold | None = None  # the one that refused
    is_other_process: bool = False  # the store was restarted or failed over shortly before


@dataclass(frozen=True, slots=True)
class Unknown:
    """No clear answer, therefore no token."""

    error: str  # a word of ``words.FAILURES``

    said: str = field(default="", compare=False)
    """The address, and what Redis or the network said; for the log and for operators, never for strangers."""


ALONE: Final = "alone"
"""The error of a sidecar without a shared store. It needs none, so nothing is missing."""

Answer = Granted | Denied | Unknown


class RandomIdentity(NamedTuple):
    """The random values of an incarnation: the holder of its lease, and from 0 to 1 the jitter of its lifetime."""

    holder: str = ""
    part: float = 0.5


NO_IDENTITY: Final = RandomIdentity()
"""The identity of an incarnation that is never retired."""


class Beat(NamedTuple):
    """A sidecar's sign of life, and what the fleet needs to know about its container."""

    instance: str
    incarnation: str
    presence: Presence
    cause: str = "unknown"  # of a suspect, or of a container that is down
    claim_id: str = ""  # the token of a container that is down
    first: bool = False  # the store has not answered a beat of this sidecar yet
    lease: str = ""  # the holder of the lease of a container that is down for its retirement
    about: str = ""
    """The description of the container for people (``core.fleet.members.About``); empty: that of the last beat."""
    errors: int = 0  # server errors in the window now
    ratio: int | None = None  # failed requests per million, None if too few are known
    refused: bool = False  # a suspect that was denied a token
    identity: str = ""  # as in ``Claim``


class CauseTrial(NamedTuple):
    """The trial of culls for one cause: ``out`` of at most ``limit`` culls have no outcome yet."""

    cause: str
    limit: int
    out: int
    paused_s: float = 0.0  # seconds until the next cull, because the last one did not help; 0: not paused
    failures: int = 0  # culls in a row that did not help
    since: float = 0.0  # when the episode began in which the limit was earned; 0: the cause has no episode now


class Fleet(NamedTuple):
    """The fleet, as the store's answer to a beat describes it."""

    alive: int  # containers that serve or start
    suspect: int = 0  # those of them that are suspect
    down: int = 0  # culled or retired containers that are not replaced yet
    cause: str = ""  # the cause that most suspects share, if any
    trials: tuple[CauseTrial, ...] = ()  # the causes with culls
    settings: int = 1  # number of different settings in force
    losses: int = 0  # number of data losses of the store
    helped: int = 0  # culls so far by outcome, as the next two
    unhelped: int = 0
    unclear: int = 0
    hold: Hold | None = None
    retiring: int = 0  # leases in use
    culls_by: tuple[tuple[str, str, int], ...] = ()  # outcome, cause, and number of culls
    used: int = 0  # tokens in use
    capacity: int = 0  # tokens in all; 0: not known
    median_errors: int | None = None
    """Median of the members' errors in the window; None in a fleet of fewer than three, as the next one."""
    median_ratio: float | None = None  # median of the parts of their requests that failed, from 0 to 1
    duplicate: bool = False  # another container beats under the instance name of this one
    tells_process: bool = True  # the store tells its process, so that its restart is noticed
    lost_hold: Hold | None = None  # this sidecar saw it in force, and the store has lost it
    draining: int = 0  # of ``down``: containers that still drain, as far as their sidecars say

    @property
    def paused(self) -> tuple[str, ...]:
        """The causes for which culls are paused, because the last one did not help."""
        return tuple(trial.cause for trial in self.trials if trial.paused_s > 0)
