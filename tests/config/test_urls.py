"""Every setting that takes a URL or a path: no secret of it is shown, and a bad one is a sentence and exit code 2."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.child import python_env
from sidecar.config import urls
from sidecar.config.load import SettingsError, load, origins, values
from sidecar.config.model import declared
from sidecar.config.shown import effective
from sidecar.controller import journal

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = "hunter2"  # not one: the string to look for
LINKS: Final = ("page_url", "runbook_url")
NEEDED: Final[dict[str, dict[str, str]]] = {"scrape_url": {"scrape_errors": "errors_total"}}
"""Other settings that the setting needs."""


URLS: Final = [name for name in declared() if name.endswith("_url")]
PATHS: Final = ["config", *(each.name for each in declared().values() if each.is_path)]


def _complaint(name: str, value: str) -> str:
    """The one line about a value of this setting that cannot be used."""
    with pytest.raises(SettingsError) as caught:
        load({**NEEDED.get(name, {}), name: value}, {})
    problem = "; ".join(caught.value.problems)
    assert problem.startswith(f"ARBITER_{name.upper()}: ")
    assert problem.count("ARBITER_") == 1 + (name == "config" and "\\udc" in problem)  # not read, and no text
    assert "\n" not in problem
    assert len(problem) < 500
    assert SECRET not in problem
    return problem


def test_every_setting_with_the_name_of_a_url_or_path_is_in_the_tables() -> None:
    assert {"redis_url", "scrape_url", "webhook_url", *LINKS} <= {*URLS}
    endings = ("_file", "_dir", "_ca", "_cert", "_key", "socket", "_hook", "_template", "run_lock")
    named = {name for name in declared() if name.endswith(endings)}
    assert named | {"config"} == {*PATHS}


# -- a bad value ------------------------------------------------------------------------------------------------

BAD_URLS: Final = {
    "large port": "{scheme}://h:99999/",
    "no number as port": "{scheme}://h:abc/",
    "negative port": "{scheme}://h:-1/",
    "port of other digits": "{scheme}://h:\u0967/",
    "port 0": "{scheme}://h:0/",
    "secret before a bad port": f"{{scheme}}://u:{SECRET}@h:x/",
    "secret as port": f"{{scheme}}://h:{SECRET}",
    "open bracket": f"{{scheme}}://:{SECRET}@[::1/",
    "no host": "{scheme}://",
    "host that DNS cannot have": f"{{scheme}}://{'h' * 64}/",
    "long host": f"{{scheme}}://{'h.' * 127}h/",
    "long URL": f"{{scheme}}://h/{'1' * 5000}",
    "long password": f"{{scheme}}://:{SECRET * 1000}@h/",
    "control character": f"{{scheme}}://{SECRET}\x00h/",
    "blank": f"{{scheme}}://{SECRET} h/",
    "relative path of a socket": "unix://run/a.sock",
    "long path of a socket": f"unix:///{'a/' * 100}",
    "long name of a socket": f"unix:///{'a' * 108}",
}


@pytest.mark.parametrize("bad", BAD_URLS.values(), ids=BAD_URLS)
@pytest.mark.parametrize("name", URLS)
def test_bad_url_is_one_line_that_names_the_setting(name: str, bad: str) -> None:
    _complaint(name, bad.format(scheme="redis" if name == "redis_url" else "http"))


@pytest.mark.parametrize("scheme", ["redis+sentinel", "redis+cluster"])
@pytest.mark.parametrize("hosts", [f"{'h' * 64}:1", "h:99999", f"h:{SECRET}", f"a,{'b.' * 127}c"])
def test_bad_host_of_a_list_is_one_line_too(scheme: str, hosts: str) -> None:
    _complaint("redis_url", f"{scheme}://{hosts}{'/m' if scheme.endswith('l') else ''}")


def test_percent_signs_do_not_lengthen_the_path_of_a_socket() -> None:
    assert load({"redis_url": f"unix:///{'%61' * 100}"}, {}).redis.redis_url
    _complaint("redis_url", f"unix:///{'%61' * 107}")


BAD_PATHS: Final = {
    "long name": "/" + "a" * 256,
    "long name in bytes": "/" + "\u00fc" * 128,
    "long path": "/" + "ab/" * 2000,
    "control character": "/a\x00b",
    "line": "/a\nb",
    "not UTF-8": "/a\udcff",
    "URL": f"redis://:{SECRET}@h/",
}


@pytest.mark.parametrize("bad", BAD_PATHS.values(), ids=BAD_PATHS)
@pytest.mark.parametrize("name", PATHS)
def test_bad_path_is_one_line_that_names_the_setting(name: str, bad: str) -> None:
    _complaint(name, bad)


@pytest.mark.parametrize("name", ["socket", "statsd_socket"])
def test_path_of_a_unix_socket_has_its_length(name: str) -> None:
    assert values({name: "/" + "s" * 106}, {})[name]
    assert "at most 107 bytes" in _complaint(name, "/" + "s" * 107)


def test_state_file_of_the_longest_names_can_be_written(tmp_path: Path) -> None:
    names = {"service": "s" * 128, "instance": "i" * 106}
    load({"state_dir": str(tmp_path), **names}, {})
    journal.path_of(tmp_path, f"{names['service']}/{names['instance']}").write_text("x")
    longer = names | {"instance": "i" * 107}
    load(longer, {})
    with pytest.raises(SettingsError, match=r"^ARBITER_INSTANCE: with ARBITER_SERVICE it has more than 234 characters"):
        load({"state_dir": str(tmp_path), **longer}, {})


@pytest.mark.parametrize("name", LINKS)
def test_link_for_people_has_no_password_and_is_a_single_one(name: str) -> None:
    assert "must have no user or password" in _complaint(name, f"https://u:{SECRET}@wiki/")
    _complaint(name, "https://a/, https://b/")


@pytest.mark.parametrize("command", ["check-config", "run"])
def test_all_of_them_at_once_are_lines_on_stderr_and_exit_code_2(command: str) -> None:
    bad = dict.fromkeys(URLS, f"http://u:{SECRET}@h:x/") | dict.fromkeys(PATHS, f"/{'a' * 300}")
    done = _program(command, {f"ARBITER_{name.upper()}": value for name, value in bad.items()})
    assert (done.returncode, done.stdout) == (2, "")
    assert SECRET not in done.stderr
    lines = done.stderr.splitlines()
    assert sorted(line.split(": ")[1] for line in lines) == sorted(f"ARBITER_{name.upper()}" for name in bad)
    assert {line.split(": ")[0] for line in lines} == {"health-arbiter"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_file_behind_a_closed_directory_is_a_sentence_too(tmp_path: Path) -> None:
    """``Path.is_file`` raises there, in place of answering."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    importlib.import_module("sidecar.net.token_file")  # the other user may not be able to read it
    os.seteuid(65534)
    try:
        for name in ("token_file", "cull_hook"):
            _complaint(name, f"{closed}/file")
    finally:
        os.seteuid(0)


