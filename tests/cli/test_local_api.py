from __future__ import annotations

import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.certificates import Authority
from harness.ports import free_port
from sidecar.cli.asking_options import Asking, Remote
from sidecar.cli.local_api import NoSidecarError, Reply, ask
from sidecar.config.load import load
from sidecar.net.client_tls import KeyPair

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Handler(BaseHTTPRequestHandler):
    """Says what it was asked; on ``/page`` it is somebody else, ``/fleet`` it does not know."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        answer: Any = {"path": self.path, "body": json.loads(body), "host": self.headers["Host"]}
        if "Authorization" in self.headers:
            answer["brought"] = self.headers["Authorization"]
        if self.path.startswith("/fleet"):
            answer = {"error": f"path: {self.path!r} is not served here"}
        content = b"<html>" if self.path == "/page" else b"[]" if self.path == "/list" else json.dumps(answer).encode()
        self.send_response(202)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _UnixServer(HTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(str(self.server_address))


def _serving(server: HTTPServer) -> Iterator[HTTPServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def port() -> Iterator[int]:
    for server in _serving(HTTPServer(("127.0.0.1", 0), _Handler)):
        yield server.server_port


@pytest.fixture
def path(run_dir: Path) -> Iterator[Path]:
    for _ in _serving(_UnixServer(str(run_dir / "app.sock"), _Handler)):  # type: ignore[arg-type]  # typeshed knows TCP
        yield run_dir / "app.sock"


def _settings(**flags: object) -> Asking:
    return Asking.of(load({name: str(value) for name, value in flags.items()}, {}))


def test_it_is_asked_over_tcp(port: int) -> None:
    settings = _settings(local_listen=f"127.0.0.1:{port}")
    assert ask(settings, "POST", "/x", {"a": "ö"}) == Reply(
        202, {"path": "/x", "body": {"a": "ö"}, "host": f"127.0.0.1:{port}"}
    )


def test_sidecar_elsewhere_is_asked_below_the_path_of_its_proxy(port: int) -> None:
    remote = Remote("http://proxy", "127.0.0.1", port, is_tls=False, prefix="/arbiter")
    assert ask(_settings()._replace(remote=remote), "POST", "/x", 1).value["path"] == "/arbiter/x"


def test_sidecar_elsewhere_is_asked_over_tls_if_the_system_trusts_it_and_is_shown_our_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "ours")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    context.load_cert_chain(*authority.sign("page"))
    context.verify_mode = ssl.CERT_REQUIRED
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    monkeypatch.setattr(server, "handle_error", lambda *_: None)
    remote = Remote("https://page", "127.0.0.1", server.server_port, is_tls=True, prefix="")
    own = KeyPair(*map(str, authority.sign("laptop")))
    for _ in _serving(server):
        asking = _settings()._replace(remote=remote, own=own)
        with pytest.raises(NoSidecarError, match=r"certificate verify failed: .*; SSL_CERT_FILE can name the file"):
            ask(asking, "POST", "/x", 1)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert ask(asking, "POST", "/x", 1).status == 202


def test_it_is_asked_over_the_unix_socket_first_and_over_tcp_when_that_is_dead(
    path: Path, port: int, run_dir: Path
) -> None:
    settings = _settings(local_listen=f"127.0.0.1:{free_port()}", socket=path)
    assert ask(settings, "POST", "/x", 1).value["host"] == "localhost"
    settings = _settings(local_listen=f"127.0.0.1:{port}", socket=run_dir / "none.sock")
    assert ask(settings, "POST", "/x", 1).status == 202


@pytest.fixture
def token(tmp_path: Path) -> str:
    (tmp_path / "token").write_text("sesame-0123456789\n")
    return str(tmp_path / "token")


def test_order_brings_the_token_over_tcp(port: int, token: str) -> None:
    settings = _settings(local_listen=f"127.0.0.1:{port}", token_file=token)
    assert ask(settings, "POST", "/x", 1).value["brought"] == "Bearer sesame-0123456789"


def test_token_does_not_travel_where_it_is_not_needed_or_lost(port: int, path: Path, token: str) -> None:
    by_socket = _settings(local_listen=f"127.0.0.1:{free_port()}", socket=path, token_file=token)
    assert "brought" not in ask(by_socket, "POST", "/x", 1).value
    over_tcp = _settings(local_listen=f"127.0.0.1:{port}", token_file=token)
    Path(token).unlink()
    assert "brought" not in ask(over_tcp, "POST", "/x", 1).value


def test_without_an_answer_both_places_are_named(run_dir: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(NoSidecarError) as error:
        ask(_settings(local_listen=address, socket=run_dir / "none.sock"), "GET", "/fleet")
    assert str(error.value) == (
        f"no sidecar answers at {run_dir / 'none.sock'} (ARBITER_SOCKET): no such file or directory; "
        f"no sidecar answers at {address} (ARBITER_LOCAL_LISTEN): connection refused"
    )


@pytest.mark.parametrize("page", ["/page", "/list"])
def test_another_server_is_no_sidecar(port: int, page: str) -> None:
    address = f"127.0.0.1:{port}"
    with pytest.raises(NoSidecarError) as error:
        ask(_settings(local_listen=address), "POST", page, 1)
    assert str(error.value).startswith(f"{address} (ARBITER_LOCAL_LISTEN) does not answer as a sidecar does: ")


def test_public_listener_is_named_as_such(port: int) -> None:
    address = f"127.0.0.1:{port}"
    with pytest.raises(NoSidecarError) as error:
        ask(_settings(local_listen=address), "POST", "/fleet?x=1", 1)
    assert str(error.value) == (
        f"{address} (ARBITER_LOCAL_LISTEN) looks like the public listener of a sidecar: /fleet is not served here; "
        "ARBITER_LOCAL_LISTEN has to name its local listener"
    )
