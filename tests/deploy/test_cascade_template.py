"""cascade.cfg.tpl: cascade.cfg with servers from Nomad's registry, rendered by consul-template if that is installed."""

from __future__ import annotations

import re
from typing import Final

from deploy.haproxy_config import CASCADE, DIRECTORY

TEMPLATE: Final = DIRECTORY / "cascade.cfg.tpl"
JOB: Final = DIRECTORY.parents[1] / "nomad" / "app.nomad.hcl"


def _settings(text: str) -> list[str]:
    """The lines of all sections without the servers."""
    lines = text[text.index("global\n") :].splitlines()
    return [line for line in lines if not line.lstrip().startswith(("server app", "server {{", "{{"))]


def test_template_differs_from_the_cascade_only_in_its_servers() -> None:
    assert _settings(TEMPLATE.read_text()) == _settings(CASCADE.read_text())


def test_template_matches_the_service_of_the_job_file() -> None:
    service = re.search(r'nomadService "(.*)"', TEMPLATE.read_text())
    tag = re.search(r'regexMatch "(.*?)" \.', TEMPLATE.read_text())
    registered = re.search(r'name += "(.*)"\s+provider = "nomad"\s+port += "app"\s+tags += \["(.*)"\]', JOB.read_text())
    assert service
    assert tag
    assert registered
    assert registered[1] == service[1]
    assert re.fullmatch(tag[1], registered[2].replace("${NOMAD_HOST_PORT_arbiter_agent}", "29182"))
