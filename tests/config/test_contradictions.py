"""Settings that contradict one another: a line each that names them; the next value is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.certificates import Authority
from sidecar.config.load import SettingsError, load

if TYPE_CHECKING:
    from pathlib import Path

REDIS = "redis_url=redis://a"
PEM = f"tls_cert={__file__} tls_key={__file__} tls_listeners=public"
"""A pair of files that is none."""


def _problems(given: str) -> list[str]:
    """The problems with the settings of ``error_limit=5 drain=2s``."""
    try:
        load(dict(word.split("=", 1) for word in given.split()), {})
    except SettingsError as error:
        return error.problems
    return []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        # its place in the fleet
        ("mode=enforce", "MODE REDIS_URL ALONE=true"),
        ("enforce_percent=50 mode=shadow", "ENFORCE_PERCENT MODE=enforce"),
        ("standby=true", "STANDBY RUN_LOCK"),
        # judging
        ("check_interval=61s", "CHECK_INTERVAL ERROR_WINDOW"),
        ("settle=48s", "SETTLE ERROR_WINDOW"),
        ("heartbeat_timeout=9.9s", "HEARTBEAT_TIMEOUT CHECK_INTERVAL"),
        ("heartbeat_timeout=0.5s", "HEARTBEAT_TIMEOUT CHECK_INTERVAL"),
        ("scrape_errors=e", "SCRAPE_URL"),
        ("scrape_requests=e", "SCRAPE_URL"),
        ("scrape_in_flight=e", "SCRAPE_URL"),
        ("scrape_url=http://a/", "SCRAPE_ERRORS"),
        # the budget
        ("settle=5s drain=595s", "BUDGET_WINDOW SETTLE DRAIN"),
        ("budget=5%", "BUDGET REDIS_URL"),
        ("budget_strategy=fixed budget_window=7m", "BUDGET_WINDOW BUDGET_STRATEGY"),
        ("budget_strategy=fixed budget_window=1h", "BUDGET_WINDOW BUDGET_STRATEGY"),
        ("budget_strategy=fixed budget_window=22.5s", "BUDGET_WINDOW BUDGET_STRATEGY"),
        ("min_healthy=100%", "MIN_HEALTHY"),
        ("refund=on budget_strategy=previous", "REFUND BUDGET_STRATEGY=log"),
        # a retirement
        ("lifetime=6h", "LIFETIME REDIS_URL"),
        (f"lifetime=100s grace=80s drain=10s {REDIS}", "LIFETIME GRACE DRAIN"),
        # Redis
        (f"{REDIS} redis_timeout=10s", "REDIS_TIMEOUT CHECK_INTERVAL"),
        ("redis_url=rediss://a?ssl_ca_certs=/not/there", "REDIS_URL"),
        (f"redis_url=rediss://a?ssl_keyfile={__file__}", "REDIS_URL"),
        ("redis_password_file=/p redis_url=redis://:secret@b", "REDIS_PASSWORD_FILE REDIS_URL"),
        ("budget_strategy=fixed redis_url=redis+cluster://a,b", "BUDGET_STRATEGY"),
        # listeners
        ("local_listen=off", "LOCAL_LISTEN SOCKET"),
        ("app_port=9180", "APP_PORT LOCAL_LISTEN"),
        ("app_port=localhost:9181", "APP_PORT PUBLIC_LISTEN"),
        ("app_port=[::1]:9182", "APP_PORT AGENT_LISTEN"),
        # token and certificate
        ("page_listen=127.0.0.1:0", "PAGE_LISTEN TOKEN_FILE"),
        ("public_listen=127.0.0.1:9180", "PUBLIC_LISTEN LOCAL_LISTEN"),
        ("page_listen=127.0.0.1:0 token_file=/nowhere/token", "TOKEN_FILE"),
        ("token_file=/dev/null", "TOKEN_FILE"),
        (f"tls_key={__file__}", "TLS_KEY TLS_CERT"),
        (f"tls_cert={__file__}", "TLS_CERT TLS_KEY"),
        (PEM, "TLS_CERT"),
        (f"tls_cert=/nowhere tls_key={__file__} tls_listeners=public", "TLS_CERT"),
        (f"tls_client_ca={__file__}", "TLS_CLIENT_CA TLS_CERT"),
        # actions, evidence, messages
        ("action=command", "ACTION_COMMAND ACTION=command"),
        ("action=command action_command=no-such-program", "ACTION_COMMAND"),
        ("action=command action_command='open", "ACTION_COMMAND"),
        ("action=nomad-restart", "NOMAD_TASK ACTION=nomad-restart"),
        ("action=exit run_lock=/tmp", "ACTION RUN_LOCK"),
        ("cull_hook=/nowhere/hook", "CULL_HOOK"),
        ("cull_hook=/etc", "CULL_HOOK"),
        ("cull_hook=/etc/passwd", "CULL_HOOK"),
    ],
)
def test_contradiction_is_one_line_that_names_its_settings(given: str, named: str) -> None:
    (problem,) = _problems(given)
    first, *others = named.split()
    assert problem.startswith(f"ARBITER_{first}: ")
    assert all(f"ARBITER_{name}" in problem for name in others)


@pytest.mark.parametrize(
    "given",
    [
        "mode=shadow",
        "mode=enforce alone=true",
        f"mode=enforce {REDIS}",
        f"alone=true {REDIS}",
        "enforce_percent=100 mode=shadow",
        "enforce_percent=0 alone=true",
        "run_lock=/l standby=true",
        "check_interval=60s",
        "settle=47.9s",
        "heartbeat_timeout=10s",
        "heartbeat_timeout=0",
        "settle=5s drain=594s",
        f"budget=100% {REDIS}",
        "budget_strategy=fixed budget_window=30m",
        "budget_strategy=previous budget_window=7m",
        "min_healthy=99.9%",
        "min_healthy=1000",
        "refund=on",
        f"lifetime=6h {REDIS}",
        f"lifetime=112s grace=90s drain=10s {REDIS}",
        f"{REDIS} redis_timeout=9s",
        "redis_timeout=10s",
        "redis_url=redis+cluster://a,b",
        "redis_url=redis+cluster://a,b,c redis_timeout=9s",
        f"redis_url=rediss+sentinel://b/m?ssl_ca_certs={__file__}&ssl_certfile={__file__}&ssl_keyfile={__file__}",
        f"redis_url=rediss://a?ssl_certfile={__file__}",
        f"{REDIS} redis_password_file=/p",
        "local_listen=off socket=/run/arbiter.sock",
        "agent_listen=off local_listen=off socket=/s",
        "app_port=app:9181",
        "app_port=9182 agent_listen=off",
        "public_listen=127.0.0.1:0 agent_listen=127.0.0.1:0",
    ],
)
def test_last_value_that_still_makes_sense_is_taken(given: str) -> None:
    assert _problems(given) == []


def test_all_contradictions_are_told_at_once() -> None:
    problems = _problems("check_interval=61s settle=60s local_listen=off")
    assert [line.partition(":")[0] for line in problems] == [
        "ARBITER_CHECK_INTERVAL",
        "ARBITER_SETTLE",
        "ARBITER_LOCAL_LISTEN",
    ]


# -- token and certificate ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> str:
    cert, key = Authority(tmp_path_factory.mktemp("authority"), "ours").sign("listener")
    return f"tls_cert={cert} tls_key={key}"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("tls_listeners=public", ""),
        ("tls_listeners=page", "TLS_LISTENERS: page needs ARBITER_PAGE_LISTEN, which is off"),
        ("tls_listeners=,public,", ""),
        ("tls_listeners=public,page", "TLS_LISTENERS: page needs ARBITER_PAGE_LISTEN, which is off"),
        ("tls_listeners=public tls_client_ca=/nowhere/ca", "TLS_CLIENT_CA: /nowhere/ca cannot be read: no such file"),
        (f"tls_listeners=public tls_client_ca={__file__}", "TLS_CLIENT_CA: "),
    ],
)
def test_listeners_with_tls_are_open_and_their_authorities_certificates(pair: str, given: str, problem: str) -> None:
    problems = _problems(f"{pair} {given}")
    assert len(problems) == bool(problem)
    assert "".join(problems).startswith(problem and f"ARBITER_{problem}")


@pytest.mark.parametrize(("content", "is_taken"), [("x" * 16, True), ("x" * 15, False), ("x" * 15 + "\n", False)])
def test_token_has_its_length(tmp_path: Path, content: str, *, is_taken: bool) -> None:
    (tmp_path / "token").write_text(content)
    problems = _problems(f"token_file={tmp_path}/token page_listen=127.0.0.1:9183")
    assert [problem.partition(":")[0] for problem in problems] == ["ARBITER_TOKEN_FILE"] * (not is_taken)
