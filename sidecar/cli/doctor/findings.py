"""The findings of ``doctor`` about a Redis server and the fleet: one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from sidecar.cli.doctor import settings_differences
from sidecar.config import redis_urls
from sidecar.config.bound import bound
from sidecar.config.settings import BudgetConfig, JudgingConfig
from sidecar.core.explain import reasons, words
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.members import Member, MemberList
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.measure import noise
from sidecar.core.types import CauseTrial, Fleet, Unknown

CLOCK_LIMIT_S: Final = 5.0
MEMORY_LIMIT: Final = 0.9
_MINUTE_S: Final = 60.0
_LEAST_PERCENT: Final = 0.01
NAMES_LIMIT: Final = 5
"""Maximum number of instance names in one sentence."""


class FindingLevel(StrEnum):
    """How bad it is: culls work, may not do what they should, or cannot work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


class Finding(NamedTuple):
    """One line of the report; ``where``: the masked URL of the server, if there are several."""

    level: FindingLevel
    what: str
    sentence: str
    where: str = ""


ok = partial(Finding, FindingLevel.OK)
warn = partial(Finding, FindingLevel.WARN)
fail = partial(Finding, FindingLevel.FAIL)

Info = Mapping[str, str]
"""The reply to INFO: field and value."""


def why(unknown: Unknown) -> str:
    """The sentence for an unclear answer."""
    return reasons.unreachable(unknown)


def of_reach(ping_s: float | Unknown) -> Finding:
    """Whether the server answers; the refusal of a PING is an answer too."""
    if not isinstance(ping_s, Unknown):
        return ok("reachable", f"a PING takes {ping_s * 1000:.1f} ms")
    if ping_s.error == "permission":
        return ok("reachable", "it answers, though the user may not PING")
    return fail("reachable", why(ping_s))


def of_clock(ahead_s: float | Unknown) -> Finding:
    """Whether the server's clock agrees with this machine's."""
    if isinstance(ahead_s, Unknown):
        return warn("clock", f"cannot tell: {why(ahead_s)}")
    if abs(ahead_s) > CLOCK_LIMIT_S:
        text = f"the server is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine"
        return warn("clock", f"{text}; the budget goes by the server's clock")
    return ok("clock", f"it differs from ours by {abs(ahead_s):.1f} s")


def of_info(info: Info | Unknown, save: str | Unknown, *, is_cluster_url: bool) -> Iterator[Finding]:
    """The findings about the server's reply to INFO and its setting ``save``."""
    if isinstance(info, Unknown):
        yield warn("server", f"cannot tell its version, role, memory and persistence: {why(info)}")
        return
    name, version = info.get("server_name", "redis"), info.get("redis_version", "unknown")
    yield ok("version", f"{name} {info.get(f'{name}_version', version)}")
    yield _role(info)
    yield _eviction(info)
    yield from _memory(info)
    yield _persistence(info, save)
    if info.get("cluster_enabled") == "1" and not is_cluster_url:
        yield warn("cluster", "the server is a node of a Cluster: its URL is redis+cluster://...")


def of_fleet(members: MemberList | Unknown, instance: str) -> Iterator[Finding]:
    """The findings about the fleet, as the store has it."""
    if isinstance(members, Unknown):
        yield fail("scripts", f"the fleet's state cannot be read: {why(members)}")
        return
    yield ok("scripts", f"they run; {members.used} tokens are in use")
    yield _shared(members.members, instance)
    yield from _duplicates(members.members)
    yield from _settings(members.policies)
    if not members.fleet.tells_process:
        yield warn("process", words.UNKNOWN_PROCESS)
    if members.fleet.losses:
        yield warn("memory", f"Redis lost its record of earlier culls, in all {members.fleet.losses} times")
    yield from (_paused(trial) for trial in members.fleet.trials if trial.paused_s > 0)
    yield from (warn("hold", reasons.hold(hold)) for hold in members.holds)


def of_write(answer: Unknown | None) -> Finding:
    """Whether the user may write below the prefix of the service."""
    if isinstance(answer, Unknown):
        return fail("write", f"nothing can be written, so no container can be culled: {why(answer)}")
    return ok("write", "a key of the service was written and removed again")


def of_scope(answer: Unknown | None) -> Iterator[Finding]:
    """Whether the user may write the keys of another service, by a script on one that does nothing."""
    if answer is None:
        text = "this user may write the keys of every service, and so may everyone who learns its password"
        yield warn("user", f"{text}; deploy/redis has a user for a single service")
    elif answer.error == "permission":
        yield ok("user", "it may not write the keys of other services")


def of_beat(members: Sequence[Member], instance: str) -> Iterator[Finding]:
    """Whether this store has a beat of the sidecar that answers here."""
    own = next((member for member in members if member.instance == instance), None)
    if own is not None:
        yield ok("beat", f"the store heard from {instance} {own.age_s:.0f} s ago")
    elif members:
        text = f"the sidecar answers as {instance}, and this store has not heard from it"
        yield warn("beat", f"{text}: it uses another store, or it has only just started")


