"""Every setting reaches what it is for: the whole sidecar is composed with it and without, and the two are compared.

A row of the table names one fact (``harness.composition``) that its setting changes, and what it is then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from harness.certificates import Authority
from harness.children import short_path
from harness.composition import EVERY_PART, Facts, composed, on_any_port
from sidecar.config.settings import setting_names
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.types import Policy

TESTS: Final = Path(__file__).parents[1]
ALONE: Final = {**EVERY_PART, "tls_cert": "{files}/one-a.crt", "tls_key": "{files}/one-a.key"}
"""``{files}`` and ``{run}`` are directories of the test; the second one is short enough for a unix socket."""

SHARED: Final = {"redis_url": "redis://127.0.0.1:1", "instance": "a"}
OTHER_PAIR: Final = {"tls_cert": "{files}/one-b.crt", "tls_key": "{files}/one-b.key"}
OPEN: Final = "RedisStore.__init__.<locals>.open_client"


class Row(NamedTuple):
    """A setting, its value, and the fact that it changes on a sidecar with the settings ``base`` and ``also``."""

    setting: str
    value: str
    fact: str
    shown: str
    base: Mapping[str, str] = ALONE
    also: Mapping[str, str] = {}


ROWS: Final = (
    # who it is
    Row("mode", "shadow", "Policy.enforce", "False"),
    Row("enforce_percent", "0", "Policy.enforce", "False"),
    Row("alone", "false", "Policy.enforce", "False"),
    Row("service", "shop", "Container.app", "shop/a"),
    Row("instance", "b", "Container.app", "app/b"),
    Row("namespace", "prod", f"{OPEN}:prefix", "{{ha:prod/app}}", SHARED),
    Row("mode", "shadow", f"{OPEN}:prefix", "{{ha:default/app}}:shadow", SHARED),
    Row("node", "n7", "Traits.node", "n7"),
    Row("app_version", "412", "Traits.version", "412"),
    # what makes an app unhealthy
    Row("error_limit", "7", "Policy.error_limit", "7"),
    Row("error_limit", "7", "FleetSettings.error_limit", "7"),
    Row("error_window", "30s", "RollingCounts.seconds", "30"),
    Row("error_window", "30s", "Hook.timeout_s", "15.0"),
    Row("kind_limits", "redis:3", "Policy.kind_limits", "3 redis"),
    Row("kind_limits", "cache:off", "Measurements.ignored", "cache"),
    Row("error_ratio", "0.25", "Policy.error_ratio", "0.25"),
    Row("heartbeat_timeout", "1m", "Policy.heartbeat_timeout_s", "60.0"),
    Row("outlier", "off", "Policy.outlier", "False"),
    Row("grace", "11s", "Policy.grace_s", "11.0"),
    Row("check_interval", "5s", "Policy.check_interval_s", "5.0"),
    Row("check_interval", "5s", "Health.stale_after_s", "21.5"),
    # a cull
    Row("settle", "1s", "Policy.settle_s", "1.0"),
    Row("drain", "20s", "Policy.drain_s", "20.0"),
    Row("drain", "20s", "Policy.retire_timeout_s", "620.0"),
    Row("drain", "4m", "RotationPlan.each_s", "240.0"),
    Row("action", "exit", "Actuator.name", "exit"),
    Row("action_command", "false x", "CommandAction.words", "false x"),
    Row("cull_hook", "{files}/hook2", "Hook.path", "{files}/hook2"),
    Row("cull_hook", "{files}/hook", "Hook.path", "{files}/hook", SHARED),
    Row("weight", "off", "Weight.floor", "100"),
    # a retirement
    Row("lifetime", "6h", "Policy.lifetime_s", "21600.0", SHARED),
    Row("busy_load", "0.5", "Policy.busy_load", "0.5"),
    Row("retire_slots", "2", "Policy.retire_slots", "2"),
    # the budget of the fleet
    Row("budget", "9", "FleetSettings.capacity", "9"),
    Row("budget_window", "5m", "FleetSettings.window_us", "300000000"),
    Row("budget_strategy", "previous", "FleetSettings.strategy", "previous"),
    Row("budget_strategy", "fixed", "AloneBudget.counter", "article_counter"),
    Row("spacing", "8s", "FleetSettings.spacing_us", "8000000"),
    Row("min_healthy", "3", "FleetSettings.min_healthy", "3", SHARED),
    Row("trial", "off", "FleetSettings.trial", "False"),
    Row("probation", "2m", "FleetSettings.probation_us", "120000000"),
    Row("refund", "off", "FleetSettings.refund_max", "-1"),
    Row("after_data_loss", "continue", "FleetSettings.after_loss_wait", "False", SHARED),
    Row("beat_interval", "40s", "FleetSettings.beat_us", "40000000"),
    Row("beat_interval", "40s", "Membership.interval_s", "40.0"),
    # Redis
    Row("redis_url", "redis://127.0.0.1:1/2", f"{OPEN}:url", "redis://127.0.0.1:1/2", SHARED),
    Row("redis_url", "redis://127.0.0.1:1/2", "FleetSettings.servers", "00d0bab42cd0", SHARED),
    Row("redis_password_file", "{files}/word", f"{OPEN}:password_file", "{files}/word", SHARED),
    Row("redis_timeout", "2s", "RedisStore.timeout_s", "2.0", SHARED),
    Row("state_dir", "{files}/b", "Journal.path", "{files}/b/health-arbiter-app_a.json"),
    # what the app reports, and where
    Row("app_port", "8", "AppPort.port", "8"),
    Row("scrape_url", "http://127.0.0.1:9/n", "Target.url", "http://127.0.0.1:9/n"),
    Row("scrape_errors", "f", "Selector(f).name", "f"),
    Row("scrape_requests", "f", "SeriesSelection.requests", "Selector"),
    Row("scrape_in_flight", "f", "SeriesSelection.in_flight", "Selector"),
    Row("check_interval", "3s", "Scraper.interval_s", "3.0"),
    Row("statsd_listen", "127.0.0.2:8125", "hosts of datagrams", "127.0.0.2"),
    Row("statsd_socket", "{run}/d", "hosts of datagrams", "{run}/d 127.0.0.1"),
    Row("statsd_prefix", "web", "PacketReader.counters[web.heartbeat]", "Heartbeat"),
    # the listeners
    Row("local_listen", "127.0.0.2:2", "hosts of local", "127.0.0.2"),
    Row("socket", "{run}/s", "hosts of local", "{run}/s 127.0.0.1"),
    Row("public_listen", "127.0.0.2:1", "hosts of public", "127.0.0.2"),
    Row("agent_listen", "127.0.0.2:3", "hosts of agent", "127.0.0.2"),
    Row("agent_listen", "off", "hosts of agent", ""),
    Row("page_listen", "127.0.0.2:4", "hosts of page", "127.0.0.2"),
    Row("public_allow", "10.0.0.5", "AddressGate.on_refusal()", "address agent public"),
    Row("token_file", "{files}/word", "Token.path", "{files}/word"),
    Row("tls_cert", "{files}/one-b.crt", "KeyPair.cert", "{files}/one-b.crt", also=OTHER_PAIR),
    Row("tls_key", "{files}/one-b.key", "KeyPair.key", "{files}/one-b.key", also=OTHER_PAIR),
    Row("tls_listeners", "public", "PublicServer(public).tls", "ServerTls"),
    Row("tls_client_ca", "{files}/one.crt", "ServerTls.files", "{files}/one.crt KeyPair"),
    # messages
    Row("webhook_url", "http://b/h", "Webhook.url", "http://b/h"),
    Row("runbook_url", "http://book", "WhyIdentity.runbook_url", "http://book"),
)

ELSEWHERE: Final = {
    "webhook_template": ("app/test_build_optional.py", "test_template_that_has_become_unusable_gives_way_to_the_text"),
    "nomad_task": (
        "app/test_build_optional.py",
        "test_nomad_restarts_the_task_of_the_settings_and_stops_this_allocation",
    ),
    "stop_drain": ("app/test_serve.py", "test_health_is_down_for_the_stop_drain_before_the_end"),
    "config": ("config/test_load.py", "test_the_preset_may_be_named_in_the_file_and_the_file_in_the_environment"),
    "preset": ("config/test_load.py", "test_the_preset_may_be_named_in_the_file_and_the_file_in_the_environment"),
    "run_lock": ("app/test_run_lock.py", "test_lock_of_the_settings_shows_its_standby_only_if_one_may_wait"),
    "standby": ("app/test_run_lock.py", "test_lock_of_the_settings_shows_its_standby_only_if_one_may_wait"),
}
"""Settings that act outside the composition, or in a part of it that has its own table, with the test of each."""


class Compositions:
    """Composes a sidecar with these flags, and remembers its facts."""

    def __init__(self, places: Mapping[str, Path]) -> None:
        self._places = places
        self._known: dict[str, Facts] = {}

    def text(self, template: str) -> str:
        """The template with its directories."""
        return template.format_map(self._places)

    async def fact(self, name: str, flags: Mapping[str, str]) -> str:
        """What this fact is for a sidecar with these flags; empty if there is none."""
        config = on_any_port({name: self.text(value) for name, value in flags.items()})
        if (key := str(config)) not in self._known:
            async with composed(config) as one:
                self._known[key] = one.facts()
        return " ".join(sorted(self._known[key].get(name, ())))


@pytest.fixture(scope="module")
def compositions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compositions]:
    files = tmp_path_factory.mktemp("files")
    authority = Authority(files, "one")
    for name in ("a", "b"):
        authority.sign(name)
    for name in ("token", "word", "hook", "hook2"):
        (files / name).write_text("a word of sixteen letters or more\n")
        (files / name).chmod(0o700)
    with short_path(files) as run:
        yield Compositions({"files": files, "run": run})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.setting}={row.value}: {row.fact}")
async def test_setting_changes_what_it_is_for(compositions: Compositions, row: Row) -> None:
    shown = compositions.text(row.shown)
    assert await compositions.fact(row.fact, row.base) != shown
    assert await compositions.fact(row.fact, {**row.base, **row.also, row.setting: row.value}) == shown


def test_no_setting_is_left_out() -> None:
    assert {row.setting for row in ROWS}.isdisjoint(ELSEWHERE)
    assert {row.setting for row in ROWS} | ELSEWHERE.keys() == {*setting_names()}


def test_no_number_that_the_core_goes_by_is_left_out() -> None:
    names = {f"Policy.{name}" for name in Policy._fields}
    names |= {f"FleetSettings.{field.name}" for field in fields(FleetSettings)}
    assert names - {row.fact for row in ROWS} == set()


@pytest.mark.parametrize("setting", ELSEWHERE)
def test_setting_that_acts_elsewhere_has_its_test_there(setting: str) -> None:
    path, name = ELSEWHERE[setting]
    assert f"def {name}(" in (TESTS / path).read_text()
