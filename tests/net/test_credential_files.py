"""Only the token in the file is accepted; if anything is wrong with the file, nothing is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sidecar.net.credential_files import LONGEST, SHORTEST, Token, bearer_token, is_same

WORD = "sesame-0123456789"


def _token(directory: Path, content: bytes) -> Token:
    path = directory / "token"
    path.write_bytes(content)
    return Token(str(path))


def _lets_in(token: Token, header: str | None) -> bool:
    return is_same(bearer_token(header), token.read())


@pytest.mark.parametrize(
    ("header", "is_let_in"),
    [
        (f"Bearer {WORD}", True),
        (f"bearer {WORD}", True),
        (f"Bearer  {WORD} ", True),
        (f"Bearer {WORD}x", False),
        (f"Bearer {WORD[:-1]}", False),
        (f"Basic {WORD}", False),
        (WORD, False),
        ("Bearer", False),
        ("Bearer ", False),
        ("", False),
        (None, False),
        ("Bearer \udcff\u00e9\U0001f600", False),
    ],
)
def test_header_must_have_the_token(tmp_path: Path, header: str | None, is_let_in: bool) -> None:  # noqa: FBT001 - a row
    assert _lets_in(_token(tmp_path, f"\n {WORD}\n".encode()), header) is is_let_in


@pytest.mark.parametrize(
    "content",
    [b"", b" \n\t", b"x" * (SHORTEST - 1), b"x" * (LONGEST + 1)],
    ids=["empty", "blank", "too short", "too large"],
)
def test_file_without_a_token_allows_nothing(tmp_path: Path, content: bytes) -> None:
    token = _token(tmp_path, content)
    assert not token.is_there
    headers = ("Bearer", "Bearer ", "Bearer  ", None, f"Bearer {content.decode()}")
    assert not any(_lets_in(token, header) for header in headers)


@pytest.mark.parametrize(
    ("content", "headers"),
    [(f"{WORD}\n".encode(), {"Authorization": f"Bearer {WORD}"}), (b"", {})],
    ids=["token", "none"],
)
def test_request_brings_the_token_if_there_is_one(tmp_path: Path, content: bytes, headers: dict[str, str]) -> None:
    assert _token(tmp_path, content).headers == headers


@pytest.mark.parametrize(
    "path", ["", "/nowhere/token", "/etc", "nul\0"], ids=["none", "missing", "directory", "no path"]
)
def test_file_that_cannot_be_read_allows_nothing(path: str) -> None:
    token = Token(path)
    assert not token.is_there
    assert not _lets_in(token, "Bearer ")


def test_file_is_read_anew(tmp_path: Path) -> None:
    token = _token(tmp_path, f"first-{WORD}".encode())
    assert _lets_in(token, f"Bearer first-{WORD}")
    new = tmp_path / "new"
    new.write_bytes(f"other-{WORD}".encode())
    os.replace(new, tmp_path / "token")  # noqa: PTH105 - as mounted secrets are exchanged
    assert _lets_in(token, f"Bearer other-{WORD}")
    assert not _lets_in(token, f"Bearer first-{WORD}")
    (tmp_path / "token").unlink()
    assert not _lets_in(token, f"Bearer other-{WORD}")


def test_token_of_other_letters_is_compared_as_bytes(tmp_path: Path) -> None:
    word = "\u00e9" * SHORTEST
    assert _lets_in(_token(tmp_path, word.encode()), f"Bearer {word}")


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Opening a pipe without a writer would wait for ever."""
    os.mkfifo(tmp_path / "token")
    assert not Token(str(tmp_path / "token")).is_there
    assert not Token(str(tmp_path)).is_there
