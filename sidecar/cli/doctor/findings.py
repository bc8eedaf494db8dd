"""What ``doctor`` makes of what a Redis server and the shared bucket tell: one sentence for each thing looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from sidecar.cli.doctor import policies
from sidecar.config import redis_urls
from sidecar.core.explain import reasons
from sidecar.core.fleet.terms import Terms
from sidecar.core.life.lifetime import Plan
from sidecar.core.types import CauseTrial, Fleet, Member, Roll, Unknown

CLOCK_LIMIT_S: Final = 5.0
MEMORY_LIMIT: Final = 0.9
MOST_NAMED: Final = 5
"""Instance names in one sentence."""


class Level(StrEnum):
    """How bad it is: culls work, may not do what they should, or cannot work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


class Finding(NamedTuple):
    """One line of the report."""

    level: Level
    what: str
    sentence: str


Info = Mapping[str, str]
"""The reply to INFO: field and value."""


def why(unknown: Unknown) -> str:
    """The sentence for an unclear answer."""
    return reasons.UNKNOWN.get(unknown.error, unknown.error)


def of_reach(ping_s: float | Unknown) -> Finding:
    """Whether the server answers; who may not PING has been answered too."""
    if not isinstance(ping_s, Unknown):
        return Finding(Level.OK, "reachable", f"a PING takes {ping_s * 1000:.1f} ms")
    if ping_s.error == "permission":
        return Finding(Level.OK, "reachable", "it answers, though the user may not PING")
    return Finding(Level.FAIL, "reachable", why(ping_s))


def of_clock(ahead_s: float | Unknown) -> Finding:
    """Whether the server's clock and ours agree."""
    if isinstance(ahead_s, Unknown):
        return Finding(Level.WARN, "clock", f"cannot tell: {why(ahead_s)}")
    if abs(ahead_s) > CLOCK_LIMIT_S:
        text = f"the server is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine"
        return Finding(Level.WARN, "clock", f"{text}; the budget goes by the server's clock")
    return Finding(Level.OK, "clock", f"it differs from ours by {abs(ahead_s):.1f} s")


def of_info(info: Info | Unknown, save: str | Unknown, *, is_cluster_url: bool) -> Iterator[Finding]:
    """What the server says of itself; ``save`` is its setting of that name."""
    if isinstance(info, Unknown):
        yield Finding(Level.WARN, "server", f"cannot tell its version, role, memory and persistence: {why(info)}")
        return
    yield Finding(Level.OK, "version", _version(info))
    yield _role(info)
    yield _eviction(info)
    yield from _memory(info)
    yield _persistence(info, save)
    if info.get("cluster_enabled") == "1" and not is_cluster_url:
        yield Finding(Level.WARN, "cluster", "the server is a node of a Cluster: its URL is redis+cluster://...")


def of_roll(roll: Roll | Unknown, instance: str) -> Iterator[Finding]:
    """What the shared bucket says."""
    if isinstance(roll, Unknown):
        yield Finding(Level.FAIL, "scripts", f"the bucket cannot be read: {why(roll)}")
        return
    yield Finding(Level.OK, "scripts", f"they run; {roll.used} tokens are in use")
    yield _shared(roll.members, instance)
    yield from _duplicates(roll.members)
    yield _settings(roll.policies)
    yield from _servers(roll.policies)
    if roll.fleet.losses:
        yield Finding(Level.WARN, "memory", f"former culls were forgotten {roll.fleet.losses} times so far")
    yield from (_paused(trial) for trial in roll.fleet.trials if trial.paused_s > 0)
    yield from (Finding(Level.WARN, "hold", reasons.hold(hold)) for hold in roll.holds)


def of_write(answer: Unknown | None) -> Finding:
    """Whether we may write below the prefix of the service."""
    if isinstance(answer, Unknown):
        return Finding(Level.FAIL, "write", f"nothing can be written, so nobody can be culled: {why(answer)}")
    return Finding(Level.OK, "write", "a key of the service could be written, and was taken away again")


def of_beat(members: Sequence[Member], instance: str) -> Iterator[Finding]:
    """Whether the bucket that was looked at has heard the sidecar that answers here."""
    heard = next((member for member in members if member.instance == instance), None)
    if heard is not None:
        yield Finding(Level.OK, "beat", f"the bucket heard of {instance} {heard.age_s:.0f} s ago")
    elif members:
        text = f"the sidecar answers as {instance}, and this bucket has not heard of it"
        yield Finding(Level.WARN, "beat", f"{text}: its own is another one, or it has only just started")


def of_renewal(plan: Plan, fleet: Fleet) -> Iterator[Finding]:
    """Whether a fleet of this size can be retired in time, if it is to be."""
    if plan.lifetime_s > 0:
        shortfall = plan.shortfall(fleet.alive + fleet.down)
        text = shortfall or "the fleet can be retired and replaced within a lifetime"
        yield Finding(Level.WARN if shortfall else Level.OK, "lifetime", text)


def of_identity(servers: Mapping[str, str], configured: int) -> Iterator[Finding]:
    """Whether servers by these names are different ones, of so many; the run ids of who answered are the values."""
    first: dict[str, str] = {}
    for name, run_id in servers.items():
        if run_id in first:
            text = f"{first[run_id]} and {name} are one server, which counts two shares of the budget"
            yield Finding(Level.FAIL, "independent", text)
        first.setdefault(run_id, name)
    if not len(first) == len(servers) > 1:
        return
    if len(first) < configured:
        yield Finding(Level.WARN, "independent", f"{len(first)} of {configured} answered and are different")
    else:
        yield Finding(Level.OK, "independent", f"{len(first)} different servers share the budget")


