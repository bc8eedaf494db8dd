"""Which bucket the settings ask for, and by which terms."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import fields
from itertools import permutations
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sidecar import bucket
from sidecar.budget.access import Access
from sidecar.core.terms import Share, Terms
from sidecar.core.words import Beat, Claim, Denied, Fleet, Granted, Hold, Presence, Unknown
from sidecar.settings import Settings, load

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import StartRedis

TOP = Path(__file__).parents[1]
MINUTE_US = 60_000_000
CLAIM = Claim("shop/one/boot", "one", "boot")


def settings(**flags: str) -> Settings:
    return load(flags, {})


# -- terms --------------------------------------------------------------------------------------------------


def test_defaults_of_settings_and_terms_are_the_same() -> None:
    assert bucket.terms(settings()) == Terms()


REDIS = {"redis_url": "redis://host"}


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"budget_strategy": "previous"}, "strategy", "previous"),
        ({"budget": "7"}, "capacity", Share(7)),
        ({"budget": "12.5%"} | REDIS, "capacity", Share(125, is_part=True)),
        ({"budget_window": "5m"}, "window_us", 5 * MINUTE_US),
        ({"budget_window": "90s"}, "window_us", 90_000_000),
        ({"min_healthy": "3"}, "min_healthy", Share(3)),
        ({"min_healthy": "66.6%"}, "min_healthy", Share(666, is_part=True)),
        ({"never_last": "false"}, "never_last", False),
        ({"spacing": "1.5s"}, "spacing_us", 1_500_000),
        ({"brake": "0.333"}, "brake", 333),
        ({"brake": "0"}, "brake", 0),
        ({"probation": "2m"}, "probation_us", 2 * MINUTE_US),
        ({"useless_after": "0"}, "useless_after", 0),
        ({"earn": "on"}, "earn_max", 0),
        ({"earn": "on", "earn_max": "25"}, "earn_max", 25),
        ({"lost_memory": "full"}, "lost_is_empty", False),
        ({"beat": "100ms"}, "beat_us", 100_000),
    ],
)
def test_every_setting_of_the_budget_is_a_term(flags: dict[str, str], field: str, value: object) -> None:
    assert getattr(bucket.terms(settings(**flags)), field) == value


def test_no_term_is_left_out() -> None:
    """What no setting gives is the number of the server, and how many there are."""
    article = bucket.terms(
        settings(preset="classdojo", beat="20s", probation="1s", budget="9", budget_window="5m"), 1, 2
    )
    untouched = {field.name for field in fields(Terms) if getattr(article, field.name) == getattr(Terms(), field.name)}
    assert untouched == {"spacing_us", "earn_max"}


@pytest.mark.parametrize(("budget", "capacity"), [("7", 7), ("5%", nan)])
def test_capacity_is_known_beforehand_unless_it_depends_on_the_fleet(budget: str, capacity: float) -> None:
    known = bucket.known_capacity(settings(budget=budget, redis_url="redis://host"))
    assert known == pytest.approx(capacity, nan_ok=True)


# -- servers ------------------------------------------------------------------------------------------------

URLS = ("redis://:s1@b:6379/0", "redis://:s3@a:6379/1", "unix:///run/redis.sock")


def asks_by(server: bucket.Server) -> Terms:
    return server.share._terms  # what it would tell its server


@pytest.mark.parametrize("given", list(permutations(URLS)), ids=lambda given: " ".join(url[-1] for url in given))
def test_every_sidecar_numbers_the_servers_alike_in_whatever_order_it_was_given_them(given: tuple[str, ...]) -> None:
    servers = bucket.servers(settings(redis_url=" , ".join(given)))
    assert [server.url for server in servers] == [URLS[2], URLS[1], URLS[0]]
    assert [server.name for server in servers] == [URLS[2], "redis://:***@a:6379/1", "redis://:***@b:6379/0"]
    assert [asks_by(server) for server in servers] == [Terms(index=index, servers=3) for index in range(3)]


@pytest.mark.parametrize(
    "given",
    [
        "redis://a,redis://b,redis+cluster://d,c",
        "redis+cluster://c:6379,d,rediss://ann:secret@b/0,redis://A:6379?db=0",
    ],
)
def test_order_of_servers_is_that_of_their_places_however_they_are_written(given: str) -> None:
    servers = bucket.servers(settings(redis_url=given))
    assert [re.findall(r"(?<=[/@,])([abcd])\b", server.url.lower())[0] for server in servers][:2] == ["a", "b"]
    assert "cluster" in servers[2].url


ORDERS = """
from sidecar import bucket
from sidecar.settings import load
settings = load({"redis_url": "redis+sentinel://z,a/m,redis+sentinel://y,b/m"}, {})
print([server.name for server in bucket.servers(settings)])
"""


def test_order_of_servers_is_the_same_in_every_process() -> None:
    """As that of a set of texts is not."""
    told = {
        subprocess.run(
            [sys.executable, "-c", ORDERS],
            cwd=TOP,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(4)
    }
    assert len(told) == 1


def test_password_has_no_say_in_the_order_of_servers() -> None:
    orders = []
    for one, other in (("x", "y"), ("y", "x")):
        servers = bucket.servers(settings(redis_url=f"redis://:{one}@a,redis://:{other}@b"))
        orders.append([server.url[-1] for server in servers])
    assert orders == [["a", "b"]] * 2


def test_one_server_has_the_whole_budget() -> None:
    (server,) = bucket.servers(settings(redis_url="redis://a"))
    assert asks_by(server) == Terms()
    assert bucket.servers(settings()) == []


@pytest.mark.parametrize(
    ("flags", "prefix"),
    [
        ({}, "{ha:default/app}"),
        ({"namespace": "prod", "service": "shop.web"}, "{ha:prod/shop.web}"),
        ({"mode": "shadow"}, "{ha:default/app}:shadow"),
    ],
    ids=["defaults", "named", "shadow"],
)
def test_keys_of_a_service_share_a_hash_tag_and_shadow_has_keys_of_its_own(flags: dict[str, str], prefix: str) -> None:
    assert bucket.prefix(settings(**flags)) == prefix


def test_files_that_it_takes_to_be_let_in_keep_their_places(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("password", "ca", "cert", "key")]
    for path in paths:
        Path(path).touch()
    flags = dict(zip(("redis_password_file", "redis_ca", "redis_cert", "redis_key"), paths, strict=True))
    assert bucket.access(settings(redis_url="rediss://host", **flags)) == Access(*paths)


# -- the bucket ---------------------------------------------------------------------------------------------


async def test_without_redis_the_bucket_is_of_this_process_and_knows_no_fleet() -> None:
    failures: list[Exception] = []
    held = bucket.opened(settings(budget="1"), failures.append)
    assert await held.beat(Beat("one", "boot", Presence.WANTS)) == Fleet(1, wanting=1, capacity=1)
    assert await held.claim(CLAIM) == Granted(1, 1)
    refused = await held.claim(Claim("shop/two/boot"))
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.used, refused.capacity) == ("window", 1, 1)
    await held.aclose()
    assert failures == []


async def test_without_redis_spacing_still_counts() -> None:
    held = bucket.opened(settings(spacing="1m"), lambda _error: None)
    assert isinstance(await held.claim(CLAIM), Granted)
    refused = await held.claim(Claim("shop/two/boot"))
    assert isinstance(refused, Denied)
    assert refused.reason == "spacing"


async def test_person_may_hold_a_sidecar_that_is_alone() -> None:
    held = bucket.opened(settings(), lambda _error: None)
    assert await held.hold("", "ann", "look", 60.0) == Unknown("alone")
    refused = await held.claim(CLAIM)
    assert isinstance(refused, Denied)
    assert isinstance(refused.hold, Hold)
    assert refused.hold.author == "ann"
    assert await held.release("") == Unknown("alone")
    assert isinstance(await held.claim(CLAIM), Granted)


IMPORTS = """
import asyncio, json, sys
from sidecar import bucket
from sidecar.settings import load

