"""The files that settings name: what is said of those that are missing or open to others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sidecar.config import file_warnings
from sidecar.config.settings import Config, setting_names

if TYPE_CHECKING:
    from pathlib import Path

OTHER = 65_534
NOBODYS: set[str] = {"tls_cert", "tls_client_ca"}
"""Files that anybody may read."""


def _config(**paths: str) -> Config:
    slices = {
        name: values._replace(**{key: path for key, path in paths.items() if key in values._fields})
        for name, values in Config()._asdict().items()
    }
    return Config(**slices)


def test_every_file_with_a_secret_is_looked_at() -> None:
    names = {name for name in setting_names() if name.endswith(("_file", "_key", "_cert", "_ca"))}
    named = {*file_warnings.secrets(_config(**dict.fromkeys(names, "/f")))}
    assert named == names - NOBODYS
    assert file_warnings.secrets(_config(redis_url="rediss://a?ssl_certfile=/c")) == {"redis_url": "/c"}, (
        "it holds both"
    )
    assert file_warnings.secrets(_config(redis_url="rediss://a?ssl_certfile=/c&ssl_keyfile=/k")) == {"redis_url": "/k"}
    assert file_warnings.secrets(Config()) == {}


@pytest.mark.parametrize(
    ("mode", "owner", "said"),
    [
        (0o600, OTHER, None),
        (0o400, OTHER, None),
        (0o700, OTHER, None),
        (0o644, OTHER, "all users can read"),
        (0o604, OTHER, "all users can read"),
        (0o602, OTHER, "all users can change"),
        (0o640, OTHER, "the users of group 0 can read"),
        (0o620, OTHER, "the users of group 0 can change"),
        (0o640, 0, None),
        (0o440, 0, None),
        (0o644, 0, "all users can read"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_file_that_others_can_read_or_change_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, said: str | None
) -> None:
    """``owner`` 0: root, who gives the file to the group of the sidecar."""
    path = tmp_path / "a token"
    path.write_text("x")
    path.chmod(mode)
    os.chown(path, owner, 0)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    sentences = [*file_warnings.warnings(_config(token_file=str(path)))]
    if said is None:
        assert sentences == []
    else:
        (sentence,) = sentences
        assert sentence.startswith(f"ARBITER_TOKEN_FILE: {said} {path} (mode {mode:04o}): ")
        assert sentence.endswith(f"type chmod 600 '{path}'")


def test_missing_file_and_missing_directory_of_the_state_are_named(tmp_path: Path) -> None:
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.mkdir()
    assert [*file_warnings.warnings(_config(token_file=str(there), state_dir=str(there)))] == []
    assert [*file_warnings.warnings(_config(token_file=str(missing), state_dir=str(missing)))] == [
        f"ARBITER_STATE_DIR: {missing} is no directory: a cull would not survive the sidecar",
        f"ARBITER_TOKEN_FILE: {missing} cannot be read: No such file or directory",
    ]


def test_directory_of_the_state_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)  # root may write everywhere
    assert [*file_warnings.warnings(_config(state_dir=str(tmp_path)))] == [
        f"ARBITER_STATE_DIR: {tmp_path} cannot be written to by this user: a cull would not survive the sidecar"
    ]
