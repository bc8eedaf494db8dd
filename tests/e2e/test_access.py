"""Who may do what at real doors: what only shows, what needs the token, what speaks TLS, and that no secret is told."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from harness.certificates import Authority
from harness.command import command
from harness.polls import UP, Polls
from harness.ports import free_port
from harness.secured import SecuredSidecar
from harness.succession import Succession
from harness.waiting import wait_for
from sidecar.app import budget_parts, listeners
from sidecar.config.settings import load
from sidecar.net.tls import Pair, client_context
from sidecar.telemetry.log import Log
from sidecar.telemetry.metrics import Metrics
from sidecar.telemetry.observers import Observers

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Reply, Sidecar
    from harness.starting import Children, StartHaproxy, StartSidecar
    from sidecar.net.listener import Routes

TOP: Final = Path(__file__).parents[2]
WORD: Final = "sesame-7d1f0c52-secret"
BEARER: Final = {"Authorization": f"Bearer {WORD}"}
WRONG: Final = {"Authorization": "Bearer sesame-7d1f0c52-public"}
APP: Final = {"/errors", "/results", "/heartbeat", "/life"}
"""What the app itself sends: it changes what is counted, and is no order."""

FAST: Final = {
    "settle": "0s",
    "drain": "0s",
    "check_interval": "500ms",
    "redis_timeout": "300ms",
    "beat_interval": "500ms",
}
HOLD: Final = ("hold", "--for", "1h", "--reason", "look", "--author", "alice")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    authority = Authority(tmp_path_factory.mktemp("authority"), "ours")
    return [Pair(*map(str, authority.sign(name))) for name in ("first", "second")]


@pytest.fixture
def token_file(run_dir: Path) -> Path:
    path = run_dir / "token"
    path.write_text(f"{WORD}\n")
    return path


@pytest.fixture
def guarded(sidecar: StartSidecar, token_file: Path, run_dir: Path) -> Sidecar:
    """One with a token, every door open."""
    place = f"127.0.0.1:{free_port()}"
    return sidecar(token_file=token_file, page_listen=place, socket=run_dir / "app.sock", **FAST)


# -- every route of every door ------------------------------------------------------------------------------


def _tables() -> dict[str, Routes]:
    """The routes of each door, as the daemon opens them."""
    names = ("local_listen", "public_listen", "page_listen")
    places = dict.fromkeys(names, "127.0.0.1:0")
    settings = load({}, {})
    settings = settings.model_copy(update={**places, "agent_listen": "off", "token_file": __file__})

    async def found() -> dict[str, Routes]:
        told = Observers(Metrics("enforce", 5, 10), Log())
        held = budget_parts.opened(settings, partial(told.failed, "budget"))
        errors = SimpleNamespace(ever=dict)
        nobody = cast("Any", SimpleNamespace(snapshot=None, inbox=None, measurements=SimpleNamespace(errors=errors)))
        opened = listeners.opened(settings, nobody, told, held, nobody, offer=nobody, ledger=nobody)
        async with opened as open_doors:
            return {listener.name: listener._routes for listener in open_doors.listeners}

    return asyncio.run(found())


@pytest.fixture(scope="module")
def tables() -> dict[str, Routes]:
    return _tables()


def _orders(routes: Routes) -> list[tuple[str, str]]:
    """Every path and method that changes something for others than the app."""
    return [
        (path, method) for path, methods in routes.items() for method in methods if method != "GET" and path not in APP
    ]


def test_public_door_only_shows(tables: dict[str, Routes]) -> None:
    assert {method for methods in tables["public"].values() for method in methods} == {"GET", "OPTIONS"}
    assert {"/health", "/metrics", "/why"} <= {*tables["public"]}


def test_there_are_no_doors_but_those_that_are_walked(tables: dict[str, Routes]) -> None:
    assert {*tables} == {"local", "public", "page"}
    assert {"/hold", "/cull", "/revive"} <= {path for path, _ in _orders(tables["local"])}
    assert {path for path, _ in _orders(tables["page"])} == {"/page/hold"}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_public_door_takes_no_order_whatever_it_is_called(
    guarded: Sidecar, tables: dict[str, Routes], method: str
) -> None:
    for path in {*tables["public"], *tables["local"]}:
        reply = guarded.request("public", method, path, "{}", BEARER)
        assert reply.status in {400, 404, 405}, path  # 400: it came with a body


@pytest.mark.parametrize("headers", [{}, WRONG, {"Authorization": f"Basic {WORD}"}], ids=["none", "wrong", "basic"])
@pytest.mark.parametrize("door", ["local", "page"])
def test_every_order_over_tcp_needs_the_token(
    guarded: Sidecar, tables: dict[str, Routes], door: str, headers: dict[str, str]
) -> None:
    before = guarded.request("socket", "GET", "/fleet").json()["holds"]
    for path, method in _orders(tables[door]):
        reply = guarded.request(door, method, path, "{}" if method == "POST" else None, headers)
        assert reply.status in ({401} if path != "/page/hold" else {401, 403}), (path, method, reply)
    assert guarded.request("socket", "GET", "/fleet").json()["holds"] == before
    refused = {name: value for name, value in guarded.metrics().items() if "arbiter_refusals_total" in name}
    assert sum(value for name, value in refused.items() if f'listener="{door}"' in name) >= 1


def test_token_and_unix_socket_open_every_order(guarded: Sidecar, tables: dict[str, Routes]) -> None:
    for path, method in _orders(tables["local"]):
        if path.startswith("/page"):
            continue  # it needs a word against forgery besides
        body = "{}" if method == "POST" else None
        assert guarded.request("local", method, path, body, BEARER).status not in {401, 403}, path
        assert guarded.request("socket", method, path, body).status not in {401, 403}, path


def test_app_needs_no_token_to_report(guarded: Sidecar) -> None:
    assert guarded.post_error() == {"state": "up"}
    assert guarded.request("local", "POST", "/results", json.dumps({"ok": 1})).status == 202
    assert guarded.request("local", "POST", "/heartbeat").status == 202


# -- the token, from its file to the command ----------------------------------------------------------------


def test_command_brings_the_token_and_who_cannot_read_it_is_refused(guarded: Sidecar, token_file: Path) -> None:
    over_tcp = {"ARBITER_SOCKET": ""}
    assert command(guarded, *HOLD, **over_tcp).code in {0, 1}  # without Redis it holds this one
    assert guarded.request("socket", "GET", "/fleet").json()["local_hold"]["author"] == "alice"
    other = token_file.with_name("other")
    other.write_text("sesame-7d1f0c52-public")
    refused = command(guarded, "release", **over_tcp, ARBITER_TOKEN_FILE=str(other))
    assert refused.code != 0
    assert "ARBITER_TOKEN_FILE" in refused.err
    assert guarded.request("socket", "GET", "/fleet").json()["local_hold"] is not None
    assert command(guarded, "release", **over_tcp).code in {0, 1}
    assert guarded.request("socket", "GET", "/fleet").json()["local_hold"] is None


@pytest.mark.parametrize("content", ["", "\n \n", "short", None], ids=["empty", "blank", "short", "gone"])
def test_token_that_is_lost_while_it_runs_closes_the_door(
    guarded: Sidecar, token_file: Path, content: str | None
) -> None:
    if content is None:
        token_file.unlink()
    else:
        token_file.write_text(content)
    for headers in ({}, {"Authorization": f"Bearer {(content or '').strip()}"}, {"Authorization": "Bearer "}, BEARER):
        assert guarded.request("local", "DELETE", "/hold", headers=headers).status == 401
    assert guarded.request("socket", "DELETE", "/hold").status == 200
    token_file.write_text(WORD)
    assert guarded.request("local", "DELETE", "/hold", headers=BEARER).status == 200


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_planted_secrets_are_told_nowhere(
    sidecar: StartSidecar, token_file: Path, redis_server: RedisServer, pairs: list[Pair], log_format: str
) -> None:
    page = f"127.0.0.1:{free_port()}"
    one = sidecar(
        token_file=token_file,
        page_listen=page,
        tls_cert=pairs[0].cert,
        tls_key=pairs[0].key,
        tls_doors="agent",
        redis_url=redis_server.url,
        log_format=log_format,
        log_level="debug",
        **FAST,
    )
    told: list[str] = []
    for headers in (BEARER, WRONG, {}):
        for path in ("/fleet", "/why", "/events", "/verdict", "/page/state", "/", "/page", "/nowhere?x=1"):
            told += [_told(one.request(door, "GET", path, headers=headers)) for door in ("local", "public", "page")]
        for method in ("POST", "DELETE"):
            order = '{"for":60,"reason":"x","author":"y","scope":"service"}' if method == "POST" else None
            told += [_told(one.request(door, method, "/hold", order, headers)) for door in ("local", "public", "page")]
    one.post_error(10)
    told += [one.request("public", "GET", path).body for path in ("/health", "/metrics", "/why")]
    told += [Path(f"/proc/{one.pid}/{name}").read_text() for name in ("cmdline", "environ")]
    told += [str(done) for done in (command(one, "check-config"), command(one, "doctor"), command(one, "fleet"))]
    told += [json.dumps(redis_server.cli("XRANGE", "{ha:default/app}:events", "-", "+"))]
    one.terminate()
    one.wait()
    told.append(one.output())
    key = "".join(Path(pairs[0].key).read_text().splitlines()[1:-1])[:40]
    for text in told:
        for secret in ("7d1f0c52", key):
            assert secret not in text


def _told(reply: Reply) -> str:
    return f"{reply.headers}{reply.body}"


# -- TLS at real doors --------------------------------------------------------------------------------------


@pytest.fixture
def files(run_dir: Path, pairs: list[Pair]) -> Pair:
    """A pair in place of which another may be put."""
    pair = Pair(str(run_dir / "tls.crt"), str(run_dir / "tls.key"))
    _put(pairs[0], pair)
    return pair


def _put(new: Pair, place: Pair) -> None:
    for source, target in zip(new, place, strict=True):
        shutil.copy(source, f"{target}.new")
        os.replace(f"{target}.new", target)  # noqa: PTH105 - as whoever renews certificates does


@pytest.fixture
def secured(run_dir: Path, children: Children, files: Pair, token_file: Path) -> SecuredSidecar:
    """All its doors speak TLS."""
    one = SecuredSidecar(
        run_dir,
        tls_cert=files.cert,
        tls_key=files.key,
        tls_doors="page,public,local,agent",
        page_listen=f"127.0.0.1:{free_port()}",
        token_file=token_file,
        socket=run_dir / "app.sock",
        **FAST,
    )
    return children.adopt(one).start()


def test_every_door_speaks_tls_and_the_socket_does_not(secured: SecuredSidecar) -> None:
    assert secured.health() == (200, "up\n")
    assert secured.request("local", "GET", "/verdict").json()["state"] == "up"
    assert secured.request("page", "GET", "/page").status == 200
    assert secured.request("socket", "GET", "/verdict").json()["state"] == "up"
    with client_context().wrap_socket(_connected(secured, "agent")) as agent:
        assert agent.recv(100) == b"up ready 100%\n"
    for listener in ("public", "local", "page"):
        with _connected(secured, listener) as plain, suppress(ConnectionError):
            plain.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert b"HTTP" not in plain.recv(1000)
    wait_for(
        lambda: secured.metrics().get('arbiter_refusals_total{listener="public",reason="handshake"}') == 1,
        timeout_s=20,
        what="it is counted",
    )


def _connected(one: Sidecar, listener: str) -> socket.socket:
    return socket.create_connection(one.address(listener), 5)


def test_new_pair_is_shown_within_seconds_and_half_of_one_is_told(
    secured: SecuredSidecar, files: Pair, pairs: list[Pair]
) -> None:
    expiry = "arbiter_tls_certificate_expiry_timestamp_seconds"
    first, second = (_pem(pair) for pair in pairs)
    told = ssl._ssl._test_decode_cert(pairs[0].cert)  # type: ignore[attr-defined]  # as openssl reads it
    assert secured.metrics()[expiry] == ssl.cert_time_to_seconds(told["notAfter"])
    assert secured.shown("public") == first
    shutil.copy(pairs[1].cert, files.cert)
    failed = 'arbiter_failures_total{where="tls"}'
    wait_for(lambda: secured.metrics().get(failed, 0) >= 2, timeout_s=30, what="it was tried twice")
    assert secured.shown("public") == first
    said = wait_for(partial(_failures_told, secured), timeout_s=30, what="its log tells of it")
    assert len(said) == 1
    shutil.copy(pairs[1].key, files.key)
    wait_for(lambda: secured.shown("public") == second, timeout_s=20, what="the new one is shown")
    assert {secured.shown(listener) for listener in ("public", "local", "page", "agent")} == {second}


def _failures_told(one: Sidecar) -> list[dict[str, Any]]:
    return [line for line in one.log_lines() if line["message"] == "tls failed"]


def _pem(pair: Pair) -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(Path(pair.cert).read_text()))


def test_command_speaks_tls_with_the_door_that_shows_our_certificate_and_with_no_other(
    secured: SecuredSidecar, pairs: list[Pair]
) -> None:
    over_tcp = {"ARBITER_SOCKET": ""}
    assert json.loads(command(secured, "fleet", "--json", **over_tcp).out)["instance"] == "a"
    command(secured, *HOLD, **over_tcp)
    assert secured.request("socket", "GET", "/fleet").json()["local_hold"]["author"] == "alice"
    other = {"ARBITER_TLS_CERT": pairs[1].cert, "ARBITER_TLS_KEY": pairs[1].key}
    refused = command(secured, "release", **over_tcp, **other)
    assert refused.code == 69
    assert f"it shows another certificate than {pairs[1].cert} (ARBITER_TLS_CERT) has" in refused.err


def test_start_with_a_pair_that_is_none_is_one_line_and_exit_2(sidecar: StartSidecar, pairs: list[Pair]) -> None:
    one = sidecar.unstarted(tls_cert=pairs[0].cert, tls_key=pairs[1].key, tls_doors="public")
    one.launch()
    assert one.wait() == 2
    (line,) = one.output().splitlines()
    assert line.startswith("health-arbiter: ARBITER_TLS_CERT: ")
    assert line.endswith("key values mismatch")


def test_nothing_of_it_is_imported_before_there_is_a_certificate() -> None:
    code = "import sys, sidecar.app.daemon; print([name for name in sys.modules if name.startswith('sidecar.')])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True)
    assert "sidecar.app.listeners" in ran.stdout
    rooms = {"tls", "handshakes", "token_file", "admission"}
    assert not {f"sidecar.net.{room}" for room in rooms} & {*re.findall(r"[\w.]+", ran.stdout)}


HAPROXY: Final = """
defaults
  mode http
  timeout connect 1s
  timeout client 5s
  timeout server 5s
