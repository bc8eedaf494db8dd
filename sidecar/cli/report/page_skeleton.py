"""The frame of the HTML pages that commands write: no script, nothing loaded, in light and in dark colours.

A page is one file for a mail or a wiki. All text from outside goes through ``escaped``.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from string import Template
from typing import Final

from sidecar.cli.terminal import plain

_STYLE: Final = """\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;color:#1f2328;background:#fff}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}
.shadow{font-size:1.15rem;border-left:4px solid #d98a1f;padding-left:.8rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #d0d7de;\
overflow-wrap:anywhere}
th{font-weight:600;white-space:nowrap}.n{text-align:right}
footer{margin-top:2rem;font-size:.85rem;opacity:.75}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th,td{border-color:#30363d}}
"""
_PAGE: Final = Template(
    """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
$style
</style>
</head>
<body>
$body
</body>
</html>
"""
)


def page(title: str, style: str, body: Iterable[str]) -> str:
    """The whole page; ``title`` is escaped text, and ``style`` comes after the common rules."""
    return _PAGE.substitute(title=title, style=f"{_STYLE}{style}", body="\n".join(body))


def escaped(text: object) -> str:
    """Text from outside, safe anywhere in a page: without markup and control characters."""
    return escape(plain(text), quote=True)


def table(rows: Iterable[str]) -> str:
    """A table with these cells in each row."""
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