async def story():
    held = bucket.opened(load({"redis_url": sys.argv[1]}, {}), print)
    await held.aclose()

asyncio.run(story())
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "redis"]))
"""


@pytest.mark.parametrize("url", ["", "redis://127.0.0.1:1", "redis://127.0.0.1:1,redis://127.0.0.1:2"])
def test_nothing_of_redis_is_imported_before_the_bucket_is_asked(url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS, url], cwd=TOP, capture_output=True, text=True, timeout=30, check=True
    )
    assert json.loads(ran.stdout) == []


# -- with real servers --------------------------------------------------------------------------------------

PATIENT = {"redis_timeout": "3s"}
GATELESS = {**PATIENT, "lost_memory": "full", "brake": "0", "min_healthy": "0", "never_last": "false"}
WELL = Beat("one", "boot", Presence.WELL, first=True)


@pytest.mark.parametrize(
    ("flags", "prefix"),
    [({"mode": "shadow"}, "{ha:default/app}:shadow:"), ({"mode": "enforce"}, "{ha:default/app}:")],
    ids=["shadow", "enforce"],
)
async def test_every_key_begins_with_the_prefix(redis_server: RedisServer, flags: dict[str, str], prefix: str) -> None:
    held = bucket.opened(settings(redis_url=redis_server.url, **GATELESS, **flags), lambda _error: None)
    assert await held.beat(WELL) == Fleet(1, capacity=10)
    assert isinstance(await held.claim(CLAIM), Granted)
    await held.aclose()
    keys = redis_server.cli("KEYS", "*")
    assert keys
    assert all(key.startswith(prefix) and key.count(":shadow") == prefix.count(":shadow") for key in keys)


async def test_article_s_key_is_another_one_in_shadow_mode(redis_server: RedisServer) -> None:
    flags = {"preset": "classdojo", "mode": "shadow", "redis_url": redis_server.url, **PATIENT}
    held = bucket.opened(settings(**flags), lambda _error: None)
    assert isinstance(await held.claim(CLAIM), Granted)
    await held.aclose()
    assert [key[:-1] for key in redis_server.cli("KEYS", "errorWatcher*")] == ["errorWatcher:shadow:"]


async def test_hung_server_is_waited_for_as_long_as_one_was_told_to(redis_server: RedisServer) -> None:
    held = bucket.opened(settings(redis_url=redis_server.url, **PATIENT), lambda _error: None)
    assert await held.beat(WELL) == Fleet(1, capacity=10)
    redis_server.pause()
    began = time.monotonic()
    assert await held.beat(WELL) == Unknown("timeout")
    assert 2.9 < time.monotonic() - began < 30, "which is more than what it waits if nobody says so"
    redis_server.resume()
    await held.aclose()


async def test_three_servers_have_the_tokens_of_one(start_redis: StartRedis) -> None:
    servers = [start_redis(name) for name in ("a", "b", "c")]
    urls = ",".join(server.url for server in servers)
    held = bucket.opened(settings(redis_url=urls, budget="5", **GATELESS), lambda _error: None)
    for number in range(20):
        assert isinstance(await held.beat(Beat(f"i{number}", "boot", Presence.WELL, first=True)), Fleet)
    answers = [await held.claim(Claim(f"app/i{number}/boot", f"i{number}", "boot")) for number in range(8)]
    await held.aclose()
    assert sum(isinstance(answer, Granted) for answer in answers) == 5
    assert sorted(server.cli("ZCARD", "{ha:default/app}:grants") for server in servers) == [1, 2, 2]
