"""deploy/fleet.md: its settings, commands, outcomes and links are there."""

from __future__ import annotations

import re
from typing import Final

import pytest

from deploy.prometheus_rules import DEPLOY
from sidecar.config.settings import Settings
from sidecar.config.sources import variable
from sidecar.core.explain.ledger_entries import WHATS

TEXT: Final = (DEPLOY / "fleet.md").read_text()


def _anchors(text: str) -> set[str]:
    """The headings of a page, as code hosts link to them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_settings_exist() -> None:
    assert set(re.findall(r"\bARBITER_[A-Z_]+", TEXT)) <= set(map(variable, Settings.model_fields))


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT))))
def test_link_leads_to_a_page_and_a_heading(link: str) -> None:
    path, _, anchor = link.partition("#")
    assert not anchor or anchor in _anchors((DEPLOY / path).read_text())


def test_outcomes_are_those_that_the_ledger_knows() -> None:
    section = TEXT.split("\n## Outcome\n")[1].split("\n## ")[0]
    said = [row.split("|")[1].strip() for row in section.splitlines() if row.startswith("|")][2:]
    assert {{"did not help": "unhelped"}.get(word, word) for word in said} <= WHATS
    assert len(said) == 3
