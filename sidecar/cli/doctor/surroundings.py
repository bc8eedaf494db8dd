"""The findings of ``doctor`` beside Redis: the listeners of the sidecar here, its directory, its Nomad allocation."""

from __future__ import annotations

import http.client
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from sidecar.cli.doctor.findings import Finding, fail, ok, warn
from sidecar.cli.terminal import cause
from sidecar.config import addresses, files
from sidecar.config.settings import Config
from sidecar.net.address_gate import AddressGate, parse_networks

TIMEOUT_S: Final = 2.0
_LINE_LIMIT: Final = 256
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, and where to ask instead
_SURVIVES: Final = "a cull does not survive the sidecar"


def of_listeners(config: Config) -> Iterator[Finding]:
    """Whether every configured listener answers, except the local one, which other findings cover."""
    server = config.server
    looks: list[tuple[str, str, Callable[[str], str]]] = [
        ("public", server.public_listen, _connects if config.tls.covers("public") else _is_live),
        ("agent", server.agent_listen, _says_a_line),
        ("page", server.page_listen, _connects),
        ("socket", server.socket, _accepts(socket.SOCK_STREAM)),
        ("statsd", config.statsd.statsd_socket, _accepts(socket.SOCK_DGRAM)),
    ]
    for what, at, look in looks:
        if at and at != addresses.OFF:
            try:
                yield ok(what, f"{at}: {look(at)}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                yield fail(what, f"nothing answers at {at}: {cause(error)}")


def of_state(config: Config) -> Finding:
    """Whether the sidecar can store its state on disk."""
    place = config.state_directory
    if not place:
        return warn("state", f"no directory: {_SURVIVES}; ARBITER_STATE_DIR names one")
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        text = f"user {os.getuid()} cannot write to {place}"
        return warn("state", f"{text}: {cause(error)}; if the sidecar cannot either, {_SURVIVES}")
    return ok("state", f"{place} can be written to")


def of_secrets(config: Config) -> Iterator[Finding]:
    """Whether only the sidecar's user can read the files with secrets; no finding without such files."""
    if files.secrets(config):
        problems = [*files.of_secrets(config)]
        yield from (warn("secrets", problem) for problem in problems)
        if not problems:
            yield ok("secrets", "other users can neither read nor change the files with secrets")


def of_nomad(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the settings fit the allocation; no finding outside Nomad."""
    allocation = environ.get("NOMAD_ALLOC_ID")
    if not allocation:
        return
    problems = [
        *_of_names(config, allocation),
        *_of_places(config, environ),
        *_of_ports(config, environ),
        *_of_checks(config, environ),
    ]
    yield from (warn("nomad", problem) for problem in problems)
    if not problems:
        text = "instance, directories and ports are those of the allocation; --job looks at the job as well"
        yield ok("nomad", text)


def _of_names(config: Config, allocation: str) -> Iterator[str]:
    if config.identity.instance != allocation:
        yield (
            f"ARBITER_INSTANCE is {config.identity.instance} and not the allocation's id {allocation}: "
            "two allocations of one name are one container to the fleet"
        )


def _of_places(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    shared = environ.get("NOMAD_ALLOC_DIR")
    for name, place, why in (
        ("STATE_DIR", config.state.state_dir, "it may end with the task"),
        ("SOCKET", config.server.socket, "the app's task does not see it"),
        ("STATSD_SOCKET", config.statsd.statsd_socket, "the app's task does not see it"),
    ):
        if shared and place and not Path(place).is_relative_to(shared):
            yield f"ARBITER_{name} is {place}, outside the allocation's directory {shared}: {why}"


def _of_ports(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    ports = {value for name, value in environ.items() if name.startswith("NOMAD_PORT_")}
    for name, at in (("PUBLIC_LISTEN", config.server.public_listen), ("AGENT_LISTEN", config.server.agent_listen)):
        if ports and at != addresses.OFF and str(addresses.split(at)[1]) not in ports:
            yield f"ARBITER_{name} is {at}, and no port of the group leads there: {', '.join(sorted(ports))}"


def _of_checks(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    """Whether the checks of this Nomad client are answered: they come from its own address, without a certificate."""
    gate = AddressGate(parse_networks(config.server.public_allow), on_refusal=lambda: None)
    hosts = {value for name, value in environ.items() if value and name.startswith(("NOMAD_IP_", "NOMAD_HOST_IP_"))}
    for host in sorted(hosts) if config.server.public_allow else ():
        if not gate.lists(host):
            yield (
                f"ARBITER_PUBLIC_ALLOW leaves out {host}, the address of this Nomad client: "
                "its checks fail unless they come from another address, and it restarts the app"
            )
    if config.tls.tls_client_ca and config.tls.covers("public"):
        yield (
            "ARBITER_TLS_CLIENT_CA is for `public`, too: Nomad's own checks have no certificate and fail, and Nomad "
            "restarts the app; Consul's may have the agent's certificate (enable_agent_tls_for_checks)"
        )


# -- probes -----------------------------------------------------------------------------------------------------


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
        line = connection.recv(_LINE_LIMIT).decode("ascii", "replace").strip()
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
        return "it accepts connections"

    return look


def _reachable(at: str) -> tuple[str, int]:
    """The address to connect to: a listener on a wildcard is asked on loopback."""
    host, port = addresses.split(at)
    return _WILDCARDS.get(host, host), port
