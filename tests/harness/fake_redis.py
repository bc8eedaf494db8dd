"""fakeredis behind a socket, for machines without a redis-server. Its time is that of this process."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fakeredis import TcpFakeServer
from redis import Redis

from sidecar.store.redis_content import BEAT, COMMIT, READ

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def fake_redis() -> Iterator[str]:
    """A new and empty one; its URL. It knows the store's scripts, because it hangs up instead of saying NOSCRIPT."""
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url = f"redis://127.0.0.1:{server.server_address[1]}"
    with Redis.from_url(url, protocol=2) as client:
        for script in (READ, COMMIT, BEAT):
            client.script_load(script.text)
    yield url
    server.shutdown()
    server.server_close()
