"""Files besides the URL: the current password, and contradictions to the URL."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.waiting import eventually
from sidecar.store.redis_client import RedisClient

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.token_client import TokenClient
    from store.conftest import OpenClient


# -- a password in a file -----------------------------------------------------------------------------------


async def test_rotated_password_is_used(
    redis_server: RedisServer, tmp_path: Path, open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "password"
    redis_server.set_password("s3cret/old")
    file.write_text("s3cret/old\n")
    client = open_client(f"redis://127.0.0.1:{redis_server.port}", str(file))
    assert await client.ping() == "PONG"
    redis_server.set_password("s3cret/new")
    redis_server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await eventually(lambda: _is("auth", client), timeout_s=60, what="the old password is refused")
    file.write_text("s3cret/new\n")
    assert await client.ping() == "PONG"
    assert "s3cret" not in caplog.text + repr(client) + repr(vars(client))


async def _is(word: str, client: TokenClient) -> bool:
    return await client.ping() == word


@pytest.mark.parametrize("url", ["redis://{user}@127.0.0.1:{port}", "unix://{user}@{path}"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"], ids=["no end", "newline", "both"])
async def test_final_newline_is_no_part_of_the_password(
    url: str, end: str, redis_server: RedisServer, tmp_path: Path, open_client: OpenClient
) -> None:
    redis_server.cli("ACL", "SETUSER", "app", "on", "> s3crét ", "+ping")
    file = tmp_path / "password"
    file.write_bytes(f" s3crét {end}".encode())
    place = url.format(user="app", port=redis_server.port, path=redis_server.unix_socket)
    assert await open_client(place, str(file)).ping() == "PONG"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe", b"x" * 5000], ids=repr)
async def test_file_without_a_password_is_a_word_of_its_own(
    content: bytes | None, redis_server: RedisServer, tmp_path: Path, open_client: OpenClient
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    client = open_client(f"redis://127.0.0.1:{redis_server.port}", str(file))
    assert [await client.ping(), await client.ping()] == ["secret", "secret"]


# -- contradictions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "password_file", "complaint"),
    [
        ("redis://:hunter2@host", "/hunter2", "the password stands both"),
        ("redis://host?password=hunter2", "/hunter2", "the password stands both"),
        ("redis+sentinel://:hunter2@host/m", "/hunter2", "the password stands both"),
        ("redis+cluster://:hunter2@a,b", "/hunter2", "the password stands both"),
        ("rediss://host?ssl_ca_certs=/hunter2", "", "certificates or their key cannot be used"),
        (f"rediss://host?ssl_certfile={__file__}", "", "certificates or their key cannot be used"),
        ("rediss://host?ssl_cert_reqs=hunter2", "", "cannot be used as a Redis URL"),
        ("rediss://host?ssl_hunter=2", "", "cannot be used as a Redis URL"),
    ],
)
def test_files_that_cannot_be_used_are_refused_without_repeating_anything(
    url: str, password_file: str, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        RedisClient(url, 1, password_file)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None
