"""A fleet for tests of the rules: the budgets of its sidecars over one store in memory, without a loop.

The clock moves only with ``advance`` and ``steps``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

from harness.memory_store import MemoryStore
from sidecar.core.claims import Answer, Beat, Claim, Denied, Fleet, Granted, LeaseRequest, Presence
from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState
from sidecar.core.fleet.view import Asked, BeatReply, Edits, EndHold, Known, Request, View
from sidecar.core.types import US_PER_S, Entry, Hold
from sidecar.store.budget import FleetBudget

START_US = 1_700_000_000 * US_PER_S
TERMS = FleetSettings(servers="one")
SPACE = "c{:02}"


def names(count: int) -> list[str]:
    """``c00``, ``c01`` and so on."""
    return [SPACE.format(number) for number in range(count)]


def word(answer: Answer) -> str:
    """``granted``, or the reason of the refusal."""
    return answer.reason if isinstance(answer, Denied) else type(answer).__name__.lower()


class Kept(MemoryStore):
    """The store, whose content a test may change. ``median_errors``: what it tells as the median, None: what it is.

    ``written``: the entries of all commits; ``reads``: how often it was read for a decision.
    """

    def __init__(self, fleet: RuleFleet) -> None:
        super().__init__(lambda: fleet.now_us, run_id="1")
        self.rows, self.causes, self.control = self._roster.rows, self._roster.causes, self._roster.control
        self.median_errors: int | None = None
        self.written: list[Entry] = []
        self.reads = 0

    def runs_as(self, run_id: str) -> None:
        """Go on in another process of the server."""
        self.run_id = run_id

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> View:
        self.reads += 1
        view = await super().read(instance, window_us=window_us, expiry_us=expiry_us)
        return view if self.median_errors is None else view._replace(median_errors=self.median_errors)

    async def commit(self, revision: int, edits: Edits) -> int:
        at_us = await super().commit(revision, edits)
        self.written += edits.entries
        return at_us

    async def beat(self, beat: Beat, **windows: Any) -> BeatReply:
        reply = await super().beat(beat, **windows)
        return reply if self.median_errors is None else reply._replace(median_errors=self.median_errors)


class RuleFleet:
    """A fleet of one service. Its sidecars have the same settings, unless a call changes them."""

    def __init__(self, terms: FleetSettings | None = None) -> None:
        self.terms = terms or TERMS
        self.now_us = START_US
        self.own_us = 0
        self.kept = Kept(self)
        self.lives: Counter[str] = Counter()
        self._refused: set[str] = set()
        self._budgets: dict[str, FleetBudget] = {}

    # -- time ---------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.now_us += round(seconds * US_PER_S)
        self.own_us += round(seconds * US_PER_S)

    def steps(self, seconds: float) -> None:
        """Set the clock of the store; for the sidecars no time passes."""
        self.now_us += round(seconds * US_PER_S)

    # -- what sidecars and people ask ---------------------------------------------------------------------------

    def budget(self, instance: str, **changes: Any) -> FleetBudget:
        """The budget of this sidecar; with ``changes`` that of another one with these settings."""
        if changes:
            return self._new_budget(instance, replace(self.terms, **changes))
        budget = self._budgets.setdefault(instance, self._new_budget(instance, self.terms))
        budget.store = self.kept
        return budget

    def claim(self, instance: str, kind: str = "redis", *, claim_id: str = "", **changes: Any) -> Answer:
        """Ask for a token; the claim id is that of the incarnation unless it is given."""
        life = str(self.lives[instance])
        asked = Claim(claim_id or f"{instance}/{life}", instance, life, kind)
        answer: Answer = run(self.budget(instance, **changes).claim(asked))
        if isinstance(answer, Denied):
            self._refused.add(instance)
        return answer

    def retire(self, instance: str, *, slots: str = "1", timeout_s: float = 600.0, **changes: Any) -> Answer:
        life = str(self.lives[instance])
        lease = LeaseRequest(f"h-{instance}-{life}", instance, life, slots, timeout_s)
        answer: Answer = run(self.budget(instance, **changes).retire(lease))
        return answer

    def give_back(self, instance: str, *, is_lease: bool = False) -> bool:
        life = self.lives[instance]
        holder = f"h-{instance}-{life}" if is_lease else f"{instance}/{life}"
        return bool(run(self.budget(instance).give_back(instance, holder)))

    def hold(self, instance: str = "", for_s: float = 60.0) -> Hold:
        held: Hold = run(self.budget("operator").hold(instance, "ada", "look", for_s))
        return held

    def release(self, instance: str = "") -> bool:
        return bool(run(self.budget("operator").release(instance)))

    def beat(
        self,
        instance: str,
        presence: Presence = Presence.WELL,
        kind: str = "redis",
        *,
        first: bool = False,
        is_lease: bool = False,
        life: str = "",
        **changes: Any,
    ) -> Fleet:
        """Send a beat, with the decision that is due then, if any; the fleet after it."""
        life = life or str(self.lives[instance])
        if presence is not Presence.SUSPECT:
            self._refused.discard(instance)
        is_down = presence is Presence.DOWN
        beat = Beat(
            instance,
            life,
            presence,
            kind,
            f"{instance}/{life}" if is_down and not is_lease else "",
            first=first,
            lease=f"h-{instance}-{life}" if is_down and is_lease else "",
            refused=instance in self._refused,
        )
        fleet: Fleet = run(self.budget(instance, **changes).beat(beat))
        return fleet

    # -- many ---------------------------------------------------------------------------------------------------

    def beat_all(self, *instances: str, presence: Presence = Presence.WELL, kind: str = "redis") -> None:
        for instance in instances:
            self.beat(instance, presence, kind)

    def advance_beating(self, seconds: float, *instances: str, presence: Presence = Presence.WELL) -> None:
        """Let time pass while these beat every ten seconds and at the end."""
        end_us = self.now_us + round(seconds * US_PER_S)
        while self.now_us < end_us:
            self.advance(min(10 * US_PER_S, end_us - self.now_us) / US_PER_S)
            self.beat_all(*instances, presence=presence)

    def replaced(self, instance: str, presence: Presence = Presence.WELL, *, under: str = "") -> Fleet:
        """Send the first beat of a replacement: under the name of the old container, or ``under`` another."""
        if under:
            return self.beat(under, presence, first=True)
        self.lives[instance] += 1
        self.restarts(instance)
        return self.beat(instance, presence, first=True)

    def restarts(self, instance: str) -> None:
        """Start the sidecar of this container anew: it remembers nothing of the store."""
        self._budgets.pop(instance, None)

    def claim_and_go_down(self, instance: str, kind: str = "redis") -> None:
        """Get a token, and go down."""
        assert isinstance(self.claim(instance, kind), Granted)
        self.beat(instance, Presence.DOWN, kind)

    # -- what is kept -------------------------------------------------------------------------------------------

    def view(self, instance: str = "") -> View:
        windows = {"window_us": self.terms.window_us, "expiry_us": self.terms.expiry_us}
        view: View = run(self.kept.read(instance, **windows))
        return view

    @property
    def state(self) -> FleetState:
        return self.kept.state

    @property
    def epoch(self) -> Epoch:
        return self.kept.epoch

    @property
    def entries(self) -> list[Entry]:
        return self.kept.written

    def cull(self, instance: str) -> Cull:
        return self.kept.culls[instance]

    def phase(self, instance: str) -> str:
        return self.cull(instance).phase if instance in self.kept.culls else ""

    def fleet(self) -> Fleet:
        fleet: Fleet = run(self.budget("operator").member_list()).fleet
        return fleet

    def outcomes(self) -> tuple[int, int, int]:
        """The numbers of culls that helped, did not help, and were unclear."""
        fleet = self.fleet()
        return fleet.helped, fleet.unhelped, fleet.unclear

    def loses(self) -> None:
        """Flush the store."""
        run_id, self.kept = self.kept.run_id, Kept(self)
        self.kept.runs_as(run_id)

    def crashes(self, kept: Kept) -> None:
        """Go on with another process of the server, which has this older copy."""
        run_id, self.kept = f"{self.kept.run_id}1", kept
        kept.runs_as(run_id)

    def _new_budget(self, instance: str, terms: FleetSettings) -> FleetBudget:
        return FleetBudget(
            self.kept,
            terms,
            rng=Random(0),
            clock=lambda: self.own_us / US_PER_S,
            wall=lambda: self.now_us / US_PER_S,
            instance=instance,
        )


def run(asking: Coroutine[Any, Any, Any]) -> Any:
    """The answer of a coroutine that waits for nobody."""
    while True:
        try:
            asking.send(None)
        except StopIteration as end:
            return end.value


def fleet_of_size(count: int, terms: FleetSettings | None = None) -> RuleFleet:
    """``count`` healthy members, in a store that has heard the fleet for long enough to grant tokens."""
    it = RuleFleet(terms)
    it.beat_all(*names(count))
    it.advance_beating(20, *names(count))
    return it


def draft_of(
    view: View, terms: FleetSettings = TERMS, *, known: Known | None = None, asked: Asked | None = None
) -> Draft:
    """A draft over this view, for the rules that work on one."""
    return Draft(view, Request(asked or EndHold(""), terms, known or Known()))
