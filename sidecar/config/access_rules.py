"""Contradictions between the settings for token, certificate and rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.config import addresses
from sidecar.config.rollout import ALL, ENFORCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.settings import Config

WITH_TLS: Final = ("page", "public")
"""The listeners that can speak TLS. HAProxy's agent-check cannot, and the local one is on loopback."""


def problems(c: Config) -> Iterator[str]:
    """Yield a line for each contradiction of token, certificate and percentage."""
    yield from _token(c)
    yield from _certificate(c)
    if c.identity.enforce_percent < ALL and c.identity.mode != ENFORCE:
        percent = c.identity.enforce_percent
        yield f"ARBITER_ENFORCE_PERCENT: {percent} needs ARBITER_MODE=enforce: in shadow mode none is culled"


def _token(c: Config) -> Iterator[str]:
    if not c.server.token_file:
        if c.server.page_listen != addresses.OFF:
            yield (
                f"ARBITER_PAGE_LISTEN: {c.server.page_listen} needs an ARBITER_TOKEN_FILE: "
                "everyone could see the page, and hold the service"
            )
        return
    from sidecar.net.token_file import SHORTEST, Token  # noqa: PLC0415 - most have none

    if not Token(c.server.token_file).is_there:
        yield f"ARBITER_TOKEN_FILE: {c.server.token_file} cannot be read, or holds no token of {SHORTEST} bytes or more"


def _certificate(c: Config) -> Iterator[str]:
    if c.tls.tls_cert and c.tls.tls_key:
        from sidecar.net.client_tls import KeyPair  # noqa: PLC0415 - as above
        from sidecar.net.tls import problem  # noqa: PLC0415 - as above

        if wrong := problem(KeyPair(c.tls.tls_cert, c.tls.tls_key)):
            yield f"ARBITER_TLS_CERT: {wrong}"
        yield from _listeners(c)
    elif c.tls.tls_cert or c.tls.tls_key:
        given, missing = ("CERT", "KEY") if c.tls.tls_cert else ("KEY", "CERT")
        yield f"ARBITER_TLS_{given}: needs ARBITER_TLS_{missing}, the other half of the pair"
    if c.tls.tls_client_ca:
        yield from _client_ca(c)


def _client_ca(c: Config) -> Iterator[str]:
    if not (c.tls.tls_cert or c.tls.tls_key):
        yield "ARBITER_TLS_CLIENT_CA: needs ARBITER_TLS_CERT: without TLS no client can show a certificate"
        return
    from sidecar.net.tls import client_ca_problem  # noqa: PLC0415 - as above

    if wrong := client_ca_problem(c.tls.tls_client_ca):
        yield f"ARBITER_TLS_CLIENT_CA: {wrong}"


def _listeners(c: Config) -> Iterator[str]:
    names = addresses.listed(c.tls.tls_listeners)
    for name in names:
        if name not in WITH_TLS:
            yield f"ARBITER_TLS_LISTENERS: {name[:32]!r} is none of {', '.join(WITH_TLS)}"
        elif getattr(c.server, f"{name}_listen") == addresses.OFF:
            yield f"ARBITER_TLS_LISTENERS: {name} needs ARBITER_{name.upper()}_LISTEN, which is off"
    if not names:
        yield "ARBITER_TLS_LISTENERS: names no listener: ARBITER_TLS_CERT would be of no use"
