"""The login with a password from a file, read for each connection, so that a new password takes effect."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from sidecar.net.threads import in_thread

_MAX_LENGTH: Final = 4096


class SecretError(AuthenticationError):
    """The password file cannot be used. The message repeats nothing of its content."""


class PasswordFile(CredentialProvider):
    """Gives redis-py the login. A newline at the end of the file is not part of the password."""

    def __init__(self, username: str | None, path: str) -> None:
        self._username = username
        self._path = Path(path)

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """The login. Raises SecretError."""
        try:
            with self._path.open("rb") as file:
                password = file.read(_MAX_LENGTH + 1).decode()
        except (OSError, ValueError):
            raise SecretError("the password file cannot be read") from None
        password = password.removesuffix("\n").removesuffix("\r")
        if not 0 < len(password) <= _MAX_LENGTH:
            raise SecretError("the password file has no password")
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same, read in a thread, because the disk may hang."""
        return await in_thread(self.get_credentials)
