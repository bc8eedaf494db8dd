"""The way into Redis: the login from a file, and the certificates of the operator, read anew for each connection."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

from redis import exceptions as theirs
from redis.asyncio.connection import RedisSSLContext, SSLConnection
from redis.credentials import CredentialProvider

from sidecar.net.threads import in_thread

UNUSABLE: Final = "the certificates or their key cannot be used"
_MAX_PASSWORD_LENGTH: Final = 4096


class AccessError(ValueError):
    """The files cannot be used, or contradict the URL. The message repeats neither files nor URL."""


class SecretError(theirs.AuthenticationError):
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
                password = file.read(_MAX_PASSWORD_LENGTH + 1).decode()
        except (OSError, ValueError):
            raise SecretError("the password file cannot be read") from None
        password = password.removesuffix("\n").removesuffix("\r")
        if not 0 < len(password) <= _MAX_PASSWORD_LENGTH:
            raise SecretError("the password file has no password")
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same, read in a thread, because the disk may hang."""
        return await in_thread(self.get_credentials)


class TlsConnection(SSLConnection):
    """Reads the certificates anew for each connection, so that replaced files take effect.

    It does so in a thread: the authorities of the system take 0.05 s, and health answers do not wait.
    """

    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        """Connect unless connected. Raises SSLError for files that cannot be used, for example half written ones."""
        if not self.is_connected:
            try:
                self.ssl_context.context = await in_thread(load_certificates, self.ssl_context)
            except (OSError, ValueError) as error:
                raise ssl.SSLError(UNUSABLE) from error
        await super().connect_check_health(*args, **options)


def load_certificates(wanted: RedisSSLContext) -> ssl.SSLContext:
    """A CA of the operator replaces those of the system: redis-py would trust both, at the cost of 2.5 MiB."""
    context = ssl.create_default_context(cafile=wanted.ca_certs, capath=wanted.ca_path, cadata=wanted.ca_data)
    context.check_hostname = wanted.check_hostname
    context.verify_mode = wanted.cert_reqs
    for flag in wanted.include_verify_flags or ():
        context.verify_flags |= flag
    for flag in wanted.exclude_verify_flags or ():
        context.verify_flags &= ~flag
    if wanted.certfile:
        context.load_cert_chain(wanted.certfile, wanted.keyfile, wanted.password)
    if wanted.min_version is not None:
        context.minimum_version = wanted.min_version
    if wanted.ciphers is not None:
        context.set_ciphers(wanted.ciphers)
    return context
