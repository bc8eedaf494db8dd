"""The pages beside the shipped files: links, settings and examples are right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import hcl2
import pytest

from sidecar.cli.options import VARIABLES
from sidecar.config import addresses, syntax
from sidecar.config.settings import Config, setting_names
from sidecar.config.sources import APP_VARIABLES, FORMER, variable
from sidecar.notify.messages import WORDS
from sidecar.server import health

TOP: Final = Path(__file__).parents[2]
DEPLOY: Final = TOP / "deploy"
OTHER_PAGES: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "nomad/README.md", "tests/bench/README.md")
PAGES: Final = [*DEPLOY.rglob("*.md"), *(TOP / name for name in OTHER_PAGES)]
OF_THE_HOOK: Final = {"ARBITER_INCARNATION", "ARBITER_KIND", "ARBITER_REASON"}
BALANCERS: Final = (DEPLOY / "balancers.md").read_text()
MESSAGES: Final = (DEPLOY / "messages.md").read_text()
TEMPLATE, PAGERDUTY = re.findall(r"```json\n(.*?)```", MESSAGES, re.DOTALL)
MESSAGE_WORDS: Final = [(word, severity) for word, severity in WORDS.items() if word != "test"]


def _anchors(page: Path) -> set[str]:
    """The headings of a page, as code hosts link to them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def _is_broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in _anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_paths_and_settings_of_the_page_exist(page: Path) -> None:
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if _is_broken(page, link)] == []
    paths = re.findall(r"`((?:sidecar|tests|deploy)/[\w./-]+)`", text)
    assert [path for path in paths if not (TOP / path).exists()] == []
    names = {*map(variable, setting_names()), *OF_THE_HOOK, *APP_VARIABLES, *VARIABLES}
    if page.name == "CHANGELOG.md":
        names |= {*map(variable, FORMER)}
    assert set(re.findall(r"(?<!_)\bARBITER_[A-Z_]*[A-Z]\b(?!_?\*)", text)) <= names


def test_changelog_says_what_became_of_every_former_setting() -> None:
    (table,) = re.findall(r"\n\| settings \|.*?\n\n", (TOP / "CHANGELOG.md").read_text(), re.DOTALL)
    assert set(map(variable, FORMER)) - set(re.findall(r"\bARBITER_\w+", table)) == set()


def test_task_on_the_first_page_is_that_of_the_shipped_job() -> None:
    (task,) = re.findall(r"```hcl\n(.*?)```", (TOP / "README.md").read_text(), re.DOTALL)
    assert [*hcl2.loads(task)] == ["task"]
    lines = re.sub(r" +#.*", "", task).splitlines()[1:-1]
    shipped = " ".join((TOP / "nomad" / "app-task-api.nomad.hcl").read_text().split())
    own = [" ".join(line.split()) for line in lines if "REDIS_URL" not in line]
    assert [line for line in own if line.removesuffix("}").rstrip() not in shipped] == []


# -- balancers.md and haproxy/README.md -------------------------------------------------------------------------------


def test_balancers_poll_the_public_port_for_the_health_that_drains_first() -> None:
    public_port = addresses.split(Config().server.public_listen)[1]
    assert re.findall(r"path: (\S+?)[ ,}]", BALANCERS) == ["/health/haproxy"] * 2
    assert re.findall(r"\bport(?:_value)?: (9\d+)", BALANCERS) == [str(public_port)] * 2
    assert f"a weight of {health.DEGRADED_BELOW} %" in BALANCERS


# -- messages.md ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "severity"), MESSAGE_WORDS)
def test_table_of_messages_has_the_word_with_its_severity(word: str, severity: str) -> None:
    assert re.search(rf"^\| `{word}` \| {severity} \|", MESSAGES, re.MULTILINE)


def test_templates_of_the_page_are_valid() -> None:
    assert syntax.template_problem(TEMPLATE) == syntax.template_problem(PAGERDUTY) == ""
    fields = dict.fromkeys(syntax.TEMPLATE_FIELDS, "critical")
    event = json.loads(syntax.fill_template(PAGERDUTY, fields))
    assert event.keys() <= {"routing_key", "event_action", "dedup_key", "payload", "links", "client", "client_url"}
    assert (len(event["routing_key"]), event["event_action"]) == (32, "trigger")
    assert event["payload"].keys() >= {"summary", "source", "severity"}