def _program(command: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sidecar", command],
        env=python_env(**settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# -- what is shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8080/metrics", "http://h:8080/metrics"),
        (f"http://h/metrics?token={SECRET}", "http://h/metrics?token=***"),
        (f"http://h/metrics?a={SECRET}&b={SECRET}={SECRET}", "http://h/metrics?a=***&b=***"),
        (f"http://h/metrics?{SECRET}", "http://h/metrics?***"),
        ("http://h/metrics?", "http://h/metrics?"),
        (f"http://h/metrics?a=1?{SECRET}", "http://h/metrics?a=***"),
        (f"http://h/metrics#token={SECRET}", "http://h/metrics#***"),
        (f"http://h/#{SECRET}?a=b", "http://h/#***"),
        (f"http://u:{SECRET}@h/metrics", "http://u:***@h/metrics"),
        (f"http://{SECRET}@h/", "http://***@h/"),
        (f"http://u:{SECRET}/{SECRET}@h/", "http://u:***@h/"),
        (f"unix:///run/a.sock:/metrics?token={SECRET}", "unix:///run/a.sock:/metrics?token=***"),
    ],
)
def test_masked_url_shows_the_place_and_no_secret(url: str, shown: str) -> None:
    assert urls.masked(url) == shown


@given(st.text(), st.text())
def test_no_query_user_or_path_of_a_webhook_survives_the_mask(before: str, after: str) -> None:
    text = f"{before}{SECRET}{after}"
    secret = quote(text, safe="", errors="replace")
    for url in (f"http://h/?{secret}", f"http://h/?{secret}==", f"http://h/?a={secret}", f"unix:///a:/b?c&a={secret}"):
        assert SECRET not in urls.masked(url)
    for url in (f"http://h/#{text}", f"http://{secret}@h/", f"http://u:{secret}@h/"):
        assert SECRET not in urls.masked(url)
    assert SECRET not in urls.masked(f"http://h/{text}", hides_path=True)


@pytest.mark.parametrize("name", [name for name in URLS if name != "redis_url"])
def test_every_url_setting_is_shown_without_its_secrets(name: str) -> None:
    login = "" if name in LINKS else f"u:{SECRET}@"
    given_values = {**NEEDED.get(name, {}), name: f"http://{login}host:81/?a={SECRET}&{SECRET}#{SECRET}"}
    text = effective(values(given_values, {}), origins(given_values, {}))
    assert SECRET not in text
    assert f"ARBITER_{name.upper()}=http://{login.replace(SECRET, '***')}host:81/" in text


def test_check_config_shows_no_secret_of_a_url() -> None:
    settings = {
        "ARBITER_SCRAPE_URL": f"http://u:{SECRET}@127.0.0.1:1/metrics?token={SECRET}",
        "ARBITER_SCRAPE_ERRORS": "errors_total",
        "ARBITER_WEBHOOK_URL": f"http://{SECRET}@hooks/{SECRET}?key={SECRET}",
        "ARBITER_REDIS_URL": f"redis+sentinel://:{SECRET}@a/m?sentinel_password={SECRET}",
    }
    done = _program("check-config", settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert SECRET not in done.stdout
    assert "ARBITER_SCRAPE_URL=http://u:***@127.0.0.1:1/***  # from env\n" in done.stdout
