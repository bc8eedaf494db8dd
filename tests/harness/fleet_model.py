"""A fleet in virtual time that does its worst: sidecars, a network that cannot be relied on, servers that restart.

Everything is drawn from one seeded ``Random``, so a schedule is replayed by its seed. The messages of one sidecar to
one server keep their order, as on a connection, and are delayed, doubled and lost; those of different sidecars overtake
each other. A sidecar that gave up on an answer does not take it any more.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from harness.fleet_judge import Judge, Known
from sidecar.core.birth import Mark
from sidecar.core.fleet import FleetBucket
from sidecar.core.terms import Terms
from sidecar.core.words import Answer, Beat, Claim, Denied, Granted, Lease, Presence

FINAL: Final = frozenset({"hold", "useless", "floor", "last"})
"""Refusals that end a walk over the servers; ``brake`` of the first server does, too."""


class Resignation(NamedTuple):
    """A lease that is given back."""

    instance: str
    incarnation: str
    holder: str


Message = Beat | Claim | Lease | Resignation


@dataclass(slots=True)
class Sidecar:
    """One sidecar and its container; what it was told by each server, and what it waits for."""

    name: str
    servers: int
    life: int = 0
    kind: str = "redis"
    presence: Presence = Presence.WELL
    is_running: bool = True
    newest: int = 0
    holder: str = ""
    is_on_leave: bool = False
    marks: list[Mark] = field(default_factory=list)
    answered: list[bool] = field(default_factory=list)
    under_way: list[list[tuple[Message, Mark, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = [Mark()] * self.servers
        self.answered = [False] * self.servers
        self.under_way = [[] for _ in range(self.servers)]

    @property
    def claim_id(self) -> str:
        """Names the incarnation, as in the budget."""
        return f"{self.name}/{self.life}"

    def beat(self) -> Beat:
        """What it has to say now."""
        is_down = self.presence is Presence.DOWN
        claim_id = self.claim_id if is_down and not self.is_on_leave else ""
        lease = self.holder if is_down and self.is_on_leave else ""
        return Beat(self.name, str(self.life), self.presence, self.kind, claim_id, not any(self.answered), lease)

    def claim(self) -> Claim:
        """What it asks for now."""
        return Claim(self.claim_id, self.name, str(self.life), self.kind)


@dataclass(slots=True)
class Server:
    """One server, its clock, and the judge who looks at what it says."""

    terms: Terms
    judge: Judge
    told_us: int
    bucket: FleetBucket = field(default_factory=FleetBucket)
    elapsed_us: int = 0
    is_up: bool = True
    is_hung: bool = False
    replica: tuple[FleetBucket, Known] | None = None
    witness_by_us: int | None = None

    def move(self, by_us: int) -> None:
        """Move its clock, either way."""
        self.told_us = max(1, self.told_us + by_us)
        self.elapsed_us += max(0, by_us)

    def hear(self, message: Message, mark: Mark) -> Answer | None:
        """Take in one message; the answer is judged before anybody else sees it."""
        if isinstance(message, Resignation):
            self.bucket.resign(message.instance, message.holder)
            self.judge.resigned(message.instance, message.holder)
            return None
        self.judge.hears(as_beat(message), self.told_us)
        if isinstance(message, Beat):
            self.bucket.beat(self.terms, message, mark, self.told_us)
            return None
        if isinstance(message, Lease):
            leave = self.bucket.retire(self.terms, message, mark, self.told_us)
            if isinstance(leave, Granted):
                useless = self.bucket.trials.useless(self.terms.useless_after, self.told_us)
                self.judge.retires(message, leave, self.told_us, self.bucket.incident.brake, useless)
            return leave
        answer = self.bucket.claim(self.terms, message, mark, self.told_us)
        if isinstance(answer, Granted):
            self.judge.granted(message, answer, self.told_us, self.elapsed_us, self.bucket.incident.brake)
        return answer


class FleetModel:
    """The fleet, the network and the servers of one schedule."""

    def __init__(self, rng: Random, terms: list[Terms], fleet: int, *, are_one: bool = False) -> None:
        self.rng = rng
        self.down: set[str] = set()
        self.culled: set[str] = set()
        self.retired: set[str] = set()
        self.slots, self.timeout_s = "1", 600.0
        start_us = rng.randint(10**6, 10**15)
        self.servers = [Server(one, Judge(one, self.down), start_us) for one in terms]
        self.sidecars: list[Sidecar] = []
        self.whole = Judge(terms[0], self.down, is_whole=True) if are_one else None
        self.born = self.sent = 0
        for _ in range(fleet):
            self.newcomer()

    # -- the network ----------------------------------------------------------------------------------------------

    def send(self, sidecar: Sidecar, index: int, message: Message, fate: float | None = None) -> Answer | None:
        """Send one message, and come back with the answer that reached the sidecar, if one did."""
        server, queue = self.servers[index], sidecar.under_way[index]
        fate = self.rng.random() if fate is None else fate
        if not server.is_up or fate > 0.97:
            return None
        self.sent += 1
        posted = (message, sidecar.marks[index], self.sent)
        queue.append(posted)
        if server.is_hung or fate > 0.92:
            return None
        answer = self.deliver(sidecar, index)
        if fate > 0.88:
            queue.append(posted)
        if fate > 0.80:
            return None
        sidecar.marks[index] = server.bucket.birth.mark
        sidecar.answered[index] = True
        return answer

    def deliver(self, sidecar: Sidecar, index: int) -> Answer | None:
        """Let everything that is under way arrive; the answer is that to the newest."""
        server, queue, answer = self.servers[index], sidecar.under_way[index], None
        for message, mark, number in queue:
            answer = server.hear(message, mark)
            self._judge_together(sidecar, message, answer, number, server.told_us)
        queue.clear()
        return answer

    def _judge_together(self, sidecar: Sidecar, message: Message, answer: Answer | None, number: int, at: int) -> None:
        """Judge the servers as one. What one of them hears later than another says nothing of now."""
        if self.whole is None:
            return
        if number >= sidecar.newest:
            sidecar.newest = number
            if isinstance(message, Resignation):
                self.whole.resigned(message.instance, message.holder)
            else:
                self.whole.hears(as_beat(message), at)
        elif sidecar.name in self.whole.known.seen and self.lives(sidecar, message):
            self.whole.known.heard.setdefault(sidecar.name, (at, None))
        if isinstance(answer, Granted) and isinstance(message, Claim | Lease) and self.is_ours(sidecar, message):
            lost = self.whole.known.missing.get(sidecar.name)
            word = message.holder if isinstance(message, Lease) else message.claim_id
            if lost is None or lost.claim_id != word:
                self.whole.floor_is_kept(message, at)
            self.whole.lets_go_down(message, at)

    def is_ours(self, sidecar: Sidecar, asked: Claim | Lease) -> bool:
        """Whether the sidecar still asks for this."""
        return asked.holder == sidecar.holder if isinstance(asked, Lease) else asked.claim_id == sidecar.claim_id

    # -- sidecars -------------------------------------------------------------------------------------------------

    def running(self) -> list[Sidecar]:
        return [sidecar for sidecar in self.sidecars if sidecar.is_running]

    def lives(self, sidecar: Sidecar, message: Message) -> bool:
        """Whether the container that this message tells of is still up."""
        return sidecar.presence is not Presence.DOWN and message.incarnation == str(sidecar.life)

    def newcomer(self) -> Sidecar:
        """A container with a name of its own starts."""
        self.born += 1
        sidecar = Sidecar(f"c{self.born}", len(self.servers))
        self.sidecars.append(sidecar)
        return sidecar

    def beat(self, sidecar: Sidecar, fate: float | None = None) -> None:
        """Beat at all servers; with ``fate`` 0 nothing happens on the way."""
        for index in range(len(self.servers)):
            self.send(sidecar, index, sidecar.beat(), fate)

    def claim(self, sidecar: Sidecar) -> None:
        """Walk the servers until one answers for all; obey it."""
        if sidecar.presence is not Presence.WANTS:
            return
        for index in self.rng.sample(range(len(self.servers)), len(self.servers)):
            answer = self.send(sidecar, index, sidecar.claim())
            if isinstance(answer, Granted):
                self.goes_down(sidecar)
            if isinstance(answer, Granted) or (isinstance(answer, Denied) and is_final(answer, index)):
                return

    def retire(self, sidecar: Sidecar) -> None:
        """Ask the first server, which alone has leases; under the same word until it is granted or given up."""
        if not sidecar.holder:
            self.sent += 1
            sidecar.holder = f"h{self.sent}"
        lease = Lease(sidecar.holder, sidecar.name, str(sidecar.life), self.slots, self.timeout_s)
        if isinstance(self.send(sidecar, 0, lease), Granted):
            self.retired.add(sidecar.claim_id)
            sidecar.is_on_leave = True
            self.puts_down(sidecar)

    def resign(self, sidecar: Sidecar) -> None:
        """Live on, or come back."""
        for index in range(len(self.servers)):
            self.send(sidecar, index, Resignation(sidecar.name, str(sidecar.life), sidecar.holder))
        self.down.discard(sidecar.claim_id)
        sidecar.holder, sidecar.is_on_leave, sidecar.presence = "", False, Presence.WELL
        self.beat(sidecar)

    def goes_down(self, sidecar: Sidecar) -> None:
        self.culled.add(sidecar.claim_id)
        sidecar.is_on_leave = False
        self.puts_down(sidecar)

    def puts_down(self, sidecar: Sidecar) -> None:
        sidecar.presence = Presence.DOWN
        self.down.add(sidecar.claim_id)
        self.beat(sidecar)

    def restarts(self, sidecar: Sidecar, *, with_sidecar: bool) -> None:
        """Another incarnation in its place, which may take the sidecar and all it knows along."""
        self.down.discard(sidecar.claim_id)
        sidecar.life += 1
        sidecar.holder, sidecar.is_on_leave = "", False
        sidecar.presence = self.rng.choice((Presence.STARTING, Presence.WELL, Presence.WANTS))
        if with_sidecar:
            self.forgets(sidecar)
        self.beat(sidecar)

    def forgets(self, sidecar: Sidecar) -> None:
        sidecar.marks = [Mark()] * len(self.servers)
        sidecar.answered = [False] * len(self.servers)

    def leaves(self, sidecar: Sidecar, *, with_goodbye: bool) -> None:
        if with_goodbye:
            for index in range(len(self.servers)):
                self.send(sidecar, index, sidecar.beat()._replace(presence=Presence.GONE, claim_id=""))
        sidecar.is_running = False

    # -- servers --------------------------------------------------------------------------------------------------

    def advance(self, by_us: int) -> None:
        """True time goes on, for everybody."""
        for server in self.servers:
            self.move(server, by_us)

    def move(self, server: Server, by_us: int) -> None:
        """Nobody's clock passes the moment by which a loss of memory has to have been told of."""
        if server.witness_by_us is not None and server.elapsed_us + by_us >= server.witness_by_us:
            self.witness(server)
        server.move(by_us)

    def witness(self, server: Server) -> None:
        """Somebody who knows of what was lost beats; if nobody is left who does, the promise is void."""
        server.witness_by_us = None
        index = self.servers.index(server)
        know = [one for one in self.running() if knows_more(one.marks[index], server.bucket.birth.mark)]
        if not know:
            server.judge.forget_grants()
            return
        server.is_up, server.is_hung = True, False
        one = max(know, key=lambda it: it.marks[index])
        self.send(one, index, one.beat(), fate=0.0)

    def flush(self, server: Server) -> None:
        """Lose everything. For a beat and a half nobody is granted anything, and the loss can be told of."""
        server.bucket = FleetBucket()
        server.replica = None
        server.judge.knows(Known())
        server.witness_by_us = server.elapsed_us + server.terms.expiry_us // 2

    def replicate(self, server: Server) -> None:
        server.replica = deepcopy((server.bucket, server.judge.known))

    def fail_over(self, server: Server) -> None:
        """Go back to what the replica has. A grant that nobody was told of has not been."""
        if server.replica is None:
            return
        server.bucket, known = deepcopy(server.replica)
        server.judge.knows(known)
        there = {*server.bucket.grants._counted, *server.bucket.grants._earned}
        for claim_id in server.judge.grants.keys() - there - self.culled:
            del server.judge.grants[claim_id]
        self.witness(server)

    def hold(self, target: str, for_us: int) -> None:
        for server in self.servers:
            if server.is_up and not server.is_hung:
                server.judge.known.holds[target] = server.judge.now_us(server.told_us) + for_us
                server.bucket.hold(target, "ada", "look at it", for_us, server.told_us)

    def release(self, target: str) -> None:
        for server in self.servers:
            if server.is_up and not server.is_hung:
                server.judge.known.holds.pop(target, None)
                server.bucket.release(target)

    def all_up(self) -> None:
        for index, server in enumerate(self.servers):
            server.is_up, server.is_hung = True, False
            for sidecar in self.sidecars:
                self.deliver(sidecar, index)


def as_beat(message: Beat | Claim | Lease) -> Beat:
    """Who claims is heard of, and wants; who asks for leave is well."""
    if isinstance(message, Beat):
        return message
    if isinstance(message, Lease):
        return Beat(message.instance, message.incarnation, Presence.WELL)
    return Beat(message.instance, message.incarnation, Presence.WANTS, message.kind)


def is_final(answer: Denied, index: int) -> bool:
    """Whether no other server need be asked."""
    return answer.reason in FINAL or (answer.reason == "brake" and index == 0)


def knows_more(known: Mark, mark: Mark) -> bool:
    """Whether this sidecar can tell that the server has lost its memory."""
    return known.born_us != 0 and (known.born_us != mark.born_us or known.grants > mark.grants)
