"""The client for the shell, its lines without a client, and the page of the clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from deploy.client_programs import CLIENTS, Posted, counts_of, run, runtime, udp
from sidecar.inputs.report_bodies import read_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.statsd_receiver import Receiver

# -- shell ------------------------------------------------------------------------------------------------------------


def _report_sh(arguments: list[str], environ: Mapping[str, str]) -> str:
    return run([runtime("bash"), "report.sh", *arguments], environ)


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        ([], {"errors|kind:cron": 1}),
        (["nightly"], {"errors|kind:nightly": 1}),
        (["nightly", "3"], {"errors|kind:nightly": 3}),
        (["a,b|c d", "many"], {"errors|kind:a_b_c_d": 1}),
        (["k" * 80], {f"errors|kind:{'k' * 64}": 1}),
    ],
    ids=["nothing", "kind", "count", "odd", "long"],
)
def test_shell_reports_errors_over_udp(arguments: list[str], counts: dict[str, int], udp_listener: Receiver) -> None:
    assert _report_sh(arguments, udp(udp_listener)) == ""
    assert counts_of(udp_listener, 1) == counts


def test_shell_reports_errors_over_http(posted: Posted) -> None:
    runtime("curl")
    port, seen = posted
    assert _report_sh(["nightly", "3"], {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{port}"}) == ""
    ((path, body),) = seen
    assert path == "/errors"
    assert [(ping.errors, ping.kind) for ping in read_errors(body)] == [(3, "nightly")]


# -- one-liners of the page -------------------------------------------------------------------------------------------


def _one_liner(start: str) -> str:
    page = (CLIENTS / "README.md").read_text()
    found = re.search(rf"`({start}[^`]*)`", page)
    assert found, start
    return found[1].replace("\\|", "|")


def test_one_line_of_bash_reports_an_error(udp_listener: Receiver) -> None:
    line = _one_liner("printf").replace("8125", str(udp_listener.port))
    assert run([runtime("bash"), "-c", line], {}) == ""
    assert counts_of(udp_listener, 1) == {"errors|kind:cron": 1}


def test_one_line_of_curl_reports_an_error(posted: Posted) -> None:
    runtime("curl")
    port, seen = posted
    run([runtime("sh"), "-c", _one_liner("curl").replace("9180", str(port))], {})
    assert seen == [("/errors", b"")]


def test_page_names_every_client_and_no_other() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (CLIENTS / "README.md").read_text())
    assert {link for link in links if "../" not in link} == {path.name for path in CLIENTS.iterdir()} - {"README.md"}
