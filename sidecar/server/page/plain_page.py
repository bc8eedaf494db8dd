"""The status page for a browser without JavaScript: the banner, this container in words, and the containers in trouble.

It is HTML made of the same data as the page. All text is escaped, and none of it can move the text around it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from string import Template
from typing import Any, Final

from sidecar.core.types import State
from sidecar.server.page.containers import ContainerFacts
from sidecar.server.why_text import as_text, printable

PARTS: Final = r"why|banner|store|known_at|containers\d+"
"""The parts of the page's state that are shown here."""

MOST_LISTED: Final = 50
REFRESH_S: Final = 10
QUIET: Final = (State.UP, State.STARTING)

_PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="$refresh_s">
<title>$service: $sentence</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="../page.css">
</head>
<body class="plain">
<header>
  <h1>$service <small>$mode</small></h1>
  <p id="live">as of $now UTC, read again every $refresh_s s</p>
</header>
<main>
  <section id="banner" class="$level">
    <p id="banner-sentence">$sentence</p>
    <p>$action</p>
    <p><code>$command</code> $runbook</p>
  </section>
  $known
  <section class="card">
    <h2>Containers in trouble</h2>
    $containers
  </section>
  <section class="card">
    <h2>This container: $instance</h2>
    <pre>$why</pre>
  </section>
</main>
<footer class="quiet">Everything that is known: <a href="../why?format=text">/why</a> of this container,
  <a href="../fleet">/fleet</a>, <a href="../events">/events</a>. With JavaScript the page also shows charts,
  and sets holds.</footer>
</body>
</html>
""")


def plain_page(parts: Mapping[str, Any], now: float) -> bytes:
    """The page. ``parts``: those of ``PARTS`` that are known, as JSON values; ``now``: Unix seconds."""
    why, banner = parts["why"], parts.get("banner") or {}
    rows = [ContainerFacts(*row) for name, block in parts.items() if name.startswith("containers") for row in block]
    fields = {
        "service": why["service"],
        "mode": "shadow mode" if why["mode"] == "shadow" else "",
        "now": _clock(now),
        "level": banner.get("level", ""),
        "sentence": banner.get("sentence", "The state of the service is not known."),
        "action": banner.get("action", ""),
        "command": banner.get("command", ""),
        "instance": why["instance"],
        "refresh_s": str(REFRESH_S),
    }
    made = {
        "runbook": _link(banner.get("runbook", "")),
        "known": _known(parts.get("known_at")),
        "containers": "\n".join(_listed([row for row in rows if row.state not in QUIET or row.duplicate], len(rows))),
        "why": escape(as_text({**why, "at": now})),
    }
    return _PAGE.substitute({name: _safe(text) for name, text in fields.items()} | made).encode(errors="replace")


def _listed(troubled: Sequence[ContainerFacts], count: int) -> Iterator[str]:
    yield "<ul>"
    for one in troubled[:MOST_LISTED]:
        about = (
            f"since {_clock(one.since)} UTC" if one.since else "",
            f"because of {one.cause}" if one.cause else "",
            "" if one.errors is None else f"{one.errors} errors, the limit is {one.limit}",
            "" if one.weight is None else f"weight {one.weight} %",
            "two containers run under this name" if one.duplicate else "",
        )
        state = _safe(one.state)
        said = _safe(", ".join(filter(None, about)))
        yield f'<li><b>{_safe(one.instance)}</b> <span class="state {state}">{state}</span> <span>{said}</span></li>'
    yield "</ul>"
    more = len(troubled) - MOST_LISTED
    yield f"<p>{f'and {more} more, ' if more > 0 else ''}{len(troubled)} of {count} containers</p>"


def _known(known_at: float | None) -> str:
    """A line about the age of the data while the store is away."""
    return f'<p role="alert">The service is shown as it was known at {_clock(known_at)} UTC.</p>' if known_at else ""


def _link(url: str) -> str:
    """A link to the runbook; nothing for a URL that could run a script."""
    return f'<a href="{_safe(url)}">Runbook</a>' if url.lower().startswith(("http://", "https://")) else ""


def _safe(text: str) -> str:
    return escape(printable(text))


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at))
