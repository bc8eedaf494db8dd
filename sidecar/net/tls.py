"""The certificate of our doors: one context for all of them, which has the new pair as soon as there is one.

Nothing here is imported unless a certificate is set.
"""

from __future__ import annotations

import asyncio
import calendar
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.net.handshakes import Handshakes, Protocols
from sidecar.net.threads import in_thread

CHECK_S: Final = 3.0
MOST_BYTES: Final = 1 << 20
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG: Final = 0x80
_TIME_FORMATS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


class PairError(Exception):
    """The files are no certificate and its key; the text names none of what stands in them."""


def listed(doors: str) -> tuple[str, ...]:
    """The names in ``page,public``."""
    return tuple(name for raw in doors.split(",") if (name := raw.strip()))


class Pair(NamedTuple):
    """The paths of a certificate and of its key."""

    cert: str
    key: str


class TlsDoors:
    """The context of every door that speaks TLS, with the pair of files that are there now.

    ``doors``: which do, as the setting has it. ``on_loaded`` is told when the certificate expires, in Unix seconds;
    ``on_failure`` of a pair that cannot be used: the one before stays. If there is none to begin with, which settings
    that were checked a moment ago leave to chance, no handshake comes to anything until there is.
    """

    def __init__(
        self,
        pair: Pair,
        doors: str,
        *,
        on_loaded: Callable[[float], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._paths = pair
        self._doors = listed(doors)
        self._on_loaded = on_loaded
        self._on_failure = on_failure
        self.context = _context()
        self._seen: list[object] = []
        signs = _signs(self._paths)
        try:
            self._take(_checked(self._paths))
        except PairError as error:
            on_failure(error)
        else:
            self._seen = signs

    def over(
        self, make: Protocols, refused: Callable[[str], None], on_failure: Callable[[Exception], None]
    ) -> Handshakes:
        """What makes the connections of a door that speaks TLS, of those it would make without."""
        return Handshakes(self.context, make, refused, on_failure)

    def at(self, door: str) -> TlsDoors | None:
        """Ourselves if that door speaks TLS."""
        return self if door in self._doors else None

    async def watch(self, every_s: float = CHECK_S) -> None:
        """Take every new pair, until cancelled. Files are read in a thread: their disk may hang."""
        while True:
            await asyncio.sleep(every_s)
            await self.look()

    async def look(self) -> None:
        """Take the pair if it is another one, or was none when last seen."""
        try:
            signs = await in_thread(_signs, self._paths)
            if signs == self._seen:
                return
            self._take(await in_thread(_checked, self._paths))
        except Exception as error:  # noqa: BLE001 - whatever it is, the pair before is as good as it was
            self._on_failure(error)
        else:
            self._seen = signs

    def _take(self, pair: bytes) -> None:
        """In the loop: a context may not change while somebody shakes hands by it."""
        _load(self.context, pair)
        self._on_loaded(expiry(pair))


def expiry(pem: bytes) -> float:
    """When the first certificate in ``pem`` is no longer valid, in Unix seconds (RFC 5280, section 4.1.2.5)."""
    outer = _inside(_first(pem), _SEQUENCE)
    body = _inside(outer, _SEQUENCE)
    if body[0] == _VERSION:
        body = _behind(body)
    for _ in ("serial number", "signature", "issuer"):
        body = _behind(body)
    not_after = _behind(_inside(body, _SEQUENCE))
    tag = not_after[0]
    return _unix_s(_inside(not_after, tag).decode("ascii"), _TIME_FORMATS[tag])


def certificate(path: str) -> bytes | None:
    """The first certificate of this file in DER, which is that of its key; None if there is none."""
    try:
        return _first(Path(path).read_bytes())
    except (OSError, ValueError):
        return None


def client_context() -> ssl.SSLContext:
    """For who compares certificates: it takes any, but only from who has the key of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def problem(pair: Pair) -> str | None:
    """What is wrong with these files; None if they are a pair."""
    try:
        _checked(pair)
    except PairError as error:
        return str(error)
    return None


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # else a client could have us sign again and again
    return context


def _signs(paths: Pair) -> list[object]:
    """What differs when a file has changed, through whatever links it is reached."""
    return [_sign(path) for path in paths]


def _sign(path: str) -> object:
    try:
        found = Path(path).stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_ino, found.st_dev, found.st_size


def _checked(paths: Pair) -> bytes:
    """Certificate and key, read once and found to fit: a context that is in use would lose its own by trying."""
    pair = b"\n".join(map(_read, paths))
    try:
        _load(_context(), pair)
        expiry(pair)
    except ssl.SSLError as error:
        raise PairError(f"{paths[0]} and {paths[1]} are no certificate and its key: {_said(error)}") from None
    except (ValueError, LookupError, OSError):
        raise PairError(f"{paths[0]} and {paths[1]} are no certificate and its key") from None
    return pair


def _said(error: ssl.SSLError) -> str:
    return (error.reason or "cannot be read").lower().replace("_", " ")


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES)
    except OSError as error:
        raise PairError(f"{path} cannot be read: {os.strerror(error.errno or 0).lower()}") from None
    return content


def _load(context: ssl.SSLContext, pair: bytes) -> None:
    """Load both from memory: OpenSSL takes a path, and of two files each could have changed since it was checked."""
    with open(os.memfd_create("tls", os.MFD_CLOEXEC), "wb") as file:  # noqa: PTH123 - a descriptor, not a path
        file.write(pair)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=lambda: b"")  # else it asks the terminal


def _first(pem: bytes) -> bytes:
    text = pem.decode("latin-1")
    begin, end = text.index(ssl.PEM_HEADER), text.index(ssl.PEM_FOOTER)
    return ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])


def _element(der: bytes) -> tuple[int, int]:
    """Where the content of the first element begins and ends (X.690, section 8.1)."""
    length, begin = der[1], 2
    if length & _LONG:
        begin += length & ~_LONG
        length = int.from_bytes(der[2:begin], "big")
    return begin, begin + length


def _inside(der: bytes, tag: int) -> bytes:
    if der[0] != tag:
        raise ValueError("not a certificate")
    begin, end = _element(der)
    return der[begin:end]


def _behind(der: bytes) -> bytes:
    _, end = _element(der)
    return der[end:]


def _unix_s(text: str, form: str) -> float:
    return float(calendar.timegm(time.strptime(text, form)))
