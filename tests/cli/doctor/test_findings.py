from __future__ import annotations

import pytest

from sidecar.cli.doctor import findings
from sidecar.cli.doctor.findings import Finding, Level
from sidecar.core.fleet.terms import Share, Terms
from sidecar.core.life.lifetime import Plan
from sidecar.core.types import CauseTrial, Fleet, Hold, Member, Presence, Roll, Unknown

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


def _levels(*found: Finding) -> dict[str, Level]:
    return {finding.what: finding.level for finding in found}


def _info(
    fields: dict[str, str] | None = None, save: str | Unknown = "", *, is_cluster_url: bool = False
) -> dict[str, Finding]:
    found = findings.of_info({**INFO, **(fields or {})}, save, is_cluster_url=is_cluster_url)
    return {finding.what: finding for finding in found}


def test_good_server_has_nothing_to_be_warned_of() -> None:
    found = _info()
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert found["version"].sentence == "redis 7.0.15"
    assert found["role"].sentence == "master, with 2 replicas"


@pytest.mark.parametrize(
    ("fields", "what", "level", "said"),
    [
        pytest.param(
            {"server_name": "valkey", "valkey_version": "8.1.0"}, "version", "ok", "valkey 8.1.0", id="valkey"
        ),
        pytest.param({"role": "slave"}, "role", "FAIL", "read-only replica", id="replica"),
        pytest.param({"loading": "1"}, "role", "warn", "still loading", id="loading"),
        pytest.param({"maxmemory": "9"}, "eviction", "ok", "noeviction", id="limit without eviction"),
        pytest.param(
            {"maxmemory": "9", "maxmemory_policy": "allkeys-lru"}, "eviction", "warn", "allkeys-lru", id="evicts"
        ),
        pytest.param(
            {"maxmemory": "100", "used_memory": "101"},
            "memory",
            "FAIL",
            "full, so that nobody can be culled",
            id="full",
        ),
        pytest.param({"maxmemory": "100", "used_memory": "91"}, "memory", "warn", "91 of 100 bytes", id="nearly full"),
        pytest.param({"maxmemory_policy": "allkeys-lru"}, "eviction", "ok", "no limit", id="would evict, no limit"),
        pytest.param({"aof_enabled": "0"}, "persistence", "warn", "none: a restart forgets", id="forgets"),
        pytest.param({"cluster_enabled": "1"}, "cluster", "warn", "redis+cluster://", id="node of a Cluster"),
    ],
)
def test_what_a_server_says_of_itself(fields: dict[str, str], what: str, level: str, said: str) -> None:
    found = _info(fields)[what]
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


@pytest.mark.parametrize(
    ("save", "level", "said"),
    [
        ("3600 1", "ok", "snapshots"),
        ("", "warn", "none"),
        (NOPERM, "warn", "cannot be told: the Redis user lacks a permission"),
    ],
    ids=["snapshots", "none", "refused"],
)
def test_persistence_without_an_append_only_file(save: str | Unknown, level: str, said: str) -> None:
    found = _info({"aof_enabled": "0"}, save)["persistence"]
    assert found.level == level
    assert said in found.sentence


def test_node_of_a_cluster_under_its_own_kind_of_url_is_as_it_should_be() -> None:
    assert "cluster" not in _info({"cluster_enabled": "1"}, is_cluster_url=True)


def test_server_that_may_not_be_asked_is_one_warning() -> None:
    (found,) = findings.of_info(NOPERM, NOPERM, is_cluster_url=False)
    assert found.level is Level.WARN
    assert found.sentence.startswith("cannot tell")


@pytest.mark.parametrize(
    ("ping", "level", "said"),
    [
        (0.0012, "ok", "a PING takes 1.2 ms"),
        (NOPERM, "ok", "may not PING"),
        (Unknown("auth"), "FAIL", "refused the sidecar's credentials"),
        (Unknown("new-word"), "FAIL", "new-word"),
    ],
    ids=["measured", "refused", "wrong password", "unheard of"],
)
def test_reach(ping: float | Unknown, level: str, said: str) -> None:
    found = findings.of_reach(ping)
    assert found.level == level
    assert said in found.sentence


