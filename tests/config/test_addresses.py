"""Addresses, URLs and paths: one normal form, no secret shown, and a bad one is a sentence and exit code 2."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.cli import application
from sidecar.config import addresses
from sidecar.config.load import SettingsError, declared, load, origins, values
from sidecar.config.shown import effective
from sidecar.controller import journal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        (" LocalHost:09180 ", "localhost:9180"),
        ("0.0.0.0:0", "0.0.0.0:0"),
        ("[0:0:0:0:0:0:0:0]:65535", "[::]:65535"),
        ("node-1.example.org:1", "node-1.example.org:1"),
        ("h." * 126 + "h:1", "h." * 126 + "h:1"),
    ],
)
def test_a_listen_address_has_one_normal_form(written: str, normal: str) -> None:
    assert addresses.listen(written) == normal


@pytest.mark.parametrize(
    "written",
    [
        *("", "9180", ":9180", "host", "host:", "host:http", "host:-1", "host:65536", "host: 1", "host:٣", "off"),
        *("::1:80", "[::1:80", "::1]:80", "[::1]", "[127.0.0.1]:80", "[zz]:80", "256.0.0.1:80", "1.2.3:80"),
        *("*:80", "-host:80", "ho st:80", "http://host:80"),
    ],
)
def test_what_is_no_listen_address_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        addresses.listen(written)


def test_only_where_it_is_allowed_a_listener_may_be_off() -> None:
    assert addresses.listen_or_off("OFF") == "off"
    assert addresses.loopback_or_off(" off ") == "off"


@pytest.mark.parametrize("written", ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"])
def test_loopback_takes_every_name_of_this_machine(written: str) -> None:
    assert addresses.loopback_or_off(written) == written


@pytest.mark.parametrize("written", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example.org:1"])
def test_loopback_refuses_what_others_could_reach(written: str) -> None:
    with pytest.raises(ValueError, match="only the app on this machine"):
        addresses.loopback_or_off(written)


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("@abstract", "absolute"),
        ("/run/a\0b", "control characters"),
        ("/" + "s" * 107, "107 bytes"),
        ("/" + "ü" * 54, "107 bytes"),
    ],
)
def test_a_path_that_no_socket_can_have_is_refused(path: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        addresses.socket_path(path)
    assert addresses.socket_path("/" + "s" * 106)


# -- URLs and paths in settings --------------------------------------------------------------------------------------


SECRET: Final = "hunter2"  # not one: the string to look for
LINK: Final = "runbook_url"
NEEDED: Final[dict[str, dict[str, str]]] = {"scrape_url": {"scrape_errors": "errors_total"}}
"""Other settings that the setting needs."""

URLS: Final = [name for name in declared() if name.endswith("_url")]
ENDINGS: Final = ("_file", "_dir", "_ca", "_cert", "_key", "socket", "_hook", "_template", "run_lock")
PATHS: Final = ["config", *(name for name in declared() if name.endswith(ENDINGS))]


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


# -- a bad value ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        "{scheme}://h:99999/",
        "{scheme}://h:-1/",
        "{scheme}://h:\u0967/",
        "{scheme}://h:0/",
        f"{{scheme}}://u:{SECRET}@h:x/",
        f"{{scheme}}://h:{SECRET}",
        f"{{scheme}}://:{SECRET}@[::1/",
        "{scheme}://",
        f"{{scheme}}://{'h' * 64}/",
        f"{{scheme}}://{'h.' * 127}h/",
        f"{{scheme}}://:{SECRET * 1000}@h/",
        f"{{scheme}}://{SECRET}\x00h/",
        f"{{scheme}}://{SECRET} h/",
        *(f":{SECRET}@h:8080", "ftp://h/", "/run/app.sock", "unix://run/a.sock", "{scheme}://:80/"),
        f"unix:///{'a' * 108}",
    ],
)
@pytest.mark.parametrize("name", URLS)
def test_bad_url_is_one_line_that_names_the_setting(name: str, bad: str) -> None:
    _complaint(name, bad.format(scheme="redis" if name == "redis_url" else "http"))


@pytest.mark.parametrize(
    "bad",
    [
        "/" + "a" * 256,
        "/" + "\u00fc" * 128,
        "/" + "ab/" * 2000,
        "/a\x00b",
        "/a\nb",
        "/a\udcff",
        f"redis://:{SECRET}@h/",
    ],
)
@pytest.mark.parametrize("name", PATHS)
def test_bad_path_is_one_line_that_names_the_setting(name: str, bad: str) -> None:
    _complaint(name, bad)


def test_longest_path_name_and_url_are_taken_and_none_that_is_longer() -> None:
    longest = "/" + "ab/" * 1266 + "a"
    assert len(longest) == 3800
    assert addresses.path(longest) == longest
    with pytest.raises(ValueError, match="at most 3800 bytes"):
        addresses.path(longest + "b")
    assert addresses.path("/" + "a" * 255)
    url = "http://h/".ljust(addresses.MAX_BYTES, "x")
    addresses.check_text(url)
    with pytest.raises(ValueError, match="at most 4096 bytes"):
        addresses.check_text(url + "x")


def test_percent_signs_do_not_lengthen_the_path_of_a_socket() -> None:
    assert load({"redis_url": f"unix:///{'%61' * 100}"}, {}).redis.redis_url
    _complaint("redis_url", f"unix:///{'%61' * 107}")


@pytest.mark.parametrize("name", ["socket", "statsd_socket"])
def test_path_of_a_unix_socket_has_its_length(name: str) -> None:
    assert values({name: "/" + "s" * 106}, {})[name]
    assert "at most 107 bytes" in _complaint(name, "/" + "s" * 107)


def test_state_file_of_the_longest_names_can_be_written(tmp_path: Path) -> None:
    names = {"service": "s" * 110, "instance": "i" * 110}
    load(names, {})
    path = journal.path_of(tmp_path, f"{names['service']}/{names['instance']}")
    path.with_suffix(".asked").write_text("x")
    for name in names:
        assert "must be at most 110 characters long" in _complaint(name, "x" * 111)


def test_link_for_people_has_no_password_and_is_a_single_one() -> None:
    assert "must have no user or password" in _complaint(LINK, f"https://u:{SECRET}@wiki/")
    _complaint(LINK, "https://a/, https://b/")
    assert "takes one URL" in _complaint("webhook_url", "http://a,http://b")


def test_all_of_them_at_once_are_lines_on_stderr_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    bad = dict.fromkeys(URLS, f"http://u:{SECRET}@h:x/") | dict.fromkeys(PATHS, f"/{'a' * 300}")
    assert application.run(["check-config"], {f"ARBITER_{name.upper()}": value for name, value in bad.items()}) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert SECRET not in err
    lines = [line.split(": ") for line in err.splitlines()]
    assert sorted(name for _, name, *_ in lines) == sorted(f"ARBITER_{name.upper()}" for name in bad)
    assert {program for program, *_ in lines} == {"health-arbiter"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_file_behind_a_closed_directory_is_a_sentence_too(tmp_path: Path) -> None:
    """``Path.is_file`` raises there, in place of answering."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    importlib.import_module("sidecar.net.credential_files")  # the other user may not be able to read it
    os.seteuid(65534)
    try:
        for name in ("token_file", "cull_hook"):
            _complaint(name, f"{closed}/file")
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://localhost:8080/metrics", addresses.Target("http://localhost:8080/metrics")),
        (" https://user:secret@[::1]/m?x=1 ", addresses.Target("https://user:secret@[::1]/m?x=1")),
        ("unix:///run/app.sock", addresses.Target("http://localhost/metrics", "/run/app.sock")),
        ("unix:///run/app.sock:/prom/x?y=1", addresses.Target("http://localhost/prom/x?y=1", "/run/app.sock")),
        ("UNIX:///run/app.sock:/", addresses.Target("http://localhost/", "/run/app.sock")),
    ],
)
def test_metrics_page_is_at_a_url_or_behind_a_unix_socket(url: str, target: addresses.Target) -> None:
    assert addresses.parse_target(url) == target


