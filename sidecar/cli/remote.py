"""The sidecar that ``--url`` or ``ARBITER_URL`` names: its address, how it is reached, and the token for it.

The token comes from ``ARBITER_TOKEN_FILE`` or ``ARBITER_TOKEN``, never from an argument: other users can read those.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click

from sidecar.cli.terminal import cause
from sidecar.net.client_tls import KeyPair
from sidecar.net.token_file import LONGEST, SHORTEST, Token

URL: Final = "ARBITER_URL"
TOKEN: Final = "ARBITER_TOKEN"  # noqa: S105 - the name of a variable
VARIABLES: Final = frozenset({URL, TOKEN})
"""Environment variables that only commands read; to the daemon they are unknown settings."""

HINT: Final = "name its file in ARBITER_TOKEN_FILE (or --token-file), or put it into ARBITER_TOKEN"
_META: Final = "sidecar.cli.remote"
_VISIBLE: Final = re.compile(rf"[\x21-\x7e]{{{SHORTEST},{LONGEST}}}")


class RemoteSidecar(NamedTuple):
    """The page listener of a sidecar. ``prefix``: the path that a proxy in front of it has taken away."""

    url: str
    host: str
    port: int
    is_tls: bool
    prefix: str

    def connection(self, timeout_s: float, own: KeyPair | None) -> http.client.HTTPConnection:
        """A connection that is not open yet. ``own``: the certificate that it shows if the server asks for one.

        Raises UsageError if that cannot be used.
        """
        if not self.is_tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        context = ssl.create_default_context()  # the system's authorities, or those of SSL_CERT_FILE
        try:
            if own is not None:
                context.load_cert_chain(*own)
        except OSError as error:
            raise click.UsageError(f"ARBITER_TLS_CERT: cannot be shown to {self.url}: {cause(error)}") from None
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)


def use(ctx: click.Context, url: str | None, environ: Mapping[str, str]) -> None:
    """Keep the address and the token for the command of this context. Raises UsageError."""
    name, text = ("--url", url) if url is not None else (URL, environ.get(URL, ""))
    if text:
        ctx.meta[_META] = (_parsed(name, text), environ.get(TOKEN, ""))


def target() -> RemoteSidecar | None:
    """The sidecar that the running command was told to ask, None for that of this machine."""
    kept: tuple[RemoteSidecar, str] | None = _kept()
    return kept[0] if kept else None


def token_headers(token_file: str, *, is_local: bool = False) -> dict[str, str]:
    """The header with the token, empty without one. Raises UsageError if what was given cannot be a token."""
    kept = _kept()
    if not token_file and not is_local and kept and kept[1]:
        return _bearer(kept[1].strip(), TOKEN)
    token = Token(token_file).read().decode("latin-1") if token_file else ""
    if token_file and not token and not is_local:
        raise click.UsageError(f"ARBITER_TOKEN_FILE: {token_file} cannot be read, or holds no token")
    return _bearer(token, "ARBITER_TOKEN_FILE") if token else {}


def _kept() -> tuple[RemoteSidecar, str] | None:
    ctx = click.get_current_context(silent=True)
    return ctx.meta.get(_META) if ctx else None


def _bearer(token: str, name: str) -> dict[str, str]:
    if not _VISIBLE.fullmatch(token):
        raise click.UsageError(f"{name}: a token has {SHORTEST} to {LONGEST} printable characters without blanks")
    return {"Authorization": f"Bearer {token}"}


def _parsed(name: str, url: str) -> RemoteSidecar:
    """Read the address. The error does not repeat it, because it may hold a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = parts = None
    if parts is None or parts.scheme not in ("http", "https") or not host:
        raise click.UsageError(f"{name}: takes an address such as https://web-1.example.com:9183")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise click.UsageError(f"{name}: takes no user, password, query or fragment; {HINT}")
    is_tls = parts.scheme == "https"
    prefix = parts.path.rstrip("/").removesuffix("/page")
    return RemoteSidecar(url, host, port or (443 if is_tls else 80), is_tls, prefix)
