from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.certificates import Authority
from sidecar.config.load import SettingsError, load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cert, key = Authority(tmp_path_factory.mktemp("authority"), "ours").sign("listener")
    return {"tls_cert": str(cert), "tls_key": str(key)}


def _problems(**flags: str) -> list[str]:
    try:
        load(flags, {})
    except SettingsError as error:
        return error.problems
    return []


@pytest.mark.parametrize(
    ("listeners", "flags", "problems"),
    [
        ("public", {}, []),
        (" public , local", {}, []),
        ("page", {}, ["ARBITER_TLS_LISTENERS: page needs ARBITER_PAGE_LISTEN, which is off"]),
        ("agent", {}, ["ARBITER_TLS_LISTENERS: 'agent' is none of page, public, local"]),
        (
            "local",
            {"local_listen": "off", "socket": "/run/a.sock"},
            ["ARBITER_TLS_LISTENERS: local needs ARBITER_LOCAL_LISTEN, which is off"],
        ),
        ("other", {}, ["ARBITER_TLS_LISTENERS: 'other' is none of page, public, local"]),
        (",", {}, ["ARBITER_TLS_LISTENERS: names no listener: ARBITER_TLS_CERT would be of no use"]),
    ],
)
def test_listeners_with_tls_are_known_and_open(
    pair: dict[str, str], listeners: str, flags: dict[str, str], problems: list[str]
) -> None:
    assert _problems(**pair, tls_listeners=listeners, **flags) == problems


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", None),
        ("the certificate", None),
        ("/nowhere/ca.pem", "/nowhere/ca.pem cannot be read: no such file or directory"),
        (__file__, "has no certificates in PEM"),
    ],
)
def test_authorities_of_clients_are_certificates(pair: dict[str, str], path: str, problem: str | None) -> None:
    path = pair["tls_cert"] if path == "the certificate" else path
    found = _problems(**pair, tls_listeners="public", tls_client_ca=path)
    assert len(found) == (problem is not None)
    assert all(each.startswith("ARBITER_TLS_CLIENT_CA: ") and str(problem) in each for each in found)


def test_listeners_are_ignored_without_a_certificate() -> None:
    assert _problems() == []


@pytest.mark.parametrize(
    ("content", "is_taken"), [("x" * 16, True), ("x" * 15, False), ("x" * 15 + "\n", False), ("", False)]
)
def test_token_has_its_length(tmp_path: Path, content: str, *, is_taken: bool) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    problems = _problems(token_file=str(path))
    assert (problems == []) is is_taken
    assert all(problem.startswith("ARBITER_TOKEN_FILE: ") for problem in problems)
    assert len(_problems(token_file=str(path), page_listen="127.0.0.1:9183")) == (0 if is_taken else 1)
