from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.certificates import Authority
from sidecar.config.settings import SettingsError, load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cert, key = Authority(tmp_path_factory.mktemp("authority"), "ours").sign("door")
    return {"tls_cert": str(cert), "tls_key": str(key)}


def _problems(**flags: str) -> list[str]:
    try:
        load(flags, {})
    except SettingsError as error:
        return error.problems
    return []


@pytest.mark.parametrize(
    ("doors", "flags", "problems"),
    [
        ("public", {}, []),
        (" public , local,agent", {}, []),
        ("page", {}, ["ARBITER_TLS_DOORS: page needs ARBITER_PAGE_LISTEN, which is off"]),
        ("agent", {"agent_listen": "off"}, ["ARBITER_TLS_DOORS: agent needs ARBITER_AGENT_LISTEN, which is off"]),
        (
            "local",
            {"local_listen": "off", "socket": "/run/a.sock"},
            ["ARBITER_TLS_DOORS: local needs ARBITER_LOCAL_LISTEN, which is off"],
        ),
        ("door", {}, ["ARBITER_TLS_DOORS: 'door' is no door, those are page, public, local, agent"]),
        (",", {}, ["ARBITER_TLS_DOORS: names no door: ARBITER_TLS_CERT would be of no use"]),
    ],
)
def test_doors_with_tls_are_known_and_open(
    pair: dict[str, str], doors: str, flags: dict[str, str], problems: list[str]
) -> None:
    assert _problems(**pair, tls_doors=doors, **flags) == problems


def test_doors_without_a_certificate_are_nobody_s_affair() -> None:
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
