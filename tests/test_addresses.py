from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar import addresses


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("127.0.0.1:9180", "127.0.0.1:9180"),
        (" LocalHost:09180 ", "localhost:9180"),
        ("0.0.0.0:0", "0.0.0.0:0"),
        ("[::1]:80", "[::1]:80"),
        ("[0:0:0:0:0:0:0:0]:65535", "[::]:65535"),
        ("node-1.example.org:1", "node-1.example.org:1"),
    ],
)
def test_a_listen_address_has_one_normal_form(written: str, normal: str) -> None:
    assert addresses.listen(written) == normal


@pytest.mark.parametrize(
    "written",
    [
        "",
        "9180",
        ":9180",
        "host",
        "host:",
        "host:http",
        "host:-1",
        "host:65536",
        "host: 1",
        "::1:80",
        "[::1]",
        "[127.0.0.1]:80",
        "[zz]:80",
        "256.0.0.1:80",
        "1.2.3:80",
        "*:80",
        "-host:80",
        "ho st:80",
        "http://host:80",
        "host:٣",
        "off",
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
    ("one", "other", "expected"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("127.0.0.1:1", "0.0.0.0:1", True),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("0.0.0.0:1", "[::]:1", False),
        ("[::1]:1", "[::]:1", True),
        ("localhost:1", "127.0.0.1:1", True),
        ("localhost:1", "[::1]:1", True),
        ("a:1", "a:1", True),
        ("a:1", "b:1", False),
        ("a:1", "127.0.0.1:1", False),
        ("off", "off", False),
        ("off", "a:1", False),
    ],
)
def test_two_listeners_overlap_when_they_cannot_both_bind(one: str, other: str, *, expected: bool) -> None:
    assert addresses.overlap(one, other) is expected


@pytest.mark.parametrize("path", ["", "/run/arbiter.sock", "/" + "s" * 106])
def test_a_socket_path_is_kept_as_it_was_written(path: str) -> None:
    assert addresses.socket_path(path) == path


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("run/arbiter.sock", "absolute"),
        ("@abstract", "absolute"),
        ("/run/a\0b", "control characters"),
        ("/" + "s" * 107, "107 bytes"),
        ("/" + "ü" * 54, "107 bytes"),
    ],
)
def test_a_path_that_no_socket_can_have_is_refused(path: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        addresses.socket_path(path)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://host:6379/0",
        "rediss://user:p%2Fw@host:6380/1?ssl_cert_reqs=none",
        "redis://:pass,word@host",
        "redis://[::1]:6379",
        "redis://host/?db=3&password=x",
        "unix:///run/redis.sock?db=1",
        "unix://user:pw@/run/redis.sock",
        "",
    ],
)
def test_a_redis_url_is_kept_as_it_was_written(url: str) -> None:
    assert addresses.redis_url(f" {url} ") == url


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("host:6379", "not a Redis URL"),
        ("http://host", "not a Redis URL"),
        ("redis://", "not a Redis URL"),
        ("redis:///0", "not a Redis URL"),
        ("redis://host:hunter2", "not a Redis URL"),
        ("redis://host:99999", "not a Redis URL"),
        ("redis://host:0", "not a Redis URL"),
        ("redis://host/zero", "not a Redis URL"),
        ("redis://host/0#hunter2", "not a Redis URL"),
        ("redis://:hunter2#x@host", "not a Redis URL"),
        ("redis://:hunter2/x@host", "not a Redis URL"),
        ("redis://:hunter2?x@host", "not a Redis URL"),
        ("redis://user:1/hunter2@host", "not a Redis URL"),
        ("redis://user:1?hunter2@host", "not a Redis URL"),
        ("redis://:hunter2 x@host", "not a Redis URL"),
        ("redis://:hunter2\n@host", "not a Redis URL"),
        ("redis://:hunter2@[host", "not a Redis URL"),
        ("redis://:hunter2@host\u2100", "not a Redis URL"),
        ("redis://a,redis://:hunter2@b", "several servers"),
        ("redis://:hunter2@a, REDISS://b", "several servers"),
        ("unix://:hunter2@", "needs a path"),
        ("unix://run/redis.sock", "needs a path"),
        ("redis://host?socket_timeout=hunter2", "takes only the options"),
        ("redis://host?hunter2", "takes only the options"),
    ],
)
def test_a_redis_url_that_redis_py_would_misread_is_refused_without_a_word_of_it(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        addresses.redis_url(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", ""),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://user:hunter2@host", "redis://user:***@host"),
        ("redis://:hunter2@host", "redis://:***@host"),
        ("redis://:hunter2@hunter2@host", "redis://:***@host"),
        ("redis://hunter2@host", "redis://***@host"),
        ("redis://:hunter2:hunter2@host", "redis://:***@host"),
        ("redis://host?password=hunter2&db=1", "redis://host?password=***&db=1"),
        ("redis://host?pass%77ord=hunter2", "redis://host?pass%77ord=***"),
        ("rediss://host?ssl_password=hunter2", "rediss://host?ssl_password=***"),
        ("unix://:hunter2@/run/redis.sock?db=1", "unix://:***@/run/redis.sock?db=1"),
    ],
)
def test_a_masked_url_shows_everything_but_the_password(url: str, shown: str) -> None:
    assert addresses.masked(addresses.redis_url(url)) == shown


@given(st.text())
def test_no_password_survives_the_mask(text: str) -> None:
    secret = quote("S3CRET" + text, safe="", errors="replace")
    for url in (f"redis://:{secret}@host/0", f"redis://host?password={secret}", f"redis://{secret}@host"):
        assert "S3CRET" not in addresses.masked(addresses.redis_url(url))


@given(st.text(), st.text())
def test_no_complaint_repeats_any_of_a_url(before: str, after: str) -> None:
    complaint = ""
    try:
        addresses.redis_url(f"{before}S3CRET{after}")
    except ValueError as error:
        complaint = str(error)
    assert "S3CRET" not in complaint
