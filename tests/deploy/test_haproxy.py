"""The shipped HAProxy configurations: HAProxy accepts them without a warning, and they work as documented."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import TYPE_CHECKING, Final

import pytest

from deploy.haproxy_config import AGENT, PLAIN, SHIPPED, lines, notice_s, server_option, server_words
from harness.binaries import require
from harness.cascade import EMPTY_STATE, FakeAgent, await_agent, await_status, status
from harness.ports import free_port
from sidecar.config import addresses
from sidecar.config.settings import Config

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import StartHaproxy

Rule = Callable[[str], list[str]]
PUBLIC_PORT: Final = addresses.split(Config().server.public_listen)[1]
AGENT_PORT: Final = addresses.split(Config().server.agent_listen)[1]


def _complaints(text: str, directory: Path) -> str:
    """The complaints of HAProxy about a configuration; with -dW a warning is an error."""
    config, state = directory / "haproxy.cfg", directory / "server-state"
    state.write_text(EMPTY_STATE)
    config.write_text(text.replace("/var/lib/haproxy/server-state", str(state)))
    command = [require("haproxy"), "-c", "-dW", "-f", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr or "no reason given"


# -- rules ----------------------------------------------------------------------------------------------------------


def sidecar_is_asked_on_its_own_port(text: str) -> list[str]:
    if "agent-check" in server_words(text):
        asked, expected = server_option(text, "agent-port"), AGENT_PORT
    else:
        asked, expected = server_option(text, "port"), PUBLIC_PORT
    return [] if asked == str(expected) else [f"asks port {asked}, the sidecar listens on {expected}"]


def app_or_sidecar_is_polled_and_says_who_polls(text: str) -> list[str]:
    poll = next((line for line in lines(text) if line.startswith("http-check send ")), "")
    path = "/" if "agent-check" in server_words(text) else "/health/haproxy"
    sentences = [] if f" meth GET uri {path} ver HTTP/1.1 " in poll else [f"poll: {poll}"]
    return sentences + ([] if "hdr User-Agent HAProxy" in poll else ["the poller does not say who it is"])


def sidecar_is_heard_in_time(text: str) -> list[str]:
    drain = Config().culling.drain
    return [] if notice_s(text) < drain else [f"HAProxy may notice after {notice_s(text):g} s, DRAIN is {drain} s"]


RULES: Final[tuple[Rule, ...]] = (
    sidecar_is_asked_on_its_own_port,
    app_or_sidecar_is_polled_and_says_who_polls,
    sidecar_is_heard_in_time,
)


@pytest.mark.parametrize("config", SHIPPED, ids=lambda path: path.name)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_configuration_keeps_the_rule(rule: Rule, config: Path) -> None:
    assert rule(config.read_text()) == []


# -- haproxy -c ------------------------------------------------------------------------------------------


@pytest.mark.haproxy
@pytest.mark.parametrize("config", SHIPPED, ids=lambda path: path.name)
def test_haproxy_accepts_it_without_a_warning(config: Path, tmp_path: Path) -> None:
    assert _complaints(config.read_text(), tmp_path) == ""


# -- behaviour -----------------------------------------------------------------------------------------


class _Healthy(BaseHTTPRequestHandler):
    """Answers 200 at every path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Nothing: the tests look at HAProxy."""


@contextmanager
def _listening(port: int) -> Iterator[None]:
    server = TCPServer(("127.0.0.1", port), _Healthy)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _one_server(config: Path, app: int, public: int, agent: int) -> str:
    """The shipped text with one server on loopback and ten times shorter intervals."""
    text = config.read_text()
    for old, new in (
        ("10.0.0.11:8080", f"127.0.0.1:{app}"),
        ("bind :8000", f"bind 127.0.0.1:{free_port()}"),
        ("port 9181", f"port {public}"),
        ("agent-port 9182", f"agent-port {agent}"),
        ("inter 2s", "inter 200ms"),
    ):
        text = text.replace(old, new)
    return "\n".join(line for line in text.splitlines() if "10.0.0.1" not in line) + "\n"


@pytest.mark.process
def test_agent_variant_ignores_a_dead_sidecar_keeps_its_last_answer_and_sees_a_dead_app(haproxy: StartHaproxy) -> None:
    app, agent = free_port(), FakeAgent("drain 0% #culled")
    with ExitStack() as stack:
        stack.enter_context(_listening(app))
        proxy = haproxy(_one_server(AGENT, app, free_port(), agent.port))
        await_agent(proxy, "app1", "L4CON")
        assert status(proxy, "app1").startswith("UP")  # "UP 2/3" after a late check
        with agent:
            await_status(proxy, "app1", "DRAIN (agent)")
        await_agent(proxy, "app1", "L4CON")
        assert status(proxy, "app1") == "DRAIN (agent)"
        stack.close()
        await_status(proxy, "app1", "DOWN")


@pytest.mark.process
def test_dead_sidecar_looks_like_a_dead_app_to_the_plain_variant(haproxy: StartHaproxy) -> None:
    app, public = free_port(), free_port()
    with _listening(app), ExitStack() as stack:
        stack.enter_context(_listening(public))
        proxy = haproxy(_one_server(PLAIN, app, public, free_port()))
        await_status(proxy, "app1", "UP")
        stack.close()
        await_status(proxy, "app1", "DOWN")
