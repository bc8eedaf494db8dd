"""The client for the shell, and the lines of deploy/reporting.md without a client."""

from __future__ import annotations

import re
import socket

import pytest

from deploy.client_programs import TOP, Posted, run, runtime
from sidecar.inputs.report_bodies import read_errors


def _one_liner(start: str) -> str:
    (line,) = set(re.findall(rf"`({start}[^`]*)`", (TOP / "deploy" / "reporting.md").read_text()))
    return str(line).replace("\\|", "|")


@pytest.mark.parametrize(
    ("arguments", "packet"),
    [
        ([], "errors:1|c|#kind:cron"),
        (["nightly", "3"], "errors:3|c|#kind:nightly"),
        (["a,b|c d", "many"], "errors:1|c|#kind:a_b_c_d"),
        (["k" * 80], f"errors:1|c|#kind:{'k' * 64}"),
        (None, "errors:1|c|#kind:cron"),
    ],
    ids=["nothing", "kind and count", "odd", "long", "one line of bash"],
)
def test_shell_reports_errors_over_udp(arguments: list[str] | None, packet: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(60)
        port = listener.getsockname()[1]
        words = (
            ["report.sh", *arguments]
            if arguments is not None
            else ["-c", _one_liner("printf").replace("8125", str(port))]
        )
        assert run([runtime("bash"), *words], {"ARBITER_STATSD_LISTEN": f"127.0.0.1:{port}"}) == ""
        assert listener.recv(1000).decode().strip() == packet


def test_shell_and_one_line_of_curl_report_errors_over_http(posted: Posted) -> None:
    runtime("curl")
    port, seen = posted
    assert run([runtime("bash"), "report.sh", "nightly", "3"], {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{port}"}) == ""
    run([runtime("sh"), "-c", _one_liner("curl").replace("9180", str(port))], {})
    (path, body), last = seen
    assert path == "/errors"
    assert [(ping.errors, ping.kind) for ping in read_errors(body)] == [(3, "nightly")]
    assert last == ("/errors", b"")
