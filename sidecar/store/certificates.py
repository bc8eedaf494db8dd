"""TLS to Redis: one context for all connections to a server, which loads replaced certificates."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from redis.asyncio.connection import SSLConnection

from sidecar.net.threads import in_thread
from sidecar.store.access import Access, AccessError

_BESIDE_FILES: Final = frozenset(
    {"ssl_cert_reqs", "ssl_check_hostname", "ssl_ciphers", "ssl_min_version", "ssl_password"}
)


class Certificates:
    """The context by the ``ssl_...`` options of a URL, and by the files of ``access``; read now, not while serving.

    Raises AccessError for files that cannot be used and for options that name files as well, OSError, ValueError or
    RedisError for options that cannot be used.
    """

    def __init__(self, options: Mapping[str, Any], access: Access) -> None:
        if access.key and not access.cert:
            raise AccessError("a key needs its certificate")
        if access.certificates and any(name.startswith("ssl_") and name not in _BESIDE_FILES for name in options):
            raise AccessError("certificates stand both in the URL and in files of their own")
        files = {"ssl_ca_certs": access.ca, "ssl_certfile": access.cert, "ssl_keyfile": access.key}
        # Without a password OpenSSL would ask for one at the terminal.
        named = {"ssl_password": "", **options, **{name: path for name, path in files.items() if path}}
        self._wanted = SSLConnection(**named).ssl_context
        self._files = [Path(path) for path in access.certificates]
        try:
            self._seen, self.context = self._stamps(), self._load()
        except (OSError, ValueError):
            if not self._files:
                raise
            raise AccessError("the certificates or their key cannot be used") from None

    async def renew(self) -> None:
        """Load changed files. Files that cannot be used, for example half written ones, change nothing."""
        if self._files:
            with contextlib.suppress(OSError, ValueError):
                await in_thread(self._renew)

    def _renew(self) -> None:
        stamps = self._stamps()
        if stamps != self._seen:
            self.context = self._load()
            self._seen = stamps

    def _stamps(self) -> list[tuple[int, int, int]]:
        stats = [path.stat() for path in self._files]
        return [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats]

    def _load(self) -> ssl.SSLContext:
        """A CA of the operator replaces those of the system: redis-py would trust both, at the cost of 2.5 MiB."""
        wanted = self._wanted
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


class TlsConnection(SSLConnection):
    """A connection with the context of ``certificates``, as it is at the time of the handshake."""

    def __init__(self, *, certificates: Certificates, **options: Any) -> None:
        super().__init__(**options)
        self._certificates = certificates

    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        """Load replaced certificates, and connect unless connected."""
        if not self.is_connected:
            await self._certificates.renew()
            self.ssl_context.context = self._certificates.context
        await super().connect_check_health(*args, **options)
