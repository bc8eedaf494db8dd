"""Access to real listeners: read-only routes, orders that need the token, TLS, and secrets that appear nowhere."""

from __future__ import annotations

import json
import os
import shutil
import socket
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.certificates import Authority
from harness.command import command
from harness.ports import free_port
from harness.sidecar import AT_ONCE, Sidecar
from harness.waiting import wait_for
from sidecar.net.credential_files import KeyPair

if TYPE_CHECKING:
    from harness.children import Children, StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Reply

pytestmark = pytest.mark.process

WORD: Final = "sesame-7d1f0c52-secret"
BEARER: Final = {"Authorization": f"Bearer {WORD}"}
WRONG: Final = {"Authorization": "Bearer sesame-7d1f0c52-public"}
FAST: Final[dict[str, Any]] = AT_ONCE
HOLD: Final = ("hold", "--for", "1h", "--reason", "look", "--author", "alice")


@pytest.fixture(scope="module")
def pairs(authority: Authority) -> list[KeyPair]:
    return [KeyPair(*map(str, authority.sign(name))) for name in ("first", "second")]


@pytest.fixture
def token_file(run_dir: Path) -> Path:
    path = run_dir / "token"
    path.write_text(f"{WORD}\n")
    return path


@pytest.fixture
def guarded(sidecar: StartSidecar, token_file: Path, run_dir: Path) -> Sidecar:
    """A sidecar with a token and every listener open."""
    place = f"127.0.0.1:{free_port()}"
    return sidecar(token_file=token_file, page_listen=place, socket=run_dir / "app.sock", **FAST)


# -- the token --------------------------------------------------------------------------------------------------


def _hold(guarded: Sidecar) -> dict[str, Any] | None:
    """The hold of this container, asked at the unix socket, which needs no token."""
    hold: dict[str, Any] | None = guarded.request("socket", "GET", "/fleet").json()["local_hold"]
    return hold


def test_orders_need_the_token_over_tcp_and_none_at_the_unix_socket(guarded: Sidecar, token_file: Path) -> None:
    for listener, headers in product(("local", "page"), ({}, WRONG)):
        assert guarded.request(listener, "POST", "/hold", "{}", headers).status == 401, (listener, headers)
    over_tcp = {"ARBITER_SOCKET": ""}
    assert command(guarded, *HOLD, **over_tcp).code in {0, 1}  # without Redis only this container is held
    assert (_hold(guarded) or {})["author"] == "alice"
    other = token_file.with_name("other")
    other.write_text("sesame-7d1f0c52-public")
    refused = command(guarded, "release", **over_tcp, ARBITER_TOKEN_FILE=str(other))
    assert refused.code != 0
    assert "ARBITER_TOKEN_FILE" in refused.err
    assert _hold(guarded) is not None
    assert command(guarded, "release").code in {0, 1}, "over the unix socket"
    assert _hold(guarded) is None


@pytest.mark.site
@pytest.mark.fresh  # for what /proc shows of it
def test_secrets_appear_in_no_answer_log_or_command(
    sidecar: StartSidecar, token_file: Path, redis_server: RedisServer, pairs: list[KeyPair]
) -> None:
    page = f"127.0.0.1:{free_port()}"
    closed = f"user:{WORD}@127.0.0.1:{free_port()}/?token={WORD}"
    urls = token_file.with_name("urls.toml")  # its settings are in no environment
    urls.write_text(
        f'scrape_url = "http://{closed}"\nscrape_errors = "errors_total"\ncheck_interval = "500ms"\n'
        f'webhook_url = "http://{closed}"\n'
    )
    one = sidecar(
        config=urls,
        token_file=token_file,
        page_listen=page,
        tls_cert=pairs[0].cert,
        tls_key=pairs[0].key,
        tls_listeners="page",
        redis_url=redis_server.url,
        **FAST,
    )
    texts: list[str] = []
    for headers in (BEARER, WRONG, {}):
        for path in ("/fleet", "/why", "/events", "/verdict", "/", "/page", "/nowhere?x=1"):
            texts += [
                _text(one.request(listener, "GET", path, headers=headers)) for listener in ("local", "public", "page")
            ]
        for method in ("POST", "DELETE"):
            order = '{"for":60,"reason":"x","author":"y","scope":"service"}' if method == "POST" else None
            texts += [
                _text(one.request(listener, method, "/hold", order, headers))
                for listener in ("local", "public", "page")
            ]
    one.post_error(10)
    texts += [one.request("public", "GET", path).body for path in ("/health", "/metrics", "/why")]
    texts += [Path(f"/proc/{one.pid}/{name}").read_text() for name in ("cmdline", "environ")]
    texts += [str(done) for done in (command(one, "check-config"), command(one, "doctor"), command(one, "fleet"))]
    texts += [json.dumps(redis_server.cli("XRANGE", "{ha:default/app}:events", "-", "+"))]
    one.terminate()
    one.wait()
    texts.append(one.output())
    key = "".join(Path(pairs[0].key).read_text().splitlines()[1:-1])[:40]
    for text in texts:
        for secret in ("7d1f0c52", key):
            assert secret not in text


def _text(reply: Reply) -> str:
    return f"{reply.headers}{reply.body}"


# -- TLS at real listeners --------------------------------------------------------------------------------------


@pytest.fixture
def files(run_dir: Path, pairs: list[KeyPair]) -> KeyPair:
    """The key pair of the sidecar; a test may replace its files."""
    pair = KeyPair(str(run_dir / "tls.crt"), str(run_dir / "tls.key"))
    _put(pairs[0], pair)
    return pair


def _put(new: KeyPair, place: KeyPair) -> None:
    for source, target in zip(new, place, strict=True):
        shutil.copy(source, f"{target}.new")
        os.replace(f"{target}.new", target)  # noqa: PTH105 - atomic, as a renewal does it


@pytest.fixture
def over_tls(run_dir: Path, children: Children, files: KeyPair, token_file: Path) -> Sidecar:
    """A sidecar with TLS on every HTTP listener that strangers reach."""
    one = Sidecar(
        run_dir,
        tls_cert=files.cert,
        tls_key=files.key,
        tls_listeners="page,public",
        page_listen=f"127.0.0.1:{free_port()}",
        token_file=token_file,
        socket=run_dir / "app.sock",
        **FAST,
    )
    return children.adopt(one).start()


def test_http_listeners_for_strangers_use_tls_and_those_of_this_machine_do_not(over_tls: Sidecar) -> None:
    assert over_tls.health() == (200, "up\n")
    assert over_tls.request("local", "GET", "/verdict").json()["state"] == "up"
    assert over_tls.request("page", "GET", "/page").status == 200
    assert over_tls.request("socket", "GET", "/verdict").json()["state"] == "up"
    assert over_tls.agent_line() == "up ready 100%\n", "HAProxy's agent-check speaks no TLS"
    for listener in ("public", "page"):
        with _connected(over_tls, listener) as plain, suppress(ConnectionError):
            plain.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert b"HTTP" not in plain.recv(1000)
    wait_for(
        lambda: over_tls.metrics().get('arbiter_refusals_total{listener="public",reason="handshake"}') == 1,
        timeout_s=60,
        what="the plain connection is counted",
    )


def _connected(one: Sidecar, listener: str) -> socket.socket:
    return socket.create_connection(one.address(listener), 5)
