"""What ``doctor`` looks at beside Redis: the doors of the sidecar here, its directory, and what Nomad has set up."""

from __future__ import annotations

import http.client
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.cli.doctor.findings import Finding, Level
from sidecar.cli.terminal import cause
from sidecar.config import addresses

if TYPE_CHECKING:
    from sidecar.config.settings import Settings

TIMEOUT_S: Final = 2.0
_LONGEST_LINE: Final = 256
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, and where to ask instead
_SURVIVES: Final = "a cull does not survive the sidecar"


def of_doors(settings: Settings) -> Iterator[Finding]:
    """Whether every door that the settings name is answered at; the local one is asked by others."""
    tls = _with_tls(settings)
    yield _looked("public", settings.public_listen, _connects if "public" in tls else _is_live)
    yield from _if_on("agent", settings.agent_listen, _connects if "agent" in tls else _says_a_line)
    yield from _if_on("page", settings.page_listen, _connects)
    if settings.socket:
        yield _looked("socket", settings.socket, _accepts(socket.SOCK_STREAM))
    if settings.statsd_socket:
        yield _looked("statsd", settings.statsd_socket, _accepts(socket.SOCK_DGRAM))


def of_state(settings: Settings) -> Finding:
    """Whether what has to survive the sidecar can be written down."""
    place = settings.state_dir or settings.run_lock
    if not place:
        return Finding(Level.WARN, "state", f"no directory: {_SURVIVES}; ARBITER_STATE_DIR names one")
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        who = f"user {os.getuid()} cannot write to {place}"
        return Finding(Level.WARN, "state", f"{who}: {cause(error)}; if the sidecar cannot either, {_SURVIVES}")
    return Finding(Level.OK, "state", f"{place} can be written to")


def of_nomad(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What Nomad has told this task, against the settings; nothing elsewhere."""
    allocation = environ.get("NOMAD_ALLOC_ID")
    if not allocation:
        return
    problems = [*_of_names(settings, allocation), *_of_places(settings, environ), *_of_ports(settings, environ)]
    yield from (Finding(Level.WARN, "nomad", problem) for problem in problems)
    if not problems:
        text = "instance, directories and ports are those of the allocation; --job FILE looks at the job as well"
        yield Finding(Level.OK, "nomad", text)


def _of_names(settings: Settings, allocation: str) -> Iterator[str]:
    if settings.instance != allocation:
        yield (
            f"ARBITER_INSTANCE is {settings.instance} and not the allocation's id {allocation}: "
            "two allocations of one name are one container to the fleet"
        )


def _of_places(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    shared = environ.get("NOMAD_ALLOC_DIR")
    if not shared:
        return
    for name, why in (
        ("state_dir", "it may end with the task"),
        ("socket", "the app's task does not see it"),
        ("statsd_socket", "the app's task does not see it"),
    ):
        place = getattr(settings, name)
        if place and not Path(place).is_relative_to(shared):
            yield f"ARBITER_{name.upper()} is {place}, outside the allocation's directory {shared}: {why}"


def _of_ports(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    ports = {value for name, value in environ.items() if name.startswith("NOMAD_PORT_")}
    for name in ("public_listen", "agent_listen"):
        at = getattr(settings, name)
        if ports and at != addresses.OFF and str(addresses.split(at)[1]) not in ports:
            yield f"ARBITER_{name.upper()} is {at}, and no port of the group leads there: {', '.join(sorted(ports))}"


def _with_tls(settings: Settings) -> tuple[str, ...]:
    if not settings.tls_cert:
        return ()
    from sidecar.net.tls import listed  # noqa: PLC0415 - few have a certificate

    return listed(settings.tls_doors)


# -- looking ----------------------------------------------------------------------------------------------------


def _if_on(what: str, at: str, look: Callable[[str], str]) -> Iterator[Finding]:
    if at != addresses.OFF:
        yield _looked(what, at, look)


def _looked(what: str, at: str, look: Callable[[str], str]) -> Finding:
    try:
        return Finding(Level.OK, what, f"{at}: {look(at)}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Finding(Level.FAIL, what, f"nobody answers at {at}: {cause(error)}")


def _is_live(at: str) -> str:
    connection = http.client.HTTPConnection(*_reachable(at), timeout=TIMEOUT_S)
    with closing(connection):
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    if status != http.HTTPStatus.OK:
        raise ValueError(f"/livez is {status}: its checks have stopped")
    return "/livez is 200"


def _says_a_line(at: str) -> str:
    with socket.create_connection(_reachable(at), TIMEOUT_S) as connection:
        line = connection.recv(_LONGEST_LINE).decode("ascii", "replace").strip()
    if not line:
        raise ValueError("it says nothing")
    return f"it says {line!r}"


def _connects(at: str) -> str:
    socket.create_connection(_reachable(at), TIMEOUT_S).close()
    return "it accepts connections"


def _accepts(kind: socket.SocketKind) -> Callable[[str], str]:
    def look(path: str) -> str:
        with socket.socket(socket.AF_UNIX, kind) as opened:
            opened.settimeout(TIMEOUT_S)
            opened.connect(path)
        return "somebody listens"

    return look


def _reachable(at: str) -> tuple[str, int]:
    """Where to call: a wildcard is where it listens."""
    host, port = addresses.split(at)
    return _WILDCARDS.get(host, host), port
