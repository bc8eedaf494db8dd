"""What the doctor says of a certificate that is refused, in the words of OpenSSL."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from harness.certificates import Authority
from sidecar.cli.doctor.examination import _ask, _reach
from sidecar.cli.doctor.findings import FindingLevel
from sidecar.store.redis_client import RedisClient


@pytest.mark.parametrize(
    ("host", "trusted", "said"),
    [
        ("127.0.0.1", "ours", ""),
        ("127.0.0.1", "others", "unable to get local issuer certificate"),
        ("localhost", "ours", "Hostname mismatch, certificate is not valid for 'localhost'."),
    ],
    ids=["trusted", "unknown authority", "another name"],
)
async def test_refusal_of_a_certificate_is_explained(host: str, trusted: str, said: str, tmp_path: Path) -> None:
    authorities = {name: Authority(tmp_path, name) for name in ("ours", "others")}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authorities["ours"].sign("redis"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"+PONG\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        url = f"rediss://{host}:{server.sockets[0].getsockname()[1]}?ssl_ca_certs={authorities[trusted].ca}"
        async with aclosing(RedisClient(url, 10)) as client:
            found = await _reach(partial(_ask, client, 10), client, 10)
    assert (found.level is FindingLevel.FAIL, found.sentence.endswith(said)) == (said != "", True)
