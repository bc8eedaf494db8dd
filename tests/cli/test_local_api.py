"""How a command finds a sidecar and asks it: here over a unix socket or TCP, elsewhere by ``--url`` with a token."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pytest

from harness.certificates import Authority
from harness.children import short_path
from harness.ports import free_port
from harness.sidecar_thread import SidecarThread
from sidecar.cli import application
from sidecar.cli.local_api import Listener, NoSidecarError, Reply, ask, listener
from sidecar.cli.options import Invocation

if TYPE_CHECKING:
    from harness.sidecar import Setting


def found(environ: Mapping[str, str] | None = None, **flags: object) -> Listener:
    """The listener that a command asks by these settings."""
    ctx = click.Context(click.Command("fleet"), obj=Invocation(environ or {}))
    ctx.meta.update({name: str(value) for name, value in flags.items()})
    return listener(ctx)


# -- finding it -------------------------------------------------------------------------------------------------

ENVIRON = {"ARBITER_LOCAL_LISTEN": "127.0.0.1:9", "ARBITER_BUGDET": "1", "ARBITER_DRAIN": "soon"}
"""Mistakes in other settings do not stop an engineer."""


@pytest.mark.parametrize(
    ("flags", "environ", "named"),
    [
        ({}, {}, "127.0.0.1:9180 (ARBITER_LOCAL_LISTEN)"),
        ({}, ENVIRON, "127.0.0.1:9 (ARBITER_LOCAL_LISTEN)"),
        ({}, {**ENVIRON, "ARBITER_SOCKET": "/a.sock"}, "/a.sock (ARBITER_SOCKET)"),
        ({"local_listen": "localhost:8"}, ENVIRON, "localhost:8 (ARBITER_LOCAL_LISTEN)"),
        ({"socket": "/b.sock", "local_listen": "off"}, {"ARBITER_SOCKET": "/a.sock"}, "/b.sock (ARBITER_SOCKET)"),
        ({}, {"ARBITER_URL": "http://other:7"}, "http://other:7 (--url)"),
        ({"url": ""}, {"ARBITER_URL": "http://other:7"}, "127.0.0.1:9180 (ARBITER_LOCAL_LISTEN)"),
    ],
    ids=["defaults", "environment", "socket first", "option wins", "without TCP", "elsewhere", "here all the same"],
)
def test_listener_is_the_one_that_the_settings_name(
    flags: dict[str, object], environ: dict[str, str], named: str
) -> None:
    assert str(found(environ, **flags)) == named


def test_listener_may_be_named_in_the_file_of_settings(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('local_listen = "localhost:8"\ntls_cert = "/not/there.pem"\n')
    assert found({"ARBITER_CONFIG": str(tmp_path / "a.toml")}).address == "localhost:8"


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"ARBITER_SOCKET": "a.sock"}, "ARBITER_SOCKET: 'a.sock' from env must be an absolute path"),
        ({"ARBITER_CONFIG": "/none.toml"}, "ARBITER_CONFIG: cannot read /none.toml: No such file"),
        ({"ARBITER_LOCAL_LISTEN": "off"}, "no local listener to ask: set ARBITER_LOCAL_LISTEN or ARBITER_SOCKET"),
    ],
    ids=["path", "file", "none"],
)
def test_setting_that_cannot_be_used_is_named(environ: dict[str, str], complaint: str) -> None:
    with pytest.raises(click.ClickException) as raised:
        found(environ)
    assert raised.value.message.startswith(complaint)


# -- asking it --------------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    """Says what it was asked; on ``/page`` it is somebody else, and it does not know ``/fleet`` with a query."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        answer: Any = {"path": self.path, "body": json.loads(body or b"null"), "host": self.headers["Host"]}
        if "Authorization" in self.headers:
            answer["brought"] = self.headers["Authorization"]
        if self.path == "/revive":
            answer = {"outcome": "pending", "instance": "a", "sentence": "it is not decided yet"}
        if self.path.startswith("/fleet?"):
            answer = {"error": f"path: {self.path!r} is not served here"}
        content = b"<html>" if self.path == "/page" else b"[]" if self.path == "/list" else json.dumps(answer).encode()
        self.send_response(202)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.do_POST()

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


def test_it_is_asked_over_tcp(port: int) -> None:
    reply = ask(found(local_listen=f"127.0.0.1:{port}"), "POST", "/x", {"a": "ö"})
    assert reply == Reply(202, {"path": "/x", "body": {"a": "ö"}, "host": f"127.0.0.1:{port}"})


