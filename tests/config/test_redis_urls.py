from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import redis_urls

SEVERAL = "names several servers.* Redis Sentinel, redis.* Redis Cluster, redis"


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
        "redis+sentinel://host/fleet",
        "redis+sentinel://user:pass,word@a:26379,b,[::1]:26379/fleet/1?sentinel_password=x",
        "rediss+sentinel://a/fleet?ssl_check_hostname=false&sentinel_username=u",
        "redis+cluster://a:7000,b:7001,[::1]",
        "rediss+cluster://:pw@a,b/0?ssl_ca_certs=/ca.pem",
        "redis://:pass,word@a",
        "",
    ],
)
def test_a_redis_url_is_kept_as_it_was_written(url: str) -> None:
    assert redis_urls.redis_url(f" {url} ") == url


PLAIN = (
    *("host:6379", "http://host", "redis://", "redis:///0", "redis://host:hunter2", "redis://host:99999"),
    *("redis://host:0", "redis://host/zero", "redis://host/0#hunter2", "redis://:hunter2#x@host"),
    *("redis://:hunter2/x@host", "redis://:hunter2?x@host", "redis://user:1/hunter2@host"),
    *("redis://:hunter2@[host", "redis://:hunter2@host\u2100", "redis+sentinel://:hunter2#x@a/m"),
    *("unix+cluster://:hunter2@a", "redis+guard://:hunter2@a", ",redis://:hunter2@a", "redis://user:1?password=x@host"),
)
"""What is no URL of Redis, or one that a library could read in another way."""
OF_SEVERAL = (
    *("redis://:hunter2@a,b", "redis://:hunter2@a,", "redis://a , REDISS://:hunter2@b", "redis://a,hunter2://b"),
    "unix:///run/a?db=0,unix://:hunter2@/run/a",
    "redis+sentinel://a,b/m,redis+sentinel://:hunter2@b,c/m",
    "redis+cluster://a,b,redis+cluster://:hunter2@b,a",
)
OF_A_SENTINEL = (
    *("@a,b", "@a/", "@a/m/zero", "@a/m/0/1", "@/m", "/x@a/m", "?x@a/m", "@a,,b/m", "@a:0,b/m", "@a:65536,b/m"),
    *("@[b]/m", "@[:::]:1,b/m"),
)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        *((url, "not a Redis URL") for url in PLAIN),
        *((url, SEVERAL) for url in OF_SEVERAL),
        *((f"redis+sentinel://:hunter2{rest}", "not the URL of a Sentinel") for rest in OF_A_SENTINEL),
        *((f"redis+cluster://:hunter2{rest}", "not the URL of a Cluster") for rest in ("@a/1", "@a,b:x")),
        ("redis+sentinel://:hunter2@a,a:26379/m", "a host twice"),
        ("redis+sentinel://a/m?timeout=hunter2", "takes only the options db, username, password, sentinel_"),
        ("redis+cluster://a?sentinel_password=hunter2", "takes only the options username, password and ssl_"),
        *((f"redis://:hunter2{blank}@host", "must not have blanks") for blank in (" x", "\n")),
        ("redis://host?socket_timeout=hunter2", "takes only the options"),
        ("redis://host?hunter2", "takes only the options"),
        ("unix://:hunter2@", "needs a path"),
        ("unix://run/redis.sock", "needs a path"),
    ],
)
def test_a_redis_url_that_redis_py_would_misread_is_refused_without_a_word_of_it(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        redis_urls.redis_url(url)
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
        ("redis+sentinel://u:hunter2@a:1,b/m", "redis+sentinel://u:***@a:1,b/m"),
        ("redis+sentinel://a/m?sentinel_password=hunter2&db=1", "redis+sentinel://a/m?sentinel_password=***&db=1"),
        ("rediss+cluster://hunter2@a,b", "rediss+cluster://***@a,b"),
    ],
)
def test_a_masked_url_shows_everything_but_the_password(url: str, shown: str) -> None:
    assert redis_urls.masked(redis_urls.redis_url(url)) == shown


@given(st.text())
def test_no_password_survives_the_mask(text: str) -> None:
    secret = quote("S3CRET" + text, safe="", errors="replace")
    places = (
        f"redis://:{secret}@host/0",
        f"redis://host?password={secret}",
        f"redis://{secret}@host",
        f"redis+sentinel://:{secret}@a,b/m?sentinel_password={secret}",
        f"redis+cluster://:{secret}@a,b",
    )
    for url in places:
        assert "S3CRET" not in redis_urls.masked(redis_urls.redis_url(url))


@given(st.text(), st.text())
def test_no_complaint_repeats_any_of_a_url(before: str, after: str) -> None:
    for scheme in ("", "redis://", "redis+sentinel://", "redis+cluster://"):
        complaint = ""
        try:
            redis_urls.redis_url(f"{scheme}{before}S3CRET{after}")
        except ValueError as error:
            complaint = str(error)
        assert "S3CRET" not in complaint


@pytest.mark.parametrize(
    ("url", "has_one"),
    [
        ("redis://h", False),
        ("redis://name@h", False),
        ("redis://:p@h", True),
        ("rediss://name:p@h:1/0", True),
        ("redis://h?password=p", True),
        ("redis+sentinel://h/main?sentinel_password=p", False),
        ("redis+cluster://name:p@h,g", True),
    ],
)
def test_password_of_the_data_node_is_found(url: str, *, has_one: bool) -> None:
    assert redis_urls.split(url).has_password is has_one


@pytest.mark.parametrize(
    ("url", "same", "other"),
    [
        ("redis://h", "rediss://:p@H:6379/0?ssl_cert_reqs=none", "redis://h/1"),
        ("redis://h/1", "redis://h?db=1", "redis://h:6380/1"),
        ("unix:///r.sock", "unix://:p@/r.sock?db=0", "unix:///r.sock?db=1"),
        ("redis+sentinel://a,b/m", "redis+sentinel://:p@b:26379,a/m/0", "redis+sentinel://a,b/n"),
        ("redis+cluster://a,b", "rediss+cluster://b,a:6379/0", "redis+cluster://a,c"),
    ],
)
def test_urls_of_one_server_are_known_for_that_whoever_logs_in(url: str, same: str, other: str) -> None:
    identities = [redis_urls.split(each).address for each in (url, same, other)]
    assert identities[0] == identities[1] != identities[2]
