"""The addresses that a listener is limited to: how they are written, and which they list."""

from __future__ import annotations

import pytest

from sidecar.net.address_gate import AddressGate, parse_networks, written

ELSEWHERE = "198.51.100.0/24"
"""A network for documentation (RFC 5737), which no machine is in."""


# -- how they are written -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (" , ", ""),
        ("10.0.0.5", "10.0.0.5"),
        (" 10.0.0.5 ,10.1.0.0/16,", "10.0.0.5,10.1.0.0/16"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("FD00:0::/8,::1", "fd00::/8,::1"),
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
    ],
)
def test_list_has_one_normal_form(text: str, normal: str) -> None:
    assert written(parse_networks(text)) == normal
    assert parse_networks(normal) == parse_networks(text)


@pytest.mark.parametrize(
    ("text", "item", "sentence"),
    [
        ("10.0.0.5;10.0.0.6", "10.0.0.5;10.0.0.6", "no IP address and no network"),
        ("10.0.0.5,10.0.0.256", "10.0.0.256", "no IP address and no network"),
        ("010.0.0.1", "010.0.0.1", "no IP address and no network"),
        ("fe80::1%eth0", "fe80::1%eth0", "no IP address and no network"),
        ("proxy.internal", "proxy.internal", "no IP address and no network"),
        ("10.0.0.5/8", "10.0.0.5/8", "whose address is not the first of its network: write 10.0.0.0/8"),
        ("fd00::1/8", "fd00::1/8", "whose address is not the first of its network: write fd00::/8"),
        ("x" * 200, "x" * 64, "no IP address and no network"),
    ],
)
def test_bad_item_is_named(text: str, item: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="has ") as raised:
        parse_networks(text)
    assert str(raised.value).startswith(f"has {item!r}, ")
    assert sentence in str(raised.value)


# -- whom they admit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("networks", "host", "is_listed"),
    [
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("10.1.0.0/16,10.0.0.5", "10.1.255.255", True),
        ("10.1.0.0/16,10.0.0.5", "10.2.0.0", False),
        ("0.0.0.0/0", "fd00::1", False),
        ("fd00::/8", "fdff::1", True),
        ("::/0", "::ffff:10.0.0.5", False),
        ("10.0.0.0/8", "::ffff:10.9.9.9", True),
        ("::ffff:10.0.0.0/104", "10.9.9.9", True),
        (ELSEWHERE, "127.0.0.1", True),
        (ELSEWHERE, "::1", True),
        (ELSEWHERE, "::ffff:127.0.0.1", True),
        (ELSEWHERE, "128.0.0.1", False),
    ],
)
def test_address_is_listed_by_its_networks_and_loopback_always(networks: str, host: str, *, is_listed: bool) -> None:
    assert AddressGate(parse_networks(networks), pytest.fail).lists(host) is is_listed


def test_a_gate_remembers_a_bounded_number_of_addresses() -> None:
    gate = AddressGate(parse_networks("10.0.0.0/8"), pytest.fail)
    for number in range(5_000):
        assert gate.lists(f"10.0.{number // 256}.{number % 256}")
    assert gate.lists.cache_info().currsize <= 1024
