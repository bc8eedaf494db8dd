"""The status page: three files without data. Its script lays out ``/why``, ``/fleet`` and ``/events``."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import hdrs

from sidecar.net import web

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FILES: Final = {
    "/page": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


def routes() -> web.Routes:
    """Routes of a listener."""
    return {"/": {"GET": get_root}, **{path: {"GET": _file(*file)} for path, file in FILES.items()}}


async def get_root(_request: web.BaseRequest) -> web.Response:
    """``GET /``: redirect to the page."""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, hdrs.LOCATION: "page"})


def _file(name: str, content_type: str) -> web.Handler:
    content = Path(__file__).with_name(name).read_bytes()

    async def handle(_request: web.BaseRequest) -> web.Response:
        return web.Response(body=content, content_type=content_type, charset="utf-8", headers=HEADERS)

    return handle
