"""The status page: three files, its state as JSON, and the holds that a person sets on it.

The files contain no data. An order also needs a secret that is part of the state (OWASP, cross-site request forgery
prevention): ``request_check`` has refused all other web pages before.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import hdrs

from sidecar.net import web
from sidecar.server import long_answer
from sidecar.server.page.page_state import PageState

CSRF: Final = "X-Arbiter-CSRF"
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


def routes(state: PageState, orders: Mapping[str, web.Handler]) -> web.Routes:
    """Routes of a listener: the page over ``state``. ``orders``: handlers of POST and DELETE of a hold."""

    async def get_state(request: web.BaseRequest) -> web.StreamResponse:
        """Everything that the page shows."""
        return await long_answer.respond(request, await state.document(), headers=HEADERS)

    def with_secret(order: web.Handler) -> web.Handler:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            given = request.headers.get(CSRF, "")
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), state.csrf.encode()):
                sentence = f"{CSRF}: is not csrf of the present state, read it again"
                raise web.HttpError(HTTPStatus.FORBIDDEN, "csrf", sentence)
            response = await order(request)
            state.hurry()
            return response

        return handle

    return {
        "/": {"GET": get_root},
        **{path: {"GET": _file(*file)} for path, file in FILES.items()},
        "/page/state": {"GET": get_state},
        "/page/hold": {method: with_secret(order) for method, order in orders.items()},
    }


async def get_root(_request: web.BaseRequest) -> web.Response:
    """``GET /``: redirect to the page."""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, hdrs.LOCATION: "page"})


def _file(name: str, content_type: str) -> web.Handler:
    content = Path(__file__).with_name(name).read_bytes()

    async def handle(_request: web.BaseRequest) -> web.Response:
        return web.Response(body=content, content_type=content_type, charset="utf-8", headers=HEADERS)

    return handle
