"""HCL is read as python-hcl2 reads it, as far as doctor goes; the rest is an expression, or has a line and a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hcl2
import pytest

from deploy.nomad_job import _plain
from sidecar.cli.doctor import hcl

JOBS = sorted((Path(__file__).parents[3] / "nomad").glob("*.nomad.hcl"))

EVERYTHING = r"""
# one
// two
/* three
   "four */
job "app" "prod" {
  text    = "a \"quoted\" \\ \t line, a brace } and a # mark"
  number  = 12 # behind
  part    = -1.5
  yes     = true
  nothing = null
  list    = ["a", "b", # inside
    1,
  ]
  map     = { a = 1, "b" : [2], }
  lines   = {
    a = "${NOMAD_PORT_x}"
    b = "of ${attr.unique.network.ip-address}:1"
  }
  one_line { a = 1 }
  text2 = <<EOT
  as "it" is ${x}
EOT
  text3 = <<-EOT
    a
      b
    EOT
  service {}
  service {
    tags = []
  }
}
"""


def _of_library(text: str) -> Any:
    return _labels_inside(_plain(hcl2.loads(text)))


def _labels_inside(value: Any) -> Any:
    """The value with the label of each block as its ``name``; the library has ``[{"label": {...}}]``."""
    if isinstance(value, list):
        return [_labels_inside(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, each in value.items():
        if name in ("job", "group", "task", "port", "variable") and isinstance(each, list):
            blocks = [(label, body) for block in each for label, body in block.items()]
            found[name] = [{"name": label, **_labels_inside(body)} for label, body in blocks]
        else:
            found[name] = _labels_inside(each)
    return found


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_shipped_jobs_are_read_as_by_the_library(path: Path) -> None:
    text = re.sub(r"^ *(default|type) .*\n", "", path.read_text(), flags=re.MULTILINE)  # the library evaluates less
    ours, theirs = hcl.loads(text), _of_library(text)
    for job in (ours, theirs):
        for template in _templates(job):  # the library keeps the indentation and the last newline is its own
            template["data"] = template["data"].split()
    assert ours == theirs


def _templates(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for each in value for found in _templates(each)]
    if not isinstance(value, dict):
        return []
    return [*value.get("template", ()), *(found for each in value.values() for found in _templates(each))]


def test_every_kind_of_value_is_read() -> None:
    (job,) = hcl.loads(EVERYTHING)["job"]
    assert job == {
        "name": "app",
        "text": 'a "quoted" \\ \t line, a brace } and a # mark',
        "number": 12,
        "part": -1.5,
        "yes": True,
        "nothing": None,
        "list": ["a", "b", 1],
        "map": {"a": 1, "b": [2]},
        "lines": {"a": "${NOMAD_PORT_x}", "b": "of ${attr.unique.network.ip-address}:1"},
        "one_line": [{"a": 1}],
        "text2": '  as "it" is ${x}\n',
        "text3": "a\n  b\n",
        "service": [{}, {"tags": []}],
    }


@pytest.mark.parametrize(
    "text",
    [
        "2 * 3",
        'format("%s}", "a")',
        'x ? "a" : "b"',
        '[for x in ["a"] : "${x}"]',
        "{for x in y : x => x}",
        "a.b[0].c",
        "(1 +\n 2)",
        'f("${g("}")}")',
        "-x",
    ],
)
def test_an_expression_is_kept_as_its_text_with_its_line(text: str) -> None:
    found = hcl.loads(f"\na = {text}\nb = [{text}, 1]\n")
    assert found["a"] == found["b"][0] == f"${{{text}}}"
    assert isinstance(found["a"], hcl.Expression)
    assert found["a"].line == 2
    assert found["b"][1] == 1


def test_variables_have_their_defaults_and_locals_their_values() -> None:
    head = 'variable "n" {\n  default = 3\n}\nvariable "bare" {}\nlocals {\n  t = "5s"\n}\n'
    found = hcl.loads(head + 'x {\n a = var.n\n b = "${var.n}-${local.t}"\n c = local.t\n d = [var.bare]\n}')
    assert found["x"] == [{"a": 3, "b": "3-5s", "c": "5s", "d": ["${var.bare}"]}]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\n=", 2, "a name of an attribute or block is missing"),
        ("}", 1, "a name of an attribute or block is missing"),
        ("a = 1, b = 2", 1, "an attribute has to end with its line"),
        ("a 1 {\n}", 1, "= or { is missing"),
        ("a {\nb = 1\n", 3, "a name of an attribute or block is missing"),
        ("a =\nb = 1", 1, "a value is missing"),
        ('a = "x\n"', 1, 'the closing " is missing'),
        ('a = "${x', 1, "} is missing"),
        ("a = [1\n2]", 2, ", or ] is missing"),
        ("a = {x}", 1, "= is missing"),
        ("a = <<EOT\nx\n", 1, "the end of the heredoc is missing"),
        ("a = f(1\n", 2, r"\) is missing"),
        ('dynamic "env" {\n}', 1, "a dynamic block is not read"),
    ],
)
def test_what_is_no_hcl_is_refused_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(hcl.HclError, match=said) as refused:
        hcl.loads(text)
    assert refused.value.line == line
