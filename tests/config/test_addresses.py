from __future__ import annotations

import pytest

from sidecar.config import addresses


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