backend app
  option httpchk GET /health/haproxy
  server one 127.0.0.1:{app} check port {public} check-ssl verify none inter 200ms {agent}
"""


@pytest.mark.parametrize("tls_doors", ["public", "public,agent"], ids=["agent plain", "agent with TLS"])
def test_haproxy_checks_over_tls_and_its_agent_check_cannot(
    run_dir: Path, children: Children, files: Pair, haproxy: StartHaproxy, tls_doors: str
) -> None:
    settings = {"tls_cert": files.cert, "tls_key": files.key, "tls_doors": tls_doors, **FAST}
    one = children.adopt(SecuredSidecar(run_dir, **settings)).start()
    agent = f"agent-check agent-port {one.address('agent')[1]} agent-inter 200ms"
    proxy = haproxy(HAPROXY.format(app=free_port(), public=one.address("public")[1], agent=agent))

    def row() -> dict[str, str]:
        return proxy.show_servers()["app", "one"]

    wait_for(lambda: row()["check_status"] == "L7OK", timeout_s=30, what="the check is answered over TLS")
    wanted = "L7OK" if tls_doors == "public" else "L7TOUT"
    wait_for(lambda: row()["agent_status"].endswith(wanted), timeout_s=30, what="the agent is asked")
    one.post_error(5)
    if tls_doors == "public":
        wait_for(lambda: row()["status"].startswith("DOWN"), timeout_s=30, what="the agent takes it out")
    else:
        wait_for(lambda: row()["check_status"] == "L7STS", timeout_s=30, what="the check takes it out")


# -- a standby takes over -----------------------------------------------------------------------------------


def test_connections_with_tls_end_in_good_order_when_a_standby_takes_over(
    run_dir: Path, children: Children, files: Pair
) -> None:
    def unstarted(name: str, **settings: Any) -> SecuredSidecar:
        return children.adopt(SecuredSidecar(run_dir, name, **settings))

    tls = {"tls_cert": files.cert, "tls_key": files.key, "tls_doors": "public"}
    one = Succession(unstarted, run_dir, **tls).start()
    kept = one.main._connection("public")
    plain = one.main._connection("local")
    for connection, path in ((kept, "/livez"), (plain, "/verdict")):
        connection.request("GET", path)
        connection.getresponse().read()
    one.end_main(signal.SIGTERM)
    assert kept.sock.recv(1) == b"", "the end, told by TLS: without that it would be an error"
    kept.close()
    wait_for(lambda: one.main.health()[0] == 200, timeout_s=20, what="the next answers over TLS")
    plain.request("GET", "/verdict")
    assert plain.getresponse().status == 200, "what is without TLS has moved"
    plain.close()
    one.await_standby()


def test_half_handshakes_at_one_door_leave_health_at_another_as_it_was(
    run_dir: Path, children: Children, files: Pair
) -> None:
    tls = {"tls_cert": files.cert, "tls_key": files.key, "tls_doors": "local"}
    one = children.adopt(SecuredSidecar(run_dir, **tls, **FAST)).start()
    crowd = []
    with Polls(one.address("public"), 200) as polls:
        for _ in range(600):
            crowd.append(_connected(one, "local"))
            crowd[-1].sendall(b"\x16\x03\x01\x02\x00\x01")
        wait_for(
            lambda: one.metrics().get('arbiter_refusals_total{listener="local",reason="crowded"}', 0) > 100,
            timeout_s=30,
            what="some made room for others",
        )
    for connection in crowd:
        connection.close()
    assert set(polls.polled.outcomes) == {UP}
    descriptors = len(list(Path(f"/proc/{one.pid}/fd").iterdir()))
    assert descriptors < 400
