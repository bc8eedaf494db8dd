from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.config.load import SettingsError, load

if TYPE_CHECKING:
    from collections.abc import Mapping


def _problems(flags: Mapping[str, str]) -> list[str]:
    try:
        load(flags, {})
    except SettingsError as error:
        return error.problems
    return []


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        pytest.param({"standby": "true"}, ["ARBITER_STANDBY", "ARBITER_RUN_LOCK"], id="standby without a lock"),
        pytest.param(
            {"mode": "enforce"},
            ["ARBITER_MODE", "ARBITER_REDIS_URL", "ARBITER_ALONE=true"],
            id="enforces without a shared budget",
        ),
        pytest.param(
            {"check_interval": "61s"},
            ["ARBITER_CHECK_INTERVAL", "ARBITER_ERROR_WINDOW"],
            id="errors forgotten between two checks",
        ),
        pytest.param(
            {"webhook_url": "http://a/hook", "webhook_url_file": "/hooks"},
            ["ARBITER_WEBHOOK_URL_FILE", "ARBITER_WEBHOOK_URL "],
            id="webhooks twice",
        ),
        pytest.param({"cull_hook": "/nowhere/hook"}, ["ARBITER_CULL_HOOK"], id="hook that is missing"),
        pytest.param({"cull_hook": "/etc"}, ["ARBITER_CULL_HOOK"], id="hook that is a directory"),
        pytest.param({"cull_hook": "/etc/passwd"}, ["ARBITER_CULL_HOOK"], id="hook that may not be run"),
        pytest.param(
            {"cull_hook": "/bin/true", "cull_hook_timeout": "20s", "error_window": "20s"},
            ["ARBITER_CULL_HOOK_TIMEOUT", "ARBITER_ERROR_WINDOW"],
            id="errors forgotten while the hook runs",
        ),
        pytest.param(
            {"page_listen": "127.0.0.1:0"}, ["ARBITER_PAGE_LISTEN", "ARBITER_TOKEN_FILE"], id="page for everybody"
        ),
        pytest.param(
            {"page_listen": "127.0.0.1:0", "token_file": "/nowhere/token"},
            ["ARBITER_TOKEN_FILE"],
            id="token file that is missing",
        ),
        pytest.param(
            {"page_listen": "127.0.0.1:0", "token_file": "/dev/null"},
            ["ARBITER_TOKEN_FILE"],
            id="token file that is no file",
        ),
        pytest.param(
            {"page_listen": "0.0.0.0:9181", "token_file": "/etc/passwd"},
            ["ARBITER_PAGE_LISTEN", "ARBITER_PUBLIC_LISTEN"],
            id="page where the public listener is",
        ),
        pytest.param(
            {"settle": "48s"},
            ["ARBITER_SETTLE", "ARBITER_ERROR_WINDOW"],
            id="errors forgotten while settling",
        ),
        pytest.param(
            {"heartbeat_timeout": "9.9s"},
            ["ARBITER_HEARTBEAT_TIMEOUT", "ARBITER_CHECK_INTERVAL"],
            id="silence over before anybody looks",
        ),
        pytest.param(
            {"kind_limits": "redis:3,disk:1", "ignore_kinds": "cache,disk"},
            ["ARBITER_KIND_LIMITS", "ARBITER_IGNORE_KINDS"],
            id="limit of a kind that never counts",
        ),
        pytest.param(
            {"kind_limits": "redis:6"},
            ["ARBITER_KIND_LIMITS", "ARBITER_ERROR_LIMIT"],
            id="limit of a kind that the limit of all forestalls",
        ),
        pytest.param(
            {"settle": "5s", "drain": "595s"},
            ["ARBITER_BUDGET_WINDOW", "ARBITER_SETTLE", "ARBITER_DRAIN"],
            id="token back before the container left",
        ),
        pytest.param(
            {"budget": "21", "budget_window": "20s"},
            ["ARBITER_BUDGET", "ARBITER_BUDGET_WINDOW"],
            id="more than one token a second",
        ),
        pytest.param(
            {"budget_strategy": "fixed", "budget_window": "7m"},
            ["ARBITER_BUDGET_WINDOW", "ARBITER_BUDGET_STRATEGY"],
            id="fixed window that does not divide the hour",
        ),
        pytest.param(
            {"budget_strategy": "fixed", "budget_window": "1h"},
            ["ARBITER_BUDGET_WINDOW", "ARBITER_BUDGET_STRATEGY"],
            id="fixed window whose key is used again at once",
        ),
        pytest.param(
            {"budget_strategy": "fixed", "budget_window": "22.5s"},
            ["ARBITER_BUDGET_WINDOW", "ARBITER_BUDGET_STRATEGY"],
            id="fixed window that EXPIRE cannot say",
        ),
        pytest.param(
            {"settle": "60s"},
            ["ARBITER_SETTLE", "ARBITER_ERROR_WINDOW"],
            id="errors forgotten while settling without jitter",
        ),
        pytest.param({"lifetime": "6h"}, ["ARBITER_LIFETIME", "ARBITER_REDIS_URL"], id="whole fleet retires at once"),
        pytest.param({"lifetime_max": "6h"}, ["ARBITER_LIFETIME_MAX", "ARBITER_LIFETIME"], id="end of no lifetime"),
        pytest.param(
            {"lifetime": "6h", "lifetime_max": "5h", "redis_url": "redis://a"},
            ["ARBITER_LIFETIME_MAX", "ARBITER_LIFETIME"],
            id="busy ones live shorter",
        ),
        pytest.param(
            {"lifetime": "100s", "grace": "80s", "drain": "10s", "redis_url": "redis://a"},
            ["ARBITER_LIFETIME", "ARBITER_GRACE", "ARBITER_DRAIN"],
            id="retired before it may be judged",
        ),
        pytest.param({"budget": "5%"}, ["ARBITER_BUDGET", "ARBITER_REDIS_URL"], id="part of a fleet that is not known"),
        pytest.param({"min_healthy": "100%"}, ["ARBITER_MIN_HEALTHY"], id="floor that allows no cull"),
        pytest.param(
            {"refund": "on", "budget_strategy": "previous"},
            ["ARBITER_REFUND", "ARBITER_BUDGET_STRATEGY=log"],
            id="refunds where no grant can be given back",
        ),
        pytest.param(
            {"soft_drain": "on", "weight": "off"},
            ["ARBITER_SOFT_DRAIN", "ARBITER_WEIGHT"],
            id="lowered weight that is off",
        ),
        pytest.param(
            {"spacing": "10m"},
            ["ARBITER_SPACING", "ARBITER_BUDGET_WINDOW"],
            id="one cull a window however many tokens",
        ),
        pytest.param(
            {"redis_password_file": "/run/password"},
            ["ARBITER_REDIS_PASSWORD_FILE", "ARBITER_REDIS_URL"],
            id="password without a server",
        ),
        pytest.param({"redis_ca": "/ca"}, ["ARBITER_REDIS_CA", "ARBITER_REDIS_URL"], id="authority without Redis"),
        pytest.param({"redis_cert": "/c"}, ["ARBITER_REDIS_CERT", "ARBITER_REDIS_URL"], id="certificate without Redis"),
        pytest.param(
            {"redis_ca": "/not/there", "redis_url": "rediss://a"},
            ["ARBITER_REDIS_CA", "/not/there"],
            id="authority that cannot be read",
        ),
        pytest.param(
            {"redis_key": __file__, "redis_url": "rediss://host"},
            ["ARBITER_REDIS_KEY", "ARBITER_REDIS_CERT"],
            id="key without its certificate",
        ),
        pytest.param(
            {"redis_password_file": "/p", "redis_url": "redis://:secret@b"},
            ["ARBITER_REDIS_PASSWORD_FILE", "ARBITER_REDIS_URL"],
            id="two passwords",
        ),
        pytest.param(
            {"budget_strategy": "fixed", "redis_url": "redis+cluster://a,b"},
            ["ARBITER_BUDGET_STRATEGY"],
            id="two slots of a cluster",
        ),
        pytest.param(
            {"local_listen": "127.0.0.1:9181"},
            ["ARBITER_PUBLIC_LISTEN", "ARBITER_LOCAL_LISTEN"],
            id="local and public on one port",
        ),
        pytest.param(
            {"agent_listen": "localhost:9180"},
            ["ARBITER_AGENT_LISTEN", "ARBITER_LOCAL_LISTEN"],
            id="local and agent on one port",
        ),
        pytest.param(
            {"public_listen": "[::]:99", "agent_listen": "[::]:99"},
            ["ARBITER_AGENT_LISTEN", "ARBITER_PUBLIC_LISTEN"],
            id="public and agent on one port",
        ),
        *(
            pytest.param({"app_port": at}, ["ARBITER_APP_PORT", listener], id=f"app at {at}, a port of the sidecar")
            for at, listener in {
                "9180": "ARBITER_LOCAL_LISTEN",
                "localhost:9181": "ARBITER_PUBLIC_LISTEN",
                "[::1]:9182": "ARBITER_AGENT_LISTEN",
            }.items()
        ),
        pytest.param(
            {"local_listen": "off"},
            ["ARBITER_LOCAL_LISTEN", "ARBITER_SOCKET"],
            id="no listener for errors",
        ),
        pytest.param(
            {"redis_url": "redis://host", "redis_timeout": "10s"},
            ["ARBITER_REDIS_TIMEOUT", "ARBITER_CHECK_INTERVAL"],
            id="claim still waiting at the next check",
        ),
        pytest.param(
            {"enforce_percent": "50", "mode": "shadow"},
            ["ARBITER_ENFORCE_PERCENT", "ARBITER_MODE=enforce"],
            id="part of no fleet",
        ),
        pytest.param({"tls_key": __file__}, ["ARBITER_TLS_KEY", "ARBITER_TLS_CERT"], id="key of no certificate"),
        pytest.param({"tls_cert": __file__}, ["ARBITER_TLS_CERT", "ARBITER_TLS_KEY"], id="certificate without its key"),
        pytest.param(
            {"tls_cert": __file__, "tls_key": __file__, "tls_listeners": "public"},
            ["ARBITER_TLS_CERT", "no certificate and its key"],
            id="pair that is none",
        ),
        pytest.param(
            {"tls_cert": "/nowhere/tls.crt", "tls_key": __file__, "tls_listeners": "public"},
            ["ARBITER_TLS_CERT", "/nowhere/tls.crt cannot be read: no such file or directory"],
            id="certificate that is missing",
        ),
        pytest.param(
            {"tls_client_ca": __file__}, ["ARBITER_TLS_CLIENT_CA", "ARBITER_TLS_CERT"], id="clients asked without TLS"
        ),
        pytest.param({"token_file": "/nowhere/token"}, ["ARBITER_TOKEN_FILE"], id="token that is missing"),
        pytest.param({"token_file": "/dev/null"}, ["ARBITER_TOKEN_FILE"], id="token that is no file"),
    ],
)
def test_a_contradiction_is_one_line_that_names_its_settings(flags: dict[str, str], named: list[str]) -> None:
    problems = _problems(flags)
    assert len(problems) == 1
    assert problems[0].startswith(f"{named[0]}: ")
    assert all(name in problems[0] for name in named)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({"check_interval": "60s"}, id="one check a window"),
        pytest.param({"settle": "47.9s"}, id="settles just within the window, late by a quarter"),
        pytest.param({"mode": "shadow"}, id="shadow without a shared budget"),
        pytest.param({"mode": "enforce", "alone": "true"}, id="enforces alone because it was said"),
        pytest.param({"mode": "enforce", "redis_url": "redis://a"}, id="enforces with the fleet"),
        pytest.param({"alone": "true", "redis_url": "redis://a"}, id="need not be alone"),
        pytest.param({"heartbeat_timeout": "10s"}, id="a silence of one interval"),
        pytest.param({"heartbeat_timeout": "0"}, id="no heartbeat at all"),
        pytest.param({"kind_limits": "redis:5", "ignore_kinds": "red,redis:5"}, id="kinds that only look alike"),
        pytest.param({"settle": "5s", "drain": "594s"}, id="gone a second before the token is back"),
        pytest.param({"budget": "20", "budget_window": "20s"}, id="one token a second"),
        pytest.param({"budget_strategy": "fixed", "budget_window": "30m"}, id="fixed half hour"),
        pytest.param({"budget_strategy": "previous", "budget_window": "7m"}, id="only fixed needs the hour"),
        pytest.param({"public_listen": "127.0.0.1:0", "agent_listen": "127.0.0.1:0"}, id="the kernel's choice"),
        pytest.param({"app_port": "app:9181"}, id="the same port in another network"),
        pytest.param({"app_port": "9182", "agent_listen": "off"}, id="port of a listener that is off"),
        pytest.param({"local_listen": "off", "socket": "/run/arbiter.sock"}, id="socket instead of a port"),
        pytest.param({"agent_listen": "off", "local_listen": "off", "socket": "/s"}, id="two listeners off"),
        pytest.param({"redis_url": "redis://host", "redis_timeout": "9s"}, id="claim ends before the next check"),
        pytest.param({"redis_timeout": "10s"}, id="time-out without Redis"),
        pytest.param({"redis_url": "redis+cluster://a,b,c", "redis_timeout": "9s"}, id="hosts of a cluster are one"),
        pytest.param({"budget": "100%", "redis_url": "redis://host"}, id="part of a fleet that Redis knows"),
        pytest.param({"min_healthy": "99.9%"}, id="floor just below all"),
        pytest.param({"min_healthy": "1000"}, id="floor as a count of a fleet that may be larger"),
        pytest.param({"lifetime": "6h", "lifetime_max": "6h", "redis_url": "redis://a"}, id="busy ones live as long"),
        pytest.param(
            {
                "lifetime": "112s",
                "grace": "90s",
                "drain": "10s",
                "redis_url": "redis://a",
            },
            id="lives a second beyond its youth",
        ),
        pytest.param({"refund": "on"}, id="refunds with the bound that comes with them"),
        pytest.param({"soft_drain": "off", "weight": "off"}, id="no weights of any kind"),
        pytest.param({"spacing": "599s"}, id="spacing just within the window"),
        pytest.param(
            {
                "redis_url": "rediss+sentinel://b/m",
                "redis_ca": __file__,
                "redis_cert": __file__,
                "redis_key": __file__,
            },
            id="certificates for TLS",
        ),
        pytest.param({"redis_url": "redis+cluster://a,b"}, id="only fixed needs two slots"),
        pytest.param({"redis_url": "rediss://a", "redis_cert": __file__}, id="certificate and key in one file"),
        pytest.param({"redis_url": "redis://a", "redis_password_file": "/p"}, id="password in the clear"),
        pytest.param({"run_lock": "/l", "standby": "true"}, id="standby with a lock"),
        pytest.param({"enforce_percent": "100", "mode": "shadow"}, id="all that enforce, if they did"),
        pytest.param({"enforce_percent": "0", "alone": "true"}, id="none enforces yet"),
    ],
)
def test_the_last_value_that_still_makes_sense_is_taken(flags: dict[str, str]) -> None:
    assert _problems(flags) == []


def test_all_contradictions_are_told_at_once() -> None:
    problems = _problems({"check_interval": "61s", "settle": "60s", "local_listen": "off"})
    assert [line.partition(":")[0] for line in problems] == [
        "ARBITER_CHECK_INTERVAL",
        "ARBITER_SETTLE",
        "ARBITER_LOCAL_LISTEN",
    ]