@pytest.mark.parametrize(
    ("ahead_s", "level", "said"),
    [
        (0.04, "ok", "0.0 s"),
        (-5.0, "ok", "5.0 s"),
        (5.1, "warn", "5.1 s ahead of"),
        (-60.0, "warn", "60.0 s behind"),
        (NOPERM, "warn", "cannot tell"),
    ],
)
def test_clock(ahead_s: float | Unknown, level: str, said: str) -> None:
    found = findings.of_clock(ahead_s)
    assert found.level == level
    assert said in found.sentence


def _roll(*instances: str, fleet: Fleet | None = None, **more: tuple[object, ...]) -> Roll:
    members = tuple(Member(instance, Presence.WELL, "", 1.0) for instance in instances)
    return Roll(fleet or Fleet(alive=len(instances)), 3, members, **more)  # type: ignore[arg-type]  # rows of a table


@pytest.mark.parametrize(
    ("roll", "levels"),
    [
        pytest.param(_roll("a", "b"), {"scripts": "ok", "shared": "ok", "settings": "ok"}, id="well"),
        pytest.param(_roll("b"), {"scripts": "ok", "shared": "ok", "settings": "ok"}, id="this one is not there"),
        pytest.param(_roll("a"), {"scripts": "ok", "shared": "warn", "settings": "ok"}, id="no others"),
        pytest.param(_roll(), {"scripts": "ok", "shared": "warn", "settings": "ok"}, id="nobody"),
        pytest.param(
            _roll("a", "b", policies=(Terms().written(), Terms(spacing_us=1).written(), "of another version")),
            {"scripts": "ok", "shared": "ok", "settings": "warn"},
            id="different settings",
        ),
        pytest.param(
            _roll("a", "b", policies=(Terms(servers="1").written(), Terms(servers="2").written())),
            {"scripts": "ok", "shared": "ok", "settings": "warn", "servers": "FAIL"},
            id="different lists of servers",
        ),
        pytest.param(
            _roll("a", "b", fleet=Fleet(2, losses=1), holds=(Hold("alice", "why", 1.0),)),
            {"scripts": "ok", "shared": "ok", "settings": "ok", "memory": "warn", "hold": "warn"},
            id="lost and held",
        ),
        pytest.param(
            _roll("a", "b", fleet=Fleet(2, trials=(CauseTrial("http", 4, 2, 0.0),))),
            {"scripts": "ok", "shared": "ok", "settings": "ok"},
            id="culls are tried",
        ),
        pytest.param(Unknown("permission"), {"scripts": "FAIL"}, id="scripts are refused"),
    ],
)
def test_what_the_bucket_says(roll: Roll | Unknown, levels: dict[str, str]) -> None:
    assert _levels(*findings.of_roll(roll, "a")) == levels


@pytest.mark.parametrize(
    ("failures", "paused_s", "said"),
    [
        (1, 540.0, "no culls for redis for 9m, because the last cull did not help; "),
        (3, 2400.0, "no culls for redis for 40m, because the last 3 culls did not help; "),
    ],
)
def test_paused_cause_is_told_with_what_a_person_may_type(failures: int, paused_s: float, said: str) -> None:
    trials = (CauseTrial("http", 2, 1), CauseTrial("redis", 1, 0, paused_s, failures))
    found = [
        one for one in findings.of_roll(_roll("a", "b", fleet=Fleet(2, trials=trials)), "a") if one.what == "paused"
    ]
    assert found == [Finding(Level.WARN, "paused", f"{said}health-arbiter release --service tries one at once")]


