"""A fleet in virtual time with the production code: sidecars with a ``FleetBudget`` each, a server, and a judge.

Every random choice comes from one ``Chance``, so a seed repeats a schedule. A world can be copied (``pickle``): a
healthy fleet is made once, and many schedules begin with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harness.fleet_judge import BrokenPromiseError, Down, Judge
from harness.fleet_servers import START_US, Chance, Clock, Fate, Line, Server, Time, Weather
from harness.memory_store import MemoryStore
from harness.step_loop import StepLoop
from sidecar.core.claims import Answer, Beat, Claim, Denied, Fleet, Granted, LeaseRequest, Presence, Unknown
from sidecar.core.fleet.records import Cull
from sidecar.core.types import US_PER_S, Entry, Hold
from sidecar.store.budget import FleetBudget

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from sidecar.core.fleet.fleet_settings import FleetSettings
    from sidecar.core.fleet.view import Edits

T = TypeVar("T")

STEP_NOTICED_US: Final = 2 * US_PER_S
ANEW_US: Final = 2 * US_PER_S
"""A sidecar whose connection is closed beats anew within this time."""

BEAT_US: Final = 11 * US_PER_S
"""The longest time between two beats of a sidecar whose connection is open."""

STAYS_US: Final = 11_600_000
"""The longest time for which a master that Sentinel demotes takes writes."""

CRASH_US: Final = 1000
"""The shortest time in which a process follows another."""

LONGEST_US: Final = 3 * US_PER_S
"""The longest time that concurrent requests take."""

UNIX_US: Final = 1_700_000_000 * US_PER_S


@dataclass
class Attempt:
    """The last commit of a process, for the judge: the token that it granted, and its place among all commits."""

    grant: str = ""
    order: int = 0


@dataclass
class Process:
    """One process of a sidecar and its last attempt to commit. Its requests may arrive after its end."""

    made: Attempt = field(default_factory=Attempt)


@dataclass
class Sidecar:
    """One sidecar and its container. ``budget`` and ``line`` belong to the process: a restart makes new ones.

    ``beats_by_us``: when it beats at the latest, because the server lost its data; 0: at any time.
    """

    name: str
    terms: FleetSettings
    life: str = "1"
    presence: Presence = Presence.WELL
    cause: str = "redis"
    is_running: bool = True
    is_first: bool = True
    is_refused: bool = False
    is_unclear: bool = False
    holder: str = ""
    is_retired: bool = False
    beats_by_us: int = 0
    process: Process = field(default_factory=Process)
    asking: Claim | None = None
    budget: Any = None
    line: Any = None

    @property
    def claim_id(self) -> str:
        return f"{self.name}/{self.life}"

    def beat(self) -> Beat:
        is_down = self.presence is Presence.DOWN
        kind = self.cause if self.presence in (Presence.SUSPECT, Presence.DOWN) and not self.is_retired else "unknown"
        return Beat(
            self.name,
            self.life,
            self.presence,
            kind,
            self.claim_id if is_down and not self.is_retired else "",
            first=self.is_first,
            lease=self.holder if is_down and self.is_retired else "",
            refused=self.is_refused and self.presence is Presence.SUSPECT,
        )


class World:
    """The fleet of one schedule."""

    def __init__(self, terms: FleetSettings, size: int, seed: int) -> None:
        self.chance = Chance(seed)
        self.time = Time()
        self.weather = Weather(self.chance)
        clock = Clock(self.time, UNIX_US + self.chance.randint(-US_PER_S, US_PER_S))
        self.server = Server(clock, MemoryStore(clock))
        self.terms = terms
        self.judge = Judge(terms.window_us, several_us=START_US)
        self.sidecars: list[Sidecar] = []
        self.broken: BrokenPromiseError | None = None
        self.settings: dict[str, FleetSettings] = {}
        self.decisions = self.decided = self.born = 0
        self.log: list[str] | None = None
        self.demoted: Server | None = None
        self.demoted_until_us = 0
        self.outage = ""
        self.is_concurrent = False
        for _ in range(size):
            self.newcomer(terms)

    # -- the scheduler --------------------------------------------------------------------------------------------

    def run(self, request: Coroutine[Any, Any, T]) -> T:
        """Run one request without any other between its exchanges."""
        self.judge.begins(self.time.now_us)
        return StepLoop().run(request)

    def together(self, requests: Iterable[Coroutine[Any, Any, object]], *, slow: float = 0.0) -> None:
        """Run several requests whose exchanges alternate; ``slow`` is the probability that time passes between two."""
        self.judge.begins(self.time.now_us)
        loop = StepLoop()
        weather, points = self.weather, self.weather.points
        weather.new_future = loop.create_future
        self.is_concurrent, until_us = True, self.time.now_us + LONGEST_US
        tasks = [loop.create_task(request) for request in requests]
        loop.settle()
        while points:
            points.pop(self.chance.randrange(len(points))).fate.set_result(Fate.PASSES)
            loop.settle()
            if slow and self.time.now_us < until_us and self.chance.random() < slow:
                self.advance(self.chance.choice((1, US_PER_S // 10, US_PER_S)))
        weather.new_future = None
        self.is_concurrent = False
        for task in tasks:
            task.result()
        self.advance(0)

    # -- sidecars -------------------------------------------------------------------------------------------------

    def newcomer(self, terms: FleetSettings | None = None) -> Sidecar:
        """Start a container with a new name."""
        self.born += 1
        sidecar = Sidecar(f"c{self.born}", terms or self.terms)
        if self.outage:
            sidecar.presence, sidecar.cause = Presence.SUSPECT, self.outage
        self.sidecars.append(sidecar)
        self.start(sidecar)
        return sidecar

    def start(self, sidecar: Sidecar, terms: FleetSettings | None = None) -> None:
        """Start the sidecar of the container; it does not know the server yet."""
        sidecar.terms = terms or sidecar.terms
        sidecar.process = Process()
        self.settings[sidecar.terms.dump()] = sidecar.terms
        sidecar.is_running = sidecar.is_first = True
        sidecar.line = Line(self.server, self.weather, self, sidecar, sidecar.process)
        sidecar.budget = FleetBudget(
            sidecar.line,
            sidecar.terms,
            rng=self.chance,
            clock=self.time.seconds,
            wall=self.time.seconds,
            pause=self.pause,
            instance=sidecar.name,
        )

    def running(self, *presences: Presence) -> list[Sidecar]:
        return [
            sidecar
            for sidecar in self.sidecars
            if sidecar.is_running and (not presences or sidecar.presence in presences)
        ]

    async def pause(self, _: float) -> None:
        """Nothing: a conflict is retried at once, and the scheduler puts other exchanges between."""

    # -- what sidecars do -----------------------------------------------------------------------------------------

    async def beat(self, sidecar: Sidecar) -> Fleet | Unknown:
        beat = sidecar.beat()
        answer: Fleet | Unknown = await self._asked(sidecar, sidecar.budget.beat(beat))
        self._is_of(answer, Fleet, Unknown)
        if isinstance(answer, Fleet):
            sidecar.is_first = False
        return answer

    async def claim(self, sidecar: Sidecar) -> Answer:
        claim = Claim(sidecar.claim_id, sidecar.name, sidecar.life, sidecar.cause)
        sidecar.asking = claim
        answer: Answer = await self._asked(sidecar, sidecar.budget.claim(claim))
        self._is_of(answer, Granted, Denied, Unknown)
        if claim.claim_id != sidecar.claim_id or sidecar.presence is not Presence.SUSPECT:
            return answer  # its container is another one by now
        sidecar.is_unclear = isinstance(answer, Unknown)
        if isinstance(answer, Denied):
            sidecar.is_refused = True
            self.judge.denied(answer)
        if isinstance(answer, Granted):
            self._is_written(sidecar, claim.claim_id)
            self.judge.goes_down(claim.claim_id, sidecar.terms, self.time.now_us)
            sidecar.presence, sidecar.is_retired = Presence.DOWN, False
        return answer

    async def retire(self, sidecar: Sidecar, slots: int, timeout_s: float) -> Answer:
        sidecar.holder = sidecar.holder or f"h{self.chance.getrandbits(40):x}"
        lease = LeaseRequest(sidecar.holder, sidecar.name, sidecar.life, str(slots), timeout_s)
        answer: Answer = await self._asked(sidecar, sidecar.budget.retire(lease))
        self._is_of(answer, Granted, Denied, Unknown)
        if lease.holder != sidecar.holder or sidecar.presence is not Presence.WELL:
            return answer
        if isinstance(answer, Denied):
            self.judge.denied(answer)
        if isinstance(answer, Granted):
            until_us = self.time.now_us + round((answer.left_s or 0) * US_PER_S)
            now_us = self.time.now_us
            down = Down(
                lease.holder,
                sidecar.name,
                "",
                now_us,
                is_lease=True,
                until_us=until_us,
                slots=slots,
                order=sidecar.process.made.order,
            )
            if not answer.replayed or all(down.claim != lease.holder for down in self.judge.downs):
                self.judge.granted(down, sidecar.life, sidecar.terms)
            self.judge.goes_down(lease.holder, sidecar.terms, now_us)
            sidecar.presence, sidecar.is_retired = Presence.DOWN, True
        return answer

    async def give_back(self, sidecar: Sidecar) -> None:
        """Give back a token or lease that was granted, or may have been."""
        word = sidecar.holder if sidecar.is_retired or not sidecar.is_unclear else sidecar.claim_id
        self.judge.resigns(sidecar.name, word)
        answer = await self._asked(sidecar, sidecar.budget.give_back(sidecar.name, word))
        self._is_of(answer, bool, Unknown)
        self.judge.resigns(sidecar.name, word, is_sure=isinstance(answer, bool))
        sidecar.is_unclear, sidecar.holder = False, ""

    async def hold(self, scope: str, for_s: float, sidecar: Sidecar | None = None) -> Hold | Unknown:
        """A hold by a person, through a sidecar."""
        sidecar = sidecar or self.chance.choice(self.running())
        answer: Hold | Unknown = await self._asked(sidecar, sidecar.budget.hold(scope, "ada", "look at it", for_s))
        self._is_of(answer, Hold, Unknown)
        if isinstance(answer, Hold):
            until_us = self.time.now_us + round(for_s * US_PER_S)
            self.judge.held(scope, until_us, self.decisions)
        return answer

    async def release(self, scope: str) -> None:
        sidecar = self.chance.choice(self.running())
        self.judge.released(scope)
        self._is_of(await self._asked(sidecar, sidecar.budget.release(scope)), bool, Unknown)

    async def _asked(self, sidecar: Sidecar, asking: Coroutine[Any, Any, Any]) -> Any:
        """Await the answer, and note whether the server answered every exchange."""
        line: Line = sidecar.line
        line.asked = line.answered = 0
        answer = await asking
        if self.broken is not None:
            raise self.broken
        if self.log is not None:
            self.log.append(
                f"{self.time.seconds():.6f} {sidecar.name}/{sidecar.life} {getattr(asking, '__name__', '')}: {answer}"
            )
        if not isinstance(answer, Unknown) and line.asked and line.asked == line.answered:
            self._knows(line)
        return answer

    def _knows(self, line: Line) -> None:
        """Tell the judge of a loss that this sidecar can see, and remember the server as it is."""
        server, now_us = line.server, self.time.now_us
        if line.known is not None:
            generation, grants, offset_us, at_us = line.known
            is_stepped = abs(server.clock.offset_us - offset_us) > STEP_NOTICED_US + (now_us - at_us) // 100
            if generation != server.generation or grants > server.grants or is_stepped:
                self.judge.noticed()
        line.known = (server.generation, server.grants, server.clock.offset_us, now_us)

    def _is_written(self, sidecar: Sidecar, claim_id: str) -> None:
        """Check that the server had the grant before the answer, and that it was counted or renewed just now."""
        made, line = sidecar.process.made, sidecar.line
        row = line.server.store.culls.get(sidecar.name, Cull())
        if not made.grant == row.claim == claim_id:
            raise BrokenPromiseError(f"{claim_id} is granted, the server has {row}, and the last grant is {made.grant}")
        if all(down.claim != claim_id for down in self.judge.downs):
            self._granted(sidecar, made)
        if self.broken is not None:
            raise self.broken

    @staticmethod
    def _is_of(answer: object, *kinds: type) -> None:
        if not isinstance(answer, kinds):
            raise BrokenPromiseError(f"not an answer: {answer!r}")
        if answer == Unknown("internal"):
            raise BrokenPromiseError("an exception in a store")

    # -- what becomes of containers -------------------------------------------------------------------------------

    def restarts(self, sidecar: Sidecar, *, with_sidecar: bool) -> None:
        """Begin another incarnation of the container; its sidecar restarts too, or keeps its state."""
        self.settle(sidecar)
        self.judge.replaced(sidecar.name)
        sidecar.life = str(int(sidecar.life) + 1)
        sidecar.holder, sidecar.is_retired = "", False
        sidecar.is_refused = sidecar.is_unclear = False
        sidecar.presence = self.chance.choice((Presence.STARTING, Presence.WELL, Presence.WELL, Presence.SUSPECT))
        if self.outage:
            sidecar.presence, sidecar.cause = Presence.SUSPECT, self.outage
        if with_sidecar:
            self.start(sidecar)

    # -- what happens to the server ----------------------------------------------------------------------------------

    def advance(self, by_us: int) -> None:
        """Let time pass, with the beats that are due meanwhile; among concurrent requests they come afterwards."""
        until_us = self.time.now_us + by_us
        while not self.is_concurrent and (due := self._next_due()) is not None and due[0] <= until_us:
            self.time.now_us = max(self.time.now_us, due[0])
            if due[1] is None:
                self._switch_is_over()
            else:
                self._beat_anew(due[1])
        self.time.now_us = max(self.time.now_us, until_us)

    def _next_due(self) -> tuple[int, Sidecar | None] | None:
        """The next beat that is due, or (None) the end of the demoted process."""
        due: list[tuple[int, Sidecar | None]] = [
            (sidecar.beats_by_us, sidecar) for sidecar in self.running() if sidecar.beats_by_us
        ]
        if self.demoted is not None:
            due.append((self.demoted_until_us, None))
        return min(due, key=itemgetter(0), default=None)

    def _beat_anew(self, sidecar: Sidecar) -> None:
        """Beat until the beat is answered: a lost one is repeated within seconds, which is short beside the waits."""
        away_until_us = sidecar.line.server.away_until_us
        if away_until_us > self.time.now_us:
            sidecar.beats_by_us = away_until_us + self.chance.randint(0, ANEW_US)
            return
        weather = self.weather
        lost, weather.lost, reply_lost, weather.reply_lost = weather.lost, 0.0, weather.reply_lost, 0.0
        sidecar.beats_by_us = 0
        self.run(self.beat(sidecar))
        weather.lost, weather.reply_lost = lost, reply_lost

    def settle(self, sidecar: Sidecar) -> None:
        """Let a container that is down, and is about to end, beat first if that is due: it lasts for longer."""
        if sidecar.presence is not Presence.DOWN or not sidecar.is_running:
            return
        if self._reach(sidecar):
            sidecar.beats_by_us = self.time.now_us
        while sidecar.beats_by_us:
            self.advance(max(0, sidecar.beats_by_us - self.time.now_us))

    def _beats_are_due(self, sidecars: Iterable[Sidecar], within_us: int) -> None:
        for sidecar in sidecars:
            by_us = self.time.now_us + self.chance.randint(0, within_us)
            sidecar.beats_by_us = min(sidecar.beats_by_us or by_us, by_us)

    def step(self, by_us: int) -> None:
        """Set the clock of the server."""
        self.server.clock.offset_us += by_us
        if abs(by_us) <= STEP_NOTICED_US:
            self.judge.slack_us += max(0, by_us)
            return
        self._beats_are_due(self.running(), BEAT_US)
        self.judge.lost()
        self.judge.stepped(self.time.now_us, abs(by_us))

    def save(self) -> None:
        self.server.save(self.judge.heard)

    def flush(self) -> None:
        self.server.flush()
        self.judge.heard.clear()
        self._beats_are_due(self.running(), BEAT_US)
        self._lost()

    def crash(self) -> None:
        """Let another process with the older copy follow this one, and close all connections."""
        if self.server.older is None or self.demoted is not None:
            return
        self.server.away_until_us = 0
        self.time.now_us += CRASH_US
        self.judge.heard = self.server.restart()
        self._beats_are_due(self.running(), ANEW_US)
        self._lost()

    def switch(self) -> None:
        """Let half of the sidecars reach another process with the copy, while the others still write to this one."""
        if self.server.older is None or self.demoted is not None:
            return
        self.demoted, self.demoted_until_us = self.server, self.time.now_us + self.chance.randint(0, STAYS_US)
        self.server = self.server.successor()
        self.judge.is_split = True
        moved = self.chance.sample(self.sidecars, len(self.sidecars) // 2)
        self._beats_are_due([sidecar for sidecar in moved if self._reach(sidecar) and sidecar.is_running], ANEW_US)

    def _switch_is_over(self) -> None:
        self.demoted, self.judge.is_split = None, False
        self._beats_are_due(
            [sidecar for sidecar in self.sidecars if self._reach(sidecar) and sidecar.is_running], ANEW_US
        )
        self._lost()
        self.judge.forgot()

    def _reach(self, sidecar: Sidecar) -> bool:
        """Connect the sidecar to the process that is to stay; whether it was connected to another."""
        former, sidecar.line.server = sidecar.line.server, self.server
        return former is not self.server

    def _lost(self) -> None:
        self.judge.lost()
        if self.server.held < self.decided:
            self.judge.forgot()

    # -- the watcher ----------------------------------------------------------------------------------------------

    def took_beat(self, _server: Server, beat: Beat, settings: str) -> None:
        is_up = beat.presence not in (Presence.DOWN, Presence.GONE)
        terms = self.settings[settings]
        self.judge.took_beat(beat.instance, beat.incarnation, terms, self.time.now_us, is_up=is_up)

    def took_commit(self, server: Server, line: Line, edits: Edits) -> None:
        sidecar: Sidecar = line.sidecar
        if self.log is not None:
            self.log.append(f"{self.time.seconds():.6f} {sidecar.name} at process {server.process}: {edits}")
        self.decisions += 1
        self.decided = server.held = self.decisions
        made = line.process.made = Attempt(edits.grant, self.decisions)
        self.judge.refunded.update(edits.refund)
        self._follow(edits.entries)
        if edits.grant:
            server.grants += 1
            self._granted(sidecar, made)

    def _granted(self, sidecar: Sidecar, made: Attempt) -> None:
        claim = sidecar.asking
        assert claim is not None
        down = Down(claim.claim_id, claim.instance, claim.cause, self.time.now_us, order=made.order)
        self.judge.refunded.discard(claim.claim_id)
        try:
            self.judge.granted(down, claim.incarnation, sidecar.terms)
        except BrokenPromiseError as broken:
            self.broken = self.broken or broken

    def _follow(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if self.log is not None:
                self.log.append(f"{self.time.seconds():.6f} {entry}")
            self.judge.follow(entry.what, entry.instance, entry.kind, entry.reason, self.time.now_us)

    def spoke(self, line: Line) -> None:
        line.answered += 1
