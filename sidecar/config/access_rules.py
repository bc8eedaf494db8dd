"""Settings of who may do what, and where on the way from shadow to enforce, that make no sense together.

As in ``contradictions``, a line for each begins with the variable's name, and nothing is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.config import addresses
from sidecar.config.rollout import ALL, ENFORCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.settings import Settings

_DOORS = ("page", "public", "local", "agent")


def problems(s: Settings) -> Iterator[str]:
    """Everything that is wrong with token, certificate and percentage."""
    yield from _token(s)
    yield from _certificate(s)
    if s.enforce_percent < ALL and s.mode != ENFORCE:
        yield f"ARBITER_ENFORCE_PERCENT: {s.enforce_percent} needs ARBITER_MODE=enforce: in shadow mode none is culled"


def _token(s: Settings) -> Iterator[str]:
    if not s.token_file:
        if s.page_listen != addresses.OFF:
            yield (
                f"ARBITER_PAGE_LISTEN: {s.page_listen} needs an ARBITER_TOKEN_FILE: "
                "everybody could see the page, and hold the service"
            )
        return
    from sidecar.net.token_file import SHORTEST, Token  # noqa: PLC0415 - most have none

    if not (Path(s.token_file).is_file() and Token(s.token_file).is_there):
        yield f"ARBITER_TOKEN_FILE: {s.token_file} cannot be read, or holds no token of {SHORTEST} bytes or more"


def _certificate(s: Settings) -> Iterator[str]:
    if s.tls_cert and s.tls_key:
        from sidecar.net.tls import Pair, problem  # noqa: PLC0415 - as above

        if wrong := problem(Pair(s.tls_cert, s.tls_key)):
            yield f"ARBITER_TLS_CERT: {wrong}"
        yield from _doors(s)
    elif s.tls_cert or s.tls_key:
        given, missing = ("CERT", "KEY") if s.tls_cert else ("KEY", "CERT")
        yield f"ARBITER_TLS_{given}: needs ARBITER_TLS_{missing}, the other half of the pair"


def _doors(s: Settings) -> Iterator[str]:
    from sidecar.net.tls import listed  # noqa: PLC0415 - as above

    names = listed(s.tls_doors)
    for name in names:
        if name not in _DOORS:
            yield f"ARBITER_TLS_DOORS: {name[:32]!r} is no door, those are {', '.join(_DOORS)}"
        elif getattr(s, f"{name}_listen") == addresses.OFF:
            yield f"ARBITER_TLS_DOORS: {name} needs ARBITER_{name.upper()}_LISTEN, which is off"
    if not names:
        yield "ARBITER_TLS_DOORS: names no door: ARBITER_TLS_CERT would be of no use"