@pytest.mark.parametrize(
    ("count", "named"), [(1, "n0;"), (5, "n0, n1, n2, n3, n4;"), (7, "n0, n1, n2, n3, n4 and 2 more;")]
)
def test_names_that_two_containers_share_are_a_failure(count: int, named: str) -> None:
    members = (
        Member("a", Presence.WELL, "", 1.0),
        *(Member(f"n{at}", Presence.SUSPECT, "redis", 1.0, duplicate=True) for at in range(count)),
    )
    (found,) = [one for one in findings.of_roll(Roll(Fleet(9), 0, members), "a") if one.what == "duplicate"]
    assert found.level is Level.FAIL
    assert f"neither may be culled: {named} give each an ARBITER_INSTANCE" in found.sentence


@pytest.mark.parametrize(
    ("members", "levels"),
    [(("a", "b"), {"beat": "ok"}), (("b",), {"beat": "warn"}), ((), {})],
    ids=["heard", "another bucket", "nobody is told"],
)
def test_own_beat_is_looked_for_in_the_bucket(members: tuple[str, ...], levels: dict[str, str]) -> None:
    assert _levels(*findings.of_beat([Member(one, Presence.WELL, "", 1.0) for one in members], "a")) == levels


def test_servers_are_different_ones_unless_two_have_one_run_id() -> None:
    assert list(findings.of_identity({}, 2)) == list(findings.of_identity({"x": "1"}, 1)) == []
    assert _levels(*findings.of_identity({"x": "1", "y": "2"}, 2)) == {"independent": "ok"}
    (found,) = findings.of_identity({"x": "1", "y": "2", "z": "1"}, 3)
    assert found == Finding(Level.FAIL, "independent", "x and z are one server, which counts two shares of the budget")


def test_server_that_did_not_answer_is_not_counted_as_a_different_one() -> None:
    (found,) = findings.of_identity({"x": "1", "y": "2"}, 3)
    assert found == Finding(Level.WARN, "independent", "2 of 3 answered and are different")


@pytest.mark.parametrize(
    ("own", "theirs", "level"),
    [
        pytest.param("", "in this process", None, id="both in memory"),
        pytest.param("redis://:pass@h:6379/0", "redis://:***@h:6379/0", None, id="same"),
        pytest.param("redis://:pass@h", "redis://***@H:6379/0", None, id="written in another way"),
        pytest.param("redis://a,redis://b", "redis://b,redis://a", None, id="in another order"),
        pytest.param("redis+sentinel://a,b/m", "redis+sentinel://b,a/m", None, id="sentinels in another order"),
        pytest.param("redis://:pass@h", "redis://:***@g", "warn", id="another host"),
        pytest.param("redis://h/1", "redis://h", "warn", id="another database"),
        pytest.param("redis://a,redis://b", "redis://a", "warn", id="one more"),
        pytest.param("redis://:pass@h", "in this process", "FAIL", id="sidecar in memory"),
        pytest.param("", "redis://h", "FAIL", id="command in memory"),
    ],
)
def test_bucket_of_the_sidecar_is_compared(own: str, theirs: str, level: str | None) -> None:
    found = list(findings.of_bucket(own, theirs))
    assert [finding.level for finding in found] == ([level] if level else [])
    assert not any("pass" in finding.sentence for finding in found)


# -- planned ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "fleet", "level", "said"),
    [
        pytest.param(Plan(0.0, Share(1), 60.0), Fleet(400), None, "", id="nobody is retired"),
        pytest.param(Plan(21_600.0, Share(1), 60.0), Fleet(300), Level.OK, "within a lifetime", id="in time"),
        pytest.param(
            Plan(21_600.0, Share(1), 60.0), Fleet(390, down=10), Level.WARN, "400 containers", id="not in time"
        ),
        pytest.param(
            Plan(21_600.0, Share(1), 60.0, Share(2)), Fleet(1, down=1), Level.WARN, "2 have to stay", id="never"
        ),
    ],
)
def test_fleet_that_cannot_be_retired_in_time_is_a_finding(
    plan: Plan, fleet: Fleet, level: Level | None, said: str
) -> None:
    found = list(findings.of_renewal(plan, fleet))
    assert [finding.level for finding in found] == ([level] if level else [])
    assert all(said in finding.sentence for finding in found)