def of_limit(judging: JudgingConfig, usual: float, containers: int) -> Iterator[Finding]:
    """Whether the limit of errors is above what chance gives; ``usual``: errors in a window while all is well."""
    if usual <= 0:
        return  # nothing is known, or nothing fails
    limit, window_s = judging.error_limit, judging.error_window
    least = noise.least_limit(usual, window_s, containers)
    rate = f"{usual * _MINUTE_S / window_s:.2g} errors a minute"
    if limit >= least:
        yield ok("limit", f"your containers have {rate} when well; noise hardly ever reaches a limit of {limit}")
        return
    part = 100 * noise.share_of_windows(usual, limit)
    often = (
        f"noise reaches it in {part:.2g} % of all windows"
        if part >= _LEAST_PERCENT
        else "noise reaches it now and then"
    )
    effect = f"a limit of {limit} means little: {often}, and only ARBITER_OUTLIER spares them"
    if judging.outlier == "off":
        effect = f"a limit of {limit} culls for noise: {often}"
    yield warn("limit", f"your containers have {rate} when well; {effect}; ARBITER_ERROR_LIMIT={least} is above it")


def of_rotation(plan: RotationPlan, fleet: Fleet) -> Iterator[Finding]:
    """Whether a fleet of this size can be retired within a lifetime, if there is one."""
    if plan.lifetime_s > 0:
        shortfall = plan.shortfall(fleet.alive + fleet.down)
        text = shortfall or "the fleet can be retired and replaced within a lifetime"
        yield (warn if shortfall else ok)("lifetime", text)


def of_budget(rules: BudgetConfig) -> Finding:
    """What the budget bounds."""
    return ok("budget", f"ARBITER_BUDGET={rules.budget}: {bound(rules)}")


def of_store(own: str, theirs: str) -> Iterator[Finding]:
    """Whether the store that the sidecar shows is the store of this command."""
    own = redis_urls.shown(own)
    if _places(own) == _places(theirs):
        return
    is_sure = redis_urls.IN_PROCESS in (own, theirs)  # two different URLs may lead to one server
    text = f"the sidecar's is {theirs}, and this command's {own}: ARBITER_REDIS_URL differs"
    yield (fail if is_sure else warn)("store", text)


def _places(shown: str) -> object:
    """The server of the URL, whatever its spelling."""
    try:
        return redis_urls.place(redis_urls.redis_url(shown))
    except ValueError:
        return shown


def _role(info: Info) -> Finding:
    if info.get("loading") == "1":
        return warn("role", "it is still loading its data")
    if info.get("role") == "master":
        return ok("role", f"master, with {info.get('connected_slaves', '0')} replicas")
    return fail("role", "a read-only replica, which cannot grant: the URL has to lead to its master")


def _eviction(info: Info) -> Finding:
    policy, limit = info.get("maxmemory_policy", "unknown"), info.get("maxmemory", "")
    if limit == "0":
        return ok("eviction", "none, for there is no limit of memory")
    if policy == "noeviction":
        return ok("eviction", "none (noeviction)")
    return warn("eviction", f"{policy}: it may forget culls when its memory is full; set noeviction")


def _memory(info: Info) -> Iterator[Finding]:
    """How full the memory is, if it has a limit and Redis evicts nothing."""
    limit = int(info.get("maxmemory", "0"))
    if not limit or info.get("maxmemory_policy") != "noeviction":
        return
    # Buffers for replicas and for the append-only file do not count.
    used = int(info.get("used_memory", "0")) - int(info.get("mem_not_counted_for_evict", "0"))
    text = f"{used} of {limit} bytes are in use (maxmemory)"
    if used > limit:
        yield fail("memory", f"full, so no container can be culled: {text}")
    elif used > MEMORY_LIMIT * limit:
        yield warn("memory", f"nearly full: {text}; when it is full, no container can be culled")


def _persistence(info: Info, save: str | Unknown) -> Finding:
    if info.get("aof_enabled") == "1":
        return ok("persistence", "append-only file")
    if isinstance(save, Unknown):
        return warn("persistence", f"no append-only file, and whether it takes snapshots is not known: {why(save)}")
    if save:
        return ok("persistence", "snapshots: a restart forgets what came after the last one")
    return warn("persistence", "none: a restart forgets all culls; set appendonly yes")


def _shared(members: tuple[Member, ...], instance: str) -> Finding:
    others = sum(member.instance != instance for member in members)
    if not others:
        return warn(
            "shared", "no other instance is seen: they use another store (URL, namespace, service, mode), or do not run"
        )
    return ok("shared", f"{others} other instances are seen, {'and' if others < len(members) else 'but not'} this one")


def _duplicates(members: tuple[Member, ...]) -> Iterator[Finding]:
    if double := [member.instance for member in members if member.duplicate]:
        text = "two containers run under one instance name, and neither may be culled"
        names = reasons.names(double, NAMES_LIMIT)
        yield fail("duplicate", f"{text}: {names}; give each an ARBITER_INSTANCE of its own")


def _settings(texts: tuple[str, ...]) -> Iterator[Finding]:
    if len(texts) > 1:
        differing = settings_differences.differences(texts)
        yield warn("settings", f"{len(texts)} different sets are in force, the strictest of each holds: {differing}")
    else:
        yield ok("settings", "all sidecars run with the same ones")
    # A text that cannot be read is of another version, and names no address.
    addresses = {terms.servers for terms in map(FleetSettings.load, texts) if terms is not None}
    if len(addresses) > 1:
        text = f"ARBITER_REDIS_URL names {len(addresses)} different addresses"
        yield fail("servers", f"{text}: no culls while they differ, and for a window after that")


def _paused(trial: CauseTrial) -> Finding:
    last = "the last cull" if trial.failures == 1 else f"the last {trial.failures} culls"
    text = f"no culls for {trial.cause} for {reasons.span(trial.paused_s)}, because {last} did not help"
    return warn("paused", f"{text}; health-arbiter release tries one at once")
