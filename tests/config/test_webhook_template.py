from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.config import syntax


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (b'{"text": "$sentense"}', "knows no field 'sentense', only at, cause, command"),
        (b'{"text": $sentence}', "within quotes"),
        (b'{"text": "$sentence"', "no JSON"),
        (b'{"text": "$ 5"}', "no JSON"),
        (b"", "no JSON"),
        (b'{"text": "\xff"}', "cannot be read: not UTF-8"),
        (None, "cannot be read: No such file or directory"),
    ],
    ids=["unknown field", "outside quotes", "cut off", "bare dollar", "empty", "not UTF-8", "no file"],
)
def test_template_of_no_use_is_refused_with_the_reason(tmp_path: Path, template: bytes | None, says: str) -> None:
    path = tmp_path / "template"
    if template is not None:
        path.write_bytes(template)
    with pytest.raises(ValueError, match=says):
        syntax.read_template(str(path))


def test_usable_template_is_returned_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "template"
    path.write_text('{"text": "$severity: $sentence", "cost": "$$5"}')
    assert syntax.read_template(str(path)) == path.read_text()
