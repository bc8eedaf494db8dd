"""The example environment file: complete, with the right defaults, and valid in every form."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest

from deploy.env_file import EXAMPLE, commented_out, given
from harness.certificates import Authority
from sidecar.config.load import load
from sidecar.config.settings import setting_names
from sidecar.config.shown import ADVANCED, FIRST
from sidecar.config.sources import PRESETS, variable

TEXT: Final = EXAMPLE.read_text()
OPTIONAL: Final = commented_out(TEXT)
PROSE_ONLY: Final = {variable("config")}
"""Named only in a sentence, because a missing file is an error."""

NO_DEFAULT_TO_SHOW: Final = {
    variable(name)
    for name in (
        "preset",
        "instance",
        "socket",
        "state_dir",
        "kind_limits",
        "ignore_kinds",
        "statsd_socket",
        "statsd_prefix",
        "scrape_url",
        "scrape_errors",
        "scrape_requests",
        "scrape_in_flight",
        "redis_password_file",
        "redis_ca",
        "redis_cert",
        "redis_key",
        "run_lock",
        "cull_hook",
        "action_command",
        "app_port",
        "nomad_task",
        "webhook_url",
        "webhook_url_file",
        "webhook_template",
        "runbook_url",
        "page_url",
        "token_file",
        "tls_cert",
        "tls_key",
        "tls_client_ca",
        "public_allow",
    )
}
SCRAPE: Final = {name: OPTIONAL[name] for name in (variable("scrape_url"), variable("scrape_errors"))}
"""A page and its counted series: one needs the other."""

THERE: Final = {
    **{variable(name): __file__ for name in ("redis_ca", "redis_cert", "redis_key")},
    variable("cull_hook"): sys.executable,
    variable("token_file"): str(Path(__file__).parents[1] / "apps" / "package.json"),
    variable("webhook_template"): str(Path(__file__).parents[1] / "apps" / "package.json"),
}
"""Settings whose file must exist and be valid."""

SECURE: Final = {variable("redis_url"): "rediss://redis.internal:6379/0", **THERE}
"""Certificates need a URL with TLS, and a key needs its certificate."""

TOGETHER: Final = {
    **dict.fromkeys((name for name in OPTIONAL if name.startswith(variable("scrape_"))), SCRAPE),
    variable("redis_password_file"): {variable("redis_url"): "redis://redis.internal:6379/0"},
    **dict.fromkeys(map(variable, ("redis_ca", "redis_cert", "redis_key")), SECURE),
}


def test_example_loads_as_it_is_shipped() -> None:
    settings = load({}, given(TEXT))
    assert (settings.identity.mode, settings.identity.service) == ("shadow", "shop")
    assert settings.redis.redis_url.startswith("redis://")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate with its key, and the listener that uses it by default."""
    cert, key = Authority(tmp_path_factory.mktemp("authority"), "ours").sign("door")
    pair = {variable("tls_cert"): str(cert), variable("tls_key"): str(key), variable("tls_client_ca"): str(cert)}
    return {**pair, variable("page_listen"): "127.0.0.1:9183", variable("token_file"): THERE[variable("token_file")]}


def test_example_loads_with_everything_switched_on(tls: dict[str, str]) -> None:
    everything = given(TEXT) | OPTIONAL | SECURE | tls
    del everything[variable("webhook_url")]  # its file stands in for it
    load({}, everything)


@pytest.mark.parametrize("name", OPTIONAL)
def test_example_loads_with_one_line_switched_on(name: str, tls: dict[str, str]) -> None:
    others = TOGETHER.get(name, {}) | {name: THERE.get(name, OPTIONAL[name])}
    if name in {variable("tls_cert"), variable("tls_key"), variable("tls_client_ca")}:
        others = tls
    load({}, given(TEXT) | others)


def test_example_shows_every_setting_once() -> None:
    names = re.findall(r"^#?(ARBITER_[A-Z_]+)=", TEXT, re.MULTILINE)
    assert sorted(names) == sorted({variable(name) for name in setting_names()} - PROSE_ONLY)
    assert all(name in TEXT for name in PROSE_ONLY)


def test_lines_in_comments_have_the_defaults() -> None:
    shown = load({}, {name: value for name, value in OPTIONAL.items() if name not in NO_DEFAULT_TO_SHOW})
    defaults = load({}, {})
    assert shown == defaults


def test_lines_without_a_default_are_marked_as_examples() -> None:
    for name in NO_DEFAULT_TO_SHOW - {variable("state_dir")}:
        assert re.search(rf"[Aa]n example:\n#{name}=", TEXT), name


def test_pages_begin_with_the_ten_settings_that_matter_and_end_with_the_advanced_ones() -> None:
    page = (EXAMPLE.parent / "settings.md").read_text().split("\n## ")
    sections = {
        section.partition("\n")[0]: re.findall(r"^\| `(ARBITER_\w+)`", section, re.MULTILINE) for section in page
    }
    assert sections["The ten that matter"] == [variable(name) for name in FIRST]
    assert sections["Advanced"] == [variable(name) for name in ADVANCED]
    assert [*sections][1] == "The ten that matter"
    assert [*sections][-1] == "Advanced"
    advanced = TEXT.partition("# --- Advanced")[2].partition("\n# --- ")[0]
    assert sorted(commented_out(advanced)) == sorted(sections["Advanced"])


def test_preset_shown_is_one_that_exists() -> None:
    assert OPTIONAL[variable("preset")] in PRESETS


@pytest.mark.parametrize("name", [*given(TEXT), *OPTIONAL])
def test_value_is_the_same_for_systemd_and_docker(name: str) -> None:
    """systemd strips quotes and Docker keeps them; both keep text after ``#``."""
    assert re.fullmatch(r"[^\s'\"\\$#]+", (given(TEXT) | OPTIONAL)[name])


@pytest.mark.parametrize(
    ("text", "now", "when_switched_on"),
    [
        ("A=1\n#B=2\n# C=3\n\n# words = more words\n", {"A": "1"}, {"B": "2"}),
        ("A=b=c\n", {"A": "b=c"}, {}),
        ("# A=1 would be\n#a=1\n", {}, {}),
    ],
    ids=["both", "equals sign", "prose"],
)
def test_assignments_are_distinguished_from_prose(
    text: str, now: dict[str, str], when_switched_on: dict[str, str]
) -> None:
    assert given(text) == now
    assert commented_out(text) == when_switched_on
