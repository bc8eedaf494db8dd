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


class Granted(NamedTuple):
    """A token, or a lease. ``replayed``: this claim was granted before, and costs no second token.

    ``alive`` and ``suspect`` are 0 where no fleet is known. ``left_s``: remaining time of a lease; None for a token.
    """

    used: int
    capacity: int
    replayed: bool = False
    alive: int = 0
    suspect: int = 0
    left_s: float | None = None


class Denied(NamedTuple):
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


class Beat(NamedTuple):
    """A sidecar's sign of life, and what the fleet needs to know about its container."""

    instance: str
    incarnation: str
    presence: Presence
    cause: str = "unknown"
    """Of a suspect, or of a container that is down."""
    claim_id: str = ""
    """The token of a container that is down."""
    first: bool = False
    """The store has not answered a beat of this sidecar yet."""
    lease: str = ""
    """The holder of the lease of a container that is down for its retirement."""
    about: str = ""
    """The description of the container for people (``core.fleet.members.About``); empty: that of the last beat."""
    errors: int = 0
    """Server errors in the window now."""
    ratio: int | None = None
    """Failed requests per million, None if too few are known."""
    refused: bool = False
    """A suspect that was denied a token."""
    identity: str = ""
    """As in ``Claim``."""


class CauseTrial(NamedTuple):
    """The trial of culls for one cause: ``out`` of at most ``limit`` culls have no outcome yet.

    ``paused_s``: seconds until the next cull for this cause, because the last one did not help; 0: not paused.
    ``failures``: culls in a row that did not help. ``since``: Unix seconds at which the episode began in which the
    limit was earned; 0: the cause has no episode now.
    """

    cause: str
    limit: int
    out: int
    paused_s: float = 0.0
    failures: int = 0
    since: float = 0.0


class Fleet(NamedTuple):
    """The fleet, as the store's answer to a beat describes it."""

    alive: int
    """Containers that serve or start."""
    suspect: int = 0
    """Those of them that are suspect."""
    down: int = 0
    """Culled or retired containers that are not replaced yet."""
    cause: str = ""
    """The cause that most suspects share, if any."""
    trials: tuple[CauseTrial, ...] = ()
    """The causes with culls."""
    settings: int = 1
    """Number of different settings in force."""
    losses: int = 0
    """Number of data losses of the store."""
    helped: int = 0
    """Culls so far by outcome, as the next two."""
    unhelped: int = 0
    unclear: int = 0
    hold: Hold | None = None
    retiring: int = 0
    """Leases in use."""
    culls_by: tuple[tuple[str, str, int], ...] = ()
    """Outcome, cause, and number of culls."""
    used: int = 0
    """Tokens in use."""
    capacity: int = 0
    """Tokens in all; 0: not known."""
    median_errors: int | None = None
    """Median of the members' errors in the window; None in a fleet of fewer than three, as the next one."""
    median_ratio: float | None = None
    """Median of the parts of their requests that failed, from 0 to 1."""
    duplicate: bool = False
    """Another container beats under the instance name of this one."""
    tells_process: bool = True
    """The store tells its process, so that its restart is noticed."""
    lost_hold: Hold | None = None
    """This sidecar saw it in force, and the store has lost it."""
    draining: int = 0
    """Of ``down``: containers that still drain, as far as their sidecars say."""

    @property
    def paused(self) -> tuple[str, ...]:
        """The causes for which culls are paused, because the last one did not help."""
        return tuple(trial.cause for trial in self.trials if trial.paused_s > 0)