def test_sidecar_elsewhere_is_asked_below_the_path_of_its_proxy(port: int) -> None:
    proxy = f"http://127.0.0.1:{port}/arbiter"
    paths = [ask(found(url=url), "POST", "/x", 1).value["path"] for url in (proxy, f"{proxy}/page", f"{proxy}/")]
    assert paths == ["/arbiter/x"] * 3


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
    url, (cert, key) = f"https://127.0.0.1:{server.server_port}", map(str, authority.sign("laptop"))
    own = {"ARBITER_TLS_CERT": cert, "ARBITER_TLS_KEY": key}
    for _ in _serving(server):
        with pytest.raises(NoSidecarError, match=r"certificate verify failed: .*; SSL_CERT_FILE can name the file"):
            ask(found(own, url=url), "POST", "/x", 1)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert ask(found(own, url=url), "POST", "/x", 1).status == 202
        with pytest.raises(NoSidecarError):
            ask(found(url=url), "POST", "/x", 1)
    with pytest.raises(click.UsageError, match=rf"ARBITER_TLS_CERT: cannot be shown to {url}: no such file"):
        found({**own, "ARBITER_TLS_KEY": "/none.pem"}, url=url)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_operator_without_rights_on_the_key_asks_without_a_certificate(tmp_path: Path) -> None:
    cert, key = map(str, Authority(tmp_path, "ours").sign("page"))
    Path(key).chmod(0o600)
    os.seteuid(65534)
    try:
        assert found({"ARBITER_TLS_CERT": cert, "ARBITER_TLS_KEY": key}, url="https://a:1").address == "https://a:1"
    finally:
        os.seteuid(0)


def test_order_brings_the_token_over_tcp_and_nothing_else_does(port: int, path: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame-0123456789\n")
    by_tcp: dict[str, Any] = {"local_listen": f"127.0.0.1:{port}", "token_file": token}
    assert ask(found(**by_tcp), "POST", "/x", 1).value["brought"] == "Bearer sesame-0123456789"
    by_socket = ask(found(socket=path, token_file=token), "POST", "/x", 1).value
    assert (by_socket["host"], "brought" in by_socket) == ("localhost", False)
    assert "brought" not in ask(found(**by_tcp), "GET", "/x", 1).value, "this machine tells without it"
    for text in ("two words in one-file", ""):
        token.write_text(text)
        assert "brought" not in ask(found(**by_tcp), "POST", "/x", 1).value


def test_without_an_answer_the_setting_is_named() -> None:
    said = r"^no sidecar answers at /none.sock \(ARBITER_SOCKET\): no such file or directory$"
    with pytest.raises(NoSidecarError, match=said):
        ask(found(socket="/none.sock"), "GET", "/fleet")


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("/page", " does not answer as a sidecar does: "),
        ("/list", " does not answer as a sidecar does: not an object"),
        ("/fleet?x=1", ": /fleet is not served here; ARBITER_LOCAL_LISTEN has to name the local listener of a sidecar"),
    ],
    ids=["HTML", "no object", "public listener"],
)
def test_another_server_is_no_sidecar(port: int, path: str, complaint: str) -> None:
    address = f"127.0.0.1:{port}"
    with pytest.raises(NoSidecarError) as error:
        ask(found(local_listen=address), "POST", path, 1)
    assert str(error.value).startswith(f"{address} (ARBITER_LOCAL_LISTEN){complaint}")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("fleet", 1, "None: nothing is known of the fleet"),
        ("why", 1, "None: the state of the container is not known"),
        ("watch", 2, "None"),
        ("cull --yes --author ann", 1, "None: nothing was ordered"),
        ("revive --author ann", 1, "health-arbiter why shows the result"),
    ],
)
def test_answer_without_what_was_asked_for_is_a_failure(
    port: int, capsys: pytest.CaptureFixture[str], words: str, code: int, said: str
) -> None:
    assert application.run(words.split(), {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{port}"}) == code
    out, err = capsys.readouterr()
    assert err == f"health-arbiter: {said}\n"
    assert out == ("pending: instance a: it is not decided yet\n" if words.startswith("revive") else "")


# -- a sidecar elsewhere ----------------------------------------------------------------------------------------

TOKEN: Final = "sesame-7d1f0c52-secret"
HINT: Final = "wants its token, or another one: name its file in ARBITER_TOKEN_FILE"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarThread]:
    """One sidecar with a token and a page listener for all tests."""
    with short_path(tmp_path_factory.mktemp("remote")) as directory:
        (directory / "token").write_text(f"{TOKEN}\n")
        place: dict[str, Setting] = {"token_file": directory / "token", "page_listen": f"127.0.0.1:{free_port()}"}
        sidecar = SidecarThread(directory, "web-1", **place).start()
        yield sidecar
        sidecar.stop()


def _run(capsys: pytest.CaptureFixture[str], environ: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    code = application.run(words, environ)
    return code, *capsys.readouterr()


def _url(sidecar: SidecarThread, listener: str = "page") -> str:
    host, port = sidecar.address(listener)
    return f"http://{host}:{port}"


def test_commands_ask_a_sidecar_elsewhere_with_the_token(
    guarded: SidecarThread, capsys: pytest.CaptureFixture[str]
) -> None:
    by_file = {"ARBITER_URL": _url(guarded), "ARBITER_TOKEN_FILE": str(guarded.settings["token_file"])}
    assert json.loads(_run(capsys, by_file, "why", "--json")[1])["instance"] == "web-1"
    by_value = {"ARBITER_TOKEN": TOKEN}
    url = ("--url", f"{_url(guarded)}/page")  # as a browser shows it
    done = [
        _run(capsys, by_value, "hold", "--for", "1m", "--reason", "look", "--author", "ann", *url),
        _run(capsys, by_value, "fleet", "--json", *url),
        _run(capsys, by_value, "release", "--author", "ann", *url),
        _run(capsys, by_value, "events", "--json", *url),
        _run(capsys, by_value, "report", *url),
    ]
    assert [(code, err) for code, _, err in done] == [(0, "")] * 5
    assert json.loads(done[1][1])["local_hold"]["author"] == "ann"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "output", "is_coloured"),
    [({}, _Terminal, True), ({"NO_COLOR": "1"}, _Terminal, False), ({}, io.StringIO, False)],
    ids=["terminal", "NO_COLOR", "pipe"],
)
def test_words_that_matter_have_a_colour_on_terminals_only(
    guarded: SidecarThread, environ: Mapping[str, str], output: type[io.StringIO], *, is_coloured: bool
) -> None:
    with contextlib.redirect_stdout(output()) as printed:
        assert application.run(["why"], {"ARBITER_LOCAL_LISTEN": _url(guarded, "local")[7:], **environ}) == 0
    state = guarded.verdict()["state"]
    assert printed.getvalue().startswith(f"\x1b[32m{state}\x1b[0m: " if is_coloured else f"{state}: ")


