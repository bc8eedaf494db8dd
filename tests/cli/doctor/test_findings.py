"""One sentence and one level for each answer of a server or of the fleet."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sidecar.cli.doctor import findings
from sidecar.cli.doctor.findings import Finding, FindingLevel
from sidecar.config.settings import JudgingConfig
from sidecar.core.fleet.fleet_settings import FleetSettings, Share
from sidecar.core.fleet.members import Member, MemberList
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.types import CauseTrial, Fleet, Hold, Presence, Unknown

INFO = {
    "redis_version": "7.0.15",
    "run_id": "1",
    "role": "master",
    "connected_slaves": "2",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "cluster_enabled": "0",
}
NOPERM = Unknown("permission")


def _levels(found: Iterable[Finding]) -> dict[str, FindingLevel]:
    return {finding.what: finding.level for finding in found}


# -- a server -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "level", "said"),
    [
        pytest.param(findings.of_reach(0.0012), "ok", "a PING takes 1.2 ms", id="PING measured"),
        pytest.param(findings.of_reach(NOPERM), "ok", "may not PING", id="PING refused"),
        pytest.param(findings.of_reach(Unknown("auth")), "FAIL", "refused the sidecar's credentials", id="password"),
        pytest.param(findings.of_reach(Unknown("new-word")), "FAIL", "new-word", id="unheard of"),
        pytest.param(findings.of_clock(0.04), "ok", "0.0 s", id="clock"),
        pytest.param(findings.of_clock(-5.0), "ok", "5.0 s", id="clock at its limit"),
        pytest.param(findings.of_clock(5.1), "warn", "5.1 s ahead of", id="clock ahead"),
        pytest.param(findings.of_clock(-60.0), "warn", "60.0 s behind", id="clock behind"),
        pytest.param(findings.of_clock(NOPERM), "warn", "cannot tell", id="clock refused"),
        pytest.param(findings.of_write(None), "ok", "was written and removed again", id="write"),
        pytest.param(findings.of_write(Unknown("oom")), "FAIL", "no container can be culled: Redis is", id="full"),
    ],
)
def test_answer_of_a_server(found: Finding, level: str, said: str) -> None:
    assert found.level == level
    assert said in found.sentence


def _info(
    fields: dict[str, str] | None = None, save: str | Unknown = "", *, is_cluster_url: bool = False
) -> dict[str, Finding]:
    found = findings.of_info({**INFO, **(fields or {})}, save, is_cluster_url=is_cluster_url)
    return {finding.what: finding for finding in found}


@pytest.mark.parametrize(
    ("answer", "levels"),
    [(None, {"user": "warn"}), (NOPERM, {"user": "ok"}), (Unknown("cluster"), {}), (Unknown("timeout"), {})],
    ids=["may write", "may not", "not known", "no answer"],
)
def test_user_that_may_write_the_keys_of_other_services_is_warned_of(
    answer: Unknown | None, levels: dict[str, str]
) -> None:
    assert _levels(findings.of_scope(answer)) == levels


def test_good_server_has_nothing_to_be_warned_of() -> None:
    found = _info()
    assert {finding.level for finding in found.values()} == {FindingLevel.OK}
    assert found["version"].sentence == "redis 7.0.15"
    assert found["role"].sentence == "master, with 2 replicas"


@pytest.mark.parametrize(
    ("fields", "save", "what", "level", "said"),
    [
        pytest.param(
            {"server_name": "valkey", "valkey_version": "8.1"}, "", "version", "ok", "valkey 8.1", id="valkey"
        ),
        pytest.param({"role": "slave"}, "", "role", "FAIL", "read-only replica", id="replica"),
        pytest.param({"loading": "1"}, "", "role", "warn", "still loading", id="loading"),
        pytest.param({"maxmemory": "9"}, "", "eviction", "ok", "noeviction", id="limit without eviction"),
        pytest.param({"maxmemory": "9", "maxmemory_policy": "lru"}, "", "eviction", "warn", "lru: it may", id="evicts"),
        pytest.param({"maxmemory_policy": "lru"}, "", "eviction", "ok", "no limit", id="would evict, no limit"),
        pytest.param({"maxmemory": "100", "used_memory": "101"}, "", "memory", "FAIL", "full, so no", id="full"),
        pytest.param({"maxmemory": "100", "used_memory": "91"}, "", "memory", "warn", "91 of 100 bytes", id="nearly"),
        pytest.param({"cluster_enabled": "1"}, "", "cluster", "warn", "redis+cluster://", id="node of a Cluster"),
        pytest.param({"aof_enabled": "0"}, "", "persistence", "warn", "none: a restart forgets", id="forgets"),
        pytest.param({"aof_enabled": "0"}, "3600 1", "persistence", "ok", "snapshots", id="snapshots"),
        pytest.param({"aof_enabled": "0"}, NOPERM, "persistence", "warn", "is not known: the Redis", id="snapshots?"),
    ],
)
def test_what_a_server_says_of_itself(
    fields: dict[str, str], save: str | Unknown, what: str, level: str, said: str
) -> None:
    found = _info(fields, save)[what]
    assert found.level == level
    assert said in found.sentence


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"used_memory": "1000"}, id="no limit"),
        pytest.param({"maxmemory": "100", "used_memory": "90"}, id="room"),
        pytest.param({"maxmemory": "100", "used_memory": "101", "mem_not_counted_for_evict": "20"}, id="for replicas"),
        pytest.param({"maxmemory": "100", "used_memory": "101", "maxmemory_policy": "allkeys-lru"}, id="evicts"),
        pytest.param({"maxmemory": "100"}, id="does not tell"),
    ],
)
def test_memory_that_is_not_full_is_not_spoken_of(fields: dict[str, str]) -> None:
    assert "memory" not in _info(fields)


def test_node_of_a_cluster_under_its_own_kind_of_url_is_as_it_should_be() -> None:
    assert "cluster" not in _info({"cluster_enabled": "1"}, is_cluster_url=True)


def test_server_that_may_not_be_asked_is_one_warning() -> None:
    (found,) = findings.of_info(NOPERM, NOPERM, is_cluster_url=False)
    assert found.level is FindingLevel.WARN
    assert found.sentence.startswith("cannot tell")


# -- the fleet ----------------------------------------------------------------------------------------------


def _member_list(*instances: str, fleet: Fleet | None = None, **more: tuple[object, ...]) -> MemberList:
    members = tuple(Member(instance, Presence.WELL, "", 1.0) for instance in instances)
    return MemberList(fleet or Fleet(alive=len(instances)), 3, members, **more)  # type: ignore[arg-type]  # a table's


WELL = {"scripts": "ok", "shared": "ok", "settings": "ok"}
THREE_SETTINGS = (FleetSettings().dump(), FleetSettings(spacing_us=1).dump(), "of another version")
TWO_ADDRESSES = (FleetSettings(servers="1").dump(), FleetSettings(servers="2").dump())


@pytest.mark.parametrize(
    ("members", "levels"),
    [
        pytest.param(_member_list("a", "b"), WELL, id="well"),
        pytest.param(_member_list("b"), WELL, id="this one is not there"),
        pytest.param(_member_list("a"), {**WELL, "shared": "warn"}, id="no others"),
        pytest.param(_member_list(), {**WELL, "shared": "warn"}, id="none"),
        pytest.param(_member_list("a", "b", policies=THREE_SETTINGS), {**WELL, "settings": "warn"}, id="settings"),
        pytest.param(
            _member_list("a", "b", policies=TWO_ADDRESSES),
            {**WELL, "settings": "warn", "servers": "FAIL"},
            id="servers",
        ),
        pytest.param(
            _member_list("a", "b", fleet=Fleet(2, losses=1), holds=(Hold("alice", "why", 1.0),)),
            {**WELL, "memory": "warn", "hold": "warn"},
            id="lost and held",
        ),
        pytest.param(
            _member_list("a", "b", fleet=Fleet(2, tells_process=False)), {**WELL, "process": "warn"}, id="no INFO"
        ),
        pytest.param(_member_list("a", "b", fleet=Fleet(2, trials=(CauseTrial("http", 4, 2, 0.0),))), WELL, id="tried"),
        pytest.param(Unknown("permission"), {"scripts": "FAIL"}, id="scripts are refused"),
    ],
)
def test_what_the_store_knows_of_the_fleet(members: MemberList | Unknown, levels: dict[str, str]) -> None:
    assert _levels(findings.of_fleet(members, "a")) == levels


@pytest.mark.parametrize(
    ("failures", "paused_s", "said"),
    [
        (1, 540.0, "no culls for redis for 9m, because the last cull did not help; "),
        (3, 2400.0, "no culls for redis for 40m, because the last 3 culls did not help; "),
    ],
)
def test_paused_cause_is_shown_with_what_an_operator_may_type(failures: int, paused_s: float, said: str) -> None:
    trials = (CauseTrial("http", 2, 1), CauseTrial("redis", 1, 0, paused_s, failures))
    found = findings.of_fleet(_member_list("a", "b", fleet=Fleet(2, trials=trials)), "a")
    assert findings.warn("paused", f"{said}health-arbiter release tries one at once") in list(found)


@pytest.mark.parametrize(
    ("count", "named"), [(1, "n0;"), (5, "n0, n1, n2, n3, n4;"), (7, "n0, n1, n2, n3, n4 and 2 more;")]
)
def test_names_that_two_containers_share_are_a_failure(count: int, named: str) -> None:
    twins = (Member(f"n{at}", Presence.SUSPECT, "redis", 1.0, duplicate=True) for at in range(count))
    members = MemberList(Fleet(9), 0, (Member("a", Presence.WELL, "", 1.0), *twins))
    (found,) = [each for each in findings.of_fleet(members, "a") if each.what == "duplicate"]
    assert found.level is FindingLevel.FAIL
    assert f"neither may be culled: {named} give each an ARBITER_INSTANCE" in found.sentence


@pytest.mark.parametrize(
    ("members", "levels"),
    [(("a", "b"), {"beat": "ok"}), (("b",), {"beat": "warn"}), ((), {})],
    ids=["heard", "another store", "empty"],
)
def test_own_beat_is_looked_for_in_the_store(members: tuple[str, ...], levels: dict[str, str]) -> None:
    assert _levels(findings.of_beat([Member(name, Presence.WELL, "", 1.0) for name in members], "a")) == levels


@pytest.mark.parametrize(
    ("own", "theirs", "level"),
    [
        pytest.param("", "in this process", None, id="both in memory"),
        pytest.param("redis://:pass@h:6379/0", "redis://:***@h:6379/0", None, id="same"),
        pytest.param("redis://:pass@h", "redis://***@H:6379/0", None, id="written in another way"),
        pytest.param("redis+sentinel://a,b/m", "redis+sentinel://b,a/m", None, id="sentinels in another order"),
        pytest.param("redis://:pass@h", "redis://:***@g", "warn", id="another host"),
        pytest.param("redis://h/1", "redis://h", "warn", id="another database"),
        pytest.param("redis://:pass@h", "in this process", "FAIL", id="sidecar in memory"),
        pytest.param("", "redis://h", "FAIL", id="command in memory"),
    ],
)
def test_store_of_the_sidecar_is_compared(own: str, theirs: str, level: str | None) -> None:
    found = list(findings.of_store(own, theirs))
    assert [finding.level for finding in found] == ([level] if level else [])
    assert not any("pass" in finding.sentence for finding in found)


ONE_SLOT = RotationPlan(21_600.0, Share(1), 60.0)


@pytest.mark.parametrize(
    ("plan", "fleet", "level", "said"),
    [
        pytest.param(RotationPlan(0.0, Share(1), 60.0), Fleet(400), None, "", id="no lifetime"),
        pytest.param(ONE_SLOT, Fleet(300), "ok", "within a lifetime", id="in time"),
        pytest.param(ONE_SLOT, Fleet(390, down=10), "warn", "400 containers", id="not in time"),
        pytest.param(
            RotationPlan(21_600.0, Share(1), 60.0, Share(2)), Fleet(1, down=1), "warn", "2 have to stay", id="never"
        ),
    ],
)
def test_fleet_that_cannot_be_retired_in_time_is_a_finding(
    plan: RotationPlan, fleet: Fleet, level: str | None, said: str
) -> None:
    found = list(findings.of_rotation(plan, fleet))
    assert [finding.level for finding in found] == ([level] if level else [])
    assert all(said in finding.sentence for finding in found)


# -- the limit of errors --------------------------------------------------------------------------------------


CULLS_FOR_NOISE = (
    "your containers have 3 errors a minute when well; a limit of 5 culls for noise: noise reaches it in 18 % of all "
    "windows; ARBITER_ERROR_LIMIT=18 is above it"
)


@pytest.mark.parametrize(
    ("usual", "settings", "level", "said"),
    [
        (0.0, {}, None, ""),
        (0.2, {"error_limit": 8}, "ok", "0.2 errors a minute when well; noise hardly ever reaches a limit of 8"),
        (3.0, {"outlier": "off"}, "warn", CULLS_FOR_NOISE),
        (
            3.0,
            {},
            "warn",
            "a limit of 5 means little: noise reaches it in 18 % of all windows, and only ARBITER_OUTLIER",
        ),
        (6.0, {"error_window": 120.0, "error_limit": 20}, "warn", "3 errors a minute when well; a limit of 20 means"),
    ],
    ids=["nothing is known", "far above", "noise culls", "the outlier rule spares them", "another window"],
)
def test_limit_against_the_usual_errors(
    usual: float, settings: dict[str, object], level: str | None, said: str
) -> None:
    found = list(findings.of_limit(JudgingConfig(**settings), usual, 200))  # type: ignore[arg-type]
    assert [each.level for each in found] == ([level] if level else [])
    assert all(said in each.sentence for each in found)
