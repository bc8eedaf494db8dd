"""The certificate of the sidecar's listeners, and the authorities of their clients.

A TLS context holds both; it is replaced when their files change.
"""

from __future__ import annotations

import asyncio
import math
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sidecar.net.credential_files import KeyPair, first_pem, no_password
from sidecar.net.threads import in_thread

CHECK_S: Final = 3.0
_NO_CHECK_TIME: Final = 0x200000
"""``X509_V_FLAG_NO_CHECK_TIME`` of OpenSSL, which ``ssl`` does not name."""


class TlsFileError(Exception):
    """A file is not what it should be. The message repeats nothing of its content."""


class ServerTls:
    """``context`` has the last usable pair of files; a listener reads it for every connection.

    With ``client_ca``, a PEM file, a client must show a certificate that is signed by one of those in this file, or is
    one of them. All files are loaded together.

    ``on_loaded`` takes the end of the certificate's validity in Unix seconds, NaN if unknown. ``on_failure`` takes the
    error of files that cannot be used: the previous ones stay. Before the first usable files, no handshake succeeds.
    """

    def __init__(
        self,
        pair: KeyPair,
        client_ca: str = "",
        *,
        on_loaded: Callable[[float], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.context = _new_context()
        self._files = pair, client_ca
        self._on_loaded = on_loaded
        self._on_failure = on_failure
        self._loaded: list[object] = []
        version = _version(*self._files)
        try:
            self._use(_load(*self._files), version)
        except TlsFileError as error:
            on_failure(error)

    async def watch(self, every_s: float = CHECK_S) -> None:
        """Use all new files, until cancelled. Threads read the files, because the disk may hang."""
        while True:
            await asyncio.sleep(every_s)
            await self.reload()

    async def reload(self) -> None:
        """Use the files if one of them has changed, or if they could not be used the last time."""
        try:
            version = await in_thread(_version, *self._files)
            if version != self._loaded:
                self._use(await in_thread(_load, *self._files), version)
        except Exception as error:  # noqa: BLE001 - after any failure the previous files stay in use
            self._on_failure(error)

    def _use(self, loaded: tuple[ssl.SSLContext, float], version: list[object]) -> None:
        self.context, expires_at = loaded
        self._loaded = version
        self._on_loaded(expires_at)


def problem(pair: KeyPair) -> str | None:
    """Why these files cannot be used; None if they can."""
    try:
        _load(pair, "")
    except TlsFileError as error:
        return str(error)
    return None


def client_ca_problem(path: str) -> str | None:
    """Why this file cannot be used as ``client_ca``; None if it can."""
    try:
        _ask_clients(_new_context(), path)
    except TlsFileError as error:
        return str(error)
    return None


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # each renegotiation would cost the server a signature
    return context


def _version(pair: KeyPair, client_ca: str) -> list[object]:
    """A value that changes when a file changes, also behind symbolic links."""
    version: list[object] = []
    for path in filter(None, (*pair, client_ca)):
        try:
            status = Path(path).stat()
        except OSError as error:
            version.append(error.errno)
        else:
            version.append((status.st_mtime_ns, status.st_ino, status.st_dev, status.st_size))
    return version


def _load(pair: KeyPair, client_ca: str) -> tuple[ssl.SSLContext, float]:
    """A context with these files, and the end of the certificate's validity; ``TlsFileError`` if they are of no use."""
    for path in pair:
        _check_readable(path)
    context = _new_context()
    try:
        context.load_cert_chain(*pair, password=no_password)
        expires_at = _expiry(context, first_pem(pair.cert))
    except (OSError, ValueError) as error:
        raise TlsFileError(f"{pair.cert} and {pair.key} are no certificate and its key{_reason(error)}") from None
    if client_ca:
        _ask_clients(context, client_ca)
    return context, expires_at


def _ask_clients(context: ssl.SSLContext, client_ca: str) -> None:
    """Require a client's certificate. An intermediate authority in the file is as good as a root."""
    _check_readable(client_ca)
    try:
        context.load_verify_locations(cafile=client_ca)
    except OSError as error:
        raise TlsFileError(f"{client_ca} has no certificates in PEM{_reason(error)}") from None
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_REQUIRED


def _check_readable(path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise TlsFileError(f"{path} cannot be read: {os.strerror(error.errno or 0).lower()}") from None


def _reason(error: Exception) -> str:
    """What OpenSSL says, after a colon."""
    return f": {error.reason.lower().replace('_', ' ')}" if isinstance(error, ssl.SSLError) and error.reason else ""


def _expiry(server: ssl.SSLContext, pem: str) -> float:
    """The end of validity of the server's certificate in Unix seconds; NaN if no client would accept it.

    ``ssl`` gives it only for a certificate that a client has verified, so this is a handshake in memory with a client
    that trusts only this certificate.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    client.load_verify_locations(cadata=pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for end in (*ends, *ends):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        certificate = ends[0].getpeercert()
    except (ssl.SSLError, ValueError):
        return math.nan
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"]))) if certificate else math.nan
