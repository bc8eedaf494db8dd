"""What the doors use of aiohttp's server.

``aiohttp.web`` itself would bring a router, files and websockets along: 1 MiB and 15 ms in every sidecar.
"""

from aiohttp.web_exceptions import HTTPRequestEntityTooLarge
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

__all__ = (
    "BaseRequest",
    "HTTPRequestEntityTooLarge",
    "RequestHandler",
    "RequestPayloadError",
    "Response",
    "Server",
    "StreamResponse",
)
