"""What a person reads of the settings: true, complete, and never a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config.load import SettingsError, load, origins, values
from sidecar.config.settings import setting_names
from sidecar.config.shown import effective, table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOMAD = {"NOMAD_NAMESPACE": "prod", "NOMAD_ALLOC_ID": "0a1b2c", "NOMAD_ALLOC_DIR": "/alloc"}


def _problems(flags: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(flags or {}, environ or {})
    return caught.value.problems


SECRET = "hunter2"  # not one: the string to look for
BROKEN_URLS = [
    f"redis://:{SECRET}@host:port/0",
    f"redis://:{SECRET}@host/zero",
    f"redis://:{SECRET}#@host",
    f"redis://{SECRET}",
    f"redis://host?password={SECRET}&retry_on_timeout=true",
    f"redis://a,redis://:{SECRET}@b:port",
    f"redis://a,redis://:{SECRET}@a",
    f"redis+sentinel://:{SECRET}@a",
    f"rediss:/:{SECRET}@host",
    f"http://:{SECRET}@host",
    f"unix://{SECRET}",
    SECRET,
]


@pytest.mark.parametrize("url", BROKEN_URLS)
@pytest.mark.parametrize("giver", ["flag", "env", "file", "list in file"])
def test_no_problem_repeats_a_redis_url(tmp_path: Path, giver: str, url: str) -> None:
    file = tmp_path / "arbiter.toml"
    file.write_text(f"redis_url = {[url] if giver == 'list in file' else url!r}\nbudget = 0\n")
    flags = {"redis_url": url} if giver == "flag" else {"config": str(file)} if "file" in giver else {}
    environ = {"ARBITER_REDIS_URL": url, "ARBITER_MODE": "x"} if giver == "env" else {}
    if url == f"redis://{SECRET}" and giver != "list in file":
        assert load({"redis_url": url}, {}).redis.redis_url == url  # a host of that name is as good as any
        return
    text = "\n".join(_problems(flags, environ))
    assert "ARBITER_REDIS_URL: the value from" in text
    assert SECRET not in text


@given(st.text(), st.text())
def test_no_text_of_a_redis_url_gets_into_a_problem(before: str, after: str) -> None:
    problems = _problems({"redis_url": f"{before}{SECRET}{after}", "budget": "0"})
    assert SECRET not in "".join(problems)


def test_a_url_in_the_wrong_place_is_not_repeated_either() -> None:
    assert SECRET not in "".join(_problems({"service": f"redis://:{SECRET}@host"}))


def test_a_contradiction_does_not_repeat_the_url() -> None:
    flags = {"redis_url": f"redis://:{SECRET}@host", "redis_timeout": "10s", "local_listen": "off"}
    problems = _problems(flags)
    assert len(problems) == 2
    assert SECRET not in "".join(problems)


def test_effective_settings_are_one_line_each_with_value_and_origin() -> None:
    flags = {"redis_url": f"redis://user:{SECRET}@host/0?password={SECRET}", "preset": "classdojo"}
    environ = NOMAD | {"ARBITER_BUDGET_WINDOW": "300", "ARBITER_REDIS_TIMEOUT": "0.5"}
    text = effective(values(flags, environ), origins(flags, environ))
    lines = text.splitlines()
    assert len(lines) == len(setting_names())
    assert SECRET not in text
    for line in (
        "ARBITER_REDIS_URL=redis://user:***@host/0?password=***  # from flag",
        "ARBITER_BUDGET_WINDOW=5m  # from env",
        "ARBITER_REDIS_TIMEOUT=500ms  # from env",
        "ARBITER_ERROR_WINDOW=60s  # from preset",
        "ARBITER_INSTANCE=0a1b2c  # from nomad",
        "ARBITER_STOP_DRAIN=5s  # from default",
        "ARBITER_SOCKET=  # from default",
    ):
        assert line in lines


@pytest.mark.parametrize("flags", [{"preset": "classdojo"}, {"budget_strategy": "previous", "weight": "off"}])
def test_effective_settings_without_secrets_can_be_loaded_again(flags: dict[str, str]) -> None:
    settings = values({**flags, "grace": "1.5s", "min_healthy": "12.5%"}, NOMAD)
    lines = effective(settings, dict.fromkeys(setting_names(), "test")).splitlines()
    environ = dict(line.partition("  #")[0].split("=", 1) for line in lines)
    assert values({}, environ) == settings


def test_the_table_has_a_default_that_can_be_given_and_one_sentence_for_every_setting() -> None:
    rows = table()
    assert [name for name, _, _ in rows] == [f"ARBITER_{name.upper()}" for name in setting_names()]
    for name, default, description in rows:
        assert description.endswith("."), name
        assert description.count(". ") == 0, name
        assert "|" not in default + description, name
    environ = {name: default for name, default, _ in rows if name != "ARBITER_INSTANCE"}
    assert values({}, environ) == values({}, {})
    assert dict((name, default) for name, default, _ in rows)["ARBITER_BUDGET_WINDOW"] == "10m"  # noqa: C402


@pytest.mark.parametrize(
    ("name", "urls", "shown"),
    [
        ("webhook_url", "https://hooks.example/T0/secret?key=secret", "https://hooks.example/***"),
        ("webhook_url", "https://u:secret@b/", "https://u:***@b/***"),
        ("webhook_url_file", "/run/hooks", "/run/hooks"),
        ("page_url", "http://page:9183", "http://page:9183"),
        ("statsd_prefix", "shop", "shop"),
        (
            "scrape_errors",
            'errors_total{url="http://u:secret@h/?key=secret",code=~"5.."}',
            'errors_total{url="http://u:***@h/?key=***",code=~"5.."}',
        ),
    ],
    ids=["path", "user", "file", "harmless", "no URL", "URL in another setting"],
)
def test_urls_are_shown_without_their_secrets(name: str, urls: str, shown: str) -> None:
    settings = values({"scrape_url": "http://h/", "scrape_requests": "requests_total", name: urls}, {})
    line = next(one for one in effective(settings, origins({name: urls}, {})).splitlines() if name.upper() in one)
    assert line.startswith(f"ARBITER_{name.upper()}={shown}  #")
    assert "secret" not in line


@pytest.mark.parametrize("name", ["redis_url", "webhook_url", "scrape_url"])
def test_url_that_cannot_be_used_is_not_repeated(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({name: "http//u:secret@h/"}, {})
    assert "secret" not in "".join(caught.value.problems)
