"""What the doctor says of a server, of its user, and of the fleet and the settings in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, replace

import pytest

from sidecar.cli.doctor import Finding, FindingLevel, redis_findings
from sidecar.config import shown
from sidecar.core.claims import Fleet, Presence, Unknown
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.members import Member, MemberList

INFO = {
    "redis_version": "7.0.15",
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
        pytest.param(redis_findings.of_clock(0.04), "ok", "0.0 s", id="clock"),
        pytest.param(redis_findings.of_clock(-5.0), "ok", "5.0 s", id="clock at its limit"),
        pytest.param(redis_findings.of_clock(5.1), "warn", "5.1 s ahead of", id="clock ahead"),
        pytest.param(redis_findings.of_clock(-60.0), "warn", "60.0 s behind", id="clock behind"),
        pytest.param(redis_findings.of_clock(NOPERM), "warn", "cannot tell", id="clock refused"),
    ],
)
def test_answer_of_a_server(found: Finding, level: str, said: str) -> None:
    assert found.level == level
    assert said in found.sentence


def _info(fields: dict[str, str] | None = None, save: str | Unknown = "") -> dict[str, Finding]:
    found = redis_findings.of_info({**INFO, **(fields or {})}, save)
    return {finding.what: finding for finding in found}


@pytest.mark.parametrize(
    ("own", "others", "levels"),
    [
        (None, None, {"write": "ok", "user": "warn"}),
        (None, NOPERM, {"write": "ok", "user": "ok"}),
        (None, Unknown("cluster"), {"write": "ok"}),
        (Unknown("oom"), None, {"write": "FAIL"}),
    ],
    ids=["of every service", "of its own", "not known", "none"],
)
def test_user_has_to_write_the_keys_of_its_service_and_of_no_other(
    own: Unknown | None, others: Unknown | None, levels: dict[str, str]
) -> None:
    assert _levels(redis_findings.of_rights(own, others)) == levels


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
        pytest.param({"maxmemory": "9"}, "", "eviction", "ok", "none", id="limit without eviction"),
        pytest.param({"maxmemory": "9", "maxmemory_policy": "lru"}, "", "eviction", "warn", "lru: it may", id="evicts"),
        pytest.param({"maxmemory_policy": "lru"}, "", "eviction", "ok", "none", id="would evict, no limit"),
        pytest.param({"aof_enabled": "0"}, "", "persistence", "warn", "none: a restart forgets", id="forgets"),
        pytest.param({"aof_enabled": "0"}, "3600 1", "persistence", "ok", "snapshots", id="snapshots"),
        pytest.param(
            {"aof_enabled": "0"},
            NOPERM,
            "persistence",
            "warn",
            "is not known: this user may not use CONFIG GET",
            id="snapshots?",
        ),
    ],
)
def test_what_a_server_says_of_itself(
    fields: dict[str, str], save: str | Unknown, what: str, level: str, said: str
) -> None:
    found = _info(fields, save)[what]
    assert found.level == level
    assert said in found.sentence


def test_server_that_may_not_be_asked_is_one_warning() -> None:
    (found,) = redis_findings.of_info(NOPERM, NOPERM)
    assert found.level is FindingLevel.WARN
    assert found.sentence.startswith("cannot tell")


# -- the fleet ----------------------------------------------------------------------------------------------


def _member_list(*instances: str, **more: tuple[object, ...]) -> MemberList:
    members = tuple(Member(instance, Presence.WELL, "", 1.0) for instance in instances)
    return MemberList(Fleet(alive=len(instances)), 3, members, **more)  # type: ignore[arg-type]  # a table's


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
        pytest.param(_member_list("a", "b", settings=THREE_SETTINGS), {**WELL, "settings": "warn"}, id="settings"),
        pytest.param(_member_list("a", "b", settings=TWO_ADDRESSES), {**WELL, "settings": "FAIL"}, id="servers"),
        pytest.param(Unknown("permission"), {"scripts": "FAIL"}, id="scripts are refused"),
    ],
)
def test_what_the_store_knows_of_the_fleet(members: MemberList | Unknown, levels: dict[str, str]) -> None:
    assert _levels(redis_findings.of_fleet(members, "a")) == levels


@pytest.mark.parametrize(
    ("count", "named"), [(1, "n0;"), (5, "n0, n1, n2, n3, n4;"), (7, "n0, n1, n2, n3, n4 and 2 more;")]
)
def test_names_that_two_containers_share_are_a_failure(count: int, named: str) -> None:
    twins = (Member(f"n{at}", Presence.SUSPECT, "redis", 1.0, duplicate=True) for at in range(count))
    members = MemberList(Fleet(9), 0, (Member("a", Presence.WELL, "", 1.0), *twins))
    (found,) = [each for each in redis_findings.of_fleet(members, "a") if each.what == "duplicate"]
    assert found.level is FindingLevel.FAIL
    assert f"neither may be culled: {named} give each an ARBITER_INSTANCE" in found.sentence


ONE = FleetSettings(refund_max=0, servers="3f2a", error_limit=5)
OTHER = FleetSettings(
    strategy="previous",
    capacity="200p",
    window_us=90_000_000,
    min_healthy="3",
    spacing_us=500_000,
    trial=False,
    probation_us=120_000_000,
    refund_max=-1,
    after_loss_wait=False,
    beat_us=1_000_000,
    servers="77c0",
    error_limit=50,
)


def _differences(*every: FleetSettings) -> str:
    return redis_findings.differences([settings.dump() for settings in every])


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("strategy", "ARBITER_BUDGET_STRATEGY is log and previous"),
        ("capacity", "ARBITER_BUDGET is 10 and 20%"),
        ("window_us", "ARBITER_BUDGET_WINDOW is 10m and 90s"),
        ("min_healthy", "ARBITER_MIN_HEALTHY is 50% and 3"),
        ("spacing_us", "ARBITER_SPACING is 0s and 500ms"),
        ("trial", "ARBITER_TRIAL is on and off"),
        ("probation_us", "ARBITER_PROBATION is 60s and 2m"),
        ("refund_max", "ARBITER_REFUND is on and off"),
        ("after_loss_wait", "ARBITER_AFTER_DATA_LOSS is wait and continue"),
        ("beat_us", "ARBITER_BEAT_INTERVAL is 10s and 1s"),
        ("error_limit", "ARBITER_ERROR_LIMIT is 5 and 50"),
        ("servers", "ARBITER_REDIS_URL names 2 different addresses"),
    ],
)
def test_field_that_differs_is_named_by_its_setting(field: str, said: str) -> None:
    assert _differences(ONE, replace(ONE, **{field: getattr(OTHER, field)})) == said


def test_every_field_that_differs_is_named() -> None:
    assert _differences(ONE, OTHER).count("; ") + 1 == len(fields(FleetSettings))


def test_settings_are_called_as_they_are() -> None:
    words = _differences(ONE, OTHER, replace(ONE, refund_max=30)).split()
    assert {word for word in words if word.startswith("ARBITER_")} <= {name for name, _, _ in shown.table()}


def test_fields_of_another_version_are_no_obstacle() -> None:
    older = json.loads(replace(ONE, capacity="5").dump())
    del older["trial"], older["f"]
    newer = {**json.loads(ONE.dump()), "mood": "bad"}
    assert redis_findings.differences([json.dumps(older), json.dumps(newer)]) == "ARBITER_BUDGET is 5 and 10"


def test_settings_that_differ_in_nothing_that_is_known_are_shown_as_they_are() -> None:
    texts = [ONE.dump(), json.dumps({**json.loads(ONE.dump()), "mood": "bad"})]
    assert redis_findings.differences(texts) == "  ".join(texts)


@pytest.mark.parametrize("other", ["", "log|10|500p", "null", '{"strategy": "leaky"}', '{"capacity": "half"}'])
def test_text_that_cannot_be_read_is_shown_as_it_is_beside_what_differs(other: str) -> None:
    texts = [ONE.dump(), other, replace(ONE, capacity="5").dump()]
    assert redis_findings.differences(texts) == f"ARBITER_BUDGET is 10 and 5; {other}"
