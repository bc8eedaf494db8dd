"""What every setting changes in the composed sidecar: the table of ``app/test_wiring.py``.

``{files}`` and ``{run}`` stand for directories of the test; the second one is short enough for a unix socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sidecar.config.settings import Config

ALONE: Final = {
    "alone": "true",
    "instance": "a",
    "action": "command",
    "action_command": "true",
    "app_port": "9",
    "scrape_url": "http://127.0.0.1:9/m",
    "scrape_errors": "e",
    "statsd_listen": "127.0.0.1:8125",
    "page_listen": "127.0.0.1:4",
    "token_file": "{files}/token",
    "tls_cert": "{files}/one-a.crt",
    "tls_key": "{files}/one-a.key",
    "webhook_url": "http://a/h",
    "cull_hook": "{files}/hook",
    "state_dir": "{files}",
}
"""A sidecar without Redis in which every other part is configured."""

SHARED: Final = {"redis_url": "redis://127.0.0.1:1", "instance": "a"}
NONE: Final[Mapping[str, str]] = {}


class Row(NamedTuple):
    """A setting, its value, and the facts that it changes on a sidecar with the settings ``base`` and ``also``."""

    setting: str
    value: str
    facts: Mapping[str, str]
    also: Mapping[str, str] = NONE
    base: Mapping[str, str] = ALONE


def named(field: str, value: str, *places: str) -> dict[str, str]:
    """The same field in several places."""
    return {place.replace("*", field): value for place in places}


IDENTITIES: Final = ("AdminApi.identity[*]", "LedgerApi.identity[*]", "WhyIdentity.*")
ANSWERS: Final = tuple(f"{path} *" for path in ("/why", "/fleet", "/events", "/page/state why"))
NAMESPACE: Final = {"AdminApi.identity[namespace]": "prod", "/fleet namespace": '"prod"'}
SHADOW: Final = {
    **named("mode", "shadow", *IDENTITIES, "routes.<locals>.get_verdict:*"),
    **named("mode", '"shadow"', *ANSWERS),
    "Policy.enforce": "False",
    "WhyIdentity.alone": Config().alone,
}
NO_COMMAND: Final = dict.fromkeys(
    (f"CommandAction.{name}" for name in ("words", "timeout_s", "env[ARBITER_SERVICE]", "env[ARBITER_INSTANCE]")), ""
)
LEASED: Final = {"lifetime": "6h", "busy_load": "0.5", **SHARED}
TLS: Final = {"redis_url": "rediss://127.0.0.1:1"}
PAIR: Final = {"redis_cert": "{files}/one-b.crt", "redis_key": "{files}/one-b.key"}
OTHER_PAIR: Final = {"KeyPair.cert": "{files}/one-b.crt", "KeyPair.key": "{files}/one-b.key"}
STALE: Final = "Health.__init__.<locals>.livez:stale_after_s"
OPEN: Final = "RedisStore.__init__.<locals>.open_client"

FILE: Final = "health-arbiter-app_a.json"
ASKED: Final = "health-arbiter-app_a.asked"
GATES: Final = "address agent public"
ACCESS_PAIR: Final = {"Access.cert": "{files}/one-b.crt", "Access.key": "{files}/one-b.key"}


def also_sought(setting: str) -> dict[str, str]:
    """The series ``f`` of this setting is looked for beside that of ``scrape_errors``."""
    return {"Unmatched.setting": f"scrape_errors {setting}", "Selector(f).name": "f"}


ROWS: Final = (
    # who it is
    Row("mode", "shadow", SHADOW),
    Row("enforce_percent", "0", SHADOW | {"LedgerApi.identity[enforce_percent]": "0", "/events enforce_percent": "0"}),
    Row("alone", "false", SHADOW),
    Row(
        "service",
        "shop",
        {
            **named("service", "shop", *IDENTITIES, "Hook.*", "CommandAction.env[ARBITER_SERVICE]"),
            **named("service", '"shop"', *ANSWERS),
            **dict.fromkeys(("Container.app", "Journal.app"), "shop/a"),
            "Journal.path": "{files}/health-arbiter-shop_a.json",
            "AskedFile.path": "{files}/health-arbiter-shop_a.asked",
        },
    ),
    Row(
        "instance",
        "b",
        {
            **named("instance", "b", *IDENTITIES, "OverridesApi.*", "EntryWriter.*", "LocalHolds.*"),
            **named("instance", '"b"', *ANSWERS),
            **dict.fromkeys(("Container.app", "Journal.app"), "app/b"),
            "CommandAction.env[ARBITER_INSTANCE]": "b",
            "Journal.path": "{files}/health-arbiter-app_b.json",
            "AskedFile.path": "{files}/health-arbiter-app_b.asked",
        },
    ),
    Row("namespace", "prod", NAMESPACE),
    Row("namespace", "prod", {f"{OPEN}:prefix": "{{ha:prod/app}}", **NAMESPACE}, base=SHARED),
    Row("node", "n7", {"Traits.node": "n7", "/fleet own node": '"n7"'}),
    Row("app_version", "412", {"Traits.version": "412", "/fleet own app_version": '"412"'}),
    # what makes an app unhealthy
    Row(
        "error_limit",
        "7",
        {
            "Policy.error_limit": "7",
            "FleetSettings.error_limit": "7",
            "Description.limit": "7",
            "WhyIdentity.error_limit": "7",
            "/fleet own limit": "7",
            "/page/state errors limit": "7",
            "/metrics arbiter_error_limit": "7.0",
        },
    ),
    Row(
        "error_window",
        "30s",
        {
            "RollingCounts.seconds": "30",
            "OwnUsual.window_s": "30",
            "scraper.<locals>.dated:error_window_s": "30.0",
            "/page/state errors window_s": "30.0",
        },
    ),
    Row("kind_limits", "redis:3", {"Policy.kind_limits": "3 redis", "_Cap.counts[redis]": "0"}),
    Row("ignore_kinds", "cache", {"Measurements.ignored": "cache"}),
    Row("error_ratio", "0.25", {"Policy.error_ratio": "0.25"}),
    Row("consecutive_limit", "4", {"Policy.consecutive_limit": "4"}),
    Row("heartbeat_timeout", "1m", {"Policy.heartbeat_timeout_s": "60.0"}),
    Row("scrape_down_after", "6", {"Policy.scrape_down_after": "6"}),
    Row("outlier", "off", {"Policy.outlier": "False"}),
    Row("grace", "11s", {"Policy.grace_s": "11.0", "AppPort.absent_after_s": "21.0"}),
    Row("check_interval", "5s", {"Policy.check_interval_s": "5.0", STALE: "21.5"}),
    # a cull
    Row("settle", "1s", {"Policy.settle_s": "1.0"}),
    Row("drain", "20s", {"Policy.drain_s": "20.0", "Policy.retire_timeout_s": "620.0"}),
    Row(
        "drain",
        "4m",
        {
            "Policy.drain_s": "240.0",
            "Policy.retire_timeout_s": "840.0",
            "RotationPlan.each_s": "240.0",
        },
    ),
    Row("action", "exit", NO_COMMAND | {"Actuator.name": "exit", "Actuator.action()": "<lambda>"}),
    Row("action_command", "false x", {"CommandAction.words": "false x"}),
    Row("action_timeout", "7s", {"Actuator.timeout_s": "7.0", "CommandAction.timeout_s": "6.3"}),
    Row("cull_hook", "{files}/hook2", {"Hook.path": "{files}/hook2"}),
    Row("cull_hook_timeout", "2s", {"Hook.timeout_s": "2.0"}),
    Row("weight", "off", {"Weight.floor": "100", "Policy.soft_drain": "False"}),
    Row("soft_drain", "off", {"Policy.soft_drain": "False"}),
    # a retirement
    Row("lifetime", "6h", {"Policy.lifetime_s": "21600.0", "RotationPlan.lifetime_s": "21600.0"}, base=SHARED),
    Row("lifetime_max", "24h", {"Policy.lifetime_max_s": "86400.0"}, base=LEASED),
    Row("busy_load", "0.5", {"Policy.busy_load": "0.5"}),
    Row("retire_slots", "2", {"Policy.retire_slots": "2", "Share.amount": "2 500"}),
    # the budget of the fleet
    Row(
        "budget",
        "9",
        {
            "FleetSettings.capacity": "9",
            "AdminApi.identity[budget]": "9",
            "/fleet budget": '"9"',
            "/page/state budget capacity": "9",
            "/metrics arbiter_budget_capacity_tokens": "9.0",
        },
    ),
    Row(
        "budget_window",
        "5m",
        {
            "FleetSettings.window_us": "300000000",
            "FleetBudget.window_us": "300000000",
            "AdminApi.identity[budget_window]": "300.0",
            "/fleet budget_window": "300.0",
            "/page/state budget window_s": "300.0",
        },
    ),
    Row("budget_strategy", "previous", {"FleetSettings.strategy": "previous", "FleetSettings.refund_max": "-1"}),
    Row(
        "budget_strategy",
        "fixed",
        {"FleetSettings.strategy": "fixed", "FleetSettings.refund_max": "-1", "FleetBudget.counter": "article_counter"},
    ),
    Row("spacing", "8s", {"FleetSettings.spacing_us": "8000000"}),
    Row("min_healthy", "3", {"FleetSettings.min_healthy": "3", "Share.amount": "1 3"}, base=SHARED),
    Row("trial", "off", {"FleetSettings.trial": "False"}),
    Row("probation", "2m", {"FleetSettings.probation_us": "120000000"}),
    Row("refund", "off", {"FleetSettings.refund_max": "-1"}),
    Row("after_data_loss", "continue", {"FleetSettings.after_loss_wait": "False"}, base=SHARED),
    Row(
        "beat_interval",
        "40s",
        {
            "FleetSettings.beat_us": "40000000",
            "Membership.interval_s": "40.0",
            "AdminApi.identity[beat_interval]": "40.0",
            "/fleet beat_interval": "40.0",
        },
    ),
    # Redis
    Row(
        "redis_url",
        "redis://127.0.0.1:1/2",
        {
            f"{OPEN}:url": "redis://127.0.0.1:1/2",
            "FleetSettings.servers": "00d0bab42cd0",
            **named("store", "redis://127.0.0.1:1/2", "AdminApi.identity[*]", "PageSources.*"),
        },
        base=SHARED,
    ),
    Row("redis_password_file", "{files}/word", {"Access.password_file": "{files}/word"}, base=SHARED),
    Row("redis_ca", "{files}/one.crt", {"Access.ca": "{files}/one.crt"}, base=SHARED | TLS),
    Row("redis_cert", "{files}/one-b.crt", ACCESS_PAIR, also=PAIR, base=SHARED | TLS),
    Row("redis_key", "{files}/one-b.key", ACCESS_PAIR, also=PAIR, base=SHARED | TLS),
    Row(
        "redis_timeout",
        "2s",
        {
            f"{OPEN}:timeout_s": "2.0",
            "RedisStore.timeout_s": "2.0",
            **named("limit_s", "6.0", "AdminApi.*", "LedgerApi.*", "OverridesApi.*", "PageState.*"),
        },
        base=SHARED,
    ),
    Row("state_dir", "{files}/b", {"Journal.path": "{files}/b/" + FILE, "AskedFile.path": "{files}/b/" + ASKED}),
    # what the app reports, and where
    Row(
        "app_port",
        "8",
        {
            "AppPort.port": "8",
            "/why warnings": '"nobody listens at ARBITER_APP_PORT 8: a restart of the app in place is not noticed"',
        },
    ),
    Row("scrape_url", "http://127.0.0.1:9/n", {"Target.url": "http://127.0.0.1:9/n"}),
    Row("scrape_errors", "f", {"Selector(e).name": "", "Selector(f).name": "f"}),
    Row("scrape_requests", "f", {"SeriesSelection.requests": "Selector", **also_sought("scrape_requests")}),
    Row("scrape_in_flight", "f", {"SeriesSelection.in_flight": "Selector", **also_sought("scrape_in_flight")}),
    Row("scrape_interval", "3s", {"Scraper.interval_s": "3.0"}),
    Row("statsd_listen", "127.0.0.2:8125", {"hosts of datagrams": "127.0.0.2"}),
    Row("statsd_socket", "{run}/d", {"hosts of datagrams": "{run}/d 127.0.0.1"}),
    Row("statsd_prefix", "web", {"PacketReader.counters[web.heartbeat]": "Heartbeat"}),
    # the listeners
    Row("local_listen", "127.0.0.2:2", {"hosts of local": "127.0.0.2", "PageSources.listeners[local]": "127.0.0.2:0"}),
    Row("socket", "{run}/s", {"hosts of local": "{run}/s 127.0.0.1"}),
    Row(
        "public_listen", "127.0.0.2:1", {"hosts of public": "127.0.0.2", "PageSources.listeners[public]": "127.0.0.2:0"}
    ),
    Row("agent_listen", "127.0.0.2:3", {"hosts of agent": "127.0.0.2", "PageSources.listeners[agent]": "127.0.0.2:0"}),
    Row("agent_listen", "off", {"hosts of agent": "", "PageSources.listeners[agent]": "off"}),
    Row("page_listen", "127.0.0.2:4", {"hosts of page": "127.0.0.2"}),
    Row("public_allow", "10.0.0.5", {"PublicServer(public).gate": "AddressGate", "AddressGate.on_refusal()": GATES}),
    Row("down_status", "400", {"_CurrentAnswer.down_status": "400"}),
    Row("token_file", "{files}/word", {"Token.path": "{files}/word"}),
    Row("tls_cert", "{files}/one-b.crt", OTHER_PAIR, also={"tls_key": "{files}/one-b.key"}),
    Row("tls_key", "{files}/one-b.key", OTHER_PAIR, also={"tls_cert": "{files}/one-b.crt"}),
    Row("tls_listeners", "public", {"LocalServer(page).tls": "None", "PublicServer(public).tls": "ServerTls"}),
    Row("tls_client_ca", "{files}/one.crt", {"ServerTls.files": "{files}/one.crt KeyPair"}),
    # messages
    Row("webhook_url", "http://b/h", {"Webhook.url": "http://b/h"}),
    Row(
        "runbook_url",
        "http://book",
        named("runbook_url", "http://book", "WhyIdentity.*", "PageSources.*"),
    ),
)

ELSEWHERE: Final = {
    "page_url": ("notify/test_webhook.py", "test_text_has_all_that_a_reader_needs"),
    "webhook_url_file": ("app/test_build_notify.py", "test_test_message_goes_to_the_url_of_a_file"),
    "webhook_template": ("app/test_build_notify.py", "test_template_that_has_become_unusable_gives_way_to_the_text"),
    "nomad_task": (
        "app/test_build_action.py",
        "test_nomad_restarts_the_task_of_the_settings_and_stops_this_allocation",
    ),
    "stop_drain": ("app/test_serve.py", "test_health_is_down_for_the_stop_drain_before_the_end"),
    "log_level": ("app/test_main.py", "test_log_has_the_level_of_the_settings"),
    "config": ("config/test_load.py", "test_the_preset_may_be_named_in_the_file_and_the_file_in_the_environment"),
    "preset": ("config/test_load.py", "test_the_preset_may_be_named_in_the_file_and_the_file_in_the_environment"),
    "run_lock": ("app/test_build_run_lock.py", "test_lock_of_the_settings_shows_its_standby_only_if_one_may_wait"),
    "standby": ("app/test_build_run_lock.py", "test_lock_of_the_settings_shows_its_standby_only_if_one_may_wait"),
}
"""Settings that act outside the composition, or in a part of it that has its own table, with the test of each."""
