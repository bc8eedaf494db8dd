from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.ports import free_port
from sidecar.cli.doctor import surroundings
from sidecar.cli.doctor.findings import FindingLevel
from sidecar.config.load import load
from sidecar.config.settings import Config

if TYPE_CHECKING:
    from sidecar.cli.doctor.findings import Finding

ALLOCATION = {
    "NOMAD_ALLOC_ID": "a1",
    "NOMAD_ALLOC_DIR": "/alloc",
    "NOMAD_PORT_arbiter": "9181",
    "NOMAD_IP_arbiter": "10.1.2.3",
}


def _settings(**flags: object) -> Config:
    return load({name: str(value) for name, value in flags.items()}, {})


def _only(found: list[Finding], what: str) -> Finding:
    (one,) = [each for each in found if each.what == what]
    return one


# -- the directory ------------------------------------------------------------------------------------------


def test_directory_that_can_be_written_to_is_left_as_it_was(tmp_path: Path) -> None:
    assert surroundings.of_state(_settings(state_dir=tmp_path)).level is FindingLevel.OK
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "said"), [("", "no directory"), ("none", "no such file"), ("file", "not a directory")]
)
def test_directory_that_cannot_be_written_to_is_warned_of(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "file").touch()
    found = surroundings.of_state(_settings(state_dir=tmp_path / place if place else ""))
    assert found.level is FindingLevel.WARN
    assert said in found.sentence
    assert "a cull does not survive the sidecar" in found.sentence


@pytest.mark.parametrize(
    ("mode", "level", "said"), [(0o600, "ok", "neither read nor change"), (0o644, "warn", "type chmod 600 ")]
)
def test_file_with_a_secret_that_others_can_read_is_warned_of(tmp_path: Path, mode: int, level: str, said: str) -> None:
    path = tmp_path / "token"
    path.write_text("sesame-0123456789")
    path.chmod(mode)
    (found,) = surroundings.of_secrets(_settings(token_file=path))
    assert (found.what, found.level) == ("secrets", level)
    assert said in found.sentence
    assert [*surroundings.of_secrets(_settings())] == []


# -- listeners --------------------------------------------------------------------------------------------------


def _answering(answer: bytes) -> socket.socket:
    """A listener that says this to its first client."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), server.accept()[0] as connection:
            connection.settimeout(60)
            if answer.startswith(b"HTTP"):
                connection.recv(1024)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("what", "answer", "level", "said"),
    [
        ("public", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "ok", "/livez is 200"),
        ("public", b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "FAIL", "/livez is 503: its checks have stopped"),
        ("public", b"SSH-2.0-OpenSSH_9.2\r\n", "FAIL", "nothing answers at 127.0.0.1"),
        ("agent", b"up ready 100%\n", "ok", "it says 'up ready 100%'"),
        ("agent", b"\x1b[2J\n", "ok", "it says '\\x1b[2J'"),
        ("agent", b"", "FAIL", "it says nothing"),
        ("page", b"", "ok", "it accepts connections"),
    ],
)
def test_listener_is_asked_what_it_serves(tmp_path: Path, what: str, answer: bytes, level: str, said: str) -> None:
    (tmp_path / "token").write_text("a token of some length")
    with _answering(answer) as server:
        at = f"127.0.0.1:{server.getsockname()[1]}"
        flags = {"public_listen": f"127.0.0.1:{free_port()}", "agent_listen": "off", "token_file": tmp_path / "token"}
        found = _only([*surroundings.of_listeners(_settings(**{**flags, f"{what}_listen": at}))], what)
    assert found.level == level
    assert said in found.sentence


def test_wildcard_is_asked_at_loopback() -> None:
    with _answering(b"up\n") as server:
        at = f"0.0.0.0:{server.getsockname()[1]}"
        settings = _settings(agent_listen=at, public_listen=f"127.0.0.1:{free_port()}")
        assert _only([*surroundings.of_listeners(settings)], "agent").level is FindingLevel.OK


def test_sockets_are_looked_at_by_their_kind(run_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(str(run_dir / "statsd.sock"))
        settings = _settings(statsd_socket=run_dir / "statsd.sock", socket=run_dir / "app.sock", agent_listen="off")
        found = [*surroundings.of_listeners(settings)]
    assert _only(found, "statsd").level is FindingLevel.OK
    assert _only(found, "socket").sentence == f"nothing answers at {run_dir / 'app.sock'}: no such file or directory"


# -- Nomad --------------------------------------------------------------------------------------------------


def test_elsewhere_nothing_is_said_of_nomad() -> None:
    assert list(surroundings.of_nomad(_settings(), {})) == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "are those of the allocation"),
        ({"instance": "web"}, "ARBITER_INSTANCE is web and not the allocation's id a1"),
        ({"state_dir": "/tmp"}, "ARBITER_STATE_DIR is /tmp, outside the allocation's directory /alloc"),
        ({"socket": "/run/a.sock"}, "the app's task does not see it"),
        ({"public_listen": "0.0.0.0:9999"}, "no port of the group leads there: 9181"),
        ({"public_allow": "10.1.0.0/16"}, "are those of the allocation"),
        ({"public_allow": "10.2.0.0/16"}, "ARBITER_PUBLIC_ALLOW leaves out 10.1.2.3, the address of this Nomad client"),
    ],
)
def test_allocation_is_compared_with_the_settings(flags: dict[str, str], said: str) -> None:
    given = {"instance": "a1", "state_dir": "/alloc/tmp", "agent_listen": "off", **flags}
    (found,) = surroundings.of_nomad(_settings(**given), ALLOCATION)
    assert said in found.sentence
    assert found.level == (FindingLevel.OK if "are those of the allocation" in said else FindingLevel.WARN)


def test_checks_of_nomad_have_no_certificate_for_the_public_listener() -> None:
    tls = Config().tls._replace(tls_cert="/tls.crt", tls_client_ca="/ca.pem", tls_listeners="page,public")
    identity = Config().identity._replace(instance="a1")
    config = Config()._replace(tls=tls, identity=identity)
    (found,) = surroundings.of_nomad(config, {"NOMAD_ALLOC_ID": "a1"})
    assert found.level is FindingLevel.WARN
    assert "Nomad's own checks have no certificate" in found.sentence
    assert [*surroundings.of_nomad(config._replace(tls=tls._replace(tls_listeners="page")), ALLOCATION)] != [found]