def test_what_a_sidecar_elsewhere_does_not_allow_is_one_line(
    guarded: SidecarThread, capsys: pytest.CaptureFixture[str]
) -> None:
    page, public = _url(guarded), _url(guarded, "public")
    rows: list[tuple[Mapping[str, str], tuple[str, ...], int, str]] = [
        ({}, ("fleet",), 2, HINT),
        ({}, ("watch",), 2, HINT),
        ({}, ("hold", "--for", "1m", "--reason", "x", "--author", "ann"), 2, HINT),
        ({"ARBITER_TOKEN": "wrong-7d1f0c52-secret"}, ("why",), 2, HINT),
        ({"ARBITER_TOKEN": "two lines\nof-a-secret-text"}, ("why",), 2, "ARBITER_TOKEN: a token has 16 to 4096"),
        ({"ARBITER_TOKEN": TOKEN}, ("cull", "--yes", "--author", "ann"), 2, "cull is for one container"),
        ({}, ("doctor", "--url", page), 2, "--url: unknown flag"),
        ({"ARBITER_URL": public}, ("fleet",), 69, "--url has to name the page listener"),
        ({"ARBITER_URL": f"http://127.0.0.1:{free_port()}"}, ("fleet",), 69, "connection refused"),
        ({"ARBITER_URL": page.replace("http", "https")}, ("fleet",), 69, "no sidecar answers at https://"),
        ({"ARBITER_URL": "http://ann:hunter2@web-1"}, ("fleet",), 2, "ARBITER_URL: takes no user, password"),
        ({"ARBITER_TOKEN_FILE": "/nowhere"}, ("fleet",), 2, "ARBITER_TOKEN_FILE: /nowhere cannot be read"),
        ({"ARBITER_URL": "web-1:9183"}, ("fleet",), 2, "ARBITER_URL: takes an address such as https://"),
        ({}, ("fleet", "--url", "http://[hunter2"), 2, "--url: takes an address such as https://"),
    ]
    for environ, words, code, complaint in rows:
        done = _run(capsys, {"ARBITER_URL": page, **environ}, *words)
        assert (done[0], done[1], complaint in done[2], done[2].count("\n")) == (code, "", True, 1), (words, done)
        assert "hunter2" not in done[2]
        assert "secret" not in done[2]


@pytest.fixture
def reporting(guarded: SidecarThread) -> Iterator[SidecarThread]:
    """An app that reports the same error again and again."""
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(0.05):
            guarded.post_error(kind="redis", message="lost: password=hunter2", level="investigation")

    thread = threading.Thread(target=report)
    thread.start()
    yield guarded
    ended.set()
    thread.join()


@pytest.mark.parametrize("listener", ["local", "page"])
def test_watch_shows_the_first_report_as_it_comes(
    reporting: SidecarThread, capsys: pytest.CaptureFixture[str], listener: str
) -> None:
    url = {"ARBITER_URL": _url(reporting, listener), "ARBITER_TOKEN": TOKEN}
    code, out, err = _run(capsys, url, "watch", "--for", "1.5s")
    assert (code, err) == (0, "")
    assert "Z  state     " in out
    assert " x redis (investigation: does not count): lost: password=***\n" in out
    row = json.loads(_run(capsys, url, "watch", "--for", "1.5s", "--json")[1].splitlines()[1])
    assert (row["what"], row["kind"], row["level"]) == ("error", "redis", "investigation")


def test_watch_ends_after_its_time_without_a_report(guarded: SidecarThread, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, {"ARBITER_LOCAL_LISTEN": _url(guarded, "local")[7:]}, "watch", "--for", "0.2s")
    assert (code, out.count("\n"), err) == (1, 1, "health-arbiter: no error and no request came within 0.2 s\n")