# -- what is shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8080/metrics", "http://h:8080/metrics"),
        (f"http://h/metrics?a={SECRET}&b={SECRET}={SECRET}", "http://h/metrics?a=***&b=***"),
        (f"http://h/metrics?{SECRET}", "http://h/metrics?***"),
        ("http://h/metrics?", "http://h/metrics?"),
        (f"http://h/metrics?a=1?{SECRET}", "http://h/metrics?a=***"),
        (f"http://h/#{SECRET}?a=b", "http://h/#***"),
        (f"http://u:{SECRET}@h/metrics", "http://u:***@h/metrics"),
        (f"http://{SECRET}@h/", "http://***@h/"),
        (f"http://u:{SECRET}/{SECRET}@h/", "http://u:***@h/"),
        (f"unix:///run/a.sock:/metrics?token={SECRET}", "unix:///run/a.sock:/metrics?token=***"),
    ],
)
def test_masked_url_shows_the_place_and_no_secret(url: str, shown: str) -> None:
    assert addresses.masked(url) == shown


@given(st.text(), st.text())
def test_no_query_user_or_hidden_path_survives_the_mask(before: str, after: str) -> None:
    text = f"{before}{SECRET}{after}"
    secret = quote(text, safe="", errors="replace")
    for url in (f"http://h/?{secret}", f"http://h/?{secret}==", f"http://h/?a={secret}", f"unix:///a:/b?c&a={secret}"):
        assert SECRET not in addresses.masked(url)
    for url in (f"http://h/#{text}", f"http://{secret}@h/", f"http://u:{secret}@h/"):
        assert SECRET not in addresses.masked(url)
    assert SECRET not in addresses.masked(f"http://h/{text}", hides_path=True)


@pytest.mark.parametrize(
    ("name", "url", "shown"),
    [
        ("webhook_url", f"https://u:{SECRET}@hooks/{SECRET}?key={SECRET}", "https://u:***@hooks/***"),
        ("scrape_url", f"http://u:{SECRET}@h:1/{SECRET}?token={SECRET}", "http://u:***@h:1/***"),
        ("redis_url", f"redis+sentinel://:{SECRET}@a/m?password={SECRET}", "redis+sentinel://:***@a/m?password=***"),
        ("runbook_url", "http://wiki/runbooks", "http://wiki/runbooks"),
        ("scrape_errors", f'e{{url="http://u:{SECRET}@h/",code=~"5.."}}', 'e{url="http://u:***@h/",code=~"5.."}'),
    ],
)
def test_setting_is_shown_without_its_secrets(name: str, url: str, shown: str) -> None:
    flags = {"scrape_url": "http://h/", "scrape_requests": "requests_total", name: url}
    text = effective(values(flags, {}), origins(flags, {}))
    assert f"ARBITER_{name.upper()}={shown}  # from flag" in text.splitlines()
    assert SECRET not in text