def of_bucket(own: str, theirs: str) -> Iterator[Finding]:
    """Whether the sidecar's bucket, as it shows that, is the one that was looked at."""
    own = redis_urls.shown(own)
    if _places(own) == _places(theirs):
        return
    is_sure = redis_urls.IN_PROCESS in (own, theirs)  # of two URLs both may lead to one server
    text = f"the sidecar's is {theirs}, and this command's {own}: ARBITER_REDIS_URL differs"
    yield Finding(Level.FAIL if is_sure else Level.WARN, "bucket", text)


def _places(shown: str) -> object:
    """Where it leads, however it is written."""
    try:
        return {redis_urls.place(url) for url in redis_urls.redis_urls(shown)}
    except ValueError:
        return shown


def _version(info: Info) -> str:
    name, version = info.get("server_name", "redis"), info.get("redis_version", "unknown")
    return f"{name} {info.get(f'{name}_version', version)}"


def _role(info: Info) -> Finding:
    if info.get("loading") == "1":
        return Finding(Level.WARN, "role", "it is still loading its data")
    if info.get("role") == "master":
        return Finding(Level.OK, "role", f"master, with {info.get('connected_slaves', '0')} replicas")
    return Finding(Level.FAIL, "role", "a read-only replica, which cannot grant: the URL has to lead to its master")


def _eviction(info: Info) -> Finding:
    policy, limit = info.get("maxmemory_policy", "unknown"), info.get("maxmemory", "")
    if limit == "0":
        return Finding(Level.OK, "eviction", "none, for there is no limit of memory")
    if policy == "noeviction":
        return Finding(Level.OK, "eviction", "none (noeviction)")
    return Finding(Level.WARN, "eviction", f"{policy}: it may forget culls when its memory is full; set noeviction")


def _memory(info: Info) -> Iterator[Finding]:
    """How full it is, where there is a limit and nothing makes room."""
    limit = int(info.get("maxmemory", "0"))
    if not limit or info.get("maxmemory_policy") != "noeviction":
        return
    # What replicas and the append-only file are still to get does not count.
    used = int(info.get("used_memory", "0")) - int(info.get("mem_not_counted_for_evict", "0"))
    text = f"{used} of {limit} bytes are in use (maxmemory)"
    if used > limit:
        yield Finding(Level.FAIL, "memory", f"full, so that nobody can be culled: {text}")
    elif used > MEMORY_LIMIT * limit:
        yield Finding(Level.WARN, "memory", f"nearly full: {text}; when it is, nobody can be culled")


def _persistence(info: Info, save: str | Unknown) -> Finding:
    if info.get("aof_enabled") == "1":
        return Finding(Level.OK, "persistence", "append-only file")
    if isinstance(save, Unknown):
        text = "no append-only file, and whether it takes snapshots cannot be told"
        return Finding(Level.WARN, "persistence", f"{text}: {why(save)}")
    if save:
        return Finding(Level.OK, "persistence", "snapshots: a restart forgets what came after the last one")
    return Finding(Level.WARN, "persistence", "none: a restart forgets all culls; set appendonly yes")


def _shared(members: tuple[Member, ...], instance: str) -> Finding:
    others = sum(member.instance != instance for member in members)
    if not others:
        text = "no other instance is seen: they have another bucket (URL, namespace, service, mode), or there are none"
        return Finding(Level.WARN, "shared", text)
    own = "and this one" if others < len(members) else "but not this one"
    return Finding(Level.OK, "shared", f"{others} other instances are seen, {own}")


def _duplicates(members: tuple[Member, ...]) -> Iterator[Finding]:
    names = [member.instance for member in members if member.duplicate]
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        text = f"two containers run under one instance name, and neither may be culled: {', '.join(names[:MOST_NAMED])}"
        yield Finding(Level.FAIL, "duplicate", f"{text}{more}; give each an ARBITER_INSTANCE of its own")


def _settings(texts: tuple[str, ...]) -> Finding:
    if len(texts) > 1:
        text = f"{len(texts)} different sets are in force, the strictest of each holds: {policies.differences(texts)}"
        return Finding(Level.WARN, "settings", text)
    return Finding(Level.OK, "settings", "all sidecars run with the same ones")


def _servers(texts: tuple[str, ...]) -> Iterator[Finding]:
    """Whether all sidecars name the same servers. What cannot be read is of another version, and says nothing."""
    lists = {terms.servers for terms in map(Terms.read, texts) if terms is not None}
    if len(lists) > 1:
        text = f"ARBITER_REDIS_URL names {len(lists)} different lists of servers"
        yield Finding(Level.FAIL, "servers", f"{text}: no culls while they differ, and for a window after that")


def _paused(trial: CauseTrial) -> Finding:
    last = "the last cull" if trial.failures == 1 else f"the last {trial.failures} culls"
    text = f"no culls for {trial.cause} for {reasons.span(trial.paused_s)}, because {last} did not help"
    return Finding(Level.WARN, "paused", f"{text}; health-arbiter release --service tries one at once")
