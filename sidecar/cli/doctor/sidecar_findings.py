"""The findings of ``doctor`` about the sidecar of this machine: its listeners, its store, its limit and its files."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from ipaddress import ip_address
from typing import Final

from sidecar.cli import local_api
from sidecar.cli.asking_options import Asking
from sidecar.cli.doctor.findings import Finding, fail, ok, warn
from sidecar.cli.terminal import cause
from sidecar.config import addresses, files, redis_urls
from sidecar.config.settings import Config, JudgingConfig
from sidecar.core.measure import noise
from sidecar.net.address_gate import parse_networks

NO_SIDECAR: Final = "no_sidecar"
"""The finding that none answers on this machine. A job can be checked without one."""

TIMEOUT_S: Final = 2.0
_LINE_LIMIT: Final = 256
_MINUTE_S: Final = 60.0
_LEAST_PERCENT: Final = 0.01
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, and where to ask instead


def of_sidecar(config: Config) -> Iterator[Finding]:
    """Whether one answers here, with these settings, and what it knows of itself."""
    asking = Asking.of(config)
    try:
        fleet = local_api.ask(asking, "GET", "/fleet").value
        why = local_api.ask(asking, "GET", "/why?format=json").value
    except local_api.NoSidecarError as error:
        yield warn(NO_SIDECAR, error.message)
        return
    if "store" in fleet:
        yield from of_store(config.redis.redis_url, fleet["store"])
    names = ("namespace", "service", "instance", "mode")
    if differs := [name for name in names if fleet.get(name) != getattr(config.identity, name)]:
        named = ", ".join(f"ARBITER_{name.upper()}" for name in differs)
        yield warn("sidecar", f"the one that answers runs with other settings: {named}")
        return
    if fleet.get("error") not in (None, local_api.ALONE):
        yield warn("sidecar", f"it answers, but the store does not answer it: {fleet.get('sentence')}")
    else:
        yield ok("sidecar", "it answers at its local listener")
    yield from (warn("sidecar", sentence) for sentence in why.get("warnings", ()))
    usual = float((why.get("window") or {}).get("usual") or 0.0)
    yield from of_limit(config.judging, usual, int((fleet.get("fleet") or {}).get("alive") or 1))
    yield from of_listeners(config)


def of_store(own: str, theirs: str) -> Iterator[Finding]:
    """Whether the store that the sidecar shows is the store of this command."""
    own = redis_urls.shown(own)
    if _place(own) == _place(theirs):
        return
    is_sure = redis_urls.IN_PROCESS in (own, theirs)  # two different URLs may lead to one server
    text = f"the sidecar's is {theirs}, and this command's {own}: ARBITER_REDIS_URL differs"
    yield (fail if is_sure else warn)("store", text)


def _place(shown: str) -> object:
    """The server of the URL, whatever its spelling."""
    try:
        return redis_urls.place(redis_urls.redis_url(shown))
    except ValueError:
        return shown


def of_limit(judging: JudgingConfig, usual: float, containers: int) -> Iterator[Finding]:
    """Whether the limit of errors is above what chance gives; ``usual``: errors in a window while all is well."""
    if usual <= 0:
        return  # nothing is known, or nothing fails
    limit, window_s = judging.error_limit, judging.error_window
    least = noise.least_limit(usual, window_s, containers)
    well = f"your containers have {usual * _MINUTE_S / window_s:.2g} errors a minute when well"
    if limit >= least:
        yield ok("limit", f"{well}; noise hardly ever reaches a limit of {limit}")
        return
    percent = 100 * noise.share_of_windows(usual, limit)
    often = f"in {percent:.2g} % of all windows" if percent >= _LEAST_PERCENT else "now and then"
    effect = "culls for noise" if judging.outlier == "off" else "means little, and only ARBITER_OUTLIER spares them"
    text = f"a limit of {limit} {effect}: noise reaches it {often}; ARBITER_ERROR_LIMIT={least} is above it"
    yield warn("limit", f"{well}; {text}")


def of_files(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the files of the settings are there and closed, and whether Nomad's checks of this node are answered."""
    problems = [*files.problems(config)]
    yield from (warn("files", problem) for problem in problems)
    if not problems:
        yield ok("files", "those that the settings name are there, and no other user can read a secret")
    if not config.state_directory:
        yield warn("state", "no directory: a cull does not survive the sidecar; ARBITER_STATE_DIR names one")
    yield from _of_nomad_checks(config, environ)


def _of_nomad_checks(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    networks = parse_networks(config.server.public_allow)
    hosts = {value for name, value in environ.items() if value and name.startswith(("NOMAD_IP_", "NOMAD_HOST_IP_"))}
    for host in sorted(hosts) if networks else ():
        if not any(ip_address(host) in network for network in networks):
            text = f"ARBITER_PUBLIC_ALLOW leaves out {host}, the address of this Nomad client: its checks fail unless"
            yield warn("nomad", f"{text} they come from another address, and it restarts the app")


# -- listeners --------------------------------------------------------------------------------------------------


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


def _is_live(at: str) -> str:
    with closing(http.client.HTTPConnection(*_reachable(at), timeout=TIMEOUT_S)) as connection:
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
