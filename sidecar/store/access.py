"""What it takes besides the URL to be let in: a password and certificates that lie in files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from sidecar.net.threads import in_thread

_LONGEST_PASSWORD: Final = 4096


@dataclass(frozen=True, slots=True)
class Access:
    """Paths of files, ``""`` for none. ``cert`` without ``key`` holds both, in PEM as all of them."""

    password_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def certificates(self) -> tuple[str, ...]:
        """The paths of what only TLS can use."""
        return tuple(filter(None, (self.ca, self.cert, self.key)))


class AccessError(ValueError):
    """The files cannot be used, or contradict the URL; the message repeats nothing of either."""


class SecretError(AuthenticationError):
    """The password file cannot be used."""


class PasswordFile(CredentialProvider):
    """The login with the password as the file has it now: read for each connection, so that a new one is taken up."""

    def __init__(self, username: str | None, path: str) -> None:
        self._username = username
        self._path = Path(path)

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """The login. Raises SecretError, which repeats nothing, for a file without a password."""
        try:
            with self._path.open("rb") as file:
                password = file.read(_LONGEST_PASSWORD + 1).decode()
        except (OSError, ValueError):
            raise SecretError("the password file cannot be read") from None
        password = password.removesuffix("\n").removesuffix("\r")
        if not 0 < len(password) <= _LONGEST_PASSWORD:
            raise SecretError("the password file has no password")
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same, in a thread: the file may lie on a disk that hangs."""
        return await in_thread(self.get_credentials)
