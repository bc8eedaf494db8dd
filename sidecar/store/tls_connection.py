"""Certificates that lie in files: whom we trust, and who we are."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from redis.asyncio.connection import RedisSSLContext

from sidecar.net.threads import in_thread
from sidecar.store.access import Access, AccessError

_BESIDE_FILES: Final = frozenset(
    {"ssl_cert_reqs", "ssl_check_hostname", "ssl_ciphers", "ssl_min_version", "ssl_password"}
)


class Certificates(RedisSSLContext):
    """TLS by the files of ``access``; ``options`` are redis-py's, with the ``ssl_...`` of the URL.

    Raises AccessError for files that cannot be used and options that name files as well, RedisError for other options.
    """

    def __init__(self, options: Mapping[str, Any], access: Access) -> None:
        if any(name.startswith("ssl_") and name not in _BESIDE_FILES for name in options):
            raise AccessError("certificates stand both in the URL and in files of their own")
        super().__init__(
            certfile=access.cert or None,
            keyfile=access.key or None,
            ca_certs=access.ca or None,
            cert_reqs=options.get("ssl_cert_reqs", "required"),
            check_hostname=options.get("ssl_check_hostname") is not False,
            min_version=options.get("ssl_min_version"),
            ciphers=options.get("ssl_ciphers"),
            # Had it none, OpenSSL would ask at the terminal for the password of an encrypted key.
            password=options.get("ssl_password", ""),
        )
        self._files = [Path(path) for path in access.certificates]
        try:
            self._seen, self.context = self._stamps(), self._load()
        except (OSError, ValueError):
            raise AccessError("the certificates or their key cannot be used") from None

    async def renew(self) -> None:
        """Read files that have changed: short-lived certificates are replaced while we run.

        Files that cannot be used at the moment, half written perhaps, leave everything as it was.
        """
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
        """With a CA of our own nobody else is trusted; the many of the system would cost 2.5 MiB as well."""
        context = ssl.create_default_context(cafile=self.ca_certs)
        context.check_hostname = self.check_hostname
        context.verify_mode = self.cert_reqs
        if self.certfile:
            context.load_cert_chain(self.certfile, self.keyfile, self.password)
        if self.min_version is not None:
            context.minimum_version = self.min_version
        if self.ciphers is not None:
            context.set_ciphers(self.ciphers)
        return context
