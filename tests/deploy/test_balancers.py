"""The page on other balancers says what the sidecar does, and names files that are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from sidecar.config import addresses
from sidecar.config.settings import Settings
from sidecar.server import health

PAGE: Final = Path(__file__).parents[2] / "deploy" / "balancers.md"
GUIDE: Final = PAGE.parent / "haproxy" / "README.md"
CASCADE: Final = PAGE.parent / "haproxy" / "cascade.cfg"
PUBLIC_PORT: Final = addresses.split(Settings.model_fields["public_listen"].default)[1]


@pytest.mark.parametrize("header", [health.WEIGHT, health.STATE, health.REASON, health.DEGRADED])
def test_page_shows_each_header_of_a_health_answer(header: str) -> None:
    assert f"{header}: " in PAGE.read_text()


def test_page_asks_the_public_port_for_the_health_that_drains_first() -> None:
    text = PAGE.read_text()
    assert re.findall(r"path: (\S+?)[ ,}]", text) == ["/health/haproxy"] * 2
    assert re.findall(r"\bport(?:_value)?: (9\d+)", text) == [str(PUBLIC_PORT)] * 2
    assert f"a weight of {health.DEGRADED_BELOW} %" in text


@pytest.mark.parametrize("page", [PAGE, GUIDE], ids=["balancers", "haproxy"])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", page.read_text())
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_guide_speaks_of_every_line_that_makes_the_cascade() -> None:
    said = CASCADE.read_text()
    quoted = re.findall(r"`([^`]+)`", GUIDE.read_text().partition("## What HAProxy cannot do")[0])
    lines = [
        "balance roundrobin",
        "weight 100",
        "maxconn 64",
        "retries 2",
        "option redispatch 1",
        "retry-on",
        "http-request disable-l7-retry unless { method GET HEAD OPTIONS }",
        "timeout queue 250ms",
        "timeout connect 500ms",
        "slowstart 20s",
        "option httpchk",
        "agent-check",
        "server-state-file",
        "log-health-checks",
    ]
    assert [line for line in lines if line not in said] == []
    assert [line for line in lines if line not in quoted] == []
