"""The files of the status page. Who may ask is the matter of ``test_request_check``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.listeners import serving
from harness.raw_http import Observed, RawConnection, get
from sidecar.server.page import status_page
from sidecar.server.page.status_page import FILES, POLICY

DATA = Path(status_page.__file__).parent


@pytest.mark.parametrize("path", ["/", *FILES])
async def test_every_answer_keeps_scripts_and_other_sites_out(path: str) -> None:
    async with serving(status_page.routes(), Observed()) as server, await RawConnection.to(server) as wire:
        answer = await wire.ask(get(path))
    assert (answer.status, answer.headers.get("location")) == ((303, "page") if path == "/" else (200, None))
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    if path != "/":
        assert answer.headers["content-type"] == f"{FILES[path][1]}; charset=utf-8"


# -- the files ----------------------------------------------------------------------------------------------


def test_script_makes_no_markup_or_code_of_data() -> None:
    script = (DATA / "page.js").read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|srcdoc|DOMParser|\.on[a-z]+ ?="
    assert re.findall(forbidden, script) == []


def test_page_loads_nothing_from_elsewhere_and_nothing_inline() -> None:
    html, style = (DATA / "index.html").read_text(), (DATA / "page.css").read_text()
    assert re.findall(r"https?://|\son[a-z]+=|\sstyle=|<style|<script(?! src=\"page.js\")", html) == []
    assert re.findall(r"https?://|@import|url\(", style) == []


def test_every_element_that_the_script_names_is_there() -> None:
    named = set(re.findall(r'(?:byId|say|fill)\("([a-z-]+)"', (DATA / "page.js").read_text()))
    there = set(re.findall(r'id="([a-z-]+)"', (DATA / "index.html").read_text()))
    assert named - there == set()
